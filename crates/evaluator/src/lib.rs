//! The frame evaluator: CPython's bytecode, on CPython's own frames and objects, told by [`Sites`].
//!
//! [`evaluate`] works in place: it links the frame as `_PyEval_EvalFrameDefault` would, keeps stack and
//! locals in it, and can give it back to CPython before any instruction ([`Step::HandOver`]). So
//! `sys._getframe`, tracebacks, `locals()`, generators and everything else that looks at frames see
//! what they always see. `docs/evaluator.md` describes the mechanism.
//!
//! The handlers are methods of [`Evaluation`], one file per family; [`dispatch`] is the table of the
//! CPython version. The invariants they keep:
//! * operands stay on the stack while a site runs, and are dropped when it has returned, on the error
//!   path as well;
//! * what a site borrows is alive until it returns: the stack or the frame owns it;
//! * a handler leaves the stack as CPython's does, so that the exception table's depths fit.

#![deny(unsafe_code)]

mod attributes;
mod builtins;
mod calls;
mod containers;
mod control;
mod dispatch;
mod exceptions;
mod generators;
mod iteration;
mod links;
mod matching;
mod modules;
mod names;
mod operators;
#[cfg(Py_3_12)]
mod since_v312;
#[cfg(Py_3_13)]
mod since_v313;
pub mod sites;
mod skips;
#[cfg(not(Py_3_12))]
mod until_v311;
#[cfg(not(Py_3_13))]
mod until_v312;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use stator_cpython::code::Code;
use stator_cpython::frame::{self, Frame, Running};
use stator_cpython::hook::{self, Evaluated};
use stator_cpython::object::Object;
use stator_cpython::thread::Thread;
use stator_cpython::{Raised, Result, ops};
use stator_faults::{Escape, Fault};

pub use builtins::End;
pub use links::{Link, Role, called_class};
pub use operators::format_text;
pub use sites::{Plain, Sites, Step};

/// Evaluates `frame` until it returns, yields, raises or is handed over.
///
/// With `throw`, an exception is set and is raised where the frame stands. This is what an
/// [`Evaluator`](hook::Evaluator) calls; it is safe to call with any frame the hook was given.
pub fn evaluate<'py, S: Sites<'py>>(
    py: Python<'py>,
    frame: Frame<'py>,
    throw: bool,
    sites: &S,
) -> Evaluated<'py> {
    if Thread::current(py).is_traced() {
        // Trace and profile functions are called by CPython's own loop only.
        return hook::default(py, frame, throw);
    }
    frame::enter(frame, |run, entered| {
        entered?;
        let mut evaluation = Evaluation { run, frame, sites, keywords: None };
        let begin = || {
            if sites.enters(&frame) {
                evaluation.substitute();
            }
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(begin)) {
            // Nothing of the frame was executed: it is, without being recorded.
            sites.fails(&frame, &*payload);
        }
        evaluation.run(throw)
    })
}

/// A frame that CPython has just made and that is to stand elsewhere in its code.
pub struct Resumed<'e, 'py> {
    run: &'e mut Running<'py>,
}

/// Lets `body` take a new frame over. It must leave the frame in one of the ways [`Resumed`] has.
pub fn resume<'py>(
    frame: Frame<'py>,
    body: impl FnOnce(&mut Resumed<'_, 'py>) -> Evaluated<'py>,
) -> Evaluated<'py> {
    frame::enter(frame, |run, entered| {
        entered?;
        body(&mut Resumed { run })
    })
}

impl<'py> Resumed<'_, 'py> {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> Frame<'py> {
        self.run.frame()
    }

    /// Its frame object. The frame is the thread's current one.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn object(&self) -> Result<Object<'py>> {
        self.run.object()
    }

    /// The unit it goes on at.
    #[must_use]
    pub fn next_unit(&self) -> usize {
        self.run.next_unit()
    }

    /// Moves the frame: see [`Running::restore`]. What its stack held is dropped.
    pub fn restore(
        &mut self,
        py: Python<'py>,
        locals: impl IntoIterator<Item = (u32, Py<PyAny>)>,
        stack: impl IntoIterator<Item = Option<Py<PyAny>>>,
        current: usize,
        next: usize,
    ) {
        let mut slots: Vec<Option<Object<'py>>> = vec![None; self.run.code().nlocalsplus()];
        for (slot, value) in locals {
            slots[slot as usize] = Some(value.into_bound(py));
        }
        let stack = stack.into_iter().map(|value| value.map(|value| value.into_bound(py)));
        self.run.drop_all();
        self.run.restore(slots, stack, current, next);
    }

    fn plain(&mut self) -> Evaluation<'_, 'py, Plain> {
        let frame = self.run.frame();
        Evaluation { run: self.run, frame, sites: &Plain, keywords: None }
    }

    /// Evaluates as CPython does, up to and including the instruction that begins at `last`.
    pub fn through(&mut self, last: usize) -> Flow<'py> {
        let before = ops::executed();
        let mut plain = self.plain();
        let flow = match catch_unwind(AssertUnwindSafe(|| plain.evaluate_through(last))) {
            Ok(flow) => flow,
            Err(payload) => Flow::Left(plain.contain_since(before, &*payload)),
        };
        if matches!(flow, Flow::Next) {
            self.run.publish();
        }
        flow
    }

    /// The call that the frame waited for has ended: ends the instruction that made it.
    pub fn complete<S: Sites<'py>>(
        &mut self,
        result: Result<Object<'py>>,
        link: Link,
        sites: &S,
    ) -> Flow<'py> {
        let frame = self.run.frame();
        let mut evaluation = Evaluation { run: self.run, frame, sites, keywords: None };
        if let Err(stop) = evaluation.finish(link, result)
            && let Err(raised) = evaluation.unwind(stop)
        {
            return Flow::Left(Err(raised));
        }
        self.run.publish();
        Flow::Next
    }

    /// Raises an exception behind the instruction that the frame has executed last.
    pub fn interrupt(&mut self, raised: Raised) -> Flow<'py> {
        if let Err(raised) = self.plain().unwind(raised.into()) {
            return Flow::Left(Err(raised));
        }
        self.run.publish();
        Flow::Next
    }

    /// Evaluates the rest.
    pub fn evaluate<S: Sites<'py>>(&mut self, sites: &S) -> Evaluated<'py> {
        let frame = self.run.frame();
        Evaluation { run: self.run, frame, sites, keywords: None }.evaluate_instructions()
    }

    /// Lets CPython evaluate the rest.
    pub fn natively(&mut self) -> Evaluated<'py> {
        let unit = self.run.next_unit();
        self.run.hand_over_at(unit)
    }

    /// See [`Running::unbind_all_but`].
    pub fn unbind_all_but(&mut self, kept: &[u32]) {
        self.run.unbind_all_but(kept);
    }

    /// Leaves the frame with a value that means nothing.
    pub fn abandon(&mut self) -> Evaluated<'py> {
        self.run.abandon()
    }

    /// As [`Resumed::raise`]; the frame joins the traceback.
    pub fn raise_here(&mut self, raised: Raised) -> Evaluated<'py> {
        self.run.add_traceback();
        self.raise(raised)
    }

    /// Leaves the frame with the raised exception.
    pub fn raise(&mut self, raised: Raised) -> Evaluated<'py> {
        self.run.unwind_all();
        self.run.leave_raised(raised)
    }
}

/// Why a handler didn't finish its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It raised: the frame joins the traceback.
    Raised,
    /// It raised an exception again whose traceback has the frame already.
    RaisedAgain,
}

impl From<Raised> for Stop {
    #[inline(always)]
    fn from(Raised: Raised) -> Self {
        Stop::Raised
    }
}

/// What came of evaluating a part of a frame.
pub enum Flow<'py> {
    /// The frame stands before its next instruction.
    Next,
    /// The frame has left.
    Left(Evaluated<'py>),
}

/// What a handler returns.
type Done = std::result::Result<(), Stop>;

/// `KW_NAMES`, waiting for its `CALL`.
#[derive(Clone, Copy)]
struct Keywords {
    /// Where the `KW_NAMES` begins: CPython keeps its effect in a variable of its loop, so a frame
    /// can only be handed over there.
    start: usize,
    /// Index of the constant.
    constant: usize,
}

/// One frame's evaluation.
struct Evaluation<'e, 'py, S> {
    run: &'e mut Running<'py>,
    frame: Frame<'py>,
    sites: &'e S,
    keywords: Option<Keywords>,
}

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    fn run(&mut self, throw: bool) -> Evaluated<'py> {
        if throw {
            self.unwind(Stop::Raised)?;
        }
        self.evaluate_instructions()
    }

    #[inline(always)]
    fn py(&self) -> Python<'py> {
        self.frame.py()
    }

    #[inline(always)]
    fn code(&self) -> Code<'py> {
        self.frame.code()
    }

    /// Polls for events: signal handlers, other threads, asynchronous exceptions.
    #[inline(always)]
    fn poll(&mut self) -> Result<()> {
        self.run.poll().inspect_err(|_| self.sites.disturbed(&self.frame))
    }

    #[cold]
    fn substitute(&mut self) {
        let locals = self.code().nlocalsplus();
        for (index, value) in self.sites.substitutes(&self.frame) {
            match index.checked_sub(locals) {
                None => drop(self.run.set_local(index, Some(value))),
                Some(index) => drop(self.run.exchange_stacked(index, value)),
            }
        }
    }

    /// Finds the handler of the raised exception and moves there. If there is none the frame has left.
    #[cold]
    #[inline(never)]
    fn unwind(&mut self, stop: Stop) -> Result<()> {
        self.keywords = None;
        if stop == Stop::Raised {
            self.run.add_traceback();
        }
        if let Some(handler) = self.run.handler() {
            self.run.unwind_to(handler);
            return Ok(());
        }
        self.run.unwind_all();
        self.sites.leaves(&self.frame);
        self.run.leave_raised(Raised).map(drop)
    }

    /// A site, or the evaluator itself, has panicked. Where nothing of the instruction was done, CPython
    /// executes it and all that follows. Otherwise its result is lost, unless it had raised.
    #[cold]
    #[inline(never)]
    fn contain(&mut self, payload: &(dyn Any + Send)) -> Evaluated<'py> {
        let is_untouched = self.sites.fails(&self.frame, payload);
        self.contain_untouched(is_untouched, payload)
    }

    /// As [`Evaluation::contain`], of instructions that no site was told of: whether anything was executed
    /// is known of all of them together.
    #[cold]
    #[inline(never)]
    fn contain_since(&mut self, before: u64, payload: &(dyn Any + Send)) -> Evaluated<'py> {
        self.contain_untouched(ops::executed() == before, payload)
    }

    fn contain_untouched(
        &mut self,
        is_untouched: bool,
        payload: &(dyn Any + Send),
    ) -> Evaluated<'py> {
        let is_untouched = is_untouched && self.run.is_at_start();
        let py = self.py();
        let raised = PyErr::take(py);
        let is_own =
            |error: &PyErr| matches!(Escape::of(py, error.clone_ref(py)), Escape::Fault(_));
        // What a signal handler has raised stays.
        if is_untouched && raised.as_ref().is_none_or(is_own) {
            let unit = self.run.start_unit();
            return self.hand_over(unit);
        }
        let error = raised.unwrap_or_else(|| Fault::of_panic(payload).error(py));
        let Raised = Raised::set(py, error);
        self.unwind(Stop::Raised)?;
        let unit = self.run.next_unit();
        self.hand_over(unit)
    }

    /// Gives the frame to CPython before the instruction at `unit`.
    #[cold]
    #[inline(never)]
    fn hand_over(&mut self, unit: usize) -> Evaluated<'py> {
        let unit = self.keywords.map_or(unit, |keywords| keywords.start);
        self.sites.leaves(&self.frame);
        let sites = self.sites;
        self.run.exchange_held(|held| sites.plain(held));
        self.run.hand_over_at(unit)
    }
}
