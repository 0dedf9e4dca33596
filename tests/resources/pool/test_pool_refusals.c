/* pool: the cost of a refused request, and the state that it leaves. */
#include <stdlib.h>

#include "core/stack/stack.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"

enum { PARTS = 8 };

typedef struct scene {
    strata_runtime *runtime;
    pool *self;
    CUstream stream;
    strata_block parts[PARTS];
} scene;

/* Every other one of PARTS blocks of 32 MiB is free. */
static void begin(scene *all, const char *stack)
{
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &all->runtime));
    check_ok(strata_runtime_stream_acquire(all->runtime, &all->stream));
    all->self = pool_inside(all->runtime);
    for (int i = 0; i < PARTS; i++)
        check_ok(strata_runtime_allocate(all->runtime, 32 * MIB, all->stream, &all->parts[i]));
    for (int i = 0; i < PARTS; i += 2)
        check_ok(strata_runtime_deallocate(all->runtime, &all->parts[i]));
}

static void end(scene *all)
{
    for (int i = 1; i < PARTS; i += 2)
        check_ok(strata_runtime_deallocate(all->runtime, &all->parts[i]));
    check_ok(strata_runtime_stream_release(all->runtime, all->stream));
    check_ok(strata_runtime_destroy(all->runtime));
}

static strata_status try(scene *all, size_t bytes, strata_block *block)
{
    return strata_runtime_allocate(all->runtime, bytes, all->stream, block);
}

static void check_free_memory_is_there(scene *all)
{
    test_calls calls;
    strata_block again[PARTS / 2];
    test_calls_begin(&calls);
    for (int i = 0; i < PARTS / 2; i++)
        check_ok(try(all, 32 * MIB, &again[i]));
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"), 0);
    assert_int_equal(test_calls_of(&calls, "cuMemMap"), 0);
    for (int i = 0; i < PARTS / 2; i++)
        check_ok(strata_runtime_deallocate(all->runtime, &again[i]));
}

static void more_than_the_device_has_is_refused_at_once(void **state)
{
    (void)state;
    scene all;
    strata_block block;
    test_calls calls;
    begin(&all, "pool");
    const uint64_t reserved = value_of(all.runtime, "pool.reserved");
    test_calls_begin(&calls);
    check_status(try(&all, device_total(all.self), &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"), 0);
    assert_int_equal(test_calls_of(&calls, "cuMemUnmap"), 0);
    assert_int_equal(value_of(all.runtime, "pool.reserved"), reserved);
    check_free_memory_is_there(&all);
    end(&all);
}

/* Another program takes the rest of the device, except so many bytes. */
static CUdeviceptr leave(size_t bytes)
{
    CUdeviceptr others;
    size_t left, total;
    check_cu(test_cu()->MemGetInfo(&left, &total));
    check_cu(test_cu()->MemAlloc(&others, left - bytes));
    return others;
}

/* The driver tells what other programs have of the device. */
static void memory_of_other_programs_is_not_requested(void **state)
{
    (void)state;
    test_needs_simulated_driver("nobody else uses it");
    scene all;
    strata_block block;
    test_calls calls;
    begin(&all, "pool");
    const CUdeviceptr others = leave(400 * MIB);
    test_calls_begin(&calls);
    check_status(try(&all, 600 * MIB, &block), STRATA_ERROR_OUT_OF_MEMORY); /* 128 MiB are free */
    assert_in_range(test_calls_of(&calls, "cuMemCreate"), 1, 4);            /* one handle for all, in vain */
    assert_int_equal(test_calls_of(&calls, "cuMemUnmap"), 0);
    check_ok(try(&all, 500 * MIB, &block));
    check_ok(strata_runtime_deallocate(all.runtime, &block));
    check_cu(test_cu()->MemFree(others));
    end(&all);
}

static CUresult CUDAAPI say_little(size_t *left, size_t *total)
{
    *left = MIB;
    *total = 4096 * MIB;
    return CUDA_SUCCESS;
}

/* Managed memory makes room for other memory, and counts as used until then. */
static void memory_that_the_device_makes_room_for_serves(void **state)
{
    (void)state;
    scene all;
    strata_block block;
    begin(&all, "pool");
    CUresult(CUDAAPI * truth)(size_t *, size_t *) = strata_cu.MemGetInfo;
    strata_cu.MemGetInfo = say_little;
    const strata_status status = try(&all, 500 * MIB, &block);
    strata_cu.MemGetInfo = truth;
    check_ok(status);
    check_ok(strata_runtime_deallocate(all.runtime, &block));
    end(&all);
}

/* The device is full, and a part of what the request needs is free, between blocks. */
static void nothing_is_returned_where_the_device_is_full(void **state)
{
    (void)state;
    test_needs_simulated_driver("nobody else uses it");
    scene all;
    strata_block block;
    begin(&all, "pool(chunk=4MiB)");
    assert_true(value_of(all.runtime, "pool.chunks.made") < PARTS * 32 / 2); /* larger than a granule */
    const CUdeviceptr others = leave(0);
    const uint64_t reserved = value_of(all.runtime, "pool.reserved"), free = value_of(all.runtime, "pool.free");
    for (size_t more = 2 * MIB; more <= 16 * MIB; more += 2 * MIB)
        check_status(try(&all, free + more, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(value_of(all.runtime, "pool.reserved"), reserved);
    check_free_memory_is_there(&all);
    check_cu(test_cu()->MemFree(others));
    end(&all);
}

/* The device's memory is used up meanwhile: the first refusal shows it, before anything is remapped. */
static void a_full_device_is_tried_once_and_nothing_is_remapped(void **state)
{
    (void)state;
    scene all;
    strata_block block;
    test_calls calls;
    begin(&all, "pool(chunk=8MiB)");
    const uint64_t reserved = value_of(all.runtime, "pool.reserved"), free = value_of(all.runtime, "pool.free");
    test_fault_begin(TEST_FAULT_MEM_CREATE, 11, true, CUDA_ERROR_OUT_OF_MEMORY);
    test_calls_begin(&calls);
    const strata_status status = try(&all, 512 * MIB, &block);
    const uint64_t made = test_calls_of(&calls, "cuMemCreate"), unmapped = test_calls_of(&calls, "cuMemUnmap");
    test_fault_end();
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    print_message("%llu calls of cuMemCreate\n", (unsigned long long)made);
    assert_in_range(made, 10, 12);
    assert_int_equal(unmapped, 0);
    assert_int_equal(value_of(all.runtime, "pool.reserved"), reserved);
    assert_int_equal(value_of(all.runtime, "pool.free"), free);
    check_free_memory_is_there(&all);
    end(&all);
}

/* 128 MiB of the request are free; the overhead limit would allow 24 MiB more than are missing. */
static void where_the_overhead_is_not_to_be_had_what_is_missing_is(void **state)
{
    (void)state;
    test_needs_simulated_driver("nobody else uses it");
    scene all;
    strata_block block;
    begin(&all, "pool");
    const CUdeviceptr others = leave(310 * MIB);
    check_ok(try(&all, 428 * MIB, &block));
    assert_int_equal(value_of(all.runtime, "pool.reserved"), (PARTS * 32 + 300) * MIB);
    check_ok(strata_runtime_deallocate(all.runtime, &block));
    check_cu(test_cu()->MemFree(others));
    end(&all);
}

static struct {
    CUresult(CUDAAPI *create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUdeviceptr memory; /* 0: none */
} others_have;

/* The other program returns its memory once the pool was refused. */
static CUresult CUDAAPI create_or_give_way(CUmemGenericAllocationHandle *handle, size_t bytes,
                                           const CUmemAllocationProp *properties, unsigned long long flags)
{
    const CUresult result = others_have.create(handle, bytes, properties, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && others_have.memory) {
        check_cu(test_cu()->MemFree(others_have.memory));
        others_have.memory = 0;
    }
    return result;
}

static void check_memory_that_others_return(const char *stack)
{
    scene all;
    strata_block block;
    begin(&all, stack);
    others_have.memory = leave(0);
    others_have.create = strata_cu.MemCreate;
    strata_cu.MemCreate = create_or_give_way;
    const strata_status status = try(&all, 200 * MIB, &block); /* 128 MiB are free */
    strata_cu.MemCreate = others_have.create;
    assert_int_equal(others_have.memory, 0);
    check_ok(status);
    check_ok(strata_runtime_deallocate(all.runtime, &block));
    end(&all);
}

static void memory_that_others_return_meanwhile_serves(void **state)
{
    (void)state;
    test_needs_simulated_driver("nobody else uses it");
    check_memory_that_others_return("pool");
    check_memory_that_others_return("pool(max_size=800MiB)");
}

/* The bytes of the refused request were never live. */
static void a_refused_request_leaves_the_overhead_as_it_was(void **state)
{
    static const char *const stacks[] = {"pool", "pool(overhead=44)", "pool(max_size=512MiB)", "pool, direct"};
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        scene all;
        strata_block block;
        begin(&all, stacks[i]);
        const uint64_t peak = peak_live(all.self);
        assert_int_equal(peak, PARTS * 32 * MIB);
        check_status(try(&all, 2 * (size_t)device_total(all.self), &block), STRATA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(peak_live(all.self), peak);
        check_ok(try(&all, 256 * MIB, &block));
        assert_int_equal(peak_live(all.self), (PARTS / 2 * 32 + 256) * MIB);
        check_ok(strata_runtime_deallocate(all.runtime, &block));
        end(&all);
    }
}

/* A layer that rounds up gives more than the pool may reserve; the pool uses what it has requested. */
static void what_a_layer_below_gives_beyond_the_limit_is_not_the_pools(void **state)
{
    (void)state;
    strata_runtime *runtime;
    CUstream stream;
    strata_block blocks[3];
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "pool(max_size=10MiB), binning(bins=6MiB), direct"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_ok(strata_runtime_allocate(runtime, 4 * MIB, stream, &blocks[0]));
    assert_int_equal(value_of(runtime, "pool.reserved"), 6 * MIB);
    check_ok(strata_runtime_allocate(runtime, 4 * MIB, stream, &blocks[1]));
    assert_int_equal(value_of(runtime, "pool.reserved.peak"), 10 * MIB);
    check_status(strata_runtime_allocate(runtime, 4 * MIB, stream, &blocks[2]), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(value_of(runtime, "pool.reserved.peak"), 10 * MIB);
    for (int i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    assert_int_equal(value_of(runtime, "pool.reserved"), 0);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

static PFN_cuMemAddressReserve_v10020 real_reserve;
static size_t addresses;

static CUresult CUDAAPI note_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags)
{
    addresses = bytes;
    return real_reserve(address, bytes, alignment, hint, flags);
}

static void addresses_are_reserved_in_proportion_to_the_limit(void **state)
{
    (void)state;
    test_needs_simulated_driver("its device is small");
    strata_runtime *runtime;
    uint64_t limit = 1024 * MIB;
    real_reserve = strata_cu.MemAddressReserve;
    strata_cu.MemAddressReserve = note_reserve;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(max_size=63MiB)"}, &runtime));
    assert_int_equal(addresses, 8 * 64 * MIB);
    check_status(strata_control(strata_runtime_stack(runtime), "pool.limit", NULL, &limit), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "begin with a larger max_size");
    limit = 4 * 64 * MIB;
    check_ok(strata_control(strata_runtime_stack(runtime), "pool.limit", NULL, &limit));
    check_ok(strata_runtime_destroy(runtime));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    assert_int_equal(addresses, 8 * 4096 * MIB);
    check_ok(strata_runtime_destroy(runtime));
    strata_cu.MemAddressReserve = real_reserve;
}

/* Two large reservations are refused, then a smaller one succeeds; or all are refused. */
static void a_pool_with_few_addresses_or_none_serves_all_the_same(void **state)
{
    (void)state;
    test_needs_simulated_driver("its device is small");
    for (unsigned refused = 2; refused <= 3; refused++) {
        strata_runtime *runtime;
        strata_block block;
        test_refuse("cuMemAddressReserve", 1, refused, CUDA_ERROR_OUT_OF_MEMORY);
        const strata_status status = strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime);
        test_refuse_no_more();
        check_ok(status);
        check_ok(strata_runtime_allocate(runtime, 100 * MIB, NULL, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void what_needs_addresses_is_refused_without_them(void **state)
{
    (void)state;
    test_needs_simulated_driver("its device is small");
    strata_runtime *runtime;
    test_refuse("cuMemAddressReserve", 1, 3, CUDA_ERROR_OUT_OF_MEMORY);
    strata_status status = strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(export=fd)"}, &runtime);
    test_refuse_no_more();
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "of addresses for a pool");
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "4GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_the_device_has_is_refused_at_once),
        cmocka_unit_test(addresses_are_reserved_in_proportion_to_the_limit),
        cmocka_unit_test(a_pool_with_few_addresses_or_none_serves_all_the_same),
        cmocka_unit_test(what_needs_addresses_is_refused_without_them),
        cmocka_unit_test(memory_of_other_programs_is_not_requested),
        cmocka_unit_test(memory_that_the_device_makes_room_for_serves),
        cmocka_unit_test(nothing_is_returned_where_the_device_is_full),
        cmocka_unit_test(a_full_device_is_tried_once_and_nothing_is_remapped),
        cmocka_unit_test(where_the_overhead_is_not_to_be_had_what_is_missing_is),
        cmocka_unit_test(memory_that_others_return_meanwhile_serves),
        cmocka_unit_test(a_refused_request_leaves_the_overhead_as_it_was),
        cmocka_unit_test(what_a_layer_below_gives_beyond_the_limit_is_not_the_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
