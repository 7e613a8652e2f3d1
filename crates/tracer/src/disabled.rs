//! The marks of functions that a trace must not look into.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use stator_cpython::code::Code;
use stator_cpython::heap::dict::{self, Lookup, Peek, peek_instance_dict};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;

use crate::locate::text;

/// Why a function isn't to be traced, if it bears a mark: that of `stator.disable`, whose value is
/// the reason, or that of `torch.compiler.disable`. Runs no user code.
///
/// A mark needs no guard: a trace that looked into a function before it was marked is right.
#[must_use]
pub fn reason<'py>(function: Borrowed<'_, 'py>) -> Option<String> {
    let Peek::Dict(marks) = peek_instance_dict(function) else { return None };
    if dict::length(marks.as_borrowed()) == Some(0) {
        return None;
    }
    let py = function.py();
    let get = |name: &Bound<'py, PyString>| match dict::get(
        marks.as_borrowed(),
        name.as_any().as_borrowed(),
    ) {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Refused => None,
    };
    if let Some(why) = get(pyo3::intern!(py, "__stator_disable__")) {
        return Some(text(why.as_borrowed()));
    }
    let mark = get(pyo3::intern!(py, "_torchdynamo_disable"))?;
    mark.is(&*PyBool::new(py, true))
        .then(|| format!("{} is under torch.compiler.disable", qualname(function)))
}

fn qualname(function: Borrowed<'_, '_>) -> String {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.map_or_else(|| "it".into(), |code| text(code.qualname()))
}
