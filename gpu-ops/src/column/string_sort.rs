//! Sorts the strings of several interners, eight bytes at a time.
//!
//! Strings of one column tend to begin alike, and each lies somewhere else in memory. So what is compared are integers: the
//! eight bytes behind all that a group of strings has in common. Strings that agree in these form smaller groups, which are
//! sorted by what comes next (multikey sorting, Bentley and Sedgewick, SODA 1997, section 5).

use super::interner::Interner;

/// Groups up to this size are sorted by whole strings.
const SMALL: usize = 24;
/// Bytes of a head.
const HEAD: usize = 8;

/// A string of a segment's interner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// While sorting, bytes of the string; afterwards whether it equals the one before.
    head: u64,
    pub(super) segment: u32,
    pub(super) number: u32,
}

impl Entry {
    pub(super) fn new(segment: u32, number: u32) -> Self {
        Self {
            head: 0,
            segment,
            number,
        }
    }

    pub(super) fn text<'a>(self, segments: &[&'a Interner]) -> &'a [u8] {
        segments[self.segment as usize].value(self.number)
    }

    /// Of sorted entries: does the string equal that of the entry before?
    pub(super) fn repeats(self) -> bool {
        self.head == 1
    }
}

/// Sorts entries by the bytes of their strings and marks those that equal the one before them.
pub(super) fn sort(entries: &mut [Entry], segments: &[&Interner]) {
    let mut work = vec![(0, entries.len(), 0)];
    while let Some((start, end, known)) = work.pop() {
        let group = &mut entries[start..end];
        if group.len() <= SMALL {
            sort_small(group, segments, known);
            continue;
        }
        let depth = match in_common(group, segments, known) {
            Common::All => {
                mark(group, |_, _| true);
                continue;
            }
            Common::Bytes(depth) => depth,
        };
        for entry in group.iter_mut() {
            entry.head = head(&entry.text(segments)[depth..]);
        }
        group.sort_unstable_by_key(|entry| entry.head);
        let mut first = 0;
        while first < group.len() {
            let head = group[first].head;
            let equal = group[first..].iter().take_while(|e| e.head == head);
            let len = equal.count();
            let ties = &mut group[first..first + len];
            if len == 1 {
                ties[0].head = 0;
            } else if len <= SMALL {
                sort_small(ties, segments, depth);
            } else if ties.iter().all(|e| e.text(segments).len() >= depth + HEAD) {
                work.push((start + first, start + first + len, depth + HEAD));
            } else {
                // What is missing at the end of a string looks like zeros, which another may have.
                sort_whole(ties, segments, depth);
            }
            first += len;
        }
    }
}

fn sort_small(group: &mut [Entry], segments: &[&Interner], known: usize) {
    match group {
        [] => {}
        [one] => one.head = 0,
        many => sort_whole(many, segments, known),
    }
}

/// Sorts by all that follows the first `known` bytes.
fn sort_whole(group: &mut [Entry], segments: &[&Interner], known: usize) {
    let rest = |entry: &Entry| &entry.text(segments)[known..];
    group.sort_unstable_by(|a, b| rest(a).cmp(rest(b)));
    mark(group, |a, b| rest(&a) == rest(&b));
}

/// Marks every entry but the first by whether it equals the one before.
fn mark(group: &mut [Entry], equal: impl Fn(Entry, Entry) -> bool) {
    let mut before = None;
    for entry in group {
        entry.head = u64::from(before.is_some_and(|before| equal(before, *entry)));
        before = Some(*entry);
    }
}

enum Common {
    /// The strings are equal.
    All,
    /// They agree in so many bytes.
    Bytes(usize),
}

/// What the strings of a group, which agree in `known` bytes, have in common.
fn in_common(group: &[Entry], segments: &[&Interner], known: usize) -> Common {
    let Some(first) = group.first().map(|entry| entry.text(segments)) else {
        return Common::All;
    };
    let (mut common, mut equal) = (first.len(), true);
    for entry in group {
        let text = entry.text(segments);
        equal &= text.len() == first.len();
        if text.get(..common) != Some(&first[..common]) {
            let pairs = text[known..].iter().zip(&first[known..common]);
            common = known + pairs.take_while(|(a, b)| a == b).count();
        }
        if common == known && !equal {
            break;
        }
    }
    match equal && common == first.len() {
        true => Common::All,
        false => Common::Bytes(common),
    }
}

/// The first bytes as an integer of the same order.
fn head(text: &[u8]) -> u64 {
    if let Some(bytes) = text.first_chunk::<HEAD>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; HEAD];
    bytes[..text.len()].copy_from_slice(text);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts strings spread over `segments` interners; compares with the standard library.
    fn check(texts: &[Vec<u8>], segments: usize) {
        let mut interners: Vec<Interner> = (0..segments).map(|_| Interner::new()).collect();
        let mut entries = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let segment = i % segments;
            let before = interners[segment].len();
            let number = interners[segment].intern(text).expect("a number");
            if interners[segment].len() > before {
                entries.push(Entry::new(segment as u32, number));
            }
        }
        let interners: Vec<&Interner> = interners.iter().collect();
        let mut expected: Vec<&[u8]> = entries.iter().map(|e| e.text(&interners)).collect();
        expected.sort_unstable();
        sort(&mut entries, &interners);
        let found: Vec<&[u8]> = entries.iter().map(|e| e.text(&interners)).collect();
        assert_eq!(found, expected);
        for (i, entry) in entries.iter().enumerate() {
            assert_eq!(entry.repeats(), i > 0 && found[i] == found[i - 1], "{i}");
        }
    }

    #[test]
    fn strings_of_all_shapes_are_sorted() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for segments in [1, 3, 40] {
            check(&[], segments);
            check(&[b"".to_vec()], segments);
            // The same string in all segments, and nothing else.
            check(&vec![b"https://example.org/".to_vec(); 100], segments);
            // Zeros at the end are not what is missing at the end.
            let zeros: Vec<Vec<u8>> = (0..200).map(|i| vec![0; i % 21]).collect();
            check(&zeros, segments);
            // Long common beginnings, repeats, and strings that begin others.
            let urls: Vec<Vec<u8>> = (0..3_000)
                .map(|_| {
                    let (host, path, cut) = (next(4), next(300), next(60) as usize);
                    let url = format!("https://host{host}.example.org/größe/path/{path:09}/end");
                    url.as_bytes()[..url.len() - cut.min(40)].to_vec()
                })
                .collect();
            check(&urls, segments);
            let noise: Vec<Vec<u8>> = (0..2_000)
                .map(|_| (0..next(12)).map(|_| (next(3) * 127) as u8).collect())
                .collect();
            check(&noise, segments);
            let ascending: Vec<Vec<u8>> =
                (0..2_000).map(|i| format!("key {i:08}").into()).collect();
            check(&ascending, segments);
        }
    }
}
