/* strata.Memory: memory that any stream may use at once, for libraries that give their allocator no stream. */
#include "module.h"

#include <strata/malloc.h>
#include <unistd.h>

typedef struct memory_object {
    PyObject_HEAD PyObject *weak;
    void *address; /* NULL: freed, or of no bytes */
    size_t bytes;
    pid_t pid;
} memory_object;

static PyObject *memory_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"nbytes", NULL};
    PyObject *size;
    size_t bytes;
    strata_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:Memory", names, &size) ||
        !convert_size(size, "nbytes", &bytes))
        return NULL;
    memory_object *self = module_new_object(module_memory_type);
    if (!self)
        return NULL;
    self->bytes = bytes;
    self->pid = getpid();
    Py_BEGIN_ALLOW_THREADS status = strata_malloc(&self->address, bytes);
    Py_END_ALLOW_THREADS if (status == STRATA_SUCCESS) return (PyObject *)self;
    Py_DECREF(self);
    return errors_raise(status);
}

/* Frees the memory, in the order of the stream or behind all work of the device. After an error the object keeps it. */
static strata_status release(memory_object *self, bool ordered, CUstream stream)
{
    void *address = self->address;
    strata_status status;
    self->address = NULL;
    if (!address || self->pid != getpid())
        return STRATA_SUCCESS;
    Py_BEGIN_ALLOW_THREADS status = ordered ? strata_free_on(address, stream) : strata_free(address);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) self->address = address;
    return status;
}

static void memory_dealloc(PyObject *object)
{
    memory_object *self = (memory_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->address)
        (void)release(self, false, NULL);
    PyErr_Restore(type, value, trace);
    module_free_object(object);
}

static PyObject *memory_free(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    PyObject *given = Py_None;
    CUstream stream;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:free", names, &given) || !convert_stream(given, &stream))
        return NULL;
    const strata_status status = release((memory_object *)self, given != Py_None, stream);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static PyObject *get_ptr(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromVoidPtr(((memory_object *)self)->address);
}

static PyObject *get_nbytes(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(((memory_object *)self)->bytes);
}

PyObject *memory_info(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    size_t free_bytes, total_bytes;
    strata_status status;
    Py_BEGIN_ALLOW_THREADS status = strata_memory_info(&free_bytes, &total_bytes);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    return Py_BuildValue("(NN)", PyLong_FromSize_t(free_bytes), PyLong_FromSize_t(total_bytes));
}

static PyGetSetDef memory_attributes[] = {
    {"ptr", get_ptr, NULL, "The address; 0 of no bytes, and after free().", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes that were asked for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef memory_methods[] = {
    {"free", METHOD(memory_free), METH_VARARGS | METH_KEYWORDS,
     "free($self, stream=None)\n--\n\n"
     "Frees the memory. None waits for all work of the device first, as cudaFree does; with a stream, work on it may\n"
     "still use the memory, and the program has ordered it after all other streams' work. A second free does nothing."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef memory_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(memory_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc,
     "Memory(nbytes)\n--\n\n"
     "Memory that work on any stream may use at once, as that of cudaMalloc, from the process's runtime of the\n"
     "current device. Its end waits for all work of the device. Code that knows its stream is faster with\n"
     "Runtime.allocate."},
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_getset, memory_attributes},
    {Py_tp_methods, memory_methods},
    {Py_tp_members, memory_members},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "strata.Memory",
    .basicsize = sizeof(memory_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = memory_slots,
};

int memory_add(PyObject *module)
{
    return module_add_type(module, &memory_spec, &module_memory_type);
}
