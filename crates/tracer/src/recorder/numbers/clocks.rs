//! Clocks: what `time.perf_counter()` gives is a number that is read, as from a tensor. A replay looks at the clock at
//! the same place between its operations. And threads: which one runs a call is decided.

use stator_cpython::Result;
use stator_cpython::object::Object;
use stator_cpython::ops;
use stator_graph::Arg;

use super::read_numbers::own;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Decides, Ends};
use crate::recorder::notes::call::{Call, library};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::State;
use crate::recorder::notes::text_wrappers::is_in_wrapper;

impl Recorder {
    /// Which thread this is: a decision, so that its number may be a key.
    pub(in crate::recorder) fn ask_thread<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        if is_in_wrapper(frame) {
            // Nobody else sees it.
            return call.natively();
        }
        if !self.session.is_replayed() || !self.may_read(frame) {
            self.stop(frame, Reason::OpaqueCall, heap::name_of(callable));
            return call.natively();
        }
        let number = call.natively()?;
        // Asking changes nothing.
        self.baseline.set(ops::executed());
        let asked = |state: &mut State| {
            let own = state.graph_arg(number.as_borrowed())?;
            let found = state.called(frame, callable, "time.get_ident".into(), &[]);
            let equal = library(frame.py(), "operator", "eq")?;
            let args = [Arg::Node(found), own];
            let node = state.called(frame, equal.as_borrowed(), "builtins.eq".into(), &args);
            Ok(Arg::Node(node))
        };
        if !matches!(self.decided(frame, Asks::Program, asked, || Ok(true)), Some(Ok(true))) {
            self.stop(frame, Reason::OpaqueCall, heap::name_of(callable));
        }
        Ok(number)
    }

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
