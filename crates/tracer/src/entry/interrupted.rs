//! Replays in whose middle a signal comes that nobody has announced (Ctrl-C), or an exception from another
//! thread: they end before their next step, as plain Python would at its next instruction.
//!
//! Either what they did is taken back, and the function runs natively from its start, with the signal waiting.
//! Or the graph has done all that the program has up to here, nobody handles what is raised, and it certainly
//! is raised: then the call ends here. Or it leaves by an exit, if it stands at one. Else the replay goes on to the
//! next step.

use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_cpython::thread::{Asking, Deferred, Thread};
use stator_faults::contain;
use stator_graph::NodeId;

use super::taken_back::{Done, Ended, Ran};
use super::{Entry, Replay};
use crate::frames::tracebacks;
use crate::replay::Running;
use crate::rollback;
use crate::undo;

/// What is known of a replay that was asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// It wasn't asked.
    #[default]
    Unasked,
    /// It can't be taken back.
    Stands,
    /// As `Stands`, and a handler runs that certainly raises.
    Raises,
}

impl Entry {
    /// How the replay ends before its next step; `None`: it goes on.
    ///
    /// # Errors
    /// It ends without having got anywhere.
    #[cold]
    pub(super) fn interrupted<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'_, 'py>,
    ) -> Result<Option<Ran<'py>>, Ended<'py>> {
        let traced = &self.traced;
        let node = done.running.as_ref().and_then(Running::stands_before);
        let Some(node) = node else { return Ok(None) };
        if done.answer == Answer::Unasked {
            done.failed = Some(node);
            let is_undone = !undo::has_called(traced, node)
                && matches!(contain(py, || self.can_take_back(py, done)), Ok(true));
            if is_undone {
                return Err(Ended::Asked);
            }
            done.failed = None;
            done.answer = Answer::Stands;
        }
        // In the frames that are made there, the next instruction finds what waits.
        let way_out = done.running.as_ref().and_then(|running| running.way_out(py, inputs));
        if let Some(way_out) = way_out {
            return Ok(Some(self.leave(way_out, None, done)));
        }
        self.ended(py, node, done).map_or(Ok(None), Err)
    }

    /// What the call ends with, if all that was to happen has, and what is raised is sure and nobody handles it.
    fn ended<'py>(
        &self,
        py: Python<'py>,
        node: NodeId,
        done: &mut Done<'_, 'py>,
    ) -> Option<Ended<'py>> {
        let traced = &self.traced;
        let deferred = done.deferred.as_ref()?;
        let raises =
            || done.answer == Answer::Raises || certainly_raises(py, &Asking::new(deferred));
        if !traced.has_only_computed(node) || !raises() {
            if traced.exits.is_empty() {
                done.running.as_mut()?.ask(None);
            }
            return None;
        }
        done.answer = Answer::Raises;
        if undo::may_handle_at(py, traced, node) {
            return None;
        }
        drop(done.deferred.take());
        let Err(raised) = Thread::current(py).handle_pending() else {
            done.deferred = Some(Deferred::new(py));
            return None;
        };
        let error = raised.take(py);
        done.running = None;
        let _deferred = Deferred::new(py);
        let restored = rollback::restore_modes(py, &traced.graph, &traced.guards, Some(node));
        tracebacks::lead_in(py, &error, &traced.graph, &traced.callers, node);
        Some(Replay::Failed(restored.err().unwrap_or(error)).into())
    }
}

/// Whether what waits raises, whatever it is: an exception from another thread; or a signal, and all handlers
/// there are do.
fn certainly_raises(py: Python<'_>, asking: &Asking<'_>) -> bool {
    if !asking.has_signal() {
        return true;
    }
    let asked = modules::import(py, "stator._internal")
        .and_then(|module| module.call_method0("handlers_raise"))
        .and_then(|raise| raise.extract());
    asked.unwrap_or(false)
}
