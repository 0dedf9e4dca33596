/* The processes of a shared budget: who they are, and when the memory of a dead one is back with the driver. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_PROCESS_H
#define STRATA_RESOURCES_BUDGET_SHARED_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shared_identity {
    int32_t pid;
    uint64_t started;       /* ticks since the boot */
    uint64_t pid_namespace; /* inode */
} shared_identity;

void shared_process_self(shared_identity *me);

/* Nanoseconds since the boot, the same for all processes of the machine. */
uint64_t shared_clock(void);

/* For a process that the kernel has taken the locks from, first seen so at `noticed`: whether its memory is back with
 * the driver. A process gives its files back while it ends, the GPU's among them, and is gone, or a zombie without
 * other threads, when that is done. Where it cannot be looked up, since it lived in another namespace, some seconds
 * have to be enough. */
bool shared_process_is_over(const shared_identity *who, uint64_t noticed);

#endif
