//! Calls and coroutines of our own Python code, whose frames users don't see.

use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTraceback};

/// Where our Python code is, and where that is which runs coroutines.
fn directories(py: Python<'_>) -> PyResult<&[String; 3]> {
    static DIRECTORIES: PyOnceLock<[String; 3]> = PyOnceLock::new();
    DIRECTORIES.get_or_try_init(py, || {
        let of = |module: &str| -> PyResult<String> {
            let file: String = py.import(module)?.getattr("__file__")?.extract()?;
            Ok(file.rsplit_once(['/', '\\']).map_or(String::new(), |(head, _)| format!("{head}/")))
        };
        Ok([of("stator.federated")?, of("asyncio")?, of("concurrent.futures")?])
    })
}

/// The error without our frames, and without those above the first frame of the user that run
/// coroutines.
fn hide(py: Python<'_>, error: PyErr) -> PyErr {
    let shorten = || -> PyResult<Option<Bound<'_, PyTraceback>>> {
        let [ours, runners @ ..] = directories(py)?;
        let mut kept: Vec<Bound<'_, PyAny>> = Vec::new();
        let mut next = error.traceback(py).map(Bound::into_any);
        while let Some(entry) = next {
            let code = entry.getattr("tb_frame")?.getattr("f_code")?;
            let file = code.getattr("co_filename")?;
            let file = file.cast::<PyString>()?.to_string_lossy();
            let runs = kept.is_empty() && runners.iter().any(|of| file.starts_with(of));
            next = Some(entry.getattr("tb_next")?).filter(|next| !next.is_none());
            if !runs && !file.starts_with(ours) {
                kept.push(entry);
            }
        }
        for pair in kept.windows(2) {
            pair[0].setattr("tb_next", &pair[1])?;
        }
        if let Some(last) = kept.last() {
            last.setattr("tb_next", py.None())?;
        }
        Ok(kept.into_iter().next().map(|first| first.cast_into()).transpose()?)
    };
    // A traceback with too many frames is better than another error.
    if let Ok(traceback) = shorten() {
        error.set_traceback(py, traceback);
    }
    error
}

/// A base whose `invoke` is `_invoke` without our frames in its errors.
#[pyclass(module = "stator.federated.framework", subclass, frozen, weakref)]
pub struct HiddenInvoke;

#[pymethods]
impl HiddenInvoke {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self
    }

    /// The result of `comp` for `arg`.
    fn invoke<'py>(
        slf: &Bound<'py, Self>,
        comp: &Bound<'py, PyAny>,
        arg: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.call_method1("_invoke", (comp, arg)).map_err(|error| hide(py, error))
    }
}

/// A coroutine without our frames in its errors.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct Hidden {
    coroutine: Py<PyAny>,
}

impl Hidden {
    /// Does a step of the coroutine.
    fn step<'py>(
        &self,
        py: Python<'py>,
        step: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        step(self.coroutine.bind(py)).map_err(|error| {
            // The end of a coroutine is an exception too.
            if error.is_instance_of::<PyStopIteration>(py) { error } else { hide(py, error) }
        })
    }
}

#[pymethods]
impl Hidden {
    #[new]
    fn new(coroutine: Py<PyAny>) -> Self {
        Self { coroutine }
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, |coroutine| coroutine.call_method1("send", (py.None(),)))
    }

    /// Goes on with a value.
    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, |coroutine| coroutine.call_method1("send", (value,)))
    }

    /// Goes on with an exception.
    #[pyo3(signature = (*error))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        error: &Bound<'py, pyo3::types::PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, |coroutine| coroutine.call_method1("throw", error))
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.coroutine.call_method0(py, "close").map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.coroutine)
    }
}

/// Adds what our Python code uses.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<HiddenInvoke>()?;
    module.add_class::<Hidden>()
}
