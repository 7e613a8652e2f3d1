//! Async functions that run in a context: it is installed while they run, not while they wait.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::contexts;
use super::coroutine::{AroundStep, Coroutine};

/// An async function, each of whose calls has a context of its own.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct AsyncWrapped {
    context: Py<PyAny>,
    function: Py<PyAny>,
}

/// `function`, in what `context()` makes.
pub fn wrap(py: Python<'_>, context: Py<PyAny>, function: Py<PyAny>) -> PyResult<Py<PyAny>> {
    Ok(Bound::new(py, AsyncWrapped { context, function })?.into_any().unbind())
}

#[pymethods]
impl AsyncWrapped {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Coroutine> {
        let context = self.context.bind(py).call0()?.unbind();
        let coroutine = self.function.bind(py).call(args, kwargs)?.unbind();
        Ok(Coroutine::new(coroutine, InContext(context)))
    }

    /// As a method, the function gets the object.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = owner;
        if instance.is_none() {
            return Ok(slf.clone().into_any());
        }
        slf.py().import("types")?.getattr("MethodType")?.call1((slf, instance))
    }

    /// What `asyncio.iscoroutinefunction` looks for.
    #[getter]
    fn _is_coroutine<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("asyncio.coroutines")?.getattr("_is_coroutine")
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.context)?;
        visit.call(&self.function)
    }
}

/// Each step runs in a context.
struct InContext(Py<PyAny>);

impl AroundStep for InContext {
    fn step<'py>(
        &self,
        py: Python<'py>,
        run: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _guard = contexts::global(py).get().push(self.0.bind(py));
        run()
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}
