//! How many clients a value is for.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PySequence};
use stator_federated::placement::Placement;
use stator_federated::types::{Type, TypeKind};
use stator_federated::{Class, Error};

use crate::federated::errors::raise;
use crate::federated::structure::Struct;
use crate::federated::types::{self, describe, placements};

/// How many places there are at each placement, as far as the value, of type `type_spec`, has one
/// member for each.
#[pyfunction]
fn infer_cardinalities<'py>(
    value: &Bound<'py, PyAny>,
    type_spec: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = value.py();
    let ty = types::expect_type(type_spec, "type_spec")?;
    let found = PyDict::new(py);
    for (placement, count) in infer(value, &ty)? {
        found.set_item(placements::wrap(py, placement)?, count)?;
    }
    Ok(found)
}

fn infer(value: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Vec<(Placement, usize)>> {
    let mut found: Vec<(Placement, usize)> = Vec::new();
    let mut left = vec![(value.clone(), ty)];
    while let Some((value, ty)) = left.pop() {
        if value.is_none() {
            continue;
        }
        match ty.kind() {
            TypeKind::Federated(federated) if !federated.all_equal => {
                let Ok(members) = value.cast::<PySequence>() else {
                    let error = Error::new(
                        Class::InvalidNonAllEqual,
                        "a value that differs between places must be a sequence",
                    );
                    let error = error.expected(format!("a list, for {ty}")).found(describe(&value));
                    return Err(raise(&error));
                };
                let (placement, count) = (federated.placement, members.len()?);
                match found.iter().find(|(of, _)| *of == placement) {
                    None => found.push((placement, count)),
                    Some((_, other)) if *other == count => {}
                    Some((_, other)) => {
                        let message = format!("values for different numbers of {placement}");
                        let error = Error::new(Class::Value, message);
                        return Err(raise(&error.expected(other).found(count)));
                    }
                }
            }
            TypeKind::Struct(structure) => {
                let values: Vec<_> = if let Ok(of) = value.cast::<Struct>() {
                    let py = value.py();
                    of.get().elements().iter().map(|(_, value)| value.bind(py).clone()).collect()
                } else if let Ok(mapping) = value.cast::<PyMapping>() {
                    mapping.values()?.iter().collect()
                } else {
                    value.try_iter()?.collect::<PyResult<_>>()?
                };
                let fields = structure.fields().iter().map(|field| &field.ty);
                let pairs: Vec<_> = values.into_iter().zip(fields).collect();
                left.extend(pairs.into_iter().rev());
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Adds `infer_cardinalities`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(infer_cardinalities, module)?)
}
