/* References that threads share: the count, whose parts are merged, and access while the generation moves. */
#include "support/driver.h"
#include "support/effort.h"

#include "runtime/reference_count.h"

#include <pthread.h>
#include <stdlib.h>
#include <strata/dlpack_types.h>

enum { THREADS = 16, LENGTH = 256 };

static strata_runtime *runtime;

static int set_up(void **state)
{
    (void)state;
    return strata_runtime_create(NULL, &runtime) == STRATA_SUCCESS ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return strata_runtime_destroy(runtime) == STRATA_SUCCESS ? 0 : -1;
}

static strata_ref *make(void)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref));
    return ref;
}

static size_t live_blocks(void)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(runtime, &usage));
    return usage.live_blocks;
}

static void run_threads(void *(*run)(void *), void *const *data, size_t count)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, data[i]), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* ---- the count alone ---- */

static void *release_count(void *count)
{
    return strata_reference_count_release(count) ? count : NULL;
}

/* On another thread, which ends. */
static bool release_elsewhere(strata_reference_count *count)
{
    pthread_t thread;
    void *last;
    assert_int_equal(pthread_create(&thread, NULL, release_count, count), 0);
    assert_int_equal(pthread_join(thread, &last), 0);
    return last != NULL;
}

static void the_makers_clones_and_releases_change_its_own_part_alone(void **state)
{
    (void)state;
    strata_reference_count count;
    strata_reference_count_init(&count);
    for (int i = 0; i < 3; i++)
        strata_reference_count_clone(&count);
    assert_int_equal(atomic_load(&count.biased), 3);
    assert_int_equal(atomic_load(&count.shared), STRATA_REFERENCE_BIAS + 1);
    for (int i = 0; i < 3; i++)
        assert_false(strata_reference_count_release(&count));
    assert_int_equal(atomic_load(&count.biased), 0);
    assert_false(atomic_load(&count.merged));
    assert_true(strata_reference_count_release(&count));
}

static void a_reference_that_was_handed_over_unshared_is_released_without_a_merge(void **state)
{
    (void)state;
    strata_reference_count count;
    strata_reference_count_init(&count);
    assert_true(release_elsewhere(&count));
    assert_false(atomic_load(&count.merged));
}

static void another_threads_release_of_a_cloned_reference_merges_once(void **state)
{
    (void)state;
    strata_reference_count count;
    strata_reference_count_init(&count);
    strata_reference_count_clone(&count);
    strata_reference_count_clone(&count);
    assert_false(release_elsewhere(&count));
    assert_true(atomic_load(&count.merged));
    assert_int_equal(atomic_load(&count.shared), 2);
    strata_reference_count_clone(&count);
    assert_int_equal(atomic_load(&count.shared), 3);
    assert_false(release_elsewhere(&count));
    assert_false(strata_reference_count_release(&count));
    assert_true(release_elsewhere(&count));
}

/* The owner is between the two ends of its clone when another thread begins to merge. */
static void a_merge_waits_for_the_owners_change_in_progress(void **state)
{
    (void)state;
    strata_reference_count count;
    pthread_t thread;
    strata_reference_count_init(&count);
    strata_reference_count_clone(&count);
    atomic_store(&count.busy, 1);
    assert_int_equal(pthread_create(&thread, NULL, release_count, &count), 0);
    while (!atomic_load(&count.excluded))
        sched_yield();
    for (int i = 0; i < 1000; i++) /* time for a merge that does not wait */
        sched_yield();
    assert_false(atomic_load(&count.merged));
    atomic_store(&count.biased, 2);
    atomic_store(&count.busy, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&count.shared), 2);
}

static void the_last_release_is_found_in_every_order_of_two_threads(void **state)
{
    (void)state;
    enum { MOST = 4 };
    for (int clones = 0; clones <= MOST; clones++)
        for (unsigned order = 0; order < 1u << (clones + 1); order++) {
            strata_reference_count count;
            strata_reference_count_init(&count);
            for (int i = 0; i < clones; i++)
                strata_reference_count_clone(&count);
            for (int i = 0; i <= clones; i++) {
                const bool last = order >> i & 1 ? release_elsewhere(&count) : strata_reference_count_release(&count);
                assert_int_equal(last, i == clones);
            }
        }
}

typedef struct race {
    strata_reference_count count;
    pthread_barrier_t start;
    size_t rounds;
    _Atomic unsigned ended;
} race;

static void *race_in_count(void *data)
{
    race *self = data;
    pthread_barrier_wait(&self->start);
    for (size_t i = 0; i < self->rounds; i++) {
        strata_reference_count_clone(&self->count);
        if (strata_reference_count_release(&self->count))
            atomic_fetch_add(&self->ended, 1);
    }
    if (strata_reference_count_release(&self->count))
        atomic_fetch_add(&self->ended, 1);
    return NULL;
}

/* The maker is one of the threads: some of their first releases find its clone, some do not. */
static void of_threads_that_race_exactly_one_releases_last(void **state)
{
    (void)state;
    const size_t repetitions = test_effort(200, 5);
    for (size_t i = 0; i < repetitions; i++) {
        race self = {.rounds = 20};
        pthread_t threads[4];
        pthread_barrier_init(&self.start, NULL, 5);
        strata_reference_count_init(&self.count);
        for (size_t j = 0; j < 4; j++) {
            atomic_fetch_add(&self.count.shared, 1); /* as clones of another thread */
            assert_int_equal(pthread_create(&threads[j], NULL, race_in_count, &self), 0);
        }
        race_in_count(&self);
        for (size_t j = 0; j < 4; j++)
            pthread_join(threads[j], NULL);
        assert_int_equal(atomic_load(&self.ended), 1);
        pthread_barrier_destroy(&self.start);
    }
}

/* ---- references ---- */

static void *release(void *ref)
{
    strata_ref_release(ref);
    return NULL;
}

static void a_reference_may_be_released_last_on_any_thread(void **state)
{
    (void)state;
    for (int clones = 0; clones < 3; clones++) {
        strata_ref *ref = make();
        void *all[THREADS];
        for (int i = 0; i < clones; i++)
            all[i] = strata_ref_clone(ref);
        all[clones] = ref;
        run_threads(release, all, (size_t)clones + 1);
        assert_int_equal(live_blocks(), 0);
    }
}

static void *make_and_leave(void *unused)
{
    (void)unused;
    strata_ref *ref;
    if (strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref) != STRATA_SUCCESS)
        return NULL;
    return strata_ref_clone(ref);
}

static void a_reference_outlives_the_thread_that_made_and_cloned_it(void **state)
{
    (void)state;
    pthread_t thread;
    void *ref;
    assert_int_equal(pthread_create(&thread, NULL, make_and_leave, NULL), 0);
    assert_int_equal(pthread_join(thread, &ref), 0);
    assert_non_null(ref);
    check_ok(strata_ref_release(ref));
    assert_int_equal(live_blocks(), 1);
    check_ok(strata_ref_release(ref));
    assert_int_equal(live_blocks(), 0);
}

/* Sixteen threads clone, access and release one reference; the generation moves once in the middle, and often. */
typedef struct shared {
    strata_ref *ref;
    size_t rounds;
    _Atomic bool bumped;     /* a bump has returned */
    _Atomic size_t accesses; /* that succeeded */
    _Atomic size_t too_late; /* of these, begun after a bump had returned */
    _Atomic size_t wrong;    /* of the others, those not refused as STALE */
} shared;

static void *use_often(void *data)
{
    shared *self = data;
    for (size_t i = 0; i < self->rounds; i++) {
        strata_ref_memory memory;
        strata_ref *mine = strata_ref_clone(self->ref);
        const bool late = atomic_load(&self->bumped);
        const strata_status status = strata_ref_access(mine, &memory);
        if (status == STRATA_SUCCESS) {
            atomic_fetch_add(&self->accesses, 1);
            atomic_fetch_add(&self->too_late, late);
        } else {
            atomic_fetch_add(&self->wrong, status != STRATA_ERROR_STALE || memory.address != 0);
        }
        strata_ref_release(mine);
    }
    strata_ref_release(self->ref);
    return NULL;
}

static void no_stale_access_succeeds_while_sixteen_threads_share_a_reference_and_nothing_leaks(void **state)
{
    (void)state;
    const size_t repetitions = test_effort(20, 2);
    for (size_t i = 0; i < repetitions; i++) {
        shared self = {.ref = make(), .rounds = test_effort(300, 20)};
        pthread_t threads[THREADS];
        for (size_t j = 0; j < THREADS; j++) {
            strata_ref_clone(self.ref);
            assert_int_equal(pthread_create(&threads[j], NULL, use_often, &self), 0);
        }
        for (int j = 0; j < 5; j++) {
            check_ok(strata_device_state_bump_generation(strata_runtime_device_state(runtime), NULL));
            atomic_store(&self.bumped, true);
        }
        check_ok(strata_ref_release(self.ref));
        for (size_t j = 0; j < THREADS; j++)
            pthread_join(threads[j], NULL);
        assert_int_equal(atomic_load(&self.too_late), 0);
        assert_int_equal(atomic_load(&self.wrong), 0);
        assert_int_equal(live_blocks(), 0);
    }
}

/* Every thread makes views and releases them; the whole goes with the last. */
static void *view_often(void *whole)
{
    for (size_t i = 0; i < 100; i++) {
        strata_ref *view;
        if (strata_ref_view(whole, 4 * i, 1, STRATA_ELEMENT_F32, &view) == STRATA_SUCCESS)
            strata_ref_release(view);
    }
    strata_ref_release(whole);
    return NULL;
}

static void threads_make_views_of_one_reference(void **state)
{
    (void)state;
    void *all[THREADS];
    strata_ref *whole = make();
    for (size_t i = 0; i < THREADS; i++)
        all[i] = strata_ref_clone(whole);
    check_ok(strata_ref_release(whole));
    run_threads(view_often, all, THREADS);
    assert_int_equal(live_blocks(), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* ---- tensors ---- */

enum { TENSORS = 50 };

/* Exports, takes the tensor back, and lets all of it go. */
static void *pass_tensors_around(void *reference)
{
    strata_ref *ref = reference;
    for (size_t i = 0; i < test_effort(TENSORS, 5); i++) {
        DLManagedTensorVersioned *tensor = NULL;
        strata_ref *back = NULL;
        if (strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, &tensor) != STRATA_SUCCESS)
            return NULL;
        if (strata_ref_import_dlpack(runtime, tensor, &back) != STRATA_SUCCESS || strata_ref_len(back) != LENGTH)
            return NULL;
        strata_ref *own = make(); /* waited for at its end, beside the other threads' */
        if (strata_ref_export_dlpack(own, STRATA_DLPACK_STREAM_NONE, NULL, &tensor) != STRATA_SUCCESS)
            return NULL;
        strata_ref_release(own);
        tensor->deleter(tensor);
        strata_ref_release(back);
    }
    strata_ref_release(ref);
    return reference;
}

static void threads_export_and_import_one_reference_at_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    strata_ref *ref = make();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pass_tensors_around, strata_ref_clone(ref)), 0);
    check_ok(strata_ref_release(ref));
    for (size_t i = 0; i < THREADS; i++) {
        void *done;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_non_null(done);
    }
    assert_int_equal(live_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_export_and_import_one_reference_at_once),
        TEST(the_makers_clones_and_releases_change_its_own_part_alone),
        TEST(a_reference_that_was_handed_over_unshared_is_released_without_a_merge),
        TEST(another_threads_release_of_a_cloned_reference_merges_once),
        TEST(a_merge_waits_for_the_owners_change_in_progress),
        TEST(the_last_release_is_found_in_every_order_of_two_threads),
        TEST(of_threads_that_race_exactly_one_releases_last),
        TEST(a_reference_may_be_released_last_on_any_thread),
        TEST(a_reference_outlives_the_thread_that_made_and_cloned_it),
        TEST(no_stale_access_succeeds_while_sixteen_threads_share_a_reference_and_nothing_leaks),
        TEST(threads_make_views_of_one_reference),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
