//! Unary, binary and comparison operators; formatting.

use pyo3::types::PyBool;
use stator_cpython::object::Object;
use stator_cpython::ops::{BinaryOp, CompareOp, UnaryOp};
use stator_cpython::{Raised, Result};

use super::{Done, Evaluation, Sites};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    #[inline(always)]
    pub(super) fn bool_object(&self, value: bool) -> Object<'py> {
        PyBool::new(self.py(), value).to_owned().into_any()
    }

    #[inline(always)]
    pub(super) fn binary_op(&mut self, arg: u32) -> Done {
        let Some(op) = BinaryOp::from_arg(arg) else { return Err(self.bad_argument()) };
        let (left, right) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.binary(&self.frame, op, left, right);
        Ok(self.run.finish_two(result)?)
    }

    #[inline(always)]
    pub(super) fn compare_op(&mut self, arg: u32) -> Done {
        let Some(op) = CompareOp::from_arg(arg) else { return Err(self.bad_argument()) };
        let (left, right) = (self.run.peek(2), self.run.peek(1));
        let result = self.sites.compare(&self.frame, op, left, right);
        Ok(self.run.finish_two(result)?)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn bad_argument(&self) -> super::Stop {
        Raised::system_error(self.py(), c"bad instruction argument").into()
    }

    #[inline(always)]
    pub(super) fn contains_op(&mut self, arg: u32) -> Done {
        let (item, container) = (self.run.peek(2), self.run.peek(1));
        let found = self.sites.contains(&self.frame, container, item);
        let result = found.map(|found| self.bool_object(found ^ (arg != 0)));
        Ok(self.run.finish_two(result)?)
    }

    #[inline(always)]
    pub(super) fn is_op(&mut self, arg: u32) -> Done {
        let same = self.sites.is_same(&self.frame, self.run.peek(2), self.run.peek(1));
        let result = self.bool_object(same ^ (arg != 0));
        Ok(self.run.finish_two(Ok(result))?)
    }

    #[inline(always)]
    pub(super) fn unary(&mut self, op: UnaryOp) -> Done {
        let result = self.sites.unary(&self.frame, op, self.run.peek(1));
        Ok(self.run.finish_one(result)?)
    }

    #[inline(always)]
    pub(super) fn unary_not(&mut self) -> Done {
        let result = self.truth().map(|truth| self.bool_object(!truth));
        Ok(self.run.finish_one(result)?)
    }

    pub(super) fn format_value(&mut self, arg: u32) -> Done {
        const CONVERSION: u32 = 3;
        const HAS_SPEC: u32 = 4;
        let (count, spec) = match arg & HAS_SPEC {
            0 => (1, None),
            _ => (2, Some(self.run.peek(1))),
        };
        let value = self.run.peek(count);
        let result: Result<Object<'py>> =
            self.sites.format(&self.frame, value, arg & CONVERSION, spec);
        self.run.drop_many(count);
        self.run.push(result?);
        Ok(())
    }
}
