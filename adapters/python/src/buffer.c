/* The object behind strata.Buffer: memory of a block, as a compact array of elements. It holds a reference
 * (strata/ref.h), so that views and exported tensors keep the memory, and the memory goes with the last of them.
 *
 * The free comes after the work that its stream has by then. Strata orders it after streams that it knows. A stream
 * that it does not know is kept by the object that named it, and its work is recorded right before the free. The handle
 * behind a bare number may be dead: then the free waits for the device. */
#include "module.h"

#include <pythread.h>
#include <strata/dlpack_types.h>
#include <unistd.h>

PyTypeObject *buffer_type; /* set with the module */

strata_ref *buffer_ref(buffer_object *self)
{
    if (!self->ref)
        errors_raise_freed();
    return self->ref;
}

/* ---- the free ---- */

/* Exports the memory for a moment: the free waits for all work of the device, as after a use by another library. */
void buffer_mark_unrecorded(strata_ref *ref)
{
    struct DLManagedTensorVersioned *tensor;
    if (strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_NONE, NULL, &tensor) == STRATA_SUCCESS)
        tensor->deleter(tensor);
}

static void record_own_stream(const buffer_object *self, strata_ref *ref, bool same_thread)
{
    if (self->stream_known || (self->handle == CU_STREAM_PER_THREAD && same_thread))
        return;
    const bool alive = self->stream && self->handle != CU_STREAM_PER_THREAD;
    if (!alive || strata_ref_record_write(ref, self->handle) != STRATA_SUCCESS)
        buffer_mark_unrecorded(ref);
}

static bool is_default_stream(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY;
}

bool buffer_can_record_own_stream(buffer_object *self)
{
    if (self->handle == CU_STREAM_PER_THREAD)
        return PyThread_get_thread_ident() == self->thread;
    return self->stream || is_default_stream(self->handle) || runtime_has_registered(self->runtime, self->handle);
}

strata_status buffer_record_own_stream(const buffer_object *self, strata_ref *ref)
{
    const strata_status status = strata_ref_record_write(ref, self->handle);
    return status == STRATA_ERROR_STREAM_CAPTURE ? STRATA_SUCCESS : status;
}

/* Whether a stream of use_until_free is still the one that was named: a number ends with its registration, and may then
 * be another stream's. */
static bool is_still_named(const buffer_object *self, PyObject *kept, CUstream stream)
{
    if (!PyIndex_Check(kept) || is_default_stream(stream))
        return true;
    PyObject *now = runtime_registration(self->runtime, stream);
    Py_XDECREF(now);
    return now == kept;
}

/* Records the work that the streams of use_until_free have by now. */
static void record_open_uses(const buffer_object *self, strata_ref *ref)
{
    strata_ref_memory memory;
    bool recorded = strata_ref_access(ref, &memory) == STRATA_SUCCESS;
    for (Py_ssize_t i = 0; i < PyList_Size(self->streams); i++) {
        CUstream stream;
        PyObject *kept = PyList_GetItem(self->streams, i);
        const bool named = convert_stream(kept, &stream) && is_still_named(self, kept, stream);
        recorded = recorded && named &&
                   strata_runtime_record_block_use(runtime_of_reference(self->runtime), memory.block, stream,
                                                   STRATA_ACCESS_READ_WRITE) == STRATA_SUCCESS;
        PyErr_Clear(); /* of a stream's object that does not tell its handle */
    }
    if (!recorded)
        buffer_mark_unrecorded(ref);
}

/* Takes the reference out of the object. A free that fails is tried again by Strata. */
strata_status buffer_release(buffer_object *self)
{
    strata_ref *ref = self->ref;
    strata_status status;
    const bool same_thread = PyThread_get_thread_ident() == self->thread;
    self->ref = NULL;
    if (!ref || self->pid != getpid())
        return STRATA_SUCCESS;
    if (self->streams)
        record_open_uses(self, ref);
    RUNTIME_CALL_BEGIN(self->runtime)
    record_own_stream(self, ref, same_thread);
    status = strata_ref_release(ref);
    RUNTIME_CALL_END(self->runtime)
    return status;
}

/* A program's stream object may hold the buffer that it names. */
int buffer_traverse(PyObject *object, visitproc visit, void *arg)
{
    buffer_object *self = (buffer_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->stream);
    Py_VISIT(self->streams);
    Py_VISIT(self->runtime);
    return 0;
}

int buffer_clear(PyObject *object)
{
    buffer_object *self = (buffer_object *)object;
    if (self->streams && self->ref && self->pid == getpid())
        buffer_mark_unrecorded(self->ref);
    Py_CLEAR(self->stream);
    Py_CLEAR(self->streams);
    return 0;
}

/* Called by the collector for a buffer in a circle. It calls the finalizers of all objects in the circle before it
 * frees one, and that of a stream may have destroyed the handle: without the stream's object the free waits for the
 * device. */
void buffer_finalize(PyObject *object)
{
    buffer_clear(object);
}

void buffer_dealloc(PyObject *object)
{
    buffer_object *self = (buffer_object *)object;
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->ref)
        (void)buffer_release(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->stream);
    Py_XDECREF(self->shape);
    Py_XDECREF(self->streams);
    Py_XDECREF(self->runtime);
    module_free_object(object);
}

/* Records a use; in a stack that records none, makes the free wait for the device. */
static strata_status record_last_use(const buffer_object *self, strata_ref *ref, CUstream stream)
{
    if (strata_runtime_supports_block_use_tracking(runtime_of_reference(self->runtime)))
        return strata_ref_record_write(ref, stream);
    buffer_mark_unrecorded(ref);
    return STRATA_SUCCESS;
}

strata_status buffer_free_on(buffer_object *self, CUstream stream)
{
    strata_ref *ref = self->ref;
    strata_status status;
    self->ref = NULL; /* other threads find it freed meanwhile */
    if (self->streams)
        record_open_uses(self, ref);
    RUNTIME_CALL_BEGIN(self->runtime)
    status = record_last_use(self, ref, stream);
    if (status == STRATA_SUCCESS)
        status = strata_ref_release(ref);
    else
        self->ref = ref;
    RUNTIME_CALL_END(self->runtime)
    return status;
}

/* ---- making ---- */

static buffer_object *new_buffer(runtime_object *runtime, CUstream handle, PyObject *stream)
{
    buffer_object *self = module_new_object(buffer_type);
    if (!self)
        return NULL;
    self->runtime = (runtime_object *)Py_NewRef(runtime);
    self->handle = handle;
    self->stream = PyIndex_Check(stream) || stream == Py_None ? NULL : Py_NewRef(stream);
    self->stream_known = is_default_stream(handle) || stream_check(stream) || runtime_has_registered(runtime, handle);
    self->thread = PyThread_get_thread_ident();
    self->pid = getpid();
    return self;
}

/* Without the GIL. After an error nothing is allocated. */
static strata_status allocate_ref(strata_runtime *runtime, const strata_request *request, strata_ref **out)
{
    strata_block block;
    strata_status status = strata_runtime_allocate_request(runtime, request, &block);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_ref_adopt(runtime, &block, STRATA_ELEMENT_U8, request->bytes, out);
    if (status != STRATA_SUCCESS)
        strata_runtime_deallocate_on(runtime, &block, request->stream);
    return status;
}

/* Sets what follows from the reference. */
static bool describe(buffer_object *self, PyObject *shape)
{
    strata_ref_memory memory;
    const strata_status status = strata_ref_access(self->ref, &memory);
    if (status != STRATA_SUCCESS) {
        errors_raise(status);
        return false;
    }
    self->address = memory.address;
    self->tag = memory.block->tag;
    self->type = strata_ref_type(self->ref);
    self->shape = shape ? Py_NewRef(shape) : Py_BuildValue("(N)", PyLong_FromSize_t(strata_ref_len(self->ref)));
    return self->shape != NULL;
}

PyObject *buffer_allocate(runtime_object *runtime, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"nbytes", "stream", "alignment", "tag", NULL};
    PyObject *bytes, *stream = Py_None, *tag = Py_None;
    Py_ssize_t alignment = 0;
    strata_request request = {0};
    strata_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$nO:allocate", names, &bytes, &stream, &alignment,
                                     &tag) ||
        !convert_size(bytes, "nbytes", &request.bytes) || !convert_stream(stream, &request.stream) ||
        !convert_tag(tag, &request.tag))
        return NULL;
    request.alignment = (size_t)alignment;
    strata_runtime *of = runtime_of(runtime);
    buffer_object *self = of ? new_buffer(runtime, request.stream, stream) : NULL;
    if (!self)
        return NULL;
    RUNTIME_CALL_BEGIN(runtime)
    status = allocate_ref(of, &request, &self->ref);
    RUNTIME_CALL_END(runtime)
    if (status == STRATA_SUCCESS && describe(self, NULL))
        return (PyObject *)self;
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    Py_DECREF(self);
    return NULL;
}

/* ---- views ---- */

/* A NULL result with an exception: it was freed, or stale, or does not fit. */
PyObject *buffer_make_view(buffer_object *self, strata_element type, size_t offset, PyObject *shape, size_t elements)
{
    buffer_object *view = new_buffer(self->runtime, self->handle, self->stream ? self->stream : Py_None);
    strata_status status = STRATA_SUCCESS;
    if (!view)
        return NULL;
    view->stream_known = self->stream_known;
    view->thread = self->thread;
    if (buffer_ref(self)) {
        status = strata_ref_view(self->ref, offset, elements, type, &view->ref);
        if (status == STRATA_SUCCESS && describe(view, shape))
            return (PyObject *)view;
    }
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    Py_DECREF(view);
    return NULL;
}

/* ---- open uses ---- */

PyObject *buffer_stream_to_keep(buffer_object *self, PyObject *given, CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD)
        return NULL; /* another thread's, if that frees */
    return !PyIndex_Check(given) || is_default_stream(stream) ? Py_NewRef(given)
                                                              : runtime_registration(self->runtime, stream);
}
