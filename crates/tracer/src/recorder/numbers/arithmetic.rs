//! Arithmetic, comparisons and truth values of symbolic numbers.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp, UnaryOp};
use stator_graph::{Arg, Operator, Target};
use stator_shapes::{Cmp, CondId, Context, Error, ExprId, FloatId, FloatOp, FloatUnary};

use super::lazy_readers::maps_lengths;
use super::number_functions::boolean;
use super::read_numbers::are_read;
use super::rows::is_nan;
use super::symbols::comparison;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::{Made, Number, NumberId, Operand};

/// What a symbolic operation's operands are.
#[derive(Clone, Copy)]
pub(in crate::recorder) struct Term {
    pub(in crate::recorder) number: Number,
    pub(in crate::recorder) operand: Operand,
}

impl State {
    /// An exact int or float as a term; symbolic or constant.
    pub(in crate::recorder) fn term(&mut self, object: Borrowed<'_, '_>) -> Option<Term> {
        if let Some(id) = self.number(object) {
            return Some(Term { number: self.number_of(id), operand: Operand::Number(id) });
        }
        let context = &mut self.symbols.as_mut()?.context;
        if object.is_exact_instance_of::<PyInt>() {
            let value = object.extract::<i64>().ok()?;
            let number = Number::Integer(context.constant(value));
            return Some(Term { number, operand: Operand::Other(Arg::int(value)) });
        }
        if let Ok(value) = object.cast_exact::<PyBool>() {
            let value = i64::from(value.is_true());
            let number = Number::Integer(context.constant(value));
            return Some(Term { number, operand: Operand::Other(Arg::int(value)) });
        }
        let value = object.cast_exact::<PyFloat>().ok()?.value();
        let number = Number::Float(context.float_constant(value));
        Some(Term { number, operand: Operand::Other(Arg::float(value)) })
    }

    /// Terms of operands of which one is symbolic at least.
    pub(in crate::recorder) fn terms(
        &mut self,
        operands: &[Borrowed<'_, '_>],
    ) -> Option<SmallVec<[Term; 2]>> {
        if !self.has_symbols() || !operands.iter().any(|operand| self.number(*operand).is_some()) {
            return None;
        }
        operands.iter().map(|operand| self.term(*operand)).collect()
    }
}

pub(in crate::recorder) fn float(
    context: &mut Context,
    number: Number,
) -> std::result::Result<FloatId, Error> {
    match number {
        Number::Integer(expr) => context.float_from_int(expr),
        Number::Float(float) => Ok(float),
        Number::Read(_) => unreachable!("numbers that were read have no expressions"),
    }
}

pub(super) fn binary(
    context: &mut Context,
    op: BinaryOp,
    left: Number,
    right: Number,
) -> Option<std::result::Result<Number, Error>> {
    use BinaryOp as B;
    let float_op = match op {
        B::Add | B::InPlaceAdd => FloatOp::Add,
        B::Subtract | B::InPlaceSubtract => FloatOp::Sub,
        B::Multiply | B::InPlaceMultiply => FloatOp::Mul,
        B::TrueDivide | B::InPlaceTrueDivide => FloatOp::Div,
        B::Power | B::InPlacePower => FloatOp::Pow,
        B::FloorDivide | B::InPlaceFloorDivide | B::Remainder | B::InPlaceRemainder => {
            let (Number::Integer(a), Number::Integer(b)) = (left, right) else { return None };
            let is_quotient = matches!(op, B::FloorDivide | B::InPlaceFloorDivide);
            let result = if is_quotient { context.floordiv(a, b) } else { context.modulus(a, b) };
            return Some(result.map(Number::Integer));
        }
        B::Lshift | B::InPlaceLshift | B::Rshift | B::InPlaceRshift => {
            let (Number::Integer(a), Number::Integer(b)) = (left, right) else { return None };
            let factor = power_of_two(context, b)?;
            let factor = context.constant(factor);
            let is_left = matches!(op, B::Lshift | B::InPlaceLshift);
            let result = if is_left { context.mul(a, factor) } else { context.floordiv(a, factor) };
            return Some(result.map(Number::Integer));
        }
        B::And | B::InPlaceAnd | B::Or | B::InPlaceOr | B::Xor | B::InPlaceXor => {
            return bits(context, op, left, right);
        }
        _ => return None,
    };
    if let (Number::Integer(a), Number::Integer(b)) = (left, right) {
        let result = match float_op {
            FloatOp::Add => context.add(a, b),
            FloatOp::Sub => context.sub(a, b),
            FloatOp::Mul => context.mul(a, b),
            FloatOp::Div => return Some(context.truediv(a, b).map(Number::Float)),
            FloatOp::Pow => {
                let exponent = context.as_constant(b)?;
                if exponent < 0 {
                    // A float, as Python computes it.
                    let floats = (context.float_from_int(a), context.float_from_int(b));
                    let (Ok(a), Ok(b)) = floats else { return None };
                    return Some(context.float_binary(FloatOp::Pow, a, b).map(Number::Float));
                }
                context.pow(a, u32::try_from(exponent).ok()?)
            }
            _ => return None,
        };
        return Some(result.map(Number::Integer));
    }
    let operands = float(context, left).and_then(|left| Ok((left, float(context, right)?)));
    Some(
        operands
            .and_then(|(left, right)| context.float_binary(float_op, left, right))
            .map(Number::Float),
    )
}

/// `&`, `|` and `^` with a constant that says of low bits that they are kept, set or turned, or that is -1.
///
/// With the mask `2^k - 1`, `n & mask` is `n % 2^k`; the others follow from that.
fn bits(
    context: &mut Context,
    op: BinaryOp,
    left: Number,
    right: Number,
) -> Option<std::result::Result<Number, Error>> {
    use BinaryOp as B;
    let (Number::Integer(a), Number::Integer(b)) = (left, right) else { return None };
    let (n, mask) = match (context.as_constant(a), context.as_constant(b)) {
        (None, Some(mask)) => (a, mask),
        (Some(mask), None) => (b, mask),
        _ => return None,
    };
    // The bits below 2^k that the mask has, or all but those.
    let (is_low, low) = if mask >= 0 { (true, mask) } else { (false, !mask) };
    if low & (low + 1) != 0 || low > i64::MAX >> 2 {
        return None;
    }
    let mut build = || {
        let modulus = context.constant(low + 1);
        let rest = context.modulus(n, modulus)?;
        let most = context.constant(low);
        match op {
            B::And | B::InPlaceAnd if is_low => Ok(rest),
            B::And | B::InPlaceAnd => context.sub(n, rest),
            B::Or | B::InPlaceOr if is_low => {
                let high = context.sub(n, rest)?;
                context.add(high, most)
            }
            // Above all bits are set: `rest - 2^k`.
            B::Or | B::InPlaceOr => context.sub(rest, modulus),
            // Turning the low bits: `high + (2^k - 1 - rest)`; turning the others: `-high - 2^k + rest`.
            _ => {
                let high = context.sub(n, rest)?;
                if is_low {
                    let turned = context.sub(most, rest)?;
                    context.add(high, turned)
                } else {
                    let kept = context.sub(rest, modulus)?;
                    context.sub(kept, high)
                }
            }
        }
    };
    Some(build().map(Number::Integer))
}

fn condition(
    context: &mut Context,
    op: CompareOp,
    left: Number,
    right: Number,
) -> std::result::Result<CondId, Error> {
    let op = comparison(op);
    match (left, right) {
        (Number::Integer(a), Number::Integer(b)) => Ok(context.compare(op, a, b)),
        (Number::Float(a), Number::Float(b)) => Ok(context.compare_floats(op, a, b)),
        (Number::Integer(a), Number::Float(b)) => context.compare_mixed(op, a, b),
        (Number::Float(a), Number::Integer(b)) => context.compare_mixed(swapped(op), b, a),
        (Number::Read(_), _) | (_, Number::Read(_)) => {
            unreachable!("numbers that were read are compared by nodes")
        }
    }
}

/// The power of two that an integer is multiplied by where it is shifted by so much.
fn power_of_two(context: &Context, shift: ExprId) -> Option<i64> {
    let shift = context.as_constant(shift).and_then(|shift| u32::try_from(shift).ok());
    shift.filter(|shift| *shift < 62).map(|shift| 1 << shift)
}

/// The comparison with its sides exchanged.
const fn swapped(op: Cmp) -> Cmp {
    match op {
        Cmp::Lt => Cmp::Gt,
        Cmp::Le => Cmp::Ge,
        Cmp::Gt => Cmp::Lt,
        Cmp::Ge => Cmp::Le,
        Cmp::Eq | Cmp::Ne => op,
    }
}

impl Recorder {
    /// Whether symbolic numbers may be met.
    #[inline]
    pub(in crate::recorder) fn has_symbols(&self) -> bool {
        self.state.try_borrow().is_ok_and(|state| state.has_symbols())
    }

    /// Whether what is read next may bring the first one.
    pub(in crate::recorder) fn meets_symbols(&self) -> bool {
        self.state.try_borrow().is_ok_and(|state| state.has_symbols() || !state.policy.is_static())
    }

    /// `left op right` of numbers of which one is symbolic; `None`: not for this to do.
    pub(in crate::recorder) fn symbolic_binary<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        operator: Operator,
        operands: &[Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() {
            return None;
        }
        let [left, right] = *operands;
        let terms = self.state.borrow_mut().terms(operands)?;
        if are_read(&terms) {
            return self.read_binary(frame, op, operator, operands, &terms);
        }
        let value = match ops::binary(op, left, right) {
            Ok(value) => value,
            Err(raised) => {
                self.concrete(frame, operands, "an error");
                return Some(Err(raised));
            }
        };
        let target = Target::Operator(operator);
        self.computed(frame, operands, value, target, &terms, |context| {
            binary(context, op, terms[0].number, terms[1].number)
        })
    }

    /// `op operand` of a symbolic number.
    pub(in crate::recorder) fn symbolic_unary<'py>(
        &self,
        frame: &Frame<'py>,
        op: UnaryOp,
        operator: Operator,
        operand: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() {
            return None;
        }
        let terms = self.state.borrow_mut().terms(&[operand])?;
        if op == UnaryOp::Positive {
            return Some(Ok(operand.to_owned()));
        }
        let value = match ops::unary(op, operand) {
            Ok(value) => value,
            Err(raised) => return Some(Err(raised)),
        };
        let target = Target::Operator(operator);
        if are_read(&terms) {
            return self.computed_by_node(frame, target, &terms, &value, None).map(Ok);
        }
        self.computed(frame, &[operand], value, target, &terms, |context| {
            match (op, terms[0].number) {
                (UnaryOp::Negative, Number::Integer(expr)) => {
                    Some(context.neg(expr).map(Number::Integer))
                }
                (UnaryOp::Negative, Number::Float(float)) => {
                    Some(context.float_unary(FloatUnary::Neg, float).map(Number::Float))
                }
                (UnaryOp::Invert, Number::Integer(expr)) => {
                    let one = context.constant(1);
                    let negative =
                        context.neg(expr).and_then(|negative| context.sub(negative, one));
                    Some(negative.map(Number::Integer))
                }
                _ => None,
            }
        })
    }

    /// Gives the result of an operation on symbolic numbers its expression; where there is none the
    /// operands are fixed.
    pub(in crate::recorder) fn computed<'py>(
        &self,
        frame: &Frame<'py>,
        operands: &[Borrowed<'_, 'py>],
        value: Object<'py>,
        target: Target,
        terms: &[Term],
        build: impl FnOnce(&mut Context) -> Option<std::result::Result<Number, Error>>,
    ) -> Option<Result<Object<'py>>> {
        let py = frame.py();
        let mut state = self.state.borrow_mut();
        state.frames.locate(frame);
        let built = build(&mut state.symbols.as_mut()?.context);
        state.log_facts(py);
        let number = match built {
            Some(Ok(number)) if state.agrees(number, value.as_borrowed()) => number,
            other => {
                drop(state);
                let why = match other {
                    Some(Err(error)) => error.to_string(),
                    _ => "an operation without a rule".to_string(),
                };
                self.concrete(frame, operands, &why);
                return Some(Ok(value));
            }
        };
        let is_operand = operands.iter().any(|operand| operand.is(&value));
        let operands = terms.iter().map(|term| term.operand).collect();
        let made = Made::Call { target, operands };
        let own = state.own_number(value.as_borrowed(), number, made);
        if is_operand {
            state.is_operand(own.as_borrowed(), value.as_borrowed());
        }
        Some(Ok(own))
    }

    /// A comparison of numbers, or of tuples of them, of which one is symbolic.
    pub(in crate::recorder) fn symbolic_compare<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() {
            return None;
        }
        let py = frame.py();
        let answer = |answer: bool| Some(Ok(boolean(py, answer)));
        if matches!(op, CompareOp::Eq | CompareOp::Ne)
            && let Some(equal) = self.symbolic_tuples_equal(frame, left, right)
        {
            return answer(equal == (op == CompareOp::Eq));
        }
        let mut state = self.state.borrow_mut();
        if matches!(op, CompareOp::Eq | CompareOp::Ne) {
            let differs = |object: Borrowed<'_, '_>| {
                object.is_none() || object.is_exact_instance_of::<PyString>()
            };
            let numbers = [state.number(left), state.number(right)];
            if matches!(numbers, [Some(_), None] if differs(right))
                || matches!(numbers, [None, Some(_)] if differs(left))
            {
                return answer(op == CompareOp::Ne);
            }
        }
        let terms = state.terms(&[left, right])?;
        if are_read(&terms) {
            drop(state);
            return self.read_compare(frame, op, [left, right], &terms);
        }
        if terms.iter().any(|term| state.is_from_draw(term.number)) {
            drop(state);
            if let Some(decided) = self.decided_draw(frame, op, [left, right], &terms) {
                return Some(decided.map(|answer| boolean(py, answer)));
            }
            state = self.state.borrow_mut();
        }
        state.frames.locate(frame);
        let context = &mut state.symbols.as_mut()?.context;
        match condition(context, op, terms[0].number, terms[1].number) {
            Ok(condition) => answer(state.decide(py, condition)),
            Err(error) => {
                drop(state);
                self.concrete(frame, &[left, right], &error.to_string());
                Some(ops::compare(op, left, right))
            }
        }
    }

    /// Whether two tuples of numbers are equal, element by element.
    fn symbolic_tuples_equal<'py>(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        if !heap::is_plain_tuple(left) || !heap::is_plain_tuple(right) {
            return None;
        }
        let (left, right) = (heap::tuple_items(left), heap::tuple_items(right));
        {
            let mut state = self.state.borrow_mut();
            let mut all = left.iter().chain(&right);
            let is_plain = |item: &Object<'_>| {
                item.is_exact_instance_of::<PyInt>() || item.is_exact_instance_of::<PyFloat>()
            };
            if !all.clone().all(is_plain)
                || !all.any(|item| state.number(item.as_borrowed()).is_some())
            {
                return None;
            }
            state.frames.locate(frame);
        }
        if left.len() != right.len() {
            return Some(false);
        }
        for (left, right) in left.iter().zip(&right) {
            if !self.held_numbers_equal(frame, [left.as_borrowed(), right.as_borrowed()])? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether C code finds two numbers in containers to be equal: an object equals itself, a NaN too. `None`: what a NaN is
    /// compared with, C code has to say.
    ///
    /// Numbers that differ here may be one object elsewhere. So a question is asked to which a NaN answers no.
    pub(super) fn held_numbers_equal<'py>(
        &self,
        frame: &Frame<'py>,
        items: [Borrowed<'_, 'py>; 2],
    ) -> Option<bool> {
        let [left, right] = items;
        if left.is(right) {
            return Some(true);
        }
        if items.into_iter().any(is_nan) {
            return None;
        }
        let is_equal = left.eq(right).ok()?;
        let are_symbolic = {
            let mut state = self.state.borrow_mut();
            items.map(|item| state.number(item).is_some())
        };
        let is_int = |item: &Borrowed<'_, '_>| item.is_exact_instance_of::<PyInt>();
        let op = match are_symbolic {
            _ if is_equal => CompareOp::Eq,
            [true, true] if items.iter().all(is_int) => CompareOp::Ne,
            [true, true] if left.lt(right).ok()? => CompareOp::Lt,
            [true, true] => CompareOp::Gt,
            _ => CompareOp::Ne,
        };
        match self.symbolic_compare(frame, op, left, right) {
            Some(answer) => drop(answer.ok()?),
            // Two constants, or one too large for a term.
            None => self.concrete(frame, &items, "a comparison"),
        }
        Some(is_equal)
    }

    /// The truth value of a symbolic number.
    pub(in crate::recorder) fn symbolic_truth(
        &self,
        frame: &Frame<'_>,
        operand: Borrowed<'_, '_>,
    ) -> Option<bool> {
        if !self.has_symbols() {
            return None;
        }
        let mut state = self.state.borrow_mut();
        let terms = state.terms(&[operand])?;
        if are_read(&terms) {
            drop(state);
            return self.read_truth(frame, operand, &terms);
        }
        state.frames.locate(frame);
        let context = &mut state.symbols.as_mut()?.context;
        let zero = match terms[0].number {
            Number::Float(_) => Number::Float(context.float_constant(0.0)),
            _ => Number::Integer(context.constant(0)),
        };
        let condition = condition(context, CompareOp::Ne, terms[0].number, zero).ok()?;
        Some(state.decide(frame.py(), condition))
    }

    /// `left is right` of numbers of which one has an object of its own: as it is of the objects that
    /// CPython has there. `None`: not for this to answer.
    pub(in crate::recorder) fn same_number<'py>(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        if !self.has_symbols() {
            return None;
        }
        let has_own = {
            let state = self.state.borrow();
            state.has_own_object(left) || state.has_own_object(right)
        };
        if !has_own {
            return None;
        }
        if left.is(right) || !left.get_type().is(right.get_type()) {
            // One place, or two types, which are guarded.
            return Some(left.is(right));
        }
        // There is one object for each small int.
        let is_shared = heap::is_shared_constant(left);
        let same = if is_shared {
            left.extract::<i64>().ok() == right.extract::<i64>().ok()
        } else {
            let state = self.state.borrow();
            state.stands_for(left) == state.stands_for(right)
        };
        self.note(frame, |state| {
            let is_known = is_shared || heap::is_identity_stable(left, right);
            if !is_known {
                // The numbers stay as they are: the instruction, and what is behind it, asks them.
                return Err((Reason::Identity, "identity of symbolic numbers".into()));
            }
            if left.is_exact_instance_of::<PyInt>()
                && let Some(terms) = state.terms(&[left, right])
                && !are_read(&terms)
                && let Some(symbols) = state.symbols.as_mut()
                && let Ok(equal) =
                    condition(&mut symbols.context, CompareOp::Eq, terms[0].number, terms[1].number)
                && !state.decide(frame.py(), equal)
            {
                return Ok(());
            }
            for operand in [left, right] {
                state.fix(operand, "identity of a number");
            }
            Ok(())
        });
        Some(same)
    }

    /// Whether plain Python would have one object for both, where an earlier trace of this call made one for a number: what
    /// a replay has there isn't known.
    pub(in crate::recorder) fn are_one_number<'py>(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> bool {
        let same = self.state.try_borrow().is_ok_and(|state| {
            !state.policy.has_no_plain() && state.stands_for(left) == state.stands_for(right)
        });
        if same {
            self.note(frame, |_| Err::<(), _>((Reason::Identity, "identity of a number".into())));
        }
        same
    }

    /// C code is about to read these values: whatever is symbolic in them is fixed.
    ///
    /// Not when the trace has ended: what it ended with is noted, and what they hold may be long.
    pub(in crate::recorder) fn concrete(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
        why: &str,
    ) {
        if self.stopped.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        if let Some(array) = objects.iter().find_map(|object| state.array_within(*object)) {
            drop(state);
            let detail = format!("a {} in what is {why}", heap::type_name(array.as_borrowed()));
            return self.stop(frame, Reason::Unsupported, detail);
        }
        drop(state);
        self.fix_values(frame, objects, why);
    }

    /// The same of objects that hold no arrays, or may.
    pub(in crate::recorder) fn fix_values(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
        why: &str,
    ) {
        if self.stopped.get() || !self.has_symbols() {
            return;
        }
        self.settle_read(frame, objects);
        let mut state = self.state.borrow_mut();
        state.frames.locate(frame);
        for object in objects {
            state.fix(*object, why);
        }
        if state.has_refused()
            && let Some((reason, detail)) = state.failure.take()
        {
            drop(state);
            self.stop(frame, reason, detail);
        }
    }
}

/// How deep containers are searched for symbolic numbers.
pub(super) const DEPTH: usize = 8;

/// The containers that a search has gone into: one that holds itself, or that others hold often, is gone into once.
#[derive(Default)]
pub(super) struct Seen(FxHashSet<usize>);

impl Seen {
    /// Whether a container is to be gone into. What is asked for itself, and what holds nothing, isn't noted.
    fn is_first(&mut self, object: Borrowed<'_, '_>, parts: &[Object<'_>], depth: usize) -> bool {
        depth == 0 || parts.is_empty() || self.0.insert(object.as_ptr() as usize)
    }
}

impl State {
    /// Fixes every symbolic number in an object: in containers of builtin types, deeply.
    pub fn fix(&mut self, object: Borrowed<'_, '_>, why: &str) {
        self.fix_unseen(object, why, 0, &mut Seen::default());
    }

    /// As [`State::fix`], of what was found so deep.
    pub(super) fn fix_unseen(
        &mut self,
        object: Borrowed<'_, '_>,
        why: &str,
        depth: usize,
        seen: &mut Seen,
    ) {
        if let Some(id) = self.number(object) {
            self.specialise(object.py(), id, why);
            return;
        }
        if depth > DEPTH {
            return self.fix_all(object.py(), why);
        }
        for number in self.spelt(object) {
            self.specialise(object.py(), number, why);
        }
        if maps_lengths(object) {
            return;
        }
        let viewed = heap::view_items(object);
        if viewed.is_none() && self.reads_later(object) {
            return self.fix_within_reach(object, why, depth, seen);
        }
        let parts = viewed.unwrap_or_else(|| heap::read_parts(object));
        if seen.is_first(object, &parts, depth) {
            for part in parts {
                self.fix_unseen(part.as_borrowed(), why, depth + 1, seen);
            }
        }
    }

    /// Whether an object is an iterator that holds or computes anything. What a generator yields and what a
    /// function of Python's returns is fixed when it does, and a view of a dictionary shows what it holds.
    pub(in crate::recorder) fn reads_later(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind_alone(object) == Kind::Iterator
            && !matches!(&*heap::type_name(object), "generator" | "mappingproxy")
            && heap::view_items(object).is_none()
            && !heap::maps_by_python(object)
    }

    /// The numbers in an object, those that its texts spell among them.
    pub(in crate::recorder) fn numbers_in(
        &mut self,
        object: Borrowed<'_, '_>,
        found: &mut Vec<NumberId>,
    ) {
        self.numbers_unseen(object, 0, found, &mut Seen::default());
    }

    fn numbers_unseen(
        &mut self,
        object: Borrowed<'_, '_>,
        depth: usize,
        found: &mut Vec<NumberId>,
        seen: &mut Seen,
    ) {
        found.extend(self.number(object));
        found.extend(self.spelt(object));
        if depth > DEPTH {
            found.extend(self.all_numbers());
            return;
        }
        let parts = heap::read_parts(object);
        if seen.is_first(object, &parts, depth) {
            for part in parts {
                self.numbers_unseen(part.as_borrowed(), depth + 1, found, seen);
            }
        }
    }

    /// Fixes every number there is.
    pub fn fix_all(&mut self, py: Python<'_>, why: &str) {
        for id in self.all_numbers() {
            self.specialise(py, id, why);
        }
    }

    /// Whether an object holds a symbolic number, or a tensor with symbolic sizes.
    pub fn is_symbolic(&mut self, object: Borrowed<'_, '_>) -> bool {
        heap::any_within(object, DEPTH, &mut |part| self.is_itself_symbolic(part))
    }

    fn is_itself_symbolic(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.number(object).is_some_and(|id| !self.is_read(id))
            || self.symbolic_sizes(object).is_some()
    }

    /// Whether a computed number is what its expression says.
    fn agrees(&self, number: Number, value: Borrowed<'_, '_>) -> bool {
        let Some(symbols) = self.symbols.as_ref() else { return false };
        match number {
            Number::Integer(expr) => {
                value.is_exact_instance_of::<PyInt>()
                    && value.extract::<i64>().is_ok_and(|value| value == symbols.context.hint(expr))
            }
            Number::Float(float) => value.cast_exact::<PyFloat>().is_ok_and(|value| {
                value.value().to_bits() == symbols.context.float_hint(float).to_bits()
            }),
            Number::Read(_) => false,
        }
    }
}
