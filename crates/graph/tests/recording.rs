//! Recording in bulk: 100,000 nodes go in one by one, and each form of the graph stays linear.
//! (`cargo test --release -p stator-graph --test recording -- --nocapture` prints the times.)

mod common;

use std::time::Instant;

use common::tensor;
use stator_graph::{Arg, Device, Graph, NoSource, Operator, Target, print};

const NODES: u32 = 100_000;

#[test]
fn a_hundred_thousand_nodes() {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[4, 4]);
    let object = graph.add_object("torch.nn.functional.linear");
    let mut last = x;
    let start = Instant::now();
    for number in 0..NODES {
        let at = graph.stack(None, 0, number / 4);
        let name = graph.intern("torch.nn.functional.linear");
        let target = match number % 2 {
            0 => Target::Operator(Operator::Add),
            _ => Target::Function { name, object },
        };
        last = graph.call(target, &[Arg::Node(last), Arg::Node(x)], Some(at));
        let meta = graph.tensor_meta(common::FLOAT32, Device::CPU, &[4, 4], &[4, 1], false);
        graph.set_tensor(last, meta);
        if number % 3 == 0 {
            graph.set_local_name(last, "y");
        }
    }
    report("append", start);
    graph.set_outputs(&[Arg::Node(last)]);

    let start = Instant::now();
    graph.verify().unwrap();
    report("verify", start);
    let start = Instant::now();
    graph.last_uses();
    report("last uses", start);
    let start = Instant::now();
    let code = print::graph_code(&graph, &NoSource);
    report("graph_code", start);
    assert_eq!(code.lines().count(), NODES as usize + 2);
    assert!(code.contains(" = torch.nn.functional.linear(y_"));
}

fn report(what: &str, start: Instant) {
    println!("{what}: {:.0} ns a node", start.elapsed().as_nanos() as f64 / f64::from(NODES));
}
