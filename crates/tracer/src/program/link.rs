//! A program made to run: its names are resolved, its graph is compiled.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use stator_cpython::object::Borrowed;
use stator_graph::NodeId;
use stator_graph::program::Program;

use crate::replay;

/// A program that runs.
pub struct Linked {
    program: replay::Program,
    constants: Vec<Py<PyAny>>,
    inputs: usize,
}

/// The names that a program's text mentions, in the order of the graph's objects.
#[must_use]
pub fn names(program: &Program) -> Vec<String> {
    program.graph.object_texts().map(str::to_string).collect()
}

impl Linked {
    /// Compiles a program. `objects` are what its names stand for; `constants` its tensors.
    ///
    /// # Errors
    /// If a constant of an argument can't be made.
    pub fn new(
        py: Python<'_>,
        program: &Program,
        objects: &[Py<PyAny>],
        constants: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        let inputs = program.inputs.len();
        let program = replay::Program::new(py, &program.graph, objects)?;
        Ok(Self { program, constants, inputs })
    }

    /// Runs it. An error bears a note with the line of the program, and what `place` says of the node.
    ///
    /// # Errors
    /// What an operation raises.
    ///
    /// # Panics
    /// If the number of inputs is wrong.
    pub fn run<'py>(
        &self,
        source: &Program,
        inputs: &Bound<'py, PyTuple>,
        place: impl FnOnce(NodeId) -> Option<String>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = inputs.py();
        assert_eq!(inputs.len(), self.inputs, "one tensor for each input");
        let constants = self.constants.iter().map(|constant| constant.bind_borrowed(py));
        let all: Vec<Borrowed<'_, 'py>> = inputs.iter_borrowed().chain(constants).collect();
        match self.program.run(py, &all) {
            Ok(outputs) => PyList::new(py, outputs),
            Err(failure) => {
                let mut note =
                    format!("In a tensor program: {}", super::line(source, failure.node));
                note.extend(place(failure.node));
                // A class of exceptions may refuse notes.
                let _ = failure.error.value(py).call_method1("add_note", (note,));
                Err(failure.error)
            }
        }
    }
}
