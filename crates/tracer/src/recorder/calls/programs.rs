//! Calls in the trace of a tensor program: its rules say what some of them are.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString};
use stator_cpython::Result;
use stator_cpython::hook::Suspended;
use stator_cpython::object::Object;

use crate::breaks::Reason;
use crate::program_rules::Taken;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;

impl Recorder {
    /// Takes a call as the program's rules say; `None`: they say nothing.
    pub(in crate::recorder) fn call_in_program<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, .. } = call;
        let rules = self.session.program.as_ref()?;
        match rules.call(callable)? {
            Taken::Node(operation) => {
                self.links.clear();
                Some(self.tensor_call(operation, call))
            }
            Taken::Silent => {
                self.links.clear();
                Some(self.call_silently(call))
            }
            Taken::Substitute(function) => {
                let function = function.bind_borrowed(frame.py());
                self.vouch(frame, function);
                Some(self.call_object(call.of(function)))
            }
        }
    }

    fn call_silently<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, .. } = call;
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()?
        };
        if let Ok(text) = result.cast::<PyString>() {
            let text = text.to_string_lossy().into_owned();
            self.stop(frame, Reason::Impure, text);
        } else if result.is_exact_instance_of::<PyList>() {
            self.note(frame, |state| {
                state.set_fresh(result.as_borrowed());
                Ok(())
            });
        } else {
            debug_assert!(result.is_none() || result.is_instance_of::<PyBool>());
        }
        Ok(result)
    }
}
