/* Error messages with their formatting, and the algebra of exception groups: CPython keeps these
 * static, so they are written again over its public functions. */
#include "stator.h"

#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_ceval.h>
#define _PyObject_LookupAttr PyObject_GetOptionalAttr
#endif

/* -- numbers --------------------------------------------------------------------------------------- */

/* An exact int that is nobody else's: not the one that CPython shares among equal small ints. */
PyObject *stator_own_int(int64_t value) {
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    Py_ssize_t size = 0;
    for (uint64_t digits = rest; digits != 0; digits >>= PyLong_SHIFT) {
        size++;
    }
    PyLongObject *result = _PyLong_New(size);
    if (result == NULL) {
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030C0000
    digit *digits = result->long_value.ob_digit;
    result->long_value.lv_tag |= value < 0 ? 2 : (value == 0 ? 1 : 0);
#else
    digit *digits = result->ob_digit;
    Py_SET_SIZE(result, value < 0 ? -size : size);
#endif
    digits[0] = 0;
    for (Py_ssize_t index = 0; index < size; index++) {
        digits[index] = (digit)(rest & PyLong_MASK);
        rest >>= PyLong_SHIFT;
    }
    return (PyObject *)result;
}

/* A copy of an exact str that is not empty, also of one that CPython shares among equal texts of one character. */
PyObject *stator_own_text(PyObject *text) {
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    PyObject *result = PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text));
    if (result != NULL && PyUnicode_CopyCharacters(result, 0, text, 0, length) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* -- names ----------------------------------------------------------------------------------------- */

/* Raise `exc` with the name put into `format`; a NameError also gets its `name` attribute. */
void stator_raise_name_error(PyObject *exc, const char *format, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        return;
    }
    PyErr_Format(exc, format, text);
    if (exc != PyExc_NameError) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (PyErr_GivenExceptionMatches(value, PyExc_NameError) &&
        ((PyNameErrorObject *)value)->name == NULL) {
        (void)PyObject_SetAttrString(value, "name", name);
    }
    PyErr_Restore(type, value, traceback);
}

/* Raise `exc` with the type's name put into `format`. */
void stator_raise_type_name(PyObject *exc, const char *format, PyTypeObject *type) {
    PyErr_Format(exc, format, type->tp_name);
}

/* -- calls ----------------------------------------------------------------------------------------- */

/* A `*args` that can't be iterated: -1 with TypeError. */
int stator_check_args_iterable(PyObject *function, PyObject *args) {
    if (Py_TYPE(args)->tp_iter != NULL || PySequence_Check(args)) {
        return 0;
    }
    PyErr_Clear();
    PyObject *text = _PyObject_FunctionStr(function);
    if (text != NULL) {
        PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text,
                     Py_TYPE(args)->tp_name);
        Py_DECREF(text);
    }
    return -1;
}

/* Say what is wrong with `**kwargs`, given the error that merging it raised. */
void stator_format_kwargs_error(PyObject *function, PyObject *kwargs) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyObject *text = _PyObject_FunctionStr(function);
        if (text != NULL) {
            PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s",
                         text, Py_TYPE(kwargs)->tp_name);
            Py_DECREF(text);
        }
        return;
    }
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *key = NULL;
    if (value != NULL && PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 1) {
        key = PyTuple_GET_ITEM(value, 0);
    }
#if PY_VERSION_HEX >= 0x030C0000
    else if (value != NULL && PyExceptionInstance_Check(value)) {
        PyObject *args = ((PyBaseExceptionObject *)value)->args;
        if (PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 1) {
            key = PyTuple_GET_ITEM(args, 0);
        }
    }
#endif
    if (key == NULL) {
        PyErr_Restore(type, value, traceback);
        return;
    }
    PyObject *text = _PyObject_FunctionStr(function);
    if (text != NULL) {
        PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text,
                     key);
        Py_DECREF(text);
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* -- unpacking -------------------------------------------------------------------------------------- */

/* Unpack `iterable` into the `before` slots below `top` (the first item highest) and, if `after` is not
 * negative, a list of the rest and `after` more slots. 1, or 0 with an exception and no slot filled. */
int stator_unpack(PyObject *iterable, int before, int after, PyObject **top) {
    int filled = 0;
    PyObject *rest, *iterator = PyObject_GetIter(iterable);
    if (iterator == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(iterable)->tp_iter == NULL &&
            !PySequence_Check(iterable)) {
            PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object",
                         Py_TYPE(iterable)->tp_name);
        }
        return 0;
    }
    for (; filled < before; filled++) {
        PyObject *item = PyIter_Next(iterator);
        if (item == NULL) {
            if (!PyErr_Occurred()) {
                if (after < 0) {
                    PyErr_Format(PyExc_ValueError,
                                 "not enough values to unpack (expected %d, got %d)", before,
                                 filled);
                }
                else {
                    PyErr_Format(PyExc_ValueError,
                                 "not enough values to unpack (expected at least %d, got %d)",
                                 before + after, filled);
                }
            }
            goto failed;
        }
        *--top = item;
    }
    if (after < 0) {
        PyObject *item = PyIter_Next(iterator);
        if (item != NULL) {
            Py_DECREF(item);
            PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
            goto failed;
        }
        if (PyErr_Occurred()) {
            goto failed;
        }
        Py_DECREF(iterator);
        return 1;
    }
    rest = PySequence_List(iterator);
    if (rest == NULL) {
        goto failed;
    }
    *--top = rest;
    filled++;
    Py_ssize_t length = PyList_GET_SIZE(rest);
    if (length < after) {
        PyErr_Format(PyExc_ValueError,
                     "not enough values to unpack (expected at least %d, got %zd)",
                     before + after, before + length);
        goto failed;
    }
    for (int left = after; left > 0; left--) {
        *--top = PyList_GET_ITEM(rest, length - left);
    }
    Py_SET_SIZE(rest, length - after);
    Py_DECREF(iterator);
    return 1;

failed:
    for (; filled > 0; filled--) {
        Py_DECREF(*top++);
    }
    Py_DECREF(iterator);
    return 0;
}

/* -- exception groups -------------------------------------------------------------------------------- */

static PyObject *wrap_in_group(PyObject *exceptions) {
    return PyObject_CallFunction(PyExc_BaseExceptionGroup, "(sO)", "", exceptions);
}

static int is_group(PyObject *exception) {
    return PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_BaseExceptionGroup);
}

/* What an `except*` clause takes of `exception` and what it leaves; 0, or -1 with an exception. */
#if PY_VERSION_HEX >= 0x030D0000
int stator_match_group(PyObject *exception, PyObject *classes, PyObject **match, PyObject **rest) {
    return _PyEval_ExceptionGroupMatch(exception, classes, match, rest);
}
#else
int stator_match_group(PyObject *exception, PyObject *classes, PyObject **match, PyObject **rest) {
    if (Py_IsNone(exception)) {
        *match = Py_NewRef(Py_None);
        *rest = Py_NewRef(Py_None);
        return 0;
    }
    if (PyErr_GivenExceptionMatches(exception, classes)) {
        if (is_group(exception)) {
            *match = Py_NewRef(exception);
        }
        else {
            PyObject *one = PyTuple_Pack(1, exception);
            if (one == NULL) {
                return -1;
            }
            *match = wrap_in_group(one);
            Py_DECREF(one);
            if (*match == NULL) {
                return -1;
            }
        }
        *rest = Py_NewRef(Py_None);
        return 0;
    }
    if (is_group(exception)) {
        PyObject *pair = PyObject_CallMethod(exception, "split", "(O)", classes);
        if (pair == NULL) {
            return -1;
        }
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) < 2) {
            PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got %.200s",
                         Py_TYPE(exception)->tp_name, Py_TYPE(pair)->tp_name);
            Py_DECREF(pair);
            return -1;
        }
        *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
        *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
        Py_DECREF(pair);
        return 0;
    }
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(Py_None);
    return 0;
}
#endif

static int has_same_metadata(PyObject *left, PyObject *right) {
    PyBaseExceptionObject *a = (PyBaseExceptionObject *)left, *b = (PyBaseExceptionObject *)right;
    return a->notes == b->notes && a->traceback == b->traceback && a->cause == b->cause &&
           a->context == b->context;
}

/* Add the addresses of the leaves of `exception` to the set `leaves`. */
static int collect_leaves(PyObject *exception, PyObject *leaves) {
    if (Py_IsNone(exception)) {
        return 0;
    }
    if (!is_group(exception)) {
        PyObject *address = PyLong_FromVoidPtr(exception);
        if (address == NULL) {
            return -1;
        }
        int err = PySet_Add(leaves, address);
        Py_DECREF(address);
        return err;
    }
    PyObject *exceptions = ((PyBaseExceptionGroupObject *)exception)->excs;
    if (Py_EnterRecursiveCall(" in collect_exception_group_leaf_ids")) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(exceptions); i++) {
        if (collect_leaves(PyTuple_GET_ITEM(exceptions, i), leaves) < 0) {
            Py_LeaveRecursiveCall();
            return -1;
        }
    }
    Py_LeaveRecursiveCall();
    return 0;
}

/* Give `part` the traceback, context, cause and notes of `whole`. */
static int copy_metadata(PyObject *part, PyObject *whole) {
    PyObject *notes, *traceback = PyException_GetTraceback(whole);
    if (traceback != NULL) {
        int err = PyException_SetTraceback(part, traceback);
        Py_DECREF(traceback);
        if (err < 0) {
            return -1;
        }
    }
    PyException_SetContext(part, PyException_GetContext(whole));
    PyException_SetCause(part, PyException_GetCause(whole));
    notes = PyObject_GetAttrString(whole, "__notes__");
    if (notes == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    int err = 0;
    if (PySequence_Check(notes)) {
        /* the parts' notes are independent of the whole's */
        PyObject *copy = PySequence_List(notes);
        err = copy == NULL ? -1 : PyObject_SetAttrString(part, "__notes__", copy);
        Py_XDECREF(copy);
    }
    Py_DECREF(notes);
    return err;
}

static PyObject *derive_group(PyObject *whole, PyObject *exceptions) {
    PyObject *part = PyObject_CallMethod(whole, "derive", "(O)", exceptions);
    if (part == NULL) {
        return NULL;
    }
    if (!is_group(part)) {
        PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    }
    else if (copy_metadata(part, whole) == 0) {
        return part;
    }
    Py_DECREF(part);
    return NULL;
}

/* The part of `exception` whose leaves are in the set `leaves`: an exception, None, or NULL. */
static PyObject *select_leaves(PyObject *exception, PyObject *leaves) {
    if (!is_group(exception)) {
        PyObject *address = PyLong_FromVoidPtr(exception);
        if (address == NULL) {
            return NULL;
        }
        int found = PySet_Contains(leaves, address);
        Py_DECREF(address);
        return found < 0 ? NULL : Py_NewRef(found ? exception : Py_None);
    }
    PyObject *result = NULL, *selected = PyList_New(0);
    if (selected == NULL) {
        return NULL;
    }
    PyObject *exceptions = ((PyBaseExceptionGroupObject *)exception)->excs;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(exceptions); i++) {
        if (Py_EnterRecursiveCall(" in exceptiongroup_split_recursive")) {
            goto done;
        }
        PyObject *part = select_leaves(PyTuple_GET_ITEM(exceptions, i), leaves);
        Py_LeaveRecursiveCall();
        int err = part == NULL ? -1 : Py_IsNone(part) ? 0 : PyList_Append(selected, part);
        Py_XDECREF(part);
        if (err < 0) {
            goto done;
        }
    }
    result = PyList_GET_SIZE(selected) == 0 ? Py_NewRef(Py_None) : derive_group(exception, selected);
done:
    Py_DECREF(selected);
    return result;
}

/* The part of the group `whole` whose leaves occur in the list `keep`: a group, None, or NULL. */
static PyObject *project_group(PyObject *whole, PyObject *keep) {
    PyObject *result = NULL, *leaves = PySet_New(NULL);
    if (leaves == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keep); i++) {
        if (collect_leaves(PyList_GET_ITEM(keep, i), leaves) < 0) {
            goto done;
        }
    }
    result = select_leaves(whole, leaves);
done:
    Py_DECREF(leaves);
    return result;
}

/* What an `except*` statement raises in the end: `raised` lists what its clauses raised, re-raised or
 * left over of `original`. An exception, None, or NULL. */
PyObject *stator_prepare_reraise_star(PyObject *original, PyObject *raised) {
    Py_ssize_t count = PyList_GET_SIZE(raised);
    if (count == 0) {
        return Py_NewRef(Py_None);
    }
    if (!is_group(original)) {
        return Py_NewRef(PyList_GET_ITEM(raised, 0));
    }
    PyObject *result = NULL, *again = NULL;
    PyObject *fresh = PyList_New(0), *old = PyList_New(0);
    if (fresh == NULL || old == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *exception = PyList_GET_ITEM(raised, i);
        if (Py_IsNone(exception)) {
            continue;
        }
        if (PyList_Append(has_same_metadata(exception, original) ? old : fresh, exception) < 0) {
            goto done;
        }
    }
    again = project_group(original, old);
    if (again == NULL) {
        goto done;
    }
    if (PyList_GET_SIZE(fresh) == 0) {
        result = Py_NewRef(again);
        goto done;
    }
    if (!Py_IsNone(again) && PyList_Append(fresh, again) < 0) {
        goto done;
    }
    if (PyList_GET_SIZE(fresh) > 1) {
        result = wrap_in_group(fresh);
    }
    else {
        result = Py_NewRef(PyList_GET_ITEM(fresh, 0));
    }
done:
    Py_XDECREF(again);
    Py_XDECREF(fresh);
    Py_XDECREF(old);
    return result;
}

/* -- imports ---------------------------------------------------------------------------------------- */

/* `from module import name`. */
PyObject *stator_import_from(PyObject *module, PyObject *name) {
    PyObject *found;
    if (_PyObject_LookupAttr(module, name, &found) != 0) {
        return found;
    }
    /* a circular relative import: the module may be in sys.modules by its full name */
    PyObject *package = PyObject_GetAttrString(module, "__name__");
    if (package != NULL && PyUnicode_Check(package)) {
        PyObject *full = PyUnicode_FromFormat("%U.%U", package, name);
        if (full == NULL) {
            Py_DECREF(package);
            return NULL;
        }
        found = PyImport_GetModule(full);
        Py_DECREF(full);
        if (found != NULL || PyErr_Occurred()) {
            Py_DECREF(package);
            return found;
        }
    }
    else {
        Py_CLEAR(package);
#if PY_VERSION_HEX >= 0x030D0000
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return NULL;
        }
#endif
        PyErr_Clear();
    }

    PyObject *shown = package != NULL ? Py_NewRef(package)
                                      : PyUnicode_FromString("<unknown module name>");
    if (shown != NULL) {
        stator_raise_cannot_import(module, package, shown, name);
        Py_DECREF(shown);
    }
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();
    if (error != NULL && PyErr_GivenExceptionMatches(error, PyExc_ImportError) &&
        PyObject_SetAttrString(error, "name_from", name) < 0) {
        PyErr_Clear();
    }
    PyErr_SetRaisedException(error);
#endif
    Py_XDECREF(package);
    return NULL;
}

static int check_star_name(PyObject *module, PyObject *name, int from_dict) {
    if (PyUnicode_Check(name)) {
        return 0;
    }
    PyObject *modname = PyObject_GetAttrString(module, "__name__");
    if (modname == NULL) {
        return -1;
    }
    if (!PyUnicode_Check(modname)) {
        PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s",
                     Py_TYPE(modname)->tp_name);
    }
    else {
        PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s",
                     from_dict ? "Key" : "Item", modname, from_dict ? "__dict__" : "__all__",
                     Py_TYPE(name)->tp_name);
    }
    Py_DECREF(modname);
    return -1;
}

/* `from module import *` into the mapping `locals`. */
int stator_import_star(PyObject *locals, PyObject *module) {
    PyObject *all = PyObject_GetAttrString(module, "__all__");
    int from_dict = 0;
    if (all == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        PyObject *dict = PyObject_GetAttrString(module, "__dict__");
        if (dict == NULL) {
            if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
                PyErr_SetString(PyExc_ImportError,
                                "from-import-* object has no __dict__ and no __all__");
            }
            return -1;
        }
        all = PyMapping_Keys(dict);
        Py_DECREF(dict);
        if (all == NULL) {
            return -1;
        }
        from_dict = 1;
    }
    int err = 0;
    for (Py_ssize_t index = 0; err == 0; index++) {
        PyObject *name = PySequence_GetItem(all, index);
        if (name == NULL) {
            if (PyErr_ExceptionMatches(PyExc_IndexError)) {
                PyErr_Clear();
            }
            else {
                err = -1;
            }
            break;
        }
        err = check_star_name(module, name, from_dict);
        if (err == 0 && from_dict && PyUnicode_READY(name) == -1) {
            err = -1;
        }
        if (err == 0 && from_dict && PyUnicode_READ_CHAR(name, 0) == '_') {
            Py_DECREF(name);
            continue;
        }
        if (err == 0) {
            PyObject *value = PyObject_GetAttr(module, name);
            if (value == NULL) {
                err = -1;
            }
            else if (PyDict_CheckExact(locals)) {
                err = PyDict_SetItem(locals, name, value);
            }
            else {
                err = PyObject_SetItem(locals, name, value);
            }
            Py_XDECREF(value);
        }
        Py_DECREF(name);
    }
    Py_DECREF(all);
    return err;
}
