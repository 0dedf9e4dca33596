/* Locks: what is read of one behind its release, and jitter. */
#include "core/base/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/child.h"

/* ---- the end of a lock ---- */

typedef struct record {
    strata_lock lock;
    strata_spin spin;
    bool by_spin;
    _Atomic bool waits;
} record;

static void take(record *self)
{
    if (self->by_spin)
        strata_spin_take(&self->spin);
    else
        strata_lock_take(&self->lock);
}

static void *take_and_free(void *data)
{
    record *self = data;
    atomic_store(&self->waits, true);
    take(self);
    if (self->by_spin)
        strata_spin_release(&self->spin);
    else
        strata_lock_release(&self->lock);
    strata_lock_destroy(&self->lock);
    free(self);
    return NULL;
}

/* For the sanitizers, which see what is read of freed memory. */
static void a_lock_may_be_freed_by_the_next_thread_that_takes_it(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        record *self = calloc(1, sizeof *self);
        pthread_t thread;
        assert_non_null(self);
        self->by_spin = round % 2;
        strata_lock_init(&self->lock, STRATA_RANK_LEAF);
        strata_spin_init(&self->spin, STRATA_RANK_LEAF);
        take(self);
        assert_int_equal(pthread_create(&thread, NULL, take_and_free, self), 0);
        while (!atomic_load(&self->waits))
            usleep(10);
        usleep(100);
        if (self->by_spin)
            strata_spin_release(&self->spin);
        else
            strata_lock_release(&self->lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

/* ---- waiting ---- */

static void *be_ended_and_take(void *data)
{
    record *self = data;
    pthread_cancel(pthread_self());
    atomic_store(&self->waits, true);
    strata_spin_take(&self->spin);
    strata_spin_release(&self->spin);
    return self;
}

/* It may hold other locks. */
static void a_thread_that_waits_for_a_spin_lock_is_not_ended(void **state)
{
    (void)state;
    record self = {.by_spin = true};
    pthread_t thread;
    void *returned;
    strata_spin_init(&self.spin, STRATA_RANK_LEAF);
    strata_spin_take(&self.spin);
    assert_int_equal(pthread_create(&thread, NULL, be_ended_and_take, &self), 0);
    while (!atomic_load(&self.waits))
        usleep(10);
    usleep(100000);
    strata_spin_release(&self.spin);
    assert_int_equal(pthread_join(thread, &returned), 0);
    assert_ptr_equal(returned, &self);
}

/* ---- jitter ---- */

static struct {
    strata_lock lock;
    int listed, taken;      /* guarded by lock */
    _Atomic int seen_taken; /* as `taken` */
    _Atomic bool over;
} at;

static void *take_what_is_listed(void *unused)
{
    while (!atomic_load(&at.over)) {
        strata_lock_take(&at.lock);
        at.taken = at.listed;
        atomic_store(&at.seen_taken, at.taken);
        strata_lock_release(&at.lock);
        usleep(10);
    }
    return unused;
}

/* How often another thread took what was listed before this one went on behind the release. */
static int count_taken_behind_the_release(void)
{
    enum { ROUNDS = 200 };
    int count = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        strata_lock_take(&at.lock);
        at.listed = round;
        strata_lock_release(&at.lock);
        count += atomic_load(&at.seen_taken) == round;
    }
    return count;
}

static void child_with_jitter_threads_get_in_behind_a_release(void)
{
    enum { LEAST = 10 };
    pthread_t thread;
    strata_lock_init(&at.lock, STRATA_RANK_LEAF);
    child_check(pthread_create(&thread, NULL, take_what_is_listed, NULL) == 0);
    child_check(count_taken_behind_the_release() >= LEAST);
    atomic_store(&at.over, true);
    child_check(pthread_join(thread, NULL) == 0);
}

static void with_jitter_threads_get_in_behind_a_release(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#else
    test_child_run("child_with_jitter_threads_get_in_behind_a_release",
                   (const char *const[]){"STRATA_LOCK_JITTER=1", NULL});
#endif
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(child_with_jitter_threads_get_in_behind_a_release)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_may_be_freed_by_the_next_thread_that_takes_it),
        cmocka_unit_test(a_thread_that_waits_for_a_spin_lock_is_not_ended),
        cmocka_unit_test(with_jitter_threads_get_in_behind_a_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
