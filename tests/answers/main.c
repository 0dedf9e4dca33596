/* strata_answers: asks a CUDA driver its questions and writes, or compares, the answers.
 *
 *     strata_answers [--driver PATH] [--section NAME] [--devices 1|2] [--compare FILE [--except FILE]]
 *
 * The driver is PATH, else that of STRATA_ANSWERS_DRIVER, else libcuda.so.1. Without --compare the answers go to
 * standard output, one a line, ready to be kept in a file. With --compare it prints the differences from that file.
 * Each fails the run unless --except lists it with its reason ("question = reason"); so does a listed difference that
 * does not occur. --section asks only the sections whose names begin with NAME. --devices 2 asks only what needs a
 * second device; those answers have a file of their own. Exit status: 0 equal, or written; 1 differences; 2 the program
 * could not do its work.
 *
 * Each section runs in a process of its own, this program with --ask, with a time limit. How the process ended is an
 * answer. */
#include "answers.h"
#include "ask.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SAME = 0, DIFFERENT = 1, FAILED = 2, SECTION_MS = 20000, RUN_MS = 110000 };

struct section {
    const char *name;
    void (*ask)(void);
    void (*before_open)(void);
};

static const struct section sections[] = {
    {"entry_points", driver_ask_entry_points, NULL},
    {"before_init", ask_before_init, NULL},
    {"init", ask_init, NULL},
    {"error_names", ask_error_names, NULL},
    {"devices", ask_devices, NULL},
    {"primary_contexts", ask_primary_contexts, NULL},
    {"primary_reset", ask_primary_reset, NULL},
    {"reset_streams", ask_reset_streams, NULL},
    {"reset_streams_anew", ask_reset_streams_anew, NULL},
    {"reset_memory", ask_reset_memory, NULL},
    {"reset_memory_anew", ask_reset_memory_anew, NULL},
    {"contexts", ask_contexts, NULL},
    {"without_context", ask_without_context, NULL},
    {"other_context", ask_other_context, NULL},
    {"streams", ask_streams, NULL},
    {"stream_ids", ask_stream_ids, NULL},
    {"stream_handles", ask_stream_handles, NULL},
    {"stream_order", ask_stream_order, NULL},
    {"special_stream_destroy", ask_special_stream_destroy, NULL},
    {"captures", ask_captures, NULL},
    {"events", ask_events, NULL},
    {"event_order", ask_event_order, NULL},
    {"memory", ask_memory, NULL},
    {"memory_waits", ask_memory_waits, NULL},
    {"pinned", ask_pinned, NULL},
    {"pointers", ask_pointers, NULL},
    {"async", ask_async, NULL},
    {"pools", ask_pools, NULL},
    {"pool_attributes", ask_pool_attributes, NULL},
    {"pool_sizes", ask_pool_sizes, NULL},
    {"pool_release", ask_pool_release, NULL},
    {"pool_reuse", ask_pool_reuse, NULL},
    {"copies", ask_copies, NULL},
    {"fills", ask_fills, NULL},
    {"copy_ranges", ask_copy_ranges, NULL},
    {"copy_waits", ask_copy_waits, NULL},
    {"host_functions", ask_host_functions, NULL},
    {"modules", ask_modules, NULL},
    {"launches", ask_launches, NULL},
    {"capture_begin", ask_capture_begin, NULL},
    {"capture_fork", ask_capture_fork, NULL},
    {"capture_graphs", ask_capture_graphs, NULL},
    {"capture_memory", ask_capture_memory, NULL},
    {"capture_to_graph", ask_capture_to_graph, NULL},
    {"capture_dependencies", ask_capture_dependencies, NULL},
    {"capture_destroyed", ask_capture_destroyed, NULL},
    {"capture_calls_global", ask_capture_calls_global, NULL},
    {"capture_calls_thread_local", ask_capture_calls_thread_local, NULL},
    {"capture_calls_relaxed", ask_capture_calls_relaxed, NULL},
    {"capture_legacy", ask_capture_legacy, NULL},
    {"capture_exchanged", ask_capture_exchanged, NULL},
    {"capture_features", ask_capture_features, NULL},
    {"graph_create", ask_graph_create, NULL},
    {"graph_nodes", ask_graph_nodes, NULL},
    {"graph_memory_nodes", ask_graph_memory_nodes, NULL},
    {"graph_circle", ask_graph_circle, NULL},
    {"graph_structure", ask_graph_structure, NULL},
    {"graph_params", ask_graph_params, NULL},
    {"graph_objects", ask_graph_objects, NULL},
    {"graph_dot", ask_graph_dot, NULL},
    {"graph_instantiate", ask_graph_instantiate, NULL},
    {"graph_order", ask_graph_order, NULL},
    {"graph_update", ask_graph_update, NULL},
    {"graph_memory", ask_graph_memory, NULL},
    {"conditional_handles", ask_conditional_handles, NULL},
    {"conditional_nodes", ask_conditional_nodes, NULL},
    {"conditional_bodies", ask_conditional_bodies, NULL},
    {"conditional_runs", ask_conditional_runs, NULL},
    {"conditional_captures", ask_conditional_captures, NULL},
    {"memory_attributes", ask_memory_attributes, NULL},
    {"vmm_properties", ask_vmm_properties, NULL},
    {"vmm_reserve", ask_vmm_reserve, NULL},
    {"vmm_create", ask_vmm_create, NULL},
    {"vmm_map", ask_vmm_map, NULL},
    {"vmm_unmap", ask_vmm_unmap, NULL},
    {"vmm_info", ask_vmm_info, NULL},
    {"vmm_access", ask_vmm_access, NULL},
    {"vmm_ranges", ask_vmm_ranges, NULL},
    {"vmm_host", ask_vmm_host, NULL},
    {"vmm_share", ask_vmm_share, NULL},
    {"vmm_no_access", ask_vmm_no_access, NULL},
    {"vmm_read_only", ask_vmm_read_only, NULL},
    {"copies_2d", ask_copies_2d, NULL},
    {"copy_2d_waits", ask_copy_2d_waits, NULL},
    {"fills_2d", ask_fills_2d, NULL},
    {"managed", ask_managed, NULL},
    {"managed_advice", ask_managed_advice, NULL},
    {"registered", ask_registered, NULL},
    {"value_writes", ask_value_writes, NULL},
    {"value_waits", ask_value_waits, NULL},
    {"value_batches", ask_value_batches, NULL},
    {"exit", ask_exit, ask_exit_before_open},
    {"fork", ask_fork, NULL},
    {"poison", ask_poison, NULL},
};
enum { SECTION_COUNT = sizeof sections / sizeof sections[0] };

/* For machines with two devices only. */
static const struct section pair_sections[] = {
    {"peer_access", ask_peer_access, NULL}, {"peer_copies", ask_peer_copies, NULL},
    {"peer_pools", ask_peer_pools, NULL},   {"peer_maps", ask_peer_maps, NULL},
    {"peer_faults", ask_peer_faults, NULL}, {"peer_copies_of_maps", ask_peer_copies_of_maps, NULL},
};
enum { PAIR_SECTION_COUNT = sizeof pair_sections / sizeof pair_sections[0] };

struct options {
    const char *driver;
    const char *section;
    const char *devices;
    const char *ask;
    const char *compare;
    const char *except;
};

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const struct section *find_section(const char *name)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        if (strcmp(sections[i].name, name) == 0)
            return &sections[i];
    }
    for (size_t i = 0; i < PAIR_SECTION_COUNT; i++) {
        if (strcmp(pair_sections[i].name, name) == 0)
            return &pair_sections[i];
    }
    return NULL;
}

static int ask_one(const struct options *options)
{
    const struct section *section = find_section(options->ask);
    if (section == NULL)
        return FAILED;
    if (section->before_open != NULL)
        section->before_open();
    if (!driver_open(options->driver))
        return FAILED;
    section->ask();
    return SAME;
}

/* By its own path: under Valgrind /proc/self/exe is Valgrind. */
static void run_itself(const char *driver, const char *name)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    execl(path, "strata_answers", "--driver", driver, "--ask", name, (char *)NULL);
}

/* Starts this program for one section, in its own process group. *from is the pipe with its answers. */
static pid_t start_section(const char *driver, const char *name, int *from)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        run_itself(driver, name);
        _exit(FAILED);
    }
    close(ends[1]);
    *from = ends[0];
    return child;
}

/* Reads until the section closes its end. False: the time is up. */
static bool read_until(int from, long until, char **text, size_t *length)
{
    FILE *memory = open_memstream(text, length);
    if (memory == NULL)
        return false;
    bool closed = false;
    for (;;) {
        long left = until - now_ms();
        struct pollfd wait = {.fd = from, .events = POLLIN};
        int ready = left > 0 ? poll(&wait, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        char buffer[4096];
        ssize_t got = read(from, buffer, sizeof buffer);
        if (got <= 0) {
            closed = got == 0;
            break;
        }
        fwrite(buffer, 1, (size_t)got, memory);
    }
    fclose(memory);
    return closed;
}

/* Waits for the section's end; when the time is up, kills it with all that it started. */
static int end_section(pid_t child, bool closed, long until, bool *killed)
{
    int status = 0;
    while (closed && waitpid(child, &status, WNOHANG) == 0) {
        if (now_ms() >= until)
            closed = false;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    *killed = !closed;
    if (*killed) {
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return status;
}

static bool add_answer(struct answers *answers, const char *line, bool print)
{
    if (!answers_add(answers, line)) {
        fprintf(stderr, "strata_answers: not an answer, or asked twice: %s\n", line);
        return false;
    }
    if (print) {
        puts(line);
        fflush(stdout);
    }
    return true;
}

static bool add_lines(struct answers *answers, char *text, bool print, const char **last)
{
    bool good = true;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        good &= add_answer(answers, line, print);
        *last = line;
    }
    return good;
}

/* Longer under Valgrind, as tests/support/effort.h for the other tests. */
static long patience(long ms)
{
    return getenv("STRATA_TEST_VALGRIND") ? 20 * ms : ms;
}

/* Asks one section and adds its answers and its end. False: this program failed. */
static bool run_section(const struct options *options, const char *name, long run_until, struct answers *answers)
{
    long until = now_ms() + patience(SECTION_MS) < run_until ? now_ms() + patience(SECTION_MS) : run_until;
    int from = -1;
    pid_t child = start_section(options->driver, name, &from);
    if (child < 0) {
        perror("strata_answers");
        return false;
    }
    char *text = NULL;
    size_t length = 0;
    bool killed;
    bool closed = read_until(from, until, &text, &length);
    int status = end_section(child, closed, until, &killed);
    close(from);

    const char *last = "nothing";
    bool print = options->compare == NULL;
    bool good = text == NULL || add_lines(answers, text, print, &last);
    char line[512];
    int question = (int)strcspn(last, " ");
    if (killed)
        snprintf(line, sizeof line, "section.%s = out of time after %.*s", name, question, last);
    else if (WIFSIGNALED(status))
        snprintf(line, sizeof line, "section.%s = signal %d after %.*s", name, WTERMSIG(status), question, last);
    else
        snprintf(line, sizeof line, "section.%s = exit status %d", name, WEXITSTATUS(status));
    good &= add_answer(answers, line, print);
    free(text);
    return good && !(WIFEXITED(status) && WEXITSTATUS(status) == FAILED);
}

static int run(const struct options *options)
{
    struct answers given = {0};
    struct answers expected = {0};
    struct answers excused = {0};
    int outcome = FAILED;
    if (options->compare != NULL && !answers_read(&expected, options->compare))
        goto done;
    if (options->except != NULL && !answers_read(&excused, options->except))
        goto done;
    long until = now_ms() + patience(RUN_MS);
    size_t length = strlen(options->section);
    bool pair = strcmp(options->devices, "2") == 0;
    const struct section *first = pair ? pair_sections : sections;
    size_t count = pair ? PAIR_SECTION_COUNT : SECTION_COUNT;
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(first[i].name, options->section, length) == 0)
            good &= run_section(options, first[i].name, until, &given);
    }
    if (given.count == 0)
        fprintf(stderr, "strata_answers: no section begins with %s\n", options->section);
    if (!good || given.count == 0)
        goto done;
    outcome = SAME;
    if (options->compare != NULL) {
        size_t reports = answers_compare(&expected, &given, &excused, stdout);
        printf("%zu questions, %zu listed differences, %zu reports\n", given.count, excused.count, reports);
        outcome = reports == 0 ? SAME : DIFFERENT;
    }
done:
    answers_free(&given);
    answers_free(&expected);
    answers_free(&excused);
    return outcome;
}

static bool parse(int count, char **words, struct options *options)
{
    const struct {
        const char *word;
        const char **value;
    } known[] = {
        {"--driver", &options->driver},   {"--section", &options->section}, {"--ask", &options->ask},
        {"--compare", &options->compare}, {"--except", &options->except},   {"--devices", &options->devices},
    };
    for (int i = 1; i < count; i += 2) {
        size_t k = 0;
        while (k < sizeof known / sizeof known[0] && strcmp(words[i], known[k].word) != 0)
            k++;
        if (k == sizeof known / sizeof known[0] || i + 1 == count)
            return false;
        *known[k].value = words[i + 1];
    }
    return options->except == NULL || options->compare != NULL;
}

int main(int count, char **words)
{
    const char *driver = getenv("STRATA_ANSWERS_DRIVER");
    struct options options = {.driver = driver != NULL ? driver : "libcuda.so.1", .section = "", .devices = "1"};
    if (!parse(count, words, &options)) {
        fprintf(stderr, "usage: strata_answers [--driver PATH] [--section NAME] [--devices 1|2] "
                        "[--compare FILE [--except FILE]]\n");
        return FAILED;
    }
    if (options.ask != NULL)
        return ask_one(&options);
    /* With more streams than hardware queues, work waits without need. Eager loading: nothing is loaded during a
     * question. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    return run(&options);
}
