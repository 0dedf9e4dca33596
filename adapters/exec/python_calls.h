/* The functions of the process's CPython, for a thread that holds the interpreter's lock. */
#ifndef STRATA_ADAPTERS_EXEC_PYTHON_CALLS_H
#define STRATA_ADAPTERS_EXEC_PYTHON_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct exec_object exec_object; /* PyObject */

/* PyMethodDef */
typedef struct exec_method {
    const char *name;
    exec_object *(*call)(exec_object *self, exec_object *arguments);
    int flags;
    const char *text;
} exec_method;

/* All are of the stable interface but add_pending, which is older, and those of tracing. Constant once they are found.
 */
typedef struct exec_python_calls {
    int (*is_initialized)(void);
    int (*add_pending)(int (*call)(void *data), void *data); /* NULL: there is no Python */
    exec_object *(*modules)(void);
    exec_object *(*import)(const char *name);
    exec_object *(*item)(exec_object *dictionary, const char *key); /* borrowed */
    exec_object *(*attribute)(exec_object *of, const char *name);
    exec_object *(*call_method)(exec_object *of, const char *name, const char *format, ...);
    exec_object *(*new_function)(exec_method *definition, exec_object *self, exec_object *module);
    exec_object *(*values)(exec_object *dictionary);
    exec_object *(*at)(exec_object *sequence, ssize_t i);
    long long (*number)(exec_object *of);
    void (*hold)(exec_object *of);
    void (*release)(exec_object *of);
    void (*forget_error)(void);
    exec_object *none;
    void *(*thread_state)(void); /* as the next two of 3.11 and later; NULL before */
    void (*stop_tracing)(void *thread_state);
    void (*go_on_tracing)(void *thread_state);
} exec_python_calls;
extern exec_python_calls exec_python_functions;

/* Finds the functions, before other threads call them. False: there is no interpreter, or its symbols are not visible
 * in the whole process. */
bool exec_python_find_functions(void);

/* The functions below leave no error behind. A returned object is the caller's, to be dropped; NULL: there is none. */
exec_object *exec_object_module(const char *name); /* that the program has imported */
exec_object *exec_object_import(const char *name); /* untraced, if it is not imported */
exec_object *exec_object_attribute(exec_object *of, const char *name);
exec_object *exec_object_call(exec_object *of, const char *name); /* a method, without arguments */
exec_object *exec_object_at(exec_object *sequence, ssize_t i);

/* Returns EXEC_UNKNOWN for what is no number, or a negative one. */
enum { EXEC_UNKNOWN = -1 };
int64_t exec_object_number(exec_object *of);

/* Also for NULL. */
void exec_object_drop(exec_object *held);

#endif
