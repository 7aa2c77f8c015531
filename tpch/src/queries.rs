//! The 22 queries of the specification, with its validation parameters.
//!
//! The text follows TPC-H revision 3, section 2.4. Query 15 uses a common table expression instead of a view, and
//! "return the first N rows" is written as `LIMIT N`. Query 11 keeps the fraction 0.0001 of the validation run at every
//! scale, so that the text does not depend on the scale.

use crate::error::{Result, TpchError};
use crate::tables::Table::{
    self, Customer, Lineitem, Nation, Orders, Part, Partsupp, Region, Supplier,
};

/// One query of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Its number in the specification, from 1.
    pub number: u8,
    /// Its text, without a final semicolon.
    pub sql: &'static str,
    /// The tables it reads.
    pub tables: &'static [Table],
}

macro_rules! query {
    ($number:literal, $file:literal, [$($table:ident),+]) => {
        Query { number: $number, sql: include_str!(concat!("../queries/", $file)), tables: &[$($table),+] }
    };
}

/// All queries, in the order of their numbers.
pub const ALL: [Query; 22] = [
    query!(1, "q01.sql", [Lineitem]),
    query!(2, "q02.sql", [Part, Supplier, Partsupp, Nation, Region]),
    query!(3, "q03.sql", [Customer, Orders, Lineitem]),
    query!(4, "q04.sql", [Orders, Lineitem]),
    query!(
        5,
        "q05.sql",
        [Customer, Orders, Lineitem, Supplier, Nation, Region]
    ),
    query!(6, "q06.sql", [Lineitem]),
    query!(7, "q07.sql", [Supplier, Lineitem, Orders, Customer, Nation]),
    query!(
        8,
        "q08.sql",
        [Part, Supplier, Lineitem, Orders, Customer, Nation, Region]
    ),
    query!(
        9,
        "q09.sql",
        [Part, Supplier, Lineitem, Partsupp, Orders, Nation]
    ),
    query!(10, "q10.sql", [Customer, Orders, Lineitem, Nation]),
    query!(11, "q11.sql", [Partsupp, Supplier, Nation]),
    query!(12, "q12.sql", [Orders, Lineitem]),
    query!(13, "q13.sql", [Customer, Orders]),
    query!(14, "q14.sql", [Lineitem, Part]),
    query!(15, "q15.sql", [Supplier, Lineitem]),
    query!(16, "q16.sql", [Partsupp, Part, Supplier]),
    query!(17, "q17.sql", [Lineitem, Part]),
    query!(18, "q18.sql", [Customer, Orders, Lineitem]),
    query!(19, "q19.sql", [Lineitem, Part]),
    query!(20, "q20.sql", [Supplier, Nation, Partsupp, Part, Lineitem]),
    query!(21, "q21.sql", [Supplier, Lineitem, Orders, Nation]),
    query!(22, "q22.sql", [Customer, Orders]),
];

/// The query with this number.
///
/// # Errors
/// [`TpchError::Query`] unless it is 1 to 22.
pub fn query(number: u8) -> Result<&'static Query> {
    ALL.iter()
        .find(|query| query.number == number)
        .ok_or_else(|| TpchError::Query {
            given: number.to_string(),
        })
}

/// Reads a list such as `1,6` or `3-5,22`; queries run in the order given, each once.
///
/// # Errors
/// [`TpchError::Query`] naming the part that is no number from 1 to 22 or no ascending range of them.
pub fn parse_list(text: &str) -> Result<Vec<&'static Query>> {
    let mut chosen: Vec<&'static Query> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let bad = || TpchError::Query {
            given: item.to_string(),
        };
        let number = |text: &str| text.trim().parse::<u8>().map_err(|_| bad());
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(item)?, number(item)?),
        };
        if first > last {
            return Err(bad());
        }
        for number in first..=last {
            let query = query(number).map_err(|_| bad())?;
            if !chosen.contains(&query) {
                chosen.push(query);
            }
        }
    }
    Ok(chosen)
}

/// The tables that any of the queries reads, in the order of [`Table::ALL`].
pub fn tables_of(queries: &[&Query]) -> Vec<Table> {
    Table::ALL
        .into_iter()
        .filter(|table| queries.iter().any(|query| query.tables.contains(table)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_texts_differ() {
        for (index, query) in ALL.iter().enumerate() {
            assert_eq!(usize::from(query.number), index + 1);
            assert!(query.sql.trim_start().starts_with(if query.number == 15 {
                "WITH"
            } else {
                "SELECT"
            }));
            assert!(!query.sql.contains(';'));
        }
    }

    #[test]
    fn lists_and_ranges() {
        let numbers =
            |text| parse_list(text).map(|list| list.iter().map(|q| q.number).collect::<Vec<_>>());
        assert_eq!(numbers("1,6").expect("list"), [1, 6]);
        assert_eq!(numbers("6, 1, 6").expect("repeated"), [6, 1]);
        assert_eq!(numbers("3-5,22").expect("range"), [3, 4, 5, 22]);
        for (text, part) in [
            ("23", "23"),
            ("0", "0"),
            ("1,,2", ""),
            ("5-3", "5-3"),
            ("1,x", "x"),
            ("1-99", "1-99"),
        ] {
            let error = parse_list(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("'{part}' ")), "{error}");
        }
    }

    #[test]
    fn tables_follow_the_queries() {
        let queries = parse_list("6,13").expect("list");
        assert_eq!(tables_of(&queries), [Customer, Orders, Lineitem]);
    }
}
