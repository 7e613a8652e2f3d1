//! Operations on each of several tensors: PyTorch's `_foreach_` family, and the fused steps of its optimizers.

use super::call::Call;
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "_foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_pow _foreach_lerp \
            _foreach_addcmul _foreach_addcdiv _foreach_maximum _foreach_minimum \
            _foreach_clamp_max _foreach_clamp_min _foreach_copy _foreach_zero \
            _foreach_abs _foreach_neg _foreach_sign _foreach_exp _foreach_expm1 _foreach_log \
            _foreach_log10 _foreach_log1p _foreach_log2 _foreach_sqrt _foreach_rsqrt \
            _foreach_reciprocal _foreach_sin _foreach_cos _foreach_tan _foreach_sinh _foreach_cosh \
            _foreach_tanh _foreach_asin _foreach_acos _foreach_atan _foreach_ceil _foreach_floor \
            _foreach_round _foreach_trunc _foreach_frac _foreach_erf _foreach_erfc _foreach_lgamma \
            _foreach_sigmoid",
        parameters: "self, ...",
        rule: elementwise,
    },
    Row { names: "_foreach_norm _foreach_max", parameters: "self, ...", rule: reduced },
    Row {
        names: "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_",
        parameters: "self, ...",
        rule: fused,
    },
];

/// The first of each list broadcast, the second of each, and so on. Numbers and a tensor that all are given take part in
/// each.
fn elementwise(call: &mut Call<'_>) -> Outcome {
    let own = call.tensor_list("self")?;
    let mut all: Vec<Vec<Sizes>> = own.iter().map(|sizes| vec![sizes.clone()]).collect();
    let named = call.named.iter().map(|(_, arg)| arg);
    for arg in call.positional.iter().skip(1).chain(named) {
        let (Arg::List(items) | Arg::Tuple(items)) = arg else {
            if let Arg::Tensor { sizes, .. } = arg {
                all.iter_mut().for_each(|each| each.push(sizes.clone()));
            }
            continue;
        };
        if items.len() != all.len() {
            return refuse("the lists are of different lengths");
        }
        for (each, item) in all.iter_mut().zip(items) {
            if let Arg::Tensor { sizes, .. } = item {
                each.push(sizes.clone());
            }
        }
    }
    if call.in_place {
        for each in &all {
            for other in &each[1..] {
                call.broadcast_to(other, &each[0])?;
            }
        }
        return Ok(own);
    }
    all.iter().map(|each| call.broadcast_all(each)).collect()
}

/// A number of each tensor.
fn reduced(call: &mut Call<'_>) -> Outcome {
    Ok(call.tensor_list("self")?.iter().map(|_| Sizes::new()).collect())
}

/// Nothing is returned. The kernels walk all lists at once, so no size may vary; numbers may.
fn fused(call: &mut Call<'_>) -> Outcome {
    let named = call.named.iter().map(|(_, arg)| arg);
    let mut found = Vec::new();
    for arg in call.positional.iter().chain(named) {
        sizes_in(arg, &mut found);
    }
    for sizes in found {
        for size in sizes {
            call.fixed(size);
        }
    }
    Ok(Vec::new())
}

fn sizes_in(arg: &Arg, found: &mut Vec<Sizes>) {
    match arg {
        Arg::Tensor { sizes, .. } => found.push(sizes.clone()),
        Arg::List(items) | Arg::Tuple(items) => {
            items.iter().for_each(|item| sizes_in(item, found));
        }
        _ => {}
    }
}
