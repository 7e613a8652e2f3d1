//! Operations on each element, with broadcasting.

use super::call::Call;
use super::registry::Row;
use super::{Outcome, refuse};

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "add sub rsub mul div divide true_divide multiply subtract floor_divide remainder fmod pow \
            float_power atan2 arctan2 hypot copysign nextafter logaddexp logaddexp2 maximum minimum \
            fmax fmin heaviside ldexp xlogy special_xlogy special_xlog1py gcd lcm eq ne lt le gt ge \
            greater greater_equal less less_equal not_equal isclose \
            logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor \
            bitwise_left_shift bitwise_right_shift truediv floordiv mod and or xor lshift rshift \
            __and__ __or__ __xor__ and_ or_ \
            lerp addcmul addcdiv clamp clip clamp_min clamp_max clamp_max_ clamp_min_ masked_fill \
            polygamma special_polygamma special_zeta \
            special_chebyshev_polynomial_t special_chebyshev_polynomial_u \
            special_chebyshev_polynomial_v special_chebyshev_polynomial_w \
            special_hermite_polynomial_h special_hermite_polynomial_he \
            special_laguerre_polynomial_l special_legendre_polynomial_p \
            special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u \
            special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w \
            special_gammainc special_gammaincc igamma igammac complex polar _dirichlet_grad",
        parameters: "...",
        rule: pointwise,
    },
    Row {
        names: "abs absolute neg negative pos positive invert bitwise_not logical_not sign sgn signbit \
            exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos \
            atan sinh cosh tanh asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh \
            sinc ceil floor round trunc fix frac erf erfc erfinv lgamma digamma mvlgamma i0 logit \
            sigmoid special_expit special_erf special_erfc special_log_softmax special_softmax \
            isnan isinf isfinite isposinf isneginf isreal real imag conj conj_physical \
            resolve_conj resolve_neg angle deg2rad rad2deg nan_to_num \
            relu relu6 elu selu celu gelu silu mish leaky_relu rrelu prelu hardtanh hardswish \
            hardsigmoid hardshrink softshrink softplus softsign tanhshrink logsigmoid log_sigmoid \
            threshold _threshold dropout alpha_dropout feature_dropout feature_alpha_dropout \
            dropout1d dropout2d dropout3d bernoulli normal_ uniform_ _standard_gamma _sample_dirichlet \
            exponential_ geometric_ cauchy_ log_normal_ random_ fill fill_ zero zero_ fill_diagonal_ \
            clone contiguous detach detach_ to type type_as float double half bfloat16 int long \
            short char byte bool cpu cuda cfloat cdouble alias lift_fresh _to_copy _conj \
            requires_grad_ pin_memory data __copy__ __deepcopy__ as_subclass \
            tril triu flip fliplr flipud cumsum cumprod logcumsumexp renorm \
            rot180 softmax log_softmax softmin gumbel_softmax _softmax _log_softmax \
            masked_softmax normalize local_response_norm batch_norm instance_norm group_norm \
            channel_shuffle native_channel_shuffle linalg_inv inverse linalg_cholesky cholesky \
            linalg_matrix_exp matrix_exp linalg_matrix_power matrix_power \
            bucketize chalf _safe_softmax isin cholesky_inverse _softmax_backward_data \
            _log_softmax_backward_data native_dropout_backward special_ndtr special_log_ndtr special_ndtri special_erfcx \
            special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 \
            special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 \
            special_modified_bessel_k1 special_scaled_modified_bessel_k0 \
            special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_airy_ai \
            special_i0 special_i0e special_i1 special_i1e special_entr special_digamma special_psi \
            special_gammaln special_multigammaln special_expm1 special_exp2 special_log1p \
            special_sinc special_round special_logit special_erfinv",
        parameters: "input|self|x, ...",
        rule: same,
    },
    Row { names: "where", parameters: "condition, input|self, other|y", rule: where_ },
    Row { names: "as_strided_scatter", parameters: "input|self, ...", rule: same },
    Row { names: "_unsafe_masked_index_put_accumulate", parameters: "self, ...", rule: same_self },
    Row {
        names: "max_pool2d_with_indices_backward",
        parameters: "grad_output, self, ...",
        rule: same_self,
    },
    Row { names: "copy_ copy", parameters: "self|input, src|other, non_blocking", rule: copy },
];

/// All tensors broadcast; numbers take part without dimensions.
fn pointwise(call: &mut Call<'_>) -> Outcome {
    let tensors = call.tensors();
    let Some(first) = tensors.first() else { return refuse("there is no tensor") };
    if call.in_place {
        for other in &tensors[1..] {
            call.broadcast_to(other, first)?;
        }
        return Ok(vec![first.clone()]);
    }
    Ok(vec![call.broadcast_all(&tensors)?])
}

/// The result is as large as the first argument.
fn same(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("input")?])
}

fn same_self(call: &mut Call<'_>) -> Outcome {
    Ok(vec![call.tensor("self")?])
}

fn where_(call: &mut Call<'_>) -> Outcome {
    if call.get("input").is_none() {
        return refuse("the number of results depends on data");
    }
    pointwise(call)
}

fn copy(call: &mut Call<'_>) -> Outcome {
    let (own, source) = (call.tensor("self")?, call.tensor("src")?);
    call.broadcast_to(&source, &own)?;
    Ok(vec![own])
}
