//! Text for the boxes of DataFusion's tree-shaped EXPLAIN.
//!
//! A box is 27 characters wide, has 30 lines, sorts its entries, splits each at an equals sign and cuts lines at bytes, which
//! fails within characters of several bytes. So entries are numbered, have no such sign, share the lines there are, and are
//! plain ASCII.

/// Characters of a line.
const WIDTH: usize = 27;
/// Lines that entries share: a box has 30, of which some go to the separator, the device and the last entry.
const LINES: usize = 25;
/// An entry with less than that says nothing.
const FEWEST: usize = 2;

/// An entry of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What entries are sorted by before their number, and shown with; it begins with a letter, or is empty for those that
    /// come first.
    pub key: &'static str,
    /// Anything.
    pub text: &'a str,
}

/// Lines for a box, one an entry, in the order of keys, shortened so that all find room, and a hint when something was left
/// out. Entries with a key get twice the room of others.
pub fn boxed(entries: &[Entry<'_>]) -> Vec<String> {
    let weight = |entry: &Entry<'_>| if entry.key.is_empty() { 1 } else { 2 };
    let shown = entries.len().min(LINES / (FEWEST + 1));
    let shares: usize = entries.iter().take(shown).map(weight).sum();
    // A line is empty between entries.
    let share = (LINES - shown) / shares.max(1);
    let mut cut = entries.len() > shown;
    let mut out = Vec::with_capacity(shown + 1);
    for (number, entry) in entries.iter().take(shown).enumerate() {
        let of_key = entries[..number].iter().filter(|e| e.key == entry.key);
        let number = of_key.count() + 1;
        let text = match entry.key {
            "" => format!("{number:02} {}", plain(entry.text)),
            key => format!("{key} {number:02}: {}", plain(entry.text)),
        };
        let lines = (share * weight(entry)).max(FEWEST);
        // Lines break between words: the end of each is not counted on. Three characters are dots.
        let room = lines * (WIDTH - 6) - 3;
        out.push(match text.char_indices().nth(room) {
            Some((end, _)) => {
                cut = true;
                format!("{}...", text[..end].trim_end())
            }
            None => text,
        });
    }
    if cut {
        out.push("see also=FORMAT INDENT".to_string());
    }
    out
}

/// A choice with its price in front: `price; subject: reasons`. As it is where it names no price.
pub(in crate::exec) fn priced(choice: &str) -> String {
    let mut parts = choice.split("; ");
    let head = parts.next().unwrap_or_default();
    let price = parts.find(|part| part.contains(" ms"));
    match price {
        Some(price) => {
            let price = price.split(" (").next().unwrap_or(price);
            format!("{price}; {head}")
        }
        None => choice.to_string(),
    }
}

/// The text in ASCII, on one line, without equals signs.
pub(in crate::exec) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = text.trim().replace(" := ", " from ").replace(" = ", " is ");
    for character in text.chars() {
        match character {
            '⋈' => out.push_str("JOIN"),
            '…' => out.push_str("..."),
            '\n' | '\t' => out.push(' '),
            '=' => out.push(':'),
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_come_first() {
        let choice = "groups of a in registers: 5 groups; private 0.018 ms (aggregate 0.018 ms); shared 1 ms";
        assert_eq!(
            priced(choice),
            "private 0.018 ms; groups of a in registers: 5 groups"
        );
        for unpriced in ["", "index a is perfect: 5 keys; kept", "rows of equal keys"] {
            assert_eq!(priced(unpriced), unpriced);
        }
    }

    /// Lines that an entry takes at most: its text, where no word is longer than six characters, and an empty one.
    fn lines_of(entry: &str) -> usize {
        1 + entry.len().div_ceil(WIDTH - 6)
    }

    #[test]
    fn entries_find_room_in_order() {
        let long = "probe a ⋈ b … on (größe = c) ".repeat(20);
        for (steps, choices) in [(1, 0), (1, 1), (2, 3), (4, 3), (20, 20)] {
            let step = Entry {
                key: "",
                text: &long,
            };
            let choice = Entry {
                key: "choice",
                text: &long,
            };
            let entries = [vec![step; steps], vec![choice; choices]].concat();
            let mut lines = boxed(&entries);
            assert_eq!(lines.pop().as_deref(), Some("see also=FORMAT INDENT"));
            assert!(
                lines
                    .iter()
                    .all(|line| line.is_ascii() && !line.contains('=')),
                "{lines:?}"
            );
            assert!(lines.is_sorted(), "{lines:?}");
            let sum: usize = lines.iter().map(|line| lines_of(line)).sum();
            assert!(sum <= 28, "{steps} and {choices}: {sum}");
        }
        let entries = ["a ⋈ b", "c := d"].map(|text| Entry { key: "", text });
        assert_eq!(boxed(&entries), ["01 a JOIN b", "02 c from d"]);
        assert!(boxed(&[]).is_empty());
    }
}
