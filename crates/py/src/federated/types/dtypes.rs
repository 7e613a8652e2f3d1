//! NumPy's element types and ours.

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyString, PyType};
use stator_federated::dtype::DType;

/// What is looked up in NumPy often. NumPy is imported at the first use.
struct Numpy {
    /// `numpy.dtype`
    dtype: Py<PyType>,
    /// `numpy.generic`
    generic: Py<PyType>,
    /// `numpy.ndarray`
    ndarray: Py<PyType>,
    /// The scalar classes of the element types but bfloat16, and `numpy.bytes_` for strings too.
    classes: Vec<(Py<PyType>, DType)>,
    /// For each, in the order of [`DType::ALL`]; bfloat16's place is empty.
    dtypes: Vec<Option<Py<PyAny>>>,
}

fn numpy(py: Python<'_>) -> PyResult<&Numpy> {
    static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
    NUMPY.get_or_try_init(py, || {
        let module = py.import("numpy")?;
        let class = |name: &str| -> PyResult<Bound<'_, PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?)
        };
        let dtype = class("dtype")?;
        let mut classes = Vec::new();
        let mut dtypes = Vec::new();
        for &of in DType::ALL {
            let scalar = match of {
                DType::BFloat16 => {
                    dtypes.push(None);
                    continue;
                }
                DType::Bool => class("bool_")?,
                DType::Str => class("str_")?,
                _ => class(of.name())?,
            };
            dtypes.push(Some(dtype.call1((&scalar,))?.unbind()));
            classes.push((scalar.unbind(), of));
        }
        classes.push((class("bytes_")?.unbind(), DType::Str));
        Ok(Numpy {
            dtype: dtype.unbind(),
            generic: class("generic")?.unbind(),
            ndarray: class("ndarray")?.unbind(),
            classes,
            dtypes,
        })
    })
}

/// `numpy.ndarray`.
pub fn ndarray(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    Ok(numpy(py)?.ndarray.bind(py))
}

/// `numpy.generic`, of which all scalars are.
pub fn generic(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    Ok(numpy(py)?.generic.bind(py))
}

/// `ml_dtypes.bfloat16`, if something has imported it: without that, nothing is of that class.
fn bfloat16(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = py.import("sys")?.getattr("modules")?;
    match modules.get_item("ml_dtypes") {
        Ok(module) => module.getattr_opt("bfloat16"),
        Err(_) => Ok(None),
    }
}

/// Whether an object says an element type: a class of NumPy's scalars, or a `numpy.dtype`.
pub fn is_dtype_like(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let numpy = numpy(py)?;
    if object.is_instance(numpy.dtype.bind(py))? {
        return Ok(true);
    }
    let Ok(class) = object.cast::<PyType>() else { return Ok(false) };
    Ok(class.is_subclass(numpy.generic.bind(py))?
        || bfloat16(py)?.is_some_and(|bfloat16| class.is(&bfloat16)))
}

/// The element type that an object says; `None` for one that the language doesn't have.
pub fn from_object_opt(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let py = object.py();
    let numpy = numpy(py)?;
    let class =
        if object.is_instance(numpy.dtype.bind(py))? { &object.getattr("type")? } else { object };
    if let Some((_, found)) = numpy.classes.iter().find(|(of, _)| class.is(of)) {
        return Ok(Some(*found));
    }
    let is_bfloat16 = bfloat16(py)?.is_some_and(|bfloat16| class.is(&bfloat16));
    Ok(is_bfloat16.then_some(DType::BFloat16))
}

/// The element type that an object says.
pub fn from_object(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Some(found) = from_object_opt(object)? {
        return Ok(found);
    }
    let known: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
    Err(PyNotImplementedError::new_err(format!(
        "there are no tensors of this element type\n  expected: a NumPy dtype or scalar class, one \
         of {}\n  found:    {}",
        known.join(", "),
        object.repr()?,
    )))
}

/// The `numpy.dtype`.
pub fn to_numpy(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    let numpy = numpy(py)?;
    let at = DType::ALL.iter().position(|&other| other == dtype).expect("all are listed");
    match &numpy.dtypes[at] {
        Some(found) => Ok(found.bind(py).clone()),
        None => {
            let class = py.import("ml_dtypes")?.getattr("bfloat16")?;
            numpy.dtype.bind(py).call1((class,))
        }
    }
}

/// Whether a `numpy.dtype` is that of one of our numbers but bfloat16, in this machine's byte order.
pub fn is_native_number(dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    let known = DType::ALL.iter().zip(&numpy(dtype.py())?.dtypes);
    let known = known.filter(|(of, _)| **of != DType::Str).filter_map(|(_, known)| known.as_ref());
    if known.clone().any(|known| dtype.is(known)) {
        return Ok(true);
    }
    // `pickle` makes another object of it.
    for known in known {
        if dtype.eq(known)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// NumPy's dtype for a class of Python's own numbers or strings, as in annotations.
pub fn of_scalar_class<'py>(class: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    let known = class.is(py.get_type::<PyBool>())
        || class.is(py.get_type::<PyInt>())
        || class.is(py.get_type::<PyFloat>())
        || class.is(py.get_type::<PyComplex>())
        || class.is(py.get_type::<PyString>())
        || class.is(py.get_type::<PyBytes>());
    if known { numpy(py)?.dtype.bind(py).call1((class,)).map(Some) } else { Ok(None) }
}
