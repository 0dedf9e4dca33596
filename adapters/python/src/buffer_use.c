/* strata.Use: `with buffer.use(stream):` around the submission of work. */
#include "module.h"

#include <pythread.h>
#include <unistd.h>

typedef struct use_object {
    PyObject_HEAD buffer_object *buffer;
    PyObject *stream; /* keeps the stream */
    CUstream handle;
    strata_access access;
    strata_ref *ref;      /* of a use that has begun: keeps the memory */
    strata_block block;   /* of `ref` */
    unsigned long thread; /* that has begun it: the one that can finish it */
} use_object;

static PyTypeObject *use_type;

PyObject *buffer_use(PyObject *buffer, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "access", NULL};
    PyObject *stream;
    const char *word = "rw";
    CUstream handle;
    strata_access access;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|s:use", names, &stream, &word) ||
        !convert_stream(stream, &handle) || !convert_access(word, &access))
        return NULL;
    use_object *self = module_new_object(use_type);
    if (!self)
        return NULL;
    self->buffer = (buffer_object *)Py_NewRef(buffer);
    self->stream = Py_NewRef(stream);
    self->handle = handle;
    self->access = access;
    return (PyObject *)self;
}

/* Without the GIL. After an error no use has begun. */
static strata_status begin(use_object *self, strata_runtime *runtime, strata_ref *ref)
{
    strata_ref_memory memory;
    strata_status status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS) {
        self->block = *memory.block;
        status = strata_runtime_prepare_block_use(runtime, &self->block, self->handle, self->access);
    }
    if (status != STRATA_SUCCESS)
        strata_ref_release(ref);
    return status;
}

static PyObject *use_enter(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    use_object *self = (use_object *)object;
    if (self->ref) {
        PyErr_SetString(PyExc_ValueError, "the use has begun");
        return NULL;
    }
    if (!self->stream) { /* a finalizer of the circle that it was part of has kept it */
        PyErr_SetString(PyExc_ValueError, "the use has ended: the collector has taken its stream");
        return NULL;
    }
    if (!buffer_ref(self->buffer))
        return NULL;
    runtime_object *runtime = self->buffer->runtime;
    strata_ref *ref = strata_ref_clone(self->buffer->ref);
    strata_runtime *of = runtime_of_reference(runtime);
    strata_status status;
    RUNTIME_CALL_BEGIN(runtime)
    status = begin(self, of, ref);
    RUNTIME_CALL_END(runtime)
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    self->ref = ref;
    self->thread = PyThread_get_thread_ident();
    return Py_NewRef(self->buffer);
}

/* Finishes a use that has begun. */
static strata_status finish(use_object *self)
{
    runtime_object *runtime = self->buffer->runtime;
    strata_runtime *of = runtime_of_reference(runtime);
    strata_ref *ref = self->ref;
    strata_status status;
    self->ref = NULL;
    RUNTIME_CALL_BEGIN(runtime)
    status = strata_runtime_finish_block_use(of, &self->block, self->handle, self->access);
    strata_ref_release(ref);
    RUNTIME_CALL_END(runtime)
    return status;
}

/* Finishes the use after an exception, too: work may have been submitted before it. */
static PyObject *use_exit(PyObject *object, PyObject *arguments)
{
    (void)arguments;
    use_object *self = (use_object *)object;
    if (!self->ref) {
        PyErr_SetString(PyExc_ValueError, "no use has begun");
        return NULL;
    }
    if (self->thread != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "a use is left on the thread that entered it; there it can still be left");
        return NULL;
    }
    const strata_status status = finish(self);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static int use_traverse(PyObject *object, visitproc visit, void *arg)
{
    use_object *self = (use_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->buffer);
    Py_VISIT(self->stream);
    return 0;
}

/* A use that has begun is finished without its stream, whose handle may be gone: the free waits for the device. */
static int use_clear(PyObject *object)
{
    use_object *self = (use_object *)object;
    if (self->ref && self->buffer->pid == getpid()) {
        buffer_mark_unrecorded(self->ref);
        self->access = STRATA_ACCESS_NONE;
    }
    Py_CLEAR(self->stream);
    return 0;
}

/* As buffer_finalize. */
static void use_finalize(PyObject *object)
{
    use_clear(object);
}

/* A use that has begun and was dropped, say by a generator, is finished: the work may have been submitted. */
static void use_dealloc(PyObject *object)
{
    use_object *self = (use_object *)object;
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &trace);
    if (self->ref && self->buffer->pid == getpid())
        (void)finish(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->stream);
    Py_XDECREF(self->buffer);
    module_free_object(object);
}

static PyMethodDef use_methods[] = {
    {"__enter__", use_enter, METH_NOARGS, NULL},
    {"__exit__", use_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot use_slots[] = {
    {Py_tp_doc, "A use of a buffer on a stream, from Buffer.use(). It begins and ends on one thread."},
    {Py_tp_dealloc, use_dealloc},
    {Py_tp_traverse, use_traverse},
    {Py_tp_clear, use_clear},
    {Py_tp_finalize, use_finalize},
    {Py_tp_methods, use_methods},
    {0, NULL},
};

static PyType_Spec use_spec = {
    .name = "strata.Use",
    .basicsize = sizeof(use_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = use_slots,
};

int buffer_use_add(PyObject *module)
{
    return module_add_type(module, &use_spec, &use_type);
}
