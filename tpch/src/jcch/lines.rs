//! Rows of lineitem.

use std::ops::Range;

use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{LineItem, OrderGenerator, PartGeneratorIterator};
use tpchgen::random::{RandomBoundedInt, RandomString, RandomText};

use super::keys::{Keys, POPULOUS_PARTS, is_returned};
use super::orders::{Head, Heads};
use super::parts::first_key;
use super::stream::{Comments, Integers, words_after};

/// Draws per order that the streams of lines are made for.
const LINES_PER_ROW: i32 = OrderGenerator::LINE_COUNT_MAX;

/// The part of a line that decides what the order costs and when it ships.
pub(crate) struct PricedLine {
    /// Permuted number of the supplier.
    supplier: u64,
    part_key: i64,
    /// Part of the planted skew: its quantity, mode and instruction are fixed.
    is_marked: bool,
    quantity: i64,
    /// Cents.
    pub(crate) extended_price: i64,
    /// Percent.
    pub(crate) discount: i32,
    /// Percent.
    pub(crate) tax: i32,
    /// As the generator counts days.
    pub(crate) ship_date: i32,
}

/// Where line `line` of order `index` stands in the streams that draw once for each line.
///
/// The lines of a populous order beyond the seventh are more than the row's draws, so all later rows start later.
fn draws_before(keys: &Keys, index: u64, line: u64) -> u64 {
    let (populous, _) = keys.populous_orders_before(index);
    7 * (index - 1) + populous * (keys.populous_lines() - 7) + line
}

/// The streams of [`PricedLine`].
pub(crate) struct Prices {
    quantity: RandomBoundedInt,
    discount: RandomBoundedInt,
    tax: RandomBoundedInt,
    part: RandomBoundedInt,
    ship: RandomBoundedInt,
    gold: u64,
}

impl Prices {
    /// The streams at line `line` of order `index`; only in a populous order may it be another than the first.
    pub(crate) fn at(keys: &Keys, index: u64, line: u64) -> Self {
        let draws = draws_before(keys, index, line);
        let parts = keys.part_rows() as i32;
        Self {
            quantity: Integers(209_208_115, 1, 50, LINES_PER_ROW).after(draws),
            discount: Integers(554_590_007, 0, 10, LINES_PER_ROW).after(draws),
            tax: Integers(721_958_466, 0, 8, LINES_PER_ROW).after(draws),
            // Populous orders draw no parts.
            part: Integers(1_808_217_256, 1, parts, LINES_PER_ROW).after(7 * (index - 1)),
            ship: Integers(1_769_349_045, 1, 121, LINES_PER_ROW).after(draws),
            gold: keys.gold(),
        }
    }

    /// Line `line`, from 0, of an order.
    pub(crate) fn next(&mut self, keys: &Keys, head: &Head, line: u64) -> PricedLine {
        let region = head.region();
        let drawn_quantity = self.quantity.next_value();
        let (part, supplier, is_marked) = if head.is_populous() {
            let (part, supplier) = keys.populous_line(region, line);
            (part, supplier, true)
        } else {
            let drawn = self.part.next_value() as u64;
            if line == 0 && !head.is_sanctuary {
                (region, keys.supplier_of(region, 0), true)
            } else {
                let turn = POPULOUS_PARTS + keys.parts.hash(drawn) % (self.gold - POPULOUS_PARTS);
                let part = turn / 5 * 5 + region;
                (part, keys.supplier_of(part, 1), false)
            }
        };
        let part_key = keys.parts.key(part) as i64;
        let quantity = if is_marked {
            51
        } else {
            i64::from(drawn_quantity)
        };
        PricedLine {
            supplier,
            part_key,
            is_marked,
            quantity,
            extended_price: PartGeneratorIterator::calculate_part_price(part_key) * quantity,
            discount: self.discount.next_value(),
            tax: self.tax.next_value(),
            ship_date: head.date + self.ship.next_value(),
        }
    }

    /// Goes to the order after `head`.
    pub(crate) fn row_finished(&mut self, keys: &Keys, head: &Head) {
        if head.is_populous() {
            // It may have been entered in its middle.
            *self = Self::at(keys, head.index + 1, 0);
            return;
        }
        self.quantity.row_finished();
        self.discount.row_finished();
        self.tax.row_finished();
        self.part.row_finished();
        self.ship.row_finished();
    }
}

/// The streams of the columns that [`PricedLine`] lacks.
struct Details {
    commit: RandomBoundedInt,
    receipt: RandomBoundedInt,
    flag: RandomString<'static>,
    instruction: RandomString<'static>,
    mode: RandomString<'static>,
    comment: RandomText<'static>,
}

impl Details {
    const COMMENT: Comments = Comments(1_095_462_486, 27.0, LINES_PER_ROW);

    /// The streams at a line, as [`Prices::at`].
    fn at(keys: &Keys, index: u64, line: u64) -> Self {
        let draws = draws_before(keys, index, line);
        // Lines that are not received by 17 June 1995 draw no flag: of populous orders, either all or none.
        let (_, returned) = keys.populous_orders_before(index);
        let lines_returned = match is_returned(keys.orders.hash(index)) {
            true => line,
            false => 0,
        };
        let flags = 7 * (index - 1) + returned * (keys.populous_lines() - 7) + lines_returned;
        let words = Distributions::static_default();
        Self {
            commit: Integers(904_914_315, 30, 90, LINES_PER_ROW).after(draws),
            receipt: Integers(373_135_028, 1, 30, LINES_PER_ROW).after(draws),
            flag: words_after(717_419_739, words.return_flags(), LINES_PER_ROW, flags),
            instruction: words_after(
                1_371_272_478,
                words.ship_instructions(),
                LINES_PER_ROW,
                draws,
            ),
            mode: words_after(675_466_456, words.ship_modes(), LINES_PER_ROW, draws),
            comment: Self::COMMENT.after(2 * draws),
        }
    }

    fn row_finished(&mut self, keys: &Keys, head: &Head) {
        if head.is_populous() {
            *self = Self::at(keys, head.index + 1, 0);
            return;
        }
        self.commit.row_finished();
        self.receipt.row_finished();
        self.flag.row_finished();
        self.instruction.row_finished();
        self.mode.row_finished();
        self.comment.row_finished();
    }
}

/// Rows of lineitem, in the order of `l_orderkey` and `l_linenumber`, from any row on.
pub(crate) struct Lines {
    keys: Keys,
    rows: Range<u64>,
    heads: Heads,
    /// The order of the next row, and which of its lines is next.
    head: Head,
    order_key: i64,
    line: u64,
    prices: Prices,
    details: Details,
}

impl Lines {
    /// The rows of a range, counted from 0.
    pub(crate) fn new(keys: Keys, rows: Range<u64>) -> Self {
        let index = first_key(keys.order_rows(), |index| {
            keys.lines_before(index + 1) > rows.start
        });
        let first = keys.lines_before(index);
        let mut heads = Heads::from(keys, index);
        let head = heads.next();
        // A populous order can be entered anywhere; of another, the few lines before are drawn and dropped.
        let line = match head.is_populous() {
            true => rows.start - first,
            false => 0,
        };
        let mut lines = Self {
            keys,
            rows: first + line..rows.end,
            heads,
            head,
            order_key: OrderGenerator::make_order_key(index as i64),
            line,
            prices: Prices::at(&keys, index, line),
            details: Details::at(&keys, index, line),
        };
        while lines.rows.start < rows.start && lines.next().is_some() {}
        lines
    }

    /// Goes to the first line of the next order.
    fn next_order(&mut self) {
        self.prices.row_finished(&self.keys, &self.head);
        self.details.row_finished(&self.keys, &self.head);
        self.head = self.heads.next();
        self.order_key = OrderGenerator::make_order_key(self.head.index as i64);
        self.line = 0;
    }
}

impl Iterator for Lines {
    type Item = LineItem<'static>;

    fn next(&mut self) -> Option<LineItem<'static>> {
        self.rows.next()?;
        if self.line == self.head.lines {
            self.next_order();
        }
        let head = &self.head;
        let line = self.prices.next(&self.keys, head, self.line);
        self.line += 1;

        let details = &mut self.details;
        let commit_date = head.date + details.commit.next_value();
        let receipt_date = line.ship_date + details.receipt.next_value();
        let mut flag = match TPCHDate::is_in_past(receipt_date) {
            true => details.flag.next_value(),
            false => "N",
        };
        if !line.is_marked && self.order_key % 50 != 0 && head.is_on_black_friday() {
            flag = "R";
        }
        let mut instruction = details.instruction.next_value();
        let mut mode = details.mode.next_value();
        if line.is_marked {
            (instruction, mode) = ("DELIVER IN PERSON", "REG AIR");
        }
        Some(LineItem {
            l_orderkey: self.order_key,
            l_partkey: line.part_key,
            l_suppkey: self.keys.suppliers.key(line.supplier) as i64,
            l_linenumber: self.line as i32,
            l_quantity: line.quantity,
            l_extendedprice: TPCHDecimal(line.extended_price),
            l_discount: TPCHDecimal(i64::from(line.discount)),
            l_tax: TPCHDecimal(i64::from(line.tax)),
            l_returnflag: flag,
            l_linestatus: match TPCHDate::is_in_past(line.ship_date) {
                true => "F",
                false => "O",
            },
            l_shipdate: TPCHDate::new(line.ship_date),
            l_commitdate: TPCHDate::new(commit_date),
            l_receiptdate: TPCHDate::new(receipt_date),
            l_shipinstruct: instruction,
            l_shipmode: mode,
            l_comment: details.comment.next_value(),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}
