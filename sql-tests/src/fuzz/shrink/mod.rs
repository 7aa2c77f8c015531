//! Makes a failing query and its tables smaller while it goes on to fail.
//!
//! It is greedy: of all things that are one step simpler the first one that still fails is taken, the boldest steps first, until none
//! does or the attempts are used up.

mod clauses;
mod expressions;
mod rows;
#[cfg(test)]
mod tests;

use std::time::Instant;

use super::case::Settings;
use super::query::Query;
use super::render;
use super::table::{Storage, Table};

/// One query that fails, and what it needs for that.
#[derive(Debug, Clone, PartialEq)]
pub struct Failing {
    /// The tables.
    pub tables: Vec<Table>,
    /// The settings.
    pub settings: Settings,
    /// The query.
    pub query: Query,
}

/// Tries simpler things.
pub struct Shrinker<'a> {
    fails: &'a mut dyn FnMut(&Failing) -> bool,
    attempts: usize,
    until: Instant,
}

/// Rows above which a statement does not spell a table out.
const SPELLED_CELLS: usize = 400;

impl<'a> Shrinker<'a> {
    /// `fails` says whether something fails in the same way; it is asked at most `attempts` times, and not after `until`.
    pub fn new(
        fails: &'a mut dyn FnMut(&Failing) -> bool,
        attempts: usize,
        until: Instant,
    ) -> Self {
        Self {
            fails,
            attempts,
            until,
        }
    }

    /// The smallest that was found.
    pub fn shrink(&mut self, mut of: Failing) -> Failing {
        loop {
            let before = of.clone();
            self.settings(&mut of);
            self.tables(&mut of);
            self.storage(&mut of);
            self.query(&mut of);
            self.rows(&mut of);
            self.tables(&mut of);
            self.columns(&mut of);
            self.storage(&mut of);
            self.values(&mut of);
            if of == before || self.is_over() {
                return of;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.attempts == 0 || Instant::now() > self.until
    }

    /// Takes `simpler` if it fails as well.
    fn try_on(&mut self, of: &mut Failing, simpler: Failing) -> bool {
        if self.is_over() {
            return false;
        }
        self.attempts -= 1;
        let fails = (self.fails)(&simpler);
        if fails {
            *of = simpler;
        }
        fails
    }

    fn settings(&mut self, of: &mut Failing) {
        if of.settings.is_empty() {
            return;
        }
        let none = Failing {
            settings: vec![],
            ..of.clone()
        };
        if self.try_on(of, none) {
            return;
        }
        for i in (0..of.settings.len()).rev() {
            let mut fewer = of.clone();
            fewer.settings.remove(i);
            self.try_on(of, fewer);
        }
    }

    fn query(&mut self, of: &mut Failing) {
        'again: loop {
            let size = render::query(&of.query).len();
            let mut simpler: Vec<(usize, Query)> = clauses::simpler(&of.query)
                .into_iter()
                .map(|query| (render::query(&query).len(), query))
                .filter(|(length, _)| *length < size)
                .collect();
            simpler.sort_by_key(|(length, _)| *length);
            simpler.dedup();
            for (_, query) in simpler {
                let smaller = Failing {
                    query,
                    ..of.clone()
                };
                if self.try_on(of, smaller) {
                    continue 'again;
                }
                if self.is_over() {
                    return;
                }
            }
            return;
        }
    }

    /// Without tables that the query does not name.
    fn tables(&mut self, of: &mut Failing) {
        let mut names = Vec::new();
        clauses::names(&of.query, &mut names);
        let mut fewer = of.clone();
        fewer.tables.retain(|table| names.contains(&table.name));
        if fewer.tables.len() < of.tables.len() {
            self.try_on(of, fewer);
        }
    }

    /// Tables that SQL makes, else tables in one batch.
    fn storage(&mut self, of: &mut Failing) {
        let simplest = |table: &Table| match table.cells() <= SPELLED_CELLS {
            true => Storage::Sql,
            false => Storage::Memory {
                batch: table.rows(),
                partitions: 1,
            },
        };
        let mut all = of.clone();
        for table in &mut all.tables {
            table.storage = simplest(table);
            if table.storage == Storage::Sql {
                // Columns of SQL's tables can be NULL.
                table.columns.iter_mut().for_each(|c| c.nullable = true);
            }
        }
        if all == *of || self.try_on(of, all) {
            return;
        }
        for i in 0..of.tables.len() {
            let mut one = of.clone();
            one.tables[i].storage = simplest(&one.tables[i]);
            if one != *of {
                self.try_on(of, one);
            }
        }
    }
}
