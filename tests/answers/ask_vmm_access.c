/* Questions about access to mapped memory: setting and getting it, attributes of mapped addresses, shared handles, and
 * work without access. */
#include "vmm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

static void ask_access(CUdeviceptr address, const char *name)
{
    unsigned long long flags = 77;
    CUresult result = cu.MemGetAccess(&flags, &here, address);
    ask_value(result, (long long)flags, "vmm.access.%s", name);
}

static void ask_set(CUdeviceptr address, size_t bytes, CUmemLocationType type, int id, int flags, const char *name)
{
    CUmemAccessDesc access = {.location = {.type = type, .id = id}, .flags = (CUmemAccess_flags)flags};
    ask(cu.MemSetAccess(address, bytes, &access, 1), "vmm.set_access.%s", name);
}

static void ask_flags(CUdeviceptr range)
{
    const CUmemLocationType device = CU_MEM_LOCATION_TYPE_DEVICE;
    ask_access(range, "never_set");
    ask_set(range, 4 * MIB, device, 0, CU_MEM_ACCESS_FLAGS_PROT_READ, "read");
    ask_access(range, "read");
    ask_set(range, 4 * MIB, device, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "read_write");
    ask_access(range, "read_write");
    ask_access(range + 4096, "interior");
    ask_access(range + 1, "interior_1");
    ask_set(range, 4 * MIB, device, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE, "none");
    ask_access(range, "none");
    ask_set(range, 4 * MIB, device, 0, 2, "flags_2");
    ask_set(range, 4 * MIB, device, 0, 99, "flags_99");
    ask_set(range, 4 * MIB, device, 99, 3, "device_99");
    ask_set(range, 4 * MIB, device, -1, 3, "device_minus_one");
    ask_set(range, 4 * MIB, CU_MEM_LOCATION_TYPE_INVALID, 0, 3, "location_0");
    ask_set(range, 4 * MIB, CU_MEM_LOCATION_TYPE_HOST, 0, 3, "location_host");
    ask_set(range, 4 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 3, "location_host_numa");
    ask_set(range, 4 * MIB, (CUmemLocationType)99, 0, 3, "location_99");
    ask_access(range, "after_wrong_sets");
    CUmemAccessDesc twice[2] = {{.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ}};
    ask(cu.MemSetAccess(range, 4 * MIB, twice, 2), "vmm.set_access.same_device_twice");
    ask_access(range, "same_device_twice");
    ask(cu.MemSetAccess(range, 4 * MIB, twice, 0), "vmm.set_access.count_0");
    ask(cu.MemSetAccess(range, 4 * MIB, NULL, 1), "vmm.set_access.null");
    ask(cu.MemSetAccess(range, 4 * MIB, NULL, 0), "vmm.set_access.null_count_0");
    twice[0].location.id = 99;
    twice[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ask(cu.MemSetAccess(range, 4 * MIB, twice, 2), "vmm.set_access.one_wrong_of_two");
    ask_access(range, "one_wrong_of_two");
}

/* The range has mappings of 4 MiB at 0 and 4 MiB, then a hole of 4 MiB. */
static void ask_set_ranges(CUdeviceptr range)
{
    const CUmemLocationType device = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr plain = new_memory(4 * MIB);
    ask_set(range, 0, device, 0, 3, "0_bytes");
    ask_set(range, PAGE, device, 0, 3, "first_half_of_map");
    ask_access(range, "first_half_of_map");
    ask_access(range + PAGE, "first_half_of_map.second_half");
    ask_set(range + PAGE, PAGE, device, 0, 3, "second_half_of_map");
    ask_set(range, 6 * MIB, device, 0, 3, "one_and_a_half");
    ask_set(range, 8 * MIB, device, 0, 3, "two_maps");
    ask_access(range + 4 * MIB, "two_maps");
    ask_set(range, 12 * MIB, device, 0, 1, "two_maps_and_hole");
    ask_access(range, "two_maps_and_hole");
    ask_set(range + 8 * MIB, 4 * MIB, device, 0, 3, "hole");
    ask_set(range, 4 * MIB - 1, device, 0, 3, "1_less");
    ask_set(range, 4096, device, 0, 3, "4_kib");
    ask_set(range + 1, 4 * MIB, device, 0, 3, "misaligned");
    ask_set(0, 4 * MIB, device, 0, 3, "address_0");
    ask_set((CUdeviceptr)PAGE, 4 * MIB, device, 0, 3, "foreign");
    ask_set(plain, 4 * MIB, device, 0, 3, "plain_memory");
    cu.MemFree(plain);
}

static void ask_gets(CUdeviceptr range)
{
    unsigned long long flags = 77;
    CUmemLocation wrong = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    CUdeviceptr plain = new_memory(4 * MIB);
    ask(cu.MemGetAccess(&flags, &wrong, range), "vmm.get_access.device_99");
    wrong.id = -1;
    ask(cu.MemGetAccess(&flags, &wrong, range), "vmm.get_access.device_minus_one");
    wrong = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
    ask(cu.MemGetAccess(&flags, &wrong, range), "vmm.get_access.location_0");
    wrong.type = CU_MEM_LOCATION_TYPE_HOST;
    CUresult result = cu.MemGetAccess(&flags, &wrong, range);
    ask_value(result, (long long)flags, "vmm.get_access.location_host");
    vmm_allow(range, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    result = cu.MemGetAccess(&flags, &wrong, range);
    ask_value(result, (long long)flags, "vmm.get_access.location_host.device_reads");
    vmm_allow(range, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    result = cu.MemGetAccess(&flags, &wrong, range);
    ask_value(result, (long long)flags, "vmm.get_access.location_host.device_has_none");
    wrong.id = 99;
    result = cu.MemGetAccess(&flags, &wrong, range);
    ask_value(result, (long long)flags, "vmm.get_access.location_host_99");
    wrong.type = (CUmemLocationType)99;
    ask(cu.MemGetAccess(&flags, &wrong, range), "vmm.get_access.location_99");
    ask(cu.MemGetAccess(NULL, &here, range), "vmm.get_access.null_out");
    ask(cu.MemGetAccess(&flags, NULL, range), "vmm.get_access.null_location");
    ask(cu.MemGetAccess(&flags, &here, 0), "vmm.get_access.address_0");
    ask(cu.MemGetAccess(&flags, &here, PAGE), "vmm.get_access.foreign");
    result = cu.MemGetAccess(&flags, &here, plain);
    ask_value(result, (long long)flags, "vmm.get_access.plain_memory");
    cu.MemFree(plain);
}

void ask_vmm_access(void)
{
    start();
    CUdeviceptr range = vmm_reserve(12 * MIB);
    CUmemGenericAllocationHandle handle = vmm_create(4 * MIB);
    CUmemGenericAllocationHandle other = vmm_create(4 * MIB);
    cu.MemMap(range, 4 * MIB, 0, handle, 0);
    ask_flags(range);
    cu.MemMap(range + 4 * MIB, 4 * MIB, 0, other, 0);
    ask_set_ranges(range);
    ask_gets(range);
    ask_set(range, 8 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3, "again");
    cu.MemUnmap(range, 4 * MIB);
    ask_access(range, "unmapped");
    cu.MemMap(range, 4 * MIB, 0, handle, 0);
    ask_access(range, "mapped_anew");
    ask_set(range, 4 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3, "mapped_anew");
    cu.MemMap(range + 8 * MIB, 4 * MIB, 0, handle, 0);
    ask_access(range + 8 * MIB, "alias_of_accessible");
    ask(cu.CtxSynchronize(), "vmm.access.context_is_usable");
}

/* ---- what can be asked about mapped addresses, and copies over several maps ---- */

static bool all_bytes(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value)
            return false;
    }
    return true;
}

static void ask_range_of(CUdeviceptr address, CUdeviceptr base, const char *name)
{
    CUdeviceptr got = 0;
    size_t bytes = 0;
    CUresult result = cu.MemGetAddressRange(&got, &bytes, address);
    ask_value(result, (long long)bytes, "vmm.address_range.%s.bytes", name);
    ask_fact(result, got == base, "vmm.address_range.%s.base", name);
}

/* Adjacent mappings of 4 MiB, the first two accessible; an alias of the first after a hole. */
static void ask_mapped_copies(CUdeviceptr range, unsigned char *host)
{
    CUdeviceptr plain = new_memory(16 * MIB);
    memset(host, 0, 16 * MIB);
    ask(cu.MemsetD8(range, 0x11, 8 * MIB), "vmm.copy.memset_over_two_maps");
    ask(cu.MemcpyDtoH(host, range, 8 * MIB), "vmm.copy.dtoh_over_two_maps");
    ask_yes(all_bytes(host, 8 * MIB, 0x11), "vmm.copy.dtoh_over_two_maps.bytes");
    memset(host, 0x22, 16 * MIB);
    ask(cu.MemcpyHtoD(range + PAGE, host, 4 * MIB), "vmm.copy.htod_over_border");
    ask(cu.MemcpyDtoD(plain, range, 8 * MIB), "vmm.copy.dtod_from_two_maps");
    ask(cu.MemcpyDtoH(host, plain, 8 * MIB), "vmm.copy.dtod_from_two_maps.back");
    ask_yes(all_bytes(host, PAGE, 0x11) && all_bytes(host + PAGE, 4 * MIB, 0x22), "vmm.copy.dtod_from_two_maps.bytes");
    ask(cu.MemcpyDtoH(host, range + 12 * MIB, 4 * MIB), "vmm.copy.alias.dtoh");
    ask_yes(all_bytes(host, PAGE, 0x11) && all_bytes(host + PAGE, PAGE, 0x22), "vmm.copy.alias.bytes");
    ask(cu.MemsetD8(range + 12 * MIB, 0x33, 4 * MIB), "vmm.copy.alias.memset");
    cu.MemcpyDtoH(host, range, 4 * MIB);
    ask_yes(all_bytes(host, 4 * MIB, 0x33), "vmm.copy.alias.memset.seen");
    ask(cu.MemcpyDtoH(host, range, 12 * MIB), "vmm.copy.dtoh_into_hole");
    ask(cu.MemcpyHtoD(range, host, 8 * MIB + 1), "vmm.copy.htod_1_into_hole");
    ask(cu.MemsetD8(range, 1, 8 * MIB + 1), "vmm.copy.memset_1_into_hole");
    ask(cu.MemcpyDtoH(host, range + 8 * MIB, 16), "vmm.copy.dtoh_of_hole");
    ask(cu.MemcpyDtoD(plain, range, 12 * MIB), "vmm.copy.dtod_into_hole");
    ask(cu.CtxSynchronize(), "vmm.copy.context_is_usable");
    cu.MemFree(plain);
}

void ask_vmm_ranges(void)
{
    CUcontext context = start();
    CUdeviceptr range = vmm_reserve(16 * MIB);
    CUmemGenericAllocationHandle first = vmm_create(4 * MIB);
    CUmemGenericAllocationHandle second = vmm_create(4 * MIB);
    unsigned char *host = calloc(16, MIB);
    if (host == NULL)
        return;
    cu.MemMap(range, 4 * MIB, 0, first, 0);
    ask_pointer_attributes("vmm_no_access", range + 4096, range, context, NULL);
    cu.MemMap(range + 4 * MIB, 4 * MIB, 0, second, 0);
    cu.MemMap(range + 12 * MIB, 4 * MIB, 0, first, 0);
    vmm_allow(range, 8 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    vmm_allow(range + 12 * MIB, 4 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ask_pointer_attributes("vmm_mapped", range + 4096, range, context, NULL);
    ask_pointer_attributes("vmm_second_map", range + 5 * MIB, range + 4 * MIB, context, NULL);
    ask_pointer_attributes("vmm_hole", range + 9 * MIB, range, context, NULL);
    ask_range_of(range, range, "first");
    ask_range_of(range + 4096, range, "first_interior");
    ask_range_of(range + 5 * MIB, range + 4 * MIB, "second_interior");
    ask_range_of(range + 9 * MIB, range, "hole");
    ask_range_of(range + 13 * MIB, range + 12 * MIB, "alias");
    unsigned long long ids[3] = {0};
    cu.PointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, range);
    cu.PointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, range + 4 * MIB);
    cu.PointerGetAttribute(&ids[2], CU_POINTER_ATTRIBUTE_BUFFER_ID, range + 12 * MIB);
    ask_yes(ids[0] != ids[1], "vmm.buffer_id.differs_between_handles");
    ask_yes(ids[0] == ids[2], "vmm.buffer_id.same_for_alias");
    ask(cu.MemFree(range), "vmm.mapped_range.mem_free");
    ask(cu.MemFreeAsync(range, NULL), "vmm.mapped_range.mem_free_async");
    ask_mapped_copies(range, host);
    CUfunction fill = pattern_fill_function();
    ask(pattern_fill(fill, range + 3 * MIB, 2 * MIB, 5, NULL), "vmm.kernel_over_two_maps");
    ask(cu.CtxSynchronize(), "vmm.kernel_over_two_maps.synchronize");
    cu.MemcpyDtoH(host, range + 3 * MIB, 2 * MIB);
    ask_yes(host[0] == pattern_byte(5, 0) && host[2 * MIB - 1] == pattern_byte(5, 2 * MIB - 1),
            "vmm.kernel_over_two_maps.bytes");
    free(host);
}

/* Mapped memory of the host. */
void ask_vmm_host(void)
{
    const CUmemLocationType host = CU_MEM_LOCATION_TYPE_HOST;
    const CUmemLocationType node = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CUcontext context = start();
    CUmemAllocationProp properties = vmm_properties(0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = vmm_reserve(4 * MIB);
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    unsigned char byte = 0;
    properties.location = (CUmemLocation){.type = node, .id = 0};
    cu.MemGetInfo(&before, &total);
    ask(cu.MemCreate(&handle, 4 * MIB, &properties, 0), "vmm.host.create");
    cu.MemGetInfo(&after, &total);
    ask_number((long long)(before - after), "vmm.host.device_bytes");
    ask(cu.MemMap(range, 4 * MIB, 0, handle, 0), "vmm.host.map");
    ask_set(range, 4 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0, 3, "host_memory.device");
    ask_access(range, "host_memory.device");
    ask(cu.MemsetD8(range, 0x51, 4 * MIB), "vmm.host.memset");
    ask(cu.CtxSynchronize(), "vmm.host.memset.synchronize");
    cu.MemcpyDtoH(&byte, range, 1);
    ask_number(byte, "vmm.host.memset.byte");
    ask_pointer_attributes("vmm_host", range, range, context, NULL);
    ask_set(range, 4 * MIB, host, 0, 3, "host_memory.host");
    ask_set(range, 4 * MIB, node, 0, 3, "host_memory.host_numa");
    ask_set(range, 4 * MIB, node, 99, 3, "host_memory.host_numa_99");
    ask_set(range, 4 * MIB, node, 0, 1, "host_memory.host_numa_reads");
    ask_set(range, 4 * MIB, node, 0, 0, "host_memory.host_numa_none");
    ask(cu.MemUnmap(range, 4 * MIB), "vmm.host.unmap");
    ask(cu.MemRelease(handle), "vmm.host.release");
    cu.MemAddressFree(range, 4 * MIB);
    ask(cu.CtxSynchronize(), "vmm.host.context_is_usable");
}

/* ---- sharing ---- */

static CUmemGenericAllocationHandle create_shareable(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(0);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    cu.MemCreate(&handle, 4 * MIB, &properties, 0);
    return handle;
}

static void ask_exports(CUmemGenericAllocationHandle handle)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle secret = vmm_create(4 * MIB);
    int file = -1;
    ask(cu.MemExportToShareableHandle(&file, secret, posix, 0), "vmm.export.not_requested");
    ask(cu.MemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_NONE, 0), "vmm.export.type_none");
    ask(cu.MemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_WIN32, 0), "vmm.export.type_win32");
    ask(cu.MemExportToShareableHandle(&file, handle, (CUmemAllocationHandleType)0x10, 0), "vmm.export.type_unknown");
    ask(cu.MemExportToShareableHandle(&file, handle, posix, 1), "vmm.export.flags_1");
    ask(cu.MemExportToShareableHandle(NULL, handle, posix, 0), "vmm.export.null_out");
    ask(cu.MemExportToShareableHandle(&file, 0, posix, 0), "vmm.export.handle_0");
    cu.MemRelease(secret);
}

static void ask_imports(int file)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    FILE *other = tmpfile();
    void *os_handle = (void *)(intptr_t)file;
    ask(cu.MemImportFromShareableHandle(NULL, os_handle, posix), "vmm.import.null_out");
    ask(cu.MemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_NONE), "vmm.import.type_none");
    ask(cu.MemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_WIN32), "vmm.import.type_win32");
    ask(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, posix), "vmm.import.file_minus_one");
    ask(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)9999, posix), "vmm.import.file_not_open");
    if (other != NULL) {
        ask(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fileno(other), posix),
            "vmm.import.file_of_something_else");
        fclose(other);
    }
}

/* The same memory through its own handle and through one imported from its file descriptor. */
static void ask_shared_bytes(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle imported)
{
    CUdeviceptr range = vmm_reserve(8 * MIB);
    unsigned char byte = 0;
    CUmemAllocationProp got = {0};
    ask_yes(handle == imported, "vmm.import.same_handle");
    CUresult result = cu.MemGetAllocationPropertiesFromHandle(&got, imported);
    ask_value(result, got.requestedHandleTypes, "vmm.import.handle_types");
    ask_number(got.location.type, "vmm.import.location_type");
    ask(cu.MemMap(range, 4 * MIB, 0, handle, 0), "vmm.import.map_own");
    ask(cu.MemMap(range + 4 * MIB, 4 * MIB, 0, imported, 0), "vmm.import.map_imported");
    ask(vmm_allow(range, 8 * MIB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "vmm.import.set_access");
    ask(cu.MemRelease(handle), "vmm.import.release_own");
    ask(cu.MemsetD8(range, 0x44, 4 * MIB), "vmm.import.memset");
    cu.MemcpyDtoH(&byte, range + 4 * MIB + 77, 1);
    ask_yes(byte == 0x44, "vmm.import.same_bytes");
    cu.MemUnmap(range, 8 * MIB);
    ask(cu.MemRelease(imported), "vmm.import.release_imported");
    cu.MemAddressFree(range, 8 * MIB);
}

void ask_vmm_share(void)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle imported = 0;
    int file = -1;
    int again = -1;
    start();
    CUmemGenericAllocationHandle handle = create_shareable();
    ask_exports(handle);
    ask(cu.MemExportToShareableHandle(&file, handle, posix, 0), "vmm.export");
    ask(cu.MemExportToShareableHandle(&again, handle, posix, 0), "vmm.export.again");
    ask_yes(file >= 0 && again >= 0 && file != again, "vmm.export.another_file");
    close(again);
    ask_imports(file);
    ask(cu.MemImportFromShareableHandle(&imported, (void *)(intptr_t)file, posix), "vmm.import");
    ask_yes(close(file) == 0, "vmm.import.file_stays_open");
    if (imported != 0)
        ask_shared_bytes(handle, imported);
    ask(cu.CtxSynchronize(), "vmm.share.context_is_usable");
}

/* ---- work without access ---- */

enum fault { HTOD, DTOH, DTOD_TO, DTOD_FROM, MEMSET, MEMSET_ASYNC, HTOD_ASYNC, KERNEL, FAULTS };

static const char *const fault_names[FAULTS] = {
    "htod", "dtoh", "dtod_to", "dtod_from", "memset", "memset_async", "htod_async", "kernel",
};

struct fault_case {
    enum fault fault;
    CUmemAccess_flags access;
};

static CUresult touch(enum fault fault, CUdeviceptr address, CUdeviceptr plain)
{
    char host[64] = "";
    switch (fault) {
    case HTOD:
        return cu.MemcpyHtoD(address, host, sizeof host);
    case DTOH:
        return cu.MemcpyDtoH(host, address, sizeof host);
    case DTOD_TO:
        return cu.MemcpyDtoD(address, plain, 4096);
    case DTOD_FROM:
        return cu.MemcpyDtoD(plain, address, 4096);
    case MEMSET:
        return cu.MemsetD8(address, 1, 4096);
    case MEMSET_ASYNC:
        return cu.MemsetD8Async(address, 1, 4096, NULL);
    case HTOD_ASYNC:
        return cu.MemcpyHtoDAsync(address, host, sizeof host, NULL);
    case KERNEL:
    case FAULTS:
        break;
    }
    return pattern_fill(pattern_fill_function(), address, 4096, 1, NULL);
}

static void ask_fault(const void *data)
{
    const struct fault_case *fault = data;
    const char *access = fault->access == CU_MEM_ACCESS_FLAGS_PROT_NONE ? "no_access" : "read_only";
    const char *name = fault_names[fault->fault];
    start();
    CUdeviceptr address = vmm_map(4 * MIB, fault->access);
    CUdeviceptr plain = new_memory(4 * MIB);
    ask(touch(fault->fault, address, plain), "vmm.%s.%s", access, name);
    ask(cu.CtxSynchronize(), "vmm.%s.%s.synchronize", access, name);
    ask(cu.MemsetD8(plain, 1, 16), "vmm.%s.%s.context_afterwards", access, name);
}

static void ask_faults(CUmemAccess_flags access)
{
    for (int i = 0; i < FAULTS; i++) {
        struct fault_case fault = {(enum fault)i, access};
        in_child(ask_fault, &fault, fault_names[i]);
    }
}

void ask_vmm_no_access(void)
{
    ask_faults(CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

void ask_vmm_read_only(void)
{
    ask_faults(CU_MEM_ACCESS_FLAGS_PROT_READ);
}
