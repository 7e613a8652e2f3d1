//! Calls and coroutines of our own Python code, whose frames users don't see.

use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTraceback, PyTuple, PyType};

/// The directory of a module that is there.
fn directory(py: Python<'_>, module: &str) -> PyResult<String> {
    let file: String = py.import(module)?.getattr("__file__")?.extract()?;
    Ok(file.rsplit_once(['/', '\\']).map_or(String::new(), |(head, _)| format!("{head}/")))
}

/// Where our Python code is, and where that is which runs coroutines.
fn directories(py: Python<'_>) -> PyResult<&[String; 3]> {
    static DIRECTORIES: PyOnceLock<[String; 3]> = PyOnceLock::new();
    DIRECTORIES.get_or_try_init(py, || {
        let of = |module: &str| directory(py, module);
        Ok([of("stator")?, of("asyncio")?, of("concurrent.futures")?])
    })
}

/// Whether code in a file does what we have it do, where we have called it: the standard library's,
/// NumPy's and PyTorch's.
fn is_called_by_us(py: Python<'_>, file: &str) -> PyResult<bool> {
    static STANDARD: PyOnceLock<String> = PyOnceLock::new();
    static NUMPY: PyOnceLock<String> = PyOnceLock::new();
    static TORCH: PyOnceLock<String> = PyOnceLock::new();
    // Packages that were installed are in a folder within the standard library's.
    let standard = STANDARD.get_or_try_init(py, || directory(py, "os"))?;
    if file.starts_with("<frozen ")
        || file.starts_with(standard) && !file[standard.len()..].starts_with("site-packages")
    {
        return Ok(true);
    }
    let known = py.import("sys")?.getattr("modules")?;
    for (cell, module) in [(&NUMPY, "numpy"), (&TORCH, "torch")] {
        if known.contains(module)?
            && file.starts_with(cell.get_or_try_init(py, || directory(py, module))?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a function is one of ours.
///
/// # Errors
/// What asking it raises.
pub fn is_ours(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(code) = function.getattr_opt("__code__")? else { return Ok(false) };
    let file: String = code.getattr("co_filename")?.extract()?;
    let [ours, ..] = directories(function.py())?;
    Ok(file.starts_with(ours))
}

/// The error without our frames and what they call, and without those above the first frame of the user that
/// run coroutines. `begins_in_ours`: the first frame is called by us.
pub fn hide(py: Python<'_>, error: PyErr, begins_in_ours: bool) -> PyErr {
    let shorten = || -> PyResult<Option<Bound<'_, PyTraceback>>> {
        let [ours, runners @ ..] = directories(py)?;
        let (mut is_first, mut below_ours) = (true, begins_in_ours);
        let mut kept: Vec<Bound<'_, PyAny>> = Vec::new();
        let mut next = error.traceback(py).map(Bound::into_any);
        while let Some(entry) = next {
            let code = entry.getattr("tb_frame")?.getattr("f_code")?;
            let file = code.getattr("co_filename")?;
            let file = file.cast::<PyString>()?.to_string_lossy();
            let runs = kept.is_empty() && runners.iter().any(|of| file.starts_with(of));
            next = Some(entry.getattr("tb_next")?).filter(|next| !next.is_none());
            // `dataclasses` makes the `__init__` of a class of ours of a text.
            let is_made = begins_in_ours && is_first && file == "<string>";
            is_first = false;
            below_ours =
                is_made || file.starts_with(ours) || below_ours && is_called_by_us(py, &file)?;
            if !runs && !below_ours {
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
        slf.call_method1("_invoke", (comp, arg)).map_err(|error| hide(py, error, false))
    }
}

/// A function of ours, without our frames in its errors.
#[pyclass(module = "stator.federated.framework", frozen, dict, weakref)]
pub struct HiddenFunction {
    function: Py<PyAny>,
}

#[pymethods]
impl HiddenFunction {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        self.function.bind(py).call(args, kwargs).map_err(|error| hide(py, error, true))
    }

    /// A method, if it was found by an object.
    fn __get__<'py>(
        slf: Bound<'py, Self>,
        object: Option<Bound<'py, PyAny>>,
        _class: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(object) = object else { return Ok(slf.into_any()) };
        slf.py().import("types")?.getattr("MethodType")?.call1((slf, object))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<function {}>", slf.getattr("__qualname__")?))
    }

    /// It's pickled by its name, as functions are.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.getattr("__qualname__")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }
}

/// A decorator for what users call of ours: a function, or a class for its `__init__`, without our frames in
/// its errors. It isn't for what is called while a local computation is traced, which is Python alone.
#[pyfunction]
fn hidden<'py>(of: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = of.py();
    if of.is_instance_of::<PyType>() {
        of.setattr("__init__", hidden(&of.getattr("__init__")?)?)?;
        return Ok(of.clone());
    }
    let made = Bound::new(py, HiddenFunction { function: of.clone().unbind() })?.into_any();
    py.import("functools")?.call_method1("update_wrapper", (&made, of))?;
    Ok(made)
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
            if error.is_instance_of::<PyStopIteration>(py) { error } else { hide(py, error, false) }
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
    module.add_function(wrap_pyfunction!(hidden, module)?)?;
    module.add_class::<Hidden>()
}
