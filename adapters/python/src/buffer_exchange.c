/* DLPack 1.3, also in the form before 1.0, and the CUDA Array Interface. */
#include "module.h"

#include <stdlib.h>
#include <strata/dlpack_types.h>

/* ---- capsules ---- */

static const char legacy_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

/* A consumer renames the capsule that it takes; then the tensor is its own. */
static void end_versioned(PyObject *capsule)
{
    DLManagedTensorVersioned *tensor =
        PyCapsule_IsValid(capsule, versioned_name) ? PyCapsule_GetPointer(capsule, versioned_name) : NULL;
    if (tensor)
        tensor->deleter(tensor);
}

static void end_legacy(PyObject *capsule)
{
    DLManagedTensor *tensor =
        PyCapsule_IsValid(capsule, legacy_name) ? PyCapsule_GetPointer(capsule, legacy_name) : NULL;
    if (tensor)
        tensor->deleter(tensor);
}

/* May be called on any thread, also after Python's end: it makes no call of Python. */
static void delete_legacy(DLManagedTensor *tensor)
{
    DLManagedTensorVersioned *versioned = tensor->manager_ctx;
    versioned->deleter(versioned);
    free(tensor);
}

static PyObject *versioned_capsule(DLManagedTensorVersioned *tensor)
{
    PyObject *capsule = PyCapsule_New(tensor, versioned_name, end_versioned);
    if (!capsule)
        tensor->deleter(tensor);
    return capsule;
}

static PyObject *legacy_capsule(DLManagedTensorVersioned *versioned)
{
    DLManagedTensor *tensor = malloc(sizeof *tensor);
    PyObject *capsule = NULL;
    if (tensor) {
        *tensor = (DLManagedTensor){versioned->dl_tensor, versioned, delete_legacy};
        capsule = PyCapsule_New(tensor, legacy_name, end_legacy);
    } else {
        PyErr_NoMemory();
    }
    if (!capsule) {
        free(tensor);
        versioned->deleter(versioned);
    }
    return capsule;
}

/* ---- DLPack ---- */

typedef struct export_request {
    int64_t stream;
    bool stream_given; /* false: None */
    bool behind_own_stream;
    bool versioned;
} export_request;

/* Makes and drops a tensor, which tells the kind of device (pinned and managed memory are other kinds), and after which
 * the free waits for all work of the device. Work that the stream gets later comes after recorded uses. */
static bool touch_as_tensor(buffer_object *self, int64_t stream, DLDevice *out)
{
    DLManagedTensorVersioned *tensor;
    if (!buffer_ref(self))
        return false;
    strata_status status = strata_ref_export_dlpack(self->ref, stream, NULL, &tensor);
    if (status == STRATA_ERROR_STREAM_CAPTURE) /* the program orders a graph's work */
        status = strata_ref_export_dlpack(self->ref, STRATA_DLPACK_STREAM_NONE, NULL, &tensor);
    if (status != STRATA_SUCCESS) {
        errors_raise(status);
        return false;
    }
    *out = tensor->dl_tensor.device;
    tensor->deleter(tensor);
    return true;
}

PyObject *buffer_dlpack_device(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    DLDevice device;
    return touch_as_tensor((buffer_object *)object, STRATA_DLPACK_STREAM_NONE, &device)
               ? Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id)
               : NULL;
}

/* Whether the consumer wants the memory where it is: `wish` is None or (device type, device id). Else an exception. */
static bool device_is_ours(PyObject *wish, DLDevice device)
{
    int type, id;
    if (wish == Py_None)
        return true;
    if (!PyTuple_Check(wish) || !PyArg_ParseTuple(wish, "ii", &type, &id)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "dl_device: expected a pair of numbers, not %R", wish);
        return false;
    }
    if (type == (int)device.device_type && id == device.device_id)
        return true;
    PyErr_Format(PyExc_BufferError, "the memory is on the device (%d, %d) of DLPack, and is not copied to (%d, %d)",
                 (int)device.device_type, (int)device.device_id, type, id);
    return false;
}

static bool read_version(PyObject *version, bool *versioned)
{
    int major = 0, minor = 0;
    *versioned = false;
    if (version == Py_None)
        return true;
    if (!PyTuple_Check(version) || !PyArg_ParseTuple(version, "ii", &major, &minor)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "max_version: expected a pair of numbers, not %R", version);
        return false;
    }
    *versioned = major >= DLPACK_MAJOR_VERSION;
    return true;
}

/* None is the legacy default stream; 0 is forbidden, since it would be ambiguous. */
static bool read_stream(PyObject *stream, int64_t *out)
{
    *out = stream == Py_None ? STRATA_DLPACK_STREAM_LEGACY : (int64_t)PyLong_AsLongLong(stream);
    return !PyErr_Occurred();
}

static bool read_request(PyObject *arguments, PyObject *keywords, export_request *out, PyObject **wish)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *copy = Py_None;
    *wish = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream, &version, wish, &copy) ||
        !read_stream(stream, &out->stream) || !read_version(version, &out->versioned))
        return false;
    out->stream_given = stream != Py_None;
    const int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copies <= 0)
        return copies == 0;
    PyErr_SetString(PyExc_BufferError, "the memory is exported without a copy; copy it with the importing library");
    return false;
}

enum { MOST_DIMENSIONS = 32 };

static bool read_shape(PyObject *shape, int64_t *extents, strata_dlpack_options *out)
{
    const Py_ssize_t count = PyTuple_Size(shape);
    if (count > MOST_DIMENSIONS) {
        PyErr_Format(PyExc_BufferError, "a tensor has at most %d dimensions, not %zd", MOST_DIMENSIONS, count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        extents[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    *out = (strata_dlpack_options){.size = sizeof *out, .shape = extents, .ndim = (int32_t)count};
    return !PyErr_Occurred();
}

/* A consumer that gives no stream reads memory of the host at once, as NumPy does: the host waits for the work before
 * the tensor, after which the legacy default stream comes. */
static strata_status wait_for_host(const export_request *request, strata_runtime *runtime, DLDevice device)
{
    return request->stream_given || device.device_type == kDLCUDA
               ? STRATA_SUCCESS
               : strata_runtime_stream_synchronize(runtime, CU_STREAM_LEGACY);
}

/* Whether the consumer's stream has to wait for the allocation stream, whose work may be recorded nowhere. Of a stream
 * that was named by a number nothing can be recorded: the handle may be dead. */
static bool is_behind_own_stream(buffer_object *self, const export_request *request)
{
    return request->stream != STRATA_DLPACK_STREAM_NONE &&
           (uint64_t)request->stream != convert_stream_number(self->handle) && buffer_can_record_own_stream(self);
}

/* Without the GIL. After an error there is no tensor. */
static strata_status export(const buffer_object *self, strata_ref *ref, const export_request *request,
                            const strata_dlpack_options *options, DLManagedTensorVersioned **out)
{
    strata_status status = request->behind_own_stream ? buffer_record_own_stream(self, ref) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = strata_ref_export_dlpack(ref, request->stream, options, out);
    if (status != STRATA_SUCCESS)
        return status;
    status = wait_for_host(request, runtime_of_reference(self->runtime), (*out)->dl_tensor.device);
    if (status != STRATA_SUCCESS)
        (*out)->deleter(*out);
    return status;
}

PyObject *buffer_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    buffer_object *self = (buffer_object *)object;
    export_request request;
    PyObject *wish;
    int64_t extents[MOST_DIMENSIONS];
    strata_dlpack_options options;
    DLManagedTensorVersioned *tensor;
    strata_status status;
    if (!read_request(arguments, keywords, &request, &wish) || !buffer_ref(self) ||
        !read_shape(self->shape, extents, &options))
        return NULL;
    request.behind_own_stream = is_behind_own_stream(self, &request);
    strata_ref *ref = strata_ref_clone(self->ref); /* another thread may free the buffer meanwhile */
    RUNTIME_CALL_BEGIN(self->runtime)
    status = export(self, ref, &request, &options, &tensor);
    strata_ref_release(ref);
    RUNTIME_CALL_END(self->runtime)
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    if (!device_is_ours(wish, tensor->dl_tensor.device)) {
        tensor->deleter(tensor);
        return NULL;
    }
    return request.versioned ? versioned_capsule(tensor) : legacy_capsule(tensor);
}

/* ---- the CUDA Array Interface ---- */

/* The stream that the interface names is the only one for which a reader waits. */
static int64_t stream_of_interface(buffer_object *self)
{
    return strata_runtime_supports_block_use_tracking(runtime_of_reference(self->runtime)) &&
                   buffer_can_record_own_stream(self)
               ? (int64_t)convert_stream_number(self->handle)
               : STRATA_DLPACK_STREAM_NONE;
}

/* The reader's work is not recorded: the free waits for it, as for that of a tensor's consumer. */
PyObject *buffer_array_interface(PyObject *object, void *ignored)
{
    (void)ignored;
    buffer_object *self = (buffer_object *)object;
    const element_name *element = convert_element_name(self->type);
    CUdeviceptr address;
    DLDevice device;
    if (!buffer_ref(self))
        return NULL;
    if (!element->typestr) {
        PyErr_Format(PyExc_AttributeError, "the CUDA Array Interface has no %s; use DLPack", element->numpy);
        return NULL;
    }
    if (!touch_as_tensor(self, stream_of_interface(self), &device))
        return NULL;
    const strata_status status = strata_ref_raw_device_ptr(self->ref, &address);
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    return Py_BuildValue("{s:O,s:s,s:(KO),s:O,s:i,s:K}", "shape", self->shape, "typestr", element->typestr, "data",
                         (unsigned long long)address, Py_False, "strides", Py_None, "version", 3, "stream",
                         convert_stream_number(self->handle));
}
