//! Builtin functions, and those of `math`, that a trace follows through symbolic numbers.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, BinaryOp, CompareOp};
use stator_graph::{Operator, Target};
use stator_shapes::{ExprId, FloatOp, FloatUnary, Rounding};

use super::Recorder;
use super::arithmetic::{Term, float};
use super::look as heap;
use super::state::Origin;
use super::symbols::Number;

fn boolean(py: Python<'_>, value: bool) -> Object<'_> {
    pyo3::types::PyBool::new(py, value).to_owned().into_any()
}

/// Whether a callable is the builtin function of this name, not one of `math` or another module.
fn is_builtin(callable: Borrowed<'_, '_>, name: &str) -> bool {
    let builtins = heap::loaded_module(callable.py(), "builtins");
    builtins.and_then(|all| all.getattr(name).ok()).is_some_and(|builtin| builtin.is(callable))
}

/// Whether a callable is a function of the module `math`.
fn is_in_math(callable: Borrowed<'_, '_>) -> bool {
    let module = callable.getattr("__module__");
    module.is_ok_and(|module| module.extract::<&str>().is_ok_and(|module| module == "math"))
}

/// What C code iterates in a tuple, a list or a view of a dictionary.
fn elements<'py>(sequence: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    let is_known = heap::is_plain_tuple(sequence)
        || heap::is_exact_list(sequence)
        || heap::is_named_tuple(sequence);
    if is_known { Some(heap::children(sequence)) } else { heap::view_items(sequence) }
}

impl Recorder {
    /// Calls of functions that the table calls numeric.
    pub(super) fn symbolic_function<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        name: &str,
        args: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        if matches!(name, "sum" | "prod" | "min" | "max") && args.len() == 1 {
            return self.fold(frame, name, args[0]);
        }
        if name == "sorted" && args.len() == 1 {
            return self.sorted(frame, callable, args[0]);
        }
        if name == "numel" && args.len() == 1 && heap::is_plain_tuple(args[0]) {
            return self.fold(frame, "prod", args[0]);
        }
        if args.is_empty() {
            return None;
        }
        let terms = self.state.borrow_mut().terms(args)?;
        let number = terms[0].number;
        match (name, number) {
            ("int" | "index" | "ceil" | "floor" | "trunc" | "round", Number::Integer(_))
                if args.len() == 1 =>
            {
                return Some(Ok(args[0].to_owned()));
            }
            ("bool" | "truth" | "not_", _) if args.len() == 1 => {
                let truth = self.symbolic_truth(frame, args[0])?;
                return Some(Ok(boolean(frame.py(), truth == (name != "not_"))));
            }
            ("isfinite", Number::Integer(_)) => return Some(Ok(boolean(frame.py(), true))),
            ("isnan" | "isinf", Number::Integer(_)) => {
                return Some(Ok(boolean(frame.py(), false)));
            }
            ("pow", _) if is_builtin(callable, "pow") => {
                let operands = args.try_into().ok()?;
                return self.symbolic_binary(frame, BinaryOp::Power, Operator::Pow, operands);
            }
            ("pow", _) if args.len() == 2 && is_in_math(callable) => {
                return self.float_power(frame, callable, args, &terms);
            }
            ("divmod", _) if args.len() == 2 => return self.divided(frame, args),
            ("float", Number::Float(_)) if args.len() == 1 => return Some(Ok(args[0].to_owned())),
            ("min" | "max", _) => return self.extreme(frame, name, args, &terms),
            _ if args.len() > 1 => return None,
            _ => {}
        }
        let value = match ops::call(callable, args, None) {
            Ok(value) => value,
            Err(raised) => {
                self.concrete(frame, args, "an error");
                return Some(Err(raised));
            }
        };
        let target = {
            let mut state = self.state.borrow_mut();
            let printed = match name {
                "ceil" | "floor" | "trunc" | "sqrt" | "log" | "log2" | "log10" | "exp" => {
                    format!("math.{name}")
                }
                _ => name.to_string(),
            };
            let text = state.graph.intern(&printed);
            Target::Function { name: text, object: state.graph_object(callable, || printed) }
        };
        self.computed(frame, args, value, target, &terms, |context| {
            Some(match (name, number) {
                ("float", Number::Integer(expr)) => context.float_from_int(expr).map(Number::Float),
                ("int" | "trunc", Number::Float(float)) => {
                    context.round(Rounding::Trunc, float).map(Number::Integer)
                }
                ("ceil", Number::Float(float)) => {
                    context.round(Rounding::Ceil, float).map(Number::Integer)
                }
                ("floor", Number::Float(float)) => {
                    context.round(Rounding::Floor, float).map(Number::Integer)
                }
                ("abs", Number::Integer(expr)) => context.abs(expr).map(Number::Integer),
                ("abs", Number::Float(float)) => {
                    context.float_unary(FloatUnary::Abs, float).map(Number::Float)
                }
                ("round", Number::Float(float)) => {
                    context.round(Rounding::Round, float).map(Number::Integer)
                }
                ("sqrt" | "log" | "log2" | "log10" | "exp", _) => {
                    let op = match name {
                        "sqrt" => FloatUnary::Sqrt,
                        "log" => FloatUnary::Log,
                        "log2" => FloatUnary::Log2,
                        "log10" => FloatUnary::Log10,
                        _ => FloatUnary::Exp,
                    };
                    float(context, number)
                        .and_then(|float| context.float_unary(op, float))
                        .map(Number::Float)
                }
                _ => return None,
            })
        })
    }

    /// `math.pow(a, b)`, which is a float.
    fn float_power<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let Ok(value) = ops::call(callable, args, None) else { return None };
        let target = {
            let mut state = self.state.borrow_mut();
            let text = state.graph.intern("math.pow");
            let object = state.graph_object(callable, || "math.pow".to_string());
            Target::Function { name: text, object }
        };
        self.computed(frame, args, value, target, terms, |context| {
            let base = float(context, terms[0].number);
            let exponent = float(context, terms[1].number);
            let power = base.and_then(|base| context.float_binary(FloatOp::Pow, base, exponent?));
            Some(power.map(Number::Float))
        })
    }

    /// `n in (a, b)` of numbers, element by element.
    pub(super) fn symbolic_contains<'py>(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Option<bool> {
        if !self.has_symbols()
            || !(heap::is_plain_tuple(container) || heap::is_exact_list(container))
        {
            return None;
        }
        // What an outside container holds is guarded where it's read.
        if self.origin(container) != Some(Origin::Fresh) && !heap::is_constant(container) {
            return None;
        }
        let items = heap::children(container);
        {
            let mut state = self.state.borrow_mut();
            let mut all = items.iter().map(|item| item.as_borrowed()).chain([item]);
            let is_symbolic = all.clone().any(|item| state.number(item).is_some());
            if !is_symbolic || !all.all(|item| state.term(item).is_some()) {
                return None;
            }
        }
        for own in &items {
            let equal = match self.symbolic_compare(frame, CompareOp::Eq, own.as_borrowed(), item) {
                Some(equal) => equal,
                None => ops::compare(CompareOp::Eq, own.as_borrowed(), item),
            };
            if equal.ok()?.is_truthy().ok()? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// `sorted` of numbers. That each is where it is, is what is decided.
    fn sorted<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let items = elements(sequence)?;
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
                Err(raised) => return Some(Err(raised)),
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
        name: &str,
        args: &[Borrowed<'_, 'py>],
        terms: &[Term],
    ) -> Option<Result<Object<'py>>> {
        let integer = |term: &Term| match term.number {
            Number::Integer(expr) => Some(expr),
            Number::Float(_) => None,
        };
        let integers: Option<Vec<ExprId>> = terms.iter().map(integer).collect();
        let is_max = name == "max";
        let Some(integers) = integers else {
            // Floats: the first of the largest, by comparisons.
            let mut best = args[0];
            for arg in &args[1..] {
                let op = if is_max { CompareOp::Gt } else { CompareOp::Lt };
                let better = match self.symbolic_compare(frame, op, *arg, best) {
                    Some(better) => better,
                    None => ops::compare(op, *arg, best),
                };
                match better {
                    Ok(better) if better.is_truthy().unwrap_or(false) => best = *arg,
                    Ok(_) => {}
                    Err(raised) => return Some(Err(raised)),
                }
            }
            return Some(Ok(best.to_owned()));
        };
        // PyTorch's function takes two.
        let [first, second] = *args else { return None };
        let (a, b): (i64, i64) = (first.extract().ok()?, second.extract().ok()?);
        let is_second = if is_max { b > a } else { b < a };
        let best = if is_second { second } else { first };
        let target = {
            let mut state = self.state.borrow_mut();
            let torch = heap::loaded_module(frame.py(), "torch")?;
            let function = torch.getattr(format!("sym_{name}")).ok()?;
            let printed = format!("torch.sym_{name}");
            let text = state.graph.intern(&printed);
            let object = state.graph_object(function.as_borrowed(), || printed);
            Target::Function { name: text, object }
        };
        self.computed(frame, args, best.to_owned(), target, terms, |context| {
            let result = if is_max { context.max(&integers) } else { context.min(&integers) };
            Some(result.map(Number::Integer))
        })
    }

    /// `sum(sizes)` and such: one operation after the other.
    fn fold<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let items = elements(sequence)?;
        let symbolic = {
            let mut state = self.state.borrow_mut();
            items.iter().any(|item| state.number(item.as_borrowed()).is_some())
                && items.iter().all(|item| state.term(item.as_borrowed()).is_some())
        };
        if !symbolic {
            return None;
        }
        let py = frame.py();
        let (start, op, operator) = match name {
            "sum" => (Some(0i64), BinaryOp::Add, Operator::Add),
            "prod" => (Some(1), BinaryOp::Multiply, Operator::Mul),
            _ => {
                let borrowed: SmallVec<[Borrowed<'_, 'py>; 8]> =
                    items.iter().map(|item| item.as_borrowed()).collect();
                let terms = self.state.borrow_mut().terms(&borrowed)?;
                return self.extreme(frame, name, &borrowed, &terms);
            }
        };
        let mut total: Object<'py> = start?.into_pyobject(py).ok()?.into_any();
        for item in &items {
            let operands = [total.as_borrowed(), item.as_borrowed()];
            let next = match self.symbolic_binary(frame, op, operator, &operands) {
                Some(next) => next,
                None => ops::binary(op, operands[0], operands[1]),
            };
            match next {
                Ok(next) => total = next,
                Err(raised) => return Some(Err(raised)),
            }
        }
        Some(Ok(total))
    }
}
