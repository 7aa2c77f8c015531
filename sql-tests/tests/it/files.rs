//! Runs the files of `slt/` on the CPU and on the device under test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpline::{DeviceChoice, WarplineSession};
use warpline_sql_tests::{slt, test_device};

fn slt_files() -> Vec<PathBuf> {
    // A bundle of the tests brings the files along.
    let folder = std::env::var_os("WARPLINE_SLT_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("slt"),
        PathBuf::from,
    );
    let entries = std::fs::read_dir(&folder).expect("the folder of sqllogictest files");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    files.sort();
    assert!(!files.is_empty(), "no .slt file in {}", folder.display());
    files
}

/// Each file gets a session of its own, so that files do not see each other's tables.
fn run_all(device: DeviceChoice) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut failures = Vec::new();
    for path in slt_files() {
        let outcome = runtime.block_on(async {
            let builder = WarplineSession::builder()
                .device(device)
                .set("warpline.min_rows", "0");
            let session = builder.open().await.map_err(|error| error.to_string())?;
            slt::run_file(Arc::new(session), &path).await
        });
        if let Err(message) = outcome {
            failures.push(format!("{} on {device}:\n{message}", path.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn on_the_cpu() {
    run_all(DeviceChoice::Cpu);
}

#[test]
fn on_the_device() {
    run_all(test_device());
}
