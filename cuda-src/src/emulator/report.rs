//! Reports: a failed launch in words.

use super::abi::{describe, op};
use super::error::{EmulatorError, WaitingGroup, WaitingReport};
use super::lane::Failure;
use super::launch::Launch;

impl Launch<'_> {
    /// Put a failure into words.
    ///
    /// # Safety
    /// The lanes it names belong to this launch; no lane runs.
    pub(super) unsafe fn explain(&self, failure: Failure) -> EmulatorError {
        // SAFETY: the caller vouches for the lanes, and none of them runs.
        let (lane, cause) = unsafe {
            match failure {
                Failure::NoProgress => {
                    let cause = format!(
                        "lanes paused {} times in a row and nothing changed",
                        self.config.idle_pauses
                    );
                    return self.livelock(cause);
                }
                Failure::MaskWithoutCaller(lane) => {
                    let header = &(*lane).header;
                    let cause = format!(
                        "calls {} with mask {:#010x}, which leaves itself out; name every lane that takes part",
                        describe(header.op),
                        header.mask
                    );
                    (lane, cause)
                }
                Failure::MaskNamesExited(lane, gone) => {
                    let header = &(*lane).header;
                    let cause = format!(
                        "calls {} with mask {:#010x}, but lanes {gone:#010x} of warp {} have exited or do not exist; \
                         keep all lanes of the mask in the kernel",
                        describe(header.op),
                        header.mask,
                        header.thread_x / 32
                    );
                    (lane, cause)
                }
                Failure::ExitedWhileAwaited(lane, awaiting) => {
                    let header = &(*awaiting).header;
                    let cause = format!(
                        "exited while thread {} waits for it in {} with mask {:#010x} at {}; \
                         keep all lanes of the mask in the kernel",
                        header.thread_x,
                        describe(header.op),
                        header.mask,
                        header.place()
                    );
                    (lane, cause)
                }
                Failure::BlockIncomplete(lane) => {
                    let cause =
                        "a block-wide reduction or scan ran after lanes of the block had exited; \
                                 keep all lanes in the kernel"
                            .to_owned();
                    (lane, cause)
                }
                Failure::Reported(lane) => {
                    let header = &(*lane).header;
                    let [first, second] = header.input;
                    let cause = match header.op {
                        op::MISALIGNED => {
                            format!(
                                "accesses address {first:#x} as {second} aligned bytes; align it to {second} bytes"
                            )
                        }
                        op::SHARED_TOO_SMALL => {
                            format!(
                                "views {first} bytes of shared memory of {second}; launch with at least {first} bytes"
                            )
                        }
                        _ => "stopped the kernel with __trap; see the condition there".to_owned(),
                    };
                    (lane, cause)
                }
            }
        };
        // SAFETY: as above; the module is loaded, so its file names are too.
        unsafe {
            EmulatorError::Lane {
                kernel: self.kernel.name().to_owned(),
                block: (*lane).header.block_x,
                thread: (*lane).header.thread_x,
                place: (*lane).header.place(),
                cause,
            }
        }
    }

    /// # Safety
    /// No lane runs.
    pub(super) unsafe fn livelock(&self, cause: String) -> EmulatorError {
        // SAFETY: the caller vouches that no lane runs.
        let waiting = unsafe { self.waiting() };
        EmulatorError::Livelock {
            kernel: self.kernel.name().to_owned(),
            cause,
            waiting,
        }
    }

    /// Where the lanes are that have not exited, grouped by place.
    ///
    /// # Safety
    /// No lane runs.
    pub(super) unsafe fn waiting(&self) -> WaitingReport {
        let mut report = WaitingReport {
            finished_blocks: self.finished,
            ..WaitingReport::default()
        };
        let running = self.slots.iter().filter(|slot| slot.running);
        for slot in running.clone() {
            // SAFETY: the block is live and no lane runs, so shared references are fine.
            let block = unsafe { &*slot.block };
            for (w, warp) in block.warps.iter().enumerate() {
                let start = report.groups.len();
                for lane in block.lanes.iter().skip(w * 32).take(32) {
                    if warp.live & lane.bit == 0 {
                        continue;
                    }
                    let header = &lane.header;
                    let spinning = warp.ready & lane.bit != 0;
                    let found = WaitingGroup {
                        block: block.id,
                        warp: w as u32,
                        lanes: lane.bit,
                        operation: describe(header.op),
                        mask: (!spinning && header.op >= op::SYNCWARP).then_some(header.mask),
                        spinning,
                        // SAFETY: the module is loaded, so its file names are too.
                        place: unsafe { header.place() },
                    };
                    let same = |g: &&mut WaitingGroup| {
                        g.operation == found.operation
                            && g.mask == found.mask
                            && g.spinning == found.spinning
                            && g.place == found.place
                    };
                    match report.groups[start..].iter_mut().find(same) {
                        Some(group) => group.lanes |= lane.bit,
                        None => report.groups.push(found),
                    }
                }
            }
        }
        report.unstarted_blocks = self.config.grid - self.finished - running.count() as u32;
        report
    }
}
