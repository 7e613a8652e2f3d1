//! Code of the program's own that runs within one node of the graph, as `forward` of a `torch.autograd.Function` does.
//!
//! A replay runs that code again, as a part of the node. So nothing of it is in the graph; but what the trace relies on
//! has to hold. While it is recorded its frames are evaluated as all others are, so what it reads is guarded, and it
//! may not read what a replay has yet to write. Then its nodes are withdrawn, and so are its writes, as it makes them
//! itself. An object that it has written to is out of bounds for the rest of the trace.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::NodeId;

use super::heap;
use super::kinds::Kind;
use super::state::{Origin, Slot, State, Stop};
use crate::breaks::Reason;
use crate::recorder::effects::writes::Part;
use crate::recorder::numbers::symbols::{Sizes, Symbols, TensorKey};
use crate::recorder::operations::tensors::graph_meta;

type Noted<T> = std::result::Result<T, Stop>;

/// What is known of the code that runs within a node.
#[derive(Default)]
pub struct Enclosed {
    /// How many nodes' code runs, one within the other.
    depth: usize,
    /// Objects that the trace had written when it began, and those that such code has written, by address.
    written: FxHashSet<usize>,
    /// The parts that such code has written.
    left: Vec<Slot>,
    /// What it was given and has changed, by address: only such code may look at it.
    changed: FxHashSet<usize>,
    /// Tensors that the nodes are given, by address.
    given: FxHashSet<usize>,
    /// Whether going back may lead to such code.
    has_functions: bool,
    /// How many nodes' code ran when one began to compute gradients; none: none does.
    back: Option<usize>,
    /// Whether all sizes of the results are known, of the code that ended last.
    is_settled: bool,
    /// Those that are symbolic, and the strides, by the addresses of the tensors.
    sizes: Vec<(usize, Option<Sizes>, Sizes)>,
}

impl Enclosed {
    /// Whether such code runs.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.depth > 0
    }

    /// Whether it runs while gradients are computed.
    pub fn goes_back(&self) -> bool {
        self.back.is_some()
    }

    /// The code that begins next runs while gradients are computed.
    pub fn go_back(&mut self) {
        self.back.get_or_insert(self.depth);
    }

    /// Whether there are objects that may not be looked at.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.written.is_empty() || !self.changed.is_empty()
    }

    /// Whether an object may not be looked at.
    pub fn hides(&self, address: usize) -> bool {
        self.is_watching()
            && (self.written.contains(&address) || !self.is_on() && self.changed.contains(&address))
    }

    /// The parts that such code has written.
    pub fn left(&self) -> &[Slot] {
        &self.left
    }

    /// Whether going back may lead to such code.
    pub fn has_functions(&self) -> bool {
        self.has_functions
    }

    /// A node may be gone back through by such code: that of a custom function, a hook or a checkpoint.
    pub fn add_function(&mut self) {
        self.has_functions = true;
    }

    /// Whether such code was given what stands there, and has changed it.
    pub fn has_changed(&self, address: usize) -> bool {
        self.changed.contains(&address)
    }

    /// What stands there is known again.
    pub fn show(&mut self, address: usize) {
        self.changed.remove(&address);
    }

    /// The code has ended, or the trace has: the notes are those of before.
    pub fn end(&mut self, begun: &mut Begun) {
        self.depth = self.depth.saturating_sub(1);
        self.back = self.back.filter(|begun| self.depth > *begun);
        self.written = std::mem::take(&mut begun.outer_written);
        self.written.extend(self.left.iter().map(|(object, _)| *object));
        self.given = std::mem::take(&mut begun.outer_given);
    }
}

/// How a trace stood when code within a node began.
pub struct Begun {
    nodes: usize,
    /// How many parts were written.
    parts: usize,
    /// What else a replay does, as far as it was noted.
    others: Others,
    given: Vec<(Py<PyAny>, TensorInfo)>,
    outer_written: FxHashSet<usize>,
    outer_given: FxHashSet<usize>,
}

/// How many warnings were given, locks taken, classes written, and such.
type Others = (usize, usize, usize, usize, bool);

impl State {
    /// Code within a node begins that is given these objects.
    pub fn begin_enclosed(&mut self, py: Python<'_>, given: &[Borrowed<'_, '_>]) -> Noted<Begun> {
        if !self.written.classes().is_empty() {
            let detail = "a class, before code that is one node of the graph";
            return Err((Reason::OutsideWrite, detail.into()));
        }
        self.given.check(py)?;
        let (parts, others) = (self.written.len(), self.other_effects());
        let mut tensors = Vec::new();
        for held in self.given.held(py).collect::<Vec<_>>() {
            tensors_in(self, held.as_borrowed(), &mut tensors);
        }
        given.iter().for_each(|object| tensors_in(self, *object, &mut tensors));
        let inputs = self.inputs.tensors().iter().map(|input| input.tensor.clone_ref(py));
        let known: Vec<_> =
            inputs.chain(tensors.iter().map(|tensor| tensor.clone().unbind())).collect();
        let described = |tensor: Py<PyAny>| {
            let info = tensor::info(tensor.bind_borrowed(py))?;
            Some((tensor, info))
        };
        let mut inner: FxHashSet<usize> = self.enclosed.given.clone();
        inner.extend(tensors.iter().map(|tensor| tensor.as_ptr() as usize));
        let mut written = self.enclosed.written.clone();
        written.extend(self.written.parts().map(|(object, _)| object));
        let begun = Begun {
            nodes: self.graph.len(),
            parts,
            others,
            given: known.into_iter().filter_map(described).collect(),
            outer_written: std::mem::replace(&mut self.enclosed.written, written),
            outer_given: std::mem::replace(&mut self.enclosed.given, inner),
        };
        self.enclosed.depth += 1;
        Ok(begun)
    }

    fn other_effects(&self) -> Others {
        let (written, claims) = (&self.written, &self.claims);
        (
            written.emissions().len(),
            written.classes().len(),
            claims.locks.len(),
            self.inference.len(),
            claims.draws.is_some(),
        )
    }

    /// The code has ended, and has done nothing that the trace would have to know: what it did is no part of the graph.
    pub fn check_enclosed(&mut self, py: Python<'_>, begun: &Begun, name: &str) -> Noted<()> {
        let refuse = || Err((Reason::OutsideWrite, format!("a write by {name}")));
        if self.other_effects() != begun.others || self.written.len() < begun.parts {
            return refuse();
        }
        // What the code itself has made is no part of the graph.
        self.given.withdraw(begun.nodes);
        self.enclosed.changed.extend(self.given.changed(py));
        for effect in self.written.withdraw(begun.parts) {
            if matches!(effect.part, Part::Context | Part::Reset(_) | Part::ClassAttribute(_)) {
                return refuse();
            }
            self.enclosed.left.push(effect.slot());
            self.enclosed.written.insert(effect.slot().0);
        }
        for (tensor, before) in &begun.given {
            let tensor = tensor.bind_borrowed(py);
            let now = tensor::info(tensor);
            let is_like = now.as_ref().is_some_and(|now| {
                (now.requires_grad, now.dtype, now.storage_offset)
                    == (before.requires_grad, before.dtype, before.storage_offset)
                    && now.sizes.iter().eq(before.sizes.iter())
                    && now.strides.iter().eq(before.strides.iter())
            });
            let is_written = now.is_none_or(|now| now.version != before.version);
            if !is_like || (is_written && self.source(tensor).is_none()) {
                return Err((Reason::OutsideWrite, format!("a write to a tensor by {name}")));
            }
        }
        self.graph.withdraw(begun.nodes);
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.forget_nodes(begun.nodes, &self.graph);
        }
        Ok(())
    }

    /// Where there are symbols, takes note of the sizes of what such code gives, as its own operations say them.
    pub fn keep_sizes(&mut self, begun: &Begun, result: Borrowed<'_, '_>) -> Noted<()> {
        if !self.has_symbols() {
            return Ok(());
        }
        let mut tensors = Vec::new();
        tensors_in(self, result, &mut tensors);
        let mut is_settled = true;
        self.enclosed.sizes.clear();
        for tensor in &tensors {
            let tensor = tensor.as_borrowed();
            if !self.data_sizes_in(tensor, 0).is_empty() {
                let detail = "sizes of what code within a node gives";
                return Err((Reason::DynamicOutput, detail.into()));
            }
            let is_inner = matches!(self.origin(tensor), Some(Origin::Node(node)) if node.index() >= begun.nodes);
            match self.symbolic_strides(tensor).filter(|_| is_inner) {
                Some(strides) => {
                    let sizes = self.symbolic_sizes(tensor);
                    self.enclosed.sizes.push((tensor.as_ptr() as usize, sizes, strides));
                }
                None => is_settled = false,
            }
        }
        self.enclosed.is_settled = is_settled;
        Ok(())
    }

    /// Gives the results of the node that was executed last the sizes that its code has computed; whether all are known.
    pub fn take_sizes(&mut self, result: Borrowed<'_, '_>) -> bool {
        let is_settled = std::mem::take(&mut self.enclosed.is_settled);
        let known = std::mem::take(&mut self.enclosed.sizes);
        if !is_settled || known.is_empty() {
            return is_settled;
        }
        let mut tensors = Vec::new();
        tensors_in(self, result, &mut tensors);
        for tensor in &tensors {
            let address = tensor.as_ptr() as usize;
            if let Some(Origin::Node(node)) = self.origin(tensor.as_borrowed())
                && let Some((_, sizes, strides)) =
                    known.iter().find(|(known, ..)| *known == address)
                && let Some(symbols) = self.symbols.as_mut()
            {
                know_layout(symbols, node, sizes.clone(), strides.clone());
            }
        }
        true
    }

    /// Where there are symbols: what a node gives has the sizes and strides of this tensor.
    pub fn lay_out_as(&mut self, node: NodeId, like: Borrowed<'_, '_>) -> Noted<()> {
        if !self.has_symbols() {
            return Ok(());
        }
        let unknown = || (Reason::DynamicOutput, "a tensor that a hook is set on".to_owned());
        let strides = self.symbolic_strides(like).ok_or_else(unknown)?;
        let sizes = self.symbolic_sizes(like);
        let symbols = self.symbols.as_mut().ok_or_else(unknown)?;
        know_layout(symbols, node, sizes, strides);
        Ok(())
    }

    /// Whether the trace has written a part that is about to be read. Code within a node would read the old value, as
    /// a replay writes behind its graph.
    pub fn has_written(&mut self, slot: &Slot) -> bool {
        self.look_enclosed(slot.0);
        self.written.has(slot)
    }

    /// Something is to be done with the object at an address.
    #[inline]
    pub fn look_enclosed(&mut self, address: usize) {
        if self.enclosed.hides(address) {
            self.refuse_stale();
        }
    }

    #[cold]
    fn refuse_stale(&mut self) {
        let detail = if self.enclosed.is_on() {
            "before code that is one node of the graph looks at it"
        } else {
            "by code that is one node of the graph, before it is looked at"
        };
        self.failure.get_or_insert_with(|| (Reason::OutsideWrite, detail.into()));
    }

    /// A tensor that only such code has: nothing else may use it.
    pub fn enclose_tensor(&mut self, tensor: Borrowed<'_, '_>) {
        if let Some(info) = tensor::info(tensor) {
            let value = graph_meta(self, &info);
            let node = self.graph.withdrawn(value);
            self.set_origin(tensor, Origin::Node(node));
        }
    }

    /// A frame begins that C code has entered: what it is given comes from there.
    pub fn enter_enclosed(&mut self, frame: &Frame<'_>) {
        let function = frame.function();
        if self.origin(function).is_none() && is_way_back(frame) {
            self.anchor(function);
        }
        for index in 0..frame.code().nlocalsplus() {
            if let Some(value) = frame.local(index) {
                self.enclose_argument(value);
            }
        }
    }

    fn enclose_argument(&mut self, object: Borrowed<'_, '_>) {
        let is_given = self.enclosed.given.contains(&(object.as_ptr() as usize));
        match self.kind_alone(object) {
            Kind::Tensor if !is_given && self.source(object).is_none() => {
                // Another tensor of the trace may have stood at its address.
                self.enclose_tensor(object);
            }
            Kind::Tuple if self.source(object).is_none() => {
                self.set_fresh(object);
                for item in heap::tuple_items(object) {
                    self.enclose_argument(item.as_borrowed());
                }
            }
            Kind::Object if self.origin(object).is_none() && is_context(object) => {
                self.set_fresh(object);
            }
            _ => {}
        }
    }
}

/// What a node gives has these sizes and strides.
fn know_layout(symbols: &mut Symbols, node: NodeId, sizes: Option<Sizes>, strides: Sizes) {
    if let Some(sizes) = sizes {
        symbols.sizes.insert(TensorKey::Node(node.index() as u32), sizes);
    }
    symbols.layouts.know(node, strides);
}

/// Whether a frame is the one by which PyTorch's engine calls `backward` of a custom function.
pub fn is_way_back(frame: &Frame<'_>) -> bool {
    let code = frame.code();
    heap::text(code.qualname()) == "BackwardCFunction.apply"
        && heap::text(code.filename()).ends_with("torch/autograd/function.py")
}

/// Whether an object is what a custom function keeps of a call.
fn is_context(object: Borrowed<'_, '_>) -> bool {
    let base = heap::loaded_module(object.py(), "torch._C")
        .and_then(|module| module.getattr("_FunctionBase").ok());
    base.is_some_and(|base| object.is_instance(&base).unwrap_or(false))
}

/// The tensors that an object is or holds.
fn tensors_in<'py>(state: &mut State, object: Borrowed<'_, 'py>, found: &mut Vec<Object<'py>>) {
    match state.kind_alone(object) {
        Kind::Tensor => found.push(object.to_owned()),
        Kind::Tuple | Kind::List => {
            for item in heap::children(object) {
                tensors_in(state, item.as_borrowed(), found);
            }
        }
        _ => {}
    }
}
