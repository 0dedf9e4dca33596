/* What NVML says of the memory, beside what the driver says. */
#include "driver_calls.h"
#include "nvml_types.h"

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static void *nvml;

static void *get(const char *name)
{
    void *found = dlsym(nvml, name);
    if (!found) {
        printf("no %s\n", name);
        exit(3);
    }
    return found;
}

/* A variable with the function of that name. */
#define GET(name, ...)                            \
    int (*name)(__VA_ARGS__);                     \
    void *name##_at = get("nvmlDeviceGet" #name); \
    memcpy(&name, &name##_at, sizeof name##_at)

static void ask_about_memory(void *device)
{
    GET(MemoryInfo, void *, memory_1 *);
    GET(MemoryInfo_v2, void *, memory_2 *);
    memory_1 one = {1 << 20, 1 << 20, 1 << 20};
    memory_2 two = {.version = 2};
    const int result = MemoryInfo(device, &one);
    printf("memory: %d, %llu of %llu MiB used, %llu free\n", result, MIB(one.used), MIB(one.total), MIB(one.free));
    if (MemoryInfo_v2(device, &two) == 0)
        printf("version 2: %llu of %llu MiB used\n", MIB(two.used), MIB(two.total));
}

static void ask_about_limits(void *device)
{
    GET(Attributes_v2, void *, attributes *);
    attributes found;
    CHECK(Attributes_v2(device, &found));
    printf("attributes: %u processors, %llu MiB\n", found.counts[0], found.mebibytes);
}

/* What the three versions of a question for the kind's processes say. */
#define ASK_ABOUT(kind)                                                                                   \
    do {                                                                                                  \
        GET(kind##RunningProcesses, void *, unsigned *, process_1 *);                                     \
        GET(kind##RunningProcesses_v2, void *, unsigned *, process_2 *);                                  \
        GET(kind##RunningProcesses_v3, void *, unsigned *, process_2 *);                                  \
        process_1 one[4];                                                                                 \
        process_2 two[4], three[4];                                                                       \
        unsigned count = 4;                                                                               \
        CHECK(kind##RunningProcesses(device, &count, one));                                               \
        CHECK(kind##RunningProcesses_v2(device, &count, two));                                            \
        CHECK(kind##RunningProcesses_v3(device, &count, three));                                          \
        printf(#kind ": %llu and %llu; %s and %llu; %llu and %llu\n", MIB(one[0].used), MIB(one[1].used), \
               two[0].used == ~0ull ? "not known" : "known", MIB(two[1].used), MIB(three[1].used),        \
               MIB(three[0].used));                                                                       \
    } while (0)

static void ask_about_processes(void *device)
{
    GET(RunningProcessDetailList, void *, details *);
    detail processes[4];
    details list = {.count = 4, .processes = processes};
    ASK_ABOUT(Compute);
    ASK_ABOUT(Graphics);
    ASK_ABOUT(MPSCompute);
    CHECK(RunningProcessDetailList(device, &list));
    printf("details: %llu and %llu\n", MIB(processes[0].used), MIB(processes[1].used));
}

int main(int count, char **arguments)
{
    CUdeviceptr block;
    size_t free_bytes, total;
    void *const device = (void *)(size_t)(count > 1 ? atoi(arguments[1]) : 2); /* NOLINT: a handle */
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    begin();
    CHECK(!nvml);
    CHECK(DRIVER(cuMemAlloc)(&block, 8 << 20));
    ask_about_memory(device);
    ask_about_limits(device);
    ask_about_processes(device);
    CHECK(DRIVER(cuMemGetInfo)(&free_bytes, &total));
    printf("the driver: %llu of %llu MiB free\n", MIB(free_bytes), MIB(total));
    return 0;
}
