/* Why requests were refused: for each library that was refused memory (and call stack, if stacks were asked for), what
 * its latest such request met. */
#include "adapters/exec/exec.h"

#include "core/base/call_stack.h"

#include <strata/stack.h>
#include <strata/statistics.h>

#include <string.h>

enum { MOST_REFUSALS = 32, HOLDERS = 3 };

/* A library and what it held. */
typedef struct holder {
    strata_tag library;
    uint64_t live;
} holder;

typedef struct refusal {
    strata_tag library;
    int device;
    strata_status status;
    uint32_t call_stack;
    const char *kind; /* of memory that the driver gives; NULL: the stack's */
    uint64_t times;
    /* what the latest one met */
    size_t requested;
    uint64_t limit, in_use, remaining, device_free, reserved_free, passed_on, set_aside;
    holder holders[HOLDERS]; /* the largest first */
    char message[sizeof((strata_error *)0)->message];
} refusal;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static refusal refusals[MOST_REFUSALS]; /* guarded by the lock */
static size_t refusal_count;            /* guarded by the lock */
static uint64_t others;                 /* refusals without an entry; guarded by the lock */

uint32_t exec_caller_stack(void)
{
    return exec_settings_now.stacks ? strata_call_stack_capture(0) : 0;
}

strata_resource *exec_statistics_of(const exec_device *device)
{
    return strata_stack_layer(strata_runtime_stack(device->runtime), "statistics", 0);
}

/* ---- holders ---- */

typedef struct holder_search {
    strata_resource *statistics;
    holder *holders;
} holder_search;

static void add_holder(strata_tag tag, void *data)
{
    const holder_search *search = data;
    strata_statistics_counters counters;
    if (strata_statistics_read_tag(search->statistics, 0, tag, &counters) != STRATA_SUCCESS ||
        counters.bytes.current <= 0)
        return;
    holder here = {tag, (uint64_t)counters.bytes.current};
    for (size_t i = 0; i < HOLDERS; i++)
        if (here.live > search->holders[i].live) {
            const holder smaller = search->holders[i];
            search->holders[i] = here;
            here = smaller;
        }
}

static void find_holders(const exec_device *device, holder holders[HOLDERS])
{
    holder_search search = {exec_statistics_of(device), holders};
    if (search.statistics)
        exec_caller_visit(add_holder, &search);
}

/* ---- noting ---- */

static bool is_same(const refusal *one, const refusal *other)
{
    return one->library == other->library && one->device == other->device && one->status == other->status &&
           one->call_stack == other->call_stack && one->kind == other->kind;
}

static void enter(const refusal *now)
{
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < refusal_count && !is_same(&refusals[i], now))
        i++;
    const uint64_t before = i < refusal_count ? refusals[i].times : 0;
    if (i < MOST_REFUSALS) {
        refusal_count = i == refusal_count ? i + 1 : refusal_count;
        refusals[i] = *now;
        refusals[i].times = before + 1;
    } else {
        others++;
    }
    pthread_mutex_unlock(&lock);
}

void exec_refusal_note(const exec_device *device, const char *kind, size_t bytes, strata_status status)
{
    const strata_error error = *strata_last_error(); /* what follows may overwrite it */
    if (exec_settings_now.report == EXEC_REPORT_NONE || status == STRATA_ERROR_FORKED)
        return;
    refusal now = {.library = exec_caller_walk(),
                   .device = device->ordinal,
                   .status = status,
                   .call_stack = exec_caller_stack(),
                   .kind = kind,
                   .requested = bytes,
                   .limit = error.limit,
                   .in_use = error.in_use,
                   .remaining = error.remaining,
                   .device_free = error.device_free,
                   .reserved_free = error.reserved_free,
                   .passed_on = atomic_load(&device->passed_on),
                   .set_aside = atomic_load(&device->set_aside)};
    memcpy(now.message, error.message, sizeof now.message);
    find_holders(device, now.holders);
    enter(&now);
}

/* ---- reporting ---- */

static void emit_line(const char *text, void *emitter)
{
    strata_emit_text(emitter, NULL, text);
}

static void emit_if_known(strata_emitter *emitter, const char *name, uint64_t bytes)
{
    if (bytes)
        strata_emit_bytes(emitter, name, bytes);
}

static void emit_holders(strata_emitter *emitter, const holder holders[HOLDERS])
{
    if (!holders[0].live)
        return;
    strata_emit_object_begin(emitter, "held_by");
    for (size_t i = 0; i < HOLDERS && holders[i].live; i++)
        strata_emit_bytes(emitter, strata_tag_name(holders[i].library), holders[i].live);
    strata_emit_object_end(emitter);
}

static void emit_refusal(strata_emitter *emitter, const refusal *entry)
{
    strata_emit_object_begin(emitter, NULL);
    strata_emit_text(emitter, "library", strata_tag_name(entry->library));
    strata_emit_count(emitter, "device", (uint64_t)entry->device);
    if (entry->kind)
        strata_emit_text(emitter, "kind", entry->kind);
    strata_emit_count(emitter, "times", entry->times);
    strata_emit_bytes(emitter, "requested", entry->requested);
    strata_emit_text(emitter, "because", entry->message);
    if (entry->limit) {
        strata_emit_bytes(emitter, "limit", entry->limit);
        strata_emit_bytes(emitter, "in_use", entry->in_use);
        strata_emit_bytes(emitter, "remaining", entry->remaining);
    }
    emit_if_known(emitter, "set_aside", entry->set_aside);
    emit_if_known(emitter, "reserved_and_free", entry->reserved_free);
    emit_if_known(emitter, "free_on_the_device", entry->device_free);
    emit_holders(emitter, entry->holders);
    emit_if_known(emitter, "passed_on_to_the_driver", entry->passed_on);
    if (entry->call_stack) {
        strata_emit_list_begin(emitter, "call_stack");
        strata_call_stack_print(entry->call_stack, emit_line, emitter);
        strata_emit_list_end(emitter);
    }
    strata_emit_object_end(emitter);
}

void exec_refusals_emit(strata_emitter *emitter)
{
    static refusal read[MOST_REFUSALS]; /* guarded by `reading`: too large for a small thread's stack */
    static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&reading);
    pthread_mutex_lock(&lock);
    const size_t count = refusal_count;
    const uint64_t more = others;
    memcpy(read, refusals, count * sizeof read[0]);
    pthread_mutex_unlock(&lock);
    if (count)
        strata_emit_list_begin(emitter, "refusals");
    for (size_t i = 0; i < count; i++)
        emit_refusal(emitter, &read[i]);
    if (count)
        strata_emit_list_end(emitter);
    if (more)
        strata_emit_count(emitter, "more_refusals", more);
    pthread_mutex_unlock(&reading);
}
