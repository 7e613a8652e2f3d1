//! Random numbers that nobody uses: a compiler leaves out the operations that draw them, and the generator would stand
//! elsewhere behind the call. So what they give is a result of the graph.

use stator_graph::{Graph, NodeId, NodeKind, Value};
use stator_operators::torch::draws_numbers;

use crate::raises::NodeCall;
use crate::recipe::GraphOutputs;

/// Makes outputs of the tensors of random numbers on which no output depends.
pub(super) fn keep_drawn(graph: &Graph, outputs: &mut GraphOutputs) {
    let mut unused = Vec::new();
    for (id, node) in graph.nodes() {
        let draws = NodeCall::of(graph, id).is_some_and(|call| draws_numbers(call.operation()));
        if draws && matches!(node.value, Value::Tensor(_)) {
            unused.push(id);
        }
    }
    if unused.is_empty() {
        return;
    }
    let mut used = vec![false; graph.nodes().len()];
    for output in outputs.nodes() {
        graph.visit_nodes(*output, &mut |node| used[node.index()] = true);
    }
    for index in (0..used.len()).rev() {
        if used[index] {
            graph.visit_inputs(NodeId::new(index), &mut |input| used[input.index()] = true);
        }
    }
    for id in unused {
        if !used[id.index()] && !fills_used(graph, id, &used) {
            outputs.recipe(id);
        }
    }
}

/// Whether an operation writes its numbers into a tensor from outside, or one that is used.
fn fills_used(graph: &Graph, id: NodeId, used: &[bool]) -> bool {
    let Some(call) = NodeCall::of(graph, id) else { return false };
    if !call.operation().ends_with('_') {
        return false;
    }
    // Through views, up to what they are of.
    let mut filled = id;
    loop {
        let mut first = None;
        graph.visit_inputs(filled, &mut |input| first = first.or(Some(input)));
        let Some(first) = first else { return false };
        let is_outside = matches!(graph.node(first).kind, NodeKind::Placeholder { .. });
        if is_outside || used[first.index()] {
            return true;
        }
        filled = first;
    }
}
