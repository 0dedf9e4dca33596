/* Layers that can say which block an illegal access of the device may have hit.
 *
 * The driver reports CUDA_ERROR_ILLEGAL_ADDRESS at a later call, without the address. Every error with that code names
 * the candidates of the layers registered here. */
#ifndef STRATA_CORE_BASE_FAULT_HINTS_H
#define STRATA_CORE_BASE_FAULT_HINTS_H

#include <stddef.h>

typedef struct strata_fault_candidates {
    /* Writes a terminated sentence into `room` bytes and returns its length; 0: no candidate. The caller may hold any
     * lock that ranks before STRATA_RANK_FAULT_CANDIDATES. Raises nothing, makes no driver call. */
    size_t (*name)(struct strata_fault_candidates *self, char *text, size_t room);
    struct strata_fault_candidates *next; /* guarded by the list's lock */
} strata_fault_candidates;

/* Leave waits until no call is in flight. */
void strata_fault_candidates_enter(strata_fault_candidates *self);
void strata_fault_candidates_leave(strata_fault_candidates *self);

/* `length` bytes of text[room] are used. */
void strata_fault_candidates_append(char *text, size_t room, size_t length);

#endif
