//! Builtin functions, and those of `math`, that a trace follows through symbolic numbers.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_cpython::{Raised, Result};
use stator_graph::{Arg, Constant, Operator};
use stator_shapes::{
    ExprId, FloatOp, FloatUnary, LARGEST_EXPONENT, extreme_base, extreme_exponent,
};

use super::arithmetic::{Term, float};
use super::orders::are_alike;
use super::read_numbers::are_read;
use crate::functions::Numeric;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::CONTENTS;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;
use crate::recorder::notes::symbols::{Number, Operand};

/// `True` or `False`.
pub(in crate::recorder) fn boolean(py: Python<'_>, value: bool) -> Object<'_> {
    pyo3::types::PyBool::new(py, value).to_owned().into_any()
}

/// Whether a callable is a function of the module `math`.
pub(super) fn is_in_math(callable: Borrowed<'_, '_>) -> bool {
    let module = callable.getattr("__module__");
    module.is_ok_and(|module| module.extract::<&str>().is_ok_and(|module| module == "math"))
}

/// Longer lists are searched by C code.
const MOST: usize = 64;

/// What C code iterates in a tuple, a list or a view of a dictionary.
fn elements<'py>(sequence: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    let is_known = heap::is_plain_tuple(sequence)
        || heap::is_exact_list(sequence)
        || heap::is_named_tuple(sequence);
    if is_known { Some(heap::children(sequence)) } else { heap::view_items(sequence) }
}

/// Whether a float is rounded to so many digits behind the point that it's a float, whatever it was.
fn has_digits(terms: &[Term]) -> bool {
    let digits = terms.get(1).map(|digits| digits.operand);
    matches!(digits, Some(Operand::Other(Arg::Constant(Constant::Int(0..)))))
}

/// The floats for which a function of a number that was read raises nothing; `None`: it asks what the number is.
fn domain(numeric: Numeric, number: Number) -> Option<&'static [(CompareOp, f64)]> {
    use CompareOp::{Ge, Gt, Lt};
    const INTEGERS: f64 = (1_u64 << 63) as f64;
    const FINITE: &[(CompareOp, f64)] = &[(Gt, f64::NEG_INFINITY), (Lt, f64::INFINITY)];
    Some(match (numeric, number) {
        (Numeric::Absolute | Numeric::Float, _) => &[],
        (Numeric::Rounded(_), Number::Read(true)) => &[(Gt, -INTEGERS), (Lt, INTEGERS)],
        (Numeric::Function(function), _) => match function {
            FloatUnary::Neg | FloatUnary::Abs | FloatUnary::Tanh => &[],
            FloatUnary::Sqrt => &[(Ge, 0.0)],
            FloatUnary::Log | FloatUnary::Log2 | FloatUnary::Log10 => &[(Gt, 0.0)],
            FloatUnary::Exp => &[(Lt, LARGEST_EXPONENT)],
            FloatUnary::Sin | FloatUnary::Cos => FINITE,
        },
        _ => return None,
    })
}

/// Which operand of a power of floats was read, where the other one is a constant, and for which floats in its place
/// the power is one, too.
fn power_domain(terms: &[Term]) -> Option<(usize, [(CompareOp, f64); 2])> {
    let constant = |term: &Term| match term.operand {
        Operand::Other(Arg::Constant(Constant::Int(value))) => Some(value as f64),
        Operand::Other(Arg::Constant(Constant::Float(value))) => Some(value),
        _ => None,
    };
    let [base, exponent] = terms else { return None };
    match (constant(base), constant(exponent)) {
        (None, Some(exponent)) if exponent != 0.0 && exponent.is_finite() => {
            let bound = extreme_base(exponent);
            let (least, greatest) = if exponent > 0.0 { (0.0, bound) } else { (bound, f64::MAX) };
            Some((0, [(CompareOp::Ge, least), (CompareOp::Le, greatest)]))
        }
        (Some(base), None) if base > 0.0 && base != 1.0 && base.is_finite() => {
            let bound = extreme_exponent(base);
            Some((1, [(CompareOp::Ge, -bound), (CompareOp::Le, bound)]))
        }
        _ => None,
    }
}

impl Recorder {
    /// What C code iterates in a tuple, a list or a view of a dictionary, guarded if it's from outside.
    pub(in crate::recorder) fn elements<'py>(
        &self,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Vec<Object<'py>>> {
        self.kind(sequence);
        if heap::is_deque(sequence) {
            // One from outside is read otherwise, until it was read whole.
            let is_known = self.origin(sequence) == Some(Origin::Fresh)
                || self.state.borrow().reads.has(&(sequence.as_ptr() as usize, CONTENTS));
            return is_known.then(|| heap::elements(sequence));
        }
        elements(sequence)
    }

    /// Calls of functions whose row says what they make of symbolic numbers.
    pub(in crate::recorder) fn symbolic_function<'py>(
        &self,
        numeric: Numeric,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        if let [sequence] = *args {
            match numeric {
                Numeric::Sum | Numeric::Product | Numeric::Least | Numeric::Greatest => {
                    return self.fold(frame, numeric, sequence);
                }
                Numeric::Sorted => return self.sorted(frame, callable, sequence),
                _ => {}
            }
        }
        if let (Numeric::Place { behind }, [sequence, number, bounds @ ..]) = (numeric, args) {
            return self.place_of(frame, behind, *sequence, *number, bounds);
        }
        // Others are no expression of their arguments.
        if args.is_empty() || matches!(numeric, Numeric::Floats(_) | Numeric::Close) {
            return None;
        }
        let terms = self.state.borrow_mut().terms(args)?;
        let number = terms[0].number;
        match (numeric, number) {
            (Numeric::Rounded(_), Number::Integer(_) | Number::Read(false))
            | (Numeric::Float, Number::Float(_) | Number::Read(true))
                if args.len() == 1 =>
            {
                return Some(Ok(args[0].to_owned()));
            }
            (Numeric::Truth { inverted }, _) if args.len() == 1 => {
                let truth = self.symbolic_truth(frame, args[0])?;
                return Some(Ok(boolean(frame.py(), truth != inverted)));
            }
            (Numeric::OfFloats(answer), Number::Integer(_) | Number::Read(false)) => {
                return Some(Ok(boolean(frame.py(), answer)));
            }
            (Numeric::OfFloats(_), Number::Read(true)) if args.len() == 1 => {
                return self.read_answer(frame, callable, args[0], &terms);
            }
            (Numeric::Power, _) => {
                let operands = args.try_into().ok()?;
                return self.symbolic_binary(frame, BinaryOp::Power, Operator::Pow, operands);
            }
            (Numeric::FloatPower, _) if args.len() == 2 => {
                return self.float_power(call, &terms);
            }
            (Numeric::QuotientAndRest, _) if args.len() == 2 => return self.divided(frame, args),
            (Numeric::Least | Numeric::Greatest, _) => {
                return self.extreme(frame, numeric == Numeric::Greatest, args, &terms);
            }
            (Numeric::Rounded(_), Number::Read(true)) if has_digits(&terms) => {}
            (Numeric::Rounded(_), Number::Float(_))
                if has_digits(&terms) && self.session.is_replayed() => {}
            _ if args.len() > 1 => return None,
            _ if are_read(&terms) => {
                let bounds = domain(numeric, number)?;
                if !self.is_within(frame, args[0], &terms[0], bounds) {
                    return None;
                }
            }
            _ => {}
        }
        let value = match call.natively() {
            Ok(value) => value,
            Err(raised) => {
                self.concrete(frame, args, "an error");
                return Some(Err(raised));
            }
        };
        let target = {
            let name = heap::callable_name(callable);
            let module = if is_in_math(callable) { "math" } else { "builtins" };
            let printed = format!("{module}.{name}");
            self.state.borrow_mut().function_target(callable, printed)
        };
        // No expression of the float says what it is with so many digits.
        if are_read(&terms) || matches!(numeric, Numeric::Rounded(_)) && has_digits(&terms) {
            return self.computed_by_node(frame, target, &terms, &value, None).map(Ok);
        }
        self.computed(frame, args, value, target, &terms, |context| {
            Some(match (numeric, number) {
                (Numeric::Float, Number::Integer(expr)) => {
                    context.float_from_int(expr).map(Number::Float)
                }
                (Numeric::Rounded(rounding), Number::Float(float)) => {
                    context.round(rounding, float).map(Number::Integer)
                }
                (Numeric::Absolute, Number::Integer(expr)) => {
                    context.abs(expr).map(Number::Integer)
                }
                (Numeric::Absolute, Number::Float(float)) => {
                    context.float_unary(FloatUnary::Abs, float).map(Number::Float)
                }
                (Numeric::Function(op), _) => float(context, number)
                    .and_then(|float| context.float_unary(op, float))
                    .map(Number::Float),
                _ => return None,
            })
        })
    }

    /// `math.pow(a, b)`, which is a float.
    fn float_power<'py>(&self, call: Call<'_, 'py>, terms: &[Term]) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        if are_read(terms) {
            let (read, bounds) = power_domain(terms)?;
            if !self.is_within(frame, args[read], &terms[read], &bounds) {
                return None;
            }
        }
        let value = Raised::unless(frame.py(), call.natively())?;
        let target = self.state.borrow_mut().function_target(callable, "math.pow".to_string());
        if are_read(terms) {
            return self.computed_by_node(frame, target, terms, &value, None).map(Ok);
        }
        self.computed(frame, args, value, target, terms, |context| {
            let base = float(context, terms[0].number);
            let exponent = float(context, terms[1].number);
            let power = base.and_then(|base| context.float_binary(FloatOp::Pow, base, exponent?));
            Some(power.map(Number::Float))
        })
    }

    /// `n in (a, b)` of numbers, element by element.
    pub(in crate::recorder) fn symbolic_contains<'py>(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        let mut equal = self.equal_items(frame, container, item)?;
        match equal.find(|equal| *equal != Some(false)) {
            None => Some(false),
            Some(found) => found,
        }
    }

    /// `index` and `count` of a list or tuple in the same way. One that isn't found raises, as C code has it.
    pub(in crate::recorder) fn symbolic_search<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names: None } = call else { return None };
        let [container, item] = *args else { return None };
        let mut equal = self.equal_items(frame, container, item)?;
        let found = if heap::is_named(callable, &["index"]) {
            let mut place = 0;
            loop {
                match equal.next()?? {
                    true => break place,
                    false => place += 1,
                }
            }
        } else {
            let counted = equal.map(|equal| equal.map(usize::from));
            counted.sum::<Option<usize>>()?
        };
        Some(Ok(found.into_pyobject(frame.py()).ok()?.into_any()))
    }

    /// Whether each item of a list or tuple equals a number, where one of them is symbolic. `None`: C code has to say.
    fn equal_items<'r, 'py>(
        &'r self,
        frame: &'r Frame<'py>,
        container: Borrowed<'r, 'py>,
        item: Borrowed<'r, 'py>,
    ) -> Option<impl Iterator<Item = Option<bool>> + use<'r, 'py>> {
        if !self.has_symbols()
            || !(heap::is_plain_tuple(container) || heap::is_exact_list(container))
        {
            return None;
        }
        // A constant that is no number equals none.
        let differs = |own: Borrowed<'_, '_>| !heap::is_number(own) && heap::is_constant(own);
        let items = heap::children(container);
        {
            let mut state = self.state.borrow_mut();
            let mut all = items.iter().map(|item| item.as_borrowed()).chain([item]);
            let is_symbolic = all.clone().any(|item| state.number(item).is_some());
            let is_known = |item| state.term(item).is_some() || differs(item);
            if !is_symbolic || !all.all(is_known) || differs(item) || items.len() > MOST {
                return None;
            }
        }
        if self.origin(container) != Some(Origin::Fresh) && !heap::is_constant(container) {
            self.note(frame, |state| state.adopt_deep(container))?;
        }
        Some(items.into_iter().map(move |own| match differs(own.as_borrowed()) {
            true => Some(false),
            false => self.held_numbers_equal(frame, [own.as_borrowed(), item]),
        }))
    }

    /// `sorted` of numbers. That each is where it is, is what is decided.
    fn sorted<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let items = self.elements(sequence)?;
        let integers: Option<Vec<i64>> = {
            let mut state = self.state.borrow_mut();
            if !items.iter().any(|item| state.number(item.as_borrowed()).is_some()) {
                return None;
            }
            let is_int = |item: &Object<'py>| item.is_exact_instance_of::<PyInt>();
            let value = |item: &Object<'py>| is_int(item).then(|| item.extract().ok()).flatten();
            items.iter().map(value).collect()
        };
        let integers = integers?;
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|at| integers[*at]);
        for pair in order.windows(2) {
            // Equal ones stay in order.
            let op = if pair[0] < pair[1] { CompareOp::Le } else { CompareOp::Lt };
            let (left, right) = (items[pair[0]].as_borrowed(), items[pair[1]].as_borrowed());
            if let Some(Err(raised)) = self.symbolic_compare(frame, op, left, right) {
                return Some(Err(raised));
            }
        }
        let list = match ops::call(callable, &[sequence], None) {
            Ok(list) => list,
            Err(raised) => return Some(Err(raised)),
        };
        self.note(frame, |state| {
            state.set_fresh(list.as_borrowed());
            Ok(())
        });
        Some(Ok(list))
    }

    /// Whether a comparison of numbers holds, of which any may be symbolic.
    pub(super) fn comparison_holds<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        let answer = self.symbolic_compare(frame, op, left, right);
        let answer = answer.unwrap_or_else(|| ops::compare(op, left, right))?;
        Ok(answer.is_truthy().unwrap_or(false))
    }

    /// `bisect` of a list, or of a part of it: comparisons say where, as in Python.
    fn place_of<'py>(
        &self,
        frame: &Frame<'py>,
        behind: bool,
        sequence: Borrowed<'_, 'py>,
        number: Borrowed<'_, 'py>,
        bounds: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        if !heap::is_exact_list(sequence) || self.state.borrow_mut().number(number).is_none() {
            return None;
        }
        self.note(frame, |state| state.adopt_deep(sequence))?;
        let items = heap::list_items(sequence);
        if !items.iter().all(|item| heap::is_number(item.as_borrowed())) {
            return None;
        }
        let is_symbolic =
            |bound: &Borrowed<'_, '_>| self.state.borrow_mut().number(*bound).is_some();
        let (mut low, mut high) = match bounds {
            [] => (0, items.len()),
            [least, most] if !bounds.iter().any(is_symbolic) => {
                (least.extract().ok()?, most.extract().ok()?)
            }
            _ => return None,
        };
        if high > items.len() {
            return None;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            let item = items[middle].as_borrowed();
            let (left, right) = if behind { (number, item) } else { (item, number) };
            let is_less = match self.comparison_holds(frame, CompareOp::Lt, left, right) {
                Ok(is_less) => is_less,
                Err(raised) => return Some(Err(raised)),
            };
            if is_less == behind {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(Ok(low.into_pyobject(frame.py()).ok()?.into_any()))
    }

    /// `divmod` of two numbers: a quotient and a rest.
    fn divided<'py>(
        &self,
        frame: &Frame<'py>,
        args: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        let operands: &[Borrowed<'_, 'py>; 2] = args.try_into().ok()?;
        let mut parts = Vec::new();
        for (op, operator) in
            [(BinaryOp::FloorDivide, Operator::FloorDiv), (BinaryOp::Remainder, Operator::Mod)]
        {
            let part = match self.symbolic_binary(frame, op, operator, operands) {
                Some(part) => part,
                // Both are fixed by now.
                None => ops::binary(op, operands[0], operands[1]),
            };
            match part {
                Ok(part) => parts.push(part),
                Err(raised) => {
                    // `divmod` says it in words of its own.
                    drop(raised.take(frame.py()));
                    let both = operands[0].divmod(operands[1]);
                    return Some(both.map_err(|error| Raised::set(frame.py(), error)));
                }
            }
        }
        let pair = pyo3::types::PyTuple::new(frame.py(), parts).ok()?.into_any();
        self.note(frame, |state| {
            state.set_fresh(pair.as_borrowed());
            Ok(())
        });
        Some(Ok(pair))
    }

    /// `min` and `max` of several numbers: comparisons say which, as in Python.
    fn extreme<'py>(
        &self,
        frame: &Frame<'py>,
        is_max: bool,
        args: &[Borrowed<'_, 'py>],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        if let [only] = *args {
            return Some(Ok(only.to_owned()));
        }
        if are_read(terms) && are_alike(args) {
            return self.read_extreme(frame, is_max, args, terms);
        }
        let integer = |term: &Term| match term.number {
            Number::Integer(expr) => Some(expr),
            Number::Float(_) | Number::Read(_) => None,
        };
        let integers: Option<Vec<ExprId>> = terms.iter().map(integer).collect();
        let Some(integers) = integers else {
            // Floats: the first of the largest, by comparisons.
            let mut best = args[0];
            for arg in &args[1..] {
                let op = if is_max { CompareOp::Gt } else { CompareOp::Lt };
                match self.comparison_holds(frame, op, *arg, best) {
                    Ok(true) => best = *arg,
                    Ok(false) => {}
                    Err(raised) => return Some(Err(raised)),
                }
            }
            return Some(Ok(best.to_owned()));
        };
        // PyTorch's function takes two.
        let [first, second] = *args else { return self.extreme_of_pairs(frame, is_max, args) };
        let (a, b): (i64, i64) = (first.extract().ok()?, second.extract().ok()?);
        let is_second = if is_max { b > a } else { b < a };
        let best = if is_second { second } else { first };
        let target = {
            let torch = heap::loaded_module(frame.py(), "torch")?;
            let name = if is_max { "sym_max" } else { "sym_min" };
            let function = torch.getattr(name).ok()?;
            let mut state = self.state.borrow_mut();
            state.function_target(function.as_borrowed(), format!("torch.{name}"))
        };
        self.computed(frame, args, best.to_owned(), target, terms, |context| {
            let result = if is_max { context.max(&integers) } else { context.min(&integers) };
            Some(result.map(Number::Integer))
        })
    }

    /// `min` and `max` of more than two integers: of the first two, of that and the third, and so on.
    fn extreme_of_pairs<'py>(
        &self,
        frame: &Frame<'py>,
        is_max: bool,
        args: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        let (&first, others) = args.split_first()?;
        let mut best: Object<'py> = first.to_owned();
        for &arg in others {
            let held = best.clone();
            let pair = [held.as_borrowed(), arg];
            let terms = self.state.borrow_mut().terms(&pair);
            best = match terms {
                Some(terms) => match self.extreme(frame, is_max, &pair, &terms)? {
                    Ok(best) => best,
                    Err(raised) => return Some(Err(raised)),
                },
                // Neither varies.
                None => {
                    let (a, b): (i64, i64) = (pair[0].extract().ok()?, pair[1].extract().ok()?);
                    let is_second = if is_max { b > a } else { b < a };
                    if is_second { arg.to_owned() } else { best }
                }
            };
        }
        Some(Ok(best))
    }

    /// `min` and `max` of numbers of one type of which one was read: a node, whichever it is.
    fn read_extreme<'py>(
        &self,
        frame: &Frame<'py>,
        is_max: bool,
        args: &[Borrowed<'_, 'py>],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let name = if is_max { "max" } else { "min" };
        let function = extreme(is_max).get(frame.py()).ok()?;
        let value = match ops::call(function.as_borrowed(), args, None) {
            Ok(value) => value,
            Err(raised) => return Some(Err(raised)),
        };
        let target = {
            let mut state = self.state.borrow_mut();
            state.function_target(function.as_borrowed(), format!("builtins.{name}"))
        };
        let own = self.computed_by_node(frame, target, terms, &value, None)?;
        self.state.borrow_mut().learn_extreme(own.as_borrowed(), is_max, terms);
        Some(Ok(own))
    }

    /// `sum(sizes)` and such, as operations.
    fn fold<'py>(
        &self,
        frame: &Frame<'py>,
        numeric: Numeric,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let items = self.elements(sequence)?;
        let symbolic = {
            let mut state = self.state.borrow_mut();
            items.iter().any(|item| state.number(item.as_borrowed()).is_some())
                && items.iter().all(|item| state.term(item.as_borrowed()).is_some())
        };
        if !symbolic {
            return None;
        }
        match numeric {
            Numeric::Sum => self.summed(frame, sequence, &items),
            Numeric::Product => {
                let one = 1i64.into_pyobject(frame.py()).ok()?.into_any();
                let multiply = (BinaryOp::Multiply, Operator::Mul);
                let times = |total, item| self.arithmetic(frame, multiply, &total, item);
                Some(items.iter().try_fold(one, times))
            }
            _ => {
                let borrowed: SmallVec<[Borrowed<'_, 'py>; 8]> =
                    items.iter().map(|item| item.as_borrowed()).collect();
                let terms = self.state.borrow_mut().terms(&borrowed)?;
                self.extreme(frame, numeric == Numeric::Greatest, &borrowed, &terms)
            }
        }
    }
}

/// The builtin `max`, or `min`.
pub(super) fn extreme(is_max: bool) -> &'static Named {
    static MAX: Named = Named::new("builtins", "max");
    static MIN: Named = Named::new("builtins", "min");
    if is_max { &MAX } else { &MIN }
}
