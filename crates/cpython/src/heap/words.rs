//! Raw reads, in one place: every other file of `heap` goes through these.

use pyo3::ffi;

use super::layout;

/// Reads a word at `offset` from `base`.
///
/// # Safety
/// `base + offset` is aligned, and 8 bytes there are readable and initialised.
#[inline(always)]
pub(super) unsafe fn word(base: *const ffi::PyObject, offset: usize) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { base.cast::<u8>().add(offset).cast::<u64>().read() }
}

/// Reads an object pointer at `offset` from `base`.
///
/// # Safety
/// As for [`word`], and the field is an object pointer, possibly null.
#[inline(always)]
pub(super) unsafe fn pointer(base: *const ffi::PyObject, offset: usize) -> *mut ffi::PyObject {
    // SAFETY: passed on to the caller.
    unsafe { base.cast::<u8>().add(offset).cast::<*mut ffi::PyObject>().read() }
}

/// `Py_TYPE`.
///
/// # Safety
/// `object` is a live object.
#[inline(always)]
pub(super) unsafe fn type_of(object: *const ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: every object has `ob_type`.
    unsafe { pointer(object, layout::TYPE).cast() }
}

/// `PyType_HasFeature`.
///
/// # Safety
/// `ty` is a live type.
#[inline(always)]
pub(super) unsafe fn flags(ty: *const ffi::PyTypeObject) -> u64 {
    // SAFETY: `tp_flags` is a plain field; types change it under the GIL, which callers hold.
    unsafe { (*ty).tp_flags }
}

/// `tp_version_tag`.
///
/// # Safety
/// `ty` is a live type.
#[inline(always)]
pub(super) unsafe fn type_version(ty: *const ffi::PyTypeObject) -> u32 {
    // SAFETY: a plain field; types change it under the GIL, which callers hold.
    unsafe { (*ty).tp_version_tag }
}

/// Whether `object` is an instance of a builtin type with a subclass flag, or of its subclass.
///
/// # Safety
/// `object` is a live object.
#[inline(always)]
pub(super) unsafe fn has_flag(object: *const ffi::PyObject, flag: u64) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { flags(type_of(object)) & flag != 0 }
}
