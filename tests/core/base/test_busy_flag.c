/* Busy flags: a slot is used by its thread or by the thread that excludes it, never by both. */
#include "core/base/busy_flag.h"

#include <pthread.h>
#include <string.h>

#include "support/driver.h"
#include "support/effort.h"

enum { THREADS = 2 };

/* What a slot guards is not atomic, so that the thread sanitizer sees what is not ordered. */
typedef struct slot {
    _Alignas(64) _Atomic uint32_t busy;
    uint64_t uses, excluded_uses;
    volatile bool inside;
} slot;

static struct {
    slot slots[THREADS];
    _Atomic bool excluded;
    _Atomic bool done;
    _Atomic bool broken;
    bool light; /* strata_busy_try_enter */
} at;

static void use(slot *self, uint64_t *count)
{
    if (self->inside)
        atomic_store(&at.broken, true);
    self->inside = true;
    for (volatile unsigned i = 0; i < 20; i++)
        continue;
    ++*count;
    self->inside = false;
}

static void *use_own_slot(void *data)
{
    slot *self = data;
    for (unsigned round = 1; !atomic_load_explicit(&at.done, memory_order_relaxed); round++) {
        for (volatile unsigned i = 0; i < round % 61; i++) /* `excluded` changes meanwhile */
            continue;
        if (!(at.light ? strata_busy_try_enter : strata_busy_enter)(&self->busy, &at.excluded))
            continue;
        use(self, &self->uses);
        strata_busy_leave(&self->busy);
    }
    return NULL;
}

static void exclude_and_use_all(unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        strata_busy_exclude(&at.excluded);
        for (unsigned i = 0; i < THREADS; i++) {
            strata_busy_await(&at.slots[i].busy);
            use(&at.slots[i], &at.slots[i].excluded_uses);
        }
        strata_busy_readmit(&at.excluded);
        for (volatile unsigned i = 0; i < round % 251; i++) /* they meet at another moment each time */
            continue;
    }
}

static void run(bool light)
{
    pthread_t threads[THREADS];
    const unsigned rounds = (unsigned)test_effort(20000, 300);
    memset(&at, 0, sizeof at);
    at.light = light;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_own_slot, &at.slots[i]), 0);
    exclude_and_use_all(rounds);
    atomic_store(&at.done, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&at.broken));
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(at.slots[i].excluded_uses, rounds);
}

static void a_slot_is_never_used_by_its_thread_and_the_excluding_one_at_once(void **state)
{
    (void)state;
    strata_barriers_open();
    run(false);
    run(true);
}

static void so_it_is_with_full_barriers(void **state)
{
    (void)state;
    bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    run(false);
    strata_barriers_are_full = were_full;
}

static void a_thread_that_is_excluded_is_not_busy(void **state)
{
    (void)state;
    memset(&at, 0, sizeof at);
    strata_busy_exclude(&at.excluded);
    assert_false(strata_busy_enter(&at.slots[0].busy, &at.excluded));
    assert_false(strata_busy_try_enter(&at.slots[0].busy, &at.excluded));
    assert_int_equal(at.slots[0].busy, 0);
    strata_busy_readmit(&at.excluded);
    assert_true(strata_busy_enter(&at.slots[0].busy, &at.excluded));
    assert_int_equal(at.slots[0].busy, 1);
    strata_busy_leave(&at.slots[0].busy);
}

static void entering_fails_where_a_full_barrier_would_be_needed_only_if_it_is_tried(void **state)
{
    (void)state;
    memset(&at, 0, sizeof at);
    bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    bool tried = strata_busy_try_enter(&at.slots[0].busy, &at.excluded);
    bool entered = strata_busy_enter(&at.slots[0].busy, &at.excluded);
    strata_barriers_are_full = were_full;
    assert_false(tried);
    assert_true(entered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_never_used_by_its_thread_and_the_excluding_one_at_once),
        cmocka_unit_test(so_it_is_with_full_barriers),
        cmocka_unit_test(a_thread_that_is_excluded_is_not_busy),
        cmocka_unit_test(entering_fails_where_a_full_barrier_would_be_needed_only_if_it_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
