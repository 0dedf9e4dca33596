/* Requests to a device service, beside bare calls of the driver. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include <strata/service.h>

enum {
    BYTES = 1024,
    COPY = 64 << 20,
    WINDOW = 64, /* requests under way */
    COPY_WINDOW = 4,
};

typedef struct stage {
    strata_service *service;
    strata_future *window[WINDOW];
    size_t first, count;
    CUstream stream;
    strata_ref *ref;
    CUdeviceptr address;
    strata_host_buffer *buffers[COPY_WINDOW];
    bool to_host;
} stage;

static void take_first(stage *self)
{
    strata_answer answer;
    strata_future *future = self->window[self->first];
    scene_check(strata_future_wait(future), "strata_future_wait");
    scene_check(strata_future_take(future, &answer), "strata_future_take");
    strata_ref_release(answer.ref);
    strata_host_buffer_release(answer.buffer);
    strata_future_release(future);
    self->first = (self->first + 1) % WINDOW;
    self->count--;
}

static strata_future **next(stage *self, size_t most)
{
    while (self->count >= most)
        take_first(self);
    return &self->window[(self->first + self->count++) % WINDOW];
}

static void drain(void *state)
{
    stage *self = state;
    while (self->count)
        take_first(self);
}

/* ---- memory ---- */

static void allocate_many(void *state, size_t operations)
{
    stage *self = state;
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_service_allocate_raw(self->service, STRATA_ELEMENT_U8, BYTES, NULL, next(self, WINDOW)),
                    "strata_service_allocate_raw");
}

static void allocate_one_by_one(void *state, size_t operations)
{
    stage *self = state;
    for (size_t i = 0; i < operations; i++) {
        scene_check(strata_service_allocate_raw(self->service, STRATA_ELEMENT_U8, BYTES, NULL, next(self, WINDOW)),
                    "strata_service_allocate_raw");
        drain(self);
    }
}

/* ---- copies ---- */

static void copy_bare(void *state, size_t operations)
{
    stage *self = state;
    for (size_t i = 0; i < operations; i++) {
        void *host = strata_host_buffer_memory(self->buffers[i % COPY_WINDOW]);
        if (self->to_host)
            bare_check(bare.MemcpyDtoHAsync(host, self->address, COPY, self->stream), "cuMemcpyDtoHAsync");
        else
            bare_check(bare.MemcpyHtoDAsync(self->address, host, COPY, self->stream), "cuMemcpyHtoDAsync");
    }
    bare_check(bare.StreamSynchronize(self->stream), "cuStreamSynchronize");
}

static void copy_by_requests(void *state, size_t operations)
{
    stage *self = state;
    for (size_t i = 0; i < operations; i++) {
        strata_host_buffer *buffer = self->buffers[i % COPY_WINDOW];
        strata_future **future = next(self, COPY_WINDOW);
        scene_check(self->to_host ? strata_service_copy_to_host(self->service, self->ref, buffer, NULL, future)
                                  : strata_service_copy_from_host(self->service, buffer, self->ref, NULL, future),
                    "strata_service_copy_to_host");
    }
    drain(self);
}

static strata_ref *allocate(strata_service *service, size_t bytes)
{
    strata_future *future;
    strata_answer answer;
    scene_check(strata_service_allocate(service, STRATA_ELEMENT_U8, bytes, NULL, &future), "strata_service_allocate");
    scene_check(strata_future_wait(future), "strata_service_allocate");
    scene_check(strata_future_take(future, &answer), "strata_future_take");
    strata_future_release(future);
    return answer.ref;
}

static void bench_copies(const bench *self, stage *state, const char *name, bool to_host)
{
    if (!bench_wants(self, name))
        return;
    state->to_host = to_host;
    state->ref = allocate(state->service, COPY);
    bare_check(bare.StreamCreate(&state->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    bare_check(bare.MemAlloc(&state->address, COPY), "cuMemAlloc");
    for (size_t i = 0; i < COPY_WINDOW; i++)
        scene_check(strata_service_buffer_create(state->service, COPY, &state->buffers[i]),
                    "strata_service_buffer_create");
    bench_row(self, name, (bench_plan){.batch = 16, .batches = 1}, (bench_side){copy_bare, NULL, state},
              (bench_side){copy_by_requests, drain, state}, (bench_target){REPORT_TIMES_AT_MOST, 1 / 0.95});
    for (size_t i = 0; i < COPY_WINDOW; i++)
        strata_host_buffer_release(state->buffers[i]);
    bare_check(bare.MemFree(state->address), "cuMemFree");
    bare_check(bare.StreamDestroy(state->stream), "cuStreamDestroy");
    strata_ref_release(state->ref);
}

void bench_service(const bench *self)
{
    const bench_side none = {NULL, NULL, NULL};
    const strata_service_options options = {.stack_text = "pool"};
    stage state = {0};
    report_heading(self->report, "Device service, in this process", false);
    scene_check(strata_service_create(&options, &state.service), "strata_service_create");
    scene_check(strata_service_wait_ready(state.service, UINT64_MAX / 2), "strata_service_wait_ready");
    if (bench_wants(self, "service, allocate and release, 64 requests under way"))
        bench_row(self, "service, allocate and release, 64 requests under way",
                  (bench_plan){.batch = 10000, .batches = 1}, none, (bench_side){allocate_many, drain, &state},
                  (bench_target){REPORT_TAKES_AT_MOST, 2000});
    if (bench_wants(self, "service, allocate and release, one after the other"))
        bench_row(self, "service, allocate and release, one after the other", (bench_plan){.batch = 1000, .batches = 1},
                  none, (bench_side){allocate_one_by_one, drain, &state}, (bench_target){REPORT_NO_TARGET, 0});
    bench_copies(self, &state, "service, copy of 64 MiB from the host (bare: the same copies)", false);
    bench_copies(self, &state, "service, copy of 64 MiB to the host (bare: the same copies)", true);
    scene_check(strata_service_destroy(state.service), "strata_service_destroy");
}
