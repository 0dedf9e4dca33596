/* The launch recorder: all checks, then all waits, then one note for everything that the work touches. */
#include "support/beside.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/host_memory.h"

#include <string.h>

enum { BYTES = 4096, MANY = 100 };

static void count_errors(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

static void begin(test_fixture *fixture, strata_launch *launch, CUstream stream)
{
    check_ok(strata_launch_begin(launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
}

/* ---- what it orders ---- */

/* Copies all of `from` into `to` behind a launch. */
static void launch_copy(test_fixture *fixture, const strata_block *to, const strata_block *from, CUstream stream)
{
    strata_launch launch;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, from, STRATA_ACCESS_READ));
    check_ok(strata_launch_use(&launch, to, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    check_cu(test_cu()->MemcpyDtoDAsync(to->address, from->address, from->requested, stream));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
}

static void a_chain_of_launches_on_streams_of_every_kind_passes_the_bytes_on(test_fixture *fixture)
{
    for (test_stream_kind a = 0; a < TEST_STREAM_KINDS; a++)
        for (test_stream_kind b = 0; b < TEST_STREAM_KINDS; b++) {
            CUstream first = test_stream(fixture, a), second = test_stream(fixture, b);
            strata_block blocks[3];
            for (size_t i = 0; i < 3; i++)
                blocks[i] = test_allocate(fixture, BYTES, i == 1 ? second : first);
            test_stall *stall = test_stall_begin(first);
            test_write(fixture, &blocks[0], 0x5a, first);
            launch_copy(fixture, &blocks[1], &blocks[0], second);
            launch_copy(fixture, &blocks[2], &blocks[1], first);
            const unsigned char *seen = test_read(fixture, &blocks[2], second);
            test_stall_release(stall);
            test_synchronize(second);
            check_bytes(seen, 0x5a, BYTES);
            test_stall_end(stall);
            for (size_t i = 0; i < 3; i++)
                test_free_on(fixture, &blocks[i], first);
            test_stream_close(fixture, first);
            test_stream_close(fixture, second);
            fixture->seen_used = 0;
        }
}

static void a_launch_of_a_hundred_blocks_orders_each_of_them(test_fixture *fixture)
{
    enum { SMALL = 256 };
    CUstream producer = test_stream(fixture, TEST_STREAM_POOL), consumer = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream checker = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[MANY];
    for (size_t i = 0; i < MANY; i++)
        blocks[i] = test_allocate(fixture, SMALL, producer);
    test_stall *stall = test_stall_begin(producer);
    for (size_t i = 0; i < MANY; i++)
        test_write(fixture, &blocks[i], 0x11, producer);
    strata_launch launch;
    begin(fixture, &launch, consumer);
    for (size_t i = 0; i < MANY; i++)
        check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_READ_WRITE));
    check_ok(strata_launch_preflight(&launch));
    for (size_t i = 0; i < MANY; i++)
        test_fill(blocks[i].address, 0x22, SMALL / 2, consumer);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    const unsigned char *seen[MANY];
    for (size_t i = 0; i < MANY; i++)
        seen[i] = test_read(fixture, &blocks[i], checker);
    test_stall_release(stall);
    test_synchronize(checker);
    for (size_t i = 0; i < MANY; i++) {
        check_bytes(seen[i], 0x22, SMALL / 2);
        check_bytes(seen[i] + SMALL / 2, 0x11, SMALL / 2);
        test_free_on(fixture, &blocks[i], producer);
    }
    test_stall_end(stall);
}

/* Early events: each write has one of its own, and the first does not cover the second. */
static void a_launch_waits_for_each_event_of_a_producer_that_it_needs(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    CUstream producer = test_stream(fixture, TEST_STREAM_POOL), consumer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[2] = {test_allocate(fixture, BYTES, producer), test_allocate(fixture, BYTES, producer)};
    test_write(fixture, &blocks[0], 0x11, producer);
    test_stall *stall = test_stall_begin(producer);
    test_write(fixture, &blocks[1], 0x22, producer);
    strata_launch launch;
    begin(fixture, &launch, consumer);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    const unsigned char *seen = test_copy_back(fixture, blocks[1].address, BYTES, consumer);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    test_stall_release(stall);
    test_synchronize(consumer);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    for (size_t i = 0; i < 2; i++)
        test_free_on(fixture, &blocks[i], producer);
}

static void a_block_named_twice_counts_once_with_the_stronger_access(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_synchronize(alloc_stream);
    test_stall *stall = test_stall_begin(alloc_stream);
    const unsigned char *before = test_read(fixture, &block, alloc_stream);
    strata_launch launch;
    begin(fixture, &launch, user);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    check_ok(strata_launch_use_address(&launch, block.address + 100, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    assert_int_equal(launch.count, 1);
    assert_int_equal(launch.storage[0].access, STRATA_ACCESS_READ_WRITE);
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x22, BYTES, user);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    const unsigned char *after = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(before, 0x11, BYTES); /* the write waited for this read */
    check_bytes(after, 0x22, BYTES);  /* and this read for the write */
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block)); /* pinned once, unpinned once */
}

/* A recorder that names blocks and comes back by value; where it was begun there is nothing left of it. */
static strata_launch begun_elsewhere(test_fixture *fixture, const strata_block *blocks, size_t count, CUstream stream)
{
    strata_launch here, moved;
    begin(fixture, &here, stream);
    for (size_t i = 0; i < count; i++)
        check_ok(strata_launch_use(&here, &blocks[i], STRATA_ACCESS_WRITE));
    moved = here;
    memset(&here, 0xa5, sizeof here);
    return moved;
}

static void a_recorder_that_was_returned_by_value_orders_its_blocks(test_fixture *fixture)
{
    static const size_t counts[] = {1, STRATA_LAUNCH_INLINE, STRATA_LAUNCH_INLINE + 1, MANY};
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[MANY];
    for (size_t i = 0; i < MANY; i++)
        blocks[i] = test_allocate(fixture, BYTES, reader);
    for (size_t round = 0; round < sizeof counts / sizeof counts[0]; round++) {
        size_t count = counts[round];
        unsigned char value = (unsigned char)(0x31 + round);
        test_stall *stall = test_stall_begin(writer);
        strata_launch launch = begun_elsewhere(fixture, blocks, count, writer);
        check_ok(strata_launch_preflight(&launch));
        for (size_t i = 0; i < count; i++)
            test_fill(blocks[i].address, value, BYTES, writer);
        check_ok(strata_launch_commit(&launch));
        check_ok(strata_launch_end(&launch));
        const unsigned char *seen = test_read(fixture, &blocks[count - 1], reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, value, BYTES);
        test_stall_end(stall);
    }
    for (size_t i = 0; i < MANY; i++)
        test_free_on(fixture, &blocks[i], reader);
}

static void empty_blocks_and_null_addresses_are_ignored(test_fixture *fixture)
{
    strata_launch launch;
    begin(fixture, &launch, test_stream(fixture, TEST_STREAM_POOL));
    check_ok(strata_launch_use(&launch, &(strata_block){0}, STRATA_ACCESS_READ));
    check_ok(strata_launch_use_address(&launch, 0, STRATA_ACCESS_WRITE));
    assert_int_equal(launch.count, 0);
    assert_int_equal(launch.skipped, 0);
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
}

/* ---- strict and permissive ---- */

static void a_strict_launch_refuses_what_it_cannot_track_and_says_so_again(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_block foreign = block;
    foreign.id.table ^= 1;
    strata_launch launch;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    check_status(strata_launch_use(&launch, &foreign, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_launch_use_address(&launch, block.address + BYTES, STRATA_ACCESS_READ),
                 STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_launch_commit(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_permissive_launch_skips_what_it_cannot_track(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream),
                 freed = test_allocate(fixture, BYTES, alloc_stream);
    strata_block foreign = block;
    foreign.id.table ^= 1;
    strata_launch launch;
    test_stall *stall = test_stall_begin(alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_PERMISSIVE));
    check_ok(strata_launch_use(&launch, &foreign, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_use_address(&launch, ~(CUdeviceptr)0, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    assert_int_equal(launch.skipped, 2);
    assert_int_equal(launch.count, 1);
    check_ok(strata_launch_preflight(&launch));
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    test_stall_release(stall);
    test_synchronize(stream);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    /* A block that was freed is a mistake in any mode. */
    test_free_on(fixture, &freed, alloc_stream);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_PERMISSIVE));
    check_status(strata_launch_use(&launch, &freed, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_USE_AFTER_FREE);
    check_ok(strata_launch_end(&launch));
    test_free_on(fixture, &block, alloc_stream);
}

static void what_a_permissive_launch_skips_is_no_error(test_fixture *fixture)
{
    strata_block foreign = {.address = 4096, .bytes = BYTES, .id = {.generation = 1}}, found;
    unsigned errors = 0;
    strata_launch launch;
    check_status(strata_runtime_find(fixture->runtime, 4096, &found), STRATA_ERROR_FOREIGN_POINTER);
    strata_error before = *strata_last_error();
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
    strata_set_log_callback(count_errors, &errors);
    strata_status by_address = strata_launch_use_address(&launch, ~(CUdeviceptr)0, STRATA_ACCESS_READ);
    strata_status by_block = strata_launch_use(&launch, &foreign, STRATA_ACCESS_READ);
    strata_set_log_callback(NULL, NULL);
    check_ok(by_address);
    check_ok(by_block);
    assert_int_equal(launch.skipped, 2);
    assert_int_equal(errors, 0);
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    check_status(strata_runtime_find(fixture->runtime, 8192, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "0x2000"); /* errors are heard again */
    check_ok(strata_launch_end(&launch));
}

/* An owner that hands out made-up addresses and cannot track. */
typedef struct untracked {
    strata_resource resource;
} untracked;

static strata_status untracked_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    strata_block facts = {.address = 0x100000, .bytes = request->bytes, .requested = request->bytes, .alignment = 256};
    return strata_block_create(self, &facts, out);
}

static strata_status untracked_deallocate(strata_resource *self, const strata_block *block, CUstream stream)
{
    (void)stream;
    return strata_block_free(self, block);
}

static strata_status untracked_usage(strata_resource *self, strata_usage *usage)
{
    (void)self;
    *usage = (strata_usage){0};
    return STRATA_SUCCESS;
}

static uint32_t untracked_capabilities(strata_resource *self)
{
    (void)self;
    return 0;
}

static void untracked_destroy(strata_resource *self)
{
    strata_host_free(self);
}

static const strata_resource_ops untracked_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "untracked",
    .allocate = untracked_allocate,
    .deallocate = untracked_deallocate,
    .usage = untracked_usage,
    .capabilities = untracked_capabilities,
    .destroy = untracked_destroy,
};

static void a_resource_that_cannot_track_is_refused_or_skipped_and_never_passed_over_in_silence(test_fixture *fixture)
{
    (void)fixture;
    untracked *owner = strata_host_zalloc(sizeof *owner);
    assert_non_null(owner);
    owner->resource.ops = &untracked_ops;
    strata_resource *resource = &owner->resource;
    strata_stack *stack;
    strata_runtime *runtime;
    check_ok(strata_stack_build(&resource, 1, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    assert_false(strata_runtime_supports_block_use_tracking(runtime));
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_status(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_MISUSE);
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use(&launch, &block, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_STREAM_MISUSE);
    check_ok(strata_launch_end(&launch));
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    assert_int_equal(launch.skipped, 1);
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- failures ---- */

static void a_preflight_with_one_stale_block_waits_for_nothing_and_pins_nothing(test_fixture *fixture)
{
    enum { COUNT = 12 };
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t stale = 0; stale < COUNT; stale++) {
        strata_block blocks[COUNT];
        strata_launch launch;
        begin(fixture, &launch, stream);
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = test_allocate(fixture, BYTES, alloc_stream);
            check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_WRITE));
        }
        test_free_on(fixture, &blocks[stale], alloc_stream);
        test_calls calls;
        test_calls_begin(&calls);
        check_status(strata_launch_preflight(&launch), STRATA_ERROR_USE_AFTER_FREE);
        assert_int_equal(strata_last_error()->generation, blocks[stale].id.generation);
        assert_int_equal(test_calls_total(&calls), 0);
        check_ok(strata_launch_end(&launch));
        for (size_t i = 0; i < COUNT; i++)
            if (i != stale)
                test_free_on(fixture, &blocks[i], alloc_stream);
    }
}

/* Each block has a producer of its own, so that the n-th wait fails with n - 1 blocks prepared. */
static void a_preflight_that_fails_at_any_wait_notes_no_use_and_pins_nothing(test_fixture *fixture)
{
    enum { COUNT = 12 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_POOL);
    CUstream alloc_streams[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        alloc_streams[i] = test_stream(fixture, TEST_STREAM_POOL);
    unsigned refused = 1;
    for (unsigned nth = 1; refused; nth++) {
        strata_block blocks[COUNT];
        strata_launch launch;
        assert_true(nth <= COUNT + 1);
        begin(fixture, &launch, stream);
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = test_allocate(fixture, BYTES, alloc_streams[i]);
            test_write(fixture, &blocks[i], 0x11, alloc_streams[i]);
            check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_WRITE));
        }
        test_stall *stall = test_stall_begin(stream);
        test_fault_begin(TEST_FAULT_STREAM_WAIT_EVENT, nth, false, CUDA_ERROR_UNKNOWN);
        strata_status status = strata_launch_preflight(&launch);
        refused = test_fault_end();
        assert_int_equal(status, refused ? STRATA_ERROR_DRIVER : STRATA_SUCCESS);
        if (!refused)
            check_ok(strata_launch_cancel(&launch));
        check_ok(strata_launch_end(&launch));
        for (size_t i = 0; i < COUNT; i++)
            test_write(fixture, &blocks[i], 0x22, writer);
        test_synchronize(writer); /* the stall would run out if a use on its stream had been noted */
        test_stall_end(stall);
        for (size_t i = 0; i < COUNT; i++)
            test_free_on(fixture, &blocks[i], writer);
    }
}

/* The work is submitted: what cannot be noted must not be lost in silence, and the blocks must come free. */
static void a_commit_on_an_unknown_stream_that_cannot_record_waits_for_the_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    strata_launch launch;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x33, BYTES, stream);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_UNKNOWN);
    check_ok(strata_launch_commit(&launch));
    test_fault_end();
    check_ok(strata_launch_end(&launch));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

/* The same where the stream cannot even be identified any more. */
static void a_commit_that_cannot_identify_its_stream_waits_for_the_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    strata_launch launch;
    test_calls calls;
    unsigned errors = 0;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x33, BYTES, stream);
    test_calls_begin(&calls);
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, false, CUDA_ERROR_OUT_OF_MEMORY);
    strata_set_log_callback(count_errors, &errors);
    strata_status status = strata_launch_commit(&launch);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(test_fault_end(), 1);
    check_ok(strata_launch_end(&launch));
    check_ok(status);
    assert_int_equal(errors, 0); /* the wait takes the record's place */
    assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 1);
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader); /* ordered by nothing else */
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_commit_whose_wait_is_refused_too_raises_one_error(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    strata_launch launch;
    unsigned errors = 0;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fault_pretend_capture(stream);
    strata_set_log_callback(count_errors, &errors);
    strata_status status = strata_launch_commit(&launch);
    strata_set_log_callback(NULL, NULL);
    test_fault_end();
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "being captured");
    assert_int_equal(errors, 1);
    check_ok(strata_launch_end(&launch));
    test_free_on(fixture, &block, NULL);
}

typedef struct use_beside {
    test_fixture *fixture;
    strata_block block;
    CUstream stream;
    strata_status status;
} use_beside;

static void use_block_beside(void *data)
{
    use_beside *self = data;
    self->status =
        strata_runtime_prepare_block_use(self->fixture->runtime, &self->block, self->stream, STRATA_ACCESS_READ);
    if (self->status == STRATA_SUCCESS)
        self->status =
            strata_runtime_finish_block_use(self->fixture->runtime, &self->block, self->stream, STRATA_ACCESS_NONE);
}

/* The use waits for the event of the whole commit. */
static void a_refused_commit_is_logged_while_another_thread_uses_its_blocks(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    use_beside use = {.fixture = fixture, .block = test_allocate(fixture, BYTES, reader), .stream = reader};
    strata_block finished = test_allocate(fixture, BYTES, reader);
    strata_launch launch;
    test_beside beside;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &use.block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_use(&launch, &finished, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &finished, stream, STRATA_ACCESS_NONE));
    test_beside_begin(&beside, use_block_beside, &use);
    const strata_status status = strata_launch_commit(&launch);
    const bool returned = test_beside_end(&beside);
    check_ok(strata_launch_end(&launch));
    check_status(status, STRATA_ERROR_STREAM_MISUSE);
    assert_true(returned);
    check_ok(use.status);
    test_free_on(fixture, &use.block, reader);
    test_free_on(fixture, &finished, reader);
}

/* ---- not committing ---- */

static void remember_finding(const strata_error *error, void *data)
{
    *(strata_error *)data = *error;
}

static void a_launch_that_is_never_committed_is_reported_and_counts_as_submitted(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, kind);
        CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        strata_launch launch;
        strata_error finding = {0};
        begin(fixture, &launch, stream);
        check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(stream);
        check_ok(strata_launch_preflight(&launch));
        test_fill(block.address, 0x22, BYTES, stream);
        strata_set_log_callback(remember_finding, &finding);
        strata_status status = strata_launch_end(&launch);
        strata_set_log_callback(NULL, NULL);
        assert_int_equal(status, STRATA_ERROR_NOT_COMMITTED);
        assert_int_equal(finding.status, STRATA_ERROR_NOT_COMMITTED);
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x22, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, reader);
        test_stream_close(fixture, alloc_stream);
        test_stream_close(fixture, stream);
        test_stream_close(fixture, reader);
    }
}

static void a_cancelled_launch_notes_nothing(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    strata_launch launch;
    begin(fixture, &launch, stream);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_launch_preflight(&launch));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_launch_cancel(&launch));
    check_status(strata_launch_commit(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader); /* the stall would run out if the use had been noted */
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

/* ---- misuse of the recorder ---- */

static void the_recorder_refuses_calls_out_of_order(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_launch launch = {0};
    check_status(strata_launch_begin(NULL, fixture->runtime, stream, STRATA_LAUNCH_STRICT), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_begin(&launch, NULL, stream, STRATA_LAUNCH_STRICT), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_begin(&launch, fixture->runtime, stream, (strata_launch_mode)2),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use(&launch, &block, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_end(&launch), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_end(NULL), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, &launch, stream);
    check_status(strata_launch_commit(&launch), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_cancel(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use_address(&launch, block.address, STRATA_ACCESS_WRITE), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_commit(&launch));
    check_status(strata_launch_commit(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    check_status(strata_launch_end(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_use_that_was_refused_spoils_the_launch(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_launch launch;
    begin(fixture, &launch, stream);
    check_status(strata_launch_use(&launch, &block, STRATA_ACCESS_NONE), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    begin(fixture, &launch, stream);
    check_status(strata_launch_use(&launch, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_chain_of_launches_on_streams_of_every_kind_passes_the_bytes_on),
        TEST_CASE(a_launch_of_a_hundred_blocks_orders_each_of_them),
        TEST_CASE(a_launch_waits_for_each_event_of_a_producer_that_it_needs),
        TEST_CASE(a_block_named_twice_counts_once_with_the_stronger_access),
        TEST_CASE(a_recorder_that_was_returned_by_value_orders_its_blocks),
        TEST_CASE(empty_blocks_and_null_addresses_are_ignored),
        TEST_CASE(a_strict_launch_refuses_what_it_cannot_track_and_says_so_again),
        TEST_CASE(a_permissive_launch_skips_what_it_cannot_track),
        TEST_CASE(what_a_permissive_launch_skips_is_no_error),
        TEST_CASE(a_resource_that_cannot_track_is_refused_or_skipped_and_never_passed_over_in_silence),
        TEST_CASE(a_preflight_with_one_stale_block_waits_for_nothing_and_pins_nothing),
        TEST_CASE(a_preflight_that_fails_at_any_wait_notes_no_use_and_pins_nothing),
        TEST_CASE(a_commit_on_an_unknown_stream_that_cannot_record_waits_for_the_work),
        TEST_CASE(a_commit_that_cannot_identify_its_stream_waits_for_the_work),
        TEST_CASE(a_commit_whose_wait_is_refused_too_raises_one_error),
        TEST_CASE(a_refused_commit_is_logged_while_another_thread_uses_its_blocks),
        TEST_CASE(a_launch_that_is_never_committed_is_reported_and_counts_as_submitted),
        TEST_CASE(a_cancelled_launch_notes_nothing),
        TEST_CASE(the_recorder_refuses_calls_out_of_order),
        TEST_CASE(a_use_that_was_refused_spoils_the_launch),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
