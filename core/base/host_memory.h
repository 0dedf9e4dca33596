/* Host memory for Strata's own data. Any thread.
 *
 * It comes from a jemalloc arena of the library (core/base/arena.h): it never mixes with the program's memory, and its
 * size is known. The C library's heap replaces it without jemalloc, under the thread sanitizer, under Valgrind and the
 * leak sanitizer, which only follow pointers through memory they know, and with STRATA_HOST_MEMORY=libc. The first call
 * decides for the process. */
#ifndef STRATA_CORE_BASE_HOST_MEMORY_H
#define STRATA_CORE_BASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed, aligned to 16; NULL without memory. */
void *strata_host_zalloc(size_t bytes);

/* `alignment` is a power of two. */
void *strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void strata_host_free(void *memory);

/* In between the allocator may keep a cache of free memory for the calling thread. */
void strata_host_thread_begin(void);
void strata_host_thread_exit(void);

/* Bytes allocated and not freed, as rounded by the allocator. */
uint64_t strata_host_bytes(void);

/* Physical bytes of the arena, with caches and metadata. False on the C library's heap, which the program shares. */
bool strata_host_resident(uint64_t *bytes);

/* For `strata info`: "jemalloc 5.3.0" or "libc"; why it is not jemalloc, or NULL. */
const char *strata_host_allocator_name(void);
const char *strata_host_allocator_reason(void);

#endif
