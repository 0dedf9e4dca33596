/* Uses of blocks on streams that Strata captures; what the end of a body notes in the capture around it. */
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "runtime/capture_blocks.h"
#include "runtime/captured.h"

/* ---- what a capture notes ---- */

/* The capture's use of the block; NULL if it has noted none. */
static strata_capture_use *find_use(strata_capture *capture, const strata_block *block)
{
    strata_pool_block *own = strata_pool_block_find(capture->runtime, block->id);
    return own && own->capture == capture->id ? &own->use : strata_capture_find_use(&capture->uses, block->id);
}

/* The use of a block by a part of the capture, noted now if need be: of a segment of the part's pool, or of a block
 * that the part keeps, even if the program has freed it. */
static strata_status note_part(strata_capture *capture, const strata_capture_use *of_part, strata_capture_use **out)
{
    *out = find_use(capture, &of_part->block);
    if (*out)
        return STRATA_SUCCESS;
    const bool segment = of_part->kind == STRATA_CAPTURE_SEGMENT;
    if (!segment || strata_capture_add_part(&capture->uses, of_part->pool))
        *out = strata_capture_add_use(&capture->uses, &of_part->block, of_part->kind);
    if (!*out)
        return strata_fail_host_memory("a part of a capture");
    (*out)->pool = of_part->pool;
    if (!segment)
        strata_kept_add_again(&capture->runtime->captures.kept, &of_part->block);
    return STRATA_SUCCESS;
}

/* Whether the block was allocated in a capture around this one, which has it live. */
static bool is_of_around(const strata_capture *capture, const strata_block *block)
{
    const strata_pool_block *own = capture->body_of ? strata_pool_block_find(capture->runtime, block->id) : NULL;
    while (own && capture->body_of) {
        capture = capture->body_of->around;
        if (own->capture == capture->id)
            return true;
    }
    return false;
}

strata_status strata_captured_note_use(strata_capture *capture, const strata_block *block, strata_capture_use **out)
{
    strata_runtime *runtime = capture->runtime;
    *out = find_use(capture, block);
    if (!*out && is_of_around(capture, block)) {
        *out = strata_capture_add_use(&capture->uses, block, STRATA_CAPTURE_AROUND);
        return *out ? STRATA_SUCCESS : strata_fail_host_memory("a block of a capture");
    }
    if (*out)
        return strata_kept_is_freed(&runtime->captures.kept, block->id)
                   ? strata_block_refuse(runtime->table, block, STRATA_ERROR_USE_AFTER_FREE)
                   : STRATA_SUCCESS;
    const strata_status status = strata_kept_add(&runtime->captures.kept, runtime->table, block);
    if (status != STRATA_SUCCESS)
        return status;
    *out = strata_capture_add_use(&capture->uses, block, STRATA_CAPTURE_OUTSIDE);
    if (*out)
        return STRATA_SUCCESS;
    strata_kept_drop(&runtime->captures.kept, runtime->table, block);
    return strata_fail_host_memory("a block of a capture");
}

/* ---- uses ---- */

static strata_status check_tracking(const strata_runtime *runtime)
{
    return runtime->tracks ? STRATA_SUCCESS
                           : strata_fail(STRATA_ERROR_STREAM_MISUSE, "stack \"%s\" does not support use tracking",
                                         strata_stack_text(runtime->stack));
}

static bool add_conflicts(strata_nodes *to, const strata_capture_use *use, strata_access access,
                          strata_capture_place *place)
{
    bool added = true;
    for (size_t i = 0; i < use->count && added; i++)
        if (use->marks[i].writes || access & STRATA_ACCESS_WRITE)
            added = strata_captured_add_missing(to, &use->marks[i].nodes, place);
    return added;
}

/* Adds conflicts between parts and other work: a part of the capture uses whole segments, other work blocks in them. */
static bool add_conflicts_of_parts(strata_nodes *to, strata_capture *capture, const strata_block *block,
                                   const strata_capture_pool *pool, strata_access access, strata_capture_place *place)
{
    bool added = true;
    const strata_pool_block *one = pool ? NULL : strata_pool_block_find(capture->runtime, block->id);
    if (one && one->pool != capture->pool) {
        const strata_capture_use *whole = strata_capture_find_use(&capture->uses, one->range->segment->block.id);
        return !whole || add_conflicts(to, whole, access, place);
    }
    for (one = pool ? pool->blocks : NULL; one && added; one = one->next) {
        const strata_capture_use *use = one->range->segment->block.id.slot == block->id.slot
                                            ? strata_capture_find_use(&capture->uses, one->block.id)
                                            : NULL;
        added = !use || add_conflicts(to, use, access, place);
    }
    return added;
}

/* While a body of a capture is open, nothing is noted in the capture: the node would have no place in that order. */
strata_status strata_capture_check_closed(const strata_capture *capture)
{
    return strata_capture_has_body(capture)
               ? strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                             "the body of a conditional node in the capture is open; close it before other "
                             "work of the capture")
               : STRATA_SUCCESS;
}

/* `before`: nodes that the use must come after, and does not. `of_part`: the part's use of it, or NULL. */
static strata_status prepare(strata_capture *capture, const strata_block *block, const strata_capture_use *of_part,
                             strata_access access, strata_capture_place *place, strata_nodes *before)
{
    strata_capture_use *use;
    const strata_capture_pool *pool = of_part ? of_part->pool : NULL;
    strata_status status = check_tracking(capture->runtime);
    if (status == STRATA_SUCCESS)
        status = of_part ? note_part(capture, of_part, &use) : strata_captured_note_use(capture, block, &use);
    if (status != STRATA_SUCCESS)
        return status;
    const bool added = add_conflicts(before, use, access, place) &&
                       add_conflicts_of_parts(before, capture, block, pool, access, place);
    if (!added || !strata_capture_reserve_mark(use))
        return strata_fail_host_memory("a use of a block in a capture");
    use->access = (strata_access)(use->access | access);
    return STRATA_SUCCESS;
}

static strata_status add_dependencies(const strata_runtime *runtime, CUstream stream, strata_nodes *before)
{
    strata_call_scope scope;
    if (!before->count)
        return STRATA_SUCCESS;
    strata_status status = strata_call_scope_enter(&scope, runtime->device, strata_call_scope_for(stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.StreamUpdateCaptureDependencies(
        stream, before->items ? before->items : before->few, before->count, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuStreamUpdateCaptureDependencies",
                                                       "ordering a use of a block in a capture");
}

static bool prepare_on(strata_runtime *runtime, const strata_block *block, const strata_capture_use *of_part,
                       CUstream stream, strata_access access, strata_status *status)
{
    strata_capture_front front;
    strata_nodes before = {0};
    *status = strata_capture_ask(runtime->device, stream, &front);
    if (*status != STRATA_SUCCESS || front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return *status != STRATA_SUCCESS;
    strata_captured_lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = strata_captured_place(capture, stream, &front);
        *status = strata_capture_check_closed(capture);
        if (*status == STRATA_SUCCESS)
            *status = prepare(capture, block, of_part, access, &place, &before);
    }
    strata_captured_unlock(runtime, *status);
    if (capture && *status == STRATA_SUCCESS)
        *status = add_dependencies(runtime, stream, &before);
    strata_nodes_free(&before);
    return capture != NULL;
}

bool strata_captured_prepare(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                             strata_status *status)
{
    return prepare_on(runtime, block, NULL, stream, access, status);
}

bool strata_captured_prepare_part(strata_runtime *runtime, const strata_capture_use *of_part, CUstream stream,
                                  strata_status *status)
{
    return prepare_on(runtime, &of_part->block, of_part, stream, of_part->access, status);
}

static strata_status finish(strata_capture *capture, const strata_block *block, strata_access access,
                            strata_capture_place *place)
{
    strata_capture_use *use = find_use(capture, block);
    if (!use)
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "finish without prepare: the capture has no prepared use of block 0x%llx (tag \"%s\")",
                           (unsigned long long)block->address, strata_tag_name(block->tag));
    if (access == STRATA_ACCESS_NONE)
        return STRATA_SUCCESS;
    const strata_status status = strata_capture_mark_use(use, (access & STRATA_ACCESS_WRITE) != 0, place);
    if (status != STRATA_SUCCESS)
        strata_capture_fail(capture, status, NULL);
    return status;
}

/* The driver does not say in which capture a use is. If its work was submitted, the captures that use the block give no
 * graph; with `all`, all captures under way. Returns whether there is one. */
static bool spoil_captures(strata_runtime *runtime, const strata_block *block, bool all, strata_status status,
                           bool submitted)
{
    bool found = false;
    strata_captured_lock(runtime);
    for (strata_capture *capture = runtime->captures.list; capture; capture = capture->next)
        if (!capture->ended && (all || find_use(capture, block))) {
            found = true;
            if (submitted)
                strata_capture_fail(capture, status, NULL);
        }
    strata_captured_unlock(runtime, STRATA_SUCCESS);
    return found;
}

/* Fails the capture for work that comes after the node of an open body, whose work is not all noted yet. */
static void check_not_behind_open_node(strata_capture *capture, strata_capture_place *place)
{
    const CUgraphNode node = capture->body ? capture->body->body_of->node : NULL;
    if (!node)
        return;
    if (strata_capture_place_is_after(place, node))
        strata_capture_fail(capture, STRATA_ERROR_STREAM_CAPTURE,
                            "work was submitted to it behind a conditional node whose body was open");
    else if (!strata_capture_place_is_known(place))
        strata_capture_fail(capture, STRATA_ERROR_STREAM_CAPTURE,
                            "work was submitted to it while the body of a conditional node was open, and it cannot be "
                            "learned whether that is behind the node");
}

bool strata_captured_finish(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status)
{
    strata_capture_front front;
    strata_error_suppress_begin();
    *status = strata_capture_ask(runtime->device, stream, &front);
    const bool beside = *status != STRATA_SUCCESS && /* no capture has the use: it is the stack's */
                        !spoil_captures(runtime, block, false, *status, access != STRATA_ACCESS_NONE);
    strata_error_suppress_end(*status != STRATA_SUCCESS && !beside);
    if (beside)
        return false;
    if (*status != STRATA_SUCCESS || front.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return *status != STRATA_SUCCESS;
    strata_captured_lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = strata_captured_place(capture, stream, &front);
        if (access != STRATA_ACCESS_NONE)
            check_not_behind_open_node(capture, &place);
        *status = finish(capture, block, access, &place);
    }
    strata_captured_unlock(runtime, *status);
    return capture != NULL;
}

bool strata_captured_record(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status)
{
    strata_capture_front front;
    strata_nodes before = {0};
    *status = strata_capture_ask(runtime->device, stream, &front);
    if (*status != STRATA_SUCCESS)
        spoil_captures(runtime, block, true, *status, true);
    if (*status != STRATA_SUCCESS || front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return *status != STRATA_SUCCESS;
    strata_captured_lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = strata_captured_place(capture, stream, &front);
        *status = strata_capture_check_closed(capture);
        if (*status == STRATA_SUCCESS)
            *status = prepare(capture, block, NULL, access, &place, &before);
        if (*status == STRATA_SUCCESS)
            *status = finish(capture, block, access, &place);
        else
            strata_capture_fail(capture, *status, NULL); /* its graph would use what nothing keeps */
    }
    strata_captured_unlock(runtime, *status);
    strata_nodes_free(&before); /* the work is submitted: it is too late to order it */
    return capture != NULL;
}

/* ---- bodies ---- */

/* Notes a segment of the capture's own pool that a body uses. It needs no order, which its ranges have. */
static strata_status note_segment(strata_capture *around, const strata_capture_use *use)
{
    if (strata_capture_find_use(&around->uses, use->block.id))
        return STRATA_SUCCESS;
    strata_capture_use *whole = strata_capture_add_use(&around->uses, &use->block, STRATA_CAPTURE_SEGMENT);
    if (!whole)
        return strata_fail_host_memory("a segment of a capture");
    whole->access = use->access;
    whole->pool = use->pool;
    return STRATA_SUCCESS;
}

static strata_status keep_of_body(strata_capture *around, const strata_capture_uses *uses)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < uses->ref_count && status == STRATA_SUCCESS; i++)
        status = strata_capture_hold_ref(&around->uses, uses->refs[i]);
    for (size_t i = 0; i < uses->part_count && status == STRATA_SUCCESS; i++)
        if (uses->parts[i] != around->pool && !strata_capture_add_part(&around->uses, uses->parts[i]))
            status = strata_fail_host_memory("a part of a capture");
    return status;
}

static bool is_own_segment(const strata_capture *around, const strata_capture_use *use)
{
    return use->kind == STRATA_CAPTURE_SEGMENT && use->pool == around->pool;
}

/* Notes what a body uses, as a part of the capture around it at the body's node. */
static strata_status prepare_body(strata_capture *around, strata_capture_uses *uses, strata_capture_place *place,
                                  strata_nodes *before)
{
    strata_status status = keep_of_body(around, uses);
    for (size_t i = 0; i < uses->count && status == STRATA_SUCCESS; i++) {
        const strata_capture_use *use = &uses->items[i];
        const strata_capture_use *of_part = use->kind == STRATA_CAPTURE_AROUND ? NULL : use;
        status = is_own_segment(around, use) ? note_segment(around, use)
                                             : prepare(around, &use->block, of_part, use->access, place, before);
    }
    return status;
}

static strata_status finish_body(strata_capture *around, const strata_capture_uses *uses, strata_capture_place *place)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < uses->count && status == STRATA_SUCCESS; i++)
        if (!is_own_segment(around, &uses->items[i]))
            status = finish(around, &uses->items[i].block, uses->items[i].access, place);
    return status;
}

/* Makes the node come after the nodes `before`, too. */
static strata_status add_edges(const strata_body *body, const strata_capture_front *front, const strata_nodes *before)
{
    strata_call_scope scope;
    CUresult result = CUDA_SUCCESS;
    if (!before->count)
        return STRATA_SUCCESS;
    const strata_status status = strata_call_scope_enter(&scope, body->around->runtime->device,
                                                         STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < before->count && result == CUDA_SUCCESS; i++)
        result = strata_cu.GraphAddDependencies(front->graph, &strata_nodes_items(before)[i], &body->node, 1);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuGraphAddDependencies",
                                                       "ordering the body of a conditional node in a capture");
}

/* The body's graph gets a copy of what was captured: a capture into it that fails would leave the driver with a broken
 * one. A body with conditional nodes cannot be copied, and was captured into it. */
static strata_status fill_body(const strata_capture *capture)
{
    const strata_body *body = capture->body_of;
    strata_call_scope scope;
    CUgraphNode node;
    if (body->nests)
        return STRATA_SUCCESS;
    const strata_status status = strata_call_scope_enter(&scope, capture->runtime->device,
                                                         STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.GraphAddChildGraphNode(&node, body->graphs[body->index], NULL, 0, capture->graph);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, "cuGraphAddChildGraphNode", "giving a conditional node its body");
}

strata_status strata_captured_body(strata_capture *capture)
{
    const strata_body *body = capture->body_of;
    strata_capture *around = body->around;
    strata_runtime *runtime = capture->runtime;
    strata_nodes before = {0};
    strata_capture_front front;
    strata_status status = strata_capture_ask(runtime->device, body->from, &front);
    if (status == STRATA_SUCCESS && (front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || front.id != around->id))
        status = strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture around the body was spoiled, or has ended");
    if (status == STRATA_SUCCESS)
        status = fill_body(capture);
    if (status != STRATA_SUCCESS)
        return status;
    front.nodes = &body->node;
    front.count = 1;
    strata_capture_place place = strata_captured_place(around, body->from, &front);
    strata_captured_lock(runtime);
    status = prepare_body(around, &capture->uses, &place, &before);
    strata_captured_unlock(runtime, status);
    if (status == STRATA_SUCCESS)
        status = add_edges(body, &front, &before);
    strata_nodes_free(&before);
    strata_captured_lock(runtime);
    if (status == STRATA_SUCCESS)
        status = finish_body(around, &capture->uses, &place);
    strata_captured_unlock(runtime, status);
    return status;
}

bool strata_captured_hold(strata_runtime *runtime, CUstream stream, strata_ref *ref, strata_status *status)
{
    strata_capture_front front;
    *status = strata_capture_ask(runtime->device, stream, &front);
    if (*status != STRATA_SUCCESS)
        return false;
    strata_captured_lock(runtime);
    strata_capture *capture =
        front.status == CU_STREAM_CAPTURE_STATUS_NONE ? NULL : strata_capture_find(runtime, front.id);
    if (capture)
        *status = strata_capture_hold_ref(&capture->uses, ref);
    strata_captured_unlock(runtime, *status);
    return capture != NULL && *status == STRATA_SUCCESS;
}
