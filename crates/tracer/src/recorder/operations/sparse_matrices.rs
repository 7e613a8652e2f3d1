//! Sparse tensors as values of the graph: what is multiplied by one, or made dense of one.
//!
//! A sparse tensor holds what no guard compares: how many elements it has, and whether they are in order. So it is no tensor
//! to the rest of the recorder, and few operations may be given one: those whose results follow from its sizes, its type and
//! its layout (`stator_operators::takes_sparse`). These a guard compares, if it's from outside.

use pyo3::prelude::*;
use stator_cpython::heap::tensor::is_sparse;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_graph::{Arg, NodeId, Target};
use stator_guards::{GuardKind, SourceId};
use stator_operators::takes_sparse;
use stator_operators::torch::last_part;

use crate::breaks::Reason;
use crate::functions::Class;
use crate::recorder::Recorder;
use crate::recorder::notes::above::SparseValues;
use crate::recorder::notes::call::RecordedArgs;
use crate::recorder::notes::heap;
use crate::recorder::notes::inputs::described;
use crate::recorder::notes::state::{Noted, Origin, State};

impl State {
    /// Whether sparse tensors may be values here.
    fn may_have_sparse(&self) -> bool {
        !self.policy.is_for_compiler() && self.program.is_none() && !self.enclosed.is_on()
    }

    /// The arguments of an operation, sparse tensors among them if it may be given these.
    pub(super) fn taken_by(
        &mut self,
        target: Target,
        args: &[Borrowed<'_, '_>],
        names: Option<Borrowed<'_, '_>>,
    ) -> Noted<RecordedArgs> {
        (self.sparse_tensors.taken_by, self.sparse_tensors.is_met) = (Some(target), false);
        let given = RecordedArgs::of(self, args, names);
        self.sparse_tensors.taken_by = None;
        given
    }

    /// A sparse tensor as an operation is given it.
    pub(super) fn sparse_arg(&mut self, tensor: Borrowed<'_, '_>) -> Noted<Arg> {
        let takes = |target| takes_sparse(last_part(&self.operation_name(target)));
        let may_be = self.may_have_sparse() && self.sparse_tensors.taken_by.is_some_and(takes);
        let node = match self.origin(tensor) {
            Some(Origin::Handle(node)) if may_be => Some(node),
            Some(Origin::Source(source)) if may_be && self.guard_sparse(source, tensor) => {
                Some(self.object_node(source))
            }
            _ => None,
        };
        let Some(node) = node else {
            let what = heap::type_name(tensor);
            let detail = format!("a {what} as argument of a tensor operation");
            return Err((Reason::Unsupported, detail));
        };
        self.sparse_tensors.is_met = true;
        Ok(Arg::Node(node))
    }

    /// Guards what a sparse tensor from outside is described by.
    fn guard_sparse(&mut self, source: SourceId, tensor: Borrowed<'_, '_>) -> bool {
        if self.sparse_tensors.known.contains(&source) {
            return true;
        }
        let Some(guard) = described(self, tensor) else { return false };
        self.guard(source, GuardKind::Tensor(guard.into()));
        self.sparse_tensors.known.insert(source);
        true
    }

    /// Sizes that depend on data are beyond what is known of operations on sparse tensors.
    pub(super) fn refuse_sparse(&self, is_data_sized: bool) -> Noted<()> {
        if self.sparse_tensors.is_met && is_data_sized {
            let detail = "an operation on sparse tensors whose sizes depend on data";
            return Err((Reason::Unsupported, detail.into()));
        }
        Ok(())
    }

    /// A node has given a sparse tensor of its own.
    pub(super) fn bind_sparse(&mut self, node: NodeId, tensor: Borrowed<'_, '_>) -> Noted<()> {
        if !self.may_have_sparse() || !is_sparse(tensor) {
            let detail = format!("an operation that returns a {}", heap::type_name(tensor));
            return Err((Reason::Unsupported, detail));
        }
        self.set_origin(tensor, Origin::Handle(node));
        self.sparse_tensors.kept.push(tensor.to_owned().unbind());
        self.sparse_tensors.is_met = true;
        Ok(())
    }
}

impl Recorder {
    /// Whether an operation may be given this sparse tensor.
    fn holds_sparse(&self, tensor: Borrowed<'_, '_>) -> bool {
        let state = self.state.borrow();
        is_sparse(tensor)
            && !self.is_stopped()
            && state.may_have_sparse()
            && matches!(state.origin(tensor), Some(Origin::Handle(_) | Origin::Source(_)))
    }

    /// Whether an operand beside a tensor is a sparse one, which the operator may be given.
    pub(super) fn is_sparse_operand(&self, operator: &str, operand: Borrowed<'_, '_>) -> bool {
        takes_sparse(operator) && self.holds_sparse(operand)
    }
}

impl SparseValues for Recorder {
    fn attribute_of_sparse<'py>(
        &self,
        tensor: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let is_described = matches!(
            &*heap::text(name),
            "shape"
                | "dtype"
                | "device"
                | "layout"
                | "ndim"
                | "is_sparse"
                | "is_sparse_csr"
                | "requires_grad"
        );
        if !is_described || !self.holds_sparse(tensor) {
            return None;
        }
        let mut state = self.state.borrow_mut();
        if let Some(Origin::Source(source)) = state.origin(tensor)
            && !state.guard_sparse(source, tensor)
        {
            return None;
        }
        drop(state);
        Some(ops::get_attr(tensor, name))
    }

    fn method_of_sparse<'py>(
        &self,
        tensor: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if !takes_sparse(&heap::text(name)) || !self.holds_sparse(tensor) {
            return None;
        }
        let found = types::lookup(tensor.get_type().as_borrowed(), name)?;
        let class = self.functions.class(found.as_borrowed());
        matches!(class, Some(Class::Operation(_))).then_some(found)
    }
}
