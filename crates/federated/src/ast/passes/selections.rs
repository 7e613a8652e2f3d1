//! Selections: simpler ones, and all alike.

use crate::Result;
use crate::ast::walk::{Transformed, transform_postorder};
use crate::ast::{BlockKind, BuildingBlock, Key};

/// Takes the field itself where one is selected from a struct that is written out, also through a
/// chain of selections: `<a=<x,y>,z>.a[1]` becomes `y`.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn merge_chained_selections(root: &BuildingBlock) -> Result<Transformed> {
    transform_postorder(root, |block| {
        if let BlockKind::Selection(selection) = block.kind()
            && let Some(structure) = selection.source.as_struct()
        {
            return Ok((structure.elements[selection.position()].1.clone(), true));
        }
        Ok((block.clone(), false))
    })
}

/// Selects by position wherever a name is selected: `s.a` becomes `s[0]`.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn selections_by_index(root: &BuildingBlock) -> Result<Transformed> {
    transform_postorder(root, |block| {
        if let BlockKind::Selection(selection) = block.kind()
            && let Key::Name(_) = selection.key
        {
            let at = selection.position();
            return Ok((BuildingBlock::select_index(selection.source.clone(), at)?, true));
        }
        Ok((block.clone(), false))
    })
}
