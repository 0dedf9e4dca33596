/* What a service begins, as lines of a recording.
 *
 * Allocations and modules are numbered as they begin. The number of a reference is found again by its allocation: by
 * the address of the struct that owns it, which a later allocation may have, and by the identity of its block, which
 * tells an allocation that the service did not make. */
#include "service/recorder.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/references.h"
#include "service/graph.h"
#include "service/recorder_file.h"
#include "service/recording.h"

#include <inttypes.h>
#include <string.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct numbered {
    uint64_t key;          /* address of the struct that owns an allocation; the service's number of a module */
    strata_block_id block; /* of an allocation */
    uint64_t number;       /* in the recording */
    UT_hash_handle hh;
} numbered;

/* The service's thread alone, but for `recorded`. */
struct service_recorder {
    uint64_t start;                        /* CLOCK_MONOTONIC */
    uint64_t allocations, modules, graphs; /* numbered so far */
    numbered *by_owner, *by_module;
    _Atomic uint64_t recorded; /* any thread, relaxed */
    recorder_file file;
};

strata_status service_recorder_open(const char *path, int device, service_recorder **out)
{
    service_recorder *recorder = strata_host_zalloc(sizeof *recorder);
    if (!recorder)
        return strata_fail_host_memory("the recorder of a device service");
    const strata_status status = recorder_file_open(&recorder->file, path, device);
    if (status != STRATA_SUCCESS) {
        strata_host_free(recorder);
        return status;
    }
    recorder->start = service_clock();
    recorder_file_print(&recorder->file, "%s\n", service_recording_head);
    *out = recorder;
    return STRATA_SUCCESS;
}

/* ---- numbers ---- */

static void forget_all(numbered **all)
{
    numbered *one, *next;
    HASH_ITER(hh, *all, one, next)
    {
        HASH_DEL(*all, one);
        strata_host_free(one);
    }
}

/* Without host memory it stays unknown, and a replay leaves out what names it. */
static void remember(numbered **all, uint64_t key, strata_block_id block, uint64_t number)
{
    numbered *one;
    HASH_FIND(hh, *all, &key, sizeof key, one);
    if (!one) {
        one = strata_host_zalloc(sizeof *one);
        if (!one)
            return;
        one->key = key;
        HASH_ADD(hh, *all, key, sizeof one->key, one);
        if (!one->hh.tbl) {
            strata_host_free(one);
            return;
        }
    }
    one->block = block;
    one->number = number;
}

/* The recording's number of the allocation that `whole` owns; 0: unknown. */
static uint64_t number_of_ref(const service_recorder *recorder, const strata_ref *whole)
{
    const uint64_t key = (uint64_t)(uintptr_t)whole;
    numbered *one;
    HASH_FIND(hh, recorder->by_owner, &key, sizeof key, one);
    return one && one->block.table == whole->block.id.table && one->block.slot == whole->block.id.slot &&
                   one->block.generation == whole->block.id.generation
               ? one->number
               : 0;
}

static uint64_t number_of_module(const service_recorder *recorder, uint64_t module)
{
    numbered *one;
    HASH_FIND(hh, recorder->by_module, &module, sizeof module, one);
    return one ? one->number : 0;
}

void service_recorder_answer(service_recorder *recorder, const strata_future *request, const strata_answer *answer)
{
    const strata_ref *ref = answer->ref;
    if (!request->recorded)
        return;
    if (ref)
        remember(&recorder->by_owner, (uint64_t)(uintptr_t)ref->whole, ref->block.id, request->recorded);
    if (answer->module)
        remember(&recorder->by_module, answer->module, (strata_block_id){0}, request->recorded);
}

/* ---- parts of lines ---- */

static bool is_plain(char character)
{
    return character > ' ' && character <= '~' && character != '%';
}

/* Whether a name fits as it is written: bytes that are not plain become %XX. */
static bool has_room_for(const char *name)
{
    size_t length = 0;
    for (const char *at = name; *at && length <= RECORDING_NAME_LIMIT; at++)
        length += is_plain(*at) ? 1 : 3;
    return length && length <= RECORDING_NAME_LIMIT;
}

static void put_name(recorder_file *file, const char *name)
{
    recorder_file_put(file, ' ');
    for (const char *at = name; *at; at++)
        if (is_plain(*at))
            recorder_file_put(file, *at);
        else
            recorder_file_print(file, "%%%02x", (unsigned)(unsigned char)*at);
}

static void put_ref(service_recorder *recorder, const strata_ref *ref)
{
    const uint64_t number = number_of_ref(recorder, ref->whole);
    const size_t offset = ref->runtime ? (size_t)(ref->address - ref->whole->address) : ref->offset;
    recorder_file_print(&recorder->file, "%" PRIu64 ":%zu:%s:%zu", number, offset, strata_element_name(ref->type),
                        ref->length);
}

static void put_kind(service_recorder *recorder, unsigned kind)
{
    recorder_file_print(&recorder->file, " %s", service_recording_kinds[kind]);
}

/* ---- kinds ---- */

static void put_allocate(service_recorder *recorder, strata_future *request)
{
    request->recorded = ++recorder->allocations;
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %" PRIu64 " %s %zu %s", request->recorded,
                        strata_element_name(request->type), request->length, request->raw ? "raw" : "zeroed");
}

static void put_copy(service_recorder *recorder, const strata_future *request)
{
    put_kind(recorder, request->kind);
    recorder_file_put(&recorder->file, ' ');
    put_ref(recorder, request->ref);
}

static void put_device_copy(service_recorder *recorder, const strata_future *request)
{
    put_copy(recorder, request);
    recorder_file_put(&recorder->file, ' ');
    put_ref(recorder, request->to);
}

static void put_value(service_recorder *recorder, const void *bytes, size_t count)
{
    recorder_file_print(&recorder->file, " %s:", service_recording_arguments[STRATA_ARGUMENT_VALUE]);
    recorder_file_put_hex(&recorder->file, bytes, count);
}

static void put_fill(service_recorder *recorder, const strata_future *request)
{
    const unsigned char byte = (unsigned char)request->fill_value;
    put_copy(recorder, request);
    if (request->fill_width == 1)
        put_value(recorder, &byte, 1);
    else
        put_value(recorder, &request->fill_value, sizeof request->fill_value);
}

static void put_load(service_recorder *recorder, strata_future *request)
{
    if (!request->image_bytes || request->image_bytes > RECORDING_IMAGE_LIMIT) {
        put_kind(recorder, RECORDING_UNKNOWN);
        return;
    }
    request->recorded = ++recorder->modules;
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %" PRIu64 " ", request->recorded);
    recorder_file_put_hex(&recorder->file, request->image, request->image_bytes);
}

static void put_argument(service_recorder *recorder, const strata_argument *argument)
{
    if (argument->kind == STRATA_ARGUMENT_VALUE) {
        put_value(recorder, argument->value, argument->bytes);
        return;
    }
    recorder_file_print(&recorder->file, " %s:", service_recording_arguments[argument->kind]);
    put_ref(recorder, argument->ref);
}

static void put_launch(service_recorder *recorder, const strata_future *request)
{
    const service_launch *launch = &request->launch;
    if (!has_room_for(launch->entry)) {
        put_kind(recorder, RECORDING_UNKNOWN);
        return;
    }
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %" PRIu64, number_of_module(recorder, launch->module));
    put_name(&recorder->file, launch->entry);
    recorder_file_print(&recorder->file, " %u %u %u %u %u %u %u", launch->grid[0], launch->grid[1], launch->grid[2],
                        launch->block[0], launch->block[1], launch->block[2], launch->shared_bytes);
    for (size_t i = 0; i < launch->count; i++)
        put_argument(recorder, &launch->arguments[i]);
}

/* Its requests stand in the lines above. */
static void put_make_graph(service_recorder *recorder, const strata_future *request)
{
    const strata_service_graph *graph = request->recorded_graph;
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %" PRIu64, graph->recorded);
    put_name(&recorder->file, has_room_for(graph->name) ? graph->name : "-");
}

static void put_play_graph(service_recorder *recorder, const strata_future *request)
{
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %" PRIu64, request->recorded_graph->recorded);
}

static void put_named(service_recorder *recorder, const strata_future *request)
{
    put_kind(recorder, request->kind);
    put_name(&recorder->file, has_room_for(request->name) ? request->name : "-");
}

/* ---- cuBLAS ---- */

static void put_operand(service_recorder *recorder, const strata_blas_operand *operand)
{
    put_ref(recorder, operand->ref);
    recorder_file_print(&recorder->file, "/%zu/%zu/%zu/%zu", operand->offset, operand->leading, operand->stride,
                        operand->step);
}

static void put_order(service_recorder *recorder, strata_blas_order order)
{
    const bool known = (unsigned)order <= STRATA_BLAS_COLUMNS; /* else the call fails, as with none */
    recorder_file_print(&recorder->file, "%s", service_recording_orders[known ? order : STRATA_BLAS_ORDER_NONE]);
}

static void put_field(service_recorder *recorder, const recording_field *field, const void *value)
{
    uint64_t bits;
    recorder_file_put(&recorder->file, ' ');
    switch (field->kind) {
    case RECORDING_ORDER:
        put_order(recorder, *(const strata_blas_order *)value);
        break;
    case RECORDING_BOOL:
        recorder_file_put(&recorder->file, *(const bool *)value ? '1' : '0');
        break;
    case RECORDING_SIZE:
        recorder_file_print(&recorder->file, "%zu", *(const size_t *)value);
        break;
    case RECORDING_DOUBLE:
        memcpy(&bits, value, sizeof bits);
        recorder_file_print(&recorder->file, "%016" PRIx64, bits);
        break;
    case RECORDING_OPERAND:
        put_operand(recorder, value);
        break;
    }
}

static void put_blas(service_recorder *recorder, const strata_future *request)
{
    const strata_service_blas_call *call = request->blas;
    const recording_routine *routine = &service_recording_routines[call->routine];
    put_kind(recorder, request->kind);
    recorder_file_print(&recorder->file, " %s", routine->name);
    for (size_t i = 0; i < routine->count; i++)
        put_field(recorder, &routine->fields[i], (const char *)call + routine->fields[i].at);
}

/* ---- lines ---- */

static void put_request(service_recorder *recorder, strata_future *request)
{
    switch (request->kind) {
    case SERVICE_ALLOCATE:
        put_allocate(recorder, request);
        break;
    case SERVICE_COPY_TO_HOST:
    case SERVICE_COPY_FROM_HOST:
        put_copy(recorder, request);
        break;
    case SERVICE_LOAD:
        put_load(recorder, request);
        break;
    case SERVICE_LAUNCH:
        put_launch(recorder, request);
        break;
    case SERVICE_RUN:
    case SERVICE_RECORD_GRAPH:
        put_named(recorder, request);
        break;
    case SERVICE_BLAS:
        put_blas(recorder, request);
        break;
    case SERVICE_COPY:
        put_device_copy(recorder, request);
        break;
    case SERVICE_FILL:
        put_fill(recorder, request);
        break;
    case SERVICE_MAKE_GRAPH:
        put_make_graph(recorder, request);
        break;
    case SERVICE_PLAY_GRAPH:
        put_play_graph(recorder, request);
        break;
    case SERVICE_LAUNCH_GRAPH:
    case SERVICE_KINDS:
        put_kind(recorder, request->kind);
        break;
    }
}

static bool has_failed(const service_recorder *recorder)
{
    return atomic_load_explicit(&recorder->file.failed, memory_order_relaxed);
}

/* `into`: the number of the graph that it is recorded in; 0: none. */
static void put_line(service_recorder *recorder, strata_future *request, uint64_t begun_at, uint64_t into)
{
    recorder_file_print(&recorder->file, "%" PRIu64 " %" PRIu64 " %s %s %" PRIu64,
                        begun_at > recorder->start ? begun_at - recorder->start : 0, request->sender,
                        service_recording_priorities[request->priority], service_recording_hints[request->hint],
                        request->timeout);
    if (into)
        recorder_file_print(&recorder->file, " %s %" PRIu64, service_recording_kinds[RECORDING_INTO], into);
    put_request(recorder, request);
    recorder_file_put(&recorder->file, '\n');
    if (!has_failed(recorder))
        atomic_fetch_add_explicit(&recorder->recorded, 1, memory_order_relaxed);
}

static void put_parts(service_recorder *recorder, const strata_future *request)
{
    strata_service_graph *graph = request->recorded_graph;
    graph->recorded = ++recorder->graphs;
    for (strata_future *part = graph->parts.first; part; part = part->next)
        put_line(recorder, part, request->begun_at, graph->recorded);
}

void service_recorder_begin(service_recorder *recorder, strata_future *request)
{
    if (has_failed(recorder))
        return;
    if (request->kind == SERVICE_MAKE_GRAPH)
        put_parts(recorder, request);
    put_line(recorder, request, request->begun_at, 0);
}

void service_recorder_flush(service_recorder *recorder)
{
    recorder_file_flush(&recorder->file);
}

void service_recorder_tell(const service_recorder *recorder, strata_service_stats *stats)
{
    stats->recorded = atomic_load_explicit(&recorder->recorded, memory_order_relaxed);
    stats->record_failed = has_failed(recorder);
}

void service_recorder_close(service_recorder *recorder)
{
    if (!recorder)
        return;
    recorder_file_flush(&recorder->file);
    recorder_file_close(&recorder->file);
    forget_all(&recorder->by_owner);
    forget_all(&recorder->by_module);
    strata_host_free(recorder);
}
