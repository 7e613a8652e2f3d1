//! Wrappers of `torch._disable_dynamo`, by which PyTorch hides functions of its own from its compiler (`zero_grad`).
//!
//! At its first call in a process such a wrapper imports that compiler and keeps what it will call from then on, which
//! no trace could follow, and which no later call does. So this is done for it before its frame is recorded.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;

use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

/// Where a function has what its wrapper calls.
const KEPT: &str = "__dynamo_disable";

impl Recorder {
    /// Makes what a wrapper makes at its first call. If that fails, the wrapper's own code fails as it does.
    pub(in crate::recorder) fn prepare_hidden(&self, frame: &Frame<'_>, wrapper: Borrowed<'_, '_>) {
        let _native = Suspended::new(frame.py());
        let _deferred = Deferred::new(frame.py());
        let _ = prepare(wrapper);
    }

    /// Calls what a wrapper hides if the table knows it, as `torch.manual_seed`; `None`: it doesn't.
    pub(in crate::recorder) fn call_hidden<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let function = hidden(call.callable)?;
        let function = function.as_borrowed();
        self.functions.class(function)?;
        self.note(call.frame, |state| state.know_for_good(call.callable))?;
        self.vouch(call.frame, function);
        Some(self.call_function(call.of(function)))
    }
}

fn prepare(wrapper: Borrowed<'_, '_>) -> PyResult<()> {
    let py = wrapper.py();
    let parts = hidden(wrapper).zip(variable(wrapper, "recursive"));
    let Some((function, recursive)) = parts else { return Ok(()) };
    if function.getattr_opt(KEPT)?.is_some_and(|kept| !kept.is_none()) {
        return Ok(());
    }
    let named = PyDict::new(py);
    named.set_item("wrapping", false)?;
    let disable = modules::import(py, "torch._dynamo")?.getattr("disable")?;
    let made = disable.call((&function, recursive), Some(&named))?;
    function.setattr(KEPT, made)
}

/// The function that a wrapper calls.
pub(in crate::recorder) fn hidden<'py>(wrapper: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    variable(wrapper, "fn")
}

/// What a function's closure has by this name.
fn variable<'py>(function: Borrowed<'_, 'py>, name: &str) -> Option<Object<'py>> {
    let closure = function.getattr("__closure__").ok()?;
    let code = value(function, Field::Code)?;
    let names = code.getattr("co_freevars").ok()?;
    let at = heap::tuple_items(names.as_borrowed())
        .iter()
        .position(|found| heap::text(found.as_borrowed()) == name)?;
    let cells = heap::tuple_items(closure.as_borrowed());
    value(cells.get(at)?.as_borrowed(), Field::CellContents)
}
