//! Nodes by id, for messages about graphs that may be broken: nothing here assumes an invariant,
//! and nested arguments are shown to a small depth only.

use std::fmt::Write;

use crate::arg::{Arg, ArgList};
use crate::graph::{Graph, NodeKind, Target};
use crate::ids::{NodeId, TextId};

/// How many nodes are shown on either side.
const REACH: usize = 3;

/// How deep nested arguments are shown.
const DEPTH: usize = 4;

/// The nodes around one (marked `>`), or the graph's last nodes and outputs.
pub(crate) fn neighbourhood(graph: &Graph, node: Option<NodeId>) -> String {
    let center = node.map_or(graph.len(), NodeId::index);
    let range = center.saturating_sub(REACH)..(center + REACH + 1).min(graph.len());
    let mut out = String::new();
    for index in range {
        let mark = if node.is_some() && index == center { '>' } else { ' ' };
        let line = raw_node(graph, NodeId::new(index));
        writeln!(out, "{mark} {line}").expect("writing to a string");
    }
    if node.is_none() {
        let outputs = raw_args(graph, graph.outputs, DEPTH);
        writeln!(out, "  return ({outputs})").expect("writing to a string");
    }
    out
}

fn raw_node(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.kind {
        NodeKind::Placeholder { source } => {
            format!("{id} = placeholder {}", raw_text(graph, source))
        }
        NodeKind::GetItem { of, index } => format!("{id} = {of}[{index}]"),
        NodeKind::Call { target, args, keywords } => {
            let target = match target {
                Target::Function { name, .. } => raw_text(graph, name),
                Target::Method { name, .. } => format!(".{}", raw_text(graph, name)),
                Target::Operator(operator) => format!("operator.{}", operator.name()),
                Target::GetAttr { name } => format!("getattr {}", raw_text(graph, name)),
                Target::Decide => "decide".to_owned(),
                Target::Catch => "catch".to_owned(),
            };
            let args = raw_args(graph, args, DEPTH);
            let names = graph.keywords.get(keywords.range()).unwrap_or_default();
            let names: Vec<String> = names.iter().map(|&name| raw_text(graph, name)).collect();
            if names.is_empty() {
                format!("{id} = {target}({args})")
            } else {
                format!("{id} = {target}({args}; {})", names.join(", "))
            }
        }
    }
}

fn raw_args(graph: &Graph, list: ArgList, depth: usize) -> String {
    let Some(args) = graph.args.get(list.range()) else { return format!("{list:?}?") };
    let args: Vec<String> = args.iter().map(|&arg| raw_arg(graph, arg, depth)).collect();
    args.join(", ")
}

fn raw_arg(graph: &Graph, arg: Arg, depth: usize) -> String {
    match arg {
        Arg::Node(node) => node.to_string(),
        Arg::Object(object) => object.to_string(),
        Arg::Constant(constant) => format!("{constant:?}"),
        Arg::List(_) | Arg::Tuple(_) | Arg::Dict(_) | Arg::Slice(_) if depth == 0 => "...".into(),
        Arg::List(items) => format!("[{}]", raw_args(graph, items, depth - 1)),
        Arg::Tuple(items) => format!("({})", raw_args(graph, items, depth - 1)),
        Arg::Dict(items) => format!("{{{}}}", raw_args(graph, items, depth - 1)),
        Arg::Slice(parts) => format!("slice({})", raw_args(graph, parts, depth - 1)),
    }
}

fn raw_text(graph: &Graph, id: TextId) -> String {
    graph.texts.get(id).map_or_else(|| id.to_string(), str::to_owned)
}
