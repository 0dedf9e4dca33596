/* Captures, their pools and graphs in a forked child, while another thread of the parent looks at the captures: its
 * lock stays taken in the child. Each case forks in a process of its own. */
#include "support/child.h"
#include "support/effort.h"

#include "runtime/captures.h"

#include <strata/graph.h>

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

static void *hold_lock(void *unused)
{
    strata_lock_take(&pool->launches);
    strata_captures_lock(&runtime->captures);
    sem_post(&held);
    sem_wait(&forked);
    strata_captures_unlock(&runtime->captures);
    strata_lock_release(&pool->launches);
    return unused;
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
    pthread_t holder;
    int status;
    test_open_driver_quietly();
    test_make_current();
    make_graph();
    child_check(sem_init(&held, 0, 0) == 0 && sem_init(&forked, 0, 0) == 0);
    child_check(pthread_create(&holder, NULL, hold_lock, NULL) == 0);
    sem_wait(&held);
    const pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        alarm(test_timeout(FORK_PATIENCE_S));
        expect_refusals();
        test_child_leave(0);
    }
    sem_post(&forked);
    pthread_join(holder, NULL);
    child_check(waitpid(child, &status, 0) == child);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child_ok(strata_graph_launch(graph, stream)); /* the parent goes on */
    child_ok(strata_graph_destroy(graph));
    child_ok(strata_capture_pool_release(pool));
    child_ok(strata_runtime_stream_release(runtime, stream));
}

static void a_child_forked_beside_captures_is_refused_and_does_not_hang(void **state)
{
    (void)state;
    test_child_run("child_forked_beside_captures_is_refused", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(child_forked_beside_captures_is_refused)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_forked_beside_captures_is_refused_and_does_not_hang)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
