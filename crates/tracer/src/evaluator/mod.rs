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
mod calls;
mod containers;
mod control;
mod dispatch;
mod exceptions;
mod generators;
mod iteration;
mod matching;
mod modules;
mod names;
mod operators;
pub mod sites;

use pyo3::prelude::*;
use stator_cpython::code::Code;
use stator_cpython::frame::{self, Frame, Running};
use stator_cpython::hook::{self, Evaluated};
use stator_cpython::thread::Thread;
use stator_cpython::{Raised, Result};

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
        sites.enters(&frame);
        Evaluation { run, frame, sites, keywords: None }.run(throw)
    })
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

    /// Gives the frame to CPython before the instruction at `unit`.
    #[cold]
    #[inline(never)]
    fn hand_over(&mut self, unit: usize) -> Evaluated<'py> {
        let unit = self.keywords.map_or(unit, |keywords| keywords.start);
        self.sites.leaves(&self.frame);
        self.run.hand_over_at(unit)
    }
}
