/* Collects lines, merges them, and runs the writer's thread. */
#include "resources/logging/writer.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "driver/driver.h"

#include <strata/stack.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SLACK_NS = 200000, HEAP_STEP = 64 };

/* All writers of the process, for its exit; in a forked child they are the parent's. */
static strata_lock writers_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LOG_LIST);
static log_writer *writers; /* guarded by writers_lock */

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
    atomic_store_explicit(&self->failing, taken != self->batch_count, memory_order_relaxed);
    self->batch_count = 0;
}

/* Converts the stamps of a collection to times. */
typedef struct time_scale {
    const strata_timestamp_point *from, *to;
    double rate, long_rate; /* nanoseconds a tick: between these points, and since the start */
} time_scale;

static uint64_t time_of(log_writer *self, const time_scale *scale, uint64_t stamp, bool late)
{
    double rate = stamp < scale->from->stamp ? scale->long_rate : scale->rate;
    uint64_t time = strata_timestamp_time(scale->from, rate, stamp);
    if (late)
        return time;
    if (time > self->newest_ns)
        self->newest_ns = time;
    return self->newest_ns; /* rounding must not reverse the order */
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
    uint64_t time = time_of(self, scale, line->stamp, late);
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

/* Skips control lines; false if no record is left. */
static bool has_record(log_ring *ring)
{
    while (ring->collected != ring->end && (current(ring)->what >> LOG_WHAT_KIND & 0xf) == LOG_KIND_CONTROL)
        read_control(ring, &ring->lines[ring->collected++ & ring->mask]);
    return ring->collected != ring->end;
}

static void sift_down(log_writer *self, size_t at)
{
    log_ring **heap = self->heap, *ring = heap[at];
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

/* False without host memory; then the ring's lines wait. */
static bool make_room(log_writer *self)
{
    if (self->heap_count < self->heap_capacity)
        return true;
    log_ring **larger = strata_host_zalloc((self->heap_capacity + HEAP_STEP) * sizeof *larger);
    if (!larger)
        return false;
    if (self->heap)
        memcpy(larger, self->heap, self->heap_count * sizeof *larger);
    strata_host_free(self->heap);
    self->heap = larger;
    self->heap_capacity += HEAP_STEP;
    return true;
}

/* Returns the most lines in a ring. */
static uint64_t look_at_rings(log_writer *self)
{
    uint64_t most = 0;
    self->heap_count = 0;
    for (log_ring *ring = atomic_load_explicit(&self->rings.used, memory_order_acquire); ring; ring = ring->next) {
        ring->end = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t lines = ring->end - ring->collected;
        most = lines > most ? lines : most;
        if (has_record(ring) && make_room(self))
            self->heap[self->heap_count++] = ring;
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
        log_ring *ring = self->heap[0];
        const log_line *line = current(ring);
        if (line->stamp > newest)
            break;
        if (self->batch_count == LOG_BATCH) {
            give_lines_back(self);
            write_batch(self);
        }
        add_record(self, scale, ring, line);
        ring->collected++;
        if (!has_record(ring))
            self->heap[0] = self->heap[--self->heap_count];
        if (self->heap_count)
            sift_down(self, 0);
    }
    give_lines_back(self);
    write_batch(self);
}

/* Returns the most lines in a ring. */
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

static void sleep_until_needed(log_writer *self, bool busy)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t end = (uint64_t)until.tv_nsec + (busy ? self->interval_ns / 8 : self->interval_ns);
    until.tv_sec += (time_t)(end / 1000000000);
    until.tv_nsec = (long)(end % 1000000000);
    atomic_store(&self->rings.asleep, true);
    if (!atomic_load(&self->stop) && atomic_load(&self->asked) == self->done)
        sem_clockwait(&self->rings.wake, CLOCK_MONOTONIC, &until);
    atomic_store(&self->rings.asleep, false);
}

/* With every core in use the writer gets a tenth of one, and full rings drop records: logging must not slow the program
 * down. */
static void step_back(void)
{
    enum { NICENESS = 10 };
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS);
}

static void set_done(log_writer *self, uint64_t done)
{
    strata_lock_take(&self->lock);
    self->done = done;
    pthread_cond_broadcast(&self->finished);
    strata_lock_release(&self->lock);
}

/* The last collection. */
static void finish(log_writer *self)
{
    collect(self, true);
    if (self->resource->stack && self->sink->ops->finish)
        self->sink->ops->finish(self->sink);
}

static void *run(void *data)
{
    log_writer *self = data;
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

bool log_writer_flush(log_writer *self, unsigned patience_s)
{
    if (pthread_equal(pthread_self(), self->thread))
        return false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += patience_s;
    int waited = 0;
    uint64_t mine = atomic_fetch_add(&self->asked, 1) + 1;
    wake(self);
    strata_lock_take(&self->lock);
    while (self->done < mine && waited == 0)
        waited = patience_s ? pthread_cond_timedwait(&self->finished, &self->lock.mutex, &until)
                            : pthread_cond_wait(&self->finished, &self->lock.mutex);
    bool done = self->done >= mine;
    strata_lock_release(&self->lock);
    return done;
}

/* ---- making and ending ---- */

/* Signals are the program's: no thread of the library handles one. */
static bool start_thread(log_writer *self)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    self->started = pthread_create(&self->thread, NULL, run, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (self->started)
        pthread_setname_np(self->thread, "strata-log");
    return self->started;
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
    if (!start_thread(self))
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
    return strata_fail_host_memory("the writer of a log");
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
    strata_host_free(self->heap);
    strata_host_free(self->batch);
}

/* Logs live until the exit. Destructors run after all exit handlers, and the exit would cut the writers' output, so
 * they are joined here; only for a time, in case a sink is stuck. */
static __attribute__((destructor)) void write_everything(void)
{
    enum { PATIENCE_S = 5 };
    if (strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    strata_lock_take(&writers_lock);
    for (log_writer *writer = writers; writer; writer = writer->next) {
        struct timespec until;
        atomic_store(&writer->stop, true);
        if (!log_writer_flush(writer, PATIENCE_S))
            continue;
        clock_gettime(CLOCK_REALTIME, &until); /* for the thread's last steps */
        until.tv_sec += PATIENCE_S;
        writer->started = pthread_timedjoin_np(writer->thread, NULL, &until) != 0;
    }
    strata_lock_release(&writers_lock);
}
