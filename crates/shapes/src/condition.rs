//! Conditions over expressions: how they are built, and what they were in the recorded call.

use crate::{CondId, Context, Error, ExprId, FloatId, Result};
use serde::{Deserialize, Serialize};

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Cmp {
    /// The comparison that holds for integers where this one doesn't.
    pub const fn negated(self) -> Self {
        match self {
            Cmp::Eq => Cmp::Ne,
            Cmp::Ne => Cmp::Eq,
            Cmp::Lt => Cmp::Ge,
            Cmp::Ge => Cmp::Lt,
            Cmp::Gt => Cmp::Le,
            Cmp::Le => Cmp::Gt,
        }
    }

    /// Whether `a op b` holds.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Cmp::Eq => a == b,
            Cmp::Ne => a != b,
            Cmp::Lt => a < b,
            Cmp::Le => a <= b,
            Cmp::Gt => a > b,
            Cmp::Ge => a >= b,
        }
    }

    /// As Python spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cmp::Eq => "==",
            Cmp::Ne => "!=",
            Cmp::Lt => "<",
            Cmp::Le => "<=",
            Cmp::Gt => ">",
            Cmp::Ge => ">=",
        }
    }
}

/// A condition, as it was asked: both sides are in normal form, but they aren't moved to one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Condition {
    Bool(bool),
    Int(Cmp, ExprId, ExprId),
    Float(Cmp, FloatId, FloatId),
    /// The float has these bits: zeros of both signs and NaNs are told apart.
    FloatIs(FloatId, u64),
    /// Two or more.
    And(Box<[CondId]>),
    /// Two or more.
    Or(Box<[CondId]>),
    /// Of conditions of floats: with NaN, `not a < b` isn't `a >= b`.
    Not(CondId),
}

/// The answer to a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It follows from what is known.
    Known(bool),
    /// It was taken from the hints, and is a fact from now on.
    Guarded {
        /// What the condition was in the recorded call.
        value: bool,
        /// What was assumed: the condition, or its negation.
        fact: CondId,
    },
}

impl Verdict {
    /// The answer.
    pub const fn value(self) -> bool {
        match self {
            Verdict::Known(value) | Verdict::Guarded { value, .. } => value,
        }
    }

    /// What was newly assumed.
    pub const fn fact(self) -> Option<CondId> {
        match self {
            Verdict::Known(_) => None,
            Verdict::Guarded { fact, .. } => Some(fact),
        }
    }
}

impl Context {
    /// A condition that always or never holds.
    pub fn bool(&mut self, value: bool) -> CondId {
        self.intern_condition(Condition::Bool(value), value)
    }

    /// `a op b`
    pub fn compare(&mut self, op: Cmp, a: ExprId, b: ExprId) -> CondId {
        let (a, b) = (self.simplify(a), self.simplify(b));
        self.int_condition(op, a, b)
    }

    /// `a == b`
    pub fn eq(&mut self, a: ExprId, b: ExprId) -> CondId {
        self.compare(Cmp::Eq, a, b)
    }

    /// `a != b`
    pub fn ne(&mut self, a: ExprId, b: ExprId) -> CondId {
        self.compare(Cmp::Ne, a, b)
    }

    /// `a < b`
    pub fn lt(&mut self, a: ExprId, b: ExprId) -> CondId {
        self.compare(Cmp::Lt, a, b)
    }

    /// `a <= b`
    pub fn le(&mut self, a: ExprId, b: ExprId) -> CondId {
        self.compare(Cmp::Le, a, b)
    }

    /// The comparison of the expressions as they are.
    pub(crate) fn int_condition(&mut self, op: Cmp, a: ExprId, b: ExprId) -> CondId {
        let hint = op.holds(self.hint(a), self.hint(b));
        if a == b || (self.as_constant(a).is_some() && self.as_constant(b).is_some()) {
            return self.bool(hint);
        }
        self.intern_condition(Condition::Int(op, a, b), hint)
    }

    /// `a op b` of floats.
    pub fn compare_floats(&mut self, op: Cmp, a: FloatId, b: FloatId) -> CondId {
        let hint = op.holds(self.float_hint(a), self.float_hint(b));
        if self.as_float_constant(a).is_some() && self.as_float_constant(b).is_some() {
            return self.bool(hint);
        }
        self.intern_condition(Condition::Float(op, a, b), hint)
    }

    /// The float has exactly this value, bit by bit.
    pub fn float_is(&mut self, a: FloatId, value: f64) -> CondId {
        let bits = value.to_bits();
        let hint = self.float_hint(a).to_bits() == bits;
        if self.as_float_constant(a).is_some() {
            return self.bool(hint);
        }
        self.intern_condition(Condition::FloatIs(a, bits), hint)
    }

    /// `a op b` of an integer and a float. Python compares them exactly, so this is an error for
    /// integers that may be no float.
    pub fn compare_mixed(&mut self, op: Cmp, a: ExprId, b: FloatId) -> Result<CondId> {
        let interval = self.interval(a);
        let exact = -crate::arith::EXACT..=crate::arith::EXACT;
        if !exact.contains(&interval.lo) || !exact.contains(&interval.hi) {
            return Err(Error::Overflow);
        }
        let a = self.float_from_int(a)?;
        Ok(self.compare_floats(op, a, b))
    }

    /// All of them hold.
    pub fn and(&mut self, parts: &[CondId]) -> CondId {
        self.junction(parts, true)
    }

    /// One of them holds.
    pub fn or(&mut self, parts: &[CondId]) -> CondId {
        self.junction(parts, false)
    }

    fn junction(&mut self, parts: &[CondId], and: bool) -> CondId {
        let mut kept = Vec::with_capacity(parts.len());
        for &part in parts {
            match self.condition(part).clone() {
                Condition::Bool(value) if value == and => {}
                Condition::Bool(value) => return self.bool(value),
                Condition::And(inner) if and => kept.extend_from_slice(&inner),
                Condition::Or(inner) if !and => kept.extend_from_slice(&inner),
                _ => kept.push(part),
            }
        }
        let mut seen = rustc_hash::FxHashSet::default();
        kept.retain(|&part| seen.insert(part));
        match kept[..] {
            [] => self.bool(and),
            [only] => only,
            _ if and => {
                let hint = kept.iter().all(|&part| self.cond_hint(part));
                self.intern_condition(Condition::And(kept.into_boxed_slice()), hint)
            }
            _ => {
                let hint = kept.iter().any(|&part| self.cond_hint(part));
                self.intern_condition(Condition::Or(kept.into_boxed_slice()), hint)
            }
        }
    }

    /// It doesn't hold.
    pub fn not(&mut self, c: CondId) -> CondId {
        let hint = !self.cond_hint(c);
        match self.condition(c).clone() {
            Condition::Bool(value) => self.bool(!value),
            Condition::Int(op, a, b) => {
                self.intern_condition(Condition::Int(op.negated(), a, b), hint)
            }
            Condition::Float(op @ (Cmp::Eq | Cmp::Ne), a, b) => {
                self.intern_condition(Condition::Float(op.negated(), a, b), hint)
            }
            Condition::Float(..) | Condition::FloatIs(..) => {
                self.intern_condition(Condition::Not(c), hint)
            }
            Condition::And(parts) => {
                let parts: Vec<CondId> = parts.iter().map(|&part| self.not(part)).collect();
                self.or(&parts)
            }
            Condition::Or(parts) => {
                let parts: Vec<CondId> = parts.iter().map(|&part| self.not(part)).collect();
                self.and(&parts)
            }
            Condition::Not(inner) => inner,
        }
    }

    /// Whether it held in the recorded call.
    pub fn cond_hint(&self, c: CondId) -> bool {
        self.condition_hints[c.index()]
    }

    pub(crate) fn condition(&self, c: CondId) -> &Condition {
        &self.conditions[c.index()]
    }

    pub(crate) fn intern_condition(&mut self, condition: Condition, hint: bool) -> CondId {
        if let Some(&id) = self.condition_ids.get(&condition) {
            return id;
        }
        let id = CondId::new(self.conditions.len());
        self.conditions.push(condition.clone());
        self.condition_hints.push(hint);
        self.condition_ids.insert(condition, id);
        id
    }

    /// The condition in terms of what is known.
    pub(crate) fn simplify_condition(&mut self, c: CondId) -> CondId {
        match self.condition(c).clone() {
            Condition::Bool(_) => c,
            Condition::Int(op, a, b) => self.compare(op, a, b),
            Condition::Float(op, a, b) => {
                let (a, b) = (self.simplify_float(a), self.simplify_float(b));
                self.compare_floats(op, a, b)
            }
            Condition::FloatIs(a, bits) => {
                let a = self.simplify_float(a);
                self.float_is(a, f64::from_bits(bits))
            }
            Condition::And(parts) => {
                let parts: Vec<_> =
                    parts.iter().map(|&part| self.simplify_condition(part)).collect();
                self.and(&parts)
            }
            Condition::Or(parts) => {
                let parts: Vec<_> =
                    parts.iter().map(|&part| self.simplify_condition(part)).collect();
                self.or(&parts)
            }
            Condition::Not(inner) => {
                let inner = self.simplify_condition(inner);
                self.not(inner)
            }
        }
    }
}
