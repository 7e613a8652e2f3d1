//! Padding and resampling of the last dimensions.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "pad constant_pad_nd",
        parameters: "input|self, pad, mode|value, value",
        rule: pad,
    },
    Row {
        names: "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d \
            replication_pad2d replication_pad3d",
        parameters: "input|self, pad|padding",
        rule: pad,
    },
    Row {
        names: "interpolate",
        parameters: "input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias",
        rule: interpolate,
    },
    Row {
        names: "upsample torch.nn.functional.upsample_nearest torch.nn.functional.upsample_bilinear",
        parameters: "input, size, scale_factor, mode, align_corners",
        rule: interpolate,
    },
    Row {
        names: "_upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        parameters: "input|self, output_size, align_corners, scale_factor|scales_h, scales_w",
        rule: upsample_smoothed,
    },
    Row {
        names: "fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices \
            fractional_max_pool3d_with_indices",
        parameters: "input|self, kernel_size, output_size, output_ratio, return_indices, ...",
        rule: fractional_pool,
    },
    Row { names: "pixel_shuffle", parameters: "input|self, upscale_factor", rule: pixel_shuffle },
    Row {
        names: "pixel_unshuffle",
        parameters: "input|self, downscale_factor",
        rule: pixel_unshuffle,
    },
    Row { names: "glu", parameters: "input|self, dim", rule: glu },
    Row {
        names: "grid_sample grid_sampler grid_sampler_2d grid_sampler_3d",
        parameters: "input, grid, ...",
        rule: grid_sample,
    },
    Row { names: "affine_grid", parameters: "theta, size, align_corners", rule: affine_grid },
];

fn pad(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let amounts = call.exprs("pad")?;
    if amounts.len() % 2 != 0 || amounts.len() / 2 > sizes.len() {
        return refuse("padding for more dimensions than there are");
    }
    let zero = call.constant(0);
    // So much of a dimension is mirrored or repeated at most.
    let most = match call.text("mode") {
        Some("reflect") => Some(Cmp::Lt),
        Some("circular") => Some(Cmp::Le),
        _ => None,
    };
    for (at, pair) in amounts.chunks_exact(2).enumerate() {
        let dim = sizes.len() - 1 - at;
        for &amount in pair {
            if !call.holds(Cmp::Ge, amount, zero) {
                let left = call.add(sizes[dim], amount)?;
                call.require_size(left)?;
            } else if let Some(most) = most {
                call.require(most, amount, sizes[dim], "more is mirrored than there is")?;
            }
        }
        let padded = call.add(sizes[dim], pair[0])?;
        sizes[dim] = call.add(padded, pair[1])?;
        call.require(Cmp::Ge, sizes[dim], zero, "a negative size")?;
    }
    Ok(vec![sizes])
}

/// The scale for each dimension.
fn scales(call: &mut Call<'_>, count: usize) -> Attempt<Vec<Arg>> {
    match call.get("scale_factor").cloned() {
        Some(Arg::List(items) | Arg::Tuple(items)) if items.len() == count => Ok(items),
        Some(single @ (Arg::Int(_) | Arg::Float(_))) => Ok(vec![single; count]),
        _ => refuse("neither size nor scale is given"),
    }
}

fn interpolate(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let Some(spatial) = input.len().checked_sub(2) else {
        return refuse("tensors that must have as many dimensions haven't");
    };
    let mut sizes: Sizes = input[..2].iter().copied().collect();
    if call.get("size").is_some() {
        sizes.extend(call.each("size", spatial, 1)?);
        return Ok(vec![sizes]);
    }
    let scales = scales(call, spatial)?;
    for (scale, &size) in scales.iter().zip(&input[2..]) {
        let scale = call.float_of(scale)?;
        sizes.push(call.scaled(size, scale)?);
    }
    Ok(vec![sizes])
}

fn upsample_smoothed(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    if call.get("output_size").is_none() || input.len() != 4 {
        return refuse("neither size nor scale is given");
    }
    let mut sizes: Sizes = input[..2].iter().copied().collect();
    sizes.extend(call.each("output_size", 2, 1)?);
    Ok(vec![sizes])
}

/// ATen gives the indices too, PyTorch's function where they are asked for.
fn fractional_pool(call: &mut Call<'_>) -> Outcome {
    let input = call.tensor("input")?;
    let output = call.exprs("output_size")?;
    let Some(lead) = input.len().checked_sub(output.len()).filter(|_| output.len() > 1) else {
        return refuse("the number of dimensions isn't known");
    };
    let sizes: Sizes = input[..lead].iter().chain(&output).copied().collect();
    let has_indices = call.is_tensor("output_ratio") || call.flag_or("return_indices", false)?;
    Ok(vec![sizes; if has_indices { 2 } else { 1 }])
}

/// Channels, height and width at the end.
fn image(sizes: &Sizes) -> Attempt<(usize, [ExprId; 3])> {
    match sizes.split_last_chunk::<3>() {
        Some((lead, &image)) => Ok((lead.len(), image)),
        None => refuse("there is no such dimension"),
    }
}

fn pixel_shuffle(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let factor = call.expr("upscale_factor")?;
    let (at, [channels, height, width]) = image(&sizes)?;
    let square = call.mul(factor, factor)?;
    sizes[at] = call.exact_div(channels, square)?;
    sizes[at + 1] = call.mul(height, factor)?;
    sizes[at + 2] = call.mul(width, factor)?;
    Ok(vec![sizes])
}

fn pixel_unshuffle(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let factor = call.expr("downscale_factor")?;
    let (at, [channels, height, width]) = image(&sizes)?;
    let square = call.mul(factor, factor)?;
    sizes[at] = call.mul(channels, square)?;
    sizes[at + 1] = call.exact_div(height, factor)?;
    sizes[at + 2] = call.exact_div(width, factor)?;
    Ok(vec![sizes])
}

fn glu(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    let two = call.constant(2);
    sizes[dim] = call.exact_div(size, two)?;
    Ok(vec![sizes])
}

fn grid_sample(call: &mut Call<'_>) -> Outcome {
    let (input, grid) = (call.tensor("input")?, call.tensor("grid")?);
    if input.len() != grid.len() || input.len() < 3 {
        return refuse("tensors that must have as many dimensions haven't");
    }
    let batch = call.unify(input[0], grid[0])?;
    let mut sizes: Sizes = [batch, input[1]].into_iter().collect();
    sizes.extend_from_slice(&grid[1..grid.len() - 1]);
    Ok(vec![sizes])
}

fn affine_grid(call: &mut Call<'_>) -> Outcome {
    let size = call.exprs("size")?;
    let Some(spatial) = size.len().checked_sub(2) else {
        return refuse("there is no such dimension");
    };
    let mut sizes: Sizes = [size[0]].into_iter().collect();
    sizes.extend_from_slice(&size[2..]);
    sizes.push(call.constant(i64::try_from(spatial).unwrap_or(0)));
    Ok(vec![sizes])
}
