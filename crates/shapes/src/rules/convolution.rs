//! Convolution and pooling: windows that move over the last dimensions.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

const CONV: &str = "input, weight, bias, stride, padding, dilation, groups";
const TRANSPOSED: &str = "input, weight, bias, stride, padding, output_padding, groups, dilation";
const MAX_POOL: &str =
    "input|self, kernel_size, stride, padding, dilation, ceil_mode, return_indices";
const AVG_POOL: &str =
    "input|self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override";
const LP_POOL: &str = "input, norm_type, kernel_size, stride, ceil_mode";
const ADAPTIVE: &str = "input|self, output_size, return_indices";

pub(super) const ROWS: &[Row] = &[
    Row { names: "conv1d", parameters: CONV, rule: |call| conv(call, 1) },
    Row { names: "conv2d", parameters: CONV, rule: |call| conv(call, 2) },
    Row { names: "conv3d", parameters: CONV, rule: |call| conv(call, 3) },
    Row { names: "conv_transpose1d", parameters: TRANSPOSED, rule: |call| transposed(call, 1) },
    Row { names: "conv_transpose2d", parameters: TRANSPOSED, rule: |call| transposed(call, 2) },
    Row { names: "conv_transpose3d", parameters: TRANSPOSED, rule: |call| transposed(call, 3) },
    Row {
        names: "convolution _convolution",
        parameters: "input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ...",
        rule: convolution,
    },
    Row { names: "max_pool1d", parameters: MAX_POOL, rule: |call| max_pool(call, 1, false) },
    Row { names: "max_pool2d", parameters: MAX_POOL, rule: |call| max_pool(call, 2, false) },
    Row { names: "max_pool3d", parameters: MAX_POOL, rule: |call| max_pool(call, 3, false) },
    Row {
        names: "max_pool1d_with_indices",
        parameters: MAX_POOL,
        rule: |call| max_pool(call, 1, true),
    },
    Row {
        names: "max_pool2d_with_indices",
        parameters: MAX_POOL,
        rule: |call| max_pool(call, 2, true),
    },
    Row {
        names: "max_pool3d_with_indices",
        parameters: MAX_POOL,
        rule: |call| max_pool(call, 3, true),
    },
    Row { names: "avg_pool1d", parameters: AVG_POOL, rule: |call| avg_pool(call, 1) },
    Row { names: "avg_pool2d", parameters: AVG_POOL, rule: |call| avg_pool(call, 2) },
    Row { names: "avg_pool3d", parameters: AVG_POOL, rule: |call| avg_pool(call, 3) },
    Row { names: "lp_pool1d", parameters: LP_POOL, rule: |call| avg_pool(call, 1) },
    Row { names: "lp_pool2d", parameters: LP_POOL, rule: |call| avg_pool(call, 2) },
    Row { names: "lp_pool3d", parameters: LP_POOL, rule: |call| avg_pool(call, 3) },
    Row {
        names: "adaptive_avg_pool1d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 1, false),
    },
    Row {
        names: "adaptive_avg_pool2d _adaptive_avg_pool2d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 2, false),
    },
    Row {
        names: "adaptive_avg_pool3d _adaptive_avg_pool3d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 3, false),
    },
    // ATen's give indices as well; PyTorch's functions only if they are asked to.
    Row {
        names: "aten::adaptive_max_pool1d adaptive_max_pool1d_with_indices",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 1, true),
    },
    Row {
        names: "aten::adaptive_max_pool2d adaptive_max_pool2d_with_indices",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 2, true),
    },
    Row {
        names: "aten::adaptive_max_pool3d adaptive_max_pool3d_with_indices",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 3, true),
    },
    Row {
        names: "torch.nn.functional.adaptive_max_pool1d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 1, false),
    },
    Row {
        names: "torch.nn.functional.adaptive_max_pool2d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 2, false),
    },
    Row {
        names: "torch.nn.functional.adaptive_max_pool3d",
        parameters: ADAPTIVE,
        rule: |call| adaptive(call, 3, false),
    },
    Row {
        names: "torch.nn.functional.unfold im2col",
        parameters: "input|self, kernel_size, dilation, padding, stride",
        rule: im2col,
    },
];

/// Sizes of the batch and the channels, and those that windows move over. Without batch the leading
/// part is shorter.
fn split(input: &Sizes, spatial: usize, lead: usize) -> Attempt<(Sizes, Sizes)> {
    if input.len() != spatial + lead && input.len() != spatial + lead - 1 {
        return refuse("tensors that must have as many dimensions haven't");
    }
    let at = input.len() - spatial;
    Ok((input[..at].iter().copied().collect(), input[at..].iter().copied().collect()))
}

/// What a window of a convolution or pool does in one dimension.
struct Window {
    kernel: ExprId,
    stride: ExprId,
    /// On both sides together.
    padding: ExprId,
    dilation: ExprId,
}

impl Window {
    /// `size + padding - dilation * (kernel - 1) - 1`: how far the window moves. It fits.
    fn room(&self, call: &mut Call<'_>, size: ExprId) -> Attempt<ExprId> {
        let reach = call.plus(self.kernel, -1)?;
        let reach = call.mul(reach, self.dilation)?;
        let padded = call.add(size, self.padding)?;
        let room = call.sub(padded, reach)?;
        let room = call.plus(room, -1)?;
        let zero = call.constant(0);
        call.require(Cmp::Ge, room, zero, "the window is larger than the input")?;
        Ok(room)
    }

    fn count(&self, call: &mut Call<'_>, size: ExprId) -> Attempt<ExprId> {
        let room = self.room(call, size)?;
        let steps = call.floor_div(room, self.stride)?;
        call.plus(steps, 1)
    }

    /// Rounded up, but the last window starts inside the input or its left padding. PyTorch takes one
    /// window away if it doesn't; as padding is at most half the kernel, that is always enough.
    fn count_up(&self, call: &mut Call<'_>, size: ExprId) -> Attempt<ExprId> {
        let room = self.room(call, size)?;
        let steps = call.ceil_div(room, self.stride)?;
        let count = call.plus(steps, 1)?;
        let two = call.constant(2);
        let left = call.floor_div(self.padding, two)?;
        let edge = call.add(size, left)?;
        let starts = call.ceil_div(edge, self.stride)?;
        Ok(call.ctx.min(&[count, starts])?)
    }
}

/// Padding on both sides together, for each dimension.
fn paddings(
    call: &mut Call<'_>,
    spatial: usize,
    kernel: &[ExprId],
    dilation: &[ExprId],
) -> Attempt<Sizes> {
    match call.text("padding").map(str::to_owned).as_deref() {
        Some("valid") => {
            let zero = call.constant(0);
            Ok(std::iter::repeat_n(zero, spatial).collect())
        }
        // As much as the window reaches.
        Some("same") => (0..spatial)
            .map(|at| {
                let reach = call.plus(kernel[at], -1)?;
                call.mul(reach, dilation[at])
            })
            .collect(),
        Some(_) => refuse("padding of another kind"),
        None => {
            let each = call.each("padding", spatial, 0)?;
            each.into_iter().map(|padding| call.times(padding, 2)).collect()
        }
    }
}

fn require_channels(call: &mut Call<'_>, lead: &Sizes, expected: ExprId) -> Attempt<()> {
    match lead.last() {
        Some(&channels) => call.unify(channels, expected).map(|_| ()),
        None => refuse("tensors that must have as many dimensions haven't"),
    }
}

fn conv(call: &mut Call<'_>, spatial: usize) -> Outcome {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (mut sizes, over) = split(&input, spatial, 2)?;
    let (Some((&[features, width], kernel)), true) =
        (weight.split_first_chunk::<2>(), weight.len() == spatial + 2)
    else {
        return refuse("tensors that must have as many dimensions haven't");
    };
    let groups = call.expr_or("groups", 1)?;
    let channels = call.mul(width, groups)?;
    require_channels(call, &sizes, channels)?;
    call.exact_div(features, groups)?;
    let (stride, dilation) = (call.each("stride", spatial, 1)?, call.each("dilation", spatial, 1)?);
    let padding = paddings(call, spatial, kernel, &dilation)?;
    if let Some(channels) = sizes.last_mut() {
        *channels = features;
    }
    for at in 0..spatial {
        let window = Window {
            kernel: kernel[at],
            stride: stride[at],
            padding: padding[at],
            dilation: dilation[at],
        };
        sizes.push(window.count(call, over[at])?);
    }
    Ok(vec![sizes])
}

fn transposed(call: &mut Call<'_>, spatial: usize) -> Outcome {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (mut sizes, over) = split(&input, spatial, 2)?;
    let (Some((&[channels, width], kernel)), true) =
        (weight.split_first_chunk::<2>(), weight.len() == spatial + 2)
    else {
        return refuse("tensors that must have as many dimensions haven't");
    };
    require_channels(call, &sizes, channels)?;
    let groups = call.expr_or("groups", 1)?;
    call.exact_div(channels, groups)?;
    let features = call.mul(width, groups)?;
    if let Some(channels) = sizes.last_mut() {
        *channels = features;
    }
    let stride = call.each("stride", spatial, 1)?;
    let dilation = call.each("dilation", spatial, 1)?;
    let padding = call.each("padding", spatial, 0)?;
    let extra = call.each("output_padding", spatial, 0)?;
    for at in 0..spatial {
        // (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1
        let steps = call.plus(over[at], -1)?;
        let moved = call.mul(steps, stride[at])?;
        let reach = call.plus(kernel[at], -1)?;
        let reach = call.mul(reach, dilation[at])?;
        let both = call.times(padding[at], 2)?;
        let sum = call.add(moved, reach)?;
        let sum = call.sub(sum, both)?;
        let sum = call.add(sum, extra[at])?;
        let size = call.plus(sum, 1)?;
        let one = call.constant(1);
        call.require(Cmp::Ge, size, one, "the padding is larger than the result")?;
        sizes.push(size);
    }
    Ok(vec![sizes])
}

fn convolution(call: &mut Call<'_>) -> Outcome {
    let Some(spatial) = call.tensor("weight")?.len().checked_sub(2) else {
        return refuse("tensors that must have as many dimensions haven't");
    };
    if call.flag_or("transposed", false)? { transposed(call, spatial) } else { conv(call, spatial) }
}

fn pool(call: &mut Call<'_>, spatial: usize) -> Attempt<Sizes> {
    let input = call.tensor("input")?;
    let (mut sizes, over) = split(&input, spatial, 2)?;
    let kernel = call.each("kernel_size", spatial, 1)?;
    // Without stride the windows stand side by side.
    let stride = match call.get("stride") {
        None => kernel.clone(),
        Some(Arg::List(items) | Arg::Tuple(items)) if items.is_empty() => kernel.clone(),
        Some(_) => call.each("stride", spatial, 1)?,
    };
    let dilation = call.each("dilation", spatial, 1)?;
    let padding = paddings(call, spatial, &kernel, &dilation)?;
    let up = call.flag_or("ceil_mode", false)?;
    for at in 0..spatial {
        let window = Window {
            kernel: kernel[at],
            stride: stride[at],
            padding: padding[at],
            dilation: dilation[at],
        };
        let count =
            if up { window.count_up(call, over[at])? } else { window.count(call, over[at])? };
        sizes.push(count);
    }
    Ok(sizes)
}

fn max_pool(call: &mut Call<'_>, spatial: usize, indices: bool) -> Outcome {
    let sizes = pool(call, spatial)?;
    let twice = indices || call.flag_or("return_indices", false)?;
    Ok(vec![sizes; if twice { 2 } else { 1 }])
}

fn avg_pool(call: &mut Call<'_>, spatial: usize) -> Outcome {
    Ok(vec![pool(call, spatial)?])
}

fn adaptive(call: &mut Call<'_>, spatial: usize, indices: bool) -> Outcome {
    let input = call.tensor("input")?;
    let (mut sizes, over) = split(&input, spatial, 2)?;
    match call.get("output_size").cloned() {
        Some(Arg::List(items) | Arg::Tuple(items)) if items.len() == spatial => {
            for (item, &size) in items.iter().zip(&over) {
                sizes.push(if *item == Arg::None { size } else { call.expr_of(item)? });
            }
        }
        _ => sizes.extend(call.each("output_size", spatial, 1)?),
    }
    let twice = indices || call.flag_or("return_indices", false)?;
    Ok(vec![sizes; if twice { 2 } else { 1 }])
}

/// Each window as a column.
fn im2col(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let (mut sizes, over) = split(&input, 2, 2)?;
    let kernel = call.each("kernel_size", 2, 1)?;
    let (dilation, stride) = (call.each("dilation", 2, 1)?, call.each("stride", 2, 1)?);
    let padding = paddings(call, 2, &kernel, &dilation)?;
    let mut windows = call.constant(1);
    for at in 0..2 {
        let window = Window {
            kernel: kernel[at],
            stride: stride[at],
            padding: padding[at],
            dilation: dilation[at],
        };
        let count = window.count(call, over[at])?;
        windows = call.mul(windows, count)?;
    }
    let Some(channels) = sizes.pop() else { return refuse("there is no such dimension") };
    let elements = call.numel(&kernel)?;
    sizes.push(call.mul(channels, elements)?);
    sizes.push(windows);
    Ok(vec![sizes])
}
