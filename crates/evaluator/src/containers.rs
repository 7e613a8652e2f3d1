//! Building and filling containers.

use stator_cpython::Result;
use stator_cpython::frame::Running;
use stator_cpython::object::Object;
use stator_cpython::ops;

use super::iteration::is_lazy;
use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    fn push_new(&mut self, object: Object<'py>) -> Done {
        self.sites.creates(&self.frame, object.as_borrowed());
        self.run.push(object);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn build_tuple(&mut self, count: usize) -> Done {
        let tuple = self.run.pop_tuple(count)?;
        self.push_new(tuple)
    }

    #[inline(always)]
    pub(super) fn build_list(&mut self, count: usize) -> Done {
        let list = self.run.pop_list(count)?;
        self.push_new(list)
    }

    pub(super) fn build_set(&mut self, count: usize) -> Done {
        self.sites.takes_keys(&self.frame, self.run.peek_many(count));
        let set = ops::build_set(self.py(), self.run.peek_many(count));
        self.run.drop_many(count);
        self.push_new(set?)
    }

    pub(super) fn build_map(&mut self, count: usize) -> Done {
        for entry in self.run.peek_many(2 * count).chunks_exact(2) {
            self.sites.takes_keys(&self.frame, &entry[..1]);
        }
        let map = ops::build_map(self.py(), self.run.peek_many(2 * count))?;
        self.run.drop_many(2 * count);
        self.push_new(map)
    }

    pub(super) fn build_const_key_map(&mut self, count: usize) -> Done {
        let values = &self.run.peek_many(count + 1)[..count];
        let map = ops::build_const_key_map(self.run.peek(1), values)?;
        self.run.drop_many(count + 1);
        self.push_new(map)
    }

    pub(super) fn build_string(&mut self, count: usize) -> Done {
        let string = ops::build_string(self.py(), self.run.peek_many(count))?;
        let string = self.sites.joins(&self.frame, self.run.peek_many(count), string);
        self.run.drop_many(count);
        self.run.push(string);
        Ok(())
    }

    pub(super) fn build_slice(&mut self, count: usize) -> Done {
        let step = (count == 3).then(|| self.run.peek(1));
        let (start, stop) = (self.run.peek(count), self.run.peek(count - 1));
        let slice = ops::build_slice(start, stop, step);
        self.run.drop_many(count);
        self.push_new(slice?)
    }

    pub(super) fn list_to_tuple(&mut self) -> Done {
        let tuple = ops::list_to_tuple(self.run.peek(1));
        if let Ok(tuple) = &tuple {
            self.sites.creates(&self.frame, tuple.as_borrowed());
        }
        Ok(self.run.finish_one(tuple)?)
    }

    /// Drops `count` operands; `result` is of changing the container that is `depth` below them.
    #[inline(always)]
    fn finish_extending(&mut self, count: usize, depth: usize, result: Result<()>) -> Done {
        self.run.drop_many(count);
        result?;
        self.sites.extends(&self.frame, self.run.peek(depth));
        Ok(())
    }

    #[inline(always)]
    pub(super) fn list_append(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        let result = ops::list_append(self.run.peek(depth + 1), self.run.peek(1));
        self.finish_extending(1, depth, result)
    }

    pub(super) fn list_extend(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        if is_lazy(self.run.peek(1))
            && let Some(all) = self.sites.gathers(&self.frame, self.run.peek(1))?
        {
            drop(self.run.pop());
            self.run.push(all);
        }
        self.consume()?;
        let extend = || ops::list_extend(self.run.peek(depth + 1), self.run.peek(1));
        let result = if is_lazy(self.run.peek(1)) {
            self.sites.collects(&self.frame, self.run.peek(1), extend)
        } else {
            extend()
        };
        self.finish_extending(1, depth, result)
    }

    #[inline(always)]
    pub(super) fn set_add(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        self.sites.takes_keys(&self.frame, self.run.peek_many(1));
        let result = ops::set_add(self.run.peek(depth + 1), self.run.peek(1));
        self.sites.hashes(&self.frame, self.run.peek(1));
        self.finish_extending(1, depth, result)
    }

    pub(super) fn set_update(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        self.consume()?;
        self.sites.takes_keys(&self.frame, self.run.peek_many(1));
        let extend = || ops::set_update(self.run.peek(depth + 1), self.run.peek(1));
        let result = self.read_whole(extend);
        self.sites.hashes(&self.frame, self.run.peek(depth + 1));
        self.finish_extending(1, depth, result)
    }

    #[inline(always)]
    pub(super) fn map_add(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 2));
        let (key, value) = (self.run.peek(2), self.run.peek(1));
        self.sites.takes_keys(&self.frame, &[key]);
        let result = ops::map_add(self.run.peek(depth + 2), key, value);
        self.sites.hashes(&self.frame, self.run.peek(2));
        self.finish_extending(2, depth, result)
    }

    pub(super) fn dict_update(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        self.sites.reads_mapping(&self.frame, self.run.peek(1));
        let extend = || ops::dict_update(self.run.peek(depth + 1), self.run.peek(1));
        let result = self.read_whole(extend);
        self.sites.hashes(&self.frame, self.run.peek(depth + 1));
        self.finish_extending(1, depth, result)
    }

    /// The dict of a call's keyword arguments; the callable lies below it and the positional ones.
    pub(super) fn dict_merge(&mut self, depth: usize) -> Done {
        self.sites.grows(&self.frame, self.run.peek(depth + 1));
        self.sites.reads_mapping(&self.frame, self.run.peek(1));
        let callable = self.run.peek(Running::callable_below(depth + 2));
        let extend = || ops::merge_kwargs(callable, self.run.peek(depth + 1), self.run.peek(1));
        let result = self.read_whole(extend);
        self.finish_extending(1, depth, result)
    }
}
