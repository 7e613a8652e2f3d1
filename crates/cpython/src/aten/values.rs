//! What operators are given and give: Python objects, and tensors that have no object in Python.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3::prelude::*;

use super::runtime::Runtime;
use crate::object::{Borrowed, Object};

/// A tensor that only operators have seen. To make an object for it takes as long as a small operation.
#[derive(Debug)]
pub struct Tensor<'py> {
    /// An `at::Tensor` as C++ makes it, in memory of its own.
    held: NonNull<c_void>,
    runtime: &'static Runtime,
    /// It's dropped while the thread has the GIL, as tensors are that have an object.
    gil: PhantomData<Python<'py>>,
}

/// An object, or a tensor without one.
#[derive(Debug)]
pub enum Value<'py> {
    /// An object.
    Object(Object<'py>),
    /// A tensor that is ordinary to Python's functions: a `torch.Tensor` that nobody dispatches.
    Tensor(Tensor<'py>),
}

/// A value that somebody else holds.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a, 'py> {
    /// An object.
    Object(Borrowed<'a, 'py>),
    /// A tensor without an object.
    Tensor(&'a Tensor<'py>),
}

impl<'py> Tensor<'py> {
    /// # Safety
    /// It's an `at::Tensor` that nobody else drops, in memory that C++'s `new` has given.
    pub(super) unsafe fn new(
        _: Python<'py>,
        runtime: &'static Runtime,
        held: NonNull<c_void>,
    ) -> Self {
        Self { held, runtime, gil: PhantomData }
    }

    /// The address of the `at::Tensor`.
    #[inline]
    pub(super) fn place(&self) -> *mut c_void {
        self.held.as_ptr()
    }

    /// The tensor's object, which is the same for as long as anyone holds it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn to_object(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.another(py)?.into_object(py)
    }

    /// The tensor's object, for which the tensor is given.
    ///
    /// # Errors
    /// As [`Tensor::to_object`].
    pub fn into_object(self, py: Python<'py>) -> PyResult<Object<'py>> {
        // SAFETY: an `at::Tensor` that is this one's; what the object has left of it is dropped.
        unsafe { self.runtime.wrap(py, self.place()) }
    }

    /// Another reference to the tensor.
    fn another(&self, py: Python<'py>) -> PyResult<Self> {
        // SAFETY: a live `at::Tensor`; the new one is this function's own.
        unsafe { Ok(Self::new(py, self.runtime, self.runtime.copy(self.place())?)) }
    }
}

impl Drop for Tensor<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: an `at::Tensor` that is this one's, and isn't used any more.
        unsafe { self.runtime.delete(self.held) };
    }
}

impl<'py> Value<'py> {
    /// The value, for others to look at.
    #[inline]
    #[must_use]
    pub fn seen(&self) -> Seen<'_, 'py> {
        match self {
            Self::Object(object) => Seen::Object(object.as_borrowed()),
            Self::Tensor(tensor) => Seen::Tensor(tensor),
        }
    }

    /// As an object.
    ///
    /// # Errors
    /// If there is no memory for one.
    #[inline]
    pub fn into_object(self, py: Python<'py>) -> PyResult<Object<'py>> {
        match self {
            Self::Object(object) => Ok(object),
            Self::Tensor(tensor) => tensor.into_object(py),
        }
    }

    /// The object, which is made now if there is none.
    ///
    /// # Errors
    /// As [`Value::into_object`]. The value is the tensor it was.
    #[inline]
    pub fn object(&mut self, py: Python<'py>) -> PyResult<&Object<'py>> {
        if let Self::Tensor(tensor) = self {
            *self = Self::Object(tensor.to_object(py)?);
        }
        match self {
            Self::Object(object) => Ok(object),
            Self::Tensor(_) => unreachable!("it has got its object"),
        }
    }
}

impl<'a, 'py> Seen<'a, 'py> {
    /// The object, if it is one.
    #[inline]
    pub(super) fn object(self) -> Option<Borrowed<'a, 'py>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Tensor(_) => None,
        }
    }

    /// As an object of the caller's.
    ///
    /// # Errors
    /// If there is no memory for one.
    pub fn to_object(self, py: Python<'py>) -> PyResult<Object<'py>> {
        match self {
            Self::Object(object) => Ok(object.to_owned()),
            Self::Tensor(tensor) => tensor.to_object(py),
        }
    }

    /// As a value of the caller's.
    ///
    /// # Errors
    /// If there is no memory for one.
    #[inline]
    pub(super) fn to_value(self, py: Python<'py>) -> PyResult<Value<'py>> {
        Ok(match self {
            Self::Object(object) => Value::Object(object.to_owned()),
            Self::Tensor(tensor) => Value::Tensor(tensor.another(py)?),
        })
    }
}
