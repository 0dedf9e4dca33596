/* Forks in the middle of Strata's code, on a driver that answers some calls of a child, too (wider_driver.c). The child
 * has all locks as they were, and its one thread holds some of them: a call that takes one waits for ever. */
#define _GNU_SOURCE
#include "interrupted.h"
#include "wider_calls.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 30, MAPPED = 0x55, HELD = 0x7e00 };

/* ---- calls ---- */

static __typeof__(&cuArrayCreate_v2) create_array;
static __typeof__(&cuArrayDestroy) destroy_array;
static __typeof__(&cuGraphicsResourceGetMappedPointer_v2) get_mapped;
static __typeof__(&cuMemRetainAllocationHandle) retain_handle;
static __typeof__(&cuGraphAddMemAllocNode) add_node;
static __typeof__(&cuCtxDetach) detach_context;

static void find(void *function, const char *name, int version)
{
    void *address = ask(name, version);
    memcpy(function, &address, sizeof address);
}

static void find_all(void)
{
    find(&create_array, "cuArrayCreate", 3020);
    find(&destroy_array, "cuArrayDestroy", 2000);
    find(&get_mapped, "cuGraphicsResourceGetMappedPointer", 3020);
    find(&retain_handle, "cuMemRetainAllocationHandle", 11000);
    find(&add_node, "cuGraphAddMemAllocNode", 11040);
    find(&detach_context, "cuCtxDetach", 2000);
}

/* Each asks the table of what was passed on in its own way. The driver answers the same in a child. */
static void call(int number)
{
    static const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUmemGenericAllocationHandle handle;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 1};
    CUgraphNode node;
    CUdeviceptr address;
    size_t bytes;
    if (number == 0 && create_array(&array, &shape) == CUDA_SUCCESS)
        destroy_array(array);
    else if (number == 1)
        get_mapped(&address, &bytes, (CUgraphicsResource)(uintptr_t)MAPPED); /* NOLINT: a handle */
    else if (number == 2)
        retain_handle(&handle, (void *)(uintptr_t)HELD); /* NOLINT: an address */
    else if (number == 3)
        add_node(&node, NULL, NULL, 0, &params);
    else if (number == 4)
        DRIVER(cuMemFreeHost)(&handle);
    else if (number == 5)
        DRIVER(cuMemFree)(HELD);
}

static void detach_none(void)
{
    detach_context(NULL); /* an end that looks at all that was passed on */
}

/* ---- forks ---- */

static volatile sig_atomic_t forks, stuck;
static volatile int *last_call; /* of the child; shared with it */

static void run_child(void)
{
    alarm(30); /* instead of a wait for ever, however busy the machine is */
    for (*last_call = 0; *last_call < 6; (*last_call)++)
        call(*last_call);
    detach_none();
    _exit(0);
}

static void fork_in_between(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = interrupted_at(context);
    int status = 0;
    (void)number;
    (void)info;
    if (at < strata_code.from || at >= strata_code.to || forks >= FORKS || stuck)
        return;
    forks++;
    const pid_t child = fork();
    if (child == 0)
        run_child();
    stuck = child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(void)
{
    const struct sigaction action = {.sa_sigaction = fork_in_between, .sa_flags = SA_SIGINFO | SA_RESTART};
    const struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}}, never = {0};
    begin();
    find_all();
    last_call = mmap(NULL, sizeof *last_call, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(last_call == MAP_FAILED);
    dl_iterate_phdr(find_library, NULL);
    alarm(120);
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (unsigned i = 0; strata_code.to && forks < FORKS && !stuck; i++)
        call((int)(i % 5));
    setitimer(ITIMER_PROF, &never, NULL);
    if (stuck)
        printf("a child is stuck in call %d\n", *last_call);
    else
        printf("%d children ended\n", (int)forks);
    return 0;
}
