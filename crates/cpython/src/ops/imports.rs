//! Import statements, and the annotations of modules and classes.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::intern;

use crate::ffi as shim;
use crate::frame::Frame;
use crate::object::{Borrowed, Object, cloned, owned, status};
use crate::raised::{Raised, Result};

/// `IMPORT_NAME`: `from` is the tuple of names wanted, or `None`.
pub fn import_name<'py>(
    frame: &Frame<'py>,
    name: Borrowed<'_, 'py>,
    from: Borrowed<'_, 'py>,
    level: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::begin()?;
    let py = frame.py();
    // SAFETY: valid objects; the builtins are a dict here, as in CPython.
    unsafe {
        let import = intern!(py, "__import__");
        let found = ffi::PyDict_GetItemWithError(frame.builtins().as_ptr(), import.as_ptr());
        let Some(function) = cloned(py, found) else {
            if ffi::PyErr_Occurred().is_null() {
                let error = PyImportError::new_err("__import__ not found");
                return Err(Raised::set(py, error));
            }
            return Err(Raised);
        };
        let globals = frame.globals();
        let locals = frame.locals().map_or(ffi::Py_None(), |locals| locals.as_ptr());
        if shim::stator_is_original_import(function.as_ptr()) != 0 {
            let level = ffi::PyLong_AsLong(level.as_ptr());
            if level == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let module = ffi::PyImport_ImportModuleLevelObject(
                name.as_ptr(),
                globals.as_ptr(),
                locals,
                from.as_ptr(),
                level as i32,
            );
            return owned(py, module);
        }
        let args = [name.as_ptr(), globals.as_ptr(), locals, from.as_ptr(), level.as_ptr()];
        let result = ffi::PyObject_Vectorcall(
            function.as_ptr(),
            args.as_ptr(),
            args.len(),
            std::ptr::null_mut(),
        );
        owned(py, result)
    }
}

/// `IMPORT_FROM`.
pub fn import_from<'py>(module: Borrowed<'_, 'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe { owned(module.py(), shim::stator_import_from(module.as_ptr(), name.as_ptr())) }
}

/// `IMPORT_STAR`.
pub fn import_star<'py>(frame: &Frame<'py>, module: Borrowed<'_, 'py>) -> Result<()> {
    super::begin()?;
    let py = frame.py();
    // Only modules have `import *`, and their code has no fast locals; `exec` of odd code objects may.
    let object = if frame.code().nlocalsplus() > 0 {
        // SAFETY: the frame is linked and complete, so it is the thread's current one.
        let object = unsafe { owned(py, shim::PyThreadState_GetFrame(ffi::PyThreadState_Get())) }?;
        // SAFETY: a frame object.
        status(unsafe { shim::PyFrame_FastToLocalsWithError(object.as_ptr()) })?;
        Some(object)
    } else {
        None
    };
    let Some(locals) = frame.locals() else {
        return Err(Raised::system_error(py, c"no locals found during 'import *'"));
    };
    // SAFETY: valid objects.
    let result = status(unsafe { shim::stator_import_star(locals.as_ptr(), module.as_ptr()) });
    if let Some(object) = object {
        // SAFETY: a frame object.
        unsafe { shim::PyFrame_LocalsToFast(object.as_ptr(), 0) };
    }
    result.map(|_| ())
}

/// `SETUP_ANNOTATIONS`: makes sure that the locals have `__annotations__`.
pub fn setup_annotations(frame: &Frame<'_>) -> Result<()> {
    let py = frame.py();
    let Some(locals) = frame.locals() else {
        return Err(Raised::system_error(py, c"no locals found when setting up annotations"));
    };
    let name = intern!(py, "__annotations__").as_ptr();
    let locals = locals.as_ptr();
    // SAFETY: valid objects.
    unsafe {
        if ffi::PyDict_CheckExact(locals) != 0 {
            if !ffi::PyDict_GetItemWithError(locals, name).is_null() {
                return Ok(());
            }
            if !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let annotations = owned(py, ffi::PyDict_New())?;
            status(ffi::PyDict_SetItem(locals, name, annotations.as_ptr()))?;
            return Ok(());
        }
        match owned(py, ffi::PyObject_GetItem(locals, name)) {
            Ok(_found) => Ok(()),
            Err(raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) == 0 => Err(raised),
            Err(Raised) => {
                ffi::PyErr_Clear();
                let annotations = owned(py, ffi::PyDict_New())?;
                status(ffi::PyObject_SetItem(locals, name, annotations.as_ptr()))?;
                Ok(())
            }
        }
    }
}
