//! A header as a list of items: functions, types, macros, and what else stands at its top level.

/// What may be left out of a header, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// `#include "name"`.
    Include(String),
    /// `#define`, with the functions that it would define where it is called. Its text stays, for it takes no time.
    Macro(Functions),
    /// Another directive.
    Directive,
    /// A call of a macro that stands for functions.
    Call,
    /// A function or a type that nobody needs who does not name it.
    Named,
    /// Anything else: constants, aliases of types, assertions.
    Unnamed,
}

/// The functions that a macro with parameters stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Functions {
    parameters: Vec<String>,
    /// Some may be named by a parameter.
    names: Vec<String>,
}

/// Something at the top level of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// The line of the header on which it begins, from 1.
    pub(super) line: usize,
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
            line: 0,
            text: text.to_string(),
            name: name.to_string(),
            words,
        }
    }
}

/// Macros that are 0 for the GPU, where conditions are of nothing else.
const EMULATED: [&str; 2] = ["WL_EMULATED", "WL_RENDEZVOUS"];

/// Without what is for the emulator alone. Of other conditions nothing is known here.
pub(super) fn for_the_gpu(items: Vec<Item>) -> Vec<Item> {
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

/// The items of a header in order. `#pragma once` is none.
pub(super) fn items(header: &str) -> Vec<Item> {
    let code = without_comments(header);
    let lines = |text: &str| text.matches('\n').count();
    let mut rest = code.as_str();
    let (mut line, mut items) = (1, Vec::new());
    loop {
        let begin = rest.trim_start();
        line += lines(&rest[..rest.len() - begin.len()]);
        if begin.is_empty() {
            return items;
        }
        let (text, behind) = begin.split_at(end_of_item(begin));
        if text.trim_end() != "#pragma once" {
            items.push(Item {
                line,
                ..item(text.trim_end())
            });
        }
        line += lines(text);
        rest = behind;
    }
}

/// The text without comments; lines stay lines.
pub(super) fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
            code.push(' ');
            code.extend(rest[..end].chars().filter(|c| *c == '\n'));
            end
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
    let arguments = arguments.strip_suffix(')')?;
    let is_call = name.chars().all(in_capitals) && !name.is_empty();
    (is_call && separated(arguments).is_some()).then_some(line.len())
}

/// The arguments of a call, which commas separate; `None` where parentheses do not match.
fn separated(arguments: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, c) in arguments.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(arguments[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[begin..].trim());
    (depth == 0).then_some(parts)
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

/// The functions that a macro of this definition stands for.
fn functions_of(definition: &str) -> Functions {
    let behind_name = definition.trim_start().trim_start_matches(is_of_word);
    let has_parameters = behind_name.starts_with('(');
    let Some((head, body)) = behind_name.split_once(')').filter(|_| has_parameters) else {
        return Functions::default();
    };
    let mut rest = body.replace("\\\n", "\n");
    let mut names = Vec::new();
    while !rest.trim().is_empty() {
        let text = rest.trim_start();
        let end = end_of_definition(text);
        names.extend(name_of(&text[..end]).map(str::to_string));
        rest = text[end..].to_string();
    }
    Functions {
        parameters: words(head).map(str::to_string).collect(),
        names,
    }
}

impl Functions {
    /// The names of the functions that a call of the macro defines.
    pub(super) fn defined_by<'a>(&'a self, call: &'a str) -> impl Iterator<Item = &'a str> {
        let arguments = call.split_once('(').and_then(|(_, behind)| {
            let arguments = behind.trim_end().strip_suffix(')')?;
            separated(arguments)
        });
        let arguments = arguments.unwrap_or_default();
        self.names.iter().map(move |name| {
            let place = self.parameters.iter().position(|p| p == name);
            let argument = place.and_then(|place| arguments.get(place).copied());
            argument.unwrap_or(name)
        })
    }
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
        let items = for_the_gpu(items(text)).into_iter();
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
        let functions = Functions {
            parameters: vec!["T".into()],
            names: vec!["sum".into(), "twice".into()],
        };
        let expected = [
            name(Kind::Macro(functions), "SUM"),
            name(Kind::Macro(Functions::default()), "WARP"),
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
    fn a_parameter_of_a_macro_may_name_the_function() {
        let text = "#define ATOMIC(name, T, next) \\\n  static inline T name(T* p, T v) { return next; }\n\nATOMIC(add, u32, (u32)old + max(v, 1))\nATOMIC(swap, u32, v)\n#undef ATOMIC\n";
        let items = items(text);
        let lines: Vec<usize> = items.iter().map(|item| item.line).collect();
        assert_eq!(lines, [1, 4, 5, 6]);
        let Kind::Macro(functions) = &items[0].kind else {
            panic!("{items:?}");
        };
        let defined = |at: usize| functions.defined_by(&items[at].text).collect::<Vec<_>>();
        assert_eq!(
            (&items[1].kind, defined(1), defined(2)),
            (&Kind::Call, vec!["add"], vec!["swap"])
        );
        // Parentheses that do not match are no call.
        assert_eq!(end_of_call("ATOMIC(a, (b)"), None);
        assert_eq!(end_of_call("ATOMIC(a), (b)"), None);
    }

    #[test]
    fn what_is_for_the_emulator_is_left_out() {
        let text = "#if WL_EMULATED && !defined(A)\nint a();\n#ifdef B\nint b();\n#endif\n#else\nint c();\n#ifdef D\nint d();\n#else\nint e();\n#endif\n#endif\nint f();\n";
        let kept = for_the_gpu(items(text)).into_iter();
        let kept: Vec<String> = kept.map(|item| item.text).collect();
        let expected = [
            "int c();", "#ifdef D", "int d();", "#else", "int e();", "#endif", "int f();",
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn comments_end_and_strings_are_none() {
        let text = "a // b\nc /* d\n e */ f \"// g\" '\"' // h";
        assert_eq!(without_comments(text), "a \nc  \n f \"// g\" '\"' ");
        assert_eq!(without_comments("a /* b"), "a  ");
        let found: Vec<&str> = words("a1 + 0x2f_b(ü, _c)").collect();
        assert_eq!(found, ["a1", "_c"]);
    }
}
