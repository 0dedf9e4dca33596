/* Reading a trace: its lines, its format, and checks at the end. */
#include "tools/trace/trace.h"

#include "tools/line_reader.h"
#include "tools/log/log_reader.h"
#include "tools/trace/trace_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format of a file with this first line; NULL: unknown. */
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
    if (builder->trace.row_count == 0)
        return trace_builder_refuse(builder, "the trace holds no operation");
    return true;
}

static bool read_binary(line_reader *file, trace_builder *builder)
{
    size_t size;
    unsigned char *bytes = line_reader_take_all(file, &size);
    if (!bytes)
        return trace_builder_refuse(builder, "%s", file->problem);
    bool read = trace_log_read(builder, bytes, size);
    free(bytes);
    return read && check_rows(builder);
}

/* Skips the mark that some spreadsheets write. */
static void skip_byte_order_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t length = sizeof mark - 1;
    if (strncmp(line, mark, length) == 0)
        memmove(line, line + length, strlen(line + length) + 1);
}

static bool read_all(line_reader *lines, trace_builder *builder)
{
    uint64_t memory = 0;
    const trace_format *format = NULL;
    line_status status;
    while ((status = line_reader_next(lines)) == LINE_READ) {
        if (!format) {
            skip_byte_order_mark(lines->line);
            if (log_begins_with(lines->line))
                return read_binary(lines, builder);
            format = recognize(lines->line, &memory);
            if (!format)
                return trace_builder_refuse(builder, "expected one of the headers \"op,id,bytes,stream,time_us\", "
                                                     "\"op,id,bytes,stream,time_us,access\" and "
                                                     "\"Thread,Time,Action,Pointer,Size,Stream\", or a binary log");
        } else if (!*lines->line) {
            return trace_builder_refuse(builder, "an empty line");
        } else if (!format->row(builder, lines->line, lines->number, &memory)) {
            return false;
        }
    }
    if (status == LINE_ERROR)
        return trace_builder_refuse(builder, "%s", lines->problem);
    if (!format)
        return trace_builder_refuse(builder, "the file is empty");
    return check_rows(builder);
}

bool trace_read(const char *path, trace *out, trace_problem *problem)
{
    *out = (trace){0};
    bool read = false;
    trace_builder builder = {0};
    line_reader *lines = malloc(sizeof *lines);
    builder.trace.path = strdup(path);
    if (!lines || !builder.trace.path) {
        snprintf(problem->text, sizeof problem->text, "%s: no host memory", path);
        goto out;
    }
    if (!line_reader_open(lines, path)) {
        snprintf(problem->text, sizeof problem->text, "%s: %s", path, lines->problem);
        goto out;
    }
    read = read_all(lines, &builder);
    if (!read)
        snprintf(problem->text, sizeof problem->text, "%.480s:%" PRIu32 ": %s", path, lines->number, builder.reason);
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

void trace_free(trace *whole)
{
    free(whole->path);
    free(whole->rows);
    free(whole->blocks);
    whole->path = NULL;
    whole->rows = NULL;
    whole->blocks = NULL;
}
