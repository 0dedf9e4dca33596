/* Host memory for Strata's own data.
 *
 * It comes from a jemalloc arena of the library (core/base/arena.h), so that it never mixes with the program's memory
 * and its size is known. The C library's heap serves instead where jemalloc is missing, under Valgrind and the leak
 * sanitizer, which only follow pointers through memory they know, and with STRATA_HOST_MEMORY=libc. The first call
 * decides for the process. */
#ifndef STRATA_CORE_BASE_HOST_MEMORY_H
#define STRATA_CORE_BASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, or NULL. Alignment 16. Any thread. */
void *strata_host_zalloc(size_t bytes);

/* Zeroed memory at a multiple of `alignment`, a power of two, or NULL. Any thread. */
void *strata_host_zalloc_aligned(size_t alignment, size_t bytes);

/* Frees memory of either kind; NULL is ignored. Any thread. */
void strata_host_free(void *memory);

/* Between these two the allocator may keep a cache of free memory for the calling thread. A thread that never calls
 * them has none. */
void strata_host_thread_begin(void);
void strata_host_thread_exit(void);

/* Bytes allocated and not freed, as rounded by the allocator. Any thread; a moment's value. */
uint64_t strata_host_bytes(void);

/* Physical bytes of the arena, with its caches and metadata. False on the C library's heap, which the program shares.
 * Any thread; a moment's value. */
bool strata_host_resident(uint64_t *bytes);

/* The allocator in use, for `strata info`: "jemalloc 5.3.0" or "libc"; and why it is not jemalloc, or NULL. */
const char *strata_host_allocator_name(void);
const char *strata_host_allocator_reason(void);

#endif
