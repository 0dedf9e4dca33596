/* pinned: slabs, and when their memory is used again. */
#include <string.h>

#include <pthread.h>

#include "support/effort.h"
#include "support/fixture.h"
#include "support/stall.h"

enum { KIB = 1024, MIB = 1024 * KIB, SLAB = 4 * MIB };

static uint64_t value(test_fixture *fixture, const char *name)
{
    uint64_t out;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &out, NULL));
    return out;
}

static unsigned char *host(const strata_block *block)
{
    return (unsigned char *)(uintptr_t)block->address;
}

static bool overlap(const strata_block *a, const strata_block *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* ---- frees ---- */

/* So many frees that some are looked at. */
static void check_kept_from_others(test_fixture *fixture, const strata_block *freed, CUstream stream)
{
    for (size_t i = 0; i < 400; i++) {
        strata_block other = test_allocate(fixture, freed->bytes, stream);
        assert_false(overlap(&other, freed));
        test_free_on(fixture, &other, stream);
    }
}

static void a_free_waits_for_nothing_and_the_memory_for_its_stream(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 8 * KIB, stream);
    test_stall *stall = test_stall_begin(stream);
    test_fill(block.address, 0x5a, block.bytes, stream);
    test_free_on(fixture, &block, stream);
    assert_true(test_usage(fixture).live_bytes == 0 && test_usage(fixture).retired_bytes == 8 * KIB);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_RETIRED);
    check_kept_from_others(fixture, &block, stream);
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(test_usage(fixture).bytes_outstanding == 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    check_bytes(host(&block), 0x5a, 8 * KIB); /* no other block had it meanwhile */
    test_stream_close(fixture, stream);
}

static void the_memory_waits_for_uses_on_other_streams(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_UNKNOWN};
    for (size_t i = 0; i < 2; i++) {
        CUstream own = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, kinds[i]);
        strata_block block = test_allocate(fixture, 8 * KIB, own);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(user);
        test_fill(block.address, 0x6b, block.bytes, user);
        const strata_status finished =
            strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE);
        check_ok(finished);
        test_free_on(fixture, &block, own);
        test_synchronize(own);
        check_kept_from_others(fixture, &block, own);
        test_stall_end(stall);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        check_bytes(host(&block), 0x6b, 8 * KIB);
        test_stream_close(fixture, own);
        test_stream_close(fixture, user);
    }
}

static void sum_bytes(const strata_stream_frees *frees, void *sum)
{
    *(uint64_t *)sum += frees->bytes;
}

static uint64_t bytes_behind_streams(test_fixture *fixture)
{
    uint64_t sum = 0;
    check_ok(strata_stack_visit_frees(strata_runtime_stack(fixture->runtime), sum_bytes, &sum));
    return sum;
}

/* So many streams end that what is known about complete ones is given up. */
static void forget_streams_that_ended(test_fixture *fixture)
{
    for (size_t i = 0; i < 200; i++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
        strata_block block = test_allocate(fixture, 1, stream);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

/* The stream is gone and its work is known to be over: only the use on the legacy stream is left. */
static void without_its_stream_the_memory_waits_for_the_legacy_streams_use(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_REGISTERED, TEST_STREAM_POOL};
    for (size_t i = 0; i < 2; i++) {
        CUstream own = test_stream(fixture, kinds[i]), other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, 8 * KIB, own);
        test_synchronize(own);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(NULL);
        test_fill(block.address, 0x7c, block.bytes, NULL);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
        test_stream_close(fixture, own);
        forget_streams_that_ended(fixture);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        assert_true(bytes_behind_streams(fixture) >= 8 * KIB);
        check_kept_from_others(fixture, &block, other);
        test_stall_end(stall);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        check_bytes(host(&block), 0x7c, 8 * KIB);
        test_stream_close(fixture, other);
    }
}

/* What a copy reads is what the host wrote for it, although the block is freed before the copy runs. */
static void a_freed_block_is_not_written_before_its_copy_is_complete(test_fixture *fixture)
{
    enum { COPIES = 400, BYTES = 2 * KIB };
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN};
    CUdeviceptr to;
    unsigned char *seen;
    check_cu(test_cu()->MemAlloc(&to, (size_t)COPIES * BYTES));
    check_cu(test_cu()->MemHostAlloc((void **)&seen, (size_t)COPIES * BYTES, 0));
    CUstream streams[3];
    for (size_t i = 0; i < 3; i++)
        streams[i] = test_stream(fixture, kinds[i]);
    size_t done = 0;
    for (; done < COPIES; done++) {
        CUstream stream = streams[done % 3];
        strata_block block;
        if (strata_runtime_allocate(fixture->runtime, BYTES, stream, &block) != STRATA_SUCCESS)
            break;
        memset(host(&block), (int)(done % 251), BYTES);
        check_cu(test_cu()->MemcpyHtoDAsync(to + done * BYTES, host(&block), BYTES, stream));
        if (strata_runtime_deallocate_on(fixture->runtime, &block, stream) != STRATA_SUCCESS)
            check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    }
    check_cu(test_cu()->CtxSynchronize());
    check_cu(test_cu()->MemcpyDtoHAsync(seen, to, (size_t)COPIES * BYTES, streams[0]));
    test_synchronize(streams[0]);
    for (size_t i = 0; i < done; i++)
        check_bytes(seen + i * BYTES, (unsigned char)(i % 251), BYTES);
    check_cu(test_cu()->MemFreeHost(seen));
    check_cu(test_cu()->MemFree(to));
    for (size_t i = 0; i < 3; i++)
        test_stream_close(fixture, streams[i]);
}

static void complete_memory_is_used_again_without_a_driver_allocation(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < 3000; i++) {
        strata_block block = test_allocate(fixture, (i % 7 + 1) * 40 * KIB, stream);
        test_free_on(fixture, &block, stream);
        test_synchronize(stream);
    }
    assert_true(value(fixture, "pinned.slabs_made") <= 2);
    test_stream_close(fixture, stream);
}

/* A lane's cache has a sixteenth of a slab; all blocks in it are of the size that is used. */
static void sizes_that_are_not_used_any_more_leave_the_caches(test_fixture *fixture)
{
    test_needs_truthful_queries();
    enum { CACHE = SLAB / 16 };
    static const size_t sizes[] = {8 * KIB, 16 * KIB, 32 * KIB};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t size = 0; size < 3; size++) {
        strata_block blocks[CACHE / (8 * KIB)];
        size_t count = 0;
        for (size_t i = 0; i < 300; i++) {
            blocks[0] = test_allocate(fixture, sizes[size], stream);
            test_free_on(fixture, &blocks[0], stream);
        }
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        const uint64_t cached = value(fixture, "pinned.cached_bytes");
        assert_true(cached > CACHE / 2 && cached <= CACHE);
        for (; count < cached / sizes[size]; count++)
            blocks[count] = test_allocate(fixture, sizes[size], stream);
        const uint64_t left = value(fixture, "pinned.cached_bytes");
        while (count)
            test_free_on(fixture, &blocks[--count], stream);
        assert_true(left < cached / 2);
    }
    test_stream_close(fixture, stream);
}

/* ---- blocks ---- */

static size_t size_of(size_t i)
{
    static const size_t sizes[] = {1, 255, 256, 257, 640, 896, 2304, 4096, 4097, 5000, 14337, 20480, 33000, 70000};
    return sizes[i % (sizeof sizes / sizeof sizes[0])] + i / 50;
}

static void blocks_of_all_sizes_and_alignments_have_memory_of_their_own(test_fixture *fixture)
{
    enum { BLOCKS = 300 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        const size_t alignment = i % 5 ? 0 : (size_t)256 << i % 14;
        const strata_request request = {.bytes = size_of(i), .alignment = alignment, .stream = stream};
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &blocks[i]));
        assert_true(blocks[i].address % (alignment ? alignment : 256) == 0 && blocks[i].bytes == size_of(i));
        memset(host(&blocks[i]), (int)(i % 256), blocks[i].bytes);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        strata_block found;
        check_bytes(host(&blocks[i]), (unsigned char)(i % 256), blocks[i].bytes);
        check_ok(strata_runtime_find(fixture->runtime, blocks[i].address + blocks[i].bytes - 1, &found));
        assert_true(found.id.slot == blocks[i].id.slot && found.id.generation == blocks[i].id.generation);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], stream);
    strata_block found;
    check_status(strata_runtime_find(fixture->runtime, blocks[0].address, &found), STRATA_ERROR_FOREIGN_POINTER);
    test_stream_close(fixture, stream);
}

static void a_larger_request_has_a_slab_of_its_own(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 9 * MIB, stream);
    assert_int_equal(test_usage(fixture).reserved_bytes, 9 * MIB);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    block = test_allocate(fixture, 8 * MIB, stream); /* there is room */
    assert_int_equal(value(fixture, "pinned.slabs_made"), 1);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    block = test_allocate(fixture, 10 * MIB, stream);
    assert_int_equal(test_usage(fixture).reserved_bytes, 10 * MIB); /* that of 9 MiB has gone */
    test_free_on(fixture, &block, stream);
    test_stream_close(fixture, stream);
}

static void a_trim_gives_back_all_that_is_free(test_fixture *fixture)
{
    enum { BLOCKS = 200 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    size_t released;
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = test_allocate(fixture, size_of(i), stream);
        for (size_t i = 0; i < BLOCKS; i++)
            test_free_on(fixture, &blocks[i], stream);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        const size_t reserved = test_usage(fixture).reserved_bytes;
        assert_true(reserved >= SLAB);
        check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
        assert_int_equal(released, reserved);
        assert_int_equal(test_usage(fixture).reserved_bytes, 0);
        assert_true(value(fixture, "pinned.slabs") == 0 && value(fixture, "pinned.cached_bytes") == 0);
    }
    test_stream_close(fixture, stream);
}

/* ---- refusals ---- */

static PFN_cuMemHostAlloc_v2020 real_allocate;
static size_t most_at_once; /* larger requests are refused */
static size_t refused;

static CUresult CUDAAPI refuse_large(void **address, size_t bytes, unsigned flags)
{
    if (bytes <= most_at_once || refused++ > 0)
        return real_allocate(address, bytes, flags);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The first request is refused, whatever it wants. */
static void what_is_free_goes_back_before_a_request_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block small = test_allocate(fixture, 64 * KIB, stream);
    test_free_on(fixture, &small, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).reserved_bytes, SLAB);
    real_allocate = strata_cu.MemHostAlloc;
    strata_cu.MemHostAlloc = refuse_large;
    most_at_once = SLAB;
    refused = 0;
    strata_block large;
    const strata_status status = strata_runtime_allocate(fixture->runtime, 5 * MIB, stream, &large);
    strata_cu.MemHostAlloc = real_allocate;
    check_ok(status);
    assert_int_equal(refused, 2);
    assert_int_equal(test_usage(fixture).reserved_bytes, 5 * MIB); /* the slab was free */
    test_free_on(fixture, &large, stream);
    test_stream_close(fixture, stream);
}

/* ---- threads ---- */

enum { THREADS = 16 };

typedef struct worker {
    test_fixture *fixture;
    unsigned number;
    strata_status status;
    size_t wrong;
} worker;

/* A block's bytes are its thread's alone while it is live. */
static void *allocate_and_free(void *data)
{
    worker *self = data;
    enum { LIVE = 8 };
    strata_block live[LIVE] = {{0}};
    const size_t rounds = test_effort(2000, 100);
    uint32_t random = self->number + 1;
    for (size_t i = 0; i < rounds + LIVE && self->status == STRATA_SUCCESS; i++) {
        strata_block *block = &live[i % LIVE];
        for (size_t at = 0; at < block->bytes; at += 97)
            self->wrong += host(block)[at] != (unsigned char)(self->number * LIVE + i % LIVE);
        if (block->address)
            self->status = strata_runtime_deallocate_on(self->fixture->runtime, block, NULL);
        *block = (strata_block){0};
        random = random * 1664525 + 1013904223;
        if (i >= rounds || self->status != STRATA_SUCCESS)
            continue;
        self->status = strata_runtime_allocate(self->fixture->runtime, size_of(random >> 16), NULL, block);
        if (block->bytes)
            memset(host(block), (int)(self->number * LIVE + i % LIVE), block->bytes);
    }
    return NULL;
}

static void sixteen_threads_share_the_slabs(test_fixture *fixture)
{
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.fixture = fixture, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        check_ok(workers[i].status);
        assert_int_equal(workers[i].wrong, 0);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(test_usage(fixture).bytes_outstanding == 0 && test_usage(fixture).live_blocks == 0);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_int_equal(test_usage(fixture).reserved_bytes, 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_free_waits_for_nothing_and_the_memory_for_its_stream),
        TEST_CASE(the_memory_waits_for_uses_on_other_streams),
        TEST_CASE(without_its_stream_the_memory_waits_for_the_legacy_streams_use),
        TEST_CASE(a_freed_block_is_not_written_before_its_copy_is_complete),
        TEST_CASE(complete_memory_is_used_again_without_a_driver_allocation),
        TEST_CASE(sizes_that_are_not_used_any_more_leave_the_caches),
        TEST_CASE(blocks_of_all_sizes_and_alignments_have_memory_of_their_own),
        TEST_CASE(a_larger_request_has_a_slab_of_its_own),
        TEST_CASE(a_trim_gives_back_all_that_is_free),
        TEST_CASE(what_is_free_goes_back_before_a_request_is_refused),
        TEST_CASE(sixteen_threads_share_the_slabs),
    };
    static const char *const stacks[] = {"pinned(slab=4MiB)"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
