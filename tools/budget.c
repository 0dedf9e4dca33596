/* `strata budget`: shared limits, the processes that use them, and setting them. */
#include "tools/command.h"
#include "tools/json_values.h"
#include "tools/size_words.h"

#include <strata/budget.h>
#include <strata/stack.h>

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_LIMIT = 256, OPTION_DEVICE, OPTION_JSON, UUID_TEXT = 33, MATCHES = 64 };

typedef struct settings {
    const char *program;
    const char *name;   /* NULL: all */
    const char *device; /* prefix of its uuid; NULL: any */
    bool set, json;
    uint64_t limit;
} settings;

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_LIMIT:
        if (strcmp(text, "none") != 0 && strata_parse_size(text, &to->limit) != STRATA_SUCCESS)
            argp_error(state, "--limit: %s", strata_last_error()->message);
        to->set = true;
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
        if (to->set && !to->name)
            argp_error(state, "--limit: of which budget? Name it");
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

/* Results of the visits. */
typedef struct gathered {
    const settings *from;
    json_t *list; /* with --json */
    size_t shown, problems;
    size_t matches; /* --limit: budgets to be set */
    char *paths[MATCHES];
    bool failed;
} gathered;

/* An unreadable budget is shown unless a name was given. */
static bool is_asked_for(const settings *from, const strata_shared_budget *budget)
{
    char uuid[UUID_TEXT];
    if (!budget->name)
        return !from->name;
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
        printf("    %-20s %s\n", process->tags[i].name[0] ? process->tags[i].name : "(no tag)",
               words_of_bytes(process->tags[i].in_use).text);
}

static void print_budget(const strata_shared_budget *budget)
{
    char uuid[UUID_TEXT];
    write_uuid(budget->device_uuid, uuid);
    printf("%s\n", budget->name);
    printf("  device            %s\n", uuid);
    printf("  limit             %s\n", budget->limit ? words_of_bytes(budget->limit).text : "none");
    printf("  in use            %s by %zu process%s\n", words_of_bytes(budget->in_use).text, budget->process_count,
           budget->process_count == 1 ? "" : "es");
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
        json_array_append_new(processes,
                              json_pack("{s:i, s:b, s:o, s:o, s:o}", "pid", process->pid, "alive", process->alive,
                                        "in_use_bytes", json_count(process->in_use), "leased_bytes",
                                        json_count(process->leased), "tags", tags_of(process)));
    }
    write_uuid(budget->device_uuid, uuid);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "name", json_text(budget->name), "device", uuid, "path",
                     json_text(budget->path), "limit_bytes", json_count(budget->limit), "in_use_bytes",
                     json_count(budget->in_use), "leased_bytes", json_count(budget->leased), "processes", processes);
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
        fprintf(stderr, "%s: %s\n", all->from->program, budget->problem);
}

static void gather(const strata_shared_budget *budget, void *data)
{
    gathered *all = data;
    if (!budget->name || !is_asked_for(all->from, budget) || all->matches == MATCHES)
        return;
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
    fprintf(stderr, "%s: no host memory\n", all->from->program);
    return COMMAND_USAGE;
}

/* Whether the requested budget exists. */
static int check_found(const settings *from, size_t found)
{
    if (found || !from->name)
        return COMMAND_FINE;
    fprintf(stderr, "%s: there is no shared budget \"%s\"%s%s of yours\n", from->program, from->name,
            from->device ? " on a device whose uuid begins with " : "", from->device ? from->device : "");
    return COMMAND_USAGE;
}

static int set_limit(const settings *from)
{
    gathered all = {.from = from};
    int status = visit_all(&all, gather);
    if (status == COMMAND_FINE)
        status = check_found(from, all.matches);
    if (status == COMMAND_FINE && all.matches > 1) {
        fprintf(stderr,
                "%s: there are %zu budgets \"%s\": choose one with --device, or by its path (--json shows it)\n",
                from->program, all.matches, from->name);
        status = COMMAND_USAGE;
    }
    if (status == COMMAND_FINE && strata_shared_budget_set_limit(all.paths[0], (size_t)from->limit) != STRATA_SUCCESS) {
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
        printf("%s", json_dumpf(all.list, stdout, JSON_INDENT(2)) == 0 ? "\n" : "");
    json_decref(all.list);
    return status == COMMAND_FINE && all.problems ? COMMAND_FOUND : status;
}

int command_budget(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"limit", OPTION_LIMIT, "SIZE", 0, "Set the limit of the budget NAME, such as 8GiB; \"none\" takes it away", 0},
        {"device", OPTION_DEVICE, "UUID", 0, "Only budgets of a device whose uuid begins so", 0},
        {"json", OPTION_JSON, NULL, 0, "List as a JSON array", 0},
        {0},
    };
    static const char documentation[] =
        "Lists the limits that processes share, with budget(shared=NAME), and who uses them; or sets one."
        "\vShown are budgets of this user and of the user's groups. A limit that is lower than what is in use takes "
        "nothing away: nothing more is granted until enough was freed. The files are in /dev/shm, or where "
        "STRATA_SHARED_DIR says.\n\n"
        "Exit status: 0 if all went well, 1 if a file is damaged or could not be changed, 2 if there is no such budget "
        "or the usage is bad.";
    static const struct argp argp = {options, parse, "[NAME|PATH]", documentation, NULL, NULL, NULL};
    settings from = {.program = argv[0]};
    if (argp_parse(&argp, argc, argv, 0, NULL, &from) != 0)
        return COMMAND_USAGE;
    return from.set ? set_limit(&from) : list(&from);
}
