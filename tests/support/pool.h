/* For tests of the pool: its values, its limits, and memory freed on streams. */
#ifndef STRATA_TESTS_SUPPORT_POOL_H
#define STRATA_TESTS_SUPPORT_POOL_H

#include "support/fixture.h"

#define MIB ((size_t)1 << 20)

enum { EDGE = 4096, ALL = 8 << 20 };

static inline uint64_t value_of(strata_runtime *runtime, const char *name)
{
    uint64_t value = 77;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &value, NULL));
    return value;
}

static strata_runtime *limited; /* the runtime with a limit; NULL: none */

static inline void set_limit(test_fixture *fixture, uint64_t bytes)
{
    limited = fixture->runtime;
    check_ok(strata_control(strata_runtime_stack(limited), "pool.limit", NULL, &bytes));
}

/* For test_before_clearing: the blocks of a failed case still exist, and its limit would hide the failure. */
static inline void lift_limit(void)
{
    if (limited)
        (void)strata_control(strata_runtime_stack(limited), "pool.limit", NULL, &(uint64_t){0});
    limited = NULL;
}

static inline strata_status try_to_allocate(test_fixture *fixture, size_t bytes, CUstream stream, strata_block *out)
{
    return strata_runtime_allocate(fixture->runtime, bytes, stream, out);
}

static inline void check_refused(test_fixture *fixture, size_t bytes, CUstream stream)
{
    strata_block block;
    check_status(try_to_allocate(fixture, bytes, stream, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(block.address == 0 && block.id.generation == 0);
}

/* Skips the running test, with a message, where the device's granularity is not `bytes`. */
static inline void needs_granule(size_t bytes)
{
    size_t granule = 0;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    check_cu(test_cu()->MemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (granule == bytes)
        return;
    print_message("memory is mapped in pieces of %zu bytes here, not of %zu\n", granule, bytes);
    skip();
}

/* Trims the pool, which then has no memory of the device, and whose free memory all counts as complete. */
static inline void empty_the_pool(test_fixture *fixture)
{
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
}

/* Allocates, writes and frees a block, on the stream itself. */
static inline strata_block leave_behind(test_fixture *fixture, size_t bytes, unsigned char value, CUstream stream)
{
    strata_block block = test_allocate(fixture, bytes, stream);
    test_write(fixture, &block, value, stream);
    test_free_on(fixture, &block, stream);
    return block;
}

static inline bool overlap(const strata_block *a, const strata_block *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* A use that reads the block's first bytes. */
static inline void read_head(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
    test_copy_back(fixture, block->address, EDGE, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
}

/* A use that writes the block's first bytes. */
static inline void write_head(test_fixture *fixture, const strata_block *block, unsigned char value, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, value, EDGE, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
}

/* Checks both ends of the block after all work. */
static inline void check_ends(test_fixture *fixture, const strata_block *block, unsigned char value, CUstream stream)
{
    check_cu(test_cu()->CtxSynchronize());
    const unsigned char *head = test_copy_back(fixture, block->address, EDGE, stream);
    const unsigned char *tail = test_copy_back(fixture, block->address + block->bytes - EDGE, EDGE, stream);
    test_synchronize(stream);
    check_bytes(head, value, EDGE);
    check_bytes(tail, value, EDGE);
}

#endif
