//! Whether a type is what a template says: `(int32 -> int32)` of `(T -> T)`.
//!
//! A label stands for one type wherever it is used, up to what may stand for what: where a
//! parameter takes the label's values in, the type is given; where they come out, whatever takes
//! them must accept that type.

use rustc_hash::FxHashMap;

use super::{Facts, Type, TypeKind};
use crate::Name;
use crate::error::{Class, Error, Result};

/// What a label stands for, so far.
#[derive(Default)]
struct Label {
    uses: usize,
    /// What it is where it stands under an odd number of parameters: these uses say it.
    defined: Option<Type>,
}

impl Type {
    /// Checks that the type is what `template` says, with one type for each label.
    ///
    /// # Errors
    /// `Class::NotConcrete`: the type itself has labels. `Class::MismatchedStructure`: it is built
    /// otherwise. `Class::MissingDefiningUsage`: nothing says what a label stands for that is used
    /// more than once. `Class::MismatchedConcreteTypes`, `Class::UnassignableConcreteTypes`: the
    /// uses of a label don't go together.
    pub fn check_concrete_instance_of(&self, template: &Self) -> Result<()> {
        let failed = |class, message: String| {
            Error::new(class, message).note("type", self).note("template", template)
        };
        if self.facts().any(Facts::ABSTRACT) {
            let label = self.distinct().into_iter().find_map(|ty| match ty.kind() {
                TypeKind::Abstract(label) => Some(label.clone()),
                _ => None,
            });
            let label = label.expect("the facts say that there is one");
            return Err(failed(Class::NotConcrete, format!("`{label}` stands for no type here")));
        }
        let mut labels: FxHashMap<Name, Label> = FxHashMap::default();
        // The uses that don't say what their labels are, in order.
        let mut others: Vec<(Name, Self)> = Vec::new();
        // A second visit matters only for counting the uses of labels, a third for nothing.
        let mut visits: FxHashMap<(&Self, &Self, bool), u8> = FxHashMap::default();
        let mut pairs = vec![(self, template, false)];
        while let Some((concrete, generic, odd)) = pairs.pop() {
            let visit = visits.entry((concrete, generic, odd)).or_default();
            *visit += 1;
            let new = *visit == 1;
            if *visit > 2 || !new && !generic.facts().any(Facts::ABSTRACT) {
                *visit = 2;
                continue;
            }
            let mismatch = |what: &str| {
                let error = Error::new(
                    Class::MismatchedStructure,
                    format!("a type isn't built like its template: {what}"),
                )
                .expected(generic)
                .found(concrete);
                let whole = generic == template;
                Err(if whole { error } else { error.note("type", self).note("template", template) })
            };
            match (concrete.kind(), generic.kind()) {
                (_, TypeKind::Abstract(name)) => {
                    let label = labels.entry(name.clone()).or_default();
                    label.uses += 1;
                    match &label.defined {
                        _ if !odd && new => others.push((name.clone(), concrete.clone())),
                        _ if !odd => {}
                        None => label.defined = Some(concrete.clone()),
                        Some(defined) if defined.is_equivalent_to(concrete)? => {}
                        Some(defined) => {
                            return Err(failed(
                                Class::MismatchedConcreteTypes,
                                format!(
                                    "`{name}` can't be both {} and {}",
                                    defined.brief(),
                                    concrete.brief()
                                ),
                            ));
                        }
                    }
                }
                (TypeKind::Tensor(_), TypeKind::Tensor(_)) => {
                    if concrete != generic {
                        return mismatch("other tensors");
                    }
                }
                (TypeKind::Placement, TypeKind::Placement) => {}
                (TypeKind::Struct(a), TypeKind::Struct(b)) => {
                    if a.len() != b.len() {
                        return mismatch("another number of fields");
                    }
                    let mut fields = a.fields().iter().zip(b.fields());
                    if fields.any(|(a, b)| a.name != b.name) {
                        return mismatch("other names of fields");
                    }
                    let fields = a.fields().iter().zip(b.fields());
                    pairs.extend(fields.rev().map(|(a, b)| (&a.ty, &b.ty, odd)));
                }
                (TypeKind::Sequence(a), TypeKind::Sequence(b)) => pairs.push((a, b, odd)),
                (TypeKind::Function(a), TypeKind::Function(b)) => {
                    pairs.push((&a.result, &b.result, odd));
                    match (&a.parameter, &b.parameter) {
                        (Some(a), Some(b)) => pairs.push((a, b, !odd)),
                        (None, None) => {}
                        _ => return mismatch("one takes a parameter, the other doesn't"),
                    }
                }
                (TypeKind::Federated(a), TypeKind::Federated(b)) => {
                    if a.placement != b.placement {
                        return mismatch("another placement");
                    }
                    if a.all_equal != b.all_equal {
                        return mismatch("only one is equal everywhere");
                    }
                    pairs.push((&a.member, &b.member, odd));
                }
                _ => return mismatch("another kind of type"),
            }
        }
        check_uses(&labels, &others, failed)
    }
}

/// Checks that uses which don't say what their labels are go together with those that do.
fn check_uses(
    labels: &FxHashMap<Name, Label>,
    others: &[(Name, Type)],
    failed: impl Fn(Class, String) -> Error,
) -> Result<()> {
    for (name, used) in others {
        match &labels[name].defined {
            Some(defined) if used.is_assignable_from(defined)? => {}
            Some(defined) => {
                return Err(failed(
                    Class::UnassignableConcreteTypes,
                    format!(
                        "`{name}` is {}, which {} doesn't accept",
                        defined.brief(),
                        used.brief()
                    ),
                ));
            }
            None if labels[name].uses == 1 => {}
            None => {
                return Err(failed(
                    Class::MissingDefiningUsage,
                    format!("nothing says what `{name}` is: no parameter takes it"),
                ));
            }
        }
    }
    Ok(())
}
