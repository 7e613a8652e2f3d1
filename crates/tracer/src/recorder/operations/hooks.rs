//! Hooks that run when gradients are computed: on tensors that the trace has made, and on modules.
//!
//! A hook is registered by a node. What it does is code within the node that goes back (`operations::backward`).
//! The hooks of a module are called by an object of PyTorch's, which its call makes, gives its inputs and its result:
//! that is three nodes, and its own code isn't followed.

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::{Arg, NodeId, Value};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};

impl Recorder {
    /// Whether nodes may be given functions of the trace's own here.
    fn may_give(&self, names: Option<Borrowed<'_, '_>>) -> bool {
        names.is_none()
            && !self.is_stopped()
            && self.session.is_replayed()
            && !self.state.borrow().enclosed.is_on()
    }

    /// `register_hook` of a tensor that the trace has made; `None`: it's something else.
    pub(in crate::recorder) fn register_hook<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let [tensor, hook] = args else { return None };
        if !self.may_give(names) || !matches!(self.origin(*tensor), Some(Origin::Node(_))) {
            return None;
        }
        let given = self.note(frame, |state| {
            state.know_hook(*hook)?;
            Ok([state.graph_arg(*tensor)?, state.give(*hook, frame)?])
        });
        let result = self.unseen(call);
        if let (Some(given), Ok(handle)) = (given, &result) {
            self.note(frame, |state| {
                let node = state.made_by(callable, "register_hook", &given, frame);
                state.set_fresh(handle.as_borrowed());
                state.given.add(handle.as_borrowed(), node);
                state.enclosed.add_function();
                Ok(())
            });
        }
        Some(result)
    }

    /// A method of PyTorch's objects for hooks; `None`: its frame is to be traced.
    pub(in crate::recorder) fn call_hook_method<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let (&owner, given) = args.split_first()?;
        if !self.may_give(names) || self.origin(owner) != Some(Origin::Fresh) {
            return None;
        }
        let name = heap::name_of(callable);
        let [value] = given else {
            let handle = self.state.borrow().given.node(owner)?;
            let result = self.unseen(call);
            self.note(frame, |state| {
                let node = state.made_by(callable, &name, &[Arg::Node(handle)], frame);
                state.graph.set_value(node, Value::Nothing);
                Ok(())
            });
            return Some(result);
        };
        let noted = self.note(frame, |state| {
            Ok([state.give_module_hooks(owner, frame)?, state.graph_arg(*value)?])
        });
        let result = self.unseen(call);
        if let (Some(given), Ok(result)) = (noted, &result) {
            self.note(frame, |state| {
                let node = state.made_by(callable, &name, &given, frame);
                state.enclosed.add_function();
                state.bind_passed_on(node, result.as_borrowed(), *value)
            });
        }
        Some(result)
    }

    /// Makes a call whose frames aren't looked at.
    fn unseen<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let py = call.frame.py();
        let result = {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            call.natively()
        };
        if result.is_err() {
            self.stop(call.frame, Reason::OperationRaised, heap::name_of(call.callable));
        }
        result
    }
}

impl State {
    /// The object by which PyTorch calls a module's hooks, before it has done anything.
    fn give_module_hooks(&mut self, owner: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<Arg> {
        if let Some(node) = self.given.node(owner) {
            return Ok(Arg::Node(node));
        }
        let unknown = || (Reason::Machinery, heap::type_name(owner));
        let part = |name: &str| owner.getattr(name).map_err(|_| unknown());
        let module = part("module")?;
        let mut args = vec![self.give(module.as_borrowed(), frame)?];
        for hooks in [part("user_hooks")?, part("user_pre_hooks")?] {
            let hooks = heap::list_items(hooks.as_borrowed());
            hooks.iter().try_for_each(|hook| self.know_hook(hook.as_borrowed()))?;
            let hooks = self.give_all(&hooks, frame)?;
            args.push(self.graph.list(&hooks));
        }
        let class = owner.get_type();
        let node = self.made_by(class.as_any().as_borrowed(), "module_hooks", &args, frame);
        self.given.add(owner, node);
        Ok(Arg::Node(node))
    }

    /// Binds what a node gives that passes on what it's given: tensors are new ones, all else is the same.
    fn bind_passed_on(
        &mut self,
        node: NodeId,
        result: Borrowed<'_, '_>,
        given: Borrowed<'_, '_>,
    ) -> Noted<()> {
        if result.is(given) {
            return Ok(());
        }
        if self.kind(result) == Kind::Tensor && self.kind(given) == Kind::Tensor {
            self.bind_result(node, result, &[])?;
            return self.lay_out_as(node, given);
        }
        if !heap::is_plain_tuple(result) || !heap::is_plain_tuple(given) {
            let detail = format!("a {} for hooks of a module", heap::type_name(given));
            return Err((Reason::Unsupported, detail));
        }
        let (items, before) = (heap::tuple_items(result), heap::tuple_items(given));
        let len = u32::try_from(items.len()).expect("fewer than 2^32 results");
        self.graph.set_value(node, Value::Structure(len));
        self.set_fresh(result);
        for (index, (item, before)) in (0..len).zip(items.iter().zip(&before)) {
            if !item.is(before) {
                let element = self.graph.get_item(node, index);
                self.bind_result(element, item.as_borrowed(), &[])?;
                self.lay_out_as(element, before.as_borrowed())?;
            }
        }
        Ok(())
    }
}
