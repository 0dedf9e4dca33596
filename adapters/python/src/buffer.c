/* strata.Buffer: memory of a block, as a compact array of elements. It holds a reference (strata/ref.h), so that views
 * and exported tensors keep the memory, and the memory goes with the last of them.
 *
 * The free comes after the work that its stream has by then. Strata orders it after streams that it knows. A stream
 * that it does not know is kept by the object that named it, and its work is recorded right before the free. The handle
 * behind a bare number may be dead: then the free waits for the device. */
#include "module.h"

#include <pythread.h>
#include <strata/dlpack_types.h>
#include <unistd.h>

static PyTypeObject *buffer_type;

strata_ref *buffer_ref(buffer_object *self)
{
    if (!self->ref)
        errors_raise_freed();
    return self->ref;
}

/* ---- the free ---- */

/* As for memory that another library has used: the free waits for all work of the device. */
static void mark_unrecorded(strata_ref *ref)
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
        mark_unrecorded(ref);
}

/* Records the work that the streams of use_until_free have by now. */
static void record_open_uses(const buffer_object *self, strata_ref *ref)
{
    strata_ref_memory memory;
    bool recorded = strata_ref_access(ref, &memory) == STRATA_SUCCESS;
    for (Py_ssize_t i = 0; i < PyList_Size(self->streams); i++) {
        CUstream stream;
        const bool named = convert_stream(PyList_GetItem(self->streams, i), &stream);
        recorded = recorded && named &&
                   strata_runtime_record_block_use(self->runtime->runtime, memory.block, stream,
                                                   STRATA_ACCESS_READ_WRITE) == STRATA_SUCCESS;
    }
    PyErr_Clear();
    if (!recorded)
        mark_unrecorded(ref);
}

/* Takes the reference out of the object. A free that fails is tried again by Strata. */
static strata_status release(buffer_object *self)
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

static void buffer_dealloc(PyObject *object)
{
    buffer_object *self = (buffer_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->ref)
        (void)release(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->stream);
    Py_XDECREF(self->shape);
    Py_XDECREF(self->streams);
    Py_XDECREF(self->runtime);
    module_free_object(object);
}

/* Where uses are not recorded, the free waits for the device. */
static strata_status record_last_use(const buffer_object *self, strata_ref *ref, CUstream stream)
{
    if (strata_runtime_supports_block_use_tracking(self->runtime->runtime))
        return strata_ref_record_write(ref, stream);
    mark_unrecorded(ref);
    return STRATA_SUCCESS;
}

static strata_status free_on(buffer_object *self, CUstream stream)
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

static PyObject *buffer_free(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    buffer_object *self = (buffer_object *)object;
    PyObject *given = Py_None;
    CUstream stream;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:free", names, &given) || !convert_stream(given, &stream))
        return NULL;
    if (!self->ref)
        Py_RETURN_NONE;
    const strata_status status = given == Py_None ? release(self) : free_on(self, stream);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* ---- making ---- */

static bool is_default_stream(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY;
}

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
    strata_runtime *of = runtime_of(runtime);
    strata_status status;
    if (!of ||
        !PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$nO:allocate", names, &bytes, &stream, &alignment,
                                     &tag) ||
        !convert_size(bytes, &request.bytes) || !convert_stream(stream, &request.stream) ||
        !convert_tag(tag, &request.tag))
        return NULL;
    request.alignment = (size_t)alignment;
    buffer_object *self = new_buffer(runtime, request.stream, stream);
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

/* Makes `given` a tuple, and counts its elements; NULL `given`: what is there. */
static PyObject *shape_of(PyObject *given, size_t *elements)
{
    if (given == Py_None)
        return Py_BuildValue("(N)", PyLong_FromSize_t(*elements));
    PyObject *shape = PyIndex_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    *elements = 1;
    for (Py_ssize_t i = 0; shape && i < PyTuple_Size(shape); i++) {
        const size_t extent = PyLong_AsSize_t(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred()) {
            Py_CLEAR(shape);
        } else if (__builtin_mul_overflow(*elements, extent, elements)) {
            PyErr_Format(PyExc_ValueError, "shape: %R has more elements than a size can hold", shape);
            Py_CLEAR(shape);
        }
    }
    return shape;
}

/* A NULL result with an exception: it was freed, or stale, or does not fit. */
static PyObject *make_view(buffer_object *self, strata_element type, size_t offset, PyObject *shape, size_t elements)
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

static PyObject *buffer_view(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dtype", "shape", "offset", NULL};
    buffer_object *self = (buffer_object *)object;
    PyObject *dtype = Py_None, *given = Py_None, *at = NULL;
    strata_element type = self->type;
    size_t offset = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OOO:view", names, &dtype, &given, &at) ||
        !buffer_ref(self) || (dtype != Py_None && !convert_element(dtype, &type)) || (at && !convert_size(at, &offset)))
        return NULL;
    const size_t bytes = strata_ref_len(self->ref) * strata_element_bytes(self->type);
    size_t elements = offset <= bytes ? (bytes - offset) / strata_element_bytes(type) : 0;
    PyObject *shape = shape_of(given, &elements);
    PyObject *view = shape ? make_view(self, type, offset, shape, elements) : NULL;
    Py_XDECREF(shape);
    return view;
}

/* ---- uses ---- */

static PyObject *buffer_record(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "access", NULL};
    buffer_object *self = (buffer_object *)object;
    PyObject *given;
    const char *word = "rw";
    CUstream stream;
    strata_access access;
    strata_ref_memory memory;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|s:record", names, &given, &word) ||
        !convert_stream(given, &stream) || !convert_access(word, &access) || !buffer_ref(self))
        return NULL;
    strata_ref *ref = strata_ref_clone(self->ref); /* another thread may free the buffer meanwhile */
    strata_status status;
    RUNTIME_CALL_BEGIN(self->runtime)
    status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_record_block_use(self->runtime->runtime, memory.block, stream, access);
    strata_ref_release(ref);
    RUNTIME_CALL_END(self->runtime)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* Whether the handle is good at the free: kept by its object, or known. */
static bool is_alive_at_the_free(buffer_object *self, PyObject *given, CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD)
        return false; /* another thread's, if that frees */
    return !PyIndex_Check(given) || is_default_stream(stream) || runtime_has_registered(self->runtime, stream);
}

static PyObject *buffer_use_until_free(PyObject *object, PyObject *given)
{
    buffer_object *self = (buffer_object *)object;
    CUstream stream;
    if (!convert_stream(given, &stream) || !buffer_ref(self))
        return NULL;
    if (!is_alive_at_the_free(self, given, stream)) {
        mark_unrecorded(self->ref);
        Py_RETURN_NONE;
    }
    if (!self->streams)
        self->streams = PyList_New(0);
    if (!self->streams || PyList_Append(self->streams, given) != 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *buffer_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return buffer_ref((buffer_object *)self) ? Py_NewRef(self) : NULL;
}

static PyObject *buffer_exit(PyObject *object, PyObject *arguments)
{
    (void)arguments;
    const strata_status status = release((buffer_object *)object);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *get_ptr(PyObject *object, void *ignored)
{
    (void)ignored;
    strata_ref *ref = buffer_ref((buffer_object *)object);
    CUdeviceptr address;
    if (!ref)
        return NULL;
    const strata_status status = strata_ref_raw_device_ptr(ref, &address);
    return status == STRATA_SUCCESS ? PyLong_FromUnsignedLongLong(address) : errors_raise(status);
}

static PyObject *get_nbytes(PyObject *object, void *ignored)
{
    (void)ignored;
    strata_ref *ref = buffer_ref((buffer_object *)object);
    return ref ? PyLong_FromSize_t(strata_ref_len(ref) * strata_element_bytes(strata_ref_type(ref))) : NULL;
}

static PyObject *get_shape(PyObject *object, void *ignored)
{
    (void)ignored;
    return Py_NewRef(((buffer_object *)object)->shape);
}

static PyObject *get_dtype(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyUnicode_FromString(convert_element_name(((buffer_object *)object)->type)->numpy);
}

static PyObject *get_stream(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromVoidPtr(((buffer_object *)object)->handle);
}

static PyObject *get_tag(PyObject *object, void *ignored)
{
    (void)ignored;
    const char *name = strata_tag_name(((buffer_object *)object)->tag);
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static PyObject *get_runtime(PyObject *object, void *ignored)
{
    (void)ignored;
    return Py_NewRef(((buffer_object *)object)->runtime);
}

static PyObject *get_freed(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((buffer_object *)object)->ref == NULL);
}

static PyObject *buffer_repr(PyObject *object)
{
    const buffer_object *self = (const buffer_object *)object;
    return self->ref ? PyUnicode_FromFormat("<strata.Buffer at %p: %s %R>", (void *)(uintptr_t)self->address,
                                            convert_element_name(self->type)->numpy, self->shape)
                     : PyUnicode_FromString("<strata.Buffer, freed>");
}

static PyGetSetDef buffer_attributes[] = {
    {"ptr", get_ptr, NULL, "The address of the first element; 0 without elements.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"shape", get_shape, NULL, "Elements of each dimension.", NULL},
    {"dtype", get_dtype, NULL, "The element type, by NumPy's name.", NULL},
    {"stream", get_stream, NULL, "The handle of the allocation stream.", NULL},
    {"tag", get_tag, NULL, "The name given to the memory's purpose.", NULL},
    {"runtime", get_runtime, NULL, "The runtime that the memory is of.", NULL},
    {"freed", get_freed, NULL, "Whether the buffer was freed.", NULL},
    {"__cuda_array_interface__", buffer_array_interface, NULL, "The CUDA Array Interface, version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef buffer_methods[] = {
    {"free", METHOD(buffer_free), METH_VARARGS | METH_KEYWORDS,
     "free($self, stream=None)\n--\n\n"
     "Frees the memory after the work that its streams have so far; of a buffer with views, after the last of them.\n\n"
     "stream  work on it may still use the memory; None: the allocation stream. A second free does nothing."},
    {"view", METHOD(buffer_view), METH_VARARGS | METH_KEYWORDS,
     "view($self, dtype=None, shape=None, offset=0)\n--\n\n"
     "The same memory with another element type or shape, from `offset` bytes on. It keeps the memory."},
    {"use", METHOD(buffer_use), METH_VARARGS | METH_KEYWORDS,
     "use($self, stream, access=\"rw\")\n--\n\n"
     "A context manager around the submission of work to `stream`: the stream first waits for conflicting uses on "
     "other\n"
     "streams; later uses and the free wait for the work. access: \"r\", \"w\" or \"rw\"."},
    {"record", METHOD(buffer_record), METH_VARARGS | METH_KEYWORDS,
     "record($self, stream, access=\"rw\")\n--\n\nRecords work that `stream` has so far: later uses and the free "
     "wait."},
    {"use_until_free", buffer_use_until_free, METH_O,
     "use_until_free($self, stream, /)\n--\n\n"
     "The free of this buffer comes after all work that `stream` has by then, too. The stream's object is kept; the\n"
     "handle behind a bare number may be dead by then, and the free waits for the device."},
    {"__dlpack__", METHOD(buffer_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nThe memory as a tensor."},
    {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS, NULL},
    {"__enter__", buffer_enter, METH_NOARGS, NULL},
    {"__exit__", buffer_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef buffer_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(buffer_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc,
     "Device memory as a compact array, from Runtime.allocate(). It is freed with its last view and user.\n\n"
     "The free comes after the work of the allocation stream. A stream object is kept by the buffer; the\n"
     "handle behind a bare number may be dead by then, and the free waits for the whole device, unless the\n"
     "stream was registered or free() names one."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_repr, buffer_repr},
    {Py_tp_getset, buffer_attributes},
    {Py_tp_methods, buffer_methods},
    {Py_tp_members, buffer_members},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "strata.Buffer",
    .basicsize = sizeof(buffer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

int buffer_add(PyObject *module)
{
    return module_add_type(module, &buffer_spec, &buffer_type);
}
