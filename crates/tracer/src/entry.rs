//! A cache entry: one trace, its guards compiled, and how to run it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyTuple};
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, Object};
use stator_evaluator::Link;
use stator_faults::{self as faults, Fault, Stage};
use stator_graph::{Graph, print};
use stator_guards::{Guard, GuardKind, Printed};

use crate::breaks::Place;
use crate::check::{Checker, Facts, Failure, Found, Resolved};
use crate::codes::{Code, Codes};
use crate::compiling;
use crate::config;
use crate::effects;
use crate::emission::Emission;
use crate::floor::Floor;
use crate::gauge::Gauge;
use crate::jobs::Job;
use crate::locate::{Places, ShownPlaces, shown_path, source_line};
use crate::lock;
use crate::policy::{Dims, History, Seen};
use crate::profit::Estimate;
use crate::replay::{self, Program};
use crate::stored::{Stored, store};
use crate::symbolic::{Part, Symbolic};
use crate::trace::{Ending, TracebackEntry, Traced};
use crate::undo;

mod beside;
mod beyond;
mod emissions;
mod interrupted;
mod listing;
mod parts;
mod replaying;
mod taken_back;

pub use beyond::Beyond;

/// See [`Entry::is_left_behind`].
const LEAVES: u32 = 16;

/// A trace that can be replayed.
pub struct Entry {
    traced: Traced,
    checker: Checker,
    program: OnceLock<Program>,
    readable: OnceLock<Graph>,
    /// What the backend has made of the graph.
    codes: Codes,
    /// What it has made of parts of the graph, where that has steps of Stator's own.
    parts: parts::Parts,
    undo: OnceLock<undo::Plan>,
    /// Whether the program may handle what a node raises.
    handles: OnceLock<bool>,
    /// Whether a replay has come to its end.
    is_proven: AtomicBool,
    /// How many replays in a row have left by an exit.
    leaves: AtomicU32,
    /// How many calls it has served that a backend may be asked for; the recorded one is the first.
    served: AtomicU32,
    /// At which call of the function it was recorded, if no other call has fitted it since; 0: it's not waiting.
    waits_since: AtomicU64,
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
    /// one, and the backend's if it returns (see [`Entry::blame`]).
    Blamed(PyErr, Option<Arc<Code>>),
    /// A signal's handler raised this while an operation ran. All is as before the replay: so it may
    /// as well have come then.
    Interrupted(PyErr),
    /// An operation raised, or the backend's code, and what was written can't be taken back.
    Failed(PyErr),
    /// Stator has failed, and what it did is taken back: as for `Restart`.
    Fault(Fault),
    /// Stator has failed, and the replay was brought to its end all the same. This is how it ended.
    Mended(Fault, Box<Replay<'py>>),
}

/// The state of the program at a graph break.
pub struct State {
    /// Outermost first.
    pub frames: SmallVec<[FrameState; 2]>,
    /// The exception being handled.
    pub handled: Option<Py<PyAny>>,
    /// The exceptions that get tracebacks once there are frames.
    pub raised: Vec<(Py<PyAny>, Box<[TracebackEntry]>)>,
    /// The exit of the trace that led here; `None`: its end.
    pub left: Option<u32>,
    /// What the innermost frame's instruction has raised; `None`: it is yet to be executed.
    pub error: Option<PyErr>,
}

/// A frame at a graph break; see [`crate::trace::FrameRecipe`].
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
        let mut estimate = Estimate::of_trace(traced.work, operations, traced.ending.standing());
        if !(estimate + Estimate::of_call()).pays() {
            estimate = estimate.with_direct(replay::direct::count(&traced.graph));
        }
        Ok(Arc::new(Self {
            traced,
            checker,
            program: OnceLock::new(),
            readable: OnceLock::new(),
            codes: Codes::default(),
            parts: parts::Parts::default(),
            undo: OnceLock::new(),
            handles: OnceLock::new(),
            is_proven: AtomicBool::new(false),
            leaves: AtomicU32::new(0),
            served: AtomicU32::new(1),
            waits_since: AtomicU64::new(0),
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
                GuardKind::Length(length) => {
                    history.add_length(traced.sources.print(guard.source), *length);
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

    /// It was recorded at this call of the function; no other one has fitted it so far.
    pub fn wait(&self, call: u64) {
        self.waits_since.store(call, Relaxed);
    }

    /// A call fits.
    pub fn fits(&self) {
        if self.waits_since.load(Relaxed) != 0 {
            self.waits_since.store(0, Relaxed);
        }
    }

    /// Whether so many calls have come since it was recorded, none of which fitted.
    #[must_use]
    pub fn waits_in_vain(&self, call: u64, most: u64) -> bool {
        let since = self.waits_since.load(Relaxed);
        since != 0 && call.saturating_sub(since) >= most
    }

    /// What a backend compiles of the graph, beside the program.
    pub fn jobs(&self, py: Python<'_>) -> impl Iterator<Item = Py<Job>> {
        std::iter::once(&self.codes)
            .chain(self.parts.codes())
            .filter_map(move |codes| codes.job(py))
    }

    /// What runs the graph, in a word, and why, if there is something to say.
    #[must_use]
    pub fn tier(&self) -> (&'static str, Option<String>) {
        self.parts.tier().unwrap_or_else(|| self.codes.tier())
    }

    /// The trace as it is stored.
    ///
    /// # Errors
    /// What of it can't be stored.
    pub fn stored(&self, py: Python<'_>) -> Result<Stored, String> {
        store(py, &self.traced, |id| self.checker.object(py, id))
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

    /// What the estimate was made of: see [`Work::counts`](crate::profit::Work::counts); then operations, those of them
    /// that are called without Python, and the frames that stand at the break it ends with.
    #[must_use]
    pub fn counts(&self) -> [u64; 8] {
        let [instructions, frames, modules, members, calls] = self.traced.work.counts();
        let standing = self.traced.ending.standing().unwrap_or(0) as u64;
        let operations = self.graph_nodes() as u64;
        let direct = replay::direct::count(&self.traced.graph) as u64;
        [instructions, frames, modules, members, calls, operations, direct, standing]
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

    /// Whether the graph has so few operations that CPython is as quick: none before a break, or
    /// fewer than `stator.config.min_graph_ops`.
    #[must_use]
    pub fn is_small(&self) -> bool {
        let operations = self.graph_nodes() as u64;
        (operations == 0 && self.breaks()) || operations < config::min_graph_ops()
    }

    /// Whether a replay gives warnings or log records before the program goes on behind it. No frame stands then.
    #[must_use]
    pub fn emits(&self) -> bool {
        let exits = self.traced.exits.iter();
        self.breaks() && !self.traced.emissions.is_empty()
            || exits.map(|exit| &exit.emissions).any(|emissions| !emissions.is_empty())
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

    /// How many of the frames that the trace began in have left where a replay leaves it.
    #[must_use]
    pub fn left_frames(&self, exit: Option<u32>) -> usize {
        self.traced.left(exit).len()
    }

    /// Of a frame that the trace began in, counted from the innermost one, and that has left: the fast
    /// locals that held to the end what they held at the beginning.
    #[must_use]
    pub fn kept_locals(&self, exit: Option<u32>, frame: usize) -> Option<&[u32]> {
        self.traced.left(exit).get(frame).map(AsRef::as_ref)
    }

    /// Whether the trace ends at a graph break.
    #[must_use]
    pub fn breaks(&self) -> bool {
        matches!(self.traced.ending, Ending::Break(_))
    }

    /// Whether the program has come to go another way than the trace: so many replays in a row have left it early
    /// that one which goes that way to its end is worth a recording.
    #[must_use]
    pub fn is_left_behind(&self) -> bool {
        self.leaves.load(Relaxed) >= LEAVES
    }

    /// Whether not all replays do the same: it ends at a graph break, or has a way out of its middle.
    #[must_use]
    pub fn leads_on(&self) -> bool {
        self.breaks() || !self.traced.exits.is_empty()
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
        let program = Program::new(py, &self.traced.graph, &self.traced.graph_objects)?
            .from_callers(&self.traced.callers, &self.traced.graph);
        Ok(self.program.get_or_init(|| program))
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
        let places = ShownPlaces(Places { py, codes: self.traced.callers.codes() });
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
        own.chain(self.assumed()).collect()
    }

    /// What other backends' code assumes, printed.
    fn assumed(&self) -> Vec<String> {
        let of_parts = self.parts.codes().flat_map(Codes::guards);
        self.codes.guards().into_iter().chain(of_parts).collect()
    }

    /// As [`Entry::guards`], each with the place where the value was read.
    #[must_use]
    pub fn guards_with_places(&self, py: Python<'_>) -> Vec<String> {
        let print = |guard: &Guard| {
            // The global state isn't read at a place of the program.
            let place = match guard.kind {
                GuardKind::GlobalState(_) | GuardKind::Accelerator(_) => None,
                _ => self.place_of(py, guard),
            };
            let place = place.map_or_else(String::new, |at| format!("  # {at}"));
            let lines = self.checker.print(py, &self.traced.sources, guard);
            lines.into_iter().map(move |line| line + &place)
        };
        let own = self.traced.guards.iter().flat_map(print);
        own.chain(self.assumed()).collect()
    }

    /// What a replay writes to outside objects, one line each with the place of the last write.
    #[must_use]
    pub fn side_effects(&self, py: Python<'_>) -> Vec<String> {
        let print = |store: &effects::Store| {
            let place =
                self.place(py, store.place).map_or_else(String::new, |at| format!("  # {at}"));
            self.traced.print_store(py, store) + &place
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

    /// Whether a replay makes frames: those behind a break or an exit, or those that a warning is given from.
    #[must_use]
    pub fn makes_frames(&self) -> bool {
        self.leads_on() || !self.traced.emissions.is_empty()
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
        let places = Places { py, codes: self.traced.callers.codes() };
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
        self.traced.callers.traverse(visit)?;
        self.parts.traverse(visit)?;
        self.codes.traverse(visit)
    }
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
