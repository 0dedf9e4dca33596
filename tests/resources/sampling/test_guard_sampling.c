/* The guard's sampling mode: where a sampled block lies, what becomes of it, which allocations are sampled, and that
 * they are blocks like any other. What the device says to an illegal access: test_guard_sampling_faults.c. */
#include <pthread.h>
#include <string.h>

#include "support/captures.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { GRANULE = 2 << 20, BYTES = 5000, ZONE_BYTE = 0xbd };

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

/* Where a driver call was made to fail, a block may be an ordinary one: then there is nothing to see. */
static bool gave_up(test_fixture *fixture)
{
    return test_is_swept() && (value(fixture, "guard.missed") || value(fixture, "guard.unchecked"));
}

static void check_sampled(test_fixture *fixture, uint64_t count)
{
    if (!gave_up(fixture))
        assert_int_equal(value(fixture, "guard.sampled"), count);
}

static void check_nothing_found(test_fixture *fixture)
{
    size_t findings = 77;
    check_ok(strata_guard_check(top(fixture), &findings));
    assert_int_equal(findings, 0);
}

static void check_one_found(test_fixture *fixture, strata_guard_kind kind, const strata_block *block, int64_t offset)
{
    size_t findings;
    strata_guard_finding finding, another;
    if (gave_up(fixture))
        return;
    check_status(strata_guard_check(top(fixture), &findings), STRATA_ERROR_CORRUPTED);
    assert_int_equal(findings, 1);
    assert_true(strata_guard_take_finding(top(fixture), &finding));
    assert_false(strata_guard_take_finding(top(fixture), &another));
    assert_int_equal(finding.kind, kind);
    assert_memory_equal(&finding.block, block, sizeof *block);
    assert_true(finding.offset == offset && finding.freed);
    assert_true(finding.allocated_at && finding.freed_at);
}

/* Whether nothing of the sampled blocks is left. */
static void check_all_gone(test_fixture *fixture)
{
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "guard.mapped_bytes"), 0);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_blocks == 0 && usage.bytes_outstanding == 0);
}

/* ---- where blocks lie ---- */

static void a_sampled_block_ends_where_its_mapping_ends(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 255, 256, 257, BYTES, GRANULE - 1, GRANULE, GRANULE + 1, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT], found;
    uint64_t mapped = 0;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, sizes[i], stream);
        assert_true(blocks[i].bytes == sizes[i] && blocks[i].requested == sizes[i] && blocks[i].alignment == 256);
        mapped += (sizes[i] + GRANULE - 1) / GRANULE * GRANULE;
        if (gave_up(fixture))
            continue;
        assert_true(blocks[i].address % 256 == 0);
        assert_true((blocks[i].address + (sizes[i] + 255) / 256 * 256) % GRANULE == 0);
        assert_int_equal(value(fixture, "guard.mapped_bytes"), mapped);
        check_ok(strata_runtime_find(fixture->runtime, blocks[i].address + sizes[i] - 1, &found));
        assert_memory_equal(&found, &blocks[i], sizeof found);
        check_status(strata_runtime_find(fixture->runtime, blocks[i].address + sizes[i], &found),
                     STRATA_ERROR_FOREIGN_POINTER);
    }
    check_sampled(fixture, COUNT);
    assert_int_equal(test_usage(fixture).live_blocks, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        test_write(fixture, &blocks[i], (unsigned char)(i + 1), stream);
        const unsigned char *bytes = test_read(fixture, &blocks[i], stream);
        test_synchronize(stream);
        check_bytes(bytes, (unsigned char)(i + 1), sizes[i]);
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
        fixture->seen_used = 0;
    }
    check_nothing_found(fixture);
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

static void an_address_can_be_nearer_to_the_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 1000, stream);
    if (!gave_up(fixture)) {
        assert_true((block.address + 1008) % GRANULE == 0);
        assert_int_equal(block.alignment, 16);
        strata_request aligned = {.bytes = 1000, .alignment = 128, .stream = stream};
        strata_block other;
        check_ok(strata_runtime_allocate_request(fixture->runtime, &aligned, &other));
        assert_true(other.address % 128 == 0 && other.alignment >= 128);
        test_free_on(fixture, &other, stream);
    }
    test_free_on(fixture, &block, stream);
    check_nothing_found(fixture);
    test_stream_close(fixture, stream);
}

static void places_go_round_and_a_block_that_lives_is_left_out(test_fixture *fixture)
{
    enum { PLACES = 3, ROUNDS = 2 }; /* of 16 MiB: one stays free at the start, and one behind each */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block stays = test_allocate(fixture, BYTES, stream);
    CUdeviceptr seen[ROUNDS * (PLACES - 1)];
    for (size_t i = 0; i < ROUNDS * (PLACES - 1); i++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        seen[i] = block.address;
        test_write(fixture, &block, 1, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        if (gave_up(fixture))
            continue;
        assert_true(seen[i] != stays.address);
        for (size_t j = i >= PLACES - 2 ? i - (PLACES - 2) : 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
        if (i >= PLACES - 1)
            assert_true(seen[i] == seen[i - (PLACES - 1)]);
    }
    test_write(fixture, &stays, 2, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &stays));
    check_nothing_found(fixture);
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

/* ---- zones ---- */

/* Writes some bytes as a kernel would that was told of the block. */
static void write_at(test_fixture *fixture, const strata_block *block, int64_t offset, size_t bytes, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
    if (!gave_up(fixture))
        test_fill(block->address + (CUdeviceptr)offset, 0x5a, bytes, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
}

static void what_is_written_into_the_slack_is_found_after_the_free(test_fixture *fixture)
{
    static const struct {
        size_t bytes;
        int64_t at, first;
        strata_guard_kind kind;
    } writes[] = {
        {1000, 1000, 1000, STRATA_GUARD_OVERRUN},
        {1, 255, 255, STRATA_GUARD_OVERRUN},
        {GRANULE + 3, GRANULE + 3, GRANULE + 3, STRATA_GUARD_OVERRUN},
        {BYTES, -1, -1, STRATA_GUARD_UNDERRUN},
        {256, -256, -256, STRATA_GUARD_UNDERRUN},
    };
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        strata_block block = test_allocate(fixture, writes[i].bytes, stream);
        write_at(fixture, &block, writes[i].at, 1, i % 2 ? stream : other);
        test_free_on(fixture, &block, stream);
        check_one_found(fixture, writes[i].kind, &block, writes[i].first);
        if (!gave_up(fixture))
            check_nothing_found(fixture); /* told once */
    }
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

/* What strata_malloc asks for, as aligned as the driver's memory. */
static void memory_aligned_to_512_is_sampled_and_checked_to_its_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const strata_request request = {.bytes = 1, .alignment = 512, .stream = stream};
    strata_block block;
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    if (!gave_up(fixture))
        assert_true(block.address % GRANULE == GRANULE - 512);
    write_at(fixture, &block, 511, 1, stream);
    test_free_on(fixture, &block, stream);
    check_one_found(fixture, STRATA_GUARD_OVERRUN, &block, 511);
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

/* ---- freeing ---- */

static void a_freed_block_is_unmapped_after_every_use_and_nobody_waits(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x33, alloc_stream);
    test_stall *stall = test_stall_begin(reader);
    const unsigned char *seen = test_read(fixture, &block, reader);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    if (!gave_up(fixture)) {
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_RETIRED);
        strata_block found;
        check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
        check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_READ),
                     STRATA_ERROR_USE_AFTER_FREE);
        assert_int_equal(value(fixture, "guard.mapped_bytes"), GRANULE);
        strata_usage usage = test_usage(fixture);
        assert_true(usage.live_blocks == 0 && usage.retired_bytes == BYTES);
    }
    test_stall_end(stall);
    check_bytes(seen, 0x33, BYTES);
    check_all_gone(fixture);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    check_nothing_found(fixture);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, reader);
}

static void a_block_is_unmapped_by_later_calls(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, BYTES, stream), second;
    test_write(fixture, &first, 0x33, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    check_cu(test_cu()->CtxSynchronize());
    second = test_allocate(fixture, BYTES, stream);
    if (!gave_up(fixture) && !test_is_swept()) /* a query that was made to fail is tried again by the next call */
        assert_int_equal(value(fixture, "guard.mapped_bytes"), GRANULE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    if (!gave_up(fixture) && !test_is_swept())
        assert_int_equal(value(fixture, "guard.mapped_bytes"), 0);
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

static void a_block_whose_stream_is_gone_is_freed_after_its_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x44, stream);
    test_stream_close(fixture, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_nothing_found(fixture);
    check_all_gone(fixture);
}

static void what_the_freeing_stream_was_given_is_waited_for(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_UNKNOWN, TEST_STREAM_ZERO};
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream other = test_stream(fixture, kinds[i]);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_synchronize(alloc_stream);
        test_fill(block.address, 0x66, BYTES, other); /* without a record */
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, other);
        test_free_on(fixture, &block, other);
        check_all_gone(fixture);
        check_bytes(seen, 0x66, gave_up(fixture) ? 0 : BYTES);
        test_stream_close(fixture, other);
    }
    check_nothing_found(fixture);
    test_stream_close(fixture, alloc_stream);
}

static void a_second_free_is_refused_and_tells_of_the_first(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), wrong = block;
    wrong.bytes = wrong.requested = 4;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    for (int i = 0; i < 2; i++) { /* while it is mapped, and then */
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        strata_guard_finding finding;
        if (gave_up(fixture))
            break;
        assert_true(strata_guard_take_finding(top(fixture), &finding));
        assert_int_equal(finding.kind, STRATA_GUARD_DOUBLE_FREE);
        assert_memory_equal(&finding.block, &block, sizeof block);
        assert_true(finding.allocated_at && finding.freed_at && finding.found_at);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

/* ---- several streams, and captures ---- */

static void blocks_pass_from_stream_to_stream(test_fixture *fixture)
{
    enum { BLOCKS = 6 };
    CUstream streams[] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN),
                          test_stream(fixture, TEST_STREAM_ZERO)};
    const unsigned char *seen[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        CUstream writer = streams[i % 3], reader = streams[(i + 1) % 3];
        strata_block block = test_allocate(fixture, BYTES, writer);
        test_write(fixture, &block, 0xee, writer);
        test_write(fixture, &block, (unsigned char)(i + 1), reader);
        seen[i] = test_read(fixture, &block, streams[(i + 2) % 3]);
        test_free_on(fixture, &block, writer);
        check_all_gone(fixture); /* and all that used it is done */
        check_bytes(seen[i], (unsigned char)(i + 1), BYTES);
    }
    check_nothing_found(fixture);
    test_stream_close(fixture, streams[0]);
    test_stream_close(fixture, streams[1]);
}

static void a_capture_gets_no_sample_and_a_free_in_one_waits_for_its_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), refused, beside;
    test_write(fixture, &block, 0x11, stream);
    test_begin_capture(stream);
    check_status(strata_runtime_allocate(fixture->runtime, BYTES, stream, &refused), STRATA_ERROR_STREAM_CAPTURE);
    beside = test_allocate(fixture, BYTES, other);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    check_ok(strata_runtime_deallocate(fixture->runtime, &beside));
    bool sampled = value(fixture, "guard.sampled") == 2;
    if (sampled)
        assert_true(test_usage(fixture).retired_bytes >= BYTES);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, stream), STRATA_ERROR_DOUBLE_FREE);
    test_end_capture(stream);
    assert_true(sampled || test_is_swept());
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), stream));
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

/* ---- which allocations are sampled ---- */

static void no_more_are_mapped_than_may_be(test_fixture *fixture)
{
    enum { MOST = 3, ASKED = 5 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[ASKED];
    for (size_t i = 0; i < ASKED; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    if (!test_is_swept()) {
        assert_int_equal(value(fixture, "guard.sampled"), MOST);
        assert_int_equal(value(fixture, "guard.missed"), ASKED - MOST);
        assert_int_equal(value(fixture, "guard.mapped_bytes"), MOST * GRANULE);
    }
    for (size_t i = 0; i < ASKED; i++) {
        test_write(fixture, &blocks[i], 7, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    }
    check_all_gone(fixture);
    set_value(fixture, "guard.sample_bytes", 2 * GRANULE);
    blocks[0] = test_allocate(fixture, 2 * GRANULE + 1, stream);
    assert_int_equal(value(fixture, "guard.mapped_bytes"), 0);
    blocks[1] = test_allocate(fixture, GRANULE + 1, stream);
    blocks[2] = test_allocate(fixture, 1, stream);
    if (!test_is_swept())
        assert_int_equal(value(fixture, "guard.mapped_bytes"), 2 * GRANULE);
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    check_all_gone(fixture);
    set_value(fixture, "guard.sample_blocks", 0);
    uint64_t before = value(fixture, "guard.sampled"), more = MOST + 1;
    blocks[0] = test_allocate(fixture, BYTES, stream);
    assert_int_equal(value(fixture, "guard.sampled"), before);
    check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[0]));
    check_status(strata_control(strata_runtime_stack(fixture->runtime), "guard.sample_blocks", NULL, &more),
                 STRATA_ERROR_INVALID_VALUE);
    more = 0;
    check_status(strata_control(strata_runtime_stack(fixture->runtime), "guard.sample", NULL, &more),
                 STRATA_ERROR_INVALID_VALUE);
    test_stream_close(fixture, stream);
}

enum { SERIES = 4000, EVERY = 20 };

/* Which of a series of allocations had their turn. Over null none of them can be sampled, and all are counted. */
static void run_series(test_fixture *fixture, bool turns[SERIES])
{
    uint64_t before = value(fixture, "guard.missed");
    for (size_t i = 0; i < SERIES; i++) {
        strata_block block = test_allocate(fixture, 64, NULL);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        uint64_t now = value(fixture, "guard.missed");
        turns[i] = now != before;
        before = now;
    }
}

static void one_allocation_in_n_has_its_turn_and_which_cannot_be_told(test_fixture *fixture)
{
    bool turns[SERIES];
    size_t count = 0, last = 0, shortest = SERIES, longest = 0;
    run_series(fixture, turns);
    for (size_t i = 0; i < SERIES; i++) {
        if (!turns[i])
            continue;
        if (count++) {
            shortest = i - last < shortest ? i - last : shortest;
            longest = i - last > longest ? i - last : longest;
        }
        last = i;
    }
    /* About 200 gaps of 1 to 39: their mean is within 5 of 20, which is six times its deviation (0.8). Sweeps run this
       test often enough to meet what lies beyond three. */
    assert_in_range(count, SERIES / (EVERY + 5), SERIES / (EVERY - 5));
    assert_true(shortest <= EVERY / 2 && longest >= EVERY + EVERY / 2 && longest < 2 * EVERY);
    assert_int_equal(value(fixture, "guard.sampled"), 0);
    size_t findings;
    check_ok(strata_guard_check(top(fixture), &findings));
}

static void a_seed_chooses_the_same_again(test_fixture *fixture)
{
    static bool first[SERIES], again[SERIES], other[SERIES];
    static const char *const texts[] = {"guard(sample=20, sample_seed=5), null",
                                        "guard(sample=20, sample_seed=6), null"};
    bool *series[] = {first, again, other};
    strata_runtime *kept = fixture->runtime;
    for (size_t i = 0; i < 3; i++) {
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i == 2]}, &fixture->runtime));
        run_series(fixture, series[i]);
        check_ok(strata_runtime_destroy(fixture->runtime));
        fixture->runtime = kept;
    }
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

/* ---- beside other layers ---- */

static void layers_above_see_a_block_like_any_other(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[3];
    strata_budget_snapshot snapshot;
    for (size_t i = 0; i < 3; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    check_ok(top(fixture)->ops->budget(top(fixture), &snapshot));
    assert_in_range(snapshot.in_use, 3 * BYTES, 3 * (BYTES + 512));
    assert_int_equal(value(fixture, "statistics.blocks.current"), 3);
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    assert_int_equal(value(fixture, "statistics.blocks.current"), 0);
    check_all_gone(fixture);
    check_ok(top(fixture)->ops->budget(top(fixture), &snapshot));
    assert_int_equal(snapshot.in_use, 0);
    check_sampled(fixture, 3);
    test_stream_close(fixture, stream);
}

/* A budget that is full of blocks which were freed and are mapped still waits for them, and not in vain. */
static void a_budget_gets_back_what_was_freed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (size_t i = 0; i < 4; i++) {
        strata_block block = test_allocate(fixture, 700 << 10, stream);
        test_write(fixture, &block, (unsigned char)i, stream);
        test_free_on(fixture, &block, stream);
    }
    check_all_gone(fixture);
    test_stream_close(fixture, stream);
}

static void an_outer_guard_holds_a_sampled_block_back(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), found;
    test_write(fixture, &block, 0x21, stream);
    check_ok(strata_runtime_find(fixture->runtime, block.address + 5, &found));
    assert_memory_equal(&found, &block, sizeof found);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_status(strata_runtime_find(fixture->runtime, block.address + 5, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_QUARANTINED);
    strata_resource *inner = strata_stack_layer(strata_runtime_stack(fixture->runtime), "guard", 1);
    check_status(inner->ops->find(inner, block.address + 5, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_nothing_found(fixture);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    assert_int_equal(value(fixture, "guard[1].mapped_bytes"), 0);
    test_stream_close(fixture, stream);
}

/* ---- threads ---- */

typedef struct worker {
    test_fixture *fixture;
    strata_runtime *runtime;
    pthread_t thread;
    size_t failed;
} worker;

/* No cmocka in here: it is not made for several threads. */
static void *work(void *data)
{
    enum { KEPT = 4 };
    worker *self = data;
    strata_block kept[KEPT] = {0};
    CUstream stream;
    test_make_current();
    if (strata_runtime_stream_acquire(self->runtime, &stream) != STRATA_SUCCESS)
        return self->failed++, NULL;
    size_t rounds = test_effort(120, 20);
    for (size_t i = 0; i < rounds; i++) {
        strata_block *block = &kept[i % KEPT];
        self->failed += strata_runtime_deallocate(self->runtime, block) != STRATA_SUCCESS;
        self->failed += strata_runtime_allocate(self->runtime, 100 + 13 * i, stream, block) != STRATA_SUCCESS;
        self->failed += strata_runtime_prepare_block_use(self->runtime, block, stream, STRATA_ACCESS_WRITE) ||
                        test_cu()->MemsetD8Async(block->address, 3, block->requested, stream) ||
                        strata_runtime_finish_block_use(self->runtime, block, stream, STRATA_ACCESS_WRITE);
    }
    for (size_t i = 0; i < KEPT; i++)
        self->failed += strata_runtime_deallocate(self->runtime, &kept[i]) != STRATA_SUCCESS;
    self->failed += strata_runtime_stream_release(self->runtime, stream) != STRATA_SUCCESS;
    test_leave_thread();
    return NULL;
}

static void threads_sample_at_the_same_time(test_fixture *fixture)
{
    enum { THREADS = 4 };
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.fixture = fixture, .runtime = fixture->runtime};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    size_t failed = 0;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        failed += workers[i].failed;
    }
    assert_true(failed == 0 || test_is_swept());
    if (!test_is_swept())
        assert_true(value(fixture, "guard.sampled") > 10);
    check_nothing_found(fixture);
    check_all_gone(fixture);
}

/* ---- making ---- */

static void options_that_mean_nothing_are_refused(test_fixture *fixture)
{
    (void)fixture;
    static const strata_guard_options wrong[] = {
        {.sample_blocks = 4},
        {.sample = 10, .zone = 512},
        {.sample = 10, .no_poison = 1},
        {.sample = 10, .quarantine_blocks = 3},
        {.sample = UINT64_C(1) << 40},
        {.sample = 10, .sample_blocks = 5000},
        {.sample = 10, .sample_alignment = 24},
        {.sample = 10, .sample_alignment = 512},
        {.sample = 10, .sample_bytes = UINT64_C(1) << 30, .sample_range = UINT64_C(1) << 30},
    };
    strata_resource *resource;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(strata_guard_create(0, &wrong[i], &resource), STRATA_ERROR_INVALID_VALUE);
        assert_null(resource);
    }
    strata_stack *stack;
    check_status(strata_stack_create("guard(sample=10, poison=off), null", 0, &stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "sample");
}

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

int main(void)
{
    test_open_driver();
    static const test_case cases[] = {
        TEST_CASE(a_sampled_block_ends_where_its_mapping_ends),
        TEST_CASE(what_is_written_into_the_slack_is_found_after_the_free),
        TEST_CASE(memory_aligned_to_512_is_sampled_and_checked_to_its_end),
        TEST_CASE(a_freed_block_is_unmapped_after_every_use_and_nobody_waits),
        TEST_CASE(a_block_is_unmapped_by_later_calls),
        TEST_CASE(a_block_whose_stream_is_gone_is_freed_after_its_work),
        TEST_CASE(what_the_freeing_stream_was_given_is_waited_for),
        TEST_CASE(a_second_free_is_refused_and_tells_of_the_first),
        TEST_CASE(blocks_pass_from_stream_to_stream),
        TEST_CASE(a_capture_gets_no_sample_and_a_free_in_one_waits_for_its_end),
    };
    static const test_case near[] = {TEST_CASE(an_address_can_be_nearer_to_the_end)};
    static const test_case round[] = {TEST_CASE(places_go_round_and_a_block_that_lives_is_left_out)};
    static const test_case bounded[] = {TEST_CASE(no_more_are_mapped_than_may_be)};
    static const test_case chosen[] = {TEST_CASE(one_allocation_in_n_has_its_turn_and_which_cannot_be_told),
                                       TEST_CASE(a_seed_chooses_the_same_again),
                                       TEST_CASE(options_that_mean_nothing_are_refused)};
    static const test_case above[] = {TEST_CASE(layers_above_see_a_block_like_any_other)};
    static const test_case tight[] = {TEST_CASE(a_budget_gets_back_what_was_freed)};
    static const test_case outer[] = {TEST_CASE(an_outer_guard_holds_a_sampled_block_back)};
    static const test_case many[] = {TEST_CASE(threads_sample_at_the_same_time)};
    static const struct {
        const char *stacks[2];
        const test_case *cases;
        size_t count;
    } runs[] = {
        {{"guard(sample=1), async", "guard(sample=1), direct"}, cases, COUNT(cases)},
        {{"guard(sample=1, sample_alignment=16), async"}, near, 1},
        {{"guard(sample=1, sample_bytes=6MiB, sample_range=16MiB), async"}, round, 1},
        {{"guard(sample=1, sample_blocks=3), async"}, bounded, 1},
        {{"guard(sample=20), null"}, chosen, COUNT(chosen)},
        {{"budget(limit=1GiB), statistics, guard(sample=1), async"}, above, 1},
        {{"budget(limit=1MiB), guard(sample=1), async", "budget(limit=1MiB), guard(sample=1), direct"}, tight, 1},
        {{"guard, guard(sample=1), async"}, outer, 1},
        {{"guard(sample=3, sample_seed=1), async", "guard(sample=3, sample_seed=1), direct"}, many, 1},
    };
    int failed = 0;
    for (size_t i = 0; i < COUNT(runs); i++)
        failed |= test_run_on(runs[i].stacks, runs[i].stacks[1] ? 2 : 1, runs[i].cases, runs[i].count);
    return failed;
}
