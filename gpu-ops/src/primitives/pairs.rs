//! Joins of partitioned and of sorted sides: lists of pairs of row numbers.

use std::cell::Cell;

use warpline_cuda::kernels::{
    self, PAIR_ENTRIES, PAIR_MATCHED, PAIR_UNMATCHED, PhjArgs, PhjShape, SMJ_LONG, SMJ_PIECE_BYTES,
    SMJ_TILE, SmjArgs, smj_shared_bytes,
};

use super::pair_tables::{TABLES, array_slots, best_table, phj_kernel, phj_stage, table_at_hand};
use super::{
    BLOCK, Keys, Partitions, RowCount, check_numbered, exclusive_sum, fill, grid, launch, scratch,
};
use crate::device::{DeviceInfo, DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::{BuiltinStage, Runtime};

/// Bits that one pass of a partitioning takes.
const BITS_OF_A_PASS: u32 = 8;
/// Most slots of an array of a partition, and the bits of their numbers.
const MOST_ARRAY_BITS: u32 = 15;
/// Most bits of a partitioning: offsets of more partitions are a burden of their own.
const MOST_PARTITION_BITS: u32 = 24;
/// Probe rows that a task has at least: fewer would not pay for the table.
const LEAST_PROBE_CHUNK: u64 = 4096;
/// Probe rows that a task has at most.
const MOST_PROBE_CHUNK: u64 = 1 << 16;
/// Tasks that each multiprocessor should have at least, where one partition has all rows.
const TASKS_OF_A_MULTIPROCESSOR: u64 = 16;
/// Blocks a multiprocessor that wait for the tasks skew brings forth.
const EXTRA_BLOCKS: u64 = 6;

/// One side of a join.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// Partitioned (for [`join_partitions`]) or ascending (for [`merge_join`]).
    pub keys: Keys,
    /// The keys are their hashes ([`Digits::KeptHash`](super::Digits::KeptHash)).
    pub hashed: bool,
    /// How many.
    pub rows: RowCount,
    /// `u32*`: the number of the row behind each place (the columns lie as before). `None`: the place
    /// is the number (the columns lie as the keys do).
    pub numbers: Option<DevicePtr>,
    /// Places that rows may have, at most: more than rows where partitions lie apart.
    pub places: u64,
    /// Where partitions lie; unused by [`merge_join`].
    pub partitions: Partitions,
}

/// Which pairs are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PairKind {
    /// Every pair of rows with equal keys.
    Inner,
    /// The same, and each probe row without match once, with `u32::MAX` for a build row.
    Left,
    /// Each probe row with a match once, with `u32::MAX`.
    Semi,
    /// Each probe row without match once, with `u32::MAX`.
    Anti,
}

impl PairKind {
    /// As the kernels have it.
    const fn flags(self) -> u32 {
        match self {
            Self::Inner => PAIR_MATCHED | PAIR_ENTRIES,
            Self::Left => PAIR_MATCHED | PAIR_ENTRIES | PAIR_UNMATCHED,
            Self::Semi => PAIR_MATCHED,
            Self::Anti => PAIR_UNMATCHED,
        }
    }

    /// Does a probe row come at most once, without build row?
    const fn without_entries(self) -> bool {
        matches!(self, Self::Semi | Self::Anti)
    }
}

/// Where pairs go.
#[derive(Debug, Clone, Copy)]
pub struct PairList {
    /// `u32*`: numbers of build rows.
    pub entries: DevicePtr,
    /// `u32*`: numbers of probe rows.
    pub rows: DevicePtr,
    /// Room in both, in pairs.
    pub capacity: u64,
    /// `u64*`: how many pairs there are, whether or not there was room for them.
    pub count: DevicePtr,
}

/// A join of two sides: what is wanted of it, and where that goes.
#[derive(Debug, Clone, Copy)]
pub struct PairJoin<'a> {
    /// The side of which `unique` is said.
    pub build: &'a Side,
    /// The other one.
    pub probe: &'a Side,
    /// Which pairs.
    pub kind: PairKind,
    /// An assumption: no two build rows have equal keys. Where that is wrong the list of pairs is too.
    pub unique: bool,
    /// `u64*`, may be null: becomes 1 where `unique` is wrong; it is never cleared.
    pub duplicate: DevicePtr,
    /// Where the pairs go.
    pub pairs: &'a PairList,
    /// `u32*`, a bit a build row number: gets a bit for each build row with a match; bits are only ever set.
    pub marks: Option<DevicePtr>,
    /// Of [`join_partitions`]: a table in shared memory made for partitions of another size may serve while kernels with the
    /// best one are not compiled: the pairs are the same, and take longer to find. Becomes true where one does and nobody has asked
    /// for the best one yet, which whoever set this should. `None`: only the best.
    pub another_table: Option<&'a Cell<bool>>,
}

/// Bits to partition by, so that the build rows of a partition fit a table in shared memory.
///
/// A pass over the data takes up to 8 bits, so the fewest passes with which tables of 8192 rows do, and within
/// these as many bits as make partitions of 2048 rows (D1): smaller tables let more blocks run side by side.
pub fn partition_bits(build_rows: u64, key_width: u32, device: &DeviceInfo) -> u32 {
    let fits = |rows: u32| {
        let largest = PhjShape {
            key_bytes: key_width,
            unique: false,
            numbers: true,
            rows,
            array: 0,
            hashed: [false; 2],
        };
        rows == TABLES[0] || largest.shared_bytes() <= device.shared_memory_per_block
    };
    let most = TABLES.into_iter().rev().find(|rows| fits(*rows));
    let bits_for = |rows: u32| {
        let partitions = build_rows.div_ceil(u64::from(rows)).max(1);
        partitions.next_power_of_two().trailing_zeros()
    };
    let least = bits_for(most.unwrap_or(TABLES[0]));
    let passes = least.div_ceil(BITS_OF_A_PASS).max(1);
    bits_for(TABLES[0])
        .min(passes * BITS_OF_A_PASS)
        .clamp(least, MOST_PARTITION_BITS.max(least))
        .min(MOST_PARTITION_BITS)
}

/// Pairs of rows with equal keys of sides that are partitioned alike by `bits` bits, partition by partition.
///
/// The pairs of a partition lie near each other, in no particular order. Build partitions larger than the table in shared
/// memory are joined in pieces, as are large probe partitions by many blocks, so any skew is fine. A build row whose key is
/// all ones has no key and matches nothing.
///
/// Equal build keys are noticed also where no probe row has them. (A partition far larger than the others, without most of its
/// rows being without key, is taken for a duplicate.) Costs: see `phj.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows a side, [`GpuError::Internal`] for keys of another width than 4, 8 or 16 or
/// sides of different widths, [`GpuError::OutOfDeviceMemory`] for 16 bytes a partition and a bit a probe row of
/// scratch, [`GpuError::Device`] from the driver.
///
/// # Safety
/// The sides are as [`Side`] says with 2^bits partitions, the list as [`PairList`] says, all live;
/// `duplicate` is a word or null, `marks` has a bit for every build row number.
pub unsafe fn join_partitions(
    runtime: &Runtime,
    stream: &Stream,
    of: &PairJoin<'_>,
    bits: u32,
) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { join(runtime, stream, of, bits, 0) }
}

/// The same with arrays in the place of hash tables (E6), for keys of 4 or 8 bytes that are partitioned by their own lowest
/// `bits` bits: a build row's slot is the rest of its key.
///
/// Build keys have at most `key_bits` bits, `key_bits - bits` is at most 15; probe keys are any. A build row with
/// a greater key has no pairs.
///
/// # Errors
/// As [`join_partitions`], and [`GpuError::Internal`] for keys too wide.
///
/// # Safety
/// As [`join_partitions`].
pub unsafe fn join_dense_partitions(
    runtime: &Runtime,
    stream: &Stream,
    of: &PairJoin<'_>,
    bits: u32,
    key_bits: u32,
) -> Result<()> {
    let slot_bits = key_bits.saturating_sub(bits);
    let width = of.build.keys.width;
    if width > 8 || slot_bits > MOST_ARRAY_BITS {
        return Err(GpuError::Internal(format!(
            "arrays of 2^{slot_bits} slots for keys of {width} bytes (2^{MOST_ARRAY_BITS} and 8 at most)"
        )));
    }
    let slots = array_slots(key_bits, bits);
    // SAFETY: passed on to the caller.
    unsafe { join(runtime, stream, of, bits, slots) }
}

/// Compile what [`merge_join`] needs ahead of its use.
///
/// # Errors
/// [`GpuError::Compile`], [`GpuError::Device`].
pub fn compile_merge_join(runtime: &Runtime, key_width: u32, unique: bool) -> Result<()> {
    let source = || kernels::smj(key_width, unique);
    runtime
        .builtin("smj_split", smj_variant(key_width, unique), source)
        .map(drop)
}

/// The number of a merge join's module.
fn smj_variant(key_width: u32, unique: bool) -> usize {
    usize::from(unique) | (key_width as usize) << 1
}

/// Both, by hash tables without `array`.
///
/// # Safety
/// As [`join_partitions`].
unsafe fn join(
    runtime: &Runtime,
    stream: &Stream,
    of: &PairJoin<'_>,
    bits: u32,
    array: u32,
) -> Result<()> {
    let PairJoin {
        build,
        probe,
        kind,
        unique,
        duplicate,
        pairs,
        marks,
        another_table,
    } = *of;
    check(build, probe)?;
    if bits > MOST_PARTITION_BITS {
        return Err(GpuError::Internal(format!(
            "a join of 2^{bits} partitions (2^{MOST_PARTITION_BITS} at most)"
        )));
    }
    if (build.hashed || probe.hashed) && (array > 0 || build.keys.width > 8) {
        return Err(GpuError::Internal(format!(
            "hashes in the place of keys of {} bytes{}",
            build.keys.width,
            if array > 0 { " in an array" } else { "" }
        )));
    }
    let partitions = 1u64 << bits;
    let wanted = PhjShape {
        key_bytes: build.keys.width,
        // Of equal keys any one will do when only probe rows are asked for.
        unique: unique || kind.without_entries(),
        numbers: build.numbers.is_some(),
        rows: TABLES[0],
        array,
        hashed: [build.hashed, probe.hashed],
    };
    let duplicate = asked(unique, duplicate);
    // Partitions with several chunks are listed when rows without match or equal keys are asked for.
    let several = |shape: PhjShape| build.rows.most() > u64::from(shape.chunk());
    let best = best_table(runtime, wanted, build.rows.most() >> bits);
    let shape = match another_table {
        None => best,
        Some(another) => {
            let shape = table_at_hand(runtime, best);
            let asked_for = phj_stage(runtime, best, "phj_join") != BuiltinStage::Unknown;
            another.set(shape != best && !asked_for);
            shape
        }
    };
    let several = several(shape);
    let noted = several && kind != PairKind::Inner;
    let listed = several && (noted || !duplicate.is_null());
    // Zeroed: a ticket, a bit a probe row, the number of listed partitions; then the list.
    let matched_bytes = match noted {
        true => probe.places.div_ceil(32) * 4,
        false => 0,
    };
    let zeroed = 8 + matched_bytes + 4;
    let most_listed = match listed {
        true => partitions.min(build.rows.most() / u64::from(shape.chunk())),
        false => 0,
    };
    let control = scratch(
        runtime,
        stream,
        zeroed + most_listed * 4,
        1,
        "tasks of a join",
    )?;
    let extra = scratch(runtime, stream, partitions, 4, "tasks of join partitions")?;
    let first_extra = scratch(
        runtime,
        stream,
        partitions + 1,
        8,
        "tasks of join partitions",
    )?;
    let matched = control.ptr().offset(8);
    let stop = stream.stop_place();
    let args = PhjArgs {
        build_keys: build.keys.ptr,
        build_numbers: build.numbers.unwrap_or(DevicePtr::NULL),
        build_begins: build.partitions.begins,
        build_ends: build.partitions.ends,
        probe_keys: probe.keys.ptr,
        probe_numbers: probe.numbers.unwrap_or(DevicePtr::NULL),
        probe_begins: probe.partitions.begins,
        probe_ends: probe.partitions.ends,
        extra: extra.ptr(),
        first_extra: first_extra.ptr(),
        ticket: control.ptr(),
        oversize: asked(listed, matched.offset(matched_bytes)),
        matched: asked(noted, matched),
        duplicate,
        marks: marks.unwrap_or(DevicePtr::NULL),
        entries: pairs.entries,
        rows: pairs.rows,
        pairs: pairs.count,
        stop_word: stop.word,
        stop_number: stop.number,
        capacity: pairs.capacity,
        partitions,
        probe_chunk: probe_chunk(
            probe.rows.most(),
            partitions,
            runtime.device().info().multiprocessors,
        ),
        kind: kind.flags(),
        shift: bits,
        padding: 0,
    };
    let kernel = |name| phj_kernel(runtime, shape, name);
    let threads = u64::from(shape.threads());
    let over = |items: u64, shared_bytes: usize| LaunchConfig {
        grid: grid(runtime, items, threads),
        block: shape.threads(),
        shared_bytes,
    };
    let extra_blocks = u64::from(runtime.device().info().multiprocessors.max(1)) * EXTRA_BLOCKS;
    // SAFETY: the scratch is sized as the struct says, and the pool reuses it only behind these launches;
    // for the rest the caller vouches.
    unsafe {
        fill(runtime, stream, pairs.count, 0, 8)?;
        if nothing_to_do(build, probe, kind, args.duplicate) {
            return Ok(());
        }
        fill(runtime, stream, control.ptr(), 0, zeroed)?;
        launch(
            runtime,
            stream,
            &kernel("phj_tasks")?,
            over(partitions, 0),
            &args,
        )?;
        exclusive_sum(
            runtime,
            stream,
            extra.ptr(),
            first_extra.ptr(),
            RowCount::Known(partitions),
            true,
        )?;
        let join = LaunchConfig {
            grid: u32::try_from(partitions).unwrap_or(u32::MAX),
            block: shape.threads(),
            shared_bytes: shape.shared_bytes(),
        };
        launch(runtime, stream, &kernel("phj_join")?, join, &args)?;
        // What only skew asks for is not waited for while it is compiled: asking the device whether anything does takes microseconds.
        let unready = |name| {
            another_table.is_some() && phj_stage(runtime, shape, name) != BuiltinStage::Ready
        };
        let all_extra = partitions as usize * 8;
        if !unready("phj_extra") || first_extra.download_values::<u64>(stream, all_extra, 1)? != [0]
        {
            let extra = LaunchConfig {
                grid: u32::try_from(extra_blocks).unwrap_or(u32::MAX),
                ..join
            };
            launch(runtime, stream, &kernel("phj_extra")?, extra, &args)?;
        }
        if listed && unready("phj_rest") {
            let oversize = 8 + matched_bytes as usize;
            if control.download_values::<u32>(stream, oversize, 1)? == [0] {
                return Ok(());
            }
        }
        if listed && !duplicate.is_null() {
            let distinct = LaunchConfig {
                grid: grid(runtime, most_listed, 1),
                ..join
            };
            launch(runtime, stream, &kernel("phj_distinct")?, distinct, &args)?;
        }
        if noted {
            let rest = over(probe.places, kernels::PHJ_REST_SHARED_BYTES);
            launch(runtime, stream, &kernel("phj_rest")?, rest, &args)?;
        }
    }
    Ok(())
}

/// Pairs of rows with equal keys of sides sorted ascending by them.
///
/// The pairs of neighbouring probe rows lie near each other, in no particular order. Any skew is fine. Rows without key
/// are as for [`join_partitions`]. Costs: see `smj.cu`.
///
/// # Errors
/// As [`join_partitions`]; the scratch is 4 bytes for each 3840 rows and 24 for each 2048 pairs of the capacity.
///
/// # Safety
/// As [`join_partitions`], with sides that are sorted.
pub unsafe fn merge_join(runtime: &Runtime, stream: &Stream, of: &PairJoin<'_>) -> Result<()> {
    let PairJoin {
        build,
        probe,
        kind,
        unique,
        duplicate,
        pairs,
        marks,
        another_table: _,
    } = *of;
    check(build, probe)?;
    let width = build.keys.width;
    let tiles = (build.rows.most() + probe.rows.most()).div_ceil(SMJ_TILE);
    let most_pieces = pairs.capacity / SMJ_LONG * 2 + 2;
    let cuts = scratch(runtime, stream, tiles + 1, 4, "cuts of a merge join")?;
    let pieces = scratch(
        runtime,
        stream,
        8 + most_pieces * SMJ_PIECE_BYTES,
        1,
        "long runs of a merge join",
    )?;
    let args = SmjArgs {
        build_keys: build.keys.ptr,
        build_numbers: build.numbers.unwrap_or(DevicePtr::NULL),
        build_count: build.rows.count(),
        probe_keys: probe.keys.ptr,
        probe_numbers: probe.numbers.unwrap_or(DevicePtr::NULL),
        probe_count: probe.rows.count(),
        cuts: cuts.ptr(),
        pieces: pieces.ptr().offset(8),
        piece_count: pieces.ptr(),
        duplicate: asked(unique, duplicate),
        marks: marks.unwrap_or(DevicePtr::NULL),
        entries: pairs.entries,
        rows: pairs.rows,
        pairs: pairs.count,
        capacity: pairs.capacity,
        build_most: build.rows.most(),
        probe_most: probe.rows.most(),
        tiles,
        most_pieces,
        kind: kind.flags(),
        padding: 0,
    };
    let variant = smj_variant(width, unique);
    let kernel = |name| runtime.builtin(name, variant, || kernels::smj(width, unique));
    let over = |items: u64, per_block: u64| LaunchConfig {
        grid: grid(runtime, items, per_block),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: as in `join_partitions`.
    unsafe {
        fill(runtime, stream, pairs.count, 0, 8)?;
        if nothing_to_do(build, probe, kind, args.duplicate) {
            return Ok(());
        }
        fill(runtime, stream, pieces.ptr(), 0, 8)?;
        launch(
            runtime,
            stream,
            &kernel("smj_split")?,
            over(tiles + 1, u64::from(BLOCK)),
            &args,
        )?;
        let join = LaunchConfig {
            grid: u32::try_from(tiles).unwrap_or(u32::MAX),
            block: BLOCK,
            shared_bytes: smj_shared_bytes(width),
        };
        launch(runtime, stream, &kernel("smj_join")?, join, &args)?;
        if !unique && !kind.without_entries() {
            launch(
                runtime,
                stream,
                &kernel("smj_long")?,
                over(most_pieces, 1),
                &args,
            )?;
        }
    }
    Ok(())
}

/// Probe rows of a task: twice as many as partitions have on average, so that only skew divides them, and enough to pay
/// for the table, but not so many that a few blocks would have all the work.
fn probe_chunk(rows: u64, partitions: u64, multiprocessors: u32) -> u32 {
    let shared_out = rows / (u64::from(multiprocessors.max(1)) * TASKS_OF_A_MULTIPROCESSOR);
    let most = shared_out.clamp(LEAST_PROBE_CHUNK, MOST_PROBE_CHUNK);
    let least = shared_out.clamp(LEAST_PROBE_CHUNK, LEAST_PROBE_CHUNK * 4);
    (rows / partitions * 2).clamp(least, most) as u32
}

/// The address when somebody asks for what goes there.
fn asked(wanted: bool, ptr: DevicePtr) -> DevicePtr {
    if wanted { ptr } else { DevicePtr::NULL }
}

/// Can there be neither pairs nor equal build keys that anybody wants to know of?
fn nothing_to_do(build: &Side, probe: &Side, kind: PairKind, duplicate: DevicePtr) -> bool {
    if build.rows.most() == 0 {
        probe.rows.most() == 0 || kind.flags() & PAIR_UNMATCHED == 0
    } else {
        probe.rows.most() == 0 && duplicate.is_null()
    }
}

fn check(build: &Side, probe: &Side) -> Result<()> {
    check_numbered("a join with rows", build.rows.most())?;
    check_numbered("a join with rows", probe.rows.most())?;
    if build.keys.width != probe.keys.width || ![4, 8, 16].contains(&build.keys.width) {
        return Err(GpuError::Internal(format!(
            "a join of keys of {} and {} bytes (4, 8 or 16 on both sides are supported)",
            build.keys.width, probe.keys.width
        )));
    }
    Ok(())
}
