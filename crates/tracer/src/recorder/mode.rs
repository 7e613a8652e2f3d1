//! The torch-function mode around C callables that may call tensor operations back.
//!
//! The evaluator sees operations at its own sites. C code (`sum`, `max`, `functools.reduce`) calls
//! them where no site is, so while it runs a mode is pushed that tells the recorder. Python frames
//! that such C code enters are traced as usual: the mode is off while they run.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::modules;

use super::Recorder;

thread_local! {
    /// Modes on this thread's stack that are Stator's.
    static PUSHED: Cell<usize> = const { Cell::new(0) };
}

/// The object on PyTorch's stack of modes. It records what is called.
#[pyclass(frozen, name = "RecordingMode")]
struct Mode;

#[pymethods]
impl Mode {
    #[pyo3(signature = (func, _types, args = None, kwargs = None))]
    fn __torch_function__<'py>(
        &self,
        func: &Bound<'py, PyAny>,
        _types: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyTuple>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        let _stashed = Stashed::new();
        let empty = PyTuple::empty(py);
        let args = args.unwrap_or(&empty);
        if let Some(recorder) = super::current()
            && !recorder.is_stopped()
            && let Some(frame) = stator_cpython::thread::Thread::current(py).frame(py)
        {
            let kwargs = kwargs.map(|kwargs| kwargs.as_any().as_borrowed());
            let called = recorder.call_operation(
                &frame,
                func.as_borrowed(),
                args.as_any().as_borrowed(),
                kwargs,
            );
            return called.map_err(|raised| raised.take(py));
        }
        func.call(args, kwargs)
    }
}

/// PyTorch takes a mode off its stack while it is asked: a Python frame that begins then finds it off.
struct Stashed(usize);

impl Stashed {
    fn new() -> Self {
        let pushed = PUSHED.get();
        PUSHED.set(pushed.saturating_sub(1));
        Self(pushed)
    }
}

impl Drop for Stashed {
    fn drop(&mut self) {
        PUSHED.set(self.0);
    }
}

struct Stack {
    push: Py<PyAny>,
    pop: Py<PyAny>,
    mode: Py<PyAny>,
}

fn stack(py: Python<'_>) -> Option<&Stack> {
    static STACK: PyOnceLock<Option<Stack>> = PyOnceLock::new();
    STACK
        .get_or_init(py, || {
            let c = modules::import(py, "torch._C").ok()?;
            let push = c.getattr("_push_on_torch_function_stack").ok()?.unbind();
            let pop = c.getattr("_pop_torch_function_stack").ok()?.unbind();
            Some(Stack { push, pop, mode: Py::new(py, Mode).ok()?.into_any() })
        })
        .as_ref()
}

/// Finds PyTorch's functions.
pub(super) fn warm_up(py: Python<'_>) {
    stack(py);
}

fn push(py: Python<'_>) {
    if let Some(stack) = stack(py) {
        let pushed = stack.push.call1(py, (&stack.mode,));
        debug_assert!(pushed.is_ok());
    }
}

fn pop(py: Python<'_>) {
    if let Some(stack) = stack(py) {
        let popped = stack.pop.call0(py);
        debug_assert!(popped.is_ok());
    }
}

impl Recorder {
    /// Runs C code with the mode on.
    pub(super) fn with_mode<T>(
        &self,
        frame: &Frame<'_>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.is_stopped() {
            return run();
        }
        let py = frame.py();
        push(py);
        PUSHED.set(PUSHED.get() + 1);
        let result = run();
        PUSHED.set(PUSHED.get() - 1);
        // The error indicator must survive the call of `pop`.
        match result {
            Ok(value) => {
                pop(py);
                Ok(value)
            }
            Err(raised) => {
                let error = raised.take(py);
                pop(py);
                Err(stator_cpython::Raised::set(py, error))
            }
        }
    }

    /// A Python frame starts under C code: the mode is off while it runs.
    pub(super) fn suspend_mode(&self, py: Python<'_>) {
        let pushed = PUSHED.get();
        let mut suspended = self.suspended_modes.borrow_mut();
        suspended.push(pushed);
        if pushed > 0 {
            PUSHED.set(0);
            // A generator that is closed enters its frame with an exception.
            let raised = PyErr::take(py);
            (0..pushed).for_each(|_| pop(py));
            if let Some(raised) = raised {
                raised.restore(py);
            }
        }
    }

    /// The frame ended: the mode is on again as it was.
    pub(super) fn resume_mode(&self, py: Python<'_>) {
        let pushed = self.suspended_modes.borrow_mut().pop().unwrap_or(0);
        if pushed > 0 {
            // The frame may be leaving with an exception.
            let raised = PyErr::take(py);
            (0..pushed).for_each(|_| push(py));
            PUSHED.set(pushed);
            if let Some(raised) = raised {
                raised.restore(py);
            }
        }
    }
}
