//! `for` and unpacking.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use stator_cpython::Result;
use stator_cpython::object::Borrowed;

use super::{Done, Evaluation, Sites};

/// Whether an object computes what it gives, so that C code which reads it calls other code.
#[inline(always)]
pub(super) fn is_lazy(operand: Borrowed<'_, '_>) -> bool {
    !(operand.is_exact_instance_of::<PyTuple>()
        || operand.is_exact_instance_of::<PyList>()
        || operand.is_exact_instance_of::<PyDict>())
}

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn get_iter(&mut self) -> Done {
        let result = self.sites.get_iter(&self.frame, self.run.peek(1));
        Ok(self.run.finish_one(result)?)
    }

    #[inline(always)]
    pub(super) fn for_iter(&mut self, units: u32) -> Done {
        match self.sites.next(&self.frame, self.run.peek(1))? {
            Some(item) => self.run.push(item),
            None => {
                drop(self.run.pop());
                self.run.jump_forward(units);
            }
        }
        Ok(())
    }

    /// Tells the sites that the top of the stack is about to be read whole.
    #[inline(always)]
    pub(super) fn consume(&mut self) -> Done {
        if let Some(parts) = self.sites.consumes(&self.frame, self.run.peek(1))? {
            drop(self.run.pop());
            self.run.push(parts);
        }
        Ok(())
    }

    /// Runs C code that reads the top of the stack whole.
    #[inline(always)]
    pub(super) fn read_whole<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        if is_lazy(self.run.peek(1)) { self.sites.calls_back(&self.frame, read) } else { read() }
    }

    #[inline(always)]
    fn unpack(&mut self, before: usize, after: Option<usize>) -> Done {
        if !is_lazy(self.run.peek(1)) {
            return Ok(self.run.unpack(before, after)?);
        }
        // It is kept till C code has let go of what it gave.
        let operand = self.run.peek(1).to_owned();
        let Self { sites, run, frame, .. } = self;
        Ok(sites.collects(frame, operand.as_borrowed(), || run.unpack(before, after))?)
    }

    pub(super) fn unpack_sequence(&mut self, count: usize) -> Done {
        self.consume()?;
        self.unpack(count, None)
    }

    pub(super) fn unpack_ex(&mut self, arg: usize) -> Done {
        self.consume()?;
        let before = arg & 0xFF;
        self.unpack(before, Some(arg >> 8))?;
        // Behind the names before the star: the list for the one with it.
        self.sites.creates(&self.frame, self.run.peek(before + 1));
        Ok(())
    }
}
