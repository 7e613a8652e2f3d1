//! What CPython 3.12 does in other instructions than 3.11: handlers that its rows alone name.

use pyo3::prelude::*;
use pyo3::types::PySuper;
use stator_bytecode::Opcode;
use stator_cpython::hook::Evaluated;
use stator_cpython::object::Object;
use stator_cpython::ops::{self, UnaryOp};
use stator_cpython::{Raised, Result};

use super::dispatch::Turn;
use super::{Done, Evaluation, Sites, Stop};

/// The functions that `CALL_INTRINSIC_1` and `CALL_INTRINSIC_2` name by their argument.
mod intrinsic {
    pub(super) const PRINT: u32 = 1;
    pub(super) const IMPORT_STAR: u32 = 2;
    pub(super) const STOP_ITERATION_ERROR: u32 = 3;
    pub(super) const UNARY_POSITIVE: u32 = 5;
    pub(super) const LIST_TO_TUPLE: u32 = 6;
    pub(super) const PREP_RERAISE_STAR: u32 = 1;
}

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    // -- names ---------------------------------------------------------------------------------

    /// A comprehension without a frame of its own begins: the function's variable waits on the stack.
    pub(super) fn load_fast_and_clear(&mut self, index: usize) -> Done {
        self.run.take_local(index);
        Ok(())
    }

    /// As `store_fast`; a `NULL` was no variable before the comprehension, and isn't one behind it.
    #[inline(always)]
    pub(super) fn store_fast_or_unbind(&mut self, index: usize) -> Done {
        if self.run.is_null(1) {
            drop(self.run.pop_to_local_or_unbind(index));
            return Ok(());
        }
        self.store_fast(index)
    }

    pub(super) fn load_locals(&mut self) -> Done {
        self.sites.opaque(&self.frame, Opcode::LOAD_LOCALS);
        let locals = ops::load_locals(&self.frame)?;
        self.run.push(locals);
        Ok(())
    }

    pub(super) fn load_from_dict_or_globals(&mut self, index: usize) -> Done {
        self.sites.opaque(&self.frame, Opcode::LOAD_FROM_DICT_OR_GLOBALS);
        let code = self.code();
        let result = ops::load_from_or_globals(&self.frame, self.run.peek(1), code.name_at(index));
        Ok(self.run.finish_one(result)?)
    }

    pub(super) fn load_from_dict_or_deref(&mut self, index: usize) -> Done {
        self.sites.opaque(&self.frame, Opcode::LOAD_FROM_DICT_OR_DEREF);
        let code = self.code();
        let found = ops::load_from(self.run.peek(1), code.local_name(index));
        drop(self.run.pop());
        match found? {
            Some(value) => {
                self.run.push(value);
                Ok(())
            }
            None => self.load_deref(index),
        }
    }

    // -- attributes and items ------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn load_attr_or_method(&mut self, arg: u32) -> Done {
        let index = arg as usize >> 1;
        if arg & 1 != 0 { self.load_method(index) } else { self.load_attr(index) }
    }

    /// `super().name`, of (`super`, class, receiver): bit 0 says that it is called next, bit 1 that `super`
    /// is given the two.
    pub(super) fn load_super_attr(&mut self, arg: u32) -> Done {
        let code = self.code();
        let name = code.name_at(arg as usize >> 2);
        let args = if arg & 2 != 0 { self.run.peek_many(2) } else { &[] };
        let before = ops::executed();
        let made = self.sites.call(&self.frame, self.run.peek(3), args, None);
        if made.as_ref().is_ok_and(|made| made.is_exact_instance_of::<PySuper>()) {
            // Should the look-up fail, CPython executes both.
            ops::uncount_since(before);
        }
        let result =
            made.and_then(|made| self.sites.load_attr(&self.frame, made.as_borrowed(), name));
        self.run.drop_many(3);
        let value = result?;
        if arg & 1 != 0 {
            self.run.push_callable(value);
        } else {
            self.run.push(value);
        }
        Ok(())
    }

    /// The slice of the two topmost values. They stay: if the instruction isn't executed here, CPython
    /// makes its own.
    fn top_slice(&self) -> Result<Object<'py>> {
        let slice = ops::build_slice(self.run.peek(2), self.run.peek(1), None)?;
        self.sites.creates(&self.frame, slice.as_borrowed());
        Ok(slice)
    }

    pub(super) fn binary_slice(&mut self) -> Done {
        let slice = self.top_slice()?;
        let owner = self.run.peek(3);
        let result = self.sites.load_item(&self.frame, owner, slice.as_borrowed());
        self.run.drop_many(3);
        self.run.push(result?);
        Ok(())
    }

    pub(super) fn store_slice(&mut self) -> Done {
        let slice = self.top_slice()?;
        let (value, owner) = (self.run.peek(4), self.run.peek(3));
        let result = self.sites.store_item(&self.frame, owner, slice.as_borrowed(), Some(value));
        self.run.drop_many(4);
        Ok(result?)
    }

    // -- iteration and generators --------------------------------------------------------------

    /// One step of `yield from` or `await`. The receiver stays on the stack, `END_SEND` drops it.
    pub(super) fn send_and_keep(&mut self, units: u32) -> Done {
        let (receiver, value) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.send(&self.frame, receiver, value)?;
        let (value, has_returned) = match result {
            Ok(yielded) => (yielded, false),
            Err(returned) => (returned, true),
        };
        drop(self.run.replace(1, value));
        if has_returned {
            self.run.jump_forward(units);
        }
        Ok(())
    }

    pub(super) fn end_send(&mut self) -> Done {
        self.run.drop_below();
        Ok(())
    }

    /// An exception was thrown into the frame while it waited for another one, of (receiver, value sent
    /// last, exception): `StopIteration` ends the waiting.
    pub(super) fn cleanup_throw(&mut self) -> Done {
        let exception = self.run.peek(1);
        if let Some(value) = ops::stop_iteration_value(exception) {
            let none = self.py().None().into_bound(self.py());
            self.run.drop_many(3);
            self.run.push(none);
            self.run.push(value);
            return Ok(());
        }
        self.sites.raises(&self.frame, Some(exception));
        let exception = exception.to_owned();
        let Raised = self.run.thread().restore_exception(exception);
        Err(Stop::RaisedAgain)
    }

    /// An exception leaves a generator's body: a `StopIteration` must not end the loop around it.
    fn stop_iteration_error(&mut self) -> Done {
        let result = ops::stop_iteration_error(&self.frame, self.run.peek(1));
        if let Ok(Some(error)) = &result {
            self.sites.creates(&self.frame, error.as_borrowed());
        }
        if let Some(error) = result? {
            drop(self.run.replace(1, error));
        }
        Ok(())
    }

    // -- functions by number -------------------------------------------------------------------

    fn push_none(&mut self) -> Done {
        let none = self.py().None().into_bound(self.py());
        self.run.push(none);
        Ok(())
    }

    /// What has no handler makes type variables, or wraps what an asynchronous generator yields: its functions
    /// are private to CPython.
    pub(super) fn intrinsic_1(&mut self, arg: u32) -> Turn<'py> {
        Turn::Done(match arg {
            intrinsic::PRINT => self.print_expr().and_then(|()| self.push_none()),
            intrinsic::IMPORT_STAR => self.import_star().and_then(|()| self.push_none()),
            intrinsic::STOP_ITERATION_ERROR => self.stop_iteration_error(),
            intrinsic::UNARY_POSITIVE => self.unary(UnaryOp::Positive),
            intrinsic::LIST_TO_TUPLE => self.list_to_tuple(),
            _ => return Turn::Native,
        })
    }

    pub(super) fn intrinsic_2(&mut self, arg: u32) -> Turn<'py> {
        match arg {
            intrinsic::PREP_RERAISE_STAR => Turn::Done(self.prep_reraise_star()),
            _ => Turn::Native,
        }
    }

    // -- ways out ------------------------------------------------------------------------------

    #[inline(always)]
    pub(super) fn return_const(&mut self, index: usize) -> Evaluated<'py> {
        let value = self.code().const_at(index).to_owned();
        self.sites.returns(&self.frame, value.as_borrowed());
        self.sites.leaves(&self.frame);
        self.run.leave_with(value)
    }
}
