/* What a budget of 100 MiB, which two processes share, leaves of what each sets aside. This program runs itself as the
 * second process, which stops between its two looks. */
#include "ways.h"
#include "wider_calls.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static size_t free_mebibytes(void)
{
    size_t bytes, total;
    CHECK(DRIVER(cuMemGetInfo)(&bytes, &total));
    return bytes / MIB;
}

/* ---- the second process ---- */

static void look(const char *end)
{
    CUdeviceptr block, pitched;
    size_t pitch;
    const size_t bytes = free_mebibytes();
    const CUresult result = DRIVER(cuMemAlloc)(&block, 4 * MIB);
    printf("%zu MiB free: %d %d%s", bytes, result, DRIVER(cuMemAllocPitch)(&pitched, &pitch, 512, 8192, 4), end);
    fflush(stdout);
}

static void be_second(void)
{
    begin();
    look(", ");
    raise(SIGSTOP);
    look("\n");
}

static pid_t begin_second(void)
{
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also through execl */
        execl(self, self, "second", (char *)NULL);
        _exit(errno);
    }
    waitpid(child, &status, WUNTRACED);
    return child;
}

static void end_second(pid_t child)
{
    int status;
    kill(child, SIGCONT);
    waitpid(child, &status, 0);
    CHECK(status);
}

/* ---- the first one ---- */

static void hold_memory(void)
{
    CUdeviceptr block;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, 64 * MIB));
    const pid_t second = begin_second();
    CHECK(DRIVER(cuMemFree)(block));
    end_second(second);
    printf("then %d\n", DRIVER(cuMemAlloc)(&block, 72 * MIB));
}

static void *request_block(void *result)
{
    CUdeviceptr block;
    CUcontext context;
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    *(CUresult *)result = DRIVER(cuMemAlloc)(&block, 4 * MIB);
    return NULL;
}

/* Under a budget whose requests wait. The second process begins and looks at its memory without a wait; its requests,
 * of several threads, wait for what is to be set aside once. */
static void wait_as_second(void)
{
    pthread_t threads[2];
    CUresult results[2];
    begin();
    printf("%zu MiB free", free_mebibytes());
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, request_block, &results[i]));
    usleep(100000); /* by now they wait, most often */
    printf(", %zu MiB free", free_mebibytes());
    fflush(stdout);
    kill(getppid(), SIGUSR1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL));
    printf(", then %d %d, %zu MiB free\n", results[0], results[1], free_mebibytes());
}

static void hold_until_asked(void)
{
    CUdeviceptr block;
    sigset_t asked;
    int status, signal;
    sigemptyset(&asked);
    alarm(50);
    sigaddset(&asked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &asked, NULL);
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, 64 * MIB));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(50);
        execl(self, self, "waiting", (char *)NULL);
        _exit(errno);
    }
    CHECK(sigwait(&asked, &signal));
    CHECK(DRIVER(cuMemFree)(block));
    waitpid(child, &status, 0);
    CHECK(status);
}

static void ask_for_nothing(void)
{
    begin();
    end_second(begin_second());
}

static void make_a_context(void)
{
    CUcontext context;
    find_driver();
    CHECK(DRIVER(cuInit)(0));
    CHECK(DRIVER(cuCtxCreate)(&context, 0, 0));
    end_second(begin_second());
}

static void release_its_context(void)
{
    begin();
    CHECK(DRIVER(cuDevicePrimaryCtxRelease)(0));
    end_second(begin_second());
}

static void reset(void)
{
    CUdeviceptr block;
    CUcontext context;
    begin();
    for (int i = 0; i < 4; i++) {
        printf(" %zu", free_mebibytes());
        CHECK(DRIVER(cuMemAlloc)(&block, 16 * MIB));
        CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
        CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
        CHECK(DRIVER(cuCtxSetCurrent)(context));
    }
    printf("\n");
}

/* The child ends as a program does. */
static void fork_a_child(void)
{
    CUdeviceptr block;
    int status;
    begin();
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        printf("child: %d\n", DRIVER(cuMemAlloc)(&block, MIB) != CUDA_SUCCESS);
        exit(0);
    }
    waitpid(child, &status, 0);
    CHECK(status);
    end_second(begin_second());
}

CUresult cuNewHidden(size_t bytes);

/* The second one lives when this one reports. */
static void leave_the_second(void)
{
    WIDER(cuNewHidden, "cuNewHidden", 13000);
    begin();
    CHECK(cuNewHidden_found(60 * MIB));
    begin_second();
    printf("\n");
}

static const named_way ways[] = {
    {"second", be_second},       {"holding", hold_memory},          {"idle", ask_for_nothing},
    {"context", make_a_context}, {"released", release_its_context}, {"resets", reset},
    {"forked", fork_a_child},    {"leaving", leave_the_second},     {"waiting", wait_as_second},
    {"asked", hold_until_asked},
};

int main(int count, char **arguments)
{
    self = arguments[0];
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
