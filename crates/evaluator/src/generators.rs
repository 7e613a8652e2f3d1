//! Generators, coroutines and asynchronous generators.

use stator_bytecode::Opcode;
use stator_cpython::hook::Evaluated;
use stator_cpython::{generator, ops};

use super::{Done, Evaluation, Sites, Stop};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// CPython makes the generator and moves the frame into it; its constructor is private.
    pub(super) fn return_generator(&mut self) -> Evaluated<'py> {
        self.sites.leaves(&self.frame);
        let result = self.run.make_generator();
        if let Ok(generator) = &result
            && let Some(frame) = generator::frame_of(generator.as_borrowed())
        {
            self.sites.creates(&frame, generator.as_borrowed());
        }
        result
    }

    #[inline(always)]
    pub(super) fn yield_value(&mut self, arg: u32) -> Evaluated<'py> {
        self.sites.returns(&self.frame, self.run.peek(1));
        let value = self.run.pop();
        self.sites.leaves(&self.frame);
        self.run.leave_suspended(value, arg)
    }

    pub(super) fn get_yield_from_iter(&mut self) -> Done {
        let iterable = self.run.peek(1);
        let result = match ops::get_yield_from_iter(&self.frame, iterable) {
            Ok(true) => return Ok(()),
            Ok(false) => self.sites.get_iter(&self.frame, iterable),
            Err(raised) => Err(raised),
        };
        Ok(self.run.finish_one(result)?)
    }

    pub(super) fn get_awaitable(&mut self, context: u32) -> Done {
        self.sites.opaque(&self.frame, Opcode::GET_AWAITABLE);
        let result = ops::get_awaitable(self.run.peek(1), context);
        Ok(self.run.finish_one(result)?)
    }

    pub(super) fn get_aiter(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::GET_AITER);
        let result = ops::get_aiter(self.run.peek(1));
        Ok(self.run.finish_one(result)?)
    }

    pub(super) fn get_anext(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::GET_ANEXT);
        let awaitable = ops::get_anext(self.run.peek(1))?;
        self.run.push(awaitable);
        Ok(())
    }

    /// Ends the loop if the exception on top says so, or raises it again.
    pub(super) fn end_async_for(&mut self) -> Done {
        let exception = self.run.pop();
        if ops::is_stop_async_iteration(exception.as_borrowed()) {
            drop(exception);
            drop(self.run.pop());
            return Ok(());
        }
        let stator_cpython::Raised = self.run.thread().restore_exception(exception);
        Err(Stop::RaisedAgain)
    }

    pub(super) fn before_async_with(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::BEFORE_ASYNC_WITH);
        let (exit, entered) = ops::before_async_with(self.run.peek(1))?;
        drop(self.run.replace(1, exit));
        self.run.push(entered);
        Ok(())
    }
}
