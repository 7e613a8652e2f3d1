//! Attributes of tensors: metadata, views, state of autograd, and those that a program adds.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use stator_bytecode::Meaning;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, ops};
use stator_graph::Target;

use super::attributes::Found;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Operations};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};

/// How an attribute of a tensor is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TensorAttr {
    /// It follows from metadata: a constant of the trace.
    Metadata,
    /// It is a tensor: a node.
    View,
    /// A method, or something that needs a closer look.
    Other,
}

fn tensor_attr_kind(name: &str) -> TensorAttr {
    match name {
        "shape" | "dtype" | "device" | "ndim" | "layout" | "is_cuda" | "is_cpu" | "is_sparse"
        | "is_sparse_csr" | "is_quantized" | "is_meta" | "is_mps" | "is_xpu" | "is_nested"
        | "is_mkldnn" | "is_ipu" | "is_xla" | "is_vulkan" | "is_maia" | "is_mtia"
        | "requires_grad" | "itemsize" | "nbytes" | "__class__" => TensorAttr::Metadata,
        "T" | "mT" | "H" | "mH" | "real" | "imag" | "data" => TensorAttr::View,
        _ => TensorAttr::Other,
    }
}

impl Recorder {
    pub(in crate::recorder) fn tensor_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let py = frame.py();
        let text = name.cast::<PyString>().ok();
        let text = text.as_ref().and_then(|name| name.to_str().ok()).unwrap_or("?");
        let ty = owner.get_type();
        let kind = tensor_attr_kind(text);
        if kind == TensorAttr::Metadata {
            if self.has_symbols()
                && let Some(value) = self.symbolic_attr(frame, owner, text)
            {
                return Ok(Found::Value(value));
            }
            let _native = Suspended::new(py);
            return ops::get_attr(owner, name).map(Found::Value);
        }
        if kind == TensorAttr::View {
            let target = |state: &mut State| Target::GetAttr { name: state.graph.intern(text) };
            return self
                .operation(frame, target, &[owner], None, || ops::get_attr(owner, name))
                .map(Found::Value);
        }
        if let Some(found) = self.lookup(frame, &ty, name) {
            match self.kind(found.as_borrowed()) {
                Kind::Function => return Ok(Found::Function(found)),
                Kind::Builtin if heap::is_method_descriptor(found.as_borrowed()) => {
                    return Ok(Found::Function(found));
                }
                Kind::Constant => return Ok(Found::Value(found)),
                _ => {}
            }
        } else if let Some(value) = self.instance_value(frame, owner, name) {
            return Ok(Found::Value(value));
        } else {
            return generic::generic_get_attr(owner, name).map(Found::Value);
        }
        if text == "_version"
            && let Some(version) = self.told(frame, text, owner, || ops::get_attr(owner, name))
        {
            return version.map(Found::Value);
        }
        if text == "grad" {
            self.settle_gradient(frame, owner);
        }
        if text == "grad"
            && let Some(value) = self.computed_gradient(frame, owner, || ops::get_attr(owner, name))
        {
            return value.map(Found::Value);
        }
        if let Some(value) = self.gradient_state(frame, owner, name, text) {
            return Ok(Found::Value(value));
        }
        if matches!(text, "is_leaf" | "grad_fn") && self.is_known_leaf(frame, owner) {
            return ops::get_attr(owner, name).map(Found::Value);
        }
        if text == "grad"
            && let Some(value) = self.outside_gradient(frame, owner)
        {
            return Ok(Found::Value(value));
        }
        self.stop(frame, Reason::DataRead, format!("attribute {text} of a tensor"));
        ops::get_attr(owner, name).map(Found::Value)
    }

    /// Whether a tensor from outside is a leaf, which is guarded: leaves alone have a gradient that can be read.
    fn is_known_leaf<'py>(&self, frame: &Frame<'py>, owner: Borrowed<'_, 'py>) -> bool {
        let Some(gradient) = tensor::gradient(owner) else { return false };
        let may_read = self.state.try_borrow().is_ok_and(|state| {
            let gradients = &state.gradients;
            let is_changed = gradients.is_unknown
                || !gradients.outer.is_empty()
                || gradients.set.contains(&(owner.as_ptr() as usize));
            state.source(owner).is_some() && (gradients.computed(owner).is_some() || !is_changed)
        });
        if !may_read {
            return false;
        }
        let is_computed = self.state.borrow().gradients.computed(owner).is_some();
        let read = |state: &mut State| state.read_gradient(owner, gradient.as_borrowed());
        // Those that the trace computes gradients of were leaves before.
        is_computed || self.note(frame, read).is_some()
    }

    /// Whether what an instruction gives is compared with `None`, and nothing else is done with it.
    fn asks_whether_none(&self, frame: &Frame<'_>) -> bool {
        let code = frame.code();
        let Some(next) = code.unit(frame.unit()).and_then(|unit| code.unit(unit.next)) else {
            return false;
        };
        match next.meaning() {
            Meaning::TestNone { .. } => true,
            Meaning::Constant(index) => {
                let compares =
                    code.unit(next.next).is_some_and(|it| it.meaning() == Meaning::Identity);
                compares && code.const_at(index as usize).is_none()
            }
            _ => false,
        }
    }

    /// A tensor's place in a gradient's graph, where it follows from what is recorded or guarded: of a
    /// tensor that this trace made, and of one that requires no gradient.
    fn gradient_state<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        text: &str,
    ) -> Option<Object<'py>> {
        let is_own = matches!(self.origin(owner), Some(Origin::Node(_))) || self.is_stand_in(owner);
        let follows = match text {
            "is_leaf" | "grad_fn" => {
                is_own || tensor::info(owner).is_some_and(|info| !info.requires_grad)
            }
            // Of one that is no leaf PyTorch warns.
            "grad" => {
                is_own
                    && owner.getattr("is_leaf").is_ok_and(|leaf| leaf.is_truthy().unwrap_or(false))
            }
            _ => false,
        };
        if !follows {
            return None;
        }
        let value = owner.getattr(name.cast::<PyString>().ok()?).ok()?;
        // That there is a node is known, too, if nobody looks at which.
        let is_asked_for = text == "grad_fn" && self.asks_whether_none(frame);
        let is_known = value.is_none() || value.is_instance_of::<PyBool>() || is_asked_for;
        (is_known || self.is_known_gradient(value.as_borrowed())).then_some(value)
    }
}
