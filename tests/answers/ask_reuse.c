/* Questions about reuse between streams: a block is freed on one stream and requested on another, under each
 * combination of the pool's three policies. With room in the pool the driver may take fresh bytes; in a full pool,
 * whose maximum size is the block's, it must reuse or refuse. */
#include "ask.h"

struct policies {
    const char *name;
    int follow;
    int opportunistic;
    int internal;
};

struct pair {
    CUstream freeing;
    CUstream asking;
};

static const struct policies combinations[] = {
    {"none", 0, 0, 0},
    {"follow", 1, 0, 0},
    {"opportunistic", 0, 1, 0},
    {"internal", 0, 0, 1},
    {"follow_opportunistic", 1, 1, 0},
    {"follow_internal", 1, 0, 1},
    {"opportunistic_internal", 0, 1, 1},
    {"all", 1, 1, 1},
};

static CUmemoryPool pool_with(const struct policies *policies, size_t max_bytes)
{
    CUmemoryPool pool = new_pool(max_bytes);
    cuuint64_t keep = ~(cuuint64_t)0;
    int follow = policies->follow;
    int opportunistic = policies->opportunistic;
    int internal = policies->internal;
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow);
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic);
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &internal);
    return pool;
}

/* The second stream's block while the free is pending or complete, with an event between the streams or without. */
static void ask_reuse(const char *room, const struct policies *policies, const struct pair *streams, bool joined,
                      bool complete)
{
    const size_t bytes = 64 * MIB;
    CUmemoryPool pool = pool_with(policies, room[0] == 'f' ? bytes : 0);
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    CUevent event = new_event();
    const char *moment = complete ? "complete" : "pending";
    const char *join = joined ? "joined" : "unjoined";
    cu.MemAllocFromPoolAsync(&address, bytes, pool, streams->freeing);
    cu.StreamSynchronize(streams->freeing);
    struct gate *gate = gate_hold(streams->freeing, GATE_MIDDLE_MS);
    cu.MemFreeAsync(address, streams->freeing);
    cu.EventRecord(event, streams->freeing);
    if (joined)
        cu.StreamWaitEvent(streams->asking, event, 0);
    bool held = true;
    if (complete) {
        gate_release(gate);
        cu.StreamSynchronize(streams->freeing);
    }
    CUresult result = cu.MemAllocFromPoolAsync(&again, bytes, pool, streams->asking);
    CUresult waiting = complete ? CUDA_SUCCESS : await_stream(streams->asking);
    if (!complete)
        held = gate_release(gate);
    const char *answer = result != CUDA_SUCCESS ? result_name(result) : again == address ? "reused" : "fresh";
    ask_text(answer, "reuse.%s.%s.%s.%s", room, moment, join, policies->name);
    if (!complete) {
        ask_yes(!held, "reuse.%s.%s.%s.%s.call_waits", room, moment, join, policies->name);
        ask_text(!held ? "unknown" : result_name(waiting), "reuse.%s.%s.%s.%s.asking_stream", room, moment, join,
                 policies->name);
    }
    cu.CtxSynchronize();
    if (result == CUDA_SUCCESS)
        cu.MemFreeAsync(again, streams->asking);
    cu.StreamSynchronize(streams->asking);
    cu.EventDestroy(event);
    cu.MemPoolDestroy(pool);
}

void ask_pool_reuse(void)
{
    start();
    struct pair streams = {new_stream(CU_STREAM_NON_BLOCKING), new_stream(CU_STREAM_NON_BLOCKING)};
    warm_up(streams.freeing);
    warm_up(streams.asking);
    static const char *const rooms[] = {"roomy", "full"};
    for (size_t room = 0; room < 2; room++) {
        for (size_t i = 0; i < sizeof combinations / sizeof combinations[0]; i++) {
            ask_reuse(rooms[room], &combinations[i], &streams, false, false);
            ask_reuse(rooms[room], &combinations[i], &streams, true, false);
            ask_reuse(rooms[room], &combinations[i], &streams, false, true);
            ask_reuse(rooms[room], &combinations[i], &streams, true, true);
        }
    }
}
