//! `for` and unpacking.

use super::{Done, Evaluation, Sites};

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

    #[inline(always)]
    /// Tells the sites that the top of the stack is about to be read whole.
    pub(super) fn consume(&mut self) -> Done {
        if let Some(parts) = self.sites.consumes(&self.frame, self.run.peek(1))? {
            drop(self.run.pop());
            self.run.push(parts);
        }
        Ok(())
    }

    pub(super) fn unpack_sequence(&mut self, count: usize) -> Done {
        self.consume()?;
        Ok(self.run.unpack(count, None)?)
    }

    pub(super) fn unpack_ex(&mut self, arg: usize) -> Done {
        self.consume()?;
        let before = arg & 0xFF;
        self.run.unpack(before, Some(arg >> 8))?;
        // Behind the names before the star: the list for the one with it.
        self.sites.creates(&self.frame, self.run.peek(before + 1));
        Ok(())
    }
}
