//! The end of the program: the system takes back what a device holds sooner than the program gives it back, block by block.

use warpline::WarplineSession;

/// Leaves the devices of a session open, for the program ends.
pub(super) fn keep_open(session: &WarplineSession) {
    for runtime in session.device().runtimes() {
        std::mem::forget(runtime);
    }
}
