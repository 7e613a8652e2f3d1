//! The operations of the language as Python objects.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use stator_federated::ast::BuildingBlock;
use stator_federated::intrinsics::{self, AggregationKind, BroadcastKind};

use crate::federated::types;

/// The module that the enumerations say they are from.
const MODULE: &str = "stator.federated.framework";

/// An operation of the language: its uri, type, and what it does between places.
#[pyclass(name = "IntrinsicDef", module = "stator.federated.framework", frozen, weakref)]
pub struct IntrinsicDefObject {
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    uri: String,
    #[pyo3(get)]
    type_signature: Py<PyAny>,
    #[pyo3(get)]
    aggregation_kind: Option<Py<PyAny>>,
    #[pyo3(get)]
    broadcast_kind: Option<Py<PyAny>>,
}

#[pymethods]
impl IntrinsicDefObject {
    #[new]
    #[pyo3(signature = (name, uri, type_signature, aggregation_kind=None, broadcast_kind=None))]
    fn new(
        name: String,
        uri: String,
        type_signature: &Bound<'_, PyAny>,
        aggregation_kind: Option<Py<PyAny>>,
        broadcast_kind: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        types::expect_type(type_signature, "type_signature")?;
        let type_signature = type_signature.clone().unbind();
        Ok(Self { name, uri, type_signature, aggregation_kind, broadcast_kind })
    }

    /// An operation of the language is one object, whoever loads it.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Py<PyTuple>)> {
        let (py, of) = (slf.py(), slf.get());
        let known = definition(py, &of.uri)?;
        if known.is_some_and(|known| known.is(slf)) {
            let find = py.import("stator._stator")?.getattr("federated")?;
            let arguments = (&of.uri,).into_pyobject(py)?.unbind();
            return Ok((find.getattr("uri_to_intrinsic_def")?, arguments));
        }
        let kinds = (&of.aggregation_kind, &of.broadcast_kind);
        let arguments = (&of.name, &of.uri, &of.type_signature, kinds.0, kinds.1);
        Ok((slf.get_type().into_any(), arguments.into_pyobject(py)?.unbind()))
    }

    fn __str__(&self) -> &str {
        &self.name
    }

    fn __repr__(&self) -> String {
        format!("IntrinsicDef('{}')", self.uri)
    }
}

/// The definitions in the order of the table.
fn definitions(py: Python<'_>) -> PyResult<&Vec<Py<IntrinsicDefObject>>> {
    static ALL: PyOnceLock<Vec<Py<IntrinsicDefObject>>> = PyOnceLock::new();
    ALL.get_or_try_init(py, || {
        let object = |def: &intrinsics::IntrinsicDef| {
            let aggregation = def.aggregation.map(|kind| aggregation_kind(py, kind));
            let broadcast = def.broadcast.map(|kind| broadcast_kind(py, kind));
            let made = IntrinsicDefObject {
                name: def.name(),
                uri: def.uri.to_owned(),
                type_signature: types::wrap(py, &def.ty)?.unbind(),
                aggregation_kind: aggregation.transpose()?.map(Bound::unbind),
                broadcast_kind: broadcast.transpose()?.map(Bound::unbind),
            };
            Py::new(py, made)
        };
        intrinsics::all().iter().map(object).collect()
    })
}

/// The definition of the operation with this uri.
fn definition<'py>(py: Python<'py>, uri: &str) -> PyResult<Option<Bound<'py, IntrinsicDefObject>>> {
    let at = intrinsics::all().iter().position(|def| def.uri == uri);
    at.map(|at| Ok(definitions(py)?[at].bind(py).clone())).transpose()
}

/// The definition of the operation with this uri.
pub fn definition_or_err<'py>(
    py: Python<'py>,
    uri: &str,
) -> PyResult<Bound<'py, IntrinsicDefObject>> {
    definition(py, uri)?.ok_or_else(|| {
        PyValueError::new_err(format!("the language has no operation with the uri '{uri}'"))
    })
}

/// `enum.Enum(name, {"DEFAULT": 1, "SECURE": 2})`.
fn enumeration<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let members = PyDict::new(py);
    members.set_item("DEFAULT", AggregationKind::Default as i32)?;
    members.set_item("SECURE", AggregationKind::Secure as i32)?;
    let options = PyDict::new(py);
    options.set_item("module", MODULE)?;
    py.import("enum")?.getattr("Enum")?.call((name, members), Some(&options))
}

fn aggregation_kinds(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class =
        CLASS.get_or_try_init(py, || Ok::<_, PyErr>(enumeration(py, "AggregationKind")?.unbind()));
    Ok(class?.bind(py))
}

fn broadcast_kinds(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class =
        CLASS.get_or_try_init(py, || Ok::<_, PyErr>(enumeration(py, "BroadcastKind")?.unbind()));
    Ok(class?.bind(py))
}

/// The member of the enumeration `AggregationKind`.
pub fn aggregation_kind(py: Python<'_>, kind: AggregationKind) -> PyResult<Bound<'_, PyAny>> {
    aggregation_kinds(py)?.call1((kind as i32,))
}

fn broadcast_kind(py: Python<'_>, kind: BroadcastKind) -> PyResult<Bound<'_, PyAny>> {
    broadcast_kinds(py)?.call1((kind as i32,))
}

/// The kind that a member of `AggregationKind` says.
pub fn to_aggregation_kind(object: &Bound<'_, PyAny>) -> PyResult<Option<AggregationKind>> {
    for kind in [AggregationKind::Default, AggregationKind::Secure] {
        if object.is(&aggregation_kind(object.py(), kind)?) {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// The definitions of the operations that aggregate.
#[pyfunction]
fn get_aggregation_intrinsics(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = definitions(py)?.iter();
    PyList::new(py, all.filter(|def| def.get().aggregation_kind.is_some()))
}

/// The definitions of the operations that broadcast.
#[pyfunction]
fn get_broadcast_intrinsics(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = definitions(py)?.iter();
    PyList::new(py, all.filter(|def| def.get().broadcast_kind.is_some()))
}

/// The definition of the operation with this uri, or `None`.
#[pyfunction]
fn uri_to_intrinsic_def<'py>(
    py: Python<'py>,
    uri: &str,
) -> PyResult<Option<Bound<'py, IntrinsicDefObject>>> {
    definition(py, uri)
}

/// An operation of this type, which is checked if the uri is known.
pub fn intrinsic(
    uri: stator_federated::Name,
    ty: stator_federated::types::Type,
) -> stator_federated::Result<BuildingBlock> {
    intrinsics::check(&uri, &ty)?;
    Ok(BuildingBlock::intrinsic(uri, ty))
}

/// Adds what users see of operations: the definitions as constants.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<IntrinsicDefObject>()?;
    module.add("AggregationKind", aggregation_kinds(py)?)?;
    module.add("BroadcastKind", broadcast_kinds(py)?)?;
    for def in definitions(py)? {
        module.add(&*def.get().name, def)?;
    }
    module.add_function(wrap_pyfunction!(get_aggregation_intrinsics, module)?)?;
    module.add_function(wrap_pyfunction!(get_broadcast_intrinsics, module)?)?;
    module.add_function(wrap_pyfunction!(uri_to_intrinsic_def, module)?)
}
