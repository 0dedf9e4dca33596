/* Questions about events: flags, states, wrong handles. */
#include "ask.h"

void ask_events(void)
{
    start();
    static const unsigned flags[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0xffffffffU};
    CUevent event = NULL;
    CUevent untimed = new_event();
    CUevent timed = NULL;
    float milliseconds = 0;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        event = NULL;
        CUresult result = cu.EventCreate(&event, flags[i]);
        ask(result, "event.create.flags_%#x", flags[i]);
        if (result == CUDA_SUCCESS)
            cu.EventDestroy(event);
    }
    ask(cu.EventCreate(NULL, 0), "event.create.null");
    cu.EventCreate(&timed, 0);
    ask(cu.EventQuery(untimed), "event.query.unrecorded");
    ask(cu.EventSynchronize(untimed), "event.synchronize.unrecorded");
    ask(cu.EventQuery(NULL), "event.query.null");
    ask(cu.EventSynchronize(NULL), "event.synchronize.null");
    ask(cu.EventDestroy(NULL), "event.destroy.null");
    ask(cu.EventRecord(NULL, stream), "event.record.null");
    ask(cu.EventRecord(untimed, stream), "event.record");
    ask(cu.EventSynchronize(untimed), "event.synchronize");
    ask(cu.EventQuery(untimed), "event.query");
    ask(cu.EventRecord(untimed, NULL), "event.record.null_stream");
    ask(cu.EventRecord(untimed, CU_STREAM_LEGACY), "event.record.legacy");
    ask(cu.EventRecord(untimed, CU_STREAM_PER_THREAD), "event.record.per_thread");
    ask(cu.EventRecordWithFlags(untimed, stream, 0), "event.record_with_flags.0");
    ask(cu.EventRecordWithFlags(untimed, stream, 1), "event.record_with_flags.external");
    ask(cu.EventRecordWithFlags(untimed, stream, 2), "event.record_with_flags.2");
    ask(cu.EventElapsedTime(&milliseconds, timed, timed), "event.elapsed.unrecorded");
    cu.EventRecord(timed, stream);
    cu.StreamSynchronize(stream);
    CUresult result = cu.EventElapsedTime(&milliseconds, timed, timed);
    ask_fact(result, !(milliseconds < 0) && !(milliseconds > 0), "event.elapsed.same_event_is_0");
    ask(cu.EventElapsedTime(&milliseconds, timed, untimed), "event.elapsed.end_without_timing");
    ask(cu.EventElapsedTime(&milliseconds, untimed, timed), "event.elapsed.start_without_timing");
    ask(cu.EventElapsedTime(&milliseconds, NULL, timed), "event.elapsed.null_start");
    ask(cu.EventElapsedTime(&milliseconds, timed, NULL), "event.elapsed.null_end");
    ask(cu.EventElapsedTime(NULL, timed, timed), "event.elapsed.null_out");
    ask(cu.EventDestroy(untimed), "event.destroy");
    ask(cu.EventDestroy(timed), "event.destroy.timed");
    CUevent next = new_event();
    ask_yes(next == untimed || next == timed, "event.handle_comes_back");
}
