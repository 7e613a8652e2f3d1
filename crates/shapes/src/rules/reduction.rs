//! Reductions along dimensions.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Outcome, Sizes, refuse};
use crate::Cmp;

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "sum nansum mean nanmean logsumexp special_logsumexp amax amin count_nonzero \
            hash_tensor",
        parameters: "input|self, dim|axis, keepdim|keepdims, *, mode",
        rule: reduce,
    },
    Row { names: "histogram", parameters: "input|self, bins, ...", rule: histogram },
    Row {
        names: "any all prod argmax argmin",
        parameters: "input|self, dim|axis, keepdim|keepdims",
        rule: reduce,
    },
    Row {
        names: "std var",
        parameters: "input|self, dim|axis, unbiased, keepdim|keepdims, *, correction",
        rule: variance,
    },
    Row {
        names: "std_mean var_mean",
        parameters: "input|self, dim|axis, unbiased, keepdim|keepdims, *, correction",
        rule: |call| Ok(vec![variance(call)?.remove(0); 2]),
    },
    Row {
        names: "norm linalg_norm linalg_vector_norm",
        parameters: "input|self|x|A, p|ord, dim, keepdim",
        rule: norm,
    },
    Row {
        names: "linalg_matrix_norm",
        parameters: "input|self|A, ord, dim, keepdim",
        rule: matrix_norm,
    },
    Row {
        names: "max min",
        parameters: "input|self, dim|other|axis, keepdim|keepdims",
        rule: extreme,
    },
    Row { names: "median nanmedian", parameters: "input|self, dim, keepdim", rule: extreme },
    Row { names: "mode", parameters: "input|self, dim, keepdim", rule: along },
    Row { names: "kthvalue", parameters: "input|self, k, dim, keepdim", rule: along },
    Row { names: "aminmax", parameters: "input|self, *, dim, keepdim", rule: aminmax },
    Row {
        names: "quantile nanquantile",
        parameters: "input|self, q, dim, keepdim, *, interpolation",
        rule: quantile,
    },
    Row {
        names: "trace dist vdot",
        parameters: "input|self, ...",
        rule: |_| Ok(vec![Sizes::new()]),
    },
    Row {
        names: "cosine_similarity",
        parameters: "x1|input, x2|other, dim, eps",
        rule: cosine_similarity,
    },
    Row {
        names: "pairwise_distance",
        parameters: "x1|input, x2|other, p, eps, keepdim",
        rule: pairwise_distance,
    },
    Row {
        names: "cumulative_trapezoid",
        parameters: "y, x, *, dx, dim",
        rule: cumulative_trapezoid,
    },
    Row { names: "trapezoid trapz", parameters: "y, x, *, dx, dim", rule: trapezoid },
    Row { names: "cov corrcoef", parameters: "input|self, ...", rule: covariance },
    Row { names: "histc", parameters: "input|self, bins, min, max", rule: histc },
    Row { names: "sum_to_size", parameters: "self|input, *size", rule: sum_to_size },
    Row { names: "pdist", parameters: "input|self, p", rule: pdist },
    Row {
        names: "gradient",
        parameters: "input|self, *, spacing, dim, edge_order",
        rule: gradient,
    },
    Row { names: "diff", parameters: "input|self, n, dim, prepend, append", rule: diff },
    Row {
        names: "det logdet linalg_det linalg_matrix_rank linalg_cond",
        parameters: "input|self|A, ...",
        rule: of_matrices,
    },
    Row { names: "slogdet linalg_slogdet", parameters: "input|self|A", rule: slogdet },
];

/// Sizes without dimensions, or with 1 in their places; no dimensions stand for all.
pub(super) fn reduced(
    call: &mut Call<'_>,
    input: &Sizes,
    dims: Option<&[usize]>,
    keep: bool,
) -> Sizes {
    let one = call.constant(1);
    input
        .iter()
        .enumerate()
        .filter_map(|(at, &size)| {
            let gone = dims.is_none_or(|dims| dims.contains(&at));
            match (gone, keep) {
                (false, _) => Some(size),
                (true, true) => Some(one),
                (true, false) => None,
            }
        })
        .collect()
}

fn reduce(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dims = call.dims("dim", input.len())?;
    let keep = call.flag_or("keepdim", false)?;
    Ok(vec![reduced(call, &input, dims.as_deref(), keep)])
}

/// `var(input, unbiased)` and `var(input, dim, unbiased, keepdim)` share their second parameter.
fn variance(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let only_flag = matches!(call.get("dim"), Some(super::Arg::Bool(_)));
    let dims = if only_flag { None } else { call.dims("dim", input.len())? };
    let keep = call.flag_or("keepdim", false)?;
    Ok(vec![reduced(call, &input, dims.as_deref(), keep)])
}

fn norm(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dims = call.dims("dim", input.len())?;
    let keep = call.flag_or("keepdim", false)?;
    Ok(vec![reduced(call, &input, dims.as_deref(), keep)])
}

fn matrix_norm(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let rank = input.len();
    if rank < 2 {
        return refuse("there is no such dimension");
    }
    let dims = call.dims("dim", rank)?.unwrap_or_else(|| vec![rank - 2, rank - 1]);
    let keep = call.flag_or("keepdim", false)?;
    Ok(vec![reduced(call, &input, Some(&dims), keep)])
}

/// Along one dimension, the last if none is named: values and indices.
fn along(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let dim = call.dim_or("dim", -1, input.len())?;
    let keep = call.flag_or("keepdim", false)?;
    let sizes = reduced(call, &input, Some(&[dim]), keep);
    Ok(vec![sizes.clone(), sizes])
}

fn extreme(call: &mut Call<'_>) -> Outcome {
    if call.is_tensor("dim") {
        let (a, b) = (call.tensor("input")?, call.tensor("dim")?);
        return Ok(vec![call.broadcast(&a, &b)?]);
    }
    if call.get("dim").is_none() { Ok(vec![Sizes::new()]) } else { along(call) }
}

fn aminmax(call: &mut Call<'_>) -> Outcome {
    let sizes = reduce(call)?.remove(0);
    Ok(vec![sizes.clone(), sizes])
}

fn quantile(call: &mut Call<'_>) -> Outcome {
    let quantiles = if call.is_tensor("q") { call.tensor("q")? } else { Sizes::new() };
    let mut sizes = quantiles;
    sizes.extend(reduce(call)?.remove(0));
    Ok(vec![sizes])
}

fn cosine_similarity(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let mut sizes = call.broadcast(&a, &b)?;
    let dim = call.dim_or("dim", 1, sizes.len())?;
    if !sizes.is_empty() {
        sizes.remove(dim);
    }
    Ok(vec![sizes])
}

fn pairwise_distance(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let mut sizes = call.broadcast(&a, &b)?;
    let keep = call.flag_or("keepdim", false)?;
    sizes.pop();
    if keep {
        sizes.push(call.constant(1));
    }
    Ok(vec![sizes])
}

/// Counts, and the edges between which they were counted.
fn histogram(call: &mut Call<'_>) -> Outcome {
    let edges = match call.optional_tensor("bins") {
        Some(edges) => match edges[..] {
            [length] => length,
            _ => return refuse("a vector is expected"),
        },
        None => {
            let bins = call.expr_or("bins", 100)?;
            call.plus(bins, 1)?
        }
    };
    let bins = call.plus(edges, -1)?;
    Ok(vec![Sizes::from_slice(&[bins]), Sizes::from_slice(&[edges])])
}

/// One less along a dimension.
fn cumulative_trapezoid(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("y")?;
    if let Some(x) = call.optional_tensor("x")
        && x != sizes
    {
        return refuse("places that are broadcast");
    }
    let dim = call.dim_or("dim", -1, sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    let one = call.constant(1);
    call.require(Cmp::Ge, size, one, "a size is zero")?;
    sizes[dim] = call.sub(size, one)?;
    Ok(vec![sizes])
}

/// `torch.gradient`: a tensor for each dimension, at least `edge_order + 1` long.
fn gradient(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    let dims = call.dims("dim", sizes.len())?;
    let dims = dims.unwrap_or_else(|| (0..sizes.len()).collect());
    let order = call.int_or("edge_order", 1)?;
    let least = call.constant(order + 1);
    for &dim in &dims {
        call.require(Cmp::Ge, sizes[dim], least, "a dimension is too short")?;
    }
    Ok(vec![sizes; dims.len()])
}

fn diff(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    let n = call.int_or("n", 1)?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    let mut length = size;
    for name in ["prepend", "append"] {
        if let Some(extra) = call.optional_tensor(name)
            && let Some(&extra) = extra.get(dim)
        {
            length = call.add(length, extra)?;
        }
    }
    if n == 0 {
        return Ok(vec![sizes]);
    }
    let bound = call.constant(n);
    let enough = call.holds(crate::Cmp::Ge, length, bound);
    sizes[dim] = if enough { call.plus(length, -n)? } else { call.constant(0) };
    Ok(vec![sizes])
}

/// The sizes of a batch of matrices.
fn batch(call: &mut Call<'_>) -> Attempt<Sizes> {
    let mut sizes = call.tensor("input")?;
    if sizes.len() < 2 {
        return refuse("there is no such dimension");
    }
    sizes.truncate(sizes.len() - 2);
    Ok(sizes)
}

fn of_matrices(call: &mut Call<'_>) -> Outcome {
    Ok(vec![batch(call)?])
}

fn slogdet(call: &mut Call<'_>) -> Outcome {
    let sizes = batch(call)?;
    Ok(vec![sizes.clone(), sizes])
}

fn trapezoid(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("y")?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    if let Some(x) = call.optional_tensor("x") {
        match x[..] {
            [length] if dim < sizes.len() => sizes[dim] = call.unify(sizes[dim], length)?,
            _ => return refuse("distances of more than one dimension"),
        }
    }
    if !sizes.is_empty() {
        sizes.remove(dim);
    }
    Ok(vec![sizes])
}

fn covariance(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let one = call.constant(1);
    match input[..] {
        // One variable's is a number.
        [variables, _] if !call.holds(crate::Cmp::Eq, variables, one) => {
            Ok(vec![[variables, variables].into_iter().collect()])
        }
        _ => Ok(vec![Sizes::new()]),
    }
}

fn histc(call: &mut Call<'_>) -> Outcome {
    let bins = call.expr_or("bins", 100)?;
    Ok(vec![[bins].into_iter().collect()])
}

fn sum_to_size(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("self")?;
    let sizes = call.exprs("size")?;
    call.broadcast_to(&sizes, &input)?;
    Ok(vec![sizes])
}

/// The distances of all pairs.
fn pdist(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let Some(&rows) = input.first() else { return refuse("there is no such dimension") };
    let others = call.plus(rows, -1)?;
    let ordered = call.mul(rows, others)?;
    let two = call.constant(2);
    let pairs = call.floor_div(ordered, two)?;
    Ok(vec![[pairs].into_iter().collect()])
}
