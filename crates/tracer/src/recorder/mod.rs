//! The recorder: an observer of the evaluator that turns what the first call does into a graph,
//! guards and recipes.
//!
//! It executes: each site does what CPython would do, and takes notes. When it meets something it
//! can't follow, it stops (see [`notes::above::Ends`]): the frames are handed over to CPython, the call
//! ends as plain Python would end it, and the notes are thrown away.
//!
//! The rooms, each with what it may touch in its `mod.rs`: `notes` hold what is known, `reads`, `calls`,
//! `operations`, `numbers` and `effects` are what the evaluator's sites ask for, `ending` makes a trace of the
//! notes ([`crate::trace`]). Here are the recorder of a thread and its ways in: `sites` implements the
//! evaluator's trait and `steps` what comes before each instruction, `links` knows what waits for a function's
//! result, `places` where the frames stand, `mode` hears operations that C code calls, `programs` records tensor programs (what
//! a room does otherwise there stands in its own `programs`), `contained` catches Stator's own errors, `trace_log` tells the log
//! `trace`. Rooms use `contained`, `links`, `mode` and `places` of these; the others are ways in, which use the rooms.

mod calls;
mod contained;
mod effects;
mod ending;
mod links;
mod mode;
mod notes;
mod numbers;
mod operations;
mod places;
mod programs;
mod reads;
mod sites;
mod steps;
mod trace_log;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::frame::Frame;
use stator_cpython::generic::WithoutGc;
use stator_cpython::object::Borrowed;
use stator_cpython::ops::Executed;
use stator_cpython::thread::Thread;
use stator_faults::{self as faults, Stage};

pub use ending::abandoning::GraphBreak;
pub use ending::outcome::record;
use ending::suspended::Suspended;
pub(crate) use notes::above::Arguments;
use notes::above::Ends;
use notes::capacity::Room;
use notes::frames::{ActiveFrame, Caller};
use notes::heap;
pub use notes::inputs::TensorInput;
use notes::kinds::{Kind, Kinds, is_plain_iterator};
use notes::machinery::Machinery;
pub use notes::state::{Origin, State, Stop};
use numbers::data_sizes::SizedBy;
pub use programs::{Recorded, record_program};

use crate::accelerator::Selected;
use crate::breaks::{Place, Reason, internal};
use crate::functions::Functions;
use crate::logs::Log;
use crate::policy::Carried;
use crate::profit::Tally;
use crate::resume::point::{Point, Spot, Waiting};
use crate::resume::session::Session;
use crate::resume::testing::Breaks;
use crate::rollback::Generators;

/// Records one call on one thread.
pub struct Recorder {
    state: RefCell<State>,
    functions: &'static Functions,
    /// Whether instructions are executed without being recorded.
    stopped: Cell<bool>,
    /// The frame at whose next instruction recording goes on, by address; 0 for none.
    resume: Cell<usize>,
    /// The resume point that the trace began at; none: the compiled function's entry.
    point: RefCell<Option<Arc<Point>>>,
    /// Where it began in the innermost frame then: the frame's address, and the unit.
    began: Cell<(usize, usize)>,
    /// Whether the next trace begins behind an exit, or where the last one had asked enough.
    behind_exit: Cell<bool>,
    /// Whether this one does: it may take over iterators.
    takes_iterators: Cell<bool>,
    /// What CPython does in this trace.
    tally: Tally,
    /// Whether the trace is known already: it's followed to its break, then dropped.
    watching: Cell<bool>,
    /// [`ops::executed`], now and before the current instruction.
    executed: Executed,
    baseline: Cell<u64>,
    /// [`Thread::observers`](stator_cpython::thread::Thread::observers) as the recording began.
    observers: Cell<i32>,
    /// Generators that the trace made.
    suspended: RefCell<Vec<Suspended>>,
    /// Where operations have raised what the program has handled.
    raised: RefCell<Vec<Spot>>,
    /// Where numbers were read from tensors.
    numbers_read: RefCell<Vec<Spot>>,
    /// Which sizes of the results data decides, of the operation that is about to be executed.
    sized: Cell<Option<SizedBy>>,
    /// Whether the next operation takes integers that were read as they come.
    numbered: Cell<bool>,
    /// Whether the nodes of the code that ran within the current operation stay in its place.
    kept: Cell<bool>,
    /// Whether the trace can't stand because of one of these numbers.
    has_leaked: Cell<bool>,
    /// What the current instruction's frame waits for.
    links: links::Links,
    /// What was symbolic when the trace before this one broke.
    carried: RefCell<Carried>,
    /// What plain Python would have in the places of all objects that frames at breaks of this call were left with.
    left_with: RefCell<Carried>,
    /// Whether what ended the trace could have been a part of it, with a way out before the generator that it's in.
    wants_way_around: Cell<bool>,
    /// The frame that waits for C code which reads what Python code called from there returns.
    consumer: Cell<usize>,
    /// The same, if that code makes texts of them.
    speller: Cell<usize>,
    /// The frame, by address, that calls a wrapper which makes an object's text (`reads/recursive_texts.rs`).
    text_taker: Cell<usize>,
    /// The frame that waits for a length, which stays a number that varies.
    measurer: Cell<usize>,
    /// The frame that waits for C code which only keeps what a generator yields.
    collecting: RefCell<Vec<usize>>,
    /// The exception that the compiled function's caller is handling, by address.
    handled_at_entry: usize,
    generators: RefCell<Generators>,
    /// What was selected of the accelerator where the trace begins.
    selected: RefCell<Option<Selected>>,
    gc: RefCell<Option<WithoutGc>>,
    /// The `with` instructions met that only switch PyTorch's modes: code object and unit.
    plain_withs: RefCell<Vec<(Py<PyAny>, usize)>>,
    /// Numbers that were exchanged for others in what a trace left behind.
    exchanged: RefCell<Vec<Py<PyAny>>>,
    session: Rc<Session>,
    /// Whether some instructions are ones to break before: marked, or chosen by a test.
    has_marks: bool,
    /// Under `fullgraph`: what is raised where recording would go on.
    abandoned: RefCell<Option<String>>,
    /// Where a test wants breaks.
    asked: Breaks,
    /// Instructions recorded while a test wants breaks.
    steps: Cell<u64>,
    /// Address of the root frame's code object; the first frame with it is the root.
    root: usize,
    /// The frames of PyTorch's code that stand between a node and the program's code, innermost last.
    between: RefCell<Vec<usize>>,
    entered_root: Cell<bool>,
    trace_log: bool,
    /// Whether there is one of these, or marks, or a bound of time: a step is more than counting then.
    is_watchful: bool,
    /// The ids of functions under `torch.compiler.allow_in_graph`.
    allowed_by_torch: FxHashSet<usize>,
    machinery: Machinery,
    /// For each frame being evaluated, how many of Stator's modes it suspended.
    suspended_modes: RefCell<Vec<mode::Suspended>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
}

/// The recorder of this thread, if a call is being recorded.
#[must_use]
pub fn current() -> Option<Rc<Recorder>> {
    CURRENT.with(|current| current.try_borrow().ok().and_then(|slot| slot.clone()))
}

/// Whether this thread records a call (`stator.is_compiling()`).
#[must_use]
pub fn is_recording() -> bool {
    current().is_some_and(|recorder| !recorder.is_stopped())
}

impl Recorder {
    /// Whether recording has ended before the call did.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        faults::look();
        self.stopped.get()
    }

    /// Whether a frame is to be recorded.
    fn records(&self, frame: &Frame<'_>) -> bool {
        !self.is_stopped() && !self.functions.is_tensor_hash(frame.function())
    }

    /// As [`Ends::stop`] where `result` says so; `None` then.
    fn check<T>(&self, frame: &Frame<'_>, result: Result<T, Stop>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err((reason, detail)) => {
                self.stop(frame, reason, detail);
                None
            }
        }
    }

    /// Runs `notes` on the state, unless recording has ended.
    fn note<T>(
        &self,
        frame: &Frame<'_>,
        notes: impl FnOnce(&mut State) -> Result<T, Stop>,
    ) -> Option<T> {
        if self.stopped.get() {
            return None;
        }
        let result = match self.state.try_borrow_mut() {
            Ok(mut state) => {
                let noted = self.guarded(frame.py(), || {
                    faults::at(Stage::Note).map_err(|fault| internal(&fault))?;
                    state.frames.locate(frame);
                    notes(&mut state)
                });
                match noted? {
                    // Nearly always: nothing is moved about for what hardly happens.
                    Ok(value) if state.failure.is_none() => return Some(value),
                    result => match state.failure.take() {
                        Some(stop) => result.and(Err(stop)),
                        None => result,
                    },
                }
            }
            Err(_) => Err((Reason::Instruction, "code that runs while another is recorded".into())),
        };
        self.check(frame, result)
    }

    /// The origin of an object.
    fn origin(&self, object: Borrowed<'_, '_>) -> Option<Origin> {
        self.state.borrow().origin(object)
    }

    fn kind(&self, object: Borrowed<'_, '_>) -> Kind {
        faults::look();
        self.state.borrow_mut().kind(object)
    }
}

fn place(frame: &Frame<'_>) -> Place {
    let code = frame.code();
    Place {
        file: heap::text(code.filename()),
        line: frame.line().unwrap_or(0),
        function: heap::text(code.qualname()),
    }
}

/// Makes `recorder` the thread's recorder until dropped.
struct Recording(Option<Rc<Recorder>>);

impl Recording {
    fn start(recorder: Rc<Recorder>) -> Self {
        Self(CURRENT.with(|current| current.replace(Some(recorder))))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let previous = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = previous);
    }
}

/// Learns what is learned once for a process by running Python code: that must not happen while a
/// call is recorded.
fn warm_up(py: Python<'_>) {
    use stator_cpython::heap::{iterator, torch, twister, types};
    let class = py.get_type::<pyo3::types::PyType>();
    types::slot(class.as_borrowed(), types::SlotName::GetAttribute);
    torch::get(py);
    iterator::warm_up(py);
    stator_cpython::heap::cached::warm_up(py);
    let _ = stator_cpython::heap::abc::registrations(py);
    let _ = twister::is_known(class.as_any().as_borrowed());
    mode::warm_up(py);
    let _ = is_plain_iterator(&class);
}

/// Builds the tables that recording needs, so that the first call doesn't pay for them.
///
/// # Errors
/// If a module of the standard library lacks what a table names.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    warm_up(py);
    // Of the main thread the C library reads a list of everything that is mapped.
    let _ = stator_cpython::thread::c_stack::room();
    // Any name builds its index.
    let _ = stator_operators::raising("");
    Functions::get(py)?;
    Kinds::new(py)?;
    crate::check::read_usual_states(py)
}

impl Recorder {
    /// A recorder for a call of the function with this code object.
    ///
    /// # Errors
    /// If the tables that recording needs can't be built.
    pub fn new(py: Python<'_>, root: usize, session: Rc<Session>) -> PyResult<Rc<Self>> {
        let handled = Thread::current(py).handled();
        let handled = handled.map_or(0, |handled| handled.as_ptr() as usize);
        let state = State::new(py, &Room::of_last(root))?;
        Ok(Rc::new(Self::with_state(py, root, state, handled, session)?))
    }

    /// A recorder that begins at the next instruction of the innermost of `chain`, if it can. `behind_exit`: a replay has
    /// left there by an exit.
    ///
    /// # Errors
    /// As [`Recorder::new`].
    pub fn behind_break(
        py: Python<'_>,
        chain: &[Waiting<'_>],
        handled: usize,
        behind_exit: bool,
        session: Rc<Session>,
    ) -> PyResult<Rc<Self>> {
        let mut state = State::new(py, &Room::NONE)?;
        for Waiting { frame, .. } in chain {
            let code = state.frames.number(frame);
            let id = frame.id();
            state.frames.enter(ActiveFrame {
                id,
                code,
                caller: Caller::Known(None),
                is_direct: true,
                module: None,
            });
        }
        let root = chain.first().map_or(0, |first| first.frame.code().as_ptr() as usize);
        let mut recorder = Self::with_state(py, root, state, handled, session)?;
        if let Breaks::At(_) = recorder.asked {
            recorder.asked = Breaks::None;
        }
        recorder.stopped.set(true);
        recorder.entered_root.set(true);
        recorder.resume.set(chain.last().map_or(0, |last| last.frame.id()));
        recorder.links.wait_already(chain);
        recorder.behind_exit.set(behind_exit);
        Ok(Rc::new(recorder))
    }

    fn with_state(
        py: Python<'_>,
        root: usize,
        state: State,
        handled_at_entry: usize,
        session: Rc<Session>,
    ) -> PyResult<Self> {
        let has_marks = session.points.has_marks() || Breaks::now() != Breaks::None;
        let trace_log = Log::Trace.is_on();
        let is_bounded = session.allowance.is_some();
        Ok(Self {
            state: RefCell::new(state),
            functions: Functions::get(py)?,
            stopped: Cell::new(false),
            resume: Cell::new(0),
            point: RefCell::new(None),
            began: Cell::default(),
            behind_exit: Cell::new(false),
            takes_iterators: Cell::new(false),
            tally: Tally::default(),
            watching: Cell::new(false),
            executed: Executed::here(),
            baseline: Cell::new(0),
            observers: Cell::new(0),
            suspended: RefCell::default(),
            raised: RefCell::default(),
            numbers_read: RefCell::default(),
            sized: Cell::new(None),
            numbered: Cell::new(false),
            kept: Cell::new(false),
            has_leaked: Cell::new(false),
            links: links::Links::default(),
            carried: RefCell::default(),
            left_with: RefCell::default(),
            wants_way_around: Cell::new(false),
            consumer: Cell::new(0),
            speller: Cell::new(0),
            text_taker: Cell::new(0),
            measurer: Cell::new(0),
            collecting: RefCell::default(),
            handled_at_entry,
            generators: RefCell::default(),
            selected: RefCell::default(),
            gc: RefCell::default(),
            plain_withs: RefCell::default(),
            exchanged: RefCell::default(),
            has_marks,
            abandoned: RefCell::default(),
            asked: Breaks::now(),
            steps: Cell::new(0),
            session,
            root,
            between: RefCell::default(),
            entered_root: Cell::new(false),
            trace_log,
            is_watchful: has_marks || trace_log || faults::is_armed() || is_bounded,
            allowed_by_torch: crate::marks::allowed_by_torch(py),
            machinery: Machinery::default(),
            suspended_modes: RefCell::new(Vec::new()),
        })
    }
}
