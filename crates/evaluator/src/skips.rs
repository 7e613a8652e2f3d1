//! Stretches of instructions whose work a site has done.

use stator_cpython::frame::Running;

use super::sites::Skip;
use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// Goes on behind a stretch.
    pub(super) fn skip(&mut self, skip: Skip<'py>) -> Done {
        for value in skip.push {
            match value {
                Some(value) => self.run.push(value),
                None => self.run.push_null(),
            }
        }
        self.run.jump_to(skip.unit);
        if skip.calls { self.call_prepared() } else { Ok(()) }
    }

    /// The next instruction is a call with `*args` and `**kwargs`, whose operands are on the stack.
    fn call_prepared(&mut self) -> Done {
        self.run.fetch();
        let callable = self.run.peek(Running::callable_below(2));
        let (args, kwargs) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.call_prepared(&self.frame, callable, args, kwargs);
        self.run.finish_call(4, result)?;
        self.poll()?;
        Ok(())
    }
}
