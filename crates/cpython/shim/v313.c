/* CPython 3.13: layouts, tables, and the ways into and out of a frame. The Rust side doesn't know this
 * version yet; tests/cpython/test_shims.py compiles it against 3.13's headers. */
#define NEED_OPCODE_METADATA
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode_metadata.h>

#if PY_VERSION_HEX < 0x030D0000 || PY_VERSION_HEX >= 0x030E0000
#error "v313.c is for CPython 3.13"
#endif

typedef _PyInterpreterFrame Frame;

const stator_layout_t stator_layout = {
    .frame_function = offsetof(Frame, f_funcobj),
    .frame_globals = offsetof(Frame, f_globals),
    .frame_builtins = offsetof(Frame, f_builtins),
    .frame_locals = offsetof(Frame, f_locals),
    .frame_code = offsetof(Frame, f_executable),
    .frame_object = offsetof(Frame, frame_obj),
    .frame_previous = offsetof(Frame, previous),
    .frame_instr = offsetof(Frame, instr_ptr),
    .frame_stacktop = offsetof(Frame, stacktop),
    .frame_owner = offsetof(Frame, owner),
    .frame_localsplus = offsetof(Frame, localsplus),
    .code_consts = offsetof(PyCodeObject, co_consts),
    .code_names = offsetof(PyCodeObject, co_names),
    .code_exceptiontable = offsetof(PyCodeObject, co_exceptiontable),
    .code_flags = offsetof(PyCodeObject, co_flags),
    .code_stacksize = offsetof(PyCodeObject, co_stacksize),
    .code_firstlineno = offsetof(PyCodeObject, co_firstlineno),
    .code_nlocalsplus = offsetof(PyCodeObject, co_nlocalsplus),
    .code_nlocals = offsetof(PyCodeObject, co_nlocals),
    .code_nplaincellvars = -1, /* first free variable: nlocalsplus - nfreevars */
    .code_nfreevars = offsetof(PyCodeObject, co_nfreevars),
    .code_localsplusnames = offsetof(PyCodeObject, co_localsplusnames),
    .code_localspluskinds = offsetof(PyCodeObject, co_localspluskinds),
    .code_filename = offsetof(PyCodeObject, co_filename),
    .code_name = offsetof(PyCodeObject, co_name),
    .code_qualname = offsetof(PyCodeObject, co_qualname),
    .code_firsttraceable = offsetof(PyCodeObject, _co_firsttraceable),
    .code_units = offsetof(PyCodeObject, co_code_adaptive),
    .thread_interp = offsetof(PyThreadState, interp),
    .thread_recursion_remaining = offsetof(PyThreadState, py_recursion_remaining),
    .thread_cframe = -1, /* current_frame is in the thread state */
    .thread_tracefunc = offsetof(PyThreadState, c_tracefunc),
    .thread_curexc = offsetof(PyThreadState, current_exception),
    .thread_exc_info = offsetof(PyThreadState, exc_info),
    .cframe_size = 0,
    .cframe_use_tracing = -1,
    .cframe_current_frame = -1,
    .cframe_previous = -1,
    .function_closure = offsetof(PyFunctionObject, func_closure),
    .cell_ref = offsetof(PyCellObject, ob_ref),
};

_Static_assert(offsetof(Frame, f_executable) == 0, "frame: executable");
_Static_assert(offsetof(Frame, previous) == 8, "frame: previous");
_Static_assert(offsetof(Frame, frame_obj) == 48, "frame: frame object");
_Static_assert(offsetof(Frame, instr_ptr) == 56, "frame: instruction");
_Static_assert(offsetof(Frame, stacktop) == 64, "frame: stack top");
_Static_assert(offsetof(Frame, owner) == 70, "frame: owner");
_Static_assert(offsetof(Frame, localsplus) == 72, "frame: locals");

const uint8_t *const stator_deopt = _PyOpcode_Deopt;
const uint8_t *const stator_caches = _PyOpcode_Caches;

/* -- linking a frame ----------------------------------------------------------------------------- */

void stator_link(PyThreadState *thread, void *unused, Frame *frame) {
    (void)unused;
    frame->previous = thread->current_frame;
    thread->current_frame = frame;
}

void stator_unlink(PyThreadState *thread, void *unused) {
    (void)unused;
    thread->current_frame = thread->current_frame->previous;
}

/* -- ways out of a frame that has been unlinked ----------------------------------------------------- */

static PyObject *default_evaluator(PyThreadState *thread, Frame *frame, int throw) {
    /* under a hook every Python call takes C recursion, which 3.13 counts */
    thread->c_recursion_remaining += 2;
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throw);
    thread->c_recursion_remaining -= 2;
    return result;
}

/* Let CPython go on before the instruction at `next`. */
PyObject *stator_hand_over(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *next, int stacktop) {
    frame->instr_ptr = next;
    frame->stacktop = stacktop;
    return default_evaluator(thread, frame, 0);
}

/* Let CPython raise the exception that is set, in the instruction at `fault`. */
PyObject *stator_raise(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *fault, int stacktop) {
    frame->instr_ptr = fault + 1;
    frame->stacktop = stacktop;
    return default_evaluator(thread, frame, 1);
}

/* Clear a frame whose value has been popped; its caller gets the value. */
void stator_clear(PyThreadState *thread, Frame *frame) { _PyEval_FrameClearAndPop(thread, frame); }

/* -- the interpreter's hook, recursion, the eval breaker -------------------------------------------- */

_PyFrameEvalFunction stator_get_hook(PyInterpreterState *interp) {
    return _PyInterpreterState_GetEvalFrameFunc(interp);
}

void stator_set_hook(PyInterpreterState *interp, _PyFrameEvalFunction hook) {
    _PyInterpreterState_SetEvalFrameFunc(interp, hook != NULL ? hook : _PyEval_EvalFrameDefault);
}

int stator_enter_recursion(PyThreadState *thread) {
    return thread->py_recursion_remaining-- <= 0 && _Py_CheckRecursiveCall(thread, "");
}

const uintptr_t *stator_eval_breaker(PyThreadState *thread) { return &thread->eval_breaker; }

int stator_handle_pending(PyThreadState *thread) { return _Py_HandlePending(thread); }
