/* budget's peaks: never above what was in use at once, and below it by at most 64 KiB of each thread, both while the
 * account counts and while threads have quotas. */
#include "support/budget.h"
#include "support/budget_accounts.h"

#include "resources/budget/take.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "support/child.h"
#include "support/effort.h"
#include "support/sweep.h"

enum { THREADS = 8, PAIRS = 1100 /* after these, threads have quotas */ };

static const uint64_t LACK = 64 << 10; /* of a thread */

/* A peak of `bytes`, and quotas. */
static void reach(test_fixture *fixture, size_t bytes)
{
    strata_block block;
    for (size_t i = 0; i < PAIRS; i++) {
        check_ok(try_allocate(fixture, bytes, NULL, &block));
        free_block(fixture, &block);
    }
}

/* ---- threads one after another ---- */

typedef struct in_thread {
    strata_runtime *runtime;
    size_t bytes, pairs;
    bool failed;
} in_thread;

static void *allocate_and_free(void *data)
{
    in_thread *self = data;
    strata_block block;
    for (size_t i = 0; i < self->pairs && !self->failed; i++)
        self->failed = strata_runtime_allocate(self->runtime, self->bytes, NULL, &block) != STRATA_SUCCESS ||
                       strata_runtime_deallocate(self->runtime, &block) != STRATA_SUCCESS;
    return NULL;
}

static void run_in_thread(test_fixture *fixture, size_t bytes, size_t pairs)
{
    in_thread self = {.runtime = fixture->runtime, .bytes = bytes, .pairs = pairs};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_free, &self), 0);
    pthread_join(thread, NULL);
    assert_false(self.failed);
}

typedef struct waiting {
    in_thread self;
    pthread_barrier_t *done, *end;
} waiting;

/* Stays, so that the next thread has a slot of its own. */
static void *allocate_free_and_wait(void *data)
{
    waiting *self = data;
    allocate_and_free(&self->self);
    pthread_barrier_wait(self->done);
    pthread_barrier_wait(self->end);
    return NULL;
}

/* Neither the sum of what each had, nor of their quotas. */
static void the_peak_of_threads_one_after_another_is_the_largest_of_theirs(test_fixture *fixture)
{
    for (size_t pairs = 1; pairs <= 2 * PAIRS; pairs += PAIRS) {
        strata_budget_account *account = use_stack(fixture, "budget(limit=1GiB), null");
        pthread_t threads[THREADS];
        waiting all[THREADS];
        pthread_barrier_t done, end;
        uint64_t peaks[THREADS];
        pthread_barrier_init(&done, NULL, 2);
        pthread_barrier_init(&end, NULL, THREADS + 1);
        for (size_t i = 0; i < THREADS; i++) {
            all[i] = (waiting){{.runtime = fixture->runtime, .bytes = (i + 1) * MIB, .pairs = pairs}, &done, &end};
            assert_int_equal(pthread_create(&threads[i], NULL, allocate_free_and_wait, &all[i]), 0);
            pthread_barrier_wait(&done);
            peaks[i] = usage_of(account).peak;
        }
        pthread_barrier_wait(&end);
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_false(all[i].self.failed);
            assert_int_equal(peaks[i], (i + 1) * MIB);
        }
        pthread_barrier_destroy(&done);
        pthread_barrier_destroy(&end);
    }
}

/* ---- threads at once ---- */

typedef struct crowd {
    strata_runtime *runtime;
    strata_budget_account *passes; /* most bytes are charged without a block, as `strata exec` does; NULL: none */
    pthread_barrier_t begin;
    size_t bytes, rounds;
    bool varied;                  /* sizes up to `bytes` */
    _Atomic uint64_t now, most;   /* of blocks that a thread has: less than is in use */
    _Atomic uint64_t open, bound; /* of those and of calls under way: more than is in use */
    _Atomic bool failed;
} crowd;

static void raise_to(_Atomic uint64_t *highest, uint64_t now)
{
    uint64_t seen = atomic_load(highest);
    while (now > seen && !atomic_compare_exchange_weak(highest, &seen, now))
        ;
}

static void *work(void *data)
{
    crowd *self = data;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    pthread_barrier_wait(&self->begin);
    for (size_t i = 0; i < self->rounds && !self->failed; i++) {
        strata_block block;
        seed = seed * UINT64_C(6364136223846793005) + 1;
        const size_t bytes = self->varied ? 1 + (seed >> 33) % self->bytes : self->bytes;
        raise_to(&self->bound, atomic_fetch_add(&self->open, bytes) + bytes);
        const bool passes = self->passes && i % 16 != 0;
        if ((passes ? budget_take(self->passes, bytes) : strata_runtime_allocate(self->runtime, bytes, NULL, &block)) !=
            STRATA_SUCCESS) {
            self->failed = true;
            break;
        }
        raise_to(&self->most, atomic_fetch_add(&self->now, bytes) + bytes);
        if ((seed >> 60) == 0)
            sched_yield();
        atomic_fetch_sub(&self->now, bytes);
        if (passes)
            budget_give(self->passes, bytes);
        else
            self->failed |= strata_runtime_deallocate(self->runtime, &block) != STRATA_SUCCESS;
        atomic_fetch_sub(&self->open, bytes);
    }
    return NULL;
}

static void check_crowd_of(test_fixture *fixture, const char *text, size_t bytes, bool varied, bool passes)
{
    strata_budget_account *account = use_stack(fixture, text);
    crowd self = {.runtime = fixture->runtime, .passes = passes ? account : NULL, .bytes = bytes, .varied = varied};
    self.rounds = test_is_swept() ? 300 : test_effort(20000, 300);
    pthread_t threads[THREADS];
    pthread_barrier_init(&self.begin, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &self), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&self.begin);
    const strata_budget_usage usage = usage_of(account);
    assert_false(self.failed);
    assert_int_equal(usage.in_use, 0);
    assert_true(usage.peak <= self.bound && usage.peak <= THREADS * bytes);
    assert_true(usage.peak + THREADS * LACK >= self.most);
    assert_true(!usage.limit || usage.peak <= usage.limit);
}

static void check_crowd(test_fixture *fixture, const char *text, size_t bytes, bool varied)
{
    check_crowd_of(fixture, text, bytes, varied, false);
}

static void a_peak_of_several_threads_was_in_use_at_once(test_fixture *fixture)
{
    static const char *const texts[] = {"budget, null", "budget(limit=64GiB), null", "budget(limit=600MiB), null"};
    for (size_t i = 0; i < 3; i++) {
        check_crowd(fixture, texts[i], 4 * KIB, false);
        check_crowd(fixture, texts[i], 10 * MIB, false);
        check_crowd(fixture, texts[i], 64 * MIB, true);
        check_crowd(fixture, texts[i], 40 * KIB, true);
    }
}

typedef struct together {
    strata_runtime *runtime;
    pthread_barrier_t barrier;
    size_t rounds;
    _Atomic bool failed;
} together;

static void *hold_together(void *data)
{
    together *self = data;
    for (size_t i = 0; i < self->rounds; i++) {
        strata_block block = {0};
        self->failed |= strata_runtime_allocate(self->runtime, 10 * MIB, NULL, &block) != STRATA_SUCCESS;
        pthread_barrier_wait(&self->barrier);
        if (block.bytes)
            self->failed |= strata_runtime_deallocate(self->runtime, &block) != STRATA_SUCCESS;
        pthread_barrier_wait(&self->barrier);
    }
    return NULL;
}

static void the_peak_of_one_block_of_each_thread_is_their_sum(test_fixture *fixture)
{
    for (size_t rounds = 1; rounds <= 2 * PAIRS; rounds += PAIRS) {
        strata_budget_account *account = use_stack(fixture, "budget(limit=64GiB), null");
        together self = {.runtime = fixture->runtime, .rounds = test_effort(rounds, 20)};
        pthread_t threads[THREADS];
        pthread_barrier_init(&self.barrier, NULL, THREADS);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, hold_together, &self), 0);
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&self.barrier);
        assert_false(self.failed);
        assert_int_equal(usage_of(account).peak, THREADS * 10 * MIB);
    }
}

enum { PASSED_ON = 4000, BETWEEN = 8 };

typedef struct passing {
    strata_runtime *runtime;
    strata_block blocks[BETWEEN];
    _Atomic size_t made, freed;
    bool failed; /* a free failed; owned by the freeing thread until it is joined */
} passing;

static void *free_what_is_made(void *data)
{
    passing *self = data;
    for (size_t i = 0; i < PASSED_ON; i++) {
        while (self->made == i)
            sched_yield();
        self->failed |= strata_runtime_deallocate(self->runtime, &self->blocks[i % BETWEEN]) != STRATA_SUCCESS;
        self->freed = i + 1;
    }
    return NULL;
}

static void a_peak_does_not_grow_when_one_thread_frees_what_another_allocates(test_fixture *fixture)
{
    static const char *const stacks[] = {"budget, null", "budget(limit=512GiB), null"};
    for (size_t s = 0; s < 2; s++) {
        strata_budget_account *account = use_stack(fixture, stacks[s]);
        passing self = {.runtime = fixture->runtime};
        bool refused = false;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_what_is_made, &self), 0);
        for (size_t i = 0; i < PASSED_ON; i++) {
            while (i - self.freed == BETWEEN)
                sched_yield();
            refused |= try_allocate(fixture, MIB, NULL, &self.blocks[i % BETWEEN]) != STRATA_SUCCESS;
            self.made = i + 1;
        }
        pthread_join(thread, NULL);
        const uint64_t peak = usage_of(account).peak;
        assert_false(self.failed || refused);
        assert_in_range(peak, MIB, BETWEEN * MIB);
        assert_int_equal(usage_of(account).in_use, 0);
    }
}

/* Small blocks that others than their threads free, and a slow rise. */
static void a_peak_is_not_below_the_bytes_in_use(test_fixture *fixture)
{
    enum { BLOCKS = 6000 };
    strata_budget_account *account = use_stack(fixture, "budget(limit=64GiB), null");
    static strata_block blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 1000 == 0)
            run_in_thread(fixture, 3000, 2 * PAIRS);
        check_ok(try_allocate(fixture, 5000, NULL, &blocks[i]));
        const strata_budget_usage usage = usage_of(account);
        assert_int_equal(usage.in_use, (i + 1) * 5000);
        assert_in_range(usage.peak, usage.in_use, usage.in_use + 3000);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free_block(fixture, &blocks[i]);
}

/* ---- charges in flight ---- */

/* Below the budget: holds back the first request while it is armed, and then refuses it if it is to. */
typedef struct slow_layer {
    strata_resource resource;
    _Atomic bool armed, entered, go_on;
    bool refuses;
} slow_layer;

static strata_status slow_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    slow_layer *self = (slow_layer *)resource;
    if (!atomic_exchange(&self->armed, false))
        return resource->upstream->ops->allocate(resource->upstream, request, out);
    self->entered = true;
    while (!self->go_on)
        nap(1);
    if (!self->refuses)
        return resource->upstream->ops->allocate(resource->upstream, request, out);
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "refused on purpose");
}

static void slow_destroy(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops slow_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "slow",
    .allocate = slow_allocate,
    .destroy = slow_destroy,
};

typedef struct in_flight {
    strata_runtime *runtime;
    slow_layer *layer;
    size_t pairs;
    strata_block block;
    strata_status status, pairs_status;
} in_flight;

static void *allocate_in_flight(void *data)
{
    in_flight *self = data;
    strata_block block;
    for (size_t i = 0; i < self->pairs && self->pairs_status == STRATA_SUCCESS; i++) {
        self->pairs_status = strata_runtime_allocate(self->runtime, 8 * MIB, NULL, &block);
        if (self->pairs_status == STRATA_SUCCESS)
            self->pairs_status = strata_runtime_deallocate(self->runtime, &block);
    }
    self->layer->armed = true;
    self->status = strata_runtime_allocate(self->runtime, 8 * MIB, NULL, &self->block);
    return NULL;
}

/* A request of 8 MiB is in flight, from the thread's quota if it made `pairs`, while another thread takes 3 MiB more
 * than the peak so far. */
static void check_flight(test_fixture *fixture, const char *shared, size_t pairs, bool refuses)
{
    static slow_layer slow;
    slow = (slow_layer){.resource.ops = &slow_ops, .refuses = refuses};
    strata_resource *resources[] = {NULL, &slow.resource, NULL};
    strata_runtime_config config = {.device = 0};
    check_ok(strata_budget_create(0, &(strata_budget_options){.limit.bytes = GIB, .shared = shared}, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    strata_budget_account *account = strata_budget_base(resources[0]);
    in_flight flight = {.runtime = fixture->runtime, .layer = &slow, .pairs = pairs};
    const size_t before = pairs ? 8 * MIB : 0;
    pthread_t thread;
    strata_block block, small;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_flight, &flight), 0);
    while (!slow.entered)
        nap(1);
    check_ok(try_allocate(fixture, 3 * MIB, NULL, &block));
    assert_int_equal(usage_of(account).peak, before > 3 * MIB ? before : 3 * MIB);
    slow.go_on = true;
    pthread_join(thread, NULL);
    check_ok(flight.pairs_status);
    check_status(flight.status, refuses ? STRATA_ERROR_OUT_OF_MEMORY : STRATA_SUCCESS);
    const size_t now = 3 * MIB + (refuses ? 0 : 8 * MIB);
    assert_int_equal(usage_of(account).peak, before > now ? before : now);
    check_ok(try_allocate(fixture, 64 * MIB, NULL, &small));
    assert_int_equal(usage_of(account).peak, now + 64 * MIB);
    free_block(fixture, &small);
    free_block(fixture, &block);
    if (!refuses)
        free_block(fixture, &flight.block);
    assert_int_equal(usage_of(account).peak, now + 64 * MIB);
    assert_int_equal(usage_of(account).in_use, 0);
}

static void a_request_in_flight_counts_when_it_has_succeeded(test_fixture *fixture)
{
    check_flight(fixture, NULL, 0, false);
    check_flight(fixture, NULL, 2 * PAIRS, false);
    check_flight(fixture, "flights", 0, false);
}

static void a_request_in_flight_that_fails_never_counts(test_fixture *fixture)
{
    check_flight(fixture, NULL, 0, true);
    check_flight(fixture, NULL, 2 * PAIRS, true);
    check_flight(fixture, "flights", 0, true);
}

/* ---- limits, accounts ---- */

static void a_peak_stays_when_the_limit_changes(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=64MiB, wait=none), null");
    strata_block block;
    reach(fixture, 32 * MIB);
    run_in_thread(fixture, 8 * MIB, 2 * PAIRS);
    check_ok(strata_budget_set_limit(account, 16 * MIB));
    assert_int_equal(usage_of(account).peak, 32 * MIB);
    check_status(try_allocate(fixture, 17 * MIB, NULL, &block), STRATA_ERROR_OUT_OF_BUDGET);
    reach(fixture, 16 * MIB);
    check_ok(strata_budget_set_limit(account, 0));
    reach(fixture, 40 * MIB);
    assert_int_equal(usage_of(account).peak, 40 * MIB);
}

typedef struct in_account {
    in_thread self;
    strata_budget_account *account;
} in_account;

static void *allocate_in_account(void *data)
{
    in_account *self = data;
    self->self.failed = strata_budget_enter(self->account, NULL) != STRATA_SUCCESS;
    return self->self.failed ? NULL : allocate_and_free(&self->self);
}

/* Each of three accounts has a thread, and then a reservation. */
static void accounts_have_peaks_of_their_own(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=1GiB), null"), *accounts[3], *reservation;
    for (size_t i = 0; i < 3; i++) {
        check_ok(strata_budget_account_open(base, NULL, &accounts[i]));
        in_account self = {{.runtime = fixture->runtime, .bytes = (i + 1) * MIB, .pairs = 2 * PAIRS}, accounts[i]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, allocate_in_account, &self), 0);
        pthread_join(thread, NULL);
        assert_false(self.self.failed);
        assert_int_equal(usage_of(accounts[i]).peak, (i + 1) * MIB);
        assert_int_equal(usage_of(base).peak, (i + 1) * MIB);
    }
    check_ok(strata_budget_reserve(accounts[0], 8 * MIB, NULL, &reservation));
    assert_int_equal(usage_of(reservation).peak, 0);
    assert_int_equal(usage_of(accounts[0]).peak, 8 * MIB);
    assert_int_equal(usage_of(base).peak, 8 * MIB);
    in_account self = {{.runtime = fixture->runtime, .bytes = 2 * MIB, .pairs = 2 * PAIRS}, reservation};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_account, &self), 0);
    pthread_join(thread, NULL);
    assert_false(self.self.failed);
    assert_int_equal(usage_of(reservation).peak, 2 * MIB);
    check_ok(strata_budget_account_close(reservation));
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_budget_account_close(accounts[i]));
    assert_int_equal(usage_of(base).peak, 8 * MIB);
    assert_int_equal(usage_of(base).in_use, 0);
}

/* ---- shared budgets ---- */

static const char shared_text[] = "budget(limit=1GiB, shared=peaks), null";

/* The lease is larger than what the first request needed. */
static void a_shared_budget_has_the_peak_of_its_process(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, shared_text);
    strata_block blocks[4];
    for (size_t i = 1; i <= 4; i++) {
        for (size_t n = 0; n < i; n++)
            check_ok(try_allocate(fixture, 8 * MIB, NULL, &blocks[n]));
        for (size_t n = 0; n < i; n++)
            free_block(fixture, &blocks[n]);
    }
    assert_int_equal(usage_of(account).peak, 32 * MIB);
}

static void allocate_beside_the_other_process(void)
{
    strata_runtime *runtime;
    strata_block block;
    strata_budget_usage usage;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = shared_text}, &runtime));
    strata_budget_account *account = strata_budget_base(strata_stack_top(strata_runtime_stack(runtime)));
    child_ok(strata_runtime_allocate(runtime, 30 * MIB, NULL, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_budget_account_usage(account, &usage));
    child_check(usage.in_use == 40 * MIB && usage.peak == 70 * MIB);
    child_ok(strata_runtime_destroy(runtime));
}

static const test_scenario scenarios[] = {
    TEST_SCENARIO(allocate_beside_the_other_process),
};

static void the_peak_of_a_shared_budget_has_other_processes(test_fixture *fixture)
{
    char folder[64];
    strata_budget_account *account = use_stack(fixture, shared_text);
    strata_block block;
    check_ok(try_allocate(fixture, 40 * MIB, NULL, &block));
    snprintf(folder, sizeof folder, "STRATA_SHARED_DIR=%s", directory);
    assert_int_equal(test_child_status("allocate_beside_the_other_process", (const char *const[]){folder, NULL}), 0);
    free_block(fixture, &block);
    assert_int_equal(usage_of(account).peak, 40 * MIB);
}

static void the_peak_of_threads_that_share_a_budget_was_in_use_at_once(test_fixture *fixture)
{
    check_crowd(fixture, shared_text, 10 * MIB, false);
    check_crowd(fixture, shared_text, 64 * MIB, true);
}

/* ---- bytes that are charged without a block ---- */

static void take_and_give(strata_budget_account *account, size_t bytes, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        check_ok(budget_take(account, bytes));
        budget_give(account, bytes);
    }
}

static void a_thread_with_a_quota_in_a_shared_budget_misses_no_peak(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, shared_text);
    strata_block block;
    take_and_give(account, 10 * MIB, PAIRS);
    if (!strata_barriers_share()) {
        print_message("skipped: the kernel has no barrier for all processes\n");
        skip();
    }
    assert_true(has_open_quotas(account));
    check_ok(budget_take(account, 10 * MIB));
    assert_int_equal(usage_of(account).peak, 10 * MIB);
    assert_int_equal(usage_of(account).in_use, 10 * MIB);
    assert_true(has_open_quotas(account));
    check_ok(try_allocate(fixture, MIB, NULL, &block)); /* no quota is in its way, and it sees the quota's bytes */
    assert_int_equal(usage_of(account).peak, 11 * MIB);
    budget_give(account, 10 * MIB);
    assert_int_equal(usage_of(account).in_use, MIB);
    take_and_give(account, 5 * MIB, PAIRS);
    assert_true(has_open_quotas(account));
    check_ok(budget_take(account, 12 * MIB)); /* more than the quota */
    assert_int_equal(usage_of(account).peak, 13 * MIB);
    budget_give(account, 12 * MIB);
    free_block(fixture, &block);
    assert_int_equal(usage_of(account).in_use, 0);
    assert_int_equal(usage_of(account).peak, 13 * MIB);
    check_ok(budget_take(account, 1024 * MIB)); /* all of the limit */
    budget_give(account, 1024 * MIB);
}

static void the_peak_of_threads_with_quotas_in_a_shared_budget_was_in_use_at_once(test_fixture *fixture)
{
    check_crowd_of(fixture, shared_text, 10 * MIB, false, true);
    check_crowd_of(fixture, shared_text, 64 * MIB, true, true);
    check_crowd_of(fixture, shared_text, 40 * KIB, true, true);
}

int main(int count, char **arguments)
{
    static const test_case cases[] = {
        TEST_CASE(the_peak_of_threads_one_after_another_is_the_largest_of_theirs),
        TEST_CASE(a_peak_of_several_threads_was_in_use_at_once),
        TEST_CASE(the_peak_of_one_block_of_each_thread_is_their_sum),
        TEST_CASE(a_peak_does_not_grow_when_one_thread_frees_what_another_allocates),
        TEST_CASE(a_peak_is_not_below_the_bytes_in_use),
        TEST_CASE(a_request_in_flight_counts_when_it_has_succeeded),
        TEST_CASE(a_request_in_flight_that_fails_never_counts),
        TEST_CASE(a_peak_stays_when_the_limit_changes),
        TEST_CASE(accounts_have_peaks_of_their_own),
        TEST_CASE(a_shared_budget_has_the_peak_of_its_process),
        TEST_CASE(the_peak_of_a_shared_budget_has_other_processes),
        TEST_CASE(the_peak_of_threads_that_share_a_budget_was_in_use_at_once),
        TEST_CASE(a_thread_with_a_quota_in_a_shared_budget_misses_no_peak),
        TEST_CASE(the_peak_of_threads_with_quotas_in_a_shared_budget_was_in_use_at_once),
    };
    static const char *const stacks[] = {"async"};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
