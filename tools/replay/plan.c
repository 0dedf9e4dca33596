/* Assigning rows. Ids alone decide which blocks are shared, and with which stream: every run is the same. */
#include "tools/replay/plan.h"

#include <stdlib.h>

uint64_t plan_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

static uint64_t choice_of(const replay_plan *of, uint32_t block)
{
    return plan_mix(plan_mix(of->trace->blocks[block].id + 0x51ed270b7a3f5c27u) + block);
}

uint32_t plan_last_stream(const replay_plan *of, uint32_t block)
{
    const trace_block *facts = &of->trace->blocks[block];
    uint32_t own = of->trace->rows[facts->freed ? facts->last_row : facts->alloc_row].stream;
    if (!of->shared[block])
        return own;
    uint32_t allocated_on = of->trace->rows[facts->alloc_row].stream;
    uint32_t step = 1 + (uint32_t)(choice_of(of, block) >> 32) % (of->streams - 1);
    return (allocated_on + step) % of->streams;
}

static void choose_shared(replay_plan *of, unsigned share)
{
    for (uint32_t i = 0; i < of->trace->block_count; i++) {
        of->shared[i] = (uint32_t)choice_of(of, i) % 100 < share;
        of->shared_blocks += of->shared[i];
    }
}

static void choose_streams(replay_plan *of)
{
    for (uint32_t i = 0; i < of->trace->row_count; i++) {
        const trace_row *row = &of->trace->rows[i];
        of->row_streams[i] = row->op == TRACE_FREE ? plan_last_stream(of, row->block) : row->stream;
    }
}

/* Counts each thread's rows, sorts rows by thread. */
static void deal(replay_plan *of)
{
    uint32_t rows = of->trace->row_count;
    for (uint32_t i = 0; i < rows; i++)
        of->thread_starts[plan_thread_of(of, of->row_streams[i]) + 1]++;
    for (uint32_t t = 0; t < of->threads; t++)
        of->thread_starts[t + 1] += of->thread_starts[t];
    for (uint32_t i = 0; i < rows; i++)
        of->thread_rows[of->thread_starts[plan_thread_of(of, of->row_streams[i])]++] = i;
    for (uint32_t t = of->threads; t > 0; t--)
        of->thread_starts[t] = of->thread_starts[t - 1];
    of->thread_starts[0] = 0;
}

bool plan_make(replay_plan *made, const trace *of, uint32_t threads, unsigned share)
{
    *made = (replay_plan){.trace = of, .streams = of->stream_count};
    if (share && made->streams < 2)
        made->streams = 2;
    made->threads = threads < made->streams ? threads : made->streams;
    made->row_streams = calloc(of->row_count, sizeof *made->row_streams);
    made->shared = calloc(of->block_count ? of->block_count : 1, sizeof *made->shared);
    made->thread_rows = calloc(of->row_count, sizeof *made->thread_rows);
    made->thread_starts = calloc(made->threads + 1u, sizeof *made->thread_starts);
    if (!made->row_streams || !made->shared || !made->thread_rows || !made->thread_starts) {
        plan_free(made);
        return false;
    }
    choose_shared(made, share);
    choose_streams(made);
    deal(made);
    return true;
}

void plan_free(replay_plan *made)
{
    free(made->row_streams);
    free(made->shared);
    free(made->thread_rows);
    free(made->thread_starts);
    *made = (replay_plan){0};
}
