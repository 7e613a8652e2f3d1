/* CPython 3.12: layouts, tables, and the ways into and out of a frame. The Rust side doesn't know this
 * version yet; tests/cpython/test_shims.py compiles it against 3.12's headers. */
#define NEED_OPCODE_TABLES
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode.h>

#if PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000
#error "v312.c is for CPython 3.12"
#endif

#include "since_v312.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_funcobj),
    .frame_code = offsetof(Frame, f_code),
    .frame_instr = offsetof(Frame, prev_instr),
    .code_nplaincellvars = -1, /* first free variable: nlocalsplus - nfreevars */
    .thread_recursion_remaining = offsetof(PyThreadState, py_recursion_remaining),
    .thread_cframe = offsetof(PyThreadState, cframe),
    .thread_curexc = offsetof(PyThreadState, current_exception),
    .cframe_size = sizeof(_PyCFrame),
    .cframe_use_tracing = -1, /* tracing is instrumentation of the code */
    .cframe_current_frame = offsetof(_PyCFrame, current_frame),
    .cframe_previous = offsetof(_PyCFrame, previous),
};

_Static_assert(offsetof(Frame, f_code) == 0, "frame: code");
_Static_assert(offsetof(Frame, previous) == 8, "frame: previous");
_Static_assert(offsetof(Frame, frame_obj) == 48, "frame: frame object");
_Static_assert(offsetof(Frame, prev_instr) == 56, "frame: previous instruction");
_Static_assert(offsetof(Frame, stacktop) == 64, "frame: stack top");
_Static_assert(offsetof(Frame, owner) == 70, "frame: owner");
_Static_assert(offsetof(Frame, localsplus) == 72, "frame: locals");

/* -- linking a frame ----------------------------------------------------------------------------- */

void stator_link(PyThreadState *thread, _PyCFrame *cframe, Frame *frame) {
    _PyCFrame *previous = thread->cframe;
    cframe->previous = previous;
    frame->previous = previous->current_frame;
    cframe->current_frame = frame;
    thread->cframe = cframe;
}

void stator_unlink(PyThreadState *thread, _PyCFrame *cframe) { thread->cframe = cframe->previous; }

/* -- ways out of a frame that has been unlinked ----------------------------------------------------- */

/* Let CPython go on before the instruction at `next`. */
PyObject *stator_hand_over(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *next, int stacktop) {
    frame->prev_instr = next - 1;
    frame->stacktop = stacktop;
    return default_evaluator(thread, frame, 0);
}

/* Let CPython raise the exception that is set, in the instruction at `fault`. */
PyObject *stator_raise(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *fault, int stacktop) {
    frame->prev_instr = fault;
    frame->stacktop = stacktop;
    return default_evaluator(thread, frame, 1);
}

/* Return `value` (stolen) by the RETURN_VALUE at `instr`: the function that clears the frame isn't
 * exported, so CPython runs the instruction. */
PyObject *stator_return(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *instr, int stacktop,
                        PyObject *value) {
    frame->localsplus[stacktop] = value;
    return stator_hand_over(thread, frame, instr, stacktop + 1);
}

/* -- the eval breaker ------------------------------------------------------------------------------ */

const int *stator_eval_breaker(PyInterpreterState *interp) {
    return (const int *)&interp->ceval.eval_breaker._value;
}

int stator_handle_pending(PyThreadState *thread) {
    if (Py_MakePendingCalls() != 0) {
        return -1;
    }
    if (_Py_atomic_load_relaxed(&thread->interp->ceval.gil_drop_request)) {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    if (thread->async_exc != NULL) {
        PyObject *exc = thread->async_exc;
        thread->async_exc = NULL;
        PyErr_SetNone(exc);
        Py_DECREF(exc);
        return -1;
    }
    return 0;
}
