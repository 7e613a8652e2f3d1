//! Going on behind a graph break.
//!
//! A replay that ended at a break hands over the state of the frames. They are made again as real
//! frames: each function is called, and where CPython would evaluate the new frame, it's moved to
//! where it stood instead, and the next function is called from there. So what runs natively sees
//! the frames it always sees: in tracebacks, in `sys._getframe`, in exception handlers.
//!
//! The innermost frame then executes the breaking instruction natively. Behind it the state is
//! looked up among the resume points: a trace that fits is replayed (and ends the frames, or leads
//! to the next break); if none fits, one is recorded, in place; or the program runs natively to its
//! end. Where a frame returns to one that waits, the same happens there.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::PySystemError;
use pyo3::prelude::*;
use stator_cpython::frame::{Frame, call_anew};
use stator_cpython::hook::{Active, Evaluated};
use stator_cpython::object::Object;
use stator_cpython::thread::{Deferred, Thread};
use stator_cpython::{Raised, Result};
use stator_evaluator::{Flow, Link, Plain, Resumed, resume};
use stator_faults::{self as faults, Escape, Fault, Stage};

use crate::check::Resolved;
use crate::codes::Backend;
use crate::compiling::{self, Native};
use crate::entry::{Entry, FrameState, Replay, State};
use crate::frames::settle::settles_next;
use crate::frames::stage::{self, Staged};
use crate::frames::tracebacks;
use crate::profit::Estimate;
use crate::recorder::Recorder;
use crate::resume::point::{Chain, Key, Point, Points, Waiting, handled_beyond, roots};
use crate::resume::session::Session;

/// How a frame goes on.
#[expect(clippy::large_enum_variant, reason = "it lives for a moment, and a box costs more")]
enum Next<'py> {
    /// It has left.
    Left(Evaluated<'py>),
    /// It stands at another break.
    Moved(FrameState),
}

/// A trace, what it was found by, and the exception that is being handled where it begins.
type Behind<'py> = (Arc<Entry>, Resolved<'py>, Option<Object<'py>>);

/// How the frames were left when a replay took over.
enum Signal {
    Returned(Py<PyAny>),
    Broke(Box<State>),
    /// As `Broke`; but so many frames stay, of which the last one is moved.
    Moved(usize, Box<State>),
    Failed(PyErr),
}

/// A frame that was made again.
#[derive(Clone, Copy)]
struct Moved {
    /// Its address.
    id: usize,
    /// Where it goes on; known while it waits for another frame.
    next: usize,
    /// How the instruction ends that waits.
    link: Link,
}

/// The compiled function whose call goes on: what it allows behind a break.
pub trait Owner {
    /// What starts behind its graph breaks.
    fn points(&self) -> Arc<Points>;
    /// What runs its graphs.
    fn backend(&self) -> Option<&Backend>;
    /// How many traces may begin at one place.
    ///
    /// # Errors
    /// Those of reading the settings.
    fn limit(&self, py: Python<'_>) -> PyResult<usize>;
    /// Whether nothing may be recorded, because that has cost too much for what it has brought.
    fn is_out_of_budget(&self, py: Python<'_>) -> bool;
    /// A session, if this thread may record now; it is followed by [`Owner::ended`].
    fn begin(&self, py: Python<'_>) -> Option<Rc<Session>>;
    /// The recording has ended.
    fn ended(&self);
}

/// A trace that took over.
#[derive(Clone)]
struct Successor {
    entry: Arc<Entry>,
    /// The exit by which it was left; `None`: at its end.
    left: Option<u32>,
    /// How many frames there were.
    depth: usize,
}

/// One run behind a break.
struct Driver {
    owner: Box<dyn Owner>,
    points: Arc<Points>,
    /// States of the frames that are to be made, outermost first.
    states: RefCell<VecDeque<FrameState>>,
    /// The frames there are.
    frames: RefCell<Vec<Moved>>,
    signal: RefCell<Option<Signal>>,
    /// The trace that took over.
    successor: RefCell<Option<Successor>>,
    /// Warnings and log records of the trace that was replayed last.
    staged: RefCell<Vec<Staged>>,
    /// Once something is recorded, the rest of the call is.
    recording: RefCell<Option<(Rc<Recorder>, Rc<Session>)>>,
    /// The exception that the compiled function's caller is handling, by address.
    handled_at_entry: usize,
    /// What is handled where a state says nothing of it.
    outer: Option<Py<PyAny>>,
    /// Exceptions that get tracebacks once the frames are there.
    raised: RefCell<Vec<tracebacks::Raised>>,
    /// What the innermost frame's instruction has raised in a replay.
    error: RefCell<Option<PyErr>>,
    /// Whether it has: then the rest of the call runs natively. What handles an exception is seldom worth a trace.
    has_raised: Cell<bool>,
    /// The trace that led to the break.
    before: RefCell<Arc<Entry>>,
    /// Whether the last replay has left by an exit.
    behind_exit: Cell<bool>,
    /// The estimates of the traces that were replayed.
    estimate: Cell<Estimate>,
    /// Stator's own error: the rest of the call runs natively.
    fault: RefCell<Option<Fault>>,
}

/// What came of the program behind a break.
pub struct Continued<'py> {
    /// What the compiled function returned or raised.
    pub result: PyResult<Object<'py>>,
    /// The session, if something was recorded.
    pub session: Option<Rc<Session>>,
    /// The estimates of the traces that were replayed behind the break.
    pub estimate: Estimate,
    /// Stator's own error, if there was one: the program has run on natively.
    pub fault: Option<Fault>,
}

thread_local! {
    static DRIVER: RefCell<Option<Rc<Driver>>> = const { RefCell::new(None) };
}

/// Makes a driver the thread's until dropped.
struct Driving(Option<Rc<Driver>>);

impl Driving {
    fn start(driver: Rc<Driver>) -> Self {
        Self(DRIVER.replace(Some(driver)))
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVER.set(self.0.take());
    }
}

/// Goes on from a graph break until the compiled function returns. Natively, if Stator has failed.
pub fn go_on<'py>(
    py: Python<'py>,
    owner: Box<dyn Owner>,
    entry: &Arc<Entry>,
    state: Box<State>,
    fault: Option<Fault>,
) -> Continued<'py> {
    let thread = Thread::current(py);
    let outer = thread.handled_here();
    let driver = Rc::new(Driver {
        points: owner.points(),
        owner,
        states: RefCell::default(),
        frames: RefCell::default(),
        signal: RefCell::default(),
        successor: RefCell::default(),
        staged: RefCell::default(),
        recording: RefCell::default(),
        handled_at_entry: thread.handled().map_or(0, |handled| handled.as_ptr() as usize),
        outer: outer.clone().map(Bound::unbind),
        raised: RefCell::default(),
        error: RefCell::default(),
        has_raised: Cell::default(),
        before: RefCell::new(entry.clone()),
        behind_exit: Cell::new(state.left.is_some()),
        estimate: Cell::default(),
        fault: RefCell::new(fault),
    });
    let _driving = Driving::start(driver.clone());
    let mut state = Some(state);
    let result = loop {
        let Some(now) = state.take() else { unreachable!("each round begins with a state") };
        drop(driver.handle(py, now.handled.as_ref()));
        let result = driver.round(py, *now);
        // The frames are gone: others are made for each of these.
        if let Err(error) = stage::give(py, driver.staged.take()) {
            break Err(error);
        }
        let Some(signal) = driver.signal.take() else {
            break result.map_err(|raised| raised.take(py));
        };
        if let Err(raised) = result {
            // Of a frame that was to be left without a word.
            raised.clear(py);
        }
        match signal {
            Signal::Returned(value) => break Ok(value.into_bound(py)),
            Signal::Failed(error) => break Err(error),
            Signal::Broke(next) | Signal::Moved(_, next) => state = Some(next),
        }
    };
    drop(thread.swap_handled(outer));
    let session = driver.recording.take().map(|(recorder, session)| {
        recorder.close(py, result.as_ref().ok().map(|value| value.as_borrowed()));
        session
    });
    let fault = driver.fault.take();
    Continued { result, session, estimate: driver.estimate.get(), fault }
}

/// The evaluator of frames that are made again.
fn evaluate<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    let driver = DRIVER.with_borrow(Clone::clone);
    let state = driver.as_ref().and_then(|driver| driver.next_state(&frame));
    match driver.zip(state) {
        Some((driver, state)) if !throw => resume(frame, |resumed| {
            let evaluate = || driver.evaluate(resumed, state);
            match catch_unwind(AssertUnwindSafe(evaluate)) {
                Ok(evaluated) => evaluated,
                Err(payload) => driver.contain(resumed, &*payload),
            }
        }),
        _ => compiling::pass_on(py, frame, throw),
    }
}

impl Driver {
    /// Makes the frames and lets them run.
    fn round<'py>(&self, py: Python<'py>, state: State) -> Result<Object<'py>> {
        let function = state.frames[0].function.bind(py).clone();
        *self.raised.borrow_mut() = state.raised;
        *self.error.borrow_mut() = state.error;
        *self.states.borrow_mut() = state.frames.into_iter().collect();
        self.frames.borrow_mut().clear();
        let _active = Active::new(py, evaluate);
        call_anew(function.as_borrowed())
    }

    /// Has the frames handle what a state says; gives what they have handled. All of them are functions' frames, which
    /// share one place for that.
    fn handle<'py>(&self, py: Python<'py>, handled: Option<&Py<PyAny>>) -> Option<Object<'py>> {
        let handled = handled.or(self.outer.as_ref());
        Thread::current(py).swap_handled(handled.map(|handled| handled.bind(py).clone()))
    }

    /// The state of a frame that is to be made, if this is it: others begin in between where a collection
    /// runs the program's code.
    fn next_state(&self, frame: &Frame<'_>) -> Option<FrameState> {
        let mut states = self.states.borrow_mut();
        let is_next = |state: &FrameState| state.function.as_ptr() == frame.function().as_ptr();
        if states.front().is_some_and(is_next) { states.pop_front() } else { None }
    }

    /// Stator's own work for a frame; `None` if it failed. Where that is known to be harmless, the program
    /// goes on natively.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(payload) => {
                *self.fault.borrow_mut() = Some(Fault::of_panic(&*payload));
                None
            }
        }
    }

    /// Stator has failed between the instructions of a frame. If a replay has taken over, what comes next is
    /// known all the same: the frames are made again for it. Otherwise what the frame was to do is lost.
    #[cold]
    fn contain<'py>(
        &self,
        resumed: &mut Resumed<'_, 'py>,
        payload: &(dyn Any + Send),
    ) -> Evaluated<'py> {
        let py = resumed.frame().py();
        let fault = Fault::of_panic(payload);
        if self.leave_for_replay(&fault) {
            return resumed.abandon();
        }
        let error = fault.error(py);
        *self.fault.borrow_mut() = Some(fault);
        resumed.raise(Raised::set(py, error))
    }

    /// Whether a replay has taken over: then the frames are left, and made again if it hasn't ended.
    fn leave_for_replay(&self, fault: &Fault) -> bool {
        let signal = match self.signal.take() {
            None => return false,
            Some(Signal::Moved(_, state)) => Signal::Broke(state),
            Some(signal) => signal,
        };
        *self.signal.borrow_mut() = Some(signal);
        *self.fault.borrow_mut() = Some(fault.clone());
        true
    }

    /// One frame, from where it stood to its end.
    fn evaluate<'py>(&self, resumed: &mut Resumed<'_, 'py>, state: FrameState) -> Evaluated<'py> {
        let frame = resumed.frame();
        let py = frame.py();
        if frame.code().as_ptr() as usize != state.code {
            let message = "Stator has a bug: a frame of another function stands at a break";
            return resumed.raise(Raised::set(py, PySystemError::new_err(message)));
        }
        let depth = self.frames.borrow().len();
        let mut state = state;
        let evaluated = loop {
            let moved = Moved { id: frame.id(), next: state.next, link: state.link };
            self.frames.borrow_mut().truncate(depth);
            self.frames.borrow_mut().push(moved);
            let FrameState { locals, stack, current, next, last, link, .. } = state;
            let inner = self.states.borrow().front().map(|inner| inner.function.clone_ref(py));
            // Where it is to raise, the instruction has been executed.
            let is_behind = inner.is_none() && self.error.borrow().is_some();
            let (current, next) = if is_behind { (last, last + 1) } else { (current, next) };
            resumed.restore(py, locals, stack, current, next);
            let flow = match inner {
                None => {
                    let _native = Native::new(py);
                    let attached = self.guarded(|| {
                        faults::at(Stage::Made)?;
                        self.attach_tracebacks(resumed)
                    });
                    if let Some(Err(error)) = attached {
                        match Escape::of(py, error) {
                            Escape::Fault(fault) => *self.fault.borrow_mut() = Some(fault),
                            Escape::Raised(error) => {
                                return resumed.raise(Raised::set(py, error));
                            }
                        }
                    }
                    match self.error.take() {
                        None => resumed.through(last),
                        Some(error) => {
                            self.has_raised.set(true);
                            raise(py, resumed, error)
                        }
                    }
                }
                Some(function) => {
                    let result = call_anew(function.bind(py).as_borrowed());
                    self.frames.borrow_mut().truncate(depth + 1);
                    if let Some(moved) = self.move_to(py, depth + 1) {
                        state = moved;
                        continue;
                    }
                    if self.signal.borrow().is_some() {
                        return self.abandon(resumed);
                    }
                    self.complete(resumed, result, link)
                }
            };
            let next = match flow {
                Flow::Left(evaluated) => Next::Left(evaluated),
                Flow::Next => self.go_on(resumed),
            };
            match next {
                Next::Left(evaluated) => break evaluated,
                Next::Moved(next) => state = next,
            }
        };
        self.frames.borrow_mut().pop();
        // What the frame has given is there: what fails now isn't the call.
        self.guarded(|| {
            if let Some((recorder, _)) = &*self.recording.borrow() {
                recorder.left(&frame);
            }
        });
        evaluated
    }

    /// Ends the instruction that has waited for a frame.
    fn complete<'py>(
        &self,
        resumed: &mut Resumed<'_, 'py>,
        result: Result<Object<'py>>,
        link: Link,
    ) -> Flow<'py> {
        let py = resumed.frame().py();
        let recorder = self.recording.borrow().as_ref().map(|(recorder, _)| recorder.clone());
        match recorder {
            Some(recorder) => {
                recorder.evaluating(py, || resumed.complete(result, link, &*recorder))
            }
            None => {
                let _native = Native::new(py);
                resumed.complete(result, link, &Plain)
            }
        }
    }

    /// The rest of a frame.
    fn go_on<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Next<'py> {
        let py = resumed.frame().py();
        if self.fault.borrow().is_some() || self.has_raised.get() {
            return Next::Left(natively(py, resumed));
        }
        let payload = match catch_unwind(AssertUnwindSafe(|| self.find_next(resumed))) {
            Ok(next) => return next,
            Err(payload) => payload,
        };
        let fault = Fault::of_panic(&*payload);
        if self.leave_for_replay(&fault) {
            return Next::Left(resumed.abandon());
        }
        *self.fault.borrow_mut() = Some(fault);
        Next::Left(natively(py, resumed))
    }

    fn find_next<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Next<'py> {
        let py = resumed.frame().py();
        if let Err(fault) = faults::at(Stage::Behind) {
            *self.fault.borrow_mut() = Some(fault);
            return Next::Left(natively(py, resumed));
        }
        if let Some(evaluated) = self.record(resumed) {
            return Next::Left(evaluated);
        }
        let (entry, resolved, handled) = match self.known_behind(resumed) {
            Ok(found) => found,
            Err(evaluated) => return Next::Left(evaluated),
        };
        let mut staged = Vec::new();
        let backend = self.owner.backend();
        let replayed = match entry.replay(py, &resolved, backend, &mut staged) {
            Replay::Mended(fault, replayed) => {
                *self.fault.borrow_mut() = Some(fault);
                *replayed
            }
            replayed => replayed,
        };
        let signal = match replayed {
            Replay::Done(value) => Signal::Returned(value.unbind()),
            Replay::Broke(state) => Signal::Broke(state),
            Replay::Mended(..) => unreachable!("a replay is mended once"),
            Replay::Blamed(error, code) => {
                return Next::Left(natively(py, resumed).and_then(|evaluated| {
                    let blamed = match backend {
                        Some(backend) => entry.blame(py, backend, error, code.as_deref()),
                        None => Err(error),
                    };
                    blamed.map(|()| evaluated).map_err(|error| Raised::set(py, error))
                }));
            }
            Replay::Failed(error) => Signal::Failed(error),
            Replay::Interrupted(error) => {
                return Next::Left(match resumed.interrupt(Raised::set(py, error)) {
                    Flow::Left(evaluated) => evaluated,
                    Flow::Next => natively(py, resumed),
                });
            }
            Replay::Restart(_) => return Next::Left(natively(py, resumed)),
            Replay::Fault(fault) => {
                *self.fault.borrow_mut() = Some(fault);
                return Next::Left(natively(py, resumed));
            }
        };
        let left = match &signal {
            Signal::Broke(state) => state.left,
            _ => None,
        };
        self.behind_exit.set(left.is_some());
        // From here on it's known what comes next, whatever happens.
        *self.signal.borrow_mut() = Some(signal);
        *self.staged.borrow_mut() = staged;
        drop(resolved);
        if let Err(fault) = faults::at(Stage::Taken) {
            self.leave_for_replay(&fault);
            return Next::Left(resumed.abandon());
        }
        if entry.breaks() || left.is_some() {
            *self.before.borrow_mut() = entry.clone();
        }
        drop(handled);
        self.try_to_stay(resumed, entry.left_frames(left));
        let depth = self.frames.borrow().len();
        if let Some(innermost) = self.move_to(py, depth) {
            return Next::Moved(innermost);
        }
        *self.successor.borrow_mut() = Some(Successor { entry, left, depth });
        Next::Left(self.abandon(resumed))
    }

    /// The trace that goes on from where frames stand, with what it was found by, and what is being handled there;
    /// `Err`: there is none, and the frame has been left in another way.
    fn known_behind<'py>(
        &self,
        resumed: &mut Resumed<'_, 'py>,
    ) -> std::result::Result<Behind<'py>, Evaluated<'py>> {
        let py = resumed.frame().py();
        let chain = loop {
            if Thread::current(py).is_traced() {
                // The program has set a trace or profile function: it sees the rest.
                return Err(natively(py, resumed));
            }
            if let Flow::Left(evaluated) = self.settle(resumed) {
                return Err(evaluated);
            }
            let Some(chain) = self.chain(resumed) else {
                return Err(natively(py, resumed));
            };
            let handled = handled_beyond(py, self.handled_at_entry);
            let key = Key::of(&chain, handled.is_some());
            let point = self.points.get(&key);
            let found = {
                let values = roots(&chain, handled.as_ref());
                let before = self.before.borrow().clone();
                point.as_ref().and_then(|point| point.find_behind(py, &before, &values))
            };
            let code = resumed.frame().code().as_ptr() as usize;
            let last = match (found, point) {
                (Some((entry, resolved)), _) => {
                    self.estimate.set(self.estimate.get() + entry.estimate());
                    // Where nothing is gained by it, the frame isn't left; nor where others would be made in the place
                    // of frames whose objects somebody has.
                    let stays = entry.emits() && chain.iter().any(|it| it.frame.is_held());
                    match entry.breaks_at(chain.len(), code) {
                        Some(last) if stays || entry.is_small() => last,
                        None if stays => return Err(natively(py, resumed)),
                        _ => return Ok((entry, resolved, handled)),
                    }
                }
                // No more traces: natively to where others have broken.
                (None, Some(point)) if !self.has_room(py, &point) => {
                    match point.breaks_at(chain.len(), code) {
                        Some(last) => last,
                        None => return Err(natively(py, resumed)),
                    }
                }
                (None, _) => break chain,
            };
            drop(chain);
            let _native = Native::new(py);
            if let Flow::Left(evaluated) = resumed.through(last) {
                return Err(evaluated);
            }
        };
        let recorded = if self.begin(py, &chain) { self.record(resumed) } else { None };
        Err(recorded.unwrap_or_else(|| natively(py, resumed)))
    }

    /// Where the frames that there are stand as a replay's break says, the last of them is moved. Somebody may have its
    /// object, whatever exceptions it handles.
    fn try_to_stay(&self, resumed: &Resumed<'_, '_>, left_frames: usize) {
        let stay = self.frames.borrow().len() - left_frames;
        let stands = match &*self.signal.borrow() {
            Some(Signal::Broke(state)) => {
                // Warnings are given where no frame stands.
                let gives = !self.staged.borrow().is_empty();
                !gives && self.stand(resumed, state, stay)
            }
            _ => false,
        };
        let mut signal = self.signal.borrow_mut();
        *signal = match signal.take() {
            Some(Signal::Broke(state)) if stands => Some(Signal::Moved(stay, state)),
            other => other,
        };
    }

    /// If the last one of `depth` frames is to be moved: where to. Those that it calls are made next.
    fn move_to(&self, py: Python<'_>, depth: usize) -> Option<FrameState> {
        let signal = self.signal.take();
        let Some(Signal::Moved(stay, state)) = signal else {
            *self.signal.borrow_mut() = signal;
            return None;
        };
        if stay != depth {
            *self.signal.borrow_mut() = Some(Signal::Moved(stay, state));
            return None;
        }
        drop(self.handle(py, state.handled.as_ref()));
        *self.raised.borrow_mut() = state.raised;
        *self.error.borrow_mut() = state.error;
        let mut frames = state.frames.into_iter().skip(depth - 1);
        let moved = frames.next();
        *self.states.borrow_mut() = frames.collect();
        moved
    }

    /// Leaves a frame for a trace that was replayed. Somebody may have the frame's object (a traceback of
    /// the exception that it handles), so what the trace has let go of must not stay in it.
    fn abandon<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Evaluated<'py> {
        let inner = self.frames.borrow().len();
        let successor = self.successor.borrow().clone();
        let kept = successor
            .as_ref()
            .and_then(|after| after.entry.kept_locals(after.left, after.depth - inner));
        resumed.unbind_all_but(kept.unwrap_or(&[]));
        resumed.abandon()
    }

    /// The frames are there: exceptions get the tracebacks that speak of them.
    fn attach_tracebacks(&self, resumed: &Resumed<'_, '_>) -> PyResult<()> {
        let raised = self.raised.take();
        if raised.is_empty() {
            return Ok(());
        }
        let py = resumed.frame().py();
        let innermost = resumed.object().map_err(|raised| raised.take(py))?;
        tracebacks::attach(&innermost, self.frames.borrow().len(), &raised)
    }

    /// Evaluates natively what puts away the last instruction's results, and on to the next that
    /// breaks if nothing is done in between.
    fn settle<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Flow<'py> {
        let frame = resumed.frame();
        let mut native = None;
        loop {
            let unit = resumed.next_unit();
            let last = if settles_next(&frame, unit) {
                unit
            } else {
                match self.points.idle(&frame.code(), unit) {
                    Some(last) => last,
                    None => return Flow::Next,
                }
            };
            native.get_or_insert_with(|| Native::new(frame.py()));
            if let Flow::Left(evaluated) = resumed.through(last) {
                return Flow::Left(evaluated);
            }
        }
    }

    /// Whether the first `stay` frames of a state are those there are, and all of them but the last one
    /// stand as it says: then that one can be moved, and those that it calls are made.
    fn stand(&self, resumed: &Resumed<'_, '_>, state: &State, stay: usize) -> bool {
        let moved = self.frames.borrow();
        if stay == 0 || state.frames.len() < stay {
            return false;
        }
        let mut frames = std::iter::successors(Some(resumed.frame()), Frame::previous);
        let same = |frame: &Frame<'_>, wanted: &FrameState| {
            frame.function().as_ptr() == wanted.function.as_ptr()
                && frame.code().as_ptr() as usize == wanted.code
        };
        (0..stay).rev().all(|index| {
            let (known, wanted) = (&moved[index], &state.frames[index]);
            let Some(frame) = frames.find(|frame| frame.id() == known.id) else { return false };
            same(&frame, wanted)
                && (index + 1 == stay
                    || (known.next == wanted.next
                        && known.link == wanted.link
                        && frame.unit() == wanted.current
                        && holds(&frame, wanted)))
        })
    }

    /// Whether another trace may start at a resume point.
    fn has_room(&self, py: Python<'_>, point: &Point) -> bool {
        let limit = || self.owner.limit(py);
        !point.is_full() && limit().is_ok_and(|limit| point.takes_more(limit))
    }

    /// Goes on under the recorder, if there is one.
    fn record<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Option<Evaluated<'py>> {
        let recorder = self.recording.borrow().as_ref().map(|(recorder, _)| recorder.clone())?;
        let py = resumed.frame().py();
        Some(recorder.evaluating(py, || resumed.evaluate(&*recorder)))
    }

    /// Begins a recording behind the break, if it is allowed.
    fn begin(&self, py: Python<'_>, chain: &[Waiting<'_>]) -> bool {
        let _deferred = Deferred::new(py);
        if self.owner.is_out_of_budget(py) {
            return false;
        }
        let Some(session) = self.owner.begin(py) else { return false };
        let (handled, behind_exit) = (self.handled_at_entry, self.behind_exit.get());
        match Recorder::behind_break(py, chain, handled, behind_exit, session.clone()) {
            Ok(recorder) => {
                *self.recording.borrow_mut() = Some((recorder, session));
                true
            }
            Err(error) => {
                self.owner.ended();
                match Escape::of(py, error) {
                    Escape::Fault(fault) => *self.fault.borrow_mut() = Some(fault),
                    // Another thread has sent it.
                    Escape::Raised(error) => {
                        Thread::current(py).raise_later(&error.get_type(py));
                    }
                }
                false
            }
        }
    }

    /// The frames down to the one that goes on.
    fn chain<'py>(&self, resumed: &Resumed<'_, 'py>) -> Option<Chain<'py>> {
        let moved = self.frames.borrow();
        let mut callers = std::iter::successors(Some(resumed.frame()), Frame::previous);
        let mut chain = Chain::new();
        for (index, known) in moved.iter().enumerate().rev() {
            let frame = callers.find(|caller| caller.id() == known.id)?;
            let is_last = index + 1 == moved.len();
            let (next, link) =
                if is_last { (resumed.next_unit(), None) } else { (known.next, Some(known.link)) };
            chain.push(Waiting { frame, next, depth: frame.stack().len(), held: None, link });
        }
        chain.reverse();
        Some(chain)
    }
}

/// Whether the slots of a frame that waits hold these very objects.
fn holds(frame: &Frame<'_>, wanted: &FrameState) -> bool {
    let mut locals = wanted.locals.iter().peekable();
    let same_locals = (0..frame.code().nlocalsplus()).all(|slot| {
        let wanted = locals.next_if(|(wanted, _)| *wanted as usize == slot);
        frame.local(slot).map(|local| local.as_ptr()) == wanted.map(|(_, value)| value.as_ptr())
    });
    let address = |value: &Option<Py<PyAny>>| value.as_ref().map(|value| value.as_ptr());
    let stack = frame.stack().iter().map(|value| value.map(|value| value.as_ptr()));
    same_locals && stack.eq(wanted.stack.iter().map(address))
}

/// Raises what an instruction has raised in a replay: the frame goes on in its handler, if it has one.
fn raise<'py>(py: Python<'py>, resumed: &mut Resumed<'_, 'py>, error: PyErr) -> Flow<'py> {
    match resumed.interrupt(Raised::set(py, error)) {
        Flow::Next => Flow::Left(natively(py, resumed)),
        left => left,
    }
}

fn natively<'py>(py: Python<'py>, resumed: &mut Resumed<'_, 'py>) -> Evaluated<'py> {
    let _native = Native::new(py);
    resumed.natively()
}
