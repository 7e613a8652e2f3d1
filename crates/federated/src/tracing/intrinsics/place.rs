//! Placing values, mapping over them, zipping them.

use super::{federated, function, function_of, of, wrong};
use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::factory;
use crate::placement::Placement;
use crate::types::Facts;

/// `federated_map(fn, arg)`; `arg` went through [`federated`].
///
/// # Errors
/// `Class::Value`: `fn` isn't a function of a parameter. `Class::Type`: it doesn't fit `arg`.
pub fn map(fn_: BuildingBlock, arg: BuildingBlock) -> Result<BuildingBlock> {
    check_fits("federated_map", &fn_, &arg)?;
    match (of(&arg).placement, of(&arg).all_equal) {
        (Placement::Clients, _) => factory::federated_map(fn_, arg),
        (Placement::Server, true) => factory::federated_apply(fn_, arg),
        (Placement::Server, false) => {
            let problem = "isn't the same everywhere, though it is at the server";
            Err(wrong(Class::Type, "federated_map", "arg", problem)
                .expected(format_args!("{}@SERVER", of(&arg).member))
                .found(arg.ty()))
        }
    }
}

/// `federated_map_all_equal(fn, arg)`; `arg` went through [`federated`].
///
/// # Errors
/// As for [`map`]; also if `arg` isn't all-equal.
pub fn map_all_equal(fn_: BuildingBlock, arg: BuildingBlock) -> Result<BuildingBlock> {
    check_fits("federated_map_all_equal", &fn_, &arg)?;
    if !of(&arg).all_equal {
        let problem = "may differ between the clients";
        return Err(wrong(Class::Type, "federated_map_all_equal", "arg", problem)
            .expected(format_args!("{}@CLIENTS", of(&arg).member))
            .found(arg.ty()));
    }
    factory::federated_map_all_equal(fn_, arg)
}

fn check_fits(operation: &str, fn_: &BuildingBlock, arg: &BuildingBlock) -> Result<()> {
    let (parameter, _) = function_of(operation, "fn", fn_)?;
    let member = &of(arg).member;
    if parameter.is_assignable_from(member)? {
        return Ok(());
    }
    Err(wrong(Class::Type, operation, "fn", "doesn't take what `arg` holds at each place")
        .expected(format_args!("a function of {member}"))
        .found(fn_.ty()))
}

/// `federated_broadcast(value)`.
///
/// # Errors
/// `Class::Type`: it isn't one value at the server.
pub fn broadcast(value: BuildingBlock) -> Result<BuildingBlock> {
    let value = federated("federated_broadcast", "value", value, Some(Placement::Server))?;
    if !of(&value).all_equal {
        let problem = "isn't the same everywhere, though it is at the server";
        return Err(wrong(Class::Type, "federated_broadcast", "value", problem)
            .expected(format_args!("{}@SERVER", of(&value).member))
            .found(value.ty()));
    }
    factory::federated_broadcast(value)
}

/// `federated_eval(fn, placement)`.
///
/// # Errors
/// `Class::Value`: `fn` isn't a function without parameter.
pub fn eval(fn_: BuildingBlock, placement: Placement) -> Result<BuildingBlock> {
    if function("federated_eval", "fn", &fn_)?.parameter.is_some() {
        return Err(wrong(Class::Value, "federated_eval", "fn", "needs a parameter")
            .expected("a function without parameter")
            .found(fn_.ty())
            .hint(format_args!(
                "`federated_map(fn, value)` applies it to a value at {placement}"
            )));
    }
    factory::federated_eval(fn_, placement)
}

/// `federated_value(value, placement)`.
///
/// # Errors
/// `Class::Type`: the value is or contains a federated value, or a function.
pub fn value(value: BuildingBlock, placement: Placement) -> Result<BuildingBlock> {
    let facts = value.ty().facts();
    let error = |problem: &str| -> Error {
        wrong(Class::Type, "federated_value", "value", problem)
            .expected("a value without a placement")
            .found(value.ty())
    };
    if facts.any(Facts::FEDERATED) {
        return Err(error(&format!("has a placement, so it can't be placed at {placement}")));
    }
    if facts.any(Facts::FUNCTION) {
        return Err(error("is or contains a function")
            .hint(format_args!("`federated_eval(fn, {placement})` places what a function gives")));
    }
    factory::federated_value(value, placement)
}

/// `federated_zip(value)`.
///
/// # Errors
/// `Class::Value`: it isn't a struct. `Class::Type`: its values can't be zipped.
pub fn zip(value: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_zip(value).map_err(|error| error.in_context("federated_zip"))
}
