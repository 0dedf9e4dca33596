/* Host memory for Strata's own book-keeping: the one place that says where it comes from. */
#ifndef STRATA_CORE_MEMORY_H
#define STRATA_CORE_MEMORY_H

#include <stddef.h>

/* Zeroed memory, or NULL. Alignment 16. Any thread. */
void *strata_host_zalloc(size_t bytes);

/* Zeroed memory at a multiple of `alignment`, a power of two, or NULL. Any thread. */
void *strata_host_zalloc_aligned(size_t alignment, size_t bytes);

/* Gives memory of either kind back; NULL is ignored. Any thread. */
void strata_host_free(void *memory);

/* The name of the allocator in use, for `strata info`. */
const char *strata_host_allocator_name(void);

#endif
