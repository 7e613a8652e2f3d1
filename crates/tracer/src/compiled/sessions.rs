//! Sessions of a compiled function: who may record, one thread at a time, in the first call or behind a graph break.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::{Compiled, lock};
use crate::codes::Backend;
use crate::drive::Owner;
use crate::entry::Entry;
use crate::recorder;
use crate::resume::point::Points;
use crate::resume::session::Session;
use crate::stance::{self, Stance};

/// A trace that no other call has fitted gives its place to another one after so many.
const IN_VAIN: u64 = 32;

impl Compiled {
    /// A session, if this thread may record now; it is followed by [`Compiled::ended`].
    pub(super) fn begin(&self, py: Python<'_>) -> Option<Rc<Session>> {
        if stance::get(py) != Stance::Default
            || recorder::is_recording()
            || self.recording.swap(true, Ordering::Relaxed)
        {
            return None;
        }
        match self.limit(py) {
            Ok(limit) => {
                let points = self.points.clone();
                let (dynamic, is_eager) = (self.dynamic, self.backend.is_none());
                let mut session = Session::new(points, limit, self.fullgraph, dynamic, is_eager);
                session.at_entry = lock(&self.state).entries.len();
                session.is_whole = self.keeps_whole.load(Ordering::Relaxed);
                if self.may_skip() {
                    session.allowance = lock(&self.budget).allowance();
                }
                Some(Rc::new(session))
            }
            Err(_) => {
                self.ended();
                None
            }
        }
    }

    /// A trace that gives its place to another one, where all places are taken. What a program does once, at its
    /// first steps, would hold them for good. As many do as there are places, so there is an end to recording.
    pub(super) fn displaced(&self, limit: usize) -> Option<Arc<Entry>> {
        let calls = self.calls();
        let mut state = lock(&self.state);
        if state.entries.len() < limit || state.displaced >= limit {
            return None;
        }
        let idle = state.entries.take_idle(calls, IN_VAIN)?;
        state.displaced += 1;
        Some(idle)
    }

    /// The recording has ended.
    pub(super) fn ended(&self) {
        self.recording.store(false, Ordering::Relaxed);
    }
}

impl Owner for Py<Compiled> {
    fn points(&self) -> Arc<Points> {
        self.get().points.clone()
    }

    fn backend(&self) -> Option<&Backend> {
        self.get().backend.as_ref()
    }

    fn limit(&self, py: Python<'_>) -> PyResult<usize> {
        self.get().limit(py)
    }

    fn is_out_of_budget(&self, py: Python<'_>) -> bool {
        Compiled::is_out_of_budget(self.bind(py))
    }

    fn begin(&self, py: Python<'_>) -> Option<Rc<Session>> {
        self.get().begin(py)
    }

    fn ended(&self) {
        self.get().ended();
    }
}
