//! Files of a crate import each other in circles of at most three, and of one folder: nobody has to read more at once.
//!
//! The check reads text: paths of `use` and those that begin with `crate` or `super`, followed through what modules pass on
//! (`pub use`). What a module passes on of its children, and tests at the end of a file, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// `::`, as one sign.
const PATH: &str = "\u{1}";
/// Words of its path below the crate.
type Module = Vec<String>;

/// The files of a crate: by module the path, what is passed on by which name, and what is used.
#[derive(Default)]
struct Sources {
    files: BTreeMap<Module, String>,
    passed_on: BTreeMap<(Module, String), Module>,
    uses: BTreeMap<Module, Vec<Module>>,
}

/// Words and signs, without comments and the tests at the end.
fn tokens(text: &str) -> Vec<String> {
    let code = text.lines().filter_map(|line| line.split("//").next());
    let code = code.collect::<Vec<_>>().join(" ").replace("::", PATH);
    let code = code.split("mod tests {").next().unwrap_or_default();
    let signs = |c: char| match c.is_alphanumeric() || c == '_' {
        true => c.to_string(),
        false => format!(" {c} "),
    };
    let spaced: String = code.chars().map(signs).collect();
    spaced.split_whitespace().map(str::to_string).collect()
}

/// The paths of a `use` behind `before`, each with the name by which it goes.
fn paths(tokens: &mut &[String], before: &[String], found: &mut Vec<(Module, String)>) {
    let (mut path, mut name) = (before.to_vec(), None);
    while let Some((token, rest)) = tokens.split_first() {
        match token.as_str() {
            "," | "}" | ";" => break,
            "{" => {
                while tokens.first().is_some_and(|token| token != "}") {
                    *tokens = &tokens[1..];
                    paths(tokens, &path, found);
                }
                *tokens = tokens.get(1..).unwrap_or_default();
                return;
            }
            "as" => name = rest.first(),
            PATH | "self" if !path.is_empty() => {}
            _ => path.extend(name.is_none().then(|| token.clone())),
        }
        *tokens = rest;
    }
    found.extend(name.or(path.last()).cloned().map(|name| (path, name)));
}

impl Sources {
    fn of(files: &[(String, String)]) -> Self {
        let mut sources = Self::default();
        let paths = files.iter().map(|(path, _)| path.clone());
        sources.files = paths.map(|path| (module_of(&path), path)).collect();
        for (path, text) in files {
            sources.read(&module_of(path), &tokens(text));
        }
        sources
    }

    fn read(&mut self, module: &Module, mut tokens: &[String]) {
        let mut before = "";
        while let Some((word, rest)) = tokens.split_first() {
            let passes_on = word == "use" && ["pub", ")"].contains(&before);
            let mut found = Vec::new();
            (tokens, before) = (rest, word);
            match word.as_str() {
                "use" => paths(&mut tokens, &[], &mut found),
                "crate" | "super" => {
                    let steps = rest.chunks(2).take_while(|step| step[0] == PATH);
                    let mut path: Module = steps.filter_map(|s| s.get(1).cloned()).collect();
                    path.insert(0, word.clone());
                    found.extend((path.len() > 1).then(|| (path, String::new())));
                }
                _ => {}
            }
            for (path, name) in found {
                let Some(target) = self.absolute(module, &path) else {
                    continue;
                };
                let is_used = !passes_on || ["crate", "super"].contains(&path[0].as_str());
                let passed = passes_on.then(|| ((module.clone(), name), target.clone()));
                self.passed_on.extend(passed);
                let used = is_used.then_some(target);
                self.uses.entry(module.clone()).or_default().extend(used);
            }
        }
    }

    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let supers = path.iter().take_while(|word| *word == "super").count();
        let child = [module.as_slice(), &path[..1]].concat();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let above = module.len().checked_sub(supers)?;
                Some([&module[..above], &path[supers..]].concat())
            }
            _ if self.files.contains_key(&child) => Some([module, path].concat()),
            _ => None,
        }
    }

    /// The module that declares what the path names.
    fn declared(&self, path: &[String]) -> Option<Module> {
        let mut modules = (0..=path.len()).rev().map(|n| path.split_at(n));
        let (module, rest) = modules.find(|(module, _)| self.files.contains_key(*module))?;
        let key = (module.to_vec(), rest.first().cloned().unwrap_or_default());
        match self.passed_on.get(&key) {
            Some(other) => self.declared(&[other, &rest[1..]].concat()),
            None => Some(key.0),
        }
    }

    /// The files that one reaches, at once or by way of others.
    fn reached(&self, from: &Module) -> BTreeSet<Module> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = open.pop() {
            let next = self.next(&module).into_iter();
            open.extend(next.filter(|module| reached.insert(module.clone())));
        }
        reached
    }

    fn next(&self, module: &Module) -> BTreeSet<Module> {
        let uses = self.uses.get(module).into_iter().flatten();
        let declared = uses.filter_map(|path| self.declared(path));
        declared.filter(|other| other != module).collect()
    }

    /// The circles of more than three files or of several folders, each with what leads round it.
    fn circles(&self) -> BTreeSet<String> {
        let reach = |module| (module, self.reached(module));
        let reached: BTreeMap<&Module, _> = self.files.keys().map(reach).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            let back = |other: &&Module| reached[*other].contains(*module);
            let circle: Vec<&Module> = others.iter().filter(back).collect();
            let folders = circle.iter().map(|module| self.folders(module));
            let common = folders.reduce(|all, folders| &all & &folders);
            if circle.len() <= 3 && common.is_none_or(|common| !common.is_empty()) {
                continue;
            }
            let mut text = format!("a circle of {} files:", circle.len());
            for from in &circle {
                for to in self.next(from).iter().filter(|to| circle.contains(to)) {
                    text += &format!("\n  {} -> {}", self.files[*from], self.files[to]);
                }
            }
            circles.insert(text);
        }
        circles
    }

    /// Where a file belongs: `a/b.rs` to `a`, and to `a/b` where that is a folder.
    fn folders(&self, module: &Module) -> BTreeSet<Module> {
        let below = |other: &Module| other.len() > module.len() && other.starts_with(module);
        let itself = self.files.keys().any(below).then(|| module.clone());
        let parent = (!self.files[module].ends_with("mod.rs")).then(|| module.split_last());
        let parent = parent.flatten().map(|(_, parent)| parent.to_vec());
        itself.into_iter().chain(parent).collect()
    }
}

fn module_of(path: &str) -> Module {
    let mut words = Vec::from_iter(path.trim_end_matches(".rs").split('/').map(str::to_string));
    words.pop_if(|word| ["mod", "lib", "main"].contains(&word.as_str()));
    words
}

/// The files below `root` but for tests, with their paths below it.
fn read(root: &Path, below: &str, files: &mut Vec<(String, String)>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let path = format!("{below}{}", entry?.file_name().to_string_lossy());
        let is_test = path.trim_end_matches(".rs").ends_with("tests");
        if root.join(&path).is_dir() && !is_test {
            read(root, &format!("{path}/"), files)?;
        } else if path.ends_with(".rs") && !is_test {
            files.push((path.clone(), fs::read_to_string(root.join(path))?));
        }
    }
    Ok(())
}

#[test]
fn files_import_each_other_in_small_circles_of_one_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !root.join("gpu-ops/src/lib.rs").exists() {
        eprintln!("skipped: no sources in {}", root.display());
        return;
    }
    let (mut seen, mut circles) = (0, Vec::new());
    for entry in fs::read_dir(&root).expect("the folder of the crates") {
        let sources = entry.expect("a crate").path().join("src");
        if sources.exists() {
            let mut files = Vec::new();
            read(&sources, "", &mut files).expect("sources");
            seen += files.len();
            for circle in Sources::of(&files).circles() {
                circles.push(format!("{}: {circle}", sources.display()));
            }
        }
    }
    assert!(seen > 500, "{seen} files");
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// The circles of made-up files, a line each.
fn circles_of(files: &str) -> String {
    let files = files
        .lines()
        .filter_map(|line| line.trim().split_once(": "));
    let files = Vec::from_iter(files.map(|(path, text)| (path.into(), text.into())));
    Vec::from_iter(Sources::of(&files).circles()).join("; ")
}

#[test]
fn large_circles_and_those_of_two_folders_are_found() {
    let mut three = "lib.rs: mod a;
        a/mod.rs: pub use b::{B as Public, *}; mod b; mod c; mod d;
        a/b.rs: use super::{c::{C, Other}, d::D};
        a/c.rs: pub(crate) fn c() { super::d::D::new(); }"
        .to_string();
    let four = format!("{three}\na/d.rs: use super::e;\na/e.rs: use crate::a::Public;");
    let found = circles_of(&four);
    assert!(found.starts_with("a circle of 4 files:"), "{found}");
    assert!(found.contains("a/e.rs -> a/b.rs"), "{found}");
    three += "\na/d.rs: use crate::a::Public;";
    assert_eq!(circles_of(&three), "");
    let found = circles_of("a.rs: use crate::b::c::C;\nb/c.rs: use crate::a;");
    assert!(found.contains("a.rs -> b/c.rs"), "{found}");
    let none = |files: &str| assert_eq!(circles_of(files), "");
    // A module and its folder are one.
    none("b.rs: use self::c::C;\nb/c.rs: use super::B;");
    // Tests and comments do not count.
    none("a.rs: fn a() {} // crate::b::c\nb/c.rs: use crate::a;");
    none("a.rs: mod tests { use crate::b::c; }\nb/c.rs: use crate::a;");
}
