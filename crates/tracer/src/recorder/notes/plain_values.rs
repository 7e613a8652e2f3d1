//! Which objects are values of the standard library's C types that nodes compute with: see `operations/plain_values.rs`.

use pyo3::prelude::*;
use stator_cpython::heap::types;
use stator_cpython::modules::Named;
use stator_cpython::object::Borrowed;

use super::heap;
use super::kinds::Kind;
use super::state::{Origin, State};

/// The types, the first two of which may hold a time zone in Python.
static TYPES: [Named; 7] = [
    Named::new("datetime", "datetime"),
    Named::new("datetime", "time"),
    Named::new("datetime", "date"),
    Named::new("datetime", "timedelta"),
    Named::new("datetime", "timezone"),
    Named::new("decimal", "Decimal"),
    Named::new("io", "StringIO"),
];

/// What each is called, in the same order: nobody imports a module to know.
const NAMES: [&str; 7] =
    ["datetime", "time", "date", "timedelta", "timezone", "Decimal", "StringIO"];

/// Those that may hold a time zone.
const ZONED: usize = 2;

/// Which of the types an object is of.
fn type_of(object: Borrowed<'_, '_>) -> Option<usize> {
    let ty = object.get_type();
    if !types::is_immutable(ty.as_borrowed()) {
        return None;
    }
    let name = heap::type_name(object);
    let at = NAMES.iter().position(|own| *own == name)?;
    TYPES[at].is(ty.as_any().as_borrowed()).then_some(at)
}

/// Whether an object is of one of these types.
pub(in crate::recorder) fn is_of_value_type(object: Borrowed<'_, '_>) -> bool {
    type_of(object).is_some()
}

/// Whether an object is of a type that may hold a time zone.
pub(in crate::recorder) fn has_zone(object: Borrowed<'_, '_>) -> bool {
    type_of(object).is_some_and(|at| at < ZONED)
}

impl State {
    /// Whether an object is such a value, and the graph may have it.
    pub(in crate::recorder) fn is_plain_value(&mut self, object: Borrowed<'_, '_>) -> bool {
        type_of(object).is_some()
            && self.kind(object) == Kind::Object
            && matches!(self.origin(object), Some(Origin::Handle(_) | Origin::Source(_)))
    }
}
