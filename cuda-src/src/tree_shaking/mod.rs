//! Kernel sources that bring the parts of the headers along which they use, in place of their includes.
//!
//! A compiler reads all that is included, and most of a small kernel's compilation went by with headers. A function or type of a
//! header that no text names which is compiled cannot matter, so it is left out. Names alone decide: all functions and types of a
//! name go together, so overloads are resolved as they were. Macros, constants, aliases and conditions stay.

mod items;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::LazyLock;

use self::items::{
    Functions, Item, Kind, for_the_gpu, included_by, items, without_comments, words,
};
use crate::headers::{emulator_headers, headers};

/// The headers that sources for one compiler may include.
#[derive(Debug)]
pub(crate) struct Library {
    items: HashMap<&'static str, Vec<Item>>,
    /// Headers that only other compilers may read.
    skipped: Vec<&'static str>,
}

/// What NVRTC reads.
static GPU: LazyLock<Library> = LazyLock::new(|| {
    let files = headers().iter();
    let parsed = files.map(|(name, text)| (*name, for_the_gpu(items(text))));
    Library {
        items: parsed.collect(),
        skipped: emulator_headers().iter().map(|(name, _)| *name).collect(),
    }
});

/// A line of the source with its number, or an item of the header of that name.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Line(usize, &'a str),
    Item(&'a str, &'a Item),
}

/// The source with what it uses of Warpline's [`headers`] in place of its includes; as it is if it includes
/// anything else. For the GPU's compiler: what the emulator includes besides is left out.
pub fn self_contained(source: &str) -> String {
    let Some(parts) = GPU.parts(source) else {
        return source.to_string();
    };
    let mut text = String::with_capacity(2 * source.len());
    // The compiler's messages name the lines of the source.
    let mut expected = 1;
    for part in parts {
        let line = match part {
            Part::Line(number, line) => {
                if number != expected {
                    let _ = writeln!(text, "#line {number}");
                }
                expected = number + 1;
                line
            }
            Part::Item(_, item) => {
                expected = 0;
                item.text.as_str()
            }
        };
        text.push_str(line);
        text.push('\n');
    }
    text
}

impl Library {
    /// Headers by name, and the names of those that only other compilers may read.
    pub(crate) fn new<'a>(
        headers: impl IntoIterator<Item = (&'static str, &'a str)>,
        skipped: &[&'static str],
    ) -> Self {
        let parsed = headers.into_iter();
        Self {
            items: parsed.map(|(name, text)| (name, items(text))).collect(),
            skipped: skipped.to_vec(),
        }
    }

    /// The source with what it uses of the headers in place of its includes; `None` if it includes anything else. The compiler's messages
    /// name the files and lines that they would name without this; `name` is that of the source.
    pub(crate) fn self_contained(&self, name: &str, source: &str) -> Option<String> {
        let mut text = String::with_capacity(4 * source.len());
        let mut expected = ("", 0);
        for part in self.parts(source)? {
            let (file, line, lines) = match part {
                Part::Line(number, line) => (name, number, line),
                Part::Item(header, item) => (header, item.line, item.text.as_str()),
            };
            if (file, line) != expected {
                let _ = writeln!(text, "#line {line} \"{file}\"");
            }
            text.push_str(lines);
            text.push('\n');
            expected = (file, line + 1 + lines.matches('\n').count());
        }
        Some(text)
    }

    /// The lines of the source, and the items of headers that are needed in place of its includes; `None` if it includes anything else.
    fn parts<'a>(&'a self, source: &'a str) -> Option<Vec<Part<'a>>> {
        let mut parts = Vec::new();
        let mut included = HashSet::new();
        for (number, line) in (1..).zip(source.lines()) {
            match included_by(line) {
                None => parts.push(Part::Line(number, line)),
                Some(name) if self.include(name, &mut included, &mut parts) => {}
                Some(_) => return None,
            }
        }
        let used = used(source, &parts);
        let numbered = parts.into_iter().enumerate();
        let needed =
            numbered.filter(|(at, part)| matches!(part, Part::Line(..)) || used.contains(at));
        Some(needed.map(|(_, part)| part).collect())
    }

    /// Appends the items of a header and of those that it includes, each once; false where one is unknown.
    fn include<'a>(
        &'a self,
        name: &str,
        included: &mut HashSet<&'static str>,
        parts: &mut Vec<Part<'a>>,
    ) -> bool {
        if self.skipped.contains(&name) {
            return true;
        }
        let Some((name, items)) = self.items.get_key_value(name) else {
            return false;
        };
        if !included.insert(name) {
            return true;
        }
        items.iter().all(|item| match &item.kind {
            Kind::Include(name) => self.include(name, included, parts),
            _ => {
                parts.push(Part::Item(name, item));
                true
            }
        })
    }
}

/// The numbers of the parts that are needed.
fn used(source: &str, parts: &[Part<'_>]) -> HashSet<usize> {
    let all = || {
        let numbered = parts.iter().enumerate();
        numbered.filter_map(|(number, part)| match part {
            Part::Line(..) => None,
            Part::Item(_, item) => Some((number, *item)),
        })
    };
    let mut macros: HashMap<&str, Vec<&Functions>> = HashMap::new();
    for (_, item) in all() {
        if let Kind::Macro(functions) = &item.kind {
            macros.entry(&item.name).or_default().push(functions);
        }
    }
    // By what makes an item wanted.
    let mut by_word: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut used = HashSet::new();
    let code = without_comments(source);
    let mut wanted: Vec<&str> = words(&code).collect();
    for (number, item) in all() {
        let called = match item.kind {
            Kind::Call => macros.get(item.name.as_str()),
            _ => None,
        };
        let defined = called.map(|macros| {
            let names = macros
                .iter()
                .flat_map(|macros| macros.defined_by(&item.text));
            names.collect::<Vec<&str>>()
        });
        let defined = defined.filter(|names| !names.is_empty());
        match (&item.kind, defined) {
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
            if let Some(Part::Item(_, item)) = parts.get(*number) {
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
    fn files_and_lines_are_named_as_with_includes() {
        let first = "// f\n#pragma once\n#include \"gpu.cuh\"\n\nint f(int v) {\n  return v;\n}\nint g();\nint h();\n";
        let second = "#include \"first.cuh\"\n#define TWICE(name) int name(int v) { return 2 * f(v); }\nTWICE(twice)\nTWICE(again)\n";
        let library = Library::new([("first.cuh", first), ("second.cuh", second)], &["gpu.cuh"]);
        let source = "\n#include \"second.cuh\"\nint k() { return twice(1) + h(); }\n";
        let expected = "#line 1 \"k.cu\"\n\n#line 5 \"first.cuh\"\nint f(int v) {\n  return v;\n}\n\
            #line 9 \"first.cuh\"\nint h();\n\
            #line 2 \"second.cuh\"\n#define TWICE(name) int name(int v) { return 2 * f(v); }\nTWICE(twice)\n\
            #line 3 \"k.cu\"\nint k() { return twice(1) + h(); }\n";
        let text = library.self_contained("k.cu", source);
        assert_eq!(text.as_deref(), Some(expected));
        let unknown = library.self_contained("k.cu", "#include \"third.cuh\"\n");
        assert_eq!(unknown, None);
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
        let emulator = Library::new(emulator_headers().iter().copied(), &[]);
        for (name, items) in GPU.items.iter().chain(&emulator.items) {
            for item in items {
                let balanced = item.text.matches('{').count() == item.text.matches('}').count();
                assert!(balanced, "{name}: {}", item.text);
                let function = item.kind == Kind::Unnamed
                    && (item.text.contains("WL_DEVICE") || item.text.contains("static inline"));
                assert!(
                    !function || item.text.contains("operator"),
                    "{name}: {}",
                    item.text
                );
            }
        }
    }
}
