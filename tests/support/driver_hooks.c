/* Hooks of the driver's entry table: a wrapper for each entry, generated from the list, and a ledger of the objects
 * that the library creates and destroys. */
#include "support/driver_hooks.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

typedef enum object_kind {
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_POOL,
    OBJECT_BLOCK,
    OBJECT_PINNED,
    OBJECT_MODULE,
    OBJECT_RANGE,
    OBJECT_MEMORY,
    OBJECT_MAP,
    OBJECTS
} object_kind;

typedef struct held_object {
    struct {
        uint64_t kind;
        uint64_t handle;
    } key;
    uint64_t edge; /* of an event: its last record */
    UT_hash_handle hh;
} held_object;

/* Constant while the hooks are installed. */
static strata_entry_table real;
static bool installed;
static test_plan plan;
static pthread_t installer;

/* Guards all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool armed;
static test_driver_hook_seen seen;
static held_object *holdings;
static uint32_t held[OBJECTS];
static uint32_t unowned;

const strata_entry_table *test_cu(void)
{
    return installed ? &real : &strata_cu;
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
    if (!installed) {
        __real_strata_set_log_callback(callback, data);
        return;
    }
    listener = callback;
    listeners_data = data;
}

/* addr2line translates the addresses to lines. */
static void print_call_site(void)
{
    void *frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, sizeof frames / sizeof frames[0]), STDERR_FILENO);
}

static void fire(const char *name)
{
    if (getenv("STRATA_TEST_SWEEP_VERBOSE"))
        print_call_site();
    seen.said_before = failures_said;
    seen.fired = true;
    seen.name = name;
    seen.here = pthread_equal(pthread_self(), installer) != 0;
    seen.ending = is_end(name);
    seen.before = *strata_last_error();
}

static bool *relied;
static size_t relied_room;
static bool host_relies;
static _Thread_local uint64_t this_edge; /* the number of the edge that this thread is about to make */

void test_driver_hook_rely(bool *map, size_t room, bool host)
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

/* Whether a call asks for a name: without its answer only a message is less precise. */
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

#define HOOK(need, name, version, parameters, arguments) \
    static CUresult CUDAAPI hook_##name parameters       \
    {                                                    \
        call_fate fate = decide("cu" #name);             \
        if (fate == FATE_FAIL)                           \
            return plan.error;                           \
        if (fate == FATE_DROP)                           \
            begin_drop("cu" #name);                      \
        CUresult result = real.name arguments;           \
        if (fate == FATE_DROP)                           \
            end_drop();                                  \
        return result;                                   \
    }
STRATA_ENTRY_POINTS(HOOK)
#undef HOOK

/* ---- the ledger ---- */

static CUresult made(CUresult result, object_kind kind, uint64_t handle)
{
    if (result != CUDA_SUCCESS)
        return result;
    held_object *entry = calloc(1, sizeof *entry);
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

static CUresult ended(CUresult result, object_kind kind, uint64_t handle)
{
    held_object *entry;
    held_object wanted = {.key = {.kind = kind, .handle = handle}};
    if (result != CUDA_SUCCESS || handle == 0)
        return result;
    pthread_mutex_lock(&lock);
    HASH_FIND(hh, holdings, &wanted.key, sizeof wanted.key, entry);
    if (entry) {
        HASH_DEL(holdings, entry);
        held[kind]--;
        free(entry);
    } else {
        unowned++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#define HANDLE(handle) ((uint64_t)(uintptr_t)(handle))

static CUresult CUDAAPI ledger_StreamCreate(CUstream *stream, unsigned flags)
{
    CUresult result = hook_StreamCreate(stream, flags);
    return made(result, OBJECT_STREAM, HANDLE(*stream));
}

static CUresult CUDAAPI ledger_StreamDestroy(CUstream stream)
{
    return ended(hook_StreamDestroy(stream), OBJECT_STREAM, HANDLE(stream));
}

static CUresult CUDAAPI ledger_EventCreate(CUevent *event, unsigned flags)
{
    CUresult result = hook_EventCreate(event, flags);
    return made(result, OBJECT_EVENT, HANDLE(*event));
}

static CUresult CUDAAPI ledger_EventDestroy(CUevent event)
{
    return ended(hook_EventDestroy(event), OBJECT_EVENT, HANDLE(event));
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

/* Finds an event of the library; NULL: it is none. The lock is held. */
static held_object *find_event(CUevent event)
{
    held_object *entry;
    held_object wanted = {.key = {.kind = OBJECT_EVENT, .handle = HANDLE(event)}};
    HASH_FIND(hh, holdings, &wanted.key, sizeof wanted.key, entry);
    return entry;
}

/* Keeps with an event the number of its last record; 0 if that added no order. */
static CUresult recorded(CUresult result, CUevent event, const strata_sim_check_accounts *before)
{
    bool ordered = ordered_something(before);
    pthread_mutex_lock(&lock);
    held_object *entry = find_event(event);
    if (entry && result == CUDA_SUCCESS)
        entry->edge = ordered ? this_edge : 0;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Notes that a wait for an event, or for a stream (event NULL), is relied on, and so is the event's record. */
static CUresult waited(CUresult result, CUevent event, const strata_sim_check_accounts *before)
{
    if (!relied || result != CUDA_SUCCESS || !ordered_something(before))
        return result;
    pthread_mutex_lock(&lock);
    held_object *entry = find_event(event);
    if (entry)
        rely_on(entry->edge);
    rely_on(this_edge);
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult CUDAAPI ledger_EventRecord(CUevent event, CUstream stream)
{
    strata_sim_check_accounts before = count_edges();
    return recorded(hook_EventRecord(event, stream), event, &before);
}

static CUresult CUDAAPI ledger_StreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    strata_sim_check_accounts before = count_edges();
    return waited(hook_StreamWaitEvent(stream, event, flags), event, &before);
}

static CUresult CUDAAPI ledger_EventSynchronize(CUevent event)
{
    strata_sim_check_accounts before = count_edges();
    CUresult result = hook_EventSynchronize(event);
    return host_relies ? waited(result, event, &before) : result;
}

static CUresult CUDAAPI ledger_StreamSynchronize(CUstream stream)
{
    strata_sim_check_accounts before = count_edges();
    CUresult result = hook_StreamSynchronize(stream);
    return host_relies ? waited(result, NULL, &before) : result;
}

static CUresult CUDAAPI ledger_MemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result = hook_MemPoolCreate(pool, properties);
    return made(result, OBJECT_POOL, HANDLE(*pool));
}

static CUresult CUDAAPI ledger_MemPoolDestroy(CUmemoryPool pool)
{
    return ended(hook_MemPoolDestroy(pool), OBJECT_POOL, HANDLE(pool));
}

static CUresult CUDAAPI ledger_MemAlloc(CUdeviceptr *address, size_t bytes)
{
    CUresult result = hook_MemAlloc(address, bytes);
    return made(result, OBJECT_BLOCK, *address);
}

static CUresult CUDAAPI ledger_MemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    CUresult result = hook_MemAllocManaged(address, bytes, flags);
    return made(result, OBJECT_BLOCK, *address);
}

static CUresult CUDAAPI ledger_MemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                                     CUstream stream)
{
    CUresult result = hook_MemAllocFromPoolAsync(address, bytes, pool, stream);
    return made(result, OBJECT_BLOCK, *address);
}

/* Once an address is freed another thread may get it before this call returns, so it leaves the ledger first. */
static CUresult CUDAAPI ledger_MemFree(CUdeviceptr address)
{
    CUresult result = ended(CUDA_SUCCESS, OBJECT_BLOCK, address);
    result = hook_MemFree(address);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, OBJECT_BLOCK, address), result);
}

static CUresult CUDAAPI ledger_MemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CUresult result = ended(CUDA_SUCCESS, OBJECT_BLOCK, address);
    result = hook_MemFreeAsync(address, stream);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, OBJECT_BLOCK, address), result);
}

static CUresult CUDAAPI ledger_MemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    CUresult result = hook_MemHostAlloc(address, bytes, flags);
    return made(result, OBJECT_PINNED, HANDLE(*address));
}

static CUresult CUDAAPI ledger_MemFreeHost(void *address)
{
    return ended(hook_MemFreeHost(address), OBJECT_PINNED, HANDLE(address));
}

static CUresult CUDAAPI ledger_ModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = hook_ModuleLoadData(module, image);
    return made(result, OBJECT_MODULE, HANDLE(*module));
}

static CUresult CUDAAPI ledger_ModuleUnload(CUmodule module)
{
    return ended(hook_ModuleUnload(module), OBJECT_MODULE, HANDLE(module));
}

static CUresult CUDAAPI ledger_MemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                                                 unsigned long long flags)
{
    CUresult result = hook_MemAddressReserve(address, bytes, alignment, wish, flags);
    return made(result, OBJECT_RANGE, *address);
}

static CUresult CUDAAPI ledger_MemAddressFree(CUdeviceptr address, size_t bytes)
{
    return ended(hook_MemAddressFree(address, bytes), OBJECT_RANGE, address);
}

static CUresult CUDAAPI ledger_MemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                         const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = hook_MemCreate(handle, bytes, properties, flags);
    return made(result, OBJECT_MEMORY, *handle);
}

/* As an address, a handle may be another thread's before this call returns. */
static CUresult CUDAAPI ledger_MemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = ended(CUDA_SUCCESS, OBJECT_MEMORY, handle);
    result = hook_MemRelease(handle);
    return result == CUDA_SUCCESS ? result : (made(CUDA_SUCCESS, OBJECT_MEMORY, handle), result);
}

static CUresult CUDAAPI ledger_MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return made(hook_MemMap(address, bytes, offset, handle, flags), OBJECT_MAP, address);
}

/* One call unmaps everything in the range. */
static CUresult CUDAAPI ledger_MemUnmap(CUdeviceptr address, size_t bytes)
{
    const CUresult result = hook_MemUnmap(address, bytes);
    held_object *entry, *next;
    pthread_mutex_lock(&lock);
    const size_t before = held[OBJECT_MAP];
    HASH_ITER(hh, holdings, entry, next)
    {
        const uint64_t from = entry->key.handle;
        if (result != CUDA_SUCCESS || entry->key.kind != OBJECT_MAP || from < address || from >= address + bytes)
            continue;
        HASH_DEL(holdings, entry);
        held[OBJECT_MAP]--;
        free(entry);
    }
    unowned += result == CUDA_SUCCESS && held[OBJECT_MAP] == before;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- installing ---- */

void test_driver_hook_install(const test_plan *wanted)
{
    real = strata_cu;
    plan = *wanted;
    installer = pthread_self();
    armed = installed = true;
    __real_strata_set_log_callback(hear, NULL);
#define WRAP(need, name, version, parameters, arguments) \
    if (real.name)                                       \
        strata_cu.name = hook_##name;
    STRATA_ENTRY_POINTS(WRAP)
#undef WRAP
#define LEDGER(name) \
    if (real.name)   \
        strata_cu.name = ledger_##name;
    LEDGER(StreamCreate)
    LEDGER(StreamDestroy)
    LEDGER(EventCreate)
    LEDGER(EventDestroy)
    LEDGER(EventRecord)
    LEDGER(StreamWaitEvent)
    LEDGER(EventSynchronize)
    LEDGER(StreamSynchronize)
    LEDGER(MemPoolCreate)
    LEDGER(MemPoolDestroy)
    LEDGER(MemAlloc)
    LEDGER(MemAllocManaged)
    LEDGER(MemFree)
    LEDGER(MemAllocFromPoolAsync)
    LEDGER(MemFreeAsync)
    LEDGER(MemHostAlloc)
    LEDGER(MemFreeHost)
    LEDGER(ModuleLoadData)
    LEDGER(ModuleUnload)
    LEDGER(MemAddressReserve)
    LEDGER(MemAddressFree)
    LEDGER(MemCreate)
    LEDGER(MemRelease)
    LEDGER(MemMap)
    LEDGER(MemUnmap)
#undef LEDGER
}

bool test_driver_hook_is_installed(void)
{
    return installed;
}

void test_driver_hook_disarm(void)
{
    pthread_mutex_lock(&lock);
    armed = false;
    pthread_mutex_unlock(&lock);
}

void test_driver_hook_look(test_driver_hook_seen *what, test_holdings *now)
{
    pthread_mutex_lock(&lock);
    *what = seen;
    what->said = failures_said - seen.said_before;
    *now = (test_holdings){
        .streams = held[OBJECT_STREAM],
        .events = held[OBJECT_EVENT],
        .pools = held[OBJECT_POOL],
        .blocks = held[OBJECT_BLOCK],
        .pinned = held[OBJECT_PINNED],
        .modules = held[OBJECT_MODULE],
        .mapped = held[OBJECT_RANGE] + held[OBJECT_MEMORY] + held[OBJECT_MAP],
        .unowned = unowned,
    };
    pthread_mutex_unlock(&lock);
}
