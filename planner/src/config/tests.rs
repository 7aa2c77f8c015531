//! The page of settings against what is declared.

use std::path::Path;

use super::*;

const PREFACE: &str = "\
# Settings

`SET warpline.NAME = value` changes a setting of a session, `SHOW warpline.*` lists them with their values; the program takes \
`--set warpline.NAME=value`, [`WarplineSession::builder().set`](../engine/src/session.rs) the same. Sizes have a unit \
(`512MiB`, `16GB`), switches are `true` or `false`. Settings of a *query* go with its plan to other machines (`WarplineCodec`); \
settings of a *session* stay where they are.

| setting | default | of a | |
|---|---|---|---|
";

fn page() -> String {
    let defaults = WarplineConfig::default();
    let mut page = PREFACE.to_string();
    for setting in SETTINGS {
        let default = match setting.read(&defaults).as_str() {
            "" => "(empty)".to_string(),
            value => format!("`{value}`"),
        };
        let scope = match setting.scope {
            Scope::Query => "query",
            Scope::Session => "session",
        };
        page.push_str(&format!(
            "| `{}` | {default} | {scope} | {} |\n",
            setting.key, setting.about
        ));
    }
    page
}

#[test]
fn the_page_of_settings_says_what_is_declared() {
    crate::golden::check(&Path::new("docs").join("SETTINGS.md"), &page());
}
