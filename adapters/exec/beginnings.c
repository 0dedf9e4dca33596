/* A capture of a blocking stream survives no call on the legacy stream, which barriers and the stack use: they ask
 * first whether there is one. So that none begins between the question and the call, the program's call that begins one
 * comes in between only with no barrier under way (each device's `publishing`), and no call of the stack (the lock
 * here). What waits for the device holds neither, but a barrier that another capture keeps from the legacy stream. */
#include "adapters/exec/exec.h"

#include "core/streams/call_scope.h"

static pthread_rwlock_t legacy; /* read by calls on the legacy stream, written by beginnings; made before threads */
static _Thread_local unsigned passed; /* scopes of this thread, one in another: a second reader could wait for ever */

static void pass(void)
{
    if (passed++ == 0 && !exec_is_forked())
        pthread_rwlock_rdlock(&legacy);
}

static void leave(void)
{
    if (--passed == 0 && !exec_is_forked())
        pthread_rwlock_unlock(&legacy);
}

void exec_beginning_enter(exec_beginning *beginning)
{
    exec_device *device;
    beginning->count = 0;
    for (size_t i = 0; (device = exec_device_next(&i));) {
        pthread_mutex_lock(&device->publishing);
        beginning->devices[beginning->count++] = device;
    }
    pthread_rwlock_wrlock(&legacy);
}

void exec_beginning_leave(exec_beginning *beginning)
{
    pthread_rwlock_unlock(&legacy);
    while (beginning->count)
        pthread_mutex_unlock(&beginning->devices[--beginning->count]->publishing);
}

/* Waiting writers come first: a program may ask for memory all the time. */
void exec_beginnings_watch(void)
{
    static const strata_legacy_gate gate = {pass, leave};
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&legacy, &kind);
    pthread_rwlockattr_destroy(&kind);
    strata_legacy_gate_now = &gate;
}
