//! Values as Python objects: what users get, and what their functions are called with.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use stator_federated::execution::{Items, Value};
use stator_federated::types::{StructType, Type, TypeKind};
use stator_federated::{Class, Error};

use super::leaf::Leaf;
use super::pause::pause;
use super::torch::{is_torch, torch_to_numpy};
use crate::federated::errors::raise;
use crate::federated::structure::Struct;
use crate::federated::tracing::elements::field_names;
use crate::federated::tracing::pycontainer::make;
use crate::federated::types::{containers, dtypes, placements};

/// What tensors come as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tensors {
    /// As they are: for what doesn't write to them. A sequence is an iterator, which no container of
    /// a struct's is, so that a program knows it from its value.
    Kept,
    /// NumPy's arrays as they are, but so that they can't be written to: several clients may get the
    /// same one at the same time, and it may be the caller's. PyTorch's tensors with memory of their
    /// own, because they can't be protected.
    ReadOnly,
    /// As NumPy's scalars and arrays, with memory of their own.
    Numpy,
}

enum Todo<'a> {
    Convert(Value<Leaf>, &'a Type),
    Struct(&'a StructType),
    List(usize),
    Iterator(usize),
}

/// The object that a value of type `ty` is.
pub fn to_python<'py>(
    py: Python<'py>,
    value: Value<Leaf>,
    ty: &Type,
    tensors: Tensors,
) -> PyResult<Bound<'py, PyAny>> {
    let mut todo = vec![Todo::Convert(value, ty)];
    let mut done: Vec<Bound<'py, PyAny>> = Vec::new();
    while let Some(next) = todo.pop() {
        pause(py)?;
        let made = match next {
            Todo::Struct(structure) => {
                let values = done.split_off(done.len() - structure.len());
                container(py, structure, values)?
            }
            Todo::List(count) => PyList::new(py, done.split_off(done.len() - count))?.into_any(),
            Todo::Iterator(count) => {
                PyList::new(py, done.split_off(done.len() - count))?.try_iter()?.into_any()
            }
            Todo::Convert(value, ty) => match (value, ty.kind()) {
                (Value::Leaf(leaf), _) => object(py, leaf, tensors)?,
                (Value::Struct(fields), TypeKind::Struct(structure)) => {
                    todo.push(Todo::Struct(structure));
                    let row = fields.into_values().into_iter().zip(structure.fields()).rev();
                    todo.extend(row.map(|(value, field)| Todo::Convert(value, &field.ty)));
                    continue;
                }
                (Value::Sequence(items), TypeKind::Sequence(element)) => {
                    let made: fn(usize) -> Todo<'static> =
                        if tensors == Tensors::Kept { Todo::Iterator } else { Todo::List };
                    list(&mut todo, made, items, element);
                    continue;
                }
                (Value::Each(items), TypeKind::Federated(federated)) => {
                    list(&mut todo, Todo::List, items, &federated.member);
                    continue;
                }
                (Value::Everywhere(member), TypeKind::Federated(federated)) => {
                    let member = member.into_values().pop().expect("it has a member");
                    todo.push(Todo::Convert(member, &federated.member));
                    continue;
                }
                (Value::Placement(placement), _) => placements::wrap(py, placement)?.into_any(),
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

fn list<'a>(
    todo: &mut Vec<Todo<'a>>,
    made: fn(usize) -> Todo<'a>,
    items: Items<Leaf>,
    ty: &'a Type,
) {
    let items = items.into_values();
    todo.push(made(items.len()));
    todo.extend(items.into_iter().rev().map(|item| Todo::Convert(item, ty)));
}

fn object<'py>(py: Python<'py>, leaf: Leaf, tensors: Tensors) -> PyResult<Bound<'py, PyAny>> {
    match tensors {
        Tensors::Kept => Ok(leaf.bind(py)?.clone()),
        Tensors::ReadOnly if leaf.bind(py)?.is_instance(dtypes::ndarray(py)?)? => {
            let view = leaf.bind(py)?.call_method0("view")?;
            view.call_method1("setflags", (false,))?;
            Ok(view)
        }
        Tensors::ReadOnly => leaf.own(py),
        Tensors::Numpy => {
            let object = leaf.own(py)?;
            if is_torch(&object)?
                && let Some(array) = torch_to_numpy(&object)?
            {
                return Ok(array);
            }
            Ok(object)
        }
    }
}

/// The container of a struct's values: the class that its type says; without one a tuple if no
/// field has a name, an OrderedDict if all have, a Struct if some have.
fn container<'py>(
    py: Python<'py>,
    structure: &StructType,
    values: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let names = structure.fields().iter().map(|field| field.name.clone());
    let named = structure.fields().iter().filter(|field| field.name.is_some()).count();
    let class = match structure.container() {
        Some(container) => containers::class_of(py, container)?,
        None if named == 0 => return Ok(PyTuple::new(py, values)?.into_any()),
        None if named == values.len() => containers::ordered_dict(py)?.clone(),
        None => {
            let elements = names.zip(values.into_iter().map(Bound::unbind)).collect();
            return Ok(Struct::create(py, elements)?.into_any());
        }
    };
    let by_name = field_names(&class)?.is_some();
    make(&class, by_name, named > 0, names.zip(values).collect())
}
