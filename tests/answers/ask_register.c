/* Questions about host memory of the program, registered with the driver. */
#include "ask.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 64 * 1024, PAGES = 16 };

static char *new_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Registers the memory, answers, and unregisters it. */
static void ask_register(void *memory, size_t bytes, unsigned flags, const char *name)
{
    CUresult result = cu.MemHostRegister(memory, bytes, flags);
    ask(result, "register.%s", name);
    if (result == CUDA_SUCCESS)
        ask(cu.MemHostUnregister(memory), "register.%s.unregister", name);
}

static void ask_flags(char *memory)
{
    static const unsigned flags[] = {0, 1, 2, 3, 8, 9, 10, 11, 0x10, 0x80, 0xffffffff};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        unsigned got = 77;
        CUdeviceptr device = 0;
        CUresult result = cu.MemHostRegister(memory, BYTES, flags[i]);
        ask(result, "register.flags_%x", flags[i]);
        if (result != CUDA_SUCCESS)
            continue;
        result = cu.MemHostGetFlags(&got, memory);
        ask_value(result, got, "register.flags_%x.got", flags[i]);
        result = cu.MemHostGetDevicePointer(&device, memory, 0);
        ask_fact(result, device == (CUdeviceptr)(uintptr_t)memory, "register.flags_%x.device_pointer_is_host_pointer",
                 flags[i]);
        cu.MemHostUnregister(memory);
    }
}

static void ask_ranges(char *memory)
{
    CUdeviceptr plain = new_memory(BYTES);
    void *pinned = NULL;
    cu.MemHostAlloc(&pinned, BYTES, 0);
    ask_register(memory, 0, 0, "0_bytes");
    ask_register(NULL, BYTES, 0, "null");
    ask_register(NULL, 0, 0, "null_0_bytes");
    ask_register(memory, 1, 0, "1_byte");
    ask_register(memory + 100, 1000, 0, "unaligned");
    ask_register(memory + 100, 8000, 0, "unaligned_over_a_page");
    ask_register((void *)(uintptr_t)plain, BYTES, 0, "device_memory");
    ask_register(pinned, BYTES, 0, "pinned_memory");
    ask_register((char *)pinned + 4096, 4096, 0, "part_of_pinned_memory");
    cu.MemFree(plain);
    cu.MemFreeHost(pinned);
}

static void ask_overlaps(char *memory)
{
    ask(cu.MemHostRegister(memory + 4 * 4096, 4 * 4096, 0), "register.overlap.first");
    ask(cu.MemHostRegister(memory + 4 * 4096, 4 * 4096, 0), "register.overlap.twice");
    ask_register(memory + 3 * 4096, 2 * 4096, 0, "overlap.beginning");
    ask_register(memory + 7 * 4096, 2 * 4096, 0, "overlap.end");
    ask_register(memory + 5 * 4096, 4096, 0, "overlap.inside");
    ask_register(memory, PAGES * 4096, 0, "overlap.around");
    ask_register(memory, 4 * 4096, 0, "beside.before");
    ask_register(memory + 8 * 4096, 4096, 0, "beside.after");
    ask(cu.MemHostUnregister(memory + 4 * 4096 + 1), "register.unregister.interior_1");
    ask(cu.MemHostUnregister(memory + 5 * 4096), "register.unregister.interior");
    ask(cu.MemHostUnregister(memory + 4 * 4096), "register.unregister.after_interior");
    ask(cu.MemHostUnregister(memory + 4 * 4096), "register.unregister.twice");
    ask(cu.MemHostRegister(memory + 100, 200, 0), "register.same_page.first");
    ask(cu.MemHostRegister(memory + 1000, 200, 0), "register.same_page.second");
    ask(cu.MemHostUnregister(memory + 1000), "register.same_page.second.unregister");
    ask(cu.MemHostUnregister(memory + 100), "register.same_page.first.unregister");
}

static void ask_wrong_unregisters(char *memory)
{
    CUdeviceptr plain = new_memory(BYTES);
    void *pinned = NULL;
    unsigned flags = 0;
    CUdeviceptr device = 0;
    cu.MemHostAlloc(&pinned, BYTES, 0);
    ask(cu.MemHostUnregister(memory), "register.unregister.not_registered");
    ask(cu.MemHostUnregister(NULL), "register.unregister.null");
    ask(cu.MemHostUnregister(pinned), "register.unregister.pinned_memory");
    ask(cu.MemHostUnregister((void *)(uintptr_t)plain), "register.unregister.device_memory");
    cu.MemHostRegister(memory, BYTES, 0);
    ask(cu.MemFreeHost(memory), "register.mem_free_host");
    ask(cu.MemFree((CUdeviceptr)(uintptr_t)memory), "register.mem_free");
    ask(cu.MemFreeAsync((CUdeviceptr)(uintptr_t)memory, NULL), "register.mem_free_async");
    ask(cu.MemHostGetDevicePointer(&device, memory + 100, 0), "register.device_pointer.interior");
    ask(cu.MemHostGetDevicePointer(&device, memory, 1), "register.device_pointer.flags_1");
    ask(cu.MemHostGetDevicePointer(&device, memory + BYTES, 0), "register.device_pointer.1_past");
    CUresult result = cu.MemHostGetFlags(&flags, memory + 100);
    ask_value(result, flags, "register.get_flags.interior");
    ask(cu.MemHostGetFlags(&flags, memory + BYTES), "register.get_flags.1_past");
    ask(cu.MemHostGetFlags(NULL, memory), "register.get_flags.null_out");
    ask(cu.MemHostGetFlags(&flags, NULL), "register.get_flags.null");
    ask(cu.MemHostGetFlags(&flags, (void *)(uintptr_t)plain), "register.get_flags.device_memory");
    cu.MemHostUnregister(memory);
    ask(cu.MemHostGetFlags(&flags, memory), "register.get_flags.unregistered");
    ask(cu.MemHostGetDevicePointer(&device, memory, 0), "register.device_pointer.unregistered");
    cu.MemFree(plain);
    cu.MemFreeHost(pinned);
}

/* Copies within registered memory, and beyond its end. */
static void ask_registered_copies(char *memory, CUstream stream)
{
    CUdeviceptr plain = new_memory(PAGES * 4096);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    cu.MemHostRegister(memory + 100, BYTES / 2, 0);
    memset(memory, 0x55, BYTES);
    CUresult result = cu.MemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)(memory + 200));
    ask_value(result, (long long)bytes, "register.address_range");
    ask_fact(result, base == (CUdeviceptr)(uintptr_t)(memory + 100), "register.address_range.base");
    ask(cu.MemcpyHtoD(plain, memory + 100, BYTES / 2), "register.copy.htod");
    ask(cu.MemcpyHtoD(plain, memory + 100, BYTES / 2 + 1), "register.copy.htod.1_past");
    ask(cu.MemcpyHtoD(plain, memory + 99, 2), "register.copy.htod.1_before");
    ask(cu.MemcpyHtoD(plain, memory, BYTES), "register.copy.htod.around");
    ask(cu.MemcpyHtoD(plain, memory + 100, BYTES / 2 + 8192), "register.copy.htod.2_pages_past");
    ask(cu.MemcpyHtoDAsync(plain, memory + 100, BYTES / 2 + 1, stream), "register.copy.htod_async.1_past");
    ask(cu.MemcpyDtoH(memory + 100, plain, BYTES / 2 + 1), "register.copy.dtoh.1_past");
    ask(cu.MemsetD8((CUdeviceptr)(uintptr_t)(memory + 100), 0x66, 1000), "register.memset");
    ask_yes(memory[100] == 0x66 && memory[1099] == 0x66 && memory[1100] == 0x55, "register.memset.bytes");
    ask(cu.MemsetD8((CUdeviceptr)(uintptr_t)(memory + 100), 0x66, BYTES / 2 + 1), "register.memset.1_past");
    ask(pattern_fill(pattern_fill_function(), (CUdeviceptr)(uintptr_t)(memory + 100), 1000, 9, stream),
        "register.kernel");
    ask(cu.StreamSynchronize(stream), "register.kernel.synchronize");
    ask_yes((unsigned char)memory[1099] == pattern_byte(9, 999), "register.kernel.bytes");
    ask(cu.CtxSynchronize(), "register.copy.synchronize");
    cu.MemHostUnregister(memory + 100);
    cu.MemFree(plain);
}

/* Whether a copy from registered memory, and unregistering, wait for the stream. */
static void ask_waits(char *memory, CUstream stream)
{
    CUdeviceptr plain = new_memory(BYTES);
    cu.MemHostRegister(memory, BYTES, 0);
    cu.MemcpyHtoDAsync(plain, memory, BYTES, stream);
    cu.MemcpyDtoHAsync(memory, plain, BYTES, stream);
    cu.CtxSynchronize();
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemcpyHtoDAsync(plain, memory, BYTES, stream);
    ask_yes(!gate_release(gate), "register.waits.htod_async");
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemcpyDtoHAsync(memory, plain, BYTES, stream);
    ask_yes(!gate_release(gate), "register.waits.dtoh_async");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemHostUnregister(memory);
    ask_yes(!gate_release(gate), "register.waits.unregister");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemHostRegister(memory, BYTES, 0);
    ask_yes(!gate_release(gate), "register.waits.register");
    cu.CtxSynchronize();
    cu.MemHostUnregister(memory);
    cu.MemFree(plain);
}

void ask_registered(void)
{
    CUcontext context = start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    char *memory = new_pages(PAGES * 4096);
    warm_up(stream);
    if (memory == NULL)
        return;
    memset(memory, 1, PAGES * 4096);
    ask_flags(memory);
    ask_ranges(memory);
    ask_overlaps(memory);
    ask_wrong_unregisters(memory);
    cu.MemHostRegister(memory + 4096 + 100, 10000, CU_MEMHOSTREGISTER_PORTABLE);
    CUdeviceptr begin = (CUdeviceptr)(uintptr_t)(memory + 4096 + 100);
    ask_pointer_attributes("registered", begin, begin, context, NULL);
    ask_pointer_attributes("registered_interior", begin + 5000, begin, context, NULL);
    ask_pointer_attributes("registered_page", begin - 50, begin, context, NULL);
    cu.MemHostUnregister(memory + 4096 + 100);
    ask_registered_copies(memory, stream);
    ask_waits(memory, stream);
    ask(cu.CtxSynchronize(), "register.context_is_usable");
    munmap(memory, PAGES * 4096);
}
