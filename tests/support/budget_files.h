/* The files of shared budgets in one process: opening, editing and visiting them. A holder, a fork of the test program
 * without the library, holds locks as another process does. A program includes this header once, and makes the
 * directory first. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_FILES_H
#define STRATA_TESTS_SUPPORT_BUDGET_FILES_H

#include "support/budget_inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/driver.h"
#include "support/effort.h"

#define UUID "0102030405060708090a0b0c0d0e0f10"

static const uint64_t LIMIT = 1 << 20;
static const unsigned char device[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static char directory[] = "/tmp/strata-files-XXXXXX";

/* ---- files ---- */

static const char *path_of(char kind, unsigned long owner, const char *name, char path[SHARED_PATH])
{
    snprintf(path, SHARED_PATH, "%s/strata-%c%lu-%s-" UUID, directory, kind, owner, name);
    return path;
}

static const char *own_path(const char *name)
{
    static char path[SHARED_PATH];
    return path_of('u', geteuid(), name, path);
}

static inline strata_status try_open(const char *name, const char *group, budget_shared **out)
{
    const shared_terms terms = {name, group, device, LIMIT};
    return shared_open(&terms, out);
}

static inline budget_shared *open_budget(const char *name)
{
    budget_shared *shared;
    check_ok(try_open(name, NULL, &shared));
    return shared;
}

static inline void check_refused(const char *name, const char *words)
{
    budget_shared *shared = NULL;
    check_status(try_open(name, NULL, &shared), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, words);
    assert_null(shared);
}

/* Charges bytes as the layer does: within the lease, else with more of it. */
static inline bool take(budget_shared *shared, uint64_t bytes)
{
    return shared_take(shared, bytes) || (shared_make_room(shared, bytes, 0) && shared_take(shared, bytes));
}

/* Opens a complete file that no process has open, for writing. Call edit_end before the library opens it. */
static inline shared_file *edit_begin(const char *name)
{
    shared_close(open_budget(name));
    int file = open(own_path(name), O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    shared_file *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    close(file);
    return map;
}

static inline void edit_end(shared_file *map)
{
    munmap(map, sizeof *map);
}

static inline int clear_away(void **state)
{
    (void)state;
    setenv("STRATA_SHARED_DIR", directory, 1);
    DIR *folder = opendir(directory);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    return folder ? closedir(folder) : -1;
}

/* ---- holders and other processes ---- */

typedef struct holder {
    pid_t pid;
    int to;
} holder;

/* Starts a process that locks bytes of a file until holder_stop, or for some milliseconds. */
static inline holder keep_locked(const char *path, off_t from, off_t count, int milliseconds)
{
    int there[2], ready[2];
    char word = 0;
    assert_int_equal(pipe2(there, O_CLOEXEC) + pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    holder self = {.pid = fork()};
    assert_true(self.pid >= 0);
    if (self.pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = count};
        close(there[1]);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0 || fcntl(file, F_SETLK, &lock) != 0 || write(ready[1], &word, 1) != 1)
            _exit(1);
        if (milliseconds)
            nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
        else if (read(there[0], &word, 1) != 0)
            _exit(1);
        _exit(0);
    }
    close(there[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &word, 1), 1);
    close(ready[0]);
    self.to = there[1];
    return self;
}

static inline void holder_stop(holder self)
{
    int status;
    close(self.to);
    assert_int_equal(waitpid(self.pid, &status, 0), self.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Runs `work` in a process of its own, which prints its failures. */
static inline void in_child(void (*work)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(test_timeout(60));
        work();
        test_child_leave(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Whether another process finds the byte locked. */
static inline bool is_locked(const char *path, off_t byte)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
        int file = open(path, O_RDWR | O_CLOEXEC);
        _exit(file < 0 || fcntl(file, F_GETLK, &lock) != 0 ? 2 : lock.l_type != F_UNLCK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

/* ---- visits ---- */

typedef struct seen {
    size_t count, problems, processes, alive, tags, longest_tag;
    size_t limit, in_use, dead_in_use;
    char path[SHARED_PATH], problem[512];
    void (*meanwhile)(void);
} seen;

static inline void see(const strata_shared_budget *budget, void *data)
{
    seen *self = data;
    self->count++;
    self->problems += budget->problem != NULL;
    assert_true(!budget->problem == !!budget->name);
    self->processes += budget->process_count;
    for (size_t i = 0; i < budget->process_count; i++) {
        self->alive += budget->processes[i].alive;
        self->tags += budget->processes[i].tag_count;
        for (size_t at = 0; at < budget->processes[i].tag_count; at++) {
            size_t length = strlen(budget->processes[i].tags[at].name);
            self->longest_tag = length > self->longest_tag ? length : self->longest_tag;
        }
    }
    self->limit = budget->limit;
    self->in_use = budget->in_use;
    self->dead_in_use = budget->dead_in_use;
    snprintf(self->path, sizeof self->path, "%s", budget->path);
    snprintf(self->problem, sizeof self->problem, "%s", budget->problem ? budget->problem : "");
    if (self->meanwhile)
        self->meanwhile();
}

static inline seen visit_all(void)
{
    seen all = {0};
    check_ok(strata_shared_budget_visit(see, &all));
    return all;
}

/* Waits for a signal. */
static inline void *rest(void *nothing)
{
    pause();
    return nothing;
}

#endif
