//! PyTorch's process and thread state, as facts with names.
//!
//! The slow and explicit reading. [`stator_cpython::heap::global_state`] tells in nanoseconds
//! whether anything here may have changed.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use stator_cpython::heap::global_state::{self, Words};
use stator_cpython::modules;
use stator_cpython::thread::Deferred;
use stator_guards::{Fact, GlobalState, Value};

use super::tensor_type;

/// States remembered per thread: with and without gradients, under autocast, and one more.
const REMEMBERED: usize = 4;

thread_local! {
    /// The states read last, with the words that tell them apart; the last one first.
    static KNOWN: RefCell<Vec<(Words, Arc<GlobalState>)>> = const { RefCell::new(Vec::new()) };
}

/// Names of the facts about modes and such, for [`foreign_mode`].
const MODES: [&str; 6] = [
    "torch._C._len_torch_function_stack()",
    "torch._C._is_torch_function_all_disabled()",
    "torch._C._len_torch_dispatch_stack()",
    "torch._C._functorch.maybe_current_level()",
    "torch._C._is_tracing()",
    tensor_type::FACT,
];

/// The facts: each line is an expression of `torch`, which is also the fact's name. Lines that
/// this PyTorch doesn't know are left out.
const FACTS: &str = "
torch.is_grad_enabled()
torch.is_inference_mode_enabled()
torch._C._is_fwd_grad_enabled()
torch._C._is_multithreading_enabled()
torch._C._is_view_replay_enabled()
torch.autograd.forward_ad._current_level
torch.is_autocast_enabled('cpu')
torch.is_autocast_enabled('cuda')
torch.is_autocast_enabled('maia')
torch.is_autocast_enabled('xla')
torch.is_autocast_enabled('xpu')
torch.is_autocast_enabled('mps')
torch.is_autocast_enabled('hpu')
torch.is_autocast_enabled('ipu')
torch.is_autocast_enabled('mtia')
torch.is_autocast_enabled('privateuseone')
torch.get_autocast_dtype('cpu')
torch.get_autocast_dtype('cuda')
torch.get_autocast_dtype('maia')
torch.get_autocast_dtype('xla')
torch.get_autocast_dtype('xpu')
torch.get_autocast_dtype('mps')
torch.get_autocast_dtype('hpu')
torch.get_autocast_dtype('ipu')
torch.get_autocast_dtype('mtia')
torch.get_autocast_dtype('privateuseone')
torch.is_autocast_cache_enabled()
torch.get_default_dtype()
torch.is_anomaly_enabled()
torch.is_anomaly_check_nan_enabled()
torch._C._autograd._saved_tensors_hooks_is_enabled()
torch._C._autograd._top_saved_tensors_default_hooks(True)
torch._C._len_torch_function_stack()
torch._C._len_torch_dispatch_stack()
torch._C._get_torch_function_state()
torch._C._is_torch_function_all_disabled()
torch._C._functorch.maybe_current_level()
torch._C._is_tracing()
torch._C._dispatch_tls_local_include_set().raw_repr()
torch._C._dispatch_tls_local_exclude_set().raw_repr()
torch._C._get_deterministic_algorithms()
torch._C._get_deterministic_algorithms_warn_only()
torch._C._get_deterministic_fill_uninitialized_memory()
torch._C._get_cudnn_enabled()
torch._C._get_cudnn_benchmark()
torch._C._get_cudnn_deterministic()
torch._C._get_mkldnn_enabled()
torch._C._get_mkldnn_deterministic()
torch._C._get_nnpack_enabled()
torch._C._get_flash_sdp_enabled()
torch._C._get_fa3_sdp_enabled()
torch._C._get_mem_efficient_sdp_enabled()
torch._C._get_math_sdp_enabled()
torch._C._get_cudnn_sdp_enabled()
torch._C._get_overrideable_sdp_enabled()
torch._C._get_math_sdp_allow_fp16_bf16_reduction()
torch._C._get_sdp_priority_order()
torch._C._get_float32_matmul_precision()
torch._C._get_cublas_allow_fp16_reduced_precision_reduction()
torch._C._get_cublas_allow_bf16_reduced_precision_reduction()
torch._C._get_cublas_allow_fp16_accumulation()
torch._C._get_cpu_allow_fp16_reduced_precision_reduction()
torch._C._get_linalg_preferred_backend()
torch._C._get_blas_preferred_backend()
torch._C._get_qengine()
torch._C._get_fp32_precision_getter('generic', 'all')
torch._C._get_fp32_precision_getter('mkldnn', 'all')
torch._C._get_fp32_precision_getter('mkldnn', 'conv')
torch._C._get_fp32_precision_getter('mkldnn', 'rnn')
torch._C._get_fp32_precision_getter('mkldnn', 'matmul')
torch._C._get_fp32_precision_getter('cuda', 'all')
torch._C._get_fp32_precision_getter('cuda', 'conv')
torch._C._get_fp32_precision_getter('cuda', 'rnn')
torch._C._get_fp32_precision_getter('cuda', 'matmul')
";

/// Reads the state. Without PyTorch there are no facts. Runs PyTorch's own functions: call it
/// outside of recording.
///
/// # Errors
/// What PyTorch raises.
pub fn read(py: Python<'_>) -> PyResult<Arc<GlobalState>> {
    let words = global_state::read(py);
    if let Some(known) = words.and_then(|words| remembered(&words)) {
        return Ok(known);
    }
    let state = Arc::new(read_facts(py)?);
    if let Some(words) = words
        && global_state::is(py, &words)
    {
        KNOWN.with_borrow_mut(|known| {
            known.truncate(REMEMBERED - 1);
            known.insert(0, (words, state.clone()));
        });
    }
    Ok(state)
}

/// Reads the state as it is, and as it is with gradients the other way: programs are compiled under the
/// one and often called under the other, and the first call is not to pay for reading.
///
/// # Errors
/// What PyTorch raises.
pub fn read_usual(py: Python<'_>) -> PyResult<()> {
    // The first reading starts parts of PyTorch, and so changes what it has begun with.
    read(py)?;
    let state = read(py)?;
    if state.facts.is_empty() || foreign_mode(&state).is_some() || KNOWN.with_borrow(Vec::len) != 1
    {
        return Ok(());
    }
    let torch = modules::import(py, "torch._C")?;
    let switch = |on: bool| torch.call_method1("_set_grad_enabled", (on,)).map(drop);
    let is_on: bool = torch.call_method0("is_grad_enabled")?.extract()?;
    switch(!is_on)?;
    let other = read(py);
    switch(is_on)?;
    other.map(drop)
}

/// The state that these words stand for, if it was read before.
fn remembered(words: &Words) -> Option<Arc<GlobalState>> {
    KNOWN.with_borrow_mut(|known| {
        let found = known.iter().position(|(known, _)| known == words)?;
        known[..=found].rotate_right(1);
        Some(known[0].1.clone())
    })
}

/// How a fact is read: without a Python frame, in which signals and exceptions of other threads would
/// arrive.
#[derive(FromPyObject)]
enum Reading {
    /// A call of one of PyTorch's functions, and perhaps of a method of the result.
    Call(Py<PyAny>, Py<PyTuple>, Option<Py<PyString>>),
    /// An attribute.
    Attribute(Py<PyAny>, Py<PyString>),
}

impl Reading {
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Reading::Call(function, args, method) => {
                let value = function.bind(py).call1(args.bind(py))?;
                match method {
                    Some(method) => value.call_method0(method.bind(py)),
                    None => Ok(value),
                }
            }
            Reading::Attribute(owner, name) => owner.bind(py).getattr(name.bind(py)),
        }
    }
}

fn read_facts(py: Python<'_>) -> PyResult<GlobalState> {
    static READINGS: PyOnceLock<Vec<(&'static str, Reading)>> = PyOnceLock::new();
    if stator_cpython::heap::torch::get(py).is_none() {
        return Ok(GlobalState::default());
    }
    // CPython asks for signals where a value is written as text.
    let _deferred = Deferred::new(py);
    let readings = READINGS.get_or_try_init(py, || find_readings(py))?;
    let facts = readings.iter().map(|(name, reading)| {
        let value = match reading.read(py) {
            Ok(value) => fact(&value)?,
            // Some settings can't be asked for while they are inconsistent.
            Err(error) if error.is_instance_of::<PyRuntimeError>(py) => {
                Value::Text(error.value(py).to_string().into())
            }
            Err(error) => return Err(error),
        };
        Ok(Fact { name, value })
    });
    let mut facts = facts.collect::<PyResult<Vec<_>>>()?;
    let replaced = Value::Text(tensor_type::replaced(py).into());
    facts.push(Fact { name: tensor_type::FACT, value: replaced });
    Ok(GlobalState { facts: facts.into() })
}

/// A value as guards compare it.
fn fact(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(value) = value.extract::<bool>() {
        return Ok(Value::Bool(value));
    }
    if let Ok(value) = value.extract::<i64>() {
        return Ok(Value::Int(value));
    }
    Ok(Value::Text(value.repr()?.to_str()?.into()))
}

/// Finds the facts that this PyTorch knows, and how each is read.
fn find_readings(py: Python<'_>) -> PyResult<Vec<(&'static str, Reading)>> {
    let source = c"
import ast

def readings(torch, lines):
    found = {}
    for line in lines:
        try:
            eval(line, {'torch': torch})
        except (AttributeError, TypeError, RuntimeError):
            continue
        value = lambda tree: eval(compile(ast.Expression(tree), '<stator>', 'eval'), {'torch': torch})
        tree, method = ast.parse(line, mode='eval').body, None
        if isinstance(tree, ast.Attribute):
            found[line] = value(tree.value), tree.attr
            continue
        if isinstance(tree.func.value, ast.Call):
            tree, method = tree.func.value, tree.func.attr
        found[line] = value(tree.func), tuple(value(arg) for arg in tree.args), method
    return found
";
    let module = PyModule::from_code(py, source, c"<stator>", c"_stator_global_state")?;
    let lines: Vec<&'static str> = FACTS.trim().lines().collect();
    let found = module
        .getattr("readings")?
        .call1((modules::import(py, "torch")?, lines.clone()))?
        .cast_into::<PyDict>()?;
    let mut readings = Vec::new();
    for line in lines {
        if let Some(reading) = found.get_item(line)? {
            readings.push((line, reading.extract()?));
        }
    }
    Ok(readings)
}

/// What says that torch-function modes, dispatch modes or functorch transforms were active or that no such mode is
/// asked (the recorder's neither), `torch.jit.trace` was at work, or a special method of tensors isn't PyTorch's: then a
/// call runs natively.
#[must_use]
pub fn foreign_mode(state: &GlobalState) -> Option<&'static str> {
    MODES.into_iter().find(|name| match state.get(name) {
        Some(Value::Int(level)) => *level > 0,
        Some(Value::Bool(on)) => *on,
        Some(Value::Text(names)) => **name == *tensor_type::FACT && **names != *tensor_type::NONE,
        None => false,
    })
}
