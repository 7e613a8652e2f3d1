//! Operations on sequences, and on sequences at a placement.

use super::aggregate::check_summable;
use super::{federated, function, function_of, place, wrong};
use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::factory;
use crate::types::{Type, TypeKind};

/// What `sequence_map` becomes.
pub enum SequenceMap {
    /// A call over a sequence.
    Here(BuildingBlock),
    /// A call that gives the function to map over `arg`, which is at a placement.
    Mapped {
        /// Gives a function of a sequence; to be bound.
        function: BuildingBlock,
        /// The federated sequence.
        arg: BuildingBlock,
    },
}

/// `sequence_map(fn, arg)`.
///
/// # Errors
/// `Class::Value`: `fn` isn't a function. `Class::Type`: it doesn't fit `arg`, or that holds no
/// sequence.
pub fn sequence_map(fn_: BuildingBlock, arg: BuildingBlock) -> Result<SequenceMap> {
    const NAME: &str = "sequence_map";
    let (parameter, result) = function_of(NAME, "fn", &fn_)?;
    let element = match arg.ty().kind() {
        TypeKind::Sequence(element) => element,
        TypeKind::Federated(of) => match of.member.as_sequence() {
            Some(element) => element,
            None => return Err(no_sequence(Class::Type, NAME, "arg", &arg)),
        },
        _ => return Err(no_sequence(Class::Type, NAME, "arg", &arg)),
    };
    if !parameter.is_assignable_from(element)? {
        return Err(wrong(Class::Type, NAME, "fn", "doesn't take the elements of `arg`")
            .expected(format_args!("a function of {element}"))
            .found(fn_.ty()));
    }
    if arg.ty().as_sequence().is_some() {
        return factory::sequence_map(fn_, arg).map(SequenceMap::Here);
    }
    let sequences = Type::unnamed([fn_.ty().clone(), Type::sequence(parameter.clone())?]);
    let ty = Type::function(Some(sequences), Type::sequence(result.clone())?);
    let curried = factory::curried(BuildingBlock::intrinsic("sequence_map", ty))?;
    let function = BuildingBlock::call(curried, Some(fn_))?;
    Ok(SequenceMap::Mapped { function, arg })
}

/// `sequence_reduce(value, zero, op)`.
///
/// # Errors
/// `Class::NotImplemented`: `value` is neither a sequence nor at a placement. `Class::Value`: what
/// is at the placement isn't a sequence, `op` isn't a function. `Class::Type`: they don't fit.
pub fn sequence_reduce(
    value: BuildingBlock,
    zero: BuildingBlock,
    op: BuildingBlock,
) -> Result<BuildingBlock> {
    const NAME: &str = "sequence_reduce";
    match value.ty().kind() {
        TypeKind::Sequence(element) => {
            check_op(element, zero.ty(), &op)?;
            factory::sequence_reduce(value, zero, op)
        }
        TypeKind::Federated(of) => {
            let Some(element) = of.member.as_sequence() else {
                return Err(no_sequence(Class::Value, NAME, "value", &value));
            };
            let zero = federated(NAME, "zero", zero, Some(of.placement))?;
            let start = &super::of(&zero).member;
            check_op(element, start, &op)?;
            let parameter = Type::unnamed([of.member.clone(), start.clone()]);
            let argument = BuildingBlock::reference("arg", parameter.clone());
            let sequence = BuildingBlock::select_index(argument.clone(), 0)?;
            let first = BuildingBlock::select_index(argument, 1)?;
            let call = factory::sequence_reduce(sequence, first, op)?;
            let reduce = BuildingBlock::lambda(Some(("arg".into(), parameter)), call);
            let both = BuildingBlock::structure(vec![(None, value), (None, zero)], None)?;
            place::map(reduce, factory::federated_zip(both)?)
        }
        _ => Err(no_sequence(Class::NotImplemented, NAME, "value", &value)),
    }
}

/// Whether an operator takes what came of the elements before and the next one.
fn check_op(element: &Type, start: &Type, op: &BuildingBlock) -> Result<()> {
    const NAME: &str = "sequence_reduce";
    let of = function(NAME, "op", op)?;
    let given = Type::unnamed([start.clone(), element.clone()]);
    let wanted = Type::function(Some(given.clone()), start.clone());
    let fits = match &of.parameter {
        Some(parameter) => {
            parameter.is_assignable_from(&given)? && start.is_assignable_from(&of.result)?
        }
        None => false,
    };
    if fits {
        return Ok(());
    }
    Err(wrong(Class::Type, NAME, "op", "doesn't fit `zero` and the elements of `value`")
        .expected(wanted)
        .found(op.ty()))
}

/// `sequence_sum(value)`.
///
/// # Errors
/// `Class::Value`: it is no sequence and holds none. `Class::SumIncompatible`: the elements can't
/// be summed.
pub fn sequence_sum(value: BuildingBlock) -> Result<BuildingBlock> {
    const NAME: &str = "sequence_sum";
    match value.ty().kind() {
        TypeKind::Sequence(element) => {
            check_summable(NAME, "value", element, value.ty())?;
            factory::sequence_sum(value)
        }
        TypeKind::Federated(of) => {
            let Some(element) = of.member.as_sequence() else {
                return Err(no_sequence(Class::Value, NAME, "value", &value));
            };
            check_summable(NAME, "value", element, value.ty())?;
            let ty = Type::function(Some(of.member.clone()), element.clone());
            place::map(BuildingBlock::intrinsic("sequence_sum", ty), value)
        }
        _ => Err(no_sequence(Class::Value, NAME, "value", &value)),
    }
}

fn no_sequence(class: Class, operation: &str, argument: &str, value: &BuildingBlock) -> Error {
    wrong(class, operation, argument, "isn't a sequence")
        .expected("a sequence, or a sequence at a placement")
        .found(value.ty())
}

/// What `fn` of `sequence_map` is given, if `arg` holds sequences.
pub fn element_hint(arg: &BuildingBlock) -> Option<&Type> {
    let member = arg.ty().as_federated().map_or(arg.ty(), |of| &of.member);
    member.as_sequence()
}

/// What `op` of `sequence_reduce` is given, if `value` holds sequences.
pub fn reduce_hint(value: &BuildingBlock, zero: &BuildingBlock) -> Option<Type> {
    let start = zero.ty().as_federated().map_or(zero.ty(), |of| &of.member);
    Some(Type::unnamed([start.clone(), element_hint(value)?.clone()]))
}
