//! How an entry is replayed: its graph runs, its results are made, what it left behind is written.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::{PyException, PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyFunction, PySequence, PySequenceMethods, PyTuple};
use smallvec::SmallVec;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::{Asking, Deferred, Thread};
use stator_cpython::vectorcall;
use stator_faults::{self as faults, Stage};
use stator_graph::{Arg, Graph, NodeId, Value};

use super::beside::Unit;
use super::emissions;
use super::parts::{Parts, borrowed};
use super::taken_back::{Before, Done, Ended, Ran};
use super::{Entry, FrameState, Replay, State};
use crate::accelerator;
use crate::check::Resolved;
use crate::codes::{Backend, Code};
use crate::config::When;
use crate::effects;
use crate::emission::Emission;
use crate::frames::stage::Staged;
use crate::frames::tracebacks;
use crate::listeners;
use crate::locate::text;
use crate::locks::Held;
use crate::raises::{LIBRARY, NodeCall};
use crate::recipe::Values;
use crate::replay::{self, Care, Early, Pass, Program};
use crate::rollback;
use crate::trace::Ending;
use crate::undo;

impl Entry {
    /// As [`Entry::replay`], without taking anything back.
    pub(super) fn try_replay<'e, 'py>(
        &'e self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        backend: Option<&Backend>,
        staged: &mut Vec<Staged>,
        done: &mut Done<'e, 'py>,
    ) -> Result<Replay<'py>, Ended<'py>> {
        // What signal handlers raise is nothing that Stator or an operation has raised.
        let deferred = Deferred::new(py);
        faults::at(Stage::Replay)?;
        if self.handles(py) && deferred.is_timed() {
            return Ok(Replay::Restart("a timer runs, and the program may handle what it raises"));
        }
        if self.undo(py).is_too_large {
            return Ok(Replay::Restart("the program may handle what comes behind large writes"));
        }
        if !emissions::may_be_given(py, &self.traced, &self.outside(resolved)) {
            return Ok(Replay::Restart("user code may learn of a warning or log record"));
        }
        if self.traced.prints && !listeners::are_streams_plain(py) {
            return Ok(Replay::Restart("user code may learn of what is printed"));
        }
        let rebuilt = self.outside(resolved);
        let locks = self.traced.locks.iter().map(|at| rebuilt[*at as usize]);
        match Held::take(locks) {
            Some(held) => done.held = held,
            None => return Ok(Replay::Restart("another thread holds a lock")),
        }
        if let Some(draws) = &self.traced.draws {
            done.drawn = draws.look(self.slots(resolved));
            let symbolic = self.traced.symbolic.as_ref();
            let is_checked = symbolic.is_some_and(|it| self.check_symbolic(it, resolved).is_ok());
            if done.drawn.is_none() || !is_checked {
                return Ok(Replay::Restart(DRAWN));
            }
        }
        done.sizes = self.size_inputs(resolved);
        let sizes = done.sizes.clone();
        let inputs = self.graph_inputs(resolved, &sizes);
        let (made, timing, deferred) = match backend.filter(|backend| self.is_due(backend)) {
            None => (None, None, deferred),
            Some(backend) => match self.cut(backend) {
                Some(cut) => {
                    let parts = self.run_parts(py, cut, backend)?;
                    (parts.map(|parts| Run::Parts(parts, backend)), None, deferred)
                }
                None => {
                    // A backend may compile for long.
                    drop(deferred);
                    let (code, timing) =
                        match self.code(py, backend, Unit::Whole, &inputs, Care::All)? {
                            Some(code) => self.turn(py, backend, code)?,
                            None => (None, None),
                        };
                    let run = |code| Run::Backend(code, &backend.callable);
                    (code.map(run), timing, Deferred::new(py))
                }
            },
        };
        // One guard: within another it would know of no signals.
        done.deferred = Some(deferred);
        let run = match made {
            Some(run) => run,
            None => Run::Program(self.program(py)?),
        };
        let ran = self.run(py, run, &inputs, done)?;
        if let Some(timing) = timing.filter(|_| ran.left.is_none()) {
            self.timed(py, &timing, &inputs, &ran.outputs);
        }
        let ran = done.outputs.insert(ran);
        let replay = self.rebuild(py, resolved, ran, staged, &mut done.written, Pass::First)?;
        self.is_proven.store(true, Relaxed);
        match ran.left {
            // That isn't another way of the program's.
            Some(_) if ran.error.is_some() => {}
            Some(_) => _ = self.leaves.fetch_add(1, Relaxed),
            None if self.traced.exits.is_empty() => {}
            None => self.leaves.store(0, Relaxed),
        }
        Ok(replay)
    }

    /// Whether a backend may be asked for code that runs this call's graph.
    fn is_due(&self, backend: &Backend) -> bool {
        // Two threads may count one call between them: it matters to neither.
        let served = self.served.load(Relaxed).saturating_add(1);
        self.served.store(served, Relaxed);
        match backend.when() {
            When::Call(at) => served >= at,
            When::Background => true,
        }
    }

    /// Gives the graph to a backend ahead of the next call, with the objects that this call was given.
    pub fn hand_over<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        backend: &Backend,
    ) -> PyResult<()> {
        if self.traced.draws.is_some() || self.cut(backend).is_some() {
            // What will be drawn is among the inputs. And what parts are given isn't there yet.
            return Ok(());
        }
        let sizes = self.size_inputs(resolved);
        let inputs = self.graph_inputs(resolved, &sizes);
        match self.code(py, backend, Unit::Whole, &inputs, Care::All) {
            Err(Ended::Replay(Replay::Failed(error))) => Err(error),
            // A fault of Stator's own shows at the next call, which can do without.
            _ => Ok(()),
        }
    }

    /// Whether the program may handle what is raised in the middle of the trace.
    fn handles(&self, py: Python<'_>) -> bool {
        match self.handles.get() {
            Some(handles) => *handles,
            None => {
                let handles = undo::may_handle(py, &self.traced);
                *self.handles.get_or_init(|| handles)
            }
        }
    }

    /// The objects that recipes and effects speak of.
    fn outside<'a, 'py>(&self, resolved: &'a Resolved<'py>) -> SmallVec<[Borrowed<'a, 'py>; 4]> {
        let rebuilt = &resolved[self.traced.inputs.len()..];
        rebuilt.iter().map(|object| object.as_borrowed()).collect()
    }

    /// The graph's inputs, sizes among them.
    pub(super) fn graph_inputs<'a, 'py>(
        &self,
        resolved: &'a Resolved<'py>,
        sizes: &'a [(usize, Object<'py>)],
    ) -> SmallVec<[Borrowed<'a, 'py>; 16]> {
        let inputs = &resolved[..self.traced.inputs.len()];
        let mut inputs: SmallVec<[Borrowed<'_, 'py>; 16]> =
            inputs.iter().map(|input| input.as_borrowed()).collect();
        for (position, size) in sizes {
            inputs.insert(*position, size.as_borrowed());
        }
        inputs
    }

    /// Makes the results of a graph that has run, and writes what the trace left behind.
    pub(super) fn rebuild<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        ran: &Ran<'py>,
        staged: &mut Vec<Staged>,
        written: &mut effects::Written<'py>,
        pass: Pass,
    ) -> Result<Replay<'py>, Ended<'py>> {
        pass.at(Stage::Build)?;
        let Ran { outputs, left, error } = ran;
        let leaving = self.traced.leaving(*left);
        let rebuilt = self.outside(resolved);
        let values = Values { outputs, sources: &rebuilt, objects: &self.traced.objects };
        let stored = leaving.effects.iter().filter_map(|store| store.value);
        let stored: SmallVec<[_; 4]> = stored.collect();
        let emitted = leaving.emissions.iter().flat_map(Emission::roots);
        let before = stored.iter().copied().chain(emitted);
        let mut roots: SmallVec<[_; 8]> = before.collect();
        let before = roots.len();
        // An iterator has a position in what it iterates over, so that is written first.
        let last = leaving.ending_last;
        match last {
            None => roots.extend(leaving.ending.roots()),
            Some(tokens) => roots.extend_from_slice(tokens),
        }
        let mut rebuild = leaving.recipes.rebuilding(py, &values);
        let mut made = rebuild.all(&roots)?;
        let table = &self.traced.objects;
        let (stores, values) = (leaving.effects, &made[..stored.len()]);
        effects::replay(py, stores, &rebuilt, values, table, written, pass)?;
        if before > stored.len() {
            let made = &made[stored.len()..before];
            emissions::stage(py, &self.traced, leaving.emissions, made, staged);
        }
        if last.is_some() {
            made.truncate(before);
            let roots: SmallVec<[_; 8]> = leaving.ending.roots().collect();
            made.extend(rebuild.all(&roots)?);
        }
        let mut replay = end(leaving.ending, *left, made.into_iter().skip(before));
        if let Replay::Broke(state) = &mut replay {
            state.error = error.as_ref().map(|error| error.clone_ref(py));
        }
        Ok(replay)
    }

    /// The sizes among the graph's inputs, with their positions.
    pub(super) fn size_inputs<'py>(
        &self,
        resolved: &Resolved<'py>,
    ) -> SmallVec<[(usize, Object<'py>); 4]> {
        let Some(symbolic) = &self.traced.symbolic else { return SmallVec::new() };
        let objects = self.slots(resolved);
        let size = |slot: usize| {
            let size = symbolic.slots[slot].number(&objects[slot]);
            size.expect("the numbers were checked")
        };
        symbolic.inputs.iter().map(|(position, slot)| (*position, size(*slot))).collect()
    }

    /// Runs the graph. If an operation raises, what it left behind is undone where that is possible.
    fn run<'e, 'py>(
        &'e self,
        py: Python<'py>,
        run: Run<'e, '_>,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'e, 'py>,
    ) -> Result<Ran<'py>, Ended<'py>> {
        let traced = &self.traced;
        let saved = match traced.generators.as_slice() {
            [] => Vec::new(),
            generators => match rollback::save(py, generators)? {
                Some(saved) => saved,
                None => return Err(Replay::Restart(UNTOLD).into()),
            },
        };
        let undo = self.undo(py);
        let first = if self.is_proven.load(Relaxed) { None } else { undo.of_the_first() };
        // What is copied while a graph is captured would be copied by the graph, each time.
        let copies = undo.copies() || first.as_ref().is_some_and(undo::Plan::copies);
        let is_captured = copies && accelerator::is_capturing(py)?.unwrap_or(false);
        if is_captured && undo.copies() {
            return Err(Replay::Restart("copies of what it writes would be captured").into());
        }
        let first = first.filter(|_| !is_captured);
        // Where the copies can't be made, a first replay is as the others.
        let first = first.and_then(|plan| Some((plan.save(py, inputs).ok()?, plan)));
        let (copies, first) = match first {
            Some((copies, plan)) => (copies, Some(plan)),
            None => match undo.save(py, inputs) {
                Ok(copies) => (copies, None),
                // Nothing has run: plain Python needs no copies.
                Err(error) if is_for_want_of_memory(py, &error) => {
                    return Err(Replay::Restart("no memory for copies of what it writes").into());
                }
                Err(error) => return Err(error.into()),
            },
        };
        faults::at(Stage::Run)?;
        if let (Some(draws), Some(before)) = (&traced.draws, &done.drawn)
            && !draws.take(before)
        {
            return Err(Replay::Restart(DRAWN).into());
        }
        let before = if undo.may_write { rollback::versions(inputs) } else { SmallVec::new() };
        let written = if undo.may_write { inputs } else { &[] };
        done.ran = Some(Before {
            generators: saved,
            drawn: done.drawn.take(),
            copies,
            first,
            versions: before,
            inputs: written.iter().map(|input| (*input).to_owned()).collect(),
        });
        match run {
            Run::Program(program) => {
                let mut running = program.start();
                running.ask(done.deferred.as_ref().map(Asking::new));
                done.running = Some(running);
                self.go_on(py, None, inputs, done)
            }
            Run::Parts(parts, backend) => {
                let mut running = parts.program().start();
                running.set_parts(parts);
                running.ask(done.deferred.as_ref().map(Asking::new));
                done.running = Some(running);
                self.go_on(py, Some(backend), inputs, done)
            }
            Run::Backend(code, backend) => {
                let called = run_code(py, &code, inputs)
                    .and_then(|returned| checked_outputs(backend, &traced.graph, &returned));
                called
                    .map(|outputs| Ran { outputs, left: None, error: None })
                    .map_err(|error| self.raised_by_code(py, None, Some(code), error, inputs, done))
            }
        }
    }

    /// Runs the graph's program from where it stands. `backend`: what is asked for code of its parts.
    pub(super) fn go_on<'py>(
        &self,
        py: Python<'py>,
        backend: Option<&Backend>,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'_, 'py>,
    ) -> Result<Ran<'py>, Ended<'py>> {
        loop {
            let running = done.running.as_mut().expect("a run has begun");
            let failure = match running.go_on(py, inputs) {
                Ok(outputs) => {
                    done.running = None;
                    return Ok(Ran { outputs, left: None, error: None });
                }
                Err(Early::Asked) => match self.interrupted(py, inputs, done)? {
                    Some(ran) => return Ok(ran),
                    None => continue,
                },
                Err(Early::Left(exit, outputs)) => {
                    return Ok(self.leave((exit, outputs), None, done));
                }
                Err(Early::Missing(part, given)) => {
                    // Who waits for code waits for that of all parts.
                    let waits = match backend {
                        Some(backend) => backend.takes_parts || backend.is_waited_for(py)?,
                        None => true,
                    };
                    let care = running.care();
                    running.attend();
                    let has_only_asked = match backend {
                        Some(backend) => {
                            self.attend_to(py, backend, part, &borrowed(&given), care, done)?
                        }
                        None => {
                            self.stop_asking();
                            true
                        }
                    };
                    if let Some(running) =
                        done.running.as_mut().filter(|_| !waits && !has_only_asked)
                    {
                        running.took_time();
                    }
                    continue;
                }
                Err(Early::Code(part, given, error)) => {
                    let given = borrowed(&given);
                    return Err(self.part_raised(py, part, &given, error, inputs, done));
                }
                Err(Early::Failed(failure)) => failure,
            };
            if failure.is_own {
                done.failed = running.stands_before();
                return Err(Ended::Own(failure.error));
            }
            if let Some(way_out) = running.way_out(py, inputs) {
                // What has a message of its own says it natively.
                let call = NodeCall::of(&self.traced.graph, failure.node);
                let is_told = call.is_some_and(|call| call.is_check())
                    && failure.error.get_type(py).is(py.get_type::<PyRuntimeError>());
                let error = (!is_told).then_some(failure.error);
                return Ok(self.leave(way_out, error, done));
            }
            done.running = None;
            return Err(self.raised(py, failure.node, failure.error, inputs, done));
        }
    }

    /// Leaves the graph by an exit, with the values that it needs; `error`: an operation has raised that. What a
    /// replay draws behind the exit is yet to be drawn.
    pub(super) fn leave<'py>(
        &self,
        (exit, outputs): (u32, replay::Outputs<'py>),
        error: Option<PyErr>,
        done: &mut Done<'_, 'py>,
    ) -> Ran<'py> {
        done.running = None;
        let before = done.ran.as_ref().and_then(|ran| ran.drawn.as_ref());
        if let (Some(draws), Some(before)) = (&self.traced.draws, before) {
            draws.keep(before, self.traced.exits[exit as usize].draws);
        }
        Ran { outputs, left: Some(exit), error }
    }

    /// A node of the graph has raised.
    #[cold]
    fn raised<'py>(
        &self,
        py: Python<'py>,
        node: NodeId,
        error: PyErr,
        inputs: &[Borrowed<'_, 'py>],
        done: &Done<'_, 'py>,
    ) -> Ended<'py> {
        let before = done.ran.as_ref().expect("the graph has run");
        let failed = Failed { node: Some(node), is_code: false };
        self.undo_raised(py, failed, error, inputs, before).unwrap_or_else(Ended::Replay)
    }

    /// A backend's code has raised, for the nodes up to `last`, or for all of them.
    #[cold]
    pub(super) fn raised_by_code<'py>(
        &self,
        py: Python<'py>,
        last: Option<NodeId>,
        code: Option<Arc<Code>>,
        error: PyErr,
        inputs: &[Borrowed<'_, 'py>],
        done: &Done<'_, 'py>,
    ) -> Ended<'py> {
        let before = done.ran.as_ref().expect("the graph has run");
        match self.undo_raised(py, Failed { node: last, is_code: true }, error, inputs, before) {
            Ok(Ended::Replay(Replay::Blamed(error, _))) => Replay::Blamed(error, code).into(),
            Ok(ended) => ended,
            Err(replay) => Ended::Replay(replay),
        }
    }

    fn undo_raised<'py>(
        &self,
        py: Python<'py>,
        Failed { node: failed, is_code }: Failed,
        error: PyErr,
        inputs: &[Borrowed<'_, 'py>],
        before: &Before<'py>,
    ) -> Result<Ended<'py>, Replay<'py>> {
        let (traced, undo) = (&self.traced, self.undo(py));
        rollback::restore_modes(py, &traced.graph, &traced.guards, failed)
            .map_err(Replay::Failed)?;
        let is_in_turn = is_code && tracebacks::ends_in_graph_module(py, &error);
        let is_undone = !undo::is_once(py, traced, failed)
            && undo.covers(traced, (failed, is_in_turn), inputs, &before.versions, &before.copies)
            && before.copies.restore(py).is_ok_and(|restored| restored);
        let is_interrupted = undo::is_interrupted(py, traced, failed.filter(|_| !is_code), &error);
        let drawn = traced.draws.as_ref().zip(before.drawn.as_ref());
        if let Some((draws, drawn)) = drawn
            && (is_undone || !is_code)
        {
            draws.give_back(drawn, failed.filter(|_| !is_undone));
        }
        if !is_undone {
            if let Some(failed) = failed.filter(|_| !is_code) {
                tracebacks::lead_in(py, &error, &traced.graph, &traced.callers, failed);
            }
            return Ok(Replay::Failed(error).into());
        }
        rollback::restore_generators(py, &before.generators).map_err(Replay::Failed)?;
        if is_interrupted {
            return Ok(Replay::Interrupted(error).into());
        }
        // It may be the backend's own: plain Python raises none, then.
        if is_code && !undo::may_handle(py, traced) {
            return Ok(Replay::Blamed(error, None).into());
        }
        if self.is_from_elsewhere(py, &error) {
            Thread::current(py).raise_later(&error.get_type(py));
        }
        Ok(Replay::Restart("an operation raised during replay").into())
    }

    /// Whether another thread has sent an exception that came out of an operation: it's of no class that
    /// PyTorch or the library's functions raise, and no function of the program's is among the operations.
    fn is_from_elsewhere(&self, py: Python<'_>, error: &PyErr) -> bool {
        let module = |object: &Bound<'_, PyAny>| {
            let module = object.getattr_opt(pyo3::intern!(py, "__module__")).ok().flatten();
            module.map_or_else(String::new, |module| text(module.as_borrowed()))
        };
        let class = error.get_type(py);
        let is_of_torch = |module: &str| module == "torch" || module.starts_with("torch.");
        let own = module(class.as_any());
        let is_known = is_of_torch(&own) || own == "builtins" || LIBRARY.contains(&&*own);
        if is_known && error.is_instance_of::<PyException>(py) {
            return false;
        }
        let mut called = self.traced.graph_objects.iter().map(|object| object.bind(py));
        !called.any(|called| called.is_instance_of::<PyFunction>() && !is_of_torch(&module(called)))
    }
}

/// What the objects of [`Ending::roots`] mean.
fn end<'py>(
    ending: &Ending,
    left: Option<u32>,
    mut made: impl Iterator<Item = Object<'py>>,
) -> Replay<'py> {
    let mut next = || made.next().expect("one object for each root").unbind();
    let broken = match ending {
        Ending::Return(_) => {
            return Replay::Done(made.next().expect("the result is a root"));
        }
        Ending::Break(broken) => broken,
    };
    let frames = broken.frames.iter().map(|frame| FrameState {
        function: next(),
        code: frame.code,
        locals: frame.locals.iter().map(|(slot, _)| (*slot, next())).collect(),
        stack: frame.stack.iter().map(|value| value.map(|_| next())).collect(),
        current: frame.current as usize,
        next: frame.next as usize,
        last: frame.last as usize,
        link: frame.link,
    });
    let frames = frames.collect();
    let handled = broken.handled.map(|_| next());
    let raised = broken.raised.iter().map(|raised| (next(), raised.traceback.clone())).collect();
    Replay::Broke(Box::new(State { frames, handled, raised, left, error: None }))
}

/// Whether an allocator of PyTorch's or of Python's has raised an error.
fn is_for_want_of_memory(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyMemoryError>(py) || error.is_instance_of::<PyRuntimeError>(py)
}

/// Why a replay that draws random numbers doesn't.
const DRAWN: &str = "another thread has drawn a random number";

/// Why one that draws PyTorch's doesn't.
const UNTOLD: &str = "a random generator doesn't tell its state";

/// What has raised.
#[derive(Clone, Copy)]
struct Failed {
    /// This node, or one up to it; `None`: any.
    node: Option<NodeId>,
    /// Whether it's a backend's code.
    is_code: bool,
}

/// What runs a graph.
enum Run<'e, 'a> {
    Program(&'e Program),
    /// The program, of which the backend is asked for code of parts.
    Parts(&'e Parts, &'a Backend),
    /// The code, and the backend that made it.
    Backend(Arc<Code>, &'a Py<PyAny>),
}

/// What a backend's code returns for these inputs.
pub(super) fn run_code<'py>(
    py: Python<'py>,
    code: &Code,
    inputs: &[Borrowed<'_, 'py>],
) -> PyResult<Object<'py>> {
    vectorcall::call(code.callable().bind_borrowed(py), inputs, None)
}

/// What a backend's code returned, one value for each output of the graph.
///
/// # Errors
/// If it isn't that.
pub(super) fn checked_outputs<'py>(
    backend: &Py<PyAny>,
    graph: &Graph,
    returned: &Object<'py>,
) -> PyResult<replay::Outputs<'py>> {
    let expected = graph.outputs();
    let is_tensor = |index: usize| match expected[index] {
        Arg::Node(node) => matches!(graph.node(node).value, Value::Tensor(_)),
        _ => false,
    };
    let outputs = outputs_of(returned, expected.len(), is_tensor)?;
    outputs.ok_or_else(|| refusal(backend, expected.len(), returned))
}

/// What a backend's code returned, one value for each output; `None` if it isn't that.
pub(super) fn outputs_of<'py>(
    returned: &Object<'py>,
    count: usize,
    is_tensor: impl Fn(usize) -> bool,
) -> PyResult<Option<replay::Outputs<'py>>> {
    let outputs: replay::Outputs<'py> = if let Ok(outputs) = returned.cast::<PyTuple>() {
        outputs.iter().collect()
    } else if let Ok(outputs) = returned.cast::<PySequence>() {
        (0..outputs.len()?).map(|index| outputs.get_item(index)).collect::<PyResult<_>>()?
    } else {
        return Ok(None);
    };
    let fits = |(index, found): (usize, &Object<'py>)| {
        !is_tensor(index) || tensor::is_tensor(found.as_borrowed())
    };
    let fits = outputs.len() == count && outputs.iter().enumerate().all(fits);
    Ok(fits.then_some(outputs))
}

/// The error of a backend whose code returned something else than the graph's outputs.
#[cold]
pub(super) fn refusal(backend: &Py<PyAny>, count: usize, returned: &Object<'_>) -> PyErr {
    let error = modules::import(returned.py(), "stator._backends")
        .and_then(|module| module.getattr("wrong_outputs"))
        .and_then(|make| make.call1((backend, count, returned)));
    error.map_or_else(|error| error, PyErr::from_value)
}
