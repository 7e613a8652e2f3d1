//! The operations as users call them: what is checked, and what the call becomes.
//!
//! Each function takes the blocks of its arguments and gives the block to bind. Structs of
//! federated values are zipped where one federated value is asked for ([`federated`]); the type
//! that a function argument is asked for is known before the function is (`*_hint`), so that a
//! polymorphic one can be made for it.

mod aggregate;
mod place;
mod select;
mod sequence;

pub use aggregate::{
    accumulate_hint, aggregate, bound, collect, max, mean, merge_hint, min, secure_sum,
    secure_sum_bitwidth, spread_bound, sum,
};
pub use place::{broadcast, eval, map, map_all_equal, value, zip};
pub use select::{select, select_hint};
pub use sequence::{
    SequenceMap, element_hint, reduce_hint, sequence_map, sequence_reduce, sequence_sum,
};

use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::factory;
use crate::placement::Placement;
use crate::types::{FederatedType, FunctionType, Type};

/// An error about one argument of an operation.
pub(crate) fn wrong(class: Class, operation: &str, argument: &str, problem: &str) -> Error {
    Error::new(class, format!("{operation}: the argument `{argument}` {problem}"))
}

/// The federated value that an argument is: itself, or a struct of federated values zipped.
///
/// # Errors
/// `Class::Type`: it is neither, or isn't at `placement`.
pub fn federated(
    operation: &str,
    argument: &str,
    value: BuildingBlock,
    placement: Option<Placement>,
) -> Result<BuildingBlock> {
    let found = value.ty().clone();
    let value = if value.ty().as_federated().is_some() {
        value
    } else {
        let problem = match value.ty().as_struct() {
            Some(_) => "is a struct that can't be zipped to one federated value",
            None => "isn't federated",
        };
        factory::federated_zip(value).map_err(|_| {
            let error = wrong(Class::Type, operation, argument, problem)
                .expected(asked(placement))
                .found(&found);
            if found.as_function().is_some() && operation.starts_with("federated_map") {
                return error
                    .hint(format_args!("the function comes first: `{operation}(fn, arg)`"));
            }
            match (found.as_tensor(), placement) {
                (Some(_), Some(placement)) => error.hint(format_args!(
                    "`federated_value(value, {placement})` places a constant there"
                )),
                _ => error,
            }
        })?
    };
    let of = value.ty().as_federated().expect("a zipped value is federated");
    match placement {
        Some(placement) if placement != of.placement => {
            let problem = format!("is at {}, not at {placement}", of.placement);
            let error = wrong(Class::Type, operation, argument, &problem)
                .expected(asked(Some(placement)))
                .found(&found);
            Err(match placement {
                Placement::Clients if of.all_equal => {
                    error.hint("`federated_broadcast` brings a value of the server to the clients")
                }
                _ => error,
            })
        }
        _ => Ok(value),
    }
}

fn asked(placement: Option<Placement>) -> String {
    match placement {
        Some(placement) => format!("a federated value at {placement}"),
        None => "a federated value".to_owned(),
    }
}

/// The federated type of a value that went through [`federated`].
fn of(value: &BuildingBlock) -> &FederatedType {
    value.ty().as_federated().expect("the value was made federated")
}

/// An argument that is a function.
///
/// # Errors
/// `Class::Value`: it isn't one.
pub fn function<'a>(
    operation: &str,
    argument: &str,
    value: &'a BuildingBlock,
) -> Result<&'a FunctionType> {
    value.ty().as_function().ok_or_else(|| {
        wrong(Class::Value, operation, argument, "isn't a function")
            .expected("a computation")
            .found(value.ty())
    })
}

/// An argument that is a function of a parameter.
fn function_of<'a>(
    operation: &str,
    argument: &str,
    value: &'a BuildingBlock,
) -> Result<(&'a Type, &'a Type)> {
    let of = function(operation, argument, value)?;
    match &of.parameter {
        Some(parameter) => Ok((parameter, &of.result)),
        None => Err(wrong(Class::Value, operation, argument, "takes no parameter")
            .expected("a function of one parameter")
            .found(value.ty())),
    }
}
