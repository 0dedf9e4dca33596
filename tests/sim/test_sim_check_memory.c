/* The checker without host memory: it stops, and the program goes on. Each allocation of the driver in a scenario fails
 * once, in a process of its own. Allocations of memory debuggers are not the program's: there nothing fails. */
#include "planted/world.h"

#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { KEPT = 64, DEADLINE_S = 60, NONE_LEFT = 66 };

extern void *__libc_malloc(size_t bytes);

static uintptr_t driver_begin, driver_end; /* of the simulated driver's code */
static atomic_long until_failure;          /* calls of malloc by the driver; 0: none fails */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static bool by_driver(uintptr_t caller)
{
    return caller >= driver_begin && caller < driver_end;
}

/* In place of the C library's, for all libraries. */
void *malloc(size_t bytes);
void *malloc(size_t bytes)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (atomic_load(&until_failure) > 0 && by_driver(caller) && atomic_fetch_sub(&until_failure, 1) == 1)
        return NULL;
    return __libc_malloc(bytes);
}
#endif

static int find_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "strata-sim"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X)) {
            driver_begin = info->dlpi_addr + segment->p_vaddr;
            driver_end = driver_begin + segment->p_memsz;
        }
    }
    return 1;
}

static void nothing(void *unused)
{
    (void)unused;
}

/* The bytes' first fill displaces nothing, the second one the record of the first. */
static void fill_twice(CUstream stream, CUdeviceptr address)
{
    OK(p_cuMemsetD8Async(address, 1, 1, stream));
    OK(p_cuMemsetD8Async(address, 2, 1, stream));
}

/* As many records are displaced, and kept for a host function, as are kept before some are dropped. Then that function
 * is over, and the other one comes after all of them: the next record finds all dropped, and itself kept. */
static void displace_records(struct world *world, long failing)
{
    OK(p_set_policy(STRATA_SIM_LATE));
    OK(p_cuLaunchHostFunc(world->b, nothing, NULL));
    for (unsigned i = 0; i < KEPT; i++)
        fill_twice(world->a, world->x + 2 * i);
    hand_over(world->event, world->a, world->c);
    OK(p_cuLaunchHostFunc(world->c, nothing, NULL));
    OK(p_cuStreamSynchronize(world->b));
    atomic_store(&until_failure, failing);
    CUresult result = p_cuMemsetD8Async(world->x + 2 * KEPT, 1, 1, world->a);
    if (result == CUDA_SUCCESS)
        result = p_cuMemsetD8Async(world->x + 2 * KEPT, 2, 1, world->a);
    assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
}

static int run_with_a_failure(long failing)
{
    alarm(DEADLINE_S);
    OK(p_cuInit(0));
    OK(p_register_kernel("touch", touch_host_kernel));
    dl_iterate_phdr(find_driver, NULL);
    assert_true(driver_end > driver_begin);
    struct world world = world_begin(STRATA_SIM_CHECK_NO_STACKS);
    displace_records(&world, failing);
    bool failed = atomic_exchange(&until_failure, 0) == 0;
    world_end(&world);
    uint64_t count;
    OK(p_get_report_count(&count));
    return count > 0 ? 1 : failed ? 0 : NONE_LEFT;
}

static int status_with_a_failure(long failing)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        exit(run_with_a_failure(failing));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void a_checker_that_runs_out_of_memory_lets_the_program_end(void **state)
{
    (void)state;
    long failing = 1;
    int status;
    while ((status = status_with_a_failure(failing)) == 0)
        failing++;
    assert_int_equal(status, NONE_LEFT);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (!getenv("LD_PRELOAD") || !strstr(getenv("LD_PRELOAD"), "valgrind"))
        assert_true(failing > 1);
#endif
}

int main(void)
{
    test_sim_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checker_that_runs_out_of_memory_lets_the_program_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
