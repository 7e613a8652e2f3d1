//! What a program requires of the sizes of its inputs: a condition in Python's notation, in which
//! `%0.size(1)` is a size of an input.

use super::lexer::{Lexer, Token};
use super::{DEPTH, Malformed};

/// A condition on sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(i64),
    Truth(bool),
    Size { input: usize, dim: usize },
    Negative(Box<Node>),
    Not(Box<Node>),
    Binary(Op, Box<Node>, Box<Node>),
    Most(Vec<Node>),
    Least(Vec<Node>),
    Magnitude(Box<Node>),
}

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
    &[("*", Op::Mul), ("//", Op::FloorDiv), ("%", Op::Mod)],
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

    /// Whether it holds. Numbers that don't fit into 64 bits, and divisions by zero, fail it.
    pub fn holds(&self, size: &dyn Fn(usize, usize) -> i64) -> bool {
        self.root.value(size).is_some_and(|value| value != 0)
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
            let number = digits.parse().map_err(|_| lexer.error("no 64-bit integer"))?;
            Ok(Node::Number(number))
        }
        Token::Name("True") => Ok(Node::Truth(true)),
        Token::Name("False") => Ok(Node::Truth(false)),
        Token::Node(input) => match lexer.next()? {
            Token::Name(".size") => {
                let dim = match list(lexer, depth)?.as_slice() {
                    [Node::Number(dim)] => usize::try_from(*dim).ok(),
                    _ => None,
                };
                dim.map(|dim| Node::Size { input, dim })
                    .ok_or_else(|| lexer.error("size takes the number of a dimension"))
            }
            other => Err(lexer.unexpected(&other, "\".size\"")),
        },
        Token::Name("max") => list(lexer, depth).map(Node::Most),
        Token::Name("min") => list(lexer, depth).map(Node::Least),
        Token::Name("abs") => match <[Node; 1]>::try_from(list(lexer, depth)?) {
            Ok([inner]) => Ok(Node::Magnitude(Box::new(inner))),
            Err(_) => Err(lexer.error("abs takes one number")),
        },
        Token::Sign("(") => {
            let inner = level(lexer, 0, depth - 1)?;
            lexer.expect(")")?;
            Ok(inner)
        }
        other => Err(lexer.unexpected(&other, "a number or a size")),
    }
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
            Self::Negative(inner) | Self::Not(inner) | Self::Magnitude(inner) => inner.visit(size),
            Self::Binary(_, left, right) => {
                left.visit(size);
                right.visit(size);
            }
            Self::Most(all) | Self::Least(all) => all.iter().for_each(|node| node.visit(size)),
        }
    }

    /// The value; truth values are 0 and 1.
    fn value(&self, size: &dyn Fn(usize, usize) -> i64) -> Option<i64> {
        let all =
            |nodes: &[Self]| nodes.iter().map(|node| node.value(size)).collect::<Option<Vec<_>>>();
        match self {
            Self::Number(number) => Some(*number),
            Self::Truth(truth) => Some((*truth).into()),
            Self::Size { input, dim } => Some(size(*input, *dim)),
            Self::Negative(inner) => inner.value(size)?.checked_neg(),
            Self::Not(inner) => Some((inner.value(size)? == 0).into()),
            Self::Magnitude(inner) => inner.value(size)?.checked_abs(),
            Self::Most(nodes) => all(nodes)?.into_iter().max(),
            Self::Least(nodes) => all(nodes)?.into_iter().min(),
            Self::Binary(Op::And, left, right) => {
                if left.value(size)? == 0 {
                    Some(0)
                } else {
                    right.value(size)
                }
            }
            Self::Binary(Op::Or, left, right) => match left.value(size)? {
                0 => right.value(size),
                holds => Some(holds),
            },
            Self::Binary(op, left, right) => apply(*op, left.value(size)?, right.value(size)?),
        }
    }
}

fn apply(op: Op, a: i64, b: i64) -> Option<i64> {
    match op {
        Op::Eq => Some((a == b).into()),
        Op::Ne => Some((a != b).into()),
        Op::Lt => Some((a < b).into()),
        Op::Le => Some((a <= b).into()),
        Op::Gt => Some((a > b).into()),
        Op::Ge => Some((a >= b).into()),
        Op::Add => a.checked_add(b),
        Op::Sub => a.checked_sub(b),
        Op::Mul => a.checked_mul(b),
        // As Python rounds.
        Op::FloorDiv => {
            let quotient = a.checked_div(b)?;
            let is_above = a % b != 0 && (a < 0) != (b < 0);
            quotient.checked_sub(is_above.into())
        }
        Op::Mod => {
            let rest = a.checked_rem(b)?;
            Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        }
        Op::Pow => a.checked_pow(u32::try_from(b).ok()?),
        Op::And | Op::Or => None,
    }
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
        ];
        for (text, expected) in cases {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn no_conditions() {
        for text in ["", "%0 == 1", "%0.size(x) == 1", "1 +", "(1", "1 2", "%0.strides(0)"] {
            assert!(Requirement::parse(text).is_err(), "{text}");
        }
        assert!(Requirement::parse(&"(".repeat(100_000)).is_err());
        assert!(Requirement::parse(&"1+".repeat(100_000)).is_err());
        assert!(Requirement::parse(&"not ".repeat(100_000)).is_err());
    }
}
