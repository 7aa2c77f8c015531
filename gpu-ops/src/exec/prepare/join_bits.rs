//! By which bits of their keys the sides of a join are partitioned.

use crate::codegen::JoinKeys;
use crate::device::DeviceInfo;
use crate::exec::prepare::part_sizes::{ColumnShape, PartSize, arranged_parts};
use crate::primitives::{self, Digits};

/// Most bits that a dense partition leaves of a code: its array has as many places, of two bytes each.
const MOST_ARRAY_BITS: u32 = 13;
/// An array over the codes of a partition has fewer than so many places for each row. Codes with larger gaps are apt to have
/// them at regular distances (every fourth number, eight of 32), so that some partitions by their lowest bits would be
/// empty and others so much larger; hashes know no such distances.
const PLACES_FOR_A_ROW: u64 = 2;

/// By which hash bits two sides are partitioned to be joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::exec) struct JoinBits {
    /// So many of the lowest are the same for all rows at hand, which are one of `2^known` parts of their sides.
    pub(in crate::exec) known: u32,
    /// By so many above these.
    pub(in crate::exec) bits: u32,
    /// Not of hashes but of the codes themselves, which are so dense that an array over those of a partition takes the place
    /// of its hash table.
    pub(in crate::exec) dense: bool,
}

impl JoinBits {
    /// Hash bits of all rows of the sides.
    pub(in crate::exec) fn of_all(bits: u32) -> Self {
        Self {
            bits,
            ..Self::default()
        }
    }

    /// The bits for so many build rows, of which `known` hash bits are the same. Rows that were split by hash are never
    /// dense: they are spread over all arrays.
    pub(in crate::exec) fn of_rows(
        rows: u64,
        keys: JoinKeys,
        known: u32,
        device: &DeviceInfo,
    ) -> Self {
        let bits = primitives::partition_bits(rows, keys.width, device);
        let codes = 1u64.checked_shl(keys.bits);
        let filled = codes.is_some_and(|codes| codes < rows.saturating_mul(PLACES_FOR_A_ROW));
        let fits = keys.width <= 8 && keys.bits <= bits + MOST_ARRAY_BITS;
        Self {
            known,
            bits,
            dense: !keys.join.sorts() && known == 0 && fits && filled,
        }
    }
}

/// What the keys of a side with these columns are partitioned by, or sorted by, to be joined then.
pub(in crate::exec) fn digits(columns: &[ColumnShape], keys: JoinKeys, bits: JoinBits) -> Digits {
    let parts = || arranged_parts(columns, keys, bits.bits, 0, false);
    // Unless a column is read from the keys, the join is all that looks at them from here on.
    let only_joined = !columns.iter().any(|column| column.key_alias);
    if keys.join.sorts() || bits.dense {
        Digits::Key
    } else if only_joined && primitives::keeps_hashes(keys.width, moved(&parts()), bits.bits) {
        Digits::KeptHash
    } else {
        Digits::Hash
    }
}

/// How many parts move with the keys.
pub(in crate::exec) fn moved(parts: &[PartSize]) -> usize {
    parts.iter().filter(|size| size.part.moves()).count()
}
