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

#include "since_v312.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_funcobj),
    .frame_code = offsetof(Frame, f_executable),
    .frame_instr = offsetof(Frame, instr_ptr),
    .thread_recursion_remaining = offsetof(PyThreadState, py_recursion_remaining),
    .thread_cframe = -1, /* current_frame is in the thread state */
    .thread_curexc = offsetof(PyThreadState, current_exception),
    .cframe_size = 0,
    .cframe_use_tracing = -1,
    .cframe_current_frame = -1,
    .cframe_previous = -1,
};

_Static_assert(offsetof(Frame, f_executable) == 0, "frame: executable");
_Static_assert(offsetof(Frame, previous) == 8, "frame: previous");
_Static_assert(offsetof(Frame, frame_obj) == 48, "frame: frame object");
_Static_assert(offsetof(Frame, instr_ptr) == 56, "frame: instruction");
_Static_assert(offsetof(Frame, stacktop) == 64, "frame: stack top");
_Static_assert(offsetof(Frame, owner) == 70, "frame: owner");
_Static_assert(offsetof(Frame, localsplus) == 72, "frame: locals");

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

/* Let CPython go on before the instruction at `next`. */
PyObject *stator_hand_over(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *next, int stacktop) {
    frame->instr_ptr = next;
    frame->stacktop = stacktop;
    return stator_default(thread, frame, 0);
}

/* Let CPython raise the exception that is set, in the instruction at `fault`. */
PyObject *stator_raise(PyThreadState *thread, Frame *frame, _Py_CODEUNIT *fault, int stacktop) {
    frame->instr_ptr = fault + 1;
    frame->stacktop = stacktop;
    return stator_default(thread, frame, 1);
}

/* Clear a frame whose value has been popped; its caller gets the value. */
void stator_clear(PyThreadState *thread, Frame *frame) { _PyEval_FrameClearAndPop(thread, frame); }

/* -- the eval breaker ------------------------------------------------------------------------------ */

const uintptr_t *stator_eval_breaker(PyThreadState *thread) { return &thread->eval_breaker; }

int stator_handle_pending(PyThreadState *thread) { return _Py_HandlePending(thread); }
