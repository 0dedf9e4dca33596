#include "vmm.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

CUmemAllocationProp vmm_properties(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

CUmemGenericAllocationHandle vmm_create(size_t bytes)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(0);
    cu.MemCreate(&handle, bytes, &properties, 0);
    return handle;
}

CUdeviceptr vmm_reserve(size_t bytes)
{
    CUdeviceptr address = 0;
    cu.MemAddressReserve(&address, bytes, 0, 0, 0);
    return address;
}

CUresult vmm_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
    return cu.MemSetAccess(address, bytes, &access, 1);
}

CUdeviceptr vmm_map(size_t bytes, CUmemAccess_flags flags)
{
    CUmemGenericAllocationHandle handle = vmm_create(bytes);
    CUdeviceptr address = vmm_reserve(bytes);
    cu.MemMap(address, bytes, 0, handle, 0);
    cu.MemRelease(handle);
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        vmm_allow(address, bytes, 0, flags);
    return address;
}

void in_child(void (*ask_case)(const void *data), const void *data, const char *name)
{
    enum { SECONDS = 8 };
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        ask_case(data);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        ask_number(WTERMSIG(status), "%s.signal", name);
}
