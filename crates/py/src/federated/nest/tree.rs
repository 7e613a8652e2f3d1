//! Nested Python containers: their leaves, comparing them, and building them anew.
//!
//! Inside are: lists, tuples, named tuples, other sequences and views (in their order), mappings
//! (in the order of their sorted keys), objects of attrs (in the order of their fields). All else
//! is a leaf: strings, arrays, sets, iterators, data classes, and structs.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMapping, PySequence,
    PyString, PyTuple, PyType,
};

use super::containers::{attrs_fields, namedtuple_fields};
use crate::federated::build::{self, Step};
use crate::federated::describe::class_name;

/// How a container holds its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sequence,
    NamedTuple,
    Mapping,
    Attrs,
    /// `dict.items()` and the like.
    View,
}

struct Branch<'py> {
    kind: Kind,
    object: Bound<'py, PyAny>,
    /// Of a mapping: sorted.
    keys: Vec<Bound<'py, PyAny>>,
    items: Vec<Bound<'py, PyAny>>,
}

fn mapping_view(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "collections.abc", "MappingView")
}

/// Whether an object is a leaf, as seen from its class alone.
fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.cast_exact::<PyInt>().is_ok()
        || object.cast_exact::<PyFloat>().is_ok()
        || object.cast_exact::<PyBool>().is_ok()
        || object.cast_exact::<PyComplex>().is_ok()
        || object.cast::<PyString>().is_ok()
        || object.cast::<PyBytes>().is_ok()
        || object.cast::<PyByteArray>().is_ok()
}

fn branch<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Branch<'py>>> {
    if is_plain(object) {
        return Ok(None);
    }
    let items = |object: &Bound<'py, PyAny>| object.try_iter()?.collect::<PyResult<Vec<_>>>();
    let made =
        |kind, items| Ok(Some(Branch { kind, object: object.clone(), keys: Vec::new(), items }));
    if object.cast_exact::<PyList>().is_ok() || object.cast_exact::<PyTuple>().is_ok() {
        return made(Kind::Sequence, items(object)?);
    }
    if let Ok(mapping) = object.cast::<PyMapping>() {
        let keys = mapping.keys()?;
        keys.sort()?;
        let keys: Vec<_> = keys.iter().collect();
        let items = keys.iter().map(|key| object.get_item(key)).collect::<PyResult<_>>()?;
        return Ok(Some(Branch { kind: Kind::Mapping, object: object.clone(), keys, items }));
    }
    if namedtuple_fields(object)?.is_some() {
        return made(Kind::NamedTuple, items(object)?);
    }
    if let Some(names) = attrs_fields(&object.get_type())? {
        let values = names.iter().map(|name| object.getattr(name)).collect::<PyResult<_>>()?;
        return made(Kind::Attrs, values);
    }
    if object.cast::<PySequence>().is_ok() {
        return made(Kind::Sequence, items(object)?);
    }
    if object.is_instance(mapping_view(object.py())?)? {
        return made(Kind::View, items(object)?);
    }
    Ok(None)
}

/// Whether an object isn't a leaf.
pub fn is_nested(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(branch(object)?.is_some())
}

/// Adds the leaves of a nested object.
pub fn flatten<'py>(object: &Bound<'py, PyAny>, into: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    build::build(
        object,
        |object, _| match branch(object)? {
            Some(branch) => Ok(Step::Open((), branch.items)),
            None => {
                into.push(object.clone());
                Ok(Step::Leaf(()))
            }
        },
        |(), _| Ok(()),
    )
}

/// Checks that `other` is built like `first`.
///
/// # Errors
/// `TypeError`: containers of different classes. `ValueError`: all other differences.
pub fn check_same_structure<'py>(
    first: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let mut pairs = vec![(first.clone(), other.clone(), String::new())];
    while let Some((first, other, path)) = pairs.pop() {
        let class = |object: &Bound<'py, PyAny>| class_name(&object.get_type());
        let differ = |expected: String, found: String| {
            let place = if path.is_empty() { "" } else { " at " };
            format!(
                "the structures differ{place}{path}\n  expected: {expected}\n  found:    {found}"
            )
        };
        let (left, right) = match (branch(&first)?, branch(&other)?) {
            (None, None) => continue,
            (Some(left), Some(right)) => (left, right),
            (left, right) => {
                let text = |branch: Option<Branch<'py>>, object| match branch {
                    Some(_) => class(object),
                    None => format!("a leaf ({})", class(object)),
                };
                let text = differ(text(left, &first), text(right, &other));
                return Err(PyValueError::new_err(text));
            }
        };
        let classes_fit = left.kind == Kind::Mapping && right.kind == Kind::Mapping
            || first.get_type().is(other.get_type());
        if !classes_fit {
            return Err(PyTypeError::new_err(differ(class(&first), class(&other))));
        }
        if left.items.len() != right.items.len() {
            let count = |count: usize| format!("{count} items");
            let text = differ(count(left.items.len()), count(right.items.len()));
            return Err(PyValueError::new_err(text));
        }
        for (a, b) in left.keys.iter().zip(&right.keys) {
            if !a.eq(b)? {
                let text =
                    differ(format!("the key {}", a.repr()?), format!("the key {}", b.repr()?));
                return Err(PyValueError::new_err(text));
            }
        }
        for (at, (a, b)) in left.items.into_iter().zip(right.items).enumerate().rev() {
            let key = match left.keys.get(at) {
                Some(key) => format!("{path}[{}]", key.repr()?),
                None => format!("{path}[{at}]"),
            };
            pairs.push((a, b, key));
        }
    }
    Ok(())
}

/// An object built like `like`, with other leaves.
pub fn rebuild<'py>(
    like: &Bound<'py, PyAny>,
    leaves: impl IntoIterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut leaves = leaves.into_iter();
    build::build(
        like,
        |object, _| match branch(object)? {
            Some(mut branch) => {
                let items = std::mem::take(&mut branch.items);
                Ok(Step::Open(branch, items))
            }
            None => Ok(Step::Leaf(leaves.next().expect("as many leaves as there were"))),
        },
        |branch: Branch<'py>, items| {
            let py = branch.object.py();
            let class = branch.object.get_type();
            match branch.kind {
                Kind::Sequence if class.is(py.get_type::<PyTuple>()) => {
                    Ok(PyTuple::new(py, items)?.into_any())
                }
                Kind::View | Kind::Sequence if class.is(py.get_type::<PyList>()) => {
                    Ok(PyList::new(py, items)?.into_any())
                }
                Kind::View => Ok(PyList::new(py, items)?.into_any()),
                Kind::Sequence => class.call1((PyList::new(py, items)?,)),
                Kind::NamedTuple | Kind::Attrs => class.call1(PyTuple::new(py, items)?),
                Kind::Mapping => mapping_like(&branch, items),
            }
        },
    )
}

/// A mapping of the class and with the keys, in their order, of another one.
fn mapping_like<'py>(
    branch: &Branch<'py>,
    items: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = branch.object.py();
    let by_key = PyDict::new(py);
    for (key, item) in branch.keys.iter().zip(items) {
        by_key.set_item(key, item)?;
    }
    let made = PyDict::new(py);
    for key in branch.object.try_iter()? {
        let key = key?;
        let item = by_key.get_item(&key)?;
        made.set_item(key, item)?;
    }
    let class = branch.object.get_type();
    if class.is(py.get_type::<PyDict>()) {
        return Ok(made.into_any());
    }
    match branch.object.getattr_opt("default_factory")? {
        Some(factory) => class.call1((factory, made)),
        None => class.call1((made,)),
    }
}
