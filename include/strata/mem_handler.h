/* Memory handlers of cuTensorNet, cuStateVec and cuDSS: such a library then takes its workspaces from a runtime, under
 * its budget, log and guard. docs/libraries.md has the calls.
 *
 * cutensornetDeviceMemHandler_t, custatevecDeviceMemHandler_t, cudssDeviceMemHandler_t and cudssPinnedMemHandler_t have
 * one layout, and strata_mem_handler is it: a pointer to one is cast to the library's type. Compared with the headers
 * of cuTensorNet 2.14.0, cuStateVec 1.15.0 and cuDSS 1.0.0 (tests/adapters/library_layouts.c). */
#ifndef STRATA_MEM_HANDLER_H
#define STRATA_MEM_HANDLER_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MEM_HANDLER_NAME = 64 };

typedef struct strata_mem_handler {
    void *context; /* the runtime */
    /* 0, or a strata_status; the thread's error record says why. Never throw, print or abort. */
    int (*allocate)(void *context, void **address, size_t bytes, CUstream stream);
    int (*deallocate)(void *context, void *address, size_t bytes, CUstream stream);
    char name[STRATA_MEM_HANDLER_NAME];
} strata_mem_handler;

/* A handler for device memory. Blocks are aligned to 256 bytes at least, and carry the tag "workspace". 0 bytes give a
 * NULL address. A free may name another stream than the allocation: it takes place in that stream's order, and the
 * library orders the streams. Frees after the driver's end succeed without effect. `name`, at most 63 bytes, is what
 * the library shows; NULL: "strata".
 *
 * The libraries copy the struct, so that *out may go; the runtime must outlive every handle that has the handler, and
 * is destroyed after them. Any thread. On failure *out is zero. Errors: INVALID_VALUE (NULL argument, long name),
 * UNSUPPORTED (the stack cannot find blocks by address), OUT_OF_HOST_MEMORY, and those of the runtime. */
STRATA_API strata_status strata_mem_handler_fill(strata_runtime *runtime, const char *name, strata_mem_handler *out);

/* As strata_mem_handler_fill, for page-locked host memory: of a runtime with the stack "pinned". Errors: also
 * UNSUPPORTED (the stack's memory cannot be read by the host). */
STRATA_API strata_status strata_mem_handler_fill_pinned(strata_runtime *runtime, const char *name,
                                                        strata_mem_handler *out);

#ifdef __cplusplus
}
#endif

#endif
