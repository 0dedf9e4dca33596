/* BLAS handles: the order of their uses across streams, captures, the workspace and its budget, refusals and ends. */
#include "support/beside.h"
#include "support/blas.h"

#include <pthread.h>

enum { SIDE = 8, COUNT = SIDE * SIDE };

static strata_graph *graph;
static strata_capture_pool *pool;
static CUstream captured;
static strata_runtime *captured_of, *own;

static void clear_graphs(void)
{
    if (captured)
        strata_capture_discard(captured_of, captured);
    strata_graph_destroy(graph);
    strata_capture_pool_release(pool);
    captured = NULL;
    graph = NULL;
    pool = NULL;
}

static void clear(void)
{
    blas_also_clear = clear_graphs;
    blas_clear();
    if (own)
        strata_runtime_destroy(own);
    own = NULL;
}

/* A, B and C of SIDE by SIDE, in f32. */
typedef struct product {
    double a[COUNT], b[COUNT], c[COUNT];
    strata_blas_gemm_call call;
} product;

static void make_product(test_fixture *fixture, product *p, unsigned seed, CUstream stream)
{
    *p = (product){.call = {.order = STRATA_BLAS_ROWS, .m = SIDE, .n = SIDE, .k = SIDE, .alpha = 1, .beta = 1}};
    blas_fill(p->a, COUNT, seed);
    blas_fill(p->b, COUNT, seed + 1);
    blas_fill(p->c, COUNT, seed + 2);
    p->call.a.ref = blas_ref(fixture, STRATA_ELEMENT_F32, p->a, COUNT, stream);
    p->call.b.ref = blas_ref(fixture, STRATA_ELEMENT_F32, p->b, COUNT, stream);
    p->call.c.ref = blas_ref(fixture, STRATA_ELEMENT_F32, p->c, COUNT, stream);
    p->call.a.leading = p->call.b.leading = p->call.c.leading = SIDE;
}

static void multiply_plainly(product *p)
{
    blas_plain_gemm(&p->call, p->a, p->b, p->c);
}

/* ---- order ---- */

static void a_product_comes_after_writes_and_before_reads_on_other_streams(test_fixture *fixture)
{
    const CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    product p;
    blas_begin(fixture, writer);
    test_stall *stall = test_stall_begin(writer);
    make_product(fixture, &p, 1, writer);
    check_ok(strata_blas_gemm(blas, &p.call, stream));
    const unsigned char *seen = blas_copy(fixture, p.call.c.ref, reader);
    check_ok(strata_blas_gemm(blas, &p.call, writer));
    test_stall_release(stall);
    test_synchronize(reader);
    multiply_plainly(&p);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(blas_decode(STRATA_ELEMENT_F32, seen + 4 * i) == p.c[i]);
    multiply_plainly(&p);
    check_values(fixture, p.call.c.ref, p.c, 0, writer);
    test_stall_end(stall);
    blas_end();
}

/* The checker of the simulated driver sees each call write the workspace. */
static void calls_on_two_streams_do_not_meet_in_the_workspace(test_fixture *fixture)
{
    const CUstream streams[] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_POOL)};
    product p[2];
    blas_begin(fixture, streams[0]);
    for (int i = 0; i < 2; i++)
        make_product(fixture, &p[i], 10 * (unsigned)i, streams[i]);
    for (int i = 0; i < 4; i++)
        check_ok(strata_blas_gemm(blas, &p[i % 2].call, streams[i % 2]));
    for (int i = 0; i < 4; i++)
        multiply_plainly(&p[i % 2]);
    for (int i = 0; i < 2; i++)
        check_values(fixture, p[i].call.c.ref, p[i].c, 0, streams[i]);
    blas_end();
}

static void operands_may_be_blocks(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    const strata_block block = test_allocate(fixture, (COUNT + 4) * sizeof(float), stream);
    p.call.beta = 0;
    p.call.c = strata_blas_of_block(&block, STRATA_ELEMENT_F32);
    p.call.c.leading = SIDE;
    p.call.c.offset = 4;
    check_ok(strata_blas_gemm(blas, &p.call, stream));
    p.call.c.offset = 0;
    multiply_plainly(&p);
    const float *seen =
        (const float *)(const void *)test_copy_back(fixture, block.address + 16, COUNT * sizeof(float), stream);
    test_synchronize(stream);
    for (size_t i = 0; i < COUNT; i++)
        assert_true((double)seen[i] == p.c[i]);
    test_free_on(fixture, &block, stream);
    check_status(strata_blas_gemm(blas, &p.call, stream), STRATA_ERROR_USE_AFTER_FREE);
    blas_end();
}

static void a_reference_may_go_while_its_product_is_under_way(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    test_stall *stall = test_stall_begin(other);
    check_ok(strata_blas_gemm(blas, &p.call, other));
    blas_drop(p.call.a.ref);
    blas_drop(p.call.b.ref);
    product next; /* takes the memory again */
    make_product(fixture, &next, 20, stream);
    test_stall_release(stall);
    multiply_plainly(&p);
    check_values(fixture, p.call.c.ref, p.c, 0, other);
    test_stall_end(stall);
    blas_end();
}

typedef struct caller {
    test_fixture *fixture;
    CUstream stream;
    product p;
    strata_status status;
} caller;

static void *call_often(void *data)
{
    caller *self = data;
    test_make_current();
    for (int i = 0; i < 20 && self->status == STRATA_SUCCESS; i++)
        self->status = strata_blas_gemm(blas, &self->p.call, self->stream);
    return NULL;
}

static void threads_share_a_handle(test_fixture *fixture)
{
    static caller callers[2];
    pthread_t threads[2];
    const CUstream first = test_stream(fixture, TEST_STREAM_POOL);
    if (test_is_swept()) /* no two runs make the same calls */
        skip();
    blas_begin(fixture, first);
    for (int i = 0; i < 2; i++) {
        callers[i] = (caller){.fixture = fixture, .stream = i ? test_stream(fixture, TEST_STREAM_POOL) : first};
        make_product(fixture, &callers[i].p, (unsigned)i, callers[i].stream);
        for (size_t j = 0; j < COUNT; j++)
            callers[i].p.c[j] = 0;
        blas_write(fixture, callers[i].p.call.c.ref, callers[i].p.c, callers[i].stream);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        check_ok(callers[i].status);
        for (int j = 0; j < 20; j++)
            multiply_plainly(&callers[i].p);
        check_values(fixture, callers[i].p.call.c.ref, callers[i].p.c, 0, callers[i].stream);
    }
    blas_end();
}

/* ---- captures ---- */

static void begin_capture(test_fixture *fixture, CUstream stream)
{
    captured_of = fixture->runtime;
    captured = stream;
    check_ok(strata_capture_pool_create(fixture->runtime, "blas", &pool));
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool));
}

static void end_capture(test_fixture *fixture, CUstream stream)
{
    captured = NULL;
    check_ok(strata_capture_end(fixture->runtime, stream, &graph));
}

static void end_graph(void)
{
    strata_graph *gone = graph;
    strata_capture_pool *gone_pool = pool;
    graph = NULL;
    pool = NULL;
    check_ok(strata_graph_destroy(gone));
    check_ok(strata_capture_pool_release(gone_pool));
}

/* Each launch sees what was written before it, on another stream. The workspaces of the two calls are one range. */
static void products_of_a_capture_are_made_at_each_launch(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_pool_usage usage;
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    check_ok(strata_blas_gemm(blas, &p.call, stream)); /* cuBLAS loads its kernels */
    multiply_plainly(&p);
    begin_capture(fixture, stream);
    check_ok(strata_blas_gemm(blas, &p.call, stream));
    check_ok(strata_blas_gemm(blas, &p.call, stream));
    check_ok(strata_capture_pool_get_usage(pool, &usage));
    assert_int_equal(usage.live_blocks, 0);
    assert_in_range(usage.reserved, TEST_BLAS_WORKSPACE, 2 * TEST_BLAS_WORKSPACE + (2 << 20) - 1);
    end_capture(fixture, stream);
    for (unsigned launch = 0; launch < 3; launch++) {
        blas_fill(p.a, COUNT, 30 + launch);
        blas_fill(p.c, COUNT, 40 + launch);
        blas_write(fixture, p.call.a.ref, p.a, other);
        blas_write(fixture, p.call.c.ref, p.c, other);
        check_ok(strata_graph_launch(graph, stream));
        check_ok(strata_blas_gemm(blas, &p.call, other));
        for (int i = 0; i < 3; i++)
            multiply_plainly(&p);
        check_values(fixture, p.call.c.ref, p.c, 0, other);
    }
    end_graph();
    blas_end();
}

static void batches_are_multiplied_in_a_capture(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    strata_blas_operand operands[3] = {p.call.a, p.call.b, p.call.c};
    for (int i = 0; i < 3; i++)
        check_ok(strata_blas_batch_create(blas, &operands[i], 1, stream, &blas_batches[blas_batch_count++]));
    strata_blas_gemm_call call = p.call;
    call.a = strata_blas_of_batch(blas_batches[0]);
    call.b = strata_blas_of_batch(blas_batches[1]);
    call.c = strata_blas_of_batch(blas_batches[2]);
    begin_capture(fixture, stream);
    check_ok(strata_blas_gemm(blas, &call, stream));
    end_capture(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(strata_graph_launch(graph, stream));
    multiply_plainly(&p);
    multiply_plainly(&p);
    check_values(fixture, p.call.c.ref, p.c, 0, stream);
    end_graph();
    blas_end();
}

static void dot_and_axpy_are_captured_too(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    double x[4] = {1, 2, 3, 4}, y[4] = {0, 1, 0, 1}, result[1] = {NAN};
    blas_begin(fixture, stream);
    const strata_blas_operand of_x = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, x, 4, stream));
    const strata_blas_operand of_y = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, y, 4, stream));
    const strata_blas_operand of_result = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, result, 1, stream));
    begin_capture(fixture, stream);
    check_ok(strata_blas_axpy(blas, 4, 1, &of_x, &of_y, stream));
    check_ok(strata_blas_dot(blas, 4, &of_x, &of_y, &of_result, stream));
    end_capture(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(strata_graph_launch(graph, stream));
    result[0] = 2 * 30 + 6;
    check_values(fixture, of_result.ref, result, 0, stream);
    end_graph();
    blas_end();
}

static void what_cannot_be_captured_is_refused_and_the_capture_lives_on(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const strata_blas_options options = {.workspace_bytes = TEST_BLAS_WORKSPACE};
    strata_blas *second = (strata_blas *)&second;
    strata_blas_batch *batch = (strata_blas_batch *)&batch;
    double value = 1;
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    begin_capture(fixture, stream);
    check_status(strata_blas_create(fixture->runtime, stream, &options, &second), STRATA_ERROR_STREAM_CAPTURE);
    assert_null(second);
    check_status(strata_blas_batch_create(blas, &p.call.a, 1, stream, &batch), STRATA_ERROR_STREAM_CAPTURE);
    assert_null(batch);
    check_status(strata_blas_nrm2_value(blas, COUNT, &p.call.a, stream, &value), STRATA_ERROR_STREAM_CAPTURE);
    assert_true(value == 0);
    check_ok(strata_blas_gemm(blas, &p.call, stream));
    end_capture(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    multiply_plainly(&p);
    check_values(fixture, p.call.c.ref, p.c, 0, stream);
    end_graph();
    blas_end();
}

/* ---- the workspace ---- */

static void a_budget_sees_the_workspace(test_fixture *fixture)
{
    strata_runtime_budget budget;
    strata_blas_options options = {.workspace_bytes = 8 << 20};
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "budget(limit=4MiB), pool"}, &own));
    check_status(strata_blas_create(own, NULL, &options, &blas), STRATA_ERROR_OUT_OF_BUDGET);
    assert_null(blas);
    options.workspace_bytes = 1 << 20;
    check_ok(strata_blas_create(own, NULL, &options, &blas));
    check_ok(strata_runtime_budget_snapshot(own, &budget));
    assert_in_range(budget.in_use, 1 << 20, 2 << 20);
    check_status(strata_runtime_destroy(own), STRATA_ERROR_BUSY);
    blas_end();
    check_ok(strata_runtime_reap_pending(own));
    check_ok(strata_runtime_budget_snapshot(own, &budget));
    assert_int_equal(budget.in_use, 0);
    strata_runtime *gone = own;
    own = NULL;
    check_ok(strata_runtime_destroy(gone));
}

static void a_handle_tells_its_library_and_its_workspace(test_fixture *fixture)
{
    strata_blas_info info;
    check_ok(strata_blas_create(fixture->runtime, NULL, NULL, &blas));
    check_ok(strata_blas_get_info(blas, &info));
    assert_int_equal(info.workspace_bytes, 32 << 20);
    assert_true(atoi(info.version) >= 12);
    assert_non_null(strstr(info.library, "blas"));
    blas_end();
}

/* ---- refusals ---- */

/* Nothing is submitted, and no use is noted. */
#define refuse(call, words) check_refused(fixture, &(call), (words), stream, __LINE__)
static void check_refused(test_fixture *fixture, const strata_blas_gemm_call *call, const char *words, CUstream stream,
                          int line)
{
    test_calls calls;
    (void)fixture;
    test_calls_begin(&calls);
    if (strata_blas_gemm(blas, call, stream) != STRATA_ERROR_INVALID_VALUE)
        fail_msg("line %d: not refused", line);
    check_last_error(STRATA_ERROR_INVALID_VALUE, words);
    assert_int_equal(test_calls_total(&calls), 0);
}

static void sizes_that_do_not_fit_are_refused_before_anything_is_submitted(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    strata_blas_gemm_call call = p.call;
    call.m = SIDE + 1;
    refuse(call, "operand A needs 72 elements of f32 from its offset on, and has 64");
    call = p.call, call.b.offset = 1;
    refuse(call, "operand B needs 64 elements of f32 from its offset on, and has 63");
    call = p.call, call.c.offset = COUNT + 1;
    refuse(call, "operand C begins at element 65 of 64");
    call = p.call, call.a.leading = SIDE - 1;
    refuse(call, "a leading dimension of 7 is below the 8 elements of a row or column");
    call = p.call, call.b.leading = SIZE_MAX / 4;
    refuse(call, "the size of operand B overflows");
    call = p.call, call.k = (size_t)1 << 63;
    refuse(call, "largest int64_t");
    call = p.call, call.count = 2;
    refuse(call, "its matrices overlap");
    call = p.call, call.count = 2, call.c.stride = COUNT;
    refuse(call, "operand C needs 128 elements");
    call = p.call, call.order = STRATA_BLAS_ORDER_NONE;
    refuse(call, "STRATA_BLAS_ROWS or STRATA_BLAS_COLUMNS");
    call = p.call, call.c.type = STRATA_ELEMENT_F64;
    refuse(call, "operand C has elements of type f32, not f64");
    call = p.call, call.a.ref = NULL;
    refuse(call, "set one of ref, block and batch");
    call = p.call, call.a.ref = NULL, call.a.block = &(strata_block){0};
    refuse(call, "set the type of its elements");
    call.a.type = STRATA_ELEMENT_F32;
    refuse(call, "operand A needs 64 elements of f32 from its offset on, and has 0");
    call = p.call, call.c.ref = blas_ref(fixture, STRATA_ELEMENT_F64, NULL, COUNT, stream);
    refuse(call, "no product of f32 and f32 into f64");
    blas_end();
}

static void batches_that_do_not_fit_are_refused(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_blas_batch *batch = NULL;
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    const strata_blas_operand two[] = {p.call.a, {.ref = blas_ref(fixture, STRATA_ELEMENT_F64, NULL, 8, stream)}};
    check_status(strata_blas_batch_create(blas, two, 2, stream, &batch), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "operand 1 of a batch is f64, and the first one f32");
    check_status(strata_blas_batch_create(blas, two, 0, stream, &batch), STRATA_ERROR_INVALID_VALUE);
    const strata_blas_operand twice[] = {p.call.a, p.call.b};
    check_ok(strata_blas_batch_create(blas, twice, 2, stream, &blas_batches[blas_batch_count++]));
    strata_blas_gemm_call call = p.call;
    call.a = strata_blas_of_batch(blas_batches[0]);
    refuse(call, "A, B and C are batches, or none of them is");
    call.b = call.c = call.a;
    refuse(call, "a batch of 2 matrices in a product of 1");
    call.count = 2;
    call.m = SIDE + 1;
    refuse(call, "operand A needs");
    const strata_blas_operand vector = strata_blas_of_batch(blas_batches[0]);
    check_status(strata_blas_scal(blas, 1, 2, &vector, stream), STRATA_ERROR_INVALID_VALUE);
    blas_end();
}

typedef struct good_call {
    strata_blas_gemm_call call;
    CUstream stream;
} good_call;

static void make_good_call(void *data)
{
    good_call *self = data;
    strata_blas_gemm(blas, &self->call, self->stream);
}

static void a_refused_call_is_logged_while_other_threads_use_the_handle(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS, .m = SIDE, .n = SIDE, .k = SIDE, .alpha = 1};
    double c[COUNT] = {0};
    product p;
    test_beside beside;
    if (test_is_swept())
        return;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    good_call other = {p.call, stream};
    call.a = call.b = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F8E4M3, NULL, COUNT, stream));
    call.c = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, c, COUNT, stream));
    test_beside_begin(&beside, make_good_call, &other);
    const strata_status status = strata_blas_gemm(blas, &call, stream);
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_LIBRARY);
    blas_end();
}

/* The library refuses f8 of this form after the uses were prepared: they are taken back. */
static void a_call_that_the_library_refuses_notes_no_use(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS, .m = SIDE, .n = SIDE, .k = SIDE, .alpha = 1};
    strata_last_write write;
    double c[COUNT] = {0};
    blas_begin(fixture, stream);
    call.a = call.b = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F8E4M3, NULL, COUNT, stream));
    call.c = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, c, COUNT, stream));
    check_status(strata_blas_gemm(blas, &call, other), STRATA_ERROR_LIBRARY);
    check_last_error(STRATA_ERROR_LIBRARY, "cuBLAS");
    check_ok(strata_ref_last_write_stream(call.c.ref, &write));
    assert_int_equal(write.kind, STRATA_LAST_WRITE_STREAM);
    assert_ptr_equal(write.stream, stream);
    strata_last_write_release(&write);
    blas_end();
}

static void null_arguments_are_refused(test_fixture *fixture)
{
    const strata_blas_options sized = {.size = 4096};
    strata_blas_info info;
    check_status(strata_blas_create(NULL, NULL, NULL, &blas), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_create(fixture->runtime, NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_create(fixture->runtime, NULL, &sized, &blas), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_gemm(NULL, &(strata_blas_gemm_call){0}, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_get_info(NULL, &info), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_batch_create(NULL, NULL, 0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    blas_begin(fixture, NULL);
    check_status(strata_blas_gemm(blas, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_scal(blas, 1, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    blas_end();
    check_ok(strata_blas_destroy(NULL));
    check_ok(strata_blas_batch_destroy(NULL));
    assert_int_equal(strata_blas_batch_count(NULL), 0);
}

/* ---- ends ---- */

static void after_a_rebuild_of_the_context_calls_answer_stale(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    product p;
    blas_begin(fixture, stream);
    make_product(fixture, &p, 1, stream);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_blas_gemm(blas, &p.call, stream), STRATA_ERROR_STALE);
    blas_end();
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_product_comes_after_writes_and_before_reads_on_other_streams),
        TEST_CASE(calls_on_two_streams_do_not_meet_in_the_workspace),
        TEST_CASE(operands_may_be_blocks),
        TEST_CASE(a_reference_may_go_while_its_product_is_under_way),
        TEST_CASE(threads_share_a_handle),
        TEST_CASE(products_of_a_capture_are_made_at_each_launch),
        TEST_CASE(batches_are_multiplied_in_a_capture),
        TEST_CASE(dot_and_axpy_are_captured_too),
        TEST_CASE(what_cannot_be_captured_is_refused_and_the_capture_lives_on),
        TEST_CASE(a_budget_sees_the_workspace),
        TEST_CASE(a_handle_tells_its_library_and_its_workspace),
        TEST_CASE(sizes_that_do_not_fit_are_refused_before_anything_is_submitted),
        TEST_CASE(batches_that_do_not_fit_are_refused),
        TEST_CASE(a_call_that_the_library_refuses_notes_no_use),
        TEST_CASE(a_refused_call_is_logged_while_other_threads_use_the_handle),
        TEST_CASE(null_arguments_are_refused),
        TEST_CASE(after_a_rebuild_of_the_context_calls_answer_stale),
    };
    static const char *const stacks[] = {"pool", "async"};
    test_before_clearing = clear;
    blas_open();
    return test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
}
