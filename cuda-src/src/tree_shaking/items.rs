//! A header as a list of items: functions, types, macros, and what else stands at its top level.

/// What may be left out of a header, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// `#include "name"`.
    Include(String),
    /// `#define`; the names of the functions that it would define where it is called. Its text stays, for it takes no time.
    Macro(Vec<String>),
    /// Another directive.
    Directive,
    /// A call of a macro that stands for functions.
    Call,
    /// A function or a type that nobody needs who does not name it.
    Named,
    /// Anything else: constants, aliases of types, assertions.
    Unnamed,
}

/// Something at the top level of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// Without comments.
    pub(super) text: String,
    /// What it defines, or the macro that it calls; empty if it has no name.
    pub(super) name: String,
    /// All words in it.
    pub(super) words: Vec<String>,
}

impl Item {
    fn new(kind: Kind, text: &str, name: &str) -> Self {
        let mut words: Vec<String> = words(text).map(str::to_string).collect();
        words.sort_unstable();
        words.dedup();
        Self {
            kind,
            text: text.to_string(),
            name: name.to_string(),
            words,
        }
    }
}

/// The items of a header that the GPU's compiler would not skip, in order. `#pragma once` is none.
pub(super) fn items(header: &str) -> Vec<Item> {
    for_the_gpu(all_items(header))
}

/// Macros that are 0 for the GPU, where conditions are of nothing else.
const EMULATED: [&str; 2] = ["WL_EMULATED", "WL_RENDEZVOUS"];

/// Without what is for the emulator alone. Of other conditions nothing is known here.
fn for_the_gpu(items: Vec<Item>) -> Vec<Item> {
    let mut kept = Vec::new();
    // Of each condition around an item whether it holds, if that is known.
    let mut conditions: Vec<Option<bool>> = Vec::new();
    for item in items {
        let directive = item.text.strip_prefix('#').map(str::trim_start);
        let directive = directive.filter(|_| item.kind == Kind::Directive);
        let mut of_known = false;
        if let Some(directive) = directive {
            let mut parts = directive.split_whitespace();
            match (parts.next().unwrap_or_default(), parts.next()) {
                ("if", Some(first)) if EMULATED.contains(&first) => {
                    conditions.push(Some(false));
                    of_known = true;
                }
                ("if" | "ifdef" | "ifndef", _) => conditions.push(None),
                ("else", _) => {
                    if let Some(Some(holds)) = conditions.last_mut() {
                        *holds = !*holds;
                        of_known = true;
                    }
                }
                ("endif", _) => of_known = conditions.pop().flatten().is_some(),
                _ => {}
            }
        }
        if !of_known && !conditions.contains(&Some(false)) {
            kept.push(item);
        }
    }
    kept
}

fn all_items(header: &str) -> Vec<Item> {
    let code = without_comments(header);
    let mut rest = code.trim_start();
    let mut items = Vec::new();
    while !rest.is_empty() {
        let end = end_of_item(rest);
        let (text, behind) = rest.split_at(end);
        if text.trim_end() != "#pragma once" {
            items.push(item(text.trim_end()));
        }
        rest = behind.trim_start();
    }
    items
}

/// The text without comments; lines stay lines.
pub(super) fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            code.push(' ');
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else {
            let length = quoted(rest).unwrap_or(first.len_utf8());
            code.push_str(&rest[..length]);
            length
        };
        rest = &rest[taken..];
    }
    code
}

/// The words of a text that may be names.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c))
        .filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Bytes of the string or character that the text begins with.
fn quoted(text: &str) -> Option<usize> {
    let mut chars = text.char_indices();
    let (_, quote) = chars.next().filter(|(_, c)| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in chars {
        if c == quote && !escaped {
            return Some(at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    Some(text.len())
}

/// Where the item ends that the text begins with.
fn end_of_item(text: &str) -> usize {
    if text.starts_with('#') {
        return end_of_directive(text);
    }
    end_of_call(text).unwrap_or_else(|| end_of_definition(text))
}

/// A directive goes on where its line ends in a backslash.
fn end_of_directive(text: &str) -> usize {
    let mut lines = text.match_indices('\n').map(|(at, _)| at);
    let end = lines.find(|at| !text[..*at].ends_with('\\'));
    end.unwrap_or(text.len())
}

/// A macro called on a line of its own has a name in capitals and nothing behind it, not even a semicolon.
fn end_of_call(text: &str) -> Option<usize> {
    let line = text.split('\n').next().unwrap_or(text).trim_end();
    let (name, arguments) = line.split_once('(')?;
    let in_capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_call = name.chars().all(in_capitals)
        && arguments
            .strip_suffix(')')
            .is_some_and(|a| !a.contains(['(', ')']));
    (is_call && !name.is_empty()).then_some(line.len())
}

/// A definition ends in a semicolon, or in the brace of a body.
fn end_of_definition(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        if let Some(length) = quoted(&text[at..]) {
            at += length;
            continue;
        }
        at += c.len_utf8();
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let behind = &text[at..];
                    let semicolon = behind.trim_start().starts_with(';');
                    let skipped = behind.len() - behind.trim_start().len();
                    return at + if semicolon { skipped + 1 } else { 0 };
                }
            }
            ';' if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

fn item(text: &str) -> Item {
    let Some(directive) = text.strip_prefix('#') else {
        if end_of_call(text) == Some(text.len()) {
            let name = words(text).next().unwrap_or_default();
            return Item::new(Kind::Call, text, name);
        }
        return match name_of(text) {
            Some(name) => Item::new(Kind::Named, text, name),
            None => Item::new(Kind::Unnamed, text, ""),
        };
    };
    let directive = directive.trim_start();
    if let Some(definition) = directive.strip_prefix("define") {
        let name = words(definition).next().unwrap_or_default();
        return Item::new(Kind::Macro(functions_of(definition)), text, name);
    }
    match included_by(text) {
        Some(name) => Item::new(Kind::Include(name.to_string()), text, ""),
        None => Item::new(Kind::Directive, text, ""),
    }
}

/// The header of our own that a line includes.
pub(super) fn included_by(line: &str) -> Option<&str> {
    let directive = line.trim_start().strip_prefix('#')?.trim_start();
    let name = directive.strip_prefix("include")?.trim();
    name.strip_prefix('"')?.strip_suffix('"')
}

/// The functions that a macro with parameters stands for.
fn functions_of(definition: &str) -> Vec<String> {
    let has_parameters = definition
        .trim_start()
        .trim_start_matches(is_of_word)
        .starts_with('(');
    let Some((_, body)) = definition.split_once(')').filter(|_| has_parameters) else {
        return vec![];
    };
    let mut rest = body.replace("\\\n", "\n");
    let mut names = Vec::new();
    while !rest.trim().is_empty() {
        let text = rest.trim_start();
        let end = end_of_definition(text);
        names.extend(name_of(&text[..end]).map(str::to_string));
        rest = text[end..].to_string();
    }
    names
}

/// The name of a function or of a type with a body; `None` of what is neither, or of what is called without being named.
fn name_of(definition: &str) -> Option<&str> {
    let code = behind_template(definition.trim_start());
    let mut begin = words(code);
    match begin.next()? {
        kind @ ("struct" | "union" | "class") => return name_of_type(code.get(kind.len()..)?),
        "enum" | "typedef" | "using" | "static_assert" | "extern" | "namespace" => return None,
        _ => {}
    }
    let head = &code[..code.find(['(', '{', '=', ';'])?];
    let is_function = code[head.len()..].starts_with('(');
    if !is_function || head.contains("operator") || head.contains("::") {
        return None;
    }
    let name = head.trim_end().rsplit(|c: char| !is_of_word(c)).next()?;
    Some(name).filter(|name| !name.is_empty())
}

/// The name of a type whose definition goes on like this, behind attributes such as `alignas(16)`.
fn name_of_type(mut rest: &str) -> Option<&str> {
    loop {
        rest = rest.trim_start();
        let name = rest.split(|c: char| !is_of_word(c)).next()?;
        match rest[name.len()..].trim_start().strip_prefix('(') {
            Some(attribute) => rest = attribute.split_once(')')?.1,
            None => return Some(name).filter(|name| !name.is_empty()),
        }
    }
}

/// The text behind `template <...>`, however many there are.
fn behind_template(mut code: &str) -> &str {
    while let Some(parameters) = code.strip_prefix("template") {
        let mut depth = 0_usize;
        let end = parameters.char_indices().find(|(_, c)| {
            match c {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                _ => {}
            }
            *c == '>' && depth == 0
        });
        let Some((end, _)) = end else {
            return "";
        };
        code = parameters[end + 1..].trim_start();
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: Kind, name: &str) -> (Kind, String) {
        (kind, name.to_string())
    }

    fn named(text: &str) -> Vec<(Kind, String)> {
        let items = items(text).into_iter();
        items.map(|item| (item.kind, item.name)).collect()
    }

    #[test]
    fn items_have_the_names_that_others_use() {
        let text = r#"
            // WL_DEVICE void no_function() {}
            #pragma once
            #include "simt.cuh"
            typedef int i32; /* i64 */
            static_assert(sizeof(i32) == 4, "four; bytes }");
            static const u32 LEAST = 1 << 2;
            enum : u32 { FIRST, SECOND = 2 };
            template <u32 BYTES, class T = A<B<C>>>
            struct Table;
            template <>
            struct Table<4> { u32 at(u32 i) const { return i; } };
            struct alignas(16) Pair { u64 low, high; };
            union __align__ (8) Either { u64 word; };
            WL_DEVICE i32 add(i32 a, i32 b) { if (a) { return '{'; } return b; }
            WL_DEVICE bool operator==(A a, A b) { return true; }
            template <class T, int N>
            WL_DEVICE void load(const T* p, T (&out)[N] WL_PLACE) {}
            static inline u32 later(u32 v);
        "#;
        let expected = [
            name(Kind::Include("simt.cuh".into()), ""),
            name(Kind::Unnamed, ""),
            name(Kind::Unnamed, ""),
            name(Kind::Unnamed, ""),
            name(Kind::Unnamed, ""),
            name(Kind::Named, "Table"),
            name(Kind::Named, "Table"),
            name(Kind::Named, "Pair"),
            name(Kind::Named, "Either"),
            name(Kind::Named, "add"),
            name(Kind::Unnamed, ""),
            name(Kind::Named, "load"),
            name(Kind::Named, "later"),
        ];
        assert_eq!(named(text), expected);
    }

    #[test]
    fn macros_tell_which_functions_their_calls_are() {
        let text = "#define SUM(T) \\\n  WL_DEVICE T sum(T v) { return v; } \\\n  WL_DEVICE T twice(T v) { return v + v; }\n\
                    #define WARP 32\n#if A\nSUM(i32)\nSUM(u32)\n#endif\nWL_DEVICE u32 last() { return WARP; }\n#undef SUM\n";
        let functions = vec!["sum".to_string(), "twice".to_string()];
        let expected = [
            name(Kind::Macro(functions), "SUM"),
            name(Kind::Macro(vec![]), "WARP"),
            name(Kind::Directive, ""),
            name(Kind::Call, "SUM"),
            name(Kind::Call, "SUM"),
            name(Kind::Directive, ""),
            name(Kind::Named, "last"),
            name(Kind::Directive, ""),
        ];
        assert_eq!(named(text), expected);
    }

    #[test]
    fn what_is_for_the_emulator_is_left_out() {
        let text = "#if WL_EMULATED && !defined(A)\nint a();\n#ifdef B\nint b();\n#endif\n#else\nint c();\n#ifdef D\nint d();\n#else\nint e();\n#endif\n#endif\nint f();\n";
        let kept: Vec<String> = items(text).into_iter().map(|item| item.text).collect();
        let expected = [
            "int c();", "#ifdef D", "int d();", "#else", "int e();", "#endif", "int f();",
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn comments_end_and_strings_are_none() {
        let text = "a // b\nc /* d\n e */ f \"// g\" '\"' // h";
        assert_eq!(without_comments(text), "a \nc   f \"// g\" '\"' ");
        assert_eq!(without_comments("a /* b"), "a  ");
        let found: Vec<&str> = words("a1 + 0x2f_b(ü, _c)").collect();
        assert_eq!(found, ["a1", "_c"]);
    }
}
