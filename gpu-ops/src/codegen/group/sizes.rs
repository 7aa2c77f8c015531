//! How much shared memory a block takes for group states, and how many threads it has then (Karnagel et al., DaMoN 2015).

use crate::codegen::ir::aggregates::AccumulatorPlan;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::GroupsLayout;
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::device::DeviceInfo;
use crate::error::{GpuError, Result};
use crate::pipeline::{GroupPlacement, Regroup};

/// Shared memory that a block has for the groups of a partition at most, when that makes do: four blocks a multiprocessor.
const PARTITION_BYTES: u64 = 48 << 10;

/// Bytes of shared memory for the states of `slots` groups, a block's own, as [`Groups::arrays`] places them.
pub(in crate::codegen) fn shared_bytes(plan: &AccumulatorPlan, slots: u64) -> u64 {
    let cells = plan.accumulators.iter().map(|a| a.bytes() as u64);
    cells.fold(0u64, |end, bytes| {
        end.next_multiple_of(16)
            .saturating_add(slots.saturating_mul(bytes))
    })
}

/// Shared memory of a block's own states, of all groups or of those in front of a table.
pub(in crate::codegen) fn shared_states(layout: &GroupsLayout) -> u64 {
    /// Of the key of one in front.
    const KEY: u64 = 8;
    match (layout.front, layout.placement) {
        (0, GroupPlacement::Shared) => shared_bytes(&layout.aggregates, layout.slots),
        (0, _) => 0,
        (front, _) => shared_bytes(&layout.aggregates, front).saturating_add(KEY * front),
    }
}

/// Size what blocks keep of regrouped groups, and blocks by it.
pub(in crate::codegen) fn place_regrouped(
    layout: &mut GroupsLayout,
    device: &DeviceInfo,
) -> Result<u32> {
    let (Some(regrouped), GroupPlacement::Regrouped { how, bits, groups }) =
        (&mut layout.regrouped, layout.placement)
    else {
        return Err(GpuError::Internal("groups that are not regrouped".into()));
    };
    let each = shared_bytes(&layout.aggregates, 1 << 10)
        .div_ceil(1 << 10)
        .max(1);
    let most = (device.shared_memory_per_block as u64).saturating_sub(2 << 10);
    if how.partitions() {
        let each = each + u64::from(regrouped.key_bytes);
        // Twice as many slots as groups, if need be three of four.
        let mean = (groups >> bits).max(1);
        let mut slots = mean
            .saturating_mul(2)
            .clamp(256, 1 << 20)
            .next_power_of_two();
        let generous = slots * each > PARTITION_BYTES;
        if generous && slots / 2 >= mean + mean / 3 {
            slots /= 2;
        }
        while slots > 32 && slots * each > most {
            slots /= 2;
        }
        regrouped.window = slots;
        return Ok(match slots * each {
            0..=32_000 if slots >= BLOCK_THREADS.into() => BLOCK_THREADS,
            0..=100_000 if slots >= 2 * u64::from(BLOCK_THREADS) => 2 * BLOCK_THREADS,
            _ if slots >= 4 * u64::from(BLOCK_THREADS) => 4 * BLOCK_THREADS,
            _ if slots >= BLOCK_THREADS.into() => BLOCK_THREADS,
            _ => slots as u32,
        });
    }
    if how == Regroup::Number {
        // A share of all groups is worth having while it is a good one.
        let budget = (device.shared_memory_per_multiprocessor as u64 / 2).min(most);
        let room = budget.saturating_sub(4 << 10) / each;
        if groups <= room.saturating_mul(2) {
            regrouped.window = room.min(groups.saturating_mul(2)).max(1);
            return Ok(2 * BLOCK_THREADS);
        }
    }
    Ok(BLOCK_THREADS)
}

/// Size what blocks keep of the runs of a tile of `tile_rows` rows, for groups of rows in order.
pub(in crate::codegen) fn place_runs(sink: &mut EmittedSink, tile_rows: u64) {
    /// Runs that there is room for at least.
    const LEAST: u64 = 64;
    let EmittedSink::Aggregate {
        layout, profile, ..
    } = sink
    else {
        return;
    };
    let each = shared_bytes(&layout.aggregates, 1 << 10).div_ceil(1 << 10);
    let groups = layout.slots;
    let Some(of) = layout.regrouped.as_mut().filter(|of| of.rows.is_none()) else {
        return;
    };
    of.tile_rows = tile_rows;
    // Twice as many as a tile is thought to have: those beyond find their state in device memory.
    let runs = u128::from(tile_rows) * u128::from(groups) / u128::from(profile.rows.max(1));
    let runs = u64::try_from(runs).unwrap_or(tile_rows);
    let wanted = runs.saturating_mul(2).max(LEAST).next_power_of_two();
    let room = PARTITION_BYTES / (each + u64::from(of.key_bytes)).max(1);
    of.window = wanted.min(tile_rows.max(1)).min(room.max(1));
}

/// Slots of a table in shared memory in front of the one in device memory: for keys so frequent that their rows would
/// queue there (rows of hot keys come early and often: they find a slot before it is taken, and stay), and for sparse keys
/// of which there are about `groups`, if that is few. 0: none.
pub(in crate::codegen) fn front_slots(
    layout: &GroupsLayout,
    device: &DeviceInfo,
    hot: bool,
    groups: u64,
) -> u64 {
    let in_slot = layout.hashed() && layout.key_bytes > 0;
    let global = layout.placement == GroupPlacement::GlobalDense || in_slot;
    if !global || layout.slots >= u32::MAX.into() {
        return 0;
    }
    // As many as four blocks, two or one of a multiprocessor have room for.
    let each = front_bytes(layout, 1 << 10).div_ceil(1 << 10);
    let room = (device.shared_memory_per_block as u64).saturating_sub(4 << 10);
    let sizes = [4, 2, 1].map(|blocks| {
        let bytes = (device.shared_memory_per_multiprocessor as u64 / blocks)
            .saturating_sub(4 << 10)
            .min(room);
        // The power of two below.
        1u64 << (bytes / each).max(1).ilog2()
    });
    let fits = sizes
        .into_iter()
        .find(|slots| *slots >= groups.saturating_mul(2));
    let slots = match fits {
        Some(slots) if in_slot || hot => slots,
        None if in_slot && sizes[2] >= groups => sizes[2],
        None if hot => sizes[0],
        _ => return 0,
    };
    // Few groups do with less, which leaves room for more blocks. All that there may be in a small table without gaps have a place, of
    // others there may be more than were thought.
    let enough = match layout.hashed() || layout.slots > SMALL_TABLE {
        true => groups.saturating_mul(ROOMY),
        false => layout.slots.saturating_mul(2),
    };
    slots.min(enough.clamp(LEAST_FRONT, 1 << 40).next_power_of_two())
}

/// Slots of such a table at least, and for each group that is thought to be there.
const LEAST_FRONT: u64 = 256;
const ROOMY: u64 = 8;
/// Slots of a table without gaps that are few enough to have a place each.
const SMALL_TABLE: u64 = 1024;

/// Bytes of shared memory of a table of `slots` slots in front of one in device memory.
fn front_bytes(layout: &GroupsLayout, slots: u64) -> u64 {
    shared_bytes(&layout.aggregates, slots) + slots * layout.key_bytes.max(4) as u64
}

/// Threads of a block: where shared memory lets few blocks live on a multiprocessor, they are larger.
pub(in crate::codegen) fn block_threads(sink: &EmittedSink, device: &DeviceInfo) -> u32 {
    let EmittedSink::Aggregate { layout, .. } = sink else {
        return BLOCK_THREADS;
    };
    let bytes = match layout.placement {
        GroupPlacement::Shared if !layout.keys.is_empty() => {
            shared_bytes(&layout.aggregates, layout.slots).max(1)
        }
        _ if layout.front > 0 => front_bytes(layout, layout.front),
        _ => return BLOCK_THREADS,
    };
    match device.shared_memory_per_multiprocessor as u64 / bytes {
        0 | 1 => 4 * BLOCK_THREADS,
        2 | 3 => 2 * BLOCK_THREADS,
        _ => BLOCK_THREADS,
    }
}
