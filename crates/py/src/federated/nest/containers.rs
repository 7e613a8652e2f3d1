//! Python's containers of named things: named tuples, data classes, attrs, mappings, structs.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use stator_federated::Name;

use crate::federated::structure::Struct;
use crate::federated::types;

/// What holds fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// A `Struct`, or a struct type.
    Struct,
    /// A named tuple.
    NamedTuple,
    /// An instance of a class that attrs made.
    Attrs,
    /// An instance of a data class.
    DataClass,
    /// A mapping.
    Mapping,
}

/// The names of a named tuple's fields.
pub fn namedtuple_fields<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Bound<'py, PyString>>>> {
    if object.cast_exact::<PyTuple>().is_ok() || object.cast::<PyTuple>().is_err() {
        return Ok(None);
    }
    field_names(object)
}

/// What `_fields` says, if it is a tuple of names.
pub fn field_names<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyString>>>> {
    let Some(names) = object.getattr_opt("_fields")? else { return Ok(None) };
    let Ok(names) = names.cast_into::<PyTuple>() else { return Ok(None) };
    Ok(names.iter().map(|name| name.cast_into::<PyString>().ok()).collect())
}

/// The names of the fields of a class that attrs made.
pub fn attrs_fields<'py>(class: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyString>>>> {
    let Some(attributes) = class.getattr_opt("__attrs_attrs__")? else { return Ok(None) };
    let name = |attribute: PyResult<Bound<'py, PyAny>>| {
        Ok(attribute?.getattr("name")?.cast_into::<PyString>()?)
    };
    attributes.try_iter()?.map(name).collect::<PyResult<_>>().map(Some)
}

/// The names of the fields of a data class.
pub fn dataclass_fields<'py>(
    class: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Bound<'py, PyString>>>> {
    if class.getattr_opt("__dataclass_fields__")?.is_none() {
        return Ok(None);
    }
    let fields = class.py().import("dataclasses")?.call_method1("fields", (class,))?;
    let name =
        |field: PyResult<Bound<'py, PyAny>>| Ok(field?.getattr("name")?.cast_into::<PyString>()?);
    fields.try_iter()?.map(name).collect::<PyResult<_>>().map(Some)
}

/// Something in a container, with its name if it has one.
pub type Item<'py> = (Option<Name>, Bound<'py, PyAny>);

/// Something in a container, with its key or name if it has one.
pub type Pair<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);

/// The elements of a struct, or of a struct type.
pub fn struct_elements<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Item<'py>>>> {
    let py = object.py();
    if let Ok(structure) = object.cast::<Struct>() {
        let elements = structure.get().elements().iter();
        return Ok(Some(
            elements.map(|(name, value)| (name.clone(), value.bind(py).clone())).collect(),
        ));
    }
    let Some(ty) = types::unwrap(object) else { return Ok(None) };
    let Some(structure) = ty.as_struct() else { return Ok(None) };
    let fields = structure.fields().iter();
    fields
        .map(|field| Ok((field.name.clone(), types::wrap(py, &field.ty)?)))
        .collect::<PyResult<_>>()
        .map(Some)
}

/// The fields of an object that has named ones, in their order; also of a struct without names.
/// The keys of a mapping are as they are: the caller looks for what isn't a name.
pub fn fields_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Fields, Vec<Pair<'py>>)>> {
    let py = object.py();
    if object.cast_exact::<PyList>().is_ok() || object.cast_exact::<PyTuple>().is_ok() {
        return Ok(None);
    }
    if let Some(elements) = struct_elements(object)? {
        let pair = |(name, value): Item<'py>| {
            (name.map(|name| PyString::new(py, &name).into_any()), value)
        };
        return Ok(Some((Fields::Struct, elements.into_iter().map(pair).collect())));
    }
    if let Some(names) = namedtuple_fields(object)? {
        let pair = |(name, value): (Bound<'py, PyString>, PyResult<Bound<'py, PyAny>>)| {
            Ok((Some(name.into_any()), value?))
        };
        let pairs = names.into_iter().zip(object.try_iter()?).map(pair);
        return Ok(Some((Fields::NamedTuple, pairs.collect::<PyResult<_>>()?)));
    }
    let class = object.get_type();
    let made = match attrs_fields(&class)? {
        Some(names) => Some((Fields::Attrs, names)),
        None => dataclass_fields(&class)?.map(|names| (Fields::DataClass, names)),
    };
    if let Some((kind, names)) = made {
        let pair = |name: Bound<'py, PyString>| {
            let value = object.getattr(&name)?;
            Ok((Some(name.into_any()), value))
        };
        return Ok(Some((kind, names.into_iter().map(pair).collect::<PyResult<_>>()?)));
    }
    if let Ok(dict) = object.cast_exact::<PyDict>() {
        let pairs = dict.iter().map(|(key, value)| (Some(key), value));
        return Ok(Some((Fields::Mapping, pairs.collect())));
    }
    if let Ok(mapping) = object.cast::<PyMapping>() {
        let pair = |item: Bound<'py, PyAny>| {
            let (key, value) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            Ok((Some(key), value))
        };
        let pairs = mapping.items()?.iter().map(pair).collect::<PyResult<_>>()?;
        return Ok(Some((Fields::Mapping, pairs)));
    }
    Ok(None)
}
