//! CPython's generic machinery below the syntax level: generic attribute access, `tp_new`,
//! descriptors, method definitions, the error indicator.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use pyo3::PyTypeInfo;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyString, PyTuple, PyType};

use crate::heap::types;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};
use crate::thread::Thread;

/// `PyObject_GenericGetAttr`: no `__getattr__`, no user's `__getattribute__`.
pub fn generic_get_attr<'py>(
    owner: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    crate::ops::begin()?;
    // SAFETY: two live objects; the name is checked by the callee.
    unsafe { owned(owner.py(), ffi::PyObject_GenericGetAttr(owner.as_ptr(), name.as_ptr())) }
}

/// `PyObject_GenericSetAttr`, deleting if there is no value.
pub fn generic_set_attr(
    owner: Borrowed<'_, '_>,
    name: Borrowed<'_, '_>,
    value: Option<Borrowed<'_, '_>>,
) -> Result<()> {
    crate::ops::begin()?;
    let value = value.map_or(std::ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: live objects, or null for deletion.
    unsafe { status(ffi::PyObject_GenericSetAttr(owner.as_ptr(), name.as_ptr(), value)).map(drop) }
}

/// `type.__setattr__`: sets an attribute of a class as a plain metaclass does, and tells the caches
/// of attribute lookups.
pub fn set_class_attr<'py>(
    class: &Bound<'py, PyType>,
    name: Borrowed<'_, 'py>,
    value: Borrowed<'_, 'py>,
) -> Result<()> {
    // SAFETY: `PyType_Type` has a `tp_setattro`; it is given a live class, a name that it checks, and
    // a live value.
    unsafe {
        let set = ffi::PyType_Type.tp_setattro.expect("classes take attributes");
        status(set(class.as_ptr(), name.as_ptr(), value.as_ptr())).map(drop)
    }
}

/// What stands in a class's own dictionary, bases aside.
pub fn class_value<'py>(
    class: &Bound<'py, PyType>,
    name: Borrowed<'_, 'py>,
) -> Option<Object<'py>> {
    let dict = types::class_dict(class.as_borrowed())?;
    match crate::heap::dict::get(dict.as_borrowed(), name) {
        crate::heap::dict::Lookup::Found(value) => Some(value),
        crate::heap::dict::Lookup::Absent | crate::heap::dict::Lookup::Refused => None,
    }
}

/// Binds a descriptor through its type's `tp_descr_get`; an object without one comes back as it is.
pub fn descriptor_get<'py>(
    descriptor: Borrowed<'_, 'py>,
    owner: Option<Borrowed<'_, 'py>>,
    class: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    crate::ops::begin()?;
    let owner = owner.map_or(std::ptr::null_mut(), |owner| owner.as_ptr());
    // SAFETY: the slot of a live object's type, called as CPython calls it.
    unsafe {
        match (*ffi::Py_TYPE(descriptor.as_ptr())).tp_descr_get {
            Some(get) => owned(descriptor.py(), get(descriptor.as_ptr(), owner, class.as_ptr())),
            None => Ok(descriptor.to_owned()),
        }
    }
}

/// `type.tp_new(type, args, kwargs)`: a new instance before `__init__`.
pub fn new_object<'py>(
    class: &Bound<'py, PyType>,
    args: &[Borrowed<'_, 'py>],
    names: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    let py = class.py();
    let given = names.map_or(0, |names| names.len().unwrap_or(0));
    let (positional, named) = args.split_at(args.len() - given);
    let positional = PyTuple::new(py, positional).map_err(|error| Raised::set(py, error))?;
    let keywords = pyo3::types::PyDict::new(py);
    if let Some(names) = names {
        let names = names.cast::<PyTuple>().map_err(|error| Raised::set(py, error.into()))?;
        for (name, value) in names.iter().zip(named) {
            keywords.set_item(name, *value).map_err(|error| Raised::set(py, error))?;
        }
    }
    let keywords = if given == 0 { std::ptr::null_mut() } else { keywords.as_ptr() };
    // SAFETY: a live type; its `tp_new` is called as `type.__call__` does.
    unsafe {
        match (*class.as_type_ptr()).tp_new {
            Some(new) => owned(py, new(class.as_type_ptr(), positional.as_ptr(), keywords)),
            None => Err(Raised::set(
                py,
                pyo3::exceptions::PyTypeError::new_err("cannot create instances"),
            )),
        }
    }
}

/// The error of an `__init__` that returned something.
pub fn raise_init_result(result: Borrowed<'_, '_>) -> Raised {
    let name = result.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    let message = format!("__init__() should return None, not '{name}'");
    Raised::set(result.py(), pyo3::exceptions::PyTypeError::new_err(message))
}

/// Whether the exception that is set is an instance of `E`.
pub fn exception_matches<E: PyTypeInfo>(py: Python<'_>) -> bool {
    // SAFETY: the GIL is held; an exception may or may not be set.
    unsafe {
        !ffi::PyErr_Occurred().is_null()
            && ffi::PyErr_ExceptionMatches(E::type_object_raw(py).cast()) != 0
    }
}

/// An exact int that no other code holds: not the one that CPython shares among equal small ints.
pub fn own_int(py: Python<'_>, value: i64) -> Object<'_> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL where memory has run out.
    let made = unsafe { Bound::from_owned_ptr_or_opt(py, crate::ffi::stator_own_int(value)) };
    made.expect("memory for an int")
}

/// The value of an exact int for which CPython keeps one object.
#[inline]
#[must_use]
pub fn small_int(object: Borrowed<'_, '_>) -> Option<i64> {
    if !object.is_exact_instance_of::<PyInt>() {
        return None;
    }
    object.extract::<i64>().ok().filter(|value| (-5..=256).contains(value))
}

/// The object that CPython has for a small int, where this one is another of its value.
#[inline]
pub fn shared_int<'py>(object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    let shared = PyInt::new(object.py(), small_int(object)?).into_any();
    (!shared.is(object)).then_some(shared)
}

/// An exact text that no other code holds: not one that CPython shares among equal texts. `None`: it's empty.
pub fn own_text<'py>(text: &Bound<'py, PyString>) -> Option<Object<'py>> {
    let py = text.py();
    if text.len().ok()? == 0 {
        return None;
    }
    // SAFETY: the GIL is held; an exact str; the result is a new reference, or NULL where memory has run out.
    let made =
        unsafe { Bound::from_owned_ptr_or_opt(py, crate::ffi::stator_own_text(text.as_ptr())) };
    Some(made.expect("memory for a text"))
}

/// Clears the exception that is set.
pub fn clear_exception(_py: Python<'_>) {
    // SAFETY: the GIL is held.
    unsafe { ffi::PyErr_Clear() };
}

/// Whether an object is a C function or a bound method of a C type, one that is told its class (`pattern.match`) as well:
/// that has the same struct with a word behind it.
#[inline]
pub fn is_c_function(object: Borrowed<'_, '_>) -> bool {
    types::address_of(object) == &raw mut ffi::PyCFunction_Type as usize || knows_its_class(object)
}

/// Whether an object is a bound method of a C type that is told its class.
pub fn knows_its_class(object: Borrowed<'_, '_>) -> bool {
    types::address_of(object) == &raw mut ffi::PyCMethod_Type as usize
}

/// The address of the `PyMethodDef` of a C function or method descriptor: what names it, however
/// it is bound.
#[inline]
pub fn method_def(callable: Borrowed<'_, '_>) -> Option<usize> {
    let ty = types::address_of(callable);
    if is_c_function(callable) {
        // SAFETY: a C function by its exact type; its definition outlives it.
        unsafe {
            let def = (*callable.as_ptr().cast::<ffi::PyCFunctionObject>()).m_ml;
            return (!is_new(def)).then_some(def as usize);
        }
    }
    if ty == &raw mut ffi::PyMethodDescr_Type as usize
        || ty == &raw mut ffi::PyClassMethodDescr_Type as usize
    {
        // SAFETY: a method descriptor by its exact type: the common descriptor head, then `d_method`.
        return Some(unsafe {
            callable.as_ptr().cast::<MethodDescriptor>().as_ref().map_or(0, |d| d.method as usize)
        });
    }
    None
}

/// Whether this is the definition that the `__new__` of every C type shares.
///
/// # Safety
/// `def` is the definition of a live C function.
unsafe fn is_new(def: *mut ffi::PyMethodDef) -> bool {
    // SAFETY: the name of a method definition is a C string.
    unsafe { std::ffi::CStr::from_ptr((*def).ml_name) == c"__new__" }
}

/// `PyMethodDescrObject`, as all versions since 3.8 lay it out.
#[repr(C)]
struct MethodDescriptor {
    head: ffi::PyObject,
    class: *mut ffi::PyTypeObject,
    name: *mut ffi::PyObject,
    qualname: *mut ffi::PyObject,
    method: *mut ffi::PyMethodDef,
}

/// The object a C method is bound to; `None` for functions of modules, static and class methods.
pub fn bound_receiver<'py>(callable: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    if !is_c_function(callable) {
        return None;
    }
    // SAFETY: a C function by its exact type; a static method's `m_self` isn't to be read.
    unsafe {
        let function = callable.as_ptr().cast::<ffi::PyCFunctionObject>();
        if (*(*function).m_ml).ml_flags & ffi::METH_STATIC != 0 {
            return None;
        }
        Bound::from_borrowed_ptr_or_opt(callable.py(), (*function).m_self)
    }
}

/// Whether a C function was made for a module (it says which one in `__module__`), rather than
/// bound from a descriptor.
pub fn is_module_function(callable: Borrowed<'_, '_>) -> bool {
    if !is_c_function(callable) {
        return false;
    }
    // SAFETY: a C function by its exact type.
    unsafe { !(*callable.as_ptr().cast::<ffi::PyCFunctionObject>()).m_module.is_null() }
}

/// The address of the type of bound slot wrappers, which not all versions export; 0 if it can't be found out.
pub(crate) fn method_wrapper(py: Python<'_>) -> usize {
    static ADDRESS: PyOnceLock<usize> = PyOnceLock::new();
    let found = ADDRESS.get_or_try_init(py, || {
        let wrapper = py.None().into_bound(py).getattr("__str__")?;
        PyResult::Ok(types::address_of(wrapper.as_borrowed()))
    });
    found.copied().unwrap_or(0)
}

/// Receiver and descriptor of a bound slot wrapper (`super().__setitem__` of a C type).
pub fn wrapper_parts<'py>(object: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
    #[repr(C)]
    struct Wrapper {
        head: ffi::PyObject,
        descriptor: *mut ffi::PyObject,
        receiver: *mut ffi::PyObject,
    }
    let py = object.py();
    if types::address_of(object) != method_wrapper(py) {
        return None;
    }
    // SAFETY: a bound slot wrapper by its exact type; its fields are objects or null.
    unsafe {
        let parts = &*object.as_ptr().cast::<Wrapper>();
        let descriptor = Bound::from_borrowed_ptr_or_opt(py, parts.descriptor)?;
        let receiver = Bound::from_borrowed_ptr_or_opt(py, parts.receiver)?;
        Some((receiver, descriptor))
    }
}

/// What a C method was made from, bound or not: the address of its definition, or that of its slot's descriptor.
pub fn made_from(method: Borrowed<'_, '_>) -> Option<usize> {
    if types::address_of(method) == &raw mut ffi::PyWrapperDescr_Type as usize {
        return Some(method.as_ptr() as usize);
    }
    let wrapped = wrapper_parts(method).map(|(_, descriptor)| descriptor.as_ptr() as usize);
    wrapped.or_else(|| method_def(method))
}

/// The parts of a bound `super` object: the class to search behind, the receiver and the receiver's
/// class.
pub fn super_parts<'py>(
    object: Borrowed<'_, 'py>,
) -> Option<(Bound<'py, PyType>, Object<'py>, Bound<'py, PyType>)> {
    #[repr(C)]
    struct Super {
        head: ffi::PyObject,
        after: *mut ffi::PyObject,
        receiver: *mut ffi::PyObject,
        start: *mut ffi::PyObject,
    }
    if types::address_of(object) != &raw mut ffi::PySuper_Type as usize {
        return None;
    }
    let py = object.py();
    // SAFETY: a `super` object by its exact type; its fields are objects or null.
    unsafe {
        let parts = &*object.as_ptr().cast::<Super>();
        let after = Bound::from_borrowed_ptr_or_opt(py, parts.after)?;
        let receiver = Bound::from_borrowed_ptr_or_opt(py, parts.receiver)?;
        let start = Bound::from_borrowed_ptr_or_opt(py, parts.start)?;
        Some((after.cast_into().ok()?, receiver, start.cast_into().ok()?))
    }
}

unsafe extern "C" {
    fn PyMethod_New(
        function: *mut ffi::PyObject,
        receiver: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// A bound method object.
pub fn bind_method<'py>(function: Borrowed<'_, 'py>, receiver: Borrowed<'_, 'py>) -> Object<'py> {
    // SAFETY: two live objects; fails only without memory.
    unsafe {
        Bound::from_owned_ptr(function.py(), PyMethod_New(function.as_ptr(), receiver.as_ptr()))
    }
}

/// What kind of descriptor of CPython's own an object is, by its exact type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorType {
    /// A method of a C type, or a slot as a method.
    Method,
    /// A class method of a C type.
    ClassMethodOfC,
    /// A field of a C type, or a `__slots__` member.
    Member,
    /// A computed attribute of a C type.
    GetSet,
    /// `property`.
    Property,
    /// `staticmethod`.
    StaticMethod,
    /// `classmethod`.
    ClassMethod,
}

/// See [`DescriptorType`]; `None` for anything else.
#[inline]
pub fn descriptor_type(object: Borrowed<'_, '_>) -> Option<DescriptorType> {
    let ty = types::address_of(object);
    let is = |known: *mut ffi::PyTypeObject| ty == known as usize;
    if is(&raw mut ffi::PyMethodDescr_Type) || is(&raw mut ffi::PyWrapperDescr_Type) {
        Some(DescriptorType::Method)
    } else if is(&raw mut ffi::PyGetSetDescr_Type) {
        Some(DescriptorType::GetSet)
    } else if is(&raw mut ffi::PyProperty_Type) {
        Some(DescriptorType::Property)
    } else if is(&raw mut ffi::PyMemberDescr_Type) {
        Some(DescriptorType::Member)
    } else if is(&raw mut ffi::PyStaticMethod_Type) {
        Some(DescriptorType::StaticMethod)
    } else if is(&raw mut ffi::PyClassMethod_Type) {
        Some(DescriptorType::ClassMethod)
    } else if is(&raw mut ffi::PyClassMethodDescr_Type) {
        Some(DescriptorType::ClassMethodOfC)
    } else {
        None
    }
}

/// Whether this is a method of a type whose attributes nobody can set, such as `list.append`: where it was
/// looked up once, the same object is found for good.
#[must_use]
pub fn is_fixed_method(object: Borrowed<'_, '_>) -> bool {
    if descriptor_type(object) != Some(DescriptorType::Method) {
        return false;
    }
    // SAFETY: method descriptors and slot wrappers begin alike; the type lives as long as its descriptor.
    unsafe {
        let class = (*object.as_ptr().cast::<MethodDescriptor>()).class;
        (*class).tp_flags & ffi::Py_TPFLAGS_IMMUTABLETYPE != 0
    }
}

/// The name in the definition of a C function, a method or a slot.
pub fn method_name<'a>(callable: Borrowed<'a, '_>) -> Option<&'a str> {
    if types::address_of(callable) == &raw mut ffi::PyWrapperDescr_Type as usize {
        // SAFETY: slot wrappers begin as method descriptors do, and own their names, whose text is theirs.
        unsafe {
            let name = (*callable.as_ptr().cast::<MethodDescriptor>()).name;
            let text = ffi::PyUnicode_AsUTF8AndSize(name, std::ptr::null_mut());
            return (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_str().ok())?;
        }
    }
    let def = method_def(callable)? as *const ffi::PyMethodDef;
    // SAFETY: the definition of a live C function outlives it, and its name is a C string.
    unsafe { std::ffi::CStr::from_ptr((*def).ml_name) }.to_str().ok()
}

/// The string, interned.
pub fn interned<'py>(text: &Bound<'py, PyString>) -> Bound<'py, PyString> {
    let mut pointer = text.clone().into_ptr();
    // SAFETY: an owned reference to a string goes in, an owned one comes out.
    unsafe {
        ffi::PyUnicode_InternInPlace(&raw mut pointer);
        Bound::from_owned_ptr(text.py(), pointer).cast_into_unchecked()
    }
}

/// Whether `class` is `base` or has it among its bases; no user code runs.
pub fn is_subtype(class: &Bound<'_, PyType>, base: &Bound<'_, PyType>) -> bool {
    // SAFETY: two live types.
    unsafe { ffi::PyType_IsSubtype(class.as_type_ptr(), base.as_type_ptr()) != 0 }
}

/// Whether an object is an instance of `class`, by its type alone: `isinstance` would ask `__class__`, which may be the
/// program's own code.
pub fn is_of_class(object: Borrowed<'_, '_>, class: &Bound<'_, PyAny>) -> bool {
    class.cast::<PyType>().is_ok_and(|class| is_subtype(&object.get_type(), class))
}

/// How many [`WithoutGc`] live, in all threads.
static PAUSES: AtomicUsize = AtomicUsize::new(0);
/// Whether collection was on before the first of them.
static WAS_ON: AtomicBool = AtomicBool::new(false);

/// Turns automatic garbage collection off while it lives, if it was on: a recorded call must not
/// be interrupted by finalizers of objects that have nothing to do with it, nor PyTorch's code that
/// holds a lock. Nobody notices as long as the GIL is kept.
///
/// Several threads may record at once: the last one that ends turns collection on again.
pub struct WithoutGc(());

impl WithoutGc {
    /// Turns collection off, and puts off one that is due.
    #[must_use]
    pub fn new(py: Python<'_>) -> Self {
        // SAFETY: the GIL is held.
        let was_on = unsafe { ffi::PyGC_Disable() } != 0;
        Thread::current(py).put_off_collection();
        // Where somebody has turned it on since the first pause began, it stays so in the end.
        if PAUSES.fetch_add(1, Relaxed) == 0 || was_on {
            WAS_ON.store(was_on, Relaxed);
        }
        Self(())
    }
}

impl Drop for WithoutGc {
    fn drop(&mut self) {
        if PAUSES.fetch_sub(1, Relaxed) == 1 && WAS_ON.load(Relaxed) {
            // SAFETY: made and dropped with the GIL held.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
