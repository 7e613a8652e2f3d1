//! Type hints that a call makes (`Tensor | None`, `Union[Tensor, int]`, `list[int]`), as annotations of its functions.

use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyType};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};

use super::call::library;
use super::heap;

/// How deep hints are looked into.
const DEPTH: usize = 8;

/// Whether an object is a hint of classes, of constants and of such hints alone: nothing changes it, and an equal one is as good.
pub fn is_hint(object: Borrowed<'_, '_>) -> bool {
    parts(object).is_some_and(|found| are_fixed(&found, DEPTH))
}

fn are_fixed(found: &[Object<'_>], depth: usize) -> bool {
    depth > 0
        && found.iter().all(|part| {
            part.is_instance_of::<PyType>()
                || part.is_instance_of::<PyEllipsis>()
                || heap::is_constant(part.as_borrowed())
                || parts(part.as_borrowed()).is_some_and(|inner| are_fixed(&inner, depth - 1))
        })
}

/// What a hint is made of, read without code of anybody's.
fn parts<'py>(hint: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    const ARGS: &str = "__args__";
    let class = hint.get_type();
    let name = heap::type_name(hint);
    let is_builtin = types::is_immutable(class.as_borrowed());
    let args = if is_builtin && matches!(&*name, "GenericAlias" | "UnionType") {
        hint.getattr(ARGS).ok()?
    } else if !is_builtin
        && name.ends_with("GenericAlias")
        && library(hint.py(), "typing", &name).is_ok_and(|known| known.is(&class))
    {
        let own = heap::instance_dict(hint)?;
        let own = heap::dict_items(own.as_borrowed());
        own.into_iter().find(|(key, _)| heap::text(key.as_borrowed()) == ARGS)?.1
    } else {
        return None;
    };
    heap::is_plain_tuple(args.as_borrowed()).then(|| heap::tuple_items(args.as_borrowed()))
}
