//! Programs over integers, as plain Python computes them: what the crate is compared with.

use proptest::prelude::*;
use stator_shapes::{Cmp, CondId, Context, Error, ExprId, Rounding};

/// An integer expression of a program.
#[derive(Clone, Debug)]
pub enum Int {
    Symbol(usize),
    Constant(i64),
    Add(Box<Int>, Box<Int>),
    Sub(Box<Int>, Box<Int>),
    Mul(Box<Int>, Box<Int>),
    FloorDiv(Box<Int>, Box<Int>),
    Mod(Box<Int>, Box<Int>),
    Min(Box<Int>, Box<Int>),
    Max(Box<Int>, Box<Int>),
    Neg(Box<Int>),
    Abs(Box<Int>),
    Pow(Box<Int>, u32),
    /// `math.floor(a / b)` and its like.
    Round(Rounding, Box<Int>, Box<Int>),
}

/// A condition of a program.
#[derive(Clone, Debug)]
pub enum Bool {
    Compare(Cmp, Int, Int),
    And(Box<Bool>, Box<Bool>),
    Or(Box<Bool>, Box<Bool>),
    Not(Box<Bool>),
}

/// Python's `a // b`; None where it raises.
pub fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// Python's `a % b`.
pub fn modulo(a: i128, b: i128) -> Option<i128> {
    a.checked_sub(floor_div(a, b)?.checked_mul(b)?)
}

impl Int {
    /// The value in exact arithmetic; None where Python raises.
    pub fn value(&self, symbols: &[i64]) -> Option<i128> {
        let of = |e: &Int| e.value(symbols);
        Some(match self {
            Int::Symbol(i) => symbols[*i].into(),
            Int::Constant(value) => (*value).into(),
            Int::Add(a, b) => of(a)?.checked_add(of(b)?)?,
            Int::Sub(a, b) => of(a)?.checked_sub(of(b)?)?,
            Int::Mul(a, b) => of(a)?.checked_mul(of(b)?)?,
            Int::FloorDiv(a, b) => floor_div(of(a)?, of(b)?)?,
            Int::Mod(a, b) => modulo(of(a)?, of(b)?)?,
            Int::Min(a, b) => of(a)?.min(of(b)?),
            Int::Max(a, b) => of(a)?.max(of(b)?),
            Int::Neg(a) => of(a)?.checked_neg()?,
            Int::Abs(a) => of(a)?.checked_abs()?,
            Int::Pow(a, n) => of(a)?.checked_pow(*n)?,
            Int::Round(rounding, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                if b == 0 {
                    return None;
                }
                #[allow(clippy::cast_precision_loss)]
                let quotient = a as f64 / b as f64;
                let rounded = match rounding {
                    Rounding::Floor => quotient.floor(),
                    Rounding::Ceil => quotient.ceil(),
                    Rounding::Trunc => quotient.trunc(),
                    Rounding::Round => quotient.round_ties_even(),
                };
                #[allow(clippy::cast_possible_truncation)]
                let rounded = rounded as i128;
                rounded
            }
        })
    }

    /// The expression in a context.
    pub fn build(&self, ctx: &mut Context, symbols: &[ExprId]) -> Result<ExprId, Error> {
        let mut of = |e: &Int| e.build(ctx, symbols);
        match self {
            Int::Symbol(i) => Ok(symbols[*i]),
            Int::Constant(value) => Ok(ctx.constant(*value)),
            Int::Add(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.add(a, b)
            }
            Int::Sub(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.sub(a, b)
            }
            Int::Mul(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.mul(a, b)
            }
            Int::FloorDiv(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.floordiv(a, b)
            }
            Int::Mod(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.modulus(a, b)
            }
            Int::Min(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.min(&[a, b])
            }
            Int::Max(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ctx.max(&[a, b])
            }
            Int::Neg(a) => {
                let a = of(a)?;
                ctx.neg(a)
            }
            Int::Abs(a) => {
                let a = of(a)?;
                ctx.abs(a)
            }
            Int::Pow(a, n) => {
                let a = of(a)?;
                ctx.pow(a, *n)
            }
            Int::Round(rounding, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                let quotient = ctx.truediv(a, b)?;
                ctx.round(*rounding, quotient)
            }
        }
    }
}

impl Bool {
    /// The value, with every part computed (as building computes every part); None where Python raises.
    pub fn value(&self, symbols: &[i64]) -> Option<bool> {
        Some(match self {
            Bool::Compare(op, a, b) => op.holds(a.value(symbols)?, b.value(symbols)?),
            Bool::And(a, b) => a.value(symbols)? & b.value(symbols)?,
            Bool::Or(a, b) => a.value(symbols)? | b.value(symbols)?,
            Bool::Not(a) => !a.value(symbols)?,
        })
    }

    /// The condition in a context.
    pub fn build(&self, ctx: &mut Context, symbols: &[ExprId]) -> Result<CondId, Error> {
        Ok(match self {
            Bool::Compare(op, a, b) => {
                let (a, b) = (a.build(ctx, symbols)?, b.build(ctx, symbols)?);
                ctx.compare(*op, a, b)
            }
            Bool::And(a, b) => {
                let (a, b) = (a.build(ctx, symbols)?, b.build(ctx, symbols)?);
                ctx.and(&[a, b])
            }
            Bool::Or(a, b) => {
                let (a, b) = (a.build(ctx, symbols)?, b.build(ctx, symbols)?);
                ctx.or(&[a, b])
            }
            Bool::Not(a) => {
                let a = a.build(ctx, symbols)?;
                ctx.not(a)
            }
        })
    }
}

/// Expressions over so many symbols.
pub fn ints(symbols: usize) -> impl Strategy<Value = Int> + Clone {
    let leaf = prop_oneof![
        4 => (0..symbols).prop_map(Int::Symbol),
        2 => (-4i64..7).prop_map(Int::Constant),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let pair = (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            3 => pair.clone().prop_map(|(a, b)| Int::Add(a, b)),
            2 => pair.clone().prop_map(|(a, b)| Int::Sub(a, b)),
            3 => pair.clone().prop_map(|(a, b)| Int::Mul(a, b)),
            3 => pair.clone().prop_map(|(a, b)| Int::FloorDiv(a, b)),
            3 => pair.clone().prop_map(|(a, b)| Int::Mod(a, b)),
            2 => (inner.clone().prop_map(Box::new), 1i64..7)
                .prop_map(|(a, k)| Int::FloorDiv(a, Box::new(Int::Constant(k)))),
            2 => (inner.clone().prop_map(Box::new), 1i64..7)
                .prop_map(|(a, k)| Int::Mod(a, Box::new(Int::Constant(k)))),
            1 => pair.clone().prop_map(|(a, b)| Int::Min(a, b)),
            1 => pair.clone().prop_map(|(a, b)| Int::Max(a, b)),
            1 => inner.clone().prop_map(|a| Int::Neg(Box::new(a))),
            1 => inner.clone().prop_map(|a| Int::Abs(Box::new(a))),
            1 => (inner.clone().prop_map(Box::new), 0u32..4).prop_map(|(a, n)| Int::Pow(a, n)),
            1 => (roundings(), pair).prop_map(|(r, (a, b))| Int::Round(r, a, b)),
        ]
    })
}

fn roundings() -> impl Strategy<Value = Rounding> + Clone {
    prop::sample::select(vec![Rounding::Floor, Rounding::Ceil, Rounding::Trunc, Rounding::Round])
}

/// Comparisons.
pub fn comparisons() -> impl Strategy<Value = Cmp> + Clone {
    prop::sample::select(vec![Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge])
}

/// Conditions over so many symbols.
pub fn bools(symbols: usize) -> impl Strategy<Value = Bool> + Clone {
    let small = small_ints(symbols);
    let leaf = prop_oneof![
        1 => (comparisons(), ints(symbols), ints(symbols))
            .prop_map(|(op, a, b)| Bool::Compare(op, a, b)),
        3 => (comparisons(), small.clone(), small).prop_map(|(op, a, b)| Bool::Compare(op, a, b)),
    ];
    leaf.prop_recursive(2, 4, 2, |inner| {
        let pair = (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            pair.clone().prop_map(|(a, b)| Bool::And(a, b)),
            pair.prop_map(|(a, b)| Bool::Or(a, b)),
            inner.prop_map(|a| Bool::Not(Box::new(a))),
        ]
    })
}

/// What programs ask about most: multiples, sums, quotients and rests by constants.
fn small_ints(symbols: usize) -> impl Strategy<Value = Int> + Clone {
    let symbol = (0..symbols).prop_map(Int::Symbol);
    let scaled = (symbol.clone(), 1i64..4)
        .prop_map(|(a, k)| Int::Mul(Box::new(a), Box::new(Int::Constant(k))));
    prop_oneof![
        2 => symbol.clone(),
        3 => (-8i64..17).prop_map(Int::Constant),
        2 => scaled.clone(),
        2 => (scaled.clone(), scaled.clone())
            .prop_map(|(a, b)| Int::Add(Box::new(a), Box::new(b))),
        1 => (scaled.clone(), scaled.clone())
            .prop_map(|(a, b)| Int::Sub(Box::new(a), Box::new(b))),
        1 => (symbol.clone(), symbol).prop_map(|(a, b)| Int::Mul(Box::new(a), Box::new(b))),
        1 => (scaled.clone(), 2i64..5)
            .prop_map(|(a, k)| Int::FloorDiv(Box::new(a), Box::new(Int::Constant(k)))),
        2 => (scaled, 2i64..5)
            .prop_map(|(a, k)| Int::Mod(Box::new(a), Box::new(Int::Constant(k)))),
    ]
}

/// All assignments within ranges.
pub fn grid(ranges: &[(i64, i64)]) -> Vec<Vec<i64>> {
    ranges.iter().fold(vec![Vec::new()], |grid, &(lo, hi)| {
        grid.iter()
            .flat_map(|head| (lo..=hi).map(move |value| [head.as_slice(), &[value]].concat()))
            .collect()
    })
}
