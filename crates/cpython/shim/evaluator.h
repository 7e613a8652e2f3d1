/* What the evaluator asks of all versions of CPython alike. Included behind layout.h by the file of the version, which
 * says what fields are called there:
 *   TRACED_EVENT         the event that a thread's trace function is told of;
 *   IMPORT_FUNC          the interpreter's import function;
 *   FRAME_CODE(f)        a frame's code object;
 *   CURRENT_FRAME(t)     the frame that a thread executes;
 *   STAND_AT(f, unit)    lets a frame say that it executes the instruction at a unit;
 *   REST_BEHIND(f, unit) lets a frame that isn't running go on behind it;
 *   RESTS_AT(f)          what says where such a frame goes on;
 *   IS_SUSPENDED(state)  whether a generator's state says that it has begun and stands still;
 *   SUSPENDED_AT(unit)   the state of a generator that stands still behind the instruction at a unit;
 *   SIGNAL_HANDLER(n)    the object that handles a signal in Python, where the runtime tells. */
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
    PyCodeObject *own = (PyCodeObject *)code;
    PyFrameObject *frame = PyFrame_New(thread, own, globals, NULL);
    if (frame == NULL) {
        return NULL;
    }
    STAND_AT(frame->f_frame, _PyCode_CODE(own) + unit);
    /* Whoever reads the variables looks into the cells of free ones without asking whether there are any. */
    for (int at = own->co_nlocalsplus - own->co_nfreevars; at < own->co_nlocalsplus; at++) {
        PyObject *cell = PyCell_New(NULL);
        if (cell == NULL) {
            Py_DECREF(frame);
            return NULL;
        }
        frame->f_frame->localsplus[at] = cell;
    }
    return (PyObject *)frame;
}

/* Lets such a frame stand at a unit, called by another one; by none, if that is NULL. */
void stator_set_stand_in(PyObject *object, int unit, PyObject *caller) {
    _PyInterpreterFrame *frame = ((PyFrameObject *)object)->f_frame;
    STAND_AT(frame, _PyCode_CODE(FRAME_CODE(frame)) + unit);
    frame->previous = caller == NULL ? NULL : ((PyFrameObject *)caller)->f_frame;
}

/* Makes such a frame the thread's current one, though it is nowhere on the stack; `outermost`, from which calls lead to
 * it, is called by the one that was, which this gives. */
void *stator_step_onto(PyThreadState *thread, PyObject *object, PyObject *outermost) {
    _PyInterpreterFrame *before = CURRENT_FRAME(thread);
    ((PyFrameObject *)outermost)->f_frame->previous = before;
    CURRENT_FRAME(thread) = ((PyFrameObject *)object)->f_frame;
    return before;
}

void stator_step_back(PyThreadState *thread, void *before, PyObject *outermost) {
    CURRENT_FRAME(thread) = before;
    ((PyFrameObject *)outermost)->f_frame->previous = NULL;
}

/* Nobody calls from such a frame any more. Whoever has kept it finds the one that called it. */
void stator_retire_stand_in(PyObject *object, PyObject *caller) {
    PyFrameObject *frame = (PyFrameObject *)object;
    frame->f_frame->previous = NULL;
    if (Py_REFCNT(object) > 1 && caller != NULL && frame->f_back == NULL) {
        frame->f_back = (PyFrameObject *)Py_NewRef(caller);
    }
}

/* -- signals -------------------------------------------------------------------------------------- */

/* Whether this is the main thread, which stator_defer_signals has given, and signals wait for it. */
int stator_do_signals_wait(unsigned long main_thread) {
    return _PyRuntime.main_thread == 0 && PyThread_get_thread_ident() == main_thread;
}

/* Whether another thread has sent this one an exception. */
int stator_has_async_exc(PyThreadState *thread) { return thread->async_exc != NULL; }

/* Whether Python code may handle a signal: to ask costs less than to ask the system for its timer. */
static int may_be_handled(int signal) {
#ifdef SIGNAL_HANDLER
    PyObject *handler = SIGNAL_HANDLER(signal);
    return handler != NULL && handler != _PyRuntime.signals.default_handler &&
           handler != _PyRuntime.signals.ignore_handler;
#else
    return 1;
#endif
}

/* Whether a timer of the process's is running that ends with a signal which has a handler. */
int stator_is_timer_running(void) {
    static const struct {
        int timer, signal;
    } timers[] = {{ITIMER_REAL, SIGALRM}, {ITIMER_VIRTUAL, SIGVTALRM}, {ITIMER_PROF, SIGPROF}};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        struct itimerval left;
        if (may_be_handled(timers[i].signal) && getitimer(timers[i].timer, &left) == 0 &&
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
        (state != FRAME_CREATED && !IS_SUSPENDED(state))) {
        return NULL;
    }
    *started = state != FRAME_CREATED;
    return (Frame *)gen->gi_iframe;
}

/* The frame of a generator, coroutine or asynchronous generator. */
Frame *stator_own_frame(PyObject *generator) { return (Frame *)((PyGenObject *)generator)->gi_iframe; }

/* Moves a generator that hasn't begun. `slots` are its fast locals, then its stack: each is stolen, or
 * NULL; the old locals take the place of the new ones. 0: there is no room for them. */
int stator_generator_restore(PyObject *generator, int unit, int started, PyObject **slots, int count) {
    PyGenObject *gen = (PyGenObject *)generator;
    Frame *frame = (Frame *)gen->gi_iframe;
    PyCodeObject *code = FRAME_CODE(frame);
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
    REST_BEHIND(frame, _PyCode_CODE(code) + unit);
    if (started) {
        gen->gi_frame_state = SUSPENDED_AT(_PyCode_CODE(code) + unit);
    }
    return 1;
}

/* Whether a generator has ended. */
int stator_generator_has_ended(PyObject *generator) {
    return PyGen_CheckExact(generator) && ((PyGenObject *)generator)->gi_frame_state > FRAME_EXECUTING;
}

/* Two generators of one code object that stand still take each other's place. 0: they are others. */
int stator_generator_swap(PyObject *one, PyObject *other) {
    int started;
    Frame *first = stator_generator_frame(one, &started);
    Frame *second = stator_generator_frame(other, &started);
    if (first == NULL || second == NULL || FRAME_CODE(first) != FRAME_CODE(second)) {
        return 0;
    }
    int count = first->stacktop > second->stacktop ? first->stacktop : second->stacktop;
    for (int i = 0; i < count; i++) {
        /* Behind the top of the lower stack there is nothing: nobody looks at it there. */
        PyObject *slot = first->localsplus[i];
        first->localsplus[i] = second->localsplus[i];
        second->localsplus[i] = slot;
    }
    int top = first->stacktop;
    first->stacktop = second->stacktop;
    second->stacktop = top;
    void *place = RESTS_AT(first);
    RESTS_AT(first) = RESTS_AT(second);
    RESTS_AT(second) = place;
    int8_t state = ((PyGenObject *)one)->gi_frame_state;
    ((PyGenObject *)one)->gi_frame_state = ((PyGenObject *)other)->gi_frame_state;
    ((PyGenObject *)other)->gi_frame_state = state;
    return 1;
}

/* Moves a generator that stands still to its beginning, where no exception is handled. What its slots held goes to
 * `slots`, so many at most. 0: it doesn't stand still, or there is no room. */
int stator_generator_empty(PyObject *generator, PyObject **slots, int room) {
    int started;
    Frame *frame = stator_generator_frame(generator, &started);
    if (frame == NULL || frame->stacktop > room) {
        return 0;
    }
    for (int i = 0; i < frame->stacktop; i++) {
        slots[i] = frame->localsplus[i];
        frame->localsplus[i] = NULL;
    }
    PyCodeObject *code = FRAME_CODE(frame);
    frame->stacktop = code->co_nlocalsplus;
    REST_BEHIND(frame, _PyCode_CODE(code));
    ((PyGenObject *)generator)->gi_frame_state = FRAME_CREATED;
    return 1;
}

/* -- functions ------------------------------------------------------------------------------------- */

/* The parts of a new function that MAKE_FUNCTION takes from the stack; each is stolen, or NULL. */
void stator_set_function_parts(PyObject *function, PyObject *closure, PyObject *annotations,
                               PyObject *kwdefaults, PyObject *defaults) {
    PyFunctionObject *func = (PyFunctionObject *)function;
    if (closure != NULL) {
        Py_XSETREF(func->func_closure, closure);
    }
    if (annotations != NULL) {
        Py_XSETREF(func->func_annotations, annotations);
    }
    if (kwdefaults != NULL) {
        Py_XSETREF(func->func_kwdefaults, kwdefaults);
    }
    if (defaults != NULL) {
        Py_XSETREF(func->func_defaults, defaults);
    }
}

/* -- exceptions ------------------------------------------------------------------------------------ */

PyObject *stator_topmost_exception(PyThreadState *thread) {
    _PyErr_StackItem *item = thread->exc_info;
    while ((item->exc_value == NULL || item->exc_value == Py_None) && item->previous_item != NULL) {
        item = item->previous_item;
    }
    return item->exc_value;
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
    frame->f_lineno = PyCode_Addr2Line(FRAME_CODE(frame->f_frame),
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
