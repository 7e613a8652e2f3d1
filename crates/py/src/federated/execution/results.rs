//! Values as Python objects: what users get, and what their functions are called with.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};
use stator_federated::Name;
use stator_federated::execution::{Items, Value};
use stator_federated::types::{Container, StructType, Type, TypeKind};
use stator_federated::{Class, Error};

use super::leaf::{Leaf, is_torch, torch_to_numpy};
use crate::federated::errors::raise;
use crate::federated::structure::Struct;
use crate::federated::types::{containers, placements};

/// What tensors come as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tensors {
    /// As they are.
    Kept,
    /// As NumPy's scalars and arrays.
    Numpy,
}

enum Todo<'a> {
    Convert(&'a Value<Leaf>, &'a Type),
    Struct(&'a StructType),
    List(usize),
}

/// The object that a value of type `ty` is.
pub fn to_python<'py>(
    py: Python<'py>,
    value: &Value<Leaf>,
    ty: &Type,
    tensors: Tensors,
) -> PyResult<Bound<'py, PyAny>> {
    let mut todo = vec![Todo::Convert(value, ty)];
    let mut done: Vec<Bound<'py, PyAny>> = Vec::new();
    while let Some(next) = todo.pop() {
        let made = match next {
            Todo::Struct(structure) => {
                let values = done.split_off(done.len() - structure.len());
                container(py, structure, values)?
            }
            Todo::List(count) => PyList::new(py, done.split_off(done.len() - count))?.into_any(),
            Todo::Convert(value, ty) => match (value, ty.kind()) {
                (Value::Leaf(leaf), _) => object(py, leaf, tensors)?,
                (Value::Struct(fields), TypeKind::Struct(structure)) => {
                    todo.push(Todo::Struct(structure));
                    let row = fields.iter().zip(structure.fields()).rev();
                    todo.extend(row.map(|(value, field)| Todo::Convert(value, &field.ty)));
                    continue;
                }
                (Value::Sequence(items), TypeKind::Sequence(element)) => {
                    list(&mut todo, items, element);
                    continue;
                }
                (Value::Each(items), TypeKind::Federated(federated)) => {
                    list(&mut todo, items, &federated.member);
                    continue;
                }
                (Value::Everywhere(member), TypeKind::Federated(federated)) => {
                    todo.push(Todo::Convert(&member[0], &federated.member));
                    continue;
                }
                (Value::Placement(placement), _) => placements::wrap(py, *placement)?.into_any(),
                _ => {
                    let error = Error::new(Class::NotImplemented, "a function can't be returned");
                    return Err(raise(&error.expected("a result of values").found(ty)));
                }
            },
        };
        done.push(made);
    }
    Ok(done.pop().expect("the root is left"))
}

fn list<'a>(todo: &mut Vec<Todo<'a>>, items: &'a Items<Leaf>, ty: &'a Type) {
    todo.push(Todo::List(items.len()));
    todo.extend(items.iter().rev().map(|item| Todo::Convert(item, ty)));
}

fn object<'py>(py: Python<'py>, leaf: &Leaf, tensors: Tensors) -> PyResult<Bound<'py, PyAny>> {
    let object = leaf.bind(py);
    if tensors == Tensors::Numpy
        && is_torch(object)?
        && let Some(array) = torch_to_numpy(object)?
    {
        return Ok(array);
    }
    Ok(object.clone())
}

/// The container of a struct's values: the class that its type says; without one a tuple if no
/// field has a name, an OrderedDict if all have, a Struct if some have.
fn container<'py>(
    py: Python<'py>,
    structure: &StructType,
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let names: Vec<Option<&Name>> =
        structure.fields().iter().map(|field| field.name.as_ref()).collect();
    let all_named = names.iter().all(Option::is_some);
    let none_named = names.iter().all(Option::is_none);
    let mapping = |class: Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(py);
        for (name, value) in names.iter().zip(&values) {
            dict.set_item(name.map(|name| &**name), value)?;
        }
        class.call1((dict,))
    };
    match structure.container() {
        None if none_named => Ok(PyTuple::new(py, values)?.into_any()),
        None if all_named => mapping(containers::ordered_dict(py)?.clone().into_any()),
        None => {
            let names = names.into_iter().map(|name| name.cloned());
            let elements = names.zip(values.into_iter().map(Bound::unbind)).collect();
            Ok(Struct::create(py, elements)?.into_any())
        }
        Some(Container::List) => Ok(PyList::new(py, values)?.into_any()),
        Some(Container::Tuple) => Ok(PyTuple::new(py, values)?.into_any()),
        Some(of @ (Container::Dict | Container::OrderedDict)) => {
            mapping(containers::class_of(py, of)?.into_any())
        }
        Some(of @ Container::Other(_)) => {
            let class = containers::class_of(py, of)?;
            let is_mapping = class.is_subclass(&py.get_type::<PyMapping>()).unwrap_or(false)
                || class.is_subclass_of::<PyDict>()?;
            if is_mapping {
                return mapping(class.into_any());
            }
            if class.is_subclass_of::<PyTuple>()? || class.is_subclass_of::<PyList>()? {
                // A named tuple takes its fields one by one, another class one row of them.
                return match class.getattr_opt("_make")? {
                    Some(make) => make.call1((PyTuple::new(py, values)?,)),
                    None => class.call1((PyTuple::new(py, values)?,)),
                };
            }
            let keywords = PyDict::new(py);
            for (name, value) in names.iter().zip(&values) {
                keywords.set_item(name.map(|name| &**name), value)?;
            }
            class.call((), Some(&keywords))
        }
    }
}
