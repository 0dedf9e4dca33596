/* Visits of the shared budgets of the user and its groups. */
#include <strata/budget.h>

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "driver/driver.h"
#include "resources/budget/shared_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct file_view {
    strata_shared_process processes[SHARED_SLOTS];
    strata_shared_tag tags[SHARED_SLOTS * 4]; /* of all processes; further ones are left out */
    char names[SHARED_SLOTS * 4][SHARED_TAG_NAME];
    size_t tag_count;
} file_view;

/* Reads the owner from a file's name: "strata-u1000-..." or "strata-g100-...". False for other files, and for the
 * limits of groups. */
static bool read_owner(const char *name, bool *grouped, unsigned long *number)
{
    char *end;
    if (strncmp(name, "strata-", 7) != 0 || (name[7] != 'u' && name[7] != 'g') || name[8] < '0' || name[8] > '9')
        return false;
    *grouped = name[7] == 'g';
    *number = strtoul(name + 8, &end, 10);
    size_t length = strlen(name), suffix = sizeof SHARED_LIMIT_SUFFIX - 1;
    bool limit = length > suffix && strcmp(name + length - suffix, SHARED_LIMIT_SUFFIX) == 0;
    return *end == '-' && *number <= UINT32_MAX && !limit;
}

static bool is_in_group(gid_t group)
{
    gid_t groups[4096];
    int count = getgroups(sizeof groups / sizeof groups[0], groups);
    if (group == getegid())
        return true;
    for (int i = 0; i < count; i++)
        if (groups[i] == group)
            return true;
    return false;
}

static bool is_accessible(bool grouped, unsigned long number)
{
    return grouped ? is_in_group((gid_t)number) : number == geteuid();
}

/* Adds a process's tags to the view. Returns their bytes. */
static size_t view_tags(file_view *view, strata_shared_process *process, const shared_slot *slot)
{
    size_t sum = 0;
    process->tags = &view->tags[view->tag_count];
    for (size_t i = 0; i < SHARED_TAGS; i++) {
        size_t in_use = (size_t)atomic_load_explicit(&slot->tags[i].in_use, memory_order_relaxed);
        if (!in_use || view->tag_count == sizeof view->tags / sizeof view->tags[0])
            continue;
        char *name = view->names[view->tag_count]; /* a damaged file's name has no end */
        memcpy(name, slot->tags[i].name, SHARED_TAG_NAME - 1);
        name[SHARED_TAG_NAME - 1] = '\0';
        view->tags[view->tag_count++] = (strata_shared_tag){.name = name, .in_use = in_use};
        process->tag_count++;
        sum += in_use;
    }
    return sum;
}

static void view_shared(file_view *view, const budget_shared *shared, strata_shared_budget *out)
{
    const shared_file *file = shared->file;
    uint32_t used = atomic_load_explicit(&file->used_slots, memory_order_acquire);
    out->name = file->name;
    out->limit = (size_t)shared_limit(shared);
    memcpy(out->device_uuid, file->device, sizeof out->device_uuid);
    for (uint32_t i = 0; i < used && i < SHARED_SLOTS; i++) {
        const shared_slot *slot = &file->slots[i];
        int pid = atomic_load_explicit(&slot->pid, memory_order_acquire);
        if (!pid)
            continue;
        strata_shared_process *process = &view->processes[out->process_count++];
        *process = (strata_shared_process){
            .pid = pid,
            .alive = shared_slot_is_alive(shared, slot),
            .leased = (size_t)shared_leased_by(shared, slot),
            .in_use = (size_t)shared_in_use_of(shared, slot),
        };
        size_t tagged = view_tags(view, process, slot), claimed = (size_t)shared_claimed(shared, slot);
        size_t more = tagged > process->in_use ? tagged - process->in_use : 0; /* returned claims are in no tag */
        process->freed = more < claimed ? more : claimed;
        out->leased += process->leased;
        if (process->alive)
            out->in_use += process->in_use;
        else
            out->dead_in_use += process->in_use;
    }
    out->processes = view->processes;
}

static void visit_file(const char *directory, const char *name, file_view *view,
                       void (*visit)(const strata_shared_budget *budget, void *data), void *data)
{
    bool grouped;
    unsigned long number;
    char path[SHARED_PATH];
    if (!read_owner(name, &grouped, &number))
        return;
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    if ((size_t)length >= sizeof path)
        return;
    budget_shared *shared;
    strata_shared_budget shown = {.path = path};
    strata_error_suppress_begin();
    strata_status status = shared_open_existing(path, grouped, (unsigned)number, &shared);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    memset(view, 0, sizeof *view);
    if (status == STRATA_SUCCESS)
        view_shared(view, shared, &shown);
    else
        shown.problem = strata_last_error()->message;
    visit(&shown, data);
    if (status == STRATA_SUCCESS)
        shared_close(shared);
}

static int is_named_as_budget(const struct dirent *entry)
{
    bool grouped;
    unsigned long number;
    return read_owner(entry->d_name, &grouped, &number) && is_accessible(grouped, number);
}

strata_status strata_shared_budget_visit(void (*visit)(const strata_shared_budget *budget, void *data), void *data)
{
    if (!visit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_shared_budget_visit: visit is NULL");
    char directory[PATH_MAX];
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = shared_directory(directory);
    if (status != STRATA_SUCCESS)
        return status;
    file_view *view = strata_host_zalloc(sizeof *view);
    if (!view)
        return strata_fail_host_memory("a view of a shared budget");
    struct dirent **entries = NULL;
    const int count = scandir(directory, &entries, is_named_as_budget, alphasort);
    if (count < 0)
        status = shared_file_refuse(directory, "looked through"); /* by errno */
    for (int i = 0; i < count; i++) {
        visit_file(directory, entries[i]->d_name, view, visit, data);
        free(entries[i]);
    }
    free(entries);
    strata_host_free(view);
    return status;
}

/* Opens the shared budget with this path, as visits give it. */
static strata_status open_path(const char *path, budget_shared **out)
{
    bool grouped;
    unsigned long number;
    char absolute[PATH_MAX];
    const char *name = path ? strrchr(path, '/') : NULL;
    if (!name || !read_owner(name + 1, &grouped, &number))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "\"%.100s\" is not the path of a shared budget",
                           path ? path : "");
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    if (!strata_driver_path_from_here(path, absolute) || strlen(absolute) >= SHARED_PATH)
        return shared_file_refuse_path(path);
    return shared_open_existing(absolute, grouped, (unsigned)number, out);
}

strata_status strata_shared_budget_set_limit(const char *path, size_t bytes)
{
    budget_shared *shared;
    if (bytes > (size_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a shared budget's limit of %s is too large; it must be below 4 EiB",
                           strata_size_text(bytes).text);
    strata_status status = open_path(path, &shared);
    if (status != STRATA_SUCCESS)
        return status;
    status = shared_set_limit(shared, bytes);
    shared_close(shared);
    return status;
}

strata_status strata_shared_budget_remove(const char *path)
{
    budget_shared *shared;
    strata_status status = open_path(path, &shared);
    if (status != STRATA_SUCCESS)
        return status;
    status = shared_remove(shared);
    shared_close(shared);
    return status;
}
