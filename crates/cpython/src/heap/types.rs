//! Types: lookups along the method resolution order, version tags, and cheap "does this type
//! override X" questions.

use std::ffi::CStr;

use crate::modules;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::{Any, Type, layout, words};

unsafe extern "C" {
    fn _PyType_Lookup(ty: *mut ffi::PyTypeObject, name: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// The type of an object, by its slot.
#[inline]
pub fn of<'py>(object: Any<'_, 'py>) -> Bound<'py, PyType> {
    object.get_type()
}

/// The address of an object's type: for comparing only.
#[inline(always)]
pub fn address_of(object: Any<'_, '_>) -> usize {
    // SAFETY: a borrowed reference is a live object.
    unsafe { words::type_of(object.as_ptr()) as usize }
}

/// Whether an object's type is exactly this.
#[inline(always)]
pub fn is_exactly(object: Any<'_, '_>, ty: Type<'_, '_>) -> bool {
    address_of(object) == ty.as_ptr() as usize
}

/// What a lookup of `name` along `ty`'s method resolution order finds, without binding it
/// (`_PyType_Lookup`). Names that aren't exact strings are refused, as they might run code.
#[inline]
pub fn lookup<'py>(ty: Type<'_, 'py>, name: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    if !name.is_exact_instance_of::<PyString>() {
        return None;
    }
    // SAFETY: both are live; the result is borrowed from a class dictionary and counted at once.
    // `_PyType_Lookup` sets no exception for exact string keys in the dictionaries of types
    // (their keys are compared as strings, or by identity with the interned name).
    unsafe {
        let found = _PyType_Lookup(ty.as_ptr().cast(), name.as_ptr());
        Bound::from_borrowed_ptr_or_opt(ty.py(), found)
    }
}

/// As [`lookup`], by a name of Stator's.
pub fn lookup_named<'py>(ty: &Bound<'py, PyType>, name: &str) -> Option<Bound<'py, PyAny>> {
    let name = PyString::intern(ty.py(), name);
    lookup(ty.as_borrowed(), name.as_any().as_borrowed())
}

/// As [`lookup`], only in the classes behind `after` in `ty`'s method resolution order.
pub fn lookup_after<'py>(
    ty: Type<'_, 'py>,
    after: Any<'_, 'py>,
    name: Any<'_, 'py>,
) -> Option<Bound<'py, PyAny>> {
    let mro = mro(ty)?;
    let mro = mro.as_borrowed();
    let length = super::container::tuple_length(mro)?;
    let position = (0..length)
        .find(|index| super::container::tuple_item(mro, *index).is_some_and(|c| c.is(&*after)))?;
    for index in position + 1..length {
        let class = super::container::tuple_item(mro, index)?;
        let dict = class_dict(class.cast::<PyType>().ok()?.as_borrowed())?;
        if let super::dict::Lookup::Found(value) = super::dict::get(dict.as_borrowed(), name) {
            return Some(value);
        }
    }
    None
}

/// The method resolution order, a tuple (`tp_mro`).
pub fn mro<'py>(ty: Type<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: `tp_mro` of a live type is null or a tuple.
    unsafe {
        let mro = (*ty.as_ptr().cast::<ffi::PyTypeObject>()).tp_mro;
        Bound::from_borrowed_ptr_or_opt(ty.py(), mro)
    }
}

/// The class dictionary itself (`tp_dict`), not the proxy that `cls.__dict__` is. Read only.
pub fn class_dict<'py>(ty: Type<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live type. What is given is null or a dict: its own reference from 3.12 on, where a builtin
    // type's is the interpreter's, else `tp_dict`.
    #[cfg(Py_3_12)]
    unsafe {
        Bound::from_owned_ptr_or_opt(ty.py(), ffi::PyType_GetDict(ty.as_ptr().cast()))
    }
    // SAFETY: as above.
    #[cfg(not(Py_3_12))]
    unsafe {
        let dict = (*ty.as_ptr().cast::<ffi::PyTypeObject>()).tp_dict;
        Bound::from_borrowed_ptr_or_opt(ty.py(), dict)
    }
}

/// The dictionary of a class of CPython's own that has no place for it, because each interpreter has another one: from 3.12 on.
/// `None` of any other object.
#[must_use]
pub fn interpreters_dict<'py>(object: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    /// `_Py_TPFLAGS_STATIC_BUILTIN`.
    const STATIC_BUILTIN: u64 = 1 << 1;
    if !cfg!(Py_3_12) {
        return None;
    }
    let ty = object.cast::<PyType>().ok()?;
    if flag(ty, STATIC_BUILTIN) { class_dict(ty) } else { None }
}

/// The type's version: changes whenever a lookup in it might. 0 while unassigned.
#[inline(always)]
pub fn version_tag(ty: Type<'_, '_>) -> u32 {
    // SAFETY: a plain field of a live type.
    unsafe { (*ty.as_ptr().cast::<ffi::PyTypeObject>()).tp_version_tag }
}

/// Makes the type have a version, if it can have one (CPython may have run out of them).
pub fn assign_version(ty: Type<'_, '_>) -> bool {
    if version_tag(ty) == 0 {
        // A lookup that misses assigns one.
        let name = pyo3::intern!(ty.py(), "__class__");
        lookup(ty, name.as_any().as_borrowed());
    }
    version_tag(ty) != 0
}

/// Whether the type was made at run time (by `class` or by a module's spec).
#[inline]
pub fn is_heap(ty: Type<'_, '_>) -> bool {
    flag(ty, ffi::Py_TPFLAGS_HEAPTYPE)
}

/// Whether the end of an instance is noticed by a class made at run time: `__del__`.
#[inline]
pub fn has_finalizer(ty: Type<'_, '_>) -> bool {
    // SAFETY: a live type.
    is_heap(ty) && unsafe { (*ty.as_ptr().cast::<ffi::PyTypeObject>()).tp_finalize.is_some() }
}

/// The unqualified name of a class that wasn't made at run time; `None` of any other object.
#[must_use]
pub fn static_name(object: Any<'_, '_>) -> Option<&'static str> {
    let ty = object.cast::<PyType>().ok()?;
    full_static_name(ty)?.to_str().ok()?.rsplit('.').next()
}

/// Whether a class that wasn't made at run time is of a module, as its `__module__` says; `None` of any other class.
#[must_use]
pub fn is_static_of(ty: Type<'_, '_>, module: &str) -> Option<bool> {
    let name = full_static_name(ty)?.to_bytes();
    let behind = name.strip_prefix(module.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    Some(behind.is_some_and(|name| !name.contains(&b'.')))
}

/// Whether an object's class wasn't made at run time and has this name, its module's before it: `torch.Size`.
#[must_use]
pub fn is_of_static(object: Any<'_, '_>, full_name: &CStr) -> bool {
    full_static_name(of(object).as_borrowed()).is_some_and(|name| name == full_name)
}

fn full_static_name(ty: Type<'_, '_>) -> Option<&'static CStr> {
    if is_heap(ty) {
        return None;
    }
    // SAFETY: such a type and its name, a C string, live as long as the process.
    Some(unsafe { CStr::from_ptr((*ty.as_type_ptr()).tp_name) })
}

/// Whether the type's attributes can't be set.
#[inline]
pub fn is_immutable(ty: Type<'_, '_>) -> bool {
    flag(ty, ffi::Py_TPFLAGS_IMMUTABLETYPE)
}

/// Whether an object is equal to itself alone and hashed by its address: its type has `object`'s ways.
#[must_use]
pub fn compares_by_identity(object: Any<'_, '_>) -> bool {
    let slots = |ty: *const ffi::PyTypeObject| {
        // SAFETY: a live type, and the GIL is held, so nobody changes its slots meanwhile.
        let (hash, compare) = unsafe { ((*ty).tp_hash, (*ty).tp_richcompare) };
        (hash.map(|slot| slot as usize), compare.map(|slot| slot as usize))
    };
    // SAFETY: of a live object.
    let own = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    slots(own) == slots(&raw const ffi::PyBaseObject_Type)
}

/// Whether an object of a Python class may equal another one: its class has a comparison that isn't `object`'s, as a member of
/// an enumeration of texts or integers has. A tensor doesn't as a key: it's hashed by its address.
#[must_use]
pub fn may_equal_others(object: Any<'_, '_>) -> bool {
    let compare = |ty: *const ffi::PyTypeObject| {
        // SAFETY: a live type, and the GIL is held, so nobody changes its slots meanwhile.
        unsafe { (*ty).tp_richcompare.map(|slot| slot as usize) }
    };
    // SAFETY: of a live object; its type's flags are read.
    let (own, is_made) = unsafe {
        let own = ffi::Py_TYPE(object.as_ptr());
        (own, ffi::PyType_HasFeature(own, ffi::Py_TPFLAGS_HEAPTYPE) != 0)
    };
    is_made
        && compare(own) != compare(&raw const ffi::PyBaseObject_Type)
        && super::tensor::info(object).is_none()
}

/// Whether an object is a text or a number to every dictionary, though its class is a Python one: that leaves hashing and
/// comparing to `str` or `int`, as enumerations of texts and integers do. No Python code runs where it's looked up.
#[must_use]
pub fn is_valued(object: Any<'_, '_>) -> bool {
    let slots = |ty: *const ffi::PyTypeObject| {
        // SAFETY: a live type, and the GIL is held, so nobody changes its slots meanwhile.
        let (hash, compare) = unsafe { ((*ty).tp_hash, (*ty).tp_richcompare) };
        (hash.map(|slot| slot as usize), compare.map(|slot| slot as usize))
    };
    // SAFETY: of a live object; its type's flags are read.
    let (own, is_made, is_text, is_number) = unsafe {
        let own = ffi::Py_TYPE(object.as_ptr());
        let has = |flag| ffi::PyType_HasFeature(own, flag) != 0;
        let is_made = has(ffi::Py_TPFLAGS_HEAPTYPE);
        let (is_text, is_number) =
            (has(ffi::Py_TPFLAGS_UNICODE_SUBCLASS), has(ffi::Py_TPFLAGS_LONG_SUBCLASS));
        (own, is_made, is_text, is_number)
    };
    is_made
        && (is_text && slots(own) == slots(&raw const ffi::PyUnicode_Type)
            || is_number && slots(own) == slots(&raw const ffi::PyLong_Type))
}

/// The text or number that such an object [is](is_valued), of the exact type; `None` for any other object.
#[must_use]
pub fn plain_value<'py>(object: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    if !is_valued(object) {
        return None;
    }
    let py = object.py();
    // SAFETY: an instance of `str` or `int`. `PyUnicode_FromObject` copies a text of another class; the slot, which is
    // `int`'s own, copies a number.
    unsafe {
        let own = if ffi::PyUnicode_Check(object.as_ptr()) != 0 {
            ffi::PyUnicode_FromObject(object.as_ptr())
        } else {
            let numbers = ffi::PyLong_Type.tp_as_number;
            (*numbers).nb_positive?(object.as_ptr())
        };
        let own = Bound::from_owned_ptr_or_opt(py, own);
        if own.is_none() {
            ffi::PyErr_Clear();
        }
        own
    }
}

/// Whether instances hold state of a C class (other than `object`), which C code reads without
/// asking a special method: a `deque`, a `datetime`, an exception.
///
/// A C class whose instances are no larger than `object`'s adds none: `typing.Generic`, from CPython 3.12 on.
#[must_use]
pub fn has_native_state(ty: Type<'_, '_>) -> bool {
    static PYTHON: pyo3::sync::PyOnceLock<Option<usize>> = pyo3::sync::PyOnceLock::new();
    let py = ty.py();
    let dealloc = |ty: *mut ffi::PyObject| {
        // SAFETY: a live type.
        unsafe {
            (*ty.cast::<ffi::PyTypeObject>()).tp_dealloc.map_or(0, |function| function as usize)
        }
    };
    let python = PYTHON.get_or_init(py, || {
        let class = modules::import(py, "abc").and_then(|abc| abc.getattr("ABC")).ok()?;
        Some(dealloc(class.as_ptr()))
    });
    let adds = |ty: *mut ffi::PyObject| {
        // SAFETY: a live type.
        let (size, item) = unsafe {
            let ty = ty.cast::<ffi::PyTypeObject>();
            ((*ty).tp_basicsize, (*ty).tp_itemsize)
        };
        item != 0 || size.cast_unsigned() > size_of::<ffi::PyObject>()
    };
    let Some(mro) = mro(ty) else { return true };
    (0..super::container::tuple_length(mro.as_borrowed()).unwrap_or(0))
        .filter_map(|index| super::container::tuple_item(mro.as_borrowed(), index))
        .any(|base| adds(base.as_ptr()) && Some(dealloc(base.as_ptr())) != *python)
}

/// Whether an object is a list, tuple or dictionary of a class that can get other methods.
#[inline]
#[must_use]
pub fn is_container_of_a_class(object: Any<'_, '_>) -> bool {
    const CONTAINERS: u64 = ffi::Py_TPFLAGS_LIST_SUBCLASS
        | ffi::Py_TPFLAGS_TUPLE_SUBCLASS
        | ffi::Py_TPFLAGS_DICT_SUBCLASS;
    // SAFETY: the type of a live object.
    let flags = unsafe { words::flags(ffi::Py_TYPE(object.as_ptr())) };
    flags & CONTAINERS != 0 && flags & ffi::Py_TPFLAGS_IMMUTABLETYPE == 0
}

fn flag(ty: Type<'_, '_>, flag: u64) -> bool {
    // SAFETY: a live type.
    unsafe { words::flags(ty.as_ptr().cast()) & flag != 0 }
}

/// Where instances keep their dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictPlace {
    /// Instances have none.
    None,
    /// At this offset from the instance's address; may be negative.
    At(isize),
    /// At an offset that depends on the instance's size.
    Variable,
}

/// Where instances of `ty` keep their dictionary (`tp_dictoffset`).
#[inline]
pub fn dict_offset(ty: Type<'_, '_>) -> DictPlace {
    // SAFETY: a live type.
    unsafe { dict_place(ty.as_ptr().cast()) }
}

/// As [`dict_offset`].
///
/// # Safety
/// `ty` is a live type.
#[inline(always)]
pub(super) unsafe fn dict_place(ty: *const ffi::PyTypeObject) -> DictPlace {
    // SAFETY: plain fields of a live type.
    unsafe {
        if words::flags(ty) & layout::FLAG_MANAGED_DICT != 0 {
            return DictPlace::At(layout::MANAGED_DICT);
        }
        match (*ty).tp_dictoffset {
            0 => DictPlace::None,
            offset if offset > 0 => DictPlace::At(offset),
            _ => DictPlace::Variable,
        }
    }
}

/// Whether an object found through an unchanged dictionary keeps its layout: its type isn't a heap
/// type, and isn't one whose instances may be given another type.
pub(super) fn is_fixed_for(object: Any<'_, '_>) -> bool {
    let ty = object.get_type();
    !is_heap(ty.as_borrowed())
        && address_of(object) != &raw mut ffi::PyModule_Type as usize
        && !object.is_instance_of::<PyType>()
}

/// How a type's slot is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The slot is empty.
    Empty,
    /// The slot is what `object` has: default behaviour.
    Default,
    /// CPython's dispatcher to a Python-level method (`__getattr__`, `__iter__`, ...), as classes
    /// with such a method in Python have.
    Python,
    /// Any other C function.
    Native,
}

/// The slots that decide whether a type overrides an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotName {
    /// `tp_getattro`: `__getattribute__` and `__getattr__`.
    GetAttribute,
    /// `tp_setattro`: `__setattr__` and `__delattr__`.
    SetAttribute,
    /// `tp_iter`.
    Iter,
    /// `tp_iternext`.
    Next,
    /// `tp_call`.
    Call,
    /// `tp_hash`.
    Hash,
    /// `tp_richcompare`.
    Compare,
    /// `tp_descr_get`.
    DescriptorGet,
    /// `tp_descr_set`.
    DescriptorSet,
    /// `nb_bool`.
    Bool,
    /// `mp_length` or `sq_length`.
    Length,
    /// `mp_subscript` or `sq_item`.
    GetItem,
    /// `mp_ass_subscript` or `sq_ass_item`.
    SetItem,
    /// `sq_contains`.
    Contains,
}

/// The number of slots.
const SLOTS: usize = SlotName::ALL.len();

impl SlotName {
    /// All slots, in the order of their discriminants.
    const ALL: [Self; 14] = [
        Self::GetAttribute,
        Self::SetAttribute,
        Self::Iter,
        Self::Next,
        Self::Call,
        Self::Hash,
        Self::Compare,
        Self::DescriptorGet,
        Self::DescriptorSet,
        Self::Bool,
        Self::Length,
        Self::GetItem,
        Self::SetItem,
        Self::Contains,
    ];
}

/// How the type fills a slot. `Python` means exactly that the function is the one a class with the
/// Python method gets; it is learned from a probe class at first use.
pub fn slot(ty: Type<'_, '_>, name: SlotName) -> Slot {
    let py = ty.py();
    let function = slot_address(ty, name);
    if function == 0 {
        return Slot::Empty;
    }
    let object = py.get_type::<PyAny>();
    if function == slot_address(object.as_borrowed(), name) {
        return Slot::Default;
    }
    if probes(py).iter().any(|probe| probe[name as usize] == function) {
        return Slot::Python;
    }
    Slot::Native
}

/// The address of the function in a slot, 0 if empty: equal addresses behave equally.
#[inline]
pub fn slot_address(ty: Type<'_, '_>, name: SlotName) -> usize {
    // SAFETY: a live type's tables of slots are null or live as long as the type.
    unsafe {
        let ty = &*ty.as_ptr().cast::<ffi::PyTypeObject>();
        let number = ty.tp_as_number.as_ref();
        let sequence = ty.tp_as_sequence.as_ref();
        let mapping = ty.tp_as_mapping.as_ref();
        let first = |a: usize, b: usize| if a != 0 { a } else { b };
        macro_rules! address {
            ($slot:expr) => {
                $slot.map_or(0, |function| function as usize)
            };
        }
        match name {
            SlotName::GetAttribute => address!(ty.tp_getattro),
            SlotName::SetAttribute => address!(ty.tp_setattro),
            SlotName::Iter => address!(ty.tp_iter),
            SlotName::Next => address!(ty.tp_iternext),
            SlotName::Call => address!(ty.tp_call),
            SlotName::Hash => address!(ty.tp_hash),
            SlotName::Compare => address!(ty.tp_richcompare),
            SlotName::DescriptorGet => address!(ty.tp_descr_get),
            SlotName::DescriptorSet => address!(ty.tp_descr_set),
            SlotName::Bool => address!(number.and_then(|table| table.nb_bool)),
            SlotName::Length => first(
                address!(mapping.and_then(|table| table.mp_length)),
                address!(sequence.and_then(|table| table.sq_length)),
            ),
            SlotName::GetItem => first(
                address!(mapping.and_then(|table| table.mp_subscript)),
                address!(sequence.and_then(|table| table.sq_item)),
            ),
            SlotName::SetItem => first(
                address!(mapping.and_then(|table| table.mp_ass_subscript)),
                address!(sequence.and_then(|table| table.sq_ass_item)),
            ),
            SlotName::Contains => address!(sequence.and_then(|table| table.sq_contains)),
        }
    }
}

/// Classes with every dunder in Python, and with `__getattr__` as well or instead.
fn probes(py: Python<'_>) -> &'static [[usize; SLOTS]] {
    static PROBES: pyo3::sync::PyOnceLock<Vec<[usize; SLOTS]>> = pyo3::sync::PyOnceLock::new();
    let source = c"
class Probe:
    def method(self, *args): raise NotImplementedError
    __getattribute__ = __setattr__ = __iter__ = __next__ = __call__ = __hash__ = method
    __eq__ = __get__ = __set__ = __bool__ = __len__ = __getitem__ = __setitem__ = method
    __contains__ = method
class Fallback:
    def __getattr__(self, name): raise NotImplementedError
class NotIterable:
    __iter__ = __contains__ = None
probes = (Probe, Fallback, NotIterable)
";
    PROBES.get_or_init(py, || {
        let learn = || -> PyResult<Vec<[usize; SLOTS]>> {
            let module = PyModule::from_code(py, source, c"<stator>", c"_stator_probes")?;
            let types = module.getattr("probes")?;
            types
                .try_iter()?
                .map(|probe| {
                    let probe = probe?.cast_into::<PyType>()?;
                    let slots =
                        || SlotName::ALL.map(|name| slot_address(probe.as_borrowed(), name));
                    let fresh = slots();
                    // The first use of `__getattribute__` may put another function into the slot.
                    let used = probe.call0().and_then(|probe| probe.getattr("attribute"));
                    drop(used);
                    Ok([fresh, slots()])
                })
                .collect::<PyResult<Vec<_>>>()
                .map(|found| found.into_iter().flatten().collect())
        };
        learn().unwrap_or_default()
    })
}
