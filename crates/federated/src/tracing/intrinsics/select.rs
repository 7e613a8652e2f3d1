//! Slices of a value at the server for each client.

use super::{federated, of, wrong};
use crate::ast::BuildingBlock;
use crate::dtype::DType;
use crate::error::{Class, Result};
use crate::factory;
use crate::placement::Placement;
use crate::types::Type;

fn name(secure: bool) -> &'static str {
    if secure { "federated_secure_select" } else { "federated_select" }
}

/// What `select_fn` is given; the checked and zipped `server_val`.
///
/// # Errors
/// `Class::Type`: the other arguments are none of their kind.
pub fn select_hint(
    keys: &BuildingBlock,
    max_key: &BuildingBlock,
    server_val: BuildingBlock,
    secure: bool,
) -> Result<(BuildingBlock, Type)> {
    let name = name(secure);
    let good = keys.ty().as_federated().is_some_and(|of| {
        of.placement == Placement::Clients
            && of.member.as_tensor().is_some_and(|tensor| {
                let dims = tensor.shape.dims();
                tensor.dtype == DType::Int32 && matches!(dims, Some([Some(_)]))
            })
    });
    if !good {
        return Err(wrong(Class::Type, name, "client_keys", "isn't a list of keys at each client")
            .expected("{int32[n]}@CLIENTS, with a number for n")
            .found(keys.ty()));
    }
    let one_key = Type::federated(Type::scalar(DType::Int32), Placement::Server, None)?;
    if !one_key.is_assignable_from(max_key.ty())? {
        return Err(wrong(Class::Type, name, "max_key", "isn't one key at the server")
            .expected(one_key)
            .found(max_key.ty()));
    }
    let value = federated(name, "server_val", server_val, Some(Placement::Server))?;
    let hint = Type::unnamed([of(&value).member.clone(), Type::scalar(DType::Int32)]);
    Ok((value, hint))
}

/// `federated_select(client_keys, max_key, server_val, select_fn)`, the others checked by
/// [`select_hint`].
///
/// # Errors
/// `Class::Type`: `select_fn` isn't a function of `hint`.
pub fn select(
    keys: BuildingBlock,
    max_key: BuildingBlock,
    server_val: BuildingBlock,
    select_fn: BuildingBlock,
    hint: &Type,
    secure: bool,
) -> Result<BuildingBlock> {
    let parameter = select_fn.ty().as_function().and_then(|of| of.parameter.as_ref());
    let fits = match parameter {
        Some(parameter) => parameter.is_assignable_from(hint)?,
        None => false,
    };
    if !fits {
        let problem = "isn't a function of the server's value and a key";
        return Err(wrong(Class::Type, name(secure), "select_fn", problem)
            .expected(format_args!("a function of {hint}"))
            .found(select_fn.ty()));
    }
    factory::federated_select(keys, max_key, server_val, select_fn, secure)
}
