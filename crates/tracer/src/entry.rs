//! A cache entry: one trace, its guards compiled, and how to run it.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyFunction, PyInt, PyList, PySequence, PySequenceMethods, PyTuple};
use smallvec::SmallVec;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::{Deferred, Thread};
use stator_cpython::vectorcall;
use stator_graph::{Arg, Graph, Value, print};
use stator_guards::{Guard, GuardKind, Printed};

use crate::breaks::Place;
use crate::check::{Checker, Facts, Failure, Found, Resolved};
use crate::codes::{Code, Codes, Search};
use crate::compiling;
use crate::config;
use crate::effects;
use crate::emission::{self, Emission};
use crate::evaluator::Link;
use crate::faults::{self, Fault, Stage};
use crate::floor::Floor;
use crate::gauge::Gauge;
use crate::locate::{Places, ShownPlaces, shown_path, source_line, text};
use crate::lock;
use crate::policy::{Dims, History, Seen};
use crate::profit::Estimate;
use crate::recipe::Values;
use crate::recorder::{Ending, TracebackEntry, Traced};
use crate::replay::{self, Program};
use crate::resume::listing;
use crate::resume::stage::Staged;
use crate::rollback;
use crate::sharing::Sharing;
use crate::symbolic::{Part, Symbolic};
use crate::undo;

mod taken_back;

use taken_back::{Before, Done, Ended};

/// A trace that can be replayed.
pub struct Entry {
    traced: Traced,
    checker: Checker,
    program: OnceLock<Program>,
    readable: OnceLock<Graph>,
    /// What the backend has made of the graph.
    codes: Codes,
    undo: OnceLock<undo::Plan>,
    follower: Mutex<Option<Follower>>,
    estimate: Estimate,
    floor: Floor,
    gauge: Gauge,
}

/// The trace that was replayed behind another one's break.
struct Follower {
    /// The resume point that both know it by.
    point: u64,
    entry: Weak<Entry>,
}

/// Why a replay didn't give a result.
pub enum Replay<'py> {
    /// The result.
    Done(Object<'py>),
    /// The trace ends at a graph break: there the frames have to go on.
    Broke(Box<State>),
    /// Nothing outside was written: the function can run natively from its start. Says why it has to.
    Restart(&'static str),
    /// As `Restart`, because a backend's code raised this: it is the program's error if the function raises
    /// one, and the backend's if it returns.
    Blamed(PyErr),
    /// A signal's handler raised this while an operation ran. All is as before the replay: so it may
    /// as well have come then.
    Interrupted(PyErr),
    /// An operation raised, or the backend's code, and what was written can't be taken back.
    Failed(PyErr),
    /// Stator has failed, and what it did is taken back: as for `Restart`.
    Fault(Fault),
}

/// The state of the program at a graph break.
pub struct State {
    /// Outermost first.
    pub frames: SmallVec<[FrameState; 2]>,
    /// The exception being handled.
    pub handled: Option<Py<PyAny>>,
    /// The exceptions that get tracebacks once there are frames.
    pub raised: Vec<(Py<PyAny>, Box<[TracebackEntry]>)>,
}

/// A frame at a graph break; see [`crate::recorder::FrameRecipe`].
pub struct FrameState {
    /// The function whose call it is.
    pub function: Py<PyAny>,
    /// Its code object's address.
    pub code: usize,
    /// Fast locals that are bound.
    pub locals: SmallVec<[(u32, Py<PyAny>); 8]>,
    /// The stack; `None` is a `NULL`.
    pub stack: SmallVec<[Option<Py<PyAny>>; 4]>,
    /// The unit that tracebacks name.
    pub current: usize,
    /// The unit to go on at.
    pub next: usize,
    /// The innermost frame: the unit of the instruction that is to be executed natively.
    pub last: usize,
    /// The others: how the instruction ends that waits for the next frame.
    pub link: Link,
}

impl Entry {
    /// Holds what the guards of a trace speak of, and nothing else.
    ///
    /// # Errors
    /// If a guard speaks of something that can't be checked without running user code.
    pub fn new(py: Python<'_>, mut traced: Traced) -> PyResult<Arc<Self>> {
        let slots = traced.symbolic.iter().flat_map(|symbolic| &symbolic.slots);
        let slots = slots.map(|slot| &slot.source);
        let wanted: Vec<_> =
            traced.inputs.iter().chain(&traced.rebuilt).chain(slots).copied().collect();
        let checker = Checker::build(py, facts(&traced), &traced.objects, wanted)?;
        // What recipes don't need must not be kept alive.
        for (index, object) in traced.objects.iter_mut().enumerate() {
            if !traced.kept.contains(&stator_guards::ObjectId::new(index)) {
                *object = py.None();
            }
        }
        let operations = traced.graph.call_count();
        let estimate = Estimate::of_trace(traced.work, operations, traced.ending.standing());
        Ok(Arc::new(Self {
            traced,
            checker,
            program: OnceLock::new(),
            readable: OnceLock::new(),
            codes: Codes::default(),
            undo: OnceLock::new(),
            follower: Mutex::default(),
            estimate,
            floor: Floor::default(),
            gauge: Gauge::default(),
        }))
    }

    /// Whether the guards hold; if so, inputs and rebuilt objects.
    ///
    /// # Errors
    /// The guard that failed.
    pub fn check<'py>(
        &self,
        py: Python<'py>,
        locals: &[Borrowed<'_, 'py>],
    ) -> Result<Resolved<'py>, Failure> {
        if self.has_other_answer() {
            return Err(Failure { guard: None, found: Found::Answer(compiling::answer()) });
        }
        let resolved = self.checker.check(py, facts(&self.traced), locals)?;
        if let Some(symbolic) = &self.traced.symbolic {
            self.check_symbolic(symbolic, &resolved)?;
        }
        Ok(resolved)
    }

    /// Whether `torch.compiler.is_compiling()` was asked, and would now be answered otherwise.
    #[inline]
    fn has_other_answer(&self) -> bool {
        self.traced.asked.is_some_and(|answer| answer != compiling::answer())
    }

    /// Whether the facts about symbols hold.
    fn check_symbolic(&self, symbolic: &Symbolic, resolved: &Resolved<'_>) -> Result<(), Failure> {
        let Some(numbers) = symbolic.read(self.slots(resolved)) else {
            let found = Found::Numbers("a number beyond 64 bits".into());
            return Err(Failure { guard: None, found });
        };
        if symbolic.holds(&numbers) {
            return Ok(());
        }
        let guard = symbolic.failing(&numbers).and_then(|fact| fact.guard);
        Err(Failure { guard, found: Found::Numbers(symbolic.describe(&numbers)) })
    }

    /// The objects whose numbers the symbols are.
    fn slots<'a, 'py>(&self, resolved: &'a Resolved<'py>) -> &'a [Object<'py>] {
        &resolved[self.traced.inputs.len() + self.traced.rebuilt.len()..]
    }

    /// Tells what the trace took as constants, and what as symbols.
    pub fn tell(&self, py: Python<'_>, history: &mut History) {
        let traced = &self.traced;
        for guard in &traced.guards {
            match &guard.kind {
                GuardKind::Tensor(tensor) => {
                    let (sizes, strides) = (tensor.sizes.clone(), tensor.strides.clone());
                    let dims = Dims { sizes, strides };
                    history.add_tensor(traced.sources.print(guard.source), dims);
                }
                GuardKind::Equals(id) => {
                    let Some(constant) = self.checker.constant(*id) else { continue };
                    let constant = constant.bind(py);
                    let seen = if constant.is_exact_instance_of::<PyInt>() {
                        constant.extract().ok().map(Seen::Integer)
                    } else {
                        constant.cast_exact::<PyFloat>().ok().map(|it| Seen::Float(it.value()))
                    };
                    if let Some(seen) = seen {
                        history.add_number(traced.sources.print(guard.source), seen);
                    }
                    // A `torch.Size` is a constant as a whole.
                    for (index, size) in
                        constant.cast::<PyTuple>().iter().flat_map(|all| all.iter().enumerate())
                    {
                        if let Ok(size) = size.extract() {
                            let source = traced.sources.print(guard.source);
                            history.add_number(format!("{source}[{index}]"), Seen::Integer(size));
                        }
                    }
                }
                _ => {}
            }
        }
        let slots = traced.symbolic.iter().flat_map(|symbolic| &symbolic.slots);
        for slot in slots.filter(|slot| matches!(slot.part, Part::Integer | Part::Float)) {
            history.add_number(traced.sources.print(slot.source), Seen::Symbol);
        }
    }

    /// What the `dynamic` log says of the trace.
    #[must_use]
    pub fn dynamic_log(&self) -> &[String] {
        self.traced.symbolic.as_ref().map_or(&[], |symbolic| &symbolic.log)
    }

    /// As [`Entry::check`], but only against states that passed before.
    pub fn check_fast<'py>(
        &self,
        py: Python<'py>,
        locals: &[Borrowed<'_, 'py>],
    ) -> Option<Resolved<'py>> {
        if self.has_other_answer() {
            return None;
        }
        let resolved = self.checker.check_fast(py, locals)?;
        match &self.traced.symbolic {
            Some(symbolic) => self.check_symbolic(symbolic, &resolved).is_ok().then_some(resolved),
            None => Some(resolved),
        }
    }

    /// The trace of a resume point that followed this one the last time: likely to fit again.
    #[must_use]
    pub fn follower(&self, point: u64) -> Option<Arc<Self>> {
        let follower = lock(&self.follower);
        follower.as_ref().filter(|known| known.point == point)?.entry.upgrade()
    }

    /// A trace of a resume point follows this one.
    pub fn is_followed_by(&self, point: u64, entry: &Arc<Self>) {
        let entry = Arc::downgrade(entry);
        let before = lock(&self.follower).replace(Follower { point, entry });
        drop(before);
    }

    /// Whether everything the guards know by identity is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.checker.is_alive() && self.checker.can_hold()
    }

    /// Number of calls in the graph.
    #[must_use]
    pub fn graph_nodes(&self) -> usize {
        self.traced.graph.call_count()
    }

    /// What replaying this trace saves and costs.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// What the estimate was made of: see [`Work::counts`](crate::profit::Work::counts); then operations,
    /// and the frames that stand at the break it ends with.
    #[must_use]
    pub fn counts(&self) -> [u64; 7] {
        let [instructions, frames, modules, members, calls] = self.traced.work.counts();
        let standing = self.traced.ending.standing().unwrap_or(0) as u64;
        [instructions, frames, modules, members, calls, self.graph_nodes() as u64, standing]
    }

    /// What is measured of calls that begin with it.
    #[must_use]
    pub fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    /// Calls that run natively before another one is tried.
    pub fn natives_left(&self) -> u32 {
        if self.floor.is_under() { self.floor.left() } else { self.gauge.left() }
    }

    /// So many calls run natively that don't ask the entry: at most as many as are left.
    pub fn pass(&self, calls: u32) {
        if self.floor.is_under() { self.floor.pass(calls) } else { self.gauge.pass(calls) }
    }

    /// Whether calls that it fits run natively.
    #[must_use]
    pub fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Number of guards.
    #[must_use]
    pub fn guard_count(&self) -> usize {
        self.traced.guards.len()
    }

    /// As [`Entry::replay`], without taking anything back.
    fn try_replay<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
        backend: Option<&Py<PyAny>>,
        staged: &mut Vec<Staged>,
        done: &mut Done<'py>,
    ) -> Result<Replay<'py>, Ended<'py>> {
        // What signal handlers raise is nothing that Stator or an operation has raised.
        let deferred = Deferred::new(py);
        faults::at(Stage::Replay)?;
        let (inputs, rebuilt) = resolved.split_at(self.traced.inputs.len());
        let rebuilt: SmallVec<[Borrowed<'_, 'py>; 4]> =
            rebuilt.iter().map(|object| object.as_borrowed()).collect();
        if !emission::may_be_given(py, &self.traced, &rebuilt) {
            return Ok(Replay::Restart("user code may learn of a warning or log record"));
        }
        let sizes = self.size_inputs(py, resolved);
        let mut inputs: SmallVec<[Borrowed<'_, 'py>; 16]> =
            inputs.iter().map(|input| input.as_borrowed()).collect();
        for (position, size) in &sizes {
            inputs.insert(*position, size.as_borrowed());
        }
        let made = match backend {
            None => None,
            Some(backend) => {
                // A backend may compile for long.
                drop(deferred);
                self.backend(py, backend, &inputs)?.map(|callable| Run::Backend(callable, backend))
            }
        };
        let _deferred = Deferred::new(py);
        let run = match made {
            Some(run) => run,
            None => Run::Program(self.program(py)?),
        };
        let outputs = self.run(py, &run, &inputs, done)?;
        faults::at(Stage::Build)?;
        let values = Values { outputs: &outputs, sources: &rebuilt, objects: &self.traced.objects };
        let stored = self.traced.effects.iter().filter_map(|store| store.value);
        // What effects write comes first: the ending has as many roots as it needs.
        let stored: SmallVec<[_; 4]> = stored.collect();
        let emitted = self.traced.emissions.iter().flat_map(Emission::roots);
        let before = stored.iter().copied().chain(emitted);
        let mut roots: SmallVec<[_; 8]> = before.collect();
        let before = roots.len();
        roots.extend(self.traced.ending.roots());
        let made = self.traced.recipes.rebuild(py, &roots, &values)?;
        let table = &self.traced.objects;
        let (stores, values) = (&self.traced.effects, &made[..stored.len()]);
        effects::replay(py, stores, &rebuilt, values, table, &mut done.written)?;
        if before > stored.len() {
            emission::stage(py, &self.traced, &made[stored.len()..before], staged);
        }
        Ok(self.end(made.into_iter().skip(before)))
    }

    /// The sizes among the graph's inputs, with their positions.
    fn size_inputs<'py>(
        &self,
        py: Python<'py>,
        resolved: &Resolved<'py>,
    ) -> SmallVec<[(usize, Object<'py>); 4]> {
        let Some(symbolic) = &self.traced.symbolic else { return SmallVec::new() };
        let objects = self.slots(resolved);
        let size = |slot: usize| {
            let size = symbolic.slots[slot].integer(&objects[slot]);
            PyInt::new(py, size.expect("the numbers were checked")).into_any()
        };
        symbolic.inputs.iter().map(|(position, slot)| (*position, size(*slot))).collect()
    }

    /// What the objects of [`Ending::roots`] mean.
    fn end<'py>(&self, mut made: impl Iterator<Item = Object<'py>>) -> Replay<'py> {
        let mut next = || made.next().expect("one object for each root").unbind();
        let broken = match &self.traced.ending {
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
        let raised =
            broken.raised.iter().map(|raised| (next(), raised.traceback.clone())).collect();
        Replay::Broke(Box::new(State { frames, handled, raised }))
    }

    /// Whether the graph has so few operations that CPython is as quick: none before a break, or
    /// fewer than `stator.config.min_graph_ops`.
    #[must_use]
    pub fn is_small(&self) -> bool {
        let operations = self.graph_nodes() as u64;
        (operations == 0 && self.breaks()) || operations < config::min_graph_ops()
    }

    /// The unit of the instruction that breaks, if the frames there are `depth` many and the
    /// innermost has this code: it can be reached without leaving that frame.
    #[must_use]
    pub fn breaks_at(&self, depth: usize, code: usize) -> Option<usize> {
        let Ending::Break(broken) = &self.traced.ending else { return None };
        let innermost = broken.frames.last()?;
        let is_same = broken.frames.len() == depth && innermost.code == code;
        is_same.then_some(innermost.last as usize)
    }

    /// How many of the frames that the trace began in have left.
    #[must_use]
    pub fn left_frames(&self) -> usize {
        self.traced.left.len()
    }

    /// Of a frame that the trace began in, counted from the innermost one, and that has left: the fast
    /// locals that held to the end what they held at the beginning.
    #[must_use]
    pub fn kept_locals(&self, frame: usize) -> Option<&[u32]> {
        self.traced.left.get(frame).map(AsRef::as_ref)
    }

    /// Whether the trace ends at a graph break.
    #[must_use]
    pub fn breaks(&self) -> bool {
        matches!(self.traced.ending, Ending::Break(_))
    }

    /// Runs the graph. If an operation raises, what it left behind is undone where that is possible.
    fn run<'py>(
        &self,
        py: Python<'py>,
        run: &Run<'_>,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'py>,
    ) -> Result<replay::Outputs<'py>, Ended<'py>> {
        let traced = &self.traced;
        let saved = match traced.generators.as_slice() {
            [] => Vec::new(),
            generators => rollback::save(py, generators)?,
        };
        let undo = self.undo(py);
        let copies = undo.save(py, inputs)?;
        faults::at(Stage::Run)?;
        let before = if undo.may_write { rollback::versions(inputs) } else { SmallVec::new() };
        let written = if undo.may_write { inputs } else { &[] };
        let before = done.ran.insert(Before {
            generators: saved,
            copies,
            versions: before,
            inputs: written.iter().map(|input| (*input).to_owned()).collect(),
        });
        let (failed, error) = match run {
            Run::Program(program) => match program.run(py, inputs) {
                Ok(outputs) => return Ok(outputs),
                Err(failure) if failure.is_own => {
                    done.failed = Some(failure.node);
                    return Err(Ended::Own(failure.error));
                }
                Err(failure) => (Some(failure.node), failure.error),
            },
            Run::Backend(callable, backend) => match run_backend(py, callable, inputs) {
                Ok(returned) => {
                    let outputs = outputs_of(&returned, &traced.graph).map_err(Replay::Failed)?;
                    let refused = || Replay::Failed(refusal(backend, &traced.graph, &returned));
                    return outputs.ok_or_else(|| refused().into());
                }
                Err(error) => (None, error),
            },
        };
        rollback::restore_modes(py, &traced.graph, &traced.guards, failed)
            .map_err(Replay::Failed)?;
        let is_undone = !undo::is_once(py, traced, failed)
            && undo.covers(traced, failed, inputs, &before.versions, &before.copies)
            && before.copies.restore(py).is_ok_and(|restored| restored);
        let is_interrupted = undo::is_interrupted(py, traced, failed, &error);
        if !is_undone {
            if failed.is_some() && !is_interrupted {
                let places = Places { py, codes: &traced.codes };
                rollback::add_place(py, &error, &traced.graph, failed, &places);
            }
            return Err(Replay::Failed(error).into());
        }
        rollback::restore_generators(py, &before.generators).map_err(Replay::Failed)?;
        if is_interrupted {
            return Err(Replay::Interrupted(error).into());
        }
        // It may be the backend's own: plain Python raises none, then.
        if failed.is_none() && !undo::may_handle(py, traced) {
            return Err(Replay::Blamed(error).into());
        }
        if self.is_from_elsewhere(py, &error) {
            Thread::current(py).raise_later(&error.get_type(py));
        }
        Err(Replay::Restart("an operation raised during replay").into())
    }

    /// Whether another thread has sent an exception that came out of an operation: it's of no class that
    /// PyTorch raises, and no function of the program's is among the operations.
    fn is_from_elsewhere(&self, py: Python<'_>, error: &PyErr) -> bool {
        let module = |object: &Bound<'_, PyAny>| {
            let module = object.getattr_opt(pyo3::intern!(py, "__module__")).ok().flatten();
            module.map_or_else(String::new, |module| text(module.as_borrowed()))
        };
        let class = error.get_type(py);
        let is_of_torch = |module: &str| module == "torch" || module.starts_with("torch.");
        let own = module(class.as_any());
        let is_known = is_of_torch(&own) || own == "builtins";
        if is_known && error.is_instance_of::<PyException>(py) {
            return false;
        }
        let mut called = self.traced.graph_objects.iter().map(|object| object.bind(py));
        !called.any(|called| called.is_instance_of::<PyFunction>() && !is_of_torch(&module(called)))
    }

    fn undo(&self, py: Python<'_>) -> &undo::Plan {
        match self.undo.get() {
            Some(plan) => plan,
            None => {
                // Made before the cell is taken: a collection may run, and with it other threads.
                let plan = undo::Plan::of(py, &self.traced);
                self.undo.get_or_init(|| plan)
            }
        }
    }

    fn program(&self, py: Python<'_>) -> PyResult<&Program> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        faults::at(Stage::Program)?;
        let program = Program::new(py, &self.traced.graph, &self.traced.graph_objects)?;
        Ok(self.program.get_or_init(|| program))
    }

    /// What the backend makes of the graph for inputs like these; `None`: they aren't for backends.
    fn backend<'py>(
        &self,
        py: Python<'py>,
        backend: &Py<PyAny>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Option<Py<PyAny>>, Ended<'py>> {
        let may_write = self.undo(py).may_write;
        let sharing = if may_write { self.codes.sharing(inputs) } else { Some(Sharing::ignored()) };
        let Some(sharing) = sharing else { return Ok(None) };
        match self.codes.find(py, &sharing, inputs) {
            Search::Found(callable) => return Ok(Some(callable)),
            Search::Enough => return Ok(None),
            Search::Missing => {}
        }
        faults::at(Stage::Export)?;
        let reference = modules::import(py, "stator._fx")?.getattr("Reference")?;
        let places = Places { py, codes: &self.traced.codes };
        let description = {
            let _deferred = Deferred::new(py);
            let objects = &self.traced.graph_objects;
            replay::export::describe(py, self.readable(), objects, &places, &reference)?
        };
        let example = PyList::new(py, inputs)?;
        // What the backend itself raises is the user's to see; `stator._backends` tells it apart.
        let made = backend.bind(py).call1((description, example)).map_err(|error| {
            match error.get_type(py).name().is_ok_and(|name| name == "InternalError") {
                true => Ended::Own(error),
                false => Replay::Failed(error).into(),
            }
        })?;
        let code = Code::new(&made, sharing, inputs, &self.traced)?;
        code.log(py);
        Ok(Some(self.codes.add(py, code, inputs)))
    }

    /// The graph as it is read: with names for its inputs, which are made when somebody asks.
    fn readable(&self) -> &Graph {
        self.readable.get_or_init(|| {
            let Traced { graph, sources, inputs, .. } = &self.traced;
            let mut last = Printed::default();
            let names =
                inputs.iter().map(|source| sources.print_next(*source, &mut last).to_owned());
            let named = graph.named(names);
            debug_assert!(named.verify().is_ok(), "{:?}", named.verify());
            named
        })
    }

    /// The graph as code.
    #[must_use]
    pub fn graph_code(&self, py: Python<'_>) -> String {
        let places = ShownPlaces(Places { py, codes: &self.traced.codes });
        print::graph_code(self.readable(), &places)
    }

    /// The graph as a table.
    #[must_use]
    pub fn graph_table(&self) -> String {
        print::graph_table(self.readable())
    }

    /// The sizes of the graph's tensors.
    #[must_use]
    pub fn graph_sizes(&self, name: &str) -> String {
        print::graph_sizes(self.readable(), name)
    }

    /// The guards, printed, one line each; a constant's type has a line of its own.
    #[must_use]
    pub fn guards(&self, py: Python<'_>) -> Vec<String> {
        let print = |guard| self.checker.print(py, &self.traced.sources, guard);
        let own = self.traced.guards.iter().flat_map(print);
        own.chain(self.codes.guards()).collect()
    }

    /// As [`Entry::guards`], each with the place where the value was read.
    #[must_use]
    pub fn guards_with_places(&self, py: Python<'_>) -> Vec<String> {
        let print = |guard: &Guard| {
            // The global state isn't read at a place of the program.
            let place = match guard.kind {
                GuardKind::GlobalState(_) => None,
                _ => self.place_of(py, guard),
            };
            let place = place.map_or_else(String::new, |at| format!("  # {at}"));
            let lines = self.checker.print(py, &self.traced.sources, guard);
            lines.into_iter().map(move |line| line + &place)
        };
        let own = self.traced.guards.iter().flat_map(print);
        own.chain(self.codes.guards()).collect()
    }

    /// What a replay writes to outside objects, one line each with the place of the last write.
    #[must_use]
    pub fn side_effects(&self, py: Python<'_>) -> Vec<String> {
        let print = |store: &effects::Store| {
            let place =
                self.place(py, store.place).map_or_else(String::new, |at| format!("  # {at}"));
            effects::print(py, store, &self.traced) + &place
        };
        let give = |emission: &Emission| {
            let place =
                self.place(py, emission.place).map_or_else(String::new, |at| format!("  # {at}"));
            format!("{}{place}", emission.text)
        };
        let mut lines = Vec::new();
        let mut emissions = self.traced.emissions.iter().peekable();
        for (index, store) in self.traced.effects.iter().enumerate() {
            while let Some(emission) = emissions.next_if(|emission| emission.after <= index) {
                lines.push(give(emission));
            }
            lines.push(print(store));
        }
        lines.extend(emissions.map(give));
        lines
    }

    /// Whether a replay makes frames: those behind a break, or those that a warning is given from.
    #[must_use]
    pub fn makes_frames(&self) -> bool {
        self.breaks() || !self.traced.emissions.is_empty()
    }

    /// What a replay does, as bytecode would do it; `number` is that of the graph.
    #[must_use]
    pub fn bytecode(&self, py: Python<'_>, number: u64) -> String {
        listing::list(py, &self.traced, number)
    }

    /// Where the trace begins, if that isn't a call.
    #[must_use]
    pub fn begins(&self) -> Option<&Place> {
        self.traced.begins.as_ref()
    }

    /// What failed, in the user's terms, with the place at which the value was read.
    #[must_use]
    pub fn explain(&self, py: Python<'_>, failure: &Failure) -> Explained {
        let traced = &self.traced;
        let facts = self.checker.explain(py, facts(traced), failure);
        let place = failure.guard.and_then(|index| self.place_of(py, &traced.guards[index]));
        Explained { facts, place }
    }

    /// Where a guarded value was read: `script.py:5: return a * len(b)`.
    fn place_of(&self, py: Python<'_>, guard: &Guard) -> Option<String> {
        self.place(py, *self.traced.locations.get(guard.location? as usize)?)
    }

    fn place(&self, py: Python<'_>, (code, unit): (u32, u32)) -> Option<String> {
        let places = Places { py, codes: &self.traced.codes };
        let (file, line, _) = places.place(code, unit)?;
        Some(format!("{}:{line}: {}", shown_path(&file), source_line(py, &file, line)))
    }

    /// Shows the garbage collector what the entry holds.
    ///
    /// # Errors
    /// What `visit` says.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let objects = self.traced.objects.iter().chain(&self.traced.graph_objects);
        objects.into_iter().try_for_each(|object| visit.call(object))?;
        self.codes.traverse(visit)
    }
}

/// What runs a graph.
enum Run<'a> {
    Program(&'a Program),
    /// The code, and the backend that made it.
    Backend(Py<PyAny>, &'a Py<PyAny>),
}

fn run_backend<'py>(
    py: Python<'py>,
    callable: &Py<PyAny>,
    inputs: &[Borrowed<'_, 'py>],
) -> PyResult<Object<'py>> {
    vectorcall::call(callable.bind_borrowed(py), inputs, None)
}

/// What a backend's code returned, one value for each output of the graph; `None` if it isn't that.
fn outputs_of<'py>(
    returned: &Object<'py>,
    graph: &Graph,
) -> PyResult<Option<replay::Outputs<'py>>> {
    let outputs: replay::Outputs<'py> = if let Ok(outputs) = returned.cast::<PyTuple>() {
        outputs.iter().collect()
    } else if let Ok(outputs) = returned.cast::<PySequence>() {
        (0..outputs.len()?).map(|index| outputs.get_item(index)).collect::<PyResult<_>>()?
    } else {
        return Ok(None);
    };
    let fits = |(expected, found): (&Arg, &Object<'py>)| match expected {
        Arg::Node(node) if matches!(graph.node(*node).value, Value::Tensor(_)) => {
            tensor::is_tensor(found.as_borrowed())
        }
        _ => true,
    };
    let expected = graph.outputs();
    let fits = outputs.len() == expected.len() && expected.iter().zip(&outputs).all(fits);
    Ok(fits.then_some(outputs))
}

/// The error of a backend whose code returned something else than the graph's outputs.
#[cold]
fn refusal(backend: &Py<PyAny>, graph: &Graph, returned: &Object<'_>) -> PyErr {
    let error = modules::import(returned.py(), "stator._backends")
        .and_then(|module| module.getattr("wrong_outputs"))
        .and_then(|make| make.call1((backend, graph.outputs().len(), returned)));
    error.map_or_else(|error| error, PyErr::from_value)
}

fn facts(traced: &Traced) -> Facts<'_> {
    Facts { sources: &traced.sources, guards: &traced.guards }
}

/// A failed guard, explained.
pub struct Explained {
    /// What the guard says, and what was found instead; several for a guard of global state.
    pub facts: Vec<(String, String)>,
    /// Where the value was read.
    pub place: Option<String>,
}
