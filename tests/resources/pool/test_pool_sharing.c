/* pool: physical memory that another process, a network card or a graph knows stays in its place. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/timestamp.h"
#include "support/beside.h"
#include "support/captures.h"
#include "support/pool.h"
#include "support/sweep.h"

enum { CHUNK = 2 << 20 /* mapping granularity of the simulated device and of an H200 */ };

/* ---- host memory ---- */

static bool drought;

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return drought ? NULL : __real_strata_host_zalloc(bytes);
}

static strata_resource *stack_of(test_fixture *fixture)
{
    return strata_stack_top(strata_runtime_stack(fixture->runtime));
}

static size_t reserved(test_fixture *fixture)
{
    return test_usage(fixture).reserved_bytes;
}

/* The descriptor of the next file: the same as before if none was left open. */
static int next_file(void)
{
    const int file = open("/dev/null", O_RDONLY);
    assert_true(file >= 0);
    close(file);
    return file;
}

/* Two blocks of which one chunk is common: the second begins in the middle of it. */
static strata_block allocate_across_chunks(test_fixture *fixture, strata_block *before, CUstream stream)
{
    *before = test_allocate(fixture, 3 * MIB / 2, stream);
    strata_block block = test_allocate(fixture, 6 * MIB, stream);
    return block;
}

/* The parts are the block, and each but the last ends with its handle. */
static void check_parts(const strata_block *block, const strata_pool_hold *hold)
{
    size_t count = 77, bytes = 0;
    const strata_pool_part *parts = strata_pool_hold_parts(hold, &count);
    assert_true(count > 1);
    for (size_t i = 0; i < count; i++) {
        assert_true(parts[i].address == block->address + bytes);
        assert_true(parts[i].offset + parts[i].bytes <= parts[i].handle_bytes);
        assert_true(i == 0 || parts[i].offset == 0);
        assert_true(i == count - 1 || parts[i].offset + parts[i].bytes == parts[i].handle_bytes);
        bytes += parts[i].bytes;
    }
    assert_true(bytes == block->bytes);
}

/* ---- other processes ---- */

static struct {
    PFN_cuMemImportFromShareableHandle_v10020 import;
    CUmemGenericAllocationHandle handles[64];
    CUdeviceptr range;
    size_t bytes, count;
} importer;

/* What a process does that receives the parts: the files are closed then. */
static CUdeviceptr import_parts(const strata_pool_hold *hold)
{
    const strata_pool_part *parts = strata_pool_hold_parts(hold, &importer.count);
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    test_find_driver_call("cuMemImportFromShareableHandle", 10020, &importer.import);
    importer.bytes = 0;
    for (size_t i = 0; i < importer.count; i++)
        importer.bytes += parts[i].handle_bytes;
    check_cu(test_cu()->MemAddressReserve(&importer.range, importer.bytes, 0, 0, 0));
    CUdeviceptr at = importer.range;
    for (size_t i = 0; i < importer.count; at += parts[i++].handle_bytes) {
        check_cu(importer.import(&importer.handles[i], (void *)(intptr_t)parts[i].fd,
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        assert_int_equal(close(parts[i].fd), 0);
        check_cu(test_cu()->MemMap(at, parts[i].handle_bytes, 0, importer.handles[i], 0));
    }
    check_cu(test_cu()->MemSetAccess(importer.range, importer.bytes, &access, 1));
    return importer.range + parts[0].offset;
}

static void end_import(const strata_pool_hold *hold)
{
    const strata_pool_part *parts = strata_pool_hold_parts(hold, NULL);
    CUdeviceptr at = importer.range;
    for (size_t i = 0; i < importer.count; at += parts[i++].handle_bytes) {
        check_cu(test_cu()->MemUnmap(at, parts[i].handle_bytes));
        check_cu(test_cu()->MemRelease(importer.handles[i]));
    }
    check_cu(test_cu()->MemAddressFree(importer.range, importer.bytes));
}

/* Requests that would remap or return memory: all of it is free and needed in one extent. */
static void press(test_fixture *fixture, size_t bytes, CUstream stream)
{
    check_cu(test_cu()->CtxSynchronize());
    set_limit(fixture, bytes);
    strata_block block;
    if (try_to_allocate(fixture, bytes, stream, &block) == STRATA_SUCCESS)
        test_free_on(fixture, &block, stream);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    set_limit(fixture, 0);
}

static void a_process_that_imports_the_parts_of_a_block_sees_its_bytes(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    test_write(fixture, &block, 0x41, stream);
    strata_pool_hold *hold;
    const int file = next_file();
    check_ok(strata_pool_export(stack_of(fixture), &block, &hold));
    check_parts(&block, hold);
    const CUdeviceptr seen = import_parts(hold);
    test_synchronize(stream);
    const unsigned char *head = test_copy_back(fixture, seen, EDGE, stream);
    const unsigned char *tail = test_copy_back(fixture, seen + block.bytes - EDGE, EDGE, stream);
    test_synchronize(stream);
    check_bytes(head, 0x41, EDGE);
    check_bytes(tail, 0x41, EDGE);
    test_fill(seen, 0x42, block.bytes, stream);
    check_ends(fixture, &block, 0x42, stream);
    end_import(hold);
    strata_pool_hold_end(hold);
    assert_int_equal(next_file(), file);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &before, stream);
}

/* The older chunk is remapped behind the newer one. */
static void parts_come_in_the_order_of_addresses_whichever_chunk_is_older(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[3];
    strata_pool_hold *hold;
    for (size_t i = 0; i < 3; i++)
        blocks[i] = test_allocate(fixture, CHUNK, stream);
    set_limit(fixture, 3 * CHUNK);
    test_free_on(fixture, &blocks[0], stream);
    test_free_on(fixture, &blocks[2], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    strata_block block = test_allocate(fixture, 2 * CHUNK, stream);
    assert_int_equal(block.address, blocks[2].address);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.moved"), 1);
    test_fill(block.address, 0x44, CHUNK, stream);
    test_fill(block.address + CHUNK, 0x45, CHUNK, stream);
    check_ok(strata_pool_export(stack_of(fixture), &block, &hold));
    check_parts(&block, hold);
    const CUdeviceptr seen = import_parts(hold);
    test_synchronize(stream);
    const unsigned char *first = test_copy_back(fixture, seen, EDGE, stream);
    const unsigned char *second = test_copy_back(fixture, seen + CHUNK, EDGE, stream);
    test_synchronize(stream);
    check_bytes(first, 0x44, EDGE);
    check_bytes(second, 0x45, EDGE);
    end_import(hold);
    strata_pool_hold_end(hold);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &blocks[1], stream);
}

/* Otherwise the importer would see returned memory, and the addresses would have other memory. */
static void exported_memory_is_neither_remapped_nor_returned(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    strata_pool_hold *hold;
    check_ok(strata_pool_export(stack_of(fixture), &block, &hold));
    const CUdeviceptr seen = import_parts(hold);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &before, stream);
    press(fixture, 12 * MIB, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 8 * MIB);
    assert_int_equal(reserved(fixture), 8 * MIB);
    strata_block again = test_allocate(fixture, 8 * MIB, stream); /* it serves other requests */
    test_write(fixture, &again, 0x43, stream);
    assert_true(again.address <= block.address && block.address + block.bytes <= again.address + again.bytes);
    test_synchronize(stream);
    const unsigned char *head = test_copy_back(fixture, seen, EDGE, stream);
    test_synchronize(stream);
    check_bytes(head, 0x43, EDGE);
    test_free_on(fixture, &again, stream);
    end_import(hold);
    strata_pool_hold_end(hold);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    empty_the_pool(fixture);
}

static struct {
    PFN_cuMemExportToShareableHandle_v10020 export;
    unsigned calls;
} refused;

static CUresult CUDAAPI refuse_the_third(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                         unsigned long long flags)
{
    return ++refused.calls == 3 ? CUDA_ERROR_OPERATING_SYSTEM : refused.export(out, handle, type, flags);
}

static void an_export_that_fails_leaves_no_file_and_no_hold(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    strata_pool_hold *hold = (strata_pool_hold *)&block;
    const int file = next_file();
    refused.calls = 0;
    refused.export = strata_cu.MemExportToShareableHandle;
    strata_cu.MemExportToShareableHandle = refuse_the_third;
    strata_status status = strata_pool_export(stack_of(fixture), &block, &hold);
    strata_cu.MemExportToShareableHandle = refused.export;
    assert_int_equal(refused.calls, 3);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "cuMemExportToShareableHandle");
    assert_null(hold);
    assert_int_equal(next_file(), file);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &before, stream);
    empty_the_pool(fixture);
}

/* ---- holds ---- */

static void held_memory_stays_until_its_last_hold_ends(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    strata_pool_hold *holds[3];
    check_ok(strata_pool_hold_begin(stack_of(fixture), &block, &holds[0]));
    check_ok(strata_pool_hold_begin(stack_of(fixture), &before, &holds[1])); /* one chunk is in both */
    check_ok(strata_pool_hold_begin(stack_of(fixture), &block, &holds[2]));
    check_parts(&block, holds[0]);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 8 * MIB);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &before, stream);
    strata_pool_hold_end(holds[0]);
    press(fixture, 12 * MIB, stream);
    assert_int_equal(reserved(fixture), 8 * MIB);
    strata_pool_hold_end(holds[2]);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), CHUNK);
    press(fixture, 12 * MIB, stream);
    assert_int_equal(reserved(fixture), CHUNK);
    strata_pool_hold_end(holds[1]);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    empty_the_pool(fixture);
}

/* Free chunks without holds are remapped; a request that needs more is refused. */
static void a_request_that_needs_held_memory_elsewhere_is_refused(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block gaps[3], walls[3], block;
    strata_pool_hold *hold;
    for (size_t i = 0; i < 3; i++) {
        gaps[i] = test_allocate(fixture, 2 * CHUNK, stream);
        walls[i] = test_allocate(fixture, CHUNK, stream);
        test_write(fixture, &walls[i], 0x51, stream);
    }
    check_ok(strata_pool_hold_begin(stack_of(fixture), &gaps[1], &hold));
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, &gaps[i], stream);
    set_limit(fixture, 9 * CHUNK);
    check_cu(test_cu()->CtxSynchronize());
    check_refused(fixture, 6 * CHUNK, stream);
    block = test_allocate(fixture, 4 * CHUNK, stream);
    test_free_on(fixture, &block, stream);
    strata_pool_hold_end(hold);
    check_cu(test_cu()->CtxSynchronize());
    block = test_allocate(fixture, 6 * CHUNK, stream);
    test_write(fixture, &block, 0x52, stream);
    test_free_on(fixture, &block, stream);
    for (size_t i = 0; i < 3; i++) {
        check_ends(fixture, &walls[i], 0x51, stream);
        test_free_on(fixture, &walls[i], stream);
    }
}

/* In another tick of the clock that decay reads: another window, where that is a nanosecond. */
static void reap_later(test_fixture *fixture)
{
    const uint64_t before = strata_timestamp_coarse();
    while (strata_timestamp_coarse() == before)
        usleep(1000);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
}

/* Held memory stays, and goes without the hold, in the window after the first one that it is unused in. */
static void reap_beside_a_hold(test_fixture *fixture, const char *name, unsigned windows)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 8 * MIB, stream);
    strata_pool_hold *hold;
    check_ok(strata_pool_hold_begin(stack_of(fixture), &block, &hold));
    test_free_on(fixture, &block, stream);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, NULL, &(uint64_t){1}));
    for (unsigned i = 0; i < windows; i++)
        reap_later(fixture);
    const size_t held = reserved(fixture);
    strata_pool_hold_end(hold);
    for (unsigned i = 0; i < windows; i++)
        reap_later(fixture);
    assert_int_equal(held, 8 * MIB);
    assert_int_equal(reserved(fixture), 0);
}

static void a_reap_leaves_held_memory(test_fixture *fixture)
{
    reap_beside_a_hold(fixture, "pool.release_threshold", 1);
}

static void decay_leaves_held_memory(test_fixture *fixture)
{
    reap_beside_a_hold(fixture, "pool.decay", 3);
}

static struct {
    char text[1 << 16];
    size_t used;
} report;

static void collect(const char *text, size_t length, void *data)
{
    (void)data;
    const size_t room = sizeof report.text - 1 - report.used;
    memcpy(report.text + report.used, text, length < room ? length : room);
    report.used += length < room ? length : room;
    report.text[report.used] = '\0';
}

/* How often the pool's report has the words. */
static size_t count_in_report(test_fixture *fixture, const char *words)
{
    size_t count = 0;
    report.used = 0;
    check_ok(strata_stats_print(strata_runtime_stack(fixture->runtime), STRATA_FORMAT_JSON, collect, NULL));
    for (const char *at = report.text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

static void the_report_has_all_chunks_and_says_which_are_held(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    strata_block other = test_allocate(fixture, 8 * MIB, stream);
    strata_pool_hold *hold;
    check_ok(strata_pool_hold_begin(stack_of(fixture), &before, &hold));
    const size_t chunks = reserved(fixture) / CHUNK;
    assert_int_equal(count_in_report(fixture, "\"held\": true"), 1);
    assert_int_equal(count_in_report(fixture, "\"held\": false"), chunks - 1);
    strata_pool_hold_end(hold);
    assert_int_equal(count_in_report(fixture, "\"held\": true"), 0);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &before, stream);
    test_free_on(fixture, &other, stream);
}

/* ---- several threads ---- */

enum { THREADS = 3, TURNS = 150 };

typedef struct holder {
    test_fixture *fixture;
    CUstream stream;
    unsigned number;
    bool good;
} holder;

static bool hold_for_a_while(const holder *self, unsigned ticket)
{
    strata_runtime *runtime = self->fixture->runtime;
    strata_block block;
    strata_pool_hold *hold;
    const size_t bytes = (ticket * 7 + self->number) % 11 * MIB / 2 + 512;
    bool good = strata_runtime_allocate(runtime, bytes, self->stream, &block) == STRATA_SUCCESS &&
                strata_pool_hold_begin(stack_of(self->fixture), &block, &hold) == STRATA_SUCCESS;
    if (!good)
        return false;
    size_t count = 0, held = 0;
    const strata_pool_part *parts = strata_pool_hold_parts(hold, &count);
    for (size_t i = 0; i < count; i++)
        held += parts[i].bytes;
    good = held == block.bytes && strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS;
    if (ticket % 8 == self->number)
        good = strata_runtime_trim(runtime, 0, NULL) == STRATA_SUCCESS && good;
    strata_pool_hold_end(hold);
    return good;
}

static void *hold_and_let_go(void *data)
{
    holder *self = data;
    test_make_current();
    for (unsigned ticket = 0; ticket < TURNS && self->good; ticket++)
        self->good = hold_for_a_while(self, ticket);
    test_leave_thread();
    return NULL;
}

static void threads_hold_and_return_at_the_same_time(test_fixture *fixture)
{
    pthread_t threads[THREADS];
    holder holders[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        holders[i] = (holder){fixture, test_stream(fixture, TEST_STREAM_POOL), i, true};
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_let_go, &holders[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_true(holders[i].good);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    empty_the_pool(fixture);
}

/* ---- graphs ---- */

typedef struct graph {
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream;
} graph;

/* A graph that fills memory, captured without Strata. */
static graph capture_fill(test_fixture *fixture, CUdeviceptr address, unsigned char value, size_t bytes)
{
    graph made = {.stream = test_stream(fixture, TEST_STREAM_UNKNOWN)};
    PFN_cuStreamEndCapture_v10000 end;
    PFN_cuGraphInstantiateWithFlags_v11040 instantiate;
    test_find_driver_call("cuStreamEndCapture", 10000, &end);
    test_find_driver_call("cuGraphInstantiateWithFlags", 11040, &instantiate);
    test_begin_capture(made.stream);
    test_fill(address, value, bytes, made.stream);
    check_cu(end(made.stream, &made.graph));
    check_cu(instantiate(&made.exec, made.graph, 0));
    return made;
}

static void launch_graph(const graph *made)
{
    PFN_cuGraphLaunch_v10000 launch;
    test_find_driver_call("cuGraphLaunch", 10000, &launch);
    check_cu(launch(made->exec, made->stream));
    test_synchronize(made->stream);
}

static void end_graph(const graph *made)
{
    PFN_cuGraphExecDestroy_v10000 destroy_exec;
    PFN_cuGraphDestroy_v10000 destroy;
    test_find_driver_call("cuGraphExecDestroy", 10000, &destroy_exec);
    test_find_driver_call("cuGraphDestroy", 10000, &destroy);
    check_cu(destroy_exec(made->exec));
    check_cu(destroy(made->graph));
}

/* It needs no hold: memory of a live block is never remapped. */
static void a_graph_finds_a_live_block_where_it_was_captured(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    test_synchronize(stream);
    const graph made = capture_fill(fixture, block.address, 0x61, block.bytes);
    test_free_on(fixture, &before, stream);
    for (int i = 0; i < 3; i++) {
        press(fixture, (12 + 2 * (size_t)i) * MIB, stream);
        launch_graph(&made);
        check_ends(fixture, &block, 0x61, stream);
    }
    end_graph(&made);
    test_free_on(fixture, &block, stream);
}

/* Freed during the capture or later: other blocks may have the memory then, but it is mapped, and in its place. */
static void a_graph_that_runs_after_its_block_was_freed_finds_memory_that_is_held(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), captured;
    strata_block before, block = allocate_across_chunks(fixture, &before, stream);
    strata_pool_hold *hold;
    test_synchronize(stream);
    const graph made = capture_fill(fixture, block.address, 0x62, block.bytes);
    check_ok(strata_pool_hold_begin(stack_of(fixture), &block, &hold));
    captured = test_stream(fixture, TEST_STREAM_UNKNOWN);
    test_begin_capture(captured);
    test_free_on(fixture, &block, captured); /* performed when the end of the capture is noticed */
    assert_int_equal(test_end_capture(captured), 0);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), captured));
    test_free_on(fixture, &before, stream);
    for (int i = 0; i < 3; i++) {
        press(fixture, (12 + 2 * (size_t)i) * MIB, stream);
        launch_graph(&made);
    }
    assert_true(reserved(fixture) >= block.bytes);
    end_graph(&made);
    strata_pool_hold_end(hold);
    empty_the_pool(fixture);
}

/* ---- what is refused ---- */

static void a_hold_without_host_memory_is_none(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, stream);
    strata_pool_hold *hold = (strata_pool_hold *)&block;
    drought = true;
    strata_status status = strata_pool_export(stack_of(fixture), &block, &hold);
    drought = false;
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_null(hold);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    test_free_on(fixture, &block, stream);
}

typedef struct holding {
    strata_resource *stack;
    strata_block block;
} holding;

static void hold_beside(void *data)
{
    const holding *self = data;
    strata_pool_hold *hold;
    strata_pool_hold_begin(self->stack, &self->block, &hold);
}

static void a_refused_hold_is_logged_while_other_threads_hold_blocks(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, stream);
    holding self = {stack_of(fixture), block};
    strata_pool_hold *hold;
    test_beside beside;
    self.block.id.table++;
    test_beside_begin(&beside, hold_beside, &self);
    const strata_status status = strata_pool_hold_begin(self.stack, &self.block, &hold);
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_FOREIGN_POINTER);
    test_free_on(fixture, &block, stream);
}

static void what_cannot_be_held_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_resource *stack = stack_of(fixture);
    strata_block block = test_allocate(fixture, MIB, stream), other, empty = {0};
    strata_pool_hold *hold = (strata_pool_hold *)&block;
    check_status(strata_pool_hold_begin(stack, NULL, &hold), STRATA_ERROR_INVALID_VALUE);
    assert_null(hold);
    check_status(strata_pool_hold_begin(stack, &block, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pool_hold_begin(NULL, &block, &hold), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "no pool");
    other = block;
    other.bytes += MIB;
    check_status(strata_pool_hold_begin(stack, &other, &hold), STRATA_ERROR_SIZE_MISMATCH);
    other = block;
    other.bytes /= 2; /* a hold would hold only half */
    check_status(strata_pool_hold_begin(stack, &other, &hold), STRATA_ERROR_SIZE_MISMATCH);
    assert_null(hold);
    other = block;
    other.address += 512;
    check_status(strata_pool_hold_begin(stack, &other, &hold), STRATA_ERROR_FOREIGN_POINTER);
    other = block;
    other.id.table++;
    check_status(strata_pool_hold_begin(stack, &other, &hold), STRATA_ERROR_FOREIGN_POINTER);
    test_free_on(fixture, &block, stream);
    check_status(strata_pool_hold_begin(stack, &block, &hold), STRATA_ERROR_USE_AFTER_FREE);
    assert_int_equal(value_of(fixture->runtime, "pool.held"), 0);
    size_t count = 77;
    check_ok(strata_pool_hold_begin(stack, &empty, &hold));
    strata_pool_hold_parts(hold, &count);
    assert_int_equal(count, 0);
    strata_pool_hold_end(hold);
    assert_null(strata_pool_hold_parts(NULL, &count));
    assert_int_equal(count, 0);
    strata_pool_hold_end(NULL);
}

static void memory_is_exported_only_as_its_pool_was_made_for(test_fixture *fixture)
{
    strata_runtime *fast;
    strata_block block;
    strata_pool_hold *hold;
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &fast));
    check_ok(strata_runtime_allocate(fast, MIB, NULL, &block));
    strata_resource *top = strata_stack_top(strata_runtime_stack(fast));
    check_status(strata_pool_export(top, &block, &hold), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "export=fd");
    check_ok(strata_pool_hold_begin(top, &block, &hold));
    strata_pool_hold_end(hold);
    check_ok(strata_runtime_deallocate(fast, &block));
    check_ok(strata_runtime_destroy(fast));
}

/* A device that can export may be in a machine that is not set up for it. */
static void an_export_that_the_device_lacks_is_refused_with_a_reason(test_fixture *fixture)
{
    (void)fixture;
    strata_device_info info;
    strata_stack *stack;
    check_ok(strata_device_get_info(0, &info));
    assert_true(!test_on_simulated_driver() || (info.mapped_fd_handles && !info.mapped_fabric_handles));
    if (!info.mapped_fabric_handles) {
        check_status(strata_stack_create("pool(export=fabric)", 0, &stack), STRATA_ERROR_UNSUPPORTED);
        check_last_error(STRATA_ERROR_UNSUPPORTED, "fabric");
    }
    if (info.mapped_fd_handles) {
        check_ok(strata_stack_create("pool(export=fd)", 0, &stack));
        check_ok(strata_stack_destroy(stack));
    }
}

/* ---- under other layers ---- */

static strata_pool_hold *hold_under(const char *text, strata_runtime **runtime, strata_block *block)
{
    strata_pool_hold *hold = NULL;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, runtime));
    check_ok(strata_runtime_allocate(*runtime, 5000, NULL, block));
    check_ok(strata_pool_export(strata_stack_top(strata_runtime_stack(*runtime)), block, &hold));
    return hold;
}

/* The user's addresses count, whatever the layers make of them. */
static void blocks_under_other_layers_can_be_held(test_fixture *fixture)
{
    static const char *const stacks[] = {
        "guard, pool(export=fd)",
        "fixed(bytes=16KiB, chunk=64KiB), pool(export=fd)",
        "binning(min=1KiB, max=64KiB, chunk=128KiB), pool(export=fd)",
        "budget(limit=1GiB), logging(format=memory, memory=16), statistics, pool(export=fd)",
    };
    (void)fixture;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        strata_runtime *runtime;
        strata_block block;
        size_t count = 0;
        strata_pool_hold *hold = hold_under(stacks[i], &runtime, &block);
        const strata_pool_part *parts = strata_pool_hold_parts(hold, &count);
        assert_int_equal(count, 1);
        assert_true(parts->address == block.address && parts->bytes == block.bytes);
        close(parts->fd);
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_destroy(runtime)); /* and the hold with it */
    }
    strata_runtime *runtime;
    strata_block block;
    strata_pool_hold *hold;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(sample=1), pool"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 5000, NULL, &block));
    const strata_status status = strata_pool_hold_begin(strata_stack_top(strata_runtime_stack(runtime)), &block, &hold);
    if (test_is_swept() && status == STRATA_SUCCESS) /* a guard without pages lets the pool have the block */
        strata_pool_hold_end(hold);
    else
        check_status(status, STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

static struct {
    PFN_cuMemCreate_v10020 create;
    int made, flagged;
} seen_made;

static CUresult CUDAAPI see_properties(CUmemGenericAllocationHandle *handle, size_t bytes,
                                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    seen_made.made++;
    seen_made.flagged += properties->allocFlags.gpuDirectRDMACapable;
    return seen_made.create(handle, bytes, properties, flags);
}

/* Memory that was not made for it cannot be registered (CUDA Driver API, CUmemAllocationProp.allocFlags). */
static void memory_is_made_for_network_cards_where_the_device_can(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    int can = 0;
    CUdevice device;
    check_cu(test_cu()->DeviceGet(&device, 0));
    check_cu(test_cu()->DeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
    seen_made.create = strata_cu.MemCreate;
    seen_made.made = seen_made.flagged = 0;
    strata_cu.MemCreate = see_properties;
    strata_status status = strata_runtime_allocate(fixture->runtime, MIB, stream, &block);
    strata_cu.MemCreate = seen_made.create;
    check_ok(status);
    assert_true(seen_made.made > 0);
    assert_int_equal(seen_made.flagged, can ? seen_made.made : 0);
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    static const char *const stacks[] = {"pool(export=fd, chunk=2MiB, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(threads_hold_and_return_at_the_same_time), /* not in sweeps: no two runs are the same */
        TEST_CASE(a_process_that_imports_the_parts_of_a_block_sees_its_bytes),
        TEST_CASE(parts_come_in_the_order_of_addresses_whichever_chunk_is_older),
        TEST_CASE(exported_memory_is_neither_remapped_nor_returned),
        TEST_CASE(an_export_that_fails_leaves_no_file_and_no_hold),
        TEST_CASE(held_memory_stays_until_its_last_hold_ends),
        TEST_CASE(a_request_that_needs_held_memory_elsewhere_is_refused),
        TEST_CASE(a_reap_leaves_held_memory),
        TEST_CASE(decay_leaves_held_memory),
        TEST_CASE(the_report_has_all_chunks_and_says_which_are_held),
        TEST_CASE(a_graph_finds_a_live_block_where_it_was_captured),
        TEST_CASE(a_graph_that_runs_after_its_block_was_freed_finds_memory_that_is_held),
        TEST_CASE(a_refused_hold_is_logged_while_other_threads_hold_blocks),
        TEST_CASE(what_cannot_be_held_is_refused),
        TEST_CASE(a_hold_without_host_memory_is_none),
        TEST_CASE(memory_is_exported_only_as_its_pool_was_made_for),
        TEST_CASE(an_export_that_the_device_lacks_is_refused_with_a_reason),
        TEST_CASE(blocks_under_other_layers_can_be_held),
        TEST_CASE(memory_is_made_for_network_cards_where_the_device_can),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    const size_t first = test_is_swept() ? 1 : 0;
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases + first, sizeof cases / sizeof cases[0] - first);
}
