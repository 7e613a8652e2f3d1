//! Which names a tensor program may use: a program may come from a stranger.

use std::sync::OnceLock;

use rustc_hash::FxHashSet;

/// Names that reach files, memory, Python objects or other processes, or that read tensors into Python.
const FORBIDDEN: &str = "from_file set_ set_data set_source_Tensor resize resize_ resize_as resize_as_ share_memory_ \
    is_shared apply_ map_ map2_ numpy tolist item data_ptr const_data_ptr storage untyped_storage \
    typed_storage storage_type storage_offset register_hook register_post_accumulate_grad_hook \
    backward retain_grad pin_memory is_pinned record_stream as_subclass module_load to_dlpack \
    from_dlpack frombuffer from_numpy save load compile vmap seed manual_seed initial_seed \
    get_rng_state set_rng_state set_default_device set_default_dtype set_default_tensor_type \
    set_flush_denormal set_num_threads set_num_interop_threads set_deterministic_debug_mode \
    set_float32_matmul_precision set_warn_always set_printoptions get_device is_set_to \
    has_torch_function handle_torch_function boolean_dispatch gradcheck new dim_order \
    sparse_resize_ sparse_resize_and_clear_ sym_constrain_range sym_constrain_range_for_size \
    rename rename_ refine_names align_to align_as names as_strided as_strided_ as_strided_copy \
    as_strided_scatter";

/// Beginnings of such names, and of those of libraries for some devices.
const FORBIDDEN_BEGINNINGS: &[&str] =
    &["unsafe_", "fbgemm_", "mkldnn_", "cudnn_", "miopen_", "quantized_", "sym_"];

/// Special methods: operators, as tensors have them.
const OPERATORS: &str = "__abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__ \
    __iand__ __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__ \
    __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ \
    __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__ __rlshift__ \
    __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ \
    __rxor__ __setitem__ __sub__ __truediv__ __xor__ __imatmul__";

/// Functions of `torch` that make tensors, beyond those that the table has as operations.
pub const FACTORIES: &str = "arange as_tensor asarray bartlett_window blackman_window broadcast_tensors complex einsum \
    empty empty_like empty_strided eye full full_like hamming_window hann_window kaiser_window \
    linspace logspace meshgrid normal ones ones_like polar rand rand_like randint randint_like \
    randn randn_like randperm scalar_tensor tensor tril_indices triu_indices vander zeros \
    zeros_like";

/// Whether an operation of this name, which the table knows, may stand in a tensor program. Private
/// names may not.
#[must_use]
pub fn is_allowed(name: &str) -> bool {
    static SETS: OnceLock<[FxHashSet<&str>; 2]> = OnceLock::new();
    let [forbidden, operators] =
        SETS.get_or_init(|| [FORBIDDEN, OPERATORS].map(|names| names.split_whitespace().collect()));
    if name.starts_with('_') {
        return operators.contains(name);
    }
    !forbidden.contains(name)
        && !FORBIDDEN_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}
