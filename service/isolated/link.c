/* Ends of references and buffers, on any thread, before or after the end of their service. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "service/isolated/isolated.h"

#include <pthread.h>

isolated_link *isolated_link_make(service_mailbox *box)
{
    isolated_link *link = strata_host_zalloc(sizeof *link);
    if (!link)
        return NULL;
    atomic_init(&link->holders, 1);
    strata_lock_init(&link->lock, STRATA_RANK_SERVICE_WORKER);
    link->forks = service_forks();
    link->box = box;
    return link;
}

static isolated_link *hold(isolated_link *link)
{
    atomic_fetch_add_explicit(&link->holders, 1, memory_order_relaxed);
    return link;
}

void isolated_link_unhold(isolated_link *link)
{
    if (atomic_fetch_sub_explicit(&link->holders, 1, memory_order_acq_rel) != 1)
        return;
    strata_lock_destroy(&link->lock);
    strata_host_free(link);
}

void isolated_remote_free(isolated_remote *remote)
{
    isolated_link *link = remote->link;
    strata_host_free(remote);
    isolated_link_unhold(link);
}

static _Atomic size_t buffer_count; /* of all services of the process; any thread, relaxed */
static pthread_once_t limit_is_read = PTHREAD_ONCE_INIT;
static size_t buffer_limit;

/* Each is a mapping here and in the worker. At the limit of those no process can go on: half is left for all else. */
static void read_limit(void)
{
    buffer_limit = isolated_mapping_limit() / 2;
}

static strata_status count_buffer(void)
{
    pthread_once(&limit_is_read, read_limit);
    if (atomic_fetch_add_explicit(&buffer_count, 1, memory_order_relaxed) < buffer_limit)
        return STRATA_SUCCESS;
    atomic_fetch_sub_explicit(&buffer_count, 1, memory_order_relaxed);
    return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY,
                       "there are %zu host buffers of isolated device services, which is half of the mappings that a "
                       "process may have (vm.max_map_count); release some, or use larger ones",
                       buffer_limit);
}

static void uncount_buffer(void)
{
    atomic_fetch_sub_explicit(&buffer_count, 1, memory_order_relaxed);
}

void isolated_buffer_free(isolated_buffer *buffer)
{
    isolated_link *link = buffer->link;
    isolated_memory_close(&buffer->memory);
    strata_host_free(buffer);
    uncount_buffer();
    isolated_link_unhold(link);
}

void isolated_link_take(isolated_link *link, isolated_remote **released, isolated_buffer **ended)
{
    strata_lock_take(&link->lock);
    *released = link->released;
    *ended = link->ended;
    link->released = NULL;
    link->ended = NULL;
    strata_lock_release(&link->lock);
}

void isolated_link_change_worker(isolated_link *link, uint64_t worker, bool ends)
{
    isolated_remote *released;
    isolated_buffer *ended;
    strata_lock_take(&link->lock);
    link->worker = worker;
    if (ends)
        link->box = NULL;
    strata_lock_release(&link->lock);
    isolated_link_take(link, &released, &ended);
    for (isolated_remote *next; released; released = next) {
        next = released->next;
        isolated_remote_free(released);
    }
    for (isolated_buffer *next; ended; ended = next) {
        next = ended->next;
        isolated_buffer_free(ended);
    }
}

/* ---- references ---- */

/* A forked child has a copy of all this, and no worker; a thread that it lacks may have held the lock. */
static bool is_forked(const isolated_link *link)
{
    return service_forks() != link->forks;
}

void isolated_remote_release(isolated_remote *remote)
{
    isolated_link *link = remote->link;
    if (is_forked(link))
        return;
    strata_lock_take(&link->lock);
    const bool known = link->box && remote->worker == link->worker;
    if (known) {
        remote->next = link->released;
        link->released = remote;
        if (!remote->next)
            service_mailbox_wake(link->box);
    }
    strata_lock_release(&link->lock);
    if (!known)
        isolated_remote_free(remote);
}

static void end_remote(void *data)
{
    isolated_remote_release(data);
}

isolated_remote *isolated_remote_new(isolated_link *link, uint64_t number, uint64_t worker, bool is_graph)
{
    isolated_remote *remote = strata_host_zalloc(sizeof *remote);
    if (remote)
        *remote = (isolated_remote){.link = hold(link), .number = number, .worker = worker, .is_graph = is_graph};
    return remote;
}

strata_status isolated_remote_make(strata_service *service, isolated_link *link, strata_future *request,
                                   uint64_t number, strata_ref **out)
{
    isolated_remote *remote = isolated_remote_new(link, number, service->client->worker, false);
    if (!remote)
        return strata_fail_host_memory("a reference");
    const strata_status status =
        strata_reference_make_remote(service->state, request->type, request->length, end_remote, remote, out);
    if (status != STRATA_SUCCESS)
        end_remote(remote);
    return status;
}

const isolated_remote *isolated_remote_of(const strata_ref *ref)
{
    return ref->whole->end == end_remote ? ref->whole->data : NULL;
}

/* ---- buffers ---- */

static void end_buffer(void *memory, size_t bytes, void *data)
{
    isolated_buffer *buffer = data;
    isolated_link *link = buffer->link;
    (void)memory;
    (void)bytes;
    if (is_forked(link))
        return;
    strata_lock_take(&link->lock);
    const bool known = link->box && buffer->worker && buffer->worker == link->worker;
    if (known) {
        buffer->next = link->ended;
        link->ended = buffer;
        if (!buffer->next)
            service_mailbox_wake(link->box);
    }
    strata_lock_release(&link->lock);
    if (!known)
        isolated_buffer_free(buffer);
}

strata_status isolated_buffer_make(isolated_link *link, size_t bytes, strata_host_buffer **out)
{
    isolated_memory memory;
    strata_status status = count_buffer();
    if (status != STRATA_SUCCESS)
        return status;
    status = isolated_memory_make(bytes, &memory);
    if (status != STRATA_SUCCESS) {
        uncount_buffer();
        return status;
    }
    isolated_buffer *buffer = strata_host_zalloc(sizeof *buffer);
    if (!buffer) {
        isolated_memory_close(&memory);
        uncount_buffer();
        return strata_fail_host_memory("a host buffer");
    }
    *buffer = (isolated_buffer){.link = hold(link), .memory = memory};
    status = strata_host_buffer_wrap(memory.bytes, bytes, end_buffer, buffer, out);
    if (status != STRATA_SUCCESS)
        isolated_buffer_free(buffer);
    return status;
}

isolated_buffer *isolated_buffer_of(const strata_host_buffer *buffer)
{
    return service_buffer_data(buffer, end_buffer);
}
