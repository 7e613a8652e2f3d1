//! Arguments of calls. They are small and `Copy`: nested arguments are runs in the graph's pool.

use crate::ids::{NodeId, ObjectId, TextId};
use serde::{Deserialize, Serialize};

/// A run of arguments in a graph's pool; read it with [`Graph::args`](crate::Graph::args).
///
/// The elements of a nested list always stand before the list itself, so nesting is finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgList {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl ArgList {
    /// The number of arguments.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A value handed to a call, or returned by the graph.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arg {
    /// What another node made.
    Node(NodeId),
    /// A Python constant.
    Constant(Constant),
    /// A Python list.
    List(ArgList),
    /// A Python tuple (and what is handed on as one: `torch.Size`).
    Tuple(ArgList),
    /// A Python dict: keys and values in turn.
    Dict(ArgList),
    /// A Python slice: start, stop, step.
    Slice(ArgList),
    /// Another Python object (a dtype, a device, a function), by its place in the tracer's table.
    Object(ObjectId),
}

impl Arg {
    /// Python's `None`.
    pub const NONE: Self = Self::Constant(Constant::None);

    /// A Python int.
    pub const fn int(value: i64) -> Self {
        Self::Constant(Constant::Int(value))
    }

    /// A Python float.
    pub const fn float(value: f64) -> Self {
        Self::Constant(Constant::Float(value))
    }

    /// A Python bool.
    pub const fn bool(value: bool) -> Self {
        Self::Constant(Constant::Bool(value))
    }

    /// The run of elements, where the argument is a container.
    pub const fn elements(self) -> Option<ArgList> {
        match self {
            Self::List(list) | Self::Tuple(list) | Self::Dict(list) | Self::Slice(list) => {
                Some(list)
            }
            Self::Node(_) | Self::Constant(_) | Self::Object(_) => None,
        }
    }
}

/// A Python constant of an exact builtin type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Constant {
    /// `None`
    None,
    /// `...`
    Ellipsis,
    /// `True` or `False`
    Bool(bool),
    /// An int that fits into 64 bits.
    Int(i64),
    /// A larger int, as decimal text.
    BigInt(TextId),
    /// A float, bit by bit.
    Float(f64),
    /// A complex number: real part, imaginary part.
    Complex(f64, f64),
    /// A str. (One with lone surrogates is kept as an object instead.)
    Str(TextId),
    /// A bytes object, as text in which each char is one byte.
    Bytes(TextId),
}
