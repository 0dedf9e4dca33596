/* Building a trace. A hash table maps each id to its last block. */
#include "tools/trace/trace_builder.h"

#include "core/base/escape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return trace_builder_refuse(builder, "no host memory for a trace of this length");
}

/* The array with room for one more element of `size` bytes; NULL, leaving it unchanged, without host memory. */
static void *with_room(void *array, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count < *capacity)
        return array;
    if (count >= UINT32_MAX / 2)
        return NULL;
    uint32_t wanted = *capacity ? *capacity * 2 : 4096;
    void *grown = realloc(array, wanted * size);
    if (grown)
        *capacity = wanted;
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
    grown.by_id = calloc(grown.by_id_capacity, sizeof *grown.by_id);
    if (!grown.by_id)
        return false;
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

const char *trace_builder_alloc_stream(trace_builder *builder, uint64_t id)
{
    const trace_block *block = find_block(builder, id);
    return block && !block->freed ? builder->streams[builder->trace.rows[block->alloc_row].stream].text : NULL;
}

static uint32_t line_of(const trace_builder *builder, uint32_t row)
{
    return builder->trace.rows[row].line;
}

/* ---- streams ---- */

/* The stream's number; the next number if it is new. */
static uint32_t number_of_stream(const trace_builder *builder, const char *text)
{
    const uint32_t count = builder->trace.stream_count;
    uint32_t number = builder->last_stream;
    if (count && strcmp(builder->streams[number].text, text) == 0)
        return number;
    for (number = 0; number < count && strcmp(builder->streams[number].text, text) != 0; number++)
        ;
    return number;
}

bool trace_builder_knows_stream(const trace_builder *builder, const char *name)
{
    return number_of_stream(builder, name) < builder->trace.stream_count;
}

static bool find_stream(trace_builder *builder, const char *text, uint32_t *out)
{
    const uint32_t count = builder->trace.stream_count;
    *out = number_of_stream(builder, text);
    if (*out < count) {
        builder->last_stream = *out;
        return true;
    }
    if (strlen(text) >= sizeof builder->streams->text)
        return trace_builder_refuse(builder, "the name of a stream is longer than %zu characters",
                                    sizeof builder->streams->text - 1);
    if (count == TRACE_STREAM_LIMIT)
        return trace_builder_refuse(builder, "more than %d streams", TRACE_STREAM_LIMIT);
    if (!builder->streams)
        builder->streams = calloc(TRACE_STREAM_LIMIT, sizeof *builder->streams);
    if (!builder->streams)
        return no_memory(builder);
    strcpy(builder->streams[count].text, text);
    builder->last_stream = count;
    builder->trace.stream_count++;
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
        return trace_builder_refuse(builder, "the live bytes do not fit into 64 bits");
    trace_block *blocks = with_room(whole->blocks, &builder->block_capacity, whole->block_count, sizeof *whole->blocks);
    if (!blocks)
        return no_memory(builder);
    whole->blocks = blocks;
    if (!make_room_for_id(builder))
        return no_memory(builder);
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

/* Enters a row that names a live block. */
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

bool trace_builder_add(trace_builder *builder, const trace_words *words)
{
    trace *whole = &builder->trace;
    trace_row *rows = with_room(whole->rows, &builder->row_capacity, whole->row_count, sizeof *whole->rows);
    if (!rows)
        return no_memory(builder);
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

void trace_builder_drop(trace_builder *builder)
{
    free(builder->by_id);
    free(builder->streams);
    builder->by_id = NULL;
    builder->streams = NULL;
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
        return trace_builder_refuse(builder, "%s is %.40s: it does not fit into 64 bits", name, text);
    *out = value;
    return true;
}
