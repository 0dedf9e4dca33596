/* Steps of captures, and launches of their graphs. */
#include "fuzz/graphs.h"

#include "driver/kernels/kernels.h"
#include "fuzz/captures.h"
#include "fuzz/operations.h"

enum { STEPS = 32 /* the bits of model_stream.behind */, GRAPHS = 4 };

/* A fill of the first part of `to`, or a copy between the first parts of two blocks. */
typedef struct graph_step {
    bool copies;
    strata_block_id to, from;
    size_t bytes;
    uint64_t seed; /* of a fill */
} graph_step;

typedef struct graph_plan {
    uint64_t origin; /* number of the stream that began the capture; 0: none */
    graph_step steps[STEPS];
    size_t count;
} graph_plan;

typedef struct graph_use {
    model_block *block;
    strata_access access;
} graph_use;

/* All blocks of a launch. */
typedef struct graph_uses {
    graph_use at[2 * STEPS];
    size_t count;
} graph_uses;

static struct {
    CUgraphExec exec;
    graph_plan plan;
} graphs[GRAPHS];
static size_t graph_count;

static graph_plan captured[STREAMS]; /* captures in progress */

static PFN_cuGraphInstantiateWithFlags_v11040 instantiate;
static PFN_cuGraphDestroy_v10000 graph_destroy;
static PFN_cuGraphExecDestroy_v10000 exec_destroy;
static PFN_cuGraphLaunch_v10000 graph_launch;

void graphs_open(void)
{
    fuzz_find("cuGraphInstantiateWithFlags", &instantiate);
    fuzz_find("cuGraphDestroy", &graph_destroy);
    fuzz_find("cuGraphExecDestroy", &exec_destroy);
    fuzz_find("cuGraphLaunch", &graph_launch);
}

/* ---- capturing ---- */

/* With 0, a free one. */
static graph_plan *plan_of(uint64_t origin)
{
    for (size_t i = 0; i < STREAMS; i++)
        if (captured[i].origin == origin)
            return &captured[i];
    fail_msg("there is no such capture");
    return NULL;
}

void graphs_begin(const model_stream *origin)
{
    *plan_of(0) = (graph_plan){.origin = origin->number};
}

static bool same(strata_block_id a, strata_block_id b)
{
    return a.table == b.table && a.slot == b.slot && a.generation == b.generation;
}

static bool conflict(const graph_step *one, const graph_step *other)
{
    return same(one->to, other->to) || (one->copies && same(one->from, other->to)) ||
           (other->copies && same(other->from, one->to));
}

/* Whether the stream's next work comes after all that the step would race with. */
static bool in_order(const graph_plan *plan, const model_stream *stream, const graph_step *step)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!(stream->behind >> i & 1) && conflict(&plan->steps[i], step))
            return false;
    return true;
}

static size_t front(size_t bytes)
{
    return bytes <= WHOLE ? bytes : EDGE;
}

void graphs_capture(model_stream *stream)
{
    const model_block *to = model_pick_block();
    unsigned how = fuzz_byte(&model.input);
    const model_block *from = how & 1 ? model_pick_block() : NULL;
    graph_plan *plan = plan_of(stream->origin);
    if (!to || from == to || plan->count == STEPS)
        return;
    graph_step step = {.to = to->block.id, .bytes = front(to->block.bytes)};
    if (from) {
        step.copies = true;
        step.from = from->block.id;
        step.bytes = step.bytes < from->block.bytes ? step.bytes : from->block.bytes;
    }
    if (!in_order(plan, stream, &step))
        return;
    if (from) {
        check_cu(strata_cu.MemcpyDtoDAsync(to->block.address, from->block.address, step.bytes, stream->handle));
    } else {
        step.seed = model_next_seed();
        check_cu(strata_kernel_pattern_fill(to->block.address, step.bytes, step.seed, stream->handle));
    }
    fuzz_tell("  step %zu on stream %llu: %s slot %u", plan->count, (unsigned long long)stream->number,
              from ? "copies to" : "fills", to->block.id.slot);
    stream->behind |= UINT32_C(1) << plan->count;
    plan->steps[plan->count++] = step;
}

void graphs_end_capture(const model_stream *origin, CUgraph graph)
{
    graph_plan *plan = plan_of(origin->number);
    CUstreamCaptureMode mode = captures_relax();
    if (graph && plan->count && graph_count < GRAPHS) {
        check_cu(instantiate(&graphs[graph_count].exec, graph, 0));
        graphs[graph_count++].plan = *plan;
        fuzz_tell("  which becomes a graph of %zu steps", plan->count);
    }
    if (graph)
        check_cu(graph_destroy(graph));
    captures_restore(mode);
    plan->origin = 0;
}

/* ---- ending ---- */

static void drop(size_t which)
{
    CUstreamCaptureMode mode = captures_relax();
    check_cu(exec_destroy(graphs[which].exec));
    captures_restore(mode);
    graphs[which] = graphs[--graph_count];
}

void graphs_drop(void)
{
    unsigned which = fuzz_below(&model.input, graph_count);
    if (graph_count)
        drop(which);
}

void graphs_drop_all(void)
{
    while (graph_count)
        drop(graph_count - 1);
}

/* ---- launching ---- */

/* False if the block is freed. */
static bool add_use(graph_uses *uses, strata_block_id id, strata_access access)
{
    model_block *block = model_block_of(id);
    size_t i = 0;
    while (i < uses->count && uses->at[i].block != block)
        i++;
    if (i == uses->count)
        uses->at[uses->count++] = (graph_use){.block = block};
    uses->at[i].access = (strata_access)(uses->at[i].access | access);
    return block != NULL;
}

static bool gather(const graph_plan *plan, graph_uses *uses)
{
    *uses = (graph_uses){0};
    for (size_t i = 0; i < plan->count; i++) {
        const graph_step *step = &plan->steps[i];
        if (!add_use(uses, step->to, STRATA_ACCESS_WRITE) ||
            (step->copies && !add_use(uses, step->from, STRATA_ACCESS_READ)))
            return false;
    }
    return true;
}

/* Updates the blocks' contents after a launch. Every order that the graph allows has the same result. */
static void run(const graph_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const graph_step *step = &plan->steps[i];
        model_block *to = model_block_of(step->to);
        model_piece piece = {.bytes = step->bytes, .seed = step->seed};
        to->piece_count = 1;
        if (step->copies) {
            const model_block *from = model_block_of(step->from);
            piece = from->pieces[0];
            piece.bytes = piece.bytes < step->bytes ? piece.bytes : step->bytes;
            to->piece_count = from->piece_count && piece.offset == 0;
        }
        to->pieces[0] = piece;
    }
}

static void launch_graph(size_t which, const model_stream *stream)
{
    check_cu(graph_launch(graphs[which].exec, stream->handle));
    run(&graphs[which].plan);
    fuzz_tell("  is launched");
}

/* Prepares and finishes each block by itself. */
static void launch_by_blocks(size_t which, const graph_uses *uses, const model_stream *stream)
{
    size_t prepared = 0;
    while (prepared < uses->count && operation_prepare(uses->at[prepared].block, stream, uses->at[prepared].access))
        prepared++;
    bool launched = prepared == uses->count && captures_may_submit(stream);
    if (launched)
        launch_graph(which, stream);
    for (size_t i = 0; i < prepared; i++)
        operation_finish_block(uses->at[i].block, stream, launched ? uses->at[i].access : STRATA_ACCESS_NONE);
}

static bool name_all(strata_launch *recorder, const graph_uses *uses)
{
    for (size_t i = 0; i < uses->count; i++)
        if (!did(strata_launch_use(recorder, &uses->at[i].block->block, uses->at[i].access), STRATA_SUCCESS))
            return false;
    return true;
}

static const model_block *any_that_saw_legacy(const graph_uses *uses)
{
    for (size_t i = 0; i < uses->count; i++)
        if (uses->at[i].block->saw_legacy)
            return uses->at[i].block;
    return NULL;
}

/* Uses the launch recorder for all blocks. */
static void launch_by_recorder(size_t which, const graph_uses *uses, const model_stream *stream)
{
    strata_launch recorder;
    strata_runtime *runtime = model.runtimes[uses->at[0].block->runtime].handle;
    check_ok(strata_launch_begin(&recorder, runtime, stream->handle, STRATA_LAUNCH_STRICT));
    if (name_all(&recorder, uses) &&
        did_beside(strata_launch_preflight(&recorder), STRATA_SUCCESS, stream, any_that_saw_legacy(uses))) {
        if (captures_may_submit(stream)) {
            launch_graph(which, stream);
            bool noted = did(strata_launch_commit(&recorder), STRATA_SUCCESS);
            for (size_t i = 0; i < uses->count; i++)
                model_record_use(uses->at[i].block, stream->number, noted);
            if (!noted)
                captures_synchronize(stream->handle);
        } else {
            check_ok(strata_launch_cancel(&recorder));
        }
    }
    check_ok(strata_launch_end(&recorder));
}

static bool any_races(const graph_uses *uses, const model_stream *stream)
{
    for (size_t i = 0; i < uses->count; i++)
        if (model_races(&uses->at[i].block->block, stream->number, uses->at[i].access))
            return true;
    return false;
}

static bool of_one_runtime(const graph_uses *uses)
{
    for (size_t i = 1; i < uses->count; i++)
        if (uses->at[i].block->runtime != uses->at[0].block->runtime)
            return false;
    return true;
}

void graphs_launch(void)
{
    const model_stream *stream = model_pick_stream();
    unsigned how = fuzz_byte(&model.input);
    size_t which = graph_count ? how / 2 % graph_count : 0;
    graph_uses uses;
    if (!graph_count)
        return;
    if (!gather(&graphs[which].plan, &uses)) {
        fuzz_tell("  a block of it is gone");
        drop(which);
        return;
    }
    if (any_races(&uses, stream))
        return;
    fuzz_tell("  graph of %zu steps and %zu blocks on stream %llu", graphs[which].plan.count, uses.count,
              (unsigned long long)stream->number);
    if (how & 1 && of_one_runtime(&uses))
        launch_by_recorder(which, &uses, stream);
    else
        launch_by_blocks(which, &uses, stream);
}
