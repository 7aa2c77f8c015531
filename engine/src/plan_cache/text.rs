//! Normalisation of query texts.

/// The text without space around it, without a last semicolon, and with every other run of white space as one space.
///
/// White space counts inside quotes. Texts with comments, other quotes or escapes keep theirs: telling which space
/// counts there takes a parser.
pub(super) fn normalised(sql: &str) -> String {
    let sql = sql.trim();
    let sql = sql.strip_suffix(';').unwrap_or(sql).trim_end();
    let mut text = String::with_capacity(sql.len());
    let (mut word, mut before, mut quote) = (0, 0, None);
    for (at, byte) in sql.bytes().enumerate() {
        let is_odd = match byte {
            b'\\' | b'$' | b'`' | b'#' | b'[' => true,
            b'-' => before == b'-',
            b'*' | b'/' => before == b'/',
            _ => false,
        };
        if is_odd {
            return sql.to_string();
        }
        before = byte;
        match quote {
            // A doubled quote closes and opens again, which comes to the same.
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte.is_ascii_whitespace() => {
                if word < at {
                    text.push_str(&sql[word..at]);
                    text.push(' ');
                }
                word = at + 1;
            }
            None if byte == b'\'' || byte == b'"' => quote = Some(byte),
            None => {}
        }
    }
    text.push_str(&sql[word..]);
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
        assert_eq!(normalised(";"), "");
        assert_eq!(
            normalised("SELECT  'größer  als' ,\n ü-1\t FROM  \"a\""),
            "SELECT 'größer  als' , ü-1 FROM \"a\""
        );
    }

    #[test]
    fn comments_and_escapes_stay_as_they_are() {
        for sql in [
            "SELECT a -- first\n FROM t",
            "SELECT /*  */ 1",
            "SELECT  1 // 2",
            "SELECT $$ a  b $$",
            "SELECT E'\\'  '",
        ] {
            assert_eq!(normalised(sql), sql);
        }
    }
}
