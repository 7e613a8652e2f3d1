//! Shape rules: the sizes of operations' results, from the sizes of their arguments.
//!
//! A rule is a row (names, parameters, function) in the file of its family. It is met by the names
//! that ATen, `torch` and `Tensor` have for the operation, and gets the arguments bound to its
//! parameters. What it requires of them (equal sizes, divisibility) it asks of the context, so that it
//! becomes a guard; what it can't say it refuses, and the caller specialises.
//!
//! Rules trust the recorded call: the operation has succeeded with the hints. They must hold for
//! all other sizes that pass the guards, and whoever records compares the hints of the results with
//! the real sizes.

mod call;
mod convolution;
mod creation;
mod decompositions;
mod each;
mod fourier;
mod indexing;
mod joining;
mod layers;
mod linear;
mod losses;
mod normalization;
mod pointwise;
mod reduction;
mod registry;
mod resampling;
mod selecting;
mod views;
mod windows;

use std::fmt;

use smallvec::SmallVec;

pub use registry::{coverage, infer};

use crate::{Error, ExprId, FloatId};

/// The sizes of a tensor.
pub type Sizes = SmallVec<[ExprId; 4]>;

/// What a tensor's elements are, as far as shapes depend on it: masks as indices make them
/// depend on data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    /// `torch.bool` and `torch.uint8`.
    Mask,
    /// Any other integers.
    Integer,
    /// Floats and complex numbers.
    Number,
}

/// An argument of an operation, as far as shapes depend on it.
#[derive(Clone, PartialEq, Debug)]
pub enum Arg {
    /// A tensor.
    Tensor {
        /// Its sizes.
        sizes: Sizes,
        /// What its elements are.
        element: Element,
    },
    /// An integer.
    Int(ExprId),
    /// A float.
    Float(FloatId),
    /// A truth value.
    Bool(bool),
    /// `None`
    None,
    /// A list.
    List(Vec<Arg>),
    /// A tuple, `torch.Size` among them.
    Tuple(Vec<Arg>),
    /// `slice(start, stop, step)`
    Slice(Box<[Arg; 3]>),
    /// `...`
    Ellipsis,
    /// A string.
    Text(String),
    /// A number of which nothing is known.
    Number,
    /// Anything else: a dtype, a device, a generator.
    Opaque,
}

impl Arg {
    /// A tensor of numbers.
    pub fn tensor(sizes: impl IntoIterator<Item = ExprId>) -> Self {
        Arg::Tensor { sizes: sizes.into_iter().collect(), element: Element::Number }
    }
}

/// Why a rule can't tell the sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// In words, for the log.
    pub reason: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Unsupported {}

impl From<Error> for Unsupported {
    fn from(error: Error) -> Self {
        Unsupported {
            reason: match error {
                Error::Overflow => "a size leaves 64 bits",
                Error::ZeroDivision => "a size is divided by zero",
                Error::TooComplex => "a size is too large an expression",
                Error::Undefined => "a size isn't a number",
            },
        }
    }
}

/// What a rule answers: the sizes of each result, in order.
pub type Outcome = Result<Vec<Sizes>, Unsupported>;

fn refuse<T>(reason: &'static str) -> Result<T, Unsupported> {
    Err(Unsupported { reason })
}
