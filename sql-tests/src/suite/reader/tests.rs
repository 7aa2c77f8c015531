//! Directives, loops, conditions, and files that are none.

use super::*;

fn sql(text: &str) -> Vec<String> {
    let found = read(text);
    found.into_iter().map(|statement| statement.sql).collect()
}

#[test]
fn statements_are_found_with_their_lines() {
    let text = "# name: a\nrequire parquet\n\nhash-threshold 8\n\nstatement ok\nCREATE TABLE t(\n  a INT)\n\n\
                query I nosort label\nSELECT a\nFROM t;\n----\nquery\n2\n\nquery II\nSELECT 1\n----\n30 values hashing to 9\n\n\
                statement error con1\nSELECT nothing\n----\n<REGEX>:no\n";
    let found: Vec<(u32, String)> = read(text).into_iter().map(|s| (s.line, s.sql)).collect();
    let wanted = [
        (6, "CREATE TABLE t(\n  a INT)"),
        (10, "SELECT a\nFROM t"),
        (17, "SELECT 1"),
        (22, "SELECT nothing"),
    ];
    assert_eq!(found, wanted.map(|(line, sql)| (line, sql.to_string())));
}

#[test]
fn loops_are_expanded() {
    let text = "loop i 0 3\n\nstatement ok\nINSERT ${i}\n\nforeach t,u a,b c,d\n\nonlyif i=1\nquery I\n{i} ${t} {u}\n\nendloop\n\nendloop\n\
                foreach type <integral> decimal(4,1) !bigint\n\nquery I\n${type}\n\nendloop\n\nquery I\nafter\n";
    let wanted = [
        "INSERT 0",
        "INSERT 1",
        "1 a b",
        "1 c d",
        "INSERT 2",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "decimal(4,1)",
        "after",
    ];
    assert_eq!(sql(text), wanted);
    // Bounds that are variables of loops around.
    let text = "loop i 1 3\nloop j 0 ${i}\nquery I\n${j}\n\nendloop\nendloop\n";
    assert_eq!(sql(text), ["0", "0", "1"]);
}

#[test]
fn loops_have_bounds() {
    let body = "query I\nx\n\n";
    assert_eq!(
        sql(&format!("loop i 0 1000000000000\n{body}endloop\n")).len(),
        24
    );
    let deep = "loop i 0 1000\n".repeat(7) + &body.repeat(3) + &"endloop\n".repeat(7);
    assert_eq!(sql(&deep).len(), STATEMENTS);
    let empty = "loop i 0 1000\n".repeat(7) + &"endloop\n".repeat(7) + body;
    assert_eq!(sql(&empty).len(), 0);
    // Deeper ones are left out, and the stack holds.
    let deeper = "loop i 0 2\n".repeat(5000) + body + &"endloop\n".repeat(5000) + body;
    assert_eq!(sql(&deeper).len(), 1);
}

#[test]
fn conditions_pick_statements() {
    let record = |condition: &str| format!("{condition}\nquery I rowsort\nx\n----\n1\n\n");
    for (condition, runs) in [
        ("onlyif mysql # aggregate syntax", false),
        ("skipif mysql # not compatible", true),
        ("onlyif datafusion", true),
        ("skipif DataFusion", false),
        ("skipif sqlite\nonlyif mysql", false),
        ("onlyif i=3", true),
        ("onlyif i = 4", false),
        ("onlyif i<>3", false),
        ("onlyif i>=2&&i<=3", true),
        ("onlyif i>10||i<2", false),
        ("skipif i>2", false),
        ("skipif i=x", true),
        ("mode skip unsupported", false),
        ("mode skip\nmode unskip", true),
        ("skipif sqlite\n\n# remark", true),
    ] {
        let text = format!("loop i 3 4\n{}endloop\n", record(condition));
        assert_eq!(sql(&text).len(), usize::from(runs), "{condition}");
    }
    // A condition is for one record alone.
    assert_eq!(sql(&(record("onlyif mysql") + &record(""))).len(), 1);
    assert_eq!(sql("onlyif mssql\nhalt\n\nquery I\nx\n").len(), 1);
    assert_eq!(sql("query I\nx\n\nhalt\n\nquery I\ny\n").len(), 1);
}

#[test]
fn records_may_hold_several_statements() {
    let text = "statement ok\nINSERT 'a;''b'; SELECT \"c;d\" -- e;f\n; /* g;h */ ;\nSELECT $$i;j$$, $k$l;$$;m$k$, $1;$2;\n";
    assert_eq!(
        sql(text),
        [
            "INSERT 'a;''b'",
            "SELECT \"c;d\" -- e;f",
            "SELECT $$i;j$$, $k$l;$$;m$k$, $1",
            "$2",
        ]
    );
}

#[test]
fn no_file_is_too_odd() {
    for text in [
        "",
        "\u{0}",
        "query",
        "query\n",
        "statement ok",
        "query I\n----\n----\n",
        "statement ok\n'",
        "statement ok\n$é$; /* ä",
        "query I\nSELECT 'ü;",
        "endloop\nendloop\nhalt",
        "loop\nquery I\nx\n",
        "loop i\nquery I\nx\n",
        "loop i 9223372036854775806 9223372036854775807\nquery I\nx\n",
        "loop i 5 -5\n\nendloop",
        "foreach\n",
        "foreach a,b c\nquery\n${b}\n\nendloop",
        "onlyif\nskipif\nonlyif =\nonlyif &&||<\nquery I\nx\n",
        "mode\nmode skip\n",
    ] {
        assert!(read(text).len() <= 2, "{text:?}");
    }
    // Any beginning and any end of a file that uses everything.
    let text = "skipif i=1\nloop i 0 3\n\nstatement ok\nINSERT ${i}; 'ä;' $$;$$ /*;*/ --;\n----\n1\n\nforeach t <alltypes> é\nquery I\n{t}\n\nendloop\nendloop\nhalt";
    for (at, _) in text.char_indices() {
        read(&text[at..]);
        read(&text[..at]);
    }
}
