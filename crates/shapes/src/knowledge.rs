//! What a trace has assumed, as tables that answer questions.
//!
//! Everything in here follows from the facts, so tables may be dropped or replaced by weaker ones
//! at any time. The facts themselves are the context's log.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::congruence::Congruence;
use crate::interval::Interval;
use crate::{CondId, Context, ExprId, Result, SymbolId};

#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    /// Symbols that are other expressions. The expressions may speak of symbols that were
    /// replaced later.
    pub(crate) replaced: FxHashMap<SymbolId, ExprId>,
    /// Some expression is known to have one value, or some symbol is replaced: polynomials of symbols
    /// may have other normal forms than when they were built.
    pub(crate) has_values: bool,
    /// Expressions that were found equal to a constant.
    pub(crate) values: FxHashMap<ExprId, i64>,
    /// Bounds of expressions that have no constant term and no common divisor, and whose leading
    /// coefficient is positive (*directions*); symbols among them.
    pub(crate) bounds: FxHashMap<ExprId, Interval>,
    /// Rests of directions.
    pub(crate) congruences: FxHashMap<ExprId, Congruence>,
    /// Expressions that aren't zero; without common divisor, the leading coefficient positive.
    pub(crate) nonzero: FxHashSet<ExprId>,
    /// Conditions that hold and that no table above expresses.
    pub(crate) holding: FxHashSet<CondId>,
    /// Expressions in terms of what is known. Empty after each new fact.
    pub(crate) resolved: FxHashMap<ExprId, ExprId>,
    /// Intervals that were computed. Empty after each new fact.
    pub(crate) intervals: FxHashMap<ExprId, Interval>,
    /// Results of operations. Empty after each new fact.
    pub(crate) results: FxHashMap<(Operation, ExprId, ExprId), ExprId>,
    /// What was decided, and what couldn't be. Empty after each new fact.
    pub(crate) decided: FxHashMap<CondId, Option<bool>>,
}

impl Knowledge {
    /// A new fact: what was computed may now be known more closely.
    pub(crate) fn forget_computed(&mut self) {
        self.resolved.clear();
        self.intervals.clear();
        self.results.clear();
        self.decided.clear();
    }

    /// Whether expressions may now have other normal forms than when they were built.
    pub(crate) fn is_blank(&self) -> bool {
        self.replaced.is_empty() && self.congruences.is_empty()
    }
}

/// An operation whose results are remembered: traces ask for the same sizes again and again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
}

/// An expression as `scale * direction + offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) direction: ExprId,
    pub(crate) scale: i64,
    pub(crate) offset: i64,
}

impl Context {
    /// The expression's line; None for constants (and where numbers leave 64 bits).
    pub(crate) fn line(&mut self, e: ExprId) -> Option<Line> {
        let poly = self.poly(e);
        let leading = poly.varying().first()?;
        let content = poly.content();
        let scale = if leading.coefficient < 0 { -content } else { content };
        let offset = poly.constant_term();
        if scale == 1 && offset == 0 {
            return Some(Line { direction: e, scale, offset });
        }
        let direction = poly.split(|term| !term.is_constant()).0.divide_by(scale);
        let direction = self.intern_poly_unhinted(direction)?;
        Some(Line { direction, scale, offset })
    }

    /// The operation's result, computed once.
    pub(crate) fn remembered(
        &mut self,
        operation: Operation,
        a: ExprId,
        b: ExprId,
        compute: impl FnOnce(&mut Self, ExprId, ExprId) -> Result<ExprId>,
    ) -> Result<ExprId> {
        let (a, b) = (self.simplify(a), self.simplify(b));
        if let Some(&result) = self.known.results.get(&(operation, a, b)) {
            return Ok(result);
        }
        let result = compute(self, a, b)?;
        self.known.results.insert((operation, a, b), result);
        Ok(result)
    }

    /// Bounds of the expression's value, for all values of the symbols that the facts admit.
    pub fn interval(&mut self, e: ExprId) -> Interval {
        if let Some(value) = self.as_constant(e) {
            return Interval::point(value);
        }
        if let Some(&known) = self.known.intervals.get(&e) {
            return known;
        }
        let mut interval = self.structural_interval(e);
        if let Some(line) = self.line(e)
            && let Some(bounds) = self.known.bounds.get(&line.direction)
        {
            let offset = Interval::point(line.offset);
            interval = interval.meet(bounds.scale(line.scale).add(offset));
        }
        self.known.intervals.insert(e, interval);
        interval
    }
}
