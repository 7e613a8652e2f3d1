//! Placements as Python objects: one for each.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_federated::placement::Placement;

use crate::federated::describe::describe;

/// Where a federated value lives: `CLIENTS` or `SERVER`.
#[pyclass(name = "PlacementLiteral", module = "stator.federated.framework", frozen, weakref)]
pub struct PlacementLiteral {
    placement: Placement,
}

#[pymethods]
impl PlacementLiteral {
    #[new]
    #[pyo3(signature = (name, uri, default_all_equal, description=""))]
    fn new<'py>(
        py: Python<'py>,
        name: &str,
        uri: &str,
        default_all_equal: bool,
        description: &str,
    ) -> PyResult<Bound<'py, Self>> {
        let _ = (name, default_all_equal, description);
        by_uri(py, uri)
    }

    #[getter]
    fn name(&self) -> &'static str {
        self.placement.name()
    }

    #[getter]
    fn uri(&self) -> &'static str {
        self.placement.uri()
    }

    #[getter]
    fn default_all_equal(&self) -> bool {
        self.placement.default_all_equal()
    }

    fn __str__(&self) -> &'static str {
        self.placement.name()
    }

    fn __repr__(&self) -> String {
        format!("PlacementLiteral('{}')", self.placement.uri())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&str,))> {
        let function = py.import("stator.federated.framework")?.getattr("uri_to_placement_literal");
        Ok((function?, (self.placement.uri(),)))
    }
}

/// The object of a placement.
pub fn wrap(py: Python<'_>, placement: Placement) -> PyResult<Bound<'_, PlacementLiteral>> {
    static OBJECTS: PyOnceLock<[Py<PlacementLiteral>; 2]> = PyOnceLock::new();
    let objects = OBJECTS.get_or_try_init(py, || -> PyResult<_> {
        let object = |placement| Py::new(py, PlacementLiteral { placement });
        Ok([object(Placement::Clients)?, object(Placement::Server)?])
    })?;
    Ok(objects[usize::from(placement == Placement::Server)].bind(py).clone())
}

/// The placement of an object.
pub fn unwrap(object: &Bound<'_, PyAny>) -> Option<Placement> {
    Some(object.cast::<PlacementLiteral>().ok()?.get().placement)
}

/// The placement that the argument `name` says.
pub fn expect(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Placement> {
    unwrap(object).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "`{name}` must be a placement\n  expected: CLIENTS or SERVER\n  found:    {}",
            describe(object)
        ))
    })
}

fn by_uri<'py>(py: Python<'py>, uri: &str) -> PyResult<Bound<'py, PlacementLiteral>> {
    match Placement::from_uri(uri) {
        Some(placement) => wrap(py, placement),
        None => Err(PyValueError::new_err(format!(
            "there is no placement with the uri '{uri}'\n  expected: 'clients' or 'server'"
        ))),
    }
}

/// The placement with this uri: 'clients' or 'server'.
#[pyfunction]
fn uri_to_placement_literal<'py>(
    py: Python<'py>,
    uri: &str,
) -> PyResult<Bound<'py, PlacementLiteral>> {
    by_uri(py, uri)
}

/// Adds what users see of placements.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<PlacementLiteral>()?;
    for placement in Placement::ALL {
        module.add(placement.name(), wrap(py, placement)?)?;
    }
    module.add_function(wrap_pyfunction!(uri_to_placement_literal, module)?)
}
