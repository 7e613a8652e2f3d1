//! Functions over the fields of structs, and structs taken apart.

use super::{federated_map_or_apply, federated_type};
use crate::Name;
use crate::ast::passes::NameGenerator;
use crate::ast::{BuildingBlock, Key};
use crate::error::{Class, Error, Result};
use crate::types::{Container, StructType, Type};

/// `(id_arg -> id_arg)`.
pub fn identity(ty: Type) -> BuildingBlock {
    let name: Name = "id_arg".into();
    let result = BuildingBlock::reference(name.clone(), ty.clone());
    BuildingBlock::lambda(Some((name, ty)), result)
}

/// `(x -> x.a)`: the function that selects a field of the member of a federated value.
///
/// # Errors
/// `Class::Type`: the value isn't federated, its member no struct. `Class::Value`: no such field.
pub fn member_field_function(value: &BuildingBlock, key: &Key) -> Result<BuildingBlock> {
    let member = federated_type(value)?.member.clone();
    let result = select(BuildingBlock::reference("x", member.clone()), key)?;
    Ok(BuildingBlock::lambda(Some(("x".into(), member)), result))
}

/// `(x -> <x[0],x[1]>)`: the function that selects some fields of the member of a federated
/// value, and keeps their names.
///
/// # Errors
/// As for [`member_field_function`].
pub fn member_fields_function(value: &BuildingBlock, indices: &[usize]) -> Result<BuildingBlock> {
    let member = federated_type(value)?.member.clone();
    let x = BuildingBlock::reference("x", member.clone());
    let fields = struct_type(&member)?.fields();
    let field = |&at: &usize| {
        let selected = BuildingBlock::select_index(x.clone(), at)?;
        Ok((fields[at].name.clone(), selected))
    };
    let elements = indices.iter().map(field).collect::<Result<Vec<_>>>()?;
    let result = BuildingBlock::structure(elements, None)?;
    Ok(BuildingBlock::lambda(Some(("x".into(), member)), result))
}

/// `(let value=v in <a=federated_map(<(arg -> arg[0]),value>),...>)`: a federated struct as a
/// struct of federated values.
///
/// # Errors
/// `Class::Type`: the value isn't federated, its member no struct. `Class::Value`: that is empty.
pub fn federated_unzip(value: BuildingBlock) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let structure = struct_type(&member)?;
    if structure.is_empty() {
        return Err(Error::new(Class::Value, "an empty struct can't be unzipped")
            .expected("a struct with fields")
            .found(value.ty()));
    }
    let whole = BuildingBlock::reference("value", value.ty().clone());
    let arg = BuildingBlock::reference("arg", member.clone());
    let field = |(at, name): (usize, Option<Name>)| {
        let selected = BuildingBlock::select_index(arg.clone(), at)?;
        let function = BuildingBlock::lambda(Some(("arg".into(), member.clone())), selected);
        Ok((name, federated_map_or_apply(function, whole.clone())?))
    };
    let names = structure.fields().iter().map(|field| field.name.clone()).enumerate();
    let elements = names.map(field).collect::<Result<Vec<_>>>()?;
    let result = BuildingBlock::structure(elements, None)?;
    Ok(BuildingBlock::block(vec![("value".into(), value)], result))
}

/// `(x -> <p=x[0],x[1]>)(t)`: a struct under other names.
///
/// # Errors
/// `Class::Value`: it is no struct, there are more or fewer names than fields, or a name is given
/// twice.
pub fn named_tuple(
    value: BuildingBlock,
    names: Vec<Option<Name>>,
    container: Option<Container>,
) -> Result<BuildingBlock> {
    let Some(structure) = value.ty().as_struct() else {
        return Err(Error::new(Class::Value, "only the fields of a struct can be named")
            .expected("a struct")
            .found(value.ty()));
    };
    if structure.len() != names.len() {
        return Err(Error::new(Class::Value, "there must be a name, or none, for each field")
            .expected(format!("{} names", structure.len()))
            .found(format!("{} names", names.len())));
    }
    let parameter = value.ty().clone();
    let x = BuildingBlock::reference("x", parameter.clone());
    let field =
        |(at, name)| -> Result<_> { Ok((name, BuildingBlock::select_index(x.clone(), at)?)) };
    let elements = names.into_iter().enumerate().map(field).collect::<Result<Vec<_>>>()?;
    let result = BuildingBlock::structure(elements, container)?;
    let function = BuildingBlock::lambda(Some(("x".into(), parameter)), result);
    BuildingBlock::call(function, Some(value))
}

/// The lambda with one part of its result as result: `(x -> x.b[0])`. The path is from the result.
///
/// # Errors
/// `Class::Type`: `lambda` is none. `Class::Value`: there is no such part.
pub fn select_output(lambda: &BuildingBlock, path: &[Key]) -> Result<BuildingBlock> {
    let of = as_lambda(lambda)?;
    struct_type_of_result(&of.result)?;
    let result = select_path(of.result.clone(), path)?;
    Ok(BuildingBlock::lambda(of.parameter.clone(), result))
}

/// The lambda with a struct of parts of its result as result:
/// `(x -> (let _var1=f(x) in <_var1.a,_var1.b[1]>))`.
///
/// # Errors
/// As for [`select_output`].
pub fn select_outputs(lambda: &BuildingBlock, paths: &[Vec<Key>]) -> Result<BuildingBlock> {
    let of = as_lambda(lambda)?;
    struct_type_of_result(&of.result)?;
    let name = NameGenerator::new(lambda, Some("_var")).next().expect("names don't end");
    let whole = BuildingBlock::reference(name.clone(), of.result.ty().clone());
    let parts = paths.iter().map(|path| Ok((None, select_path(whole.clone(), path)?)));
    let parts = BuildingBlock::structure(parts.collect::<Result<Vec<_>>>()?, None)?;
    let result = BuildingBlock::block(vec![(name, of.result.clone())], parts);
    Ok(BuildingBlock::lambda(of.parameter.clone(), result))
}

fn as_lambda(block: &BuildingBlock) -> Result<&crate::ast::Lambda> {
    block.as_lambda().ok_or_else(|| {
        Error::new(Class::Type, "only of a lambda a part of the result can be selected")
            .expected("a lambda")
            .found(block)
    })
}

fn struct_type_of_result(result: &BuildingBlock) -> Result<()> {
    if result.ty().as_struct().is_some() {
        return Ok(());
    }
    Err(Error::new(Class::Value, "the result has no parts").expected("a struct").found(result.ty()))
}

fn select_path(mut value: BuildingBlock, path: &[Key]) -> Result<BuildingBlock> {
    for key in path {
        struct_type_of_result(&value)?;
        // A struct that is written out has the part itself.
        let selected = select(value.clone(), key)?;
        value = match (value.as_struct(), selected.as_selection()) {
            (Some(structure), Some(selection)) => {
                structure.elements[selection.position()].1.clone()
            }
            _ => selected,
        };
    }
    Ok(value)
}

fn select(source: BuildingBlock, key: &Key) -> Result<BuildingBlock> {
    match key {
        Key::Name(name) => BuildingBlock::select_name(source, name.clone()),
        Key::Index(index) => BuildingBlock::select_index(source, *index as usize),
    }
}

fn struct_type(ty: &Type) -> Result<&StructType> {
    ty.as_struct().ok_or_else(|| {
        Error::new(Class::Type, "the member isn't a struct").expected("a struct").found(ty)
    })
}
