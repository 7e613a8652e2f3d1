//! Values in place of their names.

use rustc_hash::{FxHashMap, FxHashSet};

use super::unique::separate_names;
use crate::ast::walk::{Transformed, with_children};
use crate::ast::{BlockKind, BuildingBlock};
use crate::{Name, Result};

/// Puts the values of names in their places: `(let v=f(x) in <v,v>)` becomes `<f(x),f(x)>`, in
/// which both are one block. With `only`, these names alone.
///
/// Where names aren't unique, some are changed first, so that none comes to mean something else.
/// A name stays if it is used as another type than its value's.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn inline_block_locals(
    root: &BuildingBlock,
    only: Option<&FxHashSet<Name>>,
) -> Result<Transformed> {
    enum Step<'a> {
        Visit(&'a BuildingBlock),
        /// The value of a name is done.
        Local(&'a Name, &'a BuildingBlock),
        Build(&'a BuildingBlock),
    }
    let ((root, renamed), former) = separate_names(root)?;
    let wanted =
        |name: &Name| only.is_none_or(|only| only.contains(former.get(name).unwrap_or(name)));
    // Names are unique, so a block means the same wherever it occurs.
    let mut values: FxHashMap<&Name, BuildingBlock> = FxHashMap::default();
    let mut kept: FxHashSet<&Name> = FxHashSet::default();
    let mut done: FxHashMap<usize, BuildingBlock> = FxHashMap::default();
    let mut steps = vec![Step::Visit(&root)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(block) if done.contains_key(&block.address()) => {}
            Step::Visit(block) => {
                if let BlockKind::Reference(reference) = block.kind() {
                    let mut made = block.clone();
                    if let Some(value) = values.get(&reference.name) {
                        if value.ty().is_equivalent_to(block.ty()).unwrap_or(false) {
                            made = value.clone();
                        } else {
                            kept.extend(
                                values.get_key_value(&reference.name).map(|(name, _)| *name),
                            );
                        }
                    }
                    done.insert(block.address(), made);
                    continue;
                }
                let start = steps.len();
                if let BlockKind::Block(of) = block.kind() {
                    for (name, value) in &of.locals {
                        steps.extend([Step::Visit(value), Step::Local(name, value)]);
                    }
                    steps.push(Step::Visit(&of.result));
                } else {
                    steps.extend(block.children().into_iter().map(Step::Visit));
                }
                steps.push(Step::Build(block));
                steps[start..].reverse();
            }
            Step::Local(name, value) => {
                if wanted(name) {
                    values.insert(name, done[&value.address()].clone());
                }
            }
            Step::Build(block) => {
                let before = block.children();
                let now: Vec<_> =
                    before.iter().map(|child| done[&child.address()].clone()).collect();
                let same = now.iter().zip(&before).all(|(now, before)| now.is(before));
                let made = match block.kind() {
                    BlockKind::Block(of) => {
                        let stays = |name: &Name| !wanted(name) || kept.contains(name);
                        let mut now = now;
                        let result = now.pop().expect("a block has a result");
                        if same
                            && !of.locals.is_empty()
                            && of.locals.iter().all(|(name, _)| stays(name))
                        {
                            block.clone()
                        } else {
                            let names = of.locals.iter().map(|(name, _)| name.clone());
                            let locals = names.zip(now).filter(|(name, _)| stays(name));
                            let locals: Vec<_> = locals.collect();
                            if locals.is_empty() {
                                result
                            } else {
                                BuildingBlock::block(locals, result)
                            }
                        }
                    }
                    _ if same => block.clone(),
                    _ => with_children(block, now)?,
                };
                done.insert(block.address(), made);
            }
        }
    }
    let made = done.remove(&root.address()).expect("the root was visited");
    let changed = renamed || !made.is(&root);
    Ok((made, changed))
}
