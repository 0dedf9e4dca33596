/* Logs of RMM's logging_resource_adaptor: `Thread,Time,Action,Pointer,Size,Stream`.
 *
 * Time is the wall clock, HH:MM:SS.microseconds, restarting at midnight. Pointers are ids; a stream is any text.
 *
 * A log may begin after its program. RMM writes a line after the call: another thread may allocate a freed address, and
 * log that, before the free is logged. So a free without its allocation is counted and left out, and a missing free is
 * added where the address is allocated again. */
#include "tools/trace/trace_builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_US (UINT64_C(24) * 3600 * 1000000)

/* The reader's state: the previous row's microseconds since the first midnight. */
static bool begins(const char *line, uint64_t *memory)
{
    (void)memory;
    return strcmp(line, "Thread,Time,Action,Pointer,Size,Stream") == 0;
}

static bool two_digits(const char **at, unsigned limit, uint64_t *out)
{
    const char *text = *at;
    if (text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9')
        return false;
    *out = (uint64_t)(text[0] - '0') * 10 + (uint64_t)(text[1] - '0');
    *at = text + 2;
    return *out < limit;
}

static bool one_of(const char **at, const char *set)
{
    if (!**at || !strchr(set, **at))
        return false;
    ++*at;
    return true;
}

static bool read_clock(const char *text, uint64_t *out)
{
    uint64_t hours, minutes, seconds;
    if (!two_digits(&text, 24, &hours) || !one_of(&text, ":") || !two_digits(&text, 60, &minutes) ||
        !one_of(&text, ":") || !two_digits(&text, 61, &seconds) || !one_of(&text, ".:"))
        return false;
    if (strlen(text) != 6 || strspn(text, "0123456789") != 6)
        return false;
    *out = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + strtoull(text, NULL, 10);
    return true;
}

/* Threads' rows may be slightly out of order; a clock that goes back by half a day passed midnight. */
static bool read_time(trace_builder *builder, const char *text, uint64_t *memory, uint64_t *out)
{
    uint64_t clock;
    if (!read_clock(text, &clock))
        return trace_builder_refuse(builder, "Time is \"%.40s\": expected HH:MM:SS.microseconds", text);
    uint64_t days = *memory / DAY_US;
    uint64_t before = *memory % DAY_US;
    if (clock + DAY_US / 2 < before)
        days++;
    else if (days && clock > before + DAY_US / 2)
        days--;
    *out = days * DAY_US + clock;
    *memory = *out;
    return true;
}

static bool read_pointer(trace_builder *builder, const char *text, uint64_t *out)
{
    if (strcmp(text, "(nil)") == 0) {
        *out = 0;
        return true;
    }
    const char *digits = strncmp(text, "0x", 2) == 0 ? text + 2 : text;
    size_t length = strlen(digits);
    if (length == 0 || length > 16 || strspn(digits, "0123456789abcdefABCDEF") != length)
        return trace_builder_refuse(builder, "Pointer is \"%.40s\": expected a 64-bit address in hexadecimal", text);
    *out = strtoull(digits, NULL, 16);
    return true;
}

/* Enters an allocation, after the free that the log lacks if the address is still live. */
static bool add_allocation(trace_builder *builder, const trace_words *words)
{
    trace_words missing = {.op = TRACE_FREE, .line = words->line, .id = words->id, .time_us = words->time_us};
    missing.stream = trace_builder_alloc_stream(builder, words->id, &missing.bytes);
    if (missing.stream && !trace_builder_add(builder, &missing))
        return false;
    builder->trace.recorded_unfreed += missing.stream != NULL;
    return trace_builder_add(builder, words);
}

static bool add_free(trace_builder *builder, const trace_words *words)
{
    uint64_t bytes;
    if (trace_builder_alloc_stream(builder, words->id, &bytes) && bytes == words->bytes)
        return trace_builder_add(builder, words);
    builder->trace.recorded_strays++;
    return true;
}

static bool row(trace_builder *builder, char *line, uint32_t number, uint64_t *memory)
{
    char *fields[TRACE_FIELD_LIMIT];
    size_t count = trace_split(line, fields);
    if (count != 6)
        return trace_builder_refuse(builder, "%zu columns: expected 6 (Thread,Time,Action,Pointer,Size,Stream)", count);
    trace_words words = {.line = number, .stream = fields[5]};
    const char *action = fields[2];
    bool failure = strcmp(action, "allocate failure") == 0;
    if (!*fields[0])
        return trace_builder_refuse(builder, "Thread is missing");
    if (!*fields[5])
        return trace_builder_refuse(builder, "Stream is missing");
    if (strcmp(action, "allocate") == 0)
        words.op = TRACE_ALLOC;
    else if (strcmp(action, "free") == 0)
        words.op = TRACE_FREE;
    else if (!failure)
        return trace_builder_refuse(builder, "Action is \"%.40s\": expected allocate, free or allocate failure",
                                    action);
    if (!read_time(builder, fields[1], memory, &words.time_us) || !read_pointer(builder, fields[3], &words.id) ||
        !trace_read_number(builder, "Size", fields[4], &words.bytes))
        return false;
    if (failure) {
        builder->trace.recorded_failures++;
        return true;
    }
    /* A block of zero bytes has no address as an id. */
    if (words.bytes == 0 && words.id == 0)
        return true;
    return (words.op == TRACE_ALLOC ? add_allocation : add_free)(builder, &words);
}

const trace_format trace_format_rmm = {begins, row, true, true};
