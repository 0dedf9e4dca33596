/* NCCL: registering blocks, so that collectives use their memory in place (NCCL User Guide, "User Buffer
 * Registration").
 *
 * NCCL is not linked: its functions are looked up in the process when they are needed, among the program's global
 * symbols and in a libnccl.so.2 that is loaded already.
 *
 * NCCL shares physical memory, not addresses. `pool(contiguous=SIZE)` gives each block of that size or more one
 * physical allocation, which NCCL can register whole; memory in several pieces gets no multicast (NVLS), and memory
 * that was not made to be exported is registered without effect. docs/libraries.md */
#ifndef STRATA_NCCL_H
#define STRATA_NCCL_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a block is registered as. */
typedef enum strata_nccl_kind {
    STRATA_NCCL_BUFFER, /* ncclCommRegister: local; ranks need not agree */
    STRATA_NCCL_WINDOW, /* ncclCommWindowRegister: every rank registers, in one order, or in a group */
} strata_nccl_kind;

typedef struct strata_nccl_options {
    uint32_t size;
    strata_nccl_kind kind;
    int flags; /* of a window: NCCL_WIN_COLL_SYMMETRIC, ... */
} strata_nccl_options;

typedef struct strata_nccl_registration strata_nccl_registration;

/* Registers a live block with a communicator, an ncclComm_t, for all its bytes. Until strata_nccl_deregister a free of
 * the block is refused with BLOCK_IN_USE; it may be registered any number of times. NULL options: a buffer. On failure
 * *out is NULL and the block is not registered.
 *
 * A window needs a contiguous block, since the whole physical allocation under it becomes visible to other ranks. In a
 * group (ncclGroupStart) NCCL registers the block and writes the handle at the group's end: before that the
 * registration is neither deregistered nor forgotten. Any thread, by NCCL's rules for the communicator.
 *
 * Errors: INVALID_VALUE (NULL argument; unknown kind; a window of a block that is not contiguous), UNSUPPORTED (NCCL is
 * not loaded, or is too old; memory of a capture's pool), LIBRARY (NCCL's answer, with its text), USE_AFTER_FREE,
 * FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, OUT_OF_HOST_MEMORY, and those of the runtime. */
STRATA_API strata_status strata_nccl_register(strata_runtime *runtime, void *communicator, const strata_block *block,
                                              const strata_nccl_options *options, strata_nccl_registration **out);

/* NCCL's handle: a void *, or the ncclWindow_t. NULL: NCCL has left the block unregistered, which is no error
 * (NCCL_LOCAL_REGISTER=0; a window without symmetric memory between the ranks). */
STRATA_API void *strata_nccl_handle(const strata_nccl_registration *registration);

/* Deregisters the block, after which it may be freed; in a group, too, NCCL does it at once. The communicator still
 * exists, and no collective that uses the block is under way or queued in a group. NULL is ignored. Errors: LIBRARY,
 * after which the registration exists and the call may be tried again. */
STRATA_API strata_status strata_nccl_deregister(strata_nccl_registration *registration);

/* After the communicator has ended (ncclCommAbort, ncclCommDestroy), which ends its registrations: as
 * strata_nccl_deregister, without a call to NCCL. NULL is ignored. */
STRATA_API void strata_nccl_forget(strata_nccl_registration *registration);

#ifdef __cplusplus
}
#endif

#endif
