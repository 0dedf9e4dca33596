/* The process's shared budgets. */
#include "resources/budget/shared_internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static strata_lock files_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_SHARED_FILES);
static budget_shared *files; /* of this process; guarded by files_lock */

static void record_file(budget_shared *shared, const struct stat *about)
{
    shared->device = about->st_dev;
    shared->inode = about->st_ino;
}

static strata_status attach(budget_shared *shared, const shared_terms *terms, bool grouped, gid_t group)
{
    struct stat about;
    strata_status status = shared_file_open(shared->path, grouped, group, &shared->descriptor, &about);
    if (status != STRATA_SUCCESS)
        return status;
    record_file(shared, &about);
    if (!shared_lock_byte(shared->descriptor, 0, true))
        return shared_file_refuse(shared->path, "locked");
    status = shared_file_map(shared->descriptor, shared->path, terms, &shared->file);
    if (status == STRATA_SUCCESS)
        status = shared_take_slot(shared, terms);
    shared_unlock_byte(shared->descriptor, 0);
    return status;
}

static void detach(budget_shared *shared)
{
    if (shared->file)
        munmap(shared->file, sizeof *shared->file);
    if (shared->descriptor >= 0)
        close(shared->descriptor);
    strata_lock_destroy(&shared->lock);
    strata_host_free(shared);
}

static budget_shared *make_shared(const char *path)
{
    budget_shared *shared = strata_host_zalloc(sizeof *shared);
    if (!shared)
        return NULL;
    memcpy(shared->path, path, strnlen(path, SHARED_PATH - 1));
    shared->descriptor = -1;
    strata_lock_init(&shared->lock, STRATA_RANK_SHARED);
    return shared;
}

static budget_shared *add_file(budget_shared *shared)
{
    shared->users = 1;
    shared->next = files;
    files = shared;
    return shared;
}

/* Under files_lock, like the next two. */
static strata_status open_new(const shared_terms *terms, const char *path, bool grouped, gid_t group,
                              budget_shared **out)
{
    budget_shared *shared = make_shared(path);
    if (!shared)
        return strata_fail_host_memory("a shared budget");
    strata_status status = attach(shared, terms, grouped, group);
    if (status == STRATA_SUCCESS)
        *out = add_file(shared);
    else
        detach(shared);
    return status;
}

/* For a file that was opened for a visit. */
static strata_status join(budget_shared *shared, const shared_terms *terms)
{
    strata_status status = shared_lock_byte(shared->descriptor, 0, true) ? shared_take_slot(shared, terms)
                                                                         : shared_file_refuse(shared->path, "locked");
    shared_unlock_byte(shared->descriptor, 0);
    if (status != STRATA_SUCCESS)
        shared->users--;
    return status;
}

/* *out: the open file with this path, with one more user; NULL: none. Also compares identities, as directories may be
 * renamed. A second name is refused: opening and closing that file would drop the process's locks. */
static strata_status find_open(const char *path, budget_shared **out)
{
    struct stat about;
    bool known = lstat(path, &about) == 0;
    budget_shared *shared = files;
    while (shared && strcmp(shared->path, path) != 0 &&
           !(known && shared->device == about.st_dev && shared->inode == about.st_ino))
        shared = shared->next;
    *out = NULL;
    if (!shared)
        return STRATA_SUCCESS;
    if (strcmp(strrchr(shared->path, '/'), strrchr(path, '/')) != 0)
        return shared_file_refuse_for(path, "is no plain file with one name");
    shared->users++;
    *out = shared;
    return STRATA_SUCCESS;
}

strata_status shared_open(const shared_terms *terms, budget_shared **out)
{
    char path[SHARED_PATH] = "";
    gid_t group = 0;
    *out = NULL;
    bool grouped = terms->group && *terms->group;
    if (!shared_name_is_good(terms->name))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "\"%.64s\" is no name for a shared budget: letters, digits, '.', '_' and '-', at most 48, "
                           "and no '.' first",
                           terms->name);
    if (grouped && !shared_find_group(terms->group, &group))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no group \"%.64s\" for a shared budget", terms->group);
    strata_status status = shared_file_path(terms, grouped, group, path);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&files_lock);
    status = find_open(path, out);
    if (status == STRATA_SUCCESS && !*out)
        status = open_new(terms, path, grouped, group, out);
    else if (*out && !shared_slot_of(*out) && (status = join(*out, terms)) != STRATA_SUCCESS)
        *out = NULL;
    strata_lock_release(&files_lock);
    return status;
}

/* Under files_lock. */
static strata_status open_existing(const char *path, bool grouped, gid_t group, budget_shared **out)
{
    budget_shared *shared = make_shared(path);
    if (!shared)
        return strata_fail_host_memory("a shared budget");
    struct stat about;
    strata_status status = shared_file_open_existing(path, grouped, group, &shared->descriptor, &about);
    if (status == STRATA_SUCCESS)
        status = shared_file_map(shared->descriptor, path, NULL, &shared->file);
    if (status == STRATA_SUCCESS) {
        record_file(shared, &about);
        *out = add_file(shared);
    } else {
        detach(shared);
    }
    return status;
}

strata_status shared_open_existing(const char *path, bool grouped, unsigned group, budget_shared **out)
{
    strata_lock_take(&files_lock);
    strata_status status = find_open(path, out);
    if (status == STRATA_SUCCESS && !*out)
        status = open_existing(path, grouped, (gid_t)group, out);
    strata_lock_release(&files_lock);
    return status;
}

void shared_close(budget_shared *shared)
{
    if (!shared)
        return;
    strata_lock_take(&files_lock);
    bool last = --shared->users == 0;
    budget_shared **at = &files;
    while (last && *at != shared)
        at = &(*at)->next;
    if (last)
        *at = shared->next;
    if (last && shared_slot_of(shared))
        shared_leave_slot(shared);
    if (last)
        detach(shared);
    strata_lock_release(&files_lock);
}
