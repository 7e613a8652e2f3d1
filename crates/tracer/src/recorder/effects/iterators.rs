//! Iterators from outside that a trace advances: one that begins behind an exit in the middle of a `for` takes the
//! loop's iterator over.
//!
//! How far it has come is guarded, and what it goes over is read as if the loop began here. That it's advanced is a write:
//! a replay calls `__next__` as often. Such a trace is for one place in the loop. So a point has some of them at most, and others that
//! go to the loop's next item only, wherever that is.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_cpython::frame::Frame;
use stator_cpython::heap::{dict, iterator};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source, SourceId};

use super::upcoming::MOST_ITEMS;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::effects::{CONTENTS, POSITION};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::resume::point::takes_particular;

/// An iterator that is taken over goes over so many others at most.
pub(super) const MOST: usize = 8;

pub(super) fn refuse(iterator: Borrowed<'_, '_>) -> Stop {
    (Reason::OutsideIterator, heap::type_name(iterator))
}

impl Recorder {
    /// An iterator from outside is about to be advanced: reads what comes, takes it over, or ends the trace. What stands
    /// for the item that it gives, if something does.
    pub(super) fn take_over<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let has_room = || self.has_room_for_particular();
        let takes_steps = self.session.takes_steps();
        let may_begin = self.takes_iterators.get() && takes_steps && has_room();
        self.note(frame, |state| {
            let source = state.source(iterator).ok_or_else(|| refuse(iterator))?;
            let known = state.foreseen(iterator);
            let is_taken = known.is_none() && state.written.has(&position_of(iterator));
            if is_taken || may_begin && known.is_none() && state.may_begin(iterator) {
                return state.advance_outside(source, iterator, may_begin).map(|()| None);
            }
            // A trace that goes on is for few places in the loop.
            let goes_on = |items| items == 0 || items < MOST_ITEMS && has_room();
            if !takes_steps || !known.is_none_or(goes_on) {
                return Err(refuse(iterator));
            }
            state.foresee(source, iterator)
        })
        .flatten()
    }

    /// Whether there is room for another trace where this one began that is for one place in a loop.
    pub(super) fn has_room_for_particular(&self) -> bool {
        match &*self.point.borrow() {
            Some(point) => point.takes_particular(self.session.limit),
            None => takes_particular(self.session.at_entry, self.session.limit),
        }
    }
}

impl State {
    /// Whether an iterator can be taken over.
    fn may_begin(&mut self, iterator: Borrowed<'_, '_>) -> bool {
        let is_within = self.reads.has(&position_of(iterator));
        !is_within
            && self.roots.is_on_stack(iterator)
            && self.may_take_over(iterator, &mut Vec::new())
    }

    fn advance_outside(
        &mut self,
        source: SourceId,
        iterator: Borrowed<'_, '_>,
        may_begin: bool,
    ) -> Result<(), Stop> {
        let slot = position_of(iterator);
        // One that another goes over is that one's.
        let is_within = self.reads.has(&slot);
        if self.written.has(&slot) {
            if is_within || self.enclosed.is_on() || self.is_changed_below(iterator) {
                return Err(refuse(iterator));
            }
        } else {
            if !may_begin {
                return Err(refuse(iterator));
            }
            self.take_over(source, iterator)?;
        }
        self.note_advance(iterator, source);
        Ok(())
    }

    /// Whether an iterator's state can be read, and this trace has changed nothing of what it goes over. `within`: the
    /// iterators met so far that another goes over; none may be met twice.
    fn may_take_over(&mut self, iterator: Borrowed<'_, '_>, within: &mut Vec<usize>) -> bool {
        iterator::position(iterator).is_some()
            && gone_over(iterator).iter().all(|part| {
                let part = part.as_borrowed();
                if !iterator::is_known(part) {
                    return self.is_plain_container(part) && !self.is_changed(part);
                }
                let slot = position_of(part);
                let is_others = self.written.has(&slot) || self.reads.has(&slot);
                if is_others || within.len() >= MOST || within.contains(&slot.0) {
                    return false;
                }
                within.push(slot.0);
                self.may_take_over(part, within)
            })
    }

    pub(super) fn is_plain_container(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.kind_alone(object) {
            // An iterator of C code's looks into the storage of a subclass, too.
            Kind::List => true,
            Kind::Dict => heap::is_exact_dict(object) || dict::is_exact_ordered(object),
            Kind::Tuple => true,
            Kind::Constant => object.is_instance_of::<PyTuple>(),
            _ => false,
        }
    }

    /// Guards where an iterator stands, and reads what it goes over.
    fn take_over(&mut self, source: SourceId, iterator: Borrowed<'_, '_>) -> Result<(), Stop> {
        let position = iterator::position(iterator).ok_or_else(|| refuse(iterator))?;
        self.guard(source, GuardKind::IteratorAt(position));
        for (index, part) in parts(iterator).into_iter().enumerate() {
            let part = part.as_borrowed();
            let child = self.sources.intern(Source::Iterated { parent: source, index });
            self.adopt_for(self.moving(), child, part)?;
            if iterator::repeats(iterator) {
                continue;
            }
            if iterator::is_known(part) {
                self.reads.first(position_of(part));
                self.take_over(child, part)?;
            } else if self.kind(part) == Kind::Dict {
                // Elements of others have been read by now, should they not have been so far.
                self.adopt_dict_for(self.moving(), part)?;
            }
        }
        Ok(())
    }

    /// Whether this trace has changed a container: what is in it isn't what an iterator has found at the start.
    pub(super) fn is_changed(&self, container: Borrowed<'_, '_>) -> bool {
        let address = container.as_ptr() as usize;
        self.written.has(&(address, CONTENTS)) || self.written.dict(address)
    }

    fn is_changed_below(&self, iterator: Borrowed<'_, '_>) -> bool {
        gone_over(iterator).iter().any(|part| {
            let part = part.as_borrowed();
            if iterator::is_known(part) {
                self.written.has(&position_of(part)) || self.is_changed_below(part)
            } else {
                self.is_changed(part)
            }
        })
    }
}

/// The slot of how far an iterator has come.
pub(super) fn position_of(iterator: Borrowed<'_, '_>) -> (usize, usize) {
    (iterator.as_ptr() as usize, POSITION)
}

/// The containers and iterators that an iterator goes over. `repeat` goes over nothing: its part is what it gives.
pub(super) fn gone_over<'py>(iterator: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if iterator::repeats(iterator) { Vec::new() } else { parts(iterator) }
}

/// What an iterator holds.
pub(super) fn parts<'py>(iterator: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    (0..).map_while(|index| iterator::over(iterator, index)).collect()
}
