//! Declarations of the shim's functions and of exported CPython functions that PyO3 doesn't declare.
//!
//! Contracts are CPython's own: `PyObject *` results are new references unless said otherwise,
//! `NULL` and `-1` mean that an exception is set, and the GIL is held.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use pyo3::ffi::{Py_ssize_t, PyObject, PyThreadState, PyTypeObject};

use crate::frame::layout::InterpreterFrame;
use crate::layout::Layout;
use crate::thread::layout::CFrame;

/// PEP 523's evaluation function.
pub type EvalFrame =
    unsafe extern "C" fn(*mut PyThreadState, *mut InterpreterFrame, c_int) -> *mut PyObject;

/// `PyDict_WatchCallback`: the event, the dictionary, the key and the new value.
#[cfg(Py_3_12)]
pub type DictWatcher =
    unsafe extern "C" fn(c_int, *mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

/// An opaque `PyInterpreterState`.
pub type Interpreter = pyo3::ffi::PyInterpreterState;

// The shim (shim/stator.h and the version's file).
unsafe extern "C" {
    pub static stator_layout: Layout;
    pub static stator_deopt: *const u8;
    pub static stator_caches: *const u8;

    pub fn stator_link(
        thread: *mut PyThreadState,
        cframe: *mut CFrame,
        frame: *mut InterpreterFrame,
    );
    pub fn stator_unlink(thread: *mut PyThreadState, cframe: *mut CFrame);
    pub fn stator_get_hook(interp: *mut Interpreter) -> Option<EvalFrame>;
    pub fn stator_set_hook(interp: *mut Interpreter, hook: Option<EvalFrame>);
    pub fn stator_enter_recursion(thread: *mut PyThreadState) -> c_int;
    pub fn stator_eval_breaker(thread: *mut PyThreadState) -> *const c_void;
    pub fn stator_handle_pending(thread: *mut PyThreadState) -> c_int;
    #[cfg(all(Py_3_12, not(Py_3_13)))]
    pub fn stator_put_off_collection(thread: *mut PyThreadState);
    pub fn stator_defer_signals() -> c_ulong;
    pub fn stator_do_signals_wait(main_thread: c_ulong) -> c_int;
    pub fn stator_is_timer_running() -> c_int;
    pub fn stator_signals_pending() -> *const c_int;
    pub fn stator_has_async_exc(thread: *mut PyThreadState) -> c_int;
    pub fn stator_allow_signals(thread: *mut PyThreadState, main_thread: c_ulong);
    pub fn stator_default(
        thread: *mut PyThreadState,
        frame: *mut InterpreterFrame,
        throw: c_int,
    ) -> *mut PyObject;
    pub fn stator_clear(thread: *mut PyThreadState, frame: *mut InterpreterFrame);
    pub fn stator_suspend(thread: *mut PyThreadState, frame: *mut InterpreterFrame, arg: c_int);
    #[cfg(Py_3_12)]
    pub fn stator_monitors(interp: *mut Interpreter) -> *const u8;
    #[cfg(Py_3_12)]
    pub fn stator_has_local_events(code: *mut PyObject) -> c_int;
    #[cfg(Py_3_12)]
    pub fn stator_monitoring_version(interp: *mut Interpreter) -> u64;
    pub fn stator_own_frame(generator: *mut PyObject) -> *mut InterpreterFrame;
    pub fn stator_is_awaiting(coroutine: *mut PyObject) -> c_int;
    /// Null for what isn't a generator, or doesn't stand still.
    pub fn stator_generator_frame(
        generator: *mut PyObject,
        started: *mut c_int,
    ) -> *mut InterpreterFrame;
    pub fn stator_generator_restore(
        generator: *mut PyObject,
        unit: c_int,
        started: c_int,
        slots: *mut *mut PyObject,
        count: c_int,
    ) -> c_int;
    pub fn stator_generator_has_ended(generator: *mut PyObject) -> c_int;
    pub fn stator_generator_swap(one: *mut PyObject, other: *mut PyObject) -> c_int;
    pub fn stator_generator_empty(
        generator: *mut PyObject,
        slots: *mut *mut PyObject,
        room: c_int,
    ) -> c_int;
    pub fn stator_set_function_parts(
        function: *mut PyObject,
        closure: *mut PyObject,
        annotations: *mut PyObject,
        kwdefaults: *mut PyObject,
        defaults: *mut PyObject,
    );
    pub fn stator_take_exception() -> *mut PyObject;
    pub fn stator_restore_exception(value: *mut PyObject);
    /// Borrowed, or `NULL` without an exception.
    pub fn stator_topmost_exception(thread: *mut PyThreadState) -> *mut PyObject;
    pub fn stator_trace_exception(thread: *mut PyThreadState);
    pub fn stator_trace_unwind(thread: *mut PyThreadState);
    pub fn stator_next_weakref(
        reference: *mut PyObject,
        callback: *mut *mut PyObject,
    ) -> *mut PyObject;
    pub fn stator_token_fits(token: *mut PyObject, variable: *mut PyObject) -> c_int;
    pub fn stator_is_original_import(function: *mut PyObject) -> c_int;
}

// The shim (shim/semantics.c).
unsafe extern "C" {
    pub fn stator_own_int(value: i64) -> *mut PyObject;
    pub fn stator_own_text(text: *mut PyObject) -> *mut PyObject;
    pub fn stator_raise_name_error(exc: *mut PyObject, format: *const c_char, name: *mut PyObject);
    pub fn stator_raise_type_name(
        exc: *mut PyObject,
        format: *const c_char,
        class: *mut PyTypeObject,
    );
    pub fn stator_check_args_iterable(function: *mut PyObject, args: *mut PyObject) -> c_int;
    pub fn stator_format_kwargs_error(function: *mut PyObject, kwargs: *mut PyObject);
    pub fn stator_unpack(
        iterable: *mut PyObject,
        before: c_int,
        after: c_int,
        top: *mut *mut PyObject,
    ) -> c_int;
    pub fn stator_match_group(
        exception: *mut PyObject,
        classes: *mut PyObject,
        matched: *mut *mut PyObject,
        rest: *mut *mut PyObject,
    ) -> c_int;
    pub fn stator_prepare_reraise_star(
        original: *mut PyObject,
        raised: *mut PyObject,
    ) -> *mut PyObject;
    pub fn stator_import_from(module: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    pub fn stator_import_star(locals: *mut PyObject, module: *mut PyObject) -> c_int;
}

// The shim (shim/c_stack.c, shim/clock.c).
unsafe extern "C" {
    pub fn stator_stack_bounds(lowest: *mut usize, size: *mut usize);
    pub fn stator_thread_nanos() -> u64;
    pub fn _PyObject_MakeTpCall(
        thread: *mut PyThreadState,
        callable: *mut PyObject,
        args: *const *mut PyObject,
        count: isize,
        keywords: *mut PyObject,
    ) -> *mut PyObject;
}

// Exported by CPython, with internal names.
unsafe extern "C" {
    pub fn PyThreadState_GetFrame(thread: *mut PyThreadState) -> *mut PyObject;
    pub fn PyThreadState_EnterTracing(thread: *mut PyThreadState);
    pub fn PyThreadState_LeaveTracing(thread: *mut PyThreadState);
    pub fn PyCode_Addr2Line(code: *mut PyObject, offset: c_int) -> c_int;
    pub fn stator_stand_in(
        thread: *mut PyThreadState,
        code: *mut PyObject,
        globals: *mut PyObject,
        unit: c_int,
    ) -> *mut PyObject;
    pub fn stator_set_stand_in(frame: *mut PyObject, unit: c_int, caller: *mut PyObject);
    pub fn stator_step_onto(
        thread: *mut PyThreadState,
        frame: *mut PyObject,
        outermost: *mut PyObject,
    ) -> *mut c_void;
    pub fn stator_step_back(
        thread: *mut PyThreadState,
        before: *mut c_void,
        outermost: *mut PyObject,
    );
    pub fn stator_retire_stand_in(frame: *mut PyObject, caller: *mut PyObject);
    pub fn PyTraceBack_Here(frame: *mut PyObject) -> c_int;
    pub fn PyFrame_FastToLocalsWithError(frame: *mut PyObject) -> c_int;
    pub fn PyFrame_LocalsToFast(frame: *mut PyObject, clear: c_int);
    /// 1: unbound function to be called with the object first; 0: bound or other attribute.
    pub fn _PyObject_GetMethod(
        object: *mut PyObject,
        name: *mut PyObject,
        method: *mut *mut PyObject,
    ) -> c_int;
    /// `NULL` without an exception if the type lacks the attribute.
    pub fn _PyObject_LookupSpecial(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    pub fn _PyDict_MergeEx(into: *mut PyObject, from: *mut PyObject, replace: c_int) -> c_int;
    pub fn _PyDict_NewPresized(size: Py_ssize_t) -> *mut PyObject;
    pub fn _PyDict_GetItem_KnownHash(
        dict: *mut PyObject,
        key: *mut PyObject,
        hash: Py_ssize_t,
    ) -> *mut PyObject;
    pub fn _PyList_Extend(list: *mut PyObject, iterable: *mut PyObject) -> *mut PyObject;
    pub fn _PySet_Update(set: *mut PyObject, iterable: *mut PyObject) -> c_int;
    pub fn _PyUnicode_JoinArray(
        separator: *mut PyObject,
        items: *const *mut PyObject,
        count: Py_ssize_t,
    ) -> *mut PyObject;
    pub fn _PyErr_FormatFromCause(exc: *mut PyObject, format: *const c_char, ...) -> *mut PyObject;
    #[cfg(Py_3_12)]
    pub fn PyCode_GetCode(code: *mut PyObject) -> *mut PyObject;
    /// Negative with an exception set if there is no identifier left.
    #[cfg(Py_3_12)]
    pub fn PyDict_AddWatcher(callback: Option<DictWatcher>) -> c_int;
    #[cfg(Py_3_12)]
    pub fn PyDict_ClearWatcher(watcher: c_int) -> c_int;
    #[cfg(Py_3_12)]
    pub fn PyDict_Watch(watcher: c_int, dict: *mut PyObject) -> c_int;
    #[cfg(Py_3_12)]
    pub fn PyDict_Unwatch(watcher: c_int, dict: *mut PyObject) -> c_int;
    pub static PyExc_BaseExceptionGroup: *mut PyObject;
    pub static mut PyMethod_Type: PyTypeObject;
    /// Borrowed.
    pub fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
    /// Borrowed.
    pub fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
}
