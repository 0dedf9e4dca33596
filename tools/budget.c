/* `strata budget`: shows shared limits and the processes using them, sets limits, removes unused budgets. */
#include "tools/command.h"
#include "tools/json_values.h"
#include "tools/plain_text.h"
#include "tools/size_words.h"

#include "core/base/size_text.h"

#include <strata/budget.h>
#include <strata/stack.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPTION_LIMIT = 256, OPTION_REMOVE, OPTION_WATCH, OPTION_DEVICE, OPTION_JSON, UUID_TEXT = 33, MATCHES = 64 };

typedef struct settings {
    const char *program;
    const char *name;   /* NULL: all */
    const char *device; /* prefix of its uuid; NULL: any */
    bool set, remove, json;
    uint64_t limit;
    uint64_t watch; /* nanoseconds between two listings; 0: one */
} settings;

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_LIMIT:
        to->limit = 0; /* none */
        if (strcmp(text, "none") != 0 && strata_parse_size(text, &to->limit) != STRATA_SUCCESS)
            argp_error(state, "--limit: %s", strata_last_error()->message);
        if (strcmp(text, "none") != 0 && !to->limit)
            argp_error(state, "--limit: expected more than 0 bytes, or none");
        to->set = true;
        return 0;
    case OPTION_REMOVE:
        to->remove = true;
        return 0;
    case OPTION_WATCH:
        to->watch = UINT64_C(1000000000);
        if (text && (!strata_read_duration(text, strlen(text), &to->watch) || !to->watch))
            argp_error(state, "--watch: invalid interval \"%s\"; expected a time above 0, such as 500ms", text);
        return 0;
    case OPTION_DEVICE:
        to->device = text;
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (to->name)
            argp_error(state, "unexpected \"%s\"", text);
        to->name = text;
        return 0;
    case ARGP_KEY_END:
        if ((to->set || to->remove) && !to->name)
            argp_error(state, "%s needs the NAME of a budget", to->set ? "--limit" : "--remove");
        if (to->set + to->remove + (to->watch != 0) > 1)
            argp_error(state, "--limit, --remove and --watch cannot be combined");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void write_uuid(const unsigned char uuid[16], char text[UUID_TEXT])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

typedef struct gathered {
    const settings *from;
    json_t *list; /* with --json */
    size_t shown, problems;
    size_t matches; /* --limit: budgets to be set */
    char *paths[MATCHES];
    bool failed;
} gathered;

/* Whether a file that cannot be read is asked for: by its name, "strata-u1000-NAME-UUID". */
static bool is_asked_for_by_path(const settings *from, const char *path)
{
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *uuid = strrchr(file, '-');
    const char *name = strncmp(file, "strata-", 7) == 0 ? strchr(file + 7, '-') : NULL;
    if (!name || !uuid || uuid <= name)
        return !from->name && !from->device;
    size_t length = (size_t)(uuid - ++name);
    bool named = !from->name || strcmp(from->name, path) == 0 ||
                 (strlen(from->name) == length && strncmp(from->name, name, length) == 0);
    return named && (!from->device || strncmp(uuid + 1, from->device, strlen(from->device)) == 0);
}

static bool is_asked_for(const settings *from, const strata_shared_budget *budget)
{
    char uuid[UUID_TEXT];
    if (!budget->name)
        return is_asked_for_by_path(from, budget->path);
    write_uuid(budget->device_uuid, uuid);
    return (!from->name || strcmp(from->name, budget->name) == 0 || strcmp(from->name, budget->path) == 0) &&
           (!from->device || strncmp(uuid, from->device, strlen(from->device)) == 0);
}

/* ---- text ---- */

static void print_process(const strata_shared_process *process)
{
    printf("  process %-9d %s%s\n", process->pid, words_of_bytes(process->in_use).text,
           process->alive
               ? ""
               : ", dead: counts until its memory is back with the driver and another process comes or needs room");
    for (size_t i = 0; i < process->tag_count; i++)
        printf("    %-20s %s\n", process->tags[i].name[0] ? plain(process->tags[i].name).text : "(no tag)",
               words_of_bytes(process->tags[i].in_use).text);
    if (process->freed)
        printf("    of these, freed      %s, which it has not looked for and others may have\n",
               words_of_bytes(process->freed).text);
}

static void print_budget(const strata_shared_budget *budget)
{
    char uuid[UUID_TEXT];
    write_uuid(budget->device_uuid, uuid);
    size_t alive = 0;
    for (size_t i = 0; i < budget->process_count; i++)
        alive += budget->processes[i].alive;
    printf("%s\n", plain(budget->name).text);
    printf("  device            %s\n", uuid);
    printf("  limit             %s\n", budget->limit ? words_of_bytes(budget->limit).text : "none");
    printf("  in use            %s by %zu process%s\n", words_of_bytes(budget->in_use).text, alive,
           alive == 1 ? "" : "es");
    if (alive < budget->process_count)
        printf("  of the dead       %s of %zu process%s\n", words_of_bytes(budget->dead_in_use).text,
               budget->process_count - alive, budget->process_count - alive == 1 ? "" : "es");
    for (size_t i = 0; i < budget->process_count; i++)
        print_process(&budget->processes[i]);
}

/* ---- JSON ---- */

static json_t *json_count(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *tags_of(const strata_shared_process *process)
{
    json_t *tags = json_object();
    for (size_t i = 0; i < process->tag_count; i++) {
        char room[1024];
        const char *name = json_plain(process->tags[i].name, room, sizeof room);
        json_object_set_new(tags, name, json_count(process->tags[i].in_use));
    }
    return tags;
}

static json_t *json_of(const strata_shared_budget *budget)
{
    char uuid[UUID_TEXT];
    if (!budget->name)
        return json_pack("{s:o, s:o}", "path", json_text(budget->path), "problem", json_text(budget->problem));
    json_t *processes = json_array();
    for (size_t i = 0; i < budget->process_count; i++) {
        const strata_shared_process *process = &budget->processes[i];
        json_array_append_new(processes, json_pack("{s:i, s:b, s:o, s:o, s:o, s:o}", "pid", process->pid, "alive",
                                                   process->alive, "in_use_bytes", json_count(process->in_use),
                                                   "leased_bytes", json_count(process->leased), "freed_bytes",
                                                   json_count(process->freed), "tags", tags_of(process)));
    }
    write_uuid(budget->device_uuid, uuid);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(budget->name), "device", uuid,
                     "path", json_text(budget->path), "limit_bytes", json_count(budget->limit), "in_use_bytes",
                     json_count(budget->in_use), "dead_in_use_bytes", json_count(budget->dead_in_use), "leased_bytes",
                     json_count(budget->leased), "processes", processes);
}

/* ---- visits ---- */

static void show(const strata_shared_budget *budget, void *data)
{
    gathered *all = data;
    if (!is_asked_for(all->from, budget))
        return;
    all->shown++;
    all->problems += !budget->name;
    if (all->list)
        all->failed |= json_array_append_new(all->list, json_of(budget)) != 0;
    else if (budget->name)
        print_budget(budget);
    if (!budget->name)
        fprintf(stderr, "%s: %s\n", all->from->program, plain(budget->problem).text);
}

static void gather(const strata_shared_budget *budget, void *data)
{
    gathered *all = data;
    if (!is_asked_for(all->from, budget) || all->matches == MATCHES)
        return;
    if (!budget->name) {
        all->problems++;
        fprintf(stderr, "%s: %s%s\n", all->from->program, plain(budget->problem).text,
                all->from->remove ? "; rm removes it, as it cannot be told whether processes use it" : "");
        return;
    }
    all->paths[all->matches] = strdup(budget->path);
    all->failed |= !all->paths[all->matches++];
}

static int visit_all(gathered *all, void (*visit)(const strata_shared_budget *budget, void *data))
{
    if (strata_shared_budget_visit(visit, all) != STRATA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", all->from->program, strata_last_error()->message);
        return COMMAND_USAGE;
    }
    if (!all->failed)
        return COMMAND_FINE;
    fprintf(stderr, "%s: out of host memory\n", all->from->program);
    return COMMAND_USAGE;
}

static int check_found(const settings *from, size_t found)
{
    if (found || !from->name)
        return COMMAND_FINE;
    fprintf(stderr, "%s: no shared budget \"%s\"%s%s\n", from->program, from->name,
            from->device ? " on a device whose uuid begins with " : "", from->device ? from->device : "");
    return COMMAND_USAGE;
}

/* Sets the limit, or removes the budget. */
static strata_status change_budget(const settings *from, const char *path)
{
    return from->remove ? strata_shared_budget_remove(path) : strata_shared_budget_set_limit(path, (size_t)from->limit);
}

static int change(const settings *from)
{
    gathered all = {.from = from};
    int status = visit_all(&all, gather);
    if (status == COMMAND_FINE)
        status = all.problems && !all.matches ? COMMAND_FOUND : check_found(from, all.matches);
    if (status == COMMAND_FINE && all.matches > 1) {
        fprintf(stderr,
                "%s: there are %zu budgets \"%s\": choose one with --device, or by its path (--json shows it)\n",
                from->program, all.matches, from->name);
        status = COMMAND_USAGE;
    }
    if (status == COMMAND_FINE && change_budget(from, all.paths[0]) != STRATA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", from->program, strata_last_error()->message);
        status = COMMAND_FOUND;
    }
    for (size_t i = 0; i < all.matches; i++)
        free(all.paths[i]);
    return status;
}

static int list(const settings *from)
{
    gathered all = {.from = from, .list = from->json ? json_array() : NULL};
    int status = visit_all(&all, show);
    if (status == COMMAND_FINE)
        status = check_found(from, all.shown);
    if (status == COMMAND_FINE && !all.shown && !from->json)
        printf("no shared budgets\n");
    if (status == COMMAND_FINE && from->json)
        printf("%s", json_dumpf(all.list, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0 ? "\n" : "");
    json_decref(all.list);
    return status == COMMAND_FINE && all.problems ? COMMAND_FOUND : status;
}

/* Lists again and again, until a signal, or until the output cannot be written. */
static int watch(const settings *from)
{
    const struct timespec pause = {.tv_sec = (time_t)(from->watch / 1000000000),
                                   .tv_nsec = (long)(from->watch % 1000000000)};
    for (;;) {
        if (isatty(STDOUT_FILENO))
            printf("\033[H\033[2J");
        int status = list(from);
        if (status == COMMAND_USAGE)
            return status;
        if (fflush(stdout) != 0 || ferror(stdout))
            return command_lose_output(from->program, "the list", errno);
        nanosleep(&pause, NULL);
    }
}

static const struct argp_option options[] = {
    {"limit", OPTION_LIMIT, "SIZE", 0, "Set the limit of the budget NAME, such as 8GiB; \"none\" takes it away", 0},
    {"remove", OPTION_REMOVE, NULL, 0, "Remove the budget NAME, which no living process may use", 0},
    {"watch", OPTION_WATCH, "TIME", OPTION_ARG_OPTIONAL, "List again and again, each second or after TIME", 0},
    {"device", OPTION_DEVICE, "UUID", 0, "Only budgets of a device whose uuid begins so", 0},
    {"json", OPTION_JSON, NULL, 0, "List as a JSON array", 0},
    {0},
};
static const char documentation[] =
    "Lists the limits that processes share, with budget(shared=NAME), and the processes that use them; or sets a "
    "limit, or removes a budget.\vBudgets of this user and of the user's groups are shown. A limit below what is in "
    "use takes nothing away: "
    "no more is granted until enough was freed. The files are in /dev/shm, or in the folder STRATA_SHARED_DIR.\n\nExit "
    "status: 0 if all went well, 1 if a file is damaged or could not be changed, 2 if the budget does not exist or the "
    "usage is bad.";
static const struct argp usage = {options, parse, "[NAME|PATH]", documentation, command_common, NULL, NULL};

static const command_values values[] = {{"", NULL, true}, {0}};

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0]};
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    return from.set || from.remove ? change(&from) : from.watch ? watch(&from) : list(&from);
}

const command command_budget = {"budget", "strata budget", "limits that processes share: list, set or remove them",
                                &usage,   values,          run};
