//! Traces of tensor programs: inputs without data, and no effect on anything outside. What a room does otherwise there
//! stands in its own file of this name.
//!
//! The call is executed as any recorded call is, but its tensors have no data, and nothing of the user's
//! may be changed by it: a write that couldn't be taken back ends the trace before it happens. Entries of
//! dictionaries may be written if they are put back by the call itself (which is how PyTorch's
//! `functional_call` lends a module other parameters); what isn't put back is taken back, and an error.

use std::rc::Rc;

use pyo3::prelude::*;
use stator_cpython::generic::WithoutGc;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops;
use stator_cpython::thread::Unwatched;

use crate::compiling::Answering;
use crate::policy::Policy;
use crate::program_rules::Rules;
use crate::recorder::Recorder;
use crate::recorder::notes::capacity::Room;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};
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
            if let Some(notes) = state.program.as_mut() {
                notes.is_sized = rules.is_sized();
            }
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

impl State {
    /// Says where what the call is given comes from: tensors are inputs, and what they stand in was
    /// made for the call, so it may be written to, returned and left out.
    fn own_arguments(&mut self, py: Python<'_>, rules: &Rules) -> Noted<()> {
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
}
