//! Subscripts: integers, slices, new dimensions, tensors of indices.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Element, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

pub(super) const ROWS: &[Row] = &[
    Row { names: "getitem", parameters: "self|input, index", rule: getitem },
    Row { names: "setitem", parameters: "self|input, index, value", rule: setitem },
    Row { names: "slice", parameters: "self|input, dim, start, end, step", rule: slice },
    Row { names: "narrow narrow_copy", parameters: "input|self, dim, start, length", rule: narrow },
    Row { names: "select", parameters: "input|self, dim, index", rule: select },
    Row { names: "index _unsafe_index", parameters: "self|input, indices", rule: index },
    Row {
        names: "index_put _index_put_impl_",
        parameters: "self|input, indices, values, accumulate, unsafe",
        rule: index_put,
    },
];

/// A bound of a slice brought into the dimension. Each comparison is a guard, unless it is known.
fn clamp(call: &mut Call<'_>, size: ExprId, bound: ExprId) -> Attempt<ExprId> {
    let zero = call.constant(0);
    let mut at = bound;
    if call.holds(Cmp::Lt, at, zero) {
        // A bound such as `-1` from the end; it may still be before the beginning.
        at = call.add(at, size)?;
        if call.holds(Cmp::Lt, at, zero) {
            return Ok(zero);
        }
    }
    Ok(if call.holds(Cmp::Le, at, size) { at } else { size })
}

/// Both bounds of a slice brought into the dimension.
pub(super) fn clamped(
    call: &mut Call<'_>,
    size: ExprId,
    start: ExprId,
    end: ExprId,
) -> Attempt<(ExprId, ExprId)> {
    Ok((clamp(call, size, start)?, clamp(call, size, end)?))
}

/// How many steps lead from one bound to the other.
pub(super) fn span(call: &mut Call<'_>, start: ExprId, end: ExprId, step: i64) -> Attempt<ExprId> {
    // None is a length like others.
    if !call.holds(Cmp::Le, start, end) {
        return Ok(call.constant(0));
    }
    let length = call.sub(end, start)?;
    if step == 1 {
        return Ok(length);
    }
    let step = call.constant(step);
    call.ceil_div(length, step)
}

/// The size that a slice leaves of a dimension.
fn sliced(
    call: &mut Call<'_>,
    size: ExprId,
    start: Option<ExprId>,
    end: Option<ExprId>,
    step: Option<ExprId>,
) -> Attempt<ExprId> {
    let step = step.map_or(1, |step| call.fixed(step));
    if step < 1 {
        return refuse("a step that isn't positive");
    }
    let start = start.unwrap_or_else(|| call.constant(0));
    let (start, end) = clamped(call, size, start, end.unwrap_or(size))?;
    span(call, start, end, step)
}

/// An integer subscript is within the dimension.
fn require_inside(call: &mut Call<'_>, size: ExprId, index: ExprId) -> Attempt<()> {
    let zero = call.constant(0);
    if call.holds(Cmp::Ge, index, zero) {
        call.require(Cmp::Lt, index, size, "an index is beyond its dimension")
    } else {
        let from_end = call.add(index, size)?;
        call.require(Cmp::Ge, from_end, zero, "an index is beyond its dimension")
    }
}

fn optional(call: &mut Call<'_>, arg: &Arg) -> Attempt<Option<ExprId>> {
    match arg {
        Arg::None => Ok(None),
        _ => call.expr_of(arg).map(Some),
    }
}

/// Sizes after subscripts, where the dimensions are that tensors index.
struct Subscripted {
    sizes: Sizes,
    /// Each tensor of indices, with the place of its dimension in `sizes`.
    tensors: Vec<(usize, Sizes)>,
}

/// A sequence of numbers as the tensor that PyTorch makes of it.
fn sequence_sizes(call: &mut Call<'_>, items: &[Arg]) -> Attempt<Sizes> {
    let length = call.constant(i64::try_from(items.len()).unwrap_or(i64::MAX));
    match items.first() {
        Some(Arg::List(inner)) => {
            let mut sizes: Sizes = [length].into_iter().collect();
            sizes.extend(sequence_sizes(call, &inner.clone())?);
            Ok(sizes)
        }
        Some(Arg::Int(_)) | None => Ok([length].into_iter().collect()),
        _ => refuse("a sequence of other things than integers as an index"),
    }
}

fn subscript(call: &mut Call<'_>, input: &Sizes, index: &Arg) -> Attempt<Subscripted> {
    let subscripts: Vec<Arg> = match index {
        Arg::Tuple(items) => items.clone(),
        other => vec![other.clone()],
    };
    let consumed = subscripts
        .iter()
        .filter(|item| !matches!(item, Arg::None | Arg::Ellipsis | Arg::Bool(_)))
        .count();
    let Some(skipped) = input.len().checked_sub(consumed) else {
        return refuse("more subscripts than dimensions");
    };
    let mut left = input.iter().copied();
    let mut done = Subscripted { sizes: Sizes::new(), tensors: Vec::new() };
    for item in &subscripts {
        match item {
            Arg::None => {
                let one = call.constant(1);
                done.sizes.push(one);
            }
            Arg::Ellipsis => done.sizes.extend(left.by_ref().take(skipped)),
            Arg::Bool(_) => return refuse("a truth value as an index"),
            _ => {
                let Some(size) = left.next() else {
                    return refuse("more subscripts than dimensions");
                };
                subscript_dimension(call, &mut done, size, item)?;
            }
        }
    }
    done.sizes.extend(left);
    Ok(done)
}

fn subscript_dimension(
    call: &mut Call<'_>,
    done: &mut Subscripted,
    size: ExprId,
    item: &Arg,
) -> Attempt<()> {
    match item {
        Arg::Int(index) => require_inside(call, size, *index),
        Arg::Slice(parts) => {
            let [start, stop, step] = &**parts;
            let (start, stop) = (optional(call, start)?, optional(call, stop)?);
            let step = optional(call, step)?;
            let length = sliced(call, size, start, stop, step)?;
            done.sizes.push(length);
            Ok(())
        }
        Arg::Tensor { element: Element::Mask, .. } => refuse("a mask as an index"),
        Arg::Tensor { sizes, .. } => {
            done.tensors.push((done.sizes.len(), sizes.clone()));
            done.sizes.push(size);
            Ok(())
        }
        Arg::List(items) => {
            let sizes = sequence_sizes(call, items)?;
            done.tensors.push((done.sizes.len(), sizes));
            done.sizes.push(size);
            Ok(())
        }
        _ => refuse("an index of another kind"),
    }
}

/// The dimensions that tensors index are replaced by the tensors' common one: where they are, if they
/// are neighbours, else in front.
fn gathered(call: &mut Call<'_>, subscripted: Subscripted) -> Attempt<Sizes> {
    let Subscripted { sizes, tensors } = subscripted;
    let (Some(first), Some(last)) = (tensors.first(), tensors.last()) else { return Ok(sizes) };
    let neighbours = last.0 - first.0 + 1 == tensors.len();
    let at = if neighbours { first.0 } else { 0 };
    let all: Vec<Sizes> = tensors.iter().map(|(_, sizes)| sizes.clone()).collect();
    let common = call.broadcast_all(&all)?;
    let mut result: Sizes = sizes
        .iter()
        .enumerate()
        .filter(|(at, _)| tensors.iter().all(|(taken, _)| taken != at))
        .map(|(_, &size)| size)
        .collect();
    for (i, size) in common.into_iter().enumerate() {
        result.insert(at + i, size);
    }
    Ok(result)
}

fn subscript_result(call: &mut Call<'_>) -> Attempt<Sizes> {
    let input = call.tensor("self")?;
    // None is a subscript of its own.
    let index = call.bound[1].clone().unwrap_or(Arg::Opaque);
    let subscripted = subscript(call, &input, &index)?;
    gathered(call, subscripted)
}

fn getitem(call: &mut Call<'_>) -> Outcome {
    Ok(vec![subscript_result(call)?])
}

/// Has no result.
fn setitem(call: &mut Call<'_>) -> Outcome {
    let target = subscript_result(call)?;
    let mut value = call.tensor("value")?;
    // Leading ones of the value are dropped.
    while value.len() > target.len()
        && value.first().is_some_and(|&size| call.ctx.as_constant(size) == Some(1))
    {
        value.remove(0);
    }
    call.broadcast_to(&value, &target)?;
    Ok(Vec::new())
}

fn slice(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("self")?;
    let dim = call.dim_or("dim", 0, sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    let bound = |call: &mut Call<'_>, name| match call.get(name).cloned() {
        Some(arg) => call.expr_of(&arg).map(Some),
        None => Ok(None),
    };
    let (start, end, step) = (bound(call, "start")?, bound(call, "end")?, bound(call, "step")?);
    sizes[dim] = sliced(call, size, start, end, step)?;
    Ok(vec![sizes])
}

fn narrow(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim("dim", sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    if call.is_tensor("start") {
        return refuse("a bound that is a tensor");
    }
    let (mut start, length) = (call.expr("start")?, call.expr("length")?);
    let zero = call.constant(0);
    if call.holds(Cmp::Lt, start, zero) {
        start = call.add(start, size)?;
        call.require(Cmp::Ge, start, zero, "an index is beyond its dimension")?;
    }
    call.require_size(length)?;
    let end = call.add(start, length)?;
    call.require(Cmp::Le, end, size, "an index is beyond its dimension")?;
    sizes[dim] = length;
    Ok(vec![sizes])
}

fn select(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim("dim", sizes.len())?;
    if sizes.is_empty() {
        return refuse("there is no such dimension");
    }
    let index = call.expr("index")?;
    let size = sizes.remove(dim);
    require_inside(call, size, index)?;
    Ok(vec![sizes])
}

/// `aten::index`: a tensor or `None` for each dimension.
fn indexed(call: &mut Call<'_>) -> Attempt<Sizes> {
    let input = call.tensor("self")?;
    let Some(Arg::List(items) | Arg::Tuple(items)) = call.get("indices").cloned() else {
        return refuse("an index of another kind");
    };
    let all = Arg::Slice(Box::new([Arg::None, Arg::None, Arg::None]));
    let items =
        items.into_iter().map(|item| if item == Arg::None { all.clone() } else { item }).collect();
    let subscripted = subscript(call, &input, &Arg::Tuple(items))?;
    gathered(call, subscripted)
}

fn index(call: &mut Call<'_>) -> Outcome {
    Ok(vec![indexed(call)?])
}

fn index_put(call: &mut Call<'_>) -> Outcome {
    let target = indexed(call)?;
    let values = call.tensor("values")?;
    call.broadcast_to(&values, &target)?;
    Ok(vec![call.tensor("self")?])
}
