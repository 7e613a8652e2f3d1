//! Calling PyTorch's operators as C++ code calls them: without Python's functions for them, which parse arguments, make
//! objects for numbers and ask for overrides.
//!
//! Each operator is a function of PyTorch's library (`at::_ops::add_Tensor::call`). The types of its arguments are part of its
//! name there, so it takes what it is expected to take, or isn't found; what it gives is asked of PyTorch's schema. Behind it is PyTorch's dispatcher, as behind the Python
//! function: autograd, autocast, transforms and profilers see the same call.
//!
//! Known for Linux on x86-64 alone; elsewhere there are no such calls.

mod entering;
mod indexed;
mod laying;
mod number;
mod runtime;
mod signature;
mod spare;
mod values;
mod wrapped;

pub use self::indexed::{By, Indexed};
pub use self::number::Number;
pub use self::values::{Seen, Tensor, Value};

use std::ffi::CStr;

use pyo3::prelude::*;

/// Whether there are such calls here.
pub const IS_KNOWN: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// What an operator takes in one place, as its schema says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Tensor`.
    Tensor,
    /// `Tensor?`.
    OptionalTensor,
    /// `Tensor[]`.
    Tensors,
    /// `Tensor[]` of operators that take an `IListRef`.
    TensorList,
    /// `Scalar`.
    Scalar,
    /// `Scalar?`.
    OptionalScalar,
    /// `int`.
    Int,
    /// `int?`.
    OptionalInt,
    /// `SymInt`.
    Size,
    /// `SymInt?`.
    OptionalSize,
    /// `int[]` and `SymInt[]`.
    Ints,
    /// `int[]?` and `SymInt[]?`.
    OptionalInts,
    /// `bool`.
    Bool,
    /// `bool?`.
    OptionalBool,
    /// `float`.
    Float,
    /// `float?`.
    OptionalFloat,
    /// `ScalarType?` and `MemoryFormat?`, of which none is given.
    OptionalCode,
    /// `str`.
    Text,
}

/// What an operator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A tensor of its own, or a view.
    Tensor,
    /// Its first argument, which it has written.
    Itself,
    /// Whether something holds of its first argument, a tensor.
    Truth,
    /// The number in a tensor.
    Number,
}

impl Gives {
    /// How a schema of PyTorch's says it.
    fn in_schemas(self) -> &'static str {
        match self {
            Self::Tensor | Self::Itself => "Tensor",
            Self::Truth => "bool",
            Self::Number => "number",
        }
    }
}

/// An operator.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// Its name.
    pub name: &'static str,
    /// The name of the overload; empty for most that are the only one.
    pub overload: &'static str,
    /// The name of the function that calls it, in PyTorch's library.
    pub symbol: &'static CStr,
    /// Whether a number may be given for a tensor: Python makes one of it.
    pub takes_numbers: bool,
    /// What it gives.
    pub gives: Gives,
}

impl Operator {
    /// Both names, as PyTorch's library joins them.
    fn unambiguous(&self) -> String {
        let joint = if self.overload.is_empty() { "" } else { "_" };
        format!("{}{joint}{}", self.name, self.overload)
    }
}

/// A constant for an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// Nothing, of what may be left out.
    Nothing,
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Whether.
    Bool(bool),
    /// A number with a fraction.
    Float(f64),
    /// A number of the arithmetic.
    Number(Number),
    /// Text.
    Text(String),
}

/// Where an argument comes from. Operands are numbered as [`Call::run`] is given them.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// It is the same in each call.
    Constant(Constant),
    /// It is this operand: a tensor, a number, or a tuple or list of such.
    Operand(usize),
    /// Whole numbers: each is a constant or an operand.
    Ints(Vec<Result<i64, usize>>),
    /// A number that stands for a tensor without dimensions, as in `x + 1`.
    Wrapped(Number),
    /// The dimension that the first operand is indexed in.
    Dimension(Indexed),
}

/// A call of an operator.
#[derive(Debug)]
pub struct Call(laying::Call);

impl Call {
    /// A call of an operator. `None`: PyTorch's library has no such function, or it takes other arguments, or they can't
    /// be laid out. `by_type`: it is made only while the types of tensors are as they are now, since these say which
    /// operator it is.
    #[must_use]
    pub fn new(operator: &Operator, arguments: &[(Kind, Given)], by_type: bool) -> Option<Self> {
        laying::Call::new(operator, arguments, by_type).map(Self)
    }

    /// Calls it. `None`: an operand is another one than the operator takes in its place, or somebody wants to see the
    /// call in Python. Then nothing was done.
    ///
    /// # Errors
    /// What it raises, as PyTorch's Python functions raise it.
    #[inline]
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        operands: &[Seen<'_, 'py>],
    ) -> Option<PyResult<Value<'py>>> {
        self.0.run(py, operands)
    }
}
