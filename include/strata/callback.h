/* `callback`: memory that two functions of the program's own give and take: another allocator below Strata. Strata adds
 * identities, checked frees, finding by address, and the order of uses on several streams.
 *
 * By hand only, since no function can be written in a stack text. */
#ifndef STRATA_CALLBACK_H
#define STRATA_CALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gets `bytes` (at least 1) of memory at a multiple of `alignment` (a power of two, at least 256) that work submitted
 * to `stream` may use at once, and writes its address to *address. An answer other than SUCCESS is the allocation's;
 * SUCCESS with address 0 counts as OUT_OF_MEMORY. */
typedef strata_status (*strata_callback_allocate)(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream,
                                                  void *data);

/* Takes back what the other function gave, with the same bytes and alignment. If it answers anything but SUCCESS, the
 * memory is not taken and the block stays live. */
typedef strata_status (*strata_callback_deallocate)(CUdeviceptr address, size_t bytes, size_t alignment,
                                                    CUstream stream, void *data);

/* Both functions are called on the thread that allocates or frees, several at once, with the device's primary context
 * current, the thread's capture mode relaxed, and no lock held; 0 for a stream is the legacy default stream. They may
 * call Strata, but not this stack. */
typedef struct strata_callback_options {
    uint32_t size; /* sizeof(strata_callback_options), or 0 */
    strata_callback_allocate allocate;
    strata_callback_deallocate deallocate;
    void *data; /* passed to both */

    /* Whether deallocate is ordered by its stream: it may be called while work on the block is pending, and what is
     * handed out again comes after what `stream` had been given. Then a free makes the freeing stream wait for every
     * noted use, and does not wait itself. Otherwise (false, the default) it waits on the host until nothing can touch
     * the block, and `stream` is the freeing stream for information. After a free with STRATA_STREAM_GONE nothing is
     * left to wait for either way, and stream is 0. */
    bool stream_ordered;

    bool host_memory; /* the memory is the host's: STRATA_CAPABILITY_DEVICE_MEMORY is not claimed */
} strata_callback_options;

/* Makes a resource of the two functions for the device `ordinal`, to be built into a stack. Both are needed.
 *
 * An address that is no multiple of the alignment, and one where a live block begins, make the allocation fail with
 * INVALID_VALUE; the first is given back.
 *
 * Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_callback_create(int ordinal, const strata_callback_options *options,
                                                strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
