//! The compiled callable: bind, check guards, replay; or record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use smallvec::SmallVec;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::{Borrowed, Object};

use crate::bind::Signature;
use crate::breaks::{Break, Place, Reason};
use crate::entry::{Entry, Replay};
use crate::locate::source_line;
use crate::logs::Log;
use crate::recorder::{self, Outcome, record};

/// A function that is traced at its first call and replayed afterwards.
#[pyclass(dict, weakref, frozen, module = "stator._stator")]
pub struct Compiled {
    function: Py<PyFunction>,
    backend: Option<Py<PyAny>>,
    recompile_limit: Option<usize>,
    fullgraph: bool,
    state: Mutex<CacheState>,
    hits: AtomicU64,
    native: AtomicU64,
    recording: AtomicBool,
}

/// What a compiled function remembers between calls.
#[derive(Default)]
struct CacheState {
    /// The most recently used first.
    entries: Vec<Arc<Entry>>,
    signature: Option<Arc<Signature>>,
    traces: u64,
    /// Why every call from now on runs natively.
    given_up: Option<Break>,
    reason: Option<String>,
    warned: bool,
}

/// Counters of one compiled function.
#[pyclass(frozen, get_all, module = "stator._stator")]
pub struct Stats {
    /// Calls that were recorded.
    traces: u64,
    /// Calls that were replayed.
    hits: u64,
    /// Calls that ran natively.
    native: u64,
    /// Cache entries.
    entries: usize,
    /// Why the last native call ran natively.
    reason: Option<String>,
    /// Operations in the graph used last.
    graph_nodes: usize,
    /// Guards of the entry used last.
    guards: usize,
}

static ALL: Mutex<Vec<Py<PyWeakrefReference>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Compiled {
    #[new]
    #[pyo3(signature = (r#fn, *, backend, recompile_limit, fullgraph, dynamic))]
    fn new(
        r#fn: Bound<'_, PyFunction>,
        backend: Option<Py<PyAny>>,
        recompile_limit: Option<usize>,
        fullgraph: bool,
        dynamic: Option<bool>,
    ) -> PyResult<Self> {
        // Sizes are static until symbolic shapes join.
        let _ = dynamic;
        recorder::prepare(r#fn.py())?;
        Ok(Self {
            function: r#fn.unbind(),
            backend,
            recompile_limit,
            fullgraph,
            state: Mutex::default(),
            hits: AtomicU64::new(0),
            native: AtomicU64::new(0),
            recording: AtomicBool::new(false),
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        slf.get().call(slf.py(), args, kwargs)
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> Object<'py> {
        if instance.is_none() {
            return slf.clone().into_any();
        }
        stator_cpython::generic::bind_method(slf.as_any().as_borrowed(), instance.as_borrowed())
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[getter]
    fn stats(&self) -> Stats {
        let state = lock(&self.state);
        let last = state.entries.first();
        Stats {
            traces: state.traces,
            hits: self.hits.load(Ordering::Relaxed),
            native: self.native.load(Ordering::Relaxed),
            entries: state.entries.len(),
            reason: state.reason.clone(),
            graph_nodes: last.map_or(0, |entry| entry.graph_nodes()),
            guards: last.map_or(0, |entry| entry.guard_count()),
        }
    }

    /// Drops every trace of this function and sets its counters to zero.
    fn reset(&self) {
        let dropped = std::mem::take(&mut *lock(&self.state));
        self.hits.store(0, Ordering::Relaxed);
        self.native.store(0, Ordering::Relaxed);
        drop(dropped);
    }

    /// The graph of each entry, printed as code.
    fn graph_code(&self, py: Python<'_>) -> Vec<String> {
        self.entries().iter().map(|entry| entry.graph_code(py)).collect()
    }

    /// The guards of each entry, as the `guards` log prints them.
    fn guards(&self, py: Python<'_>) -> Vec<Vec<String>> {
        self.entries().iter().map(|entry| entry.guards(py)).collect()
    }
}

impl Compiled {
    /// Makes a compiled function known to [`reset_all`].
    ///
    /// # Errors
    /// If it can't be referenced weakly.
    pub fn register(this: &Bound<'_, Self>) -> PyResult<()> {
        let reference = PyWeakrefReference::new(this)?.unbind();
        let py = this.py();
        let mut all = lock(&ALL);
        all.retain(|known| known.bind(py).upgrade().is_some());
        all.push(reference);
        Ok(())
    }

    /// The function that was compiled.
    #[must_use]
    pub fn function<'py>(&self, py: Python<'py>) -> Bound<'py, PyFunction> {
        self.function.bind(py).clone()
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        lock(&self.state).entries.clone()
    }

    fn run_natively<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        self.native.fetch_add(1, Ordering::Relaxed);
        self.function.bind(py).call(args, kwargs)
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        let function = self.function.bind(py);
        if recorder::is_recording() {
            // A compiled function within another: part of its trace.
            return function.call(args, kwargs);
        }
        let signature = {
            let mut state = lock(&self.state);
            if state.given_up.is_some() {
                drop(state);
                return self.run_natively(py, args, kwargs);
            }
            self.signature(function.as_any(), &mut state)
        };
        let Some(signature) = signature else { return self.run_natively(py, args, kwargs) };
        if signature.is_suspendable {
            self.give_up(
                py,
                Break { reason: Reason::Suspendable, detail: name(function), stack: vec![] },
            );
            return self.run_natively(py, args, kwargs);
        }
        let Some(locals) = signature.bind(function.as_any(), args, kwargs) else {
            // The arguments don't fit: the function itself says so.
            return function.call(args, kwargs);
        };
        let locals: SmallVec<[Borrowed<'_, 'py>; 8]> =
            locals.iter().map(|local| local.as_borrowed()).collect();
        let entries = self.entries();
        let mut failures = Vec::new();
        let fast = entries.iter().find_map(|entry| Some((entry, entry.check_fast(py, &locals)?)));
        let mut passed = fast;
        if passed.is_none() {
            for entry in &entries {
                match entry.check(py, &locals) {
                    Ok(resolved) => {
                        passed = Some((entry, resolved));
                        break;
                    }
                    Err(failure) => failures.push((entry, failure)),
                }
            }
        }
        let Some((entry, resolved)) = passed else {
            return self.miss(py, args, kwargs, &failures);
        };
        self.use_first(entry);
        match entry.replay(py, &resolved, self.backend.as_ref()) {
            Replay::Done(result) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Ok(result)
            }
            Replay::Restart => {
                lock(&self.state).reason = Some("an operation raised during replay".into());
                self.run_natively(py, args, kwargs)
            }
            Replay::Failed(error) => Err(error),
        }
    }

    /// The signature, made again if the function's code was replaced.
    fn signature(
        &self,
        function: &Bound<'_, PyAny>,
        state: &mut CacheState,
    ) -> Option<Arc<Signature>> {
        let code = value(function.as_borrowed(), Field::Code)?.as_ptr() as usize;
        match &state.signature {
            Some(signature) if signature.code == code => {}
            _ => {
                state.entries.clear();
                state.signature = Signature::of(function).map(Arc::new);
            }
        }
        state.signature.clone()
    }

    fn use_first(&self, entry: &Arc<Entry>) {
        let mut state = lock(&self.state);
        if state.entries.first().is_some_and(|first| Arc::ptr_eq(first, entry)) {
            return;
        }
        if let Some(at) = state.entries.iter().position(|known| Arc::ptr_eq(known, entry)) {
            state.entries[..=at].rotate_right(1);
        }
    }

    /// No entry fits: records the call, unless something speaks against it.
    fn miss<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        failures: &[(&Arc<Entry>, crate::check::Failure)],
    ) -> PyResult<Object<'py>> {
        let function = self.function.bind(py);
        let global = crate::check::read_global_state(py)?;
        if crate::check::has_foreign_modes(&global) {
            lock(&self.state).reason = Some(Reason::ForeignMode.what().into());
            return self.run_natively(py, args, kwargs);
        }
        if self.recording.swap(true, Ordering::Relaxed) {
            // Another thread records it: run beside it.
            return self.run_natively(py, args, kwargs);
        }
        let _done = Flag(&self.recording);
        let dropped: Vec<_> = {
            let mut state = lock(&self.state);
            let entries = std::mem::take(&mut state.entries);
            let (alive, dead) = entries.into_iter().partition(|entry| entry.is_alive());
            state.entries = alive;
            dead
        };
        drop(dropped);
        if !failures.is_empty() && Log::Recompiles.is_on() {
            self.log_recompile(py, failures);
        }
        let limit = self.limit(py)?;
        if lock(&self.state).entries.len() >= limit {
            self.reach_limit(py, limit, failures)?;
            return self.run_natively(py, args, kwargs);
        }
        let kwargs_any = kwargs.map(|kwargs| kwargs.as_any().as_borrowed());
        let (result, outcome) = record(
            function.as_any().as_borrowed(),
            args.as_any().as_borrowed(),
            kwargs_any,
            global,
            Log::Trace.is_on(),
        )?;
        match outcome {
            Outcome::Raised => {}
            Outcome::Broke(stop) => {
                self.native.fetch_add(1, Ordering::Relaxed);
                self.give_up(py, stop);
            }
            Outcome::Traced(traced) => match Entry::new(py, *traced) {
                Ok(entry) => {
                    self.log_entry(py, &entry);
                    let mut state = lock(&self.state);
                    state.traces += 1;
                    state.entries.insert(0, entry);
                }
                Err(error) => {
                    let detail = error.to_string();
                    self.native.fetch_add(1, Ordering::Relaxed);
                    self.give_up(py, Break { reason: Reason::Unsupported, detail, stack: vec![] });
                }
            },
        }
        result.map_err(|raised| raised.take(py))
    }

    fn limit(&self, py: Python<'_>) -> PyResult<usize> {
        match self.recompile_limit {
            Some(limit) => Ok(limit),
            None => py
                .import("stator._config")?
                .getattr("config")?
                .getattr("recompile_limit")?
                .extract(),
        }
    }

    fn give_up(&self, py: Python<'_>, stop: Break) {
        if Log::GraphBreaks.is_on() {
            Log::GraphBreaks.emit(py, &break_report(py, self.function.bind(py), &stop));
        }
        let mut state = lock(&self.state);
        state.reason = Some(stop.to_string());
        state.given_up = Some(stop);
    }

    fn reach_limit(
        &self,
        py: Python<'_>,
        limit: usize,
        failures: &[(&Arc<Entry>, crate::check::Failure)],
    ) -> PyResult<()> {
        let function = self.function.bind(py);
        let last = failures
            .first()
            .map_or_else(String::new, |(entry, failure)| entry.explain(py, failure));
        let warned = std::mem::replace(&mut lock(&self.state).warned, true);
        let detail = format!("{} entries", limit);
        let (file, line) = location(function);
        self.give_up(
            py,
            Break {
                reason: Reason::RecompileLimit,
                detail,
                stack: vec![Place { file: file.clone(), line, function: name(function) }],
            },
        );
        if !warned {
            py.import("stator._warnings")?
                .call_method1("recompile_limit", (name(function), file, line, limit, last))?;
        }
        Ok(())
    }

    fn log_recompile(&self, py: Python<'_>, failures: &[(&Arc<Entry>, crate::check::Failure)]) {
        let function = self.function.bind(py);
        let (file, line) = location(function);
        let mut text = format!(
            "Recompiling function {} in {file}:{line}\ntriggered by the following guard failure(s):",
            name(function)
        );
        for (entry, failure) in failures {
            text += &format!("\n    - {}", entry.explain(py, failure));
        }
        Log::Recompiles.emit(py, &text);
    }

    fn log_entry(&self, py: Python<'_>, entry: &Entry) {
        if Log::GraphCode.is_on() {
            Log::GraphCode.emit(py, &entry.graph_code(py));
        }
        if Log::Graph.is_on() {
            Log::Graph.emit(py, &entry.graph_table());
        }
        if Log::GraphSizes.is_on() {
            Log::GraphSizes.emit(py, &entry.graph_sizes(&name(self.function.bind(py))));
        }
        if Log::Guards.is_on() {
            Log::Guards.emit(py, &entry.guards(py).join("\n"));
        }
    }
}

struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn name(function: &Bound<'_, PyFunction>) -> String {
    function.getattr("__qualname__").map_or_else(|_| "?".into(), |name| name.to_string())
}

/// File and line of a function's first decorator or `def`.
fn location(function: &Bound<'_, PyFunction>) -> (String, u32) {
    let code = function.getattr("__code__").ok();
    let file = code.as_ref().and_then(|code| code.getattr("co_filename").ok()?.extract().ok());
    let line = code.as_ref().and_then(|code| code.getattr("co_firstlineno").ok()?.extract().ok());
    (file.unwrap_or_else(|| "?".into()), line.unwrap_or(0))
}

fn break_report(py: Python<'_>, function: &Bound<'_, PyFunction>, stop: &Break) -> String {
    let (file, line) = location(function);
    let mut text = format!("{} ({file}:{line}) runs natively\n{}", name(function), stop.report());
    if let Some(place) = stop.stack.last() {
        let code = source_line(py, &place.file, place.line);
        if !code.is_empty() {
            text += &format!("\n      {code}");
        }
    }
    text
}

/// Resets every compiled function of the process.
pub fn reset_all(py: Python<'_>) {
    let all: Vec<_> = lock(&ALL).iter().map(|known| known.clone_ref(py)).collect();
    for known in all {
        if let Some(compiled) = known.bind(py).upgrade()
            && let Ok(compiled) = compiled.cast_into::<Compiled>()
        {
            compiled.get().reset();
        }
    }
}

/// The function behind a compiled one.
#[must_use]
pub fn unwrap<'py>(object: Borrowed<'_, 'py>) -> Option<Bound<'py, PyFunction>> {
    object.cast::<Compiled>().ok().map(|compiled| compiled.get().function(object.py()))
}
