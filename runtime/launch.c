/* The launch recorder: all checks, then all waits, then one use record for all blocks of the work. */
#include "runtime/launch.h"

#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/streams/batches.h"
#include "runtime/captures.h"
#include "runtime/references.h"
#include "runtime/runtime.h"

#include <string.h>

enum { LAUNCH_OPEN = 0x57a7, LAUNCH_READY, LAUNCH_DONE };

/* PTDS programs see a macro of this name. */
#undef strata_launch_begin

strata_status strata_launch_begin(strata_launch *launch, strata_runtime *runtime, CUstream stream,
                                  strata_launch_mode mode)
{
    if (!launch)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_begin: launch is NULL");
    memset(launch, 0, sizeof *launch);
    if (!runtime || (unsigned)mode > STRATA_LAUNCH_PERMISSIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_begin: runtime is NULL, or the mode is invalid");
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    launch->runtime = runtime;
    launch->stream = stream;
    launch->mode = mode;
    launch->state = LAUNCH_OPEN;
    launch->capacity = STRATA_LAUNCH_INLINE;
    return STRATA_SUCCESS;
}

static strata_status refuse_state(const strata_launch *launch, const char *call)
{
    const char *state = !launch                         ? "launch is NULL"
                        : launch->state == LAUNCH_READY ? "the launch is already prepared"
                        : launch->state == LAUNCH_OPEN  ? "the launch is not prepared"
                        : launch->state == LAUNCH_DONE  ? "the launch has ended"
                                                        : "the launch is not begun";
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: %s", call, state);
}

/* No pointer into the recorder is stored: a recorder may be copied. */
static inline strata_launch_entry *entries_of(strata_launch *launch)
{
    return launch->entries ? launch->entries : launch->storage;
}

static bool same_block(const strata_block *a, const strata_block *b)
{
    return a->id.slot == b->id.slot && a->id.generation == b->id.generation && a->id.table == b->id.table;
}

/* The block's bucket, or the first empty one where it belongs. */
static uint32_t *find_bucket(const strata_launch *launch, const strata_block *block)
{
    size_t mask = 2 * launch->capacity - 1;
    for (size_t i = block->id.slot * UINT64_C(0x9e3779b97f4a7c15) >> 32;; i++) {
        uint32_t *bucket = &launch->buckets[i & mask];
        if (!*bucket || same_block(&launch->entries[*bucket - 1].block, block))
            return bucket;
    }
}

/* Doubles the room, and adds buckets so that a launch of many blocks needs no linear search. */
static bool grow(strata_launch *launch)
{
    size_t capacity = 2 * launch->capacity;
    strata_launch_entry *entries =
        strata_host_zalloc(capacity * sizeof *entries + 2 * capacity * sizeof *launch->buckets);
    if (!entries)
        return false;
    memcpy(entries, entries_of(launch), launch->count * sizeof *entries);
    strata_host_free(launch->entries);
    launch->entries = entries;
    launch->buckets = (uint32_t *)(void *)(entries + capacity);
    launch->capacity = capacity;
    for (uint32_t i = 0; i < launch->count; i++)
        *find_bucket(launch, &entries[i].block) = i + 1;
    return true;
}

static strata_launch_entry *find_entry(strata_launch *launch, const strata_block *block)
{
    strata_launch_entry *entries = entries_of(launch);
    if (launch->buckets) {
        uint32_t at = *find_bucket(launch, block);
        return at ? &entries[at - 1] : NULL;
    }
    for (size_t i = 0; i < launch->count; i++)
        if (same_block(&entries[i].block, block))
            return &entries[i];
    return NULL;
}

strata_status strata_launch_remember(strata_launch *launch, strata_status status)
{
    if (status != STRATA_SUCCESS && launch && launch->state == LAUNCH_OPEN && launch->failed == STRATA_SUCCESS)
        launch->failed = status;
    return status;
}

/* Whether the block can be tracked here; in permissive mode other blocks are skipped. */
static strata_status check_block(strata_launch *launch, const strata_block *block, bool *skip)
{
    strata_runtime *runtime = launch->runtime;
    *skip = false;
    if (!runtime->tracks) {
        *skip = launch->mode == STRATA_LAUNCH_PERMISSIVE;
        return *skip ? STRATA_SUCCESS
                     : strata_fail(STRATA_ERROR_STREAM_MISUSE,
                                   "stack \"%s\" does not support use tracking, which strict launches need",
                                   strata_stack_text(runtime->stack));
    }
    const strata_table *table = runtime->stack->head.table;
    if (strata_table_state(table, block->id) == STRATA_BLOCK_LIVE)
        return STRATA_SUCCESS;
    bool foreign = strata_table_lookup(table, block->id) == NULL;
    if (foreign && launch->mode == STRATA_LAUNCH_PERMISSIVE) {
        *skip = true;
        return STRATA_SUCCESS;
    }
    return strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
}

/* Holds the allocation by a reference; one of them is enough. */
static void hold(strata_launch *launch, strata_launch_entry *entry, strata_ref *ref)
{
    if (entry->ref)
        return;
    entry->ref = strata_ref_clone(ref->whole);
    launch->refs++;
}

static strata_status add_use(strata_launch *launch, const strata_block *block, strata_access access, strata_ref *ref)
{
    bool skip;
    strata_status status = check_block(launch, block, &skip);
    launch->skipped += skip;
    if (status != STRATA_SUCCESS || skip)
        return status;
    strata_launch_entry *entry = find_entry(launch, block);
    if (entry) {
        entry->access = (strata_access)(entry->access | access);
        if (ref)
            hold(launch, entry, ref);
        return STRATA_SUCCESS;
    }
    if (launch->count == launch->capacity && !grow(launch))
        return strata_fail_host_memory("the blocks of a launch");
    entry = &entries_of(launch)[launch->count++];
    *entry = (strata_launch_entry){.block = *block, .access = access};
    if (ref)
        hold(launch, entry, ref);
    if (launch->buckets)
        *find_bucket(launch, block) = (uint32_t)launch->count;
    return STRATA_SUCCESS;
}

strata_status strata_launch_check_use(const strata_launch *launch, strata_access access, const char *call)
{
    if (!launch || launch->state != LAUNCH_OPEN)
        return refuse_state(launch, call);
    if ((unsigned)access - 1 > STRATA_ACCESS_READ_WRITE - 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: invalid access: expected read, write or both", call);
    return strata_check_runtime(launch->runtime);
}

strata_status strata_launch_use(strata_launch *launch, const strata_block *block, strata_access access)
{
    strata_status status = strata_launch_check_use(launch, access, "strata_launch_use");
    if (status == STRATA_SUCCESS && !block)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_launch_use: block is NULL");
    if (status == STRATA_SUCCESS && !launch->of_graph && strata_runtime_keeps(launch->runtime, block))
        status = strata_kept_block_check(launch->runtime, block);
    if (status == STRATA_SUCCESS && !strata_block_is_empty(block))
        status = add_use(launch, block, access, NULL);
    return strata_launch_remember(launch, status);
}

static strata_status check_range(const strata_block *block, CUdeviceptr address, size_t bytes)
{
    if (bytes <= block->bytes - (address - block->address))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "%s from 0x%llx on exceed block 0x%llx (tag \"%s\", %s), in which they begin",
                       strata_size_text(bytes).text, (unsigned long long)address, (unsigned long long)block->address,
                       strata_tag_name(block->tag), strata_size_text(block->bytes).text);
}

strata_status strata_launch_use_range(strata_launch *launch, CUdeviceptr address, size_t bytes, strata_access access)
{
    strata_block block;
    const bool permissive = launch->mode == STRATA_LAUNCH_PERMISSIVE;
    if (permissive)
        strata_error_suppress_begin();
    strata_status status = strata_runtime_find(launch->runtime, address, &block);
    if (permissive)
        strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS && permissive) {
        launch->skipped++;
        return STRATA_SUCCESS;
    }
    if (status == STRATA_SUCCESS)
        status = check_range(&block, address, bytes);
    return strata_launch_remember(launch, status == STRATA_SUCCESS ? add_use(launch, &block, access, NULL) : status);
}

strata_status strata_launch_use_address(strata_launch *launch, CUdeviceptr address, strata_access access)
{
    const strata_status status = strata_launch_check_use(launch, access, "strata_launch_use_address");
    if (status != STRATA_SUCCESS)
        return strata_launch_remember(launch, status);
    return address ? strata_launch_use_range(launch, address, 1, access) : STRATA_SUCCESS;
}

strata_status strata_launch_leave_out(strata_launch *launch, strata_status status, const char *what)
{
    if (launch->mode != STRATA_LAUNCH_PERMISSIVE)
        return strata_launch_remember(launch,
                                      strata_fail(status, "%s, of which a strict launch cannot track the uses", what));
    launch->skipped++;
    return STRATA_SUCCESS;
}

size_t strata_launch_skipped(const strata_launch *launch)
{
    return launch ? launch->skipped : 0;
}

strata_status strata_launch_use_ref(strata_launch *launch, strata_ref *ref, strata_access access)
{
    strata_status status = strata_launch_check_use(launch, access, "strata_launch_use_ref");
    strata_ref_memory memory;
    if (status == STRATA_SUCCESS)
        status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_local(ref, "strata_launch_use_ref");
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_access(ref, access);
    if (status == STRATA_SUCCESS && ref->foreign)
        return strata_launch_leave_out(launch, STRATA_ERROR_FOREIGN_POINTER, "the reference is to foreign memory");
    if (status == STRATA_SUCCESS && !strata_block_is_empty(memory.block))
        status = add_use(launch, memory.block, access, ref);
    return strata_launch_remember(launch, status);
}

/* Frees that waited for this launch are made now, those of its own references too. Either may end the runtime, if it is
 * abandoned. */
static void release_references(strata_launch *launch)
{
    if (!launch->of_graph)
        strata_references_free_deferred(launch->runtime);
    strata_launch_entry *entries = entries_of(launch);
    for (size_t i = 0; launch->refs && i < launch->count; i++) {
        strata_ref *ref = entries[i].ref;
        entries[i].ref = NULL;
        launch->refs -= ref != NULL;
        strata_ref_release(ref);
    }
}

/* Finishes the first `count` blocks, all of them even after a failure; returns the first failure. */
static strata_status finish_all(strata_launch *launch, size_t count, bool recording)
{
    strata_resource *top = launch->runtime->top;
    const strata_launch_entry *entries = entries_of(launch);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        const strata_launch_entry *entry = &entries[i];
        strata_access access = recording ? entry->access : STRATA_ACCESS_NONE;
        strata_status one = top->ops->finish_use(top, &entry->block, launch->stream, access);
        status = status == STRATA_SUCCESS ? one : status;
    }
    return status;
}

static strata_status check_all(strata_launch *launch)
{
    const strata_table *table = launch->runtime->stack->head.table;
    const strata_launch_entry *entries = entries_of(launch);
    for (size_t i = 0; i < launch->count; i++) {
        const strata_block *block = &entries[i].block;
        if (strata_table_state(table, block->id) != STRATA_BLOCK_LIVE)
            return strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
        const bool kept = !launch->of_graph && strata_runtime_keeps(launch->runtime, block);
        const strata_status status = kept ? strata_kept_block_check(launch->runtime, block) : STRATA_SUCCESS;
        if (status != STRATA_SUCCESS)
            return status;
    }
    return STRATA_SUCCESS;
}

static strata_status check_references(const strata_launch *launch, const strata_launch_entry *entries)
{
    strata_status status = STRATA_SUCCESS;
    strata_ref_memory memory;
    for (size_t i = 0; launch->refs && i < launch->count && status == STRATA_SUCCESS; i++)
        status = entries[i].ref ? strata_ref_access(entries[i].ref, &memory) : STRATA_SUCCESS;
    return status;
}

/* Prepares the uses in a capture of Strata's (graph.h). False: the stream is in none. */
static bool prepare_captured(strata_launch *launch, strata_status *status)
{
    const strata_launch_entry *entries = entries_of(launch);
    strata_runtime *runtime = launch->runtime;
    if (!strata_captures_any(runtime))
        return false;
    *status = STRATA_SUCCESS;
    for (size_t i = 0; i < launch->count && *status == STRATA_SUCCESS; i++) {
        if (!strata_captured_prepare(runtime, &entries[i].block, launch->stream, entries[i].access, status))
            return false;
        if (entries[i].ref && *status == STRATA_SUCCESS)
            strata_captured_hold(runtime, launch->stream, entries[i].ref, status);
    }
    return true;
}

static strata_status record_captured(strata_launch *launch)
{
    const strata_launch_entry *entries = entries_of(launch);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < launch->count; i++) {
        strata_status one = STRATA_SUCCESS;
        if (!strata_captured_finish(launch->runtime, &entries[i].block, launch->stream, entries[i].access, &one))
            one = strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended between a launch's preflight and commit");
        status = status == STRATA_SUCCESS ? one : status;
    }
    return status;
}

static strata_status prepare_all(strata_launch *launch)
{
    strata_status captured;
    launch->captured = prepare_captured(launch, &captured); /* an earlier try may have been in another state */
    if (launch->captured)
        return captured;
    strata_resource *top = launch->runtime->top;
    strata_status status = strata_batch_begin(launch->runtime->device, launch->stream, false);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_launch_entry *entries = entries_of(launch);
    size_t prepared = 0;
    while (prepared < launch->count && status == STRATA_SUCCESS) {
        const strata_launch_entry *entry = &entries[prepared];
        status = top->ops->prepare_use(top, &entry->block, launch->stream, entry->access);
        prepared += status == STRATA_SUCCESS;
    }
    strata_batch_end();
    if (status != STRATA_SUCCESS)
        finish_all(launch, prepared, false);
    return status;
}

strata_status strata_launch_preflight(strata_launch *launch)
{
    if (!launch || launch->state != LAUNCH_OPEN)
        return refuse_state(launch, "strata_launch_preflight");
    if (launch->failed != STRATA_SUCCESS)
        return strata_fail(launch->failed, "the launch cannot be prepared: one of its uses was refused (%s)",
                           strata_status_text(launch->failed));
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = check_all(launch);
    if (status == STRATA_SUCCESS)
        status = check_references(launch, entries_of(launch));
    if (status == STRATA_SUCCESS && launch->count)
        status = prepare_all(launch);
    if (status == STRATA_SUCCESS)
        launch->state = LAUNCH_READY;
    return status;
}

/* Records all uses under one event. Errors are raised behind it: uses of the blocks on other threads wait for that
 * event, and the log callback may wait for those threads. */
static strata_status record_all(strata_launch *launch)
{
    if (!launch->count)
        return STRATA_SUCCESS;
    if (launch->captured)
        return record_captured(launch);
    bool recording;
    strata_error_suppress_begin();
    const strata_status begun = strata_batch_begin_or_wait(launch->runtime->device, launch->stream, &recording);
    const bool apart = begun != STRATA_SUCCESS; /* each block's finish does what it can */
    strata_status status = finish_all(launch, launch->count, recording || apart);
    const strata_status ended = recording ? strata_batch_end() : STRATA_SUCCESS;
    status = status == STRATA_SUCCESS ? ended : status;
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_launch_commit(strata_launch *launch)
{
    if (!launch || launch->state != LAUNCH_READY)
        return refuse_state(launch, "strata_launch_commit");
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    status = record_all(launch);
    launch->state = LAUNCH_DONE;
    release_references(launch);
    return status;
}

strata_status strata_launch_cancel(strata_launch *launch)
{
    if (!launch || launch->state != LAUNCH_READY)
        return refuse_state(launch, "strata_launch_cancel");
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    launch->state = LAUNCH_DONE;
    if (!launch->captured)
        status = finish_all(launch, launch->count, false);
    release_references(launch);
    return status;
}

strata_status strata_launch_end(strata_launch *launch)
{
    if (!launch || launch->state < LAUNCH_OPEN || launch->state > LAUNCH_DONE)
        return refuse_state(launch, "strata_launch_end");
    strata_status status = strata_check_driver();
    if (launch->state == LAUNCH_READY && status == STRATA_SUCCESS) {
        record_all(launch);
        status = strata_fail(
            STRATA_ERROR_NOT_COMMITTED,
            "a launch of %zu blocks was prepared and neither committed nor cancelled; it counts as submitted",
            launch->count);
    }
    if (launch->state != LAUNCH_DONE && status != STRATA_ERROR_FORKED)
        release_references(launch);
    strata_host_free(launch->entries);
    memset(launch, 0, sizeof *launch);
    return status;
}
