//! Parts of a trace that goes back through gradients.
//!
//! A backend's code for a part may be one step in PyTorch's graph of gradients (AOTAutograd makes it so). Going back
//! through one of its outputs then gives gradients to all that any of them was computed from: zeros, where plain PyTorch
//! leaves none. And a tensor within the part isn't on the way from its inputs to its outputs. So
//!
//! * a part ends behind each tensor whose own gradient is asked for, and so is no part what writes to tensors then;
//! * a part stays a run of the replay's own steps where a tensor would get zeros that gets no gradient.

use rustc_hash::FxHashSet;
use stator_graph::{Arg, Graph, NodeId, NodeKind, Value};

use super::cut::Part;
use crate::raises::{GRAD, NodeCall};
use crate::rollback::is_silent;
use crate::writes::{Written, write_of};

/// What is known of going back in a trace.
pub struct Back {
    /// For each time: the nodes that it leads through.
    ways: Vec<FxHashSet<NodeId>>,
    /// Whether a graph is kept to be gone through again.
    pub is_repeated: bool,
}

/// Whether a call goes back through gradients.
pub fn goes_back(call: NodeCall<'_>) -> bool {
    call.sets_gradients() || matches!(call.name(), "torch.autograd.grad" | GRAD)
}

/// The tensors in the middle whose own gradients are asked for, or whose place in a graph of gradients is changed.
pub fn asked_of(graph: &Graph) -> FxHashSet<NodeId> {
    let mut asked = FxHashSet::default();
    for (id, _) in graph.nodes() {
        let Some(call) = NodeCall::of(graph, id) else { continue };
        let name = call.operation();
        let args = if goes_back(call) {
            // What is gone back from is on the way; what for may be within.
            call.args.get(4..).unwrap_or_default()
        } else if name == "grad"
            || name.starts_with("retain_grad")
            || name.starts_with("register_")
            || call.is_users()
            || write_of(call).is_some_and(|(written, _)| written != Written::DATA)
        {
            call.args
        } else {
            continue;
        };
        for &arg in args {
            graph.visit_nodes(arg, &mut |node| {
                if !matches!(graph.node(node).kind, NodeKind::Placeholder { .. }) {
                    asked.insert(node);
                }
            });
        }
    }
    asked
}

impl Back {
    /// Where a trace goes back.
    pub fn of(graph: &Graph) -> Self {
        let mut back = Self { ways: Vec::new(), is_repeated: false };
        for (id, _) in graph.nodes() {
            let Some(call) = NodeCall::of(graph, id).filter(|call| goes_back(*call)) else {
                continue;
            };
            let keeps = call.args.get(2..4).is_none_or(|args| {
                args.iter().any(|arg| *arg != Arg::bool(false) && *arg != Arg::NONE)
            });
            back.is_repeated |= keeps;
            back.ways.push(way(graph, id, &call.args[..1]));
        }
        back
    }

    /// Whether going back through a part gives gradients to just what gets some in plain PyTorch.
    pub fn allows(&self, graph: &Graph, part: &Part) -> bool {
        let outputs: Vec<NodeId> =
            part.outputs.iter().copied().filter(|id| is_differentiable(graph, *id)).collect();
        if self.ways.is_empty() || outputs.is_empty() {
            return true;
        }
        let is_given = |id: &NodeId| part.inputs.binary_search(id).is_ok();
        // What is written may be an output that nothing reads.
        let written: Vec<NodeId> =
            part.nodes.clone().flat_map(|index| written(graph, NodeId::new(index))).collect();
        if !written.is_empty() && (outputs.len() > 1 || written.iter().any(is_given)) {
            return false;
        }
        self.ways.iter().all(|way| {
            let reached: Vec<NodeId> =
                outputs.iter().copied().filter(|id| way.contains(id)).collect();
            if reached.is_empty() || reached.len() == outputs.len() {
                return true;
            }
            let wanted = leads_to(graph, part, &reached);
            leads_to(graph, part, &outputs).is_subset(&wanted)
        })
    }
}

/// Whether a gradient may go through a node.
fn is_differentiable(graph: &Graph, id: NodeId) -> bool {
    match graph.node(id).value {
        Value::Tensor(meta) => meta.requires_grad,
        Value::Structure(_) | Value::Unknown => true,
        _ => false,
    }
}

/// What a node writes to, where a gradient may go through that or through what it writes.
fn written(graph: &Graph, id: NodeId) -> Vec<NodeId> {
    let Some(call) = NodeCall::of(graph, id) else { return Vec::new() };
    let Some((_, targets)) = write_of(call).filter(|_| !is_silent(call.operation())) else {
        return Vec::new();
    };
    let mut is_followed = false;
    graph.visit_inputs(id, &mut |input| is_followed |= is_differentiable(graph, input));
    let mut found = Vec::new();
    if is_followed {
        targets.iter().for_each(|arg| graph.visit_nodes(*arg, &mut |id| found.push(id)));
    }
    found
}

/// The nodes before `end` that going back from these arguments leads through.
fn way(graph: &Graph, end: NodeId, roots: &[Arg]) -> FxHashSet<NodeId> {
    let mut way = FxHashSet::default();
    roots.iter().for_each(|arg| graph.visit_nodes(*arg, &mut |id| _ = way.insert(id)));
    walk(graph, 0..end.index(), &mut way);
    way
}

/// What a part is given and its outputs are computed from.
fn leads_to(graph: &Graph, part: &Part, outputs: &[NodeId]) -> FxHashSet<NodeId> {
    let mut found: FxHashSet<NodeId> = outputs.iter().copied().collect();
    walk(graph, part.nodes.clone(), &mut found);
    found.retain(|id| part.inputs.binary_search(id).is_ok());
    found
}

/// Adds what the nodes that were found are computed from, latest first.
fn walk(graph: &Graph, nodes: std::ops::Range<usize>, found: &mut FxHashSet<NodeId>) {
    for index in nodes.rev() {
        let id = NodeId::new(index);
        let mut is_found = found.contains(&id);
        if let Some((_, targets)) = NodeCall::of(graph, id).and_then(write_of) {
            // What is written is computed from this, too.
            targets.iter().for_each(|arg| {
                graph.visit_nodes(*arg, &mut |target| is_found |= found.contains(&target));
            });
        }
        if is_found {
            graph.visit_inputs(id, &mut |input| {
                if is_differentiable(graph, input) {
                    found.insert(input);
                }
            });
        }
    }
}
