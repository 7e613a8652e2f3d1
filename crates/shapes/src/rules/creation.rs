//! New tensors.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId, FloatOp, FloatUnary, Rounding};

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
    Row { names: "tensor as_tensor", parameters: "data, ...", rule: of_data },
    Row { names: "new_tensor", parameters: "self|input, data, ...", rule: of_data },
    Row {
        names: "tril_indices",
        parameters: "row, col, offset",
        rule: |call| indices(call, Triangle::Lower),
    },
    Row {
        names: "triu_indices",
        parameters: "row, col, offset",
        rule: |call| indices(call, Triangle::Upper),
    },
    Row { names: "vander", parameters: "x, N, increasing", rule: vander },
    Row { names: "linalg_vander", parameters: "x|input, *, N", rule: vander_of_each },
];

fn sized(call: &mut Call<'_>, name: &str) -> Outcome {
    let sizes = call.exprs(name)?;
    for &size in &sizes {
        call.require_size(size)?;
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
    call.require_size(rows)?;
    call.require_size(columns)?;
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
        // It doesn't lead away from the end, by less than a step neither.
        let leads = if call.holds(Cmp::Gt, *step, zero) { Cmp::Ge } else { Cmp::Le };
        call.require(leads, *end, *start, "a step that leads away from the end")?;
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
    call.require_size(steps)?;
    let mut sizes = Sizes::new();
    for name in ["start", "end"] {
        if let Some(bounds) = call.optional_tensor(name) {
            sizes = call.broadcast(&sizes, &bounds)?;
        }
    }
    sizes.insert(0, steps);
    Ok(vec![sizes])
}

/// Numbers, and sequences of as many each.
fn of_data(call: &mut Call<'_>) -> Outcome {
    let Some(data) = call.get("data").cloned() else { return refuse("there is no data") };
    let mut sizes = Sizes::new();
    let mut at = &data;
    loop {
        match at {
            Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Number => return Ok(vec![sizes]),
            Arg::Tensor { sizes: inner, .. } => {
                sizes.extend_from_slice(inner);
                return Ok(vec![sizes]);
            }
            Arg::List(items) | Arg::Tuple(items) => {
                #[allow(clippy::cast_possible_wrap)]
                sizes.push(call.constant(items.len() as i64));
                let Some(first) = items.first() else { return Ok(vec![sizes]) };
                at = first;
            }
            _ => return refuse("data of another type"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Triangle {
    Lower,
    Upper,
}

/// Two rows of coordinates: those of a triangle's elements.
fn indices(call: &mut Call<'_>, triangle: Triangle) -> Outcome {
    let (rows, columns) = (call.expr("row")?, call.expr("col")?);
    let offset = call.int_or("offset", 0)?;
    let count = match triangle {
        Triangle::Lower => below(call, rows, columns, offset)?,
        Triangle::Upper => {
            let others = below(call, rows, columns, offset - 1)?;
            let all = call.mul(rows, columns)?;
            call.sub(all, others)?
        }
    };
    let two = call.constant(2);
    Ok(vec![[two, count].into_iter().collect()])
}

/// How many elements are on the diagonal or below it: a trapezoid, and whole rows under it.
fn below(call: &mut Call<'_>, rows: ExprId, columns: ExprId, offset: i64) -> Attempt<ExprId> {
    let (zero, one) = (call.constant(0), call.constant(1));
    let first = if offset > 0 {
        let first = call.constant(offset + 1);
        call.ctx.min(&[columns, first])?
    } else {
        let reached = call.plus(rows, offset)?;
        if call.holds(Cmp::Gt, reached, zero) { one } else { zero }
    };
    let reached = call.plus(rows, offset)?;
    let last = call.ctx.min(&[columns, reached])?;
    let last = call.ctx.max(&[zero, last])?;
    let all = call.ctx.min(&[rows, reached])?;
    let all = call.ctx.max(&[zero, all])?;
    let sloped = call.sub(last, first)?;
    let sloped = call.plus(sloped, 1)?;
    let ends = call.add(first, last)?;
    let twice = call.mul(ends, sloped)?;
    let two = call.constant(2);
    let trapezoid = call.floor_div(twice, two)?;
    let whole = call.sub(all, sloped)?;
    if call.holds(Cmp::Gt, whole, zero) {
        let rest = call.mul(whole, columns)?;
        return call.add(trapezoid, rest);
    }
    Ok(trapezoid)
}

fn vander_of_each(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("x")?;
    let Some(&last) = sizes.last() else { return refuse("a vector is expected") };
    sizes.push(if call.get("N").is_some() { call.expr("N")? } else { last });
    Ok(vec![sizes])
}

fn vander(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("x")?;
    let [rows] = sizes[..] else { return refuse("a vector is expected") };
    let columns = if call.get("N").is_some() { call.expr("N")? } else { rows };
    Ok(vec![[rows, columns].into_iter().collect()])
}
