//! Text of a node for DataFusion's indented EXPLAIN: a line an entry below the node's own, broken where it is long.

/// Columns that entries are moved by: to the right of the nodes around, whose depth a node does not know.
const INDENT: usize = 8;
/// Columns that the rest of a broken entry is moved by in addition.
const REST: usize = 4;
/// Characters after which an entry breaks, between its parts.
const WIDTH: usize = 110;
/// What parts end in.
const ENDS: [&str; 2] = ["; ", " | "];
/// What parts of a part end in that is longer than a line.
const INNER_END: &str = ", ";

/// The entries, each with a line break in front; spaces at its beginning stay.
pub fn indented<'a>(entries: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for entry in entries {
        let own = entry.len() - entry.trim_start().len();
        let (mut indent, mut line) = (INDENT + own, String::new());
        for part in parts(entry.trim()) {
            let length = line.chars().count() + part.trim_end().chars().count();
            if !line.is_empty() && length > WIDTH {
                push(&mut out, indent, &line);
                line.clear();
                indent = INDENT + own + REST;
            }
            line.push_str(part);
        }
        push(&mut out, indent, &line);
    }
    out
}

fn push(out: &mut String, indent: usize, line: &str) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    out.push_str(line.trim_end());
}

/// The entry, cut behind each of [`ENDS`], and behind each [`INNER_END`] where that leaves more than a line.
fn parts(entry: &str) -> Vec<&str> {
    let (mut rest, mut parts) = (entry, Vec::new());
    while !rest.is_empty() {
        let ends = ENDS
            .iter()
            .filter_map(|end| Some(rest.find(end)? + end.len()));
        let (part, after) = rest.split_at(ends.min().unwrap_or(rest.len()));
        match part.chars().count() > WIDTH {
            true => parts.extend(part.split_inclusive(INNER_END)),
            false => parts.push(part),
        }
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_lines_and_break_between_parts() {
        assert_eq!(indented([]), "");
        assert_eq!(indented(["a := b", "  c"]), "\n        a := b\n          c");
        let part = format!("ö{}", "x".repeat(49));
        let long = [part.as_str(); 3].join("; ");
        assert_eq!(
            indented([long.as_str()]),
            format!("\n        {part}; {part};\n            {part}")
        );
        // What has no end of a part stays whole.
        let whole = "y".repeat(300);
        assert_eq!(indented([whole.as_str()]), format!("\n        {whole}"));
        let list = format!("{}; z", ["1234567890"; 10].join(", "));
        let text = indented([list.as_str()]);
        let lengths: Vec<usize> = text.lines().skip(1).map(str::len).collect();
        assert_eq!(lengths, [8 + 107, 12 + 13], "{text}");
        let steps = format!("a := {whole} | b | c");
        let text = indented([steps.as_str()]);
        assert_eq!(text, format!("\n        a := {whole} |\n            b | c"));
    }
}
