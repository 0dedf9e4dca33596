/* Memory that the client shares: mapped and page-locked once, for as long as it is used. A device that cannot lock it
 * copies all the same. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "driver/driver.h"
#include "service/isolated/shared_memory.h"
#include "service/worker/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- ends ---- */

static void unmap(worker_buffer *buffer)
{
    munmap(buffer->memory, buffer->bytes);
    strata_host_free(buffer);
}

static void add_ended(worker *self, worker_buffer *buffer)
{
    strata_lock_take(&self->lock);
    buffer->next = self->ended;
    self->ended = buffer;
    strata_lock_release(&self->lock);
}

static worker_buffer *take_ended(worker *self)
{
    strata_lock_take(&self->lock);
    worker_buffer *ended = self->ended;
    self->ended = NULL;
    strata_lock_release(&self->lock);
    return ended;
}

/* Whether a call that unmaps is to be made now; false: one is queued already. */
static bool begin_unmapping(worker *self)
{
    strata_lock_take(&self->lock);
    const bool begins = !self->unmaps;
    self->unmaps = true;
    strata_lock_release(&self->lock);
    return begins;
}

static void end_unmapping(strata_future *future, void *data)
{
    worker *self = data;
    (void)future;
    strata_lock_take(&self->lock);
    self->unmaps = false;
    strata_lock_release(&self->lock);
}

static bool unlock(const worker_buffer *buffer)
{
    if (!buffer->registered)
        return true;
    const CUresult result = strata_cu.MemHostUnregister(buffer->memory);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* On the service's thread. Memory that the driver does not unlock stays mapped, and is tried again: the driver would
 * refuse the next memory at its addresses, or copy to the pages that were there. */
static void unmap_ended(worker *self)
{
    for (worker_buffer *buffer = take_ended(self), *next; buffer; buffer = next) {
        next = buffer->next;
        if (unlock(buffer))
            unmap(buffer);
        else
            add_ended(self, buffer);
    }
}

static strata_status unmap_all(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    end_unmapping(NULL, data); /* what ends from here on needs another call */
    unmap_ended(data);
    return STRATA_SUCCESS;
}

/* Gives up a hold; the last one ends the buffer. One call unmaps all that have ended by then: they fill no queue. */
static void unhold(worker_buffer *buffer)
{
    worker *self = buffer->worker;
    if (atomic_fetch_sub_explicit(&buffer->holders, 1, memory_order_acq_rel) != 1)
        return;
    add_ended(self, buffer);
    if (!begin_unmapping(self))
        return;
    const strata_send_options first = worker_first();
    strata_error_suppress_begin();
    if (worker_call(self, &first, unmap_all, self, end_unmapping, self) != STRATA_SUCCESS)
        end_unmapping(NULL, self);
    strata_error_suppress_end(false);
}

void worker_forget_buffers(worker *self)
{
    for (worker_buffer *buffer = take_ended(self), *next; buffer; buffer = next) {
        next = buffer->next;
        if (!buffer->registered)
            munmap(buffer->memory, buffer->bytes);
        strata_host_free(buffer);
    }
}

/* ---- page-locking, on the service's thread ---- */

static strata_status lock_pages(strata_runtime *runtime, CUstream stream, void *data)
{
    worker_buffer *buffer = data;
    (void)runtime;
    (void)stream;
    unmap_ended(buffer->worker);
    buffer->registered =
        strata_cu.MemHostRegister && strata_cu.MemHostUnregister &&
        strata_cu.MemHostRegister(buffer->memory, buffer->bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
    return STRATA_SUCCESS;
}

static void locked(strata_future *future, void *data)
{
    (void)future;
    unhold(data);
}

/* ---- the table ---- */

static worker_buffer unmapped; /* in the place of each buffer that the process has no room for */

/* Maps the client's memory; NULL: it cannot be shared; &unmapped: there is no room. */
static worker_buffer *map(worker *self, int fd, uint64_t bytes)
{
    if (!bytes || bytes > (uint64_t)INT64_MAX || !isolated_memory_is_sealed(fd, bytes))
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    worker_buffer *buffer = memory != MAP_FAILED ? strata_host_zalloc(sizeof *buffer) : NULL;
    if (!buffer) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        return &unmapped;
    }
    *buffer = (worker_buffer){.worker = self, .memory = memory, .bytes = bytes};
    atomic_init(&buffer->holders, 2); /* the table, and the call below */
    return buffer;
}

/* Copies with a buffer that cannot be mapped are refused. */
bool worker_take_buffer(worker *self, const worker_frame *frame)
{
    wire_buffer read;
    const int fd = wire_take_descriptor(&self->in);
    if (fd < 0)
        return false;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true) || frame->head.number >= WIRE_BUFFER_LIMIT ||
        self->buffers[frame->head.number]) {
        close(fd);
        return false;
    }
    worker_buffer *buffer = map(self, fd, read.bytes);
    close(fd);
    if (!buffer)
        return true;
    self->buffers[frame->head.number] = buffer;
    if (buffer == &unmapped)
        return true;
    const strata_send_options first = worker_first();
    if (worker_call(self, &first, lock_pages, buffer, locked, buffer) != STRATA_SUCCESS)
        unhold(buffer);
    return true;
}

bool worker_drop_buffer(worker *self, const worker_frame *frame)
{
    if (frame->bytes || frame->head.number >= WIRE_BUFFER_LIMIT)
        return false;
    worker_buffer *buffer = self->buffers[frame->head.number];
    self->buffers[frame->head.number] = NULL;
    if (buffer && buffer != &unmapped)
        unhold(buffer);
    return true;
}

static void end_wrapped(void *memory, size_t bytes, void *data)
{
    (void)memory;
    (void)bytes;
    unhold(data);
}

strata_status worker_wrap(worker *self, uint64_t number, uint64_t offset, uint64_t bytes, strata_host_buffer **out)
{
    worker_buffer *buffer = number < WIRE_BUFFER_LIMIT ? self->buffers[number] : NULL;
    if (!buffer)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the worker has no shared buffer %llu",
                           (unsigned long long)number);
    if (buffer == &unmapped)
        return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY,
                           "the worker had no room to map shared buffer %llu: no address space, or too many mappings "
                           "(vm.max_map_count); release host buffers, this one too, and make others",
                           (unsigned long long)number);
    if (!bytes || offset > buffer->bytes || bytes > buffer->bytes - offset)
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE, "%llu bytes from byte %llu on exceed shared buffer %llu, which has %zu",
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)number, buffer->bytes);
    atomic_fetch_add_explicit(&buffer->holders, 1, memory_order_relaxed);
    const strata_status status =
        strata_host_buffer_wrap((unsigned char *)buffer->memory + offset, bytes, end_wrapped, buffer, out);
    if (status != STRATA_SUCCESS)
        unhold(buffer);
    return status;
}
