/* What a sampling guard says once the device was stopped by an access past the end of a sampled block, or after its
 * free. A device that was stopped answers nothing any more, so each case has a process of its own. */
#include <stdio.h>
#include <string.h>

#include "core/base/size_text.h"
#include "driver/kernels/kernels.h"
#include "support/child.h"

enum { GRANULE = 2 << 20, OTHERS = 3 };

static strata_runtime *runtime;
static CUstream stream;
static strata_guard_finding told[64];
static size_t told_count;

static void note_finding(const strata_guard_finding *finding, void *data)
{
    (void)data;
    if (told_count < sizeof told / sizeof told[0])
        told[told_count] = *finding;
    told_count++;
}

static strata_resource *top(void)
{
    return strata_stack_top(strata_runtime_stack(runtime));
}

static void begin(const char *text)
{
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
}

static strata_block allocate(size_t bytes, const char *name)
{
    strata_block block;
    strata_request request = {.bytes = bytes, .stream = stream};
    child_ok(strata_tag_intern(name, &request.tag));
    child_ok(strata_runtime_allocate_request(runtime, &request, &block));
    return block;
}

/* A kernel that writes so many bytes. */
static CUresult write_bytes(CUdeviceptr address, size_t bytes)
{
    return strata_kernel_pattern_fill(address, bytes, 1, stream);
}

static bool stops_the_device(CUdeviceptr address, size_t bytes)
{
    return write_bytes(address, bytes) == CUDA_SUCCESS &&
           strata_cu.StreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static size_t end_of(const strata_block *block)
{
    return (block->requested + 255) & ~(size_t)255;
}

/* The words in which the error names a block. */
static const char *words_of(const strata_block *block, const char *tag, const char *how)
{
    static char words[160];
    snprintf(words, sizeof words, "0x%llx, %s (tag \"%s\", generation %llu, %s)", (unsigned long long)block->address,
             strata_size_text(block->requested).text, tag, (unsigned long long)block->id.generation, how);
    return words;
}

static bool is_candidate(const strata_block *block, bool freed)
{
    strata_guard_finding finding;
    bool found = false;
    while (strata_guard_take_finding(top(), &finding))
        found |= finding.kind == STRATA_GUARD_ILLEGAL_ACCESS && finding.freed == freed &&
                 memcmp(&finding.block, block, sizeof *block) == 0;
    return found;
}

static char printed[1 << 18];

static void collect(const char *text, size_t length, void *data)
{
    size_t used = strlen(printed);
    (void)data;
    if (used + length < sizeof printed)
        memcpy(printed + used, text, length);
}

static void check_printed(const strata_block *block)
{
    char words[64];
    snprintf(words, sizeof words, "block 0x%llx, %s", (unsigned long long)block->address,
             strata_size_text(block->requested).text);
    memset(printed, 0, sizeof printed);
    strata_guard_fault_candidates_print(top(), collect, NULL);
    child_check(strstr(printed, words) != NULL);
    child_check(strstr(printed, "allocated at") != NULL);
}

static void check_named(const strata_block *block, const char *tag, bool freed)
{
    strata_block refused;
    child_check(strata_runtime_allocate(runtime, 100, stream, &refused) != STRATA_SUCCESS);
    child_check_words("CUDA_ERROR_ILLEGAL_ADDRESS");
    child_check_words("Sampled blocks of device 0 that it could be about");
    child_check_words(words_of(block, tag, freed ? "freed" : "live"));
    child_check(is_candidate(block, freed));
    child_check(strata_guard_check(top(), NULL) != STRATA_SUCCESS);
    check_printed(block);
}

static const char plain[] = "guard(sample=1), async";

static void one_byte_past_the_end(size_t bytes, const char *text)
{
    begin(text);
    strata_block first = allocate(64, "first"), block = allocate(bytes, "weights"), behind = allocate(64, "behind");
    child_check(write_bytes(block.address, end_of(&block)) == CUDA_SUCCESS); /* what its alignment takes is mapped */
    child_check(strata_cu.StreamSynchronize(stream) == CUDA_SUCCESS);
    child_check(first.address < block.address && block.address < behind.address);
    child_check(stops_the_device(block.address, end_of(&block) + 1));
    check_named(&block, "weights", false);
}

static void a_byte_past_a_small_block(void)
{
    one_byte_past_the_end(5000, plain);
}

static void a_byte_past_a_whole_mapping(void)
{
    one_byte_past_the_end(GRANULE, plain);
}

static void a_byte_past_a_large_block(void)
{
    one_byte_past_the_end(3 * GRANULE + 17, "guard(sample=1), direct");
}

static void a_write_after_a_free(void)
{
    begin(plain);
    strata_block block = allocate(5000, "kept too long"), other = allocate(10, "other");
    child_check(write_bytes(block.address, block.bytes) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_reap_pending(runtime));
    child_check(stops_the_device(block.address + 100, 1));
    check_named(&block, "kept too long", true);
    check_printed(&other);
}

/* Long after: other blocks came and went. */
static void a_write_long_after_a_free(void)
{
    begin(plain);
    strata_block block = allocate(5000, "old");
    child_ok(strata_runtime_deallocate(runtime, &block));
    for (int i = 0; i < 100; i++) {
        strata_block another = allocate(3000, "new");
        child_check(another.address != block.address);
        child_check(write_bytes(another.address, another.bytes) == CUDA_SUCCESS);
        child_ok(strata_runtime_deallocate(runtime, &another));
        child_ok(strata_runtime_reap_pending(runtime));
    }
    child_check(stops_the_device(block.address, 1));
    child_check(strata_guard_check(top(), NULL) != STRATA_SUCCESS);
    child_check_words(" more"); /* it is too far back to be in a sentence */
    check_printed(&block);
}

static void a_correct_program_is_never_stopped(void)
{
    begin("guard(sample=2, sample_seed=3), async");
    for (int i = 0; i < 200; i++) {
        strata_block block = allocate((size_t)(100 + 977 * i), "correct");
        child_check(write_bytes(block.address, block.bytes) == CUDA_SUCCESS);
        child_ok(strata_runtime_deallocate(runtime, &block));
    }
    child_check(strata_cu.StreamSynchronize(stream) == CUDA_SUCCESS);
    child_ok(strata_guard_check(top(), NULL));
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_destroy(runtime));
}

static void the_callback_is_told_once(void)
{
    strata_resource *layers[2];
    strata_stack *stack;
    test_open_driver_quietly();
    child_ok(strata_guard_create(0, &(strata_guard_options){.sample = 1, .on_finding_call = note_finding}, &layers[0]));
    child_ok(strata_async_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    strata_block block = allocate(1000, "told"), others[OTHERS], refused;
    for (int i = 0; i < OTHERS; i++)
        others[i] = allocate(1000, "other");
    child_ok(strata_runtime_deallocate(runtime, &others[0]));
    child_check(stops_the_device(block.address, 2000));
    for (int i = 0; i < 3; i++)
        child_check(strata_runtime_allocate(runtime, 100, stream, &refused) != STRATA_SUCCESS);
    child_check(told_count == 1 + OTHERS);
    bool seen = false;
    for (size_t i = 0; i < told_count; i++)
        seen |= memcmp(&told[i].block, &block, sizeof block) == 0 && !told[i].freed && told[i].allocated_at;
    child_check(seen);
}

static void a_stopped_device_ends_the_process(void)
{
    begin("guard(sample=1, on_finding=exit), async");
    strata_block block = allocate(1000, "last");
    child_check(stops_the_device(block.address, 2000));
    strata_runtime_deallocate(runtime, &block);
    child_check(false); /* not reached */
}

/* Without a sampled block there is no candidate. */
static void an_access_without_samples_names_nobody(void)
{
    strata_block block;
    begin("guard(sample=1, sample_blocks=1, sample_bytes=2MiB), async");
    uint64_t none = 0;
    child_ok(strata_control(strata_runtime_stack(runtime), "guard.sample_blocks", NULL, &none));
    block = allocate(1000, "plain");
    child_check(stops_the_device(0x10000, 16));
    child_check(strata_runtime_allocate(runtime, 100, stream, &block) != STRATA_SUCCESS);
    child_check_words("CUDA_ERROR_ILLEGAL_ADDRESS");
    child_check(strstr(strata_last_error()->message, "Sampled blocks") == NULL);
}

static const test_scenario scenarios[] = {
    TEST_SCENARIO(a_byte_past_a_small_block),
    TEST_SCENARIO(a_byte_past_a_whole_mapping),
    TEST_SCENARIO(a_byte_past_a_large_block),
    TEST_SCENARIO(a_write_after_a_free),
    TEST_SCENARIO(a_write_long_after_a_free),
    TEST_SCENARIO(a_correct_program_is_never_stopped),
    TEST_SCENARIO(the_callback_is_told_once),
    TEST_SCENARIO(a_stopped_device_ends_the_process),
    TEST_SCENARIO(an_access_without_samples_names_nobody),
};

/* The checker would report the access itself. */
static const char *const unchecked[] = {"STRATA_SIM_CHECK", "STRATA_SIM_CHECK_EXIT", NULL};

static void run(const char *scenario)
{
    test_child_run(scenario, unchecked);
}

static void an_access_past_the_end_stops_the_device_and_the_block_is_named(void **state)
{
    (void)state;
    run("a_byte_past_a_small_block");
    run("a_byte_past_a_whole_mapping");
    run("a_byte_past_a_large_block");
}

static void an_access_after_the_free_stops_the_device_and_the_block_is_named(void **state)
{
    (void)state;
    run("a_write_after_a_free");
    run("a_write_long_after_a_free");
}

static void a_program_without_a_bug_is_left_alone(void **state)
{
    (void)state;
    test_child_run("a_correct_program_is_never_stopped", NULL);
    run("an_access_without_samples_names_nobody");
}

static void the_suspects_are_told_once_and_may_end_the_process(void **state)
{
    (void)state;
    run("the_callback_is_told_once");
    assert_int_equal(test_child_status("a_stopped_device_ends_the_process", unchecked), STRATA_GUARD_EXIT_STATUS);
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_past_the_end_stops_the_device_and_the_block_is_named),
        cmocka_unit_test(an_access_after_the_free_stops_the_device_and_the_block_is_named),
        cmocka_unit_test(a_program_without_a_bug_is_left_alone),
        cmocka_unit_test(the_suspects_are_told_once_and_may_end_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
