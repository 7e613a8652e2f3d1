//! `torch.manual_seed` and `Generator.manual_seed`: a node, which makes a generator's state of a number.
//!
//! What is drawn behind it is drawn by nodes, so a replay draws the same numbers. Where a replay is undone, the states
//! of all generators that it may have seeded are put back (`rollback`).

use pyo3::prelude::*;
use pyo3::types::PyInt;
use stator_cpython::Result;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::Value;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::call::{Call, RecordedArgs};
use crate::recorder::notes::heap;

impl Recorder {
    /// Seeds a generator, or all of PyTorch's.
    pub(in crate::recorder) fn seed<'py>(
        &self,
        call: Call<'_, 'py>,
        seed: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        // A number of 64 bits never raises.
        let is_fine = seed.is_exact_instance_of::<PyInt>() && seed.extract::<i64>().is_ok();
        let given = self.note(frame, |state| {
            if !is_fine || !self.session.is_replayed() || state.enclosed.is_on() {
                return Err((Reason::OpaqueCall, heap::name_of(callable)));
            }
            RecordedArgs::of(state, args, None)
        });
        let result = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()?
        };
        if let Some(given) = given {
            self.note(frame, |state| {
                if state.origin(result.as_borrowed()).is_none() {
                    state.anchor(result.as_borrowed());
                }
                let name = if args.len() == 1 { "torch" } else { "torch.Generator" };
                let target = state.function_target(callable, format!("{name}.manual_seed"));
                let stack = state.place(frame);
                let node = state.graph.call(target, &given.args, stack);
                state.graph.set_value(node, Value::Nothing);
                Ok(())
            });
        }
        Ok(result)
    }
}
