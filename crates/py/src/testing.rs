//! `_stator.testing`: the exact evaluator for every frame of the process, for the evaluator's tests.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::heap::torch;
use stator_cpython::hook::{self, Active, Begun, Evaluated, Evaluator, Suspended, Top};
use stator_cpython::layout;
use stator_evaluator::{Plain, Sites, Step, evaluate};
use stator_tracer::compiled::rehearsal_outcome;

static FRAMES: AtomicU64 = AtomicU64::new(0);
static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
/// Address of the code object whose frames are handed over at `TARGET_UNIT`; 0 for none.
static TARGET_CODE: AtomicUsize = AtomicUsize::new(0);
static TARGET_UNIT: AtomicUsize = AtomicUsize::new(0);
/// Every how many instructions some frame is handed over; 0 for never.
static HAND_OVER_EVERY: AtomicU64 = AtomicU64::new(0);

/// Whether the next step is to panic.
static PANIC: AtomicBool = AtomicBool::new(false);

/// The exact evaluator, which counts its steps and hands over where a test asks for it.
struct Counting;

impl<'py> Sites<'py> for Counting {
    const STEPS: bool = true;

    fn step(&self, frame: &Frame<'py>, _opcode: u8, _arg: u32) -> Step {
        let count = INSTRUCTIONS.fetch_add(1, Relaxed);
        if PANIC.swap(false, Relaxed) {
            panic!("asked to panic");
        }
        let target = TARGET_CODE.load(Relaxed);
        if target != 0
            && target == frame.code().as_ptr() as usize
            && frame.unit() == TARGET_UNIT.load(Relaxed)
        {
            return Step::HandOver;
        }
        let every = HAND_OVER_EVERY.load(Relaxed);
        if every != 0 && count % every == every - 1 {
            return Step::HandOver;
        }
        Step::Evaluate
    }
}

fn counting<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    FRAMES.fetch_add(1, Relaxed);
    evaluate(py, frame, throw, &Counting)
}

fn plain<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    evaluate(py, frame, throw, &Plain)
}

fn evaluator(count: bool) -> Evaluator {
    if count { counting } else { plain }
}

/// Evaluates every frame of the process from now on, in all threads, or none. With `count`, steps are
/// counted and can be made to hand over.
#[pyfunction]
#[pyo3(signature = (on, count = true))]
fn evaluate_everything(py: Python<'_>, on: bool, count: bool) {
    hook::evaluate_everything(py, on.then(|| evaluator(count)));
}

/// Calls a function with this thread's evaluator on.
#[pyfunction]
#[pyo3(signature = (function, /, *args, count = true, **kwargs))]
fn call_evaluated<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    count: bool,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _active = Active::new(function.py(), evaluator(count));
    function.call(args, kwargs)
}

/// Calls a function and says whether Python code began meanwhile in a thread with none beneath it.
#[pyfunction]
fn begins_elsewhere(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let begun = Begun::new(function.py());
    function.call0()?;
    Ok(begun.has_begun())
}

/// Calls a function with this thread's evaluator off.
#[pyfunction]
#[pyo3(signature = (function, /, *args, **kwargs))]
fn call_native<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _suspended = Suspended::new(function.py());
    function.call(args, kwargs)
}

/// Whose frame evaluation function is installed: `"nobody"`, `"ours"` or `"foreign"`.
#[pyfunction]
fn hook_on_top(py: Python<'_>) -> &'static str {
    match hook::top(py) {
        Top::Nobody => "nobody",
        Top::Ours => "ours",
        Top::Foreign => "foreign",
    }
}

/// Hands the frames of a code object over to CPython before the instruction at `unit`; `None` ends it.
#[pyfunction]
#[pyo3(signature = (code, unit = 0))]
fn hand_over_at(code: Option<&Bound<'_, PyAny>>, unit: usize) {
    TARGET_UNIT.store(unit, Relaxed);
    TARGET_CODE.store(code.map_or(0, |code| code.as_ptr() as usize), Relaxed);
}

/// Hands some frame over at every `count`th instruction; 0 ends it.
#[pyfunction]
fn hand_over_every(count: u64) {
    HAND_OVER_EVERY.store(count, Relaxed);
}

/// Makes the next counted step panic.
#[pyfunction]
fn panic_at_next_step() {
    PANIC.store(true, Relaxed);
}

/// (frames, instructions) evaluated and counted so far.
#[pyfunction]
fn counts() -> (u64, u64) {
    (FRAMES.load(Relaxed), INSTRUCTIONS.load(Relaxed))
}

/// Struct fields whose offset in Rust differs from the C headers': (name, offset in Rust, in C).
#[pyfunction]
fn layout_differences() -> Vec<(&'static str, usize, i64)> {
    layout::differences()
}

/// From now on a replay, a native call and a recording take so many nanoseconds, as far as decisions go.
#[pyfunction]
#[pyo3(signature = (spans))]
fn say_spans(spans: Option<[u64; 4]>) {
    stator_tracer::clock::say(spans);
}

/// From now on a graph takes so many nanoseconds in the replay and in a backend's code, as far as decisions go.
#[pyfunction]
#[pyo3(signature = (spans))]
fn say_graphs(spans: Option<[u64; 2]>) {
    stator_tracer::clock::say_graphs(spans);
}

/// From now on nothing of PyTorch's insides is found, if nobody has looked yet.
#[pyfunction]
fn hide_torch() {
    torch::hide();
}

/// What another search for the fields of tensors finds.
#[pyfunction]
fn search_tensors(py: Python<'_>) -> Option<String> {
    torch::search_again(py)
}

/// What of PyTorch's insides wasn't found.
#[pyfunction]
fn torch_unfound(py: Python<'_>) -> Vec<&'static str> {
    torch::unfound(py).into_iter().map(torch::Unfound::word).collect()
}

/// What came of the recording that goes before all others.
#[pyfunction]
fn rehearsal() -> &'static str {
    rehearsal_outcome()
}

/// What a call gives if a replay makes it without Python, in a tuple; `None`: it wouldn't.
#[pyfunction]
fn call_directly<'py>(
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
    Ok(stator_tracer::replay::direct::call(callable, args, kwargs)?.map(|made| (made,)))
}

/// Adds the submodule.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let testing = PyModule::new(module.py(), "testing")?;
    testing.add_function(wrap_pyfunction!(evaluate_everything, &testing)?)?;
    testing.add_function(wrap_pyfunction!(call_evaluated, &testing)?)?;
    testing.add_function(wrap_pyfunction!(call_native, &testing)?)?;
    testing.add_function(wrap_pyfunction!(begins_elsewhere, &testing)?)?;
    testing.add_function(wrap_pyfunction!(hook_on_top, &testing)?)?;
    testing.add_function(wrap_pyfunction!(hand_over_at, &testing)?)?;
    testing.add_function(wrap_pyfunction!(hand_over_every, &testing)?)?;
    testing.add_function(wrap_pyfunction!(panic_at_next_step, &testing)?)?;
    testing.add_function(wrap_pyfunction!(counts, &testing)?)?;
    testing.add_function(wrap_pyfunction!(say_spans, &testing)?)?;
    testing.add_function(wrap_pyfunction!(say_graphs, &testing)?)?;
    testing.add_function(wrap_pyfunction!(layout_differences, &testing)?)?;
    testing.add_function(wrap_pyfunction!(hide_torch, &testing)?)?;
    testing.add_function(wrap_pyfunction!(torch_unfound, &testing)?)?;
    testing.add_function(wrap_pyfunction!(search_tensors, &testing)?)?;
    testing.add_function(wrap_pyfunction!(rehearsal, &testing)?)?;
    testing.add_function(wrap_pyfunction!(call_directly, &testing)?)?;
    module.add_submodule(&testing)
}
