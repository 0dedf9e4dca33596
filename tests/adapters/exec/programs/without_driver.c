/* A program that looks for the driver's functions and has no driver; and its child, which begins with the first call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    printf("dlsym: %s\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ? "found" : "nothing");
    printf("dlvsym: %s\n", dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "GLIBC_2.2.5") ? "found" : "nothing");
    printf("nvml: %s\n", dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") ? "found" : "nothing");
    printf("others: %s\n", dlsym(RTLD_DEFAULT, "puts") ? "found" : "nothing");
    return 0;
}
