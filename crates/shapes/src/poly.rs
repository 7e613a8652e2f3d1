//! Polynomials with integer coefficients over atoms.

use std::cmp::Ordering;

use smallvec::{SmallVec, smallvec};

use crate::arith::gcd;
use crate::{Error, ExprId, Result, SymbolId};

/// What polynomials are made of: a symbol, or a term that the polynomials don't look into.
/// Ordered: symbols first, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Atom(u32);

const OPAQUE: u32 = 1 << 31;

impl Atom {
    pub(crate) fn symbol(symbol: SymbolId) -> Self {
        Self(symbol.0)
    }

    pub(crate) fn opaque(expr: ExprId) -> Self {
        Self(expr.0 | OPAQUE)
    }

    pub(crate) fn as_symbol(self) -> Option<SymbolId> {
        (self.0 & OPAQUE == 0).then_some(SymbolId(self.0))
    }

    pub(crate) fn as_opaque(self) -> Option<ExprId> {
        (self.0 & OPAQUE != 0).then_some(ExprId(self.0 & !OPAQUE))
    }
}

/// A product of powers of atoms, sorted by atom. Empty: one.
pub(crate) type Factors = SmallVec<[(Atom, u32); 2]>;

/// A coefficient (never zero) and its product.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Term {
    pub(crate) factors: Factors,
    pub(crate) coefficient: i64,
}

/// A sum of terms with distinct products, in lexicographic order: `s0**2 + s0*s1 + s0 + s1 + 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Poly {
    pub(crate) terms: SmallVec<[Term; 3]>,
}

/// Lexicographic, the larger first: earlier atoms weigh more, the constant comes last.
fn order(a: &Factors, b: &Factors) -> Ordering {
    for (x, y) in a.iter().zip(b) {
        let earlier = x.0.cmp(&y.0).then(y.1.cmp(&x.1));
        if earlier != Ordering::Equal {
            return earlier;
        }
    }
    b.len().cmp(&a.len())
}

fn multiply(a: &Factors, b: &Factors) -> Factors {
    let mut product = Factors::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        match (a.peek(), b.peek()) {
            (Some(&&x), Some(&&y)) => match x.0.cmp(&y.0) {
                Ordering::Less => {
                    product.push(x);
                    a.next();
                }
                Ordering::Greater => {
                    product.push(y);
                    b.next();
                }
                Ordering::Equal => {
                    product.push((x.0, x.1 + y.1));
                    a.next();
                    b.next();
                }
            },
            (Some(&&x), None) => {
                product.push(x);
                a.next();
            }
            (None, Some(&&y)) => {
                product.push(y);
                b.next();
            }
            (None, None) => return product,
        }
    }
}

/// `a / b`, if `b` divides `a`.
fn divide(a: &Factors, b: &Factors) -> Option<Factors> {
    let mut quotient = a.clone();
    for &(atom, power) in b {
        let entry = quotient.iter_mut().find(|entry| entry.0 == atom)?;
        entry.1 = entry.1.checked_sub(power)?;
    }
    quotient.retain(|entry| entry.1 != 0);
    Some(quotient)
}

impl Term {
    pub(crate) fn is_constant(&self) -> bool {
        self.factors.is_empty()
    }

    /// The atom, if the term is one without power (and any coefficient).
    pub(crate) fn as_atom(&self) -> Option<Atom> {
        match self.factors[..] {
            [(atom, 1)] => Some(atom),
            _ => None,
        }
    }

    /// `self / other`, if it is a term with an integer coefficient.
    fn divide(&self, other: &Term) -> Option<Term> {
        if self.coefficient.checked_rem(other.coefficient)? != 0 {
            return None;
        }
        let factors = divide(&self.factors, &other.factors)?;
        Some(Term { factors, coefficient: self.coefficient / other.coefficient })
    }
}

impl Poly {
    pub(crate) fn constant(value: i64) -> Self {
        let terms = if value == 0 {
            SmallVec::new()
        } else {
            smallvec![Term { factors: Factors::new(), coefficient: value }]
        };
        Self { terms }
    }

    pub(crate) fn atom(atom: Atom) -> Self {
        Self { terms: smallvec![Term { factors: smallvec![(atom, 1)], coefficient: 1 }] }
    }

    pub(crate) fn as_constant(&self) -> Option<i64> {
        match &self.terms[..] {
            [] => Some(0),
            [term] if term.is_constant() => Some(term.coefficient),
            _ => None,
        }
    }

    /// The atom that it is.
    pub(crate) fn as_atom(&self) -> Option<Atom> {
        match &self.terms[..] {
            [term] if term.coefficient == 1 => term.as_atom(),
            _ => None,
        }
    }

    pub(crate) fn constant_term(&self) -> i64 {
        self.terms.last().filter(|term| term.is_constant()).map_or(0, |term| term.coefficient)
    }

    /// All terms but the constant.
    pub(crate) fn varying(&self) -> &[Term] {
        match self.terms.split_last() {
            Some((last, rest)) if last.is_constant() => rest,
            _ => &self.terms,
        }
    }

    pub(crate) fn add(&self, other: &Self) -> Result<Self> {
        let mut sum = Self { terms: SmallVec::with_capacity(self.terms.len() + other.terms.len()) };
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            match (a.peek(), b.peek()) {
                (Some(&x), Some(&y)) => match order(&x.factors, &y.factors) {
                    Ordering::Less => {
                        sum.terms.push(x.clone());
                        a.next();
                    }
                    Ordering::Greater => {
                        sum.terms.push(y.clone());
                        b.next();
                    }
                    Ordering::Equal => {
                        let coefficient =
                            x.coefficient.checked_add(y.coefficient).ok_or(Error::Overflow)?;
                        if coefficient != 0 {
                            sum.terms.push(Term { factors: x.factors.clone(), coefficient });
                        }
                        a.next();
                        b.next();
                    }
                },
                (Some(&x), None) => {
                    sum.terms.push(x.clone());
                    a.next();
                }
                (None, Some(&y)) => {
                    sum.terms.push(y.clone());
                    b.next();
                }
                (None, None) => return Ok(sum),
            }
        }
    }

    pub(crate) fn scale(&self, by: i64) -> Result<Self> {
        if by == 0 {
            return Ok(Self::default());
        }
        let mut scaled = self.clone();
        for term in &mut scaled.terms {
            term.coefficient = term.coefficient.checked_mul(by).ok_or(Error::Overflow)?;
        }
        Ok(scaled)
    }

    pub(crate) fn sub(&self, other: &Self) -> Result<Self> {
        self.add(&other.scale(-1)?)
    }

    pub(crate) fn mul(&self, other: &Self) -> Result<Self> {
        if let Some(value) = other.as_constant() {
            return self.scale(value);
        }
        if let Some(value) = self.as_constant() {
            return other.scale(value);
        }
        let mut terms = Vec::with_capacity(self.terms.len() * other.terms.len());
        for x in &self.terms {
            for y in &other.terms {
                let coefficient =
                    x.coefficient.checked_mul(y.coefficient).ok_or(Error::Overflow)?;
                terms.push(Term { factors: multiply(&x.factors, &y.factors), coefficient });
            }
        }
        Self::collect(terms)
    }

    /// The sum of terms in any order.
    pub(crate) fn collect(mut terms: Vec<Term>) -> Result<Self> {
        terms.sort_by(|x, y| order(&x.factors, &y.factors));
        let mut sum = Self::default();
        for term in terms {
            match sum.terms.last_mut() {
                Some(last) if last.factors == term.factors => {
                    last.coefficient =
                        last.coefficient.checked_add(term.coefficient).ok_or(Error::Overflow)?;
                }
                _ => {
                    // The one before has met all its equals.
                    sum.drop_zero();
                    sum.terms.push(term);
                }
            }
        }
        sum.drop_zero();
        Ok(sum)
    }

    fn drop_zero(&mut self) {
        if self.terms.last().is_some_and(|last| last.coefficient == 0) {
            self.terms.pop();
        }
    }

    /// The terms that `keep` takes, and the others.
    pub(crate) fn split(&self, mut keep: impl FnMut(&Term) -> bool) -> (Self, Self) {
        let (mut kept, mut others) = (Self::default(), Self::default());
        for term in &self.terms {
            let side = if keep(term) { &mut kept } else { &mut others };
            side.terms.push(term.clone());
        }
        (kept, others)
    }

    /// The greatest common divisor of all coefficients but the constant's.
    pub(crate) fn content(&self) -> i64 {
        let divisor = self
            .varying()
            .iter()
            .fold(0, |g: u64, term| gcd(i64::try_from(g).unwrap_or(1), term.coefficient));
        // 2^63 divides only itself and zero: nothing is lost by taking one.
        i64::try_from(divisor).unwrap_or(1)
    }

    /// All coefficients divided; they are multiples.
    pub(crate) fn divide_by(&self, divisor: i64) -> Self {
        let mut quotient = self.clone();
        for term in &mut quotient.terms {
            debug_assert_eq!(term.coefficient % divisor, 0);
            term.coefficient /= divisor;
        }
        quotient
    }

    /// `self == quotient * divisor + rest`, with as much in the quotient as the divisor's leading
    /// term allows.
    pub(crate) fn divide(&self, divisor: &Self) -> Result<(Self, Self)> {
        let (mut quotient, mut rest) = (Vec::new(), Vec::new());
        let Some(leading) = divisor.terms.first() else { return Err(Error::ZeroDivision) };
        let mut left = self.clone();
        // Each step replaces the leading term by smaller ones, so the loop ends; the bound is for
        // divisors with many terms.
        for _ in 0..4 * crate::MAX_SIZE {
            let Some(first) = left.terms.first().cloned() else { break };
            if let Some(term) = first.divide(leading) {
                let part = Self { terms: smallvec![term.clone()] };
                left = left.sub(&part.mul(divisor)?)?;
                quotient.push(term);
            } else {
                rest.push(left.terms.remove(0));
            }
        }
        if !left.terms.is_empty() {
            return Err(Error::TooComplex);
        }
        Ok((Self::collect(quotient)?, Self::collect(rest)?))
    }

    /// The atoms that divide every term.
    pub(crate) fn common_atoms(&self) -> Vec<Atom> {
        let Some((first, others)) = self.terms.split_first() else { return Vec::new() };
        let divides = |atom: Atom, term: &Term| term.factors.iter().any(|entry| entry.0 == atom);
        first
            .factors
            .iter()
            .map(|entry| entry.0)
            .filter(|&atom| others.iter().all(|term| divides(atom, term)))
            .collect()
    }

    /// All terms divided by an atom that divides them.
    pub(crate) fn divide_atom(&self, atom: Atom) -> Self {
        let mut quotient = self.clone();
        for term in &mut quotient.terms {
            if let Some(entry) = term.factors.iter_mut().find(|entry| entry.0 == atom) {
                entry.1 -= 1;
            }
            term.factors.retain(|entry| entry.1 != 0);
        }
        quotient
    }
}
