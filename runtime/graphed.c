/* Functions of blocks that run as graphs. */
#include <strata/graphed.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "runtime/graph_frees.h"
#include "runtime/graphs.h"

#include <strata/launch.h>

#include <string.h>

/* PTDS programs see macros of these names. */
#undef strata_graphed_create
#undef strata_graphed_call
#undef strata_capture_into
#undef strata_capture_set_name
#undef strata_graph_launch
#undef strata_launch_begin

enum { WARM_UPS = 3 };

struct strata_graphed {
    strata_runtime *runtime; /* exists while this does; all is constant */
    strata_graph *graph;
    strata_lock calls; /* held from the copies to the launch */
    size_t input_count, output_count;
    strata_block *blocks; /* inputs, then outputs */
};

static strata_block *outputs_of(const strata_graphed *graphed)
{
    return graphed->blocks + graphed->input_count;
}

/* ---- making ---- */

static strata_status check_options(const strata_runtime *runtime, const strata_graphed_options *options)
{
    if (!options || options->size != sizeof *options || !options->body ||
        (options->input_count && !options->input_bytes) || (options->output_count && !options->output_bytes))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_graphed_create: options are NULL, of another size, or without a body or sizes");
    const strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if (!runtime->tracks || !strata_cu.MemcpyDtoDAsync)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "strata_graphed_create: the stack \"%s\" does not track uses, or "
                           "the driver has no cuMemcpyDtoDAsync",
                           strata_stack_text(runtime->stack));
    return STRATA_SUCCESS;
}

static strata_status allocate_all(strata_graphed *graphed, CUstream stream, const strata_graphed_options *options)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graphed->input_count + graphed->output_count && status == STRATA_SUCCESS; i++) {
        const size_t bytes =
            i < graphed->input_count ? options->input_bytes[i] : options->output_bytes[i - graphed->input_count];
        status = strata_runtime_allocate(graphed->runtime, bytes, stream, &graphed->blocks[i]);
    }
    return status;
}

/* ---- copies ---- */

/* Whether the caller's input is copied. */
static bool differs(const strata_block *from, const strata_block *to)
{
    return from->address != 0 && to->bytes != 0 && from->address != to->address;
}

static strata_status name_copies(const strata_graphed *graphed, const strata_block *inputs, strata_launch *launch)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graphed->input_count && status == STRATA_SUCCESS; i++) {
        const strata_block *to = &graphed->blocks[i];
        if (!differs(&inputs[i], to))
            continue;
        if (inputs[i].bytes < to->requested)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "input %zu has %s; it needs %s", i,
                               strata_size_text(inputs[i].bytes).text, strata_size_text(to->requested).text);
        status = strata_launch_use(launch, &inputs[i], STRATA_ACCESS_READ);
        if (status == STRATA_SUCCESS)
            status = strata_launch_use(launch, to, STRATA_ACCESS_WRITE);
    }
    return status;
}

static CUresult submit_copies(const strata_graphed *graphed, const strata_block *inputs, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < graphed->input_count && result == CUDA_SUCCESS; i++) {
        const strata_block *to = &graphed->blocks[i];
        if (differs(&inputs[i], to))
            result = strata_cu.MemcpyDtoDAsync(to->address, inputs[i].address, to->requested, stream);
    }
    return result;
}

/* Some may be submitted when one fails: they count as uses all the same. */
static strata_status copy_now(const strata_graphed *graphed, const strata_block *inputs, strata_launch *launch,
                              CUstream stream)
{
    strata_call_scope scope;
    strata_status status = strata_launch_preflight(launch);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_call_scope_enter(&scope, graphed->runtime->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS) {
        strata_launch_cancel(launch);
        return status;
    }
    const CUresult result = submit_copies(graphed, inputs, stream);
    strata_call_scope_leave(&scope);
    const strata_status committed = strata_launch_commit(launch);
    return result == CUDA_SUCCESS ? committed
                                  : strata_fail_driver(result, "cuMemcpyDtoDAsync", "copying inputs of a graph%s",
                                                       strata_stream_hint(result));
}

static strata_status copy_inputs(const strata_graphed *graphed, const strata_block *inputs, CUstream stream)
{
    strata_launch launch;
    strata_status status = strata_launch_begin(&launch, graphed->runtime, stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    status = name_copies(graphed, inputs, &launch);
    if (status == STRATA_SUCCESS && launch.count)
        status = copy_now(graphed, inputs, &launch, stream);
    strata_launch_end(&launch);
    return status;
}

static strata_status zero_block(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    strata_call_scope scope;
    if (strata_block_is_empty(block))
        return STRATA_SUCCESS;
    strata_status status = strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = CUDA_SUCCESS;
    status = strata_call_scope_enter(&scope, runtime->device, strata_call_scope_for(stream));
    if (status == STRATA_SUCCESS) {
        result = strata_cu.MemsetD8Async(block->address, 0, block->requested, stream);
        strata_call_scope_leave(&scope);
    }
    if (result != CUDA_SUCCESS)
        status =
            strata_fail_driver(result, "cuMemsetD8Async", "clearing an input of a graph%s", strata_stream_hint(result));
    const strata_status finished = strata_runtime_finish_block_use(
        runtime, block, stream, status == STRATA_SUCCESS ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE);
    return status == STRATA_SUCCESS ? finished : status;
}

static strata_status zero_inputs(const strata_graphed *graphed, CUstream stream)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graphed->input_count && status == STRATA_SUCCESS; i++)
        status = zero_block(graphed->runtime, &graphed->blocks[i], stream);
    return status;
}

/* ---- the capture ---- */

typedef struct making {
    strata_graphed *graphed;
    const strata_graphed_options *options;
} making;

static strata_status call_body(strata_runtime *runtime, CUstream stream, void *data)
{
    const making *self = data;
    return self->options->body(runtime, stream, self->graphed->blocks, outputs_of(self->graphed), self->options->data);
}

static strata_status capture_body(strata_runtime *runtime, CUstream stream, void *data)
{
    const making *self = data;
    const strata_status status =
        self->options->name ? strata_capture_set_name(runtime, stream, self->options->name) : STRATA_SUCCESS;
    return status == STRATA_SUCCESS ? call_body(runtime, stream, data) : status;
}

static strata_status warm_up(strata_runtime *runtime, CUstream stream, void *data)
{
    const making *self = data;
    const unsigned calls = self->options->warm_ups ? self->options->warm_ups : WARM_UPS;
    strata_status status = self->options->samples ? copy_inputs(self->graphed, self->options->samples, stream)
                                                  : zero_inputs(self->graphed, stream);
    for (unsigned i = 0; i < calls && status == STRATA_SUCCESS; i++)
        status = call_body(runtime, stream, data);
    return status;
}

strata_status strata_graphed_create(strata_runtime *runtime, CUstream stream, const strata_graphed_options *options,
                                    strata_graphed **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graphed_create: out is NULL");
    *out = NULL;
    strata_status status = check_options(runtime, options);
    if (status != STRATA_SUCCESS)
        return status;
    const size_t count = options->input_count + options->output_count;
    strata_graphed *graphed = strata_host_zalloc(sizeof *graphed);
    strata_block *blocks = strata_host_zalloc((count + 1) * sizeof *blocks);
    if (!graphed || !blocks) {
        strata_host_free(graphed);
        strata_host_free(blocks);
        return strata_fail_host_memory("a graph's function");
    }
    *graphed = (strata_graphed){.runtime = runtime,
                                .blocks = blocks,
                                .input_count = options->input_count,
                                .output_count = options->output_count};
    strata_lock_init(&graphed->calls, STRATA_RANK_GRAPHED_CALLS);
    making self = {graphed, options};
    status = allocate_all(graphed, stream, options);
    if (status == STRATA_SUCCESS)
        status = strata_capture_into(runtime, stream, STRATA_CAPTURE_GLOBAL, options->pool, warm_up, capture_body,
                                     &self, &graphed->graph);
    if (status == STRATA_SUCCESS) {
        *out = graphed;
        return STRATA_SUCCESS;
    }
    strata_error_suppress_begin();
    strata_graphed_destroy(graphed);
    strata_error_suppress_end(false);
    return status;
}

/* ---- calls ---- */

strata_status strata_graphed_call(strata_graphed *graphed, CUstream stream, const strata_block *inputs,
                                  const strata_block **outputs)
{
    if (!graphed || (graphed->input_count && !inputs))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graphed_call: graphed or inputs is NULL");
    if (outputs)
        *outputs = outputs_of(graphed);
    strata_status status = strata_check_runtime_now(graphed->runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&graphed->calls);
    status = copy_inputs(graphed, inputs, stream);
    if (status == STRATA_SUCCESS)
        status = strata_graph_launch(graphed->graph, stream);
    strata_lock_release(&graphed->calls);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

const strata_block *strata_graphed_inputs(const strata_graphed *graphed)
{
    return graphed ? graphed->blocks : NULL;
}

strata_graph *strata_graphed_graph(const strata_graphed *graphed)
{
    return graphed ? graphed->graph : NULL;
}

/* Frees before the graph's end are deferred to it. */
strata_status strata_graphed_destroy(strata_graphed *graphed)
{
    strata_status status = strata_check_not_forked();
    if (!graphed || status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < graphed->input_count + graphed->output_count; i++) {
        const strata_block *block = &graphed->blocks[i];
        const strata_status one =
            strata_block_is_empty(block) ? STRATA_SUCCESS : strata_graph_free_late(graphed->runtime, block);
        status = status == STRATA_SUCCESS ? one : status;
    }
    const strata_status destroyed = strata_graph_destroy(graphed->graph);
    strata_lock_destroy(&graphed->calls);
    strata_host_free(graphed->blocks);
    strata_host_free(graphed);
    return status == STRATA_SUCCESS ? destroyed : status;
}
