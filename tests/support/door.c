/* Hooks of the driver's entry table: a wrapper for each entry, generated from the list, and a ledger of the objects
 * that the library creates and destroys. */
#include "support/door.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

typedef enum thing {
    THING_STREAM,
    THING_EVENT,
    THING_POOL,
    THING_BLOCK,
    THING_PINNED,
    THING_MODULE,
    THING_RANGE,
    THING_MEMORY,
    THING_MAP,
    THINGS
} thing_kind;

typedef struct held_thing {
    struct {
        uint64_t kind;
        uint64_t handle;
    } key;
    uint64_t edge; /* of an event: its last record */
    UT_hash_handle hh;
} held_thing;

/* Constant while the hooks are installed. */
static strata_entry_table real;
static bool watched;
static test_plan plan;
static pthread_t watcher;

/* Guards all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool armed;
static test_door_seen seen;
static held_thing *holdings;
static uint32_t held[THINGS];
static uint32_t strange;

const strata_entry_table *test_cu(void)
{
    return watched ? &real : &strata_cu;
}

/* ---- the plan ---- */

static uint32_t edge_of(const char *name)
{
    static const struct {
        const char *name;
        uint32_t edge;
    } edges[] = {
        {"cuEventRecord", STRATA_SIM_EDGE_EVENT_RECORD},
        {"cuStreamWaitEvent", STRATA_SIM_EDGE_EVENT_WAIT},
        {"cuEventSynchronize", STRATA_SIM_EDGE_EVENT_SYNCHRONIZE},
        {"cuEventQuery", STRATA_SIM_EDGE_EVENT_QUERY},
        {"cuStreamSynchronize", STRATA_SIM_EDGE_STREAM_SYNCHRONIZE},
        {"cuStreamQuery", STRATA_SIM_EDGE_STREAM_QUERY},
        {"cuCtxSynchronize", STRATA_SIM_EDGE_CONTEXT_SYNCHRONIZE},
    };
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        if (strcmp(name, edges[i].name) == 0)
            return edges[i].edge;
    return 0;
}

static bool is_end(const char *name)
{
    return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unload") || strstr(name, "Release") ||
           strstr(name, "Unmap");
}

static _Atomic unsigned failures_said;
static strata_log_callback listener; /* the test's own; set while one thread runs */
static void *listeners_data;

static void hear(const strata_error *error, void *data)
{
    (void)data;
    failures_said++;
    if (listener)
        listener(error, listeners_data);
}

void __real_strata_set_log_callback(strata_log_callback callback, void *data);
void __wrap_strata_set_log_callback(strata_log_callback callback, void *data);

void __wrap_strata_set_log_callback(strata_log_callback callback, void *data)
{
    if (!watched) {
        __real_strata_set_log_callback(callback, data);
        return;
    }
    listener = callback;
    listeners_data = data;
}

/* addr2line translates the addresses to lines. */
static void say_where(void)
{
    void *frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, sizeof frames / sizeof frames[0]), STDERR_FILENO);
}

static void fire(const char *name)
{
    if (getenv("STRATA_TEST_SWEEP_VERBOSE"))
        say_where();
    seen.said_before = failures_said;
    seen.fired = true;
    seen.name = name;
    seen.here = pthread_equal(pthread_self(), watcher) != 0;
    seen.ending = is_end(name);
    seen.before = *strata_last_error();
}

static bool *relied;
static size_t relied_room;
static bool host_relies;
static _Thread_local uint64_t this_edge; /* the number of the edge that this thread is about to make */

void test_door_rely(bool *map, size_t room, bool host)
{
    host_relies = host;
    relied = map;
    relied_room = room;
}

static void rely_on(uint64_t edge)
{
    if (relied && edge < relied_room)
        relied[edge] = true;
}

typedef enum fate { FATE_CALL, FATE_FAIL, FATE_DROP } call_fate;

/* Queries of names: without them only a message is less precise. */
static bool is_about_words(const char *name)
{
    return strncmp(name, "cuGetError", strlen("cuGetError")) == 0;
}

static call_fate decide(const char *name)
{
    uint32_t edge = edge_of(name);
    call_fate fate = FATE_CALL;
    if (is_about_words(name))
        return fate;
    pthread_mutex_lock(&lock);
    if (armed) {
        seen.calls++;
        this_edge = edge ? ++seen.edges : 0;
        bool fail = plan.kind == TEST_PLAN_FAIL && seen.calls == plan.nth;
        bool drop = plan.kind == TEST_PLAN_DROP && edge && seen.edges == plan.nth;
        if (fail || drop) {
            fire(name);
            fate = fail ? FATE_FAIL : FATE_DROP;
        }
    }
    pthread_mutex_unlock(&lock);
    return fate;
}

/* Makes the simulated driver forget the next edge of this kind, which is the call about to be made. */
static void begin_drop(const char *name)
{
    const test_sim *sim = test_sim_control();
    strata_sim_fault fault = {.size = sizeof fault, .kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = edge_of(name)};
    if (!sim || sim->add_fault(&fault, NULL) != CUDA_SUCCESS)
        abort();
}

static void end_drop(void)
{
    test_sim_control()->clear_faults();
}

#define WATCH(need, name, version, parameters, arguments) \
    static CUresult CUDAAPI watch_##name parameters       \
    {                                                     \
        call_fate fate = decide("cu" #name);              \
        if (fate == FATE_FAIL)                            \
            return plan.error;                            \
        if (fate == FATE_DROP)                            \
            begin_drop("cu" #name);                       \
        CUresult result = real.name arguments;            \
        if (fate == FATE_DROP)                            \
            end_drop();                                   \
        return result;                                    \
    }
STRATA_ENTRY_POINTS(WATCH)
#undef WATCH

/* ---- the ledger ---- */

static CUresult made(CUresult result, thing_kind kind, uint64_t handle)
{
    if (result != CUDA_SUCCESS)
        return result;
    held_thing *entry = calloc(1, sizeof *entry);
    if (!entry)
        abort();
    entry->key.kind = kind;
    entry->key.handle = handle;
    pthread_mutex_lock(&lock);
    HASH_ADD(hh, holdings, key, sizeof entry->key, entry);
    held[kind]++;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult ended(CUresult result, thing_kind kind, uint64_t handle)
{
    held_thing *entry;
    held_thing wanted = {.key = {.kind = kind, .handle = handle}};
    if (result != CUDA_SUCCESS || handle == 0)
        return result;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, holdings, &wanted.key, sizeof wanted.key, entry);
    if (entry) {
        HASH_DEL(holdings, entry);
        held[kind]--;
        free(entry);
    } else {
        strange++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#define HANDLE(handle) ((uint64_t)(uintptr_t)(handle))

static CUresult CUDAAPI note_StreamCreate(CUstream *stream, unsigned flags)
{
    CUresult result = watch_StreamCreate(stream, flags);
    return made(result, THING_STREAM, HANDLE(*stream));
}

static CUresult CUDAAPI note_StreamDestroy(CUstream stream)
{
    return ended(watch_StreamDestroy(stream), THING_STREAM, HANDLE(stream));
}

static CUresult CUDAAPI note_EventCreate(CUevent *event, unsigned flags)
{
    CUresult result = watch_EventCreate(event, flags);
    return made(result, THING_EVENT, HANDLE(*event));
}

static CUresult CUDAAPI note_EventDestroy(CUevent event)
{
    return ended(watch_EventDestroy(event), THING_EVENT, HANDLE(event));
}

static strata_sim_check_accounts count_edges(void)
{
    strata_sim_check_accounts accounts = {0};
    if (relied)
        test_sim_control()->get_check_accounts(&accounts);
    return accounts;
}

/* Whether calls since then added an order, those of other threads included. */
static bool ordered_something(const strata_sim_check_accounts *before)
{
    strata_sim_check_accounts now = count_edges();
    return now.edges - before->edges != now.idle_edges - before->idle_edges;
}

/* The lock is held. NULL: not an event of the library. */
static held_thing *find_event(CUevent event)
{
    held_thing *entry;
    held_thing wanted = {.key = {.kind = THING_EVENT, .handle = HANDLE(event)}};
    HASH_FIND(hh, holdings, &wanted.key, sizeof wanted.key, entry);
    return entry;
}

/* An event has the number of its last record; 0 if that added no order. */
static CUresult recorded(CUresult result, CUevent event, const strata_sim_check_accounts *before)
{
    bool ordered = ordered_something(before);
    pthread_mutex_lock(&lock);
    held_thing *entry = find_event(event);
    if (entry && result == CUDA_SUCCESS)
        entry->edge = ordered ? this_edge : 0;
    pthread_mutex_unlock(&lock);
    return result;
}

/* A wait for an event, or for a stream (event NULL): it is relied on, and so is the event's record. */
static CUresult waited(CUresult result, CUevent event, const strata_sim_check_accounts *before)
{
    if (!relied || result != CUDA_SUCCESS || !ordered_something(before))
        return result;
    pthread_mutex_lock(&lock);
    held_thing *entry = find_event(event);
    if (entry)
        rely_on(entry->edge);
    rely_on(this_edge);
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult CUDAAPI note_EventRecord(CUevent event, CUstream stream)
{
    strata_sim_check_accounts before = count_edges();
    return recorded(watch_EventRecord(event, stream), event, &before);
}

static CUresult CUDAAPI note_StreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    strata_sim_check_accounts before = count_edges();
    return waited(watch_StreamWaitEvent(stream, event, flags), event, &before);
}

static CUresult CUDAAPI note_EventSynchronize(CUevent event)
{
    strata_sim_check_accounts before = count_edges();
    CUresult result = watch_EventSynchronize(event);
    return host_relies ? waited(result, event, &before) : result;
}

static CUresult CUDAAPI note_StreamSynchronize(CUstream stream)
{
    strata_sim_check_accounts before = count_edges();
    CUresult result = watch_StreamSynchronize(stream);
    return host_relies ? waited(result, NULL, &before) : result;
}

static CUresult CUDAAPI note_MemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result = watch_MemPoolCreate(pool, properties);
    return made(result, THING_POOL, HANDLE(*pool));
}

static CUresult CUDAAPI note_MemPoolDestroy(CUmemoryPool pool)
{
    return ended(watch_MemPoolDestroy(pool), THING_POOL, HANDLE(pool));
}

static CUresult CUDAAPI note_MemAlloc(CUdeviceptr *address, size_t bytes)
{
    CUresult result = watch_MemAlloc(address, bytes);
    return made(result, THING_BLOCK, *address);
}

static CUresult CUDAAPI note_MemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    CUresult result = watch_MemAllocManaged(address, bytes, flags);
    return made(result, THING_BLOCK, *address);
}

static CUresult CUDAAPI note_MemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                                   CUstream stream)
{
    CUresult result = watch_MemAllocFromPoolAsync(address, bytes, pool, stream);
    return made(result, THING_BLOCK, *address);
}

/* Once an address is freed another thread may get it before this call returns, so it leaves the ledger first. */
static CUresult CUDAAPI note_MemFree(CUdeviceptr address)
{
    CUresult result = ended(CUDA_SUCCESS, THING_BLOCK, address);
    result = watch_MemFree(address);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, THING_BLOCK, address), result);
}

static CUresult CUDAAPI note_MemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CUresult result = ended(CUDA_SUCCESS, THING_BLOCK, address);
    result = watch_MemFreeAsync(address, stream);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, THING_BLOCK, address), result);
}

static CUresult CUDAAPI note_MemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    CUresult result = watch_MemHostAlloc(address, bytes, flags);
    return made(result, THING_PINNED, HANDLE(*address));
}

static CUresult CUDAAPI note_MemFreeHost(void *address)
{
    return ended(watch_MemFreeHost(address), THING_PINNED, HANDLE(address));
}

static CUresult CUDAAPI note_ModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = watch_ModuleLoadData(module, image);
    return made(result, THING_MODULE, HANDLE(*module));
}

static CUresult CUDAAPI note_ModuleUnload(CUmodule module)
{
    return ended(watch_ModuleUnload(module), THING_MODULE, HANDLE(module));
}

static CUresult CUDAAPI note_MemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                                               unsigned long long flags)
{
    CUresult result = watch_MemAddressReserve(address, bytes, alignment, wish, flags);
    return made(result, THING_RANGE, *address);
}

static CUresult CUDAAPI note_MemAddressFree(CUdeviceptr address, size_t bytes)
{
    return ended(watch_MemAddressFree(address, bytes), THING_RANGE, address);
}

static CUresult CUDAAPI note_MemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = watch_MemCreate(handle, bytes, properties, flags);
    return made(result, THING_MEMORY, *handle);
}

/* As an address, a handle may be another thread's before this call returns. */
static CUresult CUDAAPI note_MemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = ended(CUDA_SUCCESS, THING_MEMORY, handle);
    result = watch_MemRelease(handle);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, THING_MEMORY, handle), result);
}

static CUresult CUDAAPI note_MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return made(watch_MemMap(address, bytes, offset, handle, flags), THING_MAP, address);
}

/* One call unmaps everything in the range. */
static CUresult CUDAAPI note_MemUnmap(CUdeviceptr address, size_t bytes)
{
    const CUresult result = watch_MemUnmap(address, bytes);
    held_thing *entry, *next;
    pthread_mutex_lock(&lock);
    const size_t before = held[THING_MAP];
    HASH_ITER(hh, holdings, entry, next)
    {
        const uint64_t from = entry->key.handle;
        if (result != CUDA_SUCCESS || entry->key.kind != THING_MAP || from < address || from >= address + bytes)
            continue;
        HASH_DEL(holdings, entry);
        held[THING_MAP]--;
        free(entry);
    }
    strange += result == CUDA_SUCCESS && held[THING_MAP] == before;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- installing ---- */

void test_door_watch(const test_plan *wanted)
{
    real = strata_cu;
    plan = *wanted;
    watcher = pthread_self();
    armed = watched = true;
    __real_strata_set_log_callback(hear, NULL);
#define WRAP(need, name, version, parameters, arguments) \
    if (real.name)                                       \
        strata_cu.name = watch_##name;
    STRATA_ENTRY_POINTS(WRAP)
#undef WRAP
#define NOTE(name) \
    if (real.name) \
        strata_cu.name = note_##name;
    NOTE(StreamCreate)
    NOTE(StreamDestroy)
    NOTE(EventCreate)
    NOTE(EventDestroy)
    NOTE(EventRecord)
    NOTE(StreamWaitEvent)
    NOTE(EventSynchronize)
    NOTE(StreamSynchronize)
    NOTE(MemPoolCreate)
    NOTE(MemPoolDestroy)
    NOTE(MemAlloc)
    NOTE(MemAllocManaged)
    NOTE(MemFree)
    NOTE(MemAllocFromPoolAsync)
    NOTE(MemFreeAsync)
    NOTE(MemHostAlloc)
    NOTE(MemFreeHost)
    NOTE(ModuleLoadData)
    NOTE(ModuleUnload)
    NOTE(MemAddressReserve)
    NOTE(MemAddressFree)
    NOTE(MemCreate)
    NOTE(MemRelease)
    NOTE(MemMap)
    NOTE(MemUnmap)
#undef NOTE
}

bool test_door_is_watched(void)
{
    return watched;
}

void test_door_disarm(void)
{
    pthread_mutex_lock(&lock);
    armed = false;
    pthread_mutex_unlock(&lock);
}

void test_door_look(test_door_seen *what, test_holdings *now)
{
    pthread_mutex_lock(&lock);
    *what = seen;
    what->said = failures_said - seen.said_before;
    *now = (test_holdings){
        .streams = held[THING_STREAM],
        .events = held[THING_EVENT],
        .pools = held[THING_POOL],
        .blocks = held[THING_BLOCK],
        .pinned = held[THING_PINNED],
        .modules = held[THING_MODULE],
        .mapped = held[THING_RANGE] + held[THING_MEMORY] + held[THING_MAP],
        .strange = strange,
    };
    pthread_mutex_unlock(&lock);
}
