//! How many rows met on the host, as earlier runs of a plan saw it: estimates of groups are rough.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Rows up to which the host merges what devices yield: it takes a device a millisecond to begin.
pub(super) const FEW: u64 = 32_768;

/// Most parts of plans that are remembered.
const MOST_REMEMBERED: usize = 4096;

/// Rows by parts of plans, which their texts tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Learned(Arc<Mutex<HashMap<String, u64>>>);

impl Learned {
    pub(super) fn rows(&self, part: &str) -> Option<u64> {
        self.0.lock().get(part).copied()
    }

    fn add(&self, part: &str, rows: u64) {
        let mut parts = self.0.lock();
        if parts.len() >= MOST_REMEMBERED {
            parts.clear();
        }
        parts.insert(part.to_string(), rows);
    }
}

/// What a plan was made for.
#[derive(Debug)]
pub(super) struct Expected {
    /// The host merges the rows.
    pub(super) few: bool,
    /// More are not worth it.
    pub(super) most: u64,
    pub(super) part: String,
    pub(super) learned: Learned,
}

impl Expected {
    /// Whether the plan should be another one for so many rows. The next one will be.
    pub(super) fn is_wrong_for(&self, rows: u64) -> bool {
        let many = match self.few {
            true => rows > FEW,
            // A plan that is right for about as many is not made anew time and again.
            false => rows > FEW / 2,
        };
        let wrong = rows > self.most || many == self.few;
        if wrong {
            self.learned.add(&self.part, rows);
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_for_other_numbers_of_rows_are_not_kept() {
        let learned = Learned::default();
        let expected = |few| Expected {
            few,
            most: 1_000_000,
            part: "part".to_string(),
            learned: learned.clone(),
        };
        assert!(!expected(true).is_wrong_for(FEW) && !expected(false).is_wrong_for(FEW + 1));
        assert!(!expected(false).is_wrong_for(FEW / 2 + 1));
        assert_eq!(learned.rows("part"), None);
        assert!(expected(true).is_wrong_for(FEW + 1));
        assert_eq!(learned.rows("part"), Some(FEW + 1));
        assert!(expected(false).is_wrong_for(3));
        assert!(expected(false).is_wrong_for(1_000_001));
        assert_eq!(learned.rows("part"), Some(1_000_001));
        assert_eq!(learned.rows("other"), None);
    }
}
