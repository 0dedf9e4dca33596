/* fixed: a chunk that cannot be entered into the index by address, nor be given back at once. It gives no block, and
 * the next trim gives it back. Host memory is refused between the library and its allocator (--wrap). */
#include "support/pool.h"
#include "support/sweep.h"

enum { BYTES = 4096, CHUNK = 16384, INDEXED = 16 /* chunks that there is room for at first */ };

static size_t countdown;      /* the call for host memory that fails, counted from 1; 0: none */
static bool drought, refused; /* all after that one fail, too; one has failed */

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    if (!countdown || --countdown)
        return __real_strata_host_zalloc(bytes);
    countdown = drought;
    refused = true;
    return NULL;
}

static struct {
    CUresult(CUDAAPI *free)(CUdeviceptr, CUstream);
    test_fixture *fixture; /* allocates during a free; NULL: none does */
    strata_block block;
    strata_status status;
} refusing;

static CUresult CUDAAPI refuse_to_free(CUdeviceptr address, CUstream stream)
{
    test_fixture *fixture = refusing.fixture;
    (void)address;
    (void)stream;
    refusing.fixture = NULL;
    if (fixture) {
        refusing.status = strata_runtime_allocate(fixture->runtime, BYTES, NULL, &refusing.block);
        countdown = drought = true;
    }
    return CUDA_ERROR_UNKNOWN;
}

static void refuse_frees(test_fixture *fixture)
{
    refusing.free = strata_cu.MemFreeAsync;
    refusing.fixture = fixture;
    strata_cu.MemFreeAsync = refuse_to_free;
}

static void stop_refusing(void)
{
    countdown = drought = false;
    strata_cu.MemFreeAsync = refusing.free;
}

static void free_and_trim(strata_runtime *runtime, const strata_block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    check_ok(strata_runtime_reap_pending(runtime));
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(value_of(runtime, "budget.in_use"), 0);
}

/* One allocation whose n-th call for host memory fails, alone or with all after it, and one with host memory. False
 * once there is no n-th call. */
static bool allocate_without_host_memory(test_fixture *fixture, size_t n, bool onwards, unsigned *orphans)
{
    strata_runtime *runtime;
    strata_block block, found;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    refuse_frees(NULL);
    refused = false;
    drought = onwards;
    countdown = n;
    strata_status status = strata_runtime_allocate(runtime, BYTES, NULL, &block);
    stop_refusing();
    if (status != STRATA_SUCCESS) {
        check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    }
    *orphans += value_of(runtime, "budget.in_use") == 2 * CHUNK;
    check_ok(strata_runtime_find(runtime, block.address, &found));
    free_and_trim(runtime, &block, 1);
    check_ok(strata_runtime_destroy(runtime));
    return refused;
}

static void a_chunk_that_could_not_be_entered_serves_nobody_and_goes_with_the_next_trim(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* what layers below could not give back when they failed themselves goes with the driver's pool */
    for (int onwards = 0; onwards < 2; onwards++) {
        unsigned orphans = 0;
        for (size_t n = 1; allocate_without_host_memory(fixture, n, onwards, &orphans);)
            n++;
        assert_int_equal(orphans, 1);
    }
}

/* Its place was taken while the layer below did not take it back. */
static void a_chunk_that_could_not_be_entered_again_serves_nobody_and_goes_with_the_next_trim(test_fixture *fixture)
{
    enum { EACH = CHUNK / BYTES, BLOCKS = INDEXED * EACH };
    strata_block blocks[BLOCKS], found;
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, NULL);
    assert_int_equal(value_of(fixture->runtime, "budget.in_use"), INDEXED * CHUNK);
    for (size_t i = BLOCKS - EACH; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], NULL);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    refuse_frees(fixture);
    const strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    stop_refusing();
    check_status(status, STRATA_ERROR_DRIVER);
    check_ok(refusing.status);
    blocks[BLOCKS - EACH] = refusing.block;
    for (size_t i = 1; i < EACH + 1; i++) { /* the others of its chunk, and one that they leave no place for */
        refusing.block = test_allocate(fixture, BYTES, NULL);
        check_ok(strata_runtime_find(fixture->runtime, refusing.block.address, &found));
        if (i < EACH)
            blocks[BLOCKS - EACH + i] = refusing.block;
    }
    assert_int_equal(value_of(fixture->runtime, "budget.in_use"), (INDEXED + 2) * CHUNK);
    test_free_on(fixture, &refusing.block, NULL);
    free_and_trim(fixture->runtime, blocks, BLOCKS);
}

int main(void)
{
    static const char *const stacks[] = {"fixed(bytes=4KiB, chunk=16KiB), budget(limit=1GiB), async"};
    static const test_case cases[] = {
        TEST_CASE(a_chunk_that_could_not_be_entered_serves_nobody_and_goes_with_the_next_trim),
        TEST_CASE(a_chunk_that_could_not_be_entered_again_serves_nobody_and_goes_with_the_next_trim),
    };
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
