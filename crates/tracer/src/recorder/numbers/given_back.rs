//! `contiguous()` and its like: they give their argument back, or copy it, as its strides have it.
//!
//! Where these follow from sizes, a guard keeps the answer. Where nobody can follow them, the node asks in each replay, and
//! what reads the result reads that node. Argument and result are one object to the recorded call, and may be two
//! tensors in the next. So whatever tells them apart fixes the sizes: a write to their memory, `is`, the result of the
//! function.

use pyo3::prelude::*;
use stator_cpython::object::Borrowed;
use stator_graph::NodeId;

use crate::recorder::notes::state::{Origin, State};
use crate::recorder::notes::symbols::TensorKey;

impl State {
    /// Whether a tensor was contiguous when the trace asked for one that is; it remains so, or not. `is_plain`: in the
    /// usual order of dimensions. The answer is whether nobody can say: the node that gave it back has to ask again.
    pub fn keep_contiguous(
        &mut self,
        tensor: Borrowed<'_, '_>,
        is_plain: bool,
        node: NodeId,
        is_given_back: bool,
    ) -> bool {
        if self.symbols.is_none() {
            return false;
        }
        let known = self.symbolic_strides(tensor).filter(|_| is_plain).zip(self.all_sizes(tensor));
        if known.and_then(|(strides, sizes)| self.decide_contiguous(&sizes, &strides)).is_some() {
            return false;
        }
        if self.follows_loose_strides(tensor) {
            self.fix_strides(tensor, "contiguous");
            return false;
        }
        let Some(Origin::Node(before)) = self.origin(tensor) else { return false };
        if !self.varies(before) {
            return false;
        }
        if !is_given_back {
            if let Some(symbols) = self.symbols.as_mut() {
                symbols.layouts.copied.push(node);
            }
            return false;
        }
        if let Some(sizes) = self.symbolic_sizes(tensor) {
            self.set_sizes(TensorKey::Node(node.index() as u32), sizes);
        }
        self.set_origin(tensor, Origin::Node(node));
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.layouts.given_back.push(node);
        }
        true
    }

    /// Whether a node is made of anything with symbolic sizes.
    fn varies(&self, node: NodeId) -> bool {
        let Some(symbols) = self.symbols.as_ref() else { return false };
        self.ancestors(node).into_iter().any(|next| {
            let key = TensorKey::Node(next.index() as u32);
            let outside = || self.placeholder_key(next);
            symbols.sizes.contains_key(&key)
                || outside().is_some_and(|key| symbols.sizes.contains_key(&key))
                || symbols.integer_of(next).is_some()
        })
    }

    /// The program asks whether an argument and what was given back for it are one: from here on the trace is for sizes for
    /// which they are.
    pub fn settle_given_back(&mut self, py: Python<'_>, asked: impl Fn(&Self, NodeId) -> bool) {
        let given_back = |state: &Self| {
            state.symbols.as_ref().map(|all| all.layouts.given_back.clone()).unwrap_or_default()
        };
        for node in given_back(self) {
            if asked(self, node) {
                self.fix_strides_of(py, node, "contiguous returned its argument");
                if let Some(symbols) = self.symbols.as_mut() {
                    symbols.layouts.given_back.retain(|known| *known != node);
                }
            }
        }
    }

    /// The program asks whether two tensors are one: so they are, or aren't, from here on.
    pub fn settle_identity(&mut self, left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) {
        let Some(symbols) = self.symbols.as_ref() else { return };
        let layouts = &symbols.layouts;
        let is_open =
            |node: &NodeId| layouts.given_back.contains(node) || layouts.copied.contains(node);
        let nodes = [left, right].into_iter().filter_map(|tensor| match self.origin(tensor) {
            Some(Origin::Node(node)) => Some(node).filter(is_open),
            _ => None,
        });
        for node in nodes.collect::<Vec<_>>() {
            self.fix_strides_of(left.py(), node, "identity of what contiguous returned");
        }
    }

    /// Whether two nodes may look at the same memory.
    pub fn may_share(&self, left: NodeId, right: NodeId) -> bool {
        self.looked_at(left) == self.looked_at(right)
    }
}
