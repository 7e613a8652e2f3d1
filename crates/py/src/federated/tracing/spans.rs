//! Spans: what is going on, told to whoever watches.
//!
//! A provider's `span(...)` is a generator function that runs up to its `yield` when a span
//! begins, and gets a `TraceResult` out of it when the span ends. What it yields goes to the spans
//! inside. The current span is a context variable, so tasks have the one that they were made in.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::coroutine::{AroundStep, Coroutine};

static PROVIDERS: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

fn providers(py: Python<'_>) -> Vec<Py<PyAny>> {
    let providers = PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner);
    providers.iter().map(|provider| provider.clone_ref(py)).collect()
}

/// The context variable with what the providers yielded for the current span.
fn current(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || -> PyResult<_> {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("default", py.None())?;
        Ok(class.call(("stator_spans",), Some(&kwargs))?.unbind())
    };
    Ok(VARIABLE.get_or_try_init(py, make)?.bind(py))
}

/// What the providers yielded for the span around, one for each.
fn yields<'py>(py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let found = current(py)?.call_method0("get")?;
    let found: Vec<_> = match found.cast::<PyList>() {
        Ok(found) => found.iter().collect(),
        Err(_) => Vec::new(),
    };
    // Those of other providers mean nothing to these.
    Ok(match found.len() == count {
        true => found,
        false => (0..count).map(|_| py.None().into_bound(py)).collect(),
    })
}

/// A span that ended without a function.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct TracedSpan;

#[pymethods]
impl TracedSpan {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// A span that ended with a function's result.
#[pyclass(module = "stator.federated.framework", frozen, get_all, weakref)]
struct TracedFunctionReturned {
    value: Py<PyAny>,
}

#[pymethods]
impl TracedFunctionReturned {
    #[new]
    fn new(value: Py<PyAny>) -> Self {
        Self { value }
    }
}

/// A span that ended with an exception.
#[pyclass(module = "stator.federated.framework", frozen, get_all, weakref)]
struct TracedFunctionThrew {
    error_type: Py<PyAny>,
    error_value: Py<PyAny>,
    traceback: Py<PyAny>,
}

#[pymethods]
impl TracedFunctionThrew {
    #[new]
    fn new(error_type: Py<PyAny>, error_value: Py<PyAny>, traceback: Py<PyAny>) -> Self {
        Self { error_type, error_value, traceback }
    }
}

fn returned<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let result = TracedFunctionReturned { value: value.clone().unbind() };
    Ok(Bound::new(value.py(), result)?.into_any())
}

fn threw<'py>(py: Python<'py>, error: &PyErr) -> PyResult<Bound<'py, PyAny>> {
    let result = TracedFunctionThrew {
        error_type: error.get_type(py).into_any().unbind(),
        error_value: error.value(py).clone().into_any().unbind(),
        traceback: error.traceback(py).map_or_else(|| py.None(), |it| it.into_any().unbind()),
    };
    Ok(Bound::new(py, result)?.into_any())
}

/// A span that is going on.
#[derive(Default)]
struct Open {
    generators: Vec<Py<PyAny>>,
    /// What was current before.
    outer: Option<Py<PyAny>>,
}

impl Open {
    /// Begins a span with every provider.
    fn begin<'py>(
        py: Python<'py>,
        scope: &Bound<'py, PyAny>,
        sub_scope: &Bound<'py, PyAny>,
        call: Option<(&Bound<'py, PyTuple>, &Bound<'py, PyDict>)>,
        options: &Bound<'py, PyDict>,
    ) -> PyResult<Self> {
        let providers = providers(py);
        if providers.is_empty() {
            return Ok(Self::default());
        }
        let nonce = RandomState::new().hash_one(0) % 1_000_000_000;
        let parents = yields(py, providers.len())?;
        let mut made = Self { generators: Vec::new(), outer: None };
        let yielded = PyList::empty(py);
        let (args, kwargs) = call.unzip();
        for (provider, parent) in providers.iter().zip(parents) {
            let arguments = (scope, sub_scope, nonce, parent, args, kwargs, options);
            let generator = provider.bind(py).call_method1("span", arguments)?;
            yielded.append(generator.call_method1("send", (py.None(),))?)?;
            made.generators.push(generator.unbind());
        }
        let variable = current(py)?;
        made.outer = Some(variable.call_method0("get")?.unbind());
        variable.call_method1("set", (yielded,))?;
        Ok(made)
    }

    /// Ends it, the last provider first.
    fn end(self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(outer) = &self.outer {
            current(py)?.call_method1("set", (outer,))?;
        }
        for generator in self.generators.into_iter().rev() {
            match generator.bind(py).call_method1("send", (result,)) {
                Err(error) if !error.is_instance_of::<PyStopIteration>(py) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// For a `with` statement: a span.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct Span {
    scope: Py<PyAny>,
    sub_scope: Py<PyAny>,
    options: Py<PyDict>,
    open: Mutex<Vec<Open>>,
}

#[pymethods]
impl Span {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let (scope, sub_scope) = (self.scope.bind(py), self.sub_scope.bind(py));
        let open = Open::begin(py, scope, sub_scope, None, self.options.bind(py))?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(open);
        Ok(())
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: Py<PyAny>,
        value: Py<PyAny>,
        traceback: Py<PyAny>,
    ) -> PyResult<bool> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let result = match class.is_none(py) {
            true => Bound::new(py, TracedSpan)?.into_any(),
            false => {
                let threw =
                    TracedFunctionThrew { error_type: class, error_value: value, traceback };
                Bound::new(py, threw)?.into_any()
            }
        };
        if let Some(open) = open {
            open.end(py, &result)?;
        }
        Ok(false)
    }
}

/// A function whose calls are spans.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct Traced {
    function: Py<PyAny>,
    scope: Py<PyAny>,
    sub_scope: Py<PyAny>,
    options: Py<PyDict>,
    is_async: bool,
}

#[pymethods]
impl Traced {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, of) = (slf.py(), slf.get());
        let function = of.function.bind(py);
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
        if of.is_async {
            let coroutine = function.call(args, Some(&kwargs))?.unbind();
            let around = AsSpan {
                span: Mutex::new(Some(Pending {
                    traced: slf.clone().unbind(),
                    args: args.clone().unbind(),
                    kwargs: kwargs.unbind(),
                })),
                open: Mutex::new(None),
            };
            return Ok(Bound::new(py, Coroutine::new(coroutine, around))?.into_any());
        }
        let open = of.begin(py, args, &kwargs)?;
        match function.call(args, Some(&kwargs)) {
            Ok(result) => {
                open.end(py, &returned(&result)?)?;
                Ok(result)
            }
            Err(error) => {
                open.end(py, &threw(py, &error)?)?;
                Err(error)
            }
        }
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

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    #[getter]
    fn _doc<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.function.bind(py).getattr_opt("__doc__")
    }

    #[getter]
    fn __module__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.function.bind(py).getattr_opt("__module__")
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }
}

impl Traced {
    fn begin<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Open> {
        let (scope, sub_scope) = (self.scope.bind(py), self.sub_scope.bind(py));
        Open::begin(py, scope, sub_scope, Some((args, kwargs)), self.options.bind(py))
    }
}

/// The call of an async function that hasn't begun.
struct Pending {
    traced: Py<Traced>,
    args: Py<PyTuple>,
    kwargs: Py<PyDict>,
}

/// The coroutine is a span, from its first step to its last.
struct AsSpan {
    span: Mutex<Option<Pending>>,
    open: Mutex<Option<Open>>,
}

impl AroundStep for AsSpan {
    fn step<'py>(
        &self,
        py: Python<'py>,
        run: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let pending = self.span.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Pending { traced, args, kwargs }) = pending {
            let open = traced.get().begin(py, args.bind(py), kwargs.bind(py))?;
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        }
        let step = run();
        let Err(error) = &step else { return step };
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(open) = open {
            let result = match error.is_instance_of::<PyStopIteration>(py) {
                true => returned(&error.value(py).getattr("value")?)?,
                false => threw(py, error)?,
            };
            open.end(py, &result)?;
        }
        step
    }
}

/// For a `with` statement: a span named `scope` and `sub_scope`, with options for the providers.
#[pyfunction]
#[pyo3(signature = (scope, sub_scope, **trace_opts))]
fn span(
    py: Python<'_>,
    scope: Py<PyAny>,
    sub_scope: Py<PyAny>,
    trace_opts: Option<Py<PyDict>>,
) -> Span {
    let options = trace_opts.unwrap_or_else(|| PyDict::new(py).unbind());
    Span { scope, sub_scope, options, open: Mutex::default() }
}

/// What `trace(**options)` is: a decorator.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct TraceDecorator {
    options: Py<PyDict>,
}

#[pymethods]
impl TraceDecorator {
    fn __call__<'py>(&self, r#fn: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        traced(r#fn, self.options.bind(r#fn.py()))
    }
}

/// A decorator: each call of the function, which may be async, is a span named after its class
/// and itself; a function outside classes after its module and itself.
#[pyfunction]
#[pyo3(signature = (r#fn=None, **trace_kwargs))]
fn trace<'py>(
    py: Python<'py>,
    r#fn: Option<&Bound<'py, PyAny>>,
    trace_kwargs: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = trace_kwargs.unwrap_or_else(|| PyDict::new(py));
    match r#fn {
        Some(function) => traced(function, &options),
        None => Ok(Bound::new(py, TraceDecorator { options: options.unbind() })?.into_any()),
    }
}

fn traced<'py>(
    function: &Bound<'py, PyAny>,
    options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let path: String = function.getattr("__qualname__")?.extract()?;
    let mut parts = path.rsplit('.');
    let last = parts.next().unwrap_or_default().to_owned();
    let scope = match parts.next() {
        Some(class) => class.to_owned(),
        None => {
            let module: String = function.getattr("__module__")?.extract()?;
            module.rsplit('.').next().unwrap_or_default().to_owned()
        }
    };
    let made = Traced {
        function: function.clone().unbind(),
        scope: scope.into_pyobject(py)?.into_any().unbind(),
        sub_scope: last.into_pyobject(py)?.into_any().unbind(),
        options: options.clone().unbind(),
        is_async: super::around::is_async(function)?,
    };
    Ok(Bound::new(py, made)?.into_any())
}

/// Makes these providers the ones that are told of spans.
#[pyfunction]
fn set_tracing_providers(tracing_providers: Vec<Py<PyAny>>) {
    let mut providers = PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let old = std::mem::replace(&mut *providers, tracing_providers);
    drop(providers);
    drop(old);
}

/// Each step runs inside a span.
struct InSpan(Py<PyAny>);

impl AroundStep for InSpan {
    fn step<'py>(
        &self,
        py: Python<'py>,
        run: &dyn Fn() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let variable = current(py)?;
        let outer = variable.call_method0("get")?;
        variable.call_method1("set", (&self.0,))?;
        let step = run();
        variable.call_method1("set", (outer,))?;
        step
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

/// A coroutine that runs `coro` inside the span that is current now.
#[pyfunction]
fn wrap_coroutine_in_current_trace_context(py: Python<'_>, coro: Py<PyAny>) -> PyResult<Coroutine> {
    let span = current(py)?.call_method0("get")?.unbind();
    Ok(Coroutine::new(coro, InSpan(span)))
}

/// A task factory for event loops: tasks are in the span that was current when they were made.
#[pyfunction]
fn propagate_trace_context_task_factory<'py>(
    r#loop: &Bound<'py, PyAny>,
    coro: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // A task copies the context variables, the current span among them.
    let py = coro.py();
    let kwargs = PyDict::new(py);
    kwargs.set_item("loop", r#loop)?;
    py.import("asyncio")?.getattr("Task")?.call((coro,), Some(&kwargs))
}

/// For a `with` statement: providers may make ready for a call of another process.
#[pyfunction]
fn wrap_rpc_in_trace_context(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let providers = providers(py);
    let stack = py.import("contextlib")?.getattr("ExitStack")?.call0()?;
    for (provider, parent) in providers.iter().zip(yields(py, providers.len())?) {
        let each = provider.bind(py).call_method1("wrap_rpc", (parent,))?;
        stack.call_method1("enter_context", (each,))?;
    }
    Ok(stack)
}

/// Adds what users see of spans.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    super::add_documented::<Traced>(module)?;
    module.add_class::<TracedSpan>()?;
    module.add_class::<TracedFunctionReturned>()?;
    module.add_class::<TracedFunctionThrew>()?;
    module.add_function(wrap_pyfunction!(span, module)?)?;
    module.add_function(wrap_pyfunction!(trace, module)?)?;
    module.add_function(wrap_pyfunction!(set_tracing_providers, module)?)?;
    module.add_function(wrap_pyfunction!(wrap_coroutine_in_current_trace_context, module)?)?;
    module.add_function(wrap_pyfunction!(propagate_trace_context_task_factory, module)?)?;
    module.add_function(wrap_pyfunction!(wrap_rpc_in_trace_context, module)?)
}
