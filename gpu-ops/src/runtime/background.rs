//! Runs that go on although their query has been answered: what they load and compile serves later ones.

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Most of them at once: they take memory and cores from queries that somebody waits for.
const MOST: usize = 2;

/// The runs of a device that nobody waits for.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Background {
    /// One more may go on; false where there are enough.
    pub(crate) fn adopt(&self, task: AbortHandle) -> bool {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        let room = tasks.len() < MOST;
        if room {
            tasks.push(task);
        }
        room
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_go_on_at_once() {
        let background = Background::default();
        let task = || tokio::spawn(std::future::pending::<()>());
        let tasks: Vec<_> = (0..=MOST).map(|_| task()).collect();
        let adopted = tasks.iter().map(|t| background.adopt(t.abort_handle()));
        assert_eq!(adopted.filter(|adopted| *adopted).count(), MOST);
        for task in tasks {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(background.adopt(task().abort_handle()));
    }
}
