//! How a trace follows builtin functions, and those of `math`, through symbolic numbers.

use stator_bytecode::CompareOp;
use stator_shapes::{FloatUnary, Rounding};

/// What a function makes of numbers, in terms that a trace has symbols for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numeric {
    /// The sum of a sequence.
    Sum,
    /// The product of a sequence.
    Product,
    /// The least of a sequence, or of several numbers.
    Least,
    /// The greatest of a sequence, or of several numbers.
    Greatest,
    /// A list of a sequence's numbers in order.
    Sorted,
    /// An integer; of an integer it is that itself.
    Rounded(Rounding),
    /// The number as a float.
    Float,
    /// Whether the number is zero or not.
    Truth {
        /// Whether it is zero.
        inverted: bool,
    },
    /// Something of floats, which has this answer for every integer.
    OfFloats(bool),
    /// Without its sign.
    Absolute,
    /// A function of a float, which gives a float.
    Function(FloatUnary),
    /// A function of floats, or of sequences of them, which gives a float; it's called again for others.
    Floats(Range),
    /// Whether two floats are close to each other.
    Close,
    /// `**`.
    Power,
    /// `**` of floats, which gives a float.
    FloatPower,
    /// `//` and `%` at once.
    QuotientAndRest,
    /// Where a number belongs in a list in order.
    Place {
        /// Whether that is behind those that are equal.
        behind: bool,
    },
}

/// For which floats a function raises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All of them.
    Any,
    /// Those that are finite.
    Finite,
    /// Those whose exponential is finite.
    Exponents,
    /// As that, also of the negative of it.
    BothExponents,
    /// From -1 to 1.
    Unit,
    /// From -1 to 1, without these.
    WithinUnit,
    /// From 1 on.
    FromOne,
    /// Above -1.
    AboveMinusOne,
    /// Those of which the sum of as many as a trace asks for is finite.
    Summable,
}

impl Numeric {
    /// Of a function that picks one of what it's given: how that compares with the others.
    #[must_use]
    pub fn extreme(self) -> Option<CompareOp> {
        match self {
            Self::Least => Some(CompareOp::Lt),
            Self::Greatest => Some(CompareOp::Gt),
            _ => None,
        }
    }

    /// Whether a function of `math` asks its arguments for their `__float__`, where they are no numbers.
    #[must_use]
    pub fn takes_floats(self) -> bool {
        use Rounding::{Ceil, Floor};
        matches!(
            self,
            Self::Function(_)
                | Self::Floats(_)
                | Self::Close
                | Self::FloatPower
                | Self::OfFloats(_)
                | Self::Rounded(Floor | Ceil)
        )
    }
}
