/* Several stacks of one process on one device, of any owners: one that is refused memory by the device takes what
 * others have free. test_pool_neighbours.c has more about two pools. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/effort.h"
#include "support/neighbours.h"
#include "support/stall.h"

#include <strata/direct.h>
#include <strata/failure_callback.h>

/* Bins whose chunks are as large as several of their blocks. */
#define BINS  "binning(bins=64MiB, chunk=256MiB)"
#define FIXED "fixed(bytes=64MiB, chunk=256MiB)"
#define GUARD "guard(quarantine_bytes=4GiB, poison=off)"

enum { BLOCK = 64 << 20, MOST_BLOCKS = 64, ROUNDS = 12, ROUNDS_DEBUGGED = 3 };

/* The stacks that ask, and then are refused. A request for 2 GiB goes through bins to the layer below. */
static const char *const askers[] = {
    "pool",
    "async",
    "direct",
    "managed",
    BINS ", direct",
    FIXED ", direct",
    BINS ", pool",
    "pool, direct",
    "pool, async",
    GUARD ", pool",
    GUARD ", direct",
    "fallback(pool(max_size=1GiB) | direct)",
    "statistics, async",
};

enum { ASKERS = sizeof askers / sizeof askers[0] };

static strata_usage usage_of(strata_runtime *runtime)
{
    strata_usage usage;
    child_ok(strata_runtime_usage(runtime, &usage));
    return usage;
}

/* By blocks of 64 MiB, which bins serve. */
typedef struct blocks {
    strata_block all[MOST_BLOCKS];
    size_t count;
} blocks;

static void take_blocks(strata_runtime *runtime, size_t bytes, CUstream stream, blocks *out)
{
    for (out->count = 0; out->count < bytes / BLOCK; out->count++)
        child_ok(strata_runtime_allocate(runtime, BLOCK, stream, &out->all[out->count]));
}

static void give_blocks(strata_runtime *runtime, blocks *those)
{
    for (size_t i = 0; i < those->count; i++)
        child_ok(strata_runtime_deallocate(runtime, &those->all[i]));
    those->count = 0;
}

static void leave_free(strata_runtime *runtime, size_t bytes)
{
    blocks those;
    take_blocks(runtime, bytes, NULL, &those);
    give_blocks(runtime, &those);
}

/* ---- every stack beside every other ---- */

/* Prints the pair of a failure. */
static void check_pair(bool condition, const char *what, const char *holder, const char *asker)
{
    if (!condition)
        fprintf(stderr, "\"%s\" has free memory, \"%s\" asks: %s; last error: %s\n", holder, asker, what,
                strata_last_error()->message);
    child_check(condition);
}

/* The first keeps 3 of 4 GiB, the second asks for 2. */
static void serve_beside(const char *holder, const char *asker)
{
    strata_block block;
    strata_runtime *first = make_stack(holder), *second = make_stack(asker);
    leave_free(first, 3 * GIB);
    const strata_status status = strata_runtime_allocate(second, 2 * GIB, NULL, &block);
    check_pair(status == STRATA_SUCCESS, "refused", holder, asker);
    give(second, &block);
    end_stack(second);
    end_stack(first);
}

/* All of them, or, under a tool that slows the test down, each third. */
static size_t step(void)
{
    return (size_t)(4 - test_effort(3, 1));
}

static const char *holder; /* set by the scenario */

static void serve_all_askers(void)
{
    begin_child();
    for (size_t i = 0; i < ASKERS; i++)
        serve_beside(holder, askers[i]);
}

#define HOLDER(name, text)  \
    static void name(void)  \
    {                       \
        holder = (text);    \
        serve_all_askers(); \
    }

HOLDER(serve_beside_pool, "pool")
HOLDER(serve_beside_pool_over_direct, "pool, direct")
HOLDER(serve_beside_pool_over_async, "pool, async")
HOLDER(serve_beside_bins_over_direct, BINS ", direct")
HOLDER(serve_beside_fixed_over_direct, FIXED ", direct")
HOLDER(serve_beside_bins_over_async, BINS ", async")
HOLDER(serve_beside_bins_over_pool, BINS ", pool")
HOLDER(serve_beside_pool_over_bins, "pool, " BINS ", direct")
HOLDER(serve_beside_async, "async")
HOLDER(serve_beside_view, "async(pool=default)")
HOLDER(serve_beside_guard, GUARD ", direct")
HOLDER(serve_beside_branches, "fallback(pool(max_size=3GiB) | managed)")
HOLDER(serve_beside_decorators, "budget(limit=8GiB), logging(format=null), statistics, nvtx, pool")

/* ---- not more than is needed ---- */

/* What the device lacks, in steps of the holder's. */
static void keep_what_is_not_needed(void)
{
    static const char *const holders[] = {"pool", "pool, async", BINS ", direct", "pool, direct"};
    begin_child();
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++) {
        strata_runtime *first = make_stack(holders[i]), *second = make_stack("direct");
        size_t left = 0, total;
        leave_free(first, 3 * GIB);
        child_check(test_cu()->MemGetInfo(&left, &total) == CUDA_SUCCESS);
        const size_t lacks = 2 * GIB - left;
        const strata_block block = take(second, 2 * GIB);
        check_pair(usage_of(first).reserved_bytes + lacks + 256 * MIB >= 3 * GIB, "gave more", holders[i], "direct");
        give(second, &block);
        end_stack(second);
        end_stack(first);
    }
}

static void take_a_little_of_a_full_device(void)
{
    begin_child();
    for (size_t i = 0; i < ASKERS; i++) {
        strata_runtime *first = make_stack("pool"), *second = make_stack(askers[i]);
        size_t left = 0, total;
        child_check(test_cu()->MemGetInfo(&left, &total) == CUDA_SUCCESS);
        strata_block block = take(first, left / (2 * MIB) * (2 * MIB));
        give(first, &block);
        block = take(second, 4096);
        give(second, &block);
        end_stack(second);
        end_stack(first);
    }
}

/* Nothing goes if it cannot be enough. */
static void leave_others_alone_where_they_cannot_help(void)
{
    begin_child();
    for (size_t i = 0; i < ASKERS; i++) {
        strata_runtime *first = make_stack("pool"), *second = make_stack(askers[i]);
        strata_block refused, live = take(first, GIB);
        leave_free(first, 2 * GIB);
        child_status(strata_runtime_allocate(second, 4 * GIB - 128 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
        check_pair(usage_of(first).reserved_bytes == 3 * GIB, "gave for nothing", "pool", askers[i]);
        give(first, &live);
        end_stack(second);
        end_stack(first);
    }
}

/* A limit of the stack's own refuses; and what is deterministic does not depend on others. */
static void leave_others_alone_at_an_own_limit(void)
{
    static const char *const with_limit[] = {"pool(max_size=1GiB)",
                                             "async(max_size=1GiB)",
                                             "budget(limit=1GiB), direct",
                                             "pool(max_size=1GiB), direct",
                                             "budget(limit=1GiB), " BINS ", async",
                                             "pool(deterministic=on)"};
    begin_child();
    for (size_t i = 0; i < sizeof with_limit / sizeof with_limit[0]; i++) {
        strata_runtime *first = make_stack("pool"), *second = make_stack(with_limit[i]);
        strata_block refused;
        leave_free(first, 3 * GIB);
        check_pair(strata_runtime_allocate(second, 2 * GIB, NULL, &refused) != STRATA_SUCCESS, "served", "pool",
                   with_limit[i]);
        check_pair(usage_of(first).reserved_bytes == 3 * GIB, "gave", "pool", with_limit[i]);
        end_stack(second);
        end_stack(first);
    }
}

static void leave_what_is_to_stay(void)
{
    static const char *const staying[] = {"pool(initial_size=3GiB)", "pool(deterministic=on)"};
    begin_child();
    for (size_t i = 0; i < sizeof staying / sizeof staying[0]; i++) {
        strata_runtime *first = make_stack(staying[i]), *second = make_stack("direct");
        strata_block block;
        leave_free(first, 3 * GIB);
        const size_t held = usage_of(first).reserved_bytes;
        check_pair(strata_runtime_allocate(second, 2 * GIB, NULL, &block) == STRATA_ERROR_OUT_OF_MEMORY, "served",
                   staying[i], "direct");
        check_pair(usage_of(first).reserved_bytes == held, "gave", staying[i], "direct");
        end_stack(second);
        end_stack(first);
    }
}

/* A small request beside one chunk of the initial size and a block in another: what is above the initial size is less
 * than a chunk. */
static void keep_the_chunk_of_an_initial_size(void)
{
    begin_child();
    size_t left = 0, total;
    strata_block refused;
    strata_runtime *first = make_stack("pool(initial_size=1GiB), direct"), *second = make_stack("direct");
    const strata_block all = take(first, GIB), live = take(first, 4 * MIB);
    give(first, &all);
    child_check(test_cu()->MemGetInfo(&left, &total) == CUDA_SUCCESS);
    const size_t held = usage_of(first).reserved_bytes;
    child_check(held > GIB);
    child_status(strata_runtime_allocate(second, left + MIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    child_check(usage_of(first).reserved_bytes == held);
    give(first, &live);
    end_stack(second);
    end_stack(first);
}

/* More than managed's own room for all its blocks: no memory of the device would help. */
static void leave_others_alone_at_the_room_of_managed(void)
{
    begin_child();
    strata_block refused;
    strata_runtime *first = make_stack("pool"), *second = make_stack("managed");
    const strata_block live = take(second, 3 * GIB);
    leave_free(first, 2 * GIB);
    child_status(strata_runtime_allocate(second, 2 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    child_check(usage_of(first).reserved_bytes == 2 * GIB);
    give(second, &live);
    end_stack(second);
    end_stack(first);
}

/* The youngest stack has memory of the host free; the older one's frees wait for the device, so both are asked late. */
static void leave_memory_of_the_host_alone(void)
{
    begin_child();
    strata_runtime *device = make_stack("pool, direct"), *host = make_stack(FIXED ", pinned");
    strata_runtime *asker = make_stack("direct");
    leave_free(device, 3 * GIB);
    leave_free(host, 512 * MIB);
    const size_t held = usage_of(host).reserved_bytes;
    const strata_block block = take(asker, 2 * GIB);
    child_check(usage_of(host).reserved_bytes == held);
    give(asker, &block);
    end_stack(asker);
    end_stack(host);
    end_stack(device);
}

/* What is live in one branch is not live in the other. */
static void take_from_a_branch_beside_one_of_other_memory(void)
{
    begin_child();
    strata_runtime *first = make_stack("fallback(pool(max_size=2GiB) | managed)"), *second = make_stack("direct");
    const strata_block live = take(first, 3 * GIB);
    leave_free(first, 2 * GIB);
    const strata_block block = take(second, 3 * GIB);
    give(second, &block);
    give(first, &live);
    end_stack(second);
    end_stack(first);
}

static void take_for_an_initial_size(void)
{
    static const char *const initial[] = {"pool(initial_size=3GiB)", "pool(initial_size=3GiB), direct",
                                          "async(initial_size=3GiB)"};
    begin_child();
    for (size_t i = 0; i < sizeof initial / sizeof initial[0]; i++) {
        strata_runtime *first = make_stack("pool");
        leave_free(first, 3 * GIB);
        strata_runtime *second = make_stack(initial[i]);
        const strata_block block = take(second, MIB);
        check_pair(usage_of(second).reserved_bytes >= 3 * GIB, "less than its initial size", "pool", initial[i]);
        give(second, &block);
        end_stack(second);
        end_stack(first);
    }
}

/* ---- order ---- */

/* Own chunks that are free suffice. */
static void give_own_chunks_first(void)
{
    static const char *const owns[] = {BINS ", direct", FIXED ", direct", "pool, direct", BINS ", pool"};
    begin_child();
    for (size_t i = 0; i < sizeof owns / sizeof owns[0]; i++) {
        strata_runtime *first = make_stack("pool"), *second = make_stack(owns[i]);
        leave_free(second, GIB + GIB / 2);
        leave_free(first, 2 * GIB);
        const strata_block block = take(second, GIB + GIB / 4);
        check_pair(usage_of(first).reserved_bytes == 2 * GIB, "gave before the asker itself", "pool", owns[i]);
        give(second, &block);
        end_stack(second);
        end_stack(first);
    }
}

static bool count_call(const strata_request *request, const strata_error *error, void *calls)
{
    (void)request, (void)error;
    ++*(unsigned *)calls;
    return false;
}

/* A callback is called only where others cannot help. */
static void call_back_last(void)
{
    begin_child();
    unsigned calls = 0;
    strata_resource *layers[2];
    strata_stack *stack;
    strata_runtime *first = make_stack("pool"), *second;
    child_ok(strata_failure_callback_create(&(strata_failure_callback_options){.callback = count_call, .data = &calls},
                                            &layers[0]));
    child_ok(strata_direct_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &second));
    leave_free(first, 3 * GIB);
    strata_block block = take(second, 2 * GIB), refused;
    child_check(calls == 0);
    child_status(strata_runtime_allocate(second, 3 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    child_check(calls == 1);
    give(second, &block);
    end_stack(second);
    end_stack(first);
}

/* ---- pending work ---- */

static void *release_soon(void *stall)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    test_stall_release(stall);
    return NULL;
}

/* Memory that waits for work is left alone while another stack's suffices. */
static void serve_without_waiting(const char *busy, const char *asker)
{
    CUstream stream;
    blocks those;
    strata_runtime *first = make_stack("pool"), *second = make_stack(asker), *third = make_stack(busy);
    child_ok(strata_runtime_stream_acquire(third, &stream));
    leave_free(first, 3 * GIB / 2);
    take_blocks(third, 3 * GIB / 2, stream, &those);
    test_stall *stall = test_stall_begin(stream);
    give_blocks(third, &those);
    strata_block block;
    check_pair(strata_runtime_allocate(second, 2 * GIB, NULL, &block) == STRATA_SUCCESS, "refused", busy, asker);
    check_pair(!test_stall_timed_out(), "waited", busy, asker);
    test_stall_release(stall);
    test_stall_end(stall);
    give(second, &block);
    child_ok(strata_runtime_stream_release(third, stream));
    end_stack(third);
    end_stack(second);
    end_stack(first);
}

static void serve_after_waiting(const char *busy, const char *asker)
{
    CUstream stream;
    blocks those;
    pthread_t thread;
    strata_block block;
    strata_runtime *first = make_stack(busy), *second = make_stack(asker);
    child_ok(strata_runtime_stream_acquire(first, &stream));
    take_blocks(first, 3 * GIB, stream, &those);
    test_stall *stall = test_stall_begin(stream);
    give_blocks(first, &those);
    child_check(pthread_create(&thread, NULL, release_soon, stall) == 0);
    const strata_status status = strata_runtime_allocate(second, 2 * GIB, NULL, &block);
    pthread_join(thread, NULL);
    check_pair(status == STRATA_SUCCESS, "refused", busy, asker);
    test_stall_end(stall);
    give(second, &block);
    child_ok(strata_runtime_stream_release(first, stream));
    end_stack(second);
    end_stack(first);
}

static const char *const busy_stacks[] = {"pool", "async", "pool, async", BINS ", async", BINS ", pool"};

enum { BUSY = sizeof busy_stacks / sizeof busy_stacks[0] };

/* The askers are those whose own calls do not wait for the device. */
static void take_what_is_complete_first(void)
{
    begin_child();
    for (size_t i = 0; i < BUSY; i++) {
        serve_without_waiting(busy_stacks[i], "pool");
        serve_without_waiting(busy_stacks[i], "async");
    }
}

static void wait_before_a_refusal(void)
{
    begin_child();
    for (size_t i = 0; i < BUSY; i++)
        for (size_t j = 0; j < ASKERS; j += step())
            serve_after_waiting(busy_stacks[i], askers[j]);
}

/* A stack whose frees wait for the device, as those of cuMemFree do, counts as one that waits. */
static void take_without_waiting_for_the_device_first(void)
{
    static const char *const holders[] = {BINS ", direct", "pool, direct"};
    begin_child();
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++) {
        strata_runtime *first = make_stack("pool"), *second = make_stack("pool"), *third = make_stack(holders[i]);
        CUstream stream;
        child_ok(strata_runtime_stream_acquire(first, &stream));
        leave_free(first, 3 * GIB / 2);
        leave_free(third, 3 * GIB / 2);
        test_stall *stall = test_stall_begin(stream);
        const strata_block block = take(second, 2 * GIB);
        check_pair(!test_stall_timed_out(), "waited", holders[i], "pool");
        test_stall_release(stall);
        test_stall_end(stall);
        give(second, &block);
        child_ok(strata_runtime_stream_release(first, stream));
        end_stack(third);
        end_stack(second);
        end_stack(first);
    }
}

/* ---- captures ---- */

/* The thread's own capture forbids most calls, and lives on. */
static void take_during_a_capture(void)
{
    static const char *const holders[] = {"pool", "async", BINS ", async", BINS ", direct", "pool, direct"};
    begin_child();
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++)
        for (size_t j = 0; j < ASKERS; j += step()) {
            CUstream stream;
            CUgraph graph;
            strata_block block;
            strata_runtime *first = make_stack(holders[i]), *second = make_stack(askers[j]);
            leave_free(first, 3 * GIB);
            child_check(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
            child_check(test_cu()->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
            const strata_status status = strata_runtime_allocate(second, 2 * GIB, NULL, &block);
            check_pair(test_cu()->StreamEndCapture(stream, &graph) == CUDA_SUCCESS, "ended the capture", holders[i],
                       askers[j]);
            check_pair(status == STRATA_SUCCESS, "refused", holders[i], askers[j]);
            child_check(test_cu()->GraphDestroy(graph) == CUDA_SUCCESS);
            child_check(test_cu()->StreamDestroy(stream) == CUDA_SUCCESS);
            give(second, &block);
            end_stack(second);
            end_stack(first);
        }
}

/* ---- refusals ---- */

static void name_the_stack_that_holds_the_device(void)
{
    static const char *const holders[] = {"pool", "async", "direct", BINS ", direct", "pool, async"};
    begin_child();
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++)
        for (size_t j = 0; j < ASKERS; j += step()) {
            blocks live;
            strata_block refused;
            char words[160];
            strata_runtime *first = make_stack(holders[i]), *second = make_stack(askers[j]);
            take_blocks(first, 3 * GIB, NULL, &live);
            snprintf(words, sizeof words,
                     "of which other stacks hold 3 GiB (3221225472 bytes), 3 GiB (3221225472 bytes) of it live: "
                     "\"%.20s\" 3.00 GiB",
                     holders[i]);
            child_status(strata_runtime_allocate(second, 2 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
            check_pair(strstr(strata_last_error()->message, words), words, holders[i], askers[j]);
            give_blocks(first, &live);
            end_stack(second);
            end_stack(first);
        }
}

static void name_the_stacks_beside_a_bins_chunk(void)
{
    begin_child();
    strata_runtime *first = make_stack("pool"), *second = make_stack(BINS ", direct");
    strata_block refused, live = take(first, 4 * GIB - 128 * MIB);
    blocks own = {0};
    while (own.count < MOST_BLOCKS &&
           strata_runtime_allocate(second, BLOCK, NULL, &own.all[own.count]) == STRATA_SUCCESS)
        own.count++;
    child_status(strata_runtime_allocate(second, BLOCK, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    child_check_words("binning: no free block");
    child_check_words("of which other stacks hold 3.88 GiB");
    give_blocks(second, &own);
    give(first, &live);
    end_stack(second);
    end_stack(first);
}

/* Of async as its layer is made, of a pool at its first request. */
static void name_the_stacks_beside_an_initial_size(void)
{
    static const char *const initial[] = {"async(initial_size=2GiB)", "pool(initial_size=2GiB)",
                                          "pool(initial_size=2GiB), direct"};
    begin_child();
    strata_runtime *first = make_stack("direct");
    const strata_block live = take(first, 3 * GIB);
    for (size_t i = 0; i < sizeof initial / sizeof initial[0]; i++) {
        strata_runtime *second = NULL;
        strata_block refused;
        strata_status status = strata_runtime_create(&(strata_runtime_config){.stack_text = initial[i]}, &second);
        if (status == STRATA_SUCCESS)
            status = strata_runtime_allocate(second, MIB, NULL, &refused);
        check_pair(status == STRATA_ERROR_OUT_OF_MEMORY, "served", "direct", initial[i]);
        child_check_words("of which other stacks hold 3 GiB");
        if (second)
            end_stack(second);
    }
    give(first, &live);
    end_stack(first);
}

/* Three of five by name, and memory of the host counts for none. */
static void name_some_of_many_stacks(void)
{
    begin_child();
    strata_runtime *stacks[6];
    strata_block live[5], refused;
    for (int i = 0; i < 5; i++) {
        stacks[i] = make_stack(i ? "direct" : "pinned");
        live[i] = take(stacks[i], 512 * MIB);
    }
    stacks[5] = make_stack("async");
    child_status(strata_runtime_allocate(stacks[5], 3 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    child_check_words("of which other stacks hold 2 GiB (2147483648 bytes), 2 GiB (2147483648 bytes) of it live: "
                      "\"direct\" 512 MiB, \"direct\" 512 MiB, \"direct\" 512 MiB, others. Free or trim memory");
    for (int i = 0; i < 5; i++)
        give(stacks[i], &live[i]);
    for (int i = 0; i < 6; i++)
        end_stack(stacks[i]);
}

static void name_nobody_where_there_is_none(void)
{
    begin_child();
    for (size_t i = 0; i < ASKERS; i++) {
        strata_block refused;
        strata_runtime *only = make_stack(askers[i]);
        child_status(strata_runtime_allocate(only, 5 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
        child_check(!strstr(strata_last_error()->message, "other stacks"));
        end_stack(only);
    }
}

/* ---- threads ---- */

static unsigned rounds(void)
{
    return (unsigned)test_effort(ROUNDS, ROUNDS_DEBUGGED);
}

/* A stack comes, has memory free, and goes. */
static void *build_and_destroy(void *data)
{
    worker *self = data;
    test_make_current();
    while (!over) {
        strata_runtime *runtime = make_stack(self->text);
        blocks those = {0};
        while (those.count < 24 &&
               strata_runtime_allocate(runtime, BLOCK, NULL, &those.all[those.count]) == STRATA_SUCCESS)
            those.count++;
        self->served += those.count == 24;
        give_blocks(runtime, &those);
        end_stack(runtime);
    }
    return NULL;
}

/* Refused at most while the other's blocks are live. */
static void take_while_one_ends(const char *ending, const char *asker)
{
    worker other = {.text = ending};
    unsigned served = 0;
    over = false;
    strata_runtime *runtime = make_stack(asker);
    child_check(pthread_create(&other.thread, NULL, build_and_destroy, &other) == 0);
    while (served < rounds()) {
        strata_block block;
        const strata_status status = strata_runtime_allocate(runtime, 3 * GIB, NULL, &block);
        if (status == STRATA_SUCCESS)
            give(runtime, &block);
        check_pair(status == STRATA_SUCCESS || status == STRATA_ERROR_OUT_OF_MEMORY, "failed", ending, asker);
        served += status == STRATA_SUCCESS;
    }
    over = true;
    pthread_join(other.thread, NULL);
    end_stack(runtime);
}

static void take_from_those_that_end(void)
{
    begin_child();
    take_while_one_ends("async", "direct");
    take_while_one_ends("pool, async", "pool");
    take_while_one_ends(BINS ", direct", "async");
    take_while_one_ends(GUARD ", pool", "pool, direct");
}

/* Each takes from the others, and all may be refused. */
static void take_from_each_other(void)
{
    static const char *const texts[] = {"pool", "async", "pool, direct", BINS ", async"};
    enum { WORKERS = sizeof texts / sizeof texts[0] };
    begin_child();
    worker workers[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++) {
        workers[i].runtime = make_stack(texts[i]);
        workers[i].most = 3 * GIB;
        workers[i].rounds = rounds();
        begin_worker(&workers[i], come_and_go);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < WORKERS; i++) {
        const strata_block block = take(workers[i].runtime, 3 * GIB);
        give(workers[i].runtime, &block);
    }
    for (int i = 0; i < WORKERS; i++)
        end_stack(workers[i].runtime);
}

/* ---- the tests ---- */

static void run_without_virtual_memory(const char *scenario)
{
    static const char *const small_device[] = {"STRATA_DRIVER=sim", "STRATA_SIM_MEMORY=4GiB",
                                               "STRATA_SIM_LACKS=virtual-memory", NULL};
    test_child_run(scenario, small_device);
}

#define CASE(name, scenario)           \
    static void name(void **state)     \
    {                                  \
        (void)state;                   \
        run_on_small_device(scenario); \
    }

#define CASE_WITHOUT_VIRTUAL_MEMORY(name, scenario) \
    static void name(void **state)                  \
    {                                               \
        (void)state;                                \
        run_without_virtual_memory(scenario);       \
    }

CASE(free_memory_of_a_pool_serves_every_stack, "serve_beside_pool")
CASE(free_memory_of_a_pool_over_direct_serves_every_stack, "serve_beside_pool_over_direct")
CASE(free_memory_of_a_pool_over_async_serves_every_stack, "serve_beside_pool_over_async")
CASE(free_chunks_of_bins_over_direct_serve_every_stack, "serve_beside_bins_over_direct")
CASE(free_chunks_of_fixed_over_direct_serve_every_stack, "serve_beside_fixed_over_direct")
CASE(free_chunks_of_bins_over_async_serve_every_stack, "serve_beside_bins_over_async")
CASE(free_chunks_of_bins_over_a_pool_serve_every_stack, "serve_beside_bins_over_pool")
CASE(free_memory_of_a_pool_over_bins_serves_every_stack, "serve_beside_pool_over_bins")
CASE(free_memory_of_async_serves_every_stack, "serve_beside_async")
CASE(free_memory_of_a_view_serves_every_stack, "serve_beside_view")
CASE(a_guards_quarantine_serves_every_stack, "serve_beside_guard")
CASE(free_memory_of_a_branch_serves_every_stack, "serve_beside_branches")
CASE(free_memory_below_decorators_serves_every_stack, "serve_beside_decorators")
CASE_WITHOUT_VIRTUAL_MEMORY(a_pool_without_virtual_memory_serves_every_stack, "serve_beside_pool")
CASE_WITHOUT_VIRTUAL_MEMORY(async_without_virtual_memory_serves_every_stack, "serve_beside_async")
CASE_WITHOUT_VIRTUAL_MEMORY(bins_without_virtual_memory_serve_every_stack, "serve_beside_bins_over_direct")
CASE(a_stack_keeps_what_another_does_not_need, "keep_what_is_not_needed")
CASE(a_full_device_serves_a_small_request_of_every_stack, "take_a_little_of_a_full_device")
CASE(free_memory_that_would_not_do_stays, "leave_others_alone_where_they_cannot_help")
CASE(a_limit_of_ones_own_costs_others_nothing, "leave_others_alone_at_an_own_limit")
CASE(initial_sizes_and_deterministic_pools_stay, "leave_what_is_to_stay")
CASE(a_chunk_of_an_initial_size_stays, "keep_the_chunk_of_an_initial_size")
CASE(what_managed_has_no_room_for_costs_others_nothing, "leave_others_alone_at_the_room_of_managed")
CASE(memory_of_the_host_stays, "leave_memory_of_the_host_alone")
CASE(a_branch_gives_beside_one_of_other_memory, "take_from_a_branch_beside_one_of_other_memory")
CASE(an_initial_size_is_taken_from_others, "take_for_an_initial_size")
CASE_WITHOUT_VIRTUAL_MEMORY(an_initial_size_without_virtual_memory_is_taken_from_others, "take_for_an_initial_size")
CASE(own_chunks_go_before_those_of_others, "give_own_chunks_first")
CASE(others_give_before_a_callback_is_called, "call_back_last")
CASE(complete_memory_is_taken_before_pending_memory, "take_what_is_complete_first")
CASE(pending_memory_is_waited_for_before_a_refusal, "wait_before_a_refusal")
CASE(frees_that_wait_for_the_device_come_last, "take_without_waiting_for_the_device_first")
CASE(a_capture_outlives_it, "take_during_a_capture")
CASE(every_refusal_names_who_holds_the_device, "name_the_stack_that_holds_the_device")
CASE(a_refusal_of_a_chunk_names_who_holds_the_device, "name_the_stacks_beside_a_bins_chunk")
CASE(a_refusal_of_an_initial_size_names_who_holds_the_device, "name_the_stacks_beside_an_initial_size")
CASE(a_refusal_beside_many_stacks_names_some, "name_some_of_many_stacks")
CASE(a_refusal_beside_no_stack_names_none, "name_nobody_where_there_is_none")
CASE(memory_is_taken_from_stacks_that_are_being_destroyed, "take_from_those_that_end")
CASE(stacks_of_all_kinds_take_from_each_other, "take_from_each_other")

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(serve_beside_pool),
        TEST_SCENARIO(serve_beside_pool_over_direct),
        TEST_SCENARIO(serve_beside_pool_over_async),
        TEST_SCENARIO(serve_beside_bins_over_direct),
        TEST_SCENARIO(serve_beside_fixed_over_direct),
        TEST_SCENARIO(serve_beside_bins_over_async),
        TEST_SCENARIO(serve_beside_bins_over_pool),
        TEST_SCENARIO(serve_beside_pool_over_bins),
        TEST_SCENARIO(serve_beside_async),
        TEST_SCENARIO(serve_beside_view),
        TEST_SCENARIO(serve_beside_guard),
        TEST_SCENARIO(serve_beside_branches),
        TEST_SCENARIO(serve_beside_decorators),
        TEST_SCENARIO(keep_what_is_not_needed),
        TEST_SCENARIO(take_a_little_of_a_full_device),
        TEST_SCENARIO(leave_others_alone_where_they_cannot_help),
        TEST_SCENARIO(leave_others_alone_at_an_own_limit),
        TEST_SCENARIO(leave_what_is_to_stay),
        TEST_SCENARIO(keep_the_chunk_of_an_initial_size),
        TEST_SCENARIO(leave_others_alone_at_the_room_of_managed),
        TEST_SCENARIO(leave_memory_of_the_host_alone),
        TEST_SCENARIO(take_from_a_branch_beside_one_of_other_memory),
        TEST_SCENARIO(take_for_an_initial_size),
        TEST_SCENARIO(give_own_chunks_first),
        TEST_SCENARIO(call_back_last),
        TEST_SCENARIO(take_what_is_complete_first),
        TEST_SCENARIO(wait_before_a_refusal),
        TEST_SCENARIO(take_without_waiting_for_the_device_first),
        TEST_SCENARIO(take_during_a_capture),
        TEST_SCENARIO(name_the_stack_that_holds_the_device),
        TEST_SCENARIO(name_the_stacks_beside_a_bins_chunk),
        TEST_SCENARIO(name_the_stacks_beside_an_initial_size),
        TEST_SCENARIO(name_some_of_many_stacks),
        TEST_SCENARIO(name_nobody_where_there_is_none),
        TEST_SCENARIO(take_from_those_that_end),
        TEST_SCENARIO(take_from_each_other),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_memory_of_a_pool_serves_every_stack),
        cmocka_unit_test(free_memory_of_a_pool_over_direct_serves_every_stack),
        cmocka_unit_test(free_memory_of_a_pool_over_async_serves_every_stack),
        cmocka_unit_test(free_chunks_of_bins_over_direct_serve_every_stack),
        cmocka_unit_test(free_chunks_of_fixed_over_direct_serve_every_stack),
        cmocka_unit_test(free_chunks_of_bins_over_async_serve_every_stack),
        cmocka_unit_test(free_chunks_of_bins_over_a_pool_serve_every_stack),
        cmocka_unit_test(free_memory_of_a_pool_over_bins_serves_every_stack),
        cmocka_unit_test(free_memory_of_async_serves_every_stack),
        cmocka_unit_test(free_memory_of_a_view_serves_every_stack),
        cmocka_unit_test(a_guards_quarantine_serves_every_stack),
        cmocka_unit_test(free_memory_of_a_branch_serves_every_stack),
        cmocka_unit_test(free_memory_below_decorators_serves_every_stack),
        cmocka_unit_test(a_pool_without_virtual_memory_serves_every_stack),
        cmocka_unit_test(async_without_virtual_memory_serves_every_stack),
        cmocka_unit_test(bins_without_virtual_memory_serve_every_stack),
        cmocka_unit_test(a_stack_keeps_what_another_does_not_need),
        cmocka_unit_test(a_full_device_serves_a_small_request_of_every_stack),
        cmocka_unit_test(free_memory_that_would_not_do_stays),
        cmocka_unit_test(a_limit_of_ones_own_costs_others_nothing),
        cmocka_unit_test(initial_sizes_and_deterministic_pools_stay),
        cmocka_unit_test(a_chunk_of_an_initial_size_stays),
        cmocka_unit_test(what_managed_has_no_room_for_costs_others_nothing),
        cmocka_unit_test(memory_of_the_host_stays),
        cmocka_unit_test(a_branch_gives_beside_one_of_other_memory),
        cmocka_unit_test(an_initial_size_is_taken_from_others),
        cmocka_unit_test(an_initial_size_without_virtual_memory_is_taken_from_others),
        cmocka_unit_test(own_chunks_go_before_those_of_others),
        cmocka_unit_test(others_give_before_a_callback_is_called),
        cmocka_unit_test(complete_memory_is_taken_before_pending_memory),
        cmocka_unit_test(pending_memory_is_waited_for_before_a_refusal),
        cmocka_unit_test(frees_that_wait_for_the_device_come_last),
        cmocka_unit_test(a_capture_outlives_it),
        cmocka_unit_test(every_refusal_names_who_holds_the_device),
        cmocka_unit_test(a_refusal_of_a_chunk_names_who_holds_the_device),
        cmocka_unit_test(a_refusal_of_an_initial_size_names_who_holds_the_device),
        cmocka_unit_test(a_refusal_beside_many_stacks_names_some),
        cmocka_unit_test(a_refusal_beside_no_stack_names_none),
        cmocka_unit_test(memory_is_taken_from_stacks_that_are_being_destroyed),
        cmocka_unit_test(stacks_of_all_kinds_take_from_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
