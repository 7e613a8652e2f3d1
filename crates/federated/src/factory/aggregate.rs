//! One value at the server from those at the clients; slices of a value at the server for clients.

use super::{apply, apply_many, federated_type, function_type, with_unnamed_parameter};
use crate::ast::BuildingBlock;
use crate::dtype::DType;
use crate::error::Result;
use crate::placement::Placement;
use crate::types::Type;

/// `federated_aggregate`: clients' values are accumulated, what was accumulated is merged, and the
/// whole reported.
///
/// # Errors
/// `Class::Type`: the arguments don't fit each other.
pub fn federated_aggregate(
    value: BuildingBlock,
    zero: BuildingBlock,
    accumulate: BuildingBlock,
    merge: BuildingBlock,
    report: BuildingBlock,
) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let accumulated = zero.ty().clone();
    let accumulate =
        with_unnamed_parameter(accumulate, &Type::unnamed([accumulated.clone(), member]))?;
    let merge = with_unnamed_parameter(merge, &Type::unnamed([accumulated.clone(), accumulated]))?;
    let result = at_server(function_type(&report)?.result.clone())?;
    let arguments = [
        (value.ty().not_all_equal(), value),
        typed(zero),
        typed(accumulate),
        typed(merge),
        typed(report),
    ];
    apply_many("federated_aggregate", result, arguments)
}

/// `federated_collect`: the sequence of the clients' values.
///
/// # Errors
/// `Class::Type`: the value isn't one at clients.
pub fn federated_collect(value: BuildingBlock) -> Result<BuildingBlock> {
    let result = at_server(Type::sequence(federated_type(&value)?.member.clone())?)?;
    apply("federated_collect", value.ty().not_all_equal(), result, value)
}

/// `federated_sum`.
///
/// # Errors
/// `Class::Type`: the value isn't one at clients.
pub fn federated_sum(value: BuildingBlock) -> Result<BuildingBlock> {
    reduce("federated_sum", value)
}

/// `federated_min`.
///
/// # Errors
/// As for [`federated_sum`].
pub fn federated_min(value: BuildingBlock) -> Result<BuildingBlock> {
    reduce("federated_min", value)
}

/// `federated_max`.
///
/// # Errors
/// As for [`federated_sum`].
pub fn federated_max(value: BuildingBlock) -> Result<BuildingBlock> {
    reduce("federated_max", value)
}

/// `federated_mean`, or `federated_weighted_mean` where there is a weight.
///
/// # Errors
/// As for [`federated_sum`].
pub fn federated_mean(
    value: BuildingBlock,
    weight: Option<BuildingBlock>,
) -> Result<BuildingBlock> {
    let Some(weight) = weight else { return reduce("federated_mean", value) };
    reduce_with("federated_weighted_mean", value, (weight.ty().not_all_equal(), weight))
}

/// `federated_secure_sum`: of values that are at most `max_input`.
///
/// # Errors
/// As for [`federated_sum`].
pub fn federated_secure_sum(
    value: BuildingBlock,
    max_input: BuildingBlock,
) -> Result<BuildingBlock> {
    reduce_with("federated_secure_sum", value, typed(max_input))
}

/// `federated_secure_sum_bitwidth`: of values that have at most `bitwidth` bits.
///
/// # Errors
/// As for [`federated_sum`].
pub fn federated_secure_sum_bitwidth(
    value: BuildingBlock,
    bitwidth: BuildingBlock,
) -> Result<BuildingBlock> {
    reduce_with("federated_secure_sum_bitwidth", value, typed(bitwidth))
}

/// `federated_select` or `federated_secure_select`: to each client a sequence of what `select`
/// makes of the server's value and each of the client's keys.
///
/// # Errors
/// `Class::Type`: the arguments don't fit each other.
pub fn federated_select(
    keys: BuildingBlock,
    max_key: BuildingBlock,
    value: BuildingBlock,
    select: BuildingBlock,
    secure: bool,
) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let parameter = Type::unnamed([member, Type::scalar(DType::Int32)]);
    let select = with_unnamed_parameter(select, &parameter)?;
    let slices = Type::sequence(function_type(&select)?.result.clone())?;
    let result = Type::federated(slices, Placement::Clients, Some(false))?;
    let arguments =
        [(keys.ty().not_all_equal(), keys), typed(max_key), typed(value), typed(select)];
    let uri = if secure { "federated_secure_select" } else { "federated_select" };
    apply_many(uri, result, arguments)
}

fn reduce(uri: &str, value: BuildingBlock) -> Result<BuildingBlock> {
    let result = at_server(federated_type(&value)?.member.clone())?;
    apply(uri, value.ty().not_all_equal(), result, value)
}

fn reduce_with(
    uri: &str,
    value: BuildingBlock,
    second: (Type, BuildingBlock),
) -> Result<BuildingBlock> {
    let result = at_server(federated_type(&value)?.member.clone())?;
    apply_many(uri, result, [(value.ty().not_all_equal(), value), second])
}

fn at_server(member: Type) -> Result<Type> {
    Type::federated(member, Placement::Server, Some(true))
}

/// An argument with its own type.
fn typed(value: BuildingBlock) -> (Type, BuildingBlock) {
    (value.ty().clone(), value)
}
