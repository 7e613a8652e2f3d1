//! `sys.exc_info()` and `sys.exception()` where nothing is handled: a replay asks again, and leaves the trace if its caller handles something.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use stator_cpython::Result;
use stator_cpython::modules::Named;
use stator_cpython::object::Object;
use stator_cpython::thread::Thread;
use stator_graph::{Arg, Value};

use super::read_numbers::own;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

impl Recorder {
    /// Asks which exception is being handled.
    pub(in crate::recorder) fn read_handled<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let is_asked = args.is_empty() && names.is_none() && self.may_read(frame);
        static IS: Named = Named::new("_operator", "is_");
        let is = IS.get(py);
        let none = Thread::current(py).handled().is_none().then_some(1_u8);
        let none = none.and_then(|one| own(&one.into_pyobject(py).ok()?.into_any()));
        let (true, Ok(is), Some(none)) = (is_asked, is, none) else {
            self.stop(frame, Reason::Instruction, heap::name_of(callable));
            return call.natively();
        };
        // The exception itself, or its class with others.
        let is_alone = heap::is_named(callable, &["exception"]);
        self.carries(frame, &none, |state| {
            let name = format!("sys.{}", heap::name_of(callable));
            let mut handled = state.called(frame, callable, name, &[]);
            if !is_alone {
                state.graph.set_value(handled, Value::Structure(3));
                handled = state.graph.get_item(handled, 0);
            }
            let args = [Arg::Node(handled), Arg::NONE];
            let is_none = state.called(frame, is.as_borrowed(), "builtins.is".into(), &args);
            let number = py.get_type::<PyInt>();
            let number = number.as_any().as_borrowed();
            Ok(state.called(frame, number, "builtins.int".into(), &[Arg::Node(is_none)]))
        });
        self.concrete(frame, &[none.as_borrowed()], "whether something is handled");
        call.natively()
    }
}
