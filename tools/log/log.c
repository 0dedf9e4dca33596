/* `strata log`: prints binary logs of the layer `logging` as a table, CSV, JSON or totals. */
#include "tools/command.h"
#include "tools/log/log_filter.h"
#include "tools/log/log_follow.h"
#include "tools/log/log_print.h"
#include "tools/log/log_reader.h"
#include "tools/plain_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_KIND = 256,
    OPTION_FAILED,
    OPTION_FROM,
    OPTION_TO,
    OPTION_MIN_SIZE,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_SUMMARY,
    OPTION_MAX_MEMORY
};

typedef struct settings {
    const char *program;
    log_filter choice;
    bool csv, json, summary, follow;
    char **paths;
    size_t path_count;
    uint64_t max_memory; /* bytes of host memory for the records */
} settings;

static void read_moment(struct argp_state *state, const char *name, const char *text, log_moment *out)
{
    if (!log_filter_read_moment(text, out))
        argp_error(state,
                   "--%s is \"%s\": expected a time since the first record such as 1.5s, a time of day such as "
                   "13:05:59.25, or 2026-01-31T13:05:59",
                   name, text);
}

static uint64_t read_number(struct argp_state *state, const char *name, const char *text)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno)
        argp_error(state, "--%s is \"%s\": expected a whole number", name, text);
    return value;
}

static void check_stream(struct argp_state *state, const char *text)
{
    bool handle = strncmp(text, "0x", 2) == 0;
    const char *digits = handle ? text + 2 : text;
    const char *set = handle ? "0123456789abcdefABCDEF" : "0123456789";
    errno = 0;
    strtoull(digits, NULL, handle ? 16 : 10);
    if (strcmp(text, "gone") != 0 && (!*digits || strspn(digits, set) != strlen(digits) || errno))
        argp_error(state, "--stream is \"%s\": expected a handle such as 0x55aa, the number of a stream, or gone",
                   text);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_KIND:
        if (!log_filter_read_kinds(text, &to->choice.kinds))
            argp_error(state,
                       "--kind is \"%s\": expected a list of allocate, free, complete, reuse, prepare, finish, use, "
                       "reap, trim, sync, capture, launch, upload and update, separated by commas",
                       text);
        return 0;
    case OPTION_FAILED:
        to->choice.failed = true;
        return 0;
    case 't':
        to->choice.tag = text;
        return 0;
    case 's':
        check_stream(state, text);
        to->choice.stream = text;
        return 0;
    case 'T':
        to->choice.has_thread = true;
        to->choice.thread = read_number(state, "thread", text);
        return 0;
    case OPTION_FROM:
        read_moment(state, "from", text, &to->choice.from);
        return 0;
    case OPTION_TO:
        read_moment(state, "to", text, &to->choice.to);
        return 0;
    case OPTION_MIN_SIZE:
        to->choice.min_size = command_read_size(state, "min-size", text);
        return 0;
    case OPTION_MAX_MEMORY:
        to->max_memory = command_read_size(state, "max-memory", text);
        return 0;
    case OPTION_CSV:
        to->csv = true;
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case OPTION_SUMMARY:
        to->summary = true;
        return 0;
    case 'f':
        to->follow = true;
        return 0;
    case ARGP_KEY_ARGS:
        to->paths = state->argv + state->next;
        to->path_count = (size_t)(state->argc - state->next);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "missing FILE");
        return EINVAL;
    case ARGP_KEY_END:
        if (to->csv && (to->json || to->summary))
            argp_error(state, "--csv cannot be combined with --json or --summary");
        if (to->follow && to->path_count > 1)
            argp_error(state, "--follow takes one file; its rotation is followed");
        if (to->follow && to->path_count && strcmp(to->paths[0], "-") == 0)
            argp_error(state, "--follow takes a file that has a name, not standard input");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"kind", OPTION_KIND, "KINDS", 0,
     "Only these kinds, separated by commas: allocate, free, complete, reuse, prepare, finish, use, reap, trim, sync; "
     "of "
     "graphs: capture, launch, upload, update",
     0},
    {"failed", OPTION_FAILED, NULL, 0, "Only calls that failed", 0},
    {"tag", 't', "NAME", 0, "Only blocks of that tag", 0},
    {"stream", 's', "STREAM", 0, "Only that stream: its handle (0x...), its number, or gone", 0},
    {"thread", 'T', "N", 0, "Only that thread: the system's number or Strata's", 0},
    {"from", OPTION_FROM, "TIME", 0,
     "Only from this time on: 1.5s since the first record, 13:05:59, 2026-01-31T13:05:59", 0},
    {"to", OPTION_TO, "TIME", 0, "Only up to this time", 0},
    {"min-size", OPTION_MIN_SIZE, "SIZE", 0, "Only requests of at least so many bytes, such as 4MiB", 0},
    {"follow", 'f', NULL, 0, "Continue with records that are added, across rotation, until Ctrl-C", 0},
    {"csv", OPTION_CSV, NULL, 0, "Print CSV: the columns of RMM's logs, then Strata's", 0},
    {"json", OPTION_JSON, NULL, 0, "Print a JSON object a line", 0},
    {"summary", OPTION_SUMMARY, NULL, 0, "Print totals in place of records", 0},
    {"max-memory", OPTION_MAX_MEMORY, "SIZE", 0,
     "Most host memory for the records; more is refused, such as what a small compressed file may hold; default: 2GiB",
     0},
    {0},
};

static const char documentation[] =
    "Prints records of the layer \"logging\".\vA FILE is a binary log, plain or gzip; - is standard input. Several "
    "files, such as those of "
    "one rotation, are merged. Late records are sorted into their places. A log that ends within a batch, or whose "
    "compressed file is cut off, is read up to there. Damage is skipped up to the next intact batch. Both are reported "
    "on stderr.\n\nWith --follow, records are printed as they are written, late ones when they come; with --summary, "
    "totals at the end. Ctrl-C or SIGTERM ends it after everything that was written is printed.\n\nExit status: 0 if "
    "everything was read, 1 if a file was damaged or the output could not be written, 2 if nothing was printed because "
    "of bad usage or a file that is missing or not a log.";

/* What was read of all files. */
typedef struct whole {
    strata_log_record *records;
    size_t count;
    uint64_t dropped, torn, damages;
} whole;

/* Appends a file's records, which it may take over. False without host memory. */
static bool append(whole *to, log_contents *from)
{
    if (from->count == 0)
        return true;
    if (to->count == 0) {
        to->records = from->records;
        to->count = from->count;
        from->records = NULL;
        return true;
    }
    strata_log_record *grown = realloc(to->records, (to->count + from->count) * sizeof *grown);
    if (!grown)
        return false;
    memcpy(grown + to->count, from->records, from->count * sizeof *grown);
    to->records = grown;
    to->count += from->count;
    return true;
}

static void say_damage(const char *program, const char *path, const log_contents *contents)
{
    for (uint64_t i = 0; i < contents->damages && i < LOG_DAMAGES; i++)
        fprintf(stderr, "%s: %s: %s\n", program, plain(path).text, contents->damage[i].text);
    if (contents->damages > LOG_DAMAGES)
        fprintf(stderr, "%s: %s: and %" PRIu64 " more places are damaged\n", program, plain(path).text,
                contents->damages - LOG_DAMAGES);
}

static void say_refusal(const settings *from, const char *path, const log_problem *problem)
{
    fprintf(stderr, "%s: %s: %s%s\n", from->program, plain(path).text, problem->text,
            problem->too_large ? "; --max-memory raises the limit" : "");
}

/* Each file has the number of records dropped when it was written; files of one process have the process's number. */
static bool read_files(const settings *from, whole *to)
{
    bool good = true;
    for (size_t i = 0; i < from->path_count; i++) {
        log_contents contents;
        log_problem problem;
        const uint64_t left = from->max_memory - to->count * sizeof *to->records;
        if (!log_read_file(from->paths[i], to->count ? left / 2 : left, &contents, &problem)) { /* copied by append */
            say_refusal(from, from->paths[i], &problem);
            good = false;
            continue;
        }
        if (contents.torn)
            fprintf(stderr, "%s: %s: the last %" PRIu64 " bytes are an incomplete batch: the writer was interrupted\n",
                    from->program, plain(from->paths[i]).text, contents.torn);
        say_damage(from->program, from->paths[i], &contents);
        to->damages += contents.damages;
        to->dropped = contents.dropped > to->dropped ? contents.dropped : to->dropped;
        to->torn += contents.torn;
        if (!append(to, &contents)) {
            fprintf(stderr, "%s: out of host memory\n", from->program);
            good = false;
        }
        log_contents_free(&contents);
    }
    log_problem problem;
    if (!good || log_sort_within(to->records, to->count, from->max_memory, &problem))
        return good;
    say_refusal(from, "all files", &problem);
    return false;
}

static const log_style *style_of(const settings *from)
{
    return from->csv ? &log_style_csv : from->json ? &log_style_json : &log_style_table;
}

static bool print_records(const settings *from, const whole *all)
{
    const log_style *style = style_of(from);
    bool good = true;
    style->begin(stdout);
    for (size_t i = 0; i < all->count && good; i++)
        if (log_filter_takes(&from->choice, &all->records[i]))
            good = style->record(stdout, &all->records[i]);
    return good;
}

static bool print_totals(const settings *from, const whole *all)
{
    log_totals totals = {.dropped = all->dropped, .torn = all->torn};
    for (size_t i = 0; i < all->count; i++)
        if (log_filter_takes(&from->choice, &all->records[i]))
            log_totals_add(&totals, &all->records[i]);
    if (from->json)
        return log_totals_print_json(stdout, &totals);
    log_totals_print(stdout, &totals);
    return true;
}

/* `reason`: errno. */
static int say_failure(const settings *from, int reason)
{
    if (ferror(stdout))
        return command_lose_output(from->program, "the output", reason);
    fprintf(stderr, "%s: out of host memory\n", from->program);
    return COMMAND_FOUND;
}

/* ---- following a log ---- */

typedef struct following {
    settings *from;
    log_totals totals;
    const log_style *style;
    bool begun, any, failed;
    int reason; /* errno of a failure */
} following;

static bool take_records(const log_contents *contents, void *data)
{
    following *self = data;
    const log_filter *choice = &self->from->choice;
    if (contents->count && !self->any)
        log_filter_begin(&self->from->choice, contents->records[0].wall_ns);
    self->any |= contents->count != 0;
    self->totals.torn += contents->torn; /* known at a file's end */
    self->totals.dropped = contents->dropped > self->totals.dropped ? contents->dropped : self->totals.dropped;
    errno = 0;
    if (!self->begun && !self->from->summary)
        self->style->begin(stdout); /* not above a refusal */
    self->begun = true;
    for (size_t i = 0; i < contents->count && !self->failed; i++) {
        if (!log_filter_takes(choice, &contents->records[i]))
            continue;
        if (self->from->summary)
            log_totals_add(&self->totals, &contents->records[i]);
        else
            self->failed = !self->style->record(stdout, &contents->records[i]);
    }
    self->failed |= fflush(stdout) != 0;
    self->reason = errno;
    return !self->failed;
}

static void say_problem(const char *path, const char *text, void *data)
{
    const following *self = data;
    fprintf(stderr, "%s: %s: %s\n", self->from->program, plain(path).text, text);
}

static bool print_followed_totals(const following *self)
{
    if (self->from->json)
        return log_totals_print_json(stdout, &self->totals);
    log_totals_print(stdout, &self->totals);
    return true;
}

static int follow_log(settings *from)
{
    following self = {.from = from, .style = style_of(from)};
    const log_follow_sink sink = {.records = take_records, .say = say_problem, .data = &self};
    uint64_t damages;
    log_follow_end end = log_follow(from->paths[0], &sink, &damages);
    if (end == LOG_FOLLOW_REFUSED)
        return self.any ? COMMAND_FOUND : COMMAND_USAGE;
    if (from->summary && !self.failed) {
        errno = 0;
        self.failed = !print_followed_totals(&self);
        self.reason = errno;
    }
    if (self.failed)
        return say_failure(from, self.reason);
    return damages ? COMMAND_FOUND : COMMAND_FINE;
}

static const struct argp usage = {options, parse, "FILE...", documentation, command_common, NULL, NULL};

static const command_values values[] = {
    {"kind", "allocate free complete reuse prepare finish use reap trim sync capture launch upload update", false},
    {"stream", "gone", false},
    {"", NULL, true},
    {0},
};

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0], .max_memory = LOG_MEMORY};
    whole all = {0};
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    if (from.follow)
        return follow_log(&from);
    int status = COMMAND_USAGE;
    if (read_files(&from, &all)) {
        log_filter_begin(&from.choice, all.count ? all.records[0].wall_ns : 0);
        errno = 0;
        status = (from.summary ? print_totals : print_records)(&from, &all) ? COMMAND_FINE : COMMAND_FOUND;
        if (status == COMMAND_FOUND)
            say_failure(&from, errno);
        else if (all.damages)
            status = COMMAND_FOUND;
    }
    free(all.records);
    return status;
}

const command command_log = {"log",  "strata log", "print, filter and convert records of the layer \"logging\"",
                             &usage, values,       run};
