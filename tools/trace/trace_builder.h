/* Putting a trace together row by row, with every check that does not depend on the kind of file. */
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
    uint32_t *by_id; /* hash table with open addressing: number of the last block of an id, plus 1 */
    size_t by_id_capacity;
    size_t by_id_count;
    trace_stream_name *streams;
    uint32_t last_stream;
    uint64_t live_bytes;
    uint64_t first_time_us;
    char reason[512]; /* why the last call failed */
} trace_builder;

/* A row as a file says it. */
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

/* Adds a row; false with a reason if it contradicts the rows before it. */
bool trace_builder_add(trace_builder *builder, const trace_words *words);

/* Writes the reason and returns false. */
bool trace_builder_refuse(trace_builder *builder, const char *format, ...) STRATA_PRINTF(2, 3);

/* The name of the stream that a live block was allocated on; NULL if there is no such block. */
const char *trace_builder_alloc_stream(trace_builder *builder, uint64_t id);

/* Whether a row has named the stream. */
bool trace_builder_knows_stream(const trace_builder *builder, const char *name);

void trace_builder_drop(trace_builder *builder);

/* ---- the kinds of file ---- */

enum { TRACE_FIELD_LIMIT = 24 };

/* Cuts `line` at its commas. Returns how many fields there are; those beyond TRACE_FIELD_LIMIT are only counted. */
size_t trace_split(char *line, char *fields[TRACE_FIELD_LIMIT]);

/* Reads all of `text` as an unsigned number in decimal digits; `name` is for the reason. */
bool trace_read_number(trace_builder *builder, const char *name, const char *text, uint64_t *out);

/* Whether this is the first line of such a file, and reading one of its other lines, which is cut up. A reader keeps
 * what it must remember between lines in *memory, which starts at zero. */
typedef struct trace_format {
    bool (*begins)(const char *line, uint64_t *memory);
    bool (*row)(trace_builder *builder, char *line, uint32_t number, uint64_t *memory);
} trace_format;

extern const trace_format trace_format_csv; /* trace_csv.c */
extern const trace_format trace_format_rmm; /* trace_rmm.c */
extern const trace_format trace_format_log; /* trace_log.c: the CSV of the logging layer */

/* Reads a binary log, out of memory. */
bool trace_log_read(trace_builder *builder, const void *bytes, size_t size);

#endif
