//! The tree that a finished computation shows: what is left of it after a round trip over the wire.

use rustc_hash::FxHashMap;

use crate::ast::{BlockKind, BuildingBlock, Key};
use crate::error::Result;
use crate::types::WithoutContainers;

/// The same tree, with fields selected by position, and without the Python classes of structs:
/// messages keep neither. Shared blocks stay shared.
///
/// # Errors
/// None for a tree whose blocks were checked when they were made.
pub fn finished(root: &BuildingBlock) -> Result<BuildingBlock> {
    enum Step {
        Visit(BuildingBlock),
        Build(BuildingBlock),
    }
    let mut pass = Pass { types: WithoutContainers::default(), done: FxHashMap::default() };
    let mut steps = vec![Step::Visit(root.clone())];
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(block) if pass.done.contains_key(&block.address()) => {}
            Step::Visit(block) => {
                steps.push(Step::Build(block.clone()));
                steps.extend(block.children().into_iter().rev().cloned().map(Step::Visit));
            }
            Step::Build(block) => {
                let made = pass.rebuilt(&block)?;
                pass.done.insert(block.address(), made);
            }
        }
    }
    Ok(pass.done(root))
}

struct Pass {
    types: WithoutContainers,
    /// By the address of a block in the tree, which stays alive meanwhile.
    done: FxHashMap<usize, BuildingBlock>,
}

impl Pass {
    fn done(&self, block: &BuildingBlock) -> BuildingBlock {
        self.done[&block.address()].clone()
    }

    /// The block from those below it, which are done.
    fn rebuilt(&mut self, block: &BuildingBlock) -> Result<BuildingBlock> {
        let ty = self.types.of(block.ty());
        if ty == *block.ty() && self.keeps(block) {
            return Ok(block.clone());
        }
        match block.kind() {
            BlockKind::Reference(reference) => {
                Ok(BuildingBlock::reference(reference.name.clone(), ty))
            }
            BlockKind::Selection(selection) => {
                let source = &selection.source;
                let index = match &selection.key {
                    Key::Index(index) => *index as usize,
                    Key::Name(name) => {
                        let of = source.ty().as_struct().expect("a field was selected");
                        of.position(name).expect("the field is there")
                    }
                };
                BuildingBlock::select_index(self.done(source), index)
            }
            BlockKind::Struct(structure) => {
                let elements = structure.elements.iter();
                let elements = elements.map(|(name, value)| (name.clone(), self.done(value)));
                BuildingBlock::structure(elements.collect(), None)
            }
            BlockKind::Call(call) => {
                let argument = call.argument.as_ref().map(|argument| self.done(argument));
                BuildingBlock::call(self.done(&call.function), argument)
            }
            BlockKind::Lambda(lambda) => {
                let parameter = lambda.parameter.as_ref();
                let parameter = parameter.map(|(name, ty)| (name.clone(), self.types.of(ty)));
                Ok(BuildingBlock::lambda(parameter, self.done(&lambda.result)))
            }
            BlockKind::Block(of) => {
                let locals = of.locals.iter();
                let locals = locals.map(|(name, value)| (name.clone(), self.done(value)));
                Ok(BuildingBlock::block(locals.collect(), self.done(&of.result)))
            }
            BlockKind::Intrinsic(uri) => Ok(BuildingBlock::intrinsic(uri.clone(), ty)),
            BlockKind::Data(data) => Ok(BuildingBlock::data(data.clone(), ty)),
            BlockKind::Compiled(compiled) => Ok(BuildingBlock::compiled(compiled.clone(), ty)),
            BlockKind::Placement(_) | BlockKind::Literal(_) => Ok(block.clone()),
        }
    }

    /// Whether nothing below the block changed, nor does how it selects.
    fn keeps(&self, block: &BuildingBlock) -> bool {
        let by_name = matches!(block.kind(),
            BlockKind::Selection(selection) if matches!(selection.key, Key::Name(_)));
        let in_context = block.as_reference().is_some_and(|of| of.context.is_some());
        !by_name
            && !in_context
            && block.children().iter().all(|child| self.done[&child.address()].is(child))
    }
}
