//! The 22 queries of the specification: templates with places for parameters, and TPC-H's validation parameters.
//!
//! The text follows TPC-H revision 3, section 2.4. Query 15 uses a common table expression instead of a view, and
//! "return the first N rows" is written as `LIMIT N`. Query 11 keeps the fraction 0.0001 of the validation run at every
//! scale, so that the text does not depend on the scale.

use std::sync::LazyLock;

use crate::error::{Result, TpchError};
use crate::tables::Table::{
    self, Customer, Lineitem, Nation, Orders, Part, Partsupp, Region, Supplier,
};

/// One query of a benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Its number in the specification, from 1.
    pub number: u8,
    /// Its text, without a final semicolon.
    pub sql: String,
    /// Another text with the same answer, for the reference to run where it cannot finish with [`Self::sql`].
    pub reference: Option<String>,
    /// The tables it reads.
    pub tables: &'static [Table],
}

impl Query {
    /// The text that the reference runs.
    pub fn reference_sql(&self) -> &str {
        self.reference.as_deref().unwrap_or(&self.sql)
    }
}

/// A query whose text has places `:1`, `:2` and so on for parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template {
    pub(crate) number: u8,
    pub(crate) text: &'static str,
    pub(crate) tables: &'static [Table],
    /// The parameters of TPC-H's validation run.
    pub(crate) validation: &'static [&'static str],
}

impl Template {
    /// The query with these parameters, the first of which takes the place of `:1`.
    pub(crate) fn with<S: AsRef<str>>(&self, parameters: &[S]) -> Query {
        let mut pieces = self.text.split(':');
        let mut sql = pieces.next().unwrap_or_default().to_string();
        for piece in pieces {
            let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = piece.split_at(digits);
            let parameter = number
                .parse::<usize>()
                .ok()
                .and_then(|number| parameters.get(number.checked_sub(1)?));
            match parameter {
                Some(parameter) => sql.push_str(parameter.as_ref()),
                None => {
                    sql.push(':');
                    sql.push_str(number);
                }
            }
            sql.push_str(rest);
        }
        Query {
            number: self.number,
            sql,
            reference: None,
            tables: self.tables,
        }
    }
}

macro_rules! template {
    ($number:literal, $file:literal, [$($table:ident),+], [$($parameter:literal),+]) => {
        Template {
            number: $number,
            text: include_str!(concat!("../queries/", $file)),
            tables: &[$($table),+],
            validation: &[$($parameter),+],
        }
    };
}

/// The templates, in the order of their numbers.
pub(crate) const TEMPLATES: [Template; 22] = [
    template!(1, "q01.sql", [Lineitem], ["90"]),
    template!(
        2,
        "q02.sql",
        [Part, Supplier, Partsupp, Nation, Region],
        ["15", "BRASS", "EUROPE"]
    ),
    template!(
        3,
        "q03.sql",
        [Customer, Orders, Lineitem],
        ["BUILDING", "1995-03-15"]
    ),
    template!(4, "q04.sql", [Orders, Lineitem], ["1993-07-01"]),
    template!(
        5,
        "q05.sql",
        [Customer, Orders, Lineitem, Supplier, Nation, Region],
        ["ASIA", "1994-01-01"]
    ),
    template!(6, "q06.sql", [Lineitem], ["1994-01-01", "0.06", "24"]),
    template!(
        7,
        "q07.sql",
        [Supplier, Lineitem, Orders, Customer, Nation],
        ["FRANCE", "GERMANY", "1995-01-01", "1996-12-31"]
    ),
    template!(
        8,
        "q08.sql",
        [Part, Supplier, Lineitem, Orders, Customer, Nation, Region],
        [
            "BRAZIL",
            "AMERICA",
            "ECONOMY ANODIZED STEEL",
            "1995-01-01",
            "1996-12-31"
        ]
    ),
    template!(
        9,
        "q09.sql",
        [Part, Supplier, Lineitem, Partsupp, Orders, Nation],
        ["green"]
    ),
    template!(
        10,
        "q10.sql",
        [Customer, Orders, Lineitem, Nation],
        ["1993-10-01"]
    ),
    template!(
        11,
        "q11.sql",
        [Partsupp, Supplier, Nation],
        ["GERMANY", "0.0001"]
    ),
    template!(
        12,
        "q12.sql",
        [Orders, Lineitem],
        ["MAIL", "SHIP", "1994-01-01"]
    ),
    template!(13, "q13.sql", [Customer, Orders], ["special", "requests"]),
    template!(14, "q14.sql", [Lineitem, Part], ["1995-09-01"]),
    template!(15, "q15.sql", [Supplier, Lineitem], ["1996-01-01"]),
    template!(
        16,
        "q16.sql",
        [Partsupp, Part, Supplier],
        [
            "Brand#45",
            "MEDIUM POLISHED",
            "49",
            "14",
            "23",
            "45",
            "19",
            "3",
            "36",
            "9"
        ]
    ),
    template!(17, "q17.sql", [Lineitem, Part], ["Brand#23", "MED BOX"]),
    template!(18, "q18.sql", [Customer, Orders, Lineitem], ["300"]),
    template!(
        19,
        "q19.sql",
        [Lineitem, Part],
        ["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"]
    ),
    template!(
        20,
        "q20.sql",
        [Supplier, Nation, Partsupp, Part, Lineitem],
        ["forest", "1994-01-01", "CANADA"]
    ),
    template!(
        21,
        "q21.sql",
        [Supplier, Lineitem, Orders, Nation],
        ["SAUDI ARABIA"]
    ),
    template!(
        22,
        "q22.sql",
        [Customer, Orders],
        ["13", "31", "23", "29", "30", "18", "17"]
    ),
];

/// All queries of TPC-H, in the order of their numbers.
pub static ALL: LazyLock<Vec<Query>> = LazyLock::new(|| {
    let queries = TEMPLATES.iter().map(|query| query.with(query.validation));
    queries.collect()
});

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
pub fn parse_list(text: &str) -> Result<Vec<Query>> {
    let mut chosen: Vec<Query> = Vec::new();
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
            if !chosen.contains(query) {
                chosen.push(query.clone());
            }
        }
    }
    Ok(chosen)
}

/// The tables that any of the queries reads, in the order of [`Table::ALL`].
pub fn tables_of(queries: &[Query]) -> Vec<Table> {
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
            assert!(
                !query.sql.contains(':'),
                "a place has no parameter: {}",
                query.sql
            );
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
