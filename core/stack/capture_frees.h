/* Frees that a capture forbids, kept until it has ended.
 *
 * A stream that is being captured accepts only work of its graph; it cannot be identified, and an event recorded on it
 * belongs to the graph. So a free of other memory can neither be ordered after the stream's earlier work, nor can that
 * work be marked. This also holds for the legacy stream while a blocking stream is captured.
 *
 * The end of the capture is noticed when the stream's handle is used again (an unknown stream's handle is valid only
 * then), or when the program reports it. No query would do: cuCtxSynchronize invalidates every capture of the context
 * in any capture mode (tests/answers/h200.txt, "capture_calls.*.ctx_synchronize"). */
#ifndef STRATA_CORE_STACK_CAPTURE_FREES_H
#define STRATA_CORE_STACK_CAPTURE_FREES_H

#include "core/base/error.h"
#include "core/base/lock.h"
#include "core/blocks/blocks.h"

struct strata_capture_frees_queue;
struct strata_capture_frees_batch;

typedef struct strata_capture_frees {
    strata_device *device;
    strata_lock lock;
    struct strata_capture_frees_queue *queues;  /* by stream; guarded by lock */
    struct strata_capture_frees_batch *batches; /* queues taken out; guarded by lock */
    uint64_t batch_count;                       /* since the start; guarded by lock */
    _Atomic size_t count;                       /* including those taken out; written under lock, read by any thread */
} strata_capture_frees;

/* Frees a retired block of `owner` on a stream that is not being captured, or with STRATA_STREAM_GONE, after every
 * recorded use. `finished`: the stream's work is done; the stream may be gone and must not be named. */
typedef strata_status (*strata_capture_frees_perform)(strata_resource *owner, strata_entry *entry,
                                                      const strata_block *block, CUstream stream, bool finished);

void strata_capture_frees_init(strata_capture_frees *set, strata_device *device);

/* Drops the waiting frees: the driver is gone, or there are none. */
void strata_capture_frees_destroy(strata_capture_frees *set);

static inline bool strata_capture_frees_any(const strata_capture_frees *set)
{
    return __builtin_expect(atomic_load_explicit(&set->count, memory_order_relaxed) != 0, 0);
}

/* Whether a block that contains the address waits here. A free that a thread has taken out is not found. */
bool strata_capture_frees_has(strata_capture_frees *set, CUdeviceptr address);

/* Keeps the free of a retired entry until the capture has ended. On OUT_OF_HOST_MEMORY it keeps nothing. */
strata_status strata_capture_frees_add(strata_capture_frees *set, strata_resource *owner,
                                       strata_capture_frees_perform perform, strata_entry *entry,
                                       const strata_block *block, CUstream stream);

/* Performs the frees on `passed`, whose handle is valid now, on known streams, and on no stream in particular, unless
 * the stream is being captured; with STRATA_STREAM_GONE all, as finished. First waits until other threads have finished
 * what they took out. Returns the first error of a free. */
strata_status strata_capture_frees_flush(strata_capture_frees *set, CUstream passed);

/* As strata_capture_frees_flush, for calls with another purpose: ignores errors, which the next flush meets again, and
 * waits for no thread, since a free may call this itself. Without a stream it says nothing of others' frees. */
void strata_capture_frees_try_flush(strata_capture_frees *set, CUstream passed);
static inline void strata_capture_frees_try_flush_any(strata_capture_frees *set, CUstream passed)
{
    if (strata_capture_frees_any(set) && passed != STRATA_STREAM_GONE)
        strata_capture_frees_try_flush(set, passed);
}

/* As strata_capture_frees_try_flush without a stream. With `wait`, other threads have finished what they took out: each
 * free is then performed or still waiting. */
void strata_capture_frees_flush_for_reap(strata_capture_frees *set, bool wait);

/* Raises STREAM_CAPTURE: a wait for all frees left some that a capture holds. */
strata_status strata_capture_frees_refuse(const strata_capture_frees *set);

#endif
