//! Fourier transforms.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Element, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

const ONE: &str = "input|self, n, dim, norm";
const MANY: &str = "input|self, s, dim, norm";

pub(super) const ROWS: &[Row] = &[
    Row { names: "fft_fft fft_ifft", parameters: ONE, rule: |call| one(call, Last::Whole) },
    Row { names: "fft_rfft fft_ihfft", parameters: ONE, rule: |call| one(call, Last::Half) },
    Row { names: "fft_irfft fft_hfft", parameters: ONE, rule: |call| one(call, Last::Doubled) },
    Row { names: "fft_fft2 fft_ifft2", parameters: MANY, rule: |call| two(call, Last::Whole) },
    Row { names: "fft_rfft2 fft_ihfft2", parameters: MANY, rule: |call| two(call, Last::Half) },
    Row { names: "fft_irfft2 fft_hfft2", parameters: MANY, rule: |call| two(call, Last::Doubled) },
    Row { names: "fft_fftn fft_ifftn", parameters: MANY, rule: |call| any(call, Last::Whole) },
    Row { names: "fft_rfftn fft_ihfftn", parameters: MANY, rule: |call| any(call, Last::Half) },
    Row { names: "fft_irfftn fft_hfftn", parameters: MANY, rule: |call| any(call, Last::Doubled) },
    Row {
        names: "fft_fftshift fft_ifftshift",
        parameters: "input|self, dim",
        rule: |call| Ok(vec![call.tensor("input")?]),
    },
    Row { names: "fft_fftfreq", parameters: "n, d", rule: |call| frequencies(call, false) },
    Row { names: "fft_rfftfreq", parameters: "n, d", rule: |call| frequencies(call, true) },
    Row {
        names: "stft",
        parameters: "input|self, n_fft, hop_length, win_length, window, center, pad_mode, \
            normalized, onesided, return_complex, align_to_window",
        rule: windowed,
    },
    Row {
        names: "istft",
        parameters: "input|self, n_fft, hop_length, win_length, window, center, normalized, \
            onesided, length, return_complex",
        rule: unwindowed,
    },
];

/// What becomes of the last transformed dimension.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Whole,
    /// A real signal's spectrum is symmetric: half of it suffices.
    Half,
    /// Half a spectrum's signal.
    Doubled,
}

impl Last {
    /// The length of the result, for a signal that is cut or padded to `given`.
    fn length(self, call: &mut Call<'_>, size: ExprId, given: Option<ExprId>) -> Attempt<ExprId> {
        match self {
            Last::Whole => Ok(given.unwrap_or(size)),
            Last::Half => {
                let two = call.constant(2);
                let half = call.floor_div(given.unwrap_or(size), two)?;
                call.plus(half, 1)
            }
            Last::Doubled => match given {
                Some(given) => Ok(given),
                None => {
                    let steps = call.plus(size, -1)?;
                    call.times(steps, 2)
                }
            },
        }
    }
}

fn one(call: &mut Call<'_>, last: Last) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let dim = call.dim_or("dim", -1, sizes.len())?;
    let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
    let given = if call.get("n").is_some() { Some(call.expr("n")?) } else { None };
    sizes[dim] = last.length(call, size, given)?;
    Ok(vec![sizes])
}

fn transform(call: &mut Call<'_>, dims: &[usize], last: Last) -> Outcome {
    let mut sizes: Sizes = call.tensor("input")?;
    let given = if call.get("s").is_some() { Some(call.exprs("s")?) } else { None };
    if given.as_ref().is_some_and(|given| given.len() != dims.len()) {
        return refuse("a sequence has another length than there are dimensions");
    }
    for (i, &dim) in dims.iter().enumerate() {
        let Some(&size) = sizes.get(dim) else { return refuse("there is no such dimension") };
        // -1 stands for the size as it is.
        let given = given.as_ref().map(|given| given[i]);
        let given = match given {
            Some(given) if call.ctx.hint(given) == -1 && call.fixed(given) == -1 => None,
            given => given,
        };
        let role = if i + 1 == dims.len() { last } else { Last::Whole };
        sizes[dim] = role.length(call, size, given)?;
    }
    Ok(vec![sizes])
}

fn two(call: &mut Call<'_>, last: Last) -> Outcome {
    let rank = call.tensor("input")?.len();
    if rank < 2 {
        return refuse("there is no such dimension");
    }
    let dims = call.dims("dim", rank)?.unwrap_or_else(|| vec![rank - 2, rank - 1]);
    transform(call, &dims, last)
}

/// Without dimensions: as many last ones as there are lengths, or all.
fn any(call: &mut Call<'_>, last: Last) -> Outcome {
    let rank = call.tensor("input")?.len();
    let given = if call.get("s").is_some() { Some(call.exprs("s")?.len()) } else { None };
    let dims = match call.dims("dim", rank)? {
        Some(dims) => dims,
        None => (rank.saturating_sub(given.unwrap_or(rank))..rank).collect(),
    };
    transform(call, &dims, last)
}

fn frequencies(call: &mut Call<'_>, half: bool) -> Outcome {
    let n = call.expr("n")?;
    let last = if half { Last::Half } else { Last::Whole };
    Ok(vec![[last.length(call, n, None)?].into_iter().collect()])
}

/// How far windows move: a quarter of their length, unless it is said.
fn hop(call: &mut Call<'_>, length: ExprId) -> Attempt<ExprId> {
    if call.get("hop_length").is_some() {
        return call.expr("hop_length");
    }
    let four = call.constant(4);
    call.floor_div(length, four)
}

/// What `center` adds on both sides together.
fn margins(call: &mut Call<'_>, length: ExprId) -> Attempt<ExprId> {
    let two = call.constant(2);
    let half = call.floor_div(length, two)?;
    call.times(half, 2)
}

/// `torch.stft`: frequencies, then windows.
fn windowed(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let Some(mut signal) = sizes.pop() else { return refuse("there is no such dimension") };
    let length = call.expr("n_fft")?;
    let hop = hop(call, length)?;
    if call.flag_or("center", true)? {
        let margins = margins(call, length)?;
        signal = call.add(signal, margins)?;
    }
    let room = call.sub(signal, length)?;
    let zero = call.constant(0);
    call.require(Cmp::Ge, room, zero, "the window is larger than the input")?;
    let steps = call.floor_div(room, hop)?;
    let is_real = matches!(call.get("input"), Some(Arg::Tensor { element: Element::Number, .. }));
    let frequencies = if call.flag_or("onesided", is_real)? {
        let two = call.constant(2);
        let half = call.floor_div(length, two)?;
        call.plus(half, 1)?
    } else {
        length
    };
    sizes.push(frequencies);
    sizes.push(call.plus(steps, 1)?);
    if !call.flag_or("return_complex", false)? {
        sizes.push(call.constant(2));
    }
    Ok(vec![sizes])
}

/// `torch.istft`
fn unwindowed(call: &mut Call<'_>) -> Outcome {
    let mut sizes = call.tensor("input")?;
    let (Some(windows), Some(_)) = (sizes.pop(), sizes.pop()) else {
        return refuse("there is no such dimension");
    };
    if call.get("length").is_some() {
        sizes.push(call.expr("length")?);
        return Ok(vec![sizes]);
    }
    let length = call.expr("n_fft")?;
    let hop = hop(call, length)?;
    let steps = call.plus(windows, -1)?;
    let moved = call.mul(hop, steps)?;
    let mut signal = call.add(moved, length)?;
    if call.flag_or("center", true)? {
        let margins = margins(call, length)?;
        signal = call.sub(signal, margins)?;
    }
    sizes.push(signal);
    Ok(vec![sizes])
}
