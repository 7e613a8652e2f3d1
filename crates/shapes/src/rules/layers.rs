//! Whole layers that PyTorch takes for one operation: attention with its projections, recurrent networks.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::ExprId;

const CELL: &str = "input, hx, w_ih, w_hh, b_ih, b_hh";
const NETWORK: &str = "input, hx, params, has_biases, num_layers, dropout, train, bidirectional, \
    batch_first";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "torch.nn.functional.multi_head_attention_forward",
        parameters: "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, \
            in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, \
            out_proj_bias, training, key_padding_mask, need_weights, attn_mask, \
            use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k, \
            static_v, average_attn_weights, is_causal",
        rule: attention,
    },
    Row { names: "lstm_cell", parameters: CELL, rule: lstm_cell },
    Row {
        names: "gru_cell rnn_tanh_cell rnn_relu_cell",
        parameters: CELL,
        rule: |call| state(call, "hx").map(|sizes| vec![sizes]),
    },
    Row { names: "lstm", parameters: NETWORK, rule: lstm },
    Row { names: "gru rnn_tanh rnn_relu", parameters: NETWORK, rule: recurrent },
];

/// `F.multi_head_attention_forward`: the length comes first, batches are optional.
fn attention(call: &mut Call<'_>) -> Outcome {
    let (query, key) = (call.tensor("query")?, call.tensor("key")?);
    let value = call.tensor("value")?;
    if call.is_tensor("static_k") || call.is_tensor("static_v") || key.len() != query.len() {
        return refuse("attention with given keys");
    }
    let mut source = key[0];
    source = call.unify(source, value[0])?;
    let batch = match (&query[..], &key[..], &value[..]) {
        ([_, batch, _], [_, keys, _], [_, values, _]) => {
            let batch = call.unify(*batch, *keys)?;
            Some(call.unify(batch, *values)?)
        }
        ([_, _], [_, _], [_, _]) => None,
        _ => return refuse("there is no such dimension"),
    };
    let mut results = vec![query.clone()];
    if call.flag_or("need_weights", true)? {
        for added in [call.is_tensor("bias_k"), call.flag_or("add_zero_attn", false)?] {
            source = if added { call.plus(source, 1)? } else { source };
        }
        let mut weights: Sizes = batch.into_iter().collect();
        if !call.flag_or("average_attn_weights", true)? {
            weights.push(call.expr("num_heads")?);
        }
        weights.extend([query[0], source]);
        results.push(weights);
    }
    Ok(results)
}

/// The sizes of a state, and that its batch is the input's.
fn state(call: &mut Call<'_>, name: &str) -> Attempt<Sizes> {
    let (input, sizes) = (call.tensor("input")?, call.tensor(name)?);
    cell_state(call, &input, sizes)
}

fn cell_state(call: &mut Call<'_>, input: &Sizes, mut sizes: Sizes) -> Attempt<Sizes> {
    let (inner, outer) = (call.tensor("w_ih")?, call.tensor("w_hh")?);
    for (sizes, weights) in [(input, &inner), (&sizes, &outer)] {
        let (Some(&features), Some(&expected)) = (sizes.last(), weights.last()) else {
            return refuse("there is no such dimension");
        };
        call.unify(features, expected)?;
    }
    if let ([batch, _], [state, _]) = (&input[..], &sizes[..]) {
        sizes[0] = call.unify(*state, *batch)?;
    }
    Ok(sizes)
}

fn lstm_cell(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let states = call.tensor_list("hx")?;
    states.into_iter().map(|sizes| cell_state(call, &input, sizes)).collect()
}

fn lstm(call: &mut Call<'_>) -> Outcome {
    if is_packed(call) {
        let states = call.tensor_list("params")?;
        return packed(call, states);
    }
    let states = call.tensor_list("hx")?;
    let Some(hidden) = states.first().cloned() else { return refuse("a state is missing") };
    let mut results = vec![output(call, &hidden)?];
    results.extend(states);
    Ok(results)
}

fn recurrent(call: &mut Call<'_>) -> Outcome {
    if is_packed(call) {
        let state = call.tensor("params")?;
        return packed(call, vec![state]);
    }
    let hidden = call.tensor("hx")?;
    Ok(vec![output(call, &hidden)?, hidden])
}

/// Whether how many sequences go on at each step stands behind the input, and everything else one place further.
fn is_packed(call: &Call<'_>) -> bool {
    let is_list = |name| matches!(call.get(name), Some(Arg::List(_) | Arg::Tuple(_)));
    call.is_tensor("hx") && is_list("has_biases")
}

/// Sequences packed into one. That there are as many states as sequences is a matter of data.
fn packed(call: &mut Call<'_>, states: Vec<Sizes>) -> Outcome {
    let input = call.tensor("input")?;
    let (&[steps, _], Some(&features)) = (&input[..], states.first().and_then(|it| it.last()))
    else {
        return refuse("there is no such dimension");
    };
    let directions = if call.flag_or("batch_first", false)? { 2 } else { 1 };
    let made = call.times(features, directions)?;
    let mut results: Vec<Sizes> = vec![[steps, made].into_iter().collect()];
    results.extend(states);
    Ok(results)
}

/// The input's with other features: those of the state, for each direction.
fn output(call: &mut Call<'_>, hidden: &Sizes) -> Attempt<Sizes> {
    if !matches!(call.get("params"), Some(Arg::List(_) | Arg::Tuple(_))) {
        return refuse("sequences packed into one");
    }
    let mut sizes = call.tensor("input")?;
    let (Some(last), Some(&features)) = (sizes.len().checked_sub(1), hidden.last()) else {
        return refuse("there is no such dimension");
    };
    if let &[_, state, _] = &hidden[..] {
        let first = call.flag_or("batch_first", false)?;
        let batch: &mut ExprId = &mut sizes[usize::from(!first)];
        *batch = call.unify(*batch, state)?;
    }
    let directions = if call.flag_or("bidirectional", false)? { 2 } else { 1 };
    sizes[last] = call.times(features, directions)?;
    Ok(sizes)
}
