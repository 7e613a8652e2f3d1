//! Which parameters of PyTorch's Python functions are tensors: by their annotations.
//!
//! A Python function that counts as one operation (`F.pad`) has no schema. If a tensor stands where its
//! code wants something else, the function is traced like any other, down to operators that have one.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;

/// Parameters without annotation that are tensors, by their names.
const TENSORS: &[&str] =
    &["input", "tensor", "tensors", "matrices", "other", "x1", "x2", "out", "target"];

/// The same of single functions.
const OF_FUNCTIONS: &[(&str, &[&str])] = &[("tensordot", &["a", "b"]), ("einsum", &["args"])];

/// The parameters of a Python function.
#[derive(Debug)]
pub struct Parameters {
    /// Those that may be given by position, and whether they're tensors.
    positional: Vec<(Box<str>, bool)>,
    /// Those that may only be named.
    named: Vec<(Box<str>, bool)>,
    /// Whether what `*args` takes are tensors.
    rest: Option<bool>,
    /// It only hands its arguments on, as `boolean_dispatch` does: the first is a tensor.
    hands_on: bool,
}

impl Parameters {
    /// Of a Python function.
    pub fn of(function: Borrowed<'_, '_>) -> Option<Self> {
        const VARARGS: u32 = 4;
        let code = value(function, Field::Code)?;
        let code = Code::of(code.as_borrowed())?;
        let annotations = function.getattr("__annotations__").ok()?.cast_into::<PyDict>().ok()?;
        let own = code.name().to_string();
        let extra = OF_FUNCTIONS.iter().find(|(name, _)| *name == own).map_or(&[][..], |row| row.1);
        let is_tensor = |name: &str| match annotations.get_item(name).ok().flatten() {
            _ if name == "self" || extra.contains(&name) => true,
            Some(annotation) => annotation.str().is_ok_and(|text| {
                text.to_string_lossy()
                    .split(|c: char| !c.is_alphanumeric())
                    .any(|word| word == "Tensor")
            }),
            None => TENSORS.contains(&name),
        };
        let parameter = |index: usize| {
            let name = code.local_name(index).to_string();
            let found = is_tensor(&name);
            (name.into_boxed_str(), found)
        };
        let first_named = code.argcount();
        let last_named = first_named + code.kwonlyargcount();
        let rest = (code.flags() & VARARGS != 0).then(|| parameter(last_named));
        Some(Parameters {
            positional: (0..first_named).map(parameter).collect(),
            named: (first_named..last_named).map(parameter).collect(),
            hands_on: first_named == 0 && rest.as_ref().is_some_and(|(name, _)| &**name == "args"),
            rest: rest.map(|(_, is_tensor)| is_tensor),
        })
    }

    /// Whether a tensor may be given at this place and be nothing but a tensor.
    pub fn takes_tensor_at(&self, place: usize) -> bool {
        match self.positional.get(place) {
            Some((_, is_tensor)) => *is_tensor,
            None => self.rest == Some(true) || (self.hands_on && place == 0),
        }
    }

    /// The same of one that is named.
    pub fn takes_tensor_named(&self, name: &str) -> bool {
        let mut all = self.positional.iter().chain(&self.named);
        all.find(|(known, _)| &**known == name)
            .map_or(self.hands_on && name == "input", |(_, is_tensor)| *is_tensor)
    }
}
