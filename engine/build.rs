//! The commit that a release is built from, for `warpline --version`.
//!
//! `WARPLINE_COMMIT` names it where there is no checkout. Builds for development do not look: each commit would compile the program
//! anew.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WARPLINE_COMMIT");
    let given = std::env::var("WARPLINE_COMMIT").ok();
    let given = given.filter(|commit| !commit.is_empty());
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| release.then(of_checkout).flatten());
    let commit = commit.unwrap_or_else(|| "development build".to_string());
    println!("cargo::rustc-env=WARPLINE_COMMIT_TEXT={commit}");
}

/// The commit of the checkout, if this is one and git is there. It is asked again when HEAD moves.
fn of_checkout() -> Option<String> {
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ])?;
    if std::path::Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| format!("commit {commit}"))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_string())
}
