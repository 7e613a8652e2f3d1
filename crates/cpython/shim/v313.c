/* CPython 3.13: layouts, tables, and the pieces of the evaluation loop that headers keep inline. */
#define NEED_OPCODE_METADATA
#include "stator.h"
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_opcode_metadata.h>
#include <internal/pycore_runtime.h>

#if PY_VERSION_HEX < 0x030D0000 || PY_VERSION_HEX >= 0x030E0000
#error "v313.c is for CPython 3.13"
#endif

#define TRACED_EVENT what_event
#define IMPORT_FUNC imports.import_func
#define FRAME_CODE(frame) _PyFrame_GetCode(frame)
#define CURRENT_FRAME(thread) ((thread)->current_frame)
/* A frame names the instruction that it executes, or the one that it is about to execute. */
#define STAND_AT(frame, unit) ((frame)->instr_ptr = (unit))
#define REST_BEHIND(frame, unit) ((frame)->instr_ptr = (unit) + 1)
#define RESTS_AT(frame) ((frame)->instr_ptr)
#define IS_SUSPENDED(state) FRAME_STATE_SUSPENDED(state)
/* The argument of a YIELD_VALUE says whether it is that of a `yield from` or `await`. */
#define SUSPENDED_AT(unit) suspended_state((unit)->op.arg)

static inline int suspended_state(int arg) {
    return arg & 1 ? FRAME_SUSPENDED_YIELD_FROM : FRAME_SUSPENDED;
}

#define SIGNAL_HANDLER(n) (PyObject *)_Py_atomic_load_ptr_relaxed(&_PyRuntime.signals.handlers[n].func)
#include "evaluator.h"
#include "since_v312.h"

const stator_layout_t stator_layout = {
    STATOR_COMMON_FIELDS,
    .frame_function = offsetof(Frame, f_funcobj),
    .frame_code = offsetof(Frame, f_executable),
    .frame_instr = offsetof(Frame, instr_ptr),
    .thread_recursion_remaining = offsetof(PyThreadState, py_recursion_remaining),
    .thread_current = offsetof(PyThreadState, current_frame),
    .thread_curexc = offsetof(PyThreadState, current_exception),
    .cframe_size = 0, /* the thread state names the current frame itself */
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

/* Makes `frame` the current one, as _PyEval_EvalFrameDefault does first of all. */
void stator_link(PyThreadState *thread, void *unused, Frame *frame) {
    (void)unused;
    frame->previous = thread->current_frame;
    thread->current_frame = frame;
}

void stator_unlink(PyThreadState *thread, void *unused) {
    (void)unused;
    thread->current_frame = thread->current_frame->previous;
}

/* Frees what an unlinked frame owns: it has returned, or raised. */
void stator_clear(PyThreadState *thread, Frame *frame) { _PyEval_FrameClearAndPop(thread, frame); }

/* Marks a generator as suspended that its unlinked frame yields from, in the instruction that it names; it goes on
 * behind that one. */
void stator_suspend(PyThreadState *thread, Frame *frame, int arg) {
    PyGenObject *gen = _PyFrame_GetGenerator(frame);
    gen->gi_frame_state = suspended_state(arg);
    thread->exc_info = gen->gi_exc_state.previous_item;
    gen->gi_exc_state.previous_item = NULL;
    frame->previous = NULL;
    frame->instr_ptr++;
}

/* -- the eval breaker and signals ------------------------------------------------------------------- */

/* Its low bits say what there is to do (EVENTS of thread/v313.rs); the others count changes of instrumentation. */
const void *stator_eval_breaker(PyThreadState *thread) { return &thread->eval_breaker; }

_Static_assert(_PY_EVAL_EVENTS_MASK == 0xff, "eval breaker: events");

int stator_handle_pending(PyThreadState *thread) { return _Py_HandlePending(thread); }

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

/* What came meanwhile is handled where the evaluation loop asks next. Who asked while they waited has taken the bits
 * off that say so. */
void stator_allow_signals(PyThreadState *thread, unsigned long main_thread) {
    _PyRuntime.main_thread = main_thread;
    if (_Py_atomic_load_int_relaxed(&_PyRuntime.signals.is_tripped)) {
        _Py_set_eval_breaker_bit(thread, _PY_SIGNALS_PENDING_BIT);
    }
    if (_Py_atomic_load_int32_relaxed(&_PyRuntime.ceval.pending_mainthread.npending)) {
        _Py_set_eval_breaker_bit(thread, _PY_CALLS_TO_DO_BIT);
    }
}

/* What says that a signal came which no handler has run for. */
const int *stator_signals_pending(void) { return &_PyRuntime.signals.is_tripped; }

/* -- who wants events ------------------------------------------------------------------------------- */

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
uint64_t stator_monitoring_version(PyInterpreterState *interp) {
    return interp->ceval.instrumentation_version;
}

/* -- generators ------------------------------------------------------------------------------------ */

/* Whether a coroutine is suspended in an await of its own. */
int stator_is_awaiting(PyObject *coroutine) {
    return ((PyGenObject *)coroutine)->gi_frame_state == FRAME_SUSPENDED_YIELD_FROM;
}

/* -- exceptions ------------------------------------------------------------------------------------ */

PyObject *stator_take_exception(void) { return PyErr_GetRaisedException(); }

/* Raise an instance again with its own traceback and nothing added; steals `value`. */
void stator_restore_exception(PyObject *value) { PyErr_SetRaisedException(value); }

/* -- imports ---------------------------------------------------------------------------------------- */

/* Whether an attribute is there and true; -1 if asking raised. */
static int is_attribute_true(PyObject *object, const char *name) {
    PyObject *value;
    int found = PyObject_GetOptionalAttrString(object, name, &value);
    if (found > 0) {
        found = PyObject_IsTrue(value);
        Py_DECREF(value);
    }
    return found;
}

/* Where a spec says that its module was found: a string, or NULL for nowhere. -1 if asking raised. */
static int location_of(PyObject *spec, PyObject **location) {
    *location = NULL;
    int found = is_attribute_true(spec, "has_location");
    if (found > 0) {
        found = PyObject_GetOptionalAttrString(spec, "origin", location);
    }
    if (found > 0 && !PyUnicode_Check(*location)) {
        Py_CLEAR(*location);
    }
    return found < 0 ? -1 : 0;
}

/* The first entry of the module search path, an empty one as the directory that it means; NULL if there is none. */
static PyObject *first_of_path(void) {
    const PyConfig *config = &PyInterpreterState_Get()->config;
    if (config->safe_path || config->sys_path_0 == NULL) {
        return NULL;
    }
    if (config->sys_path_0[0] != L'\0') {
        return PyUnicode_FromWideChar(config->sys_path_0, -1);
    }
    PyObject *os = PyImport_ImportModule("os");
    PyObject *current = os == NULL ? NULL : PyObject_CallMethod(os, "getcwd", NULL);
    Py_XDECREF(os);
    return current;
}

/* Whether the module at a location stands in the way of one of the same name further down the search path; -1 if
 * asking raised. */
static int is_shadowing(PyObject *location) {
    if (location == NULL) {
        return 0;
    }
    PyObject *first = first_of_path();
    if (first == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_ssize_t end = PyUnicode_GET_LENGTH(location);
    PyObject *package = PyUnicode_FromString("/__init__.py");
    int result = package == NULL ? -1 : (int)PyUnicode_Tailmatch(location, package, 0, end, 1);
    if (result > 0) {
        end -= PyUnicode_GET_LENGTH(package);
    }
    Py_XDECREF(package);
    if (result >= 0) {
        end = PyUnicode_FindChar(location, '/', 0, end, -1);
        PyObject *root = end < 0 ? NULL : PyUnicode_Substring(location, 0, end);
        result = root != NULL && PyUnicode_Compare(root, first) == 0;
        Py_XDECREF(root);
        result = PyErr_Occurred() ? -1 : result;
    }
    Py_DECREF(first);
    return result;
}

static int is_of_standard_library(PyObject *name) {
    PyObject *names = PySys_GetObject("stdlib_module_names");
    return names != NULL && PyAnySet_Check(names) ? PySet_Contains(names, name) : 0;
}

/* The message, or NULL with an exception; what `*location` says is part of the error. */
static PyObject *cannot_import(PyObject *module, PyObject *shown, PyObject *name, PyObject *spec,
                               PyObject **location) {
    if (location_of(spec, location) < 0) {
        return NULL;
    }
    int shadows = is_shadowing(*location);
    int shadows_standard = shadows > 0 ? is_of_standard_library(shown) : shadows;
    if (shadows < 0 || shadows_standard < 0) {
        return NULL;
    }
    if (*location == NULL && PyModule_Check(module)) {
        *location = PyModule_GetFilenameObject(module);
        if (*location == NULL && !PyErr_ExceptionMatches(PyExc_SystemError)) {
            return NULL;
        }
        PyErr_Clear();
    }
    if (shadows_standard) {
        return PyUnicode_FromFormat(
            "cannot import name %R from %R (consider renaming %R since it has the same name as the "
            "standard library module named %R and prevents importing that standard library module)",
            name, shown, *location, shown);
    }
    int initializing = is_attribute_true(spec, "_initializing");
    if (initializing < 0) {
        return NULL;
    }
    if (initializing && shadows) {
        return PyUnicode_FromFormat(
            "cannot import name %R from %R (consider renaming %R if it has the same name as a library "
            "you intended to import)",
            name, shown, *location);
    }
    const char *from = initializing ? "partially initialized module " : "";
    const char *why = initializing ? " (most likely due to a circular import)" : "";
    if (*location != NULL) {
        return PyUnicode_FromFormat("cannot import name %R from %s%R%s (%S)", name, from, shown, why,
                                    *location);
    }
    return PyUnicode_FromFormat("cannot import name %R from %s%R%s", name, from, shown,
                                initializing ? why : " (unknown location)");
}

/* Raises that `module`, which is called `package` (or nothing) and shown as `shown`, has nothing of that name. */
void stator_raise_cannot_import(PyObject *module, PyObject *package, PyObject *shown, PyObject *name) {
    PyObject *spec, *message = NULL, *location = NULL;
    if (PyObject_GetOptionalAttrString(module, "__spec__", &spec) < 0) {
        return;
    }
    if (spec == NULL) {
        message = PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shown);
    }
    else {
        message = cannot_import(module, shown, name, spec, &location);
    }
    if (message != NULL) {
        PyErr_SetImportError(message, package, location);
    }
    Py_XDECREF(message);
    Py_XDECREF(location);
    Py_XDECREF(spec);
}
