/* The state of a device: generation, shutdown, context, and watches of the generation. */
#include "support/driver.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

typedef struct scene {
    strata_runtime *runtime;
    strata_device_state *state;
} scene;

static int set_up(void **state)
{
    static scene of_test;
    if (strata_runtime_create(NULL, &of_test.runtime) != STRATA_SUCCESS)
        return -1;
    of_test.state = strata_runtime_device_state(of_test.runtime);
    *state = &of_test;
    return 0;
}

static int tear_down(void **state)
{
    scene *of = *state;
    return of->runtime && strata_runtime_destroy(of->runtime) != STRATA_SUCCESS ? -1 : 0;
}

static bool is_readable(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    assert_in_range(poll(&look, 1, 0), 0, 1);
    return look.revents & POLLIN;
}

static uint64_t take(strata_generation_watch *watch)
{
    uint64_t changes = 77;
    check_ok(strata_generation_watch_take(watch, &changes));
    return changes;
}

static void bump(const scene *of)
{
    check_ok(strata_device_state_bump_generation(of->state, NULL));
}

/* ---- facts ---- */

static void each_runtime_makes_one_state_of_its_device(void **state)
{
    const scene *of = *state;
    strata_runtime *other;
    assert_non_null(of->state);
    assert_ptr_equal(of->state, strata_runtime_device_state(of->runtime));
    assert_int_equal(strata_device_state_device_id(of->state), 0);
    check_ok(strata_runtime_create(NULL, &other));
    assert_ptr_not_equal(strata_runtime_device_state(other), of->state);
    check_ok(strata_runtime_destroy(other));
}

static void the_generation_is_0_at_first_and_one_more_after_each_bump(void **state)
{
    const scene *of = *state;
    assert_int_equal(strata_device_state_generation(of->state), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        uint64_t now = 0;
        check_ok(strata_device_state_bump_generation(of->state, &now));
        assert_int_equal(now, i);
        assert_int_equal(strata_device_state_generation(of->state), i);
    }
}

static void a_state_accepts_operations_until_shutdown_begins(void **state)
{
    const scene *of = *state;
    assert_true(strata_device_state_accepting_ops(of->state));
    check_ok(strata_device_state_begin_shutdown(of->state));
    assert_false(strata_device_state_accepting_ops(of->state));
    check_ok(strata_device_state_begin_shutdown(of->state));
    bump(of);
    assert_false(strata_device_state_accepting_ops(of->state));
    assert_int_equal(strata_device_state_generation(of->state), 1);
}

static void the_context_is_the_primary_one_until_another_is_installed_or_none(void **state)
{
    const scene *of = *state;
    CUcontext primary, other = (CUcontext)(uintptr_t)0x1000;
    check_cu(strata_cu.CtxGetCurrent(&primary));
    assert_ptr_equal(strata_device_state_current_context(of->state), primary);
    check_ok(strata_device_state_install_context(of->state, other));
    assert_ptr_equal(strata_device_state_current_context(of->state), other);
    check_ok(strata_device_state_clear_context(of->state));
    assert_null(strata_device_state_current_context(of->state));
    check_ok(strata_device_state_install_context(of->state, primary));
    assert_ptr_equal(strata_device_state_current_context(of->state), primary);
    assert_int_equal(strata_device_state_generation(of->state), 0);
}

static void arguments_that_are_missing_are_refused(void **state)
{
    const scene *of = *state;
    strata_generation_watch *watch;
    check_status(strata_device_state_install_context(of->state, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_non_null(strata_device_state_current_context(of->state));
    check_status(strata_device_state_clear_context(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_device_state_begin_shutdown(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_device_state_bump_generation(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_generation_watch_create(NULL, NULL, NULL, &watch), STRATA_ERROR_INVALID_VALUE);
    assert_null(strata_runtime_device_state(NULL));
    assert_false(strata_device_state_accepting_ops(NULL));
    assert_int_equal(strata_device_state_device_id(NULL), STRATA_DEVICE_NONE);
    check_ok(strata_generation_watch_destroy(NULL));
}

/* ---- watches ---- */

typedef struct heard {
    uint64_t generations[8];
    size_t count;
} heard;

static void hear(uint64_t generation, void *data)
{
    heard *all = data;
    all->generations[all->count++] = generation;
}

static void a_callback_is_told_of_every_change_in_order(void **state)
{
    const scene *of = *state;
    heard all = {0};
    strata_generation_watch *watch;
    bump(of);
    check_ok(strata_generation_watch_create(of->state, hear, &all, &watch));
    for (int i = 0; i < 3; i++)
        bump(of);
    check_ok(strata_generation_watch_destroy(watch));
    bump(of);
    assert_int_equal(all.count, 3); /* neither before the watch nor after it */
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(all.generations[i], i + 2);
}

static void a_descriptor_is_readable_from_a_change_until_it_is_taken(void **state)
{
    const scene *of = *state;
    strata_generation_watch *watch;
    check_ok(strata_generation_watch_create(of->state, NULL, NULL, &watch));
    const int fd = strata_generation_watch_fd(watch);
    assert_false(is_readable(fd));
    assert_int_equal(take(watch), 0);
    bump(of);
    assert_true(is_readable(fd));
    assert_int_equal(take(watch), 1);
    assert_false(is_readable(fd));
    check_ok(strata_generation_watch_destroy(watch));
}

static void changes_between_two_looks_are_counted(void **state)
{
    const scene *of = *state;
    strata_generation_watch *watches[2];
    for (int i = 0; i < 2; i++)
        check_ok(strata_generation_watch_create(of->state, NULL, NULL, &watches[i]));
    bump(of);
    assert_int_equal(take(watches[0]), 1);
    bump(of);
    bump(of);
    assert_int_equal(take(watches[0]), 2);
    assert_int_equal(take(watches[1]), 3); /* each watch has a count of its own */
    for (int i = 0; i < 2; i++)
        check_ok(strata_generation_watch_destroy(watches[i]));
}

typedef struct waiter {
    strata_generation_watch *watch;
    uint64_t seen;
} waiter;

static void *wait_for_change(void *data)
{
    waiter *self = data;
    struct pollfd look = {.fd = strata_generation_watch_fd(self->watch), .events = POLLIN};
    if (poll(&look, 1, -1) == 1)
        strata_generation_watch_take(self->watch, &self->seen);
    return NULL;
}

static void a_thread_that_polls_the_descriptor_is_woken_by_a_bump(void **state)
{
    const scene *of = *state;
    waiter self = {0};
    pthread_t thread;
    check_ok(strata_generation_watch_create(of->state, NULL, NULL, &self.watch));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_change, &self), 0);
    bump(of);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(self.seen, 1);
    check_ok(strata_generation_watch_destroy(self.watch));
}

enum { BUMPERS = 4, BUMPS = 50 };

typedef struct order {
    uint64_t last;
    size_t count, wrong;
} order;

static void check_order(uint64_t generation, void *data)
{
    order *all = data;
    all->wrong += generation != all->last + 1;
    all->last = generation;
    all->count++;
}

static void *bump_often(void *state)
{
    for (int i = 0; i < BUMPS; i++)
        strata_device_state_bump_generation(state, NULL);
    return NULL;
}

static void bumps_of_several_threads_are_told_one_after_another(void **state)
{
    const scene *of = *state;
    order all = {0};
    pthread_t threads[BUMPERS];
    strata_generation_watch *watch;
    check_ok(strata_generation_watch_create(of->state, check_order, &all, &watch));
    for (size_t i = 0; i < BUMPERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, bump_often, of->state), 0);
    for (size_t i = 0; i < BUMPERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(all.count, BUMPERS * BUMPS);
    assert_int_equal(all.wrong, 0);
    assert_int_equal(take(watch), BUMPERS * BUMPS);
    check_ok(strata_generation_watch_destroy(watch));
}

typedef struct slow {
    sem_t inside, go;
    _Atomic bool done;
} slow;

static void hear_and_wait(uint64_t generation, void *data)
{
    slow *self = data;
    (void)generation;
    sem_post(&self->inside);
    sem_wait(&self->go);
    atomic_store(&self->done, true);
}

static void *bump_once(void *state)
{
    strata_device_state_bump_generation(state, NULL);
    return NULL;
}

static void *let_go(void *data)
{
    sem_post(&((slow *)data)->go);
    return NULL;
}

static void the_end_of_a_watch_waits_for_its_callback(void **state)
{
    const scene *of = *state;
    slow self = {.done = false};
    pthread_t bumping, releasing;
    strata_generation_watch *watch;
    sem_init(&self.inside, 0, 0);
    sem_init(&self.go, 0, 0);
    check_ok(strata_generation_watch_create(of->state, hear_and_wait, &self, &watch));
    assert_int_equal(pthread_create(&bumping, NULL, bump_once, of->state), 0);
    sem_wait(&self.inside);
    assert_int_equal(pthread_create(&releasing, NULL, let_go, &self), 0);
    check_ok(strata_generation_watch_destroy(watch));
    assert_true(atomic_load(&self.done));
    pthread_join(bumping, NULL);
    pthread_join(releasing, NULL);
    sem_destroy(&self.inside);
    sem_destroy(&self.go);
}

static void a_watch_outlives_its_state(void **state)
{
    scene *of = *state;
    heard all = {0};
    strata_generation_watch *first, *second;
    check_ok(strata_generation_watch_create(of->state, hear, &all, &first));
    check_ok(strata_generation_watch_create(of->state, NULL, NULL, &second));
    bump(of);
    check_ok(strata_runtime_destroy(of->runtime));
    of->runtime = NULL;
    assert_int_equal(take(first), 1);
    assert_int_equal(take(second), 1);
    check_ok(strata_generation_watch_destroy(first));
    check_ok(strata_generation_watch_destroy(second));
    assert_int_equal(all.count, 1);
}

/* A callback may call Strata: here it allocates, and tries an access. */
typedef struct caller {
    strata_runtime *runtime;
    strata_ref *ref;
    strata_status access, allocated;
} caller;

static void call_strata(uint64_t generation, void *data)
{
    caller *self = data;
    strata_ref_memory memory;
    strata_ref *fresh = NULL;
    (void)generation;
    self->access = strata_ref_access(self->ref, &memory);
    self->allocated = strata_ref_allocate(self->runtime, STRATA_ELEMENT_F32, 16, false, NULL, &fresh);
    strata_ref_release(fresh);
}

static void when_a_callback_runs_old_references_are_stale_and_new_ones_can_be_made(void **state)
{
    const scene *of = *state;
    caller self = {.runtime = of->runtime};
    strata_generation_watch *watch;
    check_ok(strata_ref_allocate(of->runtime, STRATA_ELEMENT_F32, 16, false, NULL, &self.ref));
    check_ok(strata_generation_watch_create(of->state, call_strata, &self, &watch));
    bump(of);
    check_status(self.access, STRATA_ERROR_STALE);
    check_ok(self.allocated);
    check_ok(strata_generation_watch_destroy(watch));
    check_ok(strata_ref_release(self.ref));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_runtime_makes_one_state_of_its_device),
        TEST(the_generation_is_0_at_first_and_one_more_after_each_bump),
        TEST(a_state_accepts_operations_until_shutdown_begins),
        TEST(the_context_is_the_primary_one_until_another_is_installed_or_none),
        TEST(arguments_that_are_missing_are_refused),
        TEST(a_callback_is_told_of_every_change_in_order),
        TEST(a_descriptor_is_readable_from_a_change_until_it_is_taken),
        TEST(changes_between_two_looks_are_counted),
        TEST(a_thread_that_polls_the_descriptor_is_woken_by_a_bump),
        TEST(bumps_of_several_threads_are_told_one_after_another),
        TEST(the_end_of_a_watch_waits_for_its_callback),
        TEST(a_watch_outlives_its_state),
        TEST(when_a_callback_runs_old_references_are_stale_and_new_ones_can_be_made),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
