/* What is the same from CPython 3.12 on: the way back into its evaluator, its hook, its recursion. */
#ifndef STATOR_SINCE_V312_H
#define STATOR_SINCE_V312_H

#include "layout.h"

static PyObject *default_evaluator(PyThreadState *thread, Frame *frame, int throw) {
    /* under a hook every Python call takes C recursion, which these versions count */
    thread->c_recursion_remaining += 2;
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throw);
    thread->c_recursion_remaining -= 2;
    return result;
}

_PyFrameEvalFunction stator_get_hook(PyInterpreterState *interp) {
    return _PyInterpreterState_GetEvalFrameFunc(interp);
}

void stator_set_hook(PyInterpreterState *interp, _PyFrameEvalFunction hook) {
    _PyInterpreterState_SetEvalFrameFunc(interp, hook != NULL ? hook : _PyEval_EvalFrameDefault);
}

int stator_enter_recursion(PyThreadState *thread) {
    return thread->py_recursion_remaining-- <= 0 && _Py_CheckRecursiveCall(thread, "");
}

#endif
