//! Ranges of values that the entries of a sorted index must have to match a row: joins by `<`, `<=`, `>`, `>=` and BETWEEN.

use crate::expr::Expr;

/// Where the value of a matching entry ([`super::Build::order`]) lies for a probing row. An end that is NULL matches nothing.
#[derive(Debug, Clone)]
pub struct Band {
    /// Nothing below it matches.
    pub lower: Option<Bound>,
    /// Nothing above it matches.
    pub upper: Option<Bound>,
}

/// An end of a [`Band`].
#[derive(Debug, Clone)]
pub struct Bound {
    /// Of the probing row, of the type of [`super::Build::order`].
    pub value: Expr,
    /// An entry of this value matches.
    pub inclusive: bool,
}

impl Band {
    /// Both ends, the lower one first.
    pub fn bounds(&self) -> impl Iterator<Item = &Bound> {
        self.lower.iter().chain(&self.upper)
    }

    /// Their values.
    pub fn values(&self) -> impl Iterator<Item = &Expr> {
        self.bounds().map(|bound| &bound.value)
    }

    /// The same with other values.
    ///
    /// # Errors
    /// The first of `change`.
    pub fn try_map<E>(&self, change: impl Fn(&Expr) -> Result<Expr, E>) -> Result<Self, E> {
        let bound = |bound: &Option<Bound>| -> Result<Option<Bound>, E> {
            let Some(bound) = bound else { return Ok(None) };
            Ok(Some(Bound {
                value: change(&bound.value)?,
                inclusive: bound.inclusive,
            }))
        };
        Ok(Self {
            lower: bound(&self.lower)?,
            upper: bound(&self.upper)?,
        })
    }
}
