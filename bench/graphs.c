/* Launches of graphs whose blocks are waited for and noted, and memory in captures. */
#include "bench.h"

enum { LENGTH = 1024, MOST = 64, BESIDE = 1000 };

typedef struct graph_scene {
    strata_runtime *runtime;
    CUstream stream;
    size_t count;
    strata_block blocks[MOST];
    strata_graph *graph;
    CUgraph bare_graph;
    CUgraphExec bare_exec;
} graph_scene;

static void launch_bare(void *state, size_t operations)
{
    graph_scene *self = state;
    for (size_t i = 0; i < operations; i++)
        bare_check(bare.GraphLaunch(self->bare_exec, self->stream), "cuGraphLaunch");
}

static void launch(void *state, size_t operations)
{
    graph_scene *self = state;
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_graph_launch(self->graph, self->stream), "strata_graph_launch");
}

static void settle(void *state)
{
    graph_scene *self = state;
    bare_check(bare.StreamSynchronize(self->stream), "cuStreamSynchronize");
}

/* Captures a fill of the first block; the others are only named. */
static void capture(graph_scene *self)
{
    scene_check(strata_capture_begin(self->runtime, self->stream, STRATA_CAPTURE_GLOBAL, NULL), "strata_capture_begin");
    for (size_t i = 0; i < self->count; i++) {
        scene_check(
            strata_runtime_prepare_block_use(self->runtime, &self->blocks[i], self->stream, STRATA_ACCESS_WRITE),
            "strata_runtime_prepare_block_use");
        if (i == 0)
            bare_check(bare.MemsetD8Async(self->blocks[0].address, 1, LENGTH, self->stream), "cuMemsetD8Async");
        scene_check(strata_runtime_finish_block_use(self->runtime, &self->blocks[i], self->stream, STRATA_ACCESS_WRITE),
                    "strata_runtime_finish_block_use");
    }
    scene_check(strata_capture_end(self->runtime, self->stream, &self->graph), "strata_capture_end");
}

static void capture_bare(graph_scene *self)
{
    CUstream stream;
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    bare_check(bare.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    bare_check(bare.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    bare_check(bare.MemsetD8Async(self->blocks[0].address, 1, LENGTH, stream), "cuMemsetD8Async");
    bare_check(bare.StreamEndCapture(stream, &self->bare_graph), "cuStreamEndCapture");
    bare_check(bare.GraphInstantiateWithParams(&self->bare_exec, self->bare_graph, &parameters),
               "cuGraphInstantiateWithParams");
    bare_check(bare.StreamDestroy(stream), "cuStreamDestroy");
}

static void bench_launch(const bench *self, const char *name, size_t count, double target)
{
    graph_scene stage = {.runtime = self->late, .count = count};
    if (!bench_wants(self, name))
        return;
    scene_check(strata_runtime_stream_acquire(self->late, &stage.stream), "strata_runtime_stream_acquire");
    for (size_t i = 0; i < count; i++)
        scene_check(strata_runtime_allocate(self->late, LENGTH, stage.stream, &stage.blocks[i]),
                    "strata_runtime_allocate");
    capture(&stage);
    capture_bare(&stage);
    bench_row(self, name, (bench_plan){.batch = 100, .batches = 10}, (bench_side){launch_bare, settle, &stage},
              (bench_side){launch, settle, &stage}, (bench_target){REPORT_ADDS_AT_MOST, target});
    bare_check(bare.GraphExecDestroy(stage.bare_exec), "cuGraphExecDestroy");
    bare_check(bare.GraphDestroy(stage.bare_graph), "cuGraphDestroy");
    scene_check(strata_graph_destroy(stage.graph), "strata_graph_destroy");
    for (size_t i = 0; i < count; i++)
        scene_check(strata_runtime_deallocate(self->late, &stage.blocks[i]), "strata_runtime_deallocate");
    scene_check(strata_runtime_stream_release(self->late, stage.stream), "strata_runtime_stream_release");
}

/* Asks the bare driver where a stream in a capture stands, twice, as an allocation and a free do. */
static void ask_bare(void *state, size_t operations)
{
    graph_scene *self = state;
    for (size_t i = 0; i < 2 * operations; i++) {
        CUstreamCaptureStatus status;
        cuuint64_t id;
        CUgraph graph;
        const CUgraphNode *nodes;
        size_t count;
        bare_check(bare.StreamGetCaptureInfo(self->stream, &status, &id, &graph, &nodes, &count),
                   "cuStreamGetCaptureInfo");
    }
}

static void allocate_and_free(void *state, size_t operations)
{
    graph_scene *self = state;
    for (size_t i = 0; i < operations; i++) {
        strata_block block;
        scene_check(strata_runtime_allocate(self->runtime, LENGTH, self->stream, &block), "strata_runtime_allocate");
        scene_check(strata_runtime_deallocate(self->runtime, &block), "strata_runtime_deallocate");
    }
}

/* Measures pairs in a capture of which `beside` other blocks, BESIDE at most, live on. */
static void bench_memory(const bench *self, const char *name, size_t beside)
{
    graph_scene stage = {.runtime = self->late};
    static strata_block others[BESIDE];
    if (!bench_wants(self, name))
        return;
    scene_check(strata_runtime_stream_acquire(self->late, &stage.stream), "strata_runtime_stream_acquire");
    scene_check(strata_capture_begin(self->late, stage.stream, STRATA_CAPTURE_GLOBAL, NULL), "strata_capture_begin");
    for (size_t i = 0; i < beside; i++)
        scene_check(strata_runtime_allocate(self->late, LENGTH, stage.stream, &others[i]), "strata_runtime_allocate");
    bench_row(self, name, (bench_plan){.batch = 1000, .batches = 1, .quiet = self->rounds >= 5},
              (bench_side){ask_bare, NULL, &stage}, (bench_side){allocate_and_free, NULL, &stage},
              (bench_target){REPORT_ADDS_AT_MOST, 100});
    for (size_t i = 0; i < beside; i++)
        scene_check(strata_runtime_deallocate(self->late, &others[i]), "strata_runtime_deallocate");
    scene_check(strata_capture_discard(self->late, stage.stream), "strata_capture_discard");
    scene_check(strata_runtime_stream_release(self->late, stage.stream), "strata_runtime_stream_release");
}

void bench_graphs(const bench *self)
{
    report_heading(self->report, "Graphs", false);
    bench_launch(self, "graph, launch with 8 blocks (bare: cuGraphLaunch)", 8, 300);
    bench_launch(self, "graph, launch with 64 blocks (bare: cuGraphLaunch)", 64, 500);
    bench_memory(self, "graph, allocate and free in a capture (bare: its questions)", 0);
    bench_memory(self, "graph, the same beside 1000 live blocks (bare: its questions)", BESIDE);
}
