//! The arguments of one kernel, bound once: constants of a prepared program, and slots that each run fills.

use crate::codegen::{Argument, Arguments, Slot};
use crate::error::{GpuError, Result};

/// A field of a kernel's argument struct.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::exec) enum Field {
    /// The same in every run.
    Constant(u64),
    /// Filled by each run.
    Slot(Slot),
    /// Address from which rows of the kernel's streamed column part `i` are counted.
    Streamed(usize),
}

/// The argument struct of one kernel with everything filled in that does not change between runs.
#[derive(Debug)]
pub(in crate::exec) struct Template {
    fields: Vec<Field>,
}

impl Template {
    /// `resolve` gives the value of a slot that never changes, or says who fills it.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for a slot that there is nothing for; what `resolve` returns.
    pub(in crate::exec) fn new(
        arguments: &Arguments,
        resolve: impl Fn(Slot) -> Result<Option<Field>>,
    ) -> Result<Self> {
        let fields = arguments
            .fields()
            .map(|argument| {
                Ok(match argument {
                    Argument::Integer(value) => Field::Constant(value as u64),
                    Argument::Float(value) => Field::Constant(value.to_bits()),
                    Argument::Slot(slot) => resolve(slot)?.ok_or_else(|| unknown(slot))?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { fields })
    }

    /// The slots that a run must fill.
    pub(in crate::exec) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.fields.iter().filter_map(|field| match field {
            Field::Slot(slot) => Some(*slot),
            Field::Constant(_) | Field::Streamed(_) => None,
        })
    }

    /// The bytes for one launch, with the addresses of streamed parts.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for a slot without a value.
    pub(in crate::exec) fn bytes(
        &self,
        streamed: &[u64],
        value: impl Fn(Slot) -> Option<u64>,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.fields.len() * 8);
        for field in &self.fields {
            let word = match field {
                Field::Constant(value) => *value,
                Field::Slot(slot) => value(*slot).ok_or_else(|| unknown(*slot))?,
                Field::Streamed(part) => *streamed.get(*part).ok_or_else(|| {
                    GpuError::Internal(format!("no address for streamed part {part}"))
                })?,
            };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

fn unknown(slot: Slot) -> GpuError {
    GpuError::Internal(format!("no value for kernel argument {slot}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codegen::{ColumnPart, Part};

    #[test]
    fn templates_fill_slots_and_keep_constants() {
        let column = Slot::Result(1, Part::Column(0));
        let mut arguments = Arguments::default();
        arguments.pointer(column, "const u8*");
        arguments.literal(-5, false);
        arguments.pointer(Slot::Scan(0, ColumnPart::Data), "const u8*");
        let template = Template::new(&arguments, |slot| {
            Ok(Some(match slot {
                Slot::Scan(0, ColumnPart::Data) => Field::Constant(77),
                slot => Field::Slot(slot),
            }))
        })
        .unwrap();
        assert_eq!(template.slots().collect::<Vec<_>>(), [column]);
        let bytes = template.bytes(&[], |_| Some(42)).unwrap();
        let words: Vec<_> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| i64::from_ne_bytes(*w))
            .collect();
        assert_eq!(words, [42, -5, 77]);
        assert!(template.bytes(&[], |_| None).is_err());
        assert!(Template::new(&arguments, |_| Ok(None)).is_err());
    }
}
