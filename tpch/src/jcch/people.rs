//! Rows of customer and supplier: TPC-H's, with other nations and a few of them marked.

use std::ops::Range;

use tpchgen::generators::{Customer, CustomerGenerator, Supplier, SupplierGenerator};
use tpchgen::random::RandomPhoneNumber;

use super::keys::Keys;
use super::stream::seed_after;

/// Suppliers of each region that have no comment.
const POPULOUS_SUPPLIERS: u64 = 4;

/// TPC-H's generator makes `base * scale` rows; this is a scale for exactly `rows`.
pub(crate) fn scale_for(rows: u64, base: f64) -> f64 {
    (rows as f64 + 0.5) / base
}

/// The customers of part `part` (from 1) of `parts`.
pub(crate) fn customers(
    keys: Keys,
    part: i32,
    parts: i32,
) -> impl Iterator<Item = Customer<'static>> + Send {
    let slice = keys.customer_rows() / 5;
    let scale = scale_for(keys.customer_rows(), 150_000.0);
    let rows = CustomerGenerator::new(scale, part, parts).iter();
    rows.map(move |mut row| {
        let hash = keys.customers.hash(row.c_custkey as u64);
        // The phone number keeps the country that was drawn.
        row.c_nationkey = Keys::nation(keys.customers, hash);
        if hash.is_multiple_of(slice) {
            // The customer with a share of all orders: the same number, but from a country that is none.
            let draws = 3 * (row.c_custkey as u64 - 1);
            let country = 30 + 10 * (hash / slice) as i64;
            row.c_phone =
                RandomPhoneNumber::new(seed_after(1_521_138_112, draws)).next_value(country);
        }
        row
    })
}

/// The suppliers of part `part` (from 1) of `parts`.
pub(crate) fn suppliers(
    keys: Keys,
    part: i32,
    parts: i32,
) -> impl Iterator<Item = Supplier> + Send {
    let scale = scale_for(keys.supplier_rows(), 10_000.0);
    let rows = SupplierGenerator::new(scale, part, parts).iter();
    rows.map(move |mut row| {
        let hash = keys.suppliers.hash(row.s_suppkey as u64);
        row.s_nationkey = Keys::nation(keys.suppliers, hash);
        if hash % keys.region_suppliers() < POPULOUS_SUPPLIERS {
            row.s_comment.clear();
        }
        row
    })
}

/// Rows `part` (from 1) of `parts` of `rows` rows, cut evenly.
pub(crate) fn share(rows: u64, part: i32, parts: i32) -> Range<u64> {
    let bound = |part: i32| (u128::from(rows) * part as u128 / parts as u128) as u64;
    bound(part - 1)..bound(part)
}
