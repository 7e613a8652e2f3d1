//! Tuples and lists that hold symbolic numbers, compared as C code does it: item by item, up to the first ones that differ.
//!
//! Each pair of numbers that it comes to is a question, which is asked so that its answer is yes: a NaN, which equals nothing
//! and stands before nothing, answers no.

use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyInt};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, CompareOp};

use super::arithmetic::DEPTH;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

/// What is asked of a pair of numbers, and what is to be known of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Whether they are equal.
    Equality,
    /// Which one is less.
    Order,
}

/// A comparison of two numbers that holds.
type Question<'py> = (CompareOp, [Object<'py>; 2]);

impl Recorder {
    /// `left op right` of two tuples or lists that hold symbolic numbers, or texts of such. `None`: they hold none, or more is
    /// compared than numbers and constants; nothing was asked.
    pub(in crate::recorder) fn compared_rows<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let are_rows = self.has_symbols() && is_row(left) && is_row(right);
        if !are_rows || !self.hold_numbers(&[left, right]) {
            return None;
        }
        let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        let asked = if is_equality { Asked::Equality } else { Asked::Order };
        self.ask_of_pair(frame, asked, left, right)?;
        Some(ops::compare(op, left, right))
    }

    /// Decides which of two things comes before the other: numbers, or tuples and lists of such and of constants. Then C code
    /// may compare them. False: it can't be decided so; nothing was asked.
    pub(in crate::recorder) fn decides_order<'py>(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> bool {
        self.ask_of_pair(frame, Asked::Order, left, right).is_some()
    }

    /// Whether one thing is less than the other in this call. `None`: more is compared than numbers and constants.
    pub(in crate::recorder) fn is_less_now<'py>(
        &self,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        self.questions(Asked::Order, left, right, 0, &mut Vec::new())?;
        // Asking is no step of the instruction: it can still be left.
        left.lt(right).ok()
    }

    /// Whether one of these holds a symbolic number, or a text of such.
    pub(in crate::recorder) fn hold_numbers(&self, objects: &[Borrowed<'_, '_>]) -> bool {
        let mut state = self.state.borrow_mut();
        let mut numbers = Vec::new();
        objects.iter().any(|object| {
            state.numbers_in(*object, &mut numbers);
            !numbers.is_empty()
        })
    }

    fn ask_of_pair<'py>(
        &self,
        frame: &Frame<'py>,
        asked: Asked,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<()> {
        self.questions(asked, left, right, 0, &mut Vec::new())?;
        if is_row(left) && is_row(right) {
            self.note(frame, |state| {
                state.adopt_deep(left)?;
                state.adopt_deep(right)
            })?;
        }
        // What was found may have put numbers of its own into outside lists.
        let mut questions = Vec::new();
        self.questions(asked, left, right, 0, &mut questions)?;
        for (op, [left, right]) in &questions {
            let operands = [left.as_borrowed(), right.as_borrowed()];
            if self.symbolic_compare(frame, *op, operands[0], operands[1]).is_none() {
                self.concrete(frame, &operands, "a comparison");
            }
        }
        Some(())
    }

    /// Whether C code finds two things to be equal, and what it asks of symbolic numbers for that. `None`: it asks more.
    fn questions<'py>(
        &self,
        asked: Asked,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
        depth: usize,
        questions: &mut Vec<Question<'py>>,
    ) -> Option<bool> {
        if is_row(left) && is_row(right) {
            if depth > DEPTH || is_list(left) != is_list(right) {
                return None;
            }
            let (lefts, rights) = (heap::children(left), heap::children(right));
            for (left, right) in lefts.iter().zip(&rights) {
                let pair = (left.as_borrowed(), right.as_borrowed());
                if !self.questions(asked, pair.0, pair.1, depth + 1, questions)? {
                    return Some(false);
                }
            }
            return Some(lefts.len() == rights.len());
        }
        let mut state = self.state.borrow_mut();
        let mut is_known = |object: Borrowed<'_, '_>| {
            state.kind(object) == Kind::Constant
                && !is_nan(object)
                && !object.is_exact_instance_of::<PyComplex>()
                && state.spelt(object).is_empty()
        };
        if !is_known(left) || !is_known(right) {
            return None;
        }
        let is_equal = left.eq(right).ok()?;
        let is_symbolic = state.number(left).is_some() || state.number(right).is_some();
        if is_symbolic && heap::is_number(left) && heap::is_number(right) && !left.is(right) {
            let is_int = |number: Borrowed<'_, '_>| number.is_exact_instance_of::<PyInt>();
            let op = if is_equal {
                CompareOp::Eq
            } else if asked == Asked::Equality && is_int(left) && is_int(right) {
                CompareOp::Ne
            } else if left.lt(right).ok()? {
                CompareOp::Lt
            } else {
                CompareOp::Gt
            };
            questions.push((op, [left.to_owned(), right.to_owned()]));
        }
        Some(is_equal)
    }
}

/// Whether an object is a tuple or a list, of which CPython's own code compares the items.
fn is_row(object: Borrowed<'_, '_>) -> bool {
    is_list(object) || heap::is_plain_tuple(object)
}

fn is_list(object: Borrowed<'_, '_>) -> bool {
    heap::is_exact_list(object)
}

pub(super) fn is_nan(object: Borrowed<'_, '_>) -> bool {
    object.cast_exact::<PyFloat>().is_ok_and(|number| number.value().is_nan())
}
