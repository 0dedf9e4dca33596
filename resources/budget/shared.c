/* The process's shared budgets. */
#include "resources/budget/shared_quota.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/report.h"
#include "core/base/size_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static strata_lock files_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_SHARED_FILES);
static budget_shared *files; /* guarded by files_lock */

static void record_file(budget_shared *shared, const struct stat *about)
{
    shared->device = about->st_dev;
    shared->inode = about->st_ino;
}

static strata_status find_limit(budget_shared *shared, const shared_terms *terms, bool grouped, gid_t group)
{
    if (grouped)
        return shared_limit_open(shared, terms, group);
    shared->limit = &shared->file->limit;
    shared->sets_limit = true;
    return STRATA_SUCCESS;
}

/* Opens and locks the file, again if another process removes it in between. */
static strata_status open_locked(budget_shared *shared, bool grouped, gid_t group)
{
    for (;;) {
        struct stat about;
        strata_status status = shared_file_open(shared->path, grouped, group, &shared->descriptor, &about);
        if (status != STRATA_SUCCESS)
            return status;
        record_file(shared, &about);
        if (!shared_lock_byte(shared->descriptor, 0, true))
            return shared_file_refuse(shared->path, "locked");
        if (!shared_file_was_removed(shared->descriptor))
            return STRATA_SUCCESS;
        close(shared->descriptor);
    }
}

static strata_status attach(budget_shared *shared, const shared_terms *terms, bool grouped, gid_t group)
{
    strata_status status = open_locked(shared, grouped, group);
    if (status != STRATA_SUCCESS)
        return status;
    status = shared_file_map(shared->descriptor, shared->path, terms, &shared->file);
    if (status == STRATA_SUCCESS)
        status = find_limit(shared, terms, grouped, group);
    if (status == STRATA_SUCCESS)
        status = shared_take_slot(shared, terms);
    shared_unlock_byte(shared->descriptor, 0);
    return status;
}

static void detach(budget_shared *shared)
{
    shared_limit_close(shared);
    if (shared->file)
        shared_file_unmap(shared->file);
    if (shared->descriptor >= 0 && (!shared->inode || shared_file_has_descriptor(shared)))
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
    shared->descriptor = shared->limit_descriptor = -1;
    strata_lock_init(&shared->lock, STRATA_RANK_SHARED);
    strata_spin_init(&shared->retired_lock, STRATA_RANK_SHARED_RETIRED);
    return shared;
}

static budget_shared *add_file(budget_shared *shared)
{
    atomic_store_explicit(&shared->users, 1, memory_order_relaxed);
    shared->next = files;
    files = shared;
    return shared;
}

/* Opens a file and takes a slot. Under files_lock, like the next two. */
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

/* Takes a slot in a file that was opened for a visit. */
static strata_status join(budget_shared *shared, const shared_terms *terms)
{
    strata_status status;
    if (shared_lock_file(shared)) {
        status = shared_take_slot(shared, terms);
        shared_unlock_file(shared);
    } else {
        status = shared_file_refuse(shared->path, "locked");
    }
    if (status != STRATA_SUCCESS)
        atomic_fetch_sub_explicit(&shared->users, 1, memory_order_relaxed);
    return status;
}

/* Whether a file is kept for the driver alone (shared_close), and lost. Under files_lock. */
static bool is_abandoned(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->users, memory_order_relaxed) == 0 &&
           (shared_is_lost(shared) || !shared_file_has_descriptor(shared));
}

/* Whether an open file is the one at a path. `about`: of the file there, NULL: there is none. */
static bool is_at(const budget_shared *shared, const char *path, const struct stat *about)
{
    return strcmp(shared->path, path) == 0 ||
           (about && shared->device == about->st_dev && shared->inode == about->st_ino);
}

/* Finds the open file with this path, and counts one more user; NULL: none. Compares identities too, as directories may
 * be renamed. A second name is refused: closing that file would drop the process's locks. */
static strata_status find_open(const char *path, budget_shared **out)
{
    struct stat about;
    bool known = lstat(path, &about) == 0;
    budget_shared *shared = files;
    while (shared && (is_abandoned(shared) || !is_at(shared, path, known ? &about : NULL)))
        shared = shared->next;
    *out = NULL;
    if (!shared)
        return STRATA_SUCCESS;
    if (strcmp(strrchr(shared->path, '/'), strrchr(path, '/')) != 0)
        return shared_file_refuse_for(path, "is not a regular file with one link");
    if (atomic_fetch_add_explicit(&shared->users, 1, memory_order_relaxed) && shared_slot_of(shared))
        shared_quota_close_own(shared); /* those of one user alone */
    *out = shared;
    return STRATA_SUCCESS;
}

/* Reports a finding: the budget is usable. No call returns it, so it is written where findings go. */
static void report_other_limit(const budget_shared *shared, const shared_terms *terms)
{
    char text[sizeof((strata_error *)0)->message];
    uint64_t limit = shared_limit(shared);
    int length =
        snprintf(text, sizeof text, "the shared budget \"%s\" has %s%s; the limit %s of this process is not used. ",
                 terms->name, limit ? "the limit " : "no limit", limit ? strata_size_text(limit).text : "",
                 strata_size_text(terms->limit).text);
    if (shared->sets_limit)
        snprintf(text + length, sizeof text - (size_t)length, "To change it: strata budget %s --limit %llu",
                 terms->name, (unsigned long long)terms->limit);
    else
        snprintf(text + length, sizeof text - (size_t)length, "Only user %s, its maker, can change it",
                 shared_limit_maker(shared).text);
    if (strata_report_is_wanted(strata_error_has_log_callback(), false))
        strata_report_line("budget", text);
    strata_error *error = strata_error_begin_finding(STRATA_ERROR_INVALID_VALUE);
    error->limit = (size_t)limit;
    error->requested = (size_t)terms->limit;
    strata_error_raise_finding(error, "%s", text);
}

/* The path is FOLDER/strata-u1000-NAME-UUID. */
void shared_write_name(const budget_shared *shared, char name[SHARED_NAME])
{
    const char *file = strrchr(shared->path, '/'), *owner = file ? strchr(file, '-') : NULL;
    const char *begin = owner ? strchr(owner + 1, '-') : NULL, *end = begin ? strrchr(begin + 1, '-') : NULL;
    snprintf(name, SHARED_NAME, "%.*s", end ? (int)(end - begin - 1) : 0, end ? begin + 1 : "");
}

strata_status shared_open(const shared_terms *terms, budget_shared **out)
{
    char path[SHARED_PATH] = "";
    gid_t group = 0;
    *out = NULL;
    bool grouped = terms->group && *terms->group;
    if (!shared_name_is_good(terms->name))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "invalid name of a shared budget: \"%.64s\"; expected at most 48 letters, digits, '.', '_' "
                           "and '-', and no '.' first",
                           terms->name);
    if (grouped && !shared_find_group(terms->group, &group))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "shared budget: unknown group \"%.64s\"", terms->group);
    strata_status status = shared_file_path(terms, grouped, group, path);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&files_lock);
    status = find_open(path, out);
    if (status == STRATA_SUCCESS && !*out)
        status = open_new(terms, path, grouped, group, out);
    else if (*out && !shared_slot_of(*out) && (status = join(*out, terms)) != STRATA_SUCCESS)
        *out = NULL;
    strata_lock_release(&files_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status == STRATA_SUCCESS && terms->limit && terms->limit != shared_limit(*out))
        report_other_limit(*out, terms);
    return status;
}

/* Opens a file for a visit. Under files_lock. */
static strata_status open_existing(const char *path, bool grouped, gid_t group, budget_shared **out)
{
    budget_shared *shared = make_shared(path);
    if (!shared)
        return strata_fail_host_memory("a shared budget");
    struct stat about;
    strata_status status = shared_file_open_existing(path, grouped, group, &shared->descriptor, &about);
    if (status == STRATA_SUCCESS)
        status = shared_file_map(shared->descriptor, path, NULL, &shared->file);
    if (status == STRATA_SUCCESS)
        status = find_limit(shared, NULL, grouped, group);
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
    strata_error_suppress_begin(); /* as above */
    strata_lock_take(&files_lock);
    strata_status status = find_open(path, out);
    if (status == STRATA_SUCCESS && !*out)
        status = open_existing(path, grouped, (gid_t)group, out);
    strata_lock_release(&files_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* While the driver keeps the page of words, streams may still write it: the process keeps file and slot, which a later
 * stack with this budget takes over. */
void shared_close(budget_shared *shared)
{
    if (!shared)
        return;
    strata_lock_take(&files_lock);
    if (atomic_fetch_sub_explicit(&shared->users, 1, memory_order_relaxed) == 1 &&
        (!shared_slot_of(shared) || shared_words_unmap(shared))) {
        budget_shared **at = &files;
        while (*at != shared)
            at = &(*at)->next;
        *at = shared->next;
        if (shared_slot_of(shared))
            shared_leave_slot(shared);
        detach(shared);
    }
    strata_lock_release(&files_lock);
}
