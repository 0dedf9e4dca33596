/* pool(deterministic=on): a program that makes the same calls in the same order gets the same addresses in each run,
 * whatever the device's progress. Each run is a process that prints its blocks' offsets from the first as one number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/child.h"
#include "support/pool.h"

enum { STREAMS = 6, LIVE = 48, OPERATIONS = 1500 };

/* ---- what a run does ---- */

static strata_runtime *runtime;
static CUstream streams[STREAMS];
static strata_block blocks[LIVE];
static uint64_t traffic = 7, waits; /* requests are equal in each run, waits of the host are not */
static uint64_t told;               /* a hash of all addresses */
static CUdeviceptr first;

static size_t pick(uint64_t *state, size_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(*state >> 33) % below;
}

static void tell(uint64_t what)
{
    told = (told ^ what) * UINT64_C(0x100000001b3);
}

static void use(const strata_block *block, CUstream stream, strata_access access)
{
    child_ok(strata_runtime_prepare_block_use(runtime, block, stream, access));
    test_fill(block->address, 0x11, block->requested < EDGE ? block->requested : EDGE, stream);
    child_ok(strata_runtime_finish_block_use(runtime, block, stream, access));
}

/* Sizes of all kinds: cached ones repeatedly, and some that need remapping. */
static size_t some_size(void)
{
    switch (pick(&traffic, 4)) {
    case 0:
        return (size_t)512 << pick(&traffic, 12);
    case 1:
        return pick(&traffic, 200000) + 1;
    case 2:
        return pick(&traffic, MIB) + 1;
    default:
        return pick(&traffic, 6 * MIB) + 1;
    }
}

static void do_one(void)
{
    strata_block *block = &blocks[pick(&traffic, LIVE)];
    CUstream stream = streams[pick(&traffic, STREAMS)], other = streams[pick(&traffic, STREAMS)];
    if (!block->address) {
        const strata_status status = strata_runtime_allocate(runtime, some_size(), stream, block);
        first = first ? first : block->address;
        tell(status == STRATA_SUCCESS ? block->address - first + 1 : 0);
        child_check(status == STRATA_SUCCESS || status == STRATA_ERROR_OUT_OF_MEMORY);
        if (status == STRATA_SUCCESS)
            use(block, stream, STRATA_ACCESS_WRITE);
    } else if (pick(&traffic, 3) == 0) {
        use(block, other, STRATA_ACCESS_READ_WRITE);
    } else {
        child_ok(pick(&traffic, 2) ? strata_runtime_deallocate_on(runtime, block, other)
                                   : strata_runtime_deallocate(runtime, block));
        *block = (strata_block){0};
    }
}

static void wait_somewhere(void)
{
    const size_t what = pick(&waits, 16);
    if (what < STREAMS)
        child_check(test_cu()->StreamSynchronize(streams[what]) == CUDA_SUCCESS);
    else if (what == STREAMS)
        child_check(test_cu()->CtxSynchronize() == CUDA_SUCCESS);
}

static void run(const char *text)
{
    char number[32];
    const char *seed = getenv("STRATA_TEST_WAITS");
    waits = seed ? strtoull(seed, NULL, 10) : 0;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    for (size_t i = 1; i < STREAMS; i++)
        child_ok(strata_runtime_stream_acquire(runtime, &streams[i])); /* and the legacy stream is the first */
    for (unsigned i = 0; i < OPERATIONS; i++) {
        do_one();
        if (waits)
            wait_somewhere();
        if (i % 400 == 250)
            child_ok(strata_runtime_reap_pending(runtime));
        if (i % 400 == 350)
            child_ok(strata_runtime_trim(runtime, 8 * MIB, NULL));
    }
    tell(value_of(runtime, "pool.chunks.moved"));
    child_check(value_of(runtime, "pool.chunks.moved") > 0);
    for (size_t i = 0; i < LIVE; i++)
        if (blocks[i].address)
            child_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    for (size_t i = 1; i < STREAMS; i++)
        child_ok(strata_runtime_stream_release(runtime, streams[i]));
    child_ok(strata_runtime_destroy(runtime));
    const int length = snprintf(number, sizeof number, "%016llx\n", (unsigned long long)told);
    const char *file = getenv("STRATA_TEST_TOLD");
    FILE *to = file ? fopen(file, "w") : NULL;
    child_check(to && fwrite(number, 1, (size_t)length, to) == (size_t)length && fclose(to) == 0);
}

static void run_deterministic(void)
{
    run("pool(deterministic=on, max_size=32MiB, release_threshold=24MiB)");
}

static void run_as_it_comes(void)
{
    run("pool(max_size=32MiB, release_threshold=24MiB)");
}

/* ---- comparing runs ---- */

static const char *const surroundings[][5] = {
    {"STRATA_SIM_POLICY=early", NULL},
    {"STRATA_SIM_POLICY=early", "STRATA_TEST_WAITS=1", NULL},
    {"STRATA_SIM_POLICY=late", NULL},
    {"STRATA_SIM_POLICY=late", "STRATA_TEST_WAITS=2", NULL},
    {"STRATA_SIM_POLICY=random", "STRATA_SIM_SEED=3", NULL},
    {"STRATA_SIM_POLICY=random", "STRATA_SIM_SEED=4", "STRATA_TEST_WAITS=5", NULL},
};

enum { RUNS = sizeof surroundings / sizeof surroundings[0] };

static uint64_t addresses_of(const char *scenario, const char *const *surrounding)
{
    char path[] = "/tmp/strata-deterministic-XXXXXX", variable[80], number[32] = "";
    const char *changes[6];
    size_t count = 0;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    for (; surrounding[count]; count++)
        changes[count] = surrounding[count];
    snprintf(variable, sizeof variable, "STRATA_TEST_TOLD=%s", path);
    changes[count++] = variable;
    changes[count] = NULL;
    test_child_run(scenario, changes);
    const ssize_t got = read(file, number, sizeof number - 1);
    close(file);
    unlink(path);
    assert_true(got > 16);
    return strtoull(number, NULL, 16);
}

static void the_same_calls_get_the_same_addresses_in_each_run(void **state)
{
    (void)state;
    const uint64_t once = addresses_of("run_deterministic", surroundings[0]);
    for (size_t i = 0; i < RUNS; i++)
        if (addresses_of("run_deterministic", surroundings[i]) != once)
            fail_msg("run %zu got other addresses", i);
}

/* Otherwise the other test would prove nothing. */
static void without_it_they_depend_on_how_far_the_device_is(void **state)
{
    (void)state;
    test_needs_simulated_driver("how far it is is chosen there");
    const uint64_t once = addresses_of("run_as_it_comes", surroundings[0]);
    size_t others = 0;
    for (size_t i = 0; i < RUNS; i++)
        others += addresses_of("run_as_it_comes", surroundings[i]) != once;
    assert_true(others > 0);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(run_deterministic), TEST_SCENARIO(run_as_it_comes)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_calls_get_the_same_addresses_in_each_run),
        cmocka_unit_test(without_it_they_depend_on_how_far_the_device_is),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
