/* Questions about what a reset of the primary context leaves of the objects made before it: while the context has
 * ended, and once it has begun anew. */
#include "vmm.h"

#include <stdio.h>

struct old {
    bool anew;
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUmemoryPool pool;
    CUdeviceptr plain, pooled, mapped;
    CUmemGenericAllocationHandle handle;
    void *host;
    unsigned long long id;
};

struct question {
    const char *name;
    CUresult (*call)(struct old *old);
};

static struct old made(bool anew)
{
    struct old old = {.anew = anew, .context = start()};
    old.stream = new_stream(CU_STREAM_NON_BLOCKING);
    old.event = new_event();
    cu.EventRecord(old.event, old.stream);
    old.pool = new_pool(0);
    old.plain = new_memory(MIB);
    cu.MemAllocFromPoolAsync(&old.pooled, MIB, old.pool, old.stream);
    old.handle = vmm_create(PAGE);
    old.mapped = vmm_reserve(PAGE);
    cu.MemMap(old.mapped, PAGE, 0, old.handle, 0);
    vmm_allow(old.mapped, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu.MemHostAlloc(&old.host, 4096, 0);
    *(unsigned char *)old.host = 0;
    cu.StreamSynchronize(old.stream);
    cu.CtxGetId(old.context, &old.id);
    cu.DevicePrimaryCtxReset(0);
    if (anew) {
        cu.DevicePrimaryCtxRetain(&old.context, 0);
        cu.CtxSetCurrent(old.context);
    }
    return old;
}

/* Which may have the handles of old ones. */
static void make_streams(void)
{
    for (int i = 0; i < 8; i++)
        new_stream(CU_STREAM_NON_BLOCKING);
}

static void make_events(void)
{
    for (int i = 0; i < 8; i++)
        new_event();
}

#define CALL(name, expression)                 \
    static CUresult call_##name(struct old *o) \
    {                                          \
        return (expression);                   \
    }
CALL(set_current, cu.CtxSetCurrent(o->context))
CALL(get_id, cu.CtxGetId(o->context, &o->id))
CALL(capturing, cu.StreamIsCapturing(o->stream, &(CUstreamCaptureStatus){0}))
CALL(stream_id, cu.StreamGetId(o->stream, &o->id))
CALL(stream_query, cu.StreamQuery(o->stream))
CALL(stream_wait, cu.StreamSynchronize(o->stream))
CALL(stream_destroy, cu.StreamDestroy(o->stream))
CALL(record, cu.EventRecord(o->event, o->stream))
CALL(record_new, cu.EventRecord(new_event(), o->stream))
CALL(record_on_new, cu.EventRecord(o->event, new_stream(1)))
CALL(event_query, cu.EventQuery(o->event))
CALL(event_query_beside_streams, (make_streams(), cu.EventQuery(o->event)))
CALL(event_query_beside_events, (make_events(), cu.EventQuery(o->event)))
CALL(event_wait, cu.EventSynchronize(o->event))
CALL(event_destroy, cu.EventDestroy(o->event))
CALL(wait_event, cu.StreamWaitEvent(new_stream(1), o->event, 0))
CALL(free, cu.MemFree(o->plain))
CALL(free_pooled, cu.MemFree(o->pooled))
CALL(free_async, cu.MemFreeAsync(o->pooled, o->stream))
CALL(free_async_new, cu.MemFreeAsync(o->pooled, new_stream(1)))
CALL(alloc_old, cu.MemAllocFromPoolAsync(&o->plain, MIB, o->pool, o->stream))
CALL(alloc_new, cu.MemAllocFromPoolAsync(&o->plain, MIB, o->pool, new_stream(1)))
CALL(pool_used, cu.MemPoolGetAttribute(o->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &o->id))
CALL(pool_destroy, cu.MemPoolDestroy(o->pool))
CALL(free_host, cu.MemFreeHost(o->host))
CALL(read_host, *(volatile unsigned char *)o->host ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS)
CALL(fill_mapped, cu.MemsetD8(o->mapped, 1, PAGE))
CALL(fill_pooled, cu.MemsetD8(o->pooled, 1, MIB))
CALL(fill_plain, cu.MemsetD8(o->plain, 1, MIB))
CALL(unmap, cu.MemUnmap(o->mapped, PAGE))
CALL(release, cu.MemRelease(o->handle))
CALL(map_again, cu.MemMap(vmm_reserve(PAGE), PAGE, 0, o->handle, 0))
CALL(create, cu.MemCreate(&o->handle, PAGE, &(CUmemAllocationProp){.type = 1, .location = {.type = 1}}, 0))
CALL(pool_create, (o->pool = new_pool(0)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN)

static const struct question about_streams[] = {
    {"set_current", call_set_current},
    {"get_id", call_get_id},
    {"stream_is_capturing", call_capturing},
    {"stream_get_id", call_stream_id},
    {"stream_query", call_stream_query},
    {"stream_synchronize", call_stream_wait},
    {"stream_destroy", call_stream_destroy},
    {"event_record", call_record},
    {"event_record.new_event", call_record_new},
    {"event_record.new_stream", call_record_on_new},
    {"event_query", call_event_query},
    {"event_query.beside_new_streams", call_event_query_beside_streams},
    {"event_query.beside_new_events", call_event_query_beside_events},
    {"event_synchronize", call_event_wait},
    {"event_destroy", call_event_destroy},
    {"stream_wait_event", call_wait_event},
    {NULL, NULL},
};

static const struct question about_memory[] = {
    {"mem_free", call_free},
    {"mem_free.pooled", call_free_pooled},
    {"mem_free_async", call_free_async},
    {"mem_free_async.new_stream", call_free_async_new},
    {"mem_alloc_from_pool_async", call_alloc_old},
    {"mem_alloc_from_pool_async.new_stream", call_alloc_new},
    {"mem_pool_get_attribute", call_pool_used},
    {"mem_pool_destroy", call_pool_destroy},
    {"mem_free_host", call_free_host},
    {"read_host", call_read_host},
    {"memset.mapped", call_fill_mapped},
    {"memset.pooled", call_fill_pooled},
    {"memset.plain", call_fill_plain},
    {"mem_unmap", call_unmap},
    {"mem_release", call_release},
    {"mem_map.old_handle", call_map_again},
    {"mem_create", call_create},
    {"mem_pool_create", call_pool_create},
    {NULL, NULL},
};

struct asked {
    const struct question *question;
    bool anew;
};

static void ask_one(const void *data)
{
    const struct asked *one = data;
    struct old old = made(one->anew);
    const unsigned long long id = old.id;
    CUresult result = one->question->call(&old);
    ask(result, "primary_reset.%s.%s", one->anew ? "anew" : "ended", one->question->name);
    if (one->question->call == call_get_id)
        ask_fact(result, old.id == id, "primary_reset.%s.same_id", one->anew ? "anew" : "ended");
}

static void ask_all(const struct question *questions, bool anew)
{
    for (size_t i = 0; questions[i].name; i++) {
        char name[80];
        snprintf(name, sizeof name, "primary_reset.%s.%s", anew ? "anew" : "ended", questions[i].name);
        in_child(ask_one, &(struct asked){&questions[i], anew}, name);
    }
}

void ask_reset_streams(void)
{
    ask_all(about_streams, false);
}

void ask_reset_streams_anew(void)
{
    ask_all(about_streams, true);
}

void ask_reset_memory(void)
{
    ask_all(about_memory, false);
}

void ask_reset_memory_anew(void)
{
    ask_all(about_memory, true);
}
