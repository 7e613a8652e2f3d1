//! The wrapper around `__repr__` of a dataclass, and of what `reprlib.recursive_repr` decorates, by its code.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};

use super::heap;

/// Modules with such a function, and its name.
const MAKERS: [(&str, &str); 2] =
    [("dataclasses", "_recursive_repr"), ("reprlib", "recursive_repr")];

/// The code of the wrappers.
fn wrappers(py: Python<'_>) -> &'static [Py<PyAny>] {
    static WRAPPERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    WRAPPERS.get_or_init(py, || {
        let code = |(module, name): (&str, &str)| {
            let maker = modules::attribute(&modules::import(py, module).ok()?, name).ok()?;
            wrapper_within(value(maker.as_borrowed(), Field::Code)?, 2)
        };
        MAKERS.into_iter().filter_map(code).map(Bound::unbind).collect()
    })
}

/// The code of the function `wrapper` among the constants of some code, or of code that stands there.
fn wrapper_within(code: Object<'_>, depth: usize) -> Option<Object<'_>> {
    let constants = code.getattr("co_consts").ok()?;
    heap::tuple_items(constants.as_borrowed()).into_iter().find_map(|constant| {
        let name = constant.getattr("co_name").ok()?;
        match &*heap::text(name.as_borrowed()) {
            "wrapper" => Some(constant),
            _ if depth > 0 => wrapper_within(constant, depth - 1),
            _ => None,
        }
    })
}

fn is_wrapper(code: Borrowed<'_, '_>) -> bool {
    wrappers(code.py()).iter().any(|wrapper| wrapper.as_ptr() == code.as_ptr())
}

/// Whether a function is such a wrapper.
pub(in crate::recorder) fn guards_text(function: Borrowed<'_, '_>) -> bool {
    value(function, Field::Code).is_some_and(|code| is_wrapper(code.as_borrowed()))
}

/// Whether a frame is that of such a wrapper.
pub(in crate::recorder) fn is_in_wrapper(frame: &Frame<'_>) -> bool {
    is_wrapper(frame.code().object())
}
