//! Python's and NumPy's values as literals.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple,
};
use stator_federated::array::{Array, Content};
use stator_federated::ast::BuildingBlock;
use stator_federated::dtype::{DType, Kind};
use stator_federated::types::Type;

use crate::federated::errors::IntoPython;
use crate::federated::types::{describe, dtypes};

/// `value` as a literal of type `ty`.
pub fn literal(value: &Bound<'_, PyAny>, ty: &Type) -> PyResult<BuildingBlock> {
    BuildingBlock::literal(to_array(value, ty)?, ty.clone()).py()
}

/// The array that `value` is as a literal of type `ty`.
pub fn to_array(value: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Array> {
    let Some(tensor) = ty.as_tensor() else {
        return Err(PyTypeError::new_err(format!(
            "a literal is of a tensor type\n  expected: a TensorType\n  found:    {ty}"
        )));
    };
    if !fits(value, tensor.dtype)? {
        return Err(PyValueError::new_err(format!(
            "the literal's value is not of its type\n  expected: a value of type {ty}\n  \
             found:    {}",
            describe(value)
        )));
    }
    let array = convert(value, tensor.dtype, Text::Utf8)?;
    Ok(if is_of_numpy(value)? { array } else { array.into_plain() })
}

/// How text becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Without the zeros at its end. Other text is an error.
    Ascii,
    Utf8,
}

/// The array that `value` is when it is taken for one of this element type, which it fits.
pub fn convert(value: &Bound<'_, PyAny>, dtype: DType, text: Text) -> PyResult<Array> {
    match dtype {
        DType::Str => strings(value, text),
        dtype => numbers(value, dtype),
    }
}

/// Whether a value is a scalar or an array of NumPy.
pub fn is_of_numpy(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    Ok(value.is_instance(dtypes::generic(py)?)? || value.is_instance(dtypes::ndarray(py)?)?)
}

/// Whether a value is of the kind of an element type, and each of its elements has a place in it.
pub fn fits(value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    if is_of_numpy(value)? { numpy_fits(value, dtype) } else { plain_fits(value, dtype) }
}

/// Whether one of NumPy's values is of the kind of a type's elements, and each fits.
fn numpy_fits(value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let py = value.py();
    let from = value.getattr("dtype")?;
    let kind: String = from.getattr("kind")?.extract()?;
    let wanted = match dtype.kind() {
        Kind::Bool => "b",
        Kind::Signed | Kind::Unsigned => "iu",
        Kind::Float if dtype == DType::BFloat16 => {
            return from.eq(dtypes::to_numpy(py, DType::BFloat16)?);
        }
        Kind::Float => "f",
        Kind::Complex => "c",
        Kind::String => "SUO",
    };
    if !wanted.contains(&kind) {
        return Ok(false);
    }
    if dtype == DType::Str {
        return Ok(true);
    }
    let numpy = py.import("numpy")?;
    let to = dtypes::to_numpy(py, dtype)?;
    numpy.call_method1("can_cast", (from, to))?.extract()
}

/// Whether one of Python's own values is of the kind of a type's elements, and fits.
fn plain_fits(value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let size = dtype.size() as u32;
    Ok(match dtype.kind() {
        Kind::Bool => value.is_instance_of::<PyBool>(),
        kind @ (Kind::Signed | Kind::Unsigned) => {
            let Some(number) = integer(value) else { return Ok(false) };
            let Some(number) = number else { return Ok(false) };
            let bits = 8 * size;
            if kind == Kind::Signed {
                let end = 1i128 << (bits - 1);
                (-end..end).contains(&number)
            } else {
                (0..1i128 << bits).contains(&number)
            }
        }
        Kind::Float if dtype == DType::BFloat16 => false,
        Kind::Float => match value.cast::<PyFloat>() {
            Ok(number) => in_range(number.value(), dtype),
            Err(_) => false,
        },
        Kind::Complex => match value.cast::<PyComplex>() {
            Ok(number) => in_range(number.real(), dtype) && in_range(number.imag(), dtype),
            Err(_) => false,
        },
        Kind::String => value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>(),
    })
}

/// A number of Python's that is no boolean; `None` inside if it is of more than 128 bits.
fn integer(value: &Bound<'_, PyAny>) -> Option<Option<i128>> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    let number = value.cast::<PyInt>().ok()?;
    Some(number.extract().ok())
}

/// Whether a finite number stays finite.
fn in_range(number: f64, dtype: DType) -> bool {
    // From here numbers round to infinity.
    const HALF_END: f64 = 65520.0;
    !number.is_finite()
        || match dtype {
            DType::Float16 => number.abs() < HALF_END,
            DType::Float32 | DType::Complex64 => (number as f32).is_finite(),
            _ => true,
        }
}

fn numbers(value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Array> {
    let py = value.py();
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (value, dtypes::to_numpy(py, dtype)?))?;
    let dims: Vec<u64> = array.getattr("shape")?.extract()?;
    let bytes = array.call_method0("tobytes")?;
    let content = Content::Numbers(bytes.cast::<PyBytes>()?.as_bytes().into());
    Array::new(dtype, dims, content).py()
}

fn strings(value: &Bound<'_, PyAny>, text: Text) -> PyResult<Array> {
    if !value.is_instance(dtypes::ndarray(value.py())?)? {
        return Array::new(DType::Str, [], Content::Strings([string(value, text)?].into())).py();
    }
    let dims: Vec<u64> = value.getattr("shape")?.extract()?;
    let flat = value.call_method0("ravel")?.call_method0("tolist")?;
    let elements = flat.cast::<PyList>()?.iter().map(|element| string(&element, text));
    let elements: Vec<_> = elements.collect::<PyResult<_>>()?;
    Array::new(DType::Str, dims, Content::Strings(elements.into())).py()
}

fn string(value: &Bound<'_, PyAny>, text: Text) -> PyResult<Box<[u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().into());
    }
    let Ok(string) = value.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!(
            "an array of strings holds something else\n  expected: str or bytes\n  found:    {}",
            describe(value)
        )));
    };
    if text == Text::Utf8 {
        return Ok(string.to_str()?.as_bytes().into());
    }
    let encoded = string.call_method1("encode", ("ascii",))?;
    let mut bytes = encoded.cast::<PyBytes>()?.as_bytes();
    while let [rest @ .., 0] = bytes {
        bytes = rest;
    }
    Ok(bytes.into())
}

/// The value of an array: a scalar, or an array of NumPy.
pub fn from_array<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let flat = match array.content() {
        Content::Numbers(bytes) => {
            let dtype = dtypes::to_numpy(py, array.dtype())?;
            // Over bytes that can be written, so that the array can be.
            numpy.call_method1("frombuffer", (PyByteArray::new(py, bytes), dtype))?
        }
        Content::Strings(strings) => {
            if array.dims().is_empty() {
                return Ok(PyBytes::new(py, &strings[0]).into_any());
            }
            let strings = strings.iter().map(|text| PyBytes::new(py, text));
            numpy.call_method1("array", (PyList::new(py, strings)?, "object"))?
        }
    };
    if !array.dims().is_empty() {
        return flat.call_method1("reshape", (PyTuple::new(py, array.dims())?,));
    }
    let scalar = flat.get_item(0)?;
    if !array.is_plain() {
        return Ok(scalar);
    }
    match array.dtype().kind() {
        // The shortest number that is this one in its own precision.
        Kind::Float => py.get_type::<PyFloat>().call1((scalar.str()?,)),
        Kind::Complex if array.dtype() == DType::Complex64 => {
            py.get_type::<PyComplex>().call1((scalar.str()?,))
        }
        _ => scalar.call_method0("item"),
    }
}

/// The value of an array as Python's `repr`, with NumPy's names after `np.`.
pub fn repr(py: Python<'_>, array: &Array) -> PyResult<String> {
    let value = from_array(py, array)?;
    if array.dims().is_empty() {
        return Ok(value.repr()?.to_string());
    }
    let elements = value.call_method0("tolist")?.repr()?;
    let dtype = match array.dtype() {
        DType::Str => "object_",
        dtype => dtype.name(),
    };
    Ok(format!("np.array({elements}, dtype=np.{dtype})"))
}
