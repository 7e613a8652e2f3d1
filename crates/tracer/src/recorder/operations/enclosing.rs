//! Nodes whose code is the program's own, and is looked at while it is recorded: see `notes::enclosed`.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::hook::{Active, Suspended};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{NodeId, Value};

use crate::breaks::Reason;
use crate::raises::{NodeCall, THROUGH_PYTHON};
use crate::recorder::Recorder;
use crate::recorder::ending::outcome::evaluate_recorded;
use crate::recorder::notes::effects::Part;
use crate::recorder::notes::enclosed::{Begun, Others};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::notes::symbols::{Sizes, Symbols, TensorKey};

impl Recorder {
    /// Runs the code of a node, `given` these objects: its frames are evaluated, but no part of the graph.
    pub(in crate::recorder) fn enclose<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        given: &[Borrowed<'_, 'py>],
        run: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.enclose_or_keep(frame, name, given, false, run)
    }

    /// As [`Recorder::enclose`]. `may_stay`: what runs has no effect of its own beside its frames', so its nodes stay
    /// in the graph where they are all that it does ([`Recorder::kept`]).
    pub(in crate::recorder) fn enclose_or_keep<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        given: &[Borrowed<'_, 'py>],
        may_stay: bool,
        run: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let Some(mut begun) = self.note(frame, |state| state.begin_enclosed(py, given)) else {
            let _native = Suspended::new(py);
            return run();
        };
        self.links.clear();
        // A replay spares nothing of it.
        let counted = self.tally.clone();
        let result = {
            let _evaluated = Active::new(py, evaluate_recorded);
            run()
        };
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.enclosed.end(&mut begun);
        }
        if may_stay
            && let Ok(result) = &result
            && self.note(frame, |state| Ok(state.stays(&begun, result.as_borrowed()))) == Some(true)
        {
            self.kept.set(true);
            return Ok(result.clone());
        }
        self.tally.reset(&counted);
        if let Ok(result) = &result {
            self.note(frame, |state| {
                state.keep_sizes(&begun, result.as_borrowed())?;
                state.check_enclosed(py, &begun, name)
            });
        }
        result
    }
}

/// What a node gives has these sizes and strides.
fn know_layout(symbols: &mut Symbols, node: NodeId, sizes: Option<Sizes>, strides: Sizes) {
    if let Some(sizes) = sizes {
        symbols.sizes.insert(TensorKey::Node(node.index() as u32), sizes);
    }
    symbols.layouts.know(node, strides);
}

/// The tensors that an object is or holds.
pub(super) fn tensors_in<'py>(
    state: &mut State,
    object: Borrowed<'_, 'py>,
    found: &mut Vec<Object<'py>>,
) {
    match state.kind_alone(object) {
        Kind::Tensor => found.push(object.to_owned()),
        Kind::Tuple | Kind::List | Kind::Dict => {
            for item in heap::children(object) {
                tensors_in(state, item.as_borrowed(), found);
            }
        }
        _ => {}
    }
}

impl State {
    /// Code within a node begins that is given these objects.
    pub fn begin_enclosed(&mut self, py: Python<'_>, given: &[Borrowed<'_, '_>]) -> Noted<Begun> {
        if self.written.classes().iter().any(|slot| self.written.is_part(slot)) {
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
        tensors.extend(self.written.shown().iter().map(|tensor| tensor.bind(py).clone()));
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
            unnoted: self.enclosed.unnoted,
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
            claims.draws.as_ref().map_or(0, |(_, draws)| 1 + draws.words() as usize),
        )
    }

    /// Whether nodes of code that has ended are all that it did, in each replay: then they stay in the graph. It has
    /// written nothing but tensors of its own, it gives such tensors, and no node of it may raise.
    fn stays(&mut self, begun: &Begun, result: Borrowed<'_, '_>) -> bool {
        let py = result.py();
        let is_untouched = |(tensor, before): &(Py<PyAny>, TensorInfo)| {
            tensor::info(tensor.bind_borrowed(py)).is_some_and(|now| {
                (now.version, now.requires_grad) == (before.version, before.requires_grad)
                    && now.sizes.iter().eq(before.sizes.iter())
                    && now.strides.iter().eq(before.strides.iter())
            })
        };
        self.other_effects() == begun.others
            && self.written.len() == begun.parts
            && self.enclosed.unnoted == begun.unnoted
            && self.given.check(py).is_ok()
            && begun.given.iter().all(is_untouched)
            && (begun.nodes..self.graph.len()).all(|index| self.is_plain_node(NodeId::new(index)))
            && self.is_own_result(begun, result)
            && self.register(result).is_ok()
    }

    /// Whether a node is an operation on tensors that may not raise, or an input.
    fn is_plain_node(&self, id: NodeId) -> bool {
        let graph = &self.graph;
        let is_tensor = matches!(graph.node(id).value, Value::Tensor(_) | Value::Structure(_));
        let mut reads_withdrawn = graph.is_withdrawn(id);
        graph.visit_inputs(id, &mut |input| reads_withdrawn |= graph.is_withdrawn(input));
        let is_plain = NodeCall::of(graph, id).is_none_or(|call| {
            !call.is_users()
                && !call.is_switch()
                && !call.may_raise(&|_| false)
                && !call.name().starts_with(THROUGH_PYTHON)
        });
        is_tensor && is_plain && !reads_withdrawn
    }

    /// Whether what code within a node has given are tensors that it has made.
    fn is_own_result(&mut self, begun: &Begun, result: Borrowed<'_, '_>) -> bool {
        match self.kind_alone(result) {
            Kind::Tensor => {
                let is_view = || result.call_method0(pyo3::intern!(result.py(), "_is_view"));
                matches!(self.origin(result), Some(Origin::Node(node))
                    if node.index() >= begun.nodes
                        && matches!(self.graph.node(node).value, Value::Tensor(meta) if !meta.requires_grad))
                    && is_view().is_ok_and(|is| is.is_truthy().is_ok_and(|is| !is))
            }
            Kind::Tuple => heap::tuple_items(result)
                .iter()
                .all(|item| item.is_none() || self.is_own_result(begun, item.as_borrowed())),
            _ => false,
        }
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
        let rekeyed: FxHashSet<usize> = self.written.rekeyed().keys().copied().collect();
        for effect in self.written.withdraw(begun.parts) {
            if let Part::Item { key, .. } = &effect.part {
                let dict = effect.object.bind_borrowed(py);
                let held = heap::dict_get(dict, key.bind_borrowed(py));
                let held = held.as_ref().map(Bound::as_borrowed);
                if self.enclosed.is_restored(&effect.slot(), held)
                    && !rekeyed.contains(&effect.slot().0)
                {
                    continue;
                }
            }
            if matches!(effect.part, Part::Context | Part::Reset(_) | Part::ClassAttribute(_)) {
                return refuse();
            }
            let list = effect.slot().0;
            match effect.part {
                Part::Elements => drop(self.enclosed.lists.insert(list, true)),
                Part::Added { dropped: 0, .. } => drop(self.enclosed.lists.insert(list, false)),
                Part::Added { .. } => drop(self.enclosed.lists.remove(&list)),
                _ => {}
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

    /// What a node gives has these sizes, and these strides, if they are known.
    pub(super) fn set_layout(&mut self, node: NodeId, sizes: Sizes, strides: Option<Sizes>) {
        self.set_sizes(TensorKey::Node(node.index() as u32), sizes);
        if let (Some(strides), Some(symbols)) = (strides, self.symbols.as_mut()) {
            symbols.layouts.know(node, strides);
        }
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
}
