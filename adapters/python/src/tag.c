/* strata.tag: the tag of what a thread allocates. */
#include "module.h"

#include <stdint.h>

typedef struct tag_object {
    PyObject_HEAD strata_tag tag;
} tag_object;

static PyTypeObject *tag_type;

static PyObject *tag_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    static char *names[] = {"name", NULL};
    PyObject *name;
    strata_tag tag;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "U:tag", names, &name) || !convert_tag(name, &tag))
        return NULL;
    tag_object *self = module_new_object(tag_type);
    if (self)
        self->tag = tag;
    return (PyObject *)self;
}

static PyObject *tag_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    if (!scopes_push(SCOPE_TAG, self, (void *)(uintptr_t)strata_tag_current()))
        return NULL;
    strata_tag_enter(((tag_object *)self)->tag, NULL);
    return Py_NewRef(self);
}

static PyObject *tag_exit(PyObject *self, PyObject *arguments)
{
    (void)arguments;
    if (!scopes_check(SCOPE_TAG, self))
        return NULL;
    strata_tag_enter((strata_tag)(uintptr_t)scopes_innermost(SCOPE_TAG)->previous, NULL);
    scopes_pop(SCOPE_TAG);
    Py_RETURN_NONE;
}

static PyObject *get_name(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyUnicode_FromString(strata_tag_name(((tag_object *)self)->tag));
}

static PyGetSetDef tag_attributes[] = {
    {"name", get_name, NULL, "The tag's name.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef tag_methods[] = {
    {"__enter__", tag_enter, METH_NOARGS, NULL},
    {"__exit__", tag_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tag_slots[] = {
    {Py_tp_doc,
     "tag(name)\n--\n\n"
     "A context manager: what this thread allocates through Strata inside of it has the tag `name`, of at most\n"
     "255 bytes. Threads that it starts have none of it. Reports count by tag."},
    {Py_tp_new, tag_new},
    {Py_tp_dealloc, module_free_object},
    {Py_tp_getset, tag_attributes},
    {Py_tp_methods, tag_methods},
    {0, NULL},
};

static PyType_Spec tag_spec = {
    .name = "strata.tag",
    .basicsize = sizeof(tag_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tag_slots,
};

int tag_add(PyObject *module)
{
    return module_add_type(module, &tag_spec, &tag_type);
}
