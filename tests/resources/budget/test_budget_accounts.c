/* The accounts of a budget: charges, reservations, refusals and reports. */
#include "resources/budget/take.h"
#include "support/budget.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"
#include "support/report.h"

enum { WITHIN_S = 10 };

static void a_request_is_charged_to_all_accounts_above_it_or_to_none(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB), null"), *tenant, *request, *other, *before;
    check_ok(strata_budget_account_open(
        base, &(strata_budget_account_options){.name = "tenant", .limit.bytes = 6 * MIB}, &tenant));
    check_ok(strata_budget_account_open(
        tenant, &(strata_budget_account_options){.name = "request", .limit.bytes = 8 * MIB}, &request));
    check_ok(strata_budget_account_open(base, NULL, &other));
    strata_block first, second, refused;
    check_ok(strata_budget_enter(request, &before));
    assert_ptr_equal(before, base);
    check_ok(try_allocate(fixture, 5 * MIB, NULL, &first));
    assert_int_equal(usage_of(request).in_use, 5 * MIB);
    assert_int_equal(usage_of(tenant).in_use, 5 * MIB);
    assert_int_equal(usage_of(base).in_use, 5 * MIB);
    check_status(try_allocate(fixture, 2 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"tenant\"");
    assert_int_equal(usage_of(request).in_use, 5 * MIB);
    strata_budget_snapshot snapshot;
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    check_ok(top->ops->budget(top, &snapshot));
    assert_int_equal(snapshot.limit, 6 * MIB);
    assert_int_equal(snapshot.remaining, MIB);
    check_ok(strata_budget_enter(other, &before));
    assert_ptr_equal(before, request);
    check_ok(try_allocate(fixture, 5 * MIB, NULL, &second));
    check_status(try_allocate(fixture, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"budget\"");
    check_status(strata_budget_account_close(tenant), STRATA_ERROR_BUSY);
    check_status(strata_budget_account_close(base), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(request)); /* its block stays live and charged */
    check_ok(strata_budget_account_close(tenant));
    assert_int_equal(usage_of(base).in_use, 10 * MIB);
    free_block(fixture, &first);
    free_block(fixture, &second);
    assert_int_equal(usage_of(base).in_use, 0);
    assert_int_equal(usage_of(other).in_use, 0);
    check_ok(strata_budget_account_close(other));
    check_ok(strata_budget_account_close(NULL));
}

static strata_status allocate_for(test_fixture *fixture, strata_budget_account *account, size_t bytes,
                                  strata_block *out)
{
    const strata_request request = {.bytes = bytes, .account = account};
    return strata_runtime_allocate_request(fixture->runtime, &request, out);
}

/* A server's thread works for both tenants in turns. */
static void requests_of_one_thread_are_charged_to_the_accounts_that_they_name(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=64MiB), null"), *tenants[2], *own, *reservation,
                          *before;
    strata_block blocks[2], mine, set_aside, refused;
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_budget_account_open(
            base, &(strata_budget_account_options){.name = i ? "two" : "one", .limit.bytes = 4 * MIB}, &tenants[i]));
    check_ok(strata_budget_account_open(base, NULL, &own));
    check_ok(strata_budget_reserve(tenants[0], MIB, "reservation", &reservation));
    check_ok(strata_budget_enter(own, NULL));
    for (size_t i = 0; i < 2; i++)
        check_ok(allocate_for(fixture, tenants[i], 3 * MIB, &blocks[i]));
    check_status(allocate_for(fixture, tenants[0], 2 * MIB, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"one\"");
    check_ok(allocate_for(fixture, reservation, MIB, &set_aside));
    check_ok(allocate_for(fixture, NULL, 5 * MIB, &mine));
    assert_int_equal(usage_of(tenants[0]).in_use, 4 * MIB);
    assert_int_equal(usage_of(tenants[1]).in_use, 3 * MIB);
    assert_int_equal(usage_of(own).in_use, 5 * MIB);
    assert_int_equal(usage_of(base).in_use, 12 * MIB);
    free_block(fixture, &blocks[0]); /* whatever its thread has entered */
    assert_int_equal(usage_of(tenants[0]).in_use, MIB);
    assert_int_equal(usage_of(own).in_use, 5 * MIB);
    check_ok(strata_budget_enter(base, &before));
    assert_ptr_equal(before, own);
    free_block(fixture, &blocks[1]);
    free_block(fixture, &set_aside);
    free_block(fixture, &mine);
    check_ok(strata_budget_account_close(reservation));
    assert_int_equal(usage_of(base).in_use, 0);
    check_ok(allocate_for(fixture, base, MIB, &mine));
    free_block(fixture, &mine);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_budget_account_close(tenants[i]));
    check_ok(strata_budget_account_close(own));
}

static void a_request_names_the_account_of_one_budget_of_its_stack(test_fixture *fixture)
{
    strata_stack *other;
    strata_block block;
    strata_budget_account *upper = use_stack(fixture, "budget(limit=8MiB), budget(limit=64MiB), null"), *lower, *named;
    lower = strata_budget_base(strata_stack_layer(strata_runtime_stack(fixture->runtime), "budget", 1));
    check_ok(strata_budget_account_open(lower, NULL, &named));
    check_ok(allocate_for(fixture, named, MIB, &block));
    assert_int_equal(usage_of(named).in_use, MIB);
    assert_int_equal(usage_of(upper).in_use, MIB);
    free_block(fixture, &block);
    check_ok(strata_budget_account_close(named));
    check_ok(strata_stack_create("budget(limit=8MiB, name=foreign), null", 0, &other));
    check_status(allocate_for(fixture, strata_budget_base(strata_stack_top(other)), MIB, &block),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "\"foreign\" of another stack");
    assert_int_equal(usage_of(upper).in_use, 0);
    check_ok(strata_stack_destroy(other));
}

static strata_status charge_nothing(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    (void)resource, (void)request;
    *bytes = 0;
    return STRATA_SUCCESS;
}

static void stay(strata_resource *resource)
{
    (void)resource;
}

/* The layer below says that blocks cost nothing. Each block is charged a byte, so that its account stays until the
 * block is free. */
static void a_block_of_no_cost_keeps_its_account(test_fixture *fixture)
{
    static const strata_resource_ops ops = {
        .size = sizeof ops, .name = "gratis", .charge = charge_nothing, .destroy = stay};
    strata_resource gratis = {.ops = &ops}, *layers[3] = {NULL, &gratis, NULL};
    strata_budget_account *base, *account, *reservation, *next;
    strata_stack *stack;
    strata_runtime *runtime;
    strata_block block, reserved;
    size_t charge = 77;
    (void)fixture;
    check_ok(strata_budget_create(0, &(strata_budget_options){.limit = {.bytes = 3}}, &layers[0]));
    check_ok(strata_null_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    base = strata_budget_base(strata_stack_top(stack));
    check_ok(strata_budget_charge(base, KIB, &charge));
    assert_int_equal(charge, 1);
    check_ok(strata_budget_charge(base, 0, &charge));
    assert_int_equal(charge, 0);
    check_ok(strata_budget_account_open(base, NULL, &account));
    check_ok(strata_budget_reserve(base, 1, NULL, &reservation));
    check_ok(strata_budget_enter(account, NULL));
    check_ok(strata_runtime_allocate(runtime, KIB, NULL, &block));
    assert_int_equal(usage_of(account).in_use, 1);
    check_ok(strata_budget_enter(reservation, NULL));
    check_ok(strata_runtime_allocate(runtime, KIB, NULL, &reserved));
    check_status(strata_runtime_allocate(runtime, KIB, NULL, &(strata_block){0}), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(account));
    check_ok(strata_budget_account_close(reservation));
    check_ok(strata_budget_account_open(base, NULL, &next)); /* frees unused accounts */
    assert_int_equal(usage_of(base).in_use, 2);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_deallocate(runtime, &reserved));
    assert_int_equal(usage_of(base).in_use, 0);
    check_ok(strata_budget_account_close(next));
    check_ok(strata_runtime_destroy(runtime));
}

static void a_reservation_cannot_be_taken_by_others(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB, wait=none), null"), *reservation,
                          *refused_one;
    strata_block mine, more, theirs, refused;
    check_ok(strata_budget_reserve(base, 6 * MIB, "request 17", &reservation));
    assert_int_equal(usage_of(base).in_use, 6 * MIB);
    assert_int_equal(usage_of(reservation).limit, 6 * MIB);
    check_status(strata_budget_reserve(base, 5 * MIB, NULL, &refused_one), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "reservation of 5 MiB (5242880 bytes)");
    assert_null(refused_one);
    check_ok(try_allocate(fixture, 4 * MIB, NULL, &theirs));
    check_ok(strata_budget_enter(reservation, NULL));
    check_ok(try_allocate(fixture, 4 * MIB, NULL, &mine));
    check_ok(try_allocate(fixture, 2 * MIB, NULL, &more));
    check_status(try_allocate(fixture, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"request 17\"");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "Free memory of the reservation, or reserve more");
    check_status(try_allocate(fixture, 7 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "exceeds the reservation");
    free_block(fixture, &more);
    assert_int_equal(usage_of(reservation).in_use, 4 * MIB);
    assert_int_equal(usage_of(base).in_use, 10 * MIB);
    check_ok(strata_budget_enter(base, NULL));
    check_ok(strata_budget_account_close(reservation)); /* the unused part is given back now, the rest with the block */
    assert_int_equal(usage_of(base).in_use, 8 * MIB);
    check_ok(try_allocate(fixture, 2 * MIB, NULL, &more));
    free_block(fixture, &mine);
    assert_int_equal(usage_of(base).in_use, 6 * MIB);
    free_block(fixture, &more);
    free_block(fixture, &theirs);
    assert_int_equal(usage_of(base).in_use, 0);
    check_status(strata_budget_reserve(base, 0, NULL, &reservation), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_reserve(base, 11 * MIB, NULL, &reservation), STRATA_ERROR_OUT_OF_BUDGET);
}

static void bytes_are_taken_without_an_account_of_their_own(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB, wait=none), null"), *tenant;
    strata_block block, refused;
    check_ok(strata_budget_account_open(base, &(strata_budget_account_options){.limit.bytes = 4 * MIB}, &tenant));
    check_ok(budget_take(base, 5 * MIB));
    check_ok(budget_take(tenant, 3 * MIB));
    assert_int_equal(usage_of(base).in_use, 8 * MIB);
    check_status(budget_take(tenant, 2 * MIB), STRATA_ERROR_OUT_OF_BUDGET);
    check_status(budget_take(base, 3 * MIB), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "in use 8 MiB");
    check_status(try_allocate(fixture, 3 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(try_allocate(fixture, 2 * MIB, NULL, &block));
    budget_give(base, 5 * MIB);
    budget_give(tenant, 3 * MIB);
    assert_int_equal(usage_of(tenant).in_use, 0);
    assert_int_equal(usage_of(base).in_use, 2 * MIB);
    assert_int_equal(usage_of(base).peak, 10 * MIB);
    free_block(fixture, &block);
    check_ok(strata_budget_account_close(tenant));
}

enum { TAKERS = 4, HANDED = 8 };

typedef struct takers {
    strata_budget_account *account;
    size_t steps;
    _Atomic size_t taken, handed[HANDED]; /* bytes: of all threads, that the next one gives back */
    _Atomic unsigned above;               /* times that more was taken than the limit */
} takers;

/* Gives back what a thread has taken before, most often another one. */
static void *take_and_hand_on(void *data)
{
    takers *self = data;
    for (size_t i = 0; i < self->steps; i++) {
        size_t bytes = (i * 7 % 31 + 1) * (MIB / 16);
        if (budget_take(self->account, bytes) != STRATA_SUCCESS)
            bytes = 0;
        if (atomic_fetch_add(&self->taken, bytes) + bytes > 10 * MIB)
            atomic_fetch_add(&self->above, 1);
        bytes = atomic_exchange(&self->handed[i % HANDED], bytes);
        atomic_fetch_sub(&self->taken, bytes);
        if (bytes)
            budget_give(self->account, bytes);
    }
    return NULL;
}

static void take_at_once(strata_budget_account *account, strata_budget_account *base)
{
    takers self = {.account = account, .steps = test_effort(40000, 4000)};
    pthread_t threads[TAKERS];
    check_ok(budget_take(account, 8 * MIB)); /* so that less is no peak */
    budget_give(account, 8 * MIB);
    for (size_t i = 0; i < 4000; i++) { /* until the thread has a quota, and with it */
        check_ok(budget_take(account, MIB / 16));
        assert_int_equal(usage_of(base).in_use, MIB / 16);
        budget_give(account, MIB / 16);
    }
    for (size_t i = 0; i < TAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_hand_on, &self), 0);
    for (size_t i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(self.above, 0);
    assert_int_equal(usage_of(account).in_use, self.taken);
    assert_int_equal(usage_of(base).in_use, self.taken);
    for (size_t i = 0; i < HANDED; i++)
        budget_give(account, self.handed[i]);
    assert_int_equal(usage_of(account).in_use, 0);
    assert_int_equal(usage_of(base).in_use, 0);
    check_ok(budget_take(account, 10 * MIB)); /* what the threads kept is in it */
    check_status(budget_take(account, 1), STRATA_ERROR_OUT_OF_BUDGET);
    budget_give(account, 10 * MIB);
    const size_t peak = usage_of(account).peak, lacking = (TAKERS + 1) * (64 << 10); /* as budget.h says */
    assert_true(peak <= 10 * MIB && peak + lacking >= 10 * MIB);
}

static void bytes_that_threads_take_at_once_stay_within_the_limit(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB, wait=none), null"), *tenant;
    take_at_once(base, base);
    check_ok(strata_budget_set_limit(base, 20 * MIB));
    check_ok(strata_budget_account_open(base, &(strata_budget_account_options){.limit.bytes = 10 * MIB}, &tenant));
    take_at_once(tenant, base);
    check_ok(strata_budget_account_close(tenant));
}

static void so_do_those_of_a_shared_budget(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB, shared=taken, wait=none), null");
    take_at_once(base, base);
}

static void accounts_nest_only_so_deep(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget, null"), *below;
    size_t depth = 0;
    while (strata_budget_account_open(account, NULL, &below) == STRATA_SUCCESS) {
        account = below;
        assert_true(depth++ < 100);
    }
    assert_null(below);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "can be nested at most");
    strata_block block;
    check_ok(strata_budget_enter(account, NULL));
    check_ok(try_allocate(fixture, MIB, NULL, &block));
    assert_int_equal(usage_of(account).in_use, MIB);
    free_block(fixture, &block);
    assert_int_equal(usage_of(account).in_use, 0);
}

static void its_values_and_its_report_show_the_account(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=2MiB, wait=none), null");
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    strata_block block, refused;
    uint64_t value;
    check_ok(try_allocate(fixture, MIB, NULL, &block));
    check_status(try_allocate(fixture, 2 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_control(stack, "budget.in_use", &value, NULL));
    assert_int_equal(value, MIB);
    check_ok(strata_control(stack, "budget.refused", &value, NULL));
    assert_int_equal(value, 1);
    const uint64_t limit = 3 * MIB;
    check_ok(strata_control(stack, "budget.limit", &value, &limit));
    assert_int_equal(value, 2 * MIB);
    assert_int_equal(usage_of(base).limit, 3 * MIB);
    free_block(fixture, &block);
    assert_null(strata_budget_base(NULL));
    assert_null(strata_budget_base(strata_stack_top(stack)->upstream));
}

static json_t *report_of(test_fixture *fixture)
{
    static test_report report;
    report.length = 0;
    check_ok(
        strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_JSON, test_report_write, &report));
    return test_report_parse(&report);
}

/* What the report has of an account with that name. */
static int64_t reported(test_fixture *fixture, const char *name, const char *value)
{
    json_t *root = report_of(fixture), *layer = json_array_get(json_object_get(root, "layers"), 0), *account;
    int64_t found = -1;
    size_t i;
    json_array_foreach(json_object_get(layer, "accounts"), i, account)
    {
        const json_t *of = json_object_get(account, value);
        if (strcmp(json_string_value(json_object_get(account, "name")), name) == 0)
            found = json_is_boolean(of) ? json_is_true(of) : json_integer_value(of);
    }
    json_decref(root);
    return found;
}

static void a_closed_reservation_is_reported_with_what_its_blocks_hold(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=8MiB, wait=none), null"), *reservation;
    strata_block kept, freed;
    check_ok(strata_budget_reserve(base, 3 * MIB, "request 17", &reservation));
    check_ok(strata_budget_enter(reservation, NULL));
    check_ok(try_allocate(fixture, MIB, NULL, &kept));
    check_ok(try_allocate(fixture, MIB, NULL, &freed));
    check_ok(strata_budget_enter(base, NULL));
    assert_int_equal(reported(fixture, "request 17", "closed"), 0);
    check_ok(strata_budget_account_close(reservation));
    assert_int_equal(reported(fixture, "request 17", "closed"), 1);
    assert_int_equal(reported(fixture, "request 17", "in_use"), 2 * MIB);
    free_block(fixture, &freed);
    assert_int_equal(reported(fixture, "request 17", "in_use"), MIB);
    assert_int_equal(usage_of(base).in_use, MIB);
    free_block(fixture, &kept);
    assert_int_equal(usage_of(base).in_use, 0);
}

static void the_report_has_every_account(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=8MiB, wait=none), null"), *tenant, *reservation;
    const strata_budget_account_options options = {.name = "tenant 7"};
    strata_block block, refused;
    check_ok(strata_budget_account_open(base, &options, &tenant));
    check_ok(strata_budget_reserve(tenant, 3 * MIB, "request 17", &reservation));
    check_ok(strata_budget_enter(reservation, NULL));
    check_ok(try_allocate(fixture, MIB, NULL, &block));
    check_status(try_allocate(fixture, 3 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    json_t *root = report_of(fixture), *layer = json_array_get(json_object_get(root, "layers"), 0);
    json_t *list = json_object_get(layer, "accounts");
    assert_int_equal(json_array_size(list), 2);
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "request 17");
    assert_string_equal(json_string_value(json_object_get(first, "above")), "tenant 7");
    assert_true(json_is_true(json_object_get(first, "promise")));
    assert_int_equal(json_integer_value(json_object_get(first, "limit")), 3 * MIB);
    assert_int_equal(json_integer_value(json_object_get(first, "in_use")), MIB);
    assert_int_equal(json_integer_value(json_object_get(first, "refused")), 1);
    assert_string_equal(json_string_value(json_object_get(second, "name")), "tenant 7");
    assert_string_equal(json_string_value(json_object_get(second, "above")), "budget");
    assert_true(json_is_false(json_object_get(second, "promise")));
    assert_null(json_object_get(second, "limit"));
    assert_int_equal(json_integer_value(json_object_get(second, "in_use")), 3 * MIB);
    json_decref(root);
    check_ok(strata_budget_enter(base, NULL));
    free_block(fixture, &block);
    check_ok(strata_budget_account_close(reservation));
    check_ok(strata_budget_account_close(tenant));
    assert_int_equal(usage_of(base).in_use, 0);
}

typedef struct slow_reader {
    strata_budget_account *base;
    sem_t *opened;
    bool begun, waited;
} slow_reader;

static void *open_and_close(void *data)
{
    const slow_reader *reader = data;
    strata_budget_account *account;
    if (strata_budget_account_open(reader->base, NULL, &account) == STRATA_SUCCESS &&
        strata_budget_account_close(account) == STRATA_SUCCESS)
        sem_post(reader->opened);
    return NULL;
}

/* During the first account, another thread opens and closes an account. */
static void read_slow(const char *text, size_t length, void *data)
{
    slow_reader *reader = data;
    struct timespec until;
    pthread_t thread;
    if (reader->begun || length < strlen("tenant") || strncmp(text, "tenant", strlen("tenant")) != 0)
        return;
    reader->begun = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += test_timeout(WITHIN_S);
    assert_int_equal(pthread_create(&thread, NULL, open_and_close, reader), 0);
    reader->waited = sem_timedwait(reader->opened, &until) == 0;
    if (reader->waited)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}

static void no_thread_waits_for_a_report_that_is_written(test_fixture *fixture)
{
    sem_t opened;
    assert_int_equal(sem_init(&opened, 0, 0), 0);
    slow_reader reader = {.base = use_stack(fixture, "budget, null"), .opened = &opened};
    strata_budget_account *tenant;
    check_ok(strata_budget_account_open(reader.base, &(strata_budget_account_options){.name = "tenant"}, &tenant));
    check_ok(strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_TEXT, read_slow, &reader));
    assert_true(reader.begun && reader.waited);
    check_ok(strata_budget_account_close(tenant));
    sem_destroy(&opened);
}

enum { AT_ONCE = 16, TENANTS = AT_ONCE + 2 }; /* accounts of one page of a report, and some more */

typedef struct closing_reader {
    strata_budget_account *base, *last; /* last account of the first page */
    strata_budget_account *other;       /* opened meanwhile */
    unsigned seen;
    bool done;
} closing_reader;

/* Opening an account frees unused ones. */
static strata_budget_account *open_tenant(strata_budget_account *base)
{
    strata_budget_account *tenant;
    check_ok(strata_budget_account_open(base, &(strata_budget_account_options){.name = "tenant"}, &tenant));
    return tenant;
}

static void read_and_close(const char *text, size_t length, void *data)
{
    closing_reader *reader = data;
    if (length < strlen("tenant") || strncmp(text, "tenant", strlen("tenant")) != 0)
        return;
    reader->seen++;
    if (reader->done)
        return;
    reader->done = true;
    check_ok(strata_budget_account_close(reader->last));
    reader->other = open_tenant(reader->base);
}

/* The report continues behind it. */
static void an_account_that_is_closed_while_a_report_is_written_stays_until_it_is_read_on(test_fixture *fixture)
{
    closing_reader reader = {.base = use_stack(fixture, "budget, null")};
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    strata_budget_account *tenants[TENANTS];
    for (int i = TENANTS - 1; i >= 0; i--) /* the account that is opened last is written first */
        tenants[i] = open_tenant(reader.base);
    reader.last = tenants[AT_ONCE - 1];
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, read_and_close, &reader));
    assert_int_equal(reader.seen, TENANTS);
    tenants[AT_ONCE - 1] = open_tenant(reader.base);
    reader.seen = 0;
    check_ok(strata_stats_print(stack, STRATA_FORMAT_TEXT, read_and_close, &reader));
    assert_int_equal(reader.seen, TENANTS + 1);
    check_ok(strata_budget_account_close(reader.other));
    for (int i = 0; i < TENANTS; i++)
        check_ok(strata_budget_account_close(tenants[i]));
}

typedef struct family {
    strata_budget_account *base, *parent, *child;
    strata_budget_account *other; /* opened meanwhile; likely in the memory of the parent */
    bool closed;
    unsigned named; /* occurrences of the parent's name */
} family;

static void read_and_close_family(const char *text, size_t length, void *data)
{
    family *self = data;
    self->named += length == strlen("parent") && strncmp(text, "parent", length) == 0;
    if (self->closed || length < strlen("tenant") || strncmp(text, "tenant", strlen("tenant")) != 0)
        return;
    self->closed = true;
    check_ok(strata_budget_account_close(self->child));
    check_ok(strata_budget_account_close(self->parent));
    self->other = open_tenant(self->base);
}

/* The parent is on the second page, so it is freed before the child is written. */
static void a_report_names_the_parent_of_an_account_after_both_were_closed(test_fixture *fixture)
{
    family self = {.base = use_stack(fixture, "budget, null")};
    strata_budget_account *tenants[AT_ONCE - 1];
    check_ok(strata_budget_account_open(self.base, &(strata_budget_account_options){.name = "parent"}, &self.parent));
    check_ok(strata_budget_account_open(self.parent, &(strata_budget_account_options){.name = "child"}, &self.child));
    for (size_t i = 0; i < AT_ONCE - 1; i++)
        tenants[i] = open_tenant(self.base);
    check_ok(
        strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_TEXT, read_and_close_family, &self));
    assert_true(self.closed);
    assert_int_equal(self.named, 1);
    check_ok(strata_budget_account_close(self.other));
    for (size_t i = 0; i < AT_ONCE - 1; i++)
        check_ok(strata_budget_account_close(tenants[i]));
}

static void what_is_no_account_is_refused(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=8MiB), null"), *out, *reservation;
    strata_budget_usage usage;
    size_t charge = 1;
    strata_resource *alone[2];
    strata_stack *stack;
    check_status(strata_budget_account_open(NULL, NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_account_open(base, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    const strata_budget_account_options wrong[] = {
        {.size = 3}, {.limit.percent = 200}, {.limit.bytes = MIB, .soft.bytes = 2 * MIB}};
    for (size_t i = 0; i < 3; i++) {
        out = base;
        check_status(strata_budget_account_open(base, &wrong[i], &out), STRATA_ERROR_INVALID_VALUE);
        assert_null(out);
    }
    check_status(strata_budget_reserve(NULL, 1, NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_reserve(base, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_reserve(base, SIZE_MAX, NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_reserve(
                     base, 1, "a name that is longer than the sixty-three bytes which messages have room for", &out),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(out);
    check_status(strata_budget_enter(NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_account_usage(NULL, &usage), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_account_usage(base, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_set_limit(NULL, MIB), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_set_limit(base, SIZE_MAX), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "(18446744073709551615 bytes) is above 2^62");
    check_ok(strata_budget_reserve(base, MIB, NULL, &reservation));
    check_status(strata_budget_set_limit(reservation, MIB), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_budget_account_close(reservation));
    check_status(strata_budget_charge(NULL, 1, &charge), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_budget_charge(base, 1, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(usage_of(base).limit, 8 * MIB);
    assert_int_equal(usage_of(base).in_use, 0);
    assert_null(strata_budget_base(&(strata_resource){0}));
    check_ok(strata_budget_create(0, NULL, &alone[0]));
    base = strata_budget_base(alone[0]);
    check_status(strata_budget_reserve(base, 1, NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "needs a budget that is part of a stack");
    check_status(strata_budget_charge(base, 1, &charge), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "is not part of a stack");
    assert_int_equal(charge, 0);
    check_ok(strata_null_create(0, NULL, &alone[1]));
    check_ok(strata_stack_build(alone, 2, 0, &stack));
    check_ok(strata_stack_destroy(stack));
}

static void visit_nothing(const strata_shared_budget *budget, void *data)
{
    (void)budget;
    (void)data;
}

static bool refuses_after_fork(strata_budget_account *base, strata_budget_account *account)
{
    strata_budget_account *out;
    strata_budget_usage usage;
    return strata_budget_account_open(base, NULL, &out) == STRATA_ERROR_FORKED && !out &&
           strata_budget_reserve(base, MIB, NULL, &out) == STRATA_ERROR_FORKED && !out &&
           strata_budget_account_close(account) == STRATA_ERROR_FORKED &&
           strata_budget_enter(account, NULL) == STRATA_ERROR_FORKED &&
           strata_budget_account_usage(base, &usage) == STRATA_ERROR_FORKED &&
           strata_budget_set_limit(base, MIB) == STRATA_ERROR_FORKED &&
           strata_shared_budget_visit(visit_nothing, NULL) == STRATA_ERROR_FORKED &&
           strata_shared_budget_set_limit("/dev/shm/strata-u0-a", MIB) == STRATA_ERROR_FORKED;
}

static void a_forked_child_is_refused(test_fixture *fixture)
{
    int status;
    strata_budget_account *base = use_stack(fixture, "budget(limit=8MiB), null"), *account;
    check_ok(strata_budget_account_open(base, NULL, &account));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        test_child_leave(refuses_after_fork(base, account) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_ok(strata_budget_account_close(account));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_request_is_charged_to_all_accounts_above_it_or_to_none),
        TEST_CASE(requests_of_one_thread_are_charged_to_the_accounts_that_they_name),
        TEST_CASE(a_request_names_the_account_of_one_budget_of_its_stack),
        TEST_CASE(a_block_of_no_cost_keeps_its_account),
        TEST_CASE(a_reservation_cannot_be_taken_by_others),
        TEST_CASE(bytes_are_taken_without_an_account_of_their_own),
        TEST_CASE(bytes_that_threads_take_at_once_stay_within_the_limit),
        TEST_CASE(so_do_those_of_a_shared_budget),
        TEST_CASE(accounts_nest_only_so_deep),
        TEST_CASE(its_values_and_its_report_show_the_account),
        TEST_CASE(a_closed_reservation_is_reported_with_what_its_blocks_hold),
        TEST_CASE(the_report_has_every_account),
        TEST_CASE(no_thread_waits_for_a_report_that_is_written),
        TEST_CASE(an_account_that_is_closed_while_a_report_is_written_stays_until_it_is_read_on),
        TEST_CASE(a_report_names_the_parent_of_an_account_after_both_were_closed),
        TEST_CASE(what_is_no_account_is_refused),
        TEST_CASE(a_forked_child_is_refused),
    };
    static const char *const stacks[] = {"async"};
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
