//! Whether the user's program may handle an exception that an operation raises: a `try` around it,
//! in its function or in one that calls it, or a `with` whose manager may swallow the exception or
//! do something on the way out.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_bytecode::{Meaning, exception_table};
use stator_cpython::code::Code;
use stator_graph::{Graph, NodeId, StackId};

use crate::locate::text;

/// `with` instructions, by code object and unit.
pub type Withs = FxHashSet<(usize, usize)>;

/// Handlers nest no deeper than CPython's blocks, twice: each has a clean-up of its own.
const NESTING: usize = 64;

/// Asks about nodes of one graph.
pub struct Handlers<'a, 'py> {
    /// GIL token.
    pub py: Python<'py>,
    /// The graph.
    pub graph: &'a Graph,
    /// Code objects by their index in the graph's stacks.
    pub codes: &'a [Py<PyAny>],
    /// The `with` instructions whose managers do no more than put PyTorch's modes back.
    pub plain: &'a Withs,
}

impl Handlers<'_, '_> {
    /// Whether something of the user's would run if this node raised.
    pub fn may_handle(&self, node: NodeId) -> bool {
        self.graph.node(node).stack.is_some_and(|stack| self.may_handle_at(stack))
    }

    /// Whether something of the user's would run if an operation at this place raised.
    pub fn may_handle_at(&self, stack: StackId) -> bool {
        self.graph.stacks().walk(stack).any(|frame| {
            let code = self.codes.get(frame.code as usize);
            let code = code.and_then(|code| Code::of(code.bind_borrowed(self.py)));
            code.is_none_or(|code| self.handles(&code, frame.instruction as usize))
        })
    }

    fn handles(&self, code: &Code<'_>, unit: usize) -> bool {
        let mut unit = unit;
        if code.handler_for(unit).is_some() && is_tidy(code) {
            return false;
        }
        for _ in 0..NESTING {
            let Some(handler) = code.handler_for(unit) else { return false };
            unit = handler.target;
            if !self.passes_on(code, unit) {
                return true;
            }
        }
        true
    }

    /// Whether a handler only raises again.
    fn passes_on(&self, code: &Code<'_>, target: usize) -> bool {
        let at = |unit: usize| code.unit(unit).map(|unit| unit.meaning());
        if at(target) != Some(Meaning::BeginHandling) {
            // The clean-up behind an `except` block.
            return true;
        }
        if at(target + 1) != Some(Meaning::Exit) {
            return false;
        }
        let Ok(table) = exception_table::decode(code.exception_table()) else { return false };
        let covered = table.iter().filter(|entry| entry.target as usize == target);
        let first = covered.map(|entry| entry.start as usize).min();
        let with = first.and_then(|first| first.checked_sub(1));
        with.is_some_and(|with| self.plain.contains(&(code.as_ptr() as usize, with)))
    }
}

/// Functions of PyTorch's whose handlers put modes back, and labels for profilers: `finally` around a step of an
/// optimizer and around the way back. They look at no tensor.
const TIDY: &[(&str, &str)] = &[
    ("/torch/optim/optimizer.py", "_use_grad_for_differentiable.<locals>._use_grad"),
    ("/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"),
    ("/torch/autograd/graph.py", "_engine_run_backward"),
];

fn is_tidy(code: &Code<'_>) -> bool {
    let name = text(code.qualname());
    let known = TIDY.iter().find(|(_, known)| *known == name);
    known.is_some_and(|(file, _)| text(code.filename()).ends_with(file))
}

/// Whether a manager does no more, when it is left, than put PyTorch's modes back.
pub fn is_plain_manager(manager: &Bound<'_, PyAny>) -> bool {
    let name = manager.get_type().fully_qualified_name();
    let name = name.map_or_else(|_| String::new(), |name| name.to_string());
    name.starts_with("torch.autograd.grad_mode.")
        || name.starts_with("torch.amp.autocast_mode.")
        || name == "torch.autograd.profiler.record_function"
        // A scheduler's own mark, which is what it was again when the block is left.
        || name == "torch.optim.lr_scheduler._enable_get_lr_call"
}
