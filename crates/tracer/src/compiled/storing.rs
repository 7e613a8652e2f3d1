//! The traces of a compiled function as they are stored, and traces that were stored before.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stator_faults::{Escape, contain};

use super::{Compiled, lock};
use crate::entry::Entry;
use crate::stored::{Stored, restore};

impl Compiled {
    /// Every trace, those of resume points included.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<_> = lock(&self.state).entries.iter().cloned().collect();
        all.extend(self.points.entries());
        all
    }
}

/// The stored forms of the traces that begin at a function's call, the least recently used first; of one that has none,
/// why.
#[must_use]
pub fn stored_traces(this: &Bound<'_, Compiled>) -> Vec<Result<Stored, String>> {
    let entries = lock(&this.get().state).entries.clone();
    entries.iter().rev().map(|entry| entry.stored(this.py())).collect()
}

/// Adds a trace that was stored, as if it had been recorded; false: the function has as many as it may have.
///
/// # Errors
/// [`PyValueError`] if it isn't one, or if its guards can't be checked.
pub fn adopt_trace(this: &Bound<'_, Compiled>, stored: Stored) -> PyResult<bool> {
    let py = this.py();
    let compiled = this.get();
    let made = contain(py, || Entry::new(py, restore(py, stored)?));
    let entry = made.map_err(|escape| match escape {
        Escape::Raised(error) => error,
        Escape::Fault(fault) => PyValueError::new_err(fault.what().to_owned()),
    })?;
    let limit = compiled.limit(py)?;
    let mut state = lock(&compiled.state);
    let is_taken = state.entries.len() < limit;
    if is_taken {
        state.entries.add(entry);
        state.traces += 1;
    }
    Ok(is_taken)
}
