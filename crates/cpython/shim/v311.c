/* CPython 3.11: layouts, tables, and the pieces of the evaluation loop that headers keep inline. */
#define NEED_OPCODE_TABLES
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode.h>
#include <internal/pycore_runtime.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "v311.c is for CPython 3.11"
#endif

#define TRACED_EVENT tracing_what
#define IMPORT_FUNC import_func
#include "until_v312.h"
#include "evaluator.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_func),
    .frame_code = offsetof(Frame, f_code),
    .frame_instr = offsetof(Frame, prev_instr),
    .thread_recursion_remaining = offsetof(PyThreadState, recursion_remaining),
    .thread_current = offsetof(PyThreadState, cframe),
    .thread_curexc = offsetof(PyThreadState, curexc_type),
    .cframe_size = sizeof(_PyCFrame),
    .cframe_use_tracing = offsetof(_PyCFrame, use_tracing),
    .cframe_current_frame = offsetof(_PyCFrame, current_frame),
    .cframe_previous = offsetof(_PyCFrame, previous),
};

_Static_assert(offsetof(Frame, f_func) == 0, "frame: function");
_Static_assert(offsetof(Frame, frame_obj) == 40, "frame: frame object");
_Static_assert(offsetof(Frame, previous) == 48, "frame: previous");
_Static_assert(offsetof(Frame, prev_instr) == 56, "frame: previous instruction");
_Static_assert(offsetof(Frame, stacktop) == 64, "frame: stack top");
_Static_assert(offsetof(Frame, owner) == 69, "frame: owner");
_Static_assert(offsetof(Frame, localsplus) == 72, "frame: locals");

/* -- linking a frame ----------------------------------------------------------------------------- */

/* Make `frame` the current one, as _PyEval_EvalFrameDefault does first of all. `cframe` lives on the
 * caller's C stack until stator_unlink. */
void stator_link(PyThreadState *thread, _PyCFrame *cframe, Frame *frame) {
    _PyCFrame *previous = thread->cframe;
    cframe->use_tracing = previous->use_tracing;
    cframe->previous = previous;
    frame->is_entry = true;
    frame->previous = previous->current_frame;
    cframe->current_frame = frame;
    thread->cframe = cframe;
}

void stator_unlink(PyThreadState *thread, _PyCFrame *cframe) {
    thread->cframe = cframe->previous;
    thread->cframe->use_tracing = cframe->use_tracing;
}

/* Frees what a frame owns that was left. On this version the caller does. */
void stator_clear(PyThreadState *thread, Frame *frame) {
    (void)thread;
    (void)frame;
}

/* Marks a generator as suspended that its unlinked frame yields from. */
void stator_suspend(PyThreadState *thread, Frame *frame, int arg) {
    (void)thread;
    (void)arg;
    _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
}

PyObject *stator_default(PyThreadState *thread, Frame *frame, int throw) {
    return _PyEval_EvalFrameDefault(thread, frame, throw);
}

/* -- recursion and the eval breaker ----------------------------------------------------------------- */

int stator_enter_recursion(PyThreadState *thread) { return _Py_EnterRecursiveCallTstate(thread, ""); }

static void clear_async_exc(PyInterpreterState *interp) {
    struct _ceval_state *ceval = &interp->ceval;
    ceval->pending.async_exc = 0;
    _Py_atomic_store_relaxed(
        &ceval->eval_breaker,
        _Py_atomic_load_relaxed(&ceval->gil_drop_request) |
            (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) &&
             _Py_ThreadCanHandleSignals(interp)) |
            (_Py_atomic_load_relaxed(&ceval->pending.calls_to_do) &&
             _Py_ThreadCanHandlePendingCalls()));
}

/* Signals, pending calls, a request for the GIL, an asynchronous exception: in this order. */
int stator_handle_pending(PyThreadState *thread) {
    struct _ceval_state *ceval = &thread->interp->ceval;
    if (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) ||
        _Py_atomic_load_relaxed(&ceval->pending.calls_to_do)) {
        if (Py_MakePendingCalls() != 0) {
            return -1;
        }
    }
    if (_Py_atomic_load_relaxed(&ceval->gil_drop_request)) {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    if (thread->async_exc != NULL) {
        PyObject *exc = thread->async_exc;
        thread->async_exc = NULL;
        clear_async_exc(thread->interp);
        PyErr_SetNone(exc);
        Py_DECREF(exc);
        return -1;
    }
    return 0;
}

/* -- generators ------------------------------------------------------------------------------------ */

/* Whether a coroutine is suspended in an await of its own. */
int stator_is_awaiting(PyObject *coroutine) {
    PyGenObject *gen = (PyGenObject *)coroutine;
    if (gen->gi_frame_state >= FRAME_CLEARED || gen->gi_frame_state == FRAME_CREATED) {
        return 0;
    }
    _Py_CODEUNIT next = ((Frame *)gen->gi_iframe)->prev_instr[1];
    return _PyOpcode_Deopt[_Py_OPCODE(next)] == RESUME && _Py_OPARG(next) >= 2;
}

/* -- exceptions ------------------------------------------------------------------------------------ */

/* The raised exception, normalised, with its traceback attached; the thread state is cleared. */
PyObject *stator_take_exception(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyException_SetTraceback(value, traceback != NULL ? traceback : Py_None);
    Py_XDECREF(traceback);
    Py_XDECREF(type);
    return value;
}

/* Raise an instance again with its own traceback and nothing added; steals `value`. */
void stator_restore_exception(PyObject *value) {
    PyObject *type = Py_NewRef((PyObject *)Py_TYPE(value));
    PyErr_Restore(type, value, PyException_GetTraceback(value));
}
