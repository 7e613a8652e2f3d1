//! Operators of PyTorch as functions of its library, with the types of their arguments: which of them a call from Python ends
//! in, if that can be said.

use std::ffi::CStr;

use crate::direct_rows::DIRECT;

/// What an argument is, as the operator's schema says it (`crates/cpython/src/aten`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the types of schemas")]
pub enum Kind {
    Tensor,
    OptionalTensor,
    Tensors,
    TensorList,
    Scalar,
    OptionalScalar,
    Int,
    OptionalInt,
    Size,
    OptionalSize,
    Ints,
    OptionalInts,
    Bool,
    OptionalBool,
    Float,
    OptionalFloat,
    OptionalCode,
    Text,
}

/// What is taken where nothing is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// Nothing: it has to be given.
    Required,
    /// `None`.
    Nothing,
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(&'static [i64]),
    /// Whether.
    Bool(bool),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(&'static str),
}

/// What an operator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A tensor of its own, or a view.
    Tensor,
    /// Its first argument, which it has written.
    Itself,
    /// Whether something holds.
    Truth,
    /// The number in a tensor.
    Number,
}

/// A parameter of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Of integers: one may be given for so many equal ones. 0: none may.
    pub size: u8,
    /// What is taken where nothing is given.
    pub default: Default,
}

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// The name of the overload.
    pub name: &'static str,
    /// The name of the function that calls it, in PyTorch's library.
    pub symbol: &'static CStr,
    /// What it gives.
    pub gives: Gives,
    /// How many parameters may be given by position.
    pub positional: usize,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// The operators of this name, and the name as a constant.
#[must_use]
pub fn find(name: &str) -> Option<(&'static str, &'static [Overload])> {
    DIRECT.binary_search_by(|(known, _)| known.cmp(&name)).ok().map(|at| DIRECT[at])
}

/// Whether Python's functions for operators of this name take a number for a tensor, and make one of it that doesn't
/// decide dtypes.
#[must_use]
pub fn takes_numbers(name: &str) -> bool {
    let name = name.strip_suffix('_').unwrap_or(name);
    matches!(
        name,
        "add" | "sub" | "mul" | "div" | "true_divide" | "subtract" | "multiply" | "divide"
    )
}
