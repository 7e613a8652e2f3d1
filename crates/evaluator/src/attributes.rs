//! Attributes, methods and items.

use stator_cpython::ops::Method;

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn load_attr(&mut self, index: usize) -> Done {
        let code = self.code();
        let value = self.sites.load_attr(&self.frame, self.run.peek(1), code.name_at(index))?;
        drop(self.run.replace(1, value));
        Ok(())
    }

    /// Pushes (function, owner), or an attribute with the `NULL` that says that it has no receiver.
    #[inline(always)]
    pub(super) fn load_method(&mut self, index: usize) -> Done {
        let code = self.code();
        match self.sites.load_method(&self.frame, self.run.peek(1), code.name_at(index))? {
            Method::Function(function) => {
                let owner = self.run.replace(1, function);
                self.run.push(owner);
            }
            Method::Attribute(attribute) => self.run.replace_by_callable(attribute),
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn store_attr(&mut self, index: usize) -> Done {
        let code = self.code();
        let (owner, value) = (self.run.peek(1), self.run.peek(2));
        let result = self.sites.store_attr(&self.frame, owner, code.name_at(index), Some(value));
        self.run.drop_many(2);
        Ok(result?)
    }

    pub(super) fn delete_attr(&mut self, index: usize) -> Done {
        let code = self.code();
        let owner = self.run.peek(1);
        let result = self.sites.store_attr(&self.frame, owner, code.name_at(index), None);
        drop(self.run.pop());
        Ok(result?)
    }

    #[inline(always)]
    pub(super) fn binary_subscr(&mut self) -> Done {
        let (owner, key) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.load_item(&self.frame, owner, key);
        Ok(self.run.finish_two(result)?)
    }

    #[inline(always)]
    pub(super) fn store_subscr(&mut self) -> Done {
        let (value, owner, key) = (self.run.peek(3), self.run.peek(2), self.run.peek(1));
        let result = self.sites.store_item(&self.frame, owner, key, Some(value));
        self.run.drop_many(3);
        Ok(result?)
    }

    pub(super) fn delete_subscr(&mut self) -> Done {
        let (owner, key) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.store_item(&self.frame, owner, key, None);
        self.run.drop_many(2);
        Ok(result?)
    }
}
