/* What each thread has entered, by kind: a list from the innermost outwards. A thread that ends inside of a scope
 * leaves its list, with references to the scopes, behind. */
#include "module.h"

static _Thread_local scope_node *entered[SCOPE_KINDS];

scope_node *scopes_innermost(scope_kind kind)
{
    return entered[kind];
}

bool scopes_push(scope_kind kind, PyObject *owner, void *previous)
{
    scope_node *node = PyMem_Malloc(sizeof *node);
    if (!node) {
        PyErr_NoMemory();
        return false;
    }
    *node = (scope_node){entered[kind], Py_NewRef(owner), previous};
    entered[kind] = node;
    return true;
}

bool scopes_check(scope_kind kind, PyObject *owner)
{
    if (entered[kind] && entered[kind]->owner == owner)
        return true;
    PyErr_SetString(PyExc_RuntimeError, "this is not the innermost scope of the thread: scopes are left on the thread "
                                        "that entered them, the last one first, and not across await or yield");
    return false;
}

void scopes_pop(scope_kind kind)
{
    scope_node *node = entered[kind];
    PyObject *owner = node->owner;
    entered[kind] = node->outer;
    PyMem_Free(node);
    Py_DECREF(owner);
}
