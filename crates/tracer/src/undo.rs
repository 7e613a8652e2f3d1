//! Taking back what a replay wrote to its inputs before an operation raised.
//!
//! Where nothing of the user's would run, plain Python ends as the replay does: what was written
//! stays, and the operation's error is raised. Where the program may handle the error it has to run
//! on from there, which a replay can't: so the inputs that it writes are copied first, and the
//! function runs natively from its start. Copies cost what they hold, but only traces pay that write
//! to an input and then operate under a `try`.

use pyo3::prelude::*;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Graph, Node, NodeId, NodeKind, Target};

use crate::handlers::Handlers;
use crate::recorder::Traced;
use crate::rollback;

/// What may have to be taken back.
pub struct Plan {
    /// Whether a replay may write to its inputs.
    pub may_write: bool,
    /// The inputs to copy before each replay.
    copied: Box<[u32]>,
}

/// An input before a replay.
struct Saved<'py> {
    input: Object<'py>,
    copy: Object<'py>,
    grad_fn: Object<'py>,
    requires_grad: bool,
    version: Option<u32>,
}

/// The inputs before a replay.
pub struct Copies<'py>(Vec<Saved<'py>>);

/// Whether the program may handle what an operation of the trace raises.
pub fn may_handle(py: Python<'_>, traced: &Traced) -> bool {
    let handlers = handlers(py, traced);
    calls(&traced.graph).any(|(id, _)| handlers.may_handle(id))
}

fn handlers<'a, 'py>(py: Python<'py>, traced: &'a Traced) -> Handlers<'a, 'py> {
    Handlers { py, graph: &traced.graph, codes: &traced.codes, plain: &traced.plain_withs }
}

fn calls(graph: &Graph) -> impl Iterator<Item = (NodeId, &Node)> {
    graph.nodes().filter(|(_, node)| matches!(node.kind, NodeKind::Call { .. }))
}

impl Plan {
    /// What the replays of a trace may have to take back.
    pub fn of(py: Python<'_>, traced: &Traced) -> Self {
        let graph = &traced.graph;
        let may_write = traced.writes_inputs || rollback::writes_silently(graph, None);
        if !may_write {
            return Self { may_write, copied: Box::default() };
        }
        let handlers = handlers(py, traced);
        let behind = calls(graph).skip_while(|(_, node)| !writes(graph, node)).skip(1);
        let at_risk = behind.into_iter().any(|(id, _)| handlers.may_handle(id));
        // What was put into a tensor in place of its data or gradient isn't copied.
        let replaced = graph.nodes().any(|(_, node)| match &node.kind {
            NodeKind::Call { target: Target::Function { name, .. }, .. } => {
                let name = graph.text(*name);
                name.contains(".data.__") || name.contains(".grad.__")
            }
            _ => false,
        });
        let copies = at_risk && !replaced;
        let copied = if copies { written(traced).into() } else { Box::default() };
        Self { may_write, copied }
    }

    /// Copies what a replay may have to restore.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn copy<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> PyResult<Copies<'py>> {
        let save = |input: &u32| {
            let input = inputs[*input as usize];
            Ok(Saved {
                copy: input.getattr("data")?.call_method0("clone")?,
                grad_fn: input.getattr("grad_fn")?,
                requires_grad: input.getattr("requires_grad")?.extract()?,
                version: tensor::info(input).and_then(|info| info.version),
                input: (*input).clone(),
            })
        };
        if self.copied.is_empty() {
            return Ok(Copies(Vec::new()));
        }
        let quiet = no_grad(py)?;
        let saved = self.copied.iter().map(save).collect::<PyResult<_>>();
        quiet.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        Ok(Copies(saved?))
    }
}

impl Copies<'_> {
    /// Puts the inputs back. False: not all that was written had been copied, or an input's place
    /// in a gradient's graph has changed, which nothing puts back.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn restore(&self, py: Python<'_>) -> PyResult<bool> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let quiet = no_grad(py)?;
        let restored = self.0.iter().try_fold(true, |all, saved| Ok(all & saved.restore(py)?));
        quiet.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        restored
    }
}

impl Saved<'_> {
    fn restore(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.input.getattr("grad_fn")?.is(&self.grad_fn) {
            if !self.grad_fn.is_none() {
                return Ok(false);
            }
            self.input.call_method0("detach_")?;
            self.input.call_method1("requires_grad_", (self.requires_grad,))?;
        }
        if self.input.getattr("requires_grad")?.extract::<bool>()? != self.requires_grad {
            self.input.call_method1("requires_grad_", (self.requires_grad,))?;
        }
        self.input.getattr("data")?.call_method1("copy_", (&self.copy,))?;
        if let Some(version) = self.version {
            let autograd = modules::import(py, "torch._C._autograd")?;
            let arguments = ((&self.input,), (version,));
            autograd.call_method1("_unsafe_set_version_counter", arguments)?;
        }
        Ok(true)
    }
}

fn no_grad(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let quiet = modules::import(py, "torch")?.call_method0("no_grad")?;
    quiet.call_method0("__enter__")?;
    Ok(quiet)
}

/// Whether a node may write to an argument: by PyTorch's convention for names, and those functions
/// that don't follow it.
fn writes(graph: &Graph, node: &Node) -> bool {
    let NodeKind::Call { target, keywords, .. } = &node.kind else { return false };
    let name = match target {
        Target::Operator(operator) => {
            return operator.is_in_place();
        }
        Target::Function { name, .. } | Target::Method { name, .. } => graph.text(*name),
        Target::GetAttr { name } => return graph.text(*name) == "data",
    };
    // `torch.ops.aten.add_.Tensor`, `add_`, `__iadd__`.
    name.split('.').any(|part| part.ends_with('_') && !part.starts_with("__"))
        || name.starts_with("__i")
        || name == "__setitem__"
        || rollback::is_silent(name)
        || graph
            .keywords(*keywords)
            .iter()
            .any(|name| matches!(graph.text(*name), "out" | "inplace"))
}

/// The positions of the inputs that the trace writes: those whose count of writes has grown, and
/// those given to functions that don't count.
fn written(traced: &Traced) -> Vec<u32> {
    let graph = &traced.graph;
    let mut found = traced.written.clone();
    for (_, node) in graph.nodes() {
        let NodeKind::Call { target, args, .. } = &node.kind else { continue };
        let takes_all = match target {
            Target::GetAttr { name } if graph.text(*name) == "data" => true,
            // The place in a gradient's graph.
            Target::Function { name, .. } | Target::Method { name, .. }
                if graph.text(*name).contains("requires_grad")
                    || graph.text(*name) == "detach_" =>
            {
                true
            }
            Target::Function { name, .. } | Target::Method { name, .. }
                if rollback::is_silent(graph.text(*name)) =>
            {
                false
            }
            _ => continue,
        };
        for &arg in graph.args(*args) {
            graph.visit_nodes(arg, &mut |input| {
                let Some(position) = graph.placeholders().iter().position(|id| *id == input) else {
                    return;
                };
                // What is written without being counted are statistics, which need no gradient.
                let needs_grad = match graph.node(input).value {
                    stator_graph::Value::Tensor(meta) => meta.requires_grad,
                    _ => true,
                };
                if takes_all || !needs_grad {
                    found.push(position as u32);
                }
            });
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
