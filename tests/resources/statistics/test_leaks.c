/* What the statistics layer says of blocks that are live: in groups, by call stack, when it is asked to, when a stack
 * cannot end, and when the process does. */
#include "support/statistics.h"

#include "support/child.h"
#include "support/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned kept; /* no call is the last thing that a function does */

__attribute__((noinline)) static strata_block a_careless_function(size_t bytes)
{
    strata_block block = allocate(bytes, tag_a);
    kept++;
    return block;
}

__attribute__((noinline)) static strata_block another_careless_function(size_t bytes)
{
    strata_block block = allocate(bytes, tag_b);
    kept++;
    return block;
}

/* From one place, however the compiler would like to unroll it. */
__attribute__((noinline)) static void repeat(strata_block (*function)(size_t bytes), size_t bytes, strata_block *out,
                                             volatile size_t times)
{
    for (size_t i = 0; i < times; i++)
        out[i] = function(bytes);
}

typedef struct text {
    char bytes[64 * 1024];
    size_t used;
} text;

static text report;

static void append(const char *piece, size_t length, void *data)
{
    text *to = data;
    assert_true(length < sizeof to->bytes - to->used);
    memcpy(to->bytes + to->used, piece, length);
    to->used += length;
    to->bytes[to->used] = '\0';
}

static json_t *leaks_as_json(void)
{
    json_error_t error;
    report.used = 0;
    check_ok(strata_statistics_leaks(layer, STRATA_FORMAT_JSON, append, &report));
    json_t *parsed = json_loads(report.bytes, JSON_REJECT_DUPLICATES, &error);
    if (!parsed)
        fail_msg("line %d: %s", error.line, error.text);
    return parsed;
}

static json_int_t number(const json_t *of, const char *name)
{
    assert_true(json_is_integer(json_object_get(of, name)));
    return json_integer_value(json_object_get(of, name));
}

static bool has_frame(const json_t *group, const char *name)
{
    size_t i;
    const json_t *frame;
    json_array_foreach(json_object_get(group, "call_stack"), i,
                       frame) if (strstr(json_string_value(frame), name)) return true;
    return false;
}

static int build_with_stacks(void **state)
{
    (void)state;
    return build_text("statistics(stacks=on), null");
}

static void what_is_live_is_grouped_by_its_call_stack_most_bytes_first(void **state)
{
    (void)state;
    strata_block blocks[7], freed;
    size_t count = 0;
    repeat(a_careless_function, 100, blocks, 3);
    repeat(another_careless_function, 5000, blocks + 3, 2);
    count = 5;
    blocks[count++] = allocate(10, 0);
    freed = a_careless_function(1 << 20);
    release(&freed);
    json_t *leaks = leaks_as_json();
    assert_int_equal(number(leaks, "live_blocks"), 6);
    assert_int_equal(number(leaks, "live_bytes"), 10310);
    const json_t *groups = json_object_get(leaks, "groups");
    assert_int_equal(json_array_size(groups), 3);
    const json_t *first = json_array_get(groups, 0), *second = json_array_get(groups, 1);
    assert_int_equal(number(first, "bytes"), 10000);
    assert_int_equal(number(first, "blocks"), 2);
    assert_string_equal(json_string_value(json_object_get(first, "tag")), "b");
    assert_true(has_frame(first, "another_careless_function"));
    assert_int_equal(number(second, "bytes"), 300);
    assert_int_equal(number(second, "blocks"), 3);
    assert_true(has_frame(second, "a_careless_function") && !has_frame(second, "another_careless_function"));
    assert_true(json_is_null(json_object_get(json_array_get(groups, 2), "tag")));
    json_decref(leaks);
    report.used = 0;
    check_ok(strata_statistics_leaks(layer, STRATA_FORMAT_TEXT, append, &report));
    assert_non_null(strstr(report.bytes, "a_careless_function (")); /* with a file and a line, or the program */
    while (count)
        release(&blocks[--count]);
    leaks = leaks_as_json();
    assert_int_equal(number(leaks, "live_blocks"), 0);
    assert_int_equal(json_array_size(json_object_get(leaks, "groups")), 0);
    json_decref(leaks);
}

static void without_call_stacks_groups_have_tag_and_size_in_common(void **state)
{
    (void)state;
    strata_block blocks[4] = {a_careless_function(100), a_careless_function(128), a_careless_function(129),
                              another_careless_function(100)};
    json_t *leaks = leaks_as_json();
    const json_t *groups = json_object_get(leaks, "groups");
    assert_int_equal(json_array_size(groups), 3);
    assert_int_equal(number(json_array_get(groups, 0), "bytes"), 228);
    assert_int_equal(number(json_array_get(groups, 0), "largest_up_to"), 128);
    assert_int_equal(number(json_array_get(groups, 1), "bytes"), 129);
    assert_int_equal(number(json_array_get(groups, 1), "largest_up_to"), 256);
    assert_null(json_object_get(json_array_get(groups, 1), "call_stack"));
    json_decref(leaks);
    for (size_t i = 0; i < 4; i++)
        release(&blocks[i]);
}

static void call_stacks_are_turned_on_and_off_while_blocks_live(void **state)
{
    (void)state;
    strata_block before = a_careless_function(100);
    check_ok(strata_control_set_text(stack, "statistics.stacks", "on"));
    strata_block between = a_careless_function(200);
    check_ok(strata_control_set_text(stack, "statistics.stacks", "off"));
    strata_block after = a_careless_function(400);
    json_t *leaks = leaks_as_json();
    const json_t *groups = json_object_get(leaks, "groups");
    assert_int_equal(json_array_size(groups), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(has_frame(json_array_get(groups, i), "a_careless_function"),
                         number(json_array_get(groups, i), "bytes") == 200);
    json_decref(leaks);
    release(&before);
    release(&between);
    release(&after);
}

typedef struct visited {
    strata_block block;
    uint32_t call_stack;
} visited;

static void remember(const strata_block *block, uint32_t call_stack, void *data)
{
    *(visited *)data = (visited){.block = *block, .call_stack = call_stack};
}

static void find_frame(const char *line, void *data)
{
    *(bool *)data |= strstr(line, "another_careless_function") != NULL;
}

static void a_visited_block_has_the_facts_of_its_allocation_and_a_call_stack_that_can_be_read(void **state)
{
    (void)state;
    strata_block block = another_careless_function(300);
    visited seen_there = {0};
    bool found = false;
    check_ok(strata_statistics_visit(layer, remember, &seen_there));
    assert_memory_equal(&seen_there.block, &block, sizeof block);
    strata_statistics_call_stack(seen_there.call_stack, find_frame, &found);
    assert_true(found);
    found = false;
    strata_statistics_call_stack(0, find_frame, &found);
    strata_statistics_call_stack(UINT32_MAX, find_frame, &found);
    strata_statistics_call_stack(seen_there.call_stack, NULL, NULL);
    assert_false(found);
    release(&block);
}

static void leaks_refuse_what_is_no_report(void **state)
{
    (void)state;
    check_status(strata_statistics_leaks(layer, STRATA_FORMAT_JSON, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_leaks(layer, (strata_format)7, append, &report), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_leaks(top->upstream, STRATA_FORMAT_JSON, append, &report),
                 STRATA_ERROR_INVALID_VALUE);
}

/* What the guard holds back is memory of the layers below it, and no block of the program's. */
static void below_a_guard_what_is_in_quarantine_counts_and_is_no_leak(void **state)
{
    (void)state;
    assert_int_equal(build_text("guard(zone=512), statistics, direct"), 0);
    strata_block live = allocate(1000, tag_a), freed = allocate(1000, tag_b);
    json_t *leaks = leaks_as_json();
    assert_int_equal(number(leaks, "live_blocks"), 2);
    int64_t shown = number(leaks, "live_bytes");
    assert_in_range(shown, 2 * (1000 + 2 * 512), 2 * (1024 + 2 * 512 + 512)); /* with the zones */
    json_decref(leaks);
    release(&freed);
    assert_int_equal(value_of(stack, "guard.quarantined_blocks"), 1);
    leaks = leaks_as_json();
    assert_int_equal(number(leaks, "live_blocks"), 1);
    assert_int_equal(number(leaks, "live_bytes"), shown / 2);
    json_decref(leaks);
    strata_statistics_counters all = read_all(layer, 0);
    assert_int_equal(all.blocks.current, 2);
    assert_int_equal(all.bytes.current, shown);
    assert_int_equal(all.requested, shown);
    check_ok(top->ops->trim(top, 0, &(size_t){0}));
    assert_int_equal(read_all(layer, 0).blocks.current, 1);
    release(&live);
    check_ok(strata_stack_destroy(stack));
}

/* ---- by itself ---- */

typedef struct findings {
    size_t count, leaks;
    bool named;
} findings;

static void listen(const strata_error *error, void *data)
{
    findings *all = data;
    all->count++;
    all->leaks += strstr(error->message, " in all, tag ") != NULL;
    all->named |= strstr(error->message, "2 live blocks, 200 bytes in all, tag \"a\", allocated by") != NULL &&
                  strstr(error->message, "a_careless_function") != NULL && error->tag == tag_a && error->in_use == 200;
}

static void check_refused_end(const char *stack_text, size_t groups, bool named)
{
    findings all = {0};
    assert_int_equal(build_text(stack_text), 0);
    strata_block blocks[3] = {[2] = another_careless_function(50)};
    repeat(a_careless_function, 100, blocks, 2);
    strata_set_log_callback(listen, &all);
    strata_status status = strata_stack_destroy(stack);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(status, STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "still has 3 live blocks");
    assert_int_equal(all.leaks, groups);
    assert_int_equal(all.count, groups + 1);
    assert_int_equal(all.named, named);
    for (size_t i = 0; i < 3; i++)
        release(&blocks[i]);
    check_ok(strata_stack_destroy(stack));
}

static void a_stack_that_cannot_end_says_what_is_live_if_it_was_asked_to(void **state)
{
    (void)state;
    check_refused_end("statistics(stacks=on, leaks=log), null", 2, true);
    check_refused_end("statistics(leaks=log), null", 2, false);
    check_refused_end("statistics(stacks=on), null", 0, false);
}

static void of_many_groups_the_log_has_the_largest(void **state)
{
    (void)state;
    enum { GROUPS = 20 };
    findings all = {0};
    strata_block blocks[GROUPS];
    assert_int_equal(build_text("statistics(leaks=log), null"), 0);
    for (strata_tag i = 0; i < GROUPS; i++)
        blocks[i] = allocate(100, 2000 + i);
    strata_set_log_callback(listen, &all);
    strata_stack_destroy(stack);
    strata_set_log_callback(NULL, NULL);
    assert_true(all.leaks == 16 && all.count == 18);
    for (size_t i = 0; i < GROUPS; i++)
        release(&blocks[i]);
    check_ok(strata_stack_destroy(stack));
}

typedef struct scratch {
    char path[64];
    char text[128];
} scratch;

static scratch make_scratch(const char *format)
{
    scratch made = {.path = "/tmp/strata-leaks-XXXXXX"};
    int file = mkstemp(made.path);
    assert_true(file >= 0);
    close(file);
    unlink(made.path);
    snprintf(made.text, sizeof made.text, format, made.path);
    return made;
}

static const char *read_scratch(const scratch *from)
{
    static char bytes[16 * 1024];
    FILE *file = fopen(from->path, "r");
    assert_non_null(file);
    size_t read = fread(bytes, 1, sizeof bytes - 1, file);
    bytes[read] = '\0';
    fclose(file);
    return bytes;
}

static size_t occurrences(const char *in, const char *what)
{
    size_t count = 0;
    for (; (in = strstr(in, what)); in++)
        count++;
    return count;
}

static void reports_are_added_to_a_file_which_stays_empty_if_nothing_leaks(void **state)
{
    (void)state;
    scratch file = make_scratch("statistics(leaks=file, file=\"%s\"), null");
    assert_int_equal(build_text(file.text), 0);
    assert_string_equal(read_scratch(&file), "");
    strata_block block = a_careless_function(100);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    assert_int_equal(occurrences(read_scratch(&file), "live_bytes: 100\n"), 2);
    release(&block);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(occurrences(read_scratch(&file), "live_bytes"), 2);
    unlink(file.path);
}

/* As where a program closes all descriptors that it does not know, and opens others. */
static void a_file_of_the_program_in_the_reports_place_is_neither_written_nor_closed(void **state)
{
    (void)state;
    scratch file = make_scratch("statistics(leaks=file, file=\"%s\"), null"), mine = make_scratch("%s");
    assert_int_equal(build_text(file.text), 0);
    const int descriptor = ((strata_statistics *)layer)->file;
    const int own = open(mine.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(own >= 0 && descriptor >= 0 && dup2(own, descriptor) == descriptor);
    strata_block block = a_careless_function(100);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    release(&block);
    check_ok(strata_stack_destroy(stack));
    assert_string_equal(read_scratch(&mine), "");
    assert_int_equal(close(descriptor), 0);
    close(own);
    unlink(mine.path);
    unlink(file.path);
}

static void a_file_may_be_named_for_its_process_and_each_report_names_it(void **state)
{
    (void)state;
    char process[32], command[512];
    scratch file = make_scratch("statistics(leaks=file, file=\"%s.%%p%%%%\"), null");
    size_t length = strlen(file.path);
    snprintf(file.path + length, sizeof file.path - length, ".%d%%", (int)getpid());
    snprintf(process, sizeof process, "process: %d\n", (int)getpid());
    snprintf(command, sizeof command, "command: %s\n", program_invocation_name);
    assert_int_equal(build_text(file.text), 0);
    strata_block block = a_careless_function(100);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    const char *bytes = read_scratch(&file);
    assert_non_null(strstr(bytes, process));
    assert_non_null(strstr(bytes, command));
    release(&block);
    check_ok(strata_stack_destroy(stack));
    unlink(file.path);
}

typedef struct heard {
    char last[sizeof(((strata_error *)NULL)->message)];
    unsigned count;
} heard;

static void hear_io(const strata_error *error, void *data)
{
    heard *of = data;
    if (error->status != STRATA_ERROR_IO)
        return;
    of->count++;
    memcpy(of->last, error->message, sizeof of->last);
}

static void a_report_that_cannot_be_written_is_said_and_the_end_goes_on(void **state)
{
    (void)state;
    heard of = {.count = 0};
    assert_int_equal(build_text("statistics(leaks=file, file=/dev/full), null"), 0);
    strata_block block = a_careless_function(100);
    strata_set_log_callback(hear_io, &of);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(of.count, 1);
    assert_non_null(strstr(of.last, "could not be written: No space left on device"));
    release(&block);
    check_ok(strata_stack_destroy(stack));
}

/* What is longer than the report gathers at a time goes out whole, and in its place. */
static void a_long_report_has_all_its_groups(void **state)
{
    (void)state;
    enum { GROUPS = 300 };
    strata_block blocks[GROUPS];
    char name[200];
    scratch file = make_scratch("statistics(leaks=file, file=\"%s\"), null");
    assert_int_equal(build_text(file.text), 0);
    for (unsigned i = 0; i < GROUPS; i++) {
        strata_tag tag;
        snprintf(name, sizeof name, "group %u %0150u", i, i);
        check_ok(strata_tag_intern(name, &tag));
        blocks[i] = allocate(100, tag);
    }
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    const int opened = open(file.path, O_RDONLY);
    assert_true(opened >= 0);
    static char bytes[256 * 1024];
    const ssize_t length = read(opened, bytes, sizeof bytes - 1);
    close(opened);
    assert_true(length > 4096);
    bytes[length] = '\0';
    for (unsigned i = 0; i < GROUPS; i++) {
        snprintf(name, sizeof name, "group %u %0150u", i, i);
        assert_int_equal(occurrences(bytes, name), 1);
        release(&blocks[i]);
    }
    check_ok(strata_stack_destroy(stack));
    unlink(file.path);
}

static void a_runtime_that_cannot_end_says_what_is_live_too(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    findings all = {0};
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "statistics(leaks=log), null"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    strata_set_log_callback(listen, &all);
    strata_status status = strata_runtime_destroy(runtime);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(status, STRATA_ERROR_BUSY);
    assert_int_equal(all.leaks, 1);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

static void check_unmade(const char *stack_text, strata_status want, const char *words)
{
    strata_stack *unmade;
    check_status(strata_stack_create(stack_text, 0, &unmade), want);
    check_last_error(want, words);
    assert_null(unmade);
}

static void a_file_and_its_mode_belong_together_and_the_file_can_be_made(void **state)
{
    (void)state;
    check_unmade("statistics(leaks=file), null", STRATA_ERROR_INVALID_VALUE, "needs a file");
    check_unmade("statistics(file=x), null", STRATA_ERROR_INVALID_VALUE, "file needs leaks=file");
    check_unmade("statistics(leaks=log, file=x), null", STRATA_ERROR_INVALID_VALUE, "file needs leaks=file");
    check_unmade("statistics(leaks=file, file=/nonexistent/x), null", STRATA_ERROR_IO, "/nonexistent/x");
    check_unmade("statistics(leaks=file, file=a%d), null", STRATA_ERROR_INVALID_VALUE,
                 "unknown % sequence at character 2; expected %p (process) or %%");
    check_unmade("statistics(leaks=file, file=ab%), null", STRATA_ERROR_INVALID_VALUE,
                 "unknown % sequence at character 3; expected %p");
    check_unmade("statistics(leaks=loud), null", STRATA_ERROR_SYNTAX, "off");
}

/* ---- a process of its own ---- */

__attribute__((noinline)) static void lose_a_block(strata_runtime *runtime)
{
    strata_block block;
    child_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    kept++;
}

static void leaking_process(void)
{
    static strata_runtime *runtime, *unused;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_create(&(strata_runtime_config){0}, &unused)); /* never ended, and nothing is live there */
    lose_a_block(runtime);
    pid_t forked = fork();
    if (forked == 0)
        exit(0); /* its exit handlers run, too */
    int status;
    child_check(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_process_that_exits_with_live_blocks_reports_them_once(void **state)
{
    (void)state;
    scratch file = make_scratch("STRATA_STACK=statistics(stacks=on, leaks=file, file=\"%s\"), null");
    const char *const changes[] = {file.text, NULL};
    test_child_run("leaking_process", changes);
    const char *bytes = read_scratch(&file);
    assert_int_equal(occurrences(bytes, "live_blocks: 1\n"), 1);
    assert_int_equal(occurrences(bytes, "live_blocks"), 1);
    assert_non_null(strstr(bytes, "lose_a_block"));
    unlink(file.path);
}

static strata_runtime *unneeded;

/* The program's last words end what it still has, and make what it needs. */
static void end_and_make(const strata_error *error, void *data)
{
    static bool called;
    strata_resource *made;
    if (!strstr(error->message, "live block"))
        return;
    child_check(!called); /* what is made now reports nothing */
    called = true;
    alarm(30);
    child_ok(strata_runtime_destroy(unneeded));
    for (int i = 0; i < 2; i++)
        child_ok(strata_statistics_create(&(strata_statistics_options){.leaks = STRATA_STATISTICS_LEAKS_LOG}, &made));
    made->ops->destroy(made);
    append(error->message, strlen(error->message), &report);
    FILE *file = fopen(data, "w");
    child_check(file && fwrite(report.bytes, 1, report.used, file) == report.used && fclose(file) == 0);
}

static void busy_callback(void)
{
    static strata_runtime *runtime;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "statistics(leaks=log), null"}, &unneeded));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "statistics(leaks=log), null"}, &runtime));
    strata_set_log_callback(end_and_make, getenv("STRATA_TEST_SCRATCH"));
    lose_a_block(runtime);
}

/* At exit, when it is told of leaks. */
static void a_log_callback_may_end_a_stack_and_make_a_layer(void **state)
{
    (void)state;
    scratch file = make_scratch("STRATA_TEST_SCRATCH=%s");
    test_child_run("busy_callback", (const char *const[]){file.text, NULL});
    assert_non_null(strstr(read_scratch(&file), "1 live block"));
    unlink(file.path);
}

static strata_runtime *leaking;
static strata_block freed_first, freed_last;

static void free_first(void)
{
    child_ok(strata_runtime_deallocate(leaking, &freed_first));
}

/* Registered before the driver was opened, it runs when that has shut down. */
static void free_last(void)
{
    child_status(strata_runtime_allocate(leaking, 1, NULL, &(strata_block){0}), STRATA_ERROR_SHUT_DOWN);
    child_ok(strata_runtime_deallocate_on(leaking, &freed_last, NULL));
    child_ok(strata_runtime_deallocate_on(leaking, &freed_last, NULL));
}

static void frees_in_exit_handlers(void)
{
    static strata_runtime *other; /* which opens the driver */
    child_check(atexit(free_last) == 0);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "null"}, &other));
    child_check(atexit(free_first) == 0);
    child_ok(strata_runtime_get(0, &leaking));
    child_ok(strata_runtime_allocate(leaking, 300, NULL, &freed_first));
    child_ok(strata_runtime_allocate(leaking, 200, NULL, &freed_last));
    lose_a_block(leaking);
}

static void what_exit_handlers_free_is_no_leak_whenever_they_were_registered(void **state)
{
    (void)state;
    static const char *const stacks[] = {"null", "direct", "aligned(alignment=4KiB), async", "guard, direct"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        char environment[256];
        scratch file = make_scratch("%s");
        snprintf(environment, sizeof environment, "STRATA_STACK=statistics(leaks=file, file=\"%s\"), %s", file.path,
                 stacks[i]);
        test_child_run("frees_in_exit_handlers", (const char *const[]){environment, NULL});
        const char *bytes = read_scratch(&file);
        assert_int_equal(occurrences(bytes, "live_blocks: 1\n"), 1);
        assert_int_equal(occurrences(bytes, "live_blocks"), 1);
        unlink(file.path);
    }
}

static void find_function(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    child_check(symbol != NULL);
    memcpy(pointer, &symbol, sizeof symbol);
}

static void shared_library(void)
{
    const char *path = getenv("STRATA_TEST_LIBRARY");
    if (!path)
        exit(77);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    child_check(library != NULL);
    __typeof__(&strata_stack_create) create;
    __typeof__(&strata_stack_top) find_top;
    __typeof__(&strata_resource_allocate) allocate_there;
    __typeof__(&strata_statistics_leaks) leaks;
    find_function(library, "strata_stack_create", &create);
    find_function(library, "strata_stack_top", &find_top);
    find_function(library, "strata_resource_allocate", &allocate_there);
    find_function(library, "strata_statistics_leaks", &leaks);
    strata_stack *there;
    strata_block block;
    child_check(create("statistics(stacks=on), null", 0, &there) == STRATA_SUCCESS);
    child_check(allocate_there(find_top(there), &(strata_request){.bytes = 10}, &block) == STRATA_SUCCESS);
    child_check(leaks(find_top(there), STRATA_FORMAT_TEXT, append, &report) == STRATA_SUCCESS);
    char *first = strstr(report.bytes, "call_stack:");
    first = first ? strchr(first, '\n') : NULL;
    child_check(first != NULL);
    const char *second = strchr(first + 1, '\n');
    const char *frame = strstr(first, "shared_library (");
    printf("the innermost frame is%.200s\n", first);
    child_check(frame != NULL && second != NULL && frame < second);
    test_child_leave(0);
}

static void frames_of_the_shared_library_itself_are_left_out(void **state)
{
    (void)state;
    test_child_run("shared_library", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(leaking_process), TEST_SCENARIO(frees_in_exit_handlers),
                                              TEST_SCENARIO(busy_callback), TEST_SCENARIO(shared_library)};
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    if (!make_tags())
        return 1;
    if (!test_has_symbols())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_live_is_grouped_by_its_call_stack_most_bytes_first, build_with_stacks,
                                        end),
        cmocka_unit_test_setup_teardown(without_call_stacks_groups_have_tag_and_size_in_common, build, end),
        cmocka_unit_test_setup_teardown(call_stacks_are_turned_on_and_off_while_blocks_live, build, end),
        cmocka_unit_test_setup_teardown(
            a_visited_block_has_the_facts_of_its_allocation_and_a_call_stack_that_can_be_read, build_with_stacks, end),
        cmocka_unit_test_setup_teardown(leaks_refuse_what_is_no_report, build, end),
        cmocka_unit_test(below_a_guard_what_is_in_quarantine_counts_and_is_no_leak),
        cmocka_unit_test(a_stack_that_cannot_end_says_what_is_live_if_it_was_asked_to),
        cmocka_unit_test(of_many_groups_the_log_has_the_largest),
        cmocka_unit_test(reports_are_added_to_a_file_which_stays_empty_if_nothing_leaks),
        cmocka_unit_test(a_file_of_the_program_in_the_reports_place_is_neither_written_nor_closed),
        cmocka_unit_test(a_file_may_be_named_for_its_process_and_each_report_names_it),
        cmocka_unit_test(a_report_that_cannot_be_written_is_said_and_the_end_goes_on),
        cmocka_unit_test(a_long_report_has_all_its_groups),
        cmocka_unit_test(a_runtime_that_cannot_end_says_what_is_live_too),
        cmocka_unit_test(a_file_and_its_mode_belong_together_and_the_file_can_be_made),
        cmocka_unit_test(a_process_that_exits_with_live_blocks_reports_them_once),
        cmocka_unit_test(what_exit_handlers_free_is_no_leak_whenever_they_were_registered),
        cmocka_unit_test(a_log_callback_may_end_a_stack_and_make_a_layer),
        cmocka_unit_test(frames_of_the_shared_library_itself_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
