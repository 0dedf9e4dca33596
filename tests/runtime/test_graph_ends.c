/* What is left when a call of a graph's end, of its launch or of its change fails, and blocks that are no longer there.
 */
#include "support/faults.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

static strata_graph *capture_fill(test_fixture *fixture, const strata_block *block, unsigned char value,
                                  CUstream stream)
{
    begin(fixture, stream, NULL);
    test_write(fixture, block, value, stream);
    return end(fixture, stream);
}

/* ---- frees that were deferred ---- */

static void a_deferred_free_that_fails_is_tried_again(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "async") && !test_owner_is(fixture, "direct"))
        return; /* others free nothing of the driver then */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *graph = capture_fill(fixture, &block, 1, stream);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status destroyed = destroy(graph);
    assert_int_equal(test_fault_end(), 1);
    check_status(destroyed, STRATA_ERROR_DRIVER);
    assert_int_equal(live_blocks(fixture), before);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    begin(fixture, stream, NULL);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_ok(strata_capture_discard(fixture->runtime, stream)); /* tries it, too */
    forget_capture(stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
}

static void a_deferred_free_waits_for_the_capture_that_its_stream_was_forked_into(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, fork), other = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *graph = capture_fill(fixture, &block, 1, fork);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    begin(fixture, stream, NULL);
    test_write(fixture, &other, 2, stream);
    test_order_after(fork, stream);
    check_ok(destroy(graph));
    test_order_after(stream, fork);
    graph = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(graph), 1); /* no free is among them */
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &other, 2, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
    check_ok(destroy(graph));
    test_free_on(fixture, &other, stream);
}

/* A reference whose release waited for a prepared use goes with the next launch, which has its memory's pool locked. */
static void a_launch_frees_what_waited_for_a_use(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref;
    strata_ref_memory memory;
    begin(fixture, stream, NULL);
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
    refs[ref_count++] = ref;
    check_ok(strata_ref_access(ref, &memory));
    const strata_block block = *memory.block;
    test_write(fixture, &block, 1, stream);
    strata_graph *graph = end(fixture, stream);
    strata_capture_pool_usage usage;
    check_ok(strata_graph_launch(graph, stream));
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ));
    ref_count--;
    check_ok(strata_ref_release(ref));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ));
    check_ok(strata_graph_launch(graph, stream));
    check_ok(strata_capture_pool_get_usage(strata_graph_pool(graph), &usage));
    assert_true(test_is_swept() || usage.live_blocks == 0);
    test_synchronize(stream);
    check_ok(destroy(graph));
}

static strata_entry_table real_entries; /* while some are replaced */
static bool identifies;                 /* else events are not recorded */

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_to_identify(CUstream stream, unsigned long long *id)
{
    (void)stream;
    (void)id;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_to_record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

/* From then on the launch can be neither noted nor waited for. */
static CUresult CUDAAPI launch_for_the_last_time(CUgraphExec exec, CUstream stream)
{
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    if (identifies)
        strata_cu.EventRecord = refuse_to_record;
    else
        strata_cu.StreamGetId = refuse_to_identify;
    return real_entries.GraphLaunch(exec, stream);
}

static strata_graph *capture_fill_of_own(strata_runtime *own, const strata_block *block)
{
    CUstream stream;
    strata_graph *graph;
    check_ok(strata_runtime_stream_acquire(own, &stream));
    check_ok(strata_capture_begin(own, stream, STRATA_CAPTURE_GLOBAL, NULL));
    check_ok(strata_runtime_prepare_block_use(own, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, 1, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(own, block, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_capture_end(own, stream, &graph));
    check_ok(strata_runtime_stream_release(own, stream));
    return graph;
}

/* Only a wait for the device lets the block go: the end of a runtime waits before it frees what was deferred. */
static void a_runtime_ends_although_a_deferred_free_needs_a_wait_for_the_device(test_fixture *fixture)
{
    static const char *const stacks[] = {"async", "pool", "logging(format=memory), pool"};
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    for (size_t i = 0; i < 2 * sizeof stacks / sizeof stacks[0]; i++) {
        strata_runtime *own;
        strata_block block;
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i / 2]}, &own));
        check_ok(strata_runtime_allocate(own, BYTES, NULL, &block));
        strata_graph *graph = capture_fill_of_own(own, &block);
        check_ok(strata_graph_launch(graph, stream));
        identifies = i % 2;
        real_entries = strata_cu;
        strata_cu.GraphLaunch = launch_for_the_last_time;
        const strata_status launched = strata_graph_launch(graph, stream);
        strata_cu = real_entries;
        check_status(launched, STRATA_ERROR_DRIVER);
        check_ok(strata_runtime_deallocate(own, &block)); /* deferred */
        check_status(strata_graph_destroy(graph), STRATA_ERROR_STREAM_MISUSE);
        check_ok(strata_runtime_destroy(own));
        test_stream_close(fixture, stream);
    }
}

/* ---- changes ---- */

static void an_update_that_was_made_reports_no_error_of_what_it_let_go(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "async") && !test_owner_is(fixture, "direct"))
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block old = test_allocate(fixture, BYTES, stream), block = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *graph = capture_fill(fixture, &old, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &old));
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 2, stream);
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_graph_update_info info;
    const strata_status updated = strata_graph_update(graph, stream, &info, NULL);
    assert_int_equal(test_fault_end(), 1);
    forget_capture(stream);
    check_ok(updated);
    assert_int_equal(info.result, STRATA_GRAPH_UPDATED);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 2, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* A block that outlives its graph is the last that holds the graph's pool. */
static void a_free_that_was_made_reports_no_error_of_its_pools_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    for (int own = 0; own <= 1; own++) {
        begin(fixture, stream, NULL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 1, stream);
        strata_graph *graph = end(fixture, stream);
        check_ok(strata_graph_launch(graph, stream));
        check_ok(destroy(graph));
        test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, false, CUDA_ERROR_UNKNOWN); /* of the pool's stream */
        const strata_status freed = own ? strata_runtime_deallocate(fixture->runtime, &block)
                                        : strata_runtime_deallocate_on(fixture->runtime, &block, stream);
        assert_int_equal(test_fault_end(), 1);
        check_ok(freed);
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        check_ok(strata_runtime_reap_pending(fixture->runtime)); /* ends the pool */
        assert_int_equal(live_blocks(fixture), before);
    }
}

/* ---- discards ---- */

static void a_discard_that_was_made_reports_no_error_of_what_it_let_go(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "async") && !test_owner_is(fixture, "direct"))
        return;
    if (test_is_swept())
        return; /* what the first try to free waits for is not needed: it fails */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status discarded = strata_capture_discard(fixture->runtime, stream);
    assert_int_equal(test_fault_end(), 1);
    forget_capture(stream);
    check_ok(discarded);
    check_status(strata_capture_discard(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
}

static void a_discard_that_was_made_reports_no_error_of_its_pools_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 2, false, CUDA_ERROR_UNKNOWN); /* of the pool's stream */
    const strata_status discarded = strata_capture_discard(fixture->runtime, stream);
    assert_int_equal(test_fault_end(), 1);
    forget_capture(stream);
    check_ok(discarded);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* ends the pool */
    assert_int_equal(live_blocks(fixture), before);
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const strata_block *block)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = block->address, .value = 3, .elementSize = 1, .width = BYTES, .height = 1};
}

static void a_block_that_the_graph_still_has_is_freed_all_the_same(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUgraphNode node;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 1, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_USE_AFTER_FREE);
    strata_graph *graph = end(fixture, stream);
    const CUDA_MEMSET_NODE_PARAMS filling = fill_of(&block);
    const strata_graph_block use = {&block, STRATA_ACCESS_WRITE};
    check_status(strata_graph_set_fill(graph, node, &filling, &use, 1), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    const strata_status named = strata_launch_use(&launch, &block, STRATA_ACCESS_READ);
    check_ok(strata_launch_end(&launch));
    check_status(named, STRATA_ERROR_USE_AFTER_FREE);
    strata_ref *ref;
    strata_block other;
    check_status(strata_ref_adopt(fixture->runtime, &block, STRATA_ELEMENT_U8, BYTES, &ref),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_find(fixture->runtime, block.address, &other), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_RETIRED);
    check_ok(strata_graph_launch(graph, stream)); /* the graph itself goes on */
    test_synchronize(stream);
    check_ok(destroy(graph));
}

static void a_block_that_is_freed_before_the_preflight_is_refused_there(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = capture_fill(fixture, &block, 1, stream);
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    const strata_status named = strata_launch_use(&launch, &block, STRATA_ACCESS_READ);
    const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    const strata_status prepared = strata_launch_preflight(&launch);
    check_ok(strata_launch_end(&launch));
    check_ok(named);
    check_ok(freed);
    check_status(prepared, STRATA_ERROR_USE_AFTER_FREE);
    check_ok(destroy(graph));
}

/* Its launches do not wait for the capture. */
static void a_block_may_be_freed_on_a_stream_that_was_forked_into_a_capture(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL),
             other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, other), work = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = capture_fill(fixture, &block, 1, other);
    begin(fixture, stream, NULL);
    test_write(fixture, &work, 2, stream);
    test_order_after(fork, stream);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, fork));
    check_ok(strata_graph_launch(graph, other));
    test_order_after(stream, fork);
    strata_graph *made = end(fixture, stream);
    test_synchronize(other);
    check_ok(destroy(graph));
    check_ok(destroy(made));
    test_free_on(fixture, &work, stream);
}

static void a_block_of_another_runtime_is_no_block_of_the_graphs(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), foreign = block;
    CUgraphNode node;
    foreign.id.table++; /* what the first block of another runtime looks like */
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 1, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &foreign, stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_FOREIGN_POINTER);
    strata_graph *graph = end(fixture, stream);
    const CUDA_MEMSET_NODE_PARAMS filling = fill_of(&block);
    const strata_graph_block use = {&foreign, STRATA_ACCESS_WRITE};
    check_status(strata_graph_set_fill(graph, node, &filling, &use, 1), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* ---- captures that cannot know what was submitted ---- */

static unsigned failing_calls; /* of cuStreamGetCaptureInfo or cuStreamUpdateCaptureDependencies, from now on */
static __typeof__(strata_cu.StreamGetCaptureInfo) get_info;
static __typeof__(strata_cu.StreamUpdateCaptureDependencies) update_dependencies;

static CUresult get_info_or_fail(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                 const CUgraphNode **nodes, size_t *count)
{
    return failing_calls && failing_calls-- ? CUDA_ERROR_UNKNOWN : get_info(stream, status, id, graph, nodes, count);
}

static CUresult update_or_fail(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags)
{
    return failing_calls && failing_calls-- ? CUDA_ERROR_UNKNOWN : update_dependencies(stream, nodes, count, flags);
}

static void a_use_that_could_not_be_recorded_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_fill(block.address, 1, BYTES, stream);
    get_info = strata_cu.StreamGetCaptureInfo;
    failing_calls = 1;
    strata_cu.StreamGetCaptureInfo = get_info_or_fail;
    const strata_status recorded =
        strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE);
    strata_cu.StreamGetCaptureInfo = get_info;
    check_status(recorded, STRATA_ERROR_DRIVER);
    const strata_status ended = strata_capture_end(fixture->runtime, stream, &graph);
    forget_capture(stream);
    if (graph)
        graphs[graph_count++] = graph;
    check_status(ended, STRATA_ERROR_DRIVER);
    test_free_on(fixture, &block, stream);
}

static void a_launch_that_could_not_be_prepared_in_a_capture_is_made_after_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_launch launch;
    begin(fixture, stream, NULL);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    get_info = strata_cu.StreamGetCaptureInfo;
    failing_calls = 1;
    strata_cu.StreamGetCaptureInfo = get_info_or_fail;
    const strata_status inside = strata_launch_preflight(&launch);
    strata_cu.StreamGetCaptureInfo = get_info;
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x44, BYTES, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    check_status(inside, STRATA_ERROR_DRIVER);
    check_value(fixture, &block, 0x44, stream);
    test_free_on(fixture, &block, stream);
}

static void a_part_without_successors_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *child = capture_fill(fixture, &block, 1, stream), *parent;
    begin(fixture, stream, NULL);
    update_dependencies = strata_cu.StreamUpdateCaptureDependencies;
    failing_calls = 1;
    strata_cu.StreamUpdateCaptureDependencies = update_or_fail;
    const strata_status launched = strata_graph_launch(child, stream);
    strata_cu.StreamUpdateCaptureDependencies = update_dependencies;
    check_status(launched, STRATA_ERROR_DRIVER);
    const strata_status ended = strata_capture_end(fixture->runtime, stream, &parent);
    forget_capture(stream);
    if (parent)
        graphs[graph_count++] = parent;
    check_status(ended, STRATA_ERROR_DRIVER);
    check_ok(destroy(child));
    test_free_on(fixture, &block, stream);
}

/* ---- streams and pools ---- */

static void a_graph_without_blocks_leaves_captures_of_other_code_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUgraph made = NULL;
    begin(fixture, stream, NULL);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, other));
    check_cu(test_cu()->StreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check_status(strata_graph_launch(graph, other), STRATA_ERROR_STREAM_CAPTURE);
    check_cu(test_cu()->StreamEndCapture(other, &made));
    check_cu(test_cu()->GraphDestroy(made));
    check_ok(destroy(graph));
}

static void an_upload_leaves_captures_of_its_stream_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = capture_fill(fixture, &block, 1, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 2, stream);
    check_status(strata_graph_upload(graph, stream), STRATA_ERROR_STREAM_CAPTURE);
    strata_graph *other = end(fixture, stream);
    check_ok(strata_graph_upload(graph, stream));
    check_ok(destroy(graph));
    check_ok(destroy(other));
    test_free_on(fixture, &block, stream);
}

static CUresult (*create_stream)(CUstream *stream, unsigned flags);
static size_t created_streams;

static CUresult count_stream(CUstream *stream, unsigned flags)
{
    created_streams++;
    return create_stream(stream, flags);
}

static void graphs_without_memory_take_no_streams(test_fixture *fixture)
{
    enum { GRAPHS = 10 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    if (strata_cu.StreamCreate != count_stream) /* else a case that failed left it so */
        create_stream = strata_cu.StreamCreate;
    strata_cu.StreamCreate = count_stream;
    created_streams = 0;
    for (size_t i = 0; i < GRAPHS; i++)
        capture_fill(fixture, &block, 1, stream);
    strata_cu.StreamCreate = create_stream;
    assert_int_equal(created_streams, 0);
    while (graph_count)
        check_ok(destroy(graphs[0]));
    test_free_on(fixture, &block, stream);
}

static void a_pool_does_not_keep_its_own_memory(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_pool *pool = make_pool(fixture), *other = make_pool(fixture);
    strata_ref *ref;
    begin(fixture, stream, pool);
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
    refs[ref_count++] = ref;
    strata_graph *graph = end(fixture, stream);
    check_status(strata_capture_pool_record_buffer(pool, ref), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_capture_pool_record_buffer(other, ref));
    ref_count--;
    check_ok(strata_ref_release(ref));
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    check_ok(release_pool(other));
}

/* ---- captures ---- */

static void a_capture_that_the_driver_neither_ended_nor_told_of_is_discarded_later(test_fixture *fixture)
{
    if (!test_sim_control() || test_is_swept())
        return; /* the simulated driver fails on purpose */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_refuse("cuStreamEndCapture", 1, 1, CUDA_ERROR_UNKNOWN);
    test_refuse("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_capture_end(fixture->runtime, stream, &graph);
    test_refuse_no_more();
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "discard it");
    assert_null(graph);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_DRIVER);
    assert_false(strata_is_stream_capturing(fixture->runtime, stream));
    forget_capture(stream);
    test_write(fixture, &block, 0x33, stream);
    check_value(fixture, &block, 0x33, stream);
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async"};
    static const test_case cases[] = {
        TEST_CASE(a_deferred_free_that_fails_is_tried_again),
        TEST_CASE(a_deferred_free_waits_for_the_capture_that_its_stream_was_forked_into),
        TEST_CASE(a_launch_frees_what_waited_for_a_use),
        TEST_CASE(a_runtime_ends_although_a_deferred_free_needs_a_wait_for_the_device),
        TEST_CASE(an_update_that_was_made_reports_no_error_of_what_it_let_go),
        TEST_CASE(a_free_that_was_made_reports_no_error_of_its_pools_end),
        TEST_CASE(a_discard_that_was_made_reports_no_error_of_what_it_let_go),
        TEST_CASE(a_discard_that_was_made_reports_no_error_of_its_pools_end),
        TEST_CASE(a_block_that_the_graph_still_has_is_freed_all_the_same),
        TEST_CASE(a_block_that_is_freed_before_the_preflight_is_refused_there),
        TEST_CASE(a_block_may_be_freed_on_a_stream_that_was_forked_into_a_capture),
        TEST_CASE(a_block_of_another_runtime_is_no_block_of_the_graphs),
        TEST_CASE(a_use_that_could_not_be_recorded_gives_no_graph),
        TEST_CASE(a_launch_that_could_not_be_prepared_in_a_capture_is_made_after_it),
        TEST_CASE(a_part_without_successors_gives_no_graph),
        TEST_CASE(a_graph_without_blocks_leaves_captures_of_other_code_alone),
        TEST_CASE(an_upload_leaves_captures_of_its_stream_alone),
        TEST_CASE(graphs_without_memory_take_no_streams),
        TEST_CASE(a_pool_does_not_keep_its_own_memory),
        TEST_CASE(a_capture_that_the_driver_neither_ended_nor_told_of_is_discarded_later),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
