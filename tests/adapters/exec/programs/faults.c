/* A driver call fails once, this program's or one that Strata makes for it: `faults NUMBER`, from 1. Memory that is
 * given out again is still ordered behind its use, unless a call of the program has said that something went wrong.
 * Prints what is wrong, and how many calls there were. */
#include "driver_calls.h"

#include <strata/sim/fault.h>

#include <stdbool.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

enum { BYTES = 20 << 20 }; /* more than frees that wait may hold back */

static PFN_strata_sim_add_fault add_fault;
static PFN_strata_sim_fault_reached fault_reached;
static PFN_strata_sim_clear_faults clear_faults;
static unsigned char *seen; /* of BYTES */
static int refused;         /* calls */

static void find(void *function, const char *name)
{
    store(function, dlsym(open_cuda(), name), name);
}

static bool done(CUresult result)
{
    refused += result != CUDA_SUCCESS;
    return result == CUDA_SUCCESS;
}

static void CUDA_CB pause_shortly(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* The order of the driver's own memory is its own. */
static bool is_of_the_stack(CUdeviceptr block)
{
    unsigned long long number = 0;
    return done(DRIVER(cuPointerGetAttribute)(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, block)) && number >> 63;
}

static CUdeviceptr new_block(void)
{
    CUdeviceptr block = 0;
    if (!done(DRIVER(cuMemAlloc)(&block, BYTES)))
        return 0;
    const bool filled =
        is_of_the_stack(block) && done(DRIVER(cuMemsetD8)(block, 1, BYTES)) && done(DRIVER(cuCtxSynchronize)());
    if (filled)
        return block;
    done(DRIVER(cuMemFree)(block));
    return 0;
}

/* In the current context. */
static bool read_late_and_free(CUdeviceptr block, CUstream reader, bool async)
{
    const bool reads = done(DRIVER(cuLaunchHostFunc)(reader, pause_shortly, NULL)) &&
                       done(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, reader));
    return done(async ? DRIVER(cuMemFreeAsync)(block, reader) : DRIVER(cuMemFree)(block)) && reads;
}

static CUdeviceptr write_again(CUstream writer, bool async)
{
    CUdeviceptr block = 0;
    if (!done(async ? DRIVER(cuMemAllocAsync)(&block, BYTES, writer) : DRIVER(cuMemAlloc)(&block, BYTES)))
        return 0;
    done(DRIVER(cuMemsetD8Async)(block, 2, BYTES, writer));
    return block;
}

/* If no call was refused since. */
static void look(const char *what, int refused_before)
{
    size_t wrong = 0;
    for (size_t i = 0; refused == refused_before && i < BYTES; i += 64)
        wrong += seen[i] != 1;
    if (wrong)
        printf("%s: %zu wrong\n", what, wrong);
}

static void enter(CUcontext context)
{
    if (!done(DRIVER(cuCtxSetCurrent)(context)))
        done(DRIVER(cuCtxSetCurrent)(context));
}

/* Read on a stream of the context, and written in the first one. */
static void read_in(const char *what, CUcontext first, CUcontext other, CUstream reader, CUstream writer, bool async)
{
    const int before = refused;
    const CUdeviceptr block = new_block();
    if (!block)
        return;
    enter(other);
    read_late_and_free(block, reader, async);
    enter(first);
    const CUdeviceptr again = write_again(writer, async);
    done(DRIVER(cuStreamSynchronize)(writer));
    enter(other);
    done(DRIVER(cuCtxSynchronize)());
    enter(first);
    look(what, before);
    if (again)
        done(DRIVER(cuMemFree)(again));
}

/* Read on a stream, given out again, and written on a stream, or in a context, that is made behind that. */
static void make_behind(const char *what, CUcontext first, CUstream reader, bool context)
{
    const int before = refused;
    CUcontext own = NULL;
    CUstream writer = NULL;
    CUdeviceptr again = 0;
    const CUdeviceptr block = new_block();
    if (!block)
        return;
    read_late_and_free(block, reader, false);
    if (!done(DRIVER(cuMemAlloc)(&again, BYTES)))
        return;
    const bool made =
        context ? done(DRIVER(cuCtxCreate)(&own, 0, 0)) : done(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING));
    if (made)
        done(DRIVER(cuMemsetD8Async)(again, 2, BYTES, writer));
    enter(first);
    done(DRIVER(cuStreamSynchronize)(reader));
    look(what, before);
    if (made)
        done(context ? DRIVER(cuCtxDestroy)(own) : DRIVER(cuStreamDestroy)(writer));
    done(DRIVER(cuMemFree)(again));
}

/* Read on streams that are destroyed, and in a context that ends, before the block is freed. */
static void free_behind_an_end(const char *what, CUcontext first, CUstream writer, bool context)
{
    const int before = refused;
    CUcontext own = NULL;
    CUstream reader = NULL;
    const CUdeviceptr block = new_block();
    const bool made =
        context ? done(DRIVER(cuCtxCreate)(&own, 0, 0)) : done(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING));
    if (made && block) {
        done(DRIVER(cuLaunchHostFunc)(reader, pause_shortly, NULL));
        done(DRIVER(cuMemcpyDtoHAsync)(seen, block, BYTES, reader));
    }
    if (made)
        done(context ? DRIVER(cuCtxDestroy)(own) : DRIVER(cuStreamDestroy)(reader));
    enter(first);
    if (!made || !block)
        return;
    done(DRIVER(cuMemFree)(block));
    const CUdeviceptr again = write_again(writer, false);
    done(DRIVER(cuCtxSynchronize)());
    look(what, before);
    if (again)
        done(DRIVER(cuMemFree)(again));
}

static void use_everything(CUcontext first)
{
    CUcontext other = NULL;
    CUstream reader = NULL, writer = NULL;
    if (done(DRIVER(cuStreamCreate)(&reader, CU_STREAM_NON_BLOCKING)) &&
        done(DRIVER(cuStreamCreate)(&writer, CU_STREAM_NON_BLOCKING))) {
        read_in("a stream", first, first, reader, writer, false);
        make_behind("a stream that is made", first, reader, false);
        make_behind("a context that is made", first, reader, true);
        free_behind_an_end("a stream that ends", first, writer, false);
        free_behind_an_end("a context that ends", first, writer, true);
    }
    const bool made = done(DRIVER(cuCtxCreate)(&other, 0, 0));
    enter(first);
    if (made && writer) {
        read_in("another context", first, other, NULL, writer, false);
        read_in("another context's free", first, other, NULL, writer, true);
    }
    done(DRIVER(cuDevicePrimaryCtxReset)(0));
}

int main(int count, char **arguments)
{
    const strata_sim_fault fault = {.size = sizeof fault,
                                    .kind = STRATA_SIM_FAIL_CALL,
                                    .nth = strtoull(arguments[count - 1], NULL, 10),
                                    .error = CUDA_ERROR_UNKNOWN};
    CUcontext first;
    CUdeviceptr block;
    size_t left, total;
    uint64_t calls = 0;
    uint32_t id;
    begin();
    find(&add_fault, "strata_sim_add_fault");
    find(&fault_reached, "strata_sim_fault_reached");
    find(&clear_faults, "strata_sim_clear_faults");
    CHECK(DRIVER(cuCtxGetCurrent)(&first));
    CHECK(DRIVER(cuMemAllocHost)((void **)&seen, BYTES));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(add_fault(&fault, &id));
    use_everything(first);
    CHECK(fault_reached(id, &calls));
    CHECK(clear_faults());
    CHECK(DRIVER(cuDevicePrimaryCtxReset)(0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&first, 0));
    CHECK(DRIVER(cuCtxSetCurrent)(first));
    CHECK(DRIVER(cuMemAlloc)(&block, BYTES));
    CHECK(DRIVER(cuMemsetD8)(block, 2, BYTES));
    CHECK(DRIVER(cuMemFree)(block));
    CHECK(DRIVER(cuMemGetInfo)(&left, &total));
    if (total - left > BYTES) /* a guard keeps what was freed */
        printf("%zu bytes are left of the budget's %zu\n", left, total);
    printf("%llu calls\n", (unsigned long long)calls);
    return 0;
}
