/* strata.budget: an account of a stack's budget, which threads enter. Calls that read or end an account keep the GIL,
 * so that none of them meets another. */
#include "module.h"

#include <unistd.h>

typedef struct account_object {
    PyObject_HEAD PyObject *weak;
    runtime_object *runtime;
    strata_budget_account *account; /* NULL: closed */
    struct account_object *parent;  /* NULL: the layer's base account */
    unsigned entered;               /* by threads, and accounts below that are open; guarded by the GIL */
    pid_t pid;
} account_object;

static PyTypeObject *account_type;

/* An account ends with its stack, too. */
static bool is_open(const account_object *self)
{
    return self->account && self->runtime->runtime;
}

static strata_budget_account *open_account(account_object *self)
{
    if (is_open(self))
        return self->account;
    PyErr_SetString(PyExc_ValueError, self->account ? "the budget's runtime is closed" : "the budget is closed");
    return NULL;
}

/* The innermost account that this thread is in, of the runtime; NULL: none. */
static account_object *current_account(const runtime_object *runtime)
{
    for (scope_node *node = scopes_innermost(SCOPE_BUDGET); node; node = node->outer) {
        account_object *account = (account_object *)node->owner;
        if (account->runtime->runtime == runtime->runtime && account->account)
            return account;
    }
    return NULL;
}

static strata_budget_account *base_account(strata_runtime *runtime)
{
    strata_stack *stack = strata_runtime_stack(runtime);
    strata_resource *layer = strata_stack_layer(stack, "budget", 0);
    if (!layer)
        PyErr_Format(PyExc_ValueError, "the stack \"%s\" has no layer budget; begin its text with \"budget, \"",
                     strata_stack_text(stack));
    return layer ? strata_budget_base(layer) : NULL;
}

/* ---- making and ending ---- */

typedef struct account_request {
    PyObject *limit, *runtime;
    const char *name;
    int reserve;
} account_request;

/* Opens the account below `parent`. */
static strata_status open_below(strata_budget_account *parent, const account_request *request,
                                const strata_budget_account_options *options, strata_budget_account **out)
{
    return request->reserve ? strata_budget_reserve(parent, (size_t)options->limit.bytes, request->name, out)
                            : strata_budget_account_open(parent, options, out);
}

static PyObject *make_account(runtime_object *runtime, const account_request *request,
                              const strata_budget_account_options *options)
{
    account_object *parent = current_account(runtime);
    strata_budget_account *below = parent ? parent->account : base_account(runtime->runtime), *account;
    account_object *self = below ? module_new_object(account_type) : NULL;
    if (!self)
        return NULL;
    strata_status status;
    self->pid = getpid();
    self->runtime = (runtime_object *)Py_NewRef(runtime);
    self->parent = (account_object *)Py_XNewRef(parent);
    if (parent)
        parent->entered++;
    RUNTIME_CALL_BEGIN(runtime)
    status = open_below(below, request, options, &account);
    RUNTIME_CALL_END(runtime)
    if (status == STRATA_SUCCESS) {
        self->account = account;
        return (PyObject *)self;
    }
    if (parent)
        parent->entered--;
    Py_CLEAR(self->parent);
    Py_DECREF(self);
    return errors_raise(status);
}

static PyObject *account_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"limit", "name", "reserve", "runtime", NULL};
    account_request request = {.limit = Py_None};
    strata_budget_account_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$zpO:budget", names, &request.limit, &request.name,
                                     &request.reserve, &request.runtime) ||
        !convert_limit(request.limit, "limit", &options.limit))
        return NULL;
    if (request.reserve && !options.limit.bytes) {
        PyErr_SetString(PyExc_ValueError, "reserve=True needs a limit in bytes, which is what is reserved");
        return NULL;
    }
    options.name = request.name;
    PyObject *runtime = request.runtime && request.runtime != Py_None ? Py_NewRef(request.runtime) : NULL;
    if (!runtime) {
        PyObject *none = PyTuple_New(0);
        runtime = none ? runtime_get_default(NULL, none) : NULL;
        Py_XDECREF(none);
    } else if (!runtime_check(runtime)) {
        PyErr_Format(PyExc_TypeError, "runtime: expected a strata.Runtime, not %R", (PyObject *)Py_TYPE(runtime));
        Py_CLEAR(runtime);
    }
    PyObject *self = runtime && runtime_of((runtime_object *)runtime)
                         ? make_account((runtime_object *)runtime, &request, &options)
                         : NULL;
    Py_XDECREF(runtime);
    return self;
}

static void close_later(strata_runtime *runtime, void *account)
{
    (void)runtime;
    strata_budget_account_close(account);
}

/* Blocks of the account stay charged until they are freed. */
static strata_status close_account(account_object *self)
{
    strata_status status = STRATA_SUCCESS;
    if (!self->account || !runtime_of_reference(self->runtime))
        return status;
    if (!runtime_end_later(self->runtime, close_later, self->account))
        status = self->runtime->runtime ? strata_budget_account_close(self->account) : STRATA_ERROR_BUSY;
    if (status != STRATA_SUCCESS)
        return status;
    self->account = NULL;
    if (self->parent)
        self->parent->entered--;
    return status;
}

static PyObject *account_close(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    account_object *self = (account_object *)object;
    if (self->account && self->entered) {
        PyErr_SetString(PyExc_ValueError, "a thread is in the budget, or a budget below it is open");
        return NULL;
    }
    const strata_status status = close_account(self);
    return status == STRATA_SUCCESS ? Py_NewRef(Py_None) : errors_raise(status);
}

static void account_dealloc(PyObject *object)
{
    account_object *self = (account_object *)object;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    if (self->pid == getpid())
        close_account(self);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(self->parent);
    Py_XDECREF(self->runtime);
    module_free_object(object);
}

/* ---- the scope ---- */

static PyObject *account_enter(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    account_object *self = (account_object *)object;
    strata_budget_account *previous;
    if (!open_account(self))
        return NULL;
    const strata_status status = strata_budget_enter(self->account, &previous);
    if (status != STRATA_SUCCESS)
        return errors_raise(status);
    if (!scopes_push(SCOPE_BUDGET, object, previous)) {
        strata_budget_enter(previous, NULL);
        return NULL;
    }
    self->entered++;
    self->runtime->entered++;
    return Py_NewRef(object);
}

static PyObject *account_exit(PyObject *object, PyObject *arguments)
{
    (void)arguments;
    account_object *self = (account_object *)object;
    if (!scopes_check(SCOPE_BUDGET, object))
        return NULL;
    const strata_status status = strata_budget_enter(scopes_innermost(SCOPE_BUDGET)->previous, NULL);
    self->entered--;
    self->runtime->entered--;
    scopes_pop(SCOPE_BUDGET);
    return errors_leave(status);
}

/* ---- counts ---- */

static bool read_usage(PyObject *object, strata_budget_usage *out)
{
    strata_budget_account *account = open_account((account_object *)object);
    const strata_status status = account ? strata_budget_account_usage(account, out) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    return account && status == STRATA_SUCCESS;
}

static PyObject *account_usage(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    strata_budget_usage usage;
    if (!read_usage(self, &usage))
        return NULL;
    return Py_BuildValue("{s:N,s:K,s:N,s:K,s:K,s:K,s:K}", "limit",
                         usage.limit ? PyLong_FromSize_t(usage.limit) : Py_NewRef(Py_None), "in_use",
                         (unsigned long long)usage.in_use, "remaining",
                         usage.limit ? PyLong_FromSize_t(usage.remaining) : Py_NewRef(Py_None), "peak",
                         (unsigned long long)usage.peak, "refused", (unsigned long long)usage.refused, "waited",
                         (unsigned long long)usage.waited, "reused", (unsigned long long)usage.reused);
}

static PyObject *get_limit(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_budget_usage usage;
    if (!read_usage(self, &usage))
        return NULL;
    return usage.limit ? PyLong_FromSize_t(usage.limit) : Py_NewRef(Py_None);
}

/* A share is of the memory that the driver says the device has. */
static strata_status set_limit_of(account_object *self, const strata_amount *limit)
{
    strata_device_info info = {0};
    if (limit->percent == 0)
        return strata_budget_set_limit(self->account, (size_t)limit->bytes);
    const strata_status status = strata_device_get_info(strata_runtime_device(self->runtime->runtime), &info);
    const size_t share = (size_t)((double)info.total_bytes * limit->percent / 100);
    return status == STRATA_SUCCESS ? strata_budget_set_limit(self->account, share ? share : 1) : status;
}

static int set_limit(PyObject *self, PyObject *value, void *ignored)
{
    (void)ignored;
    strata_amount limit;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "limit cannot be deleted; None: no limit");
        return -1;
    }
    if (!convert_limit(value, "limit", &limit) || !open_account((account_object *)self))
        return -1;
    const strata_status status = set_limit_of((account_object *)self, &limit);
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    return status == STRATA_SUCCESS ? 0 : -1;
}

static PyObject *get_in_use(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_budget_usage usage;
    return read_usage(self, &usage) ? PyLong_FromSize_t(usage.in_use) : NULL;
}

static PyObject *get_peak(PyObject *self, void *ignored)
{
    (void)ignored;
    strata_budget_usage usage;
    return read_usage(self, &usage) ? PyLong_FromSize_t(usage.peak) : NULL;
}

static PyObject *get_closed(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(!is_open((account_object *)self));
}

static PyGetSetDef account_attributes[] = {
    {"limit", get_limit, set_limit, "The most bytes, or None; may be set, also to \"2GiB\" or \"50%\".", NULL},
    {"in_use", get_in_use, NULL, "Bytes of live and freed but incomplete blocks.", NULL},
    {"peak", get_peak, NULL, "The most bytes in use at once.", NULL},
    {"closed", get_closed, NULL, "Whether it was closed, or its runtime.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef account_methods[] = {
    {"usage", account_usage, METH_NOARGS,
     "usage($self)\n--\n\nlimit, in_use, remaining, peak in bytes, and how many requests were refused, waited, "
     "reused."},
    {"close", account_close, METH_NOARGS,
     "close($self)\n--\n\nCloses the account. Its blocks stay charged to the budgets above until they are freed."},
    {"__enter__", account_enter, METH_NOARGS, NULL},
    {"__exit__", account_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef account_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(account_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot account_slots[] = {
    {Py_tp_doc,
     "budget(limit=None, *, name=None, reserve=False, runtime=None)\n--\n\n"
     "A part of the stack's budget, below the one that this thread is in. As a context manager it is charged\n"
     "with what the thread allocates inside of it; several threads can be in one.\n\n"
     "limit    the most bytes: a number, \"2GiB\", \"50%\" of the device's memory; None: bytes are counted\n"
     "reserve  charge the limit to the budgets above at once, so that nothing else can take it\n"
     "runtime  None: strata.runtime()"},
    {Py_tp_new, account_new},
    {Py_tp_dealloc, account_dealloc},
    {Py_tp_getset, account_attributes},
    {Py_tp_methods, account_methods},
    {Py_tp_members, account_members},
    {0, NULL},
};

static PyType_Spec account_spec = {
    .name = "strata.budget",
    .basicsize = sizeof(account_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = account_slots,
};

int account_add(PyObject *module)
{
    return module_add_type(module, &account_spec, &account_type);
}
