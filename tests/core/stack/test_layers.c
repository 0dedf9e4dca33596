/* What every layer must leave as it is, whatever it adds: each decorator over each of two owners, and the owners that
 * take their blocks one by one. support/layers.h has the list of decorators. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/effort.h"
#include "support/fixture.h"
#include "support/layers.h"
#include "support/sweep.h"

enum { KIB = 1024, MIB = 1 << 20, TEXT = 128 };

/* ---- sizes and contents ---- */

static void check_facts(const strata_block *block, size_t bytes, CUstream stream)
{
    assert_int_not_equal(block->address, 0);
    assert_true(block->bytes >= bytes);
    assert_true(block->requested == bytes);
    assert_true(block->alignment >= 256 && block->address % block->alignment == 0);
    assert_int_equal(block->device, 0);
    assert_ptr_equal(block->stream, stream);
    assert_int_not_equal(block->id.generation, 0);
}

static void blocks_of_any_size_are_usable_to_their_last_byte(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 255, 4096, 3 * 4096 + 1, MIB + 1};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[SIZES];
    const unsigned char *seen[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = test_allocate(fixture, sizes[i], stream);
        check_facts(&blocks[i], sizes[i], stream);
        test_write(fixture, &blocks[i], (unsigned char)(i + 1), stream);
    }
    assert_int_equal(test_usage(fixture).live_blocks, SIZES);
    for (size_t i = 0; i < SIZES; i++)
        seen[i] = test_read(fixture, &blocks[i], stream);
    test_synchronize(stream);
    for (size_t i = 0; i < SIZES; i++) {
        check_bytes(seen[i], (unsigned char)(i + 1), sizes[i]);
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    test_stream_close(fixture, stream);
}

static void what_is_charged_is_what_an_allocation_takes(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 512, 5000, MIB};
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t charge, before = test_usage(fixture).live_bytes;
        check_ok(top->ops->charge(top, &(strata_request){.bytes = sizes[i]}, &charge));
        strata_block block = test_allocate(fixture, sizes[i], NULL);
        size_t taken = test_usage(fixture).live_bytes - before;
        assert_true(taken >= block.bytes);
        assert_true(charge >= taken && charge - taken < 512);
        test_free_on(fixture, &block, NULL);
    }
}

static void what_cannot_be_is_refused_and_leaves_nothing(test_fixture *fixture)
{
    const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX, SIZE_MAX - 300};
    strata_block block;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_request request = {.bytes = sizes[i]};
        block.bytes = 1;
        assert_int_not_equal(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_SUCCESS);
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    }
    check_ok(strata_runtime_allocate(fixture->runtime, 0, NULL, &block));
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    test_free_on(fixture, &block, NULL);
    strata_request odd = {.bytes = 100, .alignment = 384};
    check_status(strata_runtime_allocate_request(fixture->runtime, &odd, &block), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    assert_true(test_usage(fixture).bytes_outstanding == 0);
    block = test_allocate(fixture, MIB, NULL);
    test_write(fixture, &block, 0x11, NULL);
    test_free_on(fixture, &block, NULL);
}

/* ---- wrong frees ---- */

static void a_free_with_wrong_facts_is_refused_and_the_block_stays(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 10000, NULL), other = test_allocate(fixture, 10000, NULL), wrong;
    wrong = block;
    wrong.bytes--;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.requested++;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.device = 1;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_WRONG_DEVICE);
    wrong = block;
    wrong.address = other.address;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id.slot += 100000;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id.generation += 1000;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.id = (strata_block_id){0};
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(test_usage(fixture).live_blocks, 2);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ));
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_NONE));
    test_write(fixture, &block, 0x22, NULL);
    test_free_on(fixture, &other, NULL);
    wrong = block;
    wrong.tag = 77; /* not checked */
    test_free_on(fixture, &wrong, NULL);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

/* ---- history and addresses ---- */

static void uses_on_other_streams_are_ordered_through_the_layer(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 4096, writer);
    /* A fill of pinned memory waits on the host until it is done (CUDA Driver API, "API synchronization behavior"). */
    bool waits = !(strata_resource_capabilities(strata_stack_top(strata_runtime_stack(fixture->runtime))) &
                   STRATA_CAPABILITY_DEVICE_MEMORY);
    test_stall *stall = waits ? NULL : test_stall_begin(writer);
    test_write(fixture, &block, 0x33, writer);
    const unsigned char *seen = test_read(fixture, &block, reader);
    if (stall)
        test_stall_release(stall);
    test_free_on(fixture, &block, writer);
    if (stall)
        test_stall_end(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x33, 4096);
    test_stream_close(fixture, writer);
    test_stream_close(fixture, reader);
}

/* Some owners lay blocks side by side. */
static const strata_block *block_at(const strata_block *blocks, size_t count, CUdeviceptr address)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i].address == address)
            return &blocks[i];
    return NULL;
}

static void a_block_is_found_by_its_addresses_and_by_none_around(test_fixture *fixture)
{
    enum { COUNT = 5, BYTES = 3000 };
    strata_block blocks[COUNT], found;
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = test_allocate(fixture, BYTES + i, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        const CUdeviceptr inside[] = {blocks[i].address, blocks[i].address + 1000, blocks[i].address + BYTES + i - 1};
        for (size_t j = 0; j < sizeof inside / sizeof inside[0]; j++) {
            check_ok(strata_runtime_find(fixture->runtime, inside[j], &found));
            assert_memory_equal(&found, &blocks[i], sizeof found);
        }
        const CUdeviceptr behind = blocks[i].address + blocks[i].bytes;
        const strata_block *neighbour = block_at(blocks, COUNT, behind), none = {0};
        check_status(strata_runtime_find(fixture->runtime, behind, &found),
                     neighbour ? STRATA_SUCCESS : STRATA_ERROR_FOREIGN_POINTER);
        assert_memory_equal(&found, neighbour ? neighbour : &none, sizeof found);
    }
    for (size_t i = 0; i < COUNT; i++) {
        strata_status before = strata_runtime_find(fixture->runtime, blocks[i].address - 1, &found);
        assert_true(before != STRATA_SUCCESS || found.id.slot != blocks[i].id.slot);
        test_free_on(fixture, &blocks[i], NULL);
        check_status(strata_runtime_find(fixture->runtime, blocks[i].address, &found), STRATA_ERROR_FOREIGN_POINTER);
    }
}

/* ---- threads ---- */

enum { THREADS = 3, HELD = 8 };

typedef struct worker {
    strata_runtime *runtime;
    CUstream stream;
    unsigned number, failures;
} worker;

static void *allocate_use_and_free(void *data)
{
    worker *self = data;
    strata_block blocks[HELD];
    test_make_current();
    for (size_t turn = 0; turn < test_effort(40, 5); turn++) {
        for (size_t i = 0; i < HELD; i++)
            self->failures += strata_runtime_allocate(self->runtime, 1 + (turn * 977 + i * 131 + self->number) % 20000,
                                                      self->stream, &blocks[i]) != STRATA_SUCCESS;
        for (size_t i = 0; i < HELD && !self->failures; i++) {
            const strata_block *block = &blocks[(i + turn) % HELD];
            self->failures += strata_runtime_prepare_block_use(self->runtime, block, self->stream,
                                                               STRATA_ACCESS_WRITE) != STRATA_SUCCESS ||
                              test_cu()->MemsetD8Async(block->address, 1, block->requested, self->stream) ||
                              strata_runtime_finish_block_use(self->runtime, block, self->stream,
                                                              STRATA_ACCESS_WRITE) != STRATA_SUCCESS;
            self->failures += strata_runtime_deallocate_on(self->runtime, block, self->stream) != STRATA_SUCCESS;
        }
    }
    test_leave_thread();
    return NULL;
}

static void threads_use_it_at_the_same_time(test_fixture *fixture)
{
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) /* what can fail comes before the threads */
        workers[i] =
            (worker){.runtime = fixture->runtime, .stream = test_stream(fixture, TEST_STREAM_POOL), .number = i};
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_use_and_free, &workers[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].failures, 0);
        test_stream_close(fixture, workers[i].stream);
    }
    size_t released; /* what a layer caches depends on the order of the threads */
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

/* ---- the stacks ---- */

enum { OWNERS = 3, MOST = OWNERS * TEST_DECORATORS + TEST_BRANCHES + 2 };

/* In a sweep each decorator stands over one owner alone, by turns. */
static size_t write_stacks(char texts[MOST][TEXT], const char *stacks[MOST])
{
    static const char *const owners[OWNERS] = {"direct", "async", "pool"};
    size_t count = 0, decorator = 0;
    for (size_t i = 0; i < TEST_DECORATORS; i++) {
        if (test_decorators[i].random_only)
            continue;
        decorator++;
        for (size_t owner = 0; owner < OWNERS; owner++)
            if (!test_is_swept() || decorator % OWNERS == owner)
                snprintf(texts[count++], TEXT, "%s, %s", test_decorators[i].text, owners[owner]);
    }
    for (size_t i = 0; i < TEST_BRANCHES; i++)
        snprintf(texts[count++], TEXT, "%s", test_branches[i]);
    snprintf(texts[count++], TEXT, "pinned");
    strata_device_info info;
    if (strata_device_get_info(0, &info) == STRATA_SUCCESS && info.managed_memory)
        snprintf(texts[count++], TEXT, "managed");
    for (size_t i = 0; i < count; i++)
        stacks[i] = texts[i];
    return count;
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(blocks_of_any_size_are_usable_to_their_last_byte),
        TEST_CASE(what_is_charged_is_what_an_allocation_takes),
        TEST_CASE(what_cannot_be_is_refused_and_leaves_nothing),
        TEST_CASE(a_free_with_wrong_facts_is_refused_and_the_block_stays),
        TEST_CASE(uses_on_other_streams_are_ordered_through_the_layer),
        TEST_CASE(a_block_is_found_by_its_addresses_and_by_none_around),
        TEST_CASE(threads_use_it_at_the_same_time),
    };
    static char texts[MOST][TEXT];
    static const char *stacks[MOST];
    test_open_driver();
    return test_run_on(stacks, write_stacks(texts, stacks), cases, sizeof cases / sizeof cases[0]);
}
