//! Instances that nodes make: the functions that do it run no code of the program's.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use stator_cpython::modules::Named;
use stator_cpython::object::Object;
use stator_cpython::vectorcall::instance_dict;

use super::{Classes, Storage, is_python_class};

/// What makes an empty instance.
pub enum New<'py> {
    /// A call of the class.
    Class,
    /// The `__new__` of its C class, given the class.
    Function(Object<'py>),
}

/// What makes empty instances of a class that hold nothing but attributes and slots; `None`: it's no such class.
///
/// # Errors
/// If the standard library lacks a class.
pub fn new<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<New<'py>>> {
    let py = class.py();
    static NAMESPACE: Named = Named::new("types", "SimpleNamespace");
    if NAMESPACE.is(class.as_any().as_borrowed()) {
        return Ok(Some(New::Class));
    }
    if Storage::of(class)? != Some(Storage::Plain) {
        return Ok(None);
    }
    let new = Classes::get(py)?.news[Storage::Plain as usize].bind(py);
    Ok(Some(New::Function(new.clone())))
}

/// What makes instances of a Python class on top of `tuple`; `None`: it's no such class.
///
/// # Errors
/// As of [`new`].
pub fn tuple_new<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<Object<'py>>> {
    let py = class.py();
    for base in class.mro().iter() {
        if base.is(py.get_type::<PyTuple>()) {
            return Ok(Some(Classes::get(py)?.tuple_new.bind(py).clone()));
        }
        if !is_python_class(base.cast::<PyType>()?) {
            break;
        }
    }
    Ok(None)
}

/// The function that fills an instance: its attributes, then pairs of a slot's descriptor and a value. It gives the
/// instance's dictionary.
///
/// # Errors
/// If there is no memory for it.
pub fn fill(py: Python<'_>) -> PyResult<Object<'_>> {
    static MADE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || Ok::<_, PyErr>(wrap_pyfunction!(filled, py)?.into_any().unbind());
    MADE.get_or_try_init(py, make).map(|function| function.bind(py).clone())
}

#[pyfunction]
#[pyo3(signature = (object, attributes, *slots))]
fn filled<'py>(
    object: &Bound<'py, PyAny>,
    attributes: Option<&Bound<'py, PyDict>>,
    slots: &Bound<'py, PyTuple>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    for pair in slots {
        pair.get_item(0)?
            .call_method1(pyo3::intern!(object.py(), "__set__"), (object, pair.get_item(1)?))?;
    }
    let Some(attributes) = attributes else { return Ok(None) };
    let dict = instance_dict(object.as_borrowed())?;
    dict.update(attributes.as_mapping())?;
    Ok(Some(dict.into_any()))
}
