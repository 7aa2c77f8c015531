//! One string sought in another one: LIKE with patterns that are columns, `strpos` and the like, over more pairs than are looked up.

use std::collections::BTreeSet;

use warpline_sql_tests::{Fixture, Random};

use super::support::{
    Nulls, check_all, check_conditions, check_values, drawn, row_numbers, string_views, strings,
};

/// Different strings, short ones among them, of these pieces.
fn texts(count: usize, pieces: &[&str], most: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut found = BTreeSet::from([String::new()]);
    while found.len() < count {
        let length = random.below(most + 1);
        found.insert((0..length).map(|_| random.pick(pieces)).collect());
    }
    found.into_iter().collect()
}

const PIECES: [&str; 18] = [
    "a", "b", "ab", "k", "K", "\u{212a}", "s", "S", "\u{17f}", "é", "É", "🦀", "%", "_", "\\", " ",
    "<x>", "\n",
];

/// Rows with a long string, a short one, a plain one of ASCII, and a pattern; most differ.
fn fixture(rows: usize, nulls: Nulls) -> Fixture {
    let long = texts(700, &PIECES, 24, 1);
    let short = texts(150, &PIECES, 2, 2);
    let plain = texts(300, &["a", "b", "k", "S", "x", " ", "<", "1"], 4, 3);
    let pattern = texts(300, &["a", "k", "é", "%", "%", "_", "\\"], 5, 4);
    let column = |of: &[String], seed: u64| {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        drawn(&of, rows, nulls, seed)
            .into_iter()
            .map(|text| text.map(str::to_string))
            .collect::<Vec<_>>()
    };
    let mut unlike = column(&long, 9);
    for (i, text) in unlike.iter_mut().enumerate() {
        if let Some(text) = text {
            *text = format!("{text}#{i}");
        }
    }
    let long = column(&long, 5);
    let short = column(&short, 6);
    let plain = column(&plain, 7);
    let pattern = column(&pattern, 8);
    fn of(texts: &[Option<String>]) -> Vec<Option<&str>> {
        texts.iter().map(Option::as_deref).collect()
    }
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("long", strings(of(&long))),
            ("short", string_views(of(&short))),
            ("plain", strings(of(&plain))),
            ("pattern", strings(of(&pattern))),
            ("unlike", string_views(of(&unlike))),
        ],
    )
}

const VALUES: [&str; 8] = [
    "strpos(long, short)",
    "strpos(unlike, short)",
    "position(plain IN long)",
    "strpos(plain, short)",
    "contains(long, short)",
    "starts_with(unlike, short)",
    "ends_with(long, short)",
    "strpos(long, long)",
];

const CONDITIONS: [&str; 19] = [
    "long LIKE '%' || short || '%'",
    "long NOT LIKE '%' || short || '%'",
    "unlike LIKE '%' || short || '%'",
    "long LIKE concat('%', short, '%')",
    "long LIKE short || '%'",
    "long LIKE '%' || short",
    "long LIKE '_' || short || '%'",
    "long LIKE pattern",
    "unlike NOT LIKE pattern",
    "plain LIKE '%<' || plain || '>%' OR plain LIKE pattern",
    "long ILIKE '%' || plain || '%'",
    "unlike ILIKE plain || '%'",
    "long NOT ILIKE '%' || plain",
    "long ILIKE '_%' || plain || '_'",
    "lower(long) LIKE '%' || lower(short) || '%'",
    "contains(upper(long), upper(plain)) AND long <> plain",
    "strpos(long, short) > 3",
    "CASE WHEN id % 2 = 0 THEN long LIKE pattern ELSE contains(long, short) END",
    "coalesce(long, plain) LIKE '%' || coalesce(short, 'a') || '%'",
];

#[test]
fn in_strings_of_the_same_row() {
    // Fewer rows have so few combinations that these are looked up.
    for nulls in Nulls::EACH {
        let fixture = fixture(1500, nulls);
        check_values(&fixture, "t", &VALUES);
        check_conditions(&fixture, "t", &CONDITIONS);
    }
}

#[test]
fn without_look_ups_of_combinations() {
    let fixture = fixture(900, Nulls::Some);
    fixture.set("warpline.value_tables", "false");
    check_values(&fixture, "t", &VALUES);
    let sure: Vec<&str> = CONDITIONS
        .into_iter()
        .filter(|condition| !condition.contains("ILIKE"))
        .collect();
    check_conditions(&fixture, "t", &sure);
}

/// Letters of other scripts have cases that only DataFusion knows.
#[test]
fn patterns_of_any_case_beyond_ascii() {
    let fixture = fixture(1200, Nulls::Some);
    fixture.set("warpline.require_gpu", "false");
    fixture.check("SELECT count(*) AS n, sum(id) AS s FROM t WHERE long ILIKE '%' || short || '%'");
}

#[test]
fn in_strings_of_other_rows() {
    let mut random = Random::new(17);
    let tags: Vec<String> = (0..300).map(|i| format!("tag{i}")).collect();
    let lists: Vec<String> = (0..400)
        .map(|_| {
            let some = (0..random.below(4)).map(|_| format!("<{}>", tags[random.below(300)]));
            some.collect()
        })
        .collect();
    let lists = lists.iter().enumerate();
    let lists = lists.map(|(i, list)| (i % 9 > 0).then_some(list.as_str()));
    let named = tags.iter().map(|tag| Some(tag.as_str()));
    let fixture = Fixture::device()
        .table(
            "posts",
            [("id", row_numbers(400)), ("tags", strings(lists.collect()))],
        )
        .table(
            "tags",
            [
                ("tag", row_numbers(300)),
                ("name", strings(named.collect())),
            ],
        );
    check_all(
        &fixture,
        [
            "SELECT name, count(*) AS n, min(id) AS lo FROM posts JOIN tags ON tags LIKE '%<' || name || '>%' GROUP BY name",
            "SELECT name, count(id) AS n FROM tags LEFT JOIN posts ON strpos(tags, name) > 0 GROUP BY name",
            "SELECT count(*) AS n FROM posts WHERE EXISTS (SELECT 1 FROM tags WHERE tags LIKE '%' || name || '>%' AND tag > id)",
            "SELECT count(*) AS n FROM posts WHERE NOT EXISTS (SELECT 1 FROM tags WHERE starts_with(tags, '<' || name))",
        ]
        .map(String::from),
    );
}
