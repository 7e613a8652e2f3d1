//! Operations on sequences.

use super::{apply, apply_many, function_type, unnamed, with_unnamed_parameter};
use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::types::Type;

/// `sequence_map`: a function applied to each element.
///
/// # Errors
/// `Class::Type`: it isn't a function and a sequence that fits it.
pub fn sequence_map(function: BuildingBlock, value: BuildingBlock) -> Result<BuildingBlock> {
    let result = Type::sequence(function_type(&function)?.result.clone())?;
    let arguments = [(function.ty().clone(), function), (value.ty().clone(), value)];
    apply_many("sequence_map", result, arguments)
}

/// `sequence_reduce`: `zero` and the first element give what the second one is taken with.
///
/// # Errors
/// `Class::Type`: the arguments don't fit each other.
pub fn sequence_reduce(
    value: BuildingBlock,
    zero: BuildingBlock,
    op: BuildingBlock,
) -> Result<BuildingBlock> {
    let element = element_type(&value)?.clone();
    let op = with_unnamed_parameter(op, &Type::unnamed([zero.ty().clone(), element]))?;
    let result = function_type(&op)?.result.clone();
    let arguments = [(value.ty().clone(), value), (zero.ty().clone(), zero), (op.ty().clone(), op)];
    apply_many("sequence_reduce", result, arguments)
}

/// `sequence_sum`.
///
/// # Errors
/// `Class::Type`: it isn't a sequence.
pub fn sequence_sum(value: BuildingBlock) -> Result<BuildingBlock> {
    let result = element_type(&value)?.clone();
    apply("sequence_sum", value.ty().clone(), result, value)
}

/// `(arg0 -> (arg1 -> f(<arg0,arg1>)))`: a function of a struct, which takes the fields one after
/// another.
///
/// # Errors
/// `Class::Value`: it isn't such a function.
pub fn curried(function: BuildingBlock) -> Result<BuildingBlock> {
    let parameter = function.ty().as_function().and_then(|of| of.parameter.as_ref());
    let Some(structure) = parameter.and_then(Type::as_struct) else {
        return Err(Error::new(Class::Value, "only a function of a struct can be curried")
            .found(function.ty()));
    };
    let reference =
        |(at, ty): (usize, &Type)| BuildingBlock::reference(format!("arg{at}"), ty.clone());
    let types = structure.fields().iter().map(|field| &field.ty);
    let references: Vec<_> = types.enumerate().map(reference).collect();
    let call = BuildingBlock::call(function, Some(unnamed(references.clone())?))?;
    Ok(references.iter().rev().fold(call, |result, reference| {
        let name = reference.as_reference().expect("made as one").name.clone();
        BuildingBlock::lambda(Some((name, reference.ty().clone())), result)
    }))
}

fn element_type(value: &BuildingBlock) -> Result<&Type> {
    value.ty().as_sequence().ok_or_else(|| {
        Error::new(Class::Type, "the value isn't a sequence")
            .expected("a sequence")
            .found(value.ty())
    })
}
