//! What users call.

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple};
use stator_federated::Name;

use super::containers::{Fields, Item, Pair, fields_of, struct_elements};
use super::tree;
use crate::federated::build::{self, Step};
use crate::federated::describe::describe;
use crate::federated::structure::Struct;
use crate::federated::types::containers::ordered_dict;

/// The elements of the struct that the argument `name` must be.
fn elements<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Item<'py>>> {
    struct_elements(object)?.ok_or_else(|| {
        PyTypeError::new_err(format!("`{name}` must be a Struct\n  found:    {}", describe(object)))
    })
}

fn pairs<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let elements = elements(object, "struct")?;
    let pairs = elements.iter().map(|(name, value)| (name.as_deref(), value));
    PyList::new(object.py(), pairs.collect::<Vec<_>>())
}

/// The names of a struct's elements, but for those without one.
#[pyfunction]
#[pyo3(signature = (r#struct))]
fn name_list(r#struct: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let elements = elements(r#struct, "struct")?;
    Ok(elements.into_iter().filter_map(|(name, _)| Some(name?.to_string())).collect())
}

/// The name of each element of a struct, `None` for one without.
#[pyfunction]
fn name_list_with_nones(r#struct: &Bound<'_, PyAny>) -> PyResult<Vec<Option<String>>> {
    let elements = elements(r#struct, "struct")?;
    Ok(elements.into_iter().map(|(name, _)| Some(name?.to_string())).collect())
}

/// Pairs of each element's name, or `None`, and value, as a new list.
#[pyfunction]
fn to_elements<'py>(r#struct: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    pairs(r#struct)
}

/// Pairs of each element's name, or `None`, and value, one after another.
#[pyfunction]
fn iter_elements<'py>(r#struct: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    pairs(r#struct)?.try_iter()
}

/// Whether a struct has an element of this name.
#[pyfunction]
fn has_field(structure: &Bound<'_, PyAny>, field: &Bound<'_, PyAny>) -> PyResult<bool> {
    let elements = elements(structure, "structure")?;
    let Ok(field) = field.cast::<PyString>() else { return Ok(false) };
    let field = field.to_str()?;
    Ok(elements.iter().any(|(name, _)| name.as_deref() == Some(field)))
}

/// An `OrderedDict` of a struct whose elements all have names.
fn odict<'py>(
    py: Python<'py>,
    names: &[Option<Name>],
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let made = ordered_dict(py)?.call0()?;
    for (at, (name, value)) in names.iter().zip(values).enumerate() {
        let Some(name) = name else {
            return Err(PyValueError::new_err(format!(
                "a struct with unnamed elements is no OrderedDict: element {at} has no name"
            )));
        };
        made.set_item(&**name, value)?;
    }
    Ok(made)
}

/// Rebuilds a struct, and with `recursive` those in it, each by `close`.
fn convert<'py>(
    object: &Bound<'py, PyAny>,
    recursive: bool,
    close: impl Fn(&[Option<Name>], Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !recursive {
        let (names, values): (Vec<_>, Vec<_>) = elements(object, "structure")?.into_iter().unzip();
        return close(&names, values);
    }
    elements(object, "structure")?;
    build::build(
        object,
        |object, _| match struct_elements(object)? {
            Some(elements) => {
                let (names, values): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
                Ok(Step::Open(names, values))
            }
            None => Ok(Step::Leaf(object.clone())),
        },
        |names: Vec<Option<Name>>, values| close(&names, values),
    )
}

/// A struct as an `OrderedDict`; with `recursive`, also structs in it.
#[pyfunction]
#[pyo3(signature = (r#struct, recursive=false))]
pub fn to_odict<'py>(r#struct: &Bound<'py, PyAny>, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = r#struct.py();
    convert(r#struct, recursive, |names, values| odict(py, names, values))
}

/// A struct as an `OrderedDict` if its elements have names, as a tuple if none has; with
/// `recursive`, also structs in it.
#[pyfunction]
#[pyo3(signature = (r#struct, recursive=true))]
fn to_odict_or_tuple<'py>(
    r#struct: &Bound<'py, PyAny>,
    recursive: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = r#struct.py();
    convert(r#struct, recursive, |names, values| {
        let named = names.iter().flatten().count();
        if named == 0 {
            return Ok(PyTuple::new(py, values)?.into_any());
        }
        if named < names.len() {
            return Err(PyValueError::new_err(format!(
                "a struct with named and unnamed elements is neither an OrderedDict nor a tuple: \
                 {named} of {} have names",
                names.len()
            )));
        }
        odict(py, names, values)
    })
}

/// The leaves of structs in structs, and of the nested Python containers in them, in order.
fn leaves<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut leaves = Vec::new();
    build::build(
        object,
        |object, _| match struct_elements(object)? {
            Some(elements) => {
                Ok(Step::Open((), elements.into_iter().map(|(_, value)| value).collect()))
            }
            None => {
                tree::flatten(object, &mut leaves)?;
                Ok(Step::Leaf(()))
            }
        },
        |(), _| Ok(()),
    )?;
    Ok(leaves)
}

/// The leaves of nested structs and containers, in order; mappings in that of their sorted keys.
#[pyfunction]
fn flatten<'py>(r#struct: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    leaves(r#struct)
}

/// A struct built like `like`, with the first of these values for leaves.
fn pack<'py>(
    like: &Bound<'py, PyAny>,
    mut value: impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = like.py();
    let mut at = 0;
    build::build(
        like,
        |object, _| {
            if let Some(elements) = struct_elements(object)? {
                let (names, values): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
                return Ok(Step::Open(names, values));
            }
            if tree::is_nested(object)? {
                return Err(PyTypeError::new_err(format!(
                    "values can be packed into structs of leaves only, not into other containers\n  \
                     found:    {}",
                    describe(object)
                )));
            }
            at += 1;
            Ok(Step::Leaf(value(at - 1)?))
        },
        |names: Vec<Option<Name>>, values| {
            let values = values.into_iter().map(Bound::unbind);
            Ok(Struct::create(py, names.into_iter().zip(values).collect())?.into_any())
        },
    )
}

/// A struct built like `structure` with the values of `flat_sequence` for leaves.
#[pyfunction]
fn pack_sequence_as<'py>(
    structure: &Bound<'py, PyAny>,
    flat_sequence: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    pack(structure, |at| flat_sequence.get_item(at))
}

/// Whether two structs have the same names at every level.
fn same_structs<'py>(first: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> PyResult<bool> {
    let mut pairs = vec![(first.clone(), other.clone())];
    while let Some((first, other)) = pairs.pop() {
        let (left, right) = match (struct_elements(&first)?, struct_elements(&other)?) {
            (Some(left), Some(right)) => (left, right),
            (None, None) => {
                if tree::check_same_structure(&first, &other).is_err() {
                    return Ok(false);
                }
                continue;
            }
            _ => return Ok(false),
        };
        if left.len() != right.len() {
            return Ok(false);
        }
        for ((name, a), (other, b)) in left.into_iter().zip(right) {
            if name != other {
                return Ok(false);
            }
            pairs.push((a, b));
        }
    }
    Ok(true)
}

/// `fn` of each leaf, or of the leaves that stand at the same place, in a structure like the first.
#[pyfunction]
#[pyo3(signature = (r#fn, *structures), text_signature = "(fn, *structures)")]
fn map_structure<'py>(
    r#fn: &Bound<'py, PyAny>,
    structures: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = r#fn.py();
    if !r#fn.is_callable() {
        return Err(PyTypeError::new_err(format!(
            "`fn` must be callable\n  found:    {}",
            describe(r#fn)
        )));
    }
    let structures: Vec<_> = structures.iter().collect();
    let [first, others @ ..] = &structures[..] else {
        return Err(PyValueError::new_err("`map_structure` needs at least one structure"));
    };
    let mut structs = true;
    for structure in &structures {
        structs &= struct_elements(structure)?.is_some();
    }
    let mut flat = Vec::with_capacity(structures.len());
    for (at, other) in others.iter().enumerate() {
        match structs {
            true if !same_structs(first, other)? => {
                return Err(PyTypeError::new_err(format!(
                    "structure {} is not built like the first one\n  expected: {}\n  found:    {}",
                    at + 1,
                    describe(first),
                    describe(other)
                )));
            }
            true => {}
            false => tree::check_same_structure(first, other)?,
        }
    }
    for structure in &structures {
        let mut leaves = Vec::new();
        match structs {
            true => leaves = self::leaves(structure)?,
            false => tree::flatten(structure, &mut leaves)?,
        }
        flat.push(leaves.into_iter());
    }
    let count = flat[0].len();
    let mut results = Vec::with_capacity(count);
    for _ in 0..count {
        let arguments = flat.iter_mut().map(|leaves| leaves.next().expect("one structure for all"));
        results.push(r#fn.call1(PyTuple::new(py, arguments.collect::<Vec<_>>())?)?);
    }
    match structs {
        true => pack(first, |at| Ok(results[at].clone())),
        false => tree::rebuild(first, results),
    }
}

/// What a struct made of a container consists of; `None` for an object that is no container.
fn container_elements<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Item<'py>>>> {
    if let Some((_, fields)) = fields_of(object)? {
        let element = |(name, value): Pair<'py>| {
            let Some(key) = name else { return Ok((None, value)) };
            match key.cast::<PyString>() {
                Ok(name) => Ok((Some(Name::from(name.to_str()?)), value)),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "the name of an element must be a str\n  found:    {}",
                    describe(&key)
                ))),
            }
        };
        return fields.into_iter().map(element).collect::<PyResult<_>>().map(Some);
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let element = |value: PyResult<Bound<'py, PyAny>>| Ok((None, value?));
        return object.try_iter()?.map(element).collect::<PyResult<_>>().map(Some);
    }
    Ok(None)
}

/// A struct of what a mapping, list, tuple, named tuple, data class or attrs object contains.
#[pyfunction]
#[pyo3(signature = (value, recursive=false))]
fn from_container<'py>(value: &Bound<'py, PyAny>, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let Some(elements) = container_elements(value)? else {
        return Err(PyTypeError::new_err(format!(
            "`value` must be a container\n  expected: a mapping, list, tuple, named tuple, data \
             class, attrs object or Struct\n  found:    {}",
            describe(value)
        )));
    };
    if !recursive {
        if struct_elements(value)?.is_some() {
            return Ok(value.clone());
        }
        let elements = elements.into_iter().map(|(name, value)| (name, value.unbind()));
        return Ok(Struct::create(py, elements.collect())?.into_any());
    }
    build::build(
        value,
        |object, _| match container_elements(object)? {
            Some(elements) => {
                let (names, values): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
                Ok(Step::Open(names, values))
            }
            None => Ok(Step::Leaf(object.clone())),
        },
        |names: Vec<Option<Name>>, values| {
            let values = values.into_iter().map(Bound::unbind);
            Ok(Struct::create(py, names.into_iter().zip(values).collect())?.into_any())
        },
    )
}

/// A copy of a structure with other values for the fields named.
#[pyfunction]
#[pyo3(signature = (structure, **kwargs))]
fn update_struct<'py>(
    structure: &Bound<'py, PyAny>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = structure.py();
    let Some((kind, fields)) = fields_of(structure)? else {
        return Err(PyTypeError::new_err(format!(
            "`structure` must have named fields\n  expected: a mapping, named tuple, data class, \
             attrs object or Struct\n  found:    {}",
            describe(structure)
        )));
    };
    let new = kwargs.map_or_else(|| PyDict::new(py), Clone::clone);
    let names = PyDict::new(py);
    for (name, value) in &fields {
        if let Some(name) = name {
            names.set_item(name, value)?;
        }
    }
    for (name, value) in &new {
        if !names.contains(&name)? {
            let known = names.keys().iter().map(|name| name.to_string()).collect::<Vec<_>>();
            return Err(PyKeyError::new_err(format!(
                "`structure` has no field {}; it has {}",
                name.repr()?,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        }
        names.set_item(name, value)?;
    }
    match kind {
        Fields::Struct => {
            let element = |(name, value): Pair<'py>| {
                let Some(name) = name else { return Ok((None, value.unbind())) };
                let value = names.get_item(&name)?.unwrap_or(value).unbind();
                Ok((Some(Name::from(name.extract::<&str>()?)), value))
            };
            let elements = fields.into_iter().map(element).collect::<PyResult<_>>()?;
            Ok(Struct::create(py, elements)?.into_any())
        }
        Fields::NamedTuple => structure.call_method("_replace", (), Some(&new)),
        Fields::Attrs => py.import("attrs")?.call_method("evolve", (structure,), Some(&new)),
        Fields::DataClass => {
            py.import("dataclasses")?.call_method("replace", (structure,), Some(&new))
        }
        Fields::Mapping => mapping_with(structure, &names),
    }
}

/// A mapping of the class of another one.
fn mapping_with<'py>(
    like: &Bound<'py, PyAny>,
    items: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let class = like.get_type();
    if class.is(like.py().get_type::<PyDict>()) {
        return Ok(items.clone().into_any());
    }
    match like.getattr_opt("default_factory")? {
        Some(factory) => class.call1((factory, items)),
        None => class.call1((items,)),
    }
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(name_list, module)?)?;
    module.add_function(wrap_pyfunction!(name_list_with_nones, module)?)?;
    module.add_function(wrap_pyfunction!(to_elements, module)?)?;
    module.add_function(wrap_pyfunction!(iter_elements, module)?)?;
    module.add_function(wrap_pyfunction!(has_field, module)?)?;
    module.add_function(wrap_pyfunction!(to_odict, module)?)?;
    module.add_function(wrap_pyfunction!(to_odict_or_tuple, module)?)?;
    module.add_function(wrap_pyfunction!(flatten, module)?)?;
    module.add_function(wrap_pyfunction!(pack_sequence_as, module)?)?;
    module.add_function(wrap_pyfunction!(map_structure, module)?)?;
    module.add_function(wrap_pyfunction!(from_container, module)?)?;
    module.add_function(wrap_pyfunction!(update_struct, module)?)
}
