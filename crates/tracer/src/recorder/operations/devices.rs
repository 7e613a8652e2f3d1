//! Devices that a program selects, or asks about.
//!
//! `with torch.device("cpu")`: nothing to do for a replay, which begins with no mode on the stack and makes tensors
//! there anyway. The recorded call runs under the mode, as plain Python does. Other devices end the trace.
//!
//! What is asked of a started accelerator is a constant of the trace, which a guard of its own holds to.

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;

use crate::accelerator;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::numbers::number_functions::boolean;

impl Recorder {
    /// The beginning of a `with` block.
    pub(in crate::recorder) fn enter_device<'py, T>(
        &self,
        frame: &Frame<'py>,
        device: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let is_cpu = device.str().is_ok_and(|text| text.to_str().is_ok_and(|text| text == "cpu"));
        if !is_cpu || self.session.program.is_some() {
            let detail =
                format!("with torch.device({}), which decides where", heap::short_repr(device));
            self.stop(frame, Reason::OpaqueCall, format!("{detail} tensors are made"));
        }
        let spot = self.markable_spot(frame);
        let entered = {
            let _native = Suspended::new(frame.py());
            native()?
        };
        self.note(frame, |state| {
            state.claims.devices.push(spot);
            Ok(())
        });
        Ok(entered)
    }

    /// Its end.
    pub(in crate::recorder) fn exit_device<'py>(
        &self,
        frame: &Frame<'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| match state.claims.devices.pop() {
            Some(_) => Ok(()),
            None => Err((Reason::OpaqueCall, "the end of a block with a device".into())),
        });
        let _native = Suspended::new(frame.py());
        native()
    }

    /// What the selected device of a started accelerator decides. One that isn't started is started by being asked.
    pub(in crate::recorder) fn ask_selected_device<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let is_started = accelerator::is_started(frame.py()).unwrap_or(false);
        let is_plain = args.iter().all(|arg| self.kind(*arg) == Kind::Constant);
        if !is_started || !is_plain || self.session.program.is_some() {
            self.stop(frame, Reason::OpaqueCall, heap::callable_name(callable));
        }
        let result = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()
        };
        self.note(frame, |state| {
            state.claims.asked.device = true;
            match &result {
                Ok(value) => match state.kind(value.as_borrowed()) {
                    Kind::Constant => Ok(()),
                    Kind::Tuple => state.register(value.as_borrowed()),
                    _ => Err((Reason::OpaqueCall, heap::name_of(callable))),
                },
                Err(_) => Err((Reason::OpaqueCall, heap::name_of(callable))),
            }
        });
        result
    }

    /// Whether the accelerator's selected stream is captured.
    pub(in crate::recorder) fn ask_capturing<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let found = accelerator::is_capturing(frame.py()).ok().flatten();
        let Some(found) = found.filter(|_| self.session.program.is_none()) else {
            self.stop(frame, Reason::OpaqueCall, heap::callable_name(callable));
            let _native = Suspended::new(frame.py());
            return call.natively();
        };
        self.note(frame, |state| match state.claims.asked.capturing.replace(found) {
            Some(before) if before != found => Err((Reason::OpaqueCall, heap::name_of(callable))),
            _ => Ok(()),
        });
        Ok(boolean(frame.py(), found))
    }

    /// Whether the recorded call runs under the mode of a device.
    pub(in crate::recorder) fn is_under_device(&self) -> bool {
        !self.is_stopped() && !self.state.borrow().claims.devices.is_empty()
    }

    /// Whether a question for modes and overrides is asked under a device's mode, of plain tensors alone: then
    /// a replay, which has no mode, finds none.
    pub(in crate::recorder) fn asks_under_device(
        &self,
        callable: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> bool {
        self.is_under_device()
            && heap::callable_name(callable)
                .trim_start_matches('_')
                .starts_with("has_torch_function")
            && args.iter().all(|arg| self.is_plain_argument(*arg))
    }

    /// Whether an argument is a tensor or a constant, or a tuple of these.
    pub(in crate::recorder) fn is_plain_argument(&self, arg: Borrowed<'_, '_>) -> bool {
        match self.kind(arg) {
            Kind::Tensor | Kind::Constant => true,
            Kind::Tuple => {
                heap::tuple_items(arg).iter().all(|item| self.is_plain_argument(item.as_borrowed()))
            }
            _ => false,
        }
    }
}
