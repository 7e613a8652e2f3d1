//! `functools.lru_cache`: the wrapper's dictionary, and the links it holds when it is bounded.
//!
//! The structs aren't public: their layout is tried out on a cache made for it, and where it isn't
//! as expected no object is said to have these fields.

use crate::modules;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::words;

/// `cache` of a wrapper.
pub const CACHE: usize = 72;
/// `result` of a link.
pub const RESULT: usize = 48;

struct Types {
    wrapper: Py<PyAny>,
    link: Py<PyAny>,
}

fn types(py: Python<'_>) -> Option<&Types> {
    static TYPES: PyOnceLock<Option<Types>> = PyOnceLock::new();
    TYPES.get_or_init(py, || find(py)).as_ref()
}

/// Finds the types by running Python code: once, before anything is read.
pub fn warm_up(py: Python<'_>) {
    types(py);
}

fn find(py: Python<'_>) -> Option<Types> {
    let functools = modules::import(py, "_functools").ok()?;
    let wrapper = functools.getattr("_lru_cache_wrapper").ok()?;
    let int = py.get_type::<pyo3::types::PyInt>();
    let tuple = py.get_type::<pyo3::types::PyTuple>();
    let cache = wrapper.call1((int, 4, false, tuple)).ok()?;
    let result = cache.call1(("77",)).ok()?;
    let size = |object: &Bound<'_, PyAny>| -> Option<usize> {
        object.get_type().getattr("__basicsize__").ok()?.extract().ok()
    };
    if size(&cache)? < CACHE + 8 {
        return None;
    }
    // SAFETY: the struct is long enough. The word is a pointer to an object, or null, in every
    // layout this struct has had: it lies among object pointers.
    let dict = unsafe {
        let address = words::pointer(cache.as_ptr(), CACHE);
        if address.is_null() || ffi::PyDict_CheckExact(address) == 0 {
            return None;
        }
        Bound::from_borrowed_ptr(py, address)
    };
    let link = dict.get_item("77").ok()?;
    // SAFETY: the link is long enough for the word, which is only compared.
    let holds = size(&link)? >= RESULT + 8
        && unsafe { words::pointer(link.as_ptr(), RESULT) == result.as_ptr() };
    holds.then(|| Types { wrapper: wrapper.unbind(), link: link.get_type().into_any().unbind() })
}

fn is_exactly(object: &Bound<'_, PyAny>, of: fn(&Types) -> &Py<PyAny>) -> bool {
    types(object.py()).is_some_and(|types| object.get_type().as_any().is(of(types)))
}

/// Whether an object is a cached function.
#[must_use]
pub fn is_wrapper(object: &Bound<'_, PyAny>) -> bool {
    is_exactly(object, |types| &types.wrapper)
}

/// Whether an object is a link of a bounded cache.
#[must_use]
pub fn is_link(object: &Bound<'_, PyAny>) -> bool {
    is_exactly(object, |types| &types.link)
}
