/* What a report of the checker says, how reports are counted and handed out, and accesses of the host that are caught.
 */
#include "planted/world.h"
#include "support/rerun.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

/* What catches accesses allocates in a signal handler: it is called by the access itself, at a place of the program
 * that holds no lock of the allocator. The thread sanitizer takes it for a signal from anywhere. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_signal_unsafe=0";
}

static strata_sim_report only_report(void)
{
    uint64_t count;
    strata_sim_report report;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 1);
    OK(p_get_report(0, &report));
    return report;
}

static struct world fresh_world(uint32_t modes)
{
    OK(p_clear_reports());
    return world_begin(modes);
}

static uint64_t id_of(CUstream stream)
{
    unsigned long long id;
    OK(p_cuStreamGetId(stream, &id));
    return id;
}

static void assert_says(const strata_sim_report *report, const char *words)
{
    if (!strstr(report->text, words))
        fail_msg("\"%s\" is not in:\n%s", words, report->text);
}

/* Not inlined, so that it is in the call stack. */
__attribute__((noinline)) void the_producer_of_the_report(struct world *world);
__attribute__((noinline)) void the_consumer_of_the_report(struct world *world);

void the_producer_of_the_report(struct world *world)
{
    kernel(world, world->a, world->x, BYTES, WRITES);
}

void the_consumer_of_the_report(struct world *world)
{
    OK(p_cuMemcpyDtoHAsync(world->pinned, world->x + 16, 64, world->b));
}

static void a_report_names_both_operations_their_streams_and_the_missing_edge(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    the_producer_of_the_report(&world);
    the_consumer_of_the_report(&world);
    OK(p_cuCtxSynchronize());
    strata_sim_report report = only_report();
    assert_int_equal(report.kind, STRATA_SIM_REPORT_WRITE_READ);
    assert_int_equal(report.address, world.x + 16);
    assert_int_equal(report.bytes, 64);
    assert_string_equal(report.first.entry, "cuLaunchKernel");
    assert_int_equal(report.first.stream, id_of(world.a));
    assert_int_equal(report.second.stream, id_of(world.b));
    assert_true(report.first.order < report.second.order);
    assert_says(&report, "kernel touch, cuLaunchKernel");
    assert_says(&report, "copy, cuMemcpyDtoHAsync, number");
    assert_says(&report, "the_producer_of_the_report");
    assert_says(&report, "the_consumer_of_the_report");
    assert_says(&report, "allocation, cuMemAlloc");
    char missing[128];
    snprintf(missing, sizeof missing, "stream %llu never waited for the kernel on stream %llu: record an event",
             (unsigned long long)id_of(world.b), (unsigned long long)id_of(world.a));
    assert_says(&report, missing);
    world_end(&world);
}

static void assert_says_not(const strata_sim_report *report, const char *words)
{
    if (strstr(report->text, words))
        fail_msg("\"%s\" is in:\n%s", words, report->text);
}

__attribute__((noinline)) void the_first_block_of_the_pool(CUdeviceptr address);
__attribute__((noinline)) void the_second_block_of_the_pool(CUdeviceptr address);

void the_first_block_of_the_pool(CUdeviceptr address)
{
    OK(p_region_begin(address, 256, 1));
}

void the_second_block_of_the_pool(CUdeviceptr address)
{
    OK(p_region_begin(address, 512, 2));
}

static void race_at(const struct world *world, CUdeviceptr address)
{
    OK(p_cuMemsetD8Async(address, 1, 16, world->a));
    OK(p_cuMemsetD8Async(address, 2, 16, world->b));
    OK(p_cuCtxSynchronize());
}

static void a_report_names_the_allocation_of_a_pools_block(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    strata_sim_report report;
    char words[64];
    the_first_block_of_the_pool(world.x + 256);
    race_at(&world, world.x + 300);
    report = only_report();
    snprintf(words, sizeof words, "allocated: block of 256 bytes at 0x%llx", world.x + 256);
    assert_says(&report, words);
    assert_says(&report, "the_first_block_of_the_pool");
    OK(p_clear_reports());
    race_at(&world, world.x + 512); /* behind it */
    report = only_report();
    assert_says(&report, "allocated: allocation, cuMemAlloc");
    assert_says_not(&report, "block of");
    world_end(&world);
}

/* The block that was there: also after its end, and until the next one is handed out. */
static void a_report_names_the_last_block_that_a_pool_handed_out_there(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    strata_sim_report report;
    the_first_block_of_the_pool(world.x + 256);
    OK(p_region_end(world.x + 256, 1));
    race_at(&world, world.x + 256);
    report = only_report();
    assert_says(&report, "the_first_block_of_the_pool");
    OK(p_clear_reports());
    the_second_block_of_the_pool(world.x); /* meets the first one */
    OK(p_region_end(world.x, 1));          /* late, and not its number */
    race_at(&world, world.x + 384);
    report = only_report();
    assert_says(&report, "the_second_block_of_the_pool");
    assert_says_not(&report, "the_first_block_of_the_pool");
    world_end(&world);
}

static void memory_that_the_driver_hands_out_anew_has_no_old_block(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUdeviceptr before = world.y, again;
    the_first_block_of_the_pool(world.y);
    OK(p_cuMemFree(world.y));
    OK(p_cuMemAlloc(&again, BYTES));
    world.y = again;
    assert_int_equal(again, before);
    race_at(&world, again);
    strata_sim_report report = only_report();
    assert_says_not(&report, "the_first_block_of_the_pool");
    assert_says(&report, "allocated: allocation, cuMemAlloc");
    world_end(&world);
}

static void a_region_without_bytes_is_refused(void **state)
{
    (void)state;
    assert_int_equal(p_region_begin(0, 16, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_region_begin(4096, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_region_begin(4096, SIZE_MAX, 1), CUDA_ERROR_INVALID_VALUE);
    OK(p_region_end(4096, 1));
}

static void a_report_tells_the_host_what_to_wait_for(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    download(&world, world.a, world.x);
    host_reads(&world);
    strata_sim_report report = only_report();
    assert_string_equal(report.second.entry, "read");
    assert_int_equal(report.second.stream, 0);
    assert_says(&report, "the host never waited for the copy on stream");
    assert_says(&report, "pinned memory");
    world_end(&world);
}

static void a_report_names_both_addresses_of_memory_that_is_mapped_twice(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    struct twice memory = map_twice();
    char words[64];
    OK(p_cuMemsetD8Async(memory.one, 1, 100, world.a));
    OK(p_cuMemsetD8Async(memory.two + 60, 1, 100, world.b));
    strata_sim_report report = only_report();
    assert_int_equal(report.address, memory.two + 60);
    assert_int_equal(report.bytes, 40);
    snprintf(words, sizeof words, "also: at 0x%llx, where the first operation", memory.one + 60);
    assert_says(&report, words);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
    world_end(&world);
}

static void the_same_place_is_reported_once(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    volatile int rounds = 10; /* a loop that stays one: each call has one place */
    for (int i = 0; i < rounds; i++) {
        the_producer_of_the_report(&world);
        the_consumer_of_the_report(&world);
        OK(p_cuCtxSynchronize());
    }
    assert_int_equal(only_report().times, 10);
    OK(p_clear_reports());
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    strata_sim_report report;
    assert_int_equal(p_get_report(0, &report), CUDA_ERROR_INVALID_VALUE);
    world_end(&world);
}

static void count_call(const strata_sim_report *report, void *data)
{
    assert_int_equal(report->kind, STRATA_SIM_REPORT_WRITE_WRITE);
    ++*(int *)data;
}

static void a_callback_gets_each_report(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    int calls = 0;
    OK(p_set_report_callback(count_call, &calls));
    fill(world.a, world.x);
    fill(world.b, world.x);
    assert_int_equal(calls, 1);
    OK(p_set_report_callback(NULL, NULL));
    fill(world.c, world.x);
    assert_int_equal(calls, 1);
    world_end(&world);
}

static void without_call_stacks_each_pair_is_a_report(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_NO_STACKS);
    for (int i = 0; i < 3; i++) {
        fill(world.a, world.x);
        fill(world.b, world.x);
        OK(p_cuCtxSynchronize());
    }
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 3);
    world_end(&world);
}

static void no_more_than_a_thousand_reports_are_kept(void **state)
{
    (void)state;
    enum { KEPT = 1000, MORE = 3 };
    struct world world = fresh_world(STRATA_SIM_CHECK_NO_STACKS);
    for (int i = 0; i < KEPT + MORE; i++) {
        fill(world.a, world.x);
        fill(world.b, world.x);
        OK(p_cuCtxSynchronize());
    }
    uint64_t count;
    strata_sim_report report;
    OK(p_get_report_count(&count));
    assert_int_equal(count, KEPT + MORE);
    OK(p_get_report(KEPT - 1, &report));
    assert_int_equal(p_get_report(KEPT, &report), CUDA_ERROR_INVALID_VALUE);
    world_end(&world);
}

/* Waits for b as told: by asking for it, or not at all but by a call that waits by itself. */
static void wait_or_not(const struct world *world, bool wait)
{
    CUdeviceptr other;
    if (wait)
        OK(p_cuStreamSynchronize(world->b));
    OK(p_cuMemAlloc(&other, BYTES));
    OK(p_cuMemFree(other));
}

static void free_plainly(struct world *world, bool wait)
{
    CUdeviceptr mine;
    OK(p_cuMemAlloc(&mine, BYTES));
    kernel(world, world->b, mine, BYTES, WRITES);
    wait_or_not(world, wait);
    OK(p_cuMemFree(mine));
}

static void free_pinned(struct world *world, bool wait)
{
    void *mine;
    OK(p_cuMemHostAlloc(&mine, BYTES, 0));
    OK(p_cuMemcpyDtoHAsync(mine, world->x, BYTES, world->b));
    wait_or_not(world, wait);
    OK(p_cuMemFreeHost(mine));
}

static void unregister(struct world *world, bool wait)
{
    static _Alignas(4096) char mine[4096];
    OK(p_cuMemHostRegister(mine, sizeof mine, 0));
    OK(p_cuMemcpyDtoHAsync(mine, world->x, BYTES, world->b));
    wait_or_not(world, wait);
    OK(p_cuMemHostUnregister(mine));
}

/* What the call adds to the edges, and whether that one is idle. */
#define assert_edge(call, idle)                                             \
    do {                                                                    \
        strata_sim_check_accounts then, now;                                \
        OK(p_get_check_accounts(&then));                                    \
        OK(call);                                                           \
        OK(p_get_check_accounts(&now));                                     \
        assert_int_equal(now.edges - then.edges, 1);                        \
        assert_int_equal(now.idle_edges - then.idle_edges, (idle) ? 1 : 0); \
    } while (0)

static void edges_that_order_nothing_new_are_counted(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    OK(p_cuCtxSynchronize());
    fill(world.a, world.x);
    assert_edge(p_cuEventRecord(world.event, world.a), false);
    assert_edge(p_cuEventRecord(world.event, world.a), true); /* nothing was submitted between the two */
    assert_edge(p_cuStreamWaitEvent(world.b, world.event, 0), false);
    assert_edge(p_cuStreamWaitEvent(world.b, world.event, 0), true);
    assert_edge(p_cuEventRecord(world.other, world.b), false); /* b comes after a's work now */
    assert_edge(p_cuStreamWaitEvent(world.c, world.other, 0), false);
    assert_edge(p_cuStreamWaitEvent(world.c, world.event, 0), true); /* by way of b */
    assert_edge(p_cuStreamSynchronize(world.c), false);
    assert_edge(p_cuStreamSynchronize(world.a), true); /* c came after all of it */
    assert_edge(p_cuEventSynchronize(world.event), true);
    assert_edge(p_cuCtxSynchronize(), true);
    fill(world.a, world.x);
    assert_edge(p_cuEventRecord(world.event, world.a), false);
    assert_edge(p_cuEventSynchronize(world.event), false);
    assert_edge(p_cuStreamWaitEvent(world.b, world.event, 0), true); /* the host knows that it is done */
    assert_edge(p_cuEventQuery(world.event), true);

    /* The legacy stream comes after blocking streams without being asked. */
    fill(world.blocking, world.x);
    assert_edge(p_cuEventRecord(world.event, world.blocking), false);
    assert_edge(p_cuStreamWaitEvent(CU_STREAM_LEGACY, world.event, 0), true);
    world_end(&world);
}

/* The calls wait for all work by themselves; only the mode reports a program that relies on that. */
static void a_free_that_relies_on_the_wait_of_the_call_is_reported_when_asked(void **state)
{
    (void)state;
    void (*const frees[])(struct world *, bool) = {free_plainly, free_pinned, unregister};
    for (size_t i = 0; i < sizeof frees / sizeof frees[0]; i++) {
        for (int asked = 0; asked <= 1; asked++) {
            struct world world = fresh_world(asked ? STRATA_SIM_CHECK_FREES : 0);
            uint64_t count;
            frees[i](&world, true);
            OK(p_get_report_count(&count));
            assert_int_equal(count, 0);
            frees[i](&world, false);
            OK(p_get_report_count(&count));
            assert_int_equal(count, asked);
            if (asked) {
                strata_sim_report report = only_report();
                assert_int_equal(report.kind, STRATA_SIM_REPORT_FREE_IN_USE);
                assert_says(&report, "the host never waited for");
            }
            world_end(&world);
        }
    }
}

static void what_was_there_before_the_checker_counts_as_done(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    OK(p_set_check(STRATA_SIM_CHECK_OFF));
    kernel(&world, world.a, world.x, BYTES, WRITES);
    fill(world.a, world.y);
    OK(p_set_check(STRATA_SIM_CHECK_ON | STRATA_SIM_CHECK_UNWRITTEN));
    copy(world.b, world.y, world.x);
    OK(p_cuCtxSynchronize());
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    world_end(&world);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(p_set_check(0x100), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_get_report_count(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_get_report(0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_get_check_accounts(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_host_signals(), CUDA_ERROR_NOT_PERMITTED);
}

/* ---- caught accesses ---- */

enum { PAGES = 4, PAGE = 4096 };

static volatile char *watched_memory(void)
{
    void *memory;
    OK(p_cuMemHostAlloc(&memory, PAGES * PAGE, 0));
    return memory;
}

static void download_to(const struct world *world, volatile char *memory, size_t offset, size_t bytes)
{
    OK(p_cuMemcpyDtoHAsync((void *)(uintptr_t)(memory + offset), world->x, bytes, world->a));
}

static void a_read_that_nobody_declared_is_caught(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_PAGES);
    volatile char *memory = watched_memory();
    memory[0] = 7;
    download_to(&world, memory, PAGE, 100);
    char byte = memory[0]; /* another page, that nothing touches */
    (void)byte;
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    byte = memory[PAGE + 5000 % PAGE];
    strata_sim_report report = only_report();
    assert_int_equal(report.kind, STRATA_SIM_REPORT_WRITE_READ);
    assert_says(&report, "a_read_that_nobody_declared_is_caught");
    OK(p_cuMemFreeHost((void *)(uintptr_t)memory));
    world_end(&world);
}

static void a_write_that_nobody_declared_is_caught(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_PAGES);
    volatile char *memory = watched_memory();
    OK(p_cuMemcpyHtoDAsync(world.x, (void *)(uintptr_t)memory, 100, world.a));
    char byte = memory[1]; /* reading is allowed, and does not open the page for writing */
    memory[1] = (char)(byte + 1);
    strata_sim_report report = only_report();
    assert_int_equal(report.kind, STRATA_SIM_REPORT_READ_WRITE);
    OK(p_cuMemFreeHost((void *)(uintptr_t)memory));
    world_end(&world);
}

static void watched_memory_holds_what_was_written(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_PAGES);
    volatile char *memory = watched_memory();
    OK(p_cuMemsetD8Async(world.x, 42, BYTES, world.a));
    for (int i = 0; i < PAGES; i++) {
        download_to(&world, memory, (size_t)i * PAGE, PAGE);
        OK(p_cuStreamSynchronize(world.a));
        assert_int_equal(memory[i * PAGE + 17], 42);
        memory[i * PAGE + 17] = 43;
        OK(p_cuMemcpyHtoDAsync(world.x, (void *)(uintptr_t)(memory + i * PAGE + 17), 1, world.a));
        OK(p_cuStreamSynchronize(world.a));
        char byte = 0;
        OK(p_cuMemcpyDtoHAsync(&byte, world.x, 1, world.a));
        assert_int_equal(byte, 43);
    }
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    OK(p_cuMemFreeHost((void *)(uintptr_t)memory));
    world_end(&world);
}

struct shared_word {
    volatile char *memory;
    char before;
};

static void CUDA_CB look_and_count(void *data)
{
    struct shared_word *word = data;
    word->before = word->memory[0];
    word->memory[0] = (char)(word->before + 1);
}

/* On the thread of host functions, which takes no signals but for those that it raises itself. */
static void a_host_function_may_be_the_first_to_touch_watched_memory(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_PAGES);
    struct shared_word word = {.memory = watched_memory()};
    OK(p_cuMemsetD8Async(world.x, 5, BYTES, world.a));
    download_to(&world, word.memory, 0, 100);
    OK(p_cuLaunchHostFunc(world.a, look_and_count, &word));
    OK(p_cuStreamSynchronize(world.a));
    assert_int_equal(word.before, 5);
    assert_int_equal(word.memory[0], 6);
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    OK(p_cuMemFreeHost((void *)(uintptr_t)word.memory));
    world_end(&world);
}

static sigjmp_buf not_ours;

static void jump_back(int number)
{
    siglongjmp(not_ours, number);
}

static void a_fault_that_is_not_ours_is_passed_on(void **state)
{
    (void)state;
    struct sigaction mine = {.sa_handler = jump_back};
    struct sigaction before;
    OK(sigaction(SIGSEGV, &mine, &before));
    struct world world = fresh_world(STRATA_SIM_CHECK_PAGES);
    volatile char *memory = watched_memory();
    if (sigsetjmp(not_ours, 1) == 0) {
        *(volatile char *)(uintptr_t)world.x = 1; /* device memory is not the host's */
        fail_msg("no fault");
    }
    OK(p_cuMemFreeHost((void *)(uintptr_t)memory));
    world_end(&world);
    OK(sigaction(SIGSEGV, &before, NULL));
}

/* ---- the environment ---- */

enum { OWN_STATUS = 3, STATUS = 57, SIGNALLED = 256 };

static char errors[] = "/tmp/strata-errors-XXXXXX"; /* what child processes write to standard error */
static char file[] = "/tmp/strata-reports-XXXXXX";  /* where reports go */

static pid_t last_child;

static int make_files(void **state)
{
    (void)state;
    int error = mkstemp(errors);
    int handle = mkstemp(file);
    return error >= 0 && handle >= 0 && close(error) == 0 && close(handle) == 0 && unlink(file) == 0 ? 0 : -1;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(file);
    return unlink(errors);
}

/* In a process of its own, before cuInit: a race, and what the process leaves. */
static int run_in_process(const char *check, const char *where, const char *program)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int error = open(errors, O_WRONLY | O_APPEND | O_CREAT, 0600);
        dup2(error, STDERR_FILENO);
        setenv("STRATA_SIM_CHECK", check, 1);
        setenv("STRATA_SIM_CHECK_FILE", where, 1);
        setenv("STRATA_SIM_CHECK_EXIT", "57", 1);
        test_rerun_program((char *const[]){"test_sim_check_reports", (char *)(uintptr_t)program, NULL});
        _exit(1);
    }
    int status;
    last_child = child;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALLED + WTERMSIG(status);
}

static char *contents_of(const char *name)
{
    static char text[8192];
    FILE *in = fopen(name, "r");
    size_t bytes = in ? fread(text, 1, sizeof text - 1, in) : 0;
    text[bytes] = '\0';
    if (in)
        fclose(in);
    return text;
}

static void at_exit_reports_are_written_and_the_status_says_so(void **state)
{
    (void)state;
    assert_int_equal(run_in_process("1", file, "race"), STATUS);
    assert_non_null(strstr(contents_of(file), "a write does not come after another"));
    assert_non_null(strstr(contents_of(file), "strata-sim: 1 report\n"));
    unlink(file);
    assert_int_equal(run_in_process("1", file, "right"), OWN_STATUS);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(run_in_process("0", file, "race"), OWN_STATUS);
    assert_int_equal(run_in_process("unwritten,no-stacks", file, "unwritten"), STATUS);
    assert_non_null(strstr(contents_of(file), "a read of bytes that were never written"));
    unlink(file);
    assert_int_equal(run_in_process("sometimes", file, "right"), 1);
}

static void reports_are_written_however_the_process_ends(void **state)
{
    (void)state;
    static const struct {
        const char *program;
        const char *where; /* "": standard error */
        int status;
    } ends[] = {
        {"abort", "", SIGNALLED + SIGABRT}, {"terminate", file, SIGNALLED + SIGTERM}, {"leave", "", OWN_STATUS}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        assert_int_equal(truncate(errors, 0), 0);
        assert_int_equal(run_in_process("1", ends[i].where, ends[i].program), ends[i].status);
        const char *text = contents_of(ends[i].where[0] ? file : errors);
        assert_non_null(strstr(text, "a write does not come after another"));
        assert_non_null(strstr(text, "wait for that event before the fill.\n\n"));
        assert_null(strstr(text, " report\n"));
    }
    unlink(file);
}

static size_t times_in(const char *text, const char *words)
{
    size_t times = 0;
    while ((text = strstr(text, words))) {
        text += strlen(words);
        times++;
    }
    return times;
}

static void what_is_found_again_is_counted_at_exit(void **state)
{
    (void)state;
    assert_int_equal(run_in_process("1", file, "again"), STATUS);
    const char *text = contents_of(file);
    assert_int_equal(times_in(text, "strata-sim: a write does not come after another\n"), 2);
    assert_int_equal(times_in(text, "strata-sim: found 3 times: a write does not come after another, numbers "), 1);
    assert_int_equal(times_in(text, " times: "), 1);
    assert_non_null(strstr(text, "strata-sim: 2 reports\n"));
    unlink(file);
}

static void a_checker_that_the_program_turned_on_writes_if_the_environment_says_where_or_what_for(void **state)
{
    (void)state;
    assert_int_equal(run_in_process("", file, "asked"), STATUS);
    assert_non_null(strstr(contents_of(file), "a write does not come after another"));
    unlink(file);
    assert_int_equal(truncate(errors, 0), 0);
    assert_int_equal(run_in_process("", "", "asked"), STATUS);
    assert_non_null(strstr(contents_of(errors), "a write does not come after another"));
}

static void reports_that_the_file_does_not_take_go_to_standard_error(void **state)
{
    (void)state;
    static const char *const files[] = {"/dev/full", "/nowhere/reports", "/tmp"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_int_equal(truncate(errors, 0), 0);
        assert_int_equal(run_in_process("1", files[i], "race"), STATUS);
        const char *text = contents_of(errors);
        assert_int_equal(times_in(text, "a write does not come after another"), 1);
        assert_int_equal(times_in(text, "strata-sim: 1 report\n"), 1);
    }
}

/* A relative name is one of the folder that the process started in; %p is the process. */
static void the_file_is_named_when_the_process_starts(void **state)
{
    (void)state;
    char name[64];
    char found[64];
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/tmp"), 0);
    snprintf(name, sizeof name, "%s-%%p", strrchr(file, '/') + 1);
    assert_int_equal(run_in_process("1", name, "elsewhere"), STATUS);
    snprintf(found, sizeof found, "%s-%ld", file, (long)last_child);
    assert_int_equal(chdir(before), 0);
    assert_non_null(strstr(contents_of(found), "a write does not come after another"));
    unlink(found);
}

/* Its access is no use of the driver, which it does not have. */
static void a_forked_child_writes_no_report(void **state)
{
    (void)state;
    assert_int_equal(run_in_process("pages", file, "fork"), OWN_STATUS);
    assert_int_equal(access(file, F_OK), -1);
}

/* Source lines take more stack than an alternate one need have. */
static void a_report_of_an_access_does_not_use_the_programs_alternate_stack(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's handler for stacks that ran over stands behind */
#endif
    assert_int_equal(run_in_process("pages", file, "small stack"), STATUS);
    assert_non_null(strstr(contents_of(file), "strata-sim: 1 report\n"));
    unlink(file);
}

static int look_with_a_small_stack(const struct world *world)
{
    const long least = sysconf(_SC_MINSIGSTKSZ);
    stack_t small = {.ss_size = (size_t)(least > 0 ? least : MINSIGSTKSZ) + 1024};
    small.ss_sp = malloc(small.ss_size);
    if (!small.ss_sp || sigaltstack(&small, NULL) != 0)
        return 1;
    volatile char *memory = watched_memory();
    download_to(world, memory, 0, 100);
    return memory[0] == 77 ? 1 : OWN_STATUS; /* looked at, or Valgrind leaves the access out */
}

static int fork_and_look(const struct world *world)
{
    volatile char *memory = watched_memory();
    download_to(world, memory, 0, 100);
    pid_t forked = fork();
    if (forked == 0) {
        char byte = memory[0];
        (void)byte;
        _exit(0);
    }
    int status;
    bool good = forked > 0 && waitpid(forked, &status, 0) == forked && WIFEXITED(status);
    return good ? OWN_STATUS : 1;
}

static void race_of_fills(const struct world *world, int times)
{
    volatile int rounds = times; /* as above */
    for (int i = 0; i < rounds; i++) {
        fill(world->a, world->x);
        fill(world->b, world->x);
        OK(p_cuCtxSynchronize());
    }
}

static int end_as(const struct world *world, const char *program)
{
    if (strcmp(program, "again") == 0)
        race_of_fills(world, 3);
    race_of_fills(world, 1);
    if (strcmp(program, "abort") == 0)
        abort();
    if (strcmp(program, "terminate") == 0)
        raise(SIGTERM);
    if (strcmp(program, "leave") == 0)
        _exit(OWN_STATUS);
    return OWN_STATUS;
}

/* The kernel has not run when the process exits; it says what it touches then. */
static int child(const char *program)
{
    test_sim_open();
    if (p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    if (strcmp(program, "asked") == 0)
        OK(p_set_check(STRATA_SIM_CHECK_ON));
    if (strcmp(program, "elsewhere") == 0 && chdir("/") != 0)
        return 1;
    struct world world;
    world.context = test_sim_begin();
    OK(p_cuModuleLoadData(&world.module, world_ptx));
    OK(p_cuModuleGetFunction(&world.touch, world.module, "touch"));
    OK(p_cuMemAlloc(&world.x, BYTES));
    world.a = new_stream(CU_STREAM_NON_BLOCKING);
    world.b = new_stream(CU_STREAM_NON_BLOCKING);
    bool kernels = strcmp(program, "race") == 0 || strcmp(program, "right") == 0;
    bool unwritten = strcmp(program, "unwritten") == 0;
    if (strcmp(program, "fork") == 0)
        return fork_and_look(&world);
    if (strcmp(program, "small stack") == 0)
        return look_with_a_small_stack(&world);
    if (!kernels && !unwritten)
        return end_as(&world, program);
    kernel(&world, world.a, world.x, BYTES, unwritten ? READS : WRITES);
    if (strcmp(program, "race") == 0)
        kernel(&world, world.b, world.x, BYTES, WRITES);
    return OWN_STATUS;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return child(arguments[1]);
    test_sim_open();
    if (p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_names_both_operations_their_streams_and_the_missing_edge),
        cmocka_unit_test(a_report_names_the_allocation_of_a_pools_block),
        cmocka_unit_test(a_report_names_the_last_block_that_a_pool_handed_out_there),
        cmocka_unit_test(memory_that_the_driver_hands_out_anew_has_no_old_block),
        cmocka_unit_test(a_region_without_bytes_is_refused),
        cmocka_unit_test(a_report_tells_the_host_what_to_wait_for),
        cmocka_unit_test(a_report_names_both_addresses_of_memory_that_is_mapped_twice),
        cmocka_unit_test(the_same_place_is_reported_once),
        cmocka_unit_test(a_callback_gets_each_report),
        cmocka_unit_test(without_call_stacks_each_pair_is_a_report),
        cmocka_unit_test(no_more_than_a_thousand_reports_are_kept),
        cmocka_unit_test(edges_that_order_nothing_new_are_counted),
        cmocka_unit_test(a_free_that_relies_on_the_wait_of_the_call_is_reported_when_asked),
        cmocka_unit_test(what_was_there_before_the_checker_counts_as_done),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_read_that_nobody_declared_is_caught),
        cmocka_unit_test(a_write_that_nobody_declared_is_caught),
        cmocka_unit_test(watched_memory_holds_what_was_written),
        cmocka_unit_test(a_host_function_may_be_the_first_to_touch_watched_memory),
        cmocka_unit_test(a_fault_that_is_not_ours_is_passed_on),
        cmocka_unit_test(at_exit_reports_are_written_and_the_status_says_so),
        cmocka_unit_test(reports_are_written_however_the_process_ends),
        cmocka_unit_test(what_is_found_again_is_counted_at_exit),
        cmocka_unit_test(a_checker_that_the_program_turned_on_writes_if_the_environment_says_where_or_what_for),
        cmocka_unit_test(reports_that_the_file_does_not_take_go_to_standard_error),
        cmocka_unit_test(the_file_is_named_when_the_process_starts),
        cmocka_unit_test(a_forked_child_writes_no_report),
        cmocka_unit_test(a_report_of_an_access_does_not_use_the_programs_alternate_stack),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
