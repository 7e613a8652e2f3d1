//! Code of other backends: asked for, taken over, and compared with the replay where it was made beside the program.
//!
//! A backend that compiles for long does so in a thread of its own (`python/stator/_background.py`), and the replay
//! serves meanwhile. What it has made is taken over by a call, before that call has done anything, and is compared once:
//! replay and code run on the call's inputs, where running a graph twice is nothing that anybody could tell.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyWeakrefMethods};
use smallvec::SmallVec;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_faults::{self as faults, Stage};
use stator_graph::Graph;
use stator_graph::print::stack_trace;

use super::replaying::{checked_outputs, run_code};
use super::taken_back::Ended;
use super::{Entry, Replay};
use crate::codes::{Backend, Code, Search, Trust};
use crate::config;
use crate::jobs::{Job, Stand};
use crate::locate::Places;
use crate::raises::NodeCall;
use crate::replay::export::Modules;
use crate::replay::{self, Early, Outputs};
use crate::rollback;
use crate::sharing::Sharing;

/// What comparing code with the replay came to.
enum Compared {
    /// They agree; so large is the largest difference, relative to the largest value.
    Same(f64),
    /// They don't, and how.
    Differs(String),
    /// It couldn't be told, and why.
    Untold(String),
    /// The code has raised this, or returned something else than outputs.
    Raised(PyErr),
}

impl Entry {
    /// What the backend makes of the graph for inputs like these; `None`: the graph is replayed, as they aren't for
    /// backends, or there is no code yet.
    pub(super) fn code<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Option<Arc<Code>>, Ended<'py>> {
        let may_write = self.undo(py).may_write;
        let sharing = if may_write { self.codes.sharing(inputs) } else { Some(Sharing::ignored()) };
        let Some(sharing) = sharing else { return Ok(None) };
        if self.codes.is_pending() {
            self.take_over(py, backend, inputs)?;
        }
        match self.codes.find(&sharing, inputs) {
            Search::Found(code) if code.trust() == Trust::Trusted => return Ok(Some(code)),
            Search::Found(code) => {
                let is_trusted = self.try_out(py, backend, &code, inputs)?;
                return Ok(is_trusted.then_some(code));
            }
            Search::Enough => return Ok(None),
            Search::Missing if self.codes.is_pending() => return Ok(None),
            Search::Missing => {}
        }
        faults::at(Stage::Export)?;
        let description = self.description(py)?;
        let example = PyList::new(py, inputs)?;
        let is_waited_for = backend.is_waited_for(py)?;
        if !is_waited_for {
            let is_new = self.served.load(Relaxed) < 2;
            let asked = (&description, &example, is_new, may_write, backend.said().is_some());
            let begun = backend.callable.bind(py).call_method1("beside", asked);
            let begun = begun.map_err(|error| as_raised(py, error))?;
            if let Ok(job) = begun.cast::<Job>() {
                self.codes.wait_for(job.clone().unbind(), sharing);
                if job.get().stand() == Stand::Ended {
                    // It was refused.
                    self.take_over(py, backend, inputs)?;
                }
                return Ok(None);
            }
            if !begun.is_truthy()? {
                self.codes.cancel();
                return Ok(None);
            }
        }
        let made = backend.callable.bind(py).call1((description, example));
        let made = made.map_err(|error| as_raised(py, error))?;
        let trust = if is_waited_for { Trust::Trusted } else { Trust::Untried };
        let Some(code) = self.keep(py, &made, sharing, inputs, trust)? else { return Ok(None) };
        let is_trusted = is_waited_for || self.try_out(py, backend, &code, inputs)?;
        Ok(is_trusted.then_some(code))
    }

    /// What `stator._fx.graphs` makes a module of.
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let reference = modules::import(py, "stator._fx.graphs")?.getattr("Reference")?;
        let places = Places { py, codes: &self.traced.codes };
        let _deferred = Deferred::new(py);
        let objects = &self.traced.graph_objects;
        let sources = &self.traced.sources;
        let calls =
            self.traced.module_calls.iter().map(|call| {
                (call.stack, sources.print(call.source), call.class.bind(py).upgrade())
            });
        let modules = Modules::of(py, calls)?;
        replay::export::describe(py, self.readable(), objects, &places, &modules, &reference)
    }

    /// Keeps what a backend has returned; `None`: it has failed.
    fn keep<'py>(
        &self,
        py: Python<'py>,
        made: &Object<'py>,
        sharing: Sharing,
        inputs: &[Borrowed<'_, 'py>],
        trust: Trust,
    ) -> Result<Option<Arc<Code>>, Ended<'py>> {
        if made.is_none() {
            self.codes.fail();
            return Ok(None);
        }
        let code = Code::new(made, sharing, inputs, &self.traced, trust)?;
        code.log(py);
        Ok(Some(self.codes.add(code, inputs)))
    }

    /// Takes over what was made beside the program, if that has ended.
    fn take_over<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<(), Ended<'py>> {
        let Some((made, sharing)) = self.codes.take_ended() else { return Ok(()) };
        // What the backend has raised is told of here, where the program is.
        let asked = (made, PyList::new(py, inputs)?, backend.said().is_some());
        let settled = backend.callable.bind(py).call_method1("settle", asked);
        let made = settled.map_err(|error| {
            if is_failure(py, &error) {
                self.codes.fail();
            }
            as_raised(py, error)
        })?;
        self.keep(py, &made, sharing, inputs, Trust::Untried).map(drop)
    }

    /// Compares code with the replay, before it is used for the first time. Whether it is used.
    #[cold]
    fn try_out<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<bool, Ended<'py>> {
        let compared = match self.incomparable() {
            Some(why) => Compared::Untold(why.into()),
            None => {
                let Some(compared) = self.compare(py, backend, code, inputs)? else {
                    return Ok(false);
                };
                compared
            }
        };
        let prepared = backend.callable.bind(py);
        let trace = self.beginning(py);
        let operations = self.graph_nodes();
        let served = self.served.load(Relaxed);
        let (difference, untold) = match compared {
            Compared::Same(difference) => (Some(difference), None),
            Compared::Untold(why) => (None, Some(why)),
            Compared::Differs(how) => {
                if code.settle(Trust::Differs) {
                    let told = prepared.call_method1("differs", (operations, trace, how));
                    told.map_err(|error| as_raised(py, error))?;
                }
                return Ok(false);
            }
            Compared::Raised(error) => {
                let blamed = self.blame(py, backend, error, Some(code));
                return blamed.map(|()| false).map_err(|error| as_raised(py, error));
            }
        };
        if code.settle(Trust::Trusted) {
            let told = (operations, trace, served, difference, untold);
            let told = prepared.call_method1("swapped", told);
            told.map_err(|error| as_raised(py, error))?;
        }
        // Another thread may have found something else.
        Ok(code.trust() == Trust::Trusted)
    }

    /// Why the graph isn't run twice to compare; `None`: it is.
    fn incomparable(&self) -> Option<&'static str> {
        let traced = &self.traced;
        if traced.draws.is_some() || !traced.generators.is_empty() {
            return Some("it draws random numbers");
        }
        if self.undo.get().is_none_or(|undo| undo.may_write) {
            return Some("it writes to its inputs");
        }
        if !traced.exits.is_empty() {
            return Some("it may be left early");
        }
        let calls = || traced.graph.nodes().filter_map(|(id, _)| NodeCall::of(&traced.graph, id));
        if calls().any(|call| call.name().contains("c10d")) {
            return Some("it takes part in a collective");
        }
        if calls().any(|call| call.is_users()) {
            return Some("it calls code of the program's own");
        }
        None
    }

    /// Runs the replay and the code, on inputs of which no gradient leads to the call's. `None`: the replay raises,
    /// and so will the function.
    fn compare<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Option<Compared>, Ended<'py>> {
        let _deferred = Deferred::new(py);
        let program = self.program(py)?;
        let comparison = modules::import(py, "stator._fx.comparison")?;
        let example = PyList::new(py, inputs)?;
        let trial = comparison.call_method1("Trial", (example, self.graph_nodes()))?;
        let outputs = |outputs: Outputs<'py>| PyList::new(py, outputs);

        let own = trial.call_method0("inputs")?.extract::<Vec<Object<'py>>>()?;
        let replayed = program.start().go_on(py, &borrowed(&own));
        trial.call_method0("put_back")?;
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(early) => {
                if let Early::Failed(failure) = early {
                    let (graph, guards) = (&self.traced.graph, &self.traced.guards);
                    rollback::restore_modes(py, graph, guards, Some(failure.node))?;
                }
                return Ok(None);
            }
        };

        let theirs = trial.call_method0("inputs")?.extract::<Vec<Object<'py>>>()?;
        let returned = run_code(py, code, &borrowed(&theirs))
            .and_then(|returned| checked_outputs(&backend.callable, &self.traced.graph, &returned));
        trial.call_method0("put_back")?;
        let returned = match returned {
            Ok(returned) => returned,
            Err(error) if !is_failure(py, &error) => {
                return Ok(Some(Compared::Untold("there was no memory for that".into())));
            }
            Err(error) => return Ok(Some(Compared::Raised(error))),
        };
        let compared =
            trial.call_method1("compare", (outputs(replayed)?, own, outputs(returned)?, theirs))?;
        let (difference, differs, untold) =
            compared.extract::<(f64, Option<String>, Option<String>)>()?;
        Ok(Some(match (differs, untold) {
            (Some(how), _) => Compared::Differs(how),
            (None, Some(why)) => Compared::Untold(why),
            (None, None) => Compared::Same(difference),
        }))
    }

    /// A backend's code has raised an error that the function doesn't raise: it isn't used any more.
    ///
    /// # Errors
    /// The error, where it is no failure of the backend, or under `stator.config.strict`.
    #[cold]
    pub fn blame(
        &self,
        py: Python<'_>,
        backend: &Backend,
        error: PyErr,
        code: Option<&Code>,
    ) -> PyResult<()> {
        if config::is_strict() || !is_failure(py, &error) {
            return Err(error);
        }
        if code.is_some_and(|code| !code.settle(Trust::Raised)) {
            return Ok(());
        }
        let told = (error.into_value(py), self.graph_nodes(), self.beginning(py));
        backend.callable.bind(py).call_method1("code_failed", told).map(drop)
    }

    /// Where the graph's first operation stands, as in a traceback.
    fn beginning(&self, py: Python<'_>) -> Option<String> {
        let places = Places { py, codes: &self.traced.codes };
        let graph: &Graph = self.readable();
        let stacks = graph.shown_nodes().filter_map(|id| graph.node(id).stack);
        let mut traces = stacks.map(|stack| stack_trace(graph.stacks(), stack, &places));
        traces.find(|trace| !trace.is_empty())
    }
}

fn borrowed<'a, 'py>(objects: &'a [Object<'py>]) -> SmallVec<[Borrowed<'a, 'py>; 16]> {
    objects.iter().map(|object| object.as_borrowed()).collect()
}

/// Whether an error speaks against the code that raised it: want of memory doesn't.
fn is_failure(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
        && !error.is_instance_of::<PyMemoryError>(py)
        && error.get_type(py).name().is_ok_and(|name| name != "OutOfMemoryError")
}

/// An error that a function of `stator._backends` has raised: what the backend raised is the user's to see.
fn as_raised<'py>(py: Python<'py>, error: PyErr) -> Ended<'py> {
    let is_own = error.get_type(py).name().is_ok_and(|name| name == "InternalError");
    if is_own { Ended::Own(error) } else { Replay::Failed(error).into() }
}
