//! Questions about what a type is made of.
//!
//! A type that occurs in many places of another one is one node, so each is looked at once where
//! its place doesn't matter.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Facts, Type, TypeKind};
use crate::dtype::{DType, Kind};
use crate::error::{Class, Error, Result};
use crate::placement::Placement;

impl Type {
    /// The type and all in it, each as often as it occurs: a type before those in it, a parameter
    /// before its result.
    pub fn preorder(&self) -> impl Iterator<Item = Self> + use<> {
        // The last type is the next one.
        let mut rest = vec![self.clone()];
        std::iter::from_fn(move || {
            let ty = rest.pop()?;
            rest.extend(ty.children().rev().cloned());
            Some(ty)
        })
    }

    /// The type and all in it, each once, in the order of their first occurrence.
    pub fn distinct(&self) -> Vec<Self> {
        let mut seen: FxHashSet<&Self> = FxHashSet::default();
        let mut found = Vec::new();
        let mut rest = vec![self];
        while let Some(ty) = rest.pop() {
            if seen.insert(ty) {
                found.push(ty.clone());
                rest.extend(ty.children().rev());
            }
        }
        found
    }

    /// How many of the types in it, each counted as often as it occurs, are counted by `holds`,
    /// which is asked once about each. As much as fits, if the number is too large.
    ///
    /// # Errors
    /// The first error of `holds`.
    pub fn count<E>(&self, mut holds: impl FnMut(&Self) -> Result<bool, E>) -> Result<u64, E> {
        let mut own: FxHashMap<Self, u64> = FxHashMap::default();
        for ty in self.distinct() {
            let counted = u64::from(holds(&ty)?);
            own.insert(ty, counted);
        }
        // Bottom up: children come before the types that they are in.
        let mut total: FxHashMap<Self, u64> = FxHashMap::default();
        let mut steps = vec![(self.clone(), false)];
        while let Some((ty, open)) = steps.pop() {
            if total.contains_key(&ty) {
                continue;
            }
            if open {
                let inside = ty.children().map(|child| total[child]);
                let sum = inside.fold(own[&ty], u64::saturating_add);
                total.insert(ty, sum);
            } else {
                steps.push((ty.clone(), true));
                steps.extend(ty.children().map(|child| (child.clone(), false)));
            }
        }
        Ok(total[self])
    }

    /// Whether all that isn't a struct passes `leaf`, looking into structs and, if asked to, into
    /// federated types.
    fn is_structure_of(&self, federated: bool, leaf: impl Fn(&Self) -> bool) -> bool {
        self.first_leaf(federated, |ty| !leaf(ty)).is_none()
    }

    /// The first type that is found by `wanted`, looking into structs and, if asked to, into
    /// federated types.
    fn first_leaf(&self, federated: bool, wanted: impl Fn(&Self) -> bool) -> Option<&Self> {
        let mut seen: FxHashSet<&Self> = FxHashSet::default();
        let mut rest = vec![self];
        while let Some(ty) = rest.pop() {
            if !seen.insert(ty) {
                continue;
            }
            match ty.kind() {
                TypeKind::Struct(_) => rest.extend(ty.children().rev()),
                TypeKind::Federated(of) if federated => rest.push(&of.member),
                _ if wanted(ty) => return Some(ty),
                _ => {}
            }
        }
        None
    }

    fn is_tensor_of(&self, holds: impl Fn(DType) -> bool) -> bool {
        self.as_tensor().is_some_and(|tensor| holds(tensor.dtype))
    }

    /// Whether it is a tensor, or a nest of structs of tensors.
    pub fn is_structure_of_tensors(&self) -> bool {
        self.is_structure_of(false, |ty| ty.as_tensor().is_some())
    }

    /// The same, for tensors of floating-point numbers, here or placed. bfloat16 doesn't count.
    pub fn is_structure_of_floats(&self) -> bool {
        self.is_structure_of(true, |ty| ty.is_tensor_of(is_numpy_float))
    }

    /// The same, for tensors of integers, here or placed.
    pub fn is_structure_of_integers(&self) -> bool {
        self.is_structure_of(true, |ty| ty.is_tensor_of(DType::is_integer))
    }

    /// # Errors
    /// `Class::Type`: it isn't made of integers.
    pub fn check_is_structure_of_integers(&self) -> Result<()> {
        match self.first_leaf(true, |ty| !ty.is_tensor_of(DType::is_integer)) {
            None => Ok(()),
            Some(leaf) => Err(self.made_of(leaf, Class::Type, "integers")),
        }
    }

    /// Whether an operation may be applied to values of the type as a whole.
    pub fn is_generic_op_compatible(&self) -> bool {
        self.is_structure_of_tensors()
    }

    /// # Errors
    /// `Class::SumIncompatible`: something in it isn't a number, or may differ in shape.
    pub fn check_is_sum_compatible(&self) -> Result<()> {
        let number = |dtype: DType| !matches!(dtype.kind(), Kind::Bool | Kind::String);
        let summed = |ty: &Self| {
            ty.as_tensor()
                .is_some_and(|tensor| number(tensor.dtype) && tensor.shape.is_fully_defined())
        };
        match self.first_leaf(true, |ty| !summed(ty)) {
            None => Ok(()),
            Some(leaf) => {
                Err(self.made_of(leaf, Class::SumIncompatible, "numbers of fully known shapes"))
            }
        }
    }

    fn made_of(&self, leaf: &Self, class: Class, wanted: &str) -> Error {
        let error = Error::new(class, "a type isn't made of what it has to be")
            .expected(format!("a tensor, or a struct, of {wanted}"))
            .found(leaf);
        if leaf == self { error } else { error.note("in", self) }
    }

    /// Whether values of the type have a mean.
    pub fn is_average_compatible(&self) -> bool {
        self.is_structure_of(true, |ty| {
            ty.is_tensor_of(|dtype| matches!(dtype.kind(), Kind::Float | Kind::Complex))
        })
    }

    /// Whether values of the type have a minimum and a maximum. Those of bfloat16 have none.
    pub fn is_min_max_compatible(&self) -> bool {
        self.is_structure_of(true, |ty| {
            ty.is_tensor_of(|dtype| is_numpy_float(dtype) || dtype.is_integer())
        })
    }

    /// Whether it is one integer, or a struct like `shape` with one integer for each field, or for
    /// each of its fields, and so on.
    pub fn is_single_integer_or_matches_structure(&self, shape: &Self) -> bool {
        let single = |ty: &Self| {
            ty.as_tensor().is_some_and(|of| of.dtype.is_integer() && of.shape.is_scalar())
        };
        let mut seen: FxHashSet<(&Self, &Self)> = FxHashSet::default();
        let mut pairs = vec![(self, shape)];
        while let Some((ours, shape)) = pairs.pop() {
            if !seen.insert((ours, shape)) {
                continue;
            }
            match (ours.kind(), shape.kind()) {
                _ if single(ours) => {}
                (TypeKind::Struct(a), TypeKind::Struct(b)) => {
                    let names = |of: &'_ super::StructType| {
                        of.fields().iter().map(|field| field.name.clone()).collect::<Vec<_>>()
                    };
                    if names(a) != names(b) {
                        return false;
                    }
                    pairs.extend(ours.children().zip(shape.children()));
                }
                _ => return false,
            }
        }
        true
    }

    /// Checks what is given of a federated type.
    ///
    /// # Errors
    /// `Class::Type`: it isn't federated, or placed otherwise. `Class::NotAssignable`: its member
    /// doesn't fit.
    pub fn check_federated(
        &self,
        member: Option<&Self>,
        placement: Option<Placement>,
        all_equal: Option<bool>,
    ) -> Result<()> {
        let Some(federated) = self.as_federated() else {
            return Err(Error::new(Class::Type, "a type must be federated")
                .expected("a federated type")
                .found(self));
        };
        if let Some(member) = member {
            member.check_assignable_from(&federated.member)?;
        }
        let differs = |what, expected: &dyn std::fmt::Display| {
            Err(Error::new(Class::Type, what).expected(expected).found(self))
        };
        if let Some(placement) = placement
            && placement != federated.placement
        {
            return differs("a federated type is placed elsewhere", &placement);
        }
        match all_equal {
            Some(true) if !federated.all_equal => {
                differs("the members may differ between places", &"equal members")
            }
            Some(false) if federated.all_equal => {
                differs("the members are equal at all places", &"members that may differ")
            }
            _ => Ok(()),
        }
    }

    /// The type with `change` of each type in it, those below first. `change` is asked once about
    /// each; the result says whether it changed any.
    ///
    /// # Errors
    /// The first error of `change`, or of building a type anew.
    pub fn transform_postorder<E: From<Error>>(
        &self,
        mut change: impl FnMut(Self) -> Result<(Self, bool), E>,
    ) -> Result<(Self, bool), E> {
        let mut done: FxHashMap<Self, (Self, bool)> = FxHashMap::default();
        let mut steps = vec![(self.clone(), false)];
        while let Some((ty, open)) = steps.pop() {
            if done.contains_key(&ty) {
                continue;
            }
            if !open {
                steps.push((ty.clone(), true));
                steps.extend(ty.children().rev().map(|child| (child.clone(), false)));
                continue;
            }
            let changed = ty.children().any(|child| done[child].1);
            let rebuilt = match changed {
                true => ty.with_children(|child| done[child].0.clone())?,
                false => ty.clone(),
            };
            let (new, by_change) = change(rebuilt)?;
            done.insert(ty, (new, changed || by_change));
        }
        Ok(done.remove(self).expect("the root was visited"))
    }

    /// The same type made of other types.
    fn with_children(&self, child: impl Fn(&Self) -> Self) -> Result<Self> {
        match self.kind() {
            TypeKind::Tensor(_) | TypeKind::Placement | TypeKind::Abstract(_) => Ok(self.clone()),
            TypeKind::Struct(structure) => {
                let field = |field: &super::Field| super::Field {
                    name: field.name.clone(),
                    ty: child(&field.ty),
                };
                let fields = structure.fields().iter().map(field).collect();
                Self::structure(fields, structure.container().cloned())
            }
            TypeKind::Sequence(element) => Self::sequence(child(element)),
            TypeKind::Function(of) => {
                Ok(Self::function(of.parameter.as_ref().map(&child), child(&of.result)))
            }
            TypeKind::Federated(of) => {
                Self::federated(child(&of.member), of.placement, Some(of.all_equal))
            }
        }
    }

    /// The type with the member in place of each federated type.
    pub fn strip_placement(&self) -> Self {
        if !self.facts().any(Facts::FEDERATED) {
            return self.clone();
        }
        let strip = |ty: Self| -> Result<(Self, bool)> {
            Ok(match ty.as_federated() {
                Some(federated) => (federated.member.clone(), true),
                None => (ty, false),
            })
        };
        self.transform_postorder(strip).expect("members fit wherever federated types do").0
    }
}

/// Whether NumPy counts an element type among its floating-point numbers: not bfloat16.
fn is_numpy_float(dtype: DType) -> bool {
    dtype.kind() == Kind::Float && dtype != DType::BFloat16
}
