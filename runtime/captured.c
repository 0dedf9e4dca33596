/* The runtime's calls on streams that Strata captures, and frees of kept blocks. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/stream_map.h"
#include "runtime/capture_blocks.h"
#include "runtime/captures.h"

/* The log callback is the program's: errors are suppressed while the lock is held. */
static inline void lock(strata_runtime *runtime)
{
    strata_error_suppress_begin();
    strata_captures_lock(&runtime->captures);
}

/* Releases the lock, and then raises the error of `status`. */
static inline void unlock(strata_runtime *runtime, strata_status status)
{
    strata_captures_unlock(&runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
}

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

/* The capture's use of a live block, noted now if need be. */
static strata_status note_use(strata_capture *capture, const strata_block *block, strata_capture_use **out)
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

static strata_capture_place place_of(strata_capture *capture, CUstream stream, const strata_capture_front *front)
{
    return (strata_capture_place){.stream = stream, .front = front, .known = &capture->ancestors};
}

/* Adds those of the nodes that the place does not come after. False without host memory. */
static inline bool add_missing(strata_nodes *to, const strata_nodes *nodes, strata_capture_place *place)
{
    bool added = true;
    for (size_t i = 0; i < nodes->count && added; i++) {
        const CUgraphNode node = strata_nodes_items(nodes)[i];
        added = strata_capture_place_is_after(place, node) || strata_nodes_add(to, &node, 1);
    }
    return added;
}

static bool add_conflicts(strata_nodes *to, const strata_capture_use *use, strata_access access,
                          strata_capture_place *place)
{
    bool added = true;
    for (size_t i = 0; i < use->count && added; i++)
        if (use->marks[i].writes || access & STRATA_ACCESS_WRITE)
            added = add_missing(to, &use->marks[i].nodes, place);
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
        status = of_part ? note_part(capture, of_part, &use) : note_use(capture, block, &use);
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
    lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = place_of(capture, stream, &front);
        *status = strata_capture_check_closed(capture);
        if (*status == STRATA_SUCCESS)
            *status = prepare(capture, block, of_part, access, &place, &before);
    }
    unlock(runtime, *status);
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
    lock(runtime);
    for (strata_capture *capture = runtime->captures.list; capture; capture = capture->next)
        if (!capture->ended && (all || find_use(capture, block))) {
            found = true;
            if (submitted)
                strata_capture_fail(capture, status, NULL);
        }
    unlock(runtime, STRATA_SUCCESS);
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
    lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = place_of(capture, stream, &front);
        if (access != STRATA_ACCESS_NONE)
            check_not_behind_open_node(capture, &place);
        *status = finish(capture, block, access, &place);
    }
    unlock(runtime, *status);
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
    lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture) {
        strata_capture_place place = place_of(capture, stream, &front);
        *status = strata_capture_check_closed(capture);
        if (*status == STRATA_SUCCESS)
            *status = prepare(capture, block, NULL, access, &place, &before);
        if (*status == STRATA_SUCCESS)
            *status = finish(capture, block, access, &place);
        else
            strata_capture_fail(capture, *status, NULL); /* its graph would use what nothing keeps */
    }
    unlock(runtime, *status);
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
    strata_capture_place place = place_of(around, body->from, &front);
    lock(runtime);
    status = prepare_body(around, &capture->uses, &place, &before);
    unlock(runtime, status);
    if (status == STRATA_SUCCESS)
        status = add_edges(body, &front, &before);
    strata_nodes_free(&before);
    lock(runtime);
    if (status == STRATA_SUCCESS)
        status = finish_body(around, &capture->uses, &place);
    unlock(runtime, status);
    return status;
}

bool strata_captured_hold(strata_runtime *runtime, CUstream stream, strata_ref *ref, strata_status *status)
{
    strata_capture_front front;
    *status = strata_capture_ask(runtime->device, stream, &front);
    if (*status != STRATA_SUCCESS)
        return false;
    lock(runtime);
    strata_capture *capture =
        front.status == CU_STREAM_CAPTURE_STATUS_NONE ? NULL : strata_capture_find(runtime, front.id);
    if (capture)
        *status = strata_capture_hold_ref(&capture->uses, ref);
    unlock(runtime, *status);
    return capture != NULL && *status == STRATA_SUCCESS;
}

/* ---- memory ---- */

/* Notes a new block as written, and the first time its segment as used. */
static inline strata_status note_block(strata_capture *capture, strata_pool_block *one, strata_capture_place *place)
{
    strata_capture_segment *segment = one->range->segment;
    if (segment->within != capture->id && !strata_capture_find_use(&capture->uses, segment->block.id)) {
        strata_capture_use *whole = strata_capture_add_use(&capture->uses, &segment->block, STRATA_CAPTURE_SEGMENT);
        if (!whole)
            return strata_fail_host_memory("a segment of a capture");
        whole->access = STRATA_ACCESS_WRITE;
        whole->pool = capture->pool;
    }
    segment->within = capture->id;
    const strata_status status = strata_capture_mark_use(&one->use, true, place);
    if (status == STRATA_SUCCESS)
        one->capture = capture->id;
    return status;
}

/* Takes memory for a body. Extends `place`, whose last link is `last`, by the places of the nodes of `inner` and of the
 * captures around it. */
static strata_status take_at(const strata_capture *inner, const strata_request *request, strata_capture_place *place,
                             strata_capture_place *last, strata_block *block, strata_pool_block **out)
{
    const strata_body *body = inner->body_of;
    if (!body)
        return strata_capture_pool_take(inner->pool, request, place, block, out);
    const strata_capture_front front = {
        .status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .id = body->around->id, .nodes = &body->node, .count = 1};
    strata_capture_place around = place_of(body->around, body->from, &front);
    last->around = &around;
    const strata_status status = take_at(body->around, request, place, &around, block, out);
    last->around = NULL;
    return status;
}

/* Takes memory of the capture's pool. *taken: false if the pool has to grow. The lock is held. */
static inline __attribute__((always_inline)) strata_status take(strata_capture *capture, const strata_request *request,
                                                                const strata_capture_front *front, strata_block *out,
                                                                bool *taken)
{
    strata_capture_place place = place_of(capture, request->stream, front);
    strata_pool_block *one = NULL;
    strata_status status = strata_capture_check_closed(capture);
    if (status == STRATA_SUCCESS)
        status = capture->body_of ? take_at(capture, request, &place, &place, out, &one)
                                  : strata_capture_pool_take(capture->pool, request, &place, out, &one);
    *taken = one != NULL;
    if (!one)
        return status;
    status = note_block(capture, one, &place);
    if (status != STRATA_SUCCESS)
        strata_pool_block_take_back(one, out, capture->id);
    return status;
}

/* Grows the pool and tries again, as another thread may take the new segment. */
static strata_status grow_and_take(strata_runtime *runtime, const strata_request *request,
                                   const strata_capture_front *front, strata_block *out)
{
    strata_status status = STRATA_SUCCESS;
    for (bool taken = false; !taken && status == STRATA_SUCCESS;) {
        lock(runtime);
        strata_capture *capture = strata_capture_find(runtime, front->id);
        strata_capture_pool *pool = capture ? capture->pool : NULL;
        if (pool)
            pool->holders++;
        unlock(runtime, STRATA_SUCCESS);
        status = pool ? strata_capture_pool_grow(pool, request) : STRATA_SUCCESS;
        lock(runtime);
        capture = strata_capture_find(runtime, front->id);
        if (!capture)
            status = strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a request in it");
        else if (status == STRATA_SUCCESS)
            status = take(capture, request, front, out, &taken);
        unlock(runtime, status);
        if (pool)
            strata_capture_pool_unhold(pool);
    }
    return status;
}

bool strata_captured_allocate(strata_runtime *runtime, const strata_request *request, strata_block *out,
                              strata_status *status)
{
    strata_capture_front front;
    bool taken = true;
    *status = strata_capture_ask(runtime->device, request->stream, &front);
    if (*status != STRATA_SUCCESS)
        *out = (strata_block){0};
    if (*status != STRATA_SUCCESS || front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return *status != STRATA_SUCCESS;
    lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture)
        *status = take(capture, request, &front, out, &taken);
    unlock(runtime, *status);
    if (*status == STRATA_SUCCESS && !taken)
        *status = grow_and_take(runtime, request, &front, out);
    if (*status != STRATA_SUCCESS)
        *out = (strata_block){0};
    return capture != NULL;
}

/* ---- frees ---- */

/* Collects the nodes of all work that used the block, and the front of the free's stream. */
static inline bool gather_uses(const strata_capture_use *use, strata_capture_place *place, strata_nodes *after)
{
    bool added = strata_nodes_add(after, place->front->nodes, place->front->count);
    for (size_t i = 0; i < use->count && added; i++)
        added = add_missing(after, &use->marks[i].nodes, place);
    return added;
}

static __attribute__((cold)) strata_status refuse_own(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                       "block 0x%llx (tag \"%s\") was allocated in a capture on a stream that the program forked; free "
                       "it with strata_runtime_deallocate_on",
                       (unsigned long long)block->address, strata_tag_name(block->tag));
}

/* Frees a block whose capture is under way, on `stream`, or with STRATA_STREAM_GONE behind its uses. A stream that is
 * not in that capture has no place in it. The lock is held. */
static inline __attribute__((always_inline)) strata_status free_within(strata_capture *capture, strata_pool_block *one,
                                                                       const strata_block *block, CUstream stream)
{
    strata_capture_front front;
    strata_nodes *after = &one->range->after;
    const bool gone = stream == STRATA_STREAM_GONE;
    strata_status status = gone ? STRATA_SUCCESS : strata_capture_ask(capture->runtime->device, stream, &front);
    if (status != STRATA_SUCCESS)
        return status;
    if (gone || front.id != one->capture)
        front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    strata_capture_place place = place_of(capture, stream, &front);
    status = gather_uses(&one->use, &place, after) ? strata_pool_block_free_within(one, block, &place)
                                                   : strata_fail_host_memory("a free in a capture");
    if (status != STRATA_SUCCESS)
        strata_nodes_free(after);
    return status;
}

/* Orders a free outside of captures: records a use of the segment after all uses of the block, so that later launches,
 * which use the segment, come after them. */
static strata_status order_free(strata_runtime *runtime, const strata_block *block, const strata_block *segment,
                                CUstream stream)
{
    strata_resource *top = runtime->top;
    if (!runtime->tracks)
        return STRATA_SUCCESS;
    strata_status status = top->ops->prepare_use(top, block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    status = top->ops->finish_use(top, block, stream, STRATA_ACCESS_NONE);
    return status == STRATA_SUCCESS ? top->ops->record_use(top, segment, stream, STRATA_ACCESS_WRITE) : status;
}

/* Ends a pool whose last holder was a block that has been freed, or lets go of one. The free has succeeded: what cannot
 * be ended now is tried again by other calls. */
static void end_behind_free(strata_capture_pool *pool, strata_status (*end)(strata_capture_pool *pool))
{
    strata_error_suppress_begin();
    end(pool);
    strata_error_suppress_end(false);
}

static strata_status free_at_once(strata_runtime *runtime, const strata_block *block)
{
    bool last = false;
    lock(runtime);
    strata_pool_block *one = strata_pool_block_find(runtime, block->id);
    strata_capture_pool *pool = one ? one->pool : NULL;
    const strata_status status = one ? strata_pool_block_free(one, block, &last)
                                     : strata_block_refuse(runtime->table, block, STRATA_ERROR_DOUBLE_FREE);
    unlock(runtime, status);
    if (last)
        end_behind_free(pool, runtime->captures.end_pool);
    return status;
}

static CUstream stream_of_free(const strata_pool_block *one, CUstream stream, bool own)
{
    if (own && one->block.stream && strata_stream_is_known(one->block.stream))
        return one->block.stream;
    return own || stream == STRATA_STREAM_GONE ? one->pool->stream : stream;
}

/* Frees a block on a stream that is in a capture: the capture keeps the block, as if it used it. *kept: the stream is
 * in a capture. The lock is held. */
static strata_status keep_freed(strata_runtime *runtime, const strata_block *block, CUstream stream, bool *kept)
{
    strata_capture_front front;
    strata_capture_use *use;
    *kept = false;
    strata_status status = strata_capture_ask(runtime->device, stream, &front);
    strata_capture *capture =
        front.status == CU_STREAM_CAPTURE_STATUS_NONE ? NULL : strata_capture_find(runtime, front.id);
    if (status != STRATA_SUCCESS || !capture)
        return status;
    status = note_use(capture, block, &use);
    return status == STRATA_SUCCESS ? strata_kept_free(&runtime->captures.kept, runtime->table, block, kept) : status;
}

/* Records a use on the free's stream, so that later waits for the block come after the stream's present work. Refused
 * on a stream in a capture; the capture keeps the block. */
static void note_free(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (!runtime->tracks || stream == STRATA_STREAM_GONE)
        return;
    if (strata_known_timeline(runtime->device, stream) && strata_stream_is_forked(stream))
        return; /* launches could not wait for that before the capture ends */
    strata_error_suppress_begin();
    runtime->top->ops->record_use(runtime->top, block, stream, STRATA_ACCESS_WRITE);
    strata_error_suppress_end(false);
}

/* *fork: the program forked the stream into a capture, so that a free on it cannot wait for the capture's end on that
 * stream. */
static strata_status look_for_fork(strata_runtime *runtime, CUstream stream, bool own, bool *fork)
{
    strata_capture_front front;
    *fork = false;
    if (stream == STRATA_STREAM_GONE)
        return STRATA_SUCCESS;
    if (strata_known_timeline(runtime->device, stream)) {
        *fork = strata_stream_is_forked(stream);
        return STRATA_SUCCESS;
    }
    if (own) /* the handle may be dead */
        return STRATA_SUCCESS;
    const strata_status status = strata_capture_ask(runtime->device, stream, &front);
    if (status != STRATA_SUCCESS || front.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return status;
    lock(runtime);
    const strata_capture *capture = strata_capture_find(runtime, front.id);
    *fork = capture && !strata_capture_began_on(capture, stream);
    unlock(runtime, STRATA_SUCCESS);
    return STRATA_SUCCESS;
}

bool strata_captured_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own,
                          strata_status *status)
{
    bool kept, fork;
    const strata_entry *entry = strata_table_lookup(runtime->table, block->id);
    if (!entry || strata_table_state(runtime->table, block->id) != STRATA_BLOCK_LIVE)
        return false;
    if (own)
        stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    *status = look_for_fork(runtime, stream, own, &fork);
    if (*status != STRATA_SUCCESS || !fork)
        return *status != STRATA_SUCCESS; /* else the stack knows what to do */
    if (!own)
        note_free(runtime, block, stream);
    lock(runtime);
    *status = keep_freed(runtime, block, stream, &kept);
    unlock(runtime, *status);
    return kept || *status != STRATA_SUCCESS;
}

/* Before a block is freed in its capture: work outside of the capture may have used it, and later launches, which use
 * the segment, come after that. The lock is held, and released meanwhile. NULL: the block was freed meanwhile. */
static strata_pool_block *order_outside_uses(strata_runtime *runtime, strata_pool_block *one, strata_status *status)
{
    const strata_block mine = one->block, segment = one->range->segment->block;
    const CUstream stream = one->pool->stream;
    unlock(runtime, STRATA_SUCCESS);
    *status = order_free(runtime, &mine, &segment, stream);
    lock(runtime);
    return strata_pool_block_find(runtime, mine.id);
}

static __attribute__((noinline)) strata_status
free_touched(strata_runtime *runtime, cuuint64_t id, strata_pool_block *one, const strata_block *block, CUstream stream)
{
    strata_status status;
    one = order_outside_uses(runtime, one, &status);
    strata_capture *capture = strata_capture_find(runtime, id);
    if (status != STRATA_SUCCESS)
        return status;
    if (!one)
        return strata_block_refuse(runtime->table, block, STRATA_ERROR_DOUBLE_FREE);
    return capture ? free_within(capture, one, block, stream)
                   : strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a free in it");
}

static __attribute__((cold)) strata_status refuse_around(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "block 0x%llx (tag \"%s\") was allocated in the capture around an open body; free it when the "
                       "body is closed",
                       (unsigned long long)block->address, strata_tag_name(block->tag));
}

static strata_status free_in_capture(strata_runtime *runtime, strata_capture *capture, strata_pool_block *one,
                                     const strata_block *block, CUstream stream, bool own)
{
    if (__builtin_expect(strata_capture_has_body(capture), 0))
        return refuse_around(block);
    if (own)
        stream = one->block.stream;
    if (__builtin_expect(own && stream != capture->stream, 0))
        return refuse_own(block);
    if (__builtin_expect(atomic_load_explicit(&one->entry->touched, memory_order_relaxed), 0))
        return free_touched(runtime, capture->id, one, block, stream);
    return free_within(capture, one, block, stream);
}

/* Frees a pool's block whose capture has ended, or whose device is lost. The lock is held, and released. */
static __attribute__((noinline)) strata_status free_outside(strata_runtime *runtime, strata_pool_block *one,
                                                            const strata_block *block, CUstream stream, bool own)
{
    const bool usable = strata_device_is_usable(runtime->device);
    strata_status status = STRATA_SUCCESS;
    const strata_block mine = one->block, segment = one->range->segment->block;
    bool kept = false;
    stream = stream_of_free(one, stream, own);
    if (usable && strata_captures_any(runtime))
        status = keep_freed(runtime, block, stream, &kept);
    unlock(runtime, status);
    if (kept || status != STRATA_SUCCESS)
        return status;
    if (usable)
        status = order_free(runtime, &mine, &segment, stream);
    return status == STRATA_SUCCESS ? free_at_once(runtime, block) : status;
}

static strata_status free_kept(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own);

/* Defers the free of a block from outside until no capture or graph keeps it; it then comes after the present work of
 * `stream`. */
static strata_status defer_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    bool found;
    if (!own)
        note_free(runtime, block, stream);
    lock(runtime);
    const strata_status status = strata_kept_free(&runtime->captures.kept, runtime->table, block, &found);
    unlock(runtime, status);
    return found ? status : free_kept(runtime, block, stream, own); /* nothing keeps it any more */
}

/* Frees a pool's block. The lock is held, and released. */
static strata_status free_pool_block(strata_runtime *runtime, strata_pool_block *one, const strata_block *block,
                                     CUstream stream, bool own)
{
    strata_capture *capture = one->capture ? strata_capture_find(runtime, one->capture) : NULL;
    if (!capture || !strata_device_is_usable(runtime->device))
        return free_outside(runtime, one, block, stream, own);
    const strata_status status = free_in_capture(runtime, capture, one, block, stream, own);
    unlock(runtime, status);
    return status;
}

static strata_status free_kept(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    lock(runtime);
    const strata_kept_blocks *all = &runtime->captures.kept;
    const bool kept = (all->by_slot || all->due) && strata_kept_has(all, block->id);
    strata_pool_block *one = kept ? NULL : strata_pool_block_find(runtime, block->id);
    if (one)
        return free_pool_block(runtime, one, block, stream, own);
    unlock(runtime, STRATA_SUCCESS);
    if (kept)
        return defer_free(runtime, block, stream, own);
    return own ? strata_free_from_top_on_own_stream(runtime->top, block)
               : strata_free_from_top(runtime->top, block, stream);
}

/* Keeps launches from a pool's block while it is freed. Where layers hear of uses, a launch prepares all blocks that
 * live in its pool's segments: a free of one of them by another thread waits until the launch is noted, instead of
 * being refused. Returns the block's pool, held and locked; NULL if the block is in none. */
static strata_capture_pool *exclude_launches(strata_runtime *runtime, const strata_block *block)
{
    strata_captures_lock(&runtime->captures);
    const strata_pool_block *one = strata_pool_block_find(runtime, block->id);
    strata_capture_pool *pool = one ? one->pool : NULL;
    if (pool)
        pool->holders++;
    strata_captures_unlock(&runtime->captures);
    if (pool)
        strata_lock_take(&pool->launches);
    return pool;
}

static __attribute__((noinline)) strata_status free_between_launches(strata_runtime *runtime, const strata_block *block,
                                                                     CUstream stream, bool own)
{
    strata_capture_pool *pool = exclude_launches(runtime, block);
    if (!pool)
        return free_kept(runtime, block, stream, own);
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    const strata_status status = free_kept(runtime, block, stream, own);
    strata_lock_release(&pool->launches);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    end_behind_free(pool, strata_capture_pool_unhold);
    return status;
}

strata_status strata_kept_block_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    return runtime->tracks_plainly ? free_kept(runtime, block, stream, own)
                                   : free_between_launches(runtime, block, stream, own);
}

bool strata_kept_block_is_freed(strata_runtime *runtime, const strata_block *block)
{
    lock(runtime);
    const bool freed = strata_kept_is_freed(&runtime->captures.kept, block->id);
    unlock(runtime, STRATA_SUCCESS);
    return freed;
}

strata_status strata_kept_block_check(strata_runtime *runtime, const strata_block *block)
{
    return strata_kept_block_is_freed(runtime, block)
               ? strata_block_refuse(runtime->table, block, STRATA_ERROR_USE_AFTER_FREE)
               : STRATA_SUCCESS;
}

strata_status strata_captures_find(strata_runtime *runtime, CUdeviceptr address, strata_block *found)
{
    strata_status status = STRATA_SUCCESS;
    lock(runtime);
    const strata_pool_block *one = strata_pool_block_at(runtime, address);
    if (one) {
        *found = one->block;
    } else if (strata_pool_has_segment(runtime, found->id)) {
        *found = (strata_block){0};
        status = strata_fail(STRATA_ERROR_FOREIGN_POINTER, "0x%llx is in no live block: a capture pool has it, free",
                             (unsigned long long)address);
    }
    if (status == STRATA_SUCCESS && strata_kept_is_freed(&runtime->captures.kept, found->id)) {
        *found = (strata_block){0};
        status = strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                             "0x%llx is in no live block: the program has freed it, a graph still uses its memory",
                             (unsigned long long)address);
    }
    unlock(runtime, status);
    return status;
}
