/* Questions about modules and kernel launches. */
#include "ask.h"

#include <stdint.h>

void ask_modules(void)
{
    CUresult result;
    CUmodule module = NULL;
    CUmodule second = NULL;
    CUfunction function = NULL;
    CUfunction again = NULL;
    start();
    ask(cu.ModuleLoadData(&module, NULL), "module.load.null_image");
    ask(cu.ModuleLoadData(NULL, pattern_module), "module.load.null_out");
    ask(cu.ModuleLoadData(&module, "this is no module at all\n"), "module.load.text");
    ask(cu.ModuleLoadData(&module, ""), "module.load.empty");
    ask(cu.ModuleLoadData(&module, ".version 6.4\n.target sm_52\n.address_size 64\nnonsense here;\n"),
        "module.load.bad_ptx");
    ask(cu.ModuleLoadData(&module, pattern_module), "module.load");
    ask(cu.ModuleLoadData(&second, pattern_module), "module.load.again");
    ask_yes(module != second, "module.load.again.distinct");
    ask(cu.ModuleGetFunction(&function, module, "strata_pattern_fill"), "module.get_function");
    result = cu.ModuleGetFunction(&again, module, "strata_pattern_fill");
    ask_fact(result, function == again, "module.get_function.same_each_time");
    ask(cu.ModuleGetFunction(&again, module, "no_such_kernel"), "module.get_function.unknown");
    ask(cu.ModuleGetFunction(&again, module, ""), "module.get_function.empty");
    ask(cu.ModuleGetFunction(&again, module, NULL), "module.get_function.null_name");
    ask(cu.ModuleGetFunction(NULL, module, "strata_pattern_fill"), "module.get_function.null_out");
    ask(cu.ModuleGetFunction(&again, NULL, "strata_pattern_fill"), "module.get_function.null_module");
    ask(cu.ModuleUnload(second), "module.unload");
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    ask(cu.ModuleUnload(module), "module.unload.stream_held");
    ask_yes(!gate_release(gate), "module.unload.waits");
    ask(cu.ModuleUnload(NULL), "module.unload.null");
    gate = gate_hold(stream, GATE_SHORT_MS);
    ask(cu.ModuleLoadData(&module, pattern_module), "module.load.stream_held");
    ask_yes(!gate_release(gate), "module.load.waits");
    ask(cu.CtxSynchronize(), "module.context_is_usable");
}

struct shape {
    const char *name;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
};

static const struct shape shapes[] = {
    {"grid_x_0", {0, 1, 1}, {1, 1, 1}, 0},
    {"grid_y_0", {1, 0, 1}, {1, 1, 1}, 0},
    {"grid_z_0", {1, 1, 0}, {1, 1, 1}, 0},
    {"block_x_0", {1, 1, 1}, {0, 1, 1}, 0},
    {"block_y_0", {1, 1, 1}, {1, 0, 1}, 0},
    {"block_z_0", {1, 1, 1}, {1, 1, 0}, 0},
    {"block_x_1024", {1, 1, 1}, {1024, 1, 1}, 0},
    {"block_x_1025", {1, 1, 1}, {1025, 1, 1}, 0},
    {"block_y_1025", {1, 1, 1}, {1, 1025, 1}, 0},
    {"block_z_64", {1, 1, 1}, {1, 1, 64}, 0},
    {"block_z_65", {1, 1, 1}, {1, 1, 65}, 0},
    {"block_32_by_33", {1, 1, 1}, {32, 33, 1}, 0},
    {"grid_x_too_large", {0x80000000U, 1, 1}, {1, 1, 1}, 0},
    {"grid_y_65535", {1, 65535, 1}, {1, 1, 1}, 0},
    {"grid_y_65536", {1, 65536, 1}, {1, 1, 1}, 0},
    {"grid_z_65536", {1, 1, 65536}, {1, 1, 1}, 0},
    {"shared_48_kib", {1, 1, 1}, {1, 1, 1}, 48 * 1024},
    {"shared_48_kib_and_1", {1, 1, 1}, {1, 1, 1}, 48 * 1024 + 1},
    {"shared_1_mib", {1, 1, 1}, {1, 1, 1}, 1024 * 1024},
    {"shared_all_ones", {1, 1, 1}, {1, 1, 1}, 0xffffffffU},
};

static bool pattern_matches(CUdeviceptr address, size_t bytes, unsigned long long seed)
{
    unsigned char host[4096];
    for (size_t done = 0; done < bytes; done += sizeof host) {
        size_t count = bytes - done < sizeof host ? bytes - done : sizeof host;
        if (cu.MemcpyDtoH(host, address + done, count) != CUDA_SUCCESS)
            return false;
        for (size_t i = 0; i < count; i++) {
            if (host[i] != pattern_byte(seed, done + i))
                return false;
        }
    }
    return true;
}

static void ask_fill(CUfunction fill, CUdeviceptr memory, CUstream stream)
{
    static const size_t sizes[] = {1, 7, 8, 255, 4096, 64 * KIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cu.MemsetD8Async(memory, 0, 64 * KIB, stream);
        ask(pattern_fill(fill, memory, sizes[i], 0x123456789abcdefULL + i, stream), "launch.fill_%zu", sizes[i]);
        ask(cu.StreamSynchronize(stream), "launch.fill_%zu.synchronize", sizes[i]);
        ask_yes(pattern_matches(memory, sizes[i], 0x123456789abcdefULL + i), "launch.fill_%zu.bytes", sizes[i]);
    }
    unsigned char after = 1;
    cu.MemsetD8Async(memory, 0, 64 * KIB, stream);
    pattern_fill(fill, memory, 100, 5, stream);
    cu.StreamSynchronize(stream);
    cu.MemcpyDtoH(&after, memory + 100, 1);
    ask_number(after, "launch.fill_100.next_byte");
}

static void ask_packed(CUfunction fill, CUdeviceptr memory, CUstream stream)
{
    unsigned long long packed[3] = {memory, 1000, 42};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void *parameters[] = {&packed[0], &packed[1], &packed[2]};
    ask(cu.LaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, stream, NULL, extra), "launch.packed");
    ask(cu.StreamSynchronize(stream), "launch.packed.synchronize");
    ask_yes(pattern_matches(memory, 1000, 42), "launch.packed.bytes");
    ask(cu.LaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, stream, parameters, extra), "launch.both_parameter_forms");
    ask(cu.StreamSynchronize(stream), "launch.packed.then_synchronize");
}

void ask_launches(void)
{
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUfunction fill = pattern_fill_function();
    CUdeviceptr memory = new_memory(64 * KIB);
    warm_up(stream);
    ask_fill(fill, memory, stream);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *shape = &shapes[i];
        unsigned long long bytes = 16;
        unsigned long long seed = 9;
        void *parameters[] = {&memory, &bytes, &seed};
        ask(cu.LaunchKernel(fill, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0], shape->block[1],
                            shape->block[2], shape->shared_bytes, stream, parameters, NULL),
            "launch.%s", shape->name);
    }
    ask(cu.StreamSynchronize(stream), "launch.shapes.synchronize");
    ask(cu.LaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "launch.null_function");
    ask(pattern_fill(fill, memory, 0, 1, stream), "launch.fill_0");
    ask(pattern_fill(fill, memory, 16, 1, NULL), "launch.null_stream");
    ask(pattern_fill(fill, memory, 16, 1, CU_STREAM_LEGACY), "launch.legacy");
    ask(pattern_fill(fill, memory, 16, 1, CU_STREAM_PER_THREAD), "launch.per_thread");
    ask(cu.CtxSynchronize(), "launch.special_streams.synchronize");
    CUdeviceptr pooled = 0;
    CUmemoryPool pool = new_pool(0);
    cu.MemAllocFromPoolAsync(&pooled, 64 * KIB, pool, stream);
    ask(pattern_fill(fill, pooled, 64 * KIB, 77, stream), "launch.pooled");
    ask(cu.StreamSynchronize(stream), "launch.pooled.synchronize");
    ask_yes(pattern_matches(pooled, 64 * KIB, 77), "launch.pooled.bytes");
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    ask(pattern_fill(fill, memory, 16, 1, stream), "launch.while_held");
    ask_yes(gate_release(gate), "launch.while_held.returns_at_once");
    cu.StreamSynchronize(stream);
    ask_packed(fill, memory, stream);
}
