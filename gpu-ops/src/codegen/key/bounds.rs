//! The ends of a probing row's band in the codes of a sorted index.

use super::codes::{as_integer, ordered};
use crate::codegen::ir::key::KeyPlan;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::error::Result;
use crate::graph::Band;

/// A band in codes of the values that are there, both ends among them.
pub(in crate::codegen) struct BandCodes {
    /// C++ bools that are all true where there is a band; some value may lie in it then.
    pub(in crate::codegen) possible: Vec<String>,
    /// C++ text of the lowest code.
    pub(in crate::codegen) low: String,
    /// C++ text of the highest.
    pub(in crate::codegen) high: String,
}

/// Which end of a band.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Lower,
    Upper,
}

/// Bring a band to the codes of the value `built` of an index.
pub(in crate::codegen) fn band_codes(
    emitter: &mut Emitter<'_>,
    band: &Band,
    built: &KeyPlan,
) -> Result<BandCodes> {
    let mut codes = BandCodes {
        possible: vec![],
        low: format!("({})0", built.code_type()),
        high: last_code(built),
    };
    let ends = [(End::Lower, &band.lower), (End::Upper, &band.upper)];
    for (end, bound) in ends {
        let Some(bound) = bound else { continue };
        let value = emitter.emit(&bound.value)?;
        if value.is_null() || built.domain == 0 {
            codes.possible = vec!["false".to_string()];
            return Ok(codes);
        }
        codes.possible.extend(value.valid.clone());
        let (possible, code) = code(emitter, value, built, (end, bound.inclusive))?;
        codes.possible.push(possible);
        match end {
            End::Lower => codes.low = code,
            End::Upper => codes.high = code,
        }
    }
    Ok(codes)
}

/// Code of the largest value.
fn last_code(built: &KeyPlan) -> String {
    let last = built.domain.saturating_sub(1);
    match built.is_wide() {
        true => format!(
            "((u128){}ull << 64 | {}ull)",
            (last >> 64) as u64,
            last as u64
        ),
        false => format!("{}ull", last as u64),
    }
}

/// Whether any value of the index may lie on the right side of an end, and the code of the last one that does.
fn code(
    emitter: &mut Emitter<'_>,
    value: Value,
    built: &KeyPlan,
    (end, inclusive): (End, bool),
) -> Result<(String, String)> {
    let value = as_integer(emitter, value);
    let value = ordered(emitter, value, true);
    let numbers = [&value.meaning, &built.meaning];
    if !value.c_type.is_integer() || !numbers.iter().all(|m| matches!(m, Meaning::Number)) {
        return unsupported("bands of values that are no numbers, dates or times");
    }
    let max = built.min.wrapping_add_unsigned(built.domain - 1);
    let wide = CType::for_range(value.range.union(Range {
        min: built.min,
        max,
    }));
    let text = emitter.bind(wide, emitter.widen(&value, wide));
    let name = wide.name();
    let (least, most) = (
        format!("({name}){}", emitter.integer(built.min)),
        format!("({name}){}", emitter.integer(max)),
    );
    let own = built.code_of(&text, 0);
    let equal = if inclusive { "=" } else { "" };
    Ok(match end {
        End::Lower => {
            let next = if inclusive {
                own
            } else {
                format!("({own} + 1u)")
            };
            (
                emitter.bind_bool(format!("{text} <{equal} {most}")),
                format!(
                    "({text} <{equal} {least} ? ({})0 : {next})",
                    built.code_type()
                ),
            )
        }
        End::Upper => {
            let last = if inclusive {
                own
            } else {
                format!("({own} - 1u)")
            };
            (
                emitter.bind_bool(format!("{text} >{equal} {least}")),
                format!("({text} >{equal} {most} ? {} : {last})", last_code(built)),
            )
        }
    })
}
