/* `callback`: memory from two functions of the program. Strata adds identities, checked frees, search by address, and
 * the order of uses across streams. A stack text cannot name it. */
#ifndef STRATA_CALLBACK_H
#define STRATA_CALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes to *address `bytes` (at least 1) of memory at a multiple of `alignment` (a power of two, at least 256) that
 * work submitted to `stream` may use at once. Another status than SUCCESS becomes the allocation's; SUCCESS with
 * address 0 counts as OUT_OF_MEMORY. */
typedef strata_status (*strata_callback_allocate)(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream,
                                                  void *data);

/* Takes memory back, with the same bytes and alignment. Unless it answers SUCCESS, the block stays live. */
typedef strata_status (*strata_callback_deallocate)(CUdeviceptr address, size_t bytes, size_t alignment,
                                                    CUstream stream, void *data);

/* Both functions are called on the allocating or freeing thread, perhaps by several threads at once, with the device's
 * primary context current, the thread's capture mode relaxed, and no lock held. Stream 0 is the legacy default stream.
 * They may call Strata, but not this stack. pthread_cancel ends no thread in them. */
typedef struct strata_callback_options {
    uint32_t size;
    strata_callback_allocate allocate;
    strata_callback_deallocate deallocate;
    void *data; /* passed to both */

    /* True: deallocate is ordered by its stream. It may be called while work on the block is pending; reused memory is
     * ordered after the earlier work of `stream`; a free makes the freeing stream wait for every recorded use and does
     * not block. False: a free waits on the host until no work can touch the block; `stream` is for information. After
     * a free with STRATA_STREAM_GONE nothing is pending, and stream is 0. */
    bool stream_ordered;

    bool host_memory; /* STRATA_CAPABILITY_DEVICE_MEMORY is not claimed */

    /* Called once, with the layer's destruction, after the last call of the other two: `data` is not used any more. The
     * device's context is current, unless it is gone. NULL: not needed. After a failed strata_callback_create it is not
     * called. */
    void (*destroyed)(void *data);
} strata_callback_options;

/* Makes the layer; both functions are required. An address that is misaligned (then given back) or at which a live
 * block begins makes the allocation fail with INVALID_VALUE. */
STRATA_API strata_status strata_callback_create(int ordinal, const strata_callback_options *options,
                                                strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
