//! Traces that are stored and found again: `stator._stored` is the Python side.

use pyo3::prelude::*;
use stator_tracer::compiled::{self, Compiled};
use stator_tracer::stored::{Stored, VERSION};

/// The stored forms of a compiled function's traces; of a trace that has none, why.
#[pyfunction]
fn _stored_traces(compiled: &Bound<'_, Compiled>) -> Vec<(Option<Stored>, Option<String>)> {
    let traces = compiled::stored_traces(compiled).into_iter();
    traces
        .map(|trace| match trace {
            Ok(stored) => (Some(stored), None),
            Err(reason) => (None, Some(reason)),
        })
        .collect()
}

/// Adds a trace that was stored; false: the function has as many as it may have.
#[pyfunction]
fn _adopt_trace(compiled: &Bound<'_, Compiled>, stored: Stored) -> PyResult<bool> {
    compiled::adopt_trace(compiled, stored)
}

/// Adds the functions to the extension module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("_TRACE_VERSION", VERSION)?;
    module.add_function(wrap_pyfunction!(_stored_traces, module)?)?;
    module.add_function(wrap_pyfunction!(_adopt_trace, module)?)
}
