//! Normalisation of query texts.

/// The text without space around it, without a last semicolon, and with every other run of white space as one space.
///
/// White space counts inside quotes. Texts with comments, other quotes or escapes keep theirs: telling which space
/// counts there takes a parser.
pub(super) fn normalised(sql: &str) -> String {
    let sql = sql.trim();
    let sql = sql.strip_suffix(';').unwrap_or(sql).trim_end();
    let odd = |text: &str| ["--", "/*", "//"].iter().any(|mark| text.contains(mark));
    if sql.contains(['\\', '$', '`', '#', '[']) || odd(sql) {
        return sql.to_string();
    }
    let mut text = String::with_capacity(sql.len());
    let mut quote = None;
    let mut space = false;
    for c in sql.chars() {
        match quote {
            // A doubled quote closes and opens again, which comes to the same.
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c.is_ascii_whitespace() => {
                space = true;
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            None => {}
        }
        if space {
            text.push(' ');
            space = false;
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn white_space_counts_inside_quotes_only() {
        assert_eq!(
            normalised(" SELECT  a,\n\tb FROM t ;\n"),
            "SELECT a, b FROM t"
        );
        assert_eq!(
            normalised("SELECT 'it''s  so' ,  \"a  b\""),
            "SELECT 'it''s  so' , \"a  b\""
        );
        assert_eq!(normalised("SELECT 1;"), "SELECT 1");
    }

    #[test]
    fn comments_and_escapes_stay_as_they_are() {
        for sql in [
            "SELECT a -- first\n FROM t",
            "SELECT /*  */ 1",
            "SELECT $$ a  b $$",
            "SELECT E'\\'  '",
        ] {
            assert_eq!(normalised(sql), sql);
        }
    }
}
