/* What memory debuggers say of programs on the simulated driver. Each program is a function of a few lines, run in a
 * process of its own: under Valgrind's memcheck where there is Valgrind, and as it is in a build with the address
 * sanitizer. Half of them have a bug, and the tool must say the words that stand beside it; about the others it must
 * say nothing at all. Whatever of this is not found, a tool would not find for a user either. */
#include "support/rerun.h"
#include "support/sim.h"

#include <semaphore.h>
#include <strata/strata.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#ifdef ADDRESS_SANITIZER
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#ifdef STRATA_TEST_VALGRIND
enum { KNOWS_VALGRIND = 1 };
#else
enum { KNOWS_VALGRIND = 0 };
#endif

enum { BYTES = 4000, BUG = 99, PATIENCE_S = 60, SKIPPED = 77 };

/* ---- what programs are made of ---- */

static CUstream stream;
static CUfunction touch;
static CUdeviceptr device; /* BYTES, from cuMemAlloc, never written */
static char *pinned;       /* the same */

/* What the host kernel does. */
enum deed { FILLS, ONLY_DECLARES, WRITES_BEHIND, KEEPS, USES_KEPT };
static enum deed deed;
static char *kept;

static void host_kernel(strata_sim_launch *launch)
{
    uint64_t address;
    memcpy(&address, launch->parameters[0], sizeof address);
    launch->declare_write(launch, address, BYTES);
    char *memory = launch->write(launch, address, BYTES);
    if (deed == FILLS) {
        memset(memory, 7, BYTES);
    } else if (deed == WRITES_BEHIND) {
        memory[BYTES] = 7;
    } else if (deed == KEEPS) {
        kept = memory;
    } else if (deed == USES_KEPT) {
        kept[16] = 7;
    }
}

static void launch(enum deed what, CUdeviceptr address)
{
    deed = what;
    void *parameters[] = {&address};
    OK(p_cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void finish(void)
{
    OK(p_cuStreamSynchronize(stream));
}

/* The policy is late: work runs only when a call waits for it. */
static void begin(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                              ".visible .entry touch(.param .u64 a)\n{ ret; }\n";
    CUmodule module;
    test_sim_open();
    OK(p_set_policy(STRATA_SIM_LATE));
    OK(p_register_kernel("touch", host_kernel));
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuModuleLoadData(&module, ptx));
    OK(p_cuModuleGetFunction(&touch, module, "touch"));
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&device, BYTES));
    OK(p_cuMemHostAlloc((void **)&pinned, BYTES, 0));
}

/* Decides something by the byte. Not inlined: it is in the tools' reports. */
static volatile int sevens;
__attribute__((noinline)) static void look_at(const char *byte)
{
    if (*byte == 7) {
        sevens++;
    }
}

/* ---- programs with a bug ---- */

static void a_kernel_writes_behind_its_block(void)
{
    launch(WRITES_BEHIND, device);
    finish();
}

static void a_kernel_uses_a_pointer_of_one_before(void)
{
    launch(KEEPS, device);
    finish();
    OK(p_cuMemFree(device));
    OK(p_cuMemAlloc(&device, BYTES * 2));
    CUdeviceptr other;
    OK(p_cuMemAllocAsync(&other, BYTES, stream));
    launch(USES_KEPT, other);
    kept += BYTES * 2; /* wherever the new block is: outside of it */
    finish();
}

static void a_kernel_uses_memory_after_its_free_in_the_stream(void)
{
    CUdeviceptr block;
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    launch(KEEPS, block);
    OK(p_cuMemFreeAsync(block, stream));
    finish();
    launch(USES_KEPT, device);
    finish();
}

/* A block of the library's guard, whose red zones are part of the allocation below. */
static strata_runtime *runtime;
static strata_block guarded;

static void allocate_guarded(void)
{
    assert_int_equal(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard, async"}, &runtime), 0);
    assert_int_equal(strata_runtime_stream_acquire(runtime, &stream), 0);
    assert_int_equal(strata_runtime_allocate(runtime, BYTES, stream, &guarded), 0);
}

static void free_guarded(void)
{
    assert_int_equal(strata_runtime_deallocate(runtime, &guarded), 0);
}

static void end_guarded(void)
{
    finish();
    strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL);
    assert_int_equal(strata_runtime_stream_release(runtime, stream), 0);
    assert_int_equal(strata_runtime_destroy(runtime), 0);
}

static void a_kernel_writes_into_a_red_zone_and_into_a_block_in_quarantine(void)
{
    allocate_guarded();
    launch(WRITES_BEHIND, guarded.address);
    finish();
    launch(KEEPS, guarded.address);
    free_guarded();
    finish();
    launch(USES_KEPT, device);
    end_guarded();
}

static void bytes_of_a_guarded_block_are_read_that_nobody_wrote(void)
{
    allocate_guarded();
    OK(p_cuMemcpyDtoHAsync(pinned, guarded.address, BYTES, stream));
    finish();
    look_at(pinned + 5);
    free_guarded();
    end_guarded();
}

static void bytes_that_nobody_wrote_are_read(void)
{
    char there[BYTES];
    OK(p_cuMemcpyDtoH(there, device, BYTES));
    look_at(there + 5);
}

static void bytes_that_nobody_wrote_come_a_long_way(void)
{
    CUdeviceptr block;
    OK(p_cuMemsetD8Async(device, 7, BYTES / 2, stream));
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    OK(p_cuMemcpyDtoDAsync(block, device, BYTES, stream));
    OK(p_cuMemcpyDtoHAsync(pinned, block, BYTES, stream));
    finish();
    look_at(pinned + BYTES / 2 - 1);
    look_at(pinned + BYTES / 2);
}

static void bytes_of_the_allocation_before_are_read(void)
{
    CUdeviceptr block;
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    OK(p_cuMemsetD8Async(block, 7, BYTES, stream));
    OK(p_cuMemFreeAsync(block, stream));
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    OK(p_cuMemcpyDtoHAsync(pinned, block, BYTES, stream));
    finish();
    look_at(pinned);
}

static void a_result_is_read_before_its_copy_was_waited_for(void)
{
    launch(FILLS, device);
    OK(p_cuMemcpyDtoHAsync(pinned, device, BYTES, stream));
    look_at(pinned + 100);
}

static void managed_memory_is_written_during_a_fill(void)
{
    CUdeviceptr managed;
    OK(p_cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(p_cuMemsetD8Async(managed, 7, BYTES, stream));
    *(volatile char *)(uintptr_t)managed = 1;
}

static void a_row_is_read_before_it_was_waited_for(void)
{
    OK(p_cuMemsetD2D8Async((CUdeviceptr)(uintptr_t)pinned, 100, 7, 50, 4, stream));
    look_at(pinned + 340);
}

static void managed_memory_is_read_behind_its_end(void)
{
    CUdeviceptr managed;
    OK(p_cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    look_at((const char *)(uintptr_t)managed + BYTES);
}

static void pinned_memory_is_read_after_its_free(void)
{
    memset(pinned, 7, BYTES);
    OK(p_cuMemFreeHost(pinned));
    look_at(pinned);
}

static void the_host_follows_a_device_address(void)
{
    look_at((const char *)(uintptr_t)device);
}

/* ---- programs without ---- */

static void what_was_written_goes_a_long_way(void)
{
    CUdeviceptr block;
    char there[BYTES];
    launch(FILLS, device);
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    OK(p_cuMemcpyDtoDAsync(block, device, BYTES, stream));
    OK(p_cuMemcpyDtoHAsync(pinned, block, BYTES, stream));
    OK(p_cuMemcpyDtoHAsync(there, block, BYTES, stream));
    OK(p_cuMemFreeAsync(block, stream));
    finish();
    look_at(pinned + BYTES - 1);
    look_at(there + BYTES - 1);
    assert_int_equal(sevens, 2);
}

static void a_kernel_that_only_says_what_it_writes(void)
{
    launch(ONLY_DECLARES, device);
    OK(p_cuMemcpyDtoHAsync(pinned, device, BYTES, stream));
    finish();
    look_at(pinned + 9);
}

/* The free was called for before the kernel ran, and comes after it. */
static void a_block_lives_until_its_free_runs(void)
{
    CUdeviceptr block;
    OK(p_cuMemAllocAsync(&block, BYTES, stream));
    launch(FILLS, block);
    OK(p_cuMemcpyDtoHAsync(pinned, block, BYTES, stream));
    OK(p_cuMemFreeAsync(block, stream));
    finish();
    look_at(pinned);
    assert_int_equal(sevens, 1);
}

static void guarded_blocks_are_used_as_they_should_be(void)
{
    for (int i = 0; i < 3; i++) {
        allocate_guarded();
        launch(FILLS, guarded.address);
        OK(p_cuMemcpyDtoHAsync(pinned, guarded.address, BYTES, stream));
        finish();
        look_at(pinned + BYTES - 1);
        free_guarded();
        end_guarded();
    }
    assert_int_equal(sevens, 3);
}

/* What a stream reads from pinned memory is not lost because another copy is to go there later. */
static void pinned_memory_is_read_and_written_in_turn(void)
{
    memset(pinned, 7, BYTES);
    OK(p_cuMemcpyHtoDAsync(device, pinned, BYTES, stream));
    OK(p_cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned, 1, BYTES, stream));
    OK(p_cuMemcpyDtoHAsync(pinned, device, BYTES, stream));
    finish();
    look_at(pinned + BYTES - 1);
    assert_int_equal(sevens, 1);
}

static void beside_what_is_on_its_way(void)
{
    memset(pinned, 7, BYTES);
    OK(p_cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned + 1000, 1, 1000, stream));
    look_at(pinned + 999);
    look_at(pinned + 2000);
    assert_int_equal(sevens, 2);
    finish();
}

static void wait_at(void *gate)
{
    while (sem_wait(gate) != 0) {
    }
}

/* The host holds the stream, and may do as it likes until it lets go. */
static void the_host_holds_the_stream(void)
{
    sem_t gate;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    OK(p_cuLaunchHostFunc(stream, wait_at, &gate));
    OK(p_cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned, 1, BYTES, stream));
    pinned[3] = 7;
    look_at(pinned + 3);
    assert_int_equal(sevens, 1);
    sem_post(&gate);
    finish();
    assert_int_equal(pinned[3], 1);
}

static void the_stream_waits_for_a_value_of_the_host(void)
{
    volatile uint32_t *flag = (volatile uint32_t *)(void *)(pinned + 1024);
    *flag = 0;
    OK(p_cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned, 1, 1000, stream));
    pinned[3] = 7;
    look_at(pinned + 3);
    assert_int_equal(sevens, 1);
    *flag = 1;
    finish();
    assert_int_equal(pinned[3], 1);
}

static void memory_goes_from_owner_to_owner(void)
{
    for (int i = 0; i < 20; i++) {
        CUdeviceptr blocks[4];
        for (size_t k = 0; k < 4; k++) {
            OK(p_cuMemAllocAsync(&blocks[k], 1000 * (k + 1) + (size_t)i, stream));
            OK(p_cuMemsetD8Async(blocks[k], 7, 1000 * (k + 1) + (size_t)i, stream));
        }
        for (size_t k = 0; k < 4; k++) {
            OK(p_cuMemcpyDtoHAsync(pinned, blocks[k], 1000, stream));
            OK(p_cuMemFreeAsync(blocks[k], stream));
        }
    }
    finish();
    look_at(pinned);
    assert_int_equal(sevens, 1);
}

/* Looks for leaks, if a sanitizer can, and says how many times some were found. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* While the driver has all of it; what a program leaves to the end of the process it may still want to give back. */
static void what_the_driver_holds_is_no_leak(void)
{
    enum { MODULES = 300 }; /* more than it tells of at once */
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                              ".visible .entry touch(.param .u64 a)\n{ ret; }\n";
    CUmodule modules[MODULES];
    CUdeviceptr mine;
    for (size_t i = 0; i < MODULES; i++) {
        OK(p_cuModuleLoadData(&modules[i], ptx));
    }
    OK(p_cuMemAllocAsync(&mine, BYTES, stream));
    OK(p_cuMemFreeAsync(mine, stream));
    if (__lsan_do_recoverable_leak_check) {
        assert_int_equal(__lsan_do_recoverable_leak_check(), 0);
    }
    for (size_t i = 0; i < MODULES; i++) {
        OK(p_cuModuleUnload(modules[i]));
    }
    finish();
}

struct program {
    const char *name;
    void (*run)(void);
    const char *memcheck[2];  /* what it says; NULL: nothing */
    const char *sanitizer[2]; /* the same; it does not find reads of bytes that were never written */
};

#define PROGRAM(name) #name, name
static const char uninitialised[] = "depends on uninitialised value";
static const char poisoned[] = "use-after-poison";
static const struct program programs[] = {
    {PROGRAM(a_kernel_writes_behind_its_block),
     {"Invalid write of size 1", "0 bytes after a block of size 4,000 alloc'd"},
     {poisoned, "host_kernel"}},
    {PROGRAM(a_kernel_uses_a_pointer_of_one_before),
     {"Invalid write of size 1", "host_kernel"},
     {poisoned, "host_kernel"}},
    {PROGRAM(a_kernel_uses_memory_after_its_free_in_the_stream),
     {"Invalid write of size 1", "16 bytes inside a block of size 4,000 free'd"},
     {poisoned, "host_kernel"}},
    {PROGRAM(a_kernel_writes_into_a_red_zone_and_into_a_block_in_quarantine),
     {"is 4,256 bytes inside a block of size 4,608 alloc'd", "is 272 bytes inside a block of size 4,608 alloc'd"},
     {NULL}},
    {PROGRAM(bytes_of_a_guarded_block_are_read_that_nobody_wrote), {uninitialised, "look_at"}, {NULL}},
    {PROGRAM(bytes_that_nobody_wrote_are_read), {uninitialised, "look_at"}, {NULL}},
    {PROGRAM(bytes_that_nobody_wrote_come_a_long_way), {uninitialised, "look_at"}, {NULL}},
    {PROGRAM(bytes_of_the_allocation_before_are_read), {uninitialised, "look_at"}, {NULL}},
    {PROGRAM(a_result_is_read_before_its_copy_was_waited_for),
     {"Invalid read of size 1", "100 bytes inside a block of size 4,000 alloc'd"},
     {poisoned, "look_at"}},
    {PROGRAM(managed_memory_is_written_during_a_fill),
     {"Invalid write of size 1", "0 bytes inside a block of size 4,000 alloc'd"},
     {poisoned, "managed_memory_is_written"}},
    {PROGRAM(a_row_is_read_before_it_was_waited_for),
     {"Invalid read of size 1", "340 bytes inside a block of size 4,000 alloc'd"},
     {poisoned, "look_at"}},
    {PROGRAM(managed_memory_is_read_behind_its_end),
     {"Invalid read of size 1", "0 bytes after a block of size 4,000 alloc'd"},
     {poisoned, "look_at"}},
    {PROGRAM(pinned_memory_is_read_after_its_free),
     {"Invalid read of size 1", "0 bytes inside a block of size 4,000 free'd"},
     {"heap-use-after-free", "look_at"}},
    {PROGRAM(the_host_follows_a_device_address),
     {"Bad permissions for mapped region", "the_host_follows_a_device_address"},
     {"SEGV on unknown address", "the_host_follows_a_device_address"}},
    {PROGRAM(what_was_written_goes_a_long_way), {NULL}, {NULL}},
    {PROGRAM(a_kernel_that_only_says_what_it_writes), {NULL}, {NULL}},
    {PROGRAM(a_block_lives_until_its_free_runs), {NULL}, {NULL}},
    {PROGRAM(guarded_blocks_are_used_as_they_should_be), {NULL}, {NULL}},
    {PROGRAM(pinned_memory_is_read_and_written_in_turn), {NULL}, {NULL}},
    {PROGRAM(beside_what_is_on_its_way), {NULL}, {NULL}},
    {PROGRAM(the_host_holds_the_stream), {NULL}, {NULL}},
    {PROGRAM(the_stream_waits_for_a_value_of_the_host), {NULL}, {NULL}},
    {PROGRAM(memory_goes_from_owner_to_owner), {NULL}, {NULL}},
    {PROGRAM(what_the_driver_holds_is_no_leak), {NULL}, {NULL}},
};

enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* ---- running them ---- */

static void run_under_tool(const char *name)
{
    char self[4096];
    if (SANITIZED) {
        test_rerun_program((char *const[]){"test_debuggers", (char *)(uintptr_t)name, NULL});
    } else if (test_program_path(self, sizeof self)) {
        execlp("valgrind", "valgrind", "-q", "--tool=memcheck", "--leak-check=full", "--error-exitcode=99",
               "--suppressions=tests/valgrind.supp", self, name, (char *)NULL);
    }
    _exit(127);
}

/* What the program and the tool say, and how the process ends. */
static int run_program(const char *name, char *text, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        run_under_tool(name);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], text + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    text[length] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void the_tool_says_what_it_must(void **state)
{
    const struct program *program = *state;
    const char *const *words = SANITIZED ? program->sanitizer : program->memcheck;
    static char text[1 << 20];
    int status = run_program(program->name, text, sizeof text);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!words[0]) {
        if (!clean || text[0] != '\0') {
            fail_msg("%s should be clean:\n%s", program->name, text);
        }
        return;
    }
    if (clean) {
        fail_msg("nothing was found in %s", program->name);
    }
    for (int i = 0; i < 2; i++) {
        if (!strstr(text, words[i])) {
            fail_msg("%s: \"%s\" is not in:\n%s", program->name, words[i], text);
        }
    }
}

static bool have_valgrind(void)
{
    return system("valgrind --version >/dev/null 2>&1") == 0;
}

int main(int count, char **arguments)
{
    if (setenv("STRATA_REPORT", "off", 1) != 0) /* what a tool writes is compared */
        return 1;
    for (size_t i = 0; count == 2 && i < PROGRAMS; i++) {
        if (strcmp(arguments[1], programs[i].name) == 0) {
            alarm(PATIENCE_S);
            begin();
            programs[i].run();
            return 0;
        }
    }
    if (!SANITIZED && !(KNOWS_VALGRIND && have_valgrind())) {
        print_message("skipped: neither is this a build with the address sanitizer, nor is there Valgrind and was its "
                      "header there for the simulated driver\n");
        return SKIPPED;
    }
    struct CMUnitTest tests[PROGRAMS];
    for (size_t i = 0; i < PROGRAMS; i++) {
        tests[i] = (struct CMUnitTest){.name = programs[i].name,
                                       .test_func = the_tool_says_what_it_must,
                                       .initial_state = (void *)(uintptr_t)&programs[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
