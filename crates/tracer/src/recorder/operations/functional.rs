//! Functions of `torch.nn.functional` for which replays call one operator: what plain Python looks up in them is guarded.

use pyo3::prelude::*;
use pyo3::types::{PyFunction, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::modules::Named;
use stator_cpython::object::Borrowed;
use stator_operators::functional;
use stator_operators::torch::last_part;

use crate::functions::Operation;
use crate::recorder::Recorder;
use crate::recorder::notes::state::State;

impl Recorder {
    /// A program may have replaced what such a function calls: `torch.relu` is looked up by `torch.nn.functional.relu`.
    pub(super) fn guard_called(
        &self,
        frame: &Frame<'_>,
        operation: &Operation,
        callable: Borrowed<'_, '_>,
    ) {
        if self.is_stopped() || !callable.is_exact_instance_of::<PyFunction>() {
            return;
        }
        let Some(function) = functional::find(last_part(&operation.name)) else { return };
        static TORCH: Named = Named::new("torch.nn.functional", "torch");
        static NN: Named = Named::new("torch._C", "_nn");
        let owner = match function.owner {
            functional::TORCH => &TORCH,
            functional::NN => &NN,
            _ => return,
        };
        let Ok(owner) = owner.get(frame.py()) else { return };
        self.note(frame, |state: &mut State| {
            if state.origin(owner.as_borrowed()).is_none() {
                state.anchor(owner.as_borrowed());
            }
            Ok(())
        });
        let name = PyString::intern(frame.py(), function.operator);
        // Who has taken it away raises in the call.
        if let Err(raised) = self.get_attr(frame, owner.as_borrowed(), name.as_any().as_borrowed())
        {
            raised.clear(frame.py());
        }
    }
}
