//! Generators that existed before the trace began and stand still: the trace goes on in their frames.
//!
//! Where such a generator stands is guarded, and what its slots hold is found as if they were variables of the call; only
//! what is dead there isn't looked at. From then on it's advanced like one that the trace has made, also by a `zip`. A
//! replay moves it to where the trace has left it, and runs none of its code.

use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::iterator;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{generator, ops};
use stator_guards::{GuardKind, Rests, Source, SourceId};

use super::iterators::parts;
use crate::frames::anatomy::Anatomy;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::effects::{POSITION, Part};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::Adopted;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::reads::names::variadic_slots;

impl Recorder {
    /// Whether the trace may advance an iterator as it likes: it has made it, or goes on in a generator from outside, from
    /// here on at the latest.
    pub(in crate::recorder) fn may_advance(
        &self,
        frame: &Frame<'_>,
        iterator: Borrowed<'_, '_>,
    ) -> bool {
        if self.origin(iterator) == Some(Origin::Fresh) {
            return true;
        }
        if self.is_stopped() || !self.session.takes_steps() {
            return false;
        }
        // Behind its first item it's another one each time.
        let Some(started) = is_started(iterator) else { return self.has_gone_on_in(iterator) };
        if started && !self.has_room_for_particular() && !self.has_gone_on_in(iterator) {
            return false;
        }
        let begun = self.note(frame, |state| state.go_on_in(iterator));
        if begun == Some(Some(true)) {
            for generator in generators_of(iterator) {
                self.goes_on_in(frame, &generator);
            }
        }
        begun.is_some_and(|begun| begun.is_some())
    }

    /// Goes on in the generators that C code is given, if it can.
    pub(in crate::recorder) fn go_on_in_all(&self, frame: &Frame<'_>, args: &[Borrowed<'_, '_>]) {
        for arg in args {
            if self.kind(*arg) == Kind::Iterator {
                self.may_advance(frame, *arg);
            }
        }
    }

    fn has_gone_on_in(&self, generator: Borrowed<'_, '_>) -> bool {
        self.state.borrow().has_gone_on_in(generator)
    }
}

impl State {
    /// The trace goes on in a generator: whether it hasn't before. `None`: it can't.
    fn go_on_in(&mut self, generator: Borrowed<'_, '_>) -> Result<Option<bool>, Stop> {
        let Some(source) = self.source(generator) else { return Ok(None) };
        if self.has_gone_on_in(generator) {
            return Ok(Some(false));
        }
        if self.enclosed.is_on() || self.program.is_some() {
            return Ok(None);
        }
        let Some(rested) = generator::rested(generator) else {
            return self.go_on_in_all_of(source, generator);
        };
        let Some(function) = generator::function(generator) else { return Ok(None) };
        let Some(live) = live_slots(function.as_borrowed(), rested) else { return Ok(None) };
        let generator::Rested { unit, started, slots, bound } = rested;
        let live = live | self.watch_slots(generator, bound);
        let bound = bound & live;
        self.guard(source, GuardKind::GeneratorAt(Rests { unit, started, slots, live, bound }));
        self.know_function_of(source, function.as_borrowed());
        for index in (0..slots).filter(|slot| bound >> slot & 1 == 1) {
            let Some(held) = generator::slot(generator, index) else { return Ok(None) };
            let child = self.sources.intern(Source::GeneratorSlot { parent: source, index });
            let held = held.as_borrowed();
            if self.adopt_for(Use::default(), child, held).is_err() {
                if self.kind_alone(held) == Kind::Constant {
                    return Ok(None);
                }
                self.carry(child, held);
            }
        }
        if generator::handles(generator) {
            // Its death will be noticed, once it has begun.
            let id = self.objects.intern(generator);
            self.watch_within(id, source);
        }
        self.wrote(generator, source, POSITION, || Part::Generator);
        Ok(Some(true))
    }

    /// Watches what the slots of a generator hold, as if they were variables of the call: which of them hold what dies with the
    /// generator and is noticed then, be the variable dead or not.
    fn watch_slots(&mut self, generator: Borrowed<'_, '_>, bound: u64) -> u64 {
        let mut noticed = 0;
        for index in (0..u64::BITS as usize).filter(|slot| bound >> slot & 1 == 1) {
            let Some(held) = generator::slot(generator, index) else { continue };
            noticed |= u64::from(self.watch_root(held.as_borrowed())) << index;
        }
        noticed
    }

    /// As [`State::go_on_in`], of a `zip` over generators: what it holds doesn't change.
    fn go_on_in_all_of(
        &mut self,
        source: SourceId,
        zip: Borrowed<'_, '_>,
    ) -> Result<Option<bool>, Stop> {
        let Some(position) = iterator::position(zip) else { return Ok(None) };
        self.guard(source, GuardKind::IteratorAt(position));
        for (index, part) in parts(zip).into_iter().enumerate() {
            let child = self.sources.intern(Source::Iterated { parent: source, index });
            let part = part.as_borrowed();
            self.adopt_for(Use::default(), child, part)?;
            if self.go_on_in(part)?.is_none() {
                return Ok(None);
            }
        }
        self.wrote(zip, source, POSITION, || Part::Advanced(0));
        Ok(Some(true))
    }

    /// The function of a generator: often one that was made for this generator alone, so what it's made of is guarded.
    fn know_function_of(&mut self, generator: SourceId, function: Borrowed<'_, '_>) {
        let source = self.sources.intern(Source::GeneratorFunction(generator));
        if !self.first_seen(source) {
            return;
        }
        match self.objects.adopt(function, source) {
            Adopted::New(_) => {
                self.guard_type(source, function);
                self.guard_function_parts(source, function);
            }
            Adopted::Before(known) => self.guard(source, GuardKind::SameAs(known)),
            Adopted::Identical(id) => self.guard(source, GuardKind::Is(id)),
        }
    }
}

/// The slots of a generator whose contents matter to how it goes on: its stack, and what isn't dead of its fast locals.
/// `None`: nobody knows, or what it was called with would be taken for the trace's own.
fn live_slots(function: Borrowed<'_, '_>, rested: generator::Rested) -> Option<u64> {
    let code = value(function, Field::Code)?;
    let code = Code::of(code.as_borrowed())?;
    if !rested.started && !variadic_slots(&code).is_empty() {
        return None;
    }
    let anatomy = Anatomy::of(&code)?;
    let is_live =
        |slot: &usize| *slot >= code.nlocalsplus() || anatomy.is_live_behind(rested.unit, *slot);
    Some((0..rested.slots).filter(is_live).fold(0, |bits, slot| bits | 1 << slot))
}

/// Whether a generator, or one of those that a `zip` goes over, has given anything. `None`: it's something else, or doesn't
/// stand still.
fn is_started(iterator: Borrowed<'_, '_>) -> Option<bool> {
    if let Some(rested) = generator::rested(iterator) {
        return Some(rested.started);
    }
    let parts = if iterator::is_zip(iterator) { parts(iterator) } else { Vec::new() };
    let started = parts.iter().map(|part| is_started(part.as_borrowed()));
    let started: Vec<bool> = started.collect::<Option<_>>()?;
    (!started.is_empty()).then(|| started.contains(&true))
}

/// A generator, or those that a `zip` goes over.
fn generators_of<'py>(iterator: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if ops::is_generator(iterator) {
        return vec![iterator.to_owned()];
    }
    parts(iterator).iter().flat_map(|part| generators_of(part.as_borrowed())).collect()
}
