//! What users write for types, as types: NumPy's element types, containers of such, ...

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PySequence, PyString, PyTuple, PyType};
use stator_federated::Name;
use stator_federated::dtype::DType;
use stator_federated::types::{Container, Field, Shape, Type};

use super::{containers, dtypes, unwrap, wrap};
use crate::federated::build::{Step, build, path};
use crate::federated::describe::{class_name, describe};
use crate::federated::errors::IntoPython;
use crate::federated::nest::{Fields, attrs_fields, dataclass_fields, field_names, fields_of};

/// The type that the argument `name` is.
pub fn expect_type(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Type> {
    unwrap(object).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "`{name}` must be a type\n  expected: a stator.federated.Type\n  found:    {}",
            describe(object)
        ))
    })
}

/// A struct whose fields are being converted.
struct Open {
    names: Vec<Option<Name>>,
    container: Option<Container>,
}

/// The type that the argument `name` says.
pub fn to_type_or_err(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Type> {
    build(
        object,
        |object, frames| match read(object)? {
            Some(step) => Ok(step),
            None => {
                let place = path(frames, |open: &Open, at| open.names.get(at)?.as_ref());
                Err(no_type(object, name, &place))
            }
        },
        |open, types| {
            let fields = open.names.into_iter().zip(types);
            let fields = fields.map(|(name, ty)| Field { name, ty }).collect();
            Type::structure(fields, open.container).py()
        },
    )
}

fn no_type(object: &Bound<'_, PyAny>, name: &str, path: &str) -> PyErr {
    let mut text = format!(
        "`{name}{path}` says no type\n  expected: a type, a NumPy dtype, a pair (dtype, shape), or \
         a container of such\n  found:    {}",
        describe(object)
    );
    if let Some(hint) = hint(object) {
        text.push_str("\n  hint:     ");
        text.push_str(&hint);
    }
    PyTypeError::new_err(text)
}

/// What the user may have meant.
fn hint(object: &Bound<'_, PyAny>) -> Option<String> {
    let py = object.py();
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_str().ok()?;
        DType::from_name(text)?;
        return Some(format!("the dtype itself, as `numpy.{text}`, says a type; its name doesn't"));
    }
    let class = object.cast::<PyType>().ok()?;
    let meant = if class.is(py.get_type::<PyInt>()) {
        "`numpy.int32` or `numpy.int64`"
    } else if class.is(py.get_type::<PyFloat>()) {
        "`numpy.float32` or `numpy.float64`"
    } else if class.is(py.get_type::<PyBool>()) {
        "`numpy.bool_`"
    } else if class.is(py.get_type::<PyString>()) || class.is(py.get_type::<PyBytes>()) {
        "`numpy.str_`"
    } else {
        return None;
    };
    Some(format!("write {meant}"))
}

type Opened<'py> = Step<'py, Open, Type>;

/// What an object says by itself; `None` if it says no type.
fn read<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Opened<'py>>> {
    if let Some(ty) = unwrap(object) {
        return Ok(Some(Step::Leaf(ty)));
    }
    if dtypes::is_dtype_like(object)? {
        return Ok(Some(Step::Leaf(Type::scalar(dtypes::from_object(object)?))));
    }
    if let Some(tensor) = shaped(object)? {
        return Ok(Some(Step::Leaf(tensor)));
    }
    if let Ok(class) = object.cast::<PyType>() {
        return annotated(class);
    }
    let opened = |names, container, values| Ok(Some(Step::Open(Open { names, container }, values)));
    if let Some((kind, fields)) = fields_of(object)? {
        let container = match kind {
            Fields::Struct => None,
            _ => Some(containers::from_class(&object.get_type())?),
        };
        let mut names = Vec::with_capacity(fields.len());
        let mut values = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            names.push(name.as_ref().map(to_name).transpose()?);
            values.push(value);
        }
        return opened(names, container, values);
    }
    if object.cast::<PyList>().is_err() && object.cast::<PyTuple>().is_err() {
        return Ok(None);
    }
    let mut named = false;
    for value in object.try_iter()? {
        named |= pair(&value?)?.is_some_and(|(name, _)| name.is_some());
    }
    let container = match named {
        true => None,
        false => Some(containers::from_class(&object.get_type())?),
    };
    let (names, values) = elements(object)?.into_iter().unzip();
    opened(names, container, values)
}

/// The struct type that the annotations of a class of named fields say: of a named tuple, a data
/// class or one that attrs made.
fn annotated<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<Opened<'py>>> {
    let py = class.py();
    let fields = if class.is_subclass_of::<PyTuple>()? {
        field_names(class)?
    } else {
        match attrs_fields(class)? {
            Some(names) => Some(names),
            None => dataclass_fields(class)?,
        }
    };
    let Some(fields) = fields else { return Ok(None) };
    let annotations = py.import("typing")?.call_method1("get_type_hints", (class,));
    // The traceback would show the frames of `typing`.
    let annotations = annotations.map_err(|error| {
        PyTypeError::new_err(format!(
            "the annotations of class {} can't be read: {error}",
            class_name(class)
        ))
    })?;
    let mut names = Vec::with_capacity(fields.len());
    let mut values = Vec::with_capacity(fields.len());
    for name in fields {
        let Ok(value) = annotations.get_item(&name) else { return Ok(None) };
        names.push(Some(to_name(name.as_any())?));
        values.push(dtypes::of_scalar_class(&value)?.unwrap_or(value));
    }
    let container = Some(containers::from_class(class)?);
    Ok(Some(Step::Open(Open { names, container }, values)))
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

/// The elements of a struct as users write them: each a pair with a name or `None`, or something
/// without a name. Such a pair by itself is one element.
fn elements<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<(Option<Name>, Bound<'py, PyAny>)>> {
    if let Some(element) = pair(object)? {
        return Ok(vec![element]);
    }
    let element = |object: PyResult<Bound<'py, PyAny>>| {
        let object = object?;
        Ok(pair(&object)?.unwrap_or((None, object)))
    };
    object.try_iter()?.map(element).collect()
}

/// The fields that the argument `elements` of a struct type says.
pub fn to_fields(elements: &Bound<'_, PyAny>, convert: bool) -> PyResult<Vec<Field>> {
    let elements: Vec<_> = match fields_of(elements)? {
        Some((Fields::Mapping, pairs)) => {
            let pair = |(name, value): (Option<Bound<'_, PyAny>>, _)| {
                Ok((name.as_ref().map(to_name).transpose()?, value))
            };
            pairs.into_iter().map(pair).collect::<PyResult<_>>()?
        }
        _ => self::elements(elements)?,
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
        || shape.cast::<PySequence>().is_ok()
            && shape
                .try_iter()?
                .all(|size| size.is_ok_and(|size| size.is_none() || size.cast::<PyInt>().is_ok()));
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
    let items = object.try_iter().map_err(|_| {
        let hint = if object.extract::<u64>().is_ok() {
            format!("\n  hint:     one dimension of that size is [{object}]")
        } else {
            String::new()
        };
        PyTypeError::new_err(format!(
            "a shape must be a list or tuple of sizes, or None\n  found:    {}{hint}",
            describe(object)
        ))
    })?;
    let sizes: Vec<_> = items.map(size).collect::<PyResult<_>>()?;
    Ok(Shape::new(sizes))
}

/// The type that `obj` says: a type itself, a NumPy dtype, a pair of a dtype and a shape, or a
/// container of such.
#[pyfunction(name = "to_type")]
fn to_type_function<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    wrap(obj.py(), &to_type_or_err(obj, "obj")?)
}

/// The type that a text in the notation of types says: `<a=int32,{bool[2,?]}@CLIENTS>`.
#[pyfunction]
fn parse_type<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    wrap(py, &Type::parse(text).py()?)
}

/// Adds `to_type` and `parse_type`.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_type_function, module)?)?;
    module.add_function(wrap_pyfunction!(parse_type, module)?)
}
