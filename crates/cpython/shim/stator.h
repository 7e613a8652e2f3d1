/* What the shim of every CPython version offers to crates/cpython/src/ffi.rs.
 *
 * The shim exists for what C headers hide from Rust: struct layouts, macros, static inline
 * functions and variadic error formatting. It keeps no state.
 */
#ifndef STATOR_H
#define STATOR_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#include <frameobject.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_pystate.h>
#include <stddef.h>
#include <stdint.h>

/* Byte offsets that the Rust side repeats in its layout structs; -1 where a version lacks the field. */
typedef struct {
    int64_t frame_function, frame_globals, frame_builtins, frame_locals, frame_code, frame_object;
    int64_t frame_previous, frame_instr, frame_stacktop, frame_owner, frame_localsplus;
    int64_t code_consts, code_names, code_exceptiontable, code_flags, code_stacksize;
    int64_t code_firstlineno, code_nlocalsplus, code_nlocals, code_nfreevars;
    int64_t code_localsplusnames, code_localspluskinds, code_filename, code_name, code_qualname;
    int64_t code_firsttraceable, code_units;
    int64_t thread_interp, thread_recursion_remaining, thread_current, thread_tracefunc;
    int64_t thread_curexc, thread_exc_info;
    int64_t cframe_size, cframe_use_tracing, cframe_current_frame, cframe_previous;
    int64_t function_closure, cell_ref;
} stator_layout_t;

extern const stator_layout_t stator_layout;

/* Opcode tables: the general form of a specialised opcode, and inline cache entries behind it. */
extern const uint8_t *const stator_deopt;
extern const uint8_t *const stator_caches;

/* What semantics.c asks of the version's file. */
void stator_raise_cannot_import(PyObject *module, PyObject *package, PyObject *shown, PyObject *name);

#endif
