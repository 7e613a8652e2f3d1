//! Arrays as messages.

use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stator_federated::dtype::DType;
use stator_federated::wire;

use super::dtypes;
use crate::federated::blocks::literals::{self, Text};
use crate::federated::errors::IntoPython;
use crate::federated::types::describe;
use crate::federated::wire::bytes_of;

/// The element type that the class `dtype_hint` is for, if the value fits it; without a hint, the
/// value's own.
fn dtype_of(value: &Bound<'_, PyAny>, dtype_hint: Option<&Bound<'_, PyAny>>) -> PyResult<DType> {
    let Some(class) = dtype_hint else { return dtypes::of_value(value) };
    let Some(dtype) = dtypes::from_class(class)? else {
        return Err(PyValueError::new_err(format!(
            "`dtype_hint` is no element type\n  expected: a class of NumPy's scalars, as \
             `numpy.int32`\n  found:    {}",
            describe(class)
        )));
    };
    if !literals::fits(value, dtype)? {
        return Err(PyValueError::new_err(format!(
            "`value` has no place in the element type of `dtype_hint`\n  expected: {dtype}\n  \
             found:    {}",
            describe(value)
        )));
    }
    Ok(dtype)
}

/// The message of an array, as bytes, with its elements in the list for its element type.
#[pyfunction]
#[pyo3(signature = (value, *, dtype_hint=None))]
fn array_to_proto<'py>(
    value: &Bound<'py, PyAny>,
    dtype_hint: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let array = literals::convert(value, dtype_of(value, dtype_hint)?, Text::Ascii)?;
    Ok(PyBytes::new(value.py(), &wire::encode_array(&array).py()?))
}

/// The message of an array, as bytes, with its elements as they are in memory.
#[pyfunction]
#[pyo3(signature = (value, *, dtype_hint=None))]
fn array_to_proto_content<'py>(
    value: &Bound<'py, PyAny>,
    dtype_hint: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let dtype = dtype_of(value, dtype_hint)?;
    if dtype == DType::Str {
        return Err(PyNotImplementedError::new_err(format!(
            "strings have no content of a fixed length: only `array_to_proto` takes them\n  \
             found:    {}",
            describe(value)
        )));
    }
    let array = literals::convert(value, dtype, Text::Ascii)?;
    Ok(PyBytes::new(value.py(), &wire::encode_array_content(&array).py()?))
}

fn from_message<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let array = wire::decode_array(&bytes_of(message, "array_pb")?).py()?;
    literals::from_array(message.py(), &array)
}

/// The array in a message: a scalar of NumPy or an array; strings are `bytes`.
#[pyfunction]
fn array_from_proto<'py>(array_pb: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    from_message(array_pb)
}

/// The array in a message: a scalar of NumPy or an array.
#[pyfunction]
fn array_from_proto_content<'py>(array_pb: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    from_message(array_pb)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(array_to_proto, module)?)?;
    module.add_function(wrap_pyfunction!(array_to_proto_content, module)?)?;
    module.add_function(wrap_pyfunction!(array_from_proto, module)?)?;
    module.add_function(wrap_pyfunction!(array_from_proto_content, module)?)
}
