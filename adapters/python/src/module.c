/* The module: its types and functions. */
#include "module.h"

static PyMethodDef module_methods[] = {
    {"runtime", runtime_get_default, METH_VARARGS,
     "runtime(device=0, /)\n--\n\nThe process's runtime of a device, which the first call makes from STRATA_STACK."},
    {"made_runtimes", runtime_made, METH_NOARGS,
     "made_runtimes()\n--\n\nThe stacks of the process's runtimes that exist, by their devices."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "strata._core",
    .m_doc = "The compiled part of the package strata; use the package.",
    .m_size = -1, /* one for the process, as the runtimes are */
    .m_methods = module_methods,
};

static int fill(PyObject *module)
{
    static int (*const parts[])(PyObject *) = {errors_add, runtime_add, stream_add,  buffer_add,    buffer_use_add,
                                               memory_add, tag_add,     account_add, statistics_add};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i](module) != 0)
            return -1;
    return PyModule_AddStringConstant(module, "library_name", STRATA_SONAME) == 0
               ? PyModule_AddFunctions(module, process_methods)
               : -1;
}

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && fill(module) != 0)
        Py_CLEAR(module);
    return module;
}
