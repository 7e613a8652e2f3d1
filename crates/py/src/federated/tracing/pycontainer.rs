//! Values in the Python containers that their types say.

use pyo3::exceptions::{PyRecursionError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use stator_federated::types::{StructType, Type, TypeKind};

use super::elements::field_names;
use crate::federated::structure::Struct;
use crate::federated::types::{containers, describe};

/// How deep Python's own containers can be to be of use: printing or comparing deeper ones is a
/// RecursionError too.
const DEEPEST: usize = 1000;

/// Fails where containers would be too deep.
pub fn check_depth(depth: usize) -> PyResult<()> {
    if depth < DEEPEST {
        return Ok(());
    }
    Err(PyRecursionError::new_err(format!("more than {DEEPEST} containers in each other")))
}

/// A value whose Structs are the containers that its type says.
pub fn type_to_py_container<'py>(
    value: &Bound<'py, PyAny>,
    ty: &Type,
) -> PyResult<Bound<'py, PyAny>> {
    convert(value, ty, 0)
}

fn convert<'py>(value: &Bound<'py, PyAny>, ty: &Type, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    check_depth(depth)?;
    let py = value.py();
    let of = match ty.kind() {
        TypeKind::Federated(of) if !of.all_equal => {
            let Ok(list) = value.cast::<PyList>() else {
                return Err(PyTypeError::new_err(format!(
                    "a value that differs from client to client must be a list\n  expected: a list \
                     for {ty}\n  found:    {}",
                    describe(value)
                )));
            };
            return each(list, &of.member, depth);
        }
        TypeKind::Federated(of) => &of.member,
        _ => ty,
    };
    match of.kind() {
        TypeKind::Sequence(element) => match value.cast::<PyList>() {
            Ok(list) => each(list, element, depth),
            Err(_) => Ok(value.clone()),
        },
        TypeKind::Struct(structure) => match value.cast::<Struct>() {
            Ok(found) => contained(py, found, structure, of, depth),
            Err(_) => Ok(value.clone()),
        },
        _ => Ok(value.clone()),
    }
}

fn each<'py>(list: &Bound<'py, PyList>, ty: &Type, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let made = list.iter().map(|value| convert(&value, ty, depth + 1));
    Ok(PyList::new(list.py(), made.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

fn contained<'py>(
    py: Python<'py>,
    value: &Bound<'py, Struct>,
    structure: &StructType,
    ty: &Type,
    depth: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let wrong = |what: String| PyValueError::new_err(format!("{what}\n  expected: {ty}"));
    let elements = value.get().elements();
    for ((name, _), field) in elements.iter().zip(structure.fields()) {
        if name.is_some() && *name != field.name {
            return Err(wrong(format!(
                "the field `{}` of the value has another name in its type",
                name.as_deref().unwrap_or_default()
            )));
        }
    }
    let named = structure.fields().iter().filter(|field| field.name.is_some()).count();
    if 0 < named && named < structure.len() {
        return Err(wrong("no Python container has named and unnamed elements".to_owned()));
    }
    let class = match structure.container() {
        Some(container) => containers::class_of(py, container)?,
        None if named > 0 => containers::ordered_dict(py)?.clone(),
        None => py.get_type::<PyTuple>(),
    };
    let by_name = field_names(&class)?.is_some();
    let sequence = class.is_subclass_of::<PyList>()? || class.is_subclass_of::<PyTuple>()?;
    if named > 0 && sequence && !by_name {
        return Err(wrong(format!("a {} has no named elements", class.name()?)));
    }
    if (by_name || class.is_subclass_of::<PyDict>()?) && named != elements.len() {
        return Err(wrong(format!("the elements of a {} need names", class.name()?)));
    }
    if elements.len() < structure.len() {
        return Err(wrong(format!("the value has only {} fields", elements.len())));
    }
    let fields = structure.fields().iter().zip(elements);
    let converted = fields.map(|(field, (_, value))| {
        Ok((field.name.clone(), convert(value.bind(py), &field.ty, depth + 1)?))
    });
    let converted: Vec<_> = converted.collect::<PyResult<_>>()?;
    make(&class, by_name, named > 0, converted)
}

/// Names and values of a container's elements.
pub type Converted<'py> = Vec<(Option<stator_federated::Name>, Bound<'py, PyAny>)>;

/// A container of a class.
pub fn make<'py>(
    class: &Bound<'py, PyType>,
    by_name: bool,
    named: bool,
    elements: Converted<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    if by_name {
        let kwargs = PyDict::new(py);
        for (name, value) in elements {
            kwargs.set_item(name.as_deref().unwrap_or_default(), value)?;
        }
        return class.call((), Some(&kwargs));
    }
    let list = PyList::empty(py);
    for (name, value) in elements {
        match (named, name) {
            (true, Some(name)) => list.append((&*name, value))?,
            _ => list.append(value)?,
        }
    }
    if class.is(py.get_type::<PyList>()) {
        return Ok(list.into_any());
    }
    class.call1((list,))
}

/// `value` with the Python containers that `type_spec` says in place of its Structs.
#[pyfunction(name = "type_to_py_container")]
fn type_to_py_container_function<'py>(
    value: &Bound<'py, PyAny>,
    type_spec: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let ty = crate::federated::types::expect_type(type_spec, "type_spec")?;
    type_to_py_container(value, &ty)
}

/// Adds `type_to_py_container`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(type_to_py_container_function, module)?)
}
