/* strata.scope: counts what threads allocate inside of it. */
#include "module.h"

#include <unistd.h>

typedef struct count_object {
    PyObject_HEAD PyObject *weak;
    runtime_object *runtime;
    strata_statistics_scope *scope; /* NULL: closed */
    struct count_object *around;
    unsigned entered;                    /* by threads, and scopes inside that are open; guarded by the GIL */
    strata_statistics_counters counters; /* of a closed scope */
    pid_t pid;
} count_object;

static PyTypeObject *count_type;

static strata_resource *statistics_layer(strata_runtime *runtime)
{
    strata_stack *stack = strata_runtime_stack(runtime);
    strata_resource *layer = strata_stack_layer(stack, "statistics", 0);
    if (!layer)
        PyErr_Format(PyExc_ValueError, "the stack \"%s\" has no layer statistics; begin its text with \"statistics, \"",
                     strata_stack_text(stack));
    return layer;
}

static count_object *current_scope(const runtime_object *runtime)
{
    for (scope_node *node = scopes_innermost(SCOPE_STATISTICS); node; node = node->outer) {
        count_object *scope = (count_object *)node->owner;
        if (scope->runtime->runtime == runtime->runtime && scope->scope)
            return scope;
    }
    return NULL;
}

static PyObject *make_scope(runtime_object *runtime, const char *name)
{
    strata_resource *layer = runtime_of(runtime) ? statistics_layer(runtime->runtime) : NULL;
    count_object *self = layer ? module_new_object(count_type) : NULL;
    if (!self)
        return NULL;
    count_object *around = current_scope(runtime);
    self->pid = getpid();
    self->runtime = (runtime_object *)Py_NewRef(runtime);
    const strata_status status = strata_statistics_scope_open(layer, around ? around->scope : NULL, name, &self->scope);
    if (status == STRATA_SUCCESS) {
        self->around = (count_object *)Py_XNewRef(around);
        if (around)
            around->entered++;
        return (PyObject *)self;
    }
    self->scope = NULL;
    Py_DECREF(self);
    return errors_raise(status);
}

static PyObject *count_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"name", "runtime", NULL};
    const char *name = NULL;
    PyObject *given = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|z$O:scope", names, &name, &given))
        return NULL;
    if (given != Py_None && !runtime_check(given)) {
        PyErr_Format(PyExc_TypeError, "runtime: expected a strata.Runtime, not %R", (PyObject *)Py_TYPE(given));
        return NULL;
    }
    PyObject *none = PyTuple_New(0);
    PyObject *runtime = !none ? NULL : given == Py_None ? runtime_get_default(NULL, none) : Py_NewRef(given);
    PyObject *self = runtime ? make_scope((runtime_object *)runtime, name) : NULL;
    Py_XDECREF(runtime);
    Py_XDECREF(none);
    return self;
}

static void close_later(strata_runtime *runtime, void *scope)
{
    (void)runtime;
    strata_statistics_scope_close(scope, NULL);
}

static void leave_around(count_object *self)
{
    self->scope = NULL;
    if (self->around)
        self->around->entered--;
}

static strata_status close_scope(count_object *self)
{
    if (!self->scope || !self->runtime->runtime)
        return STRATA_SUCCESS;
    const strata_status status = strata_statistics_scope_close(self->scope, &self->counters);
    if (status == STRATA_SUCCESS)
        leave_around(self);
    return status;
}

static PyObject *count_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    count_object *self = (count_object *)object;
    if (self->scope && self->entered) {
        PyErr_SetString(PyExc_ValueError, "a thread is in the scope, or a scope inside of it is open");
        return NULL;
    }
    const strata_status status = close_scope(self);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static void count_dealloc(PyObject *object)
{
    count_object *self = (count_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->pid == getpid() && runtime_end_later(self->runtime, close_later, self->scope))
        leave_around(self);
    else if (self->pid == getpid())
        close_scope(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->around);
    Py_XDECREF(self->runtime);
    module_free_object(object);
}

static PyObject *count_enter(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    count_object *self = (count_object *)object;
    strata_statistics_scope *previous;
    if (!self->scope) {
        PyErr_SetString(PyExc_ValueError, "the scope is closed");
        return NULL;
    }
    if (!runtime_of(self->runtime))
        return NULL;
    strata_resource *layer = statistics_layer(self->runtime->runtime);
    const strata_status status = strata_statistics_scope_enter(layer, self->scope, &previous);
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    if (!scopes_push(SCOPE_STATISTICS, object, previous)) {
        strata_statistics_scope_enter(layer, previous, NULL);
        return NULL;
    }
    self->entered++;
    self->runtime->entered++;
    return Py_NewRef(object);
}

static PyObject *count_exit(PyObject *object, PyObject *arguments)
{
    (void)arguments;
    count_object *self = (count_object *)object;
    if (!scopes_check(SCOPE_STATISTICS, object))
        return NULL;
    const strata_status status = strata_statistics_scope_enter(statistics_layer(self->runtime->runtime),
                                                               scopes_innermost(SCOPE_STATISTICS)->previous, NULL);
    self->entered--;
    self->runtime->entered--;
    scopes_pop(SCOPE_STATISTICS);
    return errors_leave(status);
}

static PyObject *counter(const strata_statistics_counter *of)
{
    return Py_BuildValue("{s:L,s:L,s:L}", "current", (long long)of->current, "peak", (long long)of->peak, "total",
                         (long long)of->total);
}

static PyObject *count_read(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    count_object *self = (count_object *)object;
    if (self->scope && !runtime_of(self->runtime))
        return NULL; /* it has ended with its stack */
    const strata_status status =
        self->scope ? strata_statistics_scope_read(self->scope, &self->counters) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    return Py_BuildValue("{s:N,s:N,s:L}", "bytes", counter(&self->counters.bytes), "blocks",
                         counter(&self->counters.blocks), "requested", (long long)self->counters.requested);
}

static PyMethodDef count_methods[] = {
    {"read", count_read, METH_NOARGS,
     "read($self)\n--\n\nbytes and blocks, each with current, peak and total, and the bytes requested. Also when "
     "closed."},
    {"close", count_close, METH_NOARGS, "close($self)\n--\n\nEnds the scope; read() goes on telling its counts."},
    {"__enter__", count_enter, METH_NOARGS, NULL},
    {"__exit__", count_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef count_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(count_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot count_slots[] = {
    {Py_tp_doc, "scope(name=None, *, runtime=None)\n--\n\n"
                "Counts what threads allocate while they are in it, until it is freed. A scope that is made inside of\n"
                "another one counts there, too. Several threads can be in one."},
    {Py_tp_new, count_new},
    {Py_tp_dealloc, count_dealloc},
    {Py_tp_methods, count_methods},
    {Py_tp_members, count_members},
    {0, NULL},
};

static PyType_Spec count_spec = {
    .name = "strata.scope",
    .basicsize = sizeof(count_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = count_slots,
};

int statistics_add(PyObject *module)
{
    return module_add_type(module, &count_spec, &count_type);
}
