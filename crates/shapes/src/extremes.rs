//! Minimum, maximum, absolute value.

use crate::context::Node;
use crate::{Context, Error, ExprId, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extreme {
    Min,
    Max,
}

impl Context {
    /// The smallest of at least one.
    pub fn min(&mut self, operands: &[ExprId]) -> Result<ExprId> {
        self.extreme(Extreme::Min, operands)
    }

    /// The largest of at least one.
    pub fn max(&mut self, operands: &[ExprId]) -> Result<ExprId> {
        self.extreme(Extreme::Max, operands)
    }

    fn extreme(&mut self, kind: Extreme, operands: &[ExprId]) -> Result<ExprId> {
        let mut left: Vec<ExprId> = Vec::with_capacity(operands.len());
        for &operand in operands {
            let operand = self.simplify(operand);
            match (kind, self.node(operand)) {
                (Extreme::Min, Node::Min(inner)) | (Extreme::Max, Node::Max(inner)) => {
                    let inner = inner.to_vec();
                    left.extend(inner);
                }
                _ => left.push(operand),
            }
            if left.len() > crate::MAX_SIZE as usize {
                return Err(Error::TooComplex);
            }
        }
        // Constants last: `Max(s0, 1)`.
        left.sort_by_key(|&e| (self.as_constant(e).is_some(), e));
        left.dedup();
        let mut kept: Vec<ExprId> = Vec::with_capacity(left.len());
        for candidate in left {
            // Of two that are equal the first stays.
            if kept.iter().any(|&other| self.is_beaten(kind, candidate, other)) {
                continue;
            }
            kept.retain(|&other| !self.is_beaten(kind, other, candidate));
            kept.push(candidate);
        }
        match kept[..] {
            [] => return Err(Error::Undefined),
            [only] => return Ok(only),
            _ => {}
        }
        let boxed = kept.clone().into_boxed_slice();
        let undefined = |best: Option<&i64>| best.copied().ok_or(Error::Undefined);
        match kind {
            Extreme::Min => {
                self.opaque(Node::Min(boxed), &kept, |hints| undefined(hints.iter().min()))
            }
            Extreme::Max => {
                self.opaque(Node::Max(boxed), &kept, |hints| undefined(hints.iter().max()))
            }
        }
    }

    /// Whether `other` is always at least as good. Asks only bounds: this is part of the normal form.
    fn is_beaten(&mut self, kind: Extreme, candidate: ExprId, other: ExprId) -> bool {
        let (large, small) = match kind {
            Extreme::Min => (candidate, other),
            Extreme::Max => (other, candidate),
        };
        let Ok(difference) = self.poly(large).sub(&self.poly(small)) else { return false };
        let Some(difference) = self.intern_poly_unhinted(difference) else { return false };
        self.interval(difference).lo >= 0
    }

    /// `abs(a)`
    pub fn abs(&mut self, a: ExprId) -> Result<ExprId> {
        let a = self.simplify(a);
        let interval = self.interval(a);
        if interval.lo >= 0 {
            return Ok(a);
        }
        if interval.hi <= 0 {
            return self.neg(a);
        }
        let poly = self.poly(a);
        let leads_negative = poly.terms.first().is_some_and(|term| term.coefficient < 0);
        let inner = if leads_negative { self.neg(a)? } else { a };
        self.opaque(Node::Abs(inner), &[inner], |hints| {
            hints[0].checked_abs().ok_or(Error::Overflow)
        })
    }
}
