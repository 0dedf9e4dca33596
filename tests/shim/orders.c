/* Entry points with more order, or less information, than the driver's own. */
#include "shim/orders.h"

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The driver's; written once, by shim_orders_open(). NULL: it lacks one. */
static struct {
    PFN_cuCtxGetCurrent_v4000 context_get_current;
    PFN_cuEventCreate_v2000 event_create;
    PFN_cuEventQuery_v2000 event_query;
    PFN_cuEventRecord_v2000 event_record;
    PFN_cuStreamCreate_v2000 stream_create;
    PFN_cuStreamQuery_v2000 stream_query;
    PFN_cuStreamWaitEvent_v3020 stream_wait_event;
} driver;

/* The witness: a stream without work, and its event, of the context of the first stream, which must live on. Streams of
 * other contexts are unchanged. Guarded by `lock`. */
static struct {
    pthread_mutex_t lock;
    CUcontext context; /* NULL: there is none yet */
    CUstream stream;
    CUevent event;
} witness = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool asked_for(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text;
}

static CUresult CUDAAPI pending_event_query(CUevent event)
{
    CUresult result = driver.event_query(event);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

static CUresult CUDAAPI pending_stream_query(CUstream stream)
{
    CUresult result = driver.stream_query(stream);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

/* Called before the program's first stream is created: only existing streams are ordered after a host's wait. */
static void make_witness(CUcontext current)
{
    if (witness.context || !current || driver.event_create(&witness.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (driver.stream_create(&witness.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        witness.context = current;
}

static CUresult CUDAAPI following_stream_create(CUstream *stream, unsigned flags)
{
    CUcontext current = NULL;
    driver.context_get_current(&current);
    pthread_mutex_lock(&witness.lock);
    make_witness(current);
    CUresult result = driver.stream_create(stream, flags);
    if (result == CUDA_SUCCESS && current && current == witness.context) {
        result = driver.event_record(witness.event, witness.stream);
        if (result == CUDA_SUCCESS)
            result = driver.stream_wait_event(*stream, witness.event, CU_EVENT_WAIT_DEFAULT);
    }
    pthread_mutex_unlock(&witness.lock);
    return result;
}

void shim_orders_open(void *(*find)(const char *name))
{
    const struct {
        const char *name;
        void *pointer;
    } entries[] = {
        {"cuCtxGetCurrent", &driver.context_get_current},
        {"cuEventCreate", &driver.event_create},
        {"cuEventQuery", &driver.event_query},
        {"cuEventRecord", &driver.event_record},
        {"cuStreamCreate", &driver.stream_create},
        {"cuStreamQuery", &driver.stream_query},
        {"cuStreamWaitEvent", &driver.stream_wait_event},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *symbol = find(entries[i].name);
        memcpy(entries[i].pointer, &symbol, sizeof symbol);
    }
}

void *shim_orders_choose(const char *symbol, void *real)
{
    PFN_cuEventQuery_v2000 query = pending_event_query;
    PFN_cuStreamQuery_v2000 query_stream = pending_stream_query;
    PFN_cuStreamCreate_v2000 create = following_stream_create;
    if (strcmp(symbol, "cuEventQuery") == 0 && asked_for("STRATA_SHIM_EVENTS_PENDING"))
        memcpy(&real, &query, sizeof real);
    else if (strcmp(symbol, "cuStreamQuery") == 0 && asked_for("STRATA_SHIM_EVENTS_PENDING"))
        memcpy(&real, &query_stream, sizeof real);
    else if (strcmp(symbol, "cuStreamCreate") == 0 && asked_for("STRATA_SHIM_STREAMS_FOLLOW"))
        memcpy(&real, &create, sizeof real);
    return real;
}
