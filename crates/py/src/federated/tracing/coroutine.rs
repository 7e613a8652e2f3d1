//! Coroutines that do something around each step of a user's coroutine.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// What is done around each step.
pub trait AroundStep: Send + Sync + 'static {
    /// Takes a step by calling `run` once.
    fn step<'py>(
        &self,
        py: Python<'py>,
        run: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;

    /// Visits the objects that it holds, for the garbage collector.
    fn traverse(&self, _visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// A user's coroutine, with something around each of its steps.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct Coroutine {
    coroutine: Py<PyAny>,
    around: Box<dyn AroundStep>,
}

impl Coroutine {
    pub fn new(coroutine: Py<PyAny>, around: impl AroundStep) -> Self {
        Self { coroutine, around: Box::new(around) }
    }

    fn step<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let coroutine = self.coroutine.bind(py);
        self.around.step(py, &|| coroutine.call_method1(method, args))
    }
}

#[pymethods]
impl Coroutine {
    fn __await__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __iter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, py.None())
    }

    /// One step, with what was awaited.
    fn send<'py>(&self, py: Python<'py>, value: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, "send", &PyTuple::new(py, [value])?)
    }

    /// One step, with an exception.
    #[pyo3(signature = (*error))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        error: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, "throw", error)
    }

    /// Ends it.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, "close", &PyTuple::empty(py))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        // `cr_running`, `cr_frame`, ...
        self.coroutine.bind(py).getattr(name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.coroutine)?;
        self.around.traverse(&visit)
    }
}
