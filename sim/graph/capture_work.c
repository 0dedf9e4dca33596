/* Calls on captured streams become nodes after the stream's previous ones. A recorded event stands for these; a wait
 * adds them to what the waiting stream's next call depends on. A captured stream's operation is submitted as usual, and
 * carries the node that it turns into. */
#include "graph/graph.h"

/* Adds a node after the stream's previous work. */
static CUgraphNode add_node(sim_queue *queue, CUgraphNodeType type)
{
    sim_nodes *captured = &queue->captured;
    if (!sim_nodes_reserve(captured, 1))
        return NULL;
    CUgraphNode node = queue->capture->recapture
                           ? sim_recapture_take(queue, type)
                           : sim_node_create(queue->capture->graph, type, captured->at, captured->count);
    if (node)
        node->made = sim_hooks.check->made();
    return node;
}

/* Undoes add_node, for a call that lacks memory for the rest. A recapture has failed then. */
static void give_up_node(const sim_queue *queue, CUgraphNode node)
{
    if (queue->capture->recapture)
        sim_recapture_fail(queue->capture);
    else
        sim_node_free(node);
}

static void come_after(sim_queue *queue, CUgraphNode node)
{
    queue->captured.count = 0;
    sim_nodes_add(&queue->captured, node);
}

/* ---- operations ---- */

static CUgraphNodeType type_of(sim_op_kind kind)
{
    switch (kind) {
    case SIM_OP_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_OP_COPY:
    case SIM_OP_COPY_ROWS:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_OP_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_OP_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_OP_ALLOCATE:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case SIM_OP_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case SIM_OP_WRITE_VALUE:
    case SIM_OP_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case SIM_OP_MARK:
    case SIM_OP_CONDITIONAL:
        break;
    }
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

/* Makes the operation of a captured call, unordered and never run, with its node. NULL without memory. */
sim_op *sim_capture_op(sim_context *context, sim_queue *queue, sim_op_kind kind)
{
    CUgraphNode node = add_node(queue, type_of(kind));
    if (!node)
        return NULL;
    sim_op *op = sim_op_detached(context, kind);
    if (!op) {
        give_up_node(queue, node);
        return NULL;
    }
    op->node = node;
    come_after(queue, node);
    return op;
}

static void *host_address(const sim_place *place)
{
    return place->called == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)place->address : NULL;
}

/* Describes a captured copy as a program would. */
static CUDA_MEMCPY3D describe_copy(const sim_op *op)
{
    bool rows = op->kind == SIM_OP_COPY_ROWS;
    const sim_place *from = rows ? &op->work.rows.from.place : &op->work.copy.from;
    const sim_place *to = rows ? &op->work.rows.to.place : &op->work.copy.to;
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = from->called,
        .srcHost = host_address(from),
        .srcDevice = host_address(from) ? 0 : from->address,
        .dstMemoryType = to->called,
        .dstHost = host_address(to),
        .dstDevice = host_address(to) ? 0 : to->address,
        .WidthInBytes = rows ? op->work.rows.width : op->work.copy.bytes,
        .Height = rows ? op->work.rows.rows : 1,
        .Depth = rows ? op->work.rows.planes : 1,
    };
    if (rows) {
        copy.srcPitch = op->work.rows.from.pitch;
        copy.srcHeight = op->work.rows.from.plane / op->work.rows.from.pitch;
        copy.dstPitch = op->work.rows.to.pitch;
        copy.dstHeight = op->work.rows.to.plane / op->work.rows.to.pitch;
    }
    return copy;
}

void sim_capture_submit(sim_op *op)
{
    CUgraphNode node = op->node;
    sim_op what = {.kind = op->kind, .context = op->context, .work = op->work};
    CUDA_MEMCPY3D copy = node->type == CU_GRAPH_NODE_TYPE_MEMCPY ? describe_copy(op) : node->copy;
    if (node->graph->capture->recapture) {
        sim_recapture_compare(node, &what, &copy, node->event);
    } else {
        node->what = what;
        node->copy = copy;
    }
    op->state = SIM_OP_DONE;
    sim_op_drop(op);
}

/* ---- events ---- */

/* Adds the node of a record or wait with the external flag. */
static CUresult add_event_node(sim_queue *queue, CUevent event, CUgraphNodeType type)
{
    CUgraphNode node = add_node(queue, type);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (queue->capture->recapture)
        sim_recapture_compare(node, &(sim_op){.kind = node->what.kind, .context = node->what.context}, &node->copy,
                              event);
    else
        node->event = event;
    come_after(queue, node);
    return CUDA_SUCCESS;
}

CUresult sim_capture_record(sim_queue *queue, CUevent event, unsigned flags)
{
    if (flags == CU_EVENT_RECORD_EXTERNAL)
        return add_event_node(queue, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (!sim_nodes_copy(&event->captured, &queue->captured))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = queue->capture->id;
    return CUDA_SUCCESS;
}

static CUresult refuse(sim_queue *queue, CUresult why)
{
    if (queue->capture)
        sim_capture_invalidate(queue->capture);
    return why;
}

/* A node that is gone may have left its place to one of another graph. */
static bool is_captured(const sim_queue *queue, CUgraphNode node)
{
    return sim_node_valid(node) && node->graph == queue->capture->graph;
}

static CUresult come_after_all(sim_queue *queue, const sim_nodes *nodes)
{
    if (!sim_nodes_reserve(&queue->captured, queue->captured.count + nodes->count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < nodes->count; i++)
        if (is_captured(queue, nodes->at[i]) && !sim_nodes_have(&queue->captured, nodes->at[i]))
            sim_nodes_add(&queue->captured, nodes->at[i]);
    return CUDA_SUCCESS;
}

static CUresult wait_for_captured(sim_queue *queue, CUevent event)
{
    sim_capture *capture = sim_capture_of_event(event);
    if (!capture)
        return refuse(queue, CUDA_ERROR_INVALID_VALUE);
    if (queue->kind == SIM_QUEUE_LEGACY) {
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (queue->capture && queue->capture != capture) {
        sim_capture_invalidate(capture);
        return refuse(queue, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!queue->capture)
        sim_capture_join(capture, queue);
    return come_after_all(queue, &event->captured);
}

CUresult sim_capture_wait(sim_queue *queue, CUevent event, unsigned flags)
{
    if (flags == CU_EVENT_WAIT_EXTERNAL)
        return add_event_node(queue, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (event->capture)
        return wait_for_captured(queue, event);
    return event->op ? refuse(queue, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
}

/* ---- memory ---- */

CUresult sim_capture_allocate(sim_queue *queue, sim_device *device, size_t bytes, CUdeviceptr *address)
{
    CUgraphNode node = add_node(queue, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    if (!queue->capture->recapture)
        result = sim_allocation_add(node, device, bytes);
    else if (node->memory->block.bytes != bytes || node->memory->block.device != device)
        result = SIM_ERROR_GRAPH_RECAPTURE_FAILURE;
    if (result != CUDA_SUCCESS) {
        give_up_node(queue, node);
        return result;
    }
    come_after(queue, node);
    *address = node->memory->block.address;
    return CUDA_SUCCESS;
}

CUresult sim_capture_free(sim_queue *queue, CUdeviceptr address)
{
    CUgraphNode node = add_node(queue, CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    if (!queue->capture->recapture)
        result = sim_free_add(node, address);
    else if (node->memory->block.address != address)
        result = SIM_ERROR_GRAPH_RECAPTURE_FAILURE;
    if (result != CUDA_SUCCESS) {
        give_up_node(queue, node);
        return result;
    }
    come_after(queue, node);
    return CUDA_SUCCESS;
}
