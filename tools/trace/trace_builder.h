/* Building a trace row by row, with the checks common to all formats. */
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
    uint32_t *by_id; /* open addressing: last block of an id, plus 1 */
    size_t by_id_capacity;
    size_t by_id_count;
    trace_stream_name *streams;
    uint16_t *by_stream; /* open-addressing hash table: a stream's number, plus 1 */
    uint32_t last_stream;
    uint64_t live_bytes;
    uint64_t first_time_us;
    uint64_t most; /* bytes of host memory for the trace */
    bool too_large;
    bool contradicted; /* a row was read, and could not be added */
    char reason[512];  /* why the last call failed */
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

/* False, with a reason, if the row contradicts earlier ones. */
bool trace_builder_add(trace_builder *builder, const trace_words *words);

/* Sets the reason, and returns false. */
bool trace_builder_refuse(trace_builder *builder, const char *format, ...) STRATA_PRINTF(2, 3);

/* The stream that a live block was allocated on; NULL: there is no such block. *bytes: its size, unless `bytes` is
 * NULL. */
const char *trace_builder_alloc_stream(trace_builder *builder, uint64_t id, uint64_t *bytes);

/* Whether an earlier row named the stream. */
bool trace_builder_knows_stream(const trace_builder *builder, const char *name);

/* Whether `text` is the beginning of the name of a stream that a row named, and not all of one. */
bool trace_builder_begins_stream(const trace_builder *builder, const char *text);

void trace_builder_drop(trace_builder *builder);

/* ---- file formats ---- */

enum { TRACE_FIELD_LIMIT = 24 };

/* Splits `line` at commas. Returns the number of fields; those beyond TRACE_FIELD_LIMIT are only counted. */
size_t trace_split(char *line, char *fields[TRACE_FIELD_LIMIT]);

/* Reads a text that is an unsigned decimal number as a whole. False, with a reason in which `name` stands for it. */
bool trace_read_number(trace_builder *builder, const char *name, const char *text, uint64_t *out);

/* `begins`: whether a line is the format's first. `row` reads a further line, which it modifies. *memory is the
 * reader's state, zero at first. */
typedef struct trace_format {
    bool (*begins)(const char *line, uint64_t *memory);
    bool (*row)(trace_builder *builder, char *line, uint32_t number, uint64_t *memory);
    bool recorded;    /* a program's log: its last line may be cut off, and its compressed file too */
    bool stream_last; /* the last column is the stream */
} trace_format;

extern const trace_format trace_format_csv;
extern const trace_format trace_format_rmm;
extern const trace_format trace_format_log; /* CSV of the layer `logging` */

struct line_reader;
bool trace_log_read(trace_builder *builder, struct line_reader *file);

#endif
