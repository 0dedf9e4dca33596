/* A sampling guard's calls among others: while the program captures, while its callback is in the middle of something,
 * while layers above keep errors to themselves, and with another guard in the stack. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "support/captures.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/stall.h"

enum { BYTES = 5000 };

static strata_runtime *runtime;

static strata_resource *top(void)
{
    return strata_stack_top(strata_runtime_stack(runtime));
}

static uint64_t value(const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &value, NULL));
    return value;
}

static void begin(const char *text)
{
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
}

static void end(void)
{
    check_ok(strata_runtime_destroy(runtime));
    runtime = NULL;
}

static strata_block allocate(void)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    return block;
}

/* ---- captures ---- */

/* cudaStreamBeginCapture's own mode forbids its thread, and others, much of what the driver can be asked. */
static void a_check_leaves_the_program_its_capture(void **state)
{
    (void)state;
    CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
    CUresult (*end_capture)(CUstream, CUgraph *);
    CUresult (*destroy_graph)(CUgraph);
    test_find_driver_call("cuStreamBeginCapture", 10010, &begin_capture);
    test_find_driver_call("cuStreamEndCapture", 10000, &end_capture);
    test_find_driver_call("cuGraphDestroy", 10000, &destroy_graph);
    CUstream stream;
    CUgraph graph = NULL;
    begin("guard(sample=1), async");
    strata_block block = allocate();
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_cu(begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    strata_status checked = strata_guard_check(top(), NULL);
    check_cu(end_capture(stream, &graph));
    check_ok(checked);
    check_cu(destroy_graph(graph));
    check_cu(test_cu()->StreamDestroy(stream));
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

/* ---- errors of other calls ---- */

static strata_status allocate_refused(CUresult why)
{
    strata_block block;
    uint64_t none = 0;
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.sample_blocks", NULL, &none));
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, false, why);
    strata_status status = strata_runtime_allocate(runtime, BYTES, NULL, &block);
    assert_int_equal(test_fault_end(), 1);
    return status;
}

/* As a call leaves it that asked a device which was stopped. */
static void meet_illegal_access(bool unsaid)
{
    if (unsaid)
        strata_error_suppress_begin();
    strata_fail_driver(CUDA_ERROR_ILLEGAL_ADDRESS, "cuLaunchKernel", "something else");
    if (unsaid)
        strata_error_suppress_end(false);
}

static void an_error_that_is_over_accuses_no_block(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block block = allocate();
    meet_illegal_access(true);
    check_status(allocate_refused(CUDA_ERROR_UNKNOWN), STRATA_ERROR_DRIVER);
    assert_int_equal(value("guard.findings"), 0);
    meet_illegal_access(false);
    strata_error_suppress_begin(); /* as a layer above does that has another way */
    strata_status status = allocate_refused(CUDA_ERROR_UNKNOWN);
    strata_error_suppress_end(false);
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_int_equal(value("guard.findings"), 0);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

static void an_illegal_access_is_told_of_where_errors_are_kept_back(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block block = allocate();
    strata_error_suppress_begin();
    strata_status status = allocate_refused(CUDA_ERROR_ILLEGAL_ADDRESS);
    strata_error_suppress_end(false);
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_int_equal(value("guard.findings"), 1);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

/* ---- what a callback does ---- */

static void begin_calling(strata_guard_options options)
{
    strata_resource *layers[2];
    strata_stack *stack;
    check_ok(strata_guard_create(0, &options, &layers[0]));
    check_ok(strata_async_create(0, NULL, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
}

/* Bytes before and behind the block, which it frees. */
static void overrun_and_free(const strata_block *block)
{
    check_ok(strata_runtime_prepare_block_use(runtime, block, NULL, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block->address + BYTES, 1, 1, NULL));
    check_cu(test_cu()->MemsetD8Async(block->address - 1, 1, 1, NULL));
    check_ok(strata_runtime_finish_block_use(runtime, block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(runtime, block));
}

static struct {
    size_t calls, heard, noticed;
    bool honest;
} failing;

static void hear(const strata_error *error, void *data)
{
    (void)data;
    failing.heard += error->status == STRATA_ERROR_SYNTAX;
    failing.noticed += error->status == STRATA_ERROR_CORRUPTED;
}

static void fail_in_the_callback(const strata_guard_finding *finding, void *data)
{
    strata_stack *stack;
    (void)finding, (void)data;
    failing.calls++;
    failing.honest &= strata_stack_create("nonsense", 0, &stack) == STRATA_ERROR_SYNTAX &&
                      strata_last_error()->status == STRATA_ERROR_SYNTAX;
    strata_error_suppress_begin(); /* and a try in it comes to its own end */
    strata_fail(STRATA_ERROR_IO, "in the callback");
    strata_error_suppress_end(true);
    failing.honest &= strata_last_error()->status == STRATA_ERROR_IO;
}

static void a_callback_has_errors_of_its_own(strata_guard_options options)
{
    begin_calling(options);
    memset(&failing, 0, sizeof failing);
    failing.honest = true;
    strata_block block = allocate();
    strata_set_log_callback(hear, NULL);
    strata_fail(STRATA_ERROR_FOREIGN_POINTER, "before the try");
    strata_error_suppress_begin();
    strata_fail(STRATA_ERROR_BUSY, "the try");
    strata_error_raise(strata_error_begin_finding(STRATA_ERROR_CORRUPTED), "another guard's");
    overrun_and_free(&block);
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(failing.noticed, 0);
    assert_int_equal(failing.calls, 2);
    assert_int_equal(failing.heard, 2);
    assert_true(failing.honest);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "before the try");
    strata_error_suppress_end(true);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(failing.noticed, 1);
    check_last_error(STRATA_ERROR_BUSY, "the try");
    end();
}

static void a_callback_in_the_middle_of_a_try_has_errors_of_its_own(void **state)
{
    (void)state;
    a_callback_has_errors_of_its_own((strata_guard_options){.sample = 1, .on_finding_call = fail_in_the_callback});
    a_callback_has_errors_of_its_own(
        (strata_guard_options){.no_debuggers = 1, .on_finding_call = fail_in_the_callback});
}

static struct {
    _Atomic size_t told;
    _Atomic bool reaped;
    bool waited_in_vain;
} held;

/* Stands still until another thread has gone through the stack, as one does for the lock that this thread holds. */
static void wait_for_a_thread(const strata_guard_finding *finding, void *data)
{
    (void)finding, (void)data;
    if (held.told++)
        return;
    for (unsigned turn = 0; turn < 1000 * test_timeout(3) && !held.reaped; turn++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    held.waited_in_vain = !held.reaped;
}

static void *check(void *data)
{
    test_make_current();
    *(strata_status *)data = strata_guard_check(top(), NULL);
    return NULL;
}

static void threads_go_on_during_a_callback(strata_guard_options options)
{
    pthread_t thread;
    strata_status checked;
    strata_guard_finding finding;
    size_t findings;
    begin_calling(options);
    held.told = 0;
    held.reaped = held.waited_in_vain = false;
    strata_block block = allocate();
    test_stall *stall = test_stall_begin(NULL); /* or the free would tell of it */
    overrun_and_free(&block);
    test_stall_end(stall);
    assert_int_equal(pthread_create(&thread, NULL, check, &checked), 0);
    for (unsigned turn = 0; turn < 1000 * test_timeout(20) && !held.told; turn++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    strata_status reaped = strata_runtime_reap_pending(runtime);
    strata_status again = strata_guard_check(top(), &findings);
    held.reaped = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_ok(reaped);
    assert_false(held.waited_in_vain);
    assert_int_equal(held.told, 2);
    assert_int_equal(again, STRATA_ERROR_CORRUPTED);
    assert_int_equal(findings, 2); /* though the second was not told yet */
    check_ok(checked);
    for (size_t i = 0; i < 2; i++)
        assert_true(strata_guard_take_finding(top(), &finding));
    check_ok(strata_guard_check(top(), NULL));
    end();
}

static void a_thread_goes_on_while_a_callback_waits_for_it(void **state)
{
    (void)state;
    threads_go_on_during_a_callback((strata_guard_options){.sample = 1, .on_finding_call = wait_for_a_thread});
    threads_go_on_during_a_callback((strata_guard_options){.no_debuggers = 1, .on_finding_call = wait_for_a_thread});
}

static CUresult CUDAAPI refuse_to_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    return CUDA_ERROR_UNKNOWN;
}

static void count_findings(const strata_error *error, void *data)
{
    *(size_t *)data += error->status == STRATA_ERROR_CORRUPTED;
}

static void what_is_found_is_told_once_though_the_block_cannot_be_unmapped(void **state)
{
    (void)state;
    size_t told = 0;
    begin("guard(sample=1), async");
    strata_block block = allocate();
    test_stall *stall = test_stall_begin(NULL);
    overrun_and_free(&block);
    test_stall_end(stall);
    strata_entry_table real = strata_cu;
    strata_set_log_callback(count_findings, &told);
    strata_cu.MemUnmap = refuse_to_unmap;
    strata_status reaped = strata_runtime_reap_pending(runtime);
    strata_cu.MemUnmap = real.MemUnmap;
    assert_int_equal(reaped, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "cuMemUnmap returned");
    assert_int_equal(told, 2);
    assert_int_equal(value("guard.findings"), 2);
    check_ok(strata_runtime_reap_pending(runtime));
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(told, 2);
    assert_int_equal(value("guard.mapped_bytes"), 0);
    end();
}

/* ---- several guards ---- */

static void count_bytes(const char *text, size_t length, void *data)
{
    (void)text;
    *(size_t *)data += length;
}

static size_t bytes_of_candidates(strata_resource *from)
{
    size_t bytes = 0;
    strata_guard_fault_candidates_print(from, count_bytes, &bytes);
    return bytes;
}

static void suspects_are_printed_from_below_another_guard(void **state)
{
    (void)state;
    begin("guard(stacks=off), guard(sample=1, stacks=off), async");
    strata_block block = allocate();
    assert_int_equal(value("guard[1].sampled"), 1);
    size_t bytes = bytes_of_candidates(strata_stack_layer(strata_runtime_stack(runtime), "guard", 1));
    assert_true(bytes > 0);
    assert_int_equal(bytes_of_candidates(top()), bytes);
    assert_int_equal(bytes_of_candidates(strata_stack_layer(strata_runtime_stack(runtime), "async", 0)), 0);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

static void suspects_of_every_sampling_guard_are_printed(void **state)
{
    (void)state;
    begin("guard(sample=1, stacks=off), guard(sample=1, stacks=off), async");
    strata_block blocks[2] = {allocate()};
    size_t bytes = bytes_of_candidates(top());
    uint64_t none = 0;
    check_ok(strata_control(strata_runtime_stack(runtime), "guard[0].sample_blocks", NULL, &none));
    blocks[1] = allocate();
    assert_true(value("guard[0].sampled") == 1 && value("guard[1].sampled") == 1);
    assert_true(bytes > 0 && bytes_of_candidates(top()) > bytes + bytes / 2);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    end();
}

/* ---- places ---- */

enum { GRANULE = 2 << 20, RANGE = 96 << 20, PLACES = 12, MOST = 40 << 20, STEPS = 600 };

/* What places there are, looked for one granule after another. */
typedef struct model {
    uint64_t base, next; /* next: from the base */
    size_t count;
    strata_block blocks[PLACES + 1];
} model;

static uint64_t mapped_of(const strata_block *block)
{
    return (block->bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static uint64_t start_of(const model *self, const strata_block *block)
{
    return block->address + (block->bytes + 255) / 256 * 256 - mapped_of(block) - self->base;
}

/* With the granule behind it, which stays unmapped. */
static bool is_free(const model *self, uint64_t at, uint64_t bytes)
{
    for (size_t i = 0; i < self->count; i++) {
        uint64_t start = start_of(self, &self->blocks[i]);
        if (at < start + mapped_of(&self->blocks[i]) + GRANULE && start < at + bytes)
            return false;
    }
    return at + bytes <= RANGE;
}

/* Where a block should come; 0: nowhere. */
static uint64_t expect_place(const model *self, size_t bytes)
{
    uint64_t mapped = (bytes + GRANULE - 1) / GRANULE * GRANULE, all = 0;
    for (size_t i = 0; i < self->count; i++)
        all += mapped_of(&self->blocks[i]);
    if (self->count == PLACES || all + mapped > MOST)
        return 0;
    for (uint64_t at = self->next; at < RANGE; at += GRANULE)
        if (is_free(self, at, mapped + GRANULE))
            return at;
    for (uint64_t at = GRANULE; at < RANGE; at += GRANULE)
        if (is_free(self, at, mapped + GRANULE))
            return at;
    return 0;
}

static void model_allocate(model *self, size_t bytes)
{
    strata_block *block = &self->blocks[self->count];
    uint64_t sampled = value("guard.sampled"), place = self->base ? expect_place(self, bytes) : GRANULE;
    check_ok(strata_runtime_allocate(runtime, bytes, NULL, block));
    assert_int_equal(value("guard.sampled") - sampled, place != 0);
    if (!self->base)
        self->base = start_of(self, block) - GRANULE;
    if (!place) {
        check_ok(strata_runtime_deallocate(runtime, block));
        return;
    }
    assert_true(start_of(self, block) == place);
    self->next = place + mapped_of(block) + GRANULE;
    self->count++;
}

static void model_free(model *self, size_t which)
{
    check_ok(strata_runtime_deallocate(runtime, &self->blocks[which]));
    check_ok(strata_runtime_reap_pending(runtime));
    self->blocks[which] = self->blocks[--self->count];
}

static void a_block_gets_the_next_place_in_the_circle_that_it_fits_in(void **state)
{
    (void)state;
    model self = {.count = 0};
    uint32_t random = 12345;
    begin("guard(sample=1, sample_blocks=12, sample_bytes=40MiB, sample_range=96MiB, stacks=off), async");
    for (size_t i = 0; i < test_effort(STEPS, 60); i++) {
        random = random * 1664525 + 1013904223;
        size_t bytes = 1 + (random >> 4) % (random >> 30 ? 3 * GRANULE : 16 * GRANULE);
        if (self.count && (random >> 16) % 16 < 7)
            model_free(&self, (random >> 20) % self.count);
        else
            model_allocate(&self, bytes);
    }
    while (self.count)
        model_free(&self, 0);
    assert_int_equal(value("guard.mapped_bytes"), 0);
    end();
}

/* ---- under layers that make their blocks from others ---- */

/* Blocks of these layers have 256 bytes of alignment or more, wherever the sampled one below begins. */
static void layers_above_get_the_alignment_that_they_give(void **state)
{
    (void)state;
    static const char *const above[] = {"aligned(alignment=4KiB)", "aligned(alignment=4KiB), guard",
                                        "fixed(bytes=6000, chunk=7001)", "binning(bins=6000, chunk=7001)", "guard"};
    for (size_t i = 0; i < sizeof above / sizeof above[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s, guard(sample=1, sample_alignment=1), async", above[i]);
        begin(text);
        strata_block block;
        check_ok(strata_runtime_allocate(runtime, 4096 + 100, NULL, &block));
        assert_true(block.alignment >= 256 && block.address % block.alignment == 0);
        check_cu(test_cu()->MemsetD8Async(block.address, 0x5a, block.bytes, NULL));
        check_cu(test_cu()->StreamSynchronize(NULL));
        assert_int_equal(value(strstr(above[i], "guard") ? "guard[1].sampled" : "guard.sampled"), 1);
        check_ok(strata_runtime_deallocate(runtime, &block));
        end();
    }
}

/* ---- limits ---- */

static void an_interval_is_bounded_alike_when_it_is_given_and_when_it_is_set(void **state)
{
    (void)state;
    strata_resource *resource;
    uint64_t most = UINT64_C(1) << 31, more = most + 1;
    check_ok(strata_guard_create(0, &(strata_guard_options){.sample = most}, &resource));
    strata_resource_destroy(resource);
    check_status(strata_guard_create(0, &(strata_guard_options){.sample = more}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    begin("guard(sample=1), async");
    strata_stack *stack = strata_runtime_stack(runtime);
    check_status(strata_control(stack, "guard.sample", NULL, &more), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "1 to 2147483648");
    assert_int_equal(value("guard.sample"), 1);
    check_ok(strata_control(stack, "guard.sample", NULL, &most));
    assert_true(value("guard.sample") == most);
    end();
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_leaves_the_program_its_capture),
        cmocka_unit_test(an_error_that_is_over_accuses_no_block),
        cmocka_unit_test(an_illegal_access_is_told_of_where_errors_are_kept_back),
        cmocka_unit_test(a_callback_in_the_middle_of_a_try_has_errors_of_its_own),
        cmocka_unit_test(a_thread_goes_on_while_a_callback_waits_for_it),
        cmocka_unit_test(what_is_found_is_told_once_though_the_block_cannot_be_unmapped),
        cmocka_unit_test(suspects_are_printed_from_below_another_guard),
        cmocka_unit_test(suspects_of_every_sampling_guard_are_printed),
        cmocka_unit_test(a_block_gets_the_next_place_in_the_circle_that_it_fits_in),
        cmocka_unit_test(layers_above_get_the_alignment_that_they_give),
        cmocka_unit_test(an_interval_is_bounded_alike_when_it_is_given_and_when_it_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
