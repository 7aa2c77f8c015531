//! Rows of part and partsupp.

use std::ops::Range;
use std::sync::LazyLock;

use tpchgen::decimal::TPCHDecimal;
use tpchgen::distribution::Distribution;
use tpchgen::generators::{Part, PartBrandName, PartGenerator, PartSupp};
use tpchgen::random::{RandomBoundedInt, RandomStringSequence, RandomText};

use super::keys::{Keys, POPULOUS_PARTS};
use super::people::scale_for;
use super::stream::{Comments, Integers};

/// The type of populous parts, and of the parts beyond [`Keys::gold`].
const GOLD_TYPE: &str = "SHINY MINED GOLD";

/// The name of populous parts, as a distribution of one name: only a generator makes the type of `p_name`.
static GOLD_NAME: LazyLock<Distribution> =
    LazyLock::new(|| Distribution::new("gold", vec![("shiny mined gold", 1)]));

/// The container of populous parts.
const GOLD_CONTAINER: &str = "LG BOX";

/// The parts of part `part` (from 1) of `parts`.
pub(crate) fn parts(
    keys: Keys,
    part: i32,
    parts: i32,
) -> impl Iterator<Item = Part<'static>> + Send {
    let scale = scale_for(keys.part_rows(), 200_000.0);
    let rows = PartGenerator::new(scale, part, parts).iter();
    let (gold, gold_brand) = (keys.gold(), PartBrandName::new(55));
    rows.map(move |mut row| {
        let hash = keys.parts.hash(row.p_partkey as u64);
        let is_gold_container = row.p_container == GOLD_CONTAINER;
        if hash < POPULOUS_PARTS {
            row.p_name = RandomStringSequence::new(1, 1, &GOLD_NAME).next_value();
            row.p_brand = gold_brand;
            row.p_type = GOLD_TYPE;
            row.p_size = 1;
            row.p_container = GOLD_CONTAINER;
            return row;
        }
        // No other part has two of: the brand, the type, the size 1 and the container of the populous ones.
        if row.p_brand == gold_brand {
            if is_gold_container {
                row.p_brand = PartBrandName::new(15);
            }
        } else if hash > gold {
            row.p_type = GOLD_TYPE;
        } else if !is_gold_container {
            return row;
        }
        if row.p_size == 1 {
            row.p_size = 2 + (hash % 50) as i32;
        }
        row
    })
}

const SUPPLY_COST: Integers = Integers(1_051_288_424, 100, 100_000, 4);
const AVAILABLE_QUANTITY: Integers = Integers(1_671_059_989, 1, 9_999, 4);
const COMMENT: Comments = Comments(1_961_692_154, 124.0, 4);

/// Rows of partsupp, in the order of `ps_partkey`, from any row on.
pub(crate) struct PartSupps {
    keys: Keys,
    rows: Range<u64>,
    /// The part of the next row, and which of its suppliers is next.
    part: u64,
    supplier: u64,
    /// Number of suppliers of that part.
    suppliers: u64,
    streams: Streams,
}

/// The streams of one part's rows.
struct Streams {
    cost: RandomBoundedInt,
    quantity: RandomBoundedInt,
    comment: RandomText<'static>,
}

impl Streams {
    /// The streams at supplier `supplier` of part `part`.
    fn at(keys: &Keys, part: u64, supplier: u64) -> Self {
        let drift = keys.populous_parts_before(part) * (keys.supplier_rows() - 4);
        let row = 4 * (part - 1);
        let drawn = match keys.parts.hash(part) < POPULOUS_PARTS {
            true => 0,
            false => supplier,
        };
        Self {
            cost: SUPPLY_COST.after(row + drift + supplier),
            quantity: AVAILABLE_QUANTITY.after(row + drawn),
            comment: COMMENT.after(2 * (row + drift + supplier)),
        }
    }

    fn row_finished(&mut self) {
        self.cost.row_finished();
        self.quantity.row_finished();
        self.comment.row_finished();
    }
}

impl PartSupps {
    /// The rows of a range, counted from 0.
    pub(crate) fn new(keys: Keys, rows: Range<u64>) -> Self {
        let part = first_key(keys.part_rows(), |key| {
            keys.partsupps_before(key + 1) > rows.start
        });
        let is_populous = keys.parts.hash(part) < POPULOUS_PARTS;
        let mut supps = Self {
            keys,
            rows: keys.partsupps_before(part)..rows.end,
            part,
            supplier: 0,
            suppliers: keys.suppliers_of(part),
            streams: Streams::at(&keys, part, 0),
        };
        if is_populous {
            supps.supplier = rows.start - supps.rows.start;
            supps.rows.start = rows.start;
            supps.streams = Streams::at(&keys, part, supps.supplier);
        }
        // Of other parts, the few rows before are drawn and dropped.
        while supps.rows.start < rows.start && supps.next().is_some() {}
        supps
    }
}

/// The first key from 1 to `rows` of which `reaches` is true; it is false below some key and true from there on.
pub(crate) fn first_key(rows: u64, reaches: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (1, rows);
    while low < high {
        let middle = low.midpoint(high);
        match reaches(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

impl Iterator for PartSupps {
    type Item = PartSupp<'static>;

    fn next(&mut self) -> Option<PartSupp<'static>> {
        self.rows.next()?;
        let hash = self.keys.parts.hash(self.part);
        let is_populous = hash < POPULOUS_PARTS;
        let supplier = match is_populous {
            true => self.supplier,
            false => self.keys.supplier_of(hash, self.supplier),
        };
        let row = PartSupp {
            ps_partkey: self.part as i64,
            ps_suppkey: self.keys.suppliers.key(supplier) as i64,
            ps_availqty: match is_populous {
                true => (4_000_000 * self.keys.whole_scale()) as i32,
                false => self.streams.quantity.next_value(),
            },
            ps_supplycost: TPCHDecimal(i64::from(self.streams.cost.next_value())),
            ps_comment: self.streams.comment.next_value(),
        };
        self.supplier += 1;
        if self.supplier == self.suppliers {
            self.supplier = 0;
            self.part += 1;
            self.suppliers = self.keys.suppliers_of(self.part);
            match is_populous {
                true => self.streams = Streams::at(&self.keys, self.part, 0),
                false => self.streams.row_finished(),
            }
        }
        Some(row)
    }
}
