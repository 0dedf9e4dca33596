/* Questions about mapping memory to reserved addresses and unmapping it, in right and wrong orders, whole and in parts.
 */
#include "vmm.h"

#include <stdint.h>

/* Maps, answers, and unmaps. */
static void ask_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    const char *name)
{
    CUresult result = cu.MemMap(address, bytes, offset, handle, 0);
    ask(result, "vmm.map.%s", name);
    if (result == CUDA_SUCCESS)
        ask(cu.MemUnmap(address, bytes), "vmm.map.%s.unmap", name);
}

static void ask_wrong_maps(CUdeviceptr range, CUmemGenericAllocationHandle handle)
{
    CUdeviceptr plain = new_memory(4 * MIB);
    ask_map(range, 4 * MIB, 0, handle, "whole");
    ask_map(range, PAGE, 0, handle, "first_half");
    ask_map(range, PAGE, PAGE, handle, "second_half");
    ask_map(range, 4 * MIB, PAGE, handle, "beyond_the_handle_by_offset");
    ask_map(range, 6 * MIB, 0, handle, "beyond_the_handle");
    ask_map(range, PAGE, 4096, handle, "offset_4_kib");
    ask_map(range, PAGE, 1, handle, "offset_1");
    ask_map(range, 0, 0, handle, "0_bytes");
    ask_map(range, 1, 0, handle, "1_byte");
    ask_map(range, 65536, 0, handle, "64_kib");
    ask_map(range, MIB, 0, handle, "1_mib");
    ask_map(range + 4096, PAGE, 0, handle, "misaligned_4_kib");
    ask_map(range + MIB, PAGE, 0, handle, "misaligned_1_mib");
    ask_map(range + 1, PAGE, 0, handle, "misaligned_1");
    ask_map(range + 4096, 4 * MIB, 0, handle, "whole_misaligned_4_kib");
    ask_map(range + 1, 4 * MIB, 0, handle, "whole_misaligned_1");
    ask_map(range + 4096, 0, 0, handle, "0_bytes_misaligned");
    ask_map(0, PAGE, 0, handle, "half_at_address_0");
    ask_map(range + 14 * MIB, 4 * MIB, 0, handle, "beyond_the_reservation");
    ask_map(range + 16 * MIB, 4 * MIB, 0, handle, "behind_the_reservation");
    ask_map(0, 4 * MIB, 0, handle, "address_0");
    ask_map((CUdeviceptr)PAGE, 4 * MIB, 0, handle, "foreign");
    ask_map(plain, 4 * MIB, 0, handle, "plain_memory");
    ask(cu.MemMap(range, 4 * MIB, 0, handle, 1), "vmm.map.flags_1");
    ask(cu.MemMap(range, 4 * MIB, 0, 0, 0), "vmm.map.handle_0");
    cu.MemFree(plain);
}

static void ask_overlaps(CUdeviceptr range, CUmemGenericAllocationHandle handle)
{
    CUmemGenericAllocationHandle other = vmm_create(4 * MIB);
    ask(cu.MemMap(range + 4 * MIB, 4 * MIB, 0, handle, 0), "vmm.map.overlap.first");
    ask(cu.MemMap(range + 4 * MIB, 4 * MIB, 0, other, 0), "vmm.map.overlap.same_place");
    ask(cu.MemMap(range + 4 * MIB, 4 * MIB, 0, handle, 0), "vmm.map.overlap.same_again");
    ask(cu.MemMap(range + 2 * MIB, 4 * MIB, 0, other, 0), "vmm.map.overlap.beginning");
    ask(cu.MemMap(range + 6 * MIB, 4 * MIB, 0, other, 0), "vmm.map.overlap.end");
    ask(cu.MemMap(range, 4 * MIB, 0, other, 0), "vmm.map.beside.before");
    ask(cu.MemMap(range + 8 * MIB, 4 * MIB, 0, other, 0), "vmm.map.alias.after");
    ask(cu.MemMap(range + 12 * MIB, 4 * MIB, 0, handle, 0), "vmm.map.alias.of_first");
    ask(cu.MemAddressFree(range, 16 * MIB), "vmm.address_free.mapped");
    ask(cu.MemUnmap(range, 16 * MIB), "vmm.unmap.four_maps");
    cu.MemRelease(other);
}

void ask_vmm_map(void)
{
    start();
    CUdeviceptr range = vmm_reserve(16 * MIB);
    CUmemGenericAllocationHandle handle = vmm_create(4 * MIB);
    ask_wrong_maps(range, handle);
    ask_overlaps(range, handle);
    ask(cu.MemRelease(handle), "vmm.release.after_all");
    ask(cu.MemAddressFree(range, 16 * MIB), "vmm.address_free.after_all");
    ask(cu.CtxSynchronize(), "vmm.map.context_is_usable");
}

/* ---- unmapping ---- */

/* Maps 4 MiB at 0, 4 and 12 MiB of the range, each with its own handle. */
static void map_three(CUdeviceptr range)
{
    static const size_t places[] = {0, 4, 12};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        CUmemGenericAllocationHandle handle = vmm_create(4 * MIB);
        cu.MemMap(range + places[i] * MIB, 4 * MIB, 0, handle, 0);
        cu.MemRelease(handle);
    }
}

static void ask_parts(CUdeviceptr range)
{
    CUdeviceptr plain = new_memory(4 * MIB);
    map_three(range);
    ask(cu.MemUnmap(range, 0), "vmm.unmap.0_bytes");
    ask(cu.MemUnmap(range, PAGE), "vmm.unmap.first_half_of_map");
    ask(cu.MemUnmap(range + PAGE, PAGE), "vmm.unmap.second_half_of_map");
    ask(cu.MemUnmap(range + PAGE, 4 * MIB), "vmm.unmap.over_two_maps");
    ask(cu.MemUnmap(range, 6 * MIB), "vmm.unmap.one_and_a_half");
    ask(cu.MemUnmap(range, 4 * MIB - 1), "vmm.unmap.1_less");
    ask(cu.MemUnmap(range, 4 * MIB + 1), "vmm.unmap.1_more");
    ask(cu.MemUnmap(range + 1, 4 * MIB), "vmm.unmap.misaligned");
    ask(cu.MemUnmap(range + 8 * MIB, 4 * MIB), "vmm.unmap.hole");
    ask(cu.MemUnmap(range + 4 * MIB, 8 * MIB), "vmm.unmap.map_and_hole");
    ask(cu.MemUnmap(range + 8 * MIB, 8 * MIB), "vmm.unmap.hole_and_map");
    ask(cu.MemUnmap(0, 4 * MIB), "vmm.unmap.address_0");
    ask(cu.MemUnmap((CUdeviceptr)PAGE, 4 * MIB), "vmm.unmap.foreign");
    ask(cu.MemUnmap(plain, 4 * MIB), "vmm.unmap.plain_memory");
    ask(cu.MemUnmap(range, 32 * MIB), "vmm.unmap.beyond_the_reservation");
    cu.MemUnmap(range, 4 * MIB);
    cu.MemUnmap(range + 4 * MIB, 4 * MIB);
    cu.MemUnmap(range + 12 * MIB, 4 * MIB);
    cu.MemFree(plain);
}

static void ask_wholes(CUdeviceptr range)
{
    map_three(range);
    ask(cu.MemUnmap(range, 8 * MIB), "vmm.unmap.two_maps");
    ask(cu.MemUnmap(range, 8 * MIB), "vmm.unmap.two_maps.twice");
    ask(cu.MemUnmap(range + 12 * MIB, 4 * MIB), "vmm.unmap.last");
    map_three(range);
    ask(cu.MemUnmap(range, 16 * MIB), "vmm.unmap.all_with_hole");
    ask(cu.MemAddressFree(range, 16 * MIB), "vmm.unmap.all_with_hole.address_free");
}

static void ask_retained(void)
{
    CUmemGenericAllocationHandle handle = vmm_create(4 * MIB);
    CUmemGenericAllocationHandle got = 0;
    CUdeviceptr plain = new_memory(4 * MIB);
    CUdeviceptr range = vmm_reserve(8 * MIB);
    int local = 0;
    cu.MemMap(range, 4 * MIB, 0, handle, 0);
    CUresult result = cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)range);
    ask_fact(result, got == handle, "vmm.retain.same_handle");
    ask(cu.MemRelease(got), "vmm.retain.release");
    result = cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)(range + 5000));
    ask_fact(result, got == handle, "vmm.retain.interior");
    ask(cu.MemRelease(got), "vmm.retain.interior.release");
    ask(cu.MemRelease(handle), "vmm.retain.release_while_mapped");
    result = cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)range);
    ask(result, "vmm.retain.after_release");
    if (result == CUDA_SUCCESS) {
        CUmemAllocationProp properties = {0};
        ask(cu.MemGetAllocationPropertiesFromHandle(&properties, got), "vmm.retain.after_release.properties");
        ask(cu.MemMap(range + 4 * MIB, 4 * MIB, 0, got, 0), "vmm.retain.after_release.map");
        cu.MemUnmap(range + 4 * MIB, 4 * MIB);
        ask(cu.MemRelease(got), "vmm.retain.after_release.release");
    }
    ask(cu.MemRetainAllocationHandle(NULL, (void *)(uintptr_t)range), "vmm.retain.null_out");
    ask(cu.MemRetainAllocationHandle(&got, NULL), "vmm.retain.address_0");
    ask(cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)plain), "vmm.retain.plain_memory");
    ask(cu.MemRetainAllocationHandle(&got, &local), "vmm.retain.host_memory");
    ask(cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)(range + 4 * MIB)), "vmm.retain.hole");
    ask(cu.MemFree(range), "vmm.mapped.mem_free");
    ask(cu.MemFreeAsync(range, NULL), "vmm.mapped.mem_free_async");
    ask(cu.MemFreeHost((void *)(uintptr_t)range), "vmm.mapped.mem_free_host");
    ask(cu.MemUnmap(range, 4 * MIB), "vmm.retain.unmap");
    ask(cu.MemRetainAllocationHandle(&got, (void *)(uintptr_t)range), "vmm.retain.unmapped");
    cu.MemAddressFree(range, 8 * MIB);
    cu.MemFree(plain);
}

/* Whether unmapping waits for work that does not touch the memory. */
static void ask_unmap_waits(CUstream stream, const char *kind)
{
    CUdeviceptr range = vmm_map(4 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    CUresult result = cu.MemUnmap(range, 4 * MIB);
    ask_yes(!gate_release(gate), "vmm.unmap.waits.%s_held", kind);
    ask(result, "vmm.unmap.%s_held", kind);
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    CUmemGenericAllocationHandle handle = vmm_create(4 * MIB);
    ask_yes(!gate_release(gate), "vmm.create.waits.%s_held", kind);
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemMap(range, 4 * MIB, 0, handle, 0);
    ask_yes(!gate_release(gate), "vmm.map.waits.%s_held", kind);
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    vmm_allow(range, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ask_yes(!gate_release(gate), "vmm.set_access.waits.%s_held", kind);
    cu.CtxSynchronize();
    cu.MemUnmap(range, 4 * MIB);
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemRelease(handle);
    cu.MemAddressFree(range, 4 * MIB);
    ask_yes(!gate_release(gate), "vmm.release.waits.%s_held", kind);
    cu.CtxSynchronize();
}

void ask_vmm_unmap(void)
{
    start();
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    CUstream non_blocking = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr range = vmm_reserve(16 * MIB);
    warm_up(blocking);
    warm_up(non_blocking);
    ask_parts(range);
    ask_wholes(range);
    ask_retained();
    ask_unmap_waits(blocking, "blocking");
    ask_unmap_waits(non_blocking, "non_blocking");
    ask(cu.CtxSynchronize(), "vmm.unmap.context_is_usable");
}

/* ---- what the device has left ---- */

static long long free_bytes(void)
{
    size_t bytes = 0;
    size_t total = 0;
    cu.MemGetInfo(&bytes, &total);
    return (long long)bytes;
}

void ask_vmm_info(void)
{
    start();
    warm_up(NULL);
    CUdeviceptr range = vmm_map(64 * MIB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu.MemsetD8(range, 1, 64 * MIB);
    cu.CtxSynchronize();
    cu.MemUnmap(range, 64 * MIB);
    long long before = free_bytes();
    CUmemGenericAllocationHandle handle = vmm_create(64 * MIB);
    ask_number(before - free_bytes(), "vmm.info.created");
    cu.MemMap(range, 64 * MIB, 0, handle, 0);
    ask_number(before - free_bytes(), "vmm.info.mapped");
    vmm_allow(range, 64 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ask_number(before - free_bytes(), "vmm.info.accessible");
    cu.MemRelease(handle);
    ask_number(before - free_bytes(), "vmm.info.released_while_mapped");
    cu.MemUnmap(range, 64 * MIB);
    ask_number(before - free_bytes(), "vmm.info.unmapped");
    handle = vmm_create(64 * MIB);
    cu.MemMap(range, 64 * MIB, 0, handle, 0);
    cu.MemUnmap(range, 64 * MIB);
    ask_number(before - free_bytes(), "vmm.info.unmapped_not_released");
    cu.MemRelease(handle);
    ask_number(before - free_bytes(), "vmm.info.released");
    CUdeviceptr large = vmm_reserve(64 * GIB);
    ask_number(before - free_bytes(), "vmm.info.reserved_64_gib");
    cu.MemAddressFree(large, 64 * GIB);
    handle = vmm_create(PAGE);
    ask_number(before - free_bytes(), "vmm.info.created_2_mib");
    cu.MemRelease(handle);
}
