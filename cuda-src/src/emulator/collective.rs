//! What the waiting operations compute once all their lanes have come.

use super::abi::{LaneHeader, op};
use super::lane::Lane;

/// What a lane reads from a lane outside the mask: undefined in CUDA, so recognisable here.
const OUTSIDE_MASK: u64 = 0xdead_beef_dead_beef;

/// The lanes of a mask in ascending order.
fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

/// Compute operation `operation` over the lanes in `mask` of the warp that starts at `first`.
///
/// # Safety
/// `first` points to the lanes of a warp; every lane in `mask` exists and waits in `operation`.
pub(super) unsafe fn warp(first: *mut Lane, operation: u32, mask: u32) {
    // SAFETY: the caller vouches for the lanes in `mask`, and only those are asked for below.
    let lane = |i: usize| unsafe { &raw mut (*first.add(i)).header };
    // SAFETY: as above.
    let input = |i: usize| unsafe { (*lane(i)).input[0] };
    match operation {
        op::SYNCWARP => {}
        op::SHFL | op::SHFL_UP | op::SHFL_DOWN | op::SHFL_XOR => {
            let mut values = [OUTSIDE_MASK; 32];
            for i in lanes_of(mask) {
                values[i] = input(i);
            }
            for i in lanes_of(mask) {
                // SAFETY: as above.
                let header = unsafe { &mut *lane(i) };
                let source = shuffle_source(
                    operation,
                    i as u32,
                    header.input[1] as u32,
                    header.extra as u32,
                );
                header.out[0] = values[source as usize & 31];
            }
        }
        op::BALLOT => {
            let votes = lanes_of(mask).fold(0u64, |votes, i| votes | (input(i) & 1) << i);
            for i in lanes_of(mask) {
                // SAFETY: as above.
                unsafe { (*lane(i)).out[0] = votes };
            }
        }
        op::MATCH_ANY => {
            for i in lanes_of(mask) {
                let equal = lanes_of(mask).fold(0u64, |equal, j| {
                    equal | u64::from(input(j) == input(i)) << j
                });
                // SAFETY: as above.
                unsafe { (*lane(i)).out[0] = equal };
            }
        }
        op::WARP_SCAN => {
            let mut sum = 0u128;
            for i in lanes_of(mask) {
                // SAFETY: as above.
                let header = unsafe { &mut *lane(i) };
                let value = header.wide();
                header.set_wide(sum);
                sum = sum.wrapping_add(value);
            }
        }
        op::WARP_SUM_F64 => {
            let mut values = [0.0; 32];
            for i in lanes_of(mask) {
                values[i] = f64::from_bits(input(i));
            }
            let sum = butterfly_sum(values).to_bits();
            for i in lanes_of(mask) {
                // SAFETY: as above.
                unsafe { (*lane(i)).out[0] = sum };
            }
        }
        _ => {
            // SAFETY: as above.
            let result = lanes_of(mask)
                .map(|i| unsafe { (*lane(i)).wide() })
                .reduce(|a, b| combine(operation, a, b));
            for i in lanes_of(mask) {
                // SAFETY: as above.
                unsafe { (*lane(i)).set_wide(result.unwrap_or(0)) };
            }
        }
    }
}

/// Compute a block-wide operation over `headers`, the waiting lanes of the block in ascending order.
///
/// # Safety
/// Every pointer is a live lane that waits in `operation`; a BLOCK_ operation gets all lanes of the block.
pub(super) unsafe fn block(operation: u32, headers: impl Iterator<Item = *mut LaneHeader> + Clone) {
    // SAFETY: the caller vouches for the pointers.
    let input = |h: *mut LaneHeader| unsafe { (*h).input[0] };
    let give = |value: u128| {
        for h in headers.clone() {
            // SAFETY: as above.
            unsafe { (*h).set_wide(value) };
        }
    };
    match operation {
        op::BARRIER => {}
        op::BARRIER_COUNT => give(headers.clone().map(|h| u128::from(input(h))).sum()),
        op::BARRIER_AND => give(u128::from(headers.clone().all(|h| input(h) != 0))),
        op::BARRIER_OR => give(u128::from(headers.clone().any(|h| input(h) != 0))),
        op::BLOCK_SCAN => {
            let mut sum = 0u128;
            for h in headers.clone() {
                // SAFETY: as above.
                let header = unsafe { &mut *h };
                let value = header.wide();
                header.set_wide(sum);
                sum = sum.wrapping_add(value);
            }
            for h in headers.clone() {
                // SAFETY: as above.
                unsafe { (*h).extra = sum as u64 };
            }
        }
        op::BLOCK_SUM_F64 => {
            // The order of the tree: warps first, then their sums.
            let mut warps = [0.0; 32];
            let mut values = [0.0; 32];
            for (i, h) in headers.clone().enumerate() {
                values[i & 31] = f64::from_bits(input(h));
                if i & 31 == 31 {
                    warps[(i / 32) & 31] = butterfly_sum(values);
                }
            }
            give(u128::from(butterfly_sum(warps).to_bits()));
        }
        _ => {
            let kind = match operation {
                op::BLOCK_MIN => op::WARP_MIN,
                op::BLOCK_MAX => op::WARP_MAX,
                _ => op::WARP_SUM,
            };
            // SAFETY: as above.
            let result = headers
                .clone()
                .map(|h| unsafe { (*h).wide() })
                .reduce(|a, b| combine(kind, a, b));
            give(result.unwrap_or(0));
        }
    }
}

fn combine(operation: u32, a: u128, b: u128) -> u128 {
    match operation {
        op::WARP_MIN => (a as i128).min(b as i128) as u128,
        op::WARP_MAX => (a as i128).max(b as i128) as u128,
        op::WARP_AND => a & b,
        op::WARP_OR => a | b,
        op::WARP_XOR => a ^ b,
        _ => a.wrapping_add(b),
    }
}

/// The sum in the order in which a butterfly of shuffles adds.
fn butterfly_sum(mut values: [f64; 32]) -> f64 {
    let mut lanes = 16;
    while lanes > 0 {
        let before = values;
        for (i, value) in values.iter_mut().enumerate() {
            *value = before[i] + before[i ^ lanes];
        }
        lanes /= 2;
    }
    values[0]
}

/// The lane a shuffle reads from, by PTX's rules for `shfl.sync`; a lane without a source reads itself.
fn shuffle_source(operation: u32, lane: u32, operand: u32, width: u32) -> u32 {
    let width = width.clamp(1, 32).next_power_of_two();
    let first = lane & !(width - 1);
    let last = first | (width - 1);
    match operation {
        op::SHFL => first | (operand & (width - 1)),
        op::SHFL_UP => match lane.checked_sub(operand) {
            Some(source) if source >= first => source,
            _ => lane,
        },
        op::SHFL_DOWN => match lane.checked_add(operand) {
            Some(source) if source <= last => source,
            _ => lane,
        },
        _ => {
            let source = lane ^ operand;
            if source <= last { source } else { lane }
        }
    }
}
