//! Keys of outside dictionaries that aren't known by value or identity alone: objects whose class says in Python what they
//! hash to and equal (frozen dataclasses), named tuples, frozen sets, tuples of these.
//!
//! ```python
//! kernel = kernels.get(Spec(size, sigma))
//! ```
//!
//! C code would call `__hash__`, look which keys of the dictionary have that hash, and call `__eq__` of those. So does the
//! recorder, one after the other: the methods are functions of the trace, and what they read is guarded. What the dictionary
//! has under the hash is a slot of two sources, the key and the value, or its absence a guard. A check looks for the hash and
//! calls nothing.
//!
//! Invariants:
//! * The hash is the same in each call that passes the guards.
//! * The trace has written nothing to the dictionary: what it holds is what a check will find.
//! * Each method is called once, also where the trace ends in between.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyFunction, PyInt};
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, AtHash};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, CompareOp, Conversion};
use stator_cpython::{Raised, Result};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Conversions, Ends, HashedKeys, Looks};
use crate::recorder::notes::effects::KEYS;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::reads::identity::is_nan;
use crate::recorder::reads::keys::leaves_equality_to_tuples;

/// So deep a key's tuples are looked into.
const DEPTH: usize = 8;

impl HashedKeys for Recorder {
    fn entry_by_hash<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>> {
        if self.is_stopped()
            || !matches!(self.kind(key), Kind::Object | Kind::Tuple | Kind::FrozenSet)
        {
            return None;
        }
        let is_such = self.note(frame, |state| Ok(state.is_found_by_hash(dict, key)));
        if is_such != Some(true) {
            return None;
        }
        self.concrete(frame, &[key], "a key");
        let is_known = self.note(frame, |state| state.know_hashed(key));
        if is_known != Some(true) {
            return None;
        }
        Some(self.find_by_hash(frame, dict, key))
    }

    fn item_by_hash<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if types::lookup_named(&dict.get_type(), "__missing__").is_some() {
            return None;
        }
        Some(match self.entry_by_hash(frame, dict, key)? {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(self.lacks_key(key)),
            Err(raised) => Err(raised),
        })
    }
}

impl Recorder {
    /// The error of a dictionary that lacks a key.
    pub(super) fn lacks_key(&self, key: Borrowed<'_, '_>) -> Raised {
        // A tuple of the trace's own isn't found in errors, unless its frame goes on with it.
        let py = key.py();
        let key = key.to_owned();
        let plain = if self.is_stopped() {
            self.plain_left(key.as_borrowed())
        } else {
            self.state.borrow().plain(&key)
        };
        Raised::set(py, PyKeyError::new_err((plain.unwrap_or(key).unbind(),)))
    }

    /// `hash()`.
    pub(super) fn hash_of_any<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        match self.hash_by_parts(frame, object) {
            Some(hash) => hash,
            None => self.hash_of(frame, object, native),
        }
    }

    /// `hash()` of a tuple in which there are such objects.
    fn hash_by_parts<'py>(
        &self,
        frame: &Frame<'py>,
        tuple: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if self.is_stopped() || self.kind(tuple) != Kind::Tuple || heap::is_constant(tuple) {
            return None;
        }
        let is_such = self.note(frame, |state| Ok(state.is_hashed(tuple, DEPTH)));
        if is_such != Some(true) {
            return None;
        }
        self.concrete(frame, &[tuple], "a hash");
        let is_known = self.note(frame, |state| {
            let why = "it asks for a hash, which is another one in each process";
            state.of_process.get_or_insert(why);
            state.know_hashed(tuple)
        });
        if is_known != Some(true) {
            return None;
        }
        let hash = self.hash_of_key(frame, tuple);
        Some(hash.map(|hash| PyInt::new(frame.py(), hash).into_any()))
    }

    fn find_by_hash<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        let hash = self.hash_of_key(frame, key)?;
        let (stored, value) = match dict::at_hash(dict, hash) {
            AtHash::One(stored, value) => (stored, value),
            AtHash::Absent => {
                self.note(frame, |state| state.lacks_hash(dict, hash));
                return Ok(None);
            }
            AtHash::Several => {
                self.stop(frame, Reason::Identity, "keys of one hash");
                return ops::get_hashed(dict, key, hash);
            }
        };
        self.note(frame, |state| state.has_hashed(dict, hash, stored.as_borrowed(), key));
        if !self.equals_key(frame, stored.as_borrowed(), key)? {
            return Ok(None);
        }
        self.note(frame, |state| {
            let Some(parent) = state.source(dict) else { return Ok(()) };
            let source = state.sources.intern(Source::HashedItem { parent, hash });
            state.adopt(source, value.as_borrowed())
        });
        Ok(Some(value))
    }

    /// What `hash(key)` is.
    fn hash_of_key<'py>(&self, frame: &Frame<'py>, key: Borrowed<'_, 'py>) -> Result<isize> {
        if heap::is_constant(key) {
            return ops::hash(key);
        }
        match self.kind(key) {
            Kind::Tuple => {
                let parts = heap::tuple_items(key);
                let parts = parts.iter().map(|part| self.hash_of_key(frame, part.as_borrowed()));
                Ok(ops::hash_of_tuple(&parts.collect::<Result<Vec<_>>>()?))
            }
            Kind::Object
                if types::lookup_named(&key.get_type(), "__hash__").is_some_and(is_python) =>
            {
                let Some(hash) = self.python_converted(frame, key, "__hash__", Conversion::Hash)
                else {
                    return ops::hash(key);
                };
                let hash = hash?;
                self.concrete(frame, &[hash.as_borrowed()], "a hash");
                hash.extract().map_err(|error: PyErr| Raised::set(frame.py(), error))
            }
            _ => ops::hash(key),
        }
    }

    /// Whether a key that a dictionary has is one that has its hash, as CPython compares them.
    fn equals_key<'py>(
        &self,
        frame: &Frame<'py>,
        stored: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        if stored.is(&*key) {
            return Ok(true);
        }
        if self.is_stopped() {
            return ops::truth(ops::compare(CompareOp::Eq, stored, key)?.as_borrowed());
        }
        let is_tuple = |key| self.kind(key) == Kind::Tuple && !heap::is_constant(key);
        if is_tuple(stored) && is_tuple(key) {
            let (left, right) = (heap::tuple_items(stored), heap::tuple_items(key));
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(&right) {
                if !self.equals_key(frame, left.as_borrowed(), right.as_borrowed())? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let compare = || self.compare_op(frame, CompareOp::Eq, stored, key);
        let answer = self.part(frame.py(), compare, || ops::compare(CompareOp::Eq, stored, key))?;
        let answer = answer.as_borrowed();
        self.part(frame.py(), || self.truth_of(frame, answer), || ops::truth(answer))
    }
}

impl State {
    /// Whether a key of an outside dictionary is one that is found by its hash, and the dictionary is as it was.
    fn is_found_by_hash(&mut self, dict: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
        self.kind(dict) == Kind::Dict
            && self.source(dict).is_some()
            && !self.written.dict(dict.as_ptr() as usize)
            && !self.enclosed.is_on()
            && self.program.is_none()
            && !heap::is_constant(key)
            && self.is_hashed(key, DEPTH)
    }

    /// Whether a key's hash and equality are those of its parts, or functions in Python. Nothing is guarded yet.
    fn is_hashed(&mut self, key: Borrowed<'_, '_>, depth: usize) -> bool {
        let ty = key.get_type();
        match self.kind(key) {
            Kind::Constant => heap::is_constant(key) && !is_nan(key),
            Kind::Tuple => {
                depth > 0
                    && leaves_equality_to_tuples(&ty)
                    && heap::tuple_items(key)
                        .iter()
                        .all(|part| self.is_hashed(part.as_borrowed(), depth - 1))
            }
            Kind::FrozenSet => {
                key.is_exact_instance_of::<PyFrozenSet>()
                    && heap::set_items(key).iter().all(|part| heap::is_constant(part.as_borrowed()))
            }
            Kind::Object if types::compares_by_identity(key) => {
                depth < DEPTH && self.source(key).is_some()
            }
            Kind::Object => {
                let own = |name| types::lookup_named(&ty, name).is_some_and(is_python);
                self.origin(key).is_some() && own("__hash__") && own("__eq__")
            }
            Kind::Function | Kind::Module | Kind::Type | Kind::TorchCallable | Kind::Singleton => {
                depth < DEPTH
            }
            _ => false,
        }
    }

    /// Guards what hash and equality of such a key depend on, but for what its own methods read.
    fn know_hashed(&mut self, key: Borrowed<'_, '_>) -> std::result::Result<bool, Stop> {
        match self.kind(key) {
            Kind::Constant => Ok(true),
            Kind::Tuple => {
                self.adopt_deep(key)?;
                self.know_key_class(key)?;
                for part in heap::tuple_items(key) {
                    if !self.know_hashed(part.as_borrowed())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Kind::FrozenSet => self.adopt_deep(key).map(|()| true),
            Kind::Object if !types::compares_by_identity(key) => {
                self.know_key_class(key)?;
                Ok(true)
            }
            _ => self.is_key_by_identity(key),
        }
    }

    /// No key of a dictionary has a hash.
    fn lacks_hash(&mut self, dict: Borrowed<'_, '_>, hash: isize) -> std::result::Result<(), Stop> {
        let Some(parent) = self.source(dict) else { return Ok(()) };
        self.reads.first((dict.as_ptr() as usize, KEYS));
        self.guard(parent, GuardKind::HashAbsent(hash));
        Ok(())
    }

    /// The key of a dictionary that has the hash of another one is about to be compared with that.
    fn has_hashed(
        &mut self,
        dict: Borrowed<'_, '_>,
        hash: isize,
        stored: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let Some(parent) = self.source(dict) else { return Ok(()) };
        self.reads.first((dict.as_ptr() as usize, KEYS));
        let source = self.sources.intern(Source::HashedKey { parent, hash });
        self.adopt(source, stored)?;
        if !self.is_hashed(stored, DEPTH) || !self.know_hashed(stored)? {
            return Err((Reason::Identity, format!("a {} as key", heap::type_name(stored))));
        }
        if !stored.is(&*key) {
            self.note_hashed(stored);
            self.note_hashed(key);
        }
        Ok(())
    }
}

/// Whether a special method is a function in Python.
fn is_python(method: Object<'_>) -> bool {
    method.is_instance_of::<PyFunction>()
}
