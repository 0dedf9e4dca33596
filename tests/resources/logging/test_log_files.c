/* Where records go: rings that overflow, one order for all threads, files and their rotation, and what is left of a log
 * when its process ends in one way or another. */
#include "support/child.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/log.h"
#include "support/log_inside.h"
#include "support/rerun.h"

#include "core/base/timestamp.h"
#include "tools/log/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096 };

/* ---- a sink that can be held back ---- */

enum { KEPT = 1 << 17 };

static struct {
    strata_log_record records[KEPT];
    size_t count;
    _Atomic bool hold;
    _Atomic size_t calls;
    sem_t go;
    pthread_t thread;
} kept;

static void keep_records(const strata_log_record *records, size_t count, void *data)
{
    assert_ptr_equal(data, &kept);
    kept.thread = pthread_self();
    kept.calls++;
    if (kept.hold)
        sem_wait(&kept.go);
    for (size_t i = 0; i < count && kept.count < KEPT; i++)
        kept.records[kept.count++] = records[i];
}

/* "logging" with that sink, above an owner, or above null. */
static strata_stack *keeping_stack_over(strata_resource *owner, uint64_t ring)
{
    strata_resource *resources[] = {NULL, owner};
    strata_stack *stack;
    kept.count = 0;
    kept.hold = false;
    assert_int_equal(sem_init(&kept.go, 0, 0), 0);
    strata_logging_options options = {.ring = ring, .callback = keep_records, .callback_data = &kept};
    check_ok(strata_logging_create(0, &options, &resources[0]));
    check_ok(strata_stack_build(resources, 2, 0, &stack));
    return stack;
}

static strata_stack *keeping_stack(uint64_t ring)
{
    strata_resource *owner;
    check_ok(strata_null_create(0, NULL, &owner));
    return keeping_stack_over(owner, ring);
}

static void a_callback_gets_everything_on_a_thread_of_its_own(void **state)
{
    (void)state;
    strata_stack *stack = keeping_stack(0);
    make_pairs(stack, 1000);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    assert_int_equal(kept.count, 2000);
    check_pairs(kept.records, kept.count, 0);
    assert_false(pthread_equal(kept.thread, pthread_self()));
    assert_int_equal(value(stack, "logging.late_records"), 0);
    uint64_t now = (uint64_t)time(NULL);
    assert_in_range(kept.records[0].wall_ns / 1000000000, now - 600, now + 1);
    make_pairs(stack, 10);
    check_ok(strata_stack_destroy(stack));   /* what is recorded is collected at the end */
    assert_in_range(kept.count, 2020, 2024); /* ending a stack reaps */
}

/* Until the writer is held with its next batch. Then the rings have the room back that it took. */
static void wait_for_writer(size_t calls)
{
    while (kept.calls == calls)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void let_go_once(void)
{
    size_t calls = kept.calls;
    sem_post(&kept.go);
    wait_for_writer(calls);
}

/* The writer holds one batch; the ring takes its fill; what comes then is dropped, until there is room again. */
static void a_ring_that_is_full_drops_records_and_their_numbers_say_where(void **state)
{
    (void)state;
    strata_stack *stack = keeping_stack(64);
    size_t calls = kept.calls;
    kept.hold = true;
    uint64_t made = 2;
    make_pairs(stack, 1);
    wait_for_writer(calls);
    for (int round = 0; round < 3; round++, made += 140) {
        make_pairs(stack, 60); /* the ring has 64 lines */
        let_go_once();
        make_pairs(stack, 10);
    }
    kept.hold = false;
    sem_post(&kept.go);
    sem_post(&kept.go);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    make_pairs(stack, 1); /* so that the last gap has an end */
    made += 2;
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    uint64_t dropped = value(stack, "logging.dropped_records"), missing = 0, gaps = 0, last = 0;
    for (size_t i = 0; i < kept.count; i++) {
        assert_true(kept.records[i].number > last);
        missing += kept.records[i].number - last - 1;
        gaps += kept.records[i].number != last + 1;
        last = kept.records[i].number;
    }
    assert_true(dropped >= 120 && gaps >= 3);
    assert_int_equal(missing, dropped);
    assert_int_equal(kept.count + dropped, made);
    assert_int_equal(value(stack, "logging.records"), kept.count);
    check_ok(strata_stack_destroy(stack));
}

/* More threads at once than there are spare rings: each either has a ring, or counts what it drops and begins with a
 * gap. */
enum { CROWD = 24 };

static pthread_barrier_t crowd;

static void *make_some(void *data)
{
    pthread_barrier_wait(&crowd);
    make_pairs(data, 20);
    pthread_barrier_wait(&crowd);
    pthread_barrier_wait(&crowd); /* rings are made */
    make_pairs(data, 20);
    return NULL;
}

static void many_threads_that_begin_at_once_lose_nothing_that_is_not_counted(void **state)
{
    (void)state;
    pthread_t threads[CROWD];
    strata_stack *stack = keeping_stack(0);
    assert_int_equal(pthread_barrier_init(&crowd, NULL, CROWD + 1), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_some, stack), 0);
    pthread_barrier_wait(&crowd);
    pthread_barrier_wait(&crowd);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    pthread_barrier_wait(&crowd);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crowd);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    uint64_t dropped = value(stack, "logging.dropped_records"), missing = 0, ids = 0;
    static uint64_t last[4096];
    memset(last, 0, sizeof last);
    for (size_t i = 0; i < kept.count; i++) {
        uint64_t *of = &last[kept.records[i].thread % 4096];
        ids += *of == 0;
        assert_true(kept.records[i].number > *of);
        missing += kept.records[i].number - *of - 1;
        *of = kept.records[i].number;
    }
    assert_int_equal(ids, CROWD);
    assert_int_equal(missing, dropped);
    /* Without a ring it is unknown that a free completed at once: the owner's report counts as dropped, too.
     */
    assert_in_range(kept.count + dropped, CROWD * 80, CROWD * 100);
    check_ok(strata_stack_destroy(stack));
}

/* ---- one order ---- */

/* Threads pass blocks on in a circle: each is freed by another thread than the one that allocated it, and its slot, by
 * which null makes addresses, goes to whichever thread frees it. */
enum { HANDS = 3, ROUNDS = 1500 };

typedef struct hand {
    strata_resource *top;
    struct hand *next;
    strata_block in;
    sem_t full, empty; /* of `in` */
} hand;

static void *pass_on(void *data)
{
    hand *self = data;
    int rounds = (int)test_effort(ROUNDS, ROUNDS / 10);
    for (int i = 0; i < rounds; i++) {
        strata_block mine, given;
        if (strata_resource_allocate(self->top, &(strata_request){.bytes = BYTES}, &mine) != STRATA_SUCCESS)
            return data;
        sem_wait(&self->next->empty);
        self->next->in = mine;
        sem_post(&self->next->full);
        sem_wait(&self->full);
        given = self->in;
        sem_post(&self->empty);
        if (strata_resource_deallocate(self->top, &given, NULL) != STRATA_SUCCESS)
            return data;
    }
    return NULL;
}

static void the_records_of_threads_that_pass_blocks_on_are_in_one_order(void **state)
{
    (void)state;
    static hand hands[HANDS];
    pthread_t threads[HANDS];
    strata_stack *stack = keeping_stack(16384);
    memset(hands, 0, sizeof hands);
    for (int i = 0; i < HANDS; i++) {
        hands[i].top = strata_stack_top(stack);
        hands[i].next = &hands[(i + 1) % HANDS];
        assert_int_equal(sem_init(&hands[i].full, 0, 0) + sem_init(&hands[i].empty, 0, 1), 0);
    }
    for (int i = 0; i < HANDS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pass_on, &hands[i]), 0);
    bool failed = false;
    for (int i = 0; i < HANDS; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        failed |= answer != NULL;
    }
    for (int i = 0; i < HANDS; i++)
        sem_destroy(&hands[i].full), sem_destroy(&hands[i].empty);
    assert_false(failed);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    assert_int_equal(kept.count, 2 * HANDS * test_effort(ROUNDS, ROUNDS / 10));
    if (!test_under_valgrind())
        assert_in_range(value(stack, "logging.late_records"), 0, kept.count / 8); /* of threads that lost their core */
    assert_true(log_sort(kept.records, kept.count));
    static uint64_t live[4096];
    memset(live, 0, sizeof live);
    size_t handed_over = 0;
    static uint64_t maker[4096];
    for (size_t i = 0; i < kept.count; i++) {
        const strata_log_record *record = &kept.records[i];
        assert_in_range(record->slot, 1, 4095);
        if (record->kind == STRATA_LOG_ALLOCATE) {
            assert_int_equal(live[record->slot], 0);
            live[record->slot] = record->generation;
            maker[record->slot] = record->thread;
        } else {
            assert_int_equal(live[record->slot], record->generation);
            live[record->slot] = 0;
            handed_over += maker[record->slot] != record->thread;
        }
    }
    assert_int_equal(handed_over, kept.count / 2);
    check_ok(strata_stack_destroy(stack));
}

/* A driver that hands memory out again as soon as it has it: direct on the simulated one does. */
static void *allocate_and_free(void *data)
{
    strata_block block;
    test_make_current();
    for (size_t i = 0; i < test_effort(1000, 50); i++)
        if (strata_resource_allocate(data, &(strata_request){.bytes = BYTES}, &block) != STRATA_SUCCESS ||
            strata_resource_deallocate(data, &block, NULL) != STRATA_SUCCESS)
            return data;
    return NULL;
}

static size_t place_of(const uint64_t *addresses, size_t *used, uint64_t address)
{
    for (size_t i = 0; i < *used; i++)
        if (addresses[i] == address)
            return i;
    return (*used)++;
}

/* Lives of each address come one after another. Returns how often one went from thread to thread. */
static size_t check_lives(const strata_log_record *records, size_t count)
{
    enum { PLACES = 64 };
    uint64_t addresses[PLACES], owner[PLACES] = {0};
    bool live[PLACES] = {false};
    size_t used = 0, passed_on = 0;
    for (size_t i = 0; i < count; i++) {
        size_t place = place_of(addresses, &used, records[i].address);
        assert_in_range(place, 0, PLACES - 1);
        addresses[place] = records[i].address;
        assert_int_equal(live[place], records[i].kind == STRATA_LOG_DEALLOCATE);
        live[place] = !live[place];
        passed_on += live[place] && owner[place] && owner[place] != records[i].thread;
        owner[place] = records[i].thread;
    }
    return passed_on;
}

static void run_threads(void *(*run)(void *data), strata_resource *top)
{
    pthread_t threads[HANDS];
    bool failed = false;
    for (int i = 0; i < HANDS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, top), 0);
    for (int i = 0; i < HANDS; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        failed |= answer != NULL;
    }
    assert_false(failed);
}

static void a_free_stands_before_the_allocation_that_got_its_memory_in_another_thread(void **state)
{
    (void)state;
    strata_resource *direct;
    size_t passed_on = 0;
    check_ok(strata_direct_create(0, NULL, &direct));
    strata_stack *stack = keeping_stack_over(direct, 16384);
    for (int round = 0; round < 50 && !passed_on; round++) { /* threads may run one after another */
        run_threads(allocate_and_free, strata_stack_top(stack));
        check_ok(strata_logging_flush(strata_stack_top(stack)));
        assert_int_equal(value(stack, "logging.dropped_records"), 0);
        assert_true(log_sort(kept.records, kept.count));
        passed_on = check_lives(kept.records, kept.count);
        kept.count = 0;
    }
    check_ok(strata_stack_destroy(stack));
    if (test_on_simulated_driver() && !test_under_valgrind())
        assert_true(passed_on > 0);
}

/* A free that waits for its stream for long: it was stamped before. */
typedef struct slow_free {
    strata_resource *top;
    strata_block block;
    CUstream stream;
    strata_status status;
} slow_free;

static void *free_slow(void *data)
{
    slow_free *self = data;
    test_make_current();
    self->status = strata_resource_deallocate(self->top, &self->block, self->stream);
    return NULL;
}

static void a_record_that_comes_late_is_marked_counted_and_put_in_its_place_by_its_time(void **state)
{
    (void)state;
    pthread_t thread;
    strata_resource *direct;
    check_ok(strata_direct_create(0, NULL, &direct));
    strata_stack *stack = keeping_stack_over(direct, 0);
    slow_free slow = {.top = strata_stack_top(stack)};
    check_cu(test_cu()->StreamCreate(&slow.stream, CU_STREAM_NON_BLOCKING));
    strata_request request = {.bytes = BYTES, .stream = slow.stream};
    check_ok(strata_resource_allocate(slow.top, &request, &slow.block));
    check_ok(strata_logging_flush(slow.top));
    test_stall *stall = test_stall_begin(slow.stream);
    test_calls calls;
    test_calls_begin(&calls);
    assert_int_equal(pthread_create(&thread, NULL, free_slow, &slow), 0);
    for (int i = 0; i < 1000 && !test_calls_of(&calls, "cuStreamSynchronize"); i++) /* until it waits */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    check_status(strata_resource_deallocate(slow.top, &(strata_block){.address = 1}, NULL),
                 STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_logging_flush(slow.top));
    size_t early = kept.count;
    test_stall_release(stall);
    pthread_join(thread, NULL);
    test_stall_end(stall);
    check_ok(slow.status);
    check_ok(strata_logging_flush(slow.top));
    assert_int_equal(early, 2);
    assert_int_equal(kept.count, 3);
    assert_int_equal(kept.records[2].kind, STRATA_LOG_DEALLOCATE);
    assert_true(kept.records[2].flags & STRATA_LOG_FLAG_LATE);
    assert_false(kept.records[1].flags & STRATA_LOG_FLAG_LATE);
    assert_int_equal(value(stack, "logging.late_records"), 1);
    assert_true(log_sort(kept.records, kept.count));
    assert_int_equal(kept.records[1].status, STRATA_SUCCESS);
    assert_int_equal(kept.records[2].status, STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_stack_destroy(stack));
    check_cu(test_cu()->StreamDestroy(slow.stream));
}

static void without_a_counter_that_can_be_trusted_stamps_are_the_clocks(void **state)
{
    (void)state;
    bool is_counter = strata_timestamp_is_counter;
    strata_timestamp_is_counter = false;
    uint64_t before = strata_timestamp_clock();
    strata_stack *stack = keeping_stack(0);
    make_pairs(stack, 100);
    check_ok(strata_stack_destroy(stack));
    strata_timestamp_is_counter = is_counter;
    assert_in_range(kept.count, 200, 204);
    check_pairs(kept.records, 200, 0);
    for (size_t i = 0; i < 200; i++) {
        assert_in_range(kept.records[i].monotonic_ns, before, strata_timestamp_clock());
        assert_true(i == 0 || kept.records[i].monotonic_ns >= kept.records[i - 1].monotonic_ns);
    }
}

/* ---- files ---- */

static void a_binary_file_has_all_records_the_stack_and_the_tags(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", "");
    strata_resource *top = strata_stack_top(stack);
    strata_request request = {.bytes = 77, .alignment = 4096};
    strata_block block;
    check_ok(strata_tag_intern("gradients", &request.tag));
    make_pairs(stack, 2000);
    check_ok(strata_resource_allocate(top, &request, &block));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_logging_flush(top));
    assert_int_equal(value(stack, "logging.written_bytes"), size_of("run.slog"));
    char text[512];
    strcpy(text, strata_stack_text(stack));
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog");
    assert_in_range(log.count, 4002, 4010); /* ending a stack reaps */
    check_pairs(log.records, 4000, 0);
    assert_int_equal(log.records[4000].tag, request.tag);
    assert_int_equal(log.records[4001].tag, request.tag);
    assert_int_equal(log.records[4000].alignment, 4096);
    assert_true(log.records[4001].flags & STRATA_LOG_FLAG_COMPLETE);
    assert_string_equal(log.stack, text);
    assert_true(log.process == (uint32_t)getpid() && log.device == 0 && log.torn == 0 && log.dropped == 0);
    assert_true((size_t)size_of("run.slog") < 24 * log.count + 600); /* compact */
    log_contents_free(&log);
}

static void a_csv_file_has_the_columns_of_rmm_first(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.csv", "");
    strata_request request = {.bytes = 77};
    strata_block block;
    check_ok(strata_tag_intern("a,b\n\"c\\", &request.tag));
    check_ok(strata_resource_allocate(strata_stack_top(stack), &request, &block));
    check_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    char line[LOG_CSV_ROOM], begin[96], pointer[32];
    FILE *file = fopen(in_folder("run.csv").text, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(strncmp(line, "Thread,Time,Action,Pointer,Size,Stream,", 39), 0);
    assert_non_null(fgets(line, sizeof line, file));
    snprintf(begin, sizeof begin, "%d,", (int)gettid());
    snprintf(pointer, sizeof pointer, ",allocate,0x%llx,77,0x0,", (unsigned long long)block.address);
    assert_int_equal(strncmp(line, begin, strlen(begin)), 0);
    assert_non_null(strstr(line, pointer));
    assert_non_null(strstr(line, ",a\\x2cb\\x0a\\x22c\\x5c\n"));
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, ",free,"));
    assert_non_null(strstr(line, ",STRATA_SUCCESS,C,"));
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    check_ok(strata_stack_destroy(stack));
}

static void names_of_files_have_the_process_the_device_and_a_number(void **state)
{
    (void)state;
    char expected[64];
    strata_stack *stack = make_stack("a%p-%d%%.slog", ""), *two[2];
    snprintf(expected, sizeof expected, "a%d-0%%.slog", (int)getpid());
    assert_true(exists(expected));
    check_ok(strata_stack_destroy(stack));
    two[0] = make_stack("%n.slog", ""); /* the same text for both */
    two[1] = make_stack("%n.slog", "");
    check_ok(strata_stack_destroy(two[0]));
    check_ok(strata_stack_destroy(two[1]));
}

static void a_file_that_is_there_is_kept_unless_something_else_is_said(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ""), *other = (strata_stack *)&other;
    make_pairs(stack, 3);
    check_status(try_stack("run.slog", ", existing=replace", &other), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "another log is writing");
    assert_null(other);
    check_ok(strata_stack_destroy(stack));
    off_t size = size_of("run.slog");
    check_status(try_stack("run.slog", "", &other), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "existing=rotate");
    assert_int_equal(size_of("run.slog"), size);
    check_ok(strata_stack_destroy(make_stack("run.slog", ", rotate=1MiB")));
    assert_int_equal(size_of("run.slog.1"), size);
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=rotate")));
    assert_int_equal(size_of("run.slog.2"), size);
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=replace")));
    assert_false(exists("run.slog.3"));
    log_contents log = read_log("run.slog");
    log_contents_free(&log);
}

static void full_files_are_renamed_and_the_oldest_removed(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, keep=2, uses=off");
    uint64_t next = 0;
    for (int i = 0; i < 60; i++) { /* each collection writes at most so much, and then looks */
        make_pairs(stack, 50);
        check_ok(strata_logging_flush(strata_stack_top(stack)));
    }
    check_ok(strata_stack_destroy(stack));
    assert_true(exists("run.slog") && exists("run.slog.1") && exists("run.slog.2") && !exists("run.slog.3"));
    assert_in_range(size_of("run.slog.1"), 4096, 4096 + 4000);
    static const char *const files[] = {"run.slog.2", "run.slog.1", "run.slog"};
    for (size_t i = 0; i < 3; i++) {
        log_contents log = read_log(files[i]);
        assert_true(log.count > 0 && strncmp(log.stack, "logging(", 8) == 0);
        for (size_t j = 0; j < log.count; j++) {
            assert_true(next == 0 ||
                        log.records[j].number == next); /* each file stands by itself, and none is missing */
            next = log.records[j].number + 1;
        }
        log_contents_free(&log);
    }
    assert_true(next > 6000);
}

static void a_log_with_a_relative_path_stays_in_the_folder_that_it_began_in(void **state)
{
    (void)state;
    char before[512], elsewhere[] = "/tmp/strata-elsewhere-XXXXXX";
    strata_stack *stack;
    assert_non_null(mkdtemp(elsewhere));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    strata_status status = strata_stack_create("logging(file=run.slog, rotate=64KiB, uses=off), null", 0, &stack);
    assert_int_equal(chdir(elsewhere), 0);
    for (int i = 0; i < 120 && status == STRATA_SUCCESS; i++) {
        make_pairs(stack, 50);
        check_ok(strata_logging_flush(strata_stack_top(stack)));
    }
    assert_int_equal(chdir(before), 0);
    check_ok(status);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(rmdir(elsewhere), 0); /* empty */
    assert_true(exists("run.slog") && exists("run.slog.1") && !exists("run.slog.new"));
    assert_in_range(size_of("run.slog.1"), 64 << 10, 72 << 10);
}

static void a_disk_that_is_full_drops_records_and_says_why(void **state)
{
    (void)state;
    strata_stack *stack;
    char text[] = "logging(file=/dev/full), null";
    check_status(strata_stack_create(text, 0, &stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "/dev/full: No space left on device");
    check_status(strata_stack_create("logging(file=\"/\"), null", 0, &stack), STRATA_ERROR_IO);
}

/* ---- in processes of their own ---- */

static strata_stack *child_stack(const char *more)
{
    char text[512];
    strata_stack *stack;
    snprintf(text, sizeof text, "logging(file=\"%s\"%s), null", getenv("STRATA_TEST_LOG"), more);
    child_ok(strata_stack_create(text, 0, &stack));
    return stack;
}

static void child_pairs(strata_stack *stack, int pairs)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    for (int i = 0; i < pairs; i++) {
        child_ok(strata_resource_allocate(top, &(strata_request){.bytes = (size_t)i + 1}, &block));
        child_ok(strata_resource_deallocate(top, &block, NULL));
    }
}

/* In the middle of logging: the writer may be in the middle of a write. */
static void killed(void)
{
    int after = atoi(getenv("STRATA_TEST_AFTER"));
    strata_stack *stack = child_stack(", interval=100us, ring=1024");
    child_pairs(stack, 400);
    child_ok(strata_logging_flush(strata_stack_top(stack)));
    child_pairs(stack, after);
    kill(getpid(), SIGKILL);
}

static void run_killed(int after)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", after);
        setenv("STRATA_TEST_LOG", in_folder("killed.slog").text, 1);
        setenv("STRATA_TEST_AFTER", text, 1);
        test_rerun_program((char *const[]){"test", "--child", "killed", NULL});
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_killed_process_leaves_everything_that_was_collected(void **state)
{
    (void)state;
    static const int after[] = {0, 700, 20011};
    for (size_t i = 0; i < test_effort(3, 1); i++) {
        run_killed(after[i]);
        log_contents log = read_log("killed.slog");
        assert_in_range(log.count, 800, 800 + 2 * after[i]);
        check_pairs(log.records, 800, 0);
        log_contents_free(&log);
        unlink(in_folder("killed.slog").text);
    }
}

/* The runtime of a device is never ended. */
static void exits(void)
{
    strata_runtime *runtime;
    strata_block block;
    char text[512];
    snprintf(text, sizeof text, "logging(file=\"%s\", interval=1s), null", getenv("STRATA_TEST_LOG"));
    setenv("STRATA_STACK", text, 1);
    child_ok(strata_runtime_get(0, &runtime));
    for (size_t i = 0; i < 500; i++) {
        child_ok(strata_runtime_allocate(runtime, i + 1, NULL, &block));
        child_ok(strata_runtime_deallocate(runtime, &block));
    }
}

static void allocate_at_exit(void)
{
    strata_runtime *runtime;
    strata_block block;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_allocate(runtime, 501, NULL, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
}

static void exits_late(void)
{
    exits();
    atexit(allocate_at_exit);
}

static void a_process_that_exits_loses_nothing(void **state)
{
    (void)state;
    static const char *const scenarios[] = {"exits", "exits_late"};
    for (size_t i = 0; i < 2; i++) {
        char log_name[PATH_ROOM + 32];
        snprintf(log_name, sizeof log_name, "STRATA_TEST_LOG=%s", in_folder("exits.slog").text);
        test_child_run(scenarios[i], (const char *const[]){log_name, NULL});
        log_contents log = read_log("exits.slog");
        assert_int_equal(log.count, 1000 + 2 * i);
        check_pairs(log.records, log.count, 0);
        assert_int_equal(log.torn, 0);
        log_contents_free(&log);
        unlink(in_folder("exits.slog").text);
    }
}

static strata_resource *flushed_late; /* NULL: in no scenario but the one below */

static void *flush_late(void *data)
{
    (void)data;
    child_ok(strata_logging_flush(flushed_late));
    return NULL;
}

/* Runs behind the library's destructor, which has ended the writer. The thread gets the stack of that, and so its
 * pthread_t. */
static __attribute__((destructor(101))) void begin_a_thread_late(void)
{
    pthread_t thread;
    if (!flushed_late)
        return;
    const log_writer *writer = writer_inside(flushed_late);
    child_check(!writer->started);
    child_check(pthread_create(&thread, NULL, flush_late, NULL) == 0);
    const bool same = pthread_equal(thread, writer->thread);
    child_check(pthread_join(thread, NULL) == 0);
    test_child_leave(same ? 0 : 77);
}

static void flushes_late(void)
{
    strata_resource *layers[2];
    strata_stack *stack;
    child_ok(strata_logging_create(0, &(strata_logging_options){.callback = keep_records, .callback_data = &kept},
                                   &layers[0]));
    child_ok(strata_null_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    flushed_late = layers[0];
}

static void a_thread_of_the_exit_is_not_taken_for_a_writer_that_has_ended(void **state)
{
    (void)state;
    test_child_run("flushes_late", NULL);
}

static void forks(void)
{
    struct stat before, after;
    strata_stack *stack = child_stack(", interval=60s");
    child_pairs(stack, 1);
    child_ok(strata_logging_flush(strata_stack_top(stack)));
    child_pairs(stack, 99);
    child_check(stat(getenv("STRATA_TEST_LOG"), &before) == 0);
    time_t began = time(NULL);
    pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        child_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_FORKED);
        exit(0);
    }
    int status;
    child_check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child_check(time(NULL) - began < (time_t)test_timeout(4)); /* nor waits for a thread that it does not have */
    child_check(stat(getenv("STRATA_TEST_LOG"), &after) == 0 && after.st_size == before.st_size);
    child_pairs(stack, 100);
    child_ok(strata_stack_destroy(stack));
}

static void a_forked_child_touches_no_file(void **state)
{
    (void)state;
    char log_name[PATH_ROOM + 32];
    snprintf(log_name, sizeof log_name, "STRATA_TEST_LOG=%s", in_folder("forks.slog").text);
    test_child_run("forks", (const char *const[]){log_name, NULL});
    log_contents log = read_log("forks.slog");
    assert_in_range(log.count, 400, 404);
    log_contents_free(&log);
}

/* A file may grow no further for a while. What was dropped then leaves a gap, and no damage. */
static void meets_a_limit(void)
{
    struct rlimit limit = {.rlim_cur = 6000, .rlim_max = RLIM_INFINITY};
    strata_stack *stack = child_stack(", interval=1s");
    strata_resource *top = strata_stack_top(stack);
    uint64_t dropped, error;
    signal(SIGXFSZ, SIG_IGN);
    child_pairs(stack, 50);
    child_ok(strata_logging_flush(top));
    child_check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    child_pairs(stack, 400);
    child_status(strata_logging_flush(top), STRATA_ERROR_IO);
    child_check_words("File too large");
    child_ok(strata_control(stack, "logging.dropped_records", &dropped, NULL));
    child_ok(strata_control(stack, "logging.write_error", &error, NULL));
    child_check(dropped == 800 && error == EFBIG);
    limit.rlim_cur = RLIM_INFINITY;
    child_check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    child_pairs(stack, 50);
    child_ok(strata_logging_flush(top));
    child_ok(strata_stack_destroy(stack));
}

static void what_a_full_disk_refused_is_a_gap_in_a_whole_file(void **state)
{
    (void)state;
    char log_name[PATH_ROOM + 32];
    snprintf(log_name, sizeof log_name, "STRATA_TEST_LOG=%s", in_folder("limit.slog").text);
    test_child_run("meets_a_limit", (const char *const[]){log_name, NULL});
    log_contents log = read_log("limit.slog");
    assert_in_range(log.count, 200, 204);
    assert_int_equal(log.torn, 0);
    assert_int_equal(log.dropped, 800);
    check_pairs(log.records, 100, 0);
    assert_int_equal(log.records[100].number, 901);
    log_contents_free(&log);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(killed), TEST_SCENARIO(exits),         TEST_SCENARIO(exits_late),
        TEST_SCENARIO(forks),  TEST_SCENARIO(meets_a_limit), TEST_SCENARIO(flushes_late),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_gets_everything_on_a_thread_of_its_own),
        cmocka_unit_test(a_ring_that_is_full_drops_records_and_their_numbers_say_where),
        cmocka_unit_test(many_threads_that_begin_at_once_lose_nothing_that_is_not_counted),
        cmocka_unit_test(the_records_of_threads_that_pass_blocks_on_are_in_one_order),
        cmocka_unit_test(a_free_stands_before_the_allocation_that_got_its_memory_in_another_thread),
        cmocka_unit_test(a_record_that_comes_late_is_marked_counted_and_put_in_its_place_by_its_time),
        cmocka_unit_test(without_a_counter_that_can_be_trusted_stamps_are_the_clocks),
        cmocka_unit_test_setup_teardown(a_binary_file_has_all_records_the_stack_and_the_tags, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_csv_file_has_the_columns_of_rmm_first, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(names_of_files_have_the_process_the_device_and_a_number, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_there_is_kept_unless_something_else_is_said, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(full_files_are_renamed_and_the_oldest_removed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_log_with_a_relative_path_stays_in_the_folder_that_it_began_in, make_folder,
                                        remove_folder),
        cmocka_unit_test(a_disk_that_is_full_drops_records_and_says_why),
        cmocka_unit_test_setup_teardown(a_killed_process_leaves_everything_that_was_collected, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_process_that_exits_loses_nothing, make_folder, remove_folder),
        cmocka_unit_test(a_thread_of_the_exit_is_not_taken_for_a_writer_that_has_ended),
        cmocka_unit_test_setup_teardown(a_forked_child_touches_no_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_a_full_disk_refused_is_a_gap_in_a_whole_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
