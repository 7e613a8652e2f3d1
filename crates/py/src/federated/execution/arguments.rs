//! Python objects as values of a type: what users pass, and what their functions return.

use std::fmt::Write as _;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use stator_federated::Name;
use stator_federated::ast::BuildingBlock;
use stator_federated::execution::Value;
use stator_federated::placement::Placement;
use stator_federated::types::{FederatedType, StructType, Type, TypeKind};
use stator_federated::{Class, Error};

use super::context::tree;
use super::leaf::{Leaf, to_leaf};
use super::pause::pause;
use crate::federated::errors;
use crate::federated::errors::raise;
use crate::federated::tracing::elements::{Elements, elements};
use crate::federated::types::{describe, placements};

/// Where in an argument something stands.
enum Part {
    Field(Name),
    Position(usize),
    Client(usize),
}

/// One step down, and the number of the path that it goes on from.
type Path = (usize, Part);

/// What is left to do.
enum Todo<'py, 'a> {
    Convert(Bound<'py, PyAny>, &'a Type, usize),
    Struct(usize),
    Sequence(usize),
    Each(usize),
    Everywhere,
}

/// Converts objects, and finds out how many clients there are.
pub struct Conversion<'e> {
    /// What the whole object is: `the argument`.
    what: &'e str,
    /// Gives the function that a computation is.
    evaluate: &'e dyn Fn(&BuildingBlock) -> PyResult<Value<Leaf>>,
    /// The number of clients, and where that was seen.
    clients: Option<(usize, String)>,
    /// Path 0 is the whole; the others are `paths[i - 1]`.
    paths: Vec<Path>,
}

impl<'e> Conversion<'e> {
    pub fn new(
        what: &'e str,
        evaluate: &'e dyn Fn(&BuildingBlock) -> PyResult<Value<Leaf>>,
        clients: Option<(usize, String)>,
    ) -> Self {
        Self { what, evaluate, clients, paths: Vec::new() }
    }

    /// How many clients there are, if something said so.
    pub fn clients(&self) -> Option<usize> {
        self.clients.as_ref().map(|(count, _)| *count)
    }

    /// The value of type `ty` that an object is.
    pub fn convert(&mut self, object: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Value<Leaf>> {
        let mut todo = vec![Todo::Convert(object.clone(), ty, 0)];
        let mut done: Vec<Value<Leaf>> = Vec::new();
        while let Some(next) = todo.pop() {
            pause(object.py())?;
            let made = match next {
                Todo::Convert(object, ty, path) => {
                    match self.visit(&object, ty, path, &mut todo)? {
                        Some(made) => made,
                        None => continue,
                    }
                }
                Todo::Struct(count) => Value::structure(done.split_off(done.len() - count)),
                Todo::Sequence(count) => Value::sequence(done.split_off(done.len() - count)),
                Todo::Each(count) => Value::each(done.split_off(done.len() - count)),
                Todo::Everywhere => Value::everywhere(done.pop().expect("its member was made")),
            };
            done.push(made);
        }
        Ok(done.pop().expect("the root is left"))
    }

    /// The value of a leaf; puts what has parts on the list.
    fn visit<'py, 'a>(
        &mut self,
        object: &Bound<'py, PyAny>,
        ty: &'a Type,
        path: usize,
        todo: &mut Vec<Todo<'py, 'a>>,
    ) -> PyResult<Option<Value<Leaf>>> {
        match ty.kind() {
            TypeKind::Tensor(tensor) => match to_leaf(object, tensor) {
                Ok(leaf) => return Ok(Some(Value::Leaf(leaf))),
                Err(misfit) => return Err(misfit.raise(&self.name(path))),
            },
            TypeKind::Struct(structure) => {
                let fields = self.fields(object, structure, ty, path)?;
                todo.push(Todo::Struct(fields.len()));
                let row = structure.fields().iter().zip(fields).enumerate();
                let row: Vec<_> = row.collect();
                for (at, (field, object)) in row.into_iter().rev() {
                    let part = match &field.name {
                        Some(name) => Part::Field(name.clone()),
                        None => Part::Position(at),
                    };
                    let path = self.path(path, part);
                    todo.push(Todo::Convert(object, &field.ty, path));
                }
            }
            TypeKind::Sequence(element) => {
                let is_text = object.cast::<PyString>().is_ok() || object.cast::<PyBytes>().is_ok();
                let elements = match object.try_iter() {
                    Ok(elements) if !is_text && object.cast::<PyDict>().is_err() => elements,
                    _ => return Err(self.unlike(path, "a list of the elements", ty, object)),
                };
                let elements: Vec<_> = elements.collect::<PyResult<_>>()?;
                todo.push(Todo::Sequence(elements.len()));
                for (at, object) in elements.into_iter().enumerate().rev() {
                    let path = self.path(path, Part::Position(at));
                    todo.push(Todo::Convert(object, element, path));
                }
            }
            TypeKind::Federated(federated) => self.federated(object, federated, ty, path, todo)?,
            TypeKind::Function(_) => return self.function(object, ty, path).map(Some),
            TypeKind::Placement => match placements::unwrap(object) {
                Some(placement) => return Ok(Some(Value::Placement(placement))),
                None => return Err(self.unlike(path, "a placement", ty, object)),
            },
            TypeKind::Abstract(_) => return Err(self.unlike(path, "nothing", ty, object)),
        }
        Ok(None)
    }

    fn federated<'py, 'a>(
        &mut self,
        object: &Bound<'py, PyAny>,
        federated: &'a FederatedType,
        ty: &Type,
        path: usize,
        todo: &mut Vec<Todo<'py, 'a>>,
    ) -> PyResult<()> {
        if federated.all_equal {
            todo.push(Todo::Everywhere);
            todo.push(Todo::Convert(object.clone(), &federated.member, path));
            return Ok(());
        }
        let members: Vec<_> = if let Ok(list) = object.cast::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            tuple.iter().collect()
        } else {
            let error = Error::new(
                Class::InvalidNonAllEqual,
                format!("{} differs between clients: it must be a list", self.name(path)),
            );
            let error = error
                .expected(format!("a list with one value for each client, for {ty}"))
                .found(describe(object));
            return Err(raise(&error));
        };
        if federated.placement == Placement::Clients {
            self.count(members.len(), path)?;
        }
        todo.push(Todo::Each(members.len()));
        for (at, object) in members.into_iter().enumerate().rev() {
            let path = self.path(path, Part::Client(at));
            todo.push(Todo::Convert(object, &federated.member, path));
        }
        Ok(())
    }

    /// Checks that everything is for the same number of clients.
    fn count(&mut self, found: usize, path: usize) -> PyResult<()> {
        match &self.clients {
            None => self.clients = Some((found, self.name(path))),
            Some((expected, _)) if *expected == found => {}
            Some((expected, place)) => {
                let error = Error::new(
                    Class::Value,
                    format!("{} is for another number of clients", self.name(path)),
                );
                let error = error
                    .expected(format!("{expected} clients, as {place} says"))
                    .found(format!("{found} clients"));
                return Err(raise(&error));
            }
        }
        Ok(())
    }

    fn function(&self, object: &Bound<'_, PyAny>, ty: &Type, path: usize) -> PyResult<Value<Leaf>> {
        let Some(block) = tree(object)? else {
            return Err(self.unlike(path, "a computation", ty, object));
        };
        if !ty.is_assignable_from(block.ty()).map_err(|error| raise(&error))? {
            let error = Error::new(Class::Type, format!("{} is another function", self.name(path)));
            return Err(raise(&error.expected(ty).found(block.ty())));
        }
        (self.evaluate)(&block)
    }

    /// The objects for the fields of a struct, in their order.
    fn fields<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        structure: &StructType,
        ty: &Type,
        path: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let wrong = |expected: &str| Err(self.unlike(path, expected, ty, object));
        let count = structure.len();
        if let Some(fields) = in_order(object, structure) {
            return Ok(fields);
        }
        let Some(Elements { elements, .. }) = elements(object)? else {
            return wrong("a struct");
        };
        if elements.len() != count {
            return match self.other_fields(object, structure, ty, path)? {
                Some(error) => Err(error),
                None => wrong(&format!("{count} fields")),
            };
        }
        // Names count, not the order, where everything has one.
        let mut fields: Vec<Option<Bound<'py, PyAny>>> = vec![None; count];
        for (at, (name, value)) in elements.into_iter().enumerate() {
            let place = match &name {
                None => at,
                Some(name) => match structure.position(name) {
                    Some(place) => place,
                    None => {
                        return match self.other_fields(object, structure, ty, path)? {
                            Some(error) => Err(error),
                            None => wrong(&format!("no field '{name}'")),
                        };
                    }
                },
            };
            if fields[place].replace(value).is_some() {
                return wrong("each field once");
            }
        }
        Ok(fields.into_iter().flatten().collect())
    }

    /// What is wrong with the names of fields, where all have one.
    fn other_fields(
        &self,
        object: &Bound<'_, PyAny>,
        structure: &StructType,
        ty: &Type,
        path: usize,
    ) -> PyResult<Option<PyErr>> {
        let Some(Elements { elements, .. }) = elements(object)? else { return Ok(None) };
        let found: Option<Vec<&Name>> = elements.iter().map(|(name, _)| name.as_ref()).collect();
        let fields = structure.fields().iter();
        let wanted: Option<Vec<&Name>> = fields.map(|field| field.name.as_ref()).collect();
        let (Some(found), Some(wanted)) = (found, wanted) else { return Ok(None) };
        let names: Vec<String> = found.iter().map(|name| format!("'{name}'")).collect();
        let listed = match &names[..] {
            [] => "no fields".to_owned(),
            [one] => format!("the field {one}"),
            several => format!("the fields {}", several.join(", ")),
        };
        let beyond = |word: &str, names: &[&Name], of: &[&Name]| -> Vec<String> {
            let beyond = names.iter().filter(|name| !of.contains(name));
            beyond.map(|name| format!("{word} field '{name}'")).collect()
        };
        let mut parts = beyond("a", &wanted, &found);
        parts.extend(beyond("no", &found, &wanted));
        if parts.is_empty() {
            return Ok(None);
        }
        let error = Error::new(Class::Type, format!("{} has other fields", self.name(path)));
        let error = error.expected(format!("{}, for {ty}", parts.join(", ")));
        Ok(Some(PyTypeError::new_err(error.found(listed).to_string())))
    }

    fn path(&mut self, from: usize, part: Part) -> usize {
        self.paths.push((from, part));
        self.paths.len()
    }

    /// What stands at a path: ``the argument `model`['bias'][0] at client 3``.
    fn name(&self, path: usize) -> String {
        let mut parts = Vec::new();
        let mut at = path;
        while at > 0 {
            let (from, part) = &self.paths[at - 1];
            parts.push(part);
            at = *from;
        }
        let mut text = self.what.to_owned();
        let mut client = None;
        for (depth, part) in parts.into_iter().rev().enumerate() {
            match part {
                Part::Field(name) if depth == 0 => write!(text, " `{name}`"),
                Part::Field(name) => write!(text, "['{name}']"),
                Part::Position(at) => write!(text, "[{at}]"),
                Part::Client(at) => {
                    client = Some(at);
                    Ok(())
                }
            }
            .expect("writing to a string");
        }
        if let Some(client) = client {
            write!(text, " at client {client}").expect("writing to a string");
        }
        text
    }

    fn unlike(&self, path: usize, expected: &str, ty: &Type, object: &Bound<'_, PyAny>) -> PyErr {
        let error = Error::new(Class::Type, format!("{} doesn't fit its type", self.name(path)));
        let error = error.expected(format!("{expected}, for {ty}")).found(describe(object));
        PyTypeError::new_err(error.to_string())
    }
}

/// The values of a dictionary that has the fields of a struct in the type's order, as most have: nothing is made for
/// their names. `None`: it may be another.
fn in_order<'py>(
    object: &Bound<'py, PyAny>,
    structure: &StructType,
) -> Option<Vec<Bound<'py, PyAny>>> {
    let dict = object.cast_exact::<PyDict>().ok()?;
    if dict.len() != structure.len() {
        return None;
    }
    let fields = dict.iter().zip(structure.fields()).map(|((key, value), field)| {
        let key = key.cast_exact::<PyString>().ok()?;
        (key.to_str().ok()? == &**field.name.as_ref()?).then_some(value)
    });
    fields.collect()
}

/// For values that can't hold functions.
pub fn no_functions(_: &BuildingBlock) -> PyResult<Value<Leaf>> {
    Err(errors::raise(&Error::new(Class::NotImplemented, "a function can't be returned here")))
}
