//! Tensors of a graph whose data is the same in every replay, so that reading it needs no guard and no break:
//! made of constants alone, by operations that have no state (`torch.ones(2, 3).bool().all()`).
//!
//! Two facts are followed. What is *exact* has the recorded data, to the last element. What is *uniform* consists of
//! zeros or of ones, however large it is: its sizes may follow inputs, and symbols. Operations stand in closed lists.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_graph::{Arg, Constant, Graph, NodeId, Value};

use crate::raises::Call;
use crate::writes::{Written, write_of};

/// What is known of a tensor's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Exact,
    /// All elements are zero, or all are one. There may be none.
    Uniform(bool),
}

/// They make tensors of numbers alone.
const MAKERS: &str = "arange eye full linspace ones scalar_tensor tensor zeros";

/// They follow from their arguments alone, element by element or as a whole.
const DETERMINED: &str = "abs add all amax amin and any bitwise_and bitwise_not bitwise_or bitwise_xor cat clamp \
    clone concat constant_pad_nd cumsum diff eq flip full_like ge greater greater_equal gt interpolate invert le \
    less less_equal logical_and logical_not logical_or logical_xor lt masked_fill max maximum min minimum mul \
    multiply ne neg negative new_full new_ones new_zeros not not_equal ones_like or outer pad repeat roll stack sub \
    subtract sum tril triu upsample_nearest1d upsample_nearest2d upsample_nearest3d where xor zeros_like";

/// Their result holds what the first argument holds: all of it, or a part.
const PARTS: &str = "bfloat16 bool broadcast_to byte clone contiguous cpu detach diagonal double expand expand_as flatten \
    float flip getitem half int long movedim moveaxis narrow permute repeat reshape reshape_as roll select squeeze \
    swapaxes swapdims t to transpose type_as unflatten unsqueeze view view_as";

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

fn is_in(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|known| known == name)
}

fn fact_of(graph: &Graph, node: NodeId, known: &FxHashMap<NodeId, Known>) -> Option<Known> {
    let call = Call::of(graph, node)?;
    if call.is_users() || write_of(call).is_some() {
        return None;
    }
    let name = call.operation().trim_matches('_');
    let made = is_in(MAKERS, name) && !call.args.first().is_some_and(|arg| has_object(graph, *arg));
    if made || is_in(DETERMINED, name) || is_in(PARTS, name) {
        let mut exact = true;
        graph.visit_inputs(node, &mut |input| exact &= known.get(&input) == Some(&Known::Exact));
        if exact {
            return Some(Known::Exact);
        }
    }
    let of_first = || match call.args.first() {
        Some(Arg::Node(first)) => match known.get(first) {
            Some(Known::Uniform(ones)) => Some(*ones),
            _ => None,
        },
        _ => None,
    };
    let uniform = match name {
        "ones" | "ones_like" | "new_ones" => Some(true),
        "zeros" | "zeros_like" | "new_zeros" => Some(false),
        "full" | "full_like" | "new_full" => fill(call),
        // Of no elements, `all` is true and `any` is false.
        "all" | "any" => of_first().filter(|ones| *ones == (name == "all")),
        _ if is_in(PARTS, name) => of_first(),
        _ => None,
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
fn fill(call: Call<'_>) -> Option<bool> {
    let positional = call.args.len() - call.keywords.len();
    let named = call.keywords.iter().position(|name| call.graph.text(*name) == "fill_value");
    let value = match named {
        Some(at) => call.args.get(positional + at)?,
        None if positional == 2 + usize::from(call.operation() == "new_full") => {
            call.args.get(positional - 1)?
        }
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
fn is_written(graph: &Graph, first: NodeId, tensors: &FxHashSet<NodeId>) -> bool {
    graph.nodes().skip(first.index()).any(|(id, _)| {
        let Some(call) = Call::of(graph, id) else { return false };
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
