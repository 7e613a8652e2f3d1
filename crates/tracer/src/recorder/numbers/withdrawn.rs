//! Numbers whose nodes were withdrawn, with the code of the program's own that runs within a node.

use stator_graph::{Graph, NodeId};

use crate::recorder::notes::symbols::{Made, Symbols};

impl Symbols {
    /// Forgets the nodes from the one with this index on, unless they are inputs: who needs one makes another.
    pub fn forget_nodes(&mut self, from: usize, graph: &Graph) {
        let is_gone = |node: NodeId| node.index() >= from && graph.is_withdrawn(node);
        for entry in &mut self.entries {
            let is_made = matches!(entry.made, Made::Element { .. } | Made::Call { .. });
            if is_made && entry.node.is_some_and(is_gone) {
                entry.node = None;
            }
        }
        self.elements.retain(|_, node| !is_gone(*node));
    }
}
