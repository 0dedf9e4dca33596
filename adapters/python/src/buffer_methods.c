/* strata.Buffer: its methods. */
#include "module.h"

#include <string.h>

/* ---- the free and views ---- */

static PyObject *buffer_free(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    buffer_object *self = (buffer_object *)object;
    PyObject *given = Py_None;
    CUstream stream;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:free", names, &given) || !convert_stream(given, &stream))
        return NULL;
    uses_finish_dropped();
    if (!self->ref)
        Py_RETURN_NONE;
    const strata_status status = given == Py_None ? buffer_release(self) : buffer_free_on(self, stream);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* Multiplies *elements by the extent, and makes it a number of Python's own: NumPy's are none. NULL with an exception.
 */
static PyObject *extent_of(PyObject *given, size_t *elements)
{
    PyObject *number = PyNumber_Index(given);
    const long long extent = number ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    if (!PyErr_Occurred() && extent >= 0 && !__builtin_mul_overflow(*elements, (size_t)extent, elements))
        return PyLong_FromLongLong(extent);
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "shape: an extent is from 0 to 2^63 - 1, and all together are below 2^64, not %R",
                 given);
    return NULL;
}

/* Makes `given` a tuple, and counts its elements. None: one dimension with the elements that are there. */
static PyObject *shape_of(PyObject *given, size_t *elements)
{
    if (given == Py_None)
        return Py_BuildValue("(N)", PyLong_FromSize_t(*elements));
    PyObject *all = PyIndex_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    PyObject *shape = all ? PyTuple_New(PyTuple_Size(all)) : NULL;
    *elements = 1;
    for (Py_ssize_t i = 0; shape && i < PyTuple_Size(all); i++) {
        PyObject *extent = extent_of(PyTuple_GetItem(all, i), elements);
        if (!extent || PyTuple_SetItem(shape, i, extent) != 0)
            Py_CLEAR(shape);
    }
    Py_XDECREF(all);
    return shape;
}

static PyObject *buffer_view(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dtype", "shape", "offset", NULL};
    buffer_object *self = (buffer_object *)object;
    PyObject *dtype = Py_None, *given = Py_None, *at = NULL;
    strata_element type = self->type;
    size_t offset = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OOO:view", names, &dtype, &given, &at) ||
        !buffer_ref(self) || (dtype != Py_None && !convert_element(dtype, &type)) ||
        (at && !convert_size(at, "offset", &offset)))
        return NULL;
    const size_t bytes = strata_ref_len(self->ref) * strata_element_bytes(self->type);
    size_t elements = offset <= bytes ? (bytes - offset) / strata_element_bytes(type) : 0;
    PyObject *shape = shape_of(given, &elements);
    PyObject *view = shape ? buffer_make_view(self, type, offset, shape, elements) : NULL;
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
    strata_runtime *runtime = runtime_of_reference(self->runtime);
    strata_status status;
    RUNTIME_CALL_BEGIN(self->runtime)
    status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_record_block_use(runtime, memory.block, stream, access);
    strata_ref_release(ref);
    RUNTIME_CALL_END(self->runtime)
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

/* Whether use_until_free has the stream already: a loop names it in each round, by an object of its own in some
 * libraries. An object of another type counts as another stream: it may own the handle, as a view does not. */
static bool is_named(const buffer_object *self, PyObject *given, CUstream stream)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->streams); i++) {
        PyObject *kept = PyList_GetItem(self->streams, i);
        CUstream named;
        if (kept == given)
            return true;
        if (Py_TYPE(kept) != Py_TYPE(given))
            continue;
        if (!convert_stream(kept, &named))
            PyErr_Clear();
        else if (named == stream)
            return true;
    }
    return false;
}

static PyObject *buffer_use_until_free(PyObject *object, PyObject *given)
{
    buffer_object *self = (buffer_object *)object;
    CUstream stream;
    if (!convert_stream(given, &stream) || !buffer_ref(self))
        return NULL;
    PyObject *kept = buffer_stream_to_keep(self, given, stream);
    if (!kept) {
        buffer_mark_unrecorded(self->ref);
        Py_RETURN_NONE;
    }
    if (!self->streams)
        self->streams = PyList_New(0);
    const bool done = self->streams && (is_named(self, kept, stream) || PyList_Append(self->streams, kept) == 0);
    Py_DECREF(kept);
    return done ? Py_NewRef(Py_None) : NULL;
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
    const strata_status status = buffer_release((buffer_object *)object);
    return errors_leave(status);
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
    return convert_text(strata_tag_name(((buffer_object *)object)->tag));
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
    char address[2 + 16 + 1];
    PyOS_snprintf(address, sizeof address, "0x%llx", (unsigned long long)self->address);
    return self->ref ? PyUnicode_FromFormat("<strata.Buffer at %s: %s %R>", address,
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
     "streams and for work of the allocation stream; later uses and the free wait for the work. access: \"r\", \"w\" "
     "or \"rw\"."},
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
    {Py_tp_traverse, buffer_traverse},
    {Py_tp_clear, buffer_clear},
    {Py_tp_finalize, buffer_finalize},
    {Py_tp_repr, buffer_repr},
    {Py_tp_getset, buffer_attributes},
    {Py_tp_methods, buffer_methods},
    {Py_tp_members, buffer_members},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "strata.Buffer",
    .basicsize = sizeof(buffer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = buffer_slots,
};

int buffer_add(PyObject *module)
{
    return module_add_type(module, &buffer_spec, &buffer_type);
}
