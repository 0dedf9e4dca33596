/* The slots of a shared budget's file: their processes, bytes of dead processes, leases, and visits. Living processes
 * are in test_budget_shared.c. */
#define _GNU_SOURCE
#include "support/budget_files.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "support/rerun.h"

/* ---- slots ---- */

static budget_shared *opened_meanwhile;
static strata_status status_meanwhile;

static void open_meanwhile(void)
{
    status_meanwhile = try_open("a", NULL, &opened_meanwhile);
}

static void a_file_opened_for_a_visit_can_be_joined(void **state)
{
    (void)state;
    shared_close(open_budget("a"));
    seen all = {.meanwhile = open_meanwhile};
    check_ok(strata_shared_budget_visit(see, &all));
    assert_int_equal(all.processes, 0);
    check_ok(status_meanwhile);
    assert_true(is_locked(own_path("a"), 1)); /* after the visit */
    assert_true(take(opened_meanwhile, LIMIT));
    all = visit_all();
    assert_int_equal(all.alive, 1);
    assert_int_equal(all.in_use, LIMIT);
    shared_close(opened_meanwhile);
    assert_false(is_locked(own_path("a"), 1));
    assert_int_equal(visit_all().processes, 0);
}

static void a_file_whose_slots_are_all_taken_is_busy(void **state)
{
    (void)state;
    shared_file *file = edit_begin("a");
    file->used_slots = UINT32_MAX; /* slots beyond the last one are not read */
    for (size_t i = 0; i < SHARED_SLOTS; i++)
        file->slots[i].pid = 1;
    shared_identity self;
    shared_process_self(&self);
    file->slots[SHARED_SLOTS - 1].in_use = 5;
    file->slots[SHARED_SLOTS - 1].started = self.started + 1; /* another process had this number: gone when unlocked */
    file->slots[SHARED_SLOTS - 1].pid_namespace = self.pid_namespace;
    holder others = keep_locked(own_path("a"), 1, SHARED_SLOTS, 0);
    budget_shared *shared = NULL;
    check_status(try_open("a", NULL, &shared), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1024 processes already");
    assert_null(shared);
    seen all = {.meanwhile = open_meanwhile};
    check_ok(strata_shared_budget_visit(see, &all));
    assert_int_equal(all.processes, SHARED_SLOTS);
    assert_int_equal(all.alive, SHARED_SLOTS);
    assert_int_equal(all.in_use, 5);
    assert_int_equal(status_meanwhile, STRATA_ERROR_BUSY);
    assert_null(opened_meanwhile);
    holder_stop(others);
    shared = open_budget("a");
    assert_int_equal(shared_in_use(shared), 0);
    assert_true(take(shared, LIMIT));
    shared_close(shared);
    edit_end(file);
}

/* A process frees its slot a moment before the slot's lock. */
static void a_free_slot_whose_lock_is_held_is_passed_by(void **state)
{
    (void)state;
    shared_close(open_budget("a"));
    holder other = keep_locked(own_path("a"), 1, 1, 0);
    budget_shared *shared = open_budget("a");
    const shared_file *file = shared->file;
    assert_int_equal(file->slots[0].pid, 0);
    assert_int_equal(file->slots[1].pid, getpid());
    seen all = visit_all();
    assert_int_equal(all.processes, 1);
    assert_int_equal(all.alive, 1);
    holder_stop(other);
    shared_close(shared);
}

/* ---- whose bytes count ---- */

static uint64_t own_namespace(void)
{
    shared_identity me;
    shared_process_self(&me);
    return me.pid_namespace;
}

/* The process of the slot lived in another namespace. */
static void a_process_that_cannot_be_looked_up_counts_for_some_seconds(void **state)
{
    (void)state;
    shared_file *file = edit_begin("a");
    for (int over = 0; over < 2; over++) {
        shared_slot *slot = &file->slots[5];
        file->used_slots = 6;
        slot->pid = getpid();
        slot->pid_namespace = own_namespace() + 1;
        slot->started = 1;
        slot->lease = slot->in_use = (int64_t)LIMIT;
        slot->seen_dead = over ? shared_clock() - UINT64_C(6000000000) : 0;
        budget_shared *shared = open_budget("a");
        assert_int_equal(take(shared, LIMIT), over);
        assert_int_equal(slot->pid, over ? 0 : getpid());
        assert_true(over || slot->seen_dead != 0);
        shared_close(shared);
    }
    edit_end(file);
}

static void first_life(void)
{
    budget_shared *shared;
    child_ok(try_open("a", NULL, &shared));
    child_check(take(shared, LIMIT));
    test_rerun_program((char *const[]){"test", "--child", "second_life", NULL});
    child_check(false);
}

static void second_life(void)
{
    budget_shared *shared;
    child_ok(try_open("a", NULL, &shared));
    child_check(shared_in_use(shared) == 0);
    child_check(take(shared, LIMIT));
    shared_close(shared);
}

static void a_program_that_a_process_became_has_what_the_one_before_it_had(void **state)
{
    const char *const changes[] = {NULL};
    (void)state;
    test_child_run("first_life", changes);
}

typedef struct other_process {
    shared_identity identity;
    pid_t pid;
} other_process;

static other_process start_process(void (*live)(void))
{
    other_process self = {0};
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    self.pid = fork();
    assert_true(self.pid >= 0);
    if (self.pid == 0) {
        shared_process_self(&self.identity);
        if (write(ready[1], &self.identity, sizeof self.identity) != (ssize_t)sizeof self.identity)
            _exit(1);
        live();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &self.identity, sizeof self.identity), sizeof self.identity);
    close(ready[0]);
    return self;
}

static void live_on(void)
{
    rest(NULL);
}

static void leave_a_thread_behind(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, rest, NULL) == 0)
        pthread_exit(NULL);
}

static bool is_gone(const shared_identity *identity)
{
    return shared_process_is_gone(identity, shared_clock());
}

/* Waits until the process is a zombie, or its first thread is one. */
static void wait_for_zombie(pid_t pid)
{
    for (int tries = 0; tries < 5000; tries++) {
        char path[64], text[512] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        size_t length = fread(text, 1, sizeof text - 1, file);
        text[length] = '\0';
        fclose(file);
        const char *behind = strrchr(text, ')');
        if (behind && strncmp(behind, ") Z", 3) == 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("%d does not become a zombie", pid);
}

/* Whether a killed process is gone in the end. Its first thread may be a zombie a moment before its other threads,
 * which a sanitizer may have added, are gone. */
static bool ends(const shared_identity *identity)
{
    for (int tries = 0; tries < 5000 && !is_gone(identity); tries++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return is_gone(identity);
}

static void without_a_look_at_others(void)
{
    shared_identity me;
    struct rlimit before, none;
    shared_process_self(&me);
    child_check(me.pid == getpid() && me.started && me.pid_namespace);
    child_check(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    child_check(setrlimit(RLIMIT_NOFILE, &none) == 0);
    child_check(!is_gone(&me));
    child_check(shared_process_is_gone(&me, shared_clock() - UINT64_C(6000000000)));
    child_check(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void a_process_is_gone_when_only_its_status_is_left(void **state)
{
    (void)state;
    other_process other = start_process(live_on), halved;
    assert_int_equal(other.identity.pid, other.pid);
    assert_false(is_gone(&other.identity));
    shared_identity wrong = other.identity;
    wrong.started++; /* the pid belongs to another process */
    assert_true(is_gone(&wrong));
    wrong.started = 0; /* unknown: after some seconds */
    assert_false(is_gone(&wrong));
    assert_true(shared_process_is_gone(&wrong, shared_clock() - UINT64_C(6000000000)));
    kill(other.pid, SIGKILL);
    wait_for_zombie(other.pid);
    assert_true(ends(&other.identity));
    waitpid(other.pid, NULL, 0);
    assert_true(is_gone(&other.identity));
    halved = start_process(leave_a_thread_behind);
    wait_for_zombie(halved.pid);
    bool over = is_gone(&halved.identity);
    kill(halved.pid, SIGKILL);
    waitpid(halved.pid, NULL, 0);
    assert_false(over);
    assert_true(is_gone(&halved.identity));
    in_child(without_a_look_at_others);
}

/* ---- leases ---- */

static void leases_that_no_sound_file_has_grant_nothing(void **state)
{
    (void)state;
    shared_file *file = edit_begin("a");
    budget_shared *shared = open_budget("a");
    holder others = keep_locked(own_path("a"), 2, 2, 0);
    for (size_t i = 1; i <= 2; i++) {
        file->slots[i].pid = 1;
        file->slots[i].lease = file->slots[i].in_use = INT64_MAX - 10;
        file->used_slots = (uint32_t)i + 1;
        assert_false(take(shared, 100));
        assert_int_equal(file->slots[0].lease, 0);
    }
    holder_stop(others);
    shared_close(shared);
    edit_end(file);
}

static void more_than_there_are_numbers_is_refused(void **state)
{
    (void)state;
    budget_shared *shared = open_budget("a");
    check_ok(shared_set_limit(shared, 0));
    assert_true(take(shared, 100));
    assert_false(take(shared, UINT64_MAX));
    assert_false(take(shared, UINT64_MAX - 99));
    assert_int_equal(shared_in_use(shared), 100);
    shared_close(shared);
}

/* Retired memory that is larger than the request brings enough lease with it. */
static void room_is_made_for_what_does_not_come_back(void **state)
{
    (void)state;
    budget_shared *shared = open_budget("a");
    assert_true(take(shared, LIMIT));
    assert_true(shared_make_room(shared, 100, 1000));
    assert_true(shared_make_room(shared, 100, 100));
    assert_false(shared_make_room(shared, 101, 100));
    shared_take_for_reuse(shared, 100);
    assert_false(shared_is_covered(shared));
    shared_give(shared, 1000);
    assert_true(shared_is_covered(shared));
    shared_close(shared);
}

static struct {
    budget_shared *shared;
    _Atomic unsigned round; /* in which bytes are given back; UINT_MAX: no more */
    _Atomic unsigned begun, done;
} giver;

static const int64_t THOUSANDTH = 1 << 10; /* of the limit, nearly */

/* Gives bytes back once in each round, at another moment each time. */
static void *give_in_each_round(void *data)
{
    unsigned last = 0, now;
    (void)data;
    for (;;) {
        for (unsigned spins = 0; (now = atomic_load(&giver.round)) == last;)
            strata_backoff(&spins);
        if (now == UINT_MAX)
            return NULL;
        atomic_store(&giver.begun, now);
        for (unsigned spins = 0; atomic_load(&shared_slot_of(giver.shared)->frozen);) /* the growth begins */
            strata_backoff(&spins);
        for (volatile unsigned i = 0; i < now % 1000; i++)
            continue;
        shared_give(giver.shared, 300 * (uint64_t)THOUSANDTH);
        atomic_store(&giver.done, now);
        last = now;
    }
}

/* The limit was lowered below what two processes have. A request fits only with what another thread gives back. */
static void a_closed_lease_that_grows_while_another_thread_gives_back_stays_within_the_limit(void **state)
{
    (void)state;
    pthread_t thread;
    shared_file *file = edit_begin("a");
    giver.shared = open_budget("a");
    holder other = keep_locked(own_path("a"), 2, 1, 0);
    shared_slot *own = &file->slots[0];
    file->slots[1].pid = 1;
    file->slots[1].in_use = 400 * THOUSANDTH;
    file->slots[1].lease = SHARED_CLOSED;
    file->used_slots = 2;
    assert_int_equal(pthread_create(&thread, NULL, give_in_each_round, NULL), 0);
    unsigned above = 0, grown = 0;
    const unsigned rounds = (unsigned)test_effort(20000, 500);
    for (unsigned round = 1; round <= rounds; round++) {
        own->frozen = 1;
        own->lease = SHARED_CLOSED;
        own->in_use = 700 * THOUSANDTH;
        atomic_store(&giver.round, round);
        for (unsigned spins = 0; atomic_load(&giver.begun) != round;)
            strata_backoff(&spins);
        grown += shared_make_room(giver.shared, 100 * (uint64_t)THOUSANDTH, 0);
        for (unsigned spins = 0; atomic_load(&giver.done) != round;)
            strata_backoff(&spins);
        above += own->lease != SHARED_CLOSED && own->lease > (int64_t)LIMIT - 400 * THOUSANDTH;
    }
    atomic_store(&giver.round, UINT_MAX);
    pthread_join(thread, NULL);
    print_message("%u of %u grew, %u above the limit\n", grown, rounds, above);
    assert_int_equal(above, 0);
    holder_stop(other);
    file->slots[1] = (shared_slot){0};
    shared_close(giver.shared);
    edit_end(file);
}

/* ---- tags ---- */

static void tags_that_come_late_are_counted_together(void **state)
{
    (void)state;
    budget_shared *shared = open_budget("a");
    const shared_tag *tags = shared->file->slots[0].tags;
    assert_int_equal(shared_tag_index(shared, 0), 0);
    strata_tag tag = 0, again;
    uint32_t indexes[SHARED_TAGS * 2];
    for (size_t i = 0; i < SHARED_TAGS * 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "of files %zu", i);
        check_ok(strata_tag_intern(name, &tag));
        indexes[i] = shared_tag_index(shared, tag);
        shared_count_tag(shared, indexes[i], 10);
        assert_int_equal(shared_tag_index(shared, tag), indexes[i]);
        assert_int_equal(indexes[i], i < SHARED_TAGS - 2 ? i + 1 : SHARED_TAGS - 1);
    }
    assert_string_equal(tags[1].name, "of files 0");
    assert_string_equal(tags[SHARED_TAGS - 1].name, "others");
    assert_int_equal(tags[SHARED_TAGS - 1].in_use, 10 * (SHARED_TAGS + 2));
    for (size_t i = 0; tag < 1100; i++) { /* indexes of so many tags are not cached */
        char name[32];
        snprintf(name, sizeof name, "more %zu", i);
        check_ok(strata_tag_intern(name, &tag));
    }
    assert_int_equal(shared_tag_index(shared, tag), SHARED_TAGS - 1);
    shared_close(shared);
    shared = open_budget("a"); /* the new slot has no tags */
    check_ok(strata_tag_intern("of files 30", &again));
    assert_int_equal(shared_tag_index(shared, tag), 1);
    assert_int_equal(shared_tag_index(shared, again), 2);
    assert_int_equal(shared_tag_index(shared, tag), 1);
    shared_close(shared);
}

static void what_a_view_has_no_room_for_is_left_out(void **state)
{
    enum { PROCESSES = 300, ROOM = SHARED_SLOTS * 4 };
    (void)state;
    shared_file *file = edit_begin("a");
    file->used_slots = PROCESSES;
    for (size_t i = 0; i < PROCESSES; i++) {
        file->slots[i].pid = i % 3 == 2 ? 0 : 1; /* some are free */
        file->slots[i].in_use = 24;
        for (size_t at = 0; at < SHARED_TAGS; at++)
            file->slots[i].tags[at].in_use = 1;
    }
    for (size_t i = 0; i < PROCESSES; i++) /* no name has an end */
        memset(file->slots[i].tags[0].name, 'x', SHARED_TAG_NAME);
    seen all = visit_all();
    assert_int_equal(all.processes, PROCESSES / 3 * 2);
    assert_int_equal(all.in_use, 0);
    assert_int_equal(all.dead_in_use, PROCESSES / 3 * 2 * 24);
    assert_int_equal(all.alive, 0);
    assert_int_equal(all.tags, ROOM);
    assert_int_equal(all.longest_tag, SHARED_TAG_NAME - 1);
    edit_end(file);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(first_life), TEST_SCENARIO(second_life)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_file_opened_for_a_visit_can_be_joined, clear_away),
        cmocka_unit_test_teardown(a_file_whose_slots_are_all_taken_is_busy, clear_away),
        cmocka_unit_test_teardown(a_free_slot_whose_lock_is_held_is_passed_by, clear_away),
        cmocka_unit_test_teardown(a_process_that_cannot_be_looked_up_counts_for_some_seconds, clear_away),
        cmocka_unit_test_teardown(a_program_that_a_process_became_has_what_the_one_before_it_had, clear_away),
        cmocka_unit_test_teardown(a_process_is_gone_when_only_its_status_is_left, clear_away),
        cmocka_unit_test_teardown(leases_that_no_sound_file_has_grant_nothing, clear_away),
        cmocka_unit_test_teardown(more_than_there_are_numbers_is_refused, clear_away),
        cmocka_unit_test_teardown(room_is_made_for_what_does_not_come_back, clear_away),
        cmocka_unit_test_teardown(a_closed_lease_that_grows_while_another_thread_gives_back_stays_within_the_limit,
                                  clear_away),
        cmocka_unit_test_teardown(tags_that_come_late_are_counted_together, clear_away),
        cmocka_unit_test_teardown(what_a_view_has_no_room_for_is_left_out, clear_away),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
