//! Taking conditions for true.

use crate::condition::Condition;
use crate::congruence::Congruence;
use crate::context::Node;
use crate::decide::primitive;
use crate::interval::Interval;
use crate::knowledge::Knowledge;
use crate::poly::Poly;
use crate::{Cmp, CondId, Context, ExprId, SymbolId, Verdict, arith};

impl Context {
    /// The condition's value: what follows from the facts, else what it was in the recorded call, which
    /// then is a fact.
    pub fn evaluate(&mut self, c: CondId) -> Verdict {
        if let Some(value) = self.decide(c) {
            debug_assert_eq!(value, self.cond_hint(c), "what is decided holds at the hints");
            return Verdict::Known(value);
        }
        let value = self.cond_hint(c);
        let fact = if value { c } else { self.not(c) };
        self.assume(fact);
        self.added.push(fact);
        Verdict::Guarded { value, fact }
    }

    /// Makes the expression a constant, its hint. The fact, unless it was known.
    pub fn specialize(&mut self, e: ExprId) -> Option<CondId> {
        let value = self.hint(e);
        let value = self.constant(value);
        let equal = self.eq(e, value);
        let fact = self.evaluate(equal).fact();
        // It may have been decided by more than what simplifying looks at.
        self.remember_value(e, value);
        fact
    }

    /// Makes a float the constant that it was, bit by bit. The fact, unless it was known.
    pub fn specialize_float(&mut self, f: crate::FloatId) -> Option<CondId> {
        let same = self.float_is(f, self.float_hint(f));
        self.evaluate(same).fact()
    }

    /// Takes a condition for true. It must have been true in the recorded call; if it wasn't, no call
    /// passes the facts.
    pub fn assume(&mut self, c: CondId) {
        self.log.push(c);
        self.learn(c);
        // What the tables can't express, or lose because expressions have other normal forms now.
        if self.decide(c) != Some(true) {
            self.known.holding.insert(c);
            let simple = self.simplify_condition(c);
            self.known.holding.insert(simple);
            self.known.decided.clear();
        }
    }

    /// A fact that symbols bring with them.
    pub(crate) fn declare(&mut self, c: CondId) {
        self.assume(c);
    }

    /// The bounds that a symbol brings with it.
    pub(crate) fn declare_range(&mut self, e: ExprId, range: Interval) {
        if range.lo != i64::MIN {
            let lo = self.constant(range.lo);
            let bound = self.int_condition(Cmp::Le, lo, e);
            self.declare(bound);
        }
        if range.hi != i64::MAX {
            let hi = self.constant(range.hi);
            let bound = self.int_condition(Cmp::Le, e, hi);
            self.declare(bound);
        }
    }

    /// Puts a condition that holds into the tables.
    pub(crate) fn learn(&mut self, c: CondId) {
        match self.condition(c).clone() {
            Condition::Bool(_) => {}
            Condition::Int(op, a, b) => {
                if !self.learn_comparison(op, a, b) {
                    self.known.holding.insert(c);
                }
                self.known.forget_computed();
                if op == Cmp::Eq {
                    self.remember_value(a, b);
                }
            }
            Condition::And(parts) => {
                for &part in &parts {
                    self.learn(part);
                }
            }
            Condition::Or(parts) => {
                let open: Vec<CondId> = parts
                    .iter()
                    .copied()
                    .filter(|&part| self.decide(part) != Some(false))
                    .collect();
                if let [only] = open[..] {
                    self.learn(only);
                }
                self.known.holding.insert(c);
            }
            Condition::Float(..) | Condition::FloatIs(..) | Condition::Not(_) => {
                self.known.holding.insert(c);
                let simple = self.simplify_condition(c);
                self.known.holding.insert(simple);
            }
        }
        self.known.forget_computed();
    }

    /// An expression that equals a constant is one, even if nothing follows for its symbols.
    fn remember_value(&mut self, a: ExprId, b: ExprId) {
        let (e, value) = match (self.as_constant(a), self.as_constant(b)) {
            (None, Some(value)) => (a, value),
            (Some(value), None) => (b, value),
            _ => return,
        };
        let simple = self.simplify(e);
        if self.as_constant(simple).is_some() {
            return;
        }
        self.known.has_values = true;
        self.known.values.insert(e, value);
        self.known.values.insert(simple, value);
        self.known.forget_computed();
    }

    /// False: the tables can't express it.
    fn learn_comparison(&mut self, op: Cmp, a: ExprId, b: ExprId) -> bool {
        let (a, b) = (self.simplify(a), self.simplify(b));
        let (a, b) = (self.poly(a), self.poly(b));
        let (Ok(down), Ok(up)) = (a.sub(&b), b.sub(&a)) else { return false };
        let strict = |poly: Poly| poly.add(&Poly::constant(-1));
        match op {
            Cmp::Ge => self.learn_nonnegative(&down),
            Cmp::Le => self.learn_nonnegative(&up),
            Cmp::Gt => strict(down).is_ok_and(|poly| self.learn_nonnegative(&poly)),
            Cmp::Lt => strict(up).is_ok_and(|poly| self.learn_nonnegative(&poly)),
            Cmp::Eq => self.learn_zero(&down),
            Cmp::Ne => self.learn_nonzero(&down),
        }
    }

    /// The polynomial is at least zero.
    fn learn_nonnegative(&mut self, poly: &Poly) -> bool {
        let Some(e) = self.intern_poly_unhinted(poly.clone()) else { return false };
        let Some(line) = self.line(e) else { return poly.as_constant().is_some() };
        // scale * direction + offset >= 0
        let Some(least) = line.offset.checked_neg() else { return false };
        let bounds = if line.scale > 0 {
            // Rounded up: -(-least // scale).
            let Ok(lo) = arith::floor_div(line.offset, line.scale) else { return false };
            let Some(lo) = lo.checked_neg() else { return false };
            Interval::new(lo, i64::MAX)
        } else {
            let Ok(hi) = arith::floor_div(least, line.scale) else { return false };
            Interval::new(i64::MIN, hi)
        };
        self.learn_bounds(line.direction, bounds);
        true
    }

    /// The direction's value lies in the interval.
    pub(crate) fn learn_bounds(&mut self, direction: ExprId, bounds: Interval) {
        let old = self.known.bounds.get(&direction).copied().unwrap_or(Interval::ALL);
        let mut new = old.meet(bounds);
        // Values at the ends that are known not to be taken.
        while let Some(inner) = self.without_excluded_end(direction, new) {
            new = inner;
        }
        if new == old {
            return;
        }
        self.known.bounds.insert(direction, new);
        self.known.intervals.clear();
        if let Some(value) = new.as_point() {
            self.known.has_values = true;
            self.known.resolved.clear();
            self.learn_value(direction, value);
        }
        self.learn_bounds_inside(direction, new);
        self.propagate(direction, new);
    }

    fn without_excluded_end(&mut self, direction: ExprId, bounds: Interval) -> Option<Interval> {
        if self.known.nonzero.is_empty() || bounds.lo >= bounds.hi {
            return None;
        }
        let mut excluded = |end: i64| {
            let shifted = self.poly(direction).add(&Poly::constant(end.checked_neg()?)).ok()?;
            let shifted = self.intern_poly_unhinted(shifted)?;
            self.known.nonzero.contains(&shifted).then_some(())
        };
        if bounds.lo != i64::MIN && excluded(bounds.lo).is_some() {
            Some(Interval::new(bounds.lo + 1, bounds.hi))
        } else if bounds.hi != i64::MAX && excluded(bounds.hi).is_some() {
            Some(Interval::new(bounds.lo, bounds.hi - 1))
        } else {
            None
        }
    }

    /// Bounds of an opaque term, as bounds of what it is made of.
    fn learn_bounds_inside(&mut self, direction: ExprId, bounds: Interval) {
        match self.node(direction).clone() {
            Node::FloorDiv(x, k) => {
                let Some(k) = self.as_constant(k).filter(|&k| k > 0) else { return };
                if let Some(lo) =
                    (bounds.lo != i64::MIN).then(|| bounds.lo.checked_mul(k)).flatten()
                {
                    self.learn_at_least(x, lo);
                }
                let hi = bounds.hi.checked_mul(k).and_then(|hi| hi.checked_add(k - 1));
                if let Some(hi) = hi {
                    self.learn_at_most(x, hi);
                }
            }
            Node::Min(operands) if bounds.lo != i64::MIN => {
                for &operand in &operands {
                    self.learn_at_least(operand, bounds.lo);
                }
            }
            Node::Max(operands) if bounds.hi != i64::MAX => {
                for &operand in &operands {
                    self.learn_at_most(operand, bounds.hi);
                }
            }
            Node::Abs(x) if bounds.hi != i64::MAX => {
                self.learn_at_least(x, bounds.hi.saturating_neg());
                self.learn_at_most(x, bounds.hi);
            }
            _ => {}
        }
    }

    fn learn_at_least(&mut self, e: ExprId, lo: i64) {
        if let Some(poly) =
            lo.checked_neg().and_then(|by| self.poly(e).add(&Poly::constant(by)).ok())
        {
            self.learn_nonnegative(&poly);
        }
    }

    fn learn_at_most(&mut self, e: ExprId, hi: i64) {
        let negative = self.poly(e).scale(-1);
        if let Ok(poly) = negative.and_then(|poly| poly.add(&Poly::constant(hi))) {
            self.learn_nonnegative(&poly);
        }
    }

    /// Bounds of a sum, as bounds of its terms: `s0 + s1 <= 10` and `2 <= s1` make `s0 <= 8`. One
    /// step: what is learnt of a term isn't passed on to other sums.
    fn propagate(&mut self, direction: ExprId, bounds: Interval) {
        let poly = self.poly(direction);
        if poly.terms.len() < 2 || poly.terms.len() > 8 {
            return;
        }
        for (i, term) in poly.terms.iter().enumerate() {
            let Some(atom) = term.as_atom() else { continue };
            let mut others = poly.clone();
            others.terms.remove(i);
            // coefficient * atom == bounds - others
            let room = bounds.add(self.poly_interval(&others).neg());
            let room = if term.coefficient < 0 { room.neg() } else { room };
            let k = term.coefficient.saturating_abs();
            let up = |end: i64| arith::floor_div(end.saturating_neg(), k).map(i64::saturating_neg);
            let lo = if room.lo <= i64::MIN + 1 { Ok(i64::MIN) } else { up(room.lo) };
            let hi = if room.hi == i64::MAX { Ok(i64::MAX) } else { arith::floor_div(room.hi, k) };
            let (Ok(lo), Ok(hi)) = (lo, hi) else { continue };
            let e = self.atom_expr(atom);
            let old = self.known.bounds.get(&e).copied().unwrap_or(Interval::ALL);
            let new = old.meet(Interval::new(lo, hi));
            if new == old || new.lo > new.hi {
                continue;
            }
            if new.lo == new.hi {
                self.learn_bounds(e, new);
            } else {
                self.known.bounds.insert(e, new);
                self.known.intervals.clear();
            }
        }
    }

    /// The polynomial is zero.
    fn learn_zero(&mut self, poly: &Poly) -> bool {
        if poly.as_constant().is_some() {
            return true;
        }
        for atom in poly.common_atoms() {
            let factor = self.atom_expr(atom);
            let interval = self.interval(factor);
            if interval.lo >= 1 || interval.hi <= -1 {
                return self.learn_zero(&poly.divide_atom(atom));
            }
        }
        let Some(e) = self.intern_poly_unhinted(poly.clone()) else { return false };
        let Some(line) = self.line(e) else { return false };
        let Some(value) = line.offset.checked_neg() else { return false };
        if value % line.scale != 0 {
            return false;
        }
        let value = value / line.scale;
        self.learn_value(line.direction, value);
        self.learn_bounds(line.direction, Interval::point(value));
        true
    }

    /// The direction has a value: a symbol may be solved for, a rest says something of its dividend.
    fn learn_value(&mut self, direction: ExprId, value: i64) {
        let poly = self.poly(direction);
        if let Some(opaque) = poly.as_atom().and_then(crate::poly::Atom::as_opaque)
            && let Node::Mod(x, k) = *self.node(opaque)
            && let Some(k) = self.as_constant(k)
        {
            self.learn_congruence(x, Congruence { modulus: k, rest: value });
        }
        let Ok(poly) = poly.sub(&Poly::constant(value)) else { return };
        self.learn_rests(&poly);
        if let Some((symbol, replacement)) = self.solve(&poly) {
            self.replace(symbol, replacement);
        }
    }

    /// `x` has a rest: so has its direction.
    fn learn_congruence(&mut self, x: ExprId, class: Congruence) {
        let Some(line) = self.line(x) else { return };
        let (modulus, rest) = (class.modulus, i128::from(class.rest) - i128::from(line.offset));
        // scale * direction == rest (mod modulus); the scale is a unit, or nothing is learnt.
        let Some(inverse) = arith::inverse(line.scale.into(), modulus.into()) else { return };
        let rest = (rest.rem_euclid(modulus.into()) * inverse).rem_euclid(modulus.into());
        let Ok(rest) = i64::try_from(rest) else { return };
        let old = self.known.congruences.get(&line.direction).copied().unwrap_or(Congruence::ANY);
        if let Some(new) = old.meet(Congruence { modulus, rest })
            && new != old
        {
            self.known.congruences.insert(line.direction, new);
            self.known.forget_computed();
        }
    }

    /// A sum that is zero says something of the rests of terms: `2*s0 == 3*s1`, so `s1 % 2 == 0`.
    fn learn_rests(&mut self, poly: &Poly) {
        if poly.varying().len() > 4 {
            return;
        }
        for term in poly.varying() {
            let Some(atom) = term.as_atom() else { continue };
            let others = poly.split(|other| !other.is_constant() && other != term).0;
            let k = others.content();
            if k < 2 {
                continue;
            }
            let Some(inverse) = arith::inverse(term.coefficient.into(), k.into()) else { continue };
            let rest = -i128::from(poly.constant_term()) * inverse;
            let Ok(rest) = i64::try_from(rest.rem_euclid(k.into())) else { continue };
            let e = self.atom_expr(atom);
            self.learn_congruence(e, Congruence { modulus: k, rest });
        }
    }

    /// The newest symbol that stands alone with coefficient one or minus one, and what it is.
    fn solve(&self, poly: &Poly) -> Option<(SymbolId, Poly)> {
        let mut solution: Option<(SymbolId, Poly)> = None;
        for term in &poly.terms {
            let Some(symbol) = term.as_atom().and_then(crate::poly::Atom::as_symbol) else {
                continue;
            };
            if term.coefficient.unsigned_abs() != 1 {
                continue;
            }
            if solution.as_ref().is_some_and(|(best, _)| *best > symbol) {
                continue;
            }
            let others = poly.split(|other| other != term).0;
            if others.terms.iter().any(|other| {
                other.factors.iter().any(|&(atom, _)| self.mentions(self.atom_expr(atom), symbol))
            }) {
                continue;
            }
            if let Ok(replacement) = others.scale(-term.coefficient) {
                solution = Some((symbol, replacement));
            }
        }
        solution
    }

    /// Whether the symbol is part of the expression.
    pub(crate) fn mentions(&self, e: ExprId, symbol: SymbolId) -> bool {
        let mut found = false;
        self.each_symbol(e, &mut |other| found |= other == symbol);
        found
    }

    /// The symbol is the expression from now on. What was known of it is known of that.
    fn replace(&mut self, symbol: SymbolId, replacement: Poly) {
        let Ok(replacement) = self.intern_poly(replacement) else { return };
        if self.known.replaced.contains_key(&symbol) {
            return;
        }
        self.known.replaced.insert(symbol, replacement);
        self.known.has_values = true;
        self.known.forget_computed();
        let tables = std::mem::take(&mut self.known);
        let (mentioning, others) = self.divide_tables(tables, symbol);
        self.known = others;
        let Knowledge { bounds, congruences, nonzero, holding, values, .. } = mentioning;
        for (direction, bounds) in sorted(bounds) {
            self.relearn_bounds(direction, bounds);
        }
        for (e, value) in sorted(values) {
            let simple = self.simplify(e);
            self.known.values.insert(e, value);
            self.known.values.insert(simple, value);
            self.known.forget_computed();
        }
        for (direction, class) in sorted(congruences) {
            let simple = self.simplify(direction);
            self.learn_congruence(simple, class);
        }
        let mut nonzero: Vec<ExprId> = nonzero.into_iter().collect();
        nonzero.sort_unstable();
        for e in nonzero {
            let simple = self.simplify(e);
            let poly = self.poly(simple);
            self.learn_nonzero(&poly);
        }
        let mut holding: Vec<CondId> = holding.into_iter().collect();
        holding.sort_unstable();
        for c in holding {
            self.known.holding.insert(c);
            let simple = self.simplify_condition(c);
            if simple != c {
                self.learn(simple);
            }
        }
    }

    /// The tables' entries that mention a symbol, and all else.
    fn divide_tables(&self, mut tables: Knowledge, symbol: SymbolId) -> (Knowledge, Knowledge) {
        let mut gone = Knowledge::default();
        let mentions = |e: &ExprId| self.mentions(*e, symbol);
        gone.bounds = tables.bounds.extract_if(|e, _| mentions(e)).collect();
        gone.congruences = tables.congruences.extract_if(|e, _| mentions(e)).collect();
        gone.values = tables.values.extract_if(|e, _| mentions(e)).collect();
        gone.nonzero = tables.nonzero.extract_if(mentions).collect();
        let in_condition = |c: &CondId| self.symbols_in(*c).contains(&symbol);
        gone.holding = tables.holding.extract_if(in_condition).collect();
        (gone, tables)
    }

    fn relearn_bounds(&mut self, direction: ExprId, bounds: Interval) {
        let simple = self.simplify(direction);
        if simple == direction {
            let merged =
                self.known.bounds.get(&direction).map_or(bounds, |known| known.meet(bounds));
            self.learn_bounds(direction, merged);
            return;
        }
        if bounds.lo != i64::MIN {
            self.learn_at_least(simple, bounds.lo);
        }
        if bounds.hi != i64::MAX {
            self.learn_at_most(simple, bounds.hi);
        }
    }

    /// The polynomial isn't zero.
    fn learn_nonzero(&mut self, poly: &Poly) -> bool {
        if poly.as_constant().is_some() {
            return true;
        }
        let primitive = primitive(poly);
        let Some(e) = self.intern_poly_unhinted(primitive) else { return false };
        self.known.nonzero.insert(e);
        // The end of a range moves.
        if let Some(line) = self.line(e)
            && let Some(&bounds) = self.known.bounds.get(&line.direction)
        {
            self.learn_bounds(line.direction, bounds);
        }
        self.known.forget_computed();
        true
    }
}

fn sorted<V>(map: rustc_hash::FxHashMap<ExprId, V>) -> Vec<(ExprId, V)> {
    let mut entries: Vec<(ExprId, V)> = map.into_iter().collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
}
