/* The extension module strata._core: Strata's runtime, memory and scopes as Python objects.
 *
 * It is built for the stable ABI of Python 3.10, and links libstrata alone. An object owns what its struct names, and
 * gives it back in its deallocator, which makes no call in a forked child. Calls that may wait release the GIL: none
 * of Strata's callbacks enters Python, so that neither lock is ever waited for under the other. */
#ifndef STRATA_PYTHON_MODULE_H
#define STRATA_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
/* An empty line keeps Python.h first: it sets feature macros. */
#include <strata/strata.h>
#include <sys/types.h>

typedef struct runtime_object {
    PyObject_HEAD PyObject *weak;
    strata_runtime *runtime;   /* NULL: closed */
    strata_runtime *ending;    /* not NULL: a thread tries to destroy it, without the GIL; then `runtime` is NULL */
    struct runtime_rest *rest; /* what was given back meanwhile, latest first */
    PyObject *registered;      /* handles that register_stream made known, each with itself; NULL: none */
    bool owned;                /* made by Runtime(): destroyed with the object */
    unsigned calls;            /* that other threads are in without the GIL; guarded by the GIL */
    unsigned entered;          /* budgets and scopes of it that threads are in; guarded by the GIL */
    pid_t pid;                 /* of the process that made it */
} runtime_object;

/* Around a call of Strata with the runtime, without the GIL. The object cannot be closed meanwhile. */
#define RUNTIME_CALL_BEGIN(object) \
    (object)->calls++;             \
    Py_BEGIN_ALLOW_THREADS
#define RUNTIME_CALL_END(object) Py_END_ALLOW_THREADS(object)->calls--;

typedef struct buffer_object {
    PyObject_HEAD PyObject *weak;
    runtime_object *runtime;
    strata_ref *ref;     /* NULL: freed */
    PyObject *stream;    /* the object that names the allocation stream, and keeps it; NULL: a bare handle */
    PyObject *shape;     /* a tuple */
    PyObject *streams;   /* a list of the streams of use_until_free, which it keeps; NULL: none */
    CUdeviceptr address; /* of the first element; 0 without elements */
    CUstream handle;     /* the allocation stream */
    strata_element type;
    strata_tag tag;
    unsigned long thread; /* that allocated it, for CU_STREAM_PER_THREAD */
    bool stream_known;    /* to Strata, which frees in its order by itself */
    pid_t pid;
} buffer_object;

/* An element type by NumPy's name, and as in __array_interface__; NULL: it has none there. */
typedef struct element_name {
    const char *numpy, *typestr;
} element_name;

/* errors.c: the exceptions, by status. Each returns NULL. */
int errors_add(PyObject *module);
PyObject *errors_raise(strata_status status);
PyObject *errors_raise_text(strata_status status, const char *text);
/* For an argument that is wrong by itself: strata.InvalidValueError, with a message that begins with its name. */
PyObject *errors_raise_argument(const char *name, strata_status status);
PyObject *errors_raise_freed(void);

/* The result of __exit__: None after a success. In a forked child nothing is left to be done, and none of it fails:
 * what leaves the scope there, such as SystemExit, is raised. */
PyObject *errors_leave(strata_status status);

/* convert.c: arguments. Each returns false with an exception set, which names sizes by `name`. */
bool convert_stream(PyObject *object, CUstream *out);
bool convert_size(PyObject *object, const char *name, size_t *out);
/* A limit: None is none, and 0 is refused, which C takes for none. */
bool convert_limit(PyObject *object, const char *name, strata_amount *out);
bool convert_element(PyObject *object, strata_element *out);
/* Returns a text as UTF-8 without zero bytes; *bytes holds it, and is the caller's. NULL with an exception, also for a
 * NULL `text`. */
const char *convert_words(PyObject *text, PyObject **bytes);
/* A text from outside, such as the environment, whose bytes outside of UTF-8 become U+FFFD. */
PyObject *convert_text(const char *text);

bool convert_tag(PyObject *object, strata_tag *out);
bool convert_access(const char *text, strata_access *out);
const element_name *convert_element_name(strata_element type);

/* The number of a stream in __cuda_array_interface__ and DLPack. */
unsigned long long convert_stream_number(CUstream stream);

/* object.c */

/* Adds a type to the module and keeps a reference in *type. */
int module_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

/* A new object of `type`, all zero behind its head. */
void *module_new_object(PyTypeObject *type);

/* The last call of each deallocator: frees the object, and drops its reference to its type. */
void module_free_object(PyObject *self);

/* The type Memory: what is one is no stream, whatever it has. Written when the module is made. */
extern PyTypeObject *module_memory_type;

/* runtime.c, runtime_methods.c */
extern PyTypeObject *runtime_type;
int runtime_add(PyObject *module);
PyObject *runtime_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);
void runtime_dealloc(PyObject *self);

/* Destroys a private runtime; after an error it exists, and the next call continues. */
strata_status runtime_destroy(runtime_object *self);
PyObject *runtime_made(PyObject *module, PyObject *ignored);
PyObject *runtime_get_default(PyObject *module, PyObject *arguments);

/* The runtime of an open object; NULL with an exception: it is closed. Conversions of arguments run code of the program
 * that may close it: ask after them. */
strata_runtime *runtime_of(runtime_object *self);

/* What each call of a runtime does first, set when the module is made: finishes the uses that threads dropped. */
extern void (*runtime_before_calls)(void);

bool runtime_check(PyObject *object);

/* The runtime for the holder of a reference to its memory, for which it is not destroyed. */
strata_runtime *runtime_of_reference(const runtime_object *self);

/* While a thread tries to destroy the runtime: calls `end` once that has failed; after success `what` has ended with
 * the runtime. False: no thread does, or there is no host memory. */
typedef void runtime_end_call(strata_runtime *runtime, void *what);
bool runtime_end_later(runtime_object *self, runtime_end_call *end, void *what);

/* Whether register_stream made the handle known. runtime_remember keeps that it did, or forgets it. */
bool runtime_has_registered(runtime_object *self, CUstream stream);

/* The handle as an object of this one registration: a later one of an equal handle has another. NULL: not registered.
 */
PyObject *runtime_registration(runtime_object *self, CUstream stream);
void runtime_remember(runtime_object *self, PyObject *stream, bool registered);

/* stream.c */
int stream_add(PyObject *module);
PyObject *stream_acquire(runtime_object *runtime);

/* Whether the object is one of this module, whose stream the runtime knows. */
bool stream_check(PyObject *object);

/* buffer.c, buffer_methods.c */
extern PyTypeObject *buffer_type;
int buffer_add(PyObject *module);
void buffer_dealloc(PyObject *self);
int buffer_traverse(PyObject *self, visitproc visit, void *arg);
int buffer_clear(PyObject *self);
void buffer_finalize(PyObject *self);
PyObject *buffer_allocate(runtime_object *runtime, PyObject *arguments, PyObject *keywords);

/* The reference of a live buffer; NULL with an exception: it was freed. */
strata_ref *buffer_ref(buffer_object *self);

/* Frees it in the order of its allocation stream, or of another one. A free that fails is tried again by Strata. */
strata_status buffer_release(buffer_object *self);
strata_status buffer_free_on(buffer_object *self, CUstream stream);

/* Makes the memory's free wait for all work of the device. */
void buffer_mark_unrecorded(strata_ref *ref);

/* Whether work can be recorded on the allocation stream: its handle is sure to be good on this thread. */
bool buffer_can_record_own_stream(buffer_object *self);

/* Records work of the allocation stream so far, which may be recorded nowhere. Work that is being captured runs with
 * its graph, which the program orders. Without the GIL. */
strata_status buffer_record_own_stream(const buffer_object *self, strata_ref *ref);

/* What use_until_free keeps of a stream that is sure to be good at the free, or not to be taken for another one there:
 * the object that named it, or the registration of a number. NULL, without an exception: neither. */
PyObject *buffer_stream_to_keep(buffer_object *self, PyObject *given, CUstream stream);

/* A view; NULL with an exception: the buffer was freed, or the view does not fit. */
PyObject *buffer_make_view(buffer_object *self, strata_element type, size_t offset, PyObject *shape, size_t elements);

/* buffer_use.c */
int buffer_use_add(PyObject *module);
PyObject *buffer_use(PyObject *self, PyObject *arguments, PyObject *keywords);

/* Finishes uses that threads dropped which could not finish them, and this thread can. */
void uses_finish_dropped(void);

/* buffer_exchange.c: other libraries' protocols */
PyObject *buffer_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *buffer_dlpack_device(PyObject *self, PyObject *ignored);
PyObject *buffer_array_interface(PyObject *self, void *ignored);

/* memory.c */
int memory_add(PyObject *module);
PyObject *memory_info(PyObject *module, PyObject *ignored);

/* scopes.c: what a thread has entered, innermost first. */
typedef enum scope_kind { SCOPE_TAG, SCOPE_BUDGET, SCOPE_STATISTICS, SCOPE_KINDS } scope_kind;

typedef struct scope_node {
    struct scope_node *outer;
    PyObject *owner; /* a strong reference */
    void *previous;  /* what the thread was in before */
} scope_node;

/* The innermost scope of the kind that this thread is in; NULL: none. */
scope_node *scopes_innermost(scope_kind kind);

/* Adds a scope; false with an exception: no memory. */
bool scopes_push(scope_kind kind, PyObject *owner, void *previous);

/* Whether `owner` is the innermost scope; else an exception is set. */
bool scopes_check(scope_kind kind, PyObject *owner);
void scopes_pop(scope_kind kind);

/* tag.c, account.c, statistics.c */
int tag_add(PyObject *module);
int account_add(PyObject *module);
int statistics_add(PyObject *module);

/* report.c: texts and dictionaries of a stack */
PyObject *report_text(strata_runtime *runtime, const char *format);
PyObject *report_values(strata_runtime *runtime);
PyObject *report_usage(strata_runtime *runtime);
PyObject *report_limits(strata_runtime *runtime);

/* process.c: the driver, its devices, sizes */
extern PyMethodDef process_methods[];

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

#endif
