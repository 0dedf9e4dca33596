/* References handed through a queue of threads while the context is rebuilt. The main thread makes buffers and puts
 * them into a queue; workers take them out, fill them on streams of their own, and release them. In the middle the
 * generation moves, as after a rebuild of the context: buffers made before are stale from then on, wherever they are,
 * and each worker finds out when it asks for the address. A watch tells of the change.
 *
 * Then a buffer goes to another library as a DLPack tensor, and a scalar is set between two launches. */
#include "cuda_calls.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <strata/dlpack_types.h>

enum { WORKERS = 4, BUFFERS = 200, REBUILD_AFTER = 100, LENGTH = 4096, ROOM = 16 };

static cuda_calls cu;

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    strata_ref *refs[ROOM]; /* a ring */
    size_t first, count;
    bool ended;
    size_t filled, stale, failed; /* what became of the buffers */
} queue;

static void put(queue *self, strata_ref *ref)
{
    pthread_mutex_lock(&self->lock);
    while (self->count == ROOM)
        pthread_cond_wait(&self->changed, &self->lock);
    self->refs[(self->first + self->count++) % ROOM] = ref;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* NULL: the queue has ended. */
static strata_ref *take(queue *self)
{
    strata_ref *ref = NULL;
    pthread_mutex_lock(&self->lock);
    while (self->count == 0 && !self->ended)
        pthread_cond_wait(&self->changed, &self->lock);
    if (self->count) {
        ref = self->refs[self->first];
        self->first = (self->first + 1) % ROOM;
        self->count--;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return ref;
}

static void end(queue *self)
{
    pthread_mutex_lock(&self->lock);
    self->ended = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* Fills the buffer behind a launch that names it. The launch has a reference of its own until it is committed. */
static strata_status fill(strata_runtime *runtime, strata_ref *ref, CUstream stream)
{
    strata_ref_memory memory;
    strata_launch launch;
    strata_status status = strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        status = strata_ref_access(ref, &memory);
        const bool submitted =
            status == STRATA_SUCCESS && cu.MemsetD8Async(memory.address, 0x5a, memory.bytes, stream) == CUDA_SUCCESS;
        const strata_status noted = submitted ? strata_launch_commit(&launch) : strata_launch_cancel(&launch);
        status = status == STRATA_SUCCESS ? noted : status;
    }
    strata_launch_end(&launch);
    return status;
}

typedef struct worker {
    strata_runtime *runtime;
    queue *buffers;
    CUstream stream;
} worker;

static void *work(void *data)
{
    const worker *self = data;
    for (strata_ref *ref; (ref = take(self->buffers));) {
        const strata_status status = fill(self->runtime, ref, self->stream);
        const bool released = strata_ref_release(ref) == STRATA_SUCCESS; /* the memory goes after the fill */
        pthread_mutex_lock(&self->buffers->lock);
        self->buffers->filled += status == STRATA_SUCCESS;
        self->buffers->stale += status == STRATA_ERROR_STALE;
        self->buffers->failed += (status != STRATA_SUCCESS && status != STRATA_ERROR_STALE) || !released;
        pthread_mutex_unlock(&self->buffers->lock);
    }
    return NULL;
}

static bool make_buffers(strata_runtime *runtime, queue *buffers, strata_ref **kept)
{
    for (size_t i = 0; i < BUFFERS; i++) {
        strata_ref *ref;
        if (strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, 0, &ref) != STRATA_SUCCESS)
            return false;
        if (i == 0)
            *kept = strata_ref_clone(ref); /* to be looked at below */
        if (i == REBUILD_AFTER)
            strata_device_state_bump_generation(strata_runtime_device_state(runtime), NULL);
        put(buffers, ref);
    }
    return true;
}

/* After the change the watch is readable, and the first buffer is stale. */
static bool tell_of_the_change(strata_generation_watch *watch, const strata_ref *first)
{
    struct pollfd look = {.fd = strata_generation_watch_fd(watch), .events = POLLIN};
    strata_ref_memory memory;
    uint64_t changes = 0;
    return poll(&look, 1, -1) == 1 && strata_generation_watch_take(watch, &changes) == STRATA_SUCCESS && changes == 1 &&
           strata_ref_access(first, &memory) == STRATA_ERROR_STALE && memory.stale == STRATA_STALE_CONTEXT_REBUILT;
}

static bool run(strata_runtime *runtime)
{
    static queue buffers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    strata_generation_watch *watch;
    strata_ref *first = NULL;
    if (strata_generation_watch_create(strata_runtime_device_state(runtime), NULL, NULL, &watch) != STRATA_SUCCESS)
        return false;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.runtime = runtime, .buffers = &buffers};
        if (strata_runtime_stream_acquire(runtime, &workers[i].stream) != STRATA_SUCCESS ||
            pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            return false;
    }
    bool done = make_buffers(runtime, &buffers, &first);
    end(&buffers);
    for (size_t i = 0; i < WORKERS; i++) {
        done &= pthread_join(threads[i], NULL) == 0;
        done &= strata_runtime_stream_release(runtime, workers[i].stream) == STRATA_SUCCESS;
    }
    done = done && tell_of_the_change(watch, first);
    done &= strata_ref_release(first) == STRATA_SUCCESS;
    done &= strata_generation_watch_destroy(watch) == STRATA_SUCCESS;
    printf("%zu buffers filled, %zu were stale, %zu failed\n", buffers.filled, buffers.stale, buffers.failed);
    return done && buffers.failed == 0 && buffers.filled + buffers.stale == BUFFERS;
}

/* As a library that knows DLPack and nothing of Strata: works with the tensor on its own stream, and deletes it. */
static bool library_takes(DLManagedTensorVersioned *tensor, CUstream stream)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)tensor->dl_tensor.data + tensor->dl_tensor.byte_offset;
    const size_t bytes = (size_t)(tensor->dl_tensor.shape[0] * tensor->dl_tensor.shape[1]) * 4;
    const bool submitted = tensor->version.major == DLPACK_MAJOR_VERSION && tensor->dl_tensor.dtype.bits == 32 &&
                           cu.MemsetD8Async(address, 0, bytes, stream) == CUDA_SUCCESS;
    tensor->deleter(tensor); /* the memory goes after the work above */
    return submitted;
}

static bool hand_to_a_library(strata_runtime *runtime, CUstream stream, CUstream library_stream)
{
    static const int64_t shape[] = {64, LENGTH / 64};
    const strata_dlpack_options options = {.shape = shape, .ndim = 2};
    DLManagedTensorVersioned *tensor = NULL;
    strata_ref *ref;
    if (strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, stream, &ref) != STRATA_SUCCESS)
        return false;
    bool done = fill(runtime, ref, stream) == STRATA_SUCCESS &&
                strata_ref_export_dlpack(ref, (int64_t)(uintptr_t)library_stream, &options, &tensor) == STRATA_SUCCESS;
    done &= strata_ref_release(ref) == STRATA_SUCCESS; /* the tensor has a reference of its own */
    return done && library_takes(tensor, library_stream);
}

/* A launch that reads the scalar; here a copy stands for the kernel. */
static bool read_scalar(strata_runtime *runtime, strata_scalar *scalar, CUstream stream, float *value)
{
    strata_launch launch;
    CUdeviceptr address;
    if (strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT) != STRATA_SUCCESS)
        return false;
    bool done = strata_launch_use_scalar(&launch, scalar, STRATA_ACCESS_READ) == STRATA_SUCCESS &&
                strata_scalar_address(scalar, &address) == STRATA_SUCCESS &&
                strata_launch_preflight(&launch) == STRATA_SUCCESS;
    if (done) {
        done = cu.MemcpyDtoHAsync(value, address, sizeof *value, stream) == CUDA_SUCCESS;
        done &= strata_launch_commit(&launch) == STRATA_SUCCESS;
    }
    return (strata_launch_end(&launch) == STRATA_SUCCESS) & done;
}

/* Each launch has the value that was set before it, however late it runs. */
static bool set_between_launches(strata_runtime *runtime, CUstream stream)
{
    const float values[] = {0.5f, 0.25f};
    float seen[2] = {0};
    strata_scalar *scalar;
    if (strata_scalar_create(runtime, STRATA_ELEMENT_F32, &values[0], stream, &scalar) != STRATA_SUCCESS)
        return false;
    bool done = read_scalar(runtime, scalar, stream, &seen[0]) &&
                strata_scalar_set(scalar, &values[1], stream) == STRATA_SUCCESS &&
                read_scalar(runtime, scalar, stream, &seen[1]);
    done = cu.StreamSynchronize(stream) == CUDA_SUCCESS && done;
    done &= strata_scalar_destroy(scalar) == STRATA_SUCCESS;
    printf("the first launch had %g, the second %g\n", (double)seen[0], (double)seen[1]);
    return done && memcmp(seen, values, sizeof seen) == 0;
}

static bool run_with_others(strata_runtime *runtime)
{
    CUstream stream, library_stream;
    if (strata_runtime_stream_acquire(runtime, &stream) != STRATA_SUCCESS ||
        strata_runtime_stream_acquire(runtime, &library_stream) != STRATA_SUCCESS)
        return false;
    bool done = hand_to_a_library(runtime, stream, library_stream) && set_between_launches(runtime, stream);
    done &= strata_runtime_stream_release(runtime, library_stream) == STRATA_SUCCESS;
    return (strata_runtime_stream_release(runtime, stream) == STRATA_SUCCESS) & done;
}

int main(void)
{
    strata_runtime *runtime;
    if (!cuda_open(&cu) || strata_runtime_create(NULL, &runtime) != STRATA_SUCCESS)
        return EXIT_FAILURE;
    bool done = run(runtime) && run_with_others(runtime);
    done &= strata_runtime_destroy(runtime) == STRATA_SUCCESS; /* no reference and no memory is left */
    if (!done)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
