//! `fullgraph=True`: the call ends at its first break, with an exception that is raised in the place of
//! the breaking instruction.
//!
//! Where nothing of the instruction was executed, nothing is: [`ops::refuse`] makes everything that the
//! site would still do raise. Where something was (C code called back what can't be followed, an
//! operation raised and the program goes on), the exception is raised where recording would go on.
//!
//! It isn't an `Exception`, so only the program's `finally`, `with` and bare `except` see it. At the
//! compiled function's border it becomes a `stator.GraphBreakError`; also if the program has caught it.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use stator_bytecode::Meaning;
use stator_cpython::Raised;
use stator_cpython::frame::Frame;
use stator_cpython::object::Object;
use stator_cpython::ops::{self, Refused};

use crate::breaks::{Break, Reason};
use crate::recorder::Recorder;

pyo3::create_exception!(
    stator._stator,
    GraphBreak,
    PyBaseException,
    "Ends a call under fullgraph=True at its first graph break."
);

impl Recorder {
    /// Under `fullgraph`, ends the call instead of the trace; false where breaks are none.
    pub(in crate::recorder) fn abandon(&self, frame: &Frame<'_>, stop: &Break) -> bool {
        let is_none = stop.reason == Reason::Told && self.session.program.is_none();
        if !self.session.fullgraph || is_none {
            return false;
        }
        let py = frame.py();
        self.stopped.set(true);
        self.session.broke(stop.clone());
        drop(self.gc.take());
        // While an exception is set no other can be made.
        if self.is_untouched(frame) && !PyErr::occurred(py) {
            self.resume.set(frame.id());
            ops::refuse(exception(py, stop.to_string()));
        } else {
            let chain = self.markable(frame);
            let innermost = chain.as_ref().and_then(|chain| chain.last());
            self.resume.set(innermost.map_or(0, Frame::id));
            *self.abandoned.borrow_mut() = Some(stop.to_string());
        }
        true
    }

    /// A frame leaves, or the call has ended: what is done now isn't part of the instruction any more.
    #[cold]
    pub(in crate::recorder) fn end_refusal(&self, py: Python<'_>) {
        match ops::allow(py) {
            Refused::Unraised(exception) => {
                *self.abandoned.borrow_mut() = Some(exception.to_string());
            }
            // If the program catches it, it goes on natively.
            Refused::Raised => self.resume.set(0),
            Refused::No => {}
        }
    }

    /// Whether the exception is raised now, before an instruction of this frame.
    #[cold]
    pub(in crate::recorder) fn raises_break(&self, frame: &Frame<'_>) -> bool {
        let py = frame.py();
        let refused = ops::allow(py);
        if self.resume.get() != frame.id() {
            return false;
        }
        let exception = match (refused, self.abandoned.take()) {
            (Refused::Unraised(exception), _) => exception,
            (Refused::No, Some(text)) => exception(py, text),
            // The program has caught it: it goes on natively.
            (Refused::Raised, _) => {
                self.resume.set(0);
                return false;
            }
            (Refused::No, None) => return false,
        };
        self.resume.set(0);
        let Raised = Raised::set(py, PyErr::from_value(exception));
        true
    }
}

/// Whether this instruction says which exception is being handled, or is on the way to one that does.
/// They can't fail, so the code's handlers take it that they all have been executed.
pub(in crate::recorder) fn changes_handled(frame: &Frame<'_>, meaning: Meaning) -> bool {
    match meaning {
        Meaning::BeginHandling | Meaning::EndHandling => true,
        Meaning::Copy | Meaning::Swap => {
            let next = frame.code().unit(frame.unit() + 1);
            next.is_some_and(|next| next.meaning() == Meaning::EndHandling)
        }
        _ => false,
    }
}

fn exception(py: Python<'_>, text: String) -> Object<'_> {
    GraphBreak::new_err(text).into_value(py).into_bound(py).into_any()
}
