//! Elements chosen and written by tensors of indices; order.

use super::call::Call;
use super::registry::Row;
use super::{Outcome, Sizes, refuse};
use crate::Cmp;

pub(super) const ROWS: &[Row] = &[
    Row { names: "gather", parameters: "input|self, dim, index, *, sparse_grad", rule: gather },
    Row { names: "take", parameters: "input|self, index", rule: take },
    Row { names: "take_along_dim", parameters: "input|self, indices, dim", rule: take_along_dim },
    Row { names: "index_select", parameters: "input|self, dim, index", rule: index_select },
    Row {
        names: "scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce \
            put diagonal_scatter select_scatter slice_scatter",
        parameters: "input|self, ...",
        rule: written,
    },
    Row { names: "sort", parameters: "input|self, dim, descending, stable", rule: sort },
    Row {
        names: "argsort msort",
        parameters: "input|self, dim, descending, stable",
        rule: argsort,
    },
    Row { names: "topk", parameters: "input|self, k, dim, largest, sorted", rule: topk },
    Row { names: "cummax cummin", parameters: "input|self, dim", rule: twice },
    Row {
        names: "searchsorted",
        parameters: "sorted_sequence, input|self, *, out_int32, right, side, sorter",
        rule: searchsorted,
    },
    Row {
        names: "multinomial",
        parameters: "input|self, num_samples, replacement",
        rule: multinomial,
    },
    Row { names: "masked_scatter", parameters: "input|self, mask, source", rule: masked_scatter },
    Row { names: "frexp", parameters: "input|self", rule: twice },
    Row { names: "one_hot", parameters: "tensor|self, num_classes", rule: one_hot },
    Row {
        names: "torch.nn.functional.embedding",
        parameters: "input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse",
        rule: embedding,
    },
    Row {
        names: "embedding",
        parameters: "weight, input|indices, padding_idx, scale_grad_by_freq, sparse",
        rule: embedding,
    },
    Row {
        names: "torch.nn.functional.embedding_bag",
        parameters: "input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, \
            per_sample_weights, include_last_offset, padding_idx",
        rule: embedding_bag,
    },
];

/// An index that is no larger than the input, except along one dimension.
fn require_within(
    call: &mut Call<'_>,
    input: &Sizes,
    index: &Sizes,
    dim: usize,
) -> super::call::Attempt<()> {
    if input.len() != index.len() {
        return refuse("tensors that must have as many dimensions haven't");
    }
    for at in (0..input.len()).filter(|&at| at != dim) {
        call.require(Cmp::Le, index[at], input[at], "an index is larger than its tensor")?;
    }
    Ok(())
}

fn gather(call: &mut Call<'_>) -> Outcome {
    let (input, index) = (call.tensor("input")?, call.tensor("index")?);
    let dim = call.dim("dim", input.len())?;
    if !input.is_empty() && !index.is_empty() {
        require_within(call, &input, &index, dim)?;
    }
    Ok(vec![index])
}

fn take(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("index")?])
}

fn take_along_dim(call: &mut Call<'_>) -> Outcome {
    let (input, indices) = (call.tensor("input")?, call.tensor("indices")?);
    if call.get("dim").is_none() {
        let numel = call.numel(&indices)?;
        return Ok(vec![[numel].into_iter().collect()]);
    }
    let dim = call.dim("dim", input.len())?;
    if input.len() != indices.len() {
        return refuse("tensors that must have as many dimensions haven't");
    }
    let one = call.constant(1);
    let (mut left, mut right) = (input, indices.clone());
    (left[dim], right[dim]) = (one, one);
    let mut sizes = call.broadcast(&left, &right)?;
    sizes[dim] = indices[dim];
    Ok(vec![sizes])
}

fn index_select(call: &mut Call<'_>) -> Outcome {
    let (mut sizes, index) = (call.tensor("input")?, call.tensor("index")?);
    let dim = call.dim("dim", sizes.len())?;
    if let Some(size) = sizes.get_mut(dim) {
        *size = match index[..] {
            [] => call.ctx.constant(1),
            [length] => length,
            _ => return refuse("an index of more than one dimension"),
        };
    }
    Ok(vec![sizes])
}

/// The result is as large as what is written to. What the indices must fulfil is an error of the
/// operation itself, at each call.
fn written(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("input")?])
}

fn twice(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    Ok(vec![sizes.clone(), sizes])
}

fn sort(call: &mut Call<'_>) -> Outcome {
    twice(call)
}

fn argsort(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("input")?])
}

fn topk(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    let k = call.expr("k")?;
    if let Some(&size) = sizes.get(dim) {
        call.require_size(k)?;
        call.require(Cmp::Le, k, size, "more elements are asked for than there are")?;
        sizes[dim] = k;
    }
    Ok(vec![sizes.clone(), sizes])
}

fn searchsorted(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("input")?])
}

fn one_hot(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("tensor")?;
    let classes = call.expr_or("num_classes", -1)?;
    let one = call.constant(1);
    if call.ctx.hint(classes) < 1 {
        return refuse("a size depends on data");
    }
    call.require(Cmp::Ge, classes, one, "a size depends on data")?;
    sizes.push(classes);
    Ok(vec![sizes])
}

fn embedding(call: &mut Call<'_>) -> Outcome {
    let (mut sizes, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let [_, width] = weight[..] else { return refuse("a table of two dimensions is expected") };
    sizes.push(width);
    Ok(vec![sizes])
}

/// A row of the table for each bag: bags are the rows of the indices, or begin where the offsets say.
fn embedding_bag(call: &mut Call<'_>) -> Outcome {
    let (indices, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let [_, width] = weight[..] else { return refuse("a table of two dimensions is expected") };
    if let Some(weights) = call.optional_tensor("per_sample_weights") {
        call.unify_all(&indices, &weights)?;
    }
    let bags = match (&indices[..], call.optional_tensor("offsets")) {
        ([bags, _], None) => *bags,
        ([_], Some(offsets)) => {
            let [offsets] = offsets[..] else { return refuse("offsets have one dimension") };
            if call.flag_or("include_last_offset", false)? {
                let one = call.constant(1);
                call.require(Cmp::Ge, offsets, one, "the last offset is missing")?;
                call.ctx.sub(offsets, one)?
            } else {
                offsets
            }
        }
        _ => return refuse("either two dimensions or offsets are expected"),
    };
    Ok(vec![[bags, width].into_iter().collect()])
}

fn multinomial(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let samples = call.expr("num_samples")?;
    if sizes.pop().is_none() {
        return refuse("there is no such dimension");
    }
    sizes.push(samples);
    Ok(vec![sizes])
}

fn masked_scatter(call: &mut Call<'_>) -> Outcome {
    let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
    if call.in_place {
        call.broadcast_to(&mask, &input)?;
        return Ok(vec![input]);
    }
    Ok(vec![call.broadcast(&input, &mask)?])
}
