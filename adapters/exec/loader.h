/* The loader behind the hooks of dlsym and dlvsym, and this library's own symbols. Any thread; no lock, no host memory.
 */
#ifndef STRATA_ADAPTERS_EXEC_LOADER_H
#define STRATA_ADAPTERS_EXEC_LOADER_H

#include <stdbool.h>

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

dlsym_function *exec_loader_dlsym_function(void);
dlvsym_function *exec_loader_dlvsym_function(void);

/* Compares names without strcmp, which a sanitizer replaces: it may look symbols up before it can be called. */
static inline bool exec_is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* The loader's dlsym; RTLD_NEXT means behind this library. */
void *exec_loader_dlsym(void *handle, const char *name);

/* Whether an address lies in this library. */
bool exec_is_own_code(const void *address);

/* What this library exports under a name. NULL: nothing. */
void *exec_own_symbol(const char *name);

#endif
