/* Looks NCCL's functions up; never loads NCCL. */
#include "adapters/nccl/functions.h"

#include <dlfcn.h>
#include <string.h>

/* Frameworks load NCCL with RTLD_LOCAL, so that it is not among the global symbols. */
static void find(void *library, const char *name, void *out)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found && library)
        found = dlsym(library, name);
    memcpy(out, &found, sizeof found);
}

void nccl_functions_find(nccl_functions *out)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    find(library, "ncclCommRegister", &out->comm_register);
    find(library, "ncclCommDeregister", &out->comm_deregister);
    find(library, "ncclCommWindowRegister", &out->window_register);
    find(library, "ncclCommWindowDeregister", &out->window_deregister);
    find(library, "ncclGetErrorString", &out->error_string);
    find(library, "ncclGetLastError", &out->last_error);
    if (library)
        dlclose(library); /* the program's own handle keeps it */
}
