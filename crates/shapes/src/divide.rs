//! Division that rounds down, and its rest.

use crate::arith;
use crate::context::Node;
use crate::knowledge::Operation;
use crate::poly::Poly;
use crate::{Cmp, Context, Error, ExprId, Result};

impl Context {
    /// `a // b`. That `b` isn't zero is a fact from then on.
    pub fn floordiv(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.assume_divisor(b)?;
        self.floor_div(a, b)
    }

    /// `a % b`. That `b` isn't zero is a fact from then on.
    pub fn modulus(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.assume_divisor(b)?;
        self.modulo(a, b)
    }

    /// `-(-a // b)`: the quotient rounded up.
    pub fn ceildiv(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        let negative = self.neg(a)?;
        let down = self.floordiv(negative, b)?;
        self.neg(down)
    }

    /// Assumes that a divisor isn't zero, which is so at the hints.
    pub(crate) fn assume_divisor(&mut self, b: ExprId) -> Result<()> {
        if self.hint(b) == 0 {
            return Err(Error::ZeroDivision);
        }
        let zero = self.constant(0);
        let nonzero = self.int_condition(Cmp::Ne, b, zero);
        self.evaluate(nonzero);
        Ok(())
    }

    /// The quotient by a divisor that is known not to be zero.
    pub(crate) fn floor_div(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.remembered(Operation::FloorDiv, a, b, Self::compute_quotient)
    }

    fn compute_quotient(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        match (self.as_constant(a), self.as_constant(b)) {
            (Some(0), _) => return Ok(a),
            (Some(x), Some(y)) => return Ok(self.constant(arith::floor_div(x, y)?)),
            (None, Some(0)) => return Err(Error::ZeroDivision),
            (None, Some(i64::MIN)) => {}
            (None, Some(k)) => {
                let dividend = self.poly(a);
                return if k > 0 {
                    self.floor_div_constant(dividend, k)
                } else {
                    self.floor_div_constant(dividend.scale(-1)?, -k)
                };
            }
            _ => {}
        }
        let divisor = self.poly(b);
        let (quotient, rest) = self.poly(a).divide(&divisor)?;
        let rest = if rest.as_constant() == Some(0) {
            rest
        } else {
            let rest = self.poly_expr(rest)?;
            let low = match self.quotient_point(rest, b) {
                Some(point) => self.constant(point),
                None => self.opaque(Node::FloorDiv(rest, b), &[rest, b], |hints| {
                    arith::floor_div(hints[0], hints[1])
                })?,
            };
            self.poly(low)
        };
        self.poly_expr(quotient.add(&rest)?)
    }

    /// The quotient, if the bounds of both leave one value.
    fn quotient_point(&mut self, a: ExprId, b: ExprId) -> Option<i64> {
        let (dividend, divisor) = (self.interval(a), self.interval(b));
        if let Some(point) = dividend.floor_div(divisor).as_point() {
            return Some(point);
        }
        // 0 <= a < b
        if dividend.lo >= 0 && divisor.lo > 0 && self.bounded_below(a, b) { Some(0) } else { None }
    }

    /// Whether `a < b` follows from bounds.
    fn bounded_below(&mut self, a: ExprId, b: ExprId) -> bool {
        let Ok(difference) = self.poly(b).sub(&self.poly(a)) else { return false };
        let Some(difference) = self.intern_poly_unhinted(difference) else { return false };
        self.interval(difference).lo >= 1
    }

    /// `dividend // k` for `k > 0`: what is divisible leaves the quotient, the rest is reduced and its
    /// leading coefficient made positive.
    fn floor_div_constant(&mut self, dividend: Poly, k: i64) -> Result<ExprId> {
        if k == 1 {
            return self.poly_expr(dividend);
        }
        let (even, odd) = dividend.split(|term| !term.is_constant() && term.coefficient % k == 0);
        let constant = odd.constant_term();
        let (whole, constant) = (arith::floor_div(constant, k)?, arith::modulo(constant, k)?);
        let mut quotient = even.divide_by(k).add(&Poly::constant(whole))?;
        let varying = odd.split(|term| !term.is_constant()).0;
        let Some(leading) = varying.terms.first() else { return self.poly_expr(quotient) };
        // -y // k == -((y + k - 1) // k), and so it is one form with what rounds up.
        let negative = leading.coefficient < 0;
        let (varying, constant) =
            if negative { (varying.scale(-1)?, k - 1 - constant) } else { (varying, constant) };
        let low = self.reduced_quotient(&varying, constant, k)?;
        let low = self.poly(low);
        quotient = if negative { quotient.sub(&low)? } else { quotient.add(&low)? };
        self.poly_expr(quotient)
    }

    /// `(varying + constant) // k`, where `0 <= constant < k`.
    fn reduced_quotient(&mut self, varying: &Poly, constant: i64, k: i64) -> Result<ExprId> {
        let common = i64::try_from(arith::gcd(varying.content(), k)).unwrap_or(1);
        let (varying, constant, k) = (varying.divide_by(common), constant / common, k / common);
        if k == 1 {
            return self.poly_expr(varying.add(&Poly::constant(constant))?);
        }
        let constant = self.aligned(&varying, constant, k)?;
        // (x // j + constant) // k == (x + constant * j) // (j * k)
        if let Some(atom) = varying.as_atom()
            && let Some(opaque) = atom.as_opaque()
            && let Node::FloorDiv(x, j) = *self.node(opaque)
            && let Some(j) = self.as_constant(j)
            && j > 0
            && let (Some(shift), Some(both)) = (constant.checked_mul(j), j.checked_mul(k))
        {
            let inner = self.poly(x).add(&Poly::constant(shift))?;
            return self.floor_div_constant(inner, both);
        }
        let dividend = self.poly_expr(varying.add(&Poly::constant(constant))?)?;
        let divisor = self.constant(k);
        if let Some(point) = self.quotient_point(dividend, divisor) {
            return Ok(self.constant(point));
        }
        self.opaque(Node::FloorDiv(dividend, divisor), &[dividend, divisor], |hints| {
            arith::floor_div(hints[0], hints[1])
        })
    }

    /// The smallest constant that gives the same quotient: with an even `x`, `(x + 1) // 2` is
    /// `x // 2`.
    fn aligned(&mut self, varying: &Poly, constant: i64, k: i64) -> Result<i64> {
        if self.known.congruences.is_empty() {
            return Ok(constant);
        }
        let e = self.poly_expr(varying.clone())?;
        let class = self.congruence(e);
        let step = i64::try_from(arith::gcd(class.modulus, k)).unwrap_or(1);
        let rest = class.rest.checked_add(constant).ok_or(Error::Overflow)?;
        Ok((constant - arith::modulo(rest, step.max(1))?).max(0))
    }

    /// The rest by a divisor that is known not to be zero.
    pub(crate) fn modulo(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        self.remembered(Operation::Mod, a, b, Self::compute_rest)
    }

    fn compute_rest(&mut self, a: ExprId, b: ExprId) -> Result<ExprId> {
        match (self.as_constant(a), self.as_constant(b)) {
            (Some(0), _) => return Ok(a),
            (Some(x), Some(y)) => return Ok(self.constant(arith::modulo(x, y)?)),
            (None, Some(0)) => return Err(Error::ZeroDivision),
            (None, Some(i64::MIN)) => {}
            (None, Some(k)) => {
                let dividend = self.poly(a);
                return if k > 0 {
                    self.modulo_constant(&dividend, k)
                } else {
                    // a % -k == -(-a % k)
                    let rest = self.modulo_constant(&dividend.scale(-1)?, -k)?;
                    self.neg(rest)
                };
            }
            _ => {}
        }
        let (_, rest) = self.poly(a).divide(&self.poly(b))?;
        if rest.as_constant() == Some(0) {
            return Ok(self.constant(0));
        }
        let rest = self.poly_expr(rest)?;
        if let Some(point) = self.quotient_point(rest, b) {
            let product = self.poly(b).scale(point)?;
            let difference = self.poly(rest).sub(&product)?;
            return self.poly_expr(difference);
        }
        self.opaque(Node::Mod(rest, b), &[rest, b], |hints| arith::modulo(hints[0], hints[1]))
    }

    /// `dividend % k` for `k > 0`: coefficients are reduced, a common divisor leaves the rest.
    fn modulo_constant(&mut self, dividend: &Poly, k: i64) -> Result<ExprId> {
        let mut reduced = dividend.clone();
        for term in &mut reduced.terms {
            term.coefficient = arith::modulo(term.coefficient, k)?;
        }
        reduced.terms.retain(|term| term.coefficient != 0);
        let common = i64::try_from(arith::gcd(reduced.content(), k)).unwrap_or(1);
        let (constant, varying) = (
            reduced.constant_term(),
            reduced.split(|term| !term.is_constant()).0.divide_by(common),
        );
        let (k, inner, outer) = (k / common, constant / common, constant % common);
        let inner = varying.add(&Poly::constant(inner))?;
        let rest = if k == 1 { self.constant(0) } else { self.reduced_rest(inner, k)? };
        let rest = self.poly(rest).scale(common)?.add(&Poly::constant(outer))?;
        self.poly_expr(rest)
    }

    fn reduced_rest(&mut self, dividend: Poly, k: i64) -> Result<ExprId> {
        // x % j % k == x % k, if k divides j
        if let Some(atom) = dividend.as_atom()
            && let Some(opaque) = atom.as_opaque()
            && let Node::Mod(x, j) = *self.node(opaque)
            && let Some(j) = self.as_constant(j)
            && j % k == 0
        {
            let inner = self.poly(x);
            return self.modulo_constant(&inner, k);
        }
        let dividend = self.poly_expr(dividend)?;
        if let Some(value) = self.as_constant(dividend) {
            return Ok(self.constant(arith::modulo(value, k)?));
        }
        if let Some(rest) = self.congruence(dividend).rest_by(k) {
            return Ok(self.constant(rest));
        }
        let divisor = self.constant(k);
        if let Some(point) = self.quotient_point(dividend, divisor) {
            let product = Poly::constant(point.checked_mul(k).ok_or(Error::Overflow)?);
            let rest = self.poly(dividend).sub(&product)?;
            return self.poly_expr(rest);
        }
        self.opaque(Node::Mod(dividend, divisor), &[dividend, divisor], |hints| {
            arith::modulo(hints[0], hints[1])
        })
    }
}
