/* Reading a trace: lines, format, final checks. */
#include "tools/trace/trace.h"

#include "tools/line_reader.h"
#include "tools/log/log_reader.h"
#include "tools/plain_text.h"
#include "tools/trace/trace_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format of a file, by its first line; NULL: unknown. */
static const trace_format *recognize(const char *line, uint64_t *memory)
{
    static const trace_format *const formats[] = {&trace_format_csv, &trace_format_rmm, &trace_format_log};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i]->begins(line, memory))
            return formats[i];
    return NULL;
}

static bool check_rows(trace_builder *builder)
{
    const trace *of = &builder->trace;
    if (of->row_count)
        return true;
    if (of->recorded_strays)
        return trace_builder_refuse(builder,
                                    "no operation to replay: the log has no allocation, and %" PRIu32
                                    " frees and uses of blocks allocated before it",
                                    of->recorded_strays);
    return trace_builder_refuse(builder, "the trace has no operations");
}

/* Skips the mark that some spreadsheets write. */
static void skip_byte_order_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t length = sizeof mark - 1;
    if (strncmp(line, mark, length) == 0)
        memmove(line, line + length, strlen(line + length) + 1);
}

/* Whether a line without a line end is the end of a log that was cut off: the line was not `read`, or ends with
 * the beginning of a stream's name. */
static bool is_cut_line(const trace_format *format, const line_reader *lines, const trace_builder *builder, bool read)
{
    const char *last = strrchr(lines->line, ',');
    if (!format->recorded || lines->complete || builder->contradicted)
        return false;
    return !read || (format->stream_last && last && trace_builder_begins_stream(builder, last + 1));
}

/* Reads a line after the first one. The last line of a log may be cut off; such a line is counted. */
static bool read_line(const line_reader *lines, const trace_format *format, trace_builder *builder, uint64_t *memory)
{
    const size_t length = strlen(lines->line);
    char line[LINE_LIMIT];
    if (!format->recorded && lines->cut)
        return trace_builder_refuse(builder, "%s", lines->problem);
    if (!length)
        return trace_builder_refuse(builder, "empty line");
    if (is_cut_line(format, lines, builder, true)) {
        builder->trace.recorded_torn = length;
        return true;
    }
    memcpy(line, lines->line, length + 1); /* the format changes it */
    if (format->row(builder, line, lines->number, memory))
        return true;
    if (!is_cut_line(format, lines, builder, false))
        return false;
    builder->trace.recorded_torn = length;
    return true;
}

static bool read_all(line_reader *lines, trace_builder *builder)
{
    uint64_t memory = 0;
    const trace_format *format = NULL;
    line_status status;
    while ((status = line_reader_next(lines)) == LINE_READ) {
        if (format && !read_line(lines, format, builder, &memory))
            return false;
        if (format)
            continue;
        skip_byte_order_mark(lines->line);
        if (log_begins_with(lines->line)) {
            line_reader_rewind(lines);
            return trace_log_read(builder, lines) && check_rows(builder);
        }
        format = recognize(lines->line, &memory);
        if (!format && lines->cut)
            return trace_builder_refuse(builder, "%s", lines->problem);
        if (!format)
            return trace_builder_refuse(builder, "expected one of the headers \"op,id,bytes,stream,time_us\", "
                                                 "\"op,id,bytes,stream,time_us,access\" and "
                                                 "\"Thread,Time,Action,Pointer,Size,Stream\", or a binary log");
    }
    if (status == LINE_ERROR || (lines->cut && !(format && format->recorded)))
        return trace_builder_refuse(builder, "%s", lines->problem);
    if (!format)
        return trace_builder_refuse(builder, "the file is empty");
    builder->trace.recorded_cut = lines->cut;
    return check_rows(builder);
}

bool trace_read_within(const char *path, uint64_t most, trace *out, trace_problem *problem)
{
    *out = (trace){0};
    *problem = (trace_problem){0};
    bool read = false;
    trace_builder builder = {.most = most};
    line_reader *lines = malloc(sizeof *lines);
    builder.trace.path = strdup(path);
    if (!lines || !builder.trace.path) {
        snprintf(problem->text, sizeof problem->text, "%.480s: out of host memory", plain(path).text);
        goto out;
    }
    if (!line_reader_open(lines, path)) {
        snprintf(problem->text, sizeof problem->text, "%.480s: %s", plain(path).text, lines->problem);
        goto out;
    }
    read = read_all(lines, &builder);
    problem->too_large = builder.too_large;
    if (!read)
        snprintf(problem->text, sizeof problem->text, "%.480s:%" PRIu32 ": %s", plain(path).text, lines->number,
                 builder.reason);
    line_reader_close(lines);
out:
    free(lines);
    trace_builder_drop(&builder);
    if (read)
        *out = builder.trace;
    else
        trace_free(&builder.trace);
    return read;
}

bool trace_read(const char *path, trace *out, trace_problem *problem)
{
    return trace_read_within(path, TRACE_MEMORY, out, problem);
}

void trace_free(trace *whole)
{
    free(whole->path);
    free(whole->rows);
    free(whole->blocks);
    whole->path = NULL;
    whole->rows = NULL;
    whole->blocks = NULL;
}
