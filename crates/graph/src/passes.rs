//! Small analyses and changes of finished graphs. Each is one pass over the nodes.

use crate::graph::{Graph, NodeKind};
use crate::ids::NodeId;

/// The last reader of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastUse {
    /// Nothing reads it: it is dead when it is made.
    Unused,
    /// It is dead after this node.
    Node(NodeId),
    /// The graph hands it back.
    Output,
}

/// The last reader of each node's value.
#[derive(Clone, Debug)]
pub struct LastUses {
    uses: Vec<LastUse>,
}

impl LastUses {
    /// The last reader of a node's value.
    pub fn get(&self, node: NodeId) -> LastUse {
        self.uses[node.index()]
    }

    /// All nodes with their last readers.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, LastUse)> + '_ {
        self.uses.iter().enumerate().map(|(index, &last)| (NodeId::new(index), last))
    }
}

impl Graph {
    /// Where each value dies.
    pub fn last_uses(&self) -> LastUses {
        let mut uses = vec![LastUse::Unused; self.len()];
        for (id, _) in self.nodes() {
            self.visit_inputs(id, &mut |input| uses[input.index()] = LastUse::Node(id));
        }
        for &output in self.outputs() {
            self.visit_nodes(output, &mut |node| uses[node.index()] = LastUse::Output);
        }
        LastUses { uses }
    }

    /// How often each node is read by others and by the outputs.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.len()];
        for (id, _) in self.nodes() {
            self.visit_inputs(id, &mut |input| counts[input.index()] += 1);
        }
        for &output in self.outputs() {
            self.visit_nodes(output, &mut |node| counts[node.index()] += 1);
        }
        counts
    }

    /// Takes placeholders that nothing reads out of [`Graph::placeholders`], and returns the
    /// positions they had there, ascending, so that the caller can drop the same inputs.
    ///
    /// Their nodes stay where they are (ids are stable), but no listing shows them.
    pub fn remove_unused_placeholders(&mut self) -> Vec<usize> {
        let uses = self.last_uses();
        let is_unused = |node: &NodeId| uses.get(*node) == LastUse::Unused;
        let positions = |(position, node): (usize, &NodeId)| is_unused(node).then_some(position);
        let removed = self.placeholders.iter().enumerate().filter_map(positions).collect();
        self.placeholders.retain(|node| !is_unused(node));
        removed
    }

    /// The nodes that listings show: the placeholders that are still taken, then the others in
    /// order.
    pub fn shown_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let others = self.nodes().filter_map(|(id, node)| {
            (!matches!(node.kind, NodeKind::Placeholder { .. })).then_some(id)
        });
        self.placeholders.iter().copied().chain(others)
    }
}
