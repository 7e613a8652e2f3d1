//! Running a computation that was split: the server's part where it was called, the clients' part anywhere.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use super::code::Code;
use super::leaves::leafwise;
use super::machine::not_this;
use super::split::{Id, Known, What};
use super::{Function, Interpreter, Items, Kernels, Members, Split, Value};
use crate::ast::BlockKind;
use crate::error::{Class, Error};

/// The values of the nodes of a computation that depend on nothing.
#[derive(Clone, Debug)]
pub struct Constants<L>(Vec<Option<Value<L>>>);

/// One call of a computation that was split, where it was called.
///
/// A stage is begun, what it broadcasts and what it gives to clients is handed out, what they made is merged in
/// the order of the clients, and the stage is ended.
#[derive(Debug)]
pub struct Run<K: Kernels> {
    split: Arc<Split>,
    pub(super) interpreter: Interpreter<K>,
    pub(super) values: Vec<Option<Value<K::Leaf>>>,
    /// What the clients so far have made, of each node that merges.
    pub(super) partials: FxHashMap<Id, Value<K::Leaf>>,
    /// The members so far, of each node that is needed later.
    pub(super) kept: FxHashMap<Id, Members<K::Leaf>>,
}

impl<K: Kernels> Interpreter<K> {
    /// What depends on nothing, for all calls of the computation.
    ///
    /// # Errors
    /// What the kernels say.
    pub fn constants(&self, split: &Split) -> Result<Constants<K::Leaf>, K::Error> {
        let mut values = vec![None; split.nodes.len()];
        for (id, node) in split.nodes.iter().enumerate() {
            values[id] = match &node.what {
                What::Constant(block) => match block.kind() {
                    BlockKind::Literal(array) => {
                        Some(Value::Leaf(self.kernels.literal(array, block.ty())?))
                    }
                    _ => None,
                },
                What::Zero(ty) => Some(leafwise(ty, [], |ty, []| self.kernels.zero(ty))?),
                What::Select(source, index) => match &values[*source] {
                    Some(source) => Some(select(source, *index)?),
                    None => None,
                },
                What::Argument | What::Call(..) => None,
            };
        }
        Ok(Constants(values))
    }

    /// The clients' part of a stage, for some clients that come one after the other: what the nodes that merge
    /// have of them, then the members that are needed later.
    ///
    /// # Errors
    /// What their work says.
    pub fn at_stage(
        &self,
        split: &Split,
        stage: usize,
        constants: &Constants<K::Leaf>,
        broadcast: Members<K::Leaf>,
        given: Members<K::Leaf>,
    ) -> Result<Members<K::Leaf>, K::Error> {
        let stage = &split.stages[stage];
        if (broadcast.len(), given.len()) != (stage.broadcast.len(), stage.given.len()) {
            let message = "what clients were given isn't what this stage asks for";
            return Err(Error::new(Class::Value, message).into());
        }
        let mut values = constants.0.clone();
        let row = stage.broadcast.iter().zip(broadcast).chain(stage.given.iter().zip(given));
        row.for_each(|(&id, value)| values[id] = Some(value));
        for &id in &stage.clients {
            let (function, argument) = call(split, id, &values);
            // Counted as where it isn't split.
            self.maps.store(split.nodes[id].map, Ordering::Relaxed);
            values[id] = Some(self.call(function, argument)?);
        }
        let mut made = Vec::with_capacity(stage.merged.len() + stage.kept.len());
        for &id in &stage.merged {
            let (operation, ty) = split.operation(id);
            let (_, argument) = call(split, id, &values);
            let argument = argument.expect("merging operations have one");
            made.push(self.partial(operation, ty, &argument)?);
        }
        made.extend(stage.kept.iter().map(|&id| values[id].take().expect("it was made")));
        Ok(made)
    }
}

impl<K: Kernels> Run<K> {
    /// Begins a call.
    ///
    /// # Errors
    /// What the kernels say of constants.
    pub fn new(
        split: &Arc<Split>,
        interpreter: Interpreter<K>,
        argument: Option<Value<K::Leaf>>,
    ) -> Result<Self, K::Error> {
        let mut values = interpreter.constants(split)?.0;
        let mut left: Vec<(Known, Value<K::Leaf>)> =
            split.parameter.clone().into_iter().zip(argument).collect();
        while let Some((known, value)) = left.pop() {
            match (known, value) {
                (Value::Leaf(id), value) => values[id] = Some(value),
                (Value::Struct(known), Value::Struct(fields)) if known.len() == fields.len() => {
                    left.extend(known.into_values().into_iter().zip(fields.into_values()));
                }
                (_, value) => return Err(not_this("a struct", &value).into()),
            }
        }
        let (partials, kept) = (FxHashMap::default(), FxHashMap::default());
        Ok(Self { split: Arc::clone(split), interpreter, values, partials, kept })
    }

    /// The computation.
    pub fn split(&self) -> Arc<Split> {
        Arc::clone(&self.split)
    }

    /// Does the server's part of a stage.
    ///
    /// # Errors
    /// What its operations say.
    pub fn begin(&mut self, stage: usize) -> Result<(), K::Error> {
        let split = self.split();
        for &id in &split.stages[stage].server {
            let value = match &split.nodes[id].what {
                What::Constant(block) => self.interpreter.evaluate(block)?,
                What::Select(source, index) => {
                    select(self.values[*source].as_ref().ok_or_else(too_early)?, *index)?
                }
                What::Call(..) => {
                    let (function, argument) = call(&split, id, &self.values);
                    self.interpreter.call(function, argument)?
                }
                What::Argument | What::Zero(_) => unreachable!("nothing is done for them"),
            };
            self.values[id] = Some(value);
        }
        Ok(())
    }

    /// What all clients are sent in a stage.
    ///
    /// # Errors
    /// An earlier stage wasn't ended.
    pub fn broadcast(&self, stage: usize) -> Result<Members<K::Leaf>, K::Error> {
        let row = self.split.stages[stage].broadcast.iter();
        Ok(row
            .map(|&id| self.values[id].clone().ok_or_else(too_early))
            .collect::<Result<_, _>>()?)
    }

    /// What these clients have of their own in a stage.
    ///
    /// # Errors
    /// An earlier stage wasn't ended.
    pub fn given(&self, stage: usize, clients: Range<usize>) -> Result<Members<K::Leaf>, K::Error> {
        let members = |&id: &Id| match &self.values[id] {
            Some(Value::Each(members)) if clients.end <= members.len() => {
                Ok(Value::each(members[clients.clone()].to_vec()))
            }
            _ => Err(too_early()),
        };
        Ok(self.split.stages[stage].given.iter().map(members).collect::<Result<_, _>>()?)
    }

    /// The result, after all stages.
    pub fn result(&self) -> Value<K::Leaf> {
        self.resolve(&self.split.result)
    }

    /// The value of what is known.
    pub(super) fn resolve(&self, known: &Known) -> Value<K::Leaf> {
        resolve(known, &self.values)
    }
}

/// The function and the argument of a node.
fn call<L: Clone>(
    split: &Split,
    id: Id,
    values: &[Option<Value<L>>],
) -> (Function<L>, Option<Value<L>>) {
    let What::Call(function, argument) = &split.nodes[id].what else {
        unreachable!("it is the node of a call")
    };
    let Value::Function(function) = resolve(&Value::Function(function.clone()), values) else {
        unreachable!("a function stays one")
    };
    (function, argument.as_ref().map(|argument| resolve(argument, values)))
}

/// The value of what is known, where the nodes in it have these.
fn resolve<L: Clone>(known: &Known, values: &[Option<Value<L>>]) -> Value<L> {
    enum Todo<'a> {
        Visit(&'a Known),
        Struct(usize),
        Closure(&'a Arc<Code>, usize),
    }
    let mut todo = vec![Todo::Visit(known)];
    let mut done: Vec<Value<L>> = Vec::new();
    while let Some(next) = todo.pop() {
        let made = match next {
            Todo::Struct(count) => Value::structure(done.split_off(done.len() - count)),
            Todo::Closure(code, count) => {
                let captured = Items::new(done.split_off(done.len() - count));
                Value::Function(Function::Closure { code: Arc::clone(code), captured })
            }
            Todo::Visit(known) => match known {
                Value::Leaf(id) => values[*id].clone().expect("it was done before"),
                Value::Struct(fields) => {
                    todo.push(Todo::Struct(fields.len()));
                    todo.extend(fields.iter().rev().map(Todo::Visit));
                    continue;
                }
                Value::Function(Function::Closure { code, captured }) => {
                    todo.push(Todo::Closure(code, captured.len()));
                    todo.extend(captured.iter().rev().map(Todo::Visit));
                    continue;
                }
                Value::Function(Function::Operation(operation, ty)) => {
                    Value::Function(Function::Operation(*operation, ty.clone()))
                }
                Value::Function(Function::Compiled(compiled, ty)) => {
                    Value::Function(Function::Compiled(compiled.clone(), ty.clone()))
                }
                Value::Placement(placement) => Value::Placement(*placement),
                Value::Sequence(_)
                | Value::Everywhere(_)
                | Value::Each(_)
                | Value::Later(_)
                | Value::Merge(_) => {
                    unreachable!("only running makes these")
                }
            },
        };
        done.push(made);
    }
    done.pop().expect("the root is left")
}

fn select<L: Clone>(source: &Value<L>, index: u32) -> Result<Value<L>, Error> {
    match source {
        Value::Struct(fields) => Ok(fields[index as usize].clone()),
        other => Err(not_this("a struct", other)),
    }
}

fn too_early() -> Error {
    Error::new(Class::Value, "a stage is begun after the ones before it have ended")
}
