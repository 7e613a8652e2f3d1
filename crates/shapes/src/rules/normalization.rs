//! Normalisation that asks something of its arguments, or gives statistics as well.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Outcome, Sizes, refuse};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "layer_norm rms_norm",
        parameters: "input, normalized_shape, weight, ...",
        rule: layer_norm,
    },
    Row {
        names: "native_layer_norm",
        parameters: "input, normalized_shape, weight, bias, eps",
        rule: native_layer_norm,
    },
    Row {
        names: "native_group_norm",
        parameters: "input, weight, bias, N, C, HxW, group, eps",
        rule: native_group_norm,
    },
    Row {
        names: "native_batch_norm cudnn_batch_norm _native_batch_norm_legit",
        parameters: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        rule: native_batch_norm,
    },
    Row { names: "native_dropout", parameters: "input, p, train", rule: native_dropout },
];

/// The last dimensions are those that are normalised.
fn require_shape(call: &mut Call<'_>) -> Attempt<(Sizes, usize)> {
    let mut sizes = call.tensor("input")?;
    let shape = call.exprs("normalized_shape")?;
    let Some(at) = sizes.len().checked_sub(shape.len()) else {
        return refuse("there is no such dimension");
    };
    for (size, &expected) in sizes[at..].iter_mut().zip(&shape) {
        *size = call.unify(*size, expected)?;
    }
    Ok((sizes, at))
}

fn layer_norm(call: &mut Call<'_>) -> Outcome {
    let (sizes, _) = require_shape(call)?;
    Ok(vec![sizes])
}

fn native_layer_norm(call: &mut Call<'_>) -> Outcome {
    let (sizes, at) = require_shape(call)?;
    let one = call.constant(1);
    let mut statistics = sizes.clone();
    statistics[at..].fill(one);
    Ok(vec![sizes, statistics.clone(), statistics])
}

fn native_group_norm(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    let (batch, groups) = (call.expr("N")?, call.expr("group")?);
    let statistics: Sizes = [batch, groups].into_iter().collect();
    Ok(vec![sizes, statistics.clone(), statistics])
}

fn native_batch_norm(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    let Some(&channels) = sizes.get(1) else { return refuse("there is no such dimension") };
    let training = call.flag_or("training", true)?;
    let zero = call.constant(0);
    let statistics: Sizes = [if training { channels } else { zero }].into_iter().collect();
    Ok(vec![sizes, statistics.clone(), statistics])
}

fn native_dropout(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("input")?;
    Ok(vec![sizes.clone(), sizes])
}
