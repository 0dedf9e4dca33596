/* strata_bench_service: what a device service costs, in both forms, beside a loop of bare copies with the same memory,
 * and how soon an isolated service has a context again. Prints a line for each figure. The isolated form comes first,
 * while this process has no context. */
#include "bench/clock.h"
#include "core/base/driver_state.h"

#include <strata/info.h>
#include <strata/service.h>
#include <strata/service_blas.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 100000, WINDOW = 256, ROUND_TRIPS = 20000, COPIES = 64, COPY_WINDOW = 4, LOSSES = 3 };

static const size_t copy_bytes = (size_t)64 << 20;

static void check(strata_status status, const char *call)
{
    if (status == STRATA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, strata_status_name(status), strata_last_error()->message);
    exit(EXIT_FAILURE);
}

static double seconds_since(uint64_t begun)
{
    return (double)(bench_now() - begun) / 1e9;
}

static strata_ref *take_ref(strata_future *future)
{
    strata_answer answer;
    check(strata_future_wait(future), "allocate");
    check(strata_future_take(future, &answer), "take");
    strata_future_release(future);
    return answer.ref;
}

static strata_future *allocate(strata_service *service, size_t bytes)
{
    strata_future *future;
    check(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, bytes, NULL, &future), "allocate");
    return future;
}

/* ---- memory ---- */

static void measure_allocations(strata_service *service, const char *form)
{
    strata_future *under_way[WINDOW] = {0};
    uint64_t begun = bench_now();
    for (size_t i = 0; i < REQUESTS + WINDOW; i++) {
        strata_future **place = &under_way[i % WINDOW];
        if (*place)
            check(strata_ref_release(take_ref(*place)), "release");
        *place = i < REQUESTS ? allocate(service, 4096) : NULL;
    }
    printf("%s: allocate and release, %d under way: %.0f a second\n", form, WINDOW, REQUESTS / seconds_since(begun));
    begun = bench_now();
    for (size_t i = 0; i < ROUND_TRIPS; i++)
        check(strata_ref_release(take_ref(allocate(service, 4096))), "release");
    printf("%s: allocate and release, one at a time: %.0f a second\n", form, ROUND_TRIPS / seconds_since(begun));
}

/* ---- copies ---- */

static void end_copy(strata_future *future)
{
    strata_answer answer;
    check(strata_future_wait(future), "copy");
    check(strata_future_take(future, &answer), "take");
    strata_host_buffer_release(answer.buffer);
    strata_future_release(future);
}

/* The rate of copies with a request under way for each buffer. */
static double copy_rate(strata_service *service, strata_ref *ref, strata_host_buffer *const *buffers, size_t window,
                        bool to_host)
{
    strata_future *under_way[COPY_WINDOW] = {0};
    const uint64_t begun = bench_now();
    for (size_t i = 0; i < COPIES + window; i++) {
        strata_future **place = &under_way[i % window];
        strata_host_buffer *buffer = buffers[i % window];
        if (*place)
            end_copy(*place);
        *place = NULL;
        if (i < COPIES)
            check(to_host ? strata_service_copy_to_host(service, ref, buffer, NULL, place)
                          : strata_service_copy_from_host(service, buffer, ref, NULL, place),
                  "copy");
    }
    return COPIES * (double)copy_bytes / seconds_since(begun) / 1e9;
}

static void report_copies(strata_service *service, const char *form, strata_host_buffer *const *buffers, size_t window,
                          const char *what)
{
    strata_ref *ref = take_ref(allocate(service, copy_bytes));
    copy_rate(service, ref, buffers, window, false); /* maps and locks what is shared */
    const double from = copy_rate(service, ref, buffers, window, false);
    const double to = copy_rate(service, ref, buffers, window, true);
    printf("%s: copies of 64 MiB, %zu under way: from %s %.1f GB/s, to it %.1f GB/s\n", form, window, what, from, to);
    check(strata_ref_release(ref), "release");
}

static void measure_copies(strata_service *service, const char *form)
{
    strata_host_buffer *own[COPY_WINDOW], *plain;
    for (size_t i = 0; i < COPY_WINDOW; i++) {
        check(strata_service_buffer_create(service, copy_bytes, &own[i]), "strata_service_buffer_create");
        memset(strata_host_buffer_memory(own[i]), 1, copy_bytes);
    }
    check(strata_host_buffer_create(copy_bytes, &plain), "strata_host_buffer_create");
    memset(strata_host_buffer_memory(plain), 1, copy_bytes);
    report_copies(service, form, own, COPY_WINDOW, "the service's buffers");
    report_copies(service, form, own, 1, "the service's buffer");
    report_copies(service, form, &plain, 1, "plain memory");
    for (size_t i = 0; i < COPY_WINDOW; i++)
        strata_host_buffer_release(own[i]);
    strata_host_buffer_release(plain);
}

static void measure_losses(strata_service *service)
{
    for (int i = 0; i < LOSSES; i++) {
        strata_service_stats stats;
        strata_future *future;
        check(strata_service_get_stats(service, &stats), "stats");
        const uint64_t generation = stats.generation, begun = bench_now();
        kill(stats.worker, SIGKILL);
        while (strata_device_state_generation(strata_service_device_state(service)) == generation)
            ;
        const double noticed = seconds_since(begun);
        check(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, 4096, NULL, &future), "allocate");
        check(strata_ref_release(take_ref(future)), "release");
        printf("isolated: worker killed: noticed after %.2f ms, next allocation after %.1f ms\n", noticed * 1e3,
               seconds_since(begun) * 1e3);
    }
}

/* ---- a fault of a kernel, and a product on the new context ---- */

enum { SIDE = 64 };

/* Writes `bytes` bytes at an address: driver/kernels/pattern.cu. */
static const char fill_ptx[] = {
#include "kernels/pattern_ptx.inc"
};

static strata_argument number(uint64_t value)
{
    strata_argument argument = {.kind = STRATA_ARGUMENT_VALUE, .bytes = sizeof value};
    memcpy(argument.value, &value, sizeof value);
    return argument;
}

static void write_where_nothing_is(strata_service *service)
{
    strata_future *future;
    strata_answer loaded;
    check(strata_service_load(service, fill_ptx, 0, NULL, &future), "load");
    check(strata_future_wait(future), "load");
    check(strata_future_take(future, &loaded), "take");
    strata_future_release(future);
    const strata_argument arguments[] = {number(16), number(4096), number(1)};
    const strata_kernel kernel = {
        .module = loaded.module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    check(strata_service_launch(service, &kernel, NULL, &future), "launch");
    if (strata_future_wait(future) == STRATA_SUCCESS) {
        fprintf(stderr, "a kernel that writes where nothing is did not fail\n");
        exit(EXIT_FAILURE);
    }
    strata_future_release(future);
}

static strata_ref *floats(strata_service *service, strata_host_buffer *buffer)
{
    strata_future *future;
    check(strata_service_allocate_raw(service, STRATA_ELEMENT_F32, SIDE * SIDE, NULL, &future), "allocate");
    strata_ref *ref = take_ref(future);
    check(strata_service_copy_from_host(service, buffer, ref, NULL, &future), "copy");
    check(strata_future_wait(future), "copy");
    strata_future_release(future);
    return ref;
}

/* Multiplies two matrices of ones. False: the result is not SIDE everywhere. */
static bool multiply_ones(strata_service *service)
{
    strata_host_buffer *buffer;
    strata_future *future;
    check(strata_host_buffer_create(SIDE * SIDE * sizeof(float), &buffer), "buffer");
    float *values = strata_host_buffer_memory(buffer);
    for (int i = 0; i < SIDE * SIDE; i++)
        values[i] = 1;
    strata_ref *a = floats(service, buffer), *c = floats(service, buffer);
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = SIDE,
                                        .n = SIDE,
                                        .k = SIDE,
                                        .alpha = 1,
                                        .a = strata_blas_of_ref(a),
                                        .b = strata_blas_of_ref(a),
                                        .c = strata_blas_of_ref(c)};
    check(strata_service_sgemm(service, &call, NULL, &future), "sgemm");
    check(strata_future_wait(future), "sgemm");
    strata_future_release(future);
    check(strata_service_copy_to_host(service, c, buffer, NULL, &future), "copy");
    check(strata_future_wait(future), "copy");
    strata_future_release(future);
    bool right = true;
    for (int i = 0; i < SIDE * SIDE; i++)
        right = right && values[i] == SIDE;
    strata_ref_release(a);
    strata_ref_release(c);
    strata_host_buffer_release(buffer);
    return right;
}

static void measure_faults(void)
{
    const strata_service_options options = {.form = STRATA_SERVICE_ISOLATED, .libraries = "blas"};
    strata_service *service;
    check(strata_service_create(&options, &service), "create");
    check(strata_service_wait_ready(service, UINT64_MAX / 2), "wait_ready");
    for (int i = 0; i < LOSSES; i++) {
        write_where_nothing_is(service);
        const uint64_t begun = bench_now();
        check(strata_service_wait_ready(service, UINT64_MAX / 2), "wait_ready");
        const double ready = seconds_since(begun);
        const bool right = multiply_ones(service);
        printf("isolated: after a kernel's illegal access: a context, with cuBLAS, after %.0f ms; a%s product after "
               "%.0f ms\n",
               ready * 1e3, right ? " correct" : " WRONG", seconds_since(begun) * 1e3);
    }
    check(strata_service_destroy(service), "destroy");
}

/* ---- bare copies ---- */

static double bare_rate(CUdeviceptr device, void *host, bool to_host)
{
    const uint64_t begun = bench_now();
    for (int i = 0; i < COPIES; i++)
        if ((to_host ? strata_cu.MemcpyDtoHAsync(host, device, copy_bytes, NULL)
                     : strata_cu.MemcpyHtoDAsync(device, host, copy_bytes, NULL)) != CUDA_SUCCESS)
            exit(EXIT_FAILURE);
    strata_cu.StreamSynchronize(NULL);
    return COPIES * (double)copy_bytes / seconds_since(begun) / 1e9;
}

static void measure_bare(void)
{
    strata_device_info info;
    CUcontext context;
    CUdeviceptr device;
    void *host;
    check(strata_device_get_info(0, &info), "strata_device_get_info");
    if (strata_cu.DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        strata_cu.CtxSetCurrent(context) != CUDA_SUCCESS || strata_cu.MemAlloc(&device, copy_bytes) != CUDA_SUCCESS ||
        strata_cu.MemHostAlloc(&host, copy_bytes, 0) != CUDA_SUCCESS)
        exit(EXIT_FAILURE);
    memset(host, 1, copy_bytes);
    bare_rate(device, host, false);
    printf("bare: cuMemcpyAsync of 64 MiB: to the device %.1f GB/s, to the host %.1f GB/s (%s)\n",
           bare_rate(device, host, false), bare_rate(device, host, true), info.name);
    strata_cu.MemFreeHost(host);
    strata_cu.MemFree(device);
}

static void measure(strata_service_form form)
{
    const char *name = form == STRATA_SERVICE_ISOLATED ? "isolated" : "in process";
    const strata_service_options options = {.form = form};
    strata_service *service;
    const uint64_t begun = bench_now();
    check(strata_service_create(&options, &service), "strata_service_create");
    check(strata_service_wait_ready(service, UINT64_C(60000000000)), "strata_service_wait_ready");
    printf("%s: ready after %.1f ms\n", name, seconds_since(begun) * 1e3);
    measure_allocations(service, name);
    measure_copies(service, name);
    if (form == STRATA_SERVICE_ISOLATED)
        measure_losses(service);
    check(strata_service_destroy(service), "strata_service_destroy");
}

int main(void)
{
    measure(STRATA_SERVICE_ISOLATED);
    measure_faults();
    measure(STRATA_SERVICE_IN_PROCESS);
    measure_bare();
    return EXIT_SUCCESS;
}
