/* Conditional nodes in captures: conditions, and the beginning and the end of bodies.
 *
 *     capture of `stream`      a ---- node ---- b
 *                                      |
 *     capture of `body`                c ---- d       copied into the node; a capture with the same pool
 */
#include <strata/conditional.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/object_counts.h"
#include "runtime/capture_blocks.h"
#include "runtime/captures.h"

/* PTDS programs see macros of these names. */
#undef strata_capture_condition
#undef strata_capture_if
#undef strata_capture_if_else
#undef strata_capture_while
#undef strata_capture_switch
#undef strata_capture_body_next
#undef strata_capture_body_close

static strata_status check_driver_has(const char *call)
{
    const char *missing = !strata_cu.GraphConditionalHandleCreate ? "cuGraphConditionalHandleCreate"
                          : !strata_cu.GraphAddNode               ? "cuGraphAddNode"
                          : !strata_cu.GraphAddChildGraphNode     ? "cuGraphAddChildGraphNode"
                          : !strata_cu.StreamBeginCaptureToGraph  ? "cuStreamBeginCaptureToGraph"
                          : !strata_cu.GraphAddDependencies       ? "cuGraphAddDependencies"
                                                                  : NULL;
    return missing ? strata_fail(STRATA_ERROR_UNSUPPORTED,
                                 "%s: conditional nodes need a driver of CUDA 12.3 or later; this one has no %s", call,
                                 missing)
                   : STRATA_SUCCESS;
}

/* Finds the runtime's capture that the stream is in, and *front, the stream's place there. With `opens`, no other
 * thread opens a body in the capture or ends it until stop_opening. */
static strata_status find_around(strata_runtime *runtime, CUstream stream, bool opens, const char *call,
                                 strata_capture_front *front, strata_capture **out)
{
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = check_driver_has(call);
    if (status == STRATA_SUCCESS)
        status = strata_capture_ask(runtime->device, stream, front);
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&runtime->captures);
    strata_capture *found =
        front->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? strata_capture_find(runtime, front->id) : NULL;
    const bool open = found && strata_capture_has_body(found), ending = found && found->ending;
    if (found && !open && !ending)
        found->opening = opens;
    strata_captures_unlock(&runtime->captures);
    *out = found;
    if (ending)
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "%s: another thread ends the capture", call);
    if (!found)
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                           "%s: the stream is in no capture of this runtime, or in one that was spoiled", call);
    return open ? strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                              "%s: the body of another conditional node in the capture is open; close it before", call)
                : STRATA_SUCCESS;
}

static strata_status stop_opening(strata_capture *around, strata_status status)
{
    strata_captures_lock(&around->runtime->captures);
    around->opening = false;
    strata_captures_unlock(&around->runtime->captures);
    return status;
}

/* Whether nothing was noted in the body, nor captured on its stream. */
static bool is_empty(strata_capture *body)
{
    strata_capture_front front;
    strata_captures_lock(&body->runtime->captures);
    const bool noted = body->uses.count != 0;
    strata_captures_unlock(&body->runtime->captures);
    return !noted && strata_capture_ask(body->runtime->device, body->stream, &front) == STRATA_SUCCESS &&
           front.id == body->id && front.count == 0;
}

/* A body that is to have conditional nodes is captured anew, into its node's graph: fill_body in captured_uses.c. */
static strata_status make_nest(strata_capture *body, const char *call)
{
    strata_call_scope scope;
    CUgraph nothing = NULL;
    if (!body->body_of || body->body_of->nests)
        return STRATA_SUCCESS;
    if (!is_empty(body))
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "%s: a body that has conditional nodes makes its first condition before its first work",
                           call);
    strata_status status = strata_call_scope_enter(&scope, body->runtime->device, strata_call_scope_for(body->stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamEndCapture(body->stream, &nothing);
    if (nothing)
        strata_cu.GraphDestroy(nothing);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuStreamEndCapture", "beginning a body with conditional nodes");
    strata_captures_lock(&body->runtime->captures);
    body->ended = true; /* until it has begun again */
    body->body_of->nests = true;
    strata_captures_unlock(&body->runtime->captures);
    return strata_capture_begin_for_driver(body);
}

/* As make_nest, and asks again where the stream stands: the driver may have another capture on it now. */
static strata_status nest(strata_capture *around, CUstream stream, const char *call, strata_capture_front *front)
{
    strata_status status = make_nest(around, call);
    if (status == STRATA_SUCCESS)
        status = strata_capture_ask(around->runtime->device, stream, front);
    if (status == STRATA_SUCCESS && front->id != around->id)
        status =
            strata_fail(STRATA_ERROR_STREAM_CAPTURE, "%s: the body on the stream could not be captured anew", call);
    return status;
}

strata_status strata_capture_condition(strata_runtime *runtime, CUstream stream, const unsigned *initial,
                                       CUgraphConditionalHandle *out)
{
    strata_capture *around;
    strata_capture_front front;
    strata_call_scope scope;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_condition: out is NULL");
    *out = 0;
    strata_status status = find_around(runtime, stream, false, "strata_capture_condition", &front, &around);
    if (status == STRATA_SUCCESS)
        status = nest(around, stream, "strata_capture_condition", &front);
    if (status == STRATA_SUCCESS)
        status =
            strata_call_scope_enter(&scope, runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.GraphConditionalHandleCreate(
        out, front.graph, runtime->device->context, initial ? *initial : 0, initial ? CU_GRAPH_COND_ASSIGN_DEFAULT : 0);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuGraphConditionalHandleCreate", "making a condition in a capture");
}

/* ---- the node ---- */

static void count_node(strata_capture *capture)
{
    strata_object_made(STRATA_OBJECT_CONDITIONAL);
    while (capture->body_of)
        capture = capture->body_of->around;
    strata_captures_lock(&capture->runtime->captures);
    capture->conditionals++;
    strata_captures_unlock(&capture->runtime->captures);
}

/* The stream's next work depends on the node alone, which depends on what that work would have. A node that was added
 * stays. */
static strata_status add_node(strata_body *body, CUgraphNodeParams *params)
{
    strata_capture_front front;
    strata_call_scope scope;
    strata_device *device = body->around->runtime->device;
    strata_status status = strata_capture_ask(device, body->from, &front);
    if (status == STRATA_SUCCESS && (front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || front.id != body->around->id))
        status =
            strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture of a conditional node was spoiled, or has ended");
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUgraphNode node;
    const char *call = "cuGraphAddNode";
    CUresult result = strata_cu.GraphAddNode(&node, front.graph, front.nodes, front.count, params);
    if (result == CUDA_SUCCESS) {
        strata_captures_lock(&body->around->runtime->captures);
        body->node = node;
        body->graphs = params->conditional.phGraph_out;
        strata_captures_unlock(&body->around->runtime->captures);
        call = "cuStreamUpdateCaptureDependencies";
        result = strata_cu.StreamUpdateCaptureDependencies(body->from, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    }
    strata_call_scope_leave(&scope);
    if (body->node)
        count_node(body->around);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "adding a conditional node with %u bodies to a capture", body->count);
}

/* ---- bodies ---- */

/* A capture for a body, not listed yet. */
static strata_status make_body(const strata_body *body, CUstream stream, strata_capture **out)
{
    strata_capture *around = body->around;
    strata_capture *made = strata_host_zalloc(sizeof *made);
    strata_body *of = made ? strata_host_zalloc(sizeof *of) : NULL;
    if (!of) {
        strata_host_free(made);
        return strata_fail_host_memory("the body of a conditional node");
    }
    *of = *body;
    strata_captures_lock(&around->runtime->captures);
    *made = (strata_capture){.runtime = around->runtime,
                             .stream = stream,
                             .mode = around->mode,
                             .thread = pthread_self(),
                             .ended = true,
                             .ending = true,
                             .name = around->name,
                             .pool = around->pool,
                             .body_of = of};
    strata_captures_unlock(&around->runtime->captures);
    strata_capture_pool_hold(made->pool);
    *out = made;
    return STRATA_SUCCESS;
}

/* Begins the capture of a body, and first adds its node with `params`; NULL: the node is there already. */
static strata_status begin_body(const strata_body *body, CUstream stream, CUgraphNodeParams *params)
{
    strata_capture *made = NULL;
    strata_status status = make_body(body, stream, &made);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_capture_enter(made);
    if (status == STRATA_SUCCESS && params)
        status = add_node(made->body_of, params);
    if (status == STRATA_SUCCESS)
        status = strata_capture_begin_for_driver(made);
    if (status == STRATA_SUCCESS)
        strata_capture_give_end_back(made, status);
    else
        strata_capture_give_up(made);
    return status;
}

static strata_status check_stream(const strata_runtime *runtime, CUstream stream, const char *call)
{
    if (strata_call_scope_for(stream) & STRATA_CALL_SCOPE_LEGACY || stream == STRATA_STREAM_GONE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: the legacy stream cannot capture a body", call);
    return strata_capture_check_idle(runtime, stream);
}

static strata_status begin_conditional(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                       CUgraphConditionalNodeType type, unsigned count, CUstream body, const char *call)
{
    strata_capture_front front;
    strata_capture *around;
    strata_status status = find_around(runtime, stream, true, call, &front, &around);
    if (status != STRATA_SUCCESS)
        return status;
    status = check_stream(runtime, body, call);
    if (status == STRATA_SUCCESS)
        status = nest(around, stream, call, &front);
    if (status != STRATA_SUCCESS)
        return stop_opening(around, status);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = condition;
    params.conditional.type = type;
    params.conditional.size = count;
    params.conditional.ctx = runtime->device->context;
    status = begin_body(&(strata_body){.around = around, .from = stream, .count = count}, body, &params);
    return stop_opening(around, status);
}

strata_status strata_capture_if(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                CUstream body)
{
    return begin_conditional(runtime, stream, condition, CU_GRAPH_COND_TYPE_IF, 1, body, "strata_capture_if");
}

strata_status strata_capture_if_else(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                     CUstream body)
{
    return begin_conditional(runtime, stream, condition, CU_GRAPH_COND_TYPE_IF, 2, body, "strata_capture_if_else");
}

strata_status strata_capture_while(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                   CUstream body)
{
    return begin_conditional(runtime, stream, condition, CU_GRAPH_COND_TYPE_WHILE, 1, body, "strata_capture_while");
}

strata_status strata_capture_switch(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                    unsigned bodies, CUstream body)
{
    if (!bodies)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_switch: 0 bodies; a switch has at least one");
    return begin_conditional(runtime, stream, condition, CU_GRAPH_COND_TYPE_SWITCH, bodies, body,
                             "strata_capture_switch");
}

/* ---- the end of a body ---- */

/* Counts the live blocks that were allocated in the body; *one is one of them. */
static size_t live_blocks(const strata_capture *capture, strata_block *one)
{
    size_t count = 0;
    strata_captures_lock(&capture->runtime->captures);
    for (const strata_pool_block *block = capture->pool->blocks; block; block = block->next)
        if (block->capture == capture->id) {
            *one = block->block;
            count++;
        }
    strata_captures_unlock(&capture->runtime->captures);
    return count;
}

static strata_status check_body(const strata_capture *capture, const char *call)
{
    strata_block one;
    if (capture->body_of->from == CU_STREAM_PER_THREAD && !pthread_equal(capture->thread, pthread_self()))
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "%s: the node is on the per-thread stream of the thread that began the body, which has to "
                           "end it",
                           call);
    const size_t live = capture->ended ? 0 : live_blocks(capture, &one);
    if (live)
        return strata_fail(
            STRATA_ERROR_BLOCK_IN_USE,
            "%s: %zu block%s that the body allocated %s not freed in it, block 0x%llx (tag \"%s\") among "
            "them; free what a body allocates, or allocate it before",
            call, live, live == 1 ? "" : "s", live == 1 ? "is" : "are", (unsigned long long)one.address,
            strata_tag_name(one.tag));
    return STRATA_SUCCESS;
}

/* Finds a body that can be ended, and claims its end. */
static strata_status find_body(strata_runtime *runtime, CUstream stream, const char *call, strata_capture **out)
{
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_capture_claim_body(runtime, stream, call, out);
    if (status == STRATA_SUCCESS && (status = check_body(*out, call)) != STRATA_SUCCESS)
        strata_capture_give_end_back(*out, status);
    return status;
}

strata_status strata_capture_body_close(strata_runtime *runtime, CUstream body)
{
    strata_capture *capture;
    const strata_status status = find_body(runtime, body, "strata_capture_body_close", &capture);
    return status == STRATA_SUCCESS ? strata_capture_body_leave(capture) : status;
}

strata_status strata_capture_body_next(strata_runtime *runtime, CUstream body)
{
    strata_capture *capture;
    strata_status status = find_body(runtime, body, "strata_capture_body_next", &capture);
    if (status != STRATA_SUCCESS)
        return status;
    strata_body next = *capture->body_of;
    next.nests = false;
    if (++next.index == next.count)
        return strata_capture_give_end_back(
            capture,
            strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_body_next: the node has %u bod%s, and no next one",
                        next.count, next.count == 1 ? "y" : "ies"));
    strata_captures_lock(&runtime->captures);
    next.around->opening = true;
    strata_captures_unlock(&runtime->captures);
    status = strata_capture_body_leave(capture);
    if (status != STRATA_SUCCESS)
        return stop_opening(next.around, status);
    status = begin_body(&next, body, NULL);
    if (status != STRATA_SUCCESS)
        strata_capture_spoil(next.around, status, "the body of a conditional node in it could not be begun");
    return stop_opening(next.around, status);
}
