//! The recorder: an observer of the evaluator that turns what the first call does into a graph,
//! guards and recipes.
//!
//! It executes: each site does what CPython would do, and takes notes. When it meets something it
//! can't follow, it stops (see [`Recorder::stop`]): the frames are handed over to CPython, the call
//! ends as plain Python would end it, and the notes are thrown away.
//!
//! `kinds`, `objects` and `state` hold the notes; `sites` implements the evaluator's trait and calls
//! the families `names`, `attributes`, `items`, `operators`, `calls`, `models` and `tensors`;
//! `outcome` turns the notes into a cache entry; `trace` is the log of the same name.

mod attributes;
mod cached;
mod calls;
mod class_attributes;
mod effects;
mod identity;
mod items;
pub mod kinds;
mod look;
mod members;
mod mode;
mod models;
mod names;
mod objects;
mod operators;
mod outcome;
mod sites;
mod state;
mod stores;
mod tensors;
mod trace;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;

pub use outcome::{Outcome, Traced, record};
pub use state::{Origin, State, Stop};

use crate::breaks::{Break, Place, Reason};
use crate::functions::Functions;

/// Records one call on one thread.
pub struct Recorder {
    state: RefCell<State>,
    functions: &'static Functions,
    stopped: Cell<bool>,
    stop: RefCell<Option<Break>>,
    /// Address of the root frame's code object; the first frame with it is the root.
    root: usize,
    entered_root: Cell<bool>,
    trace_log: bool,
    /// For each frame being evaluated, how many of Stator's modes it suspended.
    suspended_modes: RefCell<Vec<usize>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
}

/// The recorder of this thread, if a call is being recorded.
#[must_use]
pub fn current() -> Option<Rc<Recorder>> {
    CURRENT.with(|current| current.try_borrow().ok().and_then(|slot| slot.clone()))
}

/// Whether this thread records a call (`stator.is_compiling()`).
#[must_use]
pub fn is_recording() -> bool {
    current().is_some_and(|recorder| !recorder.is_stopped())
}

impl Recorder {
    /// Whether recording has ended before the call did.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Ends the trace: from here on CPython runs the call.
    pub fn stop(&self, frame: &Frame<'_>, reason: Reason, detail: impl Into<String>) {
        if self.stopped.replace(true) {
            return;
        }
        let mut stack: Vec<_> = std::iter::successors(Some(*frame), Frame::previous)
            .take(64)
            .map(|frame| (frame.code().as_ptr() as usize, place(&frame)))
            .collect();
        if let Some(root) = stack.iter().position(|(code, _)| *code == self.root) {
            stack.truncate(root + 1);
        }
        let stack = stack.into_iter().rev().map(|(_, place)| place).collect();
        *self.stop.borrow_mut() = Some(Break { reason, detail: detail.into(), stack });
    }

    /// As [`Recorder::stop`] where `result` says so; `None` then.
    fn check<T>(&self, frame: &Frame<'_>, result: Result<T, Stop>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err((reason, detail)) => {
                self.stop(frame, reason, detail);
                None
            }
        }
    }

    /// Runs `notes` on the state, unless recording has ended.
    fn note<T>(
        &self,
        frame: &Frame<'_>,
        notes: impl FnOnce(&mut State) -> Result<T, Stop>,
    ) -> Option<T> {
        if self.is_stopped() {
            return None;
        }
        let result = match self.state.try_borrow_mut() {
            Ok(mut state) => {
                state.locate(frame);
                notes(&mut state)
            }
            Err(_) => Err((Reason::Instruction, "code that runs while another is recorded".into())),
        };
        self.check(frame, result)
    }

    /// The origin of an object.
    fn origin(&self, object: Borrowed<'_, '_>) -> Option<Origin> {
        self.state.borrow().origin(object)
    }

    fn kind(&self, object: Borrowed<'_, '_>) -> kinds::Kind {
        self.state.borrow_mut().kind(object)
    }
}

fn place(frame: &Frame<'_>) -> Place {
    let code = frame.code();
    Place {
        file: look::text(code.filename()),
        line: frame.line().unwrap_or(0),
        function: look::text(code.qualname()),
    }
}

/// Makes `recorder` the thread's recorder until dropped.
struct Recording(Option<Rc<Recorder>>);

impl Recording {
    fn start(recorder: Rc<Recorder>) -> Self {
        Self(CURRENT.with(|current| current.replace(Some(recorder))))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let previous = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = previous);
    }
}

/// Learns what is learned once for a process by running Python code: that must not happen while a
/// call is recorded.
fn warm_up(py: Python<'_>) {
    use stator_cpython::heap::{torch, types};
    let class = py.get_type::<pyo3::types::PyType>();
    types::slot(class.as_borrowed(), types::SlotName::GetAttribute);
    torch::get(py);
    stator_cpython::heap::cached::warm_up(py);
    mode::warm_up(py);
    let _ = kinds::is_plain_iterator(&class);
}

/// Builds the tables that recording needs, so that the first call doesn't pay for them.
///
/// # Errors
/// If a module of the standard library lacks what a table names.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    warm_up(py);
    Functions::get(py)?;
    kinds::Kinds::new(py)?;
    crate::check::read_global_state(py).map(drop)
}

/// Creates a recorder for a call of the function with this code object.
fn recorder(py: Python<'_>, root: usize, trace_log: bool) -> PyResult<Rc<Recorder>> {
    Ok(Rc::new(Recorder {
        state: RefCell::new(State::new(py)?),
        functions: Functions::get(py)?,
        stopped: Cell::new(false),
        stop: RefCell::new(None),
        root,
        entered_root: Cell::new(false),
        trace_log,
        suspended_modes: RefCell::new(Vec::new()),
    }))
}
