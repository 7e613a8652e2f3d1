//! Sums of floating-point numbers that lose nothing: they are rounded once, at the end. So neither the
//! number of clients nor the order in which they are added makes a difference, and sums of parts of the
//! clients are merged into the same numbers that one sum of all of them has.

use std::ops::Range;

use crate::dtype::DType;

/// How many rows of 32-bit numbers are added to each other before they are added to the total, at most.
const ROWS: usize = 8;

/// How many columns of them at a time: they stay in the processor's nearest memory.
const COLUMNS: usize = 256;

/// The greatest weight with which a 32-bit number is multiplied exactly, if it is a whole number: their digits together
/// are those of a 64-bit one.
const EXACT_WEIGHT: f64 = (1u64 << 29) as f64;

/// A row of sums, each in several 64-bit numbers.
#[derive(Debug)]
pub struct Total {
    /// The sum is that of all rows, exactly: the first has what plain additions give, each further one
    /// what those of the row before it have lost. There are more than two only where numbers need them.
    rows: Vec<Vec<f64>>,
    /// What the last row has lost, while something is added.
    lost: Vec<f64>,
}

impl Total {
    /// So many zeros.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { rows: vec![vec![0.0; count]; 2], lost: vec![0.0; count] }
    }

    /// The total that has these rows, of which there is one at least.
    #[must_use]
    pub fn from_rows(mut rows: Vec<Vec<f64>>) -> Self {
        let count = rows[0].len();
        if rows.len() == 1 {
            rows.push(vec![0.0; count]);
        }
        Self { rows, lost: vec![0.0; count] }
    }

    /// Adds a row, times a weight.
    pub fn add(&mut self, row: &[f64], weight: f64) {
        self.add_each(row.iter().copied(), weight);
    }

    /// Adds numbers, times a weight.
    pub fn add_each(&mut self, row: impl Iterator<Item = f64>, weight: f64) {
        self.add_from(0, row.map(|number| number * weight));
    }

    /// Adds rows of 32-bit numbers that stand one after the other, each times its weight. `numbers` gives those in a
    /// range.
    ///
    /// Most rows can be added to each other by plain additions that lose nothing, because their numbers are of similar
    /// sizes and 64 bits have digits to spare. The total then costs one exact addition for all of them.
    pub fn add_singles<I: Iterator<Item = f32>>(
        &mut self,
        rows: usize,
        weights: Option<&[f64]>,
        numbers: impl Fn(Range<usize>) -> I,
    ) {
        let count = self.lost.len();
        let mut tile = [[0.0f32; COLUMNS]; ROWS];
        let mut sums = [0.0f64; COLUMNS];
        for first in (0..rows).step_by(ROWS) {
            let weight = |at: usize| weights.map_or(1.0, |weights| weights[first + at]);
            let height = ROWS.min(rows - first);
            let greatest = (0..height).map(weight).try_fold(0.0f64, |greatest, weight| {
                let is_exact = weight.fract() == 0.0 && weight.abs() <= EXACT_WEIGHT;
                is_exact.then(|| greatest.max(weight.abs()))
            });
            for start in (0..count).step_by(COLUMNS) {
                let width = COLUMNS.min(count - start);
                for (at, row) in tile[..height].iter_mut().enumerate() {
                    let from = (first + at) * count + start;
                    row.iter_mut().zip(numbers(from..from + width)).for_each(|(to, of)| *to = of);
                }
                let rows = || tile[..height].iter().map(|row| &row[..width]);
                if greatest.is_some_and(|greatest| are_alike(rows, greatest * height as f64)) {
                    let sums = &mut sums[..width];
                    sums.fill(0.0);
                    for (at, row) in rows().enumerate() {
                        let weight = weight(at);
                        let pairs = sums.iter_mut().zip(row);
                        pairs.for_each(|(sum, number)| *sum += f64::from(*number) * weight);
                    }
                    self.add_from(start, sums.iter().copied());
                } else {
                    for (at, row) in rows().enumerate() {
                        let weight = weight(at);
                        self.add_from(start, row.iter().map(|number| f64::from(*number) * weight));
                    }
                }
            }
        }
    }

    /// Adds numbers to the sums from one on.
    fn add_from(&mut self, start: usize, row: impl Iterator<Item = f64>) {
        let (first, rest) = self.rows.split_at_mut(1);
        let mut is_left = false;
        let mut end = start;
        let sums = first[0][start..].iter_mut().zip(&mut rest[0][start..]);
        for (((sum, low), lost), number) in sums.zip(&mut self.lost[start..]).zip(row) {
            let carry;
            (*sum, carry) = two_sum(*sum, number);
            (*low, *lost) = two_sum(*low, carry);
            is_left |= *lost != 0.0;
            end += 1;
        }
        for low in &mut rest[1..] {
            if !is_left {
                return;
            }
            is_left = false;
            for (low, lost) in low[start..end].iter_mut().zip(&mut self.lost[start..end]) {
                (*low, *lost) = two_sum(*low, *lost);
                is_left |= *lost != 0.0;
            }
        }
        if is_left {
            let mut row = vec![0.0; self.lost.len()];
            row[start..end].copy_from_slice(&self.lost[start..end]);
            self.rows.push(row);
        }
    }

    /// The sum of single numbers, rounded once.
    #[must_use]
    pub fn number(self) -> f64 {
        self.finish(None, DType::Float64)[0]
    }

    /// The rows: adding them to another total adds all that was added to this one.
    #[must_use]
    pub fn into_rows(self) -> Vec<Vec<f64>> {
        self.rows
    }

    /// The sums, divided, as numbers that convert to the element type with one rounding.
    #[must_use]
    pub fn finish(self, divided_by: Option<f64>, dtype: DType) -> Vec<f64> {
        let finish = |at: usize| {
            let first = self.rows[0][at];
            let whole = match &*self.rows {
                // Infinities have lost nothing that is a number.
                _ if !first.is_finite() => first,
                [_, low] => first + low[at],
                rows => nearest(rows.iter().map(|row| row[at])),
            };
            let whole = divided_by.map_or(whole, |by| whole / by);
            if dtype == DType::BFloat16 { to_odd(whole) } else { whole }
        };
        (0..self.lost.len()).map(finish).collect()
    }
}

/// Whether plain additions of such numbers, times whole numbers, lose nothing. `most` is how many times the greatest of
/// them what is added in one place can be.
///
/// All are multiples of the last digit of the least one that isn't zero, and so is each sum of them; what 64-bit numbers
/// have are all multiples of that digit below 2^53 of it. The digit is more than 2^-24 of its number: half of what
/// that leaves is enough for roundings of the bound itself.
fn are_alike<'a, I: Iterator<Item = &'a [f32]>>(rows: impl Fn() -> I, most: f64) -> bool {
    /// Without their signs, numbers are in the order of their bits; what is no number comes after all of them.
    fn bits(number: f32) -> i32 {
        number.abs().to_bits().cast_signed()
    }
    let greatest = rows().flatten().fold(0, |greatest, number| greatest.max(bits(*number)));
    let bound = f64::from(f32::from_bits(greatest.cast_unsigned())) * most / f64::from(1u32 << 28);
    let bound = bound as f32;
    if !bound.is_finite() {
        return false;
    }
    let bound = bits(bound);
    let is_small = |number: &f32| (bits(*number) > 0) & (bits(*number) < bound);
    !rows().flatten().fold(false, |any, number| any | is_small(number))
}

/// The sum of two numbers, and what it lost, exactly. Infinite sums have lost nothing.
fn two_sum(left: f64, right: f64) -> (f64, f64) {
    let sum = left + right;
    let kept = sum - left;
    let lost = (left - (sum - kept)) + (right - kept);
    (sum, if lost.is_finite() { lost } else { 0.0 })
}

/// The number nearest to the sum of finite numbers; of two that are as near, the even one.
fn nearest(numbers: impl Iterator<Item = f64>) -> f64 {
    // The sum in parts that don't overlap, the greatest last.
    let mut parts: Vec<f64> = Vec::new();
    for mut number in numbers {
        let mut kept = 0;
        for at in 0..parts.len() {
            let lost;
            (number, lost) = two_sum(number, parts[at]);
            if lost != 0.0 {
                parts[kept] = lost;
                kept += 1;
            }
        }
        parts.truncate(kept);
        parts.push(number);
    }
    let mut sum = parts.pop().unwrap_or_default();
    while let Some(part) = parts.pop() {
        let lost;
        (sum, lost) = two_sum(sum, part);
        if lost == 0.0 {
            continue;
        }
        // Half of the last digit was rounded to the even side: the parts below say which side is right.
        let beyond = sum + 2.0 * lost;
        if beyond - sum == 2.0 * lost && parts.last().is_some_and(|part| part * lost.signum() > 0.0)
        {
            sum = beyond;
        }
        break;
    }
    sum
}

/// The number as one of 32 bits that rounds to the same number of 16 bits: libraries convert to
/// bfloat16 by way of 32 bits. Of the two next to it, that whose last bit is set.
fn to_odd(number: f64) -> f64 {
    let near = number as f32;
    if f64::from(near) == number || !near.is_finite() {
        return f64::from(near);
    }
    let is_beyond = f64::from(near).abs() > number.abs();
    let toward_zero = if is_beyond { near.to_bits() - 1 } else { near.to_bits() };
    f64::from(f32::from_bits(toward_zero | 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> f64 {
        let mut total = Total::new(1);
        numbers.iter().for_each(|number| total.add(&[*number], 1.0));
        total.number()
    }

    #[test]
    fn nothing_is_lost() {
        assert_eq!(of(&[1e16, 1.0, 1.0, -1e16]), 2.0);
        assert_eq!(of(&[1e100, 1.0, 1e-100, -1e100]), 1.0);
        assert_eq!(of(&[1e300, 1e100, 1.0, 1e-300, -1.0, -1e100, -1e300]), 1e-300);
        assert_eq!(of(&[]), 0.0);
    }

    #[test]
    fn halves_are_rounded_to_the_right_side() {
        // Half of the last digit of 1, and what is above or below it by next to nothing.
        let half = f64::EPSILON / 2.0;
        assert_eq!(of(&[1.0, half]), 1.0);
        assert_eq!(of(&[1.0, half, 1e-200]), 1.0 + f64::EPSILON);
        assert_eq!(of(&[1.0, half, -1e-200]), 1.0);
        let odd = 1.0 + f64::EPSILON;
        assert_eq!(of(&[odd, half, -1e-200]), odd);
        assert_eq!(of(&[-odd, -half, 1e-200]), -odd);
    }

    #[test]
    fn infinities_stay() {
        for (numbers, expected) in
            [([1.0, f64::INFINITY], f64::INFINITY), ([1e308, 1e308], f64::INFINITY)]
        {
            assert_eq!(of(&numbers), expected);
        }
        assert!(of(&[f64::INFINITY, 1.0, f64::NEG_INFINITY]).is_nan());
        assert!(of(&[1.0, f64::NAN, 1e300]).is_nan());
    }

    #[test]
    fn neither_order_nor_parts_make_a_difference() {
        // A small generator: numbers whose exponents differ by up to a few hundred.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mantissa = f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0;
            mantissa * 2f64.powi(((state >> 8) % 400) as i32 - 200)
        };
        for _ in 0..200 {
            let numbers: Vec<f64> = (0..40).map(|_| draw()).collect();
            let expected = of(&numbers).to_bits();
            let reversed: Vec<f64> = numbers.iter().rev().copied().collect();
            assert_eq!(of(&reversed).to_bits(), expected);
            for size in [1, 3, 7, 39] {
                let mut whole = Total::new(1);
                for chunk in numbers.chunks(size) {
                    let mut part = Total::new(1);
                    chunk.iter().for_each(|number| part.add(&[*number], 1.0));
                    part.into_rows().iter().for_each(|row| whole.add(row, 1.0));
                    // On its way to another process.
                    whole = Total::from_rows(whole.into_rows());
                }
                assert_eq!(whole.finish(None, DType::Float64)[0].to_bits(), expected);
            }
        }
    }

    #[test]
    fn rows_at_once_are_rows_one_by_one() {
        let mut state = 7u64;
        let mut draw = |bits: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 >> (31 - bits)
        };
        // How far exponents are apart, from what never loses anything to what always does.
        for (spread, most) in [(0, 1), (3, 1), (4, 40), (6, 1 << 20), (8, 1 << 29), (8, u32::MAX)] {
            for (rows, count) in [(1, 1), (3, 1), (8, 5), (9, 256), (21, 300), (2, 700)] {
                let mut numbers: Vec<f32> = (0..rows * count)
                    .map(|_| {
                        let exponent = (127u32 + draw(spread)).wrapping_sub(draw(spread)) % 254;
                        f32::from_bits(draw(1) << 31 | exponent << 23 | draw(23))
                    })
                    .collect();
                let zeros = numbers.len() / 9;
                numbers[..zeros].fill(0.0);
                if spread == 8 {
                    *numbers.last_mut().unwrap() = f32::INFINITY;
                    numbers[zeros] = f32::from_bits(1);
                }
                let weights: Vec<f64> = (0..rows)
                    .map(|_| f64::from(draw(31) % most) + if most == u32::MAX { 0.3 } else { 0.0 })
                    .collect();
                for weights in [None, Some(&*weights)] {
                    let mut expected = Total::new(count);
                    for (at, row) in numbers.chunks(count).enumerate() {
                        let weight = weights.map_or(1.0, |weights| weights[at]);
                        expected.add_each(row.iter().copied().map(f64::from), weight);
                    }
                    let mut found = Total::new(count);
                    found.add_singles(rows, weights, |range| numbers[range].iter().copied());
                    let bits = |total: Total| -> Vec<u64> {
                        total.finish(None, DType::Float64).iter().map(|of| of.to_bits()).collect()
                    };
                    assert_eq!(bits(found), bits(expected), "{spread} {most} {rows} {count}");
                }
            }
        }
    }

    #[test]
    fn similar_numbers_lose_nothing() {
        let alike = |row: &[f32], most| are_alike(|| std::iter::once(row), most);
        assert!(alike(&[1.0, -3.0, 0.0, 1e-3], 8.0));
        assert!(alike(&[0.0, -0.0], 8.0) && alike(&[f32::MIN_POSITIVE, f32::from_bits(1)], 8.0));
        assert!(!alike(&[1.0, 1e-8], 8.0) && !alike(&[1.0, 1e-3], 1e9));
        assert!(!alike(&[f32::NAN, 1.0], 8.0) && !alike(&[1.0, f32::NEG_INFINITY], 8.0));
    }

    #[test]
    fn rounding_to_odd_keeps_the_side() {
        // Just above the middle of two bfloat16 numbers: 32 bits would round to the middle itself.
        let middle = 1.0 + 1.0 / 256.0;
        let above = to_odd(middle + 1e-12) as f32;
        assert!(f64::from(above) > middle);
        assert!(f64::from(to_odd(-middle - 1e-12) as f32) < -middle);
        assert_eq!(to_odd(1.5), 1.5);
    }
}
