//! The graph's inputs: which object from outside each placeholder stands for.
//!
//! Invariant: sources stand in the order of their placeholders. Symbols have placeholders of their own in between,
//! so a tensor's position is said.

use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};
use stator_cpython::heap::tensor::{self, TensorInfo, info};
use stator_cpython::object::Borrowed;
use stator_graph::{Device, Dtype, NodeId, Value};
use stator_guards::{SourceId, TensorGuard, grow_in_leaps};

use super::state::State;

/// A tensor that the graph takes in.
pub struct TensorInput {
    /// Its placeholder's position among the graph's.
    pub position: u32,
    /// The tensor.
    pub tensor: Py<PyAny>,
    /// The version of its data when it was first used.
    pub version: Option<u32>,
    /// Where it was found; `None` of what a program returns.
    pub source: Option<SourceId>,
    /// Whether where it stands in gradients' graphs is guarded.
    pub is_placed: bool,
}

/// The inputs of a trace's graph.
pub struct Inputs {
    placeholders: FxHashMap<SourceId, NodeId>,
    sources: Vec<SourceId>,
    tensors: Vec<TensorInput>,
}

impl Inputs {
    /// None yet, and room for so many.
    pub fn with_room(room: usize) -> Self {
        Self {
            placeholders: FxHashMap::with_capacity_and_hasher(room, FxBuildHasher),
            sources: Vec::with_capacity(room),
            tensors: Vec::with_capacity(room),
        }
    }

    /// The placeholder of what was found at a source.
    pub fn node(&self, source: SourceId) -> Option<NodeId> {
        self.placeholders.get(&source).copied()
    }

    /// The source of what a placeholder stands for.
    pub fn source(&self, node: NodeId) -> Option<SourceId> {
        self.placeholders.iter().find_map(|(source, own)| (*own == node).then_some(*source))
    }

    /// The placeholder of what was found at a source, by that source's number.
    pub fn node_at(&self, source: u32) -> Option<NodeId> {
        let found = self.placeholders.iter().find(|(own, _)| own.index() as u32 == source);
        found.map(|(_, node)| *node)
    }

    /// The sources of what comes in, in the graph's order.
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The tensors that come in.
    pub fn tensors(&self) -> &[TensorInput] {
        &self.tensors
    }

    /// The tensor of a placeholder's position.
    pub fn tensor_at(&mut self, position: u32) -> Option<&mut TensorInput> {
        let at = self.tensors.binary_search_by_key(&position, |input| input.position).ok()?;
        self.tensors.get_mut(at)
    }

    /// What was found at a source comes in.
    pub fn add(&mut self, source: SourceId, node: NodeId) {
        let known = &mut self.placeholders;
        grow_in_leaps(known.len(), known.capacity(), |more| known.reserve(more));
        known.insert(source, node);
        self.sources.push(source);
    }

    /// A tensor was found at a source, and comes in.
    pub fn add_tensor(&mut self, source: SourceId, node: NodeId, tensor: TensorInput) {
        self.add(source, node);
        self.tensors.push(tensor);
    }

    /// A tensor that wasn't found at any source comes in: what a program returns may hold one.
    pub fn add_result(&mut self, position: u32, tensor: Py<PyAny>) {
        let (source, is_placed) = (None, false);
        self.tensors.push(TensorInput { position, tensor, version: None, source, is_placed });
    }

    /// The positions of the tensors whose data the call changed.
    pub fn written(&self, py: Python<'_>) -> Vec<u32> {
        let changed = |input: &TensorInput| {
            let now = tensor::info(input.tensor.bind_borrowed(py));
            now.is_none_or(|now| now.version != input.version).then_some(input.position)
        };
        self.tensors.iter().filter_map(changed).collect()
    }

    /// Whether the call has changed a tensor's data.
    pub fn is_written(&self, tensor: Borrowed<'_, '_>) -> bool {
        let version = tensor::info(tensor).and_then(|now| now.version);
        self.tensors.iter().any(|input| input.tensor.is(tensor) && input.version != version)
    }

    /// The sources of what comes in, in the graph's order.
    pub fn into_sources(self) -> Vec<SourceId> {
        self.sources
    }
}

/// The facts that an ordinary tensor is described by, and a replay depends on.
pub fn tensor_guard(state: &mut State, tensor: Borrowed<'_, '_>) -> Option<TensorGuard> {
    if info(tensor)?.layout != 0 {
        return None;
    }
    described(state, tensor)
}

/// The facts that a guard compares of a tensor of any layout.
pub(in crate::recorder) fn described(
    state: &mut State,
    tensor: Borrowed<'_, '_>,
) -> Option<TensorGuard> {
    let info = info(tensor)?;
    let python_type = state.object(tensor.get_type().as_any().as_borrowed());
    Some(TensorGuard {
        python_type,
        dtype: info.dtype,
        device_type: info.device_type,
        device_index: info.device_index,
        layout: info.layout,
        requires_grad: info.requires_grad,
        sizes: info.sizes.iter().map(|&size| Some(size)).collect(),
        strides: info.strides.iter().map(|&stride| Some(stride)).collect(),
        key_set: info.key_set,
    })
}

pub(in crate::recorder) fn graph_meta(state: &mut State, info: &TensorInfo) -> Value {
    let dtype = Dtype(i8::try_from(info.dtype).unwrap_or(-1));
    let device = Device {
        kind: i8::try_from(info.device_type).unwrap_or(-1),
        index: i8::try_from(info.device_index).unwrap_or(-1),
    };
    let strides: &[i64] = if info.layout == 0 { &info.strides } else { &[] };
    Value::Tensor(state.graph.tensor_meta(dtype, device, &info.sizes, strides, info.requires_grad))
}
