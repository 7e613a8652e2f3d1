//! Calls from frames that only look as if they stood there: what a warning or a log record says of its
//! place, and of the stack above it, is what it finds on the stack.

use std::cell::RefCell;
use std::collections::VecDeque;

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::frame::{Frame, call_anew};
use stator_cpython::hook::{self, Active, Evaluated, Suspended};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};

use stator_evaluator::{Resumed, resume};

/// A frame to be made: its function, and the unit it stands at.
pub struct Stand {
    /// The function.
    pub function: Py<PyAny>,
    /// The unit.
    pub unit: usize,
}

/// A call, and the frames it is made from.
pub struct Staged {
    /// Outermost first; at least one.
    pub frames: VecDeque<Stand>,
    /// What is called.
    pub callable: Py<PyAny>,
    /// Its arguments: positional, then those named by `names`.
    pub args: SmallVec<[Py<PyAny>; 6]>,
    /// A tuple of names.
    pub names: Option<Py<PyAny>>,
}

thread_local! {
    static STAGED: RefCell<Option<Staged>> = const { RefCell::new(None) };
}

impl Staged {
    /// Makes the frames and the call; what it returns is dropped.
    ///
    /// # Errors
    /// What the call raises.
    pub fn call(self, py: Python<'_>) -> PyResult<()> {
        let Some(outermost) = self.frames.front() else { return Ok(()) };
        let outermost = outermost.function.clone_ref(py);
        let before = STAGED.replace(Some(self));
        let result = {
            let _active = Active::new(py, evaluate);
            call_anew(outermost.bind_borrowed(py))
        };
        let staged = STAGED.replace(before);
        drop(staged);
        result.map(drop).map_err(|raised| raised.take(py))
    }
}

/// Makes the calls.
///
/// # Errors
/// What one of them raises.
pub fn give(py: Python<'_>, staged: Vec<Staged>) -> PyResult<()> {
    staged.into_iter().try_for_each(|call| call.call(py))
}

/// The evaluator of the frames: each is moved to where it stands and makes the next one.
fn evaluate<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    let stand = STAGED.with_borrow_mut(|staged| staged.as_mut()?.frames.pop_front());
    match stand {
        Some(stand) if !throw => resume(frame, |resumed| on_stage(py, resumed, stand.unit)),
        _ => hook::pass_on(py, frame, throw),
    }
}

fn on_stage<'py>(py: Python<'py>, resumed: &mut Resumed<'_, 'py>, unit: usize) -> Evaluated<'py> {
    resumed.restore(py, [], [], unit, unit);
    let next =
        STAGED.with_borrow(|staged| Some(staged.as_ref()?.frames.front()?.function.clone_ref(py)));
    let result = match next {
        Some(function) => call_anew(function.bind_borrowed(py)),
        None => call(py),
    };
    match result {
        Ok(_) => resumed.abandon(),
        Err(raised) => resumed.raise_here(raised),
    }
}

fn call(py: Python<'_>) -> Result<Object<'_>> {
    let Some(staged) = STAGED.take() else { return Ok(py.None().into_bound(py)) };
    let _native = Suspended::new(py);
    let args: SmallVec<[Borrowed<'_, '_>; 6]> =
        staged.args.iter().map(|arg| arg.bind_borrowed(py)).collect();
    let names = staged.names.as_ref().map(|names| names.bind_borrowed(py));
    ops::call(staged.callable.bind_borrowed(py), &args, names)
}
