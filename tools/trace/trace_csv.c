/* Strata's traces: `op,id,bytes,stream,time_us`, optionally followed by `access`. */
#include "tools/trace/trace_builder.h"

#include <string.h>

/* The reader's state is the number of columns. */
static bool begins(const char *line, uint64_t *memory)
{
    if (strcmp(line, "op,id,bytes,stream,time_us") == 0)
        *memory = 5;
    else if (strcmp(line, "op,id,bytes,stream,time_us,access") == 0)
        *memory = 6;
    return *memory != 0;
}

static bool read_op(trace_builder *builder, const char *text, trace_op *out)
{
    for (*out = TRACE_ALLOC; *out <= TRACE_SYNC; (*out)++)
        if (strcmp(text, trace_op_name(*out)) == 0)
            return true;
    return trace_builder_refuse(builder, "op is \"%.40s\": expected alloc, free, use, wait or sync", text);
}

static bool read_access(trace_builder *builder, const char *text, trace_words *words)
{
    static const struct {
        const char *word;
        strata_access access;
    } known[] = {
        {"", STRATA_ACCESS_READ},
        {"read", STRATA_ACCESS_READ},
        {"write", STRATA_ACCESS_WRITE},
        {"read_write", STRATA_ACCESS_READ_WRITE},
    };
    if (words->op != TRACE_USE) {
        if (*text)
            return trace_builder_refuse(builder, "access is \"%.40s\": only a use has one", text);
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].word) == 0) {
            words->access = known[i].access;
            return true;
        }
    }
    return trace_builder_refuse(builder, "access is \"%.40s\": expected read, write or read_write", text);
}

/* Streams are numbers: 07 equals 7. */
static const char *stream_name(const char *digits)
{
    while (digits[0] == '0' && digits[1])
        digits++;
    return digits;
}

static bool row(trace_builder *builder, char *line, uint32_t number, uint64_t *memory)
{
    char *fields[TRACE_FIELD_LIMIT];
    size_t columns = (size_t)*memory;
    size_t count = trace_split(line, fields);
    if (count != columns)
        return trace_builder_refuse(builder, "%zu columns: expected %zu (op,id,bytes,stream,time_us%s)", count, columns,
                                    columns == 6 ? ",access" : "");
    trace_words words = {.line = number};
    uint64_t stream;
    if (!read_op(builder, fields[0], &words.op) || !trace_read_number(builder, "id", fields[1], &words.id) ||
        !trace_read_number(builder, "bytes", fields[2], &words.bytes) ||
        !trace_read_number(builder, "stream", fields[3], &stream) ||
        !trace_read_number(builder, "time_us", fields[4], &words.time_us) ||
        !read_access(builder, columns == 6 ? fields[5] : "", &words))
        return false;
    if ((words.op == TRACE_WAIT || words.op == TRACE_SYNC) && words.bytes != 0)
        return trace_builder_refuse(builder, "bytes is %s: expected 0 for a %s", fields[2], trace_op_name(words.op));
    if (words.op == TRACE_SYNC && words.id != 0)
        return trace_builder_refuse(builder, "id is %s: expected 0 for a sync", fields[1]);
    words.stream = stream_name(fields[3]);
    words.producer = stream_name(fields[1]);
    return trace_builder_add(builder, &words);
}

const trace_format trace_format_csv = {begins, row, false, false};
