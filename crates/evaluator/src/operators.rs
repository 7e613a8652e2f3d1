//! Unary, binary and comparison operators; formatting.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp, UnaryOp};
use stator_cpython::{Raised, Result};

use super::builtins::End;
use super::{Done, Evaluation, Sites};

/// The bits of `FORMAT_VALUE`'s argument that name a conversion.
pub const CONVERSION: u32 = 3;
/// That which says that there is a specification.
pub const HAS_SPEC: u32 = 4;

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

    /// Ends `FORMAT_VALUE` behind the method that it has called.
    pub(super) fn finish_format(
        &mut self,
        end: End,
        arg: u32,
        result: Result<Object<'py>>,
    ) -> Done {
        let (count, spec) = match arg & HAS_SPEC {
            0 => (1, None),
            _ => (2, Some(self.run.peek(1))),
        };
        let interrupts = |what| self.sites.interrupts(&self.frame, what);
        let text = end.finish(&[self.run.peek(count)], result, interrupts);
        let converts = arg & CONVERSION != 0;
        let result = text.and_then(|text| format_text(text, converts, spec, interrupts));
        self.run.drop_many(count);
        self.run.push(result?);
        Ok(())
    }
}

/// What a placeholder makes of the text that its conversion (`!r`, `!s`) has given.
pub fn format_text<'py>(
    text: Object<'py>,
    converts: bool,
    spec: Option<Borrowed<'_, 'py>>,
    interrupts: impl Fn(&'static str),
) -> Result<Object<'py>> {
    if !converts {
        return Ok(text);
    }
    if !text.is_exact_instance_of::<PyString>() {
        interrupts("the format of a string's subclass");
    }
    ops::format(text.as_borrowed(), 0, spec)
}
