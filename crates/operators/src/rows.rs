//! The rows of PyTorch's operations.
//!
//! Rows are for what the rule of `torch.rs` doesn't reach: operators that are made of others, functions and
//! methods that are written in Python, private names, and what doesn't follow from metadata. Whoever
//! adds a name under `Always` has seen that no data decides its results' shapes; `tests/soundness/`
//! (`test_determined.py`, `test_operators.py`) looks again.

use crate::class::{Class, Determined};
use crate::fills::Filled;
use crate::row::{self, Row, Traits};
use Determined::{
    Always, Answer, AtLeast, Counts, EagerIf, EagerOnly, IfGiven, Indexing, Never, OfNumbers,
    ReadsData, Sized, UnlessNamed, UnlessTensorBeyond, Unusual,
};

const fn row(
    owner: &'static str,
    determined: Determined,
    traits: Traits,
    names: &'static str,
) -> Row {
    row::row(owner, names, Class::Operation(determined), traits)
}

const NONE: Traits = Traits::NONE;
const SILENT: Traits = Traits::WRITES_SILENTLY;
const DROPS: Traits = Traits::RETURNS_ARGUMENT.and(Traits::IDLE);
const IDLE: Traits = Traits::IDLE;

/// The rows.
pub const OPERATIONS: &[Row] = &[
    // The shape of what they give depends on data, or holds such a part.
    row("", Never, NONE, "coalesce from_numpy histogramdd lstsq sparse_mask to_padded_tensor"),
    row(
        "",
        Sized,
        NONE,
        "argwhere bincount masked_select nonzero unique unique_consecutive unique_dim",
    ),
    // They give data, read it, or do what a graph can't say.
    row(
        "",
        ReadsData,
        NONE,
        "__array__ __array_wrap__ __bool__ __complex__ __deepcopy__ __dlpack__ \
         __float__ __format__ __index__ __int__ __len__ __long__ __nonzero__ __reduce_ex__ __repr__ \
         __reversed__ __setstate__ __torch_dispatch__ _assert_async _make_subclass _typed_storage \
         align_to apply_ as_subclass data_ptr eig has_names is_pinned is_same_size is_set_to is_shared item map2_ map_ module_load \
         numpy pin_memory record_stream refine_names register_hook \
         register_post_accumulate_grad_hook reinforce rename rename_ resize resize_ resize_as \
         resize_as_ set_ share_memory_ sparse_resize_ sparse_resize_and_clear_ storage \
         storage_offset tolist untyped_storage",
    ),
    row("", Answer, NONE, "__contains__ allclose equal is_nonzero"),
    // With a condition alone it is `nonzero`.
    row("", AtLeast(2), NONE, "where"),
    // Otherwise data says how large the result is.
    row("", IfGiven(1, "num_classes"), NONE, "one_hot"),
    // What they give holds more than its metadata says.
    row(
        "",
        Unusual,
        NONE,
        "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic sparse_bsc_tensor \
         sparse_bsr_tensor sparse_compressed_tensor to_mkldnn to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr",
    ),
    // What they give is handed on to few operations (`sparse.rs`), but not to other backends. Without a size data says it.
    row("", EagerIf(&IfGiven(2, "size")), NONE, "sparse_coo_tensor"),
    row("", EagerIf(&IfGiven(3, "size")), NONE, "sparse_csc_tensor sparse_csr_tensor"),
    row("torch._C._sparse", EagerOnly, NONE, "_sparse_addmm _sparse_mm"),
    row("torch._C._VariableFunctions", EagerOnly, NONE, "spmm"),
    row("", Counts, NONE, "repeat_interleave"),
    row("", Indexing, NONE, "__getitem__ __setitem__"),
    row("torch.ops.aten", Indexing, NONE, "_unsafe_index index"),
    // PyTorch has kernels without data for them, though they are sparse, or print.
    row(
        "torch.ops.aten",
        Unusual,
        NONE,
        "_coalesced_ _efficientzerotensor _print _sparse_coo_tensor_with_dims \
         _sparse_coo_tensor_with_dims_and_tensors",
    ),
    // What goes back through it is as large as the longest target.
    row("", EagerOnly, NONE, "ctc_loss"),
    // They look whether the places that they're asked for are between 0 and 1.
    row("", EagerOnly, NONE, "nanquantile quantile"),
    // They look whether weights are negative, there is something to divide by, and lengths are as many as there are rows.
    row("", EagerOnly, NONE, "corrcoef cov segment_reduce"),
    // They count as many as they are asked for, which data says to nobody but PyTorch.
    row("", EagerIf(&UnlessTensorBeyond(1)), NONE, "combinations nonzero_static"),
    // Other drivers give residuals if the rank is full.
    row("", EagerIf(&UnlessNamed("driver")), NONE, "linalg_lstsq"),
    // What it's given may be data, or memory, too.
    row("torch.Tensor", OfNumbers(1), NONE, "new"),
    row("", EagerOnly, SILENT, "detach_ requires_grad_ retain_grad"),
    // Sizes and counts are among their arguments, from this one on.
    row(
        "",
        UnlessTensorBeyond(0),
        NONE,
        "arange bartlett_window blackman_window empty empty_permuted empty_strided eye \
         hamming_window hann_window kaiser_window logspace ones rand randint randn randperm range \
         tril_indices triu_indices zeros",
    ),
    // What they give is filled with numbers.
    row("", Determined::Filled(Filled::Number, &[(1, "fill_value")]), NONE, "full"),
    row("", Determined::Filled(Filled::First, &[(1, "fill_value")]), NONE, "full_like"),
    row("", Determined::Filled(Filled::First, &[(2, "fill_value")]), NONE, "new_full"),
    row("", Determined::Filled(Filled::Default, &[(0, "s")]), NONE, "scalar_tensor"),
    row("", Determined::Filled(Filled::Default, &[(0, "start"), (1, "end")]), NONE, "linspace"),
    row(
        "",
        UnlessTensorBeyond(1),
        NONE,
        "as_strided broadcast_to chunk diagonal dsplit expand flatten flip hsplit kthvalue movedim \
         narrow new_empty new_ones new_zeros permute repeat reshape roll rot90 select split \
         split_with_sizes squeeze swapaxes swapdims tensor_split tile topk transpose unbind \
         unflatten unfold unsafe_chunk unsafe_split unsqueeze view vsplit",
    ),
    // Operators that are made of others, or without a kernel for metadata alone.
    row(
        "",
        Always,
        NONE,
        "absolute absolute_ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d \
         adaptive_max_pool1d addr_ adjoint all alpha_dropout_ any arccos arccos_ arccosh arccosh_ \
         arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argsort \
         as_strided_ as_strided_scatter as_tensor asarray atleast_1d atleast_2d atleast_3d \
         avg_pool1d bernoulli bilinear binomial broadcast_tensors cartesian_prod cat cdist cdouble \
         cfloat chain_matmul chalf clip clip_ clone column_stack concat concatenate conj \
         conj_physical constant_pad_nd conv1d conv2d conv3d conv_depthwise3d conv_tbc \
         conv_transpose1d conv_transpose2d conv_transpose3d copy_ cosine_embedding_loss \
         cosine_similarity cross cross_entropy_loss cummax cummin cumprod cumprod_ cumsum cumsum_ \
         cumulative_trapezoid det detach detach_copy diag diagflat diff divide divide_ dropout_ \
         dstack einsum embedding_bag expand_as fake_quantize_per_channel_affine \
         fake_quantize_per_tensor_affine feature_alpha_dropout_ feature_dropout_ fill_diagonal_ \
         fix fix_ flatten_dense_tensors fliplr flipud float_power float_power_ frobenius_norm \
         gather geqrf ger gradient greater greater_ greater_equal greater_equal_ grid_sampler \
         group_norm gru gru_cell hinge_embedding_loss histogram hstack imag index_add index_copy \
         index_copy_ index_fill index_fill_ index_select inner inverse isclose isfinite isreal \
         istft kl_div l1_loss layer_norm less less_ less_equal less_equal_ log_softmax \
         logcumsumexp logdet logsumexp lstm lstm_cell lu_solve margin_ranking_loss matmul \
         matrix_exp matrix_power max max_pool1d max_pool1d_with_indices max_pool2d max_pool3d mean \
         median meshgrid min mode moveaxis msort multilabel_margin_loss multiply multiply_ nanmean \
         nanmedian native_channel_shuffle negative negative_ new_tensor nll_loss nll_loss2d \
         nll_loss_nd norm norm_except_dim not_equal not_equal_ nuclear_norm orgqr outer pad \
         pad_sequence pairwise_distance pdist pinverse poisson_nll_loss polygamma_ positive prelu \
         prod put qr rand_like randint_like randn_like ravel relu6 relu6_ reshape_as rms_norm \
         rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu rrelu_ scatter scatter_add \
         select_copy selu selu_ slice_copy slogdet slow_conv3d slow_conv_dilated2d \
         slow_conv_dilated3d slow_conv_transpose3d softmax sort split_copy square square_ squeeze_ \
         std std_mean stft subtract subtract_ sum sum_to_size svd swapaxes_ swapdims_ t \
         take_along_dim tensor tensordot thnn_conv2d to_dense trapezoid trapz triplet_margin_loss \
         true_divide true_divide_ unflatten_dense_tensors upsample_bicubic2d upsample_bilinear2d \
         upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d \
         upsample_trilinear3d vander var var_mean view_as view_as_complex_copy view_as_real_copy \
         vstack",
    ),
    // Running statistics: where they are written isn't counted.
    row(
        "",
        Always,
        SILENT,
        "batch_norm cudnn_batch_norm fused_moving_avg_obs_fake_quant instance_norm miopen_batch_norm \
         native_batch_norm",
    ),
    // They give the tensor itself where it is what is asked for.
    row(
        "",
        Always,
        IDLE,
        "bfloat16 bool byte char contiguous cpu cuda double float half int long real resolve_conj \
         resolve_neg short to type type_as",
    ),
    row("", Always, DROPS, "alpha_dropout dropout feature_alpha_dropout feature_dropout"),
    row(
        "",
        Always,
        NONE,
        "linalg__powsum linalg_cholesky linalg_cond linalg_det linalg_diagonal linalg_eigh \
         linalg_eigvals linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matmul \
         linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm \
         linalg_pinv linalg_slogdet linalg_solve linalg_solve_ex linalg_svd linalg_svdvals \
         linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot",
    ),
    row(
        "",
        Always,
        NONE,
        "fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft \
         fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 \
         fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn",
    ),
    row(
        "",
        Always,
        NONE,
        "special_digamma special_erf special_erfc special_erfinv special_exp2 special_expit \
         special_expm1 special_gammainc special_gammaincc special_gammaln special_i0 special_log1p \
         special_log_softmax special_logit special_logsumexp special_multigammaln special_ndtr \
         special_polygamma special_psi special_round special_sinc special_softmax special_xlogy",
    ),
    // Operators of tensors.
    row(
        "",
        Always,
        NONE,
        "__abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __iand__ \
         __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__ \
         __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ \
         __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__ \
         __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ \
         __rtruediv__ __rxor__ __sub__ __truediv__ __xor__",
    ),
    // Private names that PyTorch's own Python code and libraries call.
    row(
        "",
        Always,
        NONE,
        "_foreach_abs _foreach_abs_ _foreach_acos _foreach_acos_ _foreach_add _foreach_add_ \
         _foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul _foreach_addcmul_ _foreach_asin \
         _foreach_asin_ _foreach_atan _foreach_atan_ _foreach_ceil _foreach_ceil_ _foreach_clamp_max \
         _foreach_clamp_max_ _foreach_clamp_min _foreach_clamp_min_ _foreach_copy_ _foreach_cos \
         _foreach_cos_ _foreach_cosh _foreach_cosh_ _foreach_div _foreach_div_ _foreach_erf \
         _foreach_erf_ _foreach_erfc _foreach_erfc_ _foreach_exp _foreach_exp_ _foreach_expm1 \
         _foreach_expm1_ _foreach_floor _foreach_floor_ _foreach_frac _foreach_frac_ _foreach_lerp \
         _foreach_lerp_ _foreach_lgamma _foreach_lgamma_ _foreach_log _foreach_log10 _foreach_log10_ \
         _foreach_log1p _foreach_log1p_ _foreach_log2 _foreach_log2_ _foreach_log_ _foreach_max \
         _foreach_maximum _foreach_maximum_ _foreach_minimum _foreach_minimum_ _foreach_mul \
         _foreach_mul_ _foreach_neg _foreach_neg_ _foreach_norm _foreach_pow _foreach_pow_ \
         _foreach_powsum _foreach_reciprocal _foreach_reciprocal_ _foreach_round _foreach_round_ \
         _foreach_rsqrt _foreach_rsqrt_ _foreach_sigmoid _foreach_sigmoid_ _foreach_sign \
         _foreach_sign_ _foreach_sin _foreach_sin_ _foreach_sinh _foreach_sinh_ _foreach_sqrt \
         _foreach_sqrt_ _foreach_sub _foreach_sub_ _foreach_tan _foreach_tan_ _foreach_tanh \
         _foreach_tanh_ _foreach_trunc _foreach_trunc_ _foreach_zero_",
    ),
    row(
        "",
        Always,
        NONE,
        "_adaptive_avg_pool2d _adaptive_avg_pool3d _add_relu _add_relu_ _addmm_activation _aminmax \
         _autocast_to_full_precision _autocast_to_reduced_precision _cast_Byte _cast_Char \
         _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _conj _conj_physical \
         _conv_depthwise2d _convolution _dim_arange _dirichlet_grad _euclidean_dist _fft_c2c _fft_c2r _fft_r2c \
         _fused_rms_norm _grouped_mm _int_mm _is_all_true _is_any_true _linalg_det _linalg_eigh _linalg_eigvals \
         _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax _log_softmax_backward_data \
         _lu_with_info _masked_softmax _native_batch_norm_legit_no_training \
         _native_multi_head_attention _neg_view _pad_circular _pad_enum _prelu_kernel _reshape_alias \
         _safe_softmax _sample_dirichlet _scaled_dot_product_attention_math \
         _scaled_dot_product_flash_attention_for_cpu _scaled_grouped_mm _scaled_mm _shape_as_tensor \
         _softmax _softmax_backward_data _stack _standard_gamma _to_copy _transform_bias_rescale_qkv \
         _transformer_encoder_layer_fwd _trilinear _unsafe_index_put _unsafe_view \
         _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d \
         _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm _weight_norm_interface",
    ),
    row(
        "",
        Always,
        SILENT,
        "_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_ _batch_norm_impl_index \
         _batch_norm_with_update _fused_adagrad_ _fused_adam_ _fused_adamw_ \
         _fused_moving_avg_obs_fq_helper _fused_sgd_ _native_batch_norm_legit",
    ),
    // The noise that they write.
    row("", Always, SILENT, "rrelu_with_noise rrelu_with_noise_"),
    // What it is given as `out`.
    row("", Always, SILENT, "kron"),
    // Functions that are written in Python and count as one operation.
    row(
        "torch",
        Always,
        NONE,
        "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist \
         chain_matmul einsum lobpcg meshgrid norm stft tensordot unravel_index",
    ),
    row("torch", UnlessTensorBeyond(1), NONE, "split"),
    row("torch", Sized, NONE, "_pack_padded_sequence _pad_packed_sequence unique_consecutive"),
    row("torch.functional", Always, NONE, "lu pca_lowrank svd_lowrank"),
    row("torch.functional", Sized, NONE, "unique"),
    row(
        "torch.nn.functional",
        Always,
        NONE,
        "_threshold adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d \
         adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices \
         adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid avg_pool2d avg_pool3d \
         binary_cross_entropy binary_cross_entropy_with_logits celu cosine_embedding_loss \
         cross_entropy elu embedding embedding_bag fractional_max_pool2d fractional_max_pool2d_with_indices \
         fractional_max_pool3d fractional_max_pool3d_with_indices gelu glu grid_sample group_norm \
         gumbel_softmax hardtanh hinge_embedding_loss huber_loss kl_div l1_loss layer_norm \
         leaky_relu linear local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d \
         margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices \
         max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss \
         multi_head_attention_forward multi_margin_loss multilabel_margin_loss \
         multilabel_soft_margin_loss nll_loss normalize pad poisson_nll_loss relu relu6 rms_norm \
         rrelu scaled_dot_product_attention selu silu smooth_l1_loss soft_margin_loss softmax \
         softmin softplus softshrink softsign tanhshrink triplet_margin_loss \
         triplet_margin_with_distance_loss",
    ),
    row("torch.nn.functional", Always, SILENT, "batch_norm instance_norm"),
    row(
        "torch.nn.functional",
        Always,
        DROPS,
        "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout",
    ),
    row("torch.nn.functional", EagerOnly, NONE, "ctc_loss gaussian_nll_loss"),
    row("torch.nn.functional", UnlessTensorBeyond(1), NONE, "fold interpolate unfold"),
    row("torch.nn.functional", IfGiven(1, "num_classes"), NONE, "one_hot"),
    // Methods that are written in Python.
    row("torch.Tensor", Always, NONE, "lu"),
    // Attributes that are set.
    row("torch.Tensor.data", Always, SILENT, "__set__"),
    row("torch.Tensor.requires_grad", Always, SILENT, "__set__"),
    row("torch.Tensor.grad", Always, SILENT, "__delete__ __set__"),
];
