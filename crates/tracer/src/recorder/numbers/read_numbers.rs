//! Numbers that are read from tensors: `loss.item()`, `float(t)`, `int(t)`, and what is computed from them.
//!
//! Each is what a node of the graph gives. Nothing is known of it when a call begins, so no guard speaks of it: it's
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
use stator_cpython::heap::tensor;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_graph::{Arg, NodeId, Operator, Target, Value};

use super::arithmetic::Term;
use super::symbols::{Number, NumberId, Operand};
use crate::breaks::{Break, Reason};
use crate::recorder::Recorder;
use crate::recorder::ending::deciding::Asks;
use crate::recorder::ending::outcome::End;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{State, Stop};

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
    /// What it gives, or its type, depends on more.
    More,
}

/// The way to the number in a tensor.
#[derive(Clone, Copy)]
enum Way {
    Item,
    Float,
    Int,
}

impl Recorder {
    /// `t.item()`, `float(t)`, `int(t)`: `None` if the number can't be carried.
    pub(in crate::recorder) fn read_number<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        tensor: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let way = match name {
            "item" => Way::Item,
            "float" | "__float__" => Way::Float,
            "int" | "__int__" => Way::Int,
            _ => return None,
        };
        let info = tensor::info(tensor)?;
        // `c10::ScalarType`: signed integers and `uint8`; floating-point numbers.
        let (is_integer, is_float) =
            (matches!(info.dtype, 0..=4), matches!(info.dtype, 5..=7 | 15));
        let reads = match way {
            Way::Item => is_integer || is_float,
            Way::Float => is_integer || is_float,
            Way::Int => is_integer,
        };
        let session = &self.session;
        if !reads
            || !info.is_plain()
            || info.sizes.iter().product::<i64>() != 1
            || !session.is_eager
            || session.program.is_some()
            // C code that waits for these frames, or asks itself (`max(..., key=float)`), reads the number.
            || !self.is_untouched(frame)
        {
            return None;
        }
        let own = match native() {
            Ok(value) => own(&value)?,
            Err(raised) => return Some(Err(raised)),
        };
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        let is_float = own.is_exact_instance_of::<PyFloat>();
        let method = match way {
            Way::Item => "item",
            Way::Float => "__float__",
            Way::Int => "__int__",
        };
        let descriptor = tensor.get_type().getattr(method).ok();
        self.note(frame, |state| {
            let asked = state.graph_arg(tensor)?;
            let stack = state.place(frame);
            let object = descriptor.map(|descriptor| {
                state.graph_object(descriptor.as_borrowed(), || format!("torch.Tensor.{method}"))
            });
            let target = Target::Method { name: state.graph.intern(method), object };
            let node = state.graph.call(target, &[asked], stack);
            state.carry_read(&own, is_float, node);
            Ok(())
        });
        Some(Ok(own))
    }

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
        let holds = match needs(op, operands, terms) {
            Needs::Nothing => true,
            Needs::Divisor => self.decides(frame, CompareOp::Ne, right, &terms[1]),
            Needs::NonZero => self.decides(frame, CompareOp::Ne, left, &terms[0]),
            Needs::Positive => self.decides(frame, CompareOp::Gt, left, &terms[0]),
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
        self.computed_by_node(frame, Target::Operator(operator), terms, &value).map(Ok)
    }

    /// Whether a number compares so with zero, in this call and wherever the trace goes on.
    fn decides(
        &self,
        frame: &Frame<'_>,
        op: CompareOp,
        number: Borrowed<'_, '_>,
        term: &Term,
    ) -> bool {
        let zero = PyInt::new(frame.py(), 0);
        let zero = zero.as_any().as_borrowed();
        if !matches!(term.number, Number::Read(_)) {
            return false;
        }
        let constant = Term { number: term.number, operand: Operand::Other(Arg::int(0)) };
        let decided =
            self.decided_comparison(frame, Asks::Operation, op, [number, zero], &[*term, constant]);
        matches!(decided, Some(Ok(true)))
    }

    /// A comparison of numbers of which one was read: a decision.
    pub(super) fn read_compare<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        operands: [Borrowed<'_, 'py>; 2],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        match self.decided_comparison(frame, Asks::Program, op, operands, terms) {
            Some(Ok(answer)) => {
                Some(Ok(pyo3::types::PyBool::new(frame.py(), answer).to_owned().into_any()))
            }
            Some(Err(raised)) => Some(Err(raised)),
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
            let stack = state.place(frame);
            let text = format!("math.{}", heap::callable_name(callable));
            let name = state.graph.intern(&text);
            let object = state.graph_object(callable, || text);
            let args = state.term_args(terms);
            Ok(Arg::Node(state.graph.call(Target::Function { name, object }, &args, stack)))
        };
        let native =
            || ops::call(callable, &[number], None).map(|it| it.is_truthy().unwrap_or(false));
        let answer = self.decided(frame, Asks::Program, asked, native)?;
        Some(answer.map(|it| pyo3::types::PyBool::new(frame.py(), it).to_owned().into_any()))
    }

    /// The truth value of a number that was read: a decision.
    pub(super) fn read_truth(
        &self,
        frame: &Frame<'_>,
        operand: Borrowed<'_, '_>,
        terms: &[Term],
    ) -> Option<bool> {
        let zero = PyInt::new(frame.py(), 0);
        let zero = zero.as_any().as_borrowed();
        let constant = Term { number: terms[0].number, operand: Operand::Other(Arg::int(0)) };
        let decided = self.decided_comparison(
            frame,
            Asks::Program,
            CompareOp::Ne,
            [operand, zero],
            &[terms[0], constant],
        );
        match decided {
            Some(Ok(answer)) => Some(answer),
            Some(Err(_)) | None => {
                self.concrete(frame, &[operand], "a truth value");
                None
            }
        }
    }

    /// A text is about to be made of a value. A trace can hold none that spells a number which was read.
    pub(in crate::recorder) fn keeps_text_of(&self, frame: &Frame<'_>, value: Borrowed<'_, '_>) {
        if !self.is_stopped() && self.state.borrow_mut().holds_read(value) {
            self.concrete(frame, &[value], "its text");
        }
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

    /// What a node computes from numbers that were read: the object that it is. `None`: the trace has ended, and
    /// nothing was executed that can't be again.
    pub(super) fn computed_by_node<'py>(
        &self,
        frame: &Frame<'py>,
        target: Target,
        terms: &[Term],
        value: &Object<'py>,
    ) -> Option<Object<'py>> {
        let Some(own) = own(value) else {
            self.stop(frame, Reason::DataRead, "an integer beyond 64 bits that depends on it");
            return Some(value.clone());
        };
        let is_float = own.is_exact_instance_of::<PyFloat>();
        let noted = self.note(frame, |state| {
            let stack = state.place(frame);
            let args = state.term_args(terms);
            let node = state.graph.call(target, &args, stack);
            state.carry_read(&own, is_float, node);
            Ok(())
        });
        Some(if noted.is_some() { own } else { value.clone() })
    }
}

impl Recorder {
    /// Fails where the value of a number that was read was asked for: unless the trace ends before the very
    /// instruction, what came of it is in the trace.
    pub(in crate::recorder) fn check_refused(
        &self,
        state: &mut State,
        end: &End<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let here = match end {
            End::Break(frames) => frames.last().map(|standing| {
                state.frames.locate(&standing.waiting.frame);
                state.frames.here()
            }),
            End::Return(_) => None,
        };
        let refused = state.symbols.as_mut().and_then(|symbols| symbols.refused_at.take());
        match refused {
            Some(at) if here != Some(at) => {
                self.has_leaked.set(true);
                Err((Reason::DataRead, "the value of a number that was read from one".into()))
            }
            _ => Ok(()),
        }
    }

    /// The value of a number was asked for where it's too late: marks where numbers were read, so that the next
    /// trace ends there. False: it wasn't.
    pub(in crate::recorder) fn avoid_reading(&self, stop: &Break) -> bool {
        let spots = self.numbers_read.take();
        if !self.has_leaked.take() || spots.is_empty() {
            return false;
        }
        for spot in spots {
            self.session.points.mark_spot(spot, stop.clone());
        }
        if self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        true
    }
}

impl State {
    /// A number that a node gives.
    fn carry_read(&mut self, own: &Object<'_>, is_float: bool, node: NodeId) {
        let value = if is_float { Value::Float } else { Value::Integer };
        self.graph.set_value(node, value);
        self.begin_symbols(own.py()).insert_read(own, is_float, node);
    }

    fn term_args(&mut self, terms: &[Term]) -> SmallVec<[Arg; 2]> {
        let arg = |term: &Term| match term.operand {
            Operand::Number(id) => Arg::Node(self.number_node(id)),
            Operand::Other(arg) => arg,
        };
        terms.iter().map(arg).collect()
    }

    /// Whether a number was read from a tensor, or computed from such a number.
    pub fn is_read(&self, id: NumberId) -> bool {
        matches!(self.number_of(id), Number::Read(_))
    }

    /// Whether an object is or holds a number that was read from a tensor.
    pub fn holds_read(&mut self, object: Borrowed<'_, '_>) -> bool {
        if !self.symbols.as_ref().is_some_and(|symbols| symbols.has_read) {
            return false;
        }
        match self.number(object) {
            Some(id) => self.is_read(id),
            None => {
                heap::plain_parts(object).iter().any(|part| self.holds_read(part.as_borrowed()))
            }
        }
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
fn own<'py>(value: &Object<'py>) -> Option<Object<'py>> {
    let py = value.py();
    if let Ok(float) = value.cast_exact::<PyFloat>() {
        return Some(PyFloat::new(py, float.value()).into_any());
    }
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    Some(stator_cpython::generic::own_int(py, value.extract().ok()?))
}
