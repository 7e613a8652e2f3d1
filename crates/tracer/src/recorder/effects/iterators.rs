//! Iterators from outside that a trace advances: one that begins behind an exit in the middle of a `for` takes the
//! loop's iterator over.
//!
//! How far it has come is guarded, and what it goes over is read as if the loop began here. That it's advanced is a write:
//! a replay calls `__next__` as often. Such a trace is for one place in the loop. So a point has some of them at most, and others that
//! go to the loop's next item only, wherever that is.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source, SourceId};

use super::writes::{CONTENTS, MethodCall, POSITION, Part};
use crate::breaks::Reason;
use crate::effects::NEXT;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

/// Iterators of iterators that are taken over are so deep at most.
const DEPTH: usize = 4;

fn refuse(iterator: Borrowed<'_, '_>) -> Stop {
    (Reason::OutsideIterator, heap::type_name(iterator))
}

impl Recorder {
    /// An iterator from outside is about to be advanced: takes it over, or ends the trace.
    pub(in crate::recorder) fn advance_outside(
        &self,
        frame: &Frame<'_>,
        iterator: Borrowed<'_, '_>,
    ) {
        let limit = self.session.limit;
        let point = self.point.borrow();
        let has_room = point.as_ref().is_some_and(|point| point.takes_particular(limit));
        let may_begin = self.takes_iterators.get() && has_room && self.session.is_replayed();
        self.note(frame, |state| state.advance_outside(iterator, may_begin));
    }
}

impl State {
    fn advance_outside(&mut self, iterator: Borrowed<'_, '_>, may_begin: bool) -> Result<(), Stop> {
        let slot = (iterator.as_ptr() as usize, POSITION);
        let source = self.source(iterator).ok_or_else(|| refuse(iterator))?;
        // One that another goes over is that one's.
        let is_within = self.reads.has(&slot);
        if self.written.has(&slot) {
            if is_within || self.is_changed_below(iterator, 0) {
                return Err(refuse(iterator));
            }
        } else {
            if !may_begin || is_within || !self.roots.is_on_stack(iterator) {
                return Err(refuse(iterator));
            }
            self.take_over(source, iterator, 0)?;
        }
        self.wrote(iterator, source, POSITION, || Part::Calls(Vec::new()));
        if let Some(calls) = self.written.calls(&slot) {
            calls.push(MethodCall { method: NEXT.into(), args: Vec::new() });
            // From here on the instruction can't be broken before: the call is noted.
            stator_cpython::ops::count();
        }
        Ok(())
    }

    /// Guards where an iterator stands, and reads what it goes over.
    fn take_over(
        &mut self,
        source: SourceId,
        iterator: Borrowed<'_, '_>,
        depth: usize,
    ) -> Result<(), Stop> {
        let position = iterator::position(iterator).ok_or_else(|| refuse(iterator))?;
        for (index, part) in parts(iterator).into_iter().enumerate() {
            let part = part.as_borrowed();
            let child = self.sources.intern(Source::Iterated { parent: source, index });
            if iterator::repeats(iterator) {
                self.adopt_for(self.moving(), child, part)?;
                continue;
            }
            if iterator::is_known(part) {
                let slot = (part.as_ptr() as usize, POSITION);
                self.adopt_for(self.moving(), child, part)?;
                if depth >= DEPTH || self.written.has(&slot) || !self.reads.first(slot) {
                    return Err(refuse(iterator));
                }
                self.take_over(child, part, depth + 1)?;
                continue;
            }
            let is_plain = match self.kind_alone(part) {
                Kind::List => heap::is_exact_list(part),
                Kind::Dict => heap::is_exact_dict(part),
                Kind::Tuple => true,
                Kind::Constant => part.is_instance_of::<pyo3::types::PyTuple>(),
                _ => false,
            };
            if !is_plain || self.is_changed(part) {
                return Err(refuse(iterator));
            }
            self.adopt_for(self.moving(), child, part)?;
            // Its elements are read, should they not have been so far.
            if self.kind(part) == Kind::Dict {
                self.adopt_dict_for(self.moving(), part)?;
            }
        }
        self.guard(source, GuardKind::IteratorAt(position));
        Ok(())
    }

    /// Whether this trace has changed a container: what is in it isn't what an iterator has found at the start.
    fn is_changed(&self, container: Borrowed<'_, '_>) -> bool {
        let address = container.as_ptr() as usize;
        self.written.has(&(address, CONTENTS)) || self.written.dict(address)
    }

    fn is_changed_below(&self, iterator: Borrowed<'_, '_>, depth: usize) -> bool {
        !iterator::repeats(iterator)
            && (depth > DEPTH
                || parts(iterator).iter().any(|part| {
                    let part = part.as_borrowed();
                    if iterator::is_known(part) {
                        let slot = (part.as_ptr() as usize, POSITION);
                        self.written.has(&slot) || self.is_changed_below(part, depth + 1)
                    } else {
                        self.is_changed(part)
                    }
                }))
    }
}

/// What an iterator goes over.
fn parts<'py>(iterator: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    (0..).map_while(|index| iterator::over(iterator, index)).collect()
}
