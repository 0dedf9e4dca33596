/* The logging layer in calls that are seldom: while its rings are full, where layers below report in the middle of
 * other calls, from its own writer, in a child, and what becomes of records that are unlike others. */
#include "support/child.h"
#include "support/log.h"

#include "core/base/per_thread.h"
#include "core/stack/completions.h"

#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>

enum { BYTES = 4096, ROOM = 1024 };

static strata_log_record records[ROOM];
static size_t count;

static void take(strata_stack *stack)
{
    check_ok(strata_logging_take(strata_stack_top(stack), records, ROOM, &count));
}

static size_t count_of(strata_log_kind kind)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += records[i].kind == kind;
    return found;
}

/* ---- a sink that holds the writer back ---- */

static struct {
    sem_t go;
    _Atomic bool hold;
    _Atomic size_t calls;
    _Atomic uint64_t late;
} held;

static void keep(const strata_log_record *some, size_t more, void *data)
{
    (void)data;
    for (size_t i = 0; i < more; i++) {
        assert_true(count < ROOM);
        records[count++] = some[i];
    }
    held.calls++;
    if (held.hold)
        sem_wait(&held.go);
}

static strata_stack *held_stack(strata_resource *owner)
{
    strata_resource *layers[] = {NULL, owner};
    strata_stack *stack;
    memset(&held, 0, sizeof held);
    assert_int_equal(sem_init(&held.go, 0, 0), 0);
    count = 0;
    check_ok(strata_logging_create(
        0, &(strata_logging_options){.ring = 64, .callback = keep, .interval = UINT64_C(60000000000)}, &layers[0]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    return stack;
}

/* From now on the writer takes nothing out of the ring, which has its 64 lines: a pair wakes it, once three quarters
 * are used, and stays in its hands. */
static uint64_t hold_writer(strata_stack *stack)
{
    size_t calls = held.calls;
    uint64_t made = 0;
    held.hold = true;
    for (; held.calls == calls; made += 2) {
        make_pairs(stack, 1);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return made;
}

static void let_writer_go(strata_stack *stack)
{
    held.hold = false;
    sem_post(&held.go);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
}

static void calls_that_find_the_ring_full_are_made_as_ever_and_counted(void **state)
{
    (void)state;
    strata_resource *owner, *top;
    strata_block block, none = {.address = 1}, wrong;
    strata_stack *stack;
    size_t bytes;
    check_ok(strata_null_create(0, NULL, &owner));
    stack = held_stack(owner);
    top = strata_stack_top(stack);
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES}, &block));
    wrong = block;
    wrong.bytes++;
    hold_writer(stack);
    make_pairs(stack, 100);
    uint64_t dropped = value(stack, "logging.dropped_records");
    assert_true(dropped > 0);
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = SIZE_MAX}, &none),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(none.address == 0);
    check_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(top->ops->record_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &bytes));
    check_ok(top->ops->trim(top, 0, &bytes));
    check_status(strata_resource_deallocate(top, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    assert_int_equal(value(stack, "logging.dropped_records"), dropped + 8);
    let_writer_go(stack);
    for (size_t i = 0; i < count; i++)
        assert_true(records[i].status == STRATA_SUCCESS && records[i].kind <= STRATA_LOG_DEALLOCATE);
    make_pairs(stack, 1);
    check_ok(strata_logging_flush(top));
    assert_int_equal(records[count - 1].number, count + dropped + 8); /* the gap is in the numbers */
    check_ok(strata_stack_destroy(stack));
}

/* The same with records that report nothing, of which `lines` are in the ring then. It may hold more at the moment when
 * the writer stays: then once more. */
static void hold_writer_with(strata_stack *stack, strata_block *block, uint64_t lines)
{
    strata_resource *top = strata_stack_top(stack);
    for (;;) {
        size_t calls = held.calls;
        held.hold = true;
        for (int i = 0; held.calls == calls; i++) {
            check_ok(top->ops->record_use(top, block, NULL, STRATA_ACCESS_READ));
            if (i >= 50)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        if (value(stack, "logging.records") - count <= lines)
            break;
        let_writer_go(stack);
    }
    while (value(stack, "logging.records") - count < lines)
        check_ok(top->ops->record_use(top, block, NULL, STRATA_ACCESS_READ));
}

/* A reap reports more than the ring has room for: what has a line is published with its time, the rest is counted, and
 * so is the reap itself. */
static void what_a_call_reports_into_a_full_ring_is_published_as_far_as_there_is_room(void **state)
{
    (void)state;
    enum { FREED = 60 };
    strata_resource *owner, *top;
    strata_block blocks[FREED], other;
    CUstream stream;
    size_t bytes;
    check_ok(strata_async_create(0, NULL, &owner));
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    strata_stack *stack = held_stack(owner);
    top = strata_stack_top(stack);
    for (size_t i = 0; i < FREED; i++) {
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES, .stream = stream}, &blocks[i]));
        check_ok(strata_logging_flush(top));
    }
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES}, &other));
    test_stall *stall = test_stall_begin(stream);
    for (size_t i = 0; i < FREED; i++) {
        check_ok(strata_resource_deallocate(top, &blocks[i], stream));
        check_ok(strata_logging_flush(top));
    }
    hold_writer_with(stack, &other, 20);
    uint64_t dropped = value(stack, "logging.dropped_records");
    test_stall_end(stall);
    size_t before = count;
    check_ok(top->ops->reap(top, STRATA_REAP_WAIT, &bytes));
    assert_true(bytes >= (size_t)FREED * BYTES);
    uint64_t lost = value(stack, "logging.dropped_records") - dropped;
    let_writer_go(stack);
    assert_int_equal(count_of(STRATA_LOG_REAP), 0);
    size_t reported = count_of(STRATA_LOG_COMPLETED);
    assert_true(before <= count && reported > 0 && reported < FREED);
    assert_int_equal(reported + lost, FREED + 1);
    for (size_t i = 1; i < count; i++)
        assert_true(records[i].monotonic_ns >= records[i - 1].monotonic_ns && records[i].monotonic_ns != 0);
    check_ok(strata_resource_deallocate(top, &other, NULL));
    check_cu(test_cu()->StreamSynchronize(NULL));
    check_ok(strata_stack_destroy(stack));
    check_cu(test_cu()->StreamDestroy(stream));
}

/* ---- reports in the middle of other calls ---- */

/* A sampling guard unmaps what was freed before when the next block is freed. */
static void what_ends_while_another_block_is_freed_stands_behind_that_free(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    strata_stack *stack;
    strata_block first, second;
    CUstream stream;
    check_ok(strata_stack_create("logging(format=memory, interval=60s), guard(sample=1), async", 0, &stack));
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    strata_resource *top = strata_stack_top(stack);
    const strata_request request = {.bytes = BYTES, .stream = stream};
    check_ok(strata_resource_allocate(top, &request, &first));
    check_ok(strata_resource_allocate(top, &request, &second));
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_resource_deallocate(top, &first, stream));
    test_stall_end(stall);
    take(stack);
    assert_int_equal(count_of(STRATA_LOG_COMPLETED), 0);
    check_ok(strata_resource_deallocate(top, &second, stream));
    take(stack);
    assert_true(count >= 2 && records[0].kind == STRATA_LOG_DEALLOCATE && records[0].slot == second.id.slot);
    assert_true(records[1].kind == STRATA_LOG_COMPLETED && records[1].slot == first.id.slot);
    assert_true(records[1].flags & STRATA_LOG_FLAG_LAST);
    assert_in_range(records[1].monotonic_ns - records[0].monotonic_ns, 0, UINT64_C(60000000000)); /* of the free */
    assert_false(records[1].flags & STRATA_LOG_FLAG_LATE);
    assert_int_equal(value(stack, "logging.late_records"), 0);
    size_t bytes;
    check_ok(top->ops->reap(top, STRATA_REAP_WAIT, &bytes));
    check_ok(strata_stack_destroy(stack));
    check_cu(test_cu()->StreamDestroy(stream));
}

/* An owner below that gives a block back in two parts, and one that reports an unknown block. */
static strata_status free_in_parts(strata_resource *resource, const strata_block *block, CUstream stream)
{
    const strata_block_id made_up = {.slot = 0x7f000007, .generation = 5};
    strata_report_completion_above(resource, &(strata_completion){.id = made_up, .bytes = 77, .last = true});
    strata_report_completion_above(resource, &(strata_completion){.id = block->id, .bytes = 1000});
    strata_report_completion_above(resource,
                                   &(strata_completion){.id = block->id, .bytes = BYTES - 1000, .last = true});
    strata_status status = resource->upstream->ops->deallocate(resource->upstream, block, stream);
    return status;
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static void a_free_that_ends_in_parts_has_a_record_for_each(void **state)
{
    (void)state;
    static const strata_resource_ops ops = {
        .size = sizeof ops, .name = "parts", .deallocate = free_in_parts, .destroy = no_end};
    strata_resource parts = {.ops = &ops}, *layers[] = {NULL, &parts, NULL};
    strata_stack *stack;
    strata_block block;
    check_ok(strata_logging_create(0, &(strata_logging_options){.format = STRATA_LOG_MEMORY}, &layers[0]));
    check_ok(strata_null_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_resource_allocate(layers[0], &(strata_request){.bytes = BYTES}, &block));
    check_ok(strata_resource_deallocate(layers[0], &block, NULL));
    take(stack);
    assert_true(count >= 5 && records[1].kind == STRATA_LOG_DEALLOCATE);
    assert_false(records[1].flags & STRATA_LOG_FLAG_COMPLETE); /* other records say so */
    assert_true(records[2].kind == STRATA_LOG_COMPLETED && records[2].bytes == 77 && records[2].generation == 5);
    assert_true(records[2].slot == 0xffffff && records[2].address == 0 && records[2].requested == 0);
    for (size_t i = 3; i < 5; i++) {
        assert_int_equal(records[i].kind, STRATA_LOG_COMPLETED);
        assert_true(records[i].address == block.address && records[i].requested == BYTES);
        assert_int_equal(records[i].bytes, i == 3 ? 1000 : BYTES - 1000);
        assert_int_equal((records[i].flags & STRATA_LOG_FLAG_LAST) != 0, i == 4);
    }
    check_ok(strata_stack_destroy(stack));
}

/* ---- calls that are not recorded ---- */

static void while_the_switch_is_off_uses_and_trims_pass_through(void **state)
{
    (void)state;
    strata_stack *stack;
    strata_block block;
    size_t bytes;
    check_ok(strata_stack_create("logging(format=memory, enabled=off), async", 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES}, &block));
    check_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_BLOCK_IN_USE); /* it came through */
    check_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(top->ops->record_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(top->ops->reap(top, STRATA_REAP_WAIT, &bytes));
    check_ok(top->ops->trim(top, 0, &bytes));
    take(stack);
    assert_int_equal(count, 0);
    assert_int_equal(value(stack, "logging.records"), 0);
    check_ok(strata_stack_destroy(stack));
}

static void records_are_taken_out_of_the_nearest_log_in_memory(void **state)
{
    (void)state;
    strata_stack *stack;
    check_ok(strata_stack_create("logging(format=null), logging(format=memory), null", 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    make_pairs(stack, 3);
    check_status(strata_logging_take(top, records, ROOM, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_logging_take: count is NULL");
    count = 77;
    check_ok(strata_logging_take(top, NULL, 0, &count)); /* none is wanted */
    assert_int_equal(count, 0);
    check_ok(strata_logging_take(top, records, 4, &count));
    assert_int_equal(count, 4);
    take(stack);
    assert_int_equal(count, 2);
    assert_int_equal(records[1].number, 6);
    check_ok(strata_stack_destroy(stack));
}

/* Numbers of per-thread slots are few. */
static void a_layer_that_gets_no_number_for_its_rings_records_as_others_do(void **state)
{
    (void)state;
    static strata_per_thread taken[STRATA_PER_THREAD_LIMIT];
    strata_stack *stack;
    for (size_t i = 0; i < STRATA_PER_THREAD_LIMIT; i++)
        strata_per_thread_take_number(&taken[i]);
    check_ok(strata_stack_create("logging(format=memory), null", 0, &stack));
    for (size_t i = 0; i < STRATA_PER_THREAD_LIMIT; i++)
        strata_per_thread_destroy(&taken[i]);
    make_pairs(stack, 20);
    take(stack);
    assert_int_equal(count, 40);
    check_pairs(records, count, 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(!!(records[i].flags & STRATA_LOG_FLAG_COMPLETE), i % 2);
    assert_int_equal(value(stack, "logging.records"), 40);
    check_ok(strata_stack_destroy(stack));
}

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    static const struct {
        strata_logging_options options;
        const char *words;
    } wrong[] = {
        {{.existing = 9}, "existing 9"},
        {{.format = STRATA_LOG_MEMORY, .callback = keep}, "callback and format cannot be combined"},
        {{.callback = keep, .existing = STRATA_LOG_EXISTING_REPLACE}, "need format binary or csv"},
        {{.format = STRATA_LOG_NULL, .keep = 3}, "need format binary or csv"},
        {{.format = STRATA_LOG_NULL, .ring = 1u << 21}, "a ring of 2097152 records; expected 64 to 1048576"},
        {{.format = STRATA_LOG_NULL, .mode = 0640}, "need format binary or csv"},
        {{.mode = 04755}, "mode has other bits than permissions"},
        {{.rotate = 4096, .keep = 1001}, "1000 files to keep"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_resource *layer = (strata_resource *)&layer;
        check_status(strata_logging_create(0, &wrong[i].options, &layer), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE,
                         strstr(wrong[i].words, "treatment") ? "existing 9" : wrong[i].words);
        assert_null(layer);
    }
}

/* ---- the writer itself, and children ---- */

static struct {
    strata_resource *top;
    strata_status flushed, taken;
    char message[512];
} from_writer;

static void call_back(const strata_log_record *some, size_t more, void *data)
{
    (void)some, (void)more, (void)data;
    size_t got = 77;
    if (!from_writer.top)
        return;
    from_writer.flushed = strata_logging_flush(from_writer.top);
    snprintf(from_writer.message, sizeof from_writer.message, "%s", strata_last_error()->message);
    from_writer.taken = strata_logging_take(from_writer.top, NULL, 0, &got);
    from_writer.top = NULL;
}

static void a_sink_that_waits_for_its_own_writer_is_refused(void **state)
{
    (void)state;
    strata_resource *layers[2];
    strata_stack *stack;
    check_ok(strata_logging_create(
        0, &(strata_logging_options){.callback = call_back, .interval = UINT64_C(60000000000)}, &layers[0]));
    check_ok(strata_null_create(0, NULL, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    from_writer.top = layers[0];
    make_pairs(stack, 1);
    check_ok(strata_logging_flush(layers[0]));
    assert_null(from_writer.top);
    assert_int_equal(from_writer.flushed, STRATA_ERROR_INVALID_VALUE);
    assert_non_null(strstr(from_writer.message, "the writer cannot wait for itself"));
    assert_int_equal(from_writer.taken, STRATA_ERROR_INVALID_VALUE); /* there is none in memory */
    check_ok(strata_stack_destroy(stack));
}

/* A log in memory holds nothing that a child would share. */
static void a_forked_child_takes_nothing_out_of_its_parents_log(void **state)
{
    int status;
    (void)state;
    strata_stack *stack;
    check_ok(strata_stack_create("logging(format=memory), null", 0, &stack));
    make_pairs(stack, 3);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        size_t got = 77;
        child_status(strata_logging_take(strata_stack_top(stack), records, ROOM, &got), STRATA_ERROR_FORKED);
        child_check(got == 0);
        test_child_leave(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    take(stack);
    assert_int_equal(count, 6);
    check_ok(strata_stack_destroy(stack));
}

/* ---- records unlike others ---- */

static void lines_of_csv_say_what_is_strange_about_a_record(void **state)
{
    (void)state;
    char line[LOG_CSV_ROOM];
    strata_log_record record = {.kind = STRATA_LOG_COMPLETED, .flags = STRATA_LOG_FLAG_LAST | STRATA_LOG_FLAG_LATE};
    line[log_csv_line(&record, "a\x7f\x01z,\"\\", line)] = '\0';
    assert_non_null(strstr(line, ",complete,"));
    assert_non_null(strstr(line, ",EL,,a\\x7f\\x01z\\x2c\\x22\\x5c\n"));
    record = (strata_log_record){.kind = (strata_log_kind)0, .status = STRATA_ERROR_BUSY};
    line[log_csv_line(&record, "", line)] = '\0';
    assert_non_null(strstr(line, ",? failure,"));
    record.kind = STRATA_LOG_KIND_LIMIT;
    line[log_csv_line(&record, "", line)] = '\0';
    assert_non_null(strstr(line, ",? failure,"));
}

/* More than a batch of a file has room for, each with a name of its own. */
static void a_batch_of_long_tags_is_written_in_pieces_and_read_back(void **state)
{
    (void)state;
    enum { PAIRS = 200 };
    char called[256];
    strata_tag tags[PAIRS];
    strata_block block;
    strata_stack *stack = make_stack("run.slog", ", interval=60s, uses=off");
    strata_resource *top = strata_stack_top(stack);
    memset(called, 'n', sizeof called);
    for (int i = 0; i < PAIRS; i++) {
        strata_request request = {.bytes = 100};
        snprintf(called + 240, 16, "%d", i);
        check_ok(strata_tag_intern(called, &tags[i]));
        request.tag = tags[i];
        check_ok(strata_resource_allocate(top, &request, &block));
        check_ok(strata_resource_deallocate(top, &block, NULL));
    }
    check_ok(strata_logging_flush(top));
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog");
    assert_true(log.count >= 2 * PAIRS);
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        assert_int_equal(log.records[i].tag, tags[i / 2]); /* by its name, which is interned anew */
        assert_int_equal(log.records[i].number, i + 1);
    }
    log_contents_free(&log);
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(calls_that_find_the_ring_full_are_made_as_ever_and_counted),
        IN_FOLDER(what_a_call_reports_into_a_full_ring_is_published_as_far_as_there_is_room),
        IN_FOLDER(what_ends_while_another_block_is_freed_stands_behind_that_free),
        IN_FOLDER(a_free_that_ends_in_parts_has_a_record_for_each),
        IN_FOLDER(while_the_switch_is_off_uses_and_trims_pass_through),
        IN_FOLDER(records_are_taken_out_of_the_nearest_log_in_memory),
        IN_FOLDER(a_layer_that_gets_no_number_for_its_rings_records_as_others_do),
        IN_FOLDER(options_that_mean_nothing_are_refused),
        IN_FOLDER(a_sink_that_waits_for_its_own_writer_is_refused),
        IN_FOLDER(a_forked_child_takes_nothing_out_of_its_parents_log),
        IN_FOLDER(lines_of_csv_say_what_is_strange_about_a_record),
        IN_FOLDER(a_batch_of_long_tags_is_written_in_pieces_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
