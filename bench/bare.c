#include "bare.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bare_driver bare;

typedef struct bare_entry {
    const char *name;
    int version;
    size_t offset;
} bare_entry;

static const bare_entry entries[] = {
#define BARE_ENTRY(name, version) {"cu" #name, version, offsetof(bare_driver, name)},
    BARE_ENTRY_POINTS(BARE_ENTRY)
#undef BARE_ENTRY
};

static _Noreturn void give_up(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, path, why);
    exit(EXIT_FAILURE);
}

void bare_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        give_up(path, "not the library that Strata has opened");
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol)
        give_up(path, "no cuGetProcAddress_v2");
    PFN_cuGetProcAddress_v12000 get;
    memcpy(&get, &symbol, sizeof symbol);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        CUdriverProcAddressQueryResult found;
        symbol = NULL;
        CUresult result = get(entries[i].name, &symbol, entries[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS || !symbol)
            give_up(path, entries[i].name);
        memcpy((char *)&bare + entries[i].offset, &symbol, sizeof symbol);
    }
}

void bare_failed(CUresult result, const char *call)
{
    const char *name = NULL;
    if (bare.GetErrorName)
        bare.GetErrorName(result, &name);
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, call, name ? name : "an unknown error");
    exit(EXIT_FAILURE);
}

void bare_make(bare_objects *objects, int ordinal)
{
    *objects = (bare_objects){0};
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
    bare_check(bare.MemPoolCreate(&objects->pool, &properties), "cuMemPoolCreate");
    cuuint64_t keep_all = UINT64_MAX;
    bare_check(bare.MemPoolSetAttribute(objects->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all),
               "cuMemPoolSetAttribute");
    for (size_t i = 0; i < BARE_STREAMS; i++) {
        bare_check(bare.StreamCreate(&objects->streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        bare_check(
            bare.MemAllocFromPoolAsync(&objects->memory[i], BARE_STREAM_BYTES, objects->pool, objects->streams[i]),
            "cuMemAllocFromPoolAsync");
    }
    for (size_t i = 0; i < BARE_EVENTS; i++)
        bare_check(bare.EventCreate(&objects->events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void bare_destroy(bare_objects *objects)
{
    for (size_t i = 0; i < BARE_STREAMS; i++)
        bare_check(bare.MemFreeAsync(objects->memory[i], objects->streams[i]), "cuMemFreeAsync");
    bare_drain(objects);
    for (size_t i = 0; i < BARE_EVENTS; i++)
        bare_check(bare.EventDestroy(objects->events[i]), "cuEventDestroy");
    for (size_t i = 0; i < BARE_STREAMS; i++)
        bare_check(bare.StreamDestroy(objects->streams[i]), "cuStreamDestroy");
    bare_check(bare.MemPoolDestroy(objects->pool), "cuMemPoolDestroy");
}

void bare_drain(void *state)
{
    bare_objects *objects = state;
    for (size_t i = 0; i < BARE_STREAMS; i++)
        bare_check(bare.StreamSynchronize(objects->streams[i]), "cuStreamSynchronize");
}

void bare_hand_over(void *state, size_t operations)
{
    bare_objects *objects = state;
    for (size_t i = 0; i < operations; i++) {
        unsigned rotation = objects->rotation++;
        CUevent event = objects->events[rotation % BARE_EVENTS];
        bare_check(bare.EventRecord(event, objects->streams[rotation % 2]), "cuEventRecord");
        bare_check(bare.StreamWaitEvent(objects->streams[(rotation + 1) % 2], event, CU_EVENT_WAIT_DEFAULT),
                   "cuStreamWaitEvent");
    }
}
