//! Doing something at each tensor of structs.

use super::value::Value;
use crate::error::{Class, Error};
use crate::types::{TensorType, Type, TypeKind};

/// What a place of a value that is being built becomes.
enum Opened<T, L> {
    /// A struct of these places.
    Struct(Vec<T>),
    /// This.
    Value(Value<L>),
}

/// The value at a place, of which `open` says what it becomes: the first places first. No recursion.
fn built<T, L, E>(
    root: T,
    mut open: impl FnMut(T) -> Result<Opened<T, L>, E>,
) -> Result<Value<L>, E> {
    enum Todo<T> {
        Visit(T),
        Build(usize),
    }
    let mut todo = vec![Todo::Visit(root)];
    let mut done: Vec<Value<L>> = Vec::new();
    while let Some(next) = todo.pop() {
        match next {
            Todo::Build(fields) => {
                let fields = done.split_off(done.len() - fields);
                done.push(Value::structure(fields));
            }
            Todo::Visit(place) => match open(place)? {
                Opened::Value(value) => done.push(value),
                Opened::Struct(places) => {
                    todo.push(Todo::Build(places.len()));
                    todo.extend(places.into_iter().rev().map(Todo::Visit));
                }
            },
        }
    }
    Ok(done.pop().expect("the root is left"))
}

/// The value of type `ty` whose parts that are no structs `part` makes, one after the other.
pub fn of_type<L, E>(
    ty: &Type,
    mut part: impl FnMut(&Type) -> Result<Value<L>, E>,
) -> Result<Value<L>, E> {
    built(ty, |ty| match ty.as_struct() {
        Some(structure) => {
            Ok(Opened::Struct(structure.fields().iter().map(|field| &field.ty).collect()))
        }
        None => part(ty).map(Opened::Value),
    })
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
    built((ty, items.into_iter().collect()), |(ty, column): (&Type, Vec<&'a Value<L>>)| {
        match ty.kind() {
            TypeKind::Tensor(tensor) => {
                let leaves = column.into_iter().map(|value| match value {
                    Value::Leaf(leaf) => Ok(leaf),
                    other => Err(unlike(ty, other)),
                });
                let leaves = leaves.collect::<Result<Vec<_>, _>>()?;
                Ok(Opened::Value(Value::Leaf(leaf(tensor, &leaves)?)))
            }
            TypeKind::Struct(structure) => {
                let count = structure.len();
                let rows = column.into_iter().map(|value| match value {
                    Value::Struct(fields) if fields.len() == count => Ok(&**fields),
                    other => Err(unlike(ty, other)),
                });
                let rows = rows.collect::<Result<Vec<_>, _>>()?;
                let fields = structure.fields().iter().enumerate();
                let places = fields
                    .map(|(at, field)| (&field.ty, rows.iter().map(|row| &row[at]).collect()));
                Ok(Opened::Struct(places.collect()))
            }
            _ => Err(not_tensors(ty).into()),
        }
    })
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
    built(value, |value| match value {
        Value::Struct(fields) => Ok(Opened::Struct(fields.iter().collect())),
        other => part(other).map(Opened::Value),
    })
}
