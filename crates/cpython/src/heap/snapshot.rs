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

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::address::AddressMap;
use super::function::Field;
use super::member::Member;
use super::tensor::{INLINE_DIMENSIONS, Offsets};
use super::types::DictPlace;
use super::weak::Liveness;
use super::witness::Changes;
use super::{
    Any, constant, container, dict, function, layout, member, tensor, torch, types, witness, words,
};

/// After so many changes a watched dictionary is let go.
const LOUD: u8 = 8;
/// It is watched again after so many checks that found it unchanged.
const CALM: u8 = 64;

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

/// A dictionary of whose changes CPython tells.
struct Told {
    object: *mut ffi::PyObject,
    object_type: usize,
    /// How many words come before it.
    before: usize,
    /// What is looked up in it; `None`: it must be empty.
    watch: Option<usize>,
    /// Its version when it was looked into last.
    version: u64,
    /// Whether the next change will be told.
    is_subscribed: bool,
    /// How many were, up to [`LOUD`].
    changes: u8,
    /// Checks that found a loud one unchanged.
    calm: u8,
}

/// What a guarded key or name led to; null where it was absent.
struct Entry {
    key: Key,
    /// Of a `super` lookup: the class it starts behind.
    after: Option<Key>,
    value: *mut ffi::PyObject,
    value_type: *mut ffi::PyTypeObject,
}

/// A constant, or the address of an object in the `Liveness`.
enum Key {
    Constant(Py<PyAny>),
    Held(usize),
}

/// Where a wanted object comes from.
enum Wanted {
    Argument(usize),
    Object(*mut ffi::PyObject),
}

/// The state of the heap that some guards were found to hold in.
pub struct Snapshot {
    liveness: Arc<Liveness>,
    roots: Vec<(usize, *mut ffi::PyObject)>,
    words: Vec<Word>,
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
        if !self.liveness.is_alive() || !self.is_for(args) || !self.words_agree(py) {
            return false;
        }
        out.reserve(self.wanted.len());
        for wanted in &self.wanted {
            match wanted {
                Wanted::Argument(index) => match args.get(*index) {
                    Some(arg) => out.push((**arg).clone()),
                    None => return false,
                },
                Wanted::Object(object) => {
                    // SAFETY: every node's pointer was just proven to be held by a slot that was
                    // proven alive; no Python code has run since.
                    out.push(unsafe { Bound::from_borrowed_ptr(py, *object) });
                }
            }
        }
        true
    }

    #[inline]
    fn words_agree(&mut self, py: Python<'_>) -> bool {
        let from = if self.asked.is_empty() && !self.changes.any() {
            0
        } else {
            match self.ask(py) {
                Some(from) => from,
                None => return false,
            }
        };
        self.words_between(py, from, self.words.len())
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

    /// Looks into the dictionaries that may have changed, each behind the words before it; the number of
    /// words compared.
    #[cold]
    fn ask(&mut self, py: Python<'_>) -> Option<usize> {
        for number in self.changes.take() {
            let told = &mut self.told[number as usize];
            told.is_subscribed = false;
            told.changes = (told.changes + 1).min(LOUD);
            told.calm = 0;
            self.asked.push(number);
        }
        self.asked.sort_unstable();
        self.asked.dedup();
        let asked = std::mem::take(&mut self.asked);
        let mut from = 0;
        for (position, &number) in asked.iter().enumerate() {
            let before = self.told[number as usize].before;
            if !self.words_between(py, from, before) || !self.told_holds(py, number) {
                self.asked.extend(&asked[position..]);
                return None;
            }
            from = before;
            if !self.is_quiet(py, number) {
                self.asked.push(number);
            }
        }
        Some(from)
    }

    /// Whether what is guarded of a watched dictionary holds, which the words before it prove alive.
    fn told_holds(&mut self, py: Python<'_>, number: u32) -> bool {
        let told = &mut self.told[number as usize];
        // SAFETY: the words before it prove the object alive.
        let object = unsafe { Any::from_ptr(py, told.object) };
        if types::address_of(object) != told.object_type {
            return false;
        }
        let version = dict::version(object);
        if layout::DICT_VERSIONS_TELL && version == told.version {
            return true;
        }
        let holds = match told.watch {
            Some(watch) => self.watches[watch].dict_holds(object, &self.liveness),
            None => dict::length(object) == Some(0),
        };
        if holds {
            told.version = version;
        }
        holds
    }

    /// Whether a watched dictionary, just found to hold, need not be looked into at the next check.
    fn is_quiet(&mut self, py: Python<'_>, number: u32) -> bool {
        let told = &mut self.told[number as usize];
        if told.is_subscribed {
            return true;
        }
        // SAFETY: as in `told_holds`, which has just been; no Python code has run since.
        let object = unsafe { Any::from_ptr(py, told.object) };
        if told.changes == LOUD {
            if told.calm == 0 {
                witness::let_go(object);
            }
            told.calm += 1;
            if told.calm < CALM {
                return false;
            }
            told.changes -= 1;
        }
        told.is_subscribed = witness::watch(object, &self.changes, number);
        false
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
        // A type that CPython gives no version can't be watched.
        self.words[word].want = now;
        now != 0
    }

    /// Number of words, for tests and reports.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
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
        let entries = self.entries.iter().all(|entry| {
            let Some(key) = entry.key.get(dict.py(), liveness) else {
                return false;
            };
            match dict::get(dict, key.as_borrowed()) {
                dict::Lookup::Found(value) => entry.is(Some(&value)),
                dict::Lookup::Absent => entry.is(None),
                dict::Lookup::Refused => false,
            }
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

/// Why a state can't be made a snapshot of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwatchable(pub &'static str);

/// Result of a builder's step.
pub type Result<T> = std::result::Result<T, Unwatchable>;

/// An object of a [`Builder`], proven alive by the words so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(usize);

struct NodeData<'py> {
    object: Bound<'py, PyAny>,
    /// Whether the words so far prove the object's layout.
    layout: bool,
    /// Index of the object's watch, if it's a dictionary or type with one.
    watch: Option<usize>,
    /// Whether it is a watched dictionary that must be empty.
    empty: bool,
    /// Whether the words so far say how long the list or tuple is.
    length: bool,
    /// Where the elements of the list are, if the words so far say so.
    items: Option<*const c_void>,
}

/// Makes a [`Snapshot`] of the present state. Runs no Python code and allocates no Python objects.
///
/// Each step reads the present state itself, records the words that say so, and returns the node
/// it led to; a step that finds nothing to compare returns [`Unwatchable`].
pub struct Builder<'py> {
    py: Python<'py>,
    nodes: Vec<NodeData<'py>>,
    by_address: AddressMap<Node>,
    snapshot: Snapshot,
    /// Whether dictionaries are watched; else their versions are words.
    watches: bool,
}

impl<'py> Builder<'py> {
    /// Nothing yet.
    #[must_use]
    pub fn new(py: Python<'py>, liveness: Arc<Liveness>) -> Self {
        Builder {
            py,
            nodes: Vec::new(),
            by_address: AddressMap::default(),
            watches: witness::can_watch(),
            snapshot: Snapshot {
                liveness,
                roots: Vec::new(),
                words: Vec::new(),
                watches: Vec::new(),
                versions: Vec::new(),
                told: Vec::new(),
                asked: Vec::new(),
                changes: Arc::default(),
                wanted: Vec::new(),
                owned: Vec::new(),
            },
        }
    }

    /// An argument, by identity.
    pub fn root(&mut self, index: usize, object: Any<'_, 'py>) -> Node {
        self.snapshot.roots.push((index, object.as_ptr()));
        self.node(object.to_owned(), false)
    }

    /// An object of the `Liveness`.
    pub fn anchor(&mut self, object: Any<'_, 'py>) -> Result<Node> {
        if !self.snapshot.liveness.holds(object) {
            return Err(Unwatchable("an object that isn't held"));
        }
        Ok(self.node(object.to_owned(), false))
    }

    /// `sys.modules`.
    pub fn modules(&mut self) -> Result<Node> {
        let modules = dict::modules(self.py).ok_or(Unwatchable("no modules"))?;
        self.snapshot.owned.push(modules.clone().unbind());
        Ok(self.node(modules, false))
    }

    /// The object of a node.
    #[must_use]
    pub fn object(&self, node: Node) -> Any<'_, 'py> {
        self.nodes[node.0].object.as_borrowed()
    }

    fn node(&mut self, object: Bound<'py, PyAny>, layout: bool) -> Node {
        let next = Node(self.nodes.len());
        let node = *self.by_address.entry(object.as_ptr() as usize).or_insert(next);
        if node == next {
            self.nodes.push(NodeData {
                object,
                layout,
                watch: None,
                empty: false,
                length: false,
                items: None,
            });
        } else {
            self.nodes[node.0].layout |= layout;
        }
        node
    }

    fn address(&self, node: Node) -> *mut ffi::PyObject {
        self.nodes[node.0].object.as_ptr()
    }

    /// Records the word at `offset` from `base`, as it is.
    ///
    /// # Safety
    /// The words so far prove that `base` is alive and that `offset` is a field of it.
    unsafe fn word(&mut self, base: *const c_void, offset: isize) -> u64 {
        // SAFETY: passed on to the caller.
        let at = unsafe { base.cast::<u8>().offset(offset).cast::<u64>() };
        // SAFETY: likewise.
        let want = unsafe { at.read() };
        self.snapshot.words.push(Word { at, want });
        want
    }

    /// Records a field that holds an object or null, and the node it leads to.
    ///
    /// # Safety
    /// As for [`Builder::word`], and the field is a counted object pointer.
    unsafe fn field_word(&mut self, base: *const c_void, offset: isize) -> Option<Node> {
        // SAFETY: passed on to the caller.
        unsafe {
            let value = self.word(base, offset) as *mut ffi::PyObject;
            let value = Bound::from_borrowed_ptr_or_opt(self.py, value)?;
            Some(self.node(value, false))
        }
    }

    /// Records that the object's type is what it is, and so its layout.
    pub fn exact_type(&mut self, node: Node) -> Result<()> {
        if self.nodes[node.0].layout {
            return Ok(());
        }
        let object = self.address(node);
        let ty = self.nodes[node.0].object.get_type();
        // SAFETY: the node is proven alive; every object has a type.
        unsafe { self.word(object.cast(), layout::TYPE as isize) };
        if types::is_heap(ty.as_borrowed())
            && !self.snapshot.liveness.holds(ty.as_any().as_borrowed())
        {
            let ty_node = self.node(ty.clone().into_any(), true);
            self.watch_type(ty_node, WatchKind::Version)?;
        }
        self.nodes[node.0].layout = true;
        Ok(())
    }

    /// The object's type.
    pub fn type_of(&mut self, node: Node) -> Result<Node> {
        let object = self.address(node);
        // Also where the layout follows from the slot: the type itself is asked for here.
        // SAFETY: the node is proven alive; every object has a type, and an object's type is a
        // type. (The layout of a type that may be reused is settled by its own watch.)
        unsafe { self.word(object.cast(), layout::TYPE as isize) };
        let ty = self.nodes[node.0].object.get_type();
        Ok(self.node(ty.into_any(), true))
    }

    /// The instance dictionary; `None` if objects of this type have none.
    pub fn instance_dict(&mut self, node: Node) -> Result<Option<Node>> {
        self.exact_type(node)?;
        let object = self.address(node);
        // SAFETY: the layout is proven; the type says where the dictionary is.
        let place = unsafe { types::dict_place(words::type_of(object)) };
        match place {
            DictPlace::None => Ok(None),
            DictPlace::Variable => Err(Unwatchable("an instance of variable size")),
            DictPlace::At(offset) => {
                let missing = Unwatchable("an instance dictionary not made yet");
                if matches!(dict::peek_instance_dict(self.object(node)), dict::Peek::NotYet) {
                    return Err(missing);
                }
                // SAFETY: as above; the slot owns a dictionary.
                let dict = unsafe { self.field_word(object.cast(), offset) };
                let dict = dict.ok_or(missing)?;
                self.nodes[dict.0].layout |= !dict::is_ordered_dict(self.object(dict));
                Ok(Some(dict))
            }
        }
    }

    /// Takes note of a dictionary that may change, once, and returns its watch.
    fn watch_dict(&mut self, node: Node) -> Result<usize> {
        if let Some(watch) = self.nodes[node.0].watch {
            return Ok(watch);
        }
        if !dict::is_dict(self.object(node)) {
            return Err(Unwatchable("not a dictionary"));
        }
        self.exact_type(node)?;
        let watch = self.watch(node, WatchKind::Dict);
        if self.watches {
            self.tell(node, Some(watch));
        } else {
            self.version_word(node, watch, layout::DICT_VERSION);
        }
        Ok(watch)
    }

    /// A dictionary of whose changes CPython is to tell.
    fn tell(&mut self, node: Node, watch: Option<usize>) {
        let object = self.object(node);
        let told = Told {
            object: object.as_ptr(),
            object_type: types::address_of(object),
            before: self.snapshot.words.len(),
            watch,
            version: dict::version(object),
            is_subscribed: false,
            changes: 0,
            calm: 0,
        };
        self.snapshot.told.push(told);
    }

    fn watch_type(&mut self, node: Node, kind: WatchKind) -> Result<usize> {
        let held = self.snapshot.liveness.holds(self.object(node));
        if let Some(watch) = self.nodes[node.0].watch {
            return Ok(watch);
        }
        let object = self.object(node);
        let ty = object.cast::<PyType>().map_err(|_| Unwatchable("not a type"))?;
        if !types::assign_version(ty) {
            return Err(Unwatchable("a type without a version"));
        }
        let kind = if held || !types::is_heap(ty) { WatchKind::Type } else { kind };
        self.exact_type(node)?;
        let watch = self.watch(node, kind);
        self.version_word(node, watch, layout::TYPE_VERSION);
        Ok(watch)
    }

    fn watch(&mut self, node: Node, kind: WatchKind) -> usize {
        let object = self.address(node);
        let watch = self.snapshot.watches.len();
        self.snapshot.watches.push(Watch {
            object,
            object_type: types::address_of(self.object(node)),
            entries: Vec::new(),
            order: None,
            length: None,
            kind,
        });
        self.nodes[node.0].watch = Some(watch);
        watch
    }

    fn version_word(&mut self, node: Node, watch: usize, offset: usize) {
        self.snapshot.versions.push((self.snapshot.words.len(), watch));
        // SAFETY: a dictionary or type whose layout is proven.
        unsafe { self.word(self.address(node).cast(), offset as isize) };
    }

    /// Records what a key of a dictionary leads to; `None` where it's absent.
    pub fn dict_item(&mut self, node: Node, key: Any<'_, 'py>) -> Result<Option<Node>> {
        let watch = self.watch_dict(node)?;
        let value = match dict::get(self.object(node), key) {
            dict::Lookup::Found(value) => Some(value),
            dict::Lookup::Absent => None,
            dict::Lookup::Refused => return Err(Unwatchable("a key that can't be looked up")),
        };
        let key = self.key(key)?;
        Ok(self.entry(watch, key, None, value))
    }

    /// Records the keys of a dictionary in order.
    pub fn dict_order(&mut self, node: Node) -> Result<()> {
        let watch = self.watch_dict(node)?;
        let keys = dict::keys(self.object(node)).ok_or(Unwatchable("keys in disorder"))?;
        for key in &keys {
            if let Key::Constant(key) = self.key(key.as_borrowed())? {
                self.snapshot.owned.push(key);
            }
        }
        let order = keys.iter().map(|key| key.as_ptr() as usize).collect();
        self.snapshot.watches[watch].order = Some(order);
        if dict::is_ordered_dict(self.object(node)) {
            let object = self.address(node);
            // SAFETY: an ordered dictionary whose layout is proven by its type word (an instance
            // dictionary that is an `OrderedDict` isn't taken as proven by its slot).
            unsafe { self.word(object.cast(), layout::ODICT_STATE as isize) };
        }
        Ok(())
    }

    /// Records the number of entries of a dictionary.
    pub fn dict_length(&mut self, node: Node) -> Result<()> {
        let watch = self.watch_dict(node)?;
        self.snapshot.watches[watch].length = dict::length(self.object(node));
        Ok(())
    }

    /// Records that an object is an empty `dict` or `OrderedDict`: one word at most, which says so again
    /// whatever happened to it in between.
    pub fn empty_dict(&mut self, node: Node) -> Result<()> {
        let object = self.object(node);
        if !dict::is_plain_empty(object) {
            return Err(Unwatchable("not an empty dictionary"));
        }
        self.exact_type(node)?;
        match self.nodes[node.0].watch {
            Some(watch) => self.snapshot.watches[watch].length = Some(0),
            None if self.watches => {
                if !std::mem::replace(&mut self.nodes[node.0].empty, true) {
                    self.tell(node, None);
                }
            }
            None => {
                let object = self.address(node);
                // SAFETY: a dictionary whose layout is proven.
                unsafe { self.word(object.cast(), layout::DICT_USED as isize) };
            }
        }
        Ok(())
    }

    /// Keys that aren't constants are found by identity: they mustn't be kept alive here.
    fn key(&self, key: Any<'_, 'py>) -> Result<Key> {
        if constant::is_constant(key) {
            Ok(Key::Constant(key.to_owned().unbind()))
        } else if self.snapshot.liveness.holds(key) {
            Ok(Key::Held(key.as_ptr() as usize))
        } else {
            Err(Unwatchable("a key that isn't held"))
        }
    }

    fn entry(
        &mut self,
        watch: usize,
        key: Key,
        after: Option<Key>,
        value: Option<Bound<'py, PyAny>>,
    ) -> Option<Node> {
        let (pointer, ty) = match &value {
            Some(value) => (value.as_ptr(), types::address_of(value.as_borrowed())),
            None => (std::ptr::null_mut(), 0),
        };
        self.snapshot.watches[watch].entries.push(Entry {
            key,
            after,
            value: pointer,
            value_type: ty as *mut ffi::PyTypeObject,
        });
        let value = value?;
        let fixed = has_fixed_type(value.as_borrowed());
        Some(self.node(value, fixed))
    }

    /// Records what a lookup of a name in a type finds, with `after` behind that class only.
    pub fn lookup(
        &mut self,
        node: Node,
        after: Option<Any<'_, 'py>>,
        name: Any<'_, 'py>,
    ) -> Result<Option<Node>> {
        let watch = self.watch_type(node, WatchKind::Version)?;
        let object = self.object(node);
        let ty = object.cast::<PyType>().map_err(|_| Unwatchable("not a type"))?;
        let found = match after {
            None => types::lookup(ty, name),
            Some(after) => types::lookup_after(ty, after, name),
        };
        let (key, after) = (self.key(name)?, after.map(|after| self.key(after)).transpose()?);
        Ok(self.entry(watch, key, after, found))
    }

    /// Records the length of a list.
    pub fn list_length(&mut self, node: Node) -> Result<usize> {
        self.exact_type(node)?;
        let length = container::list_length(self.object(node)).ok_or(Unwatchable("not a list"))?;
        self.size_word(node);
        Ok(length)
    }

    /// Records an element of a list.
    pub fn list_item(&mut self, node: Node, index: usize) -> Result<Node> {
        if index >= self.list_length(node)? {
            return Err(Unwatchable("a list too short"));
        }
        // SAFETY: a list whose layout is proven; the words say where its elements are and that
        // there are enough of them.
        let item = unsafe {
            let items = match self.nodes[node.0].items {
                Some(items) => items,
                None => self.word(self.address(node).cast(), layout::LIST_ITEMS as isize)
                    as *const c_void,
            };
            self.nodes[node.0].items = Some(items);
            self.field_word(items, (index * size_of::<usize>()) as isize)
        };
        item.ok_or(Unwatchable("a list being filled"))
    }

    /// Records the length of a tuple.
    pub fn tuple_length(&mut self, node: Node) -> Result<usize> {
        self.exact_type(node)?;
        let length =
            container::tuple_length(self.object(node)).ok_or(Unwatchable("not a tuple"))?;
        self.size_word(node);
        Ok(length)
    }

    fn size_word(&mut self, node: Node) {
        if !std::mem::replace(&mut self.nodes[node.0].length, true) {
            // SAFETY: a list or tuple whose layout is proven.
            unsafe { self.word(self.address(node).cast(), layout::SIZE as isize) };
        }
    }

    /// Records an element of a tuple.
    pub fn tuple_item(&mut self, node: Node, index: usize) -> Result<Node> {
        if index >= self.tuple_length(node)? {
            return Err(Unwatchable("a tuple too short"));
        }
        let offset = layout::TUPLE_ITEMS + index * size_of::<usize>();
        // SAFETY: a tuple whose layout is proven, with enough elements.
        let item = unsafe { self.field_word(self.address(node).cast(), offset as isize) };
        item.ok_or(Unwatchable("a tuple being filled"))
    }

    /// Records a `__slots__` member; `None` where it's unset.
    pub fn member(&mut self, node: Node, member: &Member) -> Result<Option<Node>> {
        if !matches!(member.read(self.object(node)), member::Read::Value(_) | member::Read::Unset) {
            return Err(Unwatchable("no such member"));
        }
        self.exact_type(node)?;
        // SAFETY: the layout is proven, and `read` says the type has the member.
        Ok(unsafe { self.field_word(self.address(node).cast(), member.offset() as isize) })
    }

    /// Records a field of a function or the like; `None` where it's empty.
    pub fn field(&mut self, node: Node, field: Field) -> Result<Option<Node>> {
        if matches!(function::read(self.object(node), field), function::Read::NoField) {
            return Err(Unwatchable("no such field"));
        }
        self.exact_type(node)?;
        // SAFETY: the layout is proven, and `read` says the object has the field.
        Ok(unsafe { self.field_word(self.address(node).cast(), field.offset() as isize) })
    }

    /// Records that the object is the leaf it is: immutable, and kept by the snapshot so that its
    /// address stays its own.
    pub fn own(&mut self, node: Node) -> Result<()> {
        if !constant::is_constant(self.object(node)) {
            return Err(Unwatchable("not a constant"));
        }
        self.snapshot.owned.push(self.nodes[node.0].object.clone().unbind());
        Ok(())
    }

    /// Records a tensor's metadata, except sizes and strides where `dynamic_*` says so.
    pub fn tensor(
        &mut self,
        node: Node,
        dynamic_size: impl Fn(usize) -> bool,
        dynamic_stride: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let torch = torch::get(self.py).ok_or(Unwatchable("a tensor without PyTorch"))?;
        let unknown = Unwatchable("a tensor of unknown layout");
        let (Some(essential), Some(offsets)) = (torch.essential, &torch.offsets) else {
            return Err(unknown);
        };
        if tensor::impl_address(self.object(node)).is_none() {
            return Err(Unwatchable("not a tensor"));
        }
        self.exact_type(node)?;
        let object = self.address(node);
        // SAFETY: a tensor whose Python layout is proven owns a `TensorImpl`, whose fields are at
        // the verified offsets and which owns its `AutogradMeta`; the number of dimensions is
        // compared before the sizes, a pointer before what it points to.
        unsafe {
            let implementation =
                self.word(object.cast(), essential.cdata as isize) as *const c_void;
            self.word(implementation, offsets.key_set as isize);
            self.word(implementation, offsets.dtype as isize);
            let count = self.word(implementation, offsets.sizes as isize) as usize;
            self.dimensions(implementation, offsets, count, dynamic_size, dynamic_stride);
            let meta = self.word(implementation, offsets.autograd_meta as isize) as *const c_void;
            if !meta.is_null() && self.word(meta, offsets.requires_grad as isize) & 0xff == 0 {
                self.word(meta, offsets.grad_fn as isize);
            }
        }
        Ok(())
    }

    /// # Safety
    /// A live `TensorImpl` with `count` dimensions, both already compared.
    unsafe fn dimensions(
        &mut self,
        implementation: *const c_void,
        offsets: &Offsets,
        count: usize,
        dynamic_size: impl Fn(usize) -> bool,
        dynamic_stride: impl Fn(usize) -> bool,
    ) {
        let inline = (offsets.sizes + 8) as isize;
        // SAFETY: passed on to the caller; see `SizesAndStrides`.
        unsafe {
            let (base, start, half) = if count <= INLINE_DIMENSIONS {
                (implementation, inline, INLINE_DIMENSIONS)
            } else {
                (self.word(implementation, inline) as *const c_void, 0, count)
            };
            for index in 0..count {
                if !dynamic_size(index) {
                    self.word(base, start + 8 * index as isize);
                }
                if !dynamic_stride(index) {
                    self.word(base, start + 8 * (half + index) as isize);
                }
            }
        }
    }

    /// Asks for an argument among the objects that a check gives.
    pub fn want_argument(&mut self, index: usize) {
        self.snapshot.wanted.push(Wanted::Argument(index));
    }

    /// Asks for a node among the objects that a check gives.
    pub fn want(&mut self, node: Node) {
        let object = self.address(node);
        self.snapshot.wanted.push(Wanted::Object(object));
    }

    /// The snapshot.
    #[must_use]
    pub fn finish(mut self) -> Snapshot {
        let snapshot = &mut self.snapshot;
        for (told, number) in snapshot.told.iter_mut().zip(0..) {
            // SAFETY: the node still owns it.
            let object = unsafe { Any::from_ptr(self.py, told.object) };
            told.is_subscribed = witness::watch(object, &snapshot.changes, number);
            snapshot.asked.push(number);
        }
        self.snapshot
    }
}

/// Whether an object found through an unchanged dictionary keeps its layout: its type isn't a heap
/// type, and isn't one whose instances may be given another type.
fn has_fixed_type(object: Any<'_, '_>) -> bool {
    let ty = object.get_type();
    !types::is_heap(ty.as_borrowed())
        && types::address_of(object) != &raw mut ffi::PyModule_Type as usize
        && !object.is_instance_of::<PyType>()
}
