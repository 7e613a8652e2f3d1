//! Generators that the trace made. One that is suspended at a graph break is made again: its function
//! is called, and the new generator moved to where the other one stands. Where that can't be done, the
//! next trace ends before the call that makes it: then it's an outside object from the beginning.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::generator::{self, Place};
use stator_cpython::heap::mortal;
use stator_cpython::heap::weak::Liveness;
use stator_cpython::object::{Borrowed, Object};

use super::outcome::{Finish, Made};
use crate::breaks::{Break, Reason};
use crate::frames::anatomy::Anatomy;
use crate::recipe::{Generator, Recipe, RecipeId};
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::resume::point::Spot;

/// A generator, and where it was made.
pub(in crate::recorder) struct Suspended {
    /// It alone, held weakly in a way that [`mortal`] doesn't take for somebody who notices its death.
    generator: Liveness,
    address: usize,
    made: Spot,
}

impl Finish<'_> {
    /// The recipe of a generator.
    pub(in crate::recorder) fn generator(&mut self, object: Borrowed<'_, '_>) -> Made<Recipe> {
        let refuse = || (Reason::Result, heap::type_name(object));
        generator::look(object, |frame, place| {
            let (function, code) = (frame.function(), frame.code());
            let has_own_code = heap::function_code(function)
                .is_some_and(|own| own.as_ptr() == code.object().as_ptr());
            if !has_own_code || !has_names_of(object, function) {
                return Err(refuse());
            }
            self.standing_still(&frame, place, false)
        })
        .unwrap_or_else(|| Err(refuse()))
    }

    /// The recipe of a generator that stands where one from outside has come to; `None`: it has ended.
    pub(in crate::recorder) fn rested(
        &mut self,
        object: Borrowed<'_, '_>,
    ) -> Made<Option<RecipeId>> {
        if generator::has_ended(object) {
            return Ok(None);
        }
        let refuse = || (Reason::Result, heap::type_name(object));
        // What was dead when the trace began wasn't looked at, unless somebody notices when it is let go of.
        let made = generator::look(object, |frame, place| self.standing_still(&frame, place, true));
        let made = made.unwrap_or_else(|| Err(refuse()))?;
        Ok(Some(self.recipes.push(made)))
    }

    /// The recipe of a generator that stands as this one does; `leaves_dead`: without its dead fast locals whose end nobody
    /// notices.
    fn standing_still(
        &mut self,
        frame: &Frame<'_>,
        place: Place,
        leaves_dead: bool,
    ) -> Made<Recipe> {
        let code = frame.code();
        let refuse = || (Reason::Result, heap::name_of(frame.function()));
        let anatomy = Anatomy::of(&code).ok_or_else(refuse)?;
        let made = self.recipe(frame.function())?;
        let mut slots = Vec::new();
        for slot in 0..code.nlocalsplus() {
            let is_live = anatomy.is_live_behind(place.unit, slot);
            let is_kept = |held: &Borrowed<'_, '_>| {
                is_live || !leaves_dead || !mortal::noticed_with(*held).is_empty()
            };
            let held = frame.local(slot).filter(is_kept);
            match held.map(|value| self.try_recipe(value)).transpose() {
                Ok(recipe) => slots.push(recipe),
                Err(_) if !is_live => slots.push(None),
                Err(stop) => return Err(stop),
            }
        }
        for value in frame.stack() {
            slots.push(value.map(|value| self.recipe(value)).transpose()?);
        }
        self.keep(code.object());
        let slots = slots.into();
        Ok(Recipe::Generator(Box::new(Generator { function: made, place, slots })))
    }
}

/// Whether a generator has the names of its function: a program may change them.
fn has_names_of(generator: Borrowed<'_, '_>, function: Borrowed<'_, '_>) -> bool {
    ["__name__", "__qualname__"].iter().all(|name| {
        let [own, other] = [generator, function].map(|object| object.getattr(*name));
        own.is_ok_and(|own| other.is_ok_and(|other| own.is(&other)))
    })
}

impl Recorder {
    /// The instruction that `frame` stands at has made a generator.
    pub(in crate::recorder) fn note_generator(&self, frame: &Frame<'_>, generator: &Object<'_>) {
        if self.is_stopped() || !self.are_linked(frame) {
            return;
        }
        let spot = self.frames_to(frame).and_then(|chain| Spot::of(&chain));
        let mut alone = Liveness::new();
        if let Some(made) = spot
            && alone.add(generator.as_borrowed()).is_ok()
        {
            let address = generator.as_ptr() as usize;
            self.suspended.borrow_mut().push(Suspended { generator: alone, address, made });
        }
    }

    /// Marks the call that made a generator which is alive; false: there is none.
    pub(in crate::recorder) fn avoid_generator(&self, py: Python<'_>, stop: &Break) -> bool {
        let suspended = self.suspended.take();
        let is_alive = |known: &&Suspended| {
            let generator = known.generator.get(py, known.address);
            let frame = generator.and_then(|generator| generator.getattr("gi_frame").ok());
            frame.is_some_and(|frame| !frame.is_none())
        };
        let Some(first) = suspended.iter().find(is_alive) else { return false };
        self.session.points.mark_spot(first.made, stop.clone());
        if self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        true
    }
}
