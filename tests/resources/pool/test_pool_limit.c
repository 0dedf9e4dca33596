/* A pool at its limit uses all free memory wherever it is. A request goes across several holes if nothing else is left,
 * and beside blocks if whole granules are few; a chunk that is too large for a hole is replaced. */
#include "core/stack/stack.h"
#include "support/captures.h"
#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"
#include "support/sweep.h"

enum { MOST = 16, HALF = 1 << 19 };

/* Adjacent blocks, of `halves` half mebibytes each, by a text's characters: "42" is 2 MiB and 1 MiB. */
typedef struct blocks_row {
    strata_block blocks[MOST];
    size_t count;
} blocks_row;

static void lay_out(test_fixture *fixture, blocks_row *row, const char *halves, CUstream stream)
{
    size_t all = 0;
    for (const char *at = halves; *at; at++)
        all += (size_t)(*at - '0') * HALF;
    strata_block whole = test_allocate(fixture, all, stream);
    test_free_on(fixture, &whole, stream);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, NULL)); /* empties the caches */
    CUdeviceptr address = whole.address;
    for (row->count = 0; halves[row->count]; row->count++) {
        strata_block *block = &row->blocks[row->count];
        *block = test_allocate(fixture, (size_t)(halves[row->count] - '0') * HALF, stream);
        assert_int_equal(block->address, address);
        address += block->bytes;
        test_write(fixture, block, (unsigned char)(row->count + 1), stream);
    }
}

static void free_one(test_fixture *fixture, blocks_row *row, size_t i, CUstream stream)
{
    test_free_on(fixture, &row->blocks[i], stream);
    row->blocks[i].id.generation = 0;
}

/* Live blocks have their bytes. */
static void end_row(test_fixture *fixture, blocks_row *row, CUstream stream)
{
    for (size_t i = 0; i < row->count; i++) {
        if (!row->blocks[i].id.generation)
            continue;
        check_ends(fixture, &row->blocks[i], (unsigned char)(i + 1), stream);
        test_free_on(fixture, &row->blocks[i], stream);
    }
}

static void serve(test_fixture *fixture, size_t halves, CUdeviceptr where, unsigned char value, CUstream stream,
                  strata_block *block)
{
    *block = test_allocate(fixture, halves * HALF, stream);
    assert_int_equal(block->address, where);
    test_write(fixture, block, value, stream);
}

/* ---- several holes ---- */

/* Of 16 MiB 8 are free, in extents of at most 4:
 *
 *     | block | block, free | hole | free | hole | free, block | block | block | free ....... | hole ...
 *     0       2      3      4      6      8      10     11     12      14      16             20
 *
 * Only with the last extent's chunks in the holes, 8 MiB are in one extent. */
typedef struct scattered {
    blocks_row row;
    CUdeviceptr start;
} scattered;

enum { FIRST = 2, SECOND = 4, THIRD = 6 }; /* of the row, free */

static void scatter_row(test_fixture *fixture, scattered *all, CUstream stream)
{
    lay_out(fixture, &all->row, "4224442244", stream);
    all->start = all->row.blocks[FIRST].address;
}

static void scatter(test_fixture *fixture, scattered *all, CUstream stream, const CUstream freeing[3])
{
    strata_block moved;
    blocks_row *row = &all->row;
    free_one(fixture, row, FIRST + 1, stream);
    free_one(fixture, row, SECOND + 1, stream);
    serve(fixture, 8, row->blocks[9].address + row->blocks[9].bytes, 0x77, stream, &moved);
    for (size_t i = 0; i < 3; i++) {
        strata_block *block = &row->blocks[FIRST + 2 * i];
        if (freeing[i] != stream)
            write_head(fixture, block, 0x66, freeing[i]);
        free_one(fixture, row, FIRST + 2 * i, freeing[i]);
    }
    test_free_on(fixture, &moved, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
}

static void all_that_is_free_serves_one_request_across_several_holes(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scattered all;
    strata_block block;
    set_limit(fixture, 16 * MIB);
    scatter_row(fixture, &all, stream);
    scatter(fixture, &all, stream, (CUstream[]){stream, stream, stream});
    serve(fixture, 16, all.start, 0x55, stream, &block);
    check_refused(fixture, HALF, stream);
    check_ends(fixture, &block, 0x55, stream);
    end_row(fixture, &all.row, stream);
    test_free_on(fixture, &block, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
}

/* So that a pool that remaps all the time notices (test_pool_overhead.c). */
static void memory_remapped_into_several_holes_counts_as_remapped(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    pool *self = pool_inside(fixture->runtime);
    scattered all;
    strata_block block;
    set_limit(fixture, 16 * MIB);
    scatter_row(fixture, &all, stream);
    scatter(fixture, &all, stream, (CUstream[]){stream, stream, stream});
    test_synchronize(stream);
    forget_remapping(fixture->runtime);
    earn_nothing(self);
    serve(fixture, 16, all.start, 0x55, stream, &block);
    assert_int_equal(window_bytes(self), 4 * MIB);
    end_row(fixture, &all.row, stream);
    test_free_on(fixture, &block, stream);
}

/* Free memory in the window itself cannot fill its holes. */
static void a_request_that_no_window_can_serve_remaps_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scattered all;
    strata_block between, half;
    set_limit(fixture, 16 * MIB);
    scatter_row(fixture, &all, stream);
    scatter(fixture, &all, stream, (CUstream[]){stream, stream, stream});
    between = test_allocate(fixture, 2 * MIB, stream); /* the best fit */
    half = test_allocate(fixture, 2 * MIB, stream);
    assert_int_equal(between.address, all.row.blocks[SECOND].address);
    test_free_on(fixture, &between, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_calls calls;
    test_calls_begin(&calls);
    check_refused(fixture, 11 * HALF, stream);
    assert_int_equal(test_calls_of(&calls, "cuMemUnmap"), 0);
    end_row(fixture, &all.row, stream);
    test_free_on(fixture, &half, stream);
}

/* The block waits for all streams of its parts, and for the remapped memory. */
static void a_request_across_holes_waits_for_all_that_free_what_is_between(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_UNKNOWN), d = test_stream(fixture, TEST_STREAM_POOL);
    scattered all;
    strata_block block;
    set_limit(fixture, 16 * MIB);
    scatter_row(fixture, &all, a);
    scatter(fixture, &all, a, (CUstream[]){b, c, a});
    serve(fixture, 16, all.start, 0x55, d, &block);
    check_ends(fixture, &block, 0x55, d);
    end_row(fixture, &all.row, a);
    test_free_on(fixture, &block, d);
}

static void without_waits_memory_between_holes_that_another_stream_has_freed_is_left_alone(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    scattered all;
    set_limit(fixture, 16 * MIB);
    scatter_row(fixture, &all, a);
    test_stall *stall = test_stall_begin(b);
    scatter(fixture, &all, a, (CUstream[]){a, b, a});
    check_refused(fixture, 16 * HALF, a);
    test_stall_end(stall);
    end_row(fixture, &all.row, a);
}

/* Without a limit, the device's counts. */
static void where_the_device_is_full_several_holes_are_used_too(test_fixture *fixture)
{
    test_needs_simulated_driver("all of the device's memory is used");
    if (test_under_valgrind()) /* which lacks the addresses */
        skip();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scattered all;
    size_t free_bytes, total;
    CUdeviceptr others;
    strata_block block = {0};
    scatter_row(fixture, &all, stream);
    check_cu(test_cu()->MemGetInfo(&free_bytes, &total));
    check_cu(test_cu()->MemAlloc(&others, free_bytes));
    scatter(fixture, &all, stream, (CUstream[]){stream, stream, stream});
    strata_status status = try_to_allocate(fixture, 16 * HALF, stream, &block);
    check_cu(test_cu()->MemFree(others));
    check_ok(status);
    assert_int_equal(block.address, all.start);
    test_write(fixture, &block, 0x55, stream);
    check_ends(fixture, &block, 0x55, stream);
    end_row(fixture, &all.row, stream);
    test_free_on(fixture, &block, stream);
    empty_the_pool(fixture);
}

/* The driver refuses a call for the second hole: no more is mapped than before, and the next request succeeds. */
static void a_refused_call_for_one_of_several_holes_leaves_nothing_behind(test_fixture *fixture)
{
    static const struct {
        const char *call;
        uint64_t first;
    } refused[] = {{"cuMemUnmap", 2}, {"cuMemMap", 2}, {"cuMemSetAccess", 2}, {"cuCtxGetCurrent", 1}};
    test_needs_simulated_driver("calls are refused");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const test_alive before = test_count_alive();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        scattered all;
        strata_block block;
        set_limit(fixture, 16 * MIB);
        scatter_row(fixture, &all, stream);
        scatter(fixture, &all, stream, (CUstream[]){stream, stream, stream});
        test_synchronize(stream);
        test_refuse(refused[i].call, refused[i].first, 20, CUDA_ERROR_UNKNOWN);
        const strata_status status = try_to_allocate(fixture, 16 * HALF, stream, &block);
        test_refuse_no_more();
        assert_int_not_equal(status, STRATA_SUCCESS);
        serve(fixture, 16, all.start, 0x55, stream, &block);
        check_ends(fixture, &block, 0x55, stream);
        end_row(fixture, &all.row, stream);
        test_free_on(fixture, &block, stream);
        lift_limit();
        empty_the_pool(fixture);
        check_alive(before);
    }
}

/* ---- chunks that are too large ---- */

/* In much memory, chunks have 4 MiB. One of them is free, and the hole has 2. */
static void a_chunk_that_is_too_large_for_a_hole_is_replaced_by_one_that_is_not(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved, block;
    lay_out(fixture, &row, "13431", stream); /* 6 MiB */
    strata_block large = test_allocate(fixture, 1024 * MIB, stream);
    strata_block chunk = test_allocate(fixture, 4 * MIB, stream);
    const uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
    strata_block rest = test_allocate(fixture, reserved - 1035 * MIB, stream); /* all but one */
    set_limit(fixture, reserved);
    free_one(fixture, &row, 2, stream);
    serve(fixture, 6, rest.address + rest.bytes, 0x77, stream, &moved);
    free_one(fixture, &row, 1, stream);
    free_one(fixture, &row, 3, stream);
    test_free_on(fixture, &chunk, stream);
    test_calls calls;
    test_calls_begin(&calls);
    serve(fixture, 10, row.blocks[1].address, 0x55, stream, &block);
    assert_int_equal(test_calls_of(&calls, "cuMemRelease"), 1);
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"), 1);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved - 2 * MIB);
    check_ends(fixture, &moved, 0x77, stream);
    check_ends(fixture, &block, 0x55, stream);
    end_row(fixture, &row, stream);
    strata_block *left[] = {&moved, &block, &rest, &large};
    for (size_t i = 0; i < 4; i++)
        test_free_on(fixture, left[i], stream);
}

/* As above, but the limit is so low that what is missing cannot be made, whatever is returned. */
static void nothing_is_returned_for_a_request_that_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved;
    lay_out(fixture, &row, "13431", stream);
    strata_block large = test_allocate(fixture, 1024 * MIB, stream);
    strata_block chunk = test_allocate(fixture, 4 * MIB, stream);
    const uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
    strata_block rest = test_allocate(fixture, reserved - 1035 * MIB, stream);
    set_limit(fixture, reserved);
    free_one(fixture, &row, 2, stream);
    serve(fixture, 6, rest.address + rest.bytes, 0x77, stream, &moved);
    free_one(fixture, &row, 1, stream);
    free_one(fixture, &row, 3, stream);
    test_free_on(fixture, &chunk, stream);
    set_limit(fixture, reserved / 2);
    const uint64_t released = value_of(fixture->runtime, "pool.released");
    check_refused(fixture, 5 * MIB, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved);
    assert_int_equal(value_of(fixture->runtime, "pool.released"), released);
    check_ends(fixture, &moved, 0x77, stream);
    set_limit(fixture, 0);
    end_row(fixture, &row, stream);
    strata_block *left[] = {&moved, &rest, &large};
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, left[i], stream);
}

/* A chunk in partial use cannot be remapped: the last memory below a limit is made in small chunks. */
static void the_last_memory_below_a_limit_is_made_in_small_chunks(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, 1040 * MIB, stream);
    strata_block second = test_allocate(fixture, 32 * MIB, stream);
    set_limit(fixture, 1500 * MIB);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block third = test_allocate(fixture, 64 * MIB, stream);
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"), 32);
    test_free_on(fixture, &first, stream);
    test_free_on(fixture, &second, stream);
    test_free_on(fixture, &third, stream);
}

/* ---- few granules ---- */

/* Of 64 MiB 6 are free: 1 on each side of a hole of 2, and 4 elsewhere. A request of 4 around the hole leaves 2 for
 * another one; in the free 4 it would leave nothing. */
static void near_a_limit_a_request_uses_what_is_left_beside_blocks(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved, block;
    set_limit(fixture, 64 * MIB);
    lay_out(fixture, &row, "2242284", stream); /* 12 MiB */
    strata_block wall = test_allocate(fixture, 51 * MIB, stream);
    free_one(fixture, &row, 2, stream);
    serve(fixture, 6, wall.address + wall.bytes, 0x77, stream, &moved);
    free_one(fixture, &row, 1, stream);
    free_one(fixture, &row, 3, stream);
    free_one(fixture, &row, 5, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* only memory known to be complete is remapped for that */
    serve(fixture, 8, row.blocks[1].address, 0x55, stream, &block);
    strata_block another = test_allocate(fixture, 2 * MIB, stream);
    check_refused(fixture, HALF, stream);
    check_ends(fixture, &block, 0x55, stream);
    check_ends(fixture, &moved, 0x77, stream);
    end_row(fixture, &row, stream);
    strata_block *left[] = {&moved, &block, &another, &wall};
    for (size_t i = 0; i < 4; i++)
        test_free_on(fixture, left[i], stream);
}

/* With little free memory, but far from the limit, nothing is remapped for that. */
static void far_from_a_limit_free_memory_is_used_as_it_lies(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved, block;
    set_limit(fixture, 64 * MIB);
    lay_out(fixture, &row, "2242284", stream);
    strata_block wall = test_allocate(fixture, 51 * MIB, stream);
    free_one(fixture, &row, 2, stream);
    serve(fixture, 6, wall.address + wall.bytes, 0x77, stream, &moved);
    set_limit(fixture, 128 * MIB);
    free_one(fixture, &row, 1, stream);
    free_one(fixture, &row, 3, stream);
    free_one(fixture, &row, 5, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_calls calls;
    test_calls_begin(&calls);
    serve(fixture, 8, row.blocks[5].address, 0x55, stream, &block);
    assert_int_equal(test_calls_of(&calls, "cuMemMap"), 0);
    end_row(fixture, &row, stream);
    strata_block *left[] = {&moved, &block, &wall};
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, left[i], stream);
}

/* While a blocking stream is captured, memory that the legacy stream freed cannot be waited for. However well it fits,
 * memory of other streams serves. */
static void memory_of_others_is_had_beside_a_capture_that_bars_the_legacy_stream(test_fixture *fixture)
{
    static const char *const texts[] = {"pool(max_size=2MiB, deterministic=on)",
                                        "pool(max_size=2MiB, deterministic=on), direct"};
    enum { SMALL = 512 };
    if (test_is_swept())
        return;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CUstream capturing, other = test_stream(fixture, TEST_STREAM_POOL);
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_runtime *small_pool;
        strata_block small, kept, large, block;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i]}, &small_pool));
        check_ok(strata_runtime_allocate(small_pool, SMALL, NULL, &small));
        check_ok(strata_runtime_allocate(small_pool, SMALL, NULL, &kept));
        check_ok(strata_runtime_allocate(small_pool, 2 * MIB - 2 * SMALL, other, &large));
        check_cu(test_cu()->StreamCreate(&capturing, CU_STREAM_DEFAULT));
        test_begin_capture(capturing);
        check_ok(strata_runtime_deallocate_on(small_pool, &small, NULL));
        check_ok(strata_runtime_deallocate_on(small_pool, &large, other));
        const strata_status status = strata_runtime_allocate(small_pool, SMALL, stream, &block);
        assert_int_equal(test_end_capture(capturing), 0);
        check_ok(status);
        assert_true(block.address > kept.address);
        check_ok(strata_runtime_deallocate_on(small_pool, &block, stream));
        check_ok(strata_runtime_deallocate_on(small_pool, &kept, NULL));
        check_ok(strata_runtime_destroy(small_pool));
        check_cu(test_cu()->StreamDestroy(capturing));
        test_stream_close(fixture, other);
        test_stream_close(fixture, stream);
    }
}

int main(void)
{
    static const char *const stacks[] = {"pool", "pool(deterministic=on)",
                                         "pool(internal_dependencies=off, opportunistic=off)"};
    static const test_case cases[] = {
        TEST_CASE(all_that_is_free_serves_one_request_across_several_holes),
        TEST_CASE(near_a_limit_a_request_uses_what_is_left_beside_blocks),
    };
    static const test_case with_waits[] = {
        TEST_CASE(memory_of_others_is_had_beside_a_capture_that_bars_the_legacy_stream),
        TEST_CASE(a_request_across_holes_waits_for_all_that_free_what_is_between),
        TEST_CASE(memory_remapped_into_several_holes_counts_as_remapped),
        TEST_CASE(a_request_that_no_window_can_serve_remaps_nothing),
        TEST_CASE(where_the_device_is_full_several_holes_are_used_too),
        TEST_CASE(a_refused_call_for_one_of_several_holes_leaves_nothing_behind),
        TEST_CASE(a_chunk_that_is_too_large_for_a_hole_is_replaced_by_one_that_is_not),
        TEST_CASE(nothing_is_returned_for_a_request_that_is_refused),
        TEST_CASE(the_last_memory_below_a_limit_is_made_in_small_chunks),
        TEST_CASE(far_from_a_limit_free_memory_is_used_as_it_lies),
    };
    static const test_case without[] = {
        TEST_CASE(without_waits_memory_between_holes_that_another_stream_has_freed_is_left_alone),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    int failed = test_run_on(stacks, 3, cases, sizeof cases / sizeof cases[0]);
    failed += test_run_on(stacks, 1, with_waits, sizeof with_waits / sizeof with_waits[0]);
    return failed + test_run_on(stacks + 2, 1, without, sizeof without / sizeof without[0]);
}
