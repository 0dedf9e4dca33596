/* Collecting, merging, and the thread. */
#include "resources/logging/writer.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/last_threads.h"
#include "driver/driver.h"

#include <strata/stack.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SLACK_NS = 200000 };

/* All writers, for the exit; a forked child's are the parent's. */
static strata_lock writers_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LOG_LIST);
static log_writer *writers; /* guarded by writers_lock */

/* The writer whose thread this is; NULL: none. A pthread_t would not tell: a later thread may have that of a writer
 * that has ended. */
static _Thread_local const log_writer *of_this_thread;

uint64_t log_writer_dropped(const log_writer *writer)
{
    return log_rings_dropped(&writer->rings) + atomic_load_explicit(&writer->lost, memory_order_relaxed) +
           atomic_load_explicit(&writer->sink->lost, memory_order_relaxed);
}

/* ---- records ---- */

static void write_batch(log_writer *self)
{
    if (!self->batch_count)
        return;
    if (!self->sink->stack_text) /* records exist only after the stack was built */
        self->sink->stack_text = strata_stack_text(self->resource->stack);
    self->sink->dropped = log_writer_dropped(self);
    size_t taken = self->sink->ops->write(self->sink, self->batch, self->batch_count);
    atomic_fetch_add_explicit(&self->lost, self->batch_count - taken, memory_order_relaxed);
    self->batch_count = 0;
}

typedef struct time_scale {
    const strata_timestamp_point *from, *to;
    double rate, long_rate; /* ns a tick: between the points; since the start */
} time_scale;

/* A stamp's time; of one that is not late not before the last record's: rounding must not reverse the order. */
static uint64_t advance_time(log_writer *self, const time_scale *scale, uint64_t stamp, bool late)
{
    double rate = stamp < scale->from->stamp ? scale->long_rate : scale->rate;
    uint64_t time = strata_timestamp_time(scale->from, rate, stamp);
    if (late)
        return time;
    if (time > self->newest_ns)
        self->newest_ns = time;
    return self->newest_ns;
}

static uint64_t duration_of(const time_scale *scale, uint32_t units)
{
    return (uint64_t)((double)((uint64_t)units << LOG_DURATION_SHIFT) * scale->long_rate);
}

static void add_record(log_writer *self, const time_scale *scale, log_ring *ring, const log_line *line)
{
    bool late = line->stamp < self->newest_stamp;
    if (late)
        atomic_fetch_add_explicit(&self->late, 1, memory_order_relaxed);
    else
        self->newest_stamp = line->stamp;
    uint64_t time = advance_time(self, scale, line->stamp, late);
    uint32_t flags = (uint32_t)(line->what >> LOG_WHAT_FLAGS & 0xf);
    uint32_t alignment = (uint32_t)(line->where >> LOG_WHERE_ALIGNMENT & 0x3f);
    self->batch[self->batch_count++] = (strata_log_record){
        .wall_ns = scale->to->wall_ns + (time - scale->to->monotonic_ns),
        .monotonic_ns = time,
        .duration_ns = duration_of(scale, line->duration),
        .thread = ring->writer_serial,
        .number = ++ring->numbered,
        .stream = line->stream,
        .address = line->address,
        .requested = line->requested,
        .bytes = line->bytes,
        .alignment = alignment ? UINT64_C(1) << alignment : 0,
        .generation = line->what >> LOG_WHAT_GENERATION,
        .slot = (uint32_t)(line->where >> LOG_WHERE_SLOT & LOG_SLOT_LIMIT),
        .stream_id = line->stream_id,
        .thread_id = ring->writer_id,
        .tag = (strata_tag)(line->where >> LOG_WHERE_TAG),
        .device = self->device,
        .flags = flags | (late ? STRATA_LOG_FLAG_LATE : 0),
        .kind = (strata_log_kind)(line->what >> LOG_WHAT_KIND & 0xf),
        .status = (strata_status)(line->what >> LOG_WHAT_STATUS & 0xff),
        .access = (strata_access)(line->where >> LOG_WHERE_ACCESS & 3),
    };
}

static void read_control(log_ring *ring, const log_line *line)
{
    if (ring->writer_serial != line->stream)
        ring->numbered = 0;
    ring->writer_serial = line->stream;
    ring->writer_id = (uint32_t)line->requested;
    ring->numbered += line->address;
}

/* ---- merging ---- */

static const log_line *current(const log_ring *ring)
{
    return &ring->lines[ring->collected & ring->mask];
}

/* Goes on to the ring's next record, and reads control lines on the way. False at the end. */
static bool advance_to_record(log_ring *ring)
{
    while (ring->collected != ring->end && (current(ring)->what >> LOG_WHAT_KIND & 0xf) == LOG_KIND_CONTROL)
        read_control(ring, &ring->lines[ring->collected++ & ring->mask]);
    return ring->collected != ring->end;
}

static void sift_down(log_writer *self, size_t at)
{
    log_ring **heap = self->rings.heap, *ring = heap[at];
    const uint64_t stamp = current(ring)->stamp;
    for (size_t child; (child = 2 * at + 1) < self->heap_count; at = child) {
        if (child + 1 < self->heap_count && current(heap[child + 1])->stamp < current(heap[child])->stamp)
            child++;
        if (stamp <= current(heap[child])->stamp)
            break;
        heap[at] = heap[child];
    }
    heap[at] = ring;
}

/* Reads each ring's head, and enters rings with records in the heap. Returns the most lines in a ring. */
static uint64_t look_at_rings(log_writer *self)
{
    uint64_t most = 0;
    self->heap_count = 0;
    for (log_ring *ring = atomic_load_explicit(&self->rings.used, memory_order_acquire); ring; ring = ring->next) {
        ring->end = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t lines = ring->end - ring->collected;
        most = lines > most ? lines : most;
        if (advance_to_record(ring))
            self->rings.heap[self->heap_count++] = ring;
    }
    for (size_t i = self->heap_count / 2; i-- > 0;)
        sift_down(self, i);
    return most;
}

static void give_lines_back(log_writer *self)
{
    for (log_ring *ring = atomic_load_explicit(&self->rings.used, memory_order_acquire); ring; ring = ring->next)
        atomic_store_explicit(&ring->tail, ring->collected, memory_order_release);
}

static void merge(log_writer *self, const time_scale *scale, uint64_t newest)
{
    while (self->heap_count) {
        log_ring *ring = self->rings.heap[0];
        const log_line *line = current(ring);
        if (line->stamp > newest)
            break;
        if (self->batch_count == LOG_BATCH) {
            give_lines_back(self);
            write_batch(self);
        }
        add_record(self, scale, ring, line);
        ring->collected++;
        if (!advance_to_record(ring))
            self->rings.heap[0] = self->rings.heap[--self->heap_count];
        if (self->heap_count)
            sift_down(self, 0);
    }
    give_lines_back(self);
    write_batch(self);
}

static uint64_t collect(log_writer *self, bool all)
{
    uint64_t half = self->rings.lines / 2;
    uint64_t most = look_at_rings(self);
    strata_timestamp_point now;
    strata_timestamp_take_point(&now);
    time_scale scale = {.from = &self->last, .to = &now, .long_rate = strata_timestamp_rate(&self->first, &now)};
    scale.rate = now.monotonic_ns - self->last.monotonic_ns > SLACK_NS ? strata_timestamp_rate(&self->last, &now)
                                                                       : scale.long_rate;
    uint64_t slack = (uint64_t)(SLACK_NS / scale.long_rate);
    merge(self, &scale, all || most >= half ? UINT64_MAX : now.stamp - slack);
    log_rings_refill(&self->rings);
    self->last = now;
    return most;
}

/* ---- the thread ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits until the writer is wanted. False: the time came first. */
static bool wait_for_wake(log_writer *self, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    return sem_clockwait(&self->rings.wake, CLOCK_MONOTONIC, &until) == 0;
}

/* Looks now and then whether the process has another thread left. */
static void look_around(log_writer *self, uint64_t now)
{
    if (now < self->look_ns)
        return;
    self->look_ns = now + STRATA_LAST_THREADS_LOOK_MS * UINT64_C(1000000);
    strata_last_threads_look(&self->program_mask);
}

static void sleep_until_needed(log_writer *self, bool busy)
{
    uint64_t now = now_ns();
    const uint64_t pause = busy ? self->interval_ns / 8 : self->interval_ns;
    const uint64_t end = pause < UINT64_MAX - now ? now + pause : UINT64_MAX;
    atomic_store(&self->rings.asleep, true);
    while (now < end && !atomic_load(&self->stop) && atomic_load(&self->asked) == self->done) {
        look_around(self, now);
        if (wait_for_wake(self, end < self->look_ns ? end : self->look_ns))
            break;
        now = now_ns();
    }
    atomic_store(&self->rings.asleep, false);
}

/* Lowers the thread's priority: with every core busy it gets a tenth of one, and full rings drop records. Logging must
 * not slow the program. */
static void step_back(void)
{
    enum { NICENESS = 10 };
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS);
}

static void set_done(log_writer *self, uint64_t done)
{
    strata_lock_take(&self->lock);
    self->done = done;
    self->lost_when_done = atomic_load_explicit(&self->lost, memory_order_relaxed);
    pthread_cond_broadcast(&self->finished);
    strata_lock_release(&self->lock);
}

static void finish(log_writer *self)
{
    collect(self, true);
    if (self->resource->stack && self->sink->ops->finish)
        self->sink->ops->finish(self->sink);
}

static void *run(void *data)
{
    log_writer *self = data;
    of_this_thread = self;
    strata_last_threads_mark();
    step_back();
    for (;;) {
        if (atomic_load(&self->stop)) {
            finish(self);
            set_done(self, UINT64_MAX); /* for later requests, too */
            return NULL;
        }
        uint64_t asked = atomic_load(&self->asked);
        uint64_t most = collect(self, asked != self->done);
        if (self->sink->ops->poll)
            self->sink->ops->poll(self->sink);
        if (asked != self->done) {
            if (self->resource->stack && self->sink->ops->flush)
                self->sink->ops->flush(self->sink);
            set_done(self, asked);
        }
        if (most < self->rings.lines / 2)
            sleep_until_needed(self, most >= self->rings.lines / 8);
    }
}

static void wake(log_writer *self)
{
    if (atomic_exchange(&self->rings.asleep, false))
        sem_post(&self->rings.wake);
}

bool log_writer_flush(log_writer *self, unsigned patience_s, uint64_t *lost)
{
    if (of_this_thread == self)
        return false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += patience_s;
    int waited = 0;
    const int cancel = strata_cancel_forbid();
    strata_lock_take(&self->lock);
    const uint64_t lost_before = self->lost_when_done;
    const uint64_t mine = atomic_fetch_add(&self->asked, 1) + 1;
    wake(self);
    while (self->done < mine && waited == 0)
        waited = patience_s ? pthread_cond_timedwait(&self->finished, &self->lock.mutex, &until)
                            : pthread_cond_wait(&self->finished, &self->lock.mutex);
    bool done = self->done >= mine;
    *lost = self->lost_when_done - lost_before;
    strata_lock_release(&self->lock);
    strata_cancel_restore(cancel);
    return done;
}

/* ---- making and ending ---- */

/* Starts the thread without signals, which are the program's. Returns an errno value. */
static int start_thread(log_writer *self)
{
    sigset_t all;
    sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &self->program_mask);
    if (error)
        return error;
    error = pthread_create(&self->thread, NULL, run, self);
    self->started = error == 0;
    pthread_sigmask(SIG_SETMASK, &self->program_mask, NULL);
    return error;
}

static strata_status refuse_thread(int error)
{
    char text[128];
    return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY,
                       "logging: no thread for the writer of a log: %s; see the limits of threads (ulimit -u, "
                       "kernel.threads-max, a container's pids.max)",
                       strerror_r(error, text, sizeof text));
}

static bool make_finished(log_writer *self)
{
    pthread_condattr_t kind;
    if (pthread_condattr_init(&kind) != 0)
        return false;
    bool made =
        pthread_condattr_setclock(&kind, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&self->finished, &kind) == 0;
    pthread_condattr_destroy(&kind);
    return made;
}

strata_status log_writer_start(log_writer *self, uint64_t lines)
{
    int error = 0;
    self->batch = strata_host_zalloc(LOG_BATCH * sizeof *self->batch);
    if (!self->batch)
        goto refuse;
    if (!log_rings_init(&self->rings, lines))
        goto free_batch;
    if (!make_finished(self))
        goto end_rings;
    strata_lock_init(&self->lock, STRATA_RANK_LOG);
    strata_timestamp_start();
    strata_timestamp_take_point(&self->first);
    self->last = self->first;
    if ((error = start_thread(self)) != 0)
        goto end_finished;
    strata_lock_take(&writers_lock);
    self->next = writers;
    writers = self;
    strata_lock_release(&writers_lock);
    return STRATA_SUCCESS;

end_finished:
    strata_lock_destroy(&self->lock);
    pthread_cond_destroy(&self->finished);
end_rings:
    log_rings_destroy(&self->rings);
free_batch:
    strata_host_free(self->batch);
refuse:
    return error ? refuse_thread(error) : strata_fail_host_memory("the writer of a log");
}

static void leave_list(log_writer *self)
{
    strata_lock_take(&writers_lock);
    log_writer **at = &writers;
    while (*at && *at != self)
        at = &(*at)->next;
    if (*at)
        *at = self->next;
    strata_lock_release(&writers_lock);
}

void log_writer_stop(log_writer *self)
{
    leave_list(self);
    bool exiting = atomic_exchange(&self->stop, true);
    wake(self);
    if (self->started)
        pthread_join(self->thread, NULL);
    if (exiting) /* records made after the exit's collection */
        finish(self);
    self->sink->ops->close(self->sink, self->resource->stack != NULL);
    strata_lock_destroy(&self->lock);
    pthread_cond_destroy(&self->finished);
    log_rings_destroy(&self->rings);
    strata_host_free(self->batch);
}

/* Lets all writers write what they have, and joins them: the exit would cut their output. Destructors run after all
 * exit handlers. The limit is for a sink that is stuck. */
static __attribute__((destructor)) void write_everything(void)
{
    enum { PATIENCE_S = 5 };
    if (strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    strata_lock_take(&writers_lock);
    for (log_writer *writer = writers; writer; writer = writer->next) {
        struct timespec until;
        atomic_store(&writer->stop, true);
        if (!log_writer_flush(writer, PATIENCE_S, &(uint64_t){0}))
            continue;
        clock_gettime(CLOCK_REALTIME, &until); /* for the thread's last steps */
        until.tv_sec += PATIENCE_S;
        writer->started = pthread_timedjoin_np(writer->thread, NULL, &until) != 0;
    }
    strata_lock_release(&writers_lock);
}
