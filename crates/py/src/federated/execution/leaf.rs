//! Tensors: NumPy's scalars and arrays, and PyTorch's tensors where something made them.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
use stator_federated::dtype::{DType, Kind};
use stator_federated::types::{Shape, TensorType, Type};
use stator_federated::{Class, Error};

use super::owned;
use crate::federated::types::{describe, dtypes};

/// A tensor: a NumPy scalar or array, a torch tensor, or the bytes of one string.
#[derive(Clone, Debug)]
pub struct Leaf(Arc<Py<PyAny>>);

impl Leaf {
    pub fn new(object: Bound<'_, PyAny>) -> Self {
        Self(Arc::new(object.unbind()))
    }

    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }

    /// Its object, if no other value is this one; if one is, a copy.
    pub fn own<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match Arc::try_unwrap(self.0) {
            Ok(object) => owned::own(object.into_bound(py)),
            Err(shared) => owned::own(shared.bind(py).clone()),
        }
    }
}

/// Why an object is no tensor of a type.
pub enum Misfit {
    /// What was expected and found, for a message that says where.
    Unlike { expected: String, found: String, hint: Option<String> },
    /// Python raised.
    Raised(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let numpy = NUMPY.get_or_try_init(py, || Ok::<_, PyErr>(py.import("numpy")?.unbind()))?;
    Ok(numpy.bind(py))
}

/// PyTorch, if something has imported it: without that, nothing is a tensor of its.
pub fn torch(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static TORCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(torch) = TORCH.get(py) {
        return Ok(Some(torch.bind(py).clone()));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(torch) = modules.get_item("torch") else { return Ok(None) };
    // It may be in the middle of its import.
    if torch.getattr_opt("Tensor")?.is_none() {
        return Ok(None);
    }
    let _ = TORCH.set(py, torch.clone().unbind());
    Ok(Some(torch))
}

/// Whether an object is a torch tensor.
pub fn is_torch(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    match torch(object.py())? {
        Some(torch) => object.is_instance(&torch.getattr("Tensor")?),
        None => Ok(false),
    }
}

/// A torch tensor's content as a NumPy scalar or array; nothing where NumPy has no such numbers.
pub fn torch_to_numpy<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = tensor.py();
    let tensor = tensor.call_method0("detach")?.call_method0("cpu")?;
    let tensor = tensor.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
    if torch_dtype(&tensor)? == Some(DType::BFloat16) {
        let Ok(bfloat16) = dtypes::to_numpy(py, DType::BFloat16) else { return Ok(None) };
        let bits = torch(py)?.expect("it is one of its tensors").getattr("int16")?;
        let bits = tensor.call_method1("view", (bits,))?.call_method0("numpy")?;
        return scalar_or_array(bits.call_method1("view", (bfloat16,))?).map(Some);
    }
    scalar_or_array(tensor.call_method0("numpy")?).map(Some)
}

/// The array; its scalar, if it has no dimensions.
pub fn scalar_or_array(array: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if array.getattr_opt("ndim")?.is_some_and(|count| count.extract::<u8>().is_ok_and(|n| n == 0)) {
        return array.get_item(PyTuple::empty(array.py()));
    }
    Ok(array)
}

fn torch_dtype(tensor: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let name = tensor.getattr("dtype")?.str()?.to_string();
    Ok(DType::from_name(name.strip_prefix("torch.").unwrap_or(&name)))
}

/// The tensor of type `ty` that an object is.
pub fn to_leaf(object: &Bound<'_, PyAny>, ty: &TensorType) -> Result<Leaf, Misfit> {
    let py = object.py();
    if is_torch(object)? {
        let found = torch_dtype(object)?;
        let dims: Vec<u64> = object.getattr("shape")?.extract()?;
        return match found {
            Some(dtype) if dtype == ty.dtype && fits(&dims, &ty.shape) => {
                Ok(Leaf::new(object.clone()))
            }
            Some(dtype) => Err(Misfit::Unlike {
                expected: notation(ty),
                found: format!("a torch tensor of type {}", sized(dtype, &dims)),
                hint: hint(dtype, ty, "to(torch."),
            }),
            None => Err(unlike(object, ty)),
        };
    }
    if ty.dtype == DType::Str {
        return strings(object, ty);
    }
    let is_numpy =
        object.is_instance(dtypes::ndarray(py)?)? || object.is_instance(dtypes::generic(py)?)?;
    let array = if is_numpy {
        object.clone()
    } else if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        if ty.shape.is_scalar() {
            return Err(unlike(object, ty));
        }
        return row(object, ty);
    } else if let Some(kind) = python_kind(object) {
        return scalar(object, kind, ty);
    } else if object.hasattr("__array__")? {
        numpy(py)?.call_method1("asarray", (object,))?
    } else {
        return Err(unlike(object, ty));
    };
    let Some(found) = dtypes::from_object_opt(&array.getattr("dtype")?)? else {
        return Err(unlike(object, ty));
    };
    let dims: Vec<u64> = array.getattr("shape")?.extract()?;
    let wanted = dtypes::to_numpy(py, ty.dtype)?;
    let same = found == ty.dtype;
    let widens = || -> PyResult<bool> {
        // bfloat16 is kin to nothing.
        let kin = same_kind(found, ty.dtype) && ![found, ty.dtype].contains(&DType::BFloat16);
        Ok(kin
            && numpy(py)?
                .call_method1("can_cast", (array.getattr("dtype")?, &wanted))?
                .is_truthy()?)
    };
    if !fits(&dims, &ty.shape) || !(same || widens()?) {
        return Err(Misfit::Unlike {
            expected: notation(ty),
            found: sized(found, &dims),
            hint: hint(found, ty, "astype(np."),
        });
    }
    // Also in the byte order of this machine.
    let array = match array.getattr("dtype")?.eq(&wanted)? {
        true => array,
        false => array.call_method1("astype", (wanted,))?,
    };
    Ok(Leaf::new(scalar_or_array(array)?))
}

/// A Python number.
fn python_kind(object: &Bound<'_, PyAny>) -> Option<Kind> {
    if object.is_instance_of::<PyBool>() {
        Some(Kind::Bool)
    } else if object.is_instance_of::<PyInt>() {
        Some(Kind::Signed)
    } else if object.is_instance_of::<PyFloat>() {
        Some(Kind::Float)
    } else if object.is_instance_of::<PyComplex>() {
        Some(Kind::Complex)
    } else {
        None
    }
}

fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Bool => 0,
        Kind::Signed | Kind::Unsigned => 1,
        Kind::Float => 2,
        Kind::Complex => 3,
        Kind::String => 4,
    }
}

fn same_kind(a: DType, b: DType) -> bool {
    rank(a.kind()) == rank(b.kind())
}

/// Whether Python's numbers of this kind may stand for those of a type: ints for floats too, but
/// no int for a bool and no bool for a number.
fn stands_for(kind: Kind, dtype: DType) -> bool {
    match (kind, dtype.kind()) {
        (Kind::Bool, wanted) => wanted == Kind::Bool,
        (_, Kind::Bool) => false,
        (kind, wanted) => rank(kind) <= rank(wanted),
    }
}

fn scalar(object: &Bound<'_, PyAny>, kind: Kind, ty: &TensorType) -> Result<Leaf, Misfit> {
    let py = object.py();
    if !stands_for(kind, ty.dtype) || !ty.shape.is_assignable_from(&Shape::scalar()) {
        return Err(unlike(object, ty));
    }
    let class = dtypes::to_numpy(py, ty.dtype)?.getattr("type")?;
    match class.call1((object,)) {
        Ok(made) => Ok(Leaf::new(made)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(py) => {
            Err(unlike(object, ty))
        }
        Err(error) => Err(error.into()),
    }
}

/// Lists of Python's numbers.
fn row(object: &Bound<'_, PyAny>, ty: &TensorType) -> Result<Leaf, Misfit> {
    let py = object.py();
    let array = match numpy(py)?.call_method1("asarray", (object,)) {
        Ok(array) => array,
        // A list of lists of different lengths.
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Err(unlike(object, ty)),
        Err(error) => return Err(error.into()),
    };
    let Some(found) = dtypes::from_object_opt(&array.getattr("dtype")?)? else {
        return Err(unlike(object, ty));
    };
    let dims: Vec<u64> = array.getattr("shape")?.extract()?;
    // NumPy takes an empty list for one of floats.
    let is_empty = dims.contains(&0);
    if !fits(&dims, &ty.shape) || !(is_empty || stands_for(found.kind(), ty.dtype)) {
        return Err(unlike(object, ty));
    }
    let wanted = dtypes::to_numpy(py, ty.dtype)?;
    let made = array.call_method1("astype", (wanted,))?;
    // What doesn't fit comes out as another number.
    if ty.dtype.is_integer() && !is_empty {
        let same = numpy(py)?.call_method1("array_equal", (&array, &made))?;
        if !same.is_truthy()? {
            return Err(unlike(object, ty));
        }
    }
    Ok(Leaf::new(made))
}

fn strings(object: &Bound<'_, PyAny>, ty: &TensorType) -> Result<Leaf, Misfit> {
    let py = object.py();
    let is_scalar = ty.shape.is_assignable_from(&Shape::scalar());
    let one = |object: &Bound<'_, PyAny>| -> Result<Py<PyBytes>, Misfit> {
        if let Ok(text) = object.cast::<PyString>() {
            Ok(PyBytes::new(py, text.to_str()?.as_bytes()).unbind())
        } else if let Ok(bytes) = object.cast::<PyBytes>() {
            // Also of `numpy.bytes_`.
            Ok(PyBytes::new(py, bytes.as_bytes()).unbind())
        } else {
            Err(unlike(object, ty))
        }
    };
    if object.cast::<PyString>().is_ok() || object.cast::<PyBytes>().is_ok() {
        return match is_scalar {
            true => Ok(Leaf::new(one(object)?.into_bound(py).into_any())),
            false => Err(unlike(object, ty)),
        };
    }
    let is_row = object.is_instance(dtypes::ndarray(py)?)?
        || object.cast::<PyList>().is_ok()
        || object.cast::<PyTuple>().is_ok();
    if !is_row {
        return Err(unlike(object, ty));
    }
    let array = numpy(py)?.call_method1("asarray", (object, "object"))?;
    let dims: Vec<u64> = array.getattr("shape")?.extract()?;
    if !fits(&dims, &ty.shape) {
        return Err(unlike(object, ty));
    }
    let made = numpy(py)?.call_method1("empty", (array.getattr("size")?, "object"))?;
    for (at, text) in array.getattr("flat")?.try_iter()?.enumerate() {
        made.set_item(at, one(&text?)?)?;
    }
    Ok(Leaf::new(made.call_method1("reshape", (array.getattr("shape")?,))?))
}

fn fits(dims: &[u64], shape: &Shape) -> bool {
    let dims: Vec<Option<u64>> = dims.iter().map(|&dim| Some(dim)).collect();
    shape.is_assignable_from(&Shape::new(dims))
}

fn notation(ty: &TensorType) -> String {
    Type::tensor(ty.dtype, ty.shape.clone()).to_string()
}

fn sized(dtype: DType, dims: &[u64]) -> String {
    let dims: Vec<Option<u64>> = dims.iter().map(|&dim| Some(dim)).collect();
    Type::tensor(dtype, Shape::new(dims)).to_string()
}

/// How to get the right element type, if that is all that is wrong.
fn hint(found: DType, wanted: &TensorType, method: &str) -> Option<String> {
    (found != wanted.dtype && found != DType::Str && wanted.dtype != DType::Str)
        .then(|| format!("`.{method}{})` converts the elements", wanted.dtype))
}

fn unlike(object: &Bound<'_, PyAny>, ty: &TensorType) -> Misfit {
    Misfit::Unlike { expected: notation(ty), found: describe(object), hint: None }
}

impl Misfit {
    /// The exception, saying what the object is.
    pub fn raise(self, what: &str) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Unlike { expected, found, hint } => {
                let error = Error::new(Class::Type, format!("{what} doesn't fit its type"));
                let error = error.expected(expected).found(found);
                let error = match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                };
                PyTypeError::new_err(error.to_string())
            }
        }
    }
}
