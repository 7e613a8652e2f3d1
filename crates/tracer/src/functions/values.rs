//! The functions of `decimal` that are nodes. Its module isn't imported to know them.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use stator_cpython::heap::types;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use super::{Class, Model};

/// Methods of decimals whose results are decimals, integers or truth values.
const METHODS: [&str; 17] = [
    "quantize",
    "sqrt",
    "exp",
    "ln",
    "log10",
    "copy_abs",
    "copy_negate",
    "normalize",
    "to_integral_value",
    "max",
    "min",
    "is_nan",
    "is_zero",
    "is_signed",
    "is_finite",
    "is_infinite",
    "adjusted",
];

/// The class of a C function of decimals.
pub fn of_decimal(callable: Borrowed<'_, '_>) -> Option<&'static Class> {
    static COMPUTES: Class = Class::Model(Model::Values);
    let is_named =
        |name: &str| callable.getattr("__name__").is_ok_and(|own| own.eq(name).unwrap_or(false));
    let is_class = callable.is_instance_of::<PyType>();
    // A class of the program's may say its name in Python.
    if callable.cast::<PyType>().is_ok_and(|ty| !types::is_immutable(ty.as_borrowed())) {
        return None;
    }
    if is_class && !is_named("Decimal") || !is_class && !METHODS.iter().any(|name| is_named(name)) {
        return None;
    }
    let py = callable.py();
    let module = modules::loaded(py)?.get_item(PyString::intern(py, "decimal")).ok()??;
    let decimal = module.getattr("Decimal").ok()?;
    let is_own = match is_class {
        true => callable.is(&decimal),
        false => callable.getattr("__objclass__").is_ok_and(|owner| owner.is(&decimal)),
    };
    // `_pydecimal` is Python.
    let is_native = || {
        let ty = decimal.cast::<PyType>().ok()?;
        Some(types::is_immutable(ty.as_borrowed()))
    };
    (is_own && is_native() == Some(true)).then_some(&COMPUTES)
}
