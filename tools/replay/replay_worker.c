/* A replay's thread: does its rows, times each call. */
#include "tools/replay/replay_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* Covered by a use if contents do not matter. */
enum { LOOK_BYTES = 256 };

uint64_t replay_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- failures ---- */

static char *next_failure(replay_result *result)
{
    result->failures++;
    return result->failed_count < REPLAY_FINDINGS ? result->failed[result->failed_count++].text : NULL;
}

void replay_note_status(replay_result *result, const char *what, strata_status status)
{
    char *text = next_failure(result);
    if (text)
        snprintf(text, sizeof result->failed->text, "%s: %s: %s", what, strata_status_name(status),
                 strata_last_error()->message);
}

void replay_note_driver(replay_result *result, const char *what, CUresult code)
{
    char *text = next_failure(result);
    if (text)
        snprintf(text, sizeof result->failed->text, "%s: %s", what, strata_driver_error_name(code));
}

typedef struct row_text {
    char text[256];
} row_text;

static row_text describe(const replay_worker *worker, uint32_t row, const char *doing)
{
    row_text out;
    const trace *of = worker->pass->plan->trace;
    const trace_row *at = &of->rows[row];
    if (at->op == TRACE_WAIT || at->op == TRACE_SYNC) {
        snprintf(out.text, sizeof out.text, "%.120s:%" PRIu32 ": %s", of->path, at->line, doing);
        return out;
    }
    const trace_block *block = &of->blocks[at->block];
    snprintf(out.text, sizeof out.text, "%.120s:%" PRIu32 ": %s of id %" PRIu64 ", %" PRIu64 " bytes", of->path,
             at->line, doing, block->id, block->bytes);
    return out;
}

static void fail(replay_worker *worker, uint32_t row, const char *doing, strata_status status)
{
    replay_note_status(&worker->result, describe(worker, row, doing).text, status);
}

static void fail_driver(replay_worker *worker, uint32_t row, const char *doing, CUresult code)
{
    replay_note_driver(&worker->result, describe(worker, row, doing).text, code);
}

/* ---- uses ---- */

typedef enum purpose {
    PURPOSE_PATTERN, /* the replay's own, not timed */
    PURPOSE_USE,     /* of the trace or of --share */
} purpose;

static uint64_t seed_of(const replay_worker *worker, uint32_t block, uint32_t writes)
{
    return pattern_check_seed(worker->pass->plan->trace->blocks[block].id, block, worker->pass->number, writes);
}

/* With --touch over the whole block: reads are checked, writes make a new pattern; otherwise over its first bytes. */
static CUresult submit(replay_worker *worker, uint32_t number, CUstream stream, strata_access access)
{
    const replay_pass *pass = worker->pass;
    replay_block *block = &pass->blocks[number];
    bool whole = pass->options->touch;
    size_t bytes = block->block.requested;
    if (!whole && bytes > LOOK_BYTES)
        bytes = LOOK_BYTES;
    if (access & STRATA_ACCESS_READ) {
        CUdeviceptr found = whole ? pattern_check_result_of(pass->check, number) : pattern_check_nowhere(pass->check);
        CUresult result = strata_kernel_pattern_check(block->block.address, bytes,
                                                      seed_of(worker, number, block->writes), found, stream);
        if (result != CUDA_SUCCESS)
            return result;
        worker->result.touched_bytes += bytes;
    }
    if (access & STRATA_ACCESS_WRITE) {
        CUresult result =
            strata_kernel_pattern_fill(block->block.address, bytes, seed_of(worker, number, block->writes + 1), stream);
        if (result != CUDA_SUCCESS)
            return result;
        block->writes++;
        worker->result.touched_bytes += bytes;
    }
    return CUDA_SUCCESS;
}

static void use_block(replay_worker *worker, uint32_t row, uint32_t number, CUstream stream, strata_access access,
                      purpose why)
{
    const replay_pass *pass = worker->pass;
    const strata_block *block = &pass->blocks[number].block;
    if (block->requested == 0)
        return;
    uint64_t start = replay_now_ns();
    strata_status status = strata_runtime_prepare_block_use(pass->runtime, block, stream, access);
    uint64_t prepared = replay_now_ns();
    if (status != STRATA_SUCCESS) {
        fail(worker, row, "prepare_block_use", status);
        return;
    }
    CUresult result = submit(worker, number, stream, access);
    uint64_t submitted = replay_now_ns();
    status = strata_runtime_finish_block_use(pass->runtime, block, stream,
                                             result == CUDA_SUCCESS ? access : STRATA_ACCESS_NONE);
    if (why == PURPOSE_USE)
        histogram_add(&worker->result.use_ns, prepared - start + (replay_now_ns() - submitted));
    if (result != CUDA_SUCCESS)
        fail_driver(worker, row, "a kernel's launch on the block", result);
    if (status != STRATA_SUCCESS)
        fail(worker, row, "finish_block_use", status);
}

/* ---- rows ---- */

static void allocate(replay_worker *worker, uint32_t row, uint32_t number, CUstream stream)
{
    const replay_pass *pass = worker->pass;
    replay_block *block = &pass->blocks[number];
    uint64_t bytes = pass->plan->trace->blocks[number].bytes;
    worker->result.allocations++;
    uint64_t start = replay_now_ns();
    strata_status status = strata_runtime_allocate(pass->runtime, bytes, stream, &block->block);
    histogram_add(&worker->result.allocate_ns, replay_now_ns() - start);
    if (status != STRATA_SUCCESS) {
        fail(worker, row, "allocate", status);
        return;
    }
    block->state = REPLAY_BLOCK_LIVE;
    footprint_grow(pass->footprint, bytes);
    if (pass->options->touch || pass->options->busy)
        use_block(worker, row, number, stream, STRATA_ACCESS_WRITE, PURPOSE_PATTERN);
}

static strata_status deallocate(const replay_pass *pass, const strata_block *block, CUstream stream, uint64_t *out_ns)
{
    bool own = stream == block->stream;
    uint64_t start = replay_now_ns();
    strata_status status = own ? strata_runtime_deallocate(pass->runtime, block)
                               : strata_runtime_deallocate_on(pass->runtime, block, stream);
    *out_ns = replay_now_ns() - start;
    return status;
}

static uint64_t free_block(replay_worker *worker, uint32_t row, uint32_t number, CUstream stream)
{
    const replay_pass *pass = worker->pass;
    replay_block *block = &pass->blocks[number];
    bool shared = pass->plan->shared[number];
    if (shared || pass->options->touch)
        use_block(worker, row, number, stream, STRATA_ACCESS_READ, shared ? PURPOSE_USE : PURPOSE_PATTERN);
    footprint_shrink(pass->footprint, block->block.requested);
    uint64_t spent_ns;
    strata_status status = deallocate(pass, &block->block, stream, &spent_ns);
    block->state = REPLAY_BLOCK_GONE;
    if (status != STRATA_SUCCESS)
        fail(worker, row, "deallocate", status);
    return spent_ns;
}

static void wait_for_stream(replay_worker *worker, uint32_t row, CUstream producer, CUstream stream)
{
    worker->result.waits++;
    CUresult result = strata_cu.EventRecord(worker->event, producer);
    if (result == CUDA_SUCCESS)
        result = strata_cu.StreamWaitEvent(stream, worker->event, 0);
    if (result != CUDA_SUCCESS)
        fail_driver(worker, row, "a wait between two streams", result);
}

static void synchronize(replay_worker *worker, uint32_t row, CUstream stream)
{
    worker->result.syncs++;
    const strata_status status = strata_runtime_stream_synchronize(worker->pass->runtime, stream);
    if (status != STRATA_SUCCESS)
        fail(worker, row, "stream_synchronize", status);
}

static void do_row(replay_worker *worker, uint32_t number)
{
    const replay_pass *pass = worker->pass;
    const trace_row *row = &pass->plan->trace->rows[number];
    CUstream stream = pass->streams[pass->plan->row_streams[number]];
    bool names_block = row->op == TRACE_FREE || row->op == TRACE_USE;
    if (names_block && pass->blocks[row->block].state != REPLAY_BLOCK_LIVE) {
        worker->result.skipped++;
        return;
    }
    worker->result.operations++;
    switch (row->op) {
    case TRACE_ALLOC:
        allocate(worker, number, row->block, stream);
        break;
    case TRACE_FREE:
        worker->result.frees++;
        histogram_add(&worker->result.deallocate_ns, free_block(worker, number, row->block, stream));
        break;
    case TRACE_USE:
        worker->result.uses++;
        use_block(worker, number, row->block, stream, row->access, PURPOSE_USE);
        break;
    case TRACE_WAIT:
        wait_for_stream(worker, number, pass->streams[row->producer], stream);
        break;
    case TRACE_SYNC:
        synchronize(worker, number, stream);
        break;
    }
}

/* ---- order and time ---- */

static void wait_for_others(replay_worker *worker, uint32_t number)
{
    const replay_plan *of = worker->pass->plan;
    replay_gate *at = worker->pass->gate;
    const trace_row *row = &of->trace->rows[number];
    if (row->op == TRACE_WAIT) {
        uint32_t thread = plan_thread_of(of, row->producer);
        if (thread != worker->index && number > 0)
            gate_wait(at, thread, number - 1);
    } else if (row->previous != TRACE_NONE) {
        uint32_t thread = plan_thread_of(of, of->row_streams[row->previous]);
        if (thread != worker->index)
            gate_wait(at, thread, row->previous);
    }
    if (number >= worker->ask_window_at)
        worker->ask_window_at = gate_keep_window(at, worker->index, number);
}

static void wait_for_time(const replay_pass *pass, uint32_t number)
{
    uint64_t due = pass->start_ns + pass->plan->trace->rows[number].time_us * 1000;
    struct timespec at = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

static void do_rows(replay_worker *worker)
{
    const replay_pass *pass = worker->pass;
    const replay_plan *of = pass->plan;
    const uint32_t *next = of->thread_rows + of->thread_starts[worker->index];
    const uint32_t *end = of->thread_rows + of->thread_starts[worker->index + 1];
    worker->ask_window_at = 0;
    for (; next < end; next++) {
        gate_pass(pass->gate, worker->index, *next);
        if (pass->options->pace)
            wait_for_time(pass, *next);
        if (of->threads > 1)
            wait_for_others(worker, *next);
        do_row(worker, *next);
    }
}

void *replay_worker_run(void *data)
{
    replay_worker *worker = data;
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, worker->pass->device, STRATA_CALL_SCOPE_CONTEXT);
    if (status == STRATA_SUCCESS) {
        do_rows(worker);
        strata_call_scope_leave(&scope);
    } else {
        replay_note_status(&worker->result, "making the device's context current", status);
    }
    gate_pass(worker->pass->gate, worker->index, GATE_DONE);
    return NULL;
}

void replay_worker_free_leftover(replay_worker *worker, uint32_t block)
{
    const replay_plan *of = worker->pass->plan;
    if (worker->pass->blocks[block].state != REPLAY_BLOCK_LIVE)
        return;
    CUstream stream = worker->pass->streams[plan_last_stream(of, block)];
    free_block(worker, of->trace->blocks[block].last_row, block, stream);
}
