/* Questions about host functions: their order, and the results of driver calls inside them. */
#include "ask.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { ORDERED = 64 };

struct sequence {
    atomic_int next;
    atomic_bool in_order;
};

struct step {
    struct sequence *sequence;
    int number;
};

static void CUDA_CB take_step(void *data)
{
    struct step *step = data;
    if (atomic_fetch_add(&step->sequence->next, 1) != step->number)
        atomic_store(&step->sequence->in_order, false);
}

static void ask_sequence(CUstream stream, const char *name)
{
    static struct step steps[ORDERED];
    static struct sequence sequence;
    atomic_store(&sequence.next, 0);
    atomic_store(&sequence.in_order, true);
    for (int i = 0; i < ORDERED; i++) {
        steps[i] = (struct step){&sequence, i};
        cu.LaunchHostFunc(stream, take_step, &steps[i]);
    }
    cu.StreamSynchronize(stream);
    ask_number(atomic_load(&sequence.next), "host_function.%s.ran", name);
    ask_yes(atomic_load(&sequence.in_order), "host_function.%s.in_order", name);
}

enum call {
    DRIVER_GET_VERSION,
    DEVICE_GET_COUNT,
    CTX_GET_CURRENT,
    CTX_SET_CURRENT,
    STREAM_IS_CAPTURING,
    STREAM_GET_ID,
    STREAM_QUERY,
    EVENT_QUERY,
    EVENT_CREATE,
    EVENT_RECORD,
    MEM_GET_INFO,
    POINTER_GET_ATTRIBUTE,
    MEM_ALLOC,
    MEM_FREE,
    MEM_ALLOC_ASYNC,
    MEM_FREE_ASYNC,
    MEMSET_ASYNC,
    LAUNCH_HOST_FUNC,
    STREAM_CREATE,
    STREAM_SYNCHRONIZE_OTHER,
    CTX_SYNCHRONIZE,
    CALLS
};

static const char *const call_names[CALLS] = {
    "driver_get_version", "device_get_count",      "ctx_get_current",  "ctx_set_current", "stream_is_capturing",
    "stream_get_id",      "stream_query",          "event_query",      "event_create",    "event_record",
    "mem_get_info",       "pointer_get_attribute", "mem_alloc",        "mem_free",        "mem_alloc_async",
    "mem_free_async",     "memset_async",          "launch_host_func", "stream_create",   "stream_synchronize_other",
    "ctx_synchronize",
};

struct inside {
    enum call call;
    CUcontext context;
    CUstream stream;
    CUstream other;
    CUevent event;
    CUdeviceptr memory;
    CUresult result;
    sem_t done;
};

static void CUDA_CB do_nothing(void *data)
{
    (void)data;
}

static CUresult call_driver(struct inside *inside)
{
    int number = 0;
    size_t bytes = 0;
    unsigned long long id = 0;
    CUcontext context = NULL;
    CUstreamCaptureStatus status;
    CUevent event = NULL;
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    switch (inside->call) {
    case DRIVER_GET_VERSION:
        return cu.DriverGetVersion(&number);
    case DEVICE_GET_COUNT:
        return cu.DeviceGetCount(&number);
    case CTX_GET_CURRENT:
        return cu.CtxGetCurrent(&context);
    case CTX_SET_CURRENT:
        return cu.CtxSetCurrent(inside->context);
    case STREAM_IS_CAPTURING:
        return cu.StreamIsCapturing(inside->stream, &status);
    case STREAM_GET_ID:
        return cu.StreamGetId(inside->stream, &id);
    case STREAM_QUERY:
        return cu.StreamQuery(inside->stream);
    case EVENT_QUERY:
        return cu.EventQuery(inside->event);
    case EVENT_CREATE:
        return cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    case EVENT_RECORD:
        return cu.EventRecord(inside->event, inside->other);
    case MEM_GET_INFO:
        return cu.MemGetInfo(&bytes, &bytes);
    case POINTER_GET_ATTRIBUTE:
        return cu.PointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside->memory);
    case MEM_ALLOC:
        return cu.MemAlloc(&address, 4096);
    case MEM_FREE:
        return cu.MemFree(0);
    case MEM_ALLOC_ASYNC:
        return cu.MemAllocAsync(&address, 4096, inside->other);
    case MEM_FREE_ASYNC:
        return cu.MemFreeAsync(0, inside->other);
    case MEMSET_ASYNC:
        return cu.MemsetD8Async(inside->memory, 1, 16, inside->other);
    case LAUNCH_HOST_FUNC:
        return cu.LaunchHostFunc(inside->other, do_nothing, NULL);
    case STREAM_CREATE:
        return cu.StreamCreate(&stream, 0);
    case STREAM_SYNCHRONIZE_OTHER:
        return cu.StreamSynchronize(inside->other);
    case CTX_SYNCHRONIZE:
        return cu.CtxSynchronize();
    case CALLS:
        break;
    }
    return CUDA_ERROR_UNKNOWN;
}

static void CUDA_CB call_from_inside(void *data)
{
    struct inside *inside = data;
    inside->result = call_driver(inside);
    sem_post(&inside->done);
}

/* Queries the stream while it waits: work that is not queried may be delayed. */
static bool comes_back(struct inside *inside)
{
    enum { TURNS = 2000 };
    for (int i = 0; i < TURNS; i++) {
        cu.StreamQuery(inside->stream);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (sem_trywait(&inside->done) == 0)
            return true;
    }
    return false;
}

/* False: the call inside has not returned in two seconds, and this context must not be used any more. */
static bool ask_inside(const struct inside *pattern, enum call call)
{
    struct inside *inside = malloc(sizeof *inside);
    if (inside == NULL)
        return false;
    *inside = *pattern;
    inside->call = call;
    sem_init(&inside->done, 0, 0);
    cu.LaunchHostFunc(inside->stream, call_from_inside, inside);
    if (!comes_back(inside)) {
        ask_text("does not return", "host_function.calls.%s", call_names[call]);
        return false;
    }
    ask(inside->result, "host_function.calls.%s", call_names[call]);
    cu.StreamSynchronize(inside->stream);
    cu.StreamSynchronize(inside->other);
    sem_destroy(&inside->done);
    free(inside);
    return true;
}

void ask_host_functions(void)
{
    CUcontext context = start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    warm_up(other);
    ask(cu.LaunchHostFunc(stream, NULL, NULL), "host_function.null");
    ask_sequence(stream, "non_blocking");
    ask_sequence(NULL, "null");
    ask_sequence(CU_STREAM_PER_THREAD, "per_thread");
    struct inside inside = {.context = context, .stream = stream, .other = other};
    inside.event = new_event();
    inside.memory = new_memory(4 * KIB);
    cu.EventRecord(inside.event, other);
    cu.StreamSynchronize(other);
    for (int call = 0; call < CALLS; call++) {
        if (!ask_inside(&inside, (enum call)call))
            _Exit(0);
    }
    ask(cu.CtxSynchronize(), "host_function.context_is_usable");
}
