//! Stack shuffling, constants, locals, globals, cells.

use stator_cpython::object::Borrowed;
use stator_cpython::ops;

use super::{Done, Evaluation, Sites, Stop};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn pop_top(&mut self) -> Done {
        drop(self.run.pop());
        Ok(())
    }

    #[inline(always)]
    pub(super) fn push_null(&mut self) -> Done {
        self.run.push_null();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn copy(&mut self, n: usize) -> Done {
        self.run.copy(n);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn swap(&mut self, n: usize) -> Done {
        self.run.swap(n);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn load_const(&mut self, index: usize) -> Done {
        self.run.push_clone_of_const(index);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn load_fast(&mut self, index: usize) -> Done {
        if self.run.push_local(index) { Ok(()) } else { Err(self.unbound_local(index)) }
    }

    #[cold]
    #[inline(never)]
    fn unbound_local(&self, index: usize) -> Stop {
        ops::raise_unbound_local(&self.frame, index).into()
    }

    #[inline(always)]
    pub(super) fn store_fast(&mut self, index: usize) -> Done {
        let old = self.run.pop_to_local(index);
        if let Some(value) = self.frame.local(index) {
            self.sites.stored_fast(&self.frame, index, value);
        }
        drop(old);
        Ok(())
    }

    pub(super) fn delete_fast(&mut self, index: usize) -> Done {
        match self.run.set_local(index, None) {
            Some(old) => {
                drop(old);
                Ok(())
            }
            None => Err(self.unbound_local(index)),
        }
    }

    #[inline(always)]
    pub(super) fn load_global(&mut self, arg: u32) -> Done {
        let code = self.code();
        let value = self.sites.load_global(&self.frame, code.name_at(arg as usize >> 1))?;
        if arg & 1 != 0 {
            self.run.push_callable(value);
        } else {
            self.run.push(value);
        }
        Ok(())
    }

    pub(super) fn store_global(&mut self, index: usize) -> Done {
        let code = self.code();
        let value = self.run.peek(1);
        let result = self.sites.store_global(&self.frame, code.name_at(index), Some(value));
        drop(self.run.pop());
        Ok(result?)
    }

    pub(super) fn delete_global(&mut self, index: usize) -> Done {
        let code = self.code();
        Ok(self.sites.store_global(&self.frame, code.name_at(index), None)?)
    }

    pub(super) fn load_name(&mut self, index: usize) -> Done {
        let code = self.code();
        let value = self.sites.load_name(&self.frame, code.name_at(index))?;
        self.run.push(value);
        Ok(())
    }

    pub(super) fn store_name(&mut self, index: usize) -> Done {
        let code = self.code();
        let value = self.run.peek(1);
        let result = self.sites.store_name(&self.frame, code.name_at(index), Some(value));
        drop(self.run.pop());
        Ok(result?)
    }

    pub(super) fn delete_name(&mut self, index: usize) -> Done {
        let code = self.code();
        Ok(self.sites.store_name(&self.frame, code.name_at(index), None)?)
    }

    pub(super) fn make_cell(&mut self, index: usize) -> Done {
        let cell = ops::make_cell(self.py(), self.frame.local(index))?;
        self.sites.creates(&self.frame, cell.as_borrowed());
        drop(self.run.set_local(index, Some(cell)));
        Ok(())
    }

    pub(super) fn copy_free_vars(&mut self, count: usize) -> Done {
        self.run.copy_free_vars(count);
        Ok(())
    }

    /// The cell in a fast local's slot. The compiler makes it before any other use of the slot.
    #[inline(always)]
    fn cell(&self, index: usize) -> Borrowed<'_, 'py> {
        self.frame.local(index).expect("MAKE_CELL or COPY_FREE_VARS comes first")
    }

    #[inline(always)]
    pub(super) fn load_deref(&mut self, index: usize) -> Done {
        match self.sites.load_cell(&self.frame, self.cell(index), index) {
            Some(value) => {
                self.run.push(value);
                Ok(())
            }
            None => Err(ops::raise_unbound_cell(&self.frame, index).into()),
        }
    }

    #[inline(always)]
    pub(super) fn store_deref(&mut self, index: usize) -> Done {
        let value = self.run.peek(1).to_owned();
        self.sites.store_cell(&self.frame, self.cell(index), index, Some(value));
        drop(self.run.pop());
        Ok(())
    }

    pub(super) fn delete_deref(&mut self, index: usize) -> Done {
        let cell = self.cell(index);
        if self.sites.load_cell(&self.frame, cell, index).is_none() {
            return Err(ops::raise_unbound_cell(&self.frame, index).into());
        }
        self.sites.store_cell(&self.frame, cell, index, None);
        Ok(())
    }
}
