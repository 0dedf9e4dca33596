/* References: making, access, uses. Their end is in reference_frees.c. */
#include "runtime/references.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/streams/stream_holds.h"
#include "core/streams/stream_map.h"
#include "runtime/captures.h"

#include <strata/dlpack.h>

#include <stdio.h>
#include <string.h>

/* PTDS programs see macros of these names. */
#undef strata_ref_allocate
#undef strata_ref_record_write
#undef strata_last_write_wait

/* ---- element types ---- */

static const struct {
    size_t bytes;
    const char *name;
} elements[] = {[STRATA_ELEMENT_NONE] = {0, ""},
#define ELEMENT(name, bytes, text) [STRATA_ELEMENT_##name] = {bytes, text},
                STRATA_ELEMENT_MAP(ELEMENT)
#undef ELEMENT
};

static bool is_element(strata_element type)
{
    return (unsigned)type - 1 < sizeof elements / sizeof elements[0] - 1;
}

size_t strata_element_bytes(strata_element type)
{
    return is_element(type) ? elements[type].bytes : 0;
}

const char *strata_element_name(strata_element type)
{
    return is_element(type) ? elements[type].name : "";
}

strata_status strata_element_count_bytes(strata_element type, size_t length, size_t *bytes)
{
    *bytes = 0;
    if (!is_element(type))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%d is not an element type", (int)type);
    if (__builtin_mul_overflow(length, elements[type].bytes, bytes))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%zu elements of type %s have more bytes than a size can hold",
                           length, elements[type].name);
    return STRATA_SUCCESS;
}

strata_status strata_element_check_alignment(CUdeviceptr address, strata_element type)
{
    return address % elements[type].bytes == 0
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "address 0x%llx is misaligned for elements of type %s, %zu bytes",
                             (unsigned long long)address, elements[type].name, elements[type].bytes);
}

/* ---- staleness ---- */

static const char *text_of(strata_stale_reason reason)
{
    switch (reason) {
    case STRATA_STALE_STATE_DROPPED:
        return "the state of its device was dropped, since its runtime has ended";
    case STRATA_STALE_SHUTTING_DOWN:
        return "its device is shutting down";
    case STRATA_STALE_CONTEXT_REBUILT:
        return "the context was rebuilt since, or is lost; make new references once there is one";
    case STRATA_STALE_NOT:
        break;
    }
    return "";
}

static strata_status refuse_stale(strata_stale_reason reason, const char *what)
{
    return strata_fail(STRATA_ERROR_STALE, "%s is stale: %s", what, text_of(reason));
}

/* Raises why the memory cannot be accessed: STALE, also SHUT_DOWN or FORKED. */
static __attribute__((cold)) strata_status refuse_access(const strata_ref *ref, strata_ref_memory *out)
{
    if (out)
        *out = (strata_ref_memory){0};
    if (!ref || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_access: ref or out is NULL");
    const strata_status status = ref->record->device ? strata_check_driver() : STRATA_SUCCESS;
    if (status == STRATA_ERROR_SHUT_DOWN || status == STRATA_ERROR_FORKED)
        return status;
    out->stale = strata_device_record_stale(ref->record, ref->word);
    return refuse_stale(out->stale, "the reference");
}

static inline bool is_current(const strata_ref *ref)
{
    return strata_device_record_is_current(ref->record, ref->word);
}

static inline void give_access(const strata_ref *ref, strata_ref_memory *out)
{
    out->address = ref->address;
    out->bytes = ref->bytes;
    out->block = &ref->block;
    out->stale = STRATA_STALE_NOT;
}

strata_status strata_ref_access(const strata_ref *ref, strata_ref_memory *out)
{
    if (__builtin_expect(!ref || !out || !is_current(ref), 0))
        return refuse_access(ref, out);
    give_access(ref, out);
    return STRATA_SUCCESS;
}

/* Checks all references twice. A stale reference stays stale: if all are current after all were found current, all were
 * at one time in between. */
strata_status strata_refs_access(const strata_ref *const *refs, size_t count, strata_ref_memory *out)
{
    if (count && (!refs || !out))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_refs_access: refs or out is NULL");
    for (size_t i = 0; i < 2 * count; i++) {
        const size_t which = i % count;
        if (refs[which] && is_current(refs[which]))
            continue;
        memset(out, 0, count * sizeof *out);
        return refuse_access(refs[which], &out[which]);
    }
    for (size_t i = 0; i < count; i++)
        give_access(refs[i], &out[i]);
    return STRATA_SUCCESS;
}

strata_status strata_ref_raw_device_ptr(const strata_ref *ref, CUdeviceptr *out)
{
    strata_ref_memory memory;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_raw_device_ptr: out is NULL");
    const strata_status status = strata_ref_access(ref, &memory);
    *out = memory.address;
    return status == STRATA_SUCCESS ? strata_reference_check_local(ref, "strata_ref_raw_device_ptr") : status;
}

strata_status strata_reference_check_local(const strata_ref *ref, const char *call)
{
    return ref->runtime ? STRATA_SUCCESS
                        : strata_fail(STRATA_ERROR_UNSUPPORTED,
                                      "%s: the memory is in the worker of an isolated device service, and has no "
                                      "address here; send the service requests with the reference",
                                      call);
}

/* ---- making ---- */

strata_status strata_reference_make(strata_runtime *runtime, strata_element type, size_t length, strata_ref **out)
{
    strata_device_record *record = strata_device_state_record(runtime->state);
    const uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
    if (word & STRATA_RECORD_FLAGS)
        return refuse_stale(strata_device_record_stale(record, word), "a new reference");
    strata_ref *ref = strata_host_zalloc_aligned(_Alignof(strata_ref), sizeof *ref);
    if (!ref)
        return strata_fail_host_memory("a reference");
    *ref =
        (strata_ref){.record = record, .word = word, .length = length, .type = type, .whole = ref, .runtime = runtime};
    strata_reference_count_init(&ref->count);
    *out = ref;
    return STRATA_SUCCESS;
}

/* A reference that is made while its state shuts down is stale from the start. */
strata_status strata_reference_make_remote(strata_device_state *state, strata_element type, size_t length,
                                           void (*end)(void *data), void *data, strata_ref **out)
{
    strata_device_record *record = strata_device_state_record(state);
    const uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire) & ~STRATA_RECORD_FLAGS;
    size_t bytes;
    const strata_status status = strata_element_count_bytes(type, length, &bytes);
    if (status != STRATA_SUCCESS)
        return status;
    strata_ref *ref = strata_host_zalloc_aligned(_Alignof(strata_ref), sizeof *ref);
    if (!ref)
        return strata_fail_host_memory("a reference");
    *ref = (strata_ref){.record = record,
                        .word = word,
                        .bytes = bytes,
                        .length = length,
                        .type = type,
                        .whole = ref,
                        .end = end,
                        .data = data};
    strata_reference_count_init(&ref->count);
    strata_device_record_hold(record, false);
    *out = ref;
    return STRATA_SUCCESS;
}

static void give_memory(strata_ref *ref, const strata_block *block, size_t bytes)
{
    ref->block = *block;
    ref->address = block->address;
    ref->bytes = bytes;
    strata_device_record_hold(ref->record, !strata_block_is_empty(block));
}

/* Zeros the memory of a new reference. */
static strata_status write_zeros(const strata_ref *ref, CUstream stream)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, ref->record->device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemsetD8Async(ref->address, 0, ref->bytes, stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemsetD8Async", "zeroing %s%s",
                                                       strata_size_text(ref->bytes).text, strata_stream_hint(result));
}

strata_status strata_reference_finish_write(strata_ref *ref, CUstream stream, bool submitted)
{
    const strata_status status = strata_runtime_finish_block_use(ref->runtime, &ref->block, stream,
                                                                 submitted ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE);
    if (status != STRATA_SUCCESS && submitted)
        atomic_store_explicit(&ref->whole->unrecorded, true, memory_order_relaxed);
    return status;
}

static strata_status zero(strata_ref *ref, CUstream stream)
{
    strata_runtime *runtime = ref->runtime;
    if (!runtime->tracks)
        return write_zeros(ref, stream);
    strata_status status = strata_runtime_prepare_block_use(runtime, &ref->block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    status = write_zeros(ref, stream);
    const strata_status finished = strata_reference_finish_write(ref, stream, status == STRATA_SUCCESS);
    return status == STRATA_SUCCESS ? finished : status;
}

strata_status strata_ref_allocate(strata_runtime *runtime, strata_element type, size_t length, bool zeroed,
                                  CUstream stream, strata_ref **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_allocate: out is NULL");
    *out = NULL;
    strata_status status = zeroed ? strata_check_runtime_now(runtime) : strata_check_runtime(runtime);
    size_t bytes;
    strata_ref *ref = NULL;
    strata_block block;
    if (status == STRATA_SUCCESS)
        status = strata_element_count_bytes(type, length, &bytes);
    if (status == STRATA_SUCCESS)
        status = strata_reference_make(runtime, type, length, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_runtime_allocate(runtime, bytes, stream, &block);
    if (status != STRATA_SUCCESS) {
        strata_host_free(ref);
        return status;
    }
    give_memory(ref, &block, bytes);
    if (zeroed && bytes && (status = zero(ref, stream)) != STRATA_SUCCESS) {
        strata_error_suppress_begin();
        strata_reference_free(ref);
        strata_error_suppress_end(false);
        return status;
    }
    *out = ref;
    return STRATA_SUCCESS;
}

static strata_status check_adoption(strata_runtime *runtime, const strata_block *block, strata_element type,
                                    size_t length, size_t *bytes)
{
    if (!block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_adopt: block is NULL");
    const strata_table *table = runtime->stack->head.table;
    strata_status status = strata_element_count_bytes(type, length, bytes);
    if (status == STRATA_SUCCESS && !strata_block_is_empty(block) &&
        strata_table_state(table, block->id) != STRATA_BLOCK_LIVE)
        status = strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
    if (status == STRATA_SUCCESS && strata_runtime_keeps(runtime, block))
        status = strata_kept_block_check(runtime, block);
    if (status == STRATA_SUCCESS && *bytes > block->bytes)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "%zu elements of type %s exceed the block, which has %s",
                             length, elements[type].name, strata_size_text(block->bytes).text);
    return status == STRATA_SUCCESS ? strata_element_check_alignment(block->address, type) : status;
}

strata_status strata_ref_adopt(strata_runtime *runtime, const strata_block *block, strata_element type, size_t length,
                               strata_ref **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_adopt: out is NULL");
    *out = NULL;
    size_t bytes = 0;
    strata_ref *ref;
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = check_adoption(runtime, block, type, length, &bytes);
    if (status == STRATA_SUCCESS)
        status = strata_reference_make(runtime, type, length, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    give_memory(ref, block, bytes);
    *out = ref;
    return STRATA_SUCCESS;
}

strata_status strata_ref_view(strata_ref *whole, size_t offset, size_t length, strata_element type, strata_ref **out)
{
    if (!whole || !out) {
        if (out)
            *out = NULL;
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_view: whole or out is NULL");
    }
    *out = NULL;
    size_t bytes;
    strata_status status = strata_element_count_bytes(type, length, &bytes);
    if (status == STRATA_SUCCESS && (offset > whole->bytes || bytes > whole->bytes - offset))
        status =
            strata_fail(STRATA_ERROR_INVALID_VALUE, "a view of %s from byte %zu on exceeds its reference, which has %s",
                        strata_size_text(bytes).text, offset, strata_size_text(whole->bytes).text);
    if (status == STRATA_SUCCESS)
        status = strata_element_check_alignment((whole->runtime ? whole->address : whole->offset) + offset, type);
    if (status != STRATA_SUCCESS)
        return status;
    strata_ref *view = strata_host_zalloc_aligned(_Alignof(strata_ref), sizeof *view);
    if (!view)
        return strata_fail_host_memory("a view");
    *view = (strata_ref){.record = whole->record,
                         .word = whole->word,
                         .address = whole->runtime ? whole->address + offset : 0,
                         .offset = whole->runtime ? 0 : whole->offset + offset,
                         .bytes = bytes,
                         .length = length,
                         .type = type,
                         .whole = strata_ref_clone(whole->whole),
                         .runtime = whole->runtime,
                         .block = whole->block,
                         .foreign = whole->foreign,
                         .read_only = whole->read_only};
    strata_reference_count_init(&view->count);
    *out = view;
    return STRATA_SUCCESS;
}

/* A forked child counts nothing: a thread that it lacks may have been in the middle of a change. */
strata_ref *strata_ref_clone(strata_ref *ref)
{
    if (ref && __builtin_expect(strata_driver_state_now() != STRATA_DRIVER_FORKED, 1))
        strata_reference_count_clone(&ref->count);
    return ref;
}

strata_status strata_ref_release(strata_ref *ref)
{
    const strata_status status = strata_check_not_forked();
    if (!ref || status != STRATA_SUCCESS)
        return status;
    if (!strata_reference_count_release(&ref->count))
        return STRATA_SUCCESS;
    strata_ref *whole = ref->whole;
    if (whole != ref) {
        strata_host_free(ref);
        if (!strata_reference_count_release(&whole->count))
            return STRATA_SUCCESS;
    }
    return strata_reference_free(whole);
}

/* ---- facts ---- */

size_t strata_ref_len(const strata_ref *ref)
{
    return ref ? ref->length : 0;
}

bool strata_ref_is_empty(const strata_ref *ref)
{
    return strata_ref_len(ref) == 0;
}

strata_element strata_ref_type(const strata_ref *ref)
{
    return ref ? ref->type : STRATA_ELEMENT_NONE;
}

int strata_ref_device_id(const strata_ref *ref)
{
    const bool dropped = !ref || atomic_load_explicit(&ref->record->word, memory_order_acquire) & STRATA_RECORD_DROPPED;
    return dropped ? STRATA_DEVICE_NONE : ref->record->ordinal;
}

uint64_t strata_ref_generation(const strata_ref *ref)
{
    return ref ? ref->word >> STRATA_RECORD_GENERATION : 0;
}

bool strata_ref_is_read_only(const strata_ref *ref)
{
    return ref && ref->read_only;
}

void strata_ref_print(const strata_ref *ref, strata_write_callback write, void *data)
{
    char text[96];
    if (!ref || !write)
        return;
    const int length = snprintf(text, sizeof text, "%s[%zu], generation %llu", elements[ref->type].name, ref->length,
                                (unsigned long long)strata_ref_generation(ref));
    write(text, (size_t)length, data);
}

/* ---- uses ---- */

strata_status strata_reference_check_access(const strata_ref *ref, strata_access access)
{
    return ref->read_only && (access & STRATA_ACCESS_WRITE)
               ? strata_fail(STRATA_ERROR_INVALID_VALUE, "the memory at 0x%llx was imported as read-only",
                             (unsigned long long)ref->address)
               : STRATA_SUCCESS;
}

static strata_status check_tracked(const strata_ref *ref, const char *call)
{
    if (!ref->runtime)
        return strata_reference_check_local(ref, call);
    return ref->foreign ? strata_fail(STRATA_ERROR_STREAM_MISUSE,
                                      "the memory at 0x%llx is foreign: Strata does not record its uses",
                                      (unsigned long long)ref->address)
                        : STRATA_SUCCESS;
}

strata_status strata_ref_record_write(strata_ref *ref, CUstream stream)
{
    strata_ref_memory memory;
    strata_status status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_access(ref, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = check_tracked(ref, "strata_ref_record_write");
    return status == STRATA_SUCCESS
               ? strata_runtime_record_block_use(ref->runtime, memory.block, stream, STRATA_ACCESS_WRITE)
               : status;
}

/* Whether no work need wait for the memory: only its allocation counts as a write, and is complete. */
static bool nothing_wrote(const strata_table *table, strata_block_id id, strata_point write)
{
    return !write || (strata_uses_untouched(table, id) && strata_point_known_complete(write));
}

strata_status strata_ref_last_write_stream(const strata_ref *ref, strata_last_write *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_ref_last_write_stream: out is NULL");
    *out = (strata_last_write){0};
    strata_ref_memory memory;
    strata_status status = strata_ref_access(ref, &memory);
    if (status == STRATA_SUCCESS)
        status = check_tracked(ref, "strata_ref_last_write_stream");
    if (status != STRATA_SUCCESS || strata_block_is_empty(memory.block) || !ref->runtime->tracks)
        return status;
    const strata_table *table = ref->runtime->stack->head.table;
    const strata_point write = strata_uses_last_write(table, memory.block->id);
    if (nothing_wrote(table, memory.block->id, write))
        return STRATA_SUCCESS;
    out->point = write;
    out->kind = strata_stream_hold(write, &out->stream) ? STRATA_LAST_WRITE_STREAM : STRATA_LAST_WRITE_POINT;
    return STRATA_SUCCESS;
}

strata_status strata_last_write_wait(strata_runtime *runtime, const strata_last_write *write, CUstream stream)
{
    if (!write)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_last_write_wait: write is NULL");
    strata_status status = strata_check_runtime(runtime);
    strata_stream_ref waiting;
    if (status != STRATA_SUCCESS || write->kind == STRATA_LAST_WRITE_NONE)
        return status;
    status = strata_stream_resolve(runtime->device, stream, &waiting);
    return status == STRATA_SUCCESS ? strata_timeline_order(&waiting, write->point) : status;
}

void strata_last_write_release(strata_last_write *write)
{
    /* In a forked child a thread that it lacks may have the stream's lock. */
    if (write && write->kind == STRATA_LAST_WRITE_STREAM && strata_driver_state_now() != STRATA_DRIVER_FORKED)
        strata_stream_unhold(write->point);
    if (write)
        *write = (strata_last_write){0};
}
