//! Outside objects that die while the call goes on.
//!
//! A trace keeps the outside objects alive that it has read, because it knows them by their addresses. Where the
//! call drops the last reference to one, it should be gone, and that shows: in what its finalizer does, and in
//! weak references. So the trace ends there, which lets go of it.
//!
//! Watched are objects with finalizers and what they were found in; and of what frames hold as a trace begins behind a
//! break, all that has a finalizer, a weak reference to it or a suspended generator's `finally` below it.
//!
//! CPython takes a bound method apart as it is called (`__exit__` of a context manager that a `with` block keeps): that it
//! dies there is noticed by nobody, but it owns its receiver no more.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::mortal;
use stator_cpython::object::{self, Borrowed, Object};

use crate::breaks::{Break, Reason};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::State;

impl State {
    /// Takes note of a value that a frame holds as the trace begins, and of what dies with it, if that
    /// would be noticed; whether it would. The trace is about to keep it alive.
    pub(in crate::recorder) fn watch_root(&mut self, value: Borrowed<'_, '_>) -> bool {
        let noticed = mortal::noticed_with(value);
        for object in &noticed {
            let id = self.objects.intern(object.as_borrowed());
            self.mortal.watch(id);
        }
        if noticed.is_empty() && mortal::is_noticed_later(value) {
            let id = self.objects.intern(value);
            self.mortal.watch(id);
        }
        !noticed.is_empty()
    }

    /// Watches exceptions that frames hold as the trace begins, if anything else of theirs is watched: through its traceback
    /// an exception owns what ended frames held.
    pub(in crate::recorder) fn watch_exceptions(&mut self, among: &[Object<'_>]) {
        if self.mortal.all().is_empty() {
            return;
        }
        for exception in among {
            let id = self.objects.intern(exception.as_borrowed());
            self.mortal.watch(id);
        }
    }

    /// How many references to an object are the trace's own.
    fn own_references(&self, object: Borrowed<'_, '_>) -> usize {
        1 + usize::from(self.has_gone_on_in(object))
            + self.inputs.tensors().iter().filter(|input| input.tensor.is(object)).count()
    }

    /// Whether nothing but the trace keeps one of them alive; `taken` says how many references to an object
    /// CPython would have handed on to the function that is called.
    fn has_due_finalizer(&self, py: Python<'_>, taken: impl Fn(Borrowed<'_, '_>) -> usize) -> bool {
        const FEW: usize = 4;
        let watched = || self.mortal.all().iter().map(|id| self.objects.get(py, *id));
        // `gone`: how many of its owners are.
        let is_ownerless = |object: Borrowed<'_, '_>, gone: usize| {
            let left = object::references(object).saturating_sub(gone);
            let own = || self.own_references(object) + taken(object);
            left == 1 || left <= FEW && left == own()
        };
        // By address: another reference would count.
        let parts = |method| {
            let (function, receiver) = heap::method_parts(method);
            [function.as_ptr() as usize, receiver.as_ptr() as usize]
        };
        let gone: SmallVec<[usize; 4]> = watched()
            .filter(|object| mortal::is_taken_apart(*object) && is_ownerless(*object, 0))
            .flat_map(parts)
            .collect();
        let owners_gone = |object: Borrowed<'_, '_>| {
            let address = object.as_ptr() as usize;
            gone.iter().filter(|part| **part == address).count()
        };
        let is_due = |object: &Borrowed<'_, '_>| {
            !mortal::is_taken_apart(*object)
                && is_ownerless(*object, owners_gone(*object))
                && !mortal::is_past_notice(*object)
        };
        // What was watched for the sake of another, which has ended or died, isn't noticed itself.
        watched().filter(is_due).any(mortal::may_be_noticed)
    }
}

impl Recorder {
    /// Whether there are objects to watch.
    #[inline]
    pub(in crate::recorder) fn watches_finalizers(&self) -> bool {
        !self.state.borrow().mortal.all().is_empty()
    }

    /// Why the trace has to end before this instruction: a finalizer should have run by now.
    #[cold]
    pub(in crate::recorder) fn due_finalizer(&self, frame: &Frame<'_>) -> Option<Break> {
        let is_due =
            self.state.borrow().has_due_finalizer(frame.py(), |object| self.taken(frame, object))
                && self.are_linked(frame)
                && self.anatomy(&frame.code())?.is_boundary(frame.unit());
        is_due.then(|| Break {
            reason: Reason::OutsideWrite,
            detail: "the last reference to an object is gone whose death is noticed".into(),
            stack: self.stack(frame),
        })
    }

    /// How often an object is among the operands of the calls around a frame: while a call is recorded
    /// they stay on the callers' stacks.
    fn taken(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>) -> usize {
        let Some(mut callers) = self.frames_to(frame) else { return 0 };
        callers.pop();
        let taken = callers.iter().map(|caller| {
            let linked = self.anatomy(&caller.code()).and_then(|code| self.links.of(caller, &code));
            let operands = linked.map_or(0, |linked| linked.taken);
            let stack = caller.stack().iter().rev().take(operands);
            stack.filter(|value| value.is_some_and(|value| value.is(object))).count()
        });
        taken.sum()
    }

    /// Lets go of what a weak reference refers to, if nothing but the trace keeps it alive.
    pub(in crate::recorder) fn release_referent(
        &self,
        frame: &Frame<'_>,
        reference: Borrowed<'_, '_>,
    ) {
        let Ok(reference) = reference.cast::<PyWeakrefReference>() else { return };
        let Some(referent) = reference.upgrade() else { return };
        let is_kept = {
            let state = self.state.borrow();
            let kept = state.source(referent.as_borrowed());
            // `referent` is one more.
            let own = || state.own_references(referent.as_borrowed()) + 1;
            kept.is_some() && object::references(referent.as_borrowed()) == own()
        };
        if is_kept {
            drop(referent);
            let detail = "a weak reference to what nothing refers to any more";
            self.stop(frame, Reason::OutsideWrite, detail);
        }
    }
}
