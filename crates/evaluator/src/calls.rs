//! Calls and `with`.
//!
//! `PRECALL` does nothing: CPython only takes bound methods apart there, which saves it a copy of the
//! arguments; a site gets the bound method itself.

use pyo3::prelude::*;
use stator_cpython::frame::Running;
use stator_cpython::ops;

use super::iteration::is_lazy;
use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// The stack holds (function, receiver, arguments), or the callable, a `NULL` on one of its sides, and the
    /// arguments.
    #[inline(always)]
    pub(super) fn call(&mut self, count: usize) -> Done {
        let (callable, total) = self.run.callee(count);
        let code = self.code();
        // They stay until the call is done: if it isn't executed here, CPython begins at their instruction.
        let names = self.keywords.map(|keywords| code.const_at(keywords.constant));
        let (callable, args) = (self.run.peek(callable), self.run.peek_many(total));
        let result = self.sites.call(&self.frame, callable, args, names);
        self.keywords = None;
        self.run.finish_call(count + 2, result)?;
        self.poll()?;
        Ok(())
    }

    /// The stack holds the callable with its `NULL`, args and, if bit 0 is set, kwargs.
    pub(super) fn call_function_ex(&mut self, arg: u32) -> Done {
        let has_kwargs = arg & 1 != 0;
        if has_kwargs {
            self.sites.consumes(&self.frame, self.run.peek(1))?;
            let callable = self.run.peek(Running::callable_below(2));
            match self.read_whole(|| ops::to_kwargs_dict(callable, self.run.peek(1))) {
                Ok(Some(dict)) => {
                    self.sites.creates(&self.frame, dict.as_borrowed());
                    drop(self.run.replace(1, dict));
                }
                Ok(None) => {}
                Err(raised) => {
                    drop(self.run.pop());
                    return Err(raised.into());
                }
            }
        }
        let args_at = 1 + usize::from(has_kwargs);
        if is_lazy(self.run.peek(args_at))
            && let Some(all) = self.sites.gathers(&self.frame, self.run.peek(args_at))?
        {
            drop(self.run.replace(args_at, all));
        }
        self.sites.consumes(&self.frame, self.run.peek(args_at))?;
        let callable = Running::callable_below(args_at);
        let (called, args) = (self.run.peek(callable), self.run.peek(args_at));
        let before = ops::executed();
        let convert = || ops::to_args_tuple(called, args);
        let tuple =
            if is_lazy(args) { self.sites.calls_back(&self.frame, convert)? } else { convert()? };
        if let Some(tuple) = tuple {
            self.sites.creates(&self.frame, tuple.as_borrowed());
            drop(self.run.replace(args_at, tuple));
            // It's a call of what is on the stack from here on, and none has begun.
            ops::uncount_since(before);
        }
        let (callable, args) = (self.run.peek(callable), self.run.peek(args_at));
        let kwargs = has_kwargs.then(|| self.run.peek(1));
        let result = self.sites.call_ex(&self.frame, callable, args, kwargs);
        self.run.finish_call(args_at + 2, result)?;
        self.poll()?;
        Ok(())
    }

    pub(super) fn before_with(&mut self) -> Done {
        let (exit, entered) = self.sites.before_with(&self.frame, self.run.peek(1))?;
        drop(self.run.replace(1, exit));
        self.run.push(entered);
        Ok(())
    }

    /// Calls the bound `__exit__` that lies below the exception.
    pub(super) fn with_except_start(&mut self) -> Done {
        let (exit, exception) = (self.run.peek(4), self.run.peek(1));
        let class = exception.get_type().into_any();
        let traceback = ops::traceback_of(exception);
        let args = [class.as_borrowed(), exception, traceback.as_borrowed()];
        let result = self.sites.call(&self.frame, exit, &args, None)?;
        self.run.push(result);
        Ok(())
    }
}
