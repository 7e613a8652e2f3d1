//! Stator's own errors while a call is recorded: the notes are dropped, the call goes on as plain Python.
//!
//! What takes notes is guarded, so a result that an instruction has given is kept when noting it fails. A
//! panic anywhere else in an instruction is caught by the evaluator, which hands the frame over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::{Result, ops};
use stator_faults::{self as faults, Fault, Stage};

use super::Recorder;

impl Recorder {
    /// Ends all recording of this call because of an error of Stator's own.
    #[cold]
    pub(super) fn fault(&self, py: Python<'_>, fault: Fault) {
        self.stopped.set(true);
        self.resume.set(0);
        let _ = ops::allow(py);
        if let Ok(mut abandoned) = self.abandoned.try_borrow_mut() {
            *abandoned = None;
        }
        self.session.fault(fault);
        // Collection is on again, whoever holds the rest.
        if let Ok(mut gc) = self.gc.try_borrow_mut() {
            drop(gc.take());
        }
    }

    /// Runs what is done behind a part of an instruction that was executed, beside taking notes: what it gave
    /// or raised is there, and stays.
    #[inline]
    pub(super) fn behind(&self, frame: &Frame<'_>, work: impl FnOnce()) {
        let py = frame.py();
        self.guarded(py, || match faults::at(Stage::Executed) {
            Ok(()) => work(),
            Err(fault) => self.fault(py, fault),
        });
    }

    /// Runs a further part of an instruction of which something was executed already. If it fails before it has
    /// executed anything itself, `plain` does it as CPython does.
    #[inline]
    pub(super) fn part<T>(
        &self,
        py: Python<'_>,
        recorded: impl FnOnce() -> Result<T>,
        plain: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = ops::executed();
        match catch_unwind(AssertUnwindSafe(recorded)) {
            Ok(done) => done,
            Err(payload) => {
                self.fault(py, Fault::of_panic(&*payload));
                if ops::executed() != before {
                    resume_unwind(payload);
                }
                plain()
            }
        }
    }

    /// Runs what takes notes; `None` if it failed.
    #[inline]
    pub(super) fn guarded<T>(&self, py: Python<'_>, run: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.fault(py, Fault::of_panic(&*payload));
                None
            }
        }
    }
}
