//! Fields of a stand-in: of a struct, or of a struct at a placement.

use crate::ast::{BlockKind, BuildingBlock, Key};
use crate::error::{Class, Error, Result};
use crate::factory;
use crate::types::{StructType, Type};

/// The struct type whose fields a value of type `ty` has: it may be at a placement.
pub fn struct_type(ty: &Type) -> Option<&StructType> {
    ty.as_struct().or_else(|| ty.as_federated()?.member.as_struct())
}

/// The field named `name`.
///
/// # Errors
/// `Class::Attribute`: it has none.
pub fn by_name(value: &BuildingBlock, name: &str) -> Result<BuildingBlock> {
    let Some(of) = struct_type(value.ty()) else {
        return Err(Error::new(
            Class::Attribute,
            format!("the value has no attribute `{name}`: it isn't a struct"),
        )
        .expected("a struct, or a struct at a placement")
        .found(value.ty()));
    };
    let Some(position) = of.position(name) else {
        return Err(no_such_field(value, of, name));
    };
    if value.ty().as_struct().is_none() {
        let name = of.fields()[position].name.clone().expect("found by its name");
        return factory::federated_field(value.clone(), &Key::Name(name));
    }
    match value.kind() {
        BlockKind::Struct(structure) => Ok(structure.elements[position].1.clone()),
        _ => {
            let name = of.fields()[position].name.clone().expect("found by its name");
            BuildingBlock::select_name(value.clone(), name)
        }
    }
}

fn no_such_field(value: &BuildingBlock, of: &StructType, name: &str) -> Error {
    let error =
        Error::new(Class::Attribute, format!("the value has no field `{name}`")).found(value.ty());
    let names: Vec<&str> = of.fields().iter().filter_map(|field| field.name.as_deref()).collect();
    match nearest(name, &names) {
        Some(nearest) => error.hint(format_args!("there is a field `{nearest}`")),
        None if names.is_empty() && !of.is_empty() => {
            error.hint("its fields have no names: select them by position, `value[0]`")
        }
        None => error,
    }
}

/// The field at `index`.
///
/// # Errors
/// `Class::Type`: it isn't a struct. `Class::Index`, for a federated struct `Class::Value`: there
/// is no such field.
pub fn by_index(value: &BuildingBlock, index: i64) -> Result<BuildingBlock> {
    let of = checked_struct(value)?;
    let federated = value.ty().as_struct().is_none();
    let Some(at) = usize::try_from(index).ok().filter(|&at| at < of.len()) else {
        let class = if federated { Class::Value } else { Class::Index };
        let error = Error::new(class, format!("the value has no field {index}"))
            .expected(positions(of.len()))
            .found(value.ty());
        let from_end = index.checked_neg().and_then(|back| usize::try_from(back).ok());
        let from_end = from_end.filter(|&back| 0 < back && back <= of.len());
        return Err(match from_end {
            Some(back) => error.hint(format_args!(
                "positions count from the front: this field is `value[{}]`",
                of.len() - back
            )),
            None => error,
        });
    };
    if federated {
        return factory::federated_field(value.clone(), &Key::Index(at as u32));
    }
    match value.kind() {
        BlockKind::Struct(structure) => Ok(structure.elements[at].1.clone()),
        _ => BuildingBlock::select_index(value.clone(), at),
    }
}

/// Which positions a struct of `count` fields has.
pub fn positions(count: usize) -> String {
    match count {
        0 => "no field: the struct is empty".to_owned(),
        1 => "0, the only field".to_owned(),
        count => format!("0 to {}", count - 1),
    }
}

/// The struct type of a value that has fields.
///
/// # Errors
/// `Class::Type`: it isn't a struct.
pub fn checked_struct(value: &BuildingBlock) -> Result<&StructType> {
    struct_type(value.ty()).ok_or_else(|| {
        Error::new(Class::Type, "only a struct has fields")
            .expected("a struct, or a struct at a placement")
            .found(value.ty())
    })
}

/// The name that was most likely meant.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let close = |other: &&&str| distance(name, other) <= 1 + name.chars().count() / 4;
    names.iter().filter(close).min_by_key(|other| distance(name, other)).copied()
}

/// How many characters must be put in, left out or exchanged to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
