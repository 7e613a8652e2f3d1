//! Tensors: NumPy's scalars and arrays, and PyTorch's tensors where something made them.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;
use stator_federated::dtype::{DType, Kind};
use stator_federated::types::{Shape, TensorType, Type};
use stator_federated::{Class, Error};

use super::batch::Batch;
use super::owned;
use super::torch::{Torch, is_torch, sizes};
use crate::federated::types::{describe, dtypes};

/// A tensor: a NumPy scalar or array, a torch tensor, or the bytes of one string.
#[derive(Clone)]
pub struct Leaf(Arc<Held>);

enum Held {
    Object {
        object: Py<PyAny>,
        /// Its sizes, where somebody has asked for them and they vary between values of its type.
        sizes: Option<Box<[u64]>>,
        /// Whether it is an array of NumPy's own class, with dimensions and with the element type of its type.
        is_array: bool,
    },
    /// That of one client in the tensor of several. The object is made when it's asked for.
    Row { batch: Arc<Batch>, at: usize, object: PyOnceLock<Py<PyAny>> },
}

impl Leaf {
    pub fn new(object: Bound<'_, PyAny>) -> Self {
        Self(Arc::new(Held::Object { object: object.unbind(), sizes: None, is_array: false }))
    }

    /// An array of NumPy's own class, with dimensions and with the element type of its type.
    pub fn of_array(object: Bound<'_, PyAny>, sizes: Option<Box<[u64]>>) -> Self {
        Self(Arc::new(Held::Object { object: object.unbind(), sizes, is_array: true }))
    }

    /// Whether it is known to be an array of NumPy's own class, with dimensions and with the element type of its type.
    pub fn is_array(&self) -> bool {
        matches!(&*self.0, Held::Object { is_array: true, .. })
    }

    /// Its sizes, if they are known.
    pub fn known_sizes(&self) -> Option<&[u64]> {
        match &*self.0 {
            Held::Object { sizes, .. } => sizes.as_deref(),
            Held::Row { .. } => None,
        }
    }

    /// The tensor of one client in that of several.
    pub fn row(batch: &Arc<Batch>, at: usize) -> Self {
        Self(Arc::new(Held::Row { batch: Arc::clone(batch), at, object: PyOnceLock::new() }))
    }

    pub fn bind<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        match &*self.0 {
            Held::Object { object, .. } => Ok(object.bind(py)),
            Held::Row { batch, at, object } => {
                Ok(object.get_or_try_init(py, || batch.row(py, *at).map(Bound::unbind))?.bind(py))
            }
        }
    }

    /// Where it stands, if it's that of one client in the tensor of several.
    pub fn as_row(&self) -> Option<(&Arc<Batch>, usize)> {
        match &*self.0 {
            Held::Object { .. } => None,
            Held::Row { batch, at, .. } => Some((batch, *at)),
        }
    }

    /// Whether it is this very value.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it's a tensor of PyTorch's.
    pub fn is_torch(&self, py: Python<'_>) -> PyResult<bool> {
        match &*self.0 {
            Held::Object { object, .. } => is_torch(object.bind(py)),
            Held::Row { .. } => Ok(true),
        }
    }

    /// Its object, if no other value is this one; if one is, a copy.
    pub fn own<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match Arc::try_unwrap(self.0) {
            Ok(Held::Object { object, .. }) => owned::own(object.into_bound(py)),
            // The others in its tensor have the same memory.
            Ok(Held::Row { batch, at, .. }) => batch.row(py, at)?.call_method0("clone"),
            Err(shared) => owned::own(Self(shared).bind(py)?.clone()),
        }
    }
}

/// The first of some tensors, and those after it, if they are those of clients one after the other in one tensor.
pub fn rows_in_one<'a>(leaves: &[&'a Leaf]) -> Option<(&'a Arc<Batch>, Range<usize>)> {
    let (batch, first) = leaves.first()?.as_row()?;
    let follows = |(at, leaf): &(usize, &&Leaf)| {
        leaf.as_row().is_some_and(|(of, row)| Arc::ptr_eq(of, batch) && row == first + at)
    };
    let count = leaves.iter().enumerate().take_while(follows).count();
    Some((batch, first..first + count))
}

/// The places of some tensors in an order in which those of one batch follow each other. `None`: they do so already.
/// Clients of different sizes stand in different batches, and take turns.
pub fn by_batches(leaves: &[&Leaf]) -> Option<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: FxHashMap<*const Batch, usize> = FxHashMap::default();
    let mut is_in_order = true;
    for (at, leaf) in leaves.iter().enumerate() {
        let new = groups.len();
        let group = match leaf.as_row() {
            Some((batch, _)) => *known.entry(Arc::as_ptr(batch)).or_insert(new),
            None => new,
        };
        if group == new {
            groups.push(Vec::new());
        }
        is_in_order &= group + 1 == groups.len();
        groups[group].push(at);
    }
    (!is_in_order).then(|| groups.concat())
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

/// The array; its scalar, if it has no dimensions.
pub fn scalar_or_array(array: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if array.getattr_opt("ndim")?.is_some_and(|count| count.extract::<u8>().is_ok_and(|n| n == 0)) {
        return array.get_item(PyTuple::empty(array.py()));
    }
    Ok(array)
}

/// The tensor of type `ty` that an object is.
pub fn to_leaf(object: &Bound<'_, PyAny>, ty: &TensorType) -> Result<Leaf, Misfit> {
    let py = object.py();
    if object.is_exact_instance(dtypes::ndarray(py)?)
        && let Some(sizes) = as_it_is(object, ty)?
    {
        return Ok(Leaf::of_array(object.clone(), sizes));
    }
    if is_torch(object)? {
        let torch = Torch::get(py)?.expect("it is one of its tensors");
        if let Some(kind) = torch.unreadable(object)? {
            return Err(Misfit::Unlike {
                expected: notation(ty),
                found: format!("a torch tensor {kind}"),
                hint: None,
            });
        }
        let found = torch.dtype(object)?;
        let dims = sizes(object)?;
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
    if is_numpy && is_masked(&array)? {
        return Err(Misfit::Unlike {
            expected: notation(ty),
            found: format!("a masked array of type {}", sized(found, &dims)),
            hint: Some("`.filled(value)` says what masked elements are".to_owned()),
        });
    }
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

/// Of an array with dimensions that is of a type as it is: its sizes, if they vary. What isn't may still be converted.
fn as_it_is(array: &Bound<'_, PyAny>, ty: &TensorType) -> PyResult<Option<Option<Box<[u64]>>>> {
    let py = array.py();
    let Some(wanted) = ty.shape.dims().filter(|dims| !dims.is_empty() && ty.dtype != DType::Str)
    else {
        return Ok(None);
    };
    let (found, known) = (array.getattr(intern!(py, "dtype"))?, dtypes::to_numpy(py, ty.dtype)?);
    // What came from a file or another process has an element type of its own, an equal one.
    if !found.is(&known) && !found.eq(&known)? {
        return Ok(None);
    }
    let found = array.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?;
    if found.len() != wanted.len() {
        return Ok(None);
    }
    let mut sizes = wanted.contains(&None).then(|| Vec::with_capacity(wanted.len()));
    for (found, wanted) in found.iter_borrowed().zip(wanted) {
        let size = found.extract::<u64>()?;
        if wanted.is_some_and(|wanted| wanted != size) {
            return Ok(None);
        }
        if let Some(sizes) = &mut sizes {
            sizes.push(size);
        }
    }
    Ok(Some(sizes.map(Vec::into_boxed_slice)))
}

/// Whether an array has elements that are left out.
fn is_masked(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    static MASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = array.py();
    if array.is_exact_instance(dtypes::ndarray(py)?) {
        return Ok(false);
    }
    array.is_instance(MASKED.import(py, "numpy.ma", "MaskedArray")?)
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
