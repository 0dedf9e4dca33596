/* A stack's reports as Python objects. Strata's callbacks run without the GIL and fill host memory, from which the
 * objects are made afterwards. */
#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

typedef struct gathered_text {
    char *bytes;
    size_t length, room;
    bool failed; /* no host memory */
} gathered_text;

static void gather_text(const char *text, size_t length, void *data)
{
    gathered_text *to = data;
    if (to->room - to->length < length && !to->failed) {
        const size_t room = 2 * to->room + length + 4096;
        char *larger = realloc(to->bytes, room);
        to->failed = !larger;
        to->bytes = larger ? larger : to->bytes;
        to->room = larger ? room : to->room;
    }
    if (to->failed)
        return;
    memcpy(to->bytes + to->length, text, length);
    to->length += length;
}

PyObject *report_text(strata_runtime *runtime, const char *format)
{
    const strata_format as = strcmp(format, "json") == 0 ? STRATA_FORMAT_JSON : STRATA_FORMAT_TEXT;
    gathered_text text = {0};
    strata_status status;
    if (as == STRATA_FORMAT_TEXT && strcmp(format, "text") != 0)
        return PyErr_Format(PyExc_ValueError, "format: expected \"text\" or \"json\", not \"%s\"", format);
    Py_BEGIN_ALLOW_THREADS status = strata_stats_print(strata_runtime_stack(runtime), as, gather_text, &text);
    Py_END_ALLOW_THREADS PyObject *out = NULL;
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    else if (text.failed)
        PyErr_NoMemory();
    else
        out = PyUnicode_DecodeUTF8(text.bytes ? text.bytes : "", (Py_ssize_t)text.length, "replace");
    free(text.bytes);
    return out;
}

/* ---- values ---- */

typedef struct gathered_value {
    char name[128];
    uint64_t value;
} gathered_value;

typedef struct gathered_values {
    gathered_value *values;
    size_t count, room;
    bool failed;
} gathered_values;

static void gather_value(const char *name, const strata_value *what, uint64_t value, void *data)
{
    (void)what;
    gathered_values *to = data;
    if (to->count == to->room && !to->failed) {
        const size_t room = 2 * to->room + 64;
        gathered_value *larger = realloc(to->values, room * sizeof *larger);
        to->failed = !larger;
        to->values = larger ? larger : to->values;
        to->room = larger ? room : to->room;
    }
    if (to->failed)
        return;
    gathered_value *next = &to->values[to->count++];
    snprintf(next->name, sizeof next->name, "%s", name);
    next->value = value;
}

static PyObject *dictionary_of(const gathered_values *values)
{
    PyObject *out = PyDict_New();
    for (size_t i = 0; out && i < values->count; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values->values[i].value);
        if (!value || PyDict_SetItemString(out, values->values[i].name, value) != 0)
            Py_CLEAR(out);
        Py_XDECREF(value);
    }
    return out;
}

PyObject *report_values(strata_runtime *runtime)
{
    gathered_values values = {0};
    Py_BEGIN_ALLOW_THREADS strata_control_visit(strata_runtime_stack(runtime), gather_value, &values);
    Py_END_ALLOW_THREADS PyObject *out = values.failed ? PyErr_NoMemory() : dictionary_of(&values);
    free(values.values);
    return out;
}

/* ---- counts ---- */

PyObject *report_usage(strata_runtime *runtime)
{
    strata_usage usage;
    strata_status status;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_usage(runtime, &usage);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "live_bytes", PyLong_FromSize_t(usage.live_bytes), "retired_bytes",
        PyLong_FromSize_t(usage.retired_bytes), "outstanding_bytes", PyLong_FromSize_t(usage.bytes_outstanding),
        "live_blocks", PyLong_FromSize_t(usage.live_blocks), "reserved_bytes", PyLong_FromSize_t(usage.reserved_bytes),
        "reserved_peak", PyLong_FromSize_t(usage.reserved_peak), "reserved_free",
        PyLong_FromSize_t(usage.reserved_free), "largest_free", PyLong_FromSize_t(usage.largest_free), "limit",
        PyLong_FromSize_t(usage.limit));
}

PyObject *report_limits(strata_runtime *runtime)
{
    strata_runtime_budget budget;
    strata_status status;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_budget_snapshot(runtime, &budget);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    return Py_BuildValue(
        "{s:N,s:n,s:N,s:n}", "limit", budget.limit ? PyLong_FromSize_t(budget.limit) : Py_NewRef(Py_None), "in_use",
        (Py_ssize_t)budget.in_use, "remaining", budget.limit ? PyLong_FromSize_t(budget.remaining) : Py_NewRef(Py_None),
        "device_free", (Py_ssize_t)budget.device_free);
}
