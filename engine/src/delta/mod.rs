//! Tables of Delta Lake: `CREATE EXTERNAL TABLE … STORED AS DELTATABLE`, at their latest version or at one of the past.
//!
//! The crate `deltalake-core` reads the log. What the files of a version then are is scanned as any table of parquet files ([`files`]),
//! so that the device keeps their columns, unless a version has what only that crate reads.

mod error;
mod files;
mod of_session;
mod open;
mod table;

pub use self::open::DeltaOptions;
use self::open::{DeltaFactory, FILE_TYPES};
pub(crate) use self::table::DeltaProvider;

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;

/// The session with `CREATE EXTERNAL TABLE … STORED AS DELTATABLE`.
pub(crate) fn with_tables(session: SessionStateBuilder) -> SessionStateBuilder {
    FILE_TYPES.iter().fold(session, |session, file_type| {
        session.with_table_factory(file_type.to_string(), Arc::new(DeltaFactory))
    })
}

/// Does `STORED AS` name a table of Delta Lake?
pub(crate) fn is_file_type(name: &str) -> bool {
    FILE_TYPES
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}
