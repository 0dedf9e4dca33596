/* The isolated form: a worker is started, asked, lost, replaced, ended.
 *
 * A worker is lost when its socket or its process ends (it was killed, or has ended), when it says that its service has
 * stopped, when what it says cannot be, and when it is stuck: it has said nothing for worker_silence while it had
 * reason to, and has not answered a question either. A request that takes long is none of these: the worker answers
 * questions meanwhile.
 */
#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "service/isolated/descriptors.h"
#include "service/isolated/isolated.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const uint64_t millisecond = 1000000;

enum {
    OUT_BOUND = 1 << 20,
    DEATH_WAIT = 40, /* ms, at most twice: for the end of a lost worker, before its requests are answered: a copy that
                        it had begun has ended, too, then; else its buffer is not given back yet */
    START_SILENCE = 10000, /* ms, at least: until the worker's program runs, and says something */
    END_WAIT = 5000,       /* ms: for the orderly end of a worker */
    LOOK_AGAIN = 100,      /* ms: between looks for requests beyond poll_limit */
    RETRY = 50,            /* us: until a socket that is full is tried again */
    COLLECT_AGAIN = 10     /* ms */
};

/* ---- the end of a worker ---- */

static bool has_ended(const service_client *client)
{
    bool has = false;
    for (size_t i = 0; i < ENDED; i++)
        has = has || client->ended[i].id;
    return has;
}

static void collect_ended(service_client *client, uint64_t nanoseconds)
{
    for (size_t i = 0; i < ENDED; i++)
        if (client->ended[i].id && isolated_process_wait(&client->ended[i], nanoseconds))
            isolated_process_close(&client->ended[i]);
    if (!has_ended(client))
        isolated_finish_late(client);
}

static size_t find_place(const service_client *client)
{
    size_t i = 0;
    while (i < ENDED && client->ended[i].id)
        i++;
    return i;
}

/* A worker that is not over may hold the device, and is not to be forgotten. */
static strata_status check_place(const service_client *client)
{
    return find_place(client) < ENDED
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_POISONED,
                             "%d killed workers of the isolated device service are not over yet, the first of them "
                             "process %d; another one is started when one has ended",
                             ENDED, (int)client->ended[0].id);
}

/* Leaves the killed worker to be collected later. check_place has seen that there is a place. */
static void leave(service_client *client)
{
    const size_t i = find_place(client);
    client->ended[i] = client->process;
    client->process = (isolated_process){.handle = -1};
}

/* Kills the worker and drops what belongs to it, as its memory goes, too. Returns whether its process is over. */
static bool drop_worker(strata_service *service, uint64_t wait)
{
    service_client *client = service->client;
    isolated_process_kill(&client->process);
    isolated_descriptor_close(client->socket);
    client->socket = -1;
    const bool over = isolated_process_wait(&client->process, wait);
    if (over)
        isolated_process_close(&client->process);
    else
        leave(client);
    wire_out_close(&client->out);
    wire_in_close(&client->in);
    isolated_link_change_worker(client->link, 0, false);
    for (isolated_remote *next; client->released; client->released = next) {
        next = client->released->next;
        isolated_remote_free(client->released);
    }
    for (isolated_buffer *next; client->unshared; client->unshared = next) {
        next = client->unshared->next;
        isolated_buffer_free(client->unshared);
    }
    atomic_store_explicit(&service->worker_process, 0, memory_order_relaxed);
    atomic_store_explicit(&service->active_streams, 0, memory_order_relaxed);
    return over;
}

/* ---- the start of a worker ---- */

static strata_status open_client(strata_service *service)
{
    if (service->client)
        return STRATA_SUCCESS;
    service_client *client = strata_host_zalloc(sizeof *client);
    isolated_link *link = client ? isolated_link_make(&service->mailbox) : NULL;
    if (!link) {
        strata_host_free(client);
        return strata_fail_host_memory("the client of a worker");
    }
    client->link = link;
    client->socket = -1;
    client->process.handle = -1;
    client->staging.memory.fd = -1;
    client->out.bound = OUT_BOUND;
    service->client = client;
    return STRATA_SUCCESS;
}

/* Both are closed if one of them has no number above the standard streams'. */
static bool move_pair_up(int pair[2])
{
    for (int i = 0; i < 2; i++) {
        pair[i] = strata_descriptor_move_up(pair[i]);
        if (pair[i] < 0) {
            const int error = errno;
            close(pair[1 - i]);
            errno = error;
            return false;
        }
    }
    return true;
}

static bool make_pair(int pair[2])
{
    const isolated_change change = isolated_descriptors_begin();
    bool made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0;
    if (made)
        made = move_pair_up(pair);
    const int error = errno;
    for (int i = 0; i < 2 && made; i++)
        isolated_descriptor_add(pair[i]);
    isolated_descriptors_end(change);
    errno = error;
    return made;
}

/* The worker's end of the pair is in no other process, and in this one only until the worker has it. */
static strata_status start(strata_service *service)
{
    service_client *client = service->client;
    char path[PATH_MAX];
    int pair[2];
    strata_status status = isolated_program_find(service->options.worker, path, sizeof path);
    if (status != STRATA_SUCCESS)
        return status;
    if (!make_pair(pair))
        return strata_fail(STRATA_ERROR_IO, "a worker has no socket: socketpair: %s%s", strerror(errno),
                           service_descriptor_advice(errno));
    status = isolated_process_start(path, pair[1], &client->process);
    isolated_descriptor_close(pair[1]);
    if (status != STRATA_SUCCESS) {
        isolated_descriptor_close(pair[0]);
        return status;
    }
    client->socket = pair[0];
    return STRATA_SUCCESS;
}

static strata_status greet(strata_service *service)
{
    service_client *client = service->client;
    const strata_service_options *options = &service->options;
    const char *text = options->stack_text;
    const size_t text_bytes = text ? strlen(text) : 0;
    if (text_bytes > WIRE_TEXT_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the stack text of an isolated device service has %zu bytes; at most %d are possible",
                           text_bytes, WIRE_TEXT_LIMIT);
    wire_hello hello = {.version = WIRE_VERSION,
                        .device = options->device,
                        .completion = options->completion,
                        .streams = options->streams,
                        .stream_count = options->stream_count,
                        .queue_capacity = options->queue_capacity,
                        .poll_interval = options->poll_interval,
                        .has_libraries = options->libraries != NULL,
                        .nvtx = options->nvtx,
                        .has_text = text != NULL,
                        .text_bytes = (uint32_t)text_bytes};
    if (options->libraries) {
        if (strlen(options->libraries) >= sizeof hello.libraries)
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "the list of libraries of an isolated device service has %zu bytes; at most %zu are "
                               "possible",
                               strlen(options->libraries), sizeof hello.libraries - 1);
        memcpy(hello.libraries, options->libraries, strlen(options->libraries));
    }
    if (!wire_in_open(&client->in, false) || !wire_reserve(&client->out, sizeof hello + text_bytes))
        return strata_fail_host_memory("the client of a worker");
    wire_put(&client->out, WIRE_HELLO, 0, &hello, sizeof hello, text, text_bytes);
    return STRATA_SUCCESS;
}

/* ---- looking after it ---- */

static void ask(service_client *client, uint64_t now)
{
    if (!wire_reserve(&client->out, 0))
        return;
    wire_put(&client->out, WIRE_QUESTION, 0, NULL, 0, NULL, 0);
    client->asked_at = now;
}

/* Whether the worker is stuck. The question counts as put in any case: a worker that reads nothing answers nothing. */
static bool is_stuck(strata_service *service)
{
    service_client *client = service->client;
    const uint64_t start = client->spoke ? 0 : START_SILENCE * millisecond, given = service->options.worker_silence;
    const uint64_t silence = given > start ? given : start, now = service_clock();
    if (now - client->heard_at < silence / 2)
        return false;
    if (!client->asked_at) {
        ask(client, now);
        client->asked_at = now;
        wire_flush(&client->out, client->socket);
    }
    return now - client->heard_at >= silence && now - client->asked_at >= silence / 2;
}

/* Raises that the worker has ended, and how, if that is known by then. */
static strata_status fail_ended(service_client *client, const char *when)
{
    char how[64];
    const int id = (int)client->process.id;
    isolated_process_wait(&client->process, DEATH_WAIT * millisecond);
    isolated_process_describe(&client->process, how, sizeof how);
    return strata_fail(STRATA_ERROR_POISONED,
                       "the worker of the isolated device service, process %d, %s%s; it is replaced, and its memory is "
                       "gone",
                       id, client->process.over ? how : "has closed its socket", when);
}

static strata_status fail_stuck(const service_client *client)
{
    return strata_fail(STRATA_ERROR_POISONED,
                       "the worker of the isolated device service, process %d, has said nothing for %llu ms, and did "
                       "not answer a question; it is replaced, and its memory is gone",
                       (int)client->process.id,
                       (unsigned long long)((service_clock() - client->heard_at) / millisecond));
}

/* ---- open ---- */

static void wait_for_word(const service_client *client)
{
    struct pollfd watched = {.fd = client->socket,
                             .events = (short)(wire_out_is_empty(&client->out) ? POLLIN : POLLIN | POLLOUT)};
    poll(&watched, 1, 50);
}

static strata_status wait_until_ready(strata_service *service)
{
    service_client *client = service->client;
    client->ready = client->failed = client->spoke = false;
    client->heard_at = service_clock();
    client->asked_at = 0;
    while (!client->ready && !client->failed) {
        wire_flush(&client->out, client->socket);
        wait_for_word(client);
        if (!isolated_receive(service) && !client->failed) /* else it said why, and ended */
            return fail_ended(client, " when it started");
        if (!client->ready && !client->failed && is_stuck(service))
            return fail_stuck(client);
        if (atomic_load_explicit(&service->shut_down, memory_order_acquire))
            return strata_fail(STRATA_ERROR_STALE, "the device service is shutting down; its worker was not ready yet");
    }
    return client->failed ? strata_error_raise_again(&client->failure) : STRATA_SUCCESS;
}

static strata_status open_isolated(strata_service *service)
{
    strata_status status = open_client(service);
    if (status != STRATA_SUCCESS)
        return status;
    service_client *client = service->client;
    collect_ended(client, 0);
    status = check_place(client);
    if (status == STRATA_SUCCESS)
        status = start(service);
    if (status != STRATA_SUCCESS)
        return status;
    client->worker++;
    client->buffers[0] = 1;
    memset(client->buffers + 1, 0, sizeof client->buffers - sizeof client->buffers[0]);
    client->buffer_hint = 0;
    isolated_link_change_worker(client->link, client->worker, false);
    status = greet(service);
    if (status == STRATA_SUCCESS)
        status = wait_until_ready(service);
    if (status == STRATA_SUCCESS) {
        atomic_store_explicit(&service->worker_process, (int)client->process.id, memory_order_relaxed);
        return STRATA_SUCCESS;
    }
    const strata_error why = *strata_error_in_force();
    drop_worker(service, DEATH_WAIT * millisecond);
    return strata_error_raise_again(&why);
}

/* ---- requests ---- */

static void begin(strata_service *service, strata_future *request)
{
    if (service->client->socket < 0) { /* given up */
        const strata_error gone = {.status = STRATA_ERROR_STALE, .message = "the device service is shutting down"};
        service_request_fail(request, &gone);
        service_request_finish(request);
        return;
    }
    service_list_add(&service->client->waiting, request);
}

/* Makes the error in force the reason for which the worker is replaced. */
static void note_loss(strata_service *service)
{
    strata_error why = *strata_error_in_force();
    const strata_failure_class class = service_classify(service, &why);
    if (class != STRATA_FAILURE_POISONED && class != STRATA_FAILURE_UNRECOVERABLE)
        why.status = STRATA_ERROR_POISONED;
    service->lost = true;
    service->why_lost = why;
}

/* Answers requests beyond poll_limit: the device may go on for ever with what was begun. */
static void expire_late(strata_service *service)
{
    const service_client *client = service->client;
    const uint64_t now = service_clock(), limit = service->options.poll_limit;
    for (uint32_t i = 0; i < client->operations.room; i++) {
        strata_future *request = client->operations.items[i].request;
        if (request && now - request->begun_at >= limit)
            service_request_expire(request);
    }
    for (strata_future *request = client->waiting.first; request; request = request->next)
        if (now - request->begun_at >= limit)
            service_request_expire(request);
}

static bool has_work(const service_client *client)
{
    return client->operations.count || client->waiting.first;
}

/* Asks for facts: from here on a worker at rest has reason to say something. */
static void ask_for_facts(service_client *client, uint64_t now)
{
    if (!has_work(client) && !client->asked_at)
        client->heard_at = now;
    ask(client, client->asked_at ? client->asked_at : now);
}

static void look_after(strata_service *service)
{
    service_client *client = service->client;
    const uint64_t now = service_clock();
    if (now - client->looked_at >= LOOK_AGAIN * millisecond) {
        client->looked_at = now;
        expire_late(service);
    }
    if (atomic_exchange_explicit(&client->facts_wanted, false, memory_order_relaxed))
        ask_for_facts(client, now);
    if ((has_work(client) || client->asked_at) && is_stuck(service)) {
        fail_stuck(client);
        note_loss(service);
    }
}

/* Whether the worker's process is over, asked for now and then: a process that the worker left behind may hold its
 * socket open. */
static bool is_over(service_client *client)
{
    return has_work(client) && service_clock() - client->looked_at >= LOOK_AGAIN * millisecond &&
           isolated_process_wait(&client->process, 0);
}

/* A lost context is dropped by the service's thread. */
static void poll_isolated(strata_service *service)
{
    service_client *client = service->client;
    if (client && has_ended(client))
        collect_ended(client, 0);
    if (!client || client->socket < 0 || service->lost)
        return;
    isolated_send(service);
    const bool over = is_over(client); /* first: what it said last is read then */
    const bool goes_on = isolated_receive(service) && !over;
    if (client->failed && !service->lost) {
        strata_error_raise_again(&client->failure);
        note_loss(service);
    } else if (!goes_on) {
        fail_ended(client, "");
        note_loss(service);
    }
    if (!service->lost)
        look_after(service);
    if (!service->lost)
        isolated_send(service);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t patience(const strata_service *service)
{
    const service_client *client = service->client;
    uint64_t time = client && has_ended(client) ? COLLECT_AGAIN * millisecond : UINT64_MAX;
    if (!client || client->socket < 0)
        return time;
    if (client->short_count)
        return 0;
    if (!wire_out_is_empty(&client->out))
        return RETRY * millisecond / 1000;
    if (has_work(client) || client->asked_at)
        time = least(least(time, LOOK_AGAIN * millisecond), service->options.worker_silence / 4);
    return time;
}

static int descriptor(const strata_service *service)
{
    return service->client ? service->client->socket : -1;
}

/* ---- losing, giving up, closing ---- */

static void lose(strata_service *service, const strata_error *why)
{
    const bool over = drop_worker(service, DEATH_WAIT * millisecond);
    isolated_fail_all(service, why, over);
    isolated_staging_close(&service->client->staging);
}

static bool survives(const strata_error *error)
{
    (void)error;
    return true;
}

/* The worker goes at once: what it had begun ends with it. */
static void give_up(strata_service *service, const strata_error *why)
{
    if (!service->client)
        return;
    lose(service, why);
    collect_ended(service->client, END_WAIT * millisecond); /* the end of the service would wait for it */
}

/* The worker ends by itself when its socket does, once its layers have written what they write at their end. */
static void end_worker(strata_service *service)
{
    service_client *client = service->client;
    const uint64_t begun = service_clock();
    for (unsigned i = 0; !wire_out_is_empty(&client->out) && i < 100; i++) {
        struct pollfd watched = {.fd = client->socket, .events = POLLOUT};
        if (wire_flush(&client->out, client->socket) != WIRE_LATER)
            break;
        poll(&watched, 1, 10);
    }
    shutdown(client->socket, SHUT_WR);
    while (!isolated_process_wait(&client->process, 10 * millisecond) &&
           service_clock() - begun < END_WAIT * millisecond)
        isolated_receive(service); /* room for what it still says */
    drop_worker(service, END_WAIT * millisecond);
}

static strata_status close_isolated(strata_service *service)
{
    service_client *client = service->client;
    if (!client)
        return STRATA_SUCCESS;
    if (client->socket >= 0) {
        isolated_send(service);
        end_worker(service);
    }
    collect_ended(client, END_WAIT * millisecond);
    isolated_link_change_worker(client->link, 0, true);
    isolated_link_unhold(client->link);
    isolated_staging_close(&client->staging);
    isolated_operations_close(&client->operations);
    strata_host_free(client);
    service->client = NULL;
    return STRATA_SUCCESS;
}

/* ---- facts ---- */

/* As the worker told a moment ago; it is asked again, for the next call. */
static void tell_memory(strata_service *service, strata_service_stats *stats)
{
    if (!stats->ready)
        return;
    service_client *client = service->client;
    stats->free_bytes = atomic_load_explicit(&client->free_bytes, memory_order_relaxed);
    stats->total_bytes = atomic_load_explicit(&client->total_bytes, memory_order_relaxed);
    if (!atomic_exchange_explicit(&client->facts_wanted, true, memory_order_relaxed))
        service_mailbox_wake(&service->mailbox);
}

static strata_status check_ref(strata_service *service, const strata_ref *ref)
{
    return ref->record == strata_device_state_record(service->state)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_WRONG_DEVICE,
                             "the reference is to memory of another service or of this process, not of the worker of "
                             "the service of device %d",
                             service->options.device);
}

static strata_status make_buffer(strata_service *service, size_t bytes, strata_host_buffer **out)
{
    if (service_phase_now(service) != SERVICE_RUNNING)
        return strata_fail(STRATA_ERROR_NOT_READY, "the device service has no context yet; wait until it is ready");
    return isolated_buffer_make(service->client->link, bytes, out);
}

const service_backend service_isolated = {
    .open = open_isolated,
    .begin = begin,
    .poll = poll_isolated,
    .patience = patience,
    .descriptor = descriptor,
    .lose = lose,
    .survives = survives,
    .give_up = give_up,
    .close = close_isolated,
    .tell_memory = tell_memory,
    .check_ref = check_ref,
    .make_buffer = make_buffer,
    .recorded_bytes = isolated_recorded_bytes,
    .recorded_limit = WIRE_GRAPH_LIMIT,
};
