//! Calls of the language's operations, made from blocks: an intrinsic typed by its arguments, and
//! applied to them. Nothing is bound to a name here.

mod aggregate;
mod fields;
mod functions;
mod map;
mod place;
mod sequence;
mod zip;

pub use aggregate::{
    federated_aggregate, federated_collect, federated_max, federated_mean, federated_min,
    federated_secure_sum, federated_secure_sum_bitwidth, federated_select, federated_sum,
};
pub use fields::{federated_field, federated_fields};
pub use functions::{
    federated_unzip, identity, member_field_function, member_fields_function, named_tuple,
    select_output, select_outputs,
};
pub use map::{federated_apply, federated_map, federated_map_all_equal, federated_map_or_apply};
pub use place::{federated_broadcast, federated_eval, federated_value};
pub use sequence::{curried, sequence_map, sequence_reduce, sequence_sum};
pub use zip::{federated_zip, zip_to_match};

use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::types::{FederatedType, FunctionType, Type};

/// The operation `uri` of type `(parameter -> result)`, applied to `argument`.
fn apply(
    uri: &str,
    parameter: Type,
    result: Type,
    argument: BuildingBlock,
) -> Result<BuildingBlock> {
    let intrinsic = BuildingBlock::intrinsic(uri, Type::function(Some(parameter), result));
    BuildingBlock::call(intrinsic, Some(argument))
}

/// The same for an operation of several arguments, each with the type that the operation gives it.
fn apply_many<const N: usize>(
    uri: &str,
    result: Type,
    arguments: [(Type, BuildingBlock); N],
) -> Result<BuildingBlock> {
    let (types, values): (Vec<_>, Vec<_>) = arguments.into_iter().unzip();
    apply(uri, Type::unnamed(types), result, unnamed(values)?)
}

/// A struct of values without names and container.
fn unnamed(values: impl IntoIterator<Item = BuildingBlock>) -> Result<BuildingBlock> {
    BuildingBlock::structure(values.into_iter().map(|value| (None, value)).collect(), None)
}

fn federated_type(value: &BuildingBlock) -> Result<&FederatedType> {
    value.ty().as_federated().ok_or_else(|| {
        Error::new(Class::Type, "the value isn't federated")
            .expected("a federated value")
            .found(value.ty())
    })
}

fn function_type(value: &BuildingBlock) -> Result<&FunctionType> {
    value.ty().as_function().ok_or_else(|| {
        Error::new(Class::Type, "the value isn't a function")
            .expected("a function")
            .found(value.ty())
    })
}

/// A function of a struct without names, which does what `function` does: operations pass their
/// functions unnamed structs.
fn with_unnamed_parameter(function: BuildingBlock, parameter: &Type) -> Result<BuildingBlock> {
    let of = function_type(&function)?.parameter.as_ref().and_then(Type::as_struct);
    if !of.is_some_and(|of| of.fields().iter().any(|field| field.name.is_some())) {
        return Ok(function);
    }
    let argument = BuildingBlock::reference("a", parameter.clone());
    let result = BuildingBlock::call(function, Some(argument))?;
    Ok(BuildingBlock::lambda(Some(("a".into(), parameter.clone())), result))
}
