/* What the file of each CPython version has in common with the others. Included after the version's
 * own headers, by that file alone: it defines the opcode tables. */
#ifndef STATOR_LAYOUT_H
#define STATOR_LAYOUT_H

#include "stator.h"
#include <internal/pycore_context.h>

typedef _PyInterpreterFrame Frame;

/* The fields that have the same name in all versions. */
#define STATOR_COMMON_FIELDS                                                                        \
    .frame_globals = offsetof(Frame, f_globals),                                                   \
    .frame_builtins = offsetof(Frame, f_builtins),                                                 \
    .frame_locals = offsetof(Frame, f_locals),                                                     \
    .frame_object = offsetof(Frame, frame_obj),                                                    \
    .frame_previous = offsetof(Frame, previous),                                                   \
    .frame_stacktop = offsetof(Frame, stacktop),                                                   \
    .frame_owner = offsetof(Frame, owner),                                                         \
    .frame_localsplus = offsetof(Frame, localsplus),                                               \
    .code_consts = offsetof(PyCodeObject, co_consts),                                              \
    .code_names = offsetof(PyCodeObject, co_names),                                                \
    .code_exceptiontable = offsetof(PyCodeObject, co_exceptiontable),                              \
    .code_flags = offsetof(PyCodeObject, co_flags),                                                \
    .code_stacksize = offsetof(PyCodeObject, co_stacksize),                                        \
    .code_firstlineno = offsetof(PyCodeObject, co_firstlineno),                                    \
    .code_nlocalsplus = offsetof(PyCodeObject, co_nlocalsplus),                                    \
    .code_nlocals = offsetof(PyCodeObject, co_nlocals),                                            \
    .code_nfreevars = offsetof(PyCodeObject, co_nfreevars),                                        \
    .code_localsplusnames = offsetof(PyCodeObject, co_localsplusnames),                            \
    .code_localspluskinds = offsetof(PyCodeObject, co_localspluskinds),                            \
    .code_filename = offsetof(PyCodeObject, co_filename),                                          \
    .code_name = offsetof(PyCodeObject, co_name),                                                  \
    .code_qualname = offsetof(PyCodeObject, co_qualname),                                          \
    .code_firsttraceable = offsetof(PyCodeObject, _co_firsttraceable),                             \
    .code_units = offsetof(PyCodeObject, co_code_adaptive),                                        \
    .thread_interp = offsetof(PyThreadState, interp),                                              \
    .thread_tracefunc = offsetof(PyThreadState, c_tracefunc),                                      \
    .thread_exc_info = offsetof(PyThreadState, exc_info),                                          \
    .function_closure = offsetof(PyFunctionObject, func_closure),                                  \
    .cell_ref = offsetof(PyCellObject, ob_ref)

const uint8_t *const stator_deopt = _PyOpcode_Deopt;
const uint8_t *const stator_caches = _PyOpcode_Caches;

_Static_assert(offsetof(PyWeakReference, wr_object) == sizeof(PyObject), "heap/layout.rs has it there");

/* The weak reference behind this one in its object's list, or NULL. `callback` gets what this one calls when the object
 * dies, or NULL; borrowed. */
PyObject *stator_next_weakref(PyObject *reference, PyObject **callback) {
    PyWeakReference *weak = (PyWeakReference *)reference;
    *callback = weak->wr_callback;
    return (PyObject *)weak->wr_next;
}

/* Whether `variable.reset(token)` would go back: the token is one of the variable's, of the current context, and
 * unused. */
int stator_token_fits(PyObject *token, PyObject *variable) {
    if (!Py_IS_TYPE(token, &PyContextToken_Type)) {
        return 0;
    }
    PyContextToken *of = (PyContextToken *)token;
    return !of->tok_used && (PyObject *)of->tok_var == variable
        && (PyObject *)of->tok_ctx == PyThreadState_Get()->context;
}

#endif
