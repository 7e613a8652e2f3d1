//! The rows of PyTorch's functions that are no operations: what they read is metadata, or state.

use crate::class::{Class, Model};
use crate::numeric::Numeric;
use crate::row::{Row, Traits, row};
use Class::{IsCompiling, Pure, StateRead, Transparent};

const NONE: Traits = Traits::NONE;
const SIZELESS: Traits = Traits::SIZELESS;
const SWITCH: Class = Class::Model(Model::StateSwitch);

/// The rows. Without an owner: of `torch.Tensor`, and of `torch`.
pub const STATE: &[Row] = &[
    // Metadata of tensors: constants, but for sizes.
    row(
        "",
        "dim ndimension element_size is_floating_point is_complex is_signed get_device \
         is_inference is_conj is_neg is_distributed dense_dim sparse_dim is_tensor is_storage \
         result_type can_cast promote_types is_quantized",
        StateRead,
        SIZELESS,
    ),
    row(
        "",
        "size stride numel nelement is_contiguous is_coalesced dim_order broadcast_shapes",
        StateRead,
        NONE,
    ),
    // State that is guarded at entry.
    row(
        "torch",
        "is_tensor is_storage is_floating_point is_complex result_type can_cast \
         promote_types",
        StateRead,
        SIZELESS,
    ),
    row(
        "torch",
        "is_grad_enabled is_inference_mode_enabled is_autocast_enabled \
         is_autocast_cpu_enabled is_autocast_cache_enabled get_autocast_dtype \
         get_autocast_gpu_dtype get_autocast_cpu_dtype get_default_dtype get_default_device \
         are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled \
         get_deterministic_debug_mode is_anomaly_enabled is_anomaly_check_nan_enabled \
         get_float32_matmul_precision broadcast_shapes",
        StateRead,
        NONE,
    ),
    row(
        "torch._C",
        "_has_torch_function _has_torch_function_unary \
         _has_torch_function_variadic",
        StateRead,
        SIZELESS,
    ),
    row(
        "torch._C",
        "_get_tracing_state _is_tracing _get_privateuse1_backend_name is_autocast_enabled \
         is_autocast_cache_enabled get_autocast_dtype _is_torch_function_enabled \
         _is_torch_function_mode_enabled _len_torch_function_stack _len_torch_dispatch_stack \
         _get_cudnn_enabled _get_mkldnn_enabled _get_nnpack_enabled _get_math_sdp_enabled \
         _get_flash_sdp_enabled _get_mem_efficient_sdp_enabled _get_cudnn_sdp_enabled \
         _get_overrideable_sdp_enabled _get_sdp_priority_order _get_math_sdp_allow_fp16_bf16_reduction \
         _get_cudnn_benchmark _get_cudnn_deterministic _get_mkldnn_deterministic \
         _get_deterministic_algorithms _get_deterministic_algorithms_warn_only \
         _get_deterministic_fill_uninitialized_memory _get_float32_matmul_precision \
         _get_cublas_allow_fp16_reduced_precision_reduction \
         _get_cublas_allow_bf16_reduced_precision_reduction \
         _get_cublas_allow_fp16_accumulation _get_cpu_allow_fp16_reduced_precision_reduction \
         _is_any_autocast_enabled _get_accelerator _accelerator_getAccelerator \
         _is_fwd_grad_enabled _is_view_replay_enabled _is_multithreading_enabled \
         _log_api_usage_once _get_cpu_capability",
        StateRead,
        NONE,
    ),
    row(
        "torch.overrides",
        "has_torch_function has_torch_function_unary has_torch_function_variadic \
         is_tensor_like",
        StateRead,
        SIZELESS,
    ),
    row("torch.cuda", "is_available device_count", StateRead, NONE),
    // Of the accelerator: guarded where a trace asks.
    row(
        "torch.cuda",
        "current_device is_bf16_supported get_device_capability",
        Class::Model(Model::SelectedDevice),
        NONE,
    ),
    row("torch.xpu", "current_device", Class::Model(Model::SelectedDevice), NONE),
    row(
        "torch._C",
        "_cuda_isCurrentStreamCapturing _xpu_isCurrentStreamCapturing",
        Class::Model(Model::Capturing),
        NONE,
    ),
    row("torch.backends.mps", "is_available is_built", StateRead, NONE),
    row("torch.jit", "is_scripting is_tracing", StateRead, NONE),
    row("torch._jit_internal", "is_scripting", StateRead, NONE),
    // What `Module.to` asks.
    row("torch", "_has_compatible_shallow_copy_type", StateRead, SIZELESS),
    row("torch._C._nn", "_parse_to", StateRead, SIZELESS),
    row("torch.amp", "is_autocast_available", StateRead, NONE),
    row("torch.amp.autocast_mode", "is_autocast_available", StateRead, NONE),
    row("torch.distributed", "is_available", StateRead, NONE),
    row("torch._C", "_are_functorch_transforms_active", StateRead, NONE),
    // They switch state: nodes without tensors, in order.
    row("torch.random", "manual_seed", Class::Model(Model::Seed), Traits::MOVES),
    row("torch:Generator", "manual_seed set_state", Class::Model(Model::Seed), Traits::MOVES),
    row("torch:Generator", "get_state", Class::Model(Model::GeneratorState), NONE),
    row("torch", "Generator", Class::Model(Model::NewGenerator), NONE),
    row("torch._C", "_set_grad_enabled", SWITCH, NONE),
    // A word about what is used, which `torch.read_vitals` gives back.
    row("torch", "set_vital", SWITCH, NONE),
    row(
        "torch",
        "set_autocast_enabled set_autocast_dtype set_autocast_cpu_dtype \
         set_autocast_cpu_enabled set_autocast_gpu_dtype set_autocast_cache_enabled \
         autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache",
        SWITCH,
        NONE,
    ),
    row(
        "torch._C",
        "_set_sdp_use_math _set_sdp_use_flash _set_sdp_use_mem_efficient _set_sdp_use_cudnn \
         _set_sdp_use_overrideable _set_sdp_priority_order",
        Class::Model(Model::KernelSwitch),
        NONE,
    ),
    // Objects that the engine's threads find by name while gradients are computed.
    row("torch._C", "_stash_obj_in_tls _remove_obj_from_tls", SWITCH, NONE),
    row(
        "torch.autograd.grad_mode",
        "_enter_inference_mode",
        Class::Model(Model::InferenceEnter),
        NONE,
    ),
    row(
        "torch.autograd.grad_mode",
        "_exit_inference_mode",
        Class::Model(Model::InferenceExit),
        NONE,
    ),
    // It goes back from tensors to their leaves: a node that sets gradients, or gives them.
    row("torch:Tensor", "backward", Class::Model(Model::TensorBackward), NONE),
    row("torch._C:_ImperativeEngine", "run_backward", Class::Model(Model::Backward), NONE),
    // Nodes that raise.
    row("torch", "_check_tensor_all _check_tensor_all_with", Class::Model(Model::Check), NONE),
    // Where tensors are made.
    row("torch:device", "__enter__", Class::Model(Model::DeviceEnter), NONE),
    row("torch:device", "__exit__", Class::Model(Model::DeviceExit), NONE),
    // Whether a compiler is at work.
    row("torch.compiler", "is_compiling is_dynamo_compiling is_exporting", IsCompiling, NONE),
    // Made of plain values.
    row("torch", "Size device finfo iinfo", Pure, NONE),
    row("torch:Size", "numel", Pure, NONE).of_numbers(Numeric::Product),
    // Gives the same tensors in other lists.
    row("torch._C", "_group_tensors_by_device_and_dtype", Transparent, NONE),
];
