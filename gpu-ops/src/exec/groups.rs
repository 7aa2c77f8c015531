//! Aggregation states from the device to the host: only the groups that exist.

use warpline_cuda::kernels::{GroupCompactArgs, group_compact};
use warpline_cuda::{DevicePtr, KernelArgs};

use crate::codegen::{HEADER_WORDS, TilePlan};
use crate::device::{LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Tables up to this size come back whole in one copy; larger ones are compacted on the device.
const WHOLE_COPY_BYTES: usize = 256 << 10;

/// Device memory of one aggregation.
pub(super) struct AggregationTable {
    /// Header and states.
    pub(super) table: DeviceBuffer,
    /// Keys of a hash placement.
    pub(super) keys: Option<DeviceBuffer>,
    /// Slot states of a hash placement with wide keys.
    pub(super) states: Option<DeviceBuffer>,
    /// Slots.
    pub(super) slots: u64,
}

/// The header words of an aggregation table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    /// A value of `ArithmeticFault`, or 0.
    pub(super) fault: u64,
    /// Non-zero when a key found no slot.
    pub(super) overflow: u64,
}

/// Groups on the host, one row each: key words, then state words.
pub(super) struct Groups {
    /// Number of groups.
    pub(super) rows: usize,
    key_words: usize,
    words: Vec<u64>,
    row_words: usize,
}

impl Groups {
    /// The packed key of a row (the group number for dense placements).
    pub(super) fn key(&self, row: usize) -> &[u64] {
        &self.words[row * self.row_words..row * self.row_words + self.key_words]
    }

    /// The state words of a row.
    pub(super) fn state(&self, row: usize) -> &[u64] {
        &self.words[row * self.row_words + self.key_words..(row + 1) * self.row_words]
    }
}

/// Outcome of reading a table.
pub(super) struct Fetched {
    pub(super) header: Header,
    pub(super) groups: Groups,
    /// Kernels launched for it.
    pub(super) kernels: usize,
    pub(super) compile_ms: f64,
}

/// Copy the occupied groups to the host; the groups are empty when the header reports a fault or overflow.
pub(super) fn fetch(
    runtime: &Runtime,
    stream: &Stream,
    plan: &TilePlan,
    table: &AggregationTable,
) -> Result<Fetched> {
    let state_words = plan.aggregates.words;
    let key_words = if table.keys.is_some() {
        plan.key_words
    } else {
        1
    };
    let row_words = key_words + state_words;
    let bytes = table.table.len() + table.keys.as_ref().map_or(0, DeviceBuffer::len);
    if bytes <= WHOLE_COPY_BYTES {
        let words: Vec<u64> = table.table.download_vec(stream)?;
        let header = header(&words);
        let states = &words[HEADER_WORDS..];
        let mut rows = Vec::new();
        let mut count = 0;
        if header.fault == 0 && header.overflow == 0 {
            let keys: Option<Vec<u64>> = table
                .keys
                .as_ref()
                .map(|k| k.download_vec(stream))
                .transpose()?;
            let slot_states: Option<Vec<u32>> = table
                .states
                .as_ref()
                .map(|s| s.download_vec(stream))
                .transpose()?;
            let ungrouped = plan.keys.is_empty();
            for slot in 0..table.slots as usize {
                let state = &states[slot * state_words..(slot + 1) * state_words];
                let occupied = match (&slot_states, &keys) {
                    (Some(s), _) => s[slot] == 2,
                    (None, Some(k)) => k[slot] != u64::MAX,
                    (None, None) => ungrouped || state[0] != 0,
                };
                if !occupied {
                    continue;
                }
                match &keys {
                    Some(k) => rows.extend_from_slice(&k[slot * key_words..(slot + 1) * key_words]),
                    None => rows.push(slot as u64),
                }
                rows.extend_from_slice(state);
                count += 1;
            }
        }
        let groups = Groups {
            rows: count,
            key_words,
            words: rows,
            row_words,
        };
        return Ok(Fetched {
            header,
            groups,
            kernels: 0,
            compile_ms: 0.0,
        });
    }
    compact(runtime, stream, table, key_words, state_words)
}

fn header(words: &[u64]) -> Header {
    Header {
        fault: words[0],
        overflow: words[1],
    }
}

fn compact(
    runtime: &Runtime,
    stream: &Stream,
    table: &AggregationTable,
    key_words: usize,
    state_words: usize,
) -> Result<Fetched> {
    let source = group_compact();
    let (count, first) = runtime.kernel("count_groups", &source)?;
    let (emit, second) = runtime.kernel("emit_groups", &source)?;
    let compile_ms = first.milliseconds + second.milliseconds;
    let pointer = |b: &Option<DeviceBuffer>| b.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::ptr);
    let mut args = GroupCompactArgs {
        table: table.table.ptr(),
        keys: pointer(&table.keys),
        states: pointer(&table.states),
        rows: DevicePtr::NULL,
        slots: table.slots,
        key_words: key_words as u64,
        state_words: state_words as u64,
    };
    let info = runtime.device().info();
    let blocks = table
        .slots
        .div_ceil(256)
        .min(u64::from(info.multiprocessors) * 8);
    let config = LaunchConfig {
        grid: blocks.max(1) as u32,
        block: 256,
        shared_bytes: 0,
    };
    // SAFETY: the struct is the kernel's own; the table's buffers outlive the synchronous download below.
    unsafe {
        runtime
            .device()
            .launch(stream, &count, config, args.as_bytes())?
    };
    let head: Vec<u64> = table.table.download_values(stream, 0, HEADER_WORDS)?;
    let header = header(&head);
    let row_words = key_words + state_words;
    let mut groups = Groups {
        rows: 0,
        key_words,
        words: Vec::new(),
        row_words,
    };
    if header.fault != 0 || header.overflow != 0 {
        return Ok(Fetched {
            header,
            groups,
            kernels: 1,
            compile_ms,
        });
    }
    groups.rows =
        usize::try_from(head[2]).map_err(|_| GpuError::Internal("number of groups".into()))?;
    let words = groups.rows * row_words;
    let rows = runtime.pool().allocate(words * 8, "compacted groups")?;
    args.rows = rows.ptr();
    // SAFETY: as above; `rows` holds exactly the counted groups.
    unsafe {
        runtime
            .device()
            .launch(stream, &emit, config, args.as_bytes())?
    };
    groups.words = rows.download_values(stream, 0, words)?;
    Ok(Fetched {
        header,
        groups,
        kernels: 2,
        compile_ms,
    })
}
