//! What a backend has made of an entry's graph: code for inputs that share memory in some way, and that
//! hold numbers as it assumed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use crate::assumptions::{Assumptions, Names};
use crate::lock;
use crate::logs::Log;
use crate::sharing::{Apart, Sharing};
use crate::symbolic::Part;
use crate::trace::Traced;

/// What runs the graphs of a compiled function, other than their replay.
pub struct Backend {
    /// What is asked for code.
    pub callable: Py<PyAny>,
    /// At which of the calls that an entry serves; the recorded one is the first.
    pub at: u32,
}

/// How often a backend may compile one graph. It has fixed what varies, so the graph is run as it is.
const MOST: usize = 16;

/// The code that there is so far, the one that served last first.
#[derive(Default)]
pub struct Codes {
    all: Mutex<Vec<Arc<Code>>>,
    apart: Apart,
    /// Whether the backend has failed: it isn't asked again.
    has_failed: AtomicBool,
}

/// What a backend made of a graph.
pub struct Code {
    callable: Py<PyAny>,
    backend: String,
    sharing: Sharing,
    assumptions: Assumptions,
}

/// What a search came to.
pub enum Search {
    /// Code that serves the inputs.
    Found(Py<PyAny>),
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
    pub fn find(&self, py: Python<'_>, sharing: &Sharing, inputs: &[Borrowed<'_, '_>]) -> Search {
        let mut all = lock(&self.all);
        let serves = |code: &Arc<Code>| code.serves(sharing, inputs);
        match all.iter().position(serves) {
            Some(at) => {
                all[..=at].rotate_right(1);
                Search::Found(all[0].callable.clone_ref(py))
            }
            None if all.len() >= MOST || self.has_failed.load(Relaxed) => Search::Enough,
            None => Search::Missing,
        }
    }

    /// The backend has failed on the graph, which is replayed from now on where there is no code yet.
    pub fn fail(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// Keeps code, unless another thread was quicker; what to call for the inputs that it is for.
    pub fn add(&self, py: Python<'_>, code: Code, inputs: &[Borrowed<'_, '_>]) -> Py<PyAny> {
        if let Search::Found(callable) = self.find(py, &code.sharing, inputs) {
            return callable;
        }
        let callable = code.callable.clone_ref(py);
        lock(&self.all).push(Arc::new(code));
        callable
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
        all.iter().flat_map(|all| all.iter()).try_for_each(|code| visit.call(&code.callable))
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
        sharing: Sharing,
        inputs: &[Borrowed<'_, '_>],
        traced: &Traced,
    ) -> PyResult<Self> {
        let class = modules::import(made.py(), "stator._fx.graphs")?.getattr("Code")?;
        if !made.get_type().is(&class) {
            let (callable, backend) = (made.clone().unbind(), String::new());
            return Ok(Self { callable, backend, sharing, assumptions: Assumptions::default() });
        }
        let trees = made.getattr("assumptions")?;
        Ok(Self {
            callable: made.getattr("run")?.unbind(),
            backend: made.getattr("backend")?.extract()?,
            sharing,
            assumptions: Assumptions::read(&trees, inputs, &InputNames(traced))?,
        })
    }

    fn serves(&self, sharing: &Sharing, inputs: &[Borrowed<'_, '_>]) -> bool {
        self.sharing == *sharing && self.assumptions.hold(inputs)
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
struct InputNames<'a>(&'a Traced);

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
