//! The guards that are left at the end: the facts without those that others imply.

use crate::condition::Condition;
use crate::{Cmp, CondId, Context, ExprId, FloatId, SIZE_LIMIT, SymbolId};

/// What a fact says, for those who print or count them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactKind {
    /// Two symbols are equal, or a symbol is another expression: `s1 == 2*s0`.
    Equality,
    /// A rest: `s0 % 2 == 0`.
    Divisibility,
    /// A bound of one symbol: `2 <= s0`.
    Range,
    /// Anything else.
    Residual,
}

/// A guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fact {
    /// What must hold.
    pub cond: CondId,
    /// What it says.
    pub kind: FactKind,
    /// An upper bound that symbols have by default: checked, but not worth printing.
    pub implicit: bool,
}

impl Context {
    /// The facts in terms of each other, without those that others imply: equalities, rests, ranges,
    /// the others, each in the order in which they were assumed; implicit bounds last.
    ///
    /// Each one that is left out follows from the ones before it, as [`Context::decide`] finds:
    /// all facts are assumed again, in a fresh set of tables.
    pub fn facts(&mut self) -> Vec<Fact> {
        self.facts_where(|_, _| true)
    }

    /// As [`Context::facts`], of those facts alone that `keeps` says: none is left out because another implies it that
    /// isn't among them.
    pub fn facts_where(&mut self, keeps: impl Fn(&Self, CondId) -> bool) -> Vec<Fact> {
        let mut asked: Vec<CondId> = Vec::new();
        for c in self.log.clone() {
            asked.extend(self.parts(c).into_iter().filter(|part| keeps(self, *part)));
        }
        let known = std::mem::take(&mut self.known);
        let mut facts = Vec::new();
        // Equalities say how to read the others, so those are sorted in terms of them.
        let (equalities, others): (Vec<_>, Vec<_>) =
            asked.into_iter().enumerate().partition(|&(_, c)| self.kind(c).0 == FactKind::Equality);
        self.keep_necessary(equalities, &mut facts);
        self.keep_necessary(others, &mut facts);
        self.known = known;
        facts.sort_by_key(|&(kind, at, fact)| (fact.implicit, kind as u8, at));
        facts.into_iter().map(|(_, _, fact)| fact).collect()
    }

    /// Assumes the conditions, and keeps those that don't follow from what is assumed before.
    fn keep_necessary(
        &mut self,
        asked: Vec<(usize, CondId)>,
        kept: &mut Vec<(FactKind, usize, Fact)>,
    ) {
        let mut sorted: Vec<_> = asked
            .into_iter()
            .map(|(at, c)| {
                let simple = self.simplify_condition(c);
                (self.kind(simple), at, c)
            })
            .collect();
        sorted.sort_by_key(|&((kind, tightness), at, _)| (kind as u8, tightness, at));
        for ((kind, _), at, c) in sorted {
            let cond = self.simplify_condition(c);
            if self.decide(cond) == Some(true) {
                continue;
            }
            // A guard that can't hold is one as well: no call passes.
            self.learn(cond);
            kept.push((kind, at, Fact { cond, kind, implicit: self.is_implicit(cond) }));
        }
    }

    /// The parts of a condition that must hold each.
    pub fn parts(&self, c: CondId) -> Vec<CondId> {
        match self.condition(c) {
            Condition::And(parts) => parts.to_vec(),
            _ => vec![c],
        }
    }

    /// The kind, and how much ranges and rests admit: the tightest are assumed first.
    fn kind(&mut self, c: CondId) -> (FactKind, i64) {
        let Condition::Int(op, a, b) = *self.condition(c) else { return (FactKind::Residual, 0) };
        if op == Cmp::Eq && (self.is_unit_symbol(a) || self.is_unit_symbol(b)) {
            return (FactKind::Equality, 0);
        }
        if op == Cmp::Eq
            && let Some(modulus) = self.modulus_of(a).or_else(|| self.modulus_of(b))
        {
            return (FactKind::Divisibility, modulus.saturating_neg());
        }
        match self.symbol_bound(op, a, b) {
            Some(tightness) => (FactKind::Range, tightness),
            None => (FactKind::Residual, 0),
        }
    }

    fn is_unit_symbol(&self, e: ExprId) -> bool {
        self.as_symbol(e).is_some()
    }

    fn modulus_of(&self, e: ExprId) -> Option<i64> {
        match *self.node(e) {
            crate::context::Node::Mod(_, k) => Some(self.as_constant(k).unwrap_or(0)),
            _ => None,
        }
    }

    /// If the comparison bounds one symbol: smaller numbers are tighter bounds.
    fn symbol_bound(&mut self, op: Cmp, a: ExprId, b: ExprId) -> Option<i64> {
        let (low, high, strict) = match op {
            Cmp::Le => (a, b, 0),
            Cmp::Lt => (a, b, -1),
            Cmp::Ge => (b, a, 0),
            Cmp::Gt => (b, a, -1),
            Cmp::Eq | Cmp::Ne => return None,
        };
        // scale * symbol + offset >= 0
        let difference = self.poly(high).sub(&self.poly(low)).ok()?;
        let difference = self.intern_poly_unhinted(difference)?;
        let line = self.line(difference)?;
        self.as_symbol(line.direction)?;
        let offset = line.offset.checked_add(strict)?;
        // Lower bounds: the larger the tighter, -offset / scale. Upper bounds: the smaller.
        crate::arith::floor_div(offset, line.scale.checked_abs()?).ok()
    }

    fn is_implicit(&self, c: CondId) -> bool {
        match *self.condition(c) {
            Condition::Int(Cmp::Le, a, b) => {
                self.as_constant(b) == Some(SIZE_LIMIT)
                    || self.as_constant(a) == Some(-SIZE_LIMIT) && self.as_symbol(b).is_some()
            }
            _ => false,
        }
    }

    /// Calls `visit` for each symbol of integers and floats in an expression, as often as it occurs.
    pub(crate) fn each_symbol(&self, e: ExprId, visit: &mut impl FnMut(SymbolId)) {
        use crate::context::Node;
        match self.node(e) {
            Node::Symbol(symbol) => visit(*symbol),
            Node::Poly(poly) => {
                for &(atom, _) in poly.terms.iter().flat_map(|term| &term.factors) {
                    match atom.as_symbol() {
                        Some(symbol) => visit(symbol),
                        None => self.each_symbol(self.atom_expr(atom), visit),
                    }
                }
            }
            Node::FloorDiv(a, b) | Node::Mod(a, b) => {
                self.each_symbol(*a, visit);
                self.each_symbol(*b, visit);
            }
            Node::Min(operands) | Node::Max(operands) => {
                for &operand in operands {
                    self.each_symbol(operand, visit);
                }
            }
            Node::Abs(a) => self.each_symbol(*a, visit),
            Node::Round(_, f) => self.each_float_symbol(*f, visit),
        }
    }

    fn each_float_symbol(&self, f: FloatId, visit: &mut impl FnMut(SymbolId)) {
        use crate::float::FloatNode;
        match self.floats[f.index()] {
            FloatNode::Constant(_) => {}
            FloatNode::Symbol(symbol) => visit(symbol),
            FloatNode::FromInt(a) => self.each_symbol(a, visit),
            FloatNode::TrueDiv(a, b) => {
                self.each_symbol(a, visit);
                self.each_symbol(b, visit);
            }
            FloatNode::Unary(_, a) => self.each_float_symbol(a, visit),
            FloatNode::Binary(_, a, b) => {
                self.each_float_symbol(a, visit);
                self.each_float_symbol(b, visit);
            }
        }
    }

    /// The symbols in an expression, each once, in order.
    pub fn symbols_of(&self, e: ExprId) -> Vec<SymbolId> {
        let mut symbols = Vec::new();
        self.each_symbol(e, &mut |symbol| symbols.push(symbol));
        symbols.sort_unstable();
        symbols.dedup();
        symbols
    }

    /// The symbols in a condition, each once, in order.
    pub fn symbols_in(&self, c: CondId) -> Vec<SymbolId> {
        let mut symbols = Vec::new();
        self.each_in_condition(c, &mut |symbol| symbols.push(symbol));
        symbols.sort_unstable();
        symbols.dedup();
        symbols
    }

    fn each_in_condition(&self, c: CondId, visit: &mut impl FnMut(SymbolId)) {
        match self.condition(c) {
            Condition::Bool(_) => {}
            Condition::Int(_, a, b) => {
                self.each_symbol(*a, visit);
                self.each_symbol(*b, visit);
            }
            Condition::Float(_, a, b) => {
                self.each_float_symbol(*a, visit);
                self.each_float_symbol(*b, visit);
            }
            Condition::FloatIs(a, _) => self.each_float_symbol(*a, visit),
            Condition::And(parts) | Condition::Or(parts) => {
                for &part in parts {
                    self.each_in_condition(part, visit);
                }
            }
            Condition::Not(inner) => self.each_in_condition(*inner, visit),
        }
    }
}
