/* The library's own host memory: zeroed and aligned also when reused, counted, returned with the threads that cache
 * some, and usable in forked children and in the last handlers of threads and processes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/host_memory.h"
#include "core/base/thread.h"
#include "support/child.h"
#include "support/effort.h"

enum { PIECES = 1000, WORKERS = 4, PLACES = 64, FORKS = 40, FORK_PATIENCE_S = 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, TURNS = 1000, SHORT_LIVES = 20, OFTEN = 1 };
#else
enum { SANITIZED = 0, TURNS = 30000, SHORT_LIVES = 400, OFTEN = 40 };
#endif

static bool is_zero(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i])
            return false;
    return true;
}

/* ---- one piece ---- */

static void memory_is_zero_and_aligned_whoever_had_it_before(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 8, 15, 16, 17, 100, 1087, 4096, 14337, 50000, 400000, 3 << 20};
    for (size_t turn = 0; turn < test_effort(OFTEN, 1); turn++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t alignment = 16; alignment <= 8192; alignment *= 2) {
                unsigned char *memory =
                    alignment == 16 ? strata_host_zalloc(sizes[i]) : strata_host_zalloc_aligned(alignment, sizes[i]);
                assert_non_null(memory);
                assert_true((uintptr_t)memory % alignment == 0);
                if (sizes[i] <= 4096 || alignment == 64)
                    assert_true(is_zero(memory, sizes[i]));
                memset(memory, 0xa5, sizes[i] <= 4096 || alignment == 64 ? sizes[i] : 64);
                strata_host_free(memory);
            }
        }
    }
    strata_host_free(NULL);
}

static void what_cannot_fit_is_refused(void **state)
{
    (void)state;
    if (SANITIZED || test_under_valgrind())
        skip(); /* they stop a program that asks for so much */
    volatile size_t much = SIZE_MAX / 2 + 1;
    assert_null(strata_host_zalloc(much));
    assert_null(strata_host_zalloc_aligned(64, much));
    assert_null(strata_host_zalloc_aligned(64, much - 1 + much));
}

static void bytes_are_counted_until_they_are_given_back(void **state)
{
    (void)state;
    static void *pieces[PIECES];
    static const size_t sizes[] = {24, 100, 1000, 20000, 400000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t count = sizes[i] > 10000 ? 10 : PIECES;
        uint64_t before = strata_host_bytes();
        for (size_t k = 0; k < count; k++)
            pieces[k] = strata_host_zalloc(sizes[i]);
        uint64_t grown = strata_host_bytes() - before;
        assert_true(grown >= count * sizes[i] && grown <= count * (sizes[i] + sizes[i] / 4 + 16));
        for (size_t k = 0; k < count / 2; k++)
            strata_host_free(pieces[k]);
        grown = strata_host_bytes() - before;
        assert_true(grown >= count / 2 * sizes[i] && grown <= count / 2 * (sizes[i] + sizes[i] / 4 + 16));
        for (size_t k = count / 2; k < count; k++)
            strata_host_free(pieces[k]);
        assert_true(strata_host_bytes() == before);
    }
}

/* ---- threads ---- */

/* A piece says how long it is, and is filled with its length's lowest byte. */
static void *make_piece(size_t bytes)
{
    unsigned char *piece = strata_host_zalloc(bytes);
    child_check(piece && is_zero(piece, bytes));
    memset(piece, (int)(bytes & 0xff), bytes);
    memcpy(piece, &bytes, sizeof bytes);
    return piece;
}

static void end_piece(void *memory)
{
    const unsigned char *piece = memory;
    size_t bytes;
    if (!piece)
        return;
    memcpy(&bytes, piece, sizeof bytes);
    for (size_t i = sizeof bytes; i < bytes; i++)
        child_check(piece[i] == (bytes & 0xff));
    strata_host_free(memory);
}

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static void *places[PLACES]; /* guarded by places_lock */
static _Atomic bool enough;

static void *put_piece(size_t place, void *piece)
{
    pthread_mutex_lock(&places_lock);
    void *was = places[place];
    places[place] = piece;
    pthread_mutex_unlock(&places_lock);
    return was;
}

/* Puts a piece where another may lie, which some other thread made, and ends that one. */
static void *exchange_pieces(void *seed)
{
    uint64_t random = (uintptr_t)seed;
    child_check(strata_thread_self() != NULL);
    for (size_t i = 0; i < test_effort(TURNS, 300) && !enough; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = 8 + (random >> 40) % (i % 64 ? 1087 : 40000);
        end_piece(put_piece((random >> 33) % PLACES, make_piece(bytes)));
    }
    return NULL;
}

static void start_workers(pthread_t *workers)
{
    for (uintptr_t i = 0; i < WORKERS; i++)
        child_check(pthread_create(&workers[i], NULL, exchange_pieces, (void *)(i + 1)) == 0);
}

static void join_workers(const pthread_t *workers)
{
    for (size_t i = 0; i < WORKERS; i++)
        child_check(pthread_join(workers[i], NULL) == 0);
    for (size_t i = 0; i < PLACES; i++)
        end_piece(put_piece(i, NULL));
}

static void pieces_go_from_thread_to_thread(void **state)
{
    (void)state;
    pthread_t workers[WORKERS];
    assert_non_null(strata_thread_self());
    uint64_t before = strata_host_bytes();
    start_workers(workers);
    join_workers(workers);
    assert_true(strata_host_bytes() == before);
}

static void *live_shortly(void *data)
{
    void *pieces[200];
    child_check(strata_thread_self() != NULL);
    for (size_t bytes = 64; bytes <= 1024; bytes *= 2) {
        for (size_t i = 0; i < 200; i++)
            pieces[i] = strata_host_zalloc(bytes);
        for (size_t i = 0; i < 200; i++)
            strata_host_free(pieces[i]);
    }
    return data;
}

static void live_one_after_another(size_t count)
{
    pthread_t thread;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&thread, NULL, live_shortly, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void a_thread_that_ends_gives_back_what_it_kept(void **state)
{
    (void)state;
    uint64_t resident, after = 0;
    live_one_after_another(2);
    uint64_t before = strata_host_bytes();
    bool known = strata_host_resident(&resident);
    live_one_after_another(test_effort(SHORT_LIVES, 5));
    assert_true(strata_host_bytes() == before);
    if (!known)
        return;
    assert_true(resident > before && strata_host_resident(&after));
    assert_true(after < resident + (256 << 10));
}

/* ---- ends and forks, in processes of their own ---- */

static pthread_key_t late_key;

/* Asks for memory in every round of a thread's handlers, before, after and between the library's and the allocator's.
 */
static void work_late(void *rounds)
{
    void *pieces[32];
    for (size_t i = 0; i < 32; i++)
        pieces[i] = make_piece(100 + i);
    for (size_t i = 0; i < 32; i++)
        end_piece(pieces[i]);
    if ((uintptr_t)rounds > 1)
        pthread_setspecific(late_key, (void *)((uintptr_t)rounds - 1));
}

static void *end_with_late_work(void *data)
{
    void *piece = make_piece(500);
    pthread_setspecific(late_key, (void *)(uintptr_t)3);
    live_shortly(NULL);
    end_piece(piece);
    return data;
}

static void work_at_exit(void)
{
    pthread_t thread;
    child_check(pthread_create(&thread, NULL, end_with_late_work, NULL) == 0);
    child_check(pthread_join(thread, NULL) == 0);
    work_late(NULL);
}

static void handlers_of_threads_and_exits(void)
{
    pthread_t thread;
    child_check(atexit(work_at_exit) == 0);
    child_check(pthread_key_create(&late_key, work_late) == 0);
    uint64_t before = 0;
    for (int i = 0; i < 20; i++) {
        child_check(pthread_create(&thread, NULL, end_with_late_work, NULL) == 0);
        child_check(pthread_join(thread, NULL) == 0);
        child_check(i == 0 || strata_host_bytes() == before);
        before = strata_host_bytes();
    }
    work_at_exit();
}

static void work_in_fork(void)
{
    alarm(test_timeout(FORK_PATIENCE_S));
    work_late(NULL);
    live_shortly(NULL);
    child_check(strata_host_bytes() > 0);
    test_child_leave(0);
}

static void forks_beside_busy_threads(void)
{
    pthread_t workers[WORKERS];
    child_check(strata_thread_self() != NULL);
    start_workers(workers);
    for (size_t i = 0; i < test_effort(FORKS, 3); i++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        child_check(child >= 0);
        if (child == 0)
            work_in_fork();
        child_check(waitpid(child, &status, 0) == child);
        child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        work_late(NULL);
    }
    enough = true;
    join_workers(workers);
}

static void the_first_call_of_all(void)
{
    pthread_t workers[WORKERS];
    start_workers(workers);
    join_workers(workers);
}

static void memory_of_the_c_library(void)
{
    uint64_t bytes;
    child_check(strcmp(strata_host_allocator_name(), "libc") == 0);
    child_check(strata_host_allocator_reason() != NULL);
    child_check(!strata_host_resident(&bytes) && bytes == 0);
    memory_is_zero_and_aligned_whoever_had_it_before(NULL);
    bytes_are_counted_until_they_are_given_back(NULL);
    the_first_call_of_all();
}

static void handlers_of_threads_and_exits_have_memory(void **state)
{
    (void)state;
    test_child_run("handlers_of_threads_and_exits", NULL);
}

static void a_child_forked_while_threads_take_memory_has_some_too(void **state)
{
    (void)state;
    if (SANITIZED || test_under_valgrind())
        skip(); /* the one leaves its allocator locked, the other reports as lost what the child has of its parent's
                   threads */
    test_child_run("forks_beside_busy_threads", NULL);
}

static void the_first_calls_may_come_from_several_threads_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        test_child_run("the_first_call_of_all", NULL);
}

static void the_environment_can_ask_for_the_c_librarys_heap(void **state)
{
    (void)state;
    static const char *const changes[] = {"STRATA_HOST_MEMORY=libc", NULL};
    test_child_run("memory_of_the_c_library", changes);
}

static void there_is_an_arena_or_a_reason(void **state)
{
    (void)state;
    uint64_t resident;
    const char *name = strata_host_allocator_name(), *reason = strata_host_allocator_reason();
    bool arena = strncmp(name, "jemalloc ", 9) == 0;
    assert_true(arena ? !reason : strcmp(name, "libc") == 0 && reason && *reason);
    assert_true(strata_host_resident(&resident) == arena && (resident > 0) == arena);
    if (test_under_valgrind())
        assert_false(arena);
#ifdef STRATA_TEST_ARENA
    else
        assert_true(arena);
#else
    assert_false(arena);
#endif
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(handlers_of_threads_and_exits),
        TEST_SCENARIO(forks_beside_busy_threads),
        TEST_SCENARIO(the_first_call_of_all),
        TEST_SCENARIO(memory_of_the_c_library),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_an_arena_or_a_reason),
        cmocka_unit_test(memory_is_zero_and_aligned_whoever_had_it_before),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(bytes_are_counted_until_they_are_given_back),
        cmocka_unit_test(pieces_go_from_thread_to_thread),
        cmocka_unit_test(a_thread_that_ends_gives_back_what_it_kept),
        cmocka_unit_test(handlers_of_threads_and_exits_have_memory),
        cmocka_unit_test(a_child_forked_while_threads_take_memory_has_some_too),
        cmocka_unit_test(the_first_calls_may_come_from_several_threads_at_once),
        cmocka_unit_test(the_environment_can_ask_for_the_c_librarys_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
