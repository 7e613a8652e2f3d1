//! The loop over a frame's instructions.
//!
//! Which handler executes an opcode is generated for each version of CPython (`v3XX.rs`), from the rows of
//! `crates/bytecode/tools/instructions.toml`.

#[cfg(not(Py_3_12))]
mod v311;
#[cfg(all(Py_3_12, not(Py_3_13)))]
mod v312;
#[cfg(Py_3_13)]
mod v313;

use std::panic::{AssertUnwindSafe, catch_unwind};

use stator_cpython::hook::Evaluated;

use super::{Done, Evaluation, Flow, Sites, Step, Stop};

/// What came of an instruction.
pub(super) enum Turn<'py> {
    /// Its handler has ended.
    Done(Done),
    /// The frame has left.
    Left(Evaluated<'py>),
    /// CPython executes it, and what follows.
    Native,
    /// The same, of an instruction that nothing is known of.
    Unknown,
}

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// Evaluates from the next instruction until the frame leaves.
    pub(super) fn evaluate_instructions(&mut self) -> Evaluated<'py> {
        match catch_unwind(AssertUnwindSafe(|| self.evaluate_while::<false>(0))) {
            Ok(Flow::Left(evaluated)) => evaluated,
            Ok(Flow::Next) => unreachable!("only a bounded evaluation ends before the frame does"),
            Err(payload) => self.contain(&*payload),
        }
    }

    /// Evaluates up to and including the instruction that begins at `last`.
    pub(super) fn evaluate_through(&mut self, last: usize) -> Flow<'py> {
        self.evaluate_while::<true>(last)
    }

    /// Hands the frame over before the current instruction.
    #[cold]
    fn leave_to_cpython(&mut self) -> Evaluated<'py> {
        let unit = self.run.start_unit();
        self.hand_over(unit)
    }

    #[inline(always)]
    fn evaluate_while<const BOUNDED: bool>(&mut self, last: usize) -> Flow<'py> {
        loop {
            if self.run.is_traced() {
                let unit = self.run.next_unit();
                return Flow::Left(self.hand_over(unit));
            }
            let (opcode, arg) = self.run.fetch();
            if S::STEPS {
                match self.sites.step(&self.frame, opcode, arg) {
                    Step::Evaluate => {}
                    Step::Substitute => self.substitute(),
                    Step::HandOver => return Flow::Left(self.leave_to_cpython()),
                    Step::Raise => match self.unwind(Stop::Raised) {
                        Ok(()) => continue,
                        Err(raised) => return Flow::Left(Err(raised)),
                    },
                }
            }
            let done = match self.execute(opcode, arg) {
                Turn::Done(done) => done,
                Turn::Left(evaluated) => return Flow::Left(evaluated),
                Turn::Native => return Flow::Left(self.leave_to_cpython()),
                Turn::Unknown => {
                    self.sites.interrupts(&self.frame, "an instrumented instruction");
                    return Flow::Left(self.leave_to_cpython());
                }
            };
            let is_last = BOUNDED && self.run.start_unit() == last;
            if let Err(stop) = done
                && let Err(raised) = self.unwind(stop)
            {
                return Flow::Left(Err(raised));
            }
            if is_last {
                return Flow::Next;
            }
        }
    }
}
