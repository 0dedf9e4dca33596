/* The object behind strata.Runtime: the process's runtime of a device, or a private one. */
#include "module.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

PyTypeObject *runtime_type; /* set with the module */

/* The process's runtimes by ordinal, kept for its life; guarded by the GIL. */
enum { MOST_DEVICES = 64 };
static runtime_object *defaults[MOST_DEVICES];

void (*runtime_before_calls)(void); /* set when the module is made */

bool runtime_check(PyObject *object)
{
    return PyObject_TypeCheck(object, runtime_type);
}

strata_runtime *runtime_of(runtime_object *self)
{
    runtime_before_calls();
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

PyObject *runtime_made(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    PyObject *all = PyDict_New();
    for (int device = 0; all && device < MOST_DEVICES; device++) {
        strata_runtime *runtime;
        if (strata_runtime_get_if_present(device, &runtime) != STRATA_SUCCESS || !runtime)
            continue;
        PyObject *number = PyLong_FromLong(device);
        PyObject *stack = convert_text(strata_stack_text(strata_runtime_stack(runtime)));
        if (!number || !stack || PyDict_SetItem(all, number, stack) != 0)
            Py_CLEAR(all);
        Py_XDECREF(number);
        Py_XDECREF(stack);
    }
    return all;
}

static bool event_mode(const char *word, strata_event_mode *out)
{
    *out = strcmp(word, "early") == 0 ? STRATA_EVENTS_EARLY : STRATA_EVENTS_LATE;
    if (*out == STRATA_EVENTS_EARLY || strcmp(word, "late") == 0)
        return true;
    PyErr_Format(PyExc_ValueError, "events: expected \"late\" or \"early\", not \"%s\"", word);
    return false;
}

static bool capacity(Py_ssize_t streams, uint32_t *out)
{
    *out = (uint32_t)streams;
    if (streams >= 0 && (size_t)streams <= UINT32_MAX)
        return true;
    PyErr_Format(PyExc_ValueError, "stream_capacity: expected 0 to 2^32 - 1 streams, not %zd", streams);
    return false;
}

PyObject *runtime_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"stack", "device", "stream_capacity", "events", NULL};
    strata_runtime_config config = {0};
    const char *events = "late";
    Py_ssize_t streams = 0;
    strata_runtime *runtime = NULL;
    strata_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|zins:Runtime", names, &config.stack_text, &config.device,
                                     &streams, &events) ||
        !capacity(streams, &config.stream_capacity) || !event_mode(events, &config.events))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_create(&config, &runtime);
    Py_END_ALLOW_THREADS if (status != STRATA_SUCCESS) return errors_raise(status);
    PyObject *self = wrap(runtime, true);
    if (!self)
        strata_runtime_destroy(runtime);
    return self;
}

typedef struct runtime_rest {
    struct runtime_rest *next;
    runtime_end_call *end;
    void *what;
} runtime_rest;

strata_runtime *runtime_of_reference(const runtime_object *self)
{
    return self->runtime ? self->runtime : self->ending;
}

bool runtime_end_later(runtime_object *self, runtime_end_call *end, void *what)
{
    runtime_rest *one = self->ending && what ? malloc(sizeof *one) : NULL;
    if (!one)
        return false;
    *one = (runtime_rest){self->rest, end, what};
    self->rest = one;
    return true;
}

/* Ends in their order what other threads gave back while the runtime could not be destroyed; if it was, frees the list.
 */
static void end_rest(runtime_object *self)
{
    runtime_rest *first = NULL;
    for (runtime_rest *next; self->rest; self->rest = next) {
        next = self->rest->next;
        self->rest->next = first;
        first = self->rest;
    }
    self->calls++; /* nothing closes it meanwhile */
    for (runtime_rest *next; first; first = next) {
        next = first->next;
        if (self->runtime)
            first->end(self->runtime, first->what);
        free(first);
    }
    self->calls--;
}

/* After an error the runtime exists, and the next call continues. */
strata_status runtime_destroy(runtime_object *self)
{
    runtime_before_calls();
    strata_runtime *runtime = self->runtime;
    strata_status status = STRATA_SUCCESS;
    if (self->calls || self->entered || self->ending)
        return STRATA_ERROR_BUSY;
    if (!self->owned || !runtime)
        return status;
    self->runtime = NULL; /* other threads' calls find it closed meanwhile */
    self->ending = runtime;
    Py_BEGIN_ALLOW_THREADS status = strata_runtime_destroy(runtime);
    Py_END_ALLOW_THREADS self->ending = NULL;
    if (status != STRATA_SUCCESS)
        self->runtime = runtime;
    end_rest(self);
    return status;
}

/* Buffers, streams and accounts keep the object, so that only other code can have blocks now: then the runtime stays.
 */
void runtime_dealloc(PyObject *object)
{
    runtime_object *self = (runtime_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->pid == getpid() && runtime_destroy(self) == STRATA_ERROR_BUSY &&
        PyErr_ResourceWarning(NULL, 1, "a runtime has live blocks of other code; it is not destroyed") != 0)
        PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->registered);
    module_free_object(object);
}

/* ---- registered streams ---- */

/* The handle as a key; NULL with an exception. */
static PyObject *key_of(CUstream stream)
{
    return PyLong_FromVoidPtr(stream);
}

PyObject *runtime_registration(runtime_object *self, CUstream stream)
{
    PyObject *key = self->registered ? key_of(stream) : NULL;
    PyObject *found = key ? Py_XNewRef(PyDict_GetItemWithError(self->registered, key)) : NULL;
    Py_XDECREF(key);
    if (PyErr_Occurred())
        PyErr_Clear(); /* then its frees wait for the device */
    return found;
}

bool runtime_has_registered(runtime_object *self, CUstream stream)
{
    PyObject *found = runtime_registration(self, stream);
    Py_XDECREF(found);
    return found != NULL;
}

/* Keeps the handle, or drops it. Without host memory the stream is registered all the same, and counts as not so. */
void runtime_remember(runtime_object *self, PyObject *argument, bool registered)
{
    CUstream stream = NULL;
    if (!self->registered)
        self->registered = PyDict_New();
    PyObject *key = self->registered && convert_stream(argument, &stream) ? key_of(stream) : NULL;
    if (key && registered)
        PyDict_SetItem(self->registered, key, key);
    else if (key)
        PyDict_DelItem(self->registered, key);
    Py_XDECREF(key);
    if (PyErr_Occurred())
        PyErr_Clear();
}
