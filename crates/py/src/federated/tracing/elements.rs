//! Nests of Python's containers, without recursion.

use std::fmt::Write as _;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple, PyType};
use rustc_hash::FxHashSet;
use stator_federated::Name;
use stator_federated::types::Container;

use crate::federated::structure;
use crate::federated::types::{containers, describe};

/// What a container holds.
pub struct Elements<'py> {
    /// The names, if it has some, and values.
    pub elements: Vec<(Option<Name>, Bound<'py, PyAny>)>,
    /// Its class; none for a Struct.
    pub container: Option<Container>,
}

/// The elements of a container: a Struct, list, tuple, named tuple, mapping, or an object of a
/// class that attrs or dataclasses made.
pub fn elements<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Elements<'py>>> {
    let py = object.py();
    if let Ok(of) = object.cast::<structure::Struct>() {
        let element =
            |(name, value): &(Option<Name>, Py<PyAny>)| (name.clone(), value.bind(py).clone());
        let elements = of.get().elements().iter().map(element).collect();
        return Ok(Some(Elements { elements, container: None }));
    }
    let elements = if let Ok(list) = object.cast_exact::<PyList>() {
        list.iter().map(|value| (None, value)).collect()
    } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        tuple.iter().map(|value| (None, value)).collect()
    } else if let Ok(dict) = object.cast_exact::<PyDict>() {
        let element = |(key, value)| Ok((Some(name(&key)?), value));
        dict.iter().map(element).collect::<PyResult<_>>()?
    } else if let Some(names) = field_names(&object.get_type())? {
        let element = |name: Name| Ok((Some(name.clone()), object.getattr(&*name)?));
        names.into_iter().map(element).collect::<PyResult<_>>()?
    } else if let Ok(mapping) = object.cast::<PyMapping>() {
        let element = |item: Bound<'py, PyAny>| {
            let (key, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            Ok((Some(name(&key)?), value))
        };
        mapping.items()?.iter().map(element).collect::<PyResult<_>>()?
    } else if let Ok(list) = object.cast::<PyList>() {
        list.iter().map(|value| (None, value)).collect()
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.iter().map(|value| (None, value)).collect()
    } else {
        return Ok(None);
    };
    let container = Some(containers::from_class(&object.get_type())?);
    Ok(Some(Elements { elements, container }))
}

/// The names of the fields of a class of named tuples, or one that attrs or dataclasses made.
pub fn field_names(class: &Bound<'_, PyType>) -> PyResult<Option<Vec<Name>>> {
    let texts = |names: Bound<'_, PyAny>| -> PyResult<Vec<Name>> {
        names.try_iter()?.map(|text| name(&text?)).collect()
    };
    if class.is_subclass_of::<PyTuple>()? {
        return class.getattr_opt("_fields")?.map(texts).transpose();
    }
    if let Some(fields) = class.getattr_opt("__attrs_attrs__")? {
        let name = |field: PyResult<Bound<'_, PyAny>>| name(&field?.getattr("name")?);
        return fields.try_iter()?.map(name).collect::<PyResult<_>>().map(Some);
    }
    if let Some(fields) = class.getattr_opt("__dataclass_fields__")? {
        return texts(fields).map(Some);
    }
    Ok(None)
}

fn name(object: &Bound<'_, PyAny>) -> PyResult<Name> {
    match object.cast::<PyString>() {
        Ok(name) => Ok(Name::from(name.to_str()?)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "the name of a field must be a str\n  found:    {}",
            describe(object)
        ))),
    }
}

/// What one object of a nest is.
pub enum Visit<'py, T, C> {
    /// No container: what it becomes.
    Leaf(T),
    /// A container; with each of its elements goes what is known of the place it stands at.
    Open(Vec<(Option<Name>, Bound<'py, PyAny>, C)>, Option<Container>),
}

struct Open<'py, T, C> {
    object: Bound<'py, PyAny>,
    names: Vec<Option<Name>>,
    /// What is left, last first.
    left: Vec<(Bound<'py, PyAny>, C)>,
    done: Vec<T>,
    container: Option<Container>,
}

/// Where an object stands in a nest: `[0]['a']`.
pub struct Path(String);

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Turns a nest of containers into something, from the leaves up.
pub fn fold<'py, T, C>(
    root: &Bound<'py, PyAny>,
    known: C,
    mut visit: impl FnMut(&Bound<'py, PyAny>, C, &dyn Fn() -> Path) -> PyResult<Visit<'py, T, C>>,
    mut build: impl FnMut(&Bound<'py, PyAny>, Vec<(Option<Name>, T)>, Option<Container>) -> PyResult<T>,
) -> PyResult<T> {
    let mut open: Vec<Open<'py, T, C>> = Vec::new();
    let mut inside: FxHashSet<usize> = FxHashSet::default();
    let mut next = (root.clone(), known);
    loop {
        let (object, known) = next;
        let mut made = match visit(&object, known, &|| path(&open))? {
            Visit::Leaf(made) => made,
            Visit::Open(elements, container) => {
                if !inside.insert(object.as_ptr() as usize) {
                    return Err(PyValueError::new_err(format!(
                        "a container holds itself, at {}",
                        path(&open)
                    )));
                }
                let mut names = Vec::with_capacity(elements.len());
                let mut left = Vec::with_capacity(elements.len());
                for (name, value, known) in elements {
                    names.push(name);
                    left.push((value, known));
                }
                left.reverse();
                let done = Vec::with_capacity(names.len());
                open.push(Open { object, names, left, done, container });
                match open.last_mut().and_then(|top| top.left.pop()) {
                    Some(first) => {
                        next = first;
                        continue;
                    }
                    None => close(&mut open, &mut inside, &mut build)?,
                }
            }
        };
        // Upwards, until a container has an element left.
        loop {
            let Some(top) = open.last_mut() else { return Ok(made) };
            top.done.push(made);
            if let Some(field) = top.left.pop() {
                next = field;
                break;
            }
            made = close(&mut open, &mut inside, &mut build)?;
        }
    }
}

fn close<'py, T, C>(
    open: &mut Vec<Open<'py, T, C>>,
    inside: &mut FxHashSet<usize>,
    build: &mut impl FnMut(&Bound<'py, PyAny>, Vec<(Option<Name>, T)>, Option<Container>) -> PyResult<T>,
) -> PyResult<T> {
    let top = open.pop().expect("a container is open");
    inside.remove(&(top.object.as_ptr() as usize));
    build(&top.object, top.names.into_iter().zip(top.done).collect(), top.container)
}

fn path<T, C>(open: &[Open<'_, T, C>]) -> Path {
    let mut text = String::new();
    for container in open {
        let at = container.done.len();
        match container.names.get(at) {
            Some(Some(name)) => write!(text, "['{name}']"),
            _ => write!(text, "[{at}]"),
        }
        .expect("writing to a string");
    }
    Path(text)
}
