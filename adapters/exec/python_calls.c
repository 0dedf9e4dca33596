/* The functions of the process's CPython. */
#define _GNU_SOURCE
#include "adapters/exec/python_calls.h"

#include "adapters/exec/loader.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

exec_python_calls exec_python_functions;

static const struct {
    const char *name;
    size_t field;
    bool optional;
} functions[] = {
    {"Py_IsInitialized", offsetof(exec_python_calls, is_initialized), false},
    {"Py_AddPendingCall", offsetof(exec_python_calls, add_pending), false},
    {"PyImport_GetModuleDict", offsetof(exec_python_calls, modules), false},
    {"PyImport_ImportModule", offsetof(exec_python_calls, import), false},
    {"PyDict_GetItemString", offsetof(exec_python_calls, item), false},
    {"PyObject_GetAttrString", offsetof(exec_python_calls, attribute), false},
    {"PyObject_CallMethod", offsetof(exec_python_calls, call_method), false},
    {"PyCFunction_NewEx", offsetof(exec_python_calls, new_function), false},
    {"PyDict_Values", offsetof(exec_python_calls, values), false},
    {"PySequence_GetItem", offsetof(exec_python_calls, at), false},
    {"PyLong_AsLongLong", offsetof(exec_python_calls, number), false},
    {"Py_IncRef", offsetof(exec_python_calls, hold), false},
    {"Py_DecRef", offsetof(exec_python_calls, release), false},
    {"PyErr_Clear", offsetof(exec_python_calls, forget_error), false},
    {"_Py_NoneStruct", offsetof(exec_python_calls, none), false},
    {"PyThreadState_Get", offsetof(exec_python_calls, thread_state), true},
    {"PyThreadState_EnterTracing", offsetof(exec_python_calls, stop_tracing), true},
    {"PyThreadState_LeaveTracing", offsetof(exec_python_calls, go_on_tracing), true},
};

bool exec_python_find_functions(void)
{
    exec_python_calls all = {0};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = exec_loader_dlsym(RTLD_DEFAULT, functions[i].name);
        if (!found && !functions[i].optional)
            return false;
        memcpy((char *)&all + functions[i].field, &found, sizeof found);
    }
    exec_python_functions = all;
    return true;
}

/* ---- objects ---- */

static exec_object *without_error(exec_object *object)
{
    if (!object)
        exec_python_functions.forget_error();
    return object;
}

exec_object *exec_object_module(const char *name)
{
    exec_object *modules = exec_python_functions.modules(),
                *module = modules ? exec_python_functions.item(modules, name) : NULL;
    if (module)
        exec_python_functions.hold(module); /* another thread may remove it during a call */
    return without_error(module);
}

exec_object *exec_object_import(const char *name)
{
    exec_object *module = exec_object_module(name);
    const bool can_stop =
        exec_python_functions.thread_state && exec_python_functions.stop_tracing && exec_python_functions.go_on_tracing;
    if (module)
        return module;
    if (can_stop)
        exec_python_functions.stop_tracing(exec_python_functions.thread_state());
    module = exec_python_functions.import(name);
    if (can_stop)
        exec_python_functions.go_on_tracing(exec_python_functions.thread_state());
    return without_error(module);
}

exec_object *exec_object_attribute(exec_object *of, const char *name)
{
    return of ? without_error(exec_python_functions.attribute(of, name)) : NULL;
}

exec_object *exec_object_call(exec_object *of, const char *name)
{
    return of ? without_error(exec_python_functions.call_method(of, name, NULL)) : NULL;
}

exec_object *exec_object_at(exec_object *sequence, ssize_t i)
{
    return sequence ? without_error(exec_python_functions.at(sequence, i)) : NULL;
}

int64_t exec_object_number(exec_object *of)
{
    const long long number = of ? exec_python_functions.number(of) : EXEC_UNKNOWN;
    exec_python_functions.forget_error();
    return number < 0 ? EXEC_UNKNOWN : number;
}

void exec_object_drop(exec_object *held)
{
    if (held)
        exec_python_functions.release(held);
    exec_python_functions.forget_error();
}
