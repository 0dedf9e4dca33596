/* Frees of what is no live block: by kind and library (and call stack, if stacks were asked for). They were answered
 * with CUDA_ERROR_INVALID_VALUE, which many programs do not look at. */
#include "adapters/exec/exec.h"

#include "core/base/call_stack.h"
#include "driver/driver.h"

#include <string.h>

enum { MOST_WRONG_FREES = 64 };

typedef struct wrong_free {
    exec_wrong_free kind;
    strata_tag library;
    uint32_t call_stack;
    uint64_t times;
    CUdeviceptr address; /* of the latest one */
} wrong_free;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wrong_free wrong_frees[MOST_WRONG_FREES]; /* guarded by the lock */
static size_t wrong_free_count;                  /* guarded by the lock */

void exec_wrong_free_note(exec_wrong_free kind, CUdeviceptr address)
{
    exec_count(&exec_counts_now.bad_frees);
    if (exec_settings_now.report == EXEC_REPORT_NONE || exec_is_forked())
        return; /* a forked child reports nothing, and another thread may have held the lock */
    const strata_tag library = exec_caller_walk();
    const uint32_t call_stack = exec_caller_stack();
    pthread_mutex_lock(&lock);
    wrong_free *entry = wrong_frees, *end = wrong_frees + wrong_free_count;
    while (entry < end && (entry->kind != kind || entry->library != library || entry->call_stack != call_stack))
        entry++;
    if (entry == end && wrong_free_count < MOST_WRONG_FREES) {
        *entry = (wrong_free){.kind = kind, .library = library, .call_stack = call_stack};
        end = wrong_frees + ++wrong_free_count;
    }
    if (entry < end) { /* without an entry only the sum counts it */
        entry->times++;
        entry->address = address;
    }
    pthread_mutex_unlock(&lock);
}

static void emit_line(const char *text, void *emitter)
{
    strata_emit_text(emitter, NULL, text);
}

static void emit_one(strata_emitter *emitter, const wrong_free *entry)
{
    static const char *const kinds[] = {
        [EXEC_FREE_DEAD] = "no live block: freed before, or never given out",
        [EXEC_FREE_INSIDE] = "inside a live block, not its begin",
        [EXEC_FREE_FOREIGN] = "of neither Strata nor the driver",
    };
    strata_emit_object_begin(emitter, NULL);
    strata_emit_text(emitter, "library", strata_tag_name(entry->library));
    strata_emit_text(emitter, "address_is", kinds[entry->kind]);
    strata_emit_hex(emitter, "address", entry->address);
    strata_emit_count(emitter, "times", entry->times);
    if (entry->call_stack) {
        strata_emit_list_begin(emitter, "call_stack");
        strata_call_stack_print(entry->call_stack, emit_line, emitter);
        strata_emit_list_end(emitter);
    }
    strata_emit_object_end(emitter);
}

void exec_wrong_frees_emit(strata_emitter *emitter)
{
    wrong_free read[MOST_WRONG_FREES];
    pthread_mutex_lock(&lock);
    const size_t count = wrong_free_count;
    memcpy(read, wrong_frees, count * sizeof read[0]);
    pthread_mutex_unlock(&lock);
    if (!count)
        return;
    strata_emit_list_begin(emitter, "wrong_frees");
    for (size_t i = 0; i < count; i++)
        emit_one(emitter, &read[i]);
    strata_emit_list_end(emitter);
}
