//! Which operations may raise for what is in their inputs: an index out of range, a matrix that isn't
//! positive definite. Guards don't exclude that. What an operation says of its inputs' metadata it
//! said when it was recorded, and the guards keep that.
//!
//! What isn't listed may raise.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::torch::gives_new_memory;

/// Operations that raise for their inputs' metadata, and for nothing else but want of memory.
/// Names without their modules and underscores.
const STEADY: &str = "abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d \
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv addr \
    affine_grid all amax amin aminmax and angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax \
    argmin argsort asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bilinear \
    binary_cross_entropy_with_logits bitwise_and bitwise_not bitwise_or bitwise_xor bmm bucketize cdist ceil \
    celu channel_shuffle clamp clamp_max clamp_min clip clone col2im complex constant_pad_nd conv1d conv2d \
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution copy copysign cos cosh \
    cosine_embedding_loss cosine_similarity count_nonzero cross cummax cummin cumprod cumsum deg2rad diag_embed \
    diagflat diff digamma dist dot einsum elu entr eq erf erfc erfcx erfinv exp exp2 expit expm1 fft fft2 \
    fftfreq fftn fftshift fill fill_diagonal flip fliplr flipud float_power floor fmax fmin frac gammaln ge gelu \
    ger glu greater greater_equal grid_sample grid_sampler group_norm gru_cell gt hardshrink hardsigmoid \
    hardswish hardtanh heaviside hinge_embedding_loss huber_loss hypot i0 i0e i1 i1e iadd iand ifft ifft2 ifftn \
    ifftshift im2col imatmul imul inner instance_norm interpolate invert ior irfft irfft2 irfftn is_all_true \
    is_any_true isclose isfinite isin isinf isnan isneginf isposinf isreal isub itruediv ixor kl_div kron \
    kthvalue l1_loss layer_norm ldexp le leaky_relu lerp less less_equal lgamma linalg_cross linalg_vecdot \
    linalg_vector_norm linear local_response_norm log log10 log1p log2 log_ndtr log_sigmoid log_softmax \
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logsigmoid logsumexp \
    lp_pool1d lp_pool2d lshift lstm_cell lt margin_ranking_loss masked_fill matmul max max_pool1d \
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices maximum mean \
    median min minimum mish mm mode mse_loss msort mul multiply mv nan_to_num nanmean nanmedian nansum \
    native_batch_norm native_group_norm native_layer_norm ndtr ne neg negative nextafter norm normalize not or \
    outer pad pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss polar pos positive prelu prod psi \
    rad2deg radd rand reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 renorm repeat \
    replication_pad1d replication_pad2d replication_pad3d rfft rfft2 rfftfreq rfftn rmatmul rms_norm rmul \
    rnn_relu_cell rnn_tanh_cell roll ror rot90 round rrelu rshift rsqrt rsub rtruediv rxor \
    scaled_dot_product_attention searchsorted selu sgn sigmoid sign signbit silu sin sinc sinh size \
    smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign sort sqrt square std std_mean \
    stft stride sub subtract sum tan tanh tanhshrink tensordot threshold tile topk trace trapezoid trapz tril \
    triplet_margin_loss triu true_divide truediv trunc upsample upsample_bicubic2d upsample_bilinear2d \
    upsample_nearest2d vander var var_mean vdot where xlog1py xlogy xor zero zeta";

/// As [`STEADY`]; what they give may be, or share memory with, an argument.
const VIEWS: &str = "alias as_strided as_tensor atleast_1d atleast_2d atleast_3d bfloat16 bool broadcast_tensors \
    broadcast_to byte chunk conj conj_physical contiguous cpu data detach diag diagonal double dropout \
    dropout1d dropout2d dropout3d expand expand_as feature_dropout alpha_dropout feature_alpha_dropout fix flatten \
    float half imag int long meshgrid movedim moveaxis narrow native_dropout Parameter Buffer permute ravel real \
    requires_grad reshape reshape_as resolve_conj resolve_neg select short split split_with_sizes squeeze swapaxes \
    swapdims t tensor_split hsplit vsplit dsplit to transpose type type_as unbind unflatten unfold unsqueeze view \
    view_as view_as_complex view_as_real";

/// As [`STEADY`], and of tensors they are given at most metadata: they join, or make new ones.
const MADE: &str = "arange block_diag cat concat concatenate column_stack dstack empty empty_like empty_strided eye full \
    full_like hann_window hamming_window bartlett_window blackman_window kaiser_window hstack linspace logspace \
    new_empty new_empty_strided new_full new_ones new_tensor new_zeros ones ones_like row_stack scalar_tensor stack \
    tensor tril_indices triu_indices vstack zeros zeros_like diagonal_scatter select_scatter slice_scatter";

/// As [`STEADY`]; what they give is random.
const RANDOM: &str = "rand_like randint randint_like randn randn_like randperm uniform random exponential \
    geometric cauchy log_normal";

/// State that is switched, what is put in place of a tensor's data or gradient, what computes gradients, the number in a
/// tensor, and answers.
const SWITCHES: &str = "set_grad_enabled set_autocast_enabled set_autocast_dtype set_autocast_cpu_dtype \
    set_autocast_cpu_enabled set_autocast_gpu_dtype set_autocast_cache_enabled autocast_increment_nesting \
    autocast_decrement_nesting clear_autocast_cache enter_inference_mode exit_inference_mode set delete \
    backward grad record_function_enter record_function_exit item manual_seed Generator \
    allclose contains equal is_nonzero retain_grad";

/// They raise if an index is out of range.
const INDEXED: &str = "getitem setitem cross_entropy nll_loss embedding gather scatter scatter_add scatter_reduce index_select index_add index_copy \
    index_fill index_put index_reduce take take_along_dim put";

/// They raise if integers are divided by zero, or given negative powers.
const DIVISIONS: &str = "div divide idiv rdiv floor_divide floordiv ifloordiv rfloordiv remainder fmod mod imod rmod pow \
    ipow rpow";

/// They raise for many reasons, and write to nothing.
const REFUSING: &str = "ctc_loss nanquantile quantile";

/// Of those that raise for metadata alone: no value of the numbers they compute with makes them raise, if they
/// compute in floats. (An `int8` refuses an `alpha` of 300; `dropout` refuses a probability of 2.)
const SCALARS: &str = "add addbmm addcdiv addcmul addmm addmv addr baddbmm batch_norm clamp clamp_max clamp_min clip \
    group_norm instance_norm layer_norm leaky_relu lerp nan_to_num rms_norm rsub scaled_dot_product_attention softplus \
    sub subtract threshold";

/// For what an operation may raise, beyond its inputs' metadata and want of memory; and what it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raising {
    /// Nothing. It gives new memory that follows from its inputs.
    Steady,
    /// Nothing. What it gives may be, or share memory with, its first argument.
    View,
    /// Nothing. It joins tensors, or makes one of no others.
    Made,
    /// Nothing. What it gives is random.
    Random,
    /// Nothing. It switches state, sets a part of a tensor, or gives no tensor.
    Switch,
    /// An index out of range.
    Indexed,
    /// Integers divided by zero, or with negative powers.
    Division,
    /// Anything. It writes to nothing.
    Refusing,
    /// Anything. It writes to nothing, and gives new memory.
    Fresh,
    /// Anything.
    Unknown,
}

static INDEX: LazyLock<FxHashMap<&str, Raising>> = LazyLock::new(|| {
    let lists = [
        (STEADY, Raising::Steady),
        (VIEWS, Raising::View),
        (MADE, Raising::Made),
        (RANDOM, Raising::Random),
        (SWITCHES, Raising::Switch),
        (INDEXED, Raising::Indexed),
        (DIVISIONS, Raising::Division),
        (REFUSING, Raising::Refusing),
    ];
    let rows =
        lists.iter().flat_map(|(names, class)| names.split_whitespace().map(|it| (it, *class)));
    rows.collect()
});

/// For what an operation of PyTorch of this name may raise; the name stands without modules and overloads.
#[must_use]
pub fn raising(name: &str) -> Raising {
    let bare = name.trim_matches('_');
    if ["foreach_", "fused_", "amp_"].iter().any(|prefix| bare.starts_with(prefix)) {
        return Raising::Steady;
    }
    let unlisted = || if gives_new_memory(name) { Raising::Fresh } else { Raising::Unknown };
    INDEX.get(bare).copied().unwrap_or_else(unlisted)
}

/// Whether an operation that computes in floats raises for no value of a number that it is given as a tensor,
/// of whose data no guard speaks.
#[must_use]
pub fn raises_no_more_for_scalars(name: &str) -> bool {
    let bare = name.trim_matches('_');
    SCALARS.split_whitespace().any(|known| known == bare)
}

#[cfg(test)]
mod tests {
    use super::{
        DIVISIONS, INDEX, INDEXED, MADE, RANDOM, REFUSING, SCALARS, STEADY, SWITCHES, VIEWS,
    };

    #[test]
    fn scalars_are_of_steady_operations() {
        let mut names = SCALARS.split_whitespace();
        assert!(names.all(|name| STEADY.split_whitespace().any(|steady| steady == name)));
    }

    #[test]
    fn each_name_stands_once() {
        let lists = [STEADY, VIEWS, MADE, RANDOM, SWITCHES, INDEXED, DIVISIONS, REFUSING];
        let count: usize = lists.iter().map(|names| names.split_whitespace().count()).sum();
        assert_eq!(count, INDEX.len());
    }
}
