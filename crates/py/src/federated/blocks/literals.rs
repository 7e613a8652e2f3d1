//! Python's and NumPy's values as literals.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use stator_federated::array::{Array, Content};
use stator_federated::dtype::DType;
use stator_federated::types::Type;

use crate::federated::errors::IntoPython;
use crate::federated::types::{describe, dtypes};

/// The array that `value` is as a literal of type `ty`.
pub fn to_array(value: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Array> {
    let Some(tensor) = ty.as_tensor() else {
        return Err(PyTypeError::new_err(format!(
            "a literal is of a tensor type\n  expected: a TensorType\n  found:    {ty}"
        )));
    };
    let py = value.py();
    let numpy = py.import("numpy")?;
    if tensor.dtype == DType::Str {
        return strings(value);
    }
    let array = numpy.call_method1("asarray", (value, dtypes::to_numpy(py, tensor.dtype)?))?;
    let dims: Vec<u64> = array.getattr("shape")?.extract()?;
    let bytes = array.call_method0("tobytes")?;
    let content = Content::Numbers(bytes.cast::<PyBytes>()?.as_bytes().into());
    Array::new(tensor.dtype, dims, content).py()
}

fn strings(value: &Bound<'_, PyAny>) -> PyResult<Array> {
    let py = value.py();
    let wrong = || {
        PyValueError::new_err(format!(
            "the literal isn't of strings\n  found:    {}",
            describe(value)
        ))
    };
    let one = |value: &Bound<'_, PyAny>| -> PyResult<Box<[u8]>> {
        if let Ok(text) = value.cast::<PyString>() {
            Ok(text.to_str()?.as_bytes().into())
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            Ok(bytes.as_bytes().into())
        } else {
            Err(wrong())
        }
    };
    if value.is_instance(dtypes::ndarray(py)?)? {
        let dims: Vec<u64> = value.getattr("shape")?.extract()?;
        let flat = value.call_method0("ravel")?.call_method0("tolist")?;
        let elements: PyResult<Vec<_>> =
            flat.cast::<PyList>()?.iter().map(|one_| one(&one_)).collect();
        return Array::new(DType::Str, dims, Content::Strings(elements?.into())).py();
    }
    Array::new(DType::Str, [], Content::Strings([one(value)?].into())).py()
}

/// The value of an array: a scalar of NumPy, or an array.
pub fn from_array<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let shape = PyTuple::new(py, array.dims())?;
    let flat = match array.content() {
        Content::Numbers(bytes) => {
            let dtype = dtypes::to_numpy(py, array.dtype())?;
            numpy.call_method1("frombuffer", (PyBytes::new(py, bytes), dtype))?
        }
        Content::Strings(strings) => {
            if array.dims().is_empty() {
                return Ok(PyBytes::new(py, &strings[0]).into_any());
            }
            let strings = strings.iter().map(|text| PyBytes::new(py, text));
            numpy.call_method1("array", (PyList::new(py, strings)?, "object"))?
        }
    };
    if array.dims().is_empty() { flat.get_item(0) } else { flat.call_method1("reshape", (shape,)) }
}
