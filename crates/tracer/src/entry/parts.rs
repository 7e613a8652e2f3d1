//! What other backends make of the parts of a graph that holds steps of Stator's own.
//!
//! A part is given to the backend where a replay comes to it, with what it is given there: so PyTorch's modes are in
//! force, and gradients lead where they lead. Until then, and where there is to be no code, it's run by a program of its own.
//! A backend that fails on a part isn't asked for the others: the trace is replayed from then on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use smallvec::SmallVec;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::{Asking, Deferred};
use stator_faults::{self as faults, Stage};
use stator_graph::{Graph, NodeId};

use super::replaying::{outputs_of, refusal, run_code};
use super::taken_back::{Done, Ended};
use super::{Entry, Replay};
use crate::codes::{Backend, Code, Codes, Search, Trust};
use crate::config::When;
use crate::replay::{self, Cut, Early, Failure, Pass, Program, Unrun};
use crate::rollback;
use crate::sharing::Sharing;
use crate::symbolic;
use crate::trace::Traced;
use crate::undo;
use crate::writes::Writes;

/// The parts of an entry's graph.
pub(super) struct Parts {
    /// The graph's program, with a step for each part.
    pub(super) program: Program,
    cut: Cut,
    all: Box<[Part]>,
    /// What is told of code that gives something else than outputs.
    backend: Py<PyAny>,
    /// Whether the backend isn't asked any more.
    given_up: AtomicBool,
}

/// One of them.
struct Part {
    graph: Graph,
    /// Without a backend.
    program: Program,
    codes: Codes,
    /// Whether it writes to what it's given.
    may_write: bool,
}

impl Parts {
    fn new(
        py: Python<'_>,
        traced: &Traced,
        graph: &Graph,
        cut: Cut,
        backend: &Backend,
    ) -> PyResult<Self> {
        let objects = &traced.graph_objects;
        let program = Program::cut(py, graph, objects, &cut)?;
        let part = |part: &replay::Part| {
            let graph = graph.part(part.nodes.clone(), &part.inputs, &part.outputs);
            let mut writes = Writes::default();
            writes.advance(&graph, &|_| false);
            let program = Program::new(py, &graph, objects)?;
            // Some operations write and don't look like it.
            let may_write = !writes.written.is_empty() || !traced.written.is_empty();
            Ok(Part { program, graph, codes: Codes::default(), may_write })
        };
        let all = cut.parts.iter().map(part).collect::<PyResult<_>>()?;
        let (backend, given_up) = (backend.callable.clone_ref(py), AtomicBool::new(false));
        Ok(Self { program, cut, all, backend, given_up })
    }

    /// Whether the backend is asked for code of any part.
    fn are_for_backends(&self) -> bool {
        !self.all.is_empty() && !self.given_up.load(Relaxed)
    }

    /// The backend isn't asked any more; and why, if it has failed.
    fn give_up(&self, why: Option<&str>) {
        self.given_up.store(true, Relaxed);
        self.all.iter().for_each(|part| part.codes.fail(why.map(String::from)));
    }

    /// What runs most of them, in a word, and why, if there is something to say.
    pub(super) fn tier(&self) -> (&'static str, Option<String>) {
        let mut tiers = self.all.iter().map(|part| part.codes.tier());
        let nothing = Codes::default().tier();
        let compiled = tiers.clone().find(|(tier, _)| *tier == Trust::COMPILED);
        compiled.or_else(|| tiers.find(|(tier, _)| *tier != nothing.0)).unwrap_or(nothing)
    }

    /// The codes of all parts.
    pub(super) fn codes(&self) -> impl Iterator<Item = &Codes> {
        self.all.iter().map(|part| &part.codes)
    }

    /// As [`Entry::traverse`].
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.backend)?;
        self.codes().try_for_each(|codes| codes.traverse(visit))
    }

    /// The node that a part begins with.
    fn first(&self, part: u32) -> NodeId {
        NodeId::new(self.cut.parts[part as usize].nodes.start)
    }

    /// The code that has served these inputs.
    fn served(&self, part: u32, inputs: &[Borrowed<'_, '_>]) -> Option<Arc<Code>> {
        let part = &self.all[part as usize];
        match part.codes.find(&part.sharing(inputs)?, inputs) {
            Search::Found(code) => Some(code),
            _ => None,
        }
    }
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
    ) -> Result<Object<'py>, Unrun> {
        let part = &self.all[part as usize];
        let Some(sharing) = part.sharing(inputs) else { return part.replay(py, inputs) };
        match part.codes.find(&sharing, inputs) {
            Search::Found(code) if code.trust() == Trust::Trusted => {
                let returned = run_code(py, &code, inputs).map_err(Unrun::Code)?;
                match outputs_of(&returned, &part.graph) {
                    Ok(Some(_)) => Ok(returned),
                    Ok(None) => Err(Unrun::Code(refusal(&self.backend, &part.graph, &returned))),
                    Err(error) => Err(Unrun::Code(error)),
                }
            }
            Search::Missing if !self.given_up.load(Relaxed) => Err(Unrun::Missing),
            _ => part.replay(py, inputs),
        }
    }
}

impl Entry {
    /// The parts of the graph; `None`: it has none, as all of it is for the backend.
    pub(super) fn parts(&self, py: Python<'_>, backend: &Backend) -> PyResult<Option<&Parts>> {
        if let Some(parts) = self.parts.get() {
            return Ok(parts.as_ref());
        }
        let graph = self.readable();
        let parts = match Cut::of(graph) {
            None => None,
            Some(cut) => Some(Parts::new(py, &self.traced, graph, cut, backend)?),
        };
        Ok(self.parts.get_or_init(|| parts).as_ref())
    }

    /// What runs the parts of a graph that has some, if the backend is asked for code of them by now; `None`: they are
    /// replayed like the rest.
    pub(super) fn run_parts<'e>(
        &self,
        py: Python<'_>,
        parts: &'e Parts,
        backend: &Backend,
    ) -> PyResult<Option<&'e Parts>> {
        if !parts.are_for_backends() {
            return Ok(None);
        }
        if backend.when() == When::Background && !backend.is_waited_for(py)? {
            if backend.said().is_some() {
                parts.give_up(None);
                let told = (self.graph_nodes(), self.beginning(py));
                backend.callable.bind(py).call_method1("refuse_parts", told)?;
                return Ok(None);
            }
            if self.served.load(Relaxed) < 2 {
                return Ok(None);
            }
        }
        if self.has_varying_sizes() && backend.callable.bind(py).getattr("is_torch")?.extract()? {
            // PyTorch's compilers take sizes for constants.
            return Ok(None);
        }
        Ok(Some(parts))
    }

    /// Whether sizes are symbols.
    fn has_varying_sizes(&self) -> bool {
        let slots = self.traced.symbolic.iter().flat_map(|symbolic| &symbolic.slots);
        let mut parts = slots.map(|slot| slot.part);
        parts.any(|part| !part.is_float() && !matches!(part, symbolic::Part::Middle))
    }

    /// The parts are replayed from now on.
    pub(super) fn stop_asking(&self) {
        self.parts.get().into_iter().flatten().for_each(|parts| parts.give_up(None));
    }

    /// A replay has come to a part for which there is no code yet. It can go on behind that.
    ///
    /// # Errors
    /// What the backend raises that is to be seen, or Stator's own error.
    #[cold]
    pub(super) fn compile_part<'py>(
        &self,
        py: Python<'py>,
        backend: &Backend,
        number: u32,
        inputs: &[Borrowed<'_, 'py>],
        done: &mut Done<'_, 'py>,
    ) -> Result<(), Ended<'py>> {
        let Some(Some(parts)) = self.parts.get() else { unreachable!("they run") };
        faults::at(Stage::Export)?;
        let part = &parts.all[number as usize];
        let Some(sharing) = part.sharing(inputs) else { return Ok(()) };
        let description = self.describe(py, &part.graph)?;
        let example = PyList::new(py, inputs)?;
        // It may compile for long, and the program's handlers are to run.
        drop(done.deferred.take());
        let made = backend.callable.bind(py).call1((description, example));
        let deferred = done.deferred.insert(Deferred::new(py));
        if let Some(running) = &mut done.running {
            running.ask(Some(Asking::new(deferred)));
        }
        match made {
            Err(error) => Err(self.stopped_by(py, parts.first(number), error, done)),
            Ok(made) if made.is_instance_of::<PyString>() => {
                parts.give_up(made.extract().ok());
                Ok(())
            }
            Ok(made) => {
                let code = Code::new(&made, sharing, inputs, &self.traced, Trust::Trusted)?;
                let code = if self.has_varying_sizes() { code } else { code.only_for(inputs) };
                code.log(py);
                part.codes.add(code, inputs);
                Ok(())
            }
        }
    }

    /// What a backend has raised that is to be seen, and not told of as its failure: the call ends, and what it did is
    /// taken back where that can be.
    #[cold]
    fn stopped_by<'py>(
        &self,
        py: Python<'py>,
        first: NodeId,
        error: PyErr,
        done: &mut Done<'_, 'py>,
    ) -> Ended<'py> {
        if error.get_type(py).name().is_ok_and(|name| name == "InternalError") {
            return Ended::Own(error);
        }
        done.failed = Some(first);
        let is_undone =
            !undo::has_called(&self.traced, first) && self.can_take_back(py, done).unwrap_or(false);
        let taken = if is_undone {
            self.take_back(py, std::mem::take(done))
        } else {
            done.running = None;
            let traced = &self.traced;
            rollback::restore_modes(py, &traced.graph, &traced.guards, Some(first))
        };
        Replay::Failed(taken.err().unwrap_or(error)).into()
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
        let Some(Some(parts)) = self.parts.get() else { unreachable!("they run") };
        let last = parts.cut.parts[number as usize].last();
        let code = parts.served(number, given);
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
