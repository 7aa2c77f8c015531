//! Rows of orders, and what their lines need to know of them.

use std::borrow::Cow;
use std::ops::Range;

use tpchgen::dates::{MIN_GENERATE_DATE, TOTAL_DATE_RANGE, TPCHDate};
use tpchgen::decimal::TPCHDecimal;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{ClerkName, LineItemGenerator, Order, OrderGenerator, OrderStatus};
use tpchgen::random::{RandomBoundedInt, RandomString, RandomText};

use super::keys::{Keys, POPULOUS_ORDERS, black_friday, day};
use super::lines::Prices;
use super::stream::{Comments, Integers, words_after};

/// How the comment of an order of a populous customer begins.
const MARK: &str = "1mine2 3gold4";

/// The years whose populous orders come first, by permuted number.
const POPULOUS_YEARS: [i32; POPULOUS_ORDERS as usize] = [1992, 1993, 1994, 1997, 1998];

/// What lines need to know of their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Number of the order, from 1 without gaps.
    pub(crate) index: u64,
    /// Its permuted number.
    pub(crate) hash: u64,
    /// The final order date, as the generator counts days.
    pub(crate) date: i32,
    /// 1995 and 1996 are years without skew.
    pub(crate) is_sanctuary: bool,
    /// Number of lines.
    pub(crate) lines: u64,
}

impl Head {
    /// The region of the customer.
    pub(crate) fn region(&self) -> u64 {
        self.hash % 5
    }

    /// One of the five orders with a sixth of all lines each.
    pub(crate) fn is_populous(&self) -> bool {
        self.hash < POPULOUS_ORDERS
    }

    /// Whether the order belongs to the populous customer of its region.
    fn is_of_populous_customer(&self) -> bool {
        !self.is_sanctuary && self.hash / 20 % 20 < 7
    }

    /// Whether the order date is a 28 May.
    pub(crate) fn is_on_black_friday(&self) -> bool {
        self.date == black_friday(day(self.date).year)
    }

    /// The customer.
    fn customer(&self, keys: &Keys) -> u64 {
        let slice = keys.customer_rows() / 5;
        let within = if self.is_of_populous_customer() {
            0
        } else {
            let turn = self.hash / 5 % (slice - slice / 3);
            (3 * turn / 2 % slice).max(1)
        };
        keys.customers.key(self.region() * slice + within)
    }
}

/// The heads of orders, from any order on.
#[derive(Debug)]
pub(crate) struct Heads {
    keys: Keys,
    next: u64,
    date: RandomBoundedInt,
}

impl Heads {
    const DATE: Integers = Integers(
        1_066_728_069,
        MIN_GENERATE_DATE,
        MIN_GENERATE_DATE + TOTAL_DATE_RANGE - LineItemGenerator::ITEM_SHIP_DAYS - 1,
        1,
    );

    /// Heads from order `index` on.
    pub(crate) fn from(keys: Keys, index: u64) -> Self {
        Self {
            keys,
            next: index,
            date: Self::DATE.after(index - 1),
        }
    }

    /// The next head; it is the caller who knows how many orders there are.
    pub(crate) fn next(&mut self) -> Head {
        let index = self.next;
        self.next += 1;
        let mut date = self.date.next_value();
        self.date.row_finished();
        let hash = self.keys.orders.hash(index);
        if let Some(&year) = POPULOUS_YEARS.get(hash as usize) {
            date = black_friday(year);
        }
        let drawn = day(date);
        if index % 4 < 3 && drawn.outer_months {
            date = black_friday(drawn.year);
        }
        Head {
            index,
            hash,
            date,
            is_sanctuary: matches!(drawn.year, 1995 | 1996),
            lines: self.keys.lines_of(index),
        }
    }
}

/// A row of orders; the comment of a populous customer's order begins with [`MARK`], which `order` does not have yet.
pub(crate) struct OrderRow {
    pub(crate) order: Order<'static>,
    is_marked: bool,
}

impl OrderRow {
    /// The comment as it is written.
    pub(crate) fn comment(&self) -> Cow<'static, str> {
        let drawn = self.order.o_comment;
        match self.is_marked {
            // Comments have 19 bytes at least, and all of their characters are one byte.
            true => Cow::Owned([MARK, drawn.get(MARK.len()..).unwrap_or_default()].concat()),
            false => Cow::Borrowed(drawn),
        }
    }
}

/// Rows of orders, from any row on.
pub(crate) struct Orders {
    keys: Keys,
    rows: Range<u64>,
    heads: Heads,
    prices: Prices,
    priority: RandomString<'static>,
    clerk: RandomBoundedInt,
    comment: RandomText<'static>,
}

impl Orders {
    const COMMENT: Comments = Comments(276_090_261, 49.0, 1);

    /// The rows of a range, counted from 0.
    pub(crate) fn new(keys: Keys, rows: Range<u64>) -> Self {
        let clerks = 1_000 * keys.whole_scale() as i32;
        Self {
            keys,
            heads: Heads::from(keys, rows.start + 1),
            prices: Prices::at(&keys, rows.start + 1, 0),
            priority: words_after(
                591_449_447,
                Distributions::static_default().order_priority(),
                1,
                rows.start,
            ),
            clerk: Integers(1_171_034_773, 1, clerks, 1).after(rows.start),
            comment: Self::COMMENT.after(2 * rows.start),
            rows,
        }
    }

    /// The sum of what the lines cost, in cents, and the status that follows from their dates.
    fn sum_of_lines(&mut self, head: &Head) -> (i64, OrderStatus) {
        let (mut total, mut shipped) = (0, 0);
        for line in 0..head.lines {
            let line = self.prices.next(&self.keys, head, line);
            let discounted = line.extended_price * (100 - i64::from(line.discount)) / 100;
            total += discounted * (100 + i64::from(line.tax)) / 100;
            shipped += u64::from(TPCHDate::is_in_past(line.ship_date));
        }
        self.prices.row_finished(&self.keys, head);
        let status = if head.is_populous() || shipped == head.lines {
            OrderStatus::Fulfilled
        } else if shipped > 0 {
            OrderStatus::Pending
        } else {
            OrderStatus::Open
        };
        (total, status)
    }
}

impl Iterator for Orders {
    type Item = OrderRow;

    fn next(&mut self) -> Option<OrderRow> {
        self.rows.next()?;
        let head = self.heads.next();
        let (total, status) = self.sum_of_lines(&head);
        let order = Order {
            o_orderkey: OrderGenerator::make_order_key(head.index as i64),
            o_custkey: head.customer(&self.keys) as i64,
            o_orderstatus: status,
            // Wraps around for the populous orders, as the format of the reference does.
            o_totalprice: TPCHDecimal(i64::from(total as i32)),
            o_orderdate: TPCHDate::new(head.date),
            o_orderpriority: self.priority.next_value(),
            o_clerk: ClerkName::new(self.clerk.next_value()),
            o_shippriority: 0,
            o_comment: self.comment.next_value(),
        };
        self.priority.row_finished();
        self.clerk.row_finished();
        self.comment.row_finished();
        Some(OrderRow {
            order,
            is_marked: head.is_of_populous_customer(),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}
