/* strata.Stream: a stream of a runtime's pool. */
#include "module.h"

#include <unistd.h>

typedef struct stream_object {
    PyObject_HEAD PyObject *weak;
    runtime_object *runtime;
    CUstream handle; /* NULL: closed */
    pid_t pid;
} stream_object;

static PyTypeObject *stream_type;

bool stream_check(PyObject *object)
{
    return PyObject_TypeCheck(object, stream_type);
}

PyObject *stream_acquire(runtime_object *runtime)
{
    strata_runtime *of = runtime_of(runtime);
    CUstream handle;
    strata_status status;
    if (!of)
        return NULL;
    RUNTIME_CALL_BEGIN(runtime)
    status = strata_runtime_stream_acquire(of, &handle);
    RUNTIME_CALL_END(runtime)
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    stream_object *self = module_new_object(stream_type);
    if (!self) {
        strata_runtime_stream_release(of, handle);
        return NULL;
    }
    self->handle = handle;
    self->pid = getpid();
    self->runtime = (runtime_object *)Py_NewRef(runtime);
    return (PyObject *)self;
}

static void release_later(strata_runtime *runtime, void *handle)
{
    Py_BEGIN_ALLOW_THREADS strata_runtime_stream_release(runtime, handle);
    Py_END_ALLOW_THREADS
}

static strata_status release(stream_object *self)
{
    const CUstream handle = self->handle;
    strata_status status = STRATA_SUCCESS;
    self->handle = NULL;
    if (runtime_end_later(self->runtime, release_later, handle) || !handle || !self->runtime->runtime)
        return status;
    RUNTIME_CALL_BEGIN(self->runtime)
    status = strata_runtime_stream_release(self->runtime->runtime, handle);
    RUNTIME_CALL_END(self->runtime)
    if (status != STRATA_SUCCESS)
        self->handle = handle;
    return status;
}

static void stream_dealloc(PyObject *object)
{
    stream_object *self = (stream_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->pid == getpid())
        release(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->runtime);
    module_free_object(object);
}

static CUstream open_handle(PyObject *self)
{
    const CUstream handle = ((stream_object *)self)->handle;
    if (!handle)
        PyErr_SetString(PyExc_ValueError, "the stream is closed");
    return handle;
}

static PyObject *stream_close(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    const strata_status status = release((stream_object *)self);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *stream_exit(PyObject *self, PyObject *arguments)
{
    (void)arguments;
    return errors_leave(release((stream_object *)self));
}

static PyObject *stream_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return open_handle(self) ? Py_NewRef(self) : NULL;
}

static PyObject *stream_synchronize(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    const CUstream handle = open_handle(self);
    strata_runtime *runtime = handle ? runtime_of(((stream_object *)self)->runtime) : NULL;
    strata_status status;
    if (!runtime)
        return NULL;
    RUNTIME_CALL_BEGIN(((stream_object *)self)->runtime)
    status = strata_runtime_stream_synchronize(runtime, handle);
    RUNTIME_CALL_END(((stream_object *)self)->runtime)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *stream_protocol(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    const CUstream handle = open_handle(self);
    return handle ? Py_BuildValue("(iN)", 0, PyLong_FromVoidPtr(handle)) : NULL;
}

static PyObject *get_handle(PyObject *self, void *ignored)
{
    (void)ignored;
    const CUstream handle = open_handle(self);
    return handle ? PyLong_FromVoidPtr(handle) : NULL;
}

static PyObject *get_closed(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((stream_object *)self)->handle == NULL);
}

static PyGetSetDef stream_attributes[] = {
    {"handle", get_handle, NULL, "The CUstream.", NULL},
    {"closed", get_closed, NULL, "Whether the stream has gone back to its runtime.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef stream_methods[] = {
    {"synchronize", stream_synchronize, METH_NOARGS, "synchronize($self)\n--\n\nWaits for all work of the stream."},
    {"close", stream_close, METH_NOARGS, "close($self)\n--\n\nGives the stream back to its runtime."},
    {"__cuda_stream__", stream_protocol, METH_NOARGS, NULL},
    {"__enter__", stream_enter, METH_NOARGS, NULL},
    {"__exit__", stream_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stream_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(stream_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, "A non-blocking stream of a runtime's pool, from Runtime.stream()."},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_getset, stream_attributes},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "strata.Stream",
    .basicsize = sizeof(stream_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stream_slots,
};

int stream_add(PyObject *module)
{
    return module_add_type(module, &stream_spec, &stream_type);
}
