//! What a backend has made of an entry's graph: code for inputs that share memory in some way, and that
//! hold numbers as it assumed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use pyo3::call::PyCallArgs;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;

use crate::assumptions::{Assumptions, Names};
use crate::config::{self, When};
use crate::declined::Declined;
use crate::jobs::{Job, Stand};
use crate::lock;
use crate::logs::Log;
use crate::looks::Looks;
use crate::pace::Pace;
use crate::replay::Compiler;
use crate::sharing::{Apart, Sharing};
use crate::symbolic::Part;
use crate::trace::Traced;

/// What runs the graphs of a compiled function, other than their replay.
pub struct Backend {
    /// What is asked for code: a `stator._backends.Prepared`.
    pub callable: Py<PyAny>,
    /// When `stator.compile` was told to ask; `None`: the setting of the process says so, or what the backend is like.
    pub told: Option<When>,
    /// Whether it compiles for long.
    pub is_slow: bool,
    /// Whether its code is compared with the replay first; `None`: code that was made beside the program is.
    pub verifies: Option<bool>,
    /// Whether its code is used only if it is quicker than the replay.
    pub is_timed: bool,
    /// Whether it is given parts of graphs alone: operations on tensors that give tensors.
    pub takes_parts: bool,
    /// Whose compilers it's made of: what these refuse stays with the replay.
    pub compiler: Compiler,
}

impl Backend {
    /// Asks the `Prepared`. Signals wait meanwhile; where the backend itself is at work, which may take long, the
    /// program's handlers run.
    ///
    /// # Errors
    /// What the call is to end with.
    pub fn ask<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: impl PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _deferred = Deferred::new(py);
        self.callable.bind(py).call_method1(method, args)
    }

    /// When the program has said that it is asked.
    pub fn said(&self) -> Option<When> {
        self.told.or_else(config::when)
    }

    /// When it is asked for code.
    pub fn when(&self) -> When {
        let usual = if self.is_slow { When::Background } else { When::Call(2) };
        self.said().unwrap_or(usual)
    }

    /// Whether a call waits for the code that it asks for. At which call code is swapped in that is made beside the
    /// program differs from run to run: nobody who wants the same results from each run gets that unasked.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn is_waited_for(&self, py: Python<'_>) -> PyResult<bool> {
        if self.when() != When::Background {
            return Ok(true);
        }
        if self.said().is_some() {
            return Ok(false);
        }
        modules::import(py, "torch")?
            .call_method0("are_deterministic_algorithms_enabled")?
            .extract()
    }

    /// How far code is trusted that it has just made.
    pub fn trust(&self, is_waited_for: bool) -> Trust {
        let is_tried_out = !is_waited_for || self.verifies == Some(true);
        if is_tried_out { Trust::Untried } else { Trust::Trusted }
    }

    /// Whether it is asked right behind the recording of a graph.
    pub fn is_asked_at_once(&self) -> bool {
        matches!(self.when(), When::Background | When::Call(1))
    }
}

/// As `stator.stats` shows a graph that no backend was asked for.
pub const REPLAYED: &str = "replay";

/// How often a backend may compile one graph. It has fixed what varies, so the graph is run as it is.
const MOST: usize = 16;

/// The code that there is so far, the one that served last first.
#[derive(Default)]
pub struct Codes {
    all: Mutex<Vec<Arc<Code>>>,
    apart: Apart,
    /// Why the backend isn't asked again: in a word, and what is known of it.
    given_up: OnceLock<(&'static str, Option<String>)>,
    /// What is compiled beside the program: one thing at a time.
    pending: Mutex<Option<Pending>>,
    /// Whether there is such.
    is_pending: AtomicBool,
    /// Why a call waits for code that isn't compiled beside the program, though it would be.
    waits: OnceLock<String>,
}

/// A job, and what the inputs are like that it is for.
struct Pending {
    job: Py<Job>,
    fit: Fit,
}

/// What inputs are like that code is for.
#[derive(Clone, Debug)]
pub struct Fit {
    /// How they share memory.
    pub sharing: Sharing,
    /// What they look like, where no guard says so.
    pub looks: Option<Arc<Looks>>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.job.get().cancel();
    }
}

/// Whether code is used. What comes later in the list is said for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Trust {
    /// It is to be compared with the replay first.
    Untried,
    /// It is.
    Trusted,
    /// It isn't, because it has said that it serves none of these inputs.
    Declined,
    /// It isn't, because the replay is as quick.
    Slower,
    /// It isn't, because its results differ from those of the replay.
    Differs,
    /// It isn't, because it has raised what the function doesn't raise.
    Raised,
}

impl Trust {
    /// As `stator.stats` shows code that is used.
    pub const COMPILED: &'static str = Self::Trusted.name();
    /// As it shows that a backend has failed.
    pub const FAILED: &'static str = Self::Raised.name();

    const ALL: [Self; 6] =
        [Self::Untried, Self::Trusted, Self::Declined, Self::Slower, Self::Differs, Self::Raised];

    /// Which of several pieces of code `stator.stats` speaks of: that with the smallest.
    const fn rank(self) -> u8 {
        match self {
            Self::Trusted => 0,
            Self::Untried => 1,
            other => other as u8,
        }
    }

    /// As `stator.stats` shows it.
    const fn name(self) -> &'static str {
        match self {
            Self::Untried => "made",
            Self::Trusted => "compiled",
            Self::Declined => REPLAYED,
            Self::Slower => "slower",
            Self::Differs => "differs",
            Self::Raised => "failed",
        }
    }
}

/// What a backend made of a graph.
pub struct Code {
    callable: Py<PyAny>,
    /// What is called instead: the same, with results that lie in memory as the replay's do.
    laid: OnceLock<Py<PyAny>>,
    backend: String,
    sharing: Sharing,
    assumptions: Assumptions,
    /// What its inputs have to look like, where no guard says so.
    looks: Option<Arc<Looks>>,
    trust: AtomicU8,
    /// Why it is or isn't used, as far as results go.
    checked: Mutex<Option<String>>,
    /// Whether it has left its last call to the replay.
    has_declined: AtomicBool,
    /// Whether it is quicker than the replay.
    pace: Pace,
}

/// What a search came to.
pub enum Search {
    /// Code that serves the inputs.
    Found(Arc<Code>),
    /// None does.
    Missing,
    /// None does, and there is to be no more.
    Enough,
}

impl Codes {
    /// How the inputs of a graph that writes share memory; see [`Sharing::of`].
    pub fn sharing(&self, inputs: &[Borrowed<'_, '_>]) -> Option<Sharing> {
        Sharing::of(inputs, &self.apart)
    }

    /// The code for inputs like these.
    pub fn find(&self, sharing: &Sharing, inputs: &[Borrowed<'_, '_>]) -> Search {
        let mut all = lock(&self.all);
        let serves = |code: &Arc<Code>| code.serves(sharing, inputs);
        match all.iter().position(serves) {
            Some(at) => {
                all[..=at].rotate_right(1);
                if all[0].is_refused() { Search::Enough } else { Search::Found(all[0].clone()) }
            }
            None if all.len() >= MOST || self.given_up.get().is_some() => Search::Enough,
            None => Search::Missing,
        }
    }

    /// The backend has failed on the graph, which is replayed from now on where there is no code yet.
    pub fn fail(&self, why: Option<String>) {
        let _ = self.given_up.set((Trust::Raised.name(), why));
    }

    /// No thread compiles any more: the process ends.
    pub fn cancel(&self) {
        let _ = self.given_up.set((Stand::Cancelled.name(), None));
    }

    /// The backend has nothing for this graph, which is replayed from now on.
    pub fn decline(&self, why: &Declined) {
        let _ = self.given_up.set((REPLAYED, Some(why.why.clone())));
    }

    /// A call waits for code, or has waited, because it can't be compiled beside the program.
    pub fn say_waits(&self, why: String) {
        let _ = self.waits.set(why);
    }

    /// Whether that is known.
    pub fn is_waited_for(&self) -> bool {
        self.waits.get().is_some()
    }

    /// Keeps code, unless another thread was quicker; what to call for the inputs that it is for.
    pub fn add(&self, code: Code, inputs: &[Borrowed<'_, '_>]) -> Arc<Code> {
        if let Search::Found(known) = self.find(&code.sharing, inputs) {
            return known;
        }
        self.push(code)
    }

    /// Keeps code that was made for inputs of another call than this.
    pub fn push(&self, code: Code) -> Arc<Code> {
        let code = Arc::new(code);
        lock(&self.all).push(code.clone());
        code
    }

    /// Keeps what is compiled beside the program from now on, unless another thread was quicker.
    pub fn wait_for(&self, job: Py<Job>, fit: Fit) {
        let mut pending = lock(&self.pending);
        let refused = if pending.is_none() {
            *pending = Some(Pending { job, fit });
            self.is_pending.store(true, Relaxed);
            None
        } else {
            Some(Pending { job, fit })
        };
        drop(pending);
        drop(refused);
    }

    /// Whether something is compiled beside the program, or waits to be taken over.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.is_pending.load(Relaxed)
    }

    /// Whether a call may take over what was compiled beside the program.
    pub fn has_ended(&self) -> bool {
        let ended = |pending: &Pending| pending.job.get().stand().is_over();
        self.is_pending() && lock(&self.pending).as_ref().is_some_and(ended)
    }

    /// What was compiled beside the program, if that has ended.
    pub fn take_ended(&self) -> Option<(Py<PyAny>, Fit)> {
        let mut pending = lock(&self.pending);
        if !pending.as_ref()?.job.get().stand().is_over() {
            return None;
        }
        let ended = pending.take()?;
        self.is_pending.store(false, Relaxed);
        drop(pending);
        let made = ended.job.get().take()?;
        Some((made, ended.fit.clone()))
    }

    /// What is compiled beside the program isn't wanted any more.
    pub fn drop_pending(&self) {
        let dropped = lock(&self.pending).take();
        self.is_pending.store(false, Relaxed);
        drop(dropped);
    }

    /// What is compiled beside the program.
    pub fn job(&self, py: Python<'_>) -> Option<Py<Job>> {
        lock(&self.pending).as_ref().map(|pending| pending.job.clone_ref(py))
    }

    /// What runs the graph, in a word, and why, if there is something to say.
    pub fn tier(&self) -> (&'static str, Option<String>) {
        let best = lock(&self.all).iter().min_by_key(|code| code.trust().rank()).cloned();
        if let Some(code) = best.as_ref().filter(|code| code.has_declined.load(Relaxed)) {
            return (REPLAYED, code.why());
        }
        let said = best.map(|code| (code.trust(), code.why()));
        if let Some((Trust::Trusted, why)) = said {
            return (Trust::Trusted.name(), self.told_of_waiting(why));
        }
        if let Some(pending) = lock(&self.pending).as_ref() {
            return (pending.job.get().stand().name(), None);
        }
        if let Some((trust, why)) = said {
            return (trust.name(), why);
        }
        if let Some(given_up) = self.given_up.get() {
            return given_up.clone();
        }
        let waits = |why| format!("its next call waits for code, because {why}");
        (REPLAYED, self.waits.get().map(waits))
    }

    /// What is known of code, and that a call has waited for it.
    fn told_of_waiting(&self, why: Option<String>) -> Option<String> {
        let waited = self.waits.get().map(|why| format!("a call has waited for it, because {why}"));
        match (waited, why) {
            (Some(waited), Some(why)) => Some(format!("{waited}; {why}")),
            (waited, why) => waited.or(why),
        }
    }

    /// What the code assumes, printed; each line names the backend.
    pub fn guards(&self) -> Vec<String> {
        let all = lock(&self.all);
        let print = |code: &Arc<Code>| {
            let backend = code.backend.clone();
            let print = move |text: &String| format!("{text}  # {backend}");
            code.assumptions.texts.iter().map(print).collect::<Vec<_>>()
        };
        all.iter().flat_map(print).collect()
    }

    /// Shows the garbage collector the callables.
    ///
    /// # Errors
    /// What `visit` says.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock is no collection.
        let all = self.all.try_lock();
        all.iter().flat_map(|all| all.iter()).try_for_each(|code| {
            visit.call(code.laid.get())?;
            visit.call(&code.callable)
        })?;
        match self.pending.try_lock().as_deref() {
            Ok(Some(pending)) => visit.call(&pending.job),
            _ => Ok(()),
        }
    }
}

impl Code {
    /// What a backend returned for these inputs: a callable, or a `stator._fx.graphs.Code` that says what it
    /// assumes.
    ///
    /// # Errors
    /// If that isn't well-formed.
    pub fn new(
        made: &Bound<'_, PyAny>,
        fit: Fit,
        inputs: &[Borrowed<'_, '_>],
        names: &dyn Names,
        trust: Trust,
    ) -> PyResult<Self> {
        let Fit { sharing, looks } = fit;
        let trust = AtomicU8::new(trust as u8);
        let (checked, pace, laid) = (Mutex::default(), Pace::default(), OnceLock::new());
        let has_declined = AtomicBool::new(false);
        let class = modules::import(made.py(), "stator._fx.graphs")?.getattr("Code")?;
        if !made.get_type().is(&class) {
            let (callable, backend) = (made.clone().unbind(), String::new());
            let assumptions = Assumptions::default();
            return Ok(Self {
                callable,
                laid,
                backend,
                sharing,
                assumptions,
                looks,
                trust,
                checked,
                has_declined,
                pace,
            });
        }
        let trees = made.getattr("assumptions")?;
        // Those that it was made for aren't those of the call that takes it over.
        let examples = made.getattr("examples")?.extract::<Option<Vec<Object<'_>>>>()?;
        let examples = examples.as_ref().map(|all| all.iter().map(|one| one.as_borrowed()));
        let examples = examples.map(Iterator::collect::<Vec<_>>);
        let inputs = examples.as_deref().unwrap_or(inputs);
        Ok(Self {
            callable: made.getattr("run")?.unbind(),
            laid,
            backend: made.getattr("backend")?.extract()?,
            sharing,
            assumptions: Assumptions::read(&trees, inputs, names)?,
            looks,
            trust,
            checked,
            has_declined,
            pace,
        })
    }

    /// What runs it.
    pub fn callable(&self) -> &Py<PyAny> {
        self.laid.get().unwrap_or(&self.callable)
    }

    /// What is called instead from now on: the same, with results that lie in memory as the replay's do.
    pub fn lay(&self, laid: Py<PyAny>) {
        // Another thread may have found the same.
        let _ = self.laid.set(laid);
    }

    /// Whether it is used.
    pub fn trust(&self) -> Trust {
        Trust::ALL[usize::from(self.trust.load(Relaxed))]
    }

    /// It is used from now on, or isn't. False: another thread has said so already, or worse.
    pub fn settle(&self, trust: Trust) -> bool {
        self.trust.fetch_max(trust as u8, Relaxed) < trust as u8
    }

    /// Says why it is or isn't used.
    pub fn say(&self, why: String) {
        *lock(&self.checked) = Some(why);
    }

    /// It has left a call to the replay.
    pub fn decline(&self, declined: &Declined) {
        self.say(declined.why.clone());
        self.has_declined.store(true, Relaxed);
        if declined.is_final {
            self.settle(Trust::Declined);
        }
    }

    /// It has served a call.
    #[inline]
    pub fn serve(&self) {
        if self.has_declined.load(Relaxed) {
            self.has_declined.store(false, Relaxed);
            *lock(&self.checked) = None;
        }
    }

    /// Whether it is for the sizes alone that it was made for.
    pub fn has_fixed_sizes(&self) -> bool {
        self.looks.as_ref().is_some_and(|looks| looks.are_fixed())
    }

    /// Whether it is quicker than the replay.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Why it is or isn't used.
    fn why(&self) -> Option<String> {
        let checked = lock(&self.checked).clone();
        let pace = match self.trust() {
            Trust::Differs | Trust::Raised => None,
            _ => self.pace.why(),
        };
        match (checked, pace) {
            (Some(checked), Some(pace)) => Some(format!("{checked}; {pace}")),
            (checked, pace) => checked.or(pace.map(String::from)),
        }
    }

    fn is_refused(&self) -> bool {
        !matches!(self.trust(), Trust::Untried | Trust::Trusted)
    }

    fn serves(&self, sharing: &Sharing, inputs: &[Borrowed<'_, '_>]) -> bool {
        self.sharing == *sharing
            && self.looks.as_ref().is_none_or(|looks| looks.hold(inputs))
            && self.assumptions.hold(inputs)
    }

    /// Writes down what was assumed.
    pub fn log(&self, py: Python<'_>) {
        let backend = &self.backend;
        if Log::Guards.is_on() && !self.assumptions.texts.is_empty() {
            let print = |text: &String| format!("{text}  # {backend}");
            let lines: Vec<String> = self.assumptions.texts.iter().map(print).collect();
            Log::Guards.emit(py, &lines.join("\n"));
        }
        if Log::Dynamic.is_on() {
            for text in &self.assumptions.short {
                Log::Dynamic.emit(py, &format!("eval {text} [guard added] by {backend}"));
            }
        }
    }
}

/// The names of the numbers in the inputs of a trace's graph.
pub struct InputNames<'a>(pub &'a Traced);

/// The names of the numbers in what a part of a graph is given. The trace's guards say nothing of these.
pub struct GivenNames;

impl Names for GivenNames {
    fn source(&self, input: usize, part: Part) -> String {
        part.print(format!("given[{input}]"))
    }

    fn short(&self, source: &str) -> String {
        source.to_string()
    }

    fn is_known(&self, _: &str) -> bool {
        false
    }
}

impl Names for InputNames<'_> {
    fn source(&self, input: usize, part: Part) -> String {
        let traced = self.0;
        let sizes = traced.symbolic.as_ref().map_or(&[][..], |symbolic| &symbolic.inputs);
        let own = sizes.iter().find(|(position, _)| *position == input);
        if let (Some((_, slot)), Some(symbolic)) = (own, &traced.symbolic) {
            return symbolic.names[*slot].clone();
        }
        let before = sizes.iter().filter(|(position, _)| *position < input).count();
        let source = part.print(traced.sources.print(traced.inputs[input - before]));
        let same = |other: &&String| self.is_fact(&format!("{source} == {other}"));
        let mut all = traced.symbolic.iter().flat_map(|symbolic| symbolic.names.iter());
        all.find(same).cloned().unwrap_or(source)
    }

    fn short(&self, source: &str) -> String {
        let symbolic = self.0.symbolic.as_ref();
        let at = symbolic.and_then(|all| all.names.iter().position(|name| name == source));
        match (at, symbolic) {
            (Some(at), Some(symbolic)) => symbolic.short[at].clone(),
            _ => source.to_string(),
        }
    }

    fn is_known(&self, text: &str) -> bool {
        let turned = || text.split_once(" == ").map(|(left, right)| format!("{right} == {left}"));
        self.is_fact(text) || turned().is_some_and(|turned| self.is_fact(&turned))
    }
}

impl InputNames<'_> {
    fn is_fact(&self, text: &str) -> bool {
        let mut facts = self.0.symbolic.iter().flat_map(|symbolic| symbolic.facts.iter());
        facts.any(|fact| fact.text == text)
    }
}
