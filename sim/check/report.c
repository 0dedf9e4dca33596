/* Reports: text, duplicates, output; shadow.c and shadow_cells.c find what is reported. Each is written as it is found,
 * with one write: a process that ends early (a failed assertion, a signal, _exit) has written all. */
#include "check/check.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REPORTS = 1000 };

typedef struct stored_report {
    strata_sim_report shown;
    uint64_t first_stack;
    uint64_t second_stack;
    char *text;
} stored_report;

/* Guarded by sim.lock. */
static struct {
    stored_report *at;
    size_t kept;
    size_t capacity;
    uint64_t count; /* those not kept included */
    strata_sim_report_callback callback;
    void *data;
} reports;

/* ---- words ---- */

static const char *title(strata_sim_report_kind kind)
{
    switch (kind) {
    case STRATA_SIM_REPORT_WRITE_READ:
        return "a read does not come after a write";
    case STRATA_SIM_REPORT_READ_WRITE:
        return "a write does not come after a read";
    case STRATA_SIM_REPORT_WRITE_WRITE:
        return "a write does not come after another";
    case STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION:
        return "a use does not come after the allocation";
    case STRATA_SIM_REPORT_USE_AFTER_FREE:
        return "a use after the free";
    case STRATA_SIM_REPORT_FREE_IN_USE:
        return "a free does not come after a use";
    case STRATA_SIM_REPORT_OUTSIDE:
        return "a use of bytes that are in no allocation";
    case STRATA_SIM_REPORT_UNWRITTEN:
        return "a read of bytes that were never written";
    case STRATA_SIM_REPORT_LEAK:
        return "memory that was never freed";
    }
    return "";
}

static const char *what_host_did(sim_access_record_kind kind)
{
    switch (kind) {
    case SIM_RECORD_HOST_READ:
        return "the host's read";
    case SIM_RECORD_HOST_WRITE:
        return "the host's write";
    case SIM_RECORD_HOST_ALLOCATE:
        return "the allocation";
    case SIM_RECORD_HOST_FREE:
        return "the free";
    case SIM_RECORD_OPERATION:
        break;
    }
    return "the host's work";
}

static const char *what_operation(sim_op_kind kind)
{
    switch (kind) {
    case SIM_OP_HOST:
        return "the host function";
    case SIM_OP_COPY:
    case SIM_OP_COPY_ROWS:
        return "the copy";
    case SIM_OP_WRITE_VALUE:
        return "the write of a value";
    case SIM_OP_WAIT_VALUE:
        return "the wait for a value";
    case SIM_OP_FILL:
        return "the fill";
    case SIM_OP_KERNEL:
        return "the kernel";
    case SIM_OP_ALLOCATE:
        return "the allocation";
    case SIM_OP_FREE:
        return "the free";
    case SIM_OP_MARK:
    case SIM_OP_CONDITIONAL:
        break;
    }
    return "the operation";
}

static const char *what(const sim_access_record *record)
{
    return record->kind == SIM_RECORD_OPERATION ? what_operation(record->operation) : what_host_did(record->kind);
}

static bool of_host(const sim_access_record *record)
{
    return record->kind != SIM_RECORD_OPERATION;
}

/* Prints the stream, or the graph's launch stream, as part of a sentence. */
static void print_stream(const sim_access_record *record, FILE *out)
{
    static const char *const words[] = {
        [SIM_QUEUE_LEGACY] = "the legacy stream",
        [SIM_QUEUE_PER_THREAD] = "the per-thread stream",
        [SIM_QUEUE_CREATED] = "stream",
    };
    sim_queue_kind queue = record->in_stream ? record->queue : record->launched.queue;
    uint64_t stream = record->in_stream ? record->at.component : record->launched.stream;
    fprintf(out, "%s %llu", words[queue], (unsigned long long)stream);
}

static void print_place_of(const sim_access_record *record, FILE *out)
{
    fputs(record->in_stream ? "on " : "in a graph launched on ", out);
    print_stream(record, out);
}

static void print_entry(const char *entry, FILE *out)
{
    fprintf(out, "%.*s", (int)sim_entry_length(entry), entry);
}

static void print_record(const char *label, const sim_access_record *record, FILE *out)
{
    if (!record)
        return;
    fprintf(out, "  %s: %s", label, what(record) + strlen("the "));
    if (record->kernel)
        fprintf(out, " %s", record->kernel);
    if (record->entry) {
        fputs(", ", out);
        print_entry(record->entry, out);
    }
    fprintf(out, ", number %llu", (unsigned long long)record->order);
    if (!of_host(record)) {
        fputs(", ", out);
        print_place_of(record, out);
    } else if (record->entry) {
        fputs(", by the host", out);
    }
    const sim_made *node = &record->launched.node;
    if (node->entry) {
        fputs(", node made by ", out);
        print_entry(node->entry, out);
    }
    fputc('\n', out);
    sim_stack_print(record->stack, out);
    if (node->stack != 0) {
        fputs("    the node was made at:\n", out);
        sim_stack_print(node->stack, out);
    }
}

static void print_missing_dependency(const sim_access_record *first, const sim_access_record *second, FILE *out)
{
    const char *from = first->launched.node.entry;
    const char *to = second->launched.node.entry;
    fprintf(out, "no path of edges leads from %s to %s in one graph: add a dependency between the two nodes",
            what(first), what(second));
    if (from && to) {
        fputs(" made by ", out);
        print_entry(from, out);
    }
    if (from && to && strcmp(from, to) != 0) {
        fputs(" and ", out);
        print_entry(to, out);
    }
}

static void print_missing_edge(const sim_access_record *first, const sim_access_record *second, FILE *out)
{
    if (!first->in_stream && !second->in_stream && first->launched.launch == second->launched.launch) {
        print_missing_dependency(first, second, out);
        return;
    }
    print_stream(second, out);
    fprintf(out, " never waited for %s ", what(first));
    print_place_of(first, out);
    fputs(": record an event on ", out);
    print_stream(first, out);
    fprintf(out, " after %s, and let ", first->in_stream ? "it" : "the launch");
    print_stream(second, out);
    fprintf(out, " wait for that event before %s", second->in_stream ? what(second) : "the launch");
    if (!second->in_stream)
        fprintf(out, " of the graph with %s", what(second));
}

static void print_missing_wait(const sim_access_record *first, const sim_access_record *second, FILE *out)
{
    fprintf(out, "the host never waited for %s ", what(first));
    print_place_of(first, out);
    fputs(": synchronize with that stream, or with an event that is recorded on it later, before ", out);
    fputs(what(second), out);
}

static void print_missing(const sim_finding *finding, FILE *out)
{
    const sim_access_record *first = finding->first;
    const sim_access_record *second = finding->second;
    fputs("  missing: ", out);
    if (finding->kind == STRATA_SIM_REPORT_LEAK)
        fputs("a free before the end of the context or the process", out);
    else if (finding->kind == STRATA_SIM_REPORT_USE_AFTER_FREE)
        fputs("nothing can order a use behind the free: use the memory before it is freed, or free it later", out);
    else if (finding->kind == STRATA_SIM_REPORT_OUTSIDE)
        fputs("an allocation that holds these bytes", out);
    else if (finding->kind == STRATA_SIM_REPORT_UNWRITTEN)
        fputs("a write of these bytes that comes before the read", out);
    else if (!first || !second || (of_host(first) && of_host(second)))
        fputs("the allocation before the use", out);
    else if (of_host(second) && !of_host(first) && second->kind == SIM_RECORD_HOST_ALLOCATE)
        fputs("the allocation before the use is submitted", out);
    else if (of_host(second))
        print_missing_wait(first, second, out);
    else
        print_missing_edge(first, second, out);
    fputs(".\n", out);
}

static uint64_t later_order(const sim_finding *finding)
{
    uint64_t first = finding->first ? finding->first->order : 0;
    uint64_t second = finding->second ? finding->second->order : 0;
    return first > second ? first : second;
}

/* The region that a pool of the program had handed out at the finding's address; NULL: none. */
static const sim_region *region_of(const sim_finding *finding)
{
    if (finding->kind == STRATA_SIM_REPORT_LEAK)
        return finding->region;
    return finding->shadow ? sim_region_around(finding->shadow, finding->address, later_order(finding)) : NULL;
}

static void print_region(const sim_region *region, FILE *out)
{
    fprintf(out, "block of %llu bytes at 0x%llx", (unsigned long long)region->bytes,
            (unsigned long long)region->by_address.key);
}

static void print_allocated(const sim_finding *finding, FILE *out)
{
    const sim_access_record *allocated = finding->shadow ? finding->shadow->allocated : NULL;
    const sim_region *region = region_of(finding);
    if (region) {
        fputs("  allocated: ", out);
        print_region(region, out);
        fputs(", from a pool of the program\n", out);
        sim_stack_print(region->stack, out);
    } else if (finding->kind == STRATA_SIM_REPORT_LEAK ||
               (allocated != finding->first && allocated != finding->second)) {
        print_record("allocated", allocated, out);
    }
}

static void print_leak(const sim_finding *finding, FILE *out)
{
    const char *memory = finding->shadow->host ? "pinned" : "device";
    const char *part = finding->region ? "block" : "allocation";
    fprintf(out, "  bytes: %llu of %s memory at 0x%llx", (unsigned long long)finding->first_bytes, memory,
            (unsigned long long)finding->address);
    if (finding->count > 1)
        fprintf(out, ", the first of %llu %ss with %llu bytes", (unsigned long long)finding->count, part,
                (unsigned long long)finding->bytes);
    fputc('\n', out);
}

static void print_place(const sim_finding *finding, FILE *out)
{
    const sim_shadow *shadow = finding->shadow;
    fprintf(out, "  bytes: %llu at 0x%llx", (unsigned long long)finding->bytes, (unsigned long long)finding->address);
    if (shadow) {
        const char *memory = shadow->host ? "pinned" : "device";
        bool inside = finding->address - shadow->address < shadow->bytes;
        fprintf(out, ", %s %llu bytes of %s memory at 0x%llx", inside ? "in" : "behind",
                (unsigned long long)shadow->bytes, memory, (unsigned long long)shadow->address);
    }
    fputc('\n', out);
    if (finding->elsewhere) {
        fprintf(out, "  also: at 0x%llx, where the %s operation names them; they are mapped twice\n",
                (unsigned long long)finding->there, finding->elsewhere == finding->first ? "first" : "second");
    }
}

/* Makes the text of a report, which ends with an empty line. NULL without memory. */
static char *make_text(const sim_finding *finding, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fprintf(out, "strata-sim: %s\n", title(finding->kind));
    if (finding->kind == STRATA_SIM_REPORT_LEAK) {
        print_leak(finding, out);
    } else {
        print_place(finding, out);
        print_record(finding->second ? "first" : "use", finding->first, out);
        print_record(finding->first ? "second" : "use", finding->second, out);
    }
    print_allocated(finding, out);
    print_missing(finding, out);
    fputc('\n', out);
    fclose(out);
    return text;
}

/* ---- writing ---- */

/* Opens the file for each text: a program may close descriptors that it does not know. */
static int open_file(void)
{
    const char *name = sim.settings.check_file;
    return name ? sim_output_open(name, true) : -1;
}

/* Bypasses the program's buffers. Standard error takes what the file does not: a full disk loses no report. */
static void write_out(const char *text, size_t bytes)
{
    int before = errno;
    int file = open_file();
    size_t done = 0;
    if (file >= 0) {
        done = sim_output_write(file, text, bytes);
        close(file);
    }
    if (done < bytes)
        sim_output_write(STDERR_FILENO, text + done, bytes - done);
    errno = before;
}

/* A forked child has no driver, and is silent. */
static bool asked_to_write(void)
{
    return sim.settings.check_writes && sim.phase == SIM_RUNNING;
}

/* ---- keeping ---- */

static strata_sim_party party_of(const sim_access_record *record)
{
    if (!record)
        return (strata_sim_party){0};
    const char *host = record->kind == SIM_RECORD_HOST_READ ? "read" : "write";
    return (strata_sim_party){
        .entry = record->entry ? record->entry : host,
        .order = record->order,
        .stream = record->in_stream ? record->at.component : 0,
    };
}

/* The call stacks of a record: in the high half, where its graph's node was made. */
static uint64_t stack_of(const sim_access_record *record)
{
    return record ? (uint64_t)record->launched.node.stack << 32 | record->stack : 0;
}

/* Whether a party of an earlier report is at the record's place. Without call stacks, each operation is a place. */
static bool same_place(const strata_sim_party *party, uint64_t stack, const sim_access_record *record)
{
    if (stack != stack_of(record))
        return false;
    return stack != 0 || party->order == (record ? record->order : 0);
}

static stored_report *known(const sim_finding *finding)
{
    for (size_t i = 0; i < reports.kept; i++) {
        stored_report *report = &reports.at[i];
        if (report->shown.kind == finding->kind &&
            same_place(&report->shown.first, report->first_stack, finding->first) &&
            same_place(&report->shown.second, report->second_stack, finding->second))
            return report;
    }
    return NULL;
}

static bool room(void)
{
    if (reports.kept == MOST_REPORTS)
        return false;
    if (reports.kept < reports.capacity)
        return true;
    size_t capacity = reports.capacity ? 2 * reports.capacity : 16;
    stored_report *at = realloc(reports.at, capacity * sizeof *at);
    if (!at)
        return false;
    reports.at = at;
    reports.capacity = capacity;
    return true;
}

static bool excused(const sim_finding *finding)
{
    return finding->first && finding->second && sim_access_record_may_wait_for(finding->first, finding->second);
}

void sim_report(const sim_finding *finding)
{
    if (excused(finding))
        return;
    bool leak = finding->kind == STRATA_SIM_REPORT_LEAK;
    stored_report *before = leak ? NULL : known(finding); /* leaks come by their places */
    if (before) {
        before->shown.times++;
        return;
    }
    reports.count++;
    if (!room())
        return;
    size_t bytes;
    stored_report *report = &reports.at[reports.kept++];
    *report = (stored_report){
        .shown =
            {
                .size = sizeof report->shown,
                .kind = finding->kind,
                .address = finding->address,
                .bytes = finding->bytes,
                .first = party_of(finding->first),
                .second = party_of(finding->second),
                .times = leak ? finding->count : 1,
            },
        .first_stack = stack_of(finding->first),
        .second_stack = stack_of(finding->second),
        .text = make_text(finding, &bytes),
    };
    if (report->text) {
        if (asked_to_write())
            write_out(report->text, bytes);
        report->text[bytes - 1] = '\0'; /* the empty line is for the file */
    }
    report->shown.text = report->text ? report->text : "";
    if (reports.callback)
        reports.callback(&report->shown, reports.data);
}

void sim_report_clear(void)
{
    for (size_t i = 0; i < reports.kept; i++)
        free(reports.at[i].text);
    reports.kept = 0;
    reports.count = 0;
}

/* ---- at exit ---- */

static void print_again(const strata_sim_report *shown, FILE *out)
{
    fprintf(out, "strata-sim: found %llu times: %s", (unsigned long long)shown->times, title(shown->kind));
    uint64_t first = shown->first.order;
    uint64_t second = shown->second.order;
    if (first && second)
        fprintf(out, ", numbers %llu and %llu", (unsigned long long)first, (unsigned long long)second);
    else
        fprintf(out, ", number %llu", (unsigned long long)(first | second));
    fputc('\n', out);
}

static void print_end(FILE *out)
{
    for (size_t i = 0; i < reports.kept; i++)
        if (reports.at[i].shown.times > 1 && reports.at[i].shown.kind != STRATA_SIM_REPORT_LEAK)
            print_again(&reports.at[i].shown, out);
    if (reports.count > 0) {
        fprintf(out, "strata-sim: %llu report%s", (unsigned long long)reports.count, reports.count > 1 ? "s" : "");
        if (reports.count > reports.kept)
            fprintf(out, ", the first %zu of them written", reports.kept);
        fputc('\n', out);
    }
    if (sim_check.gave_up)
        fputs("strata-sim: the checker stopped for want of memory\n", out);
}

void sim_reports_flush(void (*add)(FILE *out))
{
    char *text = NULL;
    size_t bytes;
    FILE *out = asked_to_write() ? open_memstream(&text, &bytes) : NULL;
    if (out) {
        add(out);
        print_end(out);
        fclose(out);
        if (bytes > 0)
            write_out(text, bytes);
        free(text);
    }
}

bool sim_reports_any(void)
{
    return reports.count > 0;
}

void sim_reports_close(void)
{
    sim_report_clear();
    free(reports.at);
    reports.at = NULL;
    reports.capacity = 0;
}

/* ---- for the program ---- */

uint64_t sim_reports_count(void)
{
    return reports.count;
}

const strata_sim_report *sim_report_at(uint64_t index)
{
    return index < reports.kept ? &reports.at[index].shown : NULL;
}

void sim_reports_call(strata_sim_report_callback callback, void *data)
{
    reports.callback = callback;
    reports.data = data;
}
