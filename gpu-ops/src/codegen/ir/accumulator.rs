//! One accumulator: what its cell in a group's state holds, and the C++ text of how a row changes it.
//!
//! A group's state is a few cells of 4 or 8 bytes, zero at the start whatever the aggregate: sums and
//! counts begin at 0, and minima and maxima keep order-preserving unsigned codes of which 0 is the
//! smallest. Where the range of the values allows, codes count from the range's end in 4 bytes, and are
//! never 0: shared memory then holds twice the groups, its 32-bit atomics are native, and a cell that is
//! not 0 says that there was a value.

use super::value::CType;

/// The condition of accumulators that every row of a group changes.
pub(in crate::codegen) const EVERY_ROW: &str = "alive";

/// What an accumulator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// 1 once there was a row.
    Seen,
    /// Number of rows.
    Count,
    /// Sum modulo 2^64.
    Sum64,
    /// Sum modulo 2^128; two words: the low and the high half, or, with [`Accumulator::split`] bits `s`, a sum of the
    /// lowest s bits of all values and one of what is above them.
    Sum128,
    /// Sum of floats.
    SumFloat,
    /// Largest code.
    Max,
    /// Largest complement of a code.
    Min,
    /// Code of any value: all rows of a group have the same one, so it is stored and not compared.
    Any,
    /// Largest code of 128 bits; its two words, low first, and a lock.
    Max128,
    /// Largest complement of a code of 128 bits; the same.
    Min128,
    /// Bits that any value has.
    Or,
    /// Bits that an odd number of values have.
    Xor,
}

/// One accumulator of every group.
#[derive(Debug, Clone)]
pub struct Accumulator {
    /// What it keeps.
    pub kind: StateKind,
    /// Its cell has 4 bytes; else 8, or the words that the kind says.
    pub narrow: bool,
    /// Extremes in 4 bytes: the value of code 1. Codes count up from it, those of minima down.
    pub base: i128,
    /// Of a sum of 128 bits whose two words are sums of their own, so that no carry passes between them: the bits of a
    /// value that the low one adds up. 0: they are halves of one number.
    pub split: u32,
    /// Of such a sum: its low word is not 0 once there was a row, because it adds up numbers from 1 to `2^split`.
    pub tells: bool,
    /// Of a sum of 64 bits: it is not 0 once there was a row, because it adds up numbers of one sign and none is 0.
    pub one_sign: bool,
    /// First byte in the group's state.
    pub offset: usize,
    /// C++ bool: does this row count?
    pub(in crate::codegen) condition: String,
    /// C++ value of this row: an integer for sums, an unsigned code for minima and maxima.
    pub(in crate::codegen) value: String,
    /// Type in which one thread adds up its rows without overflow.
    pub(in crate::codegen) partial: CType,
}

impl Accumulator {
    /// Atomic additions that a row costs, as prices count them.
    pub(in crate::codegen) fn adds(&self) -> u32 {
        match self.kind {
            StateKind::Count
            | StateKind::Sum64
            | StateKind::SumFloat
            | StateKind::Or
            | StateKind::Xor => 1,
            StateKind::Sum128 => 2,
            // Two words and a lock.
            StateKind::Max128 | StateKind::Min128 => 3,
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 0,
        }
    }

    /// 64-bit words that a row adds to: in shared memory each is a loop of compare-and-swap.
    pub(in crate::codegen) fn words(&self) -> u32 {
        match self.kind {
            StateKind::Count
            | StateKind::Sum64
            | StateKind::SumFloat
            | StateKind::Or
            | StateKind::Xor => u32::from(!self.narrow),
            StateKind::Sum128 | StateKind::Max128 | StateKind::Min128 => 2,
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 0,
        }
    }

    /// Cells that a row reads and seldom writes.
    pub(in crate::codegen) fn tests(&self) -> u32 {
        match self.kind {
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 1,
            _ => 0,
        }
    }

    /// Bytes of its cell.
    pub(in crate::codegen) fn bytes(&self) -> usize {
        match self.kind {
            _ if self.narrow => 4,
            StateKind::Sum128 => 16,
            StateKind::Max128 | StateKind::Min128 => 24,
            _ => 8,
        }
    }

    /// The cell is not 0 once there was a value.
    pub(in crate::codegen) fn is_code(&self) -> bool {
        self.narrow && matches!(self.kind, StateKind::Min | StateKind::Max | StateKind::Any)
    }

    /// C++ type of the (first word of the) cell.
    pub(in crate::codegen) fn cell_type(&self) -> &'static str {
        match self.kind {
            _ if self.narrow => "u32",
            StateKind::SumFloat => "f64",
            _ => "u64",
        }
    }

    /// C++ text of a pointer to the cell in the state at `at` (`u8*`).
    pub(in crate::codegen) fn cell(&self, at: &str) -> String {
        format!("({}*)({at} + {})", self.cell_type(), self.offset)
    }

    /// 32-bit registers of one thread's partial result.
    pub(in crate::codegen) fn registers(&self) -> usize {
        match self.partial_type() {
            "u32" => 1,
            _ => self.partial.registers(),
        }
    }

    /// C++ type of one thread's partial result.
    pub(in crate::codegen) fn partial_type(&self) -> &'static str {
        match self.kind {
            StateKind::Seen => "u32",
            StateKind::Min | StateKind::Max | StateKind::Any if self.narrow => "u32",
            StateKind::Min | StateKind::Max | StateKind::Any => "u64",
            StateKind::Min128 | StateKind::Max128 => "u128",
            StateKind::Or | StateKind::Xor => self.cell_type(),
            _ => self.partial.name(),
        }
    }

    /// Statement: add this row to the thread's partial `target` when `hit` holds.
    pub(in crate::codegen) fn add_to_partial(&self, target: &str, hit: &str) -> String {
        let t = self.partial_type();
        let value = &self.value;
        match self.kind {
            StateKind::Seen => format!("{target} |= {hit} ? 1u : 0u;"),
            StateKind::Min | StateKind::Max | StateKind::Any => {
                format!("{target} = max_{t}({target}, {hit} ? {value} : ({t})0);")
            }
            StateKind::Min128 | StateKind::Max128 => {
                format!("{target} = max_u128({target}, {hit} ? {value} : (u128)0);")
            }
            StateKind::Or => format!("{target} |= {hit} ? ({t}){value} : ({t})0;"),
            StateKind::Xor => format!("{target} ^= {hit} ? ({t}){value} : ({t})0;"),
            // Sums modulo 2^64 wrap: add as unsigned, which is defined.
            StateKind::Sum64 if self.partial == CType::I64 => {
                format!("{target} = (i64)((u64){target} + ({hit} ? (u64){value} : 0ull));")
            }
            StateKind::Sum128 if self.partial == CType::I128 => {
                format!("{target} = wrap_add({target}, {hit} ? (i128){value} : (i128)0);")
            }
            _ => format!("{target} += {hit} ? ({t}){value} : ({t})0;"),
        }
    }

    /// Statement: add `value` (of the partial type) to the cell that `cell` (C++) points to.
    pub(in crate::codegen) fn add_to_state(&self, cell: &str, value: &str) -> String {
        let t = self.cell_type();
        match self.kind {
            StateKind::Count | StateKind::Sum64 => format!("atomicAdd({cell}, ({t})({value}));"),
            StateKind::Sum128 if self.split > 0 => {
                format!(
                    "atomic_add_split<{}, {}>({cell}, (i128)({value}));",
                    self.split, self.tells
                )
            }
            StateKind::Sum128 => format!("atomic_add_u128({cell}, (u128)(i128)({value}));"),
            StateKind::SumFloat => format!("atomicAdd({cell}, {value});"),
            StateKind::Min | StateKind::Max => format!("raise({cell}, ({t}){value});"),
            StateKind::Any | StateKind::Seen => format!("store_once({cell}, ({t}){value});"),
            StateKind::Min128 | StateKind::Max128 => format!("atomic_max_u128({cell}, {value});"),
            StateKind::Or => format!("atomicOr({cell}, ({t})({value}));"),
            StateKind::Xor => format!("atomicXor({cell}, ({t})({value}));"),
        }
    }

    /// [`Self::add_to_state`] for a cell in the block's shared memory.
    pub(in crate::codegen) fn add_to_block(&self, cell: &str, value: &str) -> String {
        let t = self.cell_type();
        match self.kind {
            StateKind::Min | StateKind::Max => format!("raise_block({cell}, ({t}){value});"),
            StateKind::Any | StateKind::Seen => format!("store_once_block({cell}, ({t}){value});"),
            StateKind::Count | StateKind::Sum64 if !self.narrow => {
                format!("block_add_u64({cell}, (u64)({value}));")
            }
            StateKind::Sum128 if self.split > 0 => format!(
                "block_add_split<{}, {}>({cell}, (i128)({value}));",
                self.split, self.tells
            ),
            StateKind::Sum128 => format!("block_add_u128({cell}, (u128)(i128)({value}));"),
            _ => self.add_to_state(cell, value),
        }
    }

    /// C++ bool: [`Self::add_to_state`], and could this have been the first addition? `None` where it does not tell.
    pub(in crate::codegen) fn add_first(&self, cell: &str, value: &str) -> Option<String> {
        Some(match self.kind {
            StateKind::Sum64 => format!("atomicAdd({cell}, (u64)({value})) == 0"),
            StateKind::SumFloat => format!("atomicAdd({cell}, {value}) == 0"),
            StateKind::Sum128 if self.split == 0 => {
                format!("atomic_add_u128({cell}, (u128)(i128)({value})) == 0")
            }
            _ => return None,
        })
    }

    /// Statement: [`Self::add_to_state`] with a sum of rows, of which there was one. Where that changes nothing, it is left out.
    pub(in crate::codegen) fn add_rows_to_state(&self, cell: &str, value: &str) -> String {
        let add = self.add_to_state(cell, value);
        match self.tells {
            true => add,
            false => format!("if ({value} != 0) {{ {add} }}"),
        }
    }

    /// Statement: copy a cell to one that nobody else writes.
    pub(in crate::codegen) fn copy(&self, cell: &str, from: &str) -> String {
        match self.kind {
            StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => {
                format!("({cell})[0] = ({from})[0]; ({cell})[1] = ({from})[1];")
            }
            _ => format!("*({cell}) = *({from});"),
        }
    }

    /// Statement: clear a cell.
    pub(in crate::codegen) fn clear(&self, cell: &str) -> String {
        let words = self.bytes() / if self.narrow { 4 } else { 8 };
        let clear = |word| format!("({cell})[{word}] = 0;");
        (0..words).map(clear).collect::<Vec<_>>().join(" ")
    }

    /// C++ text of the cell's content as the number that [`Self::add_to_state`] takes, from a pointer to the cell.
    pub(in crate::codegen) fn content(&self, cell: &str) -> String {
        match self.kind {
            StateKind::Sum128 if self.split > 0 => {
                format!("split_sum<{}>({cell})", self.split)
            }
            StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => halves(cell),
            _ => format!("*({cell})"),
        }
    }

    /// C++ text of the value (or the order, for floats) that an extreme stands for, from a pointer to its cell.
    pub(in crate::codegen) fn extreme(&self, cell: &str) -> String {
        let content = self.content(cell);
        match self.kind {
            StateKind::Min if self.narrow => {
                // One more than the base, because codes count from 1.
                format!(
                    "(i64)({}ull - (u64){content})",
                    (self.base as u64).wrapping_add(1)
                )
            }
            _ if self.is_code() => {
                format!(
                    "(i64)({}ull + (u64){content})",
                    (self.base as u64).wrapping_sub(1)
                )
            }
            StateKind::Min => format!("value_of_min({content})"),
            StateKind::Min128 => format!("value_of_min128({content})"),
            StateKind::Max128 => format!("value_of_max128({content})"),
            _ => format!("value_of_max({content})"),
        }
    }
}

/// C++ text of the 128 bits in two words, the low one first.
pub(in crate::codegen) fn halves(cell: &str) -> String {
    format!("(((u128)({cell})[1] << 64) | (u128)({cell})[0])")
}
