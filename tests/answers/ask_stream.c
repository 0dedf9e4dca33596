/* Questions about streams: creation, attributes, and the reuse of handles and ids. */
#include "ask.h"

#include <pthread.h>

struct kind {
    const char *name;
    CUstream stream;
};

enum { KINDS = 5 };

static void make_kinds(struct kind kinds[KINDS])
{
    kinds[0] = (struct kind){"null", NULL};
    kinds[1] = (struct kind){"legacy", CU_STREAM_LEGACY};
    kinds[2] = (struct kind){"per_thread", CU_STREAM_PER_THREAD};
    kinds[3] = (struct kind){"blocking", new_stream(CU_STREAM_DEFAULT)};
    kinds[4] = (struct kind){"non_blocking", new_stream(CU_STREAM_NON_BLOCKING)};
}

static void ask_create(void)
{
    static const unsigned flags[] = {0, 1, 2, 3, 4, 0x80000000U, 0xffffffffU};
    static const int priorities[] = {0, -1, -5, -6, -100, 1, 100};
    CUstream stream = NULL;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ask(cu.StreamCreate(&stream, flags[i]), "stream.create.flags_%#x", flags[i]);
    ask(cu.StreamCreate(NULL, 0), "stream.create.null");
    int least = 77;
    int greatest = 77;
    CUresult result = cu.CtxGetStreamPriorityRange(&least, &greatest);
    ask_value(result, least, "stream.priority_range.least");
    ask_value(result, greatest, "stream.priority_range.greatest");
    ask(cu.CtxGetStreamPriorityRange(NULL, NULL), "stream.priority_range.null");
    for (size_t i = 0; i < sizeof priorities / sizeof priorities[0]; i++) {
        int priority = 77;
        stream = NULL;
        ask(cu.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priorities[i]), "stream.create.priority_%d",
            priorities[i]);
        if (stream != NULL)
            result = cu.StreamGetPriority(stream, &priority);
        ask_value(result, priority, "stream.create.priority_%d.got", priorities[i]);
    }
    ask(cu.StreamCreateWithPriority(&stream, 2, 0), "stream.create_with_priority.flags_2");
    ask(cu.StreamCreateWithPriority(NULL, 0, 0), "stream.create_with_priority.null");
}

static void ask_kind(const struct kind *kind, CUcontext context)
{
    CUresult result;
    unsigned flags = 77;
    int priority = 77;
    CUcontext own = NULL;
    CUdevice device = 77;
    unsigned long long id = 0;
    result = cu.StreamGetFlags(kind->stream, &flags);
    ask_value(result, flags, "stream.%s.flags", kind->name);
    ask(cu.StreamGetFlags(kind->stream, NULL), "stream.%s.flags.null", kind->name);
    result = cu.StreamGetPriority(kind->stream, &priority);
    ask_value(result, priority, "stream.%s.priority", kind->name);
    ask(cu.StreamGetPriority(kind->stream, NULL), "stream.%s.priority.null", kind->name);
    result = cu.StreamGetCtx(kind->stream, &own);
    ask_fact(result, own == context, "stream.%s.context_is_current", kind->name);
    ask(cu.StreamGetCtx(kind->stream, NULL), "stream.%s.context.null", kind->name);
    result = cu.StreamGetDevice(kind->stream, &device);
    ask_value(result, device, "stream.%s.device", kind->name);
    ask(cu.StreamGetDevice(kind->stream, NULL), "stream.%s.device.null", kind->name);
    ask(cu.StreamGetId(kind->stream, &id), "stream.%s.id", kind->name);
    ask(cu.StreamGetId(kind->stream, NULL), "stream.%s.id.null", kind->name);
    ask(cu.StreamSynchronize(kind->stream), "stream.%s.synchronize.idle", kind->name);
    ask(cu.StreamQuery(kind->stream), "stream.%s.query.idle", kind->name);
    struct gate *gate = gate_hold(kind->stream, GATE_LONG_MS);
    ask(cu.StreamQuery(kind->stream), "stream.%s.query.busy", kind->name);
    gate_release(gate);
    ask(cu.StreamSynchronize(kind->stream), "stream.%s.synchronize", kind->name);
    ask(cu.StreamQuery(kind->stream), "stream.%s.query.done", kind->name);
    gate = gate_hold(kind->stream, GATE_SHORT_MS);
    cu.StreamSynchronize(kind->stream);
    ask_yes(!gate_release(gate), "stream.%s.synchronize.waits", kind->name);
}

static void ask_waits(const struct kind *kind)
{
    static const unsigned flags[] = {1, 2, 4, 0xffffffffU};
    CUevent event = new_event();
    ask(cu.StreamWaitEvent(kind->stream, NULL, 0), "stream.%s.wait_event.null_event", kind->name);
    ask(cu.StreamWaitEvent(kind->stream, event, 0), "stream.%s.wait_event.unrecorded", kind->name);
    cu.EventRecord(event, kind->stream);
    ask(cu.StreamWaitEvent(kind->stream, event, 0), "stream.%s.wait_event.own", kind->name);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ask(cu.StreamWaitEvent(kind->stream, event, flags[i]), "stream.%s.wait_event.flags_%#x", kind->name, flags[i]);
    ask(cu.StreamSynchronize(kind->stream), "stream.%s.wait_event.synchronize", kind->name);
}

void ask_streams(void)
{
    CUcontext context = start();
    struct kind kinds[KINDS];
    warm_up(NULL);
    ask_create();
    make_kinds(kinds);
    for (int i = 0; i < KINDS; i++) {
        warm_up(kinds[i].stream);
        ask_kind(&kinds[i], context);
        ask_waits(&kinds[i]);
    }
}

static unsigned long long id_of(CUstream stream)
{
    unsigned long long id = 0;
    cu.StreamGetId(stream, &id);
    return id;
}

struct thread_ids {
    CUcontext context;
    unsigned long long legacy;
    unsigned long long per_thread;
    unsigned long long per_thread_again;
};

static void *read_ids(void *data)
{
    struct thread_ids *ids = data;
    cu.CtxSetCurrent(ids->context);
    ids->legacy = id_of(CU_STREAM_LEGACY);
    ids->per_thread = id_of(CU_STREAM_PER_THREAD);
    ids->per_thread_again = id_of(CU_STREAM_PER_THREAD);
    return NULL;
}

static struct thread_ids ids_on_thread(CUcontext context)
{
    struct thread_ids ids = {.context = context};
    pthread_t thread;
    if (pthread_create(&thread, NULL, read_ids, &ids) == 0)
        pthread_join(thread, NULL);
    return ids;
}

void ask_stream_ids(void)
{
    CUcontext context = start();
    CUstream first = new_stream(0);
    CUstream second = new_stream(CU_STREAM_NON_BLOCKING);
    ask_yes(id_of(first) == id_of(first), "stream_ids.same_each_time");
    ask_yes(id_of(first) != id_of(second), "stream_ids.differ");
    ask_yes(id_of(second) > id_of(first), "stream_ids.grow");
    ask_yes(id_of(NULL) == id_of(CU_STREAM_LEGACY), "stream_ids.null_is_legacy");
    ask_yes(id_of(NULL) != id_of(CU_STREAM_PER_THREAD), "stream_ids.per_thread_is_not_legacy");
    ask_yes(id_of(CU_STREAM_PER_THREAD) == id_of(CU_STREAM_PER_THREAD), "stream_ids.per_thread_same_each_time");
    struct thread_ids other = ids_on_thread(context);
    struct thread_ids third = ids_on_thread(context);
    ask_yes(other.legacy == id_of(NULL), "stream_ids.other_thread.same_legacy");
    ask_yes(other.per_thread != id_of(CU_STREAM_PER_THREAD), "stream_ids.other_thread.own_per_thread");
    ask_yes(other.per_thread == other.per_thread_again, "stream_ids.other_thread.same_each_time");
    ask_yes(third.per_thread != other.per_thread, "stream_ids.ended_thread.id_not_reused");
    unsigned long long gone = id_of(second);
    cu.StreamDestroy(second);
    CUstream next = new_stream(CU_STREAM_NON_BLOCKING);
    ask_yes(id_of(next) != gone, "stream_ids.destroyed.id_not_reused");
    CUcontext created = NULL;
    unsigned long long legacy = id_of(NULL);
    unsigned long long per_thread = id_of(CU_STREAM_PER_THREAD);
    cu.CtxCreate(&created, NULL, 0, 0);
    ask_yes(id_of(NULL) != legacy, "stream_ids.other_context.own_legacy");
    ask_yes(id_of(CU_STREAM_PER_THREAD) != per_thread, "stream_ids.other_context.own_per_thread");
    ask_yes(id_of(first) != id_of(new_stream(0)), "stream_ids.other_context.differ");
}

void ask_stream_handles(void)
{
    CUresult result;
    start();
    warm_up(NULL);
    enum { TIMES = 16 };
    int back = 0;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < TIMES; i++) {
        CUstream gone = stream;
        cu.StreamDestroy(gone);
        stream = new_stream(CU_STREAM_NON_BLOCKING);
        back += stream == gone;
    }
    ask_number(back, "stream_handles.came_back_of_%d", TIMES);
    unsigned flags = 77;
    CUstream gone = stream;
    cu.StreamDestroy(stream);
    stream = new_stream(CU_STREAM_DEFAULT);
    ask_yes(stream == gone, "stream_handles.comes_back_with_other_flags");
    result = cu.StreamGetFlags(stream, &flags);
    ask_value(result, flags, "stream_handles.comes_back_with_other_flags.flags");

    CUevent event = new_event();
    CUstream busy = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(busy);
    struct gate *gate = gate_hold(busy, GATE_LONG_MS);
    ask(cu.EventRecord(event, busy), "stream_handles.destroy_busy.event_record");
    ask(cu.StreamDestroy(busy), "stream_handles.destroy_busy");
    ask(cu.EventQuery(event), "stream_handles.destroy_busy.event_before");
    CUstream next = new_stream(CU_STREAM_NON_BLOCKING);
    ask_yes(next == busy, "stream_handles.destroy_busy.handle_comes_back_at_once");
    ask(await_stream(next), "stream_handles.destroy_busy.next_stream_is_idle");
    ask(cu.StreamWaitEvent(next, event, 0), "stream_handles.destroy_busy.wait_for_its_event");
    ask(cu.StreamQuery(next), "stream_handles.destroy_busy.next_stream_waits");
    ask_yes(gate_release(gate), "stream_handles.destroy_busy.nothing_waited");
    ask(cu.EventSynchronize(event), "stream_handles.destroy_busy.event_synchronize");
    ask(cu.EventQuery(event), "stream_handles.destroy_busy.event_after");
    ask(cu.StreamSynchronize(next), "stream_handles.destroy_busy.next_stream_synchronize");
    ask(cu.EventRecord(event, next), "stream_handles.event_of_destroyed_stream.record_again");
    ask(cu.EventSynchronize(event), "stream_handles.event_of_destroyed_stream.synchronize");
}

void ask_special_stream_destroy(void)
{
    start();
    warm_up(NULL);
    ask(cu.StreamDestroy(NULL), "stream_destroy.null");
    ask(cu.StreamDestroy(CU_STREAM_LEGACY), "stream_destroy.legacy");
    ask(cu.StreamDestroy(CU_STREAM_PER_THREAD), "stream_destroy.per_thread");
    ask(cu.StreamQuery(NULL), "stream_destroy.null.usable_after");
    ask(cu.StreamQuery(CU_STREAM_PER_THREAD), "stream_destroy.per_thread.usable_after");
}

void ask_captures(void)
{
    start();
    struct kind kinds[KINDS];
    make_kinds(kinds);
    for (int i = 0; i < KINDS; i++) {
        CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
        cuuint64_t id = 77;
        CUresult result = cu.StreamIsCapturing(kinds[i].stream, &status);
        ask_value(result, status, "capture.%s.is_capturing", kinds[i].name);
        ask(cu.StreamIsCapturing(kinds[i].stream, NULL), "capture.%s.is_capturing.null", kinds[i].name);
        status = (CUstreamCaptureStatus)77;
        result = cu.StreamGetCaptureInfo(kinds[i].stream, &status, &id, NULL, NULL, NULL, NULL);
        ask_value(result, status, "capture.%s.info.status", kinds[i].name);
        ask(cu.StreamGetCaptureInfo(kinds[i].stream, NULL, NULL, NULL, NULL, NULL, NULL), "capture.%s.info.null",
            kinds[i].name);
    }
    static const int modes[] = {2, 1, 0, 3, -1, 0};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CUstreamCaptureMode mode = (CUstreamCaptureMode)modes[i];
        CUresult result = cu.ThreadExchangeStreamCaptureMode(&mode);
        ask_value(result, (int)mode, "capture.exchange_mode.step_%zu.to_%d", i, modes[i]);
    }
}
