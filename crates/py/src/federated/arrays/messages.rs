//! Arrays as messages.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stator_federated::array::Array;
use stator_federated::wire;

use super::dtypes;
use crate::federated::blocks::literals::{self, Text};
use crate::federated::errors::IntoPython;
use crate::federated::types::describe;
use crate::federated::wire::bytes_of;

/// The array that a value is, of the element type that the class `dtype_hint` is for, or of its
/// own. Text is ASCII.
fn to_array(value: &Bound<'_, PyAny>, dtype_hint: Option<&Bound<'_, PyAny>>) -> PyResult<Array> {
    let Some(class) = dtype_hint else {
        return literals::convert(value, dtypes::of_value(value)?, Text::Ascii);
    };
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
    literals::convert(value, dtype, Text::Ascii)
}

/// The message of an array, as bytes, with its elements in the list for its element type.
#[pyfunction]
#[pyo3(signature = (value, *, dtype_hint=None))]
fn array_to_proto<'py>(
    value: &Bound<'py, PyAny>,
    dtype_hint: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let array = to_array(value, dtype_hint)?;
    Ok(PyBytes::new(value.py(), &wire::encode_array(&array).py()?))
}

/// The message of an array, as bytes, with its elements as they are in memory.
#[pyfunction]
#[pyo3(signature = (value, *, dtype_hint=None))]
fn array_to_proto_content<'py>(
    value: &Bound<'py, PyAny>,
    dtype_hint: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let array = to_array(value, dtype_hint)?;
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
