//! The text of generated kernels against golden files: what a change does to them shows in its diff.
//!
//! `WARPLINE_BLESS=1` rewrites the files. A file has all kernels of one small graph, in launch order, each below its
//! launch geometry. Fixed tables and a fixed device: nothing in the text depends on the machine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod case;
mod expressions;
mod groups;
mod joins;
mod rows;
mod table;
mod trees;

use std::path::Path;

use case::Case;

/// Compares with the golden file `name`, or rewrites it.
fn check(name: &str, case: Case) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/codegen/golden")
        .join(name)
        .with_extension("cu");
    let text = case.text();
    if std::env::var_os("WARPLINE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if text == golden {
        return;
    }
    let lines = text.lines().zip(golden.lines());
    let first = lines.take_while(|(new, old)| new == old).count();
    panic!(
        "{} is no longer what is generated, from line {} on:\n  golden: {}\n  now:    {}\n\
         Is that intended? WARPLINE_BLESS=1 rewrites golden files; the diff then shows every change.",
        path.display(),
        first + 1,
        golden.lines().nth(first).unwrap_or("(the end)"),
        text.lines().nth(first).unwrap_or("(the end)"),
    );
}
