//! State of the process and the thread that calls aren't recorded in.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::object::Object;
use stator_cpython::thread::Thread;
use stator_guards::GlobalState;

use super::Compiled;
use super::reports::{break_report, graph_break_error};
use crate::breaks::{Break, Reason};
use crate::check::{foreign_mode, read_global_state};
use crate::lock;
use crate::logs::Log;
use crate::rollback::{self, Generators};

/// What a recording begins with, or what is against one.
///
/// # Errors
/// What PyTorch raises.
pub(super) fn state_at_entry(
    py: Python<'_>,
) -> PyResult<Result<(Arc<GlobalState>, Generators), Break>> {
    if !Thread::current(py).has_room() {
        return Ok(Err(Break::new(Reason::Depth)));
    }
    let global = read_global_state(py)?;
    if let Some(mode) = foreign_mode(&global) {
        return Ok(Err(Break { detail: mode.into(), ..Break::new(Reason::ForeignMode) }));
    }
    Ok(match rollback::generators(py)? {
        Some(generators) => Ok((global, generators)),
        None => Err(Break::new(Reason::UntoldGenerator)),
    })
}

impl Compiled {
    /// Something is against recording: the call runs natively, and so may those behind it.
    pub(super) fn refuse<'py>(
        &self,
        py: Python<'py>,
        stop: &Break,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        if self.fullgraph {
            return Err(graph_break_error(py, stop));
        }
        lock(&self.state).reason = Some(stop.to_string());
        self.tire(None, u32::MAX);
        self.run_natively(py, args, kwargs)
    }

    /// This call runs natively; under `fullgraph` it raises instead.
    pub(super) fn run_on(this: &Bound<'_, Self>, stop: &Break) -> PyResult<()> {
        let (py, own) = (this.py(), this.get());
        if Log::GraphBreaks.is_on() {
            Log::GraphBreaks.emit(py, &break_report(this, stop, "runs natively:"));
        }
        lock(&own.state).reason = Some(stop.to_string());
        if own.fullgraph {
            return Err(graph_break_error(py, stop));
        }
        Ok(())
    }
}
