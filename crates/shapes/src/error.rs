//! Why an expression can't be built.

use std::fmt;

/// Why an expression can't be built. The caller then goes on with plain values: it specialises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// A hint or a coefficient leaves 64 bits.
    Overflow,
    /// The divisor is zero at the hints: Python raises.
    ZeroDivision,
    /// The expression would be larger than [`MAX_SIZE`](crate::MAX_SIZE) or
    /// [`MAX_DEPTH`](crate::MAX_DEPTH) allow.
    TooComplex,
    /// Python's result is no integer or float of the kind that was asked for: a rounded NaN, a
    /// negative shift, a complex power.
    Undefined,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Overflow => "the value leaves 64 bits",
            Error::ZeroDivision => "division by zero",
            Error::TooComplex => "the expression is too large",
            Error::Undefined => "the result isn't a number of this kind",
        })
    }
}

impl std::error::Error for Error {}
