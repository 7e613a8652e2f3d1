//! Switches of PyTorch's modes: nodes without tensors, executed for real and kept in order.

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, NodeId, StackId, Value};

use crate::breaks::Reason;
use crate::functions::{Determined, Operation};
use crate::inference;
use crate::marks::Label;
use crate::raises::LABEL_END;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Decides, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

impl Recorder {
    /// A switch of grad mode or autocast.
    pub(in crate::recorder) fn state_switch<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let result = call.natively()?;
        self.note(frame, |state| {
            let args = args
                .iter()
                .map(|arg| state.graph_arg(*arg))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let stack = state.place(frame);
            let node = state.switch(callable, &args, stack);
            state.graph.set_value(node, Value::Nothing);
            match state.kind(result.as_borrowed()) {
                Kind::Constant => Ok(()),
                _ => Err((Reason::OpaqueCall, "a switch of PyTorch's state".into())),
            }
        });
        Ok(result)
    }

    /// A switch of kernels. Compilers take kernels while they trace, and forget the switch.
    pub(in crate::recorder) fn kernel_switch<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        if !self.session.is_replayed() {
            self.stop(call.frame, Reason::OpaqueCall, heap::name_of(call.callable));
            return call.natively();
        }
        self.state_switch(call)
    }

    /// A copy of the context, which PyTorch's engine gives its threads from 2.15 on: the node's value is the copy.
    pub(in crate::recorder) fn copy_context<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let copy = call.natively()?;
        self.note(frame, |state| {
            if state.context.is_written() {
                // A replay writes them at its end.
                return Err((Reason::OpaqueCall, heap::name_of(callable)));
            }
            let stack = state.place_of_caller();
            let node = state.switch(callable, &[], stack);
            state.set_origin(copy.as_borrowed(), Origin::Handle(node));
            Ok(())
        });
        Ok(copy)
    }

    /// Inference mode begins, or is interrupted: the node's value is the handle.
    pub(in crate::recorder) fn enter_inference<'py>(
        &self,
        call: Call<'_, 'py>,
        mode: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let handle = {
            let _native = Suspended::new(frame.py());
            call.natively()?
        };
        self.note(frame, |state| {
            let mode = state.graph_arg(mode)?;
            let stack = state.place_of_caller();
            let node = state.switch(callable, &[mode], stack);
            state.set_origin(handle.as_borrowed(), Origin::Handle(node));
            state.inference.push(node);
            Ok(())
        });
        Ok(handle)
    }

    /// Inference mode ends, or goes on.
    pub(in crate::recorder) fn exit_inference<'py>(
        &self,
        call: Call<'_, 'py>,
        handle: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        if !self.leaves_earlier_inference(frame, handle) {
            self.note(frame, |state| state.leave_inference(callable, handle));
        }
        // A mode that was left already is left once.
        let _native = Suspended::new(frame.py());
        call.natively()
    }

    /// Leaves an inference mode that was on before the trace, by a node; false: the trace can't do so.
    fn leaves_earlier_inference<'py>(&self, frame: &Frame<'py>, handle: Borrowed<'_, 'py>) -> bool {
        let found = || {
            let state = self.state.try_borrow().ok()?;
            // Plain Python can't do again what stands before it, in another mode.
            let may_leave = state.inference.is_empty() && state.exits.around.is_none();
            state.source(handle).filter(|_| may_leave)
        };
        let Some(source) = found() else { return false };
        let asked = |state: &mut State| {
            let refused = |error: PyErr| (Reason::Unsupported, error.to_string());
            let function = inference::function(frame.py()).map_err(refused)?;
            let unknown = || (Reason::UnknownOrigin, heap::type_name(handle));
            let left = inference::leave(handle).map_err(refused)?.ok_or_else(unknown)?;
            let args = [Arg::Node(state.object_node(source)), Arg::int(i64::from(left))];
            let stack = state.place_of_caller();
            Ok(Arg::Node(state.labelled(function.as_borrowed(), inference::LEAVE, &args, stack)))
        };
        matches!(self.decided(frame, Asks::Program, asked, || Ok(true)), Some(Ok(true)))
    }
}

impl Recorder {
    /// Whether labels for profilers are nodes: in a tensor program they aren't.
    pub(in crate::recorder) fn takes_labels(&self) -> bool {
        self.session.program.is_none()
    }

    /// A method of `torch.profiler.record_function`: what is about to run has a label, until that ends.
    pub(in crate::recorder) fn label<'py>(
        &self,
        label: Label,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let py = frame.py();
        let before = match (label, args) {
            (Label::Ends, [owner, ..]) => owner.getattr(pyo3::intern!(py, "record")).ok(),
            _ => None,
        };
        let is_own = |handle: &Object<'_>| {
            matches!(self.origin(handle.as_borrowed()), Some(Origin::Handle(_)))
        };
        if label == Label::Ends && !before.as_ref().is_some_and(is_own) {
            self.note(frame, |state| state.end_earlier_label(callable, args));
            let _native = Suspended::new(py);
            return call.natively();
        }
        if label == Label::Begins
            && args.first().is_some_and(|it| matches!(self.origin(*it), Some(Origin::Source(_))))
        {
            // What it keeps of the label is written to an object that others see.
            self.stop(frame, Reason::Machinery, heap::qualified_name_of(callable));
        }
        let result = {
            let _native = Suspended::new(py);
            call.natively()?
        };
        let asked = |name: &str| -> Option<Object<'py>> { args.first()?.getattr(name).ok() };
        let made = match label {
            Label::Made => return Ok(result),
            Label::Begins => asked("name").zip(asked("args")).zip(asked("record")),
            Label::Ends => None,
        };
        let known = |name: &str| {
            static OPS: Named = Named::new("torch", "ops");
            let profiler = OPS.get(py)?.getattr("profiler")?;
            let entered = profiler.getattr("_record_function_enter_new");
            if name.is_empty() {
                entered
            } else {
                profiler.getattr("_record_function_exit")?.getattr(name)
            }
        };
        let function = known(if label == Label::Begins { "" } else { "_RecordFunction" }).ok();
        self.note(frame, |state| {
            let unknown = || (Reason::Machinery, heap::qualified_name_of(callable));
            let function = function.as_ref().ok_or_else(unknown)?.as_borrowed();
            let stack = state.place_of_caller();
            match (made, before) {
                (Some(((name, args), handle)), _) => {
                    let given = [name, args];
                    let given = given.iter().map(|it| state.graph_arg(it.as_borrowed()));
                    let given = given.collect::<std::result::Result<Vec<_>, _>>()?;
                    let node =
                        state.labelled(function, "torch.record_function_enter", &given, stack);
                    state.set_origin(handle.as_borrowed(), Origin::Handle(node));
                    Ok(())
                }
                (None, Some(handle)) => match state.origin(handle.as_borrowed()) {
                    Some(Origin::Handle(begun)) => {
                        let given = [Arg::Node(begun)];
                        let node = state.labelled(function, LABEL_END, &given, stack);
                        state.graph.set_value(node, Value::Nothing);
                        Ok(())
                    }
                    _ => Err(unknown()),
                },
                _ => Err(unknown()),
            }
        });
        Ok(result)
    }
}

impl State {
    /// A label ends that began before the trace, behind a break: its object's own method is called again.
    fn end_earlier_label(
        &mut self,
        method: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        let unknown = || (Reason::Machinery, heap::qualified_name_of(method));
        let (owner, exception) = args.split_first().ok_or_else(unknown)?;
        let source = self.source(*owner).ok_or_else(unknown)?;
        if !exception.iter().all(|part| part.is_none()) {
            return Err(unknown());
        }
        let mut given = SmallVec::<[Arg; 4]>::from_elem(Arg::NONE, args.len());
        given[0] = Arg::Node(self.object_node(source));
        let stack = self.place_of_caller();
        let node = self.labelled(method, LABEL_END, &given, stack);
        self.graph.set_value(node, Value::Nothing);
        Ok(())
    }

    /// A node that begins or ends a label, or ends a mode.
    fn labelled(
        &mut self,
        function: Borrowed<'_, '_>,
        name: &str,
        args: &[Arg],
        stack: Option<StackId>,
    ) -> NodeId {
        let target = self.function_target(function, name.to_owned());
        self.graph.call(target, args, stack)
    }

    fn leave_inference(
        &mut self,
        callable: Borrowed<'_, '_>,
        handle: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        match self.origin(handle) {
            Some(Origin::Handle(entered)) if self.inference.last() == Some(&entered) => {
                let stack = self.place_of_caller();
                let node = self.switch(callable, &[Arg::Node(entered)], stack);
                self.graph.set_value(node, Value::Nothing);
                self.inference.pop();
                Ok(())
            }
            _ => Err((Reason::UnknownOrigin, "an inference mode that was on before".into())),
        }
    }

    /// Where the user's code stands: inference mode is entered and left by functions of ours.
    fn place_of_caller(&mut self) -> Option<StackId> {
        self.frames.caller(&mut self.graph)
    }

    fn switch(
        &mut self,
        callable: Borrowed<'_, '_>,
        args: &[Arg],
        stack: Option<StackId>,
    ) -> NodeId {
        let operation = Operation {
            name: heap::qualified_name_of(callable).into(),
            is_method: false,
            determined: Determined::Always,
        };
        let target = operation.target(self, callable);
        self.graph.call(target, args, stack)
    }
}
