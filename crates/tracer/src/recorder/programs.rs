//! Traces of tensor programs: inputs without data, and no effect on anything outside.
//!
//! The call is executed as any recorded call is, but its tensors have no data, and nothing of the user's
//! may be changed by it: a write that couldn't be taken back ends the trace before it happens. Entries of
//! dictionaries may be written if they are put back by the call itself (which is how PyTorch's
//! `functional_call` lends a module other parameters); what isn't put back is taken back, and an error.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString};
use stator_cpython::frame::Frame;
use stator_cpython::generic::WithoutGc;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Unwatched;
use stator_cpython::{Result, ops};
use stator_graph::{Target, TextId};

use crate::breaks::Reason;
use crate::compiling::Answering;
use crate::policy::Policy;
use crate::program_rules::{Rules, Taken};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::capacity::Room;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::notes::symbols::Sizes;
use crate::resume::session::Session;

/// The number of a program's first input, among arguments.
const FIRST_INPUT: usize = 1 << 15;

/// A call that was traced: what it returned or raised, and the notes.
pub struct Recorded<'py> {
    /// The result.
    pub result: PyResult<Object<'py>>,
    /// The notes. They end with the call.
    pub state: State,
}

/// Traces a call of a Python function for a program.
///
/// # Errors
/// If the tables that recording needs can't be built.
pub fn record_program<'py>(
    function: Borrowed<'_, 'py>,
    args: Borrowed<'_, 'py>,
    kwargs: Option<Borrowed<'_, 'py>>,
    session: Rc<Session>,
) -> PyResult<Recorded<'py>> {
    let py = function.py();
    super::prepare(py)?;
    let code = heap::function_code(function).map_or(0, |code| code.as_ptr() as usize);
    let recorder = Recorder::new(py, code, session)?;
    {
        let mut state = recorder.state.borrow_mut();
        state.policy = Policy::for_program();
        state.program = Some(Box::default());
        if let Some(rules) = &recorder.session.program {
            state.set_kind(&rules.stand_in(py), Kind::Tensor);
            for ty in rules.views(py) {
                state.set_kind(&ty, Kind::Iterator);
            }
            if let Err((reason, detail)) = state.own_arguments(py, rules) {
                state.failure.get_or_insert((reason, detail));
            }
        }
    }
    *recorder.gc.borrow_mut() = Some(WithoutGc::new(py));
    let _answering = Answering::new(true);
    // CPython calls trace functions for frames that it evaluates itself: these have to be recorded.
    let _unwatched = Unwatched::new(py);
    let result = recorder.evaluating(py, || ops::call_ex(function, args, kwargs));
    let result = result.map_err(|raised| raised.take(py));
    recorder.stopped.set(true);
    recorder.end_refusal(py);
    drop(recorder.gc.take());
    let state = recorder.state.replace(State::new(py, &Room::NONE)?);
    Ok(Recorded { result, state })
}

impl Recorder {
    /// Takes a call as the program's rules say; `None`: they say nothing.
    pub(super) fn call_in_program<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, .. } = call;
        let rules = self.session.program.as_ref()?;
        match rules.call(callable)? {
            Taken::Node(operation) => {
                self.links.clear();
                Some(self.tensor_call(operation, call))
            }
            Taken::Silent => {
                self.links.clear();
                Some(self.call_silently(call))
            }
            Taken::Substitute(function) => {
                let function = function.bind_borrowed(frame.py());
                self.vouch(frame, function);
                Some(self.call_object(call.of(function)))
            }
        }
    }

    fn call_silently<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, .. } = call;
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()?
        };
        if let Ok(text) = result.cast::<PyString>() {
            let text = text.to_string_lossy().into_owned();
            self.stop(frame, Reason::Impure, text);
        } else if result.is_exact_instance_of::<PyList>() {
            self.note(frame, |state| {
                state.set_fresh(result.as_borrowed());
                Ok(())
            });
        } else {
            debug_assert!(result.is_none() || result.is_instance_of::<PyBool>());
        }
        Ok(result)
    }

    /// What an operation, before it is executed, would do that a program can't.
    pub(super) fn refuses_operation(
        &self,
        frame: &Frame<'_>,
        target: Target,
        args: &[Borrowed<'_, '_>],
        names: &[TextId],
    ) {
        let Some(rules) = &self.session.program else { return };
        self.note(frame, |state| {
            let written = if names.iter().any(|name| state.graph.text(*name) == "out") {
                args.last()
            } else if state.writes_first(target) {
                args.first()
            } else {
                None
            };
            let Some(written) = written else { return Ok(()) };
            state.refuse_outside(rules, *written)
        });
    }

    /// What an operation has written to outside the program.
    pub(super) fn refuse_written(&self, frame: &Frame<'_>) {
        let Some(rules) = &self.session.program else { return };
        if let Some(what) = rules.take_write(frame.py()) {
            self.stop(frame, Reason::Impure, what);
        }
    }

    /// The gradient of a tensor of the trace, which the trace made; and what may be put there.
    pub(super) fn is_known_gradient(&self, value: Borrowed<'_, '_>) -> bool {
        self.session.program.is_some() && matches!(self.origin(value), Some(Origin::Node(_)))
    }

    /// Whether a tensor is one of the trace's own, where a program is traced.
    pub(super) fn is_stand_in(&self, tensor: Borrowed<'_, '_>) -> bool {
        self.session.program.as_ref().is_some_and(|rules| rules.is_stand_in(tensor))
    }

    /// Sets the gradient of a tensor of the trace; `None`: this isn't a program's trace. Who reads it
    /// finds the tensor that was put there, so it needs no node.
    pub(super) fn set_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<()>> {
        self.session.program.as_ref()?;
        let is_known = value.is_none_or(|value| value.is_none() || self.is_known_gradient(value));
        if !self.is_stand_in(owner) || !is_known {
            self.stop(frame, Reason::Impure, "the gradient of a tensor from outside");
        }
        let _native = Suspended::new(frame.py());
        Some(ops::set_attr(owner, name, value))
    }
}

impl Recorder {
    /// Runs a frame natively that weak references have entered from somewhere: it is no part of the
    /// program, but tensors without data stand in such dictionaries of PyTorch's.
    pub(super) fn is_weak_callback(&self, frame: &Frame<'_>) -> bool {
        let Some(rules) = &self.session.program else { return false };
        rules.is_weak_callback(frame.code().as_ptr() as usize)
    }
}

impl Recorder {
    /// What gives an item of a tensor whose index says a position by a tensor without dimensions: as an
    /// operation the position would be read.
    pub(super) fn item_by_number<'py>(
        &self,
        py: Python<'py>,
        key: Borrowed<'_, 'py>,
        is_store: bool,
    ) -> Option<Object<'py>> {
        let rules = self.session.program.as_ref()?;
        if self.is_stopped() || !holds_number(&mut self.state.borrow_mut(), key) {
            return None;
        }
        Some(rules.item_function(py, is_store))
    }
}

/// Whether an index is, or has as a part, an integer that is a tensor without dimensions.
fn holds_number(state: &mut State, key: Borrowed<'_, '_>) -> bool {
    match state.kind(key) {
        // c10::ScalarType: int8, int16, int32, int64. Others are masks.
        Kind::Tensor => tensor::info(key)
            .is_some_and(|info| info.sizes.is_empty() && matches!(info.dtype, 1..=4)),
        Kind::Tuple => {
            heap::tuple_items(key).iter().any(|part| holds_number(state, part.as_borrowed()))
        }
        _ => false,
    }
}

impl State {
    /// Says where what the call is given comes from: tensors are inputs, and what they stand in was
    /// made for the call, so it may be written to, returned and left out.
    fn own_arguments(
        &mut self,
        py: Python<'_>,
        rules: &Rules,
    ) -> std::result::Result<(), super::Stop> {
        for (index, (input, name)) in rules.inputs(py).into_iter().enumerate() {
            // Beside the numbers that parameters have as arguments.
            let Ok(slot) = u16::try_from(index + FIRST_INPUT) else { break };
            let source = self.sources.local(slot, || name.into());
            self.adopt(source, input.as_borrowed())?;
        }
        for container in rules.containers(py) {
            self.set_fresh(container.as_borrowed());
            let notes = self.program.get_or_insert_with(Box::default);
            notes.own.insert(container.as_ptr() as usize);
        }
        Ok(())
    }

    /// Gradients have the sizes of what they are asked for.
    pub(super) fn gradient_sizes(
        &mut self,
        inputs: Borrowed<'_, '_>,
        result: Borrowed<'_, '_>,
    ) -> Option<Vec<Sizes>> {
        let inputs = match self.kind(inputs) {
            Kind::Tensor => vec![(*inputs).clone()],
            Kind::List | Kind::Tuple => heap::children(inputs),
            _ => return None,
        };
        let results = heap::tuple_items(result);
        let mut all = Vec::with_capacity(inputs.len());
        for (input, result) in inputs.iter().zip(&results) {
            if result.is_none() {
                continue;
            }
            let info = tensor::info(input.as_borrowed())?;
            let sizes = match self.symbolic_sizes(input.as_borrowed()) {
                Some(sizes) => sizes,
                None => {
                    let context = &mut self.symbols.as_mut()?.context;
                    info.sizes.iter().map(|size| context.constant(*size)).collect()
                }
            };
            all.push(sizes);
        }
        Some(all)
    }

    /// Fails for a tensor that isn't the trace's own.
    fn refuse_outside(
        &mut self,
        rules: &Rules,
        object: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        match self.kind(object) {
            Kind::Tensor if !rules.is_stand_in(object) => {
                Err((Reason::Impure, "a tensor from outside".to_string()))
            }
            Kind::List | Kind::Tuple => heap::children(object)
                .iter()
                .try_for_each(|item| self.refuse_outside(rules, item.as_borrowed())),
            _ => Ok(()),
        }
    }

    /// Whether an operation writes to its first argument, by PyTorch's convention for names.
    pub(super) fn writes_first(&self, target: Target) -> bool {
        let name = match target {
            Target::Operator(operator) => return operator.is_in_place(),
            Target::GetAttr { .. } | Target::Decide | Target::Catch => return false,
            Target::Function { name, .. } | Target::Method { name, .. } => self.graph.text(name),
        };
        name.split('.').any(|part| part.ends_with('_') && !part.ends_with("__"))
            || name.starts_with("__i") && name != "__invert__" && name != "__index__"
            || matches!(name, "__setitem__" | "__delitem__")
            || name.contains(".__set__")
            || name.contains(".__delete__")
    }
}
