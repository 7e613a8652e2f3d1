//! Offsets of fields in CPython's objects, in bytes, for the version this was built against.
//!
//! The only place that depends on the version. Where PyO3's declarations have the field, the
//! offset is computed from them; the others are literals, which `tests/guards` compares with
//! what Python code sees.

use std::mem::offset_of;

use pyo3::ffi;

/// `ob_type` of any object.
pub const TYPE: usize = offset_of!(ffi::PyObject, ob_type);
/// `ob_size` of any variable-sized object.
pub const SIZE: usize = offset_of!(ffi::PyVarObject, ob_size);
/// `ob_item` of a list: a pointer to the elements.
pub const LIST_ITEMS: usize = offset_of!(ffi::PyListObject, ob_item);
/// First element of a tuple.
pub const TUPLE_ITEMS: usize = offset_of!(ffi::PyTupleObject, ob_item);
/// `ma_version_tag` of a dictionary: changes at every change, and no two states of any two
/// dictionaries share a value.
#[cfg_attr(Py_3_12, expect(deprecated, reason = "3.12 still counts it"))]
pub const DICT_VERSION: usize = offset_of!(ffi::PyDictObject, ma_version_tag);
/// Whether each change of a dictionary changes its version: from 3.13 on it doesn't where a dictionary is
/// that of an instance whose attributes stand in the object itself, as writing them leaves its version as it is.
pub const DICT_VERSIONS_TELL: bool = !cfg!(Py_3_13);
/// Where the first value stands in what `ma_values` of a dictionary points to; from 3.13 on sizes come first.
pub const DICT_VALUES: usize = if cfg!(Py_3_13) { 8 } else { 0 };
/// `ma_used` of a dictionary.
pub const DICT_USED: usize = offset_of!(ffi::PyDictObject, ma_used);
/// `hash` of a string: -1 until it is asked for.
pub const STRING_HASH: usize = offset_of!(ffi::PyASCIIObject, hash);
/// `tp_version_tag` of a type: 0 when unassigned; no two states of any two types share a value.
/// A word of its own: followed by padding, zero in every type.
pub const TYPE_VERSION: usize = offset_of!(ffi::PyTypeObject, tp_version_tag);

/// `od_state` of an ordered dictionary: counts changes of the order. The struct isn't public.
pub const ODICT_STATE: usize = 88;
/// `od_first` of an ordered dictionary: its first node.
pub const ODICT_FIRST: usize = 48;
/// Size of an ordered dictionary's struct, and where its dictionary and weak references are: if
/// CPython says so too, the other two are right.
pub const ODICT_SIZE: [usize; 3] = [112, 96, 104];
/// `key` of an ordered dictionary's node.
pub const ODICT_NODE_KEY: usize = 0;
/// `next` of an ordered dictionary's node.
pub const ODICT_NODE_NEXT: usize = 16;

/// The instance dictionary of a type with managed dictionaries lies before the object.
pub const MANAGED_DICT: isize = -24;

/// The dictionary of an instance, of the word that stands in its place: null, if none was made. From 3.12 on an
/// odd word says that the attributes are still kept without one.
#[inline(always)]
pub fn made_dict(word: *mut ffi::PyObject) -> *mut ffi::PyObject {
    if word.addr() & 1 == 0 { word } else { std::ptr::null_mut() }
}

/// `Py_TPFLAGS_MANAGED_DICT`.
pub const FLAG_MANAGED_DICT: u64 = 1 << 4;

/// The dictionary keys object (`struct _dictkeysobject`).
#[repr(C)]
pub struct DictKeys {
    /// `dk_refcnt`.
    pub refcount: isize,
    /// `dk_log2_size`: the hash table has 2 to this many indices.
    pub log2_size: u8,
    /// `dk_log2_index_bytes`: the hash table has 2 to this many bytes.
    pub log2_index_bytes: u8,
    /// `dk_kind`: 0 general, else unicode keys only.
    pub kind: u8,
    /// `dk_version`.
    pub version: u32,
    /// `dk_usable`.
    pub usable: isize,
    /// `dk_nentries`.
    pub entries: isize,
    // followed by the indices, then the entries
}

/// Fields of a class (`PyHeapTypeObject`).
pub mod class {
    use super::{ffi, offset_of};
    /// `ht_name`.
    pub const NAME: usize = offset_of!(ffi::PyHeapTypeObject, ht_name);
    /// `ht_qualname`.
    pub const QUALNAME: usize = offset_of!(ffi::PyHeapTypeObject, ht_qualname);
    /// `tp_mro`.
    pub const MRO: usize = offset_of!(ffi::PyTypeObject, tp_mro);
    /// `tp_bases`.
    pub const BASES: usize = offset_of!(ffi::PyTypeObject, tp_bases);
    /// `tp_base`.
    pub const BASE: usize = offset_of!(ffi::PyTypeObject, tp_base);
}

/// Fields of a function (`PyFunctionObject`).
pub mod function {
    use super::{ffi, offset_of};
    /// `func_globals`.
    pub const GLOBALS: usize = offset_of!(ffi::PyFunctionObject, func_globals);
    /// `func_builtins`.
    pub const BUILTINS: usize = offset_of!(ffi::PyFunctionObject, func_builtins);
    /// `func_code`.
    pub const CODE: usize = offset_of!(ffi::PyFunctionObject, func_code);
    /// `func_defaults`.
    pub const DEFAULTS: usize = offset_of!(ffi::PyFunctionObject, func_defaults);
    /// `func_kwdefaults`.
    pub const KWDEFAULTS: usize = offset_of!(ffi::PyFunctionObject, func_kwdefaults);
    /// `func_name`.
    pub const NAME: usize = offset_of!(ffi::PyFunctionObject, func_name);
    /// `func_qualname`.
    pub const QUALNAME: usize = offset_of!(ffi::PyFunctionObject, func_qualname);
    /// `func_doc`.
    pub const DOC: usize = offset_of!(ffi::PyFunctionObject, func_doc);
    /// `func_module`.
    pub const MODULE: usize = offset_of!(ffi::PyFunctionObject, func_module);
    /// `func_annotations`.
    pub const ANNOTATIONS: usize = offset_of!(ffi::PyFunctionObject, func_annotations);
    /// `func_closure`.
    pub const CLOSURE: usize = offset_of!(ffi::PyFunctionObject, func_closure);
}

/// `ob_ref` of a cell.
pub const CELL_CONTENTS: usize = 16;
/// `im_func` of a bound method.
pub const METHOD_FUNC: usize = 16;
/// `im_self` of a bound method, `m_self` of a C function, `self` of a bound slot wrapper.
pub const METHOD_SELF: usize = 24;
/// `fn` of a `functools.partial`.
pub const PARTIAL_FUNC: usize = 16;
/// `args` of a `functools.partial`.
pub const PARTIAL_ARGS: usize = 24;
/// `kw` of a `functools.partial`.
pub const PARTIAL_KEYWORDS: usize = 32;
/// `mapping` of a `mappingproxy`, `dv_dict` of a dictionary's view.
pub const SHOWN_MAPPING: usize = 16;
/// `prop_get` of a property.
pub const PROPERTY_GET: usize = 16;
/// `prop_set` of a property.
pub const PROPERTY_SET: usize = 24;
/// `sm_callable` and `cm_callable` of a `staticmethod` and `classmethod`.
pub const WRAPPED_FUNC: usize = 16;
/// `start`, `stop`, `step` of a slice.
pub const SLICE: [usize; 3] = [16, 24, 32];
/// `start`, `stop`, `step` of a range.
pub const RANGE: [usize; 3] = [16, 24, 32];
/// `wr_object` of a weak reference.
pub const REFERENT: usize = 16;
/// `d_member` of a member descriptor (`PyMemberDescrObject`): its `PyMemberDef`.
pub const MEMBER_DEF: usize = 40;
/// `fill` of a set: how many entries have a key or had one.
pub const SET_FILL: usize = 16;
/// `finger` of a set: where the search of `pop` goes on.
pub const SET_FINGER: usize = 56;
/// `smalltable` of a set.
pub const SET_SMALL_TABLE: usize = 64;
/// How many entries `smalltable` has.
pub const SET_SMALL_ENTRIES: usize = 8;
/// `mask` of a set: the size of its table less one.
pub const SET_MASK: usize = 32;
/// `table` of a set: pairs of key and hash.
pub const SET_TABLE: usize = 40;
/// `used` of a set.
pub const SET_USED: usize = 24;

const _: () = {
    assert!(TYPE == 8 && SIZE == 16 && TUPLE_ITEMS == 24 && DICT_VERSION == 24);
    assert!(TYPE_VERSION.is_multiple_of(8));
    assert!(size_of::<DictKeys>() == 32);
};
