//! Switches of PyTorch's modes: nodes without tensors, executed for real and kept in order.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, NodeId, StackId, Value};

use crate::breaks::Reason;
use crate::functions::{Determined, Operation};
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

impl Recorder {
    /// A switch of grad mode or autocast.
    pub(in crate::recorder) fn state_switch<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let result = native()?;
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

    /// Inference mode begins, or is interrupted: the node's value is the handle.
    pub(in crate::recorder) fn enter_inference<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        mode: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let handle = {
            let _native = Suspended::new(frame.py());
            native()?
        };
        self.note(frame, |state| {
            let mode = state.graph_arg(mode)?;
            let stack = state.place_of_caller();
            let node = state.switch(callable, &[mode], stack);
            state.set_origin(handle.as_borrowed(), Origin::Node(node));
            state.inference.push(node);
            Ok(())
        });
        Ok(handle)
    }

    /// Inference mode ends, or goes on.
    pub(in crate::recorder) fn exit_inference<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        handle: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| state.leave_inference(callable, handle));
        let _native = Suspended::new(frame.py());
        native()
    }
}

impl State {
    fn leave_inference(
        &mut self,
        callable: Borrowed<'_, '_>,
        handle: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        match self.origin(handle) {
            Some(Origin::Node(entered)) if self.inference.last() == Some(&entered) => {
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
