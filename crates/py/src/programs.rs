//! Tensor programs, for `stator.programs`.

use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rustc_hash::FxHashMap;
use stator_graph::NodeId;
use stator_graph::program::{self, Malformed, TensorType};
use stator_tracer::breaks::Place;
use stator_tracer::program::{self as traced, Built, Linked};

/// The type of a tensor: element type and sizes, `None` where one varies.
type Type = (&'static str, Vec<Option<u64>>);

/// A tensor program as data: nothing in it has been resolved.
#[pyclass(frozen, module = "stator._stator")]
struct Program {
    program: program::Program,
    text: String,
    /// Where in the user's code nodes were recorded, if that is known.
    places: OnceLock<Places>,
}

type Places = FxHashMap<NodeId, Vec<Place>>;

/// A condition that isn't met: its text, the sizes that it speaks of (inputs and dimensions), and its place.
type Failing = (String, Vec<(usize, usize)>, Vec<(String, u32, String)>);

/// What Python has of them: the node's number; file, line and function of each frame.
type Rows = Vec<(usize, Vec<(String, u32, String)>)>;

impl Program {
    fn new(program: program::Program) -> Self {
        let text = program.print();
        Self { program, text, places: OnceLock::new() }
    }
}

fn malformed(error: Malformed) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn describe(ty: &TensorType) -> Type {
    (ty.dtype.name(), ty.sizes.to_vec())
}

#[pymethods]
impl Program {
    /// Reads the text form.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        program::Program::parse(text).map(Self::new).map_err(malformed)
    }

    /// Reads the byte form: the program, and the elements of each constant.
    #[staticmethod]
    fn unpack<'py>(
        py: Python<'py>,
        bytes: &Bound<'py, PyBytes>,
    ) -> PyResult<(Self, Vec<Bound<'py, PyBytes>>)> {
        let data = bytes.as_bytes();
        let (program, constants) = py.detach(|| program::unpack(data)).map_err(malformed)?;
        let constants = constants.into_iter().map(|bytes| PyBytes::new(py, bytes)).collect();
        Ok((Self::new(program), constants))
    }

    /// The byte form.
    fn pack<'py>(
        &self,
        py: Python<'py>,
        constants: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let constants: Vec<&[u8]> = constants.iter().map(|bytes| bytes.as_bytes()).collect();
        let packed = program::pack(&self.program, &constants).map_err(malformed)?;
        Ok(PyBytes::new(py, &packed))
    }

    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// Where in the user's code nodes were recorded.
    fn places(&self) -> Rows {
        let row = |(node, stack): (&NodeId, &Vec<Place>)| {
            let stack = stack.iter();
            let stack = stack.map(|at| (at.file.clone(), at.line, at.function.clone()));
            (node.index(), stack.collect())
        };
        let mut rows: Rows = self.places.get().into_iter().flatten().map(row).collect();
        rows.sort_unstable_by_key(|(node, _)| *node);
        rows
    }

    /// Says where nodes were recorded, of a program that came as bytes.
    fn remember(&self, places: Rows) {
        let place = |(file, line, function)| Place { file, line, function };
        let row = |(node, stack): (usize, Vec<_>)| {
            (NodeId::new(node), stack.into_iter().map(place).collect())
        };
        // What is known already is as good.
        let _ = self.places.set(places.into_iter().map(row).collect());
    }

    #[getter]
    fn default_dtype(&self) -> &'static str {
        self.program.default_dtype.name()
    }

    #[getter]
    fn inputs(&self) -> Vec<Type> {
        self.program.inputs.iter().map(describe).collect()
    }

    #[getter]
    fn outputs(&self) -> Vec<Type> {
        self.program.outputs.iter().map(describe).collect()
    }

    /// Types of the constants, and whether gradients may be asked for them.
    #[getter]
    fn constants(&self) -> Vec<(&'static str, Vec<Option<u64>>, bool)> {
        let constants = self.program.constants.iter();
        let describe = |constant: &program::ConstantType| {
            let (dtype, sizes) = describe(&constant.tensor);
            (dtype, sizes, constant.requires_grad)
        };
        constants.map(describe).collect()
    }

    #[getter]
    fn takes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        traced::describe(py, &self.program.takes)
    }

    #[getter]
    fn gives<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        traced::describe(py, &self.program.gives)
    }

    /// The names that it mentions.
    fn names(&self) -> Vec<String> {
        traced::names(&self.program)
    }

    /// The first condition that these sizes (one tuple for each input) don't meet, the sizes that it
    /// speaks of, and where in the user's code it was assumed.
    fn failing(&self, sizes: Vec<Vec<i64>>) -> Option<Failing> {
        let size = |input: usize, dim: usize| sizes[input][dim];
        let mut requirements = self.program.requirements.iter();
        let index = requirements.position(|each| !each.holds(&size))?;
        let failing = &self.program.requirements[index];
        let place = traced::place_of_requirement(&self.program.graph, index);
        let stack = self.places.get().and_then(|places| places.get(&place));
        let stack = stack.into_iter().flatten();
        let stack = stack.map(|at| (at.file.clone(), at.line, at.function.clone()));
        Some((failing.text().to_string(), failing.sizes(), stack.collect()))
    }

    /// Makes it run: with what its names stand for, in their order, and its constants.
    fn link(
        slf: &Bound<'_, Self>,
        objects: Vec<Py<PyAny>>,
        constants: Vec<Py<PyAny>>,
    ) -> PyResult<LinkedProgram> {
        let program = &slf.get().program;
        if objects.len() != program.graph.object_texts().len()
            || constants.len() != program.constants.len()
        {
            return Err(PyValueError::new_err("one object for each name and constant"));
        }
        let linked = Linked::new(slf.py(), program, &objects, constants)?;
        Ok(LinkedProgram { program: slf.clone().unbind(), linked })
    }
}

/// A tensor program that runs.
#[pyclass(frozen, module = "stator._stator")]
struct LinkedProgram {
    program: Py<Program>,
    linked: Linked,
}

#[pymethods]
impl LinkedProgram {
    /// Runs it on a tuple of tensors. Any number of threads may.
    fn run<'py>(&self, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let Program { program, places, .. } = self.program.get();
        if inputs.len() != program.inputs.len() {
            return Err(PyValueError::new_err("one tensor for each input"));
        }
        let py = inputs.py();
        self.linked.run(program, inputs, |node| {
            let stack = places.get()?.get(&node)?.iter();
            let stack: Vec<_> =
                stack.map(|place| (&place.file, place.line, &place.function)).collect();
            let describe =
                py.import("stator._program_tracing.tracing").ok()?.getattr("described").ok()?;
            describe.call1((stack,)).ok()?.extract().ok()
        })
    }
}

/// What can be called: calls run `_run`, whose frames, and those below, are the library's own and
/// aren't shown.
#[pyclass(frozen, subclass, module = "stator._stator")]
struct Runs;

#[pymethods]
impl Runs {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self
    }

    #[pyo3(signature = (*tensors))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        tensors: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.call_method1("_run", tensors.clone()).inspect_err(|error| error.set_traceback(py, None))
    }
}

/// Traces a call of a function on inputs without data: `TensorProgram.trace`.
///
/// It is native so that no frame of Stator's stands between the caller's and the function's.
#[pyfunction]
#[pyo3(signature = (function, specs = None, kwargs = None))]
fn _trace_program<'py>(
    function: &Bound<'py, PyAny>,
    specs: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    trace(function, specs, kwargs, false).map(|(program, _)| program)
}

/// As [`trace`], for what traces a function anew.
#[pyfunction]
fn _trace_for_sizes<'py>(
    function: &Bound<'py, PyAny>,
    specs: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
    is_numpy: bool,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    trace(function, Some(specs), Some(kwargs), is_numpy)
}

/// As [`_trace_program`], with the Python side's object of the trace. `is_numpy`: the function is NumPy
/// code.
///
/// # Errors
/// What the function raises, or the error of what can't be part of a program.
pub fn trace<'py>(
    function: &Bound<'py, PyAny>,
    specs: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyAny>>,
    is_numpy: bool,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = function.py();
    let without_frames = |error: &PyErr| error.set_traceback(py, None);
    traced::check_modes(py)?;
    let begin = py.import("stator._program_tracing.tracing")?.getattr("Tracing")?;
    let tracing = begin.call1((function, specs, kwargs, is_numpy)).inspect_err(without_frames)?;
    let Built { program, constants, places } = traced::trace(&tracing)?;
    let made = py.import("stator.programs")?.getattr("made")?;
    let program = Program { places: places.into(), ..Program::new(program) };
    let program = made.call1((program, constants, &tracing)).inspect_err(without_frames)?;
    Ok((program, tracing))
}

/// Adds the classes and functions to the extension module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Program>()?;
    module.add_class::<LinkedProgram>()?;
    module.add_class::<Runs>()?;
    module.add_function(wrap_pyfunction!(_trace_for_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(_trace_program, module)?)
}
