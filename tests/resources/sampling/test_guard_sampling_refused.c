/* The sampling guard where the driver refuses, where there is no room, and while other threads are in the middle of
 * something: a block that cannot be sampled is an ordinary one, and whatever was begun for it ends. */
#include "core/base/error.h"
#include "core/base/size_text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"
#include "support/refusals.h"
#include "support/stall.h"

enum { BYTES = 5000, GRANULE = 2 << 20 };

static strata_runtime *runtime;
static CUstream stream;
static unsigned said; /* failures that were logged */

static void count_said(const strata_error *error, void *data)
{
    (void)error, (void)data;
    said++;
}

static void begin(const char *text)
{
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    said = 0;
    strata_set_log_callback(count_said, NULL);
}

static void end(void)
{
    strata_set_log_callback(NULL, NULL);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

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

static strata_block allocate(size_t bytes)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, bytes, stream, &block));
    return block;
}

static void release(const strata_block *block)
{
    check_ok(strata_runtime_deallocate_on(runtime, block, stream));
}

static void write_whole(const strata_block *block)
{
    check_ok(strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block->address, 7, block->bytes, stream));
    check_ok(strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
}

static void check_all_gone(void)
{
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(value("guard.mapped_bytes"), 0);
    assert_true(strata_runtime_bytes_outstanding(runtime) == 0);
}

/* ---- the driver refuses ---- */

/* Whichever call for a first sample is refused, once: the block is an ordinary one, no error is raised, and the next
 * one is sampled. */
static void a_block_that_cannot_be_sampled_is_an_ordinary_one_and_the_next_is_sampled(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
        CUresult result;
    } calls[] = {
        {"cuStreamCreate", 1, CUDA_ERROR_OUT_OF_MEMORY},
        {"cuThreadExchangeStreamCaptureMode", 1, CUDA_ERROR_NOT_PERMITTED},
        {"cuThreadExchangeStreamCaptureMode", 3, CUDA_ERROR_NOT_PERMITTED},
        {"cuMemGetAllocationGranularity", 1, CUDA_ERROR_NOT_SUPPORTED},
        {"cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY},
        {"cuMemAddressReserve", 1, CUDA_ERROR_NOT_PERMITTED},
        {"cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY},
        {"cuMemMap", 1, CUDA_ERROR_INVALID_VALUE},
        {"cuMemSetAccess", 1, CUDA_ERROR_INVALID_VALUE},
        {"cuMemsetD8Async", 1, CUDA_ERROR_NOT_PERMITTED},
        {"cuMemsetD8Async", 2, CUDA_ERROR_NOT_PERMITTED},
    };
    test_alive before = test_count_alive();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        begin("guard(sample=1), async");
        test_refuse(calls[i].call, calls[i].nth, 1, calls[i].result);
        strata_block block = allocate(BYTES), next;
        test_refuse_no_more();
        if (value("guard.sampled") != 0 || value("guard.missed") != 1)
            fail_msg("%s, call %llu: it was not refused", calls[i].call, (unsigned long long)calls[i].nth);
        assert_int_equal(said, 0);
        write_whole(&block);
        next = allocate(BYTES);
        assert_int_equal(value("guard.sampled"), 1);
        release(&block);
        release(&next);
        check_all_gone();
        end();
        check_alive(before);
    }
}

static void release_quietly(void)
{
    test_refuse_no_more();
    end();
}

/* A mapping that cannot let go of its memory's handle keeps it until it is unmapped, and is tried again then. */
static void a_handle_that_is_not_released_is_released_with_the_mapping(void **state)
{
    (void)state;
    test_alive before = test_count_alive();
    begin("guard(sample=1), async");
    test_refuse("cuMemRelease", 1, 2, CUDA_ERROR_NOT_PERMITTED);
    strata_block block = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 1);
    check_ok(strata_runtime_deallocate(runtime, &block)); /* what goes wrong then is said, and tried again */
    assert_int_equal(said, 1);
    assert_int_equal(value("guard.mapped_bytes"), GRANULE);
    check_all_gone();
    release_quietly();
    check_alive(before);
}

static void a_block_that_cannot_be_unmapped_is_unmapped_later(void **state)
{
    (void)state;
    test_alive before = test_count_alive();
    begin("guard(sample=1), async");
    strata_block block = allocate(BYTES);
    test_refuse("cuMemUnmap", 1, 2, CUDA_ERROR_NOT_PERMITTED);
    check_ok(strata_runtime_deallocate(runtime, &block));
    assert_int_equal(said, 1);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_RETIRED);
    check_status(strata_runtime_reap_pending(runtime), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "unmapping sampled block 0x");
    check_all_gone();
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_FREED);
    release_quietly();
    check_alive(before);
}

static void a_block_whose_zones_cannot_be_looked_at_is_freed_and_counted(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
        unsigned count;
    } calls[] = {{"cuMemcpyDtoHAsync", 1, 1}, {"cuMemcpyDtoHAsync", 2, 1}, {"cuThreadExchangeStreamCaptureMode", 1, 2}};
    for (size_t i = 0; i < 3; i++) {
        begin("guard(sample=1, stacks=off), async");
        strata_block block = allocate(BYTES);
        check_cu(test_cu()->MemsetD8Async(block.address + BYTES, 1, 1, stream)); /* would be found */
        test_refuse(calls[i].call, calls[i].nth, calls[i].count, CUDA_ERROR_NOT_PERMITTED);
        release(&block);
        test_refuse_no_more();
        check_all_gone();
        assert_int_equal(value("guard.unchecked"), 1);
        assert_int_equal(value("guard.findings"), 0);
        end();
    }
}

/* A zone was filled, the other was not, and the fill cannot be waited for: the place stays until the guard ends. */
static void a_place_that_work_may_still_touch_is_given_back_at_the_end(void **state)
{
    (void)state;
    for (unsigned unmapped = 0; unmapped < 2; unmapped++) {
        test_alive before = test_count_alive();
        begin("guard(sample=1), async");
        test_refuse("cuMemsetD8Async", 2, 1, CUDA_ERROR_NOT_PERMITTED);
        test_refuse("cuStreamSynchronize", 1, 1, CUDA_ERROR_NOT_PERMITTED);
        strata_block block = allocate(BYTES);
        test_refuse_no_more();
        assert_int_equal(value("guard.sampled"), 0);
        assert_int_equal(value("guard.mapped_bytes"), GRANULE);
        release(&block);
        check_ok(strata_runtime_reap_pending(runtime));
        assert_int_equal(value("guard.mapped_bytes"), GRANULE);
        strata_usage usage;
        check_ok(strata_resource_usage(top(), &usage));
        assert_true(usage.live_blocks == 0 && usage.bytes_outstanding == 0);
        if (unmapped) /* that is tried twice */
            test_refuse("cuMemUnmap", 1, 1, CUDA_ERROR_NOT_PERMITTED);
        end();
        test_refuse_no_more();
        check_alive(before);
    }
}

static void a_guard_that_cannot_unmap_ends_all_the_same(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    test_refuse("cuMemsetD8Async", 2, 1, CUDA_ERROR_NOT_PERMITTED);
    test_refuse("cuStreamSynchronize", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    strata_block block = allocate(BYTES);
    test_refuse_no_more();
    release(&block);
    test_alive before = test_count_alive();
    test_refuse("cuMemUnmap", 1, 2, CUDA_ERROR_NOT_PERMITTED);
    end();
    test_refuse_no_more();
    assert_int_equal(test_count_alive().maps, before.maps);
}

/* In a thread without a context each scope has a call of its own that can be refused. */
static void at_the_end_each_thing_is_tried_twice(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        strata_stack *stack;
        strata_block block;
        test_alive before = test_count_alive();
        check_ok(strata_stack_create("guard(sample=1), direct", 0, &stack));
        strata_resource *first = strata_stack_top(stack);
        check_ok(strata_resource_allocate(first, &(strata_request){.bytes = BYTES}, &block));
        check_ok(strata_resource_deallocate(first, &block, NULL));
        size_t bytes;
        check_ok(first->ops->reap(first, STRATA_REAP_WAIT, &bytes));
        test_refuse("cuThreadExchangeStreamCaptureMode", nth, 1, CUDA_ERROR_NOT_PERMITTED);
        strata_status status = strata_stack_destroy(stack);
        test_refuse_no_more();
        if (status != STRATA_SUCCESS)
            check_ok(strata_stack_destroy(stack));
        check_alive(before);
    }
}

/* ---- addresses ---- */

/* The first two requests are too large for the system; a quarter of the addresses do, and places go round in that. */
static void where_there_are_fewer_addresses_places_come_round_sooner(void **state)
{
    (void)state;
    begin("guard(sample=1, sample_bytes=4MiB, sample_range=64MiB), async");
    test_refuse("cuMemAddressReserve", 1, 2, CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr seen[4];
    for (size_t i = 0; i < 4; i++) { /* of 16 MiB: 2 stay free at the start, and each takes 4 */
        strata_block block = allocate(BYTES);
        seen[i] = block.address;
        release(&block);
        check_all_gone();
    }
    test_refuse_no_more();
    assert_int_equal(value("guard.sampled"), 4);
    assert_int_equal(said, 0);
    assert_true(seen[0] != seen[1] && seen[1] != seen[2] && seen[3] == seen[0]);
    end();
}

static void without_addresses_nothing_is_sampled_until_there_are_some(void **state)
{
    (void)state;
    begin("guard(sample=1, sample_bytes=4MiB, sample_range=64MiB), async");
    test_refuse("cuMemAddressReserve", 1, 4, CUDA_ERROR_OUT_OF_MEMORY); /* down to what the mappings fit in twice */
    strata_block block = allocate(BYTES), next;
    assert_int_equal(value("guard.missed"), 1);
    next = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 1);
    test_refuse_no_more();
    release(&block);
    release(&next);
    check_all_gone();
    end();
}

/* Four granules: a place, and what stays unmapped around it. The second block finds none that is free. */
static void a_range_that_is_full_gives_no_place(void **state)
{
    (void)state;
    begin("guard(sample=1, sample_bytes=4MiB, sample_range=8MiB), async");
    strata_block first = allocate(BYTES), second = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 1);
    assert_int_equal(value("guard.missed"), 1);
    assert_int_equal(value("guard.mapped_bytes"), GRANULE);
    release(&first);
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(value("guard.mapped_bytes"), 0);
    strata_block third = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 2);
    release(&second);
    release(&third);
    check_all_gone();
    end();
    begin("guard(sample=1, sample_bytes=2MiB, sample_range=4MiB), async"); /* too few for any */
    first = allocate(BYTES);
    assert_int_equal(value("guard.missed"), 1);
    release(&first);
    check_all_gone();
    end();
}

/* A limit that is raised beyond the range lets no block in that is larger than that. */
static void a_block_that_is_larger_than_the_range_is_an_ordinary_one(void **state)
{
    (void)state;
    uint64_t more = UINT64_C(1) << 30;
    begin("guard(sample=1, sample_bytes=4MiB, sample_range=8MiB), async");
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.sample_bytes", NULL, &more));
    strata_block block = allocate(9 << 20);
    assert_int_equal(value("guard.missed"), 1);
    release(&block);
    more = 1; /* less than is mapped */
    block = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 1);
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.sample_bytes", NULL, &more));
    strata_block other = allocate(1);
    assert_int_equal(value("guard.missed"), 2);
    release(&block);
    release(&other);
    check_all_gone();
    end();
}

static void values_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    begin("guard(sample=5, sample_blocks=4), async");
    static const struct {
        const char *name;
        uint64_t value;
        const char *words;
    } wrong[] = {
        {"guard.sample", 0, "expected 1 to 2147483648; sample_blocks=0 samples none"},
        {"guard.sample", (UINT64_C(1) << 31) + 1, "expected 1 to 2147483648"},
        {"guard.sample_blocks", 5, "at most 4, as when the guard was made"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t asked = wrong[i].value;
        check_status(strata_control(strata_runtime_stack(runtime), wrong[i].name, NULL, &asked),
                     STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, wrong[i].words);
    }
    uint64_t every = 1;
    assert_int_equal(value("guard.sample"), 5);
    assert_int_equal(value("guard.sample_blocks"), 4);
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.sample", NULL, &every));
    assert_int_equal(value("guard.sample"), 1);
    end();
}

/* ---- while freed blocks wait for the device ---- */

/* Once the request below has failed, and what waits then is what is meant. */
static void *release_soon(void *stall)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    uint64_t failed = 0;
    for (int i = 0; i < 1000 && !failed; i++) {
        nanosleep(&moment, NULL);
        if (strata_control(strata_runtime_stack(runtime), "fault.failed", &failed, NULL) != STRATA_SUCCESS)
            break;
    }
    nanosleep(&moment, NULL);
    test_stall_release(stall);
    return NULL;
}

/* A block that was freed on a stream which is held back. */
static strata_block free_behind(test_stall **stall)
{
    strata_block block = allocate(BYTES);
    assert_int_equal(value("guard.sampled"), 1);
    *stall = test_stall_begin(stream);
    release(&block);
    assert_int_equal(value("guard.mapped_bytes"), GRANULE);
    return block;
}

/* There is no memory below while a freed block is mapped: it is waited for. */
static void an_allocation_that_is_short_of_memory_waits_for_freed_blocks(void **state)
{
    (void)state;
    static const char *const statuses[] = {"out_of_memory", "out_of_budget"};
    for (size_t i = 0; i < 2; i++) {
        char text[128];
        test_stall *stall;
        pthread_t thread;
        snprintf(text, sizeof text, "guard(sample=1, sample_blocks=1), fault(nth=1, status=%s), async", statuses[i]);
        begin(text);
        free_behind(&stall);
        assert_int_equal(pthread_create(&thread, NULL, release_soon, stall), 0);
        strata_block block = allocate(BYTES); /* there is one place, and the first request below fails */
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(value("guard.mapped_bytes"), 0);
        assert_int_equal(value("fault.failed"), 1);
        assert_int_equal(said, 0);
        test_stall_end(stall);
        release(&block);
        check_all_gone();
        end();
    }
}

static void an_allocation_that_fails_for_another_reason_does_not_wait(void **state)
{
    (void)state;
    test_stall *stall;
    strata_block block;
    begin("guard(sample=1, sample_blocks=1), fault(every=1, status=driver), async");
    free_behind(&stall);
    check_status(strata_runtime_allocate(runtime, BYTES, stream, &block), STRATA_ERROR_DRIVER);
    assert_true(block.address == 0);
    assert_int_equal(said, 1);
    assert_int_equal(value("guard.mapped_bytes"), GRANULE);
    test_stall_end(stall);
    check_all_gone();
    check_status(strata_runtime_allocate(runtime, 9 << 20 << 6, stream, &block), STRATA_ERROR_DRIVER);
    end();
}

static char printed[1 << 16];

static void collect(const char *text, size_t length, void *data)
{
    size_t used = strlen(printed);
    (void)data;
    assert_true(used + length < sizeof printed);
    memcpy(printed + used, text, length);
}

static const char *place_of(const strata_block *block, const char *how)
{
    static char words[128];
    const char *at;
    snprintf(words, sizeof words, "block 0x%llx, %s,", (unsigned long long)block->address,
             strata_size_text(block->requested).text);
    at = strstr(printed, words);
    return at && strstr(at, how) && strstr(at, how) < strchr(at, '\n') ? at : NULL;
}

/* The newest first, freed ones and live ones by turns; what came to nothing is none of them. */
static void suspects_are_freed_blocks_that_are_mapped_still_and_live_ones_by_turns(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block live[2], freed[2];
    for (size_t i = 0; i < 2; i++) {
        live[i] = allocate(1000 + i);
        freed[i] = allocate(2000 + i);
    }
    test_stall *stall = test_stall_begin(stream);
    release(&freed[0]);
    release(&freed[1]);
    test_refuse("cuMemsetD8Async", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    strata_block ordinary = allocate(3000); /* its mapping is undone after those before it */
    test_refuse_no_more();
    assert_int_equal(value("guard.missed"), 1);
    assert_int_equal(value("guard.mapped_bytes"), 5 * GRANULE);
    memset(printed, 0, sizeof printed);
    strata_guard_fault_candidates_print(top(), collect, NULL);
    const char *order[] = {place_of(&freed[1], "freed"), place_of(&live[1], "live"), place_of(&freed[0], "freed"),
                           place_of(&live[0], "live")};
    for (size_t i = 0; i < 4; i++)
        assert_true(order[i] && (i == 0 || order[i] > order[i - 1]));
    assert_null(place_of(&ordinary, ""));
    assert_null(strstr(printed, "generation 0,"));
    assert_non_null(strstr(printed, "guard: fault candidate: block 0x"));
    assert_non_null(strstr(printed, "freed\n  if the device was stopped, it could be by an access after this free\n"));
    assert_non_null(strstr(printed, "live\n  if the device was stopped, it could be by an access past its end\n"));
    assert_null(strstr(printed, "the device was stopped by")); /* it was not */
    strata_guard_fault_candidates_print(top(), NULL, NULL);
    strata_guard_fault_candidates_print(NULL, collect, NULL);
    test_stall_end(stall);
    for (size_t i = 0; i < 2; i++)
        release(&live[i]);
    release(&ordinary);
    check_all_gone();
    end();
}

static void a_report_names_the_newest_samples(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block live = allocate(1111), freed = allocate(2222);
    char words[64];
    release(&freed);
    check_ok(strata_runtime_reap_pending(runtime));
    memset(printed, 0, sizeof printed);
    check_ok(strata_stats_print(strata_runtime_stack(runtime), STRATA_FORMAT_JSON, collect, NULL));
    const char *samples = strstr(printed, "\"newest_samples\"");
    assert_non_null(samples);
    snprintf(words, sizeof words, "\"0x%llx\"", (unsigned long long)freed.address);
    const char *first = strstr(samples, words);
    snprintf(words, sizeof words, "\"0x%llx\"", (unsigned long long)live.address);
    const char *second = strstr(samples, words);
    assert_true(first && second && first < second);
    assert_non_null(strstr(first, "\"freed\": true"));
    assert_non_null(strstr(second, "\"freed\": false"));
    assert_true(strstr(first, "2222") && strstr(second, "1111"));
    release(&live);
    check_all_gone();
    end();
}

/* ---- what passes through, and what does not ---- */

static void a_recorded_use_is_waited_for_whether_the_block_is_sampled_or_not(void **state)
{
    (void)state;
    static const char *const stacks[] = {"guard(sample=1), async", "guard(sample=1, sample_blocks=1), async"};
    for (size_t i = 0; i < 2; i++) {
        CUstream reader;
        begin(stacks[i]);
        check_ok(strata_runtime_stream_acquire(runtime, &reader));
        strata_block other = allocate(BYTES), block = allocate(BYTES);
        assert_int_equal(value("guard.sampled"), 2 - i);
        test_stall *stall = test_stall_begin(reader);
        check_ok(strata_runtime_record_block_use(runtime, &block, reader, STRATA_ACCESS_READ));
        release(&block);
        size_t bytes;
        check_ok(top()->ops->reap(top(), STRATA_REAP_FINISHED, &bytes));
        assert_int_equal(value("guard.mapped_bytes"), (2 - i) * GRANULE);
        assert_int_not_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_FREED);
        test_stall_end(stall);
        release(&other);
        check_all_gone();
        assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_FREED);
        check_ok(strata_runtime_stream_release(runtime, reader));
        end();
    }
}

/* Bytes that the layer below would hand out again are no use to a request that is sampled. */
static void what_would_be_reused_is_asked_below_unless_the_next_allocation_is_sampled(void **state)
{
    (void)state;
    const strata_request request = {.bytes = BYTES};
    strata_block_id of;
    size_t bytes = 77;
    begin("guard(sample=1000000, sample_seed=9), async");
    check_ok(top()->ops->reusable(top(), &request, &bytes, &of));
    assert_int_equal(bytes, 0); /* a thread that has not begun */
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    test_stall *stall = test_stall_begin(NULL);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(top()->ops->reusable(top(), &request, &bytes, &of));
    assert_true(bytes >= BYTES && of.slot == block.id.slot && of.generation == block.id.generation);
    test_stall_end(stall);
    check_all_gone();
    end();
}

static void with_on_finding_fail_the_next_allocation_says_so_once(void **state)
{
    (void)state;
    strata_block refused;
    begin("guard(sample=1000000, sample_seed=9, on_finding=fail), async");
    uint64_t every = 1;
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.sample", NULL, &every));
    strata_block block = allocate(BYTES), wrong = block;
    wrong.address += 8;
    check_status(strata_runtime_deallocate(runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_allocate(runtime, BYTES, stream, &refused), STRATA_ERROR_CORRUPTED);
    check_last_error(STRATA_ERROR_CORRUPTED, "strata_guard_take_finding returns the findings");
    assert_true(refused.address == 0);
    strata_block next = allocate(BYTES);
    release(&next);
    release(&block);
    check_all_gone();
    end();
}

/* More blocks came and went than are remembered: the second free is refused, and nothing is known of the first. */
static void the_free_of_a_block_is_forgotten_after_many_others(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block old = allocate(BYTES);
    strata_guard_finding finding;
    release(&old);
    for (size_t i = 0; i < 300; i++) {
        strata_block block = allocate(100);
        release(&block);
        check_ok(strata_runtime_reap_pending(runtime));
    }
    check_status(strata_runtime_deallocate(runtime, &old), STRATA_ERROR_DOUBLE_FREE);
    assert_true(strata_guard_take_finding(top(), &finding));
    assert_int_equal(finding.kind, STRATA_GUARD_DOUBLE_FREE);
    assert_true(finding.block.address == old.address && !finding.allocated_at && !finding.freed_at && finding.found_at);
    check_all_gone();
    end();
}

static void a_free_on_a_stream_that_cannot_be_noted_leaves_the_block_live(void **state)
{
    (void)state;
    CUstream unknown;
    begin("guard(sample=1), async");
    check_cu(test_cu()->StreamCreate(&unknown, CU_STREAM_NON_BLOCKING));
    strata_block block = allocate(BYTES), found;
    test_refuse("cuStreamGetId", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    check_status(strata_runtime_deallocate_on(runtime, &block, unknown), STRATA_ERROR_DRIVER);
    test_refuse_no_more();
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_find(runtime, block.address, &found));
    check_ok(strata_runtime_deallocate_on(runtime, &block, unknown));
    check_all_gone();
    check_cu(test_cu()->StreamDestroy(unknown));
    end();
}

/* A device that answers anything but "not yet" was stopped, or is gone. */
static void a_check_says_what_the_driver_answers(void **state)
{
    (void)state;
    begin("guard(sample=1), async");
    strata_block block = allocate(BYTES);
    check_ok(strata_guard_check(top(), NULL));
    test_refuse("cuStreamQuery", 1, 1, CUDA_ERROR_NOT_READY);
    check_ok(strata_guard_check(top(), NULL));
    test_refuse_no_more();
    test_refuse("cuStreamQuery", 1, 1, CUDA_ERROR_ECC_UNCORRECTABLE);
    check_status(strata_guard_check(top(), NULL), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "querying whether the device was stopped");
    test_refuse_no_more();
    release(&block);
    check_all_gone();
    end();
}

/* ---- other threads ---- */

static struct {
    PFN_cuMemUnmap_v10020 unmap;
    pthread_barrier_t begun;
    _Atomic bool over;
} held;

/* On the thread that unmaps the block. */
static CUresult CUDAAPI unmap_late(CUdeviceptr address, size_t bytes)
{
    pthread_barrier_wait(&held.begun);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    held.over = true;
    return held.unmap(address, bytes);
}

static void *reap(void *data)
{
    (void)data;
    test_make_current();
    return (void *)(uintptr_t)strata_runtime_reap_pending(runtime);
}

static void a_reap_waits_for_what_another_thread_is_unmapping(void **state)
{
    (void)state;
    pthread_t thread;
    void *status;
    begin("guard(sample=1), async");
    assert_int_equal(pthread_barrier_init(&held.begun, NULL, 2), 0);
    strata_block block = allocate(BYTES);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_deallocate(runtime, &block));
    test_stall_end(stall);
    held.over = false;
    held.unmap = strata_cu.MemUnmap;
    strata_cu.MemUnmap = unmap_late;
    assert_int_equal(pthread_create(&thread, NULL, reap, NULL), 0);
    pthread_barrier_wait(&held.begun);
    strata_status reaped = strata_runtime_reap_pending(runtime);
    bool over = held.over;
    assert_int_equal(pthread_join(thread, &status), 0);
    strata_cu.MemUnmap = held.unmap;
    check_ok(reaped);
    assert_true(over);
    assert_null(status);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_FREED);
    end();
    pthread_barrier_destroy(&held.begun);
}

/* A child has no driver: what it asks of its parent's guards is refused, and nothing is told. */
static void a_forked_child_gets_no_findings(void **state)
{
    (void)state;
    static const char *const stacks[] = {"guard(sample=1), async", "guard(debuggers=off), async"};
    for (size_t i = 0; i < 2; i++) {
        begin(stacks[i]);
        strata_block block = allocate(BYTES), wrong = block;
        wrong.address += 8;
        check_status(strata_runtime_deallocate(runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
        fflush(NULL);
        memset(printed, 0, sizeof printed);
        pid_t child = fork();
        if (child == 0) {
            strata_guard_finding finding;
            size_t findings = 77;
            child_status(strata_guard_check(top(), &findings), STRATA_ERROR_FORKED);
            child_check(findings == 0);
            child_check(!strata_guard_take_finding(top(), &finding));
            strata_guard_fault_candidates_print(top(), collect, NULL);
            child_check(printed[0] == '\0');
            test_child_leave(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_false(strata_guard_take_finding(top(), NULL));
        assert_true(strata_guard_take_finding(top(), &(strata_guard_finding){0})); /* the parent has it still */
        release(&block);
        check_ok(strata_runtime_reap_pending(runtime));
        end();
    }
}

/* What a test that failed has left in the way of the next. */
static int clear_away(void **state)
{
    (void)state;
    strata_set_log_callback(NULL, NULL);
    test_stall_end_all();
    test_refuse_no_more();
    return 0;
}

int main(void)
{
    test_open_driver();
    if (!test_on_simulated_driver()) {
        print_message("skipped: on the simulated driver alone calls can be made to fail\n");
        return 77;
    }
#define CASE(test) cmocka_unit_test_teardown(test, clear_away)
    const struct CMUnitTest tests[] = {
        CASE(a_block_that_cannot_be_sampled_is_an_ordinary_one_and_the_next_is_sampled),
        CASE(a_handle_that_is_not_released_is_released_with_the_mapping),
        CASE(a_block_that_cannot_be_unmapped_is_unmapped_later),
        CASE(a_block_whose_zones_cannot_be_looked_at_is_freed_and_counted),
        CASE(a_place_that_work_may_still_touch_is_given_back_at_the_end),
        CASE(a_guard_that_cannot_unmap_ends_all_the_same),
        CASE(at_the_end_each_thing_is_tried_twice),
        CASE(where_there_are_fewer_addresses_places_come_round_sooner),
        CASE(without_addresses_nothing_is_sampled_until_there_are_some),
        CASE(a_range_that_is_full_gives_no_place),
        CASE(a_block_that_is_larger_than_the_range_is_an_ordinary_one),
        CASE(values_that_mean_nothing_are_refused),
        CASE(an_allocation_that_is_short_of_memory_waits_for_freed_blocks),
        CASE(an_allocation_that_fails_for_another_reason_does_not_wait),
        CASE(suspects_are_freed_blocks_that_are_mapped_still_and_live_ones_by_turns),
        CASE(a_report_names_the_newest_samples),
        CASE(a_recorded_use_is_waited_for_whether_the_block_is_sampled_or_not),
        CASE(what_would_be_reused_is_asked_below_unless_the_next_allocation_is_sampled),
        CASE(with_on_finding_fail_the_next_allocation_says_so_once),
        CASE(the_free_of_a_block_is_forgotten_after_many_others),
        CASE(a_free_on_a_stream_that_cannot_be_noted_leaves_the_block_live),
        CASE(a_check_says_what_the_driver_answers),
        CASE(a_reap_waits_for_what_another_thread_is_unmapping),
        CASE(a_forked_child_gets_no_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
