//! Python's arithmetic on 64-bit integers and on floats, checked.

use crate::{Error, Result};

/// `a // b`, rounded down.
pub(crate) fn floor_div(a: i64, b: i64) -> Result<i64> {
    if b == 0 {
        return Err(Error::ZeroDivision);
    }
    let quotient = a.checked_div(b).ok_or(Error::Overflow)?;
    Ok(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// `a % b`, with the sign of `b`.
pub(crate) fn modulo(a: i64, b: i64) -> Result<i64> {
    if b == 0 {
        return Err(Error::ZeroDivision);
    }
    // `i64::MIN % -1` is 0, but Rust's remainder of it overflows.
    let rest = a.checked_rem(b).unwrap_or(0);
    Ok(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

/// `a // b` for 128 bits, with `b` positive.
pub(crate) fn floor_div_wide(a: i128, b: i128) -> i128 {
    a.div_euclid(b)
}

pub(crate) fn gcd(a: i64, b: i64) -> u64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The inverse of `a` modulo `n > 0`, if there is one. Both fit into 64 bits.
pub(crate) fn inverse(a: i128, n: i128) -> Option<i128> {
    let (mut old, mut new) = ((a.rem_euclid(n), 1i128), (n, 0i128));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0 == 1).then(|| old.1.rem_euclid(n))
}

/// The integers up to here are floats.
pub(crate) const EXACT: i64 = 1 << 53;

/// `a / b` of integers: the float nearest to the quotient, as Python computes it.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn true_div(a: i64, b: i64) -> Result<f64> {
    if b == 0 {
        return Err(Error::ZeroDivision);
    }
    if a.unsigned_abs() <= EXACT as u64 && b.unsigned_abs() <= EXACT as u64 {
        return Ok(a as f64 / b as f64);
    }
    // A quotient of at least 60 bits whose last one also says whether there is a rest: rounding it
    // to 53 bits rounds the exact quotient.
    let (dividend, divisor) = (u128::from(a.unsigned_abs()), u128::from(b.unsigned_abs()));
    let length = |n: u128| 128 - n.leading_zeros() as i32;
    let shift = (60 - (length(dividend) - length(divisor))).max(0);
    let shifted = dividend << shift;
    let quotient = (shifted / divisor) | u128::from(shifted % divisor != 0);
    let magnitude = quotient as f64 * 2f64.powi(-shift);
    Ok(if (a < 0) == (b < 0) { magnitude } else { -magnitude })
}

/// A float without fraction as an integer.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub(crate) fn to_integer(whole: f64) -> Result<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if whole.is_nan() || whole.is_infinite() {
        Err(Error::Undefined)
    } else if (-END..END).contains(&whole) {
        Ok(whole as i64)
    } else {
        Err(Error::Overflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down() {
        for (a, b, quotient, rest) in [
            (7, 2, 3, 1),
            (-7, 2, -4, 1),
            (7, -2, -4, -1),
            (-7, -2, 3, -1),
            (6, -2, -3, 0),
            (i64::MIN, 1, i64::MIN, 0),
            (i64::MIN, i64::MAX, -2, i64::MAX - 1),
        ] {
            assert_eq!(floor_div(a, b), Ok(quotient), "{a} // {b}");
            assert_eq!(modulo(a, b), Ok(rest), "{a} % {b}");
        }
        assert_eq!(floor_div(i64::MIN, -1), Err(Error::Overflow));
        assert_eq!(modulo(i64::MIN, -1), Ok(0));
        assert_eq!(floor_div(1, 0), Err(Error::ZeroDivision));
        assert_eq!(modulo(1, 0), Err(Error::ZeroDivision));
    }

    #[test]
    fn quotients_of_large_integers_round_once() {
        // As CPython 3.11 computes them.
        for (a, b, quotient) in [
            (9_007_199_254_740_993, 1, 9_007_199_254_740_992.0),
            (9_223_372_036_854_775_807, 9_007_199_254_740_993, 1_023.999_999_999_999_9),
            (1, 9_223_372_036_854_775_807, 1.084_202_172_485_504_4e-19),
            (i64::MIN, -1, 9_223_372_036_854_775_808.0),
            (i64::MIN, 3, -3.074_457_345_618_258_4e18),
            (0, i64::MIN, 0.0),
        ] {
            assert_eq!(true_div(a, b), Ok(quotient), "{a} / {b}");
        }
    }
}
