//! Which values may stand where: assignability and equivalence of types.

use rustc_hash::FxHashSet;

use super::{StructType, Type, TypeKind};
use crate::error::{Class, Error, Result};

impl Type {
    /// Whether every value of type `source` may stand where this type is asked for.
    ///
    /// # Errors
    /// `Class::Type`: an abstract type stands for anything, so the question has no answer.
    pub fn is_assignable_from(&self, source: &Self) -> Result<bool> {
        // Pairs of (target, source); a pair that was seen holds unless another one fails.
        let mut seen: FxHashSet<(usize, usize)> = FxHashSet::default();
        let mut pairs = vec![(self, source)];
        while let Some((target, source)) = pairs.pop() {
            let abstracts = super::Facts::ABSTRACT;
            if target == source && !target.facts().any(abstracts) {
                continue;
            }
            if !seen.insert((target.address(), source.address())) {
                continue;
            }
            let holds = match (target.kind(), source.kind()) {
                (TypeKind::Abstract(label), _) => {
                    return Err(Error::new(
                        Class::Type,
                        format!("`{label}` is abstract: it stands for any type"),
                    ));
                }
                (TypeKind::Tensor(target), TypeKind::Tensor(source)) => {
                    target.dtype == source.dtype && target.shape.is_assignable_from(&source.shape)
                }
                (TypeKind::Struct(target), TypeKind::Struct(source)) => {
                    let fields = target.fields().iter().zip(source.fields());
                    pairs.extend(fields.rev().map(|(to, from)| (&to.ty, &from.ty)));
                    names_fit(target, source)
                }
                (TypeKind::Sequence(target), TypeKind::Sequence(source)) => {
                    pairs.push((target, source));
                    true
                }
                (TypeKind::Function(target), TypeKind::Function(source)) => {
                    pairs.push((&target.result, &source.result));
                    match (&target.parameter, &source.parameter) {
                        (Some(to), Some(from)) => {
                            pairs.push((from, to));
                            true
                        }
                        (None, None) => true,
                        _ => false,
                    }
                }
                (TypeKind::Federated(target), TypeKind::Federated(source)) => {
                    pairs.push((&target.member, &source.member));
                    target.placement == source.placement && (source.all_equal || !target.all_equal)
                }
                (TypeKind::Placement, TypeKind::Placement) => true,
                _ => false,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether each may stand where the other is asked for.
    ///
    /// # Errors
    /// As for [`Self::is_assignable_from`].
    pub fn is_equivalent_to(&self, other: &Self) -> Result<bool> {
        Ok(self.is_assignable_from(other)? && other.is_assignable_from(self)?)
    }

    /// # Errors
    /// `Class::NotAssignable`, with both types.
    pub fn check_assignable_from(&self, source: &Self) -> Result<()> {
        if self.is_assignable_from(source)? {
            return Ok(());
        }
        Err(Error::new(
            Class::NotAssignable,
            "a value of one type can't stand where the other is asked for",
        )
        .types(self, source))
    }

    /// # Errors
    /// `Class::NotEquivalent`, with both types.
    pub fn check_equivalent_to(&self, other: &Self) -> Result<()> {
        if self.is_equivalent_to(other)? {
            return Ok(());
        }
        let error = Error::new(Class::NotEquivalent, "two types must be equivalent");
        if !self.is_assignable_from(other)? {
            return Err(error.types(self, other));
        }
        // Only the other way round does it not fit.
        let error = error.expected(self.brief()).found(other.brief());
        Err(match other.misfit(self) {
            Some(text) => error.note("because", format!("conversely, {text}")),
            None => error,
        })
    }
}

/// Whether a struct may be taken for one with these names: unnamed fields may get one.
fn names_fit(target: &StructType, source: &StructType) -> bool {
    target.len() == source.len()
        && target
            .fields()
            .iter()
            .zip(source.fields())
            .all(|(to, from)| from.name.is_none() || from.name == to.name)
}
