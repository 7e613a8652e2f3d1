//! What a compiled function does when Stator itself has failed.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::modules;
use stator_cpython::object::Object;
use stator_faults::{Escape, Fault};

use super::Compiled;
use super::reports::{location, name};
use crate::breaks::{Break, Reason};
use crate::config;
use crate::lock;

impl Compiled {
    /// A part of Stator's work for a call has failed, before anything of the call was executed.
    #[cold]
    pub(super) fn escape<'py>(
        this: &Bound<'py, Self>,
        escape: Escape,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        match escape {
            Escape::Raised(error) => Err(error),
            Escape::Fault(fault) => {
                Self::fail(this, &fault)?;
                this.get().run_natively(this.py(), args, kwargs)
            }
        }
    }

    /// Stator has failed: every later call runs natively, and the user is told once. An error only under
    /// `stator.config.strict`, or where warnings are errors.
    #[cold]
    pub(super) fn fail(this: &Bound<'_, Self>, fault: &Fault) -> PyResult<()> {
        let (py, own) = (this.py(), this.get());
        let is_known = own.faulty.swap(true, Ordering::Relaxed);
        let reason = Break { detail: fault.what().into(), ..Break::new(Reason::Internal) };
        lock(&own.state).reason = Some(reason.to_string());
        if config::is_strict() {
            return Err(fault.error(py));
        }
        if is_known {
            return Ok(());
        }
        let (file, line) = location(this);
        let warnings = modules::import(py, "stator._warnings")?;
        warnings.call_method1("internal_error", (name(this), file, line, fault.what())).map(drop)
    }

    /// As [`Compiled::fail`], of a call that has ended: what it has raised goes before.
    #[cold]
    pub(super) fn fail_behind<'py>(
        this: &Bound<'py, Self>,
        fault: &Fault,
        result: PyResult<Object<'py>>,
    ) -> PyResult<Object<'py>> {
        let told = Self::fail(this, fault);
        result.and_then(|result| told.map(|()| result))
    }

    /// If the error is Stator's own, which couldn't be kept from the caller: every later call runs
    /// natively.
    #[cold]
    pub(super) fn own_failure(this: &Bound<'_, Self>, error: PyErr) -> PyErr {
        let class = error.get_type(this.py());
        if class.name().is_ok_and(|name| name == "InternalError") {
            this.get().faulty.store(true, Ordering::Relaxed);
        }
        error
    }
}
