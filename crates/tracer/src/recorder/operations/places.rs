//! Where tensors from outside stand in gradients' graphs, as operations in place ask: PyTorch refuses to write a leaf
//! that requires gradients, and some views. None of that is metadata, and an operation that raises in a replay may be
//! behind writes that can't be put back; so it is guarded.

use pyo3::prelude::*;
use stator_cpython::heap::tensor;
use stator_graph::{Arg, Target, Value};
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::raises::NodeCall;
use crate::recorder::calls::autograd_functions::is_grad_enabled;
use crate::recorder::notes::call::RecordedArgs;
use crate::recorder::notes::state::{State, Stop};
use crate::writes::Asks;

impl State {
    /// Guards where the inputs stand that an operation is about to write, if it asks.
    pub(super) fn guard_places(
        &mut self,
        py: Python<'_>,
        target: Target,
        recorded: &RecordedArgs,
    ) -> Result<(), Stop> {
        let (args, keywords) = (&recorded.args, &recorded.names);
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
