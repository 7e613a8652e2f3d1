//! Dictionaries: version tags, lookups that can't run user code, iteration in order, and the
//! instance dictionaries of objects.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU16, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::types::DictPlace;
use super::{Any, Type, constant, layout, types, words};

unsafe extern "C" {
    fn _PyObject_GetDictPtr(object: *mut ffi::PyObject) -> *mut *mut ffi::PyObject;
    static mut PyODict_Type: ffi::PyTypeObject;
    static mut PyODictKeys_Type: ffi::PyTypeObject;
    static mut PyODictValues_Type: ffi::PyTypeObject;
    static mut PyODictItems_Type: ffi::PyTypeObject;
    fn PyODict_SetItem(
        dict: *mut ffi::PyObject,
        key: *mut ffi::PyObject,
        value: *mut ffi::PyObject,
    ) -> c_int;
    fn PyODict_DelItem(dict: *mut ffi::PyObject, key: *mut ffi::PyObject) -> c_int;
}

/// What a lookup found.
#[derive(Debug)]
pub enum Lookup<'py> {
    /// The value.
    Found(Bound<'py, PyAny>),
    /// No equal key.
    Absent,
    /// The answer can't be had without running user code, or the object isn't a dictionary.
    Refused,
}

/// Whether the object is a dictionary or an instance of a subclass.
#[inline(always)]
pub fn is_dict(object: Any<'_, '_>) -> bool {
    // SAFETY: a live object.
    unsafe { words::has_flag(object.as_ptr(), ffi::Py_TPFLAGS_DICT_SUBCLASS) }
}

/// The method of a dictionary that made this view of it; `None`: it's no view.
#[inline]
pub fn view_method(object: Any<'_, '_>) -> Option<&'static str> {
    let ty = types::address_of(object);
    let is = |plain: *mut ffi::PyTypeObject, ordered: *mut ffi::PyTypeObject| {
        ty == plain as usize || ty == ordered as usize
    };
    if is(&raw mut ffi::PyDictKeys_Type, &raw mut PyODictKeys_Type) {
        Some("keys")
    } else if is(&raw mut ffi::PyDictValues_Type, &raw mut PyODictValues_Type) {
        Some("values")
    } else if is(&raw mut ffi::PyDictItems_Type, &raw mut PyODictItems_Type) {
        Some("items")
    } else {
        None
    }
}

/// Whether a view is one of `OrderedDict`'s own methods, in the order that this keeps.
pub fn is_ordered_view(view: Any<'_, '_>) -> bool {
    let ordered =
        [&raw mut PyODictKeys_Type, &raw mut PyODictValues_Type, &raw mut PyODictItems_Type];
    ordered.map(|ty| ty as usize).contains(&types::address_of(view))
}

/// Whether the object is a `dict`, not an instance of a subclass.
#[inline]
pub fn is_plain(object: Any<'_, '_>) -> bool {
    types::address_of(object) == &raw mut ffi::PyDict_Type as usize
}

/// Whether the object is a `dict` or an `OrderedDict`, not an instance of a subclass, without entries.
#[inline]
pub fn is_plain_empty(object: Any<'_, '_>) -> bool {
    // SAFETY: reads a live object's type, and compares addresses.
    let ty = unsafe { words::type_of(object.as_ptr()) };
    (ty == &raw mut ffi::PyDict_Type || ty == &raw mut PyODict_Type) && length(object) == Some(0)
}

/// Whether the object is an `OrderedDict` or an instance of a subclass: its order is its own.
#[inline]
pub fn is_ordered_dict(object: Any<'_, '_>) -> bool {
    // SAFETY: the type of a live object.
    is_dict(object) && unsafe { is_ordered(words::type_of(object.as_ptr())) }
}

/// Whether a type is `OrderedDict` or a subclass.
pub fn is_ordered_type(ty: Type<'_, '_>) -> bool {
    // SAFETY: a live type.
    unsafe { is_ordered(ty.as_ptr().cast()) }
}

/// Whether the object is an `OrderedDict`, not an instance of a subclass.
pub fn is_exact_ordered(object: Any<'_, '_>) -> bool {
    types::address_of(object) == &raw mut PyODict_Type as usize && is_ordered_dict(object)
}

/// Whether a dictionary is an `OrderedDict` or an instance of a subclass.
///
/// # Safety
/// A live dictionary.
pub(super) unsafe fn is_of_ordered_type(dict: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller says so.
    unsafe { is_ordered(words::type_of(dict)) }
}

/// # Safety
/// A live type.
#[inline]
unsafe fn is_ordered(ty: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: compares types along the chain of bases; no Python code runs. The size is checked
    // because the offsets of its fields are literals.
    unsafe {
        let ordered = &raw mut PyODict_Type;
        let sizes =
            [(*ordered).tp_basicsize, (*ordered).tp_dictoffset, (*ordered).tp_weaklistoffset];
        sizes.map(|size| size as usize) == layout::ODICT_SIZE
            && (ty == ordered || ffi::PyType_IsSubtype(ty, ordered) != 0)
    }
}

/// Sets or deletes an item, past the methods that subclasses of `dict` and `OrderedDict` have.
///
/// # Errors
/// What a key's hash or comparison raises; `KeyError` if there is nothing to delete, `SystemError` if it's no dictionary.
pub fn set_item(dict: Any<'_, '_>, key: Any<'_, '_>, value: Option<Any<'_, '_>>) -> PyResult<()> {
    let (at, key) = (dict.as_ptr(), key.as_ptr());
    // SAFETY: live objects, the first of the type that the function is for; those of `dict` look at that themselves.
    let failed = unsafe {
        match (is_ordered_dict(dict), value) {
            (true, Some(value)) => PyODict_SetItem(at, key, value.as_ptr()),
            (true, None) => PyODict_DelItem(at, key),
            (false, Some(value)) => ffi::PyDict_SetItem(at, key, value.as_ptr()),
            (false, None) => ffi::PyDict_DelItem(at, key),
        }
    };
    if failed == 0 { Ok(()) } else { Err(PyErr::fetch(dict.py())) }
}

/// Whether the dictionary's [`version`] tells of every change, from now on.
#[inline(always)]
pub fn is_versioned(dict: Any<'_, '_>) -> bool {
    if layout::DICT_VERSIONS_TELL {
        return true;
    }
    // SAFETY: a dictionary. One whose values stand in an object may get a table of its own, never the reverse.
    is_dict(dict) && unsafe { (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_values.is_null() }
}

/// What no [`version`] is: nothing tells of the dictionary's changes.
pub const UNTOLD: u64 = 0;

/// The dictionary's version: changes at every change, and no two dictionaries ever share a value.
/// [`UNTOLD`] if it [isn't versioned](is_versioned), or the object is no dictionary.
///
/// An `OrderedDict` can be reordered without a new version.
#[inline(always)]
pub fn version(dict: Any<'_, '_>) -> u64 {
    if !is_dict(dict) || !is_versioned(dict) {
        return UNTOLD;
    }
    // SAFETY: a dictionary.
    unsafe { words::word(dict.as_ptr(), layout::DICT_VERSION) }
}

/// Number of entries, by the storage.
#[inline(always)]
pub fn length(dict: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a dictionary.
    is_dict(dict).then(|| unsafe { words::word(dict.as_ptr(), layout::DICT_USED) as usize })
}

/// The value at `key` in the dictionary's storage.
///
/// Keys that are constants ([`constant::is_constant`]), or such to every dictionary ([`types::is_valued`]), are found by
/// equality, others by identity. Refused if a stored key has the same hash but a type that might define its own equality, or if
/// a key that isn't there itself may equal another one ([`types::may_equal_others`]).
#[inline]
pub fn get<'py>(dict: Any<'_, 'py>, key: Any<'_, 'py>) -> Lookup<'py> {
    if !is_dict(dict) {
        return Lookup::Refused;
    }
    let known = if types::address_of(key) == &raw mut ffi::PyUnicode_Type as usize {
        // SAFETY: an exact string, which keeps its hash once it was asked for.
        unsafe { words::word(key.as_ptr(), layout::STRING_HASH) as isize }
    } else if constant::is_constant(key) || types::is_valued(key) {
        -1
    } else {
        return by_identity(dict, key);
    };
    // SAFETY: hashing such a key runs no user code; it may fail for lack of memory.
    let hash = if known == -1 { unsafe { ffi::PyObject_Hash(key.as_ptr()) } } else { known };
    if hash == -1 {
        // SAFETY: the GIL is held, which `Any` proves.
        unsafe { ffi::PyErr_Clear() };
        return Lookup::Refused;
    }
    // SAFETY: `dict` is a dictionary; nothing below runs Python code, so its table stays in place.
    unsafe { probe(dict, key, hash) }.0
}

/// The key that a dictionary holds where it finds another one, if that is an object of a Python class that is a text or number to
/// every dictionary ([`types::is_valued`]).
#[must_use]
pub fn valued_key<'py>(dict: Any<'_, 'py>, key: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: asked of a dictionary alone: a table with keys that are no exact texts is a general one.
    let is_general = is_dict(dict)
        && unsafe {
            let object = dict.as_ptr().cast::<ffi::PyDictObject>();
            (*(*object).ma_keys.cast::<layout::DictKeys>()).kind == 0
        };
    if !is_general || !(constant::is_constant(key) || types::is_valued(key)) {
        return None;
    }
    // SAFETY: hashing such a key runs no user code.
    let hash = unsafe { ffi::PyObject_Hash(key.as_ptr()) };
    if hash == -1 {
        // SAFETY: the GIL is held, which `Any` proves.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // SAFETY: as in [`get`]; the dictionary owns the key.
    let stored = unsafe { Bound::from_borrowed_ptr_or_opt(dict.py(), probe(dict, key, hash).1) }?;
    types::is_valued(stored.as_borrowed()).then_some(stored)
}

/// Where keys were found last among the entries of a dictionary, by some bits of their addresses: attributes lie in the
/// same order in the instances of a class.
static HINTS: [AtomicU16; 256] = [const { AtomicU16::new(0) }; 256];

#[inline(always)]
fn hint_of(key: Any<'_, '_>) -> usize {
    let address = key.as_ptr() as usize;
    (address >> 4 ^ address >> 12) % HINTS.len()
}

/// The table of a dictionary, as it is while nothing is written to it.
struct Table {
    keys: *const layout::DictKeys,
    indices: *const u8,
    entries: *const u8,
    /// Whether keys may be other objects than exact texts: then hashes are stored beside them.
    general: bool,
    /// Of a table that instances share; else null.
    values: *mut *mut ffi::PyObject,
}

impl Table {
    /// # Safety
    /// `dict` is a dictionary. Nothing writes to it while the table is used.
    #[inline(always)]
    unsafe fn of(dict: Any<'_, '_>) -> Self {
        // SAFETY: layout of `PyDictObject` and its keys object.
        unsafe {
            let object = dict.as_ptr().cast::<ffi::PyDictObject>();
            let keys = (*object).ma_keys.cast::<layout::DictKeys>();
            let indices = keys.add(1).cast::<u8>();
            let entries = indices.add(1 << (*keys).log2_index_bytes);
            let values = (*object).ma_values.cast::<*mut ffi::PyObject>();
            Self { keys, indices, entries, general: (*keys).kind == 0, values }
        }
    }

    #[inline(always)]
    unsafe fn entry(&self, index: usize) -> *const *mut ffi::PyObject {
        let size = if self.general { 24 } else { 16 };
        // SAFETY: the caller's index is below `dk_nentries`.
        unsafe { self.entries.add(index * size).cast() }
    }

    /// The key of an entry; null if it has none.
    #[inline(always)]
    unsafe fn key(&self, index: usize) -> *mut ffi::PyObject {
        // SAFETY: the caller's index is below `dk_nentries`.
        unsafe { self.entry(index).add(usize::from(self.general)).read() }
    }

    /// The hash of an entry that has a key.
    #[inline(always)]
    unsafe fn hash(&self, index: usize) -> isize {
        // SAFETY: the caller's index is that of an entry; exact texts were hashed when they were stored.
        unsafe {
            if self.general {
                self.entry(index).cast::<isize>().read()
            } else {
                words::word(self.key(index), layout::STRING_HASH) as isize
            }
        }
    }

    #[inline(always)]
    unsafe fn value<'py>(&self, py: Python<'py>, index: usize) -> Lookup<'py> {
        // SAFETY: the caller's index is below `dk_nentries`; values of a shared table, and of entries without a key, may
        // be null.
        unsafe {
            let value = if self.values.is_null() {
                self.entry(index).add(1 + usize::from(self.general)).read()
            } else {
                self.values.byte_add(layout::DICT_VALUES).add(index).read()
            };
            Bound::from_borrowed_ptr_or_opt(py, value).map_or(Lookup::Absent, Lookup::Found)
        }
    }

    /// Follows CPython's probe sequence: the entries at which it looks for a hash, until `visit` gives something.
    #[inline(always)]
    unsafe fn follow<T>(
        &self,
        hash: isize,
        mut visit: impl FnMut(usize, *mut ffi::PyObject) -> Option<T>,
    ) -> Option<T> {
        // SAFETY: the table's indices are below `dk_nentries`; entries that are indexed have a key.
        unsafe {
            let mask = (1_usize << (*self.keys).log2_size) - 1;
            let mut perturb = hash as usize;
            let mut position = perturb & mask;
            loop {
                let index = match (*self.keys).log2_size {
                    0..=7 => isize::from(self.indices.cast::<i8>().add(position).read()),
                    8..=15 => isize::from(self.indices.cast::<i16>().add(position).read()),
                    16..=31 => self.indices.cast::<i32>().add(position).read() as isize,
                    _ => self.indices.cast::<i64>().add(position).read() as isize,
                };
                if index == -1 {
                    return None;
                }
                if index >= 0
                    && let Some(found) = visit(index as usize, self.key(index as usize))
                {
                    return Some(found);
                }
                perturb >>= 5;
                position = position.wrapping_mul(5).wrapping_add(perturb).wrapping_add(1) & mask;
            }
        }
    }
}

/// Finds a key, as CPython does, unless the key itself lies where it was found last: the value, and the key that is stored
/// (null: none), which the dictionary owns.
///
/// # Safety
/// `dict` is a dictionary, `hash` is the hash of `key`, and `key` is a constant or [such](types::is_valued) to every dictionary.
unsafe fn probe<'py>(
    dict: Any<'_, 'py>,
    key: Any<'_, 'py>,
    hash: isize,
) -> (Lookup<'py>, *mut ffi::PyObject) {
    let py = dict.py();
    // SAFETY: a dictionary, to which nothing below writes.
    unsafe {
        let table = Table::of(dict);
        let hint = &HINTS[hint_of(key)];
        let index = usize::from(hint.load(Ordering::Relaxed));
        if index < (*table.keys).entries as usize && table.key(index) == key.as_ptr() {
            return (table.value(py, index), key.as_ptr());
        }
        let found = table.follow(hash, |index, stored| {
            if stored != key.as_ptr() && table.hash(index) != hash {
                return None;
            }
            match constant::keys_equal(Any::from_ptr(py, stored), key) {
                Some(true) => {
                    if let Ok(index) = u16::try_from(index) {
                        hint.store(index, Ordering::Relaxed);
                    }
                    Some((table.value(py, index), stored))
                }
                Some(false) => None,
                None => Some((Lookup::Refused, std::ptr::null_mut())),
            }
        });
        found.unwrap_or((Lookup::Absent, std::ptr::null_mut()))
    }
}

/// What a dictionary holds under a hash.
#[derive(Debug)]
pub enum AtHash<'py> {
    /// No key has it: whatever has this hash isn't there, and nothing is compared.
    Absent,
    /// One key has it: it's the only one with which a key of this hash is compared. With its value.
    One(Bound<'py, PyAny>, Bound<'py, PyAny>),
    /// Several have it, or it's no dictionary.
    Several,
}

impl<'py> AtHash<'py> {
    /// Whether no key has the hash.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The only key that has the hash, or its value.
    #[must_use]
    pub fn only(self, is_key: bool) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::One(key, value) => Some(if is_key { key } else { value }),
            Self::Absent | Self::Several => None,
        }
    }
}

/// What a dictionary holds under a hash. Runs no code.
#[must_use]
pub fn at_hash<'py>(dict: Any<'_, 'py>, hash: isize) -> AtHash<'py> {
    if !is_dict(dict) {
        return AtHash::Several;
    }
    let (py, mut found) = (dict.py(), None);
    // SAFETY: a dictionary, to which nothing below writes, and which owns its keys.
    unsafe {
        let table = Table::of(dict);
        let several = table.follow(hash, |index, stored| {
            if table.hash(index) != hash {
                return None;
            }
            // The sequence may come to a place more than once.
            let is_second = found.is_some_and(|(known, _)| known != index);
            found = Some((index, stored));
            is_second.then_some(())
        });
        match (found, several) {
            (_, Some(())) => AtHash::Several,
            (None, None) => AtHash::Absent,
            (Some((index, stored)), None) => match table.value(py, index) {
                Lookup::Found(value) => AtHash::One(Bound::from_borrowed_ptr(py, stored), value),
                Lookup::Absent | Lookup::Refused => AtHash::Absent,
            },
        }
    }
}

/// `sys.modules`, as the interpreter has it; `None` only at shutdown.
pub fn modules(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: borrowed from the interpreter and counted at once.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }
}

fn by_identity<'py>(dict: Any<'_, 'py>, key: Any<'_, 'py>) -> Lookup<'py> {
    let mut found = Lookup::Absent;
    for_each_stored(dict, |stored, value| {
        if stored.is(&*key) {
            found = Lookup::Found(value.to_owned());
        }
    });
    if matches!(found, Lookup::Absent) && types::may_equal_others(key) {
        return Lookup::Refused;
    }
    found
}

/// The first key of a dictionary that `is_it` takes, and its value. `is_it` must not run Python code.
pub fn find<'py>(
    dict: Any<'_, 'py>,
    is_it: impl Fn(Any<'_, 'py>) -> bool,
) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut found = None;
    for_each_stored(dict, |key, value| {
        if found.is_none() && is_it(key) {
            found = Some((key.to_owned(), value.to_owned()));
        }
    });
    found
}

/// Calls `visit` with each entry in storage order. `visit` must not run Python code.
fn for_each_stored<'py>(dict: Any<'_, 'py>, mut visit: impl FnMut(Any<'_, 'py>, Any<'_, 'py>)) {
    let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: `PyDict_Next` answers false for what isn't a dictionary; the callers in this file
    // pass closures that only look at the pair, so the dictionary stays as it is.
    unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &mut position, &mut key, &mut value) != 0 {
            visit(Any::from_ptr(dict.py(), key), Any::from_ptr(dict.py(), value));
        }
    }
}

/// The keys in iteration order: for an `OrderedDict` its own order. `None` if it isn't a
/// dictionary, or is an `OrderedDict` whose two structures disagree.
pub fn keys<'py>(dict: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    let length = length(dict)?;
    let mut keys = Vec::with_capacity(length);
    if is_ordered_dict(dict) {
        // SAFETY: an `OrderedDict` with the checked layout: a chain of nodes, each with a key.
        unsafe {
            let mut node = words::pointer(dict.as_ptr(), layout::ODICT_FIRST);
            while !node.is_null() {
                let key = words::pointer(node, layout::ODICT_NODE_KEY);
                keys.push(Bound::from_borrowed_ptr(dict.py(), key));
                node = words::pointer(node, layout::ODICT_NODE_NEXT);
            }
        }
        return (keys.len() == length).then_some(keys);
    }
    for_each_stored(dict, |key, _| keys.push(key.to_owned()));
    Some(keys)
}

/// The keys in the order of the table: that of an `OrderedDict` is seen through `dict`'s own methods alone.
pub fn stored_keys<'py>(dict: Any<'_, 'py>) -> Vec<Bound<'py, PyAny>> {
    let mut keys = Vec::with_capacity(length(dict).unwrap_or(0));
    for_each_stored(dict, |key, _| keys.push(key.to_owned()));
    keys
}

/// Keys and values in iteration order; see [`keys`].
pub fn items<'py>(dict: Any<'_, 'py>) -> Option<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if is_ordered_dict(dict) {
        return keys(dict)?
            .into_iter()
            .map(|key| match get(dict, key.as_borrowed()) {
                Lookup::Found(value) => Some((key, value)),
                Lookup::Absent | Lookup::Refused => None,
            })
            .collect();
    }
    let mut items = Vec::with_capacity(length(dict)?);
    for_each_stored(dict, |key, value| items.push((key.to_owned(), value.to_owned())));
    Some(items)
}

/// Values in iteration order; see [`keys`].
pub fn values<'py>(dict: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    if is_ordered_dict(dict) {
        return Some(items(dict)?.into_iter().map(|(_, value)| value).collect());
    }
    let mut values = Vec::with_capacity(length(dict)?);
    for_each_stored(dict, |_, value| values.push(value.to_owned()));
    Some(values)
}

/// What an object has as instance dictionary.
#[derive(Debug)]
pub enum InstanceDict<'py> {
    /// The dictionary.
    Dict(Bound<'py, PyAny>),
    /// Instances of the type have none.
    None,
    /// It couldn't be made (no memory).
    Failed,
}

/// The concrete instance dictionary of an object, made if the object doesn't have it yet.
///
/// Making it allocates, so a garbage collection may run: see [`super::interruptions`].
#[inline]
pub fn instance_dict<'py>(object: Any<'_, 'py>) -> InstanceDict<'py> {
    match peek_instance_dict(object) {
        Peek::Dict(dict) => InstanceDict::Dict(dict),
        Peek::NoPlace => InstanceDict::None,
        Peek::NotYet => make_instance_dict(object),
    }
}

/// An object's instance dictionary, as it is.
#[derive(Debug)]
pub enum Peek<'py> {
    /// The dictionary.
    Dict(Bound<'py, PyAny>),
    /// The object may have one, but it hasn't been made.
    NotYet,
    /// Instances of the type have none.
    NoPlace,
}

/// The concrete instance dictionary of an object, if it has been made. Allocates nothing.
#[inline]
pub fn peek_instance_dict<'py>(object: Any<'_, 'py>) -> Peek<'py> {
    // SAFETY: a live object; `dict_place` says where its type keeps the dictionary, and a
    // variable place is computed by CPython (for types without inline values, so nothing is made).
    unsafe {
        let dict = match types::dict_place(words::type_of(object.as_ptr())) {
            DictPlace::None => return Peek::NoPlace,
            DictPlace::At(offset) => {
                let place = object.as_ptr().cast::<u8>().offset(offset);
                layout::made_dict(place.cast::<*mut ffi::PyObject>().read())
            }
            DictPlace::Variable => {
                let place = _PyObject_GetDictPtr(object.as_ptr());
                if place.is_null() { std::ptr::null_mut() } else { place.read() }
            }
        };
        Bound::from_borrowed_ptr_or_opt(object.py(), dict)
            .or_else(|| types::interpreters_dict(object))
            .map_or(Peek::NotYet, Peek::Dict)
    }
}

#[cold]
fn make_instance_dict<'py>(object: Any<'_, 'py>) -> InstanceDict<'py> {
    super::interrupt();
    // SAFETY: a live object whose type has a place for a dictionary. `_PyObject_GetDictPtr` moves
    // inline values into a dictionary; `PyObject_GenericGetDict` makes a missing one.
    unsafe {
        let place = _PyObject_GetDictPtr(object.as_ptr());
        if !place.is_null() && !place.read().is_null() {
            return InstanceDict::Dict(Bound::from_borrowed_ptr(object.py(), place.read()));
        }
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        match Bound::from_owned_ptr_or_opt(object.py(), dict) {
            Some(dict) if is_dict(dict.as_borrowed()) => InstanceDict::Dict(dict),
            Some(_) => InstanceDict::Failed,
            None => {
                ffi::PyErr_Clear();
                InstanceDict::Failed
            }
        }
    }
}
