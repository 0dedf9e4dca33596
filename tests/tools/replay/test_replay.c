/* Replays on a sound stack: every figure of the report is what the trace says it must be. */
#include "support/replay.h"

#include "driver/driver.h"
#include "tools/replay/replay_engine.h"

#include <strata/strata.h>

#include <inttypes.h>

/* A trace of `steps` rows on `streams` streams: blocks of up to 64 KiB come and go at random. */
static scratch_file random_trace(uint32_t steps, uint32_t streams, bool with_uses)
{
    enum { LIVE_LIMIT = 64 };
    struct {
        uint32_t id, bytes, stream;
    } live[LIVE_LIMIT];
    uint32_t count = 0, next_id = 0;
    uint64_t seed = 7;
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t dice = next_random(&seed) % 10;
        if (count == 0 || (dice < 5 && count < LIVE_LIMIT)) {
            live[count].id = next_id++;
            live[count].bytes = next_random(&seed) % 65536;
            live[count].stream = next_random(&seed) % streams;
            fprintf(text.stream, "alloc,%u,%u,%u,%u\n", live[count].id, live[count].bytes, live[count].stream, i);
            count++;
        } else if (with_uses && dice > 7) {
            uint32_t which = next_random(&seed) % count;
            uint32_t stream = next_random(&seed) % streams;
            fprintf(text.stream, "use,%u,%u,%u,%u\n", live[which].id, live[which].bytes, stream, i);
            if (stream != live[which].stream && dice == 9)
                fprintf(text.stream, "wait,%u,0,%u,%u\n", stream, live[which].stream, i);
            else if (dice == 9)
                fprintf(text.stream, "sync,0,0,%u,%u\n", stream, i);
        } else {
            uint32_t which = next_random(&seed) % count;
            fprintf(text.stream, "free,%u,%u,%u,%u\n", live[which].id, live[which].bytes, live[which].stream, i);
            live[which] = live[--count];
        }
    }
    return text_end_as_file(&text);
}

static trace read_and_remove(scratch_file file)
{
    trace out;
    trace_problem problem = {.text = ""};
    bool read = trace_read(file.path, &out, &problem);
    scratch_remove(&file);
    if (!read)
        print_error("%s\n", problem.text);
    assert_true(read);
    return out;
}

/* Replays on a private runtime that must end with nothing left; the result is the caller's to free. */
static replay_result *replay(const char *stack, const trace *of, size_t count, replay_options options)
{
    replay_result *result = malloc(sizeof *result);
    replay_failure problem = {""};
    strata_runtime *runtime;
    strata_runtime_config config = {.stack_text = stack, .stream_capacity = replay_streams_needed(of, count, &options)};
    assert_non_null(result);
    assert_int_equal(strata_runtime_create(&config, &runtime), STRATA_SUCCESS);
    bool ran = replay_run(runtime, of, count, &options, result, &problem);
    if (!ran)
        print_error("%s\n", problem.text);
    for (uint32_t i = 0; ran && i < result->failed_count; i++)
        print_message("%s\n", result->failed[i].text);
    assert_true(ran);
    assert_int_equal(strata_runtime_destroy(runtime), STRATA_SUCCESS);
    return result;
}

static uint64_t rows_of_kind(const trace *of, trace_op op)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < of->row_count; i++)
        count += of->rows[i].op == op;
    return count;
}

static void assert_totals(const trace *of, const replay_result *result, uint64_t passes)
{
    assert_int_equal(result->operations, of->row_count * passes);
    assert_int_equal(result->allocations, rows_of_kind(of, TRACE_ALLOC) * passes);
    assert_int_equal(result->frees, rows_of_kind(of, TRACE_FREE) * passes);
    assert_int_equal(result->uses, rows_of_kind(of, TRACE_USE) * passes);
    assert_int_equal(result->waits, rows_of_kind(of, TRACE_WAIT) * passes);
    assert_int_equal(result->syncs, rows_of_kind(of, TRACE_SYNC) * passes);
    assert_int_equal(result->left_by_trace, of->live_at_end * passes);
    assert_int_equal(result->failures, 0);
    assert_int_equal(result->skipped, 0);
    assert_int_equal(result->corrupted_blocks, 0);
    assert_int_equal(result->leaked_blocks, 0);
    assert_int_equal(result->leaked_bytes, 0);
    assert_int_equal(result->allocate_ns.count, result->allocations);
    assert_int_equal(result->deallocate_ns.count, result->frees);
    assert_int_equal(result->operation_ns.count, result->allocations + result->frees);
    assert_true(replay_is_clean(result));
}

static void the_totals_are_those_of_the_trace(void **state)
{
    trace of = read_and_remove(random_trace(2000, 3, true));
    const char *stack = *state;
    replay_result *result = replay(stack, &of, 1, (replay_options){.touch = true});
    assert_totals(&of, result, 1);
    assert_int_equal(result->peak_live_bytes, of.peak_live_bytes);
    assert_true(result->peak_reserved_bytes >= of.peak_live_bytes);
    assert_int_equal(result->streams, 3);
    assert_true(rows_of_kind(&of, TRACE_USE) > 100 && rows_of_kind(&of, TRACE_WAIT) > 20);
    assert_true(rows_of_kind(&of, TRACE_SYNC) > 20);
    free(result);
    trace_free(&of);
}

static uint64_t bytes_allocated(const trace *of)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < of->block_count; i++)
        sum += of->blocks[i].bytes;
    return sum;
}

static void touching_writes_and_reads_every_byte(void **state)
{
    trace of = read_and_remove(random_trace(1000, 2, false));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true});
    assert_int_equal(result->touched_bytes, 2 * bytes_allocated(&of));
    free(result);
    result = replay(*state, &of, 1, (replay_options){0});
    assert_int_equal(result->touched_bytes, 0);
    free(result);
    trace_free(&of);
}

static void sharing_and_threads_change_no_total(void **state)
{
    trace of = read_and_remove(random_trace(2000, 5, true));
    static const struct {
        uint32_t threads;
        unsigned share;
        uint32_t threads_used;
    } ways[] = {{1, 30, 1}, {2, 0, 2}, {3, 30, 3}, {8, 100, 5}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        replay_result *result =
            replay(*state, &of, 1, (replay_options){.touch = true, .threads = ways[i].threads, .share = ways[i].share});
        assert_totals(&of, result, 1);
        assert_int_equal(result->threads, ways[i].threads_used);
        if (ways[i].share == 0)
            assert_int_equal(result->shared_blocks, 0);
        else if (ways[i].share == 100)
            assert_int_equal(result->shared_blocks, of.block_count);
        else
            assert_in_range(result->shared_blocks, of.block_count / 5, of.block_count * 2 / 5);
        free(result);
    }
    trace_free(&of);
}

static void a_shared_block_of_a_trace_with_one_stream_gets_a_second_stream(void **state)
{
    trace of = read_and_remove(random_trace(500, 1, false));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true, .share = 50, .threads = 4});
    assert_totals(&of, result, 1);
    assert_int_equal(result->streams, 2);
    assert_int_equal(result->threads, 2);
    free(result);
    trace_free(&of);
}

/* Each pass has a thread of its own: what the last one left is no peak of the next. Over null no size is rounded. */
static void with_one_thread_the_peak_of_statistics_is_what_was_live(void **state)
{
    (void)state;
    trace of = read_and_remove(random_trace(2000, 3, false));
    replay_failure problem = {""};
    replay_result result;
    strata_runtime *runtime;
    uint64_t peak;
    const replay_options options = {.repeat = 5, .threads = 1};
    const strata_runtime_config config = {.stack_text = "statistics, null",
                                          .stream_capacity = replay_streams_needed(&of, 1, &options)};
    assert_int_equal(strata_runtime_create(&config, &runtime), STRATA_SUCCESS);
    assert_true(replay_run(runtime, &of, 1, &options, &result, &problem));
    assert_int_equal(strata_control(strata_runtime_stack(runtime), "statistics.bytes.peak", &peak, NULL),
                     STRATA_SUCCESS);
    assert_int_equal(strata_runtime_destroy(runtime), STRATA_SUCCESS);
    assert_int_equal(result.peak_live_bytes, of.peak_live_bytes);
    assert_int_equal(peak, of.peak_live_bytes);
    trace_free(&of);
}

static void several_traces_and_passes_add_up(void **state)
{
    trace of[2] = {read_and_remove(random_trace(300, 2, false)), read_and_remove(random_trace(700, 4, false))};
    replay_result *result = replay(*state, of, 2, (replay_options){.repeat = 3, .touch = true, .share = 20});
    assert_int_equal(result->operations, 3 * (of[0].row_count + of[1].row_count));
    assert_int_equal(result->left_by_trace, 3 * (of[0].live_at_end + of[1].live_at_end));
    assert_int_equal(result->streams, 4);
    uint64_t higher = of[0].peak_live_bytes > of[1].peak_live_bytes ? of[0].peak_live_bytes : of[1].peak_live_bytes;
    assert_int_equal(result->peak_live_bytes, higher);
    assert_true(replay_is_clean(result));
    free(result);
    trace_free(&of[0]);
    trace_free(&of[1]);
}

static void blocks_that_the_trace_never_frees_are_freed_and_no_leak(void **state)
{
    trace of = read_and_remove(scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nalloc,1,0,0,1\nalloc,2,5000,1,2\n"));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true});
    assert_totals(&of, result, 1);
    assert_int_equal(result->left_by_trace, 3);
    assert_int_equal(result->touched_bytes, 2 * 6000);
    free(result);
    trace_free(&of);
}

static void an_allocation_that_fails_is_counted_and_its_rows_are_skipped(void **state)
{
    trace of = read_and_remove(scratch_write(TRACE_HEADER "alloc,0,1000,0,0\n"
                                                          "alloc,1,1125899906842624,0,1\n"
                                                          "use,1,1125899906842624,1,2\n"
                                                          "free,1,1125899906842624,0,3\n"
                                                          "free,0,1000,0,4\n"));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true});
    assert_int_equal(result->failures, 1);
    assert_int_equal(result->skipped, 2);
    assert_int_equal(result->operations, of.row_count - 2);
    assert_int_equal(result->operations,
                     result->allocations + result->frees + result->uses + result->waits + result->syncs);
    assert_int_equal(result->leaked_blocks, 0);
    assert_int_equal(result->peak_live_bytes, 1000);
    assert_false(replay_is_clean(result));
    assert_int_equal(result->failed_count, 1);
    assert_non_null(strstr(result->failed[0].text, ":3: allocate of id 1"));
    assert_non_null(strstr(result->failed[0].text, "STRATA_ERROR_OUT_OF_MEMORY"));
    free(result);
    trace_free(&of);
}

static void a_block_written_on_another_stream_is_checked_with_what_was_written_last(void **state)
{
    trace of = read_and_remove(scratch_write("op,id,bytes,stream,time_us,access\n"
                                             "alloc,0,100001,0,0,\n"
                                             "use,0,100001,1,0,write\n"
                                             "use,0,100001,2,0,read\n"
                                             "use,0,100001,0,0,read_write\n"
                                             "use,0,100001,2,0,read\n"
                                             "free,0,100001,0,0,\n"));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true, .threads = 3});
    assert_totals(&of, result, 1);
    assert_int_equal(result->touched_bytes, 7 * 100001);
    assert_int_equal(result->use_ns.count, 4);
    free(result);
    trace_free(&of);
}

static void a_free_on_another_stream_than_the_allocation_is_made_there(void **state)
{
    trace of = read_and_remove(scratch_write(TRACE_HEADER "alloc,0,4000,0,0\nfree,0,4000,1,0\n"
                                                          "alloc,1,4000,0,0\nfree,1,4000,0,0\n"));
    replay_result *result = replay(*state, &of, 1, (replay_options){.touch = true});
    assert_totals(&of, result, 1);
    free(result);
    trace_free(&of);
}

static void pace_keeps_the_recorded_times(void **state)
{
    trace of = read_and_remove(scratch_write(TRACE_HEADER "alloc,0,4000,0,1000000\n"
                                                          "alloc,1,4000,1,1040000\n"
                                                          "free,0,4000,0,1080000\n"));
    replay_result *result = replay(*state, &of, 1, (replay_options){.pace = true, .threads = 2});
    assert_totals(&of, result, 1);
    assert_true(result->wall_ns >= 80000000);
    free(result);
    trace_free(&of);
}

static void many_threads_keep_the_order_of_ids(void **state)
{
    enum { STREAMS = 16, HOPS = 3000 };
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (uint32_t i = 0; i < HOPS; i++)
        fprintf(text.stream, "alloc,%u,256,%u,0\nuse,%u,256,%u,0\nfree,%u,256,%u,0\n", i, i % STREAMS, i,
                (i * 7 + 3) % STREAMS, i, (i * 5 + 1) % STREAMS);
    trace of = read_and_remove(text_end_as_file(&text));
    replay_result *result = replay(*state, &of, 1, (replay_options){.threads = STREAMS, .touch = true});
    assert_totals(&of, result, 1);
    assert_int_equal(result->threads, STREAMS);
    free(result);
    trace_free(&of);
}

static uint64_t calls_of(const replay_result *result, const char *name)
{
    for (uint32_t i = 0; i < result->driver_calls.used; i++)
        if (strcmp(result->driver_calls.calls[i].name, name) == 0)
            return result->driver_calls.calls[i].count;
    return 0;
}

static void driver_calls_are_those_of_the_passes(void **state)
{
    const char *stack = *state;
    const bool pool = strcmp(stack, "pool") == 0; /* which asks the driver for memory once, however often it is used */
    const char *allocate = strcmp(stack, "direct") == 0 ? "cuMemAlloc" : "cuMemAllocFromPoolAsync";
    trace of = read_and_remove(scratch_write(TRACE_HEADER "alloc,0,4000,0,0\nalloc,1,1,0,0\nfree,0,4000,0,0\n"));
    replay_result *result = replay(stack, &of, 1, (replay_options){.touch = true, .repeat = 2});
    assert_int_equal(calls_of(result, pool ? "cuMemCreate" : allocate), pool ? 1 : 4);
    assert_int_equal(calls_of(result, "cuLaunchKernel"), 8);
    assert_int_equal(calls_of(result, "cuModuleLoadData"), 0);
    free(result);
    trace_free(&of);
}

static struct {
    CUresult(CUDAAPI *synchronize)(CUstream);
    CUstream streams[16];
    size_t count;
    bool refuse;
} waits;

static CUresult CUDAAPI note_wait(CUstream stream)
{
    if (waits.count < sizeof waits.streams / sizeof waits.streams[0])
        waits.streams[waits.count] = stream;
    const bool refused = waits.refuse && waits.count == 1;
    waits.count++;
    return refused ? CUDA_ERROR_LAUNCH_FAILED : waits.synchronize(stream);
}

static void the_host_waits_for_the_streams_that_the_trace_says(void **state)
{
    trace of = read_and_remove(scratch_write(TRACE_HEADER "sync,0,0,5,0\nsync,0,0,6,1\nsync,0,0,5,2\n"));
    for (int refused = 0; refused < 2; refused++) {
        waits.count = 0;
        waits.refuse = refused;
        waits.synchronize = strata_cu.StreamSynchronize;
        strata_cu.StreamSynchronize = note_wait;
        replay_result *result = replay(*state, &of, 1, (replay_options){0});
        strata_cu.StreamSynchronize = waits.synchronize;
        assert_true(waits.count >= 3 && waits.streams[0] == waits.streams[2] && waits.streams[0] != waits.streams[1]);
        assert_int_equal(result->syncs, 3);
        assert_int_equal(result->failures, refused);
        assert_true(!refused || strstr(result->failed[0].text, ":3: stream_synchronize: STRATA_ERROR_DRIVER"));
        free(result);
    }
    trace_free(&of);
}

static int count_calls(void **state)
{
    (void)state;
    return strata_driver_count_calls() == STRATA_SUCCESS ? 0 : -1;
}

int main(void)
{
#define ON(stack, test)                                \
    {                                                  \
#test " on " stack, test, NULL, NULL, (char[]) \
        {                                              \
            stack                                      \
        }                                              \
    }
#define TESTS(stack)                                                                               \
    ON(stack, the_totals_are_those_of_the_trace), ON(stack, touching_writes_and_reads_every_byte), \
        ON(stack, sharing_and_threads_change_no_total),                                            \
        ON(stack, a_shared_block_of_a_trace_with_one_stream_gets_a_second_stream),                 \
        ON(stack, several_traces_and_passes_add_up),                                               \
        ON(stack, blocks_that_the_trace_never_frees_are_freed_and_no_leak),                        \
        ON(stack, an_allocation_that_fails_is_counted_and_its_rows_are_skipped),                   \
        ON(stack, a_block_written_on_another_stream_is_checked_with_what_was_written_last),        \
        ON(stack, a_free_on_another_stream_than_the_allocation_is_made_there),                     \
        ON(stack, pace_keeps_the_recorded_times), ON(stack, many_threads_keep_the_order_of_ids),   \
        ON(stack, driver_calls_are_those_of_the_passes), ON(stack, the_host_waits_for_the_streams_that_the_trace_says)
    const struct CMUnitTest tests[] = {TESTS("async"), TESTS("direct"), TESTS("pool"),
                                       cmocka_unit_test(with_one_thread_the_peak_of_statistics_is_what_was_live)};
    return cmocka_run_group_tests(tests, count_calls, NULL);
}
