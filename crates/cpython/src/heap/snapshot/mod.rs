//! Snapshots: a state of the heap as a flat array of words to compare.
//!
//! A snapshot says: these roots are these objects, and each of these words in memory has this
//! value. If all agree, every guard that held when the snapshot was taken holds again.
//!
//! # Why the reads are allowed
//!
//! The words are compared in order, and stop at the first difference. Each word lies in an object
//! that the words before it prove alive and of the layout assumed:
//!
//! * a root is an argument, which the caller holds, or an object of a [`Liveness`], which is alive
//!   while [`Liveness::is_alive`] (compared first; nothing in a comparison runs Python code, so it
//!   can't change meanwhile), or an object the snapshot owns;
//! * any other object is reached from an object already proven: either a word says that a slot of
//!   that object holds this pointer *now*, and a slot owns what it holds; or the version of a
//!   dictionary or type says that it's unchanged since its values were recorded;
//! * the attributes of a `threading.local` in a thread are its own dictionary while both live, so a snapshot with such
//!   a dictionary is one of that thread;
//! * before any other word of an object comes its type word (the object's type pointer is the
//!   recorded one), unless its layout follows from the slot: an instance dictionary is a
//!   dictionary, and the type of an object of an exact builtin type can't change;
//! * a type pointer alone doesn't prove the layout, because a heap type's memory can be reused for
//!   another type. So a heap type is either in the `Liveness`, or its version word follows: versions
//!   are unique over all types and times.
//!
//! # Why agreement means that the guards hold
//!
//! Guards speak of what is reachable *now*; they were checked structurally when the snapshot was
//! taken. Every slot on the way to a guarded object is compared (by value, or through the version
//! of the dictionary or type it belongs to), so the walk from the roots takes the same pointers.
//! A pointer may belong to a new object at an old address; that matters in two cases only. An
//! immutable leaf that was compared by value is owned by the snapshot, so its address isn't reused.
//! An object that a guard knows by identity is in the `Liveness`. Everything else that a guard says
//! of an object (type, dictionary, length, elements, metadata) is a word of its own and read anew.
//!
//! # Tensors
//!
//! Nothing is reached through a tensor's metadata, so tensors are compared last, in a form of their own
//! ([`tensors::Tensors`]): type, then the fields of the `TensorImpl`, then those of the `AutogradMeta`.
//!
//! # Changed dictionaries
//!
//! A dictionary's version moves when any of its entries does. Then its guarded keys are looked up
//! again: the same pointers, of the same types, and the version is refreshed; words of the values
//! follow in order as always. The same for the guarded names of types that are in the `Liveness`.
//!
//! # Watched dictionaries
//!
//! Where CPython tells of changes ([`witness`]) a dictionary has no words. It is *quiet* or *asked*. An asked one is
//! looked into as a changed one is, at its place among the words, which prove it alive. If what was guarded holds, and
//! nobody has told of a change since an earlier check, it's quiet from then on: no check looks at it before CPython
//! tells of its change or its end, and then it's asked again. So a quiet dictionary is alive and unchanged, as one whose
//! version agrees is, wherever the words lead. Each begins as asked: its first quiet check is a later one than that which
//! subscribed, and so is the second after a change.
//!
//! A dictionary that was told of too often stays asked for a while, by its version where that tells of every change.
//!
//! Where neither versions ([`dict::is_versioned`]) nor watchers tell of every change, guarded keys are looked up at each
//! check.

mod asked;
mod builder;
mod tensors;

use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::weak::Liveness;
use super::witness::Changes;
use super::{Any, dict, thread_local, types};
use asked::Told;
use tensors::Tensors;

pub use builder::{Builder, Node, Result, Unwatchable};

/// A word of memory and the value it must have.
#[derive(Clone, Copy)]
struct Word {
    at: *const u64,
    want: u64,
}

/// A dictionary or type, and what to look up once it has changed.
struct Watch {
    /// The dictionary or type; alive when its word is reached.
    object: *mut ffi::PyObject,
    /// Its type: what else is compared depends on it (the order of an `OrderedDict`).
    object_type: usize,
    entries: Vec<Entry>,
    /// Of a dictionary: the keys in order, where that is guarded.
    order: Option<Vec<usize>>,
    /// Of a dictionary: the number of entries, where that is guarded.
    length: Option<usize>,
    kind: WatchKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchKind {
    Dict,
    /// A type that may be looked into again after it changed.
    Type,
    /// A type that is only known by its version.
    Version,
}

impl WatchKind {
    /// Whether the version tells of every change.
    fn is_told(self, object: Any<'_, '_>) -> bool {
        self != WatchKind::Dict || dict::is_versioned(object)
    }
}

/// What a guarded key or name led to; null where it was absent.
struct Entry {
    key: Key,
    /// Of a `super` lookup: the class it starts behind.
    after: Option<Key>,
    value: *mut ffi::PyObject,
    value_type: *mut ffi::PyTypeObject,
}

/// A constant, or the address of an object in the `Liveness`; or what a dictionary holds under a hash: the value or the key.
enum Key {
    Constant(Py<PyAny>),
    Held(usize),
    Hash(isize),
    StoredAt(isize),
}

/// Where a wanted object comes from.
enum Wanted {
    Argument(usize),
    Object(*mut ffi::PyObject),
    /// To which [`Tensors::agree`] has taken a reference.
    Tensor(*mut ffi::PyObject),
}

/// The state of the heap that some guards were found to hold in.
pub struct Snapshot {
    liveness: Arc<Liveness>,
    /// The only thread that it holds in, if it speaks of a thread's own attributes.
    thread: Option<i64>,
    /// The least number of arguments of a check.
    arguments: usize,
    roots: Vec<(usize, *mut ffi::PyObject)>,
    words: Vec<Word>,
    /// Compared behind the words.
    tensors: Tensors,
    watches: Vec<Watch>,
    /// The words that are versions, in order, and whose.
    versions: Vec<(usize, usize)>,
    told: Vec<Told>,
    /// Those of `told` that the next check looks into, in order.
    asked: Vec<u32>,
    /// Who is told of the changes of the others.
    changes: Arc<Changes>,
    wanted: Vec<Wanted>,
    /// Leaves compared by pointer; keys of guarded orders.
    owned: Vec<Py<PyAny>>,
}

// SAFETY: pointers are followed only with the GIL held (every method takes a token).
unsafe impl Send for Snapshot {}
// SAFETY: as above.
unsafe impl Sync for Snapshot {}

impl Snapshot {
    /// Whether the root arguments are the snapshot's.
    #[inline]
    #[must_use]
    pub fn is_for(&self, args: &[Any<'_, '_>]) -> bool {
        self.roots
            .iter()
            .all(|(index, object)| args.get(*index).is_some_and(|arg| arg.as_ptr() == *object))
    }

    /// Whether the state is the snapshot's; then appends the wanted objects to `out`.
    #[inline]
    pub fn check<'py>(
        &mut self,
        py: Python<'py>,
        args: &[Any<'_, 'py>],
        out: &mut Vec<Bound<'py, PyAny>>,
    ) -> bool {
        if !self.liveness.is_alive() || args.len() < self.arguments || !self.is_for(args) {
            return false;
        }
        if self.thread.is_some_and(|thread| thread != thread_local::thread(py)) || !self.agrees(py)
        {
            return false;
        }
        out.extend(self.wanted.iter().map(|wanted| match wanted {
            Wanted::Argument(index) => (*args[*index]).clone(),
            // SAFETY: every node's pointer was just proven to be held by a slot that was proven alive; no
            // Python code has run since.
            Wanted::Object(object) => unsafe { Bound::from_borrowed_ptr(py, *object) },
            // SAFETY: the reference that the comparison took.
            Wanted::Tensor(object) => unsafe { Bound::from_owned_ptr(py, *object) },
        }));
        true
    }

    /// Whether all agrees; then there is a reference to each tensor that is wanted.
    #[inline]
    fn agrees(&mut self, py: Python<'_>) -> bool {
        let from = if self.asked.is_empty() && !self.changes.any() {
            0
        } else {
            match self.ask(py) {
                Some(from) => from,
                None => return false,
            }
        };
        self.words_between(py, from, self.words.len())
            // SAFETY: the words prove the tensors alive; no Python code has run since.
            && unsafe { self.tensors.agree() }
    }

    #[inline]
    fn words_between(&mut self, py: Python<'_>, mut from: usize, to: usize) -> bool {
        loop {
            // SAFETY: the module's argument: words are read in order, up to the first difference.
            let found =
                self.words[from..to].iter().position(|word| unsafe { word.at.read() } != word.want);
            let Some(offset) = found else { return true };
            if !self.refresh(py, from + offset) {
                return false;
            }
            from += offset + 1;
        }
    }

    /// A word has moved: looks again at what it stands for.
    #[cold]
    fn refresh(&mut self, py: Python<'_>, word: usize) -> bool {
        let Ok(found) = self.versions.binary_search_by_key(&word, |(word, _)| *word) else {
            return false;
        };
        let watch = &self.watches[self.versions[found].1];
        // SAFETY: the words before this one prove the object alive and a dictionary or type.
        let object = unsafe { Any::from_ptr(py, watch.object) };
        let holds = types::address_of(object) == watch.object_type
            && match watch.kind {
                WatchKind::Dict => watch.dict_holds(object, &self.liveness),
                WatchKind::Type => watch.type_holds(object, &self.liveness),
                WatchKind::Version => false,
            };
        if !holds {
            return false;
        }
        // SAFETY: as for the comparison that found this word different.
        let now = unsafe { self.words[word].at.read() };
        self.words[word].want = if watch.kind.is_told(object) { now } else { dict::UNTOLD };
        // A type that CPython gives no version can't be watched.
        now != 0
    }

    /// Number of words, and of tensors, for tests and reports.
    #[must_use]
    pub fn compared(&self) -> (usize, usize) {
        (self.words.len(), self.tensors.len())
    }

    /// Number of dictionaries of whose changes CPython tells, and how many of them the next check looks into all the
    /// same, for tests and reports.
    #[must_use]
    pub fn watched(&self) -> (usize, usize) {
        (self.told.len(), self.asked.len())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("roots", &self.roots.len())
            .field("words", &self.words.len())
            .field("tensors", &self.tensors.len())
            .field("watches", &self.watches.len())
            .field("told", &self.told.len())
            .field("wanted", &self.wanted.len())
            .field("owned", &self.owned.len())
            .finish()
    }
}

impl Key {
    fn get<'py>(&self, py: Python<'py>, liveness: &Liveness) -> Option<Bound<'py, PyAny>> {
        match self {
            Key::Constant(object) => Some(object.bind(py).clone()),
            Key::Held(address) => liveness.get(py, *address),
            Key::Hash(_) | Key::StoredAt(_) => None,
        }
    }

    /// What a dictionary holds there.
    fn look_up<'py>(&self, dict: Any<'_, 'py>, liveness: &Liveness) -> dict::Lookup<'py> {
        let hash = match self {
            Key::Hash(hash) | Key::StoredAt(hash) => *hash,
            _ => {
                let key = self.get(dict.py(), liveness);
                return key.map_or(dict::Lookup::Refused, |key| dict::get(dict, key.as_borrowed()));
            }
        };
        match dict::at_hash(dict, hash) {
            dict::AtHash::One(key, _) if matches!(self, Key::StoredAt(_)) => {
                dict::Lookup::Found(key)
            }
            dict::AtHash::One(_, value) => dict::Lookup::Found(value),
            dict::AtHash::Absent => dict::Lookup::Absent,
            dict::AtHash::Several => dict::Lookup::Refused,
        }
    }
}

impl Entry {
    fn is(&self, found: Option<&Bound<'_, PyAny>>) -> bool {
        match found {
            None => self.value.is_null(),
            Some(found) => {
                found.as_ptr() == self.value
                    && types::address_of(found.as_borrowed()) == self.value_type as usize
            }
        }
    }
}

impl Watch {
    fn dict_holds(&self, dict: Any<'_, '_>, liveness: &Liveness) -> bool {
        let entries = self.entries.iter().all(|entry| match entry.key.look_up(dict, liveness) {
            dict::Lookup::Found(value) => entry.is(Some(&value)),
            dict::Lookup::Absent => entry.is(None),
            dict::Lookup::Refused => false,
        });
        entries
            && self.length.is_none_or(|length| dict::length(dict) == Some(length))
            && self.order.as_ref().is_none_or(|order| {
                dict::keys(dict).is_some_and(|keys| {
                    keys.len() == order.len()
                        && keys.iter().zip(order).all(|(key, want)| key.as_ptr() as usize == *want)
                })
            })
    }

    fn type_holds(&self, ty: Any<'_, '_>, liveness: &Liveness) -> bool {
        let Ok(ty) = ty.cast::<PyType>() else {
            return false;
        };
        let entries = self.entries.iter().all(|entry| {
            let Some(name) = entry.key.get(ty.py(), liveness) else {
                return false;
            };
            let found = match &entry.after {
                None => types::lookup(ty, name.as_borrowed()),
                Some(after) => match after.get(ty.py(), liveness) {
                    Some(after) => types::lookup_after(ty, after.as_borrowed(), name.as_borrowed()),
                    None => return false,
                },
            };
            entry.is(found.as_ref())
        });
        entries && types::assign_version(ty)
    }
}
