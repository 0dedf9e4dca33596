/* By hand: each batch's launches are submitted to three streams, in one pass over the recorder each. The copy of a
 * batch runs beside the product of the batch before. */
#include "tools/demo/pipeline.h"

#include "core/base/timestamp.h"

/* A batch under way. */
typedef struct lane {
    strata_fence *fence; /* behind its copy out */
    strata_pinned_buffer *result;
    strata_pinned_view view; /* of `result` */
    uint32_t batch;
} lane;

/* Waits for the lane's batch, and compares it. Without one: nothing. */
static strata_status finish(demo *of, demo_way *way, lane *at)
{
    strata_pinned_buffer *result = at->result;
    if (!result)
        return STRATA_SUCCESS;
    strata_status status = strata_fence_synchronize(at->fence);
    if (status == STRATA_SUCCESS)
        demo_compare(of, way, at->batch, at->view.data);
    at->result = NULL;
    const strata_status released = strata_pinned_buffer_release(result);
    return status == STRATA_SUCCESS ? released : status;
}

/* Fills a page-locked buffer with the batch's matrix, submits the batch, and gives the buffer back behind the copy. */
static strata_status submit(demo_pipeline *self, lane *at)
{
    const size_t bytes = demo_matrix_bytes(&self->of->matrices);
    strata_pinned_buffer *staged = NULL;
    strata_pinned_view from;
    strata_status status = strata_pinned_pool_acquire(self->buffers, bytes, STRATA_NEVER, &staged);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_pinned_buffer_view(staged, STRATA_ELEMENT_F32, &from);
    if (status == STRATA_SUCCESS) {
        demo_matrices_fill(&self->of->matrices, at->batch, from.data);
        status = demo_pipeline_submit(self, &self->streams, &from, &at->view);
    }
    const strata_status released = strata_pinned_buffer_release_after(staged, self->streams.in);
    if (status == STRATA_SUCCESS)
        status = released;
    const strata_status recorded = strata_fence_record(at->fence, self->streams.out); /* after a failure, too */
    return status == STRATA_SUCCESS ? recorded : status;
}

static strata_status begin(demo_pipeline *self, demo_way *way, lane *at, uint32_t batch)
{
    strata_status status = finish(self->of, way, at);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_pool_acquire(self->buffers, demo_matrix_bytes(&self->of->matrices), STRATA_NEVER,
                                            &at->result);
    if (status == STRATA_SUCCESS)
        status = strata_pinned_buffer_view(at->result, STRATA_ELEMENT_F32, &at->view);
    at->batch = batch;
    return status == STRATA_SUCCESS ? submit(self, at) : status;
}

static strata_status run(demo_pipeline *self, demo_way *way, lane lanes[DEMO_LANES])
{
    const uint32_t batches = self->of->settings.batches;
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = strata_fence_create(self->runtime, &lanes[i].fence);
    for (uint32_t batch = 0; batch < batches && status == STRATA_SUCCESS; batch++)
        status = begin(self, way, &lanes[batch % DEMO_LANES], batch);
    for (uint32_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = finish(self->of, way, &lanes[(batches + i) % DEMO_LANES]);
    return status;
}

void demo_by_hand(demo *of, demo_way *way)
{
    demo_pipeline self;
    lane lanes[DEMO_LANES] = {0};
    const uint64_t start = strata_timestamp_clock();
    strata_status status = demo_note(way, demo_pipeline_open(&self, of));
    const uint64_t ready = strata_timestamp_clock();
    if (status == STRATA_SUCCESS)
        status = demo_note(way, run(&self, way, lanes));
    way->setup = ready - start;
    way->time = strata_timestamp_clock() - ready;
    way->own_product = of->own_product;
    if (status != STRATA_SUCCESS && self.streams.out)
        strata_runtime_stream_synchronize(self.runtime, self.streams.out);
    for (size_t i = 0; i < DEMO_LANES; i++) {
        strata_pinned_buffer_release(lanes[i].result);
        strata_fence_destroy(lanes[i].fence);
    }
    demo_note_budget(way, self.runtime);
    demo_note(way, demo_pipeline_close(&self));
}
