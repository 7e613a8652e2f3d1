//! The marks that functions bear: how a trace takes a call of them. Looking for one runs no user code.
//!
//! A mark needs no guard: it says how a call is recorded, not what it does. A trace that looked into
//! a function before it was marked is right.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFunction, PySet, PyString};
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::code::Code;
use stator_cpython::generic;
use stator_cpython::heap::dict::{self, Lookup, Peek, peek_instance_dict};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};

use crate::locate::text;

/// How a trace takes a call of a marked function.
pub enum Mark {
    /// It ends there, with the reason.
    Disabled(String),
    /// It ends there, because the user wants it to.
    Break,
    /// The call is one node of the graph.
    InGraph,
    /// Its result is a constant of the trace.
    Constant,
    /// It isn't made at all, and its result is `None`.
    Nothing,
    /// It's a method of an object by which PyTorch calls hooks.
    Hook,
    /// It calls a function that PyTorch has hidden from its own tracer.
    Hides,
    /// It labels what it is about for profilers.
    Label(Label),
    /// It makes a type hint of others, such as `Optional[int]`. Nothing is known of that but that it is there.
    Hint,
}

/// The methods of `torch.profiler.record_function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// `__init__`.
    Made,
    /// `__enter__`.
    Begins,
    /// `__exit__`.
    Ends,
}

/// The mark of a Python function: one of Stator's, or one that PyTorch's compiler heeds.
#[must_use]
pub fn of(function: Borrowed<'_, '_>) -> Option<Mark> {
    of_torch(function).filter(|mark| !mark.is_tried()).or_else(|| own(function))
}

impl Mark {
    /// Whether a call may be no such call after all: then it's one as if there were no mark.
    #[must_use]
    pub const fn is_tried(&self) -> bool {
        matches!(self, Self::Hook | Self::Hides)
    }
}

/// As [`of`] of a function that isn't marked by its code.
#[must_use]
pub fn own(function: Borrowed<'_, '_>) -> Option<Mark> {
    let py = function.py();
    let Peek::Dict(marks) = peek_instance_dict(function) else { return None };
    if dict::length(marks.as_borrowed()) == Some(0) {
        return None;
    }
    let get = |name| found(marks.as_borrowed(), name);
    let is_true = |name| get(name).is_some_and(|mark| mark.is(&*PyBool::new(py, true)));
    if let Some(why) = get(pyo3::intern!(py, "__stator_disable__")) {
        return Some(Mark::Disabled(text(why.as_borrowed())));
    }
    // `functools.wraps` copies a function's marks to others: whose it is says the code in it.
    let code = value(function, Field::Code)?;
    let is_own = |name| get(name).is_some_and(|mark| mark.is(&code));
    if is_own(pyo3::intern!(py, "__stator_in_graph__")) {
        return Some(Mark::InGraph);
    }
    if is_own(pyo3::intern!(py, "__stator_constant__"))
        || is_true(pyo3::intern!(py, "_dynamo_marked_constant"))
    {
        return Some(Mark::Constant);
    }
    if !is_true(pyo3::intern!(py, "_torchdynamo_disable")) {
        return None;
    }
    let mut why = format!("{} is under torch.compiler.disable", qualname(function));
    if let Some(reason) = get(pyo3::intern!(py, "_torchdynamo_disable_msg"))
        && reason.is_instance_of::<PyString>()
    {
        why += &format!(": {}", text(reason.as_borrowed()));
    }
    Some(Mark::Disabled(why))
}

/// Why a function isn't to be traced, if so.
#[must_use]
pub fn disabled(function: Borrowed<'_, '_>) -> Option<String> {
    match of(function) {
        Some(Mark::Disabled(why)) => Some(why),
        _ => None,
    }
}

fn found<'py>(marks: Borrowed<'_, 'py>, name: &Bound<'py, PyString>) -> Option<Object<'py>> {
    match dict::get(marks, name.as_any().as_borrowed()) {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Refused => None,
    }
}

/// The mark of functions of PyTorch's that nobody could mark. They are known by their code, so that
/// they needn't be loaded when the function table is made.
#[must_use]
pub fn of_torch(function: Borrowed<'_, '_>) -> Option<Mark> {
    let py = function.py();
    let code = value(function, Field::Code)?;
    let code = Code::of(code.as_borrowed())?;
    // Names in code are interned.
    let (file, mark) = if code.name().is(pyo3::intern!(py, "graph_break")) {
        ("torch/_dynamo/decorators.py", Mark::Break)
    } else if code.name().is(pyo3::intern!(py, "tag")) {
        // Once `torch.compile` is in use, each new module is noted there, for its own traces.
        ("torch/_dynamo/mutation_guard.py", Mark::Nothing)
    } else if code.name().is(pyo3::intern!(py, "inner")) {
        let qualname = text(code.qualname());
        if qualname == "_disable_dynamo.<locals>.inner" {
            return text(code.filename()).ends_with("torch/_compile.py").then_some(Mark::Hides);
        }
        let is_cached = qualname.starts_with("_tp_cache.");
        return (is_cached && text(code.filename()).ends_with("/typing.py")).then_some(Mark::Hint);
    } else if is_hook_method(&code) {
        ("torch/utils/hooks.py", Mark::Hook)
    } else if let Some(label) = label(&code) {
        ("torch/autograd/profiler.py", Mark::Label(label))
    } else {
        return None;
    };
    text(code.filename()).ends_with(file).then_some(mark)
}

/// Whether this may be a method of `BackwardHook` or `RemovableHandle`.
fn is_hook_method(code: &Code<'_>) -> bool {
    let (py, name) = (code.name().py(), code.name());
    name.is(pyo3::intern!(py, "setup_input_hook"))
        || name.is(pyo3::intern!(py, "setup_output_hook"))
        || name.is(pyo3::intern!(py, "remove")) && text(code.qualname()) == "RemovableHandle.remove"
}

/// Which method of `record_function` this may be.
fn label(code: &Code<'_>) -> Option<Label> {
    let (py, name) = (code.name().py(), code.name());
    let label = if name.is(pyo3::intern!(py, "__init__")) {
        Label::Made
    } else if name.is(pyo3::intern!(py, "__enter__")) {
        Label::Begins
    } else if name.is(pyo3::intern!(py, "__exit__")) {
        Label::Ends
    } else {
        return None;
    };
    text(code.qualname()).starts_with("record_function.").then_some(label)
}

/// The function that PyTorch itself has put under `torch.compiler.disable`, if it's one of an optimizer's: its compiler
/// can't trace that. `wrapper` is what stands for it, and `caller` the code that calls that: a program's own
/// call of something that is marked is heeded.
#[must_use]
pub fn of_optimizer<'py>(caller: &Code<'py>, wrapper: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    let file = text(caller.filename());
    if !file.ends_with("torch/_compile.py") && !file.contains("/torch/optim/") {
        return None;
    }
    let Peek::Dict(marks) = peek_instance_dict(wrapper) else { return None };
    let function =
        found(marks.as_borrowed(), pyo3::intern!(wrapper.py(), "_torchdynamo_orig_callable"))?;
    let globals = value(function.as_borrowed(), Field::Globals)?;
    let module = found(globals.as_borrowed(), pyo3::intern!(wrapper.py(), "__name__"))?;
    text(module.as_borrowed()).starts_with("torch.optim.").then_some(function)
}

fn qualname(function: Borrowed<'_, '_>) -> String {
    let code = value(function, Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.map_or_else(|| "it".into(), |code| text(code.qualname()))
}

/// The functions under `torch.compiler.allow_in_graph`: PyTorch keeps a set of their ids.
#[must_use]
pub fn allowed_by_torch(py: Python<'_>) -> FxHashSet<usize> {
    let find = || -> Option<FxHashSet<usize>> {
        let modules = dict::modules(py)?;
        let name = pyo3::intern!(py, "torch._dynamo.trace_rules");
        let rules = found(modules.as_borrowed(), name)?;
        let rules = rules.getattr(pyo3::intern!(py, "_allowed_callable_ids")).ok()?;
        let allowed = rules.getattr(pyo3::intern!(py, "function_ids")).ok()?;
        let allowed = allowed.cast_into::<PySet>().ok()?;
        Some(allowed.iter().filter_map(|id| id.extract().ok()).collect())
    };
    find().unwrap_or_default()
}

/// The Python function that `torch.compiler.substitute_in_graph` gave for a C function. PyTorch's own
/// substitutes are left aside: they do what its compiler needs.
#[must_use]
pub fn substitute_of_torch<'py>(callable: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    let py = callable.py();
    let _native = stator_cpython::hook::Suspended::new(py);
    let _deferred = stator_cpython::thread::Deferred::new(py);
    let find = || -> PyResult<Option<Object<'py>>> {
        let modules = modules::import(py, "sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        let Some(module) = modules.get_item("torch._dynamo.variables.functions")? else {
            return Ok(None);
        };
        let class = module.getattr("PolyfilledFunctionVariable")?;
        let known = class.call_method0("_get_polyfill_handlers")?.cast_into::<PyDict>()?;
        let Some(wrapped) = known.get_item(callable)? else { return Ok(None) };
        let polyfill = wrapped.getattr("__torch_dynamo_polyfill__")?;
        let module = text(polyfill.getattr("__module__")?.as_borrowed());
        let is_users = polyfill.is_exact_instance_of::<PyFunction>()
            && !module.starts_with("torch._dynamo.polyfills");
        Ok(is_users.then_some(polyfill))
    };
    find().ok().flatten()
}

/// What was registered for a callable that can't bear a mark, such as a C function.
pub enum Registered {
    /// As [`Mark::InGraph`].
    InGraph,
    /// As [`Mark::Constant`].
    Constant,
    /// A Python function does the same and is traced in its place.
    Substitute {
        /// That function.
        polyfill: Py<PyFunction>,
        /// Whether the original is called where all arguments are constants.
        folds: bool,
    },
}

impl Registered {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::InGraph => Self::InGraph,
            Self::Constant => Self::Constant,
            Self::Substitute { polyfill, folds } => {
                Self::Substitute { polyfill: polyfill.clone_ref(py), folds: *folds }
            }
        }
    }
}

/// A registered callable, kept so that its address stays its own.
type Row = (Py<PyAny>, Registered);

static REGISTERED: Mutex<Option<FxHashMap<usize, Row>>> = Mutex::new(None);
/// Whether anything is registered: mostly nothing is.
static ANY: AtomicBool = AtomicBool::new(false);

fn key(callable: Borrowed<'_, '_>) -> usize {
    generic::method_def(callable).unwrap_or(callable.as_ptr() as usize)
}

/// Registers a callable, in place of what was registered for it before.
pub fn register(callable: &Bound<'_, PyAny>, registered: Registered) {
    let row = (callable.clone().unbind(), registered);
    let mut table = crate::lock(&REGISTERED);
    let before = table.get_or_insert_default().insert(key(callable.as_borrowed()), row);
    drop(table);
    drop(before);
    ANY.store(true, Ordering::Relaxed);
}

/// What was registered for a callable.
#[must_use]
pub fn registered(callable: Borrowed<'_, '_>) -> Option<Registered> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let table = crate::lock(&REGISTERED);
    let (_, registered) = table.as_ref()?.get(&key(callable))?;
    Some(registered.clone_ref(callable.py()))
}
