/* The driver, reached in the way that WAY says: these programs know nothing of Strata.
 *
 *   WAY_LINKED    linked to libcuda
 *   WAY_DLSYM     dlopen and dlsym
 *   WAY_RUNTIME   as the CUDA runtime does: cuGetProcAddress_v2 by dlsym, all else by that, without a symbol status
 *   WAY_RUNTIME_1 the same with the first cuGetProcAddress
 *   WAY_THREAD    as WAY_RUNTIME, with per-thread default streams */
#ifndef STRATA_TEST_EXEC_DRIVER_CALLS_H
#define STRATA_TEST_EXEC_DRIVER_CALLS_H

#include "calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAY_LINKED    1
#define WAY_DLSYM     2
#define WAY_RUNTIME   3
#define WAY_RUNTIME_1 4
#define WAY_THREAD    5

#define CALL_FIELD(name, symbol, version) __typeof__(&symbol) call_##name;
static struct {
    CALLS(CALL_FIELD)
} driver;
#undef CALL_FIELD

/* The functions by the names that the table has, whatever cuda.h renames them to. */
#define DRIVER(name) driver.call_##name

static void *open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(3);
    }
    return library;
}

static void store(void *field, void *found, const char *name)
{
    if (!found) {
        printf("no %s\n", name);
        exit(3);
    }
    memcpy(field, &found, sizeof found);
}

#if WAY == WAY_LINKED
static void find_driver(void)
{
#define FIND(name, symbol, version) DRIVER(name) = symbol;
    CALLS(FIND)
#undef FIND
    (void)open_cuda;
    (void)store;
}
#elif WAY == WAY_DLSYM
static void find_driver(void)
{
    void *library = open_cuda();
#define FIND(name, symbol, version) store(&DRIVER(name), dlsym(library, #symbol), #symbol);
    CALLS(FIND)
#undef FIND
}
#else
typedef CUresult get_1(const char *name, void **found, int version, cuuint64_t flags);
typedef CUresult get_2(const char *name, void **found, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status);

static void *get(void *first, void *second, const char *name, int version)
{
    const cuuint64_t flags = WAY == WAY_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    get_1 *one;
    get_2 *two;
    void *found = NULL;
    memcpy(&one, &first, sizeof one);
    memcpy(&two, &second, sizeof two);
    const CUresult result =
        WAY == WAY_RUNTIME_1 ? one(name, &found, version, flags) : two(name, &found, version, flags, NULL);
    return result == CUDA_SUCCESS ? found : NULL;
}

static void find_driver(void)
{
    void *library = open_cuda();
    void *first = dlsym(library, "cuGetProcAddress"), *second = dlsym(library, "cuGetProcAddress_v2");
/* Per-thread forms exist since CUDA 7.0. */
#define SINCE(version)              (WAY == WAY_THREAD && (version) < 7000 ? 7000 : (version))
#define FIND(name, symbol, version) store(&DRIVER(name), get(first, second, #name, SINCE(version)), #name);
    CALLS(FIND)
#undef FIND
}
#endif

#define CHECK(call)                                                    \
    do {                                                               \
        const int result_ = (int)(call);                               \
        if (result_ != 0) {                                            \
            printf("line %d: %s gave %d\n", __LINE__, #call, result_); \
            exit(2);                                                   \
        }                                                              \
    } while (0)

/* Each line leaves the process at once: what stdio holds is written last of all at the end of a process, behind the
 * driver's own end, and is lost if that does not return. */
static void begin(void)
{
    CUcontext context;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    find_driver();
    CHECK(DRIVER(cuInit)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
}

#endif
