//! From windows back to what they were taken from.

use super::call::Call;
use super::registry::Row;
use super::{Outcome, refuse};
use crate::Cmp;

const UNPOOL: &str = "input|self, indices, kernel_size, stride, padding, output_size";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "fold col2im",
        parameters: "input|self, output_size, kernel_size, dilation, padding, stride",
        rule: fold,
    },
    Row {
        names: "torch.nn.functional.max_unpool1d",
        parameters: UNPOOL,
        rule: |call| unpool(call, 1),
    },
    Row {
        names: "torch.nn.functional.max_unpool2d",
        parameters: UNPOOL,
        rule: |call| unpool(call, 2),
    },
    Row {
        names: "torch.nn.functional.max_unpool3d",
        parameters: UNPOOL,
        rule: |call| unpool(call, 3),
    },
];

/// `F.fold`: as many windows as there are columns.
fn fold(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let (Some(columns), Some(channels)) = (sizes.pop(), sizes.pop()) else {
        return refuse("there is no such dimension");
    };
    let (output, kernel) = (call.each("output_size", 2, 1)?, call.each("kernel_size", 2, 1)?);
    let (dilation, stride) = (call.each("dilation", 2, 1)?, call.each("stride", 2, 1)?);
    let padding = call.each("padding", 2, 0)?;
    let elements = call.numel(&kernel)?;
    sizes.push(call.exact_div(channels, elements)?);
    let mut windows = call.constant(1);
    for at in 0..2 {
        let reach = call.plus(kernel[at], -1)?;
        let reach = call.mul(reach, dilation[at])?;
        let padding = call.times(padding[at], 2)?;
        let padded = call.add(output[at], padding)?;
        let room = call.sub(padded, reach)?;
        let room = call.plus(room, -1)?;
        let steps = call.floor_div(room, stride[at])?;
        let count = call.plus(steps, 1)?;
        windows = call.mul(windows, count)?;
    }
    call.unify(columns, windows)?;
    sizes.extend(output);
    Ok(vec![sizes])
}

/// `(size - 1) * stride - 2 * padding + kernel`, or a size that is given and less than a stride away.
fn unpool(call: &mut Call<'_>, spatial: usize) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let indices = call.tensor("indices")?;
    sizes = call.unify_all(&sizes, &indices)?;
    let Some(at) = sizes.len().checked_sub(spatial) else {
        return refuse("there is no such dimension");
    };
    let kernel = call.each("kernel_size", spatial, 1)?;
    let has_stride = call.get("stride").is_some();
    let stride = if has_stride { call.each("stride", spatial, 1)? } else { kernel.clone() };
    let padding = call.each("padding", spatial, 0)?;
    for dim in 0..spatial {
        let steps = call.plus(sizes[at + dim], -1)?;
        let moved = call.mul(steps, stride[dim])?;
        let padding = call.times(padding[dim], 2)?;
        let inner = call.sub(moved, padding)?;
        sizes[at + dim] = call.add(inner, kernel[dim])?;
    }
    if call.get("output_size").is_some() {
        let output = call.exprs("output_size")?;
        let Some(from) = output.len().checked_sub(spatial) else {
            return refuse("there is no such dimension");
        };
        for dim in 0..spatial {
            let given = output[from + dim];
            let (least, most) =
                (call.sub(sizes[at + dim], stride[dim])?, call.add(sizes[at + dim], stride[dim])?);
            call.require(Cmp::Lt, least, given, "a size that no pooling gives")?;
            call.require(Cmp::Lt, given, most, "a size that no pooling gives")?;
            sizes[at + dim] = given;
        }
    }
    Ok(vec![sizes])
}
