//! Code of other backends: asked for, taken over, and compared with the replay where it was made beside the program.
//!
//! A backend that compiles for long does so in a thread of its own (`python/stator/_background.py`), and the replay
//! serves meanwhile. What it has made is taken over by a call, before that call has done anything, and is compared once:
//! replay and code run on the call's inputs, where running a graph twice is nothing that anybody could tell.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyWeakrefMethods};
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_faults::{self as faults, Stage};
use stator_graph::print::stack_trace;
use stator_graph::{Graph, Locate};

use super::parts::borrowed;
use super::replaying::{checked_outputs, run_code};
use super::taken_back::Ended;
use super::{Entry, Replay};
use crate::clock::{self, Span, Start};
use crate::codes::{Backend, Code, Codes, Fit, GivenNames, InputNames, Search, Trust};
use crate::config;
use crate::declined::Declined;
use crate::jobs::{Job, Stand};
use crate::locate::{Places, Remembered, text};
use crate::looks::Looks;
use crate::pace::{Pace, Turn};
use crate::raises::NodeCall;
use crate::replay::export::Modules;
use crate::replay::{self, Care, Early, Outputs};
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

/// A graph that a backend is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    /// An entry's.
    Whole,
    /// A part of that.
    Part(u32),
}

/// A run of the graph that is timed.
pub(super) struct Timing {
    code: Arc<Code>,
    span: Span,
    began: Start,
}

impl Entry {
    /// What the backend makes of a graph for inputs like these; `None`: the graph is replayed, as they aren't for
    /// backends, or there is no code yet. Where it may only ask, nothing is compiled, taken over or compared in this call.
    pub(super) fn code<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        unit: Unit,
        inputs: &[Borrowed<'_, 'py>],
        care: Care,
    ) -> Result<Option<Arc<Code>>, Ended<'py>> {
        let has_time = care == Care::All;
        let codes = self.codes_of(unit);
        let may_write = self.may_write(py, unit);
        let sharing = if may_write { codes.sharing(inputs) } else { Some(Sharing::ignored()) };
        let Some(sharing) = sharing else { return Ok(None) };
        if codes.is_pending() && has_time {
            self.take_over(py, backend, unit, inputs)?;
        }
        match codes.find(&sharing, inputs) {
            Search::Found(code) if code.trust() == Trust::Trusted => return Ok(Some(code)),
            Search::Found(_) if !has_time => return Ok(None),
            Search::Found(code) => {
                let is_trusted = self.try_out(py, backend, unit, &code, inputs)?;
                return Ok(is_trusted.then_some(code));
            }
            Search::Enough => return Ok(None),
            Search::Missing if codes.is_pending() => return Ok(None),
            Search::Missing => {}
        }
        faults::at(Stage::Export)?;
        let is_waited_for = backend.is_waited_for(py)?;
        let is_beside = !is_waited_for && !backend.takes_parts;
        if !is_beside && !has_time {
            return Ok(None);
        }
        let varies = self.varies(py, backend, unit)?;
        let mut graph = self.graph_of(unit);
        if varies {
            // The code says of itself what it is for.
            graph.to_mut().forget_symbolic_sizes();
        }
        let description = self.describe(py, &graph)?;
        let example = PyList::new(py, inputs)?;
        // What is compiled beside the program may say what it has assumed of them.
        let says_sizes = varies && is_beside && {
            let said = backend.ask(py, "says_sizes", (&description, &example));
            said.and_then(|said| said.extract()).map_err(|error| as_raised(py, error))?
        };
        let is_guarded = match unit {
            Unit::Whole => true,
            Unit::Part(_) => self.has_varying_sizes() && !backend.takes_parts && !varies,
        };
        let looks = (!is_guarded).then(|| Arc::new(Looks::of(inputs, !says_sizes)));
        let fit = Fit { sharing, looks };
        if is_beside {
            let is_first = matches!(unit, Unit::Whole) && self.served.load(Relaxed) < 2;
            let is_new = is_first || !has_time;
            let told = backend.said().is_some();
            let asked = (&description, &example, is_new, may_write, told, says_sizes);
            let begun = backend.ask(py, "beside", asked);
            let begun = begun.map_err(|error| as_raised(py, error))?;
            if let Ok(job) = begun.cast::<Job>() {
                codes.wait_for(job.clone().unbind(), fit);
                if job.get().stand() == Stand::Ended && has_time {
                    // It was refused.
                    self.take_over(py, backend, unit, inputs)?;
                }
                return Ok(None);
            }
            let Ok(why) = begun.cast::<PyString>() else {
                codes.cancel();
                return Ok(None);
            };
            codes.say_waits(text(why.as_any().as_borrowed()));
            if is_new {
                return Ok(None);
            }
        }
        let asked = (description, example, self.failures(unit));
        let made = backend.ask(py, "__call__", asked);
        let made = made.map_err(|error| as_raised(py, error))?;
        let trust = backend.trust(is_waited_for || backend.takes_parts);
        let Some(code) = self.read(py, &made, unit, fit, inputs, trust)? else { return Ok(None) };
        let code = codes.add(code, inputs);
        let is_trusted =
            code.trust() == Trust::Trusted || self.try_out(py, backend, unit, &code, inputs)?;
        Ok(is_trusted.then_some(code))
    }

    fn codes_of(&self, unit: Unit) -> &Codes {
        match unit {
            Unit::Whole => &self.codes,
            Unit::Part(number) => &self.parts.part(number).codes,
        }
    }

    /// Whether a graph may write to its inputs.
    fn may_write(&self, py: Python<'_>, unit: Unit) -> bool {
        match unit {
            Unit::Whole => self.undo(py).may_write,
            Unit::Part(number) => self.parts.part(number).may_write,
        }
    }

    fn graph_of(&self, unit: Unit) -> Cow<'_, Graph> {
        match unit {
            Unit::Whole => Cow::Borrowed(self.readable()),
            Unit::Part(number) => Cow::Owned(self.parts.graph(self.readable(), number)),
        }
    }

    /// How many operations a graph has, and where the first one stands, as in a traceback.
    fn extent(&self, py: Python<'_>, unit: Unit) -> (usize, Option<String>) {
        match unit {
            Unit::Whole => (self.graph_nodes(), self.beginning(py, self.readable())),
            Unit::Part(number) => self.parts.part(number).extent.clone(),
        }
    }

    /// As [`Entry::extent`], of a part's graph.
    pub(super) fn extent_of(graph: &Graph, places: &dyn Locate) -> (usize, Option<String>) {
        (graph.shown_nodes().count(), beginning(graph, places))
    }

    /// Whether sizes vary of what a part is given, and the backend is one of PyTorch's: those take sizes for constants
    /// that nobody says of that they vary.
    fn varies(&self, py: Python<'_>, backend: &Backend, unit: Unit) -> PyResult<bool> {
        let is_part = matches!(unit, Unit::Part(_));
        if !is_part || backend.takes_parts || !self.has_varying_sizes() {
            return Ok(false);
        }
        backend.callable.bind(py).getattr("is_torch")?.extract()
    }

    /// What `stator._fx.graphs` makes a module of; the graph is the trace's, or a part of that.
    pub(super) fn describe<'py>(
        &self,
        py: Python<'py>,
        graph: &Graph,
    ) -> PyResult<Bound<'py, PyList>> {
        let reference = modules::import(py, "stator._fx.graphs")?.getattr("Reference")?;
        let places = Remembered::new(Places { py, codes: self.traced.callers.codes() });
        let _deferred = Deferred::new(py);
        let objects = &self.traced.graph_objects;
        let sources = &self.traced.sources;
        let calls =
            self.traced.module_calls.iter().map(|call| {
                (call.stack, sources.print(call.source), call.class.bind(py).upgrade())
            });
        let modules = Modules::of(py, calls)?;
        replay::export::describe(py, graph, objects, &places, &modules, &reference)
    }

    /// The code that a backend has returned; `None`: it has failed, and has said how.
    fn read<'py>(
        &self,
        py: Python<'py>,
        made: &Object<'py>,
        unit: Unit,
        fit: Fit,
        inputs: &[Borrowed<'_, 'py>],
        trust: Trust,
    ) -> Result<Option<Code>, Ended<'py>> {
        if let Ok(why) = made.cast::<PyString>() {
            self.fail(unit, text(why.as_any().as_borrowed()));
            return Ok(None);
        }
        if let Ok(declined) = made.cast::<Declined>() {
            self.codes_of(unit).decline(declined.get());
            return Ok(None);
        }
        let code = match unit {
            Unit::Whole => Code::new(made, fit, inputs, &InputNames(&self.traced), trust)?,
            Unit::Part(_) => Code::new(made, fit, inputs, &GivenNames, trust)?,
        };
        code.log(py);
        Ok(Some(code))
    }

    /// The backend has failed.
    fn fail(&self, unit: Unit, why: String) {
        match unit {
            Unit::Whole => self.codes.fail(Some(why)),
            Unit::Part(number) => self.parts.fail(number, why),
        }
    }

    /// How the backend has failed on other parts of the graph: users know that.
    fn failures(&self, unit: Unit) -> Vec<String> {
        match unit {
            Unit::Whole => Vec::new(),
            Unit::Part(_) => self.parts.failures(),
        }
    }

    /// Takes over what was made beside the program, if that has ended.
    fn take_over<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        unit: Unit,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<(), Ended<'py>> {
        let codes = self.codes_of(unit);
        let Some((made, mut fit)) = codes.take_ended() else { return Ok(()) };
        // What the backend has raised is told of here, where the program is.
        let example = PyList::new(py, inputs)?;
        let asked = (made, example, backend.said().is_some(), self.failures(unit));
        let settled = backend.ask(py, "settle", asked);
        let (made, waited) = settled
            .and_then(|settled| settled.extract::<(Object<'py>, Option<String>)>())
            .map_err(|error| {
                if is_failure(py, &error) {
                    self.fail(unit, error.to_string());
                }
                as_raised(py, error)
            })?;
        if let Some(why) = waited {
            // It was compiled for this call.
            let sharing = if self.may_write(py, unit) { codes.sharing(inputs) } else { None };
            fit.sharing = sharing.unwrap_or_else(Sharing::ignored);
            fit.looks = fit.looks.map(|_| Arc::new(Looks::of(inputs, true)));
            codes.say_waits(why);
        }
        if let Some(code) = self.read(py, &made, unit, fit, inputs, backend.trust(false))? {
            codes.push(code);
        }
        Ok(())
    }

    /// Compares code with the replay, before it is used for the first time. Whether it is used.
    #[cold]
    fn try_out<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        unit: Unit,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<bool, Ended<'py>> {
        let untold = match backend.verifies {
            Some(false) => Some("verify='off' says so"),
            _ => self.incomparable(unit),
        };
        let compared = match untold {
            Some(why) => Compared::Untold(why.into()),
            None => match self.compare(py, backend, unit, code, inputs)? {
                Some(compared) => compared,
                None => return Ok(false),
            },
        };
        let (operations, trace) = self.extent(py, unit);
        let (difference, untold) = match compared {
            Compared::Same(difference) => (Some(difference), None),
            Compared::Untold(why) => (None, Some(why)),
            Compared::Differs(how) => {
                if code.settle(Trust::Differs) {
                    code.say(how.clone());
                    let told = backend.ask(py, "differs", (operations, trace, how));
                    told.map_err(|error| as_raised(py, error))?;
                }
                return Ok(false);
            }
            Compared::Raised(error) => {
                let blamed = self.blame_for(py, backend, unit, error, Some(code));
                return blamed.map(|()| false).map_err(|error| as_raised(py, error));
            }
        };
        if code.settle(Trust::Trusted) {
            let told = (operations, trace, self.served.load(Relaxed), difference, untold);
            let why = backend.ask(py, "swapped", told);
            let why = why.and_then(|why| why.extract::<String>());
            code.say(why.map_err(|error| as_raised(py, error))?);
        }
        // Another thread may have found something else.
        Ok(code.trust() == Trust::Trusted)
    }

    /// Who runs the graph in this call: the code, if that is given back, and whether it is timed.
    pub(super) fn turn<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        code: Arc<Code>,
    ) -> Result<(Option<Arc<Code>>, Option<Timing>), Ended<'py>> {
        if !backend.is_timed || code.pace().is_decided() {
            return Ok((Some(code), None));
        }
        Ok(match code.pace().turn() {
            Turn::Code => (Some(code), None),
            Turn::Replay => (None, None),
            Turn::Timed(span) => {
                let serves = (span == Span::Code).then(|| code.clone());
                (serves, Some(Timing { code, span, began: clock::start() }))
            }
            Turn::Slower(measured) => {
                if code.settle(Trust::Slower) {
                    let (operations, trace) = self.extent(py, Unit::Whole);
                    let told = (operations, trace, measured.to_string());
                    let told = backend.ask(py, "slower", told);
                    told.map_err(|error| as_raised(py, error))?;
                }
                (None, None)
            }
        })
    }

    /// The graph has run to its end, timed. The first time it's looked at whether that tells anything.
    pub(super) fn timed<'py>(
        &self,
        py: Python<'py>,
        timing: &Timing,
        inputs: &[Borrowed<'_, 'py>],
        outputs: &Outputs<'py>,
    ) {
        match PyList::new(py, outputs) {
            Ok(outputs) => {
                take_time(timing.code.pace(), timing.span, timing.began, inputs, outputs.as_any());
            }
            Err(error) => timing.code.pace().decide(format!("not measured: {error}")),
        }
    }

    /// Why a graph isn't run twice to compare; `None`: it is.
    fn incomparable(&self, unit: Unit) -> Option<&'static str> {
        if matches!(unit, Unit::Whole) && !self.traced.exits.is_empty() {
            return Some("it may be left early");
        }
        let graph = self.graph_of(unit);
        let calls = || graph.nodes().filter_map(|(id, _)| NodeCall::of(&graph, id));
        if calls().any(|call| call.name().contains("c10d")) {
            return Some("it takes part in a collective");
        }
        if calls().any(|call| call.is_users()) {
            return Some("it calls code of the program's own");
        }
        if calls().any(|call| call.sets_gradients()) {
            return Some("it puts gradients into its inputs");
        }
        None
    }

    /// Runs the replay and the code, on inputs of which no gradient leads to the call's. `None`: the replay raises,
    /// and so will the function.
    fn compare<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        unit: Unit,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Option<Compared>, Ended<'py>> {
        let _deferred = Deferred::new(py);
        let program = match unit {
            Unit::Whole => self.program(py)?,
            Unit::Part(number) => &self.parts.part(number).program,
        };
        let comparison = modules::import(py, "stator._fx.comparison")?;
        let example = PyList::new(py, inputs)?;
        let may_write = self.may_write(py, unit);
        let (operations, _) = self.extent(py, unit);
        let is_fixed = !self.has_varying_sizes() || code.has_fixed_sizes();
        let trial = comparison.call_method1("Trial", (example, operations, may_write, is_fixed))?;
        if let Some(why) = trial.getattr("untold")?.extract::<Option<String>>()? {
            return Ok(Some(Compared::Untold(why)));
        }
        let outputs = |outputs: Outputs<'py>| PyList::new(py, outputs);
        // Both draw the same random numbers, and so will this call.
        let generators = &self.traced.generators;
        let Some(drawn) = rollback::save(py, generators)? else {
            return Ok(Some(Compared::Untold("a random generator doesn't tell its state".into())));
        };
        let put_back = || -> PyResult<()> {
            trial.call_method0("put_back")?;
            rollback::restore_generators(py, &drawn)
        };

        let own = trial.call_method0("inputs")?.extract::<Vec<Object<'py>>>()?;
        let replayed = program.start().go_on(py, &borrowed(&own));
        put_back()?;
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(early) => {
                if let (Early::Failed(failure), Unit::Whole) = (early, unit) {
                    let (graph, guards) = (&self.traced.graph, &self.traced.guards);
                    rollback::restore_modes(py, graph, guards, Some(failure.node))?;
                }
                return Ok(None);
            }
        };

        let theirs = trial.call_method0("inputs")?.extract::<Vec<Object<'py>>>()?;
        let returned = run_code(py, code, &borrowed(&theirs)).and_then(|returned| {
            checked_outputs(&backend.callable, &self.graph_of(unit), &returned)
        });
        put_back()?;
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
            (None, None) => {
                let laid = trial.call_method1("laid", (code.callable(),))?;
                if !laid.is_none() {
                    code.lay(laid.unbind());
                }
                Compared::Same(difference)
            }
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
        self.blame_for(py, backend, Unit::Whole, error, code)
    }

    /// As [`Entry::blame`], of the code for this graph.
    fn blame_for(
        &self,
        py: Python<'_>,
        backend: &Backend,
        unit: Unit,
        error: PyErr,
        code: Option<&Code>,
    ) -> PyResult<()> {
        if config::is_strict() || !is_failure(py, &error) {
            return Err(error);
        }
        if let Some(code) = code {
            if !code.settle(Trust::Raised) {
                return Ok(());
            }
            code.say(error.to_string());
        }
        let (operations, trace) = self.extent(py, unit);
        backend.ask(py, "code_failed", (error.into_value(py), operations, trace)).map(drop)
    }

    /// Where a graph's first operation stands, as in a traceback.
    fn beginning(&self, py: Python<'_>, graph: &Graph) -> Option<String> {
        beginning(graph, &Places { py, codes: self.traced.callers.codes() })
    }
}

fn beginning(graph: &Graph, places: &dyn Locate) -> Option<String> {
    let stacks = graph.shown_nodes().filter_map(|id| graph.node(id).stack);
    let mut traces = stacks.map(|stack| stack_trace(graph.stacks(), stack, places));
    traces.find(|trace| !trace.is_empty())
}

/// A graph has run, timed. The first time it's looked at whether that tells anything.
pub(super) fn take_time(
    pace: &Pace,
    span: Span,
    began: Start,
    inputs: &[Borrowed<'_, '_>],
    outputs: &Object<'_>,
) {
    if !pace.add(span, began.took(span)) {
        return;
    }
    let untimed = || -> PyResult<Option<String>> {
        let comparison = modules::import(outputs.py(), "stator._fx.comparison")?;
        let inputs = PyList::new(outputs.py(), inputs)?;
        comparison.call_method1("untimed", (inputs, outputs))?.extract()
    };
    // An error there is nothing that the call has to do with.
    match untimed() {
        Ok(None) => {}
        Ok(Some(why)) => pace.decide(format!("not measured, because {why}")),
        Err(error) => pace.decide(format!("not measured: {error}")),
    }
}

/// Whether an error speaks against the code that raised it: want of memory doesn't.
fn is_failure(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
        && !error.is_instance_of::<PyMemoryError>(py)
        && error.get_type(py).name().is_ok_and(|name| name != "OutOfMemoryError")
}

/// An error that a function of `stator._backends` has raised: what the backend raised is the user's to see.
pub(super) fn as_raised<'py>(py: Python<'py>, error: PyErr) -> Ended<'py> {
    let is_own = error.get_type(py).name().is_ok_and(|name| name == "InternalError");
    if is_own { Ended::Own(error) } else { Replay::Failed(error).into() }
}
