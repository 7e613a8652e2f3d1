//! Values that come to be at a placement.

use super::{apply, federated_type, function_type};
use crate::ast::BuildingBlock;
use crate::error::Result;
use crate::placement::Placement;
use crate::types::Type;

/// `federated_broadcast`: the server's value at every client.
///
/// # Errors
/// `Class::Type`: the value isn't federated.
pub fn federated_broadcast(value: BuildingBlock) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let result = Type::federated(member, Placement::Clients, Some(true))?;
    apply("federated_broadcast", value.ty().clone(), result, value)
}

/// `federated_eval_at_clients`, `federated_eval_at_server`: what a function without parameter
/// gives, at each place.
///
/// # Errors
/// `Class::Type`: it isn't such a function.
pub fn federated_eval(function: BuildingBlock, placement: Placement) -> Result<BuildingBlock> {
    let uri = match placement {
        Placement::Clients => "federated_eval_at_clients",
        Placement::Server => "federated_eval_at_server",
    };
    let result = Type::federated(function_type(&function)?.result.clone(), placement, None)?;
    apply(uri, function.ty().clone(), result, function)
}

/// `federated_value_at_clients`, `federated_value_at_server`: one value at every place.
///
/// # Errors
/// `Class::Value`: the value contains federated values or functions.
pub fn federated_value(value: BuildingBlock, placement: Placement) -> Result<BuildingBlock> {
    let uri = match placement {
        Placement::Clients => "federated_value_at_clients",
        Placement::Server => "federated_value_at_server",
    };
    let result = Type::federated(value.ty().clone(), placement, Some(true))?;
    apply(uri, value.ty().clone(), result, value)
}
