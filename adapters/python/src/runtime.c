/* strata.Runtime: the process's runtime of a device, or a private one. */
#include "module.h"

#include <string.h>
#include <unistd.h>

static PyTypeObject *runtime_type;

/* The process's runtimes by ordinal, kept for its life; guarded by the GIL. */
enum { MOST_DEVICES = 64 };
static runtime_object *defaults[MOST_DEVICES];

bool runtime_check(PyObject *object)
{
    return PyObject_TypeCheck(object, runtime_type);
}

strata_runtime *runtime_of(runtime_object *self)
{
    if (!self->runtime)
        PyErr_SetString(PyExc_ValueError, "the runtime is closed");
    return self->runtime;
}

/* ---- making and ending ---- */

static PyObject *wrap(strata_runtime *runtime, bool owned)
{
    runtime_object *self = module_new_object(runtime_type);
    if (!self)
        return NULL;
    self->runtime = runtime;
    self->owned = owned;
    self->pid = getpid();
    return (PyObject *)self;
}

PyObject *runtime_get_default(PyObject *module, PyObject *arguments)
{
    (void)module;
    int device = 0;
    strata_runtime *runtime = NULL;
    strata_status status;
    if (!PyArg_ParseTuple(arguments, "|i:runtime", &device))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_get(device, &runtime);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    if (device >= MOST_DEVICES)
        return wrap(runtime, false);
    if (!defaults[device] || defaults[device]->runtime != runtime) { /* another one after a reset of the device */
        PyObject *made = wrap(runtime, false);
        if (!made)
            return NULL;
        runtime_object *before = defaults[device];
        defaults[device] = (runtime_object *)made;
        Py_XDECREF(before);
    }
    return Py_NewRef(defaults[device]);
}

static bool event_mode(const char *word, strata_event_mode *out)
{
    *out = strcmp(word, "early") == 0 ? STRATA_EVENTS_EARLY : STRATA_EVENTS_LATE;
    if (*out == STRATA_EVENTS_EARLY || strcmp(word, "late") == 0)
        return true;
    PyErr_Format(PyExc_ValueError, "events: expected \"late\" or \"early\", not \"%s\"", word);
    return false;
}

static PyObject *runtime_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"stack", "device", "stream_capacity", "events", NULL};
    strata_runtime_config config = {0};
    const char *events = "late";
    strata_runtime *runtime = NULL;
    strata_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|ziIs:Runtime", names, &config.stack_text, &config.device,
                                     &config.stream_capacity, &events) ||
        !event_mode(events, &config.events))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_create(&config, &runtime);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    PyObject *self = wrap(runtime, true);
    if (!self)
        strata_runtime_destroy(runtime);
    return self;
}

/* After an error the runtime exists, and the next call continues. */
static strata_status destroy(runtime_object *self)
{
    strata_runtime *runtime = self->runtime;
    strata_status status = STRATA_SUCCESS;
    if (!self->owned || !runtime)
        return status;
    if (self->calls)
        return STRATA_ERROR_BUSY;
    self->runtime = NULL; /* other threads find it closed meanwhile */
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_destroy(runtime);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) self->runtime = runtime;
    return status;
}

static PyObject *runtime_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    runtime_object *self = (runtime_object *)object;
    if (self->runtime && !self->owned) {
        PyErr_SetString(PyExc_ValueError, "the process's runtime of a device lives as long as the process");
        return NULL;
    }
    const strata_status status = destroy(self);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* Buffers, streams and accounts keep the object, so that only other code can have blocks now: then the runtime stays.
 */
static void runtime_dealloc(PyObject *object)
{
    runtime_object *self = (runtime_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->pid == getpid() && destroy(self) == STRATA_ERROR_BUSY &&
        PyErr_ResourceWarning(NULL, 1, "a runtime has live blocks of other code; it is not destroyed") != 0)
        PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->registered);
    module_free_object(object);
}

/* ---- streams ---- */

static PyObject *runtime_stream(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return stream_acquire((runtime_object *)self);
}

typedef strata_status stream_call(strata_runtime *runtime, CUstream stream);

static PyObject *call_with_stream(PyObject *self, PyObject *argument, stream_call *call)
{
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    CUstream stream;
    strata_status status;
    if (!runtime || !convert_stream(argument, &stream))
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = call(runtime, stream);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* The handle as a key of the set; NULL with an exception. */
static PyObject *key_of(CUstream stream)
{
    return PyLong_FromVoidPtr(stream);
}

bool runtime_has_registered(runtime_object *self, CUstream stream)
{
    PyObject *key = self->registered ? key_of(stream) : NULL;
    const bool found = key && PySet_Contains(self->registered, key) == 1;
    Py_XDECREF(key);
    if (PyErr_Occurred())
        PyErr_Clear(); /* then its frees wait for the device */
    return found;
}

/* Keeps the handle, or drops it. Without host memory the stream is registered all the same, and counts as not so. */
static void remember(runtime_object *self, PyObject *argument, bool registered)
{
    CUstream stream = NULL;
    if (!self->registered)
        self->registered = PySet_New(NULL);
    PyObject *key = self->registered && convert_stream(argument, &stream) ? key_of(stream) : NULL;
    if (key && registered)
        PySet_Add(self->registered, key);
    else if (key)
        PySet_Discard(self->registered, key);
    Py_XDECREF(key);
    if (PyErr_Occurred())
        PyErr_Clear();
}

static PyObject *runtime_register_stream(PyObject *self, PyObject *stream)
{
    PyObject *done = call_with_stream(self, stream, strata_runtime_register_stream);
    if (done)
        remember((runtime_object *)self, stream, true);
    return done;
}

static PyObject *runtime_unregister_stream(PyObject *self, PyObject *stream)
{
    PyObject *done = call_with_stream(self, stream, strata_runtime_unregister_stream);
    if (done)
        remember((runtime_object *)self, stream, false);
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
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    PyObject *keep_argument = NULL;
    size_t keep = 0, released = 0;
    strata_status status;
    if (!runtime || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:trim", names, &keep_argument) ||
        (keep_argument && !convert_size(keep_argument, &keep)))
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_runtime_trim(runtime, keep, &released);
    RUNTIME_CALL_END((runtime_object *)self)
    return status == STRATA_SUCCESS ? PyLong_FromSize_t(released) : errors_raise(status);
}

/* ---- reports ---- */

static PyObject *runtime_report(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"format", NULL};
    const char *format = "text";
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    if (!runtime || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|s:report", names, &format))
        return NULL;
    return report_text(runtime, format);
}

static PyObject *runtime_stats(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? report_values(runtime) : NULL;
}

static PyObject *runtime_usage(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? report_usage(runtime) : NULL;
}

static PyObject *runtime_limits(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    return runtime ? report_limits(runtime) : NULL;
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
    strata_runtime *runtime = runtime_of((runtime_object *)self);
    const char *name, *words;
    PyObject *value;
    strata_status status;
    if (!runtime || !PyArg_ParseTuple(arguments, "sO:set", &name, &value))
        return NULL;
    PyObject *text = PyObject_Str(value);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    Py_XDECREF(text);
    if (!bytes || !(words = PyBytes_AsString(bytes)))
        return NULL;
    RUNTIME_CALL_BEGIN((runtime_object *)self)
    status = strata_control_set_text(strata_runtime_stack(runtime), name, words);
    RUNTIME_CALL_END((runtime_object *)self)
    Py_DECREF(bytes);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* ---- the type ---- */

static PyObject *runtime_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return runtime_of((runtime_object *)self) ? Py_NewRef(self) : NULL;
}

static PyObject *runtime_exit(PyObject *self, PyObject *arguments)
{
    (void)arguments;
    return ((runtime_object *)self)->owned ? runtime_close(self, NULL) : Py_NewRef(Py_None);
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
    return runtime ? PyUnicode_FromString(strata_stack_text(strata_runtime_stack(runtime))) : NULL;
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
    {Py_tp_doc, "Runtime(stack=None, device=0, stream_capacity=0, events=\"late\")\n--\n\n"
                "A private runtime: a stack of layers for one device, and its streams.\n\n"
                "stack  the layers from the outermost, such as \"budget(limit=2GiB), statistics, pool\"; None: the\n"
                "       environment's STRATA_STACK, else \"budget, logging(format=memory), statistics, pool\"\n"
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
