//! Functions of floats (`math.cuh`).

use super::scalar::Emitter;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::Result;
use crate::expr::{Expr, MathFunction};

impl Emitter<'_> {
    pub(in crate::codegen) fn math(
        &mut self,
        function: MathFunction,
        arguments: &[Expr],
    ) -> Result<Value> {
        let mut texts = Vec::with_capacity(arguments.len());
        let mut valid = None;
        for argument in arguments {
            let value = self.emit(argument)?;
            let null = value.is_null();
            if value.c_type != CType::F64 && !null {
                return unsupported(format!("{} of {}", function.name(), argument.data_type));
            }
            // A replacement that is not asked for may be NULL.
            let counts = match (function, texts.first()) {
                (MathFunction::Nanvl, Some(number)) => (value.valid)
                    .map(|valid| self.bind_bool(format!("{number} == {number} || {valid}"))),
                _ => value.valid,
            };
            valid = self.both_valid(valid.as_deref(), counts.as_deref());
            texts.push(match value.c_type {
                CType::F64 => value.text,
                _ => "0.0".to_string(),
            });
        }
        if texts.len() != function.arity() {
            return unsupported(format!("{} of {} operands", function.name(), texts.len()));
        }
        self.state.math = true;
        let operands = texts.join(", ");
        if function.may_fault() {
            let test = format!("math_{}_fails({operands})", function.name());
            self.fault(&test, valid.as_deref(), "WL_FAULT_DOMAIN");
        }
        let text = self.bind(CType::F64, format!("math_{}({operands})", function.name()));
        Ok(Value {
            text,
            c_type: CType::F64,
            range: Range::point(0),
            valid,
            meaning: Meaning::Number,
        })
    }
}
