/* What the evaluator asks of CPython 3.11 and 3.12 alike, of structs whose fields have the same names in both.
 * Included behind layout.h by the file of the version. It defines where the event stands that a
 * thread's trace function is told of (TRACED_EVENT), and where the import function (IMPORT_FUNC). */
#ifndef STATOR_EVALUATOR_H
#define STATOR_EVALUATOR_H

#include "layout.h"
#include <signal.h>
#include <sys/time.h>

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

/* -- the eval breaker and signals ------------------------------------------------------------------- */

const int *stator_eval_breaker(PyInterpreterState *interp) {
    return (const int *)&interp->ceval.eval_breaker._value;
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

/* -- generators ------------------------------------------------------------------------------------ */

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

/* The frame of a generator, coroutine or asynchronous generator. */
Frame *stator_own_frame(PyObject *generator) { return (Frame *)((PyGenObject *)generator)->gi_iframe; }

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

PyObject *stator_topmost_exception(PyThreadState *thread) {
    return _PyErr_GetTopmostException(thread)->exc_value;
}

/* -- trace functions that were set while an instruction ran ------------------------------------------ */

static int call_trace(PyThreadState *thread, Py_tracefunc function, PyObject *object,
                      PyFrameObject *frame, int what, PyObject *arg) {
    if (thread->tracing) {
        return 0;
    }
    int old_what = thread->TRACED_EVENT;
    thread->TRACED_EVENT = what;
    PyThreadState_EnterTracing(thread);
    frame->f_lineno = PyCode_Addr2Line(frame->f_frame->f_code,
                                       _PyInterpreterFrame_LASTI(frame->f_frame) * 2);
    int result = function(object, frame, what, arg);
    frame->f_lineno = 0;
    PyThreadState_LeaveTracing(thread);
    thread->TRACED_EVENT = old_what;
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
    return function == PyInterpreterState_Get()->IMPORT_FUNC;
}

#endif
