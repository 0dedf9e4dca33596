/* Graphs: launches that wait for and note the blocks of a capture. */
#include "runtime/graphs.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/object_counts.h"
#include "core/base/size_text.h"
#include "core/stack/calls.h"
#include "core/streams/stream_map.h"
#include "core/streams/stream_wait.h"
#include "runtime/capture_blocks.h"
#include "runtime/graph_events.h"
#include "runtime/graph_frees.h"
#include "runtime/references.h"

#include <strata/conditional.h>
#include <strata/launch.h>

#include <stdio.h>

/* PTDS programs see macros of these names. */
#undef strata_graph_launch
#undef strata_graph_upload
#undef strata_launch_begin

/* ---- making ---- */

strata_status strata_graph_check(const strata_graph *graph, const char *call)
{
    if (!graph)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: graph is NULL", call);
    const strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    strata_device_is_usable_now(graph->record->device); /* or the graph is stale */
    return strata_device_record_is_current(graph->record, graph->word)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_STALE,
                             "%s: the graph is stale: its device's context was rebuilt, or is shutting down", call);
}

const char *strata_graph_node_type(CUgraphNode node)
{
    static const char *const names[] = {"kernel",     "copy", "fill",   "host",       "graph",
                                        "empty",      "wait", "record", "signal",     "semaphore wait",
                                        "allocation", "free", "batch",  "conditional"};
    CUgraphNodeType type;
    if (!node || !strata_cu.GraphNodeGetType || strata_cu.GraphNodeGetType(node, &type) != CUDA_SUCCESS ||
        (unsigned)type >= sizeof names / sizeof names[0])
        return "unknown";
    return names[type];
}

static strata_status instantiate(strata_graph *made, CUgraph graph)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, made->runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.GraphGetNodes(graph, NULL, &made->nodes);
    if (result == CUDA_SUCCESS)
        result = strata_cu.GraphInstantiateWithParams(&made->exec, graph, &parameters);
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, "cuGraphInstantiateWithParams",
                                    "making a graph of %zu nodes (result %d, node %p, type %s)%s", made->nodes,
                                    (int)parameters.result_out, (void *)parameters.hErrNode_out,
                                    strata_graph_node_type(parameters.hErrNode_out),
                                    parameters.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED
                                        ? "; a condition was made for no node"
                                        : "");
    strata_call_scope_leave(&scope);
    return status;
}

static void count_graph(strata_runtime *runtime, bool more)
{
    (more ? strata_object_made : strata_object_ended)(STRATA_OBJECT_GRAPH);
    strata_captures_lock(&runtime->captures);
    runtime->captures.graphs = more ? runtime->captures.graphs + 1 : runtime->captures.graphs - 1;
    strata_captures_unlock(&runtime->captures);
}

void strata_graph_take_uses(strata_graph *graph, strata_capture_uses *uses)
{
    for (size_t i = 0; i < uses->count; i++)
        strata_capture_free_marks(&uses->items[i]);
    graph->uses = *uses;
    graph->listed.listed = false;
    *uses = (strata_capture_uses){0};
}

strata_status strata_graph_make(strata_capture *capture, strata_graph **out)
{
    strata_runtime *runtime = capture->runtime;
    strata_graph *graph = strata_host_zalloc(sizeof *graph);
    if (!graph)
        return strata_fail_host_memory("a graph");
    graph->runtime = runtime;
    graph->record = strata_device_state_record(runtime->state);
    graph->word = capture->pool->word;
    graph->name = capture->name; /* the capture is the caller's alone by now */
    strata_status status = strata_capture_pool_check(capture->pool);
    if (status == STRATA_SUCCESS)
        status = instantiate(graph, capture->graph);
    if (status != STRATA_SUCCESS) {
        strata_host_free(graph);
        return status;
    }
    graph->graph = graph->latest = capture->graph;
    capture->graph = NULL;
    graph->conditionals = capture->conditionals;
    capture->conditionals = 0;
    strata_graph_take_uses(graph, &capture->uses);
    graph->pool = capture->pool;
    strata_capture_pool_hold(graph->pool);
    count_graph(runtime, true);
    strata_graph_tell(graph, STRATA_GRAPH_EVENT_CAPTURE, capture->stream, STRATA_SUCCESS);
    *out = graph;
    return STRATA_SUCCESS;
}

/* ---- launching ---- */

/* Names all blocks that the graph's work may touch: a segment stands for what was freed in the capture. */
static strata_status name_uses(strata_graph *graph, strata_launch *launch)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graph->uses.count && status == STRATA_SUCCESS; i++) {
        const strata_capture_use *use = &graph->uses.items[i];
        if (use->access == STRATA_ACCESS_NONE)
            continue;
        status = strata_launch_use(launch, &use->block, use->access);
        if (status != STRATA_SUCCESS || use->kind != STRATA_CAPTURE_SEGMENT)
            continue;
        strata_error_suppress_begin();
        strata_captures_lock(&graph->runtime->captures);
        for (const strata_pool_block *one = use->pool->blocks; one && status == STRATA_SUCCESS; one = one->next)
            if (one->range->segment->block.id.slot == use->block.id.slot)
                status = strata_launch_use(launch, &one->block, STRATA_ACCESS_WRITE);
        strata_captures_unlock(&graph->runtime->captures);
        strata_error_suppress_end(status != STRATA_SUCCESS);
    }
    return status;
}

static void count_launch(strata_graph *graph)
{
    atomic_fetch_add_explicit(&graph->replays, 1, memory_order_relaxed);
    strata_object_made(STRATA_OBJECT_LAUNCH);
    if (graph->conditionals)
        strata_objects_made(STRATA_OBJECT_CONDITIONAL_LAUNCH, graph->conditionals);
}

/* Refuses a stream that is being captured, since the call would spoil the capture. */
static strata_status check_stream(const strata_graph *graph, CUstream stream, const char *call)
{
    strata_capture_front front;
    const strata_status status = strata_capture_ask(graph->runtime->device, stream, &front);
    if (status != STRATA_SUCCESS || front.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return status;
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "%s: the stream is being captured", call);
}

/* Whether nothing has asked about the stream's capture by other code: the graph has no blocks, and the stream is
 * unknown. */
static bool is_unasked(const strata_graph *graph, CUstream stream)
{
    return !graph->uses.count && !strata_known_timeline(graph->runtime->device, stream);
}

static strata_status launch_now(strata_graph *graph, CUstream stream)
{
    strata_call_scope scope;
    strata_status status =
        is_unasked(graph, stream) ? check_stream(graph, stream, "strata_graph_launch") : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, graph->runtime->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.GraphLaunch(graph->exec, stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuGraphLaunch", "launching a graph of %zu nodes%s",
                                                       graph->nodes, strata_stream_hint(result));
}

/* Cancels after a failure, whose error stays in force. */
static void cancel(strata_launch *launch)
{
    const strata_error failed = *strata_error_in_force();
    strata_launch_cancel(launch);
    *strata_error_begin(failed.status) = failed;
}

/* Launches through the launch recorder, so that every layer hears of the uses. *again: a block of the pool was freed
 * meanwhile; the caller tries again without it. */
static strata_status launch_through_layers(strata_graph *graph, CUstream stream, bool *again)
{
    strata_launch launch;
    *again = false;
    strata_status status = strata_launch_begin(
        &launch, graph->runtime, stream, graph->runtime->tracks ? STRATA_LAUNCH_STRICT : STRATA_LAUNCH_PERMISSIVE);
    if (status != STRATA_SUCCESS)
        return status;
    launch.of_graph = true;
    status = name_uses(graph, &launch);
    if (status == STRATA_SUCCESS) {
        strata_error_suppress_begin();
        status = strata_launch_preflight(&launch);
        *again = status == STRATA_ERROR_USE_AFTER_FREE;
        strata_error_suppress_end(status != STRATA_SUCCESS && !*again);
    }
    if (status == STRATA_SUCCESS) {
        status = launch_now(graph, stream);
        if (status == STRATA_SUCCESS) {
            count_launch(graph);
            status = strata_launch_commit(&launch);
        } else {
            cancel(&launch);
        }
    }
    strata_launch_end(&launch);
    return status;
}

/* Records a use of each of the pools' blocks that are listed now and not freed. */
static strata_status note_blocks_of_pool(const strata_graph *graph, CUstream stream)
{
    strata_resource *top = graph->runtime->top;
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < graph->listed.count && status == STRATA_SUCCESS; i++) {
        if (!graph->listed.items[i].of_pool)
            continue;
        status = top->ops->record_use(top, &graph->listed.blocks[i], stream, STRATA_ACCESS_WRITE);
        if (status == STRATA_ERROR_USE_AFTER_FREE)
            status = STRATA_SUCCESS;
    }
    return status;
}

/* After the notes of a launch: blocks of the pool that a capture has made since the uses were listed have inherited
 * what was noted for their segment by then; the launch is noted for them here, if it was not. Both sides write, fence,
 * and read what the other one writes. */
static strata_status note_late_blocks(strata_graph *graph, CUstream stream, uint64_t changes)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (strata_graph_uses_changes(&graph->uses, graph->pool) == changes || !graph->runtime->tracks)
        return STRATA_SUCCESS;
    strata_error_suppress_begin();
    strata_status status = strata_graph_uses_list(&graph->listed, &graph->uses, graph->pool);
    if (status != STRATA_SUCCESS)
        status = strata_stream_wait_instead(graph->runtime->device, stream, status);
    else
        status = note_blocks_of_pool(graph, stream);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static strata_status launch_plainly(strata_graph *graph, CUstream stream)
{
    strata_point noted = 0;
    strata_status status = strata_graph_uses_list(&graph->listed, &graph->uses, graph->pool);
    if (status == STRATA_SUCCESS)
        status = strata_graph_uses_wait(&graph->listed, graph->runtime, stream, &noted);
    if (status == STRATA_SUCCESS)
        status = launch_now(graph, stream);
    if (status != STRATA_SUCCESS)
        return status;
    count_launch(graph);
    const uint64_t changes = graph->listed.changes;
    status = strata_graph_uses_note(&graph->listed, graph->runtime, stream, noted);
    return status == STRATA_SUCCESS ? note_late_blocks(graph, stream, changes) : status;
}

/* The launches' lock is held. */
static strata_status launch_tracked(strata_graph *graph, CUstream stream)
{
    strata_status status;
    bool again;
    uint64_t changes;
    if (graph->runtime->tracks_plainly)
        return launch_plainly(graph, stream);
    do {
        changes = strata_graph_uses_changes(&graph->uses, graph->pool);
        status = launch_through_layers(graph, stream, &again);
    } while (again);
    return status == STRATA_SUCCESS ? note_late_blocks(graph, stream, changes) : status;
}

static void unlock_launches(strata_graph *graph, size_t parts)
{
    for (size_t i = 0; i < parts; i++)
        if (graph->uses.parts[i] != graph->pool)
            strata_lock_release(&graph->uses.parts[i]->launches);
    strata_lock_release(&graph->pool->launches);
}

/* Takes the launches' locks of all pools whose memory the graph uses: of its own pool, which guards the list of the
 * others, and then of the others, all or none, as another graph may take them in the opposite order. */
static void lock_launches(strata_graph *graph)
{
    size_t taken;
    bool all;
    for (unsigned spins = 0;; strata_backoff(&spins)) {
        strata_lock_take(&graph->pool->launches);
        for (taken = 0, all = true; taken < graph->uses.part_count && all; taken += all)
            all =
                graph->uses.parts[taken] == graph->pool || strata_lock_try_beside(&graph->uses.parts[taken]->launches);
        if (all)
            return;
        unlock_launches(graph, taken);
    }
}

strata_status strata_graph_check_call(const strata_graph *graph, const char *call, strata_graph_event_kind kind,
                                      CUstream stream)
{
    const strata_status status = strata_graph_check(graph, call);
    if (status == STRATA_ERROR_STALE)
        strata_graph_tell(graph, kind, stream, status);
    return status;
}

strata_status strata_graph_launch(strata_graph *graph, CUstream stream)
{
    strata_status status = strata_graph_check_call(graph, "strata_graph_launch", STRATA_GRAPH_EVENT_LAUNCH, stream);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_captures_any(graph->runtime) && strata_captured_launch(graph, stream, &status))
        return status;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    lock_launches(graph);
    status = launch_tracked(graph, stream);
    unlock_launches(graph, graph->uses.part_count);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_graph_tell(graph, STRATA_GRAPH_EVENT_LAUNCH, stream, status);
    strata_references_free_deferred(graph->runtime); /* of memory that the launch had prepared */
    return status;
}

/* Uploads the graph, once. *uploads: false if it was uploaded already. */
static strata_status upload_now(strata_graph *graph, CUstream stream, bool *uploads)
{
    CUresult result = CUDA_SUCCESS;
    strata_lock_take(&graph->pool->launches);
    *uploads = !atomic_load_explicit(&graph->uploaded, memory_order_relaxed);
    if (*uploads)
        result = strata_cu.GraphUpload(graph->exec, stream);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&graph->uploaded, true, memory_order_release);
    strata_lock_release(&graph->pool->launches);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuGraphUpload", "uploading a graph of %zu nodes%s",
                                                       graph->nodes, strata_stream_hint(result));
}

static strata_status upload(strata_graph *graph, CUstream stream, bool *uploads)
{
    strata_call_scope scope;
    if (!strata_cu.GraphUpload)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_graph_upload: the driver has no cuGraphUpload");
    strata_status status = check_stream(graph, stream, "strata_graph_upload");
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, graph->runtime->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    status = upload_now(graph, stream, uploads);
    strata_call_scope_leave(&scope);
    return status;
}

strata_status strata_graph_upload(strata_graph *graph, CUstream stream)
{
    bool uploads = true;
    strata_status status = strata_graph_check_call(graph, "strata_graph_upload", STRATA_GRAPH_EVENT_UPLOAD, stream);
    if (status != STRATA_SUCCESS || atomic_load_explicit(&graph->uploaded, memory_order_acquire))
        return status;
    status = upload(graph, stream, &uploads);
    if (uploads)
        strata_graph_tell(graph, STRATA_GRAPH_EVENT_UPLOAD, stream, status);
    return status;
}

/* ---- facts ---- */

uint64_t strata_graph_num_replays(const strata_graph *graph)
{
    return graph ? atomic_load_explicit(&graph->replays, memory_order_relaxed) : 0;
}

bool strata_graph_is_uploaded(const strata_graph *graph)
{
    return graph && atomic_load_explicit(&graph->uploaded, memory_order_acquire);
}

static bool has_memory(const strata_graph *graph)
{
    strata_lock_take(&graph->pool->launches);
    const bool has = strata_capture_took_memory(&graph->uses, graph->pool);
    strata_lock_release(&graph->pool->launches);
    return has;
}

/* In a forked child a thread that it lacks may have the launches' lock. */
static bool can_look_at(const strata_graph *graph)
{
    return graph && strata_driver_state_now() != STRATA_DRIVER_FORKED;
}

bool strata_graph_has_pool(const strata_graph *graph)
{
    return can_look_at(graph) && (!graph->pool->is_private || has_memory(graph));
}

bool strata_graph_has_private_pool(const strata_graph *graph)
{
    return can_look_at(graph) && graph->pool->is_private && has_memory(graph);
}

strata_capture_pool *strata_graph_pool(const strata_graph *graph)
{
    return graph ? graph->pool : NULL;
}

size_t strata_graph_pool_buffer_count(const strata_graph *graph)
{
    return strata_capture_pool_buffer_count(strata_graph_pool(graph));
}

size_t strata_graph_node_count(const strata_graph *graph)
{
    return graph ? graph->nodes : 0;
}

size_t strata_graph_conditional_count(const strata_graph *graph)
{
    return graph ? graph->conditionals : 0;
}

const char *strata_graph_name(const strata_graph *graph)
{
    return graph ? strata_tag_name(graph->name) : NULL;
}

uint64_t strata_graph_generation(const strata_graph *graph)
{
    return graph ? graph->word >> STRATA_RECORD_GENERATION : 0;
}

strata_status strata_graph_refuse_frees(strata_graph *graph, bool refuse)
{
    if (!graph)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graph_refuse_frees: graph is NULL");
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&graph->pool->launches);
    strata_captures_lock(&graph->runtime->captures);
    for (size_t i = 0; i < graph->uses.count && refuse != graph->refusing; i++)
        if (graph->uses.items[i].kind == STRATA_CAPTURE_OUTSIDE)
            strata_kept_refuse(&graph->runtime->captures.kept, &graph->uses.items[i].block, refuse);
    graph->refusing = refuse;
    strata_captures_unlock(&graph->runtime->captures);
    strata_lock_release(&graph->pool->launches);
    return STRATA_SUCCESS;
}

strata_status strata_graph_dot(const strata_graph *graph, const char *path)
{
    const strata_status status = strata_graph_check(graph, "strata_graph_dot");
    if (status != STRATA_SUCCESS)
        return status;
    if (!path)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_graph_dot: path is NULL");
    if (!strata_cu.GraphDebugDotPrint)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "strata_graph_dot: the driver has no cuGraphDebugDotPrint");
    strata_lock_take(&graph->pool->launches); /* an update replaces it */
    const CUresult result = strata_cu.GraphDebugDotPrint(graph->latest, path, 0);
    strata_lock_release(&graph->pool->launches);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuGraphDebugDotPrint", "writing a graph to \"%s\"", path);
}

void strata_graph_print(const strata_graph *graph, strata_write_callback write, void *data)
{
    char text[768]; /* two names of 255 bytes fit */
    char conditional[48] = "";
    size_t outside = 0;
    strata_capture_pool_usage usage;
    if (!can_look_at(graph) || !write)
        return;
    strata_lock_take(&graph->pool->launches);
    for (size_t i = 0; i < graph->uses.count; i++)
        outside += graph->uses.items[i].kind == STRATA_CAPTURE_OUTSIDE;
    strata_lock_release(&graph->pool->launches);
    strata_capture_pool_get_usage(graph->pool, &usage);
    if (graph->conditionals)
        snprintf(conditional, sizeof conditional, " (%zu conditional with bodies)", graph->conditionals);
    int length = snprintf(text, sizeof text,
                          "graph \"%s\" of %zu nodes%s, generation %llu: %zu blocks from outside, pool \"%s\" of %s, "
                          "%llu launches",
                          strata_graph_name(graph), graph->nodes, conditional,
                          (unsigned long long)strata_graph_generation(graph), outside,
                          strata_tag_name(strata_capture_pool_tag(graph->pool)), strata_size_text(usage.reserved).text,
                          (unsigned long long)strata_graph_num_replays(graph));
    if (length >= (int)sizeof text)
        length = (int)sizeof text - 1;
    write(text, (size_t)length, data);
}

/* ---- the end ---- */

strata_status strata_capture_uses_drop(strata_runtime *runtime, strata_capture_uses *uses, bool refusing)
{
    strata_status status = STRATA_SUCCESS;
    strata_graphs_free_due(runtime);
    for (size_t i = 0; i < uses->count; i++) {
        strata_capture_use *use = &uses->items[i];
        strata_capture_free_marks(use);
        if (use->kind != STRATA_CAPTURE_OUTSIDE)
            continue;
        strata_captures_lock(&runtime->captures);
        if (refusing)
            strata_kept_refuse(&runtime->captures.kept, &use->block, false);
        struct strata_kept_block *dropped = strata_kept_drop(&runtime->captures.kept, runtime->table, &use->block);
        strata_captures_unlock(&runtime->captures);
        const strata_status one = dropped ? strata_graph_free_dropped(runtime, dropped) : STRATA_SUCCESS;
        status = status == STRATA_SUCCESS ? one : status;
    }
    for (size_t i = 0; i < uses->ref_count; i++)
        strata_ref_release(uses->refs[i]);
    for (size_t i = 0; i < uses->part_count; i++) {
        const strata_status one = strata_capture_pool_unhold(uses->parts[i]);
        status = status == STRATA_SUCCESS ? one : status;
    }
    strata_capture_free_uses(uses);
    return status;
}

/* Destroys the driver's graphs, in relaxed mode, since the end of an executable graph would spoil captures
 * (sim/driver/graph_exec.c). A call that fails is not tried again: the error may be that of earlier work, and the
 * object be gone. */
static void destroy_for_driver(const strata_graph *graph)
{
    strata_call_scope scope;
    strata_error_suppress_begin();
    const strata_status entered =
        strata_call_scope_enter(&scope, graph->runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    strata_cu.GraphExecDestroy(graph->exec);
    if (graph->latest != graph->graph)
        strata_cu.GraphDestroy(graph->latest);
    strata_cu.GraphDestroy(graph->graph);
    if (entered == STRATA_SUCCESS)
        strata_call_scope_leave(&scope);
}

strata_status strata_graph_destroy(strata_graph *graph)
{
    const strata_status usable = strata_check_not_forked();
    if (!graph || usable != STRATA_SUCCESS)
        return usable;
    strata_runtime *runtime = graph->runtime;
    if (strata_device_is_usable_now(runtime->device))
        destroy_for_driver(graph);
    strata_status status = strata_capture_uses_drop(runtime, &graph->uses, graph->refusing);
    const strata_status unheld = strata_capture_pool_unhold(graph->pool);
    strata_graph_uses_free(&graph->listed);
    strata_objects_ended(STRATA_OBJECT_CONDITIONAL, graph->conditionals);
    strata_host_free(graph);
    count_graph(runtime, false);
    return status == STRATA_SUCCESS ? unheld : status;
}
