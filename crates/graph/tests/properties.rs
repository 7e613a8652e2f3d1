//! Properties of random graphs, and of the constants' printed forms.

mod common;

use std::collections::HashSet;

use common::tensor;
use proptest::prelude::*;
use stator_graph::names::Names;
use stator_graph::print::{graph_code, graph_sizes, graph_table, repr_float};
use stator_graph::{Arg, Graph, LastUse, NoSource, NodeId, NodeKind, Operator, Target, Value};

/// One recorded step: what to do, which earlier nodes to use, and the variable it's stored to.
type Step = (u8, Vec<u16>, Option<String>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let local = proptest::option::of(
        "[a-z_][a-z0-9_]{0,3}|sum|x_1|é|output|output_1|self|torch|_constant_0|_rf|getattr|x_18446744073709551615",
    );
    proptest::collection::vec(
        (0_u8..8, proptest::collection::vec(any::<u16>(), 1..4), local),
        0..60,
    )
}

fn build(steps: &[Step]) -> Graph {
    let mut graph = Graph::new();
    let mut values = vec![tensor(&mut graph, "L['x']", &[2])];
    for (number, (kind, picks, local)) in steps.iter().enumerate() {
        let at = graph.stack(None, 0, u32::try_from(number).unwrap());
        let args: Vec<Arg> =
            picks.iter().map(|&pick| Arg::Node(values[pick as usize % values.len()])).collect();
        let node = match kind {
            0 => tensor(&mut graph, &format!("L['p{number}']"), &[1, 2]),
            1 => graph.call(Target::Operator(Operator::Add), &[args[0], Arg::int(1)], Some(at)),
            2 => graph.call(Target::Operator(Operator::IMul), &[args[0], args[0]], Some(at)),
            3 => {
                let (list, name) = (graph.list(&args), graph.intern("torch.cat"));
                let object = graph.add_object("torch.cat");
                graph.call(Target::Function { name, object }, &[list], Some(at))
            }
            4 => {
                let name = graph.intern("T");
                graph.call(Target::GetAttr { name }, &args[..1], Some(at))
            }
            5 => {
                let (name, dim) = (graph.intern("sum"), graph.intern("dim"));
                let target = Target::Method { name, object: None };
                let inner = graph.tuple(&args);
                let outer = graph.tuple(&[inner, Arg::NONE]);
                graph.call_with_keywords(target, &[args[0], outer], &[dim], Some(at))
            }
            6 => {
                let name = graph.intern("max");
                let target = Target::Method { name, object: None };
                let max = graph.call(target, &args, Some(at));
                graph.set_value(max, Value::Structure(2));
                graph.get_item(max, 1)
            }
            _ => graph.call(Target::Operator(Operator::Neg), &args[..1], Some(at)),
        };
        if let Some(local) = local {
            graph.set_local_name(node, local);
        }
        values.push(node);
    }
    graph.set_outputs(&[Arg::Node(values[values.len() / 2]), Arg::Node(values[0])]);
    graph
}

fn reads(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    let mut found = Vec::new();
    graph.visit_inputs(node, &mut |input| found.push(input));
    found
}

proptest! {
    #[test]
    fn recorded_graphs_verify_and_print(steps in steps()) {
        let mut graph = build(&steps);
        graph.verify().unwrap();
        let code = graph_code(&graph, &NoSource);
        let calls = graph.nodes().filter(|(_, node)| !matches!(node.kind, NodeKind::Placeholder { .. }));
        prop_assert_eq!(code.lines().count(), calls.count() + 2);
        prop_assert_eq!(graph_table(&graph).lines().count(), graph.len() + 3);
        graph_sizes(&graph, "graph");
        let before = graph.placeholders().len();
        let removed = graph.remove_unused_placeholders().len();
        prop_assert_eq!(graph.placeholders().len() + removed, before);
        graph.verify().unwrap();
        prop_assert_eq!(graph.remove_unused_placeholders(), Vec::<usize>::new());
    }

    #[test]
    fn names_are_unique_identifiers(steps in steps()) {
        let graph = build(&steps);
        let names = Names::new(&graph);
        let mut seen = HashSet::new();
        for (id, _) in graph.nodes() {
            let name = names.get(id);
            prop_assert!(seen.insert(name), "{} twice", name);
            prop_assert!(!name.starts_with(|c: char| c.is_ascii_digit()));
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            prop_assert!(!["sum", "max", "getattr", "in", "is", "torch", "self"].contains(&name));
            prop_assert!(!name.starts_with("_constant_") && !name.starts_with("_rf"));
        }
        prop_assert!(seen.insert(names.output()));
    }

    #[test]
    fn last_uses_are_the_last(steps in steps()) {
        let graph = build(&steps);
        let uses = graph.last_uses();
        let counts = graph.use_counts();
        for (id, _) in graph.nodes() {
            let readers: Vec<NodeId> = graph
                .nodes()
                .map(|(reader, _)| reader)
                .filter(|&reader| reads(&graph, reader).contains(&id))
                .collect();
            let expected = if graph.outputs().contains(&Arg::Node(id)) {
                LastUse::Output
            } else {
                readers.last().map_or(LastUse::Unused, |&last| LastUse::Node(last))
            };
            prop_assert_eq!(uses.get(id), expected);
            prop_assert_eq!(counts[id.index()] == 0, expected == LastUse::Unused);
        }
    }

    #[test]
    fn floats_read_back(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let read: f64 = repr_float(value).parse().unwrap();
        prop_assert!(value.is_nan() && read.is_nan() || value.to_bits() == read.to_bits());
    }
}
