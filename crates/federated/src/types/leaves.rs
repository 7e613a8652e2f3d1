//! What a nest of structs holds: the types in it that are no structs.

use rustc_hash::FxHashMap;

use super::{Container, Field, Type, TypeKind};
use crate::error::Result;

impl Type {
    /// The types that stand in this type's structs and are no structs themselves, in order; only
    /// itself, if it is no struct.
    pub fn leaves(&self) -> impl Iterator<Item = &Self> {
        // The last type is the next one.
        let mut rest = vec![self];
        std::iter::from_fn(move || {
            loop {
                let ty = rest.pop()?;
                let Some(structure) = ty.as_struct() else { return Some(ty) };
                rest.extend(structure.fields().iter().rev().map(|field| &field.ty));
            }
        })
    }

    /// How much memory the tensors of a value take, if their sizes are known.
    pub fn bytes(&self) -> Option<u64> {
        self.leaves().try_fold(0u64, |bytes, leaf| {
            let tensor = leaf.as_tensor()?;
            let size = tensor.dtype.size() as u64;
            bytes.checked_add(tensor.shape.elements()?.checked_mul(size)?)
        })
    }

    /// The same structs, with `leaf` of every other type in them.
    ///
    /// # Errors
    /// The first error of `leaf`.
    pub fn map_leaves(&self, mut leaf: impl FnMut(&Self) -> Result<Self>) -> Result<Self> {
        enum Step<'a> {
            Visit(&'a Type),
            Build(&'a Type),
        }
        let mut done: FxHashMap<&Self, Self> = FxHashMap::default();
        let mut steps = vec![Step::Visit(self)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Visit(ty) if done.contains_key(ty) => {}
                Step::Visit(ty) => match ty.as_struct() {
                    Some(structure) => {
                        steps.push(Step::Build(ty));
                        let fields = structure.fields().iter().rev();
                        steps.extend(fields.map(|field| Step::Visit(&field.ty)));
                    }
                    None => {
                        done.insert(ty, leaf(ty)?);
                    }
                },
                Step::Build(ty) => {
                    let structure = ty.as_struct().expect("only structs are built");
                    let field = |field: &Field| Field {
                        name: field.name.clone(),
                        ty: done[&field.ty].clone(),
                    };
                    let fields = structure.fields().iter().map(field).collect();
                    done.insert(ty, Self::structure(fields, structure.container().cloned())?);
                }
            }
        }
        Ok(done.remove(self).expect("the root was visited"))
    }

    /// A struct type without names and container.
    pub fn unnamed(types: impl IntoIterator<Item = Self>) -> Self {
        let fields = types.into_iter().map(|ty| Field { name: None, ty }).collect();
        Self::structure(fields, None).expect("no names, so none that is wrong")
    }

    /// The same type, federated ones not said to be equal everywhere.
    pub fn not_all_equal(&self) -> Self {
        match self.kind() {
            TypeKind::Federated(of) if of.all_equal => {
                Self::federated(of.member.clone(), of.placement, Some(false))
                    .expect("a member of a federated type")
            }
            _ => self.clone(),
        }
    }
}

/// Forgets the Python classes of structs, in one type after another. What messages keep of a type.
#[derive(Default)]
pub struct WithoutContainers(FxHashMap<Type, Type>);

impl WithoutContainers {
    /// The type with plain structs only.
    pub fn of(&mut self, ty: &Type) -> Type {
        enum Step {
            Visit(Type),
            Build(Type),
        }
        let keeps = |ty: &Type| !ty.facts().any(super::Facts::CONTAINER);
        if keeps(ty) {
            return ty.clone();
        }
        let mut steps = vec![Step::Visit(ty.clone())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Visit(ty) if keeps(&ty) || self.0.contains_key(&ty) => {}
                Step::Visit(ty) => {
                    steps.push(Step::Build(ty.clone()));
                    steps.extend(ty.children().cloned().map(Step::Visit));
                }
                Step::Build(ty) => {
                    let made = self.rebuilt(&ty);
                    self.0.insert(ty, made);
                }
            }
        }
        self.0[ty].clone()
    }

    fn done(&self, ty: &Type) -> Type {
        self.0.get(ty).unwrap_or(ty).clone()
    }

    /// The type from its parts, which are done.
    fn rebuilt(&self, ty: &Type) -> Type {
        let made = match ty.kind() {
            TypeKind::Tensor(_) | TypeKind::Placement | TypeKind::Abstract(_) => Ok(ty.clone()),
            TypeKind::Struct(structure) => {
                let field =
                    |field: &Field| Field { name: field.name.clone(), ty: self.done(&field.ty) };
                let fields = structure.fields().iter().map(field).collect();
                Type::structure(fields, None::<Container>)
            }
            TypeKind::Sequence(element) => Type::sequence(self.done(element)),
            TypeKind::Function(of) => {
                let parameter = of.parameter.as_ref().map(|ty| self.done(ty));
                Ok(Type::function(parameter, self.done(&of.result)))
            }
            TypeKind::Federated(of) => {
                Type::federated(self.done(&of.member), of.placement, Some(of.all_equal))
            }
        };
        made.expect("the same type but for containers")
    }
}
