/* Records as a table, CSV or JSON, and their totals. */
#include "tools/log/log_print.h"

#include "core/base/escape.h"
#include "resources/logging/csv.h"
#include "tools/json_values.h"
#include "tools/size_words.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* ---- table ---- */

static void table_begin(FILE *to)
{
    fprintf(to, "%-15s %8s %8s %-16s %14s %12s %12s %-14s %8s  %s\n", "time", "thread", "number", "what", "address",
            "requested", "usable", "stream", "block", "tag, and more");
}

typedef struct cell {
    char text[48];
} cell;

static cell clock_cell(uint64_t wall_ns)
{
    cell out;
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts = {0};
    localtime_r(&seconds, &parts);
    snprintf(out.text, sizeof out.text, "%02d:%02d:%02d.%06u", parts.tm_hour, parts.tm_min, parts.tm_sec,
             (unsigned)(wall_ns % 1000000000 / 1000));
    return out;
}

static cell stream_cell(const strata_log_record *record)
{
    cell out;
    bool none = record->kind == STRATA_LOG_REAP || record->kind == STRATA_LOG_TRIM ||
                record->kind == STRATA_LOG_COMPLETED || record->kind == STRATA_LOG_REUSED;
    if (none)
        snprintf(out.text, sizeof out.text, "-");
    else if (record->stream == UINT64_MAX)
        snprintf(out.text, sizeof out.text, "gone");
    else
        snprintf(out.text, sizeof out.text, "0x%" PRIx64, record->stream);
    return out;
}

static cell kind_cell(const strata_log_record *record)
{
    cell out;
    snprintf(out.text, sizeof out.text, "%s%s%s", log_kind_name(record->kind), record->access ? " " : "",
             log_access_name(record->access));
    return out;
}

static void print_more(FILE *to, const strata_log_record *record)
{
    char tag[1024];
    strata_escape(tag, sizeof tag, strata_tag_name(record->tag));
    fprintf(to, "%s", *tag ? tag : "-");
    if (record->flags & STRATA_LOG_FLAG_COMPLETE)
        fprintf(to, ", complete");
    if (record->flags & STRATA_LOG_FLAG_LATE)
        fprintf(to, ", late");
    if (record->alignment)
        fprintf(to, ", aligned to %" PRIu64, record->alignment);
    if (record->flags & STRATA_LOG_FLAG_DURATION)
        fprintf(to, ", %s", words_of_duration(record->duration_ns).text);
    if (record->status != STRATA_SUCCESS)
        fprintf(to, ", %s", strata_status_name(record->status));
    fputc('\n', to);
}

static bool table_record(FILE *to, const strata_log_record *r)
{
    fprintf(to,
            "%-15s %8" PRIu32 " %8" PRIu64 " %-16s %14" PRIx64 " %12" PRIu64 " %12" PRIu64 " %-14s %4" PRIu32
            ".%-4" PRIu64 " ",
            clock_cell(r->wall_ns).text, r->thread_id, r->number, kind_cell(r).text, r->address, r->requested, r->bytes,
            stream_cell(r).text, r->slot, r->generation);
    print_more(to, r);
    return !ferror(to);
}

const log_style log_style_table = {table_begin, table_record};

/* ---- CSV ---- */

static void csv_begin(FILE *to)
{
    fputs(LOG_CSV_HEADER "\n", to);
}

static bool csv_record(FILE *to, const strata_log_record *record)
{
    char line[LOG_CSV_ROOM];
    fwrite(line, 1, log_csv_line(record, strata_tag_name(record->tag), line), to);
    return !ferror(to);
}

const log_style log_style_csv = {csv_begin, csv_record};

/* ---- JSON ---- */

static void json_begin(FILE *to)
{
    (void)to;
}

/* As strings: JSON readers may keep only 53 bits of a number. */
static int set_hex(json_t *object, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "0x%" PRIx64, value);
    return json_object_set_new(object, key, json_string(text));
}

static json_t *tag_of(const strata_log_record *record)
{
    char room[1024];
    return json_string(json_plain(strata_tag_name(record->tag), room, sizeof room));
}

static bool write_object(FILE *to, json_t *object, bool complete)
{
    bool written = object && complete && json_dumpf(object, to, JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
    fputc('\n', to);
    json_decref(object);
    return written;
}

static bool json_record(FILE *to, const strata_log_record *r)
{
    json_t *object = json_object();
    int failed = json_set_number(object, "wall_ns", r->wall_ns);
    failed |= json_set_number(object, "monotonic_ns", r->monotonic_ns);
    failed |= json_set_number(object, "thread", r->thread);
    failed |= json_set_number(object, "thread_id", r->thread_id);
    failed |= json_set_number(object, "number", r->number);
    failed |= json_object_set_new(object, "kind", json_string(log_kind_name(r->kind)));
    failed |= json_object_set_new(object, "status", json_string(strata_status_name(r->status)));
    failed |= set_hex(object, "address", r->address);
    failed |= json_set_number(object, "requested", r->requested);
    failed |= json_set_number(object, "bytes", r->bytes);
    failed |= json_set_number(object, "alignment", r->alignment);
    failed |= set_hex(object, "stream", r->stream);
    failed |= json_set_number(object, "stream_id", r->stream_id);
    failed |= json_set_number(object, "slot", r->slot);
    failed |= json_set_number(object, "generation", r->generation);
    failed |= json_object_set_new(object, "device", json_integer(r->device));
    failed |= json_object_set_new(object, "tag", tag_of(r));
    failed |= json_object_set_new(object, "access", json_string(log_access_name(r->access)));
    failed |= json_object_set_new(object, "complete", json_boolean((r->flags & STRATA_LOG_FLAG_COMPLETE) != 0));
    failed |= json_object_set_new(object, "last", json_boolean((r->flags & STRATA_LOG_FLAG_LAST) != 0));
    failed |= json_object_set_new(object, "late", json_boolean((r->flags & STRATA_LOG_FLAG_LATE) != 0));
    if (r->flags & STRATA_LOG_FLAG_DURATION)
        failed |= json_set_number(object, "duration_ns", r->duration_ns);
    return write_object(to, object, failed == 0);
}

const log_style log_style_json = {json_begin, json_record};

/* ---- totals ---- */

static void count_block(log_totals *totals, const strata_log_record *record)
{
    if (record->kind == STRATA_LOG_ALLOCATE) {
        totals->live += record->bytes;
        totals->live_blocks++;
        totals->peak = totals->live > totals->peak ? totals->live : totals->peak;
    } else if (record->kind == STRATA_LOG_DEALLOCATE) {
        bool complete = (record->flags & STRATA_LOG_FLAG_COMPLETE) != 0;
        totals->live -= record->bytes < totals->live ? record->bytes : totals->live;
        totals->live_blocks -= totals->live_blocks != 0;
        totals->pending += complete ? 0 : record->bytes;
    } else if (record->kind == STRATA_LOG_COMPLETED || record->kind == STRATA_LOG_REUSED) {
        totals->pending -= record->bytes < totals->pending ? record->bytes : totals->pending;
    }
}

void log_totals_add(log_totals *totals, const strata_log_record *record)
{
    bool failed = record->status != STRATA_SUCCESS;
    if (totals->records++ == 0)
        totals->first_ns = record->wall_ns;
    totals->last_ns = record->wall_ns > totals->last_ns ? record->wall_ns : totals->last_ns;
    totals->late += (record->flags & STRATA_LOG_FLAG_LATE) != 0;
    totals->count[record->kind]++;
    totals->failures[record->kind] += failed;
    const bool of_graph = record->kind > STRATA_LOG_SYNCHRONIZE;
    bool sized = record->kind != STRATA_LOG_REAP && record->kind != STRATA_LOG_TRIM;
    if (!failed && !of_graph) /* many launches have the same memory */
        totals->bytes[record->kind] += sized && record->kind < STRATA_LOG_COMPLETED ? record->requested : record->bytes;
    if (!failed)
        count_block(totals, record);
}

void log_totals_print(FILE *to, const log_totals *t)
{
    uint64_t span = t->last_ns > t->first_ns ? t->last_ns - t->first_ns : 0;
    fprintf(to, "records          %s in %s, from %s\n", words_of_count(t->records).text, words_of_duration(span).text,
            clock_cell(t->first_ns).text);
    for (int kind = 1; kind < STRATA_LOG_KIND_LIMIT; kind++) {
        if (!t->count[kind])
            continue;
        fprintf(to, "%-16s %s", log_kind_name((strata_log_kind)kind), words_of_count(t->count[kind]).text);
        if (kind < STRATA_LOG_SYNCHRONIZE)
            fprintf(to, ", %s", words_of_bytes(t->bytes[kind]).text);
        if (t->failures[kind])
            fprintf(to, ", %s failed", words_of_count(t->failures[kind]).text);
        fputc('\n', to);
    }
    fprintf(to, "peak live        %s\n", words_of_bytes(t->peak).text);
    fprintf(to, "live at the end  %s in %s blocks\n", words_of_bytes(t->live).text,
            words_of_count(t->live_blocks).text);
    fprintf(to, "freed, pending   %s\n", words_of_bytes(t->pending).text);
    fprintf(to, "dropped          %s\n", words_of_count(t->dropped).text);
    fprintf(to, "late             %s\n", words_of_count(t->late).text);
}

bool log_totals_print_json(FILE *to, const log_totals *t)
{
    json_t *object = json_object(), *kinds = json_object();
    int failed = json_set_number(object, "records", t->records);
    failed |= json_set_number(object, "first_wall_ns", t->first_ns);
    failed |= json_set_number(object, "last_wall_ns", t->last_ns);
    for (int kind = 1; kind < STRATA_LOG_KIND_LIMIT; kind++) {
        json_t *one = json_object();
        failed |= json_set_number(one, "count", t->count[kind]);
        failed |= json_set_number(one, "failures", t->failures[kind]);
        failed |= json_set_number(one, "bytes", t->bytes[kind]);
        failed |= json_object_set_new(kinds, log_kind_name((strata_log_kind)kind), one);
    }
    failed |= json_object_set_new(object, "kinds", kinds);
    failed |= json_set_number(object, "peak_live_bytes", t->peak);
    failed |= json_set_number(object, "live_bytes", t->live);
    failed |= json_set_number(object, "live_blocks", t->live_blocks);
    failed |= json_set_number(object, "pending_bytes", t->pending);
    failed |= json_set_number(object, "dropped_records", t->dropped);
    failed |= json_set_number(object, "late_records", t->late);
    failed |= json_set_number(object, "torn_bytes", t->torn);
    return write_object(to, object, failed == 0);
}
