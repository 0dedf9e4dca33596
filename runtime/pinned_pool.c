/* Pools of pinned staging buffers.
 *
 *     free --acquire--> out --release--> free
 *                        \--release_after--> pending --its work is complete--> free
 *
 * Buffers of an earlier generation, and oversize ones, leave as `doomed` where others become free. The lock is held for
 * list work alone, never around a call of the driver or the runtime. A thread that waits looks at pending buffers from
 * time to time, since no thread tells it of their completion; of all else it is told under the lock, by a broadcast. */
#include <strata/pinned_pool.h>

#include "core/base/cancel.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/streams/internal_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <time.h>

/* PTDS programs see a macro of this name. */
#undef strata_pinned_buffer_release_after

enum { INITIAL = 4, MOST = 32, POINTS = 64, DESTROY_TRIES = 3 };

static const size_t CAPACITY = (size_t)4 << 20;

/* Nanoseconds between looks at pending buffers, and at the generation of the device's state, which tells no thread. */
static const uint64_t LOOK_FIRST = 50000, LOOK_MOST = 1000000, LOOK_GENERATION = 50000000;

struct strata_pinned_buffer {
    strata_pinned_pool *pool; /* constant, as the next three */
    strata_block block;
    uint64_t generation;
    bool oversize;
    size_t bytes;       /* in use; of the thread that has it */
    strata_point point; /* while pending; guarded by the pool's lock, as the next three */
    uint64_t asked;     /* the last look that asked about it, or that was under way when it became pending */
    bool out;
    strata_pinned_buffer *next;
};

typedef struct list {
    strata_pinned_buffer *first;
    size_t count;
} list;

struct strata_pinned_pool {
    strata_runtime *runtime; /* constant, as the next five */
    CUstream stream;         /* of its own and without work: blocks are made and freed on it */
    size_t capacity;
    uint32_t most;
    bool allow_oversize;
    strata_tag tag;
    strata_lock lock;
    pthread_cond_t changed;     /* with lock: a buffer became free, one less counts, or the generation changed */
    list free, pending, doomed; /* guarded by lock, as the rest */
    size_t out, oversize, bytes;
    size_t counted; /* buffers of `counts_for` that exist or are being made */
    uint64_t counts_for, bumps;
    uint64_t looks;                 /* begun */
    strata_pinned_pool_stats stats; /* its last four members */
};

/* ---- lists; the lock is held ---- */

static void push(list *to, strata_pinned_buffer *buffer)
{
    buffer->next = to->first;
    to->first = buffer;
    to->count++;
}

static strata_pinned_buffer *pop(list *from)
{
    strata_pinned_buffer *buffer = from->first;
    if (buffer) {
        from->first = buffer->next;
        from->count--;
    }
    return buffer;
}

static uint64_t generation_of(const strata_pinned_pool *pool)
{
    return pool->bumps + strata_device_state_generation(strata_runtime_device_state(pool->runtime));
}

static bool is_kept(const strata_pinned_pool *pool, const strata_pinned_buffer *buffer)
{
    return !buffer->oversize && buffer->generation == pool->counts_for;
}

static void settle_buffer(strata_pinned_pool *pool, strata_pinned_buffer *buffer)
{
    pool->oversize -= buffer->oversize;
    if (is_kept(pool, buffer)) {
        push(&pool->free, buffer);
        pthread_cond_broadcast(&pool->changed);
    } else {
        push(&pool->doomed, buffer);
    }
}

/* After a change of the generation: buffers of earlier ones count no more, and free ones are doomed. */
static void follow_generation(strata_pinned_pool *pool)
{
    const uint64_t generation = generation_of(pool);
    if (generation == pool->counts_for)
        return;
    pool->counts_for = generation;
    pool->counted = 0;
    for (strata_pinned_buffer *buffer; (buffer = pop(&pool->free));)
        push(&pool->doomed, buffer);
    pthread_cond_broadcast(&pool->changed);
}

/* Moves pending buffers whose work is known to be complete to `free` or `doomed`. */
static void settle(strata_pinned_pool *pool)
{
    list pending = pool->pending;
    pool->pending = (list){0};
    follow_generation(pool);
    for (strata_pinned_buffer *buffer; (buffer = pop(&pending));)
        if (strata_point_seen_complete(buffer->point))
            settle_buffer(pool, buffer);
        else
            push(&pool->pending, buffer);
}

/* ---- without the lock ---- */

/* Frees the doomed buffers, also those whose free failed before. */
static strata_status free_doomed(strata_pinned_pool *pool)
{
    strata_lock_take(&pool->lock);
    list doomed = pool->doomed;
    pool->doomed = (list){0};
    strata_lock_release(&pool->lock);
    strata_status status = STRATA_SUCCESS;
    for (strata_pinned_buffer *buffer; (buffer = pop(&doomed));) {
        const strata_status freed = strata_runtime_deallocate_on(pool->runtime, &buffer->block, pool->stream);
        strata_lock_take(&pool->lock);
        if (freed != STRATA_SUCCESS)
            push(&pool->doomed, buffer);
        else
            pool->bytes -= buffer->block.bytes;
        strata_lock_release(&pool->lock);
        if (freed == STRATA_SUCCESS)
            strata_host_free(buffer);
        else
            status = freed;
    }
    return status;
}

/* As free_doomed, for calls with another purpose: what fails is tried again later. */
static void tidy(strata_pinned_pool *pool)
{
    strata_error_suppress_begin();
    free_doomed(pool);
    strata_error_suppress_end(false);
}

/* Copies the points of pending buffers that no look from number `look` on has asked about, one of each timeline, and
 * marks them, until the room is used up. */
static size_t copy_points(strata_pinned_pool *pool, uint64_t look, strata_point points[POINTS])
{
    size_t count = 0;
    strata_lock_take(&pool->lock);
    for (strata_pinned_buffer *each = pool->pending.first; each && count < POINTS; each = each->next) {
        size_t i = 0;
        if (each->asked >= look)
            continue;
        while (i < count && strata_point_timeline(points[i]) != strata_point_timeline(each->point))
            i++;
        if (i == count)
            points[count++] = each->point;
        else if (strata_point_epoch(points[i]) < strata_point_epoch(each->point))
            points[i] = each->point;
        each->asked = look;
    }
    strata_lock_release(&pool->lock);
    return count;
}

static uint64_t begin_look(strata_pinned_pool *pool)
{
    strata_lock_take(&pool->lock);
    const uint64_t look = ++pool->looks;
    strata_lock_release(&pool->lock);
    return look;
}

/* Asks the driver about pending buffers. Failures are ignored: they stay pending. */
static void look(strata_pinned_pool *pool)
{
    strata_point points[POINTS];
    strata_call_scope scope;
    const uint64_t number = begin_look(pool);
    size_t count = copy_points(pool, number, points);
    if (!count || !strata_device_is_usable(pool->runtime->device))
        return;
    strata_error_suppress_begin();
    if (strata_call_scope_enter(&scope, pool->runtime->device, STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS) {
        for (; count; count = copy_points(pool, number, points))
            for (size_t i = 0; i < count; i++)
                if (!strata_point_known_complete(points[i]))
                    strata_timeline_poll_up_to_now(strata_timeline_of(points[i]));
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    strata_lock_take(&pool->lock);
    settle(pool);
    strata_lock_release(&pool->lock);
}

static strata_status make_buffer(strata_pinned_pool *pool, size_t bytes, uint64_t generation,
                                 strata_pinned_buffer **out)
{
    const strata_request request = {.bytes = bytes, .stream = pool->stream, .tag = pool->tag};
    strata_pinned_buffer *buffer = strata_host_zalloc(sizeof *buffer);
    if (!buffer)
        return strata_fail_host_memory("a pinned buffer");
    const strata_status status = strata_runtime_allocate_request(pool->runtime, &request, &buffer->block);
    if (status != STRATA_SUCCESS) {
        strata_host_free(buffer);
        return status;
    }
    buffer->pool = pool;
    buffer->generation = generation;
    buffer->oversize = bytes > pool->capacity;
    *out = buffer;
    return STRATA_SUCCESS;
}

/* ---- acquiring; the lock is held unless it says so ---- */

static void give_out(strata_pinned_pool *pool, strata_pinned_buffer *buffer, size_t bytes)
{
    buffer->bytes = bytes;
    buffer->out = true;
    pool->out++;
    pool->stats.acquired++;
}

/* Makes a buffer and gives it out; releases the lock meanwhile. After a failure another waiting thread may make one. */
static strata_status make_and_give_out(strata_pinned_pool *pool, size_t bytes, strata_pinned_buffer **out)
{
    const bool oversize = bytes > pool->capacity;
    const uint64_t generation = pool->counts_for;
    pool->counted += !oversize;
    strata_lock_release(&pool->lock);
    const strata_status status = make_buffer(pool, oversize ? bytes : pool->capacity, generation, out);
    strata_lock_take(&pool->lock);
    if (status == STRATA_SUCCESS) {
        pool->bytes += (*out)->block.bytes;
        pool->oversize += oversize;
        give_out(pool, *out, bytes);
        return status;
    }
    pool->stats.refused++;
    if (!oversize && generation == pool->counts_for)
        pool->counted--;
    pthread_cond_broadcast(&pool->changed);
    return status;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void wait_until(strata_pinned_pool *pool, uint64_t end)
{
    const struct timespec at = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    const int cancel = strata_cancel_forbid();
    pthread_cond_clockwait(&pool->changed, &pool->lock.mutex, CLOCK_MONOTONIC, &at);
    strata_cancel_restore(cancel);
}

typedef struct patience {
    uint64_t deadline; /* UINT64_MAX: none */
    uint64_t pause;    /* until the next look */
    bool looked, waited;
} patience;

/* Waits until something may have changed, with the lock released meanwhile. False: the time is over. */
static bool wait_for_change(strata_pinned_pool *pool, patience *with)
{
    const uint64_t now = now_ns();
    if (now >= with->deadline)
        return false;
    pool->stats.waited += !with->waited;
    with->waited = true;
    with->looked = false;
    const uint64_t look = now + (pool->pending.count ? with->pause : LOOK_GENERATION);
    with->pause = with->pause * 2 < LOOK_MOST ? with->pause * 2 : LOOK_MOST;
    wait_until(pool, look < with->deadline ? look : with->deadline);
    return true;
}

static void look_without_lock(strata_pinned_pool *pool)
{
    strata_lock_release(&pool->lock);
    look(pool);
    strata_lock_take(&pool->lock);
}

static strata_status acquire_locked(strata_pinned_pool *pool, size_t bytes, patience *with, strata_pinned_buffer **out)
{
    for (;;) {
        const bool oversize = bytes > pool->capacity;
        settle(pool);
        if (!oversize && (*out = pop(&pool->free))) {
            give_out(pool, *out, bytes);
            return STRATA_SUCCESS;
        }
        if (pool->pending.count && !with->looked) {
            with->looked = true;
            look_without_lock(pool);
        } else if (oversize || pool->counted < pool->most) {
            return make_and_give_out(pool, bytes, out);
        } else if (strata_device_is_lost(pool->runtime->device)) {
            return STRATA_ERROR_TIMEOUT; /* what is pending is never complete */
        } else if (!wait_for_change(pool, with)) {
            pool->stats.timeouts++;
            return STRATA_ERROR_TIMEOUT;
        }
    }
}

static strata_status fail_timeout(const strata_pinned_pool *pool, uint64_t timeout)
{
    return strata_fail(STRATA_ERROR_TIMEOUT,
                       "all %u buffers of the pinned pool \"%s\" were in use for %.3g ms; release buffers, wait longer "
                       "or raise `most`",
                       pool->most, strata_tag_name(pool->tag), (double)timeout / 1e6);
}

strata_status strata_pinned_pool_acquire(strata_pinned_pool *pool, size_t bytes, uint64_t timeout,
                                         strata_pinned_buffer **out)
{
    if (out)
        *out = NULL;
    if (!pool || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pinned_pool_acquire: pool or out is NULL");
    strata_status status = strata_check_runtime(pool->runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if (bytes > pool->capacity && !pool->allow_oversize)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a request of %s exceeds the %s of the pinned pool's buffers; set allow_oversize, or raise "
                           "capacity",
                           strata_size_text(bytes).text, strata_size_text(pool->capacity).text);
    const uint64_t now = now_ns();
    patience with = {.deadline = timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX, .pause = LOOK_FIRST};
    tidy(pool);
    strata_lock_take(&pool->lock);
    status = acquire_locked(pool, bytes, &with, out);
    strata_lock_release(&pool->lock);
    if (status != STRATA_ERROR_TIMEOUT)
        return status;
    status = strata_check_device(pool->runtime->device);
    return status == STRATA_SUCCESS ? fail_timeout(pool, timeout) : status;
}

/* ---- releasing ---- */

/* Releases a buffer behind the work of `point`; 0: no work uses it. */
static strata_status release(strata_pinned_buffer *buffer, strata_point point)
{
    strata_pinned_pool *pool = buffer->pool;
    strata_lock_take(&pool->lock);
    const bool was_out = buffer->out;
    if (was_out) {
        buffer->out = false;
        pool->out--;
        buffer->point = point;
        buffer->asked = pool->looks;
        if (point)
            push(&pool->pending, buffer);
        follow_generation(pool);
        if (!point)
            settle_buffer(pool, buffer);
        pthread_cond_broadcast(&pool->changed); /* a thread may wait without looks at pending buffers */
    }
    strata_lock_release(&pool->lock);
    if (!was_out)
        return strata_fail(STRATA_ERROR_DOUBLE_FREE, "the pinned buffer was released already; acquire another one");
    tidy(pool);
    return STRATA_SUCCESS;
}

strata_status strata_pinned_buffer_release(strata_pinned_buffer *buffer)
{
    const strata_status status = strata_check_not_forked();
    return buffer && status == STRATA_SUCCESS ? release(buffer, 0) : status;
}

strata_status strata_pinned_buffer_release_after(strata_pinned_buffer *buffer, CUstream stream)
{
    strata_stream_ref found;
    strata_point point = 0;
    if (!buffer)
        return STRATA_SUCCESS;
    strata_device *device = buffer->pool->runtime->device;
    strata_status status = strata_check_runtime(buffer->pool->runtime);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(device, stream, &found);
    if (status == STRATA_SUCCESS) /* detects a capture that forbids an event */
        status = strata_check_call_scope(device, strata_call_scope_for(stream));
    if (status == STRATA_SUCCESS)
        status = strata_stream_point(&found, &point);
    return status == STRATA_SUCCESS ? release(buffer, point) : status;
}

strata_status strata_pinned_pool_bump(strata_pinned_pool *pool)
{
    const strata_status status = strata_check_not_forked();
    if (!pool)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pinned_pool_bump: pool is NULL");
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&pool->lock);
    pool->bumps++;
    settle(pool);
    strata_lock_release(&pool->lock);
    tidy(pool);
    return STRATA_SUCCESS;
}

/* ---- views and statistics ---- */

static strata_status check_view(const strata_pinned_buffer *buffer, strata_element type, const char *call)
{
    if (!buffer)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: buffer is NULL", call);
    return strata_element_bytes(type)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: %d is no element type", call, (int)type);
}

strata_status strata_pinned_buffer_view(const strata_pinned_buffer *buffer, strata_element type,
                                        strata_pinned_view *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pinned_buffer_view: out is NULL");
    *out = (strata_pinned_view){0};
    const strata_status status = check_view(buffer, type, "strata_pinned_buffer_view");
    if (status != STRATA_SUCCESS)
        return status;
    const size_t each = strata_element_bytes(type);
    if (buffer->bytes % each)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the %s in use are no whole number of %s; set the length with strata_pinned_buffer_set_len",
                           strata_size_text(buffer->bytes).text, strata_element_name(type));
    *out = (strata_pinned_view){
        .data = (void *)(uintptr_t)buffer->block.address,
        .address = buffer->block.address,
        .len = buffer->bytes / each,
        .capacity = buffer->block.bytes / each,
        .type = type,
        .generation = buffer->generation,
    };
    return STRATA_SUCCESS;
}

strata_status strata_pinned_buffer_set_len(strata_pinned_buffer *buffer, strata_element type, size_t len)
{
    const strata_status status = check_view(buffer, type, "strata_pinned_buffer_set_len");
    if (status != STRATA_SUCCESS)
        return status;
    const size_t each = strata_element_bytes(type);
    if (len > buffer->block.bytes / each)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%zu elements of %s exceed the buffer, which has room for %zu",
                           len, strata_element_name(type), buffer->block.bytes / each);
    buffer->bytes = len * each;
    return STRATA_SUCCESS;
}

strata_status strata_pinned_pool_get_stats(strata_pinned_pool *pool, strata_pinned_pool_stats *out)
{
    if (!pool || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pinned_pool_get_stats: pool or out is NULL");
    *out = (strata_pinned_pool_stats){0};
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    look(pool);
    strata_lock_take(&pool->lock);
    settle(pool);
    strata_lock_release(&pool->lock);
    tidy(pool);
    strata_lock_take(&pool->lock);
    *out = pool->stats;
    out->capacity = pool->capacity;
    out->in_use = pool->out;
    out->pending = pool->pending.count;
    out->free = pool->free.count;
    out->total = pool->out + pool->pending.count + pool->free.count + pool->doomed.count;
    out->bytes = pool->bytes;
    out->oversize = pool->oversize;
    out->generation = pool->counts_for;
    strata_lock_release(&pool->lock);
    return STRATA_SUCCESS;
}

/* ---- beginning and end ---- */

static strata_status read_options(const strata_pinned_pool_options *given, strata_pinned_pool_options *options)
{
    strata_status status = strata_options_read(options, sizeof *options, given, "strata_pinned_pool_options");
    if (status != STRATA_SUCCESS)
        return status;
    if (!options->capacity)
        options->capacity = CAPACITY;
    if (!options->most)
        options->most = MOST;
    if (!options->initial)
        options->initial = INITIAL < options->most ? INITIAL : options->most;
    if (options->initial > options->most)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%u buffers at first exceed the most, %u; raise `most`",
                           options->initial, options->most);
    return STRATA_SUCCESS;
}

static strata_status make_pool(strata_runtime *runtime, const strata_pinned_pool_options *options,
                               strata_pinned_pool **out)
{
    strata_tag tag;
    strata_status status = strata_tag_intern(options->name ? options->name : "pinned pool", &tag);
    if (status != STRATA_SUCCESS)
        return status;
    strata_pinned_pool *pool = strata_host_zalloc(sizeof *pool);
    if (!pool)
        return strata_fail_host_memory("a pinned pool");
    pool->runtime = runtime;
    pool->capacity = options->capacity;
    pool->most = options->most;
    pool->allow_oversize = options->allow_oversize;
    pool->tag = tag;
    pool->counts_for = generation_of(pool);
    strata_lock_init(&pool->lock, STRATA_RANK_PINNED_POOL);
    pthread_cond_init(&pool->changed, NULL);
    status = strata_internal_stream_create(runtime->device, false, "a stream for a pinned pool", &pool->stream);
    if (status == STRATA_SUCCESS) {
        *out = pool;
        return status;
    }
    pthread_cond_destroy(&pool->changed);
    strata_lock_destroy(&pool->lock);
    strata_host_free(pool);
    return status;
}

static strata_status make_first(strata_pinned_pool *pool, uint32_t count)
{
    strata_status status = STRATA_SUCCESS;
    strata_pinned_buffer *buffer = NULL;
    for (uint32_t i = 0; i < count && status == STRATA_SUCCESS; i++) {
        status = make_buffer(pool, pool->capacity, pool->counts_for, &buffer);
        if (status != STRATA_SUCCESS)
            break;
        pool->bytes += buffer->block.bytes;
        pool->counted++;
        push(&pool->free, buffer);
    }
    return status;
}

strata_status strata_pinned_pool_create(strata_runtime *runtime, const strata_pinned_pool_options *given,
                                        strata_pinned_pool **out)
{
    strata_pinned_pool_options options;
    strata_pinned_pool *pool = NULL;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_pinned_pool_create: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = read_options(given, &options);
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_stack_is_host_readable(runtime->stack))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the stack \"%s\" has memory that the host cannot read; give a runtime whose stack ends in "
                           "pinned",
                           strata_stack_text(runtime->stack));
    if ((status = make_pool(runtime, &options, &pool)) != STRATA_SUCCESS)
        return status;
    if ((status = make_first(pool, options.initial)) == STRATA_SUCCESS) {
        *out = pool;
        return status;
    }
    strata_error_suppress_begin();
    for (int i = 0; i < DESTROY_TRIES && strata_pinned_pool_destroy(pool) != STRATA_SUCCESS; i++)
        ;
    strata_error_suppress_end(false);
    return status;
}

/* Waits for the work of pending buffers. After the driver's shutdown or the device's reset there is none. */
static strata_status wait_for_pending(strata_pinned_pool *pool)
{
    strata_point points[POINTS];
    strata_status status = STRATA_SUCCESS;
    while (pool->pending.count && status == STRATA_SUCCESS) {
        const size_t count = copy_points(pool, begin_look(pool), points);
        const bool usable = strata_device_is_usable_now(pool->runtime->device);
        for (size_t i = 0; i < count && status == STRATA_SUCCESS && usable; i++)
            status = strata_point_synchronize_for(pool->runtime->device, points[i]);
        strata_lock_take(&pool->lock);
        settle(pool);
        for (strata_pinned_buffer *buffer; !usable && (buffer = pop(&pool->pending));)
            push(&pool->doomed, buffer);
        strata_lock_release(&pool->lock);
    }
    return status;
}

strata_status strata_pinned_pool_destroy(strata_pinned_pool *pool)
{
    bool gone = false;
    strata_status status = strata_check_not_forked();
    if (!pool || status != STRATA_SUCCESS)
        return status;
    if (pool->out)
        return strata_fail(STRATA_ERROR_BUSY, "%zu buffer%s of the pinned pool \"%s\" %s out; release %s first",
                           pool->out, pool->out == 1 ? "" : "s", strata_tag_name(pool->tag),
                           pool->out == 1 ? "is" : "are", pool->out == 1 ? "it" : "them");
    status = wait_for_pending(pool);
    if (status != STRATA_SUCCESS)
        return status;
    for (strata_pinned_buffer *buffer; (buffer = pop(&pool->free));)
        push(&pool->doomed, buffer);
    status = free_doomed(pool);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_device_is_usable(pool->runtime->device))
        status = strata_internal_stream_destroy(pool->runtime->device, pool->stream, &gone);
    else
        gone = true;
    if (status != STRATA_SUCCESS && !gone)
        return status;
    pthread_cond_destroy(&pool->changed);
    strata_lock_destroy(&pool->lock);
    strata_host_free(pool);
    return STRATA_SUCCESS;
}
