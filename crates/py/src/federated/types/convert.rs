//! What users write for types, as types: NumPy's element types, containers of such, ...

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyString, PyTuple};
use rustc_hash::FxHashSet;
use stator_federated::Name;
use stator_federated::types::{Container, Field, Shape, Type};

use super::{containers, dtypes, unwrap, wrap};
use crate::federated::errors::IntoPython;

/// An object in a message: its `repr`, cut if it is long, and its class.
pub fn describe(object: &Bound<'_, PyAny>) -> String {
    const LONG: usize = 80;
    if object.is_none() {
        return "None".to_owned();
    }
    let class = object.get_type();
    let class = class.name().map_or_else(|_| class.to_string(), |name| name.to_string());
    let Ok(text) = object.repr() else { return class };
    let text = text.to_string_lossy();
    if text.chars().count() > LONG || text.contains('\n') {
        let line = text.lines().next().unwrap_or_default();
        let cut: String = line.chars().take(LONG).collect();
        return format!("{cut}... ({class})");
    }
    format!("{text} ({class})")
}

/// The type that the argument `name` is.
pub fn expect_type(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Type> {
    unwrap(object).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "`{name}` must be a type\n  expected: a stator.federated.Type\n  found:    {}",
            describe(object)
        ))
    })
}

/// The type that an object says; `None` for `None`.
pub fn to_type(object: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    if object.is_none() { Ok(None) } else { to_type_or_err(object, "type").map(Some) }
}

/// A struct whose fields are being converted.
struct Open<'py> {
    object: Bound<'py, PyAny>,
    names: Vec<Option<Name>>,
    /// What is left to convert, last first.
    left: Vec<Bound<'py, PyAny>>,
    done: Vec<Type>,
    container: Option<Container>,
}

impl<'py> Open<'py> {
    fn new(
        object: &Bound<'py, PyAny>,
        elements: Vec<(Option<Name>, Bound<'py, PyAny>)>,
        container: Option<Container>,
    ) -> Self {
        let (names, mut left): (Vec<_>, Vec<_>) = elements.into_iter().unzip();
        left.reverse();
        Self {
            object: object.clone(),
            done: Vec::with_capacity(names.len()),
            names,
            left,
            container,
        }
    }

    fn build(self) -> PyResult<Type> {
        let fields = self.names.into_iter().zip(self.done);
        let fields = fields.map(|(name, ty)| Field { name, ty }).collect();
        Type::structure(fields, self.container).py()
    }
}

/// What an object says by itself.
enum Said<'py> {
    Type(Type),
    Struct(Open<'py>),
    Nothing,
}

/// The type that the argument `name` says.
pub fn to_type_or_err(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Type> {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut inside: FxHashSet<usize> = FxHashSet::default();
    let mut next = object.clone();
    loop {
        let mut made = match read(&next)? {
            Said::Type(ty) => ty,
            Said::Struct(structure) => {
                if !inside.insert(next.as_ptr() as usize) {
                    return Err(PyValueError::new_err(format!(
                        "`{name}`{} contains itself",
                        path(&open)
                    )));
                }
                open.push(structure);
                match open.last_mut().and_then(|top| top.left.pop()) {
                    Some(first) => {
                        next = first;
                        continue;
                    }
                    None => close(&mut open, &mut inside)?,
                }
            }
            Said::Nothing => return Err(no_type(&next, name, &path(&open))),
        };
        // Upwards, until a struct has a field left.
        loop {
            let Some(top) = open.last_mut() else { return Ok(made) };
            top.done.push(made);
            if let Some(field) = top.left.pop() {
                next = field;
                break;
            }
            made = close(&mut open, &mut inside)?;
        }
    }
}

fn close(open: &mut Vec<Open<'_>>, inside: &mut FxHashSet<usize>) -> PyResult<Type> {
    let top = open.pop().expect("a struct is open");
    inside.remove(&(top.object.as_ptr() as usize));
    top.build()
}

/// Where in the object the field stands that is being converted.
fn path(open: &[Open<'_>]) -> String {
    let mut text = String::new();
    for structure in open {
        let at = structure.done.len();
        match structure.names.get(at) {
            Some(Some(name)) => text.push_str(&format!("['{name}']")),
            _ => text.push_str(&format!("[{at}]")),
        }
    }
    text
}

fn no_type(object: &Bound<'_, PyAny>, name: &str, path: &str) -> PyErr {
    let mut text = format!(
        "`{name}`{path} says no type\n  expected: a type, a NumPy dtype, a pair (dtype, shape), or a \
         container of such\n  found:    {}",
        describe(object)
    );
    if object.cast::<PyString>().is_ok() {
        text.push_str("\n  hint:     write `numpy.int32`, not 'int32'");
    }
    PyTypeError::new_err(text)
}

/// What an object says, but for the fields of a struct.
fn read<'py>(object: &Bound<'py, PyAny>) -> PyResult<Said<'py>> {
    if let Some(ty) = unwrap(object) {
        return Ok(Said::Type(ty));
    }
    if dtypes::is_dtype_like(object)? {
        return Ok(Said::Type(Type::scalar(dtypes::from_object(object)?)));
    }
    if let Some(tensor) = shaped(object)? {
        return Ok(Said::Type(tensor));
    }
    let class = object.get_type();
    if object.cast::<PyTuple>().is_ok() && object.hasattr("_fields")? {
        let names = object.getattr("_fields")?;
        let elements = object
            .try_iter()?
            .zip(names.try_iter()?)
            .map(|(value, name)| Ok((Some(to_name(&name?)?), value?)));
        let elements = elements.collect::<PyResult<_>>()?;
        return Ok(Said::Struct(Open::new(
            object,
            elements,
            Some(containers::from_class(&class)?),
        )));
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let values = object.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let mut named = false;
        for value in &values {
            named |= pair(value)?.is_some_and(|(name, _)| name.is_some());
        }
        if named {
            let elements = values.into_iter().map(element).collect::<PyResult<_>>()?;
            return Ok(Said::Struct(Open::new(object, elements, None)));
        }
        let elements = values.into_iter().map(|value| (None, value)).collect();
        return Ok(Said::Struct(Open::new(
            object,
            elements,
            Some(containers::from_class(&class)?),
        )));
    }
    if let Ok(mapping) = object.cast::<PyMapping>() {
        let elements = mapping_elements(mapping)?;
        return Ok(Said::Struct(Open::new(
            object,
            elements,
            Some(containers::from_class(&class)?),
        )));
    }
    Ok(Said::Nothing)
}

fn mapping_elements<'py>(
    mapping: &Bound<'py, PyMapping>,
) -> PyResult<Vec<(Option<Name>, Bound<'py, PyAny>)>> {
    let items = mapping.items()?;
    let element = |item: Bound<'py, PyAny>| {
        let (name, value) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        Ok((Some(to_name(&name)?), value))
    };
    items.iter().map(element).collect()
}

fn to_name(object: &Bound<'_, PyAny>) -> PyResult<Name> {
    match object.cast::<PyString>() {
        Ok(name) => Ok(Name::from(name.to_str()?)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "the name of a field must be a str\n  found:    {}",
            describe(object)
        ))),
    }
}

/// A pair of a name, or `None`, and something.
fn pair<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Option<Name>, Bound<'py, PyAny>)>> {
    let (name, value) = if let Ok(tuple) = object.cast::<PyTuple>() {
        if tuple.len() != 2 {
            return Ok(None);
        }
        (tuple.get_item(0)?, tuple.get_item(1)?)
    } else if let Ok(list) = object.cast::<PyList>() {
        if list.len() != 2 {
            return Ok(None);
        }
        (list.get_item(0)?, list.get_item(1)?)
    } else {
        return Ok(None);
    };
    if name.is_none() {
        return Ok(Some((None, value)));
    }
    match name.cast::<PyString>() {
        Ok(name) => Ok(Some((Some(Name::from(name.to_str()?)), value))),
        Err(_) => Ok(None),
    }
}

/// An element of a struct as users write it: a pair with a name, or something without one.
fn element(object: Bound<'_, PyAny>) -> PyResult<(Option<Name>, Bound<'_, PyAny>)> {
    Ok(pair(&object)?.unwrap_or((None, object)))
}

/// The fields that the argument `elements` of a struct type says.
pub fn to_fields(elements: &Bound<'_, PyAny>, convert: bool) -> PyResult<Vec<Field>> {
    let elements: Vec<_> = match elements.cast::<PyMapping>() {
        Ok(mapping) => mapping_elements(mapping)?,
        Err(_) => elements.try_iter()?.map(|object| element(object?)).collect::<PyResult<_>>()?,
    };
    let field = |(at, (name, value)): (usize, (Option<Name>, Bound<'_, PyAny>))| {
        let argument = match &name {
            Some(name) => format!("elements['{name}']"),
            None => format!("elements[{at}]"),
        };
        let ty = match convert {
            true => to_type_or_err(&value, &argument)?,
            false => expect_type(&value, &argument)?,
        };
        Ok(Field { name, ty })
    };
    elements.into_iter().enumerate().map(field).collect()
}

/// The tensor type that a pair of an element type and a shape says.
fn shaped(object: &Bound<'_, PyAny>) -> PyResult<Option<Type>> {
    let Ok(pair) = object.cast::<PyTuple>() else { return Ok(None) };
    if pair.len() != 2 || !dtypes::is_dtype_like(&pair.get_item(0)?)? {
        return Ok(None);
    }
    let shape = pair.get_item(1)?;
    let sizes = shape.is_none()
        || shape.cast::<pyo3::types::PySequence>().is_ok()
            && shape.try_iter()?.all(|size| {
                size.is_ok_and(|size| size.is_none() || size.cast::<pyo3::types::PyInt>().is_ok())
            });
    if !sizes {
        return Ok(None);
    }
    Ok(Some(Type::tensor(dtypes::from_object(&pair.get_item(0)?)?, to_shape(&shape)?)))
}

/// The shape that an object says.
pub fn to_shape(object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    if object.is_none() {
        return Ok(Shape::unknown_rank());
    }
    let size = |size: PyResult<Bound<'_, PyAny>>| {
        let size = size?;
        if size.is_none() {
            return Ok(None);
        }
        size.extract::<u64>().map(Some).map_err(|_| {
            PyValueError::new_err(format!(
                "a size of a shape must be an int from 0 on, or None\n  found:    {}",
                describe(&size)
            ))
        })
    };
    let sizes: Vec<_> = object.try_iter()?.map(size).collect::<PyResult<_>>()?;
    Ok(Shape::new(sizes))
}

/// The type that `obj` says: a type itself, a NumPy dtype, a pair of a dtype and a shape, or a
/// container of such.
#[pyfunction(name = "to_type")]
fn to_type_function<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    wrap(obj.py(), &to_type_or_err(obj, "obj")?)
}

/// Adds `to_type`.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_type_function, module)?)
}
