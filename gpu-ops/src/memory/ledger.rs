//! The holders of a pool's memory, for errors when an allocation is refused.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::device::DevicePtr;

/// Owners that are named; the others are added up.
const NAMED: usize = 16;

/// What the buffers of a pool are for, with their bytes.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    buffers: HashMap<DevicePtr, (Arc<str>, usize)>,
}

impl Ledger {
    /// A buffer was handed out.
    pub(super) fn enter(&mut self, ptr: DevicePtr, purpose: &Arc<str>, bytes: usize) {
        self.buffers.insert(ptr, (Arc::clone(purpose), bytes));
    }

    /// A buffer came back.
    pub(super) fn strike(&mut self, ptr: DevicePtr) {
        self.buffers.remove(&ptr);
    }
}

/// `12582912 column l_orderkey of lineitem, 4194304 output`, largest first.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
        for (purpose, bytes) in self.buffers.values() {
            *owners.entry(purpose).or_default() += bytes;
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        owners.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (number, (purpose, bytes)) in owners.iter().take(NAMED).enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{bytes} {purpose}")?;
        }
        if owners.len() > NAMED {
            let rest: usize = owners[NAMED..].iter().map(|(_, bytes)| bytes).sum();
            write!(f, ", {rest} of {} others", owners.len() - NAMED)?;
        }
        Ok(())
    }
}
