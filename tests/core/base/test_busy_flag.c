/* Busy flags: a slot is used by its thread or by the thread that excludes it, never by both. */
#include "core/base/busy_flag.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

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
    strata_busy_gate gate;
    _Atomic bool done;
    _Atomic bool broken;
    bool light; /* by the fast way */
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

static bool enter(slot *self)
{
    return at.light ? strata_busy_try_enter(&self->busy, &at.gate) : strata_busy_enter(&self->busy, &at.gate.excluded);
}

static void *use_own_slot(void *data)
{
    slot *self = data;
    for (unsigned round = 1; !atomic_load_explicit(&at.done, memory_order_relaxed); round++) {
        for (volatile unsigned i = 0; i < round % 61; i++) /* the gate changes meanwhile */
            continue;
        if (!enter(self))
            continue;
        use(self, &self->uses);
        strata_busy_leave(&self->busy);
    }
    return NULL;
}

static void exclude_and_use_all(unsigned rounds, bool gate)
{
    for (unsigned round = 0; round < rounds; round++) {
        if (gate)
            strata_busy_gate_close(&at.gate);
        else
            strata_busy_exclude(&at.gate.excluded);
        for (unsigned i = 0; i < THREADS; i++) {
            strata_busy_await(&at.slots[i].busy);
            use(&at.slots[i], &at.slots[i].excluded_uses);
        }
        if (gate)
            strata_busy_gate_open(&at.gate);
        else
            strata_busy_readmit(&at.gate.excluded);
        for (volatile unsigned i = 0; i < round % 251; i++) /* they meet at another moment each time */
            continue;
    }
}

static void run(bool light, bool gate)
{
    pthread_t threads[THREADS];
    const unsigned rounds = (unsigned)test_effort(20000, 300);
    memset(&at, 0, sizeof at);
    strata_busy_gate_init(&at.gate);
    at.light = light;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_own_slot, &at.slots[i]), 0);
    exclude_and_use_all(rounds, gate);
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
    run(false, false);
    run(false, true);
    run(true, true);
}

static void so_it_is_with_full_barriers(void **state)
{
    (void)state;
    bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    run(false, false);
    run(false, true);
    strata_barriers_are_full = were_full;
}

static void a_thread_that_is_excluded_is_not_busy(void **state)
{
    (void)state;
    slot *self = &at.slots[0];
    memset(&at, 0, sizeof at);
    strata_busy_gate_init(&at.gate);
    for (unsigned round = 0; round < 2; round++) {
        strata_busy_gate_close(&at.gate);
        assert_false(strata_busy_enter(&self->busy, &at.gate.excluded));
        assert_false(strata_busy_try_enter(&self->busy, &at.gate));
        assert_int_equal(self->busy, 0);
        strata_busy_gate_open(&at.gate);
        assert_true(strata_busy_enter(&self->busy, &at.gate.excluded));
        assert_int_equal(self->busy, 1);
        strata_busy_leave(&self->busy);
        assert_int_equal(strata_busy_try_enter(&self->busy, &at.gate), !strata_barriers_are_full);
        strata_busy_leave(&self->busy);
    }
}

static void the_fast_way_is_closed_where_barriers_must_be_full(void **state)
{
    (void)state;
    memset(&at, 0, sizeof at);
    bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    strata_busy_gate_init(&at.gate);
    bool tried = strata_busy_try_enter(&at.slots[0].busy, &at.gate);
    bool entered = strata_busy_enter(&at.slots[0].busy, &at.gate.excluded);
    strata_barriers_are_full = were_full;
    assert_false(tried);
    assert_true(entered);
}

/* ns */
static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t time_to_close(void)
{
    const uint64_t before = now();
    strata_busy_gate_close(&at.gate);
    return now() - before;
}

/* Threads may still come by the fast way, with barriers that are light. */
static void where_barriers_have_become_full_the_first_exclusion_waits_and_the_fast_way_stays_closed(void **state)
{
    (void)state;
    memset(&at, 0, sizeof at);
    strata_barriers_open();
    if (strata_barriers_are_full)
        skip();
    strata_busy_gate_init(&at.gate);
    atomic_store(&strata_barriers_are_full, true);
    const bool still_open = strata_busy_try_enter(&at.slots[0].busy, &at.gate);
    strata_busy_leave(&at.slots[0].busy);
    const uint64_t first = time_to_close();
    strata_busy_gate_open(&at.gate);
    const bool open_again = strata_busy_try_enter(&at.slots[0].busy, &at.gate);
    uint64_t later = UINT64_MAX; /* the least of several: the machine may do other things */
    for (unsigned i = 0; i < 100; i++) {
        const uint64_t took = time_to_close();
        later = took < later ? took : later;
        strata_busy_gate_open(&at.gate);
    }
    atomic_store(&strata_barriers_are_full, false);
    assert_true(still_open);
    assert_in_range(first, 1000000, UINT64_MAX);
    assert_false(open_again);
    assert_in_range(later, 0, 999999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_never_used_by_its_thread_and_the_excluding_one_at_once),
        cmocka_unit_test(so_it_is_with_full_barriers),
        cmocka_unit_test(a_thread_that_is_excluded_is_not_busy),
        cmocka_unit_test(the_fast_way_is_closed_where_barriers_must_be_full),
        cmocka_unit_test(where_barriers_have_become_full_the_first_exclusion_waits_and_the_fast_way_stays_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
