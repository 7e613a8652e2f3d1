//! The abstract classes, which are Python's: users derive their own from them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// `SymbolBindingContext`
pub fn symbol_binding_context(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "stator.federated._abstract", "SymbolBindingContext")
}
