/* What belongs to the process: the driver, its devices, modes, texts. */
#include "module.h"

#include <string.h>

static PyObject *choose_driver(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *choice;
    if (!PyArg_ParseTuple(arguments, "s:choose_driver", &choice))
        return NULL;
    const strata_status status = strata_driver_choose(choice);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *driver_info(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    strata_driver_info info;
    strata_status status;
    Py_BEGIN_ALLOW_THREADS status = strata_driver_get_info(&info);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    return Py_BuildValue("{s:N,s:N,s:O,s:i,s:i}", "choice", convert_text(info.choice), "library",
                         convert_text(info.library), "simulated", info.simulated ? Py_True : Py_False, "version",
                         info.version, "device_count", info.device_count);
}

static PyObject *device_info(PyObject *module, PyObject *arguments)
{
    (void)module;
    int device = 0;
    strata_device_info info;
    strata_status status;
    if (!PyArg_ParseTuple(arguments, "|i:device_info", &device))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = strata_device_get_info(device, &info);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    return Py_BuildValue(
        "{s:i,s:s,s:y#,s:(ii),s:n,s:n,s:O,s:O,s:O}", "ordinal", info.ordinal, "name", info.name, "uuid",
        (const char *)info.uuid, (Py_ssize_t)sizeof info.uuid, "compute_capability", info.compute_major,
        info.compute_minor, "total_bytes", (Py_ssize_t)info.total_bytes, "free_bytes", (Py_ssize_t)info.free_bytes,
        "memory_pools", info.memory_pools ? Py_True : Py_False, "virtual_memory",
        info.virtual_memory ? Py_True : Py_False, "managed_memory", info.managed_memory ? Py_True : Py_False);
}

static PyObject *parse_size(PyObject *module, PyObject *size)
{
    (void)module;
    size_t bytes;
    return convert_size(size, "size", &bytes) ? PyLong_FromSize_t(bytes) : NULL;
}

static PyObject *default_stack(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return convert_text(strata_runtime_default_stack());
}

static PyObject *set_mode(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *word;
    if (!PyArg_ParseTuple(arguments, "s:set_mode", &word))
        return NULL;
    const bool sanitizer = strcmp(word, "sanitizer") == 0;
    if (!sanitizer && strcmp(word, "normal") != 0)
        return PyErr_Format(PyExc_ValueError, "mode: expected \"normal\" or \"sanitizer\", not \"%s\"", word);
    const strata_status status = strata_set_mode(sanitizer ? STRATA_MODE_SANITIZER : STRATA_MODE_NORMAL);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *version(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyUnicode_FromString(strata_version_string());
}

static PyObject *stream_handle(PyObject *module, PyObject *stream)
{
    (void)module;
    CUstream handle;
    return convert_stream(stream, &handle) ? PyLong_FromVoidPtr(handle) : NULL;
}

PyMethodDef process_methods[] = {
    {"choose_driver", choose_driver, METH_VARARGS,
     "choose_driver(choice, /)\n--\n\nThe driver, before its first use: \"cuda\", \"sim\", \"auto\", or a library's "
     "path."},
    {"driver_info", driver_info, METH_NOARGS,
     "driver_info()\n--\n\nOpens the driver, if necessary: choice, library, simulated, version, device_count."},
    {"device_info", device_info, METH_VARARGS,
     "device_info(device=0, /)\n--\n\nA device's name, memory and abilities."},
    {"memory_info", memory_info, METH_NOARGS,
     "memory_info()\n--\n\nFree and total bytes of the current device, which a budget makes as small as itself."},
    {"parse_size", parse_size, METH_O, "parse_size(size, /)\n--\n\nBytes of a size such as \"1.5GiB\"."},
    {"default_stack", default_stack, METH_NOARGS, "default_stack()\n--\n\nThe stack of runtimes that name none."},
    {"set_mode", set_mode, METH_VARARGS,
     "set_mode(mode, /)\n--\n\nHow stacks are made from now on: \"normal\", or \"sanitizer\" for compute-sanitizer."},
    {"version", version, METH_NOARGS, "version()\n--\n\nThe version of the C library."},
    {"stream_handle", stream_handle, METH_O,
     "stream_handle(stream, /)\n--\n\nThe CUstream of a stream of any library, as a number; None is 0."},
    {NULL, NULL, 0, NULL},
};
