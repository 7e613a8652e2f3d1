//! Instructions that CPython has instrumented, from 3.12 on, for somebody who wanted events.
//!
//! They are executed as what they were where nobody is to be told: another thread has a trace function, or
//! this one ignores its own. When nobody wants them any more, CPython takes the instrumentation out of a function at its next call,
//! at `RESUME`. The function that does so is private, but one that tools may call does it on the way:
//! asking for an event of this code, and giving it up.

use pyo3::ffi;
use pyo3::prelude::*;

use super::Code;
use crate::ffi::{self as shim, Interpreter};
use crate::modules;
use crate::object::Borrowed;
use crate::opcode;

/// The least opcode of an instrumented instruction.
pub(crate) const FIRST: u8 = opcode::MIN_INSTRUMENTED_OPCODE;

impl Code<'_> {
    /// Whether a tool asked for events of this code by itself.
    #[must_use]
    pub(crate) fn has_events_of_its_own(self) -> bool {
        // SAFETY: a live code object.
        unsafe { shim::stator_has_local_events(self.as_ptr()) != 0 }
    }

    /// The opcode that stands at a unit when nobody wants events, in its general form.
    #[cold]
    pub(crate) fn plain_opcode(self, at: usize) -> Option<u8> {
        // SAFETY: a live code object; the bytes are CPython's copy of its instructions, which the code
        // keeps, made without instrumentation. An error is taken off again.
        unsafe {
            let bytes = shim::PyCode_GetCode(self.as_ptr());
            if bytes.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            let opcode = *ffi::PyBytes_AsString(bytes).cast::<u8>().add(2 * at);
            ffi::Py_DECREF(bytes);
            Some(opcode)
        }
    }

    /// Does what CPython does at the function's next call: the instrumentation is that of who wants events now.
    #[inline(always)]
    pub(crate) fn refresh_instrumentation(self, py: Python<'_>, interp: *mut Interpreter) {
        // SAFETY: a live code object and its interpreter.
        let is_old = unsafe {
            let code = self.pointer.as_ref();
            !code.monitoring.is_null()
                && code.instrumentation_version != shim::stator_monitoring_version(interp)
        };
        if is_old {
            // A tool that can't be had leaves the code as it is: its instructions are handed over.
            let _ = self.instrument_anew(py);
        }
    }

    #[cold]
    fn instrument_anew(self, py: Python<'_>) -> PyResult<()> {
        /// `sys.monitoring.events.PY_START`.
        const PY_START: u32 = 1;
        let monitoring = modules::import(py, "sys")?.getattr("monitoring")?;
        // SAFETY: a live code object.
        let code = unsafe { Borrowed::from_ptr(py, self.pointer.as_ptr().cast()) };
        // The identifiers that no tool is advised to take come first.
        for tool in [3, 4, 5, 2, 1, 0] {
            if !monitoring.call_method1("get_tool", (tool,))?.is_none() {
                continue;
            }
            monitoring.call_method1("use_tool_id", (tool, "stator"))?;
            let done = [PY_START, 0].into_iter().try_for_each(|events| {
                monitoring.call_method1("set_local_events", (tool, code, events)).map(drop)
            });
            monitoring.call_method1("free_tool_id", (tool,))?;
            return done;
        }
        Ok(())
    }
}
