//! Outside objects that die while the call goes on.
//!
//! A trace keeps the outside objects alive that it has read, because it knows them by their addresses. Where the
//! call drops the last reference to one, it should be gone, and that shows: in what its finalizer does, and in
//! weak references. So the trace ends there, which lets go of it.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{self, Borrowed};
use stator_guards::ObjectId;

use super::Recorder;
use super::state::State;
use crate::breaks::{Break, Reason};

impl State {
    /// Takes note of an outside object whose death would be noticed.
    #[inline]
    pub(super) fn watch_finalizer(&mut self, object: Borrowed<'_, '_>, id: ObjectId) {
        if types::has_finalizer(object.get_type().as_borrowed()) {
            self.finalized.push(id);
        }
    }

    /// Whether nothing but the trace keeps one of them alive.
    fn has_due_finalizer(&self, py: Python<'_>) -> bool {
        let due = |id: &ObjectId| object::references(self.objects.get(py, *id)) == 1;
        self.finalized.iter().any(due)
    }
}

impl Recorder {
    /// Whether there are objects to watch.
    #[inline]
    pub(super) fn watches_finalizers(&self) -> bool {
        !self.state.borrow().finalized.is_empty()
    }

    /// Why the trace has to end before this instruction: a finalizer should have run by now.
    #[cold]
    pub(super) fn due_finalizer(&self, frame: &Frame<'_>) -> Option<Break> {
        let is_due = self.state.borrow().has_due_finalizer(frame.py())
            && self.are_linked(frame)
            && self.anatomy(&frame.code())?.is_boundary(frame.unit());
        is_due.then(|| Break {
            reason: Reason::OutsideWrite,
            detail: "the last reference to an object with a finalizer is gone".into(),
            stack: self.stack(frame),
        })
    }

    /// Lets go of what a weak reference refers to, if nothing but the trace keeps it alive.
    pub(super) fn release_referent(&self, frame: &Frame<'_>, reference: Borrowed<'_, '_>) {
        let Ok(reference) = reference.cast::<PyWeakrefReference>() else { return };
        let Some(referent) = reference.upgrade() else { return };
        let is_kept = self.state.borrow().source(referent.as_borrowed()).is_some();
        // By the trace's table, and by `referent`.
        if is_kept && object::references(referent.as_borrowed()) == 2 {
            drop(referent);
            let detail = "a weak reference to what nothing refers to any more";
            self.stop(frame, Reason::OutsideWrite, detail);
        }
    }
}
