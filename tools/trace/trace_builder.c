/* Building a trace. A hash table maps each id to its last block. */
#include "tools/trace/trace_builder.h"

#include "core/base/escape.h"
#include "core/base/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_SLOTS = 2 * TRACE_STREAM_LIMIT };

bool trace_builder_refuse(trace_builder *builder, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char text[sizeof builder->reason];
    vsnprintf(text, sizeof text, format, arguments);
    strata_escape(builder->reason, sizeof builder->reason, text);
    va_end(arguments);
    return false;
}

static bool no_memory(trace_builder *builder)
{
    return trace_builder_refuse(builder, "out of host memory for a trace of this length");
}

/* Counts host memory of the trace. False, with a reason, if it may not take so much. */
static bool take_memory(trace_builder *builder, uint64_t bytes)
{
    builder->too_large = bytes > builder->most - builder->trace.memory;
    if (builder->too_large)
        return trace_builder_refuse(builder, "the trace needs more than %s of host memory",
                                    strata_size_text(builder->most).text);
    builder->trace.memory += bytes;
    return true;
}

/* Room for one more element of `size` bytes; NULL, the array unchanged, with a reason. */
static void *with_room(trace_builder *builder, void *array, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count < *capacity)
        return array;
    const uint32_t wanted = *capacity ? *capacity + *capacity / 2 : 4096;
    if (!take_memory(builder, (uint64_t)(wanted - *capacity) * size))
        return NULL;
    void *grown = count < UINT32_MAX / 2 ? realloc(array, wanted * size) : NULL;
    if (grown)
        *capacity = wanted;
    else
        no_memory(builder);
    return grown;
}

/* ---- ids ---- */

static size_t id_slot(const trace_builder *builder, uint64_t id)
{
    size_t mask = builder->by_id_capacity - 1;
    uint64_t spread = id * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(spread ^ spread >> 32) & mask;
    while (builder->by_id[slot] && builder->trace.blocks[builder->by_id[slot] - 1].id != id)
        slot = (slot + 1) & mask;
    return slot;
}

static bool make_room_for_id(trace_builder *builder)
{
    if (builder->by_id_count * 2 < builder->by_id_capacity)
        return true;
    trace_builder grown = *builder;
    grown.by_id_capacity = builder->by_id_capacity ? builder->by_id_capacity * 2 : 8192;
    if (!take_memory(builder, (grown.by_id_capacity - builder->by_id_capacity) * sizeof *grown.by_id))
        return false;
    grown.by_id = calloc(grown.by_id_capacity, sizeof *grown.by_id);
    if (!grown.by_id)
        return no_memory(builder);
    for (size_t i = 0; i < builder->by_id_capacity; i++)
        if (builder->by_id[i])
            grown.by_id[id_slot(&grown, builder->trace.blocks[builder->by_id[i] - 1].id)] = builder->by_id[i];
    free(builder->by_id);
    builder->by_id = grown.by_id;
    builder->by_id_capacity = grown.by_id_capacity;
    return true;
}

/* The last block with that id; NULL: none. */
static trace_block *find_block(trace_builder *builder, uint64_t id)
{
    if (!builder->by_id)
        return NULL;
    uint32_t found = builder->by_id[id_slot(builder, id)];
    return found ? &builder->trace.blocks[found - 1] : NULL;
}

static void note_id(trace_builder *builder, uint64_t id, uint32_t block)
{
    uint32_t *slot = &builder->by_id[id_slot(builder, id)];
    if (!*slot)
        builder->by_id_count++;
    *slot = block + 1;
}

const char *trace_builder_alloc_stream(trace_builder *builder, uint64_t id, uint64_t *bytes)
{
    const trace_block *block = find_block(builder, id);
    if (!block || block->freed)
        return NULL;
    if (bytes)
        *bytes = block->bytes;
    return builder->streams[builder->trace.rows[block->alloc_row].stream].text;
}

static uint32_t line_of(const trace_builder *builder, uint32_t row)
{
    return builder->trace.rows[row].line;
}

/* ---- streams ---- */

/* Where the stream's number, plus 1, stands in the hash table, or is to stand. */
static uint16_t *slot_of_stream(const trace_builder *builder, const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    size_t slot = (size_t)(hash ^ hash >> 32) % STREAM_SLOTS;
    while (builder->by_stream[slot] && strcmp(builder->streams[builder->by_stream[slot] - 1].text, text) != 0)
        slot = (slot + 1) % STREAM_SLOTS;
    return &builder->by_stream[slot];
}

bool trace_builder_knows_stream(const trace_builder *builder, const char *name)
{
    return builder->streams && *slot_of_stream(builder, name);
}

bool trace_builder_begins_stream(const trace_builder *builder, const char *text)
{
    const size_t length = strlen(text);
    if (trace_builder_knows_stream(builder, text))
        return false;
    for (uint32_t i = 0; i < builder->trace.stream_count; i++)
        if (strncmp(builder->streams[i].text, text, length) == 0)
            return true;
    return false;
}

static bool make_streams(trace_builder *builder)
{
    if (!builder->streams)
        builder->streams = calloc(TRACE_STREAM_LIMIT, sizeof *builder->streams);
    if (!builder->by_stream)
        builder->by_stream = calloc(STREAM_SLOTS, sizeof *builder->by_stream);
    return (builder->streams && builder->by_stream) || no_memory(builder);
}

static bool find_stream(trace_builder *builder, const char *text, uint32_t *out)
{
    const uint32_t count = builder->trace.stream_count;
    *out = builder->last_stream;
    if (count && strcmp(builder->streams[*out].text, text) == 0)
        return true;
    if (!make_streams(builder))
        return false;
    uint16_t *slot = slot_of_stream(builder, text);
    if (!*slot && strlen(text) >= sizeof builder->streams->text)
        return trace_builder_refuse(builder, "stream name longer than %zu characters",
                                    sizeof builder->streams->text - 1);
    if (!*slot && count == TRACE_STREAM_LIMIT)
        return trace_builder_refuse(builder, "more than %d streams", TRACE_STREAM_LIMIT);
    if (!*slot) {
        strcpy(builder->streams[count].text, text);
        *slot = (uint16_t)(count + 1);
        builder->trace.stream_count++;
    }
    *out = builder->last_stream = *slot - 1u;
    return true;
}

/* ---- rows ---- */

static bool add_block(trace_builder *builder, const trace_words *words, trace_row *row)
{
    trace *whole = &builder->trace;
    const trace_block *last = find_block(builder, words->id);
    if (last && !last->freed)
        return trace_builder_refuse(builder, "id %" PRIu64 " is allocated twice, it is live since line %" PRIu32,
                                    words->id, line_of(builder, last->alloc_row));
    if (words->bytes > UINT64_MAX - builder->live_bytes)
        return trace_builder_refuse(builder, "the live bytes exceed 64 bits");
    trace_block *blocks =
        with_room(builder, whole->blocks, &builder->block_capacity, whole->block_count, sizeof *whole->blocks);
    if (!blocks)
        return false;
    whole->blocks = blocks;
    if (!make_room_for_id(builder))
        return false;
    row->block = whole->block_count++;
    row->previous = TRACE_NONE;
    whole->blocks[row->block] = (trace_block){
        .id = words->id,
        .bytes = words->bytes,
        .alloc_row = whole->row_count,
        .last_row = whole->row_count,
    };
    note_id(builder, words->id, row->block);
    whole->live_at_end++;
    builder->live_bytes += words->bytes;
    if (builder->live_bytes > whole->peak_live_bytes)
        whole->peak_live_bytes = builder->live_bytes;
    return true;
}

/* Enters a row that names a live block. False, with a reason, if there is no such block. */
static bool touch_block(trace_builder *builder, const trace_words *words, trace_row *row)
{
    trace *whole = &builder->trace;
    const char *what = trace_op_name(words->op);
    trace_block *block = find_block(builder, words->id);
    if (!block)
        return trace_builder_refuse(builder, "%s of id %" PRIu64 ", which was never allocated", what, words->id);
    if (block->freed)
        return trace_builder_refuse(builder, "%s of id %" PRIu64 ", which was freed on line %" PRIu32, what, words->id,
                                    line_of(builder, block->last_row));
    if (block->bytes != words->bytes)
        return trace_builder_refuse(
            builder, "%s of id %" PRIu64 " with %" PRIu64 " bytes; %" PRIu64 " were allocated on line %" PRIu32, what,
            words->id, words->bytes, block->bytes, line_of(builder, block->alloc_row));
    row->block = (uint32_t)(block - whole->blocks);
    row->previous = block->last_row;
    block->last_row = whole->row_count;
    if (words->op == TRACE_FREE) {
        block->freed = true;
        whole->live_at_end--;
        builder->live_bytes -= block->bytes;
    }
    return true;
}

static bool add_wait(trace_builder *builder, const trace_words *words, trace_row *row)
{
    row->previous = TRACE_NONE;
    if (!find_stream(builder, words->producer, &row->producer))
        return false;
    if (row->producer == row->stream)
        return trace_builder_refuse(builder, "stream %s waits for itself", words->stream);
    return true;
}

/* 292 years: with a time of day, nanoseconds still fit into 64 bits. */
static const uint64_t LONGEST_US = INT64_MAX / 1000;

static bool add_row(trace_builder *builder, const trace_words *words)
{
    trace *whole = &builder->trace;
    trace_row *rows = with_room(builder, whole->rows, &builder->row_capacity, whole->row_count, sizeof *whole->rows);
    if (!rows)
        return false;
    whole->rows = rows;
    if (whole->row_count == 0)
        builder->first_time_us = words->time_us;
    uint64_t since = words->time_us > builder->first_time_us ? words->time_us - builder->first_time_us : 0;
    if (since > LONGEST_US)
        return trace_builder_refuse(
            builder, "the time is %" PRIu64 " us after that of the first line; expected at most %" PRIu64, since,
            LONGEST_US);
    trace_row row = {.time_us = since, .line = words->line, .op = words->op, .access = words->access};
    bool added = find_stream(builder, words->stream, &row.stream);
    if (added && words->op == TRACE_ALLOC)
        added = add_block(builder, words, &row);
    else if (added && words->op == TRACE_WAIT)
        added = add_wait(builder, words, &row);
    else if (added && words->op == TRACE_SYNC)
        row.previous = TRACE_NONE;
    else if (added)
        added = touch_block(builder, words, &row);
    if (added)
        whole->rows[whole->row_count++] = row;
    return added;
}

bool trace_builder_add(trace_builder *builder, const trace_words *words)
{
    const bool added = add_row(builder, words);
    builder->contradicted |= !added;
    return added;
}

void trace_builder_drop(trace_builder *builder)
{
    free(builder->by_id);
    free(builder->streams);
    free(builder->by_stream);
    builder->by_id = NULL;
    builder->streams = NULL;
    builder->by_stream = NULL;
}

/* ---- fields of a line ---- */

const char *trace_op_name(trace_op op)
{
    static const char *const names[] = {"alloc", "free", "use", "wait", "sync"};
    return names[op];
}

size_t trace_split(char *line, char *fields[TRACE_FIELD_LIMIT])
{
    size_t count = 0;
    for (char *at = line; at; count++) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        if (count < TRACE_FIELD_LIMIT)
            fields[count] = at;
        at = comma;
    }
    return count;
}

bool trace_read_number(trace_builder *builder, const char *name, const char *text, uint64_t *out)
{
    if (!*text)
        return trace_builder_refuse(builder, "%s is missing", name);
    if (strspn(text, "0123456789") != strlen(text))
        return trace_builder_refuse(builder, "%s is \"%.40s\": expected a whole number", name, text);
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno)
        return trace_builder_refuse(builder, "%s is %.40s: expected at most 64 bits", name, text);
    *out = value;
    return true;
}
