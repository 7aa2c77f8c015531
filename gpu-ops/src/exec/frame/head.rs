//! The buffer that a run begins with: control words, small tables that start out filled, the output.
//!
//! A run that knows its sizes puts every small block that must be filled before its use here, so that two fills
//! take the place of many, and the output behind the control words, so that both return in one copy.

use std::sync::Arc;

use crate::device::Stream;
use crate::error::Result;
use crate::exec::frame::control::Control;
use crate::exec::frame::storage::{Recycler, Store};
use crate::exec::prepare::hints::{Hint, sizes_by};
use crate::exec::prepare::part_sizes::PartSize;
use crate::exec::prepare::prepared::Prepared;
use crate::exec::prepare::shapes::Shape;
use crate::graph::ResultId;
use crate::memory::DeviceBuffer;

/// Largest block that is placed here, in bytes.
const LARGEST_BLOCK: usize = 1 << 20;
/// Most bytes of blocks here: they stay until the end of the run.
const MOST_BYTES: usize = 16 << 20;

/// A filled block of a result.
struct Placed {
    result: ResultId,
    /// Number of the block among those of the result.
    number: usize,
    parts: Vec<PartSize>,
    offset: usize,
}

/// Bytes of ones, bytes of zeros, the zeroed control words, the output.
pub(in crate::exec) struct Head {
    buffer: Arc<DeviceBuffer>,
    placed: Vec<Placed>,
    control: usize,
    output: Option<(Vec<PartSize>, usize)>,
}

impl Head {
    /// Does any of a store lie here?
    pub(in crate::exec) fn holds(&self, store: &Store) -> bool {
        store.lies_in(&self.buffer)
    }

    /// Allocate and fill.
    pub(in crate::exec) fn new(
        prepared: &Prepared,
        hints: Option<&Vec<Hint>>,
        recycler: &mut Recycler,
        stream: &Stream,
    ) -> Result<Self> {
        let mut placed = Vec::new();
        let mut output = None;
        let mut end = 0;
        let mut ones = 0;
        let most = MOST_BYTES.min(recycler.pool().budget().head_blocks() as usize);
        if let Some(hints) = hints {
            for value in [0xFF, 0] {
                for (result, (shape, hint)) in prepared.shapes.iter().zip(hints).enumerate() {
                    place(result, shape, hint, (value, most), &mut placed, &mut end)?;
                }
                if value == 0xFF {
                    ones = end;
                }
            }
        }
        let control = end;
        end += Control::bytes(prepared.shapes.len());
        let zeros = end - ones;
        if let Some(hints) = hints {
            let id = prepared.graph.output;
            let shape = &prepared.shapes[id];
            if matches!(shape, Shape::Rows(_) | Shape::Sorted(_)) {
                let blocks = shape.filling(&sizes_by(shape, &hints[id]));
                let parts: Vec<_> = blocks.into_iter().flat_map(|b| b.parts).collect();
                let start = end;
                end += Store::bytes_within(&parts)?;
                output = Some((parts, start));
            }
        }
        let buffer = Arc::new(recycler.allocate(end, "control words and output")?);
        buffer.fill_range(stream, 0, ones, 0xFF)?;
        buffer.fill_range(stream, ones, zeros, 0)?;
        Ok(Self {
            buffer,
            placed,
            control,
            output,
        })
    }

    /// Nobody uses it any more.
    pub(in crate::exec) fn release(self, recycler: &mut Recycler) {
        recycler.take_buffer(self.buffer);
    }

    /// The control words of `results` results.
    pub(in crate::exec) fn control(&self, results: usize) -> Control {
        Control::new(Arc::clone(&self.buffer), self.control, results)
    }

    /// The memory of the output, when it lies here.
    pub(in crate::exec) fn output(&self) -> Result<Option<Store>> {
        let Some((parts, start)) = &self.output else {
            return Ok(None);
        };
        Store::within(&self.buffer, parts, *start).map(Some)
    }

    /// The memory of a block, when it lies here.
    pub(in crate::exec) fn block(&self, result: ResultId, number: usize) -> Result<Option<Store>> {
        let mine = |p: &&Placed| p.result == result && p.number == number;
        let Some(placed) = self.placed.iter().find(mine) else {
            return Ok(None);
        };
        Store::within(&self.buffer, &placed.parts, placed.offset).map(Some)
    }
}

/// Place the blocks of a result that are filled with `value`, while all of them take at most so many bytes.
fn place(
    result: ResultId,
    shape: &Shape,
    hint: &Hint,
    (value, most): (u8, usize),
    placed: &mut Vec<Placed>,
    end: &mut usize,
) -> Result<()> {
    let blocks = shape.filling(&sizes_by(shape, hint));
    for (number, block) in blocks.into_iter().enumerate() {
        if block.fill != Some(value) {
            continue;
        }
        let bytes = Store::bytes_within(&block.parts)?;
        if bytes > LARGEST_BLOCK || bytes > most - (*end).min(most) {
            continue;
        }
        placed.push(Placed {
            result,
            number,
            parts: block.parts,
            offset: *end,
        });
        *end += bytes;
    }
    Ok(())
}
