/* Graphs, executable graphs, their memory, captures. Guarded by sim.lock. */
#ifndef STRATA_SIM_GRAPH_GRAPH_H
#define STRATA_SIM_GRAPH_GRAPH_H

#include "kernels/kernels.h"
#include <stdio.h>

/* ---- graph_blocks.c ---- */

/* A graph's addresses on a device, backed with memory while any of its allocations exists. */
typedef struct sim_graph_arena {
    unsigned references; /* slots */
    sim_device *device;
    uint64_t bytes; /* of all slots */
    uint64_t held;  /* device memory, whole chunks */
    size_t busy;    /* launched allocations whose frees have not run */
} sim_graph_arena;

/* An address range for allocations that follow one another. */
typedef struct sim_graph_slot {
    unsigned references; /* memories */
    sim_graph_arena *arena;
    sim_extent *extent;
    sim_graph_memory *latest; /* last allocation at this address */
    sim_op *freed;            /* last launched free, held; the next allocation waits for it */
} sim_graph_slot;

/* An allocation node's memory. The host knows its block while a launch's allocation is left for the program to free. */
typedef struct sim_graph_memory {
    unsigned references;               /* nodes, executable graphs, unfreed allocations */
    struct sim_graph_memory *previous; /* in the device's list */
    struct sim_graph_memory *next;
    sim_graph_slot *slot;
    sim_block block;
    bool out;             /* allocated by a launch, free not called yet */
    bool outlives;        /* instantiated without a free: its own graph may not free it any more */
    CUgraphNode freed;    /* node of its own graph that frees it */
    size_t foreign_frees; /* nodes of other graphs that free it */
    uint64_t graph;       /* id of its own graph */
} sim_graph_memory;

/* Memory of a device's graphs. */
typedef struct sim_graph_pool {
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used_high;
    uint64_t idle;              /* reserved, but behind no graph's addresses */
    sim_graph_memory *memories; /* all that this device's graphs may allocate */
} sim_graph_pool;

/* Makes the memory of a new allocation node, which is in its graph. */
CUresult sim_graph_memory_create(CUgraphNode node, sim_device *device, uint64_t bytes);
sim_graph_memory *sim_graph_memory_hold(sim_graph_memory *memory);
void sim_graph_memory_drop(sim_graph_memory *memory);
sim_graph_memory *sim_graph_memory_find(uint64_t address, CUgraph graph); /* that the graph may free */
bool sim_graph_memory_back(sim_graph_memory *memory); /* backs it with device memory; false without any */

/* A launch allocates the memory by this operation, which is not submitted yet, and has room for one more dependency.
 * `stays`: the launch does not free it. */
void sim_graph_memory_allocated(sim_graph_memory *memory, sim_op *op, bool stays);
bool sim_graph_memory_around(uint64_t address, uint64_t bytes); /* may a graph allocate the range? */
void sim_graph_memory_freed(sim_graph_memory *memory, sim_op *op);
void sim_graph_block_free(sim_block *block); /* when the freeing operation runs */
void sim_graph_block_free_now(sim_block *block);
void sim_graph_memories_close(void);
void sim_graphs_count(uint64_t *graphs, uint64_t *execs); /* without embedded ones */
void sim_graphs_close(void);
void sim_captures_close(void);
CUresult sim_graph_memory_get_attribute(const sim_graph_pool *pool, CUgraphMem_attribute attribute, cuuint64_t *value);
CUresult sim_graph_memory_set_attribute(sim_graph_pool *pool, CUgraphMem_attribute attribute, cuuint64_t value);

/* ---- user_object.c ---- */

struct CUuserObject_st {
    sim_handle handle;
    uint64_t references;
    CUhostFn destroy;
    void *data;
};

typedef struct sim_object_reference {
    CUuserObject object;
    uint64_t count;
} sim_object_reference;

typedef struct sim_object_references {
    sim_object_reference *at;
    size_t count;
} sim_object_references;

bool sim_objects_copy(sim_object_references *to, const sim_object_references *from);
void sim_objects_free(sim_object_references *references);
bool sim_user_object_add(sim_object_references *references, CUuserObject object, uint64_t count);
void sim_user_object_release(CUuserObject object, uint64_t count);
uint64_t sim_user_object_take(sim_object_references *references, CUuserObject object, uint64_t count);
bool sim_user_object_valid(CUuserObject object);

/* ---- condition.c ---- */

/* A value that kernels set and a conditional node reads. Its handle is its address. */
typedef struct sim_condition {
    sim_handle handle;
    unsigned references;        /* graph, nodes, executable graphs, launches */
    struct sim_condition *next; /* in its graph, or among the dead ones */
    sim_context *context;
    unsigned initial;
    bool has_initial;
    bool used;       /* by a node */
    unsigned value;  /* that the launch has set */
    uint64_t launch; /* number; 0: none yet */
} sim_condition;

/* What a conditional node has; all zero in other nodes. */
typedef struct sim_branches {
    sim_condition *condition; /* held */
    CUgraphConditionalNodeType type;
    unsigned count;
    CUgraph *bodies; /* owned; the program reads the array */
} sim_branches;

CUresult sim_condition_create(CUgraph graph, CUcontext context, unsigned initial, unsigned flags,
                              CUgraphConditionalHandle *handle);
void sim_condition_drop(sim_condition *condition);
bool sim_condition_set(const sim_op *kernel, uint64_t handle, unsigned value);
bool sim_condition_get(const sim_condition *condition, uint64_t launch, unsigned *value); /* false: undefined */
bool sim_conditions_used(CUgraph graph); /* all of them, those for bodies too */
void sim_conditions_free(CUgraph graph);

/* Gives a new node its bodies. */
CUresult sim_branches_add(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *params);
void sim_branches_free(sim_branches *branches);

/* Whether the body has only what a conditional node of the context can run; else *wrong is the node that it cannot. */
bool sim_body_good(CUgraph body, const sim_context *context, CUgraphNode *wrong);
CUgraphInstantiateResult sim_body_fault(CUgraphNode wrong); /* what its instantiation says of the wrong node */

/* ---- graph.c ---- */

struct CUgraphNode_st {
    sim_handle handle;
    CUgraph graph;
    CUgraphNode previous; /* in the graph, in order of addition */
    CUgraphNode next;
    uint64_t id;       /* unique in the process */
    uint64_t original; /* id of its clone source, or 0 */
    CUgraphNodeType type;
    sim_made made;      /* cloned, too */
    sim_nodes after;    /* dependencies */
    sim_nodes before;   /* dependents */
    sim_op what;        /* kind, context and work of its operations */
    CUDA_MEMCPY3D copy; /* of a copy: as the user wrote it */
    CUevent event;
    CUgraph child;            /* owned */
    sim_branches branches;    /* of a conditional node */
    sim_graph_memory *memory; /* held */
    size_t index;             /* scratch of graph walks */
};

struct CUgraph_st {
    sim_handle handle;
    CUgraphNode first;
    CUgraphNode last;
    size_t count;
    uint64_t id;
    uint64_t original;     /* id of its clone source, or 0 */
    bool embedded;         /* child, or body, of a node */
    bool allocates;        /* a call has added a memory node to it, or tried to */
    CUgraphNode body_of;   /* a conditional node; NULL: no body */
    sim_nodes roots;       /* the latest root last */
    sim_nodes leaves;      /* the latest leaf last */
    sim_capture *capture;  /* that adds to it now */
    CUgraphExec only_exec; /* a graph that allocates, or has conditional nodes, has at most one */
    sim_object_references objects;
    sim_condition *conditions; /* made for it; held */
};

bool sim_graph_valid(CUgraph graph);
bool sim_node_valid(CUgraphNode node);
CUgraph sim_graph_create(void);
void sim_graph_free(CUgraph graph);
CUresult sim_graph_clone(CUgraph graph, CUgraph *clone);
bool sim_graph_has_memory(CUgraph graph);
bool sim_graph_has_conditionals(CUgraph graph);

/* A new node after `after`; the caller fills in its parameters and `made`. NULL without memory. */
CUgraphNode sim_node_create(CUgraph graph, CUgraphNodeType type, const CUgraphNode *after, size_t count);
void sim_node_free(CUgraphNode node);
bool sim_edge_add(CUgraphNode from, CUgraphNode to);
void sim_edge_remove(CUgraphNode from, CUgraphNode to);
CUresult sim_dependencies_check(CUgraph graph, const CUgraphNode *nodes, size_t count);

/* Sets `index` to 1 in `last` and all before them, to 0 elsewhere. False without memory. */
bool sim_graph_mark(CUgraph graph, const sim_nodes *last);

/* Copies kind, context and work, replacing those of `to`. False without memory. */
bool sim_work_copy(sim_op *to, const sim_op *from);
void sim_work_free(sim_op *what);

/* ---- params.c ---- */

CUresult sim_fill_describe(sim_op *what, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context);
CUresult sim_copy_describe(sim_op *what, CUDA_MEMCPY3D *kept, const CUDA_MEMCPY3D *params, CUcontext context);
CUDA_KERNEL_NODE_PARAMS sim_kernel_newer(const CUDA_KERNEL_NODE_PARAMS_v1 *params);
CUresult sim_kernel_set(sim_op *what, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult sim_host_describe(sim_op *what, const CUDA_HOST_NODE_PARAMS *params);

/* ---- node.c ---- */

CUresult sim_allocation_add(CUgraphNode node, sim_device *device, uint64_t bytes);
CUresult sim_free_add(CUgraphNode node, CUdeviceptr address);
CUresult sim_allocation_good(CUgraph graph, const CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult sim_child_good(CUgraph child);
CUresult sim_node_embed(CUgraphNode node, CUgraph child);

/* ---- exec.c ---- */

typedef struct sim_exec_node {
    CUgraphNode node; /* that it was made from: compared only, with its id */
    uint64_t id;
    CUgraphNodeType type;
    sim_made made; /* of its node */
    bool enabled;
    bool own;        /* memory of this graph */
    bool freed_here; /* by this graph */
    sim_op what;
    CUDA_MEMCPY3D copy;
    CUevent event;
    CUgraphExec child;        /* owned */
    sim_condition *condition; /* of a conditional node; held */
    CUgraphConditionalNodeType form;
    CUgraphExec *bodies; /* owned */
    unsigned body_count;
    sim_graph_memory *memory; /* held */
    size_t *after;            /* indices of its dependencies */
    size_t after_count;
    size_t before_count;
    sim_op *op;                  /* of the launch in progress; held */
    sim_kernel_launch *launched; /* of the launch in progress */
    sim_conditional *instance;   /* of the launch in progress */
} sim_exec_node;

/* Nodes in order of addition; `order` is topological. */
struct CUgraphExec_st {
    sim_handle handle;
    sim_exec_node *nodes;
    size_t *order;
    size_t count;
    size_t *leaves; /* as in the graph */
    size_t leaf_count;
    bool embedded;     /* belongs to a node */
    CUgraphNode wrong; /* while it is made: a node with cyclic dependencies */
    unsigned long long flags;
    CUgraph graph; /* that it was made from: compared only, with its id */
    uint64_t graph_id;
    sim_op *last; /* end of the last launch; held */
    sim_object_references objects;
};

/* `wrong`: the node that made it fail, or NULL. */
CUresult sim_exec_create(CUgraph graph, unsigned long long flags, CUgraphExec *exec, CUgraphNode *wrong);
void sim_exec_free(CUgraphExec exec);
bool sim_exec_valid(CUgraphExec exec);
CUresult sim_exec_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags, CUgraphNode *wrong);
CUresult sim_exec_launch(CUgraphExec exec, sim_queue *queue);
CUresult sim_exec_upload(CUstream stream);
void sim_exec_take_memory(sim_exec_node *to, CUgraphNode node); /* in place of what it had */

/* After CUDA_ERROR_NOT_SUPPORTED *info is not written. */
CUresult sim_exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info);

/* ---- conditional.c ---- */

sim_conditional *sim_conditional_create(const sim_exec_node *node); /* for one launch; NULL without memory */
void sim_conditional_free(sim_conditional *conditional);
void sim_conditional_submit(sim_op *op); /* that has it as its work, and all edges */
bool sim_conditional_reached(sim_op *op);
void sim_conditional_discard(sim_op *op);

/* ---- capture.c ---- */

CUresult sim_capture_ask(CUstream stream, CUstreamCaptureStatus *status, sim_queue **queue);
CUresult sim_capture_begin(sim_queue *queue, CUgraph graph, CUstreamCaptureMode mode);
CUresult sim_capture_begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t count,
                                    CUstreamCaptureMode mode);
CUresult sim_capture_check_begin(CUstream stream, CUstreamCaptureMode mode, sim_queue **queue);
CUresult sim_capture_end(CUstream stream, CUgraph *graph);
CUresult sim_capture_update(CUstream stream, const CUgraphNode *nodes, size_t count, unsigned flags);
void sim_capture_forget_queue(sim_queue *queue);
void sim_capture_forget_graph(CUgraph graph); /* that goes, or whose node goes */

/* ---- recapture.c ---- */

enum { SIM_RECAPTURE_ELIGIBLE = 0, SIM_RECAPTURE_INELIGIBLE = 1 };
#define SIM_ERROR_GRAPH_RECAPTURE_FAILURE ((CUresult)918)

/* The last argument is a CUgraphRecaptureStatus. */
#if CUDA_VERSION >= 13030
typedef CUgraphRecaptureCallback sim_recapture_callback;
#else
typedef CUresult (*sim_recapture_callback)(void *data, CUgraphNode node, const CUgraphNodeParams *before,
                                           const CUgraphNodeParams *now, int status);
#endif

CUresult sim_recapture_begin(CUstream stream, CUgraph graph, CUstreamCaptureMode mode, sim_recapture_callback callback,
                             void *data);
void sim_recapture_end(sim_capture *capture);                           /* also of a plain capture */
void sim_recapture_fail(sim_capture *capture);                          /* the call answers so at its end */
CUgraphNode sim_recapture_take(sim_queue *queue, CUgraphNodeType type); /* for the queue's call; NULL: it fails */
bool sim_recapture_complete(const sim_capture *capture);                /* no node is left */

/* Notes what the captured call makes of a node, if that differs from what the node is. Takes over the work. */
void sim_recapture_compare(CUgraphNode node, sim_op *what, const CUDA_MEMCPY3D *copy, CUevent event);

/* At the end of a call, if there is sim_graph.unsettled: takes and returns the call's result. May release sim.lock
 * meanwhile. */
CUresult sim_recapture_settle(CUresult result);

/* ---- capture_work.c ---- */

sim_op *sim_capture_op(sim_context *context, sim_queue *queue, sim_op_kind kind);
void sim_capture_submit(sim_op *op);
CUresult sim_capture_record(sim_queue *queue, CUevent event, unsigned flags);
CUresult sim_capture_wait(sim_queue *queue, CUevent event, unsigned flags);
CUresult sim_capture_allocate(sim_queue *queue, sim_device *device, size_t bytes, CUdeviceptr *address);
CUresult sim_capture_free(sim_queue *queue, CUdeviceptr address);

/* ---- dot.c ---- */

void sim_graph_write_dot(FILE *file, CUgraph graph);

/* ---- edges.c ---- */

CUresult sim_graph_add_edge(CUgraphNode from, CUgraphNode to);
size_t sim_graph_count_edges(CUgraph graph);
bool sim_graph_edge_good(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data);
void sim_graph_give_nodes(const CUgraphNode *from, size_t have, CUgraphNode *nodes, CUgraphEdgeData *data,
                          size_t *count);
size_t sim_graph_list_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t room);
CUresult sim_graph_remove_edge(CUgraphNode from, CUgraphNode to);

/* ---- exec_update.c ---- */

bool sim_exec_compatible(const sim_op *old, const sim_op *other);
sim_exec_node *sim_exec_find_node(CUgraphExec exec, CUgraphNode node);
CUresult sim_exec_replace_all(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info);

/* ---- state.c ---- */

typedef struct sim_graph_state {
    sim_slab graphs, nodes, execs, objects, conditions;
    sim_condition *dead_conditions; /* that kernels which were launched before may still set */
    sim_graph_pool pools[SIM_MAX_DEVICES];
    uint64_t last_id;       /* of graphs, nodes and captures */
    sim_capture *unsettled; /* whose recapture has something to settle at the end of the call; or NULL */
} sim_graph_state;

extern sim_graph_state sim_graph;

bool sim_graph_open(void);
void sim_graph_close(void);

#endif
