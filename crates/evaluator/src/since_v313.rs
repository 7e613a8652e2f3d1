//! What CPython 3.13 does in other instructions than the versions before: handlers that its rows alone name.

use stator_cpython::ops::{self, CompareOp};

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    // -- names: two instructions in one ---------------------------------------------------------

    #[inline(always)]
    pub(super) fn load_fast_load_fast(&mut self, pair: usize) -> Done {
        self.load_fast(pair >> 4)?;
        self.load_fast(pair & 15)
    }

    #[inline(always)]
    pub(super) fn store_fast_load_fast(&mut self, pair: usize) -> Done {
        self.store_fast_or_unbind(pair >> 4)?;
        self.load_fast(pair & 15)
    }

    #[inline(always)]
    pub(super) fn store_fast_store_fast(&mut self, pair: usize) -> Done {
        self.store_fast_or_unbind(pair >> 4)?;
        self.store_fast_or_unbind(pair & 15)
    }

    // -- operators -----------------------------------------------------------------------------

    /// Bit 4 of the argument says that the truth of the result takes its place.
    #[inline(always)]
    pub(super) fn compare_op_or_test(&mut self, arg: u32) -> Done {
        if arg & 16 == 0 {
            return self.compare_op(arg >> 5);
        }
        let Some(op) = CompareOp::from_arg(arg >> 5) else { return Err(self.bad_argument()) };
        let (left, right) = (self.run.peek(2), self.run.peek(1));
        let truth = self.sites.compare_truth(&self.frame, op, left, right);
        let result = truth.map(|truth| self.bool_object(truth));
        Ok(self.run.finish_two(result)?)
    }

    #[inline(always)]
    pub(super) fn truth_value(&mut self) -> Done {
        let result = self.truth().map(|truth| self.bool_object(truth));
        Ok(self.run.finish_one(result)?)
    }

    /// `!r` and the like; the next instruction formats what it gives.
    pub(super) fn convert_value(&mut self, conversion: u32) -> Done {
        let result = self.sites.convert(&self.frame, self.run.peek(1), conversion);
        Ok(self.run.finish_one(result)?)
    }

    // -- calls ---------------------------------------------------------------------------------

    /// As `call`, with the names of the last arguments on top.
    pub(super) fn call_kw(&mut self, count: usize) -> Done {
        let (callable, total) = self.run.callee(count + 1);
        let (callable, names) = (self.run.peek(callable), self.run.peek(1));
        let args = &self.run.peek_many(total)[..total - 1];
        let result = self.sites.call(&self.frame, callable, args, Some(names));
        self.run.finish_call(count + 3, result)?;
        self.poll()?;
        Ok(())
    }

    // -- functions -----------------------------------------------------------------------------

    /// A part of a new function, of (part, function).
    pub(super) fn set_function_attribute(&mut self, part: u32) -> Done {
        let function = self.run.pop();
        let value = self.run.pop();
        ops::set_function_part(&function, part, value);
        self.sites.creates(&self.frame, function.as_borrowed());
        self.run.push(function);
        Ok(())
    }
}
