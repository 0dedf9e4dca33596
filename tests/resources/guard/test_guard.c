/* The guard: zones around a block, a freed block's quarantine, and what is found and told. */
#include "core/blocks/blocks.h"

#include <string.h>

#include "support/captures.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/fixture.h"

enum { ZONE = 256, FRESH = 0xcd, ZONE_BYTE = 0xbd, DEAD = 0xdd, BYTES = 5000 };

static strata_resource *top(test_fixture *fixture)
{
    return strata_stack_top(strata_runtime_stack(fixture->runtime));
}

static uint64_t value(test_fixture *fixture, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &value, NULL));
    return value;
}

static void set_value(test_fixture *fixture, const char *name, uint64_t value)
{
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, NULL, &value));
}

static void check_nothing_found(test_fixture *fixture)
{
    size_t findings = 77;
    check_ok(strata_guard_check(top(fixture), &findings));
    assert_int_equal(findings, 0);
}

/* Checks everything and expects one finding. */
static strata_guard_finding check_one_found(test_fixture *fixture, strata_guard_kind kind, const strata_block *block)
{
    size_t findings;
    strata_guard_finding finding, another;
    check_status(strata_guard_check(top(fixture), &findings), STRATA_ERROR_CORRUPTED);
    assert_int_equal(findings, 1);
    assert_true(strata_guard_take_finding(top(fixture), &finding));
    assert_false(strata_guard_take_finding(top(fixture), &another));
    assert_int_equal(finding.kind, kind);
    assert_memory_equal(&finding.block, block, sizeof *block);
    return finding;
}

/* Writes `bytes` bytes `offset` bytes from the block's start as a kernel would that was told of the block. */
static void write_at(test_fixture *fixture, const strata_block *block, int64_t offset, size_t bytes, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address + (CUdeviceptr)offset, 0x5a, bytes, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
}

static void a_block_is_fresh_and_stands_between_two_zones(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 255, 256, BYTES};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_block block = test_allocate(fixture, sizes[i], stream);
        assert_true(block.bytes == sizes[i] && block.requested == sizes[i]);
        assert_true(block.address % 256 == 0 && block.alignment == 256);
        size_t slack = (size_t)(-sizes[i] & 255);
        const unsigned char *all = test_copy_back(fixture, block.address - ZONE, sizes[i] + slack + 2 * ZONE, stream);
        test_synchronize(stream);
        check_bytes(all, ZONE_BYTE, ZONE);
        check_bytes(all + ZONE, FRESH, sizes[i]);
        check_bytes(all + ZONE + sizes[i], ZONE_BYTE, slack + ZONE);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    }
    test_stream_close(fixture, stream);
    check_nothing_found(fixture);
}

static void a_freed_block_stays_in_quarantine_and_its_identity_is_dead(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL), found;
    test_write(fixture, &block, 0x11, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_QUARANTINED);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_record_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    strata_guard_finding finding;
    assert_true(strata_guard_take_finding(top(fixture), &finding));
    assert_int_equal(finding.kind, STRATA_GUARD_DOUBLE_FREE);
    assert_memory_equal(&finding.block, &block, sizeof block);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_blocks == 0 && usage.live_bytes == 0 && usage.retired_bytes >= BYTES + 2 * ZONE);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 1);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 0);
    assert_int_equal(value(fixture, "guard.quarantined_bytes"), 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

static void the_first_byte_past_the_requested_ones_is_an_overrun(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 100, stream);
    write_at(fixture, &block, 0, 101, stream);
    strata_guard_finding finding = check_one_found(fixture, STRATA_GUARD_OVERRUN, &block);
    assert_true(finding.offset == 100 && finding.changed == 1 && finding.expected == ZONE_BYTE && !finding.freed);
    assert_int_equal(finding.found[0], 0x5a);
    assert_int_equal(finding.found[1], ZONE_BYTE);
    check_nothing_found(fixture); /* told once */
    test_free_on(fixture, &block, stream);
    check_nothing_found(fixture);
    test_stream_close(fixture, stream);
}

static void the_outermost_bytes_of_the_zones_count(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before = test_allocate(fixture, 256, stream), behind = test_allocate(fixture, 200, stream);
    write_at(fixture, &before, -ZONE, 1, stream);
    strata_guard_finding finding = check_one_found(fixture, STRATA_GUARD_UNDERRUN, &before);
    assert_true(finding.offset == -ZONE && finding.changed == 1);
    write_at(fixture, &behind, 256 + ZONE - 1, 1, stream);
    finding = check_one_found(fixture, STRATA_GUARD_OVERRUN, &behind);
    assert_true(finding.offset == 256 + ZONE - 1 && finding.changed == 1 && finding.shown == 1);
    check_ok(strata_runtime_deallocate(fixture->runtime, &before));
    check_ok(strata_runtime_deallocate(fixture->runtime, &behind));
    test_stream_close(fixture, stream);
}

static void an_overrun_is_found_when_the_block_was_freed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_guard_finding finding;
    strata_block block = test_allocate(fixture, BYTES, stream);
    write_at(fixture, &block, 10, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    bool found = false;
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < 100 && !found; i++) { /* by a call about something else */
        size_t bytes;
        strata_resource *guard = top(fixture);
        check_ok(guard->ops->reap(guard, STRATA_REAP_FINISHED, &bytes));
        found = strata_guard_take_finding(guard, &finding);
    }
    assert_true(found);
    assert_true(finding.kind == STRATA_GUARD_OVERRUN && finding.freed && finding.changed == 10);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 1);
    check_status(strata_guard_check(top(fixture), NULL), STRATA_ERROR_CORRUPTED);
    check_nothing_found(fixture);
    test_stream_close(fixture, stream);
}

static void a_write_after_a_free_is_found_wherever_it_is(test_fixture *fixture)
{
    enum { LARGE = 700 << 10 }; /* more than one batch of copies */
    static const size_t offsets[] = {0, 4097, LARGE - 1};
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        strata_block block = test_allocate(fixture, LARGE, stream);
        test_free_on(fixture, &block, stream);
        test_fill(block.address + offsets[i], 0x77, 1, stream);
        test_synchronize(stream);
        strata_guard_finding finding = check_one_found(fixture, STRATA_GUARD_WRITE_AFTER_FREE, &block);
        assert_true(finding.offset == (int64_t)offsets[i] && finding.changed == 1 && finding.expected == DEAD);
        assert_true(finding.freed && finding.found[0] == 0x77);
    }
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    check_nothing_found(fixture);
    test_stream_close(fixture, stream);
}

static void a_write_after_a_free_is_found_when_the_block_leaves(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_fill(block.address + 17, 0x77, 3, stream);
    test_synchronize(stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    strata_guard_finding finding;
    assert_true(strata_guard_take_finding(top(fixture), &finding));
    assert_true(finding.kind == STRATA_GUARD_WRITE_AFTER_FREE && finding.offset == 17 && finding.changed == 3);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 0);
    test_stream_close(fixture, stream);
}

static void a_freed_block_is_filled_after_every_use_that_was_noted(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x33, alloc_stream);
    test_stall *stall = test_stall_begin(reader);
    const unsigned char *seen = test_read(fixture, &block, reader);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block)); /* does not wait */
    test_stall_end(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    check_nothing_found(fixture);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, reader);
}

static void the_quarantine_holds_no_more_than_it_may(test_fixture *fixture)
{
    set_value(fixture, "guard.quarantine_blocks", 3);
    for (size_t i = 0; i < 12; i++) {
        strata_block block = test_allocate(fixture, BYTES, NULL);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    }
    check_nothing_found(fixture); /* what leaves was waited for */
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 3);
    set_value(fixture, "guard.quarantine_bytes", 2 * (BYTES + 2 * ZONE + 256));
    check_nothing_found(fixture);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 2);
    set_value(fixture, "guard.quarantine_bytes", 0);
    check_nothing_found(fixture);
    assert_int_equal(value(fixture, "guard.quarantined_bytes"), 0);
    assert_true(test_usage(fixture).live_bytes == 0);
}

static void a_block_that_is_found_by_address_is_the_users(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 100, NULL), found;
    check_ok(strata_runtime_find(fixture->runtime, block.address + 99, &found));
    assert_memory_equal(&found, &block, sizeof block);
    check_status(strata_runtime_find(fixture->runtime, block.address + 100, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "is in a red zone");
    check_status(strata_runtime_find(fixture->runtime, block.address - 1, &found), STRATA_ERROR_FOREIGN_POINTER);
    test_write(fixture, &block, 0x11, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_free_with_wrong_facts_is_refused_and_the_block_stays(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 4096, NULL), wrong;
    strata_guard_finding finding;
    wrong = block;
    wrong.address -= ZONE;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    assert_true(strata_guard_take_finding(top(fixture), &finding));
    assert_true(finding.kind == STRATA_GUARD_FOREIGN_FREE && finding.block.address == wrong.address);
    wrong = block;
    wrong.bytes = wrong.requested = 4096 + 2 * ZONE;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.device = 7;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_WRONG_DEVICE);
    wrong = block;
    wrong.id.generation++;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_NONE));
    test_write(fixture, &block, 0x22, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void the_guards_own_fills_and_checks_are_no_use_of_a_block(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_nothing_found(fixture);
    check_ok(strata_runtime_prepare_first_use(fixture->runtime, &block, other, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, other);
    check_ok(strata_runtime_finish_first_use(fixture->runtime, &block, other, STRATA_ACCESS_WRITE));
    check_status(strata_runtime_prepare_first_use(fixture->runtime, &block, other, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_STREAM_MISUSE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, other);
    test_stream_close(fixture, stream);
}

/* The bytes that the owner counts, not those that the layer below shows. */
static void of_a_block_in_quarantine_nothing_counts_as_live(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    size_t whole = test_usage(fixture).live_bytes;
    assert_true(whole >= BYTES + 2 * ZONE);
    test_free_on(fixture, &block, NULL);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_bytes == 0 && usage.live_blocks == 0 && usage.retired_bytes == whole);
    assert_true(value(fixture, "guard.quarantined_bytes") == whole);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "guard.quarantined_bytes"), 0);
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
}

/* The wait for the newest of them covers the others. */
static void frees_on_one_stream_are_waited_for_once(test_fixture *fixture)
{
    enum { BLOCKS = 20 };
    strata_block blocks[BLOCKS];
    test_calls calls;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    test_stall *stall = test_stall_begin(stream);
    test_calls_begin(&calls);
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1); /* for the first; the others are collected */
    test_stall_release(stall);
    test_stall_end(stall);
    check_nothing_found(fixture);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 2);
    test_stream_close(fixture, stream);
}

static void a_block_whose_stream_is_gone_is_quarantined_after_its_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x44, stream);
    test_read(fixture, &block, other); /* an event marks what the stream was given so far */
    test_stall *stall = test_stall_begin(stream);
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream); /* without a record */
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stall_end(stall);
    test_synchronize(stream);
    check_bytes(seen, 0x44, BYTES);
    check_nothing_found(fixture);
    test_stream_forget(fixture, stream);
    check_cu(test_cu()->StreamDestroy(stream));
    test_stream_close(fixture, other);
}

static void a_free_below_that_fails_leaves_the_block_in_quarantine(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL), found;
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_DRIVER);
    assert_int_equal(test_fault_end(), 1);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_QUARANTINED);
    check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 1);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 0);
}

static void a_block_that_cannot_be_quarantined_is_its_users_still(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_stall *stall = test_stall_begin(reader);
    test_read(fixture, &block, reader);
    test_fault_begin(TEST_FAULT_STREAM_WAIT_EVENT, 1, false, CUDA_ERROR_UNKNOWN);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DRIVER);
    assert_int_equal(test_fault_end(), 1);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    test_stall_end(stall);
    const unsigned char *seen = test_read(fixture, &block, alloc_stream);
    test_synchronize(alloc_stream);
    check_bytes(seen, 0x11, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_nothing_found(fixture);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, reader);
}

static void a_block_that_can_be_neither_filled_nor_freed_is_freed_later(test_fixture *fixture)
{
    strata_block block;
    check_status(strata_runtime_allocate(fixture->runtime, BYTES, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "call 1 of prepare fails on purpose");
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_blocks == 0 && usage.live_bytes == 0 && usage.retired_bytes >= BYTES);
    check_nothing_found(fixture);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    assert_int_equal(value(fixture, "guard.quarantined_blocks"), 0);
    check_nothing_found(fixture);
}

static void a_charge_has_the_zones(test_fixture *fixture)
{
    size_t bytes, larger;
    strata_block_id of;
    check_ok(top(fixture)->ops->charge(top(fixture), &(strata_request){.bytes = 4096}, &bytes));
    assert_true(bytes == 4096 + 2 * ZONE);
    check_ok(top(fixture)->ops->charge(top(fixture), &(strata_request){.bytes = 4097}, &larger));
    assert_true(larger > bytes);
    check_ok(top(fixture)->ops->reusable(top(fixture), &(strata_request){.bytes = 4096}, &bytes, &of));
    strata_block block;
    check_status(strata_runtime_allocate(fixture->runtime, SIZE_MAX - 100, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(block.address == 0 && strata_last_error()->requested == SIZE_MAX - 100);
    strata_request aligned = {.bytes = 10, .alignment = 512};
    check_status(strata_runtime_allocate_request(fixture->runtime, &aligned, &block), STRATA_ERROR_UNSUPPORTED);
    aligned = (strata_request){.bytes = (size_t)1 << 63, .alignment = (size_t)1 << 63};
    check_status(strata_runtime_allocate_request(fixture->runtime, &aligned, &block), STRATA_ERROR_OUT_OF_MEMORY);
}

/* ---- captures ---- */

static void a_free_inside_a_capture_is_handed_down_unchecked(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), refused, beside;
    test_write(fixture, &block, 0x11, stream);
    beside = test_allocate(fixture, BYTES, other);
    test_begin_capture(stream);
    check_status(strata_runtime_allocate(fixture->runtime, BYTES, stream, &refused), STRATA_ERROR_STREAM_CAPTURE);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    check_ok(strata_runtime_deallocate(fixture->runtime, &beside)); /* into quarantine */
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, stream), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(test_end_capture(stream), 0);
    assert_int_equal(value(fixture, "guard.unchecked"), 1);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), stream));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    size_t findings;
    check_status(strata_guard_check(top(fixture), &findings), STRATA_ERROR_CORRUPTED);
    assert_int_equal(findings, 1); /* the second free */
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

/* The owner of a known stream has promised not to do this: then the layer below refuses, and the block stays. */
static void nothing_is_put_into_a_capture_of_a_known_stream(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream), refused;
    test_begin_capture(stream);
    check_status(strata_runtime_allocate(fixture->runtime, BYTES, stream, &refused), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, stream), STRATA_ERROR_DRIVER);
    assert_int_equal(test_end_capture(stream), 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_nothing_found(fixture);
    test_stream_close(fixture, stream);
}

int main(void)
{
    test_open_driver();
    static const test_case cases[] = {
        TEST_CASE(a_block_is_fresh_and_stands_between_two_zones),
        TEST_CASE(a_freed_block_stays_in_quarantine_and_its_identity_is_dead),
        TEST_CASE(the_first_byte_past_the_requested_ones_is_an_overrun),
        TEST_CASE(the_outermost_bytes_of_the_zones_count),
        TEST_CASE(an_overrun_is_found_when_the_block_was_freed),
        TEST_CASE(a_write_after_a_free_is_found_wherever_it_is),
        TEST_CASE(a_write_after_a_free_is_found_when_the_block_leaves),
        TEST_CASE(a_freed_block_is_filled_after_every_use_that_was_noted),
        TEST_CASE(the_quarantine_holds_no_more_than_it_may),
    };
    static const test_case others[] = {
        TEST_CASE(a_block_that_is_found_by_address_is_the_users),
        TEST_CASE(a_free_with_wrong_facts_is_refused_and_the_block_stays),
        TEST_CASE(the_guards_own_fills_and_checks_are_no_use_of_a_block),
        TEST_CASE(frees_on_one_stream_are_waited_for_once),
        TEST_CASE(a_block_whose_stream_is_gone_is_quarantined_after_its_work),
        TEST_CASE(a_free_below_that_fails_leaves_the_block_in_quarantine),
        TEST_CASE(a_block_that_cannot_be_quarantined_is_its_users_still),
        TEST_CASE(a_charge_has_the_zones),
        TEST_CASE(a_free_inside_a_capture_is_handed_down_unchecked),
        TEST_CASE(nothing_is_put_into_a_capture_of_a_known_stream),
    };
    static const char *const stacks[] = {"guard, async", "guard(kernel=off), async", "guard, direct"};
    /* Valgrind would tell of the planted bugs before the guard does: tests/library/test_debuggers.c. */
    static const char *const quiet[] = {"guard(debuggers=off), async", "guard(kernel=off), async",
                                        "guard(debuggers=off), direct"};
    const char *const *used = test_under_valgrind() ? quiet : stacks;
    static const test_case whole[] = {TEST_CASE(of_a_block_in_quarantine_nothing_counts_as_live)};
    static const char *const widening[] = {"guard, async", "guard, aligned(alignment=4KiB), direct",
                                           "guard, aligned(alignment=4KiB), guard, async"};
    static const test_case refused[] = {TEST_CASE(a_block_that_can_be_neither_filled_nor_freed_is_freed_later)};
    static const char *const refusing[] = {
        "guard, fault(operation=prepare, nth=1), fault(operation=deallocate, nth=1), async",
        "guard(kernel=off), fault(operation=prepare, nth=1), fault(operation=deallocate, nth=1), direct",
    };
    int failed = test_run_on(widening, 3, whole, 1) | test_run_on(refusing, 2, refused, 1);
    failed |= test_run_on(used, 3, cases, sizeof cases / sizeof cases[0]);
    return test_run_on(used, 1, others, sizeof others / sizeof others[0]) | failed;
}
