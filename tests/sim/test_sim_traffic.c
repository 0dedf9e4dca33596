/* Random programs on the simulated driver. Each block is filled with a pattern of its own and checked before it is
 * freed, in any stream that was made to wait as it must: under every policy and seed all bytes are right. The same
 * programs without their waits are caught. The number of seeds is the first argument. */
#include "support/sim.h"

#include <pthread.h>

enum { STREAMS = 5, BLOCKS = 200, STEPS = 2000 };

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry strata_pattern_fill(.param .u64 a, .param .u64 b, .param .u64 c)\n{ ret; }\n"
                          ".visible .entry strata_pattern_check(.param .u64 a, .param .u64 b, .param .u64 c,"
                          " .param .u64 d)\n{ ret; }\n";

static unsigned seeds = 6;

struct block {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t pattern;
    unsigned last_stream;
};

struct program {
    uint64_t random;
    bool waits;
    CUmemoryPool pool;
    CUmodule module;
    CUfunction fill;
    CUfunction check;
    CUstream streams[STREAMS];
    CUevent event;
    uint64_t *result;
    struct block blocks[BLOCKS];
    unsigned count;
    uint64_t patterns;
    uint64_t trace; /* a hash of all addresses it got */
};

static uint64_t draw(struct program *program, uint64_t below)
{
    program->random = program->random * 6364136223846793005U + 1442695040888963407U;
    return (program->random >> 33) % below;
}

static void begin(struct program *program, uint64_t seed, bool waits)
{
    *program = (struct program){.random = seed * 977 + 1, .waits = waits};
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(p_cuMemPoolCreate(&program->pool, &properties));
    uint64_t threshold = draw(program, 2) ? UINT64_MAX : 0;
    OK(p_cuMemPoolSetAttribute(program->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    for (int policy = 1; policy <= 3; policy++) {
        int on = draw(program, 4) != 0;
        OK(p_cuMemPoolSetAttribute(program->pool, (CUmemPool_attribute)policy, &on));
    }
    OK(p_cuModuleLoadData(&program->module, ptx));
    OK(p_cuModuleGetFunction(&program->fill, program->module, "strata_pattern_fill"));
    OK(p_cuModuleGetFunction(&program->check, program->module, "strata_pattern_check"));
    for (unsigned i = 0; i < STREAMS; i++)
        OK(p_cuStreamCreate(&program->streams[i], i < 3 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(p_cuEventCreate(&program->event, CU_EVENT_DISABLE_TIMING));
    OK(p_cuMemHostAlloc((void **)&program->result, 16, 0));
    program->result[0] = 0;
    program->result[1] = UINT64_MAX;
}

static void launch(CUfunction function, CUstream stream, const struct block *block, uint64_t *result)
{
    uint64_t result_address = (uint64_t)(uintptr_t)result;
    uint64_t address = block->address;
    uint64_t bytes = block->bytes;
    uint64_t pattern = block->pattern;
    void *parameters[] = {&address, &bytes, &pattern, &result_address};
    OK(p_cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
}

static void hand_over(struct program *program, struct block *block, unsigned to)
{
    if (block->last_stream != to && program->waits) {
        OK(p_cuEventRecord(program->event, program->streams[block->last_stream]));
        OK(p_cuStreamWaitEvent(program->streams[to], program->event, 0));
    }
    block->last_stream = to;
}

static void add(struct program *program)
{
    struct block *block = &program->blocks[program->count++];
    block->last_stream = (unsigned)draw(program, STREAMS);
    block->bytes = 1 + draw(program, draw(program, 8) ? 8000 : 3000000);
    block->pattern = ++program->patterns << 32;
    CUstream stream = program->streams[block->last_stream];
    OK(p_cuMemAllocFromPoolAsync(&block->address, block->bytes, program->pool, stream));
    program->trace = (program->trace ^ block->address) * 1099511628211U;
    launch(program->fill, stream, block, NULL);
}

static void drop(struct program *program, unsigned index)
{
    struct block *block = &program->blocks[index];
    hand_over(program, block, (unsigned)draw(program, STREAMS));
    launch(program->check, program->streams[block->last_stream], block, program->result);
    hand_over(program, block, (unsigned)draw(program, STREAMS));
    OK(p_cuMemFreeAsync(block->address, program->streams[block->last_stream]));
    *block = program->blocks[--program->count];
}

static void step(struct program *program)
{
    uint64_t kind = draw(program, 100);
    if (kind == 0) {
        OK(p_cuStreamSynchronize(program->streams[draw(program, STREAMS)]));
    } else if (kind == 1) {
        CUresult result = p_cuStreamQuery(program->streams[draw(program, STREAMS)]);
        assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    } else if (kind == 2) {
        OK(p_cuMemPoolTrimTo(program->pool, 0));
    } else if (kind == 3 && program->waits) {
        unsigned stream = (unsigned)draw(program, STREAMS);
        OK(p_cuStreamDestroy(program->streams[stream]));
        OK(p_cuCtxSynchronize());
        OK(p_cuStreamCreate(&program->streams[stream], stream < 3 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    } else if (program->count == 0 || (program->count < BLOCKS && kind < 55)) {
        add(program);
    } else {
        drop(program, (unsigned)draw(program, program->count));
    }
}

/* Gives back the number of wrong bytes. */
static uint64_t end(struct program *program)
{
    while (program->count > 0)
        drop(program, program->count - 1);
    OK(p_cuCtxSynchronize());
    uint64_t wrong = program->result[0];
    for (unsigned i = 0; i < STREAMS; i++)
        OK(p_cuStreamDestroy(program->streams[i]));
    OK(p_cuEventDestroy(program->event));
    OK(p_cuMemFreeHost(program->result));
    OK(p_cuModuleUnload(program->module));
    OK(p_cuMemPoolDestroy(program->pool));
    return wrong;
}

static uint64_t run(uint64_t seed, bool waits, uint64_t *trace)
{
    struct program *program = malloc(sizeof *program);
    assert_non_null(program);
    begin(program, seed, waits);
    for (unsigned i = 0; i < STEPS; i++)
        step(program);
    uint64_t wrong = end(program);
    *trace = program->trace;
    free(program);
    return wrong;
}

static void a_program_with_its_waits_is_right_under_every_policy_and_seed(void **state)
{
    (void)state;
    uint64_t trace;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        for (size_t i = 0; i < 3; i++) {
            OK(p_set_policy(test_policies[i]));
            OK(p_set_seed(seed));
            test_sim_begin();
            assert_int_equal(run(seed, true, &trace), 0);
            test_sim_end();
        }
    }
}

/* A use that does not wait finds the block not filled yet, or freed: wrong bytes here, an illegal access elsewhere.
 * Only what is right in every order passes, so the check alone is what may run early. */
static void a_program_without_its_waits_is_caught(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    struct program *program = malloc(sizeof *program);
    assert_non_null(program);
    begin(program, 1, false);
    struct block block = {.bytes = 1000, .pattern = 5};
    OK(p_cuMemAlloc(&block.address, block.bytes));
    launch(program->fill, program->streams[0], &block, NULL);
    launch(program->check, program->streams[1], &block, program->result);
    OK(p_cuStreamSynchronize(program->streams[1]));
    assert_true(program->result[0] > 900);
    OK(p_cuMemFree(block.address));
    program->result[0] = 0;
    end(program);
    free(program);
    test_sim_end();
}

static void the_same_seed_makes_the_same_run(void **state)
{
    (void)state;
    uint64_t traces[3];
    OK(p_set_policy(STRATA_SIM_RANDOM));
    for (int i = 0; i < 3; i++) {
        OK(p_set_seed(i == 2 ? 8 : 7));
        test_sim_begin();
        assert_int_equal(run(3, true, &traces[i]), 0);
        test_sim_end();
    }
    assert_true(traces[0] == traces[1]);
    assert_true(traces[0] != traces[2]);
}

enum { THREADS = 8 };

static void host_step(void *data)
{
    ++*(unsigned *)data;
}

static void *thread_main(void *data)
{
    unsigned *calls = data;
    CUstream stream;
    CUevent event;
    CUcontext context;
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 300; i++) {
        CUdeviceptr address;
        uint32_t word = 0;
        OK(p_cuMemAllocAsync(&address, 4096, stream));
        OK(p_cuMemsetD32Async(address, (unsigned)i, 1024, stream));
        if (i % 16 == 0)
            OK(p_cuLaunchHostFunc(stream, host_step, calls));
        OK(p_cuEventRecord(event, stream));
        OK(p_cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        OK(p_cuMemcpyDtoHAsync(&word, address + 4092, 4, CU_STREAM_PER_THREAD));
        assert_int_equal(word, i);
        OK(p_cuMemFreeAsync(address, CU_STREAM_PER_THREAD));
    }
    while (p_cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    }
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuDevicePrimaryCtxRelease(0));
    return NULL;
}

static void many_threads_share_a_driver(void **state)
{
    (void)state;
    for (size_t policy = 0; policy < 3; policy++) {
        OK(p_set_policy(test_policies[policy]));
        test_sim_begin();
        pthread_t threads[THREADS];
        unsigned calls[THREADS] = {0};
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &calls[i]), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        OK(p_cuCtxSynchronize());
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(calls[i], 19);
        test_sim_end();
    }
}

int main(int count, char **arguments)
{
    if (count > 1)
        seeds = (unsigned)strtoul(arguments[1], NULL, 10);
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_with_its_waits_is_right_under_every_policy_and_seed),
        cmocka_unit_test(a_program_without_its_waits_is_caught),
        cmocka_unit_test(the_same_seed_makes_the_same_run),
        cmocka_unit_test(many_threads_share_a_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
