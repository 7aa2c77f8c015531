//! Rows as Arrow record batches, with the columns of TPC-H's tables.

use std::fmt::Display;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::{Customer, LineItem, Part, PartSupp, Supplier};
use tpchgen_arrow::conversions::{decimal128_array_from_iter, string_view_array_from_display_iter};

use super::orders::OrderRow;
use super::people::share;
use super::{Keys, Lines, Orders, PartSupps, customers, parts, suppliers};
use crate::tables::Table;

/// The rows of part `part` (from 1) of `parts` of a table whose size depends on the scale, as batches of at most
/// `batch_rows` rows; `None` for the two other tables, which are TPC-H's.
pub(crate) fn batches(
    keys: Keys,
    table: Table,
    part: i32,
    of: i32,
    batch_rows: usize,
) -> Option<Box<dyn RecordBatchReader + Send>> {
    fn reader<R: 'static>(
        table: Table,
        rows: impl Iterator<Item = R> + Send + 'static,
        columns: fn(&[R]) -> Vec<ArrayRef>,
        batch_rows: usize,
    ) -> Option<Box<dyn RecordBatchReader + Send>> {
        Some(Box::new(Batches {
            rows,
            columns,
            schema: table.schema(),
            batch_rows,
        }))
    }
    match table {
        Table::Nation | Table::Region => None,
        Table::Part => reader(table, parts(keys, part, of), part_columns, batch_rows),
        Table::Supplier => reader(
            table,
            suppliers(keys, part, of),
            supplier_columns,
            batch_rows,
        ),
        Table::Customer => reader(
            table,
            customers(keys, part, of),
            customer_columns,
            batch_rows,
        ),
        Table::Partsupp => {
            let rows = share(table.rows_of(&keys), part, of);
            reader(
                table,
                PartSupps::new(keys, rows),
                partsupp_columns,
                batch_rows,
            )
        }
        Table::Orders => {
            let rows = share(keys.order_rows(), part, of);
            reader(table, Orders::new(keys, rows), order_columns, batch_rows)
        }
        Table::Lineitem => {
            let rows = share(table.rows_of(&keys), part, of);
            reader(table, Lines::new(keys, rows), line_columns, batch_rows)
        }
    }
}

/// Turns rows into batches.
struct Batches<I: Iterator> {
    rows: I,
    columns: fn(&[I::Item]) -> Vec<ArrayRef>,
    schema: SchemaRef,
    batch_rows: usize,
}

impl<I: Iterator> Iterator for Batches<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows: Vec<I::Item> = self.rows.by_ref().take(self.batch_rows).collect();
        if rows.is_empty() {
            return None;
        }
        Some(RecordBatch::try_new(
            Arc::clone(&self.schema),
            (self.columns)(&rows),
        ))
    }
}

impl<I: Iterator> RecordBatchReader for Batches<I> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn keys<R>(rows: &[R], value: impl Fn(&R) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
}

fn integers<R>(rows: &[R], value: impl Fn(&R) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.iter().map(value)))
}

fn decimals<R>(rows: &[R], value: impl Fn(&R) -> TPCHDecimal) -> ArrayRef {
    Arc::new(decimal128_array_from_iter(rows.iter().map(value)))
}

fn dates<R>(rows: &[R], value: impl Fn(&R) -> TPCHDate) -> ArrayRef {
    let days = rows.iter().map(|row| value(row).to_unix_epoch());
    Arc::new(Date32Array::from_iter_values(days))
}

fn texts<'r, R>(rows: &'r [R], value: impl Fn(&'r R) -> &'r str) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.iter().map(value)))
}

fn displayed<'r, R, D: Display>(rows: &'r [R], value: impl Fn(&'r R) -> D) -> ArrayRef {
    Arc::new(string_view_array_from_display_iter(rows.iter().map(value)))
}

fn part_columns(rows: &[Part<'static>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.p_partkey),
        displayed(rows, |row| &row.p_name),
        displayed(rows, |row| row.p_mfgr),
        displayed(rows, |row| row.p_brand),
        texts(rows, |row| row.p_type),
        integers(rows, |row| row.p_size),
        texts(rows, |row| row.p_container),
        decimals(rows, |row| row.p_retailprice),
        texts(rows, |row| row.p_comment),
    ]
}

fn supplier_columns(rows: &[Supplier]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.s_suppkey),
        displayed(rows, |row| row.s_name),
        displayed(rows, |row| &row.s_address),
        keys(rows, |row| row.s_nationkey),
        displayed(rows, |row| &row.s_phone),
        decimals(rows, |row| row.s_acctbal),
        texts(rows, |row| &row.s_comment),
    ]
}

fn customer_columns(rows: &[Customer<'static>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.c_custkey),
        displayed(rows, |row| row.c_name),
        displayed(rows, |row| &row.c_address),
        keys(rows, |row| row.c_nationkey),
        displayed(rows, |row| &row.c_phone),
        decimals(rows, |row| row.c_acctbal),
        texts(rows, |row| row.c_mktsegment),
        texts(rows, |row| row.c_comment),
    ]
}

fn partsupp_columns(rows: &[PartSupp<'static>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.ps_partkey),
        keys(rows, |row| row.ps_suppkey),
        integers(rows, |row| row.ps_availqty),
        decimals(rows, |row| row.ps_supplycost),
        texts(rows, |row| row.ps_comment),
    ]
}

fn order_columns(rows: &[OrderRow]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.order.o_orderkey),
        keys(rows, |row| row.order.o_custkey),
        texts(rows, |row| row.order.o_orderstatus.as_str()),
        decimals(rows, |row| row.order.o_totalprice),
        dates(rows, |row| row.order.o_orderdate),
        texts(rows, |row| row.order.o_orderpriority),
        displayed(rows, |row| row.order.o_clerk),
        integers(rows, |row| row.order.o_shippriority),
        displayed(rows, OrderRow::comment),
    ]
}

fn line_columns(rows: &[LineItem<'static>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.l_orderkey),
        keys(rows, |row| row.l_partkey),
        keys(rows, |row| row.l_suppkey),
        integers(rows, |row| row.l_linenumber),
        decimals(rows, |row| TPCHDecimal(100 * row.l_quantity)),
        decimals(rows, |row| row.l_extendedprice),
        decimals(rows, |row| row.l_discount),
        decimals(rows, |row| row.l_tax),
        texts(rows, |row| row.l_returnflag),
        texts(rows, |row| row.l_linestatus),
        dates(rows, |row| row.l_shipdate),
        dates(rows, |row| row.l_commitdate),
        dates(rows, |row| row.l_receiptdate),
        texts(rows, |row| row.l_shipinstruct),
        texts(rows, |row| row.l_shipmode),
        texts(rows, |row| row.l_comment),
    ]
}
