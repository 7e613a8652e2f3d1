//! The stack of contexts: what a call of a computation means here and now.
//!
//! Each thread has its own. What is installed is taken off again by a guard, whatever happens
//! between; each guard takes off what it installed, also if others are still above it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustc_hash::FxHashMap;

use super::scope::FederatedComputationContext;

/// The contexts of a thread.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct ContextStack {
    id: u64,
    /// What a thread begins with.
    initial: Mutex<Py<PyAny>>,
}

#[derive(Default)]
struct Stack {
    /// Replaces the initial context in this thread.
    default: Option<Py<PyAny>>,
    entries: Vec<Entry>,
}

struct Entry {
    context: Py<PyAny>,
    /// False once the guard is gone. A guard may go in another thread (a generator that the
    /// collector closes), and while there are entries above this one.
    live: Arc<AtomicBool>,
}

thread_local! {
    /// By the id of the stack. Nothing is dropped while this is borrowed: what an object runs when
    /// it dies may come back here.
    static STACKS: RefCell<FxHashMap<u64, Stack>> = RefCell::default();
}

/// Takes a context off the stack when it goes.
pub struct Guard {
    id: u64,
    live: Arc<AtomicBool>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.live.store(false, Ordering::Release);
        let mut dead = Vec::new();
        // The thread may be ending.
        let _ = STACKS.try_with(|stacks| {
            let mut stacks = stacks.borrow_mut();
            let Some(stack) = stacks.get_mut(&self.id) else { return };
            while let Some(top) = stack.entries.last() {
                if top.live.load(Ordering::Acquire) {
                    break;
                }
                dead.extend(stack.entries.pop());
            }
        });
        drop(dead);
    }
}

impl ContextStack {
    fn create(initial: Py<PyAny>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, initial: Mutex::new(initial) }
    }

    /// The context that is installed.
    pub fn top<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let found = STACKS.with_borrow(|stacks| {
            let stack = stacks.get(&self.id)?;
            let live = |entry: &&Entry| entry.live.load(Ordering::Acquire);
            let top = stack.entries.iter().rev().find(live).map(|entry| &entry.context);
            Some(top.or(stack.default.as_ref())?.bind(py).clone())
        });
        found.unwrap_or_else(|| self.initial().bind(py).clone())
    }

    /// Installs a context until the guard goes.
    pub fn push(&self, context: &Bound<'_, PyAny>) -> Guard {
        let live = Arc::new(AtomicBool::new(true));
        let entry = Entry { context: context.clone().unbind(), live: live.clone() };
        STACKS.with_borrow_mut(|stacks| stacks.entry(self.id).or_default().entries.push(entry));
        Guard { id: self.id, live }
    }

    fn initial(&self) -> std::sync::MutexGuard<'_, Py<PyAny>> {
        self.initial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_default(&self, context: Py<PyAny>) {
        let old = STACKS
            .with_borrow_mut(|stacks| stacks.entry(self.id).or_default().default.replace(context));
        drop(old);
    }
}

impl Drop for ContextStack {
    fn drop(&mut self) {
        let left = STACKS.try_with(|stacks| stacks.borrow_mut().remove(&self.id));
        drop(left);
    }
}

#[pymethods]
impl ContextStack {
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a ContextStack can't be pickled: what is installed on it belongs to threads of this \
             process",
        ))
    }

    #[new]
    fn new(default_context: Py<PyAny>) -> Self {
        Self::create(default_context)
    }

    /// The context that is installed: the last one, or the default one.
    #[getter]
    fn current<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.top(py)
    }

    /// Makes `ctx` the context of this thread where no other one is installed.
    fn set_default_context(&self, ctx: Py<PyAny>) {
        self.set_default(ctx);
    }

    /// For a `with` statement: `ctx` is the context in its block.
    fn install(slf: Bound<'_, Self>, ctx: Py<PyAny>) -> Installation {
        Installation { stack: slf.unbind(), context: ctx, guards: Mutex::default() }
    }
}

/// What `with` enters to install a context.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct Installation {
    stack: Py<ContextStack>,
    context: Py<PyAny>,
    /// One for each time that it was entered.
    guards: Mutex<Vec<Guard>>,
}

#[pymethods]
impl Installation {
    fn __enter__<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let context = self.context.bind(py);
        let guard = self.stack.get().push(context);
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
        context.clone()
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) -> bool {
        let guard = self.guards.lock().unwrap_or_else(PoisonError::into_inner).pop();
        drop(guard);
        false
    }
}

/// The context where no other one is: computations can't be called in it.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct RuntimeErrorContext;

#[pymethods]
impl RuntimeErrorContext {
    #[new]
    fn new() -> Self {
        Self
    }

    /// Fails.
    fn invoke(&self, comp: &Bound<'_, PyAny>, arg: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = (comp, arg);
        Err(PyRuntimeError::new_err(
            "no context is installed that runs computations\n  hint:     \
             `framework.set_default_context(context)` installs one for this thread",
        ))
    }
}

/// The stack that `federated_computation` and the operations use.
pub fn global(py: Python<'_>) -> &Bound<'_, ContextStack> {
    static STACK: PyOnceLock<Py<ContextStack>> = PyOnceLock::new();
    let make = || -> PyResult<_> {
        let initial = Bound::new(py, RuntimeErrorContext)?.into_any().unbind();
        Py::new(py, ContextStack::create(initial))
    };
    STACK.get_or_try_init(py, make).expect("two small objects can be made").bind(py)
}

/// The context that is installed.
pub fn current(py: Python<'_>) -> Bound<'_, PyAny> {
    global(py).get().top(py)
}

/// The function that is being traced, if one is.
pub fn tracing(py: Python<'_>) -> Option<Bound<'_, FederatedComputationContext>> {
    current(py).cast_into().ok()
}

/// Makes `context` the one that every thread begins with.
pub fn set_initial(py: Python<'_>, context: Py<PyAny>) {
    let old = std::mem::replace(&mut *global(py).get().initial(), context);
    drop(old);
}

/// The stack of contexts of the computations that are made here.
#[pyfunction]
fn get_context_stack(py: Python<'_>) -> Bound<'_, ContextStack> {
    global(py).clone()
}

/// Makes `ctx` the context of this thread where no other one is installed.
#[pyfunction]
fn set_default_context(py: Python<'_>, ctx: Py<PyAny>) {
    global(py).get().set_default(ctx);
}

/// Leaves this thread without a context where none is installed: computations can't be called.
#[pyfunction]
fn set_no_default_context(py: Python<'_>) -> PyResult<()> {
    global(py).get().set_default(Bound::new(py, RuntimeErrorContext)?.into_any().unbind());
    Ok(())
}

/// Adds what users see of contexts.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ContextStack>()?;
    module.add_class::<RuntimeErrorContext>()?;
    module.add_function(wrap_pyfunction!(get_context_stack, module)?)?;
    module.add_function(wrap_pyfunction!(set_default_context, module)?)?;
    module.add_function(wrap_pyfunction!(set_no_default_context, module)?)
}
