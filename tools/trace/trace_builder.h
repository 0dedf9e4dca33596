/* Building a trace row by row, with the checks that all formats share. */
#ifndef STRATA_TOOLS_TRACE_TRACE_BUILDER_H
#define STRATA_TOOLS_TRACE_TRACE_BUILDER_H

#include "tools/trace/trace.h"

typedef struct trace_stream_name {
    char text[32];
} trace_stream_name;

typedef struct trace_builder {
    trace trace;
    uint32_t row_capacity;
    uint32_t block_capacity;
    uint32_t *by_id; /* open-addressing hash table: last block of an id, plus 1 */
    size_t by_id_capacity;
    size_t by_id_count;
    trace_stream_name *streams;
    uint32_t last_stream;
    uint64_t live_bytes;
    uint64_t first_time_us;
    char reason[512]; /* why the last call failed */
} trace_builder;

/* A row as in the file. */
typedef struct trace_words {
    trace_op op;
    strata_access access;
    uint32_t line;
    uint64_t id;
    uint64_t bytes;
    uint64_t time_us;
    const char *stream;
    const char *producer; /* TRACE_WAIT */
} trace_words;

/* Adds a row. False with a reason if it contradicts earlier rows. */
bool trace_builder_add(trace_builder *builder, const trace_words *words);

/* Stores the reason and returns false. */
bool trace_builder_refuse(trace_builder *builder, const char *format, ...) STRATA_PRINTF(2, 3);

/* The allocation stream of a live block; NULL: no such block. */
const char *trace_builder_alloc_stream(trace_builder *builder, uint64_t id);

/* Whether a row named the stream. */
bool trace_builder_knows_stream(const trace_builder *builder, const char *name);

void trace_builder_drop(trace_builder *builder);

/* ---- file formats ---- */

enum { TRACE_FIELD_LIMIT = 24 };

/* Splits `line` at its commas. Returns the number of fields; those beyond TRACE_FIELD_LIMIT are only counted. */
size_t trace_split(char *line, char *fields[TRACE_FIELD_LIMIT]);

/* Reads all of `text` as an unsigned decimal number; `name` is for the reason. */
bool trace_read_number(trace_builder *builder, const char *name, const char *text, uint64_t *out);

/* A format: whether a line is its first one, and reading a further line, which is modified. *memory keeps the reader's
 * state between lines; it starts at zero. */
typedef struct trace_format {
    bool (*begins)(const char *line, uint64_t *memory);
    bool (*row)(trace_builder *builder, char *line, uint32_t number, uint64_t *memory);
} trace_format;

extern const trace_format trace_format_csv; /* trace_csv.c */
extern const trace_format trace_format_rmm; /* trace_rmm.c */
extern const trace_format trace_format_log; /* trace_log.c: CSV of the layer `logging` */

/* Reads a binary log from memory. */
bool trace_log_read(trace_builder *builder, const void *bytes, size_t size);

#endif
