/* Statuses as exceptions: a class for each kind that a program handles, below strata.Error. */
#include "module.h"

#include <string.h>

typedef enum error_class {
    ERROR_PLAIN,
    ERROR_OUT_OF_MEMORY,
    ERROR_OUT_OF_BUDGET,
    ERROR_HOST_MEMORY,
    ERROR_VALUE,
    ERROR_SYNTAX,
    ERROR_FREED,
    ERROR_NO_DRIVER,
    ERROR_CLASSES
} error_class;

static PyObject *classes[ERROR_CLASSES]; /* filled with the module; kept for the life of the process */

static const struct {
    const char *name;
    error_class base;
    PyObject **builtin; /* a second base, so that generic handlers catch it; NULL: none */
    const char *doc;
} descriptions[ERROR_CLASSES] = {
    [ERROR_PLAIN] = {"strata.Error", ERROR_PLAIN, &PyExc_RuntimeError,
                     "A call of Strata failed. `status` is its status, `status_name` its name; `driver_code`,\n"
                     "`driver_name` and `driver_call` tell of the CUDA call that failed, if one did. Sizes are bytes:\n"
                     "`requested`, `in_use`, `remaining`, `limit`, `reserved_free`, `largest_free`, `device_free`."},
    [ERROR_OUT_OF_MEMORY] = {"strata.OutOfMemoryError", ERROR_PLAIN, &PyExc_MemoryError,
                             "The device has not the memory. Also a MemoryError."},
    [ERROR_OUT_OF_BUDGET] = {"strata.OutOfBudgetError", ERROR_OUT_OF_MEMORY, NULL,
                             "The request does not fit in a budget."},
    [ERROR_HOST_MEMORY] = {"strata.HostMemoryError", ERROR_PLAIN, &PyExc_MemoryError,
                           "The host has not the memory. Also a MemoryError."},
    [ERROR_VALUE] = {"strata.InvalidValueError", ERROR_PLAIN, &PyExc_ValueError, "An argument is wrong."},
    [ERROR_SYNTAX] = {"strata.StackSyntaxError", ERROR_VALUE, NULL, "A stack's text is wrong."},
    [ERROR_FREED] = {"strata.FreedError", ERROR_PLAIN, NULL,
                     "The memory was freed, or can no longer be used: its runtime or the device's context has ended."},
    [ERROR_NO_DRIVER] = {"strata.DriverNotFoundError", ERROR_PLAIN, NULL, "No CUDA driver could be opened."},
};

static error_class class_of(strata_status status)
{
    switch (status) {
    case STRATA_ERROR_OUT_OF_MEMORY:
        return ERROR_OUT_OF_MEMORY;
    case STRATA_ERROR_OUT_OF_BUDGET:
        return ERROR_OUT_OF_BUDGET;
    case STRATA_ERROR_OUT_OF_HOST_MEMORY:
        return ERROR_HOST_MEMORY;
    case STRATA_ERROR_INVALID_VALUE:
        return ERROR_VALUE;
    case STRATA_ERROR_SYNTAX:
        return ERROR_SYNTAX;
    case STRATA_ERROR_USE_AFTER_FREE:
    case STRATA_ERROR_DOUBLE_FREE:
    case STRATA_ERROR_STALE:
        return ERROR_FREED;
    case STRATA_ERROR_DRIVER_NOT_FOUND:
        return ERROR_NO_DRIVER;
    default:
        return ERROR_PLAIN;
    }
}

static PyObject *make_class(error_class which)
{
    PyObject *own = which == ERROR_PLAIN ? NULL : classes[descriptions[which].base];
    PyObject *builtin = descriptions[which].builtin ? *descriptions[which].builtin : NULL;
    PyObject *bases = own && builtin ? PyTuple_Pack(2, own, builtin) : PyTuple_Pack(1, own ? own : builtin);
    if (!bases)
        return NULL;
    PyObject *made = PyErr_NewExceptionWithDoc(descriptions[which].name, descriptions[which].doc, bases, NULL);
    Py_DECREF(bases);
    return made;
}

int errors_add(PyObject *module)
{
    for (error_class i = 0; i < ERROR_CLASSES; i++) {
        const char *name = descriptions[i].name + sizeof "strata." - 1;
        classes[i] = make_class(i);
        if (!classes[i] || PyModule_AddObjectRef(module, name, classes[i]) != 0)
            return -1;
    }
    return 0;
}

/* Sets an attribute to a new value, and drops the value. */
static bool set(PyObject *object, const char *name, PyObject *value)
{
    const bool done = value && PyObject_SetAttrString(object, name, value) == 0;
    Py_XDECREF(value);
    return done;
}

static PyObject *text_or_none(const char *text)
{
    return Py_BuildValue("z", text);
}

static bool set_sizes(PyObject *object, const strata_error *error)
{
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {
        {"requested", error->requested},         {"in_use", error->in_use},
        {"remaining", error->remaining},         {"limit", error->limit},
        {"reserved_free", error->reserved_free}, {"largest_free", error->largest_free},
        {"device_free", error->device_free},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!set(object, sizes[i].name, PyLong_FromSize_t(sizes[i].value)))
            return false;
    return true;
}

/* `error` is of this failure, or empty. */
static void raise_class(error_class which, strata_status status, const strata_error *error)
{
    const char *message = error->message[0] ? error->message : strata_status_text(status);
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *class = classes[which];
    PyObject *object = text ? PyObject_CallFunctionObjArgs(class, text, NULL) : NULL;
    Py_XDECREF(text);
    if (object && set(object, "status", PyLong_FromLong(status)) &&
        set(object, "status_name", PyUnicode_FromString(strata_status_name(status))) &&
        set(object, "driver_code", PyLong_FromLong((long)error->driver_code)) &&
        set(object, "driver_name", text_or_none(error->driver_name)) &&
        set(object, "driver_call", text_or_none(error->driver_call)) && set_sizes(object, error))
        PyErr_SetObject(class, object);
    Py_XDECREF(object);
}

static void raise_error(strata_status status, const strata_error *error)
{
    raise_class(class_of(status), status, error);
}

PyObject *errors_raise(strata_status status)
{
    static const strata_error empty;
    const strata_error *last = strata_last_error();
    raise_error(status, last->status == status ? last : &empty);
    return NULL;
}

PyObject *errors_raise_text(strata_status status, const char *text)
{
    strata_error error = {0};
    snprintf(error.message, sizeof error.message, "%s", text);
    raise_error(status, &error);
    return NULL;
}

PyObject *errors_raise_argument(const char *name, strata_status status)
{
    const strata_error *last = strata_last_error();
    strata_error error = {0};
    snprintf(error.message, sizeof error.message, "%.40s: %.460s", name,
             last->status == status ? last->message : strata_status_text(status));
    raise_class(ERROR_VALUE, status, &error);
    return NULL;
}

PyObject *errors_leave(strata_status status)
{
    return status == STRATA_SUCCESS || status == STRATA_ERROR_FORKED ? Py_NewRef(Py_None) : errors_raise(status);
}

PyObject *errors_raise_freed(void)
{
    return errors_raise_text(STRATA_ERROR_USE_AFTER_FREE, "the buffer was freed");
}
