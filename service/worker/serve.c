/* The worker's main thread: its service is made as the first frame says, then frames are taken and answers sent until
 * the socket ends, or the context does. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/service.h"
#include "service/worker/worker.h"

#include <strata/info.h>

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    OUT_LIMIT = 1 << 20,     /* bytes that the client has not read, beyond which nothing is read from it */
    QUEUE_MORE = 1 << 13,    /* the worker's own requests, and chunks of the client's; */
    QUEUE_TIMES = 3,         /* each of the client's may bring a buffer, and follow one that ends */
    QUEUE_LIMIT = 1 << 20,   /* of the client */
    END_WITHIN = 1000000000, /* ns: for work under way, when the socket has ended */
};

/* ---- facts ---- */

static void *tell_facts(void *data)
{
    worker *self = data;
    strata_service_stats stats;
    for (;;) {
        while (sem_wait(&self->wanted) != 0)
            ;
        if (atomic_load_explicit(&self->ending, memory_order_acquire))
            return NULL;
        atomic_store_explicit(&self->facts_pending, false, memory_order_release);
        if (strata_service_get_stats(self->service, &stats) != STRATA_SUCCESS)
            continue;
        const wire_facts facts = {
            .free_bytes = stats.free_bytes, .total_bytes = stats.total_bytes, .active_streams = stats.active_streams};
        if (stats.ready)
            worker_say(self, WIRE_FACTS, 0, &facts, sizeof facts);
    }
}

/* On the service's thread, with its context. */
static void tell_ready(worker *self, strata_service *service)
{
    strata_service_stats stats;
    if (strata_service_get_stats(service, &stats) != STRATA_SUCCESS)
        return;
    const wire_ready ready = {.version = WIRE_VERSION,
                              .compute_major = stats.compute_major,
                              .compute_minor = stats.compute_minor,
                              .free_bytes = stats.free_bytes,
                              .total_bytes = stats.total_bytes};
    worker_say(self, WIRE_READY, 0, &ready, sizeof ready);
}

static void notice(strata_service *service, strata_service_event event, uint64_t generation, void *data)
{
    worker *self = data;
    (void)generation;
    if (event == STRATA_SERVICE_READY)
        tell_ready(self, service);
    if (event == STRATA_SERVICE_STOPPED) {
        strata_service_stopped(service);
        worker_say_error(self, WIRE_LOST, 0, strata_last_error());
    }
}

/* ---- the first frame ---- */

/* Failures of the class OTHER are the client's to judge. */
static strata_escalation go_on(strata_service *service, const strata_error *error, void *data)
{
    (void)service;
    (void)error;
    (void)data;
    return STRATA_ESCALATION_GO_ON;
}

static strata_status make_service(worker *self, const wire_hello *hello, const char *text)
{
    const uint32_t capacity = hello->queue_capacity < QUEUE_LIMIT ? hello->queue_capacity : QUEUE_LIMIT;
    const strata_service_options options = {
        .device = hello->device,
        .stack_text = hello->has_text ? text : NULL,
        .libraries = hello->has_libraries ? hello->libraries : NULL,
        .nvtx = hello->nvtx != 0,
        .queue_capacity = QUEUE_TIMES * capacity + QUEUE_MORE,
        .pending_queue_capacity = QUEUE_TIMES * capacity + QUEUE_MORE,
        .completion = (strata_completion_mode)hello->completion,
        .poll_interval = hello->poll_interval,
        .poll_limit = UINT64_MAX, /* the client has the limit */
        .streams = (strata_service_streams)hello->streams,
        .stream_count = hello->stream_count,
        .no_rebuild = true,
        .escalate = go_on,
        .notice = notice,
        .notice_data = self,
    };
    if (hello->version != WIRE_VERSION)
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "the worker's program is of another version of Strata: it speaks version %d, the library %u",
                           WIRE_VERSION, hello->version);
    strata_status status = strata_service_create(&options, &self->service);
    if (status != STRATA_SUCCESS)
        return status;
    status = service_thread_start(&self->facts, tell_facts, self, "the worker's thread for facts");
    self->has_facts = status == STRATA_SUCCESS;
    return status;
}

bool worker_take_hello(worker *self, const worker_frame *frame)
{
    wire_hello hello;
    char text[WIRE_TEXT_LIMIT + 1] = {0};
    if (frame->head.kind != WIRE_HELLO || !wire_read(frame->payload, frame->bytes, &hello, sizeof hello, false) ||
        hello.text_bytes > WIRE_TEXT_LIMIT || frame->bytes - sizeof hello < hello.text_bytes)
        return false;
    memcpy(text, frame->payload + sizeof hello, hello.text_bytes);
    hello.libraries[sizeof hello.libraries - 1] = '\0';
    if (make_service(self, &hello, text) != STRATA_SUCCESS) {
        worker_say_error(self, WIRE_FAILED, 0, strata_last_error());
        return self->service != NULL; /* without a service there are no further frames */
    }
    return true;
}

/* ---- the loop ---- */

/* Whether the main thread reads and writes: how much is to be sent decides about reading. */
typedef struct round {
    bool reads, writes;
} round_state;

static worker_end send_gathered(worker *self, round_state *round)
{
    const wire_result result = worker_flush(self);
    strata_lock_take(&self->lock);
    const bool broken = self->broken, all = wire_out_is_empty(&self->sending) && wire_out_is_empty(&self->gathered);
    const bool lost = self->lost && all;
    round->writes = result == WIRE_LATER;
    round->reads = self->gathered.end - self->gathered.begin < OUT_LIMIT && !self->lost;
    strata_lock_release(&self->lock);
    if (result == WIRE_GONE)
        return WORKER_DONE;
    return broken || lost ? WORKER_LOST : WORKER_GOES_ON;
}

static worker_end take_frames(worker *self)
{
    worker_frame frame;
    wire_result result;
    while ((result = wire_next(&self->in, &frame.head, &frame.payload, &frame.bytes)) == WIRE_GOES_ON)
        if (!(self->service ? worker_take_frame : worker_take_hello)(self, &frame))
            return WORKER_REFUSED;
    return result == WIRE_GONE ? WORKER_REFUSED : WORKER_GOES_ON;
}

static worker_end read_some(worker *self, bool *read)
{
    const wire_result result = wire_fill(&self->in, self->socket);
    *read = result == WIRE_GOES_ON;
    if (result == WIRE_GONE)
        return WORKER_DONE;
    return *read ? take_frames(self) : WORKER_GOES_ON;
}

static void sleep_until(worker *self, const round_state *round)
{
    struct pollfd watched[] = {
        {.fd = self->socket, .events = (short)((round->reads ? POLLIN : 0) | (round->writes ? POLLOUT : 0))},
        {.fd = self->wake_fd, .events = POLLIN}};
    eventfd_t rung;
    strata_lock_take(&self->lock);
    /* While the socket is full, what is gathered waits for it. */
    self->sleeping = round->writes || wire_out_is_empty(&self->gathered);
    const bool sleeps = self->sleeping;
    strata_lock_release(&self->lock);
    if (!sleeps)
        return;
    poll(watched, 2, -1);
    if (watched[1].revents)
        eventfd_read(self->wake_fd, &rung);
    strata_lock_take(&self->lock);
    self->sleeping = false;
    strata_lock_release(&self->lock);
}

worker_end worker_serve(worker *self)
{
    worker_end end = WORKER_GOES_ON;
    while (end == WORKER_GOES_ON) {
        round_state round;
        bool read = false;
        end = send_gathered(self, &round);
        if (end == WORKER_GOES_ON && round.reads)
            end = read_some(self, &read);
        if (end == WORKER_GOES_ON && !read)
            sleep_until(self, &round);
    }
    if (end == WORKER_REFUSED && worker_flush(self) == WIRE_GOES_ON)
        worker_flush(self); /* what was put meanwhile, such as why there is no service */
    return end;
}

/* ---- life ---- */

bool worker_open(worker *self, int socket)
{
    *self = (worker){.socket = socket, .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    self->sending.bound = self->gathered.bound = SIZE_MAX / 4;
    if (self->wake_fd < 0)
        return false;
    if (!wire_in_open(&self->in, true)) {
        close(self->wake_fd);
        return false;
    }
    strata_lock_init(&self->lock, STRATA_RANK_SERVICE_WORKER);
    sem_init(&self->wanted, 0, 0);
    return true;
}

static void end_facts(worker *self)
{
    atomic_store_explicit(&self->ending, true, memory_order_release);
    sem_post(&self->wanted);
    if (self->has_facts)
        pthread_join(self->facts, NULL);
}

static void release_refs(worker *self)
{
    strata_ref *ref;
    do {
        strata_lock_take(&self->lock);
        ref = worker_refs_take_last(&self->refs);
        strata_lock_release(&self->lock);
        strata_ref_release(ref);
    } while (ref);
}

static void end_buffers(worker *self)
{
    for (uint64_t i = 0; i < WIRE_BUFFER_LIMIT; i++)
        if (self->buffers[i])
            worker_drop_buffer(self, &(worker_frame){.head = {.number = i}});
}

/* Frames that come now have no reader. What an answer adds after the table is empty is met by the second look. */
void worker_close(worker *self)
{
    if (self->service) {
        end_facts(self);
        worker_graphs_close(&self->graphs);
        release_refs(self);
        end_buffers(self);
        strata_service_shut_down(self->service, END_WITHIN);
        if (strata_service_destroy(self->service) != STRATA_SUCCESS)
            strata_service_destroy(self->service);
        release_refs(self);
        worker_forget_buffers(self);
    }
    wire_in_close(&self->in);
    wire_out_close(&self->sending);
    wire_out_close(&self->gathered);
    sem_destroy(&self->wanted);
    strata_lock_destroy(&self->lock);
    close(self->wake_fd);
}
