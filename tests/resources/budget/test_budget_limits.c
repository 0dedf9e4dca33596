/* A shared limit that moves while processes take, give and die: no grant exceeds the limit in force.
 *
 * Each worker publishes what it was granted in a ledger: after a grant, and before it gives bytes back. So the ledger's
 * sum is never above the bytes in use. The parent moves the limit and kills workers, with `version` odd meanwhile. A
 * worker whose request was granted while the version did not change compares a snapshot of the ledger with the limit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/budget_puppets.h"

enum { WORKERS = 16, LARGEST = 1 << 17 }; /* requests, at most an eighth of LIMIT */

typedef struct ledger {
    _Atomic uint64_t version, limit; /* written by the parent */
    _Atomic uint64_t checked, stop;  /* checked: grants that were compared */
    _Atomic uint64_t
        worker[WORKERS]; /* changes << 32 | bytes; written by the worker, and by the parent once it is dead */
} ledger;

static ledger *book;

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static void publish(size_t at, uint64_t bytes)
{
    uint64_t before = atomic_load(&book->worker[at]);
    atomic_store(&book->worker[at], ((before >> 32) + 1) << 32 | bytes);
}

/* False: a worker changed its part meanwhile. */
static bool snapshot(uint64_t *sum)
{
    uint64_t seen[WORKERS];
    *sum = 0;
    for (size_t i = 0; i < WORKERS; i++)
        *sum += (seen[i] = atomic_load(&book->worker[i])) & UINT32_MAX;
    for (size_t i = 0; i < WORKERS; i++)
        if (seen[i] != atomic_load(&book->worker[i]))
            return false;
    return true;
}

/* False: a grant exceeds the limit. */
static bool check_grant(uint64_t version, uint64_t limit)
{
    uint64_t sum;
    for (int more = 0; more < 20; more++) {
        if (!snapshot(&sum))
            continue;
        if (atomic_load(&book->version) != version)
            return true;
        atomic_fetch_add(&book->checked, 1);
        return sum <= limit;
    }
    return true;
}

/* Bytes that a worker freed and does not use any more. Once their word is written, any worker may be granted them. */
typedef struct retired {
    uint64_t ticket, bytes;
} retired;

static void retire(budget_shared *shared, size_t at, uint64_t *held, retired *out)
{
    _Atomic uint64_t ticket = UINT64_MAX;
    const shared_free freed = {.stream = 1, .bytes = *held, .ticket = &ticket, .waiting = UINT64_MAX};
    *held = 0;
    publish(at, 0);
    uint64_t pending = shared_retire(shared, &freed);
    *out = (retired){ticket == UINT64_MAX ? 0 : ticket, freed.bytes};
    if (pending)
        atomic_store(
            &shared->file->retired[shared_slot_of(shared) - shared->file->slots].records[pending % SHARED_RETIRED].word,
            pending);
}

static void complete(budget_shared *shared, retired *of)
{
    if (of->ticket)
        shared_retire_completed(shared, of->ticket);
    shared_give(shared, of->bytes);
    *of = (retired){0};
}

static _Noreturn void work(size_t at, uint64_t seed)
{
    retired freed = {0};
    budget_shared *shared;
    uint64_t held = 0;
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    if (shared_open(&terms, &shared) != STRATA_SUCCESS)
        test_child_leave(2);
    while (!atomic_load(&book->stop)) {
        if (freed.bytes && random_next(&seed) % 4 == 0)
            complete(shared, &freed);
        uint64_t version = atomic_load(&book->version), limit = atomic_load(&book->limit);
        uint64_t bytes = random_next(&seed) % LARGEST + 1;
        bool taken = shared_take(shared, bytes) || (shared_make_room(shared, bytes, 0) && shared_take(shared, bytes));
        if (taken) {
            held += bytes;
            publish(at, held);
            if (version % 2 == 0 && !check_grant(version, limit))
                test_child_leave(1);
        }
        if (held && (!taken || random_next(&seed) % 3 == 0)) {
            if (!freed.bytes && random_next(&seed) % 2) {
                retire(shared, at, &held, &freed);
                continue;
            }
            uint64_t given = random_next(&seed) % 2 ? held : held / 2 + 1;
            held -= given;
            publish(at, held);
            shared_give(shared, given);
        }
    }
    publish(at, 0);
    shared_give(shared, held);
    complete(shared, &freed);
    test_child_leave(0);
}

static pid_t start_worker(size_t at, uint64_t seed)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        work(at, seed);
    assert_true(pid > 0);
    return pid;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void move_limit(puppet *setter, uint64_t limit)
{
    atomic_fetch_add(&book->version, 1);
    assert_int_equal(ask(setter, ORDER_SET_LIMIT, limit).status, STRATA_SUCCESS);
    atomic_store(&book->limit, limit);
    atomic_fetch_add(&book->version, 1);
}

static void kill_worker(pid_t *worker, size_t at, uint64_t seed)
{
    int status;
    atomic_fetch_add(&book->version, 1);
    kill(*worker, SIGKILL);
    assert_int_equal(waitpid(*worker, &status, 0), *worker);
    assert_true(WIFSIGNALED(status)); /* else it left by itself, because a check failed */
    publish(at, 0);
    atomic_fetch_add(&book->version, 1);
    *worker = start_worker(at, seed);
}

static void no_grant_exceeds_a_limit_that_moves_while_processes_die(void **state)
{
    pid_t workers[WORKERS];
    uint64_t seed = 7, kills = 0, moves = 0;
    (void)state;
    const double seconds = getenv("STRATA_TEST_FULL") ? 60 : test_under_valgrind() ? 8 : 2;
    book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(book != MAP_FAILED);
    atomic_store(&book->limit, LIMIT);
    for (size_t i = 0; i < WORKERS; i++)
        workers[i] = start_worker(i, i + 1);
    puppet *setter = make_open(LIMIT);
    /* At least some of each, on a machine that is too slow for the time. */
    for (double end = seconds_now() + seconds; seconds_now() < end || moves < 20 || atomic_load(&book->checked) < 100;
         moves++) {
        move_limit(setter, random_next(&seed) % 4 == 0 ? 1 + random_next(&seed) % LARGEST
                                                       : LIMIT / 8 + random_next(&seed) % LIMIT);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (moves % 4)
            continue;
        size_t at = random_next(&seed) % WORKERS;
        kill_worker(&workers[at], at, 100 + moves);
        kills++;
    }
    atomic_store(&book->stop, 1);
    for (size_t i = 0; i < WORKERS; i++) {
        int status;
        assert_int_equal(waitpid(workers[i], &status, 0), workers[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    print_message("%llu limits, %llu kills, %llu grants compared\n", (unsigned long long)moves,
                  (unsigned long long)kills, (unsigned long long)atomic_load(&book->checked));
    move_limit(setter, LIMIT);
    assert_true(takes(setter, LIMIT)); /* nothing is lost */
    assert_int_equal(ask(setter, ORDER_IN_USE, 0).bytes, LIMIT);
    munmap(book, sizeof *book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_grant_exceeds_a_limit_that_moves_while_processes_die, clear_away),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
