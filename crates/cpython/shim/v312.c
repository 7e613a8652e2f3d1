/* CPython 3.12: layouts, tables, and the pieces of the evaluation loop that headers keep inline. */
#define NEED_OPCODE_TABLES
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode.h>
#include <internal/pycore_runtime.h>

#if PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000
#error "v312.c is for CPython 3.12"
#endif

#define TRACED_EVENT what_event
#define IMPORT_FUNC imports.import_func
#include "until_v312.h"
#define SIGNAL_HANDLER(n) (PyObject *)_Py_atomic_load_relaxed(&_PyRuntime.signals.handlers[n].func)
#include "evaluator.h"
#include "since_v312.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_funcobj),
    .frame_code = offsetof(Frame, f_code),
    .frame_instr = offsetof(Frame, prev_instr),
    .thread_recursion_remaining = offsetof(PyThreadState, py_recursion_remaining),
    .thread_current = offsetof(PyThreadState, cframe),
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

/* Make `frame` the current one, as _PyEval_EvalFrameDefault does first of all. `cframe` lives on the
 * caller's C stack until stator_unlink. */
void stator_link(PyThreadState *thread, _PyCFrame *cframe, Frame *frame) {
    _PyCFrame *previous = thread->cframe;
    cframe->previous = previous;
    frame->previous = previous->current_frame;
    cframe->current_frame = frame;
    thread->cframe = cframe;
}

void stator_unlink(PyThreadState *thread, _PyCFrame *cframe) { thread->cframe = cframe->previous; }

/* -- leaving a frame: from this version on its evaluator clears and pops it ------------------------- */

/* Somebody holds the frame's object: what the frame holds moves into it. The frame is unlinked, so the thread's
 * current one is its caller. */
static void give_to_object(PyThreadState *thread, Frame *frame, PyFrameObject *object) {
    size_t size = (char *)&frame->localsplus[frame->stacktop] - (char *)frame;
    Frame *own = (Frame *)object->_f_frame_data;
    Py_INCREF(frame->f_code);
    memcpy(own, frame, size);
    own->owner = FRAME_OWNED_BY_FRAME_OBJECT;
    own->previous = NULL;
    object->f_frame = own;
    if (_PyFrame_IsIncomplete(own)) {
        own->prev_instr = _PyCode_CODE(own->f_code) + own->f_code->_co_firsttraceable;
    }
    PyObject *raised = PyErr_GetRaisedException();
    object->f_back = PyThreadState_GetFrame(thread);
    PyErr_SetRaisedException(raised);
    if (!PyObject_GC_IsTracked((PyObject *)object)) {
        PyObject_GC_Track(object);
    }
}

/* Releases what an unlinked frame holds, but for its code. */
static void clear_contents(PyThreadState *thread, Frame *frame) {
    PyFrameObject *object = frame->frame_obj;
    if (object != NULL) {
        frame->frame_obj = NULL;
        if (Py_REFCNT(object) > 1) {
            give_to_object(thread, frame, object);
            Py_DECREF(object);
            return;
        }
        Py_DECREF(object);
    }
    for (int i = 0; i < frame->stacktop; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
}

/* Gives the memory of the topmost frame back to the thread's stack of frames. */
static void pop_frame(PyThreadState *thread, Frame *frame) {
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = thread->datastack_chunk;
    if (base != &chunk->data[0]) {
        thread->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    thread->datastack_chunk = previous;
    thread->datastack_top = &previous->data[previous->top];
    thread->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
}

/* Frees what an unlinked frame owns: it has returned, or raised. */
void stator_clear(PyThreadState *thread, Frame *frame) {
    thread->c_recursion_remaining--;
    if (frame->owner == FRAME_OWNED_BY_GENERATOR) {
        PyGenObject *gen = _PyFrame_GetGenerator(frame);
        gen->gi_frame_state = FRAME_CLEARED;
        thread->exc_info = gen->gi_exc_state.previous_item;
        gen->gi_exc_state.previous_item = NULL;
        clear_contents(thread, frame);
        frame->previous = NULL;
    }
    else {
        clear_contents(thread, frame);
        Py_DECREF(frame->f_code);
        pop_frame(thread, frame);
    }
    thread->c_recursion_remaining++;
}

/* Marks a generator as suspended that its unlinked frame yields from. */
void stator_suspend(PyThreadState *thread, Frame *frame, int arg) {
    (void)arg;
    PyGenObject *gen = _PyFrame_GetGenerator(frame);
    gen->gi_frame_state = FRAME_SUSPENDED;
    thread->exc_info = gen->gi_exc_state.previous_item;
    gen->gi_exc_state.previous_item = NULL;
    frame->previous = NULL;
}

/* -- the eval breaker ------------------------------------------------------------------------------ */

static void compute_breaker(PyInterpreterState *interp) {
    struct _ceval_state *ceval = &interp->ceval;
    struct _ceval_runtime_state *runtime = &_PyRuntime.ceval;
    int is_main = _Py_ThreadCanHandleSignals(interp);
    _Py_atomic_store_relaxed(
        &ceval->eval_breaker,
        _Py_atomic_load_relaxed(&ceval->gil_drop_request) |
            (_Py_atomic_load_relaxed(&runtime->signals_pending) && is_main) |
            _Py_atomic_load_relaxed(&ceval->pending.calls_to_do) |
            (_Py_atomic_load_relaxed(&runtime->pending_mainthread.calls_to_do) && is_main) |
            ceval->pending.async_exc | _Py_atomic_load_relaxed(&ceval->gc_scheduled));
}

/* A collection that is due, but hasn't begun: CPython would run it even if collection was turned off since. Behind it,
 * whatever is allocated first asks for it again. */
void stator_put_off_collection(PyThreadState *thread) {
    _Py_atomic_store_relaxed(&thread->interp->ceval.gc_scheduled, 0);
}

/* Signals, pending calls, a collection, a request for the GIL, an asynchronous exception: in this order. */
int stator_handle_pending(PyThreadState *thread) {
    struct _ceval_state *ceval = &thread->interp->ceval;
    struct _ceval_runtime_state *runtime = &_PyRuntime.ceval;
    if (_Py_atomic_load_relaxed(&runtime->signals_pending) ||
        _Py_atomic_load_relaxed(&runtime->pending_mainthread.calls_to_do) ||
        _Py_atomic_load_relaxed(&ceval->pending.calls_to_do)) {
        if (Py_MakePendingCalls() != 0) {
            return -1;
        }
    }
    if (_Py_atomic_load_relaxed(&ceval->gc_scheduled)) {
        /* It runs the collection that is due; signals that have come meanwhile as well. */
        int result = PyErr_CheckSignals();
        compute_breaker(thread->interp);
        if (result != 0) {
            return -1;
        }
    }
    if (_Py_atomic_load_relaxed(&ceval->gil_drop_request)) {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    if (thread->async_exc != NULL) {
        PyObject *exc = thread->async_exc;
        thread->async_exc = NULL;
        ceval->pending.async_exc = 0;
        compute_breaker(thread->interp);
        PyErr_SetNone(exc);
        Py_DECREF(exc);
        return -1;
    }
    return 0;
}

/* What says, in 15 bytes, which events somebody wants to be told of: a trace function, sys.monitoring. */
const uint8_t *stator_monitors(PyInterpreterState *interp) { return interp->monitors.tools; }

_Static_assert(sizeof(((PyInterpreterState *)0)->monitors.tools) == 15, "monitors");

/* Whether a tool asked for events of this code, be they wanted of all code or not. */
int stator_has_local_events(PyObject *code) {
    const _PyCoMonitoringData *data = ((PyCodeObject *)code)->_co_monitoring;
    if (data == NULL) {
        return 0;
    }
    uint8_t tools = 0;
    for (size_t event = 0; event < sizeof(data->local_monitors.tools); event++) {
        tools |= data->local_monitors.tools[event];
    }
    return tools != 0;
}

/* Which grows whenever somebody wants other events than before. */
uint64_t stator_monitoring_version(PyInterpreterState *interp) { return interp->monitoring_version; }

/* -- generators ------------------------------------------------------------------------------------ */

/* Whether a coroutine is suspended in an await of its own. */
int stator_is_awaiting(PyObject *coroutine) {
    PyGenObject *gen = (PyGenObject *)coroutine;
    if (gen->gi_frame_state >= FRAME_CLEARED || gen->gi_frame_state == FRAME_CREATED) {
        return 0;
    }
    _Py_CODEUNIT next = ((Frame *)gen->gi_iframe)->prev_instr[1];
    int is_resume = next.op.code == RESUME || next.op.code == INSTRUMENTED_RESUME;
    return is_resume && next.op.arg >= 2;
}

/* -- exceptions ------------------------------------------------------------------------------------ */

PyObject *stator_take_exception(void) { return PyErr_GetRaisedException(); }

/* Raise an instance again with its own traceback and nothing added; steals `value`. */
void stator_restore_exception(PyObject *value) { PyErr_SetRaisedException(value); }
