//! The tile kernel: scan, filter and aggregate in one pass, every input row at most one output.
//!
//! A block takes tiles of [`TILE_ROWS`] rows in a grid-stride loop; a thread owns eight consecutive rows,
//! so a column of width `w` is read as one vector of `8 w` bytes a thread and validity as one byte.
//! Columns are read when the first condition that needs them is reached, and only by threads that
//! still have a live row (Crystal's selection flags).

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::aggregate::AccumulatorPlan;
use super::arguments::Arguments;
use super::distinct::DistinctSets;
use super::lookup::LookupTable;
use super::render::Writer;
use super::scalar::{Emitter, KernelState, unsupported};
use super::scope::ScopeColumn;
use super::value::{CType, Meaning, Value};
use crate::column::Column;
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::pipeline::{Aggregate, GroupPlacement, GroupProfile, Pipeline, Sink, Stage};

/// Threads a block of a tile kernel.
pub const BLOCK_THREADS: u32 = 256;
/// Rows one thread handles at a time.
pub(super) const THREAD_ROWS: u64 = 8;
/// Rows of one tile.
pub const TILE_ROWS: u64 = BLOCK_THREADS as u64 * THREAD_ROWS;
/// Words in front of the state array: fault, overflow, number of groups, unused.
pub const HEADER_WORDS: usize = 4;

/// How one grouping key is packed and unpacked.
#[derive(Debug, Clone)]
pub struct KeyPlan {
    /// Logical type of the key.
    pub data_type: DataType,
    /// What the numbers stand for.
    pub meaning: Meaning,
    /// Smallest value; codes count from it.
    pub min: i128,
    /// True when code 0 stands for NULL and values count from 1.
    pub nullable: bool,
    /// Number of codes.
    pub domain: u128,
    /// Dense placements: the group number is the sum of `code * stride`.
    pub stride: u64,
    /// Hash placements: word of the packed key.
    pub word: usize,
    /// Hash placements: lowest bit in the word.
    pub shift: u32,
    /// Bits of a code. Of more than 64 the lowest 64 are a word of their own.
    pub bits: u32,
    /// Hash placements, codes of more than 64 bits: word and lowest bit of what is above these.
    pub(super) high: (usize, u32),
    pub(super) value: Value,
}

/// A pipeline over concrete columns, ready for a placement to be chosen.
#[derive(Debug)]
pub struct TilePlan {
    pub(super) filters: Vec<FilterStep>,
    pub(super) body: Vec<String>,
    pub(super) body_columns: Vec<usize>,
    pub(super) state: KernelState,
    pub(super) columns: Vec<Arc<Column>>,
    pub(super) rows: u64,
    /// Packed keys; empty for an ungrouped aggregate.
    pub keys: Vec<KeyPlan>,
    /// Words of a packed key.
    pub key_words: usize,
    /// Accumulators and calls.
    pub aggregates: AccumulatorPlan,
    /// What the placement is chosen from.
    pub profile: GroupProfile,
}

#[derive(Debug)]
pub(super) struct FilterStep {
    pub(super) columns: Vec<usize>,
    pub(super) lines: Vec<String>,
    pub(super) passes: String,
}

/// A generated kernel and all that a launch and the host need to know about it.
#[derive(Debug, Clone)]
pub struct TileKernel {
    /// CUDA C++.
    pub source: String,
    /// Entry point.
    pub entry: &'static str,
    /// The argument struct: pointers `c<i>`, `n<i>` (columns, validity), `state`, `keys`, `states`,
    /// and the names of the lookup tables.
    pub arguments: Arguments,
    /// Uploaded with the launch.
    pub lookups: Vec<LookupTable>,
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: usize,
    /// Scope columns that the kernel reads.
    pub columns: Vec<usize>,
    /// Groups with a state at the start: 1 ungrouped, the domain when dense, slots when hashed.
    pub slots: u64,
    /// Where the states live.
    pub placement: GroupPlacement,
}

impl TilePlan {
    /// Emit the pipeline's expressions over resident columns.
    ///
    /// `least_grid` is a number of blocks that every launch will have at least (or one a tile, if
    /// there are fewer tiles); it bounds how many rows one thread adds up.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when an encoding or a range is outside what tile kernels run.
    pub fn new(
        pipeline: &Pipeline,
        columns: &[Arc<Column>],
        rows: u64,
        least_grid: u64,
    ) -> Result<Self> {
        let mut state = KernelState::default();
        let scope: Vec<ScopeColumn> = columns.iter().map(ScopeColumn::resident).collect();
        let Sink::Aggregate(aggregate) = &pipeline.sink;
        let mut filters: Vec<FilterStep> = Vec::new();
        for stage in &pipeline.stages {
            let Stage::Filter(conjuncts) = stage;
            for group in group_conjuncts(conjuncts) {
                filters.push(filter_step(&group, &scope, &mut state)?);
            }
        }

        let tiles = rows.div_ceil(TILE_ROWS).max(1);
        let thread_rows = tiles.div_ceil(least_grid.clamp(1, tiles)) * THREAD_ROWS;
        let mut aggregates = AccumulatorPlan::default();
        let mut emitter = Emitter::new(&scope, &mut state);
        let mut keys = Vec::new();
        for key in &aggregate.keys {
            keys.push(key_plan(&mut emitter, key)?);
        }
        if !keys.is_empty() {
            aggregates.grouped = true;
            // Tells the groups that exist from empty slots of dense placements.
            aggregates.count("alive", thread_rows);
        }
        let mut sets = DistinctSets::new(0, &keys);
        for call in &aggregate.calls {
            if call.distinct {
                return unsupported("DISTINCT aggregates");
            }
            aggregates.call(&mut emitter, call, rows, thread_rows, &mut sets)?;
        }
        let body = std::mem::take(&mut emitter.lines);
        let dense_domain = dense_strides(&mut keys);
        let key_words = pack_keys(&mut keys);
        let profile = profile(&keys, dense_domain, &aggregates, rows);
        Ok(Self {
            filters,
            body,
            body_columns: columns_of(aggregate),
            state,
            columns: columns.to_vec(),
            rows,
            keys,
            key_words,
            aggregates,
            profile,
        })
    }

    /// Write the kernel for one placement.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when the placement does not suit the keys.
    pub fn render(&self, placement: GroupPlacement) -> Result<TileKernel> {
        let mut writer = Writer {
            plan: self,
            arguments: self.state.arguments.clone(),
            text: String::new(),
            loaded: Vec::new(),
            private_bytes: 0,
        };
        let slots = match placement {
            _ if self.keys.is_empty() => 1,
            GroupPlacement::GlobalHash { capacity } => capacity,
            _ => match self.profile.dense_domain {
                Some(domain) => domain,
                None => {
                    return unsupported("a dense group placement for keys without a small domain");
                }
            },
        };
        let shared_bytes = writer.kernel(placement, slots)?;
        let source = format!(
            "#define WL_BLOCK_THREADS {BLOCK_THREADS}\n#include \"simt.cuh\"\n#include \"primitives.cuh\"\n\
             #include \"pipeline.cuh\"\n\n{}\n{}",
            writer.arguments.declaration("Args"),
            writer.text
        );
        Ok(TileKernel {
            source,
            entry: "pipeline",
            arguments: writer.arguments,
            lookups: self.state.lookups.clone(),
            shared_bytes,
            columns: writer.loaded,
            slots,
            placement,
        })
    }
}

/// Adjacent conjuncts over the same columns are tested together.
fn group_conjuncts(conjuncts: &[Expr]) -> Vec<Vec<&Expr>> {
    let mut groups: Vec<(Vec<usize>, Vec<&Expr>)> = Vec::new();
    for conjunct in conjuncts {
        let mut needs = Vec::new();
        conjunct.for_each_column(&mut |c| needs.push(c));
        match groups.last_mut() {
            Some((have, list)) if needs.iter().all(|c| have.contains(c)) => list.push(conjunct),
            _ => groups.push((needs, vec![conjunct])),
        }
    }
    groups.into_iter().map(|(_, list)| list).collect()
}

fn filter_step(
    conjuncts: &[&Expr],
    columns: &[ScopeColumn],
    state: &mut KernelState,
) -> Result<FilterStep> {
    let mut emitter = Emitter::new(columns, state);
    let mut needs = Vec::new();
    let mut tests = Vec::new();
    for conjunct in conjuncts {
        conjunct.for_each_column(&mut |c| needs.push(c));
        let value = emitter.emit(conjunct)?;
        if value.c_type != CType::Bool && value.valid.as_deref() != Some("false") {
            return Err(GpuError::Internal("a filter that is not boolean".into()));
        }
        tests.push(if value.valid.as_deref() == Some("false") {
            "false".to_string()
        } else {
            emitter.is_true(&value)
        });
    }
    needs.sort_unstable();
    needs.dedup();
    Ok(FilterStep {
        columns: needs,
        lines: emitter.lines,
        passes: tests.join(" && "),
    })
}

fn columns_of(aggregate: &Aggregate) -> Vec<usize> {
    let mut needs = Vec::new();
    let mut visit = |c| needs.push(c);
    aggregate
        .keys
        .iter()
        .for_each(|e| e.for_each_column(&mut visit));
    for call in &aggregate.calls {
        call.argument
            .iter()
            .chain(&call.filter)
            .for_each(|e| e.for_each_column(&mut visit));
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}

fn key_plan(emitter: &mut Emitter<'_>, key: &Expr) -> Result<KeyPlan> {
    let mut value = emitter.emit(key)?;
    if value.c_type == CType::Bool {
        let text = emitter.bind(CType::I32, format!("(i32){}", value.text));
        value = Value {
            text,
            c_type: CType::I32,
            ..value
        };
    }
    if !value.c_type.is_integer() {
        return unsupported(format!("grouping by {}", key.data_type));
    }
    let nullable = value.valid.is_some();
    let domain = value.range.max.wrapping_sub(value.range.min) as u128;
    let domain = domain.saturating_add(1 + u128::from(nullable));
    if domain == (1 << 64) + 1 && nullable {
        return unsupported("grouping by a key with NULLs whose values span all of 64 bits");
    }
    if domain > 1 << 64 {
        return unsupported("grouping by values of more than 64 bits");
    }
    let bits = 128 - (domain - 1).leading_zeros();
    Ok(KeyPlan {
        data_type: key.data_type.clone(),
        meaning: value.meaning.clone(),
        min: value.range.min,
        nullable,
        domain,
        stride: 0,
        word: 0,
        shift: 0,
        bits,
        high: (0, 0),
        value,
    })
}

/// Give every key its stride and return the number of group numbers, if it is moderate.
fn dense_strides(keys: &mut [KeyPlan]) -> Option<u64> {
    const LARGEST: u128 = 1 << 32;
    let mut product: u128 = 1;
    for key in keys.iter_mut().rev() {
        key.stride = u64::try_from(product).ok()?;
        product = product.checked_mul(key.domain).filter(|p| *p <= LARGEST)?;
    }
    u64::try_from(product).ok()
}

/// Pack the keys' codes into as few words as possible; returns the number of words. A key of one
/// word uses at most 63 bits, so that it never equals the mark of an empty slot.
fn pack_keys(keys: &mut [KeyPlan]) -> usize {
    let total: u32 = keys.iter().map(|k| k.bits).sum();
    let capacity = if total <= 63 { 63 } else { 64 };
    let (mut word, mut used) = (0, 0);
    for key in keys.iter_mut() {
        if used + key.bits > capacity {
            word += 1;
            used = 0;
        }
        key.word = word;
        // A key of one value has no bits and could come after a full word.
        key.shift = if key.bits == 0 { 0 } else { used };
        used += key.bits;
    }
    // A lone key of 64 bits could equal the mark: a second word makes the table a wide one.
    if word == 0 && used > 63 { 2 } else { word + 1 }
}

fn profile(
    keys: &[KeyPlan],
    dense_domain: Option<u64>,
    aggregates: &AccumulatorPlan,
    rows: u64,
) -> GroupProfile {
    let domain = keys
        .iter()
        .try_fold(1u128, |p, k| p.checked_mul(k.domain))
        .unwrap_or(u128::MAX);
    GroupProfile {
        rows,
        dense_domain,
        max_groups: u64::try_from(domain.min(u128::from(rows))).unwrap_or(rows),
        state_bytes: aggregates.words * 8,
        state_registers: aggregates.accumulators.iter().map(|a| a.registers()).sum(),
        registers_possible: true,
        shared_possible: true,
    }
}
