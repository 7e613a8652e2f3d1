/* CPython 3.11: layouts, tables, and the pieces of the evaluation loop that headers keep inline. */
#define NEED_OPCODE_TABLES
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode.h>
#include <internal/pycore_runtime.h>
#include <signal.h>
#include <sys/time.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "v311.c is for CPython 3.11"
#endif

#include "layout.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_func),
    .frame_code = offsetof(Frame, f_code),
    .frame_instr = offsetof(Frame, prev_instr),
    .code_nplaincellvars = offsetof(PyCodeObject, co_nplaincellvars),
    .thread_recursion_remaining = offsetof(PyThreadState, recursion_remaining),
    .thread_cframe = offsetof(PyThreadState, cframe),
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

/* -- the interpreter's hook ------------------------------------------------------------------------ */

_PyFrameEvalFunction stator_get_hook(PyInterpreterState *interp) { return interp->eval_frame; }

void stator_set_hook(PyInterpreterState *interp, _PyFrameEvalFunction hook) {
    interp->eval_frame = hook == _PyEval_EvalFrameDefault ? NULL : hook;
}

/* -- frame objects that stand for calls ------------------------------------------------------------- */

/* A frame object of a call that isn't made, as if it stood at a unit of the code: a reader of its variables takes
 * them for unbound. (Where a frame hasn't begun, readers look into the function's closure, which there is none of.) */
PyObject *stator_stand_in(PyThreadState *thread, PyObject *code, PyObject *globals, int unit) {
    PyFrameObject *frame = PyFrame_New(thread, (PyCodeObject *)code, globals, NULL);
    if (frame != NULL) {
        frame->f_frame->prev_instr = _PyCode_CODE((PyCodeObject *)code) + unit;
    }
    return (PyObject *)frame;
}

/* -- recursion and the eval breaker ----------------------------------------------------------------- */

int stator_enter_recursion(PyThreadState *thread) { return _Py_EnterRecursiveCallTstate(thread, ""); }

const int *stator_eval_breaker(PyInterpreterState *interp) {
    return (const int *)&interp->ceval.eval_breaker._value;
}

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

/* Signals wait while no thread is the main one: CPython runs their handlers in that one alone. Gives what
 * stator_allow_signals is to be given; 0 if this isn't the main thread, or they wait already. */
unsigned long stator_defer_signals(void) {
    unsigned long main_thread = _PyRuntime.main_thread;
    if (PyThread_get_thread_ident() != main_thread) {
        return 0;
    }
    _PyRuntime.main_thread = 0;
    return main_thread;
}

/* What came meanwhile is handled where the evaluation loop asks next. */
void stator_allow_signals(PyThreadState *thread, unsigned long main_thread) {
    struct _ceval_state *ceval = &thread->interp->ceval;
    _PyRuntime.main_thread = main_thread;
    if (_Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending) ||
        _Py_atomic_load_relaxed(&ceval->pending.calls_to_do)) {
        _Py_atomic_store_relaxed(&ceval->eval_breaker, 1);
    }
}

/* What says that a signal came which no handler has run for. While signals wait, CPython doesn't set the
 * breaker for them. */
const int *stator_signals_pending(void) {
    return (const int *)&_PyRuntime.ceval.signals_pending._value;
}

/* Whether another thread has sent this one an exception. */
int stator_has_async_exc(PyThreadState *thread) { return thread->async_exc != NULL; }

/* Whether a timer of the process's is running that ends with a signal which has a handler. */
int stator_is_timer_running(void) {
    static const struct {
        int timer, signal;
    } timers[] = {{ITIMER_REAL, SIGALRM}, {ITIMER_VIRTUAL, SIGVTALRM}, {ITIMER_PROF, SIGPROF}};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        struct itimerval left;
        if (getitimer(timers[i].timer, &left) == 0 &&
            (left.it_value.tv_sec != 0 || left.it_value.tv_usec != 0)) {
            PyOS_sighandler_t handler = PyOS_getsig(timers[i].signal);
            if (handler != SIG_DFL && handler != SIG_IGN) {
                return 1;
            }
        }
    }
    return 0;
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

void stator_mark_suspended(Frame *frame) {
    _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
}

/* Whether a coroutine is suspended in an await of its own. */
int stator_is_awaiting(PyObject *coroutine) {
    PyGenObject *gen = (PyGenObject *)coroutine;
    if (gen->gi_frame_state >= FRAME_CLEARED || gen->gi_frame_state == FRAME_CREATED) {
        return 0;
    }
    _Py_CODEUNIT next = ((Frame *)gen->gi_iframe)->prev_instr[1];
    return _PyOpcode_Deopt[_Py_OPCODE(next)] == RESUME && _Py_OPARG(next) >= 2;
}

/* The frame of a generator that stands still and handles no exception; else NULL. */
Frame *stator_generator_frame(PyObject *generator, int *started) {
    if (!PyGen_CheckExact(generator)) {
        return NULL;
    }
    PyGenObject *gen = (PyGenObject *)generator;
    PyObject *handled = gen->gi_exc_state.exc_value;
    int state = gen->gi_frame_state;
    if ((handled != NULL && handled != Py_None) ||
        (state != FRAME_CREATED && state != FRAME_SUSPENDED)) {
        return NULL;
    }
    *started = state == FRAME_SUSPENDED;
    return (Frame *)gen->gi_iframe;
}

/* Moves a generator that hasn't begun. `slots` are its fast locals, then its stack: each is stolen, or
 * NULL; the old locals take the place of the new ones. 0: there is no room for them. */
int stator_generator_restore(PyObject *generator, int unit, int started, PyObject **slots, int count) {
    PyGenObject *gen = (PyGenObject *)generator;
    Frame *frame = (Frame *)gen->gi_iframe;
    PyCodeObject *code = frame->f_code;
    int locals = code->co_nlocalsplus;
    if (gen->gi_frame_state != FRAME_CREATED || count < locals ||
        count >= locals + code->co_stacksize || unit < 0 || unit >= Py_SIZE(code)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        PyObject *old = i < locals ? frame->localsplus[i] : NULL;
        frame->localsplus[i] = slots[i];
        slots[i] = old;
    }
    frame->stacktop = count;
    frame->prev_instr = _PyCode_CODE(code) + unit;
    if (started) {
        gen->gi_frame_state = FRAME_SUSPENDED;
    }
    return 1;
}

/* -- functions ------------------------------------------------------------------------------------- */

/* The parts of a new function that MAKE_FUNCTION takes from the stack; each is stolen, or NULL. */
void stator_set_function_parts(PyObject *function, PyObject *closure, PyObject *annotations,
                               PyObject *kwdefaults, PyObject *defaults) {
    PyFunctionObject *func = (PyFunctionObject *)function;
    if (closure != NULL) {
        func->func_closure = closure;
    }
    if (annotations != NULL) {
        func->func_annotations = annotations;
    }
    if (kwdefaults != NULL) {
        func->func_kwdefaults = kwdefaults;
    }
    if (defaults != NULL) {
        func->func_defaults = defaults;
    }
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

PyObject *stator_topmost_exception(PyThreadState *thread) {
    return _PyErr_GetTopmostException(thread)->exc_value;
}

/* -- trace functions that were set while an instruction ran ------------------------------------------ */

static int call_trace(PyThreadState *thread, Py_tracefunc function, PyObject *object,
                      PyFrameObject *frame, int what, PyObject *arg) {
    if (thread->tracing) {
        return 0;
    }
    int old_what = thread->tracing_what;
    thread->tracing_what = what;
    PyThreadState_EnterTracing(thread);
    frame->f_lineno = PyCode_Addr2Line(frame->f_frame->f_code,
                                       _PyInterpreterFrame_LASTI(frame->f_frame) * 2);
    int result = function(object, frame, what, arg);
    frame->f_lineno = 0;
    PyThreadState_LeaveTracing(thread);
    thread->tracing_what = old_what;
    return result;
}

/* The "exception" event of the current frame. */
void stator_trace_exception(PyThreadState *thread) {
    if (thread->c_tracefunc == NULL || thread->tracing) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (value == NULL) {
        value = Py_NewRef(Py_None);
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    PyObject *arg = PyTuple_Pack(3, type, value, traceback != NULL ? traceback : Py_None);
    int err = 0;
    if (arg != NULL && frame != NULL) {
        err = call_trace(thread, thread->c_tracefunc, thread->c_traceobj, frame,
                         PyTrace_EXCEPTION, arg);
    }
    Py_XDECREF(arg);
    Py_XDECREF(frame);
    if (err == 0) {
        PyErr_Restore(type, value, traceback);
    }
    else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
}

/* The "return" event of the current frame, which leaves by an exception. */
void stator_trace_unwind(PyThreadState *thread) {
    PyFrameObject *frame = PyThreadState_GetFrame(thread);
    if (frame == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int err = 0;
    if (thread->c_tracefunc != NULL) {
        err = call_trace(thread, thread->c_tracefunc, thread->c_traceobj, frame, PyTrace_RETURN,
                         NULL);
    }
    if (err == 0 && thread->c_profilefunc != NULL) {
        err = call_trace(thread, thread->c_profilefunc, thread->c_profileobj, frame,
                         PyTrace_RETURN, NULL);
    }
    Py_DECREF(frame);
    if (err == 0) {
        PyErr_Restore(type, value, traceback);
    }
    else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
}

/* -- imports ---------------------------------------------------------------------------------------- */

/* Whether `function` is the import function this interpreter started with. */
int stator_is_original_import(PyObject *function) {
    return function == _PyInterpreterState_GET()->import_func;
}
