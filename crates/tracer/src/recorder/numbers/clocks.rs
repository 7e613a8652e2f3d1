//! Clocks: what `time.perf_counter()` gives is a number that is read, as from a tensor. A replay looks at the clock at
//! the same place between its operations.

use stator_cpython::Result;
use stator_cpython::object::Object;

use super::read_numbers::own;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

impl Recorder {
    /// Looks at a clock.
    pub(in crate::recorder) fn read_clock<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        if !args.is_empty() || names.is_some() || !self.may_read(frame) {
            self.stop(frame, Reason::OpaqueCall, heap::name_of(callable));
            return call.natively();
        }
        let value = call.natively()?;
        let Some(number) = own(&value) else { return Ok(value) };
        self.carries(frame, &number, |state| {
            let name = format!("time.{}", heap::name_of(callable));
            Ok(state.called(frame, callable, name, &[]))
        });
        Ok(number)
    }
}
