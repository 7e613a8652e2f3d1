//! `sum` of numbers, as CPython adds them: from 3.12 on it keeps what each addition of floats rounds away, and adds that
//! at the end (Neumaier's algorithm).

use pyo3::prelude::*;
use pyo3::types::PyFloat;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_graph::Operator;

use super::arithmetic::Term;
use super::read_numbers::are_read;
use crate::recorder::Recorder;
use crate::recorder::notes::call::library;
use crate::recorder::notes::state::State;

fn is_float(number: &Object<'_>) -> bool {
    number.is_exact_instance_of::<PyFloat>()
}

/// Whether adding one number after the other gives something else than `sum` does. The first float is added to integers,
/// and of the second addition nothing is lost that would change its result: what was rounded away is less than half a digit.
fn compensates(items: &[Object<'_>]) -> bool {
    let floats = || items.iter().enumerate().filter(|(_, item)| is_float(item));
    let second = floats().nth(1).map(|(place, _)| place);
    ops::SUM_COMPENSATES && second.is_some_and(|second| second + 1 < items.len())
}

impl Recorder {
    /// `a op b`, of which either may be symbolic.
    pub(super) fn arithmetic<'py>(
        &self,
        frame: &Frame<'py>,
        (op, operator): (BinaryOp, Operator),
        left: &Object<'py>,
        right: &Object<'py>,
    ) -> Result<Object<'py>> {
        let operands = [left.as_borrowed(), right.as_borrowed()];
        let symbolic = self.symbolic_binary(frame, op, operator, &operands);
        symbolic.unwrap_or_else(|| ops::binary(op, operands[0], operands[1]))
    }

    /// `sum` of numbers of which one is symbolic at least. `None`: their values are to be guarded.
    pub(super) fn summed<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
        items: &[Object<'py>],
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let zero = 0i64.into_pyobject(py).ok()?.into_any();
        if !compensates(items) {
            let add = (BinaryOp::Add, Operator::Add);
            let mut items = items.iter();
            return Some(
                items.try_fold(zero, |total, item| self.arithmetic(frame, add, &total, item)),
            );
        }
        let terms: Option<Vec<Term>> = {
            let mut state = self.state.borrow_mut();
            items.iter().map(|item| state.term(item.as_borrowed())).collect()
        };
        let terms = terms?;
        if are_read(&terms) {
            return self.sum_of_read(frame, sequence, &terms);
        }
        self.compensated(frame, zero, items).transpose()
    }

    /// A node that calls `sum`.
    fn sum_of_read<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let function = library(frame.py(), "builtins", "sum").ok()?;
        let value = match ops::call(function.as_borrowed(), &[sequence], None) {
            Ok(value) => value,
            Err(raised) => return Some(Err(raised)),
        };
        let node = |state: &mut State| {
            let numbers = state.term_args(terms);
            let list = state.graph.list(&numbers);
            state.called(frame, function.as_borrowed(), "builtins.sum".to_string(), &[list])
        };
        self.carried_by_node(frame, &value, None, node).map(Ok)
    }

    /// Each rounding error is computed by operations that are exact for finite floats, whichever of the two is greater
    /// (Knuth's `TwoSum`), where CPython compares them. `None`: one isn't finite.
    fn compensated<'py>(
        &self,
        frame: &Frame<'py>,
        zero: Object<'py>,
        items: &[Object<'py>],
    ) -> Result<Option<Object<'py>>> {
        const ADD: (BinaryOp, Operator) = (BinaryOp::Add, Operator::Add);
        const SUBTRACT: (BinaryOp, Operator) = (BinaryOp::Subtract, Operator::Sub);
        let compute = |op, left: &_, right: &_| self.arithmetic(frame, op, left, right);
        let mut total = zero;
        let mut lost: Option<Object<'py>> = None;
        for item in items {
            let sum = compute(ADD, &total, item)?;
            if is_float(&total) && is_float(item) {
                let added = compute(SUBTRACT, &sum, &total)?;
                let kept = compute(SUBTRACT, &sum, &added)?;
                let of_total = compute(SUBTRACT, &total, &kept)?;
                let of_item = compute(SUBTRACT, item, &added)?;
                let error = compute(ADD, &of_total, &of_item)?;
                lost = Some(match lost {
                    Some(lost) => compute(ADD, &lost, &error)?,
                    None => error,
                });
            }
            total = sum;
        }
        let Some(lost) = lost else { return Ok(Some(total)) };
        for (op, bound) in [(CompareOp::Gt, f64::NEG_INFINITY), (CompareOp::Lt, f64::INFINITY)] {
            let bound = PyFloat::new(frame.py(), bound).into_any();
            if !self.comparison_holds(frame, op, lost.as_borrowed(), bound.as_borrowed())? {
                return Ok(None);
            }
        }
        compute(ADD, &total, &lost).map(Some)
    }
}
