//! What CPython 3.11 and 3.12 do in instructions that later versions don't have, or have otherwise: handlers that
//! their rows alone name.

use super::{Done, Evaluation, Keywords, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn kw_names(&mut self, constant: usize) -> Done {
        self.keywords = Some(Keywords { start: self.run.start_unit(), constant });
        Ok(())
    }

    /// Behind a loop over a generator that CPython's own loop has run.
    #[cfg(Py_3_12)]
    pub(super) fn end_for(&mut self) -> Done {
        self.run.drop_many(2);
        Ok(())
    }
}
