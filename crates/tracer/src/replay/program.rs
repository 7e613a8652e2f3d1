//! The data of a program: steps, and the tables they index.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use stator_cpython::aten;
use stator_cpython::vectorcall::{BinaryFunction, UnaryFunction};
use stator_graph::{Graph, NodeId, StackId};

use crate::callers::{CallSites, Callers};

/// A graph, ready to run on new inputs.
///
/// Invariants (kept by `compile`):
/// * a register is written before it is read, and cleared after its last read;
/// * a step frees only registers that it, or a step that builds its arguments, reads, and none
///   twice;
/// * operands of each [`Action`] have the number that the action needs.
pub struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) operands: Vec<Operand>,
    pub(super) frees: Vec<u32>,
    pub(super) constants: Vec<Py<PyAny>>,
    pub(super) names: Vec<Py<PyString>>,
    pub(super) keywords: Vec<Py<PyTuple>>,
    pub(super) outputs: Vec<Operand>,
    pub(super) input_count: usize,
    pub(super) register_count: usize,
    /// Calls of operators, each with what is done where it can't be made.
    pub(super) direct: Vec<(aten::Call, Action)>,
    /// What its calls are made from, if that matters.
    pub(super) sites: Option<CallSites>,
}

impl Program {
    /// The number of inputs a run takes: the graph's placeholders, in their order.
    pub fn input_count(&self) -> usize {
        self.input_count
    }

    /// Its calls are made from these frames: it is the program of a graph of their trace.
    #[must_use]
    pub fn from_callers(mut self, callers: &Arc<Callers>, graph: &Graph) -> Self {
        self.sites = Some(CallSites::new(callers, graph));
        self
    }

    /// The number of values that are alive at once, at most.
    pub fn register_count(&self) -> usize {
        self.register_count
    }
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Input(u32),
    Register(u32),
    Constant(u32),
}

/// A run in one of the program's tables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Run {
    pub(super) fn of<T>(self, table: &[T]) -> &[T] {
        &table[self.start as usize..self.end as usize]
    }
}

/// One step: apply the action to the operands, clear the freed registers, store the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) operands: Run,
    pub(super) frees: Run,
    /// The register that takes the result; `None` drops it.
    pub(super) result: Option<u32>,
    /// The node that the step belongs to, for errors.
    pub(super) node: NodeId,
    /// If it is a call: where it is made from.
    pub(super) place: Option<StackId>,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Calls a constant with the operands; `keywords` indexes the table of name tuples.
    Call { callable: u32, keywords: Option<u32> },
    /// Calls an operator of PyTorch's.
    Direct { call: u32 },
    /// Calls a method of the first operand.
    Method { name: u32, keywords: Option<u32> },
    /// Reads an attribute of the operand.
    GetAttr { name: u32 },
    /// An operator with one operand.
    Unary(UnaryFunction),
    /// An operator with two operands.
    Binary(BinaryFunction),
    /// `operands[0][operands[1]] = operands[2]`; the result is `None`.
    SetItem,
    /// `del operands[0][operands[1]]`; the result is `None`.
    DelItem,
    /// An element of the operand, a tuple or another sequence.
    Element { index: u32 },
    /// The program is left, with the operands behind the second, unless the first is the second; the result is a tuple
    /// of those.
    Decide { exit: u32 },
    /// As an earlier decision, whose result is the third operand; the result is `None`.
    DecideToo { exit: u32 },
    /// Calls a constant with the operands, with overrides by `__torch_function__` off; another constant is what
    /// turns them off.
    CallPlain { callable: u32, off: u32 },
    /// Nothing.
    Nothing,
    /// Nothing. If the step of the node before raises, the program is left with the operands.
    Catch { exit: u32 },
    /// A part of a cut graph: a tuple or list of what it gives.
    Part { part: u32 },
    /// A list of the operands.
    List,
    /// A tuple of the operands.
    Tuple,
    /// A dict of the operands, keys and values in turn.
    Dict,
}

impl Action {
    /// Whether it may run C code that warns.
    pub(super) fn may_warn(self) -> bool {
        matches!(
            self,
            Self::Call { .. }
                | Self::Direct { .. }
                | Self::CallPlain { .. }
                | Self::Method { .. }
                | Self::GetAttr { .. }
                | Self::Unary(_)
                | Self::Binary(_)
                | Self::SetItem
                | Self::DelItem
        )
    }
}
