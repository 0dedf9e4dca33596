/* Retired bytes of a process that sleeps: others take them once its stream has completed the frees, and no byte is
 * counted less than once or given twice. The streams' writes are made by hand here; test_budget_idle.c has real ones.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/budget_puppets.h"

static uint64_t retire(const puppet *self, uint64_t bytes)
{
    answer reply = ask(self, ORDER_RETIRE, bytes);
    assert_true(reply.done && reply.bytes);
    return reply.bytes;
}

static uint64_t in_use(const puppet *self)
{
    return ask(self, ORDER_IN_USE, 0).bytes;
}

static void complete(const puppet *self, uint64_t ticket, uint64_t bytes)
{
    ask(self, ORDER_COMPLETE, ticket);
    gives(self, bytes);
}

static void retired_bytes_count_until_the_stream_has_passed_them(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t ticket = retire(idle, LIMIT / 2);
    assert_false(takes(other, 1));
    ask(idle, ORDER_WRITE, ticket);
    assert_true(takes(other, LIMIT / 2));
    assert_false(takes(other, 1));
    assert_int_equal(in_use(other), LIMIT);
}

/* As the budget's layer would. */
static void count_without_tag(uint64_t bytes)
{
    char path[256];
    file_path(path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    shared_file *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    atomic_store(&map->slots[0].tags[0].in_use, bytes);
    munmap(map, sizeof *map);
    close(file);
}

static void add_process(const strata_shared_budget *budget, void *data)
{
    strata_shared_process *all = data;
    for (size_t i = 0; i < budget->process_count; i++)
        all[i] = budget->processes[i];
}

/* The tags of the process that freed them still have them. */
static void a_visit_tells_claimed_bytes_from_those_in_use(void **state)
{
    (void)state;
    strata_shared_process all[4];
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    count_without_tag(LIMIT);
    uint64_t ticket = retire(idle, LIMIT / 2);
    check_ok(strata_shared_budget_visit(add_process, all));
    assert_int_equal(all[0].freed, 0);
    ask(idle, ORDER_WRITE, ticket);
    assert_true(takes(other, LIMIT / 2));
    check_ok(strata_shared_budget_visit(add_process, all));
    assert_int_equal(all[0].in_use, LIMIT / 2);
    assert_int_equal(all[0].freed, LIMIT / 2);
    assert_int_equal(all[1].freed, 0);
    complete(idle, ticket, LIMIT / 2);
    count_without_tag(LIMIT / 2);
    check_ok(strata_shared_budget_visit(add_process, all));
    assert_int_equal(all[0].freed, 0);
}

static void claimed_bytes_are_not_used_again_by_their_process(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t ticket = retire(idle, LIMIT / 2);
    ask(idle, ORDER_WRITE, ticket);
    assert_true(takes(other, LIMIT / 4));
    complete(idle, ticket, LIMIT / 2); /* its own poll, later */
    assert_int_equal(in_use(idle), 3 * (LIMIT / 4));
    assert_true(takes(idle, LIMIT / 4));
    assert_false(takes(idle, 1));
    assert_false(takes(other, 1));
    gives(idle, 3 * (LIMIT / 4));
    gives(other, LIMIT / 4);
    assert_int_equal(in_use(other), 0);
    assert_true(takes(other, LIMIT));
    gives(other, LIMIT);
    assert_true(takes(idle, LIMIT));
}

static void what_the_process_completes_itself_cannot_be_claimed(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t ticket = retire(idle, LIMIT / 2);
    complete(idle, ticket, LIMIT / 2);
    assert_true(takes(idle, LIMIT / 2)); /* the same bytes */
    ask(idle, ORDER_WRITE, ticket);      /* the stream is late */
    assert_false(takes(other, 1));
}

static void a_record_holds_for_one_free_only(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t first = retire(idle, LIMIT / 4);
    complete(idle, first, LIMIT / 4);
    assert_true(takes(idle, LIMIT / 4));
    uint64_t second = retire(idle, LIMIT / 4);
    assert_int_not_equal(first, second);
    assert_int_equal(first % SHARED_RETIRED, second % SHARED_RETIRED); /* the record of the first one */
    ask(idle, ORDER_WRITE, first);
    assert_false(takes(other, 1));
    ask(idle, ORDER_WRITE, second);
    assert_true(takes(other, LIMIT / 4));
}

static void small_frees_share_a_record(void **state)
{
    (void)state;
    enum { SMALL = 100 };
    uint64_t freed = 0;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    for (answer reply = {0}; !reply.done;) {
        assert_true(freed < LIMIT);
        reply = ask(idle, ORDER_RETIRE, SMALL);
        freed += SMALL;
        if (reply.done)
            ask(idle, ORDER_WRITE, reply.bytes);
    }
    assert_true(freed >= LIMIT / 512 && freed < LIMIT / 512 + 2 * SMALL);
    assert_true(takes(other, freed));
    assert_false(takes(other, 1));
}

/* Also by the second stack of one process. */
static void a_process_claims_its_own_bytes(void **state)
{
    (void)state;
    puppet *self = make_open(LIMIT);
    assert_true(takes(self, LIMIT));
    uint64_t ticket = retire(self, LIMIT);
    assert_false(takes(self, 1));
    ask(self, ORDER_WRITE, ticket);
    assert_true(takes(self, LIMIT));
    assert_false(takes(self, 1));
    complete(self, ticket, LIMIT);
    assert_false(takes(self, 1));
    assert_int_equal(in_use(self), LIMIT);
    gives(self, LIMIT);
    assert_true(takes(self, LIMIT));
}

static void claims_hold_while_the_limit_moves(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t ticket = retire(idle, LIMIT / 2);
    ask(idle, ORDER_WRITE, ticket);
    assert_true(takes(other, LIMIT / 4));
    assert_int_equal(ask(other, ORDER_SET_LIMIT, LIMIT / 2).status, STRATA_SUCCESS);
    assert_false(takes(other, 1));
    assert_false(takes(idle, 1));
    complete(idle, ticket, LIMIT / 2);
    assert_false(takes(other, 1));
    gives(idle, LIMIT / 2 - 100);
    assert_true(takes(other, LIMIT / 4 - 100));
    assert_false(takes(other, 1));
    assert_false(takes(idle, 1));
    assert_int_equal(ask(other, ORDER_SET_LIMIT, LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(idle, LIMIT / 2));
    assert_false(takes(other, 1));
}

static void a_killed_process_takes_its_records_along(void **state)
{
    (void)state;
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    uint64_t ticket = retire(idle, LIMIT / 2);
    ask(idle, ORDER_WRITE, ticket);
    assert_true(takes(other, LIMIT / 2));
    end_puppet(idle, SIGKILL);
    assert_true(takes(other, LIMIT / 2));
    gives(other, LIMIT);
    puppet *next = make_open(LIMIT); /* in the same slot */
    assert_true(takes(next, LIMIT));
    assert_false(takes(other, 1));
}

static void without_a_free_record_the_process_completes_its_frees_itself(void **state)
{
    (void)state;
    enum { PART = 1 << 10 };
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(idle, LIMIT));
    ask(idle, ORDER_SET_LIMIT, LIMIT / 16); /* there are records for all of the limit */
    for (size_t i = 0; i < SHARED_RETIRED; i++)
        ask(idle, ORDER_WRITE, retire(idle, PART / 2));
    answer none = ask(idle, ORDER_RETIRE, PART / 2);
    assert_int_equal(none.bytes, 0);
    ask(idle, ORDER_SET_LIMIT, LIMIT);
    assert_true(takes(other, SHARED_RETIRED * (PART / 2)));
    assert_false(takes(other, 1));
    gives(idle, PART / 2);
    assert_true(takes(other, PART / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(retired_bytes_count_until_the_stream_has_passed_them, clear_away),
        cmocka_unit_test_teardown(a_visit_tells_claimed_bytes_from_those_in_use, clear_away),
        cmocka_unit_test_teardown(claimed_bytes_are_not_used_again_by_their_process, clear_away),
        cmocka_unit_test_teardown(what_the_process_completes_itself_cannot_be_claimed, clear_away),
        cmocka_unit_test_teardown(a_record_holds_for_one_free_only, clear_away),
        cmocka_unit_test_teardown(small_frees_share_a_record, clear_away),
        cmocka_unit_test_teardown(a_process_claims_its_own_bytes, clear_away),
        cmocka_unit_test_teardown(claims_hold_while_the_limit_moves, clear_away),
        cmocka_unit_test_teardown(a_killed_process_takes_its_records_along, clear_away),
        cmocka_unit_test_teardown(without_a_free_record_the_process_completes_its_frees_itself, clear_away),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
