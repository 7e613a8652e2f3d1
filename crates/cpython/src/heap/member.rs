//! `__slots__` members, and fields of C types that hold objects as these do, read by their offset.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Any, Type, container, layout, tensor, types, words};

/// `T_OBJECT_EX`: the kind of member that `__slots__` makes.
const OBJECT_EX: c_int = 16;

/// `T_OBJECT`: a C type's field that holds an object, or nothing and then reads as `None`.
const OBJECT: c_int = 6;

/// What a member holds.
#[derive(Debug)]
pub enum Read<'py> {
    /// An object.
    Value(Bound<'py, PyAny>),
    /// The member is unset.
    Unset,
    /// Objects of this type have no member at this offset.
    NoMember,
}

/// A reader of the member at one offset; remembers the type it was last right for.
#[derive(Debug)]
pub struct Member {
    offset: usize,
    /// Address of a type that has the member, and its version: versions are unique, so both
    /// together name one type in one state. Written and read under the GIL.
    verified_type: AtomicUsize,
    verified_version: AtomicU32,
}

/// The offset of a member descriptor that `__slots__` made; `None` for other objects.
pub fn offset_of(descriptor: Any<'_, '_>) -> Option<usize> {
    offset_where(descriptor, |def| def.type_code == OBJECT_EX)
}

/// As [`offset_of`], also for a C type's field that can be set and that holds an object now (`default_factory` of a
/// `defaultdict`).
pub fn readable_offset_of(descriptor: Any<'_, '_>, owner: Any<'_, '_>) -> Option<usize> {
    let is_field = |def: &ffi::PyMemberDef| {
        def.type_code == OBJECT_EX || (def.type_code == OBJECT && def.flags & ffi::Py_READONLY == 0)
    };
    let offset = offset_where(descriptor, is_field)?;
    let is_filled = || matches!(Member::new(offset).read(owner), Read::Value(_));
    (offset_of(descriptor).is_some() || is_filled()).then_some(offset)
}

fn offset_where(
    descriptor: Any<'_, '_>,
    is_field: impl FnOnce(&ffi::PyMemberDef) -> bool,
) -> Option<usize> {
    if types::address_of(descriptor) != &raw mut ffi::PyMemberDescr_Type as usize {
        return None;
    }
    // SAFETY: a member descriptor by its exact type; its `PyMemberDef` lives as long as its type.
    unsafe {
        let def =
            words::pointer(descriptor.as_ptr(), layout::MEMBER_DEF).cast::<ffi::PyMemberDef>();
        is_field(&*def).then(|| (*def).offset as usize)
    }
}

impl Member {
    /// A reader for this offset.
    #[must_use]
    pub fn new(offset: usize) -> Self {
        Member { offset, verified_type: AtomicUsize::new(0), verified_version: AtomicU32::new(0) }
    }

    /// The offset.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Reads the member of an object.
    #[inline]
    pub fn read<'py>(&self, object: Any<'_, 'py>) -> Read<'py> {
        if !self.applies(object) {
            return Read::NoMember;
        }
        // SAFETY: the object's type has an object member at this offset.
        unsafe {
            let value = words::pointer(object.as_ptr(), self.offset);
            Bound::from_borrowed_ptr_or_opt(object.py(), value).map_or(Read::Unset, Read::Value)
        }
    }

    /// Whether objects of this type have the member.
    #[inline]
    pub(super) fn applies(&self, object: Any<'_, '_>) -> bool {
        let ty = object.get_type();
        let version = types::version_tag(ty.as_borrowed());
        if version != 0
            && self.verified_type.load(Ordering::Relaxed) == ty.as_ptr() as usize
            && self.verified_version.load(Ordering::Relaxed) == version
        {
            return true;
        }
        let has =
            has_member(ty.as_borrowed(), self.offset) || tensor::has_hooks_at(object, self.offset);
        if has && types::assign_version(ty.as_borrowed()) {
            self.verified_type.store(ty.as_ptr() as usize, Ordering::Relaxed);
            self.verified_version.store(types::version_tag(ty.as_borrowed()), Ordering::Relaxed);
        }
        has
    }
}

/// Whether some class of the type was made with a slot at this offset. The class's own table of
/// members is asked, which attribute assignments don't change.
fn has_member(ty: Type<'_, '_>, offset: usize) -> bool {
    let Some(mro) = types::mro(ty) else {
        return false;
    };
    let length = container::tuple_length(mro.as_borrowed()).unwrap_or(0);
    (0..length).filter_map(|index| container::tuple_item(mro.as_borrowed(), index)).any(|class| {
        let Ok(class) = class.cast::<PyType>() else {
            return false;
        };
        // SAFETY: `tp_members` of a live type is null or an array that ends with a null name. The
        // base with the member is laid out inside its subclasses, as `ty` is one.
        unsafe {
            let class = class.as_ptr().cast::<ffi::PyTypeObject>();
            if ffi::PyType_IsSubtype(ty.as_ptr().cast(), class) == 0 {
                return false;
            }
            let mut member = (*class).tp_members;
            while !member.is_null() && !(*member).name.is_null() {
                let is_object = matches!((*member).type_code, OBJECT | OBJECT_EX);
                if is_object && (*member).offset as usize == offset {
                    return true;
                }
                member = member.add(1);
            }
            false
        }
    })
}
