/* budget: the limit holds to the byte, a request that fits is not refused, and every kind of breach. See also
 * test_budget_waiting.c, test_budget_accounts.c, test_budget_threads.c (threads) and test_budget_shared.c (processes).
 */
#include "support/budget.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/faults.h"

/* ---- the limit ---- */

static void the_limit_is_kept_to_the_byte(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=1MiB), null");
    strata_block most, last, refused = {.bytes = 1};
    check_ok(try_allocate(fixture, MIB - 1, NULL, &most));
    check_ok(try_allocate(fixture, 1, NULL, &last));
    check_status(try_allocate(fixture, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    assert_int_equal(usage_of(account).in_use, MIB);
    assert_int_equal(usage_of(account).remaining, 0);
    assert_int_equal(usage_of(account).peak, MIB);
    free_block(fixture, &last);
    check_ok(try_allocate(fixture, 1, NULL, &last));
    free_block(fixture, &most);
    free_block(fixture, &last);
    assert_int_equal(usage_of(account).in_use, 0);
    check_ok(try_allocate(fixture, MIB, NULL, &most));
    free_block(fixture, &most);
}

static void a_refusal_says_what_was_asked_for_and_what_there_is(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=1MiB, name=tenant-7, wait=none), null");
    strata_block live, refused;
    strata_tag tag;
    check_ok(strata_tag_intern("activations", &tag));
    check_ok(try_allocate(fixture, 600 * KIB, NULL, &live));
    strata_request request = {.bytes = 500 * KIB, .tag = tag};
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    const strata_error *error = strata_last_error();
    assert_int_equal(error->requested, 500 * KIB);
    assert_int_equal(error->in_use, 600 * KIB);
    assert_int_equal(error->remaining, 424 * KIB);
    assert_int_equal(error->limit, MIB);
    assert_int_equal(error->tag, tag);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "tenant-7");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "activations");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "in use 600 KiB (614400 bytes)");
    assert_int_equal(usage_of(account).refused, 1);
    request.bytes = 2 * MIB;
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "alone exceeds the limit");
    free_block(fixture, &live);
}

static void a_request_is_charged_as_the_layer_below_rounds_it(test_fixture *fixture)
{
    static const char *const texts[] = {"budget(limit=1024), async", "budget(limit=1024), direct"};
    for (size_t i = 0; i < 2; i++) {
        strata_budget_account *account = use_stack(fixture, texts[i]);
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_block first, second, third;
        size_t charge;
        check_ok(strata_budget_charge(account, 513, &charge));
        assert_int_equal(charge, 1024);
        check_ok(try_allocate(fixture, 1, stream, &first));
        check_ok(try_allocate(fixture, 512, stream, &second));
        check_status(try_allocate(fixture, 1, stream, &third), STRATA_ERROR_OUT_OF_BUDGET);
        assert_int_equal(usage_of(account).in_use, 1024);
        free_block(fixture, &first);
        free_block(fixture, &second);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(usage_of(account).in_use, 0);
        test_stream_close(fixture, stream);
    }
}

static void without_a_limit_bytes_are_counted_too(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget, null");
    strata_block block;
    strata_budget_snapshot snapshot;
    check_ok(try_allocate(fixture, 200 * GIB, NULL, &block));
    assert_int_equal(usage_of(account).in_use, 200 * GIB);
    assert_int_equal(usage_of(account).limit, 0);
    assert_true(usage_of(account).remaining == SIZE_MAX);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    check_ok(top->ops->budget(top, &snapshot));
    assert_int_equal(snapshot.limit, 0);
    free_block(fixture, &block);
    assert_int_equal(usage_of(account).in_use, 0);
    assert_int_equal(usage_of(account).peak, 200 * GIB);
    strata_stack *stack = strata_runtime_stack(fixture->runtime); /* without a limit, `remaining` has no value */
    uint64_t remaining;
    check_status(strata_control(stack, "budget.remaining", &remaining, NULL), STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_control_set_text(stack, "budget.limit", "3GiB"));
    check_ok(strata_control(stack, "budget.remaining", &remaining, NULL));
    assert_int_equal(remaining, 3 * GIB);
}

static void a_share_of_the_device_is_a_limit(test_fixture *fixture)
{
    strata_device_info info;
    check_ok(strata_device_get_info(0, &info));
    strata_budget_account *account = use_stack(fixture, "budget(limit=50%, soft=12.5%), null");
    assert_true(usage_of(account).limit == info.total_bytes / 2);
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    uint64_t value;
    check_ok(strata_control(stack, "budget.soft", &value, NULL));
    assert_true(value == info.total_bytes / 8);
    check_ok(strata_control_set_text(stack, "budget.limit", "25%"));
    assert_true(usage_of(account).limit == info.total_bytes / 4);
    check_ok(strata_control_set_text(stack, "budget.limit", "8GiB"));
    assert_true(usage_of(account).limit == 8 * GIB);
    check_status(strata_control_set_text(stack, "budget.limit", "eight"), STRATA_ERROR_SYNTAX);
    check_status(strata_control_set_text(stack, "budget.in_use", "8GiB"), STRATA_ERROR_INVALID_VALUE);
}

static void a_limit_can_be_lowered_under_what_is_in_use(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=10MiB), null");
    strata_block large, small, refused;
    check_ok(try_allocate(fixture, 8 * MIB, NULL, &large));
    check_ok(strata_budget_set_limit(account, 4 * MIB));
    assert_int_equal(usage_of(account).in_use, 8 * MIB);
    assert_int_equal(usage_of(account).remaining, 0);
    check_status(try_allocate(fixture, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    free_block(fixture, &large);
    check_status(try_allocate(fixture, 4 * MIB + 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(try_allocate(fixture, 4 * MIB, NULL, &small));
    check_ok(strata_budget_set_limit(account, 0));
    check_ok(try_allocate(fixture, GIB, NULL, &large));
    free_block(fixture, &large);
    free_block(fixture, &small);
    assert_int_equal(usage_of(account).in_use, 0);
}

static void what_the_layer_below_refuses_is_not_charged(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=900GiB), null");
    strata_block refused, block;
    check_status(try_allocate(fixture, 300 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(usage_of(account).in_use, 0);
    for (size_t i = 0; i < 3; i++) {
        check_ok(try_allocate(fixture, 250 * GIB, NULL, &block));
        free_block(fixture, &block);
    }
    account = use_stack(fixture, "budget(limit=1MiB), budget(limit=64KiB), null");
    check_status(try_allocate(fixture, 128 * KIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(strata_last_error()->limit, 64 * KIB);
    assert_int_equal(usage_of(account).in_use, 0);
    check_ok(try_allocate(fixture, 64 * KIB, NULL, &block));
    assert_int_equal(usage_of(account).in_use, 64 * KIB);
    free_block(fixture, &block);
}

static void options_that_contradict_each_other_are_refused(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    strata_stack *stack;
    check_status(strata_budget_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    const strata_budget_options wrong[] = {
        {.limit.bytes = MIB, .soft.bytes = 2 * MIB},
        {.soft.bytes = MIB, .soft_low.bytes = 2 * MIB},
        {.limit.percent = 101},
        {.limit.percent = -1},
        {.wait = (strata_budget_wait)9},
        {.timeout = 5},
        {.name = "a name that is longer than the sixty-three bytes which messages have room for"},
        {.limit.bytes = UINT64_MAX},
        {.soft.bytes = UINT64_MAX},
        {.soft_low.bytes = 5},
        {.shared_group = "a-group"},
        {.size = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(strata_budget_create(0, &wrong[i], &resource), STRATA_ERROR_INVALID_VALUE);
        assert_null(resource);
    }
    check_status(strata_stack_create("budget(limit=0%), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "character 14");
    static const char *const no_limits[] = {"budget(limit=0), null", "budget(limit=0GiB), null", "budget(soft=0), null",
                                            "budget(limit=1KiB, soft_low=0), null"};
    for (size_t i = 0; i < sizeof no_limits / sizeof no_limits[0]; i++) {
        check_status(strata_stack_create(no_limits[i], 0, &stack), STRATA_ERROR_SYNTAX);
        check_last_error(STRATA_ERROR_SYNTAX, "expected more than 0 bytes; leave the option out for none");
    }
    check_status(strata_stack_create("budget(limit=120%), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_status(strata_stack_create("budget(wait=long), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "retired|none|live");
    check_status(strata_stack_create("budget(limit=8GiB)", 0, &stack), STRATA_ERROR_SYNTAX);
}

/* The stack answers such requests itself, but a layer above may make them. */
static void zero_bytes_are_charged_nothing_and_always_fit(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=1MiB, wait=none), null"), *account, *reservation;
    strata_block all, none = {.bytes = 1};
    check_ok(strata_budget_reserve(base, KIB, NULL, &reservation));
    check_ok(strata_budget_account_open(base, NULL, &account));
    check_ok(try_allocate(fixture, MIB - KIB, NULL, &all));
    strata_budget_account *const entered[] = {base, account, reservation};
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    for (size_t i = 0; i < 3; i++) {
        check_ok(strata_budget_enter(entered[i], NULL));
        none.bytes = 1;
        check_ok(top->ops->allocate(top, &(strata_request){0}, &none));
        assert_memory_equal(&none, &(strata_block){0}, sizeof none);
        assert_int_equal(usage_of(base).in_use, MIB);
        check_status(try_allocate(fixture, 2 * KIB, NULL, &none), STRATA_ERROR_OUT_OF_BUDGET);
    }
    check_ok(strata_budget_enter(base, NULL));
    free_block(fixture, &all);
    check_ok(strata_budget_account_close(account));
    check_ok(strata_budget_account_close(reservation));
    assert_int_equal(usage_of(base).in_use, 0);
}

static void more_than_there_are_numbers_is_refused_at_once(test_fixture *fixture)
{
    static const char *const texts[] = {"budget(wait=live, timeout=5s), null",
                                        "budget(wait=live, timeout=5s, shared=numbers), null",
                                        "budget(limit=1GiB, wait=live, timeout=5s), null"};
    for (size_t i = 0; i < 3; i++) {
        strata_budget_account *account = use_stack(fixture, texts[i]);
        strata_block refused = {.bytes = 1}, block;
        check_ok(try_allocate(fixture, 100, NULL, &block));
        time_t before = time(NULL);
        check_status(try_allocate(fixture, SIZE_MAX, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
        check_last_error(STRATA_ERROR_OUT_OF_BUDGET,
                         i < 2 ? "refused: request too large. Request less" : "alone exceeds the limit");
        check_status(try_allocate(fixture, SIZE_MAX / 2, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
        assert_true(time(NULL) - before < 4);
        assert_int_equal(usage_of(account).in_use, 100);
        assert_int_equal(usage_of(account).waited, 0);
        free_block(fixture, &block);
    }
    strata_block refused = {.bytes = 1};
    size_t charge = 1;
    static const char *const rounding[] = {"budget(limit=1GiB), async", "budget(limit=1GiB), direct",
                                           "budget(limit=1GiB), pool"};
    for (size_t i = 0; i < 3; i++) {
        strata_budget_account *base = use_stack(fixture, rounding[i]);
        for (size_t less = 0; less < 3 * 512; less += 100) {
            check_ok(strata_budget_charge(base, SIZE_MAX - less, &charge));
            assert_true(charge >= SIZE_MAX - less);
        }
        check_status(try_allocate(fixture, SIZE_MAX, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
        check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "request of 16.0 EiB (18446744073709551615 bytes)");
    }
    charge = 1;
    strata_budget_account *account = use_stack(fixture, "budget, aligned(alignment=4KiB), null");
    check_status(try_allocate(fixture, SIZE_MAX, NULL, &refused),
                 STRATA_ERROR_OUT_OF_MEMORY); /* it cannot be rounded */
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    check_status(strata_budget_charge(account, SIZE_MAX, &charge), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(charge, 0);
    assert_int_equal(usage_of(account).in_use, 0);
}

static void a_refusal_has_sizes_for_people_and_the_exact_ones(test_fixture *fixture)
{
    strata_block live, block;
    use_stack(fixture, "budget(limit=1GiB), null");
    check_ok(try_allocate(fixture, 1000 << 20, NULL, &live));
    check_status(try_allocate(fixture, 100 << 20, NULL, &block), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET,
                     "budget \"budget\": request of 100 MiB (104857600 bytes) (tag \"\") refused: limit 1 GiB "
                     "(1073741824 bytes), in use 1000 MiB (1048576000 bytes), remaining 24 MiB (25165824 bytes). Free "
                     "memory, let requests wait (wait=live) or raise the limit");
    assert_null(strstr(strata_last_error()->message, "strata budget"));
    free_block(fixture, &live);
}

static void a_refusal_of_a_shared_budget_names_the_command_that_lists_its_processes(test_fixture *fixture)
{
    strata_block block;
    use_stack(fixture, "budget(name=inference, limit=1MiB, shared=job-7.a_b), null");
    check_status(try_allocate(fixture, 2 << 20, NULL, &block), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "`strata budget job-7.a_b` lists the processes");
}

static void the_peak_of_one_thread_is_exact(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=64GiB), null");
    strata_block blocks[16];
    uint64_t now = 0, highest = 0, seed = 3;
    memset(blocks, 0, sizeof blocks);
    for (size_t i = 0; i < 2000; i++) {
        strata_block *block = &blocks[(seed = seed * UINT64_C(6364136223846793005) + 1) >> 60];
        now -= block->bytes;
        if (block->bytes)
            free_block(fixture, block);
        check_ok(try_allocate(fixture, 1 + (seed >> 20) % (64 * MIB), NULL, block));
        now += block->bytes;
        highest = now > highest ? now : highest;
        assert_int_equal(usage_of(account).in_use, now);
        if (i % 10 == 0)
            assert_int_equal(usage_of(account).peak, highest);
    }
    for (size_t i = 0; i < 16; i++)
        if (blocks[i].bytes)
            free_block(fixture, &blocks[i]);
    assert_int_equal(usage_of(account).peak, highest);
}

static void refuse_below(test_fixture *fixture, size_t bytes)
{
    strata_block refused;
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    const strata_status status = try_allocate(fixture, bytes, NULL, &refused);
    test_fault_end();
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
}

/* Refused by the budget at a parent, or by the layer below. */
static void what_was_refused_never_was_in_use(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=10MiB, wait=none), async"), *account, *before;
    strata_block blocks[2], refused;
    check_ok(strata_budget_account_open(base, NULL, &account));
    check_ok(strata_budget_enter(account, &before));
    for (size_t i = 0; i < 2; i++)
        check_ok(try_allocate(fixture, 4 * MIB, NULL, &blocks[i]));
    for (size_t i = 0; i < 2; i++)
        check_status(try_allocate(fixture, 4 * MIB, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_budget_enter(before, NULL));
    assert_int_equal(usage_of(account).peak, 8 * MIB);
    assert_int_equal(usage_of(base).peak, 8 * MIB);
    for (size_t i = 0; i < 2; i++)
        free_block(fixture, &blocks[i]);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_budget_account_close(account));
    base = use_stack(fixture, "budget, async");
    check_ok(try_allocate(fixture, MIB, NULL, &blocks[0]));
    free_block(fixture, &blocks[0]);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    refuse_below(fixture, 3 * KIB); /* charged to the thread's quota, which grew */
    assert_int_equal(usage_of(base).peak, MIB);
    for (size_t i = 0; i < 4; i++) {
        check_ok(try_allocate(fixture, MIB, NULL, &blocks[0]));
        check_status(try_allocate(fixture, (size_t)1 << 50, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
        refuse_below(fixture, 3 * KIB);
        free_block(fixture, &blocks[0]);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        refuse_below(fixture, 3 * KIB);
        assert_int_equal(usage_of(base).peak, MIB);
    }
}

/* ---- retired bytes ---- */

static void retired_bytes_count_until_they_are_complete(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_budget_account *account = use_stack(fixture, "budget(limit=4MiB, wait=none), async");
    CUstream busy = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block, refused;
    check_ok(try_allocate(fixture, 3 * MIB, busy, &block));
    test_write(fixture, &block, 1, busy);
    test_stall *stall = test_stall_begin(busy);
    test_free_on(fixture, &block, busy);
    assert_int_equal(usage_of(account).in_use, 3 * MIB);
    check_status(try_allocate(fixture, 2 * MIB, other, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(try_allocate(fixture, MIB, other, &block));
    test_free_on(fixture, &block, other);
    test_stall_end(stall);
    /* A request finds finished frees. The first one has their events recorded. */
    if (try_allocate(fixture, 4 * MIB, other, &block) != STRATA_SUCCESS) {
        test_synchronize(busy);
        test_synchronize(other);
        check_ok(try_allocate(fixture, 4 * MIB, other, &block));
    }
    test_free_on(fixture, &block, other);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(account).in_use, 0);
    assert_int_equal(usage_of(account).peak, 4 * MIB);
}

static void a_loop_in_stream_order_never_waits_for_the_device(test_fixture *fixture)
{
    strata_budget_account *account = use_stack(fixture, "budget(limit=1.5GiB, wait=none), async");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    check_ok(try_allocate(fixture, GIB, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    for (size_t i = 0; i < 20; i++) {
        test_free_on(fixture, &block, stream);
        check_ok(try_allocate(fixture, GIB, stream, &block));
        assert_int_equal(usage_of(account).in_use, GIB);
    }
    assert_int_equal(usage_of(account).reused, 20);
    assert_int_equal(usage_of(account).peak, GIB);
    test_stall_end(stall);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(account).in_use, 0);
}

/* Memory of another account does not make room in this one. */
static void reuse_is_counted_where_the_bytes_were_charged(test_fixture *fixture)
{
    strata_budget_account *base = use_stack(fixture, "budget(limit=3GiB, wait=none), async"), *first, *second;
    const strata_budget_account_options options = {.limit.bytes = 3 * GIB / 2};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block, live;
    check_ok(strata_budget_account_open(base, &options, &first));
    check_ok(strata_budget_account_open(base, &options, &second));
    check_ok(strata_budget_enter(second, NULL));
    check_ok(try_allocate(fixture, GIB, stream, &live));
    check_ok(strata_budget_enter(first, NULL));
    check_ok(try_allocate(fixture, GIB, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &block, stream);
    check_ok(strata_budget_enter(second, NULL));
    check_status(try_allocate(fixture, GIB, stream, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(usage_of(first).in_use, GIB);
    check_ok(strata_budget_enter(first, NULL));
    check_ok(try_allocate(fixture, GIB, stream, &block));
    assert_int_equal(usage_of(first).in_use, GIB);
    assert_int_equal(usage_of(base).in_use, 2 * GIB);
    test_stall_end(stall);
    check_ok(strata_budget_enter(base, NULL));
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &live, stream);
    check_ok(strata_budget_account_close(first));
    check_ok(strata_budget_account_close(second));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(base).in_use, 0);
}

/* Bytes of an open reservation are given back to it, and to its parents after it is closed. */
static void reuse_from_a_reservation(test_fixture *fixture, const char *stack)
{
    strata_budget_account *base = use_stack(fixture, stack), *reservation;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block, next;
    check_ok(strata_budget_reserve(base, GIB, "promise", &reservation));
    check_ok(strata_budget_enter(reservation, NULL));
    check_ok(try_allocate(fixture, GIB, stream, &block));
    check_ok(strata_budget_enter(base, NULL));
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &block, stream);
    check_status(try_allocate(fixture, GIB, stream, &next), STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(strata_budget_account_close(reservation));
    check_ok(try_allocate(fixture, GIB, stream, &next));
    assert_int_equal(usage_of(base).reused, 1);
    assert_int_equal(usage_of(base).in_use, GIB);
    test_stall_end(stall);
    test_free_on(fixture, &next, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(base).in_use, 0);
}

static void reuse_of_a_reservations_block_is_counted_once_it_is_closed(test_fixture *fixture)
{
    reuse_from_a_reservation(fixture, "budget(limit=1.5GiB, wait=none), async");
}

static void that_holds_in_a_shared_budget_too(test_fixture *fixture)
{
    reuse_from_a_reservation(fixture, "budget(limit=1.5GiB, wait=none, shared=promising), async");
}

/* ---- shared ---- */

static void look_for_group(const strata_shared_budget *budget, void *data)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "/strata-g%u-grouped-", getegid());
    *(bool *)data |= strstr(budget->path, wanted) && budget->limit == MIB && budget->process_count == 1;
}

static void a_group_stands_in_a_text_too(test_fixture *fixture)
{
    char text[128];
    bool found = false;
    snprintf(text, sizeof text, "budget(limit=1MiB, shared=grouped, shared_group=%u), null", getegid());
    use_stack(fixture, text);
    check_ok(strata_shared_budget_visit(look_for_group, &found));
    assert_true(found);
}

/* Host bytes have a budget of their own, and count beside those of the device in one that both stacks share. */
static void host_and_device_memory_stand_in_one_account(test_fixture *fixture)
{
    strata_budget_account *both = use_stack(fixture, "budget(limit=64MiB, shared=one, wait=none), async");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *host;
    strata_block device, more, staged, refused;
    const strata_runtime_config config = {
        .stack_text = "budget(limit=16MiB, name=host, wait=none), budget(limit=64MiB, shared=one, wait=none), pinned"};
    check_ok(strata_runtime_create(&config, &host));
    strata_budget_account *own = strata_budget_base(strata_stack_top(strata_runtime_stack(host)));
    device = test_allocate(fixture, 40 << 20, stream);
    check_ok(strata_runtime_allocate(host, 16 << 20, stream, &staged));
    assert_true(usage_of(own).in_use == 16 << 20 && usage_of(both).in_use == 56 << 20);
    check_status(strata_runtime_allocate(host, 1, stream, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"host\"");
    check_status(try_allocate(fixture, 16 << 20, stream, &refused),
                 STRATA_ERROR_OUT_OF_BUDGET); /* of both: 8 MiB left */
    check_ok(strata_runtime_deallocate_on(host, &staged, stream));
    check_ok(strata_runtime_reap_pending(host));
    assert_true(usage_of(own).in_use == 0 && usage_of(both).in_use == 40 << 20);
    more = test_allocate(fixture, 16 << 20, stream);
    check_status(strata_runtime_allocate(host, 12 << 20, stream, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "\"one\"");
    test_free_on(fixture, &more, stream);
    test_free_on(fixture, &device, stream);
    check_ok(strata_runtime_destroy(host));
}

/* Processes that share a limit are in test_budget_shared.c. */
static void stacks_that_give_the_same_name_share_one_limit(test_fixture *fixture)
{
    static const char text[] = "budget(limit=1GiB, shared=both, wait=none), async";
    strata_budget_account *account = use_stack(fixture, text), *other_account;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *other;
    strata_block first, second, refused;
    strata_tag tag;
    check_ok(strata_tag_intern("shared tag", &tag));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &other));
    other_account = strata_budget_base(strata_stack_top(strata_runtime_stack(other)));
    strata_request request = {.bytes = GIB / 2, .stream = stream, .tag = tag};
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &first));
    check_ok(strata_runtime_allocate(other, GIB / 2, stream, &second));
    check_status(strata_runtime_allocate(other, 1, stream, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    check_status(try_allocate(fixture, 1, stream, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(usage_of(account).in_use, GIB);
    assert_int_equal(usage_of(other_account).limit, GIB);
    check_ok(strata_runtime_deallocate_on(other, &second, stream));
    check_ok(strata_runtime_reap_pending(other)); /* else it counts, and exceeds the limit below */
    test_stall *stall = test_stall_begin(stream);
    for (size_t i = 0; i < 10; i++) { /* retired memory is not counted twice here either */
        test_free_on(fixture, &first, stream);
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &first));
    }
    check_ok(strata_budget_set_limit(other_account, GIB / 2));
    test_free_on(fixture, &first, stream);
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &first));
    assert_true(usage_of(account).reused > 0);
    test_stall_end(stall);
    test_free_on(fixture, &first, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_destroy(other));
    assert_int_equal(usage_of(account).in_use, 0);
    check_status(strata_stack_create("budget(limit=1GiB, shared=../both), null", 0, &(strata_stack *){0}),
                 STRATA_ERROR_INVALID_VALUE);
}

static void lose_file(const strata_shared_budget *budget, void *data)
{
    (void)data;
    if (strcmp(budget->name ? budget->name : "", "removed") == 0)
        unlink(budget->path);
}

static void a_request_of_a_shared_limit_whose_file_was_removed_is_told_so(test_fixture *fixture)
{
    strata_block block, refused;
    use_stack(fixture, "budget(limit=64MiB, shared=removed, wait=live), async"); /* does not wait for ever */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, MIB, stream, &block));
    check_ok(strata_shared_budget_visit(lose_file, NULL));
    check_status(try_allocate(fixture, 32 * MIB, stream, &refused), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "was removed while it was used");
    test_free_on(fixture, &block, stream);
}

/* As a program that closes all descriptors it does not know. They may name other files afterwards. */
static int close_unknown(const char *name)
{
    int last = -1;
    for (int descriptor = 3; descriptor < 1024; descriptor++) {
        char link[64], target[512] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, name) && close(descriptor) == 0)
            last = descriptor;
    }
    return last;
}

static void a_request_of_a_shared_limit_whose_file_the_program_closed_is_told_so(test_fixture *fixture)
{
    strata_block block, refused;
    for (int reused = 0; reused < 2; reused++) {
        strata_budget_account *account = use_stack(fixture, "budget(limit=64MiB, shared=closed, wait=live), async");
        check_ok(try_allocate(fixture, MIB, NULL, &block));
        int closed = close_unknown("-closed-");
        assert_true(closed >= 0);
        if (reused)
            assert_int_equal(dup2(STDERR_FILENO, closed), closed);
        check_status(try_allocate(fixture, 32 * MIB, NULL, &refused), STRATA_ERROR_IO);
        check_last_error(STRATA_ERROR_IO, "the program closed its descriptor");
        check_status(strata_budget_set_limit(account, MIB), STRATA_ERROR_IO);
        check_last_error(STRATA_ERROR_IO, "the program closed its descriptor");
        test_free_on(fixture, &block, NULL);
        use_stack(fixture, "budget, async");
        if (reused)
            assert_int_equal(close(closed), 0); /* not closed by Strata */
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(the_limit_is_kept_to_the_byte),
        TEST_CASE(a_refusal_says_what_was_asked_for_and_what_there_is),
        TEST_CASE(a_request_is_charged_as_the_layer_below_rounds_it),
        TEST_CASE(without_a_limit_bytes_are_counted_too),
        TEST_CASE(a_share_of_the_device_is_a_limit),
        TEST_CASE(a_limit_can_be_lowered_under_what_is_in_use),
        TEST_CASE(what_the_layer_below_refuses_is_not_charged),
        TEST_CASE(options_that_contradict_each_other_are_refused),
        TEST_CASE(zero_bytes_are_charged_nothing_and_always_fit),
        TEST_CASE(more_than_there_are_numbers_is_refused_at_once),
        TEST_CASE(a_refusal_has_sizes_for_people_and_the_exact_ones),
        TEST_CASE(a_refusal_of_a_shared_budget_names_the_command_that_lists_its_processes),
        TEST_CASE(the_peak_of_one_thread_is_exact),
        TEST_CASE(what_was_refused_never_was_in_use),
        TEST_CASE(retired_bytes_count_until_they_are_complete),
        TEST_CASE(a_loop_in_stream_order_never_waits_for_the_device),
        TEST_CASE(reuse_is_counted_where_the_bytes_were_charged),
        TEST_CASE(reuse_of_a_reservations_block_is_counted_once_it_is_closed),
        TEST_CASE(that_holds_in_a_shared_budget_too),
        TEST_CASE(a_group_stands_in_a_text_too),
        TEST_CASE(host_and_device_memory_stand_in_one_account),
        TEST_CASE(stacks_that_give_the_same_name_share_one_limit),
        TEST_CASE(a_request_of_a_shared_limit_whose_file_was_removed_is_told_so),
        TEST_CASE(a_request_of_a_shared_limit_whose_file_the_program_closed_is_told_so),
    };
    static const char *const stacks[] = {"async"};
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
