/* The parts of a replay that need no device: durations, the gate between threads, the plan, and words for numbers. */
#include "support/replay.h"

#include "tools/replay/gate.h"
#include "tools/replay/histogram.h"
#include "tools/replay/plan.h"
#include "tools/size_words.h"

#include <inttypes.h>
#include <time.h>

/* ---- durations ---- */

static void short_durations_are_exact_and_long_ones_nearly(void **state)
{
    (void)state;
    static const uint64_t durations[] = {0, 1, 999, 16383, 16384, 16385, 99999, 12345678901, UINT64_MAX};
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        histogram *of = calloc(1, sizeof *of);
        assert_non_null(of);
        histogram_add(of, durations[i]);
        uint64_t found = histogram_percentile(of, 50);
        assert_true(found <= durations[i]);
        assert_true(durations[i] - found <= (durations[i] < 16384 ? 0 : durations[i] / 256));
        free(of);
    }
}

static void percentiles_are_ranks_among_the_durations(void **state)
{
    (void)state;
    histogram *all = calloc(1, sizeof *all);
    histogram *half = calloc(1, sizeof *half);
    assert_true(all && half);
    assert_int_equal(histogram_percentile(all, 50), 0);
    for (uint64_t i = 1; i <= 1000; i++)
        histogram_add(i % 2 ? all : half, i);
    histogram_merge(all, half);
    assert_int_equal(all->count, 1000);
    assert_int_equal(histogram_percentile(all, 50), 500);
    assert_int_equal(histogram_percentile(all, 99), 990);
    assert_int_equal(histogram_percentile(all, 100), 1000);
    free(all);
    free(half);
}

/* ---- the gate ---- */

enum { THREADS = 4, ROWS = 20000 };

typedef struct walker {
    replay_gate *gate;
    pthread_t thread;
    uint32_t index;
    uint32_t (*owner_of)(uint32_t row);
    _Atomic uint32_t *done; /* one for each row */
    bool broken;            /* an order or the window was */
} walker;

static uint32_t owner_in_turn(uint32_t row)
{
    return row % THREADS;
}

/* Long stretches of one thread, so that windows are met. */
static uint32_t owner_in_stretches(uint32_t row)
{
    return row / 1000 % THREADS;
}

/* Each row must come after the one before it, on whichever thread. */
static void *walk(void *data)
{
    walker *self = data;
    for (uint32_t row = 0; row < ROWS; row++) {
        if (self->owner_of(row) != self->index)
            continue;
        gate_pass(self->gate, self->index, row);
        if (row > 0 && self->owner_of(row - 1) != self->index)
            gate_wait(self->gate, self->owner_of(row - 1), row - 1);
        if (row > 0 && !atomic_load(&self->done[row - 1]))
            self->broken = true;
        atomic_store(&self->done[row], 1);
    }
    gate_pass(self->gate, self->index, GATE_DONE);
    return NULL;
}

/* Rows that depend on nothing: the window alone holds threads together. */
static void *walk_within_window(void *data)
{
    walker *self = data;
    uint32_t ask_at = 0;
    for (uint32_t row = self->index; row < ROWS; row += THREADS) {
        gate_pass(self->gate, self->index, row);
        if (self->index == 0 && row % 4000 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        if (row >= ask_at)
            ask_at = gate_keep_window(self->gate, self->index, row);
        if (row > gate_slowest(self->gate) + GATE_WINDOW)
            self->broken = true;
    }
    gate_pass(self->gate, self->index, GATE_DONE);
    return NULL;
}

static void assert_all_walk_well(void *(*way)(void *), uint32_t (*owner_of)(uint32_t row))
{
    replay_gate gate;
    walker walkers[THREADS];
    _Atomic uint32_t *done = calloc(ROWS, sizeof *done);
    assert_non_null(done);
    assert_true(gate_open(&gate, THREADS));
    for (uint32_t i = 0; i < THREADS; i++) {
        walkers[i] = (walker){.gate = &gate, .index = i, .owner_of = owner_of, .done = done};
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, way, &walkers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(walkers[i].thread, NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_false(walkers[i].broken);
    assert_int_equal(gate_slowest(&gate), GATE_DONE);
    gate_close(&gate);
    free(done);
}

static void rows_of_other_threads_are_waited_for(void **state)
{
    (void)state;
    assert_all_walk_well(walk, owner_in_turn);
    assert_all_walk_well(walk, owner_in_stretches);
}

static void no_thread_runs_further_ahead_than_the_window(void **state)
{
    (void)state;
    assert_all_walk_well(walk_within_window, owner_in_turn);
}

static void *wait_for_row_9(void *gate)
{
    gate_wait(gate, 0, 9);
    return NULL;
}

static uint64_t cpu_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void a_long_wait_sleeps(void **state)
{
    (void)state;
    replay_gate gate;
    pthread_t thread;
    assert_true(gate_open(&gate, 2));
    uint64_t before = cpu_time_ns();
    assert_int_equal(pthread_create(&thread, NULL, wait_for_row_9, &gate), 0);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    gate_pass(&gate, 0, 10);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(cpu_time_ns() - before < 100000000);
    gate_close(&gate);
}

/* ---- the plan ---- */

static trace read_text(const char *text)
{
    scratch_file file = scratch_write(text);
    trace out;
    trace_problem problem;
    bool read = trace_read(file.path, &out, &problem);
    scratch_remove(&file);
    assert_true(read);
    return out;
}

static void every_row_belongs_to_the_thread_of_its_stream_once_and_in_order(void **state)
{
    (void)state;
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (unsigned i = 0; i < 1000; i++)
        fprintf(text.stream, "alloc,%u,16,%u,0\nfree,%u,16,%u,0\n", i, i % 7, i, i % 7);
    fclose(text.stream);
    trace of = read_text(text.text);
    free(text.text);
    replay_plan plan;
    assert_true(plan_make(&plan, &of, 3, 40));
    assert_int_equal(plan.threads, 3);
    assert_int_equal(plan.streams, 7);
    uint32_t rows = 0, moved = 0;
    for (uint32_t t = 0; t < plan.threads; t++) {
        for (uint32_t i = plan.thread_starts[t]; i < plan.thread_starts[t + 1]; i++, rows++) {
            uint32_t row = plan.thread_rows[i];
            assert_int_equal(plan_thread_of(&plan, plan.row_streams[row]), t);
            assert_true(i == plan.thread_starts[t] || plan.thread_rows[i - 1] < row);
            moved += plan.row_streams[row] != of.rows[row].stream;
        }
    }
    assert_int_equal(rows, of.row_count);
    assert_int_equal(moved, plan.shared_blocks);
    assert_in_range(plan.shared_blocks, 340, 460);
    plan_free(&plan);
    trace_free(&of);
}

static void the_same_blocks_are_shared_in_every_run(void **state)
{
    (void)state;
    trace of = read_text(TRACE_HEADER "alloc,1,1,0,0\nalloc,2,1,1,0\nalloc,3,1,0,0\nalloc,4,1,1,0\nalloc,5,1,0,0\n");
    replay_plan first, second;
    assert_true(plan_make(&first, &of, 1, 50));
    assert_true(plan_make(&second, &of, 2, 50));
    for (uint32_t i = 0; i < of.block_count; i++) {
        assert_int_equal(first.shared[i], second.shared[i]);
        assert_int_equal(plan_last_stream(&first, i), plan_last_stream(&second, i));
    }
    plan_free(&first);
    plan_free(&second);
    trace_free(&of);
}

/* ---- words ---- */

static void numbers_are_written_for_people(void **state)
{
    (void)state;
    assert_string_equal(words_of_bytes(0).text, "0 B");
    assert_string_equal(words_of_bytes(1023).text, "1023 B");
    assert_string_equal(words_of_bytes(1024).text, "1.00 KiB");
    assert_string_equal(words_of_bytes(9174566600).text, "8.54 GiB");
    assert_string_equal(words_of_bytes(UINT64_MAX).text, "16.0 EiB");
    assert_string_equal(words_of_duration(740).text, "740 ns");
    assert_string_equal(words_of_duration(12345).text, "12.3 us");
    assert_string_equal(words_of_duration(1500000).text, "1.50 ms");
    assert_string_equal(words_of_duration(80100000000).text, "80.1 s");
    assert_string_equal(words_of_count(0).text, "0");
    assert_string_equal(words_of_count(999).text, "999");
    assert_string_equal(words_of_count(34427).text, "34,427");
    assert_string_equal(words_of_count(1234567).text, "1,234,567");
    assert_string_equal(words_of_count(UINT64_MAX).text, "18,446,744,073,709,551,615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_durations_are_exact_and_long_ones_nearly),
        cmocka_unit_test(percentiles_are_ranks_among_the_durations),
        cmocka_unit_test(rows_of_other_threads_are_waited_for),
        cmocka_unit_test(no_thread_runs_further_ahead_than_the_window),
        cmocka_unit_test(a_long_wait_sleeps),
        cmocka_unit_test(every_row_belongs_to_the_thread_of_its_stream_once_and_in_order),
        cmocka_unit_test(the_same_blocks_are_shared_in_every_run),
        cmocka_unit_test(numbers_are_written_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
