//! The trace's table of Python objects: each object once, by identity.
//!
//! Strings are interned first, so that equal strings are one object and a dictionary slot has one
//! name, however its key was spelled.

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{ObjectId, Text};

/// Objects that guards and recipes speak of.
#[derive(Default)]
pub struct Objects {
    objects: Vec<Py<PyAny>>,
    ids: FxHashMap<usize, ObjectId>,
    /// How keys print, by their ids: a name is met on each module of a model.
    reprs: Vec<Option<Text>>,
}

impl Objects {
    /// The id of `object`, which the table keeps alive.
    pub fn intern(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        let address = object.as_ptr() as usize;
        if let Some(&id) = self.ids.get(&address) {
            return id;
        }
        let id = ObjectId::new(self.objects.len());
        self.objects.push(object.to_owned().unbind());
        self.ids.insert(address, id);
        id
    }

    /// How the object prints as a key.
    pub fn repr(&mut self, id: ObjectId, object: Borrowed<'_, '_>) -> Text {
        if self.reprs.len() <= id.index() {
            self.reprs.resize(self.objects.len(), None);
        }
        let text = &mut self.reprs[id.index()];
        text.get_or_insert_with(|| super::look::short_repr(object).into()).clone()
    }

    /// The table.
    pub fn into_inner(self) -> Vec<Py<PyAny>> {
        self.objects
    }

    /// The objects so far.
    pub fn as_slice(&self) -> &[Py<PyAny>] {
        &self.objects
    }
}

/// `key` with strings interned.
pub fn canonical_key<'py>(key: Borrowed<'_, 'py>) -> Object<'py> {
    super::look::interned(key)
}
