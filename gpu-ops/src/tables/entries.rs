//! Entries of the cache: tables, their resident columns by form, and their last use.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use datafusion::datasource::listing::PartitionedFile;

use super::elements::{ElementsAnchor, ElementsKey};
use super::files::{FileKey, FileTable};
use super::loaded::LoadedTable;
use super::memory::{MemoryAnchor, MemoryKey};
use super::source::TableSource;
use super::struct_fields::StructFields;
use crate::column::{Column, Encoding, is_text};
use crate::error::{GpuError, Result};

/// All tables that were requested and can be requested again.
#[derive(Default)]
pub(super) struct State {
    pub(super) tables: HashMap<TableKey, Table>,
    /// Counts requests: the clock of `last_used`.
    pub(super) requests: u64,
}

/// The identity of a table and of the state of its files or batches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TableKey {
    Files(FileKey),
    Memory(MemoryKey),
    Elements(ElementsKey),
}

/// Keeps the addresses in a key valid.
#[derive(Clone)]
pub(super) enum Anchor {
    Files {
        /// What the key names by its address.
        #[allow(dead_code, reason = "held, not read")]
        table: Arc<FileTable>,
        /// The order of the rows: positions of files in the key. Those that were added to a known table come last.
        order: Arc<[usize]>,
    },
    Memory(Arc<MemoryAnchor>),
    Elements(Arc<ElementsAnchor>),
}

/// One table.
pub(super) struct Table {
    pub(super) name: Arc<str>,
    pub(super) fields: Arc<StructFields>,
    pub(super) anchor: Anchor,
    pub(super) rows: Option<usize>,
    pub(super) columns: BTreeMap<ColumnKey, Resident>,
    /// Held while columns of the table are loaded, so that each is loaded once.
    pub(super) loading: Arc<tokio::sync::Mutex<()>>,
    /// Were columns of a table with more files made of these since these were asked for?
    pub(super) is_outgrown: bool,
}

/// The key of a cached column: its number in the table, and its form.
pub(super) type ColumnKey = (usize, Form);

/// The form of a column; a string column can be resident in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// Encoded by the cache's policy; a dictionary also serves requests for codes.
    Plain,
    /// Dictionary codes although the policy prefers bytes.
    Codes,
}

/// A requested column: its number, and whether its strings must be dictionary codes.
pub(super) type Wanted = (usize, bool);

/// A column in the cache.
pub(super) struct Resident {
    pub(super) column: Arc<Column>,
    pub(super) hits: u64,
    pub(super) last_used: u64,
    /// Held while the column is pinned in device memory.
    pub(super) pin: Weak<Pin>,
}

/// What all who pin a column share; the column is pinned while it lives.
#[derive(Debug)]
pub(super) struct Pin;

/// Is a column pinned?
pub(super) fn is_pinned(pin: &Weak<Pin>) -> bool {
    pin.strong_count() > 0
}

/// The result of one look-up.
pub(super) struct Found {
    pub(super) rows: Option<usize>,
    pub(super) columns: Vec<Option<Arc<Column>>>,
    /// Which of them are pinned.
    pub(super) pinned: Vec<bool>,
    pub(super) loading: Arc<tokio::sync::Mutex<()>>,
    pub(super) anchor: Anchor,
}

impl Found {
    /// The table, if nothing is left to load.
    pub(super) fn complete(&self) -> Option<LoadedTable> {
        Some(LoadedTable {
            rows: self.rows?,
            columns: self.columns.iter().cloned().collect::<Option<_>>()?,
            load_ms: 0.0,
            bytes_uploaded: 0,
            columns_loaded: 0,
            ..LoadedTable::default()
        })
    }
}

impl Anchor {
    /// The files of the table in the order of its rows.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when they are others.
    pub(super) fn in_order(&self, files: &[PartitionedFile]) -> Result<Vec<PartitionedFile>> {
        let Self::Files { order, .. } = self else {
            return Ok(files.to_vec());
        };
        let ordered = order.iter().map(|at| files.get(*at).cloned()).collect();
        let ordered: Option<Vec<_>> = ordered;
        ordered
            .filter(|ordered| ordered.len() == files.len())
            .ok_or_else(|| GpuError::Internal("a table has other files than its entry".into()))
    }

    /// Does row `n` of columns loaded by one belong to row `n` of columns loaded by the other?
    pub(super) fn has_order_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files { order: a, .. }, Self::Files { order: b, .. }) => a == b,
            (Self::Memory(a), Self::Memory(b)) => a.has_order_of(b),
            (Self::Elements(a), Self::Elements(b)) => a.is_same(b),
            _ => false,
        }
    }
}

impl Table {
    /// Do the rows lie in the order of a resident column?
    pub(super) fn has_sorted(&self) -> bool {
        let mut columns = self.columns.values();
        columns.any(|resident| resident.column.statistics.sorted)
    }

    /// Looks columns up and notes their use at `now`.
    pub(super) fn look_up(&mut self, columns: &[Wanted], now: u64) -> Found {
        self.is_outgrown = false;
        let found = columns.iter().map(|wanted| {
            let at = self.column_key(*wanted)?;
            let resident = self.columns.get_mut(&at)?;
            resident.last_used = now;
            Some((Arc::clone(&resident.column), is_pinned(&resident.pin)))
        });
        let found: Vec<_> = found.collect();
        Found {
            pinned: found.iter().map(|f| matches!(f, Some((_, true)))).collect(),
            columns: found.into_iter().map(|f| Some(f?.0)).collect(),
            rows: self.rows,
            loading: Arc::clone(&self.loading),
            anchor: self.anchor.clone(),
        }
    }

    /// The key of the form that serves the request.
    pub(super) fn column_key(&self, (column, codes): Wanted) -> Option<ColumnKey> {
        let plain = (column, Form::Plain);
        let serves = |resident: &Resident| {
            !codes || !matches!(resident.column.encoding, Encoding::Bytes { .. })
        };
        if self.columns.get(&plain).is_some_and(serves) {
            return Some(plain);
        }
        let special = (column, Form::Codes);
        (codes && self.columns.contains_key(&special)).then_some(special)
    }
}

/// The request, with codes only for strings, and the same form for all mentions of a column.
pub(super) fn wanted(source: &TableSource, columns: &[usize], needs_codes: &[bool]) -> Vec<Wanted> {
    let needs = |at: usize| needs_codes.get(at).copied().unwrap_or(false);
    let text = |column: usize| {
        let field = source.schema().fields().get(column);
        field.is_some_and(|field| is_text(field.data_type()))
    };
    let codes = |column: usize| {
        text(column) && (0..columns.len()).any(|at| columns[at] == column && needs(at))
    };
    columns
        .iter()
        .map(|column| (*column, codes(*column)))
        .collect()
}

/// The requested columns that were not found, each once, ascending.
pub(super) fn missing_of(wanted: &[Wanted], found: &[Option<Arc<Column>>]) -> Vec<Wanted> {
    let missing = wanted.iter().zip(found);
    let mut missing: Vec<Wanted> = missing
        .filter_map(|(column, found)| found.is_none().then_some(*column))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// The numbers of the columns, without their forms.
pub(super) fn numbers(columns: &[Wanted]) -> Vec<usize> {
    columns.iter().map(|(column, _)| *column).collect()
}

impl State {
    /// The entry of a table, made where there is none.
    pub(super) fn table(
        &mut self,
        key: &TableKey,
        source: &TableSource,
        anchor: &Anchor,
    ) -> &mut Table {
        self.tables.entry(key.clone()).or_insert_with(|| Table {
            name: Arc::clone(&source.name),
            fields: Arc::clone(&source.fields),
            anchor: anchor.clone(),
            rows: None,
            columns: BTreeMap::new(),
            loading: Arc::default(),
            is_outgrown: false,
        })
    }

    /// Drop tables that no scan can request any more, now that `key` appears: older states of its files, and memory
    /// tables whose arrays are gone, and elements of lists that no column has. Those of fewer files go as well where nothing is left of them: each file that is added leaves one.
    pub(super) fn drop_stale(&mut self, key: &TableKey) {
        self.tables
            .retain(|other, table| match (other, key, &table.anchor) {
                (TableKey::Files(other), TableKey::Files(key), Anchor::Files { order, .. }) => {
                    let is_empty =
                        table.columns.is_empty() && Arc::strong_count(&table.loading) == 1;
                    let is_left = is_empty && key.order_behind(other, order).is_some();
                    !key.supersedes(other) && !is_left
                }
                (TableKey::Memory(_), _, Anchor::Memory(anchor)) => !anchor.is_dead(),
                (TableKey::Elements(_), _, Anchor::Elements(anchor)) => !anchor.is_dead(),
                _ => true,
            });
    }
}

/// The encoding, for people.
pub(super) fn describe(encoding: &Encoding) -> String {
    match encoding {
        Encoding::Bits => "bits".into(),
        Encoding::Integer { width, base } => format!("integer({width} bytes, base {base})"),
        Encoding::Float { width } => format!("float({width} bytes)"),
        Encoding::Dictionary { width, dictionary } => {
            format!("dictionary({width} bytes, {} values)", dictionary.len())
        }
        Encoding::Bytes { .. } => "offsets and bytes".into(),
    }
}
