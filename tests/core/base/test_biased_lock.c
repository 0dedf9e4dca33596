/* A biased lock: one thread holds it at a time, whichever way, and a long row makes it a thread's own. */
#include "core/base/biased_lock.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "support/driver.h"
#include "support/effort.h"

enum { OTHERS = 2, SHORT_ROW = 8 };

/* What the lock guards is not atomic, so that the thread sanitizer sees what is not ordered. */
static struct {
    strata_biased_lock lock;
    uint64_t uses, flags, exclusions;
    volatile bool inside, broken;
    _Atomic bool done;
} at;

static void begin(void)
{
    assert_non_null(strata_thread_self());
    memset(&at, 0, sizeof at);
    at.lock = (strata_biased_lock)STRATA_BIASED_LOCK_INITIALIZER(STRATA_RANK_LEAF);
}

/* Returns whether the thread held the lock by its flag. */
static bool use(void)
{
    strata_biased_take(&at.lock);
    if (at.inside)
        at.broken = true;
    at.inside = true;
    for (volatile unsigned i = 0; i < 20; i++)
        continue;
    at.uses++;
    at.flags += at.lock.by != NULL;
    const bool by_flag = at.lock.by != NULL;
    at.inside = false;
    strata_biased_release(&at.lock);
    return by_flag;
}

static void pause_for(unsigned steps)
{
    for (volatile unsigned i = 0; i < steps; i++)
        continue;
}

typedef struct other {
    unsigned first;
    uint64_t uses;
    _Atomic uint64_t flags; /* relaxed: it orders nothing */
} other;

/* Rows stay short, so that threads are let in and excluded again and again. */
static void *use_now_and_then(void *data)
{
    other *self = data;
    assert_non_null(strata_thread_self());
    for (unsigned round = self->first; !atomic_load_explicit(&at.done, memory_order_relaxed); round++) {
        if (round % 5 == 0)
            for (unsigned i = 0; i < 2 * SHORT_ROW; i++, self->uses++)
                atomic_fetch_add_explicit(&self->flags, use(), memory_order_relaxed);
        strata_biased_take(&at.lock);
        if (at.inside)
            at.broken = true;
        at.inside = true;
        if (!at.lock.by) { /* the spin lock guards it */
            at.exclusions += at.lock.long_row > SHORT_ROW;
            at.lock.long_row = SHORT_ROW;
        }
        at.uses++;
        at.inside = false;
        strata_biased_release(&at.lock);
        self->uses++;
        pause_for(round % 2003); /* they meet at another moment each time */
    }
    return NULL;
}

static bool was_excluded(size_t times)
{
    strata_biased_take(&at.lock);
    const bool was = at.exclusions >= times;
    strata_biased_release(&at.lock);
    return was;
}

/* Leaves the lock alone until each of them has had it for a long row. */
static void await_flags_of_all(other *others)
{
    for (unsigned i = 0; i < OTHERS; i++)
        while (!atomic_load_explicit(&others[i].flags, memory_order_relaxed))
            usleep(100);
}

static void run(void)
{
    pthread_t threads[OTHERS];
    other others[OTHERS] = {{.first = 1}, {.first = 1000}};
    uint64_t uses = 1;
    begin();
    at.lock.long_row = SHORT_ROW;
    while (!use()) /* the thread's own from now on */
        uses++;
    for (unsigned i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_now_and_then, &others[i]), 0);
    for (; !was_excluded(test_effort(300, 30)); uses += 100)
        for (unsigned i = 0; i < 100; i++)
            use();
    await_flags_of_all(others);
    atomic_store(&at.done, true);
    for (unsigned i = 0; i < OTHERS; i++) {
        pthread_join(threads[i], NULL);
        uses += others[i].uses;
    }
    assert_false(at.broken);
    assert_int_equal(at.uses, uses);
    assert_true(at.flags > 1);
}

static void no_two_threads_hold_it_at_once(void **state)
{
    (void)state;
    strata_barriers_open();
    run();
}

static void so_it_is_with_full_barriers(void **state)
{
    (void)state;
    const bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    run();
    strata_barriers_are_full = were_full;
}

static void *use_once(void *count)
{
    assert_non_null(strata_thread_self());
    for (unsigned i = *(const unsigned *)count; i; i--)
        if (use())
            at.broken = true;
    return NULL;
}

static void use_on_another_thread(unsigned count)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_once, &count), 0);
    pthread_join(thread, NULL);
}

/* How often the lock is taken by the spin lock before a flag takes its place. */
static unsigned uses_until_the_flag(void)
{
    unsigned count = 0;
    while (!use())
        count++;
    return count;
}

static void a_long_row_makes_it_a_threads_own_and_each_exclusion_a_longer_one(void **state)
{
    (void)state;
    begin();
    assert_int_equal(uses_until_the_flag(), STRATA_BIASED_LOCK_FIRST_ROW);
    assert_true(use());
    use_on_another_thread(1);
    assert_int_equal(uses_until_the_flag(), 2 * STRATA_BIASED_LOCK_FIRST_ROW);
    use_on_another_thread(1);
    for (unsigned i = 0; i < 100; i++)
        assert_false(use());
    use_on_another_thread(1); /* the row begins anew, but none was excluded */
    assert_int_equal(uses_until_the_flag(), 4 * STRATA_BIASED_LOCK_FIRST_ROW);
    assert_false(at.broken);
}

/* Returns how often the thread took the lock before it did by its flag. */
static void *use_until_the_flag(void *count)
{
    assert_non_null(strata_thread_self());
    *(unsigned *)count = uses_until_the_flag();
    return NULL;
}

static unsigned uses_until_the_flag_of_another_thread(void)
{
    pthread_t thread;
    unsigned count = 0;
    assert_int_equal(pthread_create(&thread, NULL, use_until_the_flag, &count), 0);
    pthread_join(thread, NULL);
    return count;
}

static void a_long_row_of_another_thread_makes_it_that_ones(void **state)
{
    (void)state;
    begin();
    uses_until_the_flag();
    assert_int_equal(uses_until_the_flag_of_another_thread(), 2 * STRATA_BIASED_LOCK_FIRST_ROW);
    assert_int_equal(uses_until_the_flag(), 4 * STRATA_BIASED_LOCK_FIRST_ROW);
    assert_true(use());
    assert_false(at.broken);
}

static void the_flag_goes_with_the_number_to_a_later_thread(void **state)
{
    (void)state;
    begin();
    assert_int_equal(uses_until_the_flag_of_another_thread(), STRATA_BIASED_LOCK_FIRST_ROW);
    assert_int_equal(uses_until_the_flag_of_another_thread(), 0);
    assert_false(at.broken);
}

static void *use_without_a_state(void *data)
{
    (void)data;
    for (unsigned i = 0; i < 2 * STRATA_BIASED_LOCK_FIRST_ROW; i++)
        if (strata_thread_current || use())
            at.broken = true;
    return NULL;
}

static void it_becomes_none_of_a_thread_without_a_state(void **state)
{
    (void)state;
    pthread_t thread;
    begin();
    assert_int_equal(pthread_create(&thread, NULL, use_without_a_state, NULL), 0);
    pthread_join(thread, NULL);
    assert_false(at.broken);
    assert_int_equal(at.lock.own, STRATA_BIASED_LOCK_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_threads_hold_it_at_once),
        cmocka_unit_test(so_it_is_with_full_barriers),
        cmocka_unit_test(a_long_row_makes_it_a_threads_own_and_each_exclusion_a_longer_one),
        cmocka_unit_test(a_long_row_of_another_thread_makes_it_that_ones),
        cmocka_unit_test(the_flag_goes_with_the_number_to_a_later_thread),
        cmocka_unit_test(it_becomes_none_of_a_thread_without_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
