/* What is the same from CPython 3.12 on: the way back into its evaluator, its recursion. */
#ifndef STATOR_SINCE_V312_H
#define STATOR_SINCE_V312_H

#include "layout.h"

/* Lets CPython evaluate a frame. Under a hook every Python call takes C recursion, which these versions count. */
PyObject *stator_default(PyThreadState *thread, Frame *frame, int throw) {
    thread->c_recursion_remaining += 2;
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throw);
    thread->c_recursion_remaining -= 2;
    return result;
}

int stator_enter_recursion(PyThreadState *thread) {
    return thread->py_recursion_remaining-- <= 0 && _Py_CheckRecursiveCall(thread, "");
}

#endif
