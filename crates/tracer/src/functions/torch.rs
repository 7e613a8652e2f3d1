//! Rows for PyTorch: its overridable functions and methods, factories, state and exceptions to the
//! rule that a result's shape follows from the inputs' metadata.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stator_cpython::modules;

use super::{Class, Determined, Functions, Model, Operation};
use crate::breaks::Reason;

/// Operations whose result shape depends on data.
const DYNAMIC: &str = "linalg_lstsq nonzero nonzero_static argwhere unique unique_consecutive masked_select \
    bincount histogramdd combinations one_hot \
    embedding_bag ctc_loss pack_padded_sequence segment_reduce to_sparse to_sparse_csr to_sparse_csc \
    to_sparse_bsr to_sparse_bsc coalesce sparse_mask lstsq to_padded_tensor nested_to_padded_tensor \
    chunk_cat _pack_padded_sequence _pad_packed_sequence from_numpy gradcheck multi_head_attention_backward \
    adaptive_max_pool2d_with_indices_dynamic";

/// Operations whose result is data, or that read it.
const READS_DATA: &str = "quantile nanquantile cov corrcoef gaussian_nll_loss item tolist numpy equal allclose is_nonzero is_same_size __bool__ __int__ __float__ \
    __complex__ __index__ __contains__ __repr__ __format__ __array__ __array_wrap__ __dlpack__ __reversed__ \
    __deepcopy__ __reduce_ex__ __setstate__ backward register_hook register_post_accumulate_grad_hook \
    retain_grad data_ptr storage untyped_storage typed_storage _typed_storage share_memory_ is_shared \
    pin_memory is_pinned storage_offset _version grad_fn is_leaf names rename rename_ align_to refine_names \
    new_tensor_from apply_ map_ map2_ set_ resize_ resize_as_ resize resize_as \
    set_data module_load __cuda_array_interface__ _make_subclass as_subclass is_set_to has_names \
    retains_grad result_type_of promote_types_of compile split_with_sizes_copy_out _assert_async \
    __torch_dispatch__ dlpack to_dlpack stack_trace reinforce ormqr_dynamic new __len__ sparse_resize_ \
    sparse_resize_and_clear_ record_stream cond eig vmap load save seed manual_seed initial_seed \
    set_rng_state get_rng_state set_default_dtype set_default_device set_default_tensor_type";

/// Operations with sizes or counts as arguments, and the first such argument: a tensor there is read.
const SIZES: &[(usize, &str)] = &[
    (
        0,
        "arange range zeros ones empty full rand randn randint randperm eye linspace logspace tril_indices \
         triu_indices empty_strided scalar_tensor hann_window hamming_window bartlett_window blackman_window \
         kaiser_window",
    ),
    (
        1,
        "view reshape expand repeat tile split split_with_sizes chunk narrow roll unflatten permute transpose \
         squeeze unsqueeze flatten movedim select new_zeros new_ones new_empty new_full unfold diagonal topk \
         kthvalue as_strided broadcast_to unbind rot90 flip hsplit vsplit dsplit rand_like_sized \
         interpolate upsample fold tensor_split unsafe_chunk unsafe_split swapaxes swapdims view_as_sized",
    ),
];

/// Tensor methods and functions that read metadata alone: their results are constants.
const METADATA: &str = "size stride dim ndimension numel nelement element_size is_floating_point is_complex is_signed \
    is_contiguous get_device is_inference is_conj is_neg is_distributed is_coalesced dense_dim sparse_dim \
    is_tensor is_storage dim_order __get__ result_type can_cast promote_types is_quantized broadcast_shapes";

/// Functions that read state which is guarded at entry.
const STATE_READS: &[(&str, &str)] = &[
    (
        "torch",
        "is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled \
        is_autocast_cache_enabled get_autocast_dtype get_autocast_gpu_dtype get_autocast_cpu_dtype \
        get_default_dtype get_default_device are_deterministic_algorithms_enabled \
        is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode is_anomaly_enabled \
        is_anomaly_check_nan_enabled get_float32_matmul_precision  \
        is_tensor is_storage is_floating_point is_complex result_type can_cast promote_types broadcast_shapes",
    ),
    (
        "torch._C",
        "_get_tracing_state _is_tracing _get_privateuse1_backend_name is_autocast_enabled \
        is_autocast_cache_enabled get_autocast_dtype _is_torch_function_enabled _is_torch_function_mode_enabled \
        _len_torch_function_stack _len_torch_dispatch_stack _has_torch_function_subclass _get_cudnn_enabled \
        _get_mkldnn_enabled _get_nnpack_enabled _get_math_sdp_enabled _get_flash_sdp_enabled \
        _get_mem_efficient_sdp_enabled _get_cudnn_sdp_enabled _is_any_autocast_enabled is_any_autocast_enabled \
        _get_accelerator _is_fwd_grad_enabled _is_view_replay_enabled \
        _has_torch_function _has_torch_function_unary _has_torch_function_variadic _is_multithreading_enabled _log_api_usage_once",
    ),
    (
        "torch.overrides",
        "has_torch_function has_torch_function_unary has_torch_function_variadic \
        is_tensor_like",
    ),
    ("torch.cuda", "is_available device_count"),
    ("torch.backends.mps", "is_available is_built"),
    ("torch.jit", "is_scripting is_tracing"),
    ("torch._jit_internal", "is_scripting"),
    ("torch.amp", "is_autocast_available"),
    ("torch.amp.autocast_mode", "is_autocast_available"),
    ("torch.distributed", "is_available"),
];

/// Functions that switch state: nodes without tensors, in order.
const STATE_SWITCHES: &[(&str, &str)] = &[
    ("torch._C", "_set_grad_enabled"),
    (
        "torch",
        "set_autocast_enabled set_autocast_dtype set_autocast_cpu_dtype set_autocast_cpu_enabled \
        set_autocast_gpu_dtype set_autocast_cache_enabled autocast_increment_nesting \
        autocast_decrement_nesting clear_autocast_cache",
    ),
];

/// Functions that answer whether a compiler is at work: true while recording.
const IS_COMPILING: &[(&str, &str)] = &[
    ("torch.compiler", "is_compiling is_dynamo_compiling"),
    ("torch._dynamo", "is_compiling"),
    ("torch._dynamo.external_utils", "is_compiling"),
    ("transformers.utils", "is_torchdynamo_compiling"),
    ("transformers.utils.import_utils", "is_torchdynamo_compiling"),
];

/// Namespaces whose C functions are all operations.
const NAMESPACES: &[(&str, &str)] = &[
    ("torch._C._nn", "torch._C._nn"),
    ("torch._C._linalg", "torch._C._linalg"),
    ("torch._C._fft", "torch._C._fft"),
    ("torch._C._special", "torch._C._special"),
    ("torch._C._VariableFunctions", "torch"),
];

/// Operations beyond those PyTorch lists as overridable.
const FACTORIES: &str = "arange zeros ones full empty rand randn randint randperm eye linspace logspace tensor as_tensor \
    asarray zeros_like ones_like full_like empty_like rand_like randn_like randint_like tril_indices triu_indices \
    scalar_tensor normal complex polar hann_window hamming_window bartlett_window blackman_window kaiser_window \
    vander as_strided empty_strided meshgrid";

/// Adds the rows to the table.
pub fn add(torch: &Bound<'_, PyModule>, functions: &mut Functions) -> PyResult<()> {
    let py = torch.py();
    let tensor = torch.getattr("Tensor")?;
    let overrides = modules::import(py, "torch.overrides")?;
    let overridable = overrides.call_method0("get_overridable_functions")?.cast_into::<PyDict>()?;
    for (namespace, list) in overridable.iter() {
        let is_method = namespace.is(&tensor);
        let prefix = if is_method { String::new() } else { module_name(&namespace)? };
        for function in list.cast_into::<PyList>()?.iter() {
            let Some(name) = function.getattr_opt("__name__")? else { continue };
            let name: String = name.extract()?;
            if name == "__get__" || name == "__set__" || name == "__delete__" {
                continue;
            }
            add_operation(functions, &function, &prefix, &name, is_method);
        }
    }
    for name in FACTORIES.split_whitespace() {
        if let Some(function) = torch.getattr_opt(name)? {
            add_operation(functions, &function, "torch", name, false);
        }
    }
    for (path, prefix) in NAMESPACES {
        let owner = resolve(py, path)?;
        for name in owner.dir()?.iter() {
            let name: String = name.extract()?;
            let function = owner.getattr(name.as_str())?;
            if !name.starts_with("__")
                && function.is_callable()
                && functions.class(function.as_borrowed()).is_none()
            {
                add_operation(functions, &function, prefix, &name, false);
            }
        }
    }
    for name in tensor.dir()?.iter() {
        let name: String = name.extract()?;
        let method = tensor.getattr(name.as_str())?;
        if method.is_callable()
            && functions.class(method.as_borrowed()).is_none()
            && !ignored_method(&name)
        {
            add_operation(functions, &method, "", &name, true);
        }
    }
    for name in METADATA.split_whitespace() {
        for owner in [tensor.as_any(), torch.as_any()] {
            if let Some(function) = owner.getattr_opt(name)? {
                functions.insert(&function, Class::StateRead);
            }
        }
    }
    named(py, functions, STATE_READS, &Class::StateRead)?;
    named(py, functions, STATE_SWITCHES, &Class::Model(Model::StateSwitch))?;
    let grad_mode = "torch.autograd.grad_mode";
    let (enter, exit) = (Model::InferenceEnter, Model::InferenceExit);
    named(py, functions, &[(grad_mode, "_enter_inference_mode")], &Class::Model(enter))?;
    named(py, functions, &[(grad_mode, "_exit_inference_mode")], &Class::Model(exit))?;
    named(py, functions, IS_COMPILING, &Class::IsCompiling)?;
    // Gives the same tensors in other lists.
    if let Some(function) =
        torch.getattr("_C")?.getattr_opt("_group_tensors_by_device_and_dtype")?
    {
        functions.insert(&function, Class::Transparent);
    }
    let constructors = ["Size", "device", "finfo", "iinfo"];
    for name in constructors {
        functions.insert(&torch.getattr(name)?, Class::Pure);
    }
    functions.insert(&torch.getattr("Size")?.getattr("numel")?, Class::Pure);
    for name in ["Parameter", "Buffer"] {
        let class = torch.getattr("nn")?.getattr(name)?;
        let operation = Operation {
            name: format!("torch.nn.{name}").into(),
            is_method: false,
            determined: Determined::EagerOnly,
        };
        functions.insert(&class, Class::Operation(operation));
    }
    functions.insert(&tensor, Class::Untraceable(Reason::Unsupported));
    functions.insert(&tensor.getattr("__hash__")?, Class::Untraceable(Reason::Identity));
    Ok(())
}

fn add_operation(
    functions: &mut Functions,
    function: &Bound<'_, PyAny>,
    prefix: &str,
    name: &str,
    is_method: bool,
) {
    if function.is_instance_of::<pyo3::types::PyType>() || is_of_numbers(function, name) {
        return;
    }
    let full = if is_method { name.to_string() } else { format!("{prefix}.{name}") };
    let determined = determined(name);
    let operation = Operation { name: full.into(), is_method, determined };
    functions.insert_new(function, Class::Operation(operation));
}

/// Python functions over numbers (`torch.sym_max`), traced like a program's own.
fn is_of_numbers(function: &Bound<'_, PyAny>, name: &str) -> bool {
    name.trim_start_matches('_').starts_with("sym_")
        && function.is_instance_of::<pyo3::types::PyFunction>()
}

fn determined(name: &str) -> Determined {
    let listed = |names: &str| names.split_whitespace().any(|listed| listed == name);
    if matches!(name, "where" | "one_hot") {
        return Determined::AtLeast(2);
    }
    if name == "repeat_interleave" {
        return Determined::Counts;
    }
    if matches!(name, "__getitem__" | "__setitem__") {
        return Determined::Indexing;
    }
    if listed(DYNAMIC) {
        return Determined::Never;
    }
    if matches!(name, "requires_grad_" | "detach_") {
        return Determined::EagerOnly;
    }
    if listed(READS_DATA) {
        return Determined::ReadsData;
    }
    for (first, names) in SIZES {
        if listed(names) {
            return Determined::UnlessTensorBeyond(*first);
        }
    }
    Determined::Always
}

/// Methods of `object` and protocol hooks that are no operations.
fn ignored_method(name: &str) -> bool {
    matches!(
        name,
        "__class__"
            | "__new__"
            | "__init__"
            | "__init_subclass__"
            | "__subclasshook__"
            | "__dir__"
            | "__hash__"
            | "__getattribute__"
            | "__setattr__"
            | "__delattr__"
            | "__torch_function__"
            | "__sizeof__"
            | "__reduce__"
            | "__getstate__"
            | "__str__"
            | "__iter__"
            | "__class_getitem__"
    )
}

fn named(
    py: Python<'_>,
    functions: &mut Functions,
    rows: &[(&str, &str)],
    class: &Class,
) -> PyResult<()> {
    for (owner, names) in rows {
        let Some(owner) = loaded(py, owner)? else { continue };
        for name in names.split_whitespace() {
            if let Some(function) = owner.getattr_opt(name)? {
                functions.insert(&function, class.clone());
            }
        }
    }
    Ok(())
}

/// A module if it is loaded: the table must not import what the user's program doesn't.
fn loaded<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let modules = modules::import(py, "sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    modules.get_item(name)
}

fn module_name(module: &Bound<'_, PyAny>) -> PyResult<String> {
    match module.getattr_opt("__name__")? {
        Some(name) => name.extract(),
        None => Ok("torch".into()),
    }
}

fn resolve<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut parts = path.split('.');
    let mut object = modules::import(py, parts.next().unwrap_or("torch"))?.into_any();
    for part in parts {
        object = object.getattr(part)?;
    }
    Ok(object)
}
