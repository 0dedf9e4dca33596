/* Per-thread slots: each thread has one of its own, which outlives it and is found by a walk of all slots. */
#include "core/base/per_thread.h"

#include "core/base/host_memory.h"

#include <pthread.h>

#include "support/driver.h"

typedef struct slot {
    uint64_t number; /* of the thread that wrote here last */
    uint64_t count;
    char rest[100];
} slot;

/* ---- host memory that runs out ---- */

static bool refuse;

void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return refuse ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

/* ---- */

static void a_thread_finds_its_own_zeroed_slot_again(void **state)
{
    (void)state;
    strata_per_thread slots = {0};
    strata_per_thread_init(&slots, sizeof(slot));
    assert_true(slots.stride % 64 == 0 && slots.stride >= sizeof(slot));
    uint32_t position = 0;
    assert_null(strata_per_thread_next(&slots, &position)); /* none before the first use */
    slot *mine = strata_per_thread_self(&slots, strata_thread_self());
    assert_non_null(mine);
    assert_true((uintptr_t)mine % 64 == 0);
    assert_memory_equal(mine, &(slot){0}, sizeof *mine);
    mine->count = 5;
    assert_ptr_equal(strata_per_thread_self(&slots, strata_thread_self()), mine);
    strata_per_thread_destroy(&slots);
}

static void a_thread_without_a_number_has_none(void **state)
{
    (void)state;
    strata_per_thread slots = {0};
    static strata_thread numberless;
    strata_per_thread_init(&slots, sizeof(slot));
    assert_null(strata_per_thread_self(&slots, NULL));
    assert_null(strata_per_thread_self(&slots, &numberless));
    strata_per_thread_destroy(&slots);
}

static void without_host_memory_there_is_none_and_later_there_is(void **state)
{
    (void)state;
    strata_per_thread slots = {0};
    strata_per_thread_init(&slots, sizeof(slot));
    strata_thread *self = strata_thread_self();
    refuse = true;
    void *none = strata_per_thread_self(&slots, self);
    refuse = false;
    assert_null(none);
    assert_non_null(strata_per_thread_self(&slots, self));
    strata_per_thread_destroy(&slots);
}

static void the_highest_number_has_a_slot_too(void **state)
{
    (void)state;
    strata_per_thread slots = {0};
    strata_per_thread_init(&slots, sizeof(slot));
    static const uint32_t numbers[] = {1, 63, 64, STRATA_THREAD_LIMIT - 1};
    for (size_t i = 0; i < 4; i++) {
        strata_thread thread = {.index = numbers[i]};
        slot *its = strata_per_thread_self(&slots, &thread);
        assert_non_null(its);
        assert_true(its->count == 0);
        its->count = 1 + i;
    }
    uint64_t sum = 0;
    uint32_t position = 0, walked = 0;
    for (const slot *one; (one = strata_per_thread_next(&slots, &position)); walked++)
        sum += one->count;
    assert_true(sum == 1 + 2 + 3 + 4);
    assert_int_equal(walked, 3 * STRATA_PER_THREAD_CHUNK);
    assert_null(strata_per_thread_next(&slots, &position));
    strata_per_thread_destroy(&slots);
}

/* ---- threads ---- */

enum { THREADS = 70, TURNS = 200 };

typedef struct counting {
    strata_per_thread slots;
    pthread_barrier_t all_here;
    _Atomic unsigned shared; /* slots that another living thread had */
} counting;

static void *count_in_own_slot(void *data)
{
    counting *self = data;
    strata_thread *thread = strata_thread_self();
    for (unsigned i = 0; i < TURNS; i++) {
        slot *mine = strata_per_thread_self(&self->slots, thread);
        mine->count++;
        mine->number = thread->serial;
    }
    pthread_barrier_wait(&self->all_here);
    const slot *mine = strata_per_thread_self(&self->slots, thread);
    self->shared += mine->number != thread->serial;
    return NULL;
}

/* Under a number or without one. */
static void count_in_rounds(bool numbered)
{
    static counting self;
    self = (counting){.shared = 0};
    strata_per_thread_init(&self.slots, sizeof(slot));
    if (numbered)
        strata_per_thread_take_number(&self.slots);
    assert_int_equal(self.slots.number != 0, numbered);
    for (unsigned round = 1; round <= 3; round++) { /* the numbers of threads that ended come again */
        pthread_t threads[THREADS];
        assert_int_equal(pthread_barrier_init(&self.all_here, NULL, THREADS), 0);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, count_in_own_slot, &self), 0);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        pthread_barrier_destroy(&self.all_here);
        uint64_t sum = 0;
        uint32_t position = 0;
        for (const slot *one; (one = strata_per_thread_next(&self.slots, &position));)
            sum += one->count;
        assert_true(sum == (uint64_t)round * THREADS * TURNS);
    }
    assert_int_equal(self.shared, 0);
    strata_per_thread_destroy(&self.slots);
}

static void threads_share_no_slot_and_nothing_is_lost_when_they_end(void **state)
{
    (void)state;
    count_in_rounds(false);
    count_in_rounds(true);
}

static void a_reused_number_leads_to_no_old_slot(void **state)
{
    (void)state;
    strata_per_thread first = {0}, second = {0};
    strata_per_thread_init(&first, sizeof(slot));
    strata_per_thread_take_number(&first);
    const uint32_t number = first.number;
    slot *mine = strata_per_thread_self(&first, strata_thread_self());
    mine->count = 7;
    assert_ptr_equal(strata_per_thread_self(&first, strata_thread_self()), mine);
    strata_per_thread_destroy(&first);
    strata_per_thread_init(&second, sizeof(slot));
    strata_per_thread_take_number(&second);
    assert_int_equal(second.number, number);
    assert_true(((slot *)strata_per_thread_self(&second, strata_thread_self()))->count == 0);
    strata_per_thread_destroy(&second);
}

static void when_all_numbers_are_taken_slot_do_without(void **state)
{
    (void)state;
    static strata_per_thread slots[STRATA_PER_THREAD_LIMIT + 1];
    for (size_t i = 0; i <= STRATA_PER_THREAD_LIMIT; i++) {
        strata_per_thread_init(&slots[i], sizeof(slot));
        strata_per_thread_take_number(&slots[i]);
        ((slot *)strata_per_thread_self(&slots[i], strata_thread_self()))->count = i;
    }
    assert_int_equal(slots[STRATA_PER_THREAD_LIMIT - 2].number, STRATA_PER_THREAD_LIMIT - 1);
    assert_int_equal(slots[STRATA_PER_THREAD_LIMIT - 1].number, 0);
    assert_int_equal(slots[STRATA_PER_THREAD_LIMIT].number, 0);
    for (size_t i = 0; i <= STRATA_PER_THREAD_LIMIT; i++)
        assert_int_equal(((slot *)strata_per_thread_self(&slots[i], strata_thread_self()))->count, i);
    for (size_t i = 0; i <= STRATA_PER_THREAD_LIMIT; i++)
        strata_per_thread_destroy(&slots[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_finds_its_own_zeroed_slot_again),
        cmocka_unit_test(a_thread_without_a_number_has_none),
        cmocka_unit_test(without_host_memory_there_is_none_and_later_there_is),
        cmocka_unit_test(the_highest_number_has_a_slot_too),
        cmocka_unit_test(threads_share_no_slot_and_nothing_is_lost_when_they_end),
        cmocka_unit_test(a_reused_number_leads_to_no_old_slot),
        cmocka_unit_test(when_all_numbers_are_taken_slot_do_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
