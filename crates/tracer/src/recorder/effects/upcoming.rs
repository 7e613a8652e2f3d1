//! Iterators from outside that a trace advances a few times, wherever they stand.
//!
//! What such an iterator gives next is read as the trace begins, like an item of a container, and so is whether it ends:
//! where it stands isn't guarded, so one trace serves all rounds of a loop in which the graph breaks. What an iterator
//! goes over is guarded to differ from all that the trace writes. That it's advanced is a write, as for one that is taken
//! over ([`super::iterators`]).

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFrozenSet, PyRange, PySet, PyString, PyTuple};
use stator_cpython::heap::iterator::{self, Ahead};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{Gives, GuardKind, Source, SourceId};

use super::iterators::{MOST, gone_over, parts, position_of, refuse};
use crate::recorder::notes::effects::{CONTENTS, KEYS, POSITION};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::{Foreseen, Use};
use crate::recorder::notes::state::{State, Stop};

/// Whether a container holds the same for good.
fn is_immutable(container: Borrowed<'_, '_>) -> bool {
    container.is_instance_of::<PyTuple>()
        || container.is_exact_instance_of::<PyFrozenSet>()
        || container.is_exact_instance_of::<PyRange>()
        || container.is_instance_of::<PyString>()
        || container.is_instance_of::<PyBytes>()
}

/// So many items of one iterator are known at most: a longer loop goes on in the next trace, which is for any place in it.
pub(super) const MOST_ITEMS: usize = 24;

impl State {
    /// How many items the trace has taken from an iterator; `None`: it isn't one of these.
    pub(super) fn foreseen(&self, iterator: Borrowed<'_, '_>) -> Option<usize> {
        self.foreseen.get(&(iterator.as_ptr() as usize)).map(|foreseen| foreseen.items)
    }

    /// An iterator is about to be advanced, which has been read as far as that: the item it will give. `None`: it ends.
    pub(super) fn foresee<'py>(
        &mut self,
        source: SourceId,
        iterator: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>, Stop> {
        let address = iterator.as_ptr() as usize;
        let known = self.foreseen.get(&address).copied();
        let is_free = known.is_some() || !self.is_anybodys(iterator);
        let may = is_free && !self.enclosed.is_on() && self.may_foresee(iterator, &mut Vec::new());
        let ahead = if may { iterator::ahead(iterator, 0) } else { Ahead::Unknown };
        // One that has ended stays so, as long as nobody changes what it went over.
        let goes_on_again = known.is_some_and(|known| known.ended) && ahead != Ahead::End;
        if ahead == Ahead::Unknown || goes_on_again || self.program.is_some() {
            return Err(refuse(iterator));
        }
        let mut foreseen = match known {
            Some(known) => known,
            None => {
                self.read_below(source, iterator)?;
                let parts = iterator::parts(iterator);
                Foreseen { guard: self.guards.len(), parts, ..Foreseen::default() }
            }
        };
        let item = match ahead {
            Ahead::Item => Some(self.upcoming(source, iterator, foreseen.items)?),
            _ => None,
        };
        foreseen.ended = item.is_none();
        foreseen.items += usize::from(item.is_some());
        let (items, ends) = (foreseen.items, foreseen.ended);
        let kind = GuardKind::Gives(Gives { items, ends, parts: foreseen.parts });
        match known {
            Some(known) => self.guards[known.guard].kind = kind,
            None => {
                foreseen.guard = self.guards.len();
                self.guard(source, kind);
            }
        }
        self.foreseen.insert(address, foreseen);
        self.note_advance(iterator, source);
        Ok(item)
    }

    /// Whether the trace knows an iterator as one that another goes over, or has taken it over.
    fn is_anybodys(&self, iterator: Borrowed<'_, '_>) -> bool {
        let slot = position_of(iterator);
        self.reads.has(&slot) || self.written.has(&slot)
    }

    /// Whether what an iterator gives can be read: nothing that it goes over was changed by this trace, and no other goes
    /// over it. `within`: the iterators met so far that another goes over; none may be met twice.
    fn may_foresee(&mut self, iterator: Borrowed<'_, '_>, within: &mut Vec<usize>) -> bool {
        iterator::is_known(iterator)
            && gone_over(iterator).iter().all(|part| {
                let part = part.as_borrowed();
                if !iterator::is_known(part) {
                    return self.is_left_alone(part);
                }
                let address = part.as_ptr() as usize;
                let is_advanced = self.written.has(&position_of(part));
                if is_advanced || within.len() >= MOST || within.contains(&address) {
                    return false;
                }
                within.push(address);
                self.may_foresee(part, within)
            })
    }

    /// Whether a container is one whose items are found where they are, and this trace has changed nothing of it.
    fn is_left_alone(&mut self, container: Borrowed<'_, '_>) -> bool {
        let is_hidden = self.enclosed.hides(container.as_ptr() as usize);
        let is_set = || container.is_exact_instance_of::<PySet>();
        is_immutable(container)
            || !is_hidden
                && (is_set() || self.is_plain_container(container))
                && !self.is_changed(container)
    }

    /// Knows what an iterator goes over: writes to that are told from others. What it holds stays unread.
    fn read_below(&mut self, source: SourceId, iterator: Borrowed<'_, '_>) -> Result<(), Stop> {
        for (index, part) in gone_over(iterator).into_iter().enumerate() {
            let part = part.as_borrowed();
            let is_immutable = is_immutable(part);
            // The iterator's own type says it, but for sets.
            let is_known = !part.is_exact_instance_of::<PyFrozenSet>();
            if is_immutable && is_known && !iterator::wraps(iterator) {
                continue;
            }
            let child = self.sources.intern(Source::Iterated { parent: source, index });
            if is_immutable {
                // Another part may be an iterator, or be written to.
                self.guard_type(child, part);
                continue;
            }
            let used = Use { only_adds: true, ..self.moving() };
            self.adopt_for(used, child, part)?;
            if self.source(part).is_none() {
                return Err(refuse(iterator));
            }
            let address = part.as_ptr() as usize;
            if iterator::is_known(part) {
                self.reads.first(position_of(part));
                let gives = Gives { items: 0, ends: false, parts: iterator::parts(part) };
                self.guard(child, GuardKind::Gives(gives));
                self.read_below(child, part)?;
            } else {
                let is_dict = self.kind_alone(part) == Kind::Dict;
                self.reads.first((address, if is_dict { KEYS } else { CONTENTS }));
            }
        }
        Ok(())
    }

    /// The next item, which is the one behind `passed` others since the trace began.
    fn upcoming<'py>(
        &mut self,
        source: SourceId,
        iterator: Borrowed<'_, 'py>,
        passed: usize,
    ) -> Result<Object<'py>, Stop> {
        let own = |state: &mut Self| {
            let item = iterator::upcoming(iterator, 0).ok_or_else(|| refuse(iterator))?;
            let source = state.sources.intern(Source::Upcoming { parent: source, index: passed });
            if iterator::counts(iterator) && state.policy.dynamic != Some(false) {
                // The next round has another.
                return Ok(state.adopt_number(source, item.as_borrowed(), false));
            }
            state.adopt_upcoming(source, item)
        };
        let mut items = Vec::new();
        if iterator::gives_entries(iterator) {
            let key = iterator::upcoming_key(iterator, 0).ok_or_else(|| refuse(iterator))?;
            let of = Source::UpcomingKey { parent: source, index: passed };
            let of = self.sources.intern(of);
            items.push(self.adopt_upcoming(of, key)?);
            items.push(own(self)?);
        } else if iterator::combines(iterator) {
            if iterator::counts(iterator) {
                items.push(own(self)?);
            }
            for (index, part) in parts(iterator).into_iter().enumerate() {
                let child = self.sources.intern(Source::Iterated { parent: source, index });
                items.push(self.upcoming(child, part.as_borrowed(), passed)?);
            }
        } else {
            return own(self);
        }
        let tuple = PyTuple::new(iterator.py(), items).map_err(|_| refuse(iterator))?.into_any();
        self.set_fresh(tuple.as_borrowed());
        Ok(tuple)
    }

    /// An item is found where an iterator gives it: a number that is to be a symbol gets an object of its own.
    fn adopt_upcoming<'py>(
        &mut self,
        source: SourceId,
        item: Object<'py>,
    ) -> Result<Object<'py>, Stop> {
        let used = self.moving();
        if let Some(own) = self.adopt_symbolic(used, source, item.as_borrowed(), true)? {
            return Ok(own);
        }
        if self.adopt_for(used, source, item.as_borrowed()).is_err() {
            self.carry(source, item.as_borrowed());
        }
        Ok(item)
    }

    /// Fails where code within a node has changed what an iterator goes over: a replay advances it behind that.
    pub(in crate::recorder) fn check_foreseen(&self) -> Result<(), Stop> {
        if !self.enclosed.is_watching() {
            return Ok(());
        }
        let hides =
            |address: usize| self.enclosed.hides(address) || self.enclosed.has_changed(address);
        let slots = [POSITION, CONTENTS, KEYS];
        let read = self.reads.slots().filter(|(_, slot)| slots.contains(slot));
        if !self.foreseen.is_empty() && read.into_iter().any(|(address, _)| hides(*address)) {
            let detail = "an iterator, or what it goes over, in code that is one node of the graph";
            return Err((crate::breaks::Reason::OutsideWrite, detail.into()));
        }
        Ok(())
    }
}
