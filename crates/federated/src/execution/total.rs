//! Sums of floating-point numbers: added in 64 bits, with what each addition loses kept beside, and
//! rounded once. So the number of clients costs no precision.

use crate::dtype::DType;

/// A row of sums.
#[derive(Debug)]
pub struct Total {
    sums: Vec<f64>,
    /// What the additions have lost so far.
    lost: Vec<f64>,
}

impl Total {
    /// So many zeros.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { sums: vec![0.0; count], lost: vec![0.0; count] }
    }

    /// Adds a row, times a weight.
    pub fn add(&mut self, row: &[f64], weight: f64) {
        for ((sum, lost), &number) in self.sums.iter_mut().zip(&mut self.lost).zip(row) {
            let number = number * weight;
            let next = *sum + number;
            // What of each was lost, exactly.
            let kept = next - *sum;
            *lost += (*sum - (next - kept)) + (number - kept);
            *sum = next;
        }
    }

    /// The sums, divided, as numbers that convert to the element type with one rounding.
    #[must_use]
    pub fn finish(self, divided_by: Option<f64>, dtype: DType) -> Vec<f64> {
        let finish = |(sum, lost): (f64, f64)| {
            let whole = sum + lost;
            // Infinities have lost nothing that is a number.
            let whole = if whole.is_nan() { sum } else { whole };
            let whole = divided_by.map_or(whole, |by| whole / by);
            if dtype == DType::BFloat16 { to_odd(whole) } else { whole }
        };
        self.sums.into_iter().zip(self.lost).map(finish).collect()
    }
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

    #[test]
    fn nothing_is_lost() {
        let mut total = Total::new(1);
        for number in [1e16, 1.0, 1.0, -1e16] {
            total.add(&[number], 1.0);
        }
        assert_eq!(total.finish(None, DType::Float64), [2.0]);
    }

    #[test]
    fn infinities_stay() {
        for (numbers, expected) in
            [([1.0, f64::INFINITY], f64::INFINITY), ([1e308, 1e308], f64::INFINITY)]
        {
            let mut total = Total::new(1);
            numbers.iter().for_each(|number| total.add(&[*number], 1.0));
            assert_eq!(total.finish(None, DType::Float64), [expected]);
        }
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
