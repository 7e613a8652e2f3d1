//! One broken graph for each invariant that the recording interface lets one break.

mod common;

use common::{contiguous, function, method, mse, operator, tensor};
use insta::assert_snapshot;
use stator_graph::{Arg, Graph, NodeId, Operator, Problem, Target, Value};

fn problem(graph: &Graph) -> Problem {
    graph.verify().expect_err("a broken graph").problem
}

/// A graph with one placeholder.
fn start() -> (Graph, NodeId, stator_graph::StackId) {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[4]);
    let at = graph.stack(None, 0, 1);
    (graph, x, at)
}

#[test]
fn the_message_shows_the_neighbourhood() {
    let (mut graph, _) = mse();
    let at = graph.stack(None, 0, 9);
    let later = NodeId::new(9);
    operator(&mut graph, Operator::Add, &[Arg::Node(later), Arg::int(1)], at);
    method(&mut graph, "relu", &[Arg::int(0)], at);
    assert_snapshot!(graph.verify().unwrap_err(), @r"
    graph node %5: 1: reads %9, which isn't before it
      %2 = operator.sub(%0, %1)
      %3 = operator.pow(%2, Int(2))
      %4 = .sum(%3)
    > %5 = operator.add(%9, Int(1))
      %6 = .relu(Int(0))
    ");
}

#[test]
fn reads() {
    let (mut graph, x, at) = start();
    graph.set_outputs(&[Arg::Node(NodeId::new(1))]);
    assert_eq!(problem(&graph), Problem::ReadsLaterNode(NodeId::new(1)));
    let itself = NodeId::new(1);
    operator(&mut graph, Operator::Neg, &[Arg::Node(itself)], at);
    assert_eq!(problem(&graph), Problem::ReadsLaterNode(itself));

    let (mut graph, ..) = start();
    let set =
        operator(&mut graph, Operator::SetItem, &[Arg::Node(x), Arg::int(0), Arg::int(1)], at);
    graph.set_value(set, Value::Nothing);
    let list = graph.list(&[Arg::Node(x), Arg::Node(set)]);
    graph.set_outputs(&[list]);
    assert_eq!(problem(&graph), Problem::ReadsNothing(set));
}

#[test]
fn placeholders() {
    let (mut graph, ..) = start();
    tensor(&mut graph, "L['x']", &[4]);
    assert_eq!(problem(&graph), Problem::SourceTwice("L['x']".to_owned()));
}

#[test]
fn targets() {
    let (mut graph, x, at) = start();
    operator(&mut graph, Operator::Add, &[Arg::Node(x)], at);
    assert_eq!(problem(&graph), Problem::Operands { expected: 2, found: 1 });

    let (mut graph, x, at) = start();
    let key = graph.intern("other");
    let add = Target::Operator(Operator::Add);
    graph.call_with_keywords(add, &[Arg::Node(x), Arg::int(1)], &[key], Some(at));
    assert_eq!(problem(&graph), Problem::OperatorWithKeywords);

    let (mut graph, x, at) = start();
    let name = graph.intern("view");
    let view = Target::Method { name, object: None };
    graph.call_with_keywords(view, &[Arg::Node(x)], &[name], Some(at));
    assert_eq!(problem(&graph), Problem::MethodWithoutSelf);

    let (mut graph, x, at) = start();
    let name = graph.intern("T");
    graph.call(Target::GetAttr { name }, &[Arg::Node(x), Arg::int(0)], Some(at));
    assert_eq!(problem(&graph), Problem::AttributeArguments(2));

    let (mut graph, x, at) = start();
    let dim = graph.intern("dim");
    let sum = Target::Method { name: dim, object: None };
    graph.call_with_keywords(sum, &[Arg::Node(x), Arg::int(0), Arg::int(0)], &[dim, dim], Some(at));
    assert_eq!(problem(&graph), Problem::KeywordTwice("dim".to_owned()));
}

#[test]
fn elements() {
    let (mut graph, x, at) = start();
    graph.get_item(x, 0);
    assert_eq!(problem(&graph), Problem::NoSuchElement { of: x, index: 0 });

    let (mut graph, x, at2) = start();
    assert_eq!(at, at2);
    let max = function(&mut graph, "torch.max", &[Arg::Node(x), Arg::int(0)], at);
    graph.set_value(max, Value::Structure(2));
    graph.get_item(max, 1);
    graph.verify().unwrap();
    graph.get_item(max, 2);
    assert_eq!(problem(&graph), Problem::NoSuchElement { of: max, index: 2 });
}

#[test]
fn metadata() {
    let (mut graph, ..) = start();
    tensor(&mut graph, "L['y']", &[-1]);
    assert_eq!(problem(&graph), Problem::NegativeSize(-1));

    let (mut graph, x, _) = start();
    graph.set_symbolic_sizes(x, &[None, None]);
    assert_eq!(problem(&graph), Problem::SymbolicRank { rank: 1, found: 2 });

    let (mut other, x, _) = start();
    let foreign = contiguous(&mut graph, &[1, 2, 3]);
    other.set_tensor(x, foreign);
    assert_eq!(problem(&other), Problem::DimsOutsidePool);
}

#[test]
fn ids_of_another_graph() {
    let (mut rich, x, _) = start();
    let (object, text) = (rich.add_object("torch.float32"), rich.intern("a string"));
    let list = rich.list(&[Arg::Node(x), Arg::Node(x), Arg::Node(x)]);
    let at = rich.stack(None, 0, 2);

    let (mut graph, x, _) = start();
    method(&mut graph, "relu", &[Arg::Node(x)], at);
    assert_eq!(problem(&graph), Problem::UnknownStack(at));

    let (mut graph, _, at) = start();
    method(&mut graph, "relu", &[Arg::Object(object)], at);
    assert_eq!(problem(&graph), Problem::UnknownObject(object));

    let (mut graph, x, at) = start();
    graph.call(Target::GetAttr { name: text }, &[Arg::Node(x)], Some(at));
    assert_eq!(problem(&graph), Problem::UnknownText(text));

    let (mut graph, x, _) = start();
    graph.set_outputs(&[Arg::Node(x), list]);
    assert_eq!(problem(&graph), Problem::NestedAfterParent);

    let (mut graph, x, _) = start();
    graph.set_local_name(x, "");
    assert_eq!(problem(&graph), Problem::EmptyLocalName);
}
