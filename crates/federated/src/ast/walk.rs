//! Walks over trees and rebuilding them, without recursion.
//!
//! A tree is a graph whose shared blocks stand for several occurrences. [`preorder`] and
//! [`postorder`] visit every occurrence; [`distinct`] and the transformations look at each block
//! once, so that they take time in proportion to the blocks, not to their occurrences.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{BlockKind, BuildingBlock, Key};
use crate::Name;
use crate::error::{Error, Result};

/// Every occurrence of a block, before what is below it.
pub fn preorder(root: &BuildingBlock) -> impl Iterator<Item = &BuildingBlock> {
    let mut left = vec![root];
    std::iter::from_fn(move || {
        let block = left.pop()?;
        left.extend(block.children().into_iter().rev());
        Some(block)
    })
}

/// Every occurrence of a block, after what is below it.
pub fn postorder(root: &BuildingBlock) -> impl Iterator<Item = &BuildingBlock> {
    let mut left = vec![(root, false)];
    std::iter::from_fn(move || {
        loop {
            let (block, done) = left.pop()?;
            if done {
                return Some(block);
            }
            left.push((block, true));
            left.extend(block.children().into_iter().rev().map(|child| (child, false)));
        }
    })
}

/// Every block once, after what is below it.
pub fn distinct(root: &BuildingBlock) -> Vec<&BuildingBlock> {
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    let mut order = Vec::new();
    let mut left = vec![(root, false)];
    while let Some((block, done)) = left.pop() {
        if done {
            order.push(block);
        } else if seen.insert(block.address()) {
            left.push((block, true));
            left.extend(block.children().into_iter().rev().map(|child| (child, false)));
        }
    }
    order
}

/// Whether a block satisfies `predicate`.
pub fn contains(root: &BuildingBlock, mut predicate: impl FnMut(&BuildingBlock) -> bool) -> bool {
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    let mut left = vec![root];
    while let Some(block) = left.pop() {
        if seen.insert(block.address()) {
            if predicate(block) {
                return true;
            }
            left.extend(block.children().into_iter().rev());
        }
    }
    false
}

/// How many occurrences of blocks satisfy `predicate`, which is asked once for each block. At most
/// `u128::MAX`.
///
/// # Errors
/// Those of `predicate`.
pub fn count<E>(
    root: &BuildingBlock,
    mut predicate: impl FnMut(&BuildingBlock) -> std::result::Result<bool, E>,
) -> std::result::Result<u128, E> {
    let mut counts: FxHashMap<usize, u128> = FxHashMap::default();
    for block in distinct(root) {
        let own = u128::from(predicate(block)?);
        let below = block.children().into_iter().map(|child| counts[&child.address()]);
        let all = below.fold(own, u128::saturating_add);
        counts.insert(block.address(), all);
    }
    Ok(counts[&root.address()])
}

/// How often each block occurs, by its address; at most `u64::MAX`.
pub fn occurrences(root: &BuildingBlock) -> FxHashMap<usize, u64> {
    let mut counts: FxHashMap<usize, u64> = FxHashMap::from_iter([(root.address(), 1)]);
    for block in distinct(root).into_iter().rev() {
        let own = counts[&block.address()];
        for child in block.children() {
            let count = counts.entry(child.address()).or_default();
            *count = count.saturating_add(own);
        }
    }
    counts
}

/// A block and whether it is another one than before.
pub type Transformed = (BuildingBlock, bool);

/// Replaces each block by what `transform` says of it, what is below it first. What stays the
/// same stays the same block. A shared block is asked about once.
///
/// # Errors
/// Those of `transform`, and those of building a block from parts of new types.
pub fn transform_postorder<E: From<Error>>(
    root: &BuildingBlock,
    mut transform: impl FnMut(&BuildingBlock) -> std::result::Result<Transformed, E>,
) -> std::result::Result<Transformed, E> {
    let mut done: FxHashMap<usize, Transformed> = FxHashMap::default();
    for block in distinct(root) {
        let (rebuilt, below) = from_done(block, &done)?;
        let (made, changed) = transform(&rebuilt)?;
        done.insert(block.address(), (made, changed || below));
    }
    Ok(done.remove(&root.address()).expect("the root comes last"))
}

/// Replaces each block by what `transform` says of it, and looks below those only that it leaves
/// as they are. What stays the same stays the same block. A shared block is asked about once.
///
/// # Errors
/// As for [`transform_postorder`].
pub fn transform_preorder<E: From<Error>>(
    root: &BuildingBlock,
    mut transform: impl FnMut(&BuildingBlock) -> std::result::Result<Transformed, E>,
) -> std::result::Result<Transformed, E> {
    enum Step {
        Visit(BuildingBlock),
        /// The second is to become what the first becomes.
        Build(BuildingBlock, usize),
    }
    let mut done: FxHashMap<usize, Transformed> = FxHashMap::default();
    // Addresses in `done` must not be given to other blocks.
    let mut alive = Vec::new();
    let mut steps = vec![Step::Visit(root.clone())];
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(block) if done.contains_key(&block.address()) => {}
            Step::Visit(block) => {
                let (made, changed) = transform(&block)?;
                let address = block.address();
                alive.push(block);
                if changed {
                    done.insert(address, (made, true));
                } else {
                    let block = alive.last().expect("it was just added").clone();
                    let children = block.children().into_iter().rev().cloned();
                    let children: Vec<_> = children.map(Step::Visit).collect();
                    steps.push(Step::Build(block, address));
                    steps.extend(children);
                }
            }
            Step::Build(block, address) => {
                let made = from_done(&block, &done)?;
                done.insert(address, made);
                alive.push(block);
            }
        }
    }
    Ok(done.remove(&root.address()).expect("the root was visited"))
}

/// The block over what the blocks below it have become.
fn from_done(block: &BuildingBlock, done: &FxHashMap<usize, Transformed>) -> Result<Transformed> {
    let children = block.children();
    if !children.iter().any(|child| done[&child.address()].1) {
        return Ok((block.clone(), false));
    }
    let children = children.into_iter().map(|child| done[&child.address()].0.clone()).collect();
    Ok((with_children(block, children)?, true))
}

/// The same kind of block over other blocks.
///
/// # Errors
/// Those of building it: the types of the others don't fit.
pub fn with_children(block: &BuildingBlock, children: Vec<BuildingBlock>) -> Result<BuildingBlock> {
    let mut children = children.into_iter();
    let mut next = || children.next().expect("as many as before");
    Ok(match block.kind() {
        BlockKind::Reference(_)
        | BlockKind::Intrinsic(_)
        | BlockKind::Data(_)
        | BlockKind::Placement(_)
        | BlockKind::Literal(_)
        | BlockKind::Compiled(_) => block.clone(),
        BlockKind::Selection(selection) => match &selection.key {
            Key::Name(name) => BuildingBlock::select_name(next(), name.clone())?,
            Key::Index(index) => BuildingBlock::select_index(next(), *index as usize)?,
        },
        BlockKind::Struct(structure) => {
            let names = structure.elements.iter().map(|(name, _)| name.clone());
            let elements = names.map(|name| (name, next())).collect();
            let ty = block.ty().as_struct().expect("a struct is of a struct type");
            BuildingBlock::structure(elements, ty.container().cloned())?
        }
        BlockKind::Call(call) => {
            let function = next();
            BuildingBlock::call(function, call.argument.as_ref().map(|_| next()))?
        }
        BlockKind::Lambda(lambda) => BuildingBlock::lambda(lambda.parameter.clone(), next()),
        BlockKind::Block(of) => {
            let names = of.locals.iter().map(|(name, _)| name.clone());
            let locals: Vec<(Name, BuildingBlock)> = names.map(|name| (name, next())).collect();
            BuildingBlock::block(locals, next())
        }
    })
}
