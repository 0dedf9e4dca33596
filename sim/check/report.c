/* Reports of the checker: what they say, which are alike, and who gets them. */
#include "check/check.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REPORTS = 1000 };

struct report {
    strata_sim_report shown;
    uint64_t first_stack;
    uint64_t second_stack;
    char *text;
};

/* Guarded by sim.lock. */
static struct {
    struct report *at;
    size_t kept;
    size_t capacity;
    uint64_t count; /* those that were not kept included */
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
        return "a read of bytes that nobody wrote";
    }
    return "";
}

static const char *what_host_did(enum sim_act_kind kind)
{
    switch (kind) {
    case SIM_ACT_HOST_READ:
        return "the host's read";
    case SIM_ACT_HOST_WRITE:
        return "the host's write";
    case SIM_ACT_HOST_ALLOCATE:
        return "the allocation";
    case SIM_ACT_HOST_FREE:
        return "the free";
    case SIM_ACT_OPERATION:
        break;
    }
    return "the host's work";
}

static const char *what_operation(enum sim_op_kind kind)
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
        break;
    }
    return "the operation";
}

static const char *what(const struct sim_act *act)
{
    return act->kind == SIM_ACT_OPERATION ? what_operation(act->operation) : what_host_did(act->kind);
}

static bool of_host(const struct sim_act *act)
{
    return act->kind != SIM_ACT_OPERATION;
}

/* The stream, or the one that the graph was launched on, as part of a sentence. */
static void print_stream(const struct sim_act *act, FILE *out)
{
    static const char *const words[] = {
        [SIM_QUEUE_LEGACY] = "the legacy stream",
        [SIM_QUEUE_PER_THREAD] = "the per-thread stream",
        [SIM_QUEUE_CREATED] = "stream",
    };
    enum sim_queue_kind queue = act->in_stream ? act->queue : act->launched.queue;
    uint64_t stream = act->in_stream ? act->at.lane : act->launched.stream;
    fprintf(out, "%s %llu", words[queue], (unsigned long long)stream);
}

static void print_place_of(const struct sim_act *act, FILE *out)
{
    fputs(act->in_stream ? "on " : "in a graph launched on ", out);
    print_stream(act, out);
}

static void print_entry(const char *entry, FILE *out)
{
    fprintf(out, "%.*s", (int)sim_entry_length(entry), entry);
}

static void print_act(const char *label, const struct sim_act *act, FILE *out)
{
    if (!act) {
        return;
    }
    fprintf(out, "  %s: %s", label, what(act) + strlen("the "));
    if (act->kernel) {
        fprintf(out, " %s", act->kernel);
    }
    if (act->entry) {
        fputs(", ", out);
        print_entry(act->entry, out);
    }
    fprintf(out, ", number %llu", (unsigned long long)act->order);
    if (!of_host(act)) {
        fputs(", ", out);
        print_place_of(act, out);
    } else if (act->entry) {
        fputs(", by the host", out);
    }
    const struct sim_made *node = &act->launched.node;
    if (node->entry) {
        fputs(", node made by ", out);
        print_entry(node->entry, out);
    }
    fputc('\n', out);
    sim_stack_print(act->stack, out);
    if (node->stack != 0) {
        fputs("    the node was made at:\n", out);
        sim_stack_print(node->stack, out);
    }
}

static void print_missing_dependency(const struct sim_act *first, const struct sim_act *second, FILE *out)
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

/* The edge between two operations of streams or graphs. */
static void print_missing_edge(const struct sim_act *first, const struct sim_act *second, FILE *out)
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
    if (!second->in_stream) {
        fprintf(out, " of the graph with %s", what(second));
    }
}

static void print_missing_wait(const struct sim_act *first, const struct sim_act *second, FILE *out)
{
    fprintf(out, "the host never waited for %s ", what(first));
    print_place_of(first, out);
    fputs(": synchronize with that stream, or with an event that is recorded on it later, before ", out);
    fputs(what(second), out);
}

static void print_missing(const struct sim_finding *finding, FILE *out)
{
    const struct sim_act *first = finding->first;
    const struct sim_act *second = finding->second;
    fputs("  missing: ", out);
    if (finding->kind == STRATA_SIM_REPORT_USE_AFTER_FREE) {
        fputs("nothing can order a use behind the free: use the memory before it is freed, or free it later", out);
    } else if (finding->kind == STRATA_SIM_REPORT_OUTSIDE) {
        fputs("an allocation that holds these bytes", out);
    } else if (finding->kind == STRATA_SIM_REPORT_UNWRITTEN) {
        fputs("a write of these bytes that comes before the read", out);
    } else if (!first || !second || (of_host(first) && of_host(second))) {
        fputs("the allocation before the use", out);
    } else if (of_host(second) && !of_host(first) && second->kind == SIM_ACT_HOST_ALLOCATE) {
        fputs("the allocation before the use is submitted", out);
    } else if (of_host(second)) {
        print_missing_wait(first, second, out);
    } else {
        print_missing_edge(first, second, out);
    }
    fputs(".\n", out);
}

static void print_place(const struct sim_finding *finding, FILE *out)
{
    const struct sim_shadow *shadow = finding->shadow;
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

/* NULL without memory. */
static char *write_text(const struct sim_finding *finding)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) {
        return NULL;
    }
    const struct sim_act *allocated = finding->shadow ? finding->shadow->allocated : NULL;
    fprintf(out, "strata-sim: %s\n", title(finding->kind));
    print_place(finding, out);
    print_act(finding->second ? "first" : "use", finding->first, out);
    print_act(finding->first ? "second" : "use", finding->second, out);
    if (allocated != finding->first && allocated != finding->second) {
        print_act("allocated", allocated, out);
    }
    print_missing(finding, out);
    fclose(out);
    return text;
}

/* ---- keeping ---- */

static strata_sim_party party_of(const struct sim_act *act)
{
    if (!act) {
        return (strata_sim_party){0};
    }
    const char *host = act->kind == SIM_ACT_HOST_READ ? "read" : "write";
    return (strata_sim_party){
        .entry = act->entry ? act->entry : host,
        .order = act->order,
        .stream = act->in_stream ? act->at.lane : 0,
    };
}

/* Of a graph's operation both, where it was launched and where its node was made. */
static uint64_t stack_of(const struct sim_act *act)
{
    return act ? (uint64_t)act->launched.node.stack << 32 | act->stack : 0;
}

/* Without call stacks, what tells two places of a program apart is the operation itself. */
static bool same_place(const strata_sim_party *party, uint64_t stack, const struct sim_act *act)
{
    if (stack != stack_of(act)) {
        return false;
    }
    return stack != 0 || party->order == (act ? act->order : 0);
}

static struct report *known(const struct sim_finding *finding)
{
    for (size_t i = 0; i < reports.kept; i++) {
        struct report *report = &reports.at[i];
        if (report->shown.kind == finding->kind &&
            same_place(&report->shown.first, report->first_stack, finding->first) &&
            same_place(&report->shown.second, report->second_stack, finding->second)) {
            return report;
        }
    }
    return NULL;
}

static bool room(void)
{
    if (reports.kept < reports.capacity) {
        return true;
    }
    size_t capacity = reports.capacity ? 2 * reports.capacity : 16;
    if (reports.kept == MOST_REPORTS) {
        return false;
    }
    struct report *at = realloc(reports.at, capacity * sizeof *at);
    if (!at) {
        return false;
    }
    reports.at = at;
    reports.capacity = capacity;
    return true;
}

static bool excused(const struct sim_finding *finding)
{
    return finding->first && finding->second && sim_act_may_wait_for(finding->first, finding->second);
}

void sim_report(const struct sim_finding *finding)
{
    if (excused(finding)) {
        return;
    }
    struct report *before = known(finding);
    if (before) {
        before->shown.times++;
        return;
    }
    reports.count++;
    if (!room()) {
        return;
    }
    struct report *report = &reports.at[reports.kept++];
    *report = (struct report){
        .shown =
            {
                .size = sizeof report->shown,
                .kind = finding->kind,
                .address = finding->address,
                .bytes = finding->bytes,
                .first = party_of(finding->first),
                .second = party_of(finding->second),
                .times = 1,
            },
        .first_stack = stack_of(finding->first),
        .second_stack = stack_of(finding->second),
        .text = write_text(finding),
    };
    report->shown.text = report->text ? report->text : "";
    if (reports.callback) {
        reports.callback(&report->shown, reports.data);
    }
}

static void clear(void)
{
    for (size_t i = 0; i < reports.kept; i++) {
        free(reports.at[i].text);
    }
    reports.kept = 0;
    reports.count = 0;
}

/* ---- at exit ---- */

/* The file's name with the process in place of %p. NULL without memory. */
static char *file_name(const char *pattern)
{
    const char *mark = strstr(pattern, "%p");
    size_t bytes = strlen(pattern) + 16;
    char *name = malloc(bytes);
    if (!name) {
        return NULL;
    }
    if (mark) {
        snprintf(name, bytes, "%.*s%ld%s", (int)(mark - pattern), pattern, (long)getpid(), mark + 2);
    } else {
        snprintf(name, bytes, "%s", pattern);
    }
    return name;
}

static void print_all(FILE *out)
{
    for (size_t i = 0; i < reports.kept; i++) {
        const strata_sim_report *shown = &reports.at[i].shown;
        fputs(shown->text, out);
        if (shown->times > 1) {
            fprintf(out, "  found %llu times\n", (unsigned long long)shown->times);
        }
        fputc('\n', out);
    }
    if (reports.count > 0) {
        fprintf(out, "strata-sim: %llu reports\n", (unsigned long long)reports.count);
    }
    if (sim_check.gave_up) {
        fputs("strata-sim: the checker stopped for want of memory\n", out);
    }
}

void sim_reports_write(void)
{
    if (!sim.settings.check_at_exit || (reports.count == 0 && !sim_check.gave_up)) {
        return;
    }
    char *name = sim.settings.check_file ? file_name(sim.settings.check_file) : NULL;
    FILE *file = name ? fopen(name, "a") : NULL;
    print_all(file ? file : stderr);
    if (file) {
        fclose(file);
    }
    free(name);
}

bool sim_reports_any(void)
{
    return reports.count > 0;
}

void sim_reports_close(void)
{
    clear();
    free(reports.at);
    reports.at = NULL;
    reports.capacity = 0;
}

/* ---- for the program ---- */

CUresult strata_sim_get_report_count(uint64_t *count)
{
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&sim.lock);
    *count = reports.count;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_get_report(uint64_t index, strata_sim_report *report)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim.lock);
    if (report && index < reports.kept) {
        *report = reports.at[index].shown;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_clear_reports(void)
{
    pthread_mutex_lock(&sim.lock);
    clear();
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_set_report_callback(strata_sim_report_callback callback, void *data)
{
    pthread_mutex_lock(&sim.lock);
    reports.callback = callback;
    reports.data = data;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}
