/* State of threads: context stack, capture mode, per-thread default streams. */
#include "order/order.h"
#include <stdlib.h>

/* Guarded by sim.lock. */
static struct {
    pthread_key_t key; /* only for the ends of threads */
    bool open;
    uint64_t opened; /* how often */
    sim_thread *first;
} threads;

/* The thread's own state, of the driver as it was opened then. Not the key's value: where this library is in a
 * namespace of its own (dlmopen), its C library gives out keys that are the program's, too, and the values are the
 * same. */
static _Thread_local struct {
    sim_thread *thread;
    uint64_t opened;
} own;

static void forget_in_captures(const sim_thread *thread)
{
    for (sim_capture *capture = sim_order.captures; capture; capture = capture->next)
        if (capture->thread == thread)
            capture->thread = NULL;
}

static void unlink_and_free(sim_thread *thread)
{
    forget_in_captures(thread);
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        threads.first = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    free(thread->stack);
    free(thread->queues);
    free(thread);
}

static bool is_known(const sim_thread *thread)
{
    const sim_thread *at = threads.first;
    while (at && at != thread)
        at = at->next;
    return at != NULL;
}

static void thread_ends(void *data)
{
    pthread_mutex_lock(&sim.lock);
    sim_thread *thread = data;
    if (own.thread == thread)
        own.thread = NULL; /* later destructors of the program's may call the driver */
    if (threads.open && is_known(thread)) {
        while (thread->queue_count > 0)
            sim_queue_close(thread->queues[--thread->queue_count]);
        unlink_and_free(thread);
    }
    pthread_mutex_unlock(&sim.lock);
}

bool sim_threads_open(void)
{
    threads.open = pthread_key_create(&threads.key, thread_ends) == 0;
    threads.opened++;
    return threads.open;
}

void sim_threads_close(void)
{
    if (threads.open) {
        pthread_key_delete(threads.key);
        threads.open = false;
    }
    while (threads.first)
        unlink_and_free(threads.first);
}

sim_thread *sim_thread_self(void)
{
    if (own.thread && own.opened == threads.opened)
        return own.thread;
    sim_thread *thread = calloc(1, sizeof *thread);
    if (!thread)
        return NULL;
    thread->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    /* A value that is there already is the program's: this thread's end is not told, and its state stays. */
    if (!pthread_getspecific(threads.key) && pthread_setspecific(threads.key, thread) != 0) {
        free(thread);
        return NULL;
    }
    thread->next = threads.first;
    if (thread->next)
        thread->next->previous = thread;
    threads.first = thread;
    own.thread = thread;
    own.opened = threads.opened;
    return thread;
}

CUresult sim_thread_push(sim_context *context)
{
    sim_thread *thread = sim_thread_self();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->depth == thread->capacity) {
        size_t capacity = thread->capacity ? 2 * thread->capacity : 4;
        sim_current *stack = realloc(thread->stack, capacity * sizeof(*stack));
        if (!stack)
            return CUDA_ERROR_OUT_OF_MEMORY;
        thread->stack = stack;
        thread->capacity = capacity;
    }
    thread->stack[thread->depth++] = (sim_current){.context = context, .uid = context->uid};
    return CUDA_SUCCESS;
}

sim_queue *sim_thread_queue(sim_context *context)
{
    sim_thread *thread = sim_thread_self();
    if (!thread)
        return NULL;
    for (size_t i = 0; i < thread->queue_count; i++)
        if (thread->queues[i]->context == context)
            return thread->queues[i];
    sim_queue **queues = realloc(thread->queues, (thread->queue_count + 1) * sizeof(*queues));
    if (!queues)
        return NULL;
    thread->queues = queues;
    sim_queue *queue = sim_queue_open(context, SIM_QUEUE_PER_THREAD, CU_STREAM_DEFAULT, 0);
    if (queue)
        thread->queues[thread->queue_count++] = queue;
    return queue;
}

void sim_threads_forget_queue(const sim_queue *queue)
{
    for (sim_thread *thread = threads.first; thread; thread = thread->next) {
        for (size_t i = 0; i < thread->queue_count; i++) {
            if (thread->queues[i] == queue) {
                thread->queues[i] = thread->queues[--thread->queue_count];
                break;
            }
        }
    }
}
