//! The argument struct of a generated kernel: its C++ text and its bytes, built together.
//!
//! Every field takes 8 bytes (128-bit constants take two fields), so both languages agree on
//! the layout without padding rules.

use std::fmt::Write as _;

use super::slot::Slot;

/// Value of one 8-byte field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// An address or a number of rows or slots, which the executor fills in.
    Slot(Slot),
    /// An integer constant.
    Integer(i64),
    /// A float constant.
    Float(f64),
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    c_type: String,
    value: Argument,
}

/// Fields in order of declaration.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    fields: Vec<Field>,
}

impl Arguments {
    /// Declare a pointer, once a slot; returns the C++ expression that reads it.
    pub fn pointer(&mut self, slot: Slot, c_type: impl Into<String>) -> String {
        self.once(slot, c_type)
    }

    /// Declare a size that is known at launch, once a slot; returns the C++ expression, a u64.
    pub fn size(&mut self, slot: Slot) -> String {
        self.once(slot, "u64")
    }

    fn once(&mut self, slot: Slot, c_type: impl Into<String>) -> String {
        let value = Argument::Slot(slot);
        if self.fields.iter().any(|f| f.value == value) {
            return format!("args.{slot}");
        }
        self.push(slot.to_string(), c_type, value)
    }

    /// Declare a 64-bit constant with a name of its own.
    pub fn named_integer(&mut self, name: &str, value: i64) -> String {
        self.push(name.to_string(), "i64", Argument::Integer(value))
    }

    /// Declare an integer literal; returns a C++ expression of type i64 or i128.
    pub fn literal(&mut self, value: i128, wide: bool) -> String {
        let n = self.fields.len();
        if wide {
            // Truncation on purpose: the two halves of the two's complement.
            let low = self.push(format!("lit{n}_lo"), "i64", Argument::Integer(value as i64));
            let high = self.push(
                format!("lit{n}_hi"),
                "i64",
                Argument::Integer((value >> 64) as i64),
            );
            format!("(i128)(((u128)(u64){high} << 64) | (u128)(u64){low})")
        } else {
            self.push(format!("lit{n}"), "i64", Argument::Integer(value as i64))
        }
    }

    /// Declare a float literal.
    pub fn float(&mut self, value: f64) -> String {
        let n = self.fields.len();
        self.push(format!("lit{n}"), "f64", Argument::Float(value))
    }

    fn push(&mut self, name: String, c_type: impl Into<String>, value: Argument) -> String {
        let text = format!("args.{name}");
        self.fields.push(Field {
            name,
            c_type: c_type.into(),
            value,
        });
        text
    }

    /// Value of every field, in order.
    pub fn fields(&self) -> impl Iterator<Item = Argument> {
        self.fields.iter().map(|f| f.value)
    }

    /// The C++ declaration.
    pub fn declaration(&self, struct_name: &str) -> String {
        let mut text = format!("struct {struct_name} {{\n");
        for field in &self.fields {
            let _ = writeln!(text, "  {} {};", field.c_type, field.name);
        }
        let _ = writeln!(
            text,
            "}};\nstatic_assert(sizeof({struct_name}) == {}, \"host and device disagree on the arguments\");",
            self.fields.len() * 8
        );
        text
    }

    /// The bytes for one launch; `value` gives the address or the number of each slot.
    ///
    /// # Errors
    /// A slot for which there is no value.
    #[cfg(test)]
    pub(in crate::codegen) fn bytes(
        &self,
        value: impl Fn(Slot) -> Option<u64>,
    ) -> Result<Vec<u8>, Slot> {
        let mut bytes = Vec::with_capacity(self.fields.len() * 8);
        for field in self.fields() {
            let word = match field {
                Argument::Slot(slot) => value(slot).ok_or(slot)?,
                Argument::Integer(value) => value as u64,
                Argument::Float(value) => value.to_bits(),
            };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}
