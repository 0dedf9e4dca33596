/* Frees that were asked for where a capture forbids them.
 *
 * Nothing can be submitted to a stream that is being captured but work of its graph; the stream cannot be identified,
 * and an event recorded on it is the graph's. So neither can a free of other memory be ordered after the stream's
 * earlier work, nor that work be marked. The same holds for the legacy stream while a blocking stream is captured. Such
 * a block is retired and waits here until the capture has ended.
 *
 * That is seen when the stream's handle comes by again, as the handle of a stream that Strata does not know is good
 * only then, or when the program says so. No question to the driver would do: cuCtxSynchronize in any capture mode
 * kills every capture of the context (tests/answers/h200.txt, "capture_calls.*.ctx_synchronize"). */
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
    struct strata_capture_frees_batch *batches; /* what threads took out and have neither done nor put back; the same */
    uint64_t batch_count;                       /* since the start; the same */
    _Atomic size_t count;                       /* with those in hand. Written under lock, read by any thread. */
} strata_capture_frees;

/* Frees a retired block of `owner` as it was asked for: on a stream that is not being captured, or with
 * STRATA_STREAM_GONE, after every use that was noted. `finished`: the stream's work is done, and the stream perhaps no
 * more; it must not be named. */
typedef strata_status (*strata_capture_frees_perform)(strata_resource *owner, strata_entry *entry,
                                                      const strata_block *block, CUstream stream, bool finished);

void strata_capture_frees_init(strata_capture_frees *set, strata_device *device);

/* What still waits is forgotten: the driver is gone, or nothing does. */
void strata_capture_frees_destroy(strata_capture_frees *set);

static inline bool strata_capture_frees_any(const strata_capture_frees *set)
{
    return __builtin_expect(atomic_load_explicit(&set->count, memory_order_relaxed) != 0, 0);
}

/* Keeps a free of a retired entry. Errors: OUT_OF_HOST_MEMORY, and nothing is kept. */
strata_status strata_capture_frees_add(strata_capture_frees *set, strata_resource *owner,
                                       strata_capture_frees_perform carry_out, strata_entry *entry,
                                       const strata_block *block, CUstream stream);

/* Carries out the frees that were asked for on `passed`, a stream whose handle is good now, on known streams, or on no
 * stream in particular, unless the stream is being captured; with STRATA_STREAM_GONE all of them, as finished. What
 * cannot be carried out stays. Waits first until other threads are done with what they have in hand. Errors: the first
 * of a free. */
strata_status strata_capture_frees_flush(strata_capture_frees *set, CUstream passed);

/* The same where something might be there, for calls about something else: what fails is met again, and nobody is
 * waited for, as a free that is carried out may come by here. Such a call on no stream in particular promises nothing
 * about others. */
void strata_capture_frees_try_flush(strata_capture_frees *set, CUstream passed);
static inline void strata_capture_frees_try_flush_any(strata_capture_frees *set, CUstream passed)
{
    if (strata_capture_frees_any(set) && passed != STRATA_STREAM_GONE)
        strata_capture_frees_try_flush(set, passed);
}

/* For a reap: the same on no stream in particular. With `wait` other threads are done with what they had in hand, so
 * that the caller finds it where frees go, or it is deferred still. */
void strata_capture_frees_flush_for_reap(strata_capture_frees *set, bool wait);

/* Says that a wait for all frees left some, which a capture holds. Returns STREAM_CAPTURE. */
strata_status strata_capture_frees_refuse(const strata_capture_frees *set);

#endif
