//! Rows of a result in another order: partitioned or sorted by key, and what moves with the keys.

use std::ops::Range;

use crate::codegen::{ControlWord, Part};
use crate::device::DevicePtr;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::prepare::part_sizes::PartSize;
use crate::graph::ResultId;
use crate::primitives::{self, Digits, Keys, Partitioning, Partitions, Payload, Rooms};

/// How rows are to lie.
pub(in crate::exec) struct Arrangement {
    /// What there is afterwards: the keys, what moves with them, and the offsets of partitions.
    pub(in crate::exec) parts: Vec<PartSize>,
    /// What rows are ordered by.
    pub(in crate::exec) by: Part,
    /// By bits of this …
    pub(in crate::exec) digits: Digits,
    /// … these.
    pub(in crate::exec) bits: Range<u32>,
    /// Where rows with equal bits come.
    pub(in crate::exec) order: Order,
}

/// Where rows with equal bits come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Order {
    /// In their old order.
    Stable,
    /// In any order.
    Any,
    /// In any order, and each partition has room of its own: offsets are its begins, then its ends.
    Apart(Rooms),
}

/// Begins and ends of `2^bits` partitions that lie apart, in the part of their offsets.
pub(in crate::exec) fn apart(offsets: DevicePtr, bits: usize) -> Partitions {
    Partitions {
        begins: offsets,
        ends: offsets.offset(4 << bits),
    }
}

impl Run<'_> {
    /// Partition or sort the rows of a result; its parts are those of the arrangement from here on.
    pub(in crate::exec) fn arrange(&mut self, result: ResultId, how: Arrangement) -> Result<()> {
        let arranged = self.frame.extra(result, how.parts.clone(), false)?;
        let new = |part: Part| {
            arranged
                .address(part)
                .ok_or_else(|| GpuError::Internal(format!("arranged rows have no {part:?}")))
        };
        let width = how.parts.iter().find(|size| size.part == how.by);
        let width = width.map_or(0, |size| size.unit as u32);
        let mut payloads = Vec::new();
        for size in how.parts.iter().filter(|size| size.part.moves()) {
            payloads.push(Payload {
                from: match size.part {
                    Part::Numbers => None,
                    column => Some(self.frame.address(result, column)?),
                },
                to: new(size.part)?,
                width: size.unit as u32,
            });
        }
        let keys = Keys {
            ptr: self.frame.address(result, how.by)?,
            width,
        };
        let (to, offsets) = (new(how.by)?, arranged.address(Part::Offsets));
        let of = Partitioning {
            keys,
            to,
            payloads: &payloads,
            rows: self.frame.count(result),
            digits: how.digits,
            bits: how.bits,
        };
        self.reports.kernels += 1;
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        // SAFETY: the new store has room for the result's capacity in each part, or for the rooms of all partitions, and
        // offsets for as many partitions as the bits make; the old one, or the table it borrows from, has as many rows as
        // are counted, of these widths.
        unsafe {
            match (how.order, offsets) {
                (Order::Apart(rooms), Some(offsets)) => {
                    let places = apart(offsets, of.bits.len());
                    let overflow = self
                        .frame
                        .control
                        .word_address(result, ControlWord::Overflow);
                    primitives::radix_partition_preallocated(
                        runtime, stream, &of, rooms, places, overflow,
                    )?;
                }
                (Order::Any, _) => {
                    primitives::radix_partition_unstable(runtime, stream, &of, offsets)?;
                }
                (Order::Apart(rooms), None) => {
                    return Err(GpuError::Internal(format!("{rooms:?} without begins")));
                }
                (Order::Stable, _) => {
                    primitives::radix_partition(runtime, stream, &of, offsets)?;
                }
            }
        }
        if let Some(store) = &mut self.frame.results[result].store {
            store.replace(arranged, &mut self.frame.recycler);
        }
        self.mark("transform")
    }
}
