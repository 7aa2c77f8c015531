//! The forms of expressions that queries are drawn from, and constants.

use Slot::{Any, Constant, Is, Same};

use crate::Random;
use crate::fuzz::value::Class::{
    self, Bool, Bytes, Date, Decimal, Float, Int, List, Text, Timestamp,
};

/// What may stand for a `{}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// An expression of this class.
    Is(Class),
    /// One of the class of the whole.
    Same,
    /// One of any class, the same for all such slots of a form.
    Any,
    /// A constant of the class of [`Slot::Any`].
    Constant,
}

/// What has to be known about a form's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It is the same on all machines and in any order of rows.
    Exact,
    /// It is rounded.
    Inexact,
    /// It is rounded when numbers are large.
    InexactAtExtremes,
    /// It may end in an error, in some plans for rows that others do not evaluate it for.
    Faulty,
}

/// A form of expressions.
#[derive(Debug)]
pub(crate) struct Form {
    /// How often it is drawn.
    pub(crate) weight: usize,
    /// The class of its value; any, which the slots share, when there is none.
    pub(crate) result: Option<Class>,
    /// The SQL.
    pub(crate) text: &'static str,
    /// What stands for each `{}`.
    pub(crate) slots: &'static [Slot],
    /// What has to be known.
    pub(crate) nature: Nature,
}

const fn exact(weight: usize, result: Class, text: &'static str, slots: &'static [Slot]) -> Form {
    Form {
        weight,
        result: Some(result),
        text,
        slots,
        nature: Nature::Exact,
    }
}

const fn of_nature(nature: Nature, form: Form) -> Form {
    Form { nature, ..form }
}

const fn generic(weight: usize, text: &'static str, slots: &'static [Slot]) -> Form {
    Form {
        weight,
        result: None,
        text,
        slots,
        nature: Nature::Exact,
    }
}

/// All forms. Those of weight 1 mostly run on the CPU, or cost much.
pub(crate) const FORMS: &[Form] = &[
    generic(4, "coalesce({}, {})", &[Same, Same]),
    generic(3, "nullif({}, {})", &[Same, Same]),
    generic(
        4,
        "CASE WHEN {} THEN {} ELSE {} END",
        &[Is(Bool), Same, Same],
    ),
    generic(3, "CASE WHEN {} THEN {} END", &[Is(Bool), Same]),
    generic(
        2,
        "CASE WHEN {} THEN {} WHEN {} THEN {} ELSE {} END",
        &[Is(Bool), Same, Is(Bool), Same, Same],
    ),
    generic(
        2,
        "CASE {} WHEN {} THEN {} ELSE {} END",
        &[Any, Constant, Same, Same],
    ),
    // The value itself, which only the CPU computes: what is above goes back to the device.
    generic(1, "make_array({})[1]", &[Same]),
    exact(8, Int, "({} + {})", &[Same, Same]),
    exact(6, Int, "({} - {})", &[Same, Same]),
    exact(5, Int, "({} * {})", &[Same, Same]),
    exact(3, Int, "({} / nullif({}, 0))", &[Same, Same]),
    exact(3, Int, "({} % nullif({}, 0))", &[Same, Same]),
    exact(1, Int, "(0 - {})", &[Same]),
    exact(3, Int, "character_length({})", &[Is(Text)]),
    exact(2, Int, "date_part('year', {})", &[Is(Date)]),
    exact(1, Int, "date_part('month', {})", &[Is(Date)]),
    exact(1, Int, "date_part('dow', {})", &[Is(Date)]),
    exact(2, Int, "date_part('hour', {})", &[Is(Timestamp)]),
    exact(2, Int, "CAST({} AS BIGINT)", &[Is(Bool)]),
    exact(2, Int, "TRY_CAST({} AS SMALLINT)", &[Same]),
    exact(1, Int, "TRY_CAST({} AS INT)", &[Is(Text)]),
    of_nature(Nature::Faulty, exact(1, Int, "CAST({} AS INT)", &[Same])),
    of_nature(Nature::Faulty, exact(1, Int, "({} / {})", &[Same, Same])),
    exact(1, Int, "abs({})", &[Same]),
    exact(1, Int, "({} << 3)", &[Same]),
    exact(1, Int, "({} - {})", &[Is(Date), Is(Date)]),
    exact(1, Int, "date_part('isodow', {})", &[Is(Date)]),
    exact(1, Int, "date_part('isoyear', {})", &[Is(Timestamp)]),
    exact(1, Int, "date_part('millisecond', {})", &[Is(Timestamp)]),
    exact(1, Int, "character_length(CAST({} AS VARCHAR))", &[Is(Int)]),
    exact(6, Decimal, "({} + {})", &[Same, Same]),
    exact(5, Decimal, "({} - {})", &[Same, Same]),
    of_nature(
        Nature::InexactAtExtremes,
        exact(3, Decimal, "({} * {})", &[Same, Same]),
    ),
    exact(2, Decimal, "({} / nullif({}, 0))", &[Same, Same]),
    exact(2, Decimal, "(-{})", &[Same]),
    exact(3, Decimal, "TRY_CAST({} AS DECIMAL(9, 1))", &[Same]),
    exact(3, Decimal, "TRY_CAST({} AS DECIMAL(12, 3))", &[Is(Int)]),
    of_nature(
        Nature::Faulty,
        exact(1, Decimal, "CAST({} AS DECIMAL(6, 1))", &[Same]),
    ),
    exact(2, Decimal, "round({}, 1)", &[Same]),
    exact(1, Int, "({} >> 2)", &[Same]),
    exact(1, Decimal, "floor(TRY_CAST({} AS DECIMAL(9, 1)))", &[Same]),
    exact(2, Float, "floor({})", &[Same]),
    exact(1, Float, "({} % 7)", &[Same]),
    exact(1, Float, "date_part('epoch', {})", &[Is(Timestamp)]),
    exact(1, Float, "abs({})", &[Same]),
    of_nature(Nature::Inexact, exact(2, Float, "sqrt(abs({}))", &[Same])),
    of_nature(Nature::Inexact, exact(1, Float, "round({}, 2)", &[Same])),
    exact(6, Float, "({} + {})", &[Same, Same]),
    exact(5, Float, "({} - {})", &[Same, Same]),
    exact(4, Float, "({} * {})", &[Same, Same]),
    exact(2, Float, "(-{})", &[Same]),
    of_nature(
        Nature::Inexact,
        exact(4, Float, "({} / ({} + 1000))", &[Same, Same]),
    ),
    of_nature(
        Nature::Inexact,
        exact(2, Float, "CAST({} AS DOUBLE)", &[Is(Decimal)]),
    ),
    of_nature(
        Nature::InexactAtExtremes,
        exact(3, Float, "CAST({} AS DOUBLE)", &[Is(Int)]),
    ),
    exact(8, Bool, "({} = {})", &[Any, Any]),
    exact(4, Bool, "({} <> {})", &[Any, Any]),
    exact(5, Bool, "({} < {})", &[Any, Any]),
    exact(4, Bool, "({} <= {})", &[Any, Any]),
    exact(5, Bool, "({} > {})", &[Any, Any]),
    exact(4, Bool, "({} >= {})", &[Any, Any]),
    exact(8, Bool, "({} = {})", &[Any, Constant]),
    exact(3, Bool, "({} <> {})", &[Any, Constant]),
    exact(6, Bool, "({} < {})", &[Any, Constant]),
    exact(6, Bool, "({} >= {})", &[Any, Constant]),
    exact(3, Bool, "({} IS DISTINCT FROM {})", &[Any, Any]),
    exact(2, Bool, "({} IS NOT DISTINCT FROM {})", &[Any, Any]),
    exact(
        3,
        Bool,
        "({} BETWEEN {} AND {})",
        &[Any, Constant, Constant],
    ),
    exact(1, Bool, "({} NOT BETWEEN {} AND {})", &[Any, Any, Any]),
    exact(
        4,
        Bool,
        "({} IN ({}, {}, {}))",
        &[Any, Constant, Constant, Constant],
    ),
    exact(2, Bool, "({} NOT IN ({}, {}))", &[Any, Constant, Constant]),
    exact(6, Bool, "({} IS NULL)", &[Any]),
    exact(6, Bool, "({} IS NOT NULL)", &[Any]),
    exact(7, Bool, "({} AND {})", &[Is(Bool), Is(Bool)]),
    exact(7, Bool, "({} OR {})", &[Is(Bool), Is(Bool)]),
    exact(4, Bool, "(NOT {})", &[Is(Bool)]),
    exact(1, Bool, "({} IS TRUE)", &[Is(Bool)]),
    exact(1, Bool, "({} IS NOT FALSE)", &[Is(Bool)]),
    exact(1, Bool, "({} IS UNKNOWN)", &[Is(Bool)]),
    exact(3, Bool, "({} LIKE '%o%')", &[Is(Text)]),
    exact(2, Bool, "({} NOT LIKE 'a%')", &[Is(Text)]),
    exact(1, Bool, "({} ILIKE 'ONE')", &[Is(Text)]),
    exact(1, Bool, "starts_with({}, 't')", &[Is(Text)]),
    exact(1, Bool, "isnan({})", &[Is(Float)]),
    exact(1, Bool, "({} IN ({}, {}))", &[Any, Any, Any]),
    exact(1, Bool, "({} LIKE {} || '%')", &[Is(Text), Is(Text)]),
    exact(3, Text, "upper({})", &[Same]),
    exact(2, Text, "substr({}, 2)", &[Same]),
    exact(3, Text, "substr({}, 1, 2)", &[Same]),
    exact(2, Text, "trim({})", &[Same]),
    exact(2, Text, "({} || '-x')", &[Same]),
    exact(2, Text, "concat({}, {})", &[Same, Same]),
    exact(2, Text, "({} || {})", &[Same, Same]),
    exact(
        1,
        Text,
        "concat_ws('/', {}, {}, {})",
        &[Same, Is(Bool), Is(Date)],
    ),
    exact(1, Text, "to_char({}, '%Y-%m')", &[Is(Date)]),
    exact(2, Text, "CAST({} AS VARCHAR)", &[Is(Int)]),
    exact(2, Text, "encode({}, 'hex')", &[Is(Bytes)]),
    exact(1, Int, "character_length(encode({}, 'hex'))", &[Is(Bytes)]),
    exact(2, Bytes, "CAST({} AS BYTEA)", &[Is(Text)]),
    exact(2, Bytes, "sha256({})", &[Same]),
    exact(3, Int, "array_length({})", &[Is(List)]),
    exact(2, Text, "array_to_string({}, '-')", &[Is(List)]),
    exact(2, Text, "{}[1]", &[Is(List)]),
    exact(3, Bool, "array_has({}, 'o')", &[Is(List)]),
    exact(1, Bool, "array_has({}, {})", &[Is(List), Is(Text)]),
    exact(3, List, "string_to_array({}, 'e')", &[Is(Text)]),
    exact(2, List, "array_reverse({})", &[Same]),
    exact(1, List, "array_append({}, {})", &[Same, Is(Text)]),
    exact(4, Date, "CAST({} AS DATE)", &[Is(Timestamp)]),
    exact(2, Date, "({} + INTERVAL '1' DAY)", &[Same]),
    exact(1, Date, "({} - INTERVAL '13' MONTH)", &[Same]),
    exact(1, Date, "({} + 31)", &[Same]),
    exact(3, Timestamp, "CAST({} AS TIMESTAMP)", &[Is(Date)]),
    exact(2, Timestamp, "date_trunc('day', {})", &[Same]),
    exact(1, Timestamp, "date_trunc('hour', {})", &[Same]),
    exact(1, Timestamp, "date_trunc('month', {})", &[Same]),
    exact(1, Timestamp, "date_bin(INTERVAL '15 minutes', {})", &[Same]),
    exact(1, Timestamp, "({} + INTERVAL '1 month 2 hours')", &[Same]),
    generic(1, "greatest({}, {})", &[Same, Same]),
    generic(1, "least({}, {})", &[Same, Same]),
];

/// A constant that is near the values of columns.
pub(crate) fn constant(random: &mut Random, class: Class) -> String {
    let list: &[&str] = match class {
        Int => &[
            "0",
            "1",
            "2",
            "3",
            "5",
            "8",
            "-1",
            "100",
            "CAST(2 AS INT)",
            "CAST(NULL AS BIGINT)",
        ],
        Decimal => &[
            "CAST(0 AS DECIMAL(5, 2))",
            "CAST(0.25 AS DECIMAL(5, 2))",
            "CAST(-0.5 AS DECIMAL(3, 1))",
            "CAST(1.75 AS DECIMAL(15, 4))",
        ],
        Float => &[
            "0.0",
            "0.125",
            "0.5",
            "-0.25",
            "1.5",
            "CAST(NULL AS DOUBLE)",
        ],
        Bool => &["true", "true", "false", "false", "CAST(NULL AS BOOLEAN)"],
        Text => &[
            "'one'",
            "'two'",
            "''",
            "'a'",
            "'ab'",
            "'Bär'",
            "'m'",
            "CAST(NULL AS VARCHAR)",
        ],
        Bytes => &[
            "X'ff6e65'",
            "X''",
            "X'61'",
            "X'6162'",
            "X'ff'",
            "CAST(NULL AS BYTEA)",
        ],
        List => &[
            "make_array('o', 'n', 'e')",
            "make_array('a')",
            "make_array('a', NULL)",
            "string_to_array('', NULL)",
            "string_to_array(CAST(NULL AS VARCHAR), NULL)",
        ],
        Date => &[
            "DATE '2000-02-23'",
            "DATE '2000-02-29'",
            "DATE '2000-03-06'",
            "DATE '1999-12-31'",
        ],
        Timestamp => &[
            "TIMESTAMP '2000-02-28 23:59:55'",
            "TIMESTAMP '2000-02-29 00:00:00'",
            "TIMESTAMP '2000-02-29 02:23:57'",
        ],
    };
    (*random.one(list)).to_string()
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// A table with a column of each class.
    const TABLE: &str = "CREATE TABLE t AS SELECT arrow_cast(column1, 'Int32') AS i, \
        arrow_cast(column1, 'Decimal128(15, 2)') AS d, arrow_cast(column1, 'Float64') AS f, column1 > 0 AS b, \
        arrow_cast(column1, 'Utf8') AS s, X'ff' AS x, make_array('o', 'n') AS l, arrow_cast(column1, 'Date32') AS t, \
        arrow_cast(arrow_cast(column1, 'Int64'), 'Timestamp(us)') AS p FROM (VALUES (1), (2)) AS v";

    fn column(class: Class) -> &'static str {
        match class {
            Int => "i",
            Decimal => "d",
            Float => "f",
            Bool => "b",
            Text => "s",
            Bytes => "x",
            List => "l",
            Date => "t",
            Timestamp => "p",
        }
    }

    #[tokio::test]
    async fn datafusion_accepts_each_form() {
        let context = SessionContext::new();
        context.sql(TABLE).await.expect("a table");
        let mut random = Random::new(1);
        let mut refused = Vec::new();
        for form in FORMS {
            for class in Class::ALL {
                let result = form.result.unwrap_or(class);
                let mut sql = String::new();
                let mut slots = form.slots.iter();
                for (i, piece) in form.text.split("{}").enumerate() {
                    if i > 0 {
                        sql.push_str(&match slots.next().expect("a slot for each operand") {
                            Slot::Is(of) => column(*of).to_string(),
                            Slot::Same => column(result).to_string(),
                            Slot::Any => column(class).to_string(),
                            Slot::Constant => constant(&mut random, class),
                        });
                    }
                    sql.push_str(piece);
                }
                assert_eq!(slots.next(), None, "{}", form.text);
                let sql = format!("SELECT {sql} AS x FROM t");
                let answer = match context.sql(&sql).await {
                    Ok(frame) => frame.collect().await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(batches) => {
                        let schema = batches[0].schema();
                        let found = Class::of(schema.field(0).data_type());
                        if found != result {
                            refused.push(format!("{sql}: {found:?} and not {result:?}"));
                        }
                    }
                    Err(error) => refused.push(format!("{sql}: {}", error.strip_backtrace())),
                }
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}
