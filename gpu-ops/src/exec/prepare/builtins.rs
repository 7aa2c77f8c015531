//! Which hand-written kernels a program will ask for, and how each is compiled.

use warpline_cuda::kernels::{self, PhjPart};

use crate::codegen::{ColumnLayout, JoinKeys, RangeEntries, WindowFill, WindowProgram};
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::exec::prepare::join_bits::{JoinBits, digits};
use crate::exec::prepare::part_sizes::{
    ColumnShape, PartSize, arranged_parts, column_parts, side_parts,
};
use crate::exec::prepare::shapes::{CollectedShape, IndexShape, JoinShape, Shape};
use crate::graph::{Graph, ProbeKind, ResultId};
use crate::pipeline::Regroup;
use crate::primitives::{
    Digits, PartitionJoin, RunningCombine, RunningValue, UnstablePart, another_table_serves,
    compile_extremes, compile_gather, compile_group_numbers, compile_merge_join, compile_partition,
    compile_partition_join, compile_partition_unstable, compile_run_lengths, compile_running,
    finds_first, is_unstable, pass_columns, string_sort_bits,
};
use crate::runtime::Runtime;

/// Sorts of at most this many rows (by estimate) need no more than the kernel for few rows.
const FEW_ROWS: u64 = 1024;

/// Hand-written kernels that a program will ask for: compiled beside the generated ones, or else each would
/// hold up the first run.
#[derive(Debug, Default)]
pub(in crate::exec) struct Builtins {
    wanted: Vec<Builtin>,
}

/// Two sides of a join.
#[derive(Clone, Copy)]
struct JoinOf<'a> {
    keys: JoinKeys,
    /// The columns of either, the build side's first.
    sides: [&'a [ColumnShape]; 2],
    unique: bool,
    /// Build rows, about.
    rows: u64,
}

impl<'a> JoinOf<'a> {
    /// An index of about `rows` rows and what probes it.
    fn new(build: &'a IndexShape, probe: &'a [ColumnShape], join: &JoinShape, rows: u64) -> Self {
        let keys = join.matches.keys;
        let asks_for_probe = matches!(join.matches.kind, ProbeKind::Semi | ProbeKind::Anti);
        Self {
            keys,
            sides: [&build.columns, probe],
            // Of partitions with equal keys any row will do when only probe rows are asked for.
            unique: build.unique || (!keys.join.sorts() && asks_for_probe),
            rows,
        }
    }
}

/// What sides are split by that are joined in parts, about: how many parts there will be is known once their rows are, and
/// the kernels are the same for any number.
const SPLIT: JoinBits = JoinBits {
    known: 2,
    bits: 0,
    dense: false,
};

/// Hand-written kernels that are one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Builtin {
    /// Sums of 32-bit and of 64-bit words are one module.
    Sums,
    /// Copies of many runs of bytes.
    Runs,
    /// Indexes with keys of this many words.
    Index(usize),
    SmallSort,
    /// Keys of 4 bytes in the order of the rows so far.
    SortKeys,
    /// A pass over keys of `width` bytes and columns of these widths.
    Pass {
        width: u32,
        digits: Digits,
        columns: Vec<u32>,
    },
    /// Counts of the digits of keys of `width` bytes.
    Digits {
        width: u32,
        digits: Digits,
    },
    /// A part of a partition in any order by so many bits.
    Unordered {
        width: u32,
        digits: Digits,
        columns: Vec<u32>,
        bits: u32,
        part: UnstablePart,
    },
    /// Pairs of partitioned sides.
    PartitionJoin {
        join: PartitionJoin,
        /// One of the module.
        kernel: &'static str,
    },
    /// Pairs of sorted sides.
    MergeJoin {
        width: u32,
        unique: bool,
    },
    Strings,
    /// Rounds of a sort of strings.
    StringOrder,
    /// Columns of this many bytes in the order of row numbers.
    Gather(u32),
    /// Numbers of slots that groups take.
    GroupCount,
    /// Numbers of groups of keys of this many bytes.
    GroupNumbers(u32),
    /// Where runs of equal keys of this many bytes begin.
    RunStarts(u32),
    /// Numbers of rows in windows.
    Window,
    /// The first rows of partitions of windows.
    WindowFirst,
    /// Running values of windows.
    Running(RunningValue, RunningCombine),
    /// The least and greatest in frames of windows.
    Extremes(RunningValue, RunningCombine),
    /// Squared differences from the mean, of frames of windows.
    Squares,
}

impl Builtins {
    /// Those that most queries need.
    pub(super) fn common() -> Self {
        let mut common = Self::default();
        common.of_sort_pass(4);
        for builtin in [
            Builtin::SortKeys,
            Builtin::Sums,
            Builtin::Index(1),
            Builtin::Index(2),
            Builtin::SmallSort,
            Builtin::Strings,
        ] {
            common.add(builtin);
        }
        common
    }

    /// Those of a sort of many strings by the device.
    pub(super) fn of_string_sort() -> Self {
        let mut builtins = Self::default();
        builtins.add(Builtin::StringOrder);
        builtins.of_sort(&string_sort_bits(u32::BITS), u64::MAX, u64::MAX);
        builtins.add(Builtin::Sums);
        builtins.of_strings();
        builtins
    }

    /// The same without joins that another table of theirs serves at first.
    #[must_use]
    pub(in crate::exec) fn without_served(mut self, runtime: &Runtime) -> Self {
        self.wanted.retain(|builtin| match builtin {
            Builtin::PartitionJoin { join, .. } => !another_table_serves(runtime, *join),
            _ => true,
        });
        self
    }

    /// Those that were found.
    pub(super) fn into_wanted(self) -> Vec<Builtin> {
        self.wanted
    }

    fn add(&mut self, builtin: Builtin) {
        if !self.wanted.contains(&builtin) {
            self.wanted.push(builtin);
        }
    }

    /// What finishes results of these shapes.
    pub(in crate::exec) fn of_shapes(
        &mut self,
        shapes: &[Shape],
        graph: &Graph,
        device: &DeviceInfo,
    ) {
        for (result, shape) in shapes.iter().enumerate() {
            match shape {
                Shape::Matches(_, None) => self.add(Builtin::Sums),
                Shape::Matches(columns, Some(join)) => {
                    let Some(Shape::Index(index)) = shapes.get(join.index) else {
                        continue;
                    };
                    let rows = graph.results.get(join.index).map_or(0, |r| r.estimate);
                    let one = JoinOf::new(index, columns, join, rows);
                    self.of_join(&one, JoinBits::of_all(0), device);
                    if graph.parts.allowed() && !one.keys.join.sorts() {
                        self.of_pairs(&one, device);
                    }
                }
                Shape::Index(index) if index.is_sorted() => {
                    let rows = graph.results.get(result).map_or(0, |r| r.estimate);
                    self.of_sort(&index.order_bits, rows, u64::MAX);
                }
                Shape::Index(index) if index.appends() && index.key_words > 0 => {
                    self.add(Builtin::Index(index.key_words));
                    if index.has_ranges() {
                        self.add(Builtin::Sums);
                    }
                    if index.entries == RangeEntries::Gathered {
                        for part in column_parts(&index.columns, 0) {
                            self.add(Builtin::Gather(part.unit as u32));
                        }
                    }
                }
                Shape::Collected(rows) => self.of_collected(rows),
                Shape::Groups { slots, .. } if shape.counts_groups(*slots) => {
                    self.add(Builtin::GroupCount);
                }
                _ => {}
            }
        }
    }

    /// What joins the index `index`, of which `rows` are counted by now, with the rows that probe it.
    pub(in crate::exec) fn of_counted_join(
        &mut self,
        shapes: &[Shape],
        index: ResultId,
        rows: u64,
        bits: JoinBits,
    ) {
        let Some(Shape::Index(build)) = shapes.get(index) else {
            return;
        };
        for shape in shapes {
            let Shape::Matches(columns, Some(join)) = shape else {
                continue;
            };
            if join.index == index {
                self.of_bits(&JoinOf::new(build, columns, join, rows), bits);
            }
        }
    }

    /// What brings rows together by key.
    fn of_collected(&mut self, rows: &CollectedShape) {
        let width = rows.key_bytes;
        let parts = rows.arranged_parts(0);
        let moved = parts.iter().filter(|part| part.part.moves());
        let columns: Vec<u32> = moved.map(|part| part.unit as u32).collect();
        match rows.how {
            Regroup::Table | Regroup::Runs => {}
            Regroup::Number => self.add(Builtin::GroupNumbers(width)),
            Regroup::PartitionRows | Regroup::PartitionKeys => {
                self.of_unordered(width, Digits::Hash, columns, rows.bits);
            }
            Regroup::SortRows | Regroup::SortKeys => self.of_stable(width, Digits::Key, columns),
            Regroup::SortNumbers => {
                self.add(Builtin::GroupNumbers(width));
                self.of_stable(4, Digits::Key, columns);
            }
        }
        if rows.how.sorts_keys() {
            self.add(Builtin::RunStarts(width));
        }
        self.add(Builtin::Sums);
    }

    /// What adds the columns of windows to sorted rows.
    pub(in crate::exec) fn of_window(&mut self, window: &WindowProgram) {
        self.add(Builtin::Sums);
        self.add(Builtin::Window);
        if window.rows.is_some() {
            self.add(Builtin::WindowFirst);
        }
        for fill in &window.fills {
            match fill {
                WindowFill::Running(value, combine) => self.add(Builtin::Running(*value, *combine)),
                WindowFill::Extreme(value, combine, _) => {
                    self.add(Builtin::Extremes(*value, *combine));
                }
                WindowFill::Squares(_) => self.add(Builtin::Squares),
                WindowFill::Number(_) | WindowFill::Bound => {}
            }
        }
    }

    /// What joins two sides, or a part of each whose rows have `known` hash bits in common.
    fn of_join(&mut self, of: &JoinOf<'_>, known: JoinBits, device: &DeviceInfo) {
        let bits = JoinBits::of_rows(of.rows, of.keys, known.known, device);
        self.of_bits(of, bits);
    }

    /// What joins sides that are partitioned by these bits.
    fn of_bits(&mut self, of: &JoinOf<'_>, bits: JoinBits) {
        let keys = of.keys;
        let digits = of.sides.map(|columns| digits(columns, keys, bits));
        for (columns, digits) in of.sides.into_iter().zip(digits) {
            let parts = arranged_parts(columns, keys, bits.bits, 0, false);
            self.of_parts(&parts, keys, bits, digits);
        }
        if keys.join.sorts() {
            let unique = of.unique;
            let width = keys.width;
            self.add(Builtin::MergeJoin { width, unique });
        } else {
            self.add(Builtin::Sums);
            let join = PartitionJoin {
                key_width: keys.width,
                unique: of.unique,
                numbers: !keys.join.transforms(),
                hashed: digits.map(|digits| digits == Digits::KeptHash),
                build_rows: of.rows,
                bits: bits.bits,
                key_bits: bits.dense.then_some(keys.bits),
            };
            for (_, kernel) in PhjPart::APART {
                self.add(Builtin::PartitionJoin { join, kernel });
            }
        }
    }

    /// What splits two sides and joins them pair of parts by pair.
    fn of_pairs(&mut self, of: &JoinOf<'_>, device: &DeviceInfo) {
        self.add(Builtin::Runs);
        for columns in of.sides {
            let parts = side_parts(columns, of.keys, SPLIT.known, 0);
            let bits = JoinBits {
                bits: SPLIT.known,
                ..SPLIT
            };
            // Parts are partitioned further, by more bits of their keys' hashes.
            self.of_parts(&parts, of.keys, bits, Digits::Hash);
        }
        let pair = JoinOf {
            rows: of.rows >> SPLIT.known,
            ..*of
        };
        self.of_join(&pair, SPLIT, device);
    }

    /// What partitions or sorts rows of these parts to be joined.
    fn of_parts(&mut self, parts: &[PartSize], keys: JoinKeys, bits: JoinBits, digits: Digits) {
        let width = keys.width;
        let moved = parts.iter().filter(|part| part.part.moves());
        let columns = moved.map(|part| part.unit as u32).collect();
        if keys.join.sorts() {
            self.of_stable(width, digits, columns);
        } else {
            self.of_unordered(width, digits, columns, bits.bits);
        }
    }

    /// What partitions or sorts keys and columns of these widths, rows with equal digits in their old order.
    fn of_stable(&mut self, width: u32, digits: Digits, columns: Vec<u32>) {
        // Each kernel by itself: they take half a second each.
        for columns in pass_columns(&columns) {
            self.add(Builtin::Pass {
                width,
                digits,
                columns,
            });
        }
        self.add(Builtin::Digits { width, digits });
    }

    /// What sorts the numbers of rows by keys of `width` bytes.
    fn of_sort_pass(&mut self, width: u32) {
        self.of_stable(width, Digits::Key, vec![4]);
    }

    /// What partitions keys and columns of these widths by `bits` bits in any order.
    fn of_unordered(&mut self, width: u32, digits: Digits, columns: Vec<u32>, bits: u32) {
        if !is_unstable(columns.len(), bits) {
            return self.of_stable(width, digits, columns);
        }
        for part in [
            UnstablePart::Pass(0),
            UnstablePart::Pass(1),
            UnstablePart::Segments,
        ] {
            self.add(Builtin::Unordered {
                width,
                digits,
                columns: columns.clone(),
                bits,
                part,
            });
        }
        self.add(Builtin::Digits { width, digits });
    }

    /// What fetches strings by row.
    pub(in crate::exec) fn of_strings(&mut self) {
        self.add(Builtin::Strings);
    }

    /// What gathers the values of lists, which have this layout.
    pub(in crate::exec) fn of_list(&mut self, values: &ColumnLayout) {
        self.add(Builtin::Gather(values.width.into()));
        if values.nullable {
            self.add(Builtin::Gather(1));
        }
    }

    /// What orders about `rows` rows by keys of these bits, or finds the `first` of them.
    pub(in crate::exec) fn of_sort(&mut self, word_bits: &[u32], rows: u64, first: u64) {
        if word_bits.iter().any(|bits| *bits > 0) {
            self.add(Builtin::SmallSort);
            if rows > FEW_ROWS && !finds_first(first) {
                self.add(Builtin::SortKeys);
                for bits in word_bits.iter().filter(|bits| **bits > 0) {
                    let width = if *bits <= 32 { 4 } else { 8 };
                    self.of_sort_pass(width);
                }
                // Words of a longer key are read in the order that those behind them lead to.
                let used = word_bits.iter().filter(|bits| **bits > 0);
                if used.clone().count() > 1 && used.clone().any(|bits| *bits > 32) {
                    self.add(Builtin::Gather(8));
                }
            }
        }
    }
}

impl Builtin {
    /// Does it take longer to compile than most of what is generated? Joins of partitions, and passes that move rows to
    /// theirs, take NVRTC half a second to a second each.
    pub(super) fn is_long(&self) -> bool {
        use UnstablePart::Pass;
        match self {
            Self::PartitionJoin { .. } | Self::MergeJoin { .. } | Self::Pass { .. } => true,
            Self::Unordered { part, .. } => matches!(part, Pass(_)),
            _ => false,
        }
    }

    /// Any kernel of the module: a module is compiled as a whole.
    pub(super) fn compile(&self, runtime: &Runtime) -> Result<()> {
        match *self {
            Self::Sums => runtime.builtin("exclusive_sum_u64", 0, kernels::scan),
            Self::Runs => runtime.builtin("copy_runs", 0, kernels::copy_runs),
            Self::Index(words) => {
                runtime.builtin("insert_set", words, || kernels::hash_index(words))
            }
            Self::SmallSort => runtime.builtin("sort_small", 0, kernels::sort_small),
            Self::SortKeys => runtime.builtin("sort_keys", 0, kernels::sort_keys),
            Self::Pass {
                width,
                digits,
                ref columns,
            } => return compile_partition(runtime, width, digits, columns, 0, true),
            Self::Digits { width, digits } => {
                return compile_partition(runtime, width, digits, &[], 0, false);
            }
            Self::Unordered {
                width,
                digits,
                ref columns,
                bits,
                part,
            } => {
                return compile_partition_unstable(runtime, width, digits, columns, bits, part);
            }
            Self::PartitionJoin { join, kernel } => {
                return compile_partition_join(runtime, join, kernel);
            }
            Self::MergeJoin { width, unique } => return compile_merge_join(runtime, width, unique),
            Self::Strings => runtime.builtin("string_lengths", 0, kernels::strings_gather),
            Self::StringOrder => runtime.builtin("string_heads", 0, kernels::string_order),
            Self::Gather(width) => return compile_gather(runtime, width),
            Self::GroupCount => runtime.builtin("count_groups", 0, kernels::group_count),
            Self::GroupNumbers(width) => return compile_group_numbers(runtime, width),
            Self::RunStarts(width) => return compile_run_lengths(runtime, width),
            Self::Window => runtime.builtin("window_starts", 0, kernels::window),
            Self::WindowFirst => runtime.builtin("first_marks", 0, kernels::window_first),
            Self::Running(value, combine) => return compile_running(runtime, (value, combine)),
            Self::Extremes(value, combine) => return compile_extremes(runtime, (value, combine)),
            Self::Squares => runtime.builtin("moment_nodes", 0, kernels::window_moments),
        }
        .map(|_| ())
    }
}
