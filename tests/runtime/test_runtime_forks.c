/* Calls in a forked child, while another thread of the parent has locks that they need: these stay taken in the child.
 * Each case forks in a process of its own. */
#include "support/child.h"
#include "support/effort.h"
#include "support/statistics_inside.h"

#include "core/streams/timeline.h"
#include "runtime/captures.h"

#include <strata/graph.h>
#include <strata/graphed.h>
#include <strata/launch.h>
#include <strata/libraries.h>
#include <strata/pool.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096, FORK_PATIENCE_S = 20 };

static strata_runtime *runtime;
static strata_capture_pool *pool;
static strata_graph *graph;
static CUstream stream;
static sem_t held, forked;

/* ---- captures and graphs ---- */

static void *hold_captures(void *unused)
{
    strata_lock_take(&pool->launches);
    strata_captures_lock(&runtime->captures);
    sem_post(&held);
    sem_wait(&forked);
    strata_captures_unlock(&runtime->captures);
    strata_lock_release(&pool->launches);
    return unused;
}

/* Forks while another thread is in `hold`; the child calls `look`. */
static void fork_beside(void *(*hold)(void *unused), void (*look)(void))
{
    pthread_t holder;
    int status;
    child_check(sem_init(&held, 0, 0) == 0 && sem_init(&forked, 0, 0) == 0);
    child_check(pthread_create(&holder, NULL, hold, NULL) == 0);
    sem_wait(&held);
    const pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        alarm(test_timeout(FORK_PATIENCE_S));
        look();
        test_child_leave(0);
    }
    sem_post(&forked);
    pthread_join(holder, NULL);
    child_check(waitpid(child, &status, 0) == child);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void write_nothing(const char *text, size_t length, void *data)
{
    (void)text;
    (void)length;
    ++*(unsigned *)data;
}

static void expect_refusals(void)
{
    strata_capture_pool *found;
    strata_graph *made;
    strata_capture_state state;
    strata_capture_pool_usage usage;
    unsigned writes = 0;
    child_status(strata_capture_begin(runtime, stream, STRATA_CAPTURE_GLOBAL, pool), STRATA_ERROR_FORKED);
    child_status(strata_capture_status(runtime, stream, &state), STRATA_ERROR_FORKED);
    child_status(strata_capture_set_name(runtime, stream, "child"), STRATA_ERROR_FORKED);
    child_status(strata_capture_end(runtime, stream, &made), STRATA_ERROR_FORKED);
    child_status(strata_capture_discard(runtime, stream), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_create(runtime, "child", &found), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_seal(pool), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_unseal(pool), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_get_usage(pool, &usage), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_clear_buffers(pool), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_for_handle(runtime, strata_graph_pool_handle(pool), &found), STRATA_ERROR_FORKED);
    child_status(strata_release_graph_pool_handle(runtime, strata_graph_pool_handle(pool)), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_deactivate(pool), STRATA_ERROR_FORKED);
    child_status(strata_capture_pool_release(pool), STRATA_ERROR_FORKED);
    child_status(strata_graph_launch(graph, stream), STRATA_ERROR_FORKED);
    child_status(strata_graph_upload(graph, stream), STRATA_ERROR_FORKED);
    child_status(strata_graph_refuse_frees(graph, true), STRATA_ERROR_FORKED);
    child_status(strata_graph_dot(graph, "/dev/null"), STRATA_ERROR_FORKED);
    child_status(strata_graph_destroy(graph), STRATA_ERROR_FORKED);
    child_check(!strata_capture_pool_is_sealed(pool) && !strata_capture_pool_buffer_count(pool));
    child_check(!strata_graph_has_pool(graph) && !strata_graph_has_private_pool(graph));
    child_check(!strata_graph_pool_buffer_count(graph) && strata_graph_num_replays(graph) == 0);
    strata_graph_print(graph, write_nothing, &writes);
    child_check(writes == 0);
}

static void never_told(const strata_pool_range *range, void *data)
{
    (void)range, (void)data;
    child_check(false);
}

/* What takes a lock of the pool or of the process. */
static void expect_other_refusals(void)
{
    static const strata_library_kind kind = {.size = sizeof kind, .name = "of-a-child"};
    static const strata_layer layer = {.size = sizeof layer, .name = "of-a-child"};
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    child_status(strata_pool_visit_ranges(top, never_told, NULL), STRATA_ERROR_FORKED);
    child_status(strata_library_register(&kind), STRATA_ERROR_FORKED);
    child_status(strata_layer_register(&layer), STRATA_ERROR_FORKED);
}

static void look_beside_captures(void)
{
    expect_refusals();
    expect_other_refusals();
}

static void make_graph(void)
{
    strata_block block;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_ok(strata_capture_pool_create(runtime, "parent", &pool));
    child_ok(strata_capture_begin(runtime, stream, STRATA_CAPTURE_GLOBAL, pool));
    child_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_capture_end(runtime, stream, &graph));
}

static void child_forked_beside_captures_is_refused(void)
{
    test_open_driver_quietly();
    test_make_current();
    make_graph();
    fork_beside(hold_captures, look_beside_captures);
    child_ok(strata_graph_launch(graph, stream)); /* the parent goes on */
    child_ok(strata_graph_destroy(graph));
    child_ok(strata_capture_pool_release(pool));
    child_ok(strata_runtime_stream_release(runtime, stream));
}

/* ---- functions in captures ---- */

static strata_status wait_for_fork(strata_runtime *with, CUstream on, void *data)
{
    (void)with, (void)on, (void)data;
    sem_post(&held);
    sem_wait(&forked);
    return STRATA_SUCCESS;
}

static strata_status submit_nothing(strata_runtime *with, CUstream on, void *data)
{
    (void)with, (void)on, (void)data;
    return STRATA_SUCCESS;
}

static strata_status fail_if_called(strata_runtime *with, CUstream on, void *data)
{
    (void)with, (void)on, (void)data;
    child_check(false);
    return STRATA_SUCCESS;
}

static void *hold_global_mode(void *unused)
{
    strata_graph *made;
    test_make_current();
    child_ok(
        strata_capture_into(runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, wait_for_fork, submit_nothing, NULL, &made));
    child_ok(strata_graph_destroy(made));
    return unused;
}

static void expect_no_call(void)
{
    strata_graph *made;
    child_status(
        strata_capture_into(runtime, stream, STRATA_CAPTURE_GLOBAL, NULL, fail_if_called, fail_if_called, NULL, &made),
        STRATA_ERROR_FORKED);
    child_status(
        strata_capture_into(runtime, stream, STRATA_CAPTURE_RELAXED, NULL, fail_if_called, fail_if_called, NULL, &made),
        STRATA_ERROR_FORKED);
}

static void child_forked_beside_a_function_calls_none(void)
{
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    fork_beside(hold_global_mode, expect_no_call);
    child_ok(strata_runtime_stream_release(runtime, stream));
}

/* ---- references and launches ---- */

static strata_launch launch;
static strata_last_write last_write;

static void *hold_timeline(void *unused)
{
    strata_timeline *timeline = strata_timeline_of(last_write.point);
    strata_lock_take(&runtime->open_uses.lock);
    strata_spin_take(&timeline->lock);
    sem_post(&held);
    sem_wait(&forked);
    strata_spin_release(&timeline->lock);
    strata_lock_release(&runtime->open_uses.lock);
    return unused;
}

static void let_go(void)
{
    strata_last_write_release(&last_write);
    child_check(last_write.kind == STRATA_LAST_WRITE_NONE);
    child_status(strata_launch_end(&launch), STRATA_ERROR_FORKED);
}

/* A held stream, and a release that waits for a prepared use. */
static void child_forked_beside_uses_lets_go(void)
{
    strata_block open, prepared;
    strata_ref *written, *released;
    strata_ref_memory memory;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &written));
    child_ok(strata_ref_record_write(written, stream));
    child_ok(strata_ref_last_write_stream(written, &last_write));
    child_check(last_write.kind == STRATA_LAST_WRITE_STREAM);
    child_ok(strata_runtime_allocate(runtime, BYTES, stream, &open));
    child_ok(strata_runtime_use_until_free(runtime, &open, stream));
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &released));
    child_ok(strata_ref_access(released, &memory));
    prepared = *memory.block;
    child_ok(strata_runtime_prepare_block_use(runtime, &prepared, stream, STRATA_ACCESS_READ));
    child_ok(strata_ref_release(released));
    child_ok(strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT));
    fork_beside(hold_timeline, let_go);
    child_ok(strata_launch_end(&launch)); /* the parent goes on */
    child_ok(strata_runtime_finish_block_use(runtime, &prepared, stream, STRATA_ACCESS_READ));
    strata_last_write_release(&last_write);
    child_ok(strata_runtime_deallocate(runtime, &open));
    child_ok(strata_ref_release(written));
    child_ok(strata_runtime_reap_pending(runtime));
    child_ok(strata_runtime_stream_release(runtime, stream));
}

/* ---- scopes of statistics ---- */

static strata_statistics_scope *scope;

static void *hold_scopes(void *unused)
{
    strata_statistics *layer = (strata_statistics *)strata_stack_layer(strata_runtime_stack(runtime), "statistics", 0);
    strata_lock_take(&layer->scopes_lock);
    sem_post(&held);
    sem_wait(&forked);
    strata_lock_release(&layer->scopes_lock);
    return unused;
}

static void close_none(void)
{
    strata_statistics_counters counters = {.requested = 1};
    child_status(strata_statistics_scope_close(scope, &counters), STRATA_ERROR_FORKED);
    child_check(counters.requested == 0);
}

static void child_forked_beside_scopes_closes_none(void)
{
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "statistics, null"}, &runtime));
    strata_resource *layer = strata_stack_layer(strata_runtime_stack(runtime), "statistics", 0);
    child_ok(strata_statistics_scope_open(layer, NULL, NULL, &scope));
    fork_beside(hold_scopes, close_none);
    child_ok(strata_statistics_scope_close(scope, NULL));
    child_ok(strata_runtime_destroy(runtime));
}

/* ---- running ---- */

static void a_child_forked_beside_captures_is_refused_and_does_not_hang(void **state)
{
    (void)state;
    test_child_run("child_forked_beside_captures_is_refused", NULL);
}

static void a_child_forked_beside_uses_lets_go_and_does_not_hang(void **state)
{
    (void)state;
    test_child_run("child_forked_beside_uses_lets_go", NULL);
}

static void a_child_forked_beside_a_function_calls_none_and_does_not_hang(void **state)
{
    (void)state;
    test_child_run("child_forked_beside_a_function_calls_none", NULL);
}

static void a_child_forked_beside_scopes_closes_none_and_does_not_hang(void **state)
{
    (void)state;
    test_child_run("child_forked_beside_scopes_closes_none", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(child_forked_beside_captures_is_refused),
                                              TEST_SCENARIO(child_forked_beside_uses_lets_go),
                                              TEST_SCENARIO(child_forked_beside_a_function_calls_none),
                                              TEST_SCENARIO(child_forked_beside_scopes_closes_none)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_forked_beside_captures_is_refused_and_does_not_hang),
                                       cmocka_unit_test(a_child_forked_beside_uses_lets_go_and_does_not_hang),
                                       cmocka_unit_test(a_child_forked_beside_a_function_calls_none_and_does_not_hang),
                                       cmocka_unit_test(a_child_forked_beside_scopes_closes_none_and_does_not_hang)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
