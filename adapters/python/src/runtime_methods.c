/* strata.Runtime: its methods. */
#include "module.h"

/* ---- streams ---- */

static PyObject *runtime_stream(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return stream_acquire((runtime_object *)self);
}

typedef strata_status stream_call(strata_runtime *runtime, CUstream stream);

static PyObject *call_with_stream(PyObject *self, PyObject *argument, stream_call *call)
{
    CUstream stream;
    strata_status status;
    if (!convert_stream(argument, &stream))
        return NULL;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    if (!runtime)
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = call(runtime, stream);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *runtime_register_stream(PyObject *self, PyObject *stream)
{
    PyObject *done = call_with_stream(self, stream, strata_runtime_register_stream);
    if (done)
        runtime_remember((runtime_object *)self, stream, true);
    return done;
}

static PyObject *runtime_unregister_stream(PyObject *self, PyObject *stream)
{
    PyObject *done = call_with_stream(self, stream, strata_runtime_unregister_stream);
    if (done)
        runtime_remember((runtime_object *)self, stream, false);
    return done;
}

static PyObject *runtime_synchronize(PyObject *self, PyObject *arguments)
{
    PyObject *stream = Py_None;
    return PyArg_ParseTuple(arguments, "|O:synchronize", &stream)
               ? call_with_stream(self, stream, strata_runtime_stream_synchronize)
               : NULL;
}

/* ---- memory ---- */

static PyObject *runtime_allocate(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    return buffer_allocate((runtime_object *)self, arguments, keywords);
}

static PyObject *runtime_reap(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    strata_status status;
    if (!runtime)
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_runtime_reap_pending(runtime);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *runtime_trim(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"keep", NULL};
    PyObject *keep_argument = NULL;
    size_t keep = 0, released = 0;
    strata_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:trim", names, &keep_argument) ||
        (keep_argument && !convert_size(keep_argument, "keep", &keep)))
        return NULL;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    if (!runtime)
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_runtime_trim(runtime, keep, &released);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? PyLong_FromSize_t(released) : errors_raise(status);
}

/* ---- reports ---- */

typedef PyObject *report_call(strata_runtime *runtime);

/* The calls release the GIL: the runtime cannot be closed meanwhile. */
static PyObject *report(PyObject *object, report_call *call)
{
    runtime_object *self = (runtime_object *)object;
    strata_runtime *runtime = runtime_of(self);
    if (!runtime)
        return NULL;
    self->calls++;
    PyObject *out = call(runtime);
    self->calls--;
    return out;
}

static PyObject *runtime_report(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"format", NULL};
    const char *format = "text";
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    if (!runtime || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|s:report", names, &format))
        return NULL;
    ((runtime_object *)self)->calls++;
    PyObject *out = report_text(runtime, format);
    ((runtime_object *)self)->calls--;
    return out;
}

static PyObject *runtime_stats(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return report(self, report_values);
}

static PyObject *runtime_usage(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return report(self, report_usage);
}

static PyObject *runtime_limits(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return report(self, report_limits);
}

static PyObject *runtime_read(PyObject *self, PyObject *arguments)
{
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    const char *name;
    uint64_t value = 0;
    strata_status status;
    if (!runtime || !PyArg_ParseTuple(arguments, "s:get", &name))
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_control(strata_runtime_stack(runtime), name, &value, NULL);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? PyLong_FromUnsignedLongLong(value) : errors_raise(status);
}

static PyObject *runtime_set(PyObject *self, PyObject *arguments)
{
    const char *name, *words;
    PyObject *value;
    strata_status status;
    if (!PyArg_ParseTuple(arguments, "sO:set", &name, &value))
        return NULL;
    PyObject *text = PyObject_Str(value), *bytes;
    words = convert_words(text, &bytes);
    Py_XDECREF(text);
    strata_runtime *runtime = words ? runtime_of((runtime_object *)self) : NULL;
    if (!runtime) {
        Py_XDECREF(bytes);
        return NULL;
    }
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_control_set_text(strata_runtime_stack(runtime), name, words);
    RUNTIME_CALL_END((runtime_object *)self)
    Py_DECREF(bytes);
    if (status == STRATA_ERROR_SYNTAX) /* of a value, not of a stack's text */
        return errors_raise_argument("value", status);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* ---- the type ---- */

static PyObject *runtime_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    runtime_object *self = (runtime_object *)object;
    if (self->runtime && !self->owned) {
        PyErr_SetString(PyExc_ValueError, "the process's runtime of a device lives as long as the process");
        return NULL;
    }
    const strata_status status = runtime_destroy(self);
    if (status == STRATA_ERROR_BUSY)
        return errors_raise_text(status, "the runtime has buffers, views or streams, threads in its budgets or "
                                         "scopes, or calls under way; free, close and leave them first, or drop "
                                         "the runtime, which ends with the last of them");
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *runtime_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return runtime_of((runtime_object *)self) ? Py_NewRef(self) : NULL;
}

/* An exception that leaves the scope often leaves buffers, which its traceback keeps: it is the one to raise, and the
 * runtime ends with the last buffer. */
static PyObject *runtime_exit(PyObject *self, PyObject *arguments)
{
    const bool forked = ((runtime_object *)self)->pid != getpid();
    const bool raised = PyTuple_Size(arguments) > 0 && PyTuple_GetItem(arguments, 0) != Py_None;
    PyObject *closed = ((runtime_object *)self)->owned && !forked ? runtime_close(self, NULL) : Py_NewRef(Py_None);
    if (closed || !raised)
        return closed;
    PyErr_Clear();
    return Py_NewRef(Py_None);
}

static PyObject *runtime_repr(PyObject *object)
{
    const runtime_object *self = (const runtime_object *)object;
    return self->runtime
               ? PyUnicode_FromFormat("<strata.Runtime of device %d: %s>", strata_runtime_device(self->runtime),
                                      strata_stack_text(strata_runtime_stack(self->runtime)))
               : PyUnicode_FromString("<strata.Runtime, closed>");
}

static PyObject *get_device(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? PyLong_FromLong(strata_runtime_device(runtime)) : NULL;
}

static PyObject *get_stack(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? convert_text(strata_stack_text(strata_runtime_stack(runtime))) : NULL;
}

static PyObject *get_address(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? PyLong_FromVoidPtr(runtime) : NULL;
}

static PyObject *get_closed(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((runtime_object *)self)->runtime == NULL);
}

static PyGetSetDef runtime_attributes[] = {
    {"device", get_device, NULL, "The device's ordinal.", NULL},
    {"stack", get_stack, NULL, "The text of the stack of layers.", NULL},
    {"address", get_address, NULL, "The strata_runtime, for ctypes and other bindings.", NULL},
    {"closed", get_closed, NULL, "Whether close() has succeeded.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef runtime_methods[] = {
    {"allocate", METHOD(runtime_allocate), METH_VARARGS | METH_KEYWORDS,
     "allocate($self, nbytes, stream=None, *, alignment=0, tag=None)\n--\n\n"
     "Allocates memory for work on `stream`, as a Buffer of bytes.\n\n"
     "nbytes    a number, or a text such as \"2GiB\"\n"
     "stream    None for the legacy default stream, a handle, or a stream of CuPy, PyTorch, Numba or cuda.core\n"
     "alignment bytes, a power of two; 0: at least 256\n"
     "tag       a name for the purpose; None: that of `with strata.tag(...)`"},
    {"stream", runtime_stream, METH_NOARGS,
     "stream($self)\n--\n\nTakes a non-blocking stream of the runtime, which goes back when it is closed."},
    {"register_stream", runtime_register_stream, METH_O,
     "register_stream($self, stream, /)\n--\n\nMakes a stream of the program known, so that its blocks are freed in "
     "its "
     "order.\n\nunregister_stream must come before the stream's destruction."},
    {"unregister_stream", runtime_unregister_stream, METH_O,
     "unregister_stream($self, stream, /)\n--\n\nEnds register_stream."},
    {"synchronize", runtime_synchronize, METH_VARARGS,
     "synchronize($self, stream=None, /)\n--\n\nWaits for all work of a stream, and lets Strata know."},
    {"reap", runtime_reap, METH_NOARGS, "reap($self)\n--\n\nWaits for every pending free."},
    {"trim", METHOD(runtime_trim), METH_VARARGS | METH_KEYWORDS,
     "trim($self, keep=0)\n--\n\nReturns free memory to the device until at most `keep` bytes stay reserved.\n\n"
     "Returns how many bytes went back."},
    {"report", METHOD(runtime_report), METH_VARARGS | METH_KEYWORDS,
     "report($self, format=\"text\")\n--\n\nWhat all layers count, as \"text\" or \"json\"."},
    {"stats", runtime_stats, METH_NOARGS,
     "stats($self)\n--\n\nThe values of all layers by name, such as \"budget.limit\"."},
    {"usage", runtime_usage, METH_NOARGS, "usage($self)\n--\n\nThe owner's bytes and blocks: live, retired, reserved."},
    {"limits", runtime_limits, METH_NOARGS,
     "limits($self)\n--\n\nWhat may still be allocated: limit, in_use, remaining, device_free; None for no limit."},
    {"get", runtime_read, METH_VARARGS, "get($self, name, /)\n--\n\nOne value of a layer, by its name in stats()."},
    {"set", runtime_set, METH_VARARGS,
     "set($self, name, value, /)\n--\n\nSets a value of a layer, such as set(\"budget.limit\", \"8GiB\")."},
    {"close", runtime_close, METH_NOARGS,
     "close($self)\n--\n\nDestroys a private runtime. An Error with the status BUSY: it has buffers or streams."},
    {"__enter__", runtime_enter, METH_NOARGS, NULL},
    {"__exit__", runtime_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef runtime_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(runtime_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot runtime_slots[] = {
    {Py_tp_doc,
     "Runtime(stack=None, device=0, stream_capacity=0, events=\"late\")\n--\n\n"
     "A private runtime: a stack of layers for one device, and its streams.\n\n"
     "stack  the layers from the outermost, such as \"budget(limit=2GiB), statistics, pool\"; None: the\n"
     "       environment's STRATA_STACK, else \"budget, logging(format=memory), statistics, pool(peers=all)\"\n"
     "events when events are recorded: \"late\" or \"early\" (strata/runtime.h)\n\n"
     "strata.runtime(device) is the one that all of a process can share."},
    {Py_tp_new, runtime_new},
    {Py_tp_dealloc, runtime_dealloc},
    {Py_tp_repr, runtime_repr},
    {Py_tp_getset, runtime_attributes},
    {Py_tp_methods, runtime_methods},
    {Py_tp_members, runtime_members},
    {0, NULL},
};

static PyType_Spec runtime_spec = {
    .name = "strata.Runtime",
    .basicsize = sizeof(runtime_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = runtime_slots,
};

int runtime_add(PyObject *module)
{
    return module_add_type(module, &runtime_spec, &runtime_type);
}
