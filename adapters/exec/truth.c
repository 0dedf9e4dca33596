/* What the program is told about memory: what it would hear without Strata, with the budget as the size of the device.
 */
#include "adapters/exec/ipc.h"

#include "core/base/error.h"
#include "core/stack/stack.h"
#include "driver/driver.h"

#include <strata/pool.h>
#include <string.h>

/* ---- the size of the device ---- */

size_t exec_told_size(const exec_device *device, size_t total)
{
    strata_budget_usage usage;
    if (device && device->account && strata_budget_account_usage(device->account, &usage) == STRATA_SUCCESS &&
        usage.limit)
        return exec_least(usage.limit, total);
    if (exec_settings_now.budget)
        return exec_least(exec_settings_now.budget, total);
    if (exec_settings_now.share > 0)
        return (size_t)((double)total * exec_settings_now.share / 100);
    return 0;
}

/* Makes completed frees count as free: to the program, its frees have waited for the device. Before the driver is
 * asked, which gets some of the memory back. */
static void learn_completed(exec_device *device)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(device->runtime));
    size_t bytes;
    exec_free_waiting(device);
    if (!device->completes_late || exec_captures_under_way())
        return;
    strata_error_suppress_begin();
    top->ops->reap(top, STRATA_REAP_FINISHED, &bytes);
    strata_error_suppress_end(false);
}

/* Adds the stack's unused memory, which is free for the program, and applies the budget. Does not ask the driver for
 * free memory again, which is slow: libraries ask before each of their larger requests. */
static void tell_memory(exec_device *device, size_t *free_bytes, size_t *total)
{
    strata_budget_usage budget;
    strata_usage usage;
    strata_error_suppress_begin();
    const bool refused = exec_set_aside_first(device, false) != STRATA_SUCCESS;
    strata_error_suppress_end(false);
    if (strata_runtime_usage(device->runtime, &usage) == STRATA_SUCCESS)
        *free_bytes += usage.reserved_free;
    if (device->account && strata_budget_account_usage(device->account, &budget) == STRATA_SUCCESS && budget.limit) {
        *total = exec_least(*total, budget.limit);
        *free_bytes = exec_least(*free_bytes, refused ? 0 : budget.remaining);
    }
    *free_bytes = exec_least(*free_bytes, *total);
}

static exec_here here_behind_resets(void)
{
    const exec_here here = exec_device_here();
    if (!here.device)
        return here;
    exec_device_meet_reset(here.device->ordinal);
    return exec_device_here();
}

EXEC_EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    const exec_here here = here_behind_resets(); /* a stack of before gives its memory back where one is built */
    if (here.device)
        learn_completed(here.device);
    const CUresult result = EXEC_CALL(cuMemGetInfo_v2, free_bytes, total);
    size_t whole, unused;
    if (result != CUDA_SUCCESS)
        return result;
    /* Each depends on the other: where the program asks for one alone, both are asked for. */
    const bool known = free_bytes && total;
    if (!here.device || (!known && EXEC_CALL(cuMemGetInfo_v2, &unused, &whole) != CUDA_SUCCESS))
        return result;
    unused = known ? *free_bytes : unused;
    whole = known ? *total : whole;
    tell_memory(here.device, &unused, &whole);
    if (free_bytes)
        *free_bytes = unused;
    if (total)
        *total = whole;
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const CUresult result = EXEC_CALL(cuDeviceTotalMem_v2, bytes, device);
    if (result != CUDA_SUCCESS)
        return result;
    const size_t size =
        exec_told_size(device >= 0 && device < EXEC_DEVICES ? exec_device_at((size_t)device) : NULL, *bytes);
    if (size)
        *bytes = size;
    return result;
}

/* ---- addresses ---- */

/* A thread without a current context gets the driver's error, before any answer about an address. */
static bool has_context(void)
{
    CUcontext context = NULL;
    return strata_driver_is_open() && strata_cu.CtxGetCurrent(&context) == CUDA_SUCCESS && context;
}

typedef enum address_kind {
    FOREIGN = 0, /* the driver answers */
    LIVE,        /* in a block */
    FREED,       /* in memory of a stack, and in no block that the program has */
} address_kind;

/* The block in which an address was found. Good while the block lives: the address is in no other one then. */
typedef struct known_address {
    CUdeviceptr address; /* 0: none */
    exec_device *owner;
    unsigned stack; /* the owner's number then */
    strata_block block;
} known_address;

/* The thread's entry for an address, from its latest questions: libraries ask for the same few addresses at each call,
 * and a search takes a lock. */
static known_address *known_at(CUdeviceptr address)
{
    enum { KNOWN_BITS = 4 };
    static _Thread_local known_address known[1 << KNOWN_BITS];
    return &known[address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];
}

/* Whether the entry still holds. Its owner may have no stack now, or another one, whose blocks have other identities.
 * Address 0 is none, and a device may have it while another thread notes its first block. */
static bool is_known(const known_address *known, CUdeviceptr address)
{
    return address && known->address == address && exec_device_at((size_t)known->owner->ordinal) == known->owner &&
           strata_runtime_block_state(known->owner->runtime, known->block.id) == STRATA_BLOCK_LIVE;
}

static bool search(known_address *known, CUdeviceptr address)
{
    known->address = 0;
    known->owner = exec_find_block(address, &known->block);
    if (!known->owner)
        return false;
    known->stack = atomic_load_explicit(&known->owner->number, memory_order_relaxed);
    known->address = address;
    return true;
}

/* Tells where an address is. LIVE: *found is set, and good until the thread's next question. Bytes of a block behind
 * those that were asked for are as unknown as freed ones. */
static address_kind find_kind(CUdeviceptr address, const known_address **found)
{
    if (!exec_device_may_have(address))
        return FOREIGN;
    known_address *known = known_at(address);
    if (!is_known(known, address) && !search(known, address))
        return exec_is_held(address) && !exec_ipc_is_guest(address) ? FREED : FOREIGN;
    *found = known;
    return address - known->block.address >= known->block.requested ||
                   (atomic_load(&known->owner->waiting_count) && exec_free_waits(known->block.address))
               ? FREED
               : LIVE;
}

CUdeviceptr exec_address_of_a_mapping(CUdeviceptr address)
{
    const known_address *known = NULL;
    if (exec_is_forked())
        return address;
    return find_kind(address, &known) != FOREIGN || exec_ipc_is_guest(address) ? EXEC_UNKNOWN_ADDRESS : address;
}

/* Whether the block is the whole of one piece of physical memory, as pool(contiguous=SIZE) makes them for libraries
 * that take memory by its handle. */
static bool is_contiguous(const known_address *known)
{
    strata_pool_hold *hold = NULL;
    size_t count = 0;
    if (!strstr(exec_settings_now.stack, "contiguous"))
        return false;
    strata_error_suppress_begin();
    strata_pool_hold_begin(strata_stack_top(strata_runtime_stack(known->owner->runtime)), &known->block, &hold);
    strata_error_suppress_end(false);
    const strata_pool_part *part = hold ? strata_pool_hold_parts(hold, &count) : NULL;
    const bool contiguous = count == 1 && part->offset == 0 && part->handle_bytes == known->block.bytes;
    strata_pool_hold_end(hold);
    return contiguous;
}

CUdeviceptr exec_address_with_a_handle(CUdeviceptr address)
{
    const known_address *known = NULL;
    const bool own = !exec_is_forked() && find_kind(address, &known) == LIVE && is_contiguous(known);
    return own ? address : exec_address_of_a_mapping(address);
}

EXEC_EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    const known_address *known = NULL;
    const address_kind kind = exec_device_may_have(address) && has_context() ? find_kind(address, &known) : FOREIGN;
    CUdeviceptr begin = kind == LIVE ? known->block.address : 0;
    size_t size = kind == LIVE ? known->block.requested : 0;
    if (kind == FREED || (kind == FOREIGN && !(exec_ipc_find_guest(address, &begin, &size) && has_context())))
        return EXEC_CALL(cuMemGetAddressRange_v2, start, bytes, kind == FREED ? EXEC_UNKNOWN_ADDRESS : address);
    if (start)
        *start = begin;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

/* Whether an attribute is told without asking the driver. */
static bool differs(CUpointer_attribute attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
           attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == CU_POINTER_ATTRIBUTE_CONTEXT;
}

static unsigned long long ask_driver(CUpointer_attribute attribute, CUdeviceptr address)
{
    unsigned long long value = 0;
    return EXEC_CALL(cuPointerGetAttribute, &value, attribute, address) == CUDA_SUCCESS ? value : 0;
}

/* Whether cuIpcGetMemHandle makes a handle: of the driver's own allocations, and of what can be sent as a file. */
static bool has_ipc_handle(CUdeviceptr address)
{
    return (ask_driver(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) & 1) ||
           (ask_driver(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/* Makes up a buffer id: a different one for each block of the process, and above all of the driver's. */
static unsigned long long buffer_number(unsigned stack, const strata_block *block)
{
    enum { SLOT_BITS = 24, GENERATION_BITS = 31 };
    const unsigned long long generation = block->id.generation & ((1ull << GENERATION_BITS) - 1);
    return 1ull << 63 | (unsigned long long)(stack & 0xff) << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS |
           (block->id.slot & ((1u << SLOT_BITS) - 1));
}

/* Writes an attribute of a block as of an allocation of its own; the driver sees a part of a larger mapping. */
static void tell_attribute(const known_address *known, CUpointer_attribute attribute, void *value)
{
    const strata_block *block = &known->block;
    const unsigned long long buffer = buffer_number(known->stack, block);
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        memcpy(value, &block->address, sizeof block->address);
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        memcpy(value, &block->requested, sizeof block->requested);
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        memcpy(value, &buffer, sizeof buffer);
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        memcpy(value, &known->owner->context, sizeof known->owner->context);
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE && !is_contiguous(known))
        *(unsigned char *)value = has_ipc_handle(block->address); /* the driver has written the bytes above it */
    else if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES && !is_contiguous(known))
        *(unsigned char *)value = 0; /* no handle of it can be had; the driver has written the bytes above it */
}

/* As above, of a block that was opened from another process, in the place of what the driver has said: of a mapping of
 * more than the block. */
static void tell_guest_attribute(CUdeviceptr address, CUpointer_attribute attribute, void *value)
{
    CUdeviceptr start;
    size_t bytes;
    const bool is_start = attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    if ((!is_start && attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE) || !exec_ipc_find_guest(address, &start, &bytes))
        return;
    if (is_start)
        memcpy(value, &start, sizeof start);
    else
        memcpy(value, &bytes, sizeof bytes);
}

EXEC_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    const known_address *known = NULL;
    const address_kind kind = value ? find_kind(address, &known) : FOREIGN;
    CUresult result = CUDA_SUCCESS;
    if (kind != LIVE || !differs(attribute))
        result = EXEC_CALL(cuPointerGetAttribute, value, attribute, kind == FREED ? EXEC_UNKNOWN_ADDRESS : address);
    if (kind == LIVE && result == CUDA_SUCCESS)
        tell_attribute(known, attribute, value);
    else if (result == CUDA_SUCCESS && value)
        tell_guest_attribute(address, attribute, value);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                                    CUdeviceptr address)
{
    const known_address *known = NULL;
    const address_kind kind = attributes && values ? find_kind(address, &known) : FOREIGN;
    const CUresult result =
        EXEC_CALL(cuPointerGetAttributes, count, attributes, values, kind == FREED ? EXEC_UNKNOWN_ADDRESS : address);
    for (unsigned i = 0; result == CUDA_SUCCESS && attributes && values && i < count; i++)
        if (values[i] && kind == LIVE)
            tell_attribute(known, attributes[i], values[i]);
        else if (values[i])
            tell_guest_attribute(address, attributes[i], values[i]);
    return result;
}
