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

/* Counts a Python frame. While an exception for too many is made there is some room above the limit. */
int stator_enter_recursion(PyThreadState *thread) {
    if (thread->py_recursion_remaining-- > 0) {
        return 0;
    }
    if (thread->recursion_headroom) {
        if (thread->py_recursion_remaining < -50) {
            Py_FatalError("Cannot recover from Python stack overflow.");
        }
        return 0;
    }
    thread->recursion_headroom++;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    thread->recursion_headroom--;
    thread->py_recursion_remaining++;
    return -1;
}

#endif
