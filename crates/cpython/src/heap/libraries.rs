//! PyTorch's libraries, as `import torch` has loaded them: their functions and variables by name. Nothing is linked, and
//! nothing is loaded here.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

use pyo3::prelude::*;

/// A library of PyTorch's.
#[derive(Clone, Copy)]
pub(crate) enum Library {
    C10,
    Cpu,
    Python,
}

/// The handles of all, as numbers; null where a library wasn't found.
static HANDLES: OnceLock<[usize; 3]> = OnceLock::new();

/// Looks for the libraries of this PyTorch, once.
pub(super) fn open(torch: &Bound<'_, PyAny>) -> PyResult<()> {
    let package: String = torch.getattr("__file__")?.extract()?;
    let folder = package.rsplit_once('/').map_or("", |(folder, _)| folder);
    HANDLES.get_or_init(|| {
        ["c10", "torch_cpu", "torch_python"].map(|name| {
            let file = format!("{DLL_PREFIX}{name}{DLL_SUFFIX}");
            // By its name alone where a distribution keeps it elsewhere.
            loaded(&format!("{folder}/lib/{file}")).or_else(|| loaded(&file)).unwrap_or(0)
        })
    });
    Ok(())
}

/// The handle of a library that is loaded already. It is never closed, and neither does Python unload extension modules.
fn loaded(path: &str) -> Option<usize> {
    let path = CString::new(path).ok()?;
    // SAFETY: a C string; `RTLD_NOLOAD` only looks libraries up.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle as usize)
}

impl Library {
    /// The address of what has this name; of a thread-local variable, this thread's.
    pub(crate) fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        let handle = HANDLES.get()?[self as usize];
        if handle == 0 {
            return None;
        }
        // SAFETY: a handle that `dlopen` gave, and a C string.
        let found = unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// A function by its name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to that function.
    pub(crate) unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        let found = self.symbol(name)?;
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: a function pointer of the same size; its type is the caller's promise.
        Some(unsafe { std::mem::transmute_copy(&found) })
    }
}
