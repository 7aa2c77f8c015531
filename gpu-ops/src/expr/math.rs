//! Functions of floats: their names in SQL and in CUDA.

/// A function over Float64 with DataFusion's semantics, to the precision of the device's mathematical library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MathFunction {
    /// Absolute value.
    Abs,
    /// Inverse cosine in radians.
    Acos,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse sine in radians.
    Asin,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse tangent in radians.
    Atan,
    /// Angle of a point: of y, then x.
    Atan2,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// Cube root.
    Cbrt,
    /// The next integer that is not less.
    Ceil,
    /// Cosine.
    Cos,
    /// Hyperbolic cosine.
    Cosh,
    /// Cotangent.
    Cot,
    /// Radians to degrees.
    Degrees,
    /// e to a power.
    Exp,
    /// The next integer that is not greater.
    Floor,
    /// Natural logarithm.
    Ln,
    /// Logarithm to the base 10.
    Log10,
    /// Logarithm to the base 2.
    Log2,
    /// The first operand, or the second where that is not a number.
    Nanvl,
    /// The first operand to the power of the second; a fault for zero to a negative power.
    Power,
    /// Degrees to radians.
    Radians,
    /// The nearest multiple of one over the second operand, halves away from zero.
    Round,
    /// -1, 0 or 1.
    Signum,
    /// Sine.
    Sin,
    /// Hyperbolic sine.
    Sinh,
    /// Square root; a fault below zero.
    Sqrt,
    /// Tangent.
    Tan,
    /// Hyperbolic tangent.
    Tanh,
    /// The multiple of one over the second operand next to it towards zero.
    Trunc,
}

impl MathFunction {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::Abs,
        Self::Acos,
        Self::Acosh,
        Self::Asin,
        Self::Asinh,
        Self::Atan,
        Self::Atan2,
        Self::Atanh,
        Self::Cbrt,
        Self::Ceil,
        Self::Cos,
        Self::Cosh,
        Self::Cot,
        Self::Degrees,
        Self::Exp,
        Self::Floor,
        Self::Ln,
        Self::Log10,
        Self::Log2,
        Self::Nanvl,
        Self::Power,
        Self::Radians,
        Self::Round,
        Self::Signum,
        Self::Sin,
        Self::Sinh,
        Self::Sqrt,
        Self::Tan,
        Self::Tanh,
        Self::Trunc,
    ];

    /// SQL's name; the kernel's function is `math_` with it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Acos => "acos",
            Self::Acosh => "acosh",
            Self::Asin => "asin",
            Self::Asinh => "asinh",
            Self::Atan => "atan",
            Self::Atan2 => "atan2",
            Self::Atanh => "atanh",
            Self::Cbrt => "cbrt",
            Self::Ceil => "ceil",
            Self::Cos => "cos",
            Self::Cosh => "cosh",
            Self::Cot => "cot",
            Self::Degrees => "degrees",
            Self::Exp => "exp",
            Self::Floor => "floor",
            Self::Ln => "ln",
            Self::Log10 => "log10",
            Self::Log2 => "log2",
            Self::Nanvl => "nanvl",
            Self::Power => "power",
            Self::Radians => "radians",
            Self::Round => "round",
            Self::Signum => "signum",
            Self::Sin => "sin",
            Self::Sinh => "sinh",
            Self::Sqrt => "sqrt",
            Self::Tan => "tan",
            Self::Tanh => "tanh",
            Self::Trunc => "trunc",
        }
    }

    /// How many operands it has.
    pub fn arity(self) -> usize {
        match self {
            Self::Atan2 | Self::Nanvl | Self::Power | Self::Round | Self::Trunc => 2,
            _ => 1,
        }
    }

    /// Is there an operand for which DataFusion fails?
    pub fn may_fault(self) -> bool {
        matches!(self, Self::Sqrt | Self::Power)
    }
}
