/* Random traffic against a model. The model knows which blocks live where, what each of them holds, which streams there
 * are, and what every call has to answer. What a block holds is written and read in the order of prepare and finish
 * alone, so a wait that is missing shows itself as wrong bytes when the simulated driver runs work late.
 *
 * STRATA_TEST_SEEDS and STRATA_TEST_OPERATIONS say how much; STRATA_TEST_FULL=1 is a million operations a seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/driver.h"
#include "support/effort.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEFAULT_SEEDS = 8, DEFAULT_OPERATIONS = 3000 };
#else
enum { DEFAULT_SEEDS = 40, DEFAULT_OPERATIONS = 10000 };
#endif

enum {
    FULL_OPERATIONS = 1000000,
    BLOCKS = 48,   /* live ones at most */
    STALE = 16,    /* freed ones that are remembered */
    STREAMS = 10,  /* open ones */
    READS = 256,   /* not yet verified */
    EDGE = 512,    /* bytes at both ends of a block that are written and read */
    LAUNCHED = 12, /* blocks of a launch at most */
};

typedef enum stream_kind { POOL, REGISTERED, UNKNOWN, ZERO, LEGACY, PER_THREAD, STREAM_KINDS } stream_kind;

typedef struct model_stream {
    CUstream handle;
    stream_kind kind;
    uint64_t number; /* of no other stream, whatever the handle */
} model_stream;

typedef struct model_block {
    strata_block block;
    int value;             /* of its bytes; -1 before the first write */
    uint64_t alloc_stream; /* number of the stream */
    bool home_known;       /* when it was allocated */
    uint64_t only;         /* number of the one stream that ever used it, 0 if several did */
} model_block;

typedef struct model_read {
    size_t slot; /* in the pinned buffer */
    size_t bytes;
    int value;
    strata_block_id id;
} model_read;

static struct {
    uint64_t seed, random;
    size_t operation;
    strata_runtime *runtime;
    bool ordered; /* the stack allocates in stream order */
    model_block blocks[BLOCKS];
    size_t block_count;
    size_t live_bytes;
    strata_block stale[STALE];
    size_t stale_count;
    model_stream streams[STREAMS];
    size_t stream_count;
    uint64_t last_number;
    model_read reads[READS];
    size_t read_count;
    unsigned char *seen; /* pinned: READS * EDGE bytes */
} model;

/* ---- dice ---- */

static uint64_t roll(void)
{
    model.random ^= model.random << 13;
    model.random ^= model.random >> 7;
    model.random ^= model.random << 17;
    return model.random;
}

static size_t pick(size_t below)
{
    return (size_t)((roll() >> 11) % below);
}

static model_stream *pick_stream(void)
{
    return &model.streams[pick(model.stream_count)];
}

static model_block *pick_block(void)
{
    return &model.blocks[pick(model.block_count)];
}

/* Mostly small, some of a few MiB. */
static size_t pick_size(void)
{
    size_t kind = pick(16);
    if (kind < 10)
        return 1 + pick(8192);
    if (kind < 15)
        return 1 + pick(256 << 10);
    return 1 + pick(6 << 20);
}

/* ---- streams ---- */

static bool is_known(const model_stream *stream)
{
    return stream->kind != UNKNOWN && stream->kind != PER_THREAD;
}

static const model_stream *stream_of(uint64_t number)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].number == number)
            return &model.streams[i];
    return NULL;
}

static bool handle_is_of_known_stream(CUstream handle)
{
    for (size_t i = 0; i < model.stream_count; i++)
        if (model.streams[i].handle == handle && is_known(&model.streams[i]))
            return true;
    return false;
}

static void open_stream(stream_kind kind)
{
    static const CUstream fixed[STREAM_KINDS] = {
        [ZERO] = NULL, [LEGACY] = CU_STREAM_LEGACY, [PER_THREAD] = CU_STREAM_PER_THREAD};
    model_stream *stream = &model.streams[model.stream_count];
    *stream = (model_stream){.kind = kind, .handle = fixed[kind], .number = ++model.last_number};
    if (kind == POOL)
        check_ok(strata_runtime_stream_acquire(model.runtime, &stream->handle));
    else if (kind == REGISTERED || kind == UNKNOWN)
        check_cu(strata_cu.StreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING));
    if (kind == REGISTERED)
        check_ok(strata_runtime_register_stream(model.runtime, stream->handle));
    model.stream_count++;
}

/* A pooled stream that is given back stays known, and its work is not waited for. */
static void close_stream(size_t which)
{
    model_stream stream = model.streams[which];
    model.streams[which] = model.streams[--model.stream_count];
    if (stream.kind == POOL)
        check_ok(strata_runtime_stream_release(model.runtime, stream.handle));
    if (stream.kind == REGISTERED)
        check_ok(strata_runtime_unregister_stream(model.runtime, stream.handle));
    if (stream.kind == REGISTERED || stream.kind == UNKNOWN)
        check_cu(strata_cu.StreamDestroy(stream.handle));
}

/* The first three streams are the default ones, which stay. */
enum { DEFAULT_STREAMS = 3 };

static void change_streams(void)
{
    size_t which = DEFAULT_STREAMS + pick(model.stream_count - DEFAULT_STREAMS);
    model_stream *stream = &model.streams[which];
    switch (pick(4)) {
    case 0:
        if (stream->kind == UNKNOWN) {
            check_ok(strata_runtime_register_stream(model.runtime, stream->handle));
            stream->kind = REGISTERED;
            return;
        }
        break;
    case 1:
        if (stream->kind == REGISTERED) {
            check_ok(strata_runtime_unregister_stream(model.runtime, stream->handle));
            stream->kind = UNKNOWN;
            return;
        }
        break;
    default:
        break;
    }
    close_stream(which);
    open_stream((stream_kind)pick(UNKNOWN + 1));
}

/* ---- contents ---- */

static size_t edge_of(const strata_block *block)
{
    return block->requested < EDGE ? block->requested : EDGE;
}

static void verify_reads(void)
{
    check_cu(strata_cu.CtxSynchronize());
    for (size_t i = 0; i < model.read_count; i++) {
        const model_read *read = &model.reads[i];
        const unsigned char *bytes = &model.seen[read->slot * EDGE];
        for (size_t j = 0; j < read->bytes; j++) {
            if (bytes[j] == read->value)
                continue;
            print_error("block in slot %u, generation %llu: byte %zu is 0x%02x, expected 0x%02x\n", read->id.slot,
                        (unsigned long long)read->id.generation, j, bytes[j], (unsigned)read->value);
            fail();
        }
    }
    model.read_count = 0;
}

/* Submits the work of a use that is prepared. */
static void submit(model_block *one, const model_stream *stream, strata_access access)
{
    const strata_block *block = &one->block;
    size_t edge = edge_of(block);
    CUdeviceptr ends[2] = {block->address, block->address + block->requested - edge};
    if (access & STRATA_ACCESS_READ && one->value >= 0) {
        if (model.read_count == READS)
            fail_msg("the reads were not verified in time");
        model_read *read = &model.reads[model.read_count];
        *read = (model_read){.slot = model.read_count, .bytes = edge, .value = one->value, .id = block->id};
        model.read_count++;
        check_cu(strata_cu.MemcpyDtoHAsync(&model.seen[read->slot * EDGE], ends[pick(2)], edge, stream->handle));
    }
    if (access & STRATA_ACCESS_WRITE) {
        one->value = (int)pick(256);
        for (size_t i = 0; i < 2; i++)
            check_cu(strata_cu.MemsetD8Async(ends[i], (unsigned char)one->value, edge, stream->handle));
    }
    if (one->only != stream->number)
        one->only = 0;
}

static void make_room_for_reads(size_t count)
{
    if (model.read_count + count > READS)
        verify_reads();
}

/* ---- operations ---- */

static void check_apart(const strata_block *block)
{
    for (size_t i = 0; i < model.block_count; i++) {
        const strata_block *other = &model.blocks[i].block;
        assert_true(block->address + block->bytes <= other->address || other->address + other->bytes <= block->address);
        assert_false(block->id.slot == other->id.slot);
    }
}

static void enter(const strata_block *block, const model_stream *stream)
{
    check_apart(block);
    model.blocks[model.block_count++] = (model_block){.block = *block,
                                                      .value = -1,
                                                      .alloc_stream = stream->number,
                                                      .home_known = is_known(stream),
                                                      .only = stream->number};
    model.live_bytes += block->bytes;
}

static void allocate(void)
{
    if (model.block_count == BLOCKS)
        return;
    const model_stream *stream = pick_stream();
    size_t bytes = pick_size();
    strata_block block;
    check_ok(strata_runtime_allocate(model.runtime, bytes, stream->handle, &block));
    assert_true(block.requested == bytes && block.bytes >= bytes && block.address % 256 == 0);
    assert_ptr_equal(block.stream, stream->handle);
    enter(&block, stream);
    model_block *one = &model.blocks[model.block_count - 1];
    if (pick(4) == 0)
        return;
    /* Fresh memory may be used at once by work on its own stream. */
    submit(one, stream, STRATA_ACCESS_WRITE);
    check_ok(strata_runtime_record_block_use(model.runtime, &block, stream->handle, STRATA_ACCESS_WRITE));
}

static void allocate_oddly(void)
{
    strata_block block;
    CUstream stream = pick_stream()->handle;
    if (pick(2)) {
        check_ok(strata_runtime_allocate(model.runtime, 0, stream, &block));
        check_ok(strata_runtime_deallocate_on(model.runtime, &block, stream));
    } else {
        size_t huge = ((size_t)1 << 50) + pick(1 << 20);
        check_status(strata_runtime_allocate(model.runtime, huge, stream, &block), STRATA_ERROR_OUT_OF_MEMORY);
    }
    assert_true(block.address == 0 && block.id.generation == 0);
}

static void leave(model_block *one)
{
    assert_int_not_equal(strata_runtime_block_state(model.runtime, one->block.id), STRATA_BLOCK_LIVE);
    model.live_bytes -= one->block.bytes;
    size_t where = model.stale_count < STALE ? model.stale_count++ : pick(STALE);
    model.stale[where] = one->block;
    *one = model.blocks[--model.block_count];
}

static void free_on_some_stream(void)
{
    model_block *one = pick_block();
    check_ok(strata_runtime_deallocate_on(model.runtime, &one->block, pick_stream()->handle));
    leave(one);
}

static void free_on_alloc_stream(void)
{
    model_block *one = pick_block();
    const model_stream *alloc_stream = stream_of(one->alloc_stream);
    strata_status status = strata_runtime_deallocate(model.runtime, &one->block);
    bool may = one->home_known || (alloc_stream && alloc_stream->kind != UNKNOWN);
    /* What a stream left behind that is long gone may have come to another one with the same handle. */
    bool might = handle_is_of_known_stream(one->block.stream);
    if (may || (might && status == STRATA_SUCCESS)) {
        check_ok(status);
        leave(one);
        return;
    }
    check_status(status, STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(strata_runtime_block_state(model.runtime, one->block.id), STRATA_BLOCK_LIVE);
}

static strata_access pick_access(void)
{
    return (strata_access)(1 + pick(3));
}

static void use(void)
{
    model_block *one = pick_block();
    const model_stream *stream = pick_stream();
    strata_access access = pick_access();
    make_room_for_reads(1);
    check_ok(strata_runtime_prepare_block_use(model.runtime, &one->block, stream->handle, access));
    if (pick(8) == 0) {
        check_status(strata_runtime_deallocate_on(model.runtime, &one->block, stream->handle),
                     STRATA_ERROR_BLOCK_IN_USE);
        check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, stream->handle, STRATA_ACCESS_NONE));
        return;
    }
    submit(one, stream, access);
    check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, stream->handle, access));
}

/* A use that begins and ends between the prepare and the finish of a write on another stream, which in the end writes
 * nothing: what comes later must be ordered after both. */
static void use_within_a_write(void)
{
    model_block *one = pick_block();
    const model_stream *outer = pick_stream(), *inner = pick_stream();
    strata_access access = pick_access();
    make_room_for_reads(1);
    check_ok(strata_runtime_prepare_block_use(model.runtime, &one->block, outer->handle, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_prepare_block_use(model.runtime, &one->block, inner->handle, access));
    submit(one, inner, access);
    check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, inner->handle, access));
    check_ok(strata_runtime_finish_block_use(model.runtime, &one->block, outer->handle, STRATA_ACCESS_WRITE));
    if (one->only != outer->number)
        one->only = 0;
}

/* Without a prepare the program itself must know that the order is right: there is only one stream. */
static void use_and_record(void)
{
    model_block *one = pick_block();
    const model_stream *stream = one->only ? stream_of(one->only) : NULL;
    if (!stream)
        return;
    strata_access access = pick_access();
    make_room_for_reads(1);
    submit(one, stream, access);
    check_ok(strata_runtime_record_block_use(model.runtime, &one->block, stream->handle, access));
}

/* Several blocks, some of them named more than once, for one piece of work. */
static void launch(void)
{
    const model_stream *stream = pick_stream();
    strata_access access[BLOCKS] = {STRATA_ACCESS_NONE};
    strata_launch recorder;
    check_ok(strata_launch_begin(&recorder, model.runtime, stream->handle, STRATA_LAUNCH_STRICT));
    for (size_t i = 1 + pick(LAUNCHED); i > 0; i--) {
        size_t which = pick(model.block_count);
        const strata_block *block = &model.blocks[which].block;
        strata_access more = pick_access();
        access[which] = (strata_access)(access[which] | more);
        check_ok(pick(2) ? strata_launch_use(&recorder, block, more)
                         : strata_launch_use_address(&recorder, block->address + pick(block->bytes), more));
    }
    make_room_for_reads(LAUNCHED);
    check_ok(strata_launch_preflight(&recorder));
    bool cancelled = pick(8) == 0;
    for (size_t i = 0; i < model.block_count && !cancelled; i++)
        if (access[i])
            submit(&model.blocks[i], stream, access[i]);
    check_ok(cancelled ? strata_launch_cancel(&recorder) : strata_launch_commit(&recorder));
    check_ok(strata_launch_end(&recorder));
}

/* What can only be refused. */
static void misuse(void)
{
    if (!model.stale_count)
        return;
    const strata_block *block = &model.stale[pick(model.stale_count)];
    CUstream stream = pick_stream()->handle;
    assert_int_not_equal(strata_runtime_block_state(model.runtime, block->id), STRATA_BLOCK_LIVE);
    check_status(strata_runtime_deallocate_on(model.runtime, block, stream), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_prepare_block_use(model.runtime, block, stream, pick_access()),
                 STRATA_ERROR_USE_AFTER_FREE);
}

static void find(void)
{
    const strata_block *block = &pick_block()->block;
    strata_block found;
    check_ok(strata_runtime_find(model.runtime, block->address + pick(block->bytes), &found));
    assert_memory_equal(&found.id, &block->id, sizeof found.id);
    assert_int_equal(strata_runtime_block_state(model.runtime, block->id), STRATA_BLOCK_LIVE);
}

static void check_accounts(void)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(model.runtime, &usage));
    assert_true(usage.live_bytes == model.live_bytes);
    assert_true(usage.live_blocks == model.block_count);
    assert_true(usage.bytes_outstanding == usage.live_bytes + usage.retired_bytes);
    assert_true(model.ordered || usage.retired_bytes == 0);
    assert_true(usage.reserved_bytes >= usage.live_bytes);
}

static void give_back(void)
{
    size_t released;
    if (pick(2)) {
        check_ok(strata_runtime_reap_pending(model.runtime));
        assert_true(strata_runtime_bytes_outstanding(model.runtime) == model.live_bytes);
    } else {
        check_ok(strata_runtime_trim(model.runtime, pick(64 << 20), &released));
    }
}

static void operate(void)
{
    size_t what = pick(100);
    if (what < 24 || !model.block_count)
        allocate();
    else if (what < 38)
        free_on_some_stream();
    else if (what < 46)
        free_on_alloc_stream();
    else if (what < 68)
        use();
    else if (what < 72)
        use_within_a_write();
    else if (what < 78)
        use_and_record();
    else if (what < 86)
        launch();
    else if (what < 89)
        find();
    else if (what < 92)
        misuse();
    else if (what < 96)
        change_streams();
    else if (what < 98)
        check_accounts();
    else if (pick(4) == 0)
        give_back();
    else
        allocate_oddly();
}

/* ---- running ---- */

static void begin(uint64_t seed, const char *stack, strata_event_mode events)
{
    unsigned char *seen = model.seen;
    memset(&model, 0, sizeof model);
    model.seen = seen;
    model.seed = seed;
    model.random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    model.ordered = strcmp(stack, "direct") != 0;
    strata_runtime_config config = {.stack_text = stack, .events = events, .stream_capacity = STREAMS};
    check_ok(strata_runtime_create(&config, &model.runtime));
    open_stream(ZERO);
    open_stream(LEGACY);
    open_stream(PER_THREAD);
    while (model.stream_count < STREAMS)
        open_stream((stream_kind)pick(UNKNOWN + 1));
}

static void end(void)
{
    verify_reads();
    while (model.block_count)
        free_on_some_stream();
    check_accounts();
    while (model.stream_count > DEFAULT_STREAMS)
        close_stream(model.stream_count - 1);
    check_ok(strata_runtime_reap_pending(model.runtime));
    assert_true(strata_runtime_bytes_outstanding(model.runtime) == 0);
    check_ok(strata_runtime_destroy(model.runtime));
    model.runtime = NULL;
    check_cu(strata_cu.CtxSynchronize());
}

static size_t number_from_environment(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

static int tell_where(void **state)
{
    (void)state;
    if (model.runtime)
        print_error("seed %llu, operation %zu\n", (unsigned long long)model.seed, model.operation);
    return 0;
}

/* Seeds from `first` on, `apart` from each other. */
static void run(const char *stack, strata_event_mode events, size_t first, size_t apart)
{
    size_t seeds = number_from_environment("STRATA_TEST_SEEDS", test_effort(DEFAULT_SEEDS, 6));
    bool full = number_from_environment("STRATA_TEST_FULL", 0) != 0 && !test_under_valgrind();
    size_t usual = full ? FULL_OPERATIONS : test_effort(DEFAULT_OPERATIONS, 500);
    size_t operations = number_from_environment("STRATA_TEST_OPERATIONS", usual);
    for (uint64_t seed = first; seed < seeds; seed += apart) {
        if (test_sim_control())
            check_cu(test_sim_control()->set_seed(seed));
        begin(seed, stack, events);
        for (model.operation = 0; model.operation < operations; model.operation++)
            operate();
        end();
    }
}

/* Each third of the seeds. */
static void random_traffic_on_async_answers_as_the_model_says(void **state)
{
    (void)state;
    run("async", STRATA_EVENTS_LATE, 0, 3);
}

static void random_traffic_on_async_with_early_events_answers_as_the_model_says(void **state)
{
    (void)state;
    run("async", STRATA_EVENTS_EARLY, 1, 3);
}

static void random_traffic_on_direct_answers_as_the_model_says(void **state)
{
    (void)state;
    run("direct", STRATA_EVENTS_LATE, 2, 3);
}

/* Sizes that hit a bin, that share one, and that pass; chunks of few blocks, so that streams take from each other. */
static void random_traffic_on_bins_answers_as_the_model_says(void **state)
{
    (void)state;
    run("binning(bins=2KiB;8KiB;64KiB;1MiB, chunk=128KiB), async", STRATA_EVENTS_LATE, 0, 24);
    run("fixed(bytes=16KiB, chunk=64KiB), direct", STRATA_EVENTS_LATE, 1, 24);
}

static void random_traffic_on_bins_with_early_events_answers_as_the_model_says(void **state)
{
    (void)state;
    run("fixed(bytes=256KiB, chunk=1MiB), async", STRATA_EVENTS_EARLY, 2, 24);
}

static void random_traffic_on_a_pool_answers_as_the_model_says(void **state)
{
    (void)state;
    run("pool", STRATA_EVENTS_LATE, 0, 3);
}

static void random_traffic_on_a_small_pool_with_early_events_answers_as_the_model_says(void **state)
{
    (void)state;
    run("pool(chunk=2MiB, cache=64KiB, overhead=1)", STRATA_EVENTS_EARLY, 1, 3);
}

int main(void)
{
    test_open_driver();
    void *seen;
    if (strata_cu.MemHostAlloc(&seen, READS * EDGE, 0) != CUDA_SUCCESS)
        return 1;
    model.seen = seen;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_traffic_on_async_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_async_with_early_events_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_direct_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_bins_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_bins_with_early_events_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_a_pool_answers_as_the_model_says, tell_where),
        cmocka_unit_test_teardown(random_traffic_on_a_small_pool_with_early_events_answers_as_the_model_says,
                                  tell_where),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    strata_cu.MemFreeHost(seen);
    return failed;
}
