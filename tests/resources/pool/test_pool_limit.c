/* A pool at its limit uses all free chunks wherever they are, what is left beside blocks, and memory of the other side;
 * a chunk that is too large for a hole is replaced. */
#include "support/captures.h"
#include "support/effort.h"
#include "support/pool.h"
#include "support/refusals.h"
#include "support/sweep.h"

enum { MOST = 16, HALF = 1 << 19 };

/* Adjacent blocks of 1 MiB and more, of `halves` half mebibytes each, by a text's characters: "42" is 2 MiB and 1 MiB.
 * For chunks of 2 MiB, before a limit is set: placement then spares granules. */
typedef struct blocks_row {
    strata_block blocks[MOST];
    size_t count;
} blocks_row;

static void lay_out(test_fixture *fixture, blocks_row *row, const char *halves, CUstream stream)
{
    size_t all = 0;
    empty_the_pool(fixture);
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

/* ---- free chunks ---- */

/* Of 16 MiB 10 are free, in extents of at most 4: only together they are 10.
 *
 *     | block | free  | block | free | block | free  | hole ...
 *     0       2       6       8      10      12      16 */
static void scatter(test_fixture *fixture, blocks_row *row, CUstream stream, const CUstream freeing[3])
{
    lay_out(fixture, row, "484448", stream);
    for (size_t i = 0; i < 3; i++) {
        if (freeing[i] != stream)
            write_head(fixture, &row->blocks[2 * i + 1], 0x66, freeing[i]);
        free_one(fixture, row, 2 * i + 1, freeing[i]);
    }
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
}

static void all_chunks_that_are_free_serve_one_request(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block block;
    scatter(fixture, &row, stream, (CUstream[]){stream, stream, stream});
    set_limit(fixture, 16 * MIB);
    serve(fixture, 20, row.blocks[5].address, 0x55, stream, &block);
    check_refused(fixture, HALF, stream);
    check_ends(fixture, &block, 0x55, stream);
    end_row(fixture, &row, stream);
    test_free_on(fixture, &block, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 16 * MIB);
}

static void a_request_for_more_than_is_free_moves_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    scatter(fixture, &row, stream, (CUstream[]){stream, stream, stream});
    set_limit(fixture, 16 * MIB);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_calls calls;
    test_calls_begin(&calls);
    check_refused(fixture, 21 * HALF, stream);
    assert_int_equal(test_calls_of(&calls, "cuMemUnmap"), 0);
    end_row(fixture, &row, stream);
}

/* The block waits for all streams of its parts, moved or not. */
static void a_request_waits_for_all_streams_that_freed_its_memory(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_UNKNOWN), d = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block block;
    scatter(fixture, &row, a, (CUstream[]){b, c, a});
    set_limit(fixture, 16 * MIB);
    serve(fixture, 20, row.blocks[5].address, 0x55, d, &block);
    check_ends(fixture, &block, 0x55, d);
    end_row(fixture, &row, a);
    test_free_on(fixture, &block, d);
}

/* Without a limit, the device's counts. */
static void where_the_device_is_full_all_free_chunks_are_used_too(test_fixture *fixture)
{
    test_needs_simulated_driver("all of the device's memory is used");
    if (test_under_valgrind()) /* which lacks the addresses */
        skip();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    size_t free_bytes, total;
    CUdeviceptr others;
    strata_block block = {0};
    scatter(fixture, &row, stream, (CUstream[]){stream, stream, stream});
    check_cu(test_cu()->MemGetInfo(&free_bytes, &total));
    check_cu(test_cu()->MemAlloc(&others, free_bytes));
    strata_status status = try_to_allocate(fixture, 20 * HALF, stream, &block);
    check_cu(test_cu()->MemFree(others));
    check_ok(status);
    assert_int_equal(block.address, row.blocks[5].address);
    test_write(fixture, &block, 0x55, stream);
    check_ends(fixture, &block, 0x55, stream);
    end_row(fixture, &row, stream);
    test_free_on(fixture, &block, stream);
    empty_the_pool(fixture);
}

/* No more is mapped than before, and the next request succeeds. */
static void a_refused_call_while_memory_is_moved_leaves_nothing_behind(test_fixture *fixture)
{
    static const struct {
        const char *call;
        uint64_t first;
    } refused[] = {{"cuMemUnmap", 1}, {"cuMemUnmap", 2},     {"cuMemMap", 1},
                   {"cuMemMap", 2},   {"cuMemSetAccess", 1}, {"cuCtxGetCurrent", 1}};
    test_needs_simulated_driver("calls are refused");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const test_alive before = test_count_alive();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        blocks_row row;
        strata_block block;
        scatter(fixture, &row, stream, (CUstream[]){stream, stream, stream});
        set_limit(fixture, 16 * MIB);
        test_synchronize(stream);
        test_refuse(refused[i].call, refused[i].first, 20, CUDA_ERROR_UNKNOWN);
        const strata_status status = try_to_allocate(fixture, 20 * HALF, stream, &block);
        test_refuse_no_more();
        assert_int_not_equal(status, STRATA_SUCCESS);
        block = test_allocate(fixture, 20 * HALF, stream);
        test_write(fixture, &block, 0x55, stream);
        check_ends(fixture, &block, 0x55, stream);
        end_row(fixture, &row, stream);
        test_free_on(fixture, &block, stream);
        lift_limit();
        empty_the_pool(fixture);
        check_alive(before);
    }
}

/* ---- beside blocks ---- */

/* Free are 1 MiB on each side of a hole of 2, and 2 elsewhere: together they serve 4.
 *
 *     | block | free | hole | free | block | free | moved ...
 *     0       3      4      6      7       10     12 */
static void lay_out_beside(test_fixture *fixture, blocks_row *row, strata_block *moved, CUstream stream, CUstream other)
{
    lay_out(fixture, row, "624264", stream);
    set_limit(fixture, 14 * MIB);
    free_one(fixture, row, 2, stream);
    serve(fixture, 8, row->blocks[5].address + row->blocks[5].bytes, 0x77, stream, moved);
    if (other != stream) {
        test_stall_begin(other);
        write_head(fixture, &row->blocks[1], 0x66, other);
    }
    free_one(fixture, row, 1, other);
    free_one(fixture, row, 3, stream);
    free_one(fixture, row, 5, stream);
}

static void end_beside(test_fixture *fixture, blocks_row *row, strata_block *moved, CUstream stream)
{
    check_ends(fixture, moved, 0x77, stream);
    end_row(fixture, row, stream);
    test_free_on(fixture, moved, stream);
}

static void what_is_left_beside_blocks_is_used(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved, block;
    lay_out_beside(fixture, &row, &moved, stream, stream);
    serve(fixture, 8, row.blocks[1].address, 0x55, stream, &block);
    check_refused(fixture, HALF, stream);
    check_ends(fixture, &block, 0x55, stream);
    test_free_on(fixture, &block, stream);
    end_beside(fixture, &row, &moved, stream);
}

static void without_waits_what_another_stream_freed_beside_a_block_is_left_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    blocks_row row;
    strata_block moved;
    lay_out_beside(fixture, &row, &moved, stream, other);
    check_refused(fixture, 8 * HALF, stream);
    test_stall_end_all();
    end_beside(fixture, &row, &moved, stream);
}

/* ---- the other side ---- */

/* Free memory among small blocks serves a large one at the limit, and the reverse; a stream that is stalled is not
 * waited for by the host. */
static void free_memory_serves_whichever_blocks_it_lies_among(test_fixture *fixture)
{
    static const char *const texts[] = {"pool(max_size=2MiB)", "pool(max_size=2MiB), direct"};
    if (test_is_swept())
        return;
    for (size_t i = 0; i < 2 * sizeof texts / sizeof texts[0]; i++) {
        CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
        const size_t sizes[] = {i % 2 ? 3 * HALF / 2 : 2 * HALF, i % 2 ? 2 * HALF : HALF};
        strata_runtime *other;
        strata_block kept, freed, block;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i / 2]}, &other));
        check_ok(strata_runtime_allocate(other, sizes[0], first, &freed));
        check_ok(strata_runtime_allocate(other, i % 2 ? 4096 : 2 * HALF, first, &kept));
        test_stall *stall = test_stall_begin(first);
        check_ok(strata_runtime_deallocate(other, &freed));
        test_calls calls;
        test_calls_begin(&calls);
        const strata_status status = strata_runtime_allocate(other, sizes[1], second, &block);
        const uint64_t waits = test_calls_of(&calls, "cuEventSynchronize");
        test_stall_end(stall);
        check_ok(status);
        assert_int_equal(waits, 0);
        assert_int_equal(value_of(other, "pool.reserved"), 2 * MIB);
        check_ok(strata_runtime_deallocate(other, &kept));
        check_ok(strata_runtime_deallocate(other, &block));
        check_ok(strata_runtime_destroy(other));
        test_stream_close(fixture, first);
        test_stream_close(fixture, second);
    }
}

/* All addresses for large blocks are in use; those for small ones are not. */
static void a_request_gets_addresses_of_the_other_side(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    enum { BLOCKS = 64 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *other;
    strata_block blocks[BLOCKS], block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(max_size=64MiB)"}, &other));
    check_ok(strata_control(strata_runtime_stack(other), "pool.limit", NULL, &(uint64_t){BLOCKS * 4 * MIB}));
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_allocate(other, 4 * MIB, stream, &blocks[i]));
    for (size_t i = 0; i < BLOCKS; i += 2)
        check_ok(strata_runtime_deallocate(other, &blocks[i]));
    check_ok(strata_runtime_allocate(other, 64 * MIB, stream, &block));
    for (size_t i = 1; i < BLOCKS; i += 2)
        check_ok(strata_runtime_deallocate(other, &blocks[i]));
    check_ok(strata_runtime_deallocate(other, &block));
    check_ok(strata_runtime_destroy(other));
}

/* ---- chunks that are too large ---- */

/* Adjacent blocks of one chunk each, free or live, and one in a hole's chunk:
 *
 *     | live | free | hole | free | live | free, one chunk | live | moved
 *     0      2      4      6      8      10                14     16      20 */
typedef struct too_large {
    strata_block live[3], moved;
    CUdeviceptr beside; /* the hole */
    uint64_t reserved;
} too_large;

static void make_too_large(test_fixture *fixture, too_large *all, CUstream stream)
{
    strata_block blocks[7];
    empty_the_pool(fixture);
    const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
    for (size_t i = 0; i < 7; i++)
        blocks[i] = test_allocate(fixture, (i == 5 ? 4 : 2) * MIB, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), made + 7);
    *all = (too_large){.live = {blocks[0], blocks[4], blocks[6]}, .beside = blocks[1].address, .reserved = 18 * MIB};
    set_limit(fixture, all->reserved);
    test_free_on(fixture, &blocks[2], stream);
    test_synchronize(stream); /* unfinished memory would leave no hole */
    serve(fixture, 8, blocks[6].address + blocks[6].bytes, 0x77, stream, &all->moved);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), all->reserved);
    test_free_on(fixture, &blocks[1], stream);
    test_free_on(fixture, &blocks[3], stream);
    test_free_on(fixture, &blocks[5], stream);
    test_synchronize(stream);
}

static void end_too_large(test_fixture *fixture, const too_large *all, CUstream stream)
{
    check_ends(fixture, &all->moved, 0x77, stream);
    test_free_on(fixture, &all->moved, stream);
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, &all->live[i], stream);
}

static void a_chunk_that_is_too_large_for_a_hole_is_replaced_by_one_that_is_not(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    too_large all;
    strata_block block;
    make_too_large(fixture, &all, stream);
    test_calls calls;
    test_calls_begin(&calls);
    serve(fixture, 12, all.beside, 0x55, stream, &block);
    assert_int_equal(test_calls_of(&calls, "cuMemRelease"), 1);
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"), 1);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), all.reserved - 2 * MIB);
    check_ends(fixture, &block, 0x55, stream);
    test_free_on(fixture, &block, stream);
    end_too_large(fixture, &all, stream);
}

/* As above, but the limit is so low that what is missing cannot be made, whatever is returned. */
static void nothing_is_returned_for_a_request_that_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    too_large all;
    make_too_large(fixture, &all, stream);
    set_limit(fixture, all.reserved / 2);
    const uint64_t released = value_of(fixture->runtime, "pool.released");
    check_refused(fixture, 9 * MIB, stream); /* 8 are free */
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), all.reserved);
    assert_int_equal(value_of(fixture->runtime, "pool.released"), released);
    set_limit(fixture, 0);
    end_too_large(fixture, &all, stream);
}

/* A chunk in partial use cannot be remapped: the last memory below a limit is made in small chunks. */
static void the_last_memory_below_a_limit_is_made_in_small_chunks(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, 1040 * MIB, stream);
    strata_block second = test_allocate(fixture, 32 * MIB, stream);
    set_limit(fixture, 1500 * MIB);
    const uint64_t before = value_of(fixture->runtime, "pool.reserved");
    test_calls calls;
    test_calls_begin(&calls);
    strata_block third = test_allocate(fixture, 64 * MIB, stream);
    assert_int_equal(test_calls_of(&calls, "cuMemCreate"),
                     (value_of(fixture->runtime, "pool.reserved") - before) / (2 * MIB));
    test_free_on(fixture, &first, stream);
    test_free_on(fixture, &second, stream);
    test_free_on(fixture, &third, stream);
}

/* ---- captures ---- */

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
    static const char *const stacks[] = {"pool(chunk=2MiB)", "pool(chunk=2MiB, deterministic=on)",
                                         "pool(chunk=2MiB, internal_dependencies=off, opportunistic=off)"};
    static const char *const larger_chunks[] = {"pool(chunk=4MiB)"}, *const of_any_size[] = {"pool"};
    static const test_case cases[] = {
        TEST_CASE(all_chunks_that_are_free_serve_one_request),
        TEST_CASE(what_is_left_beside_blocks_is_used),
    };
    static const test_case with_waits[] = {
        TEST_CASE(a_request_for_more_than_is_free_moves_nothing),
        TEST_CASE(a_request_waits_for_all_streams_that_freed_its_memory),
        TEST_CASE(where_the_device_is_full_all_free_chunks_are_used_too),
        TEST_CASE(a_refused_call_while_memory_is_moved_leaves_nothing_behind),
    };
    static const test_case without[] = {
        TEST_CASE(without_waits_what_another_stream_freed_beside_a_block_is_left_alone)};
    static const test_case too_large_chunks[] = {
        TEST_CASE(a_chunk_that_is_too_large_for_a_hole_is_replaced_by_one_that_is_not),
        TEST_CASE(nothing_is_returned_for_a_request_that_is_refused),
    };
    static const test_case others[] = {
        TEST_CASE(free_memory_serves_whichever_blocks_it_lies_among),
        TEST_CASE(a_request_gets_addresses_of_the_other_side),
        TEST_CASE(the_last_memory_below_a_limit_is_made_in_small_chunks),
        TEST_CASE(memory_of_others_is_had_beside_a_capture_that_bars_the_legacy_stream),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    int failed = test_run_on(stacks, 3, cases, sizeof cases / sizeof cases[0]);
    failed += test_run_on(stacks, 1, with_waits, sizeof with_waits / sizeof with_waits[0]);
    failed += test_run_on(stacks + 2, 1, without, sizeof without / sizeof without[0]);
    failed += test_run_on(larger_chunks, 1, too_large_chunks, sizeof too_large_chunks / sizeof too_large_chunks[0]);
    return failed + test_run_on(of_any_size, 1, others, sizeof others / sizeof others[0]);
}
