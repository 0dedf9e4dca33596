/* References: making, access, views, uses, and the free at the last release. */
#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "runtime/references.h"

#include <stdio.h>
#include <string.h>

enum { LENGTH = 1024, BYTES = 4 * LENGTH };

/* What a case that fails leaves to be cleared away. */
static strata_ref *kept[256];
static size_t kept_count;
static strata_launch launch; /* the one of a case: not on its stack */
static strata_last_write last, also_last;

static strata_ref *keep(strata_ref *ref)
{
    if (ref && kept_count < sizeof kept / sizeof kept[0])
        kept[kept_count++] = ref;
    return ref;
}

static strata_status release(strata_ref *ref)
{
    for (size_t i = kept_count; i-- > 0;)
        if (kept[i] == ref) {
            kept[i] = kept[--kept_count];
            break;
        }
    return strata_ref_release(ref);
}

static void clear_away(void)
{
    strata_error_suppress_begin();
    if (launch.runtime)
        strata_launch_end(&launch);
    strata_last_write_release(&last);
    strata_last_write_release(&also_last);
    while (kept_count)
        strata_ref_release(kept[--kept_count]);
    strata_error_suppress_end(false);
}

static strata_ref *make(test_fixture *fixture, CUstream stream)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, LENGTH, false, stream, &ref));
    return keep(ref);
}

static strata_ref_memory memory_of(const strata_ref *ref)
{
    strata_ref_memory memory;
    check_ok(strata_ref_access(ref, &memory));
    return memory;
}

static strata_device_state *state_of(const test_fixture *fixture)
{
    return strata_runtime_device_state(fixture->runtime);
}

static size_t live_blocks(test_fixture *fixture)
{
    return test_usage(fixture).live_blocks;
}

static void check_stale(const strata_ref *ref, strata_stale_reason reason)
{
    strata_ref_memory memory;
    CUdeviceptr address = 1;
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    assert_int_equal(memory.stale, reason);
    assert_int_equal(memory.address, 0);
    assert_null(memory.block);
    check_status(strata_ref_raw_device_ptr(ref, &address), STRATA_ERROR_STALE);
    assert_int_equal(address, 0);
}

/* Fills the memory of a reference behind a launch that names it. */
static void launch_fill(test_fixture *fixture, strata_ref *ref, unsigned char value, CUstream stream)
{
    const strata_ref_memory memory = memory_of(ref);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(memory.address, value, memory.bytes, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
}

static const unsigned char *launch_read(test_fixture *fixture, strata_ref *ref, CUstream stream)
{
    const strata_ref_memory memory = memory_of(ref);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    const unsigned char *seen = test_copy_back(fixture, memory.address, memory.bytes, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    return seen;
}

/* ---- making ---- */

static void a_reference_has_the_type_and_length_it_was_made_with(test_fixture *fixture)
{
    static const size_t bytes[] = {2, 2, 4, 8, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16};
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        const strata_element type = (strata_element)(i + 1);
        strata_ref *ref;
        assert_int_equal(strata_element_bytes(type), bytes[i]);
        check_ok(strata_ref_allocate(fixture->runtime, type, 77, false, NULL, &ref));
        keep(ref);
        assert_int_equal(strata_ref_type(ref), type);
        assert_int_equal(strata_ref_len(ref), 77);
        assert_false(strata_ref_is_empty(ref));
        assert_int_equal(strata_ref_device_id(ref), 0);
        assert_int_equal(strata_ref_generation(ref), 0);
        const strata_ref_memory memory = memory_of(ref);
        assert_int_equal(memory.bytes, 77 * bytes[i]);
        assert_int_equal(memory.block->requested, 77 * bytes[i]);
        assert_int_equal(memory.address, memory.block->address);
        check_ok(release(ref));
    }
    assert_int_equal(strata_element_bytes((strata_element)17), 0);
    assert_string_equal(strata_element_name((strata_element)17), "");
    assert_string_equal(strata_element_name(STRATA_ELEMENT_F8E5M2), "f8e5m2");
}

static void a_length_whose_bytes_overflow_is_refused(test_fixture *fixture)
{
    strata_ref *ref = (strata_ref *)fixture;
    check_status(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_C128, SIZE_MAX / 16 + 1, false, NULL, &ref),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(ref);
    check_status(strata_ref_allocate(fixture->runtime, (strata_element)17, 1, false, NULL, &ref),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_NONE, 1, false, NULL, &ref),
                 STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_reference_without_elements_has_no_memory(test_fixture *fixture)
{
    strata_ref *ref, *view;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F16, 0, true, NULL, &ref));
    keep(ref);
    assert_true(strata_ref_is_empty(ref));
    assert_int_equal(memory_of(ref).address, 0);
    assert_int_equal(live_blocks(fixture), 0);
    launch_fill(fixture, ref, 1, NULL);
    check_ok(strata_ref_record_write(ref, NULL));
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_NONE);
    check_ok(strata_ref_view(ref, 0, 0, STRATA_ELEMENT_F64, &view));
    keep(view);
    check_ok(release(ref));
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_stale(view, STRATA_STALE_CONTEXT_REBUILT);
    check_ok(release(view));
}

static void memory_that_is_made_zeroed_reads_as_zeros_on_every_stream(test_fixture *fixture)
{
    for (test_stream_kind a = 0; a < TEST_STREAM_KINDS; a++) {
        CUstream stream = test_stream(fixture, a), reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_ref *ref;
        test_stall *stall = test_stall_begin(stream);
        check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, LENGTH, true, stream, &ref));
        keep(ref);
        const unsigned char *seen = launch_read(fixture, ref, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0, BYTES);
        test_stall_end(stall);
        check_ok(release(ref));
        test_stream_close(fixture, stream);
        test_stream_close(fixture, reader);
    }
}

static void zeroing_that_fails_leaves_no_memory_behind(test_fixture *fixture)
{
    strata_ref *ref = (strata_ref *)fixture;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_fault_begin(TEST_FAULT_MEMSET, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, LENGTH, true, stream, &ref);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "zeroing 4 KiB");
    assert_null(ref);
    assert_int_equal(live_blocks(fixture), 0);
}

static CUresult refuse_identity(CUstream stream, unsigned long long *id)
{
    (void)stream;
    (void)id;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult refuse_wait(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

static strata_entry_table real_entries; /* while some are replaced */

/* From then on the stream can neither be identified nor waited for. */
static CUresult fill_for_the_last_time(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    strata_cu.StreamGetId = refuse_identity;
    strata_cu.StreamSynchronize = refuse_wait;
    return real_entries.MemsetD8Async(address, value, bytes, stream);
}

/* The work on the memory is not recorded: its free waits for the device. */
static void zeroing_that_cannot_be_noted_is_over_before_its_memory_is_freed(test_fixture *fixture)
{
    strata_ref *ref = (strata_ref *)fixture;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    real_entries = strata_cu;
    strata_cu.MemsetD8Async = fill_for_the_last_time;
    const strata_status status = strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, LENGTH, true, stream, &ref);
    strata_cu = real_entries;
    const CUresult over = test_cu()->StreamQuery(stream);
    check_status(status, STRATA_ERROR_DRIVER);
    assert_null(ref);
    assert_int_equal(over, CUDA_SUCCESS);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* frees what could not be freed without the identity */
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_block_that_is_adopted_belongs_to_its_reference(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_ref *ref;
    check_ok(strata_ref_adopt(fixture->runtime, &block, STRATA_ELEMENT_I16, 100, &ref));
    keep(ref);
    assert_int_equal(strata_ref_len(ref), 100);
    assert_int_equal(memory_of(ref).address, block.address);
    assert_int_equal(memory_of(ref).bytes, 200);
    check_ok(release(ref));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
}

static void a_block_that_cannot_be_adopted_stays_the_callers(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), freed = test_allocate(fixture, BYTES, stream);
    strata_ref *ref = (strata_ref *)fixture;
    test_free_on(fixture, &freed, stream);
    check_status(strata_ref_adopt(fixture->runtime, &block, STRATA_ELEMENT_F64, block.bytes / 8 + 1, &ref),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(ref);
    check_status(strata_ref_adopt(fixture->runtime, &block, STRATA_ELEMENT_F64, SIZE_MAX / 8 + 1, &ref),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_adopt(fixture->runtime, &freed, STRATA_ELEMENT_F64, 1, &ref), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_ref_adopt(fixture->runtime, NULL, STRATA_ELEMENT_F64, 1, &ref), STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &block, stream);
}

/* ---- access ---- */

static void access_gives_the_address_and_the_block_of_live_memory(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    const strata_ref_memory memory = memory_of(ref);
    CUdeviceptr address;
    strata_block found;
    check_ok(strata_ref_raw_device_ptr(ref, &address));
    assert_int_equal(address, memory.address);
    assert_int_equal(memory.stale, STRATA_STALE_NOT);
    check_ok(strata_runtime_find(fixture->runtime, address, &found));
    assert_memory_equal(&found.id, &memory.block->id, sizeof found.id);
    check_ok(release(ref));
}

static void a_rebuilt_context_makes_older_references_stale_and_no_newer_one(test_fixture *fixture)
{
    strata_ref *old = make(fixture, NULL), *view, *fresh;
    check_ok(strata_ref_view(old, 0, 1, STRATA_ELEMENT_F32, &view));
    keep(view);
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    fresh = make(fixture, NULL);
    check_stale(old, STRATA_STALE_CONTEXT_REBUILT);
    check_last_error(STRATA_ERROR_STALE, "the context was rebuilt");
    check_stale(view, STRATA_STALE_CONTEXT_REBUILT);
    memory_of(fresh);
    assert_int_equal(strata_ref_generation(old), 0);
    assert_int_equal(strata_ref_generation(fresh), 1);
    check_ok(release(old));
    check_ok(release(view));
    check_ok(release(fresh));
    assert_int_equal(live_blocks(fixture), 0);
}

static void shutdown_is_looked_at_before_the_generation_and_memory_stays_until_released(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL), *refused;
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_ok(strata_device_state_begin_shutdown(state_of(fixture)));
    check_stale(ref, STRATA_STALE_SHUTTING_DOWN);
    check_last_error(STRATA_ERROR_STALE, "shutting down");
    assert_int_equal(live_blocks(fixture), 1);
    assert_int_equal(strata_ref_device_id(ref), 0);
    check_status(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, 1, false, NULL, &refused),
                 STRATA_ERROR_STALE);
    assert_null(refused);
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 0);
}

static void several_references_are_given_together_or_none(test_fixture *fixture)
{
    strata_ref *old = make(fixture, NULL);
    strata_ref_memory memory[3];
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    strata_ref *fresh = make(fixture, NULL), *other = make(fixture, NULL);
    const strata_ref *both[] = {fresh, other}, *mixed[] = {fresh, old, other}, *missing[] = {fresh, NULL};
    check_ok(strata_refs_access(both, 2, memory));
    assert_int_equal(memory[0].address, memory_of(fresh).address);
    assert_int_equal(memory[1].address, memory_of(other).address);
    check_status(strata_refs_access(mixed, 3, memory), STRATA_ERROR_STALE);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(memory[i].address, 0);
        assert_int_equal(memory[i].stale, i == 1 ? STRATA_STALE_CONTEXT_REBUILT : STRATA_STALE_NOT);
    }
    check_status(strata_refs_access(missing, 2, memory), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_refs_access(NULL, 0, NULL));
    check_ok(release(old));
    check_ok(release(fresh));
    check_ok(release(other));
}

static void append(const char *text, size_t length, void *data)
{
    strncat(data, text, length);
}

static void print_writes_type_length_and_generation(test_fixture *fixture)
{
    char text[128] = "";
    strata_ref *ref;
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_BF16, 12, false, NULL, &ref));
    keep(ref);
    strata_ref_print(ref, append, text);
    assert_string_equal(text, "bf16[12], generation 1");
    check_ok(release(ref));
}

static void missing_references_are_refused(test_fixture *fixture)
{
    strata_ref_memory memory;
    (void)fixture;
    check_status(strata_ref_access(NULL, &memory), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_record_write(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use_ref(&launch, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_launch_end(&launch));
    assert_null(strata_ref_clone(NULL));
    check_ok(release(NULL));
    assert_true(strata_ref_is_empty(NULL));
    assert_int_equal(strata_ref_device_id(NULL), STRATA_DEVICE_NONE);
}

/* ---- views ---- */

static void a_view_has_its_part_of_the_memory_and_keeps_the_whole(test_fixture *fixture)
{
    strata_ref *whole = make(fixture, NULL), *view, *inner;
    const strata_ref_memory all = memory_of(whole);
    check_ok(strata_ref_view(whole, 16, 8, STRATA_ELEMENT_F64, &view));
    keep(view);
    check_ok(strata_ref_view(view, 8, 4, STRATA_ELEMENT_U16, &inner));
    keep(inner);
    check_ok(release(whole));
    check_ok(release(view));
    assert_int_equal(live_blocks(fixture), 1);
    assert_int_equal(strata_ref_len(inner), 4);
    assert_int_equal(strata_ref_type(inner), STRATA_ELEMENT_U16);
    assert_int_equal(memory_of(inner).address, all.address + 24);
    assert_int_equal(memory_of(inner).bytes, 8);
    assert_int_equal(memory_of(inner).block->address, all.address);
    check_ok(release(inner));
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_view_out_of_range_or_misaligned_is_refused(test_fixture *fixture)
{
    strata_ref *whole = make(fixture, NULL), *view = whole;
    const struct {
        size_t offset, length;
        strata_element type;
    } refused[] = {
        {0, LENGTH + 1, STRATA_ELEMENT_F32},
        {BYTES, 1, STRATA_ELEMENT_U8},
        {BYTES + 4, 0, STRATA_ELEMENT_F32},
        {SIZE_MAX - 3, 4, STRATA_ELEMENT_U8},
        {0, SIZE_MAX / 4 + 2, STRATA_ELEMENT_F32},
        {2, 1, STRATA_ELEMENT_F32},
        {8, 1, STRATA_ELEMENT_C128},
        {0, 1, STRATA_ELEMENT_NONE},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        check_status(strata_ref_view(whole, refused[i].offset, refused[i].length, refused[i].type, &view),
                     STRATA_ERROR_INVALID_VALUE);
        assert_null(view);
    }
    check_status(strata_ref_view(whole, 4, BYTES, STRATA_ELEMENT_U8, &view), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "a view of 4 KiB (4096 bytes) from byte 4 on exceeds its reference");
    check_ok(strata_ref_view(whole, BYTES, 0, STRATA_ELEMENT_F32, &view));
    keep(view);
    check_ok(release(view));
    check_ok(release(whole));
}

/* ---- releases ---- */

static void the_last_of_several_references_frees_the_memory(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(keep(strata_ref_clone(ref)), ref);
    for (int i = 0; i < 3; i++) {
        check_ok(release(ref));
        assert_int_equal(live_blocks(fixture), 1);
        memory_of(ref);
    }
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 0);
}

/* The block is allocated again on its stream while another stream still reads what it held. */
static void memory_that_is_released_is_reused_after_every_recorded_use(test_fixture *fixture)
{
    if (test_owner_is(fixture, "direct"))
        return; /* its frees wait on the host */
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind), reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_ref *ref = make(fixture, stream);
        launch_fill(fixture, ref, 0x31, stream);
        test_stall *stall = test_stall_begin(reader);
        const unsigned char *seen = launch_read(fixture, ref, reader);
        check_ok(release(ref));
        strata_ref *next = make(fixture, stream);
        launch_fill(fixture, next, 0x77, stream);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x31, BYTES);
        test_stall_end(stall);
        check_ok(release(next));
        test_stream_close(fixture, stream);
        test_stream_close(fixture, reader);
    }
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_reference_outlives_its_allocation_stream(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream stream = test_stream(fixture, kinds[i]);
        strata_ref *ref = make(fixture, stream);
        launch_fill(fixture, ref, 0x31, stream);
        test_stream_close(fixture, stream);
        check_ok(release(ref));
        assert_int_equal(live_blocks(fixture), 0);
    }
}

static void a_stale_reference_is_released_and_its_memory_freed(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL), *other = keep(strata_ref_clone(ref));
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 1);
    check_ok(release(other));
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_free_that_fails_is_made_by_a_later_release(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "direct"))
        return;
    strata_ref *ref = make(fixture, NULL), *other = make(fixture, NULL);
    test_fault_begin(TEST_FAULT_FREE, 1, true, CUDA_ERROR_UNKNOWN);
    const strata_status refused = release(ref);
    test_fault_end();
    if (refused != STRATA_SUCCESS) /* a direct owner may free late */
        assert_int_equal(live_blocks(fixture), 2);
    check_ok(release(other));
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_block_that_was_freed_behind_its_references_back_is_reported_by_the_last_release(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    const strata_block block = *memory_of(ref).block;
    test_free_on(fixture, &block, NULL);
    check_status(release(ref), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(live_blocks(fixture), 0); /* and the runtime can be destroyed */
}

static void a_free_inside_a_capture_is_made_after_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_ref *ref = make(fixture, stream), *pooled = make(fixture, NULL);
    test_begin_capture(stream);
    check_ok(release(ref));
    check_ok(release(pooled));
    test_end_capture(stream);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), stream));
    assert_int_equal(live_blocks(fixture), 0);
}

/* ---- launches ---- */

static void a_launch_orders_references_as_it_orders_blocks(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_ref *ref = make(fixture, writer);
    test_stall *stall = test_stall_begin(writer);
    launch_fill(fixture, ref, 0x42, writer);
    const unsigned char *first = launch_read(fixture, ref, reader);
    launch_fill(fixture, ref, 0x43, writer); /* waits for the read */
    const unsigned char *second = launch_read(fixture, ref, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(first, 0x42, BYTES);
    check_bytes(second, 0x43, BYTES);
    test_stall_end(stall);
    check_ok(release(ref));
}

static void views_of_one_block_are_one_use_with_the_strongest_access(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *whole = make(fixture, stream), *view;
    check_ok(strata_ref_view(whole, 64, 16, STRATA_ELEMENT_U8, &view));
    keep(view);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, memory_of(whole).block, STRATA_ACCESS_READ));
    check_ok(strata_launch_use_ref(&launch, view, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_use_ref(&launch, whole, STRATA_ACCESS_READ));
    assert_int_equal(launch.count, 1);
    assert_int_equal(launch.storage[0].access, STRATA_ACCESS_READ_WRITE);
    check_ok(release(whole));
    check_ok(release(view));
    assert_int_equal(live_blocks(fixture), 1); /* the launch has it */
    check_ok(strata_launch_end(&launch));
    assert_int_equal(live_blocks(fixture), 0);
}

/* How a launch names the memory, and how it ends. */
static void release_between_preflight_and_end(test_fixture *fixture, bool by_ref,
                                              strata_status (*finish)(strata_launch *launch), strata_status want)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = make(fixture, stream);
    const strata_ref_memory memory = memory_of(ref);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(by_ref ? strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE)
                    : strata_launch_use(&launch, memory.block, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(memory.address, 0x11, memory.bytes, stream);
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 1);
    check_status(finish(&launch), want);
    if (test_is_swept())
        check_ok(strata_runtime_reap_pending(fixture->runtime)); /* a free that fails is tried again */
    assert_int_equal(live_blocks(fixture), 0);
    if (want == STRATA_SUCCESS)
        check_ok(strata_launch_end(&launch));
}

static void a_release_between_preflight_and_commit_is_deferred_to_the_commit(test_fixture *fixture)
{
    for (int by_ref = 0; by_ref < 2; by_ref++)
        release_between_preflight_and_end(fixture, by_ref, strata_launch_commit, STRATA_SUCCESS);
}

static void a_release_between_preflight_and_an_end_without_commit_is_deferred_to_the_end(test_fixture *fixture)
{
    for (int by_ref = 0; by_ref < 2; by_ref++)
        release_between_preflight_and_end(fixture, by_ref, strata_launch_end, STRATA_ERROR_NOT_COMMITTED);
}

static void a_cancelled_launch_lets_go_of_its_references(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    check_ok(release(ref));
    check_ok(strata_launch_cancel(&launch));
    assert_int_equal(live_blocks(fixture), 0);
    check_ok(strata_launch_end(&launch));
}

static void a_launch_of_many_references_releases_each(test_fixture *fixture)
{
    enum { MANY = 100 };
    strata_ref *refs[MANY];
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    for (size_t i = 0; i < MANY; i++) {
        refs[i] = make(fixture, NULL);
        check_ok(strata_launch_use_ref(&launch, refs[i], STRATA_ACCESS_READ));
        check_ok(release(refs[i]));
    }
    check_ok(strata_launch_preflight(&launch));
    assert_int_equal(live_blocks(fixture), MANY);
    check_ok(strata_launch_commit(&launch));
    assert_int_equal(live_blocks(fixture), 0);
    check_ok(strata_launch_end(&launch));
}

static void a_launch_refuses_stale_references_when_they_are_named_and_at_preflight(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ));
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_STALE);
    check_ok(strata_launch_end(&launch));
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
    check_status(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ), STRATA_ERROR_STALE);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_STALE);
    check_ok(strata_launch_end(&launch));
    check_ok(release(ref)); /* was not pinned */
    assert_int_equal(live_blocks(fixture), 0);
}

/* ---- the last write ---- */

static void the_last_write_of_a_known_stream_gives_its_handle(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_LEGACY};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream alloc = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, kinds[i]);
        strata_ref *ref = make(fixture, alloc);
        launch_fill(fixture, ref, 0x10, stream);
        check_ok(strata_ref_last_write_stream(ref, &last));
        assert_int_equal(last.kind, STRATA_LAST_WRITE_STREAM);
        assert_ptr_equal(last.stream, stream);
        strata_last_write_release(&last);
        assert_int_equal(last.kind, STRATA_LAST_WRITE_NONE);
        check_ok(release(ref));
        test_stream_close(fixture, stream);
        test_stream_close(fixture, alloc);
    }
}

static void a_stream_that_is_held_as_last_writer_cannot_be_unregistered(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_ref *ref = make(fixture, stream);
    check_ok(strata_ref_record_write(ref, stream));
    check_ok(strata_ref_last_write_stream(ref, &last));
    check_ok(strata_ref_last_write_stream(ref, &also_last));
    check_status(strata_runtime_unregister_stream(fixture->runtime, stream), STRATA_ERROR_BUSY);
    strata_last_write_release(&last);
    check_status(strata_runtime_unregister_stream(fixture->runtime, stream), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "last writer");
    strata_last_write_release(&also_last);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    check_ok(release(ref));
}

static void the_last_write_of_an_unknown_stream_is_a_point_to_wait_for(test_fixture *fixture)
{
    CUstream alloc = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = make(fixture, alloc);
    test_order_after(writer, alloc);
    test_stall *stall = test_stall_begin(writer);
    test_fill(memory_of(ref).address, 0x21, BYTES, writer);
    check_ok(strata_ref_record_write(ref, writer));
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_POINT);
    assert_null(last.stream);
    check_ok(strata_last_write_wait(fixture->runtime, &last, reader));
    const unsigned char *seen = test_copy_back(fixture, memory_of(ref).address, BYTES, reader);
    strata_last_write_release(&last);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x21, BYTES);
    test_stall_end(stall);
    check_ok(release(ref));
}

static void a_stream_that_ended_after_its_write_is_a_point(test_fixture *fixture)
{
    CUstream alloc = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_ref *ref = make(fixture, alloc);
    launch_fill(fixture, ref, 0x10, writer);
    test_stream_close(fixture, writer);
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_POINT);
    check_ok(strata_last_write_wait(fixture->runtime, &last, alloc));
    const unsigned char *seen = test_copy_back(fixture, memory_of(ref).address, BYTES, alloc);
    strata_last_write_release(&last);
    test_synchronize(alloc);
    check_bytes(seen, 0x10, BYTES);
    check_ok(release(ref));
}

static void nothing_wrote_fresh_memory_once_its_allocation_is_complete(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = make(fixture, stream);
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_STREAM); /* work elsewhere has to wait for the allocation */
    assert_ptr_equal(last.stream, stream);
    strata_last_write_release(&last);
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_NONE);
    check_ok(strata_last_write_wait(fixture->runtime, &last, stream));
    check_ok(strata_ref_record_write(ref, stream));
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_STREAM);
    strata_last_write_release(&last);
    check_ok(release(ref));
}

/* Each pair of streams: one side uses record_write and last_write_stream alone, the other a launch. */
static void record_write_and_the_blocks_own_tracking_agree(test_fixture *fixture)
{
    for (test_stream_kind a = 0; a < TEST_STREAM_KINDS; a++)
        for (test_stream_kind b = 0; b < TEST_STREAM_KINDS; b++) {
            CUstream first = test_stream(fixture, a), second = test_stream(fixture, b);
            strata_ref *ref = make(fixture, first);
            test_stall *stall = test_stall_begin(first);
            test_fill(memory_of(ref).address, 0x51, BYTES, first);
            check_ok(strata_ref_record_write(ref, first)); /* the launch recorder sees it */
            const unsigned char *seen = launch_read(fixture, ref, second);
            launch_fill(fixture, ref, 0x52, second); /* and last_write_stream sees that */
            check_ok(strata_ref_last_write_stream(ref, &last));
            check_ok(strata_last_write_wait(fixture->runtime, &last, first));
            strata_last_write_release(&last);
            const unsigned char *after = test_copy_back(fixture, memory_of(ref).address, BYTES, first);
            test_stall_release(stall);
            test_synchronize(first);
            test_synchronize(second);
            check_bytes(seen, 0x51, BYTES);
            check_bytes(after, 0x52, BYTES);
            test_stall_end(stall);
            check_ok(release(ref));
            test_stream_close(fixture, first);
            test_stream_close(fixture, second);
            fixture->seen_used = 0;
        }
}

static void a_stale_reference_records_no_write_and_has_no_last_one(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    check_ok(strata_device_state_bump_generation(state_of(fixture), NULL));
    check_status(strata_ref_record_write(ref, NULL), STRATA_ERROR_STALE);
    check_status(strata_ref_last_write_stream(ref, &last), STRATA_ERROR_STALE);
    assert_int_equal(last.kind, STRATA_LAST_WRITE_NONE);
    check_ok(release(ref));
}

/* ---- with their runtime ---- */

static void a_runtime_with_live_references_is_not_destroyed(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL), *empty;
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 live reference;");
    check_ok(release(ref));
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, 0, false, NULL, &empty));
    keep(empty);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_ok(release(empty));
    ref = make(fixture, NULL);
    memory_of(ref); /* the runtime serves as before */
    check_ok(release(ref));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_reference_has_the_type_and_length_it_was_made_with),
        TEST_CASE(a_length_whose_bytes_overflow_is_refused),
        TEST_CASE(a_reference_without_elements_has_no_memory),
        TEST_CASE(memory_that_is_made_zeroed_reads_as_zeros_on_every_stream),
        TEST_CASE(zeroing_that_fails_leaves_no_memory_behind),
        TEST_CASE(zeroing_that_cannot_be_noted_is_over_before_its_memory_is_freed),
        TEST_CASE(a_block_that_is_adopted_belongs_to_its_reference),
        TEST_CASE(a_block_that_cannot_be_adopted_stays_the_callers),
        TEST_CASE(access_gives_the_address_and_the_block_of_live_memory),
        TEST_CASE(a_rebuilt_context_makes_older_references_stale_and_no_newer_one),
        TEST_CASE(shutdown_is_looked_at_before_the_generation_and_memory_stays_until_released),
        TEST_CASE(several_references_are_given_together_or_none),
        TEST_CASE(print_writes_type_length_and_generation),
        TEST_CASE(missing_references_are_refused),
        TEST_CASE(a_view_has_its_part_of_the_memory_and_keeps_the_whole),
        TEST_CASE(a_view_out_of_range_or_misaligned_is_refused),
        TEST_CASE(the_last_of_several_references_frees_the_memory),
        TEST_CASE(memory_that_is_released_is_reused_after_every_recorded_use),
        TEST_CASE(a_reference_outlives_its_allocation_stream),
        TEST_CASE(a_stale_reference_is_released_and_its_memory_freed),
        TEST_CASE(a_free_that_fails_is_made_by_a_later_release),
        TEST_CASE(a_block_that_was_freed_behind_its_references_back_is_reported_by_the_last_release),
        TEST_CASE(a_free_inside_a_capture_is_made_after_it),
        TEST_CASE(a_launch_orders_references_as_it_orders_blocks),
        TEST_CASE(views_of_one_block_are_one_use_with_the_strongest_access),
        TEST_CASE(a_release_between_preflight_and_commit_is_deferred_to_the_commit),
        TEST_CASE(a_release_between_preflight_and_an_end_without_commit_is_deferred_to_the_end),
        TEST_CASE(a_cancelled_launch_lets_go_of_its_references),
        TEST_CASE(a_launch_of_many_references_releases_each),
        TEST_CASE(a_launch_refuses_stale_references_when_they_are_named_and_at_preflight),
        TEST_CASE(the_last_write_of_a_known_stream_gives_its_handle),
        TEST_CASE(a_stream_that_is_held_as_last_writer_cannot_be_unregistered),
        TEST_CASE(the_last_write_of_an_unknown_stream_is_a_point_to_wait_for),
        TEST_CASE(a_stream_that_ended_after_its_write_is_a_point),
        TEST_CASE(nothing_wrote_fresh_memory_once_its_allocation_is_complete),
        TEST_CASE(record_write_and_the_blocks_own_tracking_agree),
        TEST_CASE(a_stale_reference_records_no_write_and_has_no_last_one),
        TEST_CASE(a_runtime_with_live_references_is_not_destroyed),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
