//! Replays in which Stator itself fails: what they have done is taken back, or the rest of it is done.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_faults::{Escape, Fault, contain};
use stator_graph::NodeId;

use super::interrupted::Answer;
use super::{Entry, Replay};
use crate::check::Resolved;
use crate::codes::Backend;
use crate::draws;
use crate::effects;
use crate::frames::stage::Staged;
use crate::locks::Held;
use crate::replay::{Outputs, Pass, Running};
use crate::rollback;
use crate::undo;

/// How the making of a replay's parts ends early.
pub(super) enum Ended<'py> {
    /// As the replay.
    Replay(Replay<'py>),
    /// With an error in Stator's own part of the work.
    Own(PyErr),
    /// Before its end, for something that waits; what it did can be taken back.
    Asked,
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

/// What a replay has done so far.
#[derive(Default)]
pub(super) struct Done<'e, 'py> {
    /// How the inputs were before the graph ran, if it did.
    pub(super) ran: Option<Before<'py>>,
    /// The locks of the trace.
    pub(super) held: Held<'py>,
    /// The random generator that the trace draws from, until it does.
    pub(super) drawn: Option<draws::Before<'py>>,
    /// The sizes among the graph's inputs, and the random numbers.
    pub(super) sizes: SmallVec<[(usize, Object<'py>); 4]>,
    /// The run of the graph's program, until it ends.
    pub(super) running: Option<Running<'e, 'py>>,
    /// The node at which Stator failed while the graph ran.
    pub(super) failed: Option<NodeId>,
    /// How the graph has run.
    pub(super) outputs: Option<Ran<'py>>,
    /// What was written to objects.
    pub(super) written: effects::Written<'py>,
    /// Signals wait.
    pub(super) deferred: Option<Deferred<'py>>,
    /// What is known if it was asked to stop.
    pub(super) answer: Answer,
}

/// A run that has ended.
pub(super) struct Ran<'py> {
    /// What the graph gave, there where it was left.
    pub(super) outputs: Outputs<'py>,
    /// By which exit; `None`: at its end.
    pub(super) left: Option<u32>,
    /// What the operation has raised for which it was left.
    pub(super) error: Option<PyErr>,
}

/// The state before a graph ran.
pub(super) struct Before<'py> {
    pub(super) generators: rollback::Generators,
    pub(super) drawn: Option<draws::Before<'py>>,
    pub(super) copies: undo::Copies<'py>,
    /// What the copies are of, if this is the entry's first replay.
    pub(super) first: Option<undo::Plan>,
    pub(super) versions: SmallVec<[Option<u32>; 16]>,
    /// Those that the versions are of, where the graph may write to any.
    pub(super) inputs: SmallVec<[Object<'py>; 16]>,
}

impl Entry {
    /// Runs the graph on a passed check's objects and rebuilds the result. Warnings and log records are
    /// left to the caller, who knows when the function's own frames are gone.
    ///
    /// Where Stator fails in between, what was done is taken back; where that can't be, the rest is done.
    pub fn replay<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        backend: Option<&Backend>,
        staged: &mut Vec<Staged>,
    ) -> Replay<'py> {
        let mut done = Done::default();
        let replay = || self.try_replay(py, resolved, backend, staged, &mut done);
        let escape = match catch_unwind(AssertUnwindSafe(replay)) {
            Ok(Ok(replay)) => return replay,
            Ok(Err(Ended::Replay(replay))) => return replay,
            Ok(Err(Ended::Asked)) => {
                return match contain(py, || self.take_back(py, done)) {
                    Ok(()) => Replay::Restart("a signal or an exception of another thread waits"),
                    Err(Escape::Fault(fault)) => Replay::Failed(fault.error(py)),
                    Err(Escape::Raised(error)) => Replay::Failed(error),
                };
            }
            Ok(Err(Ended::Own(error))) => Escape::of(py, error),
            Err(payload) => Escape::Fault(Fault::of_panic(&*payload)),
        };
        let fault = match escape {
            Escape::Fault(fault) => fault,
            Escape::Raised(error) => {
                staged.clear();
                // Plain Python may do with less.
                let is_undone = error.is_instance_of::<PyMemoryError>(py)
                    && matches!(contain(py, || self.can_take_back(py, &done)), Ok(true))
                    && contain(py, || self.take_back(py, done)).is_ok();
                if is_undone {
                    return Replay::Restart("memory ran out in a replay");
                }
                // As in plain Python, what was done stays.
                return Replay::Failed(error);
            }
        };
        staged.clear();
        match contain(py, || self.can_take_back(py, &done)) {
            Ok(true) => match contain(py, || self.take_back(py, done)) {
                Ok(()) => Replay::Fault(fault),
                Err(_) => Replay::Failed(fault.error(py)),
            },
            // The function can't run again: an input was written, and nothing knows what it was.
            _ => self.see_through(py, resolved, staged, &mut done, fault),
        }
    }

    /// Does the rest of a replay that can't be taken back; if that fails too, once more, and then nothing but
    /// the steps, the results and the writes.
    #[cold]
    fn see_through<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        staged: &mut Vec<Staged>,
        done: &mut Done<'_, 'py>,
        fault: Fault,
    ) -> Replay<'py> {
        for pass in [Pass::First, Pass::Last] {
            staged.clear();
            match contain(py, || Ok(self.finish(py, resolved, staged, done, pass))) {
                // An operation raised, and all is as before the replay.
                Ok(Err(Ended::Replay(Replay::Restart(_)))) => return Replay::Fault(fault),
                Ok(Ok(replay) | Err(Ended::Replay(replay))) => {
                    return Replay::Mended(fault, Box::new(replay));
                }
                Ok(Err(Ended::Own(_) | Ended::Asked)) | Err(_) => {}
            }
        }
        Replay::Failed(fault.error(py))
    }

    /// Whether what a replay has done can be taken back.
    #[cold]
    pub(super) fn can_take_back(&self, py: Python<'_>, done: &Done<'_, '_>) -> PyResult<bool> {
        let Some(before) = &done.ran else { return Ok(true) };
        let traced = &self.traced;
        let inputs: SmallVec<[Borrowed<'_, '_>; 16]> =
            before.inputs.iter().map(|input| input.as_borrowed()).collect();
        let undo = before.first.as_ref().unwrap_or_else(|| self.undo(py));
        Ok(done.written.can_be_taken_back()
            && !undo::is_once(py, traced, done.failed)
            && undo.covers(traced, (done.failed, false), &inputs, &before.versions, &before.copies)
            && before.copies.can_be_restored()?)
    }

    /// Takes back what a replay has done.
    #[cold]
    pub(super) fn take_back<'py>(&self, py: Python<'py>, done: Done<'_, 'py>) -> PyResult<()> {
        done.written.take_back(py)?;
        drop(done.running);
        let Some(before) = done.ran else { return Ok(()) };
        let traced = &self.traced;
        rollback::restore_modes(py, &traced.graph, &traced.guards, done.failed)?;
        before.copies.restore(py)?;
        if let (Some(draws), Some(drawn)) = (&traced.draws, &before.drawn) {
            draws.give_back(drawn, None);
        }
        rollback::restore_generators(py, &before.generators)
    }

    /// Does the rest of a replay in which Stator failed: what is done isn't done again.
    #[cold]
    fn finish<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        staged: &mut Vec<Staged>,
        done: &mut Done<'_, 'py>,
        pass: Pass,
    ) -> Result<Replay<'py>, Ended<'py>> {
        if let Some(running) = &mut done.running {
            running.set_pass(pass);
            running.ask(None);
            let sizes = done.sizes.clone();
            let ran = self.go_on(py, None, &self.graph_inputs(resolved, &sizes), done)?;
            done.outputs = Some(ran);
        }
        let Some(ran) = &done.outputs else {
            return Err(Fault::new("the graph's outputs are lost").into());
        };
        self.rebuild(py, resolved, ran, staged, &mut done.written, pass)
    }
}
