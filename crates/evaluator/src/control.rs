//! Jumps, and the polls that go with them.

use pyo3::types::PyNone;
use stator_cpython::Result;
use stator_cpython::hook::Evaluated;
use stator_cpython::ops;

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "a handler as all others")]
    pub(super) fn nothing(&self) -> Done {
        Ok(())
    }

    /// `arg` says what is resumed; behind a `yield from` (2) or `await` (3), the innermost generator
    /// gets the interrupt.
    #[inline(always)]
    pub(super) fn resume(&mut self, arg: u32) -> Done {
        if arg < 2 {
            self.poll()?;
        }
        if S::STEPS
            && arg == 0
            && let Some(skip) = self.sites.skips(&self.frame)
        {
            return self.skip(skip);
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn return_value(&mut self) -> Evaluated<'py> {
        // It lies on the stack as long as the trace may end before the instruction.
        self.sites.returns(&self.frame, self.run.peek(1));
        let value = self.run.pop();
        self.sites.leaves(&self.frame);
        self.run.leave_with(value)
    }

    #[inline(always)]
    pub(super) fn jump_forward(&mut self, units: u32) -> Done {
        self.run.jump_forward(units);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn jump_backward(&mut self, units: u32) -> Done {
        self.run.jump_backward(units);
        self.poll()?;
        Ok(())
    }

    /// As [`Evaluation::jump_backward`]: what a signal handler raises is raised in front of the jump.
    #[inline(always)]
    #[cfg(Py_3_13)]
    pub(super) fn poll_and_jump_backward(&mut self, units: u32) -> Done {
        self.poll()?;
        self.run.jump_backward(units);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn jump_backward_no_interrupt(&mut self, units: u32) -> Done {
        self.run.jump_backward(units);
        Ok(())
    }

    /// The truth value of the top.
    #[inline(always)]
    pub(super) fn truth(&self) -> Result<bool> {
        let operand = self.run.peek(1);
        match ops::plain_truth(operand) {
            Some(truth) => Ok(truth),
            None => self.sites.truth(&self.frame, operand),
        }
    }

    #[inline(always)]
    fn jump<const FORWARD: bool>(&mut self, units: u32) -> Done {
        if FORWARD { self.jump_forward(units) } else { self.jump_backward(units) }
    }

    #[inline(always)]
    pub(super) fn pop_jump_if<const WHEN: bool, const FORWARD: bool>(
        &mut self,
        units: u32,
    ) -> Done {
        let truth = self.truth();
        drop(self.run.pop());
        if truth? == WHEN { self.jump::<FORWARD>(units) } else { Ok(()) }
    }

    #[inline(always)]
    pub(super) fn pop_jump_if_none<const WHEN: bool, const FORWARD: bool>(
        &mut self,
        units: u32,
    ) -> Done {
        let none = PyNone::get(self.py());
        let none = none.as_any().as_borrowed();
        let is_none = self.sites.is_same(&self.frame, self.run.peek(1), none);
        drop(self.run.pop());
        if is_none == WHEN { self.jump::<FORWARD>(units) } else { Ok(()) }
    }
}
