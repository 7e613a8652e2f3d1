//! Float expressions. They are kept as they were computed: floats obey no algebra.

use crate::arith;
use crate::context::{Node, SymbolData};
use crate::{Cmp, Context, Error, ExprId, FloatId, Result, SymbolId};
use serde::{Deserialize, Serialize};

/// An operation on two floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    /// `min(a, b)`, which is `b` if that is smaller, else `a`.
    Min,
    /// `max(a, b)`, which is `b` if that is larger, else `a`.
    Max,
    Pow,
}

/// An operation on one float.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FloatUnary {
    Neg,
    Abs,
    Sqrt,
    Log,
    Log2,
    Log10,
    Exp,
    Sin,
    Cos,
    Tanh,
}

/// How a float becomes an integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Rounding {
    /// `math.floor`
    Floor,
    /// `math.ceil`
    Ceil,
    /// `int`, `math.trunc`
    Trunc,
    /// `round`: halves to the even neighbour.
    Round,
}

impl Rounding {
    pub(crate) fn round(self, value: f64) -> Result<i64> {
        arith::to_integer(match self {
            Rounding::Floor => value.floor(),
            Rounding::Ceil => value.ceil(),
            Rounding::Trunc => value.trunc(),
            Rounding::Round => value.round_ties_even(),
        })
    }
}

/// Integers of programs have 64 bits.
const LARGEST_INTEGER: f64 = (1_u64 << 63) as f64;

/// `exp` of it is a float: somewhat less than the logarithm of the largest one.
pub const LARGEST_EXPONENT: f64 = 709.0;

/// The base whose power with this exponent is about the largest float; for a negative exponent no lesser base may be.
#[must_use]
pub fn extreme_base(exponent: f64) -> f64 {
    (LARGEST_EXPONENT / exponent).exp()
}

/// The exponent, or its negative, with which the power of this base is about the largest float.
#[must_use]
pub fn extreme_exponent(base: f64) -> f64 {
    LARGEST_EXPONENT / base.ln().abs()
}

impl FloatOp {
    /// As Python computes it; where Python raises, an error.
    pub(crate) fn apply(self, a: f64, b: f64) -> Result<f64> {
        Ok(match self {
            FloatOp::Add => a + b,
            FloatOp::Sub => a - b,
            FloatOp::Mul => a * b,
            FloatOp::Div if b == 0.0 => return Err(Error::ZeroDivision),
            FloatOp::Div => a / b,
            FloatOp::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            FloatOp::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
            FloatOp::Pow if a == 0.0 && b < 0.0 => return Err(Error::ZeroDivision),
            FloatOp::Pow => {
                let power = a.powf(b);
                let finite = a.is_finite() && b.is_finite();
                if finite && power.is_infinite() {
                    return Err(Error::Overflow);
                }
                if finite && power.is_nan() {
                    return Err(Error::Undefined);
                }
                power
            }
        })
    }
}

impl FloatUnary {
    pub(crate) fn apply(self, a: f64) -> Result<f64> {
        Ok(match self {
            FloatUnary::Neg => -a,
            FloatUnary::Abs => a.abs(),
            FloatUnary::Sqrt if a < 0.0 => return Err(Error::Undefined),
            FloatUnary::Sqrt => a.sqrt(),
            FloatUnary::Exp => {
                let power = a.exp();
                if a.is_finite() && power.is_infinite() {
                    return Err(Error::Overflow);
                }
                power
            }
            FloatUnary::Sin | FloatUnary::Cos if a.is_infinite() => return Err(Error::Undefined),
            FloatUnary::Sin => a.sin(),
            FloatUnary::Cos => a.cos(),
            FloatUnary::Tanh => a.tanh(),
            FloatUnary::Log | FloatUnary::Log2 | FloatUnary::Log10 if a <= 0.0 => {
                return Err(Error::Undefined);
            }
            FloatUnary::Log => a.ln(),
            FloatUnary::Log2 => a.log2(),
            FloatUnary::Log10 => a.log10(),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FloatNode {
    /// By its bits: `-0.0` and NaNs are values of their own.
    Constant(u64),
    Symbol(SymbolId),
    FromInt(ExprId),
    /// The quotient of two integers, rounded once.
    TrueDiv(ExprId, ExprId),
    Unary(FloatUnary, FloatId),
    Binary(FloatOp, FloatId, FloatId),
}

impl Context {
    /// A symbol for a float that was `hint` in the recorded call.
    pub fn float_symbol(&mut self, hint: f64) -> (SymbolId, FloatId) {
        let id = SymbolId::new(self.symbols.len());
        self.symbols.push(SymbolData { duck: None, expr: None });
        (id, self.intern_float(FloatNode::Symbol(id), hint))
    }

    /// A constant.
    pub fn float_constant(&mut self, value: f64) -> FloatId {
        self.intern_float(FloatNode::Constant(value.to_bits()), value)
    }

    /// The value of an expression that doesn't vary.
    pub fn as_float_constant(&self, f: FloatId) -> Option<f64> {
        match self.floats[f.index()] {
            FloatNode::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// The expression's value in the recorded call.
    pub fn float_hint(&self, f: FloatId) -> f64 {
        self.float_hints[f.index()]
    }

    /// `float(a)`
    #[allow(clippy::cast_precision_loss)]
    pub fn float_from_int(&mut self, a: ExprId) -> Result<FloatId> {
        let a = self.simplify(a);
        if let Some(value) = self.as_constant(a) {
            return Ok(self.float_constant(value as f64));
        }
        let hint = self.hint(a) as f64;
        self.build_float(FloatNode::FromInt(a), hint)
    }

    /// `a / b` of integers. That `b` isn't zero is a fact from then on.
    pub fn truediv(&mut self, a: ExprId, b: ExprId) -> Result<FloatId> {
        self.assume_divisor(b)?;
        let (a, b) = (self.simplify(a), self.simplify(b));
        let hint = arith::true_div(self.hint(a), self.hint(b))?;
        if self.as_constant(a).is_some() && self.as_constant(b).is_some() {
            return Ok(self.float_constant(hint));
        }
        self.build_float(FloatNode::TrueDiv(a, b), hint)
    }

    /// `-a`, `abs(a)`, `math.sqrt(a)` and such. That Python computes it, rather than raising, is a fact from then on.
    pub fn float_unary(&mut self, op: FloatUnary, a: FloatId) -> Result<FloatId> {
        let hint = op.apply(self.float_hint(a))?;
        if self.as_float_constant(a).is_some() {
            return Ok(self.float_constant(hint));
        }
        match op {
            FloatUnary::Neg | FloatUnary::Abs | FloatUnary::Tanh => {}
            FloatUnary::Sqrt => self.assume_not(Cmp::Lt, a, 0.0),
            FloatUnary::Log | FloatUnary::Log2 | FloatUnary::Log10 => {
                self.assume_not(Cmp::Le, a, 0.0);
            }
            FloatUnary::Exp => self.assume_float(Cmp::Le, a, LARGEST_EXPONENT)?,
            FloatUnary::Sin | FloatUnary::Cos => self.assume_bounded(a),
        }
        self.build_float(FloatNode::Unary(op, a), hint)
    }

    /// Unless this holds, which it doesn't in the recorded call: a NaN is below nothing.
    fn assume_not(&mut self, op: Cmp, a: FloatId, bound: f64) {
        let bound = self.float_constant(bound);
        let undefined = self.compare_floats(op, a, bound);
        self.evaluate(undefined);
    }

    /// That it's no infinity.
    fn assume_bounded(&mut self, a: FloatId) {
        if !self.magnitude(a).is_finite() {
            self.assume_not(Cmp::Le, a, f64::NEG_INFINITY);
            self.assume_not(Cmp::Ge, a, f64::INFINITY);
        }
    }

    /// What its absolute value is at most, whatever the symbols are; infinite: that isn't known, and it may be a NaN.
    fn magnitude(&self, f: FloatId) -> f64 {
        let both = |a, b| (self.magnitude(a), self.magnitude(b));
        match self.floats[f.index()] {
            FloatNode::Constant(bits) if f64::from_bits(bits).is_nan() => f64::INFINITY,
            FloatNode::Constant(bits) => f64::from_bits(bits).abs(),
            FloatNode::FromInt(_) | FloatNode::TrueDiv(..) => LARGEST_INTEGER,
            FloatNode::Unary(FloatUnary::Neg | FloatUnary::Abs, a) => self.magnitude(a),
            FloatNode::Binary(FloatOp::Add | FloatOp::Sub, a, b) => {
                let (a, b) = both(a, b);
                a + b
            }
            FloatNode::Binary(FloatOp::Mul, a, b) => match both(a, b) {
                (a, b) if a.is_finite() && b.is_finite() => a * b,
                _ => f64::INFINITY,
            },
            FloatNode::Symbol(_) | FloatNode::Unary(..) | FloatNode::Binary(..) => f64::INFINITY,
        }
    }

    /// That this holds; an error if it doesn't in the recorded call.
    fn assume_float(&mut self, op: Cmp, a: FloatId, bound: f64) -> Result<()> {
        if !op.holds(self.float_hint(a), bound) {
            return Err(Error::Undefined);
        }
        let bound = self.float_constant(bound);
        let defined = self.compare_floats(op, a, bound);
        self.evaluate(defined);
        Ok(())
    }

    /// That `a ** b` is a float: neither complex, nor too large, nor one by zero.
    fn assume_power(&mut self, a: FloatId, b: FloatId) -> Result<()> {
        match (self.as_float_constant(a), self.as_float_constant(b)) {
            (_, Some(exponent)) if exponent == 0.0 || !exponent.is_finite() => Ok(()),
            (_, Some(exponent)) => {
                let is_whole = exponent.fract() == 0.0;
                let base = if is_whole { self.float_unary(FloatUnary::Abs, a)? } else { a };
                let bound = extreme_base(exponent);
                if exponent < 0.0 {
                    return self.assume_float(Cmp::Ge, base, bound);
                }
                if !is_whole {
                    self.assume_float(Cmp::Ge, base, 0.0)?;
                }
                self.assume_float(Cmp::Le, base, bound)
            }
            (Some(1.0), None) => Ok(()),
            (Some(base), None) if base > 0.0 && base.is_finite() => {
                let bound = extreme_exponent(base);
                self.assume_float(Cmp::Le, b, bound)?;
                self.assume_float(Cmp::Ge, b, -bound)
            }
            (Some(_), None) => Err(Error::Undefined),
            (None, None) => {
                self.assume_float(Cmp::Gt, a, 0.0)?;
                let logarithm = self.float_unary(FloatUnary::Log, a)?;
                let exponent = self.float_binary(FloatOp::Mul, b, logarithm)?;
                self.assume_float(Cmp::Le, exponent, LARGEST_EXPONENT)?;
                self.assume_float(Cmp::Ge, exponent, -LARGEST_EXPONENT)
            }
        }
    }

    /// `a op b`. That Python computes it, rather than raising, is a fact from then on.
    pub fn float_binary(&mut self, op: FloatOp, a: FloatId, b: FloatId) -> Result<FloatId> {
        let hint = op.apply(self.float_hint(a), self.float_hint(b))?;
        if self.as_float_constant(a).is_some() && self.as_float_constant(b).is_some() {
            return Ok(self.float_constant(hint));
        }
        if op == FloatOp::Div {
            let zero = self.float_constant(0.0);
            let nonzero = self.compare_floats(Cmp::Ne, b, zero);
            self.evaluate(nonzero);
        }
        if op == FloatOp::Pow {
            self.assume_power(a, b)?;
        }
        self.build_float(FloatNode::Binary(op, a, b), hint)
    }

    /// The float as an integer. That it's finite is a fact from then on.
    pub fn round(&mut self, rounding: Rounding, f: FloatId) -> Result<ExprId> {
        let f = self.simplify_float(f);
        let hint = rounding.round(self.float_hint(f))?;
        let node = self.floats[f.index()];
        match node {
            FloatNode::Constant(_) => return Ok(self.constant(hint)),
            FloatNode::FromInt(e) if self.is_exact(e) => return Ok(e),
            FloatNode::TrueDiv(a, b) if self.is_exact_quotient(a, b) => {
                if let Some(e) = self.rounded_quotient(rounding, a, b)? {
                    debug_assert_eq!(self.hint(e), hint);
                    return Ok(e);
                }
            }
            _ => {}
        }
        let (size, depth) = self.float_size(f);
        if size > crate::MAX_SIZE || depth >= crate::MAX_DEPTH {
            return Err(Error::TooComplex);
        }
        if !self.magnitude(f).is_finite() {
            self.assume_float(Cmp::Gt, f, f64::NEG_INFINITY)?;
            self.assume_float(Cmp::Lt, f, f64::INFINITY)?;
        }
        Ok(self.rounded(Node::Round(rounding, f), hint, size + 1, depth + 1))
    }

    /// Whether the integer is always a float.
    fn is_exact(&mut self, e: ExprId) -> bool {
        let interval = self.interval(e);
        -arith::EXACT <= interval.lo && interval.hi <= arith::EXACT
    }

    /// Whether rounding `a / b` rounds the exact quotient. Below 2^52 the float nearest to a
    /// quotient that is no integer is none either: the quotient is at least `1 / b` away from
    /// integers, more than half a step of floats of its size.
    fn is_exact_quotient(&mut self, a: ExprId, b: ExprId) -> bool {
        let limit = crate::SIZE_LIMIT;
        let (a, b) = (self.interval(a), self.interval(b));
        -limit <= a.lo && a.hi <= limit && -limit <= b.lo && b.hi <= limit
    }

    /// That the divisor isn't zero was assumed when the float was built.
    fn rounded_quotient(
        &mut self,
        rounding: Rounding,
        a: ExprId,
        b: ExprId,
    ) -> Result<Option<ExprId>> {
        let (dividend, divisor) = (self.interval(a), self.interval(b));
        let nonnegative = dividend.lo >= 0 && divisor.lo > 0;
        Ok(match rounding {
            Rounding::Floor => Some(self.floor_div(a, b)?),
            Rounding::Ceil => {
                let negative = self.neg(a)?;
                let down = self.floor_div(negative, b)?;
                Some(self.neg(down)?)
            }
            Rounding::Trunc if nonnegative => Some(self.floor_div(a, b)?),
            Rounding::Trunc | Rounding::Round => None,
        })
    }

    /// The expression with its integers in terms of what is known.
    pub(crate) fn simplify_float(&mut self, f: FloatId) -> FloatId {
        if self.known.is_blank() {
            return f;
        }
        self.rebuild_float(f).unwrap_or(f)
    }

    fn rebuild_float(&mut self, f: FloatId) -> Result<FloatId> {
        let hint = self.float_hint(f);
        let rebuilt = match self.floats[f.index()] {
            FloatNode::Constant(_) | FloatNode::Symbol(_) => return Ok(f),
            FloatNode::FromInt(a) => return self.float_from_int(a),
            FloatNode::TrueDiv(a, b) => {
                let (a, b) = (self.simplify(a), self.simplify(b));
                if self.as_constant(a).is_some() && self.as_constant(b).is_some() {
                    return Ok(self.float_constant(hint));
                }
                FloatNode::TrueDiv(a, b)
            }
            FloatNode::Unary(op, a) => {
                let a = self.rebuild_float(a)?;
                if self.as_float_constant(a).is_some() {
                    return Ok(self.float_constant(hint));
                }
                FloatNode::Unary(op, a)
            }
            FloatNode::Binary(op, a, b) => {
                let (a, b) = (self.rebuild_float(a)?, self.rebuild_float(b)?);
                if self.as_float_constant(a).is_some() && self.as_float_constant(b).is_some() {
                    return Ok(self.float_constant(hint));
                }
                FloatNode::Binary(op, a, b)
            }
        };
        self.build_float(rebuilt, hint)
    }

    fn build_float(&mut self, node: FloatNode, hint: f64) -> Result<FloatId> {
        let (size, depth) = self.node_size(node);
        if size > crate::MAX_SIZE || depth > crate::MAX_DEPTH {
            return Err(Error::TooComplex);
        }
        Ok(self.intern_float(node, hint))
    }

    fn intern_float(&mut self, node: FloatNode, hint: f64) -> FloatId {
        if let Some(&id) = self.float_ids.get(&node) {
            return id;
        }
        let size = self.node_size(node);
        let id = FloatId::new(self.floats.len());
        self.floats.push(node);
        self.float_hints.push(hint);
        self.float_sizes.push(size);
        self.float_ids.insert(node, id);
        id
    }

    fn float_size(&self, f: FloatId) -> (u32, u32) {
        self.float_sizes[f.index()]
    }

    /// Size and depth.
    fn node_size(&self, node: FloatNode) -> (u32, u32) {
        let of_int = |e: ExprId| (self.facets(e).size, self.facets(e).depth);
        let (a, b) = match node {
            FloatNode::Constant(_) | FloatNode::Symbol(_) => return (1, 0),
            FloatNode::FromInt(a) => (of_int(a), (0, 0)),
            FloatNode::TrueDiv(a, b) => (of_int(a), of_int(b)),
            FloatNode::Unary(_, a) => (self.float_size(a), (0, 0)),
            FloatNode::Binary(_, a, b) => (self.float_size(a), self.float_size(b)),
        };
        (a.0.saturating_add(b.0).saturating_add(1), a.1.max(b.1) + 1)
    }
}
