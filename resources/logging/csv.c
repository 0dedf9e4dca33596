/* Records as CSV lines. In a tag, commas, quotes, backslashes and control characters are written as \x2c, so commas
 * only separate columns; invalid UTF-8 as U+FFFD. */
#include "resources/logging/csv.h"

#include "core/base/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *log_kind_name(strata_log_kind kind)
{
    static const char *const names[STRATA_LOG_KIND_LIMIT] = {
        [STRATA_LOG_ALLOCATE] = "allocate", [STRATA_LOG_DEALLOCATE] = "free",     [STRATA_LOG_COMPLETED] = "complete",
        [STRATA_LOG_REUSED] = "reuse",      [STRATA_LOG_PREPARE_USE] = "prepare", [STRATA_LOG_FINISH_USE] = "finish",
        [STRATA_LOG_RECORD_USE] = "use",    [STRATA_LOG_REAP] = "reap",           [STRATA_LOG_TRIM] = "trim",
        [STRATA_LOG_SYNCHRONIZE] = "sync",  [STRATA_LOG_CAPTURE] = "capture",     [STRATA_LOG_LAUNCH] = "launch",
        [STRATA_LOG_UPLOAD] = "upload",     [STRATA_LOG_UPDATE] = "update",
    };
    return kind > 0 && kind < STRATA_LOG_KIND_LIMIT ? names[kind] : "?";
}

const char *log_access_name(strata_access access)
{
    static const char *const names[] = {"", "read", "write", "read_write"};
    return names[access & 3];
}

static size_t put_tag(const char *tag, char *to)
{
    size_t length = 0, taken;
    for (const char *c = tag; *c; c += taken) {
        taken = strata_utf8_length(c);
        if (taken && strata_control_length(c)) {
            length += (size_t)sprintf(to + length, "\\x%02x", strata_control_code(c));
        } else if (taken > 1 || (taken && !strchr(",\"\\", *c))) {
            memcpy(to + length, c, taken);
            length += taken;
        } else if (taken) {
            length += (size_t)sprintf(to + length, "\\x%02x", (unsigned)(unsigned char)*c);
        } else {
            length += (size_t)sprintf(to + length, "%s", STRATA_UTF8_REPLACEMENT);
            taken = 1;
        }
    }
    return length;
}

/* Writes the local time, as RMM does. */
static size_t put_clock(uint64_t wall_ns, char *to, size_t room)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts = {0};
    localtime_r(&seconds, &parts);
    return (size_t)snprintf(to, room, "%02d:%02d:%02d.%06u", parts.tm_hour, parts.tm_min, parts.tm_sec,
                            (unsigned)(wall_ns % 1000000000 / 1000));
}

size_t log_csv_line(const strata_log_record *r, const char *tag, char to[LOG_CSV_ROOM])
{
    char clock[32];
    put_clock(r->wall_ns, clock, sizeof clock);
    size_t length = (size_t)snprintf(
        to, LOG_CSV_ROOM,
        "%" PRIu32 ",%s,%s%s,0x%" PRIx64 ",%" PRIu64 ",0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
        ",%" PRId32 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu64 ",%s,%s,%s%s%s,",
        r->thread_id, clock, log_kind_name(r->kind), r->status == STRATA_SUCCESS ? "" : " failure", r->address,
        r->requested, r->stream, r->wall_ns, r->monotonic_ns, r->thread, r->number, r->device, r->stream_id, r->bytes,
        r->alignment, r->slot, r->generation, log_access_name(r->access), strata_status_name(r->status),
        r->flags & STRATA_LOG_FLAG_COMPLETE ? "C" : "", r->flags & STRATA_LOG_FLAG_LAST ? "E" : "",
        r->flags & STRATA_LOG_FLAG_LATE ? "L" : "");
    if (r->flags & STRATA_LOG_FLAG_DURATION)
        length += (size_t)snprintf(to + length, LOG_CSV_ROOM - length, "%" PRIu64, r->duration_ns);
    to[length++] = ',';
    length += put_tag(tag, to + length);
    to[length++] = '\n';
    return length;
}
