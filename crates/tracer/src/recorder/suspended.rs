//! Generators that the trace made: they can't be made again in the middle of their code. Where one is
//! alive at a graph break, the next trace ends before the call that makes it: then it's an outside
//! object, and only its steps run natively.

use pyo3::prelude::*;
use pyo3::types::{PyWeakref, PyWeakrefMethods, PyWeakrefReference};
use stator_cpython::frame::Frame;
use stator_cpython::object::Object;

use super::Recorder;
use crate::breaks::Break;
use crate::resume::point::Spot;

/// A generator, and where it was made.
pub(super) struct Suspended {
    generator: Py<PyWeakref>,
    made: Spot,
}

impl Recorder {
    /// The instruction that `frame` stands at has made a generator.
    pub(super) fn note_generator(&self, frame: &Frame<'_>, generator: &Object<'_>) {
        if self.is_stopped() || !self.are_linked(frame) {
            return;
        }
        let spot = self.frames_to(frame).and_then(|chain| Spot::of(&chain));
        let reference = PyWeakrefReference::new(generator);
        if let (Some(made), Ok(reference)) = (spot, reference) {
            let generator = reference.into_any().cast_into::<PyWeakref>();
            let Ok(generator) = generator.map(Bound::unbind) else { return };
            self.suspended.borrow_mut().push(Suspended { generator, made });
        }
    }

    /// Marks the call that made a generator which is alive; false: there is none.
    pub(super) fn avoid_generator(&self, py: Python<'_>, stop: &Break) -> bool {
        let suspended = self.suspended.take();
        let is_alive = |known: &&Suspended| {
            let generator = known.generator.bind(py).upgrade();
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
