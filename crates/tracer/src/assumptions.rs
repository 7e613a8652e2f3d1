//! What a backend's code assumes of the numbers in the graph's inputs, beyond the entry's guards.
//!
//! A backend may specialise where the trace didn't. What it has assumed then is guards of its code,
//! compiled as those of the entry are: a call that fails them gets other code of the same graph, and no
//! other trace.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::object::Borrowed;
use stator_shapes::{
    Cmp, CondId, Context, Error, ExprId, Fact, FactKind, FloatId, FloatOp, FloatUnary, Program,
    Rounding, SIZE_LIMIT, Style, SymbolId,
};

use crate::symbolic::Part;

/// Conditions on the inputs of a graph.
#[derive(Debug, Default)]
pub struct Assumptions {
    numbers: Box<[(usize, Part)]>,
    program: Program,
    /// The conditions, printed as guards are.
    pub texts: Box<[String]>,
    /// The same in terms of `s0`, `s1`, ..., for the `dynamic` log.
    pub short: Box<[String]>,
}

/// What the numbers in a graph's inputs are called.
pub trait Names {
    /// As guards print them. Numbers of one name are one number.
    fn source(&self, input: usize, part: Part) -> String;
    /// As the `dynamic` log does.
    fn short(&self, source: &str) -> String;
    /// Whether the entry's guards say this already.
    fn is_known(&self, text: &str) -> bool;
}

impl Assumptions {
    /// Reads the trees of `stator._fx.assumptions`, which hold for these inputs.
    ///
    /// # Errors
    /// If they aren't such trees.
    pub fn read(
        trees: &Bound<'_, PyAny>,
        inputs: &[Borrowed<'_, '_>],
        names: &dyn Names,
    ) -> PyResult<Self> {
        let mut reader = Reader {
            context: Context::new(),
            inputs,
            names,
            known: FxHashMap::default(),
            numbers: Vec::new(),
            printed: Vec::new(),
            bounds: Vec::new(),
        };
        for tree in trees.try_iter()? {
            reader.assume(&tree?)?;
        }
        Ok(reader.finish())
    }

    /// Whether they hold for these inputs.
    #[inline]
    pub fn hold(&self, inputs: &[Borrowed<'_, '_>]) -> bool {
        if self.program.is_empty() {
            return true;
        }
        let mut integers = SmallVec::<[i64; 8]>::new();
        let mut floats = SmallVec::<[f64; 8]>::new();
        for &(input, part) in &self.numbers {
            let (integer, float) = if part == Part::Float {
                (Some(0), inputs[input].cast::<PyFloat>().map(|float| float.value()))
            } else {
                (part.integer(inputs[input]), Ok(0.0))
            };
            let (Some(integer), Ok(float)) = (integer, float) else { return false };
            integers.push(integer);
            floats.push(float);
        }
        self.program.check(&integers, &floats)
    }
}

/// Makes conditions of trees.
struct Reader<'a, 'py> {
    context: Context,
    inputs: &'a [Borrowed<'a, 'py>],
    names: &'a dyn Names,
    known: FxHashMap<String, Value>,
    /// A symbol's number.
    numbers: Vec<(usize, Part)>,
    /// A symbol's name.
    printed: Vec<String>,
    /// Bounds of symbols that nobody else checks.
    bounds: Vec<Fact>,
}

/// What a tree is.
#[derive(Clone, Copy)]
enum Value {
    Integer(ExprId),
    Float(FloatId),
    Condition(CondId),
}

/// Why a tree is no condition.
enum Unread {
    /// It's no such tree.
    Malformed(PyErr),
    /// The arithmetic of symbols can't express it.
    Inexpressible,
}

impl From<PyErr> for Unread {
    fn from(error: PyErr) -> Self {
        Self::Malformed(error)
    }
}

impl From<Error> for Unread {
    fn from(_: Error) -> Self {
        Self::Inexpressible
    }
}

type Read<T> = Result<T, Unread>;

impl Reader<'_, '_> {
    fn assume(&mut self, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.value(tree) {
            // What doesn't hold for the inputs it was assumed for was printed in terms unknown here.
            Ok(Value::Condition(condition)) if self.context.cond_hint(condition) => {
                self.context.evaluate(condition);
                Ok(())
            }
            Ok(_) | Err(Unread::Inexpressible) => self.fix(tree),
            Err(Unread::Malformed(error)) => Err(error),
        }
    }

    /// Fixes all numbers in a tree.
    fn fix(&mut self, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(tuple) = tree.cast::<PyTuple>() else { return Ok(()) };
        match self.number(tuple)? {
            Some(Value::Integer(expr)) => drop(self.context.specialize(expr)),
            Some(Value::Float(float)) => drop(self.context.specialize_float(float)),
            _ => tuple.iter().skip(1).try_for_each(|part| self.fix(&part))?,
        }
        Ok(())
    }

    fn value(&mut self, tree: &Bound<'_, PyAny>) -> Read<Value> {
        if let Ok(value) = tree.cast_exact::<PyBool>() {
            return Ok(Value::Condition(self.context.bool(value.is_true())));
        }
        if tree.is_exact_instance_of::<PyInt>() {
            let value = tree.extract::<i64>().map_err(|_| Unread::Inexpressible)?;
            return Ok(Value::Integer(self.context.constant(value)));
        }
        if let Ok(value) = tree.cast_exact::<PyFloat>() {
            return Ok(Value::Float(self.context.float_constant(value.value())));
        }
        let tuple = tree.cast::<PyTuple>().map_err(PyErr::from)?;
        if let Some(number) = self.number(tuple)? {
            return Ok(number);
        }
        let name: String = tuple.get_item(0)?.extract()?;
        let parts = tuple.iter().skip(1).map(|part| self.value(&part));
        let parts = parts.collect::<Read<SmallVec<[Value; 4]>>>()?;
        self.operation(&name, &parts)
    }

    /// The number in an input that a tree is, if it is one.
    fn number(&mut self, tree: &Bound<'_, PyTuple>) -> PyResult<Option<Value>> {
        let name: String = tree.get_item(0)?.extract()?;
        let index = |at: usize| -> PyResult<usize> { tree.get_item(at)?.extract() };
        let input = match &*name {
            "input" | "size" | "stride" | "offset" => index(1)?,
            _ => return Ok(None),
        };
        let object = self.inputs.get(input).copied();
        let object = object.ok_or_else(|| PyValueError::new_err("no such input"))?;
        let part = match &*name {
            "size" => Part::Size(index(2)?),
            "stride" => Part::Stride(index(2)?),
            "offset" => Part::Offset,
            _ if object.is_exact_instance_of::<PyFloat>() => Part::Float,
            _ => Part::Integer,
        };
        let source = self.names.source(input, part);
        if let Some(&known) = self.known.get(&source) {
            return Ok(Some(known));
        }
        let value = if part == Part::Float {
            Value::Float(self.context.float_symbol(object.extract()?).1)
        } else {
            let hint = part.integer(object);
            let hint = hint.ok_or_else(|| PyValueError::new_err("an input without that number"))?;
            Value::Integer(match part {
                Part::Integer => self.integer_symbol(hint),
                Part::Size(_) if hint >= 2 => self.context.symbol(hint, (2, SIZE_LIMIT), None).expr,
                _ => self.context.symbol(hint, (0, SIZE_LIMIT), None).expr,
            })
        };
        self.numbers.push((input, part));
        self.printed.push(source.clone());
        self.known.insert(source, value);
        Ok(Some(value))
    }

    /// An integer of the program's. The bounds that its symbol has are conditions as well: those of the
    /// entry's may be wider.
    fn integer_symbol(&mut self, hint: i64) -> ExprId {
        let expr = self.context.int_symbol(hint).expr;
        if (-SIZE_LIMIT..=SIZE_LIMIT).contains(&hint) {
            let ends = (self.context.constant(-SIZE_LIMIT), self.context.constant(SIZE_LIMIT));
            let bounds = [self.context.le(ends.0, expr), self.context.le(expr, ends.1)];
            let fact = |cond| Fact { cond, kind: FactKind::Range, implicit: true };
            self.bounds.extend(bounds.map(fact));
        }
        expr
    }

    fn operation(&mut self, name: &str, parts: &[Value]) -> Read<Value> {
        if let Some(op) = comparison(name) {
            return self.compare(op, parts).map(Value::Condition);
        }
        match (name, parts) {
            ("and" | "or", _) => {
                let parts = parts.iter().map(|part| condition(*part));
                let parts = parts.collect::<Read<Vec<CondId>>>()?;
                let joined =
                    if name == "and" { self.context.and(&parts) } else { self.context.or(&parts) };
                Ok(Value::Condition(joined))
            }
            ("not", &[Value::Condition(inner)]) => Ok(Value::Condition(self.context.not(inner))),
            ("same", &[Value::Float(float), Value::Float(value)]) => {
                let value = self.context.float_hint(value);
                Ok(Value::Condition(self.context.float_is(float, value)))
            }
            ("float", &[value]) => self.float(value).map(Value::Float),
            ("sqrt", &[value]) => {
                let float = self.float(value)?;
                Ok(Value::Float(self.context.float_unary(FloatUnary::Sqrt, float)?))
            }
            ("ceil" | "floor" | "trunc", &[Value::Integer(expr)]) => Ok(Value::Integer(expr)),
            ("ceil" | "floor" | "trunc", &[Value::Float(float)]) => {
                let rounding = match name {
                    "ceil" => Rounding::Ceil,
                    "floor" => Rounding::Floor,
                    _ => Rounding::Trunc,
                };
                Ok(Value::Integer(self.context.round(rounding, float)?))
            }
            _ => match integers(parts) {
                Some(integers) => self.integer(name, &integers),
                None => self.floating(name, parts),
            },
        }
    }

    fn integer(&mut self, name: &str, parts: &[ExprId]) -> Read<Value> {
        let context = &mut self.context;
        let result = match (name, parts) {
            ("+", &[a, b]) => context.add(a, b),
            ("-", &[a, b]) => context.sub(a, b),
            ("-", &[a]) => context.neg(a),
            ("*", &[a, b]) => context.mul(a, b),
            ("//", &[a, b]) => context.floordiv(a, b),
            ("%", &[a, b]) => context.modulus(a, b),
            ("/", &[a, b]) => return Ok(Value::Float(context.truediv(a, b)?)),
            ("**", &[a, b]) => {
                let exponent = context.as_constant(b).and_then(|power| u32::try_from(power).ok());
                context.pow(a, exponent.ok_or(Unread::Inexpressible)?)
            }
            ("abs", &[a]) => context.abs(a),
            ("min", _) => context.min(parts),
            ("max", _) => context.max(parts),
            _ => return Err(Unread::Inexpressible),
        };
        Ok(Value::Integer(result?))
    }

    fn floating(&mut self, name: &str, parts: &[Value]) -> Read<Value> {
        let floats = parts.iter().map(|part| self.float(*part));
        let floats = floats.collect::<Read<SmallVec<[FloatId; 2]>>>()?;
        let op = match name {
            "+" => FloatOp::Add,
            "-" => FloatOp::Sub,
            "*" => FloatOp::Mul,
            "/" => FloatOp::Div,
            "**" => FloatOp::Pow,
            _ => return Err(Unread::Inexpressible),
        };
        let result = match floats[..] {
            [a, b] => self.context.float_binary(op, a, b)?,
            [a] if name == "-" => self.context.float_unary(FloatUnary::Neg, a)?,
            _ => return Err(Unread::Inexpressible),
        };
        Ok(Value::Float(result))
    }

    fn compare(&mut self, op: Cmp, parts: &[Value]) -> Read<CondId> {
        match *parts {
            [Value::Integer(a), Value::Integer(b)] => Ok(self.context.compare(op, a, b)),
            [
                a @ (Value::Integer(_) | Value::Float(_)),
                b @ (Value::Integer(_) | Value::Float(_)),
            ] => {
                let (a, b) = (self.float(a)?, self.float(b)?);
                Ok(self.context.compare_floats(op, a, b))
            }
            _ => Err(Unread::Inexpressible),
        }
    }

    fn float(&mut self, value: Value) -> Read<FloatId> {
        match value {
            Value::Integer(expr) => Ok(self.context.float_from_int(expr)?),
            Value::Float(float) => Ok(float),
            Value::Condition(_) => Err(Unread::Inexpressible),
        }
    }

    fn finish(mut self) -> Assumptions {
        let slot = |symbol: SymbolId| symbol.index();
        let (mut texts, mut short) = (Vec::new(), Vec::new());
        let mut facts = std::mem::take(&mut self.bounds);
        for cond in self.context.take_added() {
            let name = |symbol: SymbolId| self.printed[symbol.index()].clone().into();
            let text = self.context.display_cond(cond, Style::Math, &name);
            if self.names.is_known(&text) {
                continue;
            }
            let name = |symbol: SymbolId| self.names.short(&self.printed[symbol.index()]).into();
            short.push(self.context.display_cond(cond, Style::Math, &name));
            texts.push(text);
            facts.push(Fact { cond, kind: FactKind::Residual, implicit: false });
        }
        Assumptions {
            program: self.context.compile(&facts, &slot),
            numbers: self.numbers.into(),
            texts: texts.into(),
            short: short.into(),
        }
    }
}

fn comparison(name: &str) -> Option<Cmp> {
    Some(match name {
        "==" => Cmp::Eq,
        "!=" => Cmp::Ne,
        "<" => Cmp::Lt,
        "<=" => Cmp::Le,
        ">" => Cmp::Gt,
        ">=" => Cmp::Ge,
        _ => return None,
    })
}

fn condition(value: Value) -> Read<CondId> {
    match value {
        Value::Condition(condition) => Ok(condition),
        _ => Err(Unread::Inexpressible),
    }
}

fn integers(parts: &[Value]) -> Option<SmallVec<[ExprId; 4]>> {
    let integer = |part: &Value| match *part {
        Value::Integer(expr) => Some(expr),
        _ => None,
    };
    parts.iter().map(integer).collect()
}
