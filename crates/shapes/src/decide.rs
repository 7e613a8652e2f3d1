//! Whether a condition follows from what is known.
//!
//! Integer comparisons are decided by their difference: its normal form, its bounds, its rests, and
//! a few equivalent forms of it (see [`Context::sign`]). Not everything that follows is found:
//! `docs/shapes.md` lists what isn't, and a test holds the list.

use crate::condition::Condition;
use crate::context::Node;
use crate::interval::Interval;
use crate::poly::{Atom, Poly};
use crate::{Cmp, CondId, Context, ExprId};

impl Context {
    /// The condition's value for all values that the facts admit, if it is one and is found.
    pub fn decide(&mut self, c: CondId) -> Option<bool> {
        if let Some(&decided) = self.known.decided.get(&c) {
            return decided;
        }
        let decided = self.decide_afresh(c);
        self.known.decided.insert(c, decided);
        decided
    }

    fn decide_afresh(&mut self, c: CondId) -> Option<bool> {
        match self.condition(c).clone() {
            Condition::Bool(value) => Some(value),
            Condition::Int(op, a, b) => {
                self.decide_ints(op, a, b).or_else(|| self.decide_by_holding(c))
            }
            Condition::Float(op, a, b) => {
                let (x, y) = (self.simplify_float(a), self.simplify_float(b));
                match (self.as_float_constant(x), self.as_float_constant(y)) {
                    (Some(x), Some(y)) => Some(op.holds(x, y)),
                    _ => self.decide_by_holding(c),
                }
            }
            Condition::FloatIs(a, bits) => {
                let a = self.simplify_float(a);
                match self.as_float_constant(a) {
                    Some(value) => Some(value.to_bits() == bits),
                    None => self.decide_by_holding(c),
                }
            }
            Condition::And(parts) => {
                self.decide_junction(&parts, true).or_else(|| self.decide_by_holding(c))
            }
            Condition::Or(parts) => {
                self.decide_junction(&parts, false).or_else(|| self.decide_by_holding(c))
            }
            Condition::Not(inner) => {
                self.decide(inner).map(|value| !value).or_else(|| self.decide_by_holding(c))
            }
        }
    }

    fn decide_junction(&mut self, parts: &[CondId], and: bool) -> Option<bool> {
        let mut all = true;
        for &part in parts {
            match self.decide(part) {
                Some(value) if value != and => return Some(value),
                Some(_) => {}
                None => all = false,
            }
        }
        all.then_some(and)
    }

    /// Comparisons that no table expresses are remembered as they are.
    fn decide_by_holding(&mut self, c: CondId) -> Option<bool> {
        if self.known.holding.is_empty() {
            return None;
        }
        if self.known.holding.contains(&c) {
            return Some(true);
        }
        let negated = self.not(c);
        self.known.holding.contains(&negated).then_some(false)
    }

    fn decide_ints(&mut self, op: Cmp, a: ExprId, b: ExprId) -> Option<bool> {
        let (a, b) = (self.simplify(a), self.simplify(b));
        if a == b {
            return Some(op.holds(0, 0));
        }
        match op {
            Cmp::Eq => self.decide_equal(a, b),
            Cmp::Ne => self.decide_equal(a, b).map(|value| !value),
            Cmp::Lt => self.decide_less(a, b),
            Cmp::Gt => self.decide_less(b, a),
            Cmp::Ge => self.decide_less(a, b).map(|value| !value),
            Cmp::Le => self.decide_less(b, a).map(|value| !value),
        }
    }

    fn decide_less(&mut self, a: ExprId, b: ExprId) -> Option<bool> {
        let (x, y) = (self.interval(a), self.interval(b));
        // A missing end says nothing: an end that is compared must be a bound.
        if x.hi < y.lo {
            return Some(true);
        }
        if x.lo >= y.hi && y.hi != i64::MAX && x.lo != i64::MIN {
            return Some(false);
        }
        let difference = self.poly(b).sub(&self.poly(a)).ok()?;
        let sign = self.sign(&difference);
        if sign.lo >= 1 {
            Some(true)
        } else if sign.hi <= 0 {
            Some(false)
        } else {
            None
        }
    }

    fn decide_equal(&mut self, a: ExprId, b: ExprId) -> Option<bool> {
        let (x, y) = (self.interval(a), self.interval(b));
        if x.hi < y.lo || y.hi < x.lo {
            return Some(false);
        }
        let difference = self.poly(a).sub(&self.poly(b)).ok()?;
        self.decide_zero(&difference)
    }

    /// Whether the polynomial is zero.
    pub(crate) fn decide_zero(&mut self, poly: &Poly) -> Option<bool> {
        if let Some(value) = poly.as_constant() {
            return Some(value == 0);
        }
        let e = self.intern_poly_unhinted(poly.clone())?;
        let content = poly.content();
        if poly.constant_term() % content != 0 {
            return Some(false);
        }
        let class = self.congruence(e);
        if !class.contains(0) {
            return Some(false);
        }
        if !self.known.nonzero.is_empty() {
            let primitive = primitive(poly);
            if let Some(primitive) = self.intern_poly_unhinted(primitive)
                && self.known.nonzero.contains(&primitive)
            {
                return Some(false);
            }
        }
        let sign = self.sign(poly);
        if sign.lo >= 1 || sign.hi <= -1 {
            return Some(false);
        }
        if sign.as_point() == Some(0) {
            return Some(true);
        }
        // A product is zero if a factor is.
        for atom in poly.common_atoms() {
            let factor = self.atom_expr(atom);
            let factor_zero = self.decide_zero_atom(factor);
            if factor_zero == Some(false) {
                return self.decide_zero(&poly.divide_atom(atom));
            }
        }
        None
    }

    fn decide_zero_atom(&mut self, factor: ExprId) -> Option<bool> {
        let interval = self.interval(factor);
        if interval.lo >= 1 || interval.hi <= -1 || self.known.nonzero.contains(&factor) {
            Some(false)
        } else {
            (interval.as_point() == Some(0)).then_some(true)
        }
    }

    /// An interval for an integer of the same sign as the polynomial: negative, zero or positive
    /// exactly where the polynomial is.
    pub(crate) fn sign(&mut self, poly: &Poly) -> Interval {
        let mut best = self.bounds_of(poly);
        if is_decisive(best) {
            return best;
        }
        // Without factors that are positive.
        for atom in poly.common_atoms() {
            let factor = self.atom_expr(atom);
            if self.interval(factor).lo >= 1 {
                return self.sign(&poly.divide_atom(atom));
            }
        }
        // Less a fact that is known to be nonnegative.
        if let Some(sign) = self.sign_by_fact(poly) {
            best = best.meet(sign);
            if is_decisive(best) {
                return best;
            }
        }
        // Without quotients and rests by constants: x // k is (x - x % k) / k.
        if let Some((expanded, wiggle, multiple)) = self.without_quotients(poly) {
            let mut interval = self.bounds_of(&expanded).add(wiggle);
            if let Some(sign) = self.sign_by_fact(&expanded) {
                interval = interval.meet(sign.add(wiggle));
            }
            best = best.meet(interval.divide(multiple));
        }
        best
    }

    fn bounds_of(&mut self, poly: &Poly) -> Interval {
        match self.intern_poly_unhinted(poly.clone()) {
            Some(e) => self.interval(e),
            None => self.poly_interval(poly),
        }
    }

    /// Bounds by one known inequality: `poly == fact + rest`.
    fn sign_by_fact(&mut self, poly: &Poly) -> Option<Interval> {
        // Bounds of single atoms take part in intervals already.
        let lines: Vec<(ExprId, Interval)> = self
            .known
            .bounds
            .iter()
            .filter(|&(&direction, _)| matches!(self.node(direction), Node::Poly(_)))
            .map(|(&direction, &bounds)| (direction, bounds))
            .collect();
        if lines.len() > MAX_COMBINED {
            return None;
        }
        let mut best = Interval::ALL;
        for (direction, bounds) in lines {
            let fact = self.poly(direction);
            for factor in [1, -1] {
                let Ok(rest) = fact.scale(factor).and_then(|fact| poly.sub(&fact)) else {
                    continue;
                };
                // Only what makes the polynomial simpler.
                if rest.terms.len() >= poly.terms.len() + fact.terms.len() {
                    continue;
                }
                let rest = self.bounds_of(&rest);
                best = best.meet(rest.add(bounds.scale(factor)));
            }
        }
        Some(best)
    }

    /// A multiple of the polynomial with quotients and rests by constants replaced by their dividends,
    /// the bounds of what that leaves out, and the multiple, which is positive.
    fn without_quotients(&mut self, poly: &Poly) -> Option<(Poly, Interval, i64)> {
        let mut expanded = poly.clone();
        let mut found = false;
        // x % k == x - k * (x // k)
        for (atom, x, k) in self.divided(poly, false) {
            let quotient = {
                let (x, k) = (x, self.constant(k));
                self.floor_div(x, k).ok()?
            };
            let rest = self.poly(x).sub(&self.poly(quotient).scale(k).ok()?).ok()?;
            expanded = substitute(&expanded, atom, &rest)?;
            found = true;
        }
        let (mut wiggle, mut total) = (Interval::point(0), 1i64);
        for (atom, x, k) in self.divided(&expanded.clone(), true) {
            // Only where the quotient stands alone: k * c * (x // k) == c * (x - [0, k - 1]).
            let standing = expanded.terms.iter().find(|term| term.as_atom() == Some(atom));
            let Some(standing) = standing else { continue };
            let alone = expanded.terms.iter().all(|term| {
                term.as_atom() == Some(atom) || term.factors.iter().all(|f| f.0 != atom)
            });
            if !alone {
                continue;
            }
            let coefficient = standing.coefficient;
            let divisor = crate::arith::gcd(coefficient, k);
            let multiple = k / i64::try_from(divisor).ok()?;
            let others =
                expanded.split(|term| term.as_atom() != Some(atom)).0.scale(multiple).ok()?;
            let coefficient = coefficient.checked_mul(multiple)? / k;
            let known = self.congruence(x).rest_by(k);
            let rests = known.map_or(Interval::new(0, k - 1), Interval::point);
            wiggle = wiggle.scale(multiple).add(rests.scale(coefficient.checked_neg()?));
            expanded = others.add(&self.poly(x).scale(coefficient).ok()?).ok()?;
            total = total.checked_mul(multiple)?;
            found = true;
        }
        found.then_some((expanded, wiggle, total))
    }

    /// The polynomial's quotients (or rests) by positive constants.
    fn divided(&self, poly: &Poly, quotients: bool) -> Vec<(Atom, ExprId, i64)> {
        let mut found: Vec<(Atom, ExprId, i64)> = Vec::new();
        for &(atom, _) in poly.terms.iter().flat_map(|term| &term.factors) {
            let Some(opaque) = atom.as_opaque() else { continue };
            let (x, k) = match *self.node(opaque) {
                Node::FloorDiv(x, k) if quotients => (x, k),
                Node::Mod(x, k) if !quotients => (x, k),
                _ => continue,
            };
            if let Some(k) = self.as_constant(k)
                && k > 0
                && !found.iter().any(|entry| entry.0 == atom)
            {
                found.push((atom, x, k));
            }
        }
        found
    }
}

/// With more known inequalities than this, combining them would cost more than a guard.
const MAX_COMBINED: usize = 64;

fn is_decisive(sign: Interval) -> bool {
    sign.lo >= 1 || sign.hi <= -1 || sign.as_point() == Some(0)
}

/// Without common divisor, the leading coefficient positive; zero where the polynomial is.
pub(crate) fn primitive(poly: &Poly) -> Poly {
    let content = poly.content();
    let constant = poly.constant_term();
    let common = i64::try_from(crate::arith::gcd(content, constant)).unwrap_or(1);
    let negative = poly.terms.first().is_some_and(|term| term.coefficient < 0);
    let divisor = if common == 0 { 1 } else { common };
    poly.divide_by(if negative { -divisor } else { divisor })
}

/// The polynomial with an atom replaced.
fn substitute(poly: &Poly, atom: Atom, by: &Poly) -> Option<Poly> {
    let (with, mut sum) = poly.split(|term| term.factors.iter().any(|factor| factor.0 == atom));
    for mut term in with.terms {
        let power = term.factors.iter().find(|factor| factor.0 == atom)?.1;
        term.factors.retain(|factor| factor.0 != atom);
        let mut product = Poly { terms: [term].into_iter().collect() };
        for _ in 0..power {
            product = product.mul(by).ok()?;
        }
        sum = sum.add(&product).ok()?;
    }
    Some(sum)
}
