/* The `strata` command as a person or a script meets it: exit status, what goes to stdout and stderr, and the keys of
 * its JSON. The program stands beside this one. */
#include "support/command.h"

#include "resources/logging/format.h"
#include "tools/json_values.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>

#define SMALL_TRACE                                                                             \
    TRACE_HEADER "alloc,0,1000,0,0\nalloc,1,300000,1,10\nuse,1,300000,0,20\nfree,0,1000,0,30\n" \
                 "wait,0,0,1,40\nfree,1,300000,1,50\nalloc,2,77,1,60\nsync,0,0,1,70\n"

/* ---- help and usage ---- */

static void help_and_version_go_to_stdout(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *words;
    } asked[] = {
        {"--help", "replay"},      {"--version", "strata 0."},        {"replay --help", "--touch"},
        {"info --help", "--json"}, {"replay --version", "strata 0."},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        outcome *of = run(asked[i].line);
        assert_outcome(of, 0, asked[i].words, "");
        assert_string_equal(of->err, "");
        free(of);
    }
}

/* A log that `strata replay` made of the small trace, in a folder of its own. */
static scratch_file make_log_file(const char *more)
{
    scratch_file trace = scratch_write(SMALL_TRACE), log = scratch_write("");
    char line[512];
    snprintf(line, sizeof line, "replay --driver sim --stack logging(file=%s,existing=replace%s),async", log.path,
             more);
    outcome *of = run_on(line, &trace);
    assert_outcome(of, 0, "operations", "");
    free(of);
    scratch_remove(&trace);
    return log;
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

static void a_log_is_printed_filtered_and_converted(void **state)
{
    (void)state;
    scratch_file log = make_log_file(",duration=on");
    static const struct {
        const char *line;
        const char *words;
        size_t lines;
    } asked[] = {
        {"log --kind allocate", "300000", 4}, /* and a line above them */
        {"log --kind allocate,free", "complete", 7},
        {"log --kind free,allocate --min-size 100KiB", "300000", 3},
        {"log --failed", "tag, and more", 1},
        {"log --tag nothing", "time", 1},
        {"log --stream gone", "time", 1},
        {"log --stream 0x7", "time", 1},
        {"log --thread 999999999", "time", 1},
        {"log --from 100s", "time", 1},
        {"log --to 2001-01-01T00:00:00", "time", 1},
        {"log --csv --kind allocate --from 0s", "Thread,Time,Action,Pointer,Size,Stream,", 4},
        {"log --json --kind allocate", "\"requested\":300000", 3},
        {"log --summary", "peak live        294 KiB", 12},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        outcome *of = run_on(asked[i].line, &log);
        bool whole = strstr(asked[i].line, "summary") != NULL;
        assert_outcome(of, 0, strstr(asked[i].words, "complete") ? "" : asked[i].words, "");
        assert_true(whole ? lines_of(of->out) >= asked[i].lines : lines_of(of->out) == asked[i].lines);
        assert_string_equal(of->err, "");
        free(of);
    }
    scratch_remove(&log);
}

static json_t *json_of(const char *text)
{
    json_error_t problem;
    json_t *read = json_loads(text, JSON_DISABLE_EOF_CHECK, &problem);
    assert_non_null(read);
    return read;
}

static void a_log_is_replayed_as_the_trace_that_it_was_made_from(void **state)
{
    (void)state;
    static const char *const more[] = {"", ",format=csv"};
    for (size_t i = 0; i < 2; i++) {
        scratch_file log = make_log_file(more[i]);
        outcome *of = run_on("replay --driver sim --stack direct --json", &log);
        assert_outcome(of, 0, "{", "");
        json_t *report = json_of(of->out);
        assert_int_equal(json_integer_value(json_object_get(report, "allocations")), 3);
        assert_int_equal(json_integer_value(json_object_get(report, "frees")), 3); /* one at the end of the pass */
        assert_int_equal(json_integer_value(json_object_get(report, "uses")), 1);
        assert_int_equal(json_integer_value(json_object_get(report, "syncs")), 1);
        assert_int_equal(json_integer_value(json_object_get(report, "failures")), 0);
        assert_int_equal(json_integer_value(json_object_get(report, "recorded_strays")), 0);
        assert_int_equal(json_integer_value(json_object_get(report, "peak_live_bytes")), 301000);
        json_decref(report);
        free(of);
        scratch_remove(&log);
    }
}

/* As the other commands say what they cannot read. */
static void a_trace_that_is_missing_is_named_by_the_command(void **state)
{
    (void)state;
    outcome *result = run("replay nowhere.csv");
    assert_outcome(result, 2, "", "strata replay: nowhere.csv: No such file");
    free(result);
}

static void a_log_that_is_missing_damaged_or_cut_off_is_said_to_be(void **state)
{
    (void)state;
    scratch_file log = make_log_file("");
    char bytes[4096];
    FILE *file = fopen(log.path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes / 2, file);
    fclose(file);
    scratch_file cut = scratch_write_bytes(bytes, size - 5);
    memcpy(bytes + size, bytes + LOG_FILE_HEADER, LOG_BATCH_HEADER + 1); /* the beginning of another batch */
    scratch_file longer = scratch_write_bytes(bytes, size + LOG_BATCH_HEADER + 1);
    bytes[LOG_FILE_HEADER + LOG_BATCH_HEADER + 8] ^= 0x40; /* within the first batch: there may be two */
    scratch_file damaged = scratch_write_bytes(bytes, size);
    outcome *of = run("log /nowhere/run.slog");
    assert_outcome(of, 2, "", "/nowhere/run.slog: No such file or directory");
    assert_string_equal(of->out, "");
    free(of);
    scratch_file empty = scratch_write("");
    of = run_on("log", &empty);
    assert_outcome(of, 2, "", ": the file is empty");
    free(of);
    scratch_remove(&empty);
    scratch_file csv = scratch_write("Thread,Time,Action,Pointer,Size,Stream\n");
    of = run_on("log", &csv);
    assert_outcome(of, 2, "", ": this is a CSV log; strata log reads binary logs, strata replay both");
    free(of);
    scratch_remove(&csv);
    of = run_on("log", &damaged);
    assert_outcome(of, 1, "requested", " are left out");
    free(of);
    of = run_on("replay --driver sim", &damaged);
    assert_outcome(of, 2, "", "byte ");
    free(of);
    of = run_on("log --json", &cut);
    assert_outcome(of, 0, "", "an incomplete batch: the writer was interrupted");
    free(of);
    of = run_on("replay --driver sim --stack direct", &longer);
    assert_outcome(of, 0, "not in the log   everything after its last 41 bytes, a partial batch or line", "");
    free(of);
    scratch_remove(&longer);
    scratch_remove(&cut);
    scratch_remove(&damaged);
    scratch_remove(&log);
}

/* Runs `strata` with its standard input from the file. */
static outcome *run_from(const char *line, const char *input)
{
    int before = dup(STDIN_FILENO), file = open(input, O_RDONLY | O_CLOEXEC);
    assert_true(before >= 0 && file >= 0 && dup2(file, STDIN_FILENO) == STDIN_FILENO);
    outcome *of = run(line);
    assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
    close(before);
    close(file);
    return of;
}

static void a_trace_and_a_log_can_come_from_standard_input(void **state)
{
    (void)state;
    scratch_file trace = scratch_write(SMALL_TRACE), log = make_log_file("");
    outcome *of = run_from("replay --driver sim -", trace.path);
    assert_outcome(of, 0, "operations       8", "");
    free(of);
    of = run_from("replay --driver sim -", log.path);
    assert_outcome(of, 0, "operations", "");
    free(of);
    outcome *named = run_on("log --csv", &log);
    of = run_from("log --csv -", log.path);
    assert_outcome(of, 0, named->out, "");
    assert_string_equal(of->out, named->out);
    free(of);
    free(named);
    of = run_from("log -", "/proc/self/mem"); /* its first page cannot be read */
    assert_outcome(of, 2, "", "-: read error: Input/output error");
    free(of);
    scratch_remove(&trace);
    scratch_remove(&log);
}

static void bad_usage_is_status_2_with_a_reason(void **state)
{
    (void)state;
    scratch_file file = scratch_write(SMALL_TRACE);
    static const struct {
        const char *line;
        const char *words;
    } wrong[] = {
        {"", "missing command"},
        {"fly", "unknown command \"fly\""},
        {"--fly", "unrecognized option"},
        {"info now", "unexpected \"now\""},
        {"replay", "missing TRACE"},
        {"replay --fly", "unrecognized option"},
        {"replay --share 101", "from 0 to 100"},
        {"replay --share half", "from 0 to 100"},
        {"replay --threads 0", "from 1 to 1024"},
        {"replay --repeat -1", "--repeat is \"-1\""},
        {"replay --device x", "--device is \"x\""},
        {"replay --max-memory much", "--max-memory is \"much\": expected a size"},
        {"log", "missing FILE"},
        {"log --max-memory -1 x", "--max-memory is \"-1\": expected a size"},
        {"log --kind fly x", "--kind is \"fly\""},
        {"log --from noon x", "--from is \"noon\""},
        {"log --stream blue x", "--stream is \"blue\""},
        {"log --stream 0x10000000000000000 x", "--stream is \"0x10000000000000000\""},
        {"log --thread one x", "--thread is \"one\""},
        {"log --min-size big x", "--min-size is \"big\""},
        {"log --csv --json x", "--csv cannot be combined with"},
        {"log --follow -", "--follow takes a file that has a name, not standard input"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bool has_trace = strncmp(wrong[i].line, "replay --", 9) == 0;
        outcome *of = has_trace ? run_on(wrong[i].line, &file) : run(wrong[i].line);
        assert_outcome(of, 2, "", wrong[i].words);
        assert_string_equal(of->out, "");
        free(of);
    }
    scratch_remove(&file);
}

static void files_beyond_the_limit_of_host_memory_are_refused_and_the_option_is_named(void **state)
{
    (void)state;
    scratch_file trace = scratch_write(SMALL_TRACE), log = make_log_file("");
    outcome *of = run_on("replay --driver sim --max-memory 1KiB", &trace);
    assert_outcome(of, 2, "",
                   "the trace needs more than 1 KiB (1024 bytes) of host memory; --max-memory raises the limit");
    free(of);
    of = run_on("replay --driver sim --max-memory 1KiB", &log);
    assert_outcome(of, 2, "", "; --max-memory raises the limit");
    free(of);
    of = run_on("replay --driver sim --max-memory 4MiB", &trace);
    assert_outcome(of, 0, "operations       8", "");
    free(of);
    of = run_on("log --max-memory 100", &log);
    assert_outcome(of, 2, "", "the records need more than 100 bytes of host memory; --max-memory raises the limit");
    free(of);
    scratch_remove(&trace);
    scratch_remove(&log);
}

static void what_cannot_be_started_is_status_2_with_a_reason(void **state)
{
    (void)state;
    scratch_file file = scratch_write(SMALL_TRACE);
    static const struct {
        const char *line;
        const char *words;
    } wrong[] = {
        {"replay --driver /nowhere/libcuda.so", "/nowhere/libcuda.so"},
        {"replay --driver gpu", "expected cuda, sim, auto"},
        {"replay --device 999", "999"},
        {"replay --stack nonsense", "nonsense"},
        {"replay --stack async(", "character 7"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        outcome *of = run_on(wrong[i].line, &file);
        assert_outcome(of, 2, "", wrong[i].words);
        assert_string_equal(of->out, "");
        free(of);
    }
    scratch_remove(&file);
}

static void output_that_is_lost_is_status_1_with_the_reason(void **state)
{
    (void)state;
    scratch_file file = scratch_write(SMALL_TRACE), log = make_log_file("");
    char budgets[] = "/tmp/strata-command-XXXXXX"; /* none of other processes', of which there would be more to say */
    assert_non_null(mkdtemp(budgets));
    setenv("STRATA_SHARED_DIR", budgets, 1);
    const struct {
        const char *line;
        const scratch_file *on;
    } asked[] = {
        {"--help", NULL},        {"--version", NULL},           {"info", NULL},
        {"info --json", NULL},   {"info --help", NULL},         {"replay --help", NULL},
        {"replay", &file},       {"replay --json", &file},      {"log", &log},
        {"log --json", &log},    {"log --csv", &log},           {"log --summary", &log},
        {"log --follow", &log},  {"log --follow --json", &log}, {"budget", NULL},
        {"budget --json", NULL}, {"budget --watch=1ms", NULL},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s %s", asked[i].line, asked[i].on ? asked[i].on->path : "");
        outcome *of = run_into(line, "/dev/full");
        assert_outcome(of, 1, "", "could not be written: No space left on device\n");
        assert_ptr_equal(strchr(of->err, '\n') + 1, of->err + strlen(of->err)); /* once */
        free(of);
    }
    unsetenv("STRATA_SHARED_DIR");
    rmdir(budgets);
    scratch_remove(&file);
    scratch_remove(&log);
}

/* A name of a file is from outside: an archive may have any. */
static void names_with_control_characters_are_shown_and_not_obeyed(void **state)
{
    (void)state;
    char folder[] = "/tmp/strata-command-XXXXXX", line[512], path[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/\033[31m", folder);
    static const char *const lines[] = {"log", "log --follow", "replay --driver sim", "replay --driver sim absent"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        snprintf(line, sizeof line, "%s %s", lines[i], path);
        outcome *of = run(line);
        assert_outcome(of, 2, "", "/\\x1b[31m: No such file");
        assert_null(strchr(of->err, '\033'));
        free(of);
    }
    FILE *trace = fopen(path, "w");
    assert_non_null(trace);
    fputs(SMALL_TRACE, trace);
    fclose(trace);
    snprintf(line, sizeof line, "replay --driver sim --stack fault(every=1,operation=allocate),pool %s", path);
    outcome *of = run(line);
    assert_outcome(of, 1, "/\\x1b[31m:2: allocate of id 0", "");
    assert_null(strchr(of->out, '\033'));
    free(of);
    snprintf(line, sizeof line, "log %s", path);
    of = run(line);
    assert_outcome(of, 2, "", "/\\x1b[31m: byte 0: not a Strata log");
    free(of);
    unlink(path);
    rmdir(folder);
}

static void the_drivers_name_is_shown_and_not_obeyed(void **state)
{
    (void)state;
    char folder[] = "/tmp/strata-command-XXXXXX", path[128], library[PATH_MAX];
    const char *before = getenv("STRATA_DRIVER");
    char *kept = before ? strdup(before) : NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/\033[31m.so", folder);
    snprintf(library, sizeof library, "%.*s/../lib/libstrata-sim.so.0", (int)(strrchr(program, '/') - program),
             program);
    assert_int_equal(symlink(library, path), 0);
    setenv("STRATA_DRIVER", path, 1);
    outcome *of = run("info");
    assert_outcome(of, 0, "(STRATA_DRIVER is /tmp/strata-command-", "");
    assert_non_null(strstr(of->out, "\\x1b[31m.so"));
    assert_null(strchr(of->out, '\033'));
    free(of);
    if (kept)
        setenv("STRATA_DRIVER", kept, 1);
    else
        unsetenv("STRATA_DRIVER");
    free(kept);
    unlink(path);
    rmdir(folder);
}

static void with_stdout_closed_nothing_is_printed_into_the_files_that_are_opened(void **state)
{
    (void)state;
    scratch_file trace = scratch_write(SMALL_TRACE), log = scratch_write("");
    char line[512], written[OUTPUT_LIMIT];
    snprintf(line, sizeof line, "replay --driver sim --stack logging(file=%s,existing=replace,format=csv),pool %s",
             log.path, trace.path);
    outcome *of = run_into(line, NULL);
    assert_outcome(of, 1, "", "strata replay: the report could not be written: Bad file descriptor\n");
    read_whole(log.path, written);
    assert_ptr_equal(strstr(written, "Thread,Time,Action,"), written);
    assert_null(strstr(written, "driver calls"));
    free(of);
    scratch_remove(&trace);
    scratch_remove(&log);
}

/* ---- traces ---- */

static void a_malformed_trace_is_status_2_with_file_and_line_and_nothing_is_replayed(void **state)
{
    (void)state;
    scratch_file good = scratch_write(SMALL_TRACE);
    scratch_file bad = scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nfree,1,1000,0,0\n");
    scratch_file worse = scratch_write("");
    char line[512], words[128];
    snprintf(line, sizeof line, "replay --json %s %s %s", good.path, bad.path, worse.path);
    outcome *of = run(line);
    snprintf(words, sizeof words, "%s:3: free of id 1", bad.path);
    assert_outcome(of, 2, "", words);
    snprintf(words, sizeof words, "%s:1: the file is empty", worse.path);
    assert_outcome(of, 2, "", words);
    assert_string_equal(of->out, "");
    free(of);
    scratch_remove(&good);
    scratch_remove(&bad);
    scratch_remove(&worse);
}

static void a_good_replay_is_status_0_and_says_so_on_stdout_alone(void **state)
{
    (void)state;
    scratch_file file = scratch_write(SMALL_TRACE);
    outcome *of = run_on("replay --touch --share 50 --threads 2 --repeat 2", &file);
    assert_outcome(of, 0, "operations       16: 6 allocations, 4 frees, 2 uses, 2 waits", "");
    assert_outcome(of, 0, "and 2 syncs\n", "");
    assert_outcome(of, 0, "corrupted        0 blocks", "");
    assert_outcome(of, 0, "left over        0 blocks", "");
    assert_outcome(of, 0, "never freed      2 blocks", "");
    assert_outcome(of, 0, file.path, "");
    assert_string_equal(of->err, "");
    free(of);
    scratch_remove(&file);
}

static void calls_that_fail_are_status_1(void **state)
{
    (void)state;
    scratch_file file =
        scratch_write(TRACE_HEADER "alloc,0,1125899906842624,0,0\nfree,0,1125899906842624,0,0\nalloc,1,5,0,0\n");
    outcome *of = run_on("replay", &file);
    assert_outcome(of, 1, "failures         1", "");
    assert_outcome(of, 1, "operations       2: 2 allocations, 0 frees, 0 uses, 0 waits", "");
    assert_outcome(of, 1, "skipped          1 operations", "");
    assert_outcome(of, 1, ":2: allocate of id 0", "");
    free(of);
    scratch_remove(&file);
}

/* ---- JSON ---- */

static json_t *parsed(const outcome *of)
{
    json_error_t error;
    json_t *object = json_loads(of->out, 0, &error);
    if (!object)
        print_error("%s\n%s\n%s\n", error.text, of->out, of->err);
    assert_non_null(object);
    return object;
}

static void assert_number(json_t *object, const char *key, json_int_t value)
{
    json_t *number = json_object_get(object, key);
    if (!json_is_integer(number) || json_integer_value(number) != value)
        print_error("%s\n", key);
    assert_true(json_is_integer(number));
    assert_int_equal(json_integer_value(number), value);
}

static void a_json_report_has_exact_numbers_under_the_promised_keys(void **state)
{
    (void)state;
    scratch_file file = scratch_write(SMALL_TRACE);
    outcome *of = run_on("replay --json --touch --stack async", &file);
    assert_int_equal(of->status, 0);
    json_t *report = parsed(of);
    assert_number(report, "operations", 8);
    assert_number(report, "waits", 1);
    assert_number(report, "syncs", 1);
    assert_number(report, "failures", 0);
    assert_number(report, "peak_live_bytes", 301000);
    assert_number(report, "leaked_blocks", 0);
    assert_number(report, "corrupted_blocks", 0);
    assert_number(report, "left_by_trace", 1);
    assert_true(json_integer_value(json_object_get(report, "peak_reserved_bytes")) >= 301000);
    json_int_t median = json_integer_value(json_object_get(report, "ns_per_operation_p50"));
    json_int_t highest = json_integer_value(json_object_get(report, "ns_per_operation_p99"));
    assert_true(median > 0 && highest >= median);
    json_t *calls = json_object_get(report, "driver_calls");
    assert_true(json_is_object(calls));
    assert_number(calls, "cuMemAllocFromPoolAsync", 3);
    assert_true(json_is_string(json_object_get(report, "driver")));
    assert_string_equal(json_string_value(json_object_get(report, "stack")), "async");
    json_decref(report);
    free(of);
    scratch_remove(&file);
}

/* Of each block's first bytes; a log has the default stream's handle. */
static void streams_are_behind_the_host_if_asked_for(void **state)
{
    (void)state;
    scratch_file file =
        scratch_write("op,id,bytes,stream,time_us\nalloc,1,100000,0,0\nalloc,2,1,0,1\nfree,1,100000,0,2\n");
    scratch_file log = scratch_write("");
    char options[300];
    snprintf(options, sizeof options,
             "replay --json --busy --default-stream --stack logging(file=%s,format=csv,existing=replace),pool",
             log.path);
    outcome *of = run_on(options, &file);
    assert_int_equal(of->status, 0);
    json_t *report = parsed(of);
    assert_true(json_is_true(json_object_get(report, "busy")) &&
                json_is_true(json_object_get(report, "default_stream")));
    const json_int_t written = json_integer_value(json_object_get(report, "touched_bytes"));
    assert_true(written > 1 && written < 100000);
    json_decref(report);
    free(of);
    char text[4096] = "";
    FILE *read = fopen(log.path, "r");
    assert_non_null(read);
    assert_true(fread(text, 1, sizeof text - 1, read) > 0);
    fclose(read);
    assert_non_null(strstr(text, ",100000,0x1,"));
    of = run_on("replay --json --stack pool", &file);
    report = parsed(of);
    assert_number(report, "touched_bytes", 0);
    json_decref(report);
    free(of);
    scratch_remove(&log);
    scratch_remove(&file);
}

static void a_json_report_of_failures_names_them(void **state)
{
    (void)state;
    scratch_file file = scratch_write(TRACE_HEADER "alloc,0,1125899906842624,0,0\n");
    outcome *of = run_on("replay --json", &file);
    assert_int_equal(of->status, 1);
    json_t *report = parsed(of);
    assert_number(report, "failures", 1);
    const char *first = json_string_value(json_array_get(json_object_get(report, "first_failures"), 0));
    assert_non_null(first);
    assert_non_null(strstr(first, "STRATA_ERROR_OUT_OF_MEMORY"));
    json_decref(report);
    free(of);
    scratch_remove(&file);
}

static void names_that_are_no_utf8_are_in_json_all_the_same(void **state)
{
    (void)state;
    scratch_file trace = scratch_write(TRACE_HEADER "alloc,0,1125899906842624,0,0\n");
    char name[64], line[640], words[640];
    snprintf(name, sizeof name, "/tmp/strata-trace-\xff-%ld.csv", (long)getpid());
    assert_int_equal(symlink(trace.path, name), 0);
    snprintf(line, sizeof line, "replay --json %s", name);
    outcome *of = run(line);
    json_t *report = parsed(of);
    snprintf(words, sizeof words, "/tmp/strata-trace-\xef\xbf\xbd-%ld.csv", (long)getpid());
    const char *path = json_string_value(json_array_get(json_object_get(report, "traces"), 0));
    assert_non_null(path);
    assert_string_equal(path, words);
    const char *failure = json_string_value(json_array_get(json_object_get(report, "first_failures"), 0));
    assert_non_null(failure);
    assert_non_null(strstr(failure, words));
    json_decref(report);
    free(of);
    unlink(name);
    setenv("STRATA_STACK", "bogus\xff", 1);
    of = run("info --json");
    unsetenv("STRATA_STACK");
    json_t *info = parsed(of);
    assert_string_equal(json_string_value(json_object_get(info, "stack")), "bogus\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(json_object_get(info, "environment"), "STRATA_STACK")),
                        "bogus\xef\xbf\xbd");
    json_decref(info);
    free(of);
    scratch_remove(&trace);
}

static void a_name_that_a_terminal_would_obey_is_shown(void **state)
{
    (void)state;
    scratch_file trace = scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nfree,0,1000,0,0\n");
    char name[64], line[640];
    snprintf(name, sizeof name, "/tmp/strata-trace-\033c-%ld.csv", (long)getpid());
    assert_int_equal(symlink(trace.path, name), 0);
    snprintf(line, sizeof line, "replay %s", name);
    outcome *of = run(line);
    assert_outcome(of, 0, "/tmp/strata-trace-\\x1bc-", "");
    free(of);
    unlink(name);
    scratch_remove(&trace);
}

static void shared_budgets_in_a_folder_that_is_no_utf8_are_listed_as_json(void **state)
{
    (void)state;
    char folder[] = "/tmp/strata-\xff-XXXXXX", path[160];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/strata-u%lu-empty-%032d", folder, (unsigned long)geteuid(), 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    setenv("STRATA_SHARED_DIR", folder, 1);
    outcome *of = run("budget --json");
    unsetenv("STRATA_SHARED_DIR");
    assert_outcome(of, 1, "", "empty");
    json_t *list = parsed(of), *damaged = json_array_get(list, 0);
    assert_non_null(json_string_value(json_object_get(damaged, "path")));
    assert_non_null(json_string_value(json_object_get(damaged, "problem")));
    assert_non_null(strstr(json_string_value(json_object_get(damaged, "path")), "/strata-\xef\xbf\xbd-"));
    json_decref(list);
    free(of);
    unlink(path);
    rmdir(folder);
}

static void info_names_driver_devices_and_stack(void **state)
{
    (void)state;
    setenv("STRATA_STACK", "direct", 1);
    outcome *text = run("info");
    outcome *object = run("info --json");
    setenv("STRATA_STACK", " ", 1);
    outcome *blank = run("info");
    unsetenv("STRATA_STACK");
    assert_outcome(blank, 0, "pool(peers=all) (STRATA_STACK is not set)", "");
    assert_outcome(text, 0, "device 0", "");
    assert_outcome(text, 0, "memory_pools", "");
    assert_outcome(text, 0, "direct (STRATA_STACK is set)", "");
    assert_int_equal(object->status, 0);
    json_t *info = parsed(object);
    assert_string_equal(json_string_value(json_object_get(info, "stack")), "direct");
    assert_string_equal(json_string_value(json_object_get(json_object_get(info, "environment"), "STRATA_STACK")),
                        "direct");
    static const char *const strings[] = {"strata",  "driver", "driver_library", "driver_choice",
                                          "jansson", "zlib",   "host_allocator"};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        assert_true(json_is_string(json_object_get(info, strings[i])));
    assert_outcome(text, 0, "\n  in use         ", "");
    assert_true(json_integer_value(json_object_get(info, "host_bytes")) > 0);
    bool own_heap = json_is_null(json_object_get(info, "host_allocator_reason"));
    assert_true(own_heap == json_is_integer(json_object_get(info, "host_resident")));
    assert_true((strstr(text->out, "\nhost allocator   libc (") == NULL) == own_heap);
    assert_true((strstr(text->out, "\nhost allocator   jemalloc ") != NULL) == own_heap);
    json_t *device = json_array_get(json_object_get(info, "devices"), 0);
    assert_true(json_integer_value(json_object_get(device, "total_bytes")) > 0);
    assert_true(json_is_boolean(json_object_get(json_object_get(device, "capabilities"), "memory_pools")));
    json_decref(info);
    free(text);
    free(blank);
    free(object);
}

static void info_says_in_which_mode_stacks_are_made(void **state)
{
    (void)state;
    setenv("STRATA_MODE", "sanitizer", 1);
    outcome *text = run("info");
    outcome *object = run("info --json");
    setenv("STRATA_MODE", "fast", 1);
    outcome *wrong = run("info");
    unsetenv("STRATA_MODE");
    assert_outcome(text, 0, "  mode           sanitizer", "");
    assert_outcome(wrong, 1, "  problem        STRATA_MODE is \"fast\": expected sanitizer or normal", "");
    json_t *info = parsed(object);
    assert_string_equal(json_string_value(json_object_get(info, "mode")), "sanitizer");
    json_decref(info);
    free(text);
    free(object);
    free(wrong);
}

static void info_says_what_is_wrong_with_the_stack_that_the_environment_asks_for(void **state)
{
    (void)state;
    setenv("STRATA_STACK", "bogus\033[1m", 1);
    outcome *text = run("info");
    outcome *object = run("info --json");
    unsetenv("STRATA_STACK");
    outcome *fine = run("info --json");
    assert_outcome(text, 1, "bogus\\x1b[1m (STRATA_STACK is set)\n  problem        stack text, character 1 ", "");
    assert_null(strchr(text->out, '\033'));
    assert_int_equal(object->status, 1);
    json_t *info = parsed(object);
    const char *problem = json_string_value(json_object_get(info, "stack_problem"));
    assert_non_null(problem);
    assert_non_null(strstr(problem, "unknown layer \"bogus\""));
    json_decref(info);
    info = parsed(fine);
    assert_true(json_is_null(json_object_get(info, "stack_problem")));
    json_decref(info);
    free(text);
    free(object);
    free(fine);
}

static void the_option_overrides_the_environment_which_overrides_auto(void **state)
{
    (void)state;
    const char *given = getenv("STRATA_DRIVER");
    char before[PATH_MAX];
    snprintf(before, sizeof before, "%s", given ? given : "");
    setenv("STRATA_DRIVER", "/nowhere/driver.so", 1);
    outcome *refused = run("info");
    outcome *overridden = run("info --json --driver sim");
    unsetenv("STRATA_DRIVER");
    outcome *plain = run("info --json");
    if (given)
        setenv("STRATA_DRIVER", before, 1);
    assert_outcome(refused, 2, "", "/nowhere/driver.so");
    assert_outcome(plain, 0, "\"driver_choice\": \"auto\"", "");
    assert_int_equal(overridden->status, 0);
    json_t *info = parsed(overridden);
    assert_true(json_is_true(json_object_get(info, "simulated")));
    assert_string_equal(json_string_value(json_object_get(info, "driver")), "sim");
    assert_string_equal(json_string_value(json_object_get(info, "driver_choice")), "sim");
    json_decref(info);
    free(refused);
    free(overridden);
    free(plain);
}

/* Without the loader's help too, which a sanitizer takes away: called by a bare word, from elsewhere. */
static void the_simulated_driver_is_found_beside_the_command(void **state)
{
    (void)state;
    const char *given = getenv("STRATA_SIM_LIBRARY");
    char before[PATH_MAX];
    snprintf(before, sizeof before, "%s", given ? given : "");
    unsetenv("STRATA_SIM_LIBRARY");
    outcome *of = run("info --driver sim --json");
    if (given)
        setenv("STRATA_SIM_LIBRARY", before, 1);
    assert_int_equal(of->status, 0);
    json_t *info = parsed(of);
    const char *library = json_string_value(json_object_get(info, "driver_library"));
    assert_non_null(library);
    assert_int_equal(*library, '/');
    json_decref(info);
    free(of);
}

/* ---- the bar ---- */

typedef struct terminal {
    int master, slave, nowhere;
    char seen[4096];
    size_t length;
} terminal;

static void terminal_open(terminal *of)
{
    *of = (terminal){.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    assert_true(of->master >= 0);
    assert_int_equal(grantpt(of->master), 0);
    assert_int_equal(unlockpt(of->master), 0);
    of->slave = open(ptsname(of->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    of->nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(of->slave >= 0 && of->nowhere >= 0);
    setenv("TERM", "xterm", 1);
}

/* Takes what the terminal has been given, waiting for it at most so long; false if there was nothing. */
static bool terminal_read(terminal *of, int milliseconds)
{
    struct pollfd ready = {.fd = of->master, .events = POLLIN};
    if (poll(&ready, 1, milliseconds) != 1)
        return false;
    ssize_t length = read(of->master, of->seen + of->length, sizeof of->seen - 1 - of->length);
    of->length += length > 0 ? (size_t)length : 0;
    return length > 0;
}

static void terminal_close(terminal *of)
{
    close(of->slave);
    close(of->master);
    close(of->nowhere);
}

/* Of a replay whose second half comes much later. */
static void end_when_half_is_drawn(terminal *of, pid_t child)
{
    while (!strstr(of->seen, "50%") && terminal_read(of, 60000))
        continue;
    kill(child, SIGINT);
    assert_int_equal(exit_status_of(child), 1000 + SIGINT);
    while (terminal_read(of, 100))
        continue;
}

static void a_person_who_is_watching_sees_a_bar(void **state)
{
    (void)state;
    scratch_file file = scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nfree,0,1000,0,60000000\n");
    terminal screen;
    terminal_open(&screen);
    pid_t child = start((char *[]){"strata", "replay", "--pace", file.path, NULL}, screen.nowhere, screen.slave);
    end_when_half_is_drawn(&screen, child);
    terminal_close(&screen);
    scratch_remove(&file);
    assert_non_null(strstr(screen.seen, "50%"));
    assert_non_null(strstr(screen.seen, "[####################....................]"));
}

/* The longest line that was drawn: what stands between a return and the end of the line being cleared. */
static size_t longest_line(const terminal *of)
{
    size_t longest = 0;
    for (const char *at = of->seen, *end; (at = strchr(at, '\r')) && (end = strstr(at, "\033[K")); at = end)
        longest = (size_t)(end - at) - 1 > longest ? (size_t)(end - at) - 1 : longest;
    return longest;
}

static void the_bar_fits_into_a_line_of_the_terminal(void **state)
{
    (void)state;
    static const unsigned short columns[] = {0, 200, 80, 60, 50, 30, 5};
    static const size_t longest[] = {79, 47 + 2 + 40, 79, 59, 47, 29, 7}; /* the figure is there in any case */
    char name[64];
    snprintf(name, sizeof name, "/tmp/strata-trace-of-a-name-that-is-long-%ld.csv", (long)getpid());
    scratch_file file = scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nfree,0,1000,0,60000000\n");
    assert_int_equal(symlink(file.path, name), 0);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        terminal screen;
        terminal_open(&screen);
        assert_int_equal(ioctl(screen.slave, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = columns[i]}), 0);
        pid_t child = start((char *[]){"strata", "replay", "--pace", name, NULL}, screen.nowhere, screen.slave);
        end_when_half_is_drawn(&screen, child);
        terminal_close(&screen);
        assert_non_null(strstr(screen.seen, " 50%"));
        assert_int_equal(longest_line(&screen), longest[i]);
    }
    unlink(name);
    scratch_remove(&file);
}

static void a_signal_ends_the_line_of_the_bar_and_then_the_replay(void **state)
{
    (void)state;
    scratch_file file = scratch_write(TRACE_HEADER "alloc,0,1000,0,0\nfree,0,1000,0,60000000\n");
    terminal screen;
    terminal_open(&screen);
    pid_t child = start((char *[]){"strata", "replay", "--pace", file.path, NULL}, screen.nowhere, screen.slave);
    end_when_half_is_drawn(&screen, child);
    terminal_close(&screen);
    scratch_remove(&file);
    assert_non_null(strstr(screen.seen, "50%"));
    assert_int_equal(screen.seen[screen.length - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version_go_to_stdout),
        cmocka_unit_test(bad_usage_is_status_2_with_a_reason),
        cmocka_unit_test(a_trace_and_a_log_can_come_from_standard_input),
        cmocka_unit_test(a_log_is_printed_filtered_and_converted),
        cmocka_unit_test(a_log_is_replayed_as_the_trace_that_it_was_made_from),
        cmocka_unit_test(a_trace_that_is_missing_is_named_by_the_command),
        cmocka_unit_test(a_log_that_is_missing_damaged_or_cut_off_is_said_to_be),
        cmocka_unit_test(output_that_is_lost_is_status_1_with_the_reason),
        cmocka_unit_test(names_with_control_characters_are_shown_and_not_obeyed),
        cmocka_unit_test(the_drivers_name_is_shown_and_not_obeyed),
        cmocka_unit_test(with_stdout_closed_nothing_is_printed_into_the_files_that_are_opened),
        cmocka_unit_test(files_beyond_the_limit_of_host_memory_are_refused_and_the_option_is_named),
        cmocka_unit_test(what_cannot_be_started_is_status_2_with_a_reason),
        cmocka_unit_test(a_malformed_trace_is_status_2_with_file_and_line_and_nothing_is_replayed),
        cmocka_unit_test(a_good_replay_is_status_0_and_says_so_on_stdout_alone),
        cmocka_unit_test(calls_that_fail_are_status_1),
        cmocka_unit_test(a_json_report_has_exact_numbers_under_the_promised_keys),
        cmocka_unit_test(streams_are_behind_the_host_if_asked_for),
        cmocka_unit_test(a_json_report_of_failures_names_them),
        cmocka_unit_test(names_that_are_no_utf8_are_in_json_all_the_same),
        cmocka_unit_test(a_name_that_a_terminal_would_obey_is_shown),
        cmocka_unit_test(shared_budgets_in_a_folder_that_is_no_utf8_are_listed_as_json),
        cmocka_unit_test(info_names_driver_devices_and_stack),
        cmocka_unit_test(info_says_in_which_mode_stacks_are_made),
        cmocka_unit_test(info_says_what_is_wrong_with_the_stack_that_the_environment_asks_for),
        cmocka_unit_test(the_option_overrides_the_environment_which_overrides_auto),
        cmocka_unit_test(the_simulated_driver_is_found_beside_the_command),
        cmocka_unit_test(a_person_who_is_watching_sees_a_bar),
        cmocka_unit_test(the_bar_fits_into_a_line_of_the_terminal),
        cmocka_unit_test(a_signal_ends_the_line_of_the_bar_and_then_the_replay),
    };
    return cmocka_run_group_tests(tests, find_program, NULL);
}
