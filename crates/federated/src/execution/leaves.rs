//! Doing something at each tensor of structs.

use super::value::Value;
use crate::error::{Class, Error};
use crate::types::{TensorType, Type, TypeKind};

/// The value of type `ty` whose parts that are no structs `part` makes, one after the other.
pub fn of_type<L, E>(
    ty: &Type,
    mut part: impl FnMut(&Type) -> Result<Value<L>, E>,
) -> Result<Value<L>, E> {
    enum Todo<'a> {
        Visit(&'a Type),
        Build(usize),
    }
    let mut todo = vec![Todo::Visit(ty)];
    let mut done: Vec<Value<L>> = Vec::new();
    while let Some(next) = todo.pop() {
        match next {
            Todo::Build(count) => {
                let fields = done.split_off(done.len() - count);
                done.push(Value::structure(fields));
            }
            Todo::Visit(ty) => match ty.as_struct() {
                Some(structure) => {
                    todo.push(Todo::Build(structure.len()));
                    let fields = structure.fields().iter().rev();
                    todo.extend(fields.map(|field| Todo::Visit(&field.ty)));
                }
                None => done.push(part(ty)?),
            },
        }
    }
    Ok(done.pop().expect("the root is left"))
}

/// The value of type `ty`, a struct of tensors, whose tensors `leaf` makes from those at the same
/// place in each of the structs `of`.
pub(super) fn leafwise<L, E: From<Error>, const N: usize>(
    ty: &Type,
    of: [&Value<L>; N],
    mut leaf: impl FnMut(&TensorType, [&L; N]) -> Result<L, E>,
) -> Result<Value<L>, E> {
    columns(ty, of, |ty, leaves| {
        leaf(ty, leaves.try_into().expect("a column has a leaf of each struct"))
    })
}

/// The value of type `ty`, a struct of tensors, whose tensors `leaf` makes from those at the same
/// place in all of `items`.
pub(super) fn columns<'a, L: 'a, E: From<Error>>(
    ty: &Type,
    items: impl IntoIterator<Item = &'a Value<L>>,
    mut leaf: impl FnMut(&TensorType, &[&L]) -> Result<L, E>,
) -> Result<Value<L>, E> {
    enum Todo<'a, L> {
        Visit(&'a Type, Vec<&'a Value<L>>),
        Build(usize),
    }
    let mut todo = vec![Todo::Visit(ty, items.into_iter().collect())];
    let mut done: Vec<Value<L>> = Vec::new();
    while let Some(next) = todo.pop() {
        match next {
            Todo::Build(fields) => {
                let fields = done.split_off(done.len() - fields);
                done.push(Value::structure(fields));
            }
            Todo::Visit(ty, column) => match ty.kind() {
                TypeKind::Tensor(tensor) => {
                    let leaves = column.into_iter().map(|value| match value {
                        Value::Leaf(leaf) => Ok(leaf),
                        other => Err(unlike(ty, other)),
                    });
                    let leaves = leaves.collect::<Result<Vec<_>, _>>()?;
                    done.push(Value::Leaf(leaf(tensor, &leaves)?));
                }
                TypeKind::Struct(structure) => {
                    let count = structure.len();
                    let rows = column.into_iter().map(|value| match value {
                        Value::Struct(fields) if fields.len() == count => Ok(&**fields),
                        other => Err(unlike(ty, other)),
                    });
                    let rows = rows.collect::<Result<Vec<_>, _>>()?;
                    todo.push(Todo::Build(count));
                    for (at, field) in structure.fields().iter().enumerate().rev() {
                        let column = rows.iter().map(|row| &row[at]).collect();
                        todo.push(Todo::Visit(&field.ty, column));
                    }
                }
                _ => return Err(not_tensors(ty).into()),
            },
        }
    }
    Ok(done.pop().expect("the root is left"))
}

pub(super) fn not_tensors(ty: &Type) -> Error {
    Error::new(Class::Type, "this works on structs of tensors only")
        .expected("a struct of tensors")
        .found(ty)
}

fn unlike<L>(ty: &Type, value: &Value<L>) -> Error {
    Error::new(Class::Type, "a value isn't of its type").expected(ty).found(value.describe())
}

/// The struct with `part` of what is in the fields for each field, through all its structs.
pub(super) fn rebuild<L, E>(
    value: &Value<L>,
    mut part: impl FnMut(&Value<L>) -> Result<Value<L>, E>,
) -> Result<Value<L>, E> {
    enum Todo<'a, L> {
        Visit(&'a Value<L>),
        Build(usize),
    }
    let mut todo = vec![Todo::Visit(value)];
    let mut done: Vec<Value<L>> = Vec::new();
    while let Some(next) = todo.pop() {
        match next {
            Todo::Build(fields) => {
                let fields = done.split_off(done.len() - fields);
                done.push(Value::structure(fields));
            }
            Todo::Visit(Value::Struct(fields)) => {
                todo.push(Todo::Build(fields.len()));
                todo.extend(fields.iter().rev().map(Todo::Visit));
            }
            Todo::Visit(other) => done.push(part(other)?),
        }
    }
    Ok(done.pop().expect("the root is left"))
}
