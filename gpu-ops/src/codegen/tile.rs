//! The tile kernel: scan, filter and aggregate in one pass, every input row at most one output.
//!
//! A block takes tiles of [`TILE_ROWS`] rows in a grid-stride loop; a thread owns eight consecutive rows,
//! so a column of width `w` is read as one vector of `8 w` bytes a thread and validity as one byte.
//! Columns are read when the first condition that needs them is reached, and only by threads that
//! still have a live row (Crystal's selection flags).

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::datatypes::DataType;

use super::aggregate::{AccumulatorPlan, StateKind};
use super::arguments::Arguments;
use super::lookup::LookupTable;
use super::scalar::{Emitter, KernelState, unsupported};
use super::value::{CType, Meaning, Value};
use crate::column::{Column, Encoding};
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::pipeline::{Aggregate, GroupPlacement, GroupProfile, Pipeline, Sink, Stage};

/// Threads a block of a tile kernel.
pub const BLOCK_THREADS: u32 = 256;
/// Rows one thread handles at a time.
const THREAD_ROWS: u64 = 8;
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
    /// Bits of a code.
    pub bits: u32,
    value: Value,
}

/// A pipeline over concrete columns, ready for a placement to be chosen.
#[derive(Debug)]
pub struct TilePlan {
    filters: Vec<FilterStep>,
    body: Vec<String>,
    body_columns: Vec<usize>,
    state: KernelState,
    columns: Vec<Arc<Column>>,
    rows: u64,
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
struct FilterStep {
    columns: Vec<usize>,
    lines: Vec<String>,
    passes: String,
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
        let Sink::Aggregate(aggregate) = &pipeline.sink;
        let mut filters: Vec<FilterStep> = Vec::new();
        for stage in &pipeline.stages {
            let Stage::Filter(conjuncts) = stage;
            for group in group_conjuncts(conjuncts) {
                filters.push(filter_step(&group, columns, &mut state)?);
            }
        }

        let tiles = rows.div_ceil(TILE_ROWS).max(1);
        let thread_rows = tiles.div_ceil(least_grid.clamp(1, tiles)) * THREAD_ROWS;
        let mut aggregates = AccumulatorPlan::default();
        let mut emitter = Emitter::new(columns, &mut state);
        let mut keys = Vec::new();
        for key in &aggregate.keys {
            keys.push(key_plan(&mut emitter, key)?);
        }
        if !keys.is_empty() {
            // Tells the groups that exist from empty slots of dense placements.
            aggregates.count("alive", thread_rows);
        }
        for call in &aggregate.calls {
            aggregates.call(&mut emitter, call, rows, thread_rows)?;
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
    columns: &[Arc<Column>],
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
        key.shift = used;
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

/// Builds the text of one kernel.
struct Writer<'a> {
    plan: &'a TilePlan,
    arguments: Arguments,
    text: String,
    loaded: Vec<usize>,
}

macro_rules! line {
    ($writer:expr, $($arg:tt)*) => {{ let _ = writeln!($writer.text, $($arg)*); }};
}

impl Writer<'_> {
    /// Returns the bytes of shared memory.
    fn kernel(&mut self, placement: GroupPlacement, slots: u64) -> Result<usize> {
        let plan = self.plan;
        let words = plan.aggregates.words;
        let warps = BLOCK_THREADS / 32;
        let in_registers = plan.keys.is_empty() || placement == GroupPlacement::Registers;
        self.arguments.named_integer("rows", plan.rows as i64);
        self.arguments.pointer("state", "u64*");
        if let GroupPlacement::GlobalHash { capacity } = placement
            && !plan.keys.is_empty()
        {
            self.arguments.pointer("keys", "u64*");
            if plan.key_words > 1 {
                self.arguments.pointer("states", "u32*");
            }
            self.arguments.named_integer("mask", capacity as i64 - 1);
        }
        let shared_words = match placement {
            _ if in_registers => slots * words as u64 * u64::from(warps),
            GroupPlacement::Shared => slots * words as u64,
            _ => 0,
        };
        if shared_words > 0 {
            line!(self, "struct Shared {{ u64 words[{shared_words}]; }};\n");
        }
        line!(self, "WL_KERNEL(pipeline, Args, args) {{");
        if shared_words > 0 {
            line!(self, "  WL_SHARED(Shared, shared);");
        }
        line!(self, "  u64* const header = args.state;");
        line!(self, "  u64* const states = args.state + {HEADER_WORDS};");
        line!(self, "  u32 fault = 0;");
        if in_registers {
            for (i, a) in plan.aggregates.accumulators.iter().enumerate() {
                line!(self, "  {} s{i}[{slots}] = {{}};", a.partial_type());
            }
        } else if placement == GroupPlacement::Shared {
            line!(
                self,
                "  for (u32 i = threadIdx.x; i < {shared_words}; i += {BLOCK_THREADS}) shared.words[i] = 0;"
            );
            line!(self, "  __syncthreads();");
        }
        line!(self, "  const u64 rows = (u64)args.rows;");
        line!(
            self,
            "  const u64 tiles = (rows + {}) / {TILE_ROWS};",
            TILE_ROWS - 1
        );
        line!(
            self,
            "  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"
        );
        line!(
            self,
            "    const u64 row = tile * {TILE_ROWS} + threadIdx.x * {THREAD_ROWS};"
        );
        line!(self, "    if (row >= rows) continue;");
        line!(
            self,
            "    u32 live = rows - row >= {THREAD_ROWS} ? 0xFFu : (1u << (u32)(rows - row)) - 1u;"
        );
        for step in &plan.filters {
            self.load(&step.columns);
            line!(self, "    {{ u32 pass = 0;");
            self.row_loop(&step.lines);
            line!(self, "        pass |= (u32)({}) << k;", step.passes);
            line!(
                self,
                "      }}\n      live &= pass;\n    }}\n    if (live == 0) continue;"
            );
        }
        self.load(&plan.body_columns);
        self.row_loop(&plan.body);
        self.update(placement, slots, in_registers);
        line!(self, "      }}\n  }}");
        self.finish(placement, slots, in_registers);
        if plan.state.faults {
            line!(
                self,
                "  if (fault != 0) atomicMax(header + WL_HEADER_FAULT, (u64)fault);"
            );
        }
        line!(self, "}}");
        usize::try_from(shared_words * 8)
            .map_err(|_| GpuError::Internal("shared memory size".into()))
    }

    /// Read columns that no earlier step has read.
    fn load(&mut self, columns: &[usize]) {
        for &i in columns {
            if self.loaded.contains(&i) {
                continue;
            }
            self.loaded.push(i);
            let column = &self.plan.columns[i];
            if column.validity.is_some() {
                let name = self.arguments.pointer(&format!("n{i}"), "const u8*");
                line!(self, "    const u32 n{i} = load_bits8({name}, row);");
            }
            let (c_type, pointer) = match &column.encoding {
                Encoding::Bits => {
                    let name = self.arguments.pointer(&format!("c{i}"), "const u8*");
                    line!(self, "    const u32 c{i} = load_bits8({name}, row);");
                    continue;
                }
                Encoding::Integer { width: 1, .. } | Encoding::Dictionary { width: 1, .. } => {
                    ("u8", "const u8*")
                }
                Encoding::Integer { width: 2, .. } | Encoding::Dictionary { width: 2, .. } => {
                    ("u16", "const u16*")
                }
                Encoding::Integer { width: 4, .. } | Encoding::Dictionary { .. } => {
                    ("u32", "const u32*")
                }
                Encoding::Integer { width: 16, .. } => ("i128", "const i128*"),
                Encoding::Integer { .. } => ("u64", "const u64*"),
                Encoding::Float { width: 4 } => ("f32", "const f32*"),
                Encoding::Float { .. } => ("f64", "const f64*"),
                // Only IS NULL reads such a column, and that needs no data.
                Encoding::Bytes { .. } => continue,
            };
            let name = self.arguments.pointer(&format!("c{i}"), pointer);
            line!(self, "    {c_type} c{i}[{THREAD_ROWS}];");
            line!(
                self,
                "    load_vec_stream<{c_type}, {THREAD_ROWS}>({name} + row, c{i});"
            );
        }
    }

    /// Open the loop over a thread's rows; the caller closes it.
    fn row_loop(&mut self, lines: &[String]) {
        line!(
            self,
            "    WL_UNROLL for (u32 k = 0; k < {THREAD_ROWS}; ++k) {{"
        );
        line!(self, "        const bool alive = ((live >> k) & 1) != 0;");
        for text in lines {
            line!(self, "        {text}");
        }
    }

    /// The code of a key as an unsigned 64-bit number.
    fn key_code(&mut self, key: &KeyPlan) -> String {
        let mut text = format!("(u64){}", key.value.text);
        if key.min != 0 {
            // Counted from the smallest value modulo 2^64, in which every domain fits.
            text = format!("({text} - {}ull)", key.min as u64);
        }
        match &key.value.valid {
            Some(valid) => format!("({valid} ? {text} + 1ull : 0ull)"),
            None => text,
        }
    }

    fn update(&mut self, placement: GroupPlacement, slots: u64, in_registers: bool) {
        let plan = self.plan;
        let accumulators = &plan.aggregates.accumulators;
        if plan.keys.is_empty() {
            for (i, a) in accumulators.iter().enumerate() {
                let text = a.add_to_partial(&format!("s{i}[0]"), &a.condition);
                line!(self, "        {text}");
            }
            return;
        }
        let dense = !matches!(placement, GroupPlacement::GlobalHash { .. });
        if dense {
            let mut parts = Vec::new();
            for key in &plan.keys {
                let code = self.key_code(key);
                parts.push(if key.stride == 1 {
                    code
                } else {
                    format!("{code} * {}ull", key.stride)
                });
            }
            line!(self, "        const u64 group = {};", parts.join(" + "));
        }
        if in_registers {
            line!(
                self,
                "        WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{"
            );
            line!(self, "          const bool mine = (u32)group == g;");
            for (i, a) in accumulators.iter().enumerate() {
                let text =
                    a.add_to_partial(&format!("s{i}[g]"), &format!("(mine && {})", a.condition));
                line!(self, "          {text}");
            }
            line!(self, "        }}");
            return;
        }
        line!(self, "        if (alive) {{");
        match placement {
            GroupPlacement::GlobalHash { .. } => {
                for word in 0..plan.key_words {
                    let mut parts = Vec::new();
                    for key in plan.keys.iter().filter(|k| k.word == word) {
                        let code = self.key_code(key);
                        parts.push(if key.shift == 0 {
                            code
                        } else {
                            format!("({code} << {})", key.shift)
                        });
                    }
                    let packed = if parts.is_empty() {
                        "0ull".to_string()
                    } else {
                        parts.join(" | ")
                    };
                    line!(self, "          const u64 key_word{word} = {packed};");
                }
                // Past this many probes the table counts as overflowing and is made larger (C6).
                let limit = 128;
                if plan.key_words == 1 {
                    line!(
                        self,
                        "          const u64 slot = find_or_insert(args.keys, (u64)args.mask, key_word0, {limit});"
                    );
                } else {
                    let list = (0..plan.key_words)
                        .map(|w| format!("key_word{w}"))
                        .collect::<Vec<_>>();
                    line!(
                        self,
                        "          const u64 packed[{}] = {{{}}};",
                        plan.key_words,
                        list.join(", ")
                    );
                    line!(
                        self,
                        "          const u64 slot = find_or_insert_wide<{}>(args.states, args.keys, (u64)args.mask, packed, {limit});",
                        plan.key_words
                    );
                }
                line!(
                    self,
                    "          if (slot == WL_NO_SLOT) {{ store_relaxed(header + WL_HEADER_OVERFLOW, (u64)1); continue; }}"
                );
                line!(
                    self,
                    "          u64* const at = states + slot * {};",
                    plan.aggregates.words
                );
            }
            GroupPlacement::Shared => {
                line!(
                    self,
                    "          u64* const at = shared.words + group * {};",
                    plan.aggregates.words
                );
            }
            _ => line!(
                self,
                "          u64* const at = states + group * {};",
                plan.aggregates.words
            ),
        }
        for a in accumulators {
            let add = a.add_to_state("at", &a.value);
            if a.condition == "alive" {
                line!(self, "          {add}");
            } else {
                line!(self, "          if ({}) {{ {add} }}", a.condition);
            }
        }
        line!(self, "        }}");
    }

    /// Bring what a block holds to the global state.
    fn finish(&mut self, placement: GroupPlacement, slots: u64, in_registers: bool) {
        let plan = self.plan;
        let words = plan.aggregates.words;
        let warps = BLOCK_THREADS / 32;
        if in_registers {
            // Each warp leaves its sums in shared memory; one thread a group adds up the warps.
            line!(self, "  WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{");
            line!(
                self,
                "    u64* const mine = shared.words + ((u64)warp_id() * {slots} + g) * {words};"
            );
            for (i, a) in plan.aggregates.accumulators.iter().enumerate() {
                let w = a.word;
                match a.kind {
                    StateKind::Count | StateKind::Sum64 => {
                        line!(
                            self,
                            "    {{ const u64 t = warp_sum((u64)(i64)s{i}[g]); if (lane_id() == 0) mine[{w}] = t; }}"
                        );
                    }
                    StateKind::Sum128 => {
                        line!(self, "    {{ const u128 t = warp_sum((u128)(i128)s{i}[g]);");
                        line!(
                            self,
                            "      if (lane_id() == 0) {{ mine[{w}] = (u64)t; mine[{}] = (u64)(t >> 64); }} }}",
                            w + 1
                        );
                    }
                    StateKind::SumFloat => {
                        line!(
                            self,
                            "    {{ const f64 t = warp_sum(s{i}[g]); if (lane_id() == 0) mine[{w}] = (u64)f64_bits(t); }}"
                        );
                    }
                    StateKind::Min | StateKind::Max => {
                        line!(
                            self,
                            "    {{ const u64 t = warp_max(s{i}[g]); if (lane_id() == 0) mine[{w}] = t; }}"
                        );
                    }
                }
            }
            line!(self, "  }}\n  __syncthreads();");
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {BLOCK_THREADS}) {{"
            );
            line!(self, "    u64* const at = states + (u64)g * {words};");
            for a in &plan.aggregates.accumulators {
                let from = format!(
                    "shared.words[((u64)w * {slots} + g) * {words} + {}]",
                    a.word
                );
                match a.kind {
                    StateKind::Count | StateKind::Sum64 => {
                        line!(
                            self,
                            "    {{ u64 t = 0; for (u32 w = 0; w < {warps}; ++w) t += {from};"
                        );
                    }
                    StateKind::Sum128 => {
                        let high = format!(
                            "shared.words[((u64)w * {slots} + g) * {words} + {}]",
                            a.word + 1
                        );
                        line!(
                            self,
                            "    {{ u128 t = 0; for (u32 w = 0; w < {warps}; ++w) t += ((u128){high} << 64) | {from};"
                        );
                    }
                    StateKind::SumFloat => {
                        line!(
                            self,
                            "    {{ f64 t = 0; for (u32 w = 0; w < {warps}; ++w) t += *(const f64*)&{from};"
                        );
                    }
                    StateKind::Min | StateKind::Max => {
                        line!(
                            self,
                            "    {{ u64 t = 0; for (u32 w = 0; w < {warps}; ++w) t = max_u64(t, {from});"
                        );
                    }
                }
                line!(self, "      if (t != 0) {} }}", a.add_to_state("at", "t"));
            }
            line!(self, "  }}");
        } else if placement == GroupPlacement::Shared {
            line!(self, "  __syncthreads();");
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {BLOCK_THREADS}) {{"
            );
            line!(
                self,
                "    const u64* const from = shared.words + (u64)g * {words};"
            );
            line!(self, "    u64* const at = states + (u64)g * {words};");
            for a in &plan.aggregates.accumulators {
                let w = a.word;
                let value = match a.kind {
                    StateKind::Sum128 => format!("(((u128)from[{}] << 64) | from[{w}])", w + 1),
                    StateKind::SumFloat => format!("*(const f64*)(from + {w})"),
                    _ => format!("from[{w}]"),
                };
                line!(
                    self,
                    "    if ({value} != 0) {}",
                    a.add_to_state("at", &value)
                );
            }
            line!(self, "  }}");
        }
    }
}
