//! What calls of PyTorch's operators need of PyTorch and of C++'s runtime.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::IS_KNOWN;
use super::entering::{Laid, enter};
use super::values::{Tensor, Value};
use crate::heap::libraries::Library;
use crate::heap::tensor;
use crate::heap::torch::Torch;
use crate::object::Object;

/// Addresses of functions. Each is called as its name says.
#[derive(Debug)]
pub(super) struct Runtime {
    /// `THPVariable_Wrap(at::TensorBase&&)`.
    wrap: *const c_void,
    /// The address of the `TensorImpl` that a tensor without any has: what is left where one was moved from.
    undefined: usize,
    /// `operator new(size_t)`, `aoti_torch_delete_tensor_object(at::Tensor*)`.
    new: unsafe extern "C" fn(usize) -> *mut c_void,
    delete_tensor: unsafe extern "C" fn(*mut c_void) -> i32,
    /// `aoti_torch_new_tensor_handle(at::Tensor*, at::Tensor**)`.
    copy_tensor: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> i32,
    /// `torch::PyWarningHandler`'s constructor and destructor.
    hear_warnings: unsafe extern "C" fn(*mut c_void),
    tell_warnings: *const c_void,
    /// `at::impl::PythonTorchFunctionTLS::stack_len()`.
    function_modes: unsafe extern "C" fn() -> i64,
    /// `c10::impl::TorchDispatchModeTLS::stack_len()`.
    dispatch_modes: unsafe extern "C" fn() -> i64,
    begin_catch: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    end_catch: unsafe extern "C" fn(),
    /// `std::current_exception()` and the destructor of what it gives.
    current_exception: unsafe extern "C" fn(*mut *mut c_void),
    drop_exception: unsafe extern "C" fn(*mut *mut c_void),
    /// `torch::translate_exception_to_python(const std::exception_ptr&)`.
    translate: *const c_void,
}

// SAFETY: addresses of functions, which are the same in each thread.
unsafe impl Send for Runtime {}
// SAFETY: as above; nothing is written.
unsafe impl Sync for Runtime {}

/// A place for a `torch::PyWarningHandler`: two pointers, a vector of three, a flag, and as much again.
#[repr(C, align(16))]
struct WarningHandler([u64; 16]);

impl Runtime {
    /// What was found; `None` if anything wasn't.
    pub(super) fn get() -> Option<&'static Self> {
        static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
        RUNTIME.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        if !IS_KNOWN {
            return None;
        }
        let of =
            |library: Library, name: &CStr| library.symbol(name).map(<*mut c_void>::cast_const);
        // PyTorch 2.9 and 2.10 take a tensor by value: so they're given its address as well, and what is left of it.
        let wrap = of(Library::Python, c"_Z16THPVariable_WrapON2at10TensorBaseE")
            .or_else(|| of(Library::Python, c"_Z16THPVariable_WrapN2at10TensorBaseE"))?;
        // SAFETY: each name is that of a function of this type; C++'s runtime is what PyTorch's library is linked with.
        unsafe {
            Some(Self {
                wrap,
                undefined: Library::C10.symbol(c"_ZN3c1019UndefinedTensorImpl10_singletonE")?
                    as usize,
                new: Library::Cpu.function(c"_Znwm")?,
                delete_tensor: Library::Cpu.function(c"aoti_torch_delete_tensor_object")?,
                copy_tensor: Library::Cpu.function(c"aoti_torch_new_tensor_handle")?,
                hear_warnings: Library::Python.function(c"_ZN5torch16PyWarningHandlerC1Ev")?,
                tell_warnings: of(Library::Python, c"_ZN5torch16PyWarningHandlerD1Ev")?,
                function_modes: Library::Cpu
                    .function(c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv")?,
                dispatch_modes: Library::C10
                    .function(c"_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv")?,
                begin_catch: Library::Cpu.function(c"__cxa_begin_catch")?,
                end_catch: Library::Cpu.function(c"__cxa_end_catch")?,
                current_exception: Library::Cpu.function(c"_ZSt17current_exceptionv")?,
                drop_exception: Library::Cpu
                    .function(c"_ZNSt15__exception_ptr13exception_ptrD1Ev")?,
                translate: of(
                    Library::Python,
                    c"_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE",
                )?,
            })
        }
    }

    /// Whether a mode of the program's (`torch.overrides.TorchFunctionMode`) is to see each call.
    #[inline]
    pub(super) fn has_modes(&self) -> bool {
        // SAFETY: it only reads.
        unsafe { (self.function_modes)() != 0 }
    }

    /// Whether a mode of the program's (`TorchDispatchMode`) is to see each operator.
    #[inline]
    pub(super) fn is_dispatched(&self) -> bool {
        // SAFETY: it only reads.
        unsafe { (self.dispatch_modes)() != 0 }
    }

    /// Calls an operator that gives a tensor; `may_hold`: it needs no object if it is an ordinary one.
    ///
    /// # Errors
    /// What it raises, as PyTorch's Python functions raise it.
    ///
    /// # Safety
    /// The operator takes these arguments, and gives a tensor.
    #[inline]
    pub(super) unsafe fn call<'py>(
        &'static self,
        py: Python<'py>,
        torch: &Torch,
        operator: *const c_void,
        arguments: &Laid,
        may_hold: bool,
    ) -> PyResult<Value<'py>> {
        let mut result: *mut c_void = ptr::null_mut();
        let place = ptr::from_mut(&mut result).cast();
        // SAFETY: the caller's promise, and a place for a tensor, which is moved to memory of its own.
        let (told, tensor) = unsafe {
            let (told, _) = self.entered(py, operator, arguments, place)?;
            let held = (self.new)(size_of::<*mut c_void>()).cast::<*mut c_void>();
            held.write(result);
            let held = NonNull::new_unchecked(held.cast());
            (told, Tensor::new(py, self, held))
        };
        told?;
        let is_defined = result as usize != self.undefined;
        // SAFETY: the `TensorImpl` of a live tensor.
        if may_hold && is_defined && unsafe { tensor::is_plain_at(torch, result) } {
            return Ok(Value::Tensor(tensor));
        }
        tensor.into_object(py).map(Value::Object)
    }

    /// The Python object for the `at::Tensor` at `place`, which is moved into it unless it has one already.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Safety
    /// There is a live tensor.
    pub(super) unsafe fn wrap<'py>(
        &self,
        py: Python<'py>,
        place: *mut c_void,
    ) -> PyResult<Object<'py>> {
        // SAFETY: the caller's promise; a new reference or null comes back.
        unsafe {
            self.guarded(py, self.wrap, place)
                .and_then(|object| Bound::from_owned_ptr_or_err(py, object.cast()))
        }
    }

    /// Another `at::Tensor` for what the one at `place` is for.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Safety
    /// There is a live tensor.
    pub(super) unsafe fn copy(&self, place: *mut c_void) -> PyResult<NonNull<c_void>> {
        let mut made = ptr::null_mut();
        // SAFETY: the caller's promise, and a place for the address.
        unsafe { (self.copy_tensor)(place, &mut made) };
        NonNull::new(made).ok_or_else(|| PyMemoryError::new_err(()))
    }

    /// Drops an `at::Tensor`, and its memory.
    ///
    /// # Safety
    /// It was made by C++'s `new`, and isn't used any more.
    #[inline]
    pub(super) unsafe fn delete(&self, tensor: NonNull<c_void>) {
        // SAFETY: the caller's promise.
        unsafe { (self.delete_tensor)(tensor.as_ptr()) };
    }

    /// Calls an operator; what it returns in a register.
    ///
    /// # Errors
    /// What the operator has thrown, or an error that a warning has become: then what it gives is lost.
    ///
    /// # Safety
    /// It takes `first` and these arguments, and gives nothing that has to be dropped.
    #[inline]
    pub(super) unsafe fn enter(
        &self,
        py: Python<'_>,
        operator: *const c_void,
        arguments: &Laid,
        first: *mut c_void,
    ) -> PyResult<*mut c_void> {
        // SAFETY: passed on to the caller.
        let (told, register) = unsafe { self.entered(py, operator, arguments, first)? };
        told.map(|()| register)
    }

    /// Calls an operator. The result is an error that a warning has become, behind the operator, and a register.
    ///
    /// # Errors
    /// What the operator has thrown.
    ///
    /// # Safety
    /// It takes `first` and these arguments.
    unsafe fn entered(
        &self,
        py: Python<'_>,
        operator: *const c_void,
        arguments: &Laid,
        first: *mut c_void,
    ) -> PyResult<(PyResult<()>, *mut c_void)> {
        let mut handler = MaybeUninit::<WarningHandler>::uninit();
        let handler = handler.as_mut_ptr().cast::<c_void>();
        // SAFETY: a place that is large enough for a handler. It is told before it goes.
        unsafe { (self.hear_warnings)(handler) };
        // SAFETY: the caller's promise; nothing of Python's is touched while the GIL is released. It always is: autograd
        // has locks, and takes references to Python's objects while it holds them.
        let called = unsafe {
            let waiting = ffi::PyEval_SaveThread();
            let called = enter(operator, arguments, first);
            ffi::PyEval_RestoreThread(waiting);
            called
        };
        // What was warned of before an error is told before it.
        // SAFETY: the handler that was made above.
        let told = unsafe { self.guarded(py, self.tell_warnings, handler) };
        match called {
            // SAFETY: it was just caught.
            Err(exception) => Err(unsafe { self.error(py, exception.as_ptr()) }),
            Ok(register) => Ok((told.map(|_| ()), register)),
        }
    }

    /// Calls a function with one argument; what it returns in a register.
    ///
    /// # Safety
    /// It is a function of that type.
    unsafe fn guarded(
        &self,
        py: Python<'_>,
        function: *const c_void,
        argument: *mut c_void,
    ) -> PyResult<*mut c_void> {
        // SAFETY: the caller's promise; the exception was just caught.
        unsafe {
            enter(function, &Laid::default(), argument)
                .map_err(|exception| self.error(py, exception.as_ptr()))
        }
    }

    /// What PyTorch makes of an exception in Python.
    ///
    /// # Safety
    /// It was thrown, and has just been caught.
    #[cold]
    unsafe fn error(&self, py: Python<'_>, exception: *mut c_void) -> PyErr {
        let mut held: *mut c_void = ptr::null_mut();
        // SAFETY: each exception that was begun is ended; the reference to it is dropped before.
        unsafe {
            (self.begin_catch)(exception);
            (self.current_exception)(&mut held);
            let translated =
                enter(self.translate, &Laid::default(), ptr::from_mut(&mut held).cast());
            if let Err(another) = translated {
                (self.begin_catch)(another.as_ptr());
                (self.end_catch)();
            }
            (self.drop_exception)(&mut held);
            (self.end_catch)();
        }
        PyErr::take(py).unwrap_or_else(|| {
            PyRuntimeError::new_err("An operator of PyTorch's has thrown what is no exception.")
        })
    }
}
