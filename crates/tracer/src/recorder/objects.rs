//! The trace's table of Python objects: each object once, by identity.
//!
//! Strings are interned first, so that equal strings are one object and a dictionary slot has one
//! name, however its key was spelled.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::FxHashMap;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::ObjectId;

/// Objects that guards and recipes speak of.
#[derive(Default)]
pub struct Objects {
    objects: Vec<Py<PyAny>>,
    ids: FxHashMap<usize, ObjectId>,
    /// Constants that served as keys, each equal one once.
    keys: Option<Py<PyDict>>,
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

    /// The one object that stands for all keys that a dictionary takes for `key`: strings are
    /// interned, other constants found by equality, objects stand for themselves.
    pub fn canonical<'py>(&mut self, key: Borrowed<'_, 'py>) -> Object<'py> {
        if key.is_exact_instance_of::<PyString>() || !super::look::is_constant(key) {
            return canonical_key(key);
        }
        let py = key.py();
        let keys = self.keys.get_or_insert_with(|| PyDict::new(py).unbind()).bind(py);
        match keys.get_item(key) {
            Ok(Some(known)) => known,
            // A key that can't be hashed is no key.
            _ => {
                let _ = keys.set_item(key, key);
                key.to_owned()
            }
        }
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
