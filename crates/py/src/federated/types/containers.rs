//! Python classes as containers of struct types.

use std::any::Any;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use stator_federated::types::{Container, ContainerClass};

/// A class that the core doesn't know by itself.
#[derive(Debug)]
struct PythonClass {
    class: Py<PyType>,
    name: String,
}

impl ContainerClass for PythonClass {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> usize {
        self.class.as_ptr() as usize
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The class that a container stands for.
pub fn class_of<'py>(py: Python<'py>, container: &Container) -> PyResult<Bound<'py, PyType>> {
    Ok(match container {
        Container::List => py.get_type::<PyList>(),
        Container::Tuple => py.get_type::<PyTuple>(),
        Container::Dict => py.get_type::<PyDict>(),
        Container::OrderedDict => ordered_dict(py)?.clone(),
        Container::Other(class) => {
            let class = class.as_any().downcast_ref::<PythonClass>();
            class.expect("every class comes from Python").class.bind(py).clone()
        }
    })
}

/// The container that stands for a class.
pub fn from_class(class: &Bound<'_, PyType>) -> PyResult<Container> {
    let py = class.py();
    Ok(if class.is(py.get_type::<PyList>()) {
        Container::List
    } else if class.is(py.get_type::<PyTuple>()) {
        Container::Tuple
    } else if class.is(py.get_type::<PyDict>()) {
        Container::Dict
    } else if class.is(ordered_dict(py)?) {
        Container::OrderedDict
    } else {
        let name = class.name()?.to_string();
        Container::Other(Arc::new(PythonClass { class: class.clone().unbind(), name }))
    })
}

/// `collections.OrderedDict`.
pub fn ordered_dict(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "collections", "OrderedDict")
}
