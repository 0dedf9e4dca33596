/* Memory that two processes share: a file without a name, sealed against a change of its size, so that neither process
 * can take bytes away that the other one touches. */
#ifndef STRATA_SERVICE_ISOLATED_SHARED_MEMORY_H
#define STRATA_SERVICE_ISOLATED_SHARED_MEMORY_H

#include <strata/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct isolated_memory {
    void *bytes;
    size_t size; /* in whole pages */
    int fd;      /* -1: not open */
} isolated_memory;

/* How many mappings a process may have (vm.max_map_count). */
size_t isolated_mapping_limit(void);

/* Makes zeroed shared memory. Errors: OUT_OF_HOST_MEMORY, IO. */
strata_status isolated_memory_make(size_t bytes, isolated_memory *out);
void isolated_memory_close(isolated_memory *memory);

/* A file of `bytes` bytes with that content, whose descriptor is the caller's, read only for its bytes: it is closed by
 * isolated_descriptor_close. Errors: as above. */
strata_status isolated_memory_of(const void *content, size_t bytes, int *fd);

/* Whether a descriptor that came from another process is memory of at least `bytes` bytes that stays so. */
bool isolated_memory_is_sealed(int fd, size_t bytes);

#endif
