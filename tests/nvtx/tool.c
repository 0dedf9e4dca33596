/* A tool that is told of memory through NVTX: it stores what it is told, and counts calls that make no sense. */
#define NVTX_AS_SYSTEM_HEADER
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExtMem.h>

#include "nvtx/tool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvtx_tool_state state; /* guarded by lock; a test reads it when no call is in progress */

const nvtx_tool_state *nvtx_tool_look(void)
{
    return &state;
}

static bool (*has_context)(void); /* guarded by lock */

void nvtx_tool_ask(bool (*how)(void))
{
    pthread_mutex_lock(&lock);
    has_context = how;
    pthread_mutex_unlock(&lock);
}

/* Takes the lock, which the caller releases. */
static void begin_call(void)
{
    pthread_mutex_lock(&lock);
    state.told++;
    state.wrong += has_context && !has_context();
}

static nvtx_tool_range *at(nvtx_tool_range ranges[NVTX_TOOL_ROOM], uint64_t start)
{
    for (size_t i = 0; i < NVTX_TOOL_ROOM; i++)
        if (ranges[i].start == start)
            return &ranges[i];
    return NULL;
}

static nvtx_tool_range *enter(nvtx_tool_range ranges[NVTX_TOOL_ROOM], const nvtxMemVirtualRangeDesc_t *range)
{
    uint64_t start = (uint64_t)(uintptr_t)range->ptr;
    nvtx_tool_range *place = at(ranges, 0);
    state.wrong += at(ranges, start) != NULL || !place || !start || !range->size;
    if (place)
        *place = (nvtx_tool_range){.start = start, .bytes = range->size};
    return place;
}

static void leave(nvtx_tool_range *place)
{
    state.wrong += place == NULL;
    if (place)
        *place = (nvtx_tool_range){0};
}

static nvtxMemHeapHandle_t NVTX_API heap_register(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t *desc)
{
    (void)domain;
    begin_call();
    state.wrong += desc->extCompatID != NVTX_EXT_COMPATID_MEM || desc->structSize != sizeof *desc ||
                   desc->usage != NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR || desc->type != NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    nvtx_tool_range *heap = enter(state.heaps, desc->typeSpecificDesc);
    if (heap)
        snprintf(heap->name, sizeof heap->name, "%s", desc->message.ascii);
    pthread_mutex_unlock(&lock);
    return (nvtxMemHeapHandle_t)(void *)heap;
}

static void NVTX_API heap_unregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap)
{
    (void)domain;
    begin_call();
    leave((nvtx_tool_range *)(void *)heap);
    for (size_t i = 0; i < NVTX_TOOL_ROOM; i++) /* none of its regions is left */
        state.wrong += state.regions[i].start && state.regions[i].heap &&
                       &state.heaps[state.regions[i].heap - 1] == (nvtx_tool_range *)(void *)heap;
    pthread_mutex_unlock(&lock);
}

static void NVTX_API regions_register(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t *desc)
{
    (void)domain;
    const nvtx_tool_range *heap = (const nvtx_tool_range *)(const void *)desc->heap;
    begin_call();
    state.wrong += desc->extCompatID != NVTX_EXT_COMPATID_MEM || desc->structSize != sizeof *desc ||
                   desc->regionType != NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    const nvtxMemVirtualRangeDesc_t *ranges = desc->regionDescElements;
    for (size_t i = 0; i < desc->regionCount; i++) {
        nvtx_tool_range *region = enter(state.regions, &ranges[i]);
        state.wrong += heap == NULL; /* compute-sanitizer refuses it */
        if (!region || !heap)
            continue;
        region->heap = (size_t)(heap - state.heaps) + 1;
        state.wrong += region->start < heap->start || region->start + region->bytes > heap->start + heap->bytes;
    }
    pthread_mutex_unlock(&lock);
}

static void NVTX_API regions_unregister(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t *desc)
{
    (void)domain;
    begin_call();
    state.wrong += desc->structSize != sizeof *desc || desc->refType != NVTX_MEM_REGION_REF_TYPE_POINTER;
    for (size_t i = 0; i < desc->refCount; i++)
        leave(at(state.regions, (uint64_t)(uintptr_t)desc->refElements[i].pointer));
    pthread_mutex_unlock(&lock);
}

static void NVTX_API regions_name(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t *desc)
{
    (void)domain;
    begin_call();
    for (size_t i = 0; i < desc->regionCount; i++) {
        uint64_t start = (uint64_t)(uintptr_t)desc->regionElements[i].region.pointer;
        nvtx_tool_range *named = at(state.regions, start);
        if (!named && !(named = at(state.names, start)) && !(named = at(state.names, 0)))
            named = state.names; /* full: the first is replaced */
        named->start = start;
        snprintf(named->name, sizeof named->name, "%s", desc->regionElements[i].name.ascii);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- ranges ---- */

static int NVTX_API range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    (void)domain;
    begin_call();
    const bool named = attributes->messageType == NVTX_MESSAGE_TYPE_ASCII && attributes->message.ascii;
    state.wrong += !named;
    snprintf(state.last_range, sizeof state.last_range, "%s", named ? attributes->message.ascii : "");
    state.pushed++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int NVTX_API range_pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    begin_call();
    state.popped++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainRangePop)
        return 0;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)range_push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)range_pop;
    return 1;
}

/* ---- loading ---- */

int NVTX_API InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);

int NVTX_API InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module)
{
    if (module->moduleId != NVTX_EXT_MODULEID_MEM || module->segmentsCount < 1)
        return 0;
    intptr_t *slots = module->segments[0].functionSlots;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)heap_register;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)heap_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)regions_register;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)regions_unregister;
    slots[NVTX3EXT_CBID_nvtxMemRegionsName] = (intptr_t)regions_name;
    return 1;
}
