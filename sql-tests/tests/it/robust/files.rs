//! Files that are broken, gone, of another schema or changed while a session uses them: errors name the file, and the session
//! goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use warpline_sql_tests::Fixture;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "warpline-robust-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a parquet file of two columns by plain DataFusion.
fn write(fixture: &Fixture, path: &Path, query: &str) {
    let sql = format!("COPY ({query}) TO '{}' STORED AS PARQUET", path.display());
    let made = fixture.block_on(async {
        let frame = fixture.session().reference().sql(&sql).await?;
        frame.collect().await
    });
    made.unwrap_or_else(|error| panic!("{error}\n{sql}"));
}

const ROWS: &str = "SELECT value AS a, value * 3 % 1000 AS b FROM generate_series(1, 50000)";
const QUERY: &str = "SELECT b, count(*) AS n, sum(a) AS s FROM t GROUP BY b ORDER BY b";

fn table(fixture: &Fixture, name: &str, location: &Path) -> Result<(), String> {
    let sql = format!(
        "CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'",
        location.display()
    );
    let outcome = fixture.run(&sql);
    outcome.map(|_| ()).map_err(|error| error.strip_backtrace())
}

/// The query over a file that is not as it was: an error that names the file, or what plain DataFusion answers (for which an
/// empty file has no rows, and a location without files neither). True for an error.
#[track_caller]
fn error_names(fixture: &Fixture, file: &str, how: &str) -> bool {
    let plain = fixture.block_on(async {
        let frame = fixture.session().reference().sql(QUERY).await?;
        frame.collect().await
    });
    if plain.is_ok() {
        fixture.check(QUERY);
        return false;
    }
    match fixture.run(QUERY) {
        Ok(run) => panic!("{} rows of a file {how}", run.rows()),
        Err(error) => {
            let error = error.strip_backtrace();
            assert!(error.contains(file), "{how}: {error}");
            true
        }
    }
}

/// The session answers other queries and, once the file is whole again, this one.
#[track_caller]
fn assert_session_lives(fixture: &Fixture) {
    let run = fixture
        .run("SELECT sum(a) AS s FROM good")
        .expect("the session lives");
    assert_eq!(run.rows(), 1);
    fixture.check("SELECT b % 7 AS k, max(a) AS m FROM good GROUP BY b % 7 ORDER BY k");
}

/// A session with a good table, and a folder with the file `bad.parquet`, which is whole.
fn setup() -> (Fixture, Folder, PathBuf) {
    let fixture = Fixture::relaxed();
    let folder = Folder::new();
    let good = folder.file("good.parquet");
    write(&fixture, &good, ROWS);
    table(&fixture, "good", &good).expect("a table");
    let bad = folder.file("bad.parquet");
    write(&fixture, &bad, ROWS);
    (fixture, folder, bad)
}

/// Every way to break a file, before and after the table was made.
#[test]
fn broken_files_are_named() {
    let (fixture, _folder, path) = setup();
    let whole = fs::read(&path).expect("the file");
    let middle = whole.len() / 2;
    let mut damaged_data = whole.clone();
    for byte in &mut damaged_data[64..middle] {
        *byte ^= 0x5a;
    }
    let mut damaged_footer = whole.clone();
    let footer = whole.len() - 40;
    for byte in &mut damaged_footer[footer..footer + 30] {
        *byte ^= 0x5a;
    }
    let broken: [(&str, Vec<u8>); 5] = [
        ("empty", vec![]),
        ("cut in the middle", whole[..middle].to_vec()),
        ("without its end", whole[..whole.len() - 3].to_vec()),
        ("with a damaged footer", damaged_footer),
        ("with damaged pages", damaged_data),
    ];
    let mut errors = 0;
    for (how, bytes) in &broken {
        fs::write(&path, &whole).expect("written");
        table(&fixture, "t", &path).expect("a table");
        fixture.check(QUERY);
        // Broken while its columns are resident and a plan is cached.
        fs::write(&path, bytes).expect("written");
        errors += usize::from(error_names(&fixture, "bad.parquet", how));
        assert_session_lives(&fixture);
        fs::write(&path, &whole).expect("written");
        fixture.check(QUERY);
        fixture.run("DROP TABLE t").expect("dropped");
    }
    assert_eq!(errors, broken.len() - 1, "all but the empty file");
    let long = (
        "with too long a footer",
        b"PAR1 and nothing else PAR1".to_vec(),
    );
    for (how, bytes) in broken.iter().chain([&long]) {
        // Broken from the beginning: the table or the query is refused.
        fs::write(&path, bytes).expect("written");
        match table(&fixture, "t", &path) {
            // A length of the footer beyond the file makes builds with overflow checks panic in the parquet reader.
            Err(error) => assert!(error.contains("bad.parquet"), "{how}: {error}"),
            Ok(()) if bytes.is_empty() => {}
            Ok(()) => assert!(error_names(&fixture, "bad.parquet", how)),
        }
        assert_session_lives(&fixture);
        let _ = fixture.run("DROP TABLE IF EXISTS t");
    }
}

#[test]
fn a_file_that_is_gone_is_named() {
    let (fixture, folder, path) = setup();
    table(&fixture, "t", &path).expect("a table");
    fixture.check(QUERY);
    fs::remove_file(&path).expect("removed");
    error_names(&fixture, "bad.parquet", "that is gone");
    assert_session_lives(&fixture);
    write(&fixture, &path, ROWS);
    fixture.check(QUERY);
    drop(folder);
}

#[test]
fn a_file_of_another_schema_is_named() {
    let (fixture, _folder, path) = setup();
    table(&fixture, "t", &path).expect("a table");
    fixture.check(QUERY);
    // Text in the place of a number.
    write(
        &fixture,
        &path,
        "SELECT value AS a, 'row ' || value AS b FROM generate_series(1, 50000)",
    );
    let error = fixture.run(QUERY).expect_err("text").strip_backtrace();
    assert!(
        error.contains("bad.parquet") || error.contains("Cannot cast"),
        "{error}"
    );
    assert_session_lives(&fixture);
    write(&fixture, &path, ROWS);
    fixture.check(QUERY);
}

#[test]
fn a_file_that_changes_is_read_again() {
    let (fixture, _folder, path) = setup();
    table(&fixture, "t", &path).expect("a table");
    for modulus in [1000, 7, 1, 30_000] {
        fixture.check(QUERY);
        fixture.check(QUERY);
        write(
            &fixture,
            &path,
            &format!("SELECT value AS a, value % {modulus} AS b FROM generate_series(1, 60000)"),
        );
        let run = fixture.check(QUERY);
        assert_eq!(run.rows(), modulus);
    }
}

#[test]
fn one_broken_file_of_many_is_named() {
    let (fixture, folder, _) = setup();
    let parts = folder.file("parts");
    fs::create_dir_all(&parts).expect("a folder");
    for part in 0..4 {
        write(&fixture, &parts.join(format!("part-{part}.parquet")), ROWS);
    }
    table(&fixture, "t", &parts).expect("a table");
    fixture.check(QUERY);
    let broken = parts.join("part-2.parquet");
    let mut bytes = fs::read(&broken).expect("the file");
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    fs::write(&broken, bytes).expect("written");
    let error = fixture.run(QUERY).expect_err("broken").strip_backtrace();
    assert!(error.contains("part-2.parquet"), "{error}");
    assert_session_lives(&fixture);
}
