//! Pages of the documentation that the code writes: `WARPLINE_BLESS=1` with the tests rewrites them.

use std::path::Path;

/// Compares `text` with the file `path` of the repository, or rewrites it.
pub(crate) fn check(path: &Path, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("WARPLINE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&file, text).expect("a file of the repository can be written");
        return;
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text == golden,
        "{} is not what the code says; WARPLINE_BLESS=1 rewrites it",
        path.display()
    );
}
