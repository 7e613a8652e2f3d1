//! From trees to code: resolves names once, so that running looks at numbers only.
//!
//! Each lambda becomes one [`Code`], wherever it occurs. Inside one function a node that occurs
//! again where its names mean the same is one step. No recursion: trees nest deeply.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::code::{Act, Code, Slot, Step};
use super::operation::{Operation, ZERO};
use super::order::merges_first;
use crate::Name;
use crate::ast::{BlockKind, BuildingBlock, Key};
use crate::error::{Class, Error, Result};

/// The code that gives the value of `block`.
///
/// # Errors
/// `Class::Value`: a name is bound nowhere. `Class::NotImplemented`: an unknown operation.
pub(super) fn lower(block: &BuildingBlock) -> Result<Arc<Code>> {
    let mut lowering = Lowering { codes: FxHashMap::default(), scopes: vec![Scope::new(None)] };
    lowering.run(block)?;
    let scope = lowering.scopes.pop().expect("the root is left");
    if let Some(name) = scope.captures.first() {
        return Err(Error::new(Class::Value, format!("`{name}` is bound nowhere"))
            .expected("a computation whose names are all bound"));
    }
    Ok(Arc::new(scope.finish()))
}

struct Lowering {
    /// The code of each lambda, by its address.
    codes: FxHashMap<usize, Lowered>,
    /// The functions that are being lowered, each inside the one before it.
    scopes: Vec<Scope>,
}

/// The code of a lambda and the names that it takes from around it.
#[derive(Clone)]
struct Lowered {
    code: Arc<Code>,
    captures: Arc<[Name]>,
}

/// How deep inside blocks of its function the innermost name is bound that a value depends on.
/// 0: outside of all blocks.
type Level = usize;

/// A value that was lowered, on the stack.
#[derive(Clone, Copy)]
struct Part {
    slot: Slot,
    level: Level,
}

/// One function that is being lowered.
struct Scope {
    parameter: Option<(Name, Slot)>,
    captures: Vec<Name>,
    capture_slots: Vec<Slot>,
    captured: FxHashMap<Name, Slot>,
    /// The values of names that blocks bind; the last one counts.
    bound: FxHashMap<Name, Vec<Part>>,
    blocks: Vec<OpenBlock>,
    /// What nodes have become, where their names mean what they mean now. A new layer is begun
    /// where a name gets a new meaning, and is dropped with it.
    layers: Vec<Layer>,
    parts: Vec<Part>,
    steps: Vec<Step>,
    slots: Slot,
    runs_compiled: bool,
}

/// A block whose locals or result are being lowered.
struct OpenBlock {
    names: Vec<Name>,
    /// How many layers it has begun.
    layers: usize,
    /// The least level above 0 that anything in it depends on.
    least: Level,
}

#[derive(Default)]
struct Layer {
    parts: FxHashMap<usize, Part>,
    /// The nodes in it of each level.
    of_level: FxHashMap<Level, Vec<usize>>,
}

enum Todo<'a> {
    Visit(&'a BuildingBlock),
    /// What it is made of has been lowered.
    Build(&'a BuildingBlock),
    Bind(&'a Name),
    EndBlock(&'a BuildingBlock),
    EndLambda(&'a BuildingBlock),
}

impl Lowering {
    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("the root stays")
    }

    fn run(&mut self, root: &BuildingBlock) -> Result<()> {
        let mut todo = vec![Todo::Visit(root)];
        while let Some(next) = todo.pop() {
            match next {
                Todo::Visit(block) => self.visit(block, &mut todo)?,
                Todo::Build(block) => self.scope().build(block),
                Todo::Bind(name) => self.scope().bind(name),
                Todo::EndBlock(block) => self.scope().end_block(block),
                Todo::EndLambda(block) => {
                    let mut scope = self.scopes.pop().expect("it was begun");
                    let captures = std::mem::take(&mut scope.captures).into();
                    let lowered = Lowered { code: Arc::new(scope.finish()), captures };
                    self.codes.insert(block.address(), lowered.clone());
                    self.scope().closure(block, &lowered);
                }
            }
        }
        Ok(())
    }

    fn visit<'a>(&mut self, block: &'a BuildingBlock, todo: &mut Vec<Todo<'a>>) -> Result<()> {
        let scope = self.scopes.last_mut().expect("the root stays");
        if let BlockKind::Reference(reference) = block.kind() {
            let part = scope.resolve(&reference.name);
            scope.parts.push(part);
            return Ok(());
        }
        if scope.find(block) {
            return Ok(());
        }
        match block.kind() {
            BlockKind::Reference(_) => unreachable!("handled above"),
            BlockKind::Literal(_) | BlockKind::Data(_) => {
                scope.leaf(block, Act::Constant(block.clone()));
            }
            BlockKind::Placement(placement) => scope.leaf(block, Act::Placement(*placement)),
            BlockKind::Compiled(compiled) => {
                scope.runs_compiled = true;
                scope.leaf(block, Act::Compiled(compiled.clone(), block.ty().clone()));
            }
            BlockKind::Intrinsic(uri) if &**uri == ZERO => {
                scope.leaf(block, Act::Zero(block.ty().clone()));
            }
            BlockKind::Intrinsic(uri) => {
                let Some(operation) = Operation::from_uri(uri) else {
                    return Err(Error::new(
                        Class::NotImplemented,
                        format!("there is no operation `{uri}` here"),
                    )
                    .expected("an intrinsic of the language"));
                };
                scope.leaf(block, Act::Operation(operation, block.ty().clone()));
            }
            BlockKind::Selection(_) | BlockKind::Struct(_) | BlockKind::Call(_) => {
                todo.push(Todo::Build(block));
                todo.extend(block.children().into_iter().rev().map(Todo::Visit));
            }
            BlockKind::Block(of) => {
                let least = Level::MAX;
                scope.blocks.push(OpenBlock { names: Vec::new(), layers: 0, least });
                todo.push(Todo::EndBlock(block));
                todo.push(Todo::Visit(&of.result));
                for (name, value) in of.locals.iter().rev() {
                    todo.push(Todo::Bind(name));
                    todo.push(Todo::Visit(value));
                }
            }
            BlockKind::Lambda(lambda) => match self.codes.get(&block.address()) {
                Some(lowered) => scope.closure(block, lowered),
                None => {
                    let parameter = lambda.parameter.as_ref().map(|(name, _)| name.clone());
                    self.scopes.push(Scope::new(parameter));
                    todo.push(Todo::EndLambda(block));
                    todo.push(Todo::Visit(&lambda.result));
                }
            },
        }
        Ok(())
    }
}

impl Scope {
    fn new(parameter: Option<Name>) -> Self {
        let slots = parameter.is_some().into();
        Self {
            parameter: parameter.map(|name| (name, 0)),
            captures: Vec::new(),
            capture_slots: Vec::new(),
            captured: FxHashMap::default(),
            bound: FxHashMap::default(),
            blocks: Vec::new(),
            layers: vec![Layer::default()],
            parts: Vec::new(),
            steps: Vec::new(),
            slots,
            runs_compiled: false,
        }
    }

    fn new_slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    /// The value that a name has here.
    fn resolve(&mut self, name: &Name) -> Part {
        if let Some(&part) = self.bound.get(name).and_then(|parts| parts.last()) {
            self.depends_on(part.level);
            return part;
        }
        if let Some((parameter, slot)) = &self.parameter
            && parameter == name
        {
            return Part { slot: *slot, level: 0 };
        }
        let slot = match self.captured.get(name) {
            Some(&slot) => slot,
            None => {
                let slot = self.new_slot();
                self.captures.push(name.clone());
                self.capture_slots.push(slot);
                self.captured.insert(name.clone(), slot);
                slot
            }
        };
        Part { slot, level: 0 }
    }

    /// Tells the innermost block that something in it uses a name of this level.
    fn depends_on(&mut self, level: Level) {
        if level > 0
            && let Some(open) = self.blocks.last_mut()
        {
            open.least = open.least.min(level);
        }
    }

    /// Puts what the node has become before on the stack, if it has.
    fn find(&mut self, block: &BuildingBlock) -> bool {
        let layer = self.layers.last().expect("one layer stays");
        let Some(&part) = layer.parts.get(&block.address()) else { return false };
        // It may depend on lower levels too: the lowest is a safe guess.
        self.depends_on(part.level.min(1));
        self.parts.push(part);
        true
    }

    /// Remembers what a node has become, for as long as the names of `level` are bound.
    fn remember(&mut self, block: &BuildingBlock, part: Part) {
        let layer = self.layers.last_mut().expect("one layer stays");
        layer.parts.insert(block.address(), part);
        if part.level > 0 {
            layer.of_level.entry(part.level).or_default().push(block.address());
        }
    }

    fn step(&mut self, act: Act) -> Slot {
        let out = self.new_slot();
        self.steps.push(Step { act, out, last_read: Box::default() });
        out
    }

    fn leaf(&mut self, block: &BuildingBlock, act: Act) {
        self.made(block, act, 0);
    }

    fn made(&mut self, block: &BuildingBlock, act: Act, level: Level) {
        let part = Part { slot: self.step(act), level };
        self.remember(block, part);
        self.parts.push(part);
    }

    fn pop(&mut self) -> Part {
        self.parts.pop().expect("a part for each child")
    }

    fn build(&mut self, block: &BuildingBlock) {
        match block.kind() {
            BlockKind::Selection(selection) => {
                let source = self.pop();
                let index = match &selection.key {
                    Key::Index(index) => *index,
                    Key::Name(name) => {
                        let structure = selection.source.ty().as_struct();
                        let at = structure.and_then(|structure| structure.position(name));
                        u32::try_from(at.expect("checked when it was made")).expect("few fields")
                    }
                };
                self.made(block, Act::Select(source.slot, index), source.level);
            }
            BlockKind::Struct(structure) => {
                let parts = self.parts.split_off(self.parts.len() - structure.elements.len());
                let level = parts.iter().map(|part| part.level).max().unwrap_or(0);
                let row = parts.iter().map(|part| part.slot).collect();
                self.made(block, Act::Struct(row), level);
            }
            BlockKind::Call(call) => {
                let argument = call.argument.as_ref().map(|_| self.pop());
                let function = self.pop();
                let level = argument.map_or(0, |part| part.level).max(function.level);
                let act = Act::Call(function.slot, argument.map(|part| part.slot));
                self.made(block, act, level);
            }
            _ => unreachable!("only these are built from parts"),
        }
    }

    /// Gives the value on the stack a name in the innermost block.
    fn bind(&mut self, name: &Name) {
        let slot = self.pop().slot;
        let level = self.blocks.len();
        let means_something = self.bound.get(name).is_some_and(|parts| !parts.is_empty())
            || self.captured.contains_key(name)
            || self.parameter.as_ref().is_some_and(|(parameter, _)| parameter == name);
        let open = self.blocks.last_mut().expect("a block is open");
        open.names.push(name.clone());
        if means_something {
            open.layers += 1;
            self.layers.push(Layer::default());
        }
        self.bound.entry(name.clone()).or_default().push(Part { slot, level });
    }

    fn end_block(&mut self, block: &BuildingBlock) {
        let level = self.blocks.len();
        let open = self.blocks.pop().expect("a block is open");
        for name in &open.names {
            self.bound.get_mut(name).expect("it was bound").pop();
        }
        self.layers.truncate(self.layers.len() - open.layers);
        let layer = self.layers.last_mut().expect("one layer stays");
        for address in layer.of_level.remove(&level).unwrap_or_default() {
            layer.parts.remove(&address);
        }
        let slot = self.pop().slot;
        // Which names outside it uses is known only as far as: some, or none.
        let outside = open.least < level;
        let part = Part { slot, level: if outside { level - 1 } else { 0 } };
        if outside {
            self.depends_on(open.least);
        }
        self.remember(block, part);
        self.parts.push(part);
    }

    /// Makes a lambda's code a function here.
    fn closure(&mut self, block: &BuildingBlock, lowered: &Lowered) {
        self.runs_compiled |= lowered.code.runs_compiled;
        let parts: Vec<Part> = lowered.captures.iter().map(|name| self.resolve(name)).collect();
        let level = parts.iter().map(|part| part.level).max().unwrap_or(0);
        let row = parts.iter().map(|part| part.slot).collect();
        self.made(block, Act::Closure(Arc::clone(&lowered.code), row), level);
    }

    /// The code, when its result is the one part left.
    fn finish(mut self) -> Code {
        let result = self.pop().slot;
        let mut steps = merges_first(std::mem::take(&mut self.steps));
        let mut read_later: FxHashSet<Slot> = FxHashSet::default();
        read_later.insert(result);
        for step in steps.iter_mut().rev() {
            let unread = (!read_later.contains(&step.out)).then_some(step.out);
            let reads = step.act.reads().filter(|&slot| read_later.insert(slot));
            step.last_read = reads.chain(unread).collect();
        }
        Code {
            parameter: self.parameter.map(|(_, slot)| slot),
            captures: self.capture_slots.into(),
            steps: steps.into(),
            result,
            slots: self.slots,
            runs_compiled: self.runs_compiled,
        }
    }
}
