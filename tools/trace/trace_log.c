/* Logs of the layer `logging`, binary and CSV, as traces: one order for all threads.
 *
 * Slot and generation identify a block: a reused address is a new block. A finished use counts once. A host's wait for
 * a stream counts if an earlier row names the stream. Prepares, completions, reaps and trims are not replayed. Failed
 * calls, and frees and uses of blocks allocated before the log, are counted and not replayed. */
#include "resources/logging/csv.h"
#include "tools/line_reader.h"
#include "tools/log/log_reader.h"
#include "tools/trace/trace_builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two threads' per-thread default streams have one handle. */
static void name_stream(const strata_log_record *record, char name[32])
{
    if (record->stream == (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD)
        snprintf(name, 32, "0x2@%" PRIu64, record->thread);
    else
        snprintf(name, 32, "0x%" PRIx64, record->stream > 2 ? record->stream : 0);
}

/* False: the record is not replayed. */
static bool op_of(const strata_log_record *record, trace_op *op)
{
    switch (record->kind) {
    case STRATA_LOG_ALLOCATE:
        *op = TRACE_ALLOC;
        return true;
    case STRATA_LOG_DEALLOCATE:
        *op = TRACE_FREE;
        return true;
    case STRATA_LOG_FINISH_USE:
    case STRATA_LOG_RECORD_USE:
        *op = TRACE_USE;
        return record->access != STRATA_ACCESS_NONE;
    case STRATA_LOG_SYNCHRONIZE:
        *op = TRACE_SYNC;
        return true;
    default:
        return false;
    }
}

enum { SLOT_BITS = 24 }; /* of a block's index in the stack's table */

/* Whether slot and generation fit into one number, the block's id. */
static bool check_block(trace_builder *builder, uint64_t slot, uint64_t generation)
{
    if (slot >> SLOT_BITS)
        return trace_builder_refuse(builder, "Slot is %" PRIu64 ": expected less than %d", slot, 1 << SLOT_BITS);
    if (generation >> (64 - SLOT_BITS))
        return trace_builder_refuse(builder, "Generation is %" PRIu64 ": expected less than %" PRIu64, generation,
                                    UINT64_C(1) << (64 - SLOT_BITS));
    return true;
}

static bool add(trace_builder *builder, const strata_log_record *record, uint32_t line)
{
    char stream[32];
    trace_words words = {.line = line, .access = record->access, .stream = stream};
    if (!op_of(record, &words.op))
        return true;
    if (record->status != STRATA_SUCCESS) {
        builder->trace.recorded_failures++;
        return true;
    }
    words.time_us = record->monotonic_ns / 1000;
    if (words.op == TRACE_SYNC) {
        name_stream(record, stream);
        return !trace_builder_knows_stream(builder, stream) || trace_builder_add(builder, &words);
    }
    if (!check_block(builder, record->slot, record->generation))
        return false;
    words.id = record->generation << SLOT_BITS | record->slot;
    words.bytes = record->requested;
    const char *alloc_stream = trace_builder_alloc_stream(builder, words.id, NULL);
    if (words.op != TRACE_ALLOC && !alloc_stream) {
        builder->trace.recorded_strays++;
        return true;
    }
    if (record->stream == (uint64_t)(uintptr_t)STRATA_STREAM_GONE && alloc_stream)
        snprintf(stream, sizeof stream, "%s", alloc_stream);
    else
        name_stream(record, stream);
    return trace_builder_add(builder, &words);
}

/* ---- binary ---- */

bool trace_log_read(trace_builder *builder, line_reader *file)
{
    log_contents contents;
    log_problem problem;
    if (!log_read_opened(file, builder->most - builder->trace.memory, &contents, &problem)) {
        builder->too_large = problem.too_large;
        return trace_builder_refuse(builder, "%s", problem.text);
    }
    if (contents.damages > contents.cut) { /* the rest may need skipped records */
        log_contents_free(&contents);
        return trace_builder_refuse(builder, "%s", contents.damage[0].text);
    }
    bool good = true;
    const uint64_t most = builder->most, records = contents.count * sizeof *contents.records;
    builder->trace.recorded_dropped = contents.dropped;
    builder->trace.recorded_torn = contents.torn;
    builder->trace.recorded_cut = contents.cut;
    builder->most -= records;
    for (size_t i = 0; i < contents.count && good; i++)
        good = add(builder, &contents.records[i], (uint32_t)(i < UINT32_MAX - 2 ? i + 2 : UINT32_MAX));
    builder->most = most;
    log_contents_free(&contents);
    return good;
}

/* ---- CSV ---- */

enum {
    ACTION = 2,
    POINTER = 3,
    SIZE = 4,
    STREAM = 5,
    MONOTONIC = 7,
    SERIAL = 8,
    SLOT = 14,
    GENERATION = 15,
    ACCESS = 16,
    COLUMNS = 21,
};

static bool begins(const char *line, uint64_t *memory)
{
    (void)memory;
    return strcmp(line, LOG_CSV_HEADER) == 0;
}

static bool read_hex(trace_builder *builder, const char *name, const char *text, uint64_t *out)
{
    size_t length = strlen(text);
    if (strncmp(text, "0x", 2) != 0 || length < 3 || length > 18 || strspn(text + 2, "0123456789abcdef") != length - 2)
        return trace_builder_refuse(builder, "%s is \"%.40s\": expected a 64-bit number such as 0x7f00", name, text);
    *out = strtoull(text + 2, NULL, 16);
    return true;
}

static bool read_action(trace_builder *builder, char *text, strata_log_record *record)
{
    static const char failure[] = " failure";
    size_t length = strlen(text), tail = sizeof failure - 1;
    bool failed = length > tail && strcmp(text + length - tail, failure) == 0;
    record->status = failed ? STRATA_ERROR_DRIVER : STRATA_SUCCESS; /* any error: left out */
    if (failed)
        text[length - tail] = '\0';
    for (int kind = 1; kind < STRATA_LOG_KIND_LIMIT; kind++) {
        record->kind = (strata_log_kind)kind;
        if (strcmp(text, log_kind_name(record->kind)) == 0)
            return true;
    }
    return trace_builder_refuse(builder,
                                "Action is \"%.40s\": expected allocate, free, complete, reuse, prepare, "
                                "finish, use, reap, trim, sync, capture, launch, upload or update",
                                text);
}

static bool read_access(trace_builder *builder, const char *text, strata_log_record *record)
{
    for (int access = 0; access <= STRATA_ACCESS_READ_WRITE; access++) {
        record->access = (strata_access)access;
        if (strcmp(text, log_access_name(record->access)) == 0)
            return true;
    }
    return trace_builder_refuse(builder, "Access is \"%.40s\": expected read, write, read_write or nothing", text);
}

static bool row(trace_builder *builder, char *line, uint32_t number, uint64_t *memory)
{
    (void)memory;
    char *fields[TRACE_FIELD_LIMIT];
    strata_log_record record = {.generation = 0};
    uint64_t slot;
    size_t count = trace_split(line, fields);
    if (count != COLUMNS)
        return trace_builder_refuse(builder, "%zu columns: expected %d (Thread,Time,Action,...,Tag)", count, COLUMNS);
    if (!read_action(builder, fields[ACTION], &record) ||
        !read_hex(builder, "Pointer", fields[POINTER], &record.address) ||
        !trace_read_number(builder, "Size", fields[SIZE], &record.requested) ||
        !read_hex(builder, "Stream", fields[STREAM], &record.stream) ||
        !trace_read_number(builder, "Monotonic", fields[MONOTONIC], &record.monotonic_ns) ||
        !trace_read_number(builder, "Serial", fields[SERIAL], &record.thread) ||
        !trace_read_number(builder, "Slot", fields[SLOT], &slot) ||
        !trace_read_number(builder, "Generation", fields[GENERATION], &record.generation) ||
        !check_block(builder, slot, record.generation) || !read_access(builder, fields[ACCESS], &record))
        return false;
    record.slot = (uint32_t)slot;
    return add(builder, &record, number);
}

const trace_format trace_format_log = {begins, row, true, false};
