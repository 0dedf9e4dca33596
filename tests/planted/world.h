/* The environment of the small programs that the checker is tested with: streams, memory, and a kernel that touches
 * what it is told to. A program is a function of ten to twenty lines. It runs in a new world, under the environment's
 * policy and several seeds, and names the report that the checker must make. */
#ifndef STRATA_TEST_PLANTED_WORLD_H
#define STRATA_TEST_PLANTED_WORLD_H

#include "support/sim_vmm.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

enum { BYTES = 4096, SEEDS = 5, NO_REPORT = -1 };

enum touch { READS = 1, WRITES = 2, UPDATES = 3, ATOMICS = 4 };

struct world {
    CUcontext context;
    CUmodule module;
    CUfunction touch;
    CUstream a; /* a to d are non-blocking */
    CUstream b;
    CUstream c;
    CUstream d;
    CUstream blocking;
    CUevent event;
    CUevent other;
    CUdeviceptr x; /* device memory, of BYTES each, from cuMemAlloc */
    CUdeviceptr y;
    char *pinned;
    sem_t *gate; /* a pointer, since worlds are copied and a semaphore must not be */
    sem_t *told;
};

struct program {
    const char *name;
    void (*run)(struct world *world);
    int report;            /* NO_REPORT, or the only strata_sim_report_kind that must come */
    uint32_t modes;        /* of the checker, besides being on */
    bool needs_every_edge; /* dropping any wait or record makes it incorrect */
};

static const char world_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .global .align 8 .b8 table[64];\n"
                                ".visible .entry touch(.param .u64 a, .param .u64 b, .param .u64 c)\n{ ret; }\n";

/* Only declares its accesses: a real access to a wild address would poison the device for all programs after it. */
static void touch_host_kernel(strata_sim_launch *launch)
{
    uint64_t parameters[3];
    for (int i = 0; i < 3; i++) {
        memcpy(&parameters[i], launch->parameters[i], sizeof parameters[i]);
    }
    if (parameters[2] & READS) {
        launch->declare_read(launch, parameters[0], parameters[1]);
    }
    if (parameters[2] & WRITES) {
        launch->declare_write(launch, parameters[0], parameters[1]);
    }
    if (parameters[2] & ATOMICS) {
        launch->declare_atomic(launch, parameters[0], parameters[1]);
    }
}

/* ---- what programs are made of ---- */

static inline void kernel(const struct world *world, CUstream stream, CUdeviceptr address, uint64_t bytes,
                          enum touch how)
{
    uint64_t what = how;
    void *parameters[] = {&address, &bytes, &what};
    OK(p_cuLaunchKernel(world->touch, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static inline void fill(CUstream stream, CUdeviceptr address)
{
    OK(p_cuMemsetD8Async(address, 1, BYTES, stream));
}

static inline void copy(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    OK(p_cuMemcpyDtoDAsync(to, from, BYTES, stream));
}

static inline void download(const struct world *world, CUstream stream, CUdeviceptr from)
{
    OK(p_cuMemcpyDtoHAsync(world->pinned, from, BYTES, stream));
}

static inline void upload(const struct world *world, CUstream stream, CUdeviceptr to)
{
    OK(p_cuMemcpyHtoDAsync(to, world->pinned, BYTES, stream));
}

static inline void host_reads(const struct world *world)
{
    OK(p_host_read(world->pinned, BYTES));
}

static inline void host_writes(const struct world *world)
{
    OK(p_host_write(world->pinned, BYTES));
}

/* The next work on `to` comes after the work on `from`. */
static inline void hand_over(CUevent event, CUstream from, CUstream to)
{
    OK(p_cuEventRecord(event, from));
    OK(p_cuStreamWaitEvent(to, event, 0));
}

static inline CUdeviceptr allocate(CUstream stream)
{
    CUdeviceptr address;
    OK(p_cuMemAllocAsync(&address, BYTES, stream));
    return address;
}

static inline void release(CUdeviceptr address, CUstream stream)
{
    OK(p_cuMemFreeAsync(address, stream));
}

/* Trims the default pool. */
static inline void trim(void)
{
    CUmemoryPool pool;
    OK(p_cuDeviceGetDefaultMemPool(&pool, 0));
    OK(p_cuMemPoolTrimTo(pool, 0));
}

static inline void poll_stream(CUstream stream)
{
    CUresult result;
    while ((result = p_cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
    }
    assert_int_equal(result, CUDA_SUCCESS);
}

static inline void poll_event(CUevent event)
{
    CUresult result;
    while ((result = p_cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
    }
    assert_int_equal(result, CUDA_SUCCESS);
}

/* Memory at two addresses. */
struct twice {
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle again; /* the same, or an imported one */
    CUdeviceptr one;
    CUdeviceptr two;
};

static inline struct twice map_both(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle again)
{
    struct twice twice = {handle, again, test_sim_reserve(TEST_PAGE), test_sim_reserve(TEST_PAGE)};
    test_sim_map(twice.one, TEST_PAGE, handle);
    test_sim_map(twice.two, TEST_PAGE, again);
    return twice;
}

static inline struct twice map_twice(void)
{
    CUmemGenericAllocationHandle handle = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    return map_both(handle, handle);
}

/* The second mapping is of an imported handle, as in another process. */
static inline struct twice map_shared(void)
{
    CUmemGenericAllocationHandle again;
    CUmemGenericAllocationHandle handle = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int file;
    OK(p_cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(p_cuMemImportFromShareableHandle(&again, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    assert_int_equal(close(file), 0);
    return map_both(handle, again);
}

static inline void unmap(CUdeviceptr address)
{
    OK(p_cuMemUnmap(address, TEST_PAGE));
    OK(p_cuMemAddressFree(address, TEST_PAGE));
}

static inline void release_twice(const struct twice *twice)
{
    OK(p_cuMemRelease(twice->handle));
    if (twice->again != twice->handle) {
        OK(p_cuMemRelease(twice->again));
    }
}

static inline void unmap_twice(const struct twice *twice)
{
    unmap(twice->one);
    unmap(twice->two);
    release_twice(twice);
}

struct thread_call {
    struct world *world;
    void (*run)(struct world *world);
};

static inline void *call_in_thread(void *data)
{
    const struct thread_call *call = data;
    OK(p_cuCtxSetCurrent(call->world->context));
    call->run(call->world);
    return NULL;
}

/* Runs the function on a new thread, and waits for it. */
static inline void in_thread(struct world *world, void (*run)(struct world *world))
{
    pthread_t thread;
    struct thread_call call = {world, run};
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, &call), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A host function that waits for world->gate. */
static inline void wait_at_gate(void *data)
{
    struct world *world = data;
    while (sem_wait(world->gate) != 0) {
    }
}

static inline void shut_gate(struct world *world, CUstream stream)
{
    OK(p_cuLaunchHostFunc(stream, wait_at_gate, world));
}

static inline void open_gate(struct world *world)
{
    assert_int_equal(sem_post(world->gate), 0);
}

/* ---- worlds ---- */

static inline CUstream new_stream(unsigned flags)
{
    CUstream stream;
    OK(p_cuStreamCreate(&stream, flags));
    return stream;
}

static inline struct world world_begin(uint32_t modes)
{
    struct world world;
    void *pinned;
    world.context = test_sim_begin();
    OK(p_set_check(STRATA_SIM_CHECK_ON | modes));
    OK(p_cuModuleLoadData(&world.module, world_ptx));
    OK(p_cuModuleGetFunction(&world.touch, world.module, "touch"));
    world.a = new_stream(CU_STREAM_NON_BLOCKING);
    world.b = new_stream(CU_STREAM_NON_BLOCKING);
    world.c = new_stream(CU_STREAM_NON_BLOCKING);
    world.d = new_stream(CU_STREAM_NON_BLOCKING);
    world.blocking = new_stream(CU_STREAM_DEFAULT);
    OK(p_cuEventCreate(&world.event, CU_EVENT_DISABLE_TIMING));
    OK(p_cuEventCreate(&world.other, CU_EVENT_DISABLE_TIMING));
    OK(p_cuMemAlloc(&world.x, BYTES));
    OK(p_cuMemAlloc(&world.y, BYTES));
    OK(p_cuMemHostAlloc(&pinned, BYTES, 0));
    world.pinned = pinned;
    static sem_t gate, told; /* of the only world that exists at a time */
    world.gate = &gate;
    world.told = &told;
    assert_int_equal(sem_init(world.gate, 0, 0), 0);
    assert_int_equal(sem_init(world.told, 0, 0), 0);
    return world;
}

static inline void world_end(struct world *world)
{
    OK(p_cuCtxSynchronize());
    OK(p_cuMemFree(world->x));
    OK(p_cuMemFree(world->y));
    OK(p_cuMemFreeHost(world->pinned));
    OK(p_cuEventDestroy(world->event));
    OK(p_cuEventDestroy(world->other));
    OK(p_cuStreamDestroy(world->a));
    OK(p_cuStreamDestroy(world->b));
    OK(p_cuStreamDestroy(world->c));
    OK(p_cuStreamDestroy(world->d));
    OK(p_cuStreamDestroy(world->blocking));
    OK(p_cuModuleUnload(world->module));
    OK(p_set_check(STRATA_SIM_CHECK_OFF));
    sem_destroy(world->gate);
    sem_destroy(world->told);
    test_sim_end();
}

/* ---- running programs ---- */

static inline void show_reports(const struct program *program)
{
    strata_sim_report report;
    for (uint64_t i = 0; p_get_report(i, &report) == CUDA_SUCCESS; i++) {
        fprintf(stderr, "%s:\n%s\n", program->name, report.text);
    }
}

/* The reports so far, all of which must be of the program's kind. */
static inline uint64_t reports_of(const struct program *program)
{
    uint64_t count;
    strata_sim_report report;
    OK(p_get_report_count(&count));
    for (uint64_t i = 0; i < count; i++) {
        OK(p_get_report(i, &report));
        if ((int)report.kind != program->report) {
            show_reports(program);
            fail_msg("%s: unexpected report", program->name);
        }
    }
    return count;
}

static inline void run_program(const struct program *program, uint64_t seed)
{
    OK(p_set_seed(seed));
    OK(p_clear_reports());
    struct world world = world_begin(program->modes);
    program->run(&world);
    OK(p_cuCtxSynchronize());
    if (reports_of(program) == 0 && program->report != NO_REPORT) {
        fail_msg("%s: seed %llu: no report", program->name, (unsigned long long)seed);
    }
    world_end(&world);
    reports_of(program);
}

static inline void run_seeds(void **state)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_program(*state, seed);
    }
}

enum { MOST_PROGRAMS = 64 };

/* Each program is a test. Returns main's exit status. */
static inline int run_programs(const struct program *programs, size_t count, void (*run)(void **state))
{
    struct CMUnitTest tests[MOST_PROGRAMS];
    test_sim_open();
    if (count > MOST_PROGRAMS || p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS ||
        p_cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        tests[i] = (struct CMUnitTest){programs[i].name, run, NULL, NULL, (void *)(uintptr_t)&programs[i]};
    }
    return _cmocka_run_group_tests("programs", tests, count, NULL, NULL);
}

#endif
