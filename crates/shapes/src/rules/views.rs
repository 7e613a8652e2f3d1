//! Views and reshapes: the same elements under other sizes.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "view reshape _unsafe_view _reshape_alias",
        parameters: "input|self, *shape|size",
        rule: reshape,
    },
    Row { names: "view_as reshape_as", parameters: "self|input, other", rule: reshape_as },
    Row { names: "permute", parameters: "input|self, *dims", rule: permute },
    Row {
        names: "transpose swapaxes swapdims",
        parameters: "input|self, dim0|axis0, dim1|axis1",
        rule: transpose,
    },
    Row { names: "t T numpy_T", parameters: "input|self", rule: reversed },
    Row { names: "mT mH adjoint H", parameters: "input|self", rule: matrix_transpose },
    Row { names: "squeeze", parameters: "input|self, dim|axis", rule: squeeze },
    Row { names: "unsqueeze", parameters: "input|self, dim", rule: unsqueeze },
    Row { names: "flatten", parameters: "input|self, start_dim, end_dim", rule: flatten },
    Row { names: "ravel", parameters: "input|self", rule: flatten },
    Row { names: "unflatten", parameters: "input|self, dim, sizes", rule: unflatten },
    Row { names: "expand", parameters: "input|self, *size, *, implicit", rule: expand },
    Row { names: "broadcast_to", parameters: "input|self, *size", rule: expand },
    Row { names: "expand_as", parameters: "self|input, other", rule: expand_as },
    Row { names: "movedim moveaxis", parameters: "input|self, source, destination", rule: movedim },
    Row {
        names: "diagonal",
        parameters: "input|self, offset, dim1, dim2",
        rule: |call| diagonal(call, (0, 1)),
    },
    Row {
        names: "linalg_diagonal",
        parameters: "input|self|A, *, offset, dim1, dim2",
        rule: |call| diagonal(call, (-2, -1)),
    },
    Row { names: "diag_embed", parameters: "input|self, offset, dim1, dim2", rule: diag_embed },
    Row { names: "diagflat", parameters: "input|self, offset", rule: diagflat },
    Row {
        names: "as_strided",
        parameters: "input|self, size, stride, storage_offset",
        rule: as_strided,
    },
    Row { names: "atleast_1d", parameters: "tensor|input", rule: |call| at_least(call, 1) },
    Row { names: "atleast_2d", parameters: "tensor|input", rule: |call| at_least(call, 2) },
    Row { names: "atleast_3d", parameters: "tensor|input", rule: |call| at_least(call, 3) },
    Row { names: "diag", parameters: "input|self, diagonal", rule: diag },
    Row {
        names: "unfold aten::unfold",
        parameters: "self|input, dimension, size, step",
        rule: unfold,
    },
    Row { names: "view_as_real", parameters: "input|self", rule: view_as_real },
    Row { names: "view_as_complex", parameters: "input|self", rule: view_as_complex },
    Row { names: "roll", parameters: "input|self, shifts, dims", rule: roll },
    Row { names: "rot90", parameters: "input|self, k, dims", rule: rot90 },
];

/// Sizes of as many elements; one of them may be -1 and is what is left.
pub(super) fn reshaped(call: &mut Call<'_>, from: &[ExprId], to: &[ExprId]) -> Attempt<Sizes> {
    let numel = call.numel(from)?;
    let mut open = None;
    let mut known = Sizes::new();
    for (at, &size) in to.iter().enumerate() {
        if call.ctx.hint(size) == -1 {
            if call.fixed(size) == -1 && open.replace(at).is_some() {
                return refuse("two sizes are left open");
            }
        } else {
            call.require_size(size)?;
            known.push(size);
        }
    }
    let product = call.numel(&known)?;
    let mut sizes: Sizes = to.iter().copied().collect();
    if let Some(at) = open {
        sizes[at] = call.exact_div(numel, product)?;
    } else {
        call.require(Cmp::Eq, numel, product, "the number of elements would change")?;
    }
    Ok(sizes)
}

fn reshape(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    if matches!(call.get("shape"), Some(Arg::List(items)) if matches!(items[..], [Arg::Opaque])) {
        return refuse("a view as another type");
    }
    let shape = call.exprs("shape")?;
    Ok(vec![reshaped(call, &input, &shape)?])
}

fn reshape_as(call: &mut Call<'_>) -> Outcome {
    let (input, other) = (call.tensor("self")?, call.tensor("other")?);
    Ok(vec![reshaped(call, &input, &other)?])
}

fn permute(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dims = call.ints("dims")?;
    if dims.len() != input.len() {
        return refuse("there is no such dimension");
    }
    let sizes: Attempt<Sizes> =
        dims.into_iter().map(|dim| Ok(input[Call::wrap(dim, input.len())?])).collect();
    Ok(vec![sizes?])
}

fn transpose(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let (a, b) = (call.dim("dim0", sizes.len())?, call.dim("dim1", sizes.len())?);
    if !sizes.is_empty() {
        sizes.swap(a, b);
    }
    Ok(vec![sizes])
}

fn reversed(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    sizes.reverse();
    Ok(vec![sizes])
}

fn matrix_transpose(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    match sizes.len() {
        0 => {}
        1 => return refuse("there is no such dimension"),
        rank => sizes.swap(rank - 2, rank - 1),
    }
    Ok(vec![sizes])
}

fn squeeze(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let chosen = call.dims("dim", input.len())?;
    if chosen.is_none() && call.get("dim").is_some() {
        // An empty sequence chooses nothing.
        return Ok(vec![input]);
    }
    let one = call.constant(1);
    let mut sizes = Sizes::new();
    for (at, &size) in input.iter().enumerate() {
        let candidate = chosen.as_ref().is_none_or(|chosen| chosen.contains(&at));
        if !(candidate && call.holds(Cmp::Eq, size, one)) {
            sizes.push(size);
        }
    }
    Ok(vec![sizes])
}

fn unsqueeze(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.int("dim")?;
    let at = Call::wrap(dim, sizes.len() + 1)?;
    let one = call.constant(1);
    sizes.insert(at, one);
    Ok(vec![sizes])
}

fn flatten(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let start = call.dim_or("start_dim", 0, input.len())?;
    let end = call.dim_or("end_dim", -1, input.len())?;
    if input.is_empty() {
        let one = call.constant(1);
        return Ok(vec![[one].into_iter().collect()]);
    }
    if start > end {
        return refuse("there is no such dimension");
    }
    let mut sizes: Sizes = input[..start].iter().copied().collect();
    sizes.push(call.numel(&input[start..=end])?);
    sizes.extend_from_slice(&input[end + 1..]);
    Ok(vec![sizes])
}

fn unflatten(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dim = call.dim("dim", input.len())?;
    let parts = call.exprs("sizes")?;
    let Some(&size) = input.get(dim) else { return refuse("there is no such dimension") };
    let parts = reshaped(call, &[size], &parts)?;
    let mut sizes: Sizes = input[..dim].iter().copied().collect();
    sizes.extend_from_slice(&parts);
    sizes.extend_from_slice(&input[dim + 1..]);
    Ok(vec![sizes])
}

fn expanded(call: &mut Call<'_>, input: &[ExprId], to: &[ExprId]) -> Attempt<Sizes> {
    let Some(lead) = to.len().checked_sub(input.len()) else {
        return refuse("fewer dimensions than the tensor has");
    };
    let mut sizes = Sizes::new();
    for (at, &size) in to.iter().enumerate() {
        let old = at.checked_sub(lead).map(|at| input[at]);
        let keeps = call.ctx.hint(size) == -1 && call.fixed(size) == -1;
        sizes.push(match old {
            Some(old) if keeps => old,
            Some(old) => {
                let one = call.constant(1);
                if call.ctx.hint(old) == 1 && call.ctx.hint(size) != 1 {
                    call.require(Cmp::Eq, old, one, "sizes don't broadcast")?;
                    size
                } else {
                    call.unify(size, old)?
                }
            }
            None => size,
        });
        if !keeps {
            // -1 would keep what there is.
            call.require_size(size)?;
        }
    }
    Ok(sizes)
}

fn expand(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let to = call.exprs("size")?;
    Ok(vec![expanded(call, &input, &to)?])
}

fn expand_as(call: &mut Call<'_>) -> Outcome {
    let (input, to) = (call.tensor("self")?, call.tensor("other")?);
    Ok(vec![expanded(call, &input, &to)?])
}

fn movedim(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let rank = input.len();
    let (from, to) = (call.dims("source", rank)?, call.dims("destination", rank)?);
    let (Some(from), Some(to)) = (from, to) else { return Ok(vec![input]) };
    if from.len() != to.len() {
        return refuse("there is no such dimension");
    }
    let mut places: Vec<Option<ExprId>> = vec![None; rank];
    for (&from, &to) in from.iter().zip(&to) {
        places[to] = input.get(from).copied();
    }
    let mut others = (0..rank).filter(|at| !from.contains(at)).map(|at| input[at]);
    let sizes: Option<Sizes> =
        places.into_iter().map(|place| place.or_else(|| others.next())).collect();
    match sizes {
        Some(sizes) => Ok(vec![sizes]),
        None => refuse("there is no such dimension"),
    }
}

/// The length of a diagonal.
fn diagonal_length(
    call: &mut Call<'_>,
    rows: ExprId,
    columns: ExprId,
    offset: i64,
) -> Attempt<ExprId> {
    let (rows, columns) = if offset >= 0 {
        (rows, call.plus(columns, -offset)?)
    } else {
        (call.plus(rows, offset)?, columns)
    };
    let shorter = if call.holds(Cmp::Le, rows, columns) { rows } else { columns };
    let zero = call.constant(0);
    Ok(if call.holds(Cmp::Ge, shorter, zero) { shorter } else { zero })
}

fn diagonal(call: &mut Call<'_>, (first, second): (i64, i64)) -> Outcome {
    let input = call.tensor("input")?;
    let rank = input.len();
    let (a, b) = (call.dim_or("dim1", first, rank)?, call.dim_or("dim2", second, rank)?);
    if a == b || rank < 2 {
        return refuse("there is no such dimension");
    }
    let offset = call.int_or("offset", 0)?;
    let length = diagonal_length(call, input[a], input[b], offset)?;
    let mut sizes: Sizes = (0..rank).filter(|&at| at != a && at != b).map(|at| input[at]).collect();
    sizes.push(length);
    Ok(vec![sizes])
}

fn diag_embed(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let Some(last) = sizes.pop() else { return refuse("there is no such dimension") };
    let rank = sizes.len() + 2;
    let (a, b) = (call.dim_or("dim1", -2, rank)?, call.dim_or("dim2", -1, rank)?);
    let offset = call.int_or("offset", 0)?;
    let side = call.plus(last, offset.abs())?;
    for at in [a.min(b), a.max(b)] {
        sizes.insert(at, side);
    }
    Ok(vec![sizes])
}

fn diag(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let offset = call.int_or("diagonal", 0)?;
    match input[..] {
        [length] => {
            let side = call.plus(length, offset.abs())?;
            Ok(vec![[side, side].into_iter().collect()])
        }
        [rows, columns] => {
            let length = diagonal_length(call, rows, columns, offset)?;
            Ok(vec![[length].into_iter().collect()])
        }
        _ => refuse("there is no such dimension"),
    }
}

fn unfold(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("self")?;
    let dim = call.dim("dimension", sizes.len())?;
    let (window, step) = (call.expr("size")?, call.expr("step")?);
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    call.require(Cmp::Le, window, size, "the window is larger than the dimension")?;
    let room = call.sub(size, window)?;
    let steps = call.floor_div(room, step)?;
    sizes[dim] = call.plus(steps, 1)?;
    sizes.push(window);
    Ok(vec![sizes])
}

fn view_as_real(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    sizes.push(call.constant(2));
    Ok(vec![sizes])
}

fn view_as_complex(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    sizes.pop();
    Ok(vec![sizes])
}

fn rot90(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let turns = call.int_or("k", 1)?;
    let dims = call.dims("dims", sizes.len())?.unwrap_or_else(|| vec![0, 1]);
    let [a, b] = dims[..] else { return refuse("there is no such dimension") };
    if turns % 2 != 0 {
        sizes.swap(a, b);
    }
    Ok(vec![sizes])
}

/// By how much is a matter of data.
fn roll(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    call.dims("dims", sizes.len())?;
    Ok(vec![sizes])
}

fn diagflat(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let numel = call.numel(&input)?;
    let offset = call.int_or("offset", 0)?;
    let side = call.plus(numel, offset.abs())?;
    Ok(vec![[side, side].into_iter().collect()])
}

/// What the storage must hold is an error of the operation itself, at each call.
fn as_strided(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.exprs("size")?])
}

fn at_least(call: &mut Call<'_>, rank: usize) -> Outcome {
    let mut sizes = call.tensor("tensor")?;
    let one = call.constant(1);
    if sizes.is_empty() {
        sizes.push(one);
    }
    if rank >= 2 && sizes.len() == 1 {
        sizes.insert(0, one);
    }
    if rank >= 3 && sizes.len() == 2 {
        sizes.push(one);
    }
    Ok(vec![sizes])
}
