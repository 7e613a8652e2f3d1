//! What a program requires of the sizes of its inputs: a condition in Python's notation, in which
//! `%0.size(1)` is a size of an input. Its numbers are 64-bit integers, and floats as Python computes them.

use super::lexer::{Lexer, Token};
use super::{DEPTH, Malformed};

/// A condition on sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(Value),
    Truth(bool),
    Size {
        input: usize,
        dim: usize,
    },
    Negative(Box<Node>),
    Not(Box<Node>),
    Binary(Op, Box<Node>, Box<Node>),
    Most(Vec<Node>),
    Least(Vec<Node>),
    /// A function of one number.
    Of(Function, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Int(i64),
    Float(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Abs,
    Float,
    Int,
    Round,
    Floor,
    Ceil,
    /// One of floats alone.
    Real(Real),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Real {
    Sqrt,
    Log,
    Log2,
    Log10,
    Exp,
    Sin,
    Cos,
    Tanh,
}

const FUNCTIONS: &[(&str, Function)] = &[
    ("abs", Function::Abs),
    ("float", Function::Float),
    ("int", Function::Int),
    ("round", Function::Round),
    ("math.floor", Function::Floor),
    ("math.ceil", Function::Ceil),
    ("math.sqrt", Function::Real(Real::Sqrt)),
    ("math.log", Function::Real(Real::Log)),
    ("math.log2", Function::Real(Real::Log2)),
    ("math.log10", Function::Real(Real::Log10)),
    ("math.exp", Function::Real(Real::Exp)),
    ("math.sin", Function::Real(Real::Sin)),
    ("math.cos", Function::Real(Real::Cos)),
    ("math.tanh", Function::Real(Real::Tanh)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

/// Operators by how tightly they bind, loosest first; `not` and `-` stand between.
const LEVELS: &[&[(&str, Op)]] = &[
    &[("or", Op::Or)],
    &[("and", Op::And)],
    &[("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)],
    &[("+", Op::Add), ("-", Op::Sub)],
    &[("*", Op::Mul), ("/", Op::Div), ("//", Op::FloorDiv), ("%", Op::Mod)],
    &[("**", Op::Pow)],
];
const COMPARE: usize = 2;
const PRODUCT: usize = 4;
const POWER: usize = 5;

impl Requirement {
    /// Reads a condition.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        Self::parse_line(text, 0)
    }

    pub(super) fn parse_line(text: &str, line: usize) -> Result<Self, Malformed> {
        let mut lexer = Lexer::new(text, line);
        let root = level(&mut lexer, 0, DEPTH)?;
        lexer.end()?;
        Ok(Self { text: text.trim().to_string(), root })
    }

    /// As it prints.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all sizes that it speaks of are there.
    pub fn is_about(&self, has: &dyn Fn(usize, usize) -> bool) -> bool {
        let mut all = true;
        self.root.visit(&mut |input, dim| all &= has(input, dim));
        all
    }

    /// The sizes it speaks of: input and dimension.
    pub fn sizes(&self) -> Vec<(usize, usize)> {
        let mut sizes = Vec::new();
        self.root.visit(&mut |input, dim| {
            if !sizes.contains(&(input, dim)) {
                sizes.push((input, dim));
            }
        });
        sizes
    }

    /// Whether it holds. Integers that don't fit into 64 bits, and what Python raises for, fail it.
    pub fn holds(&self, size: &dyn Fn(usize, usize) -> i64) -> bool {
        self.root.value(size).is_some_and(Value::is_true)
    }
}

fn level(lexer: &mut Lexer<'_>, at: usize, depth: usize) -> Result<Node, Malformed> {
    if depth == 0 {
        return Err(lexer.error("a condition is nested too deep"));
    }
    let Some(operators) = LEVELS.get(at) else { return atom(lexer, depth) };
    if at == COMPARE && matches!(lexer.peek()?, Token::Name("not")) {
        lexer.next()?;
        return Ok(Node::Not(Box::new(level(lexer, COMPARE, depth - 1)?)));
    }
    if at == PRODUCT && lexer.takes("-") {
        // `-a*b` and `-a//b`: the sign binds tighter than the product, but not than a power.
        let first = Node::Negative(Box::new(level(lexer, POWER, depth - 1)?));
        return chain(lexer, first, operators, at, depth);
    }
    let first = level(lexer, at + 1, depth)?;
    chain(lexer, first, operators, at, depth)
}

fn chain(
    lexer: &mut Lexer<'_>,
    first: Node,
    operators: &[(&str, Op)],
    at: usize,
    depth: usize,
) -> Result<Node, Malformed> {
    let mut left = first;
    // Chains are as deep as they are long.
    for _ in 0..DEPTH {
        let token = lexer.peek()?;
        let found = operators.iter().find(|(text, _)| match token {
            Token::Sign(sign) => sign == *text,
            Token::Name(name) => name == *text,
            _ => false,
        });
        let Some((_, op)) = found else { return Ok(left) };
        lexer.next()?;
        let right = level(lexer, at + 1, depth - 1)?;
        left = Node::Binary(*op, Box::new(left), Box::new(right));
    }
    Err(lexer.error("a condition is too long"))
}

fn atom(lexer: &mut Lexer<'_>, depth: usize) -> Result<Node, Malformed> {
    match lexer.next()? {
        Token::Number(digits) => {
            let value = if digits.contains(['.', 'e', 'E']) {
                digits.parse().map(Value::Float).map_err(|_| lexer.error("no float"))?
            } else {
                digits.parse().map(Value::Int).map_err(|_| lexer.error("no 64-bit integer"))?
            };
            Ok(Node::Number(value))
        }
        Token::Name("True") => Ok(Node::Truth(true)),
        Token::Name("False") => Ok(Node::Truth(false)),
        Token::Node(input) => match lexer.next()? {
            Token::Name(".size") => {
                let dim = match list(lexer, depth)?.as_slice() {
                    [Node::Number(Value::Int(dim))] => usize::try_from(*dim).ok(),
                    _ => None,
                };
                dim.map(|dim| Node::Size { input, dim })
                    .ok_or_else(|| lexer.error("size takes the number of a dimension"))
            }
            other => Err(lexer.unexpected(&other, "\".size\"")),
        },
        Token::Name("max") => list(lexer, depth).map(Node::Most),
        Token::Name("min") => list(lexer, depth).map(Node::Least),
        Token::Name(name) => {
            let Some((_, of)) = FUNCTIONS.iter().find(|(of, _)| *of == name) else {
                return Err(lexer.unexpected(&Token::Name(name), "a number or a size"));
            };
            if *of == Function::Float && lexer.is_text_next() {
                return literal(lexer);
            }
            match <[Node; 1]>::try_from(list(lexer, depth)?) {
                Ok([inner]) => Ok(Node::Of(*of, Box::new(inner))),
                Err(_) => Err(lexer.error(&format!("{name} takes one number"))),
            }
        }
        Token::Sign("(") => {
            let inner = level(lexer, 0, depth - 1)?;
            lexer.expect(")")?;
            Ok(inner)
        }
        other => Err(lexer.unexpected(&other, "a number or a size")),
    }
}

/// `('inf')` or `('nan')`
fn literal(lexer: &mut Lexer<'_>) -> Result<Node, Malformed> {
    lexer.expect("(")?;
    let value = match &*lexer.string()? {
        "inf" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => return Err(lexer.error("a float is 'inf' or 'nan'")),
    };
    lexer.expect(")")?;
    Ok(Node::Number(Value::Float(value)))
}

fn list(lexer: &mut Lexer<'_>, depth: usize) -> Result<Vec<Node>, Malformed> {
    lexer.expect("(")?;
    let mut all = vec![level(lexer, 0, depth - 1)?];
    while lexer.takes(",") {
        all.push(level(lexer, 0, depth - 1)?);
    }
    lexer.expect(")")?;
    Ok(all)
}

impl Node {
    fn visit(&self, size: &mut dyn FnMut(usize, usize)) {
        match self {
            Self::Number(_) | Self::Truth(_) => {}
            Self::Size { input, dim } => size(*input, *dim),
            Self::Negative(inner) | Self::Not(inner) | Self::Of(_, inner) => inner.visit(size),
            Self::Binary(_, left, right) => {
                left.visit(size);
                right.visit(size);
            }
            Self::Most(all) | Self::Least(all) => all.iter().for_each(|node| node.visit(size)),
        }
    }

    /// The value; truth values are 0 and 1.
    fn value(&self, size: &dyn Fn(usize, usize) -> i64) -> Option<Value> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Truth(truth) => Some(Value::from(*truth)),
            Self::Size { input, dim } => Some(Value::Int(size(*input, *dim))),
            Self::Negative(inner) => match inner.value(size)? {
                Value::Int(a) => a.checked_neg().map(Value::Int),
                Value::Float(a) => Some(Value::Float(-a)),
            },
            Self::Not(inner) => Some(Value::from(!inner.value(size)?.is_true())),
            Self::Of(function, inner) => function.apply(inner.value(size)?),
            Self::Most(nodes) => extreme(nodes, size, Op::Gt),
            Self::Least(nodes) => extreme(nodes, size, Op::Lt),
            Self::Binary(Op::And, left, right) => match left.value(size)? {
                holds if holds.is_true() => right.value(size),
                fails => Some(fails),
            },
            Self::Binary(Op::Or, left, right) => match left.value(size)? {
                holds if holds.is_true() => Some(holds),
                _ => right.value(size),
            },
            Self::Binary(op, left, right) => apply(*op, left.value(size)?, right.value(size)?),
        }
    }
}

/// `max` and `min`: the first of those that no later one exceeds.
fn extreme(nodes: &[Node], size: &dyn Fn(usize, usize) -> i64, exceeds: Op) -> Option<Value> {
    let mut values = nodes.iter().map(|node| node.value(size));
    let mut best = values.next()??;
    for value in values {
        let value = value?;
        if apply(exceeds, value, best)?.is_true() {
            best = value;
        }
    }
    Some(best)
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Int(truth.into())
    }
}

impl Value {
    fn is_true(self) -> bool {
        match self {
            Self::Int(a) => a != 0,
            Self::Float(a) => a != 0.0,
        }
    }

    /// Python rounds an integer to the nearest float, as this does.
    #[allow(clippy::cast_precision_loss)]
    fn float(self) -> f64 {
        match self {
            Self::Int(a) => a as f64,
            Self::Float(a) => a,
        }
    }
}

impl Function {
    fn apply(self, a: Value) -> Option<Value> {
        match (self, a) {
            (Self::Abs, Value::Int(a)) => a.checked_abs().map(Value::Int),
            (Self::Abs, Value::Float(a)) => Some(Value::Float(a.abs())),
            (Self::Float, a) => Some(Value::Float(a.float())),
            (Self::Real(of), a) => of.apply(a.float()).map(Value::Float),
            (_, Value::Int(a)) => Some(Value::Int(a)),
            (Self::Int, Value::Float(a)) => integer(a.trunc()),
            (Self::Round, Value::Float(a)) => integer(a.round_ties_even()),
            (Self::Floor, Value::Float(a)) => integer(a.floor()),
            (Self::Ceil, Value::Float(a)) => integer(a.ceil()),
        }
    }
}

impl Real {
    fn apply(self, a: f64) -> Option<f64> {
        let value = match self {
            Self::Sqrt if a < 0.0 => return None,
            Self::Log | Self::Log2 | Self::Log10 if a <= 0.0 => return None,
            Self::Sin | Self::Cos if a.is_infinite() => return None,
            Self::Sqrt => a.sqrt(),
            Self::Log => a.ln(),
            Self::Log2 => a.log2(),
            Self::Log10 => a.log10(),
            Self::Exp => a.exp(),
            Self::Sin => a.sin(),
            Self::Cos => a.cos(),
            Self::Tanh => a.tanh(),
        };
        (value.is_finite() || !a.is_finite()).then_some(value)
    }
}

/// A whole float as an integer.
#[allow(clippy::cast_possible_truncation)]
fn integer(whole: f64) -> Option<Value> {
    const LIMIT: f64 = (1_u64 << 63) as f64;
    (-LIMIT..LIMIT).contains(&whole).then_some(Value::Int(whole as i64))
}

fn apply(op: Op, a: Value, b: Value) -> Option<Value> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => match compare(op, &a, &b) {
            Some(truth) => Some(Value::from(truth)),
            None => compute(op, a, b),
        },
        (a, b) => {
            let (a, b) = (a.float(), b.float());
            match compare(op, &a, &b) {
                Some(truth) => Some(Value::from(truth)),
                None => compute_floats(op, a, b).map(Value::Float),
            }
        }
    }
}

/// Whether a comparison holds; `None`: it is none.
fn compare<T: PartialOrd>(op: Op, a: &T, b: &T) -> Option<bool> {
    Some(match op {
        Op::Eq => a == b,
        Op::Ne => a != b,
        Op::Lt => a < b,
        Op::Le => a <= b,
        Op::Gt => a > b,
        Op::Ge => a >= b,
        _ => return None,
    })
}

fn compute_floats(op: Op, a: f64, b: f64) -> Option<f64> {
    match op {
        Op::Add => Some(a + b),
        Op::Sub => Some(a - b),
        Op::Mul => Some(a * b),
        Op::Div => (b != 0.0).then_some(a / b),
        Op::Pow if a == 0.0 && b < 0.0 => None,
        Op::Pow => {
            let power = a.powf(b);
            (power.is_finite() || !a.is_finite() || !b.is_finite()).then_some(power)
        }
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss)]
fn compute(op: Op, a: i64, b: i64) -> Option<Value> {
    Some(Value::Int(match op {
        Op::Add => a.checked_add(b)?,
        Op::Sub => a.checked_sub(b)?,
        Op::Mul => a.checked_mul(b)?,
        // Python rounds the quotient once; so does this while both are floats themselves.
        Op::Div if b == 0 || a.unsigned_abs().max(b.unsigned_abs()) > 1 << 53 => return None,
        Op::Div => return Some(Value::Float(a as f64 / b as f64)),
        // As Python rounds.
        Op::FloorDiv => {
            let quotient = a.checked_div(b)?;
            let is_above = a % b != 0 && (a < 0) != (b < 0);
            quotient.checked_sub(is_above.into())?
        }
        Op::Mod => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Op::Pow => a.checked_pow(u32::try_from(b).ok()?)?,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::Requirement;

    fn holds(text: &str) -> bool {
        let sizes = [[6, 4], [3, 0]];
        Requirement::parse(text).unwrap().holds(&|input, dim| sizes[input][dim])
    }

    #[test]
    fn conditions() {
        let cases = [
            ("%0.size(0) == 6", true),
            ("2*%0.size(0) - %0.size(1) == 8", true),
            ("%0.size(0) % 4 == 2 and %0.size(1) != 3", true),
            ("%0.size(0)//4 > 1 or False", false),
            ("-%0.size(0)//4 == -2", true),
            ("-%0.size(0) % 4 == 2", true),
            ("not %0.size(0) == 6", false),
            ("not (%0.size(0) == 5 or %1.size(0) < 3)", true),
            ("max(%0.size(0), %1.size(0), 7) == 7", true),
            ("min(%0.size(0), abs(-2)) == 2", true),
            ("%1.size(0)**2 == 9", true),
            ("10 // %1.size(1) == 0", false),
            ("%0.size(0)**9000 > 0", false),
            ("int(0.8*float(%0.size(0))) == 4", true),
            ("round(0.75*float(%0.size(0))) == 4", true),
            ("math.ceil(%0.size(0)/4) == 2 and math.floor(%0.size(0)/4) == 1", true),
            ("not float(%0.size(0)) < 0.0", true),
            ("math.sqrt(float(%0.size(0) - 2)) == 2.0", true),
            ("math.sqrt(float(-%0.size(0))) == 2.0", false),
            ("float(%0.size(0))**(-0.5) > 4e-1", true),
            ("max(2.5, float(%1.size(0))) < float('inf')", true),
            ("min(float('nan'), 1.0) == 1.0", false),
            ("min(1.0, float('nan')) == 1.0", true),
            ("-float('inf') < -1e-07", true),
            ("%0.size(0)/%1.size(1) > 0.0", false),
            ("int(float('inf')) > 0", false),
            ("math.exp(float(%0.size(0)*1000)) > 0.0", false),
            ("float(%0.size(0)) % 4 == 2", false),
        ];
        for (text, expected) in cases {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn no_conditions() {
        for text in [
            "",
            "%0 == 1",
            "%0.size(x) == 1",
            "1 +",
            "(1",
            "1 2",
            "%0.strides(0)",
            "float('one')",
            "math.gamma(1)",
        ] {
            assert!(Requirement::parse(text).is_err(), "{text}");
        }
        assert!(Requirement::parse(&"(".repeat(100_000)).is_err());
        assert!(Requirement::parse(&"1+".repeat(100_000)).is_err());
        assert!(Requirement::parse(&"not ".repeat(100_000)).is_err());
    }
}
