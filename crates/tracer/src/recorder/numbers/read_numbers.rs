//! What is computed from numbers that were read from tensors (`read_tensors.rs`).
//!
//! Each such number is what a node of the graph gives. Nothing is known of it when a call begins, so no guard speaks of it: it's
//! carried, through arithmetic, containers and operations, and what asks for its value (a branch, a comparison) is
//! a decision (`ending/deciding.rs`). Who asks otherwise ends the trace.
//!
//! Nodes compute in the order of the program, and what would raise for some numbers (a division, a power) is decided
//! first.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PySlice};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_graph::{Arg, NodeId, Operator, Target};
use stator_shapes::ExprId;

use super::arithmetic::Term;
use super::number_functions::boolean;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Decides, Ends};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::notes::symbols::{Number, NumberId, Operand};

/// Whether one of the numbers was read.
pub(super) fn are_read(terms: &[Term]) -> bool {
    terms.iter().any(|term| matches!(term.number, Number::Read(_)))
}

/// What a number has to be for an operation to give what it gave, and no error.
enum Needs {
    Nothing,
    /// The second one isn't zero.
    Divisor,
    /// The first one isn't zero.
    NonZero,
    /// The first one is positive.
    Positive,
    /// The second one is positive.
    PositiveExponent,
    /// What it gives, or its type, depends on more.
    More,
}

impl Recorder {
    /// `left op right`, of which one was read.
    pub(super) fn read_binary<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        operator: Operator,
        operands: &[Borrowed<'_, 'py>; 2],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let [left, right] = *operands;
        let (is_enclosed, goes_back) = {
            let enclosed = &self.state.borrow().enclosed;
            (enclosed.is_on(), enclosed.goes_back())
        };
        let holds = match needs(op, operands, terms) {
            Needs::Nothing => true,
            // Code within a node raises by itself.
            Needs::Divisor | Needs::NonZero | Needs::PositiveExponent if is_enclosed => true,
            // What kind of number it is shows in no gradient.
            Needs::Positive if goes_back => true,
            Needs::Divisor => self.is_within(frame, right, &terms[1], &[(CompareOp::Ne, 0.0)]),
            Needs::NonZero => self.is_within(frame, left, &terms[0], &[(CompareOp::Ne, 0.0)]),
            Needs::Positive => self.is_within(frame, left, &terms[0], &[(CompareOp::Gt, 0.0)]),
            Needs::PositiveExponent => {
                self.is_within(frame, right, &terms[1], &[(CompareOp::Gt, 0.0)])
            }
            Needs::More => false,
        };
        if !holds {
            self.concrete(frame, operands, "an operation whose result depends on more than it");
            return Some(ops::binary(op, left, right));
        }
        let value = match ops::binary(op, left, right) {
            Ok(value) => value,
            Err(raised) => {
                self.concrete(frame, operands, "an error");
                return Some(Err(raised));
            }
        };
        let expr = self.state.borrow_mut().result_expr(op, terms, &value);
        self.computed_by_node(frame, Target::Operator(operator), terms, &value, expr).map(Ok)
    }

    /// Whether a number is within these bounds, in this call and wherever the trace goes on.
    pub(super) fn is_within(
        &self,
        frame: &Frame<'_>,
        number: Borrowed<'_, '_>,
        term: &Term,
        bounds: &[(CompareOp, f64)],
    ) -> bool {
        if self.session.program.is_some() {
            // Its operations raise by themselves, in each run.
            return matches!(term.number, Number::Read(_));
        }
        matches!(term.number, Number::Read(_))
            && bounds.iter().all(|(op, bound)| {
                let decided = self.compared_with(frame, Asks::Operation, *op, number, term, *bound);
                matches!(decided, Some(Ok(true)))
            })
    }

    /// Whether a float that was read is no larger than this, whichever sign it has.
    pub(in crate::recorder) fn is_no_larger(
        &self,
        frame: &Frame<'_>,
        number: Borrowed<'_, '_>,
        most: f64,
    ) -> bool {
        let terms = self.state.borrow_mut().terms(&[number]);
        let bounds = [(CompareOp::Ge, -most), (CompareOp::Le, most)];
        terms.is_some_and(|terms| self.is_within(frame, number, &terms[0], &bounds))
    }

    fn compared_with(
        &self,
        frame: &Frame<'_>,
        asks: Asks,
        op: CompareOp,
        number: Borrowed<'_, '_>,
        term: &Term,
        bound: f64,
    ) -> Option<Result<bool>> {
        let other = PyFloat::new(frame.py(), bound);
        let constant = Term { number: term.number, operand: Operand::Other(Arg::float(bound)) };
        let operands = [number, other.as_any().as_borrowed()];
        self.decided_comparison(frame, asks, op, operands, &[*term, constant])
    }

    /// A comparison of numbers of which one was read: a decision.
    pub(super) fn read_compare<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        operands: [Borrowed<'_, 'py>; 2],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        if let Some(known) = self.state.borrow_mut().known_of_sizes(op, terms) {
            return Some(Ok(boolean(frame.py(), known)));
        }
        match self.decided_comparison(frame, Asks::Program, op, operands, terms) {
            Some(answer) => {
                self.state.borrow_mut().learn_of_sizes(op, terms);
                Some(answer.map(|answer| boolean(frame.py(), answer)))
            }
            None => {
                self.concrete(frame, &operands, "a comparison");
                Some(ops::compare(op, operands[0], operands[1]))
            }
        }
    }

    /// What a function says of a number that was read (`math.isnan`): a decision. `None`: it can't be one.
    pub(super) fn read_answer<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        number: Borrowed<'_, 'py>,
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let asked = |state: &mut State| {
            let name = format!("math.{}", heap::callable_name(callable));
            let args = state.term_args(terms);
            Ok(Arg::Node(state.called(frame, callable, name, &args)))
        };
        let native =
            || ops::call(callable, &[number], None).map(|it| it.is_truthy().unwrap_or(false));
        let answer = self.decided(frame, Asks::Program, asked, native)?;
        Some(answer.map(|answer| boolean(frame.py(), answer)))
    }

    /// The truth value of a number that was read: a decision.
    pub(super) fn read_truth(
        &self,
        frame: &Frame<'_>,
        operand: Borrowed<'_, '_>,
        terms: &[Term],
    ) -> Option<bool> {
        let decided =
            self.compared_with(frame, Asks::Program, CompareOp::Ne, operand, &terms[0], 0.0);
        match decided {
            Some(Ok(answer)) => Some(answer),
            Some(Err(_)) | None => {
                self.concrete(frame, &[operand], "a truth value");
                None
            }
        }
    }

    /// Integers that were read, or drawn among few, are asked for their values (a key, an index, a size): decisions that
    /// they are these.
    /// Whether there are any, and all have been decided.
    pub(in crate::recorder) fn settle_read(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
    ) -> bool {
        let found = self.state.borrow_mut().integers_read(frame.py(), objects);
        let Some(numbers) = found else { return false };
        numbers.iter().all(|(id, object)| {
            let value = object.extract::<i64>().ok();
            value.is_some_and(|value| self.settle(frame, *id, object, value))
        })
    }

    fn settle(&self, frame: &Frame<'_>, id: NumberId, object: &Object<'_>, value: i64) -> bool {
        let constant = PyInt::new(frame.py(), value);
        let operands = [object.as_borrowed(), constant.as_any().as_borrowed()];
        let term = |operand| Term { number: Number::Read(false), operand };
        let terms = [term(Operand::Number(id)), term(Operand::Other(Arg::int(value)))];
        let decided =
            self.decided_comparison(frame, Asks::Program, CompareOp::Eq, operands, &terms);
        if !matches!(decided, Some(Ok(true))) || self.is_stopped() {
            return false;
        }
        if let Some(symbols) = self.state.borrow_mut().symbols.as_mut() {
            symbols.settle(id, value);
            symbols.learn_size(id, value);
        }
        true
    }

    /// A comparison of numbers of which one was drawn. In a loop it's a decision: how often it's asked (`random.gammavariate`
    /// draws until a number fits) isn't the same in any two calls, so guards would make a trace for each. `None`: it's for guards.
    pub(super) fn decided_draw<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        operands: [Borrowed<'_, 'py>; 2],
        terms: &[Term],
    ) -> Option<Result<bool>> {
        let anatomy = self.anatomy(&frame.code())?;
        if !anatomy.is_in_loop(frame.unit()) {
            return None;
        }
        self.decided_comparison(frame, Asks::Program, op, operands, terms)
    }

    fn decided_comparison<'py>(
        &self,
        frame: &Frame<'py>,
        asks: Asks,
        op: CompareOp,
        operands: [Borrowed<'_, 'py>; 2],
        terms: &[Term],
    ) -> Option<Result<bool>> {
        let operator = match op {
            CompareOp::Lt => Operator::Lt,
            CompareOp::Le => Operator::Le,
            CompareOp::Eq => Operator::Eq,
            CompareOp::Ne => Operator::Ne,
            CompareOp::Gt => Operator::Gt,
            CompareOp::Ge => Operator::Ge,
        };
        let asked = |state: &mut State| {
            let stack = state.place(frame);
            let args = state.term_args(terms);
            Ok(Arg::Node(state.graph.call(Target::Operator(operator), &args, stack)))
        };
        self.decided(frame, asks, asked, || {
            let [left, right] = operands;
            ops::compare(op, left, right).map(|answer| answer.is_truthy().unwrap_or(false))
        })
    }

    /// What a node computes from numbers that were read: the object that it is. `expr` says what that is, where it's
    /// known. `None`: the trace has ended, and nothing was executed that can't be again.
    pub(super) fn computed_by_node<'py>(
        &self,
        frame: &Frame<'py>,
        target: Target,
        terms: &[Term],
        value: &Object<'py>,
        expr: Option<ExprId>,
    ) -> Option<Object<'py>> {
        self.carried_by_node(frame, value, expr, |state| {
            let stack = state.place(frame);
            let args = state.term_args(terms);
            state.graph.call(target, &args, stack)
        })
    }

    /// As [`Recorder::computed_by_node`], of a node that `append` makes.
    pub(super) fn carried_by_node<'py>(
        &self,
        frame: &Frame<'py>,
        value: &Object<'py>,
        expr: Option<ExprId>,
        append: impl FnOnce(&mut State) -> NodeId,
    ) -> Option<Object<'py>> {
        let Some(own) = own(value) else {
            self.stop(frame, Reason::DataRead, "an integer beyond 64 bits that depends on it");
            return Some(value.clone());
        };
        let noted = self.note(frame, |state| {
            let node = append(state);
            state.carry_read(&own, node, expr);
            Ok(())
        });
        Some(if noted.is_some() { own } else { value.clone() })
    }
}

impl State {
    /// The integers in these objects that were read; `None` if there is none.
    fn integers_read<'py>(
        &mut self,
        py: Python<'py>,
        objects: &[Borrowed<'_, '_>],
    ) -> Option<Vec<(NumberId, Object<'py>)>> {
        let has_drawn = self.claims.draws.is_some();
        if !self.symbols.as_ref().is_some_and(|symbols| symbols.has_read || has_drawn) {
            return None;
        }
        let mut numbers = Vec::new();
        for object in objects {
            self.numbers_in(*object, &mut numbers);
        }
        numbers.retain(|id| match self.number_of(*id) {
            Number::Read(is_float) => !is_float,
            number => has_drawn && self.is_small_draw(number),
        });
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return None;
        }
        let symbols = self.symbols.as_ref()?;
        let with_objects = |id| (id, symbols.object(id).bind(py).clone());
        Some(numbers.into_iter().map(with_objects).collect())
    }

    pub(super) fn term_args(&mut self, terms: &[Term]) -> SmallVec<[Arg; 2]> {
        let arg = |term: &Term| match term.operand {
            Operand::Number(id) => Arg::Node(self.number_node(id)),
            Operand::Other(arg) => arg,
        };
        terms.iter().map(arg).collect()
    }

    /// The value of a number was asked for: the trace ends before the instruction.
    pub(in crate::recorder) fn refuse_read(&mut self, why: &str) {
        let here = self.frames.here();
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.refused_at.get_or_insert(here);
        }
        let detail = format!("a number that was read from one: {why}");
        self.failure.get_or_insert((Reason::DataRead, detail));
    }

    /// Whether a number was read from a tensor, or computed from such a number.
    pub fn is_read(&self, id: NumberId) -> bool {
        matches!(self.number_of(id), Number::Read(_))
    }

    /// Whether an object is or holds a number that was read from a tensor.
    pub fn holds_read(&mut self, object: Borrowed<'_, '_>) -> bool {
        if !self.has_read_numbers() {
            return false;
        }
        let mut numbers = Vec::new();
        self.numbers_in(object, &mut numbers);
        let passes = self.symbols.as_ref().is_some_and(|symbols| symbols.passes_integers);
        numbers.into_iter().any(|id| match self.number_of(id) {
            Number::Read(is_float) => is_float || !passes,
            _ => false,
        })
    }

    /// Whether an object is a slice of numbers that vary from call to call.
    pub fn holds_number(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.has_symbols()
            && object.is_exact_instance_of::<PySlice>()
            && heap::plain_parts(object)
                .iter()
                .any(|part| self.number(part.as_borrowed()).is_some())
    }

    /// Whether a number was asked for its value that can't be fixed.
    pub fn has_refused(&self) -> bool {
        self.symbols.as_ref().is_some_and(|symbols| symbols.refused_at.is_some())
    }
}

/// What numbers have to be for the operation to give a number of the same type, and to raise nothing.
fn needs(op: BinaryOp, operands: &[Borrowed<'_, '_>; 2], terms: &[Term]) -> Needs {
    use BinaryOp as B;
    let is_read = |term: &Term| matches!(term.number, Number::Read(_));
    let is_float = |operand: Borrowed<'_, '_>| operand.is_exact_instance_of::<PyFloat>();
    let [left, right] = *operands;
    match op {
        B::Add
        | B::InPlaceAdd
        | B::Subtract
        | B::InPlaceSubtract
        | B::Multiply
        | B::InPlaceMultiply
        | B::And
        | B::InPlaceAnd
        | B::Or
        | B::InPlaceOr
        | B::Xor
        | B::InPlaceXor => Needs::Nothing,
        B::TrueDivide
        | B::InPlaceTrueDivide
        | B::FloorDivide
        | B::InPlaceFloorDivide
        | B::Remainder
        | B::InPlaceRemainder => {
            if is_read(&terms[1]) {
                Needs::Divisor
            } else {
                Needs::Nothing
            }
        }
        B::Power | B::InPlacePower => {
            let is_float = is_float(left) || is_float(right);
            let exponent = right.extract::<f64>().unwrap_or(f64::NAN);
            let base = left.extract::<f64>().unwrap_or(f64::NAN);
            if is_read(&terms[1]) {
                return match is_float {
                    true if is_read(&terms[0]) => Needs::Positive,
                    true if base > 0.0 => Needs::Nothing,
                    // Zero has no negative power.
                    true if base == 0.0 => Needs::PositiveExponent,
                    _ => Needs::More,
                };
            }
            match exponent {
                _ if exponent.fract() != 0.0 => Needs::Positive,
                _ if exponent >= 0.0 => Needs::Nothing,
                _ => Needs::NonZero,
            }
        }
        _ => Needs::More,
    }
}

/// An object of the number's value that no other number has; `None`: it's neither a float nor an int of 64 bits.
pub(in crate::recorder) fn own<'py>(value: &Object<'py>) -> Option<Object<'py>> {
    let py = value.py();
    if let Ok(float) = value.cast_exact::<PyFloat>() {
        return Some(PyFloat::new(py, float.value()).into_any());
    }
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    Some(stator_cpython::generic::own_int(py, value.extract().ok()?))
}

impl Recorder {
    /// Why an operation on these objects can't be a node, once the integers among them that were read are decided.
    pub(in crate::recorder) fn problem_of(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
        mut problem: impl FnMut() -> Option<Stop>,
    ) -> Option<Stop> {
        let found = problem()?;
        if self.settle_read(frame, objects) { problem() } else { Some(found) }
    }
}
