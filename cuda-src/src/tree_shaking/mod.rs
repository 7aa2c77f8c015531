//! Kernel sources that bring the parts of the headers along which they use, in place of their includes.
//!
//! A compiler reads all that is included, and most of a small kernel's compilation went by with headers. A function or type of a
//! header that no text names which is compiled cannot matter, so it is left out. Names alone decide: all functions and types of a
//! name go together, so overloads are resolved as they were. Macros, constants, aliases and conditions stay.

mod items;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::LazyLock;

use self::items::{Item, Kind, included_by, items, without_comments, words};
use crate::headers::{emulator_headers, headers};

/// All headers as items, by name.
static HEADERS: LazyLock<HashMap<&'static str, Vec<Item>>> = LazyLock::new(|| {
    let parsed = headers().iter().map(|(name, text)| (*name, items(text)));
    parsed.collect()
});

/// A line of the source with its number, or an item of a header.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Line(usize, &'a str),
    Item(&'a Item),
}

/// The source with what it uses of Warpline's [`headers`] in place of its includes; as it is if it includes
/// anything else. For the GPU's compiler: what the emulator includes besides is left out.
pub fn self_contained(source: &str) -> String {
    let mut parts = Vec::new();
    let mut included = HashSet::new();
    for (number, line) in (1..).zip(source.lines()) {
        match included_by(line) {
            None => parts.push(Part::Line(number, line)),
            Some(name) if include(name, &mut included, &mut parts) => {}
            Some(_) => return source.to_string(),
        }
    }
    let used = used(source, &parts);
    let mut text = String::with_capacity(2 * source.len());
    // The compiler's messages name the lines of the source.
    let mut expected = 1;
    for (at, part) in parts.iter().enumerate() {
        let line = match part {
            Part::Line(number, line) => {
                if *number != expected {
                    let _ = writeln!(text, "#line {number}");
                }
                expected = number + 1;
                line
            }
            Part::Item(item) if used.contains(&at) => {
                expected = 0;
                item.text.as_str()
            }
            Part::Item(_) => continue,
        };
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Appends the items of a header and of those that it includes, each once; false where one is unknown.
fn include<'a>(
    name: &str,
    included: &mut HashSet<&'static str>,
    parts: &mut Vec<Part<'a>>,
) -> bool {
    let Some((name, items)) = HEADERS.get_key_value(name) else {
        return emulator_headers().iter().any(|(known, _)| *known == name);
    };
    if !included.insert(name) {
        return true;
    }
    items.iter().all(|item| match &item.kind {
        Kind::Include(name) => include(name, included, parts),
        _ => {
            parts.push(Part::Item(item));
            true
        }
    })
}

/// The numbers of the parts that are needed.
fn used(source: &str, parts: &[Part<'_>]) -> HashSet<usize> {
    let all = || {
        let numbered = parts.iter().enumerate();
        numbered.filter_map(|(number, part)| match part {
            Part::Line(..) => None,
            Part::Item(item) => Some((number, *item)),
        })
    };
    let mut functions: HashMap<&str, Vec<&str>> = HashMap::new();
    for (_, item) in all() {
        if let Kind::Macro(names) = &item.kind {
            let names = names.iter().map(String::as_str);
            functions.entry(&item.name).or_default().extend(names);
        }
    }
    // By what makes an item wanted.
    let mut by_word: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut used = HashSet::new();
    let code = without_comments(source);
    let mut wanted: Vec<&str> = words(&code).collect();
    for (number, item) in all() {
        let called = functions.get(item.name.as_str());
        let called = called.filter(|names| item.kind == Kind::Call && !names.is_empty());
        match (&item.kind, called) {
            (Kind::Call, Some(names)) => {
                for name in names {
                    by_word.entry(name).or_default().push(number);
                }
            }
            (Kind::Named, _) => by_word.entry(&item.name).or_default().push(number),
            (Kind::Macro(_), _) => {
                used.insert(number);
                by_word.entry(&item.name).or_default().push(number);
            }
            (Kind::Directive, _) => {
                used.insert(number);
            }
            (Kind::Include(_) | Kind::Call | Kind::Unnamed, _) => {
                used.insert(number);
                wanted.extend(item.words.iter().map(String::as_str));
            }
        }
    }
    let mut seen = HashSet::new();
    while let Some(word) = wanted.pop() {
        if !seen.insert(word) {
            continue;
        }
        for number in by_word.get(word).into_iter().flatten() {
            used.insert(*number);
            if let Some(Part::Item(item)) = parts.get(*number) {
                wanted.extend(item.words.iter().map(String::as_str));
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_comes_along_with_what_it_names() {
        let source = "#define WL_BLOCK_THREADS 64\n#include \"pipeline.cuh\"\nWL_DEVICE u64 f(u64 v) { return block_sum(v, s); }\n";
        let text = self_contained(source);
        // Called, by what is called, in a macro's call, and what all need.
        for part in [
            "WL_DEVICE T block_sum(",
            "WL_SUM(u64)",
            "WL_DEVICE T wl_tree_sum(",
            "struct BlockScratch",
            "typedef unsigned long long u64;",
            "#define WL_KERNEL",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        for part in [
            "block_min(",
            "hash64",
            "WL_MIN_MAX(u64)",
            "#include",
            "//",
            "text_like",
        ] {
            assert!(!text.contains(part), "{part} is in\n{text}");
        }
        assert!(text.starts_with("#define WL_BLOCK_THREADS 64\ntypedef"));
        assert!(text.contains("\n#line 3\nWL_DEVICE u64 f("));
        assert!(text.ends_with("{ return block_sum(v, s); }\n"));
    }

    #[test]
    fn a_name_in_a_comment_is_not_used() {
        let text = self_contained("#include \"primitives.cuh\"\n// hash64\nint f() { return 1; }");
        assert!(!text.contains("u64 hash64("));
        let text = self_contained("#include \"primitives.cuh\"\nint f() { return hash64(1); }");
        assert!(text.contains("u64 hash64("));
    }

    #[test]
    fn headers_come_once_and_unknown_ones_leave_a_source_as_it_is() {
        let once = self_contained("#include \"simt.cuh\"\n#include \"primitives.cuh\"\n");
        assert_eq!(once.matches("typedef signed char i8;").count(), 1);
        let unknown = "#include \"simt.cuh\"\n#include \"elsewhere.cuh\"\n";
        assert_eq!(self_contained(unknown), unknown);
        let plain = "int f() { return 1; }\n";
        assert_eq!(self_contained(plain), plain);
    }

    #[test]
    fn every_item_of_every_header_is_understood() {
        for (name, items) in HEADERS.iter() {
            for item in items {
                let balanced = item.text.matches('{').count() == item.text.matches('}').count();
                assert!(balanced, "{name}: {}", item.text);
                let function = item.kind == Kind::Unnamed && item.text.contains("WL_DEVICE");
                assert!(
                    !function || item.text.contains("operator"),
                    "{name}: {}",
                    item.text
                );
            }
        }
    }
}
