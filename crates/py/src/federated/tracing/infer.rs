//! The types of Python's objects.

use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
use stator_federated::dtype::DType;
use stator_federated::types::{Field, Shape, Type};
use stator_federated::{Class, Error};

use super::convert::is_array;
use super::elements::{Visit, elements, fold};
use super::{Here, raise_here};
use crate::federated::types::{self, describe, dtypes};

/// The type of an object; `None` for `None`.
pub fn infer_type(object: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    let py = object.py();
    if object.is_none() {
        return Ok(None);
    }
    let made = fold(
        object,
        (),
        |object, (), path| {
            if let Some(ty) = own_type(object)? {
                return Ok(Visit::Leaf(ty));
            }
            if is_array(object)? {
                return array_type(object).map(Visit::Leaf);
            }
            match elements(object)? {
                Some(found) => {
                    let elements = found.elements.into_iter();
                    let elements = elements.map(|(name, value)| (name, value, ())).collect();
                    // A list of pairs says the names of a struct without a class.
                    let container = found.container.filter(|_| !all_named(object));
                    Ok(Visit::Open(elements, container))
                }
                _ => {
                    let class = match object.is_none() {
                        true => Class::Type,
                        false => Class::NotImplemented,
                    };
                    let what = match path().to_string() {
                        at if at.is_empty() => "the type of this object isn't known".to_owned(),
                        at => format!("the type of the element {at} isn't known"),
                    };
                    let error = Error::new(class, what).expected(
                        "a value, a computation, a number, an array, or a container of such",
                    );
                    Err(raise_here(py, error.found(describe(object))))
                }
            }
        },
        |_, elements, container| {
            let fields = elements.into_iter().map(|(name, ty)| Field { name, ty }).collect();
            Type::structure(fields, container).here(py)
        },
    )?;
    Ok(Some(made))
}

/// The type that an object says it has, as values, computations and building blocks do.
fn own_type(object: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    if let Ok(value) = object.cast::<super::value::Value>() {
        return Ok(Some(value.get().ty().clone()));
    }
    if object.get_type().getattr_opt("type_signature")?.is_none() {
        return Ok(None);
    }
    Ok(types::unwrap(&object.getattr("type_signature")?))
}

/// Whether an object is a list or tuple of pairs of a str and something, and not empty.
fn all_named(object: &Bound<'_, PyAny>) -> bool {
    let named = |value: &Bound<'_, PyAny>| {
        let first = if let Ok(pair) = value.cast::<PyTuple>() {
            (pair.len() == 2).then(|| pair.get_item(0))
        } else if let Ok(pair) = value.cast::<PyList>() {
            (pair.len() == 2).then(|| pair.get_item(0))
        } else {
            None
        };
        matches!(first, Some(Ok(first)) if first.is_instance_of::<PyString>())
    };
    if let Ok(list) = object.cast::<PyList>() {
        !list.is_empty() && list.iter().all(|value| named(&value))
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        !tuple.is_empty() && tuple.iter().all(|value| named(&value))
    } else {
        false
    }
}

/// The type of a number, a string, or an array of NumPy.
pub fn array_type(object: &Bound<'_, PyAny>) -> PyResult<Type> {
    let py = object.py();
    if object.is_instance(dtypes::ndarray(py)?)? || object.is_instance(dtypes::generic(py)?)? {
        let dtype = dtypes::from_object(&object.getattr("dtype")?)?;
        let shape: Vec<Option<u64>> =
            object.getattr("shape")?.extract::<Vec<u64>>()?.into_iter().map(Some).collect();
        return Ok(Type::tensor(dtype, Shape::new(shape)));
    }
    let dtype = if object.is_instance_of::<PyBool>() {
        DType::Bool
    } else if object.is_instance_of::<PyInt>() {
        match object.extract::<i64>() {
            Ok(number) if i32::try_from(number).is_ok() => DType::Int32,
            Ok(_) => DType::Int64,
            Err(_) => {
                return Err(PyValueError::new_err(format!(
                    "the integer is too large\n  expected: at most 64 bits\n  found:    {}",
                    describe(object)
                )));
            }
        }
    } else if object.is_instance_of::<PyFloat>() {
        DType::Float32
    } else if object.is_instance_of::<PyComplex>() {
        DType::Complex128
    } else if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        DType::Str
    } else {
        return Err(PyNotImplementedError::new_err(format!(
            "there are no tensors of this element type\n  found:    {}",
            describe(object)
        )));
    };
    Ok(Type::scalar(dtype))
}

/// The type of `arg`: of a value or computation its own, of a container a struct type of its
/// class, of a number or array a tensor type; `None` for `None`.
#[pyfunction(name = "infer_type")]
fn infer_type_function<'py>(arg: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    infer_type(arg)?.map(|ty| types::wrap(arg.py(), &ty)).transpose()
}

/// Adds `infer_type`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(infer_type_function, module)?)
}
