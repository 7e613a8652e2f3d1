//! Rows for PyTorch: the operations of `stator_operators::torch` as objects, and its state.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_operators::torch as operators;

use super::{Class, Determined, Functions, Model, Operation};
use crate::breaks::Reason;

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

/// Owners of operations that are written in Python: each has a row of its own.
const IN_PYTHON: &[&str] = &["torch", "torch.functional", "torch.nn.functional"];

/// Adds the rows to the table.
pub fn add(torch: &Bound<'_, PyModule>, functions: &mut Functions) -> PyResult<()> {
    let py = torch.py();
    let tensor = torch.getattr("Tensor")?;
    for path in IN_PYTHON {
        let owner = resolve(py, path)?;
        for row in operators::OPERATIONS.iter().filter(|row| row.owner == *path) {
            for name in row.names() {
                if let Some(function) = owner.getattr_opt(name)? {
                    add_operation(functions, &function, path, (path, name), false)?;
                }
            }
        }
    }
    for (path, prefix) in operators::NAMESPACES {
        let owner = resolve(py, path)?;
        for name in owner.dir()?.iter() {
            let name: String = name.extract()?;
            let function = owner.getattr(name.as_str())?;
            add_operation(functions, &function, prefix, (path, &name), false)?;
        }
    }
    for name in tensor.dir()?.iter() {
        let name: String = name.extract()?;
        let method = tensor.getattr(name.as_str())?;
        add_operation(functions, &method, "", ("torch.Tensor", &name), true)?;
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

/// Adds a function if it's known as an operation. `known` is whose it is, and how it's called there.
fn add_operation(
    functions: &mut Functions,
    function: &Bound<'_, PyAny>,
    prefix: &str,
    known: (&str, &str),
    is_method: bool,
) -> PyResult<()> {
    let Some(determined) = operators::operation(known.0, known.1) else { return Ok(()) };
    if !function.is_callable() || function.is_instance_of::<PyType>() {
        return Ok(());
    }
    let Some(name) = function.getattr_opt("__name__")? else { return Ok(()) };
    let name = name.extract::<String>()?;
    let name = if is_method { name } else { format!("{prefix}.{name}") };
    let operation = Operation { name: name.into(), is_method, determined };
    functions.insert_new(function, Class::Operation(operation));
    Ok(())
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

fn resolve<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut parts = path.split('.');
    let mut object = modules::import(py, parts.next().unwrap_or("torch"))?.into_any();
    for part in parts {
        object = object.getattr(part)?;
    }
    Ok(object)
}

/// An operator of `torch.ops.aten`, or one of its overloads: an operation if the table knows the
/// operator. Custom operators may do anything.
pub fn aten_operation(callable: Borrowed<'_, '_>) -> Option<Operation> {
    let class = callable.get_type().fully_qualified_name().ok()?;
    if !class.to_string_lossy().starts_with("torch._ops.OpOverload") {
        return None;
    }
    let name = callable.str().ok()?.to_string();
    let packet = name.strip_prefix("aten.")?.split('.').next()?;
    let determined = operators::operation(operators::ATEN, packet)?;
    Some(Operation { name: format!("torch.ops.{name}").into(), is_method: false, determined })
}
