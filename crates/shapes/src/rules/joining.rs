//! Tensors put together and taken apart.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

pub(super) const ROWS: &[Row] = &[
    Row { names: "cat concat concatenate", parameters: "tensors, dim|axis", rule: cat },
    Row { names: "stack", parameters: "tensors, dim", rule: stack },
    Row { names: "hstack", parameters: "tensors", rule: |call| stacked(call, 1, 1, 0) },
    Row { names: "vstack row_stack", parameters: "tensors", rule: |call| stacked(call, 2, 0, 0) },
    Row { names: "column_stack", parameters: "tensors", rule: column_stack },
    Row { names: "dstack", parameters: "tensors", rule: |call| stacked(call, 3, 2, 2) },
    Row {
        names: "split unsafe_split split_with_sizes",
        parameters: "tensor|self|input, split_size_or_sections|split_size|split_sizes, dim",
        rule: split,
    },
    Row { names: "chunk unsafe_chunk", parameters: "input|self, chunks, dim", rule: chunk },
    Row {
        names: "tensor_split",
        parameters: "input|self, indices_or_sections|sections|indices, dim",
        rule: |call| {
            let rank = call.tensor("input")?.len();
            let dim = call.dim_or("dim", 0, rank)?;
            tensor_split(call, dim)
        },
    },
    Row {
        names: "hsplit",
        parameters: "input|self, indices_or_sections|sections|indices",
        rule: |call| {
            let rank = call.tensor("input")?.len();
            tensor_split(call, usize::from(rank > 1))
        },
    },
    Row {
        names: "vsplit",
        parameters: "input|self, indices_or_sections|sections|indices",
        rule: |call| tensor_split(call, 0),
    },
    Row {
        names: "dsplit",
        parameters: "input|self, indices_or_sections|sections|indices",
        rule: |call| tensor_split(call, 2),
    },
    Row {
        names: "pad_sequence",
        parameters: "sequences, batch_first, padding_value, padding_side",
        rule: pad_sequence,
    },
    Row { names: "_chunk_cat", parameters: "tensors, dim, num_chunks", rule: chunk_cat },
    Row { names: "unbind", parameters: "input|self, dim", rule: unbind },
    Row { names: "meshgrid", parameters: "*tensors, *, indexing", rule: meshgrid },
    Row { names: "broadcast_tensors", parameters: "*tensors", rule: broadcast_tensors },
    Row { names: "block_diag", parameters: "*tensors", rule: block_diag },
    Row { names: "repeat", parameters: "self|input, *repeats", rule: repeat },
    Row { names: "tile", parameters: "input|self, *dims", rule: tile },
    Row {
        names: "repeat_interleave",
        parameters: "input|self, repeats, dim, *, output_size",
        rule: repeat_interleave,
    },
    Row { names: "cartesian_prod", parameters: "*tensors", rule: cartesian_prod },
];

fn join(call: &mut Call<'_>, tensors: &[Sizes], dim: usize) -> Attempt<Sizes> {
    let Some((first, others)) = tensors.split_first() else { return refuse("there is no tensor") };
    let mut sizes = first.clone();
    let Some(mut length) = sizes.get(dim).copied() else {
        return refuse("there is no such dimension");
    };
    for other in others {
        if other.len() != sizes.len() {
            return refuse("tensors that must have as many dimensions haven't");
        }
        for at in 0..sizes.len() {
            if at == dim {
                length = call.add(length, other[at])?;
            } else {
                sizes[at] = call.unify(sizes[at], other[at])?;
            }
        }
    }
    sizes[dim] = length;
    Ok(sizes)
}

fn cat(call: &mut Call<'_>) -> Outcome {
    let mut tensors = call.tensor_list("tensors")?;
    // Empty vectors may stand for nothing, whatever the others are.
    if tensors.iter().any(|sizes| sizes.len() != 1) {
        tensors
            .retain(|sizes| !matches!(sizes[..], [size] if call.ctx.as_constant(size) == Some(0)));
    }
    let rank = tensors.first().map_or(0, |sizes| sizes.len());
    let dim = call.dim_or("dim", 0, rank)?;
    Ok(vec![join(call, &tensors, dim)?])
}

fn stack(call: &mut Call<'_>) -> Outcome {
    let tensors = call.tensor_list("tensors")?;
    let Some((first, others)) = tensors.split_first() else { return refuse("there is no tensor") };
    let dim = call.int_or("dim", 0)?;
    let dim = Call::wrap(dim, first.len() + 1)?;
    let mut sizes = first.clone();
    for other in others {
        sizes = call.unify_all(&sizes, other)?;
    }
    let count = call.constant(i64::try_from(tensors.len()).unwrap_or(i64::MAX));
    sizes.insert(dim, count);
    Ok(vec![sizes])
}

/// Joins tensors that were given at least so many dimensions. `dim` is for tensors of at least two
/// dimensions, `flat` for vectors.
fn stacked(call: &mut Call<'_>, rank: usize, dim: usize, flat: usize) -> Outcome {
    let tensors = call.tensor_list("tensors")?;
    let one = call.constant(1);
    let raised: Vec<Sizes> = tensors
        .into_iter()
        .map(|mut sizes| {
            if sizes.is_empty() {
                sizes.push(one);
            }
            if rank >= 2 && sizes.len() == 1 {
                sizes.insert(0, one);
            }
            if rank >= 3 && sizes.len() == 2 {
                sizes.push(one);
            }
            sizes
        })
        .collect();
    let vectors = raised.first().is_some_and(|sizes| sizes.len() == 1);
    Ok(vec![join(call, &raised, if vectors { flat } else { dim })?])
}

/// Vectors are columns.
fn column_stack(call: &mut Call<'_>) -> Outcome {
    let tensors = call.tensor_list("tensors")?;
    let one = call.constant(1);
    let columns: Vec<Sizes> = tensors
        .into_iter()
        .map(|mut sizes| {
            while sizes.len() < 2 {
                sizes.push(one);
            }
            sizes
        })
        .collect();
    Ok(vec![join(call, &columns, 1)?])
}

/// The tensor with one size replaced, for each of the sizes.
fn with_sizes(input: &Sizes, dim: usize, lengths: impl IntoIterator<Item = ExprId>) -> Vec<Sizes> {
    lengths
        .into_iter()
        .map(|length| {
            let mut sizes = input.clone();
            sizes[dim] = length;
            sizes
        })
        .collect()
}

/// More results than this would make a trace of their own.
const MAX_PARTS: i64 = 4096;

/// Parts of a length, the last one what is left. Their number is a guard.
fn equal_parts(call: &mut Call<'_>, size: ExprId, length: ExprId) -> Attempt<Vec<ExprId>> {
    let zero = call.constant(0);
    if call.ctx.hint(length) == 0 || call.ctx.hint(size) == 0 {
        call.require(Cmp::Eq, size, zero, "parts without length")?;
        return Ok(vec![zero]);
    }
    let count = call.ceil_div(size, length)?;
    let count = call.fixed(count);
    if count > MAX_PARTS {
        return refuse("too many results");
    }
    let before = call.times(length, count - 1)?;
    let last = call.sub(size, before)?;
    let mut parts = vec![length; usize::try_from(count - 1).unwrap_or(0)];
    parts.push(last);
    Ok(parts)
}

fn split(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("tensor")?;
    let dim = call.dim_or("dim", 0, input.len())?;
    let Some(&size) = input.get(dim) else { return refuse("there is no such dimension") };
    let sections = call.get("split_size").cloned();
    let parts = if matches!(sections, Some(Arg::List(_) | Arg::Tuple(_))) {
        let parts = call.exprs("split_size")?;
        let sum = call.ctx.sum(&parts)?;
        call.require(Cmp::Eq, sum, size, "the parts are not the whole")?;
        for &part in &parts {
            call.require_size(part)?;
        }
        parts.to_vec()
    } else {
        let length = call.expr("split_size")?;
        call.require_size(length)?;
        equal_parts(call, size, length)?
    };
    Ok(with_sizes(&input, dim, parts))
}

fn chunk(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dim = call.dim_or("dim", 0, input.len())?;
    let chunks = call.expr("chunks")?;
    let Some(&size) = input.get(dim) else { return refuse("there is no such dimension") };
    if call.ctx.hint(size) == 0 {
        return refuse("parts without length");
    }
    let length = call.ceil_div(size, chunks)?;
    let parts = equal_parts(call, size, length)?;
    Ok(with_sizes(&input, dim, parts))
}

/// As long as the longest.
fn pad_sequence(call: &mut Call<'_>) -> Outcome {
    let tensors = call.tensor_list("sequences")?;
    let batch_first = call.flag_or("batch_first", false)?;
    let count = call.constant(i64::try_from(tensors.len()).unwrap_or(i64::MAX));
    let (mut lengths, mut rest) = (Sizes::new(), None::<Sizes>);
    for mut sizes in tensors {
        if sizes.is_empty() {
            return refuse("there is no such dimension");
        }
        lengths.push(sizes.remove(0));
        rest = Some(match rest {
            Some(rest) => call.unify_all(&rest, &sizes)?,
            None => sizes,
        });
    }
    let longest = call.ctx.max(&lengths)?;
    let mut sizes = if batch_first { [count, longest] } else { [longest, count] }
        .into_iter()
        .collect::<Sizes>();
    sizes.extend(rest.unwrap_or_default());
    Ok(vec![sizes])
}

/// Each tensor is flattened from `dim` on after it was cut into as many parts, and these are joined.
fn chunk_cat(call: &mut Call<'_>) -> Outcome {
    let tensors = call.tensor_list("tensors")?;
    let dim = call.int("dim")?;
    let chunks = call.expr("num_chunks")?;
    let mut flat = Vec::new();
    for sizes in tensors {
        let at = Call::wrap(dim, sizes.len())?;
        let length = call.ceil_div(sizes[at], chunks)?;
        let inner = call.numel(&sizes[at + 1..])?;
        let mut joined: Sizes = sizes[..at].iter().copied().collect();
        joined.push(chunks);
        joined.push(call.mul(length, inner)?);
        flat.push(joined);
    }
    let last = flat.first().map_or(0, |sizes| sizes.len().saturating_sub(1));
    Ok(vec![join(call, &flat, last)?])
}

fn tensor_split(call: &mut Call<'_>, dim: usize) -> Outcome {
    let input = call.tensor("input")?;
    let Some(&size) = input.get(dim) else { return refuse("there is no such dimension") };
    if call.is_tensor("sections") {
        return refuse("the number of results depends on data");
    }
    if matches!(call.get("sections"), Some(Arg::List(_) | Arg::Tuple(_))) {
        let cuts = call.exprs("sections")?;
        let mut parts = Vec::with_capacity(cuts.len() + 1);
        let mut start = call.constant(0);
        for end in cuts.into_iter().chain([size]) {
            let (from, to) = super::indexing::clamped(call, size, start, end)?;
            parts.push(super::indexing::span(call, from, to, 1)?);
            start = end;
        }
        return Ok(with_sizes(&input, dim, parts));
    }
    let sections = call.int("sections")?;
    if !(1..=MAX_PARTS).contains(&sections) {
        return refuse("too many results");
    }
    // The first size % sections parts are one longer.
    let count = call.constant(sections);
    let length = call.floor_div(size, count)?;
    let rest = call.ctx.modulus(size, count)?;
    let rest = call.fixed(rest);
    let longer = call.plus(length, 1)?;
    let parts = (0..sections).map(|i| if i < rest { longer } else { length });
    Ok(with_sizes(&input, dim, parts))
}

fn unbind(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim_or("dim", 0, sizes.len())?;
    if sizes.is_empty() {
        return refuse("there is no such dimension");
    }
    let count = sizes.remove(dim);
    let count = call.fixed(count);
    if count > MAX_PARTS {
        return refuse("too many results");
    }
    Ok(vec![sizes; usize::try_from(count).unwrap_or(0)])
}

/// The tensors of a variadic parameter.
fn variadic(call: &Call<'_>) -> Attempt<Vec<Sizes>> {
    call.tensor_list("tensors")
}

fn meshgrid(call: &mut Call<'_>) -> Outcome {
    let tensors = variadic(call)?;
    let one = call.constant(1);
    let mut sizes: Sizes =
        tensors.iter().map(|sizes| sizes.first().copied().unwrap_or(one)).collect();
    if call.text("indexing") == Some("xy") && sizes.len() >= 2 {
        sizes.swap(0, 1);
    }
    Ok(vec![sizes; tensors.len()])
}

fn broadcast_tensors(call: &mut Call<'_>) -> Outcome {
    let tensors = variadic(call)?;
    let sizes = call.broadcast_all(&tensors)?;
    Ok(vec![sizes; tensors.len()])
}

fn block_diag(call: &mut Call<'_>) -> Outcome {
    let tensors = variadic(call)?;
    let (mut rows, mut columns) = (call.constant(0), call.constant(0));
    let one = call.constant(1);
    for sizes in tensors {
        let (height, width) = match sizes[..] {
            [] => (one, one),
            [width] => (one, width),
            [height, width] => (height, width),
            _ => return refuse("tensors of at most two dimensions"),
        };
        rows = call.add(rows, height)?;
        columns = call.add(columns, width)?;
    }
    Ok(vec![[rows, columns].into_iter().collect()])
}

/// Sizes times repetitions, both aligned at the end.
fn repeated(call: &mut Call<'_>, input: &[ExprId], repeats: &[ExprId]) -> Attempt<Sizes> {
    let rank = input.len().max(repeats.len());
    (0..rank)
        .map(|at| {
            let size = (at + input.len()).checked_sub(rank).map(|at| input[at]);
            let times = (at + repeats.len()).checked_sub(rank).map(|at| repeats[at]);
            match (size, times) {
                (Some(size), Some(times)) => call.mul(size, times),
                (Some(only), None) | (None, Some(only)) => Ok(only),
                (None, None) => refuse("there is no such dimension"),
            }
        })
        .collect()
}

fn repeat(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("self")?;
    let repeats = call.exprs("repeats")?;
    if repeats.len() < input.len() {
        return refuse("fewer dimensions than the tensor has");
    }
    for &times in &repeats {
        call.require_size(times)?;
    }
    Ok(vec![repeated(call, &input, &repeats)?])
}

fn tile(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let repeats = call.exprs("dims")?;
    Ok(vec![repeated(call, &input, &repeats)?])
}

fn repeat_interleave(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    if call.is_tensor("repeats") {
        let dim = call.get("dim").is_some();
        return match call.get("output_size").cloned() {
            Some(size) if dim => {
                let mut sizes = input;
                let dim = call.dim("dim", sizes.len())?;
                sizes[dim] = call.expr_of(&size)?;
                Ok(vec![sizes])
            }
            _ => refuse("a size depends on data"),
        };
    }
    let repeats = call.expr("repeats")?;
    call.require_size(repeats)?;
    if call.get("dim").is_none() {
        let numel = call.numel(&input)?;
        let size = call.mul(numel, repeats)?;
        return Ok(vec![[size].into_iter().collect()]);
    }
    let mut sizes = input;
    let dim = call.dim("dim", sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    sizes[dim] = call.mul(size, repeats)?;
    Ok(vec![sizes])
}

fn cartesian_prod(call: &mut Call<'_>) -> Outcome {
    let tensors = variadic(call)?;
    if let [only] = &tensors[..] {
        return Ok(vec![only.clone()]);
    }
    let lengths: Sizes = tensors.iter().flatten().copied().collect();
    let rows = call.numel(&lengths)?;
    let columns = call.constant(i64::try_from(tensors.len()).unwrap_or(i64::MAX));
    Ok(vec![[rows, columns].into_iter().collect()])
}
