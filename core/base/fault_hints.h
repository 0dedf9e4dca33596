/* Who can say what an illegal access of the device could have been about.
 *
 * The driver answers CUDA_ERROR_ILLEGAL_ADDRESS to whatever is asked of it next, and not which address was meant. A
 * layer that puts blocks where such an access stops the device enters itself here, and its blocks are named in every
 * error that has this answer. */
#ifndef STRATA_CORE_BASE_FAULT_HINTS_H
#define STRATA_CORE_BASE_FAULT_HINTS_H

#include <stddef.h>

typedef struct strata_fault_candidates {
    /* Writes a sentence into `room` bytes, terminated, and returns its length; 0 where there is nothing to name. Called
     * on the thread that raises the error, which may hold any lock that ranks before STRATA_RANK_SUSPECTS: it raises
     * nothing and asks the driver nothing. */
    size_t (*name)(struct strata_fault_candidates *self, char *text, size_t room);
    struct strata_fault_candidates *next; /* guarded by the list's lock */
} strata_fault_candidates;

/* Enters, and takes out again, which waits until nobody asks any more. */
void strata_fault_candidates_enter(strata_fault_candidates *self);
void strata_fault_candidates_leave(strata_fault_candidates *self);

/* Appends to text[room], of which `length` bytes are used, what all of them have to say. */
void strata_fault_candidates_append(char *text, size_t room, size_t length);

#endif
