//! The content of data that only an executor knows.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stator_federated::ast::Data;

/// A message of any type: the type's address and the encoded message, as in
/// `google.protobuf.Any`.
#[pyclass(name = "AnyMessage", module = "stator._stator.federated", frozen, weakref)]
pub struct AnyMessage {
    data: Data,
}

#[pymethods]
impl AnyMessage {
    #[new]
    fn new(type_url: &str, value: &[u8]) -> Self {
        Self { data: Data { type_url: type_url.into(), value: value.into() } }
    }

    #[getter]
    fn type_url(&self) -> &str {
        &self.data.type_url
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data.value)
    }

    fn __repr__(&self) -> String {
        format!("AnyMessage('{}', {} bytes)", self.data.type_url, self.data.value.len())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(read_any(other)?.is_some_and(|other| other == self.data))
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (&str, Bound<'py, PyBytes>) {
        (&self.data.type_url, PyBytes::new(py, &self.data.value))
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut state = std::hash::DefaultHasher::new();
        self.data.hash(&mut state);
        state.finish()
    }
}

/// The object of a content.
pub fn wrap<'py>(py: Python<'py>, data: &Data) -> PyResult<Bound<'py, AnyMessage>> {
    Bound::new(py, AnyMessage { data: data.clone() })
}

/// The content that an object says: one with a type's address and encoded message, or a protobuf
/// message.
pub fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Data> {
    if let Some(data) = read_any(object)? {
        return Ok(data);
    }
    if object.hasattr("SerializeToString")? {
        let name: String = object.getattr("DESCRIPTOR")?.getattr("full_name")?.extract()?;
        let encoded = object.call_method0("SerializeToString")?;
        let value = encoded.cast::<PyBytes>()?.as_bytes().into();
        return Ok(Data { type_url: format!("type.googleapis.com/{name}").into(), value });
    }
    Err(PyTypeError::new_err(format!(
        "`content` must be a message\n  expected: an object with `type_url` and `value`, or a \
         protobuf message\n  found:    {}",
        crate::federated::types::describe(object),
    )))
}

fn read_any(object: &Bound<'_, PyAny>) -> PyResult<Option<Data>> {
    if let Ok(any) = object.cast::<AnyMessage>() {
        return Ok(Some(any.get().data.clone()));
    }
    let (Some(url), Some(value)) = (object.getattr_opt("type_url")?, object.getattr_opt("value")?)
    else {
        return Ok(None);
    };
    let Ok(value) = value.cast_into::<PyBytes>() else { return Ok(None) };
    let Ok(url) = url.extract::<String>() else { return Ok(None) };
    Ok(Some(Data { type_url: url.into(), value: value.as_bytes().into() }))
}

/// Adds what users see of contents.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AnyMessage>()
}
