//! Wrappers that change arguments, results and context of a function, and leave no frame.
//!
//! What a wrapper does is in a function of its own, which has returned, or is suspended, while the
//! wrapped function runs: that is called from here, so its caller is the user's. An exception of
//! the wrapped function passes a suspended generator, so that its `with` blocks end, and keeps the
//! traceback that it had.

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::federated::types::describe;

/// Arguments of a function, as a wrapper changes them.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct Arguments {
    args: Py<PyTuple>,
    kwargs: Py<PyDict>,
}

#[pymethods]
impl Arguments {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(py: Python<'_>, args: Py<PyTuple>, kwargs: Option<Py<PyDict>>) -> Self {
        Self { args, kwargs: kwargs.unwrap_or_else(|| PyDict::new(py).unbind()) }
    }

    /// The positional ones.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.args.bind(py).clone()
    }

    /// The keywords.
    #[getter]
    fn kwargs(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(self.kwargs.bind(py).copy()?.unbind())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let positional = self.args.bind(py).iter().map(|value| Ok(value.repr()?.to_string()));
        let keywords = self.kwargs.bind(py).iter();
        let keywords = keywords.map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
        let all: Vec<String> = positional.chain(keywords).collect::<PyResult<_>>()?;
        Ok(format!("Arguments({})", all.join(", ")))
    }
}

/// When a wrapper's function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    After,
    Around,
    /// Around, and it makes a context to be installed.
    InContext,
}

/// A decorator made of a wrapper's function.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct Wrapping {
    when: When,
    change: Py<PyAny>,
}

#[pymethods]
impl Wrapping {
    fn __call__(&self, py: Python<'_>, r#fn: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if !r#fn.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "this can't be wrapped\n  expected: a function\n  found:    {}",
                describe(r#fn)
            )));
        }
        if self.when == When::InContext && is_async(r#fn)? {
            let (context, function) = (self.change.clone_ref(py), r#fn.clone().unbind());
            return super::awaiting::wrap(py, context, function);
        }
        let wrapped = Wrapped {
            when: self.when,
            change: Some(self.change.clone_ref(py)),
            function: Some(r#fn.clone().unbind()),
        };
        Ok(Bound::new(py, wrapped)?.into_any().unbind())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<{:?} {}>", self.when, describe(self.change.bind(py)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.change)
    }
}

/// Whether calling a function gives something to await.
pub fn is_async(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    const COROUTINE: u32 = 0x80;
    match function.getattr_opt("__code__")? {
        Some(code) => Ok(code.getattr("co_flags")?.extract::<u32>()? & COROUTINE != 0),
        None => Ok(false),
    }
}

/// A wrapped function.
#[pyclass(module = "stator.federated.framework", weakref)]
pub struct Wrapped {
    when: When,
    /// Gone when the collector took the object apart.
    change: Option<Py<PyAny>>,
    function: Option<Py<PyAny>>,
}

impl Wrapped {
    /// The wrapper's function and the wrapped one.
    fn parts<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(When, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (of, py) = (slf.borrow(), slf.py());
        match (&of.change, &of.function) {
            (Some(change), Some(function)) => {
                Ok((of.when, change.bind(py).clone(), function.bind(py).clone()))
            }
            _ => Err(PyRuntimeError::new_err("the function was taken apart")),
        }
    }
}

#[pymethods]
impl Wrapped {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (when, change, function) = Self::parts(slf)?;
        match when {
            When::Before => {
                let changed = change.call(args, kwargs)?;
                call_changed(&function, args, kwargs, &changed)
            }
            When::After => change.call1((function.call(args, kwargs)?,)),
            When::Around => around_call(&change, &function, args, kwargs),
            When::InContext => {
                let _guard = super::contexts::global(slf.py()).get().push(&change.call0()?);
                function.call(args, kwargs)
            }
        }
    }

    /// As a method, the wrapped function gets the object.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = owner;
        if instance.is_none() {
            return Ok(slf.clone().into_any());
        }
        let method = slf.py().import("types")?.getattr("MethodType")?;
        method.call1((slf, instance))
    }

    #[getter]
    fn __wrapped__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::parts(slf)?.2)
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        // `__name__`, `__module__` and whatever else the function has.
        Self::parts(slf)?.2.getattr(name)
    }

    #[getter]
    fn _doc<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::parts(slf)?.2.getattr_opt("__doc__")
    }

    #[getter]
    fn __module__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::parts(slf)?.2.getattr_opt("__module__")
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (_, change, function) = Self::parts(slf)?;
        Ok(format!("<{} wrapped by {}>", function.repr()?, change.repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.change)?;
        visit.call(&self.function)
    }

    fn __clear__(&mut self) {
        self.change = None;
        self.function = None;
    }
}

/// Calls a function with what a wrapper made of its arguments: nothing else, if that is `None`.
fn call_changed<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    changed: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if changed.is_none() {
        return function.call(args, kwargs);
    }
    match changed.cast::<Arguments>() {
        Ok(changed) => {
            let py = function.py();
            let (args, kwargs) = (&changed.get().args, &changed.get().kwargs);
            function.call(args.bind(py), Some(&kwargs.bind(py).copy()?))
        }
        Err(_) => function.call1((changed,)),
    }
}

/// Runs a generator up to its `yield`, calls the function, and lets the generator finish.
fn around_call<'py>(
    wrapper: &Bound<'py, PyAny>,
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let generator = wrapper.call(args, kwargs)?;
    if generator.getattr_opt("send")?.is_none() {
        return Err(PyTypeError::new_err(format!(
            "`around` needs a generator function\n  expected: a function with a `yield` where the \
             wrapped function runs\n  found:    {}",
            describe(wrapper)
        )));
    }
    let mut running = Running { generator: Some(generator) };
    let Some(changed) = running.send(py, None)? else {
        return Err(PyRuntimeError::new_err(format!(
            "the generator ended before its `yield`, so the function was never called\n  \
             found:    {}",
            describe(wrapper)
        )));
    };
    let result = match call_changed(function, args, kwargs, &changed) {
        Ok(result) => result,
        Err(error) => return running.throw(py, error),
    };
    match running.send(py, Some(&result))? {
        None => Ok(result),
        Some(changed) => {
            running.end(py)?;
            Ok(changed)
        }
    }
}

/// A generator that is closed when it is left before its end.
struct Running<'py> {
    generator: Option<Bound<'py, PyAny>>,
}

impl<'py> Running<'py> {
    /// Goes on to the next `yield`; `None` at the end.
    fn send(
        &mut self,
        py: Python<'py>,
        value: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let generator = self.generator.as_ref().expect("it hasn't ended");
        let value = value.map_or_else(|| py.None().into_bound(py), Clone::clone);
        let step = generator.call_method1("send", (value,));
        self.stepped(py, step)
    }

    fn stepped(
        &mut self,
        py: Python<'py>,
        step: PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match step {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.generator = None;
                match error.is_instance_of::<PyStopIteration>(py) {
                    true => Ok(None),
                    false => Err(error),
                }
            }
        }
    }

    /// Goes on with an exception of the function. A result that the generator yields stands for
    /// the function's.
    fn throw(&mut self, py: Python<'py>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
        let traceback = error.traceback(py);
        let value = error.value(py).clone();
        let generator = self.generator.as_ref().expect("it hasn't ended");
        let step = generator.call_method1("throw", (&value,));
        match self.stepped(py, step) {
            Ok(Some(result)) => {
                self.end(py)?;
                Ok(result)
            }
            // It passed the generator, whose frame is none of its own.
            Ok(None) => {
                error.set_traceback(py, traceback);
                Err(error)
            }
            // A StopIteration can't pass a generator: Python makes this error of it.
            Err(other)
                if other.cause(py).is_some_and(|cause| cause.value(py).is(&value))
                    && other.is_instance_of::<PyRuntimeError>(py)
                    && error.is_instance_of::<PyStopIteration>(py) =>
            {
                error.set_traceback(py, traceback);
                Err(error)
            }
            Err(other) => {
                if other.value(py).is(&value) {
                    other.set_traceback(py, traceback);
                }
                Err(other)
            }
        }
    }

    /// Lets the generator end after its last `yield`.
    fn end(&mut self, py: Python<'py>) -> PyResult<()> {
        match self.send(py, None)? {
            None => Ok(()),
            Some(_) => Err(PyRuntimeError::new_err(
                "the generator has more than two `yield`s: one for the arguments, one for the \
                 result",
            )),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(generator) = self.generator.take() {
            // Its own errors at this point have nobody to go to.
            let _ = generator.call_method0("close");
        }
    }
}

/// A decorator: `change(*args, **kwargs)` is called before the function, which gets what it
/// returns: `Arguments(...)`, or one argument; `None` leaves the arguments as they are.
#[pyfunction]
fn before(change: Py<PyAny>) -> Wrapping {
    Wrapping { when: When::Before, change }
}

/// A decorator: `change(result)` is called after the function, and what it returns is the result.
#[pyfunction]
fn after(change: Py<PyAny>) -> Wrapping {
    Wrapping { when: When::After, change }
}

/// A decorator: the generator function `change` runs around the function.
///
/// It is called with the function's arguments and runs up to its `yield`, whose value is the
/// function's arguments: `Arguments(...)`, or one argument; `None` leaves them as they are. The
/// function's result, or exception, comes out of the `yield`. A second `yield` says another
/// result.
#[pyfunction]
fn around(change: Py<PyAny>) -> Wrapping {
    Wrapping { when: When::Around, change }
}

/// A decorator: each call of the function, which may be async, runs in a context of its own, made
/// by `context_fn()`.
#[pyfunction]
fn with_context(context_fn: Py<PyAny>) -> Wrapping {
    Wrapping { when: When::InContext, change: context_fn }
}

/// Adds the decorators.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    super::add_documented::<Wrapped>(module)?;
    module.add_class::<Arguments>()?;
    module.add_function(wrap_pyfunction!(before, module)?)?;
    module.add_function(wrap_pyfunction!(after, module)?)?;
    module.add_function(wrap_pyfunction!(around, module)?)?;
    module.add_function(wrap_pyfunction!(with_context, module)?)
}
