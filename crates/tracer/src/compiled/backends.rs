//! What a compiled function asks of other backends than the replay, around its calls.

use std::cell::OnceCell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_faults::contain;

use super::Compiled;
use super::lookup::Found;
use crate::jobs::Job;

impl Compiled {
    /// Gives the graph of a call that was recorded to the backend, if it asks for graphs so early. A call behind
    /// which the guards don't hold any more leaves that to the next one.
    pub(super) fn hand_over<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let py = this.py();
        let backend = this.get().backend.as_ref().filter(|backend| backend.is_asked_at_once());
        let Some(backend) = backend else { return Ok(()) };
        let entries = OnceCell::new();
        match contain(py, || Self::look_up(this, args, kwargs, &entries)) {
            Ok(Found::Entry(entry, resolved)) => entry.hand_over(py, &resolved, backend),
            _ => Ok(()),
        }
    }

    /// What is compiled of its graphs beside the program.
    pub(super) fn all_jobs(&self, py: Python<'_>) -> Vec<Py<Job>> {
        self.entries().iter().flat_map(|entry| entry.jobs(py).collect::<Vec<_>>()).collect()
    }
}
