//! Taking back what a replay did to its inputs before an operation raised, so that the function can
//! run natively from its start: there `except`, `finally` and the traceback are its own, and so is what
//! it writes to Python objects.
//!
//! What may have to be taken back is saved before the replay: of an input that the trace writes, and
//! behind whose write an operation may raise for what is in its inputs, or where the program may handle
//! what an operation raises. So most traces that write save nothing: a step of an optimizer, running
//! statistics. A tensor's sizes, its gradient and which memory it has cost a reference; its data costs
//! a copy, so the recorder ends a trace before an operation that would ask for large ones.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Graph, NodeId, NodeKind, Value};

use crate::handlers::Handlers;
use crate::raises::{LIBRARY, NodeCall};
use crate::rollback;
use crate::trace::Traced;
use crate::writes::{self, Writes, Written};

/// Copies of more bytes aren't made where a graph can be cut instead, or for want of memory.
pub const LARGE: u64 = 4 << 20;

/// As [`LARGE`], of the copies that only an entry's first replay makes.
const LARGE_ONCE: u64 = 64 << 20;

/// As [`LARGE`], where nothing but want of memory can raise and the program may handle that: no graph is cut then,
/// as most operations could raise so.
const LARGE_HANDLED: u64 = 64 << 20;

/// What may have to be taken back.
#[derive(Default)]
pub struct Plan {
    /// Whether a replay may write to its inputs.
    pub may_write: bool,
    /// Whether the program may handle what an operation raises for want of memory, and what it writes before is
    /// too large to be saved: then it runs natively.
    pub is_too_large: bool,
    /// The inputs to save before each replay, and what of them is written.
    saved: Box<[(u32, Written)]>,
    /// All inputs that a replay may write, if others than these are among them: see
    /// [`Plan::of_the_first`].
    all: Box<[(u32, Written)]>,
}

/// An input before a replay.
struct Saved<'py> {
    input: Object<'py>,
    /// A tensor of the same memory, with the sizes and strides.
    alias: Object<'py>,
    copy: Option<Object<'py>>,
    gradient: Option<Object<'py>>,
    grad_fn: Object<'py>,
    requires_grad: bool,
    version: Option<u32>,
}

/// The inputs before a replay.
pub struct Copies<'py>(SmallVec<[Saved<'py>; 4]>);

/// Whether the program may handle what an operation of the trace raises.
pub fn may_handle(py: Python<'_>, traced: &Traced) -> bool {
    let handlers = handlers(py, traced);
    let mut calls =
        traced.graph.nodes().filter(|(_, node)| matches!(node.kind, NodeKind::Call { .. }));
    calls.any(|(id, _)| handlers.may_handle(id))
}

/// Whether the node that raised is the program's own code, which isn't called again. Where the program
/// may handle what such code raises, no trace holds it.
pub fn is_once(py: Python<'_>, traced: &Traced, failed: Option<NodeId>) -> bool {
    let is_users = |node| NodeCall::of(&traced.graph, node).is_some_and(|call| call.is_users());
    failed.is_some_and(|node| is_users(node) && !handlers(py, traced).may_handle(node))
}

/// Whether the program may handle what is raised where this node was recorded.
pub fn may_handle_at(py: Python<'_>, traced: &Traced, node: NodeId) -> bool {
    handlers(py, traced).may_handle(node)
}

/// Whether a replay has called code of the program's own before this node.
pub fn has_called(traced: &Traced, node: NodeId) -> bool {
    let mut before = traced.graph.nodes().take(node.index());
    before.any(|(id, _)| NodeCall::of(&traced.graph, id).is_some_and(|call| call.is_users()))
}

/// Whether an exception didn't come from the operation that ran when it was raised, but from a
/// signal's handler: plain code of PyTorch's raises in frames of its own, or in none.
pub fn is_interrupted(
    py: Python<'_>,
    traced: &Traced,
    failed: Option<NodeId>,
    error: &PyErr,
) -> bool {
    if !error.is_instance_of::<PyException>(py) {
        return true;
    }
    let call = failed.and_then(|node| NodeCall::of(&traced.graph, node));
    if call.is_none_or(|call| call.is_users()) {
        return false;
    }
    let mut last = error.traceback(py).map(Bound::into_any);
    while let Some(next) = last.as_ref().and_then(|entry| entry.getattr("tb_next").ok())
        && !next.is_none()
    {
        last = Some(next);
    }
    let module = |entry: Object<'_>| {
        let globals = entry.getattr("tb_frame")?.getattr("f_globals")?;
        globals.call_method1("get", ("__name__",))?.extract::<String>()
    };
    // Code without a name for its module may be anybody's.
    last.is_some_and(|entry| {
        module(entry)
            .is_ok_and(|name| name.split('.').next() != Some("torch") && !LIBRARY.contains(&&*name))
    })
}

fn handlers<'a, 'py>(py: Python<'py>, traced: &'a Traced) -> Handlers<'a, 'py> {
    Handlers { py, graph: &traced.graph, codes: traced.callers.codes(), plain: &traced.plain_withs }
}

impl Plan {
    /// What the replays of a trace may have to take back.
    pub fn of(py: Python<'_>, traced: &Traced) -> Self {
        if traced.written.is_empty() && !writes::any(&traced.graph) {
            return Self::default();
        }
        let handlers = handlers(py, traced);
        let mut writes = Writes::default();
        let is_handled = |id: NodeId| handlers.may_handle(id);
        writes.advance(&traced.graph, &is_handled);
        let may_write = !traced.written.is_empty() || !writes.written.is_empty();
        let mut saved = writes.at_risk;
        let data = writes.handled.iter().filter(|(_, written)| written.data);
        let size = data.map(|(position, _)| bytes(&traced.graph, *position)).sum::<u64>();
        let is_too_large = size > LARGE_HANDLED;
        for (position, written) in writes.handled {
            saved.entry(position).or_default().add(written);
        }
        // Written by an operation that doesn't look like it.
        let unseen = traced.written.iter().filter(|it| !writes.written.contains_key(it));
        let unseen: Vec<_> = unseen.map(|position| (*position, Written::DATA)).collect();
        if writes.may_raise || !saved.is_empty() {
            saved.extend(unseen.iter().copied());
        }
        let mut all = writes.written;
        all.extend(unseen);
        for (position, written) in &saved {
            all.entry(*position).or_default().add(*written);
        }
        let sorted = |inputs: FxHashMap<u32, Written>| {
            let mut inputs: Vec<_> = inputs.into_iter().collect();
            inputs.sort_unstable_by_key(|(position, _)| *position);
            inputs.into_boxed_slice()
        };
        let data = all.iter().filter(|(_, written)| written.data);
        let size = data.map(|(position, _)| bytes(&traced.graph, *position)).sum::<u64>();
        if size > LARGE_ONCE {
            all.clear();
        }
        Self { may_write, is_too_large, saved: sorted(saved), all: sorted(all) }
    }

    /// Whether data is copied before a replay.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.saved.iter().any(|(_, written)| written.data)
    }

    /// The plan for an entry's first replay, if that is another one: it saves whatever is written. A bug
    /// of Stator's that comes with each replay shows there, and can be taken back.
    #[must_use]
    pub fn of_the_first(&self) -> Option<Self> {
        let is_other = self.all.len() > self.saved.len()
            || self.all.iter().zip(&self.saved).any(|(all, saved)| !saved.1.covers(all.1));
        is_other.then(|| Self {
            may_write: self.may_write,
            is_too_large: self.is_too_large,
            saved: self.all.clone(),
            all: Box::default(),
        })
    }

    /// Whether all was saved that a replay has written when the node `failed` raised. `before`: the
    /// counts of writes at its beginning.
    pub fn covers(
        &self,
        traced: &Traced,
        (failed, is_in_turn): (Option<NodeId>, bool),
        inputs: &[Borrowed<'_, '_>],
        before: &[Option<u32>],
        copies: &Copies<'_>,
    ) -> bool {
        let saved = |position: u32| {
            let at = self.saved.binary_search_by_key(&position, |(position, _)| *position);
            at.ok().map(|at| self.saved[at].1)
        };
        let now = rollback::versions(inputs);
        let has_count = |(input, now): (&Borrowed<'_, '_>, &Option<u32>)| {
            now.is_some() || !tensor::is_tensor(*input)
        };
        let is_unwritten = before == now.as_slice() && inputs.iter().zip(&now).all(has_count);
        let seen = writes::up_to(&traced.graph, failed, is_unwritten, is_in_turn);
        let mut written = seen.iter();
        // Those that share memory count together.
        let shares = |position: u32| copies.share(inputs[position as usize]);
        let mut counts = (0..).zip(before.iter().zip(&now));
        written.all(|(position, written)| saved(*position).is_some_and(|it| it.covers(*written)))
            && counts.all(|(at, (before, now))| before == now || saved(at).is_some() || shares(at))
    }

    /// Saves what a replay may have to put back.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn save<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> PyResult<Copies<'py>> {
        if self.saved.is_empty() {
            return Ok(Copies(SmallVec::new()));
        }
        let save = |(position, written): &(u32, Written)| {
            let input = inputs[*position as usize];
            tensor::is_tensor(input).then(|| Saved::of(input, *written))
        };
        let _quiet = NoGrad::new(py)?;
        Ok(Copies(self.saved.iter().filter_map(save).collect::<PyResult<_>>()?))
    }
}

impl Copies<'_> {
    /// Whether an input has the memory that one of these had.
    fn share(&self, input: Borrowed<'_, '_>) -> bool {
        let storage = |tensor: Borrowed<'_, '_>| tensor::memory(tensor).map(|it| it.storage);
        let wanted = storage(input);
        wanted.is_some() && self.0.iter().any(|it| storage(it.alias.as_borrowed()) == wanted)
    }

    /// Whether the inputs can be put back: not if the place of one in a gradient's graph has changed.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn can_be_restored(&self) -> PyResult<bool> {
        for saved in &self.0 {
            if !saved.can_be_placed()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts the inputs back. False: they [can't be](Copies::can_be_restored).
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn restore(&self, py: Python<'_>) -> PyResult<bool> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let _quiet = NoGrad::new(py)?;
        self.put_back(py)
    }

    fn put_back(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.can_be_restored()? {
            return Ok(false);
        }
        self.0.iter().try_for_each(|saved| saved.place())?;
        // Data last: inputs may share memory.
        self.0.iter().try_for_each(|saved| saved.fill(py))?;
        Ok(true)
    }
}

impl<'py> Saved<'py> {
    fn of(input: Borrowed<'_, 'py>, written: Written) -> PyResult<Self> {
        let py = input.py();
        let alias = input.getattr(pyo3::intern!(py, "data"))?;
        let copy =
            if written.data { Some(alias.call_method0(pyo3::intern!(py, "clone"))?) } else { None };
        Ok(Self {
            copy,
            alias,
            gradient: if written.gradient { tensor::gradient(input) } else { None },
            grad_fn: input.getattr(pyo3::intern!(py, "grad_fn"))?,
            requires_grad: input.getattr(pyo3::intern!(py, "requires_grad"))?.extract()?,
            version: tensor::info(input).and_then(|info| info.version),
            input: (*input).clone(),
        })
    }

    /// Whether its place in a gradient's graph is the same, or that of a leaf.
    fn can_be_placed(&self) -> PyResult<bool> {
        let is_same = self.input.getattr("grad_fn")?.is(&self.grad_fn);
        Ok(is_same
            || (self.grad_fn.is_none() && !self.input.call_method0("_is_view")?.extract()?))
    }

    fn place(&self) -> PyResult<()> {
        if !self.input.getattr("grad_fn")?.is(&self.grad_fn) {
            self.input.call_method0("detach_")?;
        }
        if self.input.getattr("requires_grad")?.extract::<bool>()? != self.requires_grad {
            self.input.call_method1("requires_grad_", (self.requires_grad,))?;
        }
        if !looks_alike(&self.input, &self.alias) {
            self.input.setattr("data", &self.alias)?;
        }
        match &self.gradient {
            Some(gradient) if !self.input.getattr("grad")?.is(gradient) => {
                self.input.setattr("grad", gradient)
            }
            _ => Ok(()),
        }
    }

    fn fill(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(copy) = &self.copy {
            self.alias.call_method1("copy_", (copy,))?;
        }
        if let Some(version) = self.version {
            let autograd = modules::import(py, "torch._C._autograd")?;
            let arguments = ((&self.input,), (version,));
            autograd.call_method1("_unsafe_set_version_counter", arguments)?;
        }
        Ok(())
    }
}

/// The bytes of an input, as it was recorded.
fn bytes(graph: &Graph, position: u32) -> u64 {
    let node = graph.placeholders()[position as usize];
    let Value::Tensor(meta) = graph.node(node).value else { return 0 };
    let sizes = graph.sizes(&meta).iter().map(|size| size.unsigned_abs());
    sizes.product::<u64>() * meta.dtype.bytes().unwrap_or(16)
}

/// Whether two tensors have the same memory, sizes and strides.
fn looks_alike(left: &Object<'_>, right: &Object<'_>) -> bool {
    let looks = |tensor: &Object<'_>| {
        let tensor = tensor.as_borrowed();
        let info = tensor::info(tensor)?;
        let memory = tensor::memory(tensor)?;
        Some((memory, info.sizes.to_vec(), info.strides.to_vec(), info.storage_offset))
    };
    looks(left).is_some_and(|left| Some(left) == looks(right))
}

/// Gradients are off until dropped. None of Python's code runs for that, so no signal's handler does.
struct NoGrad<'py> {
    switch: Object<'py>,
    before: bool,
}

impl<'py> NoGrad<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let before = modules::import(py, "torch")?.call_method0("is_grad_enabled")?.extract()?;
        let switch = modules::import(py, "torch._C")?.getattr("_set_grad_enabled")?;
        switch.call1((false,))?;
        Ok(Self { switch, before })
    }
}

impl Drop for NoGrad<'_> {
    fn drop(&mut self) {
        let _ = self.switch.call1((self.before,));
    }
}
