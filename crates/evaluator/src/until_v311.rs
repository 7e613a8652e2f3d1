//! What CPython 3.11 does in instructions that later versions don't have, or have otherwise: handlers that its
//! rows alone name.

use stator_bytecode::Opcode;
use stator_cpython::ops;

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    pub(super) fn load_classderef(&mut self, index: usize) -> Done {
        self.sites.opaque(&self.frame, Opcode::LOAD_CLASSDEREF);
        match ops::load_from_locals(&self.frame, index)? {
            Some(value) => {
                self.run.push(value);
                Ok(())
            }
            None => self.load_deref(index),
        }
    }

    #[inline(always)]
    pub(super) fn jump_if_or_pop<const WHEN: bool>(&mut self, units: u32) -> Done {
        if self.truth()? == WHEN {
            self.run.jump_forward(units);
        } else {
            drop(self.run.pop());
        }
        Ok(())
    }

    /// One step of `yield from` or `await`: jumps out of its loop when the receiver returns.
    #[inline(always)]
    pub(super) fn send(&mut self, units: u32) -> Done {
        let (receiver, value) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.send(&self.frame, receiver, value);
        drop(self.run.pop());
        match result? {
            Ok(yielded) => self.run.push(yielded),
            Err(returned) => {
                drop(self.run.replace(1, returned));
                self.run.jump_forward(units);
            }
        }
        Ok(())
    }
}
