//! Sums, products and powers; expressions in terms of what is known.

use crate::congruence::Congruence;
use crate::context::Node;
use crate::interval::Interval;
use crate::knowledge::Operation;
use crate::poly::{Atom, Poly, Term};
use crate::{Context, Error, ExprId, Result};

impl Context {
    /// `a + b`
    pub fn add(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.remembered(Operation::Add, a, b, |ctx, a, b| {
            if let (Some(x), Some(y)) = (ctx.as_constant(a), ctx.as_constant(b)) {
                return Ok(ctx.constant(x.checked_add(y).ok_or(Error::Overflow)?));
            }
            let sum = ctx.poly(a).add(&ctx.poly(b))?;
            ctx.poly_expr(sum)
        })
    }

    /// `a - b`
    pub fn sub(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.remembered(Operation::Sub, a, b, |ctx, a, b| {
            let difference = ctx.poly(a).sub(&ctx.poly(b))?;
            ctx.poly_expr(difference)
        })
    }

    /// `-a`
    pub fn neg(&mut self, a: ExprId) -> Result<ExprId> {
        let a = self.simplify(a);
        let negative = self.poly(a).scale(-1)?;
        self.poly_expr(negative)
    }

    /// `a * b`
    pub fn mul(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.remembered(Operation::Mul, a, b, |ctx, a, b| {
            if let (Some(x), Some(y)) = (ctx.as_constant(a), ctx.as_constant(b)) {
                return Ok(ctx.constant(x.checked_mul(y).ok_or(Error::Overflow)?));
            }
            let (left, right) = (ctx.poly(a), ctx.poly(b));
            if left.terms.len() * right.terms.len() > crate::MAX_SIZE as usize {
                return Err(Error::TooComplex);
            }
            let product = left.mul(&right)?;
            ctx.poly_expr(product)
        })
    }

    /// `a ** exponent`
    pub fn pow(&mut self, a: ExprId, exponent: u32) -> Result<ExprId> {
        let mut power = self.constant(1);
        // Square and multiply; an exponent of any size ends soon, by overflow or size.
        let (mut base, mut left) = (self.simplify(a), exponent);
        if matches!(self.as_constant(base), Some(-1..=1)) {
            left = left.min(2 + left % 2);
        }
        while left > 0 {
            if left % 2 == 1 {
                power = self.mul(power, base)?;
            }
            left /= 2;
            if left > 0 {
                base = self.mul(base, base)?;
            }
        }
        Ok(power)
    }

    /// The sum of all.
    pub fn sum(&mut self, terms: &[ExprId]) -> Result<ExprId> {
        let zero = self.constant(0);
        terms.iter().try_fold(zero, |sum, &term| self.add(sum, term))
    }

    /// The product of all.
    pub fn product(&mut self, factors: &[ExprId]) -> Result<ExprId> {
        let one = self.constant(1);
        factors.iter().try_fold(one, |product, &factor| self.mul(product, factor))
    }

    /// The polynomial as an expression, in normal form.
    pub(crate) fn poly_expr(&mut self, poly: Poly) -> Result<ExprId> {
        let poly = self.multiply_quotients(poly)?;
        self.intern_poly(poly)
    }

    /// `k * (x // k)` is `x - x % k`, where the rest is known.
    fn multiply_quotients(&mut self, mut poly: Poly) -> Result<Poly> {
        if self.known.congruences.is_empty() {
            return Ok(poly);
        }
        // Each round removes a quotient.
        'rounds: loop {
            for i in 0..poly.terms.len() {
                if let Some(replacement) = self.multiplied_quotient(&poly.terms[i])? {
                    let mut others = poly.clone();
                    others.terms.remove(i);
                    poly = others.add(&replacement)?;
                    continue 'rounds;
                }
            }
            return Ok(poly);
        }
    }

    fn multiplied_quotient(&mut self, term: &Term) -> Result<Option<Poly>> {
        for &(atom, power) in &term.factors {
            let Some(opaque) = atom.as_opaque() else { continue };
            let Node::FloorDiv(x, k) = *self.node(opaque) else { continue };
            let Some(k) = self.as_constant(k) else { continue };
            if power != 1 || term.coefficient % k != 0 {
                continue;
            }
            let Some(rest) = self.congruence(x).rest_by(k) else { continue };
            let exact = self.poly(x).add(&Poly::constant(-rest))?;
            let mut others = term.clone();
            others.factors.retain(|entry| entry.0 != atom);
            others.coefficient /= k;
            let others = Poly { terms: [others].into_iter().collect() };
            return Ok(Some(exact.mul(&others)?));
        }
        Ok(None)
    }

    /// The expression in terms of what is known: symbols replaced, terms folded. If that can't be
    /// expressed within 64 bits, the expression itself.
    pub fn simplify(&mut self, e: ExprId) -> ExprId {
        let facets = self.facets(e);
        if facets.constant || (facets.plain && !self.known.has_values) {
            return e;
        }
        if let Some(&resolved) = self.known.resolved.get(&e) {
            return resolved;
        }
        let mut resolved = match self.known.values.get(&e) {
            Some(&value) => self.constant(value),
            None => self.rebuild(e).unwrap_or(e),
        };
        // Facts may leave an expression one value without solving for its symbols.
        let value = self.known.values.get(&resolved).copied();
        if let Some(value) = value.or_else(|| self.interval(resolved).as_point()) {
            resolved = self.constant(value);
        }
        self.known.resolved.insert(e, resolved);
        self.known.resolved.insert(resolved, resolved);
        resolved
    }

    fn rebuild(&mut self, e: ExprId) -> Result<ExprId> {
        match self.node(e).clone() {
            Node::Symbol(symbol) => {
                let Some(&replacement) = self.known.replaced.get(&symbol) else { return Ok(e) };
                Ok(self.simplify(replacement))
            }
            Node::Poly(poly) => {
                let mut sum = Poly::default();
                for term in &poly.terms {
                    let mut product = Poly::constant(term.coefficient);
                    for &(atom, power) in &term.factors {
                        let value = self.simplify_atom(atom);
                        for _ in 0..power {
                            product = product.mul(&value)?;
                            if product.terms.len() > crate::MAX_SIZE as usize {
                                return Err(Error::TooComplex);
                            }
                        }
                    }
                    sum = sum.add(&product)?;
                }
                self.poly_expr(sum)
            }
            Node::FloorDiv(a, b) => self.floor_div(a, b),
            Node::Mod(a, b) => self.modulo(a, b),
            Node::Min(operands) => self.min(&operands),
            Node::Max(operands) => self.max(&operands),
            Node::Abs(a) => self.abs(a),
            Node::Round(rounding, f) => self.round(rounding, f),
        }
    }

    fn simplify_atom(&mut self, atom: Atom) -> Poly {
        let e = self.atom_expr(atom);
        let e = self.simplify(e);
        self.poly(e)
    }

    /// Bounds that follow from what the expression is made of.
    pub(crate) fn structural_interval(&mut self, e: ExprId) -> Interval {
        match self.node(e).clone() {
            Node::Symbol(_) => Interval::ALL,
            Node::Poly(poly) => self.poly_interval(&poly),
            Node::FloorDiv(a, b) => self.interval(a).floor_div(self.interval(b)),
            Node::Mod(a, b) => self.interval(a).modulo(self.interval(b)),
            Node::Min(operands) => self.extreme_interval(&operands, Interval::min),
            Node::Max(operands) => self.extreme_interval(&operands, Interval::max),
            Node::Abs(a) => self.interval(a).abs(),
            Node::Round(..) => Interval::ALL,
        }
    }

    fn extreme_interval(
        &mut self,
        operands: &[ExprId],
        of: fn(Interval, Interval) -> Interval,
    ) -> Interval {
        let intervals: Vec<Interval> = operands.iter().map(|&e| self.interval(e)).collect();
        intervals.into_iter().reduce(of).unwrap_or(Interval::ALL)
    }

    pub(crate) fn poly_interval(&mut self, poly: &Poly) -> Interval {
        let mut sum = Interval::point(0);
        for term in &poly.terms {
            let mut product = Interval::point(term.coefficient);
            for &(atom, power) in &term.factors {
                let e = self.atom_expr(atom);
                product = product.mul(self.interval(e).pow(power));
            }
            sum = sum.add(product);
        }
        sum
    }

    /// What is known of the expression's rests.
    pub(crate) fn congruence(&mut self, e: ExprId) -> Congruence {
        let poly = self.poly(e);
        if let Some(value) = poly.as_constant() {
            return Congruence::exactly(value);
        }
        let mut sum = Congruence::exactly(0);
        for term in &poly.terms {
            let mut product = Congruence::exactly(term.coefficient);
            for &(atom, power) in &term.factors {
                let e = self.atom_expr(atom);
                let known = self.known.congruences.get(&e).copied().unwrap_or(Congruence::ANY);
                for _ in 0..power {
                    product = product.mul(known);
                }
            }
            sum = sum.add(product);
        }
        if self.known.congruences.is_empty() {
            return sum;
        }
        if let Some(line) = self.line(e)
            && let Some(&known) = self.known.congruences.get(&line.direction)
        {
            let whole =
                known.mul(Congruence::exactly(line.scale)).add(Congruence::exactly(line.offset));
            sum = sum.meet(whole).unwrap_or(sum);
        }
        sum
    }
}
