//! Fields of functions, methods, cells, partials, properties, method wrappers, weak references and classes.

use crate::{generic, modules};
use pyo3::ffi;
use pyo3::prelude::*;

use super::{Any, cached, dict, layout, types, words};

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
}

/// A field that holds an object, of an object that isn't a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `__globals__` of a function.
    Globals,
    /// The builtins dictionary of a function.
    Builtins,
    /// `__code__` of a function.
    Code,
    /// `__defaults__` of a function.
    Defaults,
    /// `__kwdefaults__` of a function.
    KwDefaults,
    /// `__closure__` of a function.
    Closure,
    /// `__name__` of a function.
    Name,
    /// `__qualname__` of a function.
    Qualname,
    /// `__doc__` of a function.
    Doc,
    /// `__module__` of a function.
    Module,
    /// `__annotations__` of a function; empty until somebody asks.
    Annotations,
    /// `cell_contents` of a cell.
    CellContents,
    /// `__self__` of a bound method, a C type's too.
    MethodSelf,
    /// `__func__` of a bound method.
    MethodFunc,
    /// `func` of a `functools.partial`.
    PartialFunc,
    /// `args` of a `functools.partial`.
    PartialArgs,
    /// `keywords` of a `functools.partial`.
    PartialKeywords,
    /// What a `types.MappingProxyType` or a view of a dictionary shows.
    ShownMapping,
    /// `fget` of a property.
    PropertyGet,
    /// `fset` of a property.
    PropertySet,
    /// `__func__` of a `staticmethod`.
    StaticFunc,
    /// `__func__` of a `classmethod`.
    ClassFunc,
    /// What a weak reference refers to; `None` once that has died.
    Referent,
    /// The dictionary of a `functools.lru_cache`d function.
    Cache,
    /// The result that a link of such a dictionary holds.
    CachedResult,
    /// `__name__` of a class made at run time.
    ClassName,
    /// `__qualname__` of a class made at run time.
    ClassQualname,
    /// `__mro__` of a class.
    ClassMro,
    /// `__bases__` of a class.
    ClassBases,
    /// `__base__` of a class.
    ClassBase,
}

impl Field {
    /// Offset of the field in an object that [`Field::applies`] to.
    pub(super) const fn offset(self) -> usize {
        match self {
            Field::Globals => layout::function::GLOBALS,
            Field::Builtins => layout::function::BUILTINS,
            Field::Code => layout::function::CODE,
            Field::Defaults => layout::function::DEFAULTS,
            Field::KwDefaults => layout::function::KWDEFAULTS,
            Field::Closure => layout::function::CLOSURE,
            Field::Name => layout::function::NAME,
            Field::Qualname => layout::function::QUALNAME,
            Field::Doc => layout::function::DOC,
            Field::Module => layout::function::MODULE,
            Field::Annotations => layout::function::ANNOTATIONS,
            Field::CellContents => layout::CELL_CONTENTS,
            Field::MethodSelf => layout::METHOD_SELF,
            Field::MethodFunc => layout::METHOD_FUNC,
            Field::PartialFunc => layout::PARTIAL_FUNC,
            Field::ShownMapping => layout::SHOWN_MAPPING,
            Field::PartialArgs => layout::PARTIAL_ARGS,
            Field::PartialKeywords => layout::PARTIAL_KEYWORDS,
            Field::PropertyGet => layout::PROPERTY_GET,
            Field::PropertySet => layout::PROPERTY_SET,
            Field::StaticFunc | Field::ClassFunc => layout::WRAPPED_FUNC,
            Field::Referent => layout::REFERENT,
            Field::Cache => cached::CACHE,
            Field::CachedResult => cached::RESULT,
            Field::ClassName => layout::class::NAME,
            Field::ClassQualname => layout::class::QUALNAME,
            Field::ClassMro => layout::class::MRO,
            Field::ClassBases => layout::class::BASES,
            Field::ClassBase => layout::class::BASE,
        }
    }

    /// Whether the object has the layout this is a field of (its type, or a base of it, has).
    #[inline]
    pub fn applies(self, object: Any<'_, '_>) -> bool {
        match self {
            Field::Globals
            | Field::Builtins
            | Field::Code
            | Field::Defaults
            | Field::KwDefaults
            | Field::Closure
            | Field::Name
            | Field::Qualname
            | Field::Doc
            | Field::Module
            | Field::Annotations => is_instance(object, &raw mut ffi::PyFunction_Type),
            Field::CellContents => is_instance(object, &raw mut ffi::PyCell_Type),
            Field::MethodFunc => is_instance(object, &raw mut PyMethod_Type),
            Field::MethodSelf => {
                is_instance(object, &raw mut PyMethod_Type) || is_native_method(object)
            }
            Field::PartialFunc | Field::PartialArgs | Field::PartialKeywords => {
                is_instance(object, partial_type(object.py()))
            }
            Field::ShownMapping => {
                object.is_exact_instance_of::<pyo3::types::PyMappingProxy>()
                    || dict::view_method(object).is_some()
            }
            Field::PropertyGet | Field::PropertySet => {
                is_instance(object, &raw mut ffi::PyProperty_Type)
            }
            Field::StaticFunc => is_instance(object, &raw mut ffi::PyStaticMethod_Type),
            Field::ClassFunc => is_instance(object, &raw mut ffi::PyClassMethod_Type),
            Field::Referent => object.is_exact_instance_of::<pyo3::types::PyWeakrefReference>(),
            Field::Cache => cached::is_wrapper(&object),
            Field::CachedResult => cached::is_link(&object),
            Field::ClassName | Field::ClassQualname => {
                object.cast::<pyo3::types::PyType>().is_ok_and(|ty| types::is_heap(ty))
            }
            Field::ClassMro | Field::ClassBases | Field::ClassBase => {
                object.is_instance_of::<pyo3::types::PyType>()
            }
        }
    }
}

/// Whether an object is a C function or a bound slot wrapper: where a bound method has its function, it has
/// what it was made from, and its receiver in the same place.
pub fn is_native_method(object: Any<'_, '_>) -> bool {
    generic::is_c_function(object)
        || types::address_of(object) == generic::method_wrapper(object.py())
}

/// What a field holds.
#[derive(Debug)]
pub enum Read<'py> {
    /// An object.
    Value(Bound<'py, PyAny>),
    /// Nothing: an empty cell, a function without defaults.
    Empty,
    /// The object has no such field.
    NoField,
}

/// Reads a field.
#[inline]
pub fn read<'py>(object: Any<'_, 'py>, field: Field) -> Read<'py> {
    if !field.applies(object) {
        return Read::NoField;
    }
    // SAFETY: `applies` says the object has this layout; the field is an object pointer or null.
    unsafe {
        let value = words::pointer(object.as_ptr(), field.offset());
        Bound::from_borrowed_ptr_or_opt(object.py(), value).map_or(Read::Empty, Read::Value)
    }
}

/// The value of a field, if the object has the field and it holds one.
#[inline]
pub fn value<'py>(object: Any<'_, 'py>, field: Field) -> Option<Bound<'py, PyAny>> {
    match read(object, field) {
        Read::Value(value) => Some(value),
        Read::Empty | Read::NoField => None,
    }
}

fn is_instance(object: Any<'_, '_>, ty: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: `PyObject_TypeCheck` walks the chain of bases; no Python code runs. `ty` is a type
    // of CPython's, or null, which is no base.
    unsafe {
        words::type_of(object.as_ptr()) == ty
            || (!ty.is_null() && ffi::PyType_IsSubtype(words::type_of(object.as_ptr()), ty) != 0)
    }
}

/// `functools.partial` as its C module defines it; null if that module is missing.
fn partial_type(py: Python<'_>) -> *mut ffi::PyTypeObject {
    static PARTIAL: pyo3::sync::PyOnceLock<Option<Py<PyAny>>> = pyo3::sync::PyOnceLock::new();
    PARTIAL
        .get_or_init(py, || {
            let ty = modules::import(py, "_functools").ok()?.getattr("partial").ok()?;
            let ty = ty.cast_into::<pyo3::types::PyType>().ok()?;
            // SAFETY: a live type; the size must hold the fields.
            let size = unsafe { (*ty.as_ptr().cast::<ffi::PyTypeObject>()).tp_basicsize };
            (size as usize > layout::PARTIAL_KEYWORDS + 8).then(|| ty.into_any().unbind())
        })
        .as_ref()
        .map_or(std::ptr::null_mut(), |ty| ty.as_ptr().cast())
}
