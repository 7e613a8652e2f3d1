//! The compiled callable: bind, check guards, replay; or record.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use stator_cpython::generic::{self, WithoutGc};
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::shortcut::Shortcut;
use stator_cpython::thread::{Deferred, Thread};
use stator_faults::{self as faults, Escape, Stage, contain, contain_call};

use crate::bind::Signature;
use crate::breaks::{Break, Place, Reason};
use crate::budget::Budget;
use crate::check::{Failure, Resolved};
use crate::clock;
use crate::codes::Backend;
use crate::compiling::{self, Answering, Native};
use crate::config::When;
use crate::disabled::is_in_disabled;
use crate::drive;
use crate::entries::{Entries, Failures};
use crate::entry::{Beyond, Entry, Replay};
use crate::floor::Turn;
use crate::frames::stage;
use crate::jobs::Job;
use crate::lock;
use crate::logs::Log;
use crate::memory;
use crate::parking::Running;
use crate::profit::Estimate;
use crate::recorder::{self, GraphBreak, record};
use crate::replay::Compiler;
use crate::resume::point::Points;
use crate::resume::session::{Brought, Root, Session};
use crate::stance::{self, Stance};
use crate::within::{self, SeenThrough};

mod backends;
mod failing;
mod lookup;
mod refusing;
mod rehearsal;
mod reports;
mod resting;
mod sessions;
mod stats;
mod storing;
mod unknown_torch;
mod weighing;

use lookup::Found;
use refusing::state_at_entry;
use reports::{
    break_report, location, log_bytecode, log_entry, mark_error, name, recompile_error,
    recompile_report,
};

use resting::Rest;

pub use rehearsal::outcome as rehearsal_outcome;
pub(crate) use reports::graph_break_error;
pub use stats::Stats;
pub use storing::{adopt_trace, stored_traces};

/// A function that is traced at its first call and replayed afterwards.
///
/// What describes the function (`__name__`, `__doc__`, `__wrapped__`, ...) stands in the instance's
/// dictionary, as `functools.wraps` puts it there.
#[pyclass(dict, weakref, frozen, module = "stator._stator")]
pub struct Compiled {
    function: Py<PyFunction>,
    backend: Option<Backend>,
    recompile_limit: Option<usize>,
    fullgraph: bool,
    /// Whether graphs have no parts: all of one is for the backend.
    keeps_whole: AtomicBool,
    dynamic: Option<bool>,
    /// What code that asks is answered: see [`compiling`].
    is_compiling: bool,
    state: Mutex<CacheState>,
    /// What starts behind graph breaks.
    points: Arc<Points>,
    hits: AtomicU64,
    native: AtomicU64,
    recording: AtomicBool,
    /// Whether it was called and its counters don't say so: as a part of another one's trace, or before
    /// they were set to zero.
    was_part: AtomicBool,
    shortcut: Shortcut,
    rest: Rest,
    budget: Mutex<Budget>,
    /// Whether Stator has failed with it: every call runs natively.
    faulty: AtomicBool,
}

/// What a compiled function remembers between calls.
#[derive(Default)]
struct CacheState {
    entries: Entries,
    signature: Option<Arc<Signature>>,
    traces: u64,
    /// Whether every call from now on runs natively.
    given_up: bool,
    /// Recordings in a row that came to nothing, and how many calls that fit no entry run natively
    /// before the next one.
    failures: u32,
    pause: u32,
    reason: Option<String>,
    /// Graph breaks met while recording.
    breaks: u64,
    /// Graphs and resumed functions that the `bytecode` log has numbered.
    listed: u64,
    /// Recordings whose first trace had to be dropped, because it broke too late.
    retries: usize,
    /// Traces that were dropped because the program has come to go another way.
    renewals: u32,
    /// Traces that gave their place to others, as no other call had fitted them.
    displaced: usize,
    /// Whether the log was told that a trace or profile function is active.
    told_watched: bool,
    /// Whether the user was warned of the recompile limit.
    warned: bool,
}

/// After so many recordings that broke too late a function runs natively.
const RETRIES: usize = 64;

/// At most 2 to this power calls, less one, lie between two recordings that come to nothing.
const LONGEST_PAUSE: u32 = 10;

impl CacheState {
    /// If a call that fits no entry is to run natively, as the last recordings came to nothing: how many
    /// others after it.
    fn pauses(&mut self) -> Option<u32> {
        let left = self.pause.checked_sub(1)?;
        self.pause = left;
        Some(left)
    }

    /// A recording came to nothing: none, 1, 3, 7, ... calls run natively before the next one. What
    /// stood in the way may be gone by then (parameters that weren't there yet, an odd argument).
    fn pause_longer(&mut self) {
        self.pause = (1 << self.failures.min(LONGEST_PAUSE)) - 1;
        self.failures += 1;
    }
}

static ALL: Mutex<Vec<Py<PyWeakrefReference>>> = Mutex::new(Vec::new());

#[pymethods]
impl Compiled {
    #[new]
    #[pyo3(signature = (r#fn, *, backend, when, is_slow, verifies, is_timed, recompile_limit, fullgraph, dynamic, is_compiling, takes_parts=false, compiler=""))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new<'py>(
        r#fn: &Bound<'py, PyFunction>,
        backend: Option<Py<PyAny>>,
        when: Option<u32>,
        is_slow: bool,
        verifies: Option<bool>,
        is_timed: bool,
        recompile_limit: Option<usize>,
        fullgraph: bool,
        dynamic: Option<bool>,
        is_compiling: bool,
        takes_parts: bool,
        compiler: &str,
    ) -> PyResult<Bound<'py, Self>> {
        let py = r#fn.py();
        let prepared = contain(py, || recorder::prepare(py));
        // Behind the tables, which would have taken most of it.
        memory::warm_up();
        within::set(SeenThrough {
            is_compiled: |object| object.is_exact_instance_of::<Self>(),
            function: unwrap,
        });
        let this = Self {
            function: r#fn.clone().unbind(),
            backend: backend.map(|callable| Backend {
                callable,
                told: when.map(When::of_number),
                is_slow,
                verifies,
                is_timed,
                takes_parts,
                compiler: Compiler::of(compiler),
            }),
            recompile_limit,
            fullgraph,
            dynamic,
            is_compiling,
            state: Mutex::default(),
            points: Arc::default(),
            hits: AtomicU64::new(0),
            native: AtomicU64::new(0),
            keeps_whole: AtomicBool::new(false),
            recording: AtomicBool::new(false),
            was_part: AtomicBool::new(false),
            shortcut: Shortcut::new(r#fn.clone().into_any().unbind()),
            rest: Rest::default(),
            budget: Mutex::default(),
            faulty: AtomicBool::new(false),
        };
        let this = {
            // CPython 3.11 and 3.12 make the instance dictionary before PyO3 moves `this` in: a
            // collection in between would traverse an object of zeros.
            let _gc = WithoutGc::new(py);
            Bound::new(py, this)?
        };
        this.get().shortcut.install(this.as_any().as_borrowed());
        modules::import(py, "functools")?.call_method1("update_wrapper", (&this, r#fn))?;
        register(&this)?;
        match prepared {
            Ok(()) => {}
            Err(Escape::Raised(error)) => return Err(error),
            Err(Escape::Fault(fault)) => Self::fail(&this, &fault)?,
        }
        unknown_torch::tell(&this)?;
        rehearsal::rehearse(py)?;
        Ok(this)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        self.shortcut.traverse(&visit)?;
        visit.call(self.backend.as_ref().map(|backend| &backend.callable))?;
        // Where the lock is taken the entries are in use: they seem to be held from outside.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        state.entries.traverse(&visit)?;
        self.points.traverse(&visit)
    }

    fn __clear__(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            let entries = std::mem::take(&mut state.entries);
            drop(state);
            drop(entries);
        }
        self.points.clear();
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!("<compiled function {} at {:#x}>", name(slf), slf.as_ptr() as usize)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        Self::call(slf, args, kwargs)
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> Object<'py> {
        if instance.is_none() {
            return slf.clone().into_any();
        }
        generic::bind_method(slf.as_any().as_borrowed(), instance.as_borrowed())
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[getter]
    fn stats(&self) -> Stats {
        Stats::of(self)
    }

    /// Whether anybody has ever called it.
    #[getter(_was_called)]
    fn was_called(&self) -> bool {
        self.was_part.load(Ordering::Relaxed)
            || self.hits.load(Ordering::Relaxed) + self.natives() > 0
            || lock(&self.state).traces > 0
    }

    #[getter(__code__)]
    fn code<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.function.bind(py).getattr("__code__")
    }

    #[setter(__code__)]
    fn set_code(&self, py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<()> {
        self.function.bind(py).setattr("__code__", code)
    }

    #[getter(__defaults__)]
    fn defaults<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.function.bind(py).getattr("__defaults__")
    }

    #[setter(__defaults__)]
    fn set_defaults(&self, py: Python<'_>, defaults: &Bound<'_, PyAny>) -> PyResult<()> {
        self.function.bind(py).setattr("__defaults__", defaults)
    }

    #[getter(__kwdefaults__)]
    fn kwdefaults<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.function.bind(py).getattr("__kwdefaults__")
    }

    #[setter(__kwdefaults__)]
    fn set_kwdefaults(&self, py: Python<'_>, defaults: &Bound<'_, PyAny>) -> PyResult<()> {
        self.function.bind(py).setattr("__kwdefaults__", defaults)
    }

    #[getter(__globals__)]
    fn globals<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.function.bind(py).getattr("__globals__")
    }

    #[getter(__closure__)]
    fn closure<'py>(&self, py: Python<'py>) -> PyResult<Object<'py>> {
        self.function.bind(py).getattr("__closure__")
    }

    /// Drops every trace of this function and sets its counters to zero.
    fn reset(&self) {
        self.was_part.store(self.was_called(), Ordering::Relaxed);
        let dropped = std::mem::take(&mut *lock(&self.state));
        self.points.clear();
        self.hits.store(0, Ordering::Relaxed);
        self.native.store(0, Ordering::Relaxed);
        self.shortcut.reset();
        self.rest.end();
        *lock(&self.budget) = Budget::default();
        self.faulty.store(false, Ordering::Relaxed);
        drop(dropped);
    }

    /// What is compiled beside the program of its graphs.
    #[pyo3(name = "_jobs")]
    fn jobs(&self, py: Python<'_>) -> Vec<Py<Job>> {
        self.all_jobs(py)
    }

    /// The graph of each entry, printed as code.
    fn graph_code(&self, py: Python<'_>) -> Vec<String> {
        self.entries().iter().map(|entry| entry.graph_code(py)).collect()
    }

    /// What was counted for the estimate of each entry; see [`Entry::counts`].
    fn counts(&self) -> Vec<[u64; 8]> {
        self.entries().iter().map(|entry| entry.counts()).collect()
    }

    /// From now on all of a graph is for the backend: a decision on data breaks it.
    #[pyo3(name = "_keep_whole")]
    fn keep_whole(&self) {
        self.keeps_whole.store(true, Ordering::Relaxed);
    }

    /// What each entry does and relies on that its graph doesn't say; see [`Entry::beyond_graph`].
    #[pyo3(name = "_beyond_graph")]
    fn beyond_graph(&self, py: Python<'_>) -> Vec<Vec<Beyond>> {
        self.entries().iter().map(|entry| entry.beyond_graph(py)).collect()
    }

    /// The guards of each entry, as the `guards` log prints them.
    fn guards(&self, py: Python<'_>) -> Vec<Vec<String>> {
        self.entries().iter().map(|entry| entry.guards(py)).collect()
    }
}

impl Compiled {
    fn run_natively<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        self.native.fetch_add(1, Ordering::Relaxed);
        let _native = compiling::answer().then(|| Native::new(py));
        self.function.bind(py).call(args, kwargs)
    }

    fn call<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        let (py, own) = (this.py(), this.get());
        let function = own.function.bind(py);
        if recorder::is_recording() {
            // A compiled function within another: part of its trace.
            own.was_part.store(true, Ordering::Relaxed);
            return function.call(args, kwargs);
        }
        let _running = Running::begin();
        let stance = stance::get(py);
        if stance == Stance::ForceEager || is_in_disabled() {
            let _plain = Answering::new(false);
            return own.run_natively(py, args, kwargs);
        }
        let _answering = Answering::new(own.is_compiling || compiling::is_told());
        if own.faulty.load(Ordering::Relaxed) {
            return own.run_natively(py, args, kwargs);
        }
        if Thread::current(py).is_traced() {
            let told = contain(py, || {
                Self::tell_watched(this);
                Ok(())
            });
            return match told {
                Ok(()) => own.run_natively(py, args, kwargs),
                Err(escape) => Self::escape(this, escape, args, kwargs),
            };
        }
        if stance == Stance::Default && own.rests(py) {
            return own.run_natively(py, args, kwargs);
        }
        let began = own.rest.is_timing().then(clock::start);
        let entries = OnceCell::new();
        match contain(py, || Self::look_up(this, args, kwargs, &entries)) {
            Ok(Found::Entry(entry, resolved)) => {
                Self::take_turn(this, &entry, resolved, (args, kwargs), began)
            }
            Ok(Found::Missing(failures)) => Self::miss(this, args, kwargs, failures),
            Ok(Found::Native) => {
                own.tire(None, u32::MAX);
                own.run_natively(py, args, kwargs)
            }
            // The arguments don't fit: the function itself says so.
            Ok(Found::Unfit) => function.call(args, kwargs),
            Err(escape) => Self::escape(this, escape, args, kwargs),
        }
    }

    fn replay<'py>(
        this: &Bound<'py, Self>,
        entry: &Arc<Entry>,
        resolved: Resolved<'py>,
        (args, kwargs): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        turn: Turn,
    ) -> PyResult<Object<'py>> {
        let (py, own) = (this.py(), this.get());
        let mut staged = Vec::new();
        let replayed = entry.replay(py, &resolved, own.backend.as_ref(), &mut staged);
        // What runs from here on may drop the last references to what was found.
        drop(resolved);
        let (replayed, fault) = match replayed {
            Replay::Mended(fault, replayed) => (*replayed, Some(fault)),
            replayed => (replayed, None),
        };
        let state = match replayed {
            Replay::Done(result) => {
                own.hits.fetch_add(1, Ordering::Relaxed);
                if turn == Turn::Trial && entry.leads_on() {
                    Self::weigh(this, entry, entry.estimate(), None);
                }
                let result = stage::give(py, staged).map(|()| result);
                return match fault {
                    None => result,
                    Some(fault) => Self::fail_behind(this, &fault, result),
                };
            }
            Replay::Broke(state) => state,
            Replay::Restart(why) => {
                lock(&own.state).reason = Some(why.into());
                return own.run_natively(py, args, kwargs);
            }
            Replay::Blamed(error, code) => {
                let result = own.run_natively(py, args, kwargs)?;
                let Some(backend) = own.backend.as_ref() else { return Err(error) };
                return entry.blame(py, backend, error, code.as_deref()).map(|()| result);
            }
            Replay::Fault(fault) => {
                return Self::escape(this, Escape::Fault(fault), args, kwargs);
            }
            Replay::Mended(..) => unreachable!("a replay is mended once"),
            Replay::Interrupted(error) | Replay::Failed(error) => {
                return match fault {
                    None => Err(Self::own_failure(this, error)),
                    Some(fault) => Self::fail_behind(this, &fault, Err(error)),
                };
            }
        };
        own.hits.fetch_add(1, Ordering::Relaxed);
        if state.left.is_some() && entry.is_left_behind() {
            own.renew(entry);
        }
        stage::give(py, staged)?;
        let continued = drive::go_on(py, Box::new(this.clone().unbind()), entry, state, fault);
        let estimate = entry.estimate() + continued.estimate;
        if let Some(session) = continued.session {
            own.ended();
            if let Some(fault) = continued.fault {
                session.fault(fault);
            }
            return Self::conclude(this, continued.result, &session, Some((entry, estimate)));
        }
        if let Some(fault) = continued.fault {
            return Self::fail_behind(this, &fault, continued.result);
        }
        if turn == Turn::Trial && continued.result.is_ok() {
            Self::weigh(this, entry, estimate, None);
        }
        continued.result
    }

    /// No entry fits: records the call, unless something speaks against it.
    fn miss<'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        failures: Failures<'_>,
    ) -> PyResult<Object<'py>> {
        let (py, own) = (this.py(), this.get());
        let pause = lock(&own.state).pauses();
        if let Some(pause) = pause {
            let rested = own.tire(None, pause);
            lock(&own.state).pause = pause - rested;
            return own.run_unfit(py, args, kwargs, false);
        }
        let function = own.function.bind(py);
        let (global, generators) = match contain(py, || state_at_entry(py)) {
            Ok(Ok(state)) => state,
            Ok(Err(stop)) => return own.refuse(py, &stop, args, kwargs),
            Err(escape) => return Self::escape(this, escape, args, kwargs),
        };
        if stance::get(py) == Stance::FailOnRecompile {
            return Err(recompile_error(this, &failures));
        }
        if Self::is_out_of_budget(this) {
            own.tire(None, u32::MAX);
            return own.run_unfit(py, args, kwargs, true);
        }
        let Some(session) = own.begin(py) else {
            // Another thread records it, or the stance is against it.
            return own.run_natively(py, args, kwargs);
        };
        let done = Ended(own);
        let is_known = |entry| failures.iter().any(|(known, _)| Arc::ptr_eq(known, entry));
        if !lock(&own.state).entries.iter().all(is_known) {
            // Another thread recorded a call meanwhile: its entry may fit this one.
            drop(done);
            return Self::call(this, args, kwargs);
        }
        let dead = lock(&own.state).entries.take_dead();
        drop(dead);
        let limit = session.limit;
        drop(own.displaced(limit));
        if lock(&own.state).entries.len() >= limit {
            Self::reach_limit(this, limit, &failures)?;
            own.tire(None, u32::MAX);
            return own.run_natively(py, args, kwargs);
        }
        if !failures.is_empty() && Log::Recompiles.is_on() {
            Log::Recompiles.emit(py, &recompile_report(this, &failures));
        }
        // They hold objects that were met, which the call may drop.
        drop(failures);
        let entries = lock(&own.state).entries.clone();
        let kwargs_any = kwargs.map(|kwargs| kwargs.as_any().as_borrowed());
        let recorded = contain_call(py, || {
            let policy = {
                let _deferred = Deferred::new(py);
                entries.policy(py, own.dynamic)
            };
            record(
                function.as_any().as_borrowed(),
                args.as_any().as_borrowed(),
                kwargs_any,
                global,
                generators,
                session.clone(),
                policy,
            )
        });
        let result = match recorded {
            Ok(result) => result.map_err(|raised| raised.take(py)),
            Err(escape) if !session.has_begun() => {
                drop(done);
                return Self::escape(this, escape, args, kwargs);
            }
            Err(Escape::Raised(error)) => Err(error),
            // The call was executed, and its result is lost.
            Err(Escape::Fault(fault)) => Err(Self::own_failure(this, fault.error(py))),
        };
        let result = Self::conclude(this, result, &session, None)?;
        Self::hand_over(this, args, kwargs)?;
        Ok(result)
    }

    /// What a recorded call comes to. What it raised goes before what may be said about its trace.
    /// `before`: the entry that was replayed, and the estimate up to where the recording began.
    fn conclude<'py>(
        this: &Bound<'py, Self>,
        result: PyResult<Object<'py>>,
        session: &Session,
        before: Option<(&Arc<Entry>, Estimate)>,
    ) -> PyResult<Object<'py>> {
        let py = this.py();
        let brought = session.finish();
        let root = brought.entry();
        let calls = this.get().calls();
        let brings = root.is_some() || result.is_ok();
        lock(&this.get().budget).recorded(session.took(), calls, brings);
        let settled = contain(py, || {
            faults::at(Stage::Settle)?;
            Self::settle(this, brought)
        });
        let fault = session.take_fault();
        let settled = match (settled, fault) {
            (Ok(()), None) => Ok(()),
            (Err(Escape::Raised(error)), None) => Err(error),
            (Err(Escape::Fault(fault)), None) | (_, Some(fault)) => {
                return Self::fail_behind(this, &fault, result);
            }
        };
        match result {
            Err(raised) if raised.is_instance_of::<GraphBreak>(py) => {
                // It was abandoned at the break: there the error comes from.
                let error = settled
                    .err()
                    .unwrap_or_else(|| graph_break_error(py, &Break::new(Reason::Unsupported)));
                error.set_traceback(py, raised.traceback(py));
                Err(error)
            }
            Err(raised) => Err(raised),
            Ok(result) => {
                settled?;
                let root = root.as_ref().map(|entry| (entry, Estimate::default()));
                Self::weigh_recorded(this, root.or(before), session);
                Ok(result)
            }
        }
    }

    /// Takes over what a session has brought. Under `fullgraph` a break is an error.
    fn settle(this: &Bound<'_, Self>, brought: Brought) -> PyResult<()> {
        let (py, own) = (this.py(), this.get());
        let _deferred = Deferred::new(py);
        let Brought { root, made, breaks, broken_mark, asked } = brought;
        if Log::GraphBreaks.is_on() {
            let report = |(index, stop): (usize, &Break)| {
                let note = asked.as_ref().and_then(|asked| asked.note(index, stop));
                break_report(this, stop, "graph break in") + &note.unwrap_or_default()
            };
            let mut reports: Vec<_> = breaks.iter().enumerate().map(report).collect();
            reports.dedup();
            reports.iter().for_each(|report| Log::GraphBreaks.emit(py, report));
        }
        made.iter().for_each(|entry| log_entry(this, entry));
        if Log::Bytecode.is_on() {
            log_bytecode(this, &made);
        }
        {
            let mut state = lock(&own.state);
            state.traces += made.len() as u64;
            state.breaks += breaks.len() as u64;
            if let Some(first) = breaks.first() {
                state.reason = Some(first.to_string());
            }
        }
        if own.fullgraph
            && let Some(first) = breaks.iter().find(|stop| stop.reason != Reason::Told)
        {
            return Err(graph_break_error(py, first));
        }
        if let Some((dimension, reason)) = broken_mark {
            return Err(mark_error(py, &dimension, &reason));
        }
        let stop = match root {
            None => return Ok(()),
            Some(Root::Traced(entry)) => {
                own.doubt(&entry);
                entry.wait(own.calls());
                let mut state = lock(&own.state);
                state.failures = 0;
                state.entries.add(entry);
                return Ok(());
            }
            Some(Root::Failed(stop)) => {
                own.native.fetch_add(1, Ordering::Relaxed);
                lock(&own.state).pause_longer();
                return Self::run_on(this, &stop);
            }
            Some(Root::Retry(stop)) => {
                own.native.fetch_add(1, Ordering::Relaxed);
                let mut state = lock(&own.state);
                state.retries += 1;
                if state.retries < RETRIES {
                    return Ok(());
                }
                drop(state);
                stop
            }
        };
        Self::give_up(this, &stop)
    }

    /// How many traces may begin at one place.
    fn limit(&self, py: Python<'_>) -> PyResult<usize> {
        if let Some(limit) = self.recompile_limit {
            return Ok(limit);
        }
        static CONFIG: Named = Named::new("stator._config", "config");
        CONFIG.get(py)?.getattr(pyo3::intern!(py, "recompile_limit"))?.extract()
    }

    /// From now on every call runs natively; under `fullgraph` this one raises instead.
    fn give_up(this: &Bound<'_, Self>, stop: &Break) -> PyResult<()> {
        Self::run_on(this, stop)?;
        lock(&this.get().state).given_up = true;
        Ok(())
    }

    /// The entries there are still serve; other calls run natively.
    fn reach_limit(
        this: &Bound<'_, Self>,
        limit: usize,
        failures: &[(&Arc<Entry>, Failure)],
    ) -> PyResult<()> {
        let (py, own) = (this.py(), this.get());
        let (file, line) = location(this);
        let name = name(this);
        let place = Place { file: file.clone(), line, function: name.clone() };
        let detail = format!("{limit} traces");
        let stop = Break { reason: Reason::RecompileLimit, detail, stack: vec![place] };
        let warned = {
            let mut state = lock(&own.state);
            state.reason = Some(stop.to_string());
            std::mem::replace(&mut state.warned, true)
        };
        if warned {
            return Ok(());
        }
        if Log::GraphBreaks.is_on() {
            Log::GraphBreaks.emit(py, &break_report(this, &stop, "runs natively:"));
        }
        let last = failures.first().and_then(|(entry, failure)| {
            entry.explain(py, failure).facts.into_iter().next().map(|(guard, _)| guard)
        });
        let warnings = modules::import(py, "stator._warnings")?;
        warnings
            .call_method1("recompile_limit", (name, file, line, limit, last.unwrap_or_default()))?;
        Ok(())
    }
}

/// Ends a recording when dropped.
struct Ended<'a>(&'a Compiled);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Makes a compiled function known to [`reset_all`].
fn register(this: &Bound<'_, Compiled>) -> PyResult<()> {
    let reference = PyWeakrefReference::new(this)?.unbind();
    let py = this.py();
    let mut all = lock(&ALL);
    if all.len() == all.capacity() {
        // Before the list grows: what has died makes room.
        all.retain(|known| known.bind(py).upgrade().is_some());
        let room = all.len() + 16;
        all.reserve(room);
    }
    all.push(reference);
    Ok(())
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

/// The function behind a compiled one that is called as a part of another one's trace.
fn unwrap<'py>(object: Borrowed<'_, 'py>) -> Option<Bound<'py, PyFunction>> {
    let compiled = object.cast::<Compiled>().ok()?;
    compiled.get().was_part.store(true, Ordering::Relaxed);
    Some(compiled.get().function.bind(object.py()).clone())
}
