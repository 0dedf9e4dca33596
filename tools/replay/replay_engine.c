/* Replaying traces: passes, threads, merging results. */
#include "tools/replay/replay_engine.h"

#include "driver/driver.h"
#include "tools/progress.h"
#include "tools/replay/replay_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct replay {
    strata_runtime *runtime;
    strata_device *device;
    const replay_options *options;
    const trace *traces;
    size_t trace_count;
    replay_plan *plans; /* one a trace */
    CUstream *streams;
    uint32_t streams_acquired;
    replay_worker *workers;
    uint32_t worker_count;
    replay_block *blocks; /* of the trace with the most blocks */
    pattern_check check;
    bool kernels; /* any kernel is needed */
    footprint footprint;
    progress progress;
    uint64_t rows_done, rows_total;
    size_t live_blocks_before;
    replay_result *result;
} replay;

uint32_t replay_streams_needed(const trace *traces, size_t count, const replay_options *options)
{
    uint32_t most = options->share ? 2 : 1;
    for (size_t i = 0; i < count; i++)
        if (traces[i].stream_count > most)
            most = traces[i].stream_count;
    return most;
}

bool replay_is_clean(const replay_result *result)
{
    return result->failures == 0 && result->corrupted_blocks == 0 && result->leaked_blocks == 0 &&
           result->leaked_bytes == 0;
}

/* ---- merging results ---- */

static void add_result(replay_result *to, const replay_result *from)
{
    to->operations += from->operations;
    to->allocations += from->allocations;
    to->frees += from->frees;
    to->uses += from->uses;
    to->waits += from->waits;
    to->syncs += from->syncs;
    to->failures += from->failures;
    to->skipped += from->skipped;
    to->touched_bytes += from->touched_bytes;
    histogram_merge(&to->allocate_ns, &from->allocate_ns);
    histogram_merge(&to->deallocate_ns, &from->deallocate_ns);
    histogram_merge(&to->use_ns, &from->use_ns);
    for (uint32_t i = 0; i < from->failed_count && to->failed_count < REPLAY_FINDINGS; i++)
        to->failed[to->failed_count++] = from->failed[i];
}

static void note_corruption(replay *of, const replay_plan *plan, uint32_t pass, uint32_t number)
{
    const strata_pattern_result *found = &of->check.host[number];
    const trace_block *block = &plan->trace->blocks[number];
    of->result->corrupted_blocks++;
    if (of->result->corrupted_count == REPLAY_FINDINGS)
        return;
    of->result->corrupted[of->result->corrupted_count++] = (replay_corruption){
        .trace = plan->trace->path,
        .id = block->id,
        .line = plan->trace->rows[block->alloc_row].line,
        .pass = pass,
        .bytes = block->bytes,
        .wrong = found->wrong,
        .first = found->first,
    };
}

static void read_checks(replay *of, const replay_plan *plan, uint32_t pass)
{
    CUresult result = pattern_check_read(&of->check);
    if (result != CUDA_SUCCESS) {
        replay_note_driver(of->result, "reading the results of the checks", result);
        return;
    }
    for (uint32_t i = 0; i < plan->trace->block_count; i++)
        if (of->check.host[i].wrong)
            note_corruption(of, plan, pass, i);
    result = pattern_check_reset(&of->check);
    if (result != CUDA_SUCCESS)
        replay_note_driver(of->result, "resetting the results of the checks", result);
}

/* ---- one pass ---- */

static void watch(replay *of, const replay_plan *plan, const replay_gate *gate)
{
    uint32_t slowest = gate_slowest(gate);
    uint32_t rows = plan->trace->row_count;
    progress_show(&of->progress, of->rows_done + (slowest < rows ? slowest : rows), of->rows_total, plan->trace->path);
}

static void join(replay *of, const replay_plan *plan, const replay_gate *gate, pthread_t thread)
{
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_timedjoin_np(thread, NULL, &until) != ETIMEDOUT)
            return;
        watch(of, plan, gate);
    }
}

/* Rows of a thread that cannot be started are skipped, and counted as failures. */
static void run_workers(replay *of, replay_pass *pass)
{
    uint32_t started = 0;
    for (; started < pass->plan->threads; started++) {
        replay_worker *worker = &of->workers[started];
        worker->pass = pass;
        if (pthread_create(&worker->thread, NULL, replay_worker_run, worker) != 0)
            break;
    }
    for (uint32_t i = started; i < pass->plan->threads; i++) {
        replay_note_driver(of->result, "starting a thread", CUDA_ERROR_OPERATING_SYSTEM);
        gate_pass(pass->gate, i, GATE_DONE);
    }
    for (uint32_t i = 0; i < started; i++)
        join(of, pass->plan, pass->gate, of->workers[i].thread);
}

static void synchronize(replay *of)
{
    for (uint32_t i = 0; i < of->streams_acquired; i++) {
        CUresult result = strata_cu.StreamSynchronize(of->streams[i]);
        if (result != CUDA_SUCCESS) {
            replay_note_driver(of->result, "waiting for a stream at the end of a pass", result);
            return;
        }
    }
}

static void finish_pass(replay *of, replay_pass *pass)
{
    of->workers[0].pass = pass;
    for (uint32_t i = 0; i < pass->plan->trace->block_count; i++)
        replay_worker_free_leftover(&of->workers[0], i);
    synchronize(of);
}

static bool run_pass(replay *of, const replay_plan *plan, uint32_t number)
{
    replay_gate gate = {0};
    if (!gate_open(&gate, plan->threads))
        return false;
    memset(of->blocks, 0, plan->trace->block_count * sizeof *of->blocks);
    call_counts before, after;
    call_counts_now(&before);
    replay_pass pass = {
        .runtime = of->runtime,
        .device = of->device,
        .options = of->options,
        .plan = plan,
        .streams = of->streams,
        .check = of->kernels ? &of->check : NULL,
        .footprint = &of->footprint,
        .gate = &gate,
        .blocks = of->blocks,
        .number = number,
        .start_ns = replay_now_ns(),
    };
    run_workers(of, &pass);
    finish_pass(of, &pass);
    of->result->wall_ns += replay_now_ns() - pass.start_ns;
    call_counts_now(&after);
    call_counts_add_between(&of->result->driver_calls, &before, &after);
    if (of->options->touch)
        read_checks(of, plan, number);
    of->rows_done += plan->trace->row_count;
    of->result->shared_blocks += plan->shared_blocks;
    of->result->recorded_failures += plan->trace->recorded_failures;
    of->result->recorded_strays += plan->trace->recorded_strays;
    of->result->recorded_dropped += plan->trace->recorded_dropped;
    of->result->recorded_torn += plan->trace->recorded_torn;
    of->result->recorded_unfreed += plan->trace->recorded_unfreed;
    of->result->recorded_cut += plan->trace->recorded_cut;
    of->result->left_by_trace += plan->trace->live_at_end;
    gate_close(&gate);
    return true;
}

static bool run_passes(replay *of, replay_failure *problem)
{
    uint32_t repeat = of->options->repeat ? of->options->repeat : 1;
    for (uint32_t pass = 0; pass < repeat; pass++) {
        for (size_t i = 0; i < of->trace_count; i++) {
            if (!run_pass(of, &of->plans[i], pass)) {
                snprintf(problem->text, sizeof problem->text, "out of host memory for the threads of a pass");
                return false;
            }
        }
    }
    return true;
}

/* ---- before and after ---- */

static bool say_status(replay_failure *problem, const char *what, strata_status status)
{
    snprintf(problem->text, sizeof problem->text, "%s: %s: %s", what, strata_status_name(status),
             strata_last_error()->message);
    return false;
}

static bool say_driver(replay_failure *problem, const char *what, CUresult code)
{
    snprintf(problem->text, sizeof problem->text, "%s: %s", what, strata_driver_error_name(code));
    return false;
}

static bool uses_blocks(const replay *of)
{
    if (of->options->touch || of->options->busy || of->options->share)
        return true;
    for (size_t t = 0; t < of->trace_count; t++)
        for (uint32_t i = 0; i < of->traces[t].row_count; i++)
            if (of->traces[t].rows[i].op == TRACE_USE)
                return true;
    return false;
}

static bool make_plans(replay *of, replay_failure *problem)
{
    uint32_t most_blocks = 1;
    of->plans = calloc(of->trace_count, sizeof *of->plans);
    uint32_t threads = of->options->threads ? of->options->threads : 1;
    for (size_t i = 0; i < of->trace_count; i++) {
        if (!of->plans || !plan_make(&of->plans[i], &of->traces[i], threads, of->options->share))
            goto no_memory;
        if (of->plans[i].threads > of->worker_count)
            of->worker_count = of->plans[i].threads;
        if (of->traces[i].block_count > most_blocks)
            most_blocks = of->traces[i].block_count;
        of->rows_total += (uint64_t)of->traces[i].row_count * (of->options->repeat ? of->options->repeat : 1);
    }
    of->blocks = calloc(most_blocks, sizeof *of->blocks);
    of->workers = calloc(of->worker_count, sizeof *of->workers);
    if (!of->blocks || !of->workers)
        goto no_memory;
    of->kernels = uses_blocks(of);
    if (of->kernels && !strata_runtime_supports_block_use_tracking(of->runtime)) {
        snprintf(
            problem->text, sizeof problem->text,
            "the stack does not support use tracking, which --touch, --busy, --share and the uses of the trace need");
        return false;
    }
    CUresult result = of->kernels ? pattern_check_open(&of->check, most_blocks) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS || say_driver(problem, "loading the kernels that use blocks", result);
no_memory:
    snprintf(problem->text, sizeof problem->text, "out of host memory for the replay");
    return false;
}

static bool make_streams(replay *of, replay_failure *problem)
{
    uint32_t wanted = replay_streams_needed(of->traces, of->trace_count, of->options);
    of->streams = calloc(wanted, sizeof(CUstream));
    if (!of->streams) {
        snprintf(problem->text, sizeof problem->text, "out of host memory for the replay");
        return false;
    }
    for (; of->streams_acquired < wanted; of->streams_acquired++) {
        CUstream *stream = &of->streams[of->streams_acquired];
        *stream = CU_STREAM_LEGACY;
        const bool is_default = of->options->default_stream && of->streams_acquired == 0;
        strata_status status = is_default ? STRATA_SUCCESS : strata_runtime_stream_acquire(of->runtime, stream);
        if (status != STRATA_SUCCESS)
            return say_status(problem, "taking a stream for the trace", status);
    }
    for (uint32_t i = 0; i < of->worker_count; i++) {
        of->workers[i].index = i;
        CUresult result = strata_cu.EventCreate(&of->workers[i].event, CU_EVENT_DISABLE_TIMING);
        if (result != CUDA_SUCCESS)
            return say_driver(problem, "making an event", result);
    }
    return true;
}

/* Counts what the stack has left after every block was freed. */
static void count_leftovers(replay *of)
{
    strata_status status = strata_runtime_reap_pending(of->runtime);
    if (status != STRATA_SUCCESS)
        replay_note_status(of->result, "waiting for pending frees", status);
    strata_usage usage;
    status = strata_runtime_usage(of->runtime, &usage);
    if (status != STRATA_SUCCESS) {
        replay_note_status(of->result, "reading what is left over", status);
        return;
    }
    if (usage.live_blocks > of->live_blocks_before)
        of->result->leaked_blocks = usage.live_blocks - of->live_blocks_before;
    of->result->leaked_bytes = usage.bytes_outstanding;
}

static void collect(replay *of)
{
    replay_result *result = of->result;
    for (uint32_t i = 0; i < of->worker_count; i++)
        add_result(result, &of->workers[i].result);
    histogram_merge(&result->operation_ns, &result->allocate_ns);
    histogram_merge(&result->operation_ns, &result->deallocate_ns);
    count_leftovers(of);
    result->streams = of->streams_acquired;
    result->threads = of->worker_count;
    result->peak_live_bytes = atomic_load(&of->footprint.peak_bytes);
    result->peak_reserved_bytes = footprint_peak_reserved(&of->footprint);
}

static void release(replay *of)
{
    for (uint32_t i = 0; i < of->worker_count && of->workers; i++)
        if (of->workers[i].event)
            strata_cu.EventDestroy(of->workers[i].event);
    for (uint32_t i = of->options->default_stream; i < of->streams_acquired; i++)
        strata_runtime_stream_release(of->runtime, of->streams[i]);
    pattern_check_close(&of->check);
    for (size_t i = 0; i < of->trace_count && of->plans; i++)
        plan_free(&of->plans[i]);
    free(of->plans);
    free(of->blocks);
    free(of->workers);
    free(of->streams);
}

bool replay_run(strata_runtime *runtime, const trace *traces, size_t count, const replay_options *options,
                replay_result *result, replay_failure *problem)
{
    *result = (replay_result){0};
    replay of = {.runtime = runtime, .options = options, .traces = traces, .trace_count = count, .result = result};
    strata_usage usage;
    strata_call_scope scope;
    strata_status status = strata_runtime_usage(runtime, &usage);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(strata_runtime_device(runtime), &of.device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, of.device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return say_status(problem, "the device", status);
    of.live_blocks_before = usage.live_blocks;
    bool done = make_plans(&of, problem) && make_streams(&of, problem);
    if (done) {
        footprint_open(&of.footprint, runtime);
        progress_open(&of.progress, options->progress);
        done = run_passes(&of, problem);
        progress_close(&of.progress);
        collect(&of);
        footprint_close(&of.footprint);
    }
    release(&of);
    strata_call_scope_leave(&scope);
    return done;
}
