//! The torch-function mode around C callables that may call tensor operations back.
//!
//! The evaluator sees operations at its own sites. C code (`sum`, `max`, `functools.reduce`) calls
//! them where no site is, so while it runs a mode is pushed that tells the recorder. Python frames
//! that such C code enters are traced as usual: the mode is off while they run.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::{modules, ops};
use stator_faults::{self as faults, Fault, Stage};

use super::Recorder;
use super::notes::above::Ends;
use crate::breaks::Reason;

thread_local! {
    /// How often C code that runs on this thread has the mode on. PyTorch's stack may hold fewer:
    /// PyTorch takes a mode off while it asks it, and whatever it allocates then may begin a frame
    /// (a callback of the garbage collector).
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
        let empty = PyTuple::empty(py);
        let args = args.unwrap_or(&empty);
        if let Some(recorder) = super::current()
            && !recorder.stopped.get()
            && let Some(frame) = stator_cpython::thread::Thread::current(py).frame(py)
        {
            let (func, args) = (func.as_borrowed(), args.as_any().as_borrowed());
            let kwargs = kwargs.map(|kwargs| kwargs.as_any().as_borrowed());
            let recorded = || {
                if let Err(fault) = faults::at(Stage::Mode) {
                    recorder.fault(py, fault);
                }
                recorder.call_operation(&frame, func, args, kwargs)
            };
            let called = || recorder.part(py, recorded, || ops::call_ex(func, args, kwargs));
            return match catch_unwind(AssertUnwindSafe(called)) {
                Ok(called) => called.map_err(|raised| raised.take(py)),
                // What the operation has given is lost.
                Err(payload) => Err(Fault::of_panic(&*payload).error(py)),
            };
        }
        func.call(args, kwargs)
    }
}

struct Stack {
    push: Py<PyAny>,
    pop: Py<PyAny>,
    len: Py<PyAny>,
    at: Py<PyAny>,
    mode: Py<PyAny>,
}

/// `None`: there is no PyTorch.
///
/// # Errors
/// It wasn't found, which may be otherwise later: little of the thread's stack is left.
fn stack(py: Python<'_>) -> PyResult<Option<&Stack>> {
    static STACK: PyOnceLock<Option<Stack>> = PyOnceLock::new();
    let find = || {
        let c = match modules::import(py, "torch._C") {
            Err(error) if error.is_instance_of::<PyImportError>(py) => return Ok(None),
            c => c?,
        };
        let function = |name| PyResult::Ok(c.getattr(name)?.unbind());
        PyResult::Ok(Some(Stack {
            push: function("_push_on_torch_function_stack")?,
            pop: function("_pop_torch_function_stack")?,
            len: function("_len_torch_function_stack")?,
            at: function("_get_function_stack_at")?,
            mode: Py::new(py, Mode)?.into_any(),
        }))
    };
    STACK.get_or_try_init(py, find).map(Option::as_ref)
}

/// Finds PyTorch's functions, where that is possible now.
pub(super) fn warm_up(py: Python<'_>) {
    let _ = stack(py);
}

fn push(py: Python<'_>) -> PyResult<()> {
    if let Some(stack) = stack(py)? {
        stack.push.call1(py, (&stack.mode,))?;
    }
    Ok(())
}

fn pop(py: Python<'_>) {
    let popped = || match stack(py)? {
        Some(stack) => stack.pop.call0(py).map(drop),
        None => Ok(()),
    };
    let popped = popped();
    debug_assert!(popped.is_ok());
}

/// How many modes at the top of PyTorch's stack are Stator's.
fn on_top(py: Python<'_>) -> usize {
    let count = |stack: &Stack| -> PyResult<usize> {
        let len: usize = stack.len.call0(py)?.extract(py)?;
        let mut on_top = 0;
        while on_top < len && stack.at.call1(py, (len - on_top - 1,))?.is(&stack.mode) {
            on_top += 1;
        }
        Ok(on_top)
    };
    let counted = stack(py).and_then(|stack| stack.map_or(Ok(0), count));
    debug_assert!(counted.is_ok());
    counted.unwrap_or(0)
}

/// What was on before a Python frame began.
#[derive(Clone, Copy, Default)]
pub(super) struct Suspended {
    pushed: usize,
    popped: usize,
}

/// Whether C code runs with the mode on.
pub(super) fn is_on() -> bool {
    PUSHED.get() > 0
}

/// The mode is on until this is dropped.
struct Pushed<'py>(Python<'py>);

impl<'py> Pushed<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        push(py)?;
        PUSHED.set(PUSHED.get() + 1);
        Ok(Self(py))
    }
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        PUSHED.set(PUSHED.get() - 1);
        // The error indicator must survive the call of `pop`.
        let raised = PyErr::take(self.0);
        pop(self.0);
        if let Some(raised) = raised {
            raised.restore(self.0);
        }
    }
}

impl Recorder {
    /// Runs C code with the mode on.
    pub(super) fn with_mode<T>(
        &self,
        frame: &Frame<'_>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.stopped.get() {
            return run();
        }
        let pushed = Pushed::new(frame.py());
        if pushed.is_err() {
            // Nobody would tell of operations that the code calls.
            self.stop(frame, Reason::Depth, "there is no room to watch C code");
        }
        run()
    }

    /// A Python frame starts under C code: the mode is off while it runs.
    pub(super) fn suspend_mode(&self, py: Python<'_>) {
        let mut suspended = Suspended { pushed: PUSHED.replace(0), popped: 0 };
        if suspended.pushed > 0 {
            // A generator that is closed enters its frame with an exception.
            let raised = PyErr::take(py);
            suspended.popped = on_top(py);
            (0..suspended.popped).for_each(|_| pop(py));
            if let Some(raised) = raised {
                raised.restore(py);
            }
        }
        self.suspended_modes.borrow_mut().push(suspended);
    }

    /// The frame ended: the mode is on again as it was.
    pub(super) fn resume_mode(&self, py: Python<'_>) {
        let suspended = self.suspended_modes.borrow_mut().pop().unwrap_or_default();
        if suspended.popped > 0 {
            // The frame may be leaving with an exception.
            let raised = PyErr::take(py);
            (0..suspended.popped).for_each(|_| {
                let pushed = push(py);
                debug_assert!(pushed.is_ok());
            });
            if let Some(raised) = raised {
                raised.restore(py);
            }
        }
        PUSHED.set(suspended.pushed);
    }
}
