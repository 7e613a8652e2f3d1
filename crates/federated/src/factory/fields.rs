//! Fields of structs that live at a placement.

use super::{federated_map_or_apply, federated_type};
use crate::Name;
use crate::ast::{BuildingBlock, Key};
use crate::error::Result;

/// One field at each place: `federated_map(<(x -> x.a),value>)`.
///
/// # Errors
/// `Class::Type`: it isn't a federated struct. `Class::Value`: there is no such field.
pub fn federated_field(value: BuildingBlock, key: &Key) -> Result<BuildingBlock> {
    mapped(value, |member| match key {
        Key::Name(name) => BuildingBlock::select_name(member, name.clone()),
        Key::Index(index) => BuildingBlock::select_index(member, *index as usize),
    })
}

/// A struct of some of the fields at each place, keeping their names:
/// `federated_map(<(x -> <a=x[0],x[1]>),value>)`.
///
/// # Errors
/// As for [`federated_field`].
pub fn federated_fields(value: BuildingBlock, indices: &[usize]) -> Result<BuildingBlock> {
    mapped(value, |member| {
        let field = |&index: &usize| -> Result<(Option<Name>, BuildingBlock)> {
            let selected = BuildingBlock::select_index(member.clone(), index)?;
            let fields = member.ty().as_struct().expect("a field was selected").fields();
            Ok((fields[index].name.clone(), selected))
        };
        let fields = indices.iter().map(field).collect::<Result<Vec<_>>>()?;
        BuildingBlock::structure(fields, None)
    })
}

/// A function of a member, written with `body`, at each place.
fn mapped(
    value: BuildingBlock,
    body: impl FnOnce(BuildingBlock) -> Result<BuildingBlock>,
) -> Result<BuildingBlock> {
    let member = federated_type(&value)?.member.clone();
    let parameter = BuildingBlock::reference("x", member.clone());
    let result = body(parameter)?;
    federated_map_or_apply(BuildingBlock::lambda(Some(("x".into(), member)), result), value)
}
