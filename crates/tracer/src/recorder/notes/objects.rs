//! The trace's table of Python objects: each object once, by identity.
//!
//! Strings are interned first, so that equal strings are one object and a dictionary slot has one
//! name, however its key was spelled.
//!
//! What is known of an object stands in one entry, because most reads ask several questions of the
//! same object. An entry without an id doesn't keep its object alive: its address may be another
//! object's by now. Only objects with an id bear marks.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashSet;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{ObjectId, SourceId, Text};

use super::addresses::Addresses;
use super::heap;
use super::state::{Origin, State};
use crate::breaks::Reason;

/// Objects that guards and recipes speak of, and where they and others came from.
pub struct Objects {
    objects: Vec<Py<PyAny>>,
    known: Addresses<usize, Known>,
    /// Constants that served as keys, each equal one once.
    keys: Option<Py<PyDict>>,
    /// How keys print, by their ids: a name is met on each module of a model.
    reprs: Vec<Option<Text>>,
    /// The names of attributes, by their ids: a name is met on many classes.
    names: Vec<Option<Text>>,
    /// The ids of types met last, by some bits of their addresses.
    types: [(usize, u32); TYPES],
}

const TYPES: usize = 64;

/// What is known of an object.
#[derive(Clone, Copy)]
struct Known {
    origin: Option<Origin>,
    /// [`NO_ID`] if nobody asked for it.
    id: u32,
    marks: u8,
}

const NO_ID: u32 = u32::MAX;

const UNKNOWN: Known = Known { origin: None, id: NO_ID, marks: 0 };

/// What was done about an object of the table, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// It is guarded by identity.
    ByIdentity = 1,
    /// A function: its parts are guarded.
    Entered = 2,
    /// A dictionary: its keys are guarded as a whole.
    Keyed = 4,
    /// A dictionary: its length is guarded.
    Sized = 8,
}

/// What [`Objects::adopt`] found.
pub enum Adopted {
    /// An object without a source: it has one now.
    New(ObjectId),
    /// An outside object, met before at this source.
    Before(SourceId),
    /// As `Before`, and guarded by identity.
    Identical(ObjectId),
}

impl Objects {
    /// An empty table with room for so many objects with an id, and so many of which something is known.
    pub fn with_room(objects: usize, known: usize) -> Self {
        Self {
            objects: Vec::with_capacity(objects),
            known: Addresses::with_room(known, UNKNOWN),
            keys: None,
            reprs: Vec::with_capacity(objects),
            names: Vec::with_capacity(objects),
            types: [(0, NO_ID); TYPES],
        }
    }

    /// The id of `object`, which the table keeps alive.
    pub fn intern(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        let known = self.known.entry(object.as_ptr() as usize);
        if known.id == NO_ID {
            known.id = keep(&mut self.objects, object);
        }
        ObjectId::new(known.id as usize)
    }

    /// The object with this id.
    pub fn get<'a, 'py>(&'a self, py: Python<'py>, id: ObjectId) -> Borrowed<'a, 'py> {
        self.objects[id.index()].bind_borrowed(py)
    }

    /// As [`Objects::intern`] of a type.
    pub fn intern_type(&mut self, ty: Borrowed<'_, '_>) -> ObjectId {
        let address = ty.as_ptr() as usize;
        let slot = address >> 4 & (TYPES - 1);
        let (known, id) = self.types[slot];
        if known == address {
            return ObjectId::new(id as usize);
        }
        let id = self.intern(ty);
        self.types[slot] = (address, id.index() as u32);
        id
    }

    /// The one object that stands for all keys that a dictionary takes for `key`: strings are
    /// interned, other constants found by equality, members of enumerations of texts and numbers by their values, other objects
    /// stand for themselves.
    pub fn canonical<'py>(&mut self, key: Borrowed<'_, 'py>) -> Object<'py> {
        if key.is_exact_instance_of::<PyString>() {
            return canonical_key(key);
        }
        if !heap::is_constant(key) {
            return match types::plain_value(key) {
                Some(value) => self.canonical(value.as_borrowed()),
                None => key.to_owned(),
            };
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

    /// Where the constants are that served as keys, texts aside.
    pub fn plain_keys(&self, py: Python<'_>) -> FxHashSet<usize> {
        let keys = self.keys.iter().flat_map(|keys| keys.bind(py).iter());
        let others = keys.filter(|(key, _)| !key.is_instance_of::<PyString>());
        others.map(|(_, known)| known.as_ptr() as usize).collect()
    }

    /// Gives an object this source, unless it has one.
    pub fn adopt(&mut self, object: Borrowed<'_, '_>, source: SourceId) -> Adopted {
        let known = self.known.entry(object.as_ptr() as usize);
        if let Some(Origin::Source(before)) = known.origin {
            return if known.marks & Mark::ByIdentity as u8 != 0 {
                Adopted::Identical(ObjectId::new(known.id as usize))
            } else {
                Adopted::Before(before)
            };
        }
        if known.id == NO_ID {
            known.id = keep(&mut self.objects, object);
        }
        known.origin = Some(Origin::Source(source));
        Adopted::New(ObjectId::new(known.id as usize))
    }

    /// Where the object at an address came from.
    pub fn origin(&self, address: usize) -> Option<Origin> {
        self.known.get(address)?.origin
    }

    /// The outside object that was found at a source. Looks at all there are.
    #[cold]
    pub fn at_source(&self, source: SourceId) -> Option<ObjectId> {
        let found = |(_, known): &(&usize, &Known)| known.origin == Some(Origin::Source(source));
        let (_, known) = self.known.iter().find(found).filter(|(_, known)| known.id != NO_ID)?;
        Some(ObjectId::new(known.id as usize))
    }

    /// Says where an object came from.
    pub fn set_origin(&mut self, object: Borrowed<'_, '_>, origin: Origin) {
        self.known.entry(object.as_ptr() as usize).origin = Some(origin);
    }

    /// Nobody vouches for an object any more. Its id and its marks stay.
    pub fn forget_origin(&mut self, object: Borrowed<'_, '_>) {
        if let Some(known) = self.known.get_mut(object.as_ptr() as usize) {
            known.origin = None;
        }
    }

    /// Whether the object at an address bears a mark.
    pub fn is_marked(&self, address: usize, mark: Mark) -> bool {
        self.known.get(address).is_some_and(|known| known.marks & mark as u8 != 0)
    }

    /// Marks an object; false if it bore the mark already.
    pub fn mark(&mut self, object: Borrowed<'_, '_>, mark: Mark) -> bool {
        let known = self.known.entry(object.as_ptr() as usize);
        if known.marks & mark as u8 != 0 {
            return false;
        }
        if known.id == NO_ID {
            known.id = keep(&mut self.objects, object);
        }
        known.marks |= mark as u8;
        true
    }

    /// The source of an outside dictionary whose length isn't guarded, in one way or another; from now
    /// on it is.
    pub fn first_sized(&mut self, dict: Borrowed<'_, '_>) -> Option<SourceId> {
        let known = self.known.get_mut(dict.as_ptr() as usize)?;
        let Some(Origin::Source(source)) = known.origin else { return None };
        if known.marks & (Mark::Keyed as u8 | Mark::Sized as u8) != 0 {
            return None;
        }
        known.marks |= Mark::Sized as u8;
        Some(source)
    }

    /// How the object prints as a key.
    pub fn repr(&mut self, id: ObjectId, object: Borrowed<'_, '_>) -> Text {
        text(&mut self.reprs, id, self.objects.len(), || heap::key_text(object))
    }

    /// The name of an attribute.
    pub fn name(&mut self, id: ObjectId, name: Borrowed<'_, '_>) -> Text {
        text(&mut self.names, id, self.objects.len(), || heap::text(name).into())
    }

    /// The sources of the outside objects that `is_one` says something of.
    pub fn outside(
        &self,
        py: Python<'_>,
        is_one: impl Fn(Borrowed<'_, '_>) -> bool,
    ) -> Vec<SourceId> {
        let found = self.objects.iter().filter(|object| is_one(object.bind_borrowed(py)));
        let sources = found.filter_map(|object| match self.origin(object.as_ptr() as usize) {
            Some(Origin::Source(source)) => Some(source),
            _ => None,
        });
        sources.collect()
    }

    /// How many objects have an id, and of how many something is known.
    pub fn room(&self) -> (usize, usize) {
        (self.objects.len(), self.known.len())
    }

    /// The table.
    pub fn into_inner(mut self) -> Vec<Py<PyAny>> {
        self.objects.shrink_to_fit();
        self.objects
    }
}

/// The text of an object, made once.
fn text(
    texts: &mut Vec<Option<Text>>,
    id: ObjectId,
    objects: usize,
    make: impl FnOnce() -> Text,
) -> Text {
    if texts.len() <= id.index() {
        texts.resize(objects, None);
    }
    texts[id.index()].get_or_insert_with(make).clone()
}

fn keep(objects: &mut Vec<Py<PyAny>>, object: Borrowed<'_, '_>) -> u32 {
    objects.push(object.to_owned().unbind());
    u32::try_from(objects.len() - 1).expect("fewer than 2^32 objects")
}

/// `key` with strings interned.
pub fn canonical_key<'py>(key: Borrowed<'_, 'py>) -> Object<'py> {
    heap::interned(key)
}

/// Objects whose death would be noticed, and what they were found in.
#[derive(Default)]
pub struct Mortal {
    outside: Vec<ObjectId>,
    /// Those with finalizers that the trace has made: weak references.
    made: Vec<Py<PyWeakrefReference>>,
}

impl Mortal {
    /// One more, if it isn't watched yet.
    pub fn watch(&mut self, object: ObjectId) {
        if !self.outside.contains(&object) {
            self.outside.push(object);
        }
    }

    /// All of them.
    pub fn all(&self) -> &[ObjectId] {
        &self.outside
    }

    /// Those with finalizers that the trace has made, and that are still alive.
    pub fn made<'py>(&self, py: Python<'py>) -> impl Iterator<Item = Object<'py>> {
        self.made.iter().filter_map(move |made| made.bind(py).upgrade())
    }
}

/// For so many objects, what they were found in is watched as well.
const MOST: usize = 256;

impl State {
    /// Takes note of an object that the trace has made, if it has a finalizer: should nothing but itself refer to it as
    /// the trace ends, only plain Python would have it to collect.
    #[inline]
    pub(in crate::recorder) fn watch_made(&mut self, object: Borrowed<'_, '_>) {
        if types::has_finalizer(object.get_type().as_borrowed()) {
            self.watch_new(object);
        }
    }

    #[cold]
    fn watch_new(&mut self, object: Borrowed<'_, '_>) {
        if self.mortal.made(object.py()).any(|made| made.is(object)) {
            return;
        }
        match PyWeakrefReference::new(&object) {
            Ok(reference) => self.mortal.made.push(reference.unbind()),
            Err(_) => {
                let detail = "an object with a finalizer and no weak references";
                self.failure.get_or_insert((Reason::Unsupported, detail.into()));
            }
        }
    }

    /// Takes note of an outside object whose death would be noticed, and of what it was found in: the
    /// trace keeps that alive too.
    #[inline]
    pub(in crate::recorder) fn watch_finalizer(
        &mut self,
        object: Borrowed<'_, '_>,
        id: ObjectId,
        source: SourceId,
    ) {
        if types::has_finalizer(object.get_type().as_borrowed()) {
            self.watch_within(id, source);
        }
    }

    #[cold]
    pub(in crate::recorder) fn watch_within(&mut self, id: ObjectId, source: SourceId) {
        self.mortal.watch(id);
        if self.mortal.outside.len() > MOST {
            return;
        }
        let mut at = source;
        while let Some(parent) = self.sources.get(at).parent() {
            if let Some(id) = self.objects.at_source(parent) {
                self.mortal.watch(id);
            }
            at = parent;
        }
    }
}
