//! The container of values with and without names.

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySlice, PyString, PyTuple};
use stator_federated::Name;

use super::types::{describe, index_error, index_key};

/// A container of values with and without names.
///
/// Struct types are instances of this class too; those of [`Struct`] hold values.
#[pyclass(name = "Struct", module = "stator.federated.common_libs.structure", subclass, frozen)]
pub struct StructBase;

/// A struct of Python objects.
#[pyclass(
    name = "Struct",
    module = "stator.federated.common_libs.structure",
    extends = StructBase,
    frozen,
    weakref
)]
pub struct Struct {
    elements: Vec<(Option<Name>, Py<PyAny>)>,
}

impl Struct {
    /// A struct of these elements.
    pub fn create(
        py: Python<'_>,
        elements: Vec<(Option<Name>, Py<PyAny>)>,
    ) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, PyClassInitializer::from(StructBase).add_subclass(Self { elements }))
    }

    /// Its elements.
    pub fn elements(&self) -> &[(Option<Name>, Py<PyAny>)] {
        &self.elements
    }
}

/// Adds `Struct`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StructBase>()
}
