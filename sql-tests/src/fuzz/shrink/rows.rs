//! Smaller tables: fewer rows, fewer columns, simpler values.

use super::{Failing, Shrinker};
use crate::fuzz::render;
use crate::fuzz::value::{Value, nth};

/// Rows of all tables together up to which single values are looked at.
const FEW_ROWS: usize = 24;

impl Shrinker<'_> {
    /// Leaves out ever smaller parts of the rows (Zeller and Hildebrandt, TSE 2002).
    pub(super) fn rows(&mut self, of: &mut Failing) {
        for t in 0..of.tables.len() {
            let mut part = of.tables[t].rows();
            while part > 0 && !self.is_over() {
                let mut start = 0;
                while start < of.tables[t].rows() {
                    let end = start + part;
                    let mut fewer = of.clone();
                    fewer.tables[t] = of.tables[t].with_rows(|row| row < start || row >= end);
                    if !self.try_on(of, fewer) {
                        start = end;
                    }
                    if self.is_over() {
                        return;
                    }
                }
                part /= 2;
            }
        }
    }

    /// Without columns that the query does not name.
    pub(super) fn columns(&mut self, of: &mut Failing) {
        let sql = render::query(&of.query);
        let mut fewer = of.clone();
        for table in &mut fewer.tables {
            let all = table.columns.clone();
            let named = |name: &str| {
                sql.match_indices(&format!(".{name}")).any(|(at, found)| {
                    !sql[at + found.len()..].starts_with(|c: char| c.is_alphanumeric())
                })
            };
            table
                .columns
                .retain(|column| named(&column.reference_in_sql()));
            if table.columns.is_empty() {
                table.columns.extend(all.into_iter().take(1));
            }
        }
        if fewer != *of {
            self.try_on(of, fewer);
        }
    }

    /// Cells with the value zero, or with that of the cell above.
    pub(super) fn values(&mut self, of: &mut Failing) {
        let rows: usize = of.tables.iter().map(|table| table.rows()).sum();
        if rows > FEW_ROWS {
            return;
        }
        for t in 0..of.tables.len() {
            for c in 0..of.tables[t].columns.len() {
                let column = &of.tables[t].columns[c];
                let zero = nth(&column.data_type, 2);
                let mut all = of.clone();
                for value in &mut all.tables[t].columns[c].values {
                    *value = zero.clone();
                }
                if all == *of || self.try_on(of, all) {
                    continue;
                }
                for row in 0..of.tables[t].rows() {
                    let value = of.tables[t].columns[c].values[row].clone();
                    if value == zero || value == Value::Null {
                        continue;
                    }
                    let mut simpler = of.clone();
                    simpler.tables[t].columns[c].values[row] = zero.clone();
                    self.try_on(of, simpler);
                }
            }
        }
    }
}
