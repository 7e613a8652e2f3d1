//! `functools.lru_cache`: the wrapper's dictionary, and the links it holds when it is bounded.
//!
//! The structs aren't public: their layout is tried out on a cache made for it, and where it isn't
//! as expected no object is said to have these fields.

use crate::modules;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyDict, PyInt, PyTuple};

use super::words;

/// `cache` of a wrapper.
pub const CACHE: usize = 72;
/// `typed` of a wrapper, an `int`.
const TYPED: usize = 64;
/// `result` of a link.
pub const RESULT: usize = 48;

struct Types {
    wrapper: Py<PyAny>,
    link: Py<PyAny>,
    /// What stands in keys between positional and keyword arguments; `None`: not found where it is expected.
    mark: Option<Py<PyAny>>,
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
    let int = py.get_type::<PyInt>();
    let info = py.get_type::<PyTuple>();
    let cache = wrapper.call1((&int, 4, false, &info)).ok()?;
    let result = cache.call1(("77",)).ok()?;
    let link = stored(&cache)?.get_item("77").ok()??;
    // SAFETY: the link is long enough for the word, which is only compared.
    let holds = size(&link)? >= RESULT + 8
        && unsafe { words::pointer(link.as_ptr(), RESULT) == result.as_ptr() };
    let unbounded = wrapper.call1((&int, py.None(), false, &info)).ok()?;
    let typed = wrapper.call1((int, 4, true, info)).ok()?;
    let holds = holds && is_typed_at(&typed) && !is_typed_at(&unbounded);
    holds.then(|| Types {
        wrapper: wrapper.unbind(),
        link: link.get_type().into_any().unbind(),
        mark: find_mark(&unbounded).ok().flatten(),
    })
}

fn is_typed_at(wrapper: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the struct is long enough, and the word is only compared.
    unsafe { words::word(wrapper.as_ptr(), TYPED) as u32 == 1 }
}

/// Whether a cached function's keys have the types of the arguments behind these (`typed=True`).
#[must_use]
pub fn is_typed(wrapper: &Bound<'_, PyAny>) -> bool {
    is_wrapper(wrapper) && is_typed_at(wrapper)
}

fn size(object: &Bound<'_, PyAny>) -> Option<usize> {
    object.get_type().getattr("__basicsize__").ok()?.extract().ok()
}

/// The dictionary of a cache whose layout isn't known yet.
fn stored<'py>(cache: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    if size(cache)? < CACHE + 8 {
        return None;
    }
    // SAFETY: the struct is long enough. The word is a pointer to an object, or null, in every
    // layout this struct has had: it lies among object pointers.
    let found = unsafe {
        Bound::from_borrowed_ptr_or_opt(cache.py(), words::pointer(cache.as_ptr(), CACHE))
    };
    found?.cast_into_exact().ok()
}

/// Reads the mark out of the key of `int("77", base=10)`.
fn find_mark(cache: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let py = cache.py();
    cache.call(("77",), Some(&[("base", 10)].into_py_dict(py)?))?;
    let Some((key, _)) = stored(cache).and_then(|stored| stored.iter().next()) else {
        return Ok(None);
    };
    let parts: Vec<Bound<'_, PyAny>> = key.extract()?;
    Ok(match &parts[..] {
        [_, mark, name, _] if mark.get_type().is(py.get_type::<PyAny>()) && name.eq("base")? => {
            Some(mark.clone().unbind())
        }
        _ => None,
    })
}

/// What stands between positional and keyword arguments in the keys of caches.
pub fn keyword_mark(py: Python<'_>) -> Option<Borrowed<'_, '_, PyAny>> {
    types(py)?.mark.as_ref().map(|mark| mark.bind_borrowed(py))
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
