//! Calls, and the arguments of `f(*args, **kwargs)`.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ffi as shim;
use crate::generic::is_subtype;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

/// Calls `callable`; the last `names.len()` of `args` are keyword arguments of these names.
#[inline]
pub fn call<'py>(
    callable: Borrowed<'_, 'py>,
    args: &[Borrowed<'_, 'py>],
    names: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects; `Borrowed` is a transparent pointer; `names` is a tuple of strings.
    unsafe {
        let (keywords, names) = match names {
            Some(names) => (ffi::PyTuple_GET_SIZE(names.as_ptr()) as usize, names.as_ptr()),
            None => (0, ptr::null_mut()),
        };
        debug_assert!(keywords <= args.len());
        let result = ffi::PyObject_Vectorcall(
            callable.as_ptr(),
            args.as_ptr().cast(),
            args.len() - keywords,
            names,
        );
        owned(callable.py(), result)
    }
}

/// `callable(*args, **kwargs)` with an exact tuple and an exact dict.
pub fn call_ex<'py>(
    callable: Borrowed<'_, 'py>,
    args: Borrowed<'_, 'py>,
    kwargs: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    super::begin()?;
    let kwargs = kwargs.map_or(ptr::null_mut(), |kwargs| kwargs.as_ptr());
    // SAFETY: valid objects of the types the C API asks for.
    unsafe { owned(callable.py(), ffi::PyObject_Call(callable.as_ptr(), args.as_ptr(), kwargs)) }
}

/// What `type.__call__` does with what `__new__` has made: an instance of the class is initialised, as
/// its own class says.
pub fn initialized<'py>(
    class: Borrowed<'_, 'py>,
    object: Object<'py>,
    args: &[Borrowed<'_, 'py>],
    names: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    super::begin()?;
    let py = object.py();
    let own = object.get_type();
    if !class.cast::<PyType>().is_ok_and(|class| is_subtype(&own, &class)) {
        return Ok(object);
    }
    // SAFETY: a live type's slot, called with an instance of it, a tuple, and a dict or null.
    unsafe {
        let Some(init) = (*own.as_type_ptr()).tp_init else { return Ok(object) };
        let named = names.map_or(0, |names| ffi::PyTuple_GET_SIZE(names.as_ptr()) as usize);
        let (positional, named) = args.split_at(args.len() - named);
        let tuple = owned(py, ffi::PyTuple_New(positional.len() as isize))?;
        for (index, arg) in positional.iter().enumerate() {
            ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index as isize, (*arg).to_owned().into_ptr());
        }
        let mut dict = None;
        if let Some(names) = names.filter(|_| !named.is_empty()) {
            let own = owned(py, ffi::PyDict_New())?;
            for (index, value) in named.iter().enumerate() {
                let name = ffi::PyTuple_GET_ITEM(names.as_ptr(), index as isize);
                status(ffi::PyDict_SetItem(own.as_ptr(), name, value.as_ptr()))?;
            }
            dict = Some(own);
        }
        let kwargs = dict.as_ref().map_or(ptr::null_mut(), |dict| dict.as_ptr());
        status(init(object.as_ptr(), tuple.as_ptr(), kwargs))?;
    }
    Ok(object)
}

/// The tuple of a `*args`; `None` if it is one already.
pub fn to_args_tuple<'py>(
    callable: Borrowed<'_, 'py>,
    args: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    // SAFETY: valid objects.
    unsafe {
        if ffi::PyTuple_CheckExact(args.as_ptr()) != 0 {
            return Ok(None);
        }
        if shim::stator_check_args_iterable(callable.as_ptr(), args.as_ptr()) < 0 {
            return Err(Raised);
        }
        super::begin()?;
        owned(args.py(), ffi::PySequence_Tuple(args.as_ptr())).map(Some)
    }
}

/// The dict of a `**kwargs`; `None` if it is one already.
pub fn to_kwargs_dict<'py>(
    callable: Borrowed<'_, 'py>,
    kwargs: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    // SAFETY: valid objects.
    unsafe {
        if ffi::PyDict_CheckExact(kwargs.as_ptr()) != 0 {
            return Ok(None);
        }
        let dict = owned(kwargs.py(), ffi::PyDict_New())?;
        merge_kwargs(callable, dict.as_borrowed(), kwargs)?;
        Ok(Some(dict))
    }
}

/// `DICT_MERGE`: adds the items of `kwargs`; a key that is there already is an error of the call.
pub fn merge_kwargs<'py>(
    callable: Borrowed<'_, 'py>,
    dict: Borrowed<'_, 'py>,
    kwargs: Borrowed<'_, 'py>,
) -> Result<()> {
    super::begin()?;
    // SAFETY: valid objects, the first one a dict.
    unsafe {
        if shim::_PyDict_MergeEx(dict.as_ptr(), kwargs.as_ptr(), 2) < 0 {
            shim::stator_format_kwargs_error(callable.as_ptr(), kwargs.as_ptr());
            return Err(Raised);
        }
    }
    Ok(())
}
