//! Tables of record batches in memory, identified by the addresses of their arrays.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion::datasource::memory::MemorySourceConfig;
use parking_lot::RwLock;

/// A memory table as one scan sees it.
pub(super) struct MemoryTable {
    /// All batches, in the order of the scan's partitions.
    pub(super) batches: Vec<RecordBatch>,
    /// Position of each batch in the order of the key.
    by_key: Vec<usize>,
    key: RwLock<MemoryKey>,
}

/// Rows and array addresses of every batch, the batches in the order of these numbers; equal for
/// two scans of the same batches however they were spread over partitions. Valid while the arrays'
/// allocations live, which [`MemoryAnchor`] ensures. Types belong to it because a table without batches has no address.
///
/// A large table has a hundred thousand of these numbers, so they are hashed once, and clones of a key are told
/// to be equal without reading them.
#[derive(Debug, Clone)]
pub(super) struct MemoryKey {
    types: Arc<[DataType]>,
    batches: Arc<[usize]>,
    hash: u64,
}

impl MemoryKey {
    fn new(schema: &Schema, batches: Arc<[usize]>) -> Self {
        let types: Arc<[DataType]> = schema
            .fields()
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let mut hasher = DefaultHasher::new();
        batches.hash(&mut hasher);
        Self {
            types,
            batches,
            hash: hasher.finish(),
        }
    }
}

impl PartialEq for MemoryKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (Arc::ptr_eq(&self.types, &other.types) || self.types == other.types)
            && (Arc::ptr_eq(&self.batches, &other.batches) || self.batches == other.batches)
    }
}

impl Eq for MemoryKey {}

impl Hash for MemoryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Keeps the addresses of a [`MemoryKey`] from being given to other arrays, without keeping the
/// arrays' data.
pub(super) struct MemoryAnchor {
    arrays: Vec<Weak<dyn Array>>,
    /// The cache's row order: positions in the order of the key.
    order: Vec<usize>,
}

impl MemoryTable {
    /// The table behind a scan of record batches.
    pub(super) fn of(config: &MemorySourceConfig) -> Self {
        let batches: Vec<RecordBatch> = config.partitions().iter().flatten().cloned().collect();
        Self::new(batches, &config.original_schema())
    }

    fn new(batches: Vec<RecordBatch>, schema: &Schema) -> Self {
        let columns = schema.fields().len();
        let width = columns + 1;
        let mut numbers = Vec::with_capacity(batches.len() * width);
        for batch in &batches {
            numbers.push(batch.num_rows());
            // A batch with fewer columns than its table cannot be scanned; its key only has to differ.
            numbers.extend((0..columns).map(|i| {
                let array = batch.columns().get(i);
                array.map_or(0, |array| Arc::as_ptr(array).cast::<()>() as usize)
            }));
        }
        let id = |batch: usize| &numbers[batch * width..(batch + 1) * width];
        let mut sorted: Vec<usize> = (0..batches.len()).collect();
        sorted.sort_by(|a, b| id(*a).cmp(id(*b)));
        let key = sorted
            .iter()
            .flat_map(|batch| id(*batch))
            .copied()
            .collect();
        let mut by_key = vec![0; batches.len()];
        for (position, batch) in sorted.iter().enumerate() {
            by_key[*batch] = position;
        }
        Self {
            batches,
            by_key,
            key: RwLock::new(MemoryKey::new(schema, key)),
        }
    }

    /// The key.
    pub(super) fn key(&self) -> MemoryKey {
        self.key.read().clone()
    }

    /// Use a key that is equal: clones of one are compared without reading it.
    pub(super) fn adopt(&self, equal: &MemoryKey) {
        if !Arc::ptr_eq(&self.key.read().batches, &equal.batches) {
            *self.key.write() = equal.clone();
        }
    }

    /// What the cache holds for as long as it uses the key.
    pub(super) fn anchor(&self) -> MemoryAnchor {
        MemoryAnchor {
            arrays: self
                .batches
                .iter()
                .flat_map(|batch| batch.columns().iter().map(Arc::downgrade))
                .collect(),
            order: self.by_key.clone(),
        }
    }

    /// The batches in the anchor's order, which another scan of the same batches may have set.
    pub(super) fn ordered(&self, anchor: &MemoryAnchor) -> Vec<RecordBatch> {
        let mut of_position = vec![0; self.batches.len()];
        for (batch, position) in self.by_key.iter().enumerate() {
            of_position[*position] = batch;
        }
        let ordered = anchor
            .order
            .iter()
            .filter_map(|position| of_position.get(*position));
        ordered.map(|batch| self.batches[*batch].clone()).collect()
    }
}

impl MemoryAnchor {
    /// Do both have the same order of rows?
    pub(super) fn has_order_of(&self, other: &Self) -> bool {
        self.order == other.order
    }

    /// Is any of the arrays gone? Then no scan can have the key any more.
    pub(super) fn is_dead(&self) -> bool {
        self.arrays.iter().any(|array| array.strong_count() == 0)
    }
}
