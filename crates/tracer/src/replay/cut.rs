//! Where a graph is cut for backends other than the replay.
//!
//! Some nodes are Stator's own: decisions, reads of data, texts, what goes back through gradients, what sets a tensor's data
//! or gradient, code of the program's own that the trace has looked at. Others the backend is known to refuse (`refused`). A graph without any is one for the backend. One with some is cut there: each run of other nodes between
//! them is a *part*, which takes what it reads and gives what others read. The replay goes on being the program: it does
//! its own steps, and each part as one step.
//!
//! A part holds operations on tensors that give tensors, and nothing else. What switches PyTorch's state, what code of the
//! program's own does, and what is given a number that isn't a constant, stays a step of the replay. So does a run of
//! fewer than [`LEAST`] operations: to call code costs about as much.
//!
//! A backend that can do nothing but operations on tensors (CUDA graphs) gets parts of every graph.
//!
//! Backends make one step of a part in the graphs of gradients, too. Where a trace goes back through these ([`gradients`]), or
//! asks for the gradient of a tensor in its middle, that is to be seen by nobody.

use std::ops::Range;

use rustc_hash::FxHashSet;
use stator_graph::{Device, Graph, LastUse, LastUses, NodeId, NodeKind, Target, Value};

use super::gradients::{self, Back};
use super::refused::Compiler;
use crate::raises::{EARLY, MADE, NodeCall, THROUGH_PYTHON};
use crate::writes::{Written, write_of};

/// A part has so many operations at least that compute something: views and parts of results don't count.
pub const LEAST: usize = 3;

/// A cut graph.
pub struct Cut {
    /// In the order of the graph.
    pub parts: Vec<Part>,
}

/// A run of nodes.
pub struct Part {
    /// Their indices. Placeholders among them are none of the part's.
    pub nodes: Range<usize>,
    /// What they read that others make, ascending.
    pub inputs: Vec<NodeId>,
    /// What others read that they make, ascending: tensors.
    pub outputs: Vec<NodeId>,
}

impl Part {
    /// Its last node.
    #[must_use]
    pub fn last(&self) -> NodeId {
        NodeId::new(self.nodes.end - 1)
    }
}

impl Cut {
    /// Where a graph is cut; `None`: all of it is for the backend. `is_always`: the backend takes parts alone.
    /// `compiler`: whose it is.
    #[must_use]
    pub fn of(graph: &Graph, is_always: bool, compiler: Compiler) -> Option<Self> {
        let is_step = |id| is_own(graph, id) || compiler.refuses(graph, id);
        if !is_always && !graph.nodes().any(|(id, _)| is_step(id)) {
            return None;
        }
        let back = Back::of(graph);
        if back.is_repeated {
            // Other backends' code is gone through once.
            return Some(Self { parts: Vec::new() });
        }
        let last_uses = graph.last_uses();
        let asked = gradients::asked_of(graph);
        let device = if is_always { graph.accelerator() } else { None };
        let fits = |(id, _): (NodeId, _)| {
            may_be_part(graph, id)
                && !compiler.refuses(graph, id)
                && (asked.is_empty() || !writes(graph, id))
                && device.is_none_or(|device| is_on(graph, id, device))
        };
        let mut fits: Vec<bool> = graph.nodes().map(fits).collect();
        let runs = loop {
            let runs = runs(graph, &fits, &asked);
            let odd = |run: &Range<usize>| odd_outputs(graph, &last_uses, run);
            let odd: Vec<usize> = runs.iter().flat_map(odd).collect();
            if odd.is_empty() {
                break runs;
            }
            odd.into_iter().for_each(|index| fits[index] = false);
        };
        let parts = runs.into_iter().filter(|run| is_worth_it(graph, run));
        let parts = parts.map(|nodes| Part {
            inputs: inputs(graph, &nodes),
            outputs: outputs(graph, &last_uses, &nodes),
            nodes,
        });
        Some(Self { parts: parts.filter(|part| back.allows(graph, part)).collect() })
    }
}

/// What tensors are asked for their data by. Of metadata (`size`, `numel`) is known what it is when a call begins.
const READS: &[&str] = &["item", "tolist", "__float__", "__int__"];

/// Whether only Stator knows what a node does.
fn is_own(graph: &Graph, id: NodeId) -> bool {
    let Some(call) = NodeCall::of(graph, id) else { return false };
    match call.target {
        Target::Decide | Target::Catch => return true,
        Target::GetAttr { .. } if call.name() == "grad" => return true,
        _ => {}
    }
    let value = graph.node(id).value;
    let name = call.name();
    let is_clock = || name.starts_with("time.") && matches!(value, Value::Integer | Value::Float);
    name.starts_with(MADE)
        || name.starts_with(THROUGH_PYTHON)
        || name == EARLY
        || gradients::goes_back(call)
        || call.is_check()
        || call.is_of_arrays()
        || call.operation().contains("record_function")
        || [".grad.__", ".data.__", ".requires_grad.__"].iter().any(|part| name.contains(part))
        || READS.contains(&call.operation())
        || value == Value::Text
        || is_clock()
}

/// Whether a node may be one of a part.
fn may_be_part(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let gives_tensors = matches!(node.value, Value::Tensor(_) | Value::Structure(_));
    if let NodeKind::GetItem { .. } = node.kind {
        return gives_tensors;
    }
    let Some(call) = NodeCall::of(graph, id) else { return false };
    if is_own(graph, id) || call.is_users() || call.is_switch() || NodeCall::is_caught(graph, id) {
        return false;
    }
    let written = write_of(call).map(|(written, _)| written);
    if written.is_some_and(|written| written != Written::DATA) {
        return false;
    }
    let mut reads_others = false;
    graph.visit_inputs(id, &mut |input| {
        let value = graph.node(input).value;
        reads_others |= !matches!(value, Value::Tensor(_) | Value::Structure(_));
    });
    !reads_others && (gives_tensors || (node.value == Value::Nothing && written.is_some()))
}

/// Whether all tensors that a node reads and gives are on a device.
fn is_on(graph: &Graph, id: NodeId, device: Device) -> bool {
    let is_there = |id: NodeId| match graph.node(id).value {
        Value::Tensor(meta) => meta.device == device,
        _ => true,
    };
    let mut are_there = is_there(id);
    graph.visit_inputs(id, &mut |input| are_there &= is_there(input));
    are_there
}

/// Whether a node writes to a tensor.
fn writes(graph: &Graph, id: NodeId) -> bool {
    NodeCall::of(graph, id).is_some_and(|call| write_of(call).is_some())
}

/// The runs of nodes that fit; one ends behind each node of `ends`.
fn runs(graph: &Graph, fits: &[bool], ends: &FxHashSet<NodeId>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut is_open = false;
    for (id, node) in graph.nodes() {
        let index = id.index();
        let of_run = |of: NodeId| runs.last().is_some_and(|run| run.contains(&of.index()));
        match node.kind {
            NodeKind::Placeholder { .. } => continue,
            NodeKind::GetItem { of, .. } if !(is_open && of_run(of)) => {
                is_open = false;
                continue;
            }
            _ => {}
        }
        if !fits[index] {
            is_open = false;
            continue;
        }
        match runs.last_mut() {
            Some(run) if is_open => run.end = index + 1,
            _ => runs.push(index..index + 1),
        }
        is_open = !ends.contains(&id);
    }
    runs
}

fn is_output(last_uses: &LastUses, nodes: &Range<usize>, id: NodeId) -> bool {
    match last_uses.get(id) {
        LastUse::Unused => false,
        LastUse::Node(reader) => reader.index() >= nodes.end,
        LastUse::Output => true,
    }
}

/// The calls and parts of results among these nodes.
fn own_nodes<'a>(graph: &'a Graph, nodes: &Range<usize>) -> impl Iterator<Item = NodeId> + use<'a> {
    let is_own = |id: &NodeId| !matches!(graph.node(*id).kind, NodeKind::Placeholder { .. });
    nodes.clone().map(NodeId::new).filter(is_own)
}

fn outputs(graph: &Graph, last_uses: &LastUses, nodes: &Range<usize>) -> Vec<NodeId> {
    own_nodes(graph, nodes).filter(|id| is_output(last_uses, nodes, *id)).collect()
}

/// What others read of these nodes that isn't a tensor.
fn odd_outputs(graph: &Graph, last_uses: &LastUses, nodes: &Range<usize>) -> Vec<usize> {
    let outputs = outputs(graph, last_uses, nodes);
    let is_odd = |id: &NodeId| !matches!(graph.node(*id).value, Value::Tensor(_));
    outputs.into_iter().filter(is_odd).map(NodeId::index).collect()
}

fn inputs(graph: &Graph, nodes: &Range<usize>) -> Vec<NodeId> {
    let mut inputs = Vec::new();
    for id in own_nodes(graph, nodes) {
        graph.visit_inputs(id, &mut |input| {
            let is_placeholder = matches!(graph.node(input).kind, NodeKind::Placeholder { .. });
            if is_placeholder || !nodes.contains(&input.index()) {
                inputs.push(input);
            }
        });
    }
    inputs.sort_unstable();
    inputs.dedup();
    inputs
}

fn is_worth_it(graph: &Graph, nodes: &Range<usize>) -> bool {
    let computes = |id: NodeId| NodeCall::of(graph, id).is_some_and(|call| !call.is_view());
    own_nodes(graph, nodes).filter(|id| computes(*id)).count() >= LEAST
}
