//! What `torch.compiler.is_compiling()` and its relatives answer.
//!
//! Plain code runs while a call is recorded, so by default they answer what plain execution answers.
//! `is_compiling=True` and tensor programs ask for the path made for tracers: then the answer is true
//! wherever code of that call runs, recorded or not. `stator.disable` ends that.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyBool;
use stator_cpython::frame::Frame;
use stator_cpython::hook::{self, Active, Evaluated, Evaluator, Suspended};
use stator_cpython::shortcut;

use crate::functions::{Class, Functions};
use crate::marks;

thread_local! {
    static ANSWER: Cell<bool> = const { Cell::new(false) };
}

/// How often it has been answered true by somebody who hasn't ended yet, in all threads.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Whether in any thread a call goes on in which the answer is true, somewhere.
pub fn is_anyone_told() -> bool {
    TOLD.load(Relaxed) > 0
}

/// The answer in the call that this thread is in.
#[inline]
#[must_use]
pub fn answer() -> bool {
    ANSWER.get()
}

/// Whether code that asks here and now is answered true: what a node of a graph does isn't compiled.
#[must_use]
pub fn is_told() -> bool {
    answer() && hook::is_active()
}

/// While it lives, the answer on this thread is this one.
#[must_use]
pub struct Answering {
    before: bool,
    is_told: bool,
}

impl Answering {
    /// Sets the answer.
    #[inline]
    pub fn new(answer: bool) -> Self {
        if answer {
            TOLD.fetch_add(1, Relaxed);
            shortcut::close_all();
        }
        Self { before: ANSWER.replace(answer), is_told: answer }
    }
}

impl Drop for Answering {
    #[inline]
    fn drop(&mut self) {
        ANSWER.set(self.before);
        if self.is_told {
            TOLD.fetch_sub(1, Relaxed);
        }
    }
}

/// While it lives, this thread's frames are CPython's; only what they ask may have another answer.
#[must_use]
pub struct Native<'py> {
    _suspended: Option<Suspended<'py>>,
    _active: Option<Active<'py>>,
}

impl<'py> Native<'py> {
    /// Begins.
    #[inline]
    pub fn new(py: Python<'py>) -> Self {
        if answer() {
            return Self { _suspended: None, _active: Some(Active::new(py, pass_on)) };
        }
        Self { _suspended: Some(Suspended::new(py)), _active: None }
    }
}

/// Evaluates a frame natively. One that asks has the answer.
pub fn pass_on<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    pass_on_to(py, frame, throw, hook::pass_on)
}

/// As [`pass_on`], by an evaluator that does what CPython does.
pub fn pass_on_to<'py>(
    py: Python<'py>,
    frame: Frame<'py>,
    throw: bool,
    evaluator: Evaluator,
) -> Evaluated<'py> {
    if !answer() {
        return evaluator(py, frame, throw);
    }
    let function = frame.function();
    if marks::disabled(function).is_some() {
        let _plain = Answering::new(false);
        let _native = Suspended::new(py);
        return hook::pass_on(py, frame, throw);
    }
    let is_question = !throw
        && Functions::get(py)
            .is_ok_and(|known| matches!(known.class(function), Some(Class::IsCompiling)));
    let result = evaluator(py, frame, throw);
    if is_question {
        return result.map(|_| PyBool::new(py, true).to_owned().into_any());
    }
    result
}
