//! What a function does, as a list of steps over numbered slots: names are resolved, blocks are
//! gone, and each node of the tree that occurs more than once in a scope is one step.

use std::sync::Arc;

use super::operation::Operation;
use crate::ast::{BuildingBlock, Compiled};
use crate::placement::Placement;
use crate::types::Type;

/// Where a function keeps a value while it runs.
pub type Slot = u32;

/// The steps of one function.
#[derive(Debug)]
pub struct Code {
    /// Where the argument goes, if it takes one.
    pub(super) parameter: Option<Slot>,
    /// Where the values go that a closure brings with it.
    pub(super) captures: Box<[Slot]>,
    pub(super) steps: Box<[Step]>,
    pub(super) result: Slot,
    /// How many slots there are.
    pub(super) slots: u32,
    /// Whether it, or a lambda in it, names a compiled computation.
    pub(super) runs_compiled: bool,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) act: Act,
    pub(super) out: Slot,
    /// The slots that nothing reads after this step.
    pub(super) last_read: Box<[Slot]>,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum Act {
    /// A literal or data: the block says which.
    Constant(BuildingBlock),
    Placement(Placement),
    /// `generic_zero`, the one operation that is no function.
    Zero(Type),
    Operation(Operation, Type),
    Compiled(Compiled, Type),
    Select(Slot, u32),
    Struct(Box<[Slot]>),
    Call(Slot, Option<Slot>),
    Closure(Arc<Code>, Box<[Slot]>),
}

impl Act {
    /// The slots that it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = Slot> + '_ {
        let (row, first, second): (&[Slot], Option<Slot>, Option<Slot>) = match self {
            Self::Constant(_)
            | Self::Placement(_)
            | Self::Zero(_)
            | Self::Operation(..)
            | Self::Compiled(..) => (&[], None, None),
            Self::Select(source, _) => (&[], Some(*source), None),
            Self::Struct(row) | Self::Closure(_, row) => (row, None, None),
            Self::Call(function, argument) => (&[], Some(*function), *argument),
        };
        row.iter().copied().chain(first).chain(second)
    }
}

impl Drop for Code {
    /// Lambdas nest deeply: what only it held dies in a loop.
    fn drop(&mut self) {
        let mut dying = Vec::new();
        take_codes(&mut self.steps, &mut dying);
        while let Some(code) = dying.pop() {
            if let Some(mut code) = Arc::into_inner(code) {
                take_codes(&mut code.steps, &mut dying);
            }
        }
    }
}

fn take_codes(steps: &mut Box<[Step]>, into: &mut Vec<Arc<Code>>) {
    for step in std::mem::take(steps) {
        if let Act::Closure(code, _) = step.act {
            into.push(code);
        }
    }
}
