//! What each purpose may take of device memory: every share of it that planner and executor go by, with its reason.
//!
//! Shares are of the budget: the limit that the user set ([`Budget::within`]), or what was free when the device was opened
//! ([`Budget::of_free`]). Never of the device's memory as such, of which other programs and the limit may leave less. What is decided
//! by what nobody uses at the moment is a share of [`Free`].

/// Device memory left to the driver, to modules and to other programs, at least, in bytes.
const HEADROOM: u64 = 256 << 20;

/// Bytes that the memory of one kind, of a device or the host, is used up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(u64);

impl Budget {
    /// Times that the room for columns can be made tighter.
    pub(crate) const TIGHTENINGS: u32 = Self::QUARTERS.len() as u32 - 1;
    /// By level: the share of the budget that the columns of a query may take, in quarters. Results get the rest; where that
    /// is not enough either, columns come in strides and results may lie in host memory.
    const QUARTERS: [u64; 3] = [3, 1, 0];

    /// So many bytes.
    pub const fn of(bytes: u64) -> Self {
        Self(bytes)
    }

    /// All of `memory` bytes, or the limit that the user set where that is less.
    pub fn within(memory: u64, limit: Option<u64>) -> Self {
        Self(limit.map_or(memory, |limit| limit.min(memory)))
    }

    /// Of `free` bytes all but a twentieth or the least that other users of the device need.
    pub fn of_free(free: u64) -> Self {
        Self(free.saturating_sub((free / 20).max(HEADROOM)))
    }

    /// Of a host with so many bytes, half: page-locked memory is taken from everything else that runs there.
    pub fn of_host(memory: u64) -> Self {
        Self(memory / 2)
    }

    /// All of it.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Columns of a query, after so many tightenings.
    pub(crate) fn columns(self, tightenings: u32) -> u64 {
        let level = tightenings.min(Self::TIGHTENINGS) as usize;
        self.0 / 4 * Self::QUARTERS[level]
    }

    /// One index that is kept for later queries: columns come first, and other indexes.
    pub const fn kept_index(self) -> u64 {
        self.0 / 4
    }

    /// A table of group states where memory is short, beside strides and what else the pipeline reads.
    pub fn group_states(self) -> u64 {
        self.0 / 2
    }

    /// A portion of rows at work: a piece, the rows of a part, the rows of a join's side that are joined at once. Rows lie on the
    /// device twice while they are partitioned or sorted, those of the next portion come meanwhile, and there is what is made
    /// of them.
    pub fn portion(self) -> u64 {
        self.0 / 12
    }

    /// Probing rows of a pair of partitions, which come in pieces where they are many more: those without a match and those of
    /// a frequent key lie in one partition.
    pub(crate) fn probing_rows(self) -> u64 {
        self.portion() / 2
    }

    /// A partition of a join's side: several lie on the device at a time, and chunks that are not spilled.
    pub(crate) fn join_partition(self) -> u64 {
        self.0 / 48
    }

    /// What stays free of a partitioned join for what the steps behind it make.
    pub(crate) fn behind_join(self) -> u64 {
        self.0 / 16
    }

    /// The hash table of the groups of one part.
    pub(crate) fn part_table(self) -> u64 {
        self.0 / 4
    }

    /// Small blocks beside the control words, which stay until the end of a run.
    pub(crate) fn head_blocks(self) -> u64 {
        self.0 / 128
    }

    /// Rows of one result that lie on the device although they may lie in host memory: device memory is for what is accessed
    /// at random, and for rows at work.
    pub(crate) fn rows_on_device(self) -> u64 {
        self.0 / 8
    }

    /// Of host memory: what is left to results where partitions may go to files.
    pub(crate) fn beside_files(self) -> u64 {
        self.0 / 8
    }

    /// Of host memory: rows that the CPU has computed for a fragment, until it is over.
    pub(crate) fn inputs(self) -> u64 {
        self.0 / 4
    }

    /// A perfect index, one place a possible key, where a hash index of its keys would be smaller: as much as an index that is
    /// kept.
    pub fn perfect_index(self) -> u64 {
        self.kept_index()
    }

    /// A dense array of group states, one place a possible group, where a hash table of the groups would be smaller: as much
    /// as that may begin with.
    pub fn dense_groups(self) -> u64 {
        self.hash_groups()
    }

    /// A hash table of groups at its beginning. The bound of groups is often loose, and the estimate may be wrong: the table
    /// grows.
    pub fn hash_groups(self) -> u64 {
        self.0 / 4
    }

    /// Rows that are partitioned or sorted in one portion, in and out of place together.
    pub fn rows_out_of_place(self) -> u64 {
        self.0 / 2
    }

    /// What a join keeps until all rows are joined: columns, rows at work and other results have the rest.
    pub fn join_state(self) -> u64 {
        self.0 / 2
    }
}

/// Bytes of a budget that nobody uses at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    pub(crate) budget: Budget,
}

impl Free {
    /// The slots of strides take at most this share of what is free.
    const STRIDES: u64 = 4;

    /// A first attempt at a result takes room for all the rows that there can be up to here, a table of groups grows by more
    /// than it must.
    pub(crate) fn first_attempt(self) -> u64 {
        self.bytes / 8
    }

    /// A result that turned out larger takes more than it needs at once up to here.
    pub(crate) fn regrown(self) -> u64 {
        self.bytes / 2
    }

    /// The sets of all DISTINCT calls of a group-by start with room for every row up to here.
    pub(crate) fn distinct_sets(self) -> u64 {
        self.bytes / 16
    }

    /// Each of two buffers that the copy bandwidth is measured with: smaller ones rather than evictions.
    pub(crate) fn copy_buffer(self) -> u64 {
        self.bytes / 4
    }

    /// Each of the buffers that a device is calibrated on.
    pub(crate) fn calibrated(self) -> u64 {
        self.bytes / 2
    }

    /// Slots of strides beside `results` bytes of results: as far as they can do with less no more than these leave, but a
    /// sixteenth always.
    pub(crate) fn strides(self, results: u64) -> u64 {
        let beside = self.bytes.saturating_sub(results);
        beside.clamp(self.bytes / 16, self.bytes / Self::STRIDES)
    }

    /// What strides get of the memory that results of so many bytes leave beside the columns, in proportion.
    pub(crate) fn strides_beside(results: u64) -> u64 {
        results / (Self::STRIDES - 1)
    }

    /// More than half of the budget is free: rows that may go to host memory stay.
    pub(crate) fn is_plenty(self) -> bool {
        self.bytes > self.budget.0 / 2
    }

    /// More than three quarters are: no more rows have to leave for files.
    pub(crate) fn is_nearly_all(self) -> bool {
        self.bytes > self.budget.0 / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_limit_counts_and_not_the_card() {
        assert_eq!(Budget::within(140 * GIB, None).bytes(), 140 * GIB);
        let limited = Budget::within(140 * GIB, Some(16 * GIB));
        assert_eq!(limited, Budget::of(16 * GIB));
        assert_eq!(Budget::within(8 * GIB, Some(16 * GIB)), Budget::of(8 * GIB));
        assert_eq!(limited.perfect_index(), 4 * GIB);
        assert_eq!(limited.join_state(), 8 * GIB);
        assert_eq!(Budget::of_free(20 * GIB).bytes(), 19 * GIB);
        assert_eq!(Budget::of_free(GIB).bytes(), GIB - HEADROOM);
        assert_eq!(Budget::of_free(1).bytes(), 0);
    }

    #[test]
    fn what_lies_on_the_device_together_fits() {
        let budget = Budget::of(48 * GIB);
        // A portion as it came, in partitions, the next one, and what is made of it.
        assert!(4 * budget.portion() <= budget.bytes() / 2);
        assert!(4 * budget.join_partition() <= budget.portion());
        assert!(budget.group_states() + 2 * budget.portion() < budget.bytes());
        let columns = (0..=Budget::TIGHTENINGS).map(|level| budget.columns(level));
        assert!(columns.is_sorted_by(|more, less| more > less));
        assert_eq!(budget.columns(Budget::TIGHTENINGS), 0);
    }

    #[test]
    fn strides_leave_room_to_results() {
        let free = Free {
            bytes: 16 * GIB,
            budget: Budget::of(16 * GIB),
        };
        assert_eq!(free.strides(0), 4 * GIB);
        assert_eq!(free.strides(14 * GIB), 2 * GIB);
        assert_eq!(free.strides(u64::MAX), GIB);
        assert_eq!(Free::strides_beside(12 * GIB), 4 * GIB);
        assert!(free.is_plenty() && free.is_nearly_all());
        let half = Free {
            bytes: 9 * GIB,
            ..free
        };
        assert!(half.is_plenty() && !half.is_nearly_all());
    }
}
