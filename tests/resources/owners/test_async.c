/* The async resource's own matters: its options as the driver has them, views of pools that belong to others, and
 * giving memory back. */
#include "core/base/error.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include <string.h>

static const size_t MIB = (size_t)1 << 20;

typedef struct own_stack {
    strata_stack *stack;
    strata_resource *top;
    CUmemoryPool pool;
} own_stack;

static own_stack make(const strata_async_options *options)
{
    own_stack result;
    strata_resource *resource;
    check_ok(strata_async_create(0, options, &resource));
    check_ok(strata_stack_build(&resource, 1, 0, &result.stack));
    result.top = strata_stack_top(result.stack);
    result.pool = strata_async_pool_handle(result.top);
    assert_non_null(result.pool);
    return result;
}

static void end(own_stack *made)
{
    check_ok(strata_stack_destroy(made->stack));
}

static uint64_t number_of(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    check_cu(test_cu()->MemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static int switch_of(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    int value = -1;
    check_cu(test_cu()->MemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static strata_block allocate(const own_stack *made, size_t bytes, CUstream stream)
{
    strata_request request = {.bytes = bytes, .stream = stream};
    strata_block block;
    check_ok(strata_resource_allocate(made->top, &request, &block));
    return block;
}

/* ---- options ---- */

static void by_default_a_pool_keeps_everything_and_reuses_in_every_way(test_fixture *fixture)
{
    (void)fixture;
    own_stack made = make(NULL);
    assert_true(number_of(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX);
    assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 1);
    assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
    assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
    assert_int_equal(number_of(made.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    end(&made);
}

static void each_option_reaches_the_pool_and_no_other_attribute(test_fixture *fixture)
{
    (void)fixture;
    for (int which = 0; which < 3; which++) {
        own_stack made = make(&(strata_async_options){
            .release_threshold = 12345678,
            .follow_event_dependencies = which == 0 ? STRATA_SWITCH_OFF : STRATA_SWITCH_ON,
            .opportunistic = which == 1 ? STRATA_SWITCH_OFF : STRATA_SWITCH_DEFAULT,
            .internal_dependencies = which == 2 ? STRATA_SWITCH_OFF : STRATA_SWITCH_DEFAULT,
        });
        assert_int_equal(number_of(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 12345678);
        assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), which != 0);
        assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), which != 1);
        assert_int_equal(switch_of(made.pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), which != 2);
        end(&made);
    }
    own_stack made = make(&(strata_async_options){.release_all = true});
    assert_int_equal(number_of(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    end(&made);
}

static void a_stack_text_reaches_the_pool_like_the_options(test_fixture *fixture)
{
    (void)fixture;
    strata_stack *stack;
    check_ok(strata_stack_create("async(release_threshold=3MiB, opportunistic=off, initial_size=4MiB)", 0, &stack));
    CUmemoryPool pool = strata_async_pool_handle(strata_stack_top(stack));
    assert_int_equal(number_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 3 * MIB);
    assert_int_equal(switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 0);
    check_ok(strata_stack_destroy(stack));
}

static void the_initial_size_is_reserved_and_free_at_the_start(test_fixture *fixture)
{
    (void)fixture;
    own_stack made = make(&(strata_async_options){.initial_size = 100 * MIB});
    strata_usage usage;
    check_ok(strata_resource_usage(made.top, &usage));
    assert_true(usage.reserved_bytes >= 100 * MIB);
    assert_int_equal(usage.live_bytes, 0);
    assert_int_equal(usage.bytes_outstanding, 0);
    assert_true(usage.reserved_free >= 100 * MIB);
    uint64_t reserved = number_of(made.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    strata_block block = allocate(&made, 90 * MIB, NULL);
    assert_int_equal(number_of(made.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
    check_ok(strata_resource_deallocate(made.top, &block, NULL));
    end(&made);
}

/* The driver counts them as unused from their free on. */
static void retired_bytes_are_not_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    own_stack made = make(&(strata_async_options){.initial_size = 100 * MIB});
    strata_block block = allocate(&made, 90 * MIB, stream);
    test_stall *stall = test_stall_begin(stream);
    strata_usage usage;
    check_ok(strata_resource_deallocate(made.top, &block, stream));
    check_ok(strata_resource_usage(made.top, &usage));
    assert_int_equal(usage.retired_bytes, block.bytes);
    assert_true(usage.reserved_free + usage.bytes_outstanding <= usage.reserved_bytes);
    test_stall_release(stall);
    test_synchronize(stream);
    test_stall_end(stall);
    end(&made);
}

static void the_maximum_size_is_a_limit_and_a_refusal_spoils_nothing(test_fixture *fixture)
{
    (void)fixture;
    own_stack made = make(&(strata_async_options){.max_size = 64 * MIB});
    strata_usage usage;
    check_ok(strata_resource_usage(made.top, &usage));
    assert_int_equal(usage.limit, 64 * MIB);
    strata_block first = allocate(&made, 32 * MIB, NULL), refused = {.bytes = 1};
    for (int again = 0; again < 2; again++) {
        strata_request request = {.bytes = 48 * MIB};
        check_status(strata_resource_allocate(made.top, &request, &refused), STRATA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(refused.address, 0);
        assert_int_equal(strata_last_error()->limit, 64 * MIB);
        assert_true(strata_last_error()->in_use == 32 * MIB);
    }
    strata_block second = allocate(&made, 16 * MIB, NULL);
    check_ok(strata_resource_deallocate(made.top, &first, NULL));
    check_ok(strata_resource_deallocate(made.top, &second, NULL));
    check_cu(test_cu()->CtxSynchronize());
    strata_block large = allocate(&made, 48 * MIB, NULL);
    check_ok(strata_resource_deallocate(made.top, &large, NULL));
    end(&made);
}

/* As the driver rounds it, tests/answers/h200.txt, "pool.max_". */
static void the_limit_that_is_reported_is_the_one_that_holds(test_fixture *fixture)
{
    (void)fixture;
    static const struct {
        uint64_t max_size, limit;
    } cases[] = {{1, 32 << 20}, {32 << 20, 32 << 20}, {(32 << 20) + 1, 64 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        own_stack made = make(&(strata_async_options){.max_size = cases[i].max_size});
        strata_usage usage;
        strata_block block = allocate(&made, cases[i].limit, NULL), refused;
        check_ok(strata_resource_usage(made.top, &usage));
        assert_true(usage.limit == cases[i].limit && usage.reserved_bytes == cases[i].limit);
        check_status(strata_resource_allocate(made.top, &(strata_request){.bytes = 1}, &refused),
                     STRATA_ERROR_OUT_OF_MEMORY);
        assert_true(strata_last_error()->limit == cases[i].limit && strata_last_error()->remaining == 0);
        check_ok(strata_resource_deallocate(made.top, &block, NULL));
        end(&made);
    }
}

static PFN_cuMemPoolCreate_v11020 create_pool;

/* As a driver that takes any size. */
static CUresult CUDAAPI create_of_any_size(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUmemPoolProps without = *properties;
    without.maxSize = 0;
    return create_pool(pool, &without);
}

/* Rounded up it would be no number any more. */
static void a_maximum_size_near_the_end_of_the_numbers_is_no_small_limit(test_fixture *fixture)
{
    (void)fixture;
    const uint64_t most = UINT64_MAX / (32 * MIB) * (32 * MIB);
    const uint64_t sizes[] = {most - 1, most, most + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_resource *resource;
        strata_usage usage;
        create_pool = strata_cu.MemPoolCreate;
        strata_cu.MemPoolCreate = create_of_any_size;
        const strata_status status = strata_async_create(0, &(strata_async_options){.max_size = sizes[i]}, &resource);
        strata_cu.MemPoolCreate = create_pool;
        check_ok(status);
        strata_stack *stack;
        check_ok(strata_stack_build(&resource, 1, 0, &stack));
        check_ok(strata_resource_usage(strata_stack_top(stack), &usage));
        assert_true(usage.limit == most);
        check_ok(strata_stack_destroy(stack));
    }
}

static void options_that_make_no_sense_are_refused_and_leave_nothing(test_fixture *fixture)
{
    (void)fixture;
    static const strata_async_options wrong[] = {
        {.pool = (strata_async_pool)9},
        {.export_type = (strata_export_type)9},
        {.initial_size = 2 << 20, .max_size = 1 << 20},
        {.pool = STRATA_ASYNC_POOL_GIVEN},
        {.given = (CUmemoryPool)(uintptr_t)0x1230},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .given = (CUmemoryPool)(uintptr_t)0x1230},
        {.release_all = true, .release_threshold = 1},
        {.opportunistic = (strata_switch)9},
        {.follow_event_dependencies = (strata_switch)-1},
        {.internal_dependencies = (strata_switch)3},
        {.size = 1},
        {.size = sizeof(strata_async_options) + 4096},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .release_threshold = 1},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .release_all = true},
        {.pool = STRATA_ASYNC_POOL_CURRENT, .initial_size = 1},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .max_size = 1},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .opportunistic = STRATA_SWITCH_OFF},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .follow_event_dependencies = STRATA_SWITCH_ON},
        {.pool = STRATA_ASYNC_POOL_DEFAULT, .internal_dependencies = STRATA_SWITCH_OFF},
    };
    strata_resource *resource;
    test_calls calls;
    test_calls_begin(&calls);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(strata_async_create(0, &wrong[i], &resource), STRATA_ERROR_INVALID_VALUE);
        assert_null(resource);
    }
    check_status(strata_async_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_async_create(-1, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_async_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(test_calls_of(&calls, "cuMemPoolCreate"), 0);
}

/* A struct as later and earlier versions of the library would have it. */
static void options_of_another_version_are_read_as_far_as_both_know_them(test_fixture *fixture)
{
    (void)fixture;
    struct {
        strata_async_options options;
        uint32_t later[4];
    } of = {.options = {.size = sizeof of, .release_threshold = 3 * MIB}};
    own_stack made = make(&of.options);
    assert_true(number_of(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 3 * MIB);
    end(&made);
    strata_resource *resource;
    of.later[3] = 1;
    check_status(strata_async_create(0, &of.options, &resource), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_async_options of ");
    of.options.size = offsetof(strata_async_options, max_size);
    of.options.max_size = 1;
    of.options.initial_size = 2;
    made = make(&of.options);
    assert_true(number_of(made.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 3 * MIB);
    strata_usage usage;
    check_ok(strata_resource_usage(made.top, &usage));
    assert_true(usage.limit == 0);
    end(&made);
}

static void an_initial_size_that_does_not_fit_leaves_no_pool(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    test_calls calls;
    test_calls_begin(&calls);
    check_status(strata_async_create(0, &(strata_async_options){.initial_size = UINT64_C(1) << 50}, &resource),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_null(resource);
    assert_int_equal(test_calls_of(&calls, "cuMemPoolCreate"), test_calls_of(&calls, "cuMemPoolDestroy"));
    assert_int_equal(test_calls_of(&calls, "cuStreamCreate"), test_calls_of(&calls, "cuStreamDestroy"));
}

static CUmemoryPool not_ended;

static CUresult CUDAAPI refuse_to_end(CUmemoryPool pool)
{
    not_ended = pool;
    return CUDA_ERROR_UNKNOWN;
}

static void hear_of_pools(const strata_error *error, void *data)
{
    *(unsigned *)data += error->driver_call && strcmp(error->driver_call, "cuMemPoolDestroy") == 0;
}

/* That it stays is said, and why it came to nothing is what the call fails for. */
static void a_pool_that_came_to_nothing_and_cannot_be_ended_is_told(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    PFN_cuMemPoolDestroy_v11020 real = strata_cu.MemPoolDestroy;
    for (int hushed = 0; hushed < 2; hushed++) {
        unsigned heard = 0;
        check_status(strata_stack_create("nothing", 0, &(strata_stack *){0}), STRATA_ERROR_SYNTAX);
        strata_set_log_callback(hear_of_pools, &heard);
        strata_cu.MemPoolDestroy = refuse_to_end;
        if (hushed)
            strata_error_suppress_begin();
        const strata_status status =
            strata_async_create(0, &(strata_async_options){.initial_size = UINT64_C(1) << 50}, &resource);
        const strata_error error = *strata_error_in_force();
        if (hushed)
            strata_error_suppress_end(status != STRATA_ERROR_OUT_OF_MEMORY);
        strata_cu.MemPoolDestroy = real;
        if (not_ended)
            real(not_ended);
        not_ended = NULL;
        strata_set_log_callback(NULL, NULL);
        check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
        assert_null(resource);
        assert_int_equal(error.status, STRATA_ERROR_OUT_OF_MEMORY);
        assert_non_null(strstr(error.message, "initial size"));
        assert_int_equal(heard, !hushed);
    }
}

static void handles_for_other_processes_are_made_where_the_device_can(test_fixture *fixture)
{
    (void)fixture;
    strata_device_info info;
    check_ok(strata_device_get_info(0, &info));
    const struct {
        strata_export_type type;
        bool possible;
    } exports[] = {{STRATA_EXPORT_POSIX_FD, info.fd_handles}, {STRATA_EXPORT_FABRIC, info.fabric_handles}};
    for (size_t i = 0; i < 2; i++) {
        strata_async_options options = {.export_type = exports[i].type};
        if (exports[i].possible) {
            own_stack made = make(&options);
            end(&made);
        } else {
            strata_resource *resource;
            check_status(strata_async_create(0, &options, &resource), STRATA_ERROR_UNSUPPORTED);
        }
    }
}

/* ---- whose pool ---- */

static void own_pools_are_different_and_end_with_their_resource(test_fixture *fixture)
{
    (void)fixture;
    test_calls calls;
    test_calls_begin(&calls);
    own_stack one = make(NULL), two = make(NULL);
    assert_ptr_not_equal(one.pool, two.pool);
    strata_block block = allocate(&one, MIB, NULL);
    check_status(strata_resource_deallocate(two.top, &block, NULL), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_stack_destroy(one.stack), STRATA_ERROR_BUSY);
    check_ok(strata_resource_deallocate(one.top, &block, NULL));
    end(&one);
    end(&two);
    assert_int_equal(test_calls_of(&calls, "cuMemPoolDestroy"), 2);
}

typedef struct pool_state {
    uint64_t threshold;
    int follow, opportunistic, internal;
} pool_state;

static pool_state state_of(CUmemoryPool pool)
{
    return (pool_state){
        .threshold = number_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
        .follow = switch_of(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
        .opportunistic = switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
        .internal = switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
    };
}

static void a_view_uses_the_pool_and_leaves_it_alone(test_fixture *fixture)
{
    (void)fixture;
    CUmemoryPool default_pool, given;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    check_cu(test_cu()->DeviceGetDefaultMemPool(&default_pool, 0));
    check_cu(test_cu()->MemPoolCreate(&given, &properties));
    cuuint64_t threshold = 7 * MIB;
    check_cu(test_cu()->MemPoolSetAttribute(given, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    const strata_async_options views[] = {{.pool = STRATA_ASYNC_POOL_DEFAULT},
                                          {.pool = STRATA_ASYNC_POOL_GIVEN, .given = given}};
    const CUmemoryPool pools[] = {default_pool, given};
    for (size_t i = 0; i < 2; i++) {
        pool_state before = state_of(pools[i]);
        uint64_t used = number_of(pools[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        own_stack made = make(&views[i]);
        assert_ptr_equal(made.pool, pools[i]);
        strata_block block = allocate(&made, MIB, NULL);
        assert_true(number_of(pools[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= used + MIB);
        check_ok(strata_resource_deallocate(made.top, &block, NULL));
        end(&made);
        pool_state after = state_of(pools[i]); /* and it still is there */
        assert_int_equal(after.threshold, before.threshold);
        assert_int_equal(after.follow, before.follow);
        assert_int_equal(after.opportunistic, before.opportunistic);
        assert_int_equal(after.internal, before.internal);
    }
    check_cu(test_cu()->MemPoolDestroy(given));
}

static void a_view_of_the_current_pool_is_of_the_one_that_was_current_when_it_was_made(test_fixture *fixture)
{
    (void)fixture;
    CUmemoryPool before, own;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    check_cu(test_cu()->DeviceGetMemPool(&before, 0));
    check_cu(test_cu()->MemPoolCreate(&own, &properties));
    check_cu(test_cu()->DeviceSetMemPool(0, own));
    strata_resource *resource;
    strata_stack *stack;
    strata_status status =
        strata_async_create(0, &(strata_async_options){.pool = STRATA_ASYNC_POOL_CURRENT}, &resource);
    check_cu(test_cu()->DeviceSetMemPool(0, before));
    check_ok(status);
    assert_ptr_equal(strata_async_pool_handle(resource), own);
    check_ok(strata_stack_build(&resource, 1, 0, &stack));
    check_ok(strata_stack_destroy(stack));
    check_cu(test_cu()->MemPoolDestroy(own));
}

static void only_an_async_resource_has_a_pool_handle(test_fixture *fixture)
{
    (void)fixture;
    strata_stack *stack;
    check_ok(strata_stack_create("direct", 0, &stack));
    assert_null(strata_async_pool_handle(strata_stack_top(stack)));
    assert_null(strata_async_pool_handle(NULL));
    check_ok(strata_stack_destroy(stack));
}

/* ---- giving back ---- */

static void trimming_gives_free_memory_back_and_says_how_much(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block keep = test_allocate(fixture, MIB, stream), large = test_allocate(fixture, 256 * MIB, stream);
    size_t released = 1;
    check_ok(strata_runtime_deallocate(fixture->runtime, &large));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_synchronize(stream);
    strata_usage before = test_usage(fixture);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, &released));
    assert_int_equal(released, 0);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    strata_usage after = test_usage(fixture);
    if (released == 0 && test_is_swept()) /* the driver was made not to tell */
        released = before.reserved_bytes - after.reserved_bytes;
    assert_true(released >= 200 * MIB);
    assert_int_equal(before.reserved_bytes - after.reserved_bytes, released);
    assert_true(after.reserved_bytes >= MIB);
    assert_true(after.reserved_peak >= before.reserved_bytes);
    test_write(fixture, &keep, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &keep));
}

/* The real entry, and which question of the test from now on is answered with an error. */
static PFN_cuMemPoolGetAttribute_v11020 ask_pool;
static unsigned refuse_at, asked;

static CUresult CUDAAPI refuse_one(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    return ++asked == refuse_at ? CUDA_ERROR_UNKNOWN : ask_pool(pool, attribute, value);
}

static void begin_refusing(unsigned nth)
{
    ask_pool = strata_cu.MemPoolGetAttribute;
    refuse_at = nth;
    asked = 0;
    strata_cu.MemPoolGetAttribute = refuse_one;
}

static void end_refusing(void)
{
    assert_true(asked >= refuse_at);
    strata_cu.MemPoolGetAttribute = ask_pool;
}

static void a_trim_that_was_done_is_no_failure_where_the_driver_does_not_tell_its_size(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (unsigned nth = 1; nth <= 2; nth++) {
        strata_block block = test_allocate(fixture, 64 * MIB, stream);
        size_t released = 1;
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_synchronize(stream);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        begin_refusing(nth);
        strata_status status = strata_runtime_trim(fixture->runtime, 0, &released);
        end_refusing();
        bool done = test_usage(fixture).reserved_bytes < 64 * MIB;
        assert_int_equal(status, nth == 1 ? STRATA_ERROR_DRIVER : STRATA_SUCCESS);
        assert_true(done == (nth == 2));
        assert_int_equal(released, 0);
    }
}

static void a_usage_that_the_driver_does_not_tell_has_what_strata_knows_and_zeros(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, MIB, NULL);
    for (unsigned nth = 1; nth <= 3; nth++) {
        strata_usage usage;
        memset(&usage, 0xff, sizeof usage);
        begin_refusing(nth);
        strata_status status = strata_runtime_usage(fixture->runtime, &usage);
        end_refusing();
        assert_int_equal(status, STRATA_ERROR_DRIVER);
        assert_int_equal(usage.live_bytes, MIB);
        assert_int_equal(usage.live_blocks, 1);
        assert_true(usage.reserved_bytes == 0 && usage.reserved_peak == 0 && usage.reserved_free == 0);
    }
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_request_is_charged_the_room_that_it_takes(test_fixture *fixture)
{
    enum { COUNT = 64 };
    const size_t sizes[] = {1, 511, 512, 513, 100000, MIB, MIB + 1};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_request request = {.bytes = sizes[i], .stream = stream};
        strata_block blocks[COUNT];
        size_t charge;
        check_ok(top->ops->charge(top, &request, &charge));
        assert_in_range(charge, sizes[i], sizes[i] + 511);
        for (size_t j = 0; j < COUNT; j++) {
            blocks[j] = test_allocate(fixture, sizes[i], stream);
            for (size_t k = 0; k < j; k++) {
                CUdeviceptr a = blocks[j].address, b = blocks[k].address;
                assert_true((a > b ? a - b : b - a) >= charge);
            }
        }
        for (size_t j = 0; j < COUNT; j++)
            check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[j]));
    }
}

/* ---- what was asked and then known ---- */

/* Reaping finds out how far the stream is; earlier work on it is then known to be done, and no free waits for it. */
static void work_that_is_known_to_be_complete_is_not_waited_for(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, writer), other = test_allocate(fixture, MIB, writer);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(fixture->runtime, &other));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_WRITE));
    assert_int_equal(test_calls_total(&calls), 0);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_NONE));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(by_default_a_pool_keeps_everything_and_reuses_in_every_way),
        TEST_CASE(each_option_reaches_the_pool_and_no_other_attribute),
        TEST_CASE(a_stack_text_reaches_the_pool_like_the_options),
        TEST_CASE(the_initial_size_is_reserved_and_free_at_the_start),
        TEST_CASE(retired_bytes_are_not_free),
        TEST_CASE(the_maximum_size_is_a_limit_and_a_refusal_spoils_nothing),
        TEST_CASE(the_limit_that_is_reported_is_the_one_that_holds),
        TEST_CASE(a_maximum_size_near_the_end_of_the_numbers_is_no_small_limit),
        TEST_CASE(options_that_make_no_sense_are_refused_and_leave_nothing),
        TEST_CASE(options_of_another_version_are_read_as_far_as_both_know_them),
        TEST_CASE(an_initial_size_that_does_not_fit_leaves_no_pool),
        TEST_CASE(a_pool_that_came_to_nothing_and_cannot_be_ended_is_told),
        TEST_CASE(handles_for_other_processes_are_made_where_the_device_can),
        TEST_CASE(own_pools_are_different_and_end_with_their_resource),
        TEST_CASE(a_view_uses_the_pool_and_leaves_it_alone),
        TEST_CASE(a_view_of_the_current_pool_is_of_the_one_that_was_current_when_it_was_made),
        TEST_CASE(only_an_async_resource_has_a_pool_handle),
        TEST_CASE(trimming_gives_free_memory_back_and_says_how_much),
        TEST_CASE(a_trim_that_was_done_is_no_failure_where_the_driver_does_not_tell_its_size),
        TEST_CASE(a_usage_that_the_driver_does_not_tell_has_what_strata_knows_and_zeros),
        TEST_CASE(a_request_is_charged_the_room_that_it_takes),
        TEST_CASE(work_that_is_known_to_be_complete_is_not_waited_for),
    };
    static const char *const stacks[] = {"async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
