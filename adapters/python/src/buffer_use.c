/* strata.Use: `with buffer.use(stream):` around the submission of work. */
#include "module.h"

#include <pythread.h>
#include <stdlib.h>
#include <unistd.h>

/* A use that has begun. */
typedef struct begun_use {
    CUstream handle;
    strata_access access;
    strata_ref *ref;      /* keeps the memory; NULL: none has begun */
    strata_block block;   /* of `ref` */
    unsigned long thread; /* that has begun it: the one that can finish it */
} begun_use;

typedef struct use_object {
    PyObject_HEAD buffer_object *buffer;
    PyObject *stream; /* keeps the stream */
    begun_use use;
} use_object;

/* A begun use whose object another thread dropped. */
typedef struct dropped_use {
    struct dropped_use *next;
    begun_use use;
    buffer_object *buffer; /* strong references */
    PyObject *stream;
} dropped_use;

static dropped_use *dropped; /* guarded by the GIL */

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
    self->use.handle = handle;
    self->use.access = access;
    return (PyObject *)self;
}

/* Without the GIL. After an error no use has begun. */
static strata_status begin(use_object *self, strata_runtime *runtime, strata_ref *ref, bool behind_own_stream)
{
    begun_use *use = &self->use;
    strata_ref_memory memory;
    strata_status status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS && behind_own_stream)
        status = buffer_record_own_stream(self->buffer, ref);
    if (status == STRATA_SUCCESS) {
        use->block = *memory.block;
        status = strata_runtime_prepare_block_use(runtime, &use->block, use->handle, use->access);
    }
    if (status != STRATA_SUCCESS)
        strata_ref_release(ref);
    return status;
}

static bool is_behind_own_stream(const use_object *self, strata_runtime *runtime)
{
    return convert_stream_number(self->use.handle) != convert_stream_number(self->buffer->handle) &&
           strata_runtime_supports_block_use_tracking(runtime) && buffer_can_record_own_stream(self->buffer);
}

static PyObject *use_enter(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    use_object *self = (use_object *)object;
    uses_finish_dropped();
    if (self->use.ref) {
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
    const bool behind_own_stream = is_behind_own_stream(self, of);
    strata_status status;
    self->use.ref = ref; /* other threads find it begun meanwhile */
    self->use.thread = PyThread_get_thread_ident();
    RUNTIME_CALL_BEGIN(runtime)
    status = begin(self, of, ref, behind_own_stream);
    RUNTIME_CALL_END(runtime)
    if (status == STRATA_SUCCESS)
        return Py_NewRef(self->buffer);
    self->use.ref = NULL;
    return errors_raise(status);
}

/* Finishes a use that has begun. */
static strata_status finish(begun_use *use, runtime_object *runtime)
{
    strata_runtime *of = runtime_of_reference(runtime);
    strata_ref *ref = use->ref;
    strata_status status;
    use->ref = NULL;
    RUNTIME_CALL_BEGIN(runtime)
    status = strata_runtime_finish_block_use(of, &use->block, use->handle, use->access);
    strata_ref_release(ref);
    RUNTIME_CALL_END(runtime)
    return status;
}

/* Whether a thread can finish the use: the one that has begun it, and of other threads than the block's own any but
 * that. */
static bool can_finish(const begun_use *use, const buffer_object *buffer, unsigned long thread)
{
    return use->thread == thread || (use->thread != buffer->thread && thread != buffer->thread);
}

/* Takes a use that this thread can finish out of the list; NULL: there is none. */
static dropped_use *take_dropped(unsigned long thread)
{
    dropped_use **link = &dropped, *one;
    while ((one = *link) && !can_finish(&one->use, one->buffer, thread))
        link = &one->next;
    if (one)
        *link = one->next;
    return one;
}

void uses_finish_dropped(void)
{
    const unsigned long thread = PyThread_get_thread_ident();
    for (dropped_use *one; dropped && (one = take_dropped(thread));) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        if (one->buffer->pid == getpid())
            (void)finish(&one->use, one->buffer->runtime);
        Py_DECREF(one->buffer);
        Py_XDECREF(one->stream);
        free(one);
        PyErr_Restore(type, value, trace);
    }
}

/* Leaves a use to a thread that can finish it. Without host memory the memory stays. */
static void leave_to_others(use_object *self)
{
    dropped_use *one = malloc(sizeof *one);
    if (!one)
        return;
    *one = (dropped_use){dropped, self->use, (buffer_object *)Py_NewRef(self->buffer), Py_XNewRef(self->stream)};
    dropped = one;
    self->use.ref = NULL;
}

/* Finishes the use after an exception, too: work may have been submitted before it. */
static PyObject *use_exit(PyObject *object, PyObject *arguments)
{
    (void)arguments;
    use_object *self = (use_object *)object;
    if (!self->use.ref) {
        PyErr_SetString(PyExc_ValueError, "no use has begun");
        return NULL;
    }
    if (self->use.thread != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "a use is left on the thread that entered it; there it can still be left");
        return NULL;
    }
    const strata_status status = finish(&self->use, self->buffer->runtime);
    return errors_leave(status);
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
    if (self->use.ref && self->buffer->pid == getpid()) {
        buffer_mark_unrecorded(self->use.ref);
        self->use.access = STRATA_ACCESS_NONE;
    }
    Py_CLEAR(self->stream);
    return 0;
}

/* As buffer_finalize. */
static void use_finalize(PyObject *object)
{
    use_clear(object);
}

/* A use that has begun and was dropped, say by a generator, is finished: the work may have been submitted. Where this
 * thread, perhaps the collector's, cannot do so, another one does at its next call. */
static void use_dealloc(PyObject *object)
{
    use_object *self = (use_object *)object;
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &trace);
    const bool begun = self->use.ref && self->buffer->pid == getpid();
    if (begun && can_finish(&self->use, self->buffer, PyThread_get_thread_ident()))
        (void)finish(&self->use, self->buffer->runtime);
    else if (begun)
        leave_to_others(self);
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
    runtime_before_calls = uses_finish_dropped;
    return module_add_type(module, &use_spec, &use_type);
}
