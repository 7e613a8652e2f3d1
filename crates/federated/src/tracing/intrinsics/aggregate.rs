//! Aggregating clients' values at the server.

use super::{federated, function, function_of, of, wrong};
use crate::ast::BuildingBlock;
use crate::dtype::{DType, Kind};
use crate::error::{Class, Result};
use crate::factory;
use crate::placement::Placement;
use crate::types::{Type, TypeKind};

/// What `accumulate` of `federated_aggregate` is given.
pub fn accumulate_hint(value: &BuildingBlock, zero: &BuildingBlock) -> Type {
    Type::unnamed([zero.ty().clone(), of(value).member.clone()])
}

/// What `merge` of `federated_aggregate` is given.
///
/// # Errors
/// `Class::Value`: `accumulate` isn't a function.
pub fn merge_hint(accumulate: &BuildingBlock) -> Result<Type> {
    let result = &function("federated_aggregate", "accumulate", accumulate)?.result;
    Ok(Type::unnamed([result.clone(), result.clone()]))
}

/// `federated_aggregate(value, zero, accumulate, merge, report)`; `value` went through
/// [`federated`].
///
/// # Errors
/// `Class::Value`: an operator isn't a function. `Class::Type`: the arguments don't fit each other.
pub fn aggregate(
    value: BuildingBlock,
    zero: BuildingBlock,
    accumulate: BuildingBlock,
    merge: BuildingBlock,
    report: BuildingBlock,
) -> Result<BuildingBlock> {
    const NAME: &str = "federated_aggregate";
    let accumulated = &function(NAME, "accumulate", &accumulate)?.result;
    let merged = &function(NAME, "merge", &merge)?.result;
    let reported = &function(NAME, "report", &report)?.result;

    let (parameter, _) = function_of(NAME, "accumulate", &accumulate)?;
    let first = parameter.as_struct().and_then(|of| of.fields().first());
    if let Some(first) = first
        && !first.ty.is_assignable_from(zero.ty())?
    {
        return Err(wrong(Class::Type, NAME, "zero", "isn't what `accumulate` begins with")
            .expected(&first.ty)
            .found(zero.ty()));
    }
    let pair = |second: &Type| Type::unnamed([accumulated.clone(), second.clone()]);
    let operators = [
        ("accumulate", &accumulate, pair(&of(&value).member), accumulated),
        ("merge", &merge, pair(accumulated), accumulated),
        ("report", &report, merged.clone(), reported),
    ];
    for (argument, operator, parameter, result) in operators {
        let expected = Type::function(Some(parameter), result.clone());
        if !expected.is_assignable_from(operator.ty())? {
            return Err(wrong(Class::Type, NAME, argument, "doesn't fit the other arguments")
                .expected(expected)
                .found(operator.ty()));
        }
    }
    factory::federated_aggregate(value, zero, accumulate, merge, report)
}

/// `federated_collect(value)`.
///
/// # Errors
/// `Class::Type`: it isn't a value at clients.
pub fn collect(value: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_collect(federated(
        "federated_collect",
        "value",
        value,
        Some(Placement::Clients),
    )?)
}

/// `federated_sum(value)`.
///
/// # Errors
/// `Class::Type`: it isn't a value at clients. `Class::SumIncompatible`: it can't be summed.
pub fn sum(value: BuildingBlock) -> Result<BuildingBlock> {
    let value = federated("federated_sum", "value", value, Some(Placement::Clients))?;
    check_summable("federated_sum", "value", &of(&value).member, value.ty())?;
    factory::federated_sum(value)
}

/// # Errors
/// `Class::SumIncompatible`: something in the type isn't a number, or may differ in shape.
pub(super) fn check_summable(
    operation: &str,
    argument: &str,
    summed: &Type,
    found: &Type,
) -> Result<()> {
    let number = |dtype: DType| !matches!(dtype.kind(), Kind::Bool | Kind::String);
    for leaf in summed.leaves() {
        let problem = match leaf.kind() {
            TypeKind::Tensor(tensor) if !number(tensor.dtype) => {
                "holds something that isn't a number"
            }
            TypeKind::Tensor(tensor) if !tensor.shape.is_fully_defined() => {
                "holds an array whose shape may differ from client to client"
            }
            TypeKind::Tensor(_) => continue,
            _ => "holds something that isn't an array of numbers",
        };
        return Err(wrong(Class::SumIncompatible, operation, argument, problem)
            .expected("arrays of numbers, of known shapes")
            .found(shown(leaf, found)));
    }
    Ok(())
}

/// `federated_mean(value, weight)`.
///
/// # Errors
/// `Class::Type`: they aren't values at clients that have a mean.
pub fn mean(value: BuildingBlock, weight: Option<BuildingBlock>) -> Result<BuildingBlock> {
    const NAME: &str = "federated_mean";
    let value = federated(NAME, "value", value, Some(Placement::Clients))?;
    let has_mean = |dtype: DType| matches!(dtype.kind(), Kind::Float | Kind::Complex);
    if let Some(leaf) = first_not(&of(&value).member, has_mean) {
        return Err(wrong(Class::Type, NAME, "value", "has no mean")
            .expected("floating-point or complex numbers")
            .found(shown(leaf, value.ty())));
    }
    let Some(weight) = weight else { return factory::federated_mean(value, None) };
    let weight = federated(NAME, "weight", weight, Some(Placement::Clients))?;
    let weighs = |dtype: DType| dtype.is_integer() || dtype.kind() == Kind::Float;
    match of(&weight).member.as_tensor() {
        Some(tensor) if tensor.shape.is_scalar() && weighs(tensor.dtype) => {}
        _ => {
            return Err(wrong(Class::Type, NAME, "weight", "isn't one number at each client")
                .expected("an integer or floating-point scalar at CLIENTS")
                .found(weight.ty()));
        }
    }
    factory::federated_mean(value, Some(weight))
}

/// `federated_min(value)`.
///
/// # Errors
/// `Class::Type`: it isn't a value at clients. `Class::Value`: it has no order.
pub fn min(value: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_min(ordered("federated_min", value)?)
}

/// `federated_max(value)`.
///
/// # Errors
/// As for [`min`].
pub fn max(value: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_max(ordered("federated_max", value)?)
}

fn ordered(operation: &str, value: BuildingBlock) -> Result<BuildingBlock> {
    let value = federated(operation, "value", value, Some(Placement::Clients))?;
    let has_order = |dtype: DType| {
        dtype.is_integer() || (dtype.kind() == Kind::Float && dtype != DType::BFloat16)
    };
    match first_not(&of(&value).member, has_order) {
        None => Ok(value),
        Some(leaf) => Err(wrong(Class::Value, operation, "value", "has no order")
            .expected("integers or floating-point numbers")
            .found(shown(leaf, value.ty()))),
    }
}

/// The value to sum and whether its bound must be spread over it; the bound is one number, or one
/// for each of its arrays.
///
/// # Errors
/// `Class::Type`: it isn't integers at clients, or the bound isn't for it.
pub fn bound(
    operation: &str,
    argument: &str,
    value: BuildingBlock,
    bound: &BuildingBlock,
) -> Result<(BuildingBlock, bool)> {
    let value = federated(operation, "value", value, Some(Placement::Clients))?;
    if let Some(leaf) = first_not(&of(&value).member, DType::is_integer) {
        return Err(wrong(
            Class::Type,
            operation,
            "value",
            "holds something that isn't an integer",
        )
        .expected("integers at CLIENTS")
        .found(shown(leaf, value.ty())));
    }
    let member = &of(&value).member;
    if !bounds(bound.ty(), member) {
        return Err(wrong(Class::Type, operation, argument, "isn't a bound for `value`")
            .expected(match member.as_struct() {
                Some(_) => format!("one integer, or one integer for each field of {member}"),
                None => "one integer".to_owned(),
            })
            .found(bound.ty()));
    }
    let spread = bound.ty().as_tensor().is_some() && member.as_struct().is_some();
    Ok((value, spread))
}

/// Whether a bound is one integer, or a struct of bounds for the fields of what is bounded.
fn bounds(bound: &Type, bounded: &Type) -> bool {
    let mut pairs = vec![(bound, bounded)];
    while let Some((bound, bounded)) = pairs.pop() {
        match (bound.kind(), bounded.kind()) {
            (TypeKind::Tensor(tensor), TypeKind::Tensor(_) | TypeKind::Struct(_)) => {
                if !(tensor.shape.is_scalar() && tensor.dtype.is_integer()) {
                    return false;
                }
            }
            (TypeKind::Struct(bound), TypeKind::Struct(bounded)) => {
                let fields = || bound.fields().iter().zip(bounded.fields());
                if bound.len() != bounded.len() || fields().any(|(a, b)| a.name != b.name) {
                    return false;
                }
                pairs.extend(fields().map(|(a, b)| (&a.ty, &b.ty)));
            }
            _ => return false,
        }
    }
    true
}

/// One bound for each array of a struct.
///
/// # Errors
/// None that the struct's own type doesn't have.
pub fn spread_bound(bound: &BuildingBlock, over: &Type) -> Result<BuildingBlock> {
    enum Step<'a> {
        Visit(&'a Type),
        Build(&'a Type),
    }
    let mut steps = vec![Step::Visit(over)];
    let mut done = Vec::new();
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(ty) => match ty.as_struct() {
                Some(structure) => {
                    steps.push(Step::Build(ty));
                    let fields = structure.fields().iter().rev();
                    steps.extend(fields.map(|field| Step::Visit(&field.ty)));
                }
                None => done.push(bound.clone()),
            },
            Step::Build(ty) => {
                let structure = ty.as_struct().expect("only structs are built");
                let fields = done.split_off(done.len() - structure.len());
                let names = structure.fields().iter().map(|field| field.name.clone());
                done.push(BuildingBlock::structure(names.zip(fields).collect(), None)?);
            }
        }
    }
    Ok(done.pop().expect("the root was visited"))
}

/// `federated_secure_sum(value, max_input)`, both checked and spread.
///
/// # Errors
/// None for arguments that [`bound`] took.
pub fn secure_sum(value: BuildingBlock, max_input: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_secure_sum(value, max_input)
}

/// `federated_secure_sum_bitwidth(value, bitwidth)`, both checked and spread.
///
/// # Errors
/// None for arguments that [`bound`] took.
pub fn secure_sum_bitwidth(value: BuildingBlock, bitwidth: BuildingBlock) -> Result<BuildingBlock> {
    factory::federated_secure_sum_bitwidth(value, bitwidth)
}

/// The first array in the type that isn't of such an element type, or what else isn't an array.
fn first_not(ty: &Type, good: impl Fn(DType) -> bool) -> Option<&Type> {
    ty.leaves().find(|leaf| !leaf.as_tensor().is_some_and(|tensor| good(tensor.dtype)))
}

/// What is wrong and where it stands.
fn shown(leaf: &Type, whole: &Type) -> String {
    match whole.as_federated() {
        Some(of) if of.member == *leaf => whole.to_string(),
        None if whole == leaf => whole.to_string(),
        _ => format!("{leaf} in {whole}"),
    }
}
