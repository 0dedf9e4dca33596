/* Functions captured into graphs, and called as such. */
#include <pthread.h>
#include <string.h>

#include "support/beside.h"
#include "support/faults.h"
#include "support/graphs.h"
#include "support/stall.h"
#include "support/sweep.h"

/* What the functions of a case work on. */
typedef struct scene {
    test_fixture *fixture;
    strata_block block, extra;
    unsigned prologues, bodies;
    strata_status prologue_gives, body_gives;
    strata_status nested;
} scene;

static strata_graphed *graphed_kept;

static void clear_all_away(void)
{
    strata_error_suppress_begin();
    strata_graphed_destroy(graphed_kept);
    graphed_kept = NULL;
    strata_error_suppress_end(false);
    clear_away();
}

/* ---- captures of functions ---- */

static strata_status prologue(strata_runtime *runtime, CUstream stream, void *data)
{
    scene *self = data;
    self->prologues++;
    assert_false(strata_is_stream_capturing(runtime, stream));
    return self->prologue_gives;
}

static strata_status body(strata_runtime *runtime, CUstream stream, void *data)
{
    scene *self = data;
    strata_block scratch;
    self->bodies++;
    assert_true(strata_is_stream_capturing(runtime, stream));
    const strata_status status = strata_runtime_allocate(runtime, BYTES, stream, &scratch);
    if (status != STRATA_SUCCESS)
        return status;
    test_write(self->fixture, &scratch, 0x42, stream);
    copy(self->fixture, &self->block, &scratch, stream);
    const strata_status freed = strata_runtime_deallocate(runtime, &scratch);
    return freed == STRATA_SUCCESS ? self->body_gives : freed;
}

static void a_function_is_captured_into_a_graph_that_is_ready(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture, .block = test_allocate(fixture, BYTES, stream)};
    strata_graph *graph;
    kept_runtime = fixture->runtime;
    test_write(fixture, &self.block, 0x01, stream);
    check_ok(strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, prologue, body, &self, &graph));
    graphs[graph_count++] = graph;
    assert_int_equal(self.prologues, 1);
    assert_int_equal(self.bodies, 1);
    assert_true(strata_graph_is_uploaded(graph));
    check_value(fixture, &self.block, 0x01, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &self.block, 0x42, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &self.block, stream);
}

static void a_failure_of_either_function_leaves_everything_usable(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture, .block = test_allocate(fixture, BYTES, stream)};
    strata_graph *graph = (strata_graph *)&self;
    strata_capture_pool *pool = make_pool(fixture);
    kept_runtime = fixture->runtime;
    self.prologue_gives = STRATA_ERROR_TIMEOUT;
    check_status(
        strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool, prologue, body, &self, &graph),
        STRATA_ERROR_TIMEOUT);
    assert_null(graph);
    assert_int_equal(self.bodies, 0);
    self.prologue_gives = STRATA_SUCCESS;
    self.body_gives = STRATA_ERROR_CANCELLED;
    check_status(
        strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool, prologue, body, &self, &graph),
        STRATA_ERROR_CANCELLED);
    assert_null(graph);
    assert_false(strata_is_stream_capturing(fixture->runtime, stream));
    test_write(fixture, &self.block, 0x07, stream);
    check_value(fixture, &self.block, 0x07, stream);
    self.body_gives = STRATA_SUCCESS;
    check_ok(strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool, NULL, body, &self, &graph));
    graphs[graph_count++] = graph;
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &self.block, 0x42, stream);
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    test_free_on(fixture, &self.block, stream);
    check_status(strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, NULL, NULL, NULL, &graph),
                 STRATA_ERROR_INVALID_VALUE);
}

static strata_status nests(strata_runtime *runtime, CUstream stream, void *data)
{
    scene *self = data;
    strata_graph *graph;
    strata_error_suppress_begin();
    self->nested = strata_capture_into(runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, NULL, body, data, &graph);
    strata_error_suppress_end(false);
    return STRATA_ERROR_CANCELLED;
}

static void one_capture_of_a_function_runs_at_a_time_in_global_mode(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture};
    strata_graph *graph;
    check_status(strata_capture_into(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, nests, body, &self, &graph),
                 STRATA_ERROR_CANCELLED);
    assert_int_equal(self.nested, STRATA_ERROR_BUSY);
}

enum { CAPTURERS = 4 };

static _Atomic int inside, most_inside;

static strata_status enter(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime, (void)stream, (void)data;
    const int now = atomic_fetch_add(&inside, 1) + 1;
    for (int most = atomic_load(&most_inside); now > most && !atomic_compare_exchange_weak(&most_inside, &most, now);)
        ;
    sched_yield();
    return STRATA_SUCCESS;
}

static strata_status leave(strata_runtime *runtime, CUstream stream, void *data)
{
    const strata_status status = body(runtime, stream, data);
    atomic_fetch_sub(&inside, 1);
    return status;
}

typedef struct capturer {
    scene scene;
    CUstream stream;
    strata_graph *graph;
    strata_status status;
} capturer;

static void *capture_one(void *data)
{
    capturer *self = data;
    self->status = strata_capture_into(self->scene.fixture->runtime, self->stream, STRATA_CAPTURE_GLOBAL, NULL, enter,
                                       leave, &self->scene, &self->graph);
    return NULL;
}

static void threads_capture_functions_one_after_another(test_fixture *fixture)
{
    capturer all[CAPTURERS];
    pthread_t threads[CAPTURERS];
    if (test_is_swept())
        return;
    kept_runtime = fixture->runtime;
    atomic_store(&inside, 0);
    atomic_store(&most_inside, 0);
    for (size_t i = 0; i < CAPTURERS; i++) {
        all[i] = (capturer){.scene = {.fixture = fixture}, .stream = test_stream(fixture, TEST_STREAM_POOL)};
        all[i].scene.block = test_allocate(fixture, BYTES, all[i].stream);
    }
    for (size_t i = 0; i < CAPTURERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_one, &all[i]), 0);
    for (size_t i = 0; i < CAPTURERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&most_inside), 1);
    for (size_t i = 0; i < CAPTURERS; i++) {
        check_ok(all[i].status);
        graphs[graph_count++] = all[i].graph;
        check_ok(strata_graph_launch(all[i].graph, all[i].stream));
        check_value(fixture, &all[i].scene.block, 0x42, all[i].stream);
        check_ok(destroy(all[i].graph));
        test_free_on(fixture, &all[i].scene.block, all[i].stream);
    }
}

static strata_status end_the_thread(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime, (void)stream, (void)data;
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return STRATA_SUCCESS;
}

static strata_status submit_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime, (void)stream, (void)data;
    return STRATA_SUCCESS;
}

static void *end_in_a_function(void *data)
{
    capturer *self = data;
    const bool prologue = self->scene.bodies != 0;
    self->status = strata_capture_into(self->scene.fixture->runtime, self->stream, STRATA_CAPTURE_GLOBAL, NULL,
                                       prologue ? end_the_thread : NULL, prologue ? submit_nothing : end_the_thread,
                                       &self->scene, &self->graph);
    return NULL;
}

static void a_thread_that_ends_in_a_function_keeps_no_other_from_capturing(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    for (unsigned bodies = 0; bodies < 2; bodies++) {
        capturer self = {.scene = {.fixture = fixture, .bodies = bodies},
                         .stream = test_stream(fixture, TEST_STREAM_POOL)};
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, end_in_a_function, &self), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        assert_false(strata_is_stream_capturing(fixture->runtime, self.stream));
        check_ok(strata_capture_into(fixture->runtime, self.stream, STRATA_CAPTURE_GLOBAL, NULL, NULL, submit_nothing,
                                     NULL, &graphs[graph_count]));
        check_ok(destroy(graphs[graph_count++]));
    }
}

/* ---- functions of blocks ---- */

/* Through a temporary, so that the graph has memory: out 0 gets in 1, out 1 gets in 0. */
static strata_status swap(strata_runtime *runtime, CUstream stream, const strata_block *inputs,
                          const strata_block *outputs, void *data)
{
    scene *self = data;
    strata_block scratch;
    self->bodies++;
    const strata_status status = strata_runtime_allocate(runtime, BYTES, stream, &scratch);
    if (status != STRATA_SUCCESS)
        return status;
    copy(self->fixture, &scratch, &inputs[0], stream);
    copy(self->fixture, &outputs[0], &inputs[1], stream);
    copy(self->fixture, &outputs[1], &scratch, stream);
    const strata_status freed = strata_runtime_deallocate(runtime, &scratch);
    return freed == STRATA_SUCCESS ? self->body_gives : freed;
}

static const size_t sizes[] = {BYTES, BYTES};

static strata_graphed_options options_of(scene *self)
{
    return (strata_graphed_options){.size = sizeof(strata_graphed_options),
                                    .body = swap,
                                    .data = self,
                                    .input_bytes = sizes,
                                    .input_count = 2,
                                    .output_bytes = sizes,
                                    .output_count = 2};
}

static strata_status destroy_graphed(void)
{
    strata_graphed *graphed = graphed_kept;
    graphed_kept = NULL;
    return strata_graphed_destroy(graphed);
}

static void a_function_is_called_as_a_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    const size_t before = live_blocks(fixture);
    kept_runtime = fixture->runtime;
    check_ok(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept));
    assert_int_equal(self.bodies, 4);
    check_value(fixture, &strata_graphed_inputs(graphed_kept)[0], 0, stream); /* what the warm-ups saw */
    for (unsigned char value = 1; value < 5; value++) {
        CUstream on = value % 2 ? stream : other;
        strata_block inputs[] = {test_allocate(fixture, BYTES, on), test_allocate(fixture, BYTES, stream)};
        test_write(fixture, &inputs[0], value, other);
        test_write(fixture, &inputs[1], (unsigned char)(value + 0x40), stream);
        const strata_block *outputs;
        check_ok(strata_graphed_call(graphed_kept, on, inputs, &outputs));
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &inputs[0], on));
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &inputs[1], other));
        check_value(fixture, &outputs[0], (unsigned char)(value + 0x40), other);
        check_value(fixture, &outputs[1], value, stream);
    }
    assert_int_equal(self.bodies, 4);
    assert_int_equal(strata_graph_num_replays(strata_graphed_graph(graphed_kept)), 4);
    check_ok(destroy_graphed());
    assert_int_equal(live_blocks(fixture), before);
}

/* The checker sees a copy that does not wait for the launch before it. */
static void calls_in_a_row_come_one_after_another(test_fixture *fixture)
{
    CUstream streams[] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN)};
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    kept_runtime = fixture->runtime;
    check_ok(strata_graphed_create(fixture->runtime, streams[0], &options, &graphed_kept));
    strata_block inputs[4];
    for (unsigned char i = 0; i < 4; i++) {
        inputs[i] = test_allocate(fixture, BYTES, streams[i / 2]); /* so that no wait for them covers the launch */
        test_write(fixture, &inputs[i], (unsigned char)(i + 1), streams[i / 2]);
    }
    const strata_block *outputs;
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_graphed_call(graphed_kept, streams[i], &inputs[2 * i], &outputs));
    check_value(fixture, &outputs[0], 4, streams[0]);
    check_value(fixture, &outputs[1], 3, streams[0]);
    for (size_t i = 0; i < 4; i++)
        test_free_on(fixture, &inputs[i], streams[i / 2]);
    check_ok(destroy_graphed());
}

static void inputs_that_are_there_are_not_copied(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    kept_runtime = fixture->runtime;
    check_ok(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept));
    const strata_block *own = strata_graphed_inputs(graphed_kept), *outputs;
    test_write(fixture, &own[0], 0x21, stream);
    test_write(fixture, &own[1], 0x22, stream);
    check_ok(strata_graphed_call(graphed_kept, stream, own, &outputs));
    check_value(fixture, &outputs[0], 0x22, stream);
    const strata_block none[2] = {{0}, {0}};
    test_write(fixture, &own[1], 0x23, stream);
    check_ok(strata_graphed_call(graphed_kept, stream, none, &outputs));
    check_value(fixture, &outputs[0], 0x23, stream);
    check_value(fixture, &outputs[1], 0x21, stream);
    strata_block small = test_allocate(fixture, BYTES / 4, stream);
    const strata_block bad[] = {small, {0}};
    check_status(strata_graphed_call(graphed_kept, stream, bad, &outputs), STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &small, stream);
    check_ok(destroy_graphed());
}

static void call_without_inputs(void *data)
{
    static const strata_block none[2];
    const strata_block *outputs;
    strata_graphed_call(graphed_kept, *(const CUstream *)data, none, &outputs);
}

static void a_refused_call_is_logged_while_other_threads_call_the_function(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    const strata_block *outputs;
    test_beside beside;
    if (test_is_swept())
        return;
    kept_runtime = fixture->runtime;
    check_ok(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept));
    strata_block small = test_allocate(fixture, BYTES / 4, stream);
    const strata_block bad[] = {small, {0}};
    test_beside_begin(&beside, call_without_inputs, &stream);
    const strata_status status = strata_graphed_call(graphed_kept, stream, bad, &outputs);
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &small, stream);
    check_ok(destroy_graphed());
}

static void samples_are_what_the_warm_ups_see(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    strata_block samples[] = {test_allocate(fixture, BYTES, stream), test_allocate(fixture, BYTES, stream)};
    test_write(fixture, &samples[0], 0x31, stream);
    test_write(fixture, &samples[1], 0x32, stream);
    kept_runtime = fixture->runtime;
    options.samples = samples;
    options.warm_ups = 1;
    check_ok(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept));
    assert_int_equal(self.bodies, 2);
    check_value(fixture, &strata_graphed_inputs(graphed_kept)[1], 0x32, stream);
    check_ok(destroy_graphed());
    test_free_on(fixture, &samples[0], stream);
    test_free_on(fixture, &samples[1], stream);
}

static void a_function_that_fails_leaves_nothing_behind(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture, .body_gives = STRATA_ERROR_TIMEOUT};
    strata_graphed_options options = options_of(&self);
    const size_t before = live_blocks(fixture);
    kept_runtime = fixture->runtime;
    check_status(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept), STRATA_ERROR_TIMEOUT);
    assert_null(graphed_kept);
    if (test_is_swept())
        check_ok(strata_runtime_reap_pending(fixture->runtime)); /* tries frees again that failed */
    assert_int_equal(live_blocks(fixture), before);
    options.size = 1;
    check_status(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_graphed_call(NULL, stream, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_graphed_destroy(NULL));
}

static void a_function_outlives_the_stream_that_it_was_made_on(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    const size_t before = live_blocks(fixture);
    kept_runtime = fixture->runtime;
    check_ok(strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept));
    test_stream_close(fixture, stream);
    const strata_block *outputs;
    test_write(fixture, &strata_graphed_inputs(graphed_kept)[1], 0x51, other);
    check_ok(strata_graphed_call(graphed_kept, other, strata_graphed_inputs(graphed_kept), &outputs));
    check_value(fixture, &outputs[0], 0x51, other);
    check_ok(destroy_graphed());
    assert_int_equal(live_blocks(fixture), before);
}

static strata_entry_table real_entries; /* while some are replaced */

static CUresult CUDAAPI refuse_identity(CUstream stream, unsigned long long *id)
{
    (void)stream;
    (void)id;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_wait(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

/* From then on streams can neither be identified nor waited for. */
static void know_no_stream(void)
{
    strata_cu.StreamGetId = refuse_identity;
    strata_cu.StreamSynchronize = refuse_wait;
}

static CUresult CUDAAPI fill_for_the_last_time(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    know_no_stream();
    return real_entries.MemsetD8Async(address, value, bytes, stream);
}

static CUresult CUDAAPI copy_for_the_last_time(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    know_no_stream();
    return real_entries.MemcpyDtoDAsync(to, from, bytes, stream);
}

static strata_status pass_on(strata_runtime *runtime, CUstream stream, const strata_block *inputs,
                             const strata_block *outputs, void *data)
{
    const scene *self = data;
    (void)runtime;
    copy(self->fixture, &outputs[0], &inputs[0], stream);
    return STRATA_SUCCESS;
}

/* Blocks that the function has filled, or copied to, and whose use could not be noted, are freed after it. */
static void work_that_cannot_be_noted_is_over_before_the_blocks_are_freed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    scene self = {.fixture = fixture};
    strata_graphed_options options = options_of(&self);
    const strata_block *outputs;
    options.body = pass_on;
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    if (test_owner_is(fixture, "direct"))
        return; /* its frees wait for the device */
    strata_block input = test_allocate(fixture, BYTES, stream);
    const strata_block inputs[] = {input, {0}};
    const size_t before = live_blocks(fixture);
    kept_runtime = fixture->runtime;
    for (int called = 0; called <= 1; called++) {
        strata_status status =
            called ? strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept) : STRATA_SUCCESS;
        check_ok(status);
        test_stall *stall = test_stall_begin(stream);
        real_entries = strata_cu;
        strata_cu.MemsetD8Async = fill_for_the_last_time;
        strata_cu.MemcpyDtoDAsync = copy_for_the_last_time;
        status = called ? strata_graphed_call(graphed_kept, stream, inputs, &outputs)
                        : strata_graphed_create(fixture->runtime, stream, &options, &graphed_kept);
        strata_cu = real_entries;
        const strata_status destroyed = destroy_graphed();
        const size_t left = live_blocks(fixture);
        test_stall_end(stall);
        check_status(status, STRATA_ERROR_DRIVER);
        assert_int_equal(destroyed == STRATA_SUCCESS, !called); /* the creation has given up what it made */
        assert_true(left > before);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
    test_free_on(fixture, &input, stream);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_function_is_captured_into_a_graph_that_is_ready),
        TEST_CASE(a_failure_of_either_function_leaves_everything_usable),
        TEST_CASE(one_capture_of_a_function_runs_at_a_time_in_global_mode),
        TEST_CASE(threads_capture_functions_one_after_another),
        TEST_CASE(a_thread_that_ends_in_a_function_keeps_no_other_from_capturing),
        TEST_CASE(a_function_is_called_as_a_graph),
        TEST_CASE(calls_in_a_row_come_one_after_another),
        TEST_CASE(inputs_that_are_there_are_not_copied),
        TEST_CASE(a_refused_call_is_logged_while_other_threads_call_the_function),
        TEST_CASE(samples_are_what_the_warm_ups_see),
        TEST_CASE(a_function_that_fails_leaves_nothing_behind),
        TEST_CASE(a_function_outlives_the_stream_that_it_was_made_on),
        TEST_CASE(work_that_cannot_be_noted_is_over_before_the_blocks_are_freed),
    };
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async",
    };
    test_before_clearing = clear_all_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
