//! String expressions over dictionaries: few and many distinct values, empty and non-ASCII text, every layout.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringArray};
use arrow::compute::cast;
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{
    Nulls, Random, check_all, check_conditions, check_values, drawn, primitive, row_numbers,
    string_views, strings,
};

const TEXTS: [&str; 12] = [
    "",
    " ",
    "a",
    "A",
    "ab%",
    "a_b",
    "Straße",
    "ÉCOLE",
    "日本語テキスト",
    "🦀🦀",
    "MAIL",
    "long text with spaces",
];
const ROWS: usize = 120;

fn dictionary(array: &ArrayRef, keys: DataType) -> ArrayRef {
    let data_type = DataType::Dictionary(Box::new(keys), Box::new(array.data_type().clone()));
    cast(array, &data_type).expect("a dictionary")
}

fn fixture() -> Fixture {
    let utf8 = strings(drawn(&TEXTS, ROWS, Nulls::Some, 1));
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(ROWS)),
            ("dict", dictionary(&utf8, DataType::Int16)),
            ("s", utf8),
            (
                "large",
                Arc::new(LargeStringArray::from(drawn(&TEXTS, ROWS, Nulls::Some, 2))),
            ),
            ("vw", string_views(drawn(&TEXTS, ROWS, Nulls::None, 3))),
            (
                "num",
                strings(drawn(&["1", "-20", "300", "0"], ROWS, Nulls::Some, 4)),
            ),
            (
                "mixed",
                strings(drawn(&["1", "2.5", "x", ""], ROWS, Nulls::Some, 5)),
            ),
            (
                "day",
                strings(drawn(&["1969-12-31", "2000-02-29"], ROWS, Nulls::Some, 6)),
            ),
            ("none", strings(drawn(&TEXTS, ROWS, Nulls::All, 7))),
            // A dictionary without values.
            (
                "void",
                dictionary(
                    &strings(drawn(&TEXTS, ROWS, Nulls::All, 7)),
                    DataType::Int32,
                ),
            ),
            (
                "v",
                primitive::<Int32Type>(drawn(&[1, 5, 9], ROWS, Nulls::Some, 8)),
            ),
        ],
    )
}

#[test]
fn conditions_on_strings() {
    let fixture = fixture();
    let templates = [
        "{} = 'a'",
        "{} <> ''",
        "{} < 'b'",
        "{} >= 'É'",
        "{} LIKE 'a%'",
        "{} NOT LIKE '%a%'",
        "{} LIKE '_'",
        "{} LIKE 'a\\%%'",
        "{} ILIKE '%ÉCOLE'",
        "starts_with({}, 'a')",
        "{} IN ('a', '', '🦀🦀')",
        "{} NOT IN ('a', NULL)",
        "{} BETWEEN 'A' AND 'b'",
        "length({}) > 3",
        "{} IS NULL",
        "{} IS DISTINCT FROM 'a'",
        "coalesce({}, 'z') = 'z'",
        "{} = 'a' OR {} LIKE '%本%'",
        "strpos({}, ' ') > 0",
    ];
    // Plain DataFusion panics where a dictionary without values is compared with itself.
    let with_itself = ["{} LIKE {} || '%'", "{} LIKE '%a%' OR {} LIKE {} || '_'"];
    let mut conditions = Vec::new();
    for column in ["s", "large", "vw", "dict", "none", "void"] {
        conditions.extend(templates.map(|t| t.replace("{}", column)));
        if column != "void" {
            conditions.extend(with_itself.map(|t| t.replace("{}", column)));
        }
    }
    check_conditions(&fixture, "t", &conditions);
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n, sum(v) AS x FROM t WHERE s LIKE 'a%' AND vw <> '' AND NOT large = 'A'",
            "SELECT count(*) AS n, sum(v) AS x FROM t WHERE dict IN ('MAIL', 'A') OR vw IN ('', ' ') AND v > 1",
            "SELECT count(*) AS n FROM t WHERE none = 'a' OR none IS NOT NULL",
        ]
        .map(String::from),
    );
}

#[test]
fn functions_of_strings() {
    let fixture = fixture();
    let templates = [
        "upper({})",
        "lower({})",
        "length({})",
        "octet_length({})",
        "substr({}, 2, 2)",
        "substr({}, -1)",
        "concat({}, '!')",
        "{} || '-' || {}",
        "replace({}, 'a', '')",
        "trim({})",
        "left({}, 1)",
        "coalesce({}, 'none')",
        "CASE WHEN {} LIKE 'a%' THEN 'yes' ELSE {} END",
        "nullif({}, '')",
        "reverse({})",
    ];
    let mut values = Vec::new();
    for column in ["s", "large", "vw", "dict"] {
        values.extend(templates.map(|t| t.replace("{}", column)));
        values.push(column.to_string());
    }
    values.extend(
        [
            "CAST(num AS INT)",
            "CAST(num AS BIGINT) * v",
            "CAST(num AS DOUBLE) / 4",
            "CAST(num AS DECIMAL(10, 2))",
            "TRY_CAST(mixed AS DOUBLE)",
            "TRY_CAST(mixed AS INT)",
            "CAST(day AS DATE)",
            "date_part('year', CAST(day AS DATE))",
            "length(none)",
            "upper(none)",
        ]
        .map(String::from),
    );
    check_values(&fixture, "t", &values);
}

#[test]
fn strings_as_keys() {
    let fixture = fixture();
    let keys = [
        "s",
        "large, vw",
        "dict",
        "none",
        "substr(vw, 1, 1)",
        "upper(s), v",
        "length(large), s IS NULL",
        "CASE WHEN s = 'a' THEN 'one' WHEN s < 'a' THEN NULL ELSE 'other' END",
        "s, vw, dict, large",
    ];
    check_all(
        &fixture,
        keys.map(|k| {
            format!("SELECT {k}, count(*) AS n, sum(v) AS x, min(vw) AS lo, max(dict) AS hi FROM t GROUP BY {k}")
        }),
    );
}

#[test]
fn failing_casts_of_strings() {
    let fixture = fixture();
    fixture.check_error("SELECT sum(CAST(mixed AS INT)) AS s FROM t");
    // Values that the filter removes are never cast.
    let relaxed = Fixture::open(
        warpline_sql_tests::test_device(),
        false,
        &[("warpline.min_rows", "0")],
    )
    .table(
        "t",
        [(
            "mixed",
            strings(drawn(&["1", "2", "x"], ROWS, Nulls::Some, 5)),
        )],
    );
    relaxed.check("SELECT sum(CAST(mixed AS INT)) AS s FROM t WHERE mixed <> 'x'");
    relaxed.check("SELECT sum(CASE WHEN mixed <> 'x' THEN CAST(mixed AS INT) END) AS s FROM t");
}

#[test]
fn many_distinct_values() {
    let mut random = Random::new(9);
    let words: Vec<String> = (0..5000)
        .map(|i| match i % 3 {
            0 => format!("word{}", random.below(3000)),
            1 => format!("mot é{}", random.below(400)),
            _ => "x".repeat(random.below(90)),
        })
        .collect();
    let column = |from: usize| {
        words
            .iter()
            .skip(from)
            .map(|w| Some(w.as_str()))
            .collect::<Vec<_>>()
    };
    let mut some = column(0);
    some.iter_mut().step_by(7).for_each(|w| *w = None);
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(words.len())),
            ("txt", strings(some)),
            ("vw", string_views(column(0))),
            (
                "few",
                strings((0..words.len()).map(|i| Some(["p", "q"][i % 2])).collect()),
            ),
        ],
    );
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n, min(txt) AS lo, max(vw) AS hi, sum(length(vw)) AS s FROM t WHERE vw LIKE 'word1%' OR txt LIKE '%é%'",
            "SELECT count(*) FILTER (WHERE txt < 'n') AS a, count(*) FILTER (WHERE length(txt) IN (1, 2, 3, 50)) AS b, \
             count(*) FILTER (WHERE NOT txt LIKE '%1%') AS c, count(substr(txt, 6)) AS d FROM t WHERE id >= 0",
            "SELECT vw, count(*) AS n, min(txt) AS lo FROM t GROUP BY vw",
            "SELECT substr(txt, 1, 5) AS k, few, count(*) AS n, max(upper(vw)) AS hi FROM t GROUP BY substr(txt, 1, 5), few",
            // What is computed twice is computed below, and is still of one string.
            "SELECT id, upper(txt) AS u, concat(upper(txt), '-', txt) AS c, \
             CASE WHEN strpos(vw, ' ') = 0 THEN vw ELSE substr(vw, 1, strpos(vw, ' ') - 1) END AS w FROM t",
        ]
        .map(String::from),
    );
}

/// Strings of which most differ lie as bytes on the device: filters, functions, payloads and short keys work on those.
#[test]
fn strings_that_do_not_repeat() {
    let mut random = Random::new(31);
    let pieces = [
        "special", "requests", " ", "é", "a", "ab", "%", "_", "🦀", "packages", "13", "31",
    ];
    let texts: Vec<String> = (0..1500)
        .map(|i| {
            let words = random.below(9);
            let tail: String = (0..words).map(|_| random.pick(&pieces)).collect();
            format!("{tail}#{i}{}", random.pick(&pieces))
        })
        .collect();
    let all: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let mut some = all.clone();
    some.iter_mut().step_by(6).for_each(|text| *text = None);
    let plain: Vec<String> = (0..1500)
        .map(|i| format!("{}-{i}", 10 + i * 7 % 25))
        .collect();
    let fixture = Fixture::device()
        .table(
            "t",
            [
                ("id", row_numbers(texts.len())),
                ("txt", strings(some)),
                ("vw", string_views(all)),
                (
                    "phone",
                    strings(plain.iter().map(|text| Some(text.as_str())).collect()),
                ),
                (
                    "few",
                    strings((0..texts.len()).map(|i| Some(["p", "q"][i % 2])).collect()),
                ),
            ],
        )
        .table(
            "u",
            [
                ("uid", row_numbers(40)),
                (
                    "name",
                    strings(
                        texts
                            .iter()
                            .rev()
                            .take(40)
                            .map(|t| Some(t.as_str()))
                            .collect(),
                    ),
                ),
            ],
        );
    let conditions = [
        "{} LIKE '%special%requests%'",
        "{} NOT LIKE '%special%'",
        "{} LIKE '%#1__%'",
        "{} ILIKE '%PACK%'",
        "{} LIKE 'a%3'",
        "{} > 'm'",
        "{} = '#0a'",
        "{} IN ('#1a', '#2ab', '#3')",
        "length({}) < 12",
        "strpos({}, '#') = 4",
        "substr({}, 1, 2) IN ('13', '31', 'ab')",
        "{} IS NULL OR {} LIKE '%é%'",
    ];
    let conditions: Vec<String> = ["txt", "vw"]
        .iter()
        .flat_map(|column| conditions.map(|c| c.replace("{}", column)))
        .collect();
    let counts = conditions
        .iter()
        .map(|c| format!("SELECT count(*) AS n, sum(id) AS s FROM t WHERE {c}"));
    check_all(&fixture, counts);
    check_all(
        &fixture,
        [
            "SELECT id, txt, vw FROM t WHERE id < 40 OR id > 1480",
            "SELECT id, length(txt) AS l, substr(vw, 1, 3) AS k FROM t WHERE few = 'p'",
            "SELECT substr(phone, 1, 2) AS k, count(*) AS n, sum(id) AS s FROM t GROUP BY substr(phone, 1, 2) ORDER BY k",
            "SELECT substr(txt, 1, 2) AS k, count(*) AS n FROM t GROUP BY substr(txt, 1, 2) ORDER BY k",
            "SELECT CASE WHEN vw LIKE '%special%' THEN 'yes' ELSE 'no' END AS k, few, count(*) AS n FROM t \
             GROUP BY CASE WHEN vw LIKE '%special%' THEN 'yes' ELSE 'no' END, few",
            "SELECT id, vw FROM t ORDER BY id DESC LIMIT 17",
            "SELECT name, vw, id FROM u JOIN t ON uid = id WHERE name LIKE '%1%' AND vw LIKE '%a%'",
            "SELECT uid, vw FROM u LEFT JOIN t ON uid + 1490 = id",
            "SELECT name, id FROM u JOIN t ON name = vw",
            "SELECT id, coalesce(txt, vw) AS c FROM t WHERE txt IS NULL OR txt < vw OR txt = vw",
            "SELECT vw FROM t WHERE upper(vw) LIKE '%SPECIAL%' ORDER BY vw LIMIT 20",
            "SELECT min(vw) AS lo, max(txt) AS hi, count(DISTINCT txt) AS d FROM t",
        ]
        .map(String::from),
    );
}

/// Strings of `rows` rows, hardly any of them equal, in which constants are rare, and some of which end in what the next row
/// goes on with.
fn comments(rows: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let words = [
        "carefully",
        "final",
        "deposits",
        "é",
        "sleep",
        "the",
        "iron",
        "🦀",
        "quickly",
        "special",
        "requests",
        "#",
        "ab",
        "aab",
        "above",
        "furiously",
        "regular",
        "packages",
        "x",
        "specia",
    ];
    let mut texts: Vec<String> = Vec::new();
    for i in 0..rows {
        let count = random.below([3, 6, 12][i / 300 % 3]);
        let mut text: String = (0..count)
            .map(|_| format!("{} ", random.pick(&words)))
            .collect();
        text += &format!("{i:x}");
        match i % 23 {
            0 => text.clear(),
            1 => text += "spec",
            2 => text = format!("ial {text} requ"),
            3 => text = format!("ests {text}"),
            4 => text += &"long and longer ".repeat(i % 40),
            _ => {}
        }
        texts.push(text);
    }
    texts
}

/// Constants anywhere in strings that lie as bytes: where most rows of a tile are wanted, its threads search together.
#[test]
fn constants_in_neighbouring_strings() {
    let mut fixture = Fixture::device();
    for (name, rows) in [("t", 2600), ("t31", 31), ("t65", 65), ("t257", 257)] {
        let (one, other) = (comments(rows, 5), comments(rows, 6));
        let one = one.iter().enumerate();
        let one = one.map(|(i, text)| (i % 7 > 0).then_some(text.as_str()));
        fixture = fixture.table(
            name,
            [
                ("id", row_numbers(rows)),
                ("txt", strings(one.collect())),
                (
                    "vw",
                    string_views(other.iter().map(|text| Some(text.as_str())).collect()),
                ),
            ],
        );
    }
    let conditions = [
        "vw LIKE '%special%'",
        "txt LIKE '%special%'",
        "txt NOT LIKE '%special%'",
        "txt LIKE '%special%requests%'",
        "txt NOT LIKE '%special%requests%'",
        "vw LIKE '%requests'",
        "vw LIKE '%special%requests'",
        "vw LIKE '%aab%ab%x%the%iron%'",
        "vw LIKE '%ab%ab%'",
        "vw LIKE 'ial%special%'",
        "txt LIKE '%no such constant anywhere%'",
        "txt LIKE '%e%'",
        "txt LIKE '%#%'",
        "vw LIKE '%🦀%'",
        "vw LIKE '%é %'",
        "vw LIKE '%ed%'",
        "vw LIKE '%bdc%'",
        "vw LIKE '%specialial%'",
        "vw LIKE '%longer long and longer long%' AND vw LIKE '%# %'",
        "vw ILIKE '%SPECIAL%'",
        "vw LIKE '%spe_ial%'",
        "txt LIKE '%special%' OR vw LIKE '%requests%' OR txt LIKE '%é%ab%' OR vw LIKE '%packages x%'",
        "vw LIKE '%special%' AND vw NOT LIKE '%requests%' AND vw LIKE '%a%'",
        "id % 40 = 3 AND vw LIKE '%e%'",
        "id > 700 AND id < 1300 AND txt LIKE '%special%'",
        "strpos(txt, 'special') > 10",
        "strpos(vw, 'requests') BETWEEN 5 AND 30",
        "strpos(vw, '') = 1",
        "contains(txt, 'furiously regular')",
        "substr(vw, 4) LIKE '%special%'",
        "CASE WHEN id < 1000 THEN vw LIKE '%special%' ELSE vw LIKE '%requests%' END",
    ];
    let counts = conditions
        .iter()
        .map(|c| format!("SELECT count(*) AS n, sum(id) AS s FROM t WHERE {c}"));
    check_all(&fixture, counts);
    for table in ["t31", "t65", "t257"] {
        let counts = conditions[..5]
            .iter()
            .map(|c| format!("SELECT count(*) AS n, sum(id) AS s FROM {table} WHERE {c}"));
        check_all(&fixture, counts);
    }
    check_all(
        &fixture,
        [
            "SELECT sum(CASE WHEN vw LIKE '%special%' THEN 1 ELSE 0 END) AS a, count(*) FILTER (WHERE txt LIKE '%requests%') AS b, \
             sum(strpos(vw, 'the')) AS c FROM t",
            "SELECT id % 5 AS k, sum(CASE WHEN vw LIKE '%special%requests%' THEN id ELSE 0 END) AS a, count(*) AS n FROM t \
             WHERE txt NOT LIKE '%iron%' GROUP BY id % 5",
            "SELECT vw LIKE '%final%deposits%' AS k, count(*) AS n FROM t GROUP BY vw LIKE '%final%deposits%'",
            "SELECT id, strpos(vw, 'requests') AS a, txt LIKE '%special%' AS b FROM t",
            "SELECT id, vw FROM t WHERE vw LIKE '%special%' LIMIT 2600",
            "SELECT u.id, count(t.id) AS n FROM t257 AS u LEFT JOIN t ON u.id = t.id % 300 AND t.txt NOT LIKE '%special%requests%' \
             GROUP BY u.id",
            "SELECT count(*) AS n FROM t257 AS u JOIN t ON u.id = t.id % 300 WHERE t.txt LIKE '%special%' OR u.vw LIKE '%special%'",
            "SELECT vw FROM t WHERE vw LIKE '%special%' ORDER BY vw LIMIT 20",
        ]
        .map(String::from),
    );
}
