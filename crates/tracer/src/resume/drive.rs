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

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::PySystemError;
use pyo3::prelude::*;
use stator_cpython::frame::{Frame, call_anew};
use stator_cpython::hook::{self, Active, Evaluated, Suspended};
use stator_cpython::object::Object;
use stator_cpython::thread::Thread;
use stator_cpython::{Raised, Result};

use super::point::{Chain, Key, Point, Points, Waiting, handled_beyond, roots};
use super::session::Session;
use super::stage::Staged;
use crate::compiled::Compiled;
use crate::emission;
use crate::entry::{FrameState, Replay, State};
use crate::evaluator::{Flow, Resumed, resume};
use crate::recorder::Recorder;

/// How the frames were left when a replay took over.
enum Signal {
    Returned(Py<PyAny>),
    Broke(Box<State>),
    Failed(PyErr),
}

/// A frame that was made again.
#[derive(Clone, Copy)]
struct Moved {
    /// Its address.
    id: usize,
    /// Where it goes on; known while it waits for another frame.
    next: usize,
}

/// One run behind a break.
struct Driver {
    compiled: Py<Compiled>,
    points: Arc<Points>,
    /// States of the frames that are to be made, outermost first.
    states: RefCell<VecDeque<FrameState>>,
    /// The frames there are.
    frames: RefCell<Vec<Moved>>,
    signal: RefCell<Option<Signal>>,
    /// Warnings and log records of the trace that was replayed last.
    staged: RefCell<Vec<Staged>>,
    /// Once something is recorded, the rest of the call is.
    recording: RefCell<Option<(Rc<Recorder>, Rc<Session>)>>,
    /// The exception that the compiled function's caller is handling, by address.
    handled_at_entry: usize,
}

/// What came of the program behind a break.
pub struct Continued<'py> {
    /// What the compiled function returned or raised.
    pub result: PyResult<Object<'py>>,
    /// The session, if something was recorded.
    pub session: Option<Rc<Session>>,
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

/// Goes on from a graph break until the compiled function returns.
pub fn go_on<'py>(compiled: &Bound<'py, Compiled>, state: Box<State>) -> Continued<'py> {
    let py = compiled.py();
    let thread = Thread::current(py);
    let outer = thread.handled_here();
    let driver = Rc::new(Driver {
        compiled: compiled.clone().unbind(),
        points: compiled.get().points(),
        states: RefCell::default(),
        frames: RefCell::default(),
        signal: RefCell::default(),
        staged: RefCell::default(),
        recording: RefCell::default(),
        handled_at_entry: thread.handled().map_or(0, |handled| handled.as_ptr() as usize),
    });
    let _driving = Driving::start(driver.clone());
    let mut state = Some(state);
    let result = loop {
        let Some(now) = state.take() else { unreachable!("each round begins with a state") };
        let handled = now.handled.as_ref().map(|handled| handled.bind(py).clone());
        drop(thread.swap_handled(handled.or_else(|| outer.clone())));
        let result = driver.round(py, *now);
        // The frames are gone: others are made for each of these.
        if let Err(error) = emission::give(py, driver.staged.take()) {
            break Err(error);
        }
        match driver.signal.take() {
            Some(Signal::Returned(value)) => break Ok(value.into_bound(py)),
            Some(Signal::Failed(error)) => break Err(error),
            Some(Signal::Broke(next)) => state = Some(next),
            None => break result.map_err(|raised| raised.take(py)),
        }
    };
    drop(thread.swap_handled(outer));
    let session = driver.recording.take().map(|(recorder, session)| {
        recorder.close(py, result.as_ref().ok().map(|value| value.as_borrowed()));
        session
    });
    Continued { result, session }
}

/// The evaluator of frames that are made again.
fn evaluate<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    let driver = DRIVER.with_borrow(Clone::clone);
    let state = driver.as_ref().and_then(|driver| driver.states.borrow_mut().pop_front());
    match driver.zip(state) {
        Some((driver, state)) if !throw => resume(frame, |resumed| driver.evaluate(resumed, state)),
        _ => hook::default(py, frame, throw),
    }
}

impl Driver {
    /// Makes the frames and lets them run.
    fn round<'py>(&self, py: Python<'py>, state: State) -> Result<Object<'py>> {
        let function = state.frames[0].function.bind(py).clone();
        *self.states.borrow_mut() = state.frames.into_iter().collect();
        self.frames.borrow_mut().clear();
        let _active = Active::new(py, evaluate);
        call_anew(function.as_borrowed())
    }

    /// One frame, from where it stood to its end.
    fn evaluate<'py>(&self, resumed: &mut Resumed<'_, 'py>, state: FrameState) -> Evaluated<'py> {
        let frame = resumed.frame();
        let py = frame.py();
        if frame.code().as_ptr() as usize != state.code {
            let message = "Stator has a bug: a frame of another function stands at a break";
            return resumed.raise(Raised::set(py, PySystemError::new_err(message)));
        }
        let FrameState { locals, stack, current, next, last, .. } = state;
        resumed.restore(py, locals, stack, current, next);
        self.frames.borrow_mut().push(Moved { id: frame.id(), next });
        let inner = self.states.borrow().front().map(|inner| inner.function.clone_ref(py));
        let flow = match inner {
            None => {
                let _native = Suspended::new(py);
                resumed.through(last)
            }
            Some(function) => {
                let result = call_anew(function.bind(py).as_borrowed());
                if self.signal.borrow().is_some() {
                    return resumed.abandon();
                }
                resumed.complete(result)
            }
        };
        let evaluated = match flow {
            Flow::Left(evaluated) => evaluated,
            Flow::Next => self.go_on(resumed),
        };
        self.frames.borrow_mut().pop();
        if let Some((recorder, _)) = &*self.recording.borrow() {
            recorder.left(&frame);
        }
        evaluated
    }

    /// The rest of a frame.
    fn go_on<'py>(&self, resumed: &mut Resumed<'_, 'py>) -> Evaluated<'py> {
        let py = resumed.frame().py();
        if let Some(evaluated) = self.record(resumed) {
            return evaluated;
        }
        let found = loop {
            let Some(chain) = self.chain(resumed) else { return natively(py, resumed) };
            let handled = handled_beyond(py, self.handled_at_entry);
            let key = Key::of(&chain, handled.is_some());
            let point = self.points.get(&key);
            let found = {
                let values = roots(&chain, handled.as_ref());
                point.as_ref().and_then(|point| point.find(py, &values))
            };
            let code = resumed.frame().code().as_ptr() as usize;
            let last = match (found, point) {
                (Some((entry, resolved)), _) => {
                    // Where nothing is gained by it, the frame isn't left.
                    let is_small = entry.is_small();
                    match entry.breaks_at(chain.len(), code).filter(|_| is_small) {
                        Some(last) => last,
                        None => break Ok((entry, resolved)),
                    }
                }
                // No more traces: natively to where others have broken.
                (None, Some(point)) if !self.has_room(py, &point) => {
                    match point.breaks_at(chain.len(), code) {
                        Some(last) => last,
                        None => return natively(py, resumed),
                    }
                }
                (None, _) => break Err(chain),
            };
            drop(chain);
            let _native = Suspended::new(py);
            if let Flow::Left(evaluated) = resumed.through(last) {
                return evaluated;
            }
        };
        let (entry, resolved) = match found {
            Ok(found) => found,
            Err(chain) => {
                if !self.begin(py, &chain) {
                    return natively(py, resumed);
                }
                return match self.record(resumed) {
                    Some(evaluated) => evaluated,
                    None => natively(py, resumed),
                };
            }
        };
        let mut staged = Vec::new();
        let backend = self.compiled.get().backend();
        let replayed = entry.replay(py, &resolved, backend, &mut staged);
        *self.staged.borrow_mut() = staged;
        let signal = match replayed {
            Replay::Done(value) => Signal::Returned(value.unbind()),
            Replay::Broke(state) => Signal::Broke(state),
            Replay::Failed(error) => Signal::Failed(error),
            Replay::Restart(_) => return natively(py, resumed),
        };
        *self.signal.borrow_mut() = Some(signal);
        resumed.abandon()
    }

    /// Whether another trace may start at a resume point.
    fn has_room(&self, py: Python<'_>, point: &Point) -> bool {
        let limit = || self.compiled.get().limit(py);
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
        let Some(session) = self.compiled.get().begin(py) else { return false };
        let frames: Vec<_> = chain.iter().map(|waiting| waiting.frame).collect();
        match Recorder::behind_break(py, &frames, self.handled_at_entry, session.clone()) {
            Ok(recorder) => {
                *self.recording.borrow_mut() = Some((recorder, session));
                true
            }
            Err(_) => {
                self.compiled.get().ended();
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
            let next = if is_last { resumed.next_unit() } else { known.next };
            chain.push(Waiting { frame, next, depth: frame.stack().len() });
        }
        chain.reverse();
        Some(chain)
    }
}

fn natively<'py>(py: Python<'py>, resumed: &mut Resumed<'_, 'py>) -> Evaluated<'py> {
    let _native = Suspended::new(py);
    resumed.natively()
}
