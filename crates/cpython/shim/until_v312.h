/* What CPython 3.11 and 3.12 have in common: one eval breaker for all threads, and frames that name the unit before
 * the next instruction. Included in front of evaluator.h. */
#ifndef STATOR_UNTIL_V312_H
#define STATOR_UNTIL_V312_H

#include "layout.h"

#define FRAME_CODE(frame) ((frame)->f_code)
#define CURRENT_FRAME(thread) ((thread)->cframe->current_frame)
#define STAND_AT(frame, unit) ((frame)->prev_instr = (unit))
#define REST_BEHIND(frame, unit) ((frame)->prev_instr = (unit))
#define RESTS_AT(frame) ((frame)->prev_instr)
#define IS_SUSPENDED(state) ((state) == FRAME_SUSPENDED)
#define SUSPENDED_AT(unit) FRAME_SUSPENDED

/* -- the eval breaker and signals ------------------------------------------------------------------- */

const void *stator_eval_breaker(PyThreadState *thread) {
    return &thread->interp->ceval.eval_breaker._value;
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

/* -- imports ---------------------------------------------------------------------------------------- */

/* Raises that `module`, which is called `package` (or nothing) and shown as `shown`, has nothing of that name. */
void stator_raise_cannot_import(PyObject *module, PyObject *package, PyObject *shown, PyObject *name) {
    PyObject *message, *path = PyModule_GetFilenameObject(module);
    if (path == NULL || !PyUnicode_Check(path)) {
        PyErr_Clear();
        message = PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shown);
        PyErr_SetImportError(message, package, NULL);
    }
    else {
        PyObject *spec = PyObject_GetAttrString(module, "__spec__");
        const char *format = _PyModuleSpec_IsInitializing(spec)
                                 ? "cannot import name %R from partially initialized module %R "
                                   "(most likely due to a circular import) (%S)"
                                 : "cannot import name %R from %R (%S)";
        Py_XDECREF(spec);
        message = PyUnicode_FromFormat(format, name, shown, path);
        PyErr_SetImportError(message, package, path);
    }
    Py_XDECREF(message);
    Py_XDECREF(path);
}

#endif
