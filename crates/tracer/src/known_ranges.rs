//! Integers that an operation draws between bounds: who reads one of them needs no question to know that it is an index.

use rustc_hash::FxHashSet;
use stator_graph::{Arg, Constant, Graph, NodeId};

use crate::constant_data::is_written;
use crate::raises::NodeCall;

/// The least and the greatest integer that a tensor may hold whose elements are read. `None`: nobody knows.
pub fn of_elements(graph: &Graph, node: NodeId) -> Option<(i64, i64)> {
    let call = NodeCall::of(graph, node)?;
    let is_given = |name: &str| call.keywords.iter().any(|given| graph.text(*given) == name);
    if call.is_users() || is_given("out") {
        return None;
    }
    let positional = &call.args[..call.args.len() - call.keywords.len()];
    let number = |at: usize| match positional.get(at) {
        Some(Arg::Constant(Constant::Int(number))) => Some(*number),
        _ => None,
    };
    let (low, high) = match call.name() {
        "torch.randperm" => (0, number(0)?),
        // Sizes come behind the bounds.
        "torch.randint" if is_given("low") || is_given("high") => return None,
        "torch.randint" if positional.get(1)?.elements().is_some() => (0, number(0)?),
        "torch.randint" => (number(0)?, number(1)?),
        _ => return None,
    };
    let tensors = FxHashSet::from_iter([node]);
    (low < high && !is_written(graph, node, &tensors)).then_some((low, high - 1))
}

/// As [`of_elements`], of what a node reads from a tensor.
pub fn of_reads(graph: &Graph, node: NodeId) -> Option<(i64, i64)> {
    let call = NodeCall::of(graph, node)?;
    match (call.operation(), call.args) {
        ("tolist" | "item", [Arg::Node(tensor)]) => of_elements(graph, *tensor),
        _ => None,
    }
}

/// The weights by which the integers were drawn that a node reads: each is less than there are weights in a row.
pub fn weights_of_reads(graph: &Graph, node: NodeId) -> Option<NodeId> {
    let read = NodeCall::of(graph, node)?;
    let drawn = match (read.operation(), read.args) {
        ("tolist" | "item", [Arg::Node(drawn)]) => *drawn,
        _ => return None,
    };
    let call = NodeCall::of(graph, drawn)?;
    let is_given = |name: &str| call.keywords.iter().any(|given| graph.text(*given) == name);
    let is_known = matches!(call.name(), "torch.multinomial" | "multinomial") && !call.is_users();
    match call.args.first()? {
        Arg::Node(weights) if is_known && !is_given("out") && !is_given("input") => {
            let tensors = FxHashSet::from_iter([drawn]);
            (!is_written(graph, drawn, &tensors)).then_some(*weights)
        }
        _ => None,
    }
}
