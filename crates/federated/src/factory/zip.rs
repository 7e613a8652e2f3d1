//! One federated struct from a struct of federated values.

use super::apply;
use crate::ast::BuildingBlock;
use crate::error::{Class, Error, Result};
use crate::placement::Placement;
use crate::types::{Type, TypeKind};

/// `federated_zip_at_clients`, `federated_zip_at_server`: `<{A}@C,b=<{B}@C>>` becomes
/// `{<A,b=<B>>}@C`.
///
/// # Errors
/// `Class::Value`: it isn't a struct. `Class::Type`: it holds something that isn't federated,
/// values of two placements, or nothing.
pub fn federated_zip(value: BuildingBlock) -> Result<BuildingBlock> {
    let ty = value.ty();
    if ty.as_struct().is_none() {
        return Err(Error::new(Class::Value, "only a struct can be zipped")
            .expected("a struct of federated values")
            .found(ty));
    }
    let placement = common_placement(ty)?;
    let parameter = match placement {
        Placement::Clients => ty.map_leaves(|leaf| Ok(leaf.not_all_equal()))?,
        Placement::Server => ty.clone(),
    };
    let member = ty.map_leaves(|leaf| {
        Ok(leaf.as_federated().expect("each leaf was looked at").member.clone())
    })?;
    let (uri, all_equal) = match placement {
        Placement::Clients => ("federated_zip_at_clients", false),
        Placement::Server => ("federated_zip_at_server", true),
    };
    let result = Type::federated(member, placement, Some(all_equal))?;
    apply(uri, parameter, result, value)
}

/// Where all values in a nest of structs live.
fn common_placement(ty: &Type) -> Result<Placement> {
    let mut common = None;
    for leaf in ty.leaves() {
        let Some(of) = leaf.as_federated() else {
            return Err(Error::new(
                Class::Type,
                "a struct with a value that isn't federated can't be zipped",
            )
            .expected("federated values only")
            .found(format_args!("{leaf} in {ty}")));
        };
        match common {
            None => common = Some(of.placement),
            Some(placement) if placement == of.placement => {}
            Some(placement) => {
                return Err(Error::new(
                    Class::Type,
                    format!("values at {placement} and at {} can't be zipped", of.placement),
                )
                .expected("values of one placement")
                .found(ty));
            }
        }
    }
    common.ok_or_else(|| {
        Error::new(Class::Type, "a struct without values can't be zipped")
            .expected("at least one federated value")
            .found(ty)
    })
}

/// The value with its structs zipped where `target` asks for a federated struct, if that makes it
/// fit.
///
/// # Errors
/// `Class::Type`: `target` is abstract somewhere.
pub fn zip_to_match(value: &BuildingBlock, target: &Type) -> Result<Option<BuildingBlock>> {
    // What stands where is known by the path from the root; only the structs that must be zipped,
    // and those around them, are taken apart.
    let mut names = 0u32;
    zip_at(value, target, &mut names)
}

/// One level of [`zip_to_match`]. Levels are those of `target` whose fields don't fit as they are.
fn zip_at(value: &BuildingBlock, target: &Type, names: &mut u32) -> Result<Option<BuildingBlock>> {
    enum Step<'a> {
        Fit { value: BuildingBlock, target: &'a Type },
        Build { around: Around, target: &'a Type },
    }
    /// A struct that is taken apart, and put together again from its fitted fields.
    struct Around {
        source: BuildingBlock,
        reference: Option<BuildingBlock>,
    }
    let mut steps = vec![Step::Fit { value: value.clone(), target }];
    let mut done: Vec<BuildingBlock> = Vec::new();
    while let Some(step) = steps.pop() {
        match step {
            Step::Fit { value, target } => {
                if target.is_assignable_from(value.ty())? {
                    done.push(value);
                    continue;
                }
                match (value.ty().kind(), target.kind()) {
                    (TypeKind::Struct(_), TypeKind::Federated(_)) => {
                        let Ok(zipped) = federated_zip(value) else { return Ok(None) };
                        if !target.is_assignable_from(zipped.ty())? {
                            return Ok(None);
                        }
                        done.push(zipped);
                    }
                    (TypeKind::Struct(from), TypeKind::Struct(to)) if from.len() == to.len() => {
                        // A value that isn't a name is bound to one, so that it stands there once.
                        let reference = value.as_reference().is_none().then(|| {
                            *names += 1;
                            BuildingBlock::reference(format!("_var{names}"), value.ty().clone())
                        });
                        let fields = reference.as_ref().unwrap_or(&value);
                        let fields = (0..from.len())
                            .map(|at| BuildingBlock::select_index(fields.clone(), at))
                            .collect::<Result<Vec<_>>>()?;
                        let around = Around { source: value.clone(), reference };
                        steps.push(Step::Build { around, target });
                        let targets = to.fields().iter().map(|field| &field.ty);
                        let pairs = fields.into_iter().zip(targets).rev();
                        steps.extend(pairs.map(|(value, target)| Step::Fit { value, target }));
                    }
                    _ => return Ok(None),
                }
            }
            Step::Build { around, target } => {
                let of = around.source.ty().as_struct().expect("structs are taken apart");
                let fields = done.split_off(done.len() - of.len());
                let names = of.fields().iter().map(|field| field.name.clone());
                let elements = names.zip(fields).collect();
                let mut made = BuildingBlock::structure(elements, of.container().cloned())?;
                if !target.is_assignable_from(made.ty())? {
                    return Ok(None);
                }
                if let Some(reference) = around.reference {
                    let name = reference.as_reference().expect("made as one").name.clone();
                    made = BuildingBlock::block(vec![(name, around.source)], made);
                }
                done.push(made);
            }
        }
    }
    Ok(done.pop())
}
