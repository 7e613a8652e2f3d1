//! Tensors of a graph whose data is the same in every replay, so that reading it needs no guard and no break:
//! made of constants alone, by operations that have no state (`torch.ones(2, 3).bool().all()`).
//!
//! Two facts are followed. What is *exact* has the recorded data, to the last element. What is *uniform* consists of
//! zeros or of ones, however large it is: its sizes may follow inputs, and symbols. What operations make of
//! either stands in the operator table (`crates/operators/src/data.rs`).

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_graph::{Arg, Constant, Graph, NodeId, Value};
use stator_operators::{DataOrigin, Uniform, data};

use crate::raises::NodeCall;
use crate::writes::{Written, write_of};

/// What is known of a tensor's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Exact,
    /// All elements are zero, or all are one. There may be none.
    Uniform(bool),
}

/// Looking stops at what was made of more nodes than this.
const MOST: usize = 256;

/// Whether a tensor that a node gave has the same data in every replay.
pub fn is_known(graph: &Graph, node: NodeId) -> bool {
    let Value::Tensor(meta) = graph.node(node).value else { return false };
    let Some(made_of) = ancestors(graph, [node], MOST) else { return false };
    let mut nodes: Vec<_> = made_of.iter().copied().collect();
    nodes.sort_unstable_by_key(|node| node.index());
    let mut known = FxHashMap::default();
    for &node in &nodes {
        if let Some(fact) = fact_of(graph, node, &known) {
            known.insert(node, fact);
        }
    }
    let is_known = match known.get(&node) {
        Some(Known::Exact) => true,
        // With dimensions there may be no elements, or others than the recorded ones.
        Some(Known::Uniform(_)) => graph.sizes(&meta).is_empty(),
        None => false,
    };
    is_known && !is_written(graph, nodes[0], &made_of)
}

fn fact_of(graph: &Graph, node: NodeId, known: &FxHashMap<NodeId, Known>) -> Option<Known> {
    let call = NodeCall::of(graph, node)?;
    if call.is_users()
        || call.is_of_arrays()
        || call.is_of_array_values()
        || write_of(call).is_some()
    {
        return None;
    }
    let data = data(call.operation())?;
    let follows = match data.origin {
        DataOrigin::Numbers => !call.args.first().is_some_and(|arg| has_object(graph, *arg)),
        DataOrigin::Arguments => true,
    };
    if follows {
        let mut exact = true;
        graph.visit_inputs(node, &mut |input| exact &= known.get(&input) == Some(&Known::Exact));
        if exact {
            return Some(Known::Exact);
        }
    }
    let first = match call.args.first() {
        Some(Arg::Node(first)) => Some(*first),
        _ => None,
    };
    let of_first = || match known.get(&first?) {
        Some(Known::Uniform(ones)) => Some(*ones),
        _ => None,
    };
    let dtype_of = |node| match graph.node(node).value {
        Value::Tensor(meta) => Some(meta.dtype),
        _ => None,
    };
    let uniform = match data.uniform {
        Uniform::Unknown => None,
        Uniform::Always(ones) => Some(ones),
        Uniform::Filled(place) => fill(call, place),
        Uniform::Part => of_first(),
        Uniform::Bytes => of_first().filter(|_| first.and_then(dtype_of) == dtype_of(node)),
        Uniform::Neutral(ones) => of_first().filter(|found| *found == ones),
    };
    uniform.map(Known::Uniform)
}

/// Whether an argument holds an object that isn't a number or tensor: it may hold data of its own.
fn has_object(graph: &Graph, arg: Arg) -> bool {
    match arg {
        Arg::Object(_) => true,
        arg => arg
            .elements()
            .is_some_and(|parts| graph.args(parts).iter().any(|part| has_object(graph, *part))),
    }
}

/// The number that a tensor is filled with, if it is zero or one.
fn fill(call: NodeCall<'_>, place: usize) -> Option<bool> {
    let positional = call.args.len() - call.keywords.len();
    let named = call.keywords.iter().position(|name| call.graph.text(*name) == "fill_value");
    let value = match named {
        Some(at) => call.args.get(positional + at)?,
        None if positional == place + 1 => call.args.get(place)?,
        None => return None,
    };
    match value {
        Arg::Constant(Constant::Bool(value)) => Some(*value),
        Arg::Constant(Constant::Int(value @ (0 | 1))) => Some(*value == 1),
        Arg::Constant(Constant::Float(value)) if *value == 0.0 || *value == 1.0 => {
            Some(*value == 1.0)
        }
        _ => None,
    }
}

/// What nodes were made of, themselves included. `None`: of more than so many.
fn ancestors(
    graph: &Graph,
    nodes: impl IntoIterator<Item = NodeId>,
    most: usize,
) -> Option<FxHashSet<NodeId>> {
    let mut pending: Vec<_> = nodes.into_iter().collect();
    let mut found = FxHashSet::default();
    while let Some(node) = pending.pop() {
        if found.insert(node) {
            graph.visit_inputs(node, &mut |input| pending.push(input));
        }
        if found.len() > most {
            return None;
        }
    }
    Some(found)
}

/// Whether something may have written to one of these tensors since the first was made. Memory is shared only by
/// what was made of one another.
pub fn is_written(graph: &Graph, first: NodeId, tensors: &FxHashSet<NodeId>) -> bool {
    graph.nodes().skip(first.index()).any(|(id, _)| {
        let Some(call) = NodeCall::of(graph, id) else { return false };
        if matches!(call.operation(), "item" | "tolist") && !call.is_users() {
            return false;
        }
        let targets = match write_of(call) {
            Some((Written::DATA, targets)) => targets,
            // It may get the memory of any other tensor.
            Some(_) => return true,
            None if call.may_write() => SmallVec::from_slice(call.args),
            None => return false,
        };
        let mut written = Vec::new();
        targets.iter().for_each(|arg| graph.visit_nodes(*arg, &mut |id| written.push(id)));
        match ancestors(graph, written, usize::MAX) {
            Some(ancestors) => ancestors.iter().any(|node| tensors.contains(node)),
            None => true,
        }
    })
}
