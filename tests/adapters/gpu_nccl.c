/* Registered blocks under NCCL itself, on GPUs; not a test of the suite, since it needs NCCL and hardware.
 *
 *     gpu_nccl /path/to/libnccl.so.2 [DEVICES]
 *
 * One process, a rank for each device: the sum over all ranks of a contiguous block, as it is, registered as a buffer,
 * and as a window. Each result is compared with the sum, and each way's rate is printed. A block that is registered
 * must not be freed. Exit status 0: all as it should be. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strata/strata.h>

enum { MOST_DEVICES = 8, FLOATS = 64 << 20, ROUNDS = 20, NCCL_FLOAT = 7, NCCL_SUM = 0 };

static struct {
    int (*init_all)(void **comms, int devices, const int *list);
    int (*destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation, void *comm, CUstream stream);
    CUresult (*set_current)(CUcontext context);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*upload)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
    CUresult (*download)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*synchronize)(CUstream stream);
} call;

typedef struct rank {
    CUcontext context;
    strata_runtime *runtime;
    CUstream stream;
    strata_block block;
    void *comm;
    strata_nccl_registration *registration;
} rank;

static rank ranks[MOST_DEVICES];
static int count = 1;
static float *host;

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strata_last_error()->message);
    exit(1);
}

static void need(bool good, const char *what)
{
    if (!good)
        stop(what);
}

static void find(void *library, const char *name, void *into)
{
    void *found = library ? dlsym(library, name) : NULL;
    need(found != NULL, name);
    memcpy(into, &found, sizeof found);
}

static void find_calls(const char *nccl)
{
    strata_driver_info driver;
    need(strata_driver_get_info(&driver) == STRATA_SUCCESS, "the driver");
    void *cuda = dlopen(driver.library, RTLD_NOW), *library = dlopen(nccl, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    find(library, "ncclCommInitAll", &call.init_all);
    find(library, "ncclCommDestroy", &call.destroy);
    find(library, "ncclGroupStart", &call.group_start);
    find(library, "ncclGroupEnd", &call.group_end);
    find(library, "ncclAllReduce", &call.all_reduce);
    find(cuda, "cuCtxSetCurrent", &call.set_current);
    find(cuda, "cuDevicePrimaryCtxRetain", &call.retain);
    find(cuda, "cuMemcpyHtoDAsync_v2", &call.upload);
    find(cuda, "cuMemcpyDtoHAsync_v2", &call.download);
    find(cuda, "cuStreamSynchronize", &call.synchronize);
}

static void use(const rank *one)
{
    need(call.set_current(one->context) == CUDA_SUCCESS, "cuCtxSetCurrent");
}

static void open_rank(rank *one, int device)
{
    const strata_runtime_config config = {
        .size = sizeof config, .device = device, .stack_text = "budget(limit=50%), pool(contiguous=16MiB, peers=all)"};
    need(call.retain(&one->context, device) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
    use(one);
    need(strata_runtime_create(&config, &one->runtime) == STRATA_SUCCESS, "a runtime");
    need(strata_runtime_stream_acquire(one->runtime, &one->stream) == STRATA_SUCCESS, "a stream");
    need(strata_runtime_allocate(one->runtime, FLOATS * sizeof(float), one->stream, &one->block) == STRATA_SUCCESS,
         "a block");
}

static void fill(void)
{
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        for (size_t j = 0; j < FLOATS; j++)
            host[j] = (float)(i + 1);
        need(call.upload(ranks[i].block.address, host, FLOATS * sizeof(float), ranks[i].stream) == CUDA_SUCCESS &&
                 call.synchronize(ranks[i].stream) == CUDA_SUCCESS,
             "filling");
    }
}

static void reduce(void)
{
    need(call.group_start() == 0, "ncclGroupStart");
    for (int i = 0; i < count; i++) {
        void *memory = (void *)(uintptr_t)ranks[i].block.address;
        need(call.all_reduce(memory, memory, FLOATS, NCCL_FLOAT, NCCL_SUM, ranks[i].comm, ranks[i].stream) == 0,
             "ncclAllReduce");
    }
    need(call.group_end() == 0, "ncclGroupEnd");
}

static void synchronize(void)
{
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        need(call.synchronize(ranks[i].stream) == CUDA_SUCCESS, "cuStreamSynchronize");
    }
}

static void check_sum(void)
{
    const float sum = (float)(count * (count + 1) / 2);
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        need(call.download(host, ranks[i].block.address, FLOATS * sizeof(float), ranks[i].stream) == CUDA_SUCCESS &&
                 call.synchronize(ranks[i].stream) == CUDA_SUCCESS,
             "reading");
        for (size_t j = 0; j < FLOATS; j++)
            if (host[j] != sum) {
                fprintf(stderr, "rank %d, element %zu: %g instead of %g\n", i, j, (double)host[j], (double)sum);
                exit(1);
            }
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void measure(const char *way)
{
    fill();
    reduce();
    synchronize();
    check_sum();
    const double start = seconds();
    for (int i = 0; i < ROUNDS; i++)
        reduce();
    synchronize();
    const double each = (seconds() - start) / ROUNDS;
    const bool handle = ranks[0].registration && strata_nccl_handle(ranks[0].registration);
    printf("%-10s %8.2f ms, %7.1f GB/s of each rank%s\n", way, each * 1e3, FLOATS * sizeof(float) / each * 1e-9,
           ranks[0].registration && !handle ? " (NCCL gave no handle)" : "");
}

static void register_all(const strata_nccl_options *options)
{
    need(call.group_start() == 0, "ncclGroupStart");
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        need(strata_nccl_register(ranks[i].runtime, ranks[i].comm, &ranks[i].block, options, &ranks[i].registration) ==
                 STRATA_SUCCESS,
             "strata_nccl_register");
    }
    need(call.group_end() == 0, "ncclGroupEnd");
    need(strata_runtime_deallocate(ranks[0].runtime, &ranks[0].block) == STRATA_ERROR_BLOCK_IN_USE,
         "a registered block was freed");
    printf("refused: %s\n", strata_last_error()->message);
}

static void deregister_all(void)
{
    need(call.group_start() == 0, "ncclGroupStart");
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        need(strata_nccl_deregister(ranks[i].registration) == STRATA_SUCCESS, "strata_nccl_deregister");
        ranks[i].registration = NULL;
    }
    need(call.group_end() == 0, "ncclGroupEnd");
}

int main(int argc, char **argv)
{
    const strata_nccl_options buffer = {.size = sizeof buffer};
    const strata_nccl_options window = {.size = sizeof window, .kind = STRATA_NCCL_WINDOW, .flags = 1};
    void *comms[MOST_DEVICES];
    if (argc < 2) {
        fprintf(stderr, "usage: %s /path/to/libnccl.so.2 [DEVICES]\n", argv[0]);
        return 2;
    }
    count = argc > 2 ? atoi(argv[2]) : 1;
    need(count > 0 && count <= MOST_DEVICES && (host = malloc(FLOATS * sizeof(float))), "devices: 1 to 8");
    find_calls(argv[1]);
    for (int i = 0; i < count; i++)
        open_rank(&ranks[i], i);
    need(call.init_all(comms, count, NULL) == 0, "ncclCommInitAll");
    for (int i = 0; i < count; i++)
        ranks[i].comm = comms[i];
    measure("plain");
    register_all(&buffer);
    measure("buffer");
    deregister_all();
    register_all(&window);
    measure("window");
    deregister_all();
    for (int i = 0; i < count; i++) {
        use(&ranks[i]);
        call.destroy(ranks[i].comm);
        need(strata_runtime_deallocate(ranks[i].runtime, &ranks[i].block) == STRATA_SUCCESS, "the free");
        need(strata_runtime_stream_release(ranks[i].runtime, ranks[i].stream) == STRATA_SUCCESS, "the stream");
        need(strata_runtime_destroy(ranks[i].runtime) == STRATA_SUCCESS, "the end of a runtime");
    }
    free(host);
    puts("right");
    return 0;
}
