//! Constants of a graph as Python objects.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyString,
    PyTuple,
};
use stator_graph::{Arg, Constant, Graph};

/// An argument in which no node is mentioned, as a Python object.
///
/// # Errors
/// `ValueError` if a constant's text is none, or if a node is mentioned after all.
pub(super) fn to_object<'py>(
    py: Python<'py>,
    graph: &Graph,
    objects: &[Py<PyAny>],
    arg: Arg,
) -> PyResult<Bound<'py, PyAny>> {
    let item = |&arg: &Arg| to_object(py, graph, objects, arg);
    match arg {
        Arg::Node(node) => Err(PyValueError::new_err(format!("{node} is no constant"))),
        Arg::Object(object) => Ok(objects[object.index()].bind(py).clone()),
        Arg::Constant(constant) => constant_to_object(py, graph, constant),
        Arg::List(items) => {
            let items = graph.args(items).iter().map(item).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
        Arg::Tuple(items) => {
            let items = graph.args(items).iter().map(item).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, items)?.into_any())
        }
        Arg::Dict(items) => {
            let dict = PyDict::new(py);
            for pair in graph.args(items).chunks_exact(2) {
                dict.set_item(item(&pair[0])?, item(&pair[1])?)?;
            }
            Ok(dict.into_any())
        }
        Arg::Slice(parts) => {
            let parts = graph.args(parts).iter().map(item).collect::<PyResult<Vec<_>>>()?;
            py.get_type::<PySlice>().call1(PyTuple::new(py, parts)?)
        }
    }
}

fn constant_to_object<'py>(
    py: Python<'py>,
    graph: &Graph,
    constant: Constant,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match constant {
        Constant::None => py.None().into_bound(py),
        Constant::Ellipsis => PyEllipsis::get(py).to_owned().into_any(),
        Constant::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Constant::Int(value) => PyInt::new(py, value).into_any(),
        Constant::BigInt(digits) => py.get_type::<PyInt>().call1((graph.text(digits),))?,
        Constant::Float(value) => PyFloat::new(py, value).into_any(),
        Constant::Complex(real, imaginary) => {
            PyComplex::from_doubles(py, real, imaginary).into_any()
        }
        Constant::Str(text) => PyString::intern(py, graph.text(text)).into_any(),
        Constant::Bytes(text) => {
            let byte = |c| u8::try_from(u32::from(c)).map_err(|_| not_a_byte());
            let bytes = graph.text(text).chars().map(byte).collect::<PyResult<Vec<u8>>>()?;
            PyBytes::new(py, &bytes).into_any()
        }
    })
}

fn not_a_byte() -> PyErr {
    PyValueError::new_err("a bytes constant of the graph holds a char that is no byte")
}
