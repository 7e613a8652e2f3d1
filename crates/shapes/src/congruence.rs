//! Congruences: what is known of an integer's rest.

use crate::arith::{gcd, inverse};

/// The integers `rest + k * modulus`. A modulus of zero means exactly `rest`, one of one nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Congruence {
    pub(crate) modulus: i64,
    pub(crate) rest: i64,
}

impl Congruence {
    /// Nothing is known.
    pub(crate) const ANY: Congruence = Congruence { modulus: 1, rest: 0 };

    pub(crate) const fn exactly(value: i64) -> Self {
        Self { modulus: 0, rest: value }
    }

    fn new(modulus: u64, rest: i128) -> Self {
        match i64::try_from(modulus) {
            Ok(0) => i64::try_from(rest).map_or(Self::ANY, Self::exactly),
            Ok(modulus) => {
                // The euclidean rest is below the modulus, so it fits.
                let rest = i64::try_from(rest.rem_euclid(modulus.into())).unwrap_or(0);
                Self { modulus, rest }
            }
            Err(_) => Self::ANY,
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let modulus = gcd(self.modulus, other.modulus);
        Self::new(modulus, i128::from(self.rest) + i128::from(other.rest))
    }

    pub(crate) fn mul(self, other: Self) -> Self {
        let product = |a: i64, b: i64| a.checked_mul(b);
        let cross = (
            product(self.modulus, other.modulus),
            product(self.modulus, other.rest),
            product(other.modulus, self.rest),
            product(self.rest, other.rest),
        );
        let (Some(both), Some(left), Some(right), Some(rest)) = cross else { return Self::ANY };
        let left = i64::try_from(gcd(left, right)).unwrap_or(1);
        Self::new(gcd(both, left), rest.into())
    }

    /// The rest by `k > 0`, if it is known.
    pub(crate) fn rest_by(self, k: i64) -> Option<i64> {
        (self.modulus % k == 0).then(|| self.rest.rem_euclid(k))
    }

    /// Both are known. None if no integer has both, or if the modulus leaves 64 bits.
    pub(crate) fn meet(self, other: Self) -> Option<Self> {
        if self.modulus == 0 || other.modulus == 0 {
            let (point, class) = if self.modulus == 0 { (self, other) } else { (other, self) };
            return class.contains(point.rest).then_some(point);
        }
        let common = i128::from(gcd(self.modulus, other.modulus));
        let (m, n) = (i128::from(self.modulus), i128::from(other.modulus));
        let difference = i128::from(other.rest) - i128::from(self.rest);
        if difference % common != 0 {
            return None;
        }
        let lcm = i64::try_from(m / common * n).ok()?;
        // Solve self.rest + m * t == other.rest (mod n).
        let n = n / common;
        let t = (difference / common).rem_euclid(n) * inverse(m / common, n)? % n;
        let rest = i128::from(self.rest) + m * t;
        Some(Self::new(lcm.unsigned_abs(), rest))
    }

    pub(crate) fn contains(self, value: i64) -> bool {
        if self.modulus == 0 {
            value == self.rest
        } else {
            (i128::from(value) - i128::from(self.rest)) % i128::from(self.modulus) == 0
        }
    }
}
