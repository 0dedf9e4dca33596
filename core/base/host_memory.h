/* Host memory for Strata's own book-keeping: the one place that says where it comes from.
 *
 * It is an arena of a jemalloc that only this library has (core/base/arena.h), so that it never mixes with the
 * program's own and its size is known. The C library's heap takes its place in builds that have none, where it cannot
 * be had, under Valgrind and the leak sanitizer, which follow pointers only through memory that they know of, and where
 * the environment says STRATA_HOST_MEMORY=libc. Which it is, is decided at the first call and holds for the process. */
#ifndef STRATA_CORE_BASE_HOST_MEMORY_H
#define STRATA_CORE_BASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, or NULL. Alignment 16. Any thread. */
void *strata_host_zalloc(size_t bytes);

/* Zeroed memory at a multiple of `alignment`, a power of two, or NULL. Any thread. */
void *strata_host_zalloc_aligned(size_t alignment, size_t bytes);

/* Gives memory of either kind back; NULL is ignored. Any thread. */
void strata_host_free(void *memory);

struct strata_thread;

/* Gives back what the allocator keeps for a thread that ends. By that thread, once its state is no longer the calling
 * thread's: what it frees from then on goes past it. */
void strata_host_thread_exit(struct strata_thread *thread);

/* Bytes of all memory that is not given back, as the allocator rounded it. Any thread; of what changes meanwhile it is
 * some moment's. */
uint64_t strata_host_bytes(void);

/* Bytes of physical memory that the arena has, with what it keeps for later and its own books. False if nobody can say:
 * the C library's heap is the program's, too. The same. */
bool strata_host_resident(uint64_t *bytes);

/* The allocator in use, for `strata info`: "jemalloc 5.3.0" or "libc"; and why it is not jemalloc, or NULL. */
const char *strata_host_allocator_name(void);
const char *strata_host_allocator_reason(void);

#endif
