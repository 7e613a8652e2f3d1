//! Arrays of numbers or strings that stand in a program as they are.

use std::hash::{Hash, Hasher};

mod decimal;
mod print;

use crate::dtype::{DType, Kind};
use crate::error::{Class, Error, Result};
use crate::types::{Shape, Type};

/// An array. Equal arrays have equal bytes: a NaN equals itself.
#[derive(Clone, Debug)]
pub struct Array {
    dtype: DType,
    dims: Box<[u64]>,
    content: Content,
    /// Whether it was given as a number or string of Python's own: then it is shown as one.
    plain: bool,
}

impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, &self.dims, &self.content) == (other.dtype, &other.dims, &other.content)
    }
}

impl Eq for Array {}

impl Hash for Array {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype, &self.dims, &self.content).hash(state);
    }
}

/// The elements of an array in C order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Numbers, each in as many little-endian bytes as its element type has.
    Numbers(Box<[u8]>),
    /// Strings of bytes.
    Strings(Box<[Box<[u8]>]>),
}

impl Array {
    /// An array of `dims` from its elements.
    ///
    /// # Errors
    /// `Class::Value`: there are more or fewer elements than `dims` says, or they are of the
    /// other kind than `dtype`.
    pub fn new(dtype: DType, dims: impl Into<Box<[u64]>>, content: Content) -> Result<Self> {
        let dims = dims.into();
        let bad = |message| Err(Error::new(Class::Value, message));
        let Some(wanted) = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
        else {
            return bad(format!("an array of shape {dims:?} has too many elements"));
        };
        let elements = match (&content, dtype.kind()) {
            (Content::Strings(strings), Kind::String) => strings.len() as u64,
            (Content::Numbers(bytes), kind) if kind != Kind::String => {
                if bytes.len() % dtype.size() != 0 {
                    return bad(format!("{} bytes are no whole number of {dtype}", bytes.len()));
                }
                (bytes.len() / dtype.size()) as u64
            }
            _ => return bad(format!("elements of another kind than {dtype}")),
        };
        if elements != wanted {
            return bad(format!("shape {dims:?} needs {wanted} elements, not {elements}"));
        }
        Ok(Self { dtype, dims, content, plain: false })
    }

    /// The same, given as a number or string of Python's own.
    #[must_use]
    pub fn into_plain(mut self) -> Self {
        self.plain = self.dims.is_empty();
        self
    }

    /// Whether it was given as a number or string of Python's own, not as one of NumPy's.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each dimension.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The elements.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The tensor type with exactly this shape.
    pub fn tensor_type(&self) -> Type {
        let dims: Vec<Option<u64>> = self.dims.iter().map(|&dim| Some(dim)).collect();
        Type::tensor(self.dtype, Shape::new(dims))
    }
}
