/* The processes of the tests of shared budgets. Each is a puppet: a fork of the test program that reads orders from a
 * pipe, carries them out and answers. The test program itself opens neither the driver nor a shared budget. A program
 * includes this header once, and makes the directory before the first puppet. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_PUPPETS_H
#define STRATA_TESTS_SUPPORT_BUDGET_PUPPETS_H

#include "support/budget_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/driver.h"
#include "support/effort.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static const uint64_t LIMIT = 1 << 20;
static const unsigned char device[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static char directory[] = "/tmp/strata-shared-XXXXXX";

/* ---- puppets ---- */

typedef enum order {
    ORDER_OPEN,
    ORDER_TAKE, /* as the layer does: within the lease, else with more of it */
    ORDER_GIVE,
    ORDER_OPEN_QUOTA,    /* of so many bytes at least; answers how many */
    ORDER_TAKE_BY_QUOTA, /* as the layer does for what is passed on: within the quota, else as ORDER_TAKE */
    ORDER_GIVE_BY_QUOTA,
    ORDER_CLOSE,
    ORDER_SET_LIMIT,
    ORDER_IN_USE, /* of all processes */
    ORDER_LIMIT,
    ORDER_LOOK,     /* the processes of all files, by a visit */
    ORDER_HOLDINGS, /* the puppet's descriptors, and its mappings of shared budgets */
    ORDER_RETIRE,   /* submits a free on stream 1; answers the ticket as bytes, done: the stream is to write it */
    ORDER_WRITE,    /* as the stream does: the ticket `bytes` to its word */
    ORDER_COMPLETE, /* of the ticket `bytes`, whose bytes are given back next */
    ORDER_BECOME,   /* the user and group `bytes`, if that is possible */
    ORDER_EXEC,     /* becomes another program, which lives on; does not answer */
    ORDER_NONE,
} order;

typedef struct command {
    order order;
    uint64_t bytes;
    const char *group;
    bool traced; /* stops before and after the order */
} command;

typedef struct answer {
    strata_status status;
    bool done;
    uint64_t bytes;
    char message[sizeof((strata_error *)0)->message]; /* of a failure */
} answer;

typedef struct puppet {
    pid_t pid;
    int to, from;
} puppet;

static puppet puppets[64];
static size_t puppet_count;

static inline void count_processes(const strata_shared_budget *budget, void *data)
{
    *(uint64_t *)data += budget->problem ? 0 : budget->process_count;
}

static inline uint64_t count_holdings(void)
{
    char line[512];
    uint64_t count = 0;
    for (int file = 0; file < 256; file++)
        count += fcntl(file, F_GETFD) >= 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/strata-") && strstr(line, "-shared-test-");
    if (maps)
        fclose(maps);
    return count;
}

static inline bool take_of_lease(budget_shared *shared, uint64_t bytes)
{
    return shared_take(shared, bytes) || (shared_make_room(shared, bytes, 0) && shared_take(shared, bytes));
}

enum { HIGH_PEAK = 1 << 30 };

/* Returns the bytes of the quota that are not used; 0: it was not opened, or another thread has closed it. */
static inline uint64_t open_quota(budget_shared *shared, uint64_t bytes)
{
    shared_quota *self = shared_quota_self(shared);
    if (!self || !shared_quota_open(shared, self, bytes, HIGH_PEAK))
        return 0;
    const int64_t open = self->open;
    return open == SHARED_CLOSED ? 0 : (uint64_t)(open - self->used);
}

static inline void carry_out(budget_shared **shared, const command *what, answer *reply)
{
    const shared_terms terms = {"shared-test", what->group, device, what->bytes};
    switch (what->order) {
    case ORDER_OPEN:
        reply->status = shared_open(&terms, shared);
        return;
    case ORDER_TAKE:
        reply->done = take_of_lease(*shared, what->bytes);
        return;
    case ORDER_GIVE:
        shared_give(*shared, what->bytes);
        return;
    case ORDER_OPEN_QUOTA:
        reply->bytes = open_quota(*shared, what->bytes);
        return;
    case ORDER_TAKE_BY_QUOTA:
        reply->done = shared_quota_take(shared_quota_self(*shared), what->bytes) || take_of_lease(*shared, what->bytes);
        return;
    case ORDER_GIVE_BY_QUOTA:
        if (!shared_quota_give(shared_quota_self(*shared), what->bytes))
            shared_give(*shared, what->bytes);
        return;
    case ORDER_CLOSE:
        shared_close(*shared);
        *shared = NULL;
        return;
    case ORDER_SET_LIMIT:
        reply->status = shared_set_limit(*shared, what->bytes);
        return;
    case ORDER_IN_USE:
        reply->bytes = shared_in_use(*shared);
        return;
    case ORDER_LIMIT:
        reply->bytes = shared_limit(*shared);
        return;
    case ORDER_LOOK:
        reply->status = strata_shared_budget_visit(count_processes, &reply->bytes);
        return;
    case ORDER_HOLDINGS:
        reply->bytes = count_holdings();
        return;
    case ORDER_RETIRE: {
        _Atomic uint64_t ticket = UINT64_MAX;
        reply->done =
            shared_retire(
                *shared, &(shared_free){.stream = 1, .bytes = what->bytes, .ticket = &ticket, .waiting = UINT64_MAX}) !=
            0;
        reply->bytes = ticket == UINT64_MAX ? 0 : ticket;
        return;
    }
    case ORDER_WRITE:
        atomic_store(&(*shared)
                          ->file->retired[shared_slot_of(*shared) - (*shared)->file->slots]
                          .records[what->bytes % SHARED_RETIRED]
                          .word,
                     what->bytes);
        return;
    case ORDER_COMPLETE:
        shared_retire_completed(*shared, what->bytes);
        return;
    case ORDER_BECOME:
        reply->done = setgroups(0, NULL) == 0 && setgid((gid_t)what->bytes) == 0 && setuid((uid_t)what->bytes) == 0;
        return;
    case ORDER_EXEC:
        execlp("sleep", "sleep", "1000", (char *)NULL);
        return;
    case ORDER_NONE:
        return;
    }
}

static inline _Noreturn void live(int from, int to)
{
    budget_shared *shared = NULL;
    command what;
    while (read(from, &what, sizeof what) == (ssize_t)sizeof what) {
        answer reply = {0};
        if (what.traced) {
            ptrace(PTRACE_TRACEME, 0, NULL, NULL);
            raise(SIGSTOP);
        }
        carry_out(&shared, &what, &reply);
        if (reply.status != STRATA_SUCCESS)
            snprintf(reply.message, sizeof reply.message, "%s", strata_last_error()->message);
        if (what.traced)
            raise(SIGSTOP);
        else
            test_child_count();
        if (write(to, &reply, sizeof reply) != (ssize_t)sizeof reply)
            break;
    }
    test_child_leave(0);
}

static inline puppet *make_puppet(void)
{
    int there[2], back[2];
    puppet *self = &puppets[puppet_count++];
    assert_true(puppet_count <= sizeof puppets / sizeof puppets[0]);
    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    fflush(NULL);
    self->pid = fork();
    assert_true(self->pid >= 0);
    if (self->pid == 0) {
        for (size_t i = 0; i + 1 < puppet_count; i++) { /* the other puppets' ends of pipes */
            close(puppets[i].to);
            close(puppets[i].from);
        }
        close(there[1]);
        close(back[0]);
        live(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    self->to = there[1];
    self->from = back[0];
    return self;
}

static inline void send_order(const puppet *self, const command *what)
{
    assert_int_equal(write(self->to, what, sizeof *what), sizeof *what);
}

static inline answer receive(const puppet *self)
{
    answer reply = {0};
    assert_int_equal(read(self->from, &reply, sizeof reply), sizeof reply);
    return reply;
}

static inline answer ask(const puppet *self, order what_for, uint64_t bytes)
{
    const command what = {.order = what_for, .bytes = bytes};
    send_order(self, &what);
    return receive(self);
}

static inline puppet *make_open(uint64_t limit)
{
    puppet *self = make_puppet();
    assert_int_equal(ask(self, ORDER_OPEN, limit).status, STRATA_SUCCESS);
    return self;
}

static inline bool takes(const puppet *self, uint64_t bytes)
{
    return ask(self, ORDER_TAKE, bytes).done;
}

static inline void gives(const puppet *self, uint64_t bytes)
{
    ask(self, ORDER_GIVE, bytes);
}

/* The bytes, unused, of a puppet's lease are a quota's then. */
static inline bool opens_quota(const puppet *self, uint64_t bytes)
{
    if (!takes(self, bytes))
        return false;
    gives(self, bytes);
    return ask(self, ORDER_OPEN_QUOTA, bytes).bytes >= bytes;
}

static inline bool takes_by_quota(const puppet *self, uint64_t bytes)
{
    return ask(self, ORDER_TAKE_BY_QUOTA, bytes).done;
}

static inline void gives_by_quota(const puppet *self, uint64_t bytes)
{
    ask(self, ORDER_GIVE_BY_QUOTA, bytes);
}

static inline void end_puppet(puppet *self, int how)
{
    if (self->pid <= 0)
        return;
    close(self->to);
    close(self->from);
    if (how)
        kill(self->pid, how);
    waitpid(self->pid, NULL, 0);
    *self = (puppet){.to = -1, .from = -1};
}

static inline void file_path(char path[256])
{
    snprintf(path, 256, "%s/strata-u%u-shared-test-0102030405060708090a0b0c0d0e0f10", directory, geteuid());
}

static inline int clear_away(void **state)
{
    char path[256];
    (void)state;
    for (size_t i = 0; i < puppet_count; i++)
        end_puppet(&puppets[i], SIGKILL);
    puppet_count = 0;
    file_path(path);
    unlink(path);
    return 0;
}

static inline bool can_be_traced(void)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 0 : 1);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
