/* Captures: their beginning and their ends. */
#include "runtime/captures.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/object_counts.h"
#include "core/streams/stream_map.h"
#include "runtime/capture_blocks.h"
#include "runtime/graph_events.h"
#include "runtime/graph_frees.h"

/* PTDS programs see macros of these names. */
#undef strata_capture_begin
#undef strata_capture_status
#undef strata_is_stream_capturing
#undef strata_capture_end
#undef strata_capture_discard
#undef strata_capture_set_name

static strata_lock all_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_CAPTURE_LIST);
static strata_capture *all; /* captures of all runtimes; guarded by all_lock */

/* ---- the end of a thread ---- */

/* glibc's, for destructors of thread-local objects: it runs before those of pthread's keys. In these the driver knows
 * the thread no more: it ends a capture with an error, and crashes at the end of one whose conditional node has such a
 * body (docs/measurements.md). */
int __cxa_thread_atexit_impl(void (*run)(void *), void *data, void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static _Thread_local bool is_watched;

/* What becomes of a capture that ends; zeroed: nothing. */
typedef struct capture_use {
    strata_graph_event_kind what;
    strata_capture_maker make;
    void *data;
} capture_use;

static strata_status end_capture(strata_capture *capture, const capture_use *to);
static const capture_use discarded;

/* Whether the capture is this thread's, and no other thread may end it or can name its stream. */
static bool only_this_thread_ends(const strata_capture *capture)
{
    return pthread_equal(capture->thread, pthread_self()) &&
           (capture->mode != STRATA_CAPTURE_RELAXED || capture->stream == CU_STREAM_PER_THREAD);
}

static strata_capture *left_behind(void)
{
    strata_lock_take(&all_lock);
    strata_capture *capture = all;
    while (capture && !only_this_thread_ends(capture))
        capture = capture->all_next;
    strata_lock_release(&all_lock);
    return capture;
}

static void discard_left_behind(void *unused)
{
    (void)unused;
    is_watched = false;
    strata_capture *capture, *last = NULL;
    strata_error_suppress_begin();
    while (strata_driver_is_open() && (capture = left_behind()) && capture != last) {
        last = capture; /* what could not be ended comes again */
        end_capture(capture, &discarded);
    }
    strata_error_suppress_end(false);
}

static void watch_thread(void)
{
    if (!is_watched && __cxa_thread_atexit_impl)
        is_watched = __cxa_thread_atexit_impl(discard_left_behind, NULL, &__dso_handle) == 0;
}

/* ---- the list ---- */

static void add_capture(strata_capture *capture)
{
    strata_captures *captures = &capture->runtime->captures;
    strata_captures_lock(&capture->runtime->captures);
    capture->next = captures->list;
    captures->list = capture;
    atomic_store_explicit(&captures->used, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&captures->live, 1, memory_order_release);
    if (capture->body_of)
        capture->body_of->around->body = capture;
    else
        strata_object_made(STRATA_OBJECT_CAPTURE);
    atomic_fetch_add_explicit(&strata_captures_under_way, 1, memory_order_release);
    strata_captures_unlock(&capture->runtime->captures);
    strata_lock_take(&all_lock);
    capture->all_next = all;
    all = capture;
    strata_lock_release(&all_lock);
    watch_thread();
}

static void remove_capture(strata_capture *capture)
{
    strata_captures *captures = &capture->runtime->captures;
    strata_captures_lock(&capture->runtime->captures);
    strata_capture **link = &captures->list;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    atomic_fetch_sub_explicit(&captures->live, 1, memory_order_release);
    if (!capture->body_of)
        strata_object_ended(STRATA_OBJECT_CAPTURE);
    atomic_fetch_sub_explicit(&strata_captures_under_way, 1, memory_order_release);
    strata_captures_unlock(&capture->runtime->captures);
    strata_lock_take(&all_lock);
    for (link = &all; *link != capture;)
        link = &(*link)->all_next;
    *link = capture->all_next;
    strata_lock_release(&all_lock);
}

/* The runtime's capture that began on the stream, or NULL. The lock is held. */
static strata_capture *find_on(const strata_runtime *runtime, CUstream stream)
{
    strata_capture *capture = runtime->captures.list;
    while (capture && !strata_capture_began_on(capture, stream))
        capture = capture->next;
    return capture;
}

strata_capture *strata_capture_on(strata_runtime *runtime, CUstream stream)
{
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = find_on(runtime, stream);
    strata_captures_unlock(&runtime->captures);
    return capture;
}

/* ---- ending ---- */

/* Whether the driver goes on with a capture that it did not end. */
static bool is_under_way(const strata_capture *capture)
{
    strata_capture_front front;
    strata_error_suppress_begin();
    const strata_status status = strata_capture_ask(capture->runtime->device, capture->stream, &front);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS && front.status != CU_STREAM_CAPTURE_STATUS_NONE && front.id == capture->id;
}

static strata_status refuse_thread(void)
{
    return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                       "the capture was begun by another thread, which has to end it; only a "
                       "relaxed one of another stream than the thread's own can be ended by "
                       "any");
}

/* A driver destroys a graph when it fails to end a capture into it, and that of a node's body once more with its node
 * (580.159: docs/measurements.md). */
static void note_broken_body(strata_capture *capture)
{
    if (capture->result == CUDA_SUCCESS || !capture->body_of || !capture->body_of->nests)
        return;
    for (strata_capture *around = capture->body_of->around; around;
         around = around->body_of ? around->body_of->around : NULL)
        around->keeps_graph = true;
}

/* Ends the capture for the driver, once. Errors: STREAM_MISUSE (it is another thread's), DRIVER (it goes on). */
static strata_status end_for_driver(strata_capture *capture)
{
    strata_runtime *runtime = capture->runtime;
    strata_call_scope scope;
    if (capture->ended || !strata_device_is_usable_now(runtime->device))
        return STRATA_SUCCESS;
    const bool mine = pthread_equal(capture->thread, pthread_self());
    if (!mine && (capture->mode != STRATA_CAPTURE_RELAXED || capture->stream == CU_STREAM_PER_THREAD))
        return refuse_thread(); /* the driver would end it all the same */
    strata_status status = strata_call_scope_enter(&scope, runtime->device, strata_call_scope_for(capture->stream));
    if (status != STRATA_SUCCESS)
        return status;
    capture->result = strata_cu.StreamEndCapture(capture->stream, &capture->graph);
    strata_call_scope_leave(&scope);
    if (capture->result != CUDA_SUCCESS && is_under_way(capture))
        return strata_fail_driver(capture->result, "cuStreamEndCapture",
                                  "ending a capture, which goes on; end or discard it again");
    strata_captures_lock(&runtime->captures);
    note_broken_body(capture);
    capture->ended = true;
    capture->pool->in_graphs = true;
    strata_pool_blocks_leave_capture(capture->pool, capture->id);
    if (capture->body_of && capture->id) /* 0: the driver did not say which it is, so it took nothing */
        strata_capture_ranges_body_ended(&capture->pool->ranges, capture->id, capture->body_of->around->id,
                                         capture->body_of->node);
    else if (!capture->body_of)
        strata_capture_ranges_capture_ended(&capture->pool->ranges, capture->id);
    strata_captures_unlock(&runtime->captures);
    return STRATA_SUCCESS;
}

/* The driver's end failed, and it reported no capture afterwards, but it captures the stream all the same. */
static strata_status refuse_unended(strata_capture *capture)
{
    strata_captures_lock(&capture->runtime->captures);
    strata_capture_fail(capture, STRATA_ERROR_DRIVER, "the driver did not end it when it was asked to");
    capture->ended = false;
    strata_captures_unlock(&capture->runtime->captures);
    return strata_fail_driver(capture->result, "cuStreamEndCapture", "ending a capture, which goes on; discard it");
}

static strata_status make_known(strata_capture *capture)
{
    strata_runtime *runtime = capture->runtime;
    strata_error_suppress_begin();
    const strata_status status = strata_stream_register(runtime->device, capture->stream, runtime->early_events);
    const bool unended = status == STRATA_ERROR_STREAM_CAPTURE && capture->result != CUDA_SUCCESS;
    strata_error_suppress_end(status != STRATA_SUCCESS && !unended);
    capture->known = status != STRATA_SUCCESS;
    return unended ? refuse_unended(capture) : status;
}

/* Makes the stream known again if it was before, and performs frees that waited for the end of the capture. */
static strata_status restore_stream(strata_capture *capture)
{
    strata_runtime *runtime = capture->runtime;
    if (!strata_device_is_usable(runtime->device))
        return STRATA_SUCCESS;
    const strata_status status = capture->known ? make_known(capture) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* what cannot be freed now is tried again by other calls */
    strata_stack_captures_ended(runtime->stack, capture->stream);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

/* Destroys the capture's graph, unless it belongs to a conditional node, into whose body it was captured. */
static void destroy_graph(strata_capture *capture)
{
    const bool mine = !capture->body_of || !capture->body_of->nests;
    if (capture->graph && mine && !capture->keeps_graph && strata_device_is_usable(capture->runtime->device))
        strata_cu.GraphDestroy(capture->graph);
    capture->graph = NULL;
}

static strata_status refuse_capture(const strata_capture *capture)
{
    if (capture->failed != STRATA_SUCCESS)
        return strata_fail(capture->failed, "the capture gives no graph: %s (%s)",
                           capture->why ? capture->why : "a use in it could not be noted",
                           strata_status_text(capture->failed));
    const char *why = capture->result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                          ? "a stream that was forked from it was not joined"
                          : "a call that a capture forbids invalidated it, or it was ended already";
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture gives no graph: %s (driver code %d)", why,
                       (int)capture->result);
}

void strata_capture_spoil(strata_capture *capture, strata_status failed, const char *why)
{
    strata_captures_lock(&capture->runtime->captures);
    strata_capture_fail(capture, failed, why);
    strata_captures_unlock(&capture->runtime->captures);
}

/* Takes the body out of the capture around it, which goes on; if the node lacks a body now, that capture gives no
 * graph. */
static void leave_around(const strata_capture *capture, bool made, strata_status status)
{
    const strata_body *body = capture->body_of;
    if (!made && body->node)
        strata_capture_spoil(body->around, status == STRATA_SUCCESS ? STRATA_ERROR_STREAM_CAPTURE : status,
                             "the body of a conditional node in it was given up");
    strata_captures_lock(&capture->runtime->captures);
    body->around->body = NULL;
    strata_captures_unlock(&capture->runtime->captures);
}

static strata_status make_of(strata_capture *capture, const capture_use *to)
{
    if (!to->make)
        return STRATA_SUCCESS;
    if (capture->result != CUDA_SUCCESS || capture->failed != STRATA_SUCCESS || !capture->graph)
        return refuse_capture(capture);
    return to->make(capture, to->data);
}

/* Makes what the call asks for of an ended capture, and frees what was not taken over. */
static strata_status finish_capture(strata_capture *capture, const capture_use *to)
{
    strata_runtime *runtime = capture->runtime;
    remove_capture(capture);
    const strata_status status = make_of(capture, to);
    if (capture->body_of)
        leave_around(capture, to->make && status == STRATA_SUCCESS, status);
    else if (status != STRATA_SUCCESS && to->what == STRATA_GRAPH_EVENT_CAPTURE)
        strata_capture_tell_failure(capture, status);
    destroy_graph(capture);
    strata_objects_ended(STRATA_OBJECT_CONDITIONAL, capture->conditionals);
    strata_ancestors_free(&capture->ancestors);
    strata_error_suppress_begin(); /* it is over: what cannot be freed now is tried again by other calls */
    strata_capture_uses_drop(runtime, &capture->uses, false);
    strata_capture_pool_unhold(capture->pool);
    strata_host_free(capture->body_of);
    strata_host_free(capture);
    strata_error_suppress_end(false);
    return status;
}

/* The capture's open body, or NULL. *opening: another thread opens one. */
static strata_capture *open_body(strata_capture *capture, bool *opening)
{
    strata_captures_lock(&capture->runtime->captures);
    strata_capture *body = capture->body;
    *opening = capture->opening;
    strata_captures_unlock(&capture->runtime->captures);
    return body;
}

/* Claims the end of a capture, and of its open bodies; NULL, or why not. The lock is held. */
static const char *claim_ending(strata_capture *capture)
{
    if (capture->opening)
        return "the capture cannot end while another thread opens the body of a conditional node in it";
    if (capture->ending)
        return "another thread ends the capture, or that around it";
    const char *why = capture->body ? claim_ending(capture->body) : NULL;
    capture->ending = !why;
    return why;
}

/* A body that could not be ended was given back already, and another thread may have claimed it since. */
strata_status strata_capture_give_end_back(strata_capture *capture, strata_status status)
{
    strata_captures *captures = &capture->runtime->captures;
    strata_captures_lock(captures);
    capture->ending = false;
    strata_captures_unlock(captures);
    return status;
}

/* Ends a capture whose end the caller has claimed. An open body of it is given up first. */
static strata_status end_claimed(strata_capture *capture, const capture_use *to)
{
    bool opening;
    strata_capture *body = open_body(capture, &opening);
    strata_status status = body ? end_claimed(body, &discarded) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = end_for_driver(capture);
    if (status == STRATA_SUCCESS)
        status = restore_stream(capture);
    return status == STRATA_SUCCESS ? finish_capture(capture, to) : strata_capture_give_end_back(capture, status);
}

static strata_status end_capture(strata_capture *capture, const capture_use *to)
{
    strata_captures *captures = &capture->runtime->captures;
    strata_captures_lock(captures);
    const char *why = claim_ending(capture);
    strata_captures_unlock(captures);
    return why ? strata_fail(STRATA_ERROR_STREAM_MISUSE, "%s", why) : end_claimed(capture, to);
}

static strata_status refuse_none(const char *call)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: no capture of this runtime began on the stream", call);
}

/* Finds the capture that began on the stream, and claims its end in the same moment: without that another thread could
 * end and free it at any time. *out is NULL if there is none. Errors: STREAM_MISUSE (it cannot be claimed). */
static strata_status claim_on(strata_runtime *runtime, CUstream stream, strata_capture **out)
{
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = find_on(runtime, stream);
    const char *why = capture ? claim_ending(capture) : NULL;
    strata_captures_unlock(&runtime->captures);
    *out = why ? NULL : capture;
    return why ? strata_fail(STRATA_ERROR_STREAM_MISUSE, "%s", why) : STRATA_SUCCESS;
}

/* As claim_on, for a capture that becomes a graph: refuses one that is a body, or that has an open one. */
static strata_status claim_whole(strata_runtime *runtime, CUstream stream, const char *call, strata_capture **out)
{
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = find_on(runtime, stream);
    const bool is_body = capture && capture->body_of, has_body = capture && strata_capture_has_body(capture);
    const char *why = capture && !is_body && !has_body ? claim_ending(capture) : NULL;
    strata_captures_unlock(&runtime->captures);
    *out = capture;
    if (!capture)
        return refuse_none(call);
    if (is_body)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "%s: the stream captures the body of a conditional node; use strata_capture_body_close",
                           call);
    if (has_body)
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "%s: the body of a conditional node in the capture is open; close it before", call);
    return why ? strata_fail(STRATA_ERROR_STREAM_MISUSE, "%s", why) : STRATA_SUCCESS;
}

strata_status strata_capture_claim_body(strata_runtime *runtime, CUstream stream, const char *call,
                                        strata_capture **out)
{
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = find_on(runtime, stream);
    const bool is_body = capture && capture->body_of, has_body = is_body && strata_capture_has_body(capture);
    const char *why = is_body && !has_body ? claim_ending(capture) : NULL;
    strata_captures_unlock(&runtime->captures);
    *out = capture;
    if (!is_body)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: the stream captures no body of this runtime", call);
    if (has_body)
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "%s: the body of a conditional node in this one is open; close it before", call);
    return why ? strata_fail(STRATA_ERROR_STREAM_MISUSE, "%s", why) : STRATA_SUCCESS;
}

strata_status strata_capture_end_as(strata_runtime *runtime, CUstream stream, strata_graph_event_kind what,
                                    strata_capture_maker check, strata_capture_maker make, void *data)
{
    strata_capture *capture;
    const char *call = what == STRATA_GRAPH_EVENT_UPDATE ? "strata_graph_update" : "strata_capture_end";
    strata_status status = claim_whole(runtime, stream, call, &capture);
    if (status != STRATA_SUCCESS)
        return status;
    if (check && (status = check(capture, data)) != STRATA_SUCCESS)
        return strata_capture_give_end_back(capture, status);
    return end_claimed(capture, &(capture_use){what, make, data});
}

static strata_status join_around(strata_capture *capture, void *unused)
{
    (void)unused;
    return strata_captured_body(capture);
}

strata_status strata_capture_body_leave(strata_capture *capture)
{
    return end_claimed(capture, &(capture_use){STRATA_GRAPH_EVENT_CAPTURE, join_around, NULL});
}

static strata_status make_graph(strata_capture *capture, void *out)
{
    return strata_graph_make(capture, out);
}

strata_status strata_capture_end(strata_runtime *runtime, CUstream stream, strata_graph **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_end: out is NULL");
    *out = NULL;
    const strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    return strata_capture_end_as(runtime, stream, STRATA_GRAPH_EVENT_CAPTURE, NULL, make_graph, out);
}

strata_status strata_capture_discard(strata_runtime *runtime, CUstream stream)
{
    strata_status status = runtime ? strata_check_driver() : strata_check_runtime(runtime);
    strata_capture *capture;
    if (status == STRATA_SUCCESS)
        status = claim_on(runtime, stream, &capture);
    if (status != STRATA_SUCCESS)
        return status;
    return capture ? end_claimed(capture, &discarded) : refuse_none("strata_capture_discard");
}

/* ---- beginning ---- */

static strata_status check_begin(strata_runtime *runtime, CUstream stream, strata_capture_mode mode,
                                 const strata_capture_pool *pool)
{
    strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if ((unsigned)mode > STRATA_CAPTURE_RELAXED)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_begin: invalid mode %d", (int)mode);
    if (strata_call_scope_for(stream) & STRATA_CALL_SCOPE_LEGACY || stream == STRATA_STREAM_GONE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_begin: the legacy stream cannot be captured");
    if (!strata_cu.StreamBeginCapture || !strata_cu.StreamEndCapture || !strata_cu.StreamGetCaptureInfo ||
        !strata_cu.StreamUpdateCaptureDependencies || !strata_cu.GraphInstantiateWithParams || !strata_cu.GraphLaunch ||
        !strata_cu.GraphDestroy || !strata_cu.GraphExecDestroy || !strata_cu.GraphGetNodes)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "captures need a driver of CUDA 12.0 or later");
    if (pool && pool->runtime != runtime)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_begin: the pool is another runtime's");
    return pool ? strata_capture_pool_check(pool) : STRATA_SUCCESS;
}

static strata_status take_pool(strata_capture *capture, strata_capture_pool *pool)
{
    if (pool) {
        strata_capture_pool_hold(pool);
        capture->pool = pool;
        return STRATA_SUCCESS;
    }
    const strata_status status = strata_capture_pool_make(capture->runtime, NULL, &capture->pool);
    if (status == STRATA_SUCCESS)
        capture->pool->is_private = capture->made_pool = true;
    return status;
}

strata_status strata_capture_check_idle(const strata_runtime *runtime, CUstream stream)
{
    strata_capture_front front;
    const strata_status status = strata_capture_ask(runtime->device, stream, &front);
    return front.status == CU_STREAM_CAPTURE_STATUS_NONE
               ? status
               : strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the stream is already being captured; end that capture");
}

static strata_status leave_known(strata_capture *capture)
{
    strata_device *device = capture->runtime->device;
    strata_stream_ref left;
    if (!strata_known_timeline(device, capture->stream))
        return STRATA_SUCCESS;
    const strata_status status = strata_stream_unregister(device, capture->stream, &left);
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_await_frees(&left);
    capture->known = true;
    return STRATA_SUCCESS;
}

/* Records events that cover the work of the runtime's known streams so far: later the program may have forked them into
 * the capture, and no event could be recorded. */
static void mark_streams(strata_runtime *runtime)
{
    strata_error_suppress_begin(); /* what is not marked now is waited for after the capture */
    strata_lock_take(&runtime->streams_lock);
    for (size_t i = 0; i < runtime->stream_count; i++) {
        const strata_timeline *timeline = strata_known_timeline(runtime->device, runtime->streams[i].stream);
        if (timeline)
            strata_timeline_close_epoch(strata_timeline_now(timeline));
    }
    strata_lock_release(&runtime->streams_lock);
    strata_error_suppress_end(false);
}

strata_status strata_capture_enter(strata_capture *capture)
{
    add_capture(capture); /* ended, until it has begun: whatever fails from here on is undone as by an end */
    const strata_status status = leave_known(capture);
    if (status == STRATA_SUCCESS)
        mark_streams(capture->runtime);
    return status;
}

void strata_capture_give_up(strata_capture *capture)
{
    strata_error_suppress_begin();
    end_claimed(capture, &discarded);
    strata_error_suppress_end(false);
}

static CUresult begin_now(const strata_capture *capture, CUstreamCaptureMode mode)
{
    const strata_body *body = capture->body_of;
    return body && body->nests
               ? strata_cu.StreamBeginCaptureToGraph(capture->stream, body->graphs[body->index], NULL, NULL, 0, mode)
               : strata_cu.StreamBeginCapture(capture->stream, mode);
}

strata_status strata_capture_begin_for_driver(strata_capture *capture)
{
    static const CUstreamCaptureMode modes[] = {
        [STRATA_CAPTURE_GLOBAL] = CU_STREAM_CAPTURE_MODE_GLOBAL,
        [STRATA_CAPTURE_THREAD_LOCAL] = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        [STRATA_CAPTURE_RELAXED] = CU_STREAM_CAPTURE_MODE_RELAXED,
    };
    strata_call_scope scope;
    strata_capture_front front;
    strata_device *device = capture->runtime->device;
    strata_status status = strata_call_scope_enter(&scope, device, strata_call_scope_for(capture->stream));
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = begin_now(capture, modes[capture->mode]);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(
            result,
            capture->body_of && capture->body_of->nests ? "cuStreamBeginCaptureToGraph" : "cuStreamBeginCapture",
            "beginning a %s%s", capture->body_of ? "capture of the body of a conditional node" : "capture",
            strata_stream_hint(result));
    status = strata_capture_ask(device, capture->stream, &front);
    strata_captures_lock(&capture->runtime->captures);
    capture->id = front.id;
    capture->ended = false;
    strata_captures_unlock(&capture->runtime->captures);
    return status;
}

strata_status strata_capture_begin(strata_runtime *runtime, CUstream stream, strata_capture_mode mode,
                                   strata_capture_pool *pool)
{
    strata_status status = check_begin(runtime, stream, mode, pool);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture *capture = strata_host_zalloc(sizeof *capture);
    if (!capture)
        return strata_fail_host_memory("a capture");
    *capture = (strata_capture){
        .runtime = runtime, .stream = stream, .mode = mode, .thread = pthread_self(), .ended = true, .ending = true};
    status = strata_capture_check_idle(runtime, stream);
    if (status == STRATA_SUCCESS)
        status = take_pool(capture, pool);
    if (status == STRATA_SUCCESS)
        capture->name = strata_capture_pool_tag(capture->pool);
    if (status != STRATA_SUCCESS) {
        strata_host_free(capture);
        return status;
    }
    status = strata_capture_enter(capture);
    if (status == STRATA_SUCCESS)
        status = strata_capture_begin_for_driver(capture);
    if (status == STRATA_SUCCESS)
        strata_capture_give_end_back(capture, status);
    else
        strata_capture_give_up(capture);
    return status;
}

/* ---- looking, and the runtime's part ---- */

strata_status strata_capture_set_name(strata_runtime *runtime, CUstream stream, const char *name)
{
    strata_tag tag;
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_tag_intern(name, &tag);
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&runtime->captures);
    strata_capture *capture = find_on(runtime, stream);
    const bool found = capture && !capture->body_of;
    if (found)
        capture->name = tag;
    if (found && capture->made_pool)
        atomic_store_explicit(&capture->pool->tag, tag, memory_order_relaxed);
    strata_captures_unlock(&runtime->captures);
    return found ? STRATA_SUCCESS : refuse_none("strata_capture_set_name");
}

strata_status strata_capture_status(strata_runtime *runtime, CUstream stream, strata_capture_state *out)
{
    strata_capture_front front;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_capture_status: out is NULL");
    *out = STRATA_CAPTURE_STATE_NONE;
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_capture_ask(runtime->device, stream, &front);
    if (status != STRATA_SUCCESS)
        return status;
    if (front.status != CU_STREAM_CAPTURE_STATUS_NONE)
        *out = front.status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? STRATA_CAPTURE_STATE_ACTIVE
                                                               : STRATA_CAPTURE_STATE_INVALIDATED;
    return STRATA_SUCCESS;
}

bool strata_is_stream_capturing(strata_runtime *runtime, CUstream stream)
{
    strata_capture_state state;
    return strata_capture_status(runtime, stream, &state) == STRATA_SUCCESS && state != STRATA_CAPTURE_STATE_NONE;
}

void strata_captures_init(strata_runtime *runtime)
{
    strata_spin_init(&runtime->captures.lock, STRATA_RANK_CAPTURES);
    runtime->captures.end_pool = strata_capture_pool_destroy;
}

void strata_captures_destroy(strata_runtime *runtime)
{
    strata_pool_blocks_close(runtime);
}

strata_status strata_captures_leave_stream(strata_runtime *runtime, CUstream stream)
{
    strata_capture *capture = NULL;
    const strata_status status = strata_captures_any(runtime) ? claim_on(runtime, stream, &capture) : STRATA_SUCCESS;
    return capture ? end_claimed(capture, &discarded) : status;
}

strata_status strata_captures_discard(strata_runtime *runtime)
{
    strata_status status = STRATA_SUCCESS;
    while (status == STRATA_SUCCESS && runtime->captures.list)
        status = end_capture(runtime->captures.list, &discarded);
    if (status == STRATA_SUCCESS)
        status = strata_capture_pools_reap(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_graphs_free_due(runtime);
    strata_captures_lock(&runtime->captures);
    const unsigned long long graphs = runtime->captures.graphs;
    const bool pools = runtime->captures.pools != NULL;
    strata_captures_unlock(&runtime->captures);
    if (graphs)
        return strata_fail(STRATA_ERROR_BUSY, "the runtime still has %llu graph%s; destroy %s first", graphs,
                           graphs == 1 ? "" : "s", graphs == 1 ? "it" : "them");
    return pools ? strata_fail(STRATA_ERROR_BUSY, "the runtime still has a capture pool; release its handles, and free "
                                                  "the blocks that were allocated in captures")
                 : STRATA_SUCCESS;
}
