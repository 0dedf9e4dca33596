/* As a graph: the launches that are submitted by hand elsewhere are captured once for each of three streams, with
 * buffers that stay, and replayed for each batch. A and C come from the capture's pool, and the stack gives that its
 * memory once. */
#include "tools/demo/pipeline.h"

#include "core/base/timestamp.h"

#include <strata/graphed.h>

typedef struct lane {
    demo_pipeline *pipeline;
    CUstream stream;
    strata_graph *graph;
    strata_fence *fence; /* behind its last launch */
    strata_pinned_buffer *in, *out;
    strata_pinned_view from, to;
    uint32_t batch;
    bool launched; /* and not yet compared */
} lane;

static strata_status body(strata_runtime *runtime, CUstream stream, void *data)
{
    const lane *self = data;
    (void)runtime;
    return demo_pipeline_submit(self->pipeline, &(demo_streams){stream, stream, stream}, &self->from, &self->to);
}

static strata_status open_lane(lane *self, demo_pipeline *pipeline, CUstream stream)
{
    const size_t bytes = demo_matrix_bytes(&pipeline->of->matrices);
    *self = (lane){.pipeline = pipeline, .stream = stream};
    strata_status status = strata_fence_create(pipeline->runtime, &self->fence);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_pool_acquire(pipeline->buffers, bytes, STRATA_NEVER, &self->in);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_pool_acquire(pipeline->buffers, bytes, STRATA_NEVER, &self->out);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_buffer_view(self->in, STRATA_ELEMENT_F32, &self->from);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_buffer_view(self->out, STRATA_ELEMENT_F32, &self->to);
    if (status == STRATA_SUCCESS)
        status =
            strata_capture_into(pipeline->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, NULL, body, self, &self->graph);
    return status;
}

/* Waits for the lane's launch, and compares its batch. Without one: nothing. */
static strata_status finish(lane *self, demo_way *way)
{
    if (!self->launched)
        return STRATA_SUCCESS;
    self->launched = false;
    const strata_status status = strata_fence_synchronize(self->fence);
    if (status == STRATA_SUCCESS)
        demo_compare(self->pipeline->of, way, self->batch, self->to.data);
    return status;
}

static strata_status launch(lane *self, demo_way *way, uint32_t batch)
{
    strata_status status = finish(self, way);
    if (status != STRATA_SUCCESS)
        return status;
    demo_matrices_fill(&self->pipeline->of->matrices, batch, self->from.data);
    self->batch = batch;
    status = strata_graph_launch(self->graph, self->stream);
    if (status != STRATA_SUCCESS)
        return status;
    self->launched = true;
    return strata_fence_record(self->fence, self->stream);
}

static strata_status close_lane(lane *self)
{
    if (self->launched) /* after a failure */
        strata_runtime_stream_synchronize(self->pipeline->runtime, self->stream);
    strata_fence_destroy(self->fence);
    strata_pinned_buffer_release(self->in);
    strata_pinned_buffer_release(self->out);
    return strata_graph_destroy(self->graph);
}

static strata_status run(lane lanes[DEMO_LANES], demo_way *way, uint32_t batches)
{
    strata_status status = STRATA_SUCCESS;
    for (uint32_t batch = 0; batch < batches && status == STRATA_SUCCESS; batch++)
        status = launch(&lanes[batch % DEMO_LANES], way, batch);
    for (uint32_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = finish(&lanes[(batches + i) % DEMO_LANES], way);
    return status;
}

void demo_as_graph(demo *of, demo_way *way)
{
    demo_pipeline self;
    lane lanes[DEMO_LANES] = {0};
    const uint64_t start = strata_timestamp_clock();
    strata_status status = demo_note(way, demo_pipeline_open(&self, of));
    const CUstream streams[] = {self.streams.in, self.streams.compute, self.streams.out};
    for (size_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = demo_note(way, open_lane(&lanes[i], &self, streams[i]));
    const uint64_t ready = strata_timestamp_clock();
    if (status == STRATA_SUCCESS)
        demo_note(way, run(lanes, way, of->settings.batches));
    way->setup = ready - start;
    way->time = strata_timestamp_clock() - ready;
    way->own_product = of->own_product;
    for (size_t i = 0; i < DEMO_LANES; i++)
        demo_note(way, close_lane(&lanes[i]));
    demo_note_budget(way, self.runtime);
    demo_note(way, demo_pipeline_close(&self));
}
