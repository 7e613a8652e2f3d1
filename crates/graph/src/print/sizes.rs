//! `graph_sizes`: the sizes of the graph's tensors, symbolic ones with the numbers they stood for.

use std::fmt::Write;

use crate::graph::Graph;
use crate::names::Names;
use crate::print::tuple_text;
use crate::tensor::Value;

/// The sizes of all tensors whose metadata was recorded, under a title with the graph's name.
pub fn graph_sizes(graph: &Graph, name: &str) -> String {
    let names = Names::new(graph);
    let mut out = format!("TRACED GRAPH TENSOR SIZES\n===== {name} =====\n");
    for id in graph.shown_nodes() {
        let Value::Tensor(meta) = graph.node(id).value else { continue };
        let sizes = graph.sizes(&meta);
        let concrete = tuple_text(sizes.iter().map(i64::to_string));
        let Some(symbolic) = graph.symbolic_sizes(id) else {
            writeln!(out, "{}: {concrete}", names.get(id)).expect("writing to a string");
            continue;
        };
        let symbolic = tuple_text(symbolic.iter().zip(sizes).map(|(symbol, size)| match symbol {
            Some(symbol) => graph.text(*symbol).to_owned(),
            None => size.to_string(),
        }));
        let name = names.get(id);
        writeln!(out, "{name}: {symbolic}\n{name} (concrete): {concrete}")
            .expect("writing to a string");
    }
    out
}
