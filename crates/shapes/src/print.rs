//! Expressions and conditions as Python.

use std::borrow::Cow;
use std::fmt::Write;

use crate::condition::Condition;
use crate::context::Node;
use crate::float::FloatNode;
use crate::poly::{Poly, Term};
use crate::{CondId, Context, ExprId, FloatId, FloatOp, FloatUnary, Rounding, SymbolId};

/// How minima and rests are spelt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// As PyTorch prints them: `Max(s0, 1)`, `Mod(s0, 2)`.
    Math,
    /// As Python evaluates them, with `math` imported: `max(s0, 1)`, `s0 % 2`.
    Python,
}

/// How tightly an expression's outermost operator binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Conditions under `and` and `or`.
    Logic,
    Compare,
    Sum,
    Product,
    Power,
    Atom,
}

struct Printer<'a> {
    context: &'a Context,
    name: &'a dyn Fn(SymbolId) -> Cow<'static, str>,
    style: Style,
    out: String,
}

impl Context {
    /// The expression as Python, symbols named by `name`.
    pub fn display(&self, e: ExprId, name: &dyn Fn(SymbolId) -> Cow<'static, str>) -> String {
        self.print(Style::Math, name, |printer| printer.integer(e, Level::Logic))
    }

    /// The expression as Python source.
    pub fn python(&self, e: ExprId, name: &dyn Fn(SymbolId) -> Cow<'static, str>) -> String {
        self.print(Style::Python, name, |printer| printer.integer(e, Level::Logic))
    }

    /// The float expression as Python.
    pub fn display_float(
        &self,
        f: FloatId,
        style: Style,
        name: &dyn Fn(SymbolId) -> Cow<'static, str>,
    ) -> String {
        self.print(style, name, |printer| printer.float(f, Level::Logic))
    }

    /// The condition as Python.
    pub fn display_cond(
        &self,
        c: CondId,
        style: Style,
        name: &dyn Fn(SymbolId) -> Cow<'static, str>,
    ) -> String {
        self.print(style, name, |printer| printer.condition(c, Level::Logic))
    }

    fn print(
        &self,
        style: Style,
        name: &dyn Fn(SymbolId) -> Cow<'static, str>,
        print: impl FnOnce(&mut Printer<'_>),
    ) -> String {
        let mut printer = Printer { context: self, name, style, out: String::new() };
        print(&mut printer);
        printer.out
    }

    /// The name that a symbol has where nothing says better: `s0`.
    pub fn symbol_name(symbol: SymbolId) -> Cow<'static, str> {
        Cow::Owned(symbol.to_string())
    }
}

impl Printer<'_> {
    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn number(&mut self, value: impl std::fmt::Display) {
        // Writing to a string doesn't fail.
        let _ = write!(self.out, "{value}");
    }

    /// Prints with parentheses if what surrounds it binds tighter.
    fn within(&mut self, level: Level, around: Level, print: impl FnOnce(&mut Self)) {
        let parentheses = level < around;
        if parentheses {
            self.text("(");
        }
        print(self);
        if parentheses {
            self.text(")");
        }
    }

    fn symbol(&mut self, symbol: SymbolId) {
        let name = (self.name)(symbol);
        self.text(&name);
    }

    fn call(&mut self, name: &str, operands: &[ExprId]) {
        self.text(name);
        self.text("(");
        for (i, &operand) in operands.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            self.integer(operand, Level::Logic);
        }
        self.text(")");
    }

    fn integer(&mut self, e: ExprId, around: Level) {
        let python = self.style == Style::Python;
        match self.context.node(e) {
            Node::Symbol(symbol) => self.symbol(*symbol),
            Node::Poly(poly) => self.polynomial(poly, around),
            &Node::FloorDiv(a, b) => self.within(Level::Product, around, |printer| {
                printer.integer(a, Level::Product);
                printer.text("//");
                printer.integer(b, Level::Power);
            }),
            &Node::Mod(a, b) if python => self.within(Level::Product, around, |printer| {
                printer.integer(a, Level::Product);
                printer.text(" % ");
                printer.integer(b, Level::Power);
            }),
            &Node::Mod(a, b) => self.call("Mod", &[a, b]),
            Node::Min(operands) => self.call(if python { "min" } else { "Min" }, operands),
            Node::Max(operands) => self.call(if python { "max" } else { "Max" }, operands),
            &Node::Abs(a) => self.call(if python { "abs" } else { "Abs" }, &[a]),
            &Node::Round(rounding, f) => {
                self.text(match rounding {
                    Rounding::Floor if python => "math.floor(",
                    Rounding::Ceil if python => "math.ceil(",
                    Rounding::Floor => "floor(",
                    Rounding::Ceil => "ceil(",
                    Rounding::Trunc if python => "int(",
                    Rounding::Trunc => "trunc(",
                    Rounding::Round => "round(",
                });
                self.float(f, Level::Logic);
                self.text(")");
            }
        }
    }

    fn polynomial(&mut self, poly: &Poly, around: Level) {
        let terms: Vec<&Term> = match &poly.terms[..] {
            [] => return self.text("0"),
            // `1 - s0` rather than `-s0 + 1`.
            [term, constant]
                if constant.is_constant() && term.coefficient < 0 && constant.coefficient > 0 =>
            {
                vec![constant, term]
            }
            terms => terms.iter().collect(),
        };
        let level = match terms[..] {
            [term] if term.is_constant() && term.coefficient >= 0 => Level::Atom,
            // `-s0//2` is `(-s0)//2`.
            [term] if term.coefficient < 0 => Level::Product,
            [term] if term.coefficient == 1 && term.factors.len() == 1 => Level::Power,
            [_] => Level::Product,
            _ => Level::Sum,
        };
        self.within(level, around, |printer| {
            for (i, term) in terms.iter().enumerate() {
                let negative = term.coefficient < 0;
                printer.text(match (i, negative) {
                    (0, false) => "",
                    (0, true) => "-",
                    (_, false) => " + ",
                    (_, true) => " - ",
                });
                printer.term(term);
            }
        });
    }

    /// The term without its sign.
    fn term(&mut self, term: &Term) {
        let magnitude = term.coefficient.unsigned_abs();
        let mut first = true;
        if magnitude != 1 || term.is_constant() {
            self.number(magnitude);
            first = false;
        }
        for &(atom, power) in &term.factors {
            let e = self.context.atom_expr(atom);
            let alone = first && term.factors.len() == 1;
            if !first {
                self.text("*");
            }
            first = false;
            if power == 1 {
                // `2*(s0//2)` and `-(s0//2)`: quotients only stand alone without parentheses.
                let tight = !alone || term.coefficient < 0;
                self.integer(e, if tight { Level::Power } else { Level::Product });
            } else {
                self.integer(e, Level::Atom);
                self.text("**");
                self.number(power);
            }
        }
    }

    fn float(&mut self, f: FloatId, around: Level) {
        let python = self.style == Style::Python;
        let binary = |op: FloatOp| match op {
            FloatOp::Add => (" + ", Level::Sum),
            FloatOp::Sub => (" - ", Level::Sum),
            FloatOp::Mul => ("*", Level::Product),
            FloatOp::Div => ("/", Level::Product),
            FloatOp::Pow => ("**", Level::Power),
            FloatOp::Min | FloatOp::Max => ("", Level::Atom),
        };
        match self.context.floats[f.index()] {
            FloatNode::Constant(bits) => self.float_literal(f64::from_bits(bits), around),
            FloatNode::Symbol(symbol) => self.symbol(symbol),
            FloatNode::FromInt(a) => {
                self.text("float(");
                self.integer(a, Level::Logic);
                self.text(")");
            }
            FloatNode::TrueDiv(a, b) => self.within(Level::Product, around, |printer| {
                printer.integer(a, Level::Product);
                printer.text("/");
                printer.integer(b, Level::Power);
            }),
            FloatNode::Unary(FloatUnary::Neg, a) => self.within(Level::Sum, around, |printer| {
                printer.text("-");
                printer.float(a, Level::Power);
            }),
            FloatNode::Unary(op, a) => {
                if python && op != FloatUnary::Abs {
                    self.text("math.");
                }
                self.text(match op {
                    FloatUnary::Neg => "neg",
                    FloatUnary::Abs if python => "abs",
                    FloatUnary::Abs => "Abs",
                    FloatUnary::Log => "log",
                    FloatUnary::Log2 => "log2",
                    FloatUnary::Log10 => "log10",
                    FloatUnary::Exp => "exp",
                    FloatUnary::Sin => "sin",
                    FloatUnary::Cos => "cos",
                    FloatUnary::Tanh => "tanh",
                    FloatUnary::Sqrt => "sqrt",
                });
                self.text("(");
                self.float(a, Level::Logic);
                self.text(")");
            }
            FloatNode::Binary(op @ (FloatOp::Min | FloatOp::Max), a, b) => {
                self.text(match (op, python) {
                    (FloatOp::Min, true) => "min(",
                    (FloatOp::Min, false) => "Min(",
                    (_, true) => "max(",
                    (_, false) => "Max(",
                });
                self.float(a, Level::Logic);
                self.text(", ");
                self.float(b, Level::Logic);
                self.text(")");
            }
            FloatNode::Binary(op, a, b) => {
                let (sign, level) = binary(op);
                // Floats aren't associative: the right operand keeps its parentheses, and the base
                // of a power as well.
                let tighter = if level == Level::Sum { Level::Product } else { Level::Power };
                let (left, right) = match op {
                    FloatOp::Pow => (Level::Atom, Level::Atom),
                    _ => (level, tighter),
                };
                self.within(level, around, |printer| {
                    printer.float(a, left);
                    printer.text(sign);
                    printer.float(b, right);
                });
            }
        }
    }

    fn float_literal(&mut self, value: f64, around: Level) {
        let level = if value.is_sign_negative() { Level::Sum } else { Level::Atom };
        self.within(level, around, |printer| {
            if value.is_nan() {
                printer.text("float('nan')");
            } else if value.is_infinite() {
                printer.text(if value > 0.0 { "float('inf')" } else { "-float('inf')" });
            } else {
                printer.number(format_args!("{value:?}"));
            }
        });
    }

    fn condition(&mut self, c: CondId, around: Level) {
        match self.context.condition(c) {
            Condition::Bool(value) => self.text(if *value { "True" } else { "False" }),
            &Condition::Int(op, a, b) => self.within(Level::Compare, around, |printer| {
                printer.integer(a, Level::Sum);
                printer.number(format_args!(" {} ", op.as_str()));
                printer.integer(b, Level::Sum);
            }),
            &Condition::Float(op, a, b) => self.within(Level::Compare, around, |printer| {
                printer.float(a, Level::Sum);
                printer.number(format_args!(" {} ", op.as_str()));
                printer.float(b, Level::Sum);
            }),
            &Condition::FloatIs(a, bits) => self.within(Level::Compare, around, |printer| {
                printer.float(a, Level::Sum);
                printer.text(" == ");
                printer.float_literal(f64::from_bits(bits), Level::Sum);
            }),
            Condition::And(parts) => self.junction(parts, " and ", around),
            Condition::Or(parts) => self.junction(parts, " or ", around),
            &Condition::Not(inner) => self.within(Level::Logic, around, |printer| {
                printer.text("not ");
                printer.condition(inner, Level::Compare);
            }),
        }
    }

    fn junction(&mut self, parts: &[CondId], word: &str, around: Level) {
        self.within(Level::Logic, around, |printer| {
            for (i, &part) in parts.iter().enumerate() {
                if i > 0 {
                    printer.text(word);
                }
                printer.condition(part, Level::Compare);
            }
        });
    }
}
