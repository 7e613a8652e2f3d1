//! Which special method a frame runs. Its code's name says so of one that a class body defines. One that is decorated, a
//! lambda or somebody else's function is found under the name on the class of the frame's first argument.

use pyo3::prelude::*;
use pyo3::types::{PyFunction, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::object::Object;

use crate::recorder::notes::heap;

/// Special methods that give texts.
pub(super) const TEXTS: &[&str] = &["__str__", "__repr__", "__format__"];

/// The special method that gives a length.
pub(super) const LENGTH: &[&str] = &["__len__"];

/// Special methods whose results C code converts.
pub(super) const CONVERTED: &[&str] =
    &["__len__", "__length_hint__", "__index__", "__int__", "__float__", "__hash__", "__round__"];

/// Whether a frame runs one of these methods, as the name of its code has it.
pub(super) fn is_named_so(frame: &Frame<'_>, names: &[&str]) -> bool {
    names.contains(&&*heap::text(frame.code().name()))
}

/// Whether a frame runs one of these methods. Of what is no function nobody knows which frames it runs.
pub(super) fn is_special(frame: &Frame<'_>, names: &[&str]) -> bool {
    is_named_so(frame, names) || is_found_so(frame, names)
}

fn is_found_so(frame: &Frame<'_>, names: &[&str]) -> bool {
    let Some(receiver) = receiver(frame) else { return false };
    let ty = receiver.get_type();
    if !types::is_heap(ty.as_borrowed()) {
        return false;
    }
    let function = frame.function();
    names.iter().any(|name| match types::lookup_named(&ty, name) {
        Some(found) if found.is_instance_of::<PyFunction>() => found.is(&*function),
        Some(found) => !heap::is_method_descriptor(found.as_borrowed()) && !found.is_none(),
        None => false,
    })
}

/// The first argument of a frame, be it in a cell or among `*args`.
fn receiver<'py>(frame: &Frame<'py>) -> Option<Object<'py>> {
    if frame.code().nlocalsplus() == 0 {
        return None;
    }
    let first = frame.local(0)?.to_owned();
    let first = value(first.as_borrowed(), Field::CellContents).unwrap_or(first);
    match first.cast_exact::<PyTuple>() {
        Ok(args) => args.get_item(0).ok(),
        Err(_) => Some(first),
    }
}
