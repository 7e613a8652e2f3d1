//! Tensors, and numbers that were read from them: their nodes, and what holds any.

use stator_cpython::heap::tensor::info;
use stator_cpython::object::Borrowed;
use stator_graph::{NodeId, Value};

use crate::breaks::Reason;
use crate::constant_data;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::inputs::{TensorInput, graph_meta};
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

impl Recorder {
    /// Whether a tensor has the same data in every replay.
    pub(in crate::recorder) fn is_constant_data(&self, tensor: Borrowed<'_, '_>) -> bool {
        if self.session.program.is_some() || self.is_stopped() {
            return false;
        }
        let state = self.state.borrow();
        let Some(Origin::Node(node)) = state.origin(tensor) else { return false };
        if state.enclosed.is_on() {
            return false;
        }
        constant_data::is_known(&state.graph, node)
    }
}

impl State {
    /// The node of a tensor: the one that made it, or a placeholder for an outside one.
    pub fn tensor_node(&mut self, tensor: Borrowed<'_, '_>) -> std::result::Result<NodeId, Stop> {
        match self.origin(tensor) {
            Some(Origin::Node(node)) if !self.enclosed.is_on() && self.graph.is_withdrawn(node) => {
                Err((Reason::UnknownOrigin, "a tensor of code within a node".into()))
            }
            Some(Origin::Node(node) | Origin::Handle(node)) => Ok(node),
            Some(Origin::Source(source)) => {
                if let Some(node) = self.inputs.node(source) {
                    return Ok(node);
                }
                let info = info(tensor);
                let version = info.as_ref().and_then(|info| info.version);
                let value = info.map_or(Value::Unknown, |info| graph_meta(self, &info));
                self.place_symbols(source);
                let position = self.graph.placeholders().len();
                let position = u32::try_from(position).expect("fewer than 2^32 inputs");
                let node = self.graph.unnamed_placeholder(value);
                let tensor = tensor.to_owned().unbind();
                let (at, is_placed) = (Some(source), false);
                let input = TensorInput { position, tensor, version, source: at, is_placed };
                self.inputs.add_tensor(source, node, input);
                Ok(node)
            }
            Some(Origin::Fresh) | None => {
                Err((Reason::UnknownOrigin, "a tensor made by a call that isn't recorded".into()))
            }
        }
    }
}

/// Whether an object is or holds a tensor.
pub fn holds_tensor(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::List | Kind::Tuple | Kind::Dict => {
            state.once(object, false, |state| any_tensor(state, object))
        }
        _ => any_tensor(state, object),
    }
}

fn any_tensor(state: &mut State, object: Borrowed<'_, '_>) -> bool {
    match state.kind(object) {
        Kind::Tensor => true,
        // It's as unknown to guards as the tensor that it was read from.
        Kind::Constant => state.holds_read(object),
        Kind::List => {
            heap::list_items(object).iter().any(|item| holds_tensor(state, item.as_borrowed()))
        }
        Kind::Tuple => {
            heap::tuple_items(object).iter().any(|item| holds_tensor(state, item.as_borrowed()))
        }
        Kind::Dict => heap::dict_items(object)
            .iter()
            .any(|(_, value)| holds_tensor(state, value.as_borrowed())),
        Kind::Slice => {
            heap::plain_parts(object).iter().any(|part| holds_tensor(state, part.as_borrowed()))
        }
        _ => false,
    }
}
