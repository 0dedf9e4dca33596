/* Filters of `strata log`. */
#include "tools/log/log_filter.h"

#include "core/base/size_text.h"
#include "resources/logging/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_NS UINT64_C(1000000000)

static bool read_kind(const char *word, size_t length, unsigned *kinds)
{
    for (int kind = 1; kind < STRATA_LOG_KIND_LIMIT; kind++) {
        const char *name = log_kind_name((strata_log_kind)kind);
        if (strlen(name) == length && strncmp(word, name, length) == 0) {
            *kinds |= 1u << kind;
            return true;
        }
    }
    return false;
}

bool log_filter_read_kinds(const char *text, unsigned *kinds)
{
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        if (!read_kind(word, length, kinds))
            return false;
        word += length;
        if (!*word)
            return true;
    }
}

/* ---- moments ---- */

static bool read_fraction(const char *text, uint64_t *ns)
{
    *ns = 0;
    if (!*text)
        return true;
    if (*text++ != '.')
        return false;
    uint64_t unit = SECOND_NS / 10;
    for (; *text >= '0' && *text <= '9'; text++, unit /= 10)
        *ns += (uint64_t)(*text - '0') * unit;
    return !*text;
}

static bool read_clock(const char *text, struct tm *parts, uint64_t *ns)
{
    int used = 0;
    if (sscanf(text, "%2d:%2d:%2d%n", &parts->tm_hour, &parts->tm_min, &parts->tm_sec, &used) != 3)
        return false;
    bool fits = parts->tm_hour >= 0 && parts->tm_hour < 24 && parts->tm_min >= 0 && parts->tm_min < 60 &&
                parts->tm_sec >= 0 && parts->tm_sec < 61;
    return fits && read_fraction(text + used, ns);
}

/* Whether there is such a day; months count from 1. */
static bool is_date(const struct tm *written)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int year = written->tm_year, month = written->tm_mon;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month >= 1 && month <= 12 && written->tm_mday >= 1 &&
           written->tm_mday <= days[month - 1] + (month == 2 && leap);
}

/* A moment in nanoseconds, at most the last one that fits, on 2554-07-21. */
static uint64_t wall_of(time_t seconds, uint64_t ns)
{
    return (uint64_t)seconds < UINT64_MAX / SECOND_NS ? (uint64_t)seconds * SECOND_NS + ns : UINT64_MAX;
}

bool log_filter_read_moment(const char *text, log_moment *out)
{
    struct tm parts = {.tm_isdst = -1};
    int used = 0;
    uint64_t ns;
    if (read_clock(text, &parts, &ns)) {
        out->kind = LOG_MOMENT_OF_DAY;
        out->ns = (uint64_t)(parts.tm_hour * 3600 + parts.tm_min * 60 + parts.tm_sec) * SECOND_NS + ns;
        return true;
    }
    if (sscanf(text, "%4d-%2d-%2dT%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &used) == 3 && used &&
        is_date(&parts) && read_clock(text + used, &parts, &ns)) {
        parts.tm_year -= 1900;
        parts.tm_mon--;
        time_t seconds = mktime(&parts);
        out->kind = LOG_MOMENT_WALL;
        out->ns = wall_of(seconds, ns);
        return seconds >= 0;
    }
    out->kind = LOG_MOMENT_SINCE_START;
    return strata_read_duration(text, strlen(text), &out->ns);
}

/* A time of day on a moment's day, local time. That day may have 23 or 25 hours. */
static uint64_t on_day_of(uint64_t wall_ns, uint64_t of_day_ns)
{
    const time_t seconds = (time_t)(wall_ns / SECOND_NS);
    const int of_day = (int)(of_day_ns / SECOND_NS);
    struct tm parts = {0};
    localtime_r(&seconds, &parts);
    parts.tm_hour = of_day / 3600;
    parts.tm_min = of_day / 60 % 60;
    parts.tm_sec = of_day % 60;
    parts.tm_isdst = -1;
    return wall_of(mktime(&parts), of_day_ns % SECOND_NS);
}

static uint64_t resolve(const log_moment *moment, uint64_t first, uint64_t none)
{
    switch (moment->kind) {
    case LOG_MOMENT_SINCE_START:
        return moment->ns > UINT64_MAX - first ? UINT64_MAX : first + moment->ns;
    case LOG_MOMENT_OF_DAY:
        return on_day_of(first, moment->ns);
    case LOG_MOMENT_WALL:
        return moment->ns;
    case LOG_MOMENT_NONE:
        break;
    }
    return none;
}

void log_filter_begin(log_filter *choice, uint64_t first_wall_ns)
{
    choice->from_ns = resolve(&choice->from, first_wall_ns, 0);
    choice->to_ns = resolve(&choice->to, first_wall_ns, UINT64_MAX);
}

/* ---- records ---- */

static bool is_stream(const strata_log_record *record, const char *text)
{
    char *end;
    if (strcmp(text, "gone") == 0)
        return record->stream == UINT64_MAX;
    bool handle = strncmp(text, "0x", 2) == 0;
    uint64_t number = strtoull(text, &end, handle ? 16 : 10);
    return !*end && (handle ? record->stream == number : record->stream_id == number);
}

bool log_filter_takes(const log_filter *choice, const strata_log_record *record)
{
    if (choice->kinds && !(choice->kinds >> record->kind & 1))
        return false;
    if (choice->failed && record->status == STRATA_SUCCESS)
        return false;
    if (choice->tag && strcmp(choice->tag, strata_tag_name(record->tag)) != 0)
        return false;
    if (choice->stream && !is_stream(record, choice->stream))
        return false;
    if (choice->has_thread && record->thread != choice->thread && record->thread_id != choice->thread)
        return false;
    return record->requested >= choice->min_size && record->wall_ns >= choice->from_ns &&
           record->wall_ns <= choice->to_ns;
}
