/* Counts driver calls by name: a generated wrapper for each entry point, put between the table and the driver if
 * counting was enabled before the opening. */
#include "driver/driver.h"

#include <stddef.h>

enum {
#define CALL_NUMBER(need, name, version, parameters, arguments) CALL_##name,
    STRATA_ENTRY_POINTS(CALL_NUMBER)
#undef CALL_NUMBER
        CALL_COUNT
};

static _Atomic bool wanted;
static strata_entry_table real;             /* written once, before the state is OPEN */
static _Atomic uint64_t counts[CALL_COUNT]; /* any thread, relaxed */

#define WRAPPER(need, name, version, parameters, arguments)                       \
    static CUresult CUDAAPI count_##name parameters                               \
    {                                                                             \
        atomic_fetch_add_explicit(&counts[CALL_##name], 1, memory_order_relaxed); \
        return real.name arguments;                                               \
    }
STRATA_ENTRY_POINTS(WRAPPER)
#undef WRAPPER

void strata_calls_want(void)
{
    atomic_store(&wanted, true);
}

bool strata_calls_wanted(void)
{
    return atomic_load(&wanted);
}

void strata_calls_wrap(const strata_entry_table *original, strata_entry_table *wrapped)
{
    real = *original;
#define WRAP(need, name, version, parameters, arguments) wrapped->name = original->name ? count_##name : NULL;
    STRATA_ENTRY_POINTS(WRAP)
#undef WRAP
}

void strata_calls_visit(void (*visit)(const char *name, uint64_t count, void *data), void *data)
{
    static const char *const names[CALL_COUNT] = {
#define CALL_NAME(need, name, version, parameters, arguments) "cu" #name,
        STRATA_ENTRY_POINTS(CALL_NAME)
#undef CALL_NAME
    };
    for (size_t i = 0; i < CALL_COUNT; i++) {
        uint64_t count = atomic_load_explicit(&counts[i], memory_order_relaxed);
        if (count)
            visit(names[i], count, data);
    }
}
