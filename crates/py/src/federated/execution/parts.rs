//! Computations in parts, for contexts that have other processes do the clients' work.

use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use stator_federated::execution::{Constants, Interpreter, Kernels, Run, Split, Value};
use stator_federated::types::Type;

use super::context::{computation, given_argument};
use super::kernels::{Python as PythonKernels, Raised};
use super::leaf::Leaf;
use super::results::{Tensors, to_python};
use super::travel::{bytes_in, pack, unpack};
use crate::federated::blocks;
use crate::federated::errors::IntoPython;

/// A computation in parts: stages, in each of which the server does its part, then the clients theirs.
#[pyclass(module = "stator.federated.ray", frozen)]
pub struct SplitComputation {
    split: Arc<Split>,
    ty: Type,
    /// What depends on nothing, in a process that does the clients' part.
    constants: OnceLock<Constants<Leaf>>,
    /// Whether clients may draw random numbers.
    draws: Arc<OnceLock<bool>>,
}

/// Values that came from another process.
#[pyclass(module = "stator.federated.ray", frozen)]
pub struct Received(Vec<Value<Leaf>>);

/// One call of a computation in parts, where it was called.
#[pyclass(module = "stator.federated.ray")]
pub struct SplitRun {
    run: Run<PythonKernels>,
    kernels: Arc<PythonKernels>,
    draws: Arc<OnceLock<bool>>,
    clients: Option<usize>,
    ty: Type,
}

/// A computation in parts; the reason as text, if it can't be split.
#[pyfunction]
fn split_computation<'py>(comp: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = comp.py();
    let (block, ty) = match blocks::unwrap(comp) {
        Some(block) => (block.clone(), block.ty().clone()),
        None => computation(comp)?,
    };
    match Split::new(&block).py()? {
        Ok(split) => {
            let (constants, draws) = (OnceLock::new(), Arc::default());
            let made = SplitComputation { split: Arc::new(split), ty, constants, draws };
            Ok(Bound::new(py, made)?.into_any())
        }
        Err(reason) => Ok(PyString::new(py, reason).into_any()),
    }
}

/// The values that another process has packed.
#[pyfunction]
fn received(values: &Bound<'_, PyList>) -> PyResult<Received> {
    Ok(Received(values_of(values)?))
}

fn values_of(values: &Bound<'_, PyList>) -> PyResult<Vec<Value<Leaf>>> {
    let one = |parts: Bound<'_, PyAny>| -> PyResult<Value<Leaf>> {
        let mut column = unpack(parts.cast::<PyList>()?)?;
        column.pop().ok_or_else(|| pyo3::exceptions::PyValueError::new_err("no value came"))
    };
    values.iter().map(one).collect()
}

fn packed<'py>(py: Python<'py>, values: Vec<Value<Leaf>>) -> PyResult<Bound<'py, PyList>> {
    let parts = values.into_iter().map(|value| pack(py, vec![value]));
    PyList::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

#[pymethods]
impl SplitComputation {
    /// How many stages it has.
    #[getter]
    fn stages(&self) -> usize {
        self.split.stages()
    }

    /// Whether clients do anything in a stage.
    fn has_clients(&self, stage: usize) -> bool {
        self.split.has_clients(stage)
    }

    /// For each stage the operations at clients, and those that merge what clients have.
    fn operations(&self) -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
        self.split.operations()
    }

    /// Begins a call.
    #[pyo3(signature = (arg, *, clients, threads, exact))]
    fn start(
        &self,
        py: Python<'_>,
        arg: Option<&Bound<'_, PyAny>>,
        clients: Option<usize>,
        threads: usize,
        exact: bool,
    ) -> PyResult<SplitRun> {
        let kernels = Arc::new(PythonKernels::new(py, exact, None)?);
        let (argument, clients) = given_argument(&kernels, &self.ty, arg, clients, threads)?;
        let interpreter = Interpreter::new(&kernels).clients(clients).threads(threads);
        let run = Run::new(&self.split, interpreter, argument).map_err(|Raised(error)| error)?;
        let (ty, draws) = (self.ty.clone(), Arc::clone(&self.draws));
        Ok(SplitRun { run, kernels, draws, clients, ty })
    }

    /// The clients' part of a stage, for clients that come one after the other: the number of the first one, and how
    /// many they are. `key`: what their random numbers come from, if they draw any.
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (stage, broadcast, given, clients, *, exact, key=None))]
    fn work<'py>(
        &self,
        py: Python<'py>,
        stage: usize,
        broadcast: &Bound<'py, Received>,
        given: &Bound<'py, PyList>,
        clients: (usize, usize),
        exact: bool,
        key: Option<Vec<u8>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (first, count) = clients;
        let kernels = Arc::new(PythonKernels::new(py, exact, key)?);
        let interpreter = Interpreter::new(&kernels).clients(Some(count)).first(first);
        let raised = |Raised(error): Raised| error;
        let constants = match self.constants.get() {
            Some(constants) => constants,
            None => {
                let made = interpreter.constants(&self.split).map_err(raised)?;
                self.constants.get_or_init(|| made)
            }
        };
        let broadcast = broadcast.get().0.clone();
        let given = values_of(given)?;
        let made = interpreter.at_stage(&self.split, stage, constants, broadcast, given);
        packed(py, made.map_err(raised)?)
    }
}

#[pymethods]
impl SplitRun {
    /// How many clients there are, if anything says so.
    #[getter]
    fn clients(&self) -> Option<usize> {
        self.clients
    }

    /// What clients' random numbers come from, if they may draw any.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Nobody waits for another thread here, which may wait for Python.
        let may_draw = self.draws.get().copied().unwrap_or_else(|| {
            let kernels = &self.kernels;
            self.run.split().clients_run(|compiled, ty| kernels.draws(compiled, ty))
        });
        let _ = self.draws.set(may_draw);
        may_draw.then(|| self.kernels.key(py)).transpose()
    }

    /// Ends the call, whatever came of it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.kernels.end_draws(py)
    }

    /// Does the server's part of a stage.
    fn begin(&mut self, stage: usize) -> PyResult<()> {
        self.run.begin(stage).map_err(|Raised(error)| error)
    }

    /// What all clients are sent in a stage, and how many bytes that is.
    fn broadcast<'py>(&self, py: Python<'py>, stage: usize) -> PyResult<(Bound<'py, PyList>, u64)> {
        let values = self.run.broadcast(stage).map_err(|Raised(error)| error)?;
        let bytes = values.iter().map(|value| bytes_in(py, value)).sum::<PyResult<u64>>()?;
        Ok((packed(py, values)?, bytes))
    }

    /// What some clients have of their own in a stage.
    fn given<'py>(
        &self,
        py: Python<'py>,
        stage: usize,
        start: usize,
        stop: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        packed(py, self.run.given(stage, start..stop).map_err(|Raised(error)| error)?)
    }

    /// How many bytes the first client has of its own in a stage.
    fn bytes_of_one(&self, py: Python<'_>, stage: usize) -> PyResult<u64> {
        let given = self.run.given(stage, 0..1).map_err(|Raised(error)| error)?;
        given.iter().map(|value| bytes_in(py, value)).sum()
    }

    /// Takes what the next clients made.
    fn merge(&mut self, stage: usize, made: &Bound<'_, PyList>) -> PyResult<()> {
        self.run.merge(stage, values_of(made)?).map_err(|Raised(error)| error)
    }

    /// Ends a stage.
    fn end(&mut self, stage: usize) -> PyResult<()> {
        self.run.end(stage).map_err(|Raised(error)| error)
    }

    /// The result, after all stages.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let of = self.ty.as_function().expect("it was split");
        to_python(py, self.run.result(), &of.result, Tensors::Numpy)
    }
}

/// Adds what contexts use that split computations.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SplitComputation>()?;
    module.add_class::<SplitRun>()?;
    module.add_class::<Received>()?;
    module.add_function(wrap_pyfunction!(split_computation, module)?)?;
    module.add_function(wrap_pyfunction!(received, module)?)
}
