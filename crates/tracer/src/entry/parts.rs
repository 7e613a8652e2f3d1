//! What other backends make of the parts of a graph that holds steps of Stator's own.
//!
//! A part is given to the backend where a replay comes to it, with what it is given there: so PyTorch's modes are in
//! force, and gradients lead where they lead. Until there is code, and where there is to be none, it's run by a program of its own.
//! A backend that fails on a part is asked for the others, until it fails on a second one for the same reason: then it misses
//! something that no part has to do with, and the trace is replayed from then on.
//!
//! Where nobody waits, a call hands over all parts that it comes to, which takes no longer than a graph that isn't cut. What
//! was made is compared for one part a call: that takes several runs of it.

use std::sync::{Arc, Mutex, OnceLock};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Thread;
use stator_graph::names::Names;
use stator_graph::{Graph, NodeId};

use super::beside::{Unit, take_time};
use super::replaying::{outputs_of, refusal, run_code};
use super::taken_back::{Done, Ended};
use super::{Entry, Replay};
use crate::clock::{self, Span};
use crate::codes::{Backend, Code, Codes, REPLAYED, Search, Trust};
use crate::declined::Declined;
use crate::jobs::Stand;
use crate::locate::{Places, Remembered};
use crate::lock;
use crate::pace::Turn;
use crate::replay::{self, Care, Cut, Early, Failure, Pass, Program, Unrun};
use crate::rollback;
use crate::sharing::Sharing;
use crate::symbolic;
use crate::trace::Traced;
use crate::undo;
use crate::writes::Writes;

/// The parts of an entry's graph, which are made when a backend is to be asked for their code.
#[derive(Default)]
pub(super) struct Parts {
    /// Where the graph is cut; `None`: all of it is for the backend.
    cut: OnceLock<Option<Cut>>,
    /// Those of the whole graph.
    names: OnceLock<Names>,
    made: OnceLock<Made>,
    /// The backend isn't asked any more: what that is in a word, and why, if there is something to say.
    given_up: OnceLock<(&'static str, Option<String>)>,
    /// How the backend has failed on parts.
    failures: Mutex<Vec<String>>,
}

/// A graph in parts.
struct Made {
    /// The graph's program, with a step for each part.
    program: Program,
    parts: Box<[Part]>,
    /// What is told of code that gives something else than outputs, or is slower than the replay.
    backend: Py<PyAny>,
    /// Whether code is used only if it is quicker than the replay.
    is_timed: bool,
}

/// A part.
pub(super) struct Part {
    /// Without a backend.
    pub(super) program: Program,
    pub(super) codes: Codes,
    /// Whether it writes to what it's given.
    pub(super) may_write: bool,
    /// How many tensors it gives.
    outputs: usize,
    /// How many operations it has, and where the first one stands, as in a traceback.
    pub(super) extent: (usize, Option<String>),
}

impl Parts {
    /// The backend isn't asked any more.
    pub(super) fn give_up(&self, tier: &'static str, why: Option<&str>) {
        let _ = self.given_up.set((tier, why.map(String::from)));
        // What is compiled is of no use any more.
        self.codes().for_each(Codes::drop_pending);
    }

    /// The backend has failed on a part.
    pub(super) fn fail(&self, number: u32, why: String) {
        let is_known = self.failures().contains(&why);
        self.part(number).codes.fail(Some(why.clone()));
        if is_known {
            self.give_up(Trust::FAILED, Some(&why));
        } else {
            lock(&self.failures).push(why);
        }
    }

    /// How the backend has failed on parts so far.
    pub(super) fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// What is done about them or runs most of them, in a word, and why, if there is something to say; `None`: the graph
    /// has none.
    pub(super) fn tier(&self) -> Option<(&'static str, Option<String>)> {
        self.cut.get()?.as_ref()?;
        if let Some(said) = self.given_up.get() {
            return Some(said.clone());
        }
        let tiers: Vec<_> = self.codes().map(Codes::tier).collect();
        let first = |stand: Stand| tiers.iter().find(move |(tier, _)| *tier == stand.name());
        if let Some(under_way) = first(Stand::Compiling).or_else(|| first(Stand::Waiting)) {
            return Some(under_way.clone());
        }
        let compiled = tiers.iter().find(|(tier, _)| *tier == Trust::COMPILED);
        let other = || tiers.iter().find(|(tier, _)| *tier != REPLAYED);
        let told = || tiers.iter().find(|(_, why)| why.is_some());
        let Some((tier, why)) = compiled.or_else(other).or_else(told) else {
            return Some((REPLAYED, None));
        };
        let is_another = |(other, why): &&(&str, Option<String>)| other != tier && why.is_some();
        let others: Vec<_> = tiers.iter().filter(is_another).collect();
        let Some((_, Some(first))) = others.first() else { return Some((*tier, why.clone())) };
        let are = if let [_] = others[..] { "one is" } else { &format!("{} are", others.len()) };
        let replayed = format!("of {} parts, {are} replayed: {first}", tiers.len());
        let why = why.as_ref().map_or_else(|| replayed.clone(), |why| format!("{why}; {replayed}"));
        Some((*tier, Some(why)))
    }

    /// The codes of all parts.
    pub(super) fn codes(&self) -> impl Iterator<Item = &Codes> {
        self.made.get().into_iter().flat_map(|made| made.parts.iter().map(|part| &part.codes))
    }

    /// As [`Entry::traverse`].
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(made) = self.made.get() {
            visit.call(&made.backend)?;
        }
        self.codes().try_for_each(|codes| codes.traverse(visit))
    }

    fn made(&self) -> &Made {
        self.made.get().expect("they run")
    }

    /// The graph's program, with a step for each part.
    pub(super) fn program(&self) -> &Program {
        &self.made().program
    }

    /// One of them.
    pub(super) fn part(&self, number: u32) -> &Part {
        &self.made().parts[number as usize]
    }

    /// The graph of one of them; `whole`: the graph that they are parts of.
    pub(super) fn graph(&self, whole: &Graph, number: u32) -> Graph {
        part_of(whole, self.names(whole), self.place(number))
    }

    fn names(&self, whole: &Graph) -> &Names {
        self.names.get_or_init(|| Names::new(whole))
    }

    /// Where one of them lies in the graph.
    fn place(&self, part: u32) -> &replay::Part {
        let cut = self.cut.get().and_then(Option::as_ref);
        &cut.expect("they run").parts[part as usize]
    }
}

impl Made {
    fn new(
        py: Python<'_>,
        traced: &Traced,
        graph: &Graph,
        names: &Names,
        cut: &Cut,
        backend: &Backend,
        extent: &dyn Fn(&Graph) -> (usize, Option<String>),
    ) -> PyResult<Self> {
        let objects = &traced.graph_objects;
        let part = |place: &replay::Part| {
            let graph = part_of(graph, names, place);
            let mut writes = Writes::default();
            writes.advance(&graph, &|_| false);
            let program = Program::new(py, &graph, objects)?.from_callers(&traced.callers, &graph);
            // Some operations write and don't look like it.
            let may_write = !writes.written.is_empty() || !traced.written.is_empty();
            let outputs = place.outputs.len();
            let (codes, extent) = (Codes::default(), extent(&graph));
            Ok(Part { program, codes, may_write, outputs, extent })
        };
        Ok(Self {
            program: Program::cut(py, graph, objects, cut)?.from_callers(&traced.callers, graph),
            parts: cut.parts.iter().map(part).collect::<PyResult<_>>()?,
            backend: backend.callable.clone_ref(py),
            is_timed: backend.is_timed,
        })
    }

    /// Runs a part whose code is trusted: by the code, unless the replay is as quick.
    fn run<'py>(
        &self,
        py: Python<'py>,
        part: &Part,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>, Unrun> {
        if !self.is_timed || code.pace().is_decided() {
            return self.run_code(py, part, code, inputs);
        }
        match code.pace().turn() {
            Turn::Code => self.run_code(py, part, code, inputs),
            Turn::Replay => part.replay(py, inputs),
            Turn::Timed(span) => {
                let began = clock::start();
                let outputs = match span {
                    Span::Code => self.run_code(py, part, code, inputs),
                    _ => part.replay(py, inputs),
                }?;
                take_time(code.pace(), span, began, inputs, &outputs);
                Ok(outputs)
            }
            Turn::Slower(measured) => {
                if code.settle(Trust::Slower) {
                    let (operations, trace) = &part.extent;
                    let told = (*operations, trace.as_ref(), measured.to_string());
                    let told = self.backend.bind(py).call_method1("slower", told);
                    told.map_err(Unrun::Own)?;
                }
                part.replay(py, inputs)
            }
        }
    }

    fn run_code<'py>(
        &self,
        py: Python<'py>,
        part: &Part,
        code: &Code,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>, Unrun> {
        let returned = run_code(py, code, inputs).map_err(Unrun::Code)?;
        if let Ok(declined) = returned.cast::<Declined>() {
            code.decline(declined.get());
            return part.replay(py, inputs);
        }
        code.serve();
        match outputs_of(&returned, part.outputs, |_| true) {
            Ok(Some(_)) => Ok(returned),
            Ok(None) => Err(Unrun::Code(refusal(&self.backend, part.outputs, &returned))),
            Err(error) => Err(Unrun::Code(error)),
        }
    }

    /// The code that has served these inputs.
    fn served(&self, part: u32, inputs: &[Borrowed<'_, '_>]) -> Option<Arc<Code>> {
        let part = &self.parts[part as usize];
        match part.codes.find(&part.sharing(inputs)?, inputs) {
            Search::Found(code) => Some(code),
            _ => None,
        }
    }
}

fn part_of(graph: &Graph, names: &Names, place: &replay::Part) -> Graph {
    graph.part(names, place.nodes.clone(), &place.inputs, &place.outputs)
}

impl Part {
    /// How inputs share memory; `None`: in a way that is for no backend.
    fn sharing(&self, inputs: &[Borrowed<'_, '_>]) -> Option<Sharing> {
        if self.may_write { self.codes.sharing(inputs) } else { Some(Sharing::ignored()) }
    }

    /// Runs it without a backend.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>, Unrun> {
        let mut running = self.program.start();
        // It can't be gone on with from its middle: tests let whole replays fail.
        running.set_pass(Pass::Last);
        match running.go_on(py, inputs) {
            Ok(outputs) => PyList::new(py, outputs).map(Bound::into_any).map_err(Unrun::Own),
            Err(Early::Failed(failure)) => Err(Unrun::Node(Failure { is_own: false, ..failure })),
            Err(_) => unreachable!("nobody is asked, and there is no way out of a part"),
        }
    }
}

impl replay::Parts for Parts {
    fn run<'py>(
        &self,
        py: Python<'py>,
        part: u32,
        inputs: &[Borrowed<'_, 'py>],
        care: Care,
    ) -> Result<Object<'py>, Unrun> {
        let made = self.made();
        let part = &made.parts[part as usize];
        let Some(sharing) = part.sharing(inputs) else { return part.replay(py, inputs) };
        match part.codes.find(&sharing, inputs) {
            Search::Found(code) if code.trust() == Trust::Trusted => {
                made.run(py, part, &code, inputs)
            }
            found if care != Care::Nothing && self.given_up.get().is_none() => {
                let has_time = care == Care::All;
                let is_due = match found {
                    // It was made beside the program.
                    Search::Found(_) => has_time,
                    Search::Missing if part.codes.is_pending() => {
                        has_time && part.codes.has_ended()
                    }
                    Search::Missing => has_time || !part.codes.is_waited_for(),
                    Search::Enough => false,
                };
                if is_due { Err(Unrun::Missing) } else { part.replay(py, inputs) }
            }
            _ => part.replay(py, inputs),
        }
    }
}

/// Why code of parts isn't asked for.
const NO_PARTS: &str = "it has no three operations in a row that take tensors and give tensors";

impl Entry {
    /// Where the graph is cut; `None`: all of it is for the backend.
    pub(super) fn cut(&self, backend: &Backend) -> Option<&Cut> {
        let cut = || Cut::of(self.readable(), backend.takes_parts, backend.compiler);
        self.parts.cut.get_or_init(cut).as_ref()
    }

    /// What runs a cut graph, if the backend is asked for code of its parts by now; `None`: they are replayed like
    /// the rest.
    pub(super) fn run_parts(
        &self,
        py: Python<'_>,
        cut: &Cut,
        backend: &Backend,
    ) -> PyResult<Option<&Parts>> {
        let parts = &self.parts;
        if parts.given_up.get().is_some() {
            return Ok(None);
        }
        if cut.parts.is_empty() {
            if backend.takes_parts {
                parts.give_up(REPLAYED, Some(NO_PARTS));
            }
            return Ok(None);
        }
        if parts.made.get().is_some() {
            return Ok(Some(parts));
        }
        let places = Remembered::new(Places { py, codes: self.traced.callers.codes() });
        let extent = |graph: &Graph| Self::extent_of(graph, &places);
        let (graph, names) = (self.readable(), parts.names(self.readable()));
        let made = Made::new(py, &self.traced, graph, names, cut, backend, &extent)?;
        // Another thread may have been quicker.
        let _ = parts.made.set(made);
        Ok(Some(parts))
    }

    /// Whether sizes are symbols.
    pub(super) fn has_varying_sizes(&self) -> bool {
        let slots = self.traced.symbolic.iter().flat_map(|symbolic| &symbolic.slots);
        let mut parts = slots.map(|slot| slot.part);
        parts.any(|part| !part.is_float() && !matches!(part, symbolic::Part::Middle))
    }

    /// The parts are replayed from now on.
    pub(super) fn stop_asking(&self) {
        self.parts.give_up(REPLAYED, None);
    }

    /// A replay has come to a part whose code is to be looked after. It can go on behind that. Whether the backend was only
    /// asked for code, to be compiled beside the program.
    ///
    /// # Errors
    /// What the backend raises that is to be seen, or Stator's own error.
    #[cold]
    pub(super) fn attend_to<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        number: u32,
        inputs: &[Borrowed<'_, 'py>],
        care: Care,
        done: &mut Done<'_, 'py>,
    ) -> Result<bool, Ended<'py>> {
        let first = NodeId::new(self.parts.place(number).nodes.start);
        let codes = &self.parts.part(number).codes;
        let was_pending = codes.is_pending();
        match self.code(py, backend, Unit::Part(number), inputs, care) {
            Ok(_) => Ok(care == Care::Asking || (!was_pending && codes.is_pending())),
            Err(ended) => self.stopped_by(py, first, ended, done).map(|()| false),
        }
    }

    /// What a backend has raised that is to be seen, and not told of as its failure: the call ends, and what it did is
    /// taken back where that can be. Where it can't, and the program has done more than its operations by then, the call
    /// goes on, and what was raised comes at its end, as if it had come from outside.
    ///
    /// # Errors
    /// How the call ends.
    #[cold]
    fn stopped_by<'py>(
        &self,
        py: Python<'py>,
        first: NodeId,
        ended: Ended<'py>,
        done: &mut Done<'_, 'py>,
    ) -> Result<(), Ended<'py>> {
        let error = match ended {
            Ended::Replay(Replay::Failed(error)) => error,
            own => return Err(own),
        };
        done.failed = Some(first);
        let is_undone =
            !undo::has_called(&self.traced, first) && self.can_take_back(py, done).unwrap_or(false);
        let taken = if is_undone {
            self.take_back(py, std::mem::take(done))
        } else {
            let traced = &self.traced;
            if !traced.has_only_computed(first) {
                done.failed = None;
                self.parts.give_up(REPLAYED, None);
                Thread::current(py).raise_later(&error.get_type(py));
                return Ok(());
            }
            done.running = None;
            rollback::restore_modes(py, &traced.graph, &traced.guards, Some(first))
        };
        Err(Replay::Failed(taken.err().unwrap_or(error)).into())
    }

    /// A backend's code for a part has raised.
    #[cold]
    pub(super) fn part_raised<'py>(
        &self,
        py: Python<'py>,
        number: u32,
        given: &[Borrowed<'_, 'py>],
        error: PyErr,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'_, 'py>,
    ) -> Ended<'py> {
        done.running = None;
        let last = self.parts.place(number).last();
        let code = self.parts.made().served(number, given);
        if undo::has_called(&self.traced, last) {
            // Code of the program's own isn't called again.
            let traced = &self.traced;
            let restored = rollback::restore_modes(py, &traced.graph, &traced.guards, Some(last));
            return Replay::Failed(restored.err().unwrap_or(error)).into();
        }
        self.raised_by_code(py, Some(last), code, error, inputs, done)
    }
}

/// Objects as inputs.
pub(super) fn borrowed<'a, 'py>(objects: &'a [Object<'py>]) -> SmallVec<[Borrowed<'a, 'py>; 16]> {
    objects.iter().map(|object| object.as_borrowed()).collect()
}
