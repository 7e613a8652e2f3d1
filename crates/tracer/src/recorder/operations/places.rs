//! Where tensors from outside stand in gradients' graphs, as operations in place ask: PyTorch refuses to write a leaf
//! that requires gradients, and some views. None of that is metadata, and an operation that raises in a replay may be
//! behind writes that can't be put back; so it is guarded.

use pyo3::prelude::*;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_graph::{Arg, Target, Value};
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::raises::NodeCall;
use crate::recorder::notes::call::RecordedArgs;
use crate::recorder::notes::state::{State, Stop};
use crate::writes::{Asks, write_of};

impl State {
    /// Guards where the inputs stand that an operation is about to write, if it asks.
    pub(super) fn guard_places(
        &mut self,
        py: Python<'_>,
        target: Target,
        recorded: &RecordedArgs,
    ) -> Result<(), Stop> {
        let (args, keywords) = (&recorded.args, &recorded.names);
        self.settle_written(py, target, recorded);
        let call = NodeCall { graph: &self.graph, target, args, keywords, class: None };
        let is_asked = match self.writes.asks_place(call) {
            None => false,
            Some(Asks::Always) => true,
            Some(Asks::Recording) => self.requires_gradients(args) && is_grad_enabled(py),
        };
        if !is_asked {
            return Ok(());
        }
        self.writes.advance(&self.graph, &|_| false);
        let call = NodeCall { graph: &self.graph, target, args, keywords, class: None };
        for (position, _) in self.writes.written_by(call) {
            self.guard_place(py, position)?;
        }
        Ok(())
    }

    /// What is written may be what an operation gave back, or copied.
    fn settle_written(&mut self, py: Python<'_>, target: Target, recorded: &RecordedArgs) {
        if self.symbols.as_ref().is_none_or(|symbols| symbols.layouts.given_back.is_empty()) {
            return;
        }
        let (args, keywords) = (&recorded.args, &recorded.names);
        let call = NodeCall { graph: &self.graph, target, args, keywords, class: None };
        let Some((_, targets)) = write_of(call) else { return };
        let mut written = Vec::new();
        for arg in targets {
            self.graph.visit_nodes(arg, &mut |id| written.push(id));
        }
        self.settle_given_back(py, |state, node| {
            written.iter().any(|target| state.may_share(*target, node))
        });
    }

    fn guard_place(&mut self, py: Python<'_>, position: u32) -> Result<(), Stop> {
        let Some(input) = self.inputs.tensor_at(position) else { return Ok(()) };
        let Some(source) = input.source.filter(|_| !input.is_placed) else { return Ok(()) };
        input.is_placed = true;
        let (version, object) = (input.version, input.tensor.bind(py).clone());
        let object = object.as_borrowed();
        let Some(place) = tensor::place(object) else { return Ok(()) };
        if !place.is_leaf && tensor::info(object).is_some_and(|now| now.version != version) {
            // By another name, perhaps: then it stood elsewhere at first.
            let detail = "a write to a tensor whose memory was written before".to_owned();
            return Err((Reason::Irrevocable, detail));
        }
        let (is_leaf, view) = (place.is_leaf, place.view);
        self.guard(source, GuardKind::Place { is_leaf, view });
        Ok(())
    }

    /// Whether a tensor among the arguments requires gradients.
    fn requires_gradients(&self, args: &[Arg]) -> bool {
        let mut requires = false;
        for &arg in args {
            self.graph.visit_nodes(arg, &mut |id| {
                requires |= match self.graph.node(id).value {
                    Value::Tensor(meta) => meta.requires_grad,
                    _ => false,
                };
            });
        }
        requires
    }
}

/// Whether PyTorch takes note of what gradients are computed through.
pub(in crate::recorder) fn is_grad_enabled(py: Python<'_>) -> bool {
    static ASKS: Named = Named::new("torch._C", "is_grad_enabled");
    let _native = Suspended::new(py);
    ASKS.get(py).and_then(|asks| asks.call0()).is_ok_and(|on| on.is_truthy().unwrap_or(true))
}
