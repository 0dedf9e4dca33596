/* Conditional nodes in captures: what runs, what is ordered, waited for and kept, and the memory of bodies. Cases that
 * need a kernel which sets a condition end without it where the driver cannot link one. */
#include "support/beside.h"
#include "support/conditionals.h"
#include "support/sweep.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata/launch.h>
#include <strata/sim.h>
#include <string.h>

/* ---- a kernel that sets a condition ---- */

/* test_count_down(condition, counter): the byte becomes one less, and the condition is the byte then. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
                          ".visible .entry test_count_down(.param .u64 condition, .param .u64 counter)\n{\n"
                          "    .reg .b64 %at<4>;\n    .reg .b32 %left<3>;\n"
                          "    ld.param.u64 %at1, [condition];\n"
                          "    ld.param.u64 %at2, [counter];\n"
                          "    cvta.to.global.u64 %at3, %at2;\n"
                          "    ld.global.u8 %left1, [%at3];\n"
                          "    sub.u32 %left1, %left1, 1;\n"
                          "    and.b32 %left2, %left1, 255;\n"
                          "    st.global.u8 [%at3], %left2;\n"
                          "    {\n"
                          "        .param .b64 first;\n        .param .b32 second;\n"
                          "        st.param.b64 [first], %at1;\n"
                          "        st.param.b32 [second], %left2;\n"
                          "        call.uni cudaGraphSetConditional, (first, second);\n"
                          "    }\n    ret;\n}\n";

static CUfunction count_down; /* NULL: cannot be had */

static void count_down_on_the_host(strata_sim_launch *launch)
{
    CUgraphConditionalHandle condition;
    CUdeviceptr counter;
    memcpy(&condition, launch->parameters[0], sizeof condition);
    memcpy(&counter, launch->parameters[1], sizeof counter);
    launch->declare_read(launch, counter, 1);
    launch->declare_write(launch, counter, 1);
    unsigned char *byte = launch->write(launch, counter, 1);
    if (byte)
        launch->set_conditional(launch, condition, --*byte);
}

static void load_kernel(void)
{
    CUmodule module;
    strata_driver_info info;
    PFN_strata_sim_register_kernel register_kernel;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "strata_sim_register_kernel") : NULL;
    memcpy(&register_kernel, &symbol, sizeof symbol);
    if (symbol)
        check_cu(register_kernel("test_count_down", count_down_on_the_host));
    if (test_cu()->ModuleLoadData(&module, ptx) != CUDA_SUCCESS ||
        test_cu()->ModuleGetFunction(&count_down, module, "test_count_down") != CUDA_SUCCESS)
        printf("conditions are not set by kernels: the driver does not link cudaGraphSetConditional\n");
}

static void launch_count_down(test_fixture *fixture, CUgraphConditionalHandle condition, const strata_block *counter,
                              CUstream stream)
{
    strata_launch launch;
    CUdeviceptr address = counter->address;
    void *parameters[] = {&condition, &address};
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, counter, STRATA_ACCESS_READ_WRITE));
    check_ok(strata_launch_preflight(&launch));
    check_cu(test_cu()->LaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    check_ok(strata_launch_commit(&launch));
    strata_launch_end(&launch);
}

/* ---- what runs ---- */

static void a_body_runs_by_the_value_of_its_condition(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), copied = test_allocate(fixture, BYTES, stream);
    for (unsigned value = 0; value < 2; value++) {
        begin(fixture, stream, NULL);
        test_write(fixture, &block, 0x11, stream);
        begin_if(fixture, stream, value, body);
        test_write(fixture, &block, 0x12, body);
        close_body(fixture, body);
        copy(fixture, &copied, &block, stream);
        strata_graph *graph = end(fixture, stream);
        assert_int_equal(strata_graph_conditional_count(graph), 1);
        for (int i = 0; i < 2; i++) {
            check_ok(strata_graph_launch(graph, stream));
            check_value(fixture, &copied, value ? 0x12 : 0x11, stream);
        }
        check_ok(destroy(graph));
    }
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &copied, stream);
}

static void one_of_several_bodies_runs(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    for (unsigned value = 0; value < 5; value++) {
        const bool is_switch = value >= 2;
        begin(fixture, stream, NULL);
        const CUgraphConditionalHandle condition = condition_of(fixture, stream, value - (is_switch ? 2 : 0));
        test_write(fixture, &block, 0x20, stream);
        check_ok(is_switch ? strata_capture_switch(fixture->runtime, stream, condition, 2, body)
                           : strata_capture_if_else(fixture->runtime, stream, condition, body));
        test_write(fixture, &block, 0x21, body);
        check_ok(strata_capture_body_next(fixture->runtime, body));
        test_write(fixture, &block, 0x22, body);
        check_status(strata_capture_body_next(fixture->runtime, body), STRATA_ERROR_INVALID_VALUE);
        close_body(fixture, body);
        strata_graph *graph = end(fixture, stream);
        static const unsigned char expected[] = {0x22, 0x21, 0x21, 0x22, 0x20};
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &block, expected[value], stream);
        check_ok(destroy(graph));
    }
    test_free_on(fixture, &block, stream);
}

static void a_loop_runs_until_a_kernel_ends_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    if (!count_down)
        return;
    strata_block counter = test_allocate(fixture, BYTES, stream), block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    const CUgraphConditionalHandle condition = condition_of(fixture, stream, 1);
    test_write(fixture, &counter, 5, stream);
    check_ok(strata_capture_while(fixture->runtime, stream, condition, body));
    strata_block scratch = test_allocate(fixture, BYTES, body);
    copy(fixture, &scratch, &counter, body); /* what the last round sees: 1 */
    copy(fixture, &block, &scratch, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
    launch_count_down(fixture, condition, &counter, body);
    close_body(fixture, body);
    copy(fixture, &counter, &block, stream);
    strata_graph *graph = end(fixture, stream);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_graph_launch(graph, stream));
        const unsigned char *seen = test_read(fixture, &counter, stream);
        test_synchronize(stream);
        assert_int_equal(seen[0], 1);
        fixture->seen_used = 0;
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &counter, stream);
    test_free_on(fixture, &block, stream);
}

/* The condition of the inner node is set in the outer body, at each round. Not behind the shim, with which
 * compute-sanitizer runs: it takes the last kernel for one before its allocation. */
static void bodies_have_conditional_nodes_too(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), outer = test_stream(fixture, TEST_STREAM_POOL),
             inner = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream), counter = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    const CUgraphConditionalHandle rounds = condition_of(fixture, stream, count_down != NULL);
    test_write(fixture, &block, 0x30, stream);
    test_write(fixture, &counter, 2, stream);
    check_ok(strata_capture_while(fixture->runtime, stream, rounds, outer));
    begin_if(fixture, outer, 0, inner);
    test_write(fixture, &block, 0x31, inner);
    close_body(fixture, inner);
    begin_if(fixture, outer, 1, inner);
    test_write(fixture, &block, 0x32, inner);
    close_body(fixture, inner);
    if (count_down)
        launch_count_down(fixture, rounds, &counter, outer);
    close_body(fixture, outer);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_conditional_count(graph), 3);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, count_down ? 0x32 : 0x30, inner);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &counter, stream);
}

static void a_graph_is_a_part_of_a_body(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block scratch = test_allocate(fixture, BYTES, stream);
    copy(fixture, &scratch, &from, stream);
    copy(fixture, &to, &scratch, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
    strata_graph *part = end(fixture, stream);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    check_ok(strata_graph_launch(part, body));
    close_body(fixture, body);
    test_write(fixture, &from, 0x41, stream);
    strata_graph *whole = end(fixture, stream);
    check_ok(destroy(part)); /* its pool lives on */
    test_write(fixture, &from, 0x42, beside);
    check_ok(strata_graph_launch(whole, stream));
    check_value(fixture, &to, 0x42, beside);
    check_value(fixture, &from, 0x41, beside);
    check_ok(destroy(whole));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* ---- order and blocks ---- */

/* A write of a fork, which the node does not come after by itself, and one behind the body, which it must come before.
 */
static void a_node_is_ordered_with_the_captures_other_streams(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL),
             body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    test_write(fixture, &from, 0x51, fork);
    begin_if(fixture, stream, 1, body);
    copy(fixture, &to, &from, body);
    close_body(fixture, body);
    test_write(fixture, &from, 0x52, fork);
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &to, 0x51, stream);
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

static void what_only_a_body_uses_is_waited_for_and_kept(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    copy(fixture, &to, &from, body);
    close_body(fixture, body);
    strata_graph *graph = end(fixture, stream);
    for (unsigned char value = 0x61; value < 0x63; value++) {
        test_write(fixture, &from, value, beside);
        check_ok(strata_graph_launch(graph, stream));
        test_write(fixture, &from, 0x60, beside); /* after the launch has read it */
        check_value(fixture, &to, value, beside);
    }
    const size_t before = live_blocks(fixture);
    check_ok(strata_runtime_deallocate(fixture->runtime, &from));
    assert_int_equal(live_blocks(fixture), before);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
    test_free_on(fixture, &to, stream);
}

static void a_block_that_is_freed_in_a_body_goes_with_the_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    test_write(fixture, &block, 0x63, body);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, body));
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, body, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    close_body(fixture, body);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    assert_int_equal(live_blocks(fixture), before);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
}

static strata_ref *new_reference(test_fixture *fixture, CUstream stream)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
    return refs[ref_count++] = ref;
}

static void release_reference(strata_ref *ref)
{
    ref_count--;
    check_ok(strata_ref_release(ref));
}

/* A reference that a launch in the body names, and one that is recorded with the pool of a part. */
static void references_of_a_body_are_held_until_the_graph_is_gone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    strata_launch launch;
    strata_ref_memory memory;
    strata_ref *recorded = new_reference(fixture, stream);
    check_ok(strata_capture_pool_record_buffer(pool, recorded));
    release_reference(recorded);
    begin(fixture, stream, pool);
    test_write(fixture, &block, 0x64, stream);
    strata_graph *part = end(fixture, stream);
    strata_ref *named = new_reference(fixture, stream);
    check_ok(strata_ref_access(named, &memory));
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    check_ok(strata_graph_launch(part, body));
    check_ok(strata_launch_begin(&launch, fixture->runtime, body, STRATA_LAUNCH_STRICT));
    strata_status status = strata_launch_use_ref(&launch, named, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        test_fill(memory.block->address, 0x65, BYTES, body);
        status = strata_launch_commit(&launch);
    }
    strata_launch_end(&launch);
    check_ok(status);
    close_body(fixture, body);
    strata_graph *graph = end(fixture, stream);
    release_reference(named);
    check_ok(destroy(part));
    check_ok(release_pool(pool));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x64, stream);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 2);
    test_free_on(fixture, &block, stream);
}

/* ---- memory ---- */

static void memory_of_a_body_is_used_again_behind_its_node_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN),
             body = test_stream(fixture, TEST_STREAM_POOL);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    begin_if(fixture, stream, 1, body);
    strata_block inside = test_allocate(fixture, BYTES, body);
    test_write(fixture, &inside, 0x71, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &inside));
    strata_block again = test_allocate(fixture, BYTES, body);
    assert_true(again.address == inside.address);
    test_write(fixture, &again, 0x72, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &again));
    close_body(fixture, body);
    strata_block other = test_allocate(fixture, BYTES, fork);
    assert_true(other.address != inside.address);
    test_write(fixture, &other, 0x73, fork);
    strata_block behind = test_allocate(fixture, BYTES, stream);
    assert_true(behind.address == inside.address);
    test_write(fixture, &behind, 0x74, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &behind));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &other, fork));
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    assert_true(strata_graph_has_private_pool(graph));
    for (int i = 0; i < 2; i++)
        check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
}

/* What was freed before the node, on its stream, serves its bodies, of which one runs; what a fork freed does not. */
static void bodies_use_again_what_was_freed_before_their_node(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL),
             body = test_stream(fixture, TEST_STREAM_POOL), inner = test_stream(fixture, TEST_STREAM_POOL);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    strata_block beside = test_allocate(fixture, BYTES, fork), before = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &beside, 0x7b, fork);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &beside, fork));
    test_write(fixture, &before, 0x7c, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &before));
    check_ok(strata_capture_if_else(fixture->runtime, stream, condition_of(fixture, stream, 1), body));
    strata_block first = test_allocate(fixture, BYTES, body), more = test_allocate(fixture, BYTES, body);
    assert_true(test_is_swept() || first.address == before.address); /* a walk that fails finds nothing */
    assert_true(more.address != beside.address && more.address != first.address);
    test_write(fixture, &first, 0x7d, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    check_ok(strata_runtime_deallocate(fixture->runtime, &more));
    check_ok(strata_capture_body_next(fixture->runtime, body));
    begin_if(fixture, body, 1, inner);
    strata_block second = test_allocate(fixture, BYTES, inner);
    assert_true(test_is_swept() || second.address == first.address || second.address == more.address);
    test_write(fixture, &second, 0x7e, inner);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    close_body(fixture, inner);
    close_body(fixture, body);
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
}

static void a_body_with_live_blocks_is_not_closed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    strata_block block = test_allocate(fixture, BYTES, body);
    check_status(strata_capture_body_close(fixture->runtime, body), STRATA_ERROR_BLOCK_IN_USE);
    check_last_error(STRATA_ERROR_BLOCK_IN_USE, "1 block that the body allocated is not freed in it");
    check_status(strata_capture_body_next(fixture->runtime, body), STRATA_ERROR_BLOCK_IN_USE);
    test_write(fixture, &block, 0x78, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    close_body(fixture, body);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
}

static void a_body_uses_blocks_of_the_capture_around_it_and_does_not_free_them(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             inner = test_stream(fixture, TEST_STREAM_POOL);
    strata_block to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block scratch = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &scratch, 0x79, stream);
    begin_if(fixture, stream, 1, body);
    begin_if(fixture, body, 1, inner);
    copy(fixture, &to, &scratch, inner);
    check_status(strata_runtime_deallocate(fixture->runtime, &scratch), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "free it when the body is closed");
    check_status(strata_runtime_deallocate_on(fixture->runtime, &scratch, inner), STRATA_ERROR_STREAM_CAPTURE);
    close_body(fixture, inner);
    close_body(fixture, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
    strata_block again = test_allocate(fixture, BYTES, stream);
    assert_true(again.address == scratch.address);
    test_write(fixture, &again, 0x7a, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &again));
    strata_graph *graph = end(fixture, stream);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &to, 0x79, stream);
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &to, stream);
}

typedef struct free_of {
    strata_runtime *runtime;
    const strata_block *block;
} free_of;

static void free_it(void *data)
{
    const free_of *self = data;
    strata_runtime_deallocate(self->runtime, self->block);
}

static void a_refused_free_is_logged_while_other_threads_use_the_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    test_beside beside;
    if (test_is_swept())
        return;
    begin(fixture, stream, NULL);
    strata_block scratch = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &scratch, 0x79, stream);
    begin_if(fixture, stream, 1, body);
    test_beside_begin(&beside, free_it, &(free_of){fixture->runtime, &scratch});
    const strata_status status = strata_runtime_deallocate(fixture->runtime, &scratch);
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    close_body(fixture, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
    check_ok(destroy(end(fixture, stream)));
}

/* ---- what is refused, and ends ---- */

static void calls_out_of_place_are_refused(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUgraphConditionalHandle condition;
    strata_graph *graph;
    strata_block block = test_allocate(fixture, BYTES, stream), taken;
    check_status(strata_capture_condition(runtime, stream, NULL, &condition), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_capture_if(runtime, stream, 1, body), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_capture_body_close(runtime, stream), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    check_status(strata_capture_condition(runtime, stream, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    condition = condition_of(fixture, stream, 0);
    check_status(strata_capture_if(runtime, stream, condition, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_if(runtime, stream, condition, stream), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_capture_switch(runtime, stream, condition, 0, body), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_body_close(runtime, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_capture_if(runtime, stream, condition, body));
    check_status(strata_capture_if(runtime, stream, condition, other), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_runtime_prepare_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "the body of a conditional node in the capture is open");
    check_status(strata_runtime_allocate(runtime, BYTES, stream, &taken), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_capture_end(runtime, stream, &graph), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_capture_end(runtime, body, &graph), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_set_name(runtime, body, "a body's"), STRATA_ERROR_INVALID_VALUE);
    close_body(fixture, body);
    check_status(strata_capture_body_close(runtime, body), STRATA_ERROR_INVALID_VALUE);
    test_write(fixture, &block, 0x01, stream);
    graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x01, body); /* the body's stream is the runtime's again */
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void a_driver_without_conditional_nodes_is_named(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    CUgraphConditionalHandle condition;
    const strata_entry_table real = strata_cu;
    begin(fixture, stream, NULL);
    strata_cu.GraphConditionalHandleCreate = NULL;
    const strata_status made = strata_capture_condition(fixture->runtime, stream, NULL, &condition);
    strata_cu.GraphConditionalHandleCreate = real.GraphConditionalHandleCreate;
    strata_cu.StreamBeginCaptureToGraph = NULL;
    const strata_status begun = strata_capture_while(fixture->runtime, stream, 0, body);
    strata_cu.StreamBeginCaptureToGraph = real.StreamBeginCaptureToGraph;
    check_status(made, STRATA_ERROR_UNSUPPORTED);
    check_status(begun, STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "this one has no cuStreamBeginCaptureToGraph");
    check_ok(destroy(end(fixture, stream)));
}

static void a_graph_with_conditional_nodes_is_neither_updated_nor_a_part(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = NULL, *instead;
    strata_graph_update_info info;
    for (int i = 0; i < 2; i++) {
        begin(fixture, stream, NULL);
        begin_if(fixture, stream, 1, body);
        test_write(fixture, &block, (unsigned char)(0x02 + i), body);
        close_body(fixture, body);
        if (!graph)
            graph = end(fixture, stream);
    }
    check_status(strata_graph_update(graph, stream, &info, &instead), STRATA_ERROR_UNSUPPORTED);
    forget_capture(stream);
    assert_int_equal(info.result, STRATA_GRAPH_NODE_REFUSED);
    assert_non_null(instead);
    graphs[graph_count++] = instead;
    check_ok(strata_graph_launch(instead, stream));
    check_value(fixture, &block, 0x03, stream);
    begin(fixture, stream, NULL);
    check_status(strata_graph_launch(graph, stream), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "the graph has 1 conditional node, and cannot be a part");
    check_ok(strata_capture_discard(runtime, stream));
    forget_capture(stream);
    check_ok(destroy(instead));
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void a_condition_without_a_node_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    condition_of(fixture, stream, 0);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_DRIVER);
    forget_capture(stream);
    check_last_error(STRATA_ERROR_DRIVER, "a condition was made for no node");
}

static uint64_t count(test_fixture *fixture, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &value, NULL));
    return value;
}

static void append_text(const char *text, size_t length, void *data)
{
    strncat(data, text, length);
}

static void conditional_nodes_and_their_launches_are_counted(test_fixture *fixture)
{
    static const char *const names[] = {"conditionals.made", "conditionals.ended", "conditionals.launches",
                                        "captures.made"};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const uint64_t zero = 0, live = count(fixture, "conditionals.live");
    char text[512] = "";
    strata_graph *graph = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_ok(strata_control(strata_runtime_stack(fixture->runtime), names[i], NULL, &zero));
    for (int i = 0; i < 2; i++) {
        begin(fixture, stream, NULL);
        for (int k = 0; k < 2; k++) {
            begin_if(fixture, stream, 1, body);
            test_write(fixture, &block, 0x06, body);
            close_body(fixture, body);
        }
        if (!graph)
            graph = end(fixture, stream);
    }
    assert_int_equal(count(fixture, "conditionals.live"), live + 4);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    for (int i = 0; i < 3; i++)
        check_ok(strata_graph_launch(graph, stream));
    assert_int_equal(count(fixture, "conditionals.made"), 4);
    assert_int_equal(count(fixture, "conditionals.ended"), 2);
    assert_int_equal(count(fixture, "conditionals.live"), live + 2);
    assert_int_equal(count(fixture, "conditionals.launches"), 6);
    assert_int_equal(count(fixture, "captures.made"), 2); /* bodies are none */
    strata_graph_print(graph, append_text, text);
    assert_non_null(strstr(text, "of 2 nodes (2 conditional with bodies)"));
    check_ok(destroy(graph));
    assert_int_equal(count(fixture, "conditionals.live"), live);
    assert_int_equal(strata_graph_conditional_count(NULL), 0);
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async"};
    static const test_case cases[] = {
        TEST_CASE(a_body_runs_by_the_value_of_its_condition),
        TEST_CASE(one_of_several_bodies_runs),
        TEST_CASE(a_loop_runs_until_a_kernel_ends_it),
        TEST_CASE(bodies_have_conditional_nodes_too),
        TEST_CASE(a_graph_is_a_part_of_a_body),
        TEST_CASE(a_node_is_ordered_with_the_captures_other_streams),
        TEST_CASE(what_only_a_body_uses_is_waited_for_and_kept),
        TEST_CASE(a_block_that_is_freed_in_a_body_goes_with_the_graph),
        TEST_CASE(references_of_a_body_are_held_until_the_graph_is_gone),
        TEST_CASE(memory_of_a_body_is_used_again_behind_its_node_alone),
        TEST_CASE(bodies_use_again_what_was_freed_before_their_node),
        TEST_CASE(a_body_with_live_blocks_is_not_closed),
        TEST_CASE(a_body_uses_blocks_of_the_capture_around_it_and_does_not_free_them),
        TEST_CASE(a_refused_free_is_logged_while_other_threads_use_the_pool),
        TEST_CASE(calls_out_of_place_are_refused),
        TEST_CASE(a_driver_without_conditional_nodes_is_named),
        TEST_CASE(a_graph_with_conditional_nodes_is_neither_updated_nor_a_part),
        TEST_CASE(a_condition_without_a_node_gives_no_graph),
        TEST_CASE(conditional_nodes_and_their_launches_are_counted),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    if (!conditionals_can_be_tested())
        return 77;
    load_kernel();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
