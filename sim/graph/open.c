/* The start of the graphs' room: its hooks, kinds of work and slabs. */
#include "graph/graph.h"

static const sim_graph_hooks hooks = {
    .capture_op = sim_capture_op,
    .capture_submit = sim_capture_submit,
    .capture_record = sim_capture_record,
    .capture_wait = sim_capture_wait,
    .capture_allocate = sim_capture_allocate,
    .capture_free = sim_capture_free,
    .queue_gone = sim_capture_forget_queue,
    .memory_around = sim_graph_memory_around,
    .memory_freed = sim_graph_memory_freed,
    .block_free = sim_graph_block_free,
    .block_free_now = sim_graph_block_free_now,
    .condition_set = sim_condition_set,
};

bool sim_graph_open(void)
{
    sim_hooks.graph = &hooks;
    sim_op_types[SIM_OP_CONDITIONAL] =
        (sim_op_type){.reached = sim_conditional_reached, .discard = sim_conditional_discard};
    return sim_slab_open(&sim_graph.graphs, sizeof(struct CUgraph_st)) &&
           sim_slab_open(&sim_graph.nodes, sizeof(struct CUgraphNode_st)) &&
           sim_slab_open(&sim_graph.execs, sizeof(struct CUgraphExec_st)) &&
           sim_slab_open(&sim_graph.objects, sizeof(struct CUuserObject_st)) &&
           sim_slab_open(&sim_graph.conditions, sizeof(sim_condition));
}

void sim_graph_close(void)
{
    sim_slab_close(&sim_graph.graphs);
    sim_slab_close(&sim_graph.nodes);
    sim_slab_close(&sim_graph.execs);
    sim_slab_close(&sim_graph.objects);
    sim_graph.dead_conditions = NULL;
    sim_slab_close(&sim_graph.conditions);
}
