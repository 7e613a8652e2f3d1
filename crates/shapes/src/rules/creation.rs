//! New tensors.

use super::call::Call;
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, FloatOp, FloatUnary, Rounding};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "zeros ones empty rand randn",
        parameters: "*size, *, names",
        rule: |call| sized(call, "size"),
    },
    Row {
        names: "full",
        parameters: "size, fill_value, *, names",
        rule: |call| sized(call, "size"),
    },
    Row { names: "empty_strided", parameters: "size, stride", rule: |call| sized(call, "size") },
    Row {
        names: "empty_permuted",
        parameters: "size, physical_layout",
        rule: |call| sized(call, "size"),
    },
    Row {
        names: "zeros_like ones_like empty_like rand_like randn_like full_like randint_like",
        parameters: "input|self, ...",
        rule: |call| Ok(vec![call.tensor("input")?]),
    },
    Row {
        names: "new_zeros new_ones new_empty",
        parameters: "self|input, *size",
        rule: |call| sized(call, "size"),
    },
    Row {
        names: "new_full",
        parameters: "self|input, size, fill_value",
        rule: |call| sized(call, "size"),
    },
    Row {
        names: "new_empty_strided",
        parameters: "self|input, size, stride",
        rule: |call| sized(call, "size"),
    },
    Row { names: "randint", parameters: "low, high, size", rule: randint },
    Row { names: "randperm", parameters: "n", rule: |call| sized(call, "n") },
    Row { names: "normal", parameters: "mean, std, size", rule: normal },
    Row { names: "eye", parameters: "n, m", rule: eye },
    Row { names: "arange", parameters: "start, end, step", rule: arange },
    Row { names: "linspace logspace", parameters: "start, end, steps, base", rule: linspace },
    Row { names: "scalar_tensor", parameters: "s|value", rule: |_| Ok(vec![Sizes::new()]) },
    Row {
        names: "hann_window hamming_window bartlett_window blackman_window kaiser_window",
        parameters: "window_length, ...",
        rule: |call| sized(call, "window_length"),
    },
    Row { names: "vander", parameters: "x, N, increasing", rule: vander },
];

fn sized(call: &mut Call<'_>, name: &str) -> Outcome {
    let sizes = call.exprs(name)?;
    let zero = call.constant(0);
    for &size in &sizes {
        call.require(Cmp::Ge, size, zero, "a negative size")?;
    }
    Ok(vec![sizes])
}

/// `randint(high, size)` and `randint(low, high, size)`.
fn randint(call: &mut Call<'_>) -> Outcome {
    if call.get("size").is_some() { sized(call, "size") } else { sized(call, "high") }
}

fn normal(call: &mut Call<'_>) -> Outcome {
    if call.get("size").is_some() {
        return sized(call, "size");
    }
    let tensors = call.tensors();
    Ok(vec![call.broadcast_all(&tensors)?])
}

fn eye(call: &mut Call<'_>) -> Outcome {
    let rows = call.expr("n")?;
    let columns = if call.get("m").is_some() { call.expr("m")? } else { rows };
    Ok(vec![[rows, columns].into_iter().collect()])
}

/// `ceil((end - start) / step)`
fn arange(call: &mut Call<'_>) -> Outcome {
    let zero = call.constant(0);
    let (start, end) = match (call.get("start").cloned(), call.get("end").cloned()) {
        (Some(end), None) | (None, Some(end)) => (Arg::Int(zero), end),
        (Some(start), Some(end)) => (start, end),
        (None, None) => return refuse("an integer is missing"),
    };
    let one = call.constant(1);
    let step = call.get("step").cloned().unwrap_or(Arg::Int(one));
    let length = if let (Arg::Int(start), Arg::Int(end), Arg::Int(step)) = (&start, &end, &step) {
        let length = call.sub(*end, *start)?;
        call.ceil_div(length, *step)?
    } else {
        let (start, end) = (call.float_of(&start)?, call.float_of(&end)?);
        let step = call.float_of(&step)?;
        let negative = call.ctx.float_unary(FloatUnary::Neg, start)?;
        let length = call.ctx.float_binary(FloatOp::Add, end, negative)?;
        let count = call.ctx.float_binary(FloatOp::Div, length, step)?;
        call.ctx.round(Rounding::Ceil, count)?
    };
    call.require(Cmp::Ge, length, zero, "a negative size")?;
    Ok(vec![[length].into_iter().collect()])
}

fn linspace(call: &mut Call<'_>) -> Outcome {
    let steps = call.expr("steps")?;
    let mut sizes = Sizes::new();
    for name in ["start", "end"] {
        if let Some(bounds) = call.optional_tensor(name) {
            sizes = call.broadcast(&sizes, &bounds)?;
        }
    }
    sizes.insert(0, steps);
    Ok(vec![sizes])
}

fn vander(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("x")?;
    let [rows] = sizes[..] else { return refuse("a vector is expected") };
    let columns = if call.get("N").is_some() { call.expr("N")? } else { rows };
    Ok(vec![[rows, columns].into_iter().collect()])
}
