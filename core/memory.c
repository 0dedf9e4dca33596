/* Book-keeping memory from the C library. */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

void *strata_host_zalloc(size_t bytes)
{
    return calloc(1, bytes ? bytes : 1);
}

void *strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    void *memory = aligned_alloc(alignment, rounded);
    if (memory)
        memset(memory, 0, rounded);
    return memory;
}

void strata_host_free(void *memory)
{
    free(memory);
}

const char *strata_host_allocator_name(void)
{
    return "libc";
}
