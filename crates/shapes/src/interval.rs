//! Intervals of integers.

use crate::arith::floor_div_wide;

/// The integers from `lo` to `hi`, both included. `i64::MIN` and `i64::MAX` as ends mean that there
/// is no bound: expressions are compared as mathematical integers, which may leave 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The lower end.
    pub lo: i64,
    /// The upper end.
    pub hi: i64,
}

const NO_LO: i64 = i64::MIN;
const NO_HI: i64 = i64::MAX;

/// The nearest number of 64 bits. A lower end that is too high is still a lower end, so is an upper
/// one that is too low.
#[allow(clippy::cast_possible_truncation)]
fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl Interval {
    /// All integers.
    pub const ALL: Interval = Interval { lo: NO_LO, hi: NO_HI };

    /// From `lo` to `hi`.
    pub const fn new(lo: i64, hi: i64) -> Self {
        Self { lo, hi }
    }

    /// One integer. An end of 64 bits is as good as unbounded.
    pub const fn point(value: i64) -> Self {
        Self { lo: value, hi: value }
    }

    /// The only integer in it. None where an end is a missing bound.
    pub fn as_point(self) -> Option<i64> {
        (self.lo == self.hi && self.lo != NO_LO && self.lo != NO_HI).then_some(self.lo)
    }

    /// Whether it holds the value, or may.
    pub fn contains(self, value: i64) -> bool {
        self.lo <= value && value <= self.hi
    }

    pub(crate) fn meet(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    fn wide(self) -> (i128, i128) {
        (self.lo.into(), self.hi.into())
    }

    /// Ends that were computed from ends: missing where one of those was.
    fn ends(lo: i128, hi: i128, no_lo: bool, no_hi: bool) -> Self {
        Self {
            lo: if no_lo { NO_LO } else { clamp(lo) },
            hi: if no_hi { NO_HI } else { clamp(hi) },
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        Self::ends(
            a + c,
            b + d,
            self.lo == NO_LO || other.lo == NO_LO,
            self.hi == NO_HI || other.hi == NO_HI,
        )
    }

    pub(crate) fn scale(self, by: i64) -> Self {
        self.mul(Self::point(by))
    }

    /// The integers whose multiples by `k > 0` it holds.
    pub(crate) fn divide(self, k: i64) -> Self {
        let (lo, hi) = (i128::from(self.lo), i128::from(self.hi));
        let k = i128::from(k);
        let up = -floor_div_wide(-lo, k);
        Self::ends(up, floor_div_wide(hi, k), self.lo == NO_LO, self.hi == NO_HI)
    }

    pub(crate) fn neg(self) -> Self {
        let end = |value: i64, none: i64, negated: i64| {
            if value == none { negated } else { value.saturating_neg() }
        };
        Self { lo: end(self.hi, NO_HI, NO_LO), hi: end(self.lo, NO_LO, NO_HI) }
    }

    pub(crate) fn mul(self, other: Self) -> Self {
        // Missing ends take part as 64-bit numbers: with a factor of at least one in magnitude the
        // product is beyond 64 bits again, so it is a missing end again; with zero it is zero.
        let ((a, b), (c, d)) = (self.wide(), other.wide());
        let products = [a * c, a * d, b * c, b * d];
        let lo = products.iter().copied().min().unwrap_or(0);
        let hi = products.iter().copied().max().unwrap_or(0);
        // `i64::MAX` times one in magnitude, negated, is one short of `i64::MIN`.
        let slack = i128::from(i64::MIN) + 1;
        Self { lo: if lo <= slack { NO_LO } else { clamp(lo) }, hi: clamp(hi) }
    }

    pub(crate) fn pow(self, exponent: u32) -> Self {
        if exponent.is_multiple_of(2) && self.lo < 0 {
            // An even power is a power of the magnitude.
            return self.abs().pow(exponent);
        }
        (0..exponent).fold(Self::point(1), |power, _| power.mul(self))
    }

    pub(crate) fn abs(self) -> Self {
        if self.lo >= 0 {
            self
        } else if self.hi <= 0 {
            self.neg()
        } else {
            Self { lo: 0, hi: self.neg().hi.max(self.hi) }
        }
    }

    /// Of `x // k`, where `k` isn't zero.
    pub(crate) fn floor_div(self, divisor: Self) -> Self {
        if divisor.hi < 0 {
            return self.neg().floor_div(divisor.neg());
        }
        if divisor.lo <= 0 {
            // The sign of the divisor isn't known: the quotient is at most as large.
            let bound = self.abs();
            return Self { lo: bound.neg().lo, hi: bound.hi };
        }
        let ((a, b), (c, d)) = (self.wide(), divisor.wide());
        // A missing end of the divisor means arbitrarily large divisors, a quotient towards zero.
        let lo = if a >= 0 {
            if divisor.hi == NO_HI { 0 } else { floor_div_wide(a, d) }
        } else {
            floor_div_wide(a, c)
        };
        let hi = if b >= 0 {
            floor_div_wide(b, c)
        } else if divisor.hi == NO_HI {
            -1
        } else {
            floor_div_wide(b, d)
        };
        Self::ends(lo, hi, self.lo == NO_LO, self.hi == NO_HI)
    }

    /// Of `x % k`, where `k` isn't zero.
    pub(crate) fn modulo(self, divisor: Self) -> Self {
        let below = |end: i64| if end == NO_HI { NO_HI } else { end - 1 };
        if divisor.lo > 0 {
            let mut rest = Self { lo: 0, hi: below(divisor.hi) };
            if self.lo >= 0 {
                rest.hi = rest.hi.min(self.hi);
            }
            rest
        } else if divisor.hi < 0 {
            self.neg().modulo(divisor.neg()).neg()
        } else {
            let up = Self { lo: 0, hi: below(divisor.hi.max(1)) };
            let down = Self { lo: 0, hi: below(divisor.neg().hi.max(1)) }.neg();
            Self { lo: down.lo, hi: up.hi }
        }
    }

    pub(crate) fn min(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.min(other.hi) }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }
}
