//! Computations in parts for many machines: what clients do, what is made of all of them, and what the
//! server does.
//!
//! Calls of functions are followed, as the machine does, but nothing is run: a value is what is known of
//! it, in which a number stands for what only running gives. Each operation is a node; where it is done
//! follows from what it works on. Stage after stage, the server's nodes are done, then the clients', which
//! end in values that are merged: the server's nodes of the next stage need those.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::code::{Act, Code};
use super::leaves::of_type;
use super::{Function, Items, Operation, Value, lower};
use crate::ast::{BlockKind, BuildingBlock, Compiled};
use crate::error::Result;
use crate::placement::Placement;
use crate::types::{Facts, Type, TypeKind};

/// What stands for a value that isn't known before something runs: a node.
pub(super) type Id = usize;

/// What is known of a value.
pub(super) type Known = Value<Id>;

/// How many nodes there may be: calls of functions are followed each time, and programs that call the same
/// one in many places grow.
const MOST_NODES: usize = 20_000;

/// How many values there may be in all arguments of nodes, counted where they stand.
const MOST_PARTS: usize = 1_000_000;

/// A computation in parts.
#[derive(Debug)]
pub struct Split {
    pub(super) parameter: Option<Known>,
    pub(super) result: Known,
    pub(super) nodes: Vec<Node>,
    pub(super) stages: Vec<Stage>,
}

/// One operation, or one value of the argument.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) what: What,
    place: Place,
    /// The stage in which it is done.
    stage: usize,
    /// How many maps come before it.
    pub(super) map: usize,
}

#[derive(Debug)]
pub(super) enum What {
    /// A value in the argument.
    Argument,
    /// A literal, or data.
    Constant(BuildingBlock),
    Zero(Type),
    Select(Id, u32),
    Call(Function<Id>, Option<Known>),
}

/// Where a node is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Wherever it is needed: it depends on nothing.
    Anywhere,
    /// Where the computation was called.
    Server,
    /// At the clients: each has a value of its own.
    Clients,
    /// In part at the clients, and merged at the server.
    Merged,
}

/// What is done before the values of all clients are needed once more. Nodes are in order.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) server: Vec<Id>,
    pub(super) clients: Vec<Id>,
    pub(super) merged: Vec<Id>,
    /// What the clients' work needs of the server's.
    pub(super) broadcast: Vec<Id>,
    /// What it needs that each client has: of the argument, or of an earlier stage.
    pub(super) given: Vec<Id>,
    /// Which of its nodes are needed later.
    pub(super) kept: Vec<Id>,
}

/// Why a computation isn't split.
type Reason = &'static str;

impl Split {
    /// The parts of the computation that `block` is, or why it has none.
    ///
    /// # Errors
    /// A name that is bound nowhere; an operation that isn't known.
    pub fn new(block: &BuildingBlock) -> Result<std::result::Result<Self, Reason>> {
        let code = lower::lower(block)?;
        Ok(Splitter::default().split(code, block.ty()))
    }

    /// How many stages there are.
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// Whether clients do anything in a stage.
    pub fn has_clients(&self, stage: usize) -> bool {
        let stage = &self.stages[stage];
        !stage.clients.is_empty() || !stage.merged.is_empty()
    }

    /// Whether clients run a compiled computation of which this holds.
    pub fn clients_run(&self, holds: impl Fn(&Compiled, &Type) -> bool) -> bool {
        let clients = self.stages.iter().flat_map(|stage| &stage.clients);
        let mut left: Vec<&Known> = clients
            .filter_map(|&id| match &self.nodes[id].what {
                What::Call(_, argument) => argument.as_ref(),
                _ => None,
            })
            .collect();
        while let Some(value) = left.pop() {
            match value {
                Value::Function(function) if function.may_run(&holds) => return true,
                Value::Struct(items) => left.extend(items.iter()),
                _ => {}
            }
        }
        false
    }

    /// The operations that clients begin and those that merge what they have, by name, stage by stage.
    pub fn operations(&self) -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
        let names = |row: &[Id]| row.iter().map(|&id| self.operation(id).0.uri()).collect();
        self.stages.iter().map(|stage| (names(&stage.clients), names(&stage.merged))).collect()
    }

    /// The operation that a node of clients is, and its type.
    pub(super) fn operation(&self, id: Id) -> (Operation, &Type) {
        match &self.nodes[id].what {
            What::Call(Function::Operation(operation, ty), _) => (*operation, ty),
            _ => unreachable!("clients do operations"),
        }
    }
}

/// A function that is followed.
struct Steps {
    code: Arc<Code>,
    at: usize,
    slots: Vec<Option<Known>>,
}

impl Steps {
    fn read(&self, slot: u32) -> &Known {
        self.slots[slot as usize].as_ref().expect("a slot is written before it is read")
    }

    fn finish(&mut self, value: Known) {
        let step = &self.code.steps[self.at];
        self.slots[step.out as usize] = Some(value);
        for &slot in &step.last_read {
            self.slots[slot as usize] = None;
        }
        self.at += 1;
    }
}

#[derive(Default)]
struct Splitter {
    nodes: Vec<Node>,
    maps: usize,
    parts: usize,
}

enum Next {
    Step,
    Call(Function<Id>, Option<Known>),
    Return(Known),
}

impl Splitter {
    fn split(mut self, code: Arc<Code>, ty: &Type) -> std::result::Result<Split, Reason> {
        let Some(of) = ty.as_function() else { return Err("it is no function") };
        let whole = Function::Closure { code, captured: Items::new(Vec::new()) };
        let Value::Function(function) = self.follow(whole, None)? else {
            return Err("it is no function");
        };
        let parameter = match &of.parameter {
            Some(ty) => Some(self.argument(ty)?),
            None => None,
        };
        let result = self.follow(function, parameter.clone())?;
        let stages = self.stages(&result)?;
        Ok(Split { parameter, result, nodes: self.nodes, stages })
    }

    /// What is known of the argument: structs down to what is none.
    fn argument(&mut self, ty: &Type) -> std::result::Result<Known, Reason> {
        if ty.facts().any(Facts::FUNCTION) {
            return Err("its argument has functions");
        }
        of_type(ty, |ty| match ty.kind() {
            TypeKind::Federated(of) if !of.all_equal => {
                if of.placement != Placement::Clients {
                    return Err("its argument has several values at the server");
                }
                self.node(What::Argument, Place::Clients, 0)
            }
            _ => self.node(What::Argument, Place::Server, 0),
        })
    }

    /// Follows a call to its result.
    fn follow(
        &mut self,
        function: Function<Id>,
        argument: Option<Known>,
    ) -> std::result::Result<Known, Reason> {
        let mut frames: Vec<Steps> = Vec::new();
        let mut next = Next::Call(function, argument);
        loop {
            next = match next {
                Next::Call(Function::Closure { code, captured }, argument) => {
                    let mut slots = vec![None; code.slots as usize];
                    for (&slot, value) in code.captures.iter().zip(captured.iter()) {
                        slots[slot as usize] = Some(value.clone());
                    }
                    if let Some(slot) = code.parameter {
                        slots[slot as usize] = argument;
                    }
                    frames.push(Steps { code, at: 0, slots });
                    Next::Step
                }
                Next::Call(function, argument) => Next::Return(self.call(function, argument)?),
                Next::Return(value) => match frames.last_mut() {
                    None => return Ok(value),
                    Some(frame) => {
                        frame.finish(value);
                        Next::Step
                    }
                },
                Next::Step => {
                    let frame = frames.last_mut().expect("a function is followed");
                    let code = Arc::clone(&frame.code);
                    match code.steps.get(frame.at) {
                        Some(step) => self.step(frame, &step.act)?,
                        None => {
                            let result = frame.slots[code.result as usize].take();
                            frames.pop();
                            Next::Return(result.expect("the result was written"))
                        }
                    }
                }
            }
        }
    }

    fn step(&mut self, frame: &Steps, act: &Act) -> std::result::Result<Next, Reason> {
        Ok(Next::Return(match act {
            Act::Call(function, argument) => {
                let Value::Function(function) = frame.read(*function).clone() else {
                    return Err("it calls a function that another one makes");
                };
                return Ok(Next::Call(function, argument.map(|slot| frame.read(slot).clone())));
            }
            Act::Constant(block) => {
                // Only here it is known how data is read.
                let is_data = matches!(block.kind(), BlockKind::Data(_));
                let place = if is_data { Place::Server } else { Place::Anywhere };
                self.node(What::Constant(block.clone()), place, 0)?
            }
            Act::Zero(ty) => self.node(What::Zero(ty.clone()), Place::Anywhere, 0)?,
            Act::Placement(placement) => Value::Placement(*placement),
            Act::Operation(operation, ty) => {
                Value::Function(Function::Operation(*operation, ty.clone()))
            }
            Act::Compiled(compiled, ty) => {
                Value::Function(Function::Compiled(compiled.clone(), ty.clone()))
            }
            Act::Select(source, index) => match frame.read(*source) {
                Value::Struct(fields) => fields[*index as usize].clone(),
                Value::Leaf(id) => {
                    let Node { place, stage, .. } = self.nodes[*id];
                    if place == Place::Clients {
                        return Err("it selects from values at clients");
                    }
                    let place = if place == Place::Anywhere { place } else { Place::Server };
                    self.node(What::Select(*id, *index), place, stage + self.is_merged(*id))?
                }
                _ => return Err("it selects from what is no struct"),
            },
            Act::Struct(row) => {
                Value::structure(row.iter().map(|&slot| frame.read(slot).clone()).collect())
            }
            Act::Closure(code, row) => {
                let captured = row.iter().map(|&slot| frame.read(slot).clone()).collect();
                let code = Arc::clone(code);
                Value::Function(Function::Closure { code, captured: Items::new(captured) })
            }
        }))
    }

    /// The node of a call of something that isn't followed.
    fn call(
        &mut self,
        function: Function<Id>,
        argument: Option<Known>,
    ) -> std::result::Result<Known, Reason> {
        use Operation as Op;
        let mut stage = 0;
        let mut of_clients = false;
        for (id, in_function) in self.needs(argument.iter())? {
            stage = stage.max(self.nodes[id].stage + self.is_merged(id));
            if self.nodes[id].place == Place::Clients {
                if in_function {
                    return Err("a function that clients call uses values at clients");
                }
                of_clients = true;
            }
        }
        let place = match &function {
            Function::Operation(Op::Map | Op::EvalAtClients | Op::Select | Op::SecureSelect, _) => {
                Place::Clients
            }
            Function::Operation(Op::ZipAtClients, _) if of_clients => Place::Clients,
            Function::Operation(operation, _) if of_clients && is_merging(*operation) => {
                let parts = match &argument {
                    Some(Value::Struct(fields)) => fields.len(),
                    _ => 1,
                };
                let wanted = match operation {
                    Op::Aggregate => 5,
                    Op::WeightedMean | Op::SecureSum | Op::SecureSumBitwidth => 2,
                    _ => 1,
                };
                if parts != wanted {
                    return Err("an operation has an argument that another function makes");
                }
                Place::Merged
            }
            _ if of_clients => return Err("the server works on values at clients"),
            _ => Place::Server,
        };
        self.node(What::Call(function, argument), place, stage)
    }

    fn node(
        &mut self,
        what: What,
        place: Place,
        stage: usize,
    ) -> std::result::Result<Known, Reason> {
        if self.nodes.len() >= MOST_NODES {
            return Err("it is too large: its functions are called in too many places");
        }
        let map = self.maps;
        let is_map = matches!(
            what,
            What::Call(Function::Operation(Operation::Map | Operation::EvalAtClients, _), _)
        );
        self.maps += usize::from(is_map);
        self.nodes.push(Node { what, place, stage, map });
        Ok(Value::Leaf(self.nodes.len() - 1))
    }

    /// By how many stages the value of a node comes after it.
    fn is_merged(&self, id: Id) -> usize {
        usize::from(self.nodes[id].place == Place::Merged)
    }

    /// The nodes in values, and whether each is in a function.
    fn needs<'a>(
        &mut self,
        values: impl Iterator<Item = &'a Known>,
    ) -> std::result::Result<Vec<(Id, bool)>, Reason> {
        let mut found = Vec::new();
        let mut left: Vec<(&Known, bool)> = values.map(|value| (value, false)).collect();
        while let Some((value, in_function)) = left.pop() {
            self.parts += 1;
            if self.parts > MOST_PARTS {
                return Err("it is too large: its structs have too many fields");
            }
            match value {
                Value::Leaf(id) => found.push((*id, in_function)),
                Value::Struct(items) => left.extend(items.iter().map(|item| (item, in_function))),
                Value::Function(Function::Closure { captured, .. }) => {
                    left.extend(captured.iter().map(|item| (item, true)));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// The nodes by stages, with what each stage needs of others.
    fn stages(&mut self, result: &Known) -> std::result::Result<Vec<Stage>, Reason> {
        let last = |node: &Node| node.stage + usize::from(node.place == Place::Merged);
        let count = self.nodes.iter().map(last).max().unwrap_or(0) + 1;
        let mut stages: Vec<Stage> = (0..count).map(|_| Stage::default()).collect();
        let mut needed: Vec<FxHashSet<Id>> = vec![FxHashSet::default(); count];
        let mut kept: FxHashSet<Id> =
            self.needs(std::iter::once(result))?.iter().map(|of| of.0).collect();
        for id in 0..self.nodes.len() {
            let node = &self.nodes[id];
            let (place, at) = (node.place, node.stage);
            if matches!(node.what, What::Argument) || place == Place::Anywhere {
                continue;
            }
            match place {
                Place::Clients => stages[at].clients.push(id),
                Place::Merged => stages[at].merged.push(id),
                _ => stages[at].server.push(id),
            }
            let What::Call(_, argument) = &self.nodes[id].what else { continue };
            let argument = argument.clone();
            for (used, _) in self.needs(argument.iter())? {
                if place == Place::Server {
                    continue;
                }
                needed[at].insert(used);
                if self.nodes[used].place == Place::Clients && self.nodes[used].stage < at {
                    kept.insert(used);
                }
            }
        }
        for (at, needed) in needed.into_iter().enumerate() {
            let mut needed: Vec<Id> = needed.into_iter().collect();
            needed.sort_unstable();
            for id in needed {
                let node = &self.nodes[id];
                match node.place {
                    Place::Anywhere => {}
                    Place::Server | Place::Merged => stages[at].broadcast.push(id),
                    Place::Clients if node.stage < at || matches!(node.what, What::Argument) => {
                        stages[at].given.push(id);
                    }
                    Place::Clients => {}
                }
            }
            let clients = stages[at].clients.iter();
            stages[at].kept = clients.copied().filter(|id| kept.contains(id)).collect();
        }
        Ok(stages)
    }
}

/// Whether an operation makes one value of those of all clients.
fn is_merging(operation: Operation) -> bool {
    use Operation as Op;
    matches!(
        operation,
        Op::Aggregate
            | Op::Collect
            | Op::Max
            | Op::Mean
            | Op::Min
            | Op::SecureSum
            | Op::SecureSumBitwidth
            | Op::Sum
            | Op::WeightedMean
    )
}
