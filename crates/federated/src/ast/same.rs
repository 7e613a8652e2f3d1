//! Comparing, hashing and dropping trees, without recursion.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashSet, FxHasher};

use super::{BlockKind, BuildingBlock, Compiled, Node};
use crate::placement::Placement;
use crate::types::Type;

/// The hash of a block from those of the blocks directly below it.
pub(super) fn shallow_hash(kind: &BlockKind, ty: &Type) -> u64 {
    let mut state = FxHasher::default();
    std::mem::discriminant(kind).hash(&mut state);
    ty.hash(&mut state);
    let state = &mut state;
    match kind {
        BlockKind::Reference(reference) => reference.name.hash(state),
        BlockKind::Selection(selection) => {
            selection.source.0.hash.hash(state);
            selection.key.hash(state);
        }
        // The type has the names.
        BlockKind::Struct(structure) => {
            for (_, value) in &structure.elements {
                value.0.hash.hash(state);
            }
        }
        BlockKind::Call(call) => {
            call.function.0.hash.hash(state);
            call.argument.as_ref().map(|argument| argument.0.hash).hash(state);
        }
        BlockKind::Lambda(lambda) => {
            lambda.parameter.as_ref().map(|(name, _)| name).hash(state);
            lambda.result.0.hash.hash(state);
        }
        BlockKind::Block(block) => {
            for (name, value) in &block.locals {
                name.hash(state);
                value.0.hash.hash(state);
            }
            block.result.0.hash.hash(state);
        }
        BlockKind::Intrinsic(uri) => uri.hash(state),
        BlockKind::Data(data) => data.hash(state),
        BlockKind::Placement(placement) => placement.hash(state),
        BlockKind::Literal(array) => array.hash(state),
        BlockKind::Compiled(compiled) => compiled.name.hash(state),
    }
    state.finish()
}

impl PartialEq for BuildingBlock {
    /// Equal structure; a reference equals only itself, because a name says nothing about what it
    /// is bound to.
    fn eq(&self, other: &Self) -> bool {
        let mut seen: FxHashSet<(usize, usize)> = FxHashSet::default();
        let mut pairs = vec![(self, other)];
        while let Some((a, b)) = pairs.pop() {
            if a.is(b) {
                continue;
            }
            if a.0.hash != b.0.hash || a.ty() != b.ty() || !same_but_children(a, b) {
                return false;
            }
            let (left, right) = (a.children(), b.children());
            if left.len() != right.len() {
                return false;
            }
            if !left.is_empty() && seen.insert((a.address(), b.address())) {
                pairs.extend(left.into_iter().zip(right));
            }
        }
        true
    }
}

/// Whether two blocks that are not one node agree in all but what is below them. Their types are
/// equal, so names of fields and types of parameters are.
fn same_but_children(a: &BuildingBlock, b: &BuildingBlock) -> bool {
    match (a.kind(), b.kind()) {
        (BlockKind::Selection(a), BlockKind::Selection(b)) => a.key == b.key,
        (BlockKind::Struct(_), BlockKind::Struct(_)) => true,
        (BlockKind::Call(a), BlockKind::Call(b)) => a.argument.is_some() == b.argument.is_some(),
        (BlockKind::Lambda(a), BlockKind::Lambda(b)) => a.parameter == b.parameter,
        (BlockKind::Block(a), BlockKind::Block(b)) => {
            let names = |block: &super::Block| -> Vec<_> {
                block.locals.iter().map(|(name, _)| name.clone()).collect()
            };
            names(a) == names(b)
        }
        (BlockKind::Intrinsic(a), BlockKind::Intrinsic(b)) => a == b,
        (BlockKind::Data(a), BlockKind::Data(b)) => a == b,
        (BlockKind::Placement(a), BlockKind::Placement(b)) => a == b,
        (BlockKind::Literal(a), BlockKind::Literal(b)) => a == b,
        (BlockKind::Compiled(a), BlockKind::Compiled(b)) => same_payload(a, b),
        _ => false,
    }
}

/// Compiled computations are equal if they are one, or are the same message.
fn same_payload(a: &Compiled, b: &Compiled) -> bool {
    Arc::ptr_eq(&a.payload, &b.payload)
        || matches!((a.payload.to_wire(), b.payload.to_wire()), (Ok(a), Ok(b)) if a == b)
}

impl Eq for BuildingBlock {}

impl Hash for BuildingBlock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl Drop for Node {
    /// What only it held dies in a loop, not by recursion: trees nest deeply.
    fn drop(&mut self) {
        let mut dying = Vec::new();
        take_children(&mut self.kind, &mut dying);
        while let Some(block) = dying.pop() {
            if let Some(mut node) = Arc::into_inner(block.0) {
                take_children(&mut node.kind, &mut dying);
            }
        }
    }
}

/// The blocks directly below, taken out.
fn take_children(kind: &mut BlockKind, into: &mut Vec<BuildingBlock>) {
    match std::mem::replace(kind, BlockKind::Placement(Placement::Server)) {
        BlockKind::Reference(_)
        | BlockKind::Intrinsic(_)
        | BlockKind::Data(_)
        | BlockKind::Placement(_)
        | BlockKind::Literal(_)
        | BlockKind::Compiled(_) => {}
        BlockKind::Selection(selection) => into.push(selection.source),
        BlockKind::Struct(structure) => {
            into.extend(structure.elements.into_vec().into_iter().map(|(_, value)| value));
        }
        BlockKind::Call(call) => {
            into.push(call.function);
            into.extend(call.argument);
        }
        BlockKind::Lambda(lambda) => into.push(lambda.result),
        BlockKind::Block(block) => {
            into.extend(block.locals.into_vec().into_iter().map(|(_, value)| value));
            into.push(block.result);
        }
    }
}
