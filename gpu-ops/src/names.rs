//! Enum values by name.

use std::fmt;

/// The one of `all` that prints as `text` does, whatever its case and the blanks around it.
pub fn by_name<T: fmt::Display>(all: impl IntoIterator<Item = T>, text: &str) -> Option<T> {
    let name = text.trim().to_ascii_lowercase();
    all.into_iter().find(|value| value.to_string() == name)
}
