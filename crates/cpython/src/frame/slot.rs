//! What a frame's slots hold: the one place that knows how a reference is kept in them.
//!
//! Up to CPython 3.13 a slot is a pointer, null where there is nothing. In 3.14 it is a tagged one (`_PyStackRef`):
//! then [`Slot::objects`] has copies to make.

use std::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::object::{Borrowed, Object};

/// A fast local, a cell or a value of the stack: a counted reference, or nothing.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Slot(*mut PyObject);

impl Slot {
    /// Nothing.
    pub(crate) const NULL: Slot = Slot(ptr::null_mut());

    /// Takes a reference over.
    #[inline(always)]
    pub(crate) fn of(value: Object<'_>) -> Self {
        Slot(value.into_ptr())
    }

    /// As [`Slot::of`], or nothing.
    #[inline(always)]
    pub(crate) fn of_option(value: Option<Object<'_>>) -> Self {
        value.map_or(Self::NULL, Self::of)
    }

    /// Another reference to an object.
    ///
    /// # Safety
    /// A live object.
    #[inline(always)]
    pub(crate) unsafe fn refer(object: *mut PyObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe { ffi::Py_INCREF(object) };
        Slot(object)
    }

    /// Another reference to what this holds, if it holds anything.
    ///
    /// # Safety
    /// What it holds is alive.
    #[inline(always)]
    pub(crate) unsafe fn copied(self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { ffi::Py_XINCREF(self.0) };
        self
    }

    /// Whether there is nothing.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// What it holds; the frame goes on owning it.
    ///
    /// # Safety
    /// What it holds stays alive for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn borrow<'a, 'py>(self, py: Python<'py>) -> Option<Borrowed<'a, 'py>> {
        // SAFETY: null or a live object.
        unsafe { pyo3::Borrowed::from_ptr_or_opt(py, self.0) }
    }

    /// Gives the reference away.
    ///
    /// # Safety
    /// The slot's reference is the caller's to give: nothing counts the slot any more.
    #[inline(always)]
    pub(crate) unsafe fn take(self, py: Python<'_>) -> Option<Object<'_>> {
        // SAFETY: the caller's promise.
        unsafe { Bound::from_owned_ptr_or_opt(py, self.0) }
    }

    /// As [`Slot::take`], of a slot that holds something: a pointer that is the caller's.
    #[inline(always)]
    pub(crate) fn into_ptr(self) -> *mut PyObject {
        self.0
    }

    /// Drops the reference, if there is one.
    ///
    /// # Safety
    /// As for [`Slot::take`].
    #[inline(always)]
    pub(crate) unsafe fn release(self) {
        // SAFETY: the caller's promise.
        unsafe { ffi::Py_XDECREF(self.0) };
    }

    /// What slots that follow each other hold, for whoever reads them as an array of pointers.
    ///
    /// # Safety
    /// So many slots, which stay as they are for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn objects<'a, 'py>(
        slots: *const Slot,
        count: usize,
    ) -> &'a [Option<Borrowed<'a, 'py>>] {
        // SAFETY: the caller's promise; `Option<Borrowed>` is a nullable pointer, as a slot is.
        unsafe { std::slice::from_raw_parts(slots.cast(), count) }
    }
}
