//! Calls and `with`.
//!
//! `PRECALL` does nothing: CPython only takes bound methods apart there, which saves it a copy of the
//! arguments; a site gets the bound method itself.

use pyo3::prelude::*;
use stator_cpython::ops;

use super::{Done, Evaluation, Keywords, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn kw_names(&mut self, constant: usize) -> Done {
        self.keywords = Some(Keywords { start: self.run.start_unit(), constant });
        Ok(())
    }

    /// The stack holds (`NULL`, callable, arguments) or (function, self, arguments).
    #[inline(always)]
    pub(super) fn call(&mut self, count: usize) -> Done {
        let is_method = !self.run.is_null(count + 2);
        let total = count + usize::from(is_method);
        let code = self.code();
        // They stay until the call is done: if it isn't executed here, CPython begins at their instruction.
        let names = self.keywords.map(|keywords| code.const_at(keywords.constant));
        let (callable, args) = (self.run.peek(total + 1), self.run.peek_many(total));
        let result = self.sites.call(&self.frame, callable, args, names);
        self.keywords = None;
        self.run.finish_call(total, !is_method, result)?;
        self.poll()?;
        Ok(())
    }

    /// The stack holds (`NULL`, callable, args) and, if bit 0 is set, kwargs.
    pub(super) fn call_function_ex(&mut self, arg: u32) -> Done {
        let has_kwargs = arg & 1 != 0;
        if has_kwargs {
            self.sites.consumes(&self.frame, self.run.peek(1))?;
            match ops::to_kwargs_dict(self.run.peek(3), self.run.peek(1)) {
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
        self.sites.consumes(&self.frame, self.run.peek(args_at))?;
        let tuple = ops::to_args_tuple(self.run.peek(args_at + 1), self.run.peek(args_at))?;
        if let Some(tuple) = tuple {
            self.sites.creates(&self.frame, tuple.as_borrowed());
            drop(self.run.replace(args_at, tuple));
        }
        let (callable, args) = (self.run.peek(args_at + 1), self.run.peek(args_at));
        let kwargs = has_kwargs.then(|| self.run.peek(1));
        let result = self.sites.call_ex(&self.frame, callable, args, kwargs);
        self.run.finish_call(args_at, true, result)?;
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
