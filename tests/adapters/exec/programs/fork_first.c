/* Forks before the first call of the driver: both processes use it. */
#include "driver_calls.h"

#include <sys/wait.h>
#include <unistd.h>

static void ask_until_refused(const char *who)
{
    CUdeviceptr block;
    int count = 0;
    CUresult result = CUDA_SUCCESS;
    begin();
    while (count < 64 && (result = DRIVER(cuMemAlloc)(&block, 16 << 20)) == CUDA_SUCCESS)
        count++;
    printf("%s: %d blocks, then %d\n", who, count, result);
    fflush(stdout);
}

int main(void)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        ask_until_refused("child");
        _exit(0);
    }
    waitpid(child, &status, 0);
    ask_until_refused("parent");
    return status ? 1 : 0;
}
