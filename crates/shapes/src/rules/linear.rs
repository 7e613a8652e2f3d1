//! Products of matrices.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::ExprId;

pub(super) const ROWS: &[Row] = &[
    Row { names: "matmul linalg_matmul", parameters: "input|self, other|tensor2", rule: matmul },
    Row {
        names: "mm",
        parameters: "input|self, mat2|other",
        rule: |call| exact(call, "mat2", 2, 2),
    },
    Row {
        names: "bmm",
        parameters: "input|self, mat2|batch2",
        rule: |call| exact(call, "mat2", 3, 3),
    },
    Row { names: "mv", parameters: "input|self, vec", rule: |call| exact(call, "vec", 2, 1) },
    Row {
        names: "dot",
        parameters: "input|self, tensor|other",
        rule: |call| exact(call, "tensor", 1, 1),
    },
    Row { names: "addmm", parameters: "input|self, mat1, mat2, *, beta, alpha", rule: added },
    Row {
        names: "addmv",
        parameters: "input|self, mat1|mat, mat2|vec, *, beta, alpha",
        rule: added,
    },
    Row {
        names: "baddbmm",
        parameters: "input|self, mat1|batch1, mat2|batch2, *, beta, alpha",
        rule: added,
    },
    Row {
        names: "addbmm",
        parameters: "input|self, mat1|batch1, mat2|batch2, *, beta, alpha",
        rule: addbmm,
    },
    Row { names: "addr", parameters: "input|self, vec1, vec2, *, beta, alpha", rule: addr },
    Row { names: "linear", parameters: "input|self, weight, bias", rule: linear },
    Row { names: "bilinear", parameters: "input1, input2, weight, bias", rule: bilinear },
    Row { names: "outer ger", parameters: "input|self, vec2|other", rule: outer },
    Row { names: "inner", parameters: "input|self, other", rule: inner },
    Row { names: "kron", parameters: "input|self, other", rule: kron },
    Row { names: "einsum", parameters: "equation, *operands, *, path", rule: einsum },
    Row {
        names: "tensordot",
        parameters: "a|self, b|other, dims|dims_self, dims_other",
        rule: tensordot,
    },
    Row {
        names: "linalg_multi_dot chain_matmul",
        parameters: "*matrices|tensors",
        rule: multi_dot,
    },
    Row { names: "cross linalg_cross", parameters: "input|self, other, dim", rule: cross },
    Row { names: "linalg_vecdot", parameters: "x|input, y|other, *, dim", rule: vecdot },
    Row {
        names: "scaled_dot_product_attention",
        parameters: "query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa",
        rule: attention,
    },
    Row {
        names: "_native_multi_head_attention",
        parameters: "query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, \
            proj_bias, mask, need_weights, average_attn_weights, mask_type",
        rule: multi_head_attention,
    },
    Row {
        names: "_transformer_encoder_layer_fwd",
        parameters: "src, ...",
        rule: |call| Ok(vec![call.tensor("src")?]),
    },
    Row { names: "cdist", parameters: "x1, x2, p, compute_mode", rule: cdist },
    Row {
        names: "linalg_solve_triangular",
        parameters: "A, B, ...",
        rule: |call| Ok(vec![call.tensor("B")?]),
    },
];

/// The kernel below `nn.MultiheadAttention`: batch first; weights only if they are asked for.
fn multi_head_attention(call: &mut Call<'_>) -> Outcome {
    let (query, key) = (call.tensor("query")?, call.tensor("key")?);
    let (&[batch, length, _], &[_, source, _]) = (&query[..], &key[..]) else {
        return refuse("attention without batches");
    };
    let mut results = vec![query.clone()];
    if call.flag_or("need_weights", true)? {
        let mut weights = Sizes::from_slice(&[batch]);
        if !call.flag_or("average_attn_weights", true)? {
            weights.push(call.expr("num_head")?);
        }
        weights.extend([length, source]);
        results.push(weights);
    }
    Ok(results)
}

/// The sizes of a product of tensors, as `@` computes it.
fn product(call: &mut Call<'_>, a: &Sizes, b: &Sizes) -> Attempt<Sizes> {
    let (Some(&inner), Some(&first)) = (a.last(), b.get(b.len().saturating_sub(2))) else {
        return refuse("a product of numbers");
    };
    call.unify(inner, first)?;
    let (a_batch, a_rows) = a[..a.len() - 1].split_at(a.len().saturating_sub(2));
    let (b_batch, b_columns) = match b[..] {
        [_] => (&[][..], &[][..]),
        _ => (&b[..b.len() - 2], &b[b.len() - 1..]),
    };
    let mut sizes = call.broadcast(a_batch, b_batch)?;
    sizes.extend(a_rows.iter().chain(b_columns).copied());
    Ok(sizes)
}

fn matmul(call: &mut Call<'_>) -> Outcome {
    let (mut a, mut b) = (call.tensor("input")?, call.tensor("other")?);
    if call.reflected {
        std::mem::swap(&mut a, &mut b);
    }
    Ok(vec![product(call, &a, &b)?])
}

/// A product without broadcasting.
fn exact(call: &mut Call<'_>, second: &str, a_rank: usize, b_rank: usize) -> Outcome {
    let (mut a, b) = (call.tensor("input")?, call.tensor(second)?);
    if a.len() != a_rank || b.len() != b_rank {
        return refuse("tensors that must have as many dimensions haven't");
    }
    if a_rank == 3 {
        a[0] = call.unify(a[0], b[0])?;
    }
    Ok(vec![product(call, &a, &b)?])
}

fn added(call: &mut Call<'_>) -> Outcome {
    let (own, a, b) = (call.tensor("input")?, call.tensor("mat1")?, call.tensor("mat2")?);
    if a.len() == 3 && b.len() == 3 {
        call.unify(a[0], b[0])?;
    }
    let sizes = product(call, &a, &b)?;
    call.broadcast_to(&own, &sizes)?;
    Ok(vec![sizes])
}

fn addbmm(call: &mut Call<'_>) -> Outcome {
    let (own, a, b) = (call.tensor("input")?, call.tensor("mat1")?, call.tensor("mat2")?);
    if a.len() != 3 || b.len() != 3 {
        return refuse("tensors that must have as many dimensions haven't");
    }
    call.unify(a[0], b[0])?;
    let mut sizes = product(call, &a, &b)?;
    sizes.remove(0);
    call.broadcast_to(&own, &sizes)?;
    Ok(vec![sizes])
}

fn addr(call: &mut Call<'_>) -> Outcome {
    let (own, a, b) = (call.tensor("input")?, call.tensor("vec1")?, call.tensor("vec2")?);
    let sizes: Sizes = a.iter().chain(&b).copied().collect();
    call.broadcast_to(&own, &sizes)?;
    Ok(vec![sizes])
}

fn linear(call: &mut Call<'_>) -> Outcome {
    let (mut sizes, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let Some(inner) = sizes.pop() else { return refuse("a product of numbers") };
    let features = match weight[..] {
        [features, width] => {
            call.unify(inner, width)?;
            Some(features)
        }
        [width] => {
            call.unify(inner, width)?;
            None
        }
        _ => return refuse("a weight of one or two dimensions is expected"),
    };
    sizes.extend(features);
    if let Some(bias) = call.optional_tensor("bias") {
        call.broadcast_to(&bias, &sizes)?;
    }
    Ok(vec![sizes])
}

fn bilinear(call: &mut Call<'_>) -> Outcome {
    let (mut a, mut b) = (call.tensor("input1")?, call.tensor("input2")?);
    let weight = call.tensor("weight")?;
    let (Some(x), Some(y), [features, left, right]) = (a.pop(), b.pop(), &weight[..]) else {
        return refuse("a weight of three dimensions is expected");
    };
    call.unify(x, *left)?;
    call.unify(y, *right)?;
    let mut sizes = call.unify_all(&a, &b)?;
    sizes.push(*features);
    Ok(vec![sizes])
}

fn outer(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("input")?, call.tensor("vec2")?);
    Ok(vec![a.iter().chain(&b).copied().collect()])
}

fn inner(call: &mut Call<'_>) -> Outcome {
    let (mut a, mut b) = (call.tensor("input")?, call.tensor("other")?);
    if a.is_empty() || b.is_empty() {
        a.extend(b);
        return Ok(vec![a]);
    }
    if let (Some(x), Some(y)) = (a.pop(), b.pop()) {
        call.unify(x, y)?;
    }
    a.extend(b);
    Ok(vec![a])
}

fn kron(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let rank = a.len().max(b.len());
    let one = call.constant(1);
    let at = |sizes: &Sizes, place: usize| {
        (place + sizes.len()).checked_sub(rank).map_or(one, |place| sizes[place])
    };
    let sizes: Attempt<Sizes> =
        (0..rank).map(|place| call.mul(at(&a, place), at(&b, place))).collect();
    Ok(vec![sizes?])
}

/// The letters of an operand with the sizes that they stand for; an ellipsis as a sequence.
type Labels = Vec<(char, ExprId)>;

/// Stands for the dimensions under an ellipsis, which broadcast.
fn label(
    call: &mut Call<'_>,
    term: &str,
    sizes: &Sizes,
    known: &mut Labels,
    ellipsis: &mut Sizes,
) -> Attempt<()> {
    let letters: Vec<char> =
        term.replace("...", ".").chars().filter(|c| !c.is_whitespace()).collect();
    let named = letters.iter().filter(|c| **c != '.').count();
    let Some(open) = sizes.len().checked_sub(named) else {
        return refuse("an equation of other dimensions");
    };
    if open > 0 && !letters.contains(&'.') {
        return refuse("an equation of other dimensions");
    }
    let mut left = sizes.iter().copied();
    for letter in letters {
        if letter == '.' {
            let part: Sizes = left.by_ref().take(open).collect();
            *ellipsis = call.broadcast(ellipsis, &part)?;
            continue;
        }
        let Some(size) = left.next() else { return refuse("an equation of other dimensions") };
        match known.iter_mut().find(|(other, _)| *other == letter) {
            Some((_, old)) => {
                // A size of 1 broadcasts here as well.
                let both = call.broadcast(&[*old], &[size])?;
                *old = both[0];
            }
            None => known.push((letter, size)),
        }
    }
    Ok(())
}

fn einsum(call: &mut Call<'_>) -> Outcome {
    let Some(equation) = call.text("equation").map(str::to_owned) else {
        return refuse("an equation in another form");
    };
    let operands = call.tensor_list("operands")?;
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (&equation[..], None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() {
        return refuse("an equation of other dimensions");
    }
    let (mut known, mut ellipsis) = (Labels::new(), Sizes::new());
    for (term, sizes) in terms.iter().zip(&operands) {
        label(call, term, sizes, &mut known, &mut ellipsis)?;
    }
    let output = output.map_or_else(
        || {
            // The letters that occur once, sorted, capital letters first.
            let mut letters: Vec<char> = known
                .iter()
                .map(|entry| entry.0)
                .filter(|&letter| inputs.matches(letter).count() == 1)
                .collect();
            letters.sort_unstable();
            let lead = if inputs.contains("...") { "..." } else { "" };
            format!("{lead}{}", letters.into_iter().collect::<String>())
        },
        str::to_owned,
    );
    let mut sizes = Sizes::new();
    for letter in output.replace("...", ".").chars().filter(|c| !c.is_whitespace()) {
        if letter == '.' {
            sizes.extend(ellipsis.iter().copied());
        } else {
            match known.iter().find(|(other, _)| *other == letter) {
                Some(&(_, size)) => sizes.push(size),
                None => return refuse("an equation of other dimensions"),
            }
        }
    }
    Ok(vec![sizes])
}

fn tensordot(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("a")?, call.tensor("b")?);
    let (left, right) = if call.get("dims_other").is_some() {
        (call.dims("dims", a.len())?, call.dims("dims_other", b.len())?)
    } else {
        match call.get("dims").cloned() {
            Some(Arg::Int(_)) => {
                let count = usize::try_from(call.int("dims")?).unwrap_or(usize::MAX);
                let Some(start) = a.len().checked_sub(count) else {
                    return refuse("there is no such dimension");
                };
                (Some((start..a.len()).collect()), Some((0..count).collect()))
            }
            Some(Arg::List(pair) | Arg::Tuple(pair)) => {
                let [first, second] = &pair[..] else {
                    return refuse("there is no such dimension");
                };
                (Some(dims_of(call, first, a.len())?), Some(dims_of(call, second, b.len())?))
            }
            _ => (Some((a.len().saturating_sub(2)..a.len()).collect()), Some(vec![0, 1])),
        }
    };
    let (left, right): (Vec<usize>, Vec<usize>) =
        (left.unwrap_or_default(), right.unwrap_or_default());
    if left.len() != right.len() || right.iter().any(|&at| at >= b.len()) {
        return refuse("there is no such dimension");
    }
    for (&x, &y) in left.iter().zip(&right) {
        call.broadcast(&[a[x]], &[b[y]])?;
    }
    let rest = |sizes: &Sizes, gone: &[usize]| -> Sizes {
        (0..sizes.len()).filter(|at| !gone.contains(at)).map(|at| sizes[at]).collect()
    };
    let mut sizes = rest(&a, &left);
    sizes.extend(rest(&b, &right));
    Ok(vec![sizes])
}

fn dims_of(call: &mut Call<'_>, arg: &Arg, rank: usize) -> Attempt<Vec<usize>> {
    let items = match arg {
        Arg::List(items) | Arg::Tuple(items) => items.clone(),
        single => vec![single.clone()],
    };
    items
        .iter()
        .map(|item| {
            let e = call.expr_of(item)?;
            let dim = call.fixed(e);
            Call::wrap(dim, rank)
        })
        .collect()
}

fn multi_dot(call: &mut Call<'_>) -> Outcome {
    let matrices = call.tensor_list("matrices")?;
    let Some((first, others)) = matrices.split_first() else { return refuse("there is no tensor") };
    let mut sizes = first.clone();
    for next in others {
        sizes = product(call, &sizes, next)?;
    }
    Ok(vec![sizes])
}

fn cross(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    Ok(vec![call.broadcast(&a, &b)?])
}

fn vecdot(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (call.tensor("x")?, call.tensor("y")?);
    let mut sizes = call.broadcast(&a, &b)?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    if !sizes.is_empty() {
        sizes.remove(dim);
    }
    Ok(vec![sizes])
}

fn attention(call: &mut Call<'_>) -> Outcome {
    let (query, key, value) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    if query.len() < 2 || key.len() < 2 || value.len() < 2 {
        return refuse("attention over tensors of less than two dimensions");
    }
    let grouped = call.flag_or("enable_gqa", false)?;
    let split = |sizes: &Sizes| -> (Sizes, ExprId, ExprId) {
        let rank = sizes.len();
        (sizes[..rank - 2].iter().copied().collect(), sizes[rank - 2], sizes[rank - 1])
    };
    let (mut batch, length, width) = split(&query);
    let (key_batch, key_length, key_width) = split(&key);
    let (value_batch, value_length, value_width) = split(&value);
    call.unify(width, key_width)?;
    call.unify(key_length, value_length)?;
    if grouped {
        // Heads of keys and values are repeated: only the dimensions before them broadcast.
        let Some(heads) = batch.last().copied() else { return refuse("groups without heads") };
        for other in [&key_batch, &value_batch] {
            let Some(&groups) = other.last() else { return refuse("groups without heads") };
            call.exact_div(heads, groups)?;
        }
        let lead = batch.len() - 1;
        let before = call.broadcast(&batch[..lead], &key_batch[..key_batch.len() - 1])?;
        batch = call.broadcast(&before, &value_batch[..value_batch.len() - 1])?;
        batch.push(heads);
    } else {
        batch = call.broadcast(&batch, &key_batch)?;
        batch = call.broadcast(&batch, &value_batch)?;
    }
    if let Some(mask) = call.optional_tensor("attn_mask") {
        let mut scores = batch.clone();
        scores.extend([length, key_length]);
        call.broadcast_to(&mask, &scores)?;
    }
    batch.extend([length, value_width]);
    Ok(vec![batch])
}

fn cdist(call: &mut Call<'_>) -> Outcome {
    let (mut a, mut b) = (call.tensor("x1")?, call.tensor("x2")?);
    let (Some(x), Some(y), Some(rows), Some(columns)) = (a.pop(), b.pop(), a.pop(), b.pop()) else {
        return refuse("tensors of at least two dimensions are expected");
    };
    call.unify(x, y)?;
    let mut sizes = call.broadcast(&a, &b)?;
    sizes.extend([rows, columns]);
    Ok(vec![sizes])
}
