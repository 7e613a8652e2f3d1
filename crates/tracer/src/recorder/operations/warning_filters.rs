//! `with warnings.catch_warnings():`: which warnings are shown is said by nodes at their places, so that operations in the
//! block warn as they do in plain Python.
//!
//! A node makes the manager, enters and leaves it, and sets filters within. These are the library's own functions, which a
//! replay calls. Where a replay is left in the middle, the frames are given the manager, and plain Python leaves it.
//! What is kept in a list (`record=True`) is for the program to look at: that breaks the graph. So does a warning that the
//! trace gives itself, because a replay gives those at its end.

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, NodeId, Value};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::{Call, RecordedArgs};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};

static MANAGER: Named = Named::new("warnings", "catch_warnings");

/// What is said of filters as a manager is made.
const OPTIONS: [&str; 4] = ["action", "category", "lineno", "append"];

impl Recorder {
    /// `warnings.catch_warnings(...)`; `None`: it's no node.
    pub(in crate::recorder) fn new_filters<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, args, names, .. } = call;
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let is_option = |name: &Object<'py>| OPTIONS.contains(&&*heap::text(name.as_borrowed()));
        if args.len() != names.len()
            || !names.iter().all(is_option)
            || !self.may_filter(frame, args)
        {
            return None;
        }
        let (made, node) = self.filter_node(call, args);
        if let (Some(node), Ok(manager)) = (node, &made) {
            self.note(frame, |state| {
                state.arrays.kept.push(manager.clone().unbind());
                state.set_origin(manager.as_borrowed(), Origin::Handle(node));
                Ok(())
            });
        }
        Some(made)
    }

    /// A call of `simplefilter` and such, or of a method of the manager; `None`: it's no node.
    pub(in crate::recorder) fn sets_filters<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, args, .. } = call;
        let Some((manager, rest)) = args.split_first() else {
            return self.may_filter(frame, args).then(|| self.filter_node(call, args).0);
        };
        if !MANAGER.is(manager.get_type().as_any().as_borrowed()) {
            return self.may_filter(frame, args).then(|| self.filter_node(call, args).0);
        }
        let is_known = match self.origin(*manager) {
            Some(Origin::Handle(_)) => true,
            // One that was entered before the trace began, behind a break.
            Some(Origin::Source(_)) => !rest.is_empty(),
            _ => false,
        };
        if !is_known || !self.may_filter(frame, &[]) {
            return None;
        }
        // It doesn't look at what was raised.
        let none = frame.py().None().into_bound(frame.py());
        let mut given: SmallVec<[Borrowed<'_, 'py>; 4]> = SmallVec::new();
        given.push(*manager);
        given.extend(rest.iter().map(|_| none.as_borrowed()));
        Some(self.filter_node(call, &given).0)
    }

    /// Whether a node may say here which warnings are shown.
    fn may_filter(&self, frame: &Frame<'_>, args: &[Borrowed<'_, '_>]) -> bool {
        if self.is_stopped() || !self.session.is_replayed() || !self.may_read(frame) {
            return false;
        }
        let mut state = self.state.borrow_mut();
        args.iter().all(|arg| matches!(state.kind(*arg), Kind::Constant | Kind::Type))
            && !state.enclosed.is_on()
            && state.program.is_none()
            && state.written.emissions().is_empty()
            && !state.has_written_filters(frame.py())
    }

    /// Executes such a call, and appends its node, which is given `args`.
    fn filter_node<'py>(
        &self,
        call: Call<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) -> (Result<Object<'py>>, Option<NodeId>) {
        let Call { frame, callable, names, .. } = call;
        let given = self.note(frame, |state| {
            state.claims.has_filters = true;
            let manager = args.first().filter(|it| state.kind(**it) == Kind::Object);
            let Some(manager) = manager else { return RecordedArgs::of(state, args, names) };
            let manager = match state.origin(*manager) {
                Some(Origin::Handle(node)) => node,
                _ => {
                    let source = state.source(*manager).expect("it was looked at");
                    state.object_node(source)
                }
            };
            let mut recorded = RecordedArgs::default();
            recorded.args.push(Arg::Node(manager));
            recorded.args.extend(args[1..].iter().map(|_| Arg::NONE));
            Ok(recorded)
        });
        let value = {
            let _native = Suspended::new(frame.py());
            let _deferred = Deferred::new(frame.py());
            call.natively()
        };
        if value.is_err() {
            self.stop(frame, Reason::OperationRaised, heap::qualified_name_of(callable));
        }
        let node = given.filter(|_| value.is_ok()).and_then(|given| {
            self.note(frame, |state| {
                let name = format!("warnings.{}", heap::name_of(callable));
                let target = state.function_target(callable, name);
                let stack = state.place(frame);
                let node = state.graph.call_with_keywords(target, &given.args, &given.names, stack);
                if value.as_ref().is_ok_and(|value| value.is_none()) {
                    state.graph.set_value(node, Value::Nothing);
                }
                Ok(node)
            })
        });
        (value, node)
    }
}

impl State {
    /// Whether the trace has written to the module `warnings`, which a replay does at its end.
    fn has_written_filters(&self, py: Python<'_>) -> bool {
        let module = || modules::loaded(py)?.get_item(PyString::intern(py, "warnings")).ok()?;
        let module = module().and_then(|module| module.cast_into::<PyModule>().ok());
        module.is_none_or(|module| self.written.dict(module.dict().as_ptr() as usize))
    }
}
