//! Tensor programs: graphs that stand on their own.
//!
//! A [`Program`] is a graph whose inputs have declared types and whose other placeholders are constants
//! that go with it; it says what it takes, what it gives and what sizes it serves. It has a text form
//! ([`Program::print`], [`Program::parse`]) and a byte form that holds the text and the constants
//! ([`pack`], [`unpack`]).
//!
//! Both may come from a stranger. So reading them does nothing but build data: which Python object a name
//! stands for is decided by whoever runs the program, from a table of his own. Invariants of a program
//! that was read:
//!
//! * the graph verifies; its placeholders are the inputs, then the constants;
//! * calls have [`Target::Function`] or [`Target::Operator`], or read one of [`ATTRIBUTES`];
//! * outputs are nodes or numbers; there are as many types and leaves as outputs and inputs;
//! * requirements speak of sizes that the inputs have.
//!
//! [`Target::Function`]: crate::Target::Function
//! [`Target::Operator`]: crate::Target::Operator

mod bytes;
mod condition;
mod lexer;
mod parse;
mod print;
mod tree;

use std::fmt;

pub use bytes::{Packed, pack, unpack};
pub use condition::Requirement;
pub use tree::{Field, Shape, Tree};

use crate::graph::Graph;
use crate::tensor::Dtype;

/// Attributes of tensors that a program may read.
pub const ATTRIBUTES: &[&str] = &["H", "T", "data", "imag", "mH", "mT", "real"];

/// What stands in the text before a method's name when it is a function's.
const METHOD: &str = "torch.Tensor";

/// How deep arguments, structures and conditions may nest in a text.
const DEPTH: usize = 64;

/// The type of a tensor; `None` is a size that varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The element type.
    pub dtype: Dtype,
    /// The sizes.
    pub sizes: Box<[Option<u64>]>,
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype.name())?;
        for (index, size) in self.sizes.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match size {
                Some(size) => write!(f, "{size}")?,
                None => f.write_str("?")?,
            }
        }
        f.write_str("]")
    }
}

/// A tensor that goes with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstantType {
    /// Its type; all sizes are known.
    pub tensor: TensorType,
    /// Whether gradients may be asked for it.
    pub requires_grad: bool,
}

/// A self-contained graph.
#[derive(Clone, Debug)]
pub struct Program {
    /// The operations. Its placeholders are the inputs and then the constants.
    pub graph: Graph,
    /// The types of the inputs.
    pub inputs: Vec<TensorType>,
    /// The types of the constants.
    pub constants: Vec<ConstantType>,
    /// What sizes it serves.
    pub requirements: Vec<Requirement>,
    /// The types of the outputs.
    pub outputs: Vec<TensorType>,
    /// The default element type it was traced under.
    pub default_dtype: Dtype,
    /// What the traced function took, with a leaf for each input.
    pub takes: Tree,
    /// What it returned, with a leaf for each output.
    pub gives: Tree,
}

/// Why a text or bytes are no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line of the text, from 1; 0 where the text as a whole or the bytes are meant.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Malformed {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Malformed {}
