//! A part of a graph as a graph of its own.
//!
//! Nodes keep their ids: what a part's node raises, and where it stands, is the whole graph's business. Nodes outside the
//! part are taken out, as placeholders that nothing reads are.

use std::ops::Range;

use crate::arg::Arg;
use crate::graph::{Graph, NodeKind};
use crate::ids::NodeId;
use crate::names::Names;

impl Graph {
    /// The nodes with these indices as a graph that takes what they read (`inputs`, ascending) and hands `outputs` back.
    /// An input that isn't a placeholder of this graph is named as the node that makes it is. `names`: those of this graph.
    #[must_use]
    pub fn part(
        &self,
        names: &Names,
        nodes: Range<usize>,
        inputs: &[NodeId],
        outputs: &[NodeId],
    ) -> Self {
        let mut part = self.clone();
        let nothing = part.intern("");
        let mut calls = 0;
        for index in 0..part.nodes.len() {
            let id = NodeId::new(index);
            let is_call = matches!(part.nodes[index].kind, NodeKind::Call { .. });
            let is_placeholder = matches!(part.nodes[index].kind, NodeKind::Placeholder { .. });
            if inputs.binary_search(&id).is_ok() {
                if !is_placeholder {
                    let source = part.intern(names.get(id));
                    part.nodes[index].kind = NodeKind::Placeholder { source };
                    part.nodes[index].stack = None;
                }
            } else if is_placeholder || !nodes.contains(&index) {
                part.nodes[index].kind = NodeKind::Placeholder { source: nothing };
            } else {
                calls += usize::from(is_call);
            }
        }
        part.calls = calls;
        part.placeholders = inputs.to_vec();
        part.has_withdrawn = true;
        let outputs: Vec<Arg> = outputs.iter().map(|output| Arg::Node(*output)).collect();
        part.set_outputs(&outputs);
        part
    }
}

#[cfg(test)]
mod tests {
    use crate::names::Names;
    use crate::print::graph_code;
    use crate::stack::NoSource;
    use crate::{Arg, Graph, Operator, Target, Value};

    #[test]
    fn a_part_takes_what_it_reads_and_gives_what_others_read() {
        let mut graph = Graph::new();
        let x = graph.placeholder("L['x']", Value::Unknown);
        let mul = graph.call(Target::Operator(Operator::Mul), &[Arg::Node(x), Arg::int(2)], None);
        graph.set_local_name(mul, "doubled");
        let y = graph.placeholder("L['y']", Value::Unknown);
        let add =
            graph.call(Target::Operator(Operator::Add), &[Arg::Node(mul), Arg::Node(y)], None);
        let sub = graph.call(Target::Operator(Operator::Sub), &[Arg::Node(add), Arg::int(1)], None);
        graph.set_outputs(&[Arg::Node(sub)]);
        let part = graph.part(&Names::new(&graph), 3..5, &[mul, y], &[sub]);
        part.verify().unwrap();
        assert_eq!(part.call_count(), 2);
        assert_eq!(
            graph_code(&part, &NoSource),
            "def forward(doubled: torch.Tensor, l_y_: torch.Tensor):\n    add = doubled + l_y_\n    \
             sub = add - 1\n    return (sub,)\n"
        );
        // The whole graph is as before.
        assert_eq!(graph.call_count(), 3);
        graph.verify().unwrap();
    }
}
