//! Functions applied at each place of a placement.

use super::{apply_many, federated_type, function_type};
use crate::ast::BuildingBlock;
use crate::error::Result;
use crate::placement::Placement;
use crate::types::Type;

/// `federated_map`: at each client.
///
/// # Errors
/// `Class::Type`: it isn't a function and a value at clients that fits it.
pub fn federated_map(function: BuildingBlock, value: BuildingBlock) -> Result<BuildingBlock> {
    map("federated_map", function, value, Placement::Clients, false)
}

/// `federated_map_all_equal`: at each client, all having the same.
///
/// # Errors
/// As for [`federated_map`].
pub fn federated_map_all_equal(
    function: BuildingBlock,
    value: BuildingBlock,
) -> Result<BuildingBlock> {
    map("federated_map_all_equal", function, value, Placement::Clients, true)
}

/// `federated_apply`: at the server.
///
/// # Errors
/// As for [`federated_map`].
pub fn federated_apply(function: BuildingBlock, value: BuildingBlock) -> Result<BuildingBlock> {
    map("federated_apply", function, value, Placement::Server, true)
}

/// Whichever of the three fits the value's type; the result is all-equal as the value is.
///
/// # Errors
/// As for [`federated_map`].
pub fn federated_map_or_apply(
    function: BuildingBlock,
    value: BuildingBlock,
) -> Result<BuildingBlock> {
    let of = federated_type(&value)?;
    match (of.placement, of.all_equal) {
        (Placement::Clients, false) => federated_map(function, value),
        (Placement::Clients, true) => federated_map_all_equal(function, value),
        (Placement::Server, _) => federated_apply(function, value),
    }
}

fn map(
    uri: &str,
    function: BuildingBlock,
    value: BuildingBlock,
    placement: Placement,
    all_equal: bool,
) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let result = function_type(&function)?.result.clone();
    let result = Type::federated(result, placement, Some(all_equal))?;
    let parameter = Type::federated(member, placement, Some(all_equal))?;
    apply_many(uri, result, [(function.ty().clone(), function), (parameter, value)])
}
