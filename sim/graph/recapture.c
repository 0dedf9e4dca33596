/* A capture into a graph that has its nodes already (cuStreamBeginRecaptureToGraph, CUDA 13.3). Each captured call
 * takes the next node, in the order in which they were made. Type and dependencies must be the node's, or the recapture
 * fails; other parameters replace the node's, once the program's callback has agreed.
 *
 * From CUDA's documentation; not compared with a device. What it leaves open: after a failure the call, or the
 * capture's end if nodes are left, answers CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, the capture is invalidated, and the
 * graph stays for the program to destroy. Without a callback all parameters may change. The callback may call CUDA. */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

/* A node's new parameters, found by a captured call; asked for and applied at the call's end. */
typedef struct difference {
    struct difference *next;
    CUgraphNode node;
    uint64_t id; /* of the node */
    sim_op what; /* owns its work */
    CUDA_MEMCPY3D copy;
    CUevent event;
} difference;

typedef struct sim_recapture {
    CUgraphNode next; /* that the next call takes; NULL: there is none */
    uint64_t next_id;
    sim_recapture_callback callback; /* may be NULL */
    void *data;
    difference *first; /* of the call under way */
    difference **last;
    bool failed;
} sim_recapture;

static void expect(sim_recapture *recapture, CUgraphNode node)
{
    recapture->next = node;
    recapture->next_id = node ? node->id : 0;
}

CUresult sim_recapture_begin(CUstream stream, CUgraph graph, CUstreamCaptureMode mode, sim_recapture_callback callback,
                             void *data)
{
    CUresult result = sim_capture_begin_to_graph(stream, graph, NULL, 0, mode);
    if (result != CUDA_SUCCESS)
        return result;
    sim_recapture *recapture = calloc(1, sizeof *recapture);
    if (!recapture) {
        sim_capture_invalidate(graph->capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_objects_free(&graph->objects);
    recapture->callback = callback;
    recapture->data = data;
    recapture->last = &recapture->first;
    expect(recapture, graph->first);
    graph->capture->recapture = recapture;
    return CUDA_SUCCESS;
}

static void drop(difference *one)
{
    sim_work_free(&one->what);
    free(one);
}

static difference *take_first(sim_recapture *recapture)
{
    difference *one = recapture->first;
    if (one) {
        recapture->first = one->next;
        if (!recapture->first)
            recapture->last = &recapture->first;
    }
    return one;
}

void sim_recapture_end(sim_capture *capture)
{
    if (sim_graph.unsettled == capture)
        sim_graph.unsettled = NULL;
    for (difference *one; capture->recapture && (one = take_first(capture->recapture));)
        drop(one);
    free(capture->recapture);
    capture->recapture = NULL;
}

void sim_recapture_fail(sim_capture *capture)
{
    capture->recapture->failed = true;
    sim_graph.unsettled = capture;
}

/* ---- what a call takes ---- */

static bool same_nodes(const sim_nodes *one, const sim_nodes *other)
{
    bool same = one->count == other->count;
    for (size_t i = 0; i < one->count && same; i++)
        same = sim_nodes_have(other, one->at[i]);
    return same;
}

CUgraphNode sim_recapture_take(sim_queue *queue, CUgraphNodeType type)
{
    sim_capture *capture = queue->capture;
    CUgraphNode node = capture->recapture->next;
    bool there = node && sim_node_valid(node) && node->id == capture->recapture->next_id;
    if (!there || node->type != type || !same_nodes(&node->after, &queue->captured)) {
        sim_recapture_fail(capture);
        return NULL;
    }
    expect(capture->recapture, node->next);
    return node;
}

bool sim_recapture_complete(const sim_capture *capture)
{
    return !capture->recapture || !capture->recapture->next;
}

/* ---- what differs ---- */

static bool same_place(const sim_place *one, const sim_place *other)
{
    return one->address == other->address && one->pageable == other->pageable;
}

static bool same_rows(const sim_op *one, const sim_op *other)
{
    const sim_rows *to = &one->work.rows.to, *other_to = &other->work.rows.to;
    const sim_rows *from = &one->work.rows.from, *other_from = &other->work.rows.from;
    return same_place(&to->place, &other_to->place) && to->pitch == other_to->pitch && to->plane == other_to->plane &&
           same_place(&from->place, &other_from->place) && from->pitch == other_from->pitch &&
           from->plane == other_from->plane && one->work.rows.width == other->work.rows.width &&
           one->work.rows.rows == other->work.rows.rows && one->work.rows.planes == other->work.rows.planes;
}

static bool same_fill(const sim_op *one, const sim_op *other)
{
    return one->work.fill.address == other->work.fill.address && one->work.fill.width == other->work.fill.width &&
           one->work.fill.count == other->work.fill.count && one->work.fill.pitch == other->work.fill.pitch &&
           one->work.fill.rows == other->work.fill.rows && one->work.fill.value == other->work.fill.value;
}

static bool same_value(const sim_op *one, const sim_op *other)
{
    return one->work.value.address == other->work.value.address && one->work.value.value == other->work.value.value &&
           one->work.value.width == other->work.value.width && one->work.value.flags == other->work.value.flags;
}

static bool same_work(const sim_op *one, const sim_op *other)
{
    if (one->kind != other->kind || one->context != other->context)
        return false;
    switch (one->kind) {
    case SIM_OP_COPY:
        return same_place(&one->work.copy.to, &other->work.copy.to) &&
               same_place(&one->work.copy.from, &other->work.copy.from) &&
               one->work.copy.bytes == other->work.copy.bytes;
    case SIM_OP_COPY_ROWS:
        return same_rows(one, other);
    case SIM_OP_FILL:
        return same_fill(one, other);
    case SIM_OP_KERNEL:
        return sim_kernel_same(one->work.kernel, other->work.kernel);
    case SIM_OP_HOST:
        return one->work.host.function == other->work.host.function && one->work.host.data == other->work.host.data &&
               one->work.host.callback == other->work.host.callback;
    case SIM_OP_WRITE_VALUE:
    case SIM_OP_WAIT_VALUE:
        return same_value(one, other);
    case SIM_OP_ALLOCATE:
    case SIM_OP_FREE:
    case SIM_OP_MARK:
    case SIM_OP_CONDITIONAL:
        break;
    }
    return true;
}

void sim_recapture_compare(CUgraphNode node, sim_op *what, const CUDA_MEMCPY3D *copy, CUevent event)
{
    sim_capture *capture = node->graph->capture;
    if (same_work(&node->what, what) && node->event == event) {
        sim_work_free(what);
        return;
    }
    difference *one = malloc(sizeof *one);
    if (!one) {
        sim_work_free(what);
        sim_recapture_fail(capture);
        return;
    }
    *one = (difference){.node = node, .id = node->id, .what = *what, .copy = *copy, .event = event};
    *capture->recapture->last = one;
    capture->recapture->last = &one->next;
    sim_graph.unsettled = capture;
}

/* ---- at the end of the call ---- */

static CUDA_KERNEL_NODE_PARAMS_v3 kernel_params(const sim_op *what)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    sim_kernel_describe(what->work.kernel, &kernel);
    return (CUDA_KERNEL_NODE_PARAMS_v3){
        .func = kernel.func,
        .gridDimX = kernel.gridDimX,
        .gridDimY = kernel.gridDimY,
        .gridDimZ = kernel.gridDimZ,
        .blockDimX = kernel.blockDimX,
        .blockDimY = kernel.blockDimY,
        .blockDimZ = kernel.blockDimZ,
        .sharedMemBytes = kernel.sharedMemBytes,
        .kernelParams = kernel.kernelParams,
        .ctx = what->context,
    };
}

/* Describes a node for the program's callback; of nodes for values only the type is given. */
static CUgraphNodeParams describe(CUgraphNodeType type, const sim_op *what, const CUDA_MEMCPY3D *copy, CUevent event)
{
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = type;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        params.kernel = kernel_params(what);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        params.memcpy.copyCtx = what->context;
        params.memcpy.copyParams = *copy;
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
        params.memset.dst = what->work.fill.address;
        params.memset.pitch = what->work.fill.pitch;
        params.memset.value = what->work.fill.value;
        params.memset.elementSize = (unsigned)what->work.fill.width;
        params.memset.width = what->work.fill.count;
        params.memset.height = what->work.fill.rows;
        params.memset.ctx = what->context;
    } else if (type == CU_GRAPH_NODE_TYPE_HOST) {
        params.host.fn = what->work.host.function;
        params.host.userData = what->work.host.data;
    } else if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        params.eventRecord.event = event;
    } else if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        params.eventWait.event = event;
    }
    return params;
}

/* Asks the program's callback. Releases sim.lock meanwhile, after which anything may be gone. */
static bool program_agrees(const sim_recapture *recapture, const difference *one)
{
    CUgraphNode node = one->node;
    CUgraphNodeParams before = describe(node->type, &node->what, &node->copy, node->event);
    CUgraphNodeParams now = describe(node->type, &one->what, &one->copy, one->event);
    bool eligible = node->what.kind == one->what.kind && sim_exec_compatible(&node->what, &one->what);
    sim_recapture_callback callback = recapture->callback;
    void *data = recapture->data;
    if (!callback)
        return true;
    sim.inside++;
    pthread_mutex_unlock(&sim.lock);
    CUresult answer = callback(data, node, &before, &now, eligible ? SIM_RECAPTURE_ELIGIBLE : SIM_RECAPTURE_INELIGIBLE);
    pthread_mutex_lock(&sim.lock);
    sim.inside--;
    return answer == CUDA_SUCCESS;
}

static sim_capture *capture_with(uint64_t id)
{
    sim_capture *capture = sim_order.captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

static void apply(difference *one)
{
    sim_work_free(&one->node->what);
    one->node->what = one->what;
    one->node->copy = one->copy;
    one->node->event = one->event;
    free(one);
}

CUresult sim_recapture_settle(CUresult result)
{
    sim_capture *capture = sim_graph.unsettled;
    uint64_t id = capture->id;
    sim_graph.unsettled = NULL;
    for (difference *one; !capture->recapture->failed && (one = take_first(capture->recapture));) {
        bool agrees = program_agrees(capture->recapture, one);
        capture = sim.phase == SIM_RUNNING ? capture_with(id) : NULL;
        if (!capture) {
            if (sim.phase == SIM_RUNNING)
                drop(one);
            return SIM_ERROR_GRAPH_RECAPTURE_FAILURE;
        }
        if (agrees && sim_node_valid(one->node) && one->node->id == one->id) {
            apply(one);
        } else {
            drop(one);
            capture->recapture->failed = true;
        }
    }
    if (!capture->recapture->failed)
        return result;
    sim_capture_invalidate(capture);
    return SIM_ERROR_GRAPH_RECAPTURE_FAILURE;
}
