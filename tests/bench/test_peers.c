/* strata_peers: it does the work of RMM's benchmarks, detects a competitor that hands out memory in use, and writes all
 * its measurements as JSON. The programs run on the simulated driver. */
#include "support/effort.h"
#include "support/rerun.h"

#include "bench/clock.h"
#include "bench/measure.h"
#include "bench/peers/board.h"
#include "bench/peers/random_allocations.h"
#include "bench/peers/repetition.h"

#include <jansson.h>

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- RMM's sequences ---- */

enum { MOST_ALLOCATIONS = 100000 };

static peer_step *steps, *live;
static uint32_t *slots;

static int make_room(void **state)
{
    (void)state;
    steps = calloc((size_t)2 * MOST_ALLOCATIONS, sizeof *steps);
    live = calloc(MOST_ALLOCATIONS, sizeof *live);
    slots = calloc(MOST_ALLOCATIONS, sizeof *slots);
    return steps && live && slots ? 0 : -1;
}

static int free_room(void **state)
{
    (void)state;
    free(slots);
    free(live);
    free(steps);
    return 0;
}

static void the_generator_gives_the_sizes_that_rmms_program_draws(void **state)
{
    static const uint64_t small[] = {9, 137995, 792697, 481165, 558920};
    static const uint64_t large[] = {282475249, 2617694918, 1457850878, 3262921811, 1137522503};
    uint64_t sizes[5];
    (void)state;
    random_sizes(1, sizes, 5);
    assert_memory_equal(sizes, small, sizeof small);
    random_sizes(4096, sizes, 5);
    assert_memory_equal(sizes, large, sizeof large);
}

static void all_eighteen_sequences_come_to_what_rmms_program_comes_to(void **state)
{
    /* The totals as RMM's own program was seen to have them, independent of the benchmark's table. */
    static const random_case seen[RANDOM_CASES] = {
        {1000, 1, 516054525, 323760572, 638},
        {1000, 4, 2068726278, 1332080261, 642},
        {1000, 64, 32516438967, 16777102043, 528},
        {1000, 256, 120204814794, 16776470325, 150},
        {1000, 1024, 463104276902, 16775773201, 44},
        {1000, 4096, 1814524904445, 16775344215, 15},
        {10000, 1, 5232447760, 3254545443, 6204},
        {10000, 4, 20931697845, 13049102281, 6203},
        {10000, 64, 286999706790, 16777214948, 634},
        {10000, 256, 1123517815284, 16777171549, 167},
        {10000, 1024, 4463008213689, 16777185961, 51},
        {10000, 4096, 18022585713930, 16775887653, 16},
        {100000, 1, 48663148396, 16777215997, 36071},
        {100000, 4, 180127682660, 16777215986, 9714},
        {100000, 64, 2811519828526, 16777214347, 644},
        {100000, 256, 11229933505850, 16777214413, 176},
        {100000, 1024, 44773478309836, 16777213763, 53},
        {100000, 4096, 179863776314225, 16777201659, 19},
    };
    (void)state;
    for (size_t i = 0; i < RANDOM_CASES; i++) {
        random_case came_to;
        random_make(seen[i].allocations, seen[i].max_mib, steps, slots, live, &came_to);
        assert_true(random_totals_match(&came_to, &seen[i]));
        assert_true(random_totals_match(&random_cases[i], &seen[i]));
    }
}

/* Checks the steps themselves, not the totals. */
static void every_step_allocates_a_free_slot_or_frees_a_live_one(void **state)
{
    const random_case *of = &random_cases[6];
    random_case came_to, counted = {.allocations = of->allocations, .max_mib = of->max_mib};
    uint64_t live_bytes = 0;
    uint32_t live_blocks = 0;
    (void)state;
    uint64_t *bytes_of = calloc(of->peak_blocks, sizeof *bytes_of);
    assert_non_null(bytes_of);
    random_make(of->allocations, of->max_mib, steps, slots, live, &came_to);
    for (size_t i = 0; i < (size_t)2 * of->allocations; i++) {
        assert_true(steps[i].slot < of->peak_blocks);
        uint64_t *bytes = &bytes_of[steps[i].slot];
        assert_true((*bytes == 0) == (steps[i].bytes != 0));
        live_blocks = steps[i].bytes ? live_blocks + 1 : live_blocks - 1;
        live_bytes += steps[i].bytes - *bytes;
        counted.sum_bytes += steps[i].bytes;
        *bytes = steps[i].bytes;
        if (live_bytes > counted.peak_bytes)
            counted.peak_bytes = live_bytes;
        if (live_blocks > counted.peak_blocks)
            counted.peak_blocks = live_blocks;
    }
    free(bytes_of);
    assert_int_equal(live_bytes, 0);
    assert_true(random_totals_match(&counted, of));
}

/* ---- measuring ---- */

typedef struct slowness {
    uint64_t nanoseconds; /* of an operation */
    size_t runs;
} slowness;

static void be_slow(void *state, size_t operations)
{
    slowness *self = state;
    self->runs += operations > 0;
    for (size_t i = 0; i < operations; i++)
        for (uint64_t start = bench_now(); bench_now() - start < self->nanoseconds;)
            continue;
}

static void a_slow_side_has_as_many_rounds_as_fit_into_its_time(void **state)
{
    (void)state;
    assert_int_equal(bench_rounds_within(0, 1e12, 21), 21);
    assert_int_equal(bench_rounds_within(100, 4, 21), 21);
    assert_int_equal(bench_rounds_within(100, 5, 21), 20);
    assert_int_equal(bench_rounds_within(100, 60, 21), 1);
    assert_int_equal(bench_rounds_within(100, 101, 21), 0);
}

static void a_side_whose_first_round_takes_too_long_has_no_other(void **state)
{
    slowness slow = {.nanoseconds = 4000000}, free_of_limits = {.nanoseconds = 1000};
    bench_side side = {be_slow, NULL, &slow};
    double figure;
    size_t rounds;
    (void)state;
    bench_measure_counting(16, (bench_plan){.batch = 1, .batches = 1, .limit = 1e6}, &side, 1, &figure, &rounds);
    assert_int_equal(rounds, 1);
    assert_int_equal(slow.runs, 1);
    assert_true(figure >= 4e6);
    side.state = &free_of_limits;
    bench_measure_counting(16, (bench_plan){.batch = 1, .batches = 1}, &side, 1, &figure, &rounds);
    assert_int_equal(rounds, 16);
    assert_int_equal(free_of_limits.runs, 17);
}

static void a_trial_is_repeated_as_google_benchmark_repeats_it(void **state)
{
    static const struct {
        repetition trial;
        size_t next; /* 0: it suffices */
    } cases[] = {
        {{1, 0.0017, 0.0017}, 10},                          /* tenfold at most, after less than a tenth of the time */
        {{10, 0.017, 0.017}, 100}, {{100, 0.17, 0.2}, 165}, /* then as many as take 1.4 times as long */
        {{165, 0.2, 0.3}, 0},      {{1, 0.25, 0.25}, 0},
        {{10, 0.1, 0.99}, 28},     {{10, 0.1, 1.0}, 0}, /* the clock on the wall ends it, too */
        {{3, 0.15, 0.15}, 6},      {{1, 0, 0}, 10},
        {{1, 0.19, 0.19}, 2},      {{1000000000, 0, 0}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(repetition_suffices(&cases[i].trial, 0.2), cases[i].next == 0);
        if (cases[i].next)
            assert_int_equal(repetition_next(&cases[i].trial, 0.2), cases[i].next);
    }
}

/* ---- words ---- */

static void a_stack_is_labelled_by_its_owner_and_the_layers_above(void **state)
{
    static const char *const cases[][2] = {
        {"async", "async"},
        {"budget, logging(format=null), statistics, pool", "pool+3"},
        {"logging(file=\"a, b\"), async(max_size=1GiB)", "async+1"},
        {"guard(sample=1, sample_seed=2),null", "null+1"},
        {"pool, direct", "pool"},
        {"statistics, pool(max_size=1GiB), budget, async", "pool+1"},
        {"poolish, direct", "direct+1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char label[PEER_LABEL_SIZE];
        peer_label_stack(label, cases[i][0]);
        assert_string_equal(label, cases[i][1]);
    }
}

static void a_limit_is_given_to_the_owner_of_the_memory(void **state)
{
    char text[64];
    (void)state;
    assert_true(peer_limit_stack(text, sizeof text, "budget(limit=1GiB), pool ", 4096));
    assert_string_equal(text, "budget(limit=1GiB), pool(max_size=4096)");
    assert_false(peer_limit_stack(text, sizeof text, "pool(overhead=5%)", 4096));
    assert_false(peer_limit_stack(text, 12, "budget, pool", 4096));
}

/* ---- the board ---- */

static const peer_kind no_kind = {.name = "stack"};

static json_t *finish_into_json(board *of, FILE *out, char **text, size_t *missed, size_t *rows)
{
    json_error_t error;
    *missed = board_finish(of, rows);
    assert_int_equal(fclose(out), 0);
    json_t *root = json_loads(*text, 0, &error);
    assert_non_null(root);
    free(*text);
    return root;
}

static void a_target_is_met_missed_or_without_a_figure(void **state)
{
    peer_choice choices[2] = {{.kind = &no_kind, .label = "a"}, {.kind = &no_kind, .label = "b", .corrupt = "caught"}};
    char *text;
    size_t size, missed, rows;
    FILE *out = open_memstream(&text, &size);
    (void)state;
    assert_non_null(out);
    board *made = board_begin(out, true);
    board_set_peers(made, choices, 2);
    board_heading(made, "heading");
    board_add_row(made, &(board_row){.name = "row", .cells = {{12.5, 3, BOARD_FIGURE}, {0, 0, BOARD_CORRUPT}}});
    board_add_row(made, &(board_row){.name = "other", .cells = {{0, 0, BOARD_NO_MEMORY}}});
    board_target target = {.row = "row", .label = "a", .what = "takes at most", .figure = 12.5, .limit = 12.5};
    board_add_target(made, &target);
    target.figure = 12.6;
    board_add_target(made, &target);
    target.at_least = true;
    board_add_target(made, &target);
    target.figure = 12.4;
    board_add_target(made, &target);
    target = (board_target){.row = "row", .label = "b", .what = "takes at most", .limit = 100, .missing = true};
    board_add_target(made, &target);
    json_t *root = finish_into_json(made, out, &text, &missed, &rows);
    assert_int_equal(rows, 2);
    assert_int_equal(missed, 3);
    static const bool met[] = {true, false, true, false, false};
    json_t *targets = json_object_get(root, "targets");
    assert_int_equal(json_array_size(targets), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(json_is_true(json_object_get(json_array_get(targets, i), "met")), met[i]);
    assert_int_equal(json_integer_value(json_object_get(root, "targets_missed")), 3);
    json_t *row = json_array_get(json_object_get(root, "rows"), 0), *figures = json_object_get(row, "figures");
    assert_true(json_real_value(json_object_get(figures, "a")) == 12.5);
    assert_string_equal(json_string_value(json_object_get(figures, "b")), "corrupt");
    figures = json_object_get(json_array_get(json_object_get(root, "rows"), 1), "figures");
    assert_string_equal(json_string_value(json_object_get(figures, "a")), "no memory");
    assert_true(json_is_null(json_object_get(figures, "b")));
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "corrupt"), "b")), "caught");
    json_decref(root);
}

/* ---- the program ---- */

enum { OUTPUT_LIMIT = 1 << 19, ARGUMENTS_LIMIT = 16 };

typedef struct outcome {
    int status;
    char out[OUTPUT_LIMIT], err[8192];
} outcome;

static char program[PATH_MAX + 64], library[PATH_MAX + 64];
static outcome ran;        /* of the last run */
static const char *run_in; /* working folder of the next run; NULL: this one's */

static int find_programs(void **state)
{
    char itself[PATH_MAX];
    (void)state;
    if (!test_program_path(itself, sizeof itself))
        return -1;
    char *folder = dirname(itself);
    snprintf(program, sizeof program, "%s/strata_peers", folder);
    snprintf(library, sizeof library, "%s/../lib/libstrata_made_up_peer.so", folder);
    return access(program, X_OK) == 0 && access(library, R_OK) == 0 ? 0 : -1;
}

static FILE *scratch(void)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    return file;
}

static void read_back(FILE *from, char *into, size_t size)
{
    rewind(from);
    size_t length = fread(into, 1, size - 1, from);
    into[length] = '\0';
    fclose(from);
}

/* Builds that mark every byte of a block, or have few addresses. */
static bool is_slow_build(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return test_under_valgrind();
#endif
}

/* Runs strata_peers with these words, the last one NULL. */
static const outcome *run(const char *made_up, const char *policy, ...)
{
    const char *words[ARGUMENTS_LIMIT] = {program};
    size_t count = 1;
    va_list arguments;
    va_start(arguments, policy);
    for (const char *word; count < ARGUMENTS_LIMIT - 1 && (word = va_arg(arguments, const char *));)
        words[count++] = word;
    va_end(arguments);
    FILE *out = scratch(), *err = scratch();
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        if (run_in && chdir(run_in) != 0)
            _exit(126);
        setenv("STRATA_DRIVER", "sim", 1);
        setenv("STRATA_SIM_POLICY", policy, 1);
        setenv("STRATA_MADE_UP", made_up, 1);
        unsetenv("STRATA_TRACES");
        if (is_slow_build())
            setenv("STRATA_SIM_MEMORY", "4GiB", 1);
        if (strcmp(made_up, "honest") != 0) {
            unsetenv("STRATA_SIM_CHECK"); /* the checker finds them too */
            unsetenv("STRATA_SIM_CHECK_EXIT");
        }
        execv(program, (char *const *)words);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    read_back(out, ran.out, sizeof ran.out);
    read_back(err, ran.err, sizeof ran.err);
    return &ran;
}

static json_t *json_of(const outcome *of, int status)
{
    json_error_t error;
    if (of->status != status)
        print_error("status %d: %s\n", of->status, of->err);
    assert_int_equal(of->status, status);
    json_t *root = json_loads(of->out, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        print_error("%d:%d: %s\n", error.line, error.column, error.text);
    assert_non_null(root);
    return root;
}

static json_t *row_of(const json_t *root, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "rows"), i,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) return row;
    print_error("there is no row %s\n", name);
    return NULL;
}

static const json_t *figure_of(const json_t *root, const char *row, const char *label)
{
    return json_object_get(json_object_get(row_of(root, row), "figures"), label);
}

/* Every row of --list is there once, with a cell for each competitor, and a figure in the driver's. */
static void assert_complete(const char *filter)
{
    static char listed[OUTPUT_LIMIT];
    size_t rows = 0;
    const outcome *list = run("honest", "early", "--list", "--filter", filter, NULL);
    assert_int_equal(list->status, 0);
    strcpy(listed, list->out);
    json_t *root = json_of(run("honest", "early", "--quick", "--json", "--filter", filter, NULL), 0);
    const size_t competitors = json_array_size(json_object_get(root, "competitors"));
    assert_in_range(competitors, 5, PEERS_LIMIT);
    const json_t *note = json_object_get(json_object_get(root, "machine"), "note");
    assert_non_null(strstr(json_string_value(note), "of the host alone"));
    for (char *name = strtok(listed, "\n"); name; name = strtok(NULL, "\n"), rows++) {
        json_t *row = row_of(root, name);
        assert_non_null(row);
        assert_int_equal(json_object_size(json_object_get(row, "figures")), competitors);
        bool bare_calls = strstr(name, "barely") || strstr(name, "driver calls");
        const json_t *figure = figure_of(root, name, bare_calls ? "async" : "driver");
        if (!json_is_real(figure))
            print_error("%s: no figure\n", name);
        assert_true(json_is_real(figure));
        const double value = json_real_value(figure);
        assert_true(value > 0 || strstr(name, "percent over"));
    }
    assert_true(rows > 0);
    assert_int_equal(json_array_size(json_object_get(root, "rows")), rows);
    json_decref(root);
}

static void a_quick_run_has_every_row_in_its_json(void **state)
{
    /* Where every byte of a block is marked, the floor would need 16 GB of host memory. */
    static const char *const parts[] = {"pairs, 4 KiB", "one stream", "gpt_train, paced, 1 ms"};
    (void)state;
    if (!is_slow_build()) {
        assert_complete("");
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_complete(parts[i]);
}

static size_t count_text(const char *in, const char *text)
{
    size_t count = 0;
    for (const char *at = in; (at = strstr(at, text)); at++)
        count++;
    return count;
}

static void the_rows_are_those_that_are_promised(void **state)
{
    static const char *const names[] = {
        "pairs, 64 MiB\n",
        "pairs, 4 KiB, unknown stream\n",
        "live, 4 KiB, 64 allocated, then 64 freed\n",
        "threads, own streams, 16 threads\n",
        "threads, mixed sizes, 16 threads\n",
        "threads, one stream, 16 threads\n",
        "one thread allocates, another frees, at most 64 between\n",
        "behind, pairs of 4 KiB on a stream 1 ms behind\n",
        "random, 100000 allocations of up to 4096 MiB\n",
        "multi_stream, 4 kernels on 4 streams, prewarmed\n",
        "first second, 100000 allocations of up to 4096 MiB\n",
        "first second, 4 kernels on 4 streams, prewarmed\n",
        "replay gpt_train, fast: reserved / peak live\n",
        "replay serving, paced, at most 1.03 x peak live: percent over its span\n",
        "replay serving, paced, 1 ms behind: reserved / live and in flight\n",
    };
    (void)state;
    const outcome *list = run("honest", "early", "--list", NULL);
    assert_int_equal(list->status, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strstr(list->out, names[i]))
            print_error("there is no row %s", names[i]);
        assert_non_null(strstr(list->out, names[i]));
    }
    assert_int_equal(count_text(list->out, "random, "), RANDOM_CASES);
    assert_int_equal(count_text(list->out, "first second, "), RANDOM_CASES + 6);
}

static void an_honest_competitor_is_measured(void **state)
{
    (void)state;
    const outcome *of = run("honest", "random", "--quick", "--json", "--stack", "async", "--peer", library, "--filter",
                            "live, 4 KiB", NULL);
    json_t *root = json_of(of, 0);
    assert_int_equal(json_object_size(json_object_get(root, "corrupt")), 0);
    assert_true(json_is_real(figure_of(root, "live, 4 KiB, 16 allocated, then 16 freed", "madeup")));
    assert_string_equal(of->err, "");
    json_decref(root);
}

static void assert_caught(const char *made_up, const char *policy, const char *why)
{
    const outcome *of = run(made_up, policy, "--quick", "--json", "--stack", "async", "--peer", library, "--filter",
                            "live, 4 KiB", NULL);
    json_t *root = json_of(of, 1);
    const json_t *corrupt = json_object_get(json_object_get(root, "corrupt"), "madeup");
    assert_string_equal(json_string_value(corrupt), why);
    assert_int_equal(json_object_size(json_object_get(root, "corrupt")), 1);
    const char *row = "live, 4 KiB, 16 allocated, then 16 freed";
    assert_string_equal(json_string_value(figure_of(root, row, "madeup")), "corrupt");
    assert_true(json_is_real(figure_of(root, row, "async")));
    assert_non_null(strstr(of->err, "madeup ("));
    assert_non_null(strstr(of->err, why));
    json_decref(root);
}

static void a_competitor_whose_blocks_overlap_is_told(void **state)
{
    (void)state;
    assert_caught("overlap", "early", "blocks that are live at the same time overlap");
}

static void a_competitor_that_hands_out_what_a_stream_still_uses_is_told(void **state)
{
    (void)state;
    assert_caught("early", "late", "a block was written to while it was somebody else's");
}

static void a_competitor_without_the_memory_for_a_sequence_has_no_figure(void **state)
{
    (void)state;
    json_t *root = json_of(run("small", "early", "--quick", "--json", "--stack", "null", "--peer", library, "--filter",
                               "random, 1000 allocations of up to 1 MiB", NULL),
                           0);
    const char *row = "random, 1000 allocations of up to 1 MiB";
    assert_string_equal(json_string_value(figure_of(root, row, "madeup")), "no memory");
    assert_true(json_is_real(figure_of(root, row, "null")));
    json_decref(root);
}

static void a_first_second_begins_afresh_and_alone(void **state)
{
    static const char row[] = "first second, 4 kernels on 4 streams, prewarmed";
    (void)state;
    const outcome *of =
        run("told", "early", "--quick", "--json", "--stack", "async", "--peer", library, "--filter", row, NULL);
    json_t *root = json_of(of, 0);
    assert_true(json_is_real(figure_of(root, row, "async")));
    assert_true(json_is_real(figure_of(root, row, "madeup")));
    json_decref(root);
    assert_true(count_text(of->err, "begin alone") >= 1);
    assert_int_equal(count_text(of->err, "begin"), count_text(of->err, ", 0 bytes used\n"));
    of = run("told", "early", "--quick", "--json", "--stack", "async", "--peer", library, "--filter",
             "random, 1000 allocations of up to 1 MiB", NULL);
    json_decref(json_of(of, 0));
    assert_int_equal(count_text(of->err, "begin alone"), 0);
    assert_true(count_text(of->err, "begin with others") >= 1);
}

static void stacks_that_are_named_compete_and_no_others(void **state)
{
    static const char *const labels[] = {"async+1", "async", "async/2", "driver"};
    (void)state;
    json_t *root = json_of(run("honest", "early", "--quick", "--json", "--stack", "statistics, async", "--stack",
                               "async", "--stack", "async(release_threshold=1GiB)", "--filter", "pairs, 64 B", NULL),
                           0);
    json_t *competitors = json_object_get(root, "competitors");
    assert_int_equal(json_array_size(competitors), 5); /* and host memory */
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(competitors, i), "label")), labels[i]);
    json_decref(root);
}

/* Where there is a pool, its rows have targets, and --strict checks them. */
static void strict_fails_where_a_target_is_missed(void **state)
{
    (void)state;
    const outcome *of =
        run("honest", "early", "--quick", "--json", "--strict", "--stack", "pool", "--filter", "pairs, 4 KiB", NULL);
    if (of->status == 2) {
        assert_non_null(strstr(of->err, "--stack \"pool\""));
        return; /* there is none yet */
    }
    const int status = of->status;
    json_t *root = json_of(of, status);
    assert_true(json_array_size(json_object_get(root, "targets")) >= 2);
    assert_int_equal(status, json_integer_value(json_object_get(root, "targets_missed")) > 0);
    json_decref(root);
}

static void assert_refused(const outcome *of, const char *words)
{
    if (of->status != 2 || !strstr(of->err, words))
        print_error("status %d: %s\n", of->status, of->err);
    assert_int_equal(of->status, 2);
    assert_non_null(strstr(of->err, words));
    assert_string_equal(of->out, "");
}

static void h_is_help(void **state)
{
    (void)state;
    static char help[OUTPUT_LIMIT];
    const outcome *of = run("honest", "early", "--help", NULL);
    assert_int_equal(of->status, 0);
    strcpy(help, of->out);
    assert_non_null(strstr(help, "--traces"));
    of = run("honest", "early", "-h", NULL);
    assert_int_equal(of->status, 0);
    assert_string_equal(of->out, help);
}

static void rows_that_need_no_trace_are_measured_without_a_folder_of_traces(void **state)
{
    (void)state;
    run_in = "/proc/self/task"; /* has no examples/traces */
    const outcome *of =
        run("honest", "early", "--quick", "--filter", "pairs, 4 KiB, unknown", "--stack", "async", NULL);
    if (of->status != 0)
        print_error("%s\n", of->err);
    assert_int_equal(of->status, 0);
    assert_non_null(strstr(of->out, "pairs, 4 KiB, unknown stream"));
    of = run("honest", "early", "--quick", "--filter", "first second, 4 kernels on 1 stream", "--stack", "async", NULL);
    assert_int_equal(of->status, 0);
    assert_non_null(strstr(of->out, "first second, 4 kernels on 1 stream, prewarmed"));
    of = run("honest", "early", "--list", "--filter", "pairs", NULL);
    assert_int_equal(of->status, 0);
    assert_non_null(strstr(of->out, "pairs, 64 MiB\n"));
    of = run("honest", "early", "--quick", "--filter", "replay", NULL);
    assert_int_equal(of->status, 2);
    assert_non_null(strstr(of->err, "folder of traces examples/traces: No such file or directory"));
    of = run("honest", "early", "--quick", NULL);
    assert_int_equal(of->status, 2);
    assert_non_null(strstr(of->err, "folder of traces examples/traces: No such file or directory"));
    run_in = NULL;
    of = run("honest", "early", "--quick", "--filter", "pairs", "--traces", "/nowhere", NULL);
    assert_int_equal(of->status, 2);
    assert_non_null(strstr(of->err, "folder of traces /nowhere: No such file or directory"));
}

static void what_cannot_be_meant_is_refused(void **state)
{
    (void)state;
    assert_refused(run("honest", "early", "--filter", "no row is called this", NULL),
                   "no row has a name that contains: no row is called this");
    assert_refused(run("honest", "early", "--rounds", "0", NULL), "--rounds takes a number from 1 to 1001: 0");
    assert_refused(run("honest", "early", "--seconds", "never", NULL), "--seconds takes a number above 0");
    assert_refused(run("honest", "early", "--traces", "/nowhere", NULL), "/nowhere");
    assert_refused(run("honest", "early", "--traces", "/", NULL), "folder of traces /: it has no *.csv or *.csv.gz");
    assert_refused(run("honest", "early", "more", NULL), "unexpected \"more\"");
    assert_refused(run("honest", "early", "--stack", "budget, asinc", NULL), "--stack \"budget, asinc\": ");
    assert_refused(run("honest", "early", "--peer", "/nowhere.so", "--filter", "pairs, 64 B", NULL), "/nowhere.so");
    assert_refused(run("shut", "early", "--peer", library, "--filter", "pairs, 64 B", NULL), "it was made up so");
}

int main(void)
{
    const struct CMUnitTest sequences[] = {
        cmocka_unit_test(the_generator_gives_the_sizes_that_rmms_program_draws),
        cmocka_unit_test(all_eighteen_sequences_come_to_what_rmms_program_comes_to),
        cmocka_unit_test(every_step_allocates_a_free_slot_or_frees_a_live_one),
    };
    const struct CMUnitTest parts[] = {
        cmocka_unit_test(a_slow_side_has_as_many_rounds_as_fit_into_its_time),
        cmocka_unit_test(a_side_whose_first_round_takes_too_long_has_no_other),
        cmocka_unit_test(a_trial_is_repeated_as_google_benchmark_repeats_it),
        cmocka_unit_test(a_stack_is_labelled_by_its_owner_and_the_layers_above),
        cmocka_unit_test(a_limit_is_given_to_the_owner_of_the_memory),
        cmocka_unit_test(a_target_is_met_missed_or_without_a_figure),
    };
    const struct CMUnitTest programs[] = {
        cmocka_unit_test(a_quick_run_has_every_row_in_its_json),
        cmocka_unit_test(the_rows_are_those_that_are_promised),
        cmocka_unit_test(an_honest_competitor_is_measured),
        cmocka_unit_test(a_competitor_whose_blocks_overlap_is_told),
        cmocka_unit_test(a_competitor_that_hands_out_what_a_stream_still_uses_is_told),
        cmocka_unit_test(a_competitor_without_the_memory_for_a_sequence_has_no_figure),
        cmocka_unit_test(a_first_second_begins_afresh_and_alone),
        cmocka_unit_test(stacks_that_are_named_compete_and_no_others),
        cmocka_unit_test(strict_fails_where_a_target_is_missed),
        cmocka_unit_test(h_is_help),
        cmocka_unit_test(rows_that_need_no_trace_are_measured_without_a_folder_of_traces),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
    };
    int failed = cmocka_run_group_tests(sequences, make_room, free_room);
    failed += cmocka_run_group_tests(parts, NULL, NULL);
    failed += cmocka_run_group_tests(programs, find_programs, NULL);
    return failed;
}
