/* The runtime: one for each device, and private ones. It forwards to its stack and holds no lock while it does. */
#include "runtime/runtime.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/stack/own_stream_free.h"

#include <stdlib.h>
#include <string.h>

/* Records stay in memory: a program that names no stack gets no files. */
static const char default_stack[] = "budget, logging(format=memory), statistics, pool";

static strata_lock singletons_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_SINGLETONS);
static _Atomic(strata_runtime *) singletons[STRATA_DEVICE_LIMIT]; /* set once, under singletons_lock; never freed */

/* ---- creation and destruction ---- */

const char *strata_runtime_environment_stack(void)
{
    const char *environment = getenv("STRATA_STACK");
    return environment && environment[strspn(environment, " \f\n\r\t\v")] ? environment : NULL;
}

const char *strata_runtime_default_stack(void)
{
    const char *environment = strata_runtime_environment_stack();
    return environment ? environment : default_stack;
}

/* The stack that the environment names; an error in its text says where the text is from. */
static strata_status make_environment_stack(const char *text, int device, strata_stack **out)
{
    strata_error_suppress_begin();
    strata_status status = strata_stack_create(text, device, out);
    strata_error said = *strata_error_suppressed();
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_SYNTAX);
    if (status != STRATA_ERROR_SYNTAX)
        return status;
    strata_error *error = strata_error_begin(status);
    *error = said;
    return strata_error_raise(error, "STRATA_STACK: %.400s", said.message);
}

static strata_status make_runtime(const strata_runtime_config *config, strata_runtime **out)
{
    strata_runtime *runtime = strata_host_zalloc(sizeof *runtime);
    if (!runtime)
        return strata_fail_host_memory("a runtime");
    strata_status status = strata_device_get(config->device, &runtime->device);
    if (status != STRATA_SUCCESS)
        goto refuse;
    runtime->stack = config->stack;
    if (!runtime->stack) {
        const char *named = config->stack_text ? NULL : strata_runtime_environment_stack();
        const char *text = config->stack_text ? config->stack_text : default_stack;
        status = named ? make_environment_stack(named, config->device, &runtime->stack)
                       : strata_stack_create(text, config->device, &runtime->stack);
        if (status != STRATA_SUCCESS)
            goto refuse;
    }
    if (!strata_stack_claim(runtime->stack)) {
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "the stack \"%s\" belongs to another runtime already",
                             strata_stack_text(runtime->stack));
        goto refuse;
    }
    strata_barriers_open();
    runtime->top = strata_stack_top(runtime->stack);
    runtime->table = runtime->stack->head.table;
    runtime->tracks = (runtime->top->ops->capabilities(runtime->top) & STRATA_CAPABILITY_USE_TRACKING) != 0;
    runtime->early_events = config->events == STRATA_EVENTS_EARLY;
    runtime->stream_capacity = config->stream_capacity ? config->stream_capacity : 16;
    strata_lock_init(&runtime->streams_lock, STRATA_RANK_STREAMS);
    *out = runtime;
    return STRATA_SUCCESS;
refuse:
    strata_host_free(runtime);
    return status;
}

static strata_status check_config(const strata_runtime_config *config)
{
    if (config->stack && config->stack_text)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a runtime is given both a stack and a stack text");
    if (config->stack && strata_stack_device(config->stack) != config->device)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "the stack was built for device %d, the runtime is for device %d",
                           strata_stack_device(config->stack), config->device);
    if ((unsigned)config->events > STRATA_EVENTS_EARLY)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no event mode %d", (int)config->events);
    return STRATA_SUCCESS;
}

strata_status strata_runtime_create(const strata_runtime_config *given, strata_runtime **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a runtime is made without a place for it");
    *out = NULL;
    strata_runtime_config config;
    strata_status status = strata_options_read(&config, sizeof config, given, "strata_runtime_config");
    if (status == STRATA_SUCCESS)
        status = check_config(&config);
    return status == STRATA_SUCCESS ? make_runtime(&config, out) : status;
}

static _Thread_local bool building; /* the calling thread holds singletons_lock and runs code of layers or the user */

static strata_status build_singleton(int ordinal, strata_runtime **out)
{
    strata_status status = STRATA_SUCCESS;
    if (building)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_runtime_get is called while the calling thread is in it already: neither the layers "
                           "of a runtime that is being built nor callbacks that are called meanwhile can have one");
    strata_lock_take(&singletons_lock);
    *out = atomic_load_explicit(&singletons[ordinal], memory_order_relaxed);
    if (!*out) {
        building = true;
        status = make_runtime(&(strata_runtime_config){.device = ordinal}, out);
        if (status == STRATA_SUCCESS) {
            (*out)->singleton = true;
            atomic_store_explicit(&singletons[ordinal], *out, memory_order_release);
        }
        building = false;
    }
    strata_lock_release(&singletons_lock);
    return status;
}

strata_status strata_runtime_get(int ordinal, strata_runtime **out)
{
    if (__builtin_expect(out && ordinal >= 0 && ordinal < STRATA_DEVICE_LIMIT &&
                             strata_driver_state_now() == STRATA_DRIVER_OPEN,
                         1)) {
        *out = atomic_load_explicit(&singletons[ordinal], memory_order_acquire);
        return __builtin_expect(*out != NULL, 1) ? STRATA_SUCCESS : build_singleton(ordinal, out);
    }
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_get: out is NULL");
    *out = NULL;
    strata_status status = strata_driver_open();
    if (status != STRATA_SUCCESS)
        return status;
    if (ordinal < 0 || ordinal >= STRATA_DEVICE_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no device %d", ordinal);
    return build_singleton(ordinal, out);
}

strata_status strata_runtime_destroy(strata_runtime *runtime)
{
    strata_status status = strata_not_forked();
    if (!runtime || status != STRATA_SUCCESS)
        return status;
    if (runtime->singleton)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the runtime of a device lives until the process ends; only private "
                           "ones are destroyed");
    status = strata_stack_refuse_live(runtime->stack, "the runtime");
    if (status == STRATA_SUCCESS)
        status = strata_streams_check_released(runtime);
    size_t bytes;
    if (status == STRATA_SUCCESS && strata_driver_state_now() == STRATA_DRIVER_OPEN)
        status = runtime->top->ops->reap(runtime->top, STRATA_REAP_WAIT, &bytes); /* before anything is undone */
    if (status == STRATA_SUCCESS || status == STRATA_ERROR_SHUT_DOWN)
        status = strata_streams_destroy(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_stack_close(runtime->stack);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_destroy(&runtime->streams_lock);
    strata_host_free(runtime);
    return STRATA_SUCCESS;
}

int strata_runtime_device(const strata_runtime *runtime)
{
    if (runtime)
        return runtime->device->ordinal;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_device: the runtime is NULL");
    return -1;
}

strata_stack *strata_runtime_stack(strata_runtime *runtime)
{
    if (runtime)
        return runtime->stack;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_stack: the runtime is NULL");
    return NULL;
}

/* ---- memory ---- */

strata_status strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request, strata_block *out)
{
    if (!runtime || !request || !out) {
        if (out)
            *out = (strata_block){0};
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "an allocation without a runtime, a request or a place for the block");
    }
    return strata_resource_allocate(runtime->top, request, out);
}

strata_status strata_runtime_allocate_request_ptsz(strata_runtime *runtime, const strata_request *request,
                                                   strata_block *out)
{
    if (!request)
        return strata_runtime_allocate_request(runtime, NULL, out);
    strata_request meant = *request;
    meant.stream = meant.stream ? meant.stream : CU_STREAM_PER_THREAD;
    return strata_runtime_allocate_request(runtime, &meant, out);
}

strata_status strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_request request = {.bytes = bytes, .stream = stream};
    if (__builtin_expect(!runtime || !out || !bytes || strata_driver_state_now() != STRATA_DRIVER_OPEN, 0))
        return strata_runtime_allocate_request(runtime, &request, out);
    strata_status status = runtime->top->ops->allocate(runtime->top, &request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        *out = (strata_block){0};
    return status;
}

strata_status strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (__builtin_expect(!runtime || !block || stream == STRATA_STREAM_GONE, 0))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a free without a runtime, a block, or a stream: STRATA_STREAM_GONE is for layers, and "
                           "strata_runtime_deallocate finds out by itself");
    return strata_free_from_top(runtime->top, block, stream);
}

/* After the driver's shutdown only the table's entry can be freed, if the block is still found. */
static strata_status forget_at(strata_runtime *runtime, CUdeviceptr address)
{
    strata_block block;
    strata_error_suppress_begin();
    const strata_status found = runtime->top->ops->find(runtime->top, address, &block);
    strata_error_suppress_end(false);
    return found == STRATA_SUCCESS && block.address == address ? strata_free_without_driver(runtime->top, &block)
                                                               : STRATA_SUCCESS;
}

strata_status strata_runtime_deallocate_address(strata_runtime *runtime, CUdeviceptr address, CUstream stream)
{
    strata_block block;
    if (!runtime)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a free without a runtime");
    if (!address)
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        return forget_at(runtime, address);
    strata_status status = strata_runtime_find(runtime, address, &block);
    if (status != STRATA_SUCCESS)
        return status == STRATA_ERROR_SHUT_DOWN ? forget_at(runtime, address) : status;
    if (block.address != address)
        return strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                           "0x%llx is inside of block 0x%llx (tag \"%s\", %zu bytes), which is freed by that address",
                           (unsigned long long)address, (unsigned long long)block.address, strata_tag_name(block.tag),
                           block.bytes);
    return strata_runtime_deallocate_on(runtime, &block, stream);
}

static __attribute__((noinline)) strata_status deallocate_slow(strata_runtime *runtime, const strata_block *block)
{
    if (!runtime || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a free without a runtime or a block");
    if (strata_block_is_empty(block))
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN)
        return strata_free_without_driver(runtime->top, block);
    strata_status status = strata_usable();
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_free_on_own_stream(runtime->table, runtime->top, block, strata_thread_self());
    return status == STRATA_ERROR_SHUT_DOWN ? strata_free_without_driver(runtime->top, block) : status;
}

strata_status strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block)
{
    strata_thread *thread = strata_thread_current;
    const bool plain = runtime && block && block->address && thread && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    if (__builtin_expect(!plain, 0))
        return deallocate_slow(runtime, block);
    const strata_status status = strata_free_on_own_stream(runtime->table, runtime->top, block, thread);
    return __builtin_expect(status == STRATA_ERROR_SHUT_DOWN, 0) ? strata_free_without_driver(runtime->top, block)
                                                                 : status;
}

size_t strata_runtime_bytes_outstanding(strata_runtime *runtime)
{
    strata_usage usage = {0};
    if (runtime)
        strata_resource_usage(runtime->top, &usage);
    return usage.bytes_outstanding;
}

strata_status strata_runtime_usage(strata_runtime *runtime, strata_usage *usage)
{
    return strata_resource_usage(runtime ? runtime->top : NULL, usage);
}

strata_status strata_runtime_reap_pending(strata_runtime *runtime)
{
    strata_status status = strata_runtime_usable(runtime);
    size_t bytes;
    return status == STRATA_SUCCESS ? runtime->top->ops->reap(runtime->top, STRATA_REAP_WAIT, &bytes) : status;
}

strata_status strata_runtime_trim(strata_runtime *runtime, size_t keep_bytes, size_t *released)
{
    size_t bytes = 0;
    strata_status status = strata_runtime_usable(runtime);
    if (status == STRATA_SUCCESS)
        status = runtime->top->ops->trim(runtime->top, keep_bytes, &bytes);
    if (released)
        *released = bytes;
    return status;
}

strata_status strata_runtime_find(strata_runtime *runtime, CUdeviceptr address, strata_block *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a search without a place for the block");
    *out = (strata_block){0};
    strata_status status = strata_runtime_usable(runtime);
    return status == STRATA_SUCCESS ? runtime->top->ops->find(runtime->top, address, out) : status;
}

strata_block_state strata_runtime_block_state(strata_runtime *runtime, strata_block_id id)
{
    return runtime ? strata_table_state(runtime->stack->head.table, id) : STRATA_BLOCK_FREED;
}

/* ---- uses ---- */

bool strata_runtime_supports_block_use_tracking(strata_runtime *runtime)
{
    return runtime && runtime->tracks;
}

strata_status strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                               strata_access access)
{
    if (__builtin_expect(runtime != NULL, 1) && strata_use_is_fine(runtime->top, block, access, STRATA_ACCESS_READ))
        return runtime->top->ops->prepare_use(runtime->top, block, stream, access);
    return strata_resource_prepare_use(runtime ? runtime->top : NULL, block, stream, access);
}

strata_status strata_runtime_finish_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                              strata_access access)
{
    if (__builtin_expect(runtime != NULL, 1) && strata_use_is_fine(runtime->top, block, access, STRATA_ACCESS_NONE))
        return runtime->top->ops->finish_use(runtime->top, block, stream, access);
    return strata_resource_finish_use(runtime ? runtime->top : NULL, block, stream, access);
}

strata_status strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (!runtime || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a first use without a runtime or a block");
    strata_status status = strata_usable();
    if (status != STRATA_SUCCESS)
        return status;
    strata_table *table = runtime->stack->head.table;
    bool live = strata_table_state(table, block->id) == STRATA_BLOCK_LIVE;
    if (live && !strata_uses_untouched(table, block->id))
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "block 0x%llx (tag \"%s\", generation %llu) was used before, so this is not its first use",
                           (unsigned long long)block->address, strata_tag_name(block->tag),
                           (unsigned long long)block->id.generation);
    return strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE);
}

strata_status strata_runtime_finish_first_use(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    return strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE);
}

strata_status strata_runtime_record_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                              strata_access access)
{
    if (!block || (unsigned)access - 1 > STRATA_ACCESS_READ_WRITE - 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a use without a block, or that neither reads nor writes");
    strata_status status = strata_runtime_usable(runtime);
    if (status != STRATA_SUCCESS || strata_block_is_empty(block))
        return status;
    return runtime->top->ops->record_use(runtime->top, block, stream, access);
}
