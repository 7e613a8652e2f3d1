//! Exceptions that can't be made again: their tracebacks speak of frames that have left, or C code keeps
//! in them what nobody sees. Where one is alive at a graph break, the next trace ends before the
//! instruction that it came out of: then it is an outside object, and all but that instruction is
//! traced.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::Object;

use super::outcome::End;
use crate::breaks::{Break, Reason};
use crate::recorder::Recorder;
use crate::recorder::notes::state::{State, Stop};
use crate::resume::point::{Spot, handled_beyond};

/// How far a traceback is followed.
const LONGEST: usize = 64;

impl Recorder {
    /// Marks the instruction that a living exception came out of; false: there is none that isn't
    /// marked already.
    pub(in crate::recorder) fn avoid_exception(&self, frame: &Frame<'_>, stop: &Break) -> bool {
        let py = frame.py();
        let Some(chain) = self.frames_to(frame) else { return false };
        let held = chain.iter().flat_map(|frame| {
            let locals = (0..frame.code().nlocalsplus()).filter_map(|slot| frame.local(slot));
            locals.chain(frame.stack().iter().copied().flatten())
        });
        let held = held.filter(|value| value.is_instance_of::<PyBaseException>());
        let handled = handled_beyond(py, self.handled_at_entry);
        let alive: Vec<Object<'_>> =
            handled.into_iter().chain(held.map(|value| value.to_owned())).collect();
        let marked = alive.iter().any(|exception| {
            let spot = left_from(exception, &chain).ok().flatten();
            spot.is_some_and(|spot| self.session.points.mark_new_spot(spot, stop))
        });
        if marked && self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        marked
    }
}

/// The instruction of one of these frames that raised an exception, or called what did.
fn left_from(exception: &Object<'_>, chain: &[Frame<'_>]) -> PyResult<Option<Spot>> {
    let mut found = None;
    let mut next = exception.getattr("__traceback__")?;
    for _ in 0..LONGEST {
        if next.is_none() {
            break;
        }
        let object = next.getattr("tb_frame")?.as_ptr() as usize;
        let Some(depth) = chain.iter().position(|frame| frame.object_address() == object) else {
            break;
        };
        // In bytes.
        let last: usize = next.getattr("tb_lasti")?.extract().unwrap_or(usize::MAX);
        found = Some((depth, last / 2));
        next = next.getattr("tb_next")?;
    }
    Ok(found.and_then(|(depth, unit)| Spot::at(&chain[..=depth], unit)))
}

impl Recorder {
    /// Fails where the value of a number that was read was asked for: unless the trace ends before the very
    /// instruction, what came of it is in the trace.
    pub(in crate::recorder) fn check_refused(
        &self,
        state: &mut State,
        end: &End<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let here = match end {
            End::Break(frames) => frames.last().map(|standing| {
                state.frames.locate(&standing.waiting.frame);
                state.frames.here()
            }),
            End::Return(_) => None,
        };
        let refused = state.symbols.as_mut().and_then(|symbols| symbols.refused_at.take());
        match refused {
            Some(at) if here != Some(at) => {
                self.has_leaked.set(true);
                Err((Reason::DataRead, "the value of a number that was read from one".into()))
            }
            _ => Ok(()),
        }
    }

    /// The value of a number was asked for where it's too late: marks where numbers were read, so that the next
    /// trace ends there. False: it wasn't.
    pub(in crate::recorder) fn avoid_reading(&self, stop: &Break) -> bool {
        let spots = self.numbers_read.take();
        if !self.has_leaked.take() || spots.is_empty() {
            return false;
        }
        for spot in spots {
            self.session.points.mark_spot(spot, stop.clone());
        }
        if self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        true
    }
}
