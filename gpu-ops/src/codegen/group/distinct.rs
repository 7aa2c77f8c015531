//! Arguments of DISTINCT aggregates: each value of a group takes part once, which a hash set of (group, value) decides.

use arrow::datatypes::DataType;
use warpline_cuda::kernels::GROUP_PROBES;

use crate::codegen::ir::key::KeyPlan;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord, FULL_SET};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::{CType, Value};
use crate::codegen::key::codes::{code, key_plan, pack_keys, packed_words};
use crate::codegen::value::scalar::Emitter;
use crate::error::Result;
use crate::graph::ResultId;

/// The sets of one aggregation.
#[derive(Debug)]
pub(in crate::codegen) struct DistinctSets {
    into: ResultId,
    group: Vec<KeyPlan>,
    /// Words of a key of each set.
    pub(in crate::codegen) words: Vec<usize>,
    /// Argument and condition of each set, and the C++ bool that is true for a row that is the first with its value.
    made: Vec<(String, String, String)>,
}

impl DistinctSets {
    /// The sets of the aggregation into result `into` by `group`.
    pub(in crate::codegen) fn new(into: ResultId, group: &[KeyPlan]) -> Self {
        Self {
            into,
            group: group.to_vec(),
            words: Vec::new(),
            made: Vec::new(),
        }
    }

    /// C++ bool: `condition` holds for the row, and no other row of its group with this value has been taken. Values
    /// that are not NULL only.
    ///
    /// One insertion a row: a read of the slot, or an atomic where the value is new.
    pub(in crate::codegen) fn first(
        &mut self,
        emitter: &mut Emitter<'_>,
        value: &Value,
        data_type: &DataType,
        condition: &str,
    ) -> Result<String> {
        let made = |(v, c, _): &&(String, String, String)| *v == value.text && c == condition;
        if let Some((_, _, first)) = self.made.iter().find(made) {
            return Ok(first.clone());
        }
        let mut keys = self.group.clone();
        let bits = Value {
            valid: None,
            ..bits_of(emitter, value)
        };
        keys.push(key_plan(emitter, bits, data_type, false)?);
        let words = pack_keys(&mut keys);
        let codes: Vec<String> = keys.iter().map(code).collect();
        let packed = packed_words(&keys, &codes, words).join(", ");
        let set = self.words.len();
        let arguments = &mut emitter.state.arguments;
        let slots = arguments.size(Slot::DistinctSlots(self.into, set));
        let table = arguments.pointer(Slot::Result(self.into, Part::DistinctKeys(set)), "u64*");
        let states = if words > 1 {
            arguments.pointer(Slot::Result(self.into, Part::DistinctStates(set)), "u32*")
        } else {
            "(u32*)0".to_string()
        };
        let control = arguments.pointer(Slot::Control, "u64*");
        let overflow = self.into * CONTROL_WORDS + ControlWord::Overflow as usize;
        let first = format!("first{set}");
        emitter.lines.extend([
            format!("bool {first} = false;"),
            format!("if ({condition}) {{"),
            format!("  const u64 member[{words}] = {{{packed}}}; bool full = false;"),
            format!(
                "  {first} = insert_new<{words}>({states}, {table}, {slots} - 1, member, {GROUP_PROBES}, full);"
            ),
            format!("  if (full) store_relaxed({control} + {overflow}, (u64){FULL_SET});"),
            "}".to_string(),
        ]);
        self.words.push(words);
        self.made
            .push((value.text.clone(), condition.to_string(), first.clone()));
        Ok(first)
    }
}

/// Floats are the same when their bits are, as in DataFusion's sets.
fn bits_of(emitter: &mut Emitter<'_>, value: &Value) -> Value {
    let (function, c_type, range) = match value.c_type {
        CType::F64 => (
            "f64_bits",
            CType::I64,
            Range::new(i64::MIN.into(), i64::MAX.into()),
        ),
        CType::F32 => (
            "f32_bits",
            CType::I32,
            Range::new(i32::MIN.into(), i32::MAX.into()),
        ),
        _ => return value.clone(),
    };
    let text = emitter.bind(c_type, format!("{function}({})", value.text));
    Value {
        text,
        c_type,
        range,
        ..value.clone()
    }
}
