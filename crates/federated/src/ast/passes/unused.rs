//! Names that nothing uses.

use crate::Result;
use crate::ast::names::FreeNames;
use crate::ast::walk::{Transformed, transform_postorder};
use crate::ast::{BlockKind, BuildingBlock};

/// Takes out the names that neither the result nor a used name needs, and a block that is left
/// without names: `(let v=x,w=y in w)` becomes `(let w=y in w)`.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn remove_unused_block_locals(root: &BuildingBlock) -> Result<Transformed> {
    let mut free = FreeNames::default();
    transform_postorder(root, |block| {
        let BlockKind::Block(of) = block.kind() else { return Ok((block.clone(), false)) };
        let mut open = free.of(&of.result);
        let mut kept = Vec::with_capacity(of.locals.len());
        for (name, value) in of.locals.iter().rev() {
            if !free.contains(open, name) {
                continue;
            }
            open = free.without(open, name);
            let value_open = free.of(value);
            open = free.union(open, value_open);
            kept.push((name.clone(), value.clone()));
        }
        if kept.len() == of.locals.len() && !kept.is_empty() {
            return Ok((block.clone(), false));
        }
        if kept.is_empty() {
            return Ok((of.result.clone(), true));
        }
        kept.reverse();
        Ok((BuildingBlock::block(kept, of.result.clone()), true))
    })
}
