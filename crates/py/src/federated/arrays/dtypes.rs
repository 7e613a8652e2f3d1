//! Which element type a value has, and which ones it fits.

use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyString, PyType};
use stator_federated::dtype::DType;

use crate::federated::blocks::literals;
use crate::federated::types::{describe, dtypes};

/// The element type of one of Python's own numbers and strings.
pub fn infer(value: &Bound<'_, PyAny>) -> PyResult<DType> {
    if value.is_instance_of::<PyBool>() {
        return Ok(DType::Bool);
    }
    if value.is_instance_of::<PyInt>() {
        if value.extract::<i32>().is_ok() {
            return Ok(DType::Int32);
        }
        if value.extract::<i64>().is_ok() {
            return Ok(DType::Int64);
        }
        return Err(PyValueError::new_err(format!(
            "the number has no place in an int64\n  expected: {} to {}\n  found:    {}",
            i64::MIN,
            i64::MAX,
            describe(value)
        )));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(DType::Float32);
    }
    if value.is_instance_of::<PyComplex>() {
        return Ok(DType::Complex128);
    }
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Ok(DType::Str);
    }
    Err(PyNotImplementedError::new_err(format!(
        "there is no element type for this\n  expected: a bool, int, float, complex, str or bytes\n  \
         found:    {}",
        describe(value)
    )))
}

/// The element type of a value: of one of NumPy's its own, of others as [`infer`] says.
pub fn of_value(value: &Bound<'_, PyAny>) -> PyResult<DType> {
    if !literals::is_of_numpy(value)? {
        return infer(value);
    }
    let dtype = value.getattr("dtype")?;
    // Objects are taken for strings. Whether they are is seen when they are read.
    if "SUO".contains(dtype.getattr("kind")?.extract::<char>()?) {
        return Ok(DType::Str);
    }
    dtypes::from_object(&dtype)
}

/// The class of NumPy's scalars of an element type.
pub fn class_of(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    dtypes::to_numpy(py, dtype)?.getattr("type")
}

/// The element type that a class of NumPy's scalars is for; `None` for other objects.
pub fn from_class(class: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if !class.is_instance_of::<PyType>()
        || class.is(class.py().import("numpy")?.getattr("bytes_")?)
    {
        return Ok(None);
    }
    dtypes::from_object_opt(class)
}

fn from_class_or_err(class: &Bound<'_, PyAny>) -> PyResult<DType> {
    from_class(class)?.ok_or_else(|| {
        PyNotImplementedError::new_err(format!(
            "this is no element type\n  expected: a class of NumPy's scalars, as `numpy.int32`\n  \
             found:    {}",
            describe(class)
        ))
    })
}

/// The element type of a bool, int, float, complex, str or bytes.
#[pyfunction]
fn infer_dtype<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    class_of(obj.py(), infer(obj)?)
}

/// Whether NumPy turns a value into this element type without overflow.
#[pyfunction]
fn can_cast_dtype(value: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    let numpy = py.import("numpy")?;
    if drops_imaginary_parts(value, dtype)? {
        return Ok(false);
    }
    let options = PyDict::new(py);
    options.set_item("over", "raise")?;
    options.set_item("invalid", "raise")?;
    let state = numpy.getattr("errstate")?.call((), Some(&options))?;
    state.call_method0("__enter__")?;
    let cast = numpy.call_method1("asarray", (value, dtype));
    state.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    match cast {
        Ok(_) => Ok(true),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Ok(false),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyFloatingPointError>(py) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether NumPy would only warn that it makes real numbers of complex ones.
fn drops_imaginary_parts(value: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !literals::is_of_numpy(value)? {
        return Ok(false);
    }
    let kind = |dtype: Bound<'_, PyAny>| dtype.getattr("kind")?.extract::<char>();
    let to = value.py().import("numpy")?.call_method1("dtype", (dtype,))?;
    Ok(kind(value.getattr("dtype")?)? == 'c' && "iuf".contains(kind(to)?))
}

/// Whether this is the class of an element type of tensors.
#[pyfunction]
fn is_valid_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(from_class(dtype)?.is_some())
}

/// The number that messages have for an element type.
#[pyfunction]
fn dtype_to_proto(dtype: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(from_class_or_err(dtype)?.wire())
}

/// The element type that messages have this number for.
#[pyfunction]
fn dtype_from_proto<'py>(dtype_pb: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match dtype_pb.extract().ok().and_then(DType::from_wire) {
        Some(dtype) => class_of(dtype_pb.py(), dtype),
        None => Err(PyNotImplementedError::new_err(format!(
            "there is no element type of this number\n  found:    {}",
            describe(dtype_pb)
        ))),
    }
}

/// Whether a value is of the kind of an element type, and each of its elements has a place in it.
#[pyfunction]
fn array_is_compatible_dtype(value: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    match dtypes::from_object_opt(dtype)? {
        Some(dtype) => literals::fits(value, dtype),
        None => Ok(false),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(infer_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(can_cast_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(is_valid_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(dtype_to_proto, module)?)?;
    module.add_function(wrap_pyfunction!(dtype_from_proto, module)?)?;
    module.add_function(wrap_pyfunction!(array_is_compatible_dtype, module)?)
}
