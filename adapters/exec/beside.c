/* Contexts beside a device's primary one whose work may use the memory of its stack: those of cuCtxCreate, and contexts
 * of other devices with access to it as a peer. The device's legacy stream waits for none of their streams. Those that
 * the program makes are noticed one by one (noticed.c); the default streams of a context are noticed with it: its
 * legacy stream, which waits for the threads' own and for which they wait. A green context can be current to one thread
 * at a time, and that is the program's: it is asked by its own handle.
 *
 * A handle is good until the context's end, before which it is marked as ending. */
#include "adapters/exec/exec.h"

#include "core/base/host_memory.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <sched.h>
#include <uthash.h>

typedef struct noticed_context {
    exec_beside facts;
    uint64_t devices; /* bits of the devices whose memory it may use */
    UT_hash_handle hh;
} noticed_context;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* inside noticed.c's */
static noticed_context *noticed;                           /* guarded by the lock */
static _Atomic bool any;                                   /* a context was noticed; for good */

static uint64_t bit_of(int ordinal)
{
    return UINT64_C(1) << ordinal;
}

bool exec_contexts_any(void)
{
    return atomic_load_explicit(&any, memory_order_acquire);
}

/* Under the lock. */
static noticed_context *find(CUcontext handle)
{
    noticed_context *context = NULL;
    HASH_FIND(hh, noticed, &handle, sizeof handle, context);
    return context;
}

/* Under the lock. NULL: without host memory. */
static noticed_context *add(CUcontext handle)
{
    noticed_context *context = strata_host_zalloc(sizeof *context);
    if (!context)
        return NULL;
    context->facts.handle = handle;
    HASH_ADD(hh, noticed, facts.handle, sizeof context->facts.handle, context);
    if (context->hh.tbl)
        return context;
    strata_host_free(context);
    return NULL;
}

/* `green`: NULL, or its green context. */
static bool notice(CUcontext handle, int ordinal, CUgreenCtx green)
{
    pthread_rwlock_wrlock(&lock);
    noticed_context *context = find(handle);
    if (!context)
        context = add(handle);
    if (context)
        context->devices |= bit_of(ordinal);
    if (context && green) {
        context->facts.green = green;
        context->facts.ordinal = ordinal;
    }
    atomic_store_explicit(&any, true, memory_order_release);
    pthread_rwlock_unlock(&lock);
    return context != NULL;
}

bool exec_context_notice(CUcontext handle, int ordinal)
{
    return notice(handle, ordinal, NULL);
}

bool exec_green_notice(CUgreenCtx green, CUcontext handle, int ordinal)
{
    return notice(handle, ordinal, green);
}

bool exec_green_find(CUgreenCtx green, int ordinal, size_t number, exec_beside *found)
{
    const noticed_context *context = NULL;
    if (!exec_contexts_any() || exec_is_forked())
        return false;
    pthread_rwlock_rdlock(&lock);
    for (context = noticed; context; context = context->hh.next)
        if (context->facts.green && (!green || context->facts.green == green) &&
            (ordinal < 0 || context->facts.ordinal == ordinal) && !number--)
            break;
    if (context)
        *found = context->facts;
    pthread_rwlock_unlock(&lock);
    return context != NULL;
}

static bool is_ending(CUcontext handle)
{
    pthread_rwlock_rdlock(&lock);
    const noticed_context *context = find(handle);
    const bool ending = context && context->facts.ending;
    pthread_rwlock_unlock(&lock);
    return ending;
}

/* Spins: to the driver the context has ended already, and what the other thread has left to do is short. */
void exec_context_await_forgetting(CUcontext handle)
{
    while (exec_contexts_any() && is_ending(handle))
        sched_yield();
}

bool exec_context_uses(CUcontext handle, int ordinal)
{
    if (!exec_contexts_any())
        return false;
    pthread_rwlock_rdlock(&lock);
    const noticed_context *context = find(handle);
    const bool uses = context && context->devices & bit_of(ordinal);
    pthread_rwlock_unlock(&lock);
    return uses;
}

void exec_contexts_visit(int ordinal, CUcontext own, void (*visit)(const exec_beside *context, void *data), void *data)
{
    if (!exec_contexts_any())
        return;
    pthread_rwlock_rdlock(&lock);
    for (const noticed_context *context = noticed; context; context = context->hh.next)
        if (context->devices & bit_of(ordinal) && (!own || context->facts.handle == own) && !context->facts.ending)
            visit(&context->facts, data);
    pthread_rwlock_unlock(&lock);
}

void exec_context_mark_ending(CUcontext handle, bool ending)
{
    if (!exec_contexts_any() || exec_is_forked())
        return;
    pthread_rwlock_wrlock(&lock);
    noticed_context *context = find(handle);
    if (context)
        context->facts.ending = ending;
    pthread_rwlock_unlock(&lock);
}

void exec_context_forget(CUcontext handle)
{
    if (!exec_contexts_any() || exec_is_forked())
        return;
    pthread_rwlock_wrlock(&lock);
    noticed_context *context = find(handle);
    if (context) {
        HASH_DEL(noticed, context);
        strata_host_free(context);
    }
    pthread_rwlock_unlock(&lock);
}
