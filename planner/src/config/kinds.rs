//! Kinds of settings: how a value is read from text and shown as text.

use std::fmt;
use std::str::FromStr;

use datafusion::error::{DataFusionError, Result};

use super::names::{Named, named};
use crate::error::PlannerError;
use crate::size::ByteSize;

/// How the values of a setting are written.
pub(super) trait Kind<T> {
    /// The value that the text says; `setting` is for the error.
    fn parse(setting: &'static str, text: &str) -> Result<T>;

    /// The value as text that [`Self::parse`] takes.
    fn show(value: &T) -> String;
}

/// True or false.
pub(super) struct Flag;
/// Whole numbers from 0.
pub(super) struct Count;
/// Whole numbers from 1.
pub(super) struct Positive;
/// Sizes with a unit; 0 for no size.
pub(super) struct Bytes;
/// Any text, without the blanks around it.
pub(super) struct Text;
/// What a type's own [`FromStr`] takes.
pub(super) struct Parsed;
/// One of the names of a type.
pub(super) struct OneOf;

impl Kind<bool> for Flag {
    fn parse(setting: &'static str, text: &str) -> Result<bool> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(refused(setting, text, "true, false")),
        }
    }

    fn show(value: &bool) -> String {
        value.to_string()
    }
}

impl Kind<usize> for Count {
    fn parse(setting: &'static str, text: &str) -> Result<usize> {
        let number = text.trim().parse();
        number.map_err(|_| refused(setting, text, "0 and positive whole numbers"))
    }

    fn show(value: &usize) -> String {
        value.to_string()
    }
}

impl Kind<u32> for Positive {
    fn parse(setting: &'static str, text: &str) -> Result<u32> {
        match text.trim().parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(refused(setting, text, "positive whole numbers below 2^32")),
        }
    }

    fn show(value: &u32) -> String {
        value.to_string()
    }
}

impl Kind<usize> for Bytes {
    fn parse(_: &'static str, text: &str) -> Result<usize> {
        match text.trim() {
            "0" => Ok(0),
            size => Ok(size.parse::<ByteSize>()?.0),
        }
    }

    fn show(value: &usize) -> String {
        value.to_string()
    }
}

impl Kind<String> for Text {
    fn parse(_: &'static str, text: &str) -> Result<String> {
        Ok(text.trim().to_string())
    }

    fn show(value: &String) -> String {
        value.clone()
    }
}

impl<T> Kind<T> for Parsed
where
    T: FromStr + fmt::Display,
    DataFusionError: From<T::Err>,
{
    fn parse(_: &'static str, text: &str) -> Result<T> {
        Ok(text.parse()?)
    }

    fn show(value: &T) -> String {
        value.to_string()
    }
}

impl<T: Named> Kind<T> for OneOf {
    fn parse(setting: &'static str, text: &str) -> Result<T> {
        Ok(named(setting, text)?)
    }

    fn show(value: &T) -> String {
        value.to_string()
    }
}

fn refused(setting: &'static str, text: &str, valid: &str) -> DataFusionError {
    PlannerError::Setting {
        setting,
        value: text.to_string(),
        valid: valid.to_string(),
    }
    .into()
}
