/* NVTX ranges around what requests submit, named for their operations, in the domain "strata". NVTX loads the tool that
 * the environment names with the first call; without a tool a call costs a few nanoseconds. */
#include "service/graph.h"
#include "service/in_process/in_process.h"

#ifdef STRATA_HAVE_NVTX
#include <stdlib.h>

/* Functions in NVTX's headers load the library that the environment names, also in a set-uid program. */
#define getenv secure_getenv
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>
#undef getenv

#include <pthread.h>

static nvtxDomainHandle_t domain; /* written once */
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("strata");
}

static const char *name_of(const strata_future *request)
{
    static const char *const names[SERVICE_KINDS] = {
        [SERVICE_ALLOCATE] = "allocate",
        [SERVICE_RUN] = "run", /* the worker's own; a program's have names */
        [SERVICE_COPY_TO_HOST] = "copy to host",
        [SERVICE_COPY_FROM_HOST] = "copy from host",
        [SERVICE_LOAD] = "load",
        [SERVICE_LAUNCH_GRAPH] = "launch graph",
        [SERVICE_BLAS] = "blas",
        [SERVICE_COPY] = "copy",
        [SERVICE_FILL] = "fill",
        [SERVICE_MAKE_GRAPH] = "make graph",
        [SERVICE_PLAY_GRAPH] = "play graph",
    };
    const char *own = request->name             ? request->name
                      : request->recorded_graph ? request->recorded_graph->name
                                                : request->launch.entry;
    return own ? own : names[request->kind];
}

void service_range_begin(const strata_service *service, const strata_future *request)
{
    if (!service->options.nvtx)
        return;
    pthread_once(&made, make_domain);
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name_of(request)};
    nvtxDomainRangePushEx(domain, &attributes);
}

void service_range_end(const strata_service *service)
{
    if (service->options.nvtx)
        nvtxDomainRangePop(domain);
}

#else

void service_range_begin(const strata_service *service, const strata_future *request)
{
    (void)service;
    (void)request;
}

void service_range_end(const strata_service *service)
{
    (void)service;
}

#endif
