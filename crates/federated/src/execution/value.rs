//! What running computations work on.

use std::fmt;
use std::sync::Arc;

use super::Kernels;
use super::code::{Act, Code};
use super::operation::Operation;
use super::streams::{Later, Merge};
use crate::ast::Compiled;
use crate::placement::Placement;
use crate::types::Type;

/// A value at run time. `L` is what stands for one tensor.
#[derive(Clone, Debug)]
pub enum Value<L> {
    /// A tensor.
    Leaf(L),
    /// The fields of a struct. The type has their names.
    Struct(Items<L>),
    /// The elements of a sequence.
    Sequence(Items<L>),
    /// A function.
    Function(Function<L>),
    /// A placement.
    Placement(Placement),
    /// The one value that every place of a placement holds. It is the only item.
    Everywhere(Items<L>),
    /// What each client holds, in the order of the clients.
    Each(Items<L>),
    /// What each client will hold, put off. What a call gives has no such.
    Later(Later<L>),
    /// What the server will hold, put off: a merge of what clients hold. What a call gives has no such.
    Merge(Merge<L>),
}

/// A function at run time.
#[derive(Clone, Debug)]
pub enum Function<L> {
    /// A lambda with the values of the names from around it.
    Closure {
        /// What it does.
        code: Arc<Code>,
        /// The values, in the order of the code's captures.
        captured: Items<L>,
    },
    /// An operation of the language, and its type.
    Operation(Operation, Type),
    /// A computation that is no tree of blocks, and its type.
    Compiled(Compiled, Type),
}

/// Values in a row, shared.
pub struct Items<L>(Arc<Vec<Value<L>>>);

impl<L> Value<L> {
    /// A struct of these fields.
    pub fn structure(fields: Vec<Self>) -> Self {
        Self::Struct(Items::new(fields))
    }

    /// A sequence of these elements.
    pub fn sequence(elements: Vec<Self>) -> Self {
        Self::Sequence(Items::new(elements))
    }

    /// A federated value that is the same at every place.
    pub fn everywhere(member: Self) -> Self {
        Self::Everywhere(Items::new(vec![member]))
    }

    /// A federated value with one member for each client.
    pub fn each(members: Vec<Self>) -> Self {
        Self::Each(Items::new(members))
    }
}

impl<L> Items<L> {
    /// These values.
    pub fn new(values: Vec<Value<L>>) -> Self {
        Self(Arc::new(values))
    }
}

impl<L: Clone> Items<L> {
    /// The values: these themselves, if nobody else shares them.
    #[must_use]
    pub fn into_values(mut self) -> Vec<Value<L>> {
        match Arc::get_mut(&mut self.0) {
            Some(values) => std::mem::take(values),
            None => self.0.to_vec(),
        }
    }
}

impl<L: Clone> Value<L> {
    /// The same value with other tensors; functions are left as they are.
    ///
    /// # Errors
    /// What `change` says.
    pub fn map_leaves<E>(self, change: &mut dyn FnMut(L) -> Result<L, E>) -> Result<Self, E> {
        type Build<L> = fn(Vec<Value<L>>) -> Value<L>;
        enum Todo<L> {
            Visit(Value<L>),
            Build(usize, Build<L>),
        }
        let mut todo = vec![Todo::Visit(self)];
        let mut done: Vec<Self> = Vec::new();
        while let Some(next) = todo.pop() {
            let (items, build): (Items<L>, Build<L>) = match next {
                Todo::Build(count, build) => {
                    let values = done.split_off(done.len() - count);
                    done.push(build(values));
                    continue;
                }
                Todo::Visit(Self::Struct(items)) => (items, Self::structure),
                Todo::Visit(Self::Sequence(items)) => (items, Self::sequence),
                Todo::Visit(Self::Each(items)) => (items, Self::each),
                Todo::Visit(Self::Everywhere(items)) => {
                    (items, |values| Self::Everywhere(Items::new(values)))
                }
                Todo::Visit(Self::Leaf(leaf)) => {
                    done.push(Self::Leaf(change(leaf)?));
                    continue;
                }
                Todo::Visit(other) => {
                    done.push(other);
                    continue;
                }
            };
            let values = items.into_values();
            todo.push(Todo::Build(values.len(), build));
            todo.extend(values.into_iter().rev().map(Todo::Visit));
        }
        Ok(done.pop().expect("the root is left"))
    }
}

impl<L> std::ops::Deref for Items<L> {
    type Target = [Value<L>];

    fn deref(&self) -> &[Value<L>] {
        &self.0
    }
}

impl<L> Clone for Items<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: fmt::Debug> fmt::Debug for Items<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<L> Drop for Items<L> {
    /// What only it held dies in a loop, not by recursion: structs and closures nest deeply.
    fn drop(&mut self) {
        let Some(values) = Arc::get_mut(&mut self.0) else { return };
        let mut dying = std::mem::take(values);
        while let Some(mut value) = dying.pop() {
            if let Some(values) = value.items_mut().and_then(|items| Arc::get_mut(&mut items.0)) {
                dying.append(values);
            }
        }
    }
}

impl<L> Value<L> {
    /// The values directly in it.
    fn items_mut(&mut self) -> Option<&mut Items<L>> {
        match self {
            Self::Struct(items)
            | Self::Sequence(items)
            | Self::Everywhere(items)
            | Self::Each(items)
            | Self::Function(Function::Closure { captured: items, .. }) => Some(items),
            Self::Leaf(_)
            | Self::Placement(_)
            | Self::Function(_)
            | Self::Later(_)
            | Self::Merge(_) => None,
        }
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Leaf(_) => "a tensor",
            Self::Struct(_) => "a struct",
            Self::Sequence(_) => "a sequence",
            Self::Function(_) => "a function",
            Self::Placement(_) => "a placement",
            Self::Everywhere(_) | Self::Merge(_) => "a federated value, the same everywhere",
            Self::Each(_) | Self::Later(_) => "a federated value, one per client",
        }
    }
}

impl<L> Function<L> {
    /// Whether it may run a compiled computation, which is work that is worth a thread.
    pub(super) fn is_heavy(&self) -> bool {
        let captured = match self {
            Self::Compiled(..) => return true,
            Self::Operation(..) => return false,
            Self::Closure { code, .. } if code.runs_compiled => return true,
            Self::Closure { captured, .. } => captured,
        };
        let mut left: Vec<&Items<L>> = vec![captured];
        while let Some(items) = left.pop() {
            for value in items.iter() {
                match value {
                    Value::Function(Self::Compiled(..)) => return true,
                    Value::Function(Self::Closure { code, .. }) if code.runs_compiled => {
                        return true;
                    }
                    // Tensors in federated values and sequences are data: no functions there.
                    Value::Function(Self::Closure { captured, .. }) => left.push(captured),
                    Value::Struct(items) => left.push(items),
                    _ => {}
                }
            }
        }
        false
    }

    /// What it does, if that is to select from its argument and to make structs of what it selects, and nothing else.
    pub(super) fn rearranges(&self) -> Option<&Code> {
        let Self::Closure { code, captured } = self else { return None };
        let rearranges = |act: &Act| matches!(act, Act::Select(..) | Act::Struct(_));
        let only = code.steps.iter().all(|step| rearranges(&step.act));
        (captured.is_empty() && only && code.parameter.is_some()).then_some(&**code)
    }

    /// Whether what it may run has effects: all that isn't known to have none.
    pub(super) fn has_effects<K: Kernels<Leaf = L>>(&self, kernels: &K) -> bool {
        self.may_run(|compiled, ty| !kernels.is_pure(compiled, ty))
    }

    /// Whether it may run a program that draws random numbers.
    pub(super) fn draws<K: Kernels<Leaf = L>>(&self, kernels: &K) -> bool {
        self.may_run(|compiled, ty| kernels.draws(compiled, ty))
    }

    /// Whether it may run a compiled computation of which this holds.
    pub(super) fn may_run(&self, holds: impl Fn(&Compiled, &Type) -> bool) -> bool {
        let mut functions = vec![self];
        let mut codes: Vec<&Code> = Vec::new();
        loop {
            if let Some(code) = codes.pop() {
                for step in &code.steps {
                    match &step.act {
                        Act::Compiled(compiled, ty) if holds(compiled, ty) => {
                            return true;
                        }
                        Act::Closure(inner, _) if inner.runs_compiled => codes.push(inner),
                        _ => {}
                    }
                }
                continue;
            }
            match functions.pop() {
                None => return false,
                Some(Self::Operation(..)) => {}
                Some(Self::Compiled(compiled, ty)) if holds(compiled, ty) => {
                    return true;
                }
                Some(Self::Compiled(..)) => {}
                Some(Self::Closure { code, captured }) => {
                    if code.runs_compiled {
                        codes.push(code);
                    }
                    let mut left: Vec<&Items<L>> = vec![captured];
                    while let Some(items) = left.pop() {
                        for value in items.iter() {
                            match value {
                                Value::Function(function) => functions.push(function),
                                Value::Struct(items) => left.push(items),
                                _ => {}
                            }
                        }
                    }
                }
            }
        }
    }
}
