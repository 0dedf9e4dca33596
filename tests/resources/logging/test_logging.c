/* What the logging layer records of each call, and that recording changes nothing: on stacks that keep the records in
 * memory. Files, rings that overflow and processes that end are test_log_files.c. */
#include "support/captures.h"
#include "support/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, ROOM = 256 };

static strata_log_record records[ROOM];
static size_t count;

static strata_resource *top(test_fixture *fixture)
{
    return strata_stack_top(strata_runtime_stack(fixture->runtime));
}

/* What was recorded since the last time. */
static void take(test_fixture *fixture)
{
    check_ok(strata_logging_take(top(fixture), records, ROOM, &count));
    assert_true(count < ROOM);
}

static uint64_t value(test_fixture *fixture, const char *name)
{
    uint64_t read;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &read, NULL));
    return read;
}

static bool is_direct(const test_fixture *fixture)
{
    return strstr(fixture->stack, "direct") != NULL;
}

static strata_tag tag(const char *name)
{
    strata_tag made;
    check_ok(strata_tag_intern(name, &made));
    return made;
}

static const strata_log_record *find(strata_log_kind kind, uint64_t generation, uint32_t slot)
{
    for (size_t i = 0; i < count; i++)
        if (records[i].kind == kind && records[i].generation == generation && records[i].slot == slot)
            return &records[i];
    return NULL;
}

static const strata_log_record *expect(strata_log_kind kind, const strata_block *block)
{
    const strata_log_record *found = find(kind, block->id.generation, block->id.slot);
    if (!found)
        fail_msg("no record of kind %d of block 0x%llx among %zu", (int)kind, (unsigned long long)block->address,
                 count);
    return found;
}

/* The record is of this block, as its allocation had it. */
static void check_block(const strata_log_record *record, const strata_block *block, strata_tag tagged, CUstream stream)
{
    assert_int_equal(record->status, STRATA_SUCCESS);
    assert_true(record->address == block->address);
    assert_int_equal(record->requested, block->requested);
    assert_int_equal(record->bytes, block->bytes);
    assert_int_equal(record->tag, tagged);
    assert_true(record->stream == (uint64_t)(uintptr_t)stream);
    assert_int_equal(record->device, 0);
}

static void every_call_on_a_block_is_recorded_with_its_facts(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_request request = {
        .bytes = 1000, .alignment = 256, .stream = alloc_stream, .tag = tag("activations, and more")};
    strata_block block;
    take(fixture);
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
    test_fill(block.address, 1, BYTES / 8, user);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    test_free_on(fixture, &block, alloc_stream);
    take(fixture);
    assert_in_range(count, 5, 8);
    static const struct {
        strata_log_kind kind;
        strata_access access;
        bool on_alloc_stream;
    } wanted[] = {
        {STRATA_LOG_ALLOCATE, STRATA_ACCESS_NONE, true},     {STRATA_LOG_PREPARE_USE, STRATA_ACCESS_WRITE, false},
        {STRATA_LOG_FINISH_USE, STRATA_ACCESS_WRITE, false}, {STRATA_LOG_RECORD_USE, STRATA_ACCESS_READ, false},
        {STRATA_LOG_DEALLOCATE, STRATA_ACCESS_NONE, true},
    };
    uint64_t number = records[0].number, time = 0;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(records[i].kind, wanted[i].kind);
        assert_int_equal(records[i].access, wanted[i].access);
        check_block(&records[i], &block, request.tag, wanted[i].on_alloc_stream ? alloc_stream : user);
        assert_int_equal(records[i].number, number + i);
        assert_int_equal(records[i].thread_id, gettid());
        assert_true(records[i].monotonic_ns >= time && records[i].stream_id != 0);
        time = records[i].monotonic_ns;
    }
    assert_int_equal(records[0].alignment, 256);
    assert_true(records[0].stream_id == records[4].stream_id && records[1].stream_id == records[2].stream_id);
    assert_true(records[0].stream_id != records[1].stream_id);
    test_stream_close(fixture, user);
}

static void a_free_that_is_complete_at_once_says_so_and_any_other_has_a_second_record(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    take(fixture);
    test_stall *stall = is_direct(fixture) ? NULL : test_stall_begin(stream);
    test_free_on(fixture, &block, stream);
    take(fixture);
    const strata_log_record *freed = expect(STRATA_LOG_DEALLOCATE, &block);
    assert_int_equal((freed->flags & STRATA_LOG_FLAG_COMPLETE) != 0, is_direct(fixture));
    assert_null(find(STRATA_LOG_COMPLETED, block.id.generation, block.id.slot));
    if (!stall)
        return;
    uint64_t freed_ns = freed->monotonic_ns;
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    take(fixture);
    const strata_log_record *done = expect(STRATA_LOG_COMPLETED, &block);
    assert_true(done->flags & STRATA_LOG_FLAG_LAST);
    assert_true(done->address == block.address && done->monotonic_ns > freed_ns);
    assert_true(done->bytes == BYTES && done->requested == BYTES);
    const strata_log_record *reap = &records[count - 1];
    assert_int_equal(reap->kind, STRATA_LOG_REAP);
    assert_int_equal(reap->bytes, BYTES);
}

static void a_reuse_stands_between_the_free_and_the_allocation_that_got_the_bytes(test_fixture *fixture)
{
    if (is_direct(fixture))
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, BYTES, stream), second;
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &first, stream);
    second = test_allocate(fixture, BYTES, stream);
    test_stall_end(stall);
    take(fixture);
    const strata_log_record *freed = expect(STRATA_LOG_DEALLOCATE, &first),
                            *made = expect(STRATA_LOG_ALLOCATE, &second);
    if (second.address == first.address) {
        const strata_log_record *reused = expect(STRATA_LOG_REUSED, &first);
        assert_true(freed < reused && reused < made);
        assert_true(freed->monotonic_ns <= reused->monotonic_ns && reused->monotonic_ns <= made->monotonic_ns);
    }
    assert_true(freed->number < made->number);
    test_free_on(fixture, &second, stream);
}

static void what_fails_is_recorded_with_its_status_and_without_a_block(test_fixture *fixture)
{
    strata_request request = {.bytes = SIZE_MAX / 2, .tag = tag("too much")};
    strata_block block, none, wrong;
    take(fixture);
    assert_int_not_equal(strata_runtime_allocate_request(fixture->runtime, &request, &none), STRATA_SUCCESS);
    strata_status answer = strata_last_error()->status;
    take(fixture);
    assert_int_equal(count, 1);
    assert_int_equal(records[0].kind, STRATA_LOG_ALLOCATE);
    assert_int_equal(records[0].status, answer);
    assert_true(records[0].address == 0 && records[0].generation == 0 && records[0].bytes == 0);
    assert_true(records[0].requested == SIZE_MAX / 2 && records[0].tag == request.tag);

    block = test_allocate(fixture, BYTES, NULL);
    wrong = block;
    wrong.bytes = wrong.requested = BYTES / 2;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &wrong, NULL, STRATA_ACCESS_NONE),
                 STRATA_ERROR_INVALID_VALUE); /* does not reach the stack */
    test_free_on(fixture, &block, NULL);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    take(fixture);
    static const strata_status wanted[] = {STRATA_SUCCESS, STRATA_ERROR_SIZE_MISMATCH, STRATA_SUCCESS,
                                           STRATA_ERROR_DOUBLE_FREE, STRATA_ERROR_USE_AFTER_FREE};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(records[i].status, wanted[i]);
    assert_int_equal(records[1].requested, BYTES / 2); /* as it was asked for */
    assert_false(records[3].flags & STRATA_LOG_FLAG_COMPLETE);
}

static void a_free_has_the_tag_of_the_allocation_whatever_the_copy_says(test_fixture *fixture)
{
    strata_request request = {.bytes = BYTES, .tag = tag("weights")};
    strata_block block;
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    strata_block copy = block;
    copy.tag = tag("a lie");
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &copy, NULL, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &copy, NULL, STRATA_ACCESS_NONE));
    test_free_on(fixture, &copy, NULL);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    take(fixture);
    assert_int_equal(expect(STRATA_LOG_DEALLOCATE, &block)->tag, request.tag);
    assert_int_equal(expect(STRATA_LOG_PREPARE_USE, &block)->tag, request.tag);
    assert_int_equal(expect(STRATA_LOG_FINISH_USE, &block)->tag, request.tag);
    if (!is_direct(fixture))
        assert_int_equal(expect(STRATA_LOG_COMPLETED, &block)->tag, request.tag);
}

static void reaps_and_trims_are_recorded_with_what_they_gave(test_fixture *fixture)
{
    size_t bytes;
    take(fixture);
    check_ok(strata_runtime_trim(fixture->runtime, 12345, &bytes));
    check_ok(top(fixture)->ops->reap(top(fixture), STRATA_REAP_FINISHED, &bytes));
    take(fixture);
    assert_int_equal(records[count - 1].kind, STRATA_LOG_REAP);
    assert_int_equal(records[count - 1].requested, STRATA_REAP_FINISHED);
    bool trimmed = false;
    for (size_t i = 0; i < count; i++)
        trimmed |= records[i].kind == STRATA_LOG_TRIM && records[i].requested == 12345 && records[i].generation == 0;
    assert_true(trimmed);
}

static void waits_of_the_host_are_recorded_with_their_stream(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), capturing = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_free_on(fixture, &block, stream);
    take(fixture);
    const uint64_t id = expect(STRATA_LOG_ALLOCATE, &block)->stream_id;
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
    test_begin_capture(capturing);
    check_status(strata_runtime_stream_synchronize(fixture->runtime, capturing), STRATA_ERROR_STREAM_CAPTURE);
    test_end_capture(capturing);
    check_status(strata_runtime_stream_synchronize(fixture->runtime, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    take(fixture);
    assert_int_equal(count, 3);
    const CUstream streams[] = {stream, capturing, STRATA_STREAM_GONE};
    static const strata_status statuses[] = {STRATA_SUCCESS, STRATA_ERROR_STREAM_CAPTURE, STRATA_ERROR_INVALID_VALUE};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(records[i].kind, STRATA_LOG_SYNCHRONIZE);
        assert_int_equal(records[i].status, statuses[i]);
        assert_true(records[i].stream == (uint64_t)(uintptr_t)streams[i]);
        assert_true(records[i].address == 0 && records[i].requested == 0 && records[i].bytes == 0);
        assert_true(records[i].generation == 0 && records[i].tag == 0);
    }
    assert_true(records[0].stream_id == id && records[1].stream_id == 0);
    test_stream_close(fixture, capturing);
}

static void nothing_is_recorded_while_the_switch_is_off(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    take(fixture);
    uint64_t before = value(fixture, "logging.records");
    assert_int_equal(value(fixture, "logging.enabled"), 1);
    check_ok(strata_control_set_text(stack, "logging.enabled", "off"));
    strata_block unseen = test_allocate(fixture, BYTES, NULL), block = test_allocate(fixture, BYTES, NULL);
    test_free_on(fixture, &block, NULL);
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, NULL));
    take(fixture);
    assert_int_equal(count, 0);
    check_ok(strata_control_set_text(stack, "logging.enabled", "on"));
    test_free_on(fixture, &unseen, NULL);
    take(fixture);
    check_block(expect(STRATA_LOG_DEALLOCATE, &unseen), &unseen, 0, NULL);
    assert_int_equal(value(fixture, "logging.records"), before + count);
    assert_int_equal(value(fixture, "logging.dropped_records"), 0);
    check_status(strata_control_set_text(stack, "logging.records", "7"), STRATA_ERROR_INVALID_VALUE);
}

static void recording_asks_the_driver_nothing(test_fixture *fixture)
{
    strata_runtime *bare;
    const char *below = strchr(fixture->stack, ')') + 3;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = below}, &bare));
    uint64_t made[2];
    for (int logged = 0; logged < 2; logged++) {
        strata_runtime *runtime = logged ? fixture->runtime : bare;
        CUstream known, unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
        strata_block block;
        check_ok(strata_runtime_stream_acquire(runtime, &known));
        for (int round = 0; round < 2; round++) { /* the first one makes events */
            test_calls calls;
            test_calls_begin(&calls);
            check_ok(strata_runtime_allocate(runtime, BYTES, unknown, &block));
            check_ok(strata_runtime_record_block_use(runtime, &block, known, STRATA_ACCESS_READ));
            check_ok(strata_runtime_deallocate_on(runtime, &block, unknown));
            check_ok(strata_runtime_reap_pending(runtime));
            /* Without whether the context is still there, which async asks now and then. */
            made[logged] = test_calls_total(&calls) - test_calls_of(&calls, "cuCtxGetId");
            test_synchronize(unknown);
        }
        check_ok(strata_runtime_stream_release(runtime, known));
        test_stream_close(fixture, unknown);
    }
    check_ok(strata_runtime_destroy(bare));
    assert_int_equal(made[0], made[1]);
    take(fixture);
    assert_int_not_equal(records[0].stream_id, 0); /* the owner had to ask, and knows */
}

static void a_layer_that_is_asked_for_durations_gives_them_and_one_without_uses_has_none(test_fixture *fixture)
{
    char text[160];
    strata_runtime *runtime;
    const char *below = strchr(fixture->stack, ')') + 3;
    snprintf(text, sizeof text, "logging(format=memory, memory=100, duration=on, uses=off), %s", below);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    strata_resource *logging = strata_stack_top(strata_runtime_stack(runtime));
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_stream_synchronize(runtime, NULL));
    check_ok(strata_logging_take(logging, records, ROOM, &count));
    check_ok(strata_runtime_destroy(runtime));
    assert_int_equal(count, 3);
    assert_int_equal(records[2].kind, STRATA_LOG_SYNCHRONIZE);
    for (size_t i = 0; i < count; i++) {
        assert_true(records[i].flags & STRATA_LOG_FLAG_DURATION);
        assert_in_range(records[i].duration_ns, 10, UINT64_C(60000000000));
    }
    assert_int_equal(records[1].kind, STRATA_LOG_DEALLOCATE);
}

/* ---- without a driver's part in it ---- */

static void two_layers_of_a_stack_are_two_logs(test_fixture *fixture)
{
    strata_stack *stack;
    check_ok(strata_stack_create("logging(format=memory, memory=8), logging(format=memory), null", 0, &stack));
    strata_resource *outer = strata_stack_top(stack), *inner = outer->upstream;
    strata_block block;
    for (int i = 0; i < 10; i++) {
        check_ok(strata_resource_allocate(outer, &(strata_request){.bytes = BYTES}, &block));
        check_ok(strata_resource_deallocate(outer, &block, NULL));
    }
    check_ok(strata_logging_take(outer, records, ROOM, &count));
    assert_int_equal(count, 8); /* the newest */
    assert_int_equal(records[7].number, 20);
    uint64_t dropped[2];
    check_ok(strata_control(stack, "logging.dropped_records", &dropped[0], NULL));
    check_ok(strata_control(stack, "logging[1].dropped_records", &dropped[1], NULL));
    assert_true(dropped[0] == 12 && dropped[1] == 0);
    check_ok(strata_logging_take(inner, records, ROOM, &count));
    assert_int_equal(count, 20);
    check_ok(strata_logging_flush(outer));
    check_status(strata_logging_flush(inner->upstream), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "at or below null");
    check_status(strata_logging_take(inner->upstream, records, ROOM, &count), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_logging_take(NULL, records, ROOM, &count), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_logging_take(inner, NULL, ROOM, &count), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_logging_flush(NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_destroy(stack));
    (void)fixture;
}

static void options_that_do_not_go_together_are_refused(test_fixture *fixture)
{
    static const struct {
        strata_logging_options options;
        const char *words;
    } wrong[] = {
        {{.size = 7}, "strata_logging_options.size is 7"},
        {{.format = 9}, "invalid format 9"},
        {{.format = STRATA_LOG_MEMORY, .file = "x"}, "need format binary or csv"},
        {{.format = STRATA_LOG_NULL, .rotate = 1}, "need format binary or csv"},
        {{.format = STRATA_LOG_NULL, .ring = 7}, "a ring of 7 records; expected 64 to 1048576"},
        {{.format = STRATA_LOG_NULL, .interval = 7}, "an interval of 7 ns"},
        {{.format = STRATA_LOG_MEMORY, .memory = 1u << 30}, "records of memory"},
        {{.file = "a%xb"}, "unknown % sequence at character 2; expected %p"},
        {{.file = "\u00f6\u00f6%xb"}, "unknown % sequence at character 3; expected %p"},
        {{.file = "/nowhere/x.slog"}, "/nowhere/x.slog: No such file"},
    };
    strata_resource *resource;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_status status = strata_logging_create(0, &wrong[i].options, &resource);
        assert_int_equal(status, strstr(wrong[i].words, "nowhere") ? STRATA_ERROR_IO : STRATA_ERROR_INVALID_VALUE);
        check_last_error(status, wrong[i].words);
        assert_null(resource);
    }
    check_status(strata_logging_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    (void)fixture;
}

static void a_made_up_identity_bends_nothing_else(test_fixture *fixture)
{
    strata_block made_up = {.id = {.slot = 0x7f000007, .generation = 5}, .address = 0x1000, .tag = tag("mine")};
    take(fixture);
    assert_int_not_equal(strata_resource_deallocate(top(fixture), &made_up, NULL), STRATA_SUCCESS);
    assert_int_not_equal(strata_resource_prepare_use(top(fixture), &made_up, NULL, STRATA_ACCESS_READ), STRATA_SUCCESS);
    take(fixture);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(records[i].tag, made_up.tag);
        assert_int_equal(records[i].slot, 0xffffff);
        assert_int_equal(records[i].generation, 5);
    }
}

/* ---- calls inside of calls ---- */

/* A layer that calls a function of the test's at each allocation and free, as layers do that ask the program. */
typedef struct asking_layer {
    strata_resource resource;
    void (*ask)(strata_resource *top, bool frees);
    bool asked; /* it asks once: what it asks calls the stack */
    strata_resource *top;
} asking_layer;

static void ask_once(asking_layer *self, bool frees)
{
    if (self->asked)
        return;
    self->asked = true;
    self->ask(self->top, frees);
    self->asked = false;
}

static strata_status asking_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    ask_once((asking_layer *)resource, false);
    return resource->upstream->ops->allocate(resource->upstream, request, out);
}

static strata_status asking_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    ask_once((asking_layer *)resource, true);
    return resource->upstream->ops->deallocate(resource->upstream, block, stream);
}

static void asking_destroy(strata_resource *resource)
{
    free(resource);
}

static const strata_resource_ops asking_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "asking",
    .allocate = asking_allocate,
    .deallocate = asking_deallocate,
    .destroy = asking_destroy,
};

/* "logging(format=memory), asking, null" */
static strata_stack *asking_stack(void (*ask)(strata_resource *top, bool frees))
{
    strata_resource *resources[3];
    strata_stack *stack;
    asking_layer *asking = calloc(1, sizeof *asking);
    assert_non_null(asking);
    asking->resource.ops = &asking_ops;
    asking->ask = ask;
    resources[1] = &asking->resource;
    strata_logging_options options = {.format = STRATA_LOG_MEMORY, .interval = UINT64_C(60000000000)};
    check_ok(strata_logging_create(0, &options, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &stack));
    asking->top = strata_stack_top(stack);
    return stack;
}

static strata_block spare;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

/* Frees something, and allocates something smaller. */
static void make_room(strata_resource *top_of, bool frees)
{
    if (frees || spare.requested != 111)
        return;
    check_ok(strata_resource_deallocate(top_of, &spare, NULL));
    nap();
    check_ok(strata_resource_allocate(top_of, &(strata_request){.bytes = 55}, &spare));
    nap();
}

static void a_call_inside_of_another_keeps_its_time(test_fixture *fixture)
{
    strata_stack *stack = asking_stack(make_room);
    strata_resource *first = strata_stack_top(stack);
    strata_block block;
    (void)fixture;
    spare = (strata_block){0};
    check_ok(strata_resource_allocate(first, &(strata_request){.bytes = 111}, &spare));
    check_ok(strata_resource_allocate(first, &(strata_request){.bytes = 222}, &block));
    check_ok(strata_resource_deallocate(first, &block, NULL));
    check_ok(strata_logging_take(first, records, ROOM, &count));
    assert_int_equal(count, 5);
    static const strata_log_kind kinds[] = {STRATA_LOG_ALLOCATE, STRATA_LOG_DEALLOCATE, STRATA_LOG_ALLOCATE,
                                            STRATA_LOG_ALLOCATE, STRATA_LOG_DEALLOCATE};
    static const uint64_t sizes[] = {111, 111, 55, 222, 222};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(records[i].kind, kinds[i]);
        assert_int_equal(records[i].requested, sizes[i]);
        assert_int_equal(records[i].number, i + 1);
    }
    assert_true(records[1].flags & STRATA_LOG_FLAG_COMPLETE);
    assert_true(records[2].monotonic_ns - records[1].monotonic_ns >= 2500000); /* a nap is between each two */
    assert_true(records[3].monotonic_ns - records[2].monotonic_ns >= 2500000);
    check_ok(strata_resource_deallocate(first, &spare, NULL));
    check_ok(strata_stack_destroy(stack));
}

/* A pair, and a collection: the line of the free around is not complete. */
static void make_pair(strata_resource *top_of, bool frees)
{
    strata_block block;
    if (!frees)
        return;
    check_ok(strata_resource_allocate(top_of, &(strata_request){.bytes = 333}, &block));
    check_ok(strata_resource_deallocate(top_of, &block, NULL));
    check_ok(strata_logging_flush(top_of));
    nap();
}

static void a_free_around_other_calls_is_recorded_as_a_whole(test_fixture *fixture)
{
    strata_stack *stack = asking_stack(make_pair);
    strata_resource *first = strata_stack_top(stack);
    strata_block block;
    (void)fixture;
    check_ok(strata_resource_allocate(first, &(strata_request){.bytes = 111}, &block));
    check_ok(strata_resource_deallocate(first, &block, NULL));
    check_ok(strata_logging_take(first, records, ROOM, &count));
    static const strata_log_kind kinds[] = {STRATA_LOG_ALLOCATE, STRATA_LOG_DEALLOCATE, STRATA_LOG_ALLOCATE,
                                            STRATA_LOG_DEALLOCATE};
    static const uint64_t sizes[] = {111, 111, 333, 333};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(records[i].kind, kinds[i]);
        assert_int_equal(records[i].requested, sizes[i]);
        assert_int_equal(records[i].number, i + 1);
        assert_true(i == 0 || records[i].monotonic_ns >= records[i - 1].monotonic_ns);
        bool frees = kinds[i] == STRATA_LOG_DEALLOCATE;
        assert_int_equal(records[i].flags & STRATA_LOG_FLAG_COMPLETE, frees ? STRATA_LOG_FLAG_COMPLETE : 0);
    }
    check_ok(strata_stack_destroy(stack));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(every_call_on_a_block_is_recorded_with_its_facts),
        TEST_CASE(a_free_that_is_complete_at_once_says_so_and_any_other_has_a_second_record),
        TEST_CASE(a_reuse_stands_between_the_free_and_the_allocation_that_got_the_bytes),
        TEST_CASE(what_fails_is_recorded_with_its_status_and_without_a_block),
        TEST_CASE(a_free_has_the_tag_of_the_allocation_whatever_the_copy_says),
        TEST_CASE(reaps_and_trims_are_recorded_with_what_they_gave),
        TEST_CASE(waits_of_the_host_are_recorded_with_their_stream),
        TEST_CASE(nothing_is_recorded_while_the_switch_is_off),
        TEST_CASE(recording_asks_the_driver_nothing),
        TEST_CASE(a_layer_that_is_asked_for_durations_gives_them_and_one_without_uses_has_none),
    };
    static const test_case others[] = {
        TEST_CASE(two_layers_of_a_stack_are_two_logs),
        TEST_CASE(a_made_up_identity_bends_nothing_else),
        TEST_CASE(a_call_inside_of_another_keeps_its_time),
        TEST_CASE(a_free_around_other_calls_is_recorded_as_a_whole),
        TEST_CASE(options_that_do_not_go_together_are_refused),
    };
    static const char *const stacks[] = {"logging(format=memory), async", "logging(format=memory), direct"};
    test_open_driver();
    int failed = test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
    return failed + test_run_on(stacks, 1, others, sizeof others / sizeof others[0]);
}
