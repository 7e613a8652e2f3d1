//! What a replay that raises has to undo, so that the function can run natively from its start.
//!
//! Values of the graph are its own; what outlives it are PyTorch's modes, which its nodes switch,
//! the states of random generators, and tensors from outside that it wrote. Modes are known: the
//! guards say what they were at entry. Generators that the recorded call advanced are saved before
//! each replay. What inputs held is `undo`'s business.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::generic::WithoutGc;
use stator_cpython::heap::{tensor, twister};
use stator_cpython::modules::{self, Named};
use stator_cpython::object::Borrowed;
use stator_graph::{Arg, Graph, NodeId, NodeKind, Target};
use stator_guards::{GlobalState, Guard, GuardKind, Value};
use stator_operators::torch::last_part;

use crate::accelerator;
use crate::raises::NodeCall;

/// What a generator of NumPy's keeps its state in.
const BITS: &str = "bit_generator";

/// Random generators with a state of theirs.
pub type Generators = Vec<(Py<PyAny>, Py<PyAny>)>;

/// PyTorch's default generators and their states; none without PyTorch. `None`: see [`save`].
///
/// # Errors
/// What PyTorch raises.
pub fn generators(py: Python<'_>) -> PyResult<Option<Generators>> {
    if stator_cpython::heap::torch::get(py).is_none() {
        return Ok(Some(Vec::new()));
    }
    static DEFAULT: Named = Named::new("torch", "default_generator");
    let mut found = vec![DEFAULT.get(py)?.clone().unbind()];
    found.extend(accelerator::generators(py)?.into_iter().map(Bound::unbind));
    save(py, &found)
}

/// The accelerator's generators that weren't there before: the trace may have started and advanced them.
///
/// # Errors
/// What PyTorch raises.
pub fn started(py: Python<'_>, before: &Generators) -> PyResult<Vec<Py<PyAny>>> {
    let mut found = accelerator::generators(py)?;
    found.retain(|generator| !before.iter().any(|(known, _)| generator.is(known)));
    Ok(found.into_iter().map(Bound::unbind).collect())
}

/// The states of generators. `None`: one of them doesn't tell, as that of a CUDA device while a graph is captured.
///
/// # Errors
/// What PyTorch raises besides that.
pub fn save(py: Python<'_>, generators: &[Py<PyAny>]) -> PyResult<Option<Generators>> {
    let save =
        |generator: &Py<PyAny>| Ok((generator.clone_ref(py), state(generator.bind(py))?.unbind()));
    match generators.iter().map(save).collect() {
        Ok(saved) => Ok(Some(saved)),
        Err(error) if PyErr::is_instance_of::<PyRuntimeError>(&error, py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A generator's state. PyTorch makes the object that holds it under the generator's lock: a
/// collection there may let in threads that ask for the same lock, with the GIL held.
fn state<'py>(generator: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let _uninterrupted = WithoutGc::new(generator.py());
    if let Some(bits) = generator.getattr_opt(pyo3::intern!(generator.py(), BITS))? {
        // A `numpy.random.Generator`.
        return bits.getattr(pyo3::intern!(generator.py(), "state"));
    }
    if twister::is_known(generator.as_borrowed()) {
        return twisters(generator.py())?.call_method1("getstate", (generator,));
    }
    generator.call_method0(pyo3::intern!(generator.py(), "get_state"))
}

/// The class in C of Python's generators.
fn twisters(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    modules::import(py, "_random")?.getattr("Random")
}

/// Those of `before` whose state has changed.
///
/// # Errors
/// What PyTorch raises.
pub fn advanced(py: Python<'_>, before: Generators) -> PyResult<Vec<Py<PyAny>>> {
    let mut changed = Vec::new();
    for (generator, then) in before {
        let now = state(generator.bind(py))?;
        let then = then.into_bound(py);
        let same = match tensor::same_bytes(then.as_borrowed(), now.as_borrowed())? {
            Some(same) => same,
            None => {
                modules::import(py, "torch")?.call_method1("equal", (then, now))?.is_truthy()?
            }
        };
        if !same {
            changed.push(generator);
        }
    }
    Ok(changed)
}

/// The generators among a graph's objects, and PyTorch's and NumPy's own where it seeds these.
///
/// # Errors
/// If PyTorch or NumPy lack what they are asked for.
pub fn explicit(py: Python<'_>, objects: &[Py<PyAny>]) -> PyResult<Vec<Py<PyAny>>> {
    if objects.is_empty() || stator_cpython::heap::torch::get(py).is_none() {
        return Ok(Vec::new());
    }
    let mut numpy = numpys(py, objects)?;
    let torch = modules::import(py, "torch")?;
    // Where `torch` itself has it, a wrapper may stand.
    let seed = modules::import(py, "torch.random")?.getattr("manual_seed")?;
    let class = torch.getattr("Generator")?;
    let is_one =
        |object: &Borrowed<'_, '_>| object.get_type().is(&class) || twister::is_known(*object);
    let found = objects.iter().filter(|object| is_one(&object.bind_borrowed(py)));
    let mut found: Vec<_> = found.map(|object| object.clone_ref(py)).collect();
    found.append(&mut numpy);
    if objects.iter().any(|object| object.is(&seed)) {
        found.push(torch.getattr("default_generator")?.unbind());
        found.extend(accelerator::generators(py)?.into_iter().map(Bound::unbind));
    }
    Ok(found)
}

/// NumPy's generators among a graph's objects, and its own where the graph seeds it.
fn numpys(py: Python<'_>, objects: &[Py<PyAny>]) -> PyResult<Vec<Py<PyAny>>> {
    let Ok(random) = modules::import(py, "numpy.random") else { return Ok(Vec::new()) };
    let classes = [random.getattr("RandomState")?, random.getattr("Generator")?];
    let is_one = |object: &&Py<PyAny>| {
        let class = object.bind(py).get_type();
        classes.iter().any(|known| class.is(known))
    };
    let mut found: Vec<_> = objects.iter().filter(is_one).map(|it| it.clone_ref(py)).collect();
    let seed = random.getattr("seed")?;
    if objects.iter().any(|object| object.is(&seed)) {
        found.push(random.getattr("mtrand")?.getattr("_rand")?.unbind());
    }
    Ok(found)
}

/// Puts saved states back.
///
/// # Errors
/// What PyTorch raises.
pub fn restore_generators(py: Python<'_>, saved: &Generators) -> PyResult<()> {
    for (generator, state) in saved {
        if let Some(bits) = generator.bind(py).getattr_opt(BITS)? {
            bits.setattr("state", state)?;
            continue;
        }
        if twister::is_known(generator.bind_borrowed(py)) {
            twisters(py)?.call_method1("setstate", (generator, state))?;
            continue;
        }
        generator.call_method1(py, "set_state", (state,))?;
    }
    Ok(())
}

/// Puts PyTorch's modes back to what the guards say they were at entry, where the nodes before
/// `failed` switch them.
///
/// # Errors
/// What PyTorch raises.
pub fn restore_modes(
    py: Python<'_>,
    graph: &Graph,
    guards: &[Guard],
    failed: Option<NodeId>,
) -> PyResult<()> {
    let mut switched = false;
    let mut nesting = 0i64;
    for (id, node) in graph.nodes() {
        if Some(id) == failed {
            break;
        }
        let NodeKind::Call { target: Target::Function { name, .. }, .. } = &node.kind else {
            continue;
        };
        let name = graph.text(*name);
        let name = last_part(name);
        switched |= name == "_set_grad_enabled"
            || name.contains("autocast")
            || name.starts_with("_set_sdp_");
        nesting += i64::from(name == "autocast_increment_nesting");
        nesting -= i64::from(name == "autocast_decrement_nesting");
    }
    if !switched {
        return Ok(());
    }
    let torch = modules::import(py, "torch")?;
    for _ in 0..nesting {
        let left: i64 = torch.call_method0("autocast_decrement_nesting")?.extract()?;
        if left == 0 {
            torch.call_method0("clear_autocast_cache")?;
        }
    }
    let Some(GuardKind::GlobalState(state)) = guards
        .iter()
        .map(|guard| &guard.kind)
        .find(|kind| matches!(kind, GuardKind::GlobalState(_)))
    else {
        return Ok(());
    };
    restore_facts(&torch, state)
}

fn restore_facts(torch: &Bound<'_, PyModule>, state: &GlobalState) -> PyResult<()> {
    for fact in &state.facts {
        let of = |getter: &str| fact.name.strip_prefix(getter)?.strip_suffix("')");
        if let Some(device) = of("torch.is_autocast_enabled('")
            && let Value::Bool(on) = fact.value
        {
            torch.call_method1("set_autocast_enabled", (device, on))?;
        } else if let Some(device) = of("torch.get_autocast_dtype('")
            && let Value::Text(dtype) = &fact.value
            && let Some(name) = dtype.strip_prefix("torch.")
        {
            torch.call_method1("set_autocast_dtype", (device, torch.getattr(name)?))?;
        } else if let Some(kernel) = fact.name.strip_prefix("torch._C._get_")
            && let Some(kernel) = kernel.strip_suffix("_sdp_enabled()")
            && let Value::Bool(on) = fact.value
        {
            let switch = torch.getattr("_C")?.getattr_opt(format!("_set_sdp_use_{kernel}"))?;
            switch.map(|switch| switch.call1((on,))).transpose()?;
        } else if fact.name == "torch._C._get_sdp_priority_order()"
            && let Value::Text(order) = &fact.value
        {
            let order = order.trim_matches(['[', ']']).split(", ").map(str::parse);
            let order = order.collect::<Result<Vec<i64>, _>>()?;
            torch.getattr("_C")?.call_method1("_set_sdp_priority_order", (order,))?;
        }
    }
    if let Some(Value::Bool(on)) = state.get("torch.is_autocast_cache_enabled()") {
        torch.call_method1("set_autocast_cache_enabled", (on,))?;
    }
    if let Some(Value::Bool(on)) = state.get("torch.is_grad_enabled()") {
        torch.getattr("_C")?.call_method1("_set_grad_enabled", (on,))?;
    }
    Ok(())
}

/// Version counters of a replay's inputs.
pub fn versions(inputs: &[Borrowed<'_, '_>]) -> SmallVec<[Option<u32>; 16]> {
    inputs.iter().map(|input| tensor::info(*input).and_then(|info| info.version)).collect()
}

/// Whether a batch normalisation leaves its statistics alone: `training`, the sixth argument of
/// both `torch`'s and `torch.nn.functional`'s, is false.
pub fn is_evaluating(call: NodeCall<'_>) -> bool {
    let NodeCall { graph, args, keywords, .. } = call;
    let first_named = args.len() - keywords.len();
    let named = keywords.iter().position(|name| graph.text(*name) == "training");
    let training = match named {
        Some(at) => Some(first_named + at),
        None => (first_named > 5).then_some(5),
    };
    training.is_some_and(|at| args[at] == Arg::bool(false))
}

/// Whether a function writes to the data of arguments without counting the write.
pub fn is_silent(name: &str) -> bool {
    stator_operators::torch::writes_silently(name)
}
