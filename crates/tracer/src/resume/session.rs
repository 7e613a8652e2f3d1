//! What one recorded call brings: traces, breaks, and whether the first trace can be replayed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stator_cpython::code::Code;
use stator_faults::Fault;

use super::point::Points;
use crate::breaks::{Break, Place, Reason};
use crate::clock::{self, Span};
use crate::entry::Entry;
use crate::frames::anatomy::Anatomy;
use crate::locate::shown_path;
use crate::profit::Estimate;
use crate::program_rules::Rules;

/// What came of the trace that began at the compiled function's entry.
pub enum Root {
    /// It can be replayed, up to the first break at least.
    Traced(Arc<Entry>),
    /// It can't, and no other try would end otherwise.
    Failed(Break),
    /// It can't, but the next call knows where to break.
    Retry(Break),
}

/// Once known traces with so many operations were met, the recording brings nothing new: it's in a loop.
const WATCHED: usize = 1024;

/// A new trace pays for so many times its operations. If each let the recording begin to count anew, a loop of which some
/// rounds are new would be recorded nearly to its end.
const WORTH: usize = 4;

/// What counts for a trace beside its operations.
const TRACE: usize = 8;

/// The recording of one call.
pub struct Session {
    /// The compiled function's resume points.
    pub points: Arc<Points>,
    /// How many traces a resume point may have.
    pub limit: usize,
    /// How many traces there were that begin at the call itself.
    pub at_entry: usize,
    /// Whether traces are replayed as they are: other backends know less of what tensors can do.
    pub is_eager: bool,
    /// Whether all of a graph has to be for a backend: nothing is a step of Stator's own.
    pub is_whole: bool,
    /// Whether a break is an error.
    pub fullgraph: bool,
    /// `stator.compile`'s `dynamic`.
    pub dynamic: Option<bool>,
    /// Where a tensor program is traced: the rules for that.
    pub program: Option<Rules>,
    root: RefCell<Option<Root>>,
    made: RefCell<Vec<Arc<Entry>>>,
    /// Operations of the known traces that were met, less what new ones have paid for.
    watched: Cell<usize>,
    breaks: RefCell<Vec<Break>>,
    tried_again: Cell<bool>,
    broken_mark: RefCell<Option<BrokenMark>>,
    estimate: Cell<Estimate>,
    began: clock::Start,
    /// Nanoseconds after which it's abandoned.
    pub allowance: Option<u64>,
    asked: RefCell<Option<Asked>>,
    /// Stator's own error that ended it.
    fault: RefCell<Option<Fault>>,
    /// What is known of the code objects that breaks look at, by address.
    anatomies: RefCell<FxHashMap<usize, Option<Rc<Anatomy>>>>,
    /// Whether the call has begun to be executed.
    begun: Cell<bool>,
    /// How many instructions were marked when it began.
    marks: usize,
}

/// Where `torch.compiler.is_compiling()` was answered false first, and how many breaks came before.
pub struct Asked {
    place: Place,
    breaks: usize,
}

impl Asked {
    /// What the report of a break says of it: plain execution may read data that the path made for tracers
    /// doesn't.
    #[must_use]
    pub fn note(&self, index: usize, stop: &Break) -> Option<String> {
        let reads = matches!(stop.reason, Reason::DataRead | Reason::DynamicOutput);
        let Place { file, line, function } = &self.place;
        (reads && index >= self.breaks).then(|| {
            let file = shown_path(file);
            format!(
                "\n  Note: torch.compiler.is_compiling() was False, as in plain Python, at {file}:{line} in {function};\n        \
                 stator.compile(..., is_compiling=True) takes the path made for tracers"
            )
        })
    }
}

/// A dimension that is marked as dynamic and wasn't kept so, and why.
pub type BrokenMark = (String, String);

/// What a session has brought.
pub struct Brought {
    /// The first trace; `None` if the call began at a resume point, or raised too early.
    pub root: Option<Root>,
    /// All new traces, in the order of execution.
    pub made: Vec<Arc<Entry>>,
    /// The breaks, in the order of execution.
    pub breaks: Vec<Break>,
    /// The first dimension that had to stay symbolic and didn't.
    pub broken_mark: Option<BrokenMark>,
    /// Where plain execution was asked for its answer.
    pub asked: Option<Asked>,
}

impl Brought {
    /// The first trace, if it can be replayed.
    #[must_use]
    pub fn entry(&self) -> Option<Arc<Entry>> {
        match &self.root {
            Some(Root::Traced(entry)) => Some(entry.clone()),
            _ => None,
        }
    }
}

impl Session {
    /// Whether traces may hold steps of Stator's own: decisions, numbers that were read, texts, backward passes. Where
    /// there is another backend it gets the parts between them (`replay/cut.rs`).
    #[inline]
    pub fn takes_steps(&self) -> bool {
        self.program.is_none() && !self.is_whole
    }

    /// Whether Stator replays the traces itself: they may also hold what would have to be a step of its own and part
    /// of a graph at once, as sizes that data decides and code within a node.
    #[inline]
    pub fn is_replayed(&self) -> bool {
        self.is_eager && self.takes_steps()
    }

    /// Nothing yet.
    #[must_use]
    pub fn new(
        points: Arc<Points>,
        limit: usize,
        fullgraph: bool,
        dynamic: Option<bool>,
        is_eager: bool,
    ) -> Self {
        let marks = points.mark_count();
        Self {
            points,
            limit,
            at_entry: 0,
            is_eager,
            is_whole: false,
            fullgraph,
            dynamic,
            program: None,
            root: RefCell::default(),
            made: RefCell::default(),
            watched: Cell::default(),
            breaks: RefCell::default(),
            tried_again: Cell::new(false),
            broken_mark: RefCell::default(),
            estimate: Cell::default(),
            began: clock::start(),
            allowance: None,
            asked: RefCell::default(),
            fault: RefCell::default(),
            anatomies: RefCell::default(),
            begun: Cell::new(false),
            marks,
        }
    }

    /// The session of a tensor program's trace.
    #[must_use]
    pub fn for_program(rules: Rules) -> Self {
        let session = Self::new(Arc::default(), 0, true, Some(false), true);
        Self { program: Some(rules), ..session }
    }

    /// What is known of a code object; each is looked at once in a call, however often it breaks.
    pub fn anatomy(&self, code: &Code<'_>) -> Option<Rc<Anatomy>> {
        let mut known = self.anatomies.borrow_mut();
        let found = known.entry(code.as_ptr() as usize);
        found.or_insert_with(|| Anatomy::of(code).map(Rc::new)).clone()
    }

    /// The first trace is complete.
    pub fn traced(&self, entry: Arc<Entry>) {
        *self.root.borrow_mut() = Some(Root::Traced(entry));
    }

    /// The first trace can't be replayed.
    pub fn fail(&self, stop: Break) {
        self.root.borrow_mut().get_or_insert(Root::Failed(stop));
    }

    /// The first trace has to be made again.
    pub fn retry(&self, stop: Break) {
        self.root.borrow_mut().get_or_insert(Root::Retry(stop));
    }

    /// A trace was refused at its end; the next one ends in time. `is_root`: it was the first one.
    pub fn try_again(&self, is_root: bool, stop: Break) {
        self.tried_again.set(true);
        if is_root {
            self.retry(stop);
        }
    }

    /// Whether the last trace is to be made again.
    pub fn is_tried_again(&self) -> bool {
        self.tried_again.take()
    }

    /// A trace was made.
    pub fn made(&self, entry: Arc<Entry>) {
        let paid = WORTH * (entry.graph_nodes() + TRACE);
        self.watched.update(|watched| watched.saturating_sub(paid));
        self.made.borrow_mut().push(entry);
    }

    /// A trace doesn't keep what a user has marked.
    pub fn broke_mark(&self, mark: BrokenMark) {
        self.broken_mark.borrow_mut().get_or_insert(mark);
    }

    /// `torch.compiler.is_compiling()` was answered false at this place.
    pub fn asked(&self, place: impl FnOnce() -> Place) {
        let breaks = self.breaks.borrow().len();
        self.asked.borrow_mut().get_or_insert_with(|| Asked { place: place(), breaks });
    }

    /// Another such call would replay a trace with this estimate here.
    pub fn replays(&self, estimate: Estimate) {
        self.estimate.set(self.estimate.get() + estimate);
    }

    /// The estimate of the recorded part of the call.
    pub fn estimate(&self) -> Estimate {
        self.estimate.get()
    }

    /// The recording has come to where a known trace begins. Whether it is worth to watch what comes behind it.
    pub fn watches(&self, entry: &Entry) -> bool {
        let watched = self.watched.get();
        self.watched.set(watched + entry.graph_nodes() + TRACE);
        watched < WATCHED
    }

    /// Whether another such call would be recorded differently: breaks were met too late.
    pub fn is_unfinished(&self) -> bool {
        self.points.mark_count() > self.marks
    }

    /// A break was met.
    pub fn broke(&self, stop: Break) {
        self.breaks.borrow_mut().push(stop);
    }

    /// Whether its last trace has become too long: another one would, too.
    pub fn is_too_long(&self) -> bool {
        self.breaks.borrow().last().is_some_and(|last| last.reason == Reason::Length)
    }

    /// Nanoseconds since it began.
    pub fn took(&self) -> u64 {
        self.began.took(Span::Recording)
    }

    /// Whether it has taken more than it may.
    pub fn is_overdue(&self) -> bool {
        self.allowance.is_some_and(|allowance| self.took() > allowance)
    }

    /// The call is executed from now on.
    pub fn begins(&self) {
        self.begun.set(true);
    }

    /// Whether something of the call may have been executed.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Stator has failed; what failed first counts.
    pub fn fault(&self, fault: Fault) {
        self.fault.borrow_mut().get_or_insert(fault);
    }

    /// Stator's own error, if there was one.
    pub fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    /// What it has brought.
    pub fn finish(&self) -> Brought {
        Brought {
            root: self.root.take(),
            made: self.made.take(),
            breaks: self.breaks.take(),
            broken_mark: self.broken_mark.take(),
            asked: self.asked.take(),
        }
    }
}
