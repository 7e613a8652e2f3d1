//! Python structures in the shapes that types say.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use stator_federated::Name;
use stator_federated::types::{Container, StructType, Type, TypeKind};

use super::elements::{elements, field_names};
use super::pycontainer::check_depth;
use crate::federated::types::{self, containers};

/// The class for the values of a struct type: its own, `dict` for names, `list` without.
fn class_for<'py>(
    py: Python<'py>,
    structure: &StructType,
    ty: &Type,
) -> PyResult<Bound<'py, PyType>> {
    if let Some(container) = structure.container() {
        return containers::class_of(py, container);
    }
    let named = structure.fields().iter().filter(|field| field.name.is_some()).count();
    let container = match named {
        0 => Container::List,
        _ if named == structure.len() => Container::Dict,
        _ => {
            return Err(PyValueError::new_err(format!(
                "no Python container has named and unnamed elements\n  found:    {ty}"
            )));
        }
    };
    containers::class_of(py, &container)
}

/// A structure of a class from its elements.
fn build<'py>(
    class: &Bound<'py, PyType>,
    elements: Vec<(Option<Name>, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let kwargs = || {
        let kwargs = PyDict::new(py);
        for (name, value) in &elements {
            kwargs.set_item(name.as_deref().unwrap_or_default(), value)?;
        }
        PyResult::Ok(kwargs)
    };
    if field_names(class)?.is_some() {
        return class.call((), Some(&kwargs()?));
    }
    let abc = py.import("collections.abc")?;
    if class.is_subclass(&abc.getattr("Mapping")?)? {
        let pairs = elements.into_iter().map(|(name, value)| {
            PyTuple::new(py, [name.as_deref().into_pyobject(py)?.into_any(), value])
        });
        let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
        return class.call1((PyList::new(py, pairs)?,));
    }
    if class.is_subclass(&abc.getattr("Sequence")?)? {
        let values = elements.into_iter().map(|(_, value)| value);
        return class.call1((PyList::new(py, values.collect::<Vec<_>>())?,));
    }
    Err(PyValueError::new_err(format!(
        "a structure must be a named tuple, mapping or sequence\n  found:    {}",
        class.name()?
    )))
}

/// A structure as `type_spec` says, with `factory(type)` for each type in it that is no struct.
#[pyfunction]
fn structure_with_type<'py>(
    factory: &Bound<'py, PyAny>,
    type_spec: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    fn make<'py>(
        factory: &Bound<'py, PyAny>,
        ty: &Type,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_depth(depth)?;
        let py = factory.py();
        let Some(structure) = ty.as_struct() else {
            return factory.call1((types::wrap(py, ty)?,));
        };
        let class = class_for(py, structure, ty)?;
        let field = |field: &stator_federated::types::Field| {
            Ok((field.name.clone(), make(factory, &field.ty, depth + 1)?))
        };
        build(&class, structure.fields().iter().map(field).collect::<PyResult<_>>()?)
    }
    make(factory, &types::expect_type(type_spec, "type_spec")?, 0)
}

/// The structure `obj` with the containers that `type_spec` says.
#[pyfunction]
fn to_structure_with_type<'py>(
    obj: &Bound<'py, PyAny>,
    type_spec: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    fn make<'py>(
        object: &Bound<'py, PyAny>,
        ty: &Type,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_depth(depth)?;
        let py = object.py();
        let Some(found) = elements(object)? else { return Ok(object.clone()) };
        let (class, known): (_, Vec<(Option<Name>, Type)>) = match ty.kind() {
            TypeKind::Federated(of) if of.all_equal => return make(object, &of.member, depth),
            TypeKind::Federated(of) => (
                py.get_type::<PyList>(),
                found.elements.iter().map(|_| (None, of.member.clone())).collect(),
            ),
            TypeKind::Sequence(element) => (
                py.get_type::<PyList>(),
                found.elements.iter().map(|_| (None, element.clone())).collect(),
            ),
            TypeKind::Struct(structure) => {
                let known =
                    |field: &stator_federated::types::Field| (field.name.clone(), field.ty.clone());
                let class = class_for(py, structure, ty)?;
                (class, structure.fields().iter().map(known).collect())
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "there is a structure where the type has none\n  expected: {ty}\n  found:    {}",
                    types::describe(object)
                )));
            }
        };
        // A mapping's values belong to the fields of their names.
        let value = |at: usize, name: &Option<Name>| {
            let named = name.as_ref().and_then(|name| {
                found.elements.iter().find(|(other, _)| other.as_ref() == Some(name))
            });
            named.or_else(|| found.elements.get(at)).map(|(_, value)| value)
        };
        let mut made = Vec::with_capacity(known.len());
        for (at, (name, ty)) in known.iter().enumerate() {
            if let Some(value) = value(at, name) {
                made.push((name.clone(), make(value, ty, depth + 1)?));
            }
        }
        build(&class, made)
    }
    make(obj, &types::expect_type(type_spec, "type_spec")?, 0)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(structure_with_type, module)?)?;
    module.add_function(wrap_pyfunction!(to_structure_with_type, module)?)
}
