//! Replays in which Stator itself fails: what they have done is taken back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::NodeId;

use super::{Entry, Replay};
use crate::check::Resolved;
use crate::effects;
use crate::faults::{Escape, Fault, contain};
use crate::resume::stage::Staged;
use crate::rollback;
use crate::undo;

/// How the making of a replay's parts ends early.
pub(super) enum Ended<'py> {
    /// As the replay.
    Replay(Replay<'py>),
    /// With an error in Stator's own part of the work.
    Own(PyErr),
}

impl From<PyErr> for Ended<'_> {
    fn from(error: PyErr) -> Self {
        Self::Own(error)
    }
}

impl From<Fault> for Ended<'_> {
    fn from(fault: Fault) -> Self {
        Self::Own(fault.into())
    }
}

impl<'py> From<Replay<'py>> for Ended<'py> {
    fn from(replay: Replay<'py>) -> Self {
        Self::Replay(replay)
    }
}

/// What a replay has done so far, as far as it can be taken back.
#[derive(Default)]
pub(super) struct Done<'py> {
    /// How the inputs were before the graph ran, if it did.
    pub(super) ran: Option<Before<'py>>,
    /// The node at which Stator failed while the graph ran.
    pub(super) failed: Option<NodeId>,
    /// What was written to objects.
    pub(super) written: effects::Written<'py>,
}

/// The state before a graph ran.
pub(super) struct Before<'py> {
    pub(super) generators: rollback::Generators,
    pub(super) copies: undo::Copies<'py>,
    pub(super) versions: SmallVec<[Option<u32>; 16]>,
    /// Those that the versions are of, where the graph may write to any.
    pub(super) inputs: SmallVec<[Object<'py>; 16]>,
}

impl Entry {
    /// Runs the graph on a passed check's objects and rebuilds the result. Warnings and log records are
    /// left to the caller, who knows when the function's own frames are gone.
    pub fn replay<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        backend: Option<&Py<PyAny>>,
        staged: &mut Vec<Staged>,
    ) -> Replay<'py> {
        let mut done = Done::default();
        let replay = || self.try_replay(py, resolved, backend, staged, &mut done);
        let escape = match catch_unwind(AssertUnwindSafe(replay)) {
            Ok(Ok(replay)) => return replay,
            Ok(Err(Ended::Replay(replay))) => return replay,
            Ok(Err(Ended::Own(error))) => Escape::of(py, error),
            Err(payload) => Escape::Fault(Fault::of_panic(&*payload)),
        };
        let fault = match escape {
            Escape::Fault(fault) => fault,
            // As in plain Python, what was done stays.
            Escape::Raised(error) => return Replay::Failed(error),
        };
        staged.clear();
        match contain(py, || self.take_back(py, done)) {
            Ok(true) => Replay::Fault(fault),
            // The function can't run again: an input was written, and nothing knows what it was.
            _ => Replay::Failed(fault.error(py)),
        }
    }

    /// Takes back what a replay has done. False: not everything could be.
    #[cold]
    fn take_back<'py>(&self, py: Python<'py>, done: Done<'py>) -> PyResult<bool> {
        let objects = done.written.take_back(py)?;
        let Some(before) = done.ran else { return Ok(objects) };
        let traced = &self.traced;
        rollback::restore_modes(py, &traced.graph, &traced.guards, done.failed)?;
        let inputs: SmallVec<[Borrowed<'_, 'py>; 16]> =
            before.inputs.iter().map(|input| input.as_borrowed()).collect();
        let undo = self.undo(py);
        let covers = !undo::is_once(py, traced, done.failed)
            && undo.covers(traced, done.failed, &inputs, &before.versions, &before.copies);
        let restored = covers && before.copies.restore(py)?;
        rollback::restore_generators(py, &before.generators)?;
        Ok(objects && restored)
    }
}
